//! Streams on the server's side (docs/protocol.md, "Streams"): file data past the messages, over connections of their own.
//!
//! Tstream comes to [`open`]: the stream gets a place in the table of its connection ([`table`]), a token ([`tokens`]) or, in
//! `.s`, a port ([`port`]), and [waits](waiting) for its data connection. That carries it ([`data_connection`]) from beginning to end ([`life`]), and others behind it: bytes move between file and
//! socket in the kernel where the file server gives a [`Descriptor`] ([`moving`], and [`lending`] what lies in memory), by its conduits where it has them ([`conveying`]), else
//! by its reads and writes ([`copying`]).
//! Every fresh connection is heard first by [`greeting`], which tells data connections from sessions, and again when it goes on
//! behind a stream. Tstreamend comes to [`end`].
//!
//! Whatever happens, a stream ends, its place at the server is free again, and its end is told once. One that ends in an error
//! resets its connection ([`closing`]): nobody takes what he has, or has sent, for the whole.
//!
//! Locks are taken one at a time, but for those of [`lending`] and for that of a stream's abort, which is looked at under that of [`tokens`]; and none
//! while anything is waited for.

mod at_hand;
mod bare;
mod calls;
mod closing;
mod conveying;
mod copied;
mod copying;
mod data_connection;
mod descriptor;
mod greeting;
mod kernel_lease;
mod lending;
mod life;
mod mark;
mod moving;
mod origin;
mod pace;
mod places;
#[cfg(test)]
mod plain;
mod port;
mod returns;
mod send_buffer;
mod table;
mod telling;
mod tokens;
mod untold;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ninefold_proto::attr::{Attr, getattr};
use ninefold_proto::n1::stream::{self, LONG};
use ninefold_proto::server::{Copied, Done, Share, Streaming};
use ninefold_proto::types::StreamToken;
use ninefold_proto::{Dialect, Errno, Error};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

pub use descriptor::Descriptor;
pub(super) use greeting::{receive, receive_among};
pub(super) use table::OfConnection;

use self::conveying::Conduit;
use self::greeting::Silent;
use self::kernel_lease::KernelLeases;
use self::lending::Lenders;
use self::life::{Life, Moves};
use self::places::{Place, Places};
use self::send_buffer::SendBuffers;
use self::tokens::Tokens;
use super::dispatch::{Handle, outlive, survive};
use super::throttle::Throttle;
use super::ways::Ways;
use super::{Answer, Cx, Data, Server};
use crate::transport::Peer;

/// Limits of all streams of a server. Those of one connection are in [`Limits`](super::Limits).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamLimits {
    /// Streams that have not ended, those included that wait for their data connection; over it EMFILE. So it is for who has as many of
    /// them as are free: an address, in IPv6 a network of 64 bits, on a Unix socket a user.
    pub open: usize,
    /// Connections that have not said yet what they are, or whose Tstream has not come. One more closes the one that has been silent for longest.
    pub silent: usize,
    /// How long a token is good.
    pub token: Duration,
    /// How long the port of a stream of `.s` is there.
    pub port: Duration,
    /// How long nothing may move on a stream.
    pub idle: Duration,
    /// Bytes that are to move on a stream within `within`, for which its peer is waited for, once half of the streams are taken.
    pub least: u64,
    /// See `least`.
    pub within: Duration,
    /// The kernel is asked for leases on files that are sent (fcntl(2), F_SETLEASE) where what is sent is copied on its way, by a network card, say, so that less of
    /// them is copied before: who opens such a file for writing on this machine, or cuts it, then waits until the peer has taken what was sent of it: 3 s for one that
    /// takes nothing, and 15 s at most. Not for a program that opens files of its own exports in threads of its runtime: it would wait for itself.
    pub kernel_leases: bool,
    /// What is sent to peers on this machine counts as copied on its way too. They may then get what was written to the file before they read what had come, and be told
    /// that it was not changed: for tests.
    pub all_ways_copy: bool,
}

