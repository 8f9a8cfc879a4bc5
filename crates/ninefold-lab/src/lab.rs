//! A lab as a value: made, used from any thread, and gone when it is dropped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};

use crate::control::{Control, Request};
use crate::keeper::{MTU, Plan, Ready};
use crate::shape::{Change, Direction, End, Shape};
use crate::stats::Stats;
use crate::unavailable::unavailable;

/// The program that a lab's processes are.
const PROGRAM: &str = "ninefold-bench";

/// How long a lab may take to begin, and to end: each takes some 50 ms on an idle machine. When a device goes, the kernel waits until each
/// processor has been idle or changed its process (rcu_barrier), for one device after the other: six seconds were seen on a machine with
/// seven times more to run than it has processors, where several labs ended at once.
const WITHIN: Duration = Duration::from_secs(60);

/// What a lab is to be.
#[derive(Clone, Debug)]
pub struct Options {
    pub to_server: Shape,
    pub to_client: Shape,
    /// Bytes of the largest packet: 576 to 65,535.
    pub mtu: u16,
    /// Chance is drawn from it.
    pub seed: u64,
    /// `ninefold-bench`; when not given, this program itself if it is that, or the one beside it or one directory further up, where
    /// cargo puts it for tests.
    pub program: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options { to_server: Shape::default(), to_client: Shape::default(), mtu: MTU, seed: 0, program: None }
    }
}

impl Options {
    /// The same shape in both directions.
    pub fn both(shape: Shape) -> Options {
        Options { to_server: shape, to_client: shape, ..Options::default() }
    }
}

/// Two network namespaces and the link between them. Dropping it ends all that runs in it.
pub struct Lab {
    name: String,
    program: PathBuf,
    control: Mutex<Control>,
    /// Its first process, whose standard input is what keeps the lab.
    keeper: Child,
    /// Its second process, which ends last.
    inner: OwnedFd,
}

impl Lab {
    /// Makes a lab.
    ///
    /// # Errors
    /// `Unavailable`, to which the error can be downcast, when this machine has no TUN device or allows no namespaces here; an
    /// `InvalidShape` as a cause when a shape is beyond its bounds.
    pub fn start(options: &Options) -> Result<Lab> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // A process may have the number of one whose lab is still ending.
        let name = format!("{}.{number}.{:08x}", std::process::id(), fastrand::u32(..));
        let program = options.program.clone().map_or_else(find, Ok)?;
        let mut plan = Plan::new(name.clone(), false);
        (plan.mtu, plan.seed, plan.to_server, plan.to_client) =
            (options.mtu, options.seed, options.to_server, options.to_client);
        plan.check()?;
        let mut keeper = keep(&program, &plan)?;
        let connected = Control::connect(&name).and_then(|mut control| Ok((control.keeper()?, control)));
        match connected {
            Ok((inner, control)) => Ok(Lab { name, program, control: Mutex::new(control), keeper, inner }),
            Err(e) => {
                end(&mut keeper, None)?;
                Err(e)
            }
        }
    }

    /// A command that runs in an end. The child that it becomes here stands for it: it has its exit status, passes signals on, and
    /// when it ends, as by SIGKILL, the command is killed with its process group. The command has the child's standard input,
    /// output and error, directory, environment and umask, its own network, and process numbers of the lab's; descriptors beyond these
    /// three it has not, and limits are those with which the lab was made.
    pub fn command(&self, end: End, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.program);
        let end = match end {
            End::Client => "client",
            End::Server => "server",
        };
        command.args(["lab", end, "--name", &self.name, "--"]).arg(program);
        command
    }

    /// The address of an end.
    pub fn address(&self, end: End) -> Ipv4Addr {
        end.address()
    }

    /// The name by which `ninefold lab` finds it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn ask<T>(&self, ask: impl FnOnce(&mut Control) -> Result<T>) -> Result<T> {
        // A panic while asking leaves at worst half an answer, which is told then.
        ask(&mut self.control.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes one direction. What is on the wire keeps its time.
    ///
    /// # Errors
    /// When what is asked for is beyond the bounds of `Shape`; nothing is changed then.
    pub fn set(&self, direction: Direction, change: Change) -> Result<()> {
        self.change(Direction::BOTH.map(|other| if other == direction { change } else { Change::default() }))
    }

    /// Changes both directions alike.
    pub fn set_both(&self, change: Change) -> Result<()> {
        self.change([change; 2])
    }

    /// Draws chance anew, in both directions, from a number like `Options::seed`: the packets offered from then on meet the same fate as
    /// those of a lab that begins with it.
    pub fn reseed(&self, seed: u64) -> Result<()> {
        self.ask(|control| control.order(&Request::Set { changes: Box::default(), seed: Some(seed) }))
    }

    fn change(&self, changes: [Change; 2]) -> Result<()> {
        changes.iter().try_for_each(Change::check)?;
        self.ask(|control| control.order(&Request::Set { changes: Box::new(changes), seed: None }))
    }

    /// Cuts a direction: what is on its way is dropped, and what comes until it is healed. Nothing arrives any more once this returns.
    pub fn cut(&self, direction: Direction) -> Result<()> {
        self.ask(|control| control.order(&Request::Cut(vec![direction])))
    }

    pub fn heal(&self, direction: Direction) -> Result<()> {
        self.ask(|control| control.order(&Request::Heal(vec![direction])))
    }

    /// Resets the TCP connections that have a port at either end, or all: both ends see a RST at once, whatever the delay. Returns how
    /// many there were, those that one end tries to open not counted.
    pub fn reset(&self, port: Option<u16>) -> Result<u64> {
        self.ask(|control| control.count(&Request::Reset(port)))
    }

    /// Stops all processes in an end; its kernel goes on to acknowledge what comes. Returns how many, when all have stopped.
    pub fn freeze(&self, end: End) -> Result<u64> {
        self.ask(|control| control.count(&Request::Freeze(end)))
    }

    /// Continues all processes in an end. Returns how many.
    pub fn thaw(&self, end: End) -> Result<u64> {
        self.ask(|control| control.count(&Request::Thaw(end)))
    }

    pub fn stats(&self) -> Result<Stats> {
        self.ask(Control::stats)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // There is nobody to tell; without its standard input the keeper ends on its own, later.
        let _ = end(&mut self.keeper, Some(&self.inner));
    }
}

