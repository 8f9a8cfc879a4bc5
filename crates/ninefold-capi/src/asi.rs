//! The Alloc Stream Interface (S3, figure 5): what `sopen` and `salloc` and their like are in the header.
//!
//! The calls that a loop makes, `nf_salloc` and `nf_sfree`, have a short way before the long one: no closure, no lock, nothing that could panic.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_void};

use nine::proto::Errno;
use ninefold_stream::{RawRegion, Wanted};
use nix::libc::mode_t;

use crate::asf::{Asf, mode, place};
use crate::fence::{EFAULT, EINVAL, attempt, call, call_int, errno_of_stream, text, told};
use crate::stream_io::{NfStream, handed_out, of};

/// The stream, if its regions are lent already.
///
/// # Safety
///
/// Null, or a stream that was not closed.
#[inline(always)]
pub unsafe fn ready<'a>(stream: *const NfStream) -> Option<&'a Asf> {
    // SAFETY: the caller vouches.
    unsafe { stream.as_ref() }.and_then(NfStream::asf)
}

/// # Safety
///
/// As [`ready`].
pub unsafe fn lending<'a>(stream: *const NfStream) -> Result<&'a Asf, Errno> {
    // SAFETY: the caller vouches.
    unsafe { of(stream) }?.become_asf()
}

pub fn told_by<T>(result: ninefold_stream::Result<T>) -> Result<T, Errno> {
    result.map_err(errno_of_stream)
}

/// What a call that lends a region gives, by the long way.
///
/// # Safety
///
/// As [`ready`]; `length` is null or a number of the caller's.
#[cold]
#[inline(never)]
unsafe fn lend(
    stream: *const NfStream,
    length: *mut c_long,
    alloc: impl FnOnce(&Asf, usize) -> Result<RawRegion, Errno>,
) -> *mut c_void {
    let lent = attempt(|| {
        // SAFETY: the caller vouches.
        let bytes = *unsafe { length.as_ref() }.ok_or(EFAULT)?;
        let bytes = usize::try_from(bytes).map_err(|_| EINVAL)?;
        // SAFETY: the caller vouches.
        alloc(unsafe { lending(stream) }?, bytes)
    });
    let (at, bytes) = match lent {
        Ok(region) => (region.at, region.bytes as c_long),
        Err(e) => (std::ptr::null_mut(), told(e).into()),
    };
    // SAFETY: null, or the caller vouches.
    if let Some(length) = unsafe { length.as_mut() } {
        *length = bytes;
    }
    at.cast()
}

/// What a call on a stream gives that gives 0.
///
/// # Safety
///
/// As [`ready`].
pub unsafe fn done(stream: *const NfStream, op: impl FnOnce(&Asf) -> Result<(), Errno>) -> c_int {
    // SAFETY: the caller vouches.
    call_int(|| op(unsafe { lending(stream) }?).map(|()| 0))
}

/// # Safety
///
/// Each is null or a string; `error` is null or a number of the caller's.
unsafe fn open(
    name: *const c_char,
    flags: c_int,
    mode: c_int,
    module: Option<*const c_char>,
    error: *mut c_int,
) -> *mut NfStream {
    let begun = attempt(|| {
        // SAFETY: the caller vouches.
        let module = module.map(|module| unsafe { text(module) }).transpose()?;
        // SAFETY: the caller vouches.
        NfStream::new(Asf::open(unsafe { text(name) }?, flags, mode as mode_t, module)?)
    });
    // SAFETY: the caller vouches.
    unsafe { handed_out(begun, error) }
}

/// See `sopen` in ninefold.h.
///
/// # Safety
///
/// `name` is null or a string; `error` is null or a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sopen(name: *const c_char, flags: c_int, mode: c_int, error: *mut c_int) -> *mut NfStream {
    // SAFETY: the caller vouches.
    unsafe { open(name, flags, mode, None, error) }
}

/// See `sopen_by` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sopen`]; `module` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sopen_by(
    name: *const c_char,
    flags: c_int,
    mode: c_int,
    module: *const c_char,
    error: *mut c_int,
) -> *mut NfStream {
    // SAFETY: the caller vouches.
    unsafe { open(name, flags, mode, Some(module), error) }
}

