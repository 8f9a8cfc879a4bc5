//! Processors that are kept from sleeping while a time is taken of who waits for one reply after the other.
//!
//! A processor with nothing to do is halted, and a virtual one given back: to wake it takes some tens of microseconds, twice for each packet of a
//! request that is waited for. That is the machine's, and neither the link's nor the two processes'. So each has a thread to run before which
//! all else goes that this program, and what it started, wants to run (sched(7), SCHED_IDLE).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

use crate::turns::{cores, pin};

/// Between two looks whether that is enough: some tens of microseconds.
const SPINS: u32 = 1_000;

/// As long as it lives the processors are awake. See the [module](self).
#[derive(Debug)]
pub struct Awake {
    is_enough: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    pub fn new() -> Awake {
        let is_enough = Arc::new(AtomicBool::new(false));
        let spin = |core| {
            let is_enough = is_enough.clone();
            // Without it the processor sleeps as ever.
            thread::Builder::new().name("awake".to_owned()).spawn(move || spin(core, &is_enough)).ok()
        };
        let threads = cores().into_iter().filter_map(spin).collect();
        Awake { is_enough, threads }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.is_enough.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn spin(core: usize, is_enough: &AtomicBool) {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let is_last = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    // As anything else it would take the processor from them.
    if is_last.is_err() || pin(core).is_err() {
        return eprintln!("processor {core} is not kept from sleeping while requests are waited for");
    }
    while !is_enough.load(Ordering::Relaxed) {
        (0..SPINS).for_each(|_| std::hint::spin_loop());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy is the 41st field, and the 39th behind the name (proc_pid_stat(5)).
    fn policies() -> Vec<String> {
        let mut policies = Vec::new();
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let Ok(stat) = std::fs::read_to_string(task.unwrap().path().join("stat")) else { continue };
            if stat.contains("(awake)") {
                let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
                policies.push(fields[38].to_owned());
            }
        }
        policies
    }

    #[test]
    fn everybody_goes_before_those_that_keep_the_processors_awake_and_they_end() {
        const SCHED_IDLE: &str = "5";
        let become_all = |wanted: Vec<&str>| {
            let begun = std::time::Instant::now();
            while policies() != wanted {
                assert!(begun.elapsed().as_secs() < 60, "{:?} instead of {wanted:?}", policies());
                thread::yield_now();
            }
        };
        let awake = Awake::new();
        become_all(vec![SCHED_IDLE; cores().len()]);
        drop(awake);
        // A thread that was waited for may be listed for a moment longer.
        become_all(vec![]);
    }
}
