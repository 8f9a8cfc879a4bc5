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
use super::kernel_lease::Pledge;
use super::life::{Bounds, of_peer};
use super::moving::{LOOK_FOR_ROOM, is_no_matter, or_asked_back};

/// What is told, and how much of it was sent.
#[derive(Debug)]
pub(super) struct Telling {
    said: [u8; TOLD_BYTES],
    sent: usize,
}

impl Telling {
    /// `modrev`: the file's number at the end; 0 where nobody knows.
    pub fn new(modrev: u64) -> Telling {
        Telling { said: modrev.to_le_bytes(), sent: 0 }
    }

    /// Sends what the socket has room for.
    fn send_now(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while self.sent < TOLD_BYTES {
            self.sent += send(socket, &self.said[self.sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        }
        Ok(())
    }

    /// Sends all of it. A way that is not given back is closed by a reset: its peer does not know the end, or may have taken what changed on its way.
    pub async fn send(mut self, way: Way, pledge: &mut Pledge, bounds: &Bounds) -> Result<Way, Error> {
        let mut bare = match way {
            Way::Bare(bare) => bare,
            Way::Stream(mut stream) => {
                let say = async {
                    stream.write_all(&self.said).await?;
                    stream.flush().await
                };
                bounds.wait(say).await?;
                return Ok(Way::Stream(stream));
            }
        };
        loop {
            if pledge.is_asked_back() {
                bare.send_rest();
                bounds.unless_aborted(pledge.redeem(&bare)).await?;
            }
            let sent = match self.send_now(bare.as_fd()) {
                Err(error) if is_no_matter(&error) => {
                    let socket = bare.watch().map_err(|error| of_peer(&error))?;
                    let told = bounds.wait(or_asked_back(pledge, socket.room(LOOK_FOR_ROOM))).await?;
                    // It is ready no more where it has none after all.
                    let sent = told.map(|told| socket.try_write(told, |socket| self.send_now(socket)));
                    bare = Bare::Watched(socket);
                    sent.unwrap_or(Err(error))
                }
                sent => sent,
            };
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
    use std::fs::OpenOptions;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::Arc;
    use std::time::Duration;

    use ninefold_proto::Errno;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::super::descriptor::Descriptor;
    use super::super::plain::Plain;
    use super::*;
    use crate::server::{Server, StreamLimits};

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
        let telling = tokio::spawn(async move {
            Telling::new(7 << 40).send(Way::Bare(Bare::Unwatched(near)), &mut Pledge::default(), &bounds).await
        });
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
            let telling = tokio::spawn(async move {
                Telling::new(7).send(Way::Bare(Bare::Unwatched(near)), &mut Pledge::default(), &bounds).await
            });
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

    #[tokio::test]
    async fn who_waits_for_room_lets_another_write_the_file_and_its_peer_take_nothing_of_that() {
        let limits = StreamLimits { kernel_leases: true, all_ways_copy: true, ..StreamLimits::default() };
        let server = Server::builder().streams(limits).build();
        let bounds = Bounds::new(CancellationToken::new(), server.clone());
        let path = tempfile::NamedTempFile::new_in("/dev/shm").unwrap().into_temp_path();
        let file: Arc<dyn Descriptor> = Arc::new(Plain::new(std::fs::File::open(&path).unwrap()).leased());
        let (near, mut far, _) = full();
        let way = Way::Bare(Bare::Unwatched(near));
        way.close_by_reset();
        let Way::Bare(bare) = &way else { unreachable!() };
        let mut pledge = Pledge::default();
        assert!(pledge.covers(&server, &file, bare).await);
        let mut telling = Box::pin(Telling::new(7).send(way, &mut pledge, &bounds));
        assert!(timeout(Duration::from_millis(20), telling.as_mut()).await.is_err());
        let ask = || {
            OpenOptions::new().write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(&path)
        };
        assert_eq!(ask().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let ended = timeout(Duration::from_secs(30), telling).await.expect("it is not waited for long");
        assert_eq!(ended.err().expect("it takes nothing").errno, Errno::ETIMEDOUT);
        let reset = far.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
        drop((pledge, file));
        assert!(ask().is_ok());
    }
}
