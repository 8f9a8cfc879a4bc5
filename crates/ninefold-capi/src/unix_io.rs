//! Unix I/O: what `as_open` and its like are in the header. A descriptor below [`FIRST`] is the kernel's, and the call is the
//! kernel's own, on the caller's memory.

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_void};
use std::sync::Arc;

use nine::client::Error;
use nine::proto::Errno;
use nix::libc::{mode_t, size_t, ssize_t, stat};

use crate::descriptor::Descriptor;
use crate::fence::{EBADF, EFAULT, EOPNOTSUPP, bytes_to_fill, call, call_int, room, source, text};
use crate::flags::Flags;
use crate::handles::{self, Handle};
use crate::process::{self, Process};
use crate::table::FIRST;
use crate::{kernel, remote};

/// What a number is the descriptor of.
enum Whose {
    Kernels,
    Ours(&'static Process, Arc<Descriptor>),
    Streams(Handle),
}

fn whose(fd: c_int) -> Result<Whose, Errno> {
    if fd < FIRST {
        return Ok(Whose::Kernels);
    }
    if let Some(handle) = handles::find(fd)? {
        return Ok(Whose::Streams(handle));
    }
    let process = process::existing().ok_or(EBADF)?;
    Ok(Whose::Ours(process, process.table.get(fd)?))
}

/// The open file of a server behind a number of ours, for streams; `None` for the kernel's.
pub fn descriptor(fd: c_int) -> Result<Option<(&'static Process, Arc<Descriptor>)>, Errno> {
    Ok(match whose(fd)? {
        Whose::Kernels => None,
        Whose::Ours(process, descriptor) => Some((process, descriptor)),
        Whose::Streams(_) => return Err(EOPNOTSUPP),
    })
}

/// Runs a call on a file of a server, on a stream, or the kernel's on one of the kernel's.
fn either<T>(
    fd: c_int,
    theirs: impl FnOnce() -> Result<T, Errno>,
    streams: impl FnOnce(&Handle) -> Result<T, Errno>,
    ours: impl AsyncFnOnce(&Descriptor) -> Result<T, Error>,
) -> Result<T, Errno> {
    match whose(fd)? {
        Whose::Kernels => theirs(),
        Whose::Streams(handle) => streams(&handle),
        Whose::Ours(process, descriptor) => process.wait(async {
            let result = ours(&descriptor).await;
            descriptor.let_go(result).await
        }),
    }
}

/// See `as_open` in ninefold.h.
///
/// # Safety
///
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_as_open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    call_int(|| {
        // SAFETY: the caller vouches.
        let name = unsafe { text(name) }?;
        let Some(address) = remote::address(name)? else {
            return kernel::open(name, flags, mode as mode_t);
        };
        let flags = Flags::new(flags)?;
        let process = process::current()?;
        let descriptor = process.wait(remote::open(&process.servers, &address, flags, mode))?;
        process.table.insert(descriptor)
    })
}

/// See `as_read` in ninefold.h.
///
/// # Safety
///
/// `count` bytes from `bytes` on are the caller's, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_as_read(fd: c_int, bytes: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller vouches.
    let theirs = || unsafe { kernel::read(fd, bytes, count) };
    let ours = async |descriptor: &Descriptor| {
        // SAFETY: the caller vouches.
        let mut room = unsafe { room(bytes, count) }?;
        descriptor.read(&mut room).await?;
        Ok(room.filled() as i64)
    };
    // SAFETY: the caller vouches.
    let streams = |handle: &Handle| handle.read(unsafe { bytes_to_fill(bytes, count) }?);
    call(|| either(fd, theirs, streams, ours)) as ssize_t
}

/// See `as_pread` in ninefold.h.
///
/// # Safety
///
/// As [`nf_as_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_as_pread(fd: c_int, bytes: *mut c_void, count: size_t, offset: c_longlong) -> ssize_t {
    // SAFETY: the caller vouches.
    let theirs = || unsafe { kernel::pread(fd, bytes, count, offset) };
    let ours = async |descriptor: &Descriptor| {
        // SAFETY: the caller vouches.
        let mut room = unsafe { room(bytes, count) }?;
        descriptor.pread(&mut room, offset).await?;
        Ok(room.filled() as i64)
    };
    // SAFETY: the caller vouches.
    let streams = |handle: &Handle| handle.directly(false, |fd| unsafe { kernel::pread(fd, bytes, count, offset) });
    call(|| either(fd, theirs, streams, ours)) as ssize_t
}

