//! A wait that signals end, for programs that are about that.

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::libc;

/// Runs it in a thread, to which signals are sent until it has returned: one that comes before a wait ends none.
pub fn interrupted<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> T {
    let told = Arc::new(AtomicBool::new(false));
    let thread = {
        let told = told.clone();
        std::thread::spawn(move || {
            let result = wait();
            told.store(true, Ordering::Relaxed);
            result
        })
    };
    let begin = Instant::now();
    while !told.load(Ordering::Relaxed) && !thread.is_finished() {
        assert!(begin.elapsed() < Duration::from_secs(60), "no signal ends the wait");
        // SAFETY: a thread that was not joined.
        assert_eq!(unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) }, 0);
        std::thread::yield_now();
    }
    thread.join().unwrap()
}
