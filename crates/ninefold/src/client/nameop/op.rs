//! What is done to a file that a path names: the access modes of S5's `nameop`.
//!
//! A [`NameOp`] is issued behind a walk whose result is not known, and taken when that came to the file; or done to a file that
//! was walked to before. Either way it does the same. Those on a name in a directory are given the directory's path.

use bytes::Bytes;
use futures_util::future::join;
use ninefold_proto::attr::SetAttr;
use ninefold_proto::dialect::Version;
use ninefold_proto::n1::stream;
use ninefold_proto::wire::IO_HEADER;
use ninefold_proto::{Errno, Qid};

use super::super::chain::{Chain, Opened, Promise, Spot};
use super::super::error::{Error, Suspicion};
use super::super::file::File;
use super::super::metadata::{FileType, Metadata};
use super::super::node::{Mode, Node, metadata, told};
use super::super::resolve::Follow;
use super::super::stream::{Grant, Granted, Grants, Saying};

/// See the [module](self).
pub(crate) trait NameOp: Sync {
    /// What was issued, and is taken when the walk came to the file.
    type Promised: Send;
    type Output: Send;

    /// What is done about a link at the end of the path.
    fn follow(&self) -> Follow;

    /// Whether a server that has groups and speaks `version` can do it in one.
    fn goes_in_group(&self, _version: Version) -> bool {
        true
    }

    /// Whether it changes anything: then it is not tried at several files at a time.
    fn changes(&self) -> bool {
        true
    }

    /// Whether the file may act on it though it changes nothing, as on an open: then it is asked of the one that is meant.
    fn is_acted_on(&self) -> bool {
        false
    }

    /// Issues it. The spot is let go of, but by what keeps the file.
    fn issue(&self, chain: &mut Chain, spot: Spot) -> impl Future<Output = Result<Self::Promised, Error>> + Send;

    /// Takes what was issued; `qid` is the file's.
    fn take(&self, promised: Self::Promised, qid: Qid) -> impl Future<Output = Result<Self::Output, Error>> + Send;

    /// Does it to a file that was walked to.
    fn step(&self, node: Node) -> impl Future<Output = Result<Self::Output, Error>> + Send;

    /// The same file where what it lies in was mounted with -C ([`Mode::cache`]).
    fn cached(output: Self::Output) -> Self::Output {
        output
    }
}

/// A file that is being read.
#[derive(Debug)]
pub struct Begun {
    pub file: File,
    /// Its beginning; nothing at its end only. `None`: nothing was read, for it is longer than it was to be.
    pub data: Option<Bytes>,
    /// As it was when the reading began. `None` where the server refused it, or what it says of the file is not to be believed.
    pub metadata: Option<Metadata>,
}

/// What is known of a file, and where it leads.
#[derive(Debug)]
pub struct Looked {
    pub metadata: Metadata,
    /// Of a symbolic link only.
    pub target: Option<Result<Vec<u8>, Error>>,
}

/// Attributes.
pub(crate) struct Stat(pub Follow);

impl NameOp for Stat {
    type Promised = Promise<Metadata>;
    type Output = Metadata;

    fn follow(&self) -> Follow {
        self.0
    }

    fn changes(&self) -> bool {
        false
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Promise<Metadata>, Error> {
        let metadata = chain.stat(&spot).await?;
        chain.let_go(spot).await?;
        Ok(metadata)
    }

    async fn take(&self, promised: Promise<Metadata>, _: Qid) -> Result<Metadata, Error> {
        promised.take().await
    }

    async fn step(&self, node: Node) -> Result<Metadata, Error> {
        node.metadata().await
    }
}

/// Attributes, and the target of a link.
pub(crate) struct Look(pub Follow);

impl NameOp for Look {
    type Promised = (Promise<Metadata>, Promise<Vec<u8>>);
    type Output = Looked;

    fn follow(&self) -> Follow {
        self.0
    }

    fn goes_in_group(&self, version: Version) -> bool {
        version.is_n1()
    }

