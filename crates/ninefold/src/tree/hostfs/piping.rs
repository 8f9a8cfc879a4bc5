//! Plain files and pipes: a read fills one, from which the connection sends it, and a write empties one that the connection has filled. No byte passes
//! through this process.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ninefold_proto::{Errno, Error};
use rustix::io::{Errno as Os, ReadWriteFlags, preadv2};

use super::creds::{Identity, Loan};
use super::io::{BufferPool, write_at};
use super::open::{Flow, OpenFile};
use super::os;
use crate::server::{Answer, Cx, Data};
use crate::transport::Piped;

/// Bytes from which on a read is worth a pipe.
const LEAST: usize = 16 * 1024;

/// The page cache is asked for a byte in each so many, where none before tells of them. It is filled in such pieces (the read-ahead of a disk), and emptied in
/// larger ones, mostly.
const STEP: u64 = 128 * 1024;

/// A fill that takes longer has waited for a disk.
const LONG: Duration = Duration::from_millis(1);

/// What a byte of a file is, as far as a look without waiting tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    /// In the page cache.
    Here,
    /// Behind the end of the file.
    Behind,
    /// Not in the page cache.
    Missing,
}

impl OpenFile {
    /// The read by way of a pipe; `None` where it must be made in another way, nothing being done.
    pub(super) fn read_piped(
        self: &Arc<OpenFile>,
        cx: &Cx,
        pool: &Arc<BufferPool>,
        offset: u64,
        count: usize,
    ) -> Option<Answer<Data>> {
        let Flow::Plain { direct, splices, .. } = &self.flow else { return None };
        if count < LEAST || direct.load(Ordering::Relaxed) || !splices.load(Ordering::Relaxed) {
            return None;
        }
        let mut piped = cx.pipe()?;
        let (file, pool) = (self.clone(), pool.clone());
        let is_cached = count <= Piped::CAPACITY && self.is_cached(offset, count);
        let is_wary = is_cached && piped.is_wary();
        let read = move || {
            let began = Instant::now();
            let filled = piped.fill(&file.fd, offset, count);
            file.note(filled);
            // On the blocking pool it was expected to.
            if is_cached && began.elapsed() > LONG {
                piped.make_wary();
            }
            match filled {
                Ok(length) => Ok(file.reply(piped, length, &pool, offset, count)),
                Err(_) => file.read_here(&pool, offset, count).map(Data::from).map_err(os),
            }
        };
        Some(match is_cached {
            true if is_wary => Answer::in_place(read),
            true => Answer::Now(read()),
            false => Answer::blocking(read),
        })
    }

    /// Whether a write empties a pipe into the page cache: where a write that would have to wait cannot say so instead, as splice(2) cannot either. The first
    /// write to a file system finds that out.
    pub(super) fn takes_pipes(&self) -> bool {
        match &self.flow {
            Flow::Plain { buffered: true, direct, takes, nowait_write, .. } => {
                takes.load(Ordering::Relaxed)
                    && !direct.load(Ordering::Relaxed)
                    && !nowait_write.load(Ordering::Relaxed)
            }
            _ => false,
        }
    }

    /// A write whose data may be in a pipe.
    pub(super) fn write_data(self: &Arc<OpenFile>, cx: &Cx, who: &Identity, offset: u64, data: Data) -> Answer<u32> {
        let piped = match if self.takes_pipes() { data.into_pipe() } else { Err(data) } {
            Ok(piped) => piped,
            Err(data) => {
                return match data.into_bytes() {
                    Ok(bytes) => self.write(cx, who, offset, bytes),
                    Err(error) => Answer::err(error),
                };
            }
        };
        let (file, who) = (self.clone(), who.clone());
        Answer::briefly(move || {
            // As the user: a write by anybody but root takes setuid and setgid away.
            let _loan = Loan;
            who.assume()?;
            file.store(piped, offset)
        })
    }

