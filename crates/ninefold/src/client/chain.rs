//! Requests that are issued now and whose replies are taken later, each carried out when those before it are done (S5,
//! "Split mount driver requests").
//!
//! [`Client::chain`] begins a [`Chain`]. Each of its methods issues a request and gives a [`Promise`] of what it brings; a walk
//! gives a [`Spot`] as well, which the requests behind it may name before anybody knows whether there is such a file.
//! [`Promise::take`] waits for the reply, and sends all that was issued: together, so that it takes few packets. Who does something
//! else first calls [`Chain::send`]. A chain that is dropped is given up: what was not answered is flushed.
//!
//! ```no_run
//! use ninefold::client::{Client, Error, Metadata};
//!
//! /// What is called `name` in the root: one round trip where the server has groups, three where it has none.
//! async fn look(client: &Client, name: &[u8]) -> Result<Metadata, Error> {
//!     let mut chain = client.chain();
//!     let (spot, walked) = chain.walk_root(&[name]).await?;
//!     let metadata = chain.stat(&spot).await?;
//!     let clunked = chain.clunk(spot).await?;
//!     walked.take().await?; // Of one name: it is there, or this is the error.
//!     let metadata = metadata.take().await?;
//!     clunked.take().await?;
//!     Ok(metadata)
//! }
//! ```
//!
//! Promises: with groups (`.ix`) all of a chain is sent at once and takes one round trip, but that what is made is looked for
//! first; without, the same calls run one at a
//! time, with the same results. A request that fails stops none behind it. One that needs a file whose walk failed, or ended early,
//! fails with `EBADF` and does nothing. A node or spot of another connection is `EINVAL`. Wherever a chain is given up no fid and no tag is left at either end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use ninefold_proto::attr::{SetAttr, getattr};
use ninefold_proto::client::Parting;
use ninefold_proto::message::{Mask, Names, Octal, Optional, Payload, Perm, StatBytes};
use ninefold_proto::n1::{guard, rename2, seek};
use ninefold_proto::open::lflags;
use ninefold_proto::stat::{Stat, dm, omode};
use ninefold_proto::types::{MAXWELEM, Name, StreamToken};
use ninefold_proto::wire::IO_HEADER;
use ninefold_proto::{Dialect, Errno, Fid, Qid, R, T};

use super::client::Client;
use super::connection::{Call, Handle, Place, Reply, Rooms, Waiting};
use super::error::{Error, Suspicion};
use super::fid::{NewFid, OwnedFid};
use super::file::File;
use super::metadata::{Metadata, link_target_of};
use super::names::REMOVEDIR;
use super::node::{
    Mode, Node, exclusive, is_there, metadata_of_reply, new_file, own_gid, plan9_perm, setattr_request, unexpected,
};
use super::ranges::{AT_ONCE, Width};
use super::stats::Lane;
use super::stream::Grant;

/// Requests that are carried out one after another; see the [module](self). At most 64 may be unanswered.
#[derive(Debug)]
pub struct Chain {
    client: Client,
    /// The attach that it goes behind.
    lead: Option<Call>,
    last: Option<Call>,
    /// Its replies, taken or not.
    replies: Lane,
    /// Room that is kept for what its guard guards.
    rooms: Option<Rooms>,
}

/// A file that a chain walks to, whether or not it gets there. Its fid is clunked when this is dropped.
#[derive(Debug)]
pub struct Spot {
    client: Client,
    fid: OwnedFid,
    known: Arc<Known>,
}

/// What the replies to a walk and to an open behind it must agree in; whichever is taken first says it.
#[derive(Debug)]
struct Known {
    /// Names of the walk.
    names: usize,
    is_dir: OnceLock<bool>,
}

impl Known {
    fn agrees(&self, qid: Qid) -> bool {
        *self.is_dir.get_or_init(|| qid.is_dir()) == qid.is_dir()
    }

    fn agrees_walked(&self, qids: &[Qid]) -> bool {
        qids.len() != self.names || qids.last().is_none_or(|&qid| self.agrees(qid))
    }
}

/// What opening or making a file brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    pub qid: Qid,
    /// Bytes that the server takes in one message at most (open(5)); 0: as many as fit.
    pub iounit: u32,
    /// Whether the file was made.
    pub made: bool,
}

