//! A client attached to one tree of one server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ninefold_proto::dialect::Version;
use ninefold_proto::{Dialect, Fid, Qid, R, T};
use tokio::time::Instant;

use super::connection::{Handle, Reply};
use super::error::Error;
use super::fid::OwnedFid;
use super::handshake::{self, bounded};
use super::node::{Node, unexpected};
use super::options::Options;
use super::resolve::{self, Follow, Located};
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
    attach_took: Duration,
}

/// The fid of the attach.
#[derive(Debug)]
pub(super) struct Root {
    pub fid: OwnedFid,
    pub qid: Qid,
}

impl Client {
    /// Connects to the server at `address` and attaches; `address.path` is for [`Client::walk`]. Over ssh the server is
    /// started there with the whole file system for its tree, so that the path means what it means to scp. All of it ends
    /// within [`Options::timeout`], whatever is gone through; over ssh within [`Options::login_timeout`].
    pub async fn connect(address: &Address, options: Options) -> Result<Client, Error> {
        let connected = async {
            let handle = handshake::connect(address, &options).await?;
            let aname = address.aname.clone().unwrap_or_default();
            Client::attach(handle, &aname, options.clone()).await
        };
        bounded(handshake::limit(address, &options), connected).await?
    }

    /// The same on a stream that is there already, within [`Options::timeout`]. Must be called within a tokio runtime, as all of this.
    pub async fn over(stream: Stream, attach: &Attach, options: Options) -> Result<Client, Error> {
        let attached = async {
            let handle = handshake::over(stream, attach.dialect, &options).await?;
            Client::attach(handle, &attach.aname, options.clone()).await
        };
        bounded(options.timeout, attached).await?
    }

    async fn attach(handle: Handle, aname: &[u8], options: Options) -> Result<Client, Error> {
        let lane = Lane::default();
        // The handshake's round trips came first.
        lane.raise(handle.stats().round_trips);
        let fid = handle.new_fid()?;
        let (uname, n_uname) = (options.user.0.as_slice(), options.user.1);
        let request = T::Attach { fid: fid.fid(), afid: Fid::NONE, uname, aname, n_uname };
        let began = Instant::now();
        let reply = handle.call_making(request, fid, &lane).await?;
        let attach_took = began.elapsed();
        let qid = match reply.message()? {
            R::Attach { qid } => qid,
            _ => return Err(unexpected()),
        };
        let fid = reply.made.ok_or_else(unexpected)?;
        Ok(Client { options: Arc::new(options), lane, root: Arc::new(Root { fid, qid }), handle, attach_took })
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

    /// How long the attach took: one round trip, and what the server did meanwhile.
    pub fn attach_took(&self) -> Duration {
        self.attach_took
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
        Ok((resolve::walk_names(self, names, Follow::All).await?, name))
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
        let Client { handle, root, .. } = self;
        drop(root);
        handle.close(patience).await
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
