//! The first bytes of a connection: a session's Tversion, or the preface and the token of a stream, and what they are good for.
//!
//! Nothing is taken of a data connection but these: what follows is the file's, and the kernel's to move.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use ninefold_proto::n1::stream::{OPENING, PREFACE, PREFACE_OWN};
use ninefold_proto::types::StreamToken;
use ninefold_proto::{Errno, Error};
use rustix::net::{RecvFlags, recv};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, Interest};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::closing::Way;
use super::life::Life;
use super::origin::Origin;
use super::tokens::{Claim, Early, Said};
use super::{closing, data_connection};
use crate::server::Server;
use crate::server::alarm::{Alarm, until};
use crate::server::connection::Connection;
use crate::transport::{Peer, Stream};

/// Connections that have not said what they are.
#[derive(Debug, Default)]
pub(super) struct Silent(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// In the order in which they came; cancelled, one is closed.
    waiting: BTreeMap<u64, (Origin, CancellationToken)>,
    /// The same by where they come from. No set is empty.
    of: HashMap<Origin, BTreeSet<u64>>,
}

impl Table {
    fn enter(&mut self, origin: Origin, evicted: CancellationToken) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, (origin, evicted));
        self.of.entry(origin).or_default().insert(number);
        number
    }

    fn leave(&mut self, number: u64) -> Option<CancellationToken> {
        let (origin, evicted) = self.waiting.remove(&number)?;
        if let Entry::Occupied(mut of) = self.of.entry(origin) {
            of.get_mut().remove(&number);
            if of.get().is_empty() {
                of.remove();
            }
        }
        Some(evicted)
    }

    /// The one that makes way: the oldest of the origin that has the most places, so that none takes those of others.
    fn evict(&mut self) {
        let most = self.of.values().max_by_key(|numbers| (numbers.len(), Reverse(numbers.first().copied())));
        if let Some(oldest) = most.and_then(|numbers| numbers.first().copied())
            && let Some(evicted) = self.leave(oldest)
        {
            evicted.cancel();
        }
    }
}

/// A place among them.
pub(super) struct Waits<'s> {
    server: &'s Server,
    number: u64,
    pub evicted: CancellationToken,
    /// Of the task in which it waits among others.
    pub alarm: Option<&'s Alarm>,
}

impl<'s> Waits<'s> {
    pub fn begin(server: &'s Server, peer: &Peer, alarm: Option<&'s Alarm>) -> Waits<'s> {
        let evicted = CancellationToken::new();
        let mut table = server.streams.silent.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = table.enter(Origin::of(peer), evicted.clone());
        if table.waiting.len() > server.streams.limits.silent.max(1) {
            table.evict();
        }
        Waits { server, number, evicted, alarm }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.server.streams.silent.0.lock().unwrap_or_else(PoisonError::into_inner).leave(self.number);
    }
}

/// What a connection is.
pub(super) enum Heard {
    /// A session that began with these bytes.
    Session(BytesMut),
    Stream(Said),
    /// It said nothing in its time, or too little, or had to make way.
    Silent,
    /// The peer, or this server, ended before it was said.
    Ended,
}

/// Hears what a connection is, and serves it to its end, or hands it to its stream.
pub(in crate::server) async fn receive(server: Arc<Server>, stream: Stream, peer: Peer, id: u64) {
    let began = Instant::now();
    match greet(&server, stream, &peer, began, None).await {
        Greeted::Session(stream, begun) => Connection::new(server, stream, peer, id, begun, began).run().await,
        Greeted::Stream(way, life) => {
            let carry = data_connection::carry(server.clone(), Ok(way), peer, life);
            drop(server.streams.tasks.spawn(carry));
        }
        Greeted::Closed => {}
    }
}

/// The same among others in one task, which has the alarm: what would hold them up goes on in a task of its own. `slot` is the session's, and given back for a stream.
pub(in crate::server) async fn receive_among(
    server: Arc<Server>,
    stream: Stream,
    peer: Peer,
    id: u64,
    slot: OwnedSemaphorePermit,
    alarm: Arc<Alarm>,
) {
    let began = Instant::now();
    let counted = server.connections.token();
    match greet(&server, stream, &peer, began, Some(&alarm)).await {
        Greeted::Session(stream, begun) => {
            drop(tokio::spawn(async move {
                Connection::new(server, stream, peer, id, begun, began).run().await;
                drop((slot, counted));
            }));
        }
        Greeted::Stream(way, life) => {
            drop((slot, counted));
            data_connection::carry_among(server, way, peer, life, alarm).await;
        }
        Greeted::Closed => {}
    }
}

/// What a connection was found to be.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it comes to")]
enum Greeted {
    /// A session that began with these bytes.
    Session(Stream, BytesMut),
    Stream(Way, Box<Life>),
    /// It is closed.
    Closed,
}

