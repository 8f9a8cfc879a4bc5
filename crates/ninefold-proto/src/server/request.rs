//! From a decoded T message to an [`Op`]: every check of fids, names, modes, offsets and counts.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::str::FromStr;

use super::fids::{Fate, HandleId, Lookup, Mode, Written};
use super::groups::Course;
use super::op::{Op, Request, RequestId, Special};
use super::outbox::{Bulk, Outbox};
use super::reply::Reply;
use super::session::{After, Event, Session};
use crate::attr::{SetAttr, SetTime, Time, setattr};
use crate::dialect::Dialect;
use crate::error::{Errno, Error};
use crate::message::{Names, Optional, T};
use crate::n1;
use crate::open::{Open, lflags};
use crate::stat::{Stat, dm, omode};
use crate::types::{BadName, Fid, MAXWELEM, Name, Tag, WalkElem};
use crate::wire::READ_OVERHEAD;

/// The longest value of an extended attribute that Linux takes (XATTR_SIZE_MAX).
const XATTR_SIZE_MAX: u64 = 65536;

/// Bytes of attributes' values that the fids of a connection may hold: 64 of the longest. Linux's client clunks each
/// fid of an attribute in the call that made it.
pub(super) const XATTR_BYTES: usize = 64 * XATTR_SIZE_MAX as usize;
/// Tunlinkat's AT_REMOVEDIR.
const AT_REMOVEDIR: u32 = 0x200;

/// Tremove's number.
const TREMOVE: u8 = 122;

/// Tguard's number.
const TGUARD: u8 = 190;

/// Tlock's flag that asks to wait (`P9_LOCK_FLAGS_BLOCK`), and reclaim, which changes nothing here.
const LOCK_BLOCK: u32 = 1;
const LOCK_RECLAIM: u32 = 2;

/// Why a request is never carried out, whatever it asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    NoRoom,
    /// By its Tguard.
    Cancelled,
}

impl Refusal {
    pub(super) fn error(self) -> Error {
        match self {
            Refusal::NoRoom => no_room(),
            Refusal::Cancelled => cancelled(),
        }
    }
}

/// Why a request is not carried out now.
pub(super) enum Stop {
    /// It is answered with this error.
    Refused(Error),
    /// It must wait for one that runs, or that waits before it, for this fid.
    Busy(Fid),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Refused(error)
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Refused(errno.into())
    }
}

pub(super) fn refused<V>(errno: Errno, text: &'static str) -> Result<V, Stop> {
    Err(Stop::Refused(Error::with_text(errno, text)))
}

pub(super) fn unknown_fid() -> Error {
    Error::with_text(Errno::EBADF, "unknown fid")
}

/// When there may be room again: soon, if others are answered.
const ROOM_IN: u32 = 100;

/// Too many requests of the connection wait.
pub(super) fn no_room() -> Error {
    Error::try_later(ROOM_IN, "too many requests of this connection wait already")
}

/// What its Tguard asked does not hold, or does not any more.
pub(super) fn cancelled() -> Error {
    Error::with_text(Errno::ECANCELED, "its guard does not hold")
}

/// What uses the fid may never end.
pub(super) fn fid_in_use() -> Error {
    Error::with_text(Errno::EBUSY, "fid is in use by another request")
}

fn bad_name(bad: BadName) -> Error {
    let (errno, text) = match bad {
        BadName::Empty => (Errno::EINVAL, "file name is empty"),
        BadName::Dots => (Errno::EINVAL, "file name is '.' or '..'"),
        BadName::Forbidden => (Errno::EINVAL, "file name contains '/' or NUL"),
        BadName::TooLong => (Errno::ENAMETOOLONG, "file name too long"),
    };
    Error::with_text(errno, text)
}

pub(super) fn name(bytes: &[u8]) -> Result<Name<'_>, Stop> {
    Name::new(bytes).map_err(|bad| bad_name(bad).into())
}

/// A group that a request names; `u32::MAX` is none.
fn group(gid: u32) -> Option<u32> {
    (gid != u32::MAX).then_some(gid)
}

/// A request that has been checked: the op, what its completion does, the handles it uses.
pub(super) struct Checked<'a, F> {
    pub op: Op<'a, F>,
    pub after: After,
    pub handles: [Option<HandleId>; 2],
    /// Nothing may run beside it on the first handle.
    pub exclusive: bool,
    /// A fid that its completion may establish.
    pub reserve: Option<Fid>,
}

/// How a handle is to be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Shared,
    Exclusive,
}

