//! Runs a command in an end of a lab: asks the keeper for it, passes signals on, and takes over the exit status.
//!
//! The keeper's half is `run`. When this process ends, however it does, the keeper sees the end of the connection and kills the
//! command; when the lab ends, the kernel does.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::channel::Channel;
use crate::children::BY_SIGNAL;
use crate::control::{ANSWER_WITHIN, Answer, Passed, Request, Run, answer, is_up, open, process};
use crate::run::mounts;
use crate::shape::End;

/// What is passed on. The command is of another session than a terminal's keys are for, so those that they send are too.
const SIGNALS: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
];

/// Runs the words as a command in an end. The calling process must have one thread, whose signals are taken.
pub fn run(name: &str, end: End, words: &[OsString]) -> Result<ExitCode> {
    // At first, so that one that comes while the command begins is for the command.
    let mut signals = signals()?;
    let mut channel = open(name, ANSWER_WITHIN)?;
    let process = process(&channel)?;
    // Not for reading, which may not be allowed where entering is.
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(".", how, Mode::empty()).context("the directory of this process")?;
    let request = Request::Run(Run {
        end,
        words: words.to_vec(),
        environment: std::env::vars_os().collect(),
        umask: status("Umask:", 8)? as u32,
    });
    let (stdin, stdout, stderr, mounts) = (std::io::stdin(), std::io::stdout(), std::io::stderr(), mounts()?);
    let descriptors = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), directory.as_fd(), mounts.as_fd()];
    channel.send(&request, &descriptors).context("cannot ask the lab for a command")?;
    let line = match channel.receive() {
        Ok((line, _)) => line,
        Err(e) if is_late(&e) => {
            return Err(e.context(
                "the lab does not start the command, whose program may be on a file system that hangs; \
                 should it start yet, it is killed",
            ));
        }
        // The command may have begun all the same, and was killed then.
        Err(_) => return broken_off(name, process, "the lab has ended before it said that the command runs"),
    };
    match answer(&line)? {
        Answer::Started => match wait(&mut channel, &mut signals)? {
            Some(code) => Ok(code),
            None => broken_off(name, process, "the lab has ended, and the command with it"),
        },
        Answer::NotRun { status, text } => {
            say(format_args!("cannot run {}: {text}", words.first().cloned().unwrap_or_default().to_string_lossy()));
            Ok(ExitCode::from(status))
        }
        other => bail!("the lab answers {other:?}"),
    }
}

/// Did an answer take too long, rather than the connection end?
fn is_late(e: &anyhow::Error) -> bool {
    e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::TimedOut)
}

/// The connection to a lab has ended. When the lab has, the kernel has killed the command with it; a shell tells SIGKILL like this.
fn broken_off(name: &str, process: i32, ended: &str) -> Result<ExitCode> {
    if is_up(name, process) {
        bail!("the lab '{name}' is up, but has broken off the connection of this command, and killed it");
    }
    say(format_args!("{ended}"));
    Ok(ExitCode::from(BY_SIGNAL + Signal::SIGKILL as u8))
}

fn say(text: std::fmt::Arguments<'_>) {
    let line = format!("ninefold lab: {text}\n");
    // At one go, as others write there too; without standard error there is nobody to tell.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}

/// Takes the signals that are passed on. Those that whoever started this process has it ignore, as nohup(1) does SIGHUP, stay ignored.
fn signals() -> Result<SignalFd> {
    let ignored = status("SigIgn:", 16)?;
    let heard = SIGNALS.into_iter().filter(|signal| ignored >> (*signal as i32 - 1) & 1 == 0);
    let mask = SigSet::from_iter(heard);
    mask.thread_block().context("signals")?;
    SignalFd::new(&mask).context("signals")
}

/// A number that the kernel tells of this process: proc_pid_status(5).
pub fn status(name: &str, radix: u32) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status").context("/proc/self/status: is /proc mounted?")?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    value
        .and_then(|value| u64::from_str_radix(value, radix).ok())
        .with_context(|| format!("/proc/self/status has no {name}"))
}

/// Waits for the command's end. It is bounded by the command's own and by the lab's; when the lab does not answer a signal, by that.
/// None when the connection ended before.
fn wait(channel: &mut Channel, signals: &mut SignalFd) -> Result<Option<ExitCode>> {
    // Signals that the lab has not yet said it passed on, and until when it must.
    let mut owed = 0_u32;
    let mut until = Instant::now();
    loop {
        while let Some((line, _)) = channel.next() {
            match answer(&line)? {
                Answer::Ended(code) => return Ok(Some(ExitCode::from(code))),
                Answer::Done => owed = owed.saturating_sub(1),
                other => bail!("the lab answers {other:?}"),
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if owed > 0 && left.is_zero() {
            bail!("the lab does not pass a signal on");
        }
        let left = (owed > 0).then(|| left + Duration::from_millis(1));
        let timeout = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut ready = [PollFd::new(&*channel, PollFlags::IN), PollFd::new(&*signals, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e).context("poll"),
        }
        let [answered, signalled] = ready.map(|ready| !ready.revents().is_empty());
        if answered && channel.fill().is_err() {
            return Ok(None);
        }
        if signalled {
            owed += pass_on(channel, signals)?;
            until = Instant::now() + ANSWER_WITHIN;
        }
    }
}

/// Passes on a signal that has come. Returns how many answers are owed.
fn pass_on(channel: &mut Channel, signals: &mut SignalFd) -> Result<u32> {
    let Some(signal) = signals.read_signal().context("signals")? else { return Ok(0) };
    // A terminal's keys mean all of a group; kill(2) of this process means the command only: sigaction(2), SI_KERNEL.
    let group = signal.ssi_code == nix::libc::SI_KERNEL;
    let pass = |number: i32, group| {
        // When the lab has ended, what comes next tells.
        u32::from(channel.send(&Request::Signal(Passed { number, group }), &[]).is_ok())
    };
    let number = signal.ssi_signo as i32;
    if number != Signal::SIGTSTP as i32 {
        return Ok(pass(number, group));
    }
    // SIGTSTP would be lost on a command that has no terminal: POSIX, 2.4.3.
    let stopped = pass(Signal::SIGSTOP as i32, true);
    let stop = SigSet::from_iter([Signal::SIGTSTP]);
    raise(Signal::SIGTSTP).context("cannot stop")?;
    stop.thread_unblock().context("signals")?;
    // Here it has been continued.
    stop.thread_block().context("signals")?;
    Ok(stopped + pass(Signal::SIGCONT as i32, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_answer_that_takes_too_long_is_told_from_a_connection_that_ends() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut channel = Channel::new(ours);
        assert!(is_late(&channel.receive().unwrap_err()));
        drop(theirs);
        assert!(!is_late(&channel.receive().unwrap_err()));
    }
}
