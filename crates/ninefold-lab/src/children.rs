//! The keeper's children: the commands that it starts, and all in the lab whose parents have gone, which the first of a process
//! namespace adopts (pid_namespaces(7)).
//!
//! One thread waits for all of them and tells those who started one what became of it. There is one lock, around the list of
//! commands: starting one holds it, so that none is waited for before it is listed, nor by anybody but std when its program cannot be
//! executed. So a program on a file system that hangs keeps other commands from starting and from being told to have ended.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process_group, pidfd_open, pidfd_send_signal,
};
use signal_hook::consts::SIGCHLD;

use crate::control::Passed;

/// What a shell adds to the number of the signal that ended a command: POSIX, Shell Command Language, 2.8.2.
pub const BY_SIGNAL: u8 = 128;

/// How long the waiting thread may take to tell of a process that has ended; it does nothing else.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// Waits for all children.
pub struct Children {
    commands: Mutex<HashMap<Pid, Sender<u8>>>,
}

impl Children {
    /// Begins to wait. SIGCHLD is caught, which a program that is executed does not inherit, where it would a blocked one: signal(7).
    pub fn start() -> Result<Arc<Children>> {
        let (ended, woken) = UnixStream::pair().context("a socket for signals")?;
        signal_hook::low_level::pipe::register(SIGCHLD, woken).context("SIGCHLD")?;
        let children = Arc::new(Children { commands: Mutex::default() });
        let reaper = children.clone();
        std::thread::Builder::new().name("reaper".into()).spawn(move || reaper.reap(ended)).context("thread")?;
        Ok(children)
    }

    fn reap(&self, mut ended: UnixStream) {
        // Several that end may wake it once; all are waited for each time.
        let mut wakes = [0; 64];
        while ended.read(&mut wakes).is_ok_and(|length| length > 0) {
            loop {
                let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
                let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) else { break };
                if let Some(command) = commands.remove(&pid) {
                    // Nobody listens when whoever asked for the command has gone.
                    let _ = command.send(code(status));
                }
            }
        }
    }

    /// Starts a command as the leader of a process group, in the namespaces of the calling thread.
    pub fn spawn(&self, command: &mut Command) -> std::io::Result<Running> {
        use std::os::unix::process::CommandExt;

        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.process_group(0).spawn()?;
        let pid = Pid::from_child(&child);
        let (sender, ended) = channel();
        commands.insert(pid, sender);
        // It is waited for only when the lock is free: until then its number is its own.
        let process = pidfd_open(pid, PidfdFlags::empty());
        if process.is_err() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        Ok(Running { process: process?, group: pid, ended, over: false })
    }
}

/// What a shell tells of it.
fn code(status: WaitStatus) -> u8 {
    let exited = status.exit_status().map(|code| code as u8);
    exited.or(status.terminating_signal().map(|signal| BY_SIGNAL + signal as u8)).unwrap_or(1)
}

/// A command that was started. Dropped before its end, it is killed with its process group.
pub struct Running {
    /// Readable when it has ended: pidfd_open(2).
    pub process: OwnedFd,
    group: Pid,
    ended: Receiver<u8>,
    over: bool,
}

impl Running {
    /// What became of it, when it has ended.
    pub fn code(mut self) -> Result<u8> {
        let code = self.ended.recv_timeout(TOLD_WITHIN).context("cannot tell how the command ended")?;
        self.over = true;
        Ok(code)
    }

    pub fn signal(&self, passed: Passed) -> Result<()> {
        let signal = Signal::from_named_raw(passed.number)
            .with_context(|| format!("{} is not the number of a signal", passed.number))?;
        let sent = match passed.group {
            true => kill_process_group(self.group, signal),
            false => pidfd_send_signal(&self.process, signal),
        };
        match sent {
            // When it has just ended, that is told next.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(e) => Err(e).context("cannot signal the command"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            // It may have ended meanwhile. Those that it started in other groups go on, as they do when it ends by itself.
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }
}
