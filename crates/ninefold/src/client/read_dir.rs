//! What a directory holds.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ninefold_proto::attr::getattr;
use ninefold_proto::message::{Mask, Octal};
use ninefold_proto::n1::listed;
use ninefold_proto::plus::{PlusEntry, plus_entries};
use ninefold_proto::stat::{DirEntry, dir_entries, stats};
use ninefold_proto::types::{BadName, Name};
use ninefold_proto::wire::IO_HEADER;
use ninefold_proto::{Dialect, Errno, Fid, Qid, R, T};

use super::client::Client;
use super::connection::Reply;
use super::error::{Error, Suspicion};
use super::file::File;
use super::metadata::{FileType, Metadata};
use super::node::{Mode, Node, unexpected};

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
    pub name: Vec<u8>,
    pub qid: Qid,
    pub kind: FileType,
    /// Where it is listed: in 9P2000 and .u always, in .n1 by [`Node::read_dir_with_metadata`]. In a box, as .L's entries have
    /// none and it is six times as large as the rest.
    pub metadata: Option<Box<Metadata>>,
}

/// What is read.
#[derive(Debug)]
enum Source {
    File(File),
    /// One whose fid is open.
    Node(Arc<Node>),
}

impl Source {
    fn client(&self) -> &Client {
        match self {
            Source::File(file) => file.client(),
            Source::Node(node) => node.client(),
        }
    }

    fn fid(&self) -> Fid {
        match self {
            Source::File(file) => file.fid.fid(),
            Source::Node(node) => node.fid.fid(),
        }
    }

    /// The most bytes of one read.
    fn read_max(&self) -> u32 {
        match self {
            Source::File(file) => file.read_max(),
            Source::Node(node) => node.client().msize() - IO_HEADER,
        }
    }
}

/// How often a directory may list the very same thing. A union directory does so when a directory is bound into it twice
/// (bind(1)); nobody binds one so often.
const REPEATS_MAX: usize = 16;

/// A directory being read, in the server's order, `.` and `..` left out.
#[derive(Debug)]
pub struct ReadDir {
    source: Source,
    /// Where the next read goes on: bytes read so far, or .L's cookie.
    offset: u64,
    /// .L's cookies that were read from: one that comes again is a directory that never ends.
    cookies: HashSet<u64>,
    /// How often the same came: hashes of the pieces of 9P2000 and .u, and of `.` and `..` of .u and .L.
    repeats: HashMap<u64, usize>,
    /// Read, and not yet given.
    entries: VecDeque<Entry>,
    count: usize,
    /// Metadata is asked for, and the server can tell.
    with_metadata: bool,
    ended: bool,
    /// What ended it before its end: behind a piece that is not to be believed there may be a hole.
    failed: Option<Error>,
}

impl Node {
    /// Reads the directory, on a fid of its own: a round trip more than [`Node::into_read_dir`].
    pub async fn read_dir(&self) -> Result<ReadDir, Error> {
        if !self.qid().is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        self.walk(&[]).await?.into_read_dir().await
    }

    /// The same with each entry's metadata, of a symbolic link its own, where the dialect can list it: elsewhere, and where
    /// a file has gone since, an entry has none.
    pub async fn read_dir_with_metadata(&self) -> Result<ReadDir, Error> {
        let with_metadata = self.client.version().is_n1();
        Ok(ReadDir { with_metadata, ..self.read_dir().await? })
    }

    /// Reads the directory, on this fid.
    pub async fn into_read_dir(self) -> Result<ReadDir, Error> {
        if !self.qid().is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let file = self.open(Mode::READ).await?;
        Ok(ReadDir::of(Source::File(file)))
    }
}

impl ReadDir {
    fn of(source: Source) -> ReadDir {
        let (cookies, repeats, entries) = (HashSet::new(), HashMap::new(), VecDeque::new());
        let (with_metadata, ended) = (false, false);
        ReadDir { source, offset: 0, cookies, repeats, entries, count: 0, with_metadata, ended, failed: None }
    }

