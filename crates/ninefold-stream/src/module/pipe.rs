//! `pipe`: what comes and goes in order, and has no places.
//!
//! A fill waits for the first byte, and for more only where the caller needs more at once. Of a descriptor that does not wait, EAGAIN is
//! told, and so is EINTR while nothing has come; the caller asks again and has lost nothing.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::{Chunk, Fill, Opened, StreamModule, descriptor};
use crate::error::{Error, Result};
use crate::memory::Memory;

/// Bytes of the first memory, for a caller who needs more at once than may ever come: what is needed is believed as it comes.
const BELIEVED: usize = 1 << 20;

pub struct Pipe {
    fd: OwnedFd,
    read: bool,
    write: bool,
    /// send(2) knows how to do without a signal where the other end is closed.
    socket: bool,
    /// Bytes of a read.
    bytes: usize,
}

impl Pipe {
    pub fn new(opened: Opened) -> Self {
        let kind = rustix::fs::fstat(&opened.fd).map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode));
        let socket = kind == Ok(rustix::fs::FileType::Socket);
        Pipe { fd: opened.fd, read: opened.read, write: opened.write, socket, bytes: opened.calibration.first }
    }
}

impl StreamModule for Pipe {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn is_seekable(&self) -> bool {
        false
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        if !self.read {
            return Err(Error::NotReadable);
        }
        let tail = fill.tail.len();
        let room = tail.saturating_add(fill.least.min(BELIEVED).max(self.bytes));
        let mut memory = match fill.memory {
            Some(memory) if memory.capacity() >= room => memory,
            _ => Memory::pooled(room)?,
        };
        memory.as_mut_slice().unwrap_or_default()[..tail].copy_from_slice(fill.tail);
        let mut have = tail;
        while have < fill.least {
            if have == memory.capacity() {
                let mut longer = Memory::pooled(have.saturating_mul(2))?;
                let old = memory.as_mut_slice().unwrap_or_default();
                longer.as_mut_slice().unwrap_or_default()[..have].copy_from_slice(old);
                memory = longer;
            }
            match rustix::io::read(self.fd.as_fd(), &mut memory.as_mut_slice().unwrap_or_default()[have..]) {
                Ok(0) => break,
                Ok(n) => have += n,
                // What came is an answer. The error is met again by who asks for more.
                Err(_) if have > tail => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Chunk { memory, start: 0, length: have, offset: fill.at })
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
