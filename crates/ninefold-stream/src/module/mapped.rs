//! `mmap`: plain files that are read only, looked at where the system keeps them (§4.3.2).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::pread::Reader;
use super::{Chunk, Fill, Opened, StreamModule, descriptor};
use crate::calibration::Calibration;
use crate::error::Result;
use crate::fault::Notice;
use crate::memory::{Frozen, Memory, PAGE};

pub struct Mapped {
    fd: OwnedFd,
    calibration: Calibration,
    notice: Arc<dyn Notice>,
    /// For what is not mapped: a file that this process writes, and one that cannot be mapped.
    reader: Reader,
}

impl Mapped {
    pub fn new(opened: Opened) -> Self {
        let calibration = opened.calibration;
        Mapped { fd: opened.fd, calibration, notice: opened.notice, reader: Reader::new(calibration, true) }
    }

    /// The window that has `at` and `least` bytes behind it, of a file of `length` bytes: its offset and its bytes.
    fn window(&self, at: u64, least: usize, length: u64) -> Option<(u64, usize)> {
        if length <= self.calibration.map_whole {
            return Some((0, usize::try_from(length).ok()?));
        }
        let offset = at - at % PAGE as u64;
        let end = at.saturating_add((least as u64).max(self.calibration.window)).min(length);
        Some((offset, usize::try_from(end - offset).ok()?))
    }

    fn map(&self, at: u64, least: usize) -> Result<Option<Chunk>> {
        let length = descriptor::length(self.fd.as_fd())?;
        if at >= length {
            return Ok(None);
        }
        let Some((offset, bytes)) = self.window(at, least, length) else {
            return Ok(None);
        };
        // A refusal (no address space, a file system that does not map) is no fault: the file is read.
        let memory = Memory::map(self.fd.as_fd(), offset, bytes, self.notice.clone()).ok().flatten();
        Ok(memory.map(|memory| Chunk { memory: Frozen::new(memory), start: 0, length: bytes, offset }))
    }
}

impl StreamModule for Mapped {
    fn name(&self) -> &'static str {
        "mmap"
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        if fill.quiet
            && let Some(chunk) = self.map(fill.at, fill.least)?
        {
            return Ok(chunk);
        }
        self.reader.fill(self.fd.as_fd(), fill)
    }

    fn read_into(&mut self, at: u64, buffer: &mut [u8]) -> Option<Result<usize>> {
        Some(descriptor::read_at(self.fd.as_fd(), at, buffer, buffer.len()))
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
