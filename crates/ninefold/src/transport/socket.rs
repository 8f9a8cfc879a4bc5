//! A connection that is a socket, for who moves bytes by the kernel's own calls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::Stream;
use super::piped::sigpipe_is_harmless;

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

impl From<Socket> for Stream {
    fn from(socket: Socket) -> Stream {
        match socket {
            Socket::Tcp(socket) => Stream::Tcp(socket),
            Socket::Unix(socket) => Stream::Unix(socket),
        }
    }
}

impl Stream {
    /// The socket that it is, where this process survives that its peer is gone; else itself.
    pub(crate) fn into_socket(self) -> Result<Socket, Box<Stream>> {
        match self {
            Stream::Tcp(socket) if sigpipe_is_harmless() => Ok(Socket::Tcp(socket)),
            Stream::Unix(socket) if sigpipe_is_harmless() => Ok(Socket::Unix(socket)),
            other => Err(Box::new(other)),
        }
    }

    /// When it is closed the peer gets an error, not an end; where it is no TCP connection, an end.
    pub(crate) fn reset_on_close(&self) {
        if let Stream::Tcp(socket) = self {
            reset(socket);
        }
    }
}

impl Stream {
    /// It gets an end again.
    pub(crate) fn end_on_close(&self) {
        if let Stream::Tcp(socket) = self {
            let _ = set_socket_linger(socket, None);
        }
    }
}

/// SO_LINGER of no time: what was not sent is thrown away, and the peer's next read fails with ECONNRESET.
fn reset(socket: &TcpStream) {
    // A socket on which it cannot be set is gone already.
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}

impl Socket {
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Socket::Tcp(socket) => socket.ready(interest).await,
            Socket::Unix(socket) => socket.ready(interest).await,
        }
    }

    /// Waits until it has room again, which it tells: `true`. Every `look` it is asked (poll(2)); `false` is room of which it told nothing.
    pub(crate) async fn room(&self, look: Duration) -> io::Result<bool> {
        loop {
            match timeout(look, self.ready(Interest::WRITABLE)).await {
                Ok(ready) => return ready.map(|_| true),
                Err(_) => {
                    let mut asked = [PollFd::new(self, PollFlags::OUT)];
                    if poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Makes `call`, which does not wait, if the socket was ready for it; when it gives EAGAIN, it is so no more.
    pub(crate) fn try_io<T>(
        &self,
        interest: Interest,
        call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Socket::Tcp(socket) => socket.try_io(interest, || call(socket.as_fd())),
            Socket::Unix(socket) => socket.try_io(interest, || call(socket.as_fd())),
        }
    }

    /// The same of a call that writes; `told`: by [`Socket::room`], or else it is made without the readiness that was not told.
    pub(crate) fn try_write<T>(&self, told: bool, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        if told { self.try_io(Interest::WRITABLE, call) } else { call(self.as_fd()) }
    }

    /// The same of a call that reads.
    pub(crate) fn try_read<T>(&self, told: bool, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        if told { self.try_io(Interest::READABLE, call) } else { call(self.as_fd()) }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::{read, write};
    use tokio::io::AsyncReadExt;

    use super::*;

    const LOOK: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn room_that_nobody_tells_of_is_seen_and_room_that_comes_is_told() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let near = Socket::Unix(near);
        near.ready(Interest::WRITABLE).await.unwrap();
        // It has room, and is held for full.
        let full = |_: BorrowedFd<'_>| Err::<(), _>(io::ErrorKind::WouldBlock.into());
        // What the kernel tells besides at its beginning is over soon.
        for told in 0.. {
            assert!(near.try_io(Interest::WRITABLE, full).is_err() && told < 10);
            if !near.room(LOOK).await.unwrap() {
                break;
            }
        }
        let mut sent = near.try_write(false, |fd| Ok(write(fd, &[1; 1 << 16])?)).unwrap();
        // Full in truth, it is not taken for anything else.
        while let Ok(n) = near.try_write(false, |fd| Ok(write(fd, &[1; 1 << 16])?)) {
            sent += n;
        }
        assert!(near.try_io(Interest::WRITABLE, full).is_err());
        assert!(timeout(20 * LOOK, near.room(LOOK)).await.is_err());
        let emptied = async {
            let mut bytes = vec![0; sent];
            far.read_exact(&mut bytes).await.unwrap();
            far
        };
        let (told, far) = tokio::join!(near.room(Duration::from_secs(600)), emptied);
        assert!(told.unwrap());
        near.try_write(true, |fd| Ok(write(fd, &[2])?)).unwrap();
        far.readable().await.unwrap();
        assert_eq!(far.try_io(Interest::READABLE, || Ok(read(&far, &mut [0; 2])?)).unwrap(), 1);
    }
}