/// What a request of a chain will bring.
#[derive(Debug)]
#[must_use = "what the server says to a request is not known before it is taken"]
pub struct Promise<T> {
    waiting: Waiting,
    lane: Lane,
    read: fn(Reply) -> Result<T, Error>,
    against: Option<(Arc<Known>, Agrees<T>)>,
}

/// Whether what came agrees with what is known.
type Agrees<T> = fn(&Known, &T) -> bool;

impl<T> Promise<T> {
    /// Waits for the reply, while it sees no silence longer than [`Options::timeout`](super::Options::timeout). Replies may be
    /// taken in any order. One that nobody takes is dropped. `ECANCELED`: the chain was given up before.
    pub async fn take(self) -> Result<T, Error> {
        let told = (self.read)(self.waiting.wait(&self.lane).await?)?;
        match self.against {
            Some((known, agrees)) if !agrees(&known, &told) => Err(Suspicion::Type.into()),
            _ => Ok(told),
        }
    }

    /// Waits for the reply within `patience`, however silent the connection is meanwhile: for what waits for bytes that go by another.
    /// It is not compared with what others of the chain were told.
    pub(super) async fn take_within(mut self, patience: Duration) -> Result<T, Error> {
        let reply = tokio::time::timeout(patience, &mut self.waiting).await;
        let reply = reply.unwrap_or(Err(Error::TimedOut(patience)));
        self.lane.raise(self.waiting.depth());
        (self.read)(reply?)
    }
}

impl Client {
    /// A chain without a request.
    pub fn chain(&self) -> Chain {
        Chain { client: self.clone(), lead: None, last: None, replies: Lane::default(), rooms: None }
    }
}

impl Spot {
    /// The connection that it is of.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn fid(&self) -> Fid {
        self.fid.fid()
    }

    /// The file, when the [walk](Chain::walk) to it brought as many qids as it had names; `qid` is the last of them. `EBADF`:
    /// the walk failed, or its reply is not there yet.
    pub fn into_node(self, qid: Qid) -> Result<Node, Error> {
        self.settle()?;
        Ok(Node::new(self.client, self.fid, qid))
    }

    /// The open file, when [`Chain::open`] or [`Chain::create`] brought `opened` and was asked for `mode`. `EBADF`: see
    /// [`Spot::into_node`].
    pub fn into_file(self, opened: Opened, mode: Mode) -> Result<File, Error> {
        self.settle()?;
        let Opened { qid, iounit, made } = opened;
        Ok(File::new(self.client, self.fid, (qid, iounit), mode, made))
    }

    /// Bytes of the largest write.
    pub(super) fn write_max(&self) -> usize {
        (self.client.msize() - IO_HEADER) as usize
    }

    /// From now on it is an owned fid like any other, if there is such a fid.
    fn settle(&self) -> Result<(), Error> {
        if self.client.handle().settle(self.fid()) { Ok(()) } else { Err(Errno::EBADF.into()) }
    }
}

impl Chain {
    /// The next `members` requests, at most 62, are done up to the first that fails, or does less than it was asked to: those
    /// behind it fail with `ECANCELED`, and do nothing. To fail is to be refused; a walk that ends early, and a
    /// [write](Chain::write) that takes a part, do less. So what has a name at the end of such a row is whole. .n1 only.
    ///
    /// Room for all of them is waited for here. A chain that asks for fewer of them is flushed when it is dropped, or the server
    /// would take the next ones for them.
    pub async fn all_or_stop(&mut self, members: u16) -> Result<Promise<()>, Error> {
        if !self.client.version().is_n1() {
            let dialect = self.client.dialect();
            return Err(Error::Unsupported { what: "stop at what fails", dialect });
        }
        self.guard(guard::STOP, members).await
    }

    async fn guard(&mut self, flags: u32, members: u16) -> Result<Promise<()>, Error> {
        let request = T::Guard { flags: Octal(flags), epoch: 0, fid: Fid::NONE, lease: 0, opid: 0, members };
        self.take_lead();
        self.rooms = Some(self.client.handle().rooms(u32::from(members) + 1).await?);
        self.issue(request, Bytes::new(), nothing).await
    }

    /// What begins the chain goes behind the attach, where nobody else does.
    fn take_lead(&mut self) {
        if self.last.is_none() && self.lead.is_none() {
            self.lead = self.client.root.take_lead();
        }
    }

    /// The next request is done, and the `members` - 1 behind it only if it failed: else those fail with `ECANCELED`, and do nothing.
    /// .n1 only; room is waited for and a chain is dropped as with [`Chain::all_or_stop`].
    pub(super) async fn unless(&mut self, members: u16) -> Result<Promise<()>, Error> {
        self.guard(guard::UNLESS, members).await
    }

