//! The process that a lab is.
//!
//! Two processes: `outer` makes the process namespace, and without root the user namespace, and starts `inner` as its first
//! process. That makes the ends, carries the packets and answers those who ask. When it ends, the kernel kills all that was started in
//! the lab (pid_namespaces(7)), and the network namespaces go with their last process and descriptor. Nothing of a lab has a name
//! in a file system.
//!
//! Whoever starts `outer` gives it a pipe or socket as standard input, unless the lab shall outlive it: at its end, which comes with
//! the starter's, however that ends, the lab ends. Standard output gets one line, a `Ready`.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use rustix::process::{WaitOptions, getgid, getuid, set_parent_process_death_signal, setsid};
use serde::{Deserialize, Serialize};

use crate::control::{self, Answer, Reply, Request};
use crate::flows::{Flow, Progress, resets};
use crate::freeze;
use crate::netns::Place;
use crate::pump::{Handle, Pump};
use crate::shape::{Change, Direction, End, Shape};
use crate::stats::{Connection, Side, Stats};
use crate::unavailable::{Unavailable, unavailable};

/// What a lab is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub name: String,
    pub mtu: u16,
    pub seed: u64,
    pub to_server: Shape,
    pub to_client: Shape,
    /// It outlives whoever starts it, until it is told to end.
    pub outlives: bool,
    /// The user's number outside; set by `outer`.
    #[serde(default)]
    uid: u32,
}

impl Plan {
    pub fn new(name: String, outlives: bool) -> Plan {
        let shape = Shape::default();
        Plan { name, mtu: MTU, seed: 0, to_server: shape, to_client: shape, outlives, uid: 0 }
    }
}

/// Bytes of the largest packet where nothing else is asked for: Ethernet's, RFC 894.
pub const MTU: u16 = 1500;

/// What the keeper says when it has begun, or why it has not.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    Up,
    /// This machine lacks something.
    Unavailable(String),
    Failed(String),
}

fn report(result: &Result<()>) -> ExitCode {
    let ready = match result {
        Ok(()) => Ready::Up,
        Err(e) if e.is::<Unavailable>() => Ready::Unavailable(format!("{e:#}")),
        Err(e) => Ready::Failed(format!("{e:#}")),
    };
    let line = serde_json::to_string(&ready).unwrap_or_default();
    // Who started it has gone when this fails, and the end of standard input says so too.
    let _ = writeln!(std::io::stdout(), "{line}");
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first process: enters namespaces, starts the second there, and ends with it. It must have one thread.
pub fn outer(plan: &str) -> ExitCode {
    match start_inner(plan) {
        Ok(code) => code,
        Err(e) => report(&Err(e)),
    }
}

fn start_inner(plan: &str) -> Result<ExitCode> {
    let mut plan: Plan = serde_json::from_str(plan).context("plan of the lab")?;
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    plan.uid = uid;
    // A Ctrl-C in the terminal is for the starter, whose end is ours. Fails only for the leader of a group, which has its own then.
    let _ = setsid();
    match unshare(CloneFlags::CLONE_NEWPID) {
        Ok(()) => {}
        Err(Errno::EPERM) => {
            user_namespace(uid, gid)?;
            unshare(CloneFlags::CLONE_NEWPID).map_err(|e| {
                unavailable(format!("no process namespace is allowed in a user namespace here ({e}): run as root"))
            })?;
        }
        Err(Errno::ENOSPC) => {
            return Err(unavailable(
                "no further process namespace is allowed: raise /proc/sys/user/max_pid_namespaces",
            ));
        }
        Err(e) => return Err(anyhow!("cannot make a process namespace: {e}")),
    }
    let plan = serde_json::to_string(&plan)?;
    let mut inner =
        Command::new("/proc/self/exe").args(["lab", "keep-inner", &plan]).spawn().context("cannot start the lab")?;
    let status = inner.wait().context("cannot wait for the lab")?;
    Ok(ExitCode::from(status.code().unwrap_or(1) as u8))
}

/// Enters a user namespace in which this user is root: user_namespaces(7).
fn user_namespace(uid: u32, gid: u32) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| {
        unavailable(match e {
            Errno::ENOSPC => {
                "user namespaces are switched off: as root, sysctl user.max_user_namespaces=10000, or run as root"
                    .into()
            }
            Errno::EPERM => {
                "user namespaces are not allowed here: as root, sysctl kernel.unprivileged_userns_clone=1 where there \
                             is such a setting, outside of containers; or run as root"
                    .into()
            }
            e => format!("no user namespace can be made ({e}): run as root"),
        })
    })?;
    // A group could else be dropped that takes rights away.
    std::fs::write("/proc/self/setgroups", "deny").context("/proc/self/setgroups")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))
        .context("/proc/self/uid_map: run as a user who is not root, or as root with CAP_SETFCAP")?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")).context("/proc/self/gid_map")
}

