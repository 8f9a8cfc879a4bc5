//! A lab with a link of one round trip, the servers in its one end, and commands in the other. What is started in it ends with it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ninefold_lab::{End, Lab, Shape};

use crate::interrupted::Interrupted;

use super::part::Exchanged;
use super::timed::Timed;
use super::trees::Trees;

/// Where each server listens in the server's end. 5640 is ninefold's port when none is given.
pub const NINEFOLD: &str = "10.9.0.2:5640";
const EXCHANGE: &str = "10.9.0.2:5641";

/// The longest wait for a server to begin, or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much longer than a command itself may take its start and its end in the lab do.
const BESIDE: Duration = Duration::from_secs(60);

/// A command, and what it reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words {
    pub words: Vec<OsString>,
    pub stdin: Option<PathBuf>,
}

impl Words {
    pub fn new<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Words {
        Words { words: words.into_iter().map(Into::into).collect(), stdin: None }
    }

    pub fn and(mut self, word: impl Into<OsString>) -> Words {
        self.words.push(word.into());
        self
    }

    pub fn reading(self, stdin: impl Into<PathBuf>) -> Words {
        Words { stdin: Some(stdin.into()), ..self }
    }
}

/// Why a command has no figure.
#[derive(Debug)]
pub enum Failed {
    /// It was killed when the time for it was over.
    Stopped(Duration),
    /// It ended with an error, and said this.
    Status(String),
}

pub struct Bed<'t> {
    pub trees: &'t Trees,
    pub ninefold: PathBuf,
    bench: PathBuf,
    servers: Vec<Child>,
    pub interrupted: &'t Interrupted,
    lab: Lab,
}

impl<'t> Bed<'t> {
    /// Makes the lab, and starts our server and that of bare exchanges in it.
    pub fn make(
        trees: &'t Trees,
        ninefold: &Path,
        interrupted: &'t Interrupted,
        rtt: Duration,
        rate: Option<u64>,
    ) -> Result<Bed<'t>> {
        let shape = Shape { delay: rtt / 2, rate, ..Shape::default() };
        let lab = Lab::start(&ninefold_lab::Options::both(shape))?;
        let bench = std::env::current_exe().context("this program's path")?;
        let mut bed = Bed { trees, ninefold: ninefold.to_owned(), bench, servers: Vec::new(), interrupted, lab };
        let serve = Words::new([bed.ninefold.clone(), "serve".into(), trees.served().into()]);
        let url = format!("9p://{NINEFOLD}");
        bed.serve(&serve.and("--listen").and(url).and("--insecure"), "serving ")?;
        let exchange = Words::new(["round-trips-part", "serve", EXCHANGE]);
        let exchange = Words { words: [vec![bed.bench.clone().into()], exchange.words].concat(), ..exchange };
        bed.serve(&exchange, "at ")?;
        // Whatever agreed with a server of another round trip is another server's.
        match fs::remove_dir_all(trees.root().join("cache")) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => bail!("cannot empty the cache: {e}"),
            _ => Ok(bed),
        }
    }

    /// Starts a server in its end, and waits until it has said `begun`.
    pub fn serve(&mut self, words: &Words, begun: &str) -> Result<()> {
        let (program, arguments) = words.words.split_first().context("no command")?;
        let path = self.trees.root().join(format!("server-{}", self.servers.len()));
        let log = File::create(&path)?;
        let mut command = self.lab.command(End::Server, program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.servers.push(command.spawn().context("cannot start a server in the lab")?);
        let start = Instant::now();
        loop {
            let said = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
            if said.contains(begun) {
                return Ok(());
            }
            let ended = self.servers.last_mut().context("no server")?.try_wait()?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                bail!("{} does not serve: {}", program.display(), said.trim());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A file for what commands leave beside their output.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.trees.root().join(name)
    }

    /// Where a command's output is.
    pub fn output(&self) -> PathBuf {
        self.scratch("output")
    }

    /// Runs a command in the client's end; the time that it took.
    pub fn run(&self, words: &Words, within: Duration) -> Result<Result<Duration, Failed>> {
        let mut command = self.part(End::Client, "timed");
        let told = self.scratch("told");
        command.args(["--within", &within.as_millis().to_string()]);
        command.arg("--stdout").arg(self.output()).arg("--stderr").arg(&told);
        if let Some(stdin) = &words.stdin {
            command.arg("--stdin").arg(stdin);
        }
        command.arg("--").args(&words.words);
        command.env("XDG_CACHE_HOME", self.scratch("cache"));
        let timed: Timed = self.ask(command, within)?;
        let took = Duration::from_nanos(timed.nanoseconds);
        Ok(match timed {
            Timed { is_stopped: true, .. } => Err(Failed::Stopped(within)),
            Timed { status: Some(0), .. } => Ok(took),
            Timed { status, .. } => {
                let told = String::from_utf8_lossy(&fs::read(told)?).trim().to_owned();
                let status = status.map_or("killed".to_owned(), |status| format!("status {status}"));
                Err(Failed::Status(format!("{status}: {told}")))
            }
        })
    }

    /// Runs a part of this program in an end, and takes what it tells.
    pub fn part(&self, end: End, part: &str) -> Command {
        let mut command = self.lab.command(end, &self.bench);
        command.args(["round-trips-part", part]);
        command
    }

    /// The one line of JSON that a part prints.
    pub fn ask<T: serde::de::DeserializeOwned>(&self, mut command: Command, within: Duration) -> Result<T> {
        let (told, erred) = (self.scratch("part"), self.scratch("part-error"));
        command.stdin(Stdio::null()).stdout(File::create(&told)?).stderr(File::create(&erred)?);
        let mut child = command.spawn().context("cannot start a command in the lab")?;
        let status = self.interrupted.wait(&mut child, within + BESIDE)?;
        let error = String::from_utf8_lossy(&fs::read(&erred)?).trim().to_owned();
        ensure!(status.success(), "{status}: {error}");
        serde_json::from_slice(&fs::read(&told)?).context("what a part of this program told")
    }

    /// The time of a bare exchange of as many bytes.
    pub fn exchange(&self, sent: u64, received: u64, within: Duration) -> Result<Duration> {
        let mut command = self.part(End::Client, "exchange");
        command.args([EXCHANGE, &sent.to_string(), &received.to_string()]);
        let Exchanged { nanoseconds } = self.ask(command, within)?;
        Ok(Duration::from_nanos(nanoseconds))
    }
}

impl Drop for Bed<'_> {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // It may have ended; what it runs in the lab ends with it, and at the latest with the lab.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
