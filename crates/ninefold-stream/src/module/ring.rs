//! `ring`: two processes that share memory, and so copy nothing; and a pipe, where there is no other end that knows of rings.
//!
//! It is a detour of a pair of sockets: bytes go by the sockets until the writer has seen that the reader knows rings (`meet`), then by a
//! ring until that is closed, then by the sockets again, whose end is the stream's. So a program that knows no rings may be at either
//! end, also behind one that does, and one that has closed its ring may be followed by another.
//!
//! `words` is what both ends write and how they wake each other, `pages` the memory, in an `area` that children do not have, `line` tells
//! that the other end died; `reading` and `writing` are the two ends. Each direction has a ring of its own.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::thread::Timespec;

use super::bell::Bell;
use super::pipe::{Pipe, gather};
use super::{Chunk, Fill, Opened, StreamModule};
use crate::error::{Error, Result};
use crate::memory::{Frozen, Memory};
use meet::Received;
use pages::Pages;
use reading::Reader;
use writing::{Stuck, Writer};

mod area;
mod line;
mod meet;
pub mod pages;
mod reading;
pub mod words;
mod writing;

/// Bytes that go by the sockets before it is looked again whether the reader knows rings by now.
const PLAIN: usize = 64 << 10;

/// How long room in the sockets is waited for at a time: poll(2) says nothing where the other end reads no more (shutdown(2)), send(2) does.
const ROOM_FOR: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Does what never waits, and where there is nothing to do yet and the descriptor waits, `wait`s and does it again. The waits are poll(2)'s,
/// which a signal ends; recvmsg(2) and send(2) go on with SA_RESTART.
fn patiently<T>(
    fd: BorrowedFd<'_>,
    mut attempt: impl FnMut() -> std::result::Result<T, Errno>,
    wait: impl Fn() -> std::result::Result<(), Errno>,
) -> std::result::Result<T, Errno> {
    loop {
        match attempt() {
            Err(Errno::AGAIN) if !rustix::fs::fcntl_getfl(fd)?.contains(OFlags::NONBLOCK) => wait()?,
            done => return done,
        }
    }
}

fn wait_for_room(fd: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&ROOM_FOR)).map(|_| ())
}

fn wait_for_data(fd: BorrowedFd<'_>, bell: Option<&Bell>) -> std::result::Result<(), Errno> {
    match bell {
        Some(bell) => bell.wait(fd),
        None => poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None).map(|_| ()),
    }
}

pub struct Ring {
    /// What the sockets are without a ring; a pipe that is no such socket has none.
    pipe: Pipe,
    meets: bool,
    /// Bytes of a ring that is made here.
    bytes: usize,
    reader: Option<Reader>,
    writer: Option<Writer>,
    /// An offer that cannot be taken came by the sockets: what follows it went elsewhere.
    broken: Option<Error>,
    /// There was not what a ring needs: it is not tried again.
    lacking: bool,
}

impl Ring {
    pub fn new(opened: Opened) -> Self {
        let bytes = opened.ring.clamp(pages::LEAST, pages::MOST).next_power_of_two();
        let pipe = Pipe::new(opened);
        let meets = meet::is_socket(pipe.fd.as_fd());
        if meets && pipe.read {
            meet::announce(pipe.fd.as_fd());
        }
        Ring { pipe, meets, bytes, reader: None, writer: None, broken: None, lacking: false }
    }

    /// Makes a ring to write to where there is none, and the other end knows rings.
    fn find(&mut self) -> Result<()> {
        if self.writer.is_none() && self.meets && !self.lacking && meet::is_announced(self.pipe.fd.as_fd()) {
            self.writer = self.make()?;
        }
        Ok(())
    }

    fn make(&mut self) -> Result<Option<Writer>> {
        let needs = || -> Result<_> {
            let (memory, pages) = Pages::new(self.bytes)?;
            let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            Ok((memory, pages, ours, theirs))
        };
        let Ok((memory, pages, ours, theirs)) = needs() else {
            self.lacking = true;
            return Ok(None);
        };
        let fd = self.pipe.fd.as_fd();
        match patiently(fd, || meet::offer(fd, &memory, &theirs), || wait_for_room(fd)) {
            Ok(()) => Ok(Some(Writer::new(pages, ours))),
            Err(e @ (Errno::AGAIN | Errno::INTR | Errno::PIPE | Errno::CONNRESET)) => Err(e.into()),
            Err(_) => {
                self.lacking = true;
                Ok(None)
            }
        }
    }

