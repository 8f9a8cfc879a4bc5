//! The end of a ring that gives: room in it is lent, and what was written there, or is copied there, is the reader's from then on.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::line::{Line, Waiting, processor};
use super::pages::Pages;
use super::words::{Look, wait};
use crate::error::{Error, Result};
use crate::memory::Memory;

pub struct Writer {
    pages: Arc<Pages>,
    line: Line,
    /// Given up to here.
    at: u64,
    /// Nothing that anybody wrote is missing.
    whole: bool,
}

/// What became of waiting for room.
enum Room {
    /// Bytes behind what is given.
    Free(u64),
    /// The reader has seen all, waits for more, and keeps what it has: there will be none.
    Stuck,
}

/// Of a ring to which no more can be given: another is to be made.
pub struct Stuck;

impl Writer {
    pub fn new(pages: Arc<Pages>, line: OwnedFd) -> Writer {
        Writer { pages, line: Line(line), at: 0, whole: true }
    }

    fn capacity(&self) -> u64 {
        self.pages.capacity() as u64
    }

    fn check(&self) -> Result<()> {
        match self.pages.is_here() {
            false => Err(Errno::CHILD.into()),
            true if self.line.is_dead() => Err(Errno::PIPE.into()),
            true => Ok(()),
        }
    }

    fn free(&self) -> Result<u64> {
        // Acquire: the reader has read what it gives back.
        let given = self.pages.words().reader.at.load(Ordering::Acquire);
        let used = self.at.checked_sub(given).filter(|&used| used <= self.capacity()).ok_or(Error::BadRing)?;
        Ok(self.capacity() - used)
    }

    fn wait(&self, bytes: u64, stream: BorrowedFd<'_>) -> Result<Room> {
        let words = self.pages.words();
        let mut bed = Waiting::new(&self.line, stream, None);
        wait(&words.writer, &words.reader, &mut bed, || {
            let free = self.free()?;
            if free >= bytes {
                return Ok(Look::Done(Room::Free(free)));
            }
            if !words.reader.lies_at(self.at) {
                return Ok(Look::Not(0));
            }
            // What it gave back before it lay down is seen now.
            let free = self.free()?;
            Ok(Look::Done(if free >= bytes { Room::Free(free) } else { Room::Stuck }))
        })
    }

    /// Room for `bytes` behind `unwritten` more than were given. None where there can be none while those are not given.
    ///
    /// # Errors
    /// EPIPE, EINTR, EAGAIN, ECHILD, [`Error::BadRing`].
    pub fn room(
        &mut self,
        unwritten: usize,
        bytes: usize,
        stream: BorrowedFd<'_>,
    ) -> Result<std::result::Result<Option<Memory>, Stuck>> {
        self.check()?;
        let needed = unwritten.saturating_add(bytes);
        if bytes > self.pages.capacity() / 2 || needed > self.pages.capacity() {
            return Ok(Ok(None));
        }
        let free = match self.wait(needed as u64, stream)? {
            Room::Free(free) => free as usize,
            Room::Stuck if unwritten > 0 => return Ok(Ok(None)),
            Room::Stuck => return Ok(Err(Stuck)),
        };
        let window = (free - unwritten).min(bytes.max(self.pages.capacity() / 8));
        Ok(Ok(Some(self.pages.lend(self.at + unwritten as u64, window, Box::new(self.pages.clone())))))
    }

    /// Gives: as it lies in the ring, or copied there.
    ///
    /// # Errors
    /// As `room`; `written` is raised by what was given.
    pub fn write(
        &mut self,
        data: &[u8],
        written: &mut usize,
        stream: BorrowedFd<'_>,
    ) -> Result<std::result::Result<(), Stuck>> {
        if !self.pages.is_here() {
            return Err(Errno::CHILD.into());
        }
        if self.pages.is_at(data, self.at) {
            self.give(data.len());
            *written += data.len();
            return Ok(Ok(()));
        }
        let mut rest = data;
        while !rest.is_empty() {
            self.check()?;
            let Room::Free(free) = self.wait(1, stream)? else {
                return Ok(Err(Stuck));
            };
            // Not all at once: the reader begins with the first part meanwhile.
            let bytes = rest.len().min(free as usize).min(self.pages.capacity() / 4);
            self.pages.write(self.at, &rest[..bytes]);
            self.give(bytes);
            *written += bytes;
            rest = &rest[bytes..];
        }
        Ok(Ok(()))
    }

