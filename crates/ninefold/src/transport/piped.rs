//! Parts of files on their way to a socket without passing through memory of ours: [`Piped`] is what a pipe holds of
//! one, as pages of the page cache (splice(2)).
//!
//! A page is taken, not its content: who writes to the file before the peer has the bytes may change them, and who cuts it
//! off may leave zeros behind its new end, as with sendfile(2) and with Linux's NFS server. The peer has no reply yet, so
//! to it the read came later than the write; it cannot tell from a write between two parts of one long read.
//!
//! splice(2) to a connection that is gone raises SIGPIPE. Rust programs ignore it; others must before they serve.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Bytes that a pipe takes, if they begin with a page: all that a user may ask for (/proc/sys/fs/pipe-max-size).
const SIZE: usize = 1 << 20;

/// Pipes of this process. A user's may have 64 MiB together (/proc/sys/fs/pipe-user-pages-soft); other programs want some.
const MOST: usize = 48;

/// Pipes that hold data of one connection: a window of reads. What a slow peer does not fetch holds no more.
const MOST_OF_ONE: usize = 16;

/// Empty pipes that are kept.
const IDLE: usize = 16;

static POOL: Pool = Pool { idle: Mutex::new(Vec::new()), made: AtomicUsize::new(0) };

struct Pool {
    idle: Mutex<Vec<Pipe>>,
    /// Pipes there are, idle ones with them.
    made: AtomicUsize,
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<Pipe>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Pipe> {
        if let Some(pipe) = self.idle().pop() {
            return Some(pipe);
        }
        let more = |made| (made < MOST).then_some(made + 1);
        self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let made = Pipe::new();
        if made.is_none() {
            self.made.fetch_sub(1, Ordering::Relaxed);
        }
        made
    }

    /// `empty`: whether it may be used again.
    fn give_back(&self, pipe: Pipe, empty: bool) {
        let mut idle = self.idle();
        if empty && idle.len() < IDLE {
            idle.push(pipe);
            return;
        }
        drop(idle);
        drop(pipe);
        self.made.fetch_sub(1, Ordering::Relaxed);
    }
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
pub(crate) struct PipeShare(Arc<AtomicUsize>);

impl PipeShare {
    /// An empty pipe, unless too many are in use.
    pub fn take(&self) -> Option<Piped> {
        let more = |held| (held < MOST_OF_ONE).then_some(held + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let share = PipeShare(self.0.clone());
        match POOL.take() {
            Some(pipe) => Some(Piped { pipe: Some(pipe), left: AtomicUsize::new(0), share }),
            None => {
                self.0.fetch_sub(1, Ordering::Relaxed);
                None
            }
        }
    }
}

/// Bytes in a pipe of their own, which goes back to the others when this is dropped.
#[derive(Debug)]
pub(crate) struct Piped {
    /// Until it is dropped.
    pipe: Option<Pipe>,
    /// Bytes in it.
    left: AtomicUsize,
    share: PipeShare,
}

impl Piped {
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
        *self.left.get_mut() += done;
        result
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
            POOL.give_back(pipe, *self.left.get_mut() == 0);
        }
        self.share.0.fetch_sub(1, Ordering::Relaxed);
    }
}
