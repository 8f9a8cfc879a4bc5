//! Reading and writing open files.
//!
//! Plain files: what the page cache holds is read at once (RWF_NOWAIT); the rest, and what a file system
//! cannot do so, on the blocking pool. Streams wait without a thread. A write either takes all
//! bytes, or tells how many it took, or fails having taken none.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use crossbeam_queue::SegQueue;
use ninefold_proto::{Errno, Error};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstatfs};
use rustix::io::{Errno as Os, ReadWriteFlags, pread, preadv2, pwrite, pwritev2};
use tokio::io::Interest;

use super::creds::{Identity, Loan};
use super::file::HostFile;
use super::open::{Flow, OpenFile};
use super::{Pace, os};
use crate::server::{Answer, Cx, Data};

/// The smallest buffer, and so the power of two that class 0 of the pool stands for.
const MIN_BUFFER: usize = 4096;

/// Classes of the pool: 4 KiB to 8 MiB, the greatest msize.
const CLASSES: usize = 12;

/// Bytes of idle buffers that the pool keeps: a few full windows of reads.
const MAX_IDLE: usize = 32 << 20;

/// File systems in memory, by statfs(2)'s f_type (linux/magic.h: TMPFS_MAGIC, RAMFS_MAGIC): they know no RWF_NOWAIT. What of tmpfs was
/// swapped out is waited for, as this process's own memory is.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// File systems that let the kernel lease their files, and whose files nobody changes past it: ext4, XFS, btrfs, F2FS, tmpfs (linux/magic.h). In those of other machines and programs, and under
/// overlayfs, somebody may.
const LEASED: [i64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];

/// Replies up to here are copied out, so that their buffer is free at once.
const COPY: usize = 4096;

/// Alignment that O_DIRECT asks of memory, offsets and lengths on every common disk.
const ALIGN: usize = 4096;

/// Buffers for reads, used again without being cleared. All connections share it, and none waits for another.
#[derive(Default, Debug)]
pub(super) struct BufferPool {
    classes: [SegQueue<Vec<u8>>; CLASSES],
    /// Bytes of all that are idle, and of one that is about to be.
    idle: AtomicUsize,
}

/// A buffer that goes back to its pool.
struct Buffer {
    bytes: Vec<u8>,
    used: usize,
    pool: Arc<BufferPool>,
}

impl BufferPool {
    /// A buffer of at least `len` bytes, whatever is in them.
    fn take(self: &Arc<BufferPool>, len: usize) -> Buffer {
        let size = len.max(MIN_BUFFER).next_power_of_two();
        let idle = class(size).and_then(|class| self.classes[class].pop());
        if idle.is_some() {
            self.idle.fetch_sub(size, Ordering::Relaxed);
        }
        Buffer { bytes: idle.unwrap_or_else(|| vec![0; size]), used: 0, pool: self.clone() }
    }

    /// Keeps it for another read, unless enough are kept.
    fn give_back(&self, bytes: Vec<u8>) {
        let size = bytes.len();
        let Some(class) = class(size) else { return };
        if self.idle.fetch_add(size, Ordering::Relaxed) + size <= MAX_IDLE {
            self.classes[class].push(bytes);
        } else {
            self.idle.fetch_sub(size, Ordering::Relaxed);
        }
    }
}

