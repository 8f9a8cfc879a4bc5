//! What the lab's tests share: making a lab, or telling that none can be made; and a peer in an end of it.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ninefold_lab::{End, Lab, Options, Stats, Unavailable};

/// Bound of every wait, longer than a lab may take to end; only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub const BENCH: &str = env!("CARGO_BIN_EXE_ninefold-bench");
pub const PEER: &str = env!("CARGO_BIN_EXE_ninefold-lab-peer");

/// Tells that a test cannot run here; CONTRIBUTING.md has the rule.
pub fn skip(name: &str, why: &str) {
    let line = format!("skip {name} - {why}\n");
    // Not by a macro, whose text the test runner keeps to itself when the test passes.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(path) = std::env::var_os("NINEFOLD_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// A lab for a test. `None` when this machine has no TUN device or no namespaces, which is told.
pub fn lab(test: &str, options: Options) -> Option<Lab> {
    HEAR.call_once(hear);
    match Lab::start(&Options { program: Some(BENCH.into()), ..options }) {
        Ok(lab) => Some(lab),
        Err(e) if e.is::<Unavailable>() => {
            skip(test, &format!("{e:#}"));
            None
        }
        Err(e) => panic!("{e:#}"),
    }
}

static HEAR: std::sync::Once = std::sync::Once::new();

/// Catches the signals that these tests send and were started to ignore: what they start would ignore them too.
fn hear() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP] {
        if ignored >> (signal - 1) & 1 == 1 {
            signal_hook::flag::register(signal, std::sync::Arc::default()).unwrap();
        }
    }
}

/// Waits for something, with a bound.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(it) = look() {
            return it;
        }
        assert!(start.elapsed() < PATIENCE, "{what} in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Does what may wait for ever, with a bound.
#[track_caller]
pub fn within<T: Send + 'static>(what: &str, wait: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = channel();
    // A thread that waits for ever ends with the test program.
    std::thread::spawn(move || sender.send(wait()));
    done.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} in time"))
}

/// The first line of what a process prints, without its end; and what follows.
#[track_caller]
pub fn first_line(mut output: BufReader<ChildStdout>) -> (BufReader<ChildStdout>, String) {
    within("a line", move || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        (output, line.trim_end().to_owned())
    })
}

/// The exit status of a process, when it has ended.
#[track_caller]
pub fn ended(child: &mut Child) -> Option<i32> {
    until("an end", || child.try_wait().unwrap()).code()
}

/// Waits until the statistics are as they should be.
#[track_caller]
pub fn until_stats(lab: &Lab, what: &str, is: impl Fn(&Stats) -> bool) -> Stats {
    until(what, || Some(lab.stats().unwrap()).filter(|stats| is(stats)))
}

/// A `ninefold-lab-peer`.
pub struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Peer {
    /// In an end of a lab.
    pub fn start(lab: &Lab, end: End) -> Peer {
        Peer::spawn(&mut lab.command(end, PEER))
    }

    /// In no lab.
    pub fn outside() -> Peer {
        Peer::spawn(&mut Command::new(PEER))
    }

    /// As a command begins it.
    pub fn spawn(command: &mut Command) -> Peer {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, pipe) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (sender, answers) = channel();
        std::thread::spawn(move || pipe.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Peer { child, orders, answers }
    }

    /// Orders something, without waiting for it.
    #[track_caller]
    pub fn order(&mut self, line: &str) {
        writeln!(self.orders, "{line}").expect("the peer takes orders");
    }

    /// The next answer.
    #[track_caller]
    pub fn answer(&mut self) -> String {
        self.answers.recv_timeout(PATIENCE).expect("an answer in time")
    }

    /// Has an answer come that was not yet taken?
    pub fn has_answered(&mut self) -> Option<String> {
        self.answers.try_recv().ok()
    }

    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.order(line);
        self.answer()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection from the client's end to a port at the server's.
#[track_caller]
pub fn connected(lab: &Lab, port: u16) -> (Peer, Peer) {
    let (mut client, mut server) = (Peer::start(lab, End::Client), Peer::start(lab, End::Server));
    assert_eq!(server.ask(&format!("listen {port}")), "listening");
    server.order("accept");
    let answer = client.ask(&format!("connect {}:{port}", lab.address(End::Server)));
    assert!(answer.starts_with("connected "), "{answer}");
    assert!(server.answer().starts_with("accepted "));
    (client, server)
}

/// The processes of which that is the network namespace, as /proc names it, with their states: proc_pid_status(5).
pub fn processes(namespace: &str) -> Vec<(u32, char)> {
    let found = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let link = std::fs::read_link(entry.path().join("ns/net")).ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        (link.to_str()? == namespace).then_some((pid, state(pid)?))
    });
    found.collect()
}

/// What a process does; none when it is no more.
pub fn state(pid: u32) -> Option<char> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("State:"))?.trim_start().chars().next()
}

/// The directories in /proc of the processes that a lab is.
pub fn keepers(name: &str) -> Vec<PathBuf> {
    let is_its = |path: &PathBuf| {
        let words = std::fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(&format!("{name:?}"))
    };
    std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).filter(is_its).collect()
}

/// The threads of any process that are in a network namespace, as /proc names it, by the path that says so.
pub fn inhabitants(namespace: &str) -> Vec<String> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        // A process may end while it is looked at.
        let Ok(threads) = std::fs::read_dir(process.path().join("task")) else { continue };
        for thread in threads.flatten() {
            let link = thread.path().join("ns/net");
            if std::fs::read_link(&link).is_ok_and(|target| target.to_str() == Some(namespace)) {
                found.push(link.display().to_string());
            }
        }
        let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            if std::fs::read_link(descriptor.path()).is_ok_and(|target| target.to_str() == Some(namespace)) {
                found.push(descriptor.path().display().to_string());
            }
        }
    }
    found
}