    fn changes(&self) -> bool {
        false
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Self::Promised, Error> {
        let metadata = chain.stat(&spot).await?;
        // Of anything else it is refused, and nothing is lost.
        let target = chain.read_link(&spot).await?;
        chain.let_go(spot).await?;
        Ok((metadata, target))
    }

    async fn take(&self, (metadata, target): Self::Promised, _: Qid) -> Result<Looked, Error> {
        let metadata = metadata.take().await?;
        let target = if metadata.kind == FileType::Symlink { Some(target.take().await) } else { None };
        Ok(Looked { metadata, target })
    }

    async fn step(&self, node: Node) -> Result<Looked, Error> {
        let metadata = node.metadata().await?;
        let target = match (metadata.kind, &metadata.link_target) {
            (FileType::Symlink, Some(target)) => Some(Ok(target.clone())),
            (FileType::Symlink, None) => Some(node.read_link().await),
            _ => None,
        };
        Ok(Looked { metadata, target })
    }
}

/// The target of a link.
pub(crate) struct ReadLink;

impl NameOp for ReadLink {
    type Promised = Promise<Vec<u8>>;
    type Output = Vec<u8>;

    fn follow(&self) -> Follow {
        Follow::NotLast
    }

    fn goes_in_group(&self, version: Version) -> bool {
        version.is_n1()
    }

    fn changes(&self) -> bool {
        false
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Promise<Vec<u8>>, Error> {
        let target = chain.read_link(&spot).await?;
        chain.let_go(spot).await?;
        Ok(target)
    }

    async fn take(&self, promised: Promise<Vec<u8>>, _: Qid) -> Result<Vec<u8>, Error> {
        promised.take().await
    }

    async fn step(&self, node: Node) -> Result<Vec<u8>, Error> {
        node.read_link().await
    }
}

/// Attributes changed.
pub(crate) struct Set<'a> {
    pub change: &'a SetAttr,
    pub follow: Follow,
}

impl NameOp for Set<'_> {
    type Promised = Promise<()>;
    type Output = ();

    fn follow(&self) -> Follow {
        self.follow
    }

    // Elsewhere a change of the mode needs the old one, and others a look at the dialect. A link that is to be followed would be
    // changed itself before anybody knows that the walk ended there, but for what no link takes: a mode or a size is refused, and
    // all that is asked with it.
    fn goes_in_group(&self, version: Version) -> bool {
        let spares_links = self.change.mode.is_some() || self.change.size.is_some();
        version.is_n1() && (self.follow == Follow::NotLast || spares_links)
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Promise<()>, Error> {
        let set = chain.set(&spot, self.change).await?;
        chain.let_go(spot).await?;
        Ok(set)
    }

    async fn take(&self, promised: Promise<()>, _: Qid) -> Result<(), Error> {
        promised.take().await
    }

    async fn step(&self, node: Node) -> Result<(), Error> {
        node.set(self.change).await
    }
}

/// What the user may do with the file; see [`Node::access`].
pub(crate) struct Access(pub u32);

impl NameOp for Access {
    type Promised = Promise<u32>;
    type Output = u32;

    fn follow(&self) -> Follow {
        Follow::All
    }

    fn goes_in_group(&self, version: Version) -> bool {
        version.is_n1()
    }

    fn changes(&self) -> bool {
        false
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Promise<u32>, Error> {
        let access = chain.access(&spot, self.0).await?;
        chain.let_go(spot).await?;
        Ok(access)
    }

    async fn take(&self, promised: Promise<u32>, _: Qid) -> Result<u32, Error> {
        promised.take().await
    }

    async fn step(&self, node: Node) -> Result<u32, Error> {
        node.access(self.0).await
    }
}

/// A file opened.
pub(crate) struct Open(pub Mode);

impl NameOp for Open {
    type Promised = (Spot, Promise<Opened>);
    type Output = File;

    fn follow(&self) -> Follow {
        Follow::All
    }

    fn changes(&self) -> bool {
        self.0 != Mode::READ
    }

