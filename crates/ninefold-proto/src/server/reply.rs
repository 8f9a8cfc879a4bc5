//! From a request's result to its effect on the fids and its R message.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::fids::{Fate, Mode};
use super::n1::AfterN1;
use super::op::{Begun, Done, Holder, RecordEnd, Streaming};
use super::outbox::{Bulk, Outbox};
use super::request::XATTR_BYTES;
use super::session::{After, Outstanding, Session};
use crate::attr::{Attr, Statfs};
use crate::dialect::{Dialect, Version};
use crate::error::{Errno, Error};
use crate::message::{LongStr, Mask, Octal, Qids, R, StatBytes};
use crate::n1::listed;
use crate::stat::StatBuf;
use crate::types::{Qid, Tag};
use crate::wire::HEADER;

/// iounit of every open: 0, "as much as fits the msize". Any other throttles Linux's client.
const IOUNIT: u32 = 0;

/// Rlock's status (`P9_LOCK_SUCCESS`, `P9_LOCK_BLOCKED`).
const LOCK_SUCCESS: u8 = 0;
const LOCK_BLOCKED: u8 = 1;

/// Rgetlock's type when nothing is in the way.
const LOCK_TYPE_UNLCK: u8 = 2;

/// Numbers of the replies that carry bulk data.
const RREAD: u8 = 117;
const RREADDIR: u8 = 41;
const RREADDIRPLUS: u8 = 173;

/// What Linux's client takes from the msize for the header of a message with data (`P9_IOHDRSZ`).
const LINUX_OVERHEAD: u32 = 24;

/// Rerror's bytes beside its text, in .u: header, s[2] and errno[4].
const ERROR_OVERHEAD: usize = HEADER + 2 + 4;

/// Rlerror's in .n1: header, ecode[4], retry_ms[4] and s[2].
const LERROR_OVERHEAD: usize = HEADER + 4 + 4 + 2;

/// As much of a text as `most` bytes hold, cut between characters. A file server's own may be of any length.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A reply before it is written.
pub(super) enum Reply<P> {
    Error(Error),
    Attach(Qid),
    Session(Qid, Begun, SessionLimits),
    Walk(Vec<Qid>),
    Open(Qid),
    Create(Qid),
    Read(P),
    Readdir(P),
    Readdirplus {
        entries: P,
        end: bool,
    },
    Access(u32),
    Writex {
        offset: u64,
        count: u32,
    },
    Copyrange(u64),
    Seek(u64),
    Stream(Streaming),
    StreamEnd {
        count: u64,
        modrev: u64,
    },
    Write(u32),
    Stat(StatBuf),
    Statfs(Statfs),
    Readlink(Vec<u8>),
    Getattr(Attr),
    Xattrwalk(u64),
    Lock(u8),
    Getlock(Holder),
    /// The reply to T message `number` that carries nothing, or one qid.
    Plain {
        number: u8,
        qid: Option<Qid>,
    },
}

impl<P: Bulk> Reply<P> {
    /// Whether less was done than was asked, for a Tguard that says to stop there (docs/protocol.md). What was read may be
    /// less than was asked for.
    pub(super) fn falls_short(&self, after: After) -> bool {
        match (self, after) {
            (Reply::Error(_), _) => true,
            (Reply::Walk(qids), After::Walk { names, .. }) => qids.len() < names,
            (Reply::Write(count), After::Write { len }) => *count < len,
            (Reply::Writex { count, .. }, After::N1(AfterN1::Writex { len })) => *count < len,
            (Reply::Copyrange(count), After::N1(AfterN1::Copyrange { length })) => *count < length,
            _ => false,
        }
    }

