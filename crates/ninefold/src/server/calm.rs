//! Whether calls that seldom block have not done so of late: a write into the page cache does when much waits for the disk.
//!
//! To be ready for it, a thread's other tasks are handed to another thread at each call: two switches of threads, a quarter of what the
//! write of a large message takes. So that is done only behind a call that took long, until as many have been short again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What a copy in memory takes, of the largest message, many times over.
const SHORT: Duration = Duration::from_millis(5);

/// Calls that are watched behind one that took long. Who writes faster than the disk is stopped every few dozen.
const WATCHED: u32 = 256;

/// The calls of a process. All threads share it, and write to it only while it is not calm.
#[derive(Debug)]
pub(super) struct Calm {
    /// Calls still to be watched.
    watched: AtomicU32,
}

impl Calm {
    pub(super) const fn new() -> Calm {
        Calm { watched: AtomicU32::new(0) }
    }

    /// Makes `call` here while calls are short, and else by `guard`, which makes it too.
    pub(super) fn make<T, F: FnOnce() -> T>(&self, call: F, guard: impl FnOnce(F) -> T) -> T {
        let watched = self.watched.load(Ordering::Relaxed);
        let began = Instant::now();
        let made = if watched == 0 { call() } else { guard(call) };
        if began.elapsed() > SHORT {
            self.watched.store(WATCHED, Ordering::Relaxed);
        } else if watched > 0 {
            // One that another thread's call overtakes is watched once more or less.
            self.watched.store(watched - 1, Ordering::Relaxed);
        }
        made
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
        assert!(!guarded(Duration::ZERO) && !guarded(2 * SHORT), "nothing was long before");
        // Where this thread does not run for a while, a call is a long one too.
        let short = (0..100_000).take_while(|_| guarded(Duration::ZERO)).count();
        assert!((WATCHED as usize..100_000).contains(&short), "{short}");
    }
}
