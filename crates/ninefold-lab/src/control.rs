//! How a lab is asked: one JSON document a line, over a Unix socket whose name is abstract, so that nothing of it stays behind.
//!
//! Both sides look at who the other is: anybody may open an abstract name, but only its own user (unix(7), SO_PEERCRED). Each request
//! has one answer, but for `Request::Run`: after its answer the connection is the command's. Whoever asked sends `Request::Signal`
//! then, and gets `Answer::Ended` when the command has; when that connection ends, the command is killed.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, getuid, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::shape::{Change, Direction, End};
use crate::stats::Stats;

/// How long each may take: to connect, to send, and to have a part of an answer. Freezing waits for processes to stop, which
/// takes no longer than `freeze::WITHIN`. What asks both directions takes as long when neither answers in time (`pump::ANSWER_WITHIN`),
/// and may be given up before it has failed; what was given up may be done all the same.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(20);

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
    Run(Run),
    Signal(Passed),
    Down,
}

/// A command to run in an end. With it come its standard input, output and error, its directory, and the mount namespace of who asks.
#[derive(Debug, Serialize, Deserialize)]
pub struct Run {
    pub end: End,
    /// The program, and its arguments.
    pub words: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// File permissions that it does not give: umask(2).
    pub umask: u32,
}

/// A signal for a command that runs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Passed {
    pub number: i32,
    /// For all of the command's process group, as a terminal's keys are.
    pub group: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Done,
    /// How many connections were reset, or processes stopped or continued.
    Count(u64),
    Stats(Box<Stats>),
    /// The command runs.
    Started,
    /// It does not, and a shell would end with that status.
    NotRun {
        status: u8,
        text: String,
    },
    /// The command ended, with the status that a shell tells.
    Ended(u8),
}

/// An answer, or why there is none.
pub type Reply = Result<Answer, String>;

/// The abstract name of a user's lab.
fn address(uid: u32, name: &str) -> Result<String> {
    check(name)?;
    Ok(format!("ninefold-lab/{uid}/{name}"))
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
    let address = address(uid, name)?;
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(&address)?).map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => match connected(&address, ANSWER_WITHIN).and_then(|stream| owner(&stream)) {
            Ok(owner) if owner != getuid().as_raw() => {
                anyhow!("another user, number {owner}, holds the name of the lab '{name}': choose another by --name")
            }
            _ => anyhow!("the lab '{name}' is up already: end it with ninefold lab down --name {name}"),
        },
        _ => anyhow!("cannot listen as the lab '{name}': {e}"),
    })
}

/// Connects to an abstract name; one whose owner takes no connections holds nobody longer than that.
fn connected(address: &str, within: Duration) -> Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // It bounds connecting too: socket(7), SO_SNDTIMEO.
    set_socket_timeout(&socket, Timeout::Send, Some(within))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(within))?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(address.as_bytes())?)?;
    Ok(socket.into())
}

/// The number of the user at the other end.
fn owner(stream: &UnixStream) -> Result<u32> {
    // Not rustix's: to the keeper, who asks has the process number 0, being outside its namespace, and rustix takes that for an error.
    Ok(getsockopt(stream, PeerCredentials).context("who the lab is")?.uid())
}

/// Is it the lab's own user who asks?
pub fn is_own_user(stream: &UnixStream) -> bool {
    owner(stream).is_ok_and(|owner| owner == getuid().as_raw())
}

/// A connection to a lab, whose answers take no longer than that.
pub fn open(name: &str, within: Duration) -> Result<Channel> {
    let stream =
        connected(&address(getuid().as_raw(), name)?, within).map_err(|e| match e.downcast_ref::<Errno>() {
            Some(&Errno::CONNREFUSED) => anyhow!(
                "no lab '{name}' of this user is up: ninefold lab up --name {name} --rtt 50ms --rate 1gbit; \
                 one that was made by sudo is asked by sudo"
            ),
            Some(&Errno::AGAIN) => anyhow!("the lab '{name}' takes no connection within {} s", within.as_secs_f64()),
            _ => e.context(format!("cannot ask the lab '{name}'")),
        })?;
    let owner = owner(&stream)?;
    if owner != getuid().as_raw() {
        bail!("another user, number {owner}, answers as the lab '{name}': choose another name");
    }
    Ok(Channel::new(stream))
}

/// The number of the process at the other end; 0 when it is in a process namespace beside or above.
pub fn process(channel: &Channel) -> Result<i32> {
    Ok(getsockopt(channel.stream(), PeerCredentials).context("who the lab is")?.pid())
}

/// Is the lab up that has this process? When its connection has ended, the lab may be about to end, which this waits for.
pub fn is_up(name: &str, its: i32) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < ANSWER_WITHIN {
        // Whoever connects to one that ends may yet get a connection, which then ends.
        let Ok(mut control) = Control::connect(name) else { return false };
        let other = control.channel.as_ref().map(process);
        if control.stats().is_ok() {
            return matches!(other, Some(Ok(other)) if other == its);
        }
        std::thread::sleep(AGAIN_AFTER);
    }
    true
}

/// How long until a lab that ends is asked again whether it has.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A lab that can be asked.
pub struct Control {
    name: String,
    within: Duration,
    /// None after an answer that did not come: it may yet come, and must not be taken for the next one's.
    channel: Option<Channel>,
}