/// Hears what a connection is. What may be a data connection is closed by a reset: an end would be that of an empty file.
async fn greet(server: &Server, mut stream: Stream, peer: &Peer, began: Instant, alarm: Option<&Alarm>) -> Greeted {
    if matches!(peer, Peer::Stdio | Peer::Memory) {
        // Nothing but a session comes there.
        return Greeted::Session(stream, BytesMut::new());
    }
    let waits = Waits::begin(server, peer, alarm);
    let deadline = began + server.limits.handshake;
    match hear(server, Ear::Stream(&mut stream), &waits, deadline, Opening::default()).await {
        Heard::Session(bytes) => Greeted::Session(stream, bytes),
        Heard::Stream(said) => match claim(server, stream.into(), peer, &said, &waits).await {
            Ok((way, life)) => Greeted::Stream(way, life),
            // Dropped, it is reset.
            Err(_) => Greeted::Closed,
        },
        Heard::Silent => {
            server.streams.unheard.fetch_add(1, Ordering::Relaxed);
            server.streams.tell(peer, "connection closed: it did not say in time what it is");
            closing::by_reset(&stream);
            Greeted::Closed
        }
        Heard::Ended => {
            closing::by_reset(&stream);
            Greeted::Closed
        }
    }
}

/// The stream of a data connection's token; where there is none, the connection, if that is still there.
pub(super) async fn claim(
    server: &Server,
    mut way: Way,
    peer: &Peer,
    said: &Said,
    waits: &Waits<'_>,
) -> Result<(Way, Box<Life>), Option<Way>> {
    way.close_by_reset();
    let claimed = match server.streams.tokens.claim(said, peer) {
        Claim::Stream(life) => Some(life),
        Claim::Early(mut early) => {
            let mut stream = way.into_stream();
            let asked = match &mut stream {
                Ok(stream) => tokio::select! {
                    biased;
                    claimed = until_asked_for(server, &mut early, waits) => Some(claimed),
                    () = gone(stream) => None,
                },
                Err(_) => None,
            };
            let Some(claimed) = asked else {
                // It may have been asked for at this moment.
                if let Some(life) = early.close() {
                    life.give_up(Error::with_text(Errno::ECONNRESET, "the stream's data connection was closed"));
                }
                // Who gave it up before anybody asked for its stream has done nothing wrong.
                return Err(stream.ok().map(Way::from));
            };
            way = stream.map_err(|_| None)?.into();
            claimed
        }
        Claim::Nothing => None,
    };
    match claimed {
        Some(life) => Ok((way, life)),
        None => {
            server.streams.refuse();
            server.streams.tell(peer, "data connection closed: its token is good for no stream");
            Err(Some(way))
        }
    }
}

/// Waits for the Tstream that a token of the client's own came before: as long as a connection may take to say what it is, and among those
/// that say nothing.
async fn until_asked_for(server: &Server, early: &mut Early<'_, Box<Life>>, waits: &Waits<'_>) -> Option<Box<Life>> {
    let ends = async {
        tokio::select! {
            () = server.draining.begun() => {}
            () = waits.evicted.cancelled() => {}
        }
    };
    let at = Instant::now() + server.limits.handshake;
    tokio::select! {
        biased;
        asked = early.comes() => return asked,
        _ = until(waits.alarm, at, ends) => {}
    }
    // Who was asked for at this moment is not left waiting.
    early.close()
}

/// Waits for the end of a peer that has sent nothing behind its token, or its reset; for ever where that is not to be seen without taking what it sent.
async fn gone(stream: &mut Stream) {
    let Stream::Tcp(stream) = stream else { return std::future::pending().await };
    if matches!(stream.peek(&mut [0]).await, Ok(0) | Err(_)) {
        return;
    }
    while stream.ready(Interest::ERROR).await.is_ok_and(|ready| !ready.is_error()) {}
}

/// What a connection has said so far of what it is.
#[derive(Default)]
pub(super) struct Opening {
    bytes: [u8; OPENING],
    n: usize,
}

impl Opening {
    /// Takes what has come of it, as far as that is told without a wait. Whether the peer has ended its direction, and nothing came.
    pub fn take(&mut self, way: &Way) -> bool {
        let Way::Bare(bare) = way else { return false };
        match bare.read_now(&mut self.bytes[self.n..]) {
            Ok(more) => {
                self.n += more;
                more == 0
            }
            Err(_) => false,
        }
    }

    /// What that is, if it is enough to tell.
    pub fn heard(&self) -> Option<Heard> {
        let Opening { bytes, n } = *self;
        let said = n.min(PREFACE.len());
        if bytes[..said] != PREFACE[..said] && bytes[..said] != PREFACE_OWN[..said] {
            // What came is for the session to judge.
            return Some(Heard::Session(BytesMut::from(&bytes[..n])));
        }
        let (preface, token) = bytes.split_first_chunk::<{ PREFACE.len() }>().filter(|_| n == OPENING)?;
        let token = StreamToken(token.try_into().ok()?);
        Some(Heard::Stream(Said { token, own: *preface == PREFACE_OWN }))
    }
}

