//! Whether anything was mounted or unmounted on this machine lately, at next to no cost.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ninefold_proto::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};

use super::os;

/// Two looks are at least so far apart.
const APART: Duration = Duration::from_micros(100);

/// A count of the changes of the mount table.
#[derive(Debug)]
pub(super) struct MountWatch {
    /// /proc/self/mountinfo: the kernel tells each holder of a change once (proc_pid_mountinfo(5)).
    table: OwnedFd,
    began: Instant,
    /// When it was looked at last: microseconds since `began`.
    looked: AtomicU64,
    looking: Mutex<()>,
    changes: AtomicU64,
}

impl MountWatch {
    pub(super) fn new() -> Result<MountWatch, Error> {
        let table = open("/proc/self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(os)?;
        Ok(MountWatch {
            table,
            began: Instant::now(),
            looked: AtomicU64::new(0),
            looking: Mutex::default(),
            changes: AtomicU64::new(0),
        })
    }

    /// How many changes were seen so far. One of the last 100 microseconds, or a little more where the thread that looks is held up, may not have been.
    pub(super) fn seen(&self) -> u64 {
        let now = self.began.elapsed().as_micros() as u64;
        if now.saturating_sub(self.looked.load(Ordering::Relaxed)) >= APART.as_micros() as u64
            && let Ok(_looking) = self.looking.try_lock()
        {
            if has_changed(&self.table) {
                self.changes.fetch_add(1, Ordering::SeqCst);
            }
            self.looked.store(now, Ordering::Relaxed);
        }
        self.changes.load(Ordering::SeqCst)
    }
}

/// Whether the mount table was changed since the descriptor was last asked this. Where that cannot be told it was.
pub(super) fn has_changed(table: impl AsFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(table.as_fd(), PollFlags::PRI)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).map_or(true, |ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::*;

    #[test]
    fn a_mount_and_its_end_are_seen_a_moment_later() {
        let (watch, at) = (MountWatch::new().unwrap(), tempfile::tempdir().unwrap());
        let later = || {
            std::thread::sleep(APART);
            watch.seen()
        };
        // Other tests mount, too.
        let is_still = || {
            let before = later();
            later() == before
        };
        assert!((0..200).any(|_| is_still()));
        let before = later();
        let may = mount("watched", at.path(), "tmpfs", MountFlags::empty(), None::<&CStr>).is_ok();
        crate::tree::hostfs::tests::have("permission to mount", may);
        if may {
            let mounted = later();
            assert!(mounted > before);
            unmount(at.path(), UnmountFlags::DETACH).unwrap();
            assert!(later() > mounted);
        }
    }
}
