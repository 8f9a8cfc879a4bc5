//! Streams whose regions are lent (S3), of files here and of servers: what the C library has of them besides the regions.

use std::ffi::CStr;
use std::io::{Read, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use nine::proto::Errno;
use ninefold_stream::ninep::Remote;
use ninefold_stream::{Error, Mode, Options, Raw, RawRegion, Stream, Wanted};
use nix::libc;
use rustix::io::retry_on_intr;

use crate::descriptor::Descriptor;
use crate::fence::{EBADF, EBUSY, EINVAL, EIO, ESTALE, errno_of_io, errno_of_stream, os, told};
use crate::flags::Flags;
use crate::process::{self, Process};
use crate::unix_io::descriptor;
use crate::{kernel, remote};

/// As C has them: SA_READ, SA_WRITE.
pub fn mode(mode: i32) -> Result<Mode, Errno> {
    match mode {
        0 => Ok(Mode::Read),
        1 => Ok(Mode::Write),
        _ => Err(EINVAL),
    }
}

/// A place as lseek(2) has it.
pub fn place(offset: i64, whence: i32) -> Result<SeekFrom, Errno> {
    match whence {
        libc::SEEK_SET => u64::try_from(offset).map(SeekFrom::Start).map_err(|_| EINVAL),
        libc::SEEK_CUR => Ok(SeekFrom::Current(offset)),
        libc::SEEK_END => Ok(SeekFrom::End(offset)),
        _ => Err(EINVAL),
    }
}

/// When what standard I/O writes goes to the file, as setvbuf(3) has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffering {
    /// When there is much of it.
    Full,
    /// With the end of a line.
    Line,
    /// At once.
    None,
}

impl Buffering {
    /// `_IOFBF`, `_IOLBF` and `_IONBF`.
    pub fn of(mode: i32) -> Result<Buffering, Errno> {
        [Buffering::Full, Buffering::Line, Buffering::None].into_iter().find(|how| *how as i32 == mode).ok_or(EINVAL)
    }
}

pub struct Asf {
    pub raw: Raw,
    /// The file of a server that it was opened on, closed behind it. None where a stream of the thesis has it.
    there: Option<There>,
    /// Bytes that the file had when a stream of the thesis began to read it, which promised to say if it was cut; else 0.
    begun: u64,
    /// Where a stream of the thesis told its end, which is for good: what comes to the file later is no part of it.
    ended: Option<u64>,
    /// A `Buffering`.
    buffering: AtomicI32,
    /// The descriptor's own offset is to be the stream's when it is flushed.
    hands_over: bool,
}

/// What of some bytes a stream has, and what went wrong behind them, which is met again by the next call.
#[derive(Clone, Copy)]
pub struct Taken {
    bytes: usize,
    wrong: Option<Errno>,
}

impl Taken {
    /// As calls give it that count items of so many bytes: what went wrong behind some is in errno.
    pub fn count(self, size: usize) -> Result<usize, Errno> {
        let items = self.bytes.checked_div(size).unwrap_or(0);
        match self.wrong {
            Some(e) if items == 0 => Err(e),
            Some(e) => {
                told(e);
                Ok(items)
            }
            None => Ok(items),
        }
    }

    /// As calls give it that do not.
    pub fn all(self) -> Result<(), Errno> {
        self.wrong.map_or(Ok(()), Err)
    }
}

struct There {
    process: &'static Process,
    descriptor: Arc<Descriptor>,
}

fn options(module: Option<&CStr>) -> Result<Options, Errno> {
    match module {
        Some(module) => Ok(Options::new().module(module.to_str().map_err(|_| EINVAL)?)),
        None => Ok(Options::new()),
    }
}

impl Asf {
    fn of(stream: Stream, begun: u64) -> Asf {
        let buffering = AtomicI32::new(Buffering::Full as i32);
        Asf { raw: Raw::new(stream), there: None, begun, ended: None, buffering, hands_over: false }
    }

    /// Opens a file by its name, with the module of that name if there is one.
    pub fn open(name: &CStr, flags: i32, mode: u32, module: Option<&CStr>) -> Result<Asf, Errno> {
        let options = options(module)?;
        // What O_DIRECT asks of addresses and lengths streams do not keep to, and O_PATH is for no data.
        if flags & (libc::O_DIRECT | libc::O_PATH) != 0 || flags & libc::O_ACCMODE == libc::O_ACCMODE {
            return Err(EINVAL);
        }
        let Some(address) = remote::address(name)? else {
            return Asf::take(&options, kernel::open_for_stream(name, flags, mode)?);
        };
        let flags = Flags::new(flags)?;
        let process = process::current()?;
        let descriptor = process.wait(remote::open(&process.servers, &address, flags, mode))?;
        Asf::there(&options, process, Arc::new(descriptor))
    }