    /// The next so many bytes are the reader's. It is woken when a quarter of the ring is full; where both are on one processor, when three are.
    fn give(&mut self, bytes: usize) {
        self.at += bytes as u64;
        let words = self.pages.words();
        // Release: the reader sees the bytes.
        words.writer.at.store(self.at, Ordering::Release);
        let quarter = self.capacity() / 4;
        if let Ok(free) = self.free()
            && (free <= quarter || (free <= quarter * 3 && !words.reader.is_on(processor())))
        {
            self.rouse();
        }
    }

    fn rouse(&self) {
        self.pages.words().reader.rouse(&Waiting::waker(&self.line));
    }

    /// Whoever waits for what was given has it.
    pub fn show(&self) {
        // One that has seen all lies there for more than that.
        if self.pages.is_here() && !self.pages.words().reader.lies_at(self.at) {
            self.rouse();
        }
    }

    /// # Errors
    /// EPIPE: the reader is gone. ECHILD.
    pub fn flush(&self) -> Result<()> {
        self.show();
        self.check()
    }

    /// Something that was written was not given, and will not be.
    pub fn cut(&mut self) {
        self.whole = false;
    }
}

impl Drop for Writer {
    /// No more comes by this ring, and what came is whole.
    fn drop(&mut self) {
        // A child of fork(2) ends nothing of its parent's; and who is ended in the middle has not closed.
        if self.pages.is_here() && self.whole && !std::thread::panicking() {
            self.pages.words().closed.store(self.at + 1, Ordering::Release);
            self.rouse();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

    use super::*;
    use crate::module::ring::words::{AWAKE, Bed, ON_WORD};
    use crate::primitives::AtomicU32;

    /// A reader that lies on this processor. Where it would sleep the writer gives a quarter of the ring at a time.
    struct Quarters {
        writer: Writer,
        processor: u32,
        given: usize,
    }

    impl Bed for Quarters {
        type Error = Error;

        fn may_sleep(&self) -> Result<()> {
            Ok(())
        }

        fn processor(&self) -> u32 {
            self.processor
        }

        fn how(&self) -> u32 {
            ON_WORD
        }

        fn sleep(&mut self, word: &AtomicU32) -> Result<()> {
            while word.load(Ordering::Relaxed) != AWAKE {
                self.writer.give(crate::module::ring::pages::LEAST / 4);
                self.given += 1;
            }
            Ok(())
        }

        fn wake(&self, _word: &AtomicU32, _how: u32) {}
    }

    /// How many quarters are given before the reader is woken.
    fn quarters(processor: u32) -> usize {
        let (memory, pages) = Pages::new(crate::module::ring::pages::LEAST).unwrap();
        let (line, _other) = UnixStream::pair().unwrap();
        let writer = Writer::new(pages, line.into());
        let theirs = Pages::of(memory.as_fd()).unwrap().unwrap();
        let words = theirs.words();
        let mut reader = Quarters { writer, processor, given: 0 };
        let look = || {
            let at = words.writer.at.load(Ordering::Acquire);
            Ok(if at > 0 { Look::Done(()) } else { Look::Not(at) })
        };
        wait(&words.reader, &words.writer, &mut reader, look).unwrap();
        reader.given
    }

    #[test]
    fn a_reader_is_woken_late_where_it_can_only_run_instead_of_the_writer() {
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        sched_setaffinity(None, &here).unwrap();
        let own = processor();
        assert_eq!((quarters(own), quarters(own + 1), quarters(0)), (3, 1, 1));
    }
}
