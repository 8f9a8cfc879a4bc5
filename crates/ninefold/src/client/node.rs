//! A file that was walked to: its fid, and the operations on it, alike in every dialect.

use futures_util::future::join;
use ninefold_proto::attr::{SetAttr, SetTime, Statfs, Time, getattr, setattr};
use ninefold_proto::client::Parting;
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{Mask, Names, Octal, Perm, StatBytes};
use ninefold_proto::open::{Access, lflags};
use ninefold_proto::stat::{Stat, dm, omode};
use ninefold_proto::types::{MAXWELEM, Name};
use ninefold_proto::wire::HEADER;
use ninefold_proto::{Dialect, Errno, Fid, Qid, R, T};

use super::client::Client;
use super::connection::Reply;
use super::error::{Error, Suspicion};
use super::fid::OwnedFid;
use super::file::File;
use super::metadata::{FileType, Metadata, link_target_of};
use super::nameop::{Base, Stat as StatOp};
use super::resolve::Follow;

/// How to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    pub access: Access,
    /// Cut the file to nothing.
    pub truncate: bool,
    /// Write at the end, wherever that is by then; .u and .L.
    pub append: bool,
    /// [`File::write_at`] does not wait for its replies: OBEHIND (S5, "Write behind"). See [`File::write_behind`].
    pub behind: bool,
    /// The file's bytes are bytes in a file whatever its qid says, as the flag -C of a mount: see [`File::is_ordered`].
    pub cache: bool,
}

impl Mode {
    pub const READ: Mode = Mode { access: Access::Read, truncate: false, append: false, behind: false, cache: false };
    pub const WRITE: Mode = Mode { access: Access::Write, ..Mode::READ };
    pub const READ_WRITE: Mode = Mode { access: Access::ReadWrite, ..Mode::READ };
    /// For writing, with nothing left of what was there.
    pub const REPLACE: Mode = Mode { truncate: true, ..Mode::WRITE };
    /// For writing at the end.
    pub const APPEND: Mode = Mode { append: true, ..Mode::WRITE };

    pub(super) fn byte(self, dialect: Dialect) -> Result<u8, Error> {
        let access = match self.access {
            Access::Read => omode::READ,
            Access::Write => omode::WRITE,
            Access::ReadWrite => omode::RDWR,
            Access::Exec => omode::EXEC,
        };
        let append = match (self.append, dialect) {
            (false, _) => 0,
            (true, Dialect::Plan9) => return Err(Error::Unsupported { what: "open a file to append", dialect }),
            (true, _) => omode::APPEND,
        };
        Ok(access | append | if self.truncate { omode::TRUNC } else { 0 })
    }

    pub(super) fn lflags(self) -> u32 {
        let access = match self.access {
            Access::Read | Access::Exec => 0,
            Access::Write => lflags::WRONLY,
            Access::ReadWrite => lflags::RDWR,
        };
        let truncate = if self.truncate { lflags::TRUNC } else { 0 };
        access | lflags::LARGEFILE | truncate | if self.append { lflags::APPEND } else { 0 }
    }

    /// For a file that must not exist.
    pub(super) fn lflags_new(self) -> u32 {
        self.lflags() | lflags::CREAT | lflags::EXCL
    }
}

/// `size[4] Twalk tag[2] fid[4] newfid[4] nwname[2]`.
const WALK_HEADER: usize = HEADER + 10;

/// A file that was walked to and is not open. Its fid is clunked when it is dropped.
#[derive(Debug)]
pub struct Node {
    pub(super) client: Client,
    pub(super) fid: OwnedFid,
    qid: Qid,
}

/// How far a walk came.
pub(crate) enum Walked {
    Whole(Node),
    /// The qids of the names that were walked, at least one and not all; no fid was made.
    Part(Vec<Qid>),
}

/// Where a walk begins.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    client: &'a Client,
    fid: Fid,
    qid: Qid,
}

/// The reply to something else; the state machine lets none through.
pub(super) fn unexpected() -> Error {
    Errno::EPROTO.into()
}