/// The second process.
pub fn inner(plan: &str) -> ExitCode {
    let begun = begin(plan);
    let code = report(&begun.as_ref().map(|_| ()).map_err(|e| match e.downcast_ref::<Unavailable>() {
        Some(Unavailable(text)) => unavailable(text.clone()),
        None => anyhow!("{e:#}"),
    }));
    let Ok((listener, keeper)) = begun else { return code };
    if keeper.plan.outlives {
        // The terminal, or whoever reads the starter's output, must not be held.
        let _ = std::fs::File::options().write(true).open("/dev/null").map(|null| {
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        });
    }
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let keeper = keeper.clone();
        // Without a thread for it, who asks sees the end of the connection.
        let _ = std::thread::Builder::new().name("answer".into()).spawn(move || keeper.serve(&stream));
    }
    ExitCode::SUCCESS
}

fn begin(plan: &str) -> Result<(std::os::unix::net::UnixListener, Arc<Keeper>)> {
    set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .context("cannot bind the lab to its first process")?;
    let plan: Plan = serde_json::from_str(plan).context("plan of the lab")?;
    std::env::set_current_dir("/").context("/")?;
    // Else ps(1) calls it exe, by which it started itself.
    let _ = rustix::thread::set_name(c"ninefold-lab");
    // Before there are threads, which inherit it.
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    children.thread_block().context("signals")?;
    std::thread::Builder::new().name("reaper".into()).spawn(move || reap(&children)).context("thread")?;
    let listener = control::listen(plan.uid, &plan.name)?;
    let client = Place::make(End::Client, plan.mtu)?;
    let server = Place::make(End::Server, plan.mtu)?;
    let keeper = Keeper::new(plan, client, server)?;
    if !keeper.plan.outlives {
        std::thread::Builder::new().name("lifeline".into()).spawn(|| {
            // Whether it ends or fails: who started the lab is gone.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        })?;
    }
    Ok((listener, Arc::new(keeper)))
}

/// The first of a process namespace adopts those whose parents have gone.
fn reap(children: &SigSet) {
    loop {
        let _ = children.wait();
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    }
}

struct Keeper {
    plan: Plan,
    client: Place,
    server: Place,
    to_server: Handle,
    to_client: Handle,
}

impl Keeper {
    fn new(plan: Plan, client: Place, server: Place) -> Result<Keeper> {
        let (from_client, from_server) = (client.device.clone(), server.device.clone());
        let [seed, other_seed] = seeds(plan.seed);
        let (there, back) = ((from_client.clone(), from_server.clone()), (from_server, from_client));
        let to_server = Pump::start("to server", plan.to_server, seed, there.0, there.1, plan.mtu)?;
        let to_client = Pump::start("to client", plan.to_client, other_seed, back.0, back.1, plan.mtu)?;
        Ok(Keeper { plan, client, server, to_server, to_client })
    }

    fn handle(&self, direction: Direction) -> &Handle {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    fn place(&self, end: End) -> &Place {
        match end {
            End::Client => &self.client,
            End::Server => &self.server,
        }
    }

    /// Answers one who asks, until that one has gone.
    fn serve(&self, stream: &UnixStream) {
        if !control::is_own_user(stream) {
            return;
        }
        while let Ok((line, _)) = control::receive(stream) {
            let request = serde_json::from_slice(&line).context("the request is of another version");
            let down = matches!(request, Ok(Request::Down));
            let answer = request.and_then(|request| self.answer(request));
            let (reply, descriptors): (Reply, _) = match answer {
                Ok((answer, descriptors)) => (Ok(answer), descriptors),
                Err(e) => (Err(format!("{e:#}")), Vec::new()),
            };
            let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
            let Ok(line) = serde_json::to_vec(&reply) else { return };
            let sent = control::send(stream, &line, &descriptors);
            if down {
                std::process::exit(0);
            }
            if sent.is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: Request) -> Result<(Answer, Vec<OwnedFd>)> {
        let answer = match request {
            Request::Set { changes, seed } => {
                let [to_server, to_client] = *changes;
                let [seed, other_seed] = seed.map(seeds).map_or([None; 2], |seeds| seeds.map(Some));
                self.set(Direction::ToServer, to_server, seed)?;
                self.set(Direction::ToClient, to_client, other_seed)?;
                Answer::Done
            }
            Request::Cut(directions) => {
                for direction in directions {
                    self.handle(direction).ask(|pump| pump.line.cut(pump.now()))?;
                }
                Answer::Done
            }
            Request::Heal(directions) => {
                for direction in directions {
                    self.handle(direction).ask(|pump| pump.line.heal())?;
                }
                Answer::Done
            }
            Request::Reset(port) => Answer::Count(self.reset(port)?),
            Request::Freeze(end) => Answer::Count(freeze::freeze(&self.place(end).namespace)?),
            Request::Thaw(end) => Answer::Count(freeze::thaw(&self.place(end).namespace)?),
            Request::Stats => Answer::Stats(Box::new(self.stats()?)),
            Request::Enter(end) => {
                let open = |path| std::fs::File::open(path).map(OwnedFd::from).context(path);
                let network = self.place(end).namespace.try_clone().context("namespace of an end")?;
                return Ok((
                    Answer::Namespaces,
                    vec![open("/proc/self/ns/user")?, open("/proc/self/ns/pid")?, network],
                ));
            }
            Request::Down => Answer::Done,
        };
        Ok((answer, Vec::new()))
    }

    fn set(&self, direction: Direction, change: Change, seed: Option<u64>) -> Result<()> {
        self.handle(direction).ask(move |pump| {
            let now = pump.now();
            let mut shape = pump.line.shape();
            change.apply(&mut shape);
            pump.line.set(now, shape);
            if let Some(seed) = seed {
                pump.line.reseed(now, seed);
            }
        })
    }

    /// Resets connections at both ends. Returns how many.
    fn reset(&self, port: Option<u16>) -> Result<u64> {
        // Both directions stop carrying them before the numbers are taken that both ends are given: nothing moves meanwhile.
        let there = self.to_server.ask(move |pump| pump.flows.reset(port))?;
        let back = self.to_client.ask(move |pump| pump.flows.reset(port))?;
        let flows = pair(there, back);
        let open = flows.iter().filter(|(_, there, back)| !has_ended(there, back)).count();
        let (at_client, at_server): (Vec<_>, Vec<_>) = flows
            .into_iter()
            .map(|(flow, there, back)| (resets(flow, there, back), resets(flow.back(), back, there)))
            .unzip();
        self.to_server.ask(move |pump| at_client.iter().flatten().for_each(|packet| pump.inject_back(packet)))?;
        self.to_client.ask(move |pump| at_server.iter().flatten().for_each(|packet| pump.inject_back(packet)))?;
        Ok(open as u64)
    }

    fn stats(&self) -> Result<Stats> {
        let side = |pump: &mut Pump| {
            // Packets have their turn when somebody looks; what is due but not yet handed out is on the way.
            let (shape, is_cut) = (pump.line.shape(), pump.line.is_cut());
            let side = Side { shape, is_cut, counters: pump.counters(), care: pump.care, missed: 0 };
            (side, pump.flows.open().collect::<Vec<_>>())
        };
        let (to_server, there) = self.to_server.ask(side)?;
        let (to_client, back) = self.to_client.ask(side)?;
        let mut connections: Vec<Connection> = pair(there, back)
            .into_iter()
            .filter(|(_, there, back)| !has_ended(there, back))
            .map(|(flow, ..)| Connection { client: flow.from, server: flow.to })
            .collect();
        connections.sort_unstable();
        Ok(Stats {
            mtu: self.plan.mtu,
            to_server: Side { missed: self.client.missed()?, ..to_server },
            to_client: Side { missed: self.server.missed()?, ..to_client },
            connections,
        })
    }
}

/// A seed for each direction.
fn seeds(seed: u64) -> [u64; 2] {
    let mut chance = fastrand::Rng::with_seed(seed);
    [(); 2].map(|()| chance.u64(..))
}

/// A connection, towards the server, with what each direction knows of it.
type Pair = (Flow, Option<Progress>, Option<Progress>);

/// Puts together what the two directions know of each connection.
fn pair(there: Vec<(Flow, Progress)>, back: Vec<(Flow, Progress)>) -> Vec<Pair> {
    let mut back: std::collections::HashMap<_, _> =
        back.into_iter().map(|(flow, progress)| (flow.back(), progress)).collect();
    let mut pairs: Vec<Pair> =
        there.into_iter().map(|(flow, progress)| (flow, Some(progress), back.remove(&flow))).collect();
    pairs.extend(back.into_iter().map(|(flow, progress)| (flow, None, Some(progress))));
    pairs
}

/// Have both ends said that they send no more, or one that it knows nothing of the connection?
fn has_ended(there: &Option<Progress>, back: &Option<Progress>) -> bool {
    let over = |progress: &Option<Progress>| progress.is_some_and(|progress| progress.is_over());
    let ended = |progress: &Option<Progress>| progress.is_some_and(|progress| progress.ended);
    over(there) || over(back) || (ended(there) && ended(back))
}
