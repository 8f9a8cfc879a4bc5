//! What a session asks its driver to do, and what the driver brings back.
//!
//! An [`Op`] has been checked against the session's fids; the dialects' differences are gone where
//! they do not matter to a file server.

use alloc::vec::Vec;

use crate::attr::{Attr, SetAttr, Statfs, Time};
use crate::dialect::Dialect;
use crate::error::Error;
use crate::open::Open;
use crate::stat::{Stat, StatBuf};
use crate::types::{Name, Qid, SessionId, StreamToken, WalkElem};

/// One request of a session, from its arrival to its completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub(super) u64);

/// A request that is to be carried out.
#[derive(Debug)]
pub struct Request<'a, F> {
    pub id: RequestId,
    pub dialect: Dialect,
    pub op: Op<'a, F>,
}

/// A special file that .u's create makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special<'a, F> {
    Dir,
    Symlink {
        target: &'a [u8],
    },
    Link {
        target: F,
    },
    /// `mode` as mknod(2): S_IFBLK, S_IFCHR, S_IFIFO or S_IFSOCK.
    Node {
        mode: u32,
        major: u32,
        minor: u32,
    },
}

/// How `.n1` renames beside rename(2)'s way, as renameat2(2) has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rename {
    /// EEXIST where the new name is taken.
    NoReplace,
    /// Both names are there, and each becomes the other's file's.
    Exchange,
}

/// What to do. Files are the driver's own handles, cloned.
#[derive(Debug)]
pub enum Op<'a, F> {
    Attach {
        uname: &'a [u8],
        n_uname: u32,
        aname: &'a [u8],
    },
    /// Tsession: an attach by one of a client's connections.
    Session {
        session: SessionId,
        /// Make it if it is not known.
        create: bool,
        uname: &'a [u8],
        n_uname: u32,
        aname: &'a [u8],
    },
    Walk {
        file: F,
        elems: Vec<WalkElem<'a>>,
    },
    Open {
        file: F,
        how: Open,
    },
    /// `mode`: permission bits with set-id and sticky; `dm`: 9P2000's append, exclusive, temporary.
    Create {
        file: F,
        name: Name<'a>,
        mode: u32,
        dm: u32,
        gid: Option<u32>,
        how: Open,
        exclusive: bool,
    },
    /// 9P2000's and .u's create of what is no plain file: make, walk there, open it when it is a directory.
    CreateSpecial {
        file: F,
        name: Name<'a>,
        mode: u32,
        special: Special<'a, F>,
        how: Open,
    },
    Read {
        file: F,
        offset: u64,
        count: u32,
    },
    /// `data` borrows from the frame.
    Write {
        file: F,
        offset: u64,
        data: &'a [u8],
    },
    /// The same of [`Session::handle_write`](super::Session::handle_write): the driver has the `len` bytes.
    WriteOutside {
        file: F,
        offset: u64,
        len: u32,
    },
    ReadStats {
        file: F,
        at: u64,
        max: u32,
    },
    Stat {
        file: F,
    },
    Wstat {
        file: F,
        stat: Stat<'a>,
    },
    Statfs {
        file: F,
    },
    Symlink {
        file: F,
        name: Name<'a>,
        target: &'a [u8],
        gid: Option<u32>,
    },
    Mknod {
        file: F,
        name: Name<'a>,
        mode: u32,
        major: u32,
        minor: u32,
        gid: Option<u32>,
    },
    Mkdir {
        file: F,
        name: Name<'a>,
        mode: u32,
        gid: Option<u32>,
    },
    Rename {
        file: F,
        newdir: F,
        name: Name<'a>,
    },
    RenameEntry {
        file: F,
        old: Name<'a>,
        newdir: F,
        new: Name<'a>,
    },
    /// `.n1`: an entry, in a way that rename(2) does not have.
    RenameWith {
        file: F,
        old: Name<'a>,
        newdir: F,
        new: Name<'a>,
        how: Rename,
    },
    Unlink {
        file: F,
        name: Name<'a>,
        dir: bool,
    },
    Link {
        file: F,
        target: F,
        name: Name<'a>,
    },
    Readlink {
        file: F,
    },
    Getattr {
        file: F,
        mask: u64,
    },
    Setattr {
        file: F,
        set: SetAttr,
    },
    /// An empty name means the list of names.
    XattrRead {
        file: F,
        name: &'a [u8],
    },
    Readdir {
        file: F,
        offset: u64,
        max: u32,
    },
    /// `.n1`: entries with attributes.
    Readdirplus {
        file: F,
        offset: u64,
        max: u32,
        mask: u64,
    },
    /// `.n1`: which of the bits of [`crate::n1::access`] are allowed.
    Access {
        file: F,
        mode: u32,
    },
    /// `.n1`. `append`: at the end of the file, the offset is 0; `stable`: on disk before it is done.
    Writex {
        file: F,
        offset: u64,
        data: &'a [u8],
        append: bool,
        stable: bool,
    },
    /// `.n1`: bytes of `file` to `target`.
    Copyrange {
        file: F,
        offset: u64,
        target: F,
        target_offset: u64,
        length: u64,
    },
    /// `.n1`: `mode` as [`crate::n1::allocate`] has it; the length is not 0.
    Allocate {
        file: F,
        mode: u32,
        offset: u64,
        length: u64,
    },
    /// `.n1`: the first byte of a hole, or of data, from `offset` on.
    Seek {
        file: F,
        offset: u64,
        hole: bool,
    },
    /// `.s` and `.n1`: make a stream of a plain file that is open so; it keeps the file, whatever becomes of the fid.
    Stream {
        file: F,
        /// From the file to the client, or to the file.
        read: bool,
        offset: u64,
        /// `None`: to the end of the file, or until the client ends it.
        length: Option<u64>,
        /// Whatever is written goes to the end of the file.
        appends: bool,
        /// Another stream may follow on the same connection.
        more: bool,
        /// The connection is to tell the end, if it comes whole ([`stream::TOLD`](crate::n1::stream::TOLD)).
        told: bool,
        copied: Copied,
        /// It has that share of a short file, and `length` bytes from `offset` on of a longer one.
        share: Option<Share>,
        /// `.n1`: what its data connection says, where the client chose that.
        token: Option<StreamToken>,
    },
    /// `.n1`: tell how the stream ended, when it has; it may be for long that it has not. `abort`: end it now.
    StreamEnd {
        id: u32,
        abort: bool,
    },
    Fsync {
        file: F,
        datasync: bool,
    },
    Lock {
        file: F,
        kind: u8,
        start: u64,
        length: u64,
        proc_id: u32,
        client_id: &'a [u8],
        wait: bool,
    },
    Getlock {
        file: F,
        kind: u8,
        start: u64,
        length: u64,
        proc_id: u32,
        client_id: &'a [u8],
    },
}

