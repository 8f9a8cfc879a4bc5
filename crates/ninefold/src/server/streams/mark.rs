//! For how many bytes of a stream to a file its task is woken (socket(7), SO_RCVLOWAT).
//!
//! Each packet that comes wakes the thread that looks at sockets, whether anybody takes its bytes yet or not: 80 times in 10 ms at 1 Gbit/s, and the smaller
//! its parts are the slower each of several connections is. That is half of what writing costs, and more (docs/bench.md, "thesis"). So what came
//! waits for more, until it is much, or all that is to come, or a moment is over: the same moment for all streams, which one wake serves. The file is behind
//! by as much, but the peer is not held up: what waits is a small part of its window, and the last bytes, an end and an error wake at
//! once. That is for bare TCP since Linux 4.18, and for a connection whose buffer has become large: at once where the window was opened
//! ([`open_window`](crate::transport::open_window)), else as the kernel finds that it brings much. Where the kernel itself has no memory a window may be
//! less than what is waited for, of which it tells since Linux 5.12; before, one window comes in a moment.

use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::net::sockopt::socket_recv_buffer_size;
use tokio::io::Interest;
use tokio::time::{Instant, timeout_at};

use crate::transport::{Socket, has_low_marks, set_low_mark};

/// What there is is taken in each of these moments, however little.
const MOMENT: Duration = Duration::from_millis(40);

/// Bytes that are worth to be waited for, and more than which are not.
const WORTH: u64 = 16 << 10;
const MOST: u64 = 512 << 10;

/// What waits is at most such a part of the connection's buffer, of which the kernel takes about a half for itself: so the window is smaller by an eighth at most.
const SMALL: u64 = 16;

/// See the [module](self).
pub(super) struct Mark<'s> {
    socket: &'s Socket,
    /// What may be waited for on this connection: a part of the room it had when that was looked at, before so many bytes came.
    most: u64,
    came: u64,
    /// The kernel did not take one.
    is_refused: bool,
    set: u64,
    /// A moment was over before anything was told.
    is_untold: bool,
    /// Bytes that came since a moment brought nothing.
    flowed: u64,
}

