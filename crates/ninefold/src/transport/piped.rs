//! Parts of files on their way to a socket, or from one, without passing through memory of ours: [`Piped`] is what a pipe holds of
//! one, as pages of the page cache, or as what came (splice(2)).
//!
//! A page is taken, not its content: who writes to the file before the peer's program has read the bytes may change them, and
//! who cuts it off may make those behind its new end zeros, as with sendfile(2) and with Linux's NFS server
//! (docs/semantics.md).
//!
//! A pipe holds pages: of 4 KiB mostly, of 64 KiB on some machines, where it holds fewer.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use crossbeam_queue::ArrayQueue;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use rustix::process::Signal;

/// Bytes that a pipe takes, if they begin with a page: all that a user may ask for (/proc/sys/fs/pipe-max-size).
const SIZE: usize = 1 << 20;

/// Pipes of this process. A user's may have 64 MiB together (/proc/sys/fs/pipe-user-pages-soft), and other programs, perhaps
/// servers too, want some.
const MOST: usize = 24;

/// Pipes that hold data of one connection: what a slow peer does not fetch holds no more. Where they are sent soon a few
/// are enough, because those that wait are gathered into one.
const MOST_OF_ONE: usize = 9;

/// Empty pipes that are kept: all that one connection uses, or each of its groups of replies would make one anew.
const IDLE: usize = MOST_OF_ONE + 3;

/// Reads that go without a pipe after one was refused by the kernel: to ask each time costs four calls.
const WITHOUT: usize = 1000;

/// Reads of a connection after such a one for which a wait is reckoned with.
const WARY: usize = 256;

static POOL: LazyLock<Pool> =
    LazyLock::new(|| Pool { idle: ArrayQueue::new(IDLE), made: AtomicUsize::new(0), without: AtomicUsize::new(0) });