    // A device makes something of it, or gives away what it tells once.
    fn is_acted_on(&self) -> bool {
        true
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Self::Promised, Error> {
        let opened = chain.open(&spot, self.0).await?;
        Ok((spot, opened))
    }

    async fn take(&self, (spot, opened): Self::Promised, _: Qid) -> Result<File, Error> {
        let opened = opened.take().await?;
        spot.into_file(opened, self.0)
    }

    async fn step(&self, node: Node) -> Result<File, Error> {
        node.open(self.0).await
    }

    fn cached(output: File) -> File {
        output.cached()
    }
}

/// A plain file made in a directory, where there is nothing of that name, and opened.
pub(crate) struct Create<'a> {
    pub name: &'a [u8],
    pub mode: Mode,
    pub perm: u32,
}

impl NameOp for Create<'_> {
    type Promised = (Spot, Promise<Opened>);
    type Output = File;

    fn follow(&self) -> Follow {
        Follow::All
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Self::Promised, Error> {
        let opened = chain.create(&spot, self.name, self.mode, self.perm).await?;
        Ok((spot, opened))
    }

    async fn take(&self, (spot, opened): Self::Promised, _: Qid) -> Result<File, Error> {
        let opened = opened.take().await?;
        spot.into_file(opened, self.mode)
    }

    async fn step(&self, node: Node) -> Result<File, Error> {
        node.create(self.name, self.mode, self.perm).await
    }

    fn cached(output: File) -> File {
        output.cached()
    }
}

/// A plain file of a directory that holds `data` and nothing else, made or replaced in place.
pub(crate) struct Put<'a> {
    pub name: &'a [u8],
    pub data: Bytes,
    pub perm: u32,
}

impl Put<'_> {
    /// Messages of data in a group: a chain may have 64 unanswered, its walk among them.
    const WRITES_MAX: usize = 32;

    /// Whether it is one group at a server with this msize.
    pub fn fits(&self, msize: u32) -> bool {
        self.data.len() <= (msize.saturating_sub(IO_HEADER) as usize).saturating_mul(Put::WRITES_MAX)
    }
}

impl NameOp for Put<'_> {
    /// The guard, each write with the bytes that it has to take, and the end of the file.
    type Promised = (Promise<()>, Promise<Opened>, Vec<(Promise<u32>, usize)>, Promise<()>);
    type Output = ();

    fn follow(&self) -> Follow {
        Follow::All
    }

    fn goes_in_group(&self, version: Version) -> bool {
        version.is_n1()
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Self::Promised, Error> {
        let piece = spot.write_max();
        // What fails is the end of it: no write goes behind a gap. The making and the clunk are two more.
        let members = u16::try_from(2 + self.data.len().div_ceil(piece)).map_err(|_| Errno::EFBIG)?;
        let guard = chain.all_or_stop(members).await?;
        let opened = chain.replace(&spot, self.name, self.perm).await?;
        let (mut left, mut offset, mut writes) = (self.data.clone(), 0, Vec::new());
        while !left.is_empty() {
            let data = left.split_to(piece.min(left.len()));
            let length = data.len();
            writes.push((chain.write(&spot, offset, data).await?, length));
            offset += length as u64;
        }
        Ok((guard, opened, writes, chain.clunk(spot).await?))
    }

    async fn take(&self, (guard, opened, writes, clunked): Self::Promised, _: Qid) -> Result<(), Error> {
        guard.take().await?;
        opened.take().await?;
        for (write, length) in writes {
            // A disk that becomes full takes a part, and says why at the next write, which there is none of.
            if write.take().await? as usize != length {
                return Err(Errno::EIO.into());
            }
        }
        clunked.take().await
    }

    async fn step(&self, node: Node) -> Result<(), Error> {
        let file = match node.walk(&[self.name]).await {
            Ok(there) => there.open(Mode::REPLACE).await,
            Err(e) if e.is_not_found() => node.create(self.name, Mode::WRITE, self.perm).await,
            Err(e) => Err(e),
        };
        write_all(file?, self.data.clone()).await
    }
}

/// Writes `data` to the beginning of a file and closes it.
pub(crate) async fn write_all(file: File, mut data: Bytes) -> Result<(), Error> {
    let mut offset = 0;
    while !data.is_empty() {
        let wrote = file.write_at(offset, data.clone()).await?;
        if wrote == 0 {
            return Err(Suspicion::NoProgress.into());
        }
        offset += u64::from(wrote);
        drop(data.split_to((wrote as usize).min(data.len())));
    }
    file.close().await
}

/// A directory made in a directory.
pub(crate) struct Mkdir<'a> {
    pub name: &'a [u8],
    pub perm: u32,
}