    /// Appends the message. One that does not fit the msize becomes an error: then it is false.
    pub(super) fn push(mut self, tag: Tag, version: Version, msize: u32, out: &mut Outbox<P>) -> bool {
        let linux = version.dialect == Dialect::Linux;
        let mark = out.mark();
        if let Reply::Error(error) = &mut self
            && !version.is_n1()
        {
            error.errno = error.errno.linux();
        }
        match &self {
            Reply::Error(error) if linux => {
                // The number's own text is known to who reads it.
                let text = cut(error.own_text().unwrap_or_default(), (msize as usize).saturating_sub(LERROR_OVERHEAD));
                let ecode = error.errno.0;
                out.push(tag, &R::Lerror { ecode, retry_ms: error.retry_ms, text: text.as_bytes() }, version);
            }
            Reply::Error(error) => {
                let text = error.text();
                let text = cut(&text, (msize as usize).saturating_sub(ERROR_OVERHEAD));
                out.push(tag, &R::Error { ename: text.as_bytes(), errno: error.errno.0 }, version);
            }
            Reply::Attach(qid) => out.push(tag, &R::Attach { qid: *qid }, version),
            Reply::Session(qid, begun, limits) => out.push(tag, &session(*qid, *begun, *limits), version),
            Reply::Walk(qids) => {
                let mut scratch = Vec::new();
                out.push(tag, &R::Walk { wqids: Qids::encode(qids, &mut scratch) }, version);
            }
            Reply::Open(qid) if linux => out.push(tag, &R::Lopen { qid: *qid, iounit: IOUNIT }, version),
            Reply::Open(qid) => out.push(tag, &R::Open { qid: *qid, iounit: IOUNIT }, version),
            Reply::Create(qid) if linux => out.push(tag, &R::Lcreate { qid: *qid, iounit: IOUNIT }, version),
            Reply::Create(qid) => out.push(tag, &R::Create { qid: *qid, iounit: IOUNIT }, version),
            Reply::Write(count) => out.push(tag, &R::Write { count: *count }, version),
            Reply::Stat(stat) => {
                let mut bytes = Vec::new();
                stat.as_stat().encode(version.dialect, &mut bytes);
                out.push(tag, &R::Stat { stat: StatBytes(&bytes) }, version);
            }
            Reply::Statfs(s) => {
                let reply = R::Statfs {
                    fstype: Octal(s.fstype),
                    bsize: s.bsize,
                    blocks: s.blocks,
                    bfree: s.bfree,
                    bavail: s.bavail,
                    files: s.files,
                    ffree: s.ffree,
                    fsid: Mask(s.fsid),
                    namelen: s.namelen,
                };
                out.push(tag, &reply, version);
            }
            Reply::Readlink(target) => out.push(tag, &R::Readlink { target }, version),
            Reply::Getattr(attr) => out.push(tag, &R::from(attr), version),
            Reply::Xattrwalk(size) => out.push(tag, &R::Xattrwalk { size: *size }, version),
            Reply::Lock(status) => out.push(tag, &R::Lock { status: *status }, version),
            Reply::Getlock(holder) => {
                let Holder { kind, start, length, proc_id, client_id } = holder;
                let (locktype, start, length, proc_id) = (*kind, *start, *length, *proc_id);
                out.push(tag, &R::Getlock { locktype, start, length, proc_id, client_id }, version);
            }
            Reply::Plain { number, qid } => out.push(tag, &plain(*number, qid.unwrap_or_default()), version),
            Reply::Access(mode) => out.push(tag, &R::Access { mode: Octal(*mode) }, version),
            Reply::Writex { offset, count } => {
                out.push(tag, &R::Writex { offset: *offset, count: *count }, version);
            }
            Reply::Copyrange(count) => out.push(tag, &R::Copyrange { count: *count }, version),
            Reply::Seek(offset) => out.push(tag, &R::Seek { offset: *offset }, version),
            Reply::Stream(Streaming { id, token, modrev, offset, length, address }) => {
                let (data, addr) = if linux { (&[][..], &address[..]) } else { (&address[..], &[][..]) };
                let (id, token, modrev) = (*id, *token, *modrev);
                let (offset, length) = (*offset, length.unwrap_or(0));
                out.push(tag, &R::Stream { data: LongStr(data), id, token, modrev, offset, length, addr }, version);
            }
            Reply::StreamEnd { count, modrev } => {
                out.push(tag, &R::Streamend { count: *count, modrev: *modrev }, version);
            }
            Reply::Read(_) | Reply::Readdir(_) | Reply::Readdirplus { .. } => {}
        }
        match self {
            // Bulk counts were cut to fit before the file server was asked.
            Reply::Read(data) => out.push_bulk(RREAD, tag, None, data),
            Reply::Readdir(data) => out.push_bulk(RREADDIR, tag, None, data),
            Reply::Readdirplus { entries, end } => {
                out.push_bulk(RREADDIRPLUS, tag, Some(if end { listed::END } else { 0 }), entries);
            }
            Reply::Error(_) => {}
            _ if out.mark() - mark > (msize as usize).max(HEADER) => {
                out.truncate(mark);
                let error = Error::with_text(Errno::EMSGSIZE, "reply does not fit the msize");
                Reply::Error(error).push(tag, version, msize, out);
                return false;
            }
            _ => {}
        }
        true
    }
}