    /// Whether a stream of `.n1` may be had.
    pub(super) fn may_stream(&self) -> bool {
        self.client.version().is_n1() && self.client.has_streams()
    }

    /// How many of so many streams may be asked for before anybody knows whether connections for them can be had. Behind TLS one costs more.
    pub(super) fn at_once(&self, streams: usize) -> usize {
        let may = self.may_stream() && !self.client.handle().dialer().is_sealed();
        if may { streams.min(AT_ONCE) } else { 0 }
    }

    /// By how many streams of at most `most` a long file should be read, as far as is known before the attach how long the way is; and opens
    /// connections for them. 0 where there are to be none, or that costs more than a connection of TCP.
    pub(super) fn prepare_streams(&self, most: usize) -> usize {
        let dialer = self.client.handle().dialer();
        let streams = if dialer.is_tcp() { Width::at_once(dialer.trip(), most) } else { 0 };
        self.client.prepare_streams(streams);
        streams
    }

    /// Whether the open file has more than `bytes` bytes: `ENXIO` where it has not, or nothing but a hole behind them; .n1 only.
    pub(super) async fn is_longer(&mut self, spot: &Spot, bytes: u64) -> Result<Promise<()>, Error> {
        // A hole is there behind every file (lseek(2)), but is looked for page by page in some.
        let request = T::Seek { fid: self.own(&spot.fid)?, offset: bytes, whence: seek::DATA };
        self.issue(request, Bytes::new(), nothing).await
    }

    /// Whether tokens of our own are to go with this chain's streams, which is once in a session: connections were dialled with its own for
    /// that, and one on which a token was said that is not granted is of no use any more.
    pub(super) fn take_say_ahead(&self) -> bool {
        self.client.handle().dialer().take_first_use()
    }

    /// Asks for a stream from the open file, of `length` bytes from `offset` on, by a token of our own if that is told; .n1 only.
    pub(super) async fn stream_from(
        &mut self,
        spot: &Spot,
        (offset, length): (u64, u64),
        flags: u32,
        token: Option<StreamToken>,
    ) -> Result<Promise<Grant>, Error> {
        let (fid, token) = (self.own(&spot.fid)?, token.unwrap_or_default());
        let request = T::Stream { fid, flags: Octal(flags), isread: 1, offset, length, token };
        self.issue(request, Bytes::new(), Grant::read).await
    }

    /// The same of one to the file.
    pub(super) async fn stream_to(
        &mut self,
        spot: &Spot,
        (offset, length): (u64, u64),
        token: StreamToken,
    ) -> Result<Promise<Grant>, Error> {
        let request = T::Stream { fid: self.own(&spot.fid)?, flags: Octal(0), isread: 0, offset, length, token };
        self.issue(request, Bytes::new(), Grant::read).await
    }

    /// Asks how a stream ended, when it has: the promise is of the bytes that it moved; .n1 only.
    pub(super) async fn end_stream(&mut self, id: u32) -> Result<Promise<u64>, Error> {
        self.issue(T::Streamend { id, flags: Octal(0) }, Bytes::new(), |reply| match reply.message()? {
            R::Streamend { count, .. } => Ok(count),
            _ => Err(unexpected()),
        })
        .await
    }

    /// Walks from `node`, through no link. The promise is of the qids of the names that there are, at least one when any was
    /// asked for: fewer than all of them mean that the walk ended early and made nothing. At most 16 names.
    pub async fn walk(&mut self, node: &Node, names: &[&[u8]]) -> Result<(Spot, Promise<Vec<Qid>>), Error> {
        self.walk_from(self.own(&node.fid)?, Some(node.qid()), names).await
    }

    /// The same from the root of the tree.
    pub async fn walk_root(&mut self, names: &[&[u8]]) -> Result<(Spot, Promise<Vec<Qid>>), Error> {
        let root = self.client.root.clone();
        self.take_lead();
        // Under the attach's own tag a fid may be named that it is to make, whether or not it is there by now. All others wait for it.
        let qid = match self.lead {
            Some(_) => root.known().map(|attached| attached.qid),
            None => Some(root.attached(&self.client.lane).await?.qid),
        };
        self.walk_from(root.fid.fid(), qid, names).await
    }

