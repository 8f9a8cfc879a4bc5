//! How a data connection is closed: by a reset, until all of its stream went well and no other has come behind that.
//!
//! That is set on the socket as soon as the connection is known for one of a stream, so that whatever closes it first, an error, a
//! task that is lost or the end of the process, gives its peer no end that could be taken for that of a whole file. A Unix socket
//! has no reset.

use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ninefold_proto::Error;
use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::bare::{Bare, untaken};
use super::kernel_lease::Pledge;
use super::life::{Bounds, of_peer};
use crate::server::sock_diag;
use crate::transport::Stream;

/// Bytes that are taken of a connection that ends: more tokens than anybody sends ahead.
const UNREAD: u64 = 64 * 1024;

/// Bytes of them that are taken at a time.
const COMES: usize = 4096;

/// A peer that takes fewer bytes in a time takes none: as of a stream (`StreamLimits::least`), a byte now and then keeps no place.
pub(super) const SOME: usize = 64 * 1024;

/// Time between two looks whether a pledge is still needed.
const MOMENT: Duration = Duration::from_secs(1);

/// What carries the bytes of a stream.
pub(super) enum Way {
    /// The kernel moves them.
    Bare(Bare),
    Stream(Box<Stream>),
}

impl From<Stream> for Way {
    /// The kernel's, where it can be.
    fn from(stream: Stream) -> Way {
        match stream.into_socket() {
            Ok(socket) => Way::Bare(Bare::Watched(Arc::new(socket))),
            Err(stream) => Way::Stream(stream),
        }
    }
}

impl Way {
    /// Ends our direction behind all that was sent. From then on it is closed by an end, or as soon as there is no pledge.
    pub async fn end_sending(&mut self, pledge: &Pledge, bounds: &Bounds) -> Result<(), Error> {
        match self {
            Way::Bare(bare) => bare.shutdown().map_err(|error| of_peer(&error))?,
            Way::Stream(stream) => bounds.wait(stream.shutdown()).await?,
        }
        if !pledge.is_held() {
            self.close_by_end();
        }
        Ok(())
    }

    /// Another stream may come behind the one that was sent, but is not here. The last of what was sent leaves at once.
    /// From then on it is closed by an end, or as soon as there is no pledge: who has a length for each stream takes that for no file's.
    pub fn pause(&self, pledge: &Pledge) {
        if !pledge.is_held() {
            self.close_by_end();
        }
        if let Way::Bare(bare) = self {
            bare.send_rest();
        }
    }

    /// Whether its peer has ended it, nothing lies in it unread, and nobody watches it: closed, it still gives the peer what was sent.
    pub fn can_be_left(&self) -> bool {
        matches!(self, Way::Bare(bare @ Bare::Unwatched(_)) if bare.is_at_its_end())
    }

    /// Whether it is one of TCP of which the kernel moves the bytes.
    pub fn is_tcp(&self) -> bool {
        matches!(self, Way::Bare(bare) if bare.is_tcp())
    }

    /// A copy of its descriptor, where the kernel moves its bytes.
    pub fn copy(&self) -> Option<OwnedFd> {
        if let Way::Bare(bare) = self { bare.copy().ok() } else { None }
    }

    /// The connection, where nobody watches it.
    pub fn unwatched(&self) -> Option<&std::net::TcpStream> {
        match self {
            Way::Bare(Bare::Unwatched(tcp)) => Some(tcp),
            _ => None,
        }
    }

    /// The runtime's, for who writes small pieces too.
    pub fn into_stream(self) -> Result<Stream, Error> {
        match self {
            Way::Bare(bare) => {
                bare.send_rest();
                bare.into_stream().map_err(|error| of_peer(&error))
            }
            Way::Stream(stream) => Ok(*stream),
        }
    }

    /// Closed, it resets its connection.
    pub fn close_by_reset(&self) {
        match self {
            Way::Bare(bare) => bare.linger(Some(Duration::ZERO)),
            Way::Stream(stream) => by_reset(stream),
        }
    }

    /// Closed, it gives its peer what was sent, and an end.
    pub fn close_by_end(&self) {
        match self {
            Way::Bare(bare) => bare.linger(None),
            Way::Stream(stream) => by_end(stream),
        }
    }

