//! A data connection that wakes who reads it when enough has come (socket(7), SO_RCVLOWAT).
//!
//! Bytes come in small parts, the smaller the more connections there are beside each other, and each part costs a wake and all the work
//! for a piece. What comes in a moment that nobody notices costs that once. The last bytes that are waited for wake at once, as an end and an
//! error do, and where less comes than did before, what there is is looked at soon.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::BufMut;
use futures_util::FutureExt;
use rustix::io::Errno;
use rustix::net::sockopt::socket_recv_buffer_size;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncReadExt, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, timeout_at};

use crate::transport::{Stream as Socket, set_low_mark};

/// How long what came may wait for more, as far as the pace tells: a part of a round trip, or on a short way as long as a few pieces take to be written.
/// The peer is not held up by it: its window does not wait for who reads ([open_window](crate::transport::open_window)).
const PART: u32 = 4;
const TIME: RangeInclusive<Duration> = Duration::from_millis(2)..=Duration::from_millis(25);

/// Bytes that are worth to be waited for, and more than which are not.
const BYTES: RangeInclusive<u64> = 4 << 10..=256 << 10;

/// What waits is at most such a part of the connection's room, so that the window is hardly smaller by it.
const SMALL: u64 = 32;

/// After so many such times what there is is read, however little.
const STILL: u32 = 4;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Gathered<S> {
    pub socket: S,
    gather: Option<Gather>,
}

impl Gathered<Socket> {
    /// One that is read as it comes.
    pub fn never(socket: Socket) -> Gathered<Socket> {
        Gathered { socket, gather: None }
    }

    /// One to a server whose answer takes about `trip`. Only bare TCP is gathered.
    pub fn new(socket: Socket, trip: Duration) -> Gathered<Socket> {
        let told = match &socket {
            Socket::Tcp(tcp) => tcp.as_fd().try_clone_to_owned().ok(),
            _ => None,
        };
        let room = told.as_ref().and_then(|told| socket_recv_buffer_size(told).ok()).unwrap_or(0);
        let most = (room as u64 / SMALL).clamp(1, *BYTES.end());
        let gather = told.map(|told| Gather {
            told,
            mark: 1,
            is_refused: false,
            is_untold: false,
            since: None,
            pace: Pace::new(trip, most),
        });
        Gathered { socket, gather }
    }

    /// What is read of it, gathered as before, and where it is written to.
    pub fn split(self) -> (Gathered<ReadHalf<Socket>>, WriteHalf<Socket>) {
        let (socket, write) = split(self.socket);
        (Gathered { socket, gather: self.gather }, write)
    }
}

impl<S: AsyncRead + Unpin> Gathered<S> {
    /// The bytes that come: of `left` that the peer has to send, or of nobody knows how many, which are not waited for. Dropped before it is done it has
    /// lost nothing.
    pub async fn read_buf(&mut self, buf: &mut impl BufMut, left: Option<u64>) -> io::Result<usize> {
        let Gathered { socket, gather } = self;
        let Some(gather) = gather else { return socket.read_buf(buf).await };
        let read = match socket.read_buf(buf).now_or_never() {
            Some(read) => read,
            None => gather.wait(socket, buf, left).await,
        };
        gather.came(read.as_ref().map_or(0, |&bytes| bytes as u64));
        read
    }
}

#[derive(Debug)]
struct Gather {
    /// The connection, and what it was told.
    told: OwnedFd,
    mark: u64,
    /// It cannot be told anything.
    is_refused: bool,
    /// The mark was lowered since it was known that nothing is here. Linux before 4.18 does not say that what is has become enough.
    is_untold: bool,
    /// Since when more is waited for, whoever gave up to wait meanwhile.
    since: Option<Instant>,
    pace: Pace,
}