impl Control {
    pub fn connect(name: &str) -> Result<Control> {
        Control::connect_within(name, ANSWER_WITHIN)
    }

    fn connect_within(name: &str, within: Duration) -> Result<Control> {
        Ok(Control { name: name.to_owned(), within, channel: Some(open(name, within)?) })
    }

    fn take(&mut self) -> Result<Channel> {
        self.channel.take().map_or_else(|| open(&self.name, self.within), Ok)
    }

    /// The process that ends last of all in the lab.
    pub fn keeper(&mut self) -> Result<OwnedFd> {
        let channel = self.take()?;
        let keeper = process(&channel);
        self.channel = Some(channel);
        let keeper = Pid::from_raw(keeper?)
            .context("the lab runs in another process namespace: end it from where it was made")?;
        pidfd_open(keeper, PidfdFlags::empty()).context("the lab's process")
    }

    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        let mut channel = self.take()?;
        channel.send(request, &[]).context("cannot ask the lab")?;
        let (line, _) = channel.receive().context("the lab does not answer")?;
        let answer = answer(&line);
        self.channel = Some(channel);
        answer
    }

    /// For what has nothing to answer.
    pub fn order(&mut self, request: &Request) -> Result<()> {
        self.ask(request).map(|_| ())
    }

    /// For what is counted.
    pub fn count(&mut self, request: &Request) -> Result<u64> {
        match self.ask(request)? {
            Answer::Count(count) => Ok(count),
            answer => bail!("the lab answers {answer:?}"),
        }
    }

    pub fn stats(&mut self) -> Result<Stats> {
        match self.ask(&Request::Stats)? {
            Answer::Stats(stats) => Ok(*stats),
            answer => bail!("the lab answers {answer:?}"),
        }
    }
}

/// What a line from a lab says.
pub fn answer(line: &[u8]) -> Result<Answer> {
    let reply: Reply = serde_json::from_slice(line).context("the lab is of another version: end it, and begin anew")?;
    reply.map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that nobody else has.
    fn name(what: &str) -> String {
        format!("test-{what}-{}", std::process::id())
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next_ones() {
        let name = name("late");
        let listener = listen(getuid().as_raw(), &name).unwrap();
        let lab = std::thread::spawn(move || {
            let mut late = Channel::new(listener.accept().unwrap().0);
            late.receive().unwrap();
            // The next connection says that the answer was given up.
            let mut channel = Channel::new(listener.accept().unwrap().0);
            let _ = late.send(&Reply::Ok(Answer::Count(1)), &[]);
            channel.receive().unwrap();
            channel.send(&Reply::Ok(Answer::Count(2)), &[]).unwrap();
        });
        // Long enough for the answer that does come, on any machine.
        let mut control = Control::connect_within(&name, Duration::from_millis(100)).unwrap();
        let error = control.count(&Request::Reset(None)).unwrap_err();
        assert!(format!("{error:#}").contains("does not answer"), "{error:#}");
        control.within = ANSWER_WITHIN;
        assert_eq!(control.count(&Request::Reset(None)).unwrap(), 2);
        lab.join().unwrap();
    }

    #[test]
    fn a_lab_that_broke_a_connection_off_is_told_from_one_that_has_ended_and_from_another_of_its_name() {
        let name = name("broken");
        let listener = listen(getuid().as_raw(), &name).unwrap();
        let lab = std::thread::spawn(move || {
            // One connection that it breaks off, as one that ends may, and two that it answers.
            drop(listener.accept().unwrap());
            for _ in 0..2 {
                let mut channel = Channel::new(listener.accept().unwrap().0);
                channel.receive().unwrap();
                let side = || crate::stats::Side {
                    shape: Default::default(),
                    is_cut: false,
                    counters: Default::default(),
                    care: Default::default(),
                    missed: 0,
                };
                let stats = Stats { mtu: 1500, to_server: side(), to_client: side(), connections: Vec::new() };
                channel.send(&Reply::Ok(Answer::Stats(Box::new(stats))), &[]).unwrap();
            }
        });
        let own = std::process::id() as i32;
        assert!(is_up(&name, own));
        assert!(!is_up(&name, own + 1));
        lab.join().unwrap();
        assert!(!is_up(&name, own));
    }

    #[test]
    fn one_that_takes_no_connections_holds_nobody() {
        let name = name("full");
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let address = address(getuid().as_raw(), &name).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(address.as_bytes()).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let within = Duration::from_millis(10);
        let mut taken = Vec::new();
        let error = loop {
            match open(&name, within) {
                Ok(channel) => taken.push(channel),
                Err(e) => break e,
            }
            assert!(taken.len() < 10, "the kernel keeps some even of a backlog of none");
        };
        assert!(error.to_string().contains("takes no connection"), "{error:#}");
    }

    #[test]
    fn a_lab_that_is_not_there_is_told_with_what_makes_one() {
        let error = Control::connect(&name("none")).err().unwrap().to_string();
        assert!(error.contains("ninefold lab up") && error.contains("sudo"), "{error}");
        assert!(Control::connect("a/b").err().unwrap().to_string().contains("no name for a lab"));
    }
}
