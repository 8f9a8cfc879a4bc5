//! What the tests of the C library share: building C programs against it, running them, and servers for them.
#![allow(dead_code, reason = "each test program uses its own part")]

pub mod late;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nine::server::{FileServer, Server};
use nine::transport::{Address, Listener};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Bound of every wait; only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Dialects of our server that have no streams, and those that have, as an address asks for them.
pub const DIALECTS: [&str; 6] = ["9P2000", "9P2000.u", "9P2000.L", "9P2000.s", "9P2000.u.s", "9P2000.L.n1"];

/// Whether a dialect has streams.
pub fn has_streams(dialect: &str) -> bool {
    dialect.ends_with(".s") || dialect.ends_with(".n1")
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

/// A file of this crate.
pub fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The directory of libninefold.so and libninefold.a. Cargo builds neither for its tests, as no Rust program could use them, and what
/// was built some time ago may be of other sources: so it is told to. `NINEFOLD_LIBRARY_DIR` is where somebody has just done it.
pub fn library_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| std::env::var_os("NINEFOLD_LIBRARY_DIR").map_or_else(build_library, PathBuf::from))
}

fn build_library() -> PathBuf {
    // TARGET/PROFILE/deps/TEST
    let program = std::env::current_exe().unwrap();
    let profile = program.ancestors().nth(2).unwrap();
    let mut command = Command::new(env!("CARGO"));
    // With all targets the dependencies have the features that they have for the tests, and are not built again.
    command.args(["build", "--quiet", "--locked", "-p", "ninefold-capi", "--all-targets"]);
    command.arg("--target-dir").arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    profile.to_path_buf()
}

/// Whether a program can be run at all.
pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// A directory where the shared library has the name that programs ask for, its SONAME.
pub fn runtime_dir() -> &'static Path {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    let make = || {
        let dir = tempfile::tempdir().unwrap();
        let link = |name: &str| std::os::unix::fs::symlink(library_dir().join("libninefold.so"), dir.path().join(name));
        link("libninefold.so.0").unwrap();
        link("libninefold.so").unwrap();
        dir
    };
    DIR.get_or_init(make).path()
}

/// Flags of every compilation: what is not plain C is seen.
const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-g"];

/// Flags of every compilation besides, set by `scripts/tsan.sh`.
const MORE_FLAGS: &str = "NINEFOLD_C_FLAGS";

/// A C program of this crate, built. `flags` come behind the strict ones.
pub struct Program {
    dir: TempDir,
    /// What it is run under.
    under: Vec<String>,
}

impl Program {
    pub fn build(path: &str, flags: &[&str]) -> Program {
        Program::build_by("cc", path, flags)
    }

    pub fn build_by(compiler: &str, path: &str, flags: &[&str]) -> Program {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(compiler);
        let more = std::env::var(MORE_FLAGS).unwrap_or_default();
        command.args(STRICT).arg("-pthread").arg("-I").arg(source("include")).args(flags).args(more.split_whitespace());
        command.arg("-o").arg(dir.path().join("program")).arg(source(path));
        command.arg("-L").arg(runtime_dir()).arg("-lninefold");
        let output = command.output().unwrap_or_else(|e| panic!("{compiler}: {e}"));
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        Program { dir, under: Vec::new() }
    }

    /// The same program, run by another.
    pub fn under(self, command: &[&str]) -> Program {
        Program { under: command.iter().map(|word| (*word).to_owned()).collect(), ..self }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let program = self.dir.path().join("program");
        let mut command = match self.under.split_first() {
            None => Command::new(program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.args(args).env("LD_LIBRARY_PATH", runtime_dir()).env("XDG_CACHE_HOME", "/dev/null/none");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn start(&self, args: &[&str]) -> Running {
        let mut child = self.command(args).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Running { child: Some(child), stdin, lines: lines(stdout) }
    }

    /// Runs it to its end, which must be good.
    #[track_caller]
    pub fn run(&self, args: &[&str]) {
        self.start(args).end();
    }
}

fn lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

/// A program that runs; killed when it is forgotten.
pub struct Running {
    child: Option<Child>,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Running {
    /// The next thing that it reports, or `None` at its end.
    pub fn report(&self) -> Option<String> {
        let began = Instant::now();
        let report = self.lines.recv_timeout(PATIENCE).ok();
        assert!(report.is_some() || began.elapsed() < PATIENCE, "the program hangs");
        report
    }

    pub fn go_on(&mut self) {
        self.stdin.write_all(b"go on\n").unwrap();
    }

    /// Waits for its end, which must be good; whatever it reports is let go on.
    #[track_caller]
    pub fn end(mut self) {
        while self.report().is_some() {
            self.go_on();
        }
        self.ended();
    }

    #[track_caller]
    pub fn ended(mut self) {
        let Output { status, stderr, .. } = self.child.take().unwrap().wait_with_output().unwrap();
        assert!(status.success(), "{status}\n{}", String::from_utf8_lossy(&stderr));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let errors = child.wait_with_output().map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
            eprintln!("killed: {}", errors.unwrap_or_default());
        }
    }
}

/// A server in threads of its own. Dropped, its connections break.
pub struct Served {
    runtime: Option<Runtime>,
    pub server: Arc<Server>,
    address: Address,
}

impl Served {
    pub fn at(address: &Address, tree: Arc<dyn FileServer>) -> Served {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = Server::builder().export("", tree, false).build();
        let listener = runtime.block_on(async {
            let began = Instant::now();
            loop {
                match Listener::bind(address).await {
                    // One that was killed may take a moment to let go of it.
                    Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && began.elapsed() < PATIENCE => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    bound => break bound.unwrap(),
                }
            }
        });
        let address = listener.local_address().unwrap();
        let serving = server.clone();
        runtime.spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await;
                tokio::spawn(serving.serve(stream, peer));
            }
        });
        Served { runtime: Some(runtime), server, address }
    }

    pub fn tcp(tree: Arc<dyn FileServer>) -> Served {
        Served::at(&"9p://127.0.0.1:0".parse().unwrap(), tree)
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A file's name for a program.
    pub fn name(&self, path: &str, dialect: &str) -> String {
        let version = nine::proto::dialect::Version::parse(dialect.as_bytes());
        Address { path: path.into(), dialect: version, ..self.address.clone() }.to_string()
    }

    /// Breaks its connections: it answers nothing behind this.
    pub fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(PATIENCE);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
