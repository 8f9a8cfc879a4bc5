//! The locks of all clients on one file, as the host's programs see them.
//!
//! A [`Mirror`] holds open file description locks (fcntl(2), F_OFD_SETLK) on a descriptor of its own, so that they
//! end with it and are not lost when another descriptor of the file is closed. It never blocks.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use ninefold_proto::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{FileType, OFlags};

use crate::tree::ranges::{Mode, Span};

/// One descriptor of a file, and what locks it can hold.
#[derive(Debug)]
pub(super) struct Mirror {
    file: Arc<OwnedFd>,
    read: bool,
    write: bool,
}

/// A lock of a local program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Local {
    pub(super) mode: Mode,
    pub(super) span: Span,
    /// 0 when the host does not say: the lock belongs to an open file, not to a process.
    pub(super) pid: u32,
}

impl Mirror {
    /// Opens the file of `given` anew: for reading and writing, else as the host allows. What is neither plain file
    /// nor directory is not opened again, which can have effects of its own (a tape rewinds); then, as without
    /// /proc, the locks go on `given`'s own open file description.
    pub(super) fn open(given: &Arc<OwnedFd>) -> Mirror {
        let kind = rustix::fs::fstat(given).map(|stat| FileType::from_raw_mode(stat.st_mode));
        if matches!(kind, Ok(FileType::RegularFile | FileType::Directory)) {
            let path = format!("/proc/self/fd/{}", given.as_raw_fd());
            for access in [OFlags::RDWR, OFlags::RDONLY, OFlags::WRONLY] {
                // NONBLOCK: a local program's file lease must not hold up the open.
                let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
                if let Ok(file) = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()) {
                    return Mirror::with(Arc::new(file), access);
                }
            }
        }
        let access = rustix::fs::fcntl_getfl(given).unwrap_or(OFlags::RDONLY) & OFlags::ACCMODE;
        Mirror::with(given.clone(), access)
    }

    fn with(file: Arc<OwnedFd>, access: OFlags) -> Mirror {
        Mirror { file, read: access != OFlags::WRONLY, write: access != OFlags::RDONLY }
    }

    /// Locks `span`, all of it or nothing; `false` when a local program's lock is in the way.
    ///
    /// A descriptor that cannot write holds no write lock: a read lock stands in for it, which still keeps local
    /// writers out (and the other way round where it cannot read).
    pub(super) fn take(&self, span: Span, mode: Mode) -> Result<bool, Errno> {
        let kind = match mode {
            Mode::Write if self.write => libc::F_WRLCK,
            Mode::Read if !self.read => libc::F_WRLCK,
            _ => libc::F_RDLCK,
        };
        match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&flock(span, kind))) {
            Ok(_) => Ok(true),
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
            Err(error) => Err(errno(error)),
        }
    }

    /// Unlocks `span`.
    pub(super) fn clear(&self, span: Span) {
        if let Err(error) = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&flock(span, libc::F_UNLCK))) {
            // The lock ends with the descriptor at the latest; until then only local programs are kept out too long.
            tracing::warn!(%error, "the host did not take back a lock");
        }
    }

    /// The local program's lock in the way of one in `mode` of `span`, apart from this mirror's own.
    pub(super) fn conflict(&self, span: Span, mode: Mode) -> Result<Option<Local>, Errno> {
        conflict(&self.file, span, mode)
    }
}

/// The lock of a local program, or of a mirror other than `file` itself, in the way of one in `mode` of `span`.
pub(super) fn conflict(file: &impl AsFd, span: Span, mode: Mode) -> Result<Option<Local>, Errno> {
    let kind = if mode == Mode::Write { libc::F_WRLCK } else { libc::F_RDLCK };
    let mut lock = flock(span, kind);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).map_err(errno)?;
    let mode = match i32::from(lock.l_type) {
        libc::F_RDLCK => Mode::Read,
        libc::F_WRLCK => Mode::Write,
        _ => return Ok(None),
    };
    let span = Span::new(lock.l_start as u64, lock.l_len as u64)?;
    Ok(Some(Local { mode, span, pid: u32::try_from(lock.l_pid).unwrap_or(0) }))
}

fn flock(span: Span, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: span.first as libc::off_t,
        l_len: span.length() as libc::off_t,
        l_pid: 0,
    }
}

fn errno(error: nix::Error) -> Errno {
    Errno(error as i32 as u32)
}