impl Client {
    /// The root, once it is attached to.
    pub(super) async fn start(&self) -> Result<Start<'_>, Error> {
        let qid = self.attached().await?.qid;
        Ok(Start { client: self, fid: self.root.fid.fid(), qid })
    }

    /// The first of `names` that go into one walk: at most 16, and no more than fit a message.
    pub(super) fn fitting<'n>(&self, names: &'n [&'n [u8]]) -> &'n [&'n [u8]] {
        let mut left = self.msize() as usize - WALK_HEADER;
        let fits = |name: &&&[u8]| match left.checked_sub(2 + name.len()) {
            Some(less) => {
                left = less;
                true
            }
            None => false,
        };
        &names[..names.iter().take(MAXWELEM).take_while(fits).count()]
    }

    /// The root of the tree.
    pub async fn root(&self) -> Result<Node, Error> {
        self.start().await?.walk(&[]).await
    }
}

impl Start<'_> {
    /// See [`Client::fitting`].
    pub fn fitting<'n>(&self, names: &'n [&'n [u8]]) -> &'n [&'n [u8]] {
        self.client.fitting(names)
    }

    /// One walk, of names that [`Start::fitting`] gave.
    pub async fn walk_some(&self, names: &[&[u8]]) -> Result<Walked, Error> {
        let mut scratch = Vec::new();
        let wnames = Names::encode(names.iter().copied(), &mut scratch);
        let reply = self.client.call_making(|newfid| T::Walk { fid: self.fid, newfid, wnames }).await?;
        let qids: Vec<Qid> = match reply.message()? {
            R::Walk { wqids } => wqids.iter().collect(),
            _ => return Err(unexpected()),
        };
        let qid = qids.last().copied().unwrap_or(self.qid);
        Ok(match reply.made {
            Some(fid) => Walked::Whole(Node { client: self.client.clone(), fid, qid }),
            None => Walked::Part(qids),
        })
    }

    /// A walk of any length; through no link. The error is that of the first name that cannot be walked.
    pub async fn walk(&self, names: &[&[u8]]) -> Result<Node, Error> {
        // No names at all are one walk too: a second fid for the same file.
        let (mut left, mut at): (_, Option<Node>) = (names, None);
        loop {
            let here = at.as_ref().map_or(*self, Node::start);
            let now = here.fitting(left);
            match here.walk_some(now).await? {
                Walked::Whole(node) => at = Some(node),
                Walked::Part(qids) => return Err(here.refusal(now, qids.len()).await),
            }
            left = &left[now.len()..];
            match at {
                Some(node) if left.is_empty() => return Ok(node),
                _ => {}
            }
        }
    }

    /// Why a walk of `names` ended after `count` of them: it tells where and not why, so the next name alone is asked for.
    async fn refusal(&self, names: &[&[u8]], count: usize) -> Error {
        let next = async {
            match self.walk_some(&names[..count]).await? {
                Walked::Whole(node) => node.start().walk_some(&names[count..=count]).await.map(drop),
                Walked::Part(_) => Ok(()),
            }
        };
        // It is there by now, and was not.
        next.await.err().unwrap_or_else(|| Errno::ENOENT.into())
    }
}

impl Node {
    pub(super) fn new(client: Client, fid: OwnedFid, qid: Qid) -> Node {
        Node { client, fid, qid }
    }

