//! What 9P2000 and .u see: stat records, wstat, append-only and exclusive-use files.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ninefold_proto::attr::{SetAttr, SetTime, Time};
use ninefold_proto::stat::{Stat, StatBuf, dm};
use ninefold_proto::{Dialect, Errno, Error, Name, Qid, QidType};
use rustix::fs::{FileType, Statx, StatxTimestamp};

use super::creds::Identity;
use super::file::HostFile;
use super::names::{Onto, Place};
use super::node::{Entry, Node, look};
use super::qid::file_type;
use super::walk::target;
use super::xattr::{mode_letters, set_mode_letters};
use super::{Pace, Session};

/// How far a client's clock may be from ours for what it shows to pass as now. A day: clocks that somebody set are closer,
/// even those of another time zone, and times that somebody chose are seldom so near.
const CLOCKS_DIFFER: Duration = Duration::from_secs(24 * 60 * 60);

impl Session {
    /// The bits APPEND and EXCL of a file; .L does not know them.
    pub(super) fn marks(&self, fd: BorrowedFd<'_>, stx: &Statx) -> Result<u32, Error> {
        if self.dialect == Dialect::Linux || !matches!(file_type(stx), FileType::RegularFile | FileType::Directory) {
            return Ok(0);
        }
        // Whoever may see the file may see these, as they may see its mode.
        Identity::of_server().assume()?;
        let letters = mode_letters(fd);
        let mark = |letter, bit| if letters.contains(&letter) { bit } else { 0 };
        Ok(mark(b'a', dm::APPEND) | mark(b'l', dm::EXCL))
    }

    /// Sets the bits APPEND and EXCL. The caller has made sure that the user may.
    pub(super) fn set_marks(&self, fd: BorrowedFd<'_>, marks: u32) -> Result<(), Error> {
        Identity::of_server().assume()?;
        let mut letters = Vec::new();
        for (bit, letter) in [(dm::APPEND, b'a'), (dm::EXCL, b'l')] {
            if marks & bit != 0 {
                letters.push(letter);
            }
        }
        set_mode_letters(fd, &letters)
    }

    /// The record of a file by the name it has here.
    fn record(&self, fd: BorrowedFd<'_>, stx: &Statx, name: &[u8], pace: Pace) -> Result<StatBuf, Error> {
        let ids = &self.export.ids;
        let marks = self.marks(fd, stx)?;
        let kind = file_type(stx);
        let unix = self.dialect == Dialect::Unix;
        let user = ids.user(stx.stx_uid, pace)?;
        let extension = match kind {
            FileType::Symlink if unix => target(fd)?,
            FileType::BlockDevice if unix => format!("b {} {}", stx.stx_rdev_major, stx.stx_rdev_minor).into_bytes(),
            FileType::CharacterDevice if unix => {
                format!("c {} {}", stx.stx_rdev_major, stx.stx_rdev_minor).into_bytes()
            }
            // Linux's client knows the number of links from nothing else (fs/9p/vfs_inode.c).
            FileType::RegularFile | FileType::Directory if unix => format!("HARDLINKCOUNT {}", stx.stx_nlink).into(),
            _ => Vec::new(),
        };
        Ok(StatBuf {
            qid: self.export.qids.qid(stx, marks, self.dialect),
            mode: mode(stx, unix) | marks,
            atime: seconds(stx.stx_atime),
            mtime: seconds(stx.stx_mtime),
            length: if kind == FileType::Directory { 0 } else { stx.stx_size },
            name: name.to_vec(),
            uid: user.to_vec(),
            gid: ids.group(stx.stx_gid, pace)?.to_vec(),
            // Linux does not keep who wrote last; the owner is the best guess.
            muid: user.to_vec(),
            extension,
            n_uid: stx.stx_uid,
            n_gid: stx.stx_gid,
            n_muid: stx.stx_uid,
        })
    }
}

