//! A file of the tree, whatever its names: its kind, its attributes, and who may do what with it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ninefold_proto::attr::{SetAttr, SetTime, Time};
use ninefold_proto::stat::dm;
use ninefold_proto::{Errno, Qid, QidType};

use super::budget::Charge;
use super::content::{Content, MAX_SIZE};
use crate::server::User;

pub(super) const S_IFMT: u32 = 0o170_000;
pub(super) const S_IFSOCK: u32 = 0o140_000;
pub(super) const S_IFLNK: u32 = 0o120_000;
pub(super) const S_IFREG: u32 = 0o100_000;
pub(super) const S_IFBLK: u32 = 0o060_000;
pub(super) const S_IFDIR: u32 = 0o040_000;
pub(super) const S_IFCHR: u32 = 0o020_000;
pub(super) const S_IFIFO: u32 = 0o010_000;
pub(super) const S_ISUID: u32 = 0o4000;
pub(super) const S_ISGID: u32 = 0o2000;
pub(super) const S_ISVTX: u32 = 0o1000;

/// Permission to read, write, and execute or search, as the low bits of a mode have them.
pub(super) const R: u32 = 4;
pub(super) const W: u32 = 2;
pub(super) const X: u32 = 1;

/// What a node is besides its attributes.
#[derive(Debug)]
pub(super) enum Body {
    Plain(RwLock<Content>),
    /// Its entries are in [`super::names::Names`].
    Dir,
    Symlink(Box<[u8]>),
    /// `kind`: S_IFBLK, S_IFCHR, S_IFIFO or S_IFSOCK.
    Special {
        kind: u32,
        rdev: u64,
    },
}

#[derive(Debug)]
pub(super) struct Node {
    /// Never used for another node of the tree.
    pub(super) path: u64,
    pub(super) body: Body,
    meta: Mutex<Meta>,
}

/// A node's attributes.
#[derive(Debug)]
pub(super) struct Meta {
    /// 0 to 0o7777.
    pub(super) perm: u32,
    /// `dm::APPEND`, `dm::EXCL`, `dm::TMP`.
    pub(super) dm: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Who changed the content last.
    pub(super) muid: u32,
    pub(super) nlink: u64,
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    pub(super) btime: Time,
    /// Of the qid; never 0, which would say that nobody may cache.
    pub(super) version: u32,
    pub(super) data_version: u64,
    /// Open fids, of which a file of exclusive use may have one.
    pub(super) opens: usize,
    pub(super) xattrs: BTreeMap<Vec<u8>, Bytes>,
    pub(super) charge: Charge,
}

/// Who a new node belongs to, and its bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) perm: u32,
    pub(super) dm: u32,
}

pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

impl Node {
    pub(super) fn new(path: u64, body: Body, birth: Birth, charge: Charge) -> Node {
        let now = now();
        let meta = Meta {
            perm: birth.perm & 0o7777,
            dm: birth.dm & (dm::APPEND | dm::EXCL | dm::TMP),
            uid: birth.uid,
            gid: birth.gid,
            muid: birth.uid,
            nlink: if matches!(body, Body::Dir) { 2 } else { 1 },
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            version: 1,
            data_version: 1,
            opens: 0,
            xattrs: BTreeMap::new(),
            charge,
        };
        Node { path, body, meta: Mutex::new(meta) }
    }

