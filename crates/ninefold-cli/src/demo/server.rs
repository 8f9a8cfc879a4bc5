//! The server that the demo uses: this command, started again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ninefold::proto::Dialect;
use ninefold::transport::{Address, Place};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use super::program::{self, PATIENCE, Program};
use super::say;

/// How the server is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Tcp,
    Unix,
    Ssh,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Tcp, Way::Unix, Way::Ssh];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Tcp => "TCP",
            Way::Unix => "a Unix socket",
            Way::Ssh => "a stand-in for ssh (the server's standard input and output)",
        })
    }
}

/// A name that no file in the tree has.
pub const MISSING: &str = "no-such-file";

/// The host's name in addresses of ssh: the stand-in does not look at it.
const HOST: &str = "host";

/// The server of the connections over sockets; ssh starts its own.
#[derive(Debug)]
pub struct Server {
    process: Child,
    tree: PathBuf,
    tcp: Address,
    socket: PathBuf,
    /// Kept open, as the server's.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    /// Serves the directory `tree` on a free port of loopback and at a socket beside it.
    pub async fn start(program: &Program) -> anyhow::Result<Server> {
        let tree = program.dir.join("tree");
        std::fs::create_dir(&tree).with_context(|| tree.display().to_string())?;
        let socket = program.dir.join("socket");
        let unix = Address::unix(&socket);
        let (tcp, at) = ("9p://127.0.0.1:0", unix.to_string());
        let words = ["serve", "tree", "--listen", tcp, "--listen", &at];
        say(&format!("$ {} &\n", program::line(&words)))?;
        let mut process = program.command(&words).spawn().context("cannot start the server")?;
        let mut lines = BufReader::new(process.stdout.take().context("the server has no standard output")?).lines();
        let mut address = async || -> anyhow::Result<Address> {
            let line =
                timeout(PATIENCE, lines.next_line()).await.context("the server did not say where it listens")??;
            let line = line.context("the server ended before it said where it listens")?;
            say(&format!("    {line}\n"))?;
            let (_, address) = line.rsplit_once(" at ").with_context(|| format!("the server said: {line}"))?;
            Ok(address.parse()?)
        };
        let tcp = address().await?;
        ensure!(matches!(tcp.place, Place::Tcp { .. }), "the first address is not TCP");
        ensure!(address().await? == unix, "the second address is not the Unix socket");
        Ok(Server { process, tree, tcp, socket, _lines: lines })
    }

    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Where the tree is, with the dialect pinned.
    pub fn url(&self, way: Way, dialect: Dialect) -> Address {
        let mut url = match way {
            Way::Tcp => self.tcp.clone(),
            Way::Unix => Address::unix(&self.socket),
            Way::Ssh => Address::new(Place::Ssh { user: None, host: HOST.to_owned() }),
        };
        if way == Way::Ssh {
            // ssh's server has the whole machine for its tree.
            url.path = self.tree.as_os_str().as_encoded_bytes().to_vec();
        }
        url.dialect = Some(dialect.into());
        url
    }

    /// A file that is not there, in the shortest form.
    pub fn missing(&self, way: Way) -> String {
        match way {
            Way::Tcp => format!("{}/{MISSING}", self.tcp),
            Way::Unix => format!("{}:/{MISSING}", Address::unix(&self.socket)),
            Way::Ssh => format!("{HOST}:{}/{MISSING}", self.tree.display()),
        }
    }

    /// Asks the server to end, and says how long it took.
    pub async fn stop(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let pid = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let Some(pid) = pid else { bail!("the server has ended by itself") };
        kill_process(pid, Signal::TERM).context("cannot send SIGTERM")?;
        let status = timeout(PATIENCE, self.process.wait()).await;
        let status = status.with_context(|| format!("the server has not ended after {} s", PATIENCE.as_secs()))??;
        ensure!(status.success(), "the server ended on SIGTERM with {status}");
        ensure!(!self.socket.exists(), "the server left its socket behind");
        Ok(began.elapsed())
    }
}