impl Default for StreamLimits {
    /// 4,096 streams need two descriptors each, and where something is sent under a lease a third. The times are those of docs/protocol.md.
    fn default() -> StreamLimits {
        StreamLimits {
            open: 4096,
            silent: 1024,
            token: Duration::from_secs(30),
            port: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            least: 64 * 1024,
            within: Duration::from_secs(600),
            kernel_leases: false,
            all_ways_copy: false,
        }
    }
}

/// What became of a server's streams so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StreamCounts {
    /// Asked for, and granted.
    pub opened: u64,
    /// Those of them that came to their end.
    pub completed: u64,
    /// Those that ended in an error, an ABORT or a token that nobody came with.
    pub failed: u64,
    /// Those of the failed that ended in ETIMEDOUT: nobody came with the token or to the port, or nothing moved, or too little.
    pub timed_out: u64,
    /// Data connections that were closed unheard: with a token that is none, was used, is too old, or from another peer.
    pub refused: u64,
    /// Connections that were closed because they said nothing: too long, or for want of room.
    pub silent: u64,
    /// Data connections that wait now, with a token of the client's own, for the Tstream that has it.
    pub early: usize,
}

/// The streams of a server.
#[derive(Debug)]
pub(super) struct Streams {
    limits: StreamLimits,
    tokens: Tokens<Box<Life>>,
    silent: Silent,
    /// Of those that have not ended.
    places: Places,
    pub(super) tasks: TaskTracker,
    lenders: Lenders,
    ways: Arc<Ways>,
    kernel_leases: KernelLeases,
    send_buffers: SendBuffers,
    opened: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
    refused: AtomicU64,
    unheard: AtomicU64,
    /// Warnings of connections and streams that nobody used.
    told: Throttle,
}

impl Streams {
    pub fn new(limits: StreamLimits) -> Streams {
        let ways = Arc::new(Ways::new(limits.all_ways_copy));
        Streams {
            limits,
            tokens: Tokens::default(),
            silent: Silent::default(),
            places: Places::new(limits.open),
            tasks: TaskTracker::new(),
            lenders: Lenders::default(),
            kernel_leases: KernelLeases::new(ways.clone()),
            ways,
            send_buffers: SendBuffers::default(),
            opened: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            unheard: AtomicU64::new(0),
            told: Throttle::default(),
        }
    }

    pub fn counts(&self) -> StreamCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StreamCounts {
            opened: of(&self.opened),
            completed: of(&self.completed),
            failed: of(&self.failed),
            timed_out: of(&self.timed_out),
            refused: of(&self.refused),
            silent: of(&self.unheard),
            early: self.tokens.early(),
        }
    }

    /// Streams that have not ended.
    pub fn open(&self) -> usize {
        self.places.taken()
    }

    /// A data connection was closed unheard.
    fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Logs what a peer did not do.
    fn tell(&self, peer: &Peer, what: &str) {
        match self.told.admit(Instant::now()) {
            Some(0) => warn!(%peer, "{what}"),
            Some(left_out) => warn!(%peer, left_out, "{what}"),
            None => debug!(%peer, "{what}"),
        }
    }

    /// A stream of `peer` ended.
    fn count_end(&self, peer: &Peer, end: Option<&Error>) {
        let Some(error) = end else {
            self.completed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.failed.fetch_add(1, Ordering::Relaxed);
        if error.errno == Errno::ETIMEDOUT {
            self.timed_out.fetch_add(1, Ordering::Relaxed);
            self.tell(peer, &format!("stream ended: {error}"));
        } else {
            debug!(%peer, %error, "stream ended");
        }
    }
}