/// A mode as stat(5) has it; the bits that only .u knows if `unix`.
fn mode(stx: &Statx, unix: bool) -> u32 {
    let had = u32::from(stx.stx_mode);
    let mut mode = had & 0o777;
    let kind = file_type(stx);
    if kind == FileType::Directory {
        mode |= dm::DIR;
    }
    if unix {
        mode |= match kind {
            FileType::Symlink => dm::SYMLINK,
            FileType::BlockDevice | FileType::CharacterDevice => dm::DEVICE,
            FileType::Fifo => dm::NAMEDPIPE,
            FileType::Socket => dm::SOCKET,
            _ => 0,
        };
        for (bit, shown) in UNIX_BITS {
            if had & bit != 0 {
                mode |= shown;
            }
        }
    }
    mode
}

/// Mode bits of Linux and of .u.
const UNIX_BITS: [(u32, u32); 3] = [(0o4000, dm::SETUID), (0o2000, dm::SETGID), (0o1000, dm::SETVTX)];

/// Bits of a record's mode that tell what the file is.
const KINDS: u32 = dm::DIR | dm::MOUNT | dm::AUTH | dm::SYMLINK | dm::LINK | dm::DEVICE | dm::NAMEDPIPE | dm::SOCKET;

fn seconds(stamp: StatxTimestamp) -> u32 {
    stamp.tv_sec.clamp(0, i64::from(u32::MAX)) as u32
}

/// A wstat's record, owned.
#[derive(Debug)]
pub(super) struct Wstat {
    kind: u16,
    dev: u32,
    record: StatBuf,
}

impl Wstat {
    pub(super) fn of(stat: &Stat<'_>) -> Wstat {
        let record = StatBuf {
            qid: stat.qid,
            mode: stat.mode,
            atime: stat.atime,
            mtime: stat.mtime,
            length: stat.length,
            name: stat.name.to_vec(),
            uid: stat.uid.to_vec(),
            gid: stat.gid.to_vec(),
            muid: stat.muid.to_vec(),
            extension: stat.extension.to_vec(),
            n_uid: stat.n_uid,
            n_gid: stat.n_gid,
            n_muid: stat.n_muid,
        };
        Wstat { kind: stat.kind, dev: stat.dev, record }
    }

    fn is_untouched(&self) -> bool {
        let own = self.record.as_stat();
        self.kind == u16::MAX
            && self.dev == u32::MAX
            && Stat { kind: u16::MAX, dev: u32::MAX, ..own } == Stat::UNTOUCHED
    }
}

/// What a wstat comes to, once it was found to be allowed.
struct Plan {
    name: Option<Vec<u8>>,
    marks: Option<u32>,
    set: SetAttr,
}

impl HostFile {
    pub(super) fn record(&self, pace: Pace) -> Result<StatBuf, Error> {
        let fd = self.fd(pace)?;
        let name = self.named().name();
        // The root's name is the file server's to choose (attach(5)).
        let name: &[u8] = if name.is_empty() { b"/" } else { &name };
        self.session.record(fd.as_fd(), &look(fd.as_fd())?, name, pace)
    }

    /// The record of an entry of this directory. May wait.
    pub(super) fn record_of_entry(&self, entry: &Entry, name: &[u8]) -> Result<StatBuf, Error> {
        let session = &self.session;
        if session.dialect == Dialect::Plan9
            && file_type(&entry.stx) == FileType::Symlink
            && let Some(target) = self.follow(&self.node, entry.fd.as_fd(), Pace::MayWait)?
        {
            let fd = session.export.tree.fd(&target, Pace::MayWait)?;
            return session.record(fd.as_fd(), &look(fd.as_fd())?, name, Pace::MayWait);
        }
        session.record(entry.fd.as_fd(), &entry.stx, name, Pace::MayWait)
    }

    /// The record of this directory or the one above, as one of its entries. May wait.
    pub(super) fn record_of_dir(&self, node: &Arc<Node>, name: &[u8]) -> Result<StatBuf, Error> {
        let fd = self.session.export.tree.fd(node, Pace::MayWait)?;
        self.session.record(fd.as_fd(), &look(fd.as_fd())?, name, Pace::MayWait)
    }

