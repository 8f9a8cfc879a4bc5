//! Opening: an [`OpenFile`] is what an open fid holds.
//!
//! The inode that was walked to is opened, through /proc/self/fd, so nothing can come between. What
//! is not a plain file or directory is opened with O_NONBLOCK: no thread waits for a FIFO's other end.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use ninefold_proto::open::{Access, Open, lflags};
use ninefold_proto::stat::dm;
use ninefold_proto::{Dialect, Errno, Error, Qid};
use rustix::fs::{FileType, Mode, OFlags, Statx, fcntl_getfl, fcntl_setfl, openat};
use tokio::io::unix::AsyncFd;

use super::creds::Identity;
use super::dir_stream::DirStream;
use super::file::HostFile;
use super::node::{FileId, look};
use super::prefetch::prefetch;
use super::qid::file_type;
use super::{Export, Pace, lock, os};

/// How long a file that is opened is taken to keep its name.
const MOMENT: Duration = Duration::from_secs(1);

/// The device whose file system was last found to know no RWF_NOWAIT for writing: what is opened there next need not ask again.
#[derive(Default, Debug)]
pub(super) struct WithoutNowait(AtomicU64);

impl WithoutNowait {
    /// No device has it.
    const NONE: u64 = 0;

    fn is(&self, dev: u64) -> bool {
        dev != WithoutNowait::NONE && self.0.load(Ordering::Relaxed) == dev
    }

    fn note(&self, dev: u64) {
        self.0.store(dev, Ordering::Relaxed);
    }
}

/// An open file.
pub(super) struct OpenFile {
    pub(super) fd: Arc<OwnedFd>,
    /// Unique among the open files of the export; locks are held by it.
    pub(super) holder: u64,
    pub(super) flow: Flow,
    /// Its file system answers from another program or machine.
    pub(super) slow: bool,
    dev: u64,
    without_nowait: Arc<WithoutNowait>,
    /// When it was opened, if it had a name then.
    named_at: Option<Instant>,
    /// Held while the descriptor's position is moved and asked for. Reads and writes have offsets of their own.
    pub(super) position: Mutex<()>,
    /// A directory's entries.
    pub(super) dir: Option<Arc<DirStream>>,
    /// Held while the file is open, if it is for exclusive use.
    _exclusive: Option<Exclusive>,
}

impl OpenFile {
    /// A write could not be told not to wait: nor can another one there.
    pub(super) fn never_writes_nowait(&self) {
        if let Flow::Plain { nowait_write, .. } = &self.flow {
            nowait_write.store(false, Ordering::Relaxed);
        }
        self.without_nowait.note(self.dev);
    }

    /// Whether closing it may take as long as a disk or another machine does. Of a file that was opened a moment ago it is not asked
    /// whether it was removed since, on the host or by another name, as many are open for no longer: who closes it frees its blocks then.
    pub(super) fn closes_slowly(&self) -> bool {
        let is_fresh = self.named_at.is_some_and(|at| at.elapsed() < MOMENT);
        self.slow || !is_fresh && look(self.fd.as_fd()).is_ok_and(|stx| stx.stx_nlink == 0)
    }
}

/// Where a fid keeps its open file, until it is clunked. What clones it shares it; one that was never open nor shared is no memory of its own: of
/// thousands of fids most are only walked, and what a request costs then is the cache lines that it touches.
#[derive(Default)]
pub(super) struct OpenSlot(OnceLock<Arc<Shared>>);

#[derive(Default)]
struct Shared {
    open: Mutex<Option<Arc<OpenFile>>>,
    /// Where that lies, to be asked for without the lock; nobody looks behind it.
    at: AtomicPtr<OpenFile>,
}

impl Clone for OpenSlot {
    fn clone(&self) -> OpenSlot {
        OpenSlot(OnceLock::from(self.shared().clone()))
    }
}

impl OpenSlot {
    fn shared(&self) -> &Arc<Shared> {
        self.0.get_or_init(Arc::default)
    }

    pub(super) fn get(&self) -> Option<Arc<OpenFile>> {
        lock(&self.0.get()?.open).clone()
    }

    /// Asks memory for the open file, which is about to be used; whether there is one, or was.
    pub(super) fn warm(&self) -> bool {
        let at = self.0.get().map_or(ptr::null_mut(), |shared| shared.at.load(Ordering::Relaxed));
        let is_open = !at.is_null();
        if is_open {
            prefetch(at);
        }
        is_open
    }

    /// The fid is open no more; whoever drops what this answers closes the file.
    pub(super) fn take(&self) -> Option<Arc<OpenFile>> {
        self.0.get()?.take()
    }

