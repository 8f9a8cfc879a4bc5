//! From an address to a connection that agreed on a dialect.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use ninefold_proto::Dialect;
use ninefold_proto::client::{Handshake, ServerMisbehaved};
use ninefold_proto::dialect::Step;
use ninefold_proto::wire::frame_size;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::{debug, warn};

use super::connection::{Handle, Prelude};
use super::error::{Error, Loss};
use super::options::Options;
use crate::transport::{Address, Place, Stream, reach};

/// ssh may be waiting for a person to type: as long as sshd lets that take (sshd_config(5), LoginGraceTime).
const SSH_LOGIN: Duration = Duration::from_secs(120);

/// The part of the timeout that the first offer may take: a server that leaves a version unanswered that it does not
/// know (go9p does) is dialled again and offered what every server knows, in the rest of the time.
const FIRST_OFFER: u32 = 4;

/// A server that takes longer is taken for silent, and no shorter.
const FIRST_OFFER_MIN: Duration = Duration::from_secs(10);

/// What a server that cannot be agreed with is said not to speak.
const ANY: &str = "9P2000, 9P2000.u or 9P2000.L";

/// Dials and negotiates, dialling again for a server that closes in place of refusing.
pub(super) async fn connect(address: &Address, options: &Options) -> Result<Handle, Error> {
    // Under a short timeout there is none: a server that is merely slow must not lose its dialect by it.
    let first = options.timeout.map(|timeout| timeout / FIRST_OFFER).filter(|&first| first >= FIRST_OFFER_MIN);
    connect_within(address, options, first).await
}

/// With `first` for the first offer, if it is to have a bound of its own.
async fn connect_within(address: &Address, options: &Options, first: Option<Duration>) -> Result<Handle, Error> {
    let mut handshake = Handshake::new(options.msize, address.dialect);
    let mut prelude = Prelude::default();
    let ssh = matches!(address.place, Place::Ssh { .. });
    let mut patience = options.timeout.map(|timeout| match address.dialect {
        _ if ssh => timeout.max(SSH_LOGIN),
        Some(_) => timeout,
        None => first.unwrap_or(timeout),
    });
    loop {
        let stream = bounded(options.timeout, reach(address)).await?.map_err(|e| Error::Dial(Arc::new(e)))?;
        let negotiated = match negotiate(stream, &mut handshake, &mut prelude, (options, patience)).await {
            Err(Error::TimedOut(_)) if prelude.offers == 1 && first.is_some() && address.dialect.is_none() && !ssh => {
                warn!(server = %address.place, "no answer to the first offer of a version; plain 9P2000 is offered next");
                Negotiated::Closed(handshake.handle_close())
            }
            Err(Error::TimedOut(_)) => return Err(Error::TimedOut(options.timeout.unwrap_or_default())),
            other => other?,
        };
        patience = if ssh { patience } else { options.timeout.map(|timeout| timeout - first.unwrap_or_default()) };
        match negotiated {
            Negotiated::Agreed(handle) => return Ok(handle),
            // A second ssh would ask for the password again, and the first one's complaint is on standard error.
            Negotiated::Closed(Step::Redial) if !ssh => {}
            Negotiated::Closed(_) if prelude.bytes_received == 0 => return Err(Error::Lost(Loss::Closed)),
            Negotiated::Closed(_) => return Err(no_dialect(address.dialect)),
        }
    }
}

/// Negotiates on a stream that is there already, and cannot be dialled again.
pub(super) async fn over(stream: Stream, dialect: Option<Dialect>, options: &Options) -> Result<Handle, Error> {
    let mut handshake = Handshake::new(options.msize, dialect);
    match negotiate(stream, &mut handshake, &mut Prelude::default(), (options, options.timeout)).await? {
        Negotiated::Agreed(handle) => Ok(handle),
        Negotiated::Closed(_) => Err(Error::Lost(Loss::Closed)),
    }
}

fn no_dialect(pinned: Option<Dialect>) -> Error {
    Error::NoDialect(pinned.map_or(ANY, Dialect::as_str))
}

enum Negotiated {
    Agreed(Handle),
    /// The server closed the connection; what to do next.
    Closed(Step),
}

async fn negotiate(
    mut stream: Stream,
    handshake: &mut Handshake,
    prelude: &mut Prelude,
    (options, patience): (&Options, Option<Duration>),
) -> Result<Negotiated, Error> {
    let mut arrived = BytesMut::new();
    loop {
        let mut offer = Vec::new();
        handshake.offer(&mut offer);
        prelude.offers += 1;
        prelude.bytes_sent += offer.len() as u64;
        let pinned_or_last = handshake.offered();
        let answer = bounded(patience, async {
            stream.write_all(&offer).await?;
            stream.flush().await?;
            frame(&mut stream, &mut arrived, handshake.frame_max()).await
        });
        let step = match answer.await? {
            Ok(Some(Ok(frame))) => {
                prelude.bytes_received += frame.len() as u64;
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
            Step::Agreed { dialect, msize } => {
                let agreed = (dialect, msize);
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

async fn bounded<F: Future>(limit: Option<Duration>, future: F) -> Result<F::Output, Error> {
    match limit {
        None => Ok(future.await),
        Some(limit) => tokio::time::timeout(limit, future).await.map_err(|_| Error::TimedOut(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let connected = connect_within(&address, &options, Some(Duration::from_millis(300))).await.unwrap();
        assert_eq!(connected.dialect(), Dialect::Plan9);
    }

    #[tokio::test]
    async fn a_server_that_is_silent_to_everything_is_waited_for_no_longer_than_the_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::tcp(listener.local_addr().unwrap());
        let options = Options { timeout: Some(Duration::from_millis(200)), ..Options::default() };
        let error = connect_within(&address, &options, Some(Duration::from_millis(50))).await.unwrap_err();
        assert!(matches!(error, Error::TimedOut(limit) if limit == Duration::from_millis(200)), "{error}");
    }
}
