//! Calls that seldom block, made by a worker of the runtime as they are: a write into the page cache blocks when much waits for the disk.
//!
//! To be ready for that a worker hands its other tasks to another thread at each call (`block_in_place`): two switches of threads, a quarter of
//! what the write of a large message takes. So one call at a time is made without, as long as calls are short. Should it take long all
//! the same, the thread that watches it wakes another worker, which takes over what the first one kept: its tasks, and the wait for sockets and
//! timers. The runtime would not wake anybody for these, as it believes that a worker that was woken comes back to them soon.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// What a copy in memory takes, of the largest message, many times over.
const SHORT: Duration = Duration::from_millis(5);

/// Calls that are watched behind one that took long. Who writes faster than the disk is stopped every few dozen.
const WATCHED: u32 = 256;

/// Looks of the watching thread at nothing before it sleeps until there is something.
const LOOKS: u32 = 4;

/// The calls of a process, of all threads.
#[derive(Debug)]
pub(super) struct Calm {
    /// Calls still to be watched.
    watched: AtomicU32,
    bare: Arc<Mutex<Bare>>,
    /// Which looks at the call that is made without its guard; nothing where it could not be started.
    watchman: OnceLock<Option<Thread>>,
}

/// The one call that is made without its guard.
#[derive(Debug, Default)]
struct Bare {
    /// So many were made.
    calls: u64,
    /// The runtime of the one that is under way.
    runtime: Option<Handle>,
    /// Somebody looks at it every now and then.
    is_looked_at: bool,
}

impl Calm {
    pub(super) fn new() -> Calm {
        Calm { watched: AtomicU32::new(0), bare: Arc::default(), watchman: OnceLock::new() }
    }

    /// Makes `call` here, on a worker of `runtime`, while calls are short and no other is made so, and else by `guard`, which makes it too.
    pub(super) fn make<T, F: FnOnce() -> T>(&self, runtime: &Handle, call: F, guard: impl FnOnce(F) -> T) -> T {
        let watched = self.watched.load(Ordering::Relaxed);
        let bare = if watched == 0 { self.bare(runtime) } else { None };
        let began = Instant::now();
        let made = if bare.is_some() { call() } else { guard(call) };
        drop(bare);
        if began.elapsed() > SHORT {
            self.watched.store(WATCHED, Ordering::Relaxed);
        } else if watched > 0 {
            // Where another thread was quicker it stays as that left it, as a long call may have.
            let _ = self.watched.compare_exchange(watched, watched - 1, Ordering::Relaxed, Ordering::Relaxed);
        }
        made
    }

    /// The leave to make a call without its guard, if nobody else has it.
    fn bare(&self, runtime: &Handle) -> Option<Leave<'_>> {
        let watchman = self.watchman.get_or_init(|| watchman(Arc::downgrade(&self.bare))).as_ref()?;
        let mut bare = lock(&self.bare);
        if bare.runtime.is_some() {
            return None;
        }
        bare.calls += 1;
        bare.runtime = Some(runtime.clone());
        if !std::mem::replace(&mut bare.is_looked_at, true) {
            watchman.unpark();
        }
        drop(bare);
        // What this thread would do next is in a place of its own that no other looks into: it makes way for this.
        runtime.spawn(async {});
        Some(Leave(&self.bare))
    }
}

impl Drop for Calm {
    fn drop(&mut self) {
        self.bare = Arc::default();
        if let Some(Some(watchman)) = self.watchman.get() {
            watchman.unpark();
        }
    }
}

/// Given back when the call has ended or panicked.
struct Leave<'a>(&'a Mutex<Bare>);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        lock(self.0).runtime = None;
    }
}

fn lock(bare: &Mutex<Bare>) -> MutexGuard<'_, Bare> {
    bare.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that looks at the call under way, as long as there is one now and then, and as long as its [`Calm`] is there.