    pub(crate) fn start(&self) -> Start<'_> {
        self.start_with(&self.client)
    }

    /// For requests that count as caused by `client`'s replies.
    pub(crate) fn start_with<'a>(&'a self, client: &'a Client) -> Start<'a> {
        Start { client, fid: self.fid.fid(), qid: self.qid }
    }

    pub fn qid(&self) -> Qid {
        self.qid
    }

    /// The client that it was walked to with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The same file, with requests that count as caused by `client`'s replies; see [`Client::fork`].
    pub fn with_client(mut self, client: &Client) -> Node {
        self.client = client.clone();
        self
    }

    /// A file below this directory, through no symbolic link. The error is that of the first name that cannot be walked.
    pub async fn walk(&self, names: &[&[u8]]) -> Result<Node, Error> {
        self.start().walk(names).await
    }

    /// The same, by requests that count as caused by `client`'s replies, as do those of the node that it gives: for
    /// walks side by side; see [`Client::fork`].
    pub async fn walk_as(&self, client: &Client, names: &[&[u8]]) -> Result<Node, Error> {
        self.start_with(client).walk(names).await
    }

    /// The file's attributes.
    pub async fn metadata(&self) -> Result<Metadata, Error> {
        metadata(&self.client, self.fid.fid()).await
    }

    /// The attributes of what is called `name` in this directory; those of a link itself. For those of all entries:
    /// [`Node::list`].
    pub async fn metadata_of(&self, name: &[u8]) -> Result<Metadata, Error> {
        Name::new(name)?;
        Base::at(self, &self.client).nameop(vec![name.to_vec()], &StatOp(Follow::NotLast)).await
    }

    /// Changes attributes; what is `None` stays. 9P2000 and .u change all of it or nothing. Set-user-id, set-group-id and
    /// sticky bits, an owner by number: not in 9P2000.
    pub async fn set(&self, change: &SetAttr) -> Result<(), Error> {
        set(&self.client, self.fid.fid(), change).await
    }

    /// Cuts or extends a file to `size` bytes.
    pub async fn truncate(&self, size: u64) -> Result<(), Error> {
        self.set(&SetAttr { size: Some(size), ..SetAttr::default() }).await
    }

    /// Opens it: the fid is the file's from now on.
    pub async fn open(self, mode: Mode) -> Result<File, Error> {
        let fid = self.fid.fid();
        let request = match self.client.dialect() {
            Dialect::Linux => T::Lopen { fid, flags: Octal(mode.lflags()) },
            dialect => T::Open { fid, mode: mode.byte(dialect)? },
        };
        let (qid, iounit) = match self.client.call(request).await?.message()? {
            R::Open { qid, iounit } | R::Lopen { qid, iounit } => (qid, iounit),
            _ => return Err(unexpected()),
        };
        if qid.is_dir() != self.qid.is_dir() {
            return Err(Suspicion::Type.into());
        }
        Ok(File::new(self.client, self.fid, (qid, iounit), mode, false))
    }

    /// The same, and asks what it is beside that, in the same round trip: a qid tells fifos and sockets from plain files in no dialect. `None`
    /// where the server refuses that, or what it says is not to be believed. A size is that before or after the open, which may cut it.
    pub async fn open_and_look(self, mode: Mode) -> Result<(File, Option<Metadata>), Error> {
        let beside = self.client.fork();
        // The look is sent first, as in a group.
        let (metadata, opened) = join(metadata(&beside, self.fid.fid()), self.open(mode)).await;
        let file = opened?;
        file.client.join(&beside);
        Ok((file, told(metadata)?))
    }

    /// Makes a plain file that does not exist in this directory and opens it: the fid is the new file's from now on.
    /// An existing name is EEXIST. `perm`: 0 to 0o777 (.u and .L: 0o7777; in 9P2000 more is refused), cut down by the server
    /// as it sees fit.
    pub async fn create(self, name: &[u8], mode: Mode, perm: u32) -> Result<File, Error> {
        Name::new(name)?;
        if self.client.version().is_ix() && is_there(self.walk(&[name]).await)? {
            return Err(Errno::EEXIST.into());
        }
        let fid = self.fid.fid();
        let request = new_file(self.client.version(), fid, name, mode, perm)?;
        let (qid, iounit) = match self.client.call(request).await?.message()? {
            R::Create { qid, iounit } | R::Lcreate { qid, iounit } => (qid, iounit),
            _ => return Err(unexpected()),
        };
        if qid.is_dir() {
            return Err(Suspicion::Type.into());
        }
        Ok(File::new(self.client, self.fid, (qid, iounit), mode, true))
    }

    /// Removes the file, or the empty directory. The fid is gone whatever comes of it (remove(5)).
    pub async fn remove(self) -> Result<(), Error> {
        self.fid.part(Parting::Remove, &self.client.lane).await
    }

    /// Clunks the fid and waits for the result.
    pub async fn clunk(self) -> Result<(), Error> {
        self.fid.part(Parting::Clunk, &self.client.lane).await
    }

    /// The target of a symbolic link.
    pub async fn read_link(&self) -> Result<Vec<u8>, Error> {
        let target = match self.client.dialect() {
            Dialect::Linux => match self.client.call(T::Readlink { fid: self.fid.fid() }).await?.message()? {
                R::Readlink { target } => target.to_vec(),
                _ => return Err(unexpected()),
            },
            _ => match self.metadata().await? {
                Metadata { link_target: Some(target), .. } => target,
                // What came is none.
                Metadata { kind: FileType::Symlink, .. } => return Err(Suspicion::LinkTarget.into()),
                _ => return Err(Errno::EINVAL.into()),
            },
        };
        link_target_of(target)
    }

    /// What statfs(2) tells; .L only.
    pub async fn statfs(&self) -> Result<Statfs, Error> {
        self.only_linux("tell of the file system")?;
        match self.client.call(T::Statfs { fid: self.fid.fid() }).await?.message()? {
            R::Statfs { fstype, bsize, blocks, bfree, bavail, files, ffree, fsid, namelen } => {
                Ok(Statfs { fstype: fstype.0, bsize, blocks, bfree, bavail, files, ffree, fsid: fsid.0, namelen })
            }
            _ => Err(unexpected()),
        }
    }

    pub(super) fn only_linux(&self, what: &'static str) -> Result<(), Error> {
        match self.client.dialect() {
            Dialect::Linux => Ok(()),
            dialect => Err(Error::Unsupported { what, dialect }),
        }
    }
}

