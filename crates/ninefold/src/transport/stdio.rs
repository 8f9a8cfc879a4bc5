//! Standard input and output as one connection: for ssh, inetd, and whoever starts us.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::net as std_unix;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::{FileType, OFlags};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::{Peer, Stream};

/// Both ways of a connection over two descriptors.
#[derive(Debug)]
pub struct Stdio {
    input: Input,
    /// None once it is shut down: closing a pipe is the only way to tell its reader that no more will come.
    output: Option<Output>,
}

#[derive(Debug)]
enum Input {
    Pipe(pipe::Receiver),
    Socket(UnixStream),
    /// A plain file or a terminal, which epoll does not take: read on the blocking pool.
    File(tokio::fs::File),
}

#[derive(Debug)]
enum Output {
    Pipe(pipe::Sender),
    Socket(UnixStream),
    File(tokio::fs::File),
}

/// Takes this process's standard input and output as a connection. Descriptors 0 and 1 are `/dev/null` afterwards, so
/// that nothing printed by accident gets between the messages. Needs a tokio runtime. Call it once.
pub fn take() -> io::Result<(Stream, Peer)> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    let stdio = Stdio::new(input, output)?;
    Ok((Stream::Stdio(stdio), Peer::Stdio))
}

impl Stdio {
    /// A connection over any two descriptors: pipes, sockets, files.
    fn new(input: OwnedFd, output: OwnedFd) -> io::Result<Stdio> {
        let input = match kind(&input)? {
            FileType::Fifo => Input::Pipe(pipe::Receiver::from_owned_fd(input)?),
            FileType::Socket => Input::Socket(socket(input)?),
            _ => Input::File(tokio::fs::File::from_std(input.into())),
        };
        let output = match kind(&output)? {
            FileType::Fifo => Output::Pipe(pipe::Sender::from_owned_fd(output)?),
            FileType::Socket => Output::Socket(socket(output)?),
            _ => Output::File(tokio::fs::File::from_std(output.into())),
        };
        Ok(Stdio { input, output: Some(output) })
    }
}

fn kind(fd: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

/// sshd gives a Unix socket, inetd one of TCP. Only read, write and shutdown are called on it, which any stream
/// socket has.
fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
    UnixStream::from_std(std_unix::UnixStream::from(fd))
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "standard output is closed")
}

impl AsyncRead for Stdio {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().input {
            Input::Pipe(s) => Pin::new(s).poll_read(cx, buf),
            Input::Socket(s) => Pin::new(s).poll_read(cx, buf),
            Input::File(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stdio {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().output {
            Some(Output::Pipe(s)) => Pin::new(s).poll_write(cx, buf),
            Some(Output::Socket(s)) => Pin::new(s).poll_write(cx, buf),
            Some(Output::File(s)) => Pin::new(s).poll_write(cx, buf),
            None => Poll::Ready(Err(closed())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().output {
            Some(Output::Pipe(s)) => Pin::new(s).poll_write_vectored(cx, bufs),
            Some(Output::Socket(s)) => Pin::new(s).poll_write_vectored(cx, bufs),
            Some(Output::File(s)) => Pin::new(s).poll_write_vectored(cx, bufs),
            None => Poll::Ready(Err(closed())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.output, Some(Output::Pipe(_) | Output::Socket(_)))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().output {
            Some(Output::Pipe(s)) => Pin::new(s).poll_flush(cx),
            Some(Output::Socket(s)) => Pin::new(s).poll_flush(cx),
            Some(Output::File(s)) => Pin::new(s).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = match &mut this.output {
            Some(Output::Pipe(s)) => Pin::new(s).poll_shutdown(cx),
            Some(Output::Socket(s)) => Pin::new(s).poll_shutdown(cx),
            Some(Output::File(s)) => Pin::new(s).poll_shutdown(cx),
            None => return Poll::Ready(Ok(())),
        };
        if done.is_ready() {
            this.output = None;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn pipes_sockets_and_files_all_carry_a_connection() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "in").unwrap();
        let (pipe_in, mut to_pipe) = std::io::pipe().unwrap();
        let (mut from_pipe, pipe_out) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut to_pipe, b"in").unwrap();
        drop(to_pipe);
        let (ours, mut theirs) = std_unix::UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut theirs, b"in").unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let out = dir.path().join("o");
        let cases = [
            (OwnedFd::from(pipe_in), OwnedFd::from(pipe_out)),
            (ours.try_clone().unwrap().into(), ours.into()),
            (File::open(&file).unwrap().into(), File::create(&out).unwrap().into()),
        ];
        for (input, output) in cases {
            let mut stdio = Stdio::new(input, output).unwrap();
            let mut got = String::new();
            stdio.read_to_string(&mut got).await.unwrap();
            assert_eq!(got, "in");
            stdio.write_all(b"out").await.unwrap();
            stdio.flush().await.unwrap();
            stdio.shutdown().await.unwrap();
        }
        let mut got = String::new();
        std::io::Read::read_to_string(&mut from_pipe, &mut got).unwrap();
        std::io::Read::read_to_string(&mut theirs, &mut got).unwrap();
        got += &std::fs::read_to_string(&out).unwrap();
        assert_eq!(got, "outoutout");
    }
}
