//! From an address to a connection that agreed on a dialect.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use ninefold_proto::client::{Handshake, Presumption, ServerMisbehaved};
use ninefold_proto::dialect::{Step, Version};
use ninefold_proto::wire::frame_size;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::connection::{Handle, Prelude};
use super::dialer::Beside;
use super::error::{Error, Loss};
use super::memory::Entry;
use super::options::Options;
use super::root::first_fid;
use crate::transport::{Address, Place, Stream, reach};

/// The part of the timeout that the first offer may take: a server that leaves a version unanswered that it does not
/// know (go9p does) is dialled again and offered what every server knows, in the rest of the time.
const FIRST_OFFER: u32 = 4;

/// A server that takes longer is taken for silent, and no shorter.
const FIRST_OFFER_MIN: Duration = Duration::from_secs(10);

/// What a server that cannot be agreed with is said not to speak.
const ANY: &str = "9P2000, 9P2000.u or 9P2000.L";

/// The longest that a connection to `address` may take in all, with its attach.
pub(super) fn limit(address: &Address, options: &Options) -> Option<Duration> {
    if is_ssh(address) { options.login_timeout } else { options.timeout }
}

fn is_ssh(address: &Address) -> bool {
    matches!(address.place, Place::Ssh { .. })
}

/// How long the first offer may go unanswered, if it is to have a bound of its own. Under a short timeout there is none: a
/// server that is merely slow must not lose its dialect by it. A second ssh would ask for the password again.
pub(super) fn first_offer(address: &Address, options: &Options) -> Option<Duration> {
    let first = options.timeout.map(|timeout| timeout / FIRST_OFFER);
    first.filter(|&first| first >= FIRST_OFFER_MIN && !is_ssh(address))
}

/// Dials and negotiates, dialling again for a server that closes in place of refusing; what the server `known` took the last
/// time is offered first. Gives the version whose offer was taken, too, unless one was left unanswered. Without a bound: see [`limit`].
pub(super) async fn connect(
    address: &Address,
    options: &Options,
    known: Option<&Entry>,
) -> Result<(Handle, Option<Version>), Error> {
    let first = first_offer(address, options).filter(|_| address.dialect.is_none());
    connect_within(address, options, known, first).await
}

/// With `first` for the first offer, if it is to have a bound of its own.
async fn connect_within(
    address: &Address,
    options: &Options,
    known: Option<&Entry>,
    mut first: Option<Duration>,
) -> Result<(Handle, Option<Version>), Error> {
    let mut handshake = match (known, address.dialect) {
        (Some(entry), None) => Handshake::remembering(options.offer(), entry.offer),
        (_, pinned) => Handshake::new(options.offer(), pinned),
    };
    let mut prelude = Prelude::default();
    // A lesser offer that is remembered tells nothing of the others, all of which follow.
    let mut again = first.filter(|_| known.is_some_and(|entry| !entry.offer.is_n1()));
    // What a server that is merely slow agrees on in the end is no more than that.
    let mut is_slow = false;
    loop {
        let (stream, dialled_in) = dial(address, |_| {}).await?;
        prelude.dialled_in = dialled_in;
        let negotiated = match negotiate(stream, &mut handshake, &mut prelude, (options, &mut first)).await {
            Err(Error::TimedOut(_)) => {
                warn!(server = %address.place, "no answer to the first offer of a version; another is offered next");
                first = again.take();
                is_slow = true;
                Negotiated::Closed(handshake.handle_close())
            }
            other => other?,
        };
        match negotiated {
            Negotiated::Agreed(handle) => {
                let offered = Version::parse(handshake.offered().as_bytes()).unwrap_or(handle.version());
                return Ok((handle, Some(offered).filter(|_| !is_slow)));
            }
            // A second ssh would ask for the password again, and the first one's complaint is on standard error.
            Negotiated::Closed(Step::Redial) if !is_ssh(address) => {}
            Negotiated::Closed(_) if prelude.bytes_received == 0 => return Err(Error::Lost(Loss::Wordless)),
            Negotiated::Closed(_) => return Err(no_dialect(address.dialect)),
        }
    }
}

