//! The server: exports, limits, identity, and the connections it serves.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ninefold_proto::server::Limits;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::FileServer;
use super::arrivals;
use super::decisions::Decisions;
use super::draining::Draining;
use super::exports::{Export, Exports};
use super::identity::Policy;
use super::sessions::Sessions;
use super::streams::{self, StreamCounts, StreamLimits, Streams};
use super::throttle::Throttle;
use crate::transport::{Listener, Peer, Stream};

/// Serves trees to any number of connections.
pub struct Server {
    pub(super) exports: Exports,
    pub(super) policy: Policy,
    pub(super) decisions: Decisions,
    pub(super) limits: Limits,
    pub(super) sessions: Sessions,
    pub(super) streams: Streams,
    pub(super) draining: Draining,
    /// Warnings of connections that broke the protocol.
    pub(super) broken: Throttle,
    pub(super) connections: TaskTracker,
    next_connection: AtomicU64,
}

/// Collects what a [`Server`] serves.
pub struct ServerBuilder {
    exports: Exports,
    policy: Policy,
    limits: Limits,
    streams: StreamLimits,
}

impl Server {
    /// A server without exports, under [`Policy::AsProcess`] and the default limits.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            exports: Exports::default(),
            policy: Policy::AsProcess,
            limits: Limits::default(),
            streams: StreamLimits::default(),
        }
    }

    /// Serves one connection until the peer closes it, breaks the protocol, or the server drains. A data connection of a stream is
    /// handed to that, which goes on by itself.
    /// Anything that carries bytes becomes a [`Stream`]: sockets by `into()`, the rest by [`Stream::other`].
    /// Must be spawned or awaited on a tokio runtime; dropping it before the end clunks nothing.
    pub fn serve<S: Into<Stream>>(self: &Arc<Self>, stream: S, peer: Peer) -> impl Future<Output = ()> + Send + use<S> {
        self.connections.track_future(streams::receive(self.clone(), stream.into(), peer, self.next_id()))
    }

    /// Accepts from `listener` and serves who comes. Each connection takes one of the permits of `slots`, which several listeners can share, until it ends, or is known for one that carries
    /// a stream; where there is none nobody is accepted. A listener at which nobody is holds one too.
    ///
    /// When the server [drains](Self::drain) the listener is closed, and behind the next one who comes where `slots` is; the future ends when all connections that it has are. Sessions have tasks of their own. Must be spawned or awaited on a
    /// tokio runtime; dropped before its end it breaks off the streams that it has.
    ///
    /// To [`serve`](Self::serve) each connection in a task of its own is the same, and costs more: who comes by TCP is greeted in one task here, and streams that threads of the server
    /// send stay in it.
    pub fn serve_all(
        self: &Arc<Self>,
        listener: Listener,
        slots: Arc<Semaphore>,
    ) -> impl Future<Output = ()> + Send + use<> {
        // A server that has drained listens nowhere.
        self.streams.tasks.track_future(arrivals::serve(self.clone(), listener, slots))
    }

    /// Of a connection: 0 is the context that belongs to none.
    pub(super) fn next_id(&self) -> u64 {
        self.next_connection.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Streams that have not ended.
    pub fn streams(&self) -> usize {
        self.streams.open()
    }

    /// What became of the streams so far.
    pub fn stream_counts(&self) -> StreamCounts {
        self.streams.counts()
    }

    /// Ends gracefully: no new requests are started, those begun are answered, waits are cancelled, files
    /// clunked, streams ended, listeners that it [serves](Self::serve_all) and connections closed. Returns when all are gone, for which the futures that serve them must go on
    /// being polled, or be dropped; the caller bounds it.
    pub async fn drain(&self) {
        self.draining.begin();
        self.connections.close();
        self.connections.wait().await;
        self.streams.tasks.close();
        self.streams.tasks.wait().await;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("limits", &self.limits).field("connections", &self.connections()).finish()
    }
}

impl ServerBuilder {
    /// Exports `tree` under `name`; the empty name is the default export.
    pub fn export(mut self, name: &str, tree: Arc<dyn FileServer>, read_only: bool) -> ServerBuilder {
        self.exports.insert(name, Export { tree, read_only });
        self
    }

    /// Lets clients call the export `name` also `alias`: a path on the server, as diod's clients say.
    pub fn alias(mut self, alias: &str, name: &str) -> ServerBuilder {
        self.exports.alias(alias, name);
        self
    }

    /// Sets who an attach acts as.
    pub fn identity(mut self, policy: Policy) -> ServerBuilder {
        self.policy = policy;
        self
    }

    /// Sets the limits of each connection.
    pub fn limits(mut self, limits: Limits) -> ServerBuilder {
        self.limits = limits;
        self
    }

    /// Sets the limits of all streams.
    pub fn streams(mut self, limits: StreamLimits) -> ServerBuilder {
        self.streams = limits;
        self
    }

    /// The server, ready for connections.
    pub fn build(self) -> Arc<Server> {
        Arc::new(Server {
            exports: self.exports,
            policy: self.policy,
            decisions: Decisions::default(),
            limits: self.limits,
            sessions: Sessions::new(),
            streams: Streams::new(self.streams),
            draining: Draining::default(),
            broken: Throttle::default(),
            connections: TaskTracker::new(),
            next_connection: AtomicU64::new(0),
        })
    }
}
