//! Streams (S1, chapters 4 and 5): the bytes of a file in order, whose place is their own.
//!
//! One type for both: [`Here`] is a file of this machine, read and written by the kernel; [`There`] one of a server. An error is kept:
//! every later call gives it, and the end too; a signal or a descriptor that would block is no error of the stream.

use std::ffi::c_char;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use bytes::Bytes;
use nine::client::{Error, Stream as Remote};
use nine::proto::Errno;
use ninefold_stream::{Mode, Options};
use nix::libc;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{pread, pwrite, read, write};

use crate::asf::Asf;
use crate::descriptor::Descriptor;
use crate::fence::{EBADF, EFBIG, EINVAL, EIO, EISDIR, EOPNOTSUPP, EPIPE, ESPIPE, ESTALE, Room, os};
use crate::kernel;
use crate::process::Process;

/// Bytes that are copied at a time: a message's worth, so that the first are on their way while the rest are copied.
const PART: usize = 1 << 20;

/// What of a file is streamed, and which way.
#[derive(Clone, Copy)]
pub struct Range {
    pub offset: u64,
    /// None: to the end.
    pub length: Option<u64>,
    pub reads: bool,
}

impl Range {
    /// As C gives it: a length of 0 is none.
    pub fn new(offset: i64, length: i64, isread: c_char) -> Result<Range, Errno> {
        let reads = match isread {
            0 => false,
            1 => true,
            _ => return Err(EINVAL),
        };
        let offset = u64::try_from(offset).map_err(|_| EINVAL)?;
        let length = u64::try_from(length).map_err(|_| EINVAL)?;
        offset.checked_add(length).filter(|&end| end <= i64::MAX as u64).ok_or(EINVAL)?;
        Ok(Range { offset, length: Some(length).filter(|&length| length > 0), reads })
    }
}

pub struct Stream {
    way: Way,
    reads: bool,
    failed: Option<Errno>,
}

enum Way {
    Here(Here),
    There(There),
}

impl Stream {
    pub fn here(fd: i32, range: Range) -> Result<Stream, Errno> {
        Ok(Stream { way: Way::Here(Here::new(fd, range)?), reads: range.reads, failed: None })
    }

    pub fn there(process: &'static Process, descriptor: Arc<Descriptor>, range: Range) -> Result<Stream, Errno> {
        // The file was perhaps closed meanwhile, while this held it open: then who finds that it cannot be streamed ends it.
        let begun = process.wait(async {
            match There::begin(&descriptor, range).await {
                Ok((remote, place)) => Ok((remote, place, descriptor)),
                Err(e) => descriptor.let_go(Err(e)).await,
            }
        });
        let (remote, place, descriptor) = begun?;
        let remote = Some(Box::new(remote));
        let left = range.length;
        let there = There { process, descriptor, remote, place, left, rest: Bytes::new() };
        Ok(Stream { way: Way::There(there), reads: range.reads, failed: None })
    }