/// See `sdopen` in ninefold.h.
///
/// # Safety
///
/// `error` is null or a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sdopen(fd: c_int, error: *mut c_int) -> *mut NfStream {
    let begun = attempt(|| NfStream::new(Asf::on(fd, None)?));
    // SAFETY: the caller vouches.
    unsafe { handed_out(begun, error) }
}

/// See `sdopen_by` in ninefold.h.
///
/// # Safety
///
/// `module` is null or a string; `error` is null or a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sdopen_by(fd: c_int, module: *const c_char, error: *mut c_int) -> *mut NfStream {
    // SAFETY: the caller vouches.
    let begun = attempt(|| NfStream::new(Asf::on(fd, Some(unsafe { text(module) }?))?));
    // SAFETY: the caller vouches.
    unsafe { handed_out(begun, error) }
}

/// See `salloc` in ninefold.h.
///
/// # Safety
///
/// `stream` is null or a stream that was not closed; `length` is null or a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_salloc(stream: *mut NfStream, length: *mut c_long) -> *mut c_void {
    // SAFETY: the caller vouches.
    if let (Some(asf), Some(length)) = unsafe { (ready(stream), length.as_ref()) }
        && let Ok(bytes) = usize::try_from(*length)
        && let Some(at) = asf.raw.quick_alloc(bytes)
    {
        return at.cast();
    }
    // SAFETY: the caller vouches.
    unsafe { salloc_longer(stream, length) }
}

/// A function by itself, so that the short way keeps nothing for it.
///
/// # Safety
///
/// As [`nf_salloc`].
#[cold]
#[inline(never)]
unsafe fn salloc_longer(stream: *mut NfStream, length: *mut c_long) -> *mut c_void {
    // SAFETY: the caller vouches.
    unsafe { lend(stream, length, |asf, bytes| asf.alloc(Wanted::bytes(bytes))) }
}

/// See `Salloc` in ninefold.h.
///
/// # Safety
///
/// As [`nf_salloc`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the paper's name")]
pub unsafe extern "C" fn nf_Salloc(stream: *mut NfStream, in_mode: c_int, length: *mut c_long) -> *mut c_void {
    // SAFETY: the caller vouches.
    if let (Some(asf), Some(length)) = unsafe { (ready(stream), length.as_ref()) }
        && let (Ok(mode), Ok(bytes)) = (mode(in_mode), usize::try_from(*length))
        && let Some(at) = asf.raw.quick_alloc_in(mode, bytes)
    {
        return at.cast();
    }
    // SAFETY: the caller vouches.
    unsafe {
        lend(stream, length, |asf, bytes| asf.alloc(Wanted { mode: Some(mode(in_mode)?), ..Wanted::bytes(bytes) }))
    }
}

/// See `sallocAt` in ninefold.h.
///
/// # Safety
///
/// As [`nf_salloc`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the paper's name")]
pub unsafe extern "C" fn nf_sallocAt(
    stream: *mut NfStream,
    length: *mut c_long,
    offset: c_longlong,
    whence: c_int,
) -> *mut c_void {
    // SAFETY: the caller vouches.
    unsafe {
        lend(stream, length, |asf, bytes| {
            asf.alloc(Wanted { to: Some(place(offset, whence)?), ..Wanted::bytes(bytes) })
        })
    }
}

/// See `SallocAt` in ninefold.h.
///
/// # Safety
///
/// As [`nf_salloc`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the paper's name")]
pub unsafe extern "C" fn nf_SallocAt(
    stream: *mut NfStream,
    in_mode: c_int,
    length: *mut c_long,
    offset: c_longlong,
    whence: c_int,
) -> *mut c_void {
    // SAFETY: the caller vouches.
    unsafe {
        lend(stream, length, |asf, bytes| {
            let (mode, to) = (Some(mode(in_mode)?), Some(place(offset, whence)?));
            asf.alloc(Wanted { mode, to, ..Wanted::bytes(bytes) })
        })
    }
}

/// See `salloc_full` in ninefold.h.
///
/// # Safety
///
/// As [`nf_salloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_salloc_full(stream: *mut NfStream, length: *mut c_long) -> *mut c_void {
    // SAFETY: the caller vouches.
    unsafe { lend(stream, length, |asf, bytes| asf.alloc(Wanted { full: true, ..Wanted::bytes(bytes) })) }
}

