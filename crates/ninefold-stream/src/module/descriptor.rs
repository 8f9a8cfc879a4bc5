//! System calls that several modules make.

use std::io::IsTerminal;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::FileType;
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use crate::error::{Error, Result};

/// How a descriptor is read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By offsets.
    Places,
    /// By records.
    Directory,
    /// By lines.
    Terminal,
    /// In order.
    Order,
}

/// What fstat(2) and isatty(3) say.
///
/// # Errors
/// fstat(2)'s.
pub fn kind(fd: &OwnedFd) -> Result<Kind> {
    Ok(match FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => Kind::Places,
        FileType::Directory => Kind::Directory,
        FileType::CharacterDevice if fd.is_terminal() => Kind::Terminal,
        _ => Kind::Order,
    })
}

/// Bytes in the file. A block device tells its length by its end.
pub fn length(fd: BorrowedFd<'_>) -> Result<u64> {
    let stat = rustix::fs::fstat(fd)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
        return Ok(rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0))?);
    }
    u64::try_from(stat.st_size).map_err(|_| Error::BadOffset)
}

/// Reads until `least` bytes are there, or the end, or an error; an error behind some bytes is left for the next call. A file is not
/// waited for, so EINTR is no news to the caller.
pub fn read_at(fd: BorrowedFd<'_>, mut at: u64, buffer: &mut [u8], least: usize) -> Result<usize> {
    let mut done = 0;
    while done < least.min(buffer.len()) {
        match retry_on_intr(|| pread(fd, &mut buffer[done..], at)) {
            Ok(0) => break,
            Ok(n) => {
                done += n;
                at += n as u64;
            }
            // Beyond 2^63 - 1 there is nothing.
            Err(Errno::INVAL | Errno::OVERFLOW) if at > i64::MAX as u64 => break,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}

/// Writes all, or tells by `written` how much.
pub fn write_at(fd: BorrowedFd<'_>, at: u64, data: &[u8], written: &mut usize) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        let n = retry_on_intr(|| pwrite(fd, &data[done..], at + done as u64))?;
        if n == 0 {
            return Err(Errno::IO.into()); // write(2) of some bytes does not return 0; without this it would be a loop
        }
        done += n;
        *written += n;
    }
    Ok(())
}

/// close(2), whose error is the last chance to hear of one. EINTR is none: on Linux the descriptor is gone.
pub fn close(fd: OwnedFd) -> Result<()> {
    match nix::unistd::close(fd) {
        Ok(()) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(e) => Err(Errno::from_raw_os_error(e as i32).into()),
    }
}