/// What came of the walk to a name that is to be made: under `.ix` every Tcreate comes behind one, for there it opens and cuts
/// a file that is there, and not every server knows the [bit](exclusive) that forbids it.
pub(super) fn is_there<T>(walked: Result<T, Error>) -> Result<bool, Error> {
    match walked {
        Ok(_) => Ok(true),
        Err(Error::Refused(e)) if e.errno == Errno::ENOENT || is_in_other_words(&e) => Ok(false),
        // Whether it is there nobody knows: too many fids, no right to search, a disk that fails.
        Err(e) => Err(e),
    }
}

/// Whether the server says something that no errno stands for: 9P2000 does not fix the text for a name that is not there.
fn is_in_other_words(e: &ninefold_proto::Error) -> bool {
    let text = e.text().to_ascii_lowercase();
    e.errno == Errno::EIO && !text.contains("i/o error") && !text.contains("input/output error")
}

/// The request that makes a plain file which does not exist.
pub(super) fn new_file(version: Version, fid: Fid, name: &[u8], mode: Mode, perm: u32) -> Result<T<'_>, Error> {
    Ok(match version.dialect {
        Dialect::Linux => T::Lcreate { fid, name, flags: Octal(mode.lflags_new()), mode: Octal(perm), gid: own_gid() },
        dialect => {
            let (perm, mode) = (Perm(plan9_perm(perm, dialect)?), mode.byte(dialect)? | exclusive(version));
            T::Create { fid, name, perm, mode, extension: b"" }
        }
    })
}

/// The bit of Tcreate's mode that makes an existing file an error where it is opened and cut otherwise, under `.ix`, by our
/// server (protocol.md, "Groups"): against who makes the file at the same time. Elsewhere it is always an error.
pub(super) fn exclusive(version: Version) -> u8 {
    if version.is_ix() { omode::EXCL } else { 0 }
}

/// The group that new files are to have, as Linux's client asks for it.
pub(super) fn own_gid() -> u32 {
    rustix::process::getgid().as_raw()
}

pub(super) async fn metadata(client: &Client, fid: Fid) -> Result<Metadata, Error> {
    match client.dialect() {
        Dialect::Linux => metadata_of_reply(&client.call(T::Getattr { fid, request_mask: Mask(getattr::ALL) }).await?),
        _ => metadata_of_reply(&client.call(T::Stat { fid }).await?),
    }
}

