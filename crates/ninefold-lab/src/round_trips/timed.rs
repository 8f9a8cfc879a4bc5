//! A command in an end of the lab, and the time from its start to its end: taken by a program in that end, so that what the lab does to
//! start it is not in it.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::{Deserialize, Serialize};

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Milliseconds after which it is killed, with its process group
    #[arg(long)]
    pub within: u64,
    #[arg(long)]
    pub stdin: Option<PathBuf>,
    #[arg(long)]
    pub stdout: PathBuf,
    #[arg(long)]
    pub stderr: PathBuf,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// What came of a command.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Timed {
    pub nanoseconds: u64,
    /// None where it was killed.
    pub status: Option<i32>,
    /// It took too long.
    pub is_stopped: bool,
}

pub fn run(options: &Options) -> Result<Timed> {
    let (program, arguments) = options.words.split_first().context("no command")?;
    let stdin = match &options.stdin {
        Some(path) => File::open(path).with_context(|| path.display().to_string())?.into(),
        None => Stdio::null(),
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(stdin).stdout(File::create(&options.stdout)?).stderr(File::create(&options.stderr)?);
    command.process_group(0);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| program.display().to_string())?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).context("pidfd")?;
    let until = began + Duration::from_millis(options.within);
    let is_stopped = loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now()))?;
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ended => break ended.context("poll")? == 0,
        }
    };
    let nanoseconds = began.elapsed().as_nanos() as u64;
    if is_stopped {
        // It may have ended just now.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    let status = child.wait().context("cannot wait for the command")?.code();
    Ok(Timed { nanoseconds, status, is_stopped })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(within: u64, words: &[&str]) -> Timed {
        let dir = tempfile::tempdir().unwrap();
        let [stdout, stderr] = ["out", "err"].map(|name| dir.path().join(name));
        run(&Options { within, stdin: None, stdout, stderr, words: words.iter().map(Into::into).collect() }).unwrap()
    }

    #[test]
    fn a_command_that_takes_too_long_is_killed_with_what_it_started() {
        let stopped = timed(100, &["sh", "-c", "sleep 1000 & wait"]);
        assert!(stopped.is_stopped && stopped.status.is_none() && stopped.nanoseconds >= 100_000_000, "{stopped:?}");
        let ended = timed(60_000, &["sh", "-c", "exit 3"]);
        assert!(!ended.is_stopped && ended.status == Some(3), "{ended:?}");
    }
}
