//! The lock of a stream: free for the thread that alone uses it, a mutex from the first use by another thread on.
//!
//! Most streams are used by one thread (§4.4). So a lock begins with an owner, the thread that opened the stream. For his short
//! sections, `begin` to `end`, he says that he is busy and looks whether he is still the owner: a load and two stores, no atomic
//! read-modify-write. Whoever else comes takes the mutex, ends the ownership, lets every thread of the process execute a fence
//! (membarrier(2)), and waits until the owner is not busy. From then on the owner too takes the mutex.
//!
//! Whether a thread is busy is told in a place of its own, its [`Seat`], and not in the lock: one that lost the ownership and has not
//! noticed yet could wipe out there what the next owner says.
//!
//! Why that excludes both: either the owner's store of `busy` is before the fence, and the other thread sees it and waits; or the
//! owner's load of `owner` is behind the fence, and he sees that he is not the owner any more. `tests/lock_model.rs` tries
//! every order under loom.
//!
//! Order of driving: `begin`, where it is true the short section, `end`; else `hold`, and the section while the [`Hold`] lives. A
//! short section does not wait, call a module or take a lock. `hold` may be nested in itself by a thread; a `begin` between is refused
//! or granted, and is right in both cases.

use std::sync::PoisonError;

use crate::primitives::{AtomicBool, AtomicUsize, Mutex, Ordering, heavy_fence, light_fence, pause};

/// Where a thread says that it is in a short section, of any stream. Only the thread itself writes here.
#[repr(C)]
pub struct Seat {
    pub(crate) busy: AtomicBool,
}

impl Seat {
    pub fn new() -> Self {
        Seat { busy: AtomicBool::new(false) }
    }

    /// A number that no other thread has, and not 0.
    #[inline(always)]
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Of no thread.
const NOBODY: usize = 0;

pub struct StreamLock {
    /// Who may use short sections. Changed by who holds `mutex`.
    owner: AtomicUsize,
    mutex: Mutex,
    /// The owner's seat. Who holds `mutex` looks, and nobody else, so this one is never waited for.
    seat: std::sync::Mutex<Option<&'static Seat>>,
    /// Who holds `mutex`; each thread compares it with itself, so no order is needed.
    holder: AtomicUsize,
    /// How many times more than once; the holder's alone.
    depth: AtomicUsize,
}

impl StreamLock {
    /// `owner` is the thread that may use short sections, if there is a heavy fence.
    pub fn new(owner: Option<&'static Seat>) -> Self {
        StreamLock {
            owner: AtomicUsize::new(owner.map_or(NOBODY, Seat::number)),
            mutex: Mutex::new(),
            seat: std::sync::Mutex::new(owner),
            holder: AtomicUsize::new(NOBODY),
            depth: AtomicUsize::new(0),
        }
    }

    /// For who does in C what `begin` and `end` do.
    pub fn owner(&self) -> *const AtomicUsize {
        &raw const self.owner
    }

    /// Begins a short section if the caller is the owner; `end` ends it.
    #[inline(always)]
    pub fn begin(&self, me: &Seat) -> bool {
        // Of a stream that is another's this says too much for a moment, and who ends an ownership meanwhile waits that long.
        me.busy.store(true, Ordering::Relaxed);
        light_fence();
        if self.owner.load(Ordering::Relaxed) == me.number() {
            return true;
        }
        self.end(me);
        false
    }

    /// Would `begin` be granted? For who then takes another way.
    pub fn is_owned_by(&self, me: &Seat) -> bool {
        self.owner.load(Ordering::Relaxed) == me.number()
    }

    /// Ends what `begin` began.
    #[inline(always)]
    pub fn end(&self, me: &Seat) {
        me.busy.store(false, Ordering::Release);
    }

    /// Waits until nobody else is in a section, and keeps everybody else out.
    pub fn hold(&self, me: &Seat) -> Hold<'_> {
        self.enter(me);
        Hold { lock: self }
    }

    /// `hold`, where nobody else has it; short sections, which end by themselves, are waited for.
    pub fn try_hold(&self, me: &Seat) -> Option<Hold<'_>> {
        if self.is_held(me) {
            return Some(self.hold(me));
        }
        self.mutex.try_lock().then(|| {
            self.begin_holding(me);
            Hold { lock: self }
        })
    }

    /// `hold` without a guard, for interfaces whose guard is a call.
    pub fn enter(&self, me: &Seat) {
        if self.is_held(me) {
            self.depth.store(self.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        }
        self.mutex.lock();
        self.begin_holding(me);
    }

    /// The mutex was just locked.
    fn begin_holding(&self, me: &Seat) {
        self.holder.store(me.number(), Ordering::Relaxed);
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != NOBODY && owner != me.number() {
            self.end_ownership();
        }
    }

    #[cold]
    fn end_ownership(&self) {
        self.owner.store(NOBODY, Ordering::Relaxed);
        heavy_fence();
        let seat = *self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        let mut round = 0;
        // Acquire: what the owner did in his last section is seen by who holds the mutex next.
        while seat.is_some_and(|seat| seat.busy.load(Ordering::Acquire)) {
            pause(round);
            round += 1;
        }
    }

    /// Ends one `enter` of this thread.
    pub fn leave(&self) {
        let depth = self.depth.load(Ordering::Relaxed);
        if depth > 0 {
            self.depth.store(depth - 1, Ordering::Relaxed);
            return;
        }
        self.holder.store(NOBODY, Ordering::Relaxed);
        self.mutex.unlock();
    }

    /// Is the lock in the hands of this thread?
    #[inline(always)]
    pub fn is_held(&self, me: &Seat) -> bool {
        self.holder.load(Ordering::Relaxed) == me.number()
    }

    /// Makes the caller the owner: the hint of §4.4. Whoever was it is one no more.
    pub fn claim(&self, me: &'static Seat) {
        let _hold = self.hold(me);
        *self.seat.lock().unwrap_or_else(PoisonError::into_inner) = Some(me);
        self.owner.store(me.number(), Ordering::Relaxed);
    }
}

/// While it lives, this thread alone is in the stream.
pub struct Hold<'a> {
    lock: &'a StreamLock,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.lock.leave();
    }
}
