//! Standard I/O on streams (S3, section 4.2): what `sfopen` and its like are in the header. Nothing is buffered here, so these calls and those
//! on regions mix.

use std::ffi::{c_char, c_int, c_long, c_longlong, c_void};

use nine::proto::Errno;
use nix::libc::{self, FILE, size_t};

use crate::asf::{Asf, Buffering, Taken, place};
use crate::asi::{done, lending, ready, told_by};
use crate::fence::{
    EFAULT, EINVAL, EISDIR, ENOMEM, EOVERFLOW, all, attempt, bytes_to_fill, call, call_int, text, told,
};
use crate::stream_io::{NfStream, handed_out, nf_sclose};

/// As stdio.h has it: no byte.
const EOF: c_int = libc::EOF;

/// The flags of open(2) for a mode of fopen(3).
fn flags(mode: &[u8]) -> Result<c_int, Errno> {
    let (&first, rest) = mode.split_first().ok_or(EINVAL)?;
    let both = rest.contains(&b'+');
    let (alone, more) = match first {
        b'r' => (libc::O_RDONLY, 0),
        b'w' => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
        b'a' => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
        _ => return Err(EINVAL),
    };
    let exclusive = if rest.contains(&b'x') { libc::O_EXCL } else { 0 };
    Ok(more | exclusive | if both { libc::O_RDWR } else { alone })
}

/// See `sfopen` in ninefold.h.
///
/// # Safety
///
/// Each is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sfopen(name: *const c_char, mode: *const c_char) -> *mut NfStream {
    let begun = attempt(|| {
        // SAFETY: the caller vouches.
        let (name, mode) = unsafe { (text(name)?, text(mode)?) };
        let asf = Asf::open(name, flags(mode.to_bytes())?, 0o666, None)?;
        // What a directory lends are no characters.
        if asf.stream().module() == "directory" { Err(EISDIR) } else { NfStream::new(asf) }
    });
    // SAFETY: null is allowed.
    unsafe { handed_out(begun, std::ptr::null_mut()) }
}

/// See `sfclose` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sclose`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sfclose(stream: *mut NfStream) -> c_int {
    // SAFETY: the caller vouches.
    unsafe { nf_sclose(stream) }
}

/// Bytes of so many items, and none of a size of 0.
fn bytes_of(size: size_t, items: size_t) -> Result<usize, Errno> {
    let bytes = size.checked_mul(items).filter(|&bytes| isize::try_from(bytes).is_ok());
    bytes.ok_or(EOVERFLOW)
}

/// See `sfread` in ninefold.h.
///
/// # Safety
///
/// `stream` is null or a stream that was not closed; `items` times `size` bytes from `to` on are the caller's, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sfread(to: *mut c_void, size: size_t, items: size_t, stream: *mut NfStream) -> c_long {
    call(|| {
        // SAFETY: the caller vouches.
        let asf = unsafe { lending(stream) }?;
        let bytes = bytes_of(size, items)?;
        let mut have = 0;
        while have < bytes {
            let at = to.wrapping_byte_add(have);
            // SAFETY: the caller vouches.
            let room = unsafe { bytes_to_fill(if to.is_null() { to } else { at }, bytes - have) }?;
            match asf.read(room) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(e) => {
                    // The next call meets it again, and reads what has come of an item that is not whole.
                    let part = have % size;
                    // SAFETY: so many bytes were read to there.
                    let back = unsafe { std::slice::from_raw_parts(to.cast::<u8>().wrapping_add(have - part), part) };
                    let _ = asf.put_back(back); // who hears of both wants to know of the first
                    if have < size {
                        return Err(e);
                    }
                    break;
                }
            }
        }
        Ok(have.checked_div(size).unwrap_or(0) as i64)
    })
}

/// See `sfwrite` in ninefold.h.
///
/// # Safety
///
/// `stream` is null or a stream that was not closed; `items` times `size` bytes from `from` on can be read, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sfwrite(from: *const c_void, size: size_t, items: size_t, stream: *mut NfStream) -> c_long {
    call(|| {
        // SAFETY: the caller vouches.
        let (asf, bytes) = unsafe { (lending(stream)?, all(from, bytes_of(size, items)?)?) };
        put(asf, bytes).count(size).map(|items| items as i64)
    })
}