/// Dials a server that agreed on `.n1` and an msize before, offers that, and waits for nothing. Connections for streams are dialled beside it where
/// they are wanted.
pub(super) async fn presume(address: &Address, options: &Options, known: &Entry) -> Result<Handle, Error> {
    let presumption = Presumption::new(options.offer(), Version::N1, known.msize);
    let mut beside = None;
    let (mut stream, dialled_in) = dial(address, |first| beside = Beside::dial(address, first, options, known)).await?;
    let mut offer = Vec::new();
    presumption.offer(&mut offer);
    let sent = async {
        stream.write_all(&offer).await?;
        stream.flush().await
    };
    sent.await.map_err(|e| Error::Lost(Loss::Io(Arc::new(e))))?;
    let prelude =
        Prelude { offers: 1, bytes_sent: offer.len() as u64, bytes_received: 0, dialled_in, answered_in: known.trip };
    let handle = Handle::presume(stream, presumption, first_fid()?, options.timeout, prelude);
    if let Some(beside) = beside {
        handle.dialer().adopt(beside);
    }
    Ok(handle)
}

/// A connection, and how long it took: in the open, where its first address answers, one round trip.
async fn dial(address: &Address, begins: impl FnOnce(SocketAddr)) -> Result<(Stream, Duration), Error> {
    let mut since = Instant::now();
    let begins = |first| {
        since = Instant::now();
        begins(first);
    };
    let stream = reach(address, begins).await.map_err(|e| Error::Dial(Arc::new(e)))?;
    Ok((stream, since.elapsed()))
}

/// Negotiates on a stream that is there already, and cannot be dialled again. Without a bound.
pub(super) async fn over(stream: Stream, dialect: Option<Version>, options: &Options) -> Result<Handle, Error> {
    let mut handshake = Handshake::new(options.offer(), dialect);
    match negotiate(stream, &mut handshake, &mut Prelude::default(), (options, &mut None)).await? {
        Negotiated::Agreed(handle) => Ok(handle),
        Negotiated::Closed(_) => Err(Error::Lost(Loss::Closed)),
    }
}

fn no_dialect(pinned: Option<Version>) -> Error {
    Error::NoDialect(pinned.map_or(ANY, Version::as_str))
}

enum Negotiated {
    Agreed(Handle),
    /// The server closed the connection; what to do next.
    Closed(Step),
}

/// `first` is the bound of the next offer, if it is to have one of its own, and of none behind it.
async fn negotiate(
    mut stream: Stream,
    handshake: &mut Handshake,
    prelude: &mut Prelude,
    (options, first): (&Options, &mut Option<Duration>),
) -> Result<Negotiated, Error> {
    let mut arrived = BytesMut::new();
    loop {
        let mut offer = Vec::new();
        handshake.offer(&mut offer);
        prelude.offers += 1;
        prelude.bytes_sent += offer.len() as u64;
        let pinned_or_last = handshake.offered();
        let asked = Instant::now();
        let answer = bounded(first.take(), async {
            stream.write_all(&offer).await?;
            stream.flush().await?;
            frame(&mut stream, &mut arrived, handshake.frame_max()).await
        });
        let step = match answer.await? {
            Ok(Some(Ok(frame))) => {
                prelude.bytes_received += frame.len() as u64;
                prelude.answered_in = asked.elapsed();
                handshake.handle_frame(&frame).map_err(Error::Misbehaved)?
            }
            Ok(Some(Err(e))) => return Err(Error::Misbehaved(e)),
            // A server that closes at once may reset a connection that still carries our offer.
            Ok(None) => return Ok(Negotiated::Closed(handshake.handle_close())),
            Err(e) if closed(&e) => return Ok(Negotiated::Closed(handshake.handle_close())),
            // ssh tells only now that it did not get through.
            Err(e) if e.kind() == io::ErrorKind::NotConnected => return Err(Error::Dial(Arc::new(e))),
            Err(e) => return Err(Error::Lost(Loss::Io(Arc::new(e)))),
        };
        debug!(offered = pinned_or_last, ?step, "negotiation");
        match step {
            Step::Agreed { version, msize } => {
                let agreed = (version, msize);
                return Ok(Negotiated::Agreed(Handle::start(stream, arrived, agreed, options.timeout, *prelude)));
            }
            Step::OfferAgain => {}
            Step::Redial => return Ok(Negotiated::Closed(Step::Redial)),
            Step::Failed => return Err(Error::NoDialect(if handshake.is_pinned() { pinned_or_last } else { ANY })),
        }
    }
}