/// The replies that carry nothing, or one qid, by the number of their T message.
fn plain(number: u8, qid: Qid) -> R<'static> {
    match number {
        120 => R::Clunk {},
        122 => R::Remove {},
        126 => R::Wstat {},
        16 => R::Symlink { qid },
        18 => R::Mknod { qid },
        20 => R::Rename {},
        26 => R::Setattr {},
        32 => R::Xattrcreate {},
        50 => R::Fsync {},
        70 => R::Link {},
        72 => R::Mkdir { qid },
        74 => R::Renameat {},
        76 => R::Unlinkat {},
        184 => R::Allocate {},
        188 => R::Rename2 {},
        190 => R::Guard {},
        // Not reached: every other message has a reply of its own above. The client learns that, too.
        _ => R::Lerror { ecode: Errno::EPROTO.0, retry_ms: 0, text: b"" },
    }
}

/// The limits that Rsession tells, in its order.
type SessionLimits = [u32; 5];

fn session(qid: Qid, begun: Begun, [fids, running, parked, group, waiting]: SessionLimits) -> R<'static> {
    let Begun { epoch, time } = begun;
    R::Session {
        caps: Mask(0),
        epoch,
        time_sec: time.sec as u64,
        time_nsec: time.nsec.into(),
        term_ms: 0,
        fids,
        running,
        parked,
        group,
        waiting,
        qid,
    }
}

/// Whether records of `len` bytes can end so.
fn are_ends(ends: &[RecordEnd], len: usize) -> bool {
    ends.is_sorted_by(|a, b| a.end < b.end) && ends.last().map_or(0, |last| last.end as usize) == len
}

impl<F: Clone, P: Bulk + From<Vec<u8>>, B: AsRef<[u8]> + Clone + From<Vec<u8>>> Session<F, P, B> {
    /// Whether it reads a directory on, with less room than the messages have.
    fn is_rest_of_a_buffer(&self, after: After) -> bool {
        matches!(after, After::ReadStats { from, count } if from.offset > 0 && count < self.msize - LINUX_OVERHEAD)
    }

