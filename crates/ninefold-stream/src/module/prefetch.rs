//! `prefetch`: what is below is read ahead by a thread, in order and within a bound, so that who reads the stream works meanwhile.
//!
//! It changes nothing of the stream but when it is read: places stay places, and what follows an error or the end is asked for only after
//! that was told. It reads ahead while each fill begins where the one before ended; elsewhere, and while this process writes the file,
//! it reads as the module below would.
//!
//! The thread has what is below only while it reads, and no lock then. It ends with the module: whoever ends it rings the bell, by which
//! also a thread ends that waits for a pipe.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::io::Errno;

use super::bell::Bell;
use super::below::{Ask, Below, Piece};
use super::overlay::Overlays;
use super::{Chunk, Fill, Pushed, StreamModule};
use crate::error::{Error, Result};
use crate::memory::{Frozen, Memory};

pub struct Prefetch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread: a child of fork(2) has not.
    process: u32,
    bell: Bell,
    is_seekable: bool,
    is_prompt: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Something in the queue did.
    changed: Condvar,
}

struct Queue {
    /// None while the thread reads it.
    below: Option<Below>,
    /// Read and not asked for yet.
    pieces: VecDeque<Piece>,
    /// Bytes of them.
    bytes: usize,
    /// Offset of the first of them, or of what is read next.
    at: u64,
    /// The file's count of changes when they were asked for.
    changes: u64,
    /// What came behind them. Nothing is read until it was told.
    stop: Option<Stop>,
    /// Bytes from which on the thread reads no more, and what the call that waits needs.
    bound: usize,
    need: usize,
    /// May the thread read?
    awake: bool,
    ending: bool,
    /// There is no thread any more.
    gone: bool,
}

#[derive(Clone, Copy)]
struct Stop {
    /// None is the end.
    error: Option<Error>,
    /// Who asks next may hear another answer.
    told: bool,
}

impl Stop {
    /// Is it of this moment only?
    fn is_transient(self) -> bool {
        matches!(self.error, Some(Error::Os(Errno::AGAIN | Errno::INTR)))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue while nobody reads below.
    fn idle(&self) -> MutexGuard<'_, Queue> {
        let mut queue = self.lock();
        while queue.below.is_none() && !queue.gone {
            queue = self.wait(queue);
        }
        queue
    }
}

impl Queue {
    fn is_wanted(&self) -> bool {
        self.awake && self.stop.is_none() && self.bytes < self.bound.max(self.need)
    }

    /// What one read gave.
    fn put(&mut self, read: Result<Option<Piece>>) {
        match read {
            Ok(Some(piece)) => {
                self.bytes += piece.1.len();
                self.pieces.push_back(piece);
            }
            Ok(None) => self.stop = Some(Stop { error: None, told: false }),
            Err(e) => self.stop = Some(Stop { error: Some(e), told: false }),
        }
    }

    /// Nobody reads below.
    fn go_to(&mut self, at: u64) {
        self.pieces.clear();
        (self.bytes, self.at, self.stop) = (0, at, None);
        if let Some(below) = &mut self.below {
            below.go_to(at);
        }
    }

    fn pop(&mut self) -> Option<Piece> {
        let (memory, range) = self.pieces.pop_front()?;
        self.bytes -= range.len();
        self.at += range.len() as u64;
        Some((memory, range))
    }

    /// The answer: pieces until there are `need` bytes, or all that there are. One that suffices is given as it is.
    fn give(&mut self, fill: Fill<'_>, need: usize) -> Result<Chunk> {
        let tail = fill.tail.len();
        if tail == 0
            && self.pieces.front().is_some_and(|(_, range)| range.len() >= need)
            && let Some((memory, range)) = self.pop()
        {
            return Ok(Chunk { memory, start: range.start, length: range.len(), offset: fill.at });
        }
        let (mut length, mut count) = (0, 0);
        for (_, range) in &self.pieces {
            if length >= need {
                break;
            }
            length += range.len();
            count += 1;
        }
        let mut memory = Memory::reused(fill.memory, tail + length)?;
        let bytes = memory.as_mut_slice().unwrap_or_default();
        bytes[..tail].copy_from_slice(fill.tail);
        let mut have = tail;
        for _ in 0..count {
            if let Some((piece, range)) = self.pop() {
                bytes[have..have + range.len()].copy_from_slice(piece.bytes(range.clone()));
                have += range.len();
            }
        }
        Ok(Chunk { memory: Frozen::new(memory), start: 0, length: have, offset: fill.at })
    }
}

/// Ends with the thread, however that ends.
struct Leaving(Arc<Shared>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.lock().gone = true;
        self.0.changed.notify_all();
    }
}

/// What the thread does.
fn read_ahead(shared: &Arc<Shared>) {
    let leaving = Leaving(shared.clone());
    let shared = &leaving.0;
    let nothing = Vec::new();
    // Not quiet: nothing is mapped, as a mapping is not read by being had.
    let ask = Ask { quiet: false, changes: 0, overlays: Overlays { own: &nothing, others: &nothing, from: 0 } };
    let mut queue = shared.lock();
    while !queue.ending {
        let below = if queue.is_wanted() { queue.below.take() } else { None };
        let Some(mut below) = below else {
            queue = shared.wait(queue);
            continue;
        };
        drop(queue);
        let read = below.piece(ask);
        queue = shared.lock();
        queue.below = Some(below);
        match read {
            // No answers of the stream's: a bell is heard by who ends, a signal was somebody else's.
            Err(Error::Os(Errno::CANCELED)) if queue.ending => {}
            Err(Error::Os(Errno::INTR)) => {}
            read => queue.put(read),
        }
        shared.changed.notify_all();
    }
}