/// The class of buffers of `size`, a power of two.
fn class(size: usize) -> Option<usize> {
    let class = (size / MIN_BUFFER).trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

impl Buffer {
    /// The first `used` bytes as a reply.
    fn into_reply(mut self, used: usize) -> Bytes {
        // Nor may a reply that nobody fetches hold much more memory than the bytes it counts as.
        if used <= COPY || used < self.bytes.len() / 4 {
            return Bytes::copy_from_slice(&self.bytes[..used]);
        }
        self.used = used;
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
    }
}

impl OpenFile {
    pub(super) fn read(self: &Arc<OpenFile>, cx: &Cx, pool: &Arc<BufferPool>, offset: u64, count: u32) -> Answer<Data> {
        let count = count as usize;
        if count == 0 {
            return Answer::ok(Bytes::new().into());
        }
        if let Some(piped) = self.read_piped(cx, pool, offset, count) {
            return piped;
        }
        let buffer = pool.take(count);
        let read = match &self.flow {
            Flow::Plain { direct, .. } if direct.load(Ordering::Relaxed) => {
                let file = self.clone();
                Answer::blocking(move || file.read_direct(buffer, offset, count))
            }
            Flow::Plain { .. } => self.read_plain(buffer, offset, count),
            Flow::Device => {
                let file = self.clone();
                Answer::blocking(move || file.read_device(buffer, offset, count))
            }
            Flow::Stream(_) => self.read_stream(cx, buffer, count),
        };
        read.map(|bytes| Ok(bytes?.into()))
    }

    /// A read that may wait, into memory.
    pub(super) fn read_here(&self, pool: &Arc<BufferPool>, offset: u64, count: usize) -> Result<Bytes, Os> {
        let mut buffer = pool.take(count);
        read_at(&self.fd, &mut buffer.bytes[..count], offset).map(|n| buffer.into_reply(n))
    }

    /// Whether it may be asked for what needs no wait, if its file system can be.
    pub(super) fn reads_nowait(&self) -> bool {
        matches!(&self.flow, Flow::Plain { nowait_read, .. } if nowait_read.load(Ordering::Relaxed))
    }

    /// Its file system cannot be asked for what needs no wait.
    pub(super) fn reads_never_nowait(&self) {
        if let Flow::Plain { nowait_read, .. } = &self.flow {
            nowait_read.store(false, Ordering::Relaxed);
        }
    }

    /// Whether it is of a file system in memory, where no read waits.
    pub(super) fn is_in_memory(&self) -> bool {
        let Flow::Plain { in_memory, .. } = &self.flow else { return false };
        let look = || fstatfs(&self.fd).is_ok_and(|fs| IN_MEMORY.contains(&fs.f_type));
        !self.slow && *in_memory.get_or_init(look)
    }

    /// Whether the kernel keeps all from changing it that have it open, while there is a lease on it.
    pub(super) fn can_be_leased(&self) -> bool {
        let Flow::Plain { leased, .. } = &self.flow else { return false };
        let look = || fstatfs(&self.fd).is_ok_and(|fs| LEASED.contains(&fs.f_type));
        !self.slow && *leased.get_or_init(look)
    }

    fn read_plain(self: &Arc<OpenFile>, mut buffer: Buffer, offset: u64, count: usize) -> Answer<Bytes> {
        let nowait = self.reads_nowait();
        let mut done = 0;
        while nowait && done < count {
            let mut part = [IoSliceMut::new(&mut buffer.bytes[done..count])];
            match preadv2(&self.fd, &mut part, offset + done as u64, ReadWriteFlags::NOWAIT) {
                // Only the end of the file gives nothing: short, it may also be the end of what is cached.
                Ok(0) => return Answer::ok(buffer.into_reply(done)),
                Ok(n) => done += n,
                Err(Os::INTR) => {}
                Err(Os::AGAIN) => break,
                Err(Os::OPNOTSUPP | Os::NOSYS | Os::INVAL) => {
                    self.reads_never_nowait();
                    break;
                }
                Err(_) if done > 0 => return Answer::ok(buffer.into_reply(done)),
                Err(error) => return Answer::err(os(error)),
            }
        }
        if done == count {
            return Answer::ok(buffer.into_reply(done));
        }
        let file = self.clone();
        let read = move || {
            let read = read_at(&file.fd, &mut buffer.bytes[done..count], offset + done as u64);
            match read {
                Ok(n) => Ok(buffer.into_reply(done + n)),
                Err(_) if done > 0 => Ok(buffer.into_reply(done)),
                Err(error) => Err(os(error)),
            }
        };
        if !self.reads_nowait() && self.is_in_memory() { Answer::Now(read()) } else { Answer::blocking(read) }
    }

    /// O_DIRECT wants aligned memory: a part of a larger buffer that happens to be.
    fn read_direct(&self, mut buffer: Buffer, offset: u64, count: usize) -> Result<Bytes, Error> {
        let len = count.next_multiple_of(ALIGN);
        let mut bounce = vec![0; len + ALIGN];
        let start = bounce.as_ptr().align_offset(ALIGN);
        match read_at(&self.fd, &mut bounce[start..start + len], offset) {
            Ok(n) => Ok(Bytes::copy_from_slice(&bounce[start..start + n.min(count)])),
            Err(Os::INVAL) => {
                self.stop_direct().map_err(os)?;
                let n = read_at(&self.fd, &mut buffer.bytes[..count], offset).map_err(os)?;
                Ok(buffer.into_reply(n))
            }
            Err(error) => Err(os(error)),
        }
    }

    /// The client's offsets and lengths do not suit O_DIRECT; its data must be moved all the same.
    fn stop_direct(&self) -> Result<(), Os> {
        let flags = fcntl_getfl(&self.fd)?;
        fcntl_setfl(&self.fd, flags & !OFlags::DIRECT)?;
        if let Flow::Plain { direct, .. } = &self.flow {
            direct.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether it is read and written past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        matches!(&self.flow, Flow::Plain { direct, .. } if direct.load(Ordering::Relaxed))
    }

    /// The same before it comes to that; whether O_DIRECT was set.
    pub(super) fn stop_direct_if_set(&self) -> Result<bool, Os> {
        match &self.flow {
            Flow::Plain { direct, .. } if direct.load(Ordering::Relaxed) => self.stop_direct().map(|()| true),
            _ => Ok(false),
        }
    }

    fn read_device(&self, mut buffer: Buffer, offset: u64, count: usize) -> Result<Bytes, Error> {
        let part = &mut buffer.bytes[..count];
        let n = match pread(&self.fd, &mut *part, offset) {
            Err(Os::SPIPE) => rustix::io::read(&self.fd, part),
            result => result,
        };
        Ok(buffer.into_reply(n.map_err(os)?))
    }

    fn read_stream(self: &Arc<OpenFile>, cx: &Cx, mut buffer: Buffer, count: usize) -> Answer<Bytes> {
        // No bytes now may be no writer yet: only readiness tells that the last one has gone.
        match rustix::io::read(&self.fd, &mut buffer.bytes[..count]) {
            Ok(n) if n > 0 => return Answer::ok(buffer.into_reply(n)),
            Ok(_) | Err(Os::AGAIN | Os::INTR) => {}
            Err(error) => return Answer::err(os(error)),
        }
        let (file, cx) = (self.clone(), cx.clone());
        Answer::later(async move {
            let n = file.when_ready(&cx, Interest::READABLE, || rustix::io::read(&file.fd, &mut buffer.bytes[..count]));
            let n = n.await?;
            Ok(buffer.into_reply(n))
        })
    }

    /// Makes `call` each time the stream is ready for it, until it has something or the request is cancelled.
    async fn when_ready<T>(
        &self,
        cx: &Cx,
        interest: Interest,
        mut call: impl FnMut() -> Result<T, Os>,
    ) -> Result<T, Error> {
        let Flow::Stream(stream) = &self.flow else { return Err(Errno::EBADF.into()) };
        let _parked = cx.park()?;
        loop {
            let mut ready = tokio::select! {
                ready = stream.ready(interest) => ready.map_err(|_| Error::new(Errno::EIO))?,
                () = cx.cancelled() => return Err(Errno::EINTR.into()),
            };
            match call() {
                Ok(done) => return Ok(done),
                Err(Os::AGAIN) => ready.clear_ready(),
                Err(Os::INTR) => {}
                Err(error) => return Err(os(error)),
            }
        }
    }

    pub(super) fn write(self: &Arc<OpenFile>, cx: &Cx, who: &Identity, offset: u64, data: Bytes) -> Answer<u32> {
        match &self.flow {
            Flow::Plain { nowait_write, direct, .. } => {
                let nowait = nowait_write.load(Ordering::Relaxed) && !direct.load(Ordering::Relaxed);
                self.write_plain(who, offset, data, nowait)
            }
            Flow::Device => {
                let file = self.clone();
                Answer::blocking(move || {
                    let n = match pwrite(&file.fd, &data, offset) {
                        Err(Os::SPIPE) => rustix::io::write(&file.fd, &data),
                        result => result,
                    };
                    n.map(|n| n as u32).map_err(os)
                })
            }
            Flow::Stream(_) => self.write_stream(cx, data),
        }
    }

    fn write_plain(self: &Arc<OpenFile>, who: &Identity, offset: u64, data: Bytes, nowait: bool) -> Answer<u32> {
        let mut done = 0;
        if nowait {
            // As the user: a write by anybody but root takes setuid and setgid away.
            let _loan = Loan;
            if let Err(error) = who.assume() {
                return Answer::err(error);
            }
            while done < data.len() {
                let part = [IoSlice::new(&data[done..])];
                match pwritev2(&self.fd, &part, offset + done as u64, ReadWriteFlags::NOWAIT) {
                    Ok(0) | Err(Os::AGAIN) => break,
                    Ok(n) => done += n,
                    Err(Os::INTR) => {}
                    Err(Os::OPNOTSUPP | Os::NOSYS) => {
                        self.never_writes_nowait();
                        break;
                    }
                    Err(Os::INVAL) => {
                        if let Flow::Plain { nowait_write, .. } = &self.flow {
                            nowait_write.store(false, Ordering::Relaxed);
                        }
                        break;
                    }
                    Err(_) if done > 0 => return Answer::ok(done as u32),
                    Err(error) => return Answer::err(os(error)),
                }
            }
            if done == data.len() {
                return Answer::ok(done as u32);
            }
        }
        let (file, who) = (self.clone(), who.clone());
        let write = move || {
            let _loan = Loan;
            who.assume()?;
            if let Flow::Plain { direct, .. } = &file.flow
                && direct.load(Ordering::Relaxed)
            {
                return file.write_direct(&data, offset);
            }
            match write_at(&file.fd, &data[done..], offset + done as u64) {
                (n, None) => Ok((done + n) as u32),
                (n, Some(_)) if done + n > 0 => Ok((done + n) as u32),
                (_, Some(error)) => Err(os(error)),
            }
        };
        // ext4 knows no RWF_NOWAIT for writing; into the page cache it is a copy all the same.
        match &self.flow {
            Flow::Plain { buffered: true, nowait_write, direct, .. }
                if !nowait_write.load(Ordering::Relaxed) && !direct.load(Ordering::Relaxed) =>
            {
                Answer::briefly(write)
            }
            _ => Answer::blocking(write),
        }
    }

    fn write_direct(&self, data: &[u8], offset: u64) -> Result<u32, Error> {
        let mut bounce = vec![0; data.len() + ALIGN];
        let start = bounce.as_ptr().align_offset(ALIGN);
        bounce[start..start + data.len()].copy_from_slice(data);
        let aligned = &bounce[start..start + data.len()];
        let (mut done, mut failed) = write_at(&self.fd, aligned, offset);
        if failed == Some(Os::INVAL) {
            self.stop_direct().map_err(os)?;
            let rest = write_at(&self.fd, &data[done..], offset + done as u64);
            (done, failed) = (done + rest.0, rest.1);
        }
        match failed {
            Some(error) if done == 0 => Err(os(error)),
            _ => Ok(done as u32),
        }
    }

    fn write_stream(self: &Arc<OpenFile>, cx: &Cx, data: Bytes) -> Answer<u32> {
        match rustix::io::write(&self.fd, &data) {
            Ok(n) => return Answer::ok(n as u32),
            Err(Os::AGAIN | Os::INTR) => {}
            Err(error) => return Answer::err(os(error)),
        }
        let (file, cx) = (self.clone(), cx.clone());
        Answer::later(async move {
            let n = file.when_ready(&cx, Interest::WRITABLE, || rustix::io::write(&file.fd, &data)).await?;
            Ok(n as u32)
        })
    }
}

/// Reads until `buffer` is full or the file ends. What came before an error is worth more than the error.
fn read_at(fd: &Arc<OwnedFd>, buffer: &mut [u8], offset: u64) -> Result<usize, Os> {
    let mut done = 0;
    while done < buffer.len() {
        match pread(fd, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Os::INTR) => {}
            // O_DIRECT's short read at the end leaves an offset that it does not accept itself.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `data`; answers how much was written, and the error that ended it before the end.
pub(super) fn write_at(fd: &Arc<OwnedFd>, data: &[u8], offset: u64) -> (usize, Option<Os>) {
    let mut done = 0;
    while done < data.len() {
        match pwrite(fd, &data[done..], offset + done as u64) {
            Ok(0) => return (done, Some(Os::IO)),
            Ok(n) => done += n,
            Err(Os::INTR) => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

impl HostFile {
    /// fsync(2) or fdatasync(2), of directories too.
    pub(super) fn sync(&self, datasync: bool) -> Result<(), Error> {
        let synced = match self.open.get() {
            Some(open) => sync_fd(&open.fd, datasync),
            // wstat(5)'s "all untouched" comes on files that are not open, too.
            None if !matches!(self.node.kind, FileType::RegularFile | FileType::Directory) => Ok(()),
            None => {
                let export = &self.session.export;
                let fd = self.fd(Pace::MayWait)?;
                Identity::of_server().assume()?;
                let name = fd.as_fd().as_raw_fd().to_string();
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
                let opened = export
                    .tree
                    .with_room(|| rustix::fs::openat(&export.proc_fd, name.as_str(), flags, rustix::fs::Mode::empty()));
                sync_fd(&opened.map_err(os)?, datasync)
            }
        };
        match synced {
            // FIFOs and devices have nothing to sync.
            Err(Os::INVAL) => Ok(()),
            result => result.map_err(os),
        }
    }
}

fn sync_fd(fd: impl AsFd, datasync: bool) -> Result<(), Os> {
    if datasync { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_reply_does_not_keep_a_long_buffer() {
        let pool = Arc::new(BufferPool::default());
        let short = pool.take(1 << 20).into_reply(COPY + 1);
        assert_eq!((short.len(), pool.idle.load(Ordering::Relaxed)), (COPY + 1, 1 << 20));
        let long = pool.take(1 << 20).into_reply(1 << 20);
        assert_eq!((long.len(), pool.idle.load(Ordering::Relaxed)), (1 << 20, 0));
    }
}
