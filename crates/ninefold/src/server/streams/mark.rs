//! For how many bytes of a stream to a file its task is woken (socket(7), SO_RCVLOWAT).
//!
//! Each packet that comes wakes the thread that looks at sockets, whether anybody takes its bytes yet or not: 80 times in 10 ms at 1 Gbit/s, which is a
//! quarter to nearly half of what writing costs (docs/bench.md, "thesis"). What comes in a moment that nobody notices costs that once. The peer is not held up: its window does not wait for who reads
//! ([`open_window`](crate::transport::open_window)). An end or an error wakes at once, as the last bytes do where it is known how many are to come; and where less
//! comes than did, what there is is taken soon. That is for bare TCP since Linux 4.18, and for a connection whose buffer has become large: at once where the
//! window was opened, else as the kernel finds that it brings much.

use std::io;
use std::time::Duration;

use rustix::net::sockopt::socket_recv_buffer_size;
use tokio::io::Interest;
use tokio::time::{Instant, timeout};

use crate::transport::{Socket, has_low_marks, set_low_mark};

/// As long as what comes is worth to be waited for.
const MOMENT: Duration = Duration::from_millis(4);

/// After so long what there is is taken, however little: longer than what is waited for takes where the mark is yet that of twice the rate.
const STILL: Duration = Duration::from_millis(12);

/// Bytes in a moment that are worth it, and more than which are not.
const WORTH: u64 = 16 << 10;
const MOST: u64 = 512 << 10;

/// What waits is at most such a part of the connection's buffer, of which the kernel takes about a half for itself: so the window is smaller by an eighth at most.
const SMALL: u64 = 16;

/// See the [module](self).
pub(super) struct Mark<'s> {
    socket: &'s Socket,
    /// What the connection has room for, as it was found last.
    most: u64,
    /// The kernel did not take one.
    is_refused: bool,
    set: u64,
    /// When the last turn that took all there was ended.
    since: Option<Instant>,
    /// Bytes of turns since then.
    came: u64,
}

impl<'s> Mark<'s> {
    pub fn new(socket: &'s Socket) -> Mark<'s> {
        Mark { socket, most: most(socket), is_refused: false, set: 1, since: None, came: 0 }
    }

    /// A turn brought bytes, and has left none if it is dry; `left` are to come, of which it is waited for no more.
    pub fn came(&mut self, bytes: u64, is_dry: bool, left: u64, now: Instant) {
        self.came += bytes;
        if self.set > left.max(1) {
            self.try_to_tell(left.max(1));
        }
        if !is_dry {
            return;
        }
        if let Some(since) = self.since {
            let took = now.saturating_duration_since(since).max(Duration::from_micros(1));
            let moment = (self.came as f64 * MOMENT.as_secs_f64() / took.as_secs_f64()) as u64;
            if moment >= self.set * 2 && moment > self.most && self.most < MOST {
                // It may have grown.
                self.most = most(self.socket);
            }
            let wanted = if self.is_refused { 0 } else { moment.min(self.most).min(left) };
            let mark = if wanted < WORTH { 1 } else { wanted };
            // Not every little change.
            if mark >= self.set * 2 || mark * 2 <= self.set {
                self.try_to_tell(mark);
            }
        }
        (self.since, self.came) = (Some(now), 0);
    }

    /// Whether more than the next byte is waited for.
    pub fn is_set(&self) -> bool {
        self.set > 1
    }

    /// Waits for as many bytes, an end or an error; dropped before that it has lost nothing.
    pub async fn ready(&mut self) -> io::Result<()> {
        if self.is_set() {
            if let Ok(ready) = timeout(STILL, self.socket.ready(Interest::READABLE)).await {
                return ready.map(drop);
            }
            // Less comes than did. The kernel tells of what is there as soon as that is enough.
            self.tell(1)?;
        }
        self.socket.ready(Interest::READABLE).await.map(drop)
    }

    /// Where it cannot be told it stays as it is, and is waited for so long each time.
    fn try_to_tell(&mut self, mark: u64) {
        self.is_refused |= self.tell(mark).is_err();
    }

    fn tell(&mut self, mark: u64) -> io::Result<()> {
        if let Socket::Tcp(tcp) = self.socket {
            set_low_mark(tcp, u32::try_from(mark).unwrap_or(u32::MAX))?;
            self.set = mark;
        }
        Ok(())
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        if self.is_set() {
            // The connection ends with the stream, or with what could not be told.
            let _ = self.tell(1);
        }
    }
}

/// The most that may be waited for on this connection; 0 where nothing may.
fn most(socket: &Socket) -> u64 {
    let room = match socket {
        Socket::Tcp(tcp) if has_low_marks() => socket_recv_buffer_size(tcp).unwrap_or(0) as u64,
        _ => 0,
    };
    (room / SMALL).min(MOST)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let far = listener.accept().await.unwrap().0;
        far.set_nodelay(true).unwrap();
        (Socket::Tcp(near), far)
    }