/// What an [`Op`] brought. The variant must be the one that the op asks for.
#[derive(Debug)]
pub enum Done<F, P> {
    /// Attach. `read_only`: nothing may be changed through this fid and those walked from it.
    Attached { qid: Qid, file: F, read_only: bool },
    /// Session.
    SessionBegun { qid: Qid, file: F, read_only: bool, begun: Begun },
    /// Walk.
    Walked { qids: Vec<Qid>, file: Option<F> },
    /// Open.
    Opened { qid: Qid },
    /// Create, CreateSpecial; `opened`: the new file can be read or written.
    Created { qid: Qid, file: F, opened: bool },
    /// Read, Readdir.
    Data(P),
    /// Readdirplus; `end`: nothing was behind these entries when they were read.
    Listed { entries: P, end: bool },
    /// ReadStats: records, and where each ends.
    Stats(P, Vec<RecordEnd>),
    /// Write.
    Count(u32),
    /// Stat.
    Stat(StatBuf),
    /// Statfs.
    Statfs(Statfs),
    /// Symlink, Mknod, Mkdir.
    Qid(Qid),
    /// Readlink.
    Target(Vec<u8>),
    /// Getattr.
    Attr(Attr),
    /// XattrRead; `file` is a clone of the file, for the new fid.
    Xattr { value: Vec<u8>, file: F },
    /// Lock: granted, or held by somebody else.
    Lock { granted: bool },
    /// Getlock: the lock in the way.
    Getlock(Option<Holder>),
    /// Access: those of the bits that are allowed.
    Access(u32),
    /// Writex: where the data begin in the file, and how many bytes of them there are.
    Written { offset: u64, count: u32 },
    /// Copyrange: bytes; 0 at the end of the source.
    Copied(u64),
    /// Seek.
    Offset(u64),
    /// Stream.
    Streaming(Streaming),
    /// StreamEnd: bytes read from the file or written to it.
    StreamEnded { count: u64, modrev: u64 },
    /// Everything else.
    Unit,
}

/// Whether what is sent by a stream is to be copied first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copied {
    No,
    Yes,
    /// Unless the file has [`LONG`](crate::n1::stream::LONG) bytes or more behind it.
    UnlessLong,
    /// So many bytes at its end, of those that it is to have.
    Last(u64),
}

/// One of the streams among which a file is shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    pub number: u32,
    pub of: u32,
}

/// What Rstream tells of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Streaming {
    /// `.n1`: names it among those of the connection.
    pub id: u32,
    /// `.n1`: opens its data connection.
    pub token: StreamToken,
    /// Changes whenever the file's content or attributes do; 0 when the server cannot tell.
    pub modrev: u64,
    /// Where it begins in the file, and how many bytes it has at most; `None`: those up to the end.
    pub offset: u64,
    pub length: Option<u64>,
    /// `.s`: as [`StreamAddress`](crate::stream::StreamAddress) has it. `.n1`: where to dial, or empty for where the session is.
    pub address: Vec<u8>,
}

/// What Rsession tells of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Names this run of the server; not 0.
    pub epoch: u64,
    /// The server's clock.
    pub time: Time,
}

/// A lock as Rgetlock tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    pub kind: u8,
    pub start: u64,
    pub length: u64,
    pub proc_id: u32,
    pub client_id: Vec<u8>,
}

/// The last things to do with a file whose fid is gone, in this order; the first error is the result.
#[derive(Debug)]
pub struct Farewell<F> {
    pub id: FarewellId,
    pub file: F,
    /// A result that is known already: what follows is still done, but this error is told.
    pub error: Option<Error>,
    /// Set or remove an extended attribute first.
    pub xattr: Option<XattrWrite>,
    /// Remove the file.
    pub remove: bool,
}

/// The end of a stat record that [`Op::ReadStats`] brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordEnd {
    /// Bytes from the start of the first record.
    pub end: u32,
    /// From where the directory goes on behind it; not 0, which is its start.
    pub cookie: u64,
}

/// Names a [`Farewell`] when its result comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FarewellId(pub(super) u32);

/// The value that Txattrcreate and the writes behind it described.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XattrWrite {
    pub name: Vec<u8>,
    /// `None`: a size of 0 was announced, which removes the attribute.
    pub value: Option<Vec<u8>>,
    /// As setxattr(2).
    pub flags: u32,
}