impl Prefetch {
    /// # Errors
    /// Those of making a thread and what wakes it.
    pub fn new(bound: usize) -> Result<Prefetch> {
        let queue = Queue {
            below: None,
            pieces: VecDeque::new(),
            bytes: 0,
            at: 0,
            changes: 0,
            stop: None,
            bound,
            need: 0,
            awake: false,
            ending: false,
            gone: false,
        };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
        let bell = Bell::new()?;
        let theirs = shared.clone();
        // The program's signals are for its own threads. But what a thread does itself is told to itself.
        let mut blocked = SigSet::all();
        for own in [Signal::SIGBUS, Signal::SIGSEGV, Signal::SIGILL, Signal::SIGFPE, Signal::SIGTRAP] {
            blocked.remove(own);
        }
        let before = blocked.thread_swap_mask(SigmaskHow::SIG_SETMASK).ok();
        let thread = std::thread::Builder::new().name("ninefold-prefetch".into()).spawn(move || read_ahead(&theirs));
        if let Some(before) = before {
            let _ = before.thread_set_mask(); // it was this thread's, so it is one
        }
        let thread = thread.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
        let process = std::process::id();
        Ok(Prefetch { shared, thread: Some(thread), process, bell, is_seekable: false, is_prompt: false })
    }

    /// In a child of fork(2) nobody reads, and a lock may be taken for ever.
    fn is_here(&self) -> Result<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(Errno::CHILD.into()) }
    }

    fn end(&mut self) {
        if self.is_here().is_err() {
            std::mem::forget(self.thread.take()); // it is the parent's to wait for
        }
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shared.lock().ending = true;
        self.shared.changed.notify_all();
        self.bell.ring();
        let _ = thread.join(); // a panic was printed, and is met by who misses what was below
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.end();
    }
}

impl StreamModule for Prefetch {
    fn name(&self) -> &'static str {
        "prefetch"
    }

    fn is_seekable(&self) -> bool {
        self.is_seekable
    }

    fn has_thread(&self) -> bool {
        true
    }

    fn as_pushed(&mut self) -> Option<&mut dyn Pushed> {
        Some(self)
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        self.is_here()?;
        let tail = fill.tail.len();
        let need = fill.least.saturating_sub(tail);
        let from = fill.at.saturating_add(tail as u64);
        let mut queue = self.shared.lock();
        // Elsewhere, or of a file that this process changed: what was read ahead is not it.
        let follows = !self.is_seekable || (queue.at == from && queue.changes == fill.changes);
        // A file that this process writes is read when it is asked for, and not before.
        let ahead = self.thread.is_some() && follows && fill.quiet;
        queue.awake = ahead;
        if !ahead {
            drop(queue);
            queue = self.shared.idle();
        }
        if self.is_seekable && !(follows && fill.quiet) {
            queue.go_to(from);
        }
        queue.changes = fill.changes;
        if queue.stop.is_some_and(|stop| stop.told) {
            queue.stop = None;
        }
        queue.need = need;
        while queue.bytes < need && queue.stop.is_none() {
            if ahead && !queue.gone {
                self.shared.changed.notify_all();
                queue = self.shared.wait(queue);
                continue;
            }
            // Where the thread ended as it should not, what is below went with it.
            let below = queue.below.as_mut().ok_or(Error::Os(Errno::IO))?;
            let read = below.piece(Ask { quiet: false, ..Ask::of(&fill) });
            queue.put(read);
        }
        queue.need = 0;
        if queue.bytes < need
            && let Some(stop) = queue.stop
        {
            // The end is told by a shorter answer too, an error only to who has had all before it.
            let before = queue.bytes + if stop.error.is_some() { tail } else { 0 };
            queue.stop = Some(Stop { told: before == 0 || stop.is_transient(), ..stop });
            if let Some(e) = stop.error {
                return Err(e);
            }
        }
        let chunk = queue.give(fill, need);
        self.shared.changed.notify_all(); // there is room again
        chunk
    }

    fn is_prompt(&self) -> bool {
        self.is_prompt
    }

    fn length(&mut self) -> Result<u64> {
        self.is_here()?;
        // The thread may wait for who writes, and he for this call.
        if !self.is_seekable {
            return Err(Error::NotSeekable);
        }
        let mut queue = self.shared.idle();
        queue.below.as_mut().ok_or(Error::Os(Errno::IO))?.module.length()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.is_here()?;
        self.end();
        let below = self.shared.lock().below.take();
        below.map_or(Ok(()), |below| below.module.close())
    }
}

impl Pushed for Prefetch {
    fn put_on(&mut self, mut below: Below) -> u64 {
        (self.is_seekable, self.is_prompt) = (below.module.is_seekable(), below.module.is_prompt());
        below.module.listen(Some(&self.bell));
        let mut queue = self.shared.lock();
        queue.at = below.at;
        queue.below = Some(below);
        queue.at
    }

    /// Below it goes on where the stream is: what was read ahead is read again, or handed over where that cannot be.
    fn take_off(&mut self, at: u64, untaken: &[u8]) -> Result<Below> {
        self.is_here()?;
        self.end();
        let mut queue = self.shared.lock();
        let mut rest = untaken.to_vec();
        for (memory, range) in &queue.pieces {
            rest.extend_from_slice(memory.bytes(range.clone()));
        }
        let stop = queue.stop.filter(|stop| !stop.told && !stop.is_transient());
        let below = queue.below.as_mut().ok_or(Error::Os(Errno::IO))?;
        below.module.listen(None);
        if self.is_seekable {
            below.go_to(at);
        } else {
            rest.extend_from_slice(below.data());
            below.keep(&rest)?;
            below.at = at;
            below.due = below.due.or(stop.and_then(|stop| stop.error));
        }
        queue.below.take().ok_or(Error::Os(Errno::IO))
    }
}