/// What a Tstream asks for.
pub(super) struct Ask {
    pub dialect: Dialect,
    pub file: Handle,
    pub read: bool,
    pub offset: u64,
    pub length: Option<u64>,
    pub appends: bool,
    /// The connection may go on with another stream.
    pub more: bool,
    /// The connection is to tell its end.
    pub told: bool,
    pub copied: Copied,
    /// Of a short file it has that share.
    pub share: Option<Share>,
    /// The client's own.
    pub token: Option<StreamToken>,
}

/// Tstream. `of`: the streams of its connection.
pub(super) fn open(
    server: &Arc<Server>,
    peer: &Peer,
    cx: &Cx,
    of: &Arc<OfConnection>,
    mut ask: Ask,
) -> Answer<Done<Handle, Data>> {
    // A port of its own, as .s has it, would tell in the open what the session seals.
    let leads = match peer {
        Peer::Stdio | Peer::Memory => false,
        Peer::Unix { .. } | Peer::Tcp { tls: true, .. } => ask.dialect == Dialect::Linux,
        Peer::Tcp { tls: false, .. } => true,
    };
    if !leads {
        return Answer::err(Error::with_text(
            Errno::EOPNOTSUPP,
            "no data connection leads here: read and write by messages",
        ));
    }
    // Before anything is waited for: what ends the connection's streams is to find it.
    let admitted = Place::take(server, peer).and_then(|place| Ok((place, of.admit()?)));
    let (place, entry) = match admitted {
        Ok(admitted) => admitted,
        Err(error) => return Answer::err(error),
    };
    let (server, peer, cx) = (server.clone(), peer.clone(), cx.clone());
    Answer::later(async move {
        // Of a share the file's number is of before its length: one that changes between the two is known by that to have changed.
        let early: Option<Arc<dyn Descriptor>> = ask.share.and_then(|_| ask.file.descriptor()).map(Into::into);
        let before = match &early {
            Some(descriptor) => Some(descriptor::modrev(descriptor).await),
            None => None,
        };
        let attr = ask.file.getattr(&cx, getattr::ALL).wait().await?;
        if attr.valid & getattr::MODE != 0 && attr.mode & FILE_TYPE != PLAIN {
            return Err(Error::with_text(Errno::EINVAL, "only a plain file has streams"));
        }
        if let Some(Share { number, of }) = ask.share.filter(|_| attr.size <= LONG) {
            let (offset, length) = stream::share(attr.size, number, of);
            if attr.size / u64::from(of) < stream::SHARE_UNIT {
                return Err(Error::with_text(
                    Errno::EINVAL,
                    "the file is too short to be shared among so many streams",
                ));
            }
            (ask.offset, ask.length) = (offset, Some(length));
        }
        let descriptor = early.or_else(|| ask.file.descriptor().map(Into::into));
        let is_appended = || descriptor.as_deref().is_some_and(descriptor::appends);
        let appends = !ask.read && (ask.appends || is_appended());
        if appends && ask.offset != attr.size {
            return Err(Error::with_text(Errno::EINVAL, "what is appended begins at the end of the file"));
        }
        // splice(2) does not append.
        let (modrev, moves) = match descriptor.filter(|_| !appends) {
            Some(descriptor) => {
                let modrev = match before {
                    Some(before) => before,
                    None => descriptor::modrev(&descriptor).await,
                };
                (modrev, Moves::InKernel(descriptor))
            }
            None => {
                let hold = entry.hold(ask.file.clone());
                // What is appended goes piece by piece to where the end is by then.
                let conduit = if appends { None } else { conduit(&cx, &ask).await? };
                let moves = match conduit {
                    Some(conduit) => Moves::Conveyed(hold, conduit),
                    None => Moves::ByFile(hold),
                };
                (modrev(&attr), moves)
            }
        };
        let is_asked_after = ask.dialect == Dialect::Linux;
        let Ask { read, offset, length, more, told, .. } = ask;
        let is_long = || length.is_some_and(|length| attr.size.saturating_sub(LONG) >= offset + length);
        let copies_from = match ask.copied {
            Copied::No => None,
            Copied::Yes => Some(offset),
            Copied::UnlessLong => (!is_long()).then_some(offset),
            Copied::Last(bytes) => length.map(|length| offset + length.saturating_sub(bytes)),
        };
        let id = entry.id();
        let life = Box::new(Life {
            server: server.clone(),
            place,
            entry,
            peer: peer.clone(),
            modrev,
            moves,
            read,
            offset,
            length,
            appends,
            is_asked_after,
            more,
            told,
            copies_from,
        });
        // Before anybody can have ended it.
        let opened = &server.streams.opened;
        let (token, address) = match ask.dialect {
            Dialect::Linux => {
                opened.fetch_add(1, Ordering::Relaxed);
                match waiting::wait(&server, &peer, ask.token, life) {
                    Ok(token) => (token, Vec::new()),
                    Err(error) => {
                        opened.fetch_sub(1, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
            Dialect::Plan9 | Dialect::Unix => {
                let port = port::Port::open(&peer)?;
                let address = port.address();
                opened.fetch_add(1, Ordering::Relaxed);
                server.streams.tasks.spawn(data_connection::carry_from_port(server.clone(), port, peer, life));
                (StreamToken::default(), address)
            }
        };
        let streaming = Streaming { id, token, modrev, offset, length, address };
        Ok(Done::Streaming(streaming))
    })
}

/// The file server's own way for many bytes; `None` where it has none.
async fn conduit(cx: &Cx, ask: &Ask) -> Result<Option<Conduit>, Error> {
    let Ask { file, read, offset, length, .. } = ask;
    let conduit = match *read {
        true => outlive(survive(|| file.source(cx, *offset, *length)).wait()).await.map(Conduit::Source),
        false => outlive(survive(|| file.sink(cx, *offset, *length)).wait()).await.map(Conduit::Sink),
    };
    match conduit {
        Ok(conduit) => Ok(Some(conduit)),
        Err(error) if error.errno == Errno::EOPNOTSUPP => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends all streams of a connection and forgets them; `closed`: there will be no others.
pub(super) fn end_all(server: &Server, of: &OfConnection, closed: bool) {
    if of.end_all(closed) {
        waiting::end_aborted(server);
    }
}

/// Tstreamend: how a stream ended, when it has.
pub(super) fn end(
    server: &Server,
    cx: &Cx,
    of: &Arc<OfConnection>,
    id: u32,
    abort: bool,
) -> Answer<Done<Handle, Data>> {
    let Some(stream) = of.find(id) else { return Answer::err(Error::with_text(Errno::EBADF, "unknown stream")) };
    if abort && stream.abort() {
        waiting::end_aborted(server);
    }
    let told = |ended: table::End| ended.map(|table::Ended { count, modrev }| Done::StreamEnded { count, modrev });
    if let Some(ended) = stream.ended() {
        of.forget(id);
        return Answer::Now(told(ended));
    }
    let (cx, of) = (cx.clone(), of.clone());
    Answer::later(async move {
        let _parked = cx.park()?;
        tokio::select! {
            biased;
            ended = stream.wait() => {
                of.forget(id);
                told(ended)
            }
            () = cx.cancelled() => Err(Errno::EINTR.into()),
        }
    })
}

/// stat(2)'s S_IFMT and S_IFREG.
const FILE_TYPE: u32 = 0o170_000;
const PLAIN: u32 = 0o100_000;

/// A number that changes whenever the file does, as far as its attributes tell; 0 where nobody can tell.
fn modrev(attr: &Attr) -> u64 {
    if attr.qid.version == 0 {
        return 0;
    }
    let time = |time: ninefold_proto::attr::Time| time.sec.cast_unsigned().rotate_left(30) ^ u64::from(time.nsec);
    descriptor::mix(&[u64::from(attr.qid.version), time(attr.ctime), time(attr.mtime), attr.size, attr.data_version])
}
