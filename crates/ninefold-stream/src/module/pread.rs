//! `pread` and `pread-random`: files read by offsets into pages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::{Chunk, Fill, Opened, StreamModule, descriptor};
use crate::backplane::ahead::Source;
use crate::calibration::Calibration;
use crate::error::Result;
use crate::memory::{Frozen, Memory, PAGE};

pub struct Pread {
    /// Shared with who reads ahead, for as long as his call lasts.
    fd: Arc<OwnedFd>,
    reader: Reader,
    name: &'static str,
}

impl Pread {
    pub fn new(opened: Opened, ahead: bool) -> Self {
        let name = if ahead { "pread" } else { "pread-random" };
        Pread { fd: Arc::new(opened.fd), reader: Reader::new(opened.calibration, ahead), name }
    }
}

impl StreamModule for Pread {
    fn name(&self) -> &'static str {
        self.name
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        self.reader.fill(self.fd.as_fd(), fill)
    }

    fn ahead(&mut self, from: u64) -> Option<(Arc<dyn Source>, usize)> {
        let bytes = self.reader.ahead(from)?;
        Some((self.fd.clone(), bytes))
    }

    fn has_read(&mut self, to: u64) {
        self.reader.next = to;
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
        // Who closes has the stream for himself, so nobody is in a call on it.
        Arc::into_inner(self.fd).map_or(Ok(()), descriptor::close)
    }
}

impl Source for OwnedFd {
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        descriptor::read_at(self.as_fd(), at, buffer, buffer.len())
    }
}

/// The reading half of every module that reads by offsets. How much it reads follows what is done: much while each fill begins where
/// the one before ended, a page otherwise.
pub struct Reader {
    calibration: Calibration,
    ahead: bool,
    /// Where a sequential reader goes on.
    next: u64,
    /// Bytes to read then.
    bytes: usize,
}

impl Reader {
    pub fn new(calibration: Calibration, ahead: bool) -> Self {
        Reader { calibration, ahead, next: 0, bytes: calibration.first }
    }

    /// How much to read at `from`.
    fn measure(&mut self, from: u64) -> usize {
        if !self.ahead {
            return PAGE;
        }
        if from != self.next {
            self.bytes = PAGE;
        }
        let bytes = self.bytes;
        self.bytes = (bytes * 4).min(self.calibration.read);
        bytes
    }

    /// How much is read ahead at `from`, where that goes on in order.
    fn ahead(&mut self, from: u64) -> Option<usize> {
        (self.ahead && from == self.next).then(|| self.measure(from))
    }

    pub fn fill(&mut self, fd: BorrowedFd<'_>, fill: Fill<'_>) -> Result<Chunk> {
        let tail = fill.tail.len();
        let from = fill.at.saturating_add(tail as u64);
        let ahead = self.measure(from);
        let mut least = fill.least.saturating_sub(tail).max(1);
        if least > ahead {
            // A count from outside: no more memory than the file has bytes.
            let rest = descriptor::length(fd)?.saturating_sub(from);
            least = least.min(usize::try_from(rest).unwrap_or(usize::MAX)).max(ahead);
        }
        // What is read lies in its page as it lies in the file, and the tail just before.
        let shift = (from % PAGE as u64) as usize;
        let begin = tail.saturating_sub(shift).next_multiple_of(PAGE) + shift;
        let end = (begin + least.max(ahead)).next_multiple_of(PAGE);
        let mut memory = Memory::reused(fill.memory, end)?;
        let bytes = memory.as_mut_slice().unwrap_or_default();
        bytes[begin - tail..begin].copy_from_slice(fill.tail);
        let read = descriptor::read_at(fd, from, &mut bytes[begin..end], least)?;
        self.next = from + read as u64;
        Ok(Chunk { memory: Frozen::new(memory), start: begin - tail, length: tail + read, offset: fill.at })
    }
}
