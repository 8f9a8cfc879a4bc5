//! The contract between the server and a tree that it serves: [`FileServer`] and [`File`].
//!
//! A [`File`] is what one fid stands for. The server owns the fids, checks the protocol and calls a
//! method for each request; the file server answers with an [`Answer`]. Everything below is checked
//! before a method is called, so a file server need not check it again:
//!
//! - the fid is known, belongs to this tree, and is not being opened or created on by another request;
//! - names are [`Name`]s: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`;
//! - `read`, `write`, `readdir`, `read_stats`, `fsync`, locks and `.n1`'s `readdirplus`, `writex`, `copyrange`, `allocate` and `seek`
//!   come only after an `open` or `create` that
//!   succeeded and whose [`Open::access`] allows it; `open` and `create` only while the fid is not open, and so does
//!   `walk`, but for .L, whose clients walk from open directories, and the walk of no element behind Txattrwalk;
//! - `walk` with names, `create` and the entry operations come only on files whose qid says directory;
//! - counts are small enough for the reply to fit the msize; `offset + count` does not overflow an i64;
//! - flags and modes have no bits but those that the method names;
//! - on a read-only export no method is called that changes anything, nor an `open` for writing.
//!
//! **Concurrency.** Methods of one `File` may run at the same time, from several threads, with these
//! exceptions: nothing runs on a `File` beside its `open`, its `create` or its `remove` (but that the reads and writes of a stream go
//! on beside `remove`), and `clunk` is the
//! last call of all, made exactly once, when every other call's answer is done, also when the client
//! asked sooner, did not ask at all, or is gone. Different `File`s are independent.
//!
//! **Errors.** An error leaves everything as it was. [`Errno`] numbers are Linux's; the server tells
//! them as the dialect does.
//!
//! **Cancelling.** A future is never dropped before it is done. When its request is flushed
//! [`Cx::cancelled`] wakes; a method in an unbounded wait then answers `EINTR`, having changed nothing,
//! and the client sees no reply. A method that can finish just finishes.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use ninefold_proto::attr::{Attr, SetAttr, Statfs};
use ninefold_proto::open::Open;
use ninefold_proto::plus::PlusEntry;
use ninefold_proto::server::{RecordEnd, Rename};
use ninefold_proto::stat::{DirEntry, Stat, StatBuf};
use ninefold_proto::types::WalkElem;
use ninefold_proto::{Dialect, Errno, Error, Name, Qid};

use super::{Answer, Cx, Data, Descriptor, Sink, Source, User};

/// A tree that can be attached.
pub trait FileServer: Send + Sync + 'static {
    /// A new fid for the root of the tree, for `who` (attach(5)).
    fn attach(&self, cx: &Cx, who: &Attach) -> Answer<(Qid, Arc<dyn File>)>;
}

/// Who attaches, and how the connection speaks.
#[derive(Clone, Debug)]
pub struct Attach {
    /// The user as the server's identity policy decided it; not merely what the client claims.
    pub user: Arc<User>,
    pub dialect: Dialect,
}

/// How far a walk came.
pub struct Walked {
    /// One qid for each element that was walked, in order.
    pub qids: Vec<Qid>,
    /// The file reached, iff all elements were walked. A walk of no element is a clone of the fid, not open.
    pub file: Option<Arc<dyn File>>,
}

/// A file that was made and opened.
pub struct Created {
    pub qid: Qid,
    pub file: Arc<dyn File>,
}

/// What `.n1`'s write did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Where the data begin in the file.
    pub offset: u64,
    /// Bytes of them; at least 1 unless there were none.
    pub count: u32,
}

/// What to create.
#[derive(Clone, Copy, Debug)]
pub struct Create<'a> {
    pub name: Name<'a>,
    /// Permission bits 0 to 0o7777. In 9P2000 they are already masked by the directory's (open(5)).
    pub mode: u32,
    /// Bits `dm::APPEND`, `dm::EXCL`, `dm::TMP` of 9P2000; 0 in .L.
    pub dm: u32,
    /// The new file's group, where the dialect says one.
    pub gid: Option<u32>,
    pub open: Open,
    /// Fail with EEXIST when the name exists. Always so in 9P2000 and .u without `.ix`.
    pub exclusive: bool,
}

/// Kind of a lock (fcntl(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    Read,
    Write,
    Unlock,
}

/// A byte-range lock. The owner is the connection, `client_id` and `proc_id` together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lock {
    pub kind: LockKind,
    pub start: u64,
    /// Bytes; 0 reaches to the end of the file, however far it grows.
    pub length: u64,
    pub proc_id: u32,
    pub client_id: Vec<u8>,
}

/// What the file server says of a lock request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockStatus {
    Granted,
    /// Somebody else holds a conflicting one; only when the request does not wait.
    Blocked,
}