    /// A directory whose fid is open, and what the first Treaddirplus of it brought.
    pub(super) fn begun(node: Arc<Node>, with_metadata: bool, first: Result<Reply, Error>) -> Result<ReadDir, Error> {
        let mut begun = ReadDir { with_metadata, ..ReadDir::of(Source::Node(node)) };
        match first {
            Ok(reply) => {
                begun.cookies.insert(begun.offset);
                if let Err(error) = begun.take_plus_entries(reply).and_then(|()| begun.counted(0)) {
                    begun.failed = Some(error);
                }
            }
            // It serves a tree that has no such listing.
            Err(e) if e.errno() == Errno::EOPNOTSUPP => begun.with_metadata = false,
            Err(Error::Refused(e)) => begun.failed = Some(Error::Refused(e)),
            Err(e) => return Err(e),
        }
        Ok(begun)
    }

    /// The next entry if it was read already.
    pub fn next_read(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    /// The next entry; `None` at the end. An error of the server's making ends it: it comes again at every call.
    pub async fn next(&mut self) -> Result<Option<Entry>, Error> {
        while self.entries.is_empty() && !self.ended {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            if let Err(error) = self.read().await {
                self.failed = Some(error);
            }
        }
        Ok(self.entries.pop_front())
    }

    /// Whether all was read: then nothing waits for the server.
    pub fn is_read(&self) -> bool {
        self.ended
    }

    /// Entries that were read, and not given yet.
    pub fn ready(&self) -> usize {
        self.entries.len()
    }

    /// What is read from now on counts as caused by `client`'s replies too.
    pub fn join(&self, client: &Client) {
        self.source.client().join(client);
    }

    /// All entries that are left. Bounded by [`Options::dir_entries_max`](super::Options::dir_entries_max).
    pub async fn all(mut self) -> Result<Vec<Entry>, Error> {
        let mut all = Vec::new();
        while let Some(entry) = self.next().await? {
            all.push(entry);
            all.extend(self.entries.drain(..));
        }
        Ok(all)
    }

    async fn read(&mut self) -> Result<(), Error> {
        let dialect = self.source.client().dialect();
        let before = self.entries.len();
        match dialect {
            Dialect::Linux if self.with_metadata => match self.read_plus_entries().await {
                // It serves a tree that has no such listing.
                Err(e) if e.errno() == Errno::EOPNOTSUPP => {
                    self.with_metadata = false;
                    self.read_entries().await?;
                }
                other => other?,
            },
            Dialect::Linux => self.read_entries().await?,
            dialect => self.read_stats(dialect).await?,
        }
        self.counted(before)
    }

    /// Counts what was read since there were `before`.
    fn counted(&mut self, before: usize) -> Result<(), Error> {
        self.count += self.entries.len() - before;
        let most = self.source.client().options().dir_entries_max;
        if self.count > most { Err(Suspicion::EndlessDirectory(most).into()) } else { Ok(()) }
    }

    async fn read_entries(&mut self) -> Result<(), Error> {
        let (fid, offset, count) = (self.source.fid(), self.offset, self.source.read_max());
        let data = self.read_from_cookie(T::Readdir { fid, offset, count }).await?.data();
        self.ended = data.is_empty();
        // An entry with a name of common length takes 40 bytes on the wire.
        self.entries.reserve(data.len() / 40);
        for entry in dir_entries(&data).flatten() {
            self.take_entry(&entry, None)?;
        }
        Ok(())
    }

    async fn read_plus_entries(&mut self) -> Result<(), Error> {
        let (fid, offset, count) = (self.source.fid(), self.offset, self.source.read_max());
        let request_mask = Mask(getattr::ALL);
        let request = T::Readdirplus { fid, offset, count, request_mask, flags: Octal(0) };
        let reply = self.read_from_cookie(request).await?;
        self.take_plus_entries(reply)
    }

    /// What an Rreaddirplus brought.
    fn take_plus_entries(&mut self, reply: Reply) -> Result<(), Error> {
        let end = match reply.message()? {
            R::Readdirplus { flags, .. } => flags.0 & listed::END != 0,
            _ => return Err(unexpected()),
        };
        let data = reply.plus_data();
        self.ended = end || data.is_empty();
        for PlusEntry { entry, attr } in plus_entries(&data).flatten() {
            // What is nonsense is left to who asks for this file alone.
            let known = (attr.valid != 0).then(|| Metadata::from_getattr(&R::from(&attr)));
            let metadata = known.and_then(Result::ok);
            self.take_entry(&entry, metadata)?;
        }
        Ok(())
    }

    async fn read_from_cookie(&mut self, request: T<'_>) -> Result<Reply, Error> {
        if self.cookies.contains(&self.offset) {
            return Err(Suspicion::LoopingDirectory.into());
        }
        let reply = self.source.client().call(request).await?;
        // Not before: a call that was given up may be made again.
        self.cookies.insert(self.offset);
        Ok(reply)
    }

    fn take_entry(&mut self, entry: &DirEntry<'_>, metadata: Option<Metadata>) -> Result<(), Error> {
        self.offset = entry.offset;
        if matches!(entry.name, b"." | b"..") {
            // They count for nothing else, so new cookies alone could keep this going.
            return again(&mut self.repeats, entry.name);
        }
        let kind = metadata.as_ref().map_or_else(|| listed_kind(entry.kind, entry.qid), |metadata| metadata.kind);
        let (name, metadata) = (checked(entry.name)?, metadata.map(Box::new));
        self.entries.push_back(Entry { name, qid: entry.qid, kind, metadata });
        Ok(())
    }

    async fn read_stats(&mut self, dialect: Dialect) -> Result<(), Error> {
        let data = match &self.source {
            Source::File(file) => file.read_at(self.offset, file.read_max()).await?,
            // Only .n1 lists so.
            Source::Node(_) => return Err(Errno::EPROTO.into()),
        };
        self.offset += data.len() as u64;
        self.ended = data.is_empty();
        // Nothing in these dialects says where a piece stands, so one that goes round looks like one that goes on.
        again(&mut self.repeats, &data)?;
        for stat in stats(&data, dialect) {
            let stat = stat.map_err(Suspicion::Stat)?;
            if dialect == Dialect::Unix && matches!(stat.name, b"." | b"..") {
                again(&mut self.repeats, stat.name)?;
                continue;
            }
            let metadata = Metadata::from_stat(&stat, dialect)?;
            let (name, qid, kind) = (checked(stat.name)?, stat.qid, metadata.kind);
            self.entries.push_back(Entry { name, qid, kind, metadata: Some(Box::new(metadata)) });
        }
        Ok(())
    }
}

/// Notes that `what` came, once more perhaps.
fn again(repeats: &mut HashMap<u64, usize>, what: &[u8]) -> Result<(), Error> {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    let times = repeats.entry(hasher.finish()).or_insert(0);
    *times += 1;
    if *times > REPEATS_MAX { Err(Suspicion::LoopingDirectory.into()) } else { Ok(()) }
}

fn checked(name: &[u8]) -> Result<Vec<u8>, Error> {
    match Name::new(name) {
        Ok(name) => Ok(name.as_bytes().to_vec()),
        Err(e) => Err(entry_name(e)),
    }
}

fn entry_name(e: BadName) -> Error {
    Suspicion::EntryName(e).into()
}

/// The kind from getdents(2)'s DT_ number, which is st_mode's format shifted; from the qid where that is unknown.
fn listed_kind(dt: u8, qid: Qid) -> FileType {
    FileType::from_mode(u32::from(dt) << 12).unwrap_or_else(|| FileType::from_qid(qid.kind))
}