    /// Whether the process has it: a child of fork(2) has none of its parent's connections.
    fn check(&self, reads: bool) -> Result<(), Errno> {
        let lost = matches!(&self.way, Way::There(there) if !there.process.is_this());
        if lost || self.reads != reads {
            return Err(EBADF);
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// What failed once has failed for good, but for what the caller may try again.
    fn keep<T>(&mut self, result: Result<T, Errno>) -> Result<T, Errno> {
        const TRY_AGAIN: [Errno; 2] = [os(libc::EINTR), os(libc::EAGAIN)];
        if let Err(e) = result
            && !(TRY_AGAIN.contains(&e) && matches!(self.way, Way::Here(_)))
        {
            self.failed = Some(e);
        }
        result
    }

    pub fn read(&mut self, room: &mut Room<'_>) -> Result<(), Errno> {
        self.check(true)?;
        if room.left() == 0 {
            return Ok(());
        }
        let result = match &mut self.way {
            Way::Here(here) => here.read(room),
            Way::There(there) => there.read(room),
        };
        self.keep(result)
    }

    /// Takes all of it, or fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.check(false)?;
        let result = match &mut self.way {
            Way::Here(here) => here.write(bytes),
            Way::There(there) => there.write(bytes),
        };
        self.keep(result)
    }

    /// The same bytes from the same place on, whose regions are lent. Where the length was told there is none.
    pub fn as_asf(&mut self) -> Result<Asf, Errno> {
        self.failed.map_or(Ok(()), Err)?;
        match &mut self.way {
            Way::Here(Here { left: None, file, place, size, ended }) => {
                Asf::one_way(file.as_raw_fd(), *place, self.reads, *size, *ended)
            }
            Way::There(there) if there.left.is_none() => {
                let asf = there.as_asf(self.reads);
                // What was on the way is lost with it, and what is without that is not whole.
                self.failed = asf.as_ref().err().copied();
                asf
            }
            Way::Here(_) | Way::There(_) => Err(EOPNOTSUPP),
        }
    }

    /// Ends it.
    pub fn close(self) -> Result<(), Errno> {
        match self.way {
            Way::Here(here) => {
                let ended = here.close(self.reads);
                self.failed.map_or(ended, Err)
            }
            Way::There(there) => there.close(self.reads, self.failed),
        }
    }
}

/// A file of this machine, by a descriptor of the stream's own: the same open file, whatever happens to the caller's.
struct Here {
    file: File,
    /// None: it has no offsets.
    place: Option<u64>,
    left: Option<u64>,
    /// Bytes that a plain file had at the beginning; 0 of any other.
    size: u64,
    /// The end was told, which is for good: what comes to the file later is no part of the stream.
    ended: bool,
}

impl Here {
    fn new(fd: i32, range: Range) -> Result<Here, Errno> {
        let access = kernel::flags(fd)? & libc::O_ACCMODE;
        let other = if range.reads { libc::O_WRONLY } else { libc::O_RDONLY };
        if access == other {
            return Err(EBADF);
        }
        let stat = kernel::stat(fd)?;
        let size = match stat.st_mode & libc::S_IFMT {
            libc::S_IFDIR => return Err(EISDIR),
            libc::S_IFREG => stat.st_size.cast_unsigned(),
            _ => 0,
        };
        let place = match kernel::seek(fd, 0, libc::SEEK_CUR) {
            Ok(_) => Some(range.offset),
            Err(ESPIPE) if range.offset == 0 => None,
            Err(e) => return Err(e),
        };
        Ok(Here { file: kernel::duplicate(fd)?, place, left: range.length, size, ended: false })
    }

    fn moved(&mut self, count: usize) {
        let count = count as u64;
        self.place = self.place.map(|place| place + count);
        self.left = self.left.map(|left| left - count);
    }

    fn read(&mut self, room: &mut Room<'_>) -> Result<(), Errno> {
        let most = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        if most == 0 || self.ended {
            return Ok(());
        }
        let fd = self.file.as_fd();
        let count = room.fill(most, |bytes| match self.place {
            Some(place) => pread(fd, bytes, place).map(|(read, _)| read.len()),
            None => read(fd, bytes).map(|(read, _)| read.len()),
        });
        match count.map_err(errno)? {
            0 => self.end(),
            count => {
                self.moved(count);
                Ok(())
            }
        }
    }

    /// A file that was cut to less than what was there at the beginning was not read whole. What its size promises now is no matter: some
    /// of the kernel's own files never have as many bytes as they say.
    fn end(&mut self) -> Result<(), Errno> {
        self.ended = true;
        let is_before = self.place.is_some_and(|place| place < self.size);
        if is_before && self.file.metadata().is_ok_and(|now| now.len() < self.size) { Err(ESTALE) } else { Ok(()) }
    }

    /// What the caller may try again is told before the first byte alone: who is told so behind some of them could not go on. There a
    /// signal is passed over, and room waited for.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        if self.left.is_some_and(|left| bytes.len() as u64 > left) {
            return Err(EFBIG);
        }
        let mut taken = 0;
        while taken < bytes.len() {
            let fd = self.file.as_fd();
            let result = match self.place {
                Some(place) => pwrite(fd, &bytes[taken..], place),
                None => write(fd, &bytes[taken..]),
            };
            match result {
                Err(rustix::io::Errno::INTR) if taken > 0 => {}
                Err(rustix::io::Errno::AGAIN) if taken > 0 => wait_for_room(fd)?,
                Err(e) => return Err(errno(e)),
                // Else it would be asked for ever.
                Ok(0) => return Err(EIO),
                Ok(count) => {
                    self.moved(count);
                    taken += count;
                }
            }
        }
        Ok(())
    }

    /// Some file systems tell at close(2) only that they could not write, and whoever closes next is not told again.
    fn close(self, reads: bool) -> Result<(), Errno> {
        let closed = nix::unistd::close(self.file);
        match self.left {
            _ if reads => Ok(()),
            // As a server has it: a length that was told is a length that is written.
            Some(left) if left > 0 => Err(EPIPE),
            _ => closed.map_err(|e| os(e as i32)),
        }
    }
}