fn closed(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// One frame of at most `max` bytes; nothing at the end of the stream.
async fn frame(
    stream: &mut Stream,
    arrived: &mut BytesMut,
    max: u32,
) -> io::Result<Option<Result<BytesMut, ServerMisbehaved>>> {
    loop {
        match frame_size(arrived, max) {
            Err(e) => return Ok(Some(Err(ServerMisbehaved::Frame(e)))),
            Ok(Some(size)) if size <= arrived.len() => return Ok(Some(Ok(arrived.split_to(size)))),
            Ok(_) => {}
        }
        if stream.read_buf(arrived).await? == 0 {
            return Ok(None);
        }
    }
}

/// `future`, but no longer than `limit`.
pub(super) async fn bounded<F: Future>(limit: Option<Duration>, future: F) -> Result<F::Output, Error> {
    match limit {
        None => Ok(future.await),
        Some(limit) => tokio::time::timeout(limit, future).await.map_err(|_| Error::TimedOut(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ninefold_proto::Dialect;
    use ninefold_proto::message::{R, T};
    use ninefold_proto::types::Tag;
    use ninefold_proto::wire::split_frame;
    use tokio::net::TcpListener;

    /// Answers the version `9P2000` and nothing else, as go9p does. Ends with its listener's runtime.
    async fn silent_but_for_plain(listener: TcpListener) {
        loop {
            let mut stream = Stream::Tcp(listener.accept().await.unwrap().0);
            tokio::spawn(async move {
                let mut arrived = BytesMut::new();
                while let Ok(Some(Ok(offer))) = frame(&mut stream, &mut arrived, 8192).await {
                    let (header, body) = split_frame(&offer).unwrap();
                    let T::Version { msize, version } = T::decode(header.kind, body, Dialect::Plan9).unwrap() else {
                        return;
                    };
                    if version == b"9P2000" {
                        let mut reply = Vec::new();
                        R::Version { msize, version }.encode(Tag::NONE, Dialect::Plan9, &mut reply);
                        stream.write_all(&reply).await.unwrap();
                    }
                }
            });
        }
    }

    #[tokio::test]
    async fn a_server_that_is_silent_to_what_it_does_not_know_is_asked_for_what_every_server_knows() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::tcp(listener.local_addr().unwrap());
        tokio::spawn(silent_but_for_plain(listener));
        let options = Options { timeout: Some(Duration::from_secs(4)), ..Options::default() };
        let connected = connect_within(&address, &options, None, Some(Duration::from_millis(300))).await.unwrap();
        assert_eq!(connected.0.dialect(), Dialect::Plan9);
    }

    #[tokio::test]
    async fn a_server_that_is_silent_to_everything_is_waited_for_no_longer_than_the_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::tcp(listener.local_addr().unwrap());
        let limit = Some(Duration::from_millis(200));
        let options = Options { timeout: limit, ..Options::default() };
        let connected = connect_within(&address, &options, None, Some(Duration::from_millis(50)));
        let error = bounded(limit, connected).await.unwrap_err();
        assert!(matches!(error, Error::TimedOut(limit) if limit == Duration::from_millis(200)), "{error}");
    }
}
