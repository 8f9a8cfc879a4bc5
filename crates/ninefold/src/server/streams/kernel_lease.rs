//! Leases of the kernel on files that are sent (fcntl(2), F_SETLEASE).
//!
//! Pages that lie in a socket change with their file, so what must not is copied ([`copied`](super::copied)). While such a lease is held nobody opens the file for
//! writing, or cuts it: who wants to waits until it is given up. So its pages can be sent where copies are asked for, and the lease is kept until the peer has taken
//! them; as long as the connection that they lie in has it as its [`Pledge`].
//!
//! Who waits is not to wait for long. A lease that is asked back is given up when what was sent of the file until then has been taken, which is a round trip, and copies are
//! sent from there on. A peer that takes nothing loses its connection. And a file that somebody wanted to write is not leased again for a while: who
//! writes a log line by line waits once.
//!
//! What a peer has acknowledged it has taken only where it was copied on its way ([`Ways`]): on others copies are sent as ever.
//!
//! The kernel asks by a signal, which [`listen`] hears.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use ninefold_proto::{Errno, Error};
use nix::libc;
use rustix::fs::fstat;
use rustix::process::getpid;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::bare::{Bare, ends, untaken};
use super::calls::command;
use super::descriptor::Descriptor;
use super::send_buffer::Room;
use crate::server::Server;
use crate::server::ways::Ways;

/// Bytes that are not copied for which a lease is worth its calls.
pub(super) const WORTH: u64 = 64 * 1024;

/// By what the kernel asks for a lease: a signal that is nothing to who does not listen.
const ASKS: libc::c_int = libc::SIGURG;

/// Sets the signal (linux/fcntl.h); the same on every architecture, and not known to `libc`.
const F_SETSIG: libc::c_int = 10;

/// Sets who gets it (linux/fcntl.h).
const F_SETOWN: libc::c_int = 8;

/// How long who asks waits at most for a peer that takes some, and for one that takes nothing: longer than it takes to send a lost packet again (RFC 6298).
const PATIENCE: Duration = Duration::from_secs(15);
const STILL: Duration = Duration::from_secs(3);

/// The kernel takes a lease away, whatever lies in sockets, after a time of its own (proc(5), lease-break-time): where that is less than so many times `PATIENCE` none is taken.
const MARGIN: u32 = 2;

/// For so long a file that was asked for is not leased again, nor any for a peer that did not take what it had to.
const RESPITE: Duration = Duration::from_secs(60);

/// Files that this is remembered of. Where there are more none is leased.
const RESPITES: usize = 1024;

/// The first and the longest wait between two looks at what a peer has taken.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LAST: Duration = Duration::from_millis(50);

/// A file that nobody changes until it is dropped, or [asked back](Self::is_asked_back) for long.
pub(super) struct KernelLease {
    file: Arc<dyn Descriptor>,
    id: FileId,
    asked_back: CancellationToken,
    asked_at: OnceLock<Instant>,
    table: Arc<Mutex<Table>>,
    ways: Arc<Ways>,
}

/// A file of this machine: its device and inode.
type FileId = (u64, u64);

/// Those that are held.
#[derive(Debug)]
pub(super) struct KernelLeases {
    table: Arc<Mutex<Table>>,
    ways: Arc<Ways>,
}

#[derive(Debug, Default)]
struct Table {
    /// By the descriptor that each is of. One that is being dropped may still have its entry.
    held: HashMap<RawFd, Weak<KernelLease>>,
    /// When a file was asked for last.
    asked: HashMap<FileId, Instant>,
    /// Somebody listens; `None`: nobody has tried to.
    hears: Option<bool>,
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn is_in_respite(&self, id: FileId, now: Instant) -> bool {
        match self.asked.get(&id) {
            Some(&asked) => now.saturating_duration_since(asked) < RESPITE,
            // It may have been among those that there was no room for.
            None => self.asked.len() >= RESPITES,
        }
    }

