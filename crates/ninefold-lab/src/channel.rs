//! Lines over a Unix socket, with descriptors beside them: unix(7), SCM_RIGHTS.
//!
//! `send` sends a line; `receive` waits for one. Who waits for other things as well polls the channel, calls `fill` when it is ready,
//! and then `next` until there is no further line.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::Serialize;

/// Descriptors that come with a line: standard input, output and error, a directory, and a namespace.
pub const DESCRIPTORS: usize = 5;

/// Bytes of a line. A connection in the statistics takes some 60; words and environment of a command are at most 6 MiB, execve(2),
/// each byte of which takes up to 4.
const LINE_MAX: usize = 32 << 20;

/// A connection.
pub struct Channel {
    stream: UnixStream,
    received: Vec<u8>,
    /// So many bytes of what was received hold no end of a line.
    searched: usize,
    descriptors: Vec<OwnedFd>,
}

impl Channel {
    pub fn new(stream: UnixStream) -> Channel {
        Channel { stream, received: Vec::new(), searched: 0, descriptors: Vec::new() }
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a value as a line, with descriptors.
    pub fn send(&self, value: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let mut left = serde_json::to_vec(value)?;
        left.push(b'\n');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        // The space may hold one more: cmsg(3) rounds it up.
        if descriptors.len() > DESCRIPTORS {
            bail!("{} descriptors are more than {DESCRIPTORS}", descriptors.len());
        }
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            bail!("{} descriptors do not fit", descriptors.len());
        }
        let mut rest = &left[..];
        while !rest.is_empty() {
            match sendmsg(&self.stream, &[IoSlice::new(rest)], &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    ancillary.clear();
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(in_time(e)).context("cannot send"),
            }
        }
        Ok(())
    }

    /// Waits for a line, no longer than the socket's timeout for reading. Descriptors that came with it are in the order in which
    /// they were sent.
    pub fn receive(&mut self) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        loop {
            if let Some(line) = self.next() {
                return Ok(line);
            }
            self.fill()?;
        }
    }

    /// A line that has been received.
    pub fn next(&mut self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let Some(length) = self.received[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.received.len();
            return None;
        };
        let rest = self.received.split_off(self.searched + length + 1);
        let mut line = std::mem::replace(&mut self.received, rest);
        self.searched = 0;
        line.pop();
        Some((line, std::mem::take(&mut self.descriptors)))
    }

    /// Receives what has come, or waits for something to come.
    pub fn fill(&mut self) -> Result<()> {
        let mut buffer = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            match recvmsg(&self.stream, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                result => break result.map_err(in_time).context("cannot receive")?,
            }
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                self.descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            bail!("the connection ended");
        }
        self.received.extend_from_slice(&buffer[..received.bytes]);
        if self.descriptors.len() > DESCRIPTORS {
            bail!("more than {DESCRIPTORS} descriptors came with a line");
        }
        if self.received.len() > LINE_MAX {
            bail!("a line of more than {LINE_MAX} bytes");
        }
        Ok(())
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A timeout of a socket says EAGAIN, socket(7), of which nobody knows what to try again.
fn in_time(e: Errno) -> std::io::Error {
    match e {
        Errno::AGAIN => std::io::Error::new(std::io::ErrorKind::TimedOut, "it took too long"),
        e => e.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_come_together_are_told_apart_and_one_that_comes_in_parts_is_whole() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (ours, mut theirs) = (Channel::new(ours), Channel::new(theirs));
        let long = "x".repeat(10_000);
        let sender = std::thread::spawn(move || {
            for text in ["one", "two", &long, "three"] {
                ours.send(&text, &[]).unwrap();
            }
        });
        for text in ["one", "two", &"x".repeat(10_000), "three"] {
            let (line, descriptors) = theirs.receive().unwrap();
            assert_eq!(line, format!("\"{text}\"").as_bytes());
            assert!(descriptors.is_empty());
        }
        sender.join().unwrap();
        assert!(format!("{:#}", theirs.receive().unwrap_err()).contains("ended"));
    }

    #[test]
    fn descriptors_come_with_their_line_and_in_their_order() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (ours, mut theirs) = (Channel::new(ours), Channel::new(theirs));
        let files = ["/dev/null", "/dev/zero"].map(|path| std::fs::File::open(path).unwrap());
        ours.send(&1, &[]).unwrap();
        assert!(theirs.receive().unwrap().1.is_empty());
        ours.send(&2, &[files[1].as_fd(), files[0].as_fd()]).unwrap();
        let (_, descriptors) = theirs.receive().unwrap();
        let device = |file: BorrowedFd<'_>| rustix::fs::fstat(file).unwrap().st_rdev;
        let devices: Vec<_> = descriptors.iter().map(|descriptor| device(descriptor.as_fd())).collect();
        assert_eq!(devices, [device(files[1].as_fd()), device(files[0].as_fd())]);
    }

    #[test]
    fn more_descriptors_than_a_line_may_have_are_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let many = [null.as_fd(); DESCRIPTORS + 1];
        assert!(format!("{:#}", Channel::new(ours).send(&1, &many).unwrap_err()).contains("more than 5"));
        drop(theirs);
    }
}
