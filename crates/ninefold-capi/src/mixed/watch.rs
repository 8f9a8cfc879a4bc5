//! What a run of the model is at, for who looks why it failed; and its end when an operation does not end. What loses bytes of a pipe waits for them
//! for ever, in a call that nobody can end.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// An operation may take so long, and at most twice as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The latest that are told.
const TOLD: usize = 40;

struct Doing<T> {
    /// Those that were begun.
    count: u64,
    latest: VecDeque<T>,
    is_over: bool,
}

impl<T: Display> Doing<T> {
    fn tell(&self, what: &str, how: &str) {
        let latest: String = self.latest.iter().map(|operation| format!("{operation}\n")).collect();
        // Not by a macro: what those print of a test that is ended nobody sees.
        let _ = std::io::stderr().write_all(format!("{latest}{what} {how}\n").as_bytes());
    }
}

type Shared<T> = Arc<(Mutex<Doing<T>>, Condvar)>;

fn doing<T>(shared: &Shared<T>) -> MutexGuard<'_, Doing<T>> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct Watch<T: Display> {
    /// Which run it is.
    what: String,
    shared: Shared<T>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Display + Send + 'static> Watch<T> {
    pub fn begin(what: String) -> Watch<T> {
        let doing = Doing { count: 0, latest: VecDeque::new(), is_over: false };
        let shared: Shared<T> = Arc::new((Mutex::new(doing), Condvar::new()));
        let thread = {
            let (what, shared) = (what.clone(), shared.clone());
            std::thread::spawn(move || watch(&what, &shared))
        };
        Watch { what, shared, thread: Some(thread) }
    }

    /// An operation begins, and so the one before has ended.
    pub fn next(&self, operation: T) {
        let mut doing = doing(&self.shared);
        doing.count += 1;
        if doing.latest.len() == TOLD {
            doing.latest.pop_front();
        }
        doing.latest.push_back(operation);
    }
}

fn watch<T: Display>(what: &str, shared: &Shared<T>) {
    let (mut now, mut seen) = (doing(shared), None);
    loop {
        let waited = shared.1.wait_timeout(now, PATIENCE).unwrap_or_else(PoisonError::into_inner);
        now = waited.0;
        if now.is_over {
            return;
        }
        if !waited.1.timed_out() {
            continue;
        }
        if seen.replace(now.count) == Some(now.count) {
            now.tell(what, "does not end");
            std::process::abort();
        }
    }
}

impl<T: Display> Drop for Watch<T> {
    fn drop(&mut self) {
        let mut doing = doing(&self.shared);
        doing.is_over = true;
        if std::thread::panicking() {
            doing.tell(&self.what, "failed");
        }
        drop(doing);
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