/// What one fid stands for. The defaults refuse with EOPNOTSUPP what a tree does not have; where the server then helps itself, the
/// method says so.
#[allow(unused_variables)]
pub trait File: Any + Send + Sync {
    /// Walks `elems` from here (walk(5)). When the first element fails, answer its error; when a later
    /// one fails, answer the qids so far and no file. `..` at the root of the tree is the root.
    fn walk(&self, cx: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked>;

    /// Opens this file. The qid may tell a newer version than walk did.
    fn open(&self, cx: &Cx, how: Open) -> Answer<Qid>;

    /// Makes and opens a plain file in this directory. The fid then stands for the new `File`; this one is clunked.
    fn create(&self, cx: &Cx, what: Create<'_>) -> Answer<Created> {
        unsupported()
    }

    /// Up to `count` bytes at `offset`; fewer at the end of the file, none behind it. `Bytes` and `Vec<u8>` become [`Data`] by
    /// `into()`.
    fn read(&self, cx: &Cx, offset: u64, count: u32) -> Answer<Data> {
        unsupported()
    }

    /// Writes at `offset` (at the end, for an append-only file); answers the bytes written, at least 1 unless `data` is empty.
    fn write(&self, cx: &Cx, offset: u64, data: Bytes) -> Answer<u32> {
        unsupported()
    }

    /// Requests have come that are about to use it, most likely: what they will look at may be asked of memory meanwhile, without waiting. For files of
    /// which there are so many that they lie in no cache.
    fn warm(&self) {}

    /// Whether [`File::write_data`] has a better way for many bytes than through memory.
    fn takes_pipes(&self) -> bool {
        false
    }

    /// Writes as [`File::write`] does. Called where [`File::takes_pipes`] has just said so, for large writes of clients on this machine, whose data lie in a pipe.
    fn write_data(&self, cx: &Cx, offset: u64, data: Data) -> Answer<u32> {
        match data.into_bytes() {
            Ok(bytes) => self.write(cx, offset, bytes),
            Err(error) => Answer::err(error),
        }
    }

    /// .L: entries from the cookie `offset` on (0 = from the start), packed by [`DirSink`] to at most `max` bytes,
    /// `.` and `..` included. None means the end. Cookies stay good while entries are removed.
    fn readdir(&self, cx: &Cx, offset: u64, max: u32) -> Answer<Bytes> {
        unsupported()
    }

    /// 9P2000, .u: stat records from the cookie `at` on (0 = from the start), whole records of at most `max`
    /// bytes, in .u `.` and `..` included, packed by [`StatSink`]. None means the end; EINVAL when not one record fits. Cookies
    /// stay good while entries are removed; in .u the directory may be read again from any that was told since it was read from 0.
    fn read_stats(&self, cx: &Cx, at: u64, max: u32) -> Answer<Records> {
        unsupported()
    }

    /// `.n1`: entries as `readdir` has them, each with the attributes that `getattr` with `mask` would give, as [`DirSink::push_plus`]
    /// packs them; `valid` 0 where they cannot be had. The reply ends before what does not fit, and says whether there was nothing
    /// behind it: who knows that spares the client a round trip. Without it the server reads the directory, walks to each entry and
    /// asks.
    fn readdirplus(&self, cx: &Cx, offset: u64, max: u32, mask: u64) -> Answer<Listed> {
        unsupported()
    }

    /// `.n1`: those of `mode`'s bits (R 4, W 2, X 1) that the attached user is allowed, as access(2) has it; no bit, nothing asked.
    fn access(&self, cx: &Cx, mode: u32) -> Answer<u32> {
        unsupported()
    }

    /// `.n1`: a write as `write` has it, but with `append` (`offset` is 0 then) at the end of the file, wherever it is by then: two
    /// at a time never overwrite each other. With `stable` the data are on disk when this is answered. Without it the server has
    /// the write made by `write` and `fsync`, unless it appends.
    fn writex(&self, cx: &Cx, offset: u64, data: Bytes, append: bool, stable: bool) -> Answer<Written> {
        unsupported()
    }

    /// `.n1`: copies up to `length` bytes at `offset` to `target_offset` of `target`, as copy_file_range(2); answers how many, 0 at the
    /// end of this file. EINVAL when both are one file and the ranges overlap; nothing is copied after the request was
    /// cancelled. Where it gives EOPNOTSUPP or EXDEV, the server reads and writes.
    fn copyrange(&self, cx: &Cx, offset: u64, target: &dyn File, target_offset: u64, length: u64) -> Answer<u64> {
        unsupported()
    }

    /// `.n1`: fallocate(2); `mode` is 0 or bits of [`ninefold_proto::n1::allocate`], `length` at least 1.
    fn allocate(&self, cx: &Cx, mode: u32, offset: u64, length: u64) -> Answer<()> {
        unsupported()
    }

    /// `.n1`: the offset of the first byte at `offset` or behind it that is data or, for a `hole`, is none; the end of the file is
    /// a hole. ENXIO behind the end, and for data where only a hole follows (lseek(2)). Without it the server says that all
    /// is data.
    fn seek(&self, cx: &Cx, offset: u64, hole: bool) -> Answer<u64> {
        unsupported()
    }

    /// A hold on this open file, good beyond the clunk, through which the kernel moves the bytes of a stream; `None` of one that is not a plain
    /// file, of which it may be asked too. Without it the server reads and writes, and clunks the file when the stream has ended.
    fn descriptor(&self) -> Option<Box<dyn Descriptor>> {
        None
    }

    /// The bytes of this open plain file from `offset` on, `length` of them or all to its end, for a stream that is read: where the file
    /// server has no descriptor, and for many bytes a better way than its reads. The stream's data connection may come 30 s later, or never.
    /// EOPNOTSUPP, as without it: the server reads. Any other error is that of the stream.
    fn source(&self, cx: &Cx, offset: u64, length: Option<u64>) -> Answer<Box<dyn Source>> {
        unsupported()
    }

    /// The same for a stream that is written, `length` bytes or as many as come. Not asked for where the file is opened to append.
    fn sink(&self, cx: &Cx, offset: u64, length: Option<u64>) -> Answer<Box<dyn Sink>> {
        unsupported()
    }

    /// Attributes; those asked by `mask` at least, where they exist, as `valid` says.
    fn getattr(&self, cx: &Cx, mask: u64) -> Answer<Attr>;

    /// Changes attributes: all of them or none.
    fn setattr(&self, cx: &Cx, set: SetAttr) -> Answer<()> {
        unsupported()
    }

    /// 9P2000, .u: the stat record.
    fn stat(&self, cx: &Cx) -> Answer<StatBuf>;

    /// 9P2000, .u: changes what is not "don't touch", all or nothing (stat(5)). A wholly untouched record means fsync.
    fn wstat(&self, cx: &Cx, stat: &Stat<'_>) -> Answer<()> {
        Answer::err(Errno::EPERM)
    }

    /// Removes this file (remove(5)). The fid is clunked afterwards, whatever the answer.
    fn remove(&self, cx: &Cx) -> Answer<()> {
        Answer::err(Errno::EPERM)
    }

    /// The last call. An error reaches the client as Tclunk's reply; the fid is gone all the same.
    fn clunk(&self, cx: &Cx) -> Answer<()> {
        Answer::ok(())
    }

    /// Data (and, unless `datasync`, attributes) are on disk when this is answered.
    fn fsync(&self, cx: &Cx, datasync: bool) -> Answer<()> {
        Answer::ok(())
    }

    /// The file system's totals.
    fn statfs(&self, cx: &Cx) -> Answer<Statfs> {
        unsupported()
    }

    /// A symbolic link's target.
    fn readlink(&self, cx: &Cx) -> Answer<Vec<u8>> {
        Answer::err(Errno::EINVAL)
    }

    /// Makes a symbolic link in this directory.
    fn symlink(&self, cx: &Cx, name: Name<'_>, target: &[u8], gid: Option<u32>) -> Answer<Qid> {
        unsupported()
    }

    /// Makes a device, FIFO, socket or plain file in this directory; `mode` as mknod(2), `rdev` as makedev(3).
    fn mknod(&self, cx: &Cx, name: Name<'_>, mode: u32, rdev: u64, gid: Option<u32>) -> Answer<Qid> {
        unsupported()
    }

    /// Makes a directory in this directory.
    fn mkdir(&self, cx: &Cx, name: Name<'_>, mode: u32, gid: Option<u32>) -> Answer<Qid> {
        unsupported()
    }

    /// Makes `name` in this directory another name of `target`. EXDEV when `target` is another tree's.
    fn link(&self, cx: &Cx, target: &dyn File, name: Name<'_>) -> Answer<()> {
        unsupported()
    }

    /// Renames this file to `name` in `newdir`, replacing what is there as rename(2) does.
    fn rename(&self, cx: &Cx, newdir: &dyn File, name: Name<'_>) -> Answer<()> {
        unsupported()
    }

    /// Renames the entry `old` of this directory to `new` in `newdir`. Fids of the file and below stay good.
    fn rename_entry(&self, cx: &Cx, old: Name<'_>, newdir: &dyn File, new: Name<'_>) -> Answer<()> {
        unsupported()
    }

    /// `.n1`: as `rename_entry`, but replaces nothing, or exchanges two files (renameat2(2)): in one step, or not at all.
    fn rename_with(&self, cx: &Cx, old: Name<'_>, newdir: &dyn File, new: Name<'_>, how: Rename) -> Answer<()> {
        unsupported()
    }

    /// Removes the entry `name` of this directory; `dir` = it must be a directory, else it must not. Fids of it stay good.
    fn unlink(&self, cx: &Cx, name: Name<'_>, dir: bool) -> Answer<()> {
        unsupported()
    }

    /// The value of an extended attribute; ENODATA when there is none.
    fn xattr_get(&self, cx: &Cx, name: &[u8]) -> Answer<Bytes> {
        unsupported()
    }

    /// Names of the extended attributes, each ended by a NUL.
    fn xattr_list(&self, cx: &Cx) -> Answer<Bytes> {
        unsupported()
    }

    /// Sets an extended attribute; `flags` as setxattr(2): 1 create, 2 replace. An empty value is set as such.
    fn xattr_set(&self, cx: &Cx, name: &[u8], value: Bytes, flags: u32) -> Answer<()> {
        unsupported()
    }

    /// Removes an extended attribute.
    fn xattr_remove(&self, cx: &Cx, name: &[u8]) -> Answer<()> {
        unsupported()
    }

    /// Takes or drops a lock. With `wait` the answer comes when it is granted: park, hold no thread, honour
    /// [`Cx::cancelled`]. Locks taken through a `File` end with its clunk.
    fn lock(&self, cx: &Cx, lock: Lock, wait: bool) -> Answer<LockStatus> {
        unsupported()
    }

    /// The first lock that would stand in the way of `lock`, or `None`.
    fn getlock(&self, cx: &Cx, lock: Lock) -> Answer<Option<Lock>> {
        unsupported()
    }
}

fn unsupported<T: Send + 'static>() -> Answer<T> {
    Answer::Now(Err(Error::new(Errno::EOPNOTSUPP)))
}

