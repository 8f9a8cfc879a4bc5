//! What a stream is to the threads that use it: its lock, and the state behind it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::current::{Current, Mode};
use super::file::{Changes, File};
use super::ledger::Ledger;
use super::state::State;
use crate::error::{Error, Result};
use crate::lock::{Hold, StreamLock};
use crate::module::overlay::Overlay;
use crate::primitives::{known_seat, seat};

pub struct Core {
    pub lock: StreamLock,
    pub file: Arc<File>,
    /// Known to all without the lock.
    pub writes: bool,
    pub writes_lines: bool,
    state: UnsafeCell<State>,
    /// The file's, at which the state looks: so it goes after that.
    _changes: Arc<Changes>,
}

// SAFETY: the state is touched in short sections of the lock and while it is held, so by one thread at a time; all that it has may
// go to another thread, addresses of memory among it, which the state itself keeps.
unsafe impl Sync for Core {}
// SAFETY: as above; the lock and the file are anybody's.
unsafe impl Send for Core {}

impl Core {
    pub fn new(lock: StreamLock, file: Arc<File>, mut state: State) -> Core {
        let changes = file.counter();
        // SAFETY: the core has the count for as long as it has the state, which gives it to nobody who lives longer.
        let counted: &'static Changes = unsafe { &*Arc::as_ptr(&changes) };
        state.changes = &counted.0;
        let (writes, writes_lines) = (state.write, state.write && state.is_by_line);
        Core { lock, file, _changes: changes, writes, writes_lines, state: UnsafeCell::new(state) }
    }

    /// What C's header looks at, see `raw::Front`: the state begins with it.
    pub fn front(&self) -> (*const AtomicUsize, *mut Current) {
        (self.lock.owner(), self.state.get().cast())
    }

    /// A short section on the current buffer: no call, and no wait. None where it is not granted, or `f` gives none.
    #[inline(always)]
    pub fn quick<R>(&self, f: impl FnOnce(&mut Current) -> Option<R>) -> Option<R> {
        let me = known_seat();
        if !self.lock.begin(me) {
            return None;
        }
        // SAFETY: in a short section, and `f` cannot come back here. The owner's own longer ways end before they call this: each
        // `Entered` lives in one function of `stream.rs` that calls no `quick`.
        let result = f(unsafe { &mut (*self.state.get()).current });
        self.lock.end(me);
        result
    }

    /// The same where threads share the stream, and so a short section was not granted; None where it would be. Who comes behind the
    /// middle of the buffer reads what follows it, with the stream unlocked.
    pub fn shared<R>(&self, f: impl FnOnce(&mut Current) -> Option<R>) -> Option<R> {
        self.shared_by_address(|current, _| f(current))
    }

    /// The same, with the regions that are known by their addresses.
    pub fn shared_by_address<R>(&self, f: impl FnOnce(&mut Current, &mut Ledger) -> Option<R>) -> Option<R> {
        if self.lock.is_owned_by(seat()) {
            return None;
        }
        let is_locked = self.lock.is_held(seat());
        let mut entered = self.enter();
        let state = &mut *entered;
        let result = f(&mut state.current, &mut state.ledger);
        // Who has locked the stream would read with it locked.
        if result.is_none() || is_locked || !state.is_past_half() {
            return result;
        }
        let slot = state.slot.clone();
        if let Some(slot) = slot.try_lock()
            && let Some(plan) = state.plan(&self.file)
        {
            drop(entered);
            plan.carry_out(slot);
        }
        result
    }

    /// `quick`, with the regions that are known by their addresses; granted to who has the lock by `lock` too.
    #[inline(always)]
    pub fn quick_by_address<R>(&self, f: impl FnOnce(&mut Current, &mut Ledger) -> Option<R>) -> Option<R> {
        let me = known_seat();
        let begun = self.lock.begin(me);
        if !begun && !self.lock.is_held(me) {
            return None;
        }
        // SAFETY: in a short section, or with the lock held and, as in `quick`, by nobody who is in one of the longer ways.
        let state = unsafe { &mut *self.state.get() };
        let result = f(&mut state.current, &mut state.ledger);
        if begun {
            self.lock.end(me);
        }
        result
    }

    /// Takes the file's lock and the stream's, for interfaces whose guard is a call. May be nested.
    pub fn lock(&self) {
        std::mem::forget(self.file.lock.lock());
        self.lock.enter(seat());
        self.enter().calls += 1;
    }

    /// Ends one `lock` of this thread.
    ///
    /// # Errors
    /// [`Error::NotLocked`]
    pub fn unlock(&self) -> Result<()> {
        // Guards that it has besides are not to be ended here.
        if !self.lock.is_held(seat()) || self.enter().calls == 0 {
            return Err(Error::NotLocked);
        }
        self.enter().calls -= 1;
        self.lock.leave();
        // SAFETY: this thread holds the stream's lock, and one of its `lock`s is not ended, which locked this one too.
        unsafe { self.file.lock.force_unlock() };
        Ok(())
    }

    /// The stream is this thread's until the guard goes. Nobody enters twice: see `quick`.
    pub fn enter(&self) -> Entered<'_> {
        Entered { core: self, _hold: self.lock.hold(seat()) }
    }

    /// `enter`, where no other thread is at the stream. Nor must this one be.
    pub fn try_enter(&self) -> Option<Entered<'_>> {
        Some(Entered { core: self, _hold: self.lock.try_hold(seat())? })
    }

    /// What other streams of this process freed and the file does not have; what can be written is. The caller holds the file's lock,
    /// and has not entered any stream.
    pub fn settle_others(&self) -> Overlay {
        self.file.others(self).iter().flat_map(|core| core.enter().settle()).collect()
    }

    /// A region is freed, shortly if that will do.
    #[inline(always)]
    pub fn quick_free(&self, region: *mut u8, mode: Mode) -> bool {
        self.quick(|current| current.give(region, mode).then_some(())).is_some()
    }

    pub fn shared_free(&self, region: *mut u8, mode: Mode) -> bool {
        self.shared(|current| current.give(region, mode).then_some(())).is_some()
    }
}

/// A stream that is locked.
pub struct Entered<'a> {
    core: &'a Core,
    _hold: Hold<'a>,
}

impl Entered<'_> {
    pub fn core(&self) -> &Core {
        self.core
    }
}

impl Deref for Entered<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        // SAFETY: the lock is held, and `quick` has it.
        unsafe { &*self.core.state.get() }
    }
}

impl DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: the lock is held, and `quick` has it.
        unsafe { &mut *self.core.state.get() }
    }
}