/// Writes, and flushes where that is to be.
pub fn put(asf: &Asf, bytes: &[u8]) -> Taken {
    let flushes = match asf.buffering() {
        Buffering::Full => false,
        Buffering::Line => bytes.contains(&b'\n'),
        Buffering::None => true,
    };
    if flushes { asf.write_and_flush(bytes) } else { asf.write(bytes) }
}

/// See `sgetc` in ninefold.h.
///
/// # Safety
///
/// `stream` is null or a stream that was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sgetc(stream: *mut NfStream) -> c_int {
    // SAFETY: the caller vouches.
    if let Some(byte) = unsafe { ready(stream) }.and_then(|asf| asf.raw.quick_get()) {
        return byte.into();
    }
    call_int(|| {
        let mut byte = [0];
        // SAFETY: the caller vouches.
        let read = unsafe { lending(stream) }?.read(&mut byte)?;
        Ok(if read == 0 { EOF } else { byte[0].into() })
    })
}

/// See `sputc` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sgetc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sputc(byte: c_int, stream: *mut NfStream) -> c_int {
    let byte = byte as u8;
    // SAFETY: the caller vouches.
    if let Some(asf) = unsafe { ready(stream) }
        && asf.buffering() == Buffering::Full
        && asf.raw.quick_put(byte)
    {
        return byte.into();
    }
    call_int(|| {
        // SAFETY: the caller vouches.
        put(unsafe { lending(stream) }?, &[byte]).all().map(|()| byte.into())
    })
}

/// See `sputs` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sgetc`]; `words` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sputs(words: *const c_char, stream: *mut NfStream) -> c_int {
    call_int(|| {
        // SAFETY: the caller vouches.
        let (asf, words) = unsafe { (lending(stream)?, text(words)?) };
        // What is not whole is an error, the one that the next call meets too.
        put(asf, words.to_bytes()).all().map(|()| 0)
    })
}

/// See `sgets` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sgetc`]; `size` bytes from `to` on are the caller's, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sgets(to: *mut c_char, size: c_int, stream: *mut NfStream) -> *mut c_char {
    let line = attempt(|| {
        // SAFETY: the caller vouches.
        let asf = unsafe { lending(stream) }?;
        let size = usize::try_from(size).ok().filter(|&size| size > 0).ok_or(EINVAL)?;
        if to.is_null() {
            return Err(EFAULT);
        }
        // SAFETY: the caller vouches.
        let room = unsafe { bytes_to_fill(to.cast(), size) }?;
        let have = asf.line(&mut room[..size - 1])?;
        room[have] = 0;
        Ok(have > 0 || size == 1)
    });
    match line {
        Ok(true) => to,
        Ok(false) => {
            nix::errno::Errno::clear();
            std::ptr::null_mut()
        }
        Err(e) => {
            told(e);
            std::ptr::null_mut()
        }
    }
}

/// See `sungetc` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sgetc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sungetc(byte: c_int, stream: *mut NfStream) -> c_int {
    call_int(|| {
        // SAFETY: the caller vouches.
        let asf = unsafe { lending(stream) }?;
        if byte == EOF {
            return Ok(EOF);
        }
        told_by(asf.stream().unread(byte as u8))?;
        Ok((byte as u8).into())
    })
}

/// See `sfseek` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sgetc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sfseek(stream: *mut NfStream, offset: c_longlong, whence: c_int) -> c_int {
    // SAFETY: the caller vouches.
    unsafe { done(stream, |asf| told_by(asf.stream().seek(place(offset, whence)?)).map(drop)) }
}

/// See `sftell` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sgetc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sftell(stream: *mut NfStream) -> c_longlong {
    // SAFETY: the caller vouches.
    call(|| Ok(unsafe { lending(stream) }?.stream().position() as i64))
}

/// See `sfflush` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sgetc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sfflush(stream: *mut NfStream) -> c_int {
    // SAFETY: the caller vouches.
    unsafe { done(stream, Asf::flush) }
}

/// See `ssetvbuf` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sgetc`]; of `_buffer` nothing is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_ssetvbuf(stream: *mut NfStream, _buffer: *mut c_char, mode: c_int, _size: size_t) -> c_int {
    // SAFETY: the caller vouches.
    unsafe { done(stream, |asf| Buffering::of(mode).map(|how| asf.set_buffering(how))) }
}

