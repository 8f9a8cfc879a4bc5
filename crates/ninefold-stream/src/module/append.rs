//! `append`: files opened with `O_APPEND`, which several processes write to the end of.
//!
//! The backplane hands over whole regions, and each call is one write(2), which the kernel puts at the end in one piece. So a region of
//! one process does not lie within a region of another, but where the disk fills up or a signal ends a write in the middle.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};

use super::pread::Reader;
use super::{Chunk, Fill, Opened, StreamModule, descriptor};
use crate::error::{Error, Result};

pub struct Append {
    fd: OwnedFd,
    reader: Option<Reader>,
}

impl Append {
    pub fn new(opened: Opened) -> Self {
        let reader = opened.read.then(|| Reader::new(opened.calibration, true));
        Append { fd: opened.fd, reader }
    }
}

impl StreamModule for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn appends(&self) -> bool {
        true
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        self.reader.as_mut().ok_or(Error::NotReadable)?.fill(self.fd.as_fd(), fill)
    }

    fn write(&mut self, _at: u64, data: &[u8], written: &mut usize) -> Result<()> {
        let mut rest = data;
        while !rest.is_empty() {
            let n = retry_on_intr(|| rustix::io::write(&self.fd, rest))?;
            if n == 0 {
                return Err(Errno::IO.into());
            }
            *written += n;
            rest = &rest[n..];
        }
        Ok(())
    }

    fn length(&mut self) -> Result<u64> {
        descriptor::length(self.fd.as_fd())
    }

    fn on_disk(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn close(self: Box<Self>) -> Result<()> {
        descriptor::close(self.fd)
    }
}
