//! Copying between open files without their bytes leaving the machine: copy_file_range(2), which shares blocks where the file
//! system can, and reading and writing where it cannot.

use std::sync::Arc;

use ninefold_proto::{Errno, Error};
use rustix::fs::{copy_file_range, fcntl_getfl};
use rustix::io::Errno as Os;

use super::file::HostFile;
use super::io::{BufferPool, write_at};
use super::open::{Flow, OpenFile};
use super::os;
use crate::server::Cx;
use crate::server::fallback::COPY_MOST;

/// Bytes of one copy_file_range(2): between two the request may be found to be cancelled. A multiple of every block size.
const PIECE: u64 = 16 << 20;

/// Bytes that are read and then written at a time.
const BUFFER: u64 = 1 << 20;

/// How the bytes of a copy move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Kernel,
    Buffer,
}

impl HostFile {
    /// Copies up to `length` bytes, and not more than [`COPY_MOST`]; to a file of another export too.
    pub(super) fn copy_to(
        &self,
        cx: &Cx,
        offset: u64,
        target: &HostFile,
        target_offset: u64,
        length: u64,
    ) -> Result<u64, Error> {
        let (from, to) = (self.opened()?, target.opened()?);
        if !from.is_plain() || !to.is_plain() {
            return Err(Error::with_text(Errno::EINVAL, "only plain files have ranges that can be copied"));
        }
        // As copy_file_range(2) has it; said here because its other EINVALs are no reason not to read and write.
        if self.key() == target.key() && offset.abs_diff(target_offset) < length {
            return Err(Error::with_text(Errno::EINVAL, "ranges of one file overlap"));
        }
        if fcntl_getfl(&to.fd).map_err(os)?.contains(rustix::fs::OFlags::APPEND) {
            return Err(Error::with_text(Errno::EBADF, "fid is open for appending"));
        }
        // As the user who writes: a write by anybody but root takes setuid and setgid away.
        target.session.who.assume()?;
        let length = length.min(COPY_MOST);
        let (mut by, mut done) = (By::Kernel, 0);
        while done < length {
            if cx.is_cancelled() {
                return if done > 0 { Ok(done) } else { Err(Errno::EINTR.into()) };
            }
            let (at, target_at, left) = (offset + done, target_offset + done, length - done);
            let copied = match by {
                By::Kernel => by_kernel(&from, at, &to, target_at, left.min(PIECE)),
                By::Buffer => by_buffer(&self.session.export.buffers, &from, at, &to, target_at, left.min(BUFFER)),
            };
            match copied {
                // At the end, or a file that has no size and is read all the same, as those of /proc.
                Ok(0) if done == 0 && by == By::Kernel => by = By::Buffer,
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Os::XDEV | Os::INVAL | Os::OPNOTSUPP | Os::NOSYS) if by == By::Kernel => by = By::Buffer,
                // What was copied is told; the client meets the error when it goes on.
                Err(_) if done > 0 => break,
                Err(error) => return Err(os(error)),
            }
        }
        Ok(done)
    }
}

fn by_kernel(from: &OpenFile, mut offset: u64, to: &OpenFile, mut target_offset: u64, length: u64) -> Result<u64, Os> {
    loop {
        match copy_file_range(&from.fd, Some(&mut offset), &to.fd, Some(&mut target_offset), length as usize) {
            Err(Os::INTR) => {}
            copied => return copied.map(|n| n as u64),
        }
    }
}

fn by_buffer(
    pool: &Arc<BufferPool>,
    from: &OpenFile,
    offset: u64,
    to: &OpenFile,
    target_offset: u64,
    length: u64,
) -> Result<u64, Os> {
    // Neither offset need suit a disk's blocks.
    from.stop_direct_if_set()?;
    to.stop_direct_if_set()?;
    let data = from.read_here(pool, offset, length as usize)?;
    match write_at(&to.fd, &data, target_offset) {
        (0, Some(error)) => Err(error),
        (n, _) => Ok(n as u64),
    }
}

impl OpenFile {
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.flow, Flow::Plain { .. }) && self.dir.is_none()
    }
}