impl<'s> Mark<'s> {
    pub fn new(socket: &'s Socket) -> Mark<'s> {
        Mark { socket, most: most(socket), came: 0, is_refused: false, set: 1, is_untold: false, flowed: 0 }
    }

    /// A turn brought bytes, and has left none if it is dry; `left` are to come, of which it is waited for no more.
    ///
    /// # Errors
    /// That of setsockopt(2), where it is waited for more than is to come.
    pub fn came(&mut self, bytes: u64, is_dry: bool, left: u64) -> io::Result<()> {
        self.came += bytes;
        self.flowed += bytes;
        if self.most < MOST && self.came / SMALL >= self.most {
            // It may have grown.
            (self.most, self.came) = (most(self.socket), 0);
        }
        let wanted = if self.most < WORTH || self.is_refused { 1 } else { self.most.min(left).max(1) };
        if bytes == 0 && self.is_untold {
            self.flowed = 0;
            // Whatever comes next is told at once.
            if self.is_set() { self.tell(1) } else { Ok(()) }
        } else if wanted < self.set {
            self.tell(wanted)
        } else {
            // What comes now and then is not worth two calls each time.
            if is_dry && wanted > self.set && self.flowed >= WORTH {
                self.is_refused = self.tell(wanted).is_err();
            }
            Ok(())
        }
    }

    /// Whether more than the next byte is waited for.
    pub fn is_set(&self) -> bool {
        self.set > 1
    }

    /// Waits for as many bytes, an end or an error, of which the socket tells: `true`; or until a moment is over. Dropped before that it has lost nothing.
    pub async fn ready(&mut self) -> io::Result<bool> {
        let ready = self.socket.ready(Interest::READABLE);
        let ready = match self.is_set() {
            true => timeout_at(next_moment(Instant::now()), ready).await.ok(),
            false => Some(ready.await),
        };
        self.is_untold = ready.is_none();
        ready.map_or(Ok(false), |ready| ready.map(|_| true))
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

/// The end of the moment of all streams that is at least half a moment away.
fn next_moment(now: Instant) -> Instant {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    let since = now.saturating_duration_since(*FIRST).as_nanos() as u64;
    let moment = MOMENT.as_nanos() as u64;
    now + Duration::from_nanos((since + moment / 2).next_multiple_of(moment) - since)
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

    /// Longer than the kernel takes to tell what is there.
    const SOON: Duration = Duration::from_millis(2);

    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let far = listener.accept().await.unwrap().0;
        far.set_nodelay(true).unwrap();
        (Socket::Tcp(near), far)
    }

    /// All that the kernel has told by now is known.
    async fn settle() {
        tokio::time::sleep(SOON).await;
    }

    /// Takes all that is there, as a turn does, and says so; `left` are to come.
    fn take(socket: &Socket, mark: &mut Mark<'_>, told: bool, left: u64) -> u64 {
        let (mut read, mut came) = (vec![0; 1 << 20], 0);
        while let Ok(n @ 1..) = socket.try_read(told, |fd| Ok(rustix::io::read(fd, &mut read)?)) {
            came += n as u64;
        }
        mark.came(came, true, left).unwrap();
        came
    }

    #[tokio::test]
    async fn what_came_waits_for_as_much_as_is_worth_it_and_is_to_come() {
        let (socket, _far) = pair().await;
        let mut mark = Mark::new(&socket);
        // However large this machine lets the buffer be.
        mark.most = MOST;
        // How many bytes came, whether that was all, how many are left; what is waited for then.
        for (came, is_dry, left, set) in [
            (0, true, u64::MAX, 1),
            (1000, true, u64::MAX, 1),
            (WORTH - 1000, false, u64::MAX, 1),
            (1, true, u64::MAX, MOST),
            (MOST, false, u64::MAX, MOST),
            (MOST, true, MOST + 1, MOST),
            // Fewer are to come, whether all that came was taken or not.
            (MOST, false, 20_000, 20_000),
            (1, true, 19_999, 19_999),
            (19_999, false, 0, 1),
        ] {
            mark.came(came, is_dry, left).unwrap();
            assert_eq!(mark.set, set, "of {came}");
        }
        assert!(!mark.is_set());
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
        let mut mark = Mark::new(&socket);
        for _ in 0..4 {
            mark.came(1 << 20, true, u64::MAX).unwrap();
            assert!(!mark.is_set());
        }
        // Less than what Linux lets anybody ask for (net.core.rmem_max); it doubles that.
        let Socket::Tcp(tcp) = &socket else { unreachable!() };
        rustix::net::sockopt::set_socket_recv_buffer_size(tcp, 160 << 10).unwrap();
        mark.came(1 << 20, true, u64::MAX).unwrap();
        assert_eq!(mark.set, (320 << 10) / SMALL);
        // It is not asked for with each turn: only when much has come since.
        rustix::net::sockopt::set_socket_recv_buffer_size(tcp, 200 << 10).unwrap();
        mark.came((320 << 10) - 1, true, u64::MAX).unwrap();
        assert_eq!(mark.set, (320 << 10) / SMALL);
        mark.came(320 << 10, true, u64::MAX).unwrap();
        assert_eq!(mark.set, (400 << 10) / SMALL);
    }

    #[tokio::test]
    async fn it_wakes_when_enough_has_come_and_at_the_end() {
        if !has_low_marks() {
            return; // Linux before 4.18
        }
        let (socket, mut far) = pair().await;
        let mut mark = Mark::new(&socket);
        mark.most = 40_000;
        far.write_all(&[0]).await.unwrap();
        assert!(mark.ready().await.unwrap(), "nothing more than a byte is waited for yet");
        assert_eq!(take(&socket, &mut mark, true, 100_000), 1);
        assert!(!mark.is_set(), "a byte now and then is not waited for");
        mark.came(WORTH, true, 100_000).unwrap();
        // What is told at once, and not when a moment is over.
        far.write_all(&[0; 40_000]).await.unwrap();
        settle().await;
        assert!(mark.ready().now_or_never().expect("it is enough").unwrap());
        assert_eq!(take(&socket, &mut mark, true, 60_000), 40_000);
        // The last bytes, fewer than others are waited for.
        assert_eq!(mark.set, 40_000);
        mark.came(50_000, true, 10_000).unwrap();
        far.write_all(&[0; 9_999]).await.unwrap();
        settle().await;
        assert!(mark.ready().now_or_never().is_none());
        far.write_all(&[0]).await.unwrap();
        settle().await;
        assert!(mark.ready().now_or_never().expect("it is all").unwrap());
        take(&socket, &mut mark, true, 40_000);
        // An end is not waited for, whatever the mark.
        assert!(mark.is_set());
        far.shutdown().await.unwrap();
        settle().await;
        assert!(mark.ready().now_or_never().expect("it is the end").unwrap());
    }

    #[tokio::test]
    async fn what_is_less_is_taken_when_a_moment_is_over_and_what_comes_behind_a_silence_at_once() {
        if !has_low_marks() {
            return; // Linux before 4.18
        }
        let (socket, mut far) = pair().await;
        let mut mark = Mark::new(&socket);
        mark.most = 1 << 18;
        mark.came(WORTH, true, u64::MAX).unwrap();
        far.write_all(&[0; 10]).await.unwrap();
        settle().await;
        assert!(!mark.ready().await.unwrap(), "nobody told of so little");
        assert_eq!(take(&socket, &mut mark, false, u64::MAX), 10);
        // Others are waited for likewise, until none come in a moment.
        assert!(mark.is_set() && !mark.ready().await.unwrap());
        assert_eq!(take(&socket, &mut mark, false, u64::MAX), 0);
        assert!(!mark.is_set());
        assert!(mark.ready().now_or_never().is_none());
        far.write_all(&[0]).await.unwrap();
        settle().await;
        assert!(mark.ready().now_or_never().expect("the next byte").unwrap());
        assert_eq!(take(&socket, &mut mark, true, u64::MAX), 1);
        assert!(!mark.is_set());
        mark.came(WORTH, true, u64::MAX).unwrap();
        assert!(mark.is_set());
        // Of what came before the mark was lowered it is told as well.
        far.write_all(&[0; 10]).await.unwrap();
        settle().await;
        mark.tell(1).unwrap();
        settle().await;
        assert!(mark.ready().now_or_never().expect("what there is").unwrap());
    }

    #[test]
    fn a_moment_of_one_stream_is_one_of_all() {
        let start = Instant::now();
        let ends: Vec<_> = (0..1000).map(|ms| next_moment(start + Duration::from_millis(ms))).collect();
        for (ms, end) in ends.iter().enumerate() {
            let wait = *end - (start + Duration::from_millis(ms as u64));
            assert!((MOMENT / 2..=MOMENT * 3 / 2).contains(&wait), "{wait:?}");
        }
        let all: std::collections::BTreeSet<_> = ends.iter().collect();
        assert!(all.len() <= 1000 / MOMENT.as_millis() as usize + 2, "{}", all.len());
    }
}
