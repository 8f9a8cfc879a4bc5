//! Stops and continues all processes in an end, as if the machine there hung: its kernel still acknowledges what comes, its programs
//! do nothing.
//!
//! Processes are found in /proc by their network namespace. Those that are started there later are not stopped.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long all of them may take to stop. One that waits for a disk stops when the disk has answered.
pub const WITHIN: Duration = Duration::from_secs(10);

/// A process of the lab.
struct Process {
    /// Its number where the keeper is number 1.
    pid: Pid,
    stopped: bool,
}

/// Stops them; returns how many there are. When not all of them stop, none stays stopped.
pub fn freeze(namespace: impl AsFd) -> Result<u64> {
    let inode = inode(namespace)?;
    stop(|| processes(inode), WITHIN)
}

/// Stops the processes of a list, which is asked for again and again, because one that was not yet stopped may have started another.
fn stop(list: impl Fn() -> Result<Vec<Process>>, within: Duration) -> Result<u64> {
    let begin = Instant::now();
    loop {
        let processes = list()?;
        if processes.iter().all(|process| process.stopped) {
            return Ok(processes.len() as u64);
        }
        let sent = signal(&processes, Signal::STOP);
        if sent.is_err() || begin.elapsed() > within {
            let running = processes.iter().filter(|process| !process.stopped).count();
            let continued = list().and_then(|processes| signal(&processes, Signal::CONT));
            sent?;
            continued.context("not all processes stop, and not all can be continued")?;
            bail!(
                "{running} processes do not stop within {} s: they wait for a disk, or new ones are started; all go on",
                within.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Continues them; returns how many there are.
pub fn thaw(namespace: impl AsFd) -> Result<u64> {
    let processes = processes(inode(namespace)?)?;
    signal(&processes, Signal::CONT)?;
    Ok(processes.len() as u64)
}

fn signal(processes: &[Process], signal: Signal) -> Result<()> {
    for process in processes {
        match kill_process(process.pid, signal) {
            // It has ended meanwhile.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => return Err(e).with_context(|| format!("cannot signal process {}", process.pid)),
        }
    }
    Ok(())
}

fn inode(namespace: impl AsFd) -> Result<u64> {
    Ok(rustix::fs::fstat(namespace).context("namespace of an end")?.st_ino)
}

fn processes(inode: u64) -> Result<Vec<Process>> {
    // /proc tells numbers in the namespace it was mounted in, and in each below it down to the process's own.
    let own = std::fs::read_to_string("/proc/self/status").context("/proc/self/status: is /proc mounted?")?;
    let depth = pids(&own).count();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("/proc")? {
        let entry = entry.context("/proc")?.path();
        if !entry.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit()) {
            continue;
        }
        if let Some(process) = process(&entry, inode, depth) {
            found.push(process);
        }
    }
    Ok(found)
}

/// None when it is not of this lab's end, or has ended.
fn process(entry: &Path, inode: u64, depth: usize) -> Option<Process> {
    let namespace = std::fs::read_link(entry.join("ns/net")).ok()?;
    if namespace.to_str()? != format!("net:[{inode}]") {
        return None;
    }
    let status = std::fs::read_to_string(entry.join("status")).ok()?;
    let pid = pids(&status).nth(depth.checked_sub(1)?)?;
    let state = status.lines().find_map(|line| line.strip_prefix("State:"))?.trim_start().chars().next()?;
    // T: stopped, t: stopped by a debugger, Z and X: ended. proc_pid_status(5).
    Some(Process { pid: Pid::from_raw(pid)?, stopped: "TtZX".contains(state) })
}

/// A process's numbers, from the outermost namespace to the innermost.
fn pids(status: &str) -> impl Iterator<Item = i32> + '_ {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    numbers.split_whitespace().map_while(|number| number.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_not_all_stop_none_stays_stopped() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        // What /proc says of it, and beside it one of which nobody can tell that it has stopped.
        let state = || process_state(pid);
        let stopped = std::cell::Cell::new(false);
        let calls = std::cell::Cell::new(0);
        let list = || {
            calls.set(calls.get() + 1);
            let begin = Instant::now();
            // The first is before it is told to stop. However long it takes afterwards, it is not continued before.
            while calls.get() > 1 && !stopped.get() {
                stopped.set("Tt".contains(state()));
                assert!(begin.elapsed() < Duration::from_secs(60), "it stops");
            }
            Ok(vec![Process { pid, stopped: false }])
        };
        let error = stop(list, Duration::from_millis(50)).unwrap_err().to_string();
        assert!(error.contains("1 processes do not stop") && error.contains("all go on"), "{error}");
        let begin = Instant::now();
        while "Tt".contains(state()) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(stopped.get(), "it was stopped in between");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn process_state(pid: Pid) -> char {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
        let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap();
        state.trim_start().chars().next().unwrap()
    }
}
