//! The servers measured, each a process that ends with us.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::tree::Tree;

/// The longest wait for a server to begin, or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where threads run; `None`: wherever the scheduler likes.
#[derive(Clone, Copy, Debug)]
pub struct Core(Option<usize>);

impl Core {
    /// One for the servers and one for what uses them.
    pub fn two(unpinned: bool) -> (Core, Core) {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        match (cores.next(), cores.next()) {
            (Some(first), Some(second)) if !unpinned => (Core(Some(second)), Core(Some(first))),
            _ => (Core(None), Core(None)),
        }
    }

    /// Whether it is one that servers do not have too.
    pub fn is_one(self) -> bool {
        self.0.is_some()
    }

    fn set(self) -> Option<CpuSet> {
        let mut set = CpuSet::new();
        set.set(self.0?);
        Some(set)
    }

    /// This thread, and those that it will start.
    pub fn pin_this(self) -> Result<()> {
        match self.set() {
            Some(set) => sched_setaffinity(None, &set).context("cannot pin the generator to a core"),
            None => Ok(()),
        }
    }
}

/// A server that runs.
#[derive(Debug)]
pub struct Peer {
    pub name: &'static str,
    pub address: SocketAddr,
    /// The tree to attach to.
    pub aname: Vec<u8>,
    child: Child,
}

impl Peer {
    /// Our own server.
    pub fn ninefold(program: Option<&Path>, dir: &Path, core: Core) -> Result<Peer> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => beside()?.join("ninefold"),
        };
        let mut command = Command::new(&program);
        command.arg("serve").arg(dir).args(["--listen", "9p://127.0.0.1:0"]);
        let (child, line) = start(command, core).with_context(|| program.display().to_string())?;
        let address = line.rsplit_once(" at 9p://").and_then(|(_, address)| address.trim().parse().ok());
        let address = address.with_context(|| format!("{} told no address: {line:?}", program.display()))?;
        Ok(Peer { name: "ninefold", address, aname: Vec::new(), child })
    }

    /// Debian's.
    pub fn diod(dir: &Path, core: Core) -> Result<Peer> {
        let path = [PathBuf::from("/usr/sbin/diod"), PathBuf::from("/sbin/diod")].into_iter().find(|p| p.exists());
        let path = path.context("diod is not installed: apt install diod, or --without-diod")?;
        // It cannot choose a port itself.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(path);
        command.args(["-f", "-n", "-c", "/dev/null", "-L", "/dev/null", "-l", &address.to_string(), "-e"]).arg(dir);
        // Where it leaves a core file, should it come to that.
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawn(command, core)?;
        let peer = Peer { name: "diod", address, aname: dir.as_os_str().as_encoded_bytes().to_vec(), child };
        let began = Instant::now();
        while TcpStream::connect_timeout(&address, PATIENCE).is_err() {
            if began.elapsed() > PATIENCE {
                bail!("diod does not answer at {address}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(peer)
    }

    /// Sockets and files without a protocol.
    pub fn pump(tree: &Tree, core: Core) -> Result<Peer> {
        let mut command = Command::new(std::env::current_exe().context("this program's path")?);
        command.arg("pump").arg(tree.big()).arg(tree.pumped());
        let (child, line) = start(command, core)?;
        let address = line.trim().parse().with_context(|| format!("the pump told no address: {line:?}"))?;
        Ok(Peer { name: "bare sockets", address, aname: Vec::new(), child })
    }

    /// CPU time that it has used, in user space and in the kernel for it.
    pub fn cpu(&self) -> Result<Duration> {
        let clock = nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(self.child.id() as i32))
            .with_context(|| format!("{} is gone", self.name))?;
        Ok(nix::time::clock_gettime(clock).with_context(|| format!("{} is gone", self.name))?.into())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let began = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if began.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Where this program lies, and the others with it.
fn beside() -> Result<PathBuf> {
    let path = std::env::current_exe().context("this program's path")?;
    Ok(path.parent().context("this program's directory")?.to_owned())
}

/// Starts a program that tells its address in its first line.
fn start(mut command: Command, core: Core) -> Result<(Child, String)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = spawn(command, core)?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    Ok((child, line))
}

/// A child gets this thread's cores: they are changed while it is made.
fn spawn(mut command: Command, core: Core) -> Result<Child> {
    let before = sched_getaffinity(None)?;
    core.pin_this()?;
    // Ends with the terminal's Ctrl-C as we do, by our hand.
    let child = command.process_group(0).spawn();
    sched_setaffinity(None, &before)?;
    child.with_context(|| format!("cannot start {}", command.get_program().display()))
}
