//! One connection's bytes, whatever carries them.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::piped::{Piped, sigpipe_is_harmless};
use super::process::Process;
use super::stdio::Stdio;
use super::tls::Tls;

/// A connection. `shutdown` closes the way out only; dropping it closes both.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Tls),
    Stdio(Stdio),
    /// The standard input and output of a process that we started.
    Process(Process),
    Memory(DuplexStream),
    /// Anything else.
    Other(Box<dyn Carrier>),
}

/// What a connection's bytes can be carried by.
pub trait Carrier: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Carrier for S {}

impl fmt::Debug for dyn Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Carrier")
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream::Tcp(stream)
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        Stream::Unix(stream)
    }
}

impl From<DuplexStream> for Stream {
    fn from(stream: DuplexStream) -> Stream {
        Stream::Memory(stream)
    }
}

impl Stream {
    /// Anything that carries bytes.
    pub fn other(carrier: impl Carrier + 'static) -> Stream {
        Stream::Other(Box::new(carrier))
    }

    /// Whether it is a socket, which takes what a pipe holds, and this process survives that its peer is gone.
    pub(crate) fn takes_pipes(&self) -> bool {
        matches!(self, Stream::Tcp(_) | Stream::Unix(_)) && sigpipe_is_harmless()
    }

    /// As `poll_write_vectored` on a socket, but what is sent may wait for what follows at once.
    pub(crate) fn poll_send_before_more(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        self.poll_send(cx, |socket| sendmsg(socket, bufs, &mut SendAncillaryBuffer::default(), flags))
    }

    /// Sends what a pipe holds to a socket. `more` follows at once.
    pub(crate) fn poll_send_piped(&self, cx: &mut Context<'_>, piped: &Piped, more: bool) -> Poll<io::Result<usize>> {
        self.poll_send(cx, |socket| piped.send(socket, more))
    }

    /// Makes `call`, which does not wait, when the socket is ready for it.
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        call: impl Fn(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let sent = match self {
                Stream::Tcp(s) => {
                    ready!(s.poll_write_ready(cx))?;
                    s.try_io(Interest::WRITABLE, || Ok(call(s.as_fd())?))
                }
                Stream::Unix(s) => {
                    ready!(s.poll_write_ready(cx))?;
                    s.try_io(Interest::WRITABLE, || Ok(call(s.as_fd())?))
                }
                _ => Err(io::ErrorKind::Unsupported.into()),
            };
            match sent {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Its peer was given up: a process of ours must not wait for it when we have ended.
    pub(crate) fn forsake(&mut self) {
        if let Stream::Process(process) = self {
            process.forsake();
        }
    }
}

/// The same call on whichever it is.
macro_rules! each {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Tcp($inner) => $call,
            Stream::Unix($inner) => $call,
            Stream::Tls($inner) => $call,
            Stream::Stdio($inner) => $call,
            Stream::Process($inner) => $call,
            Stream::Memory($inner) => $call,
            Stream::Other($inner) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, s => Pin::new(s).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, s => Pin::new(s).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, s => Pin::new(s).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Tcp(s) => s.is_write_vectored(),
            Stream::Unix(s) => s.is_write_vectored(),
            Stream::Tls(s) => s.is_write_vectored(),
            Stream::Stdio(s) => s.is_write_vectored(),
            Stream::Process(s) => s.is_write_vectored(),
            Stream::Memory(s) => s.is_write_vectored(),
            Stream::Other(s) => s.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, s => Pin::new(s).poll_shutdown(cx))
    }
}
