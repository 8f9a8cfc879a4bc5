//! The lock of a stream under loom: every order of the threads' steps, for a few steps of each.

/// What `src/primitives.rs` is to the product, of loom's atomics. Both fences are full here: that is what membarrier(2) makes of
/// the owner's half.
mod primitives {
    use loom::sync::atomic::fence;
    pub use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    pub struct Mutex(AtomicBool);

    impl Mutex {
        pub fn new() -> Self {
            Mutex(AtomicBool::new(false))
        }

        pub fn lock(&self) {
            while self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
                loom::thread::yield_now();
            }
        }

        pub fn try_lock(&self) -> bool {
            self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }

        pub fn unlock(&self) {
            self.0.store(false, Ordering::Release);
        }
    }

    pub fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub fn heavy_fence() {
        fence(Ordering::SeqCst);
    }

    pub fn pause(_round: usize) {
        loom::thread::yield_now();
    }
}

#[allow(dead_code)]
#[path = "../src/lock.rs"]
mod lock;

use std::sync::Arc;

use lock::{Seat, StreamLock};
use loom::cell::UnsafeCell;

/// A counter that fails the model when two threads are at it.
struct Counter {
    lock: StreamLock,
    count: UnsafeCell<usize>,
}

// SAFETY: the claim that the model examines: `count` is touched in sections of `lock` only.
unsafe impl Sync for Counter {}
// SAFETY: a number may go to another thread.
unsafe impl Send for Counter {}

impl Counter {
    fn new(owner: &'static Seat) -> Arc<Self> {
        Arc::new(Counter { lock: StreamLock::new(Some(owner)), count: UnsafeCell::new(0) })
    }

    /// As streams do it: a short section where it is granted, else the mutex.
    fn add(&self, me: &'static Seat) {
        // SAFETY: loom itself fails when another thread is at the number.
        let add = || self.count.with_mut(|count| unsafe { *count += 1 });
        if self.lock.begin(me) {
            add();
            self.lock.end(me);
        } else {
            let _hold = self.lock.hold(me);
            add();
        }
    }

    fn get(&self, me: &'static Seat) -> usize {
        let _hold = self.lock.hold(me);
        // SAFETY: as in `add`.
        self.count.with(|count| unsafe { *count })
    }
}

/// Every order with at most three preemptions: without that bound some of these take minutes, and what was found was found with two.
fn every_order(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(f);
}

fn seats() -> (&'static Seat, &'static Seat) {
    (Box::leak(Box::new(Seat::new())), Box::leak(Box::new(Seat::new())))
}

#[test]
fn the_owner_and_another_are_never_in_the_stream_at_once() {
    every_order(|| {
        let (one, two) = seats();
        let counter = Counter::new(one);
        let other = {
            let counter = counter.clone();
            loom::thread::spawn(move || counter.add(two))
        };
        counter.add(one);
        counter.add(one);
        other.join().unwrap();
        assert_eq!(counter.get(one), 3);
    });
}

#[test]
fn a_claim_ends_the_ownership_before_it() {
    every_order(|| {
        let (one, two) = seats();
        let counter = Counter::new(one);
        let other = {
            let counter = counter.clone();
            loom::thread::spawn(move || {
                counter.lock.claim(two);
                counter.add(two);
            })
        };
        counter.add(one);
        other.join().unwrap();
        assert_eq!(counter.get(one), 2);
    });
}

#[test]
fn a_thread_that_comes_after_a_claim_ends_that_ownership() {
    every_order(|| {
        let (one, two) = seats();
        let counter = Counter::new(one);
        let other = {
            let counter = counter.clone();
            loom::thread::spawn(move || {
                counter.lock.claim(two);
                counter.add(two);
            })
        };
        counter.add(one);
        counter.add(one);
        other.join().unwrap();
        assert_eq!(counter.get(one), 3);
    });
}

#[test]
fn a_thread_that_holds_the_lock_may_enter_again() {
    every_order(|| {
        let (one, two) = seats();
        let counter = Counter::new(one);
        let other = {
            let counter = counter.clone();
            loom::thread::spawn(move || {
                let hold = counter.lock.hold(two);
                counter.add(two);
                drop(hold);
            })
        };
        counter.add(one);
        other.join().unwrap();
        assert_eq!(counter.get(one), 2);
    });
}

#[test]
fn who_only_tries_is_in_the_stream_alone_or_not_at_all() {
    every_order(|| {
        let (one, two) = seats();
        let counter = Counter::new(one);
        let other = {
            let counter = counter.clone();
            loom::thread::spawn(move || {
                let hold = counter.lock.try_hold(two);
                let is_held = hold.is_some();
                if is_held {
                    counter.add(two);
                }
                drop(hold);
                usize::from(is_held)
            })
        };
        counter.add(one);
        counter.add(one);
        let added = other.join().unwrap();
        assert_eq!(counter.get(one), 2 + added);
    });
}
