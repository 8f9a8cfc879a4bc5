//! The first bytes of a connection: a session's Tversion, or the preface and the token of a stream.
//!
//! Nothing is taken of a data connection but these: what follows is the file's, and the kernel's to move.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use ninefold_proto::n1::stream::{OPENING, PREFACE};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::closing;
use crate::server::Server;
use crate::server::connection::Connection;
use crate::transport::{Peer, Stream};

/// Connections that have not said what they are.
#[derive(Debug, Default)]
pub(super) struct Silent(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// In the order in which they came; cancelled, one is closed.
    waiting: BTreeMap<u64, CancellationToken>,
}

/// A place among them.
struct Waits<'s> {
    server: &'s Server,
    number: u64,
    evicted: CancellationToken,
}

impl<'s> Waits<'s> {
    fn begin(server: &'s Server) -> Waits<'s> {
        let mut table = server.streams.silent.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.waiting.len() >= server.streams.limits.silent.max(1)
            && let Some((_, oldest)) = table.waiting.pop_first()
        {
            oldest.cancel();
        }
        let (number, evicted) = (table.next, CancellationToken::new());
        table.next += 1;
        table.waiting.insert(number, evicted.clone());
        Waits { server, number, evicted }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.server.streams.silent.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&self.number);
    }
}

/// What a connection is.
enum Heard {
    /// A session that began with these bytes.
    Session(BytesMut),
    Stream([u8; 16]),
    /// It said nothing in its time, or too little, or had to make way.
    Silent,
    /// The peer, or this server, ended before it was said.
    Ended,
}

/// Hears what a connection is, and serves it to its end, or hands it to its stream.
///
/// What may be a data connection is closed by a reset: an end would be that of an empty file.
pub(in crate::server) async fn receive(server: Arc<Server>, mut stream: Stream, peer: Peer, id: u64) {
    let began = Instant::now();
    let heard = match peer {
        // Nothing but a session comes there.
        Peer::Stdio | Peer::Memory => Heard::Session(BytesMut::new()),
        Peer::Tcp { .. } | Peer::Unix { .. } => hear(&server, &mut stream, began).await,
    };
    let token = match heard {
        Heard::Session(bytes) => return Connection::new(server, stream, peer, id, bytes, began).run().await,
        Heard::Stream(token) => Some(token),
        Heard::Silent => {
            server.streams.unheard.fetch_add(1, Ordering::Relaxed);
            server.streams.tell(&peer, "connection closed: it did not say in time what it is");
            None
        }
        Heard::Ended => None,
    };
    closing::by_reset(&stream);
    let Some(token) = token else { return };
    let claimed = server.streams.tokens.claim(&token, &peer);
    let handed = claimed.is_some_and(|waiting| waiting.send(stream).is_ok());
    if !handed {
        server.streams.refuse();
        server.streams.tell(&peer, "data connection closed: its token is good for no stream");
    }
}

async fn hear(server: &Server, stream: &mut Stream, began: Instant) -> Heard {
    let waits = Waits::begin(server);
    let deadline = began + server.limits.handshake;
    let (mut bytes, mut n) = ([0; OPENING], 0);
    while n < OPENING {
        let read = tokio::select! {
            biased;
            () = server.draining.cancelled() => return Heard::Ended,
            () = waits.evicted.cancelled() => return Heard::Silent,
            read = timeout_at(deadline, stream.read(&mut bytes[n..])) => read,
        };
        match read {
            Ok(Ok(0) | Err(_)) if n > 0 => return Heard::Ended,
            // The connection sees to it.
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(more)) => n += more,
            Err(_) => return Heard::Silent,
        }
        let said = n.min(PREFACE.len());
        if bytes[..said] != PREFACE[..said] {
            // What came is for the session to judge.
            break;
        }
    }
    match bytes.split_first_chunk::<{ PREFACE.len() }>() {
        Some((preface, token)) if n == OPENING && *preface == PREFACE => match token.try_into() {
            Ok(token) => Heard::Stream(token),
            Err(_) => Heard::Ended,
        },
        _ => Heard::Session(BytesMut::from(&bytes[..n])),
    }
}
