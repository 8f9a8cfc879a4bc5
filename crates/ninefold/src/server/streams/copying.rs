//! Bytes between a file server's reads and writes and a data connection: for every tree, and for connections that are no
//! sockets. A few calls of a stream are under way at a time, and no more is in memory.

use std::collections::VecDeque;
use std::future::Future;
use std::io::IoSliceMut;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ninefold_proto::{Errno, Error};
use rustix::io::{Errno as Os, preadv, pwrite};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::descriptor::Descriptor;
use super::life::{Bounds, aborted, cut_short};
use crate::server::cx::{Cancel, Parking};
use crate::server::dispatch::{Handle, outlive, survive};
use crate::server::{Answer, Cx};
use crate::transport::Stream;

/// Bytes of one read or write.
const PIECE: usize = 128 * 1024;

/// Reads or writes of a stream that are under way: where the file is another server's they overlap its delay.
const UNDER_WAY: usize = 4;

type Later<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// What is read or written.
#[derive(Clone)]
pub(super) enum Backing {
    File(Handle),
    Host(Arc<dyn Descriptor>),
}

/// A backing, and the word to its calls that they are to end. None of them is dropped before it is done.
struct Calls {
    backing: Backing,
    cx: Cx,
    cancel: Arc<Cancel>,
}

fn os(error: Os) -> Error {
    Errno(error.raw_os_error().cast_unsigned()).into()
}

impl Calls {
    fn new(backing: &Backing) -> Calls {
        let cancel = Arc::<Cancel>::default();
        // A stream is no request, and takes no room of any.
        let cx = Cx::new(0, cancel.clone(), Parking::new(usize::MAX, u64::MAX, None));
        Calls { backing: backing.clone(), cx, cancel }
    }

    /// Up to `count` bytes; none at the end.
    fn read(&self, at: u64, count: usize) -> Later<Bytes> {
        let answer = match &self.backing {
            Backing::File(file) => survive(|| file.read(&self.cx, at, count as u32)).map(|data| data?.into_bytes()),
            Backing::Host(file) => {
                let file = file.clone();
                Answer::blocking(move || {
                    let mut bytes = vec![0; count];
                    loop {
                        match preadv(file.fd(), &mut [IoSliceMut::new(&mut bytes)], at) {
                            Err(Os::INTR) => {}
                            Err(error) => return Err(os(error)),
                            Ok(n) => {
                                bytes.truncate(n);
                                return Ok(bytes.into());
                            }
                        }
                    }
                })
            }
        };
        let read = async move {
            let bytes = outlive(answer.wait()).await?;
            if bytes.len() > count {
                Err(Error::with_text(Errno::EIO, "file server answered out of contract"))
            } else {
                Ok(bytes)
            }
        };
        Box::pin(read)
    }

    /// Writes all of `bytes`.
    fn write(&self, at: u64, bytes: Bytes) -> Later<()> {
        let (backing, cx) = (self.backing.clone(), self.cx.clone());
        Box::pin(async move {
            let (mut at, mut left) = (at, bytes);
            while !left.is_empty() {
                let n = match &backing {
                    Backing::File(file) => {
                        outlive(survive(|| file.write(&cx, at, left.clone())).wait()).await? as usize
                    }
                    Backing::Host(file) => {
                        let (file, bytes) = (file.clone(), left.clone());
                        Answer::blocking(move || write_as_user(&*file, at, &bytes)).wait().await?
                    }
                };
                if n == 0 || n > left.len() {
                    return Err(Error::with_text(Errno::EIO, "file server answered out of contract"));
                }
                drop(left.split_to(n));
                at += n as u64;
                if cx.is_cancelled() {
                    return Err(aborted());
                }
            }
            Ok(())
        })
    }

    /// Waits for one of the calls; when the stream is to end, all are told so, and then waited for.
    async fn or_end<T>(&self, call: impl Future<Output = T>, bounds: &Bounds) -> T {
        tokio::pin!(call);
        tokio::select! {
            biased;
            done = &mut call => return done,
            () = bounds.abort.cancelled() => self.cancel.cancel(),
        }
        call.await
    }
}

fn write_as_user(file: &dyn Descriptor, at: u64, bytes: &[u8]) -> Result<usize, Error> {
    let mut written = 0;
    file.as_user(&mut || {
        loop {
            match pwrite(file.fd(), bytes, at) {
                Err(Os::INTR) => {}
                Err(error) => return Err(os(error)),
                Ok(n) => {
                    written = n;
                    return Ok(());
                }
            }
        }
    })?;
    Ok(written)
}