impl NameOp for Mkdir<'_> {
    type Promised = Promise<()>;
    type Output = ();

    fn follow(&self) -> Follow {
        Follow::All
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Promise<()>, Error> {
        let made = chain.mkdir(&spot, self.name, self.perm).await?;
        chain.let_go(spot).await?;
        Ok(made)
    }

    async fn take(&self, promised: Promise<()>, _: Qid) -> Result<(), Error> {
        promised.take().await
    }

    async fn step(&self, node: Node) -> Result<(), Error> {
        node.mkdir(self.name, self.perm).await
    }
}

/// A name of a directory removed: of an empty directory when `dir`, else of anything but a directory.
pub(crate) struct Unlink<'a> {
    pub name: &'a [u8],
    pub dir: bool,
}

impl NameOp for Unlink<'_> {
    type Promised = Promise<()>;
    type Output = ();

    fn follow(&self) -> Follow {
        Follow::All
    }

    fn goes_in_group(&self, version: Version) -> bool {
        version.is_n1()
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Promise<()>, Error> {
        let removed = chain.unlink(&spot, self.name, self.dir).await?;
        chain.let_go(spot).await?;
        Ok(removed)
    }

    async fn take(&self, promised: Promise<()>, _: Qid) -> Result<(), Error> {
        promised.take().await
    }

    async fn step(&self, node: Node) -> Result<(), Error> {
        node.unlink(self.name, self.dir).await
    }
}

/// The file removed, or the empty directory.
pub(crate) struct Remove;

impl NameOp for Remove {
    type Promised = Promise<()>;
    type Output = ();

    fn follow(&self) -> Follow {
        Follow::NotLast
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Promise<()>, Error> {
        chain.remove(spot).await
    }

    async fn take(&self, promised: Promise<()>, _: Qid) -> Result<(), Error> {
        promised.take().await
    }

    async fn step(&self, node: Node) -> Result<(), Error> {
        node.remove().await
    }
}

/// A name of a directory changed to another one there.
pub(crate) struct Rename<'a> {
    pub name: &'a [u8],
    pub new_name: &'a [u8],
}

impl<'a> Rename<'a> {
    /// The same given the path of the file, for `.ix`, whose message names it by itself.
    pub fn of_itself(&self) -> RenameItself<'a> {
        RenameItself { new_name: self.new_name }
    }
}

impl NameOp for Rename<'_> {
    type Promised = Promise<()>;
    type Output = ();

    fn follow(&self) -> Follow {
        Follow::All
    }

    fn goes_in_group(&self, version: Version) -> bool {
        version.is_n1()
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Promise<()>, Error> {
        let renamed = chain.rename_at((&spot, self.name), (&spot, self.new_name), false).await?;
        chain.let_go(spot).await?;
        Ok(renamed)
    }

    async fn take(&self, promised: Promise<()>, _: Qid) -> Result<(), Error> {
        promised.take().await
    }

    async fn step(&self, node: Node) -> Result<(), Error> {
        node.rename(self.name, &node, self.new_name).await
    }
}

/// See [`Rename::of_itself`]. It goes in a group, or not at all.
pub(crate) struct RenameItself<'a> {
    new_name: &'a [u8],
}

impl NameOp for RenameItself<'_> {
    type Promised = Promise<()>;
    type Output = ();

    fn follow(&self) -> Follow {
        Follow::NotLast
    }

    fn goes_in_group(&self, version: Version) -> bool {
        version.is_ix()
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Promise<()>, Error> {
        let renamed = chain.rename_here(&spot, self.new_name).await?;
        chain.let_go(spot).await?;
        Ok(renamed)
    }

    async fn take(&self, promised: Promise<()>, _: Qid) -> Result<(), Error> {
        promised.take().await
    }

    async fn step(&self, _: Node) -> Result<(), Error> {
        Err(Errno::EINVAL.into())
    }
}