/// See `salloc_aligned` in ninefold.h.
///
/// # Safety
///
/// As [`nf_salloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_salloc_aligned(stream: *mut NfStream, length: *mut c_long, align: c_long) -> *mut c_void {
    // SAFETY: the caller vouches.
    unsafe {
        lend(stream, length, |asf, bytes| {
            let align = usize::try_from(align).map_err(|_| EINVAL)?;
            asf.alloc(Wanted { align, ..Wanted::bytes(bytes) })
        })
    }
}

/// See `salloc_line` in ninefold.h.
///
/// # Safety
///
/// As [`nf_salloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_salloc_line(stream: *mut NfStream, length: *mut c_long) -> *mut c_void {
    // SAFETY: the caller vouches.
    if let (Some(asf), Some(length)) = unsafe { (ready(stream), length.as_mut()) }
        && let Some(region) = asf.raw.quick_until(b'\n', usize::MAX)
    {
        *length = region.bytes as c_long;
        return region.at.cast();
    }
    // SAFETY: null, or the caller vouches.
    if let Some(length) = unsafe { length.as_mut() } {
        *length = c_long::MAX;
    }
    // SAFETY: the caller vouches.
    unsafe { lend(stream, length, |asf, most| asf.until(b'\n', most)) }
}

/// See `salloc_until` in ninefold.h.
///
/// # Safety
///
/// As [`nf_salloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_salloc_until(stream: *mut NfStream, length: *mut c_long, delimiter: c_int) -> *mut c_void {
    // As memchr(3) has it.
    let delimiter = delimiter as u8;
    // SAFETY: the caller vouches.
    if let (Some(asf), Some(length)) = unsafe { (ready(stream), length.as_mut()) }
        && let Ok(most) = usize::try_from(*length)
        && let Some(region) = asf.raw.quick_until(delimiter, most)
    {
        *length = region.bytes as c_long;
        return region.at.cast();
    }
    // SAFETY: the caller vouches.
    unsafe { lend(stream, length, |asf, most| asf.until(delimiter, most)) }
}

/// See `sfree` in ninefold.h.
///
/// # Safety
///
/// `stream` is null or a stream that was not closed. Of the region nothing is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sfree(stream: *mut NfStream, region: *mut c_void) -> c_int {
    // SAFETY: the caller vouches.
    if let Some(asf) = unsafe { ready(stream) }
        && asf.raw.quick_free(region.cast())
    {
        return 0;
    }
    // SAFETY: the caller vouches.
    unsafe { sfree_longer(stream, region) }
}

/// # Safety
///
/// As [`nf_sfree`].
#[cold]
#[inline(never)]
unsafe fn sfree_longer(stream: *mut NfStream, region: *mut c_void) -> c_int {
    call_int(|| {
        // SAFETY: the caller vouches.
        let stream = unsafe { of(stream) }?;
        if region.is_null() {
            return Err(EFAULT);
        }
        // Who never had a region has none to free.
        told_by(stream.asf_here()?.ok_or(EINVAL)?.raw.free(region.cast())).map(|()| 0)
    })
}

/// # Safety
///
/// As [`nf_sfree`].
unsafe fn resize(
    stream: *mut NfStream,
    region: *mut c_void,
    length: c_long,
    in_mode: Option<c_int>,
    exact: bool,
) -> Result<RawRegion, Errno> {
    attempt(|| {
        // SAFETY: the caller vouches.
        let stream = unsafe { of(stream) }?;
        let mode = in_mode.map(mode).transpose()?;
        let bytes = usize::try_from(length).map_err(|_| EINVAL)?;
        if region.is_null() {
            return Err(EFAULT);
        }
        told_by(stream.asf_here()?.ok_or(EINVAL)?.raw.resize(region.cast(), bytes, mode, exact))
    })
}

fn region_or_null(resized: Result<RawRegion, Errno>) -> *mut c_void {
    match resized {
        Ok(region) => region.at.cast(),
        Err(e) => {
            told(e);
            std::ptr::null_mut()
        }
    }
}

