//! A directory of the host, exported.
//!
//! [`HostFs::open`] takes the directory; each attach gives a [`HostFile`] that acts as the attached
//! user. What is promised:
//!
//! - **Nothing outside the directory is reached**, whatever names, symbolic links and renames by others do:
//!   see `node.rs` for how names are resolved. (A folder that somebody on the host moves out of the export
//!   stays reachable by fids walked to it before, as it would for a process that had opened it.)
//! - **Permissions are the kernel's**: see `creds.rs` for how a server run by root acts as a user.
//! - **Fids stay good** across renames and removals through this server, and cost no descriptor until opened.
//! - **No call that may wait for a disk runs on a thread of the reactor**, and what the kernel has in memory
//!   costs no thread hop: an operation is first tried where it must not wait, and again on the blocking pool
//!   when that gives EAGAIN.
//!
//! Opening clears the umask of the process: a 9P client has applied its own, and a second one would
//! take away more. What 9P2000's append-only and exclusive-use files are is kept in the extended
//! attribute `user.ninefold.mode`, which no client sees.

mod attr;
mod changes;
mod copy;
mod creds;
mod descriptor;
mod dir;
mod dir_ahead;
mod dir_parts;
mod dir_stream;
mod exchange;
mod extent;
mod file;
mod ids;
mod io;
mod lately;
mod mount_watch;
mod mounts;
mod names;
mod node;
mod open;
mod own;
mod piping;
mod plan9;
mod plus;
mod prefetch;
mod qid;
mod walk;
mod xattr;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ninefold_proto::{Dialect, Errno, Error, Qid};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, readlinkat};
use rustix::process::{Resource, getrlimit, umask};

pub use file::HostFile;

use crate::server::{Answer, Attach, Cx, File, FileServer};
use crate::tree::locks::LockTable;
use creds::Identity;
use dir_ahead::{Ahead, Budget};
use ids::Ids;
use io::BufferPool;
use mounts::{Mounts, proc_path};
use node::{FileId, Tree};
use open::WithoutNowait;
use qid::QidMap;

/// Whether a call may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pace {
    /// On a thread of the reactor: EAGAIN instead of a wait.
    Inline,
    /// On the blocking pool.
    MayWait,
}

/// Why a directory cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("cannot export {}: {reason}", dir.display())]
pub struct OpenError {
    dir: PathBuf,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("{0}")]
    Directory(std::io::Error),
    #[error("/proc is not mounted, and files are opened through it: {0}")]
    Proc(std::io::Error),
    #[error("this kernel has no {0}; Linux 5.8 or later is needed")]
    Kernel(&'static str),
    #[error("{0}")]
    Tree(Error),
}

/// A directory of the host as a file server.
#[derive(Clone, Debug)]
pub struct HostFs {
    export: Arc<Export>,
}

/// What all fids of an export share.
struct Export {
    tree: Tree,
    qids: QidMap,
    ids: Ids,
    locks: Arc<LockTable>,
    buffers: Arc<BufferPool>,
    /// How much is read of directories before it is asked for.
    ahead: Arc<Ahead>,
    without_nowait: Arc<WithoutNowait>,
    /// Files marked for exclusive use that are open now.
    exclusive: Mutex<HashSet<FileId>>,
    /// /proc/self/fd.
    proc_fd: OwnedFd,
    /// The directory's own path, for absolute symbolic links that lead back into it.
    path: Vec<u8>,
    next_holder: AtomicU64,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("path", &String::from_utf8_lossy(&self.path)).finish_non_exhaustive()
    }
}

/// Who attached, and how the connection speaks.
#[derive(Debug)]
struct Session {
    export: Arc<Export>,
    who: Identity,
    dialect: Dialect,
    /// What the connection may have of the export's `ahead`.
    ahead: Arc<Budget>,
}

impl HostFs {
    /// Exports `dir`. Clears the umask of this process, as clients apply their own.
    pub fn open(dir: &Path) -> Result<HostFs, OpenError> {
        HostFs::with_descriptors(dir, descriptors_for_walked_files())
    }

