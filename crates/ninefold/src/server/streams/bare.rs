//! A connection of which the kernel moves the bytes, and which the runtime watches only from when something is waited for on it.
//!
//! What a thread [sends](super::lending) needs no watching, nor does a stream that follows at once behind another on its connection. To be watched
//! is not free: the kernel tells at once that the connection has room, which wakes a worker for nothing.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay, socket_error};
use rustix::net::{RecvFlags, Shutdown, getpeername, getsockname, recv, shutdown};
use tokio::net::TcpStream;

use super::calls;
use crate::transport::{Socket, Stream};

#[derive(Debug)]
pub(super) enum Bare {
    Watched(Arc<Socket>),
    Unwatched(std::net::TcpStream),
}

impl AsFd for Bare {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Bare::Watched(socket) => socket.as_fd(),
            Bare::Unwatched(tcp) => tcp.as_fd(),
        }
    }
}

impl Bare {
    /// For who waits for it.
    pub fn watch(self) -> io::Result<Arc<Socket>> {
        match self {
            Bare::Watched(socket) => Ok(socket),
            Bare::Unwatched(tcp) => TcpStream::from_std(tcp).map(|tcp| Arc::new(Socket::Tcp(tcp))),
        }
    }

    /// For who needs nobody else; itself where it is no TCP connection, or somebody has a part in it.
    pub fn unwatch(self) -> io::Result<Result<std::net::TcpStream, Bare>> {
        let socket = match self {
            Bare::Unwatched(tcp) => return Ok(Ok(tcp)),
            Bare::Watched(socket) => socket,
        };
        match Arc::try_unwrap(socket) {
            Ok(Socket::Tcp(tcp)) => tcp.into_std().map(Ok),
            Ok(socket) => Ok(Err(Bare::Watched(Arc::new(socket)))),
            Err(socket) => Ok(Err(Bare::Watched(socket))),
        }
    }

    pub fn into_stream(self) -> io::Result<Stream> {
        match self {
            Bare::Unwatched(tcp) => TcpStream::from_std(tcp).map(Stream::Tcp),
            // A call of a stream that was aborted may have it.
            Bare::Watched(socket) => {
                Arc::into_inner(socket).map(Stream::from).ok_or_else(|| io::ErrorKind::ResourceBusy.into())
            }
        }
    }

    /// The socket, where it is one of TCP.
    pub fn tcp(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Bare::Watched(socket) => match &**socket {
                Socket::Tcp(tcp) => Some(tcp.as_fd()),
                Socket::Unix(_) => None,
            },
            Bare::Unwatched(tcp) => Some(tcp.as_fd()),
        }
    }

    pub fn is_tcp(&self) -> bool {
        self.tcp().is_some()
    }

    /// Where it is, and its peer; `None` where both ends have ended it, or it is none of TCP.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        ends(self.tcp()?)
    }

    /// A copy of the descriptor. Until it is dropped the connection is not closed.
    pub fn copy(&self) -> io::Result<OwnedFd> {
        Ok(fcntl_dupfd_cloexec(self, 0)?)
    }

    /// What went wrong on it.
    pub fn take_error(&self) -> io::Result<()> {
        match self.tcp().map(socket_error) {
            Some(Ok(Err(error))) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// What has come, without a wait; 0 behind all. An error where nothing has, too.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self, buffer, RecvFlags::DONTWAIT)?.0)
    }

    /// Whether the peer has ended its direction, and nothing of what it sent lies here.
    pub fn is_at_its_end(&self) -> bool {
        matches!(recv(self, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK), Ok((0, _)))
    }

    /// A segment that is not full waits for what follows, or for the end: what is sent comes in large pieces, and nobody answers.
    pub fn fill_segments(&self) {
        // Where it cannot be set, small segments do no harm.
        let _ = self.tcp().map(|tcp| set_tcp_nodelay(tcp, false));
    }

    /// What waits to fill a segment leaves now.
    pub fn send_rest(&self) {
        // Where it cannot be set, it leaves when the peer has acknowledged what was sent before.
        let _ = self.tcp().map(|tcp| set_tcp_nodelay(tcp, true));
    }

    /// Ends our direction, behind what was sent.
    pub fn shutdown(&self) -> io::Result<()> {
        Ok(shutdown(self, Shutdown::Write)?)
    }

    /// SO_LINGER (socket(7)): of no time, what was not sent is thrown away when it is closed, and the peer's next read fails with ECONNRESET.
    pub fn linger(&self, time: Option<Duration>) {
        // A socket on which it cannot be set is gone already.
        let _ = self.tcp().map(|tcp| set_socket_linger(tcp, time));
    }
}