/// See `srealloc` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sfree`], where the region moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_srealloc(stream: *mut NfStream, region: *mut c_void, length: c_long) -> *mut c_void {
    // SAFETY: the caller vouches.
    region_or_null(unsafe { resize(stream, region, length, None, true) })
}

/// See `Srealloc` in ninefold.h.
///
/// # Safety
///
/// As [`nf_srealloc`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the paper's name")]
pub unsafe extern "C" fn nf_Srealloc(
    stream: *mut NfStream,
    in_mode: c_int,
    region: *mut c_void,
    length: c_long,
) -> *mut c_void {
    // SAFETY: the caller vouches.
    region_or_null(unsafe { resize(stream, region, length, Some(in_mode), true) })
}

/// See `sresize` in ninefold.h.
///
/// # Safety
///
/// As [`nf_srealloc`]; `length` is null or a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sresize(stream: *mut NfStream, region: *mut c_void, length: *mut c_long) -> *mut c_void {
    // SAFETY: null, or the caller vouches.
    let Some(length) = (unsafe { length.as_mut() }) else {
        return region_or_null(Err(EFAULT));
    };
    // SAFETY: the caller vouches.
    match unsafe { resize(stream, region, *length, None, false) } {
        Ok(now) => {
            *length = now.bytes as c_long;
            now.at.cast()
        }
        Err(e) => {
            *length = told(e).into();
            std::ptr::null_mut()
        }
    }
}

/// See `sflush` in ninefold.h.
///
/// # Safety
///
/// `stream` is null or a stream that was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sflush(stream: *mut NfStream) -> c_int {
    // SAFETY: the caller vouches.
    unsafe { done(stream, Asf::flush) }
}

/// See `ssync` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sflush`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_ssync(stream: *mut NfStream) -> c_int {
    // SAFETY: the caller vouches.
    unsafe { done(stream, |asf| told_by(asf.stream().sync())) }
}

/// See `set_stream_mode` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sflush`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_set_stream_mode(stream: *mut NfStream, to: c_int) -> c_int {
    // SAFETY: the caller vouches.
    unsafe { done(stream, |asf| told_by(asf.stream().set_mode(mode(to)?))) }
}

/// See `LockAsfStream` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sflush`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the paper's name")]
pub unsafe extern "C" fn nf_LockAsfStream(stream: *mut NfStream) -> c_int {
    // SAFETY: the caller vouches.
    unsafe {
        done(stream, |asf| {
            asf.raw.lock();
            Ok(())
        })
    }
}

/// See `UnlockAsfStream` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sflush`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the paper's name")]
pub unsafe extern "C" fn nf_UnlockAsfStream(stream: *mut NfStream) -> c_int {
    // SAFETY: the caller vouches.
    unsafe { done(stream, |asf| told_by(asf.raw.unlock())) }
}

/// See `sclaim` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sflush`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sclaim(stream: *mut NfStream) -> c_int {
    // SAFETY: the caller vouches.
    unsafe {
        done(stream, |asf| {
            asf.stream().use_in_this_thread();
            Ok(())
        })
    }
}

/// See `scopy` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sflush`], of both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_scopy(from: *mut NfStream, to: *mut NfStream, bytes: c_longlong) -> c_longlong {
    call(|| {
        let bytes = u64::try_from(bytes).map_err(|_| EINVAL)?;
        // SAFETY: the caller vouches.
        let (from, to) = unsafe { (lending(from)?, lending(to)?) };
        told_by(ninefold_stream::copy(from.stream(), to.stream(), bytes)).map(|copied| copied as i64)
    })
}

/// See `spush` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sflush`]; `module` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_spush(stream: *mut NfStream, module: *const c_char) -> c_int {
    let push = |asf: &Asf| {
        // SAFETY: the caller vouches.
        let module = unsafe { text(module) }?;
        told_by(asf.stream().push(module.to_str().map_err(|_| EINVAL)?))
    };
    // SAFETY: the caller vouches.
    unsafe { done(stream, push) }
}

/// See `spop` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sflush`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_spop(stream: *mut NfStream) -> c_int {
    // SAFETY: the caller vouches.
    unsafe { done(stream, |asf| told_by(asf.stream().pop())) }
}