    /// Exports `dir`, holding at most `limit` descriptors for files that are walked to but not open.
    pub fn with_descriptors(dir: &Path, limit: usize) -> Result<HostFs, OpenError> {
        let fail = |reason| OpenError { dir: dir.to_owned(), reason };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty()).map_err(|e| fail(Reason::Directory(e.into())))?;
        let proc_fd = rustix::fs::open("/proc/self/fd", flags, Mode::empty());
        let proc_fd = proc_fd.map_err(|e| fail(Reason::Proc(e.into())))?;
        let path = readlinkat(CWD, proc_path(&root), Vec::new()).map_err(|e| fail(Reason::Proc(e.into())))?;
        if !has_openat2(&root) {
            return Err(fail(Reason::Kernel("openat2(2)")));
        }
        if !has_faccessat2(&root) {
            return Err(fail(Reason::Kernel("faccessat2(2)")));
        }
        let mounts = Mounts::new().map_err(|e| fail(Reason::Tree(e)))?;
        let tree = Tree::new(root, mounts, limit).map_err(|e| fail(Reason::Tree(e)))?;
        umask(Mode::empty());
        let export = Export {
            qids: QidMap::new(tree.root.id.dev),
            tree,
            ids: Ids::default(),
            locks: Arc::default(),
            buffers: Arc::default(),
            ahead: Arc::default(),
            without_nowait: Arc::default(),
            exclusive: Mutex::default(),
            proc_fd,
            path: path.into_bytes(),
            next_holder: AtomicU64::new(1),
        };
        Ok(HostFs { export: Arc::new(export) })
    }

    /// Tells the addresses that this server answers (`9p://127.0.0.1:5640`): a mount of one of them
    /// inside the export is refused with ELOOP instead of waiting for itself.
    pub fn set_own_addresses(&self, addresses: Vec<String>) {
        self.export.tree.mounts.set_own(addresses);
    }
}

impl FileServer for HostFs {
    fn attach(&self, cx: &Cx, who: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        let root = &self.export.tree.root;
        let slow = root.slow;
        let session = Session {
            export: self.export.clone(),
            who: Identity::of_user(&who.user),
            dialect: who.dialect,
            ahead: self.export.ahead.budget(cx.connection()),
        };
        let file = HostFile::new(Arc::new(session), root.clone());
        let attach = move || {
            let stx = node::look(file.session.export.tree.root_fd().as_fd())?;
            let qid = file.session.export.qids.qid(&stx, 0, file.session.dialect);
            Ok((qid, Arc::new(file) as Arc<dyn File>))
        };
        if slow { Answer::blocking(attach) } else { Answer::Now(attach()) }
    }
}

impl Export {
    fn next_holder(&self) -> u64 {
        self.next_holder.fetch_add(1, Ordering::Relaxed)
    }
}

/// An eighth of what the process may open: the rest is for open fids, connections and everything else.
fn descriptors_for_walked_files() -> usize {
    let soft = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (soft.saturating_sub(256) / 8).clamp(16, 4096) as usize
}

fn has_openat2(root: &OwnedFd) -> bool {
    let resolve = rustix::fs::ResolveFlags::BENEATH;
    let result = rustix::fs::openat2(root, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    !matches!(result, Err(rustix::io::Errno::NOSYS))
}

/// Linux 5.8. Without it rustix, as C libraries do, asks for the process's real user instead of whom the thread acts as;
/// but not when it is to follow no link as well, which for `.` makes no difference.
fn has_faccessat2(root: &OwnedFd) -> bool {
    let result = accessat(root, c".", Access::EXISTS, AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW);
    // EPERM: a filter of system calls that is older than this one.
    !matches!(result, Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM))
}

/// The kernel's error as a reply.
fn os(error: rustix::io::Errno) -> Error {
    Errno(error.raw_os_error().cast_unsigned()).into()
}

/// Locks, also after a panic elsewhere: every critical section here leaves its data whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
