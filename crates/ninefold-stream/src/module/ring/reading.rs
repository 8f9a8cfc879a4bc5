//! The end of a ring that takes: chunks of it are lent, and what all who had a part have given back goes to the writer again, in order.
//!
//! The youngest chunk is kept even when nobody has it any more: what was not taken of it is asked for again with the next fill.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::line::{Line, Waiting, processor};
use super::pages::Pages;
use super::words::{Look, wait};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::module::Fill;
use crate::module::bell::Bell;
use crate::module::pipe::passes;

pub struct Reader {
    ring: Arc<Ring>,
    /// Taken up to here.
    next: u64,
    /// Written up to here, when it was last looked.
    end: u64,
    /// Met, and for ever.
    broken: Option<Error>,
}

/// What those who have a chunk need of the ring.
struct Ring {
    pages: Arc<Pages>,
    line: Line,
    lent: Mutex<Lent>,
}

struct Lent {
    /// Those that are out. One may begin in the one before.
    chunks: Vec<Lease>,
    /// The next one's number.
    number: u64,
    /// Nothing from here on is given back.
    keep: u64,
    /// Given back up to here.
    given: u64,
    /// Written up to here, when it was last looked.
    end: u64,
}

struct Lease {
    number: u64,
    begin: u64,
}

/// A chunk is out while it lives.
struct Taken {
    ring: Arc<Ring>,
    number: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut lent = self.ring.lent();
        lent.chunks.retain(|lease| lease.number != self.number);
        self.ring.give(&mut lent);
    }
}

impl Ring {
    fn lent(&self) -> MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what nobody has any more. Whoever waits for room is woken when half of the ring is empty; where both are on one processor,
    /// when three quarters are.
    fn give(&self, lent: &mut Lent) {
        let to = lent.chunks.iter().fold(lent.keep, |to, lease| to.min(lease.begin));
        if to <= lent.given || !self.pages.is_here() {
            return;
        }
        lent.given = to;
        let words = self.pages.words();
        // Release: the writer writes there only after we have read.
        words.reader.at.store(to, Ordering::Release);
        let (full, quarter) = (lent.end.saturating_sub(to), self.pages.capacity() as u64 / 4);
        if full <= quarter || (full <= quarter * 2 && !words.writer.is_on(processor())) {
            words.writer.rouse(&self.waker());
        }
    }

    fn waker(&self) -> Waiting<'_> {
        Waiting::waker(&self.line)
    }
}

/// What is waited for has come: data, or the end of the ring.
enum Come {
    Data(u64),
    End,
}

impl Reader {
    pub fn new(pages: Arc<Pages>, line: OwnedFd) -> Reader {
        let lent = Lent { chunks: Vec::new(), number: 0, keep: 0, given: 0, end: 0 };
        let ring = Arc::new(Ring { pages, line: Line(line), lent: Mutex::new(lent) });
        Reader { ring, next: 0, end: 0, broken: None }
    }

    /// Bytes that are there, and whether the writer has closed: none follow.
    fn look(&self) -> Result<(u64, bool)> {
        let words = self.ring.pages.words();
        // Acquire, and in this order: what was written before it closed is seen by who sees that.
        let closed = words.closed.load(Ordering::Acquire);
        let end = words.writer.at.load(Ordering::Acquire);
        let given = self.ring.lent().given;
        // It has what was taken, and what was seen.
        let possible = end >= self.end.max(self.next) && end.wrapping_sub(given) <= self.ring.pages.capacity() as u64;
        if !possible || (closed != 0 && closed.wrapping_sub(1) != end) {
            return Err(Error::BadRing);
        }
        Ok((end, closed != 0))
    }

    /// It is never less from now on.
    fn saw(&mut self, end: u64) {
        self.end = end;
        self.ring.lent().end = end;
    }

