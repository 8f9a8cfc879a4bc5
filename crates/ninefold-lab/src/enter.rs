//! Runs a command in an end of a lab.
//!
//! Three processes: the one that was called enters the lab's namespaces and starts `exec` there, as what enters a process namespace
//! are its children; `exec` sees to it that it dies with the first, and becomes the command. The first passes signals on and
//! takes over the exit status.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use rustix::process::{Pid, kill_process, set_parent_process_death_signal};

use crate::control::{Control, Request};
use crate::shape::End;

/// This very program, even when its file was replaced.
const SELF: &str = "/proc/self/exe";

/// How a shell tells of a command that was not found: POSIX, Shell Command Language, 2.8.2.
const NOT_FOUND: u8 = 127;

/// What a shell adds to the number of the signal that ended a command.
const BY_SIGNAL: i32 = 128;

/// What is passed on. SIGINT and SIGQUIT from a terminal reach the command by themselves.
const SIGNALS: [Signal; 6] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// Runs the words as a command in an end. The calling process must have one thread, as a user namespace takes no other.
pub fn run(name: &str, end: End, words: &[OsString]) -> Result<ExitCode> {
    let mut control = Control::connect(name)?;
    let (_, descriptors) = control.ask(&Request::Enter(end))?;
    let Ok([user, processes, network]) = <[OwnedFd; 3]>::try_from(descriptors) else {
        bail!("the lab '{name}' does not tell its namespaces");
    };
    drop(control);
    let own = std::fs::metadata("/proc/self/ns/user").context("/proc/self/ns/user: is /proc mounted?")?;
    if rustix::fs::fstat(&user)?.st_ino != std::os::unix::fs::MetadataExt::ino(&own) {
        setns(user.as_fd(), CloneFlags::CLONE_NEWUSER).context("cannot enter the lab's user namespace")?;
    }
    setns(network.as_fd(), CloneFlags::CLONE_NEWNET).context("cannot enter the lab's network")?;
    setns(processes.as_fd(), CloneFlags::CLONE_NEWPID).context("cannot enter the lab's process namespace")?;
    drop((user, network, processes));

    let mut child = Command::new(SELF)
        .args(["lab", "exec", "--"])
        .args(words)
        .spawn()
        .context("cannot start a process in the lab")?;
    // Only now, because the command inherits what is blocked. Until here a signal ends this process, and the command with it.
    let mut mask = SigSet::from_iter(SIGNALS);
    mask.add(Signal::SIGCHLD);
    mask.thread_block().context("signals")?;
    let mut signals = SignalFd::new(&mask).context("signals")?;
    wait(&mut child, &mut signals)
}

/// Waits for the command's end. It is bounded by the command's own, and by the lab's, which kills it.
fn wait(child: &mut Child, signals: &mut SignalFd) -> Result<ExitCode> {
    let pid = Pid::from_child(child);
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
            let code = status.code().or(status.signal().map(|signal| BY_SIGNAL + signal)).unwrap_or(1);
            return Ok(ExitCode::from(code as u8));
        }
        let Some(signal) = signals.read_signal().context("signals")? else { continue };
        // By a person's or a program's kill(2), which meant this process only; a terminal's keys mean both.
        let sent = signal.ssi_pid != 0;
        match rustix::process::Signal::from_named_raw(signal.ssi_signo as i32) {
            Some(rustix::process::Signal::CHILD) | None => {}
            // When it has just ended, the next turn tells.
            Some(signal) if sent => drop(kill_process(pid, signal)),
            Some(_) => {}
        }
    }
}

/// Becomes the command, in the lab. Returns only when that fails.
pub fn exec(words: &[OsString]) -> Result<Infallible, ExitCode> {
    let fail = |text: std::fmt::Arguments<'_>| {
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("ninefold lab: {text}\n"));
        Err(ExitCode::from(NOT_FOUND))
    };
    if let Err(e) = set_parent_process_death_signal(Some(rustix::process::Signal::KILL)) {
        return fail(format_args!("cannot bind the command to this process: {e}"));
    }
    // A parent outside the process namespace has no number here. One that has was the keeper, which adopts orphans: too late.
    if rustix::process::getppid().is_some() {
        return fail(format_args!("whoever started the command has ended"));
    }
    let Some((program, arguments)) = words.split_first() else { return fail(format_args!("no command is given")) };
    let error = Command::new(program).args(arguments).exec();
    fail(format_args!("cannot run {}: {error}", program.to_string_lossy()))
}