    fn set(&self, open: OpenFile) -> Result<(), Error> {
        let shared = self.shared();
        let mut slot = lock(&shared.open);
        if slot.is_some() {
            return Err(Errno::EBADF.into());
        }
        let open = slot.insert(Arc::new(open));
        shared.at.store(Arc::as_ptr(open).cast_mut(), Ordering::Relaxed);
        Ok(())
    }
}

impl Shared {
    fn take(&self) -> Option<Arc<OpenFile>> {
        lock(&self.open).take()
    }
}

// Only for a file that nobody clunks, such as one whose create failed at its end.
impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(open) = self.take()
            && open.closes_slowly()
        {
            drop_elsewhere(open);
        }
    }
}

/// Drops what holds a descriptor where that may wait: closing the last one of a removed file frees its
/// blocks, and other machines' file systems write behind until the close.
pub(super) fn drop_elsewhere(holder: impl Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn_blocking(move || drop(holder));
    }
}

/// How its bytes move.
pub(super) enum Flow {
    /// At offsets, from the page cache if they are there.
    Plain {
        /// The file system knows RWF_NOWAIT for reading.
        nowait_read: AtomicBool,
        /// The same for writing; never so when a write waits for the disk anyway (O_SYNC).
        nowait_write: AtomicBool,
        /// It is of a file system in memory; looked at when that is first asked.
        in_memory: OnceLock<bool>,
        /// The kernel may have a lease on it; looked at likewise.
        leased: OnceLock<bool>,
        /// A write ends in this machine's page cache: no O_SYNC, no other machine's file system.
        buffered: bool,
        /// O_DIRECT is set.
        direct: AtomicBool,
        /// The file system hands its pages to pipes.
        splices: AtomicBool,
        /// And takes those of pipes, where it is open for more than appending.
        takes: AtomicBool,
        /// Where the last read through a pipe ended: what lies before it was in the page cache.
        read_to: AtomicU64,
    },
    /// On the blocking pool: block devices, and character devices that never make anybody wait.
    Device,
    /// As they come: FIFOs, terminals.
    Stream(AsyncFd<Arc<OwnedFd>>),
}

/// A file marked for exclusive use, while it is open.
pub(super) struct Exclusive {
    export: Arc<Export>,
    id: FileId,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        lock(&self.export.exclusive).remove(&self.id);
    }
}

