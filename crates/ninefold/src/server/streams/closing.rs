//! How a data connection is closed: by a reset, until all of its stream went well and no other has come behind that.
//!
//! That is set on the socket as soon as the connection is known for one of a stream, so that whatever closes it first, an error, a
//! task that is lost or the end of the process, gives its peer no end that could be taken for that of a whole file. A Unix socket
//! has no reset.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ninefold_proto::Error;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::bare::{Bare, untaken};
use super::kernel_lease::Pledge;
use super::life::{Bounds, of_peer};
use crate::server::sock_diag;
use crate::transport::Stream;

/// Bytes that are taken of a connection that ends: more tokens than anybody sends ahead.
const UNREAD: u64 = 64 * 1024;

/// Time between two looks whether a pledge is still needed.
pub(super) const MOMENT: Duration = Duration::from_secs(1);

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

/// Ends a connection on which nothing more is sent, and takes what comes until the peer has ended it too: a socket that is closed while something
/// lies in it unread is reset, and the peer loses what it has not taken yet. So that is waited for while the peer takes some of it in each
/// `step`, `longest` in all, and not behind `hurry`. With a pledge it is closed by an end when all of it is taken, for which it is waited `longest`, and else reset.
pub(super) async fn let_end(
    mut stream: Stream,
    pledge: &mut Pledge,
    step: Duration,
    longest: Duration,
    hurry: impl Future<Output = ()>,
) {
    let is_pledged = pledge.is_held();
    if !is_pledged {
        by_end(&stream);
    }
    let tcp = match &stream {
        Stream::Tcp(socket) => Some(socket),
        Stream::Tls(sealed) => sealed.tcp(),
        _ => None,
    };
    let outlet = if is_pledged { tcp.and_then(|tcp| fcntl_dupfd_cloexec(tcp, 0).ok()) } else { None };
    let ends = tcp.and_then(|tcp| Some((tcp.local_addr().ok()?, tcp.peer_addr().ok()?)));
    let end = async {
        stream.shutdown().await?;
        let mut rest = (&mut stream).take(UNREAD);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    let taken = async {
        let (mut began, mut least) = (Instant::now(), u64::MAX);
        while began.elapsed() < longest {
            tokio::time::sleep(if is_pledged { step.min(MOMENT) } else { step }).await;
            let left = match &outlet {
                Some(outlet) => untaken(outlet.as_fd()).unwrap_or(usize::MAX) as u64,
                None => ends.and_then(|(local, peer)| sock_diag::untaken(local, peer).ok().flatten()).unwrap_or(0),
            };
            // Nothing is left, or it takes nothing: the kernel gives it the rest, if nobody is to see to that.
            if left == 0 || !is_pledged && left >= least {
                return;
            }
            if is_pledged && left < least {
                began = Instant::now();
            }
            least = left.min(least);
        }
    };
    let ended = async {
        tokio::pin!(taken);
        tokio::select! {
            biased;
            _ = end => {
                // Its peer may have ended its direction alone.
                if is_pledged && outlet.as_ref().is_some_and(|outlet| untaken(outlet.as_fd()) != Some(0)) {
                    taken.await;
                }
            }
            () = &mut taken => {}
        }
    };
    tokio::pin!(ended, hurry);
    let asked_back = tokio::select! {
        biased;
        () = &mut hurry => false,
        () = pledge.asked_back() => true,
        () = &mut ended => false,
    };
    let Some(outlet) = &outlet else { return };
    if !asked_back {
        // One that has not taken all by now is reset.
        pledge.end_if_taken(outlet);
    } else if pledge.redeem(outlet).await.is_ok() {
        linger(Some(outlet), None);
        tokio::select! {
            biased;
            () = hurry => {}
            () = ended => {}
        }
    }
    if !pledge.is_held() {
        linger(Some(outlet), None);
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