    /// All that the kernel has told by now is known.
    async fn settle() {
        tokio::time::sleep(MS * 2).await;
    }

    #[tokio::test]
    async fn what_comes_in_a_moment_is_waited_for_as_far_as_it_is_worth_it_and_is_to_come() {
        let (socket, _far) = pair().await;
        let mut mark = Mark::new(&socket);
        // However large this machine lets the buffer be.
        let most = MOST;
        mark.most = most;
        let start = Instant::now();
        // At what ms, how many bytes came, whether that was all, how many are left; what is waited for then.
        for (at, came, is_dry, left, set) in [
            (0, 1 << 30, true, u64::MAX, 1),
            (1, 10_000, true, u64::MAX, 40_000),
            // Not every little change, and all turns since the last dry one.
            (2, 8_000, true, u64::MAX, 40_000),
            (3, 500_000, false, u64::MAX, 40_000),
            (4, 500_000, true, u64::MAX, most),
            (5, 1, false, 10_000, 10_000),
            (6, 1, false, 0, 1),
            (7, 500_000, true, 20_000, 20_000),
            (8, 4_000, true, u64::MAX, 1),
        ] {
            mark.came(came, is_dry, left, start + MS * at);
            assert_eq!(mark.set, set, "at {at} ms");
        }
    }

    #[tokio::test]
    async fn where_the_window_is_small_or_is_none_nothing_is_waited_for_before_it_has_grown() {
        let (near, _far) = tokio::net::UnixStream::pair().unwrap();
        assert_eq!(Mark::new(&Socket::Unix(near)).most, 0);
        if !has_low_marks() {
            return; // Linux before 4.18
        }
        let small = tokio::net::TcpSocket::new_v4().unwrap();
        small.set_recv_buffer_size(8 << 10).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = Socket::Tcp(small.connect(listener.local_addr().unwrap()).await.unwrap());
        let (mut mark, start) = (Mark::new(&socket), Instant::now());
        for at in 0..4 {
            mark.came(1 << 20, true, u64::MAX, start + MS * at);
            assert!(!mark.is_set());
        }
        // Less than what Linux lets anybody ask for (net.core.rmem_max); it doubles that.
        let Socket::Tcp(tcp) = &socket else { unreachable!() };
        rustix::net::sockopt::set_socket_recv_buffer_size(tcp, 160 << 10).unwrap();
        mark.came(1 << 20, true, u64::MAX, start + MS * 4);
        assert_eq!(mark.set, (320 << 10) / SMALL);
    }

    #[tokio::test]
    async fn it_wakes_when_enough_has_come_and_soon_where_less_does() {
        if !has_low_marks() {
            return; // Linux before 4.18
        }
        let (socket, mut far) = pair().await;
        let mut mark = Mark::new(&socket);
        let empty = |socket: &Socket| {
            let mut read = vec![0; 1 << 20];
            while socket.try_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut read)?)).is_ok() {}
        };
        mark.tell(40_000).unwrap();
        far.write_all(&[0; 39_999]).await.unwrap();
        settle().await;
        assert!(mark.ready().now_or_never().is_none());
        far.write_all(&[0]).await.unwrap();
        settle().await;
        mark.ready().now_or_never().expect("it is enough").unwrap();
        empty(&socket);
        // As much as ever, and then no more.
        far.write_all(&[0; 10]).await.unwrap();
        settle().await;
        assert!(mark.ready().now_or_never().is_none());
        mark.ready().await.unwrap();
        assert!(!mark.is_set());
        empty(&socket);
        // An end is not waited for, whatever the mark.
        mark.tell(40_000).unwrap();
        far.shutdown().await.unwrap();
        mark.ready().await.unwrap();
        assert!(mark.is_set());
    }
}