    fn was_asked_for(&mut self, id: FileId, now: Instant) {
        if self.asked.len() >= RESPITES {
            self.asked.retain(|_, asked| now.saturating_duration_since(*asked) < RESPITE);
        }
        if self.asked.len() < RESPITES {
            self.asked.insert(id, now);
        }
    }
}

impl fmt::Debug for KernelLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelLease").field("id", &self.id).finish_non_exhaustive()
    }
}

impl KernelLease {
    /// A lease on a file that [may be leased](may_be_leased) for what is sent of it on a connection, where there can be one: nobody has it open for writing, nobody wanted to
    /// lately, the rights of this process allow it, and what is sent is copied on its way.
    async fn take(server: &Arc<Server>, file: &Arc<dyn Descriptor>, bare: &Bare) -> Option<Arc<KernelLease>> {
        let streams = &server.streams;
        let is_copied = streams.ways.copies(bare.ends()).await;
        if is_copied && streams.kernel_leases.are_heard(server) { streams.kernel_leases.take(file) } else { None }
    }

    /// Whether somebody waits to change the file.
    pub fn is_asked_back(&self) -> bool {
        self.asked_back.is_cancelled()
    }

    /// Whether it was asked back for so long that the kernel may take it away, or has: what lies in sockets may have changed.
    fn is_overdue(&self) -> bool {
        self.asked_at.get().is_some_and(|asked| asked.elapsed() >= PATIENCE)
    }

    fn ask_back(&self) {
        let _ = self.asked_at.set(Instant::now());
        self.asked_back.cancel();
    }

    fn is_of(&self, file: &dyn Descriptor) -> bool {
        // It keeps its descriptor open, so that no other has its number.
        self.file.fd().as_raw_fd() == file.fd().as_raw_fd()
    }
}

impl Drop for KernelLease {
    fn drop(&mut self) {
        let fd = self.file.fd();
        {
            let mut table = lock(&self.table);
            // Another may have been taken meanwhile, which is the same to the kernel.
            if table.held.get(&fd.as_raw_fd()).is_some_and(|lease| lease.strong_count() == 0) {
                table.held.remove(&fd.as_raw_fd());
                // It fails where the kernel has taken it away.
                let _ = command(fd, libc::F_SETLEASE, libc::F_UNLCK);
            }
        }
        // The last close of a file that was removed may take long.
        if Arc::strong_count(&self.file) == 1
            && fstat(fd).is_ok_and(|stat| stat.st_nlink == 0)
            && let Ok(runtime) = Handle::try_current()
        {
            let file = self.file.clone();
            drop(runtime.spawn_blocking(move || drop(file)));
        }
    }
}

impl KernelLeases {
    pub fn new(ways: Arc<Ways>) -> KernelLeases {
        KernelLeases { table: Arc::default(), ways }
    }

    fn take(&self, file: &Arc<dyn Descriptor>) -> Option<Arc<KernelLease>> {
        let stat = fstat(file.fd()).ok()?;
        let id = (stat.st_dev, stat.st_ino);
        let fd = file.fd();
        let found = {
            let mut table = lock(&self.table);
            let found = table.held.get(&fd.as_raw_fd()).and_then(Weak::upgrade);
            if found.is_none() {
                // Who heard may just have ended.
                if table.hears != Some(true) || table.is_in_respite(id, Instant::now()) {
                    return None;
                }
                // The process, as a thread may end before it is asked.
                command(fd, F_SETOWN, getpid().as_raw_nonzero().get()).ok()?;
                command(fd, F_SETSIG, ASKS).ok()?;
                command(fd, libc::F_SETLEASE, libc::F_RDLCK).ok()?;
                if !is_leased(fd) {
                    // It is one of before that somebody has asked for, and that nobody has given up yet.
                    let _ = command(fd, libc::F_SETLEASE, libc::F_UNLCK);
                    return None;
                }
                let asked_back = CancellationToken::new();
                let lease = Arc::new(KernelLease {
                    file: file.clone(),
                    id,
                    asked_back,
                    asked_at: OnceLock::new(),
                    table: self.table.clone(),
                    ways: self.ways.clone(),
                });
                table.held.insert(fd.as_raw_fd(), Arc::downgrade(&lease));
                return Some(lease);
            }
            found
        };
        // Dropped, it takes the lock.
        found.filter(|lease| !lease.is_asked_back())
    }

