//! The process that a lab is.
//!
//! Two processes: `outer` makes the process namespace, and without root the user namespace, and starts `inner` as its first
//! process. That makes the ends, carries the packets, answers those who ask and runs their commands. When it ends, the kernel kills all
//! that was started in the lab (pid_namespaces(7)), and the network namespaces go with their last process and descriptor. Nothing
//! of a lab has a name in a file system.
//!
//! Whoever starts `outer` gives it a pipe or socket as standard input: at its end, which comes with the starter's, however that ends,
//! the lab ends. A lab that shall outlive the starter does so when it has been sent a byte there, which the starter does
//! when it has read standard output: one line, a `Ready`.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use rustix::process::{getgid, getuid, set_parent_process_death_signal, setsid};
use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::children::Children;
use crate::control::{self, Answer, Reply, Request};
use crate::enter;
use crate::flows::{Flow, Progress, resets};
use crate::freeze;
use crate::netns::Place;
use crate::pump::{Handle, Pump};
use crate::run;
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
    /// The number of `outer` as /proc has it; set by it.
    #[serde(default)]
    outer: u64,
}

impl Plan {
    pub fn new(name: String, outlives: bool) -> Plan {
        let shape = Shape::default();
        Plan { name, mtu: MTU, seed: 0, to_server: shape, to_client: shape, outlives, uid: 0, outer: 0 }
    }

    /// Is it a plan that can be carried out?
    pub fn check(&self) -> Result<()> {
        control::check(&self.name)?;
        if self.mtu < MTU_MIN {
            bail!("an MTU of {} bytes: expected {MTU_MIN} to {}", self.mtu, u16::MAX);
        }
        self.to_server.check().context("towards the server")?;
        self.to_client.check().context("towards the client")
    }
}

/// Bytes of the largest packet where nothing else is asked for: Ethernet's, RFC 894.
pub const MTU: u16 = 1500;

/// Bytes of the largest packet at least: what every host takes, RFC 791, section 3.1.
pub const MTU_MIN: u16 = 576;

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
    plan.outer = enter::status("Pid:", 10)?;
    // What the starter had open would stay open, and its directory busy, as long as the lab.
    std::env::set_current_dir("/").context("/")?;
    close_all()?;
    // A Ctrl-C in the terminal is for the starter, whose end is ours. Fails only for the leader of a group, which has its own then.
    let _ = setsid();
    let _ = SigSet::empty().thread_set_mask();
    catch_ignored()?;
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

/// Catches the signals that the starter had this process ignore, as a shell without job control does SIGINT for what runs beside it, and
/// does nothing then. A program that is executed would go on to ignore them, and so would all commands in the lab: signal(7).
fn catch_ignored() -> Result<()> {
    let ignored = enter::status("SigIgn:", 16)?;
    // SIGPIPE is std's, which does not leave it ignored to those that it starts.
    for number in (1..=64).filter(|number| ignored >> (number - 1) & 1 == 1 && *number != Signal::SIGPIPE as i32) {
        // Refused for the C library's own, and for those by which the processor tells of an error.
        let _ = signal_hook::flag::register(number, Arc::default());
    }
    Ok(())
}

/// Closes all descriptors but standard input, output and error. Nothing of this process may hold any.
fn close_all() -> Result<()> {
    let numbers: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .context("/proc/self/fd: is /proc mounted?")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // The one by which they were listed is closed already.
        let _ = nix::unistd::close(number);
    }
    Ok(())
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
    for (path, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {uid} 1")),
        ("/proc/self/gid_map", format!("0 {gid} 1")),
    ] {
        std::fs::write(path, text).map_err(|e| map_refused(path, e))?;
    }
    Ok(())
}

/// Why a file of a new user namespace was not written.
fn map_refused(path: &str, e: std::io::Error) -> anyhow::Error {
    match e.kind() {
        // AppArmor lets it be made and takes all capabilities in it; root without CAP_SETFCAP may not be root there.
        std::io::ErrorKind::PermissionDenied => unavailable(format!(
            "this system lets user namespaces be made, but not used ({path}: {e}); on Ubuntu: \
             as root, sysctl kernel.apparmor_restrict_unprivileged_userns=0; or run as root with all capabilities"
        )),
        _ => anyhow::Error::new(e).context(path.to_owned()),
    }
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
        let Ok(stream) = stream else {
            // Without a free descriptor it would fail again at once: one is free when a command ends, or whoever asks has gone.
            std::thread::sleep(AGAIN_AFTER);
            continue;
        };
        let keeper = keeper.clone();
        // Without a thread for it, who asks sees the end of the connection.
        let _ = std::thread::Builder::new().name("answer".into()).spawn(move || keeper.serve(stream));
    }
    ExitCode::SUCCESS
}

/// How long the keeper waits before it takes a connection that it could not take: nobody notices, and it is no load.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// How long whoever asks may take to read an answer.
const READ_WITHIN: Duration = Duration::from_secs(20);