impl Gather {
    /// Waits for bytes, of which none are here that anybody was told of.
    async fn wait(
        &mut self,
        socket: &mut (impl AsyncRead + Unpin),
        buf: &mut impl BufMut,
        left: Option<u64>,
    ) -> io::Result<usize> {
        self.aim(left.unwrap_or(1));
        loop {
            if self.is_untold
                && let Some(read) = self.read_now(buf)
            {
                return read;
            }
            self.is_untold = false;
            if self.mark == 1 {
                return socket.read_buf(buf).await;
            }
            let due = *self.since.get_or_insert_with(Instant::now) + self.pace.time * STILL;
            if let Ok(read) = timeout_at(due, socket.read_buf(buf)).await {
                return read;
            }
            // Less comes than did.
            self.tell(1);
            self.pace.begin_again();
            self.since = None;
            // Whatever the kernel had to say of that.
            self.is_untold = true;
        }
    }

    /// Before a wait for some of so many bytes.
    fn aim(&mut self, left: u64) {
        let mark = self.pace.wanted.min(left).max(1);
        // More than are left never come; else it is not told every little change.
        if self.mark > left.max(1) || mark * 2 <= self.mark || mark >= self.mark * 2 {
            self.tell(mark);
        }
    }

    fn tell(&mut self, mark: u64) {
        if mark == self.mark || self.is_refused && mark > self.mark {
            return;
        }
        // One that stays as it is is looked at when it has been still.
        match set_low_mark(&self.told, u32::try_from(mark).unwrap_or(u32::MAX)) {
            Ok(()) => {
                self.is_untold |= mark < self.mark;
                self.mark = mark;
            }
            Err(_) => self.is_refused = true,
        }
    }

    /// What there is, as far as the buffer has room.
    fn read_now(&self, buf: &mut impl BufMut) -> Option<io::Result<usize>> {
        let mut bytes = vec![0; buf.chunk_mut().len().min(*BYTES.end() as usize)];
        match recv(&self.told, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((read, _)) => {
                buf.put_slice(&bytes[..read]);
                Some(Ok(read))
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(error) => Some(Err(error.into())),
        }
    }

    fn came(&mut self, bytes: u64) {
        self.since = None;
        self.pace.came(bytes, Instant::now());
    }
}

/// How fast bytes come. Pure, with time as an argument.
#[derive(Debug)]
struct Pace {
    time: Duration,
    /// The most that is waited for.
    most: u64,
    /// When it began to count, and what came since.
    since: Option<Instant>,
    came: u64,
    /// What comes in the time, as far as that is worth to be waited for.
    wanted: u64,
}

impl Pace {
    fn new(trip: Duration, most: u64) -> Pace {
        Pace { time: (trip / PART).clamp(*TIME.start(), *TIME.end()), most, since: None, came: 0, wanted: 1 }
    }

    fn came(&mut self, bytes: u64, now: Instant) {
        // What lay there already when the first were read says nothing.
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.came += bytes;
        let took = now.saturating_duration_since(since);
        if took >= self.time {
            let bytes = (self.came as f64 * self.time.as_secs_f64() / took.as_secs_f64()) as u64;
            // What was worth it is so until it is half as much.
            let least = if self.wanted > 1 { *BYTES.start() / 2 } else { *BYTES.start() };
            self.wanted = if bytes < least { 1 } else { bytes.min(self.most) };
            (self.since, self.came) = (Some(now), 0);
        }
    }