struct Pool {
    idle: ArrayQueue<Pipe>,
    /// Pipes there are, idle ones with them.
    made: AtomicUsize,
    /// Reads to come for which none is asked for.
    without: AtomicUsize,
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pool {
    fn take(&self) -> Option<Pipe> {
        if let Some(pipe) = self.idle.pop() {
            return Some(pipe);
        }
        if count_down(&self.without) {
            return None;
        }
        let more = |made| (made < MOST).then_some(made + 1);
        self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let made = Pipe::new();
        if made.is_none() {
            self.made.fetch_sub(1, Ordering::Relaxed);
            self.without.store(WITHOUT, Ordering::Relaxed);
        }
        made
    }

    /// `empty`: whether it may be used again.
    fn give_back(&self, pipe: Pipe, empty: bool) {
        let left = if empty { self.idle.push(pipe).err() } else { Some(pipe) };
        if let Some(pipe) = left {
            drop(pipe);
            self.made.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Takes one off, if there is any.
fn count_down(count: &AtomicUsize) -> bool {
    count.load(Ordering::Relaxed) > 0
        && count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
}

/// Closes the empty pipes that are kept; `false` where there are none. For who needs their descriptors.
pub(crate) fn close_idle_pipes() -> bool {
    let closed = std::iter::from_fn(|| POOL.idle.pop()).take(IDLE).map(drop).count();
    POOL.made.fetch_sub(closed, Ordering::Relaxed);
    closed > 0
}

/// Whether splice(2) to a connection that is gone, which raises SIGPIPE, leaves this process alive: it ignores the signal, as
/// Rust programs do, or handles it.
pub(super) fn sigpipe_is_harmless() -> bool {
    static HARMLESS: LazyLock<bool> = LazyLock::new(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let has = |mask: Option<&str>| {
            let bits = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or_default();
            bits & 1 << (Signal::PIPE.as_raw() - 1) != 0
        };
        has(mask("SigIgn:")) || has(mask("SigCgt:"))
    });
    *HARMLESS
}

impl Pipe {
    /// `None` where there is no descriptor for it, or a small pipe is all there is.
    fn new() -> Option<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        let size = fcntl_setpipe_size(&write, SIZE).ok()?;
        (size >= SIZE).then_some(Pipe { read, write })
    }
}

/// The pipes that data of one connection may be in.
#[derive(Clone, Default, Debug)]
pub(crate) struct PipeShare(Arc<Share>);

#[derive(Default, Debug)]
struct Share {
    held: AtomicUsize,
    /// Reads to come for which a wait is reckoned with.
    wary: AtomicUsize,
}

impl PipeShare {
    /// An empty pipe, unless too many are in use.
    pub fn take(&self) -> Option<Piped> {
        let more = |held| (held < MOST_OF_ONE).then_some(held + 1);
        self.0.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let Some(pipe) = POOL.take() else {
            self.0.held.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        Some(Piped { pipe: Some(pipe), left: AtomicUsize::new(0), tainted: false, share: self.clone() })
    }
}

/// Bytes in a pipe of their own, which goes back to the others when this is dropped.
#[derive(Debug)]
pub(crate) struct Piped {
    /// Until it is dropped.
    pipe: Option<Pipe>,
    /// Bytes in it.
    left: AtomicUsize,
    /// A call failed that may have left something in it.
    tainted: bool,
    share: PipeShare,
}

impl Piped {
    /// The most bytes that a pipe takes.
    pub const CAPACITY: usize = SIZE;

    /// A fill for this connection has waited although it seemed not to have to: its next ones are made with that in mind.
    pub fn make_wary(&self) {
        self.share.0.wary.store(WARY, Ordering::Relaxed);
    }

    /// Whether that was lately. Tells so for one read.
    pub fn is_wary(&self) -> bool {
        count_down(&self.share.0.wary)
    }

    /// Takes up to `count` bytes of `file` from `offset` on: fewer where the file ends, and where the pipe is full, which
    /// holds so many pages. May wait for a disk. On an error the pipe is as before.
    pub fn fill(&mut self, file: impl AsFd, mut offset: u64, count: usize) -> Result<usize, Errno> {
        let Some(pipe) = &self.pipe else { return Err(Errno::BADF) };
        let mut done = 0;
        let result = loop {
            if done == count {
                break Ok(done);
            }
            let flags = SpliceFlags::NONBLOCK;
            match splice(&file, Some(&mut offset), &pipe.write, None, count - done, flags) {
                Ok(0) => break Ok(done),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(_) if done > 0 => break Ok(done),
                Err(error) => break Err(error),
            }
        };
        self.tainted |= result.is_err();
        *self.left.get_mut() += done;
        result
    }

    /// Takes up to `count` bytes that have come to `socket`; EAGAIN where none have, or the pipe is full, 0 at the end.
    pub fn receive(&mut self, socket: impl AsFd, count: usize) -> Result<usize, Errno> {
        let Some(pipe) = &self.pipe else { return Err(Errno::BADF) };
        let n = splice(&socket, None, &pipe.write, None, count, SpliceFlags::NONBLOCK | SpliceFlags::MOVE)?;
        *self.left.get_mut() += n;
        Ok(n)
    }

    /// Writes what is in it to `file` at `offset`; says how much of it was written. May wait for a disk.
    pub fn store(&mut self, file: impl AsFd, mut offset: u64) -> Result<usize, Errno> {
        let Some(pipe) = &self.pipe else { return Err(Errno::BADF) };
        let left = self.left.get_mut();
        let n = splice(&pipe.read, None, &file, Some(&mut offset), *left, SpliceFlags::MOVE)?;
        *left -= n;
        Ok(n)
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Puts bytes behind those in it; fewer than all where it gets full, EAGAIN where it is.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(pipe) = &self.pipe else { return Err(Errno::BADF) };
        let n = rustix::io::write(&pipe.write, bytes)?;
        *self.left.get_mut() += n;
        Ok(n)
    }

    /// Takes what is in `other`, in the same way.
    pub fn take_over(&mut self, other: &Piped) -> Result<usize, Errno> {
        let Some(pipe) = &self.pipe else { return Err(Errno::BADF) };
        let n = other.send(&pipe.write, false)?;
        *self.left.get_mut() += n;
        Ok(n)
    }

    /// Sends as much as `socket`, or another pipe, takes now, at least a byte; EAGAIN when it takes none. `more` follows soon.
    pub fn send(&self, socket: impl AsFd, more: bool) -> Result<usize, Errno> {
        let Some(pipe) = &self.pipe else { return Err(Errno::BADF) };
        let left = self.left.load(Ordering::Relaxed);
        let flags = SpliceFlags::NONBLOCK | if more { SpliceFlags::MORE } else { SpliceFlags::empty() };
        let sent = splice(&pipe.read, None, &socket, None, left, flags)?;
        self.left.store(left - sent, Ordering::Relaxed);
        Ok(sent)
    }
}

impl Read for Piped {
    /// At most the bytes that are left in it.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get_mut();
        let wanted = (*left).min(buf.len());
        let Some(pipe) = &self.pipe else { return Err(Errno::BADF.into()) };
        if wanted == 0 {
            return Ok(0);
        }
        let n = rustix::io::read(&pipe.read, &mut buf[..wanted])?;
        *left -= n;
        Ok(n)
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            POOL.give_back(pipe, *self.left.get_mut() == 0 && !self.tainted);
        }
        self.share.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Held by tests that count pipes, or need some: the pool is the process's.
#[cfg(test)]
pub(crate) static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn pipes_that_are_dropped_with_something_in_them_make_way_for_others() {
        let _alone = ALONE.blocking_lock();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"some bytes").unwrap();
        for _ in 0..3 {
            let shares: Vec<_> = (0..=MOST / MOST_OF_ONE).map(|_| PipeShare::default()).collect();
            let all: Vec<_> = shares.iter().flat_map(|share| std::iter::from_fn(|| share.take())).collect();
            assert_eq!(all.len(), MOST);
            assert_eq!(shares[0].0.held.load(Ordering::Relaxed), MOST_OF_ONE);
            for mut pipe in all {
                assert_eq!(pipe.fill(&file, 0, 10), Ok(10));
            }
            let mut pipe = shares[0].take().unwrap();
            assert_eq!(pipe.fill(&file, 5, 100), Ok(5));
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            assert_eq!(text, "bytes", "and nothing of what was in it before");
        }
    }

    #[test]
    fn a_connection_is_wary_for_a_number_of_reads_and_others_are_not() {
        let _alone = ALONE.blocking_lock();
        let (share, other) = (PipeShare::default(), PipeShare::default());
        let pipe = share.take().unwrap();
        assert!(!pipe.is_wary());
        pipe.make_wary();
        assert!(!other.take().unwrap().is_wary());
        assert_eq!((0..2 * WARY).filter(|_| pipe.is_wary()).count(), WARY);
    }

    #[test]
    fn what_cannot_be_spliced_is_an_error_and_the_pipe_is_not_used_again() {
        let _alone = ALONE.blocking_lock();
        let share = PipeShare::default();
        let mut pipe = share.take().unwrap();
        let directory = std::fs::File::open("/").unwrap();
        assert!(pipe.fill(&directory, 0, 10).is_err());
        assert!(pipe.tainted && pipe.len() == 0);
    }
}