/// How a file is begun to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BeginRead {
    /// Bytes of its beginning, at most, and at most what one message holds.
    pub count: u32,
    /// Of a file of more bytes nothing is read, where the server can tell and has streams (.n1): what came first would be in the way of
    /// what is asked for then.
    pub most: u64,
    /// Anything but a plain file is `EINVAL`. Its open is not waited for, as that of a FIFO waits for who writes to it.
    pub plain: bool,
    /// Streams by which a file will be read at most ([`File::ranges`]): over TCP in the open they are asked for at once, and connections opened for
    /// them: one where the way is short, else several. Of several nothing is read of a file of more than [`BeginRead::SHARED`] bytes either. Each stream brings an even share of a
    /// short file that is not read, and the first bytes of a long one. 0: it will not.
    pub streams: usize,
}

/// What was issued to begin to read a file.
pub(crate) struct ReadPromised {
    spot: Spot,
    opened: Promise<Opened>,
    metadata: Promise<Metadata>,
    longer: Option<Promise<()>>,
    read: Promise<Bytes>,
    granted: Vec<(Promise<Grant>, Option<Saying>)>,
    /// Behind all of those.
    again: Option<Promise<Metadata>>,
}

/// Bytes of the shortest and the longest stream that is asked for before anybody knows how long the file is, if it is a long one: what takes a connection six round trips, and what a
/// connection of Linux takes at once at most (4 MiB with the kernel's own records).
const GRANTED: std::ops::RangeInclusive<u64> = 1 << 20..=15 << 18;

/// Bytes of each of so many of them. Together no more than a long file has, and five and more of them hardly fewer, so that few pieces follow.
fn granted_bytes(streams: usize) -> u64 {
    let all = stream::LONG / streams.max(1) as u64;
    (all / stream::LAST_UNIT * stream::LAST_UNIT).clamp(*GRANTED.start(), *GRANTED.end())
}

impl Default for BeginRead {
    /// As much as one message holds, of any file.
    fn default() -> BeginRead {
        BeginRead { count: u32::MAX, most: u64::MAX, plain: false, streams: 0 }
    }
}

impl BeginRead {
    /// A file of more bytes is shared among `streams`. By one connection that has just been made so many take five round trips, and by eight of them two.
    pub const SHARED: u64 = 256 << 10;

    fn takes(&self, metadata: Option<&Metadata>) -> Result<(), Error> {
        let is_other = self.plain && metadata.is_some_and(|metadata| !metadata.is_plain());
        if is_other { Err(Errno::EINVAL.into()) } else { Ok(()) }
    }
}

impl NameOp for BeginRead {
    type Promised = ReadPromised;
    type Output = Begun;

    fn follow(&self) -> Follow {
        Follow::All
    }

    fn changes(&self) -> bool {
        false
    }