    /// Tells those that have a lease that somebody waits for; whether there are any.
    fn ask_back(&self) -> bool {
        let held: Vec<Arc<KernelLease>> = lock(&self.table).held.values().filter_map(Weak::upgrade).collect();
        let is_asked = |lease: &Arc<KernelLease>| !lease.is_asked_back() && !is_leased(lease.file.fd());
        let asked: Vec<_> = held.iter().filter(|lease| is_asked(lease)).collect();
        for lease in &asked {
            debug!(?lease, "a file that is sent is wanted for writing");
            lock(&self.table).was_asked_for(lease.id, Instant::now());
            lease.ask_back();
        }
        !asked.is_empty()
    }

    /// Whether what the kernel asks for is heard, from now on if not before.
    fn are_heard(&self, server: &Arc<Server>) -> bool {
        if let Some(hears) = lock(&self.table).hears {
            return hears;
        }
        let asks = if is_patient() { signal(SignalKind::from_raw(ASKS)).ok() } else { None };
        {
            let mut table = lock(&self.table);
            // Another may have begun meanwhile.
            if let Some(hears) = table.hears {
                return hears;
            }
            table.hears = Some(asks.is_some());
        }
        match asks {
            // A runtime that ends drops the task here, which takes the lock.
            Some(asks) => drop(tokio::spawn(listen(asks, Listens(Arc::downgrade(server))))),
            None => debug!("files are not leased: the kernel waits for too short a time, or is not heard"),
        }
        lock(&self.table).hears == Some(true)
    }
}

/// Whether a file is one of those of which leases are asked for.
pub(super) fn may_be_leased(server: &Server, file: &dyn Descriptor) -> bool {
    server.streams.limits.kernel_leases && file.can_be_leased()
}

/// Whether there is a lease on an open file that nobody has asked for.
fn is_leased(file: BorrowedFd<'_>) -> bool {
    command(file, libc::F_GETLEASE, 0).is_ok_and(|lease| lease == libc::F_RDLCK)
}

/// Whether the kernel waits for longer than a peer is waited for.
fn is_patient() -> bool {
    let time = std::fs::read_to_string("/proc/sys/fs/lease-break-time").ok();
    time.and_then(|time| time.trim().parse().ok()).is_some_and(|time| Duration::from_secs(time) >= PATIENCE * MARGIN)
}

/// Who listens. Dropped, with its runtime, say, it leaves nobody with a lease of which nothing would be heard.
struct Listens(Weak<Server>);

impl Drop for Listens {
    fn drop(&mut self) {
        if let Some(server) = self.0.upgrade() {
            let held: Vec<_> = {
                let mut table = lock(&server.streams.kernel_leases.table);
                table.hears = None;
                table.held.values().filter_map(Weak::upgrade).collect()
            };
            for lease in held {
                lease.ask_back();
            }
            server.streams.lenders.ask_back();
        }
    }
}

async fn listen(mut asks: Signal, to: Listens) {
    while asks.recv().await.is_some() {
        let Some(server) = to.0.upgrade() else { return };
        if server.streams.kernel_leases.ask_back() {
            server.streams.lenders.ask_back();
        }
    }
}

/// What a connection must keep until its peer has taken all that lies in it: a lease of a file whose pages do. Until then it is closed by a reset
/// ([`closing`](super::closing)), so that nobody takes for whole what may have changed on its way. And until it is closed what it has of the room that all share.
#[derive(Debug, Default)]
pub(super) struct Pledge {
    lease: Option<Arc<KernelLease>>,
    pub room: Room,
}

impl Pledge {
    pub fn is_held(&self) -> bool {
        self.lease.is_some()
    }

    /// For who sends pages meanwhile.
    pub fn lease(&self) -> Option<Arc<KernelLease>> {
        self.lease.clone()
    }

