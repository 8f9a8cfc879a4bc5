//! How a lab is asked: one JSON document a line, over a Unix socket whose name is abstract, so that nothing of it stays behind.
//!
//! Both sides look at who the other is: anybody may open an abstract name, but only its own user (unix(7), SO_PEERCRED).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, getuid, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::shape::{Change, Direction, End};
use crate::stats::Stats;

/// How long an answer may take: freezing waits for processes to stop, which takes no longer than `freeze::WITHIN`.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Descriptors that come with an answer: namespaces of user, processes and network.
const DESCRIPTORS: usize = 3;

/// Bytes of an answer; a connection in the statistics takes some 60.
const ANSWER_MAX: usize = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Set {
        /// Towards the server, and towards the client.
        changes: Box<[Change; 2]>,
        seed: Option<u64>,
    },
    Cut(Vec<Direction>),
    Heal(Vec<Direction>),
    /// Connections with that port at either end; all without one.
    Reset(Option<u16>),
    Freeze(End),
    Thaw(End),
    Stats,
    /// For the namespaces to enter an end.
    Enter(End),
    Down,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Done,
    /// How many connections were reset, or processes stopped or continued.
    Count(u64),
    Stats(Box<Stats>),
    /// With the descriptors.
    Namespaces,
}

/// An answer, or why there is none.
pub type Reply = Result<Answer, String>;

/// The abstract name of a user's lab.
fn address(uid: u32, name: &str) -> Result<SocketAddr> {
    check(name)?;
    SocketAddr::from_abstract_name(format!("ninefold-lab/{uid}/{name}")).context("name of the lab's socket")
}

/// A lab's name is one word.
pub fn check(name: &str) -> Result<()> {
    /// sun_path has 108 bytes: unix(7).
    const LENGTH_MAX: usize = 64;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > LENGTH_MAX || !name.chars().all(plain) {
        bail!("'{name}' is no name for a lab: expected up to {LENGTH_MAX} letters, digits, '.', '_' and '-'");
    }
    Ok(())
}

/// Listens for those who ask a lab. `uid` is the user's number outside of every user namespace of the lab's.
pub fn listen(uid: u32, name: &str) -> Result<UnixListener> {
    UnixListener::bind_addr(&address(uid, name)?).map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!("the lab '{name}' is up already: end it with ninefold lab down --name {name}")
        }
        _ => anyhow!("cannot listen as the lab '{name}': {e}"),
    })
}

/// Is it the lab's own user who asks?
pub fn is_own_user(stream: &UnixStream) -> bool {
    // Not rustix's: to the keeper, who asks has the process number 0, being outside its namespace, and rustix takes that for an error.
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == getuid().as_raw())
}

/// A lab that can be asked.
pub struct Control {
    stream: UnixStream,
    keeper: Pid,
}

impl Control {
    pub fn connect(name: &str) -> Result<Control> {
        let stream = UnixStream::connect_addr(&address(getuid().as_raw(), name)?).map_err(|e| match e.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                anyhow!("no lab '{name}' is up: ninefold lab up --name {name} --rtt 50ms --rate 1gbit")
            }
            _ => anyhow!("cannot ask the lab '{name}': {e}"),
        })?;
        let peer = getsockopt(&stream, PeerCredentials).context("who the lab is")?;
        if peer.uid() != getuid().as_raw() {
            bail!("another user, number {}, answers as the lab '{name}': choose another name", peer.uid());
        }
        let keeper = Pid::from_raw(peer.pid())
            .context("the lab runs in another process namespace: ask it from where it was made")?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(Control { stream, keeper })
    }

    /// The process that ends last of all in the lab.
    pub fn keeper(&self) -> Result<OwnedFd> {
        pidfd_open(self.keeper, PidfdFlags::empty()).context("the lab's process")
    }

    pub fn ask(&mut self, request: &Request) -> Result<(Answer, Vec<OwnedFd>)> {
        send(&self.stream, &serde_json::to_vec(request)?, &[]).context("cannot ask the lab")?;
        let (line, descriptors) = receive(&self.stream).context("the lab does not answer")?;
        let reply: Reply =
            serde_json::from_slice(&line).context("the lab is of another version: end it, and begin anew")?;
        Ok((reply.map_err(anyhow::Error::msg)?, descriptors))
    }

    /// For what has nothing to answer.
    pub fn order(&mut self, request: &Request) -> Result<()> {
        self.ask(request).map(|_| ())
    }

    /// For what is counted.
    pub fn count(&mut self, request: &Request) -> Result<u64> {
        match self.ask(request)? {
            (Answer::Count(count), _) => Ok(count),
            (answer, _) => bail!("the lab answers {answer:?}"),
        }
    }

    pub fn stats(&mut self) -> Result<Stats> {
        match self.ask(&Request::Stats)? {
            (Answer::Stats(stats), _) => Ok(*stats),
            (answer, _) => bail!("the lab answers {answer:?}"),
        }
    }
}

/// Sends a line, with descriptors.
pub fn send(stream: &UnixStream, line: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        bail!("{} descriptors are more than fit", descriptors.len());
    }
    let mut left = [line, b"\n"].concat();
    while !left.is_empty() {
        let sent = sendmsg(stream, &[IoSlice::new(&left)], &mut ancillary, SendFlags::NOSIGNAL)?;
        left.drain(..sent);
        ancillary.clear();
    }
    Ok(())
}

/// Receives a line, with the descriptors that come along.
pub fn receive(stream: &UnixStream) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut line = Vec::new();
    let mut descriptors = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(stream.as_fd(), &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        line.extend_from_slice(&buffer[..received.bytes]);
        if line.last() == Some(&b'\n') {
            line.pop();
            return Ok((line, descriptors));
        }
        if received.bytes == 0 {
            bail!("the connection ended");
        }
        if line.len() > ANSWER_MAX {
            bail!("a line of more than {ANSWER_MAX} bytes");
        }
    }
}