    /// wstat(5): everything that is asked, or nothing.
    pub(super) fn apply(&self, wstat: &Wstat) -> Result<(), Error> {
        if wstat.is_untouched() {
            return self.sync(false);
        }
        let fd = self.fd(Pace::MayWait)?;
        let stx = look(fd.as_fd())?;
        let had = self.session.marks(fd.as_fd(), &stx)?;
        let plan = self.plan(wstat, fd.as_fd(), &stx, had)?;

        // First what is likeliest to be refused and can be undone; a length last, as it cannot.
        // .u's rename(2) replaces what has the name, if nothing else is asked: that could not be undone.
        let alone = plan.marks.is_none() && plan.set == SetAttr::default();
        let replace = alone && self.session.dialect == Dialect::Unix;
        let renamed = match &plan.name {
            Some(new) => Some(self.rename_in_place(new, replace)?),
            None => None,
        };
        let marked = match plan.marks {
            Some(marks) => self.session.set_marks(fd.as_fd(), marks),
            None => Ok(()),
        };
        let result =
            marked.and_then(|()| if plan.set == SetAttr::default() { Ok(()) } else { self.set_attributes(&plan.set) });
        if result.is_err() {
            if plan.marks.is_some() {
                let _ = self.session.set_marks(fd.as_fd(), had);
            }
            if let Some(old) = renamed {
                let _ = self.rename_in_place(&old, false);
            }
        }
        result
    }

    /// Gives the file another name in its directory; answers the old one.
    fn rename_in_place(&self, new: &[u8], replace: bool) -> Result<Vec<u8>, Error> {
        let node = self.named();
        let (dir, old) = node.place()?;
        let (from, to) = (Place { dir: &dir, name: &old }, Place { dir: &dir, name: new });
        self.move_entry(from, to, Some(node), if replace { Onto::Replace } else { Onto::Free })?;
        Ok(old.to_vec())
    }