    /// Whether what is sent of this file, which [may be leased](may_be_leased), is kept from change: by the pledge that there is, or a new one.
    pub async fn covers(&mut self, server: &Arc<Server>, file: &Arc<dyn Descriptor>, bare: &Bare) -> bool {
        self.end_if_taken(bare);
        match &self.lease {
            Some(lease) => lease.is_of(&**file) && !lease.is_asked_back(),
            None => {
                self.lease = KernelLease::take(server, file, bare).await;
                self.is_held()
            }
        }
    }

    pub fn is_asked_back(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_asked_back())
    }

    /// Waits until somebody wants to change the file; for ever where there is no pledge.
    pub async fn asked_back(&self) {
        match &self.lease {
            Some(lease) => lease.asked_back.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// It is over where the peer has taken all, in time.
    pub fn end_if_taken(&mut self, outlet: &impl AsFd) {
        if self.lease.as_ref().is_some_and(|lease| !lease.is_overdue()) && untaken(outlet.as_fd()) == Some(0) {
            self.lease = None;
        }
    }

    /// Waits until the peer has taken all, or somebody asks for the lease.
    pub async fn taken_or_asked_back(&mut self, outlet: &impl AsFd) {
        let mut step = LOOK_FIRST;
        loop {
            self.end_if_taken(outlet);
            if !self.is_held() || self.is_asked_back() {
                return;
            }
            let _ = timeout(step, self.asked_back()).await;
            step = (step * 2).min(LOOK_LAST);
        }
    }

    /// It is over: its connection is closed, by a reset.
    pub fn end(&mut self) {
        self.lease = None;
    }

    /// Waits until the peer has taken all; then it is over. An error where who asked for the lease would wait for too long: the connection is to be reset.
    pub async fn redeem(&mut self, outlet: &impl AsFd) -> Result<(), Error> {
        self.redeem_within(PATIENCE, outlet).await
    }

    /// The same, where nobody may have asked for it, for no longer than `longest`.
    pub async fn redeem_within(&mut self, longest: Duration, outlet: &impl AsFd) -> Result<(), Error> {
        let Some(lease) = &self.lease else { return Ok(()) };
        let (outlet, longest) = (outlet.as_fd(), Instant::now() + longest);
        // However many such waits there were since it was asked for.
        let until = lease.asked_at.get().map_or(longest, |&asked| longest.min(asked + PATIENCE));
        if !is_taken(outlet, until).await {
            if lease.is_asked_back()
                && untaken(outlet) != Some(0)
                && let Some(ends) = ends(outlet)
            {
                lease.ways.mistrust(ends, RESPITE);
            }
            return Err(Error::with_text(
                Errno::ETIMEDOUT,
                "another program waits to write the file, and the peer has not taken what was sent of it",
            ));
        }
        self.lease = None;
        Ok(())
    }
}

/// Whether a peer takes all that was sent to it before it has been waited for too long.
async fn is_taken(outlet: BorrowedFd<'_>, until: Instant) -> bool {
    let (mut least, mut since, mut step) = (usize::MAX, Instant::now(), LOOK_FIRST);
    loop {
        // What is taken too late may have been changed before.
        let is_late = Instant::now() >= until;
        let left = untaken(outlet).unwrap_or(usize::MAX);
        if left == 0 && !is_late {
            return true;
        }
        if left < least {
            (least, since) = (left, Instant::now());
        }
        if is_late || since.elapsed() >= STILL {
            return false;
        }
        sleep(step).await;
        step = (step * 2).min(LOOK_LAST);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::OpenOptionsExt;

    use super::super::plain::Plain;
    use super::*;

    /// linux/fcntl.h.
    const F_GETOWN: libc::c_int = 9;

    /// A file in memory, which every machine's kernel leases, and which nobody has open for writing.
    fn file() -> (tempfile::TempPath, Arc<dyn Descriptor>) {
        let path = tempfile::NamedTempFile::new_in("/dev/shm").unwrap().into_temp_path();
        let file = open(&path);
        (path, file)
    }

    fn open(path: &tempfile::TempPath) -> Arc<dyn Descriptor> {
        Arc::new(Plain::new(File::open(path).unwrap()).leased())
    }

    /// Somebody wants to write it, without a wait.
    fn ask(path: &tempfile::TempPath) -> io::Result<File> {
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path)
    }

    fn deaf() -> KernelLeases {
        KernelLeases::new(Arc::new(Ways::new(true)))
    }

    /// What comes by the signal is nothing to a process in which nobody listens.
    fn leases() -> KernelLeases {
        let leases = deaf();
        lock(&leases.table).hears = Some(true);
        leases
    }

    #[test]
    fn an_open_file_is_leased_until_the_last_of_those_that_have_its_lease_drops_it() {
        let leases = leases();
        let (path, file) = file();
        let (first, second) = (leases.take(&file).unwrap(), leases.take(&file).unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        // Opened again it has one of its own.
        let again = open(&path);
        let third = leases.take(&again).unwrap();
        assert!(!Arc::ptr_eq(&first, &third));
        drop(first);
        assert!(is_leased(file.fd()));
        drop(second);
        assert!(!is_leased(file.fd()) && is_leased(again.fd()));
        drop(third);
        assert!(!is_leased(again.fd()) && lock(&leases.table).held.is_empty());
        assert!(ask(&path).is_ok());
    }

    #[test]
    fn the_process_is_asked_whichever_of_its_threads_took_the_lease() {
        let (leases, (_path, file)) = (leases(), file());
        let lease = std::thread::scope(|scope| scope.spawn(|| leases.take(&file)).join().unwrap().unwrap());
        assert_eq!(command(lease.file.fd(), F_GETOWN, 0).unwrap(), getpid().as_raw_nonzero().get());
    }

    #[test]
    fn what_was_asked_for_is_told_to_those_that_have_it_and_not_leased_again_for_a_while() {
        let leases = leases();
        let ((path, file), (_other_path, other)) = (file(), file());
        let (lease, others) = (leases.take(&file).unwrap(), leases.take(&other).unwrap());
        assert!(!leases.ask_back() && !lease.is_asked_back());
        assert_eq!(ask(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(leases.ask_back() && lease.is_asked_back() && !others.is_asked_back());
        assert!(!leases.ask_back(), "it is told once");
        assert!(leases.take(&file).is_none() && !lock(&leases.table).held.is_empty());
        drop(lease);
        assert!(leases.take(&file).is_none() && leases.take(&open(&path)).is_none());
        assert!(leases.take(&other).is_some());
        let began = Instant::now();
        let mut table = Table::default();
        table.was_asked_for((1, 1), began);
        assert!(table.is_in_respite((1, 1), began) && !table.is_in_respite((1, 2), began));
        assert!(!table.is_in_respite((1, 1), began + RESPITE));
    }

    #[test]
    fn what_somebody_has_open_for_writing_is_not_leased() {
        let leases = leases();
        let (path, file) = file();
        let writer = ask(&path).unwrap();
        assert!(leases.take(&file).is_none());
        drop(writer);
        assert!(leases.take(&file).is_some());
    }

    #[test]
    fn where_nobody_hears_nothing_is_leased() {
        let (leases, (_path, file)) = (deaf(), file());
        assert!(leases.take(&file).is_none());
    }

    #[test]
    fn no_more_files_are_remembered_than_there_is_room_for() {
        let (began, mut table) = (Instant::now(), Table::default());
        for n in 0..RESPITES as u64 {
            table.was_asked_for((1, n), began);
        }
        assert!(!table.is_in_respite((1, 1), began + RESPITE) && table.is_in_respite((2, 1), began));
        table.was_asked_for((2, 1), began);
        assert!(table.asked.len() == RESPITES);
        table.was_asked_for((2, 1), began + RESPITE);
        assert!(table.is_in_respite((2, 1), began + RESPITE) && table.asked.len() == 1);
    }
}