/// Starts a keeper and waits until it has begun.
pub fn keep(program: &Path, plan: &Plan) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(["lab", "keep", &serde_json::to_string(plan)?]).stdin(Stdio::piped()).stdout(Stdio::piped());
    if plan.outlives {
        command.stderr(Stdio::null());
    }
    let mut keeper = command.spawn().map_err(|e| match e.kind() {
        // Not `Unavailable`: a test that needs it must not pass by being skipped.
        std::io::ErrorKind::NotFound => {
            anyhow!("{} is missing; from the source: cargo build --release -p ninefold-lab", program.display())
        }
        _ => anyhow::Error::new(e).context(program.display().to_string()),
    })?;
    let begun = wait_until_ready(&mut keeper);
    if begun.is_err() {
        end(&mut keeper, None)?;
    }
    begun.map(|()| keeper)
}

fn wait_until_ready(keeper: &mut Child) -> Result<()> {
    let Some(stdout) = keeper.stdout.take() else { bail!("the lab's process has no output") };
    if !is_ready(&stdout, PollFlags::IN | PollFlags::HUP)? {
        bail!("the lab did not begin within {} s", WITHIN.as_secs());
    }
    let mut line = String::new();
    // It is written at one go.
    BufReader::new(stdout).read_line(&mut line).context("cannot hear from the lab")?;
    match serde_json::from_str(&line).context("the lab's process ended before it had begun")? {
        Ready::Up => Ok(()),
        Ready::Unavailable(text) => Err(unavailable(text)),
        Ready::Failed(text) => bail!(text),
    }
}

/// Waits for a descriptor; false when it takes longer than `WITHIN`.
pub fn is_ready(descriptor: impl std::os::fd::AsFd, events: PollFlags) -> Result<bool> {
    let timeout = Timespec { tv_sec: WITHIN.as_secs() as i64, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(&descriptor, events)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result.context("poll")? > 0),
        }
    }
}

/// Ends a lab that was started by this process, and waits until all of it has gone: the second process ends after all others, and the
/// first after that, unless something else has killed it.
pub fn end(keeper: &mut Child, inner: Option<&OwnedFd>) -> Result<()> {
    drop(keeper.stdin.take());
    let process = rustix::process::pidfd_open(Pid::from_child(keeper), PidfdFlags::empty());
    let ended = process.context("pidfd").and_then(|process| is_ready(&process, PollFlags::IN));
    if !matches!(ended, Ok(true)) {
        // It takes too long, or nobody can tell. The first process dies, and the second with it.
        keeper.kill().context("cannot end the lab")?;
    }
    keeper.wait().context("cannot wait for the end of the lab")?;
    match inner {
        Some(inner) if !is_ready(inner, PollFlags::IN)? => bail!("the lab's second process does not end"),
        _ => Ok(()),
    }
}

/// The program, from where this one lies.
fn find() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    let beside = own.with_file_name(PROGRAM);
    let above = own.parent().and_then(Path::parent).map(|directory| directory.join(PROGRAM));
    let found = [Some(beside.clone()), above].into_iter().flatten().find(|path| path.is_file());
    found.ok_or_else(|| anyhow!("{} is missing; from the source: cargo build -p ninefold-lab", beside.display()))
}
