//! `pipe`: what comes and goes in order, and has no places.
//!
//! A fill waits for the first byte, and for more only where the caller needs more at once. Of a descriptor that does not wait, EAGAIN is
//! told, and so is EINTR, to who needs more than has come; the caller asks again and has lost nothing.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::bell::Bell;
use super::{Chunk, Fill, Opened, StreamModule, descriptor};
use crate::error::{Error, Result};
use crate::memory::{BELIEVED, Frozen, Memory};

/// What was met behind data that was an answer.
#[derive(Clone, Copy, Default)]
pub struct Met {
    /// The system tells it once, so it is told again.
    owed: Option<Error>,
    /// The system tells it again if it is so still.
    pub short: Option<Error>,
}

pub struct Pipe {
    pub(super) fd: OwnedFd,
    pub(super) read: bool,
    pub(super) write: bool,
    /// send(2) knows how to do without a signal where the other end is closed.
    socket: bool,
    /// Bytes of a read.
    pub(super) bytes: usize,
    pub(super) met: Met,
    pub(super) bell: Option<Bell>,
}

impl Pipe {
    pub fn new(opened: Opened) -> Self {
        let kind = rustix::fs::fstat(&opened.fd).map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode));
        let socket = kind == Ok(rustix::fs::FileType::Socket);
        Pipe {
            fd: opened.fd,
            read: opened.read,
            write: opened.write,
            socket,
            bytes: opened.calibration.first,
            met: Met::default(),
            bell: None,
        }
    }
}

impl Pipe {
    /// Waits for data where there is a bell to end that; else the read does. A descriptor that does not wait is not waited for here.
    fn wait(&self) -> std::result::Result<(), Errno> {
        match &self.bell {
            Some(bell) if !rustix::fs::fcntl_getfl(&self.fd)?.contains(rustix::fs::OFlags::NONBLOCK) => {
                bell.wait(self.fd.as_fd())
            }
            _ => Ok(()),
        }
    }

    /// The next bytes; none at the end.
    pub(super) fn take(&self, buffer: &mut [u8]) -> Result<usize> {
        self.wait()?;
        Ok(rustix::io::read(self.fd.as_fd(), buffer)?)
    }
}

/// Does it say of the stream nothing but that it was not waited for?
pub fn passes(e: Error) -> bool {
    matches!(e, Error::Os(Errno::AGAIN | Errno::INTR | Errno::CANCELED))
}

/// What is pending, and behind it what `read` brings into memory of `bytes` at least, until there is as much as is needed, or the end, or an
/// error.
pub fn gather(
    fill: Fill<'_>,
    bytes: usize,
    met: &mut Met,
    mut read: impl FnMut(&mut [u8]) -> Result<usize>,
) -> Result<Chunk> {
    let tail = fill.tail.len();
    let room = tail.saturating_add(fill.least.min(BELIEVED).max(bytes));
    let mut memory = Memory::reused(fill.memory, room)?;
    memory.as_mut_slice().unwrap_or_default()[..tail].copy_from_slice(fill.tail);
    let mut have = tail;
    met.short = None;
    while have < fill.least {
        if let Some(e) = met.owed {
            if have > tail {
                break;
            }
            if tail == 0 {
                met.owed = None;
            }
            return Err(e);
        }
        if have == memory.capacity() {
            memory.lengthen(have)?;
        }
        match read(&mut memory.as_mut_slice().unwrap_or_default()[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) => {
                // The system tells of a connection that was reset once; who takes what came before is told too.
                let again = passes(e);
                if have > 0 && !again {
                    met.owed = Some(e);
                }
                if have > tail {
                    met.short = again.then_some(e);
                    break;
                }
                return Err(e);
            }
        }
    }
    Ok(Chunk { memory: Frozen::new(memory), start: 0, length: have, offset: fill.at })
}

impl StreamModule for Pipe {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn is_seekable(&self) -> bool {
        false
    }

    fn listen(&mut self, bell: Option<&Bell>) {
        self.bell = bell.cloned();
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        if !self.read {
            return Err(Error::NotReadable);
        }
        let (bytes, mut met) = (self.bytes, self.met);
        let chunk = gather(fill, bytes, &mut met, |buffer| self.take(buffer));
        self.met = met;
        chunk
    }

    fn fell_short(&self) -> Option<Error> {
        self.met.short
    }

    fn write(&mut self, _at: u64, data: &[u8], written: &mut usize) -> Result<()> {
        if !self.write {
            return Err(Error::NotWritable);
        }
        let mut rest = data;
        while !rest.is_empty() {
            let n = if self.socket {
                send(&self.fd, rest, SendFlags::NOSIGNAL)?
            } else {
                rustix::io::write(&self.fd, rest)?
            };
            if n == 0 {
                return Err(Errno::IO.into());
            }
            *written += n;
            rest = &rest[n..];
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        descriptor::close(self.fd)
    }
}
