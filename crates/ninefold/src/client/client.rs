//! A client attached to one tree of one server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ninefold_proto::dialect::Version;
use ninefold_proto::types::SessionId;
use ninefold_proto::{Dialect, Fid, T};
use tokio::time::Instant;

use super::connection::{Handle, Reply};
use super::error::Error;
use super::handshake::{self, bounded};
use super::nameop::Base;
use super::node::Node;
use super::options::Options;
use super::resolve::{self, Follow, Located};
use super::root::{Attached, Root, Session, new_session};
use super::stats::{Lane, Stats};
use crate::transport::{Address, Stream};

/// How to attach (attach(5)) on a stream that is there already.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attach {
    /// The tree asked for; empty for the server's first.
    pub aname: Vec<u8>,
    /// The only dialect to offer, with its suffixes.
    pub dialect: Option<Version>,
}

/// A connection to a server, attached to a tree. Cheap to clone; the last clone, [`Node`] and
/// [`File`](super::File) that is dropped ends the connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) options: Arc<Options>,
    pub(super) lane: Lane,
    pub(super) root: Arc<Root>,
    handle: Handle,
}

impl Client {
    /// Connects to the server at `address` and attaches; `address.path` is for [`Client::walk`]. Over ssh the server is
    /// started there with the whole file system for its tree, so that the path means what it means to scp. All of it ends
    /// within [`Options::timeout`], whatever is gone through; over ssh within [`Options::login_timeout`].
    pub async fn connect(address: &Address, options: Options) -> Result<Client, Error> {
        let (client, _) = Client::first(address, options, async |_| Ok(())).await?;
        Ok(client)
    }

    /// The same on a stream that is there already, within [`Options::timeout`]. Must be called within a tokio runtime, as all of this.
    pub async fn over(stream: Stream, attach: &Attach, options: Options) -> Result<Client, Error> {
        let attached = async {
            let handle = handshake::over(stream, attach.dialect, &options).await?;
            let client = Client::begin(handle, &attach.aname, Arc::new(options.clone()), new_session()?, 0).await?;
            client.attached().await?;
            Ok(client)
        };
        bounded(options.timeout, attached).await?
    }

    /// Asks for the attach, without waiting for it. With groups a chain may go behind it: see [`Root`]. `cause`: the depth of what it follows
    /// from beside the handshake.
    pub(super) async fn begin(
        handle: Handle,
        aname: &[u8],
        options: Arc<Options>,
        session: SessionId,
        cause: u32,
    ) -> Result<Client, Error> {
        handle.hold_back_clunks(options.clunks_held_back);
        let lane = Lane::default();
        // The handshake's round trips came first, where they were waited for.
        lane.raise(handle.prelude_depth().max(cause));
        let root = Root::begin(&handle, (&options.user.0, options.user.1, aname), session, lane.depth()).await?;
        Ok(Client { options, lane, root: Arc::new(root), handle })
    }

    /// Attaches to another tree of the same server, on the same connection; its bound is [`Options::timeout`].
    pub async fn attach(&self, aname: &[u8]) -> Result<Client, Error> {
        let attached = async {
            // A connection has one session (docs/protocol.md).
            let session = self.attached().await?.session.map_or_else(new_session, |session| Ok(session.id))?;
            let cause = self.lane.depth();
            let client = Client::begin(self.handle.clone(), aname, self.options.clone(), session, cause).await?;
            client.attached().await?;
            Ok(client)
        };
        bounded(self.options.timeout, attached).await?
    }

    /// Whether the connection has ended: every call fails from then on.
    pub fn is_over(&self) -> bool {
        self.handle.is_over()
    }

    /// Whether both are of one connection, and what they name can be named in one request.
    pub fn is_beside(&self, other: &Client) -> bool {
        self.handle.is(&other.handle)
    }

    /// A number of the tree that was attached to, for as long as any client of it is: who has the same names files by the same qids.
    pub fn tree_number(&self) -> usize {
        Arc::as_ptr(&self.root).addr()
    }

    /// Waits for the attach.
    pub(super) async fn attached(&self) -> Result<Attached, Error> {
        self.root.attached(&self.lane).await
    }

    /// The dialect agreed.
    pub fn dialect(&self) -> Dialect {
        self.handle.dialect()
    }

    /// The dialect with its suffixes.
    pub fn version(&self) -> Version {
        self.handle.version()
    }

    /// Bytes of the largest message agreed.
    pub fn msize(&self) -> u32 {
        self.handle.msize()
    }

