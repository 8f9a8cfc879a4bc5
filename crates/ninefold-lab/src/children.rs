//! The keeper's children: the commands that it starts, and all in the lab whose parents have gone, which the first of a process
//! namespace adopts (pid_namespaces(7)).
//!
//! One thread waits for all of them and tells those who started one what became of it. While a command is being started, it waits for
//! none but those that are listed: whether another is the one that is started, for which std waits when its program cannot be
//! executed, nobody can tell. So a program on a file system that hangs keeps no other command from starting or from ending (see
//! [`program`](crate::program)); only what the lab has adopted stays a zombie meanwhile.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process_group, pidfd_open, pidfd_send_signal, wait, waitpid,
};
use signal_hook::consts::SIGCHLD;

use crate::control::Passed;

/// What a shell adds to the number of the signal that ended a command: POSIX, Shell Command Language, 2.8.2.
pub const BY_SIGNAL: u8 = 128;

/// How long the waiting thread may take to tell of a process that has ended; it does nothing else.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// Waits for all children.
pub struct Children {
    list: Mutex<List>,
    /// Wakes the waiting thread.
    wake: UnixStream,
}

#[derive(Default)]
struct List {
    /// Those that run, and who is told of their end.
    commands: HashMap<Pid, Sender<u8>>,
    /// How many more are being started.
    starting: usize,
}

impl List {
    /// Waits for all that have ended, as far as it may now.
    fn reap(&mut self) {
        if self.starting == 0 {
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                self.ended(pid, status);
            }
            return;
        }
        let listed: Vec<Pid> = self.commands.keys().copied().collect();
        for pid in listed {
            if let Ok(Some((pid, status))) = waitpid(Some(pid), WaitOptions::NOHANG) {
                self.ended(pid, status);
            }
        }
    }

    fn ended(&mut self, pid: Pid, status: WaitStatus) {
        if let Some(command) = self.commands.remove(&pid) {
            // Nobody listens when whoever asked for the command has gone.
            let _ = command.send(code(status));
        }
    }
}

impl Children {
    /// Begins to wait. SIGCHLD is caught, which a program that is executed does not inherit, where it would a blocked one: signal(7).
    pub fn start() -> Result<Arc<Children>> {
        let (ended, woken) = UnixStream::pair().context("a socket for signals")?;
        let wake = woken.try_clone().context("a socket for signals")?;
        signal_hook::low_level::pipe::register(SIGCHLD, woken).context("SIGCHLD")?;
        let children = Arc::new(Children { list: Mutex::default(), wake });
        let reaper = children.clone();
        std::thread::Builder::new().name("reaper".into()).spawn(move || reaper.reap(ended)).context("thread")?;
        Ok(children)
    }

    fn reap(&self, mut ended: UnixStream) {
        // Several that end may wake it once; all are waited for each time.
        let mut wakes = [0; 64];
        while ended.read(&mut wakes).is_ok_and(|length| length > 0) {
            self.list().reap();
        }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a command as the leader of a process group, in the namespaces of the calling thread.
    pub fn spawn(&self, command: &mut Command) -> std::io::Result<Running> {
        use std::os::unix::process::CommandExt;

        self.list().starting += 1;
        // Without the lock: it takes as long as the program's file system likes.
        let spawned = command.process_group(0).spawn();
        let mut list = self.list();
        list.starting -= 1;
        let running = spawned.and_then(|child| {
            let pid = Pid::from_child(&child);
            let (sender, ended) = channel();
            list.commands.insert(pid, sender);
            // It is waited for only when the lock is free: until then its number is its own.
            let process = pidfd_open(pid, PidfdFlags::empty());
            if process.is_err() {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            Ok(Running { process: process?, group: pid, ended, over: false })
        });
        drop(list);
        // What ended while it was started; where that cannot be written, more wakes wait than the socket holds.
        let _ = (&self.wake).write(&[0]);
        running
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