/// Attributes that spare something, and no more: what may be read is read where they are refused, or are nonsense.
pub(super) fn told(metadata: Result<Metadata, Error>) -> Result<Option<Metadata>, Error> {
    match metadata {
        Ok(metadata) => Ok(Some(metadata)),
        Err(Error::Refused(_) | Error::Suspect(_)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// What an Rgetattr or Rstat tells.
pub(super) fn metadata_of_reply(reply: &Reply) -> Result<Metadata, Error> {
    match reply.message()? {
        R::Stat { stat } => {
            let stat = Stat::decode(stat.0, reply.version.dialect).map_err(|_| unexpected())?;
            Metadata::from_stat(&stat, reply.version.dialect)
        }
        told @ R::Getattr { .. } => Metadata::from_getattr(&told),
        _ => Err(unexpected()),
    }
}

pub(super) async fn set(client: &Client, fid: Fid, change: &SetAttr) -> Result<(), Error> {
    match client.dialect() {
        Dialect::Linux => client.call(setattr_request(fid, change)).await.map(drop),
        dialect => {
            let mut stat = Stat::UNTOUCHED;
            if let Some(mode) = change.mode {
                let perm = plan9_perm(mode, dialect)?;
                // The mode word is set whole: what is no permission stays as it is.
                let old = metadata(client, fid).await?;
                stat.mode = old.plan9_mode.unwrap_or_default() & !plan9_perms(dialect) | perm;
            }
            if change.uid.is_some() || change.gid.is_some() {
                if dialect == Dialect::Plan9 {
                    return Err(Error::Unsupported { what: "change an owner by number", dialect });
                }
                stat.n_uid = change.uid.unwrap_or(u32::MAX);
                stat.n_gid = change.gid.unwrap_or(u32::MAX);
            }
            stat.length = change.size.unwrap_or(u64::MAX);
            stat.atime = change.atime.map_or(Ok(u32::MAX), |time| seconds(time, dialect))?;
            stat.mtime = change.mtime.map_or(Ok(u32::MAX), |time| seconds(time, dialect))?;
            wstat(client, fid, &stat).await
        }
    }
}

pub(super) async fn wstat(client: &Client, fid: Fid, stat: &Stat<'_>) -> Result<(), Error> {
    let mut bytes = Vec::new();
    stat.encode(client.dialect(), &mut bytes);
    client.call(T::Wstat { fid, stat: StatBytes(&bytes) }).await.map(drop)
}

pub(super) fn setattr_request(fid: Fid, change: &SetAttr) -> T<'static> {
    let mut valid = 0;
    let mut bit = |set: bool, bit: u32| valid |= if set { bit } else { 0 };
    bit(change.mode.is_some(), setattr::MODE);
    bit(change.uid.is_some(), setattr::UID);
    bit(change.gid.is_some(), setattr::GID);
    bit(change.size.is_some(), setattr::SIZE);
    bit(change.ctime, setattr::CTIME);
    let mut time = |time: Option<SetTime>, any: u32, given: u32| match time {
        None => Time::default(),
        Some(SetTime::Now) => {
            bit(true, any);
            Time::default()
        }
        Some(SetTime::To(time)) => {
            bit(true, any | given);
            time
        }
    };
    let atime = time(change.atime, setattr::ATIME, setattr::ATIME_SET);
    let mtime = time(change.mtime, setattr::MTIME, setattr::MTIME_SET);
    T::Setattr {
        fid,
        valid: Octal(valid),
        mode: Octal(change.mode.unwrap_or_default()),
        uid: change.uid.unwrap_or_default(),
        gid: change.gid.unwrap_or_default(),
        size: change.size.unwrap_or_default(),
        atime_sec: atime.sec.cast_unsigned(),
        atime_nsec: atime.nsec.into(),
        mtime_sec: mtime.sec.cast_unsigned(),
        mtime_nsec: mtime.nsec.into(),
    }
}

/// A time as stat(5) has it; "now" is this machine's, for the dialect has no word for the server's.
fn seconds(time: SetTime, dialect: Dialect) -> Result<u32, Error> {
    let sec = match time {
        SetTime::To(time) => time.sec,
        SetTime::Now => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(0, |now| now.as_secs().cast_signed())
        }
    };
    // All ones mean "leave it".
    u32::try_from(sec).ok().filter(|&sec| sec != u32::MAX).ok_or(Error::TooLarge("the time", dialect))
}

/// Bits of a mode word that are permissions, which a change of mode sets; what else it has stays.
fn plan9_perms(dialect: Dialect) -> u32 {
    let special = if dialect == Dialect::Unix { dm::SETUID | dm::SETGID | dm::SETVTX } else { 0 };
    0o777 | special
}

/// Permissions as stat(5) has them, with .u's bits for set-user-id, set-group-id and sticky, of which 9P2000 has none.
pub(super) fn plan9_perm(perm: u32, dialect: Dialect) -> Result<u32, Error> {
    if dialect == Dialect::Plan9 && perm & 0o7000 != 0 {
        return Err(Error::Unsupported { what: "set the set-ID and sticky bits", dialect });
    }
    let special = [(0o4000, dm::SETUID), (0o2000, dm::SETGID), (0o1000, dm::SETVTX)];
    let extra = special.into_iter().filter(|(bit, _)| perm & bit != 0);
    Ok(extra.fold(perm & 0o777, |perm, (_, bit)| perm | bit))
}

/// What kind of file a mode word of 9P2000 or .u asks for.
pub(super) fn plan9_kind(kind: FileType) -> u32 {
    match kind {
        FileType::File => 0,
        FileType::Dir => dm::DIR,
        FileType::Symlink => dm::SYMLINK,
        FileType::CharDevice | FileType::BlockDevice => dm::DEVICE,
        FileType::Fifo => dm::NAMEDPIPE,
        FileType::Socket => dm::SOCKET,
    }
}