/// By what it is heard.
pub(super) enum Ear<'s> {
    Stream(&'s mut Stream),
    /// Watched meanwhile for what comes, and not for room, of which the kernel would tell at once.
    Unwatched(&'s std::net::TcpStream),
}

impl Ear<'_> {
    /// Some of what comes; 0 behind all. Dropped before it is done it has lost nothing.
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let tcp = match self {
            Ear::Stream(stream) => return stream.read(buffer).await,
            Ear::Unwatched(tcp) => *tcp,
        };
        #[expect(
            deprecated,
            reason = "a borrowed descriptor stays open, and is the same, for as long as it is watched"
        )]
        let tcp = AsyncFd::with_interest(tcp.as_fd(), Interest::READABLE)?;
        loop {
            let mut ready = tcp.readable().await?;
            match ready.try_io(|tcp| Ok(recv(tcp.get_ref(), &mut *buffer, RecvFlags::DONTWAIT)?.0)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => return read,
                // It was not ready.
                Err(_) => {}
            }
        }
    }
}

/// Hears it, until `deadline`; some of it may have come.
pub(super) async fn hear(
    server: &Server,
    mut ear: Ear<'_>,
    waits: &Waits<'_>,
    deadline: Instant,
    mut opening: Opening,
) -> Heard {
    loop {
        if let Some(heard) = opening.heard() {
            return heard;
        }
        let read = tokio::select! {
            biased;
            () = server.draining.begun() => return Heard::Ended,
            () = waits.evicted.cancelled() => return Heard::Silent,
            read = until(waits.alarm, deadline, ear.read(&mut opening.bytes[opening.n..])) => read,
        };
        match read {
            Some(Ok(0) | Err(_)) if opening.n > 0 => return Heard::Ended,
            // The connection sees to it.
            Some(Ok(0) | Err(_)) => return Heard::Session(BytesMut::new()),
            Some(Ok(more)) => opening.n += more,
            None => return Heard::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn from(text: &str) -> Origin {
        let peer = text.parse().unwrap();
        Origin::of(&Peer::Tcp { peer, local: "127.0.0.1:5640".parse().unwrap(), tls: false })
    }

    #[test]
    fn an_opening_is_a_sessions_or_a_streams_or_has_not_all_come() {
        let heard = |said: &[u8]| {
            let mut opening = Opening { bytes: [0; OPENING], n: said.len() };
            opening.bytes[..said.len()].copy_from_slice(said);
            opening.heard()
        };
        let whole = |preface: &[u8]| [preface, &[7; 16]].concat();
        for (preface, is_own) in [(&PREFACE, false), (&PREFACE_OWN, true)] {
            let whole = whole(preface);
            assert!((0..whole.len()).all(|n| heard(&whole[..n]).is_none()));
            let Some(Heard::Stream(said)) = heard(&whole) else { panic!("a stream's") };
            assert!(said.own == is_own && said.token == StreamToken([7; 16]));
        }
        // The first byte that fits neither tells.
        for n in 0..PREFACE.len() {
            let mut other = whole(&PREFACE);
            other[n] ^= 0x80;
            let Some(Heard::Session(bytes)) = heard(&other[..=n]) else { panic!("a session's") };
            assert_eq!(bytes, other[..=n]);
            assert!(matches!(heard(&other), Some(Heard::Session(bytes)) if bytes == other));
        }
    }

    #[tokio::test]
    async fn who_is_not_watched_is_heard_until_the_end_and_not_watched_behind_that() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut far = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let near = listener.accept().await.unwrap().0.into_std().unwrap();
        let (mut ear, mut buffer) = (Ear::Unwatched(&near), [0; 8]);
        assert!(ear.read(&mut buffer).now_or_never().is_none());
        for part in [&b"some"[..], b"more"] {
            far.write_all(part).await.unwrap();
            assert_eq!(ear.read(&mut buffer).await.unwrap(), 4);
            assert_eq!(&buffer[..4], part);
        }
        // No more than there is room for.
        far.write_all(b"and the rest").await.unwrap();
        assert_eq!(ear.read(&mut buffer).await.unwrap(), 8);
        assert_eq!(ear.read(&mut buffer).await.unwrap(), 4);
        far.shutdown().await.unwrap();
        assert_eq!(ear.read(&mut buffer).await.unwrap(), 0);
        tokio::net::TcpStream::from_std(near).expect("it can be watched");
    }

    #[test]
    fn who_has_the_most_places_makes_way_and_of_his_the_oldest() {
        let mut table = Table::default();
        let enter = |table: &mut Table, origin| {
            let evicted = CancellationToken::new();
            (table.enter(origin, evicted.clone()), evicted)
        };
        let (_, one) = enter(&mut table, from("192.0.2.1:1"));
        let (_, first) = enter(&mut table, from("192.0.2.2:1"));
        let (number, second) = enter(&mut table, from("192.0.2.2:2"));
        table.evict();
        assert!(first.is_cancelled() && !one.is_cancelled() && !second.is_cancelled());
        // Where all have as many, the oldest of all.
        table.evict();
        assert!(one.is_cancelled() && !second.is_cancelled());
        table.leave(number);
        assert!(table.waiting.is_empty() && table.of.is_empty());
        table.evict();
    }
}
