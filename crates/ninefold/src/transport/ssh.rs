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

/// Starts `ninefold serve --stdio PATH` on `host`. What ssh has to ask, it asks on the terminal; what the other end
/// complains about comes on our standard error.
pub(super) fn dial(user: Option<&str>, host: &str, path: &[u8]) -> io::Result<Stream> {
    let mut command = Command::new("ssh");
    command.args(arguments(user, host, path));
    start(command).map(Stream::Process).map_err(|e| io::Error::new(e.kind(), format!("ssh could not be started: {e}")))
}

fn arguments(user: Option<&str>, host: &str, path: &[u8]) -> Vec<std::ffi::OsString> {
    use std::os::unix::ffi::OsStringExt;
    let host = user.map_or(host.to_owned(), |user| format!("{user}@{host}"));
    // The other end's shell reads the command line: the path is quoted for it.
    let mut remote = b"ninefold serve --stdio -- '".to_vec();
    for &b in if path.is_empty() { b"/" } else { path } {
        match b {
            b'\'' => remote.extend_from_slice(b"'\\''"),
            b => remote.push(b),
        }
    }
    remote.push(b'\'');
    let mut words: Vec<_> = ["-T", "--"].map(Into::into).to_vec();
    words.push(host.into());
    words.push(std::ffi::OsString::from_vec(remote));
    words
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
    fn the_path_is_quoted_for_the_shell_at_the_other_end() {
        let words = arguments(Some("ken"), "h", b"/a b'; rm -rf $HOME");
        assert_eq!(words, ["-T", "--", "ken@h", r"ninefold serve --stdio -- '/a b'\''; rm -rf $HOME'"]);
        assert_eq!(arguments(None, "h", b"")[3], "ninefold serve --stdio -- '/'");
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