    fn plan(&self, wstat: &Wstat, fd: BorrowedFd<'_>, stx: &Statx, had: u32) -> Result<Plan, Error> {
        let refuse = |what: &'static str| Err(Error::with_text(Errno::EPERM, what));
        let asked = &wstat.record;
        let now = self.session.record(fd, stx, &self.named().name(), Pace::MayWait)?;
        if (wstat.kind != u16::MAX && wstat.kind != 0) || (wstat.dev != u32::MAX && wstat.dev != 0) {
            return refuse("wstat -- attempt to change type or dev");
        }
        if !agrees(&asked.qid, &now.qid) {
            return refuse("wstat -- attempt to change qid");
        }
        let differs = |asked: &[u8], has: &[u8]| !asked.is_empty() && asked != has;
        if differs(&asked.uid, &now.uid) {
            return refuse("wstat -- attempt to change owner");
        }
        // Linux's client says its user's name here when it renames in .u; it does not ask for a change.
        let unix = self.session.dialect == Dialect::Unix;
        if !unix && differs(&asked.muid, &now.muid) {
            return refuse("wstat -- attempt to change muid");
        }
        if differs(&asked.extension, &now.extension) {
            return refuse("wstat -- attempt to change extension");
        }
        let mut plan = Plan { name: None, marks: None, set: SetAttr::default() };
        if !asked.name.is_empty() && asked.name != now.name {
            let name = Name::new(&asked.name).map_err(|_| Error::with_text(Errno::EINVAL, "illegal name"))?;
            if self.named().parent().is_none() {
                // The root is told by another name than it has.
                if asked.name != b"/" {
                    return refuse("wstat -- attempt to rename the root");
                }
            } else {
                plan.name = Some(name.as_bytes().to_vec());
            }
        }
        if asked.mode != u32::MAX {
            self.plan_mode(asked.mode, &now, stx, had, &mut plan)?;
        }
        if asked.length != u64::MAX {
            match file_type(stx) {
                FileType::Directory if asked.length != 0 => {
                    return refuse("wstat -- attempt to change length of directory");
                }
                FileType::Directory => {}
                _ if asked.length == now.length => {}
                _ => plan.set.size = Some(asked.length),
            }
        }
        let at = |seconds| SetTime::To(Time { sec: i64::from(seconds), nsec: 0 });
        plan.set.mtime = (asked.mtime != u32::MAX).then(|| at(asked.mtime));
        plan.set.atime = (asked.atime != u32::MAX).then(|| at(asked.atime));
        // A record has no word for "now": Linux's client tells its clock when it cuts a file, for O_TRUNC too, and as both times
        // when it touches one. From one who does not own the file, that is the cut or the touch, for which the right to write
        // is enough, and no time to be set. Any other time is one to be set, and refused.
        let uid = self.session.who.uid();
        if unix && uid != 0 && uid != stx.stx_uid && is_now(asked.mtime) {
            if asked.length != u64::MAX && file_type(stx) == FileType::RegularFile {
                plan.set.size = Some(asked.length);
                plan.set.mtime = Some(SetTime::Now);
            } else if asked.atime == asked.mtime {
                (plan.set.atime, plan.set.mtime) = (Some(SetTime::Now), Some(SetTime::Now));
            }
        }
        let gid = if asked.n_gid != u32::MAX {
            Some(asked.n_gid)
        } else if differs(&asked.gid, &now.gid) {
            let gid = self.session.export.ids.gid(&asked.gid);
            Some(gid.ok_or(Error::with_text(Errno::EINVAL, "wstat -- unknown group"))?)
        } else {
            None
        };
        plan.set.gid = gid.filter(|&gid| gid != now.n_gid);
        // .u's chown(2) comes so; whether it may is the kernel's to say.
        plan.set.uid = Some(asked.n_uid).filter(|&uid| uid != u32::MAX && uid != now.n_uid);
        Ok(plan)
    }

    fn plan_mode(&self, asked: u32, now: &StatBuf, stx: &Statx, had: u32, plan: &mut Plan) -> Result<(), Error> {
        if (asked ^ now.mode) & KINDS != 0 {
            return Err(Error::with_text(Errno::EPERM, "wstat -- attempt to change what the file is"));
        }
        let mut mode = asked & 0o777;
        for (bit, shown) in UNIX_BITS {
            // 9P2000 does not know these; they stay.
            let on = if self.session.dialect == Dialect::Unix {
                asked & shown != 0
            } else {
                u32::from(stx.stx_mode) & bit != 0
            };
            if on {
                mode |= bit;
            }
        }
        if mode != u32::from(stx.stx_mode) & 0o7777 {
            plan.set.mode = Some(mode);
        }
        let marks = asked & (dm::APPEND | dm::EXCL);
        if marks != had {
            let who = &self.session.who;
            if who.uid() != 0 && who.uid() != stx.stx_uid {
                return Err(Error::with_text(Errno::EPERM, "wstat -- not owner"));
            }
            if !matches!(file_type(stx), FileType::RegularFile | FileType::Directory) {
                return Err(Errno::EOPNOTSUPP.into());
            }
            plan.marks = Some(marks);
        }
        Ok(())
    }
}

/// Whether a client's clock may show this, in seconds since 1970.
fn is_now(seconds: u32) -> bool {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    seconds != u32::MAX && here.as_secs().abs_diff(seconds.into()) <= CLOCKS_DIFFER.as_secs()
}

/// Whether each part of a qid is "don't touch" or as it is.
fn agrees(asked: &Qid, now: &Qid) -> bool {
    (asked.kind == QidType(u8::MAX) || asked.kind == now.kind)
        && (asked.version == u32::MAX || asked.version == now.version)
        && (asked.path == u64::MAX || asked.path == now.path)
}