    /// The same from where an earlier walk of the chain is to come.
    pub(super) async fn walk_spot(&mut self, spot: &Spot, names: &[&[u8]]) -> Result<(Spot, Promise<Vec<Qid>>), Error> {
        self.walk_from(self.own(&spot.fid)?, None, names).await
    }

    /// `qid` is that of `fid`, where it is known.
    async fn walk_from(
        &mut self,
        fid: Fid,
        qid: Option<Qid>,
        names: &[&[u8]],
    ) -> Result<(Spot, Promise<Vec<Qid>>), Error> {
        names.iter().filter(|name| **name != b"..").try_for_each(|name| Name::new(name).map(drop))?;
        if names.len() > MAXWELEM {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let handle = self.client.handle().clone();
        let (new, mut promise) = self.begin_walk(&handle, fid, names).await?;
        let newfid = new.fid();
        new.named();
        let known = Arc::new(Known { names: names.len(), is_dir: OnceLock::new() });
        if let (true, Some(qid)) = (names.is_empty(), qid) {
            known.agrees(qid);
        }
        promise.against = Some((known.clone(), |known, qids| known.agrees_walked(qids)));
        Ok((Spot { client: self.client.clone(), fid: OwnedFid::made(handle, newfid), known }, promise))
    }

    /// The fid is kept before the request can be answered: a walk that has failed by the time that it gets its owner would have
    /// freed the number, and it might be another's.
    async fn begin_walk<'h>(
        &mut self,
        handle: &'h Handle,
        fid: Fid,
        names: &[&[u8]],
    ) -> Result<(NewFid<'h>, Promise<Vec<Qid>>), Error> {
        let new = handle.new_kept_fid()?;
        let mut scratch = Vec::new();
        let wnames = Names::encode(names.iter().copied(), &mut scratch);
        let request = T::Walk { fid, newfid: new.fid(), wnames };
        let promise = self.issue(request, Bytes::new(), |reply| match reply.message()? {
            R::Walk { wqids } => Ok(wqids.iter().collect()),
            _ => Err(unexpected()),
        });
        Ok((new, promise.await?))
    }

    /// The file's attributes.
    pub async fn stat(&mut self, spot: &Spot) -> Result<Promise<Metadata>, Error> {
        let fid = self.own(&spot.fid)?;
        let request = match self.client.dialect() {
            Dialect::Linux => T::Getattr { fid, request_mask: Mask(getattr::ALL) },
            _ => T::Stat { fid },
        };
        self.issue(request, Bytes::new(), |reply| metadata_of_reply(&reply)).await
    }

    /// Changes attributes, by one message; .L and .n1 only.
    pub(super) async fn set(&mut self, spot: &Spot, change: &SetAttr) -> Result<Promise<()>, Error> {
        self.issue(setattr_request(self.own(&spot.fid)?, change), Bytes::new(), nothing).await
    }

    /// See [`Node::access`]; .n1 only.
    pub(super) async fn access(&mut self, spot: &Spot, mode: u32) -> Result<Promise<u32>, Error> {
        let request = T::Access { fid: self.own(&spot.fid)?, mode: Octal(mode) };
        self.issue(request, Bytes::new(), |reply| match reply.message()? {
            R::Access { mode } => Ok(mode.0),
            _ => Err(unexpected()),
        })
        .await
    }

    /// Opens the file.
    pub async fn open(&mut self, spot: &Spot, mode: Mode) -> Result<Promise<Opened>, Error> {
        let fid = self.own(&spot.fid)?;
        let request = match self.client.dialect() {
            Dialect::Linux => T::Lopen { fid, flags: Octal(mode.lflags()) },
            dialect => T::Open { fid, mode: mode.byte(dialect)? },
        };
        let promise = self.issue(request, Bytes::new(), |reply| match reply.message()? {
            R::Open { qid, iounit } | R::Lopen { qid, iounit } => Ok(Opened { qid, iounit, made: false }),
            _ => Err(unexpected()),
        });
        Ok(Promise {
            against: Some((spot.known.clone(), |known, opened: &Opened| known.agrees(opened.qid))),
            ..promise.await?
        })
    }

    /// Opens a directory to be read; anything else is refused with `ENOTDIR`, and not even begun to be opened. .L and .n1 only.
    pub(super) async fn open_dir(&mut self, spot: &Spot) -> Result<Promise<Opened>, Error> {
        let flags = Octal(Mode::READ.lflags() | lflags::DIRECTORY);
        let promise =
            self.issue(T::Lopen { fid: self.own(&spot.fid)?, flags }, Bytes::new(), |reply| match reply.message()? {
                R::Lopen { qid, iounit } => Ok(Opened { qid, iounit, made: false }),
                _ => Err(unexpected()),
            });
        promise.await
    }