/// Names of modules, as C has them: docs/stream.md has the list.
const MODULES: [&CStr; 18] = [
    c"ring",
    c"mmap",
    c"pread",
    c"pread-random",
    c"pwrite",
    c"read-write",
    c"read-write-random",
    c"append",
    c"pipe",
    c"terminal",
    c"directory",
    c"ninep",
    c"ninep-stream",
    c"gzip",
    c"zstd",
    c"prefetch",
    c"closed",
    c"unknown",
];

/// See `smodule` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sflush`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_smodule(stream: *mut NfStream) -> *const c_char {
    let name = attempt(|| {
        // SAFETY: the caller vouches.
        let name = unsafe { lending(stream) }?.stream().module();
        let known = MODULES.iter().find(|known| known.to_bytes() == name.as_bytes());
        Ok(known.unwrap_or(&c"unknown").as_ptr())
    });
    name.unwrap_or_else(|e| {
        told(e);
        std::ptr::null()
    })
}

/// See `sposition` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sflush`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sposition(stream: *mut NfStream) -> c_longlong {
    // SAFETY: the caller vouches.
    call(|| Ok(unsafe { lending(stream) }?.stream().position() as i64))
}

/// The calls that do not lock the stream. Where this thread has the lock, those that do find it taken, and go the same short way; where it
/// has not, they are right all the same. So they are the same calls.
macro_rules! unlocked {
    ($($name:ident is $call:ident($($arg:ident: $type:ty),*) -> $gives:ty;)*) => {$(
        /// See `LockAsfStream` in ninefold.h.
        ///
        /// # Safety
        ///
        /// As the call that locks.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the paper's name")]
        pub unsafe extern "C" fn $name(stream: *mut NfStream $(, $arg: $type)*) -> $gives {
            // SAFETY: the caller vouches.
            unsafe { $call(stream $(, $arg)*) }
        }
    )*};
}

unlocked! {
    nf_u_salloc is nf_salloc(length: *mut c_long) -> *mut c_void;
    nf_u_sfree is nf_sfree(region: *mut c_void) -> c_int;
    nf_u_srealloc is nf_srealloc(region: *mut c_void, length: c_long) -> *mut c_void;
    nf_u_sallocAt is nf_sallocAt(length: *mut c_long, offset: c_longlong, whence: c_int) -> *mut c_void;
    nf_u_sflush is nf_sflush() -> c_int;
    nf_u_Salloc is nf_Salloc(in_mode: c_int, length: *mut c_long) -> *mut c_void;
    nf_u_SallocAt is nf_SallocAt(in_mode: c_int, length: *mut c_long, offset: c_longlong, whence: c_int) -> *mut c_void;
    nf_u_set_stream_mode is nf_set_stream_mode(to: c_int) -> c_int;
}

#[cfg(test)]
mod tests {
    use ninefold_stream::{Mode, Options};

    use super::*;

    #[test]
    fn every_module_that_can_be_had_has_a_name_for_c() {
        let names = MODULES.map(|name| name.to_str().unwrap());
        let listed = include_str!("../../../docs/stream.md");
        // The tables of which the first column is a name, not that of the machine's constants.
        let tables = listed.split("| Name |").skip(1).map(|table| table.split("\n\n").next().unwrap_or(table));
        let rows = tables.flat_map(str::lines).filter_map(|line| line.strip_prefix("| `"));
        let modules = rows.filter_map(|row| row.split_once('|')).flat_map(|(names, _)| names.split('`'));
        let modules: Vec<&str> =
            modules.map(|name| name.trim_matches([',', ' '])).filter(|name| !name.is_empty()).collect();
        for module in ["mmap", "append", "zstd"] {
            assert!(modules.contains(&module), "{modules:?}");
        }
        for module in modules {
            assert!(names.contains(&module), "{module}");
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(names.contains(&Options::new().take(file.into()).unwrap().module()));
    }

    #[test]
    fn modes_are_the_papers_numbers() {
        assert_eq!((mode(0), mode(1)), (Ok(Mode::Read), Ok(Mode::Write)));
        assert_eq!((mode(2), mode(-1)), (Err(EINVAL), Err(EINVAL)));
    }
}
