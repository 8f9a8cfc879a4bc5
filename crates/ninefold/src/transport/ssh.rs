//! A server started at the other end of ssh: `ninefold serve --stdio`, its input and output the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::Stream;

/// A process whose standard input and output are a connection. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    _child: Child,
    output: ChildStdout,
    /// None once it is shut down.
    input: Option<ChildStdin>,
}

/// What runs at the other end: the tree served is the whole file system, so that a path means what it means to scp, and
/// links lead where they lead there. Cargo's and other private directories of programs are often in the PATH of a login
/// only, and a binary just copied lies in the home directory: they are looked at last. `sh` reads it, whatever the
/// login shell is.
const REMOTE: &str =
    r#"exec sh -c 'PATH="$PATH:$HOME/.cargo/bin:$HOME/.local/bin:$HOME/bin:$HOME" exec ninefold serve --stdio /'"#;

/// The program to run in place of `ssh`, with arguments of its own, words between spaces: as RSYNC_RSH.
const PROGRAM: &str = "NINEFOLD_SSH";

/// Starts `ninefold serve --stdio /` on `host`. What ssh has to ask, it asks on the terminal; what the other end
/// complains about comes on our standard error.
pub(super) fn dial(user: Option<&str>, host: &str) -> io::Result<Stream> {
    let program = std::env::var(PROGRAM).unwrap_or_else(|_| "ssh".to_owned());
    let mut words = program.split_whitespace();
    let name = words.next().unwrap_or("ssh");
    let mut command = Command::new(name);
    command.args(words).args(arguments(user, host));
    start(command)
        .map(Stream::Process)
        .map_err(|e| io::Error::new(e.kind(), format!("{name} could not be started: {e}")))
}

fn arguments(user: Option<&str>, host: &str) -> [String; 4] {
    let host = user.map_or(host.to_owned(), |user| format!("{user}@{host}"));
    ["-T".to_owned(), "--".to_owned(), host, REMOTE.to_owned()]
}

fn start(mut command: Command) -> io::Result<Process> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(input), Some(output)) => Ok(Process { _child: child, output, input: Some(input) }),
        _ => Err(io::Error::other("a process was started without its pipes")),
    }
}

impl AsyncRead for Process {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().output).poll_read(cx, buf)
    }
}

impl AsyncWrite for Process {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().input {
            Some(input) => Pin::new(input).poll_write(cx, buf),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().input {
            Some(input) => Pin::new(input).poll_write_vectored(cx, bufs),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.input.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().input {
            Some(input) => Pin::new(input).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A pipe ends for its reader when its writer is closed.
        self.get_mut().input = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn the_other_end_runs_the_server_in_a_shell_of_its_own() {
        assert_eq!(arguments(Some("ken"), "h")[..3], ["-T", "--", "ken@h"]);
        assert_eq!(arguments(None, "h")[2], "h");
        assert!(REMOTE.starts_with("exec sh -c '") && REMOTE.ends_with("ninefold serve --stdio /'"));
    }

    #[tokio::test]
    async fn a_process_reads_to_our_shutdown_and_we_to_its_end() {
        let mut process = start(Command::new("cat")).unwrap();
        process.write_all(b"through").await.unwrap();
        process.shutdown().await.unwrap();
        let mut got = String::new();
        process.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "through");
    }
}