/// Packs directory entries up to a number of bytes.
#[derive(Debug)]
pub struct DirSink {
    bytes: Vec<u8>,
    max: usize,
}

impl DirSink {
    /// Room for `max` bytes. The memory grows with what is put in, not with what a client asks for.
    pub fn new(max: u32) -> DirSink {
        DirSink { bytes: Vec::new(), max: max as usize }
    }

    /// Adds an entry of .L; `false` when it does not fit.
    pub fn push(&mut self, entry: &DirEntry<'_>) -> bool {
        let fits = self.bytes.len() + entry.encoded_len() <= self.max;
        if fits {
            entry.encode(&mut self.bytes);
        }
        fits
    }

    /// Adds an entry of `.n1` with its attributes; `false` when it does not fit.
    pub fn push_plus(&mut self, entry: &PlusEntry<'_>) -> bool {
        let fits = self.has_room(entry.encoded_len());
        if fits {
            entry.encode(&mut self.bytes);
        }
        fits
    }

    /// Whether so many bytes more fit.
    pub fn has_room(&self, len: usize) -> bool {
        self.bytes.len() + len <= self.max
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of the reply.
    pub fn into_bytes(self) -> Bytes {
        self.bytes.into()
    }
}

/// Entries of a directory, and whether they are its last.
#[derive(Clone, Default, Debug)]
pub struct Listed {
    /// One behind the other.
    pub entries: Bytes,
    /// There was nothing behind them when they were read; `false` where that is not known.
    pub end: bool,
}

/// Stat records of a directory.
#[derive(Clone, Default, Debug)]
pub struct Records {
    /// One behind the other.
    pub bytes: Bytes,
    /// Where each ends, and from where the directory goes on there.
    pub ends: Vec<RecordEnd>,
}

/// Packs stat records up to a number of bytes.
#[derive(Debug)]
pub struct StatSink {
    dialect: Dialect,
    bytes: Vec<u8>,
    ends: Vec<RecordEnd>,
    max: usize,
}

impl StatSink {
    /// Room for `max` bytes. The memory grows with what is put in, not with what a client asks for.
    pub fn new(dialect: Dialect, max: u32) -> StatSink {
        StatSink { dialect, bytes: Vec::new(), ends: Vec::new(), max: max as usize }
    }

    /// Adds a record, behind which the directory goes on from `cookie`; `false` when it does not fit.
    pub fn push(&mut self, stat: &Stat<'_>, cookie: u64) -> bool {
        let fits = self.bytes.len() + stat.encoded_len(self.dialect) <= self.max;
        if fits {
            stat.encode(self.dialect, &mut self.bytes);
            // No message is longer.
            self.ends.push(RecordEnd { end: self.bytes.len() as u32, cookie });
        }
        fits
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The reply.
    pub fn into_records(self) -> Records {
        Records { bytes: self.bytes.into(), ends: self.ends }
    }
}
