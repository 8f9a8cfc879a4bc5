//! What this process has of ours: the thread of all its connections, the servers it is connected to, its open files.
//!
//! Made by the first call that needs it ([`current`]), and kept until the process ends. A child of fork(2) has none of the
//! threads, and perhaps locks that nobody will open, so it never touches its parent's: it is known by its number and by the
//! forks before it, and gets one of its own. The parent's descriptors are as if closed in it (FD_CLOFORK of POSIX.1-2024), and their numbers are not given again.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use nine::client::Error;
use nine::proto::Errno;
use nine::transport::standard;
use ninefold_stream::ninep::Waiter;
use nix::libc;
use rustix::process::{Pid, getpid};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::fence::{EDEADLK, ENOMEM, errno_of};
use crate::servers::Servers;
use crate::signals;
use crate::table::Table;

pub struct Process {
    born: Birth,
    runtime: Runtime,
    pub servers: Servers,
    pub table: Table,
}

/// What tells a process from its parent. The number alone does not: in a pid namespace of its own a child is 1, which its parent may be
/// too, and numbers come back. The count alone does not either: clone(2) runs no handlers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    pid: Pid,
    forks: u64,
}

impl Birth {
    /// This process's, from now on told from those of its children.
    pub fn begin() -> Result<Birth, Errno> {
        count_forks()?;
        Ok(Birth::now())
    }

    fn now() -> Birth {
        Birth { pid: getpid(), forks: FORKS.load(Ordering::Relaxed) }
    }

    /// Whether it is of the process that asks.
    pub fn is_this(self) -> bool {
        self == Birth::now()
    }
}

/// Forks that lie between this process and the first that used the library.
static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Sees to it that forks are counted; where two threads do so at once, twice, which is as good.
fn count_forks() -> Result<(), Errno> {
    static COUNTED: AtomicBool = AtomicBool::new(false);
    if COUNTED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: what is called in the child touches one atomic number, and stays loaded as the library does.
    match unsafe { libc::pthread_atfork(None, None, Some(forked)) } {
        0 => COUNTED.store(true, Ordering::Release),
        e => return Err(crate::fence::os(e)),
    }
    Ok(())
}

/// The last that was made; a parent's, in a child that has made none.
static LAST: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

fn last() -> Option<&'static Process> {
    // SAFETY: null, or what `current` leaked whole before it stored it; nothing is ever freed.
    unsafe { LAST.load(Ordering::Acquire).as_ref() }
}

/// This process's, if it has made one.
pub fn existing() -> Option<&'static Process> {
    last().filter(|process| process.is_this())
}

/// This process's.
pub fn current() -> Result<&'static Process, Errno> {
    loop {
        let seen = last();
        if let Some(process) = seen.filter(|process| process.is_this()) {
            return Ok(process);
        }
        let table = seen.map_or_else(Table::default, |parent| parent.table.after());
        let made = Box::into_raw(Box::new(Process::new(table)?));
        let seen = seen.map_or(std::ptr::null_mut(), |seen| std::ptr::from_ref(seen).cast_mut());
        if LAST.compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Another thread was faster.
            // SAFETY: made above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

impl Process {
    fn new(table: Table) -> Result<Process, Errno> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("ninefold").on_thread_start(signals::block_all).enable_all();
        let number = |e: std::io::Error| e.raw_os_error().map_or(ENOMEM, crate::fence::os);
        let unseen = signals::AllBlocked::begin();
        let held = standard::hold().map_err(number)?;
        let runtime = builder.build().map_err(number)?;
        drop((held, unseen));
        Ok(Process { born: Birth::begin()?, runtime, servers: Servers::default(), table })
    }

    /// Waits for `future` on the caller's thread. Within a tokio runtime it is EDEADLK: what else runs there would stand still.
    pub fn wait<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Errno> {
        if Handle::try_current().is_ok() {
            return Err(EDEADLK);
        }
        let _quiet = signals::NoSigpipe::begin();
        self.runtime.block_on(future).map_err(|e| errno_of(&e))
    }

    pub fn is_this(&self) -> bool {
        self.born.is_this()
    }

    /// Who makes a stream's calls wait for a server of this process's.
    pub fn waiter(&'static self) -> Arc<dyn Waiter> {
        Arc::new(Waiting(self))
    }
}

struct Waiting(&'static Process);

impl Waiter for Waiting {
    fn wait(&self, work: Pin<&mut dyn Future<Output = ()>>) -> ninefold_stream::Result<()> {
        let work = async {
            work.await;
            Ok(())
        };
        self.0.wait(work).map_err(|e| rustix::io::Errno::from_raw_os_error(e.0.cast_signed()).into())
    }

    fn is_here(&self) -> bool {
        self.0.is_this()
    }
}