    /// Bytes of the largest reply to ask for. While the msize is not agreed a server may have more to say than may be sent to
    /// it: it cuts that to what it agrees to.
    pub(super) fn reply_max(&self) -> u32 {
        if self.handle.is_presumed() { self.options.offer() } else { self.msize() }
    }

    /// How long the attach took: one round trip, and what the server did meanwhile.
    pub fn attach_took(&self) -> Duration {
        self.root.known().map_or(Duration::ZERO, |attached| attached.took)
    }

    /// What the server said of itself and of the session that this connection is of: `.n1` only. Who looks whether it is there by now waits for
    /// nothing, and what he asks then does not count as following from it ([`Stats::round_trips`]).
    pub fn session(&self) -> Option<Session> {
        self.root.known().and_then(|attached| attached.session)
    }

    /// What it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// When the server was last heard of.
    pub fn heard_at(&self) -> Instant {
        self.handle.heard_at()
    }

    /// What was counted on the connection so far.
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// Fids that the server knows of, and requests that it has not answered: for tests that look for leaks.
    pub fn held(&self) -> (usize, usize) {
        self.handle.held()
    }

    /// The same client for work that runs beside this one's: its requests do not count as caused by what happens here
    /// from now on. See [`Stats::round_trips`].
    pub fn fork(&self) -> Client {
        Client { lane: self.lane.fork(), ..self.clone() }
    }

    /// What follows here follows from `other`'s replies too.
    pub fn join(&self, other: &Client) {
        self.lane.raise(other.lane.depth());
    }

    /// Goes to a file. `path` is bytes between `/`s from the root of the tree; `.` and `..` in it are resolved before
    /// anything is asked (S5, "Names"), in the targets of links as Linux does. An absolute target starts at the root
    /// of the tree.
    pub async fn walk(&self, path: impl AsRef<[u8]>, follow: Follow) -> Result<Node, Error> {
        resolve::walk(self, path.as_ref(), follow).await
    }

    /// Goes to the directory that holds the file, which need not exist, and gives the file's name. The root has no
    /// such directory: `EBUSY`, as Linux says it.
    pub async fn walk_parent(&self, path: impl AsRef<[u8]>) -> Result<(Node, Vec<u8>), Error> {
        let mut names = resolve::components(path.as_ref())?;
        let name = names.pop().ok_or(ninefold_proto::Errno::EBUSY)?;
        Ok((resolve::walk_names(Base::root(self), names, Follow::All).await?, name))
    }

    /// Goes to the directory that really holds a file, which need not exist: where the path ends at a symbolic link, to
    /// where that leads. The root is `EISDIR`, and so is a link to what ends in `..`.
    pub async fn locate(&self, path: impl AsRef<[u8]>) -> Result<Located, Error> {
        resolve::locate(self, path.as_ref()).await
    }

    /// Ends the connection: waits until what was dropped is clunked, while something is heard of the server at least every
    /// `patience`, and in all for `patience` or two seconds, whichever is longer. An end that was not answered is an error. Nodes
    /// and files still held are the server's to forget.
    pub async fn close(self, patience: Duration) -> Result<(), Error> {
        self.send_clunks();
        let Client { handle, root, .. } = self;
        drop(root);
        handle.close(patience, false).await
    }

    /// The same, but by .n1 it waits for no clunk of a file that was only looked at or read: that would tell nothing, and take a
    /// round trip. Of other servers there is one, diod, that ends when a connection does before it has answered a clunk: with
    /// them [`Options::clunks_held_back`] saves the round trip.
    pub async fn leave(self, patience: Duration) -> Result<(), Error> {
        let in_haste = self.version().is_n1();
        let Client { handle, root, .. } = self;
        drop(root);
        handle.close(patience, in_haste).await
    }

    /// Sends the clunks that are [held back](Options::clunks_held_back); none is from now on, or until another [`Client::attach`].
    pub fn send_clunks(&self) {
        self.handle.hold_back_clunks(false);
    }

    /// The connection, for calls that know their own cause.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) async fn call(&self, request: T<'_>) -> Result<Reply, Error> {
        self.handle.call(request, Bytes::new(), &self.lane).await
    }

    pub(super) async fn call_with(&self, request: T<'_>, payload: Bytes) -> Result<Reply, Error> {
        self.handle.call(request, payload, &self.lane).await
    }

    /// A call that makes a fid: `request` is given its number.
    pub(super) async fn call_making<'r>(&self, request: impl FnOnce(Fid) -> T<'r>) -> Result<Reply, Error> {
        let fid = self.handle.new_fid()?;
        self.handle.call_making(request(fid.fid()), fid, &self.lane).await
    }
}