/// open(2)'s flags for a request, without those that are set afterwards.
pub(super) fn open_flags(how: &Open) -> OFlags {
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
    flags |= match how.access {
        Access::Read | Access::Exec => OFlags::RDONLY,
        Access::Write => OFlags::WRONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    for (bit, flag) in [
        (lflags::TRUNC, OFlags::TRUNC),
        (lflags::APPEND, OFlags::APPEND),
        (lflags::DIRECTORY, OFlags::DIRECTORY),
        (lflags::NOATIME, OFlags::NOATIME),
        (lflags::DSYNC, OFlags::DSYNC),
        // The bit without DSYNC's, as .L has it.
        (lflags::SYNC, OFlags::SYNC),
    ] {
        if how.has(bit) {
            flags |= flag;
        }
    }
    flags
}

impl HostFile {
    /// Opens the file of this fid.
    pub(super) fn open_node(&self, how: Open, pace: Pace) -> Result<Qid, Error> {
        if self.node.kind == FileType::Symlink && self.session.dialect == Dialect::Plan9 {
            return Err(Errno::ENOENT.into());
        }
        let may_wait = how.has(lflags::TRUNC) || !matches!(self.node.kind, FileType::RegularFile | FileType::Directory);
        if pace == Pace::Inline && may_wait {
            return Err(Errno::EAGAIN.into());
        }
        let path_fd = self.fd(pace)?;
        let stx = look(path_fd.as_fd())?;
        let marks = self.session.marks(path_fd.as_fd(), &stx)?;
        let exclusive = self.claim(marks, self.session.export.tree.id(&stx))?;
        let mut flags = open_flags(&how);
        if marks & dm::APPEND != 0 {
            // open(5): the open succeeds, but the file is not truncated.
            flags = (flags | OFlags::APPEND) & !OFlags::TRUNC;
        }
        // Also for a plain file when nothing may wait: for the holder of a lease (fcntl(2)) to give it up.
        if pace == Pace::Inline || self.node.kind != FileType::RegularFile {
            flags |= OFlags::NONBLOCK;
        }
        self.session.who.assume()?;
        let fd = self.reopen(path_fd.as_fd(), &how, flags)?;
        let stx = if how.has(lflags::TRUNC) { look(fd.as_fd())? } else { stx };
        self.opened_as(fd, &stx, &how, exclusive)?;
        Ok(self.session.export.qids.qid(&stx, marks, self.session.dialect))
    }

    fn reopen(&self, path_fd: BorrowedFd<'_>, how: &Open, flags: OFlags) -> Result<OwnedFd, Error> {
        let export = &self.session.export;
        let name = path_fd.as_raw_fd().to_string();
        let open = |flags| export.tree.with_room(|| openat(&export.proc_fd, name.as_str(), flags, Mode::empty()));
        if how.access == Access::Exec {
            self.access(path_fd, rustix::fs::Access::EXEC_OK)?;
        }
        let result = match open(flags) {
            Err(rustix::io::Errno::PERM) if flags.contains(OFlags::NOATIME) => open(flags & !OFlags::NOATIME),
            result => result,
        };
        match result {
            // open(5): for OEXEC the permission to execute is enough.
            Err(rustix::io::Errno::ACCESS) if how.access == Access::Exec && !flags.contains(OFlags::TRUNC) => {
                Identity::of_server().assume()?;
                open(flags).map_err(os)
            }
            result => result.map_err(os),
        }
    }

    /// Takes a file that is marked for exclusive use; EBUSY while somebody else has it open.
    pub(super) fn claim(&self, marks: u32, id: FileId) -> Result<Option<Exclusive>, Error> {
        if marks & dm::EXCL == 0 {
            return Ok(None);
        }
        let export = &self.session.export;
        if !lock(&export.exclusive).insert(id) {
            return Err(Error::with_text(Errno::EBUSY, "exclusive access file"));
        }
        Ok(Some(Exclusive { export: export.clone(), id }))
    }

    /// From now on this fid is open with `fd`.
    pub(super) fn opened_as(
        &self,
        fd: OwnedFd,
        stx: &Statx,
        how: &Open,
        exclusive: Option<Exclusive>,
    ) -> Result<(), Error> {
        let kind = file_type(stx);
        let fd = Arc::new(fd);
        let fast = !self.node.slow;
        let dev = self.node.id.dev;
        let flow = match kind {
            FileType::RegularFile | FileType::Directory => {
                // Set afterwards, because a file system without it would refuse the open or, worse,
                // leave behind the file that a create has made.
                let direct = how.has(lflags::DIRECT)
                    && fcntl_getfl(&fd).and_then(|flags| fcntl_setfl(&fd, flags | OFlags::DIRECT)).is_ok();
                let synced = how.has(lflags::DSYNC) || how.has(lflags::SYNC);
                Flow::Plain {
                    nowait_read: AtomicBool::new(fast),
                    nowait_write: AtomicBool::new(fast && !synced && !self.session.export.without_nowait.is(dev)),
                    in_memory: OnceLock::new(),
                    leased: OnceLock::new(),
                    buffered: fast && !synced,
                    direct: AtomicBool::new(direct),
                    splices: AtomicBool::new(kind == FileType::RegularFile),
                    takes: AtomicBool::new(kind == FileType::RegularFile && !how.has(lflags::APPEND)),
                    read_to: AtomicU64::new(u64::MAX),
                }
            }
            FileType::BlockDevice => Flow::Device,
            // Without a runtime, and for devices that epoll does not know (/dev/null), no wait is needed.
            _ => stream(&fd).map_or(Flow::Device, Flow::Stream),
        };
        self.node.add_opened(&fd);
        let holder = self.session.export.next_holder();
        // What another program or machine would have to bring is not asked for before it is wanted.
        let dir = (kind == FileType::Directory).then(|| DirStream::new(fast, &self.session.ahead));
        let position = Mutex::default();
        let named_at = (stx.stx_nlink > 0).then(Instant::now);
        let without_nowait = self.session.export.without_nowait.clone();
        let open = OpenFile {
            fd,
            holder,
            flow,
            slow: self.node.slow,
            dev,
            without_nowait,
            named_at,
            position,
            dir,
            _exclusive: exclusive,
        };
        self.open.set(open)
    }
}

/// Registers a descriptor with the reactor. None without a runtime, and for devices that epoll does not
/// know (/dev/null): those never make anybody wait.
// The successor of `new` is unsafe because of types whose descriptor may be closed or changed behind
// AsyncFd's back; an OwnedFd's cannot be.
#[allow(deprecated)]
fn stream(fd: &Arc<OwnedFd>) -> Option<AsyncFd<Arc<OwnedFd>>> {
    tokio::runtime::Handle::try_current().ok()?;
    AsyncFd::new(fd.clone()).ok()
}