    /// The first entries of an open directory, with `attributes` or without: at most `count` bytes of them, and at most what fits
    /// a message. .n1 only.
    pub(super) async fn read_dir_plus(
        &mut self,
        spot: &Spot,
        count: u32,
        attributes: bool,
    ) -> Result<Promise<Reply>, Error> {
        // While the msize is presumed it is less than was offered; a server cuts to what it agreed on.
        let count = count.min(self.client.options().offer() - IO_HEADER);
        let request_mask = Mask(if attributes { getattr::ALL } else { 0 });
        let request = T::Readdirplus { fid: self.own(&spot.fid)?, offset: 0, count, request_mask, flags: Octal(0) };
        self.issue(request, Bytes::new(), Ok).await
    }

    /// Makes a plain file that does not exist in a directory, and opens it: the spot is the new file's from then on; see
    /// [`Node::create`]. With groups the chain waits here until it is known that there is no such file, as in
    /// [`Chain::mkdir`].
    pub async fn create(&mut self, spot: &Spot, name: &[u8], mode: Mode, perm: u32) -> Result<Promise<Opened>, Error> {
        Name::new(name)?;
        if let Some(refused) = self.taken(spot, name).await? {
            return Ok(refused);
        }
        let fid = self.own(&spot.fid)?;
        let request = new_file(self.client.version(), fid, name, mode, perm)?;
        self.issue(request, Bytes::new(), |reply| match reply.message()? {
            R::Create { qid, .. } | R::Lcreate { qid, .. } if qid.is_dir() => Err(Suspicion::Type.into()),
            R::Create { qid, iounit } | R::Lcreate { qid, iounit } => Ok(Opened { qid, iounit, made: true }),
            _ => Err(unexpected()),
        })
        .await
    }

    /// Makes a plain file in a directory, or opens the one that is there and cuts it to nothing, for writing: the spot is the file's
    /// from then on; .n1 only.
    pub(super) async fn replace(&mut self, spot: &Spot, name: &[u8], perm: u32) -> Result<Promise<Opened>, Error> {
        Name::new(name)?;
        let (fid, flags) = (self.own(&spot.fid)?, Octal(Mode::REPLACE.lflags() | lflags::CREAT));
        let request = T::Lcreate { fid, name, flags, mode: Octal(perm), gid: own_gid() };
        self.issue(request, Bytes::new(), |reply| match reply.message()? {
            R::Lcreate { qid, .. } if qid.is_dir() => Err(Suspicion::Type.into()),
            R::Lcreate { qid, iounit } => Ok(Opened { qid, iounit, made: true }),
            _ => Err(unexpected()),
        })
        .await
    }

    /// Makes a directory in a directory. In 9P2000 and .u the spot is the new directory's from then on, open for reading.
    pub async fn mkdir(&mut self, spot: &Spot, name: &[u8], perm: u32) -> Result<Promise<()>, Error> {
        Name::new(name)?;
        let fid = self.own(&spot.fid)?;
        match self.client.dialect() {
            Dialect::Linux => {
                let request = T::Mkdir { dfid: fid, name, mode: Octal(perm), gid: own_gid() };
                self.issue(request, Bytes::new(), nothing).await
            }
            dialect => self.make(spot, name, dm::DIR | plan9_perm(perm, dialect)?, b"").await,
        }
    }

    /// Tcreate of something that is no plain file, by its mode word.
    pub(super) async fn make(
        &mut self,
        spot: &Spot,
        name: &[u8],
        perm: u32,
        extension: &[u8],
    ) -> Result<Promise<()>, Error> {
        if let Some(refused) = self.taken(spot, name).await? {
            return Ok(refused);
        }
        // A directory is never opened for one that is there.
        let exclusive = if perm & dm::DIR == 0 { exclusive(self.client.version()) } else { 0 };
        let mode = omode::READ | exclusive;
        self.issue(
            T::Create { fid: self.own(&spot.fid)?, name, perm: Perm(perm), mode, extension },
            Bytes::new(),
            nothing,
        )
        .await
    }