/// See `as_write` in ninefold.h.
///
/// # Safety
///
/// `count` bytes from `bytes` on can be read, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_as_write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller vouches.
    let theirs = || unsafe { kernel::write(fd, bytes, count) };
    let ours = async |descriptor: &Descriptor| {
        // SAFETY: the caller vouches.
        let bytes = unsafe { source(bytes, count) }?;
        Ok(descriptor.write(bytes).await? as i64)
    };
    // SAFETY: the caller vouches.
    let streams = |handle: &Handle| handle.write(unsafe { source(bytes, count) }?);
    call(|| either(fd, theirs, streams, ours)) as ssize_t
}

/// See `as_pwrite` in ninefold.h.
///
/// # Safety
///
/// As [`nf_as_write`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_as_pwrite(fd: c_int, bytes: *const c_void, count: size_t, offset: c_longlong) -> ssize_t {
    // SAFETY: the caller vouches.
    let theirs = || unsafe { kernel::pwrite(fd, bytes, count, offset) };
    let ours = async |descriptor: &Descriptor| {
        // SAFETY: the caller vouches.
        let bytes = unsafe { source(bytes, count) }?;
        Ok(descriptor.pwrite(bytes, offset).await? as i64)
    };
    // SAFETY: the caller vouches.
    let streams = |handle: &Handle| handle.directly(true, |fd| unsafe { kernel::pwrite(fd, bytes, count, offset) });
    call(|| either(fd, theirs, streams, ours)) as ssize_t
}

/// See `as_lseek` in ninefold.h.
#[unsafe(no_mangle)]
pub extern "C" fn nf_as_lseek(fd: c_int, offset: c_longlong, whence: c_int) -> c_longlong {
    let theirs = || kernel::seek(fd, offset, whence);
    let streams = |handle: &Handle| handle.seek(offset, whence);
    call(|| either(fd, theirs, streams, async |descriptor| descriptor.seek(offset, whence).await))
}

/// See `as_fstat` in ninefold.h.
///
/// # Safety
///
/// `to` is null, or a record of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_as_fstat(fd: c_int, to: *mut stat) -> c_int {
    call_int(|| {
        if to.is_null() {
            return Err(EFAULT);
        }
        let told = either(fd, || kernel::stat(fd), |handle| handle.directly(false, kernel::stat), Descriptor::stat)?;
        // SAFETY: not null, and for the rest the caller vouches.
        unsafe { to.write(told) };
        Ok(0)
    })
}

/// See `as_ftruncate` in ninefold.h.
#[unsafe(no_mangle)]
pub extern "C" fn nf_as_ftruncate(fd: c_int, length: c_longlong) -> c_int {
    let theirs = || kernel::truncate(fd, length);
    let streams = |handle: &Handle| handle.directly(true, |fd| kernel::truncate(fd, length));
    call_int(|| either(fd, theirs, streams, async |descriptor| descriptor.truncate(length).await.map(|()| 0)))
}

/// See `as_fsync` in ninefold.h.
#[unsafe(no_mangle)]
pub extern "C" fn nf_as_fsync(fd: c_int) -> c_int {
    call_int(|| either(fd, || kernel::sync(fd), Handle::sync, async |descriptor| descriptor.sync().await.map(|()| 0)))
}

/// See `fdflush` in ninefold.h.
#[unsafe(no_mangle)]
pub extern "C" fn nf_fdflush(fd: c_int) -> c_int {
    // What is written to the kernel is written: there is nothing to wait for, where the descriptor is one.
    let theirs = || kernel::flags(fd).map(|_| 0);
    call_int(|| either(fd, theirs, Handle::flush, async |descriptor| descriptor.flush().await.map(|()| 0)))
}

/// See `as_dup` in ninefold.h.
#[unsafe(no_mangle)]
pub extern "C" fn nf_as_dup(fd: c_int) -> c_int {
    call_int(|| match whose(fd)? {
        Whose::Kernels => kernel::dup(fd),
        Whose::Streams(handle) => handles::insert(handle),
        Whose::Ours(..) => Err(EOPNOTSUPP),
    })
}

/// See `as_close` in ninefold.h.
///
/// # Safety
///
/// As close(2): nothing else relies on the descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_as_close(fd: c_int) -> c_int {
    call_int(|| {
        if fd < FIRST {
            // SAFETY: the caller vouches.
            return unsafe { kernel::close(fd) };
        }
        if handles::find(fd)?.is_some() {
            return handles::close(fd).map(|()| 0);
        }
        let process = process::existing().ok_or(EBADF)?;
        let descriptor = process.table.remove(fd)?;
        process.wait(descriptor.close())?;
        Ok(0)
    })
}
