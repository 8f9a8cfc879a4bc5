//! Whether calls that seldom block have not done so of late: a write into the page cache does when much waits for the disk.
//!
//! To be ready for it, a thread's other tasks are handed to another thread at each call: two switches of threads, a quarter of what the
//! write of a large message takes. So one call at a time is made without, as
//! long as calls are short: one that takes long, or never ends, costs one thread.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What a copy in memory takes, of the largest message, many times over.
const SHORT: Duration = Duration::from_millis(5);

/// Calls that are watched behind one that took long. Who writes faster than the disk is stopped every few dozen.
const WATCHED: u32 = 256;

/// The calls of a process, of all threads.
#[derive(Debug)]
pub(super) struct Calm {
    /// Calls still to be watched.
    watched: AtomicU32,
    /// One is made without its guard: should it never end, no more threads are lost.
    bare: AtomicBool,
}

impl Calm {
    pub(super) const fn new() -> Calm {
        Calm { watched: AtomicU32::new(0), bare: AtomicBool::new(false) }
    }

    /// Makes `call` here while calls are short and no other is made so, and else by `guard`, which makes it too.
    pub(super) fn make<T, F: FnOnce() -> T>(&self, call: F, guard: impl FnOnce(F) -> T) -> T {
        let watched = self.watched.load(Ordering::Relaxed);
        let began = Instant::now();
        let made = match self.bare() {
            Some(_bare) if watched == 0 => call(),
            bare => {
                drop(bare);
                guard(call)
            }
        };
        if began.elapsed() > SHORT {
            self.watched.store(WATCHED, Ordering::Relaxed);
        } else if watched > 0 {
            // Where another thread was quicker it stays as that left it, as a long call may have.
            let _ = self.watched.compare_exchange(watched, watched - 1, Ordering::Relaxed, Ordering::Relaxed);
        }
        made
    }

    fn bare(&self) -> Option<Bare<'_>> {
        (!self.bare.swap(true, Ordering::Acquire)).then(|| Bare(&self.bare))
    }
}

/// The one call that is made without its guard, until it has ended or panicked.
struct Bare<'a>(&'a AtomicBool);

impl Drop for Bare<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_guarded_behind_a_long_one_until_as_many_were_short() {
        let calm = Calm::new();
        let guarded = |took: Duration| {
            let mut guarded = false;
            calm.make(
                || std::thread::sleep(took),
                |call| {
                    guarded = true;
                    call();
                },
            );
            guarded
        };
        assert!(!guarded(2 * SHORT), "nothing was long before");
        // Where this thread does not run for a while, a call is a long one too.
        let short = (0..100_000).take_while(|_| guarded(Duration::ZERO)).count();
        assert!((WATCHED as usize..100_000).contains(&short), "{short}");
    }

    #[test]
    fn one_call_at_a_time_has_no_guard() {
        let calm = Calm::new();
        let mut guarded = 0;
        let mut nested = || {
            for _ in 0..3 {
                let guard = |call: fn()| {
                    guarded += 1;
                    call();
                };
                calm.make(|| (), guard);
            }
        };
        calm.make(&mut nested, |_| unreachable!("the first is made as it is"));
        assert_eq!(guarded, 3, "as long as the first is under way");
    }
}