    fn is_acted_on(&self) -> bool {
        true
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Self::Promised, Error> {
        // Looked at before it is read: what changes it from then on is seen by who looks again. And before it is opened, which may take long.
        let metadata = chain.stat(&spot).await?;
        let opened = chain.open(&spot, Mode::READ).await?;
        let may_stream = self.most < u64::MAX && chain.may_stream();
        let streams = if may_stream { chain.prepare_streams(self.streams) } else { 0 };
        // One alone brings a short file no sooner than a message, which costs both ends less.
        let most = if streams > 1 { self.most.min(BeginRead::SHARED) } else { self.most };
        let longer = if may_stream {
            // What the guard says to itself, the requests behind it say too.
            drop(chain.unless(2).await?);
            Some(chain.is_longer(&spot, most).await?)
        } else {
            None
        };
        let read = chain.read(&spot, 0, self.count).await?;
        let mut granted = Vec::with_capacity(streams);
        let mut again = None;
        if streams > 0 {
            // None of a file that is read.
            drop(chain.all_or_stop(streams as u16 + 2).await?);
            drop(chain.is_longer(&spot, most).await?);
            let is_ahead = chain.take_say_ahead();
            let shared = stream::SHARED | (streams as u32) << stream::LAST_BIT;
            let flags = stream::MORE | stream::TOLD | stream::COPIED | stream::UNLESS_LONG | shared;
            let bytes = granted_bytes(streams);
            for number in 0..streams as u64 {
                let saying = if is_ahead { Some(Saying::begin(spot.client(), Bytes::new())?) } else { None };
                let token = saying.as_ref().map(|saying| saying.token);
                granted.push((chain.stream_from(&spot, (number * bytes, bytes), flags, token).await?, saying));
            }
            again = Some(chain.stat(&spot).await?);
        }
        Ok(ReadPromised { spot, opened, metadata, longer, read, granted, again })
    }

    async fn take(&self, promised: ReadPromised, qid: Qid) -> Result<Begun, Error> {
        let ReadPromised { spot, opened, metadata, longer, read, granted, again } = promised;
        let (asked, bytes) = (granted.len(), granted_bytes(granted.len()));
        let mut grants = Vec::with_capacity(asked);
        for (number, (grant, saying)) in (0..).zip(granted) {
            // Why it is not is told by who asks for another.
            if let Ok(grant) = grant.take().await {
                let begin = u64::from(number) * bytes;
                grants.push((number, Granted::new(grant.of_or_share((begin, bytes))?, saying)));
            }
        }
        let is_whole = grants.len() == asked;
        let again = match again {
            Some(again) => again.take().await.ok(),
            None => None,
        };
        // Before the open, which may be refused to a directory in other words.
        if qid.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        let metadata = told(metadata.take().await)?;
        // What is told behind its last byte is told from all else by its length alone: so that is as it must be of a file of this size. One that has another by now, or of which
        // nothing is known, is had by others.
        let size = metadata.as_ref().map(|metadata| metadata.size);
        let part = |number: u32| match size? {
            size if size <= stream::LONG => Some(stream::share(size, number, asked as u32)),
            _ => Some((u64::from(number) * bytes, bytes)),
        };
        grants.retain(|(number, granted)| part(*number) == Some((granted.offset, granted.length)));
        let mut grants: Vec<_> = grants.into_iter().map(|(_, granted)| granted).collect();
        for granted in &mut grants {
            // What the server goes by. Should the file have had another length by then, who looks at it when the streams tell that it stays as it is sees that it is
            // not what it was here.
            let copied_from = size.unwrap_or_default().saturating_sub(stream::LONG);
            granted.is_lent = granted.offset + granted.length <= copied_from;
        }
        self.takes(metadata.as_ref())?;
        let opened = opened.take().await?;
        let longer = match longer {
            Some(longer) => Some(longer.take().await),
            None => None,
        };
        let read = read.take().await;
        let data = match longer {
            // ECANCELED: the server knows no such guard, and did neither.
            Some(longer) if longer.as_ref().err().is_none_or(|e| e.errno() == Errno::ECANCELED) => None,
            _ => Some(read?),
        };
        let file = spot.into_file(opened, Mode::READ)?;
        file.grant_all(Grants { streams: grants, looked: again.filter(|_| is_whole).map(Box::new) });
        Ok(Begun { file, data, metadata })
    }

    async fn step(&self, node: Node) -> Result<Begun, Error> {
        if node.qid().is_dir() {
            return Err(Errno::EISDIR.into());
        }
        if self.plain {
            self.takes(told(node.metadata().await)?.as_ref())?;
        }
        let file = node.open(Mode::READ).await?;
        // Together: a small file then takes no round trip more, and a large one is known for what it is.
        let beside = file.client().fork();
        let count = self.count.min(file.read_max());
        let (mut metadata, mut data) = join(metadata(&beside, file.fid.fid()), file.read_at(0, count)).await;
        file.client().join(&beside);
        // In a group the look goes first; here a server may do the two in any order.
        if metadata.as_ref().is_ok_and(|metadata| metadata.qid.version != file.qid().version) {
            metadata = file.metadata().await;
            data = file.read_at(0, count).await;
        }
        Ok(Begun { file, data: Some(data?), metadata: told(metadata)? })
    }

    fn cached(output: Begun) -> Begun {
        Begun { file: output.file.cached(), ..output }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ranges::AT_ONCE;

    #[test]
    fn what_is_asked_for_with_an_open_every_long_file_has() {
        for streams in 2..=AT_ONCE {
            let bytes = granted_bytes(streams);
            assert!(GRANTED.contains(&bytes) && bytes * streams as u64 <= stream::LONG, "{streams}: {bytes}");
            assert!(bytes.is_multiple_of(stream::LAST_UNIT), "{streams}: {bytes}");
        }
        assert_eq!([4, 8, 16].map(granted_bytes), [15 << 18, 2 << 20, 1 << 20]);
    }
}
