//! What is copied of a file of this machine before it is sent: a piece at a time, and each once. What the socket has no room for is kept,
//! because to copy it again each time a little room comes is soon most of the work.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::pread;
use rustix::net::SendFlags;

/// Bytes that are copied at a time: few enough to stay near the processor until they are sent, and for thousands of streams.
const PIECE: usize = 64 * 1024;

/// See the [module](self).
#[derive(Default, Debug)]
pub(super) struct Copied {
    bytes: Vec<u8>,
    /// So many of them were sent.
    sent: usize,
}

impl Copied {
    /// Sends up to `count` bytes of the file from `at` on, which is behind the last that was sent, until the socket has no room, which is EAGAIN;
    /// none at the end of the file. `moved` is how many, whatever the result.
    pub fn send(
        &mut self,
        file: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        at: u64,
        count: usize,
        moved: &mut usize,
    ) -> io::Result<()> {
        // One that takes a part of a piece has no room for more.
        while *moved < count {
            if self.sent == self.bytes.len() && !self.fill(file, at + *moved as u64, count - *moved)? {
                break;
            }
            let end = self.bytes.len().min(self.sent + (count - *moved));
            let n = rustix::net::send(socket, &self.bytes[self.sent..end], SendFlags::NOSIGNAL)?;
            self.sent += n;
            *moved += n;
            if self.sent < end {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(())
    }

    /// The next piece; `false` at the end of the file.
    fn fill(&mut self, file: BorrowedFd<'_>, at: u64, most: usize) -> io::Result<bool> {
        self.bytes.resize(PIECE.min(most), 0);
        let n = pread(file, &mut self.bytes[..], at);
        self.bytes.truncate(n.unwrap_or(0));
        self.sent = 0;
        Ok(n? > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use tokio::io::{AsyncReadExt, Interest};
    use tokio::net::UnixStream;

    use super::*;
    use crate::transport::Socket;

    #[tokio::test]
    async fn what_was_copied_is_sent_as_it_was_and_not_copied_again() {
        // More than a socket holds: unix(7), net.core.wmem_max.
        const LENGTH: usize = 64 << 20;
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![1; LENGTH], 0).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let (socket, mut copied) = (Socket::Unix(near), Copied::default());
        let send = |copied: &mut Copied, at: usize, count| {
            let mut moved = 0;
            let result = socket.try_write(true, |fd| copied.send(file.as_fd(), fd, at as u64, count, &mut moved));
            if moved > 0 { Ok(moved) } else { result.map(|()| 0) }
        };
        socket.ready(Interest::WRITABLE).await.unwrap();
        let mut sent = send(&mut copied, 0, LENGTH).unwrap();
        let kept = copied.bytes.len() - copied.sent;
        assert!(sent < LENGTH && kept > 0, "{sent} and {kept}");
        file.write_all_at(&vec![2; LENGTH], 0).unwrap();
        let mut got = vec![0; LENGTH];
        let mut come = 0;
        while come < LENGTH {
            while sent > come {
                come += far.read(&mut got[come..]).await.unwrap();
            }
            if sent < LENGTH {
                socket.ready(Interest::WRITABLE).await.unwrap();
                match send(&mut copied, sent, LENGTH - sent) {
                    Ok(n) => {
                        assert!(n > 0);
                        sent += n;
                    }
                    Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
                }
            }
        }
        let first = got.iter().take_while(|&&byte| byte == 1).count();
        assert!(first >= kept && first % PIECE == 0, "{first}");
        assert!(got[first..].iter().all(|&byte| byte == 2));
        // At the end of the file.
        socket.ready(Interest::WRITABLE).await.unwrap();
        assert_eq!(send(&mut copied, LENGTH, 1).unwrap(), 0);
    }
}