    /// The reader keeps what it has, so the ring is full for ever: what follows goes by another. It is offered first: at no time is there
    /// an end that would look like the stream's.
    fn leave(&mut self) -> Result<()> {
        self.writer = self.make()?;
        Ok(())
    }

    /// The next bytes, wherever they come from; none at the end.
    fn take(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            if let Some(e) = self.broken {
                return Err(e);
            }
            if let Some(reader) = &mut self.reader {
                match reader.take(buffer, self.pipe.fd.as_fd(), self.pipe.bell.as_ref())? {
                    Some(n) => return Ok(n),
                    None => self.reader = None,
                }
            }
            let (fd, bell) = (self.pipe.fd.as_fd(), self.pipe.bell.as_ref());
            let before = match patiently(fd, || meet::receive(fd, buffer), || wait_for_data(fd, bell))? {
                Received::Bytes(n) => return Ok(n),
                Received::Offer(before, memory, line) => {
                    match Pages::of(memory.as_fd()) {
                        Ok(None) => return Ok(before + 1), // something else that somebody passes, with a byte of the stream
                        Ok(Some(pages)) => self.reader = Some(Reader::new(pages, line)),
                        Err(e) => self.broken = Some(e),
                    }
                    before
                }
                Received::Lost(before) => {
                    self.broken = Some(Errno::MFILE.into());
                    before
                }
            };
            if before > 0 {
                return Ok(before);
            }
        }
    }

    /// Who waits for what was written has it: this end is about to wait itself.
    fn show(&self) {
        if let Some(writer) = &self.writer {
            writer.show();
        }
    }
}

impl StreamModule for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn is_seekable(&self) -> bool {
        false
    }

    fn listen(&mut self, bell: Option<&Bell>) {
        self.pipe.listen(bell);
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        if !self.meets {
            return self.pipe.fill(fill);
        }
        if !self.pipe.read {
            return Err(Error::NotReadable);
        }
        self.show();
        if let Some(reader) = &mut self.reader
            && let Some(memory) =
                reader.lend(&fill, self.pipe.fd.as_fd(), self.pipe.bell.as_ref(), &mut self.pipe.met.short)?
        {
            let length = memory.capacity();
            return Ok(Chunk { memory: Frozen::new(memory), start: 0, length, offset: fill.at });
        }
        let (bytes, mut met) = (self.pipe.bytes, self.pipe.met);
        let chunk = gather(fill, bytes, &mut met, |buffer| self.take(buffer));
        self.pipe.met = met;
        chunk
    }

    fn fell_short(&self) -> Option<Error> {
        self.pipe.fell_short()
    }

    fn room(&mut self, unwritten: usize, bytes: usize) -> Result<Option<Memory>> {
        if !self.pipe.write {
            return Ok(None);
        }
        loop {
            // What is not written yet is in no ring, or in the one that was left.
            if self.writer.is_none() && unwritten > 0 {
                return Ok(None);
            }
            self.find()?;
            let Some(writer) = &mut self.writer else {
                return Ok(None);
            };
            match writer.room(unwritten, bytes, self.pipe.fd.as_fd())? {
                Ok(room) => return Ok(room),
                Err(Stuck) => self.leave()?,
            }
        }
    }

    fn write(&mut self, at: u64, data: &[u8], written: &mut usize) -> Result<()> {
        if !self.meets {
            return self.pipe.write(at, data, written);
        }
        if !self.pipe.write {
            return Err(Error::NotWritable);
        }
        let begin = *written;
        while *written - begin < data.len() {
            let rest = &data[*written - begin..];
            self.find()?;
            let Some(writer) = &mut self.writer else {
                let (fd, flags) = (self.pipe.fd.as_fd(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                *written += patiently(fd, || send(fd, &rest[..rest.len().min(PLAIN)], flags), || wait_for_room(fd))?;
                continue;
            };
            if let Err(Stuck) = writer.write(rest, written, self.pipe.fd.as_fd())? {
                self.leave()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.writer.as_ref().map_or(Ok(()), Writer::flush)
    }

    fn cut(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.cut();
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Ring { pipe, reader, writer, .. } = *self;
        // The ring before the sockets: who sees their end has the ring's mark.
        drop((writer, reader));
        Box::new(pipe).close()
    }
}