fn begin(plan: &str) -> Result<(std::os::unix::net::UnixListener, Arc<Keeper>)> {
    set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .context("cannot bind the lab to its first process")?;
    let plan: Plan = serde_json::from_str(plan).context("plan of the lab")?;
    // One that ended before it was bound to is nobody's parent now. getppid(2) knows none outside of the process namespace.
    if enter::status("PPid:", 10)? != plan.outer {
        bail!("the lab's first process has ended");
    }
    plan.check()?;
    // Else ps(1) calls it exe, by which it started itself.
    let _ = rustix::thread::set_name(c"ninefold-lab");
    let children = Children::start()?;
    let listener = control::listen(plan.uid, &plan.name)?;
    let client = Place::make(End::Client, plan.mtu)?;
    let server = Place::make(End::Server, plan.mtu)?;
    let keeper = Keeper::new(plan, children, client, server)?;
    let outlives = keeper.plan.outlives;
    std::thread::Builder::new().name("lifeline".into()).spawn(move || lifeline(outlives)).context("thread")?;
    Ok((listener, Arc::new(keeper)))
}

/// Ends the lab with whoever started it.
fn lifeline(outlives: bool) {
    // Whether it ends or fails: who started the lab is gone.
    let taken_over = std::io::stdin().read(&mut [0]).is_ok_and(|length| length > 0);
    if !(outlives && taken_over) {
        std::process::exit(0);
    }
}

struct Keeper {
    plan: Plan,
    children: Arc<Children>,
    client: Place,
    server: Place,
    to_server: Handle,
    to_client: Handle,
}

impl Keeper {
    fn new(plan: Plan, children: Arc<Children>, client: Place, server: Place) -> Result<Keeper> {
        let (from_client, from_server) = (client.device.clone(), server.device.clone());
        let [seed, other_seed] = seeds(plan.seed);
        let (there, back) = ((from_client.clone(), from_server.clone()), (from_server, from_client));
        let to_server = Pump::start("to server", plan.to_server, seed, there.0, there.1, plan.mtu)?;
        let to_client = Pump::start("to client", plan.to_client, other_seed, back.0, back.1, plan.mtu)?;
        Ok(Keeper { plan, children, client, server, to_server, to_client })
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
    fn serve(&self, stream: UnixStream) {
        if !control::is_own_user(&stream) || stream.set_write_timeout(Some(READ_WITHIN)).is_err() {
            return;
        }
        let mut channel = Channel::new(stream);
        while let Ok((line, descriptors)) = channel.receive() {
            let request = serde_json::from_slice(&line).context("the request is of another version");
            let down = matches!(request, Ok(Request::Down));
            let reply: Reply = match request {
                Ok(Request::Run(run)) => {
                    let network = self.place(run.end).namespace.as_fd();
                    if let Err(e) = run::run(&self.children, &mut channel, network, &run, descriptors) {
                        // Mostly it is that who asked has gone, and this fails too.
                        let _ = channel.send(&Reply::Err(format!("{e:#}")), &[]);
                    }
                    return;
                }
                request => request.and_then(|request| self.answer(request)).map_err(|e| format!("{e:#}")),
            };
            let sent = channel.send(&reply, &[]);
            if down {
                std::process::exit(0);
            }
            if sent.is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: Request) -> Result<Answer> {
        Ok(match request {
            Request::Set { changes, seed } => {
                // Before either is made: both, or none.
                changes.iter().try_for_each(Change::check)?;
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
            Request::Down => Answer::Done,
            Request::Run(_) | Request::Signal(_) => {
                bail!("a connection runs one command, and is sent its signals then")
            }
        })
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
        let open = flows.iter().filter(|pair| is_open(pair)).count();
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
            .filter(is_open)
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

/// Did both ends speak, neither gave the connection up, and not both said that they send no more? One that was never answered is none.
fn is_open((_, there, back): &Pair) -> bool {
    match (there, back) {
        (Some(there), Some(back)) => !(there.is_over() || back.is_over() || (there.ended && back.ended)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_namespace_that_may_not_be_used_is_something_that_the_machine_lacks() {
        let refused = |errno| map_refused("/proc/self/uid_map", std::io::Error::from_raw_os_error(errno));
        for errno in [Errno::EPERM, Errno::EACCES] {
            let e = refused(errno as i32);
            assert!(e.is::<Unavailable>() && e.to_string().contains("apparmor_restrict_unprivileged_userns"), "{e:#}");
        }
        assert!(!refused(Errno::EINVAL as i32).is::<Unavailable>());
    }

    #[test]
    fn a_connection_is_open_when_both_ends_spoke_and_until_both_have_ended() {
        let flow = Flow { from: "10.9.0.1:40000".parse().unwrap(), to: "10.9.0.2:5640".parse().unwrap() };
        let speaks = Progress::default();
        let mut ended = speaks;
        ended.ended = true;
        assert!(!is_open(&(flow, Some(speaks), None)));
        assert!(is_open(&(flow, Some(speaks), Some(speaks))));
        assert!(is_open(&(flow, Some(ended), Some(speaks))));
        assert!(!is_open(&(flow, Some(ended), Some(ended))));
    }
}
