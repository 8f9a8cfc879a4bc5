//! A directory of this machine that things are copied into.
//!
//! Every name is resolved in its directory's descriptor, one name at a time and through no symbolic link: a link that a
//! server listed is a file like any other, and nothing is ever written behind it.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use ninefold::client::FileType;
use ninefold::proto::attr::Time;
use rustix::fs::{
    AtFlags, CWD, FileType as Kind, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, chmodat, chownat,
    fchmod, fchown, fstat, futimens, mkdirat, mknodat, open, openat, openat2, readlinkat, renameat, statat, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;

use super::facts::Facts;
use super::trouble::Cause;

/// A directory, open.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// Made by this copy: nothing is in it yet.
    pub is_new: bool,
}

impl AsFd for Dir {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What opens a directory that may be searched and not be read.
fn dir_flags() -> [OFlags; 2] {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    [flags | OFlags::RDONLY, flags | OFlags::PATH]
}

pub fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

impl Dir {
    /// A directory that the user named, through symbolic links.
    pub fn named(path: &Path) -> Result<Dir, Cause> {
        let [read, search] = dir_flags();
        let fd = match open(path, read, Mode::empty()) {
            Err(Errno::ACCESS) => open(path, search, Mode::empty())?,
            other => other?,
        };
        Ok(Dir { fd, is_new: false })
    }

    /// A directory in this one.
    fn open(&self, name: &CString, is_new: bool) -> Result<Dir, Cause> {
        let [read, search] = dir_flags().map(|flags| flags | OFlags::NOFOLLOW);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = match openat2(&self.fd, name, read, Mode::empty(), resolve) {
            Err(Errno::ACCESS) => openat2(&self.fd, name, search, Mode::empty(), resolve),
            other => other,
        };
        match fd {
            Ok(fd) => Ok(Dir { fd, is_new }),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(Cause::words(match self.look(name)?.map(|facts| facts.kind) {
                Some(FileType::Symlink) => "a symbolic link has its name here, and a copy goes through none",
                _ => "what has its name here is no directory",
            })),
            Err(e) => Err(e.into()),
        }
    }

    /// The directory of that name.
    pub fn enter(&self, name: &CString) -> Result<Dir, Cause> {
        self.open(name, false)
    }

    /// Makes a directory in this one, or opens the one that is there. `mode` is cut down by the umask.
    pub fn make(&self, name: &CString, mode: u32) -> Result<Dir, Cause> {
        match mkdirat(&self.fd, name, permissions(mode)) {
            Ok(()) => self.open(name, true),
            Err(Errno::EXIST) => self.open(name, false),
            Err(e) => Err(e.into()),
        }
    }

    pub fn facts(&self) -> Result<Facts, Cause> {
        Ok(Facts::from(&fstat(&self.fd)?))
    }

    /// What has the name here, itself and not what it points to.
    pub fn look(&self, name: &CString) -> Result<Option<Facts>, Cause> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Facts::from(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    pub fn read_link(&self, name: &CString) -> Result<Vec<u8>, Cause> {
        Ok(readlinkat(&self.fd, name, Vec::new())?.into_bytes())
    }

    /// Makes a symbolic link.
    pub fn link(&self, name: &CString, target: &[u8]) -> Result<(), Cause> {
        Ok(symlinkat(target, &self.fd, name)?)
    }

    /// Makes a special file.
    pub fn node(&self, name: &CString, like: &Facts, mode: u32) -> Result<(), Cause> {
        let kind = match like.kind {
            FileType::CharDevice => Kind::CharacterDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Fifo => Kind::Fifo,
            _ => Kind::Socket,
        };
        let (major, minor) = like.device.unwrap_or_default();
        Ok(mknodat(&self.fd, name, kind, permissions(mode), rustix::fs::makedev(major, minor))?)
    }

    /// Puts the file that is called `from` in the place of `to`.
    pub fn rename(&self, from: &CString, to: &CString) -> Result<(), Cause> {
        Ok(renameat(&self.fd, from, &self.fd, to)?)
    }

    pub fn remove(&self, name: &CString) -> Result<(), Cause> {
        Ok(unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    pub fn remove_dir(&self, name: &CString) -> Result<(), Cause> {
        Ok(unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Gives the directory itself the attributes that `--preserve` keeps.
    pub fn preserve(&self, like: &Facts) -> Result<(), Cause> {
        preserve(self.fd.as_fd(), like)
    }

    pub fn set_mode(&self, mode: u32) -> Result<(), Cause> {
        Ok(fchmod(&self.fd, permissions(mode))?)
    }

    /// The same for what is no file with bytes: a link, which has no permissions, or a device.
    pub fn preserve_entry(&self, name: &CString, like: &Facts) -> Result<(), Cause> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let (uid, gid) = owner(like);
        match chownat(&self.fd, name, uid, gid, flags) {
            Err(Errno::PERM) => drop(chownat(&self.fd, name, None, gid, flags)),
            other => other?,
        }
        if like.kind != FileType::Symlink {
            // By a descriptor that is not open for use: whatever has the name, it is no link.
            let fd = openat(&self.fd, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
            let file = format!("/proc/self/fd/{}", fd.as_raw_fd());
            chmodat(CWD, file, permissions(like.mode), AtFlags::empty())?;
        }
        Ok(utimensat(&self.fd, name, &timestamps(like), flags)?)
    }
}

/// The working directory, or the directory that holds a file that the user named.
pub fn parent(path: &Path) -> Result<Arc<Dir>, Cause> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok(Arc::new(Dir::named(parent.unwrap_or(Path::new(".")))?))
}

/// Opens a file that the user named for writing, whatever it is.
pub fn open_direct(path: &Path) -> Result<OwnedFd, Cause> {
    Ok(rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?)
}

fn owner(like: &Facts) -> (Option<Uid>, Option<Gid>) {
    (like.uid.map(Uid::from_raw), like.gid.map(Gid::from_raw))
}

fn timestamps(like: &Facts) -> Timestamps {
    let spec = |time: Time| Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
    Timestamps { last_access: spec(like.accessed), last_modification: spec(like.modified) }
}

/// Gives an open file the owner, permissions and times of another. An owner that may not be given is left out, as cp(1)
/// does, and with it the bits that would make programs run as that owner.
pub fn preserve(fd: std::os::fd::BorrowedFd<'_>, like: &Facts) -> Result<(), Cause> {
    let (uid, gid) = owner(like);
    let mut mode = like.mode;
    if let Err(e) = fchown(fd, uid, gid) {
        if !matches!(e, Errno::PERM | Errno::INVAL) {
            return Err(e.into());
        }
        mode &= 0o1777;
        let _ = fchown(fd, None, gid);
    }
    fchmod(fd, permissions(mode))?;
    Ok(futimens(fd, &timestamps(like))?)
}
