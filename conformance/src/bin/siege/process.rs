//! What the kernel says of the server's process, and what it lets this one have.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::report::Report;

/// A process by its number.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

/// Memory of a process, in KiB.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Memory {
    /// VmRSS of /proc/PID/status.
    pub rss: u64,
    /// Pss of /proc/PID/smaps_rollup: shared pages counted in parts.
    pub pss: u64,
    /// Pss_Anon of /proc/PID/smaps_rollup: what belongs to no file.
    pub anon: u64,
}

/// Memory that moves less than this between two looks is at rest, in KiB.
const REST: u64 = 64;
/// Looks in a row at memory at rest, and the time between two.
const LOOKS: usize = 10;
const LOOK: Duration = Duration::from_millis(100);
/// The longest wait for memory at rest.
const REST_BOUND: Duration = Duration::from_secs(20);

impl Process {
    /// Memory it uses now.
    pub fn memory(self) -> Result<Memory> {
        let status = self.file("status")?;
        let rollup = self.file("smaps_rollup")?;
        Ok(Memory { rss: kib(&status, "VmRSS:")?, pss: kib(&rollup, "Pss:")?, anon: kib(&rollup, "Pss_Anon:")? })
    }

    /// Memory when it has come to rest, or after [`REST_BOUND`].
    pub fn settled_memory(self) -> Result<Memory> {
        let began = Instant::now();
        let mut last = self.memory()?;
        let mut quiet = 0;
        while quiet < LOOKS && began.elapsed() < REST_BOUND {
            std::thread::sleep(LOOK);
            let now = self.memory()?;
            quiet = if now.rss.abs_diff(last.rss) < REST { quiet + 1 } else { 0 };
            last = now;
        }
        Ok(last)
    }

    /// Open descriptors.
    pub fn descriptors(self) -> Result<usize> {
        let path = format!("/proc/{}/fd", self.0);
        Ok(std::fs::read_dir(&path).with_context(|| path.clone())?.count())
    }

    fn file(self, name: &str) -> Result<String> {
        let path = format!("/proc/{}/{name}", self.0);
        std::fs::read_to_string(&path).with_context(|| format!("{path}: is the server gone?"))
    }
}

impl Memory {
    /// Adds the figures, named for the moment they were taken at.
    pub fn report(self, moment: &str, report: &mut Report) {
        report.figure(format!("rss_{moment}_kib"), self.rss);
        report.figure(format!("pss_{moment}_kib"), self.pss);
        report.figure(format!("anon_{moment}_kib"), self.anon);
    }
}

fn kib(text: &str, field: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field} there"))?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// Lets this process open `wanted` descriptors, as far as the hard limit goes.
pub fn allow_descriptors(wanted: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
    // Root may raise the hard limit; anybody may raise the soft one up to it.
    if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_err() {
        let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum })?;
        anyhow::ensure!(current >= wanted, "{wanted} descriptors are needed, the limit is {current}: ulimit -Hn");
    }
    Ok(())
}
