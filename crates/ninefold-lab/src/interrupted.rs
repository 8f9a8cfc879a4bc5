//! Ctrl-C and SIGTERM: the bench ends at once, but takes its mount, its lab and its trees away first.

use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGINT, SIGTERM};

/// How often a wait looks whether this program is to end.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// Catches both from now on.
    pub fn catch() -> Result<Interrupted> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Interrupted(flag))
    }

    /// An error once one of them has come.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.0.load(Ordering::Relaxed), "ended by a signal");
        Ok(())
    }

    /// The end of a child, which is killed when that takes longer, or when this program is to end.
    pub fn wait(&self, child: &mut Child, within: Duration) -> Result<ExitStatus> {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("pidfd")?;
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // A signal between the look and the wait ends no wait.
            let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&Timespec::try_from(left.min(LOOK))?));
            if ended.is_ok_and(|ended| ended > 0) {
                return Ok(child.wait()?);
            }
            let over = match ended {
                Ok(_) | Err(rustix::io::Errno::INTR) => self.check().err(),
                Err(e) => Some(e.into()),
            };
            let over = over.or_else(|| left.is_zero().then(|| anyhow!("no end within {} s", within.as_secs())));
            if let Some(over) = over {
                child.kill()?;
                child.wait()?;
                return Err(over.context("a command in the lab"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_signalled_is_an_error_from_then_on() {
        let interrupted = Interrupted(Arc::default());
        interrupted.check().unwrap();
        interrupted.0.store(true, Ordering::Relaxed);
        interrupted.check().unwrap_err();
    }
}
