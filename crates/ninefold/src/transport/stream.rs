//! One connection's bytes, whatever carries them.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::piped::{Piped, sigpipe_is_harmless};
use super::process::Process;
use super::stdio::Stdio;
use super::tls::Tls;

/// Bytes that are written between two looks at how full a buffer is.
const STEP: usize = 64 * 1024;

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

    /// Takes up to `count` bytes that have come to a socket into a pipe.
    pub(crate) fn poll_receive_piped(
        &self,
        cx: &mut Context<'_>,
        piped: &mut Piped,
        count: usize,
    ) -> Poll<io::Result<Received>> {
        loop {
            let received = match self {
                Stream::Tcp(s) => {
                    ready!(s.poll_read_ready(cx))?;
                    s.try_io(Interest::READABLE, || receive(s.as_fd(), piped, count))
                }
                Stream::Unix(s) => {
                    ready!(s.poll_read_ready(cx))?;
                    s.try_io(Interest::READABLE, || receive(s.as_fd(), piped, count))
                }
                _ => Ok(Received::Refused),
            };
            match received {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                received => return Poll::Ready(received),
            }
        }
    }

    /// What a socket has now, whether or not the runtime knows of it; EAGAIN where it has nothing, or is no socket.
    pub(crate) fn read_now(&self, buf: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Stream::Tcp(socket) => recv(socket, buf, RecvFlags::DONTWAIT),
            Stream::Unix(socket) => recv(socket, buf, RecvFlags::DONTWAIT),
            _ => Err(Errno::AGAIN),
        };
        Ok(read?.0)
    }

    /// Writes some of `data` where much of it follows. Of a TCP socket about a third of the buffer stays free, as far as poll(2) says that (tcp(7),
    /// tcp_wmem): who fills it whenever there is room has all of it in flight, which is more than the queues of many ways hold; and BBR takes such a
    /// connection for one that has nothing more to send, does not find out what the way carries, and overruns it for long.
    pub(crate) async fn write_in_step(&mut self, data: &[u8]) -> io::Result<usize> {
        let tcp = match self {
            Stream::Tcp(tcp) => &*tcp,
            other => return other.write(data).await,
        };
        let piece = &data[..data.len().min(STEP)];
        loop {
            // The socket may have room for long: others have their turn.
            tokio::task::coop::consume_budget().await;
            tcp.writable().await?;
            let sent = tcp.try_io(Interest::WRITABLE, || {
                // Asked like this, the kernel tells when there is.
                if poll(&mut [PollFd::new(tcp, PollFlags::OUT)], Some(&Timespec::default()))? == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(send(tcp, piece, SendFlags::NOSIGNAL)?)
            });
            match sent {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                sent => return sent,
            }
        }
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

/// What came of taking bytes into a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    Some,
    /// More has come than the pipe has places for.
    Full,
    /// Nothing of this socket goes into a pipe.
    Refused,
    /// The peer sends no more.
    End,
}

/// EAGAIN is only where the socket has nothing: splice(2) gives it for a full pipe too, and then nobody would be told that there is something.
fn receive(socket: BorrowedFd<'_>, piped: &mut Piped, count: usize) -> io::Result<Received> {
    for is_last in [false, true] {
        match piped.receive(socket, count) {
            Ok(0) => return Ok(Received::End),
            Ok(_) => return Ok(Received::Some),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => return Ok(Received::Refused),
            Err(Errno::AGAIN) if !is_last => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
        // What comes between the two calls finds room at the second one.
        recv(socket, &mut [0], RecvFlags::DONTWAIT | RecvFlags::PEEK)?;
    }
    Ok(Received::Full)
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_is_written_in_step_leaves_room_and_goes_on_when_there_is_more() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut far = listener.accept().await.unwrap().0;
        near.writable().await.unwrap();
        // What is asked for is doubled: socket(7).
        rustix::net::sockopt::set_socket_send_buffer_size(&near, 8 * STEP).unwrap();
        let mut stream = Stream::Tcp(near);
        let data = vec![7; 1 << 20];
        // The peer takes nothing: first its buffer fills, then ours.
        let mut written = 0;
        while let Some(sent) = stream.write_in_step(&data).now_or_never() {
            let sent = sent.unwrap();
            assert!(sent > 0 && sent <= STEP);
            written += sent;
            tokio::task::yield_now().await;
        }
        let Stream::Tcp(near) = &stream else { panic!("it is one") };
        written += send(near, &data[..1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT).unwrap();
        let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
        let reads = async {
            while got < written + data.len() {
                got += far.read(&mut buffer).await.unwrap();
            }
        };
        let writes = async {
            let mut left = &data[..];
            while !left.is_empty() {
                let sent = stream.write_in_step(left).await.unwrap();
                left = &left[sent..];
            }
        };
        tokio::join!(reads, writes);
        assert_eq!(got, written + data.len());
    }
}