/// As long as a write to a descriptor that blocks would.
fn wait_for_room(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(errno(e)),
    }
}

fn errno(e: rustix::io::Errno) -> Errno {
    os(e.raw_os_error())
}

/// A file of a server.
struct There {
    process: &'static Process,
    /// Held to the stream's end: some servers tell only when the file is closed that they could not write.
    descriptor: Arc<Descriptor>,
    /// None behind the end, which was found good, and where another reads it that lends regions.
    remote: Option<Box<Remote>>,
    /// Where what comes next lies in the file, if that is known: what is appended lies at the end.
    place: u64,
    /// Bytes that may still be written; none of a stream that reads is counted.
    left: Option<u64>,
    /// Of what came last, what was not taken.
    rest: Bytes,
}

impl There {
    /// And where it begins.
    async fn begin(descriptor: &Descriptor, range: Range) -> Result<(Remote, u64), Error> {
        descriptor.check(!range.reads)?;
        let file = descriptor.file();
        if range.reads {
            return Ok((file.stream_read(range.offset, range.length).await?, range.offset));
        }
        let start = descriptor.start(range.offset).await?;
        Ok((file.stream_write(start, range.length).await?, start))
    }

    fn read(&mut self, room: &mut Room<'_>) -> Result<(), Errno> {
        if self.rest.is_empty()
            && let Some(remote) = &mut self.remote
        {
            match self.process.wait(remote.next())? {
                Some(bytes) => self.rest = bytes,
                None => self.end()?,
            }
        }
        let taken = room.put(&self.rest);
        drop(self.rest.split_to(taken));
        self.place += taken as u64;
        Ok(())
    }

    /// Goes on with what is on the way.
    fn as_asf(&mut self, reads: bool) -> Result<Asf, Errno> {
        let mode = if reads { Mode::Read } else { Mode::Write };
        let remote = self.descriptor.remote(self.process, self.place).only(mode);
        let (remote, ended) = match self.remote.take() {
            Some(stream) => (remote.going_on(*stream, std::mem::take(&mut self.rest)), false),
            None => (remote, reads),
        };
        Asf::by(&Options::new(), remote, ended)
    }

    /// The end is none before both sides agree about it.
    fn end(&mut self) -> Result<(), Errno> {
        match self.remote.take() {
            Some(remote) => self.process.wait(remote.finish()).map(drop),
            None => Ok(()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let Some(remote) = &mut self.remote else { return Err(EBADF) };
        let count = bytes.len() as u64;
        // Of what is refused nothing goes, not the first parts either.
        if self.left.is_some_and(|left| count > left) {
            return Err(EFBIG);
        }
        let written = async {
            for part in bytes.chunks(PART) {
                remote.write(part).await?;
            }
            Ok::<_, Error>(())
        };
        self.process.wait(written)?;
        self.place += count;
        self.left = self.left.map(|left| left - count);
        Ok(())
    }

    fn close(self, reads: bool, failed: Option<Errno>) -> Result<(), Errno> {
        if !self.process.is_this() {
            // Its connection is the parent's, whose locks may never open here.
            std::mem::forget((self.remote, self.descriptor));
            return Err(EBADF);
        }
        let There { process, descriptor, remote, .. } = self;
        process.wait(async {
            let ended = match remote {
                Some(remote) if !reads => remote.finish().await.map(drop),
                // One that reads, ended before its end, has nothing to tell; at its end it told.
                remote => {
                    drop(remote);
                    Ok(())
                }
            };
            let ended = failed.map_or(ended, |e| Err(e.into()));
            // The file was perhaps closed meanwhile, while this held it open.
            descriptor.let_go(ended).await
        })
    }
}
