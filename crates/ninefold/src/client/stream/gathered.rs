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
use nix::libc;
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use tokio::io::{AsyncRead, AsyncReadExt, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, timeout};

use crate::transport::Stream as Socket;

sockopt_impl!(
    /// Bytes that poll(2) and its kin wait for.
    LowMark,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    i32,
    nix::sys::socket::sockopt::SetStruct<'_, i32>
);

/// How long what came may wait for more: such a part of a round trip, in which TCP's window does not open later for it, and within these bounds.
const PART: u32 = 16;
const TIME: RangeInclusive<Duration> = Duration::from_millis(2)..=Duration::from_millis(10);

/// Bytes that are worth to be waited for, and more than which are not.
const BYTES: RangeInclusive<u64> = 16 << 10..=256 << 10;

/// After so long what there is is read, however little.
const STILL: Duration = Duration::from_millis(100);

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

    /// Where a round trip takes so long. What is no TCP connection is read as it comes.
    pub fn new(socket: Socket, trip: Duration) -> Gathered<Socket> {
        let told = match &socket {
            Socket::Tcp(tcp) => tcp.as_fd().try_clone_to_owned().ok(),
            _ => None,
        };
        let gather = told.map(|told| Gather { told, mark: 1, pace: Pace::new(trip) });
        Gathered { socket, gather }
    }

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
        let (Some(gather), Some(left)) = (gather, left) else { return socket.read_buf(buf).await };
        gather.aim(left);
        let mut read = None;
        if gather.mark > 1 {
            read = timeout(STILL, socket.read_buf(buf)).await.ok();
        }
        let read = match read {
            Some(read) => read,
            None => {
                gather.slacken();
                socket.read_buf(buf).await
            }
        };
        gather.pace.came(read.as_ref().map_or(0, |&bytes| bytes as u64), Instant::now());
        read
    }
}

#[derive(Debug)]
struct Gather {
    /// The connection, and what it was told.
    told: OwnedFd,
    mark: u64,
    pace: Pace,
}

impl Gather {
    /// Before a wait for some of so many bytes.
    fn aim(&mut self, left: u64) {
        let mark = self.pace.wanted.min(left).max(1);
        // More than are left never come; else it is not told every little change.
        if self.mark > left || mark * 2 <= self.mark || mark >= self.mark * 2 {
            self.tell(mark);
        }
    }

    /// Less comes than did: the connection is to tell of anything.
    fn slacken(&mut self) {
        if self.mark > 1 {
            self.tell(1);
            self.pace.begin_again();
        }
    }

    fn tell(&mut self, mark: u64) {
        // Where it cannot be told it stays as it is, and is looked at when it has been still.
        if setsockopt(&self.told, LowMark, &(mark as i32)).is_ok() {
            self.mark = mark;
        }
    }
}

/// How fast bytes come. Pure, with time as an argument.
#[derive(Debug)]
struct Pace {
    time: Duration,
    /// When it began to count, and what came since.
    since: Option<Instant>,
    came: u64,
    /// What comes in the time, as far as that is worth to be waited for.
    wanted: u64,
}

impl Pace {
    fn new(trip: Duration) -> Pace {
        Pace { time: (trip / PART).clamp(*TIME.start(), *TIME.end()), since: None, came: 0, wanted: 1 }
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
            self.wanted = if bytes < *BYTES.start() { 1 } else { bytes.min(*BYTES.end()) };
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
    use futures_util::FutureExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const TRIP: Duration = Duration::from_millis(50);
    const MARK: usize = 64 << 10;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Both ends of a connection; the near one waits for that many bytes.
    async fn pair(wanted: u64) -> (Gathered<Socket>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let far = listener.accept().await.unwrap().0;
        far.set_nodelay(true).unwrap();
        let mut near = Gathered::new(Socket::Tcp(near), TRIP);
        near.gather.as_mut().unwrap().pace.wanted = wanted;
        (near, far)
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
            let (mut pace, mut now) = (Pace::new(trip), start);
            for &(took, bytes) in parts {
                now += ms(took);
                pace.came(bytes, now);
            }
            pace.wanted
        };
        // 64 ms / 16 = 4 ms.
        assert_eq!(wanted(ms(64), &[(0, 1 << 30)]), 1);
        assert_eq!(wanted(ms(64), &[(0, 1 << 30), (1, 20_000)]), 1);
        assert_eq!(wanted(ms(64), &[(0, 1 << 30), (1, 20_000), (3, 20_000)]), 40_000);
        assert_eq!(wanted(ms(64), &[(0, 0), (4, 40_000), (8, 40_000)]), 20_000);
        assert_eq!(wanted(ms(64), &[(0, 0), (4, 40_000), (40, 40_000)]), 1);
        assert_eq!(wanted(ms(64), &[(0, 0), (4, 1 << 30)]), *BYTES.end());
        // The shortest and the longest time.
        assert_eq!(wanted(ms(1), &[(0, 0), (2, 40_000)]), 40_000);
        assert_eq!(wanted(ms(1000), &[(0, 0), (10, 40_000)]), 40_000);
        assert_eq!(wanted(ms(1000), &[(0, 0), (20, 40_000)]), 20_000);
    }

    #[tokio::test]
    async fn it_wakes_when_enough_has_come_and_at_the_last_byte() {
        let (mut near, mut far) = pair(MARK as u64).await;
        let (mut buf, left) = (BytesMut::with_capacity(4 * MARK), 2 * MARK as u64);
        // The runtime takes a new connection for one that has something.
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
        assert_eq!(near.gather.as_ref().unwrap().mark, 10);
    }

    #[tokio::test]
    async fn an_end_wakes_whatever_is_there() {
        let (mut near, mut far) = pair(MARK as u64).await;
        let (mut buf, left) = (BytesMut::with_capacity(4 * MARK), Some(4 * MARK as u64));
        assert!(near.read_buf(&mut buf, left).now_or_never().is_none());
        far.write_all(&[1; 10]).await.unwrap();
        far.shutdown().await.unwrap();
        let began = Instant::now();
        assert_eq!(near.read_buf(&mut buf, left).await.unwrap(), 10);
        assert_eq!(near.read_buf(&mut buf, left).await.unwrap(), 0);
        // By the kernel, and not because it was looked at.
        assert!(near.gather.as_ref().unwrap().mark > 1, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn what_comes_no_more_as_it_did_is_looked_at_and_from_then_on_read_as_it_comes() {
        let (mut near, mut far) = pair(MARK as u64).await;
        let (mut buf, left) = (BytesMut::with_capacity(4 * MARK), Some(4 * MARK as u64));
        assert!(near.read_buf(&mut buf, left).now_or_never().is_none());
        assert_eq!(near.gather.as_ref().unwrap().mark, MARK as u64);
        far.write_all(&[1; 10]).await.unwrap();
        assert_eq!(near.read_buf(&mut buf, left).await.unwrap(), 10);
        assert_eq!(near.gather.as_ref().unwrap().mark, 1);
        far.write_all(&[1]).await.unwrap();
        assert_eq!(near.read_buf(&mut buf, left).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn where_nobody_knows_how_much_is_to_come_nothing_is_waited_for() {
        let (mut near, mut far) = pair(MARK as u64).await;
        let mut buf = BytesMut::with_capacity(4 * MARK);
        far.write_all(&[1]).await.unwrap();
        assert_eq!(near.read_buf(&mut buf, None).await.unwrap(), 1);
        assert_eq!(near.gather.as_ref().unwrap().mark, 1);
    }
}
