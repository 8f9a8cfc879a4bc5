//! A socket by which the kernel moves the bytes of a stream, or of several, one behind another.
//!
//! The runtime knows of one that is waited for. A thread that sends for itself ([`lending`](super::lending)) has one of which the runtime does not, and it
//! stays so as long as nobody waits: to tell the runtime of it wakes a worker, for nothing but that the socket has room.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ninefold_proto::Error;
use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use tokio::net::TcpStream;

use super::life::of_peer;
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
    /// One that can be waited for.
    pub fn known(self) -> Result<Arc<Socket>, Error> {
        match self {
            Wire::Known(socket) => Ok(socket),
            Wire::Still(socket) => {
                TcpStream::from_std(socket).map(|tcp| Arc::new(Socket::Tcp(tcp))).map_err(|error| of_peer(&error))
            }
        }
    }

    /// A TCP connection of which the runtime does not know; itself where it is none, or somebody else has it.
    pub fn still(self) -> Result<Result<std::net::TcpStream, Wire>, Error> {
        match self {
            Wire::Still(socket) => Ok(Ok(socket)),
            Wire::Known(socket) => match Arc::try_unwrap(socket) {
                Ok(Socket::Tcp(tcp)) => tcp.into_std().map(Ok).map_err(|error| of_peer(&error)),
                Ok(socket) => Ok(Err(Wire::from(socket))),
                Err(socket) => Ok(Err(Wire::Known(socket))),
            },
        }
    }

    /// For what is no stream. `None` where somebody else has it, or the runtime cannot.
    pub fn into_stream(self) -> Option<Stream> {
        Arc::into_inner(self.known().ok()?).map(Stream::from)
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

    /// Closed, it gives its peer what was sent, and an end; or, if it `resets`, an error. A Unix socket has no reset.
    pub fn close_by(&self, resets: bool) {
        if self.is_tcp() {
            // A socket on which it cannot be set is gone already.
            let _ = set_socket_linger(self, resets.then_some(Duration::ZERO));
        }
    }
}