    /// What is said to who would make `name`, under `.ix`, where it is there; see [`is_there`].
    async fn taken<B>(&mut self, spot: &Spot, name: &[u8]) -> Result<Option<Promise<B>>, Error> {
        if !self.client.version().is_ix() {
            return Ok(None);
        }
        // Of one name, so that it does not matter what the spot is.
        let (_there, walked) = self.walk_from(self.own(&spot.fid)?, None, &[name]).await?;
        let call = walked.waiting.call();
        let refused = match is_there(walked.take().await) {
            Ok(false) => return Ok(None),
            Ok(true) => Errno::EEXIST.into(),
            Err(e @ Error::Refused(_)) => e,
            Err(e) => return Err(e),
        };
        let waiting = Waiting::failed(self.client.handle(), call, refused);
        Ok(Some(Promise { waiting, lane: self.client.lane.clone(), read: |_| Err(unexpected()), against: None }))
    }

    /// Reads at most `count` bytes, and at most what fits a message, at `offset` of an open file.
    pub async fn read(&mut self, spot: &Spot, offset: u64, count: u32) -> Result<Promise<Bytes>, Error> {
        let count = count.min(self.client.reply_max() - IO_HEADER);
        self.issue(T::Read { fid: self.own(&spot.fid)?, offset, count }, Bytes::new(), |reply| Ok(reply.data())).await
    }

    /// Writes `data`, cut to what fits a message, at `offset` of an open file. The promise is of the bytes taken.
    pub async fn write(&mut self, spot: &Spot, offset: u64, mut data: Bytes) -> Result<Promise<u32>, Error> {
        data.truncate((self.client.msize() - IO_HEADER) as usize);
        self.write_whole(spot, offset, data).await
    }

    /// The same of no less than all: what does not fit a message is refused.
    pub(super) async fn write_whole(&mut self, spot: &Spot, offset: u64, data: Bytes) -> Result<Promise<u32>, Error> {
        let request = T::Write { fid: self.own(&spot.fid)?, offset, data: Payload(&data) };
        self.issue(request, data.clone(), |reply| match reply.message()? {
            R::Write { count } => Ok(count),
            _ => Err(unexpected()),
        })
        .await
    }

    /// Gives the file another name in its directory, which is `dir`. In .L and .u an existing file of that name is replaced; in
    /// 9P2000 it is EEXIST.
    pub async fn rename(&mut self, spot: &Spot, dir: &Node, name: &[u8]) -> Result<Promise<()>, Error> {
        Name::new(name)?;
        match self.client.dialect() {
            Dialect::Linux => {
                let request = T::Rename { fid: self.own(&spot.fid)?, dfid: self.own(&dir.fid)?, name };
                self.issue(request, Bytes::new(), nothing).await
            }
            _ => {
                self.own(&dir.fid)?;
                self.rename_here(spot, name).await
            }
        }
    }

    /// Renames `name` of a directory to `new_name` of another, or of the same; .L and .n1 only. An existing file of that name is
    /// replaced, unless it is `new`: then it is EEXIST (renameat2(2), RENAME_NOREPLACE), in .n1 only.
    pub(super) async fn rename_at(
        &mut self,
        (dir, name): (&Spot, &[u8]),
        (new_dir, new_name): (&Spot, &[u8]),
        new: bool,
    ) -> Result<Promise<()>, Error> {
        Name::new(name)?;
        Name::new(new_name)?;
        let (olddirfid, newdirfid) = (self.own(&dir.fid)?, self.own(&new_dir.fid)?);
        let request = if new {
            T::Rename2 { olddirfid, oldname: name, newdirfid, newname: new_name, flags: Octal(rename2::NOREPLACE) }
        } else {
            T::Renameat { olddirfid, oldname: name, newdirfid, newname: new_name }
        };
        self.issue(request, Bytes::new(), nothing).await
    }

    /// Renames within a directory, to a name that nothing has (else `EEXIST`); .n1 only.
    pub(super) async fn rename_in(&mut self, dir: &Node, name: &[u8], new_name: &[u8]) -> Result<Promise<()>, Error> {
        Name::new(name)?;
        Name::new(new_name)?;
        let fid = self.own(&dir.fid)?;
        let flags = Octal(rename2::NOREPLACE);
        let request = T::Rename2 { olddirfid: fid, oldname: name, newdirfid: fid, newname: new_name, flags };
        self.issue(request, Bytes::new(), nothing).await
    }

