//! Files here, and descriptors that the kernel gave: each call is the system call of its name.

use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nine::proto::Errno;
use nix::libc;

use crate::fence::{COUNT_MAX, EFAULT, EIO, os};
use crate::flags::OBEHIND;

fn last() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(EIO, os)
}

fn told(result: i64) -> Result<i64, Errno> {
    if result < 0 { Err(last()) } else { Ok(result) }
}

fn told_int(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(last()) } else { Ok(result) }
}

/// Alike for the kernel's descriptors and ours.
fn refuse_null(bytes: *const c_void, count: usize) -> Result<(), Errno> {
    if bytes.is_null() && count > 0 { Err(EFAULT) } else { Ok(()) }
}

/// OBEHIND means nothing here: the kernel writes plain files behind of itself.
pub fn open(name: &CStr, flags: c_int, mode: libc::mode_t) -> Result<c_int, Errno> {
    // SAFETY: the name ends in a NUL.
    told_int(unsafe { libc::open(name.as_ptr(), flags & !OBEHIND, mode) })
}

/// # Safety
///
/// As read(2): `count` bytes from `bytes` on are the caller's to fill, or it is null; the kernel checks no more than that they are mapped.
pub unsafe fn read(fd: c_int, bytes: *mut c_void, count: usize) -> Result<i64, Errno> {
    refuse_null(bytes, count)?;
    // SAFETY: the caller vouches.
    told(unsafe { libc::read(fd, bytes, count.min(COUNT_MAX)) } as i64)
}

/// # Safety
///
/// As [`read`].
pub unsafe fn pread(fd: c_int, bytes: *mut c_void, count: usize, offset: i64) -> Result<i64, Errno> {
    refuse_null(bytes, count)?;
    // SAFETY: the caller vouches.
    told(unsafe { libc::pread(fd, bytes, count.min(COUNT_MAX), offset) } as i64)
}

/// # Safety
///
/// As write(2): `count` bytes from `bytes` on can be read.
pub unsafe fn write(fd: c_int, bytes: *const c_void, count: usize) -> Result<i64, Errno> {
    refuse_null(bytes, count)?;
    // SAFETY: the caller vouches.
    told(unsafe { libc::write(fd, bytes, count.min(COUNT_MAX)) } as i64)
}

/// # Safety
///
/// As [`write`].
pub unsafe fn pwrite(fd: c_int, bytes: *const c_void, count: usize, offset: i64) -> Result<i64, Errno> {
    refuse_null(bytes, count)?;
    // SAFETY: the caller vouches.
    told(unsafe { libc::pwrite(fd, bytes, count.min(COUNT_MAX), offset) } as i64)
}

pub fn seek(fd: c_int, offset: i64, whence: c_int) -> Result<i64, Errno> {
    // SAFETY: no memory is involved.
    told(unsafe { libc::lseek(fd, offset, whence) })
}

/// `seek`, and the descriptor's offset is what it was: others may have it too.
pub fn find(fd: c_int, offset: i64, whence: c_int) -> Result<i64, Errno> {
    let at = seek(fd, 0, libc::SEEK_CUR)?;
    let found = seek(fd, offset, whence)?;
    seek(fd, at, libc::SEEK_SET)?;
    Ok(found)
}

pub fn stat(fd: c_int) -> Result<libc::stat, Errno> {
    let mut stat = empty_stat();
    // SAFETY: the record is whole and ours.
    told_int(unsafe { libc::fstat(fd, &raw mut stat) })?;
    Ok(stat)
}

pub fn truncate(fd: c_int, length: i64) -> Result<c_int, Errno> {
    // SAFETY: no memory is involved.
    told_int(unsafe { libc::ftruncate(fd, length) })
}

pub fn sync(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: no memory is involved.
    told_int(unsafe { libc::fsync(fd) })
}

/// # Safety
///
/// As close(2): nothing else relies on the descriptor.
pub unsafe fn close(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: the caller vouches.
    told_int(unsafe { libc::close(fd) })
}

/// The flags that it was opened with; EBADF where it is not open.
pub fn flags(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: no memory is involved.
    told_int(unsafe { libc::fcntl(fd, libc::F_GETFL) })
}

/// The same, of one that is.
pub fn flags_of(fd: &OwnedFd) -> Result<c_int, Errno> {
    flags(fd.as_raw_fd())
}

/// dup(2).
pub fn dup(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: no memory is involved.
    told_int(unsafe { libc::dup(fd) })
}

/// A second descriptor of the same open file, closed by exec(3): what closes the first does not close it, nor does who closes standard
/// input, output or error, whose number it does not get.
pub fn duplicate(fd: c_int) -> Result<File, Errno> {
    // SAFETY: no memory is involved.
    let made = told_int(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1) })?;
    // SAFETY: the kernel has just given it, to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(made) }.into())
}

/// A file that a stream will have: closed by exec(3), and none of the numbers of standard input, output and error, as [`duplicate`] has it.
pub fn open_for_stream(name: &CStr, flags: c_int, mode: libc::mode_t) -> Result<OwnedFd, Errno> {
    let number = open(name, flags | libc::O_CLOEXEC, mode)?;
    // SAFETY: the kernel has just given it, to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    if number > libc::STDERR_FILENO { Ok(fd) } else { duplicate(number).map(OwnedFd::from) }
}

/// All zeros.
pub fn empty_stat() -> libc::stat {
    // SAFETY: a record of integers, for which zeros are good.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
