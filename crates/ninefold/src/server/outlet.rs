//! The way out of a connection: [`Outlet`] takes replies from the outbox and gives them to the stream.
//!
//! Replies in memory leave in gathered writes. Where several have data in pipes, these and the heads between them are put into one
//! pipe first, which costs a little for each page and none for its bytes, so that many replies leave with one call. One alone leaves by a
//! call for its head and one for its data, which is one less.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ninefold_proto::server::{Chunk, Outbox};
use tokio::io::AsyncWrite;

use super::Data;
use crate::transport::{PipeShare, Piped, Stream};

/// Slices in one gathered write; Linux takes 1,024 (UIO_MAXIOV), and 64 carry over 30 replies with data.
const SLICES: usize = 64;

/// Bytes in memory that are put into a pipe between others: a page of it. More is cheaper sent from where it is.
const SMALL: usize = 4096;

#[derive(Debug)]
pub(super) struct Outlet {
    share: PipeShare,
    /// Replies, in order, that were taken from the outbox. Never empty.
    gathered: Option<Piped>,
}

impl Outlet {
    /// For a connection that may use the pipes of `share`.
    pub fn new(share: PipeShare) -> Outlet {
        Outlet { share, gathered: None }
    }

    /// Bytes that were taken from the outbox and not yet by the stream.
    pub fn len(&self) -> usize {
        self.gathered.as_ref().map_or(0, Piped::len)
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.gathered = None;
    }

    /// Gives the stream what it takes in one call of what is gathered and of `out`, in which there must be something.
    /// An error when the stream failed or is closed.
    pub fn poll_send(
        &mut self,
        stream: &mut Stream,
        out: &mut Outbox<Data>,
        task: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.gathered.is_some() || has_several_in_pipes(out) && self.gather(out) {
            return self.poll_send_gathered(stream, out, task);
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let (mut n, mut piped) = (0, None);
        for chunk in out.chunks().take(SLICES) {
            match chunk {
                Chunk::Memory(memory) => {
                    slices[n] = IoSlice::new(memory);
                    n += 1;
                }
                Chunk::Outside(data, _) => {
                    piped = data.pipe();
                    break;
                }
            }
        }
        let sent = match piped {
            None => Pin::new(stream).poll_write_vectored(task, &slices[..n]),
            Some(piped) if n == 0 => stream.poll_send_piped(task, piped, out.len() > piped.len()),
            Some(_) => stream.poll_send_before_more(task, &slices[..n]),
        };
        let sent = some(ready!(sent))?;
        out.advance(sent);
        Poll::Ready(Ok(()))
    }

    fn poll_send_gathered(
        &mut self,
        stream: &mut Stream,
        out: &Outbox<Data>,
        task: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(gathered) = &self.gathered {
            some(ready!(stream.poll_send_piped(task, gathered, !out.is_empty())))?;
            if gathered.len() == 0 {
                self.gathered = None;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes replies from `out` into a pipe until it is full or much memory comes; `false` where there is no pipe.
    fn gather(&mut self, out: &mut Outbox<Data>) -> bool {
        let Some(mut pipe) = self.share.take() else { return false };
        loop {
            let taken = match out.chunks().next() {
                Some(Chunk::Memory(bytes)) if bytes.len() <= SMALL => pipe.push(bytes),
                Some(Chunk::Outside(data, _)) => data.pipe().map_or(Ok(0), |piped| pipe.take_over(piped)),
                Some(Chunk::Memory(_)) | None => break,
            };
            match taken {
                Ok(taken @ 1..) => out.advance(taken),
                // Full, or whatever it is: what is left can be sent from where it is.
                Ok(0) | Err(_) => break,
            }
        }
        self.gathered = (pipe.len() > 0).then_some(pipe);
        self.gathered.is_some()
    }
}

/// Whether data in two pipes come next, with no more than a little memory before each.
fn has_several_in_pipes(out: &Outbox<Data>) -> bool {
    let (mut bytes, mut pipes) = (0, 0);
    for chunk in out.chunks() {
        match chunk {
            Chunk::Outside(..) => (bytes, pipes) = (0, pipes + 1),
            Chunk::Memory(memory) => bytes += memory.len(),
        }
        if bytes > SMALL || pipes > 1 {
            break;
        }
    }
    pipes > 1
}

/// Nothing sent to a stream that was ready is its end.
fn some(sent: io::Result<usize>) -> io::Result<usize> {
    sent.and_then(|n| if n > 0 { Ok(n) } else { Err(io::ErrorKind::WriteZero.into()) })
}
