//! Where the data of a file lie: allocating and freeing its blocks, finding data and holes, and writing behind its last byte.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use ninefold_proto::{Errno, Error};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, fcntl_getfl, seek, tell};
use rustix::io::{Errno as Os, ReadWriteFlags, preadv2, pwritev2};

use super::creds::{Identity, Loan};
use super::file::HostFile;
use super::node::look;
use super::open::{Flow, OpenFile};
use super::{lock, os};
use crate::server::{Answer, Cx, Written};

/// pwritev2(2)'s offset for "where the descriptor stands, which moves".
const AT_POSITION: u64 = u64::MAX;

/// Bytes of which no file system has a part as a hole, and a part not.
const SECTOR: u64 = 512;

impl HostFile {
    /// fallocate(2). May wait.
    pub(super) fn allocate_range(&self, mode: u32, offset: u64, length: u64) -> Result<(), Error> {
        let open = self.opened()?;
        // As the user: the file loses setuid and setgid as by a write.
        self.session.who.assume()?;
        loop {
            match fallocate(&open.fd, FallocateFlags::from_bits_retain(mode), offset, length) {
                Err(Os::INTR) => {}
                result => return result.map_err(os),
            }
        }
    }

    /// lseek(2) to data or a hole. May wait.
    pub(super) fn seek_extent(&self, offset: u64, hole: bool) -> Result<u64, Error> {
        let open = self.opened()?;
        let _position = lock(&open.position);
        seek(&open.fd, if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) }).map_err(os)
    }
}

impl OpenFile {
    /// Where the next data are, if nothing has to be waited for to know: of a file in memory, which finds them at once (it does not a hole behind
    /// much data), and where a look at what lies in the page cache tells that there are some: a hole has zeros only. (Blocks tell nothing: those that are
    /// only reserved are holes.)
    pub(super) fn data_at_once(&self, offset: u64) -> Option<Result<u64, Error>> {
        if self.is_in_memory() {
            // Another's search may take longer.
            let _position = self.position.try_lock().ok()?;
            return Some(seek(&self.fd, SeekFrom::Data(offset)).map_err(os));
        }
        // Past the page cache a read waits for the disk; and an offset behind all that a file can have would be the descriptor's position.
        if self.slow || self.is_direct() || !self.reads_nowait() || i64::try_from(offset).is_err() {
            return None;
        }
        let mut sector = [0; SECTOR as usize];
        let rest = &mut sector[(offset % SECTOR) as usize..];
        let there = preadv2(&self.fd, &mut [IoSliceMut::new(rest)], offset, ReadWriteFlags::NOWAIT).ok()?;
        rest[..there].iter().any(|byte| *byte != 0).then_some(Ok(offset))
    }

    /// A write that tells where its data begin. A file that is open for appending is always written at its end.
    pub(super) fn writex(
        self: &Arc<OpenFile>,
        cx: &Cx,
        who: &Identity,
        offset: u64,
        data: Bytes,
        append: bool,
        stable: bool,
    ) -> Answer<Written> {
        let written = match &self.flow {
            Flow::Plain { buffered, direct, .. } => match fcntl_getfl(&self.fd) {
                Ok(flags) if append || flags.contains(OFlags::APPEND) => {
                    let in_memory = *buffered && !direct.load(Ordering::Relaxed);
                    let (file, who) = (self.clone(), who.clone());
                    let write = move || file.append(&who, &data);
                    // Into the page cache it is a copy.
                    if in_memory { Answer::in_place(write) } else { Answer::blocking(write) }
                }
                Ok(_) => self.write(cx, who, offset, data).map(move |n| n.map(|count| Written { offset, count })),
                Err(error) => Answer::err(os(error)),
            },
            Flow::Device | Flow::Stream(_) if append => Answer::err(Errno::ESPIPE),
            Flow::Device | Flow::Stream(_) => {
                self.write(cx, who, offset, data).map(move |n| n.map(|count| Written { offset, count }))
            }
        };
        if !stable {
            return written;
        }
        let file = self.clone();
        written.and_then(move |written| {
            Answer::blocking(move || match rustix::fs::fsync(&file.fd) {
                // FIFOs and devices have nothing to sync.
                Ok(()) | Err(Os::INVAL) => Ok(written),
                // Who writes in this one's stead where it cannot would write once more.
                Err(Os::OPNOTSUPP) => Err(Errno::EIO.into()),
                Err(error) => Err(os(error)),
            })
        })
    }

    /// Writes where the kernel finds the end of the file, in one step with finding it: neither another fid nor a program of the
    /// host comes between. (Of another machine's file system it is that machine which must see to it.) The descriptor's position,
    /// which nothing but this and [`HostFile::seek_extent`] moves, then tells where that was.
    fn append(&self, who: &Identity, data: &[u8]) -> Result<Written, Error> {
        if data.is_empty() {
            return Ok(Written { offset: look(std::os::fd::AsFd::as_fd(&self.fd))?.stx_size, count: 0 });
        }
        let _loan = Loan;
        // As the user: a write by anybody but root takes setuid and setgid away.
        who.assume()?;
        let _position = lock(&self.position);
        loop {
            match pwritev2(&self.fd, &[IoSlice::new(data)], AT_POSITION, ReadWriteFlags::APPEND) {
                Ok(0) => return Err(Errno::EIO.into()),
                // The rest, if any, is not written behind it: another's may be there by now.
                Ok(n) => {
                    let end = tell(&self.fd).map_err(os)?;
                    return Ok(Written { offset: end.saturating_sub(n as u64), count: n as u32 });
                }
                Err(Os::INTR) => {}
                // The end of a file need not suit O_DIRECT.
                Err(Os::INVAL) if self.stop_direct_if_set().map_err(os)? => {}
                Err(error) => return Err(os(error)),
            }
        }
    }
}
