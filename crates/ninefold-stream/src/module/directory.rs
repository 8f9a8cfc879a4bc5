//! `directory`: the entries of a directory, each a record as getdents64(2) gives it, in the order in which it gives them.
//!
//! A fill is one record where it lies, and where more is needed at once a copy of several. Places are the file system's own (telldir(3)):
//! one is known behind each record, and a seek goes to any of them, in this stream or in another, as lseek(2) does. The backplane counts
//! bytes all the same, from the beginning on and never back, and `marks` has the places for those that it may ask for.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::libc;
use rustix::fs::{Mode, OFlags, SeekFrom, openat, seek, tell};
use rustix::io::{Errno, retry_on_intr};

use super::{Chunk, Fill, Opened, StreamModule, descriptor};
use crate::directory;
use crate::error::{Error, Result};
use crate::memory::{BELIEVED, Frozen, Memory};

pub struct Directory {
    fd: OwnedFd,
    /// The one that was given, where that is another: it is the stream's, with what hangs on it, as a lock of flock(2).
    given: Option<OwnedFd>,
    /// Bytes of a read.
    bytes: usize,
    /// What was read last, and which bytes of it are records that were not lent.
    read: Option<Frozen>,
    rest: Range<usize>,
    /// Where the file system goes on behind that.
    behind: u64,
    /// The backplane's counts at which records begin that it may be at, and their places.
    marks: Vec<(u64, u64)>,
}

impl Directory {
    /// # Errors
    /// Those of lseek(2) and openat(2).
    pub fn new(opened: Opened) -> Result<Self> {
        let place = tell(&opened.fd)?;
        // Its own open file, so that nobody else's offset moves. Who may read a directory and not search it has only the one that there is.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (fd, given) = match openat(&opened.fd, ".", flags, Mode::empty()) {
            Ok(fd) => (fd, Some(opened.fd)),
            Err(Errno::ACCESS) => (opened.fd, None),
            Err(e) => return Err(e.into()),
        };
        let bytes = opened.calibration.first;
        Ok(Directory { fd, given, bytes, read: None, rest: 0..0, behind: place, marks: vec![(0, place)] })
    }

    fn bytes_of_rest(&self) -> &[u8] {
        self.read.as_ref().map_or(&[], |read| read.bytes(self.rest.clone()))
    }

    /// Where nothing is left of what was read: reads on. False at the end.
    fn more(&mut self) -> Result<bool> {
        if !self.rest.is_empty() {
            return Ok(true);
        }
        let free = self.read.take().and_then(Frozen::thaw);
        self.rest = 0..0;
        let mut memory = Memory::reused(free, self.bytes)?;
        // Somebody else may have the same open file: a child of fork(2).
        if tell(&self.fd)? != self.behind {
            seek(&self.fd, SeekFrom::Start(self.behind))?;
        }
        let room = memory.as_mut_slice().and_then(|room| room.get_mut(..self.bytes)).unwrap_or_default();
        let bytes = retry_on_intr(|| entries(self.fd.as_fd(), room))?;
        let (mut at, mut behind) = (0, self.behind);
        while at < bytes {
            let (entry, length) = directory::first(&room[at..bytes]).ok_or(Errno::IO)?;
            behind = entry.place;
            // The kernel leaves it as it was, and it was other data.
            let padding = at + directory::HEAD + entry.name.len()..at + length;
            room[padding].fill(0);
            at += length;
        }
        self.read = Some(Frozen::new(memory));
        (self.rest, self.behind) = (0..bytes, behind);
        Ok(bytes > 0)
    }

    /// Takes the next record, which `more` has; `to` is the backplane's count behind it.
    fn take(&mut self, length: usize, place: u64, to: u64) -> Range<usize> {
        let begin = self.rest.start;
        self.rest.start += length;
        self.marks.push((to, place));
        begin..self.rest.start
    }

    /// The next record's length, and the place behind it.
    fn next(&self) -> Option<(usize, u64)> {
        directory::first(self.bytes_of_rest()).map(|(entry, length)| (length, entry.place))
    }
}

/// getdents64(2).
fn entries(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    // SAFETY: an open descriptor, and room that is ours.
    let read = unsafe { libc::syscall(libc::SYS_getdents64, fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    usize::try_from(read).map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

impl StreamModule for Directory {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn is_seekable(&self) -> bool {
        false
    }

    fn place(&self, at: u64) -> Option<u64> {
        let behind = self.marks.partition_point(|&(count, _)| count <= at);
        self.marks.get(behind.saturating_sub(1)).map(|&(_, place)| place)
    }

    fn go_to(&mut self, place: u64, at: u64) -> Result<()> {
        if place > i64::MAX as u64 {
            return Err(Error::BadOffset);
        }
        seek(&self.fd, SeekFrom::Start(place))?;
        self.rest = 0..0; // also at the same place: who goes to the beginning sees what the directory has now
        self.behind = place;
        self.marks.clear();
        self.marks.push((at, place));
        Ok(())
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        let tail = fill.tail.len();
        let past = self.marks.partition_point(|&(count, _)| count <= fill.at).saturating_sub(1);
        self.marks.drain(..past);
        if tail == 0 {
            if !self.more()? {
                let memory = Frozen::new(Memory::reused(fill.memory, 1)?);
                return Ok(Chunk { memory, start: 0, length: 0, offset: fill.at });
            }
            if let (Some((length, place)), Some(read)) = (self.next(), self.read.clone())
                && length >= fill.least
            {
                let range = self.take(length, place, fill.at + length as u64);
                return Ok(Chunk { memory: read, start: range.start, length, offset: fill.at });
            }
        }
        // Of a search each copy is twice as long as the one before.
        let wanted = fill.least.max(2 * tail);
        let mut memory = Memory::reused(fill.memory, tail.saturating_add(wanted.min(BELIEVED)))?;
        memory.as_mut_slice().unwrap_or_default()[..tail].copy_from_slice(fill.tail);
        let mut have = tail;
        while have < wanted {
            let step = self.more().and_then(|any| match self.next().filter(|_| any) {
                Some((length, place)) => {
                    while memory.capacity() - have < length {
                        memory.lengthen(have)?;
                    }
                    Ok(Some((length, place)))
                }
                None => Ok(None),
            });
            match step {
                Ok(Some((length, place))) => {
                    let range = self.take(length, place, fill.at + (have + length) as u64);
                    if let (Some(read), Some(room)) = (&self.read, memory.as_mut_slice()) {
                        room[have..have + length].copy_from_slice(read.bytes(range));
                    }
                    have += length;
                }
                Ok(None) => break,
                // It is met again by the next call.
                Err(_) if have > tail => break,
                Err(e) => return Err(e),
            }
        }
        Ok(Chunk { memory: Frozen::new(memory), start: 0, length: have, offset: fill.at })
    }

    fn on_disk(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let closed = self.given.map_or(Ok(()), descriptor::close);
        descriptor::close(self.fd).and(closed)
    }
}