    /// Closes the way of a stream to the file when all of it is there.
    pub async fn close_whole(mut self, bounds: &Bounds) {
        self.close_by_end();
        if let Way::Stream(stream) = &mut self {
            // TLS has an end of its own. Who does not hear it is told by Tstreamend.
            let _ = bounds.wait(stream.shutdown()).await;
        }
    }
}

/// Ends a connection on which nothing more is sent. With a pledge it is closed by an end when its peer has taken all, for which it is waited as long as that takes some of it in
/// `longest`, and else reset; `hurry` tells how long at most from then on. Without one see [`let_have`].
pub(super) async fn let_end(
    stream: &mut Stream,
    pledge: &mut Pledge,
    step: Duration,
    longest: Duration,
    hurry: impl Future<Output = Duration>,
) {
    match pledge.is_held() {
        true => let_redeem(stream, pledge, step, longest, hurry).await,
        false => let_have(stream, step, longest, hurry).await,
    }
}

/// Takes what comes until the peer has ended its direction too: a socket that is closed while something lies in it unread is reset, and the peer loses what it has not taken
/// yet. So that is waited for while the peer takes some of it in each `step`, `longest` in all, and not behind `hurry`.
async fn let_have(stream: &mut Stream, step: Duration, longest: Duration, hurry: impl Future<Output = Duration>) {
    by_end(stream);
    let ends = tcp_of(stream).and_then(|tcp| Some((tcp.local_addr().ok()?, tcp.peer_addr().ok()?)));
    let ended = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut *stream).take(UNREAD), &mut tokio::io::sink()).await
    };
    let taken = async {
        let (began, mut least) = (Instant::now(), u64::MAX);
        while began.elapsed() < longest {
            sleep(step).await;
            let left = ends.and_then(|(local, peer)| sock_diag::untaken(local, peer).ok().flatten()).unwrap_or(0);
            // Nothing is left, or it takes nothing: the kernel gives it the rest.
            if left == 0 || left >= least {
                return;
            }
            least = left;
        }
    };
    tokio::select! {
        biased;
        _ = hurry => {}
        _ = ended => {}
        () = taken => {}
    }
}

/// The same of a connection whose peer must have taken all before it is closed, or be reset.
async fn let_redeem(
    stream: &mut Stream,
    pledge: &mut Pledge,
    step: Duration,
    longest: Duration,
    hurry: impl Future<Output = Duration>,
) {
    let mut hurry = pin!(hurry);
    // Once it is there `hurry` is not asked again.
    let mut patience = tokio::select! {
        biased;
        patience = &mut hurry => Some(patience),
        () = pledge.asked_back() => None,
        _ = timeout(longest, stream.shutdown()) => None,
    };
    let (mut began, mut enough) = (Instant::now(), usize::MAX);
    let (mut came, mut unread, mut is_open) = (vec![0; COMES], UNREAD, true);
    loop {
        let Some(tcp) = tcp_of(stream) else { return };
        pledge.end_if_taken(tcp);
        // What fails leaves it to be reset.
        let redeemed = match patience {
            Some(patience) => pledge.redeem_within(patience, tcp).await,
            None if pledge.is_asked_back() => tokio::select! {
                biased;
                told = &mut hurry => {
                    patience = Some(told);
                    continue;
                }
                redeemed = pledge.redeem(tcp) => redeemed,
            },
            None => Ok(()),
        };
        if redeemed.is_err() {
            return;
        }
        if !pledge.is_held() {
            break;
        }
        let left = untaken(tcp.as_fd()).unwrap_or(usize::MAX);
        if left <= enough {
            (began, enough) = (Instant::now(), left.saturating_sub(SOME));
        }
        if began.elapsed() >= longest {
            return;
        }
        tokio::select! {
            biased;
            told = &mut hurry => patience = Some(told),
            () = pledge.asked_back() => {}
            // Its peer may have ended its direction alone.
            read = stream.read(&mut came), if is_open => {
                unread = unread.saturating_sub(*read.as_ref().unwrap_or(&0) as u64);
                is_open = unread > 0 && read.is_ok_and(|n| n > 0);
            }
            () = sleep(MOMENT) => {}
        }
    }
    match patience.is_none() && is_open {
        true => let_have(stream, step, longest, hurry).await,
        false => by_end(stream),
    }
}