    /// Waits for so many bytes.
    fn wait(&mut self, bytes: u64, stream: BorrowedFd<'_>, bell: Option<&Bell>) -> Result<Come> {
        if !self.ring.pages.is_here() {
            return Err(Errno::CHILD.into());
        }
        if let Some(e) = self.broken {
            return Err(e);
        }
        let words = self.ring.pages.words();
        let mut bed = Waiting::new(&self.ring.line, stream, bell);
        let come = wait(&words.reader, &words.writer, &mut bed, || {
            let (end, closed) = self.look()?;
            Ok(match end - self.next {
                have if have >= bytes => Look::Done((Come::Data(have), end)),
                _ if closed => Look::Done((Come::End, end)),
                _ => Look::Not(end),
            })
        });
        match come {
            Ok((come, end)) => {
                self.saw(end);
                Ok(come)
            }
            Err(e) => {
                // It died before it closed: what came last may be half of something.
                let e = if e == Error::Os(Errno::PIPE) { Errno::CONNRESET.into() } else { e };
                if matches!(e, Error::BadRing | Error::Os(Errno::CONNRESET)) {
                    self.broken = Some(e);
                }
                Err(e)
            }
        }
    }

    /// Nothing before `keep` is asked for again.
    fn keep(&self, lent: &mut Lent, keep: u64) {
        lent.keep = keep;
        self.ring.give(lent);
    }

    /// Lends what is asked for, in the ring. None where it is to be copied: it is more than half of the ring, or part of it is not there.
    /// `short` is then why it is less than was needed, if who asks again meets nothing of that.
    pub fn lend(
        &mut self,
        fill: &Fill<'_>,
        stream: BorrowedFd<'_>,
        bell: Option<&Bell>,
        short: &mut Option<Error>,
    ) -> Result<Option<Memory>> {
        *short = None;
        let capacity = self.ring.pages.capacity();
        let tail = fill.tail.len();
        let (most, behind) = (capacity / 2, tail as u64);
        if fill.least > most || tail > most || !self.ring.pages.is_here() {
            return Ok(None);
        }
        // The tail may have come from elsewhere, or the writer may have written over it.
        let mut lent = self.ring.lent();
        let ours = tail == 0 || fill.of_module;
        let is_here = ours && behind <= self.next - lent.given && self.ring.pages.shows(self.next - behind, fill.tail);
        let keep = if is_here { self.next - behind } else { self.next };
        self.keep(&mut lent, keep);
        drop(lent);
        if !is_here {
            return Ok(None);
        }
        let needed = fill.least.saturating_sub(tail) as u64;
        let have = match self.wait(needed, stream, bell) {
            Ok(Come::Data(have)) => have,
            Ok(Come::End) => return Ok(None),
            // What came before it is had first.
            Err(e) => match self.look() {
                Ok((end, _)) if end > self.next && self.broken != Some(Error::BadRing) => {
                    self.saw(end);
                    *short = Some(e).filter(|&e| passes(e));
                    end - self.next
                }
                _ => return Err(e),
            },
        };
        let bytes = have.min(needed.max(capacity as u64 / 8));
        let begin = self.next - behind;
        self.next += bytes;
        let mut lent = self.ring.lent();
        let number = lent.number;
        lent.number += 1;
        lent.chunks.push(Lease { number, begin });
        self.keep(&mut lent, begin);
        drop(lent);
        let taken = Taken { ring: self.ring.clone(), number };
        Ok(Some(self.ring.pages.lend(begin, (behind + bytes) as usize, Box::new(taken))))
    }

    /// Copies what is there, one byte at least. None at the end of the ring.
    pub fn take(&mut self, buffer: &mut [u8], stream: BorrowedFd<'_>, bell: Option<&Bell>) -> Result<Option<usize>> {
        if self.ring.pages.is_here() {
            self.keep(&mut self.ring.lent(), self.next);
        }
        let Come::Data(have) = self.wait(1, stream, bell)? else {
            return Ok(None);
        };
        let bytes = usize::try_from(have).unwrap_or(usize::MAX).min(buffer.len());
        self.ring.pages.read(self.next, &mut buffer[..bytes]);
        self.next += bytes as u64;
        self.keep(&mut self.ring.lent(), self.next);
        Ok(Some(bytes))
    }
}
