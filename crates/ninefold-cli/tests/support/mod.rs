//! What the tests of the command share: running it, and speaking a little 9P to it.
#![allow(dead_code, reason = "each test program uses its own part")]

pub mod between;
pub mod meddler;
pub mod relay;
pub mod share;
pub mod tree;
pub mod wire;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ninefold::proto::print::{Data, parse, print};
use ninefold::proto::{Dialect, Tag};
use rustix::process::{Pid, Signal, kill_process};

/// Bound of every wait; only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn ninefold(args: &[&str]) -> Command {
    // Another place where a test runs as a user who does not reach this one.
    let program = std::env::var_os("NINEFOLD_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_ninefold").into());
    let mut command = Command::new(program);
    // Nothing is remembered from one test to another, whose servers may have the same port.
    command.args(args).env_remove("RUST_LOG").env("XDG_CACHE_HOME", "/dev/null/none");
    command
}

/// Tells that a test cannot run here; CONTRIBUTING.md has the rule.
pub fn skip(name: &str, why: &str) {
    let line = format!("skip {name} - {why}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("NINEFOLD_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// Runs it to its end; standard output and standard error as text.
pub fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = ninefold(args).stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Waits for something, with a bound.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = std::time::Instant::now();
    loop {
        if let Some(it) = look() {
            return it;
        }
        assert!(start.elapsed() < PATIENCE, "{what} in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A command that runs until it is told to end; killed when it is forgotten.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    /// Of standard error, when that is piped.
    complaints: Receiver<String>,
}

/// The lines of a pipe, read as they come so that it never fills.
fn lines(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, lines) = channel();
    if let Some(pipe) = pipe {
        let pipe = BufReader::new(pipe);
        std::thread::spawn(move || pipe.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    }
    lines
}

impl Running {
    pub fn start(args: &[&str]) -> Running {
        Running::spawn(&mut ninefold(args))
    }

    pub fn spawn(command: &mut Command) -> Running {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let (out, complaints) = (lines(child.stdout.take()), lines(child.stderr.take()));
        Running { child, lines: out, complaints }
    }

    /// Waits for a line of standard error that holds `words`.
    pub fn complaint(&self, words: &str) {
        while !self.complaints.recv_timeout(PATIENCE).expect("a complaint in time").contains(words) {}
    }

    /// The lines of standard error not yet taken.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.try_iter().collect()
    }

    /// The next line that it prints.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line in time")
    }

    /// The address at the end of the next line that it prints.
    pub fn tcp(&self) -> SocketAddr {
        let line = self.line();
        let (_, address) = line.rsplit_once(" at 9p://").unwrap_or_else(|| panic!("no address in {line:?}"));
        address.parse().unwrap()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Sockets that it has open: those that it listens on, and one for each client that it is not done with.
    pub fn sockets(&self) -> usize {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let targets = fds.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }

    /// Waits until it is done with all clients; `idle`: its [`Running::sockets`] when it had none.
    pub fn quiet(&self, idle: usize) {
        let began = Instant::now();
        while self.sockets() > idle {
            assert!(began.elapsed() < PATIENCE, "the server is not done with a client that is gone");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops it (SIGSTOP), and waits until all its threads have stopped.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
        let began = std::time::Instant::now();
        while !std::fs::read_dir(&tasks)
            .unwrap()
            .all(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).is_ok_and(is_stopped))
        {
            assert!(began.elapsed() < PATIENCE, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end: the exit status, and the lines not yet taken.
    pub fn end(mut self) -> (Option<i32>, Vec<String>) {
        // Its standard output ends with it, which can be waited for with a bound.
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => lines.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("still running after {PATIENCE:?}"),
            }
        }
        (self.child.wait().unwrap().code(), lines)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The frame of a line in the text form.
pub fn frame(line: &str, dialect: Dialect) -> Vec<u8> {
    parse(line, dialect).unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// Reads one frame and gives its text; nothing at the end of the stream.
pub fn receive(from: &mut impl Read, dialect: Dialect) -> Option<String> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame).ok()?;
    let size = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
    frame.resize(size, 0);
    from.read_exact(&mut frame[4..]).unwrap();
    Some(print(&frame, dialect, Data::Whole).to_string())
}

/// Sends one line and gives the reply's text.
pub fn ask(stream: &mut (impl Read + Write), line: &str, dialect: Dialect) -> String {
    stream.write_all(&frame(line, dialect)).unwrap();
    receive(stream, dialect).expect("a reply")
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub fn version(dialect: Dialect) -> String {
    format!("Tversion tag {} msize 8192 version '{dialect}'", Tag::NONE)
}