/// Behind [`let_end`], of a connection that was given [room](super::send_buffer): its peer is to have taken most of what lies in it before others get that. One that takes nothing of it in a
/// `step`, or not all in `longest`, or has to make way, has it closed by a reset. Behind `drains` nobody waits.
pub(super) async fn let_leave(
    tcp: Option<&TcpStream>,
    (step, longest): (Duration, Duration),
    makes_way: impl Future<Output = ()>,
    drains: impl Future<Output = ()>,
) {
    let taking = async {
        let (began, mut least) = (Instant::now(), usize::MAX);
        loop {
            let left = tcp.and_then(|tcp| untaken(tcp.as_fd())).unwrap_or(0);
            if left <= SOME {
                return true;
            }
            if left >= least || began.elapsed() >= longest {
                return false;
            }
            least = left;
            sleep(step).await;
        }
    };
    let is_left = tokio::select! {
        biased;
        () = drains => true,
        () = makes_way => false,
        is_left = taking => is_left,
    };
    if !is_left {
        linger(tcp, Some(Duration::ZERO));
    }
}

pub(super) fn tcp_of(stream: &Stream) -> Option<&TcpStream> {
    match stream {
        Stream::Tcp(socket) => Some(socket),
        Stream::Tls(sealed) => sealed.tcp(),
        _ => None,
    }
}

/// Closed, it resets its connection.
pub(super) fn by_reset(stream: &Stream) {
    match stream {
        Stream::Tls(sealed) => linger(sealed.tcp(), Some(Duration::ZERO)),
        other => other.reset_on_close(),
    }
}

/// Closed, it gives its peer what was sent, and an end.
fn by_end(stream: &Stream) {
    match stream {
        Stream::Tcp(socket) => linger(Some(socket), None),
        Stream::Tls(sealed) => linger(sealed.tcp(), None),
        _ => {}
    }
}

/// SO_LINGER (socket(7)): of no time, what was not sent is thrown away and the peer's next read fails with ECONNRESET.
pub(super) fn linger(socket: Option<impl AsFd>, time: Option<Duration>) {
    // A socket on which it cannot be set is gone already.
    let _ = socket.map(|socket| set_socket_linger(socket, time));
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use rustix::net::sockopt::socket_linger;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);
    const TIMES: (Duration, Duration) = (Duration::from_millis(300), SOON);

    /// A connection in which a megabyte lies, and its peer.
    async fn full() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let (far, near) = tokio::join!(socket.connect(listener.local_addr().unwrap()), listener.accept());
        let (mut near, far) = (near.unwrap().0, far.unwrap());
        timeout(SOON, near.write_all(&[1; 1 << 20])).await.expect("room for it").unwrap();
        (near, far)
    }

    async fn leaves(near: &TcpStream, makes_way: impl Future<Output = ()>, drains: impl Future<Output = ()>) -> bool {
        timeout(SOON, let_leave(Some(near), TIMES, makes_way, drains)).await.expect("its end");
        socket_linger(near).unwrap().is_none()
    }

    #[tokio::test]
    async fn a_peer_that_takes_what_it_was_given_room_for_is_waited_for_and_another_is_reset() {
        let (near, mut far) = full().await;
        let reads = tokio::spawn(async move {
            let mut got = vec![0; 1 << 20];
            far.read_exact(&mut got).await.unwrap();
            far
        });
        assert!(leaves(&near, pending(), pending()).await);
        assert!(untaken(near.as_fd()).unwrap() <= SOME);
        drop(reads.await.unwrap());
        let (near, _far) = full().await;
        assert!(!leaves(&near, pending(), pending()).await, "it takes nothing");
        let (near, _far) = full().await;
        assert!(!leaves(&near, async {}, pending()).await, "it makes way");
        let (near, _far) = full().await;
        assert!(leaves(&near, pending(), async {}).await, "the server ends, and the kernel gives it the rest");
    }
}
