//! A socket by which the kernel moves the bytes of a stream, or of several, one behind another.
//!
//! The runtime knows of one that is waited for. A thread that sends for itself ([`lending`](super::lending)) has one of which the runtime does not, and it
//! stays so as long as nobody waits: to tell the runtime of it wakes a worker, for nothing but that the socket has room.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ninefold_proto::{Errno, Error};
use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use tokio::net::TcpStream;

use crate::transport::{Socket, Stream};

/// See the [module](self).
#[derive(Debug)]
pub(super) enum Wire {
    Known(Arc<Socket>),
    /// The runtime does not know of it. It does not wait for itself either: O_NONBLOCK is set.
    Still(std::net::TcpStream),
}

impl From<Socket> for Wire {
    fn from(socket: Socket) -> Wire {
        Wire::Known(Arc::new(socket))
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Wire::Known(socket) => socket.as_fd(),
            Wire::Still(socket) => socket.as_fd(),
        }
    }
}

impl Wire {
    /// One that can be waited for. EIO where the runtime cannot (epoll_ctl(2)): its number would be taken for the file's.
    pub fn known(self) -> Result<Arc<Socket>, Error> {
        match self {
            Wire::Known(socket) => Ok(socket),
            Wire::Still(socket) => match TcpStream::from_std(socket) {
                Ok(tcp) => Ok(Arc::new(Socket::Tcp(tcp))),
                Err(error) => Err(not_known(&error)),
            },
        }
    }

    /// A TCP connection of which the runtime does not know; itself where it is none, or somebody else has it.
    pub fn still(self) -> Result<Result<std::net::TcpStream, Wire>, Error> {
        match self {
            Wire::Still(socket) => Ok(Ok(socket)),
            Wire::Known(socket) => match Arc::try_unwrap(socket) {
                Ok(Socket::Tcp(tcp)) => tcp.into_std().map(Ok).map_err(|error| not_known(&error)),
                Ok(socket) => Ok(Err(Wire::from(socket))),
                Err(socket) => Ok(Err(Wire::Known(socket))),
            },
        }
    }

    /// For whoever reads and writes it by himself.
    pub fn into_stream(self) -> Result<Stream, Error> {
        let socket = self.known()?;
        Arc::into_inner(socket).map(Stream::from).ok_or_else(|| not_known(&"somebody has it"))
    }

    /// Both ends of a TCP connection that has them.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Wire::Known(socket) => match &**socket {
                Socket::Tcp(tcp) => Some((tcp.local_addr().ok()?, tcp.peer_addr().ok()?)),
                Socket::Unix(_) => None,
            },
            Wire::Still(tcp) => Some((tcp.local_addr().ok()?, tcp.peer_addr().ok()?)),
        }
    }

    pub fn is_tcp(&self) -> bool {
        match self {
            Wire::Known(socket) => matches!(**socket, Socket::Tcp(_)),
            Wire::Still(_) => true,
        }
    }

    /// What went wrong with it, if anything did, and nobody was told.
    pub fn take_error(&self) -> Option<io::Error> {
        match self {
            Wire::Known(socket) => match &**socket {
                Socket::Tcp(tcp) => tcp.take_error().ok().flatten(),
                Socket::Unix(_) => None,
            },
            Wire::Still(tcp) => tcp.take_error().ok().flatten(),
        }
    }

    /// What has come, without taking it.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self, buf, RecvFlags::DONTWAIT | RecvFlags::PEEK)?.0)
    }

    /// What has come.
    pub fn take(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self, buf, RecvFlags::DONTWAIT)?.0)
    }

    /// A segment that is not full waits for what follows, or for the end: what is sent comes in large pieces, and nobody answers.
    pub fn fill_segments(&self) {
        if self.is_tcp() {
            // Where it cannot be set, small segments do no harm.
            let _ = set_tcp_nodelay(self, false);
        }
    }

    /// What waits to fill a segment leaves now.
    pub fn send_rest(&self) {
        if self.is_tcp() {
            // Where it cannot be set, it leaves when the peer has acknowledged what was sent before.
            let _ = set_tcp_nodelay(self, true);
        }
    }

    /// Ends our direction, behind what was sent.
    pub fn shutdown(&self) -> io::Result<()> {
        Ok(shutdown(self, Shutdown::Write)?)
    }

    /// Closed, it gives its peer what was sent, and an end.
    pub fn close_by_end(&self) {
        self.linger(None);
    }

    /// Closed, it gives its peer an error. A Unix socket has no reset.
    pub fn close_by_reset(&self) {
        self.linger(Some(Duration::ZERO));
    }

    fn linger(&self, time: Option<Duration>) {
        if self.is_tcp() {
            // A socket on which it cannot be set is gone already.
            let _ = set_socket_linger(self, time);
        }
    }
}

fn not_known(why: &dyn std::fmt::Display) -> Error {
    Error::with_text(Errno::EIO, format!("the data connection cannot be waited for: {why}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, UnixStream};

    use super::*;

    #[tokio::test]
    async fn what_came_while_nobody_waited_is_told_to_who_waits_then() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (far, near) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (mut far, near) = (far.unwrap(), Wire::from(Socket::Tcp(near.unwrap().0)));
        let ends = near.ends().unwrap();
        let Ok(Ok(still)) = near.still() else { panic!("a socket that nobody has") };
        far.write_all(b"here").await.unwrap();
        let near = Wire::Still(still);
        assert_eq!(near.ends(), Some(ends));
        let mut stream = near.into_stream().unwrap();
        let mut came = [0; 4];
        tokio::time::timeout(Duration::from_secs(60), stream.read_exact(&mut came)).await.unwrap().unwrap();
        assert_eq!(&came, b"here");
    }

    #[tokio::test]
    async fn one_that_somebody_else_has_or_that_is_no_tcp_stays_what_it_is() {
        let (near, _far) = UnixStream::pair().unwrap();
        let Ok(Err(near)) = Wire::from(Socket::Unix(near)).still() else { panic!("no TCP") };
        assert!(!near.is_tcp() && near.ends().is_none());
        let socket = near.known().unwrap();
        let Ok(Err(shared)) = Wire::Known(socket.clone()).still() else { panic!("it is shared") };
        assert_eq!(shared.into_stream().unwrap_err().errno, Errno::EIO);
        assert!(Wire::Known(socket).into_stream().is_ok());
    }
}
