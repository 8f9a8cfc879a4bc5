//! Runs the command as a person does: with a bound, on a terminal if need be, and with Ctrl-C at hand.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::command::NINEFOLD;

/// How long a command is to wait for any one reply, and how long for the end of the command: by then it has connected,
/// waited in vain for a request, and taken its leave, whatever the server does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    timeout: &'static str,
    bound: Duration,
}

/// Where the timeout is what ends it.
pub const SHORT: Patience = Patience { timeout: "2", bound: Duration::from_secs(20) };

/// Where it is not: what is left is work, of which two million names are the most.
pub const LONG: Patience = Patience { timeout: "60", bound: Duration::from_secs(200) };

/// A command that goes on for ever is left alone for so long, once it has got going.
const ENOUGH: Duration = Duration::from_secs(1);

/// KiB of addresses, as ulimit(1) has it: a claim of 4 GiB - 1 cannot be met.
const ADDRESSES: u64 = 3 << 20;

/// Where the output goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stdout {
    Pipe,
    Terminal,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Status(i32),
    /// By Ctrl-C, as a shell tells it.
    Interrupted,
    /// By another signal.
    Killed,
    /// Not within its bound.
    Late,
}

/// A command that was run.
#[derive(Debug)]
pub struct Ran {
    pub ended: Ended,
    /// Empty where the command was expected to go on for ever.
    pub stdout: Vec<u8>,
    pub terminal: bool,
    pub stderr: String,
    pub took: Duration,
}

/// Runs `ninefold` with `words` in `dir`. One that is expected to be interrupted is, and its output goes nowhere.
pub async fn ninefold(words: &[String], stdout: Stdout, expected: Ended, patience: Patience, dir: &Path) -> Ran {
    let mut command = Command::new("sh");
    // Arenas take addresses by the number of processors.
    command.args(["-c", &format!("ulimit -v {ADDRESSES}; exec \"$0\" \"$@\"")]).env("MALLOC_ARENA_MAX", "2");
    // Nothing is remembered from one server to another, which may have the same port.
    command.env("XDG_CACHE_HOME", "/dev/null/none");
    command.arg(&*NINEFOLD).args(["--timeout", patience.timeout]).args(words).current_dir(dir);
    command.env_remove("RUST_LOG").stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let interrupt = expected == Ended::Interrupted;
    let mut shown = None;
    match stdout {
        _ if interrupt => drop(command.stdout(Stdio::null())),
        Stdout::Pipe => drop(command.stdout(Stdio::piped())),
        Stdout::Terminal => {
            let (master, slave) = terminal();
            command.stdout(slave);
            shown = Some(tokio::task::spawn_blocking(move || read_terminal(master)));
        }
    }
    let began = Instant::now();
    let child = command.spawn().expect("sh runs");
    // The other end of the terminal lies in it.
    drop(command);
    let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let output = child.wait_with_output();
    tokio::pin!(output);
    let mut done = None;
    if let (true, Some(id)) = (interrupt, id) {
        // Counted from when it can be interrupted: before that, which on a busy machine is long, Ctrl-C kills it as it
        // would any program.
        let enough = async {
            catches_interrupt(id).await;
            sleep(ENOUGH).await;
        };
        tokio::select! {
            output = &mut output => done = Some(output),
            // One that ended just now is not there any more.
            () = enough => drop(kill_process(id, Signal::INT)),
            () = sleep(patience.bound) => {
                let (stdout, took) = (Vec::new(), began.elapsed());
                let stderr = "it never had a handler for Ctrl-C".to_owned();
                return Ran { ended: Ended::Late, stdout, terminal: false, stderr, took };
            }
        }
    }
    if done.is_none() {
        done = timeout(patience.bound, &mut output).await.ok();
    }
    let took = began.elapsed();
    let terminal = shown.is_some();
    let Some(output) = done else {
        return Ran { ended: Ended::Late, stdout: Vec::new(), terminal, stderr: String::new(), took };
    };
    let output = output.expect("its output can be read");
    let ended = match output.status.code() {
        Some(130) if interrupt => Ended::Interrupted,
        Some(status) => Ended::Status(status),
        None => Ended::Killed,
    };
    let stdout = match shown {
        Some(reading) => reading.await.expect("no panic"),
        None => output.stdout,
    };
    Ran { ended, stdout, terminal, stderr: String::from_utf8_lossy(&output.stderr).into_owned(), took }
}

/// Waits until the process is `ninefold`, and no longer the shell that became it, and has a handler for Ctrl-C, as proc(5) shows both: by the name
/// of the program, and the mask `SigCgt` in hexadecimal.
async fn catches_interrupt(id: Pid) {
    let status = format!("/proc/{}/status", id.as_raw_nonzero());
    // Of a name the kernel keeps so much.
    let program: String = NINEFOLD.file_name().unwrap_or_default().to_string_lossy().chars().take(15).collect();
    loop {
        // None can be read once it is gone, and then there is nothing to wait for but its end.
        let shown = fs::read_to_string(&status).unwrap_or_default();
        let field = |name| shown.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let caught = field("SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        let catches = caught.is_some_and(|mask| mask & 1 << (Signal::INT.as_raw() - 1) != 0);
        if catches && field("Name:") == Some(&program) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Both ends of a new terminal: the one to look at, and the one to write to.
fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("its other end");
    let name = ptsname(&master, Vec::new()).expect("its name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(&*name, flags, Mode::empty()).expect("its other end");
    (master, slave)
}

/// Everything that is written until nobody can write any more, which Linux tells as EIO.
fn read_terminal(master: OwnedFd) -> Vec<u8> {
    let mut master = File::from(master);
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = master.read(&mut part) {
        all.extend_from_slice(&part[..n]);
    }
    all
}

/// Starts `ninefold-hostile`; it ends with the child. Gives the address that it prints.
pub async fn hostile(name: &str) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ninefold-hostile"));
    let mut child = command.arg(name).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let line = timeout(LONG.bound, lines.next_line()).await.expect("in time").expect("readable").expect("a line");
    let place = line.rsplit(' ').next().expect("a word").to_owned();
    (child, place)
}
