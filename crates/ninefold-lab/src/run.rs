//! The keeper's half of a command in an end; the half of who asks for it is `enter`.
//!
//! The keeper starts the command itself, so that its parent is in the lab's process namespace: one outside would have to be waited for
//! when the lab ends, and might be stopped just then. The command gets the standard input, output and error, directory, environment
//! and umask of who asks; credentials, limits and session are the lab's.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns, unshare};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::channel::Channel;
use crate::children::{Children, Running};
use crate::control::{Answer, Reply, Request, Run};
use crate::program::Program;

/// How a shell tells of a command that was not found, and of one that is no program: POSIX, Shell Command Language, 2.8.2.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// The mount namespace of the calling process.
pub fn mounts() -> Result<File> {
    File::open("/proc/self/ns/mnt").context("/proc/self/ns/mnt: is /proc mounted?")
}

/// Runs a command in the end that has this network, until it ends or whoever asks has gone, which kills it. The calling thread is of
/// that end from then on, and good for nothing else.
pub fn run(
    children: &Children,
    channel: &mut Channel,
    network: BorrowedFd<'_>,
    run: &Run,
    descriptors: Vec<OwnedFd>,
) -> Result<()> {
    let running = match start(children, network, run, descriptors) {
        Ok(Ok(running)) => running,
        Ok(Err(e)) => {
            let status = if e.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
            return channel.send(&Reply::Ok(Answer::NotRun { status, text: e.to_string() }), &[]);
        }
        Err(e) => return channel.send(&Reply::Err(format!("{e:#}")), &[]),
    };
    channel.send(&Reply::Ok(Answer::Started), &[])?;
    loop {
        while let Some((line, _)) = channel.next() {
            let reply = match serde_json::from_slice(&line) {
                Ok(Request::Signal(passed)) => running.signal(passed).map(|()| Answer::Done),
                _ => bail!("a command is only sent signals"),
            };
            channel.send(&reply.map_err(|e| format!("{e:#}")), &[])?;
        }
        let mut ready = [PollFd::new(&running.process, PollFlags::IN), PollFd::new(&*channel, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e).context("poll"),
        }
        let [ended, asked] = ready.map(|ready| !ready.revents().is_empty());
        if ended {
            return channel.send(&Reply::Ok(Answer::Ended(running.code()?)), &[]);
        }
        if asked {
            channel.fill()?;
        }
    }
}

/// Starts it. The inner error is that of executing the program.
fn start(
    children: &Children,
    network: BorrowedFd<'_>,
    run: &Run,
    descriptors: Vec<OwnedFd>,
) -> Result<std::io::Result<Running>> {
    let Ok([stdin, stdout, stderr, directory, theirs]) = <[OwnedFd; 5]>::try_from(descriptors) else {
        bail!("a command comes with five descriptors");
    };
    // The same user may have less rights in a container that shares this network, and with it abstract names: who is in there cannot
    // show a descriptor of our mount namespace. Besides, the command's files are those of here.
    if !is_same(&mounts()?, &theirs)? {
        bail!("the lab was made among other mounts (mount_namespaces(7)): ask for a command from where it was made");
    }
    if run.words.is_empty() {
        bail!("no command is given");
    }
    // A directory and a umask of this thread's own: clone(2), CLONE_FS.
    unshare(CloneFlags::CLONE_FS).context("cannot leave the lab's directory")?;
    rustix::process::fchdir(&directory).context("cannot enter the directory in which the command was asked for")?;
    rustix::process::umask(Mode::from_raw_mode(run.umask & 0o777));
    setns(network, CloneFlags::CLONE_NEWNET).context("cannot enter the end's network")?;
    let (words, environment, descriptors) = (&run.words, &run.environment, [stdin, stdout, stderr]);
    Ok(Program { words, environment, descriptors }.begin(|command| children.spawn(command)))
}

/// Are both the same namespace?
fn is_same(one: impl AsFd, other: impl AsFd) -> Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