/// Sends what is read from `offset` on: `length` bytes, or fewer where the file ends before. Answers how many.
pub(super) async fn to_peer(
    backing: &Backing,
    stream: &mut Stream,
    offset: u64,
    length: Option<u64>,
    bounds: &Bounds,
) -> Result<u64, Error> {
    let calls = Calls::new(backing);
    let mut reads = VecDeque::new();
    let sent = send_all(&calls, &mut reads, stream, offset, length, bounds).await;
    calls.cancel.cancel();
    for (_, read) in reads {
        // What it brings is of no use any more.
        let _ = read.await;
    }
    sent
}

async fn send_all(
    calls: &Calls,
    reads: &mut VecDeque<(usize, Later<Bytes>)>,
    stream: &mut Stream,
    offset: u64,
    length: Option<u64>,
    bounds: &Bounds,
) -> Result<u64, Error> {
    let end = length.map_or(i64::MAX as u64, |length| offset + length);
    // Sent to here, and read from here on.
    let (mut at, mut next) = (offset, offset);
    while at < end {
        while reads.len() < UNDER_WAY && next < end {
            let count = usize::try_from(end - next).unwrap_or(usize::MAX).min(PIECE);
            // The first of them are begun one after another: most files are short.
            if !reads.is_empty() && at == offset {
                break;
            }
            // Begun now, also if the one before it is waited for.
            reads.push_back((count, spawned(calls.read(next, count))));
            next += count as u64;
        }
        let Some((count, read)) = reads.pop_front() else { break };
        let bytes = calls.or_end(read, bounds).await?;
        if bounds.abort.is_cancelled() {
            return Err(aborted());
        }
        if bytes.is_empty() {
            break;
        }
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
        // TLS holds back what its socket did not take, and the next read may take long.
        bounds.wait(stream.flush()).await?;
        at += bytes.len() as u64;
        if bytes.len() < count {
            // The others began behind a gap.
            while let Some((_, read)) = reads.pop_front() {
                let _ = calls.or_end(read, bounds).await;
            }
            next = at;
        }
        tokio::task::yield_now().await;
    }
    Ok(at - offset)
}

/// A call that goes on by itself.
fn spawned<T: Send + 'static>(call: Later<T>) -> Later<T> {
    let task = tokio::spawn(call);
    Box::pin(async move { task.await.unwrap_or_else(|_| Err(Error::with_text(Errno::EIO, "file server failed"))) })
}

/// Writes, from `offset` on, what comes: `length` bytes, or until the peer ends. Answers how many.
pub(super) async fn from_peer(
    backing: &Backing,
    stream: &mut Stream,
    offset: u64,
    length: Option<u64>,
    in_order: bool,
    bounds: &Bounds,
) -> Result<u64, Error> {
    let calls = Calls::new(backing);
    let mut writes = FuturesUnordered::new();
    let most = if in_order { 1 } else { UNDER_WAY };
    let mut result = take_all(&calls, &mut writes, most, stream, (offset, length), bounds).await;
    if result.is_err() {
        calls.cancel.cancel();
    }
    while let Some(written) = calls.or_end(writes.next(), bounds).await {
        result = result.and_then(|count| written.map(|()| count));
    }
    result
}

async fn take_all(
    calls: &Calls,
    writes: &mut FuturesUnordered<Later<()>>,
    most: usize,
    stream: &mut Stream,
    (offset, length): (u64, Option<u64>),
    bounds: &Bounds,
) -> Result<u64, Error> {
    let end = length.map_or(i64::MAX as u64, |length| offset + length);
    let mut at = offset;
    while at < end {
        while writes.len() >= most {
            if let Some(written) = calls.or_end(writes.next(), bounds).await {
                written?;
            }
        }
        let mut piece = BytesMut::with_capacity(usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE));
        let is_over = fill(&mut piece, writes, stream, bounds).await?;
        let count = piece.len() as u64;
        if count > 0 {
            writes.push(spawned(calls.write(at, piece.freeze())));
            at += count;
        }
        if is_over {
            return if length.is_some() && at < end { Err(cut_short()) } else { Ok(at - offset) };
        }
        tokio::task::yield_now().await;
    }
    if length.is_none() { Err(Errno::EFBIG.into()) } else { Ok(at - offset) }
}

/// Fills the piece, as far as something comes before what is written fails; whether the peer has ended its direction.
async fn fill(
    piece: &mut BytesMut,
    writes: &mut FuturesUnordered<Later<()>>,
    stream: &mut Stream,
    bounds: &Bounds,
) -> Result<bool, Error> {
    let whole = piece.capacity();
    while piece.len() < whole {
        let mut rest = piece.split_off(piece.len());
        let read = async {
            // No more than is asked for: what is behind it is not this stream's.
            let room = whole - piece.len();
            (&mut *stream).take(room as u64).read_buf(&mut rest).await
        };
        let n = tokio::select! {
            read = bounds.wait(read) => read?,
            Some(written) = writes.next() => {
                written?;
                piece.unsplit(rest);
                continue;
            }
        };
        bounds.moved(n as u64);
        piece.unsplit(rest);
        if n == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