    pub(super) fn meta(&self) -> MutexGuard<'_, Meta> {
        self.meta.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir)
    }

    /// A plain file's content; EISDIR or EINVAL for what has none.
    pub(super) fn content(&self) -> Result<RwLockReadGuard<'_, Content>, Errno> {
        self.plain().map(|content| content.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn content_mut(&self) -> Result<RwLockWriteGuard<'_, Content>, Errno> {
        self.plain().map(|content| content.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn plain(&self) -> Result<&RwLock<Content>, Errno> {
        match &self.body {
            Body::Plain(content) => Ok(content),
            Body::Dir => Err(Errno::EISDIR),
            Body::Symlink(_) | Body::Special { .. } => Err(Errno::EINVAL),
        }
    }

    /// The file type's bits of a mode.
    pub(super) fn kind(&self) -> u32 {
        match self.body {
            Body::Plain(_) => S_IFREG,
            Body::Dir => S_IFDIR,
            Body::Symlink(_) => S_IFLNK,
            Body::Special { kind, .. } => kind,
        }
    }

    pub(super) fn qid(&self, meta: &Meta) -> Qid {
        let kind = match self.body {
            Body::Dir => QidType::DIR,
            Body::Symlink(_) => QidType::SYMLINK,
            Body::Plain(_) | Body::Special { .. } => QidType::FILE,
        };
        // The bits of 9P2000's mode and of the qid's type are the same, three bytes apart (stat(5)).
        Qid { kind: kind | QidType((meta.dm >> 24) as u8), version: meta.version, path: self.path }
    }

    /// Whether `user` may do all of `want`; EACCES when not.
    pub(super) fn check(&self, meta: &Meta, user: &User, want: u32) -> Result<(), Errno> {
        // Root passes, except that a plain file nobody may execute is no program.
        if user.uid == 0 {
            let runs = want & X == 0 || self.is_dir() || meta.perm & 0o111 != 0;
            return if runs { Ok(()) } else { Err(Errno::EACCES) };
        }
        let shift = match () {
            () if user.uid == meta.uid => 6,
            () if in_group(user, meta.gid) => 3,
            () => 0,
        };
        if meta.perm >> shift & want == want { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether `user` may make all the changes of `set`; `writer`: through a fid that is open for writing.
    pub(super) fn check_set(&self, meta: &Meta, user: &User, set: &SetAttr, writer: bool) -> Result<(), Errno> {
        let owns = user.uid == 0 || user.uid == meta.uid;
        let allowed = |is: bool| if is { Ok(()) } else { Err(Errno::EPERM) };
        if set.mode.is_some() {
            allowed(owns)?;
            if matches!(self.body, Body::Symlink(_)) {
                return Err(Errno::EOPNOTSUPP);
            }
        }
        if let Some(uid) = set.uid {
            allowed(user.uid == 0 || owns && uid == meta.uid)?;
        }
        if let Some(gid) = set.gid {
            allowed(user.uid == 0 || owns && (gid == meta.gid || in_group(user, gid)))?;
        }
        if let Some(size) = set.size {
            self.plain()?;
            if !writer {
                self.check(meta, user, W)?;
            }
            if size > MAX_SIZE {
                return Err(Errno::EFBIG);
            }
        }
        for time in [set.atime, set.mtime].into_iter().flatten() {
            match time {
                SetTime::To(_) => allowed(owns)?,
                SetTime::Now if !owns && !writer => self.check(meta, user, W)?,
                SetTime::Now => {}
            }
        }
        Ok(())
    }
}

impl Meta {
    /// The content changed, by `user`.
    pub(super) fn modified(&mut self, user: &User) {
        self.changed();
        self.mtime = self.ctime;
        self.muid = user.uid;
        self.data_version += 1;
    }

    /// Something about the node changed.
    pub(super) fn changed(&mut self) {
        self.ctime = now();
        self.version = self.version.checked_add(1).unwrap_or(1);
    }

    /// The content was read. As Linux's relatime: once after each change, and once a day.
    pub(super) fn accessed(&mut self) {
        const DAY_S: i64 = 24 * 60 * 60;
        let now = now();
        if self.atime <= self.mtime || self.atime <= self.ctime || now.sec - self.atime.sec > DAY_S {
            self.atime = now;
        }
    }

    /// A program that somebody else than root changes loses the rights that it lends (open(2), write(2)).
    pub(super) fn drop_set_ids(&mut self, user: &User) {
        if user.uid != 0 {
            self.clear_set_ids();
        }
    }

    fn clear_set_ids(&mut self) {
        self.perm &= !S_ISUID;
        // Without the group's execute bit it does not lend a right (chmod(2)).
        if self.perm & 0o010 != 0 {
            self.perm &= !S_ISGID;
        }
    }

    /// Makes changes that were checked; the size is the content's.
    pub(super) fn apply_set(&mut self, user: &User, set: &SetAttr, is_dir: bool) {
        if (set.uid.is_some() || set.gid.is_some()) && !is_dir {
            self.clear_set_ids();
        }
        self.uid = set.uid.unwrap_or(self.uid);
        self.gid = set.gid.unwrap_or(self.gid);
        if let Some(mode) = set.mode {
            self.perm = mode & 0o7777;
            if user.uid != 0 && !in_group(user, self.gid) {
                self.perm &= !S_ISGID;
            }
        }
        if set.size.is_some() {
            self.drop_set_ids(user);
            self.modified(user);
        } else {
            self.changed();
        }
        let time = |set: Option<SetTime>, old: Time| match set {
            None => old,
            Some(SetTime::Now) => self.ctime,
            Some(SetTime::To(time)) => time,
        };
        (self.atime, self.mtime) = (time(set.atime, self.atime), time(set.mtime, self.mtime));
    }
}

pub(super) fn in_group(user: &User, gid: u32) -> bool {
    user.gid == gid || user.groups.contains(&gid)
}