    /// Empties the pipe into the file; answers how much was written, or the error that came before any.
    fn store(&self, mut piped: Piped, offset: u64) -> Result<u32, Error> {
        let mut done = 0;
        while piped.len() > 0 {
            match piped.store(&self.fd, offset + done) {
                Ok(0) => return if done > 0 { Ok(done as u32) } else { Err(Errno::EIO.into()) },
                Ok(n) => done += n as u64,
                Err(Os::INTR) => {}
                // O_APPEND, or a file system that has no such way.
                Err(Os::INVAL | Os::OPNOTSUPP | Os::NOSYS) if done == 0 => return self.store_by_memory(piped, offset),
                Err(_) if done > 0 => break,
                Err(error) => return Err(os(error)),
            }
        }
        Ok(done as u32)
    }

    fn store_by_memory(&self, piped: Piped, offset: u64) -> Result<u32, Error> {
        if let Flow::Plain { takes, .. } = &self.flow {
            takes.store(false, Ordering::Relaxed);
        }
        let length = piped.len();
        let bytes = Data::piped(piped, length, Bytes::new()).into_bytes()?;
        match write_at(&self.fd, &bytes, offset) {
            (0, Some(error)) => Err(os(error)),
            (n, _) => Ok(n as u32),
        }
    }

    /// Remembers what the file system cannot do.
    fn note(&self, filled: Result<usize, Os>) {
        if let (Flow::Plain { splices, .. }, Err(Os::INVAL | Os::OPNOTSUPP | Os::NOSYS)) = (&self.flow, filled) {
            splices.store(false, Ordering::Relaxed);
        }
    }

    /// The `length` bytes in the pipe and those behind them, of `count`.
    fn reply(&self, piped: Piped, length: usize, pool: &Arc<BufferPool>, offset: u64, count: usize) -> Data {
        if length == 0 {
            return Bytes::new().into();
        }
        // The file ended, or the pipe was full, which holds a page less where the read does not begin with one.
        let rest = (length < count).then(|| self.read_here(pool, offset + length as u64, count - length));
        // What came before an error is worth more than the error.
        Data::piped(piped, length, rest.and_then(Result::ok).unwrap_or_default())
    }

    /// Whether a read need not wait, as far as a few bytes tell: splice(2) itself has no flag that forbids waiting. Which
    /// bytes but the last is left to chance, so that nobody can have read just those before. Who is told wrong waits once: then the
    /// connection is wary.
    fn is_cached(&self, offset: u64, count: usize) -> bool {
        let Flow::Plain { read_to, .. } = &self.flow else { return false };
        let end = offset + count as u64;
        let goes_on = read_to.load(Ordering::Relaxed) == offset;
        // One that goes on where another ended is filled from where that was: its last byte, and one of those between, tell of the others, but not to
        // who reckons with it.
        let is_trusted = goes_on && fastrand::u8(..4) > 0;
        let first = if goes_on { None } else { Some(offset) };
        let any = (offset..end).step_by(STEP as usize).map(|at| at + fastrand::u64(..STEP.min(end - at)));
        let is_here = |at| self.page(at) != Page::Missing;
        let is_cached = match self.page(end - 1) {
            Page::Missing => false,
            Page::Here if is_trusted => count as u64 <= STEP || is_here(fastrand::u64(offset..end)),
            Page::Here | Page::Behind => first.into_iter().chain(any).all(is_here),
        };
        read_to.store(if is_cached { end } else { u64::MAX }, Ordering::Relaxed);
        is_cached
    }

    /// Where the byte at `at` is.
    fn page(&self, at: u64) -> Page {
        let unasked = || if self.is_in_memory() { Page::Here } else { Page::Missing };
        if !self.reads_nowait() {
            return unasked();
        }
        match preadv2(&self.fd, &mut [IoSliceMut::new(&mut [0])], at, ReadWriteFlags::NOWAIT) {
            Ok(0) => Page::Behind,
            Ok(_) => Page::Here,
            Err(Os::OPNOTSUPP | Os::NOSYS | Os::INVAL) => {
                self.reads_never_nowait();
                unasked()
            }
            Err(_) => Page::Missing,
        }
    }
}
