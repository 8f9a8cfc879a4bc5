//! The server that the demo talks to: this command, started again.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ninefold::transport::{Address, Place};
use rustix::process::{Pid, Signal, kill_process};

use super::client::Wire;

/// Bound of every single wait: for a line, for a reply, for an exit.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How a connection is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Tcp,
    Unix,
    Stdio,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Tcp, Way::Unix, Way::Stdio];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Tcp => "TCP",
            Way::Unix => "a Unix socket",
            Way::Stdio => "standard input and output",
        })
    }
}

/// A process that is killed when it is forgotten.
pub struct Process(Child);

impl Process {
    /// This command, with other arguments.
    fn serve(tree: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("cannot find my own program")?);
        command.arg("serve").arg(tree);
        Ok(command)
    }

    fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            // std has no wait with a bound; a poll every millisecond is not felt for the tenths of a second it lasts.
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!("the server has not ended after {} s", PATIENCE.as_secs())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server of the connections over sockets.
pub struct Server {
    process: Process,
    tree: PathBuf,
    tcp: (String, u16),
    socket: PathBuf,
}

impl Server {
    /// Serves `tree` on a free port of loopback and at `socket`.
    pub fn start(tree: &Path, socket: &Path) -> anyhow::Result<Server> {
        let mut command = Process::serve(tree)?;
        command.args(["--listen", "9p://127.0.0.1:0", "--listen", &Address::unix(socket).to_string()]);
        let mut process = Process(command.stdout(Stdio::piped()).spawn().context("cannot start the server")?);
        let out = process.0.stdout.take().context("the server has no standard output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || BufReader::new(out).lines().try_for_each(|line| sender.send(line)));
        let address = || -> anyhow::Result<Address> {
            let line = lines.recv_timeout(PATIENCE).context("the server did not say where it listens")??;
            let (_, address) = line.rsplit_once(" at ").with_context(|| format!("the server said: {line}"))?;
            Ok(address.parse()?)
        };
        let Place::Tcp { host, port } = address()?.place else { bail!("the first address is not TCP") };
        ensure!(address()? == Address::unix(socket), "the second address is not the Unix socket");
        Ok(Server { process, tree: tree.to_owned(), tcp: (host, port), socket: socket.to_owned() })
    }

    pub fn tree(&self) -> &Path {
        &self.tree
    }

    pub fn connect(&self, way: Way) -> anyhow::Result<Connection> {
        Ok(match way {
            Way::Tcp => {
                let stream = TcpStream::connect((self.tcp.0.as_str(), self.tcp.1))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Connection::Tcp(stream)
            }
            Way::Unix => Connection::Unix(patient(UnixStream::connect(&self.socket)?)?),
            Way::Stdio => {
                // A socket in place of two pipes: reads from it can have a bound.
                let (ours, theirs) = UnixStream::pair()?;
                let mut command = Process::serve(&self.tree)?;
                let output: OwnedFd = theirs.try_clone()?.into();
                command.arg("--stdio").stdin(OwnedFd::from(theirs)).stdout(output);
                let process = Process(command.spawn().context("cannot start the server")?);
                Connection::Stdio(patient(ours)?, process)
            }
        })
    }

    /// Asks the server to end, and says how long it took.
    pub fn stop(mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        kill_process(Pid::from_child(&self.process.0), Signal::TERM).context("cannot send SIGTERM")?;
        let status = self.process.wait()?;
        ensure!(status.success(), "the server ended on SIGTERM with {status}");
        ensure!(!self.socket.exists(), "the server left its socket behind");
        Ok(began.elapsed())
    }
}

fn patient(stream: UnixStream) -> anyhow::Result<UnixStream> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A connection to a server.
pub enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// With a server of its own, which ends with the connection.
    Stdio(UnixStream, Process),
}

impl Connection {
    pub fn stream(&mut self) -> anyhow::Result<Box<dyn Wire>> {
        Ok(match self {
            Connection::Tcp(stream) => Box::new(stream.try_clone()?),
            Connection::Unix(stream) | Connection::Stdio(stream, _) => Box::new(stream.try_clone()?),
        })
    }

    /// Ends it, and waits for a server that ends with it.
    pub fn hang_up(self) -> anyhow::Result<()> {
        if let Connection::Stdio(stream, mut process) = self {
            drop(stream);
            let status = process.wait()?;
            ensure!(status.success(), "the server ended with {status}");
        }
        Ok(())
    }
}
