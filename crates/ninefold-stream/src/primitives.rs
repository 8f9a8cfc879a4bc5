//! What the lock is made of. The model of the lock (`tests/lock_model.rs`) has a module of this name and these items in its
//! place, made of loom's atomics, and includes `lock.rs` as it is.

use std::collections::BTreeMap;
use std::sync::atomic::compiler_fence;
use std::sync::{OnceLock, PoisonError};

use parking_lot::lock_api::RawMutex as _;
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

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

    pub fn try_lock(&self) -> bool {
        self.0.try_lock()
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

thread_local! {
    static LEASE: Lease = Lease(vacant());
}

/// This thread's seat. Seats are used again after a thread has ended, so there are as many as there ever were threads at once.
#[inline(always)]
pub fn seat() -> &'static Seat {
    #[cold]
    #[inline(never)]
    fn first() -> &'static Seat {
        let seat = LEASE.try_with(|lease| lease.0).unwrap_or_else(|_| late());
        own::set(seat);
        seat
    }
    let known = own::get();
    if std::ptr::eq(known, &NOBODYS) { first() } else { known }
}

/// This thread's seat if it has asked for it before, else one that owns nothing: for who has a longer way that asks.
#[inline(always)]
pub fn known_seat() -> &'static Seat {
    own::get()
}

/// Where a thread's seat is noted, in bytes from its thread pointer, if that can be told: the address of one byte, which says whether the thread is busy.
/// See [`Front`](crate::Front).
pub fn seat_place() -> Option<isize> {
    own::place()
}

/// The seat of all who have none: no lock has it for its owner or its holder, so that who is here is granted nothing.
static NOBODYS: Seat = Seat { busy: AtomicBool::new(false) };

/// Where this thread's seat is noted. In a shared library a thread-local variable of Rust's costs a call each time, as libraries may come
/// later than threads (the "general dynamic" model). This one is at a place that is fixed when the library is loaded ("initial exec"): glibc
/// has room for some such variables of libraries that dlopen(3) brings, and this one is eight bytes.
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod own {
    use super::{NOBODYS, Seat};

    /// Of this version of the crate: a program may have several.
    macro_rules! symbol {
        () => {
            concat!(
                "ninefold_stream_seat_",
                env!("CARGO_PKG_VERSION_MAJOR"),
                "_",
                env!("CARGO_PKG_VERSION_MINOR"),
                "_",
                env!("CARGO_PKG_VERSION_PATCH")
            )
        };
    }

    // Eight bytes for each thread, nobody's seat at first; known within the program or library that it is linked into.
    std::arch::global_asm!(
        ".pushsection .tdata.ninefold_stream_seat,\"awT\",@progbits",
        concat!(".globl ", symbol!()),
        concat!(".hidden ", symbol!()),
        concat!(".type ", symbol!(), ", @object"),
        concat!(".size ", symbol!(), ", 8"),
        ".p2align 3",
        concat!(symbol!(), ": .quad {nobodys}"),
        ".popsection",
        nobodys = sym NOBODYS,
    );

    #[inline(always)]
    pub fn get() -> &'static Seat {
        let seat: *const Seat;
        // SAFETY: reads the eight bytes above, which this thread alone writes, and nothing else (ELF Handling For Thread-Local Storage, 4.4.6).
        unsafe {
            std::arch::asm!(
                concat!("mov {seat}, qword ptr [rip + ", symbol!(), "@GOTTPOFF]"),
                "mov {seat}, qword ptr fs:[{seat}]",
                seat = out(reg) seat,
                options(nostack, readonly, pure, preserves_flags),
            );
        }
        // SAFETY: nobody's, or what `set` was given.
        unsafe { &*seat }
    }

    /// Where the seat is noted, in bytes from the thread pointer: the same for every thread.
    pub fn place() -> Option<isize> {
        let place: isize;
        // SAFETY: reads what the dynamic linker wrote before anything of this ran.
        unsafe {
            std::arch::asm!(
                concat!("mov {place}, qword ptr [rip + ", symbol!(), "@GOTTPOFF]"),
                place = out(reg) place,
                options(nostack, readonly, pure, preserves_flags),
            );
        }
        Some(place)
    }

    pub fn set(seat: &'static Seat) {
        let seat = std::ptr::from_ref(seat);
        // SAFETY: writes the eight bytes above, and nothing else.
        unsafe {
            std::arch::asm!(
                concat!("mov {place}, qword ptr [rip + ", symbol!(), "@GOTTPOFF]"),
                "mov qword ptr fs:[{place}], {seat}",
                place = out(reg) _,
                seat = in(reg) seat,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
mod own {
    use std::cell::Cell;

    use super::{NOBODYS, Seat};

    thread_local! {
        static SEAT: Cell<&'static Seat> = const { Cell::new(&NOBODYS) };
    }

    #[inline(always)]
    pub fn get() -> &'static Seat {
        SEAT.get()
    }

    /// Known to the compiler alone.
    pub fn place() -> Option<isize> {
        None
    }

    pub fn set(seat: &'static Seat) {
        SEAT.set(seat);
    }
}

/// Seats of threads that have ended. Who takes one sees all that its last thread did: the mutex orders them.
static FREE: std::sync::Mutex<Vec<&'static Seat>> = std::sync::Mutex::new(Vec::new());

fn vacant() -> &'static Seat {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    free.unwrap_or_else(|| Box::leak(Box::new(Seat::new())))
}

/// Seats of threads that came when they were ending, by process and thread. No two threads that live have one number, so who
/// finds a seat here is the only one on it; and there are no more of these seats than there are numbers of threads.
static LATE: std::sync::Mutex<BTreeMap<(u32, i32), &'static Seat>> = std::sync::Mutex::new(BTreeMap::new());

/// A seat for the destructors of a thread that run behind its lease's: nothing runs behind them to give it back.
fn late() -> &'static Seat {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    LATE.lock().unwrap_or_else(PoisonError::into_inner).entry((std::process::id(), thread)).or_insert_with(vacant)
}

/// A thread's right to its seat.
struct Lease(&'static Seat);

impl Drop for Lease {
    fn drop(&mut self) {
        // First: destructors that run behind this one must not find a seat that may be another thread's by then.
        own::set(&NOBODYS);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Says which seat its thread has when this is dropped, and waits.
    struct AtTheEnd(Sender<&'static Seat>, Receiver<()>);

    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            self.0.send(seat()).unwrap();
            assert!(std::ptr::eq(seat(), seat()));
            let _ = self.1.recv();
        }
    }

    thread_local! {
        static END: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    }

    #[test]
    fn a_thread_that_is_ending_shares_its_seat_with_nobody() {
        let (tell, told) = channel();
        let (go, wait) = channel();
        let ending = std::thread::spawn(move || {
            // Before the seat is taken, so that it is dropped after the lease.
            END.with_borrow_mut(|end| *end = Some(AtTheEnd(tell, wait)));
            seat();
        });
        let late = told.recv().unwrap();
        // As many as could have taken what it gave back: all at once, each with a seat.
        let barrier = std::sync::Barrier::new(4);
        let others = std::thread::scope(|scope| {
            let take = || {
                let seat = std::ptr::from_ref(seat()).addr();
                barrier.wait();
                seat
            };
            [(); 4].map(|()| scope.spawn(take)).map(|thread| thread.join().unwrap())
        });
        assert!(!others.contains(&std::ptr::from_ref(late).addr()));
        go.send(()).unwrap();
        ending.join().unwrap();
    }
}
