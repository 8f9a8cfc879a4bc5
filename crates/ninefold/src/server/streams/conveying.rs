//! Bytes between a file server's [`Source`] or [`Sink`] and a data connection. What has come is passed on before more is taken, so that
//! whoever is slow, the peer or the file's server, slows down the other, and memory holds one piece.

use bytes::{Bytes, BytesMut};
use ninefold_proto::{Errno, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::life::{Bounds, cut_short};
use crate::server::conduit::{Seen, Sink, Source};
use crate::server::dispatch::outlive;
use crate::transport::Stream;

/// Bytes that are taken from a data connection at a time: enough that system calls are nothing beside the copying.
const PIECE: usize = 256 * 1024;

/// A buffer with less room is not worth a system call.
const LEAST: usize = 64 * 1024;

pub(super) enum Conduit {
    Source(Box<dyn Source>),
    Sink(Box<dyn Sink>),
}

fn out_of_contract() -> Error {
    Error::with_text(Errno::EIO, "file server answered out of contract")
}

/// Sends what the source has: `length` bytes, or fewer where the file ends before. Answers how many, and what became of the file
/// meanwhile.
pub(super) async fn to_peer(
    mut source: Box<dyn Source>,
    stream: &mut Stream,
    length: Option<u64>,
    bounds: &Bounds,
) -> Result<(u64, Seen), Error> {
    let mut sent = 0;
    while let Some(bytes) = bounds.unless_aborted(outlive(async { source.next().await })).await? {
        if bytes.is_empty() || length.is_some_and(|length| bytes.len() as u64 > length - sent) {
            return Err(out_of_contract());
        }
        send(&bytes, stream, bounds).await?;
        sent += bytes.len() as u64;
        tokio::task::yield_now().await;
    }
    // The peer takes the end of the connection for that of the whole: first the source's last word.
    let seen = bounds.unless_aborted(outlive(async { source.finish().await })).await?;
    Ok((sent, seen))
}

async fn send(bytes: &Bytes, stream: &mut Stream, bounds: &Bounds) -> Result<(), Error> {
    let mut left = &bytes[..];
    while !left.is_empty() {
        // Each byte that goes gives the peer its time anew.
        match bounds.wait(stream.write(left)).await? {
            0 => return Err(Error::with_text(Errno::EPIPE, "the data connection was closed")),
            n => {
                bounds.moved(n as u64);
                left = &left[n..];
            }
        }
    }
    // TLS holds back what its socket did not take, and what comes next may take long.
    bounds.wait(stream.flush()).await
}

/// Gives the sink what comes: `length` bytes, or until the peer ends. Answers how many are in the file.
pub(super) async fn from_peer(
    mut sink: Box<dyn Sink>,
    stream: &mut Stream,
    offset: u64,
    length: Option<u64>,
    bounds: &Bounds,
) -> Result<u64, Error> {
    let most = length.unwrap_or(i64::MAX as u64 - offset);
    let (mut came, mut buffer) = (0, BytesMut::new());
    while came < most {
        if buffer.capacity() < LEAST {
            // The bytes of a buffer that nobody has any more are used again.
            buffer.reserve(PIECE);
        }
        let read = async {
            // No more than is asked for: what is behind it is not this stream's.
            (&mut *stream).take(most - came).read_buf(&mut buffer).await
        };
        let n = bounds.wait(read).await? as u64;
        if n == 0 {
            if length.is_some() {
                return Err(cut_short());
            }
            break;
        }
        came += n;
        bounds.moved(n);
        let bytes = buffer.split().freeze();
        bounds.unless_aborted(outlive(async { sink.write(bytes).await })).await?;
        tokio::task::yield_now().await;
    }
    if length.is_none() && came == most {
        return Err(Errno::EFBIG.into());
    }
    let written = bounds.unless_aborted(outlive(async { sink.finish().await })).await?;
    if written == came { Ok(came) } else { Err(out_of_contract()) }
}
