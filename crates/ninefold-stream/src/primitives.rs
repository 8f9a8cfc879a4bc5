//! What the lock is made of. The model of the lock (`tests/lock_model.rs`) has a module of this name and these items in its
//! place, made of loom's atomics, and includes `lock.rs` as it is.

use std::cell::Cell;
use std::sync::atomic::compiler_fence;
use std::sync::{OnceLock, PoisonError};

use parking_lot::lock_api::RawMutex as _;
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::lock::Seat;

/// A mutex that is unlocked by a call, as C's interface needs it.
pub struct Mutex(parking_lot::RawMutex);

impl Mutex {
    pub const fn new() -> Self {
        Mutex(parking_lot::RawMutex::INIT)
    }

    pub fn lock(&self) {
        self.0.lock();
    }

    pub fn unlock(&self) {
        debug_assert!(self.0.is_locked(), "unlock of a mutex that nobody holds");
        // SAFETY: the lock calls this once for each time that it locked, from the thread that did.
        unsafe { self.0.unlock() }
    }
}

/// The owner's half of the fence: it keeps the compiler from moving the owner's load before his store.
#[inline(always)]
pub fn light_fence() {
    compiler_fence(Ordering::SeqCst);
}

/// The other half, for both: every thread of the process that runs executes a full fence (membarrier(2)).
///
/// # Panics
/// When the kernel refuses what it agreed to when it was asked first; to go on would be a data race.
pub fn heavy_fence() {
    let expedited = || membarrier(MembarrierCommand::PrivateExpedited);
    // A child of fork(2) may have to register again. The global command needs no registration, and takes milliseconds.
    let done = expedited()
        .or_else(|_| membarrier(MembarrierCommand::RegisterPrivateExpedited).and_then(|()| expedited()))
        .or_else(|_| membarrier(MembarrierCommand::Global));
    if let Err(e) = done {
        panic!("membarrier(2): {e}; it worked when this process began to use streams");
    }
}

/// Has the kernel the fence?
pub fn has_heavy_fence() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    })
}

/// While another thread does its last few instructions as owner.
pub fn pause(round: usize) {
    if round < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// This thread's seat. Seats are used again after a thread has ended, so there are as many as there ever were threads at once.
#[inline(always)]
pub fn seat() -> &'static Seat {
    thread_local! {
        static SEAT: Cell<Option<&'static Seat>> = const { Cell::new(None) };
    }
    #[cold]
    fn first() -> &'static Seat {
        thread_local! {
            static LEASE: Lease = Lease(FREE.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_else(|| {
                Box::leak(Box::new(Seat::new()))
            }));
        }
        // A thread that is ending, in the destructors of its own, has a seat that nobody gets again.
        let seat = LEASE.try_with(|lease| lease.0).unwrap_or_else(|_| Box::leak(Box::new(Seat::new())));
        SEAT.with(|s| s.set(Some(seat)));
        seat
    }
    match SEAT.with(Cell::get) {
        Some(seat) => seat,
        None => first(),
    }
}

/// Seats of threads that have ended. Who takes one sees all that its last thread did: the mutex orders them.
static FREE: std::sync::Mutex<Vec<&'static Seat>> = std::sync::Mutex::new(Vec::new());

/// A thread's right to its seat.
struct Lease(&'static Seat);

impl Drop for Lease {
    fn drop(&mut self) {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}