impl<F: Clone, P: Bulk + From<Vec<u8>>, B: AsRef<[u8]> + Clone + From<Vec<u8>>> Session<F, P, B> {
    /// Carries out a request, or says what is to be; `Err`: it must wait for this fid.
    pub(super) fn handle_request<'a>(
        &mut self,
        tag: Tag,
        message: T<'a>,
        out: &mut Outbox<P>,
    ) -> Result<Event<'a, F>, Fid> {
        let result = match message {
            T::Clunk { fid } | T::Remove { fid } => match self.farewell(tag, fid, message.number(), None) {
                Ok(waits) if waits.is_empty() => Ok(()),
                Ok(waits) => return Ok(Event::Cancel(waits)),
                Err(error) => Err(Stop::Refused(error)),
            },
            T::Read { fid, offset, count } if self.is_xattr(fid) => self.xattr_read(tag, fid, offset, count, out),
            T::Write { fid, offset, data } if self.is_xattr(fid) => self.xattr_write(tag, fid, offset, data.0, out),
            T::Guard { flags, epoch, lease, opid, members, .. } => {
                self.guard(tag, flags.0, (epoch, lease, opid), members, out)
            }
            T::Xattrcreate { fid, name, attr_size, flags } => self.xattr_create(tag, fid, name, attr_size, flags, out),
            message => match self.check(message) {
                Ok(checked) => return Ok(Event::Execute(self.begin(tag, checked))),
                Err(stop) => Err(stop),
            },
        };
        match result {
            Ok(()) => {}
            Err(Stop::Refused(error)) => self.refuse(tag, error, out),
            Err(Stop::Busy(fid)) => return Err(fid),
        }
        Ok(Event::Handled)
    }

    /// Whether others wait for a fid, before a request that did not.
    fn has_queue(&self, fid: Fid) -> bool {
        self.woken != Some(fid) && self.groups.as_ref().is_some_and(|groups| groups.has_queue(fid))
    }

    pub(super) fn begin<'a>(&mut self, tag: Tag, checked: Checked<'a, F>) -> Request<'a, F> {
        let Checked { op, after, handles, exclusive, reserve } = checked;
        let id = self.admit(tag, after, handles);
        if let Some(handle) = handles[0].filter(|_| exclusive).and_then(|h| self.fids.get(h)) {
            handle.exclusive = true;
        }
        if let Some(fid) = reserve {
            self.fids.reserve(fid);
        }
        Request { id, dialect: self.version.dialect, op }
    }

    /// The handle of a fid, free for this use.
    fn handle(&mut self, fid: Fid, how: Use) -> Result<HandleId, Stop> {
        let id = match self.fids.lookup(fid) {
            Lookup::Live(id) => id,
            // A walk that is not done may make it: a client that does not wait for its replies.
            Lookup::Reserved => return Err(Stop::Busy(fid)),
            Lookup::Unknown => return refused(Errno::EBADF, "unknown fid"),
        };
        let Some(handle) = self.fids.get(id) else { return refused(Errno::EBADF, "unknown fid") };
        if how == Use::Exclusive && handle.is_open() && !handle.is_dir() {
            // None of them works on an open file. It is not to wait, and hold up others, for a read that may never end.
            return refused(Errno::EBADF, "fid is open");
        }
        if self.has_queue(fid) {
            return Err(Stop::Busy(fid));
        }
        let Some(handle) = self.fids.get(id) else { return refused(Errno::EBADF, "unknown fid") };
        if handle.exclusive || (how == Use::Exclusive && handle.uses > 0) {
            return Err(Stop::Busy(fid));
        }
        Ok(id)
    }

    /// A shared handle and its file.
    pub(super) fn file(&mut self, fid: Fid) -> Result<(HandleId, F), Stop> {
        let id = self.handle(fid, Use::Shared)?;
        match self.fids.get(id) {
            Some(handle) if matches!(handle.mode, Mode::Walked | Mode::Open { .. }) => Ok((id, handle.file.clone())),
            _ => refused(Errno::EBADF, "fid is of an extended attribute"),
        }
    }

    /// A shared handle of a file that may be changed.
    fn writable(&mut self, fid: Fid) -> Result<(HandleId, F), Stop> {
        let (id, file) = self.file(fid)?;
        match self.fids.get(id) {
            Some(handle) if handle.read_only => Err(Errno::EROFS.into()),
            _ => Ok((id, file)),
        }
    }

    /// A shared handle of a directory that may be changed.
    pub(super) fn writable_dir(&mut self, fid: Fid) -> Result<(HandleId, F), Stop> {
        let (id, file) = self.writable(fid)?;
        match self.fids.get(id) {
            Some(handle) if !handle.is_dir() => Err(Errno::ENOTDIR.into()),
            _ => Ok((id, file)),
        }
    }

    /// A shared handle of a directory that is open.
    pub(super) fn readable_dir(&mut self, fid: Fid) -> Result<(HandleId, F), Stop> {
        let (id, file) = self.file(fid)?;
        let Some(handle) = self.fids.get(id) else { return Err(Errno::EBADF.into()) };
        handle.access()?;
        if handle.is_dir() { Ok((id, file)) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// A fid that does not exist yet.
    fn new_fid(&mut self, fid: Fid) -> Result<(), Stop> {
        if fid == Fid::NONE {
            return refused(Errno::EBADF, "fid -1 is no fid");
        }
        match self.fids.lookup(fid) {
            Lookup::Unknown if self.fids.len() >= self.limits.fids => refused(Errno::EMFILE, "too many fids"),
            Lookup::Unknown => Ok(()),
            Lookup::Reserved => Err(Stop::Busy(fid)),
            Lookup::Live(_) => refused(Errno::EBADF, "fid in use"),
        }
    }

    /// `count` cut to what a reply can carry, after the range was checked.
    fn read_count(&self, offset: u64, count: u32) -> Result<u32, Stop> {
        let count = count.min(self.msize - READ_OVERHEAD);
        let end = offset.checked_add(count.into());
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return refused(Errno::EINVAL, "offset and count overflow");
        }
        Ok(count)
    }

    /// A Twrite of `len` bytes; `op` is made of its file.
    pub(super) fn check_write<'a>(
        &mut self,
        fid: Fid,
        offset: u64,
        len: u32,
        op: impl FnOnce(F) -> Op<'a, F>,
    ) -> Result<Checked<'a, F>, Stop> {
        let (id, file) = self.file(fid)?;
        let Some(handle) = self.fids.get(id) else { return Err(Errno::EBADF.into()) };
        if !handle.access()?.can_write() {
            return refused(Errno::EBADF, "fid is not open for writing");
        }
        let end = offset.checked_add(len.into());
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return refused(Errno::EINVAL, "offset and count overflow");
        }
        let handles = [Some(id), None];
        Ok(Checked { op: op(file), after: After::Write { len }, handles, exclusive: false, reserve: None })
    }

    fn check<'a>(&mut self, message: T<'a>) -> Result<Checked<'a, F>, Stop> {
        let number = message.number();
        let plain = |op, first: HandleId, second: Option<HandleId>| Checked {
            op,
            after: After::Plain { number },
            handles: [Some(first), second],
            exclusive: false,
            reserve: None,
        };
        Ok(match message {
            T::Auth { .. } => {
                // diod's client takes ENOENT, and nothing else, for "attach without it".
                return refused(Errno::ENOENT, "authentication not required");
            }
            T::Attach { fid, afid, uname, aname, n_uname } => {
                if afid != Fid::NONE {
                    return refused(Errno::EBADF, "unknown fid");
                }
                self.new_fid(fid)?;
                Checked {
                    op: Op::Attach { uname, n_uname, aname },
                    after: After::Attach { fid },
                    handles: [None, None],
                    exclusive: false,
                    reserve: Some(fid),
                }
            }
            T::Walk { fid, newfid, wnames } => self.check_walk(fid, newfid, wnames)?,
            T::Open { fid, mode } => self.check_open(fid, Open::from_mode(mode, self.version.dialect)?)?,
            T::Lopen { fid, flags } => self.check_open(fid, Open::from_lflags(flags.0)?)?,
            T::Create { fid, name: n, perm, mode, extension } => {
                // Nix's create-or-truncate, and the bit that asks for open(5)'s create.
                let opens = self.groups.is_some() && mode & omode::EXCL == 0;
                let mode = if self.groups.is_some() { mode & !omode::EXCL } else { mode };
                let how = Open::from_mode(mode, self.version.dialect)?;
                self.check_create(fid, name(n)?, perm.0, how, !opens, extension)?
            }
            T::Lcreate { fid, name: n, flags, mode, gid } => {
                let how = Open::from_lflags(flags.0)?;
                let exclusive = how.has(lflags::EXCL);
                let handle = self.creatable(fid)?;
                let file = self.file_of(handle)?;
                let op =
                    Op::Create { file, name: name(n)?, mode: mode.0 & 0o7777, dm: 0, gid: group(gid), how, exclusive };
                creating(fid, handle, how, op)
            }
            T::Read { fid, offset, count } => self.check_read(fid, offset, count)?,
            T::Readdir { fid, offset, count } => {
                let (id, file) = self.readable_dir(fid)?;
                let count = count.min(self.msize - READ_OVERHEAD);
                let op = Op::Readdir { file, offset, max: count };
                Checked { after: After::Readdir { count }, ..plain(op, id, None) }
            }
            T::Write { fid, offset, data } => {
                self.check_write(fid, offset, data.0.len() as u32, |file| Op::Write { file, offset, data: data.0 })?
            }
            T::Stat { fid } => {
                let (id, file) = self.file(fid)?;
                plain(Op::Stat { file }, id, None)
            }
            T::Wstat { fid, stat } => {
                let stat = Stat::decode(stat.0, self.version.dialect)
                    .map_err(|_| Error::with_text(Errno::EINVAL, "malformed stat record"))?;
                let (id, file) = self.writable(fid)?;
                if !stat.name.is_empty() {
                    name(stat.name)?;
                }
                if stat.length != u64::MAX && stat.length > i64::MAX as u64 {
                    return refused(Errno::EINVAL, "length overflows");
                }
                plain(Op::Wstat { file, stat }, id, None)
            }
            T::Statfs { fid } => {
                let (id, file) = self.file(fid)?;
                plain(Op::Statfs { file }, id, None)
            }
            T::Symlink { dfid, name: n, symtgt, gid } => {
                let (id, file) = self.writable_dir(dfid)?;
                if symtgt.is_empty() || symtgt.contains(&0) {
                    return refused(Errno::EINVAL, "bad link target");
                }
                plain(Op::Symlink { file, name: name(n)?, target: symtgt, gid: group(gid) }, id, None)
            }
            T::Mknod { dfid, name: n, mode, major, minor, gid } => {
                let (id, file) = self.writable_dir(dfid)?;
                plain(Op::Mknod { file, name: name(n)?, mode: mode.0, major, minor, gid: group(gid) }, id, None)
            }
            T::Mkdir { dfid, name: n, mode, gid } => {
                let (id, file) = self.writable_dir(dfid)?;
                plain(Op::Mkdir { file, name: name(n)?, mode: mode.0 & 0o7777, gid: group(gid) }, id, None)
            }
            T::Rename { fid, dfid, name: n } => {
                let (id, file) = self.writable(fid)?;
                let (dir, newdir) = self.writable_dir(dfid)?;
                plain(Op::Rename { file, newdir, name: name(n)? }, id, Some(dir))
            }
            T::Renameat { olddirfid, oldname, newdirfid, newname } => {
                let (id, file) = self.writable_dir(olddirfid)?;
                let (dir, newdir) = self.writable_dir(newdirfid)?;
                let op = Op::RenameEntry { file, old: name(oldname)?, newdir, new: name(newname)? };
                plain(op, id, Some(dir))
            }
            T::Unlinkat { dirfid, name: n, flags } => {
                let (id, file) = self.writable_dir(dirfid)?;
                if flags.0 & !AT_REMOVEDIR != 0 {
                    return refused(Errno::EINVAL, "unknown unlink flags");
                }
                plain(Op::Unlink { file, name: name(n)?, dir: flags.0 & AT_REMOVEDIR != 0 }, id, None)
            }
            T::Link { dfid, fid, name: n } => {
                let (id, file) = self.writable_dir(dfid)?;
                let (other, target) = self.file(fid)?;
                plain(Op::Link { file, target, name: name(n)? }, id, Some(other))
            }
            T::Readlink { fid } => {
                let (id, file) = self.file(fid)?;
                plain(Op::Readlink { file }, id, None)
            }
            T::Getattr { fid, request_mask } => {
                let (id, file) = self.file(fid)?;
                plain(Op::Getattr { file, mask: request_mask.0 }, id, None)
            }
            T::Setattr { fid, valid, mode, uid, gid, size, atime_sec, atime_nsec, mtime_sec, mtime_nsec } => {
                let (id, file) = self.writable(fid)?;
                let valid = valid.0;
                if valid & !setattr::ALL != 0 {
                    return refused(Errno::EINVAL, "unknown attribute bits");
                }
                let has = |bit| valid & bit != 0;
                let time = |bit, set, sec: u64, nsec: u64| -> Result<Option<SetTime>, Stop> {
                    if !has(bit) {
                        return Ok(None);
                    }
                    if !has(set) {
                        return Ok(Some(SetTime::Now));
                    }
                    let nsec = u32::try_from(nsec).ok().filter(|n| *n < 1_000_000_000).ok_or(Errno::EINVAL)?;
                    Ok(Some(SetTime::To(Time { sec: sec as i64, nsec })))
                };
                if has(setattr::SIZE) && size > i64::MAX as u64 {
                    return Err(Errno::EFBIG.into());
                }
                let set = SetAttr {
                    mode: has(setattr::MODE).then_some(mode.0 & 0o7777),
                    uid: has(setattr::UID).then_some(uid),
                    gid: has(setattr::GID).then_some(gid),
                    size: has(setattr::SIZE).then_some(size),
                    atime: time(setattr::ATIME, setattr::ATIME_SET, atime_sec, atime_nsec)?,
                    mtime: time(setattr::MTIME, setattr::MTIME_SET, mtime_sec, mtime_nsec)?,
                    ctime: has(setattr::CTIME),
                };
                plain(Op::Setattr { file, set }, id, None)
            }
            T::Xattrwalk { fid, newfid, name } => {
                let (id, file) = self.file(fid)?;
                self.new_fid(newfid)?;
                Checked {
                    after: After::XattrRead { newfid },
                    reserve: Some(newfid),
                    ..plain(Op::XattrRead { file, name }, id, None)
                }
            }
            T::Fsync { fid, datasync: Optional(datasync) } => {
                let (id, file) = self.file(fid)?;
                if let Some(handle) = self.fids.get(id) {
                    handle.access()?;
                }
                plain(Op::Fsync { file, datasync: datasync != 0 }, id, None)
            }
            T::Lock { fid, locktype, flags, start, length, proc_id, client_id } => {
                let (id, file) = self.lockable(fid, locktype, start, length)?;
                if flags & !(LOCK_BLOCK | LOCK_RECLAIM) != 0 {
                    return refused(Errno::EINVAL, "unknown lock flags");
                }
                let wait = flags & LOCK_BLOCK != 0;
                plain(Op::Lock { file, kind: locktype, start, length, proc_id, client_id, wait }, id, None)
            }
            T::Getlock { fid, locktype, start, length, proc_id, client_id } => {
                let (id, file) = self.lockable(fid, locktype, start, length)?;
                plain(Op::Getlock { file, kind: locktype, start, length, proc_id, client_id }, id, None)
            }
            // Taken care of before.
            T::Version { .. }
            | T::Flush { .. }
            | T::Clunk { .. }
            | T::Remove { .. }
            | T::Xattrcreate { .. }
            | T::Guard { .. } => {
                return Err(Errno::EPROTO.into());
            }
            T::Session { flags, session, caps: _, fid, uname, aname, n_uname } => {
                if flags.0 & !n1::session::ALL != 0 {
                    return refused(Errno::EINVAL, "unknown session flags");
                }
                self.new_fid(fid)?;
                let create = flags.0 & n1::session::CREATE != 0;
                Checked {
                    op: Op::Session { session, create, uname, n_uname, aname },
                    after: After::Session { fid },
                    handles: [None, None],
                    exclusive: false,
                    reserve: Some(fid),
                }
            }
            message @ (T::Readdirplus { .. }
            | T::Access { .. }
            | T::Writex { .. }
            | T::Copyrange { .. }
            | T::Allocate { .. }
            | T::Seek { .. }
            | T::Rename2 { .. }) => self.check_n1(message)?,
            message @ (T::Stream { .. } | T::Streamend { .. }) => self.check_stream(message)?,
            T::Never(never, _) => match never {},
        })
    }

    fn check_walk<'a>(&mut self, fid: Fid, newfid: Fid, names: Names<'a>) -> Result<Checked<'a, F>, Stop> {
        let in_place = newfid == fid;
        let id = self.handle(fid, if in_place { Use::Exclusive } else { Use::Shared })?;
        let linux = self.version.dialect == Dialect::Linux;
        let (_, file) = self.file(fid)?;
        let Some(handle) = self.fids.get(id) else { return Err(Errno::EBADF.into()) };
        // diod's client, and Linux's, walk from open directories; the manual forbids it (walk(5)).
        if handle.is_open() && (in_place || !linux) {
            return refused(Errno::EBADF, "fid is open");
        }
        if !names.is_empty() && !handle.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if names.len() > MAXWELEM {
            return refused(Errno::EINVAL, "too many names in walk");
        }
        if !in_place {
            self.new_fid(newfid)?;
        }
        // Where '.' is listed, clients that walk to all that is listed meet it.
        let dots = self.version.dialect != Dialect::Plan9;
        let elems: Result<Vec<_>, _> = names.iter().map(|bytes| WalkElem::new(bytes, dots)).collect();
        Ok(Checked {
            op: Op::Walk { file, elems: elems.map_err(bad_name)? },
            after: After::Walk { fid, newfid, names: names.len() },
            handles: [Some(id), None],
            exclusive: in_place,
            reserve: (!in_place).then_some(newfid),
        })
    }

    fn check_open<'a>(&mut self, fid: Fid, how: Open) -> Result<Checked<'a, F>, Stop> {
        let id = self.handle(fid, Use::Exclusive)?;
        let (_, file) = self.file(fid)?;
        let linux = self.version.dialect == Dialect::Linux;
        let Some(handle) = self.fids.get(id) else { return Err(Errno::EBADF.into()) };
        if handle.is_open() {
            return refused(Errno::EBADF, "fid is open");
        }
        let changes = how.access.can_write() || how.has(lflags::TRUNC) || how.remove_on_clunk;
        if handle.is_dir() && changes {
            return Err(Errno::EISDIR.into());
        }
        if linux && how.has(lflags::DIRECTORY) && !handle.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if changes && handle.read_only {
            return Err(Errno::EROFS.into());
        }
        Ok(Checked {
            op: Op::Open { file, how },
            after: After::Open { how },
            handles: [Some(id), None],
            exclusive: true,
            reserve: None,
        })
    }

    /// The handle of a directory in which something is created that the fid will then stand for.
    fn creatable(&mut self, fid: Fid) -> Result<HandleId, Stop> {
        let id = self.handle(fid, Use::Exclusive)?;
        self.writable_dir(fid)?;
        match self.fids.get(id) {
            Some(handle) if handle.is_open() => refused(Errno::EBADF, "fid is open"),
            _ => Ok(id),
        }
    }

    fn file_of(&mut self, id: HandleId) -> Result<F, Stop> {
        self.fids.get(id).map(|handle| handle.file.clone()).ok_or(Stop::Refused(Errno::EBADF.into()))
    }

    fn check_create<'a>(
        &mut self,
        fid: Fid,
        name: Name<'a>,
        perm: u32,
        how: Open,
        exclusive: bool,
        extension: &'a [u8],
    ) -> Result<Checked<'a, F>, Stop> {
        let handle = self.creatable(fid)?;
        let file = self.file_of(handle)?;
        let unix = self.version.dialect == Dialect::Unix;
        let known = dm::DIR | dm::APPEND | dm::EXCL | dm::TMP | 0o777 | if unix { dm::UNIX } else { 0 };
        if perm & !known != 0 {
            return refused(Errno::EINVAL, "bad create mode");
        }
        let mut mode = perm & 0o777;
        for (bit, unix_bit) in [(dm::SETUID, 0o4000), (dm::SETGID, 0o2000), (dm::SETVTX, 0o1000)] {
            if perm & bit != 0 {
                mode |= unix_bit;
            }
        }
        let kinds = perm & (dm::DIR | dm::SYMLINK | dm::LINK | dm::DEVICE | dm::NAMEDPIPE | dm::SOCKET);
        let special = match kinds {
            0 => {
                let dm = perm & (dm::APPEND | dm::EXCL | dm::TMP);
                let how = Open { flags: how.flags | if exclusive { 0 } else { lflags::TRUNC }, ..how };
                let op = Op::Create { file, name, mode, dm, gid: None, how, exclusive };
                return Ok(creating(fid, handle, how, op));
            }
            // open(5): a directory is created for reading only.
            dm::DIR if how.access.can_write() || how.remove_on_clunk || how.has(lflags::TRUNC) => {
                return Err(Errno::EISDIR.into());
            }
            dm::DIR => Special::Dir,
            dm::SYMLINK if extension.is_empty() || extension.contains(&0) => {
                return refused(Errno::EINVAL, "bad link target");
            }
            dm::SYMLINK => Special::Symlink { target: extension },
            dm::LINK => {
                let Some(target) = number(extension) else { return refused(Errno::EINVAL, "bad fid in extension") };
                let (id, target) = self.file(Fid(target))?;
                let op = Op::CreateSpecial { file, name, mode, special: Special::Link { target }, how };
                let mut checked = creating(fid, handle, how, op);
                checked.handles[1] = (id != handle).then_some(id);
                return Ok(checked);
            }
            dm::DEVICE => match device(extension) {
                Some((kind, major, minor)) => Special::Node { mode: kind, major, minor },
                None => return refused(Errno::EINVAL, "extension is not 'b MAJOR MINOR' or 'c MAJOR MINOR'"),
            },
            dm::NAMEDPIPE => Special::Node { mode: S_IFIFO, major: 0, minor: 0 },
            dm::SOCKET => Special::Node { mode: S_IFSOCK, major: 0, minor: 0 },
            _ => return refused(Errno::EINVAL, "create mode names two kinds of file"),
        };
        let op = Op::CreateSpecial { file, name, mode, special, how };
        Ok(creating(fid, handle, how, op))
    }

    fn check_read<'a>(&mut self, fid: Fid, offset: u64, count: u32) -> Result<Checked<'a, F>, Stop> {
        let (id, file) = self.file(fid)?;
        let dialect = self.version.dialect;
        let Some(handle) = self.fids.get(id) else { return Err(Errno::EBADF.into()) };
        if !handle.access()?.can_read() {
            return refused(Errno::EBADF, "fid is not open for reading");
        }
        let (is_dir, place) = (handle.is_dir(), handle.place(offset));
        if is_dir && dialect == Dialect::Linux {
            return Err(Errno::EISDIR.into());
        }
        let count = self.read_count(offset, count)?;
        if !is_dir {
            let op = Op::Read { file, offset, count };
            let after = After::Read { count };
            return Ok(Checked { op, after, handles: [Some(id), None], exclusive: false, reserve: None });
        }
        let Some(from) = place else { return refused(Errno::EINVAL, "bad offset in directory read") };
        self.handle(fid, Use::Exclusive)?;
        Ok(Checked {
            op: Op::ReadStats { file, at: from.cookie, max: count },
            after: After::ReadStats { from, count },
            handles: [Some(id), None],
            exclusive: true,
            reserve: None,
        })
    }

    fn lockable(&mut self, fid: Fid, kind: u8, start: u64, length: u64) -> Result<(HandleId, F), Stop> {
        let (id, file) = self.file(fid)?;
        if let Some(handle) = self.fids.get(id) {
            handle.access()?;
        }
        if kind > 2 {
            return refused(Errno::EINVAL, "unknown lock type");
        }
        if start.checked_add(length).is_none_or(|end| end > i64::MAX as u64) && length != 0 || start > i64::MAX as u64 {
            return Err(Errno::EOVERFLOW.into());
        }
        Ok((id, file))
    }

    /// Tclunk and Tremove: the fid is gone from now on, whatever comes of it (clunk(5), remove(5)). The requests
    /// that still use the file are to wait no longer, or the farewell might never come.
    ///
    /// `refused`: the fid goes, with an error; nothing is removed.
    pub(super) fn farewell(
        &mut self,
        tag: Tag,
        fid: Fid,
        number: u8,
        refused: Option<Refusal>,
    ) -> Result<Vec<RequestId>, Error> {
        let after = After::Farewell { number, refused };
        let id = match self.fids.lookup(fid) {
            Lookup::Live(id) => id,
            Lookup::Reserved => return self.farewell_ahead(tag, fid, after),
            Lookup::Unknown => return Err(unknown_fid()),
        };
        self.fids.forget(fid);
        if let Some(groups) = &mut self.groups {
            // What waits for it need not any longer: it is not known.
            groups.freed(fid);
        }
        let waits = self.users(id);
        let request = self.admit(tag, after, [None, None]);
        self.retire_for(id, request, number, refused);
        Ok(waits)
    }

    /// The same for a fid that is not made yet, by a client that does not wait for its replies. Holding it back could
    /// hold up a Tflush; refusing it would leave a fid that the client believes gone.
    fn farewell_ahead(&mut self, tag: Tag, fid: Fid, after: After) -> Result<Vec<RequestId>, Error> {
        match self.maker(fid) {
            Some((_, request)) if request.parting.is_none() => {}
            _ => return Err(unknown_fid()),
        }
        let parting = self.admit(tag, after, [None, None]);
        let Some((maker, request)) = self.maker(fid) else { return Ok(Vec::new()) };
        request.parting = Some(parting);
        Ok(Vec::from([maker]))
    }

    /// Goes on with a Tclunk or Tremove that came before its fid was made, which it now was, or not.
    pub(super) fn part(&mut self, fid: Option<Fid>, parting: RequestId, out: &mut Outbox<P>) {
        match (fid.and_then(|fid| self.fids.forget(fid)), self.after(parting)) {
            (Some(id), Some(After::Farewell { number, refused })) => self.retire_for(id, parting, number, refused),
            _ => self.complete(parting, Err(unknown_fid()), out),
        }
    }

    fn retire_for(&mut self, id: HandleId, request: RequestId, number: u8, refused: Option<Refusal>) {
        let remove = number == TREMOVE && refused.is_none();
        let read_only = self.fids.get(id).is_some_and(|handle| handle.read_only);
        let error = match refused {
            Some(refusal) => Some(refusal.error()),
            None => (remove && read_only).then(|| Errno::EROFS.into()),
        };
        self.retire(id, Fate { request: Some(request), remove, error, refused: refused.is_some() });
    }

    /// Tguard: its reply; where it does not hold, that nothing of what it guards is carried out; and where it says so, that it ends
    /// with what fails, or with the first if that does not.
    fn guard(
        &mut self,
        tag: Tag,
        flags: u32,
        (epoch, lease, opid): (u64, u32, u64),
        members: u16,
        out: &mut Outbox<P>,
    ) -> Result<(), Stop> {
        let course = match flags {
            0 => Some(Course::Free),
            n1::guard::STOP => Some(Course::UntilFailure),
            n1::guard::UNLESS => Some(Course::Unless),
            _ => None,
        };
        // No run of a server is 0: a group that goes with its Tsession cannot know which it will be.
        let asks = flags == 0 || epoch != 0;
        let error = match course {
            None => Error::with_text(Errno::EINVAL, "unknown guard flags"),
            Some(course) if course != Course::Free && !self.takes_guard(tag, course) => {
                Error::with_text(Errno::EINVAL, "a guard of this kind among what another guards")
            }
            _ if usize::from(members) >= self.limits.group => {
                Error::with_text(Errno::EINVAL, "a guard of more requests than a tag may have")
            }
            // Telling a group that is sent again comes with sessions that are resumed.
            _ if opid != 0 => Error::with_text(Errno::EOPNOTSUPP, "operations are not remembered"),
            // Nobody holds a lease.
            _ if asks && self.epoch != Some(epoch) || lease != 0 => cancelled(),
            Some(course) => {
                Reply::<P>::Plain { number: TGUARD, qid: None }.push(tag, self.version, self.msize, out);
                if course != Course::Free && members > 0 {
                    self.guard_behind(tag, members, course);
                }
                return Ok(());
            }
        };
        self.guard_behind(tag, members, Course::Cancelled);
        Err(Stop::Refused(error))
    }

    fn is_xattr(&mut self, fid: Fid) -> bool {
        let Lookup::Live(id) = self.fids.lookup(fid) else { return false };
        self.fids.get(id).is_some_and(|h| matches!(h.mode, Mode::XattrRead(_) | Mode::XattrWrite(_)))
    }

    fn xattr_read(&mut self, tag: Tag, fid: Fid, offset: u64, count: u32, out: &mut Outbox<P>) -> Result<(), Stop> {
        let count = self.read_count(offset, count)? as usize;
        let id = self.handle(fid, Use::Shared)?;
        let Some(Mode::XattrRead(value)) = self.fids.get(id).map(|handle| &handle.mode) else {
            return refused(Errno::EBADF, "fid is not open for reading");
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
        let data = value[from..(from + count).min(value.len())].to_vec();
        Reply::Read(P::from(data)).push(tag, self.version, self.msize, out);
        Ok(())
    }

    fn xattr_write(&mut self, tag: Tag, fid: Fid, offset: u64, data: &[u8], out: &mut Outbox<P>) -> Result<(), Stop> {
        let id = self.handle(fid, Use::Shared)?;
        let Some(Mode::XattrWrite(written)) = self.fids.get(id).map(|handle| &mut handle.mode) else {
            return refused(Errno::EBADF, "fid is not open for writing");
        };
        let Written { size, value, .. } = &mut **written;
        // The value comes in order; more than was announced is an error before it is kept.
        if offset != value.len() as u64 || value.len() + data.len() > *size {
            return refused(Errno::EINVAL, "attribute value is not written in order, or longer than announced");
        }
        value.extend_from_slice(data);
        Reply::<P>::Write(data.len() as u32).push(tag, self.version, self.msize, out);
        Ok(())
    }

    fn xattr_create(
        &mut self,
        tag: Tag,
        fid: Fid,
        name: &[u8],
        size: u64,
        flags: u32,
        out: &mut Outbox<P>,
    ) -> Result<(), Stop> {
        let id = self.handle(fid, Use::Exclusive)?;
        self.writable(fid)?;
        if name.is_empty() || name.len() > 255 || name.contains(&0) {
            return refused(Errno::ERANGE, "bad attribute name");
        }
        if size > XATTR_SIZE_MAX {
            return Err(Errno::E2BIG.into());
        }
        if flags & !3 != 0 {
            return refused(Errno::EINVAL, "unknown attribute flags");
        }
        let Some(handle) = self.fids.get(id) else { return Err(Errno::EBADF.into()) };
        if handle.is_open() {
            return refused(Errno::EBADF, "fid is open");
        }
        if self.fids.value_bytes() + size as usize > XATTR_BYTES {
            return refused(Errno::ENOBUFS, "too many attribute values at a time");
        }
        let written = Written { name: name.to_vec(), size: size as usize, flags, value: Vec::new() };
        self.fids.set_mode(id, Mode::XattrWrite(Box::new(written)));
        Reply::<P>::Plain { number: 32, qid: None }.push(tag, self.version, self.msize, out);
        Ok(())
    }
}

/// A create: nothing runs beside it on the directory's fid, which then stands for the new file.
fn creating<'a, F>(fid: Fid, handle: HandleId, how: Open, op: Op<'a, F>) -> Checked<'a, F> {
    Checked { op, after: After::Create { fid, how }, handles: [Some(handle), None], exclusive: true, reserve: None }
}

const S_IFIFO: u32 = 0o010000;
const S_IFCHR: u32 = 0o020000;
const S_IFBLK: u32 = 0o060000;
const S_IFSOCK: u32 = 0o140000;

fn number(text: &[u8]) -> Option<u32> {
    core::str::from_utf8(text).ok().and_then(|t| u32::from_str(t.trim()).ok())
}

/// `b 8 1` or `c 1 3`: the file type, major and minor.
fn device(extension: &[u8]) -> Option<(u32, u32, u32)> {
    let mut words = core::str::from_utf8(extension).ok()?.split_ascii_whitespace();
    let kind = match words.next()? {
        "b" => S_IFBLK,
        "c" => S_IFCHR,
        _ => return None,
    };
    let (major, minor) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some((kind, major, minor))
}