    /// Does to the fids what the result means, and makes the reply.
    pub(super) fn settle(&mut self, request: &Outstanding, result: Result<Done<F, P>, Error>) -> Reply<P> {
        if let Some(fid) = request.after.new_fid() {
            // Made good below where the request succeeded.
            self.fids.unreserve(fid);
        }
        let done = match result {
            Ok(done) => done,
            // Linux's client fills a buffer of the message's size by asking again for what is left of it, until nothing comes,
            // and takes an error for that of the whole listing. The next read, with room, goes on from where this one is.
            Err(error) if error.errno == Errno::EINVAL && self.is_rest_of_a_buffer(request.after) => {
                return Reply::Read(Vec::new().into());
            }
            Err(error) => return Reply::Error(error),
        };
        let read_only = request.handles[0].and_then(|h| self.fids.get(h)).is_some_and(|h| h.read_only);
        match (request.after, done) {
            (After::Attach { fid }, Done::Attached { qid, file, read_only }) => {
                self.fids.establish(fid, file, qid, Mode::Walked, read_only);
                Reply::Attach(qid)
            }
            (After::Session { fid }, Done::SessionBegun { qid, file, read_only, begun }) => {
                self.fids.establish(fid, file, qid, Mode::Walked, read_only);
                self.epoch = Some(begun.epoch);
                let l = &self.limits;
                let limits = [l.fids, l.running, l.parked, l.group, l.waiting];
                Reply::Session(qid, begun, limits.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)))
            }
            (After::Walk { fid, newfid, names }, Done::Walked { qids, file }) => {
                self.walked(request, fid, newfid, names, qids, file, read_only)
            }
            (After::Open { how }, Done::Opened { qid }) => {
                if let Some(handle) = request.handles[0].and_then(|h| self.fids.get(h)) {
                    handle.kind = qid.kind;
                    handle.mode = Mode::open(how);
                }
                Reply::Open(qid)
            }
            (After::Create { fid, how }, Done::Created { qid, file, opened }) => {
                let mode = match opened {
                    true => Mode::open(how),
                    false => Mode::Walked,
                };
                // The directory's own file is taken leave of; the fid stands for the new one. A fid that was
                // clunked meanwhile stays gone.
                if self.is_fid_of(fid, request) {
                    self.replace(fid, file, qid, mode, read_only);
                } else {
                    self.orphan(file, qid, mode, read_only);
                }
                Reply::Create(qid)
            }
            (After::Read { count }, Done::Data(data)) if data.len() <= count as usize => Reply::Read(data),
            (After::Readdir { count }, Done::Data(data)) if data.len() <= count as usize => Reply::Readdir(data),
            (After::ReadStats { from, count }, Done::Stats(data, ends))
                if data.len() <= count as usize && are_ends(&ends, data.len()) =>
            {
                if let Some(id) = request.handles[0] {
                    self.fids.told(id, from, &ends, self.version.dialect == Dialect::Unix);
                }
                Reply::Read(data)
            }
            (After::Write { len }, Done::Count(count)) if count <= len => Reply::Write(count),
            (After::XattrRead { .. }, Done::Xattr { value, file })
                if self.fids.value_bytes() + value.len() > XATTR_BYTES =>
            {
                self.orphan(file, Qid::default(), Mode::Walked, true);
                Reply::Error(Error::with_text(Errno::ENOBUFS, "too many attribute values at a time"))
            }
            (After::XattrRead { newfid }, Done::Xattr { value, file }) => {
                let size = value.len() as u64;
                self.fids.establish(newfid, file, Qid::default(), Mode::XattrRead(Box::new(value)), true);
                Reply::Xattrwalk(size)
            }
            (After::Plain { number: 124 }, Done::Stat(stat)) => Reply::Stat(stat),
            (After::Plain { number: 8 }, Done::Statfs(statfs)) => Reply::Statfs(statfs),
            (After::Plain { number: 22 }, Done::Target(target)) => Reply::Readlink(target),
            (After::Plain { number: 24 }, Done::Attr(attr)) => Reply::Getattr(attr),
            (After::Plain { number: 52 }, Done::Lock { granted }) => {
                Reply::Lock(if granted { LOCK_SUCCESS } else { LOCK_BLOCKED })
            }
            (After::Plain { number: 54 }, Done::Getlock(holder)) => Reply::Getlock(holder.unwrap_or(Holder {
                kind: LOCK_TYPE_UNLCK,
                start: 0,
                length: 0,
                proc_id: 0,
                client_id: Vec::new(),
            })),
            (After::Plain { number: number @ (16 | 18 | 72) }, Done::Qid(qid)) => {
                Reply::Plain { number, qid: Some(qid) }
            }
            (
                After::Plain { number: number @ (20 | 26 | 50 | 70 | 74 | 76 | 126 | 184 | 188) }
                | After::Farewell { number, .. },
                Done::Unit,
            ) => Reply::Plain { number, qid: None },
            (After::N1(after), done) => self.settle_n1(request, after, done),
            (_, done) => self.out_of_contract(request, done),
        }
    }

    /// A file server that answers something else than it was asked, or more than was asked for. A file that
    /// came with it is taken leave of.
    pub(super) fn out_of_contract(&mut self, request: &Outstanding, done: Done<F, P>) -> Reply<P> {
        self.discard(request, Ok(done));
        Reply::Error(Error::with_text(Errno::EIO, "file server answered out of contract"))
    }

    /// Takes leave of what a request made for a session that is gone.
    pub(super) fn discard(&mut self, request: &Outstanding, result: Result<Done<F, P>, Error>) {
        match result {
            Ok(Done::Attached { qid, file, .. } | Done::SessionBegun { qid, file, .. }) => {
                self.orphan(file, qid, Mode::Walked, false);
            }
            Ok(Done::Walked { file: Some(file), .. }) => self.orphan(file, Qid::default(), Mode::Walked, true),
            Ok(Done::Xattr { file, .. }) => self.orphan(file, Qid::default(), Mode::Walked, true),
            Ok(Done::Created { qid, file, .. }) => {
                let remove = matches!(request.after, After::Create { how, .. } if how.remove_on_clunk);
                let access = crate::open::Access::Read;
                let mode = if remove { Mode::Open { access, remove, appends: false } } else { Mode::Walked };
                self.orphan(file, qid, mode, false);
            }
            _ => {}
        }
    }

    #[allow(clippy::too_many_arguments)] // the fields of one After and one Done
    fn walked(
        &mut self,
        request: &Outstanding,
        fid: crate::types::Fid,
        newfid: crate::types::Fid,
        names: usize,
        qids: Vec<Qid>,
        file: Option<F>,
        read_only: bool,
    ) -> Reply<P> {
        let full = qids.len() == names;
        if qids.len() > names || file.is_some() != full || (names > 0 && qids.is_empty()) {
            if let Some(file) = file {
                self.orphan(file, Qid::default(), Mode::Walked, true);
            }
            return Reply::Error(Error::with_text(Errno::EIO, "file server walked out of contract"));
        }
        if let Some(file) = file {
            let kind = request.handles[0].and_then(|h| self.fids.get(h)).map(|h| h.kind).unwrap_or_default();
            let qid = qids.last().copied().unwrap_or(Qid { kind, ..Qid::default() });
            if fid != newfid {
                self.fids.establish(newfid, file, qid, Mode::Walked, read_only);
            } else if self.is_fid_of(fid, request) {
                self.replace(fid, file, qid, Mode::Walked, read_only);
            } else {
                self.orphan(file, qid, Mode::Walked, read_only);
            }
        }
        Reply::Walk(qids)
    }

    /// Whether `fid` still stands for the handle that the request used.
    fn is_fid_of(&self, fid: crate::types::Fid, request: &Outstanding) -> bool {
        matches!(self.fids.lookup(fid), super::fids::Lookup::Live(id) if Some(id) == request.handles[0])
    }

    /// Gives `fid` a new file; the old one is taken leave of.
    fn replace(&mut self, fid: crate::types::Fid, file: F, qid: Qid, mode: Mode, read_only: bool) {
        if let Some(old) = self.fids.forget(fid) {
            self.retire(old, Fate::default());
        }
        self.fids.establish(fid, file, qid, mode, read_only);
    }

    /// Takes leave of a file that no fid will ever stand for.
    fn orphan(&mut self, file: F, qid: Qid, mode: Mode, read_only: bool) {
        let id = self.fids.insert(file, None, qid, mode, read_only);
        self.retire(id, Fate::default());
    }
}