/// Where a TCP connection is, and its peer; `None` where both ends have ended it.
pub(super) fn ends(tcp: BorrowedFd<'_>) -> Option<(SocketAddr, SocketAddr)> {
    let (local, peer) = (getsockname(tcp).ok()?, getpeername(tcp).ok()??);
    Some((SocketAddr::try_from(local).ok()?, SocketAddr::try_from(peer).ok()?))
}

/// Bytes that the peer of a TCP connection has not acknowledged, an end among them; none where it is no connection any more: what lay in it was thrown away.
/// `None` where that is not told.
pub(super) fn untaken(tcp: BorrowedFd<'_>) -> Option<usize> {
    match calls::unacknowledged(tcp) {
        Ok(1..) if getpeername(tcp).is_err() => Some(0),
        told => told.ok(),
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_linger, tcp_nodelay};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, UnixStream};

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn it_is_the_same_connection_watched_or_not() {
        let (near, mut far) = pair().await;
        let ends = (near.local_addr().unwrap(), near.peer_addr().unwrap());
        let mut bare = Bare::Watched(Arc::new(Socket::Tcp(near)));
        for _ in 0..2 {
            assert!(bare.ends() == Some(ends) && bare.take_error().is_ok());
            assert_eq!(bare.read_now(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert!(!bare.is_at_its_end());
            bare.fill_segments();
            assert!(!tcp_nodelay(&bare).unwrap());
            bare.send_rest();
            assert!(tcp_nodelay(&bare).unwrap());
            bare.linger(Some(Duration::ZERO));
            assert_eq!(socket_linger(&bare).unwrap(), Some(Duration::ZERO));
            bare.linger(None);
            assert_eq!(socket_linger(&bare).unwrap(), None);
            bare = Bare::Unwatched(bare.unwatch().unwrap().expect("nobody else has it"));
        }
        far.write_all(b"come").await.unwrap();
        far.readable().await.unwrap();
        bare = Bare::Watched(bare.watch().unwrap());
        let mut stream = bare.into_stream().unwrap();
        let mut came = [0; 4];
        stream.read_exact(&mut came).await.unwrap();
        assert_eq!(&came, b"come");
        let Stream::Tcp(tcp) = stream else { panic!("no TCP") };
        let bare = Bare::Watched(Arc::new(Socket::Tcp(tcp)));
        far.write_all(b"more").await.unwrap();
        let Bare::Watched(socket) = &bare else { unreachable!() };
        socket.ready(tokio::io::Interest::READABLE).await.unwrap();
        assert!(!bare.is_at_its_end());
        assert_eq!(bare.read_now(&mut came).unwrap(), 4);
        far.shutdown().await.unwrap();
        socket.ready(tokio::io::Interest::READABLE).await.unwrap();
        while !bare.is_at_its_end() {
            tokio::task::yield_now().await;
        }
        assert_eq!(bare.read_now(&mut came).unwrap(), 0);
        bare.shutdown().unwrap();
        assert_eq!(far.read(&mut came).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn what_somebody_has_a_part_in_or_is_no_tcp_stays_watched() {
        let (near, _far) = pair().await;
        let socket = Arc::new(Socket::Tcp(near));
        let bare = Bare::Watched(socket.clone()).unwatch().unwrap().expect_err("it is shared");
        assert_eq!(bare.into_stream().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        let (near, _far) = UnixStream::pair().unwrap();
        let bare = Bare::Watched(Arc::new(Socket::Unix(near))).unwatch().unwrap().expect_err("it is no TCP");
        assert!(bare.ends().is_none() && bare.take_error().is_ok());
        assert!(matches!(bare.into_stream(), Ok(Stream::Unix(_))));
    }
}