    /// On an open file of a server. It begins where that is.
    fn there(options: &Options, process: &'static Process, descriptor: Arc<Descriptor>) -> Result<Asf, Errno> {
        let begun =
            process.wait(descriptor.place()).and_then(|at| Asf::by(options, descriptor.remote(process, at), false));
        match begun {
            Ok(asf) => Ok(Asf { there: Some(There { process, descriptor }), ..asf }),
            Err(e) => process.wait(descriptor.let_go(Err(e.into()))),
        }
    }

    /// Of what a stream of the thesis reads or writes at a server, which keeps the file. `ended`: it told its end, and this begins there.
    pub fn by(options: &Options, remote: Remote, ended: bool) -> Result<Asf, Errno> {
        let stream = options.take_remote(remote).map_err(errno_of_stream)?;
        let ended = ended.then(|| stream.position());
        Ok(Asf { ended, ..Asf::of(stream, 0) })
    }

    /// Whose connection it goes by.
    pub fn process(&self) -> Option<&'static Process> {
        self.there.as_ref().map(|there| there.process)
    }

    /// On a descriptor, which stays the caller's, with the module of that name if there is one.
    pub fn on(fd: i32, module: Option<&CStr>) -> Result<Asf, Errno> {
        let options = options(module)?;
        match descriptor(fd)? {
            None => Asf::take(&options, kernel::duplicate(fd)?.into()),
            Some((process, descriptor)) => Asf::there(&options, process, descriptor),
        }
    }

    /// The same, which moves the descriptor's offset when it is flushed.
    pub fn in_place_of(fd: i32) -> Result<Asf, Errno> {
        Ok(Asf { hands_over: true, ..Asf::on(fd, None)? })
    }

    pub fn take(options: &Options, fd: OwnedFd) -> Result<Asf, Errno> {
        options.take(fd).map(|stream| Asf::of(stream, 0)).map_err(errno_of_stream)
    }

    /// What a stream of the thesis becomes, at its place.
    pub fn one_way(fd: i32, place: Option<u64>, reads: bool, size: u64, ended: bool) -> Result<Asf, Errno> {
        let mode = if reads { Mode::Read } else { Mode::Write };
        let fd: OwnedFd = kernel::duplicate(fd)?.into();
        let appends = !reads && kernel::flags_of(&fd)? & libc::O_APPEND != 0;
        let stream = Options::new().take_only(fd, mode).map_err(errno_of_stream)?;
        if let Some(place) = place.filter(|_| !appends) {
            stream.seek(SeekFrom::Start(place)).map_err(errno_of_stream)?;
        }
        let ended = ended.then(|| stream.position());
        Ok(Asf { ended, ..Asf::of(stream, if reads { size } else { 0 }) })
    }

    pub fn stream(&self) -> &Stream {
        self.raw.stream()
    }

    /// Is the stream at the end that it told?
    fn is_over(&self) -> bool {
        self.ended.is_some_and(|end| self.stream().position() >= end)
    }

    pub fn alloc(&self, wanted: Wanted) -> Result<RawRegion, Errno> {
        if self.ended.is_some() && wanted.to.is_none() && wanted.mode != Some(Mode::Write) && self.is_over() {
            return Ok(RawRegion { at: std::ptr::null_mut(), bytes: 0 });
        }
        let region = self.raw.alloc(wanted).map_err(errno_of_stream)?;
        if region.bytes == 0 && wanted.bytes > 0 {
            self.end()?;
        }
        Ok(region)
    }

    pub fn until(&self, delimiter: u8, most: usize) -> Result<RawRegion, Errno> {
        if self.is_over() {
            return Ok(RawRegion { at: std::ptr::null_mut(), bytes: 0 });
        }
        let region = self.raw.until(delimiter, most).map_err(errno_of_stream)?;
        if region.bytes == 0 && most > 0 {
            self.end()?;
        }
        Ok(region)
    }

    /// There is no more. A stream of the thesis says so only of a file that was not cut.
    fn end(&self) -> Result<(), Errno> {
        let was_cut = self.begun > self.stream().position() && self.stream().length().is_ok_and(|now| now < self.begun);
        if was_cut { Err(ESTALE) } else { Ok(()) }
    }

    /// Figure 9.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        if self.is_over() {
            return Ok(0);
        }
        let read = self.stream().read(bytes).map_err(|e| errno_of_io(&e))?;
        if read == 0 && !bytes.is_empty() {
            self.end()?;
        }
        Ok(read)
    }

    /// What was read last is read next: of an item that is not whole, when it is not the end that cut it.
    pub fn put_back(&self, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        match self.stream().seek(SeekFrom::Current(-(bytes.len() as i64))) {
            Err(Error::NotSeekable) => self.stream().unread_all(bytes).map_err(errno_of_stream),
            moved => moved.map(|_| ()).map_err(errno_of_stream),
        }
    }

    /// Takes all of it, or as much as comes before an error, which the next call meets.
    pub fn write(&self, bytes: &[u8]) -> Taken {
        let all = Taken { bytes: bytes.len(), wrong: None };
        if self.raw.quick_write(bytes) {
            return all;
        }
        // No flush of another thread's finds the region that this goes by.
        let _locked = self.stream().lock();
        let mut taken = 0;
        while taken < bytes.len() {
            match self.stream().write(&bytes[taken..]) {
                Ok(written) => taken += written,
                Err(e) => return Taken { bytes: taken, wrong: Some(errno_of_io(&e)) },
            }
        }
        all
    }

    /// The same, and then a flush, with no call of another thread's in between.
    pub fn write_and_flush(&self, bytes: &[u8]) -> Taken {
        let _locked = self.stream().lock();
        match self.write(bytes) {
            Taken { bytes, wrong: None } => Taken { bytes, wrong: self.flush().err() },
            taken => taken,
        }
    }

    /// One write(2) to the end of a file that was opened to append, behind all that was freed: what is not written is not taken. While a region
    /// is out it goes by the stream, whose order is that of the regions, and what is behind one that is written waits for that.
    pub fn append(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let stream = self.stream();
        let _locked = stream.lock();
        if self.raw.is_lent() {
            return match self.write_and_flush(bytes) {
                Taken { bytes, wrong: Some(EBUSY) } => Ok(bytes),
                taken => taken.count(1),
            };
        }
        stream.set_mode(Mode::Write).map_err(errno_of_stream)?;
        let written = stream.with_descriptor(true, |fd| retry_on_intr(|| rustix::io::write(fd, bytes)));
        let written = written.map_err(errno_of_stream)?.map_err(|e| os(e.raw_os_error()))?;
        stream.seek(SeekFrom::Current(written as i64)).map_err(errno_of_stream)?;
        Ok(written)
    }

    pub fn flush(&self) -> Result<(), Errno> {
        let flushed = if self.hands_over { self.stream().hand_over() } else { self.stream().flush() };
        flushed.map_err(errno_of_stream)
    }

    #[inline(always)]
    pub fn buffering(&self) -> Buffering {
        // Relaxed: who sets it while others write has no order anyway.
        Buffering::of(self.buffering.load(Ordering::Relaxed)).unwrap_or(Buffering::Full)
    }

    pub fn set_buffering(&self, how: Buffering) {
        self.buffering.store(how as i32, Ordering::Relaxed);
    }

    /// The next line, or as much of it as fits; none at the end. A pipe is waited for until the line has ended. In one step, where
    /// threads share the stream: they get whole lines. What ends before is what the stream ended, or what an error did that the next call meets;
    /// nobody asks again, for who sits at a terminal would have to type the end again.
    pub fn line(&self, room: &mut [u8]) -> Result<usize, Errno> {
        if self.is_over() || room.is_empty() {
            return Ok(0);
        }
        let region = self.stream().alloc_until(b'\n', room.len()).map_err(errno_of_stream)?;
        let bytes = region.len();
        room[..bytes].copy_from_slice(&region);
        region.free().map_err(errno_of_stream)?;
        if bytes == 0 {
            self.end()?;
        }
        Ok(bytes)
    }

    /// In a child of fork(2), which has not the connection: nothing of it is touched any more.
    pub fn leave(self) -> (Errno, Option<Asf>) {
        std::mem::forget(self);
        (EBADF, None)
    }

    /// Ends it. While regions are out it does not, and is given back.
    pub fn close(self) -> Result<(), (Errno, Option<Asf>)> {
        if self.hands_over {
            let _ = self.stream().hand_over(); // what is wrong with it the end meets again
        }
        let Asf { raw, there, begun, ended, buffering, hands_over } = self;
        let closed = match raw.close() {
            Err((e, Some(raw))) => {
                let asf = Asf { raw, there, begun, ended, buffering, hands_over };
                return Err((errno_of_stream(e), Some(asf)));
            }
            // To C it says that the stream goes on, which one that is gone does not.
            Err((e, None)) => Err(errno_of_stream(e)).map_err(|e| if e == EBUSY { EIO } else { e }),
            Ok(()) => Ok(()),
        };
        let let_go = there.map_or(Ok(()), |There { process, descriptor }| process.wait(descriptor.close()));
        closed.and(let_go).map_err(|e| (e, None))
    }
}
