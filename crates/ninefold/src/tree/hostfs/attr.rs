//! Attributes: .L's getattr and setattr, statfs, and the one place that changes attributes for wstat too.
//!
//! A change of several attributes is made in an order in which the likeliest to fail comes first, and
//! what was done is undone when a later one fails. Only data cut off by a size cannot come back.

use std::os::fd::{AsFd, BorrowedFd};

use ninefold_proto::attr::{Attr, SetAttr, SetTime, Statfs, getattr};
use ninefold_proto::{Dialect, Errno, Error, Qid};
use rustix::fs::{
    Access, AtFlags, FileType, Gid, Mode, Statx, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chmod,
    chownat, fcntl_getfl, fstatfs, fstatvfs, ftruncate, makedev, utimensat,
};
use rustix::io::Errno as Os;

use super::creds::Identity;
use super::file::HostFile;
use super::mounts::proc_path;
use super::node::look;
use super::qid::{file_type, mixed, time};
use super::walk::target;
use super::{Pace, os};

/// statfs(2)'s f_type of 9P (linux/magic.h, V9FS_MAGIC), as diod tells it: Linux's client hands the type on to programs, which
/// would take the mount for the exported file system itself, as glibc does when it tells how many links a file may have.
const V9FS_MAGIC: u32 = 0x0102_1997;

impl HostFile {
    pub(super) fn attributes(&self, pace: Pace) -> Result<Attr, Error> {
        let fd = self.fd(pace)?;
        let stx = look(fd.as_fd())?;
        Ok(attr_of(&stx, self.qid_of(fd.as_fd(), &stx)?))
    }

    pub(super) fn set_attributes(&self, set: &SetAttr) -> Result<(), Error> {
        let fd = self.fd(Pace::MayWait)?;
        let stx = look(fd.as_fd())?;
        let mut set = *set;
        if self.only_drops_privileges(&set, &stx) {
            if set.size.is_none() {
                // What any write by this user would do; Linux's client asks for it before its first write.
                self.session.who.assume()?;
                self.access(fd.as_fd(), Access::WRITE_OK)?;
                Identity::of_server().assume()?;
                // A chown(2) of nothing: unlike a mode worked out here it cannot undo another's change.
                return set_owner(fd.as_fd(), None, None);
            }
            // Cutting the file does it anyway.
            set.mode = None;
        }
        let set = &set;
        self.check(set, &stx)?;
        self.session.who.assume()?;
        let mut done = SetAttr::default();
        let result = self.change(fd.as_fd(), set, &stx, &mut done);
        if result.is_err() && done != SetAttr::default() && Identity::of_server().assume().is_ok() {
            self.undo(fd.as_fd(), &done, &stx);
        }
        result
    }

    /// Whether all that is asked of the mode, by a user who is not the owner, is to lose setuid and setgid.
    fn only_drops_privileges(&self, set: &SetAttr, stx: &Statx) -> bool {
        let (who, had) = (&self.session.who, u32::from(stx.stx_mode) & 0o7777);
        let others = set.uid.is_some() || set.gid.is_some() || set.atime.is_some();
        let lost = set.mode.map_or(0, |mode| had ^ mode & 0o7777);
        who.uid() != 0
            && who.uid() != stx.stx_uid
            && file_type(stx) == FileType::RegularFile
            && lost != 0
            && lost & had & 0o6000 == lost
            && !others
            && (set.mtime.is_none() || set.size.is_some())
    }