unsafe extern "C" {
    /// stdio.h. A `va_list` is a pointer where it is passed on: the System V ABIs of x86-64, AArch64 and RISC-V.
    fn vfscanf(file: *mut FILE, form: *const c_char, rest: *mut c_void) -> c_int;
    /// stdio.h; the functions by value.
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
}

/// `cookie_io_functions_t`.
#[repr(C)]
struct CookieFunctions {
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> isize>,
    write: Option<unsafe extern "C" fn()>,
    seek: Option<unsafe extern "C" fn()>,
    close: Option<unsafe extern "C" fn()>,
}

/// What scanf(3) reads from, a byte at a time.
struct Scanned<'a> {
    asf: &'a Asf,
    failed: Option<Errno>,
    /// Scanning is over: what is left in the FILE goes back.
    over: bool,
}

unsafe extern "C" fn scanned(cookie: *mut c_void, to: *mut c_char, count: size_t) -> isize {
    // SAFETY: `nf_svfscanf`'s, which lives longer than the FILE, and nobody else uses meanwhile.
    let scanned = unsafe { &mut *cookie.cast::<Scanned<'_>>() };
    if scanned.over || count == 0 {
        return 0;
    }
    let mut byte = [0];
    match attempt(|| scanned.asf.read(&mut byte)) {
        Ok(0) => 0,
        Ok(_) => {
            // SAFETY: one byte of the room that the C library gives.
            unsafe { to.write(byte[0].cast_signed()) };
            1
        }
        Err(e) => {
            scanned.failed = Some(e);
            told(e);
            -1
        }
    }
}

/// See `sfscanf` in ninefold.h.
///
/// # Safety
///
/// As [`nf_sgetc`]; `form` is null or a string, and `rest` the `va_list` that it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_svfscanf(stream: *mut NfStream, form: *const c_char, rest: *mut c_void) -> c_int {
    call_int(|| {
        // SAFETY: the caller vouches.
        let (asf, form) = unsafe { (lending(stream)?, text(form)?) };
        let mut cookie = Scanned { asf, failed: None, over: false };
        let pointer = &raw mut cookie;
        let functions = CookieFunctions { read: Some(scanned), write: None, seek: None, close: None };
        // SAFETY: the cookie is used until the FILE is closed, below.
        let file = unsafe { fopencookie(pointer.cast(), c"r".as_ptr(), functions) };
        if file.is_null() {
            return Err(ENOMEM);
        }
        asf.raw.lock();
        // SAFETY: an open FILE, which is nobody else's; the rest the caller vouches for.
        let (matched, left) = unsafe {
            // A byte at a time: no more is read than is looked at.
            libc::setvbuf(file, std::ptr::null_mut(), libc::_IONBF, 0);
            let matched = vfscanf(file, form.as_ptr(), rest);
            (*pointer).over = true;
            // What was looked at and is of no use was put back into the FILE: one byte at most.
            let left = libc::fgetc(file);
            libc::fclose(file);
            (matched, left)
        };
        let back = match u8::try_from(left) {
            Ok(byte) => told_by(asf.stream().unread(byte)),
            Err(_) => Ok(()),
        };
        let unlocked = told_by(asf.raw.unlock());
        // SAFETY: the FILE is closed.
        let failed = unsafe { (*pointer).failed };
        match failed {
            Some(e) if matched <= 0 => Err(e),
            _ => back.and(unlocked).map(|()| matched),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_fopen_are_flags_of_open() {
        for (mode, expected) in [
            ("r", libc::O_RDONLY),
            ("rb+", libc::O_RDWR),
            ("w", libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC),
            ("w+x", libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_EXCL),
            ("ae", libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND),
            ("a+", libc::O_RDWR | libc::O_CREAT | libc::O_APPEND),
        ] {
            assert_eq!(flags(mode.as_bytes()), Ok(expected), "{mode}");
        }
        assert_eq!((flags(b""), flags(b"x"), flags(b"+r")), (Err(EINVAL), Err(EINVAL), Err(EINVAL)));
    }
}
