//! The end of a stream that came whole, told on its own connection ([`TOLD`](ninefold_proto::n1::stream::TOLD)): behind the last byte, and at best in the same
//! segment, comes the file's number, and nobody asks for it. A question and an answer cost a server as much as to send some hundred kilobytes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ninefold_proto::Error;
use ninefold_proto::n1::stream::TOLD_BYTES;
use rustix::net::{SendFlags, send};
use tokio::io::AsyncWriteExt;

use super::bare::Bare;
use super::closing::Way;
use super::life::{Bounds, of_peer};
use super::moving::{LOOK_FOR_ROOM, is_no_matter};

/// What is told, and how much of it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Telling {
    /// The file's number at the end; 0 where nobody knows.
    pub modrev: u64,
    sent: usize,
}

impl Telling {
    pub fn new(modrev: u64) -> Telling {
        Telling { modrev, sent: 0 }
    }

    fn is_said(&self) -> bool {
        self.sent == TOLD_BYTES
    }

    /// Sends what the socket has room for.
    pub fn send_now(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while !self.is_said() {
            let rest = &self.modrev.to_le_bytes()[self.sent..];
            self.sent += send(socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        }
        Ok(())
    }

    /// Sends the rest. A way that is not given back is closed by a reset: its peer does not know the end.
    pub async fn send(mut self, way: Way, bounds: &Bounds) -> Result<Way, Error> {
        let mut bare = match way {
            Way::Bare(bare) => bare,
            Way::Stream(mut stream) => {
                let bytes = self.modrev.to_le_bytes();
                let say = async {
                    stream.write_all(&bytes[self.sent..]).await?;
                    stream.flush().await
                };
                bounds.wait(say).await?;
                return Ok(Way::Stream(stream));
            }
        };
        loop {
            match self.send_now(bare.as_fd()) {
                Ok(()) => return Ok(Way::Bare(bare)),
                Err(error) if is_no_matter(&error) => {}
                Err(error) => return Err(of_peer(&error)),
            }
            let socket = bare.watch().map_err(|error| of_peer(&error))?;
            let told = bounds.wait(socket.room(LOOK_FOR_ROOM)).await?;
            // It is ready no more where it has none after all.
            let sent = socket.try_write(told, |socket| self.send_now(socket));
            bare = Bare::Watched(socket);
            match sent {
                Ok(()) => return Ok(Way::Bare(bare)),
                Err(error) if is_no_matter(&error) => {}
                Err(error) => return Err(of_peer(&error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use ninefold_proto::Errno;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::server::Server;

    /// A connection that has no room, and what lies in it.
    fn full() -> (TcpStream, TcpStream, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        let (mut sent, mut full) = (0, 0);
        // Until nothing of it is on its way into the peer's memory any more.
        while full < 4 {
            full += 1;
            for bytes in [1 << 16, 1] {
                while let Ok(n) = near.write(&vec![1; bytes]) {
                    (sent, full) = (sent + n, 0);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        (near, listener.accept().unwrap().0, sent)
    }

    #[tokio::test]
    async fn what_is_told_waits_for_room_and_comes_behind_all_else() {
        let server = Server::builder().build();
        let bounds = Bounds::new(CancellationToken::new(), server);
        let (near, mut far, sent) = full();
        let telling =
            tokio::spawn(async move { Telling::new(7 << 40).send(Way::Bare(Bare::Unwatched(near)), &bounds).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!telling.is_finished());
        let mut came = vec![0; sent + TOLD_BYTES];
        let came =
            tokio::task::spawn_blocking(move || far.read_exact(&mut came).map(|()| came)).await.unwrap().unwrap();
        assert_eq!(came[sent..], (7u64 << 40).to_le_bytes());
        assert!(telling.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn who_waits_for_room_is_told_that_the_stream_is_to_end_or_that_its_peer_has_gone() {
        let server = Server::builder().build();
        for is_aborted in [true, false] {
            let abort = CancellationToken::new();
            let bounds = Bounds::new(abort.clone(), server.clone());
            let (near, far, _) = full();
            let telling =
                tokio::spawn(async move { Telling::new(7).send(Way::Bare(Bare::Unwatched(near)), &bounds).await });
            tokio::time::sleep(Duration::from_millis(20)).await;
            if is_aborted {
                abort.cancel();
            } else {
                // What lies in it unread makes that a reset.
                drop(far);
            }
            let Err(error) = telling.await.unwrap() else { panic!("nobody was told") };
            assert_eq!(error.errno == Errno::ECANCELED, is_aborted, "{error}");
        }
    }
}