    /// What can be known to fail before anything is changed.
    fn check(&self, set: &SetAttr, stx: &Statx) -> Result<(), Error> {
        let kind = file_type(stx);
        if kind == FileType::Symlink && set.mode.is_some() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        match set.size {
            Some(_) if kind == FileType::Directory => return Err(Errno::EISDIR.into()),
            Some(_) if kind != FileType::RegularFile => return Err(Errno::EINVAL.into()),
            Some(size) if i64::try_from(size).is_err() => return Err(Errno::EFBIG.into()),
            _ => {}
        }
        // The number -1 would mean "leave it" to chown(2).
        if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
            return Err(Errno::EINVAL.into());
        }
        for time in [set.atime, set.mtime] {
            if let Some(SetTime::To(time)) = time
                && time.nsec >= 1_000_000_000
            {
                return Err(Errno::EINVAL.into());
            }
        }
        // A size cannot be undone, so that what the rest will be refused for is looked at first.
        let who = &self.session.who;
        let (root, owner) = (who.uid() == 0, who.uid() == stx.stx_uid);
        let given = |time| matches!(time, Some(SetTime::To(_)));
        let owners = set.mode.is_some() || set.gid.is_some() || given(set.atime) || given(set.mtime);
        let others_uid = set.uid.is_some_and(|uid| uid != stx.stx_uid);
        let others_gid = set.gid.is_some_and(|gid| gid != stx.stx_gid && !who.is_in_group(gid));
        if set.size.is_some() && !root && ((owners && !owner) || others_uid || others_gid) {
            return Err(Errno::EPERM.into());
        }
        Ok(())
    }

    fn change(&self, fd: BorrowedFd<'_>, set: &SetAttr, stx: &Statx, done: &mut SetAttr) -> Result<(), Error> {
        if let Some(size) = set.size {
            self.set_size(fd, size)?;
            done.size = Some(size);
        }
        if set.uid.is_some() || set.gid.is_some() {
            set_owner(fd, set.uid, set.gid)?;
            (done.uid, done.gid, done.mode) = (set.uid, set.gid, Some(0));
        }
        if let Some(mode) = set.mode {
            set_mode(fd, mode)?;
            done.mode = Some(mode);
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times = Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
            let given = |time| matches!(time, Some(SetTime::To(_)));
            match utimensat(fd, c"", &times, AtFlags::EMPTY_PATH) {
                // ftruncate(2) by a writer who is not the owner: cutting the file has moved the times already.
                Err(Os::PERM | Os::ACCESS) if set.size.is_some() && !given(set.atime) && !given(set.mtime) => {}
                result => result.map_err(os)?,
            }
        } else if set.ctime && set.mode.is_none() && set.uid.is_none() && set.gid.is_none() && set.size.is_none() {
            // No call sets ctime alone; giving the file the mode that it has moves nothing else.
            set_mode(fd, u32::from(stx.stx_mode) & 0o7777)?;
        }
        Ok(())
    }

    /// Cuts or extends, with the right that an open fid has, else with the user's own.
    fn set_size(&self, fd: BorrowedFd<'_>, size: u64) -> Result<(), Error> {
        if let Some(open) = self.open.get() {
            let flags = fcntl_getfl(&open.fd).map_err(os)?;
            if flags.contains(rustix::fs::OFlags::WRONLY) || flags.contains(rustix::fs::OFlags::RDWR) {
                return ftruncate(&open.fd, size).map_err(os);
            }
        }
        truncate(fd, size)
    }

    pub(super) fn undo(&self, fd: BorrowedFd<'_>, done: &SetAttr, stx: &Statx) {
        // Best effort: the error that led here is the one to tell.
        // Another size than the one set is another's doing since: cutting back would cut off what he wrote.
        let sized = done.size.filter(|&size| look(fd).is_ok_and(|now| now.stx_size == size));
        if sized.is_some_and(|size| size > stx.stx_size) {
            let _ = truncate(fd, stx.stx_size);
        }
        if done.uid.is_some() || done.gid.is_some() {
            let _ = set_owner(fd, Some(stx.stx_uid), Some(stx.stx_gid));
        }
        if done.mode.is_some() && file_type(stx) != FileType::Symlink {
            let _ = set_mode(fd, u32::from(stx.stx_mode) & 0o7777);
        }
        if sized.is_some() {
            let stamp = |t: rustix::fs::StatxTimestamp| Timespec { tv_sec: t.tv_sec, tv_nsec: t.tv_nsec.into() };
            let times = Timestamps { last_access: stamp(stx.stx_atime), last_modification: stamp(stx.stx_mtime) };
            let _ = utimensat(fd, c"", &times, AtFlags::EMPTY_PATH);
        }
    }

    pub(super) fn totals(&self) -> Result<Statfs, Error> {
        let fd = self.fd(Pace::MayWait)?;
        let (fs, vfs) = (fstatfs(&fd).map_err(os)?, fstatvfs(&fd).map_err(os)?);
        Ok(Statfs {
            fstype: V9FS_MAGIC,
            bsize: fs.f_bsize as u32,
            blocks: fs.f_blocks,
            bfree: fs.f_bfree,
            bavail: fs.f_bavail,
            files: fs.f_files,
            ffree: fs.f_ffree,
            fsid: vfs.f_fsid,
            namelen: fs.f_namelen as u32,
        })
    }

    pub(super) fn link_target(&self, pace: Pace) -> Result<Vec<u8>, Error> {
        if self.node.kind != FileType::Symlink || self.session.dialect == Dialect::Plan9 {
            return Err(Errno::EINVAL.into());
        }
        target(self.fd(pace)?.as_fd())
    }
}

/// What statx(2) told of a file, as .L has it.
pub(super) fn attr_of(stx: &Statx, qid: Qid) -> Attr {
    let mut valid = getattr::BASIC | getattr::DATA_VERSION;
    if stx.stx_mask & StatxFlags::BTIME.bits() != 0 {
        valid |= getattr::BTIME;
    }
    Attr {
        valid,
        qid,
        mode: u32::from(stx.stx_mode),
        uid: stx.stx_uid,
        gid: stx.stx_gid,
        nlink: u64::from(stx.stx_nlink),
        rdev: makedev(stx.stx_rdev_major, stx.stx_rdev_minor),
        size: stx.stx_size,
        blksize: u64::from(stx.stx_blksize),
        blocks: stx.stx_blocks,
        atime: time(stx.stx_atime),
        mtime: time(stx.stx_mtime),
        ctime: time(stx.stx_ctime),
        btime: time(stx.stx_btime),
        generation: 0,
        data_version: mixed(stx.stx_ctime),
    }
}

/// Sets the permission bits of a file that may be open with O_PATH only.
pub(super) fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Error> {
    chmod(proc_path(fd), Mode::from_raw_mode(mode & 0o7777)).map_err(os)
}

/// Sets owner and group, each if given; neither is u32::MAX.
pub(super) fn set_owner(fd: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> Result<(), Error> {
    chownat(fd, c"", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH).map_err(os)
}

fn truncate(fd: BorrowedFd<'_>, size: u64) -> Result<(), Error> {
    let size = i64::try_from(size).map_err(|_| Error::new(Errno::EFBIG))?;
    nix::unistd::truncate(proc_path(fd).as_str(), size).map_err(|error| Errno((error as i32).cast_unsigned()).into())
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To(time)) => Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() },
    }
}