    /// The same to a name that may be another file's, which is replaced; .L and .n1 only.
    pub(super) async fn rename_over(&mut self, dir: &Node, name: &[u8], new_name: &[u8]) -> Result<Promise<()>, Error> {
        Name::new(name)?;
        Name::new(new_name)?;
        let fid = self.own(&dir.fid)?;
        let request = T::Renameat { olddirfid: fid, oldname: name, newdirfid: fid, newname: new_name };
        self.issue(request, Bytes::new(), nothing).await
    }

    /// Makes a directory in a directory; .L and .n1 only.
    pub(super) async fn mkdir_in(&mut self, dir: &Node, name: &[u8], perm: u32) -> Result<Promise<()>, Error> {
        let request = T::Mkdir { dfid: self.own(&dir.fid)?, name, mode: Octal(perm), gid: own_gid() };
        self.issue(request, Bytes::new(), nothing).await
    }

    /// Waits until what was written is on the server's disk; .L and .n1 only.
    pub(super) async fn sync(&mut self, spot: &Spot) -> Result<Promise<()>, Error> {
        self.issue(T::Fsync { fid: self.own(&spot.fid)?, datasync: Optional(0) }, Bytes::new(), nothing).await
    }

    /// Removes a name of a directory: of an empty directory when `of_dir`, else of anything but a directory; .L and .n1 only.
    pub(super) async fn unlink(&mut self, spot: &Spot, name: &[u8], of_dir: bool) -> Result<Promise<()>, Error> {
        Name::new(name)?;
        let flags = Octal(if of_dir { REMOVEDIR } else { 0 });
        self.issue(T::Unlinkat { dirfid: self.own(&spot.fid)?, name, flags }, Bytes::new(), nothing).await
    }

    /// The target of a symbolic link; .L and .n1 only.
    pub(super) async fn read_link(&mut self, spot: &Spot) -> Result<Promise<Vec<u8>>, Error> {
        self.issue(T::Readlink { fid: self.own(&spot.fid)? }, Bytes::new(), |reply| match reply.message()? {
            R::Readlink { target } => link_target_of(target.to_vec()),
            _ => Err(unexpected()),
        })
        .await
    }

    /// By Twstat, which .L does not have.
    pub(super) async fn rename_here(&mut self, spot: &Spot, name: &[u8]) -> Result<Promise<()>, Error> {
        let mut stat = Vec::new();
        Stat { name, ..Stat::UNTOUCHED }.encode(self.client.dialect(), &mut stat);
        self.issue(T::Wstat { fid: self.own(&spot.fid)?, stat: StatBytes(&stat) }, Bytes::new(), nothing).await
    }

    /// Removes the file, or the empty directory. The spot is gone whatever comes of it (remove(5)). `EINVAL` where a file was to
    /// be made at the spot and no reply says that it was: what would be removed might be its directory.
    pub async fn remove(&mut self, spot: Spot) -> Result<Promise<()>, Error> {
        self.issue(T::Remove { fid: self.own(&spot.fid)? }, Bytes::new(), nothing).await
    }

    /// Lets go of the file.
    pub async fn clunk(&mut self, spot: Spot) -> Result<Promise<()>, Error> {
        self.issue(T::Clunk { fid: self.own(&spot.fid)? }, Bytes::new(), nothing).await
    }

    /// Lets go of an open file, of which nothing is under way.
    pub(super) async fn close(&mut self, fid: OwnedFid) -> Result<Promise<()>, Error> {
        fid.set_parting(Parting::Clunk);
        self.issue(T::Clunk { fid: self.own(&fid)? }, Bytes::new(), nothing).await
    }

    /// The same where that costs no round trip; else the spot is merely dropped. What the server says to it does not matter.
    pub(super) async fn let_go(&mut self, spot: Spot) -> Result<(), Error> {
        if self.client.version().groups { self.clunk(spot).await.map(drop) } else { Ok(()) }
    }

    /// Sends what was issued so far, if it was not yet.
    pub fn send(&self) {
        self.client.handle().send();
    }

    /// Gives up what is unanswered, as dropping does: what the server has begun it finishes or undoes, the rest it never
    /// begins. Promises that are not taken fail with `ECANCELED`.
    pub fn abort(self) {}

    /// The number of a fid, if it is one of the chain's connection.
    fn own(&self, fid: &OwnedFid) -> Result<Fid, Error> {
        if fid.is_of(self.client.handle()) { Ok(fid.fid()) } else { Err(Errno::EINVAL.into()) }
    }