fn watchman(bare: Weak<Mutex<Bare>>) -> Option<Thread> {
    let watch = move || {
        let (mut seen, mut idle) = (0, 0);
        while let Some(bare) = bare.upgrade() {
            let mut bare = lock(&bare);
            let is_same = bare.calls == seen;
            seen = bare.calls;
            let is_long = is_same && bare.runtime.is_some();
            idle = if is_same && !is_long { idle + 1 } else { 0 };
            bare.is_looked_at = idle < LOOKS;
            let runtime = bare.runtime.clone().filter(|_| is_long);
            drop(bare);
            if let Some(runtime) = runtime {
                // A task from outside wakes a worker that sleeps.
                runtime.spawn(async {});
            }
            if idle < LOOKS {
                thread::sleep(SHORT);
            } else {
                thread::park();
                idle = 0;
            }
        }
    };
    let thread = thread::Builder::new().name("ninefold-calm".to_owned()).spawn(watch);
    thread.ok().map(|started| started.thread().clone())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::channel;

    use tokio::io::AsyncReadExt;
    use tokio::runtime::Runtime;

    use super::*;

    /// How long what is not stopped may take.
    const BOUND: Duration = Duration::from_secs(60);

    fn two_workers() -> Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    }

    #[test]
    fn calls_are_guarded_behind_a_long_one_until_as_many_were_short() {
        let (calm, runtime) = (Calm::new(), two_workers());
        let guarded = |took: Duration| {
            let mut guarded = false;
            calm.make(
                runtime.handle(),
                || thread::sleep(took),
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
        let (calm, runtime) = (Calm::new(), two_workers());
        let mut guarded = 0;
        let mut nested = || {
            for _ in 0..3 {
                let guard = |call: fn()| {
                    guarded += 1;
                    call();
                };
                calm.make(runtime.handle(), || (), guard);
            }
        };
        calm.make(runtime.handle(), &mut nested, |_| unreachable!("the first is made as it is"));
        assert_eq!(guarded, 3, "as long as the first is under way");
    }

    #[test]
    fn one_that_panics_gives_its_leave_back() {
        let (calm, runtime) = (Calm::new(), two_workers());
        let call = || -> () { panic!("a call") };
        let panics = || calm.make(runtime.handle(), call, |_| unreachable!("it is the first"));
        catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        assert!(calm.bare(runtime.handle()).is_some());
    }

    #[test]
    fn one_that_does_not_end_stops_nobody_who_waits_for_a_socket_or_for_a_time() {
        // Not once: which worker waits for sockets when it begins is chance. A task that is next wakes another worker by itself.
        for has_next in [true, false].repeat(5) {
            let (calm, runtime) = (Calm::new(), two_workers());
            let [(mut begin, begins), (mut ask, asked)] = [(); 2].map(|()| UnixStream::pair().unwrap());
            let (begun, under_way) = channel();
            let (end, ended) = channel::<()>();
            let (done, others) = channel();
            begins.set_nonblocking(true).unwrap();
            asked.set_nonblocking(true).unwrap();
            let (next, while_asleep) = (done.clone(), Duration::from_millis(20));
            let stalls = runtime.spawn(async move {
                let mut begins = tokio::net::UnixStream::from_std(begins).unwrap();
                begins.read_u8().await.unwrap();
                if has_next {
                    tokio::spawn(async move { next.send("next").unwrap() });
                }
                let call = || {
                    begun.send(()).unwrap();
                    // Until the other end is gone.
                    let _ = ended.recv();
                };
                calm.make(&Handle::current(), call, |_| unreachable!("it is the first"));
            });
            let answers = done.clone();
            runtime.spawn(async move {
                let mut asked = tokio::net::UnixStream::from_std(asked).unwrap();
                answers.send("ready").unwrap();
                asked.read_u8().await.unwrap();
                tokio::time::sleep(while_asleep).await;
                answers.send("asked").unwrap();
            });
            assert_eq!(others.recv_timeout(BOUND), Ok("ready"));
            // Both workers sleep by then, mostly.
            thread::sleep(while_asleep);
            begin.write_all(b"!").unwrap();
            under_way.recv_timeout(BOUND).expect("it begins");
            ask.write_all(b"?").unwrap();
            let wanted: &[_] = if has_next { &["asked", "next"] } else { &["asked"] };
            let mut came = Vec::from(wanted);
            came.fill_with(|| others.recv_timeout(BOUND).expect("they go on while it does not"));
            came.sort_unstable();
            assert_eq!(came, wanted);
            drop(end);
            runtime.block_on(stalls).unwrap();
        }
    }
}
