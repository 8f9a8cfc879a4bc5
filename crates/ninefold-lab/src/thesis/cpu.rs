//! The CPU time of a server: of its process, of all that it has started, and of those of them that have ended.
//!
//! What runs is asked by its clock, to the nanosecond; what has ended is in its parent's account, which /proc tells in ticks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// How long a look waits until nothing begins and nothing ends.
const WITHIN: Duration = Duration::from_secs(2);

/// What is needed of proc_pid_stat(5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Process {
    parent: i32,
    group: i32,
    /// Ticks of children that ended and were waited for.
    ended: u64,
}

impl Process {
    fn parse(stat: &str) -> Option<Process> {
        // Behind the name, which may hold anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let [user, system] = [fields.nth(10)?, fields.next()?];
        Some(Process { parent, group, ended: user.parse::<u64>().ok()? + system.parse::<u64>().ok()? })
    }
}

fn processes() -> Result<BTreeMap<i32, Process>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let numbers = fs::read_dir("/proc").context("/proc")?.filter_map(|entry| number(entry.ok()?));
    // One may end while it is looked at.
    Ok(numbers
        .filter_map(|pid| Some((pid, Process::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect())
}

/// The process, those of its group, and all that come of them.
fn family(root: i32, processes: &BTreeMap<i32, Process>) -> BTreeSet<i32> {
    let mut family: BTreeSet<i32> =
        processes.iter().filter(|(pid, process)| **pid == root || process.group == root).map(|(pid, _)| *pid).collect();
    loop {
        let more: Vec<i32> = processes
            .iter()
            .filter(|(pid, process)| family.contains(&process.parent) && !family.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            return family;
        }
        family.extend(more);
    }
}

/// Of the process with that number and all that it has started, since they began.
pub fn used(root: i32) -> Result<Duration> {
    let ticks = sysconf(SysconfVar::CLK_TCK)?.context("no ticks")? as f64;
    let began = Instant::now();
    let mut before = None;
    loop {
        let all = processes()?;
        ensure!(all.contains_key(&root), "the server has ended");
        let family = family(root, &all);
        let mut sum = Duration::ZERO;
        let mut alive = true;
        for pid in &family {
            let clock = nix::time::clock_getcpuclockid(Pid::from_raw(*pid)).and_then(nix::time::clock_gettime);
            alive &= clock.is_ok();
            sum += clock.map_or(Duration::ZERO, Duration::from);
            sum += Duration::from_secs_f64(all.get(pid).map_or(0, |process| process.ended) as f64 / ticks);
        }
        // Twice the same processes: none of them ended between its clock and its parent's account.
        if alive && before.as_ref() == Some(&family) || began.elapsed() > WITHIN {
            return Ok(sum);
        }
        before = Some(family);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_behind_a_name_that_may_hold_anything() {
        let stat = "7 (a) b (c) S 5 6 7 0 -1 4194560 1 2 3 4 100 200 30 40 20 0 1 0";
        assert_eq!(Process::parse(stat), Some(Process { parent: 5, group: 6, ended: 70 }));
        assert_eq!(Process::parse("7 (x"), None);
    }

    #[test]
    fn a_family_has_the_group_and_whatever_came_of_it() {
        let process = |parent, group| Process { parent, group, ended: 0 };
        let all = [(1, process(0, 1)), (7, process(1, 7)), (8, process(7, 8)), (9, process(8, 9)), (10, process(1, 7))];
        let all: BTreeMap<i32, Process> = [all.as_slice(), &[(11, process(1, 11))]].concat().into_iter().collect();
        assert_eq!(family(7, &all), [7, 8, 9, 10].into());
    }

    #[test]
    fn what_this_process_used_grows_with_what_its_child_used() {
        let own = std::process::id() as i32;
        let before = used(own).unwrap();
        // Ends when it has used a tenth of a second.
        let script = "while [ \"$(awk '{ print ($14 + $15) }' /proc/$$/stat)\" -lt 10 ]; do :; done";
        assert!(std::process::Command::new("sh").args(["-c", script]).status().unwrap().success());
        assert!(used(own).unwrap() >= before + Duration::from_millis(90));
    }
}