    fn begin_again(&mut self) {
        (self.since, self.came, self.wanted) = (None, 0, 1);
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    type Near = Gathered<ReadHalf<Socket>>;

    const TRIP: Duration = Duration::from_millis(50);
    const MARK: usize = 64 << 10;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Both ends of a connection; the near one waits for that many bytes.
    async fn pair(wanted: u64) -> (Near, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let far = listener.accept().await.unwrap().0;
        far.set_nodelay(true).unwrap();
        let (mut near, _) = Gathered::new(Socket::Tcp(near), TRIP).split();
        let pace = &mut near.gather.as_mut().unwrap().pace;
        // However long the test takes, it is not looked at meanwhile.
        (pace.wanted, pace.time) = (wanted, Duration::from_secs(60));
        (near, far)
    }

    fn mark(near: &Near) -> u64 {
        near.gather.as_ref().unwrap().mark
    }

    /// All that the kernel has told by now is known.
    async fn settle() {
        tokio::time::sleep(ms(20)).await;
    }

    #[test]
    fn what_comes_in_the_time_is_waited_for_as_far_as_it_is_worth_it() {
        let start = Instant::now();
        // After so many ms so many bytes, all of which came within that.
        let wanted = |trip: Duration, parts: &[(u64, u64)]| {
            let (mut pace, mut now) = (Pace::new(trip, *BYTES.end()), start);
            for &(took, bytes) in parts {
                now += ms(took);
                pace.came(bytes, now);
            }
            pace.wanted
        };
        // 16 ms / 4 = 4 ms.
        assert_eq!(wanted(ms(16), &[(0, 1 << 30)]), 1);
        assert_eq!(wanted(ms(16), &[(0, 1 << 30), (1, 20_000)]), 1);
        assert_eq!(wanted(ms(16), &[(0, 1 << 30), (1, 20_000), (3, 20_000)]), 40_000);
        assert_eq!(wanted(ms(16), &[(0, 0), (4, 40_000), (8, 40_000)]), 20_000);
        assert_eq!(wanted(ms(16), &[(0, 0), (4, 40_000), (80, 40_000)]), 1);
        assert_eq!(wanted(ms(16), &[(0, 0), (4, 1 << 30)]), *BYTES.end());
        // Where there is little room.
        let mut pace = Pace::new(ms(16), 5_000);
        pace.came(0, start);
        pace.came(40_000, start + ms(4));
        assert_eq!(pace.wanted, 5_000);
        // What is not worth it at first is so where more came before.
        assert_eq!(wanted(ms(16), &[(0, 0), (4, 4_000)]), 1);
        assert_eq!(wanted(ms(16), &[(0, 0), (4, 20_000), (4, 4_000)]), 4_000);
        // The shortest and the longest time.
        assert_eq!(wanted(ms(1), &[(0, 0), (2, 40_000)]), 40_000);
        assert_eq!(wanted(ms(1000), &[(0, 0), (25, 40_000)]), 40_000);
        assert_eq!(wanted(ms(1000), &[(0, 0), (50, 40_000)]), 20_000);
    }

    #[tokio::test]
    async fn it_wakes_when_enough_has_come_and_at_the_last_byte() {
        let (mut near, mut far) = pair(MARK as u64).await;
        let (mut buf, left) = (BytesMut::with_capacity(4 * MARK), 2 * MARK as u64);
        assert!(near.read_buf(&mut buf, Some(left)).now_or_never().is_none());
        far.write_all(&[1; MARK - 1]).await.unwrap();
        settle().await;
        assert!(near.read_buf(&mut buf, Some(left)).now_or_never().is_none());
        far.write_all(&[1]).await.unwrap();
        assert_eq!(near.read_buf(&mut buf, Some(left)).await.unwrap(), MARK);
        // The rest is less than that.
        assert!(near.read_buf(&mut buf, Some(10)).now_or_never().is_none());
        far.write_all(&[2; 9]).await.unwrap();
        settle().await;
        assert!(near.read_buf(&mut buf, Some(10)).now_or_never().is_none());
        far.write_all(&[2]).await.unwrap();
        assert_eq!(near.read_buf(&mut buf, Some(10)).await.unwrap(), 10);
        assert_eq!(mark(&near), 10);
    }

    #[tokio::test]
    async fn what_is_there_is_read_in_small_parts_without_a_word_to_the_kernel() {
        let (mut near, mut far) = pair(MARK as u64).await;
        let mut buf = BytesMut::with_capacity(4 * MARK);
        far.write_all(&[1; 1000]).await.unwrap();
        assert_eq!(near.read_buf(&mut (&mut buf).limit(1), Some(1000)).await.unwrap(), 1);
        let told = mark(&near);
        let rest = async {
            for left in (1..1000).rev() {
                assert_eq!(near.read_buf(&mut (&mut buf).limit(1), Some(left)).await.unwrap(), 1);
            }
        };
        // What makes others wait for their turn is not what is asked here.
        tokio::task::unconstrained(rest).await;
        assert_eq!(mark(&near), told);
    }

    #[tokio::test]
    async fn an_end_and_an_error_wake_whatever_is_there() {
        for resets in [false, true] {
            let (mut near, mut far) = pair(MARK as u64).await;
            let (mut buf, left) = (BytesMut::with_capacity(4 * MARK), Some(4 * MARK as u64));
            assert!(near.read_buf(&mut buf, left).now_or_never().is_none());
            far.write_all(&[1; 10]).await.unwrap();
            if resets {
                rustix::net::sockopt::set_socket_linger(&far, Some(Duration::ZERO)).unwrap();
                drop(far);
            } else {
                far.shutdown().await.unwrap();
            }
            assert_eq!(near.read_buf(&mut buf, left).await.unwrap(), 10);
            let end = near.read_buf(&mut buf, left).await;
            match resets {
                false => assert_eq!(end.unwrap(), 0),
                true => assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
            }
        }
    }

    #[tokio::test]
    async fn what_comes_no_more_as_it_did_is_looked_at_and_from_then_on_read_as_it_comes() {
        let (mut near, mut far) = pair(MARK as u64).await;
        let (mut buf, left) = (BytesMut::with_capacity(4 * MARK), Some(4 * MARK as u64));
        near.gather.as_mut().unwrap().pace.time = ms(3);
        assert!(near.read_buf(&mut buf, left).now_or_never().is_none());
        assert_eq!(mark(&near), MARK as u64);
        far.write_all(&[1; 10]).await.unwrap();
        // Though nobody waits for so long.
        while timeout_at(Instant::now() + ms(5), near.read_buf(&mut buf, left)).await.is_err() {}
        assert_eq!((buf.len(), mark(&near)), (10, 1));
        far.write_all(&[1]).await.unwrap();
        assert_eq!(near.read_buf(&mut buf, left).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn where_the_kernel_refuses_and_on_what_is_no_bare_tcp_all_is_read_as_it_comes() {
        let (mut near, mut far) = pair(MARK as u64).await;
        let mut buf = BytesMut::with_capacity(4 * MARK);
        near.gather.as_mut().unwrap().told = std::fs::File::open("/dev/null").unwrap().into();
        for _ in 0..2 {
            assert!(near.read_buf(&mut buf, Some(4 * MARK as u64)).now_or_never().is_none());
            assert_eq!(mark(&near), 1);
            far.write_all(&[1]).await.unwrap();
            assert_eq!(near.read_buf(&mut buf, Some(4 * MARK as u64)).await.unwrap(), 1);
        }
        let unix = tokio::net::UnixStream::pair().unwrap().0;
        for other in [Socket::Unix(unix), tokio::io::duplex(1).0.into()] {
            assert!(Gathered::new(other, TRIP).gather.is_none());
        }
    }

    #[tokio::test]
    async fn what_the_kernel_tells_nobody_of_is_read() {
        let (mut near, mut far) = pair(MARK as u64).await;
        let mut buf = BytesMut::with_capacity(4 * MARK);
        assert!(near.read_buf(&mut buf, Some(4 * MARK as u64)).now_or_never().is_none());
        let gather = near.gather.as_mut().unwrap();
        assert!(gather.read_now(&mut buf).is_none());
        far.write_all(&[1; 10]).await.unwrap();
        settle().await;
        assert_eq!(gather.read_now(&mut (&mut buf).limit(4)).unwrap().unwrap(), 4);
        assert_eq!(gather.read_now(&mut buf).unwrap().unwrap(), 6);
        assert_eq!(&buf[..], &[1; 10]);
    }

    #[tokio::test]
    async fn where_nobody_knows_how_much_is_to_come_nothing_is_waited_for() {
        let (mut near, mut far) = pair(MARK as u64).await;
        let mut buf = BytesMut::with_capacity(4 * MARK);
        assert!(near.read_buf(&mut buf, Some(4 * MARK as u64)).now_or_never().is_none());
        assert!(near.read_buf(&mut buf, None).now_or_never().is_none());
        assert_eq!(mark(&near), 1);
        far.write_all(&[1]).await.unwrap();
        assert_eq!(near.read_buf(&mut buf, None).await.unwrap(), 1);
    }
}