    /// `read` makes of the reply what was promised.
    async fn issue<B>(
        &mut self,
        request: T<'_>,
        payload: Bytes,
        read: fn(Reply) -> Result<B, Error>,
    ) -> Result<Promise<B>, Error> {
        let handle = self.client.handle();
        let room = match self.rooms.as_mut().and_then(Rooms::take) {
            Some(room) => room,
            None => handle.room().await?,
        };
        let place = Place::Chained(self.replies.clone(), self.last.or(self.lead));
        // Replies that were taken since the chain began are causes too.
        let cause = self.client.lane.depth();
        let waiting = match (handle.queue_as(room, &request, payload, cause, &place), self.last) {
            // The walk may have failed already. That is told where the reply is taken, as when it fails later.
            (Err(error), Some(last)) if error.errno() == Errno::EBADF => Waiting::failed(handle, last, error),
            (waiting, _) => {
                let waiting = waiting?;
                self.last = Some(waiting.call());
                waiting
            }
        };
        Ok(Promise { waiting, lane: self.client.lane.clone(), read, against: None })
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        if let Some(last) = self.last {
            self.client.handle().give_up(last);
        }
    }
}

fn nothing(_: Reply) -> Result<(), Error> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ninefold_proto::dialect::Version;

    use super::super::client::Attach;
    use super::super::options::Options;
    use super::*;
    use crate::server::{Server, StreamLimits};
    use crate::transport::{Listener, Peer, memory};
    use crate::tree::hostfs::HostFs;
    use crate::tree::ramfs::RamFs;

    /// Only a failing test waits so long.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_number_of_a_fid_is_nobody_elses_when_its_walk_fails_before_the_fid_has_an_owner() {
        for version in [Version { dialect: Dialect::Plan9, groups: true, streams: false }, Dialect::Plan9.into()] {
            let server = Server::builder().export("", Arc::new(RamFs::new()), false).build();
            let (ours, theirs) = memory::pair(65_536);
            tokio::spawn(server.serve(theirs, Peer::Stdio));
            let attach = Attach { dialect: Some(version), ..Attach::default() };
            let client = Client::over(ours, &attach, Options::default()).await.unwrap();
            let (handle, mut chain) = (client.handle().clone(), client.chain());
            let root = client.root.fid.fid();
            let (new, walked) = chain.begin_walk(&handle, root, &[b"none"]).await.unwrap();
            assert_eq!(walked.take().await.unwrap_err().errno(), Errno::ENOENT);
            let other = handle.new_fid().unwrap();
            assert_ne!(other.fid(), new.fid());
            let owned = OwnedFid::made(handle.clone(), new.fid());
            new.named();
            drop((owned, other));
            assert_eq!(client.held(), (1, 0));
        }
    }

    #[tokio::test]
    async fn a_stream_of_whose_reply_nobody_wants_to_know_is_ended_while_its_chain_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "content").unwrap();
        // No token is over before the test is.
        let limits = StreamLimits { token: 10 * PATIENCE, ..StreamLimits::default() };
        let host = Arc::new(HostFs::open(dir.path()).unwrap());
        let server = Server::builder().export("", host, false).streams(limits).build();
        let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address().unwrap();
        let serving = server.clone();
        tokio::spawn(async move {
            let (stream, peer) = listener.accept().await;
            serving.serve(stream, peer).await
        });
        let client = Client::connect(&address, Options::default()).await.unwrap();
        assert_eq!(client.version(), Version::N1);
        for (n, is_there) in (1..).zip([false, true]) {
            let mut chain = client.chain();
            let (spot, walked) = chain.walk_root(&[b"f"]).await.unwrap();
            let opened = chain.open(&spot, Mode::READ).await.unwrap();
            let mut granted = Some(chain.stream_from(&spot, (0, 7), 0, None).await.unwrap());
            if !is_there {
                granted = None;
            }
            // Its reply is behind the stream's.
            assert_eq!(chain.stat(&spot).await.unwrap().take().await.unwrap().size, 7);
            assert_eq!(server.stream_counts().opened, n);
            assert!(!is_there || server.streams() == 1);
            drop(granted);
            let ended = async {
                while server.streams() > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(PATIENCE, ended).await.expect("no stream");
            walked.take().await.unwrap();
            opened.take().await.unwrap();
            assert_eq!(chain.stat(&spot).await.unwrap().take().await.unwrap().size, 7);
        }
    }
}
