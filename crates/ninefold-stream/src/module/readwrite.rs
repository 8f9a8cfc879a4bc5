//! `pwrite`, `read-write` and `read-write-random`: files that are written by offsets, and perhaps read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::pread::Reader;
use super::{Chunk, Fill, Opened, StreamModule, descriptor};
use crate::error::{Error, Result};

pub struct ReadWrite {
    fd: OwnedFd,
    name: &'static str,
    reader: Option<Reader>,
    writes: bool,
}

impl ReadWrite {
    pub fn new(name: &'static str, opened: Opened, ahead: bool) -> Self {
        let reader = opened.read.then(|| Reader::new(opened.calibration, ahead));
        ReadWrite { fd: opened.fd, name, reader, writes: opened.write }
    }
}

impl StreamModule for ReadWrite {
    fn name(&self) -> &'static str {
        self.name
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        self.reader.as_mut().ok_or(Error::NotReadable)?.fill(self.fd.as_fd(), fill)
    }

    fn read_into(&mut self, at: u64, buffer: &mut [u8]) -> Option<Result<usize>> {
        self.reader.as_ref()?;
        Some(descriptor::read_at(self.fd.as_fd(), at, buffer, buffer.len()))
    }

    fn write(&mut self, at: u64, data: &[u8], written: &mut usize) -> Result<()> {
        if !self.writes {
            return Err(Error::NotWritable);
        }
        descriptor::write_at(self.fd.as_fd(), at, data, written)
    }

    fn length(&mut self) -> Result<u64> {
        descriptor::length(self.fd.as_fd())
    }

    fn plain_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn close(self: Box<Self>) -> Result<()> {
        descriptor::close(self.fd)
    }
}
