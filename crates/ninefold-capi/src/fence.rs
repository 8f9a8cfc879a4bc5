//! Between C and Rust: no panic goes out, no bad pointer comes in, and every error is a number.
//!
//! A function that C calls is [`call`] around a closure; the closure takes C's pointers by [`text`], [`source`], [`all`] and [`room`], which
//! check what can be checked.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nine::client::Error;
use nine::proto::Errno;
use nix::libc;

/// The most bytes of one read or write: what Linux takes (read(2), NOTES). More is cut to it.
pub const COUNT_MAX: usize = 0x7fff_f000;

/// The largest number that errno has (include/linux/err.h, MAX_ERRNO).
const ERRNO_MAX: u32 = 4095;

pub const EBUSY: Errno = os(libc::EBUSY);
pub const EBADF: Errno = os(libc::EBADF);
pub const EDEADLK: Errno = os(libc::EDEADLK);
pub const EEXIST: Errno = os(libc::EEXIST);
pub const EFAULT: Errno = os(libc::EFAULT);
pub const EFBIG: Errno = os(libc::EFBIG);
pub const EINVAL: Errno = os(libc::EINVAL);
pub const EIO: Errno = os(libc::EIO);
pub const EISDIR: Errno = os(libc::EISDIR);
pub const ELOOP: Errno = os(libc::ELOOP);
pub const EMFILE: Errno = os(libc::EMFILE);
pub const ENOENT: Errno = os(libc::ENOENT);
pub const ENOMEM: Errno = os(libc::ENOMEM);
pub const ENOTDIR: Errno = os(libc::ENOTDIR);
pub const ENXIO: Errno = os(libc::ENXIO);
pub const EOPNOTSUPP: Errno = os(libc::EOPNOTSUPP);
pub const EOVERFLOW: Errno = os(libc::EOVERFLOW);
pub const EPIPE: Errno = os(libc::EPIPE);
pub const ESPIPE: Errno = os(libc::ESPIPE);
pub const ESTALE: Errno = os(libc::ESTALE);

pub const fn os(number: i32) -> Errno {
    Errno(number.unsigned_abs())
}

/// The number of a client's error, as [`Error::errno`] gives it.
pub fn errno_of(error: &Error) -> Errno {
    error.errno()
}

/// The number of a stream's error.
pub fn errno_of_stream(error: ninefold_stream::Error) -> Errno {
    os(error.errno().raw_os_error())
}

/// The same of an error that came by `std::io`'s traits.
pub fn errno_of_io(error: &std::io::Error) -> Errno {
    let within = error.get_ref().and_then(|error| error.downcast_ref::<ninefold_stream::Error>());
    within.map(|&error| errno_of_stream(error)).or_else(|| error.raw_os_error().map(os)).unwrap_or(EIO)
}

/// Sets errno, and gives the number as C gets it: from -1 to -4095. What a server says may be any number; one that errno
/// does not have is EIO.
pub fn told(errno: Errno) -> i32 {
    let number = if (1..=ERRNO_MAX).contains(&errno.0) { errno.0 } else { EIO.0 }.cast_signed();
    nix::errno::Errno::set_raw(number);
    -number
}

/// Runs what a call of C does. An error is its negative number; so is a panic, as EIO, for nothing may unwind into C.
pub fn call(op: impl FnOnce() -> Result<i64, Errno>) -> i64 {
    attempt(op).unwrap_or_else(|e| told(e).into())
}

/// The same for a function that gives an int.
pub fn call_int(op: impl FnOnce() -> Result<i32, Errno>) -> i32 {
    attempt(op).unwrap_or_else(told)
}

/// Runs it, and makes an error of a panic.
pub fn attempt<T>(op: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // What a panic may leave half-done is behind locks that are taken again whatever they were left by: a file's place is one
    // number, a table one map. A stream of the thesis is more, and is EIO from then on; one that lends
    // regions is not left half-done, for nothing in its sections panics but what is wrong in the library itself.
    catch_unwind(AssertUnwindSafe(op)).unwrap_or(Err(EIO))
}

/// A text of C. Null is EFAULT.
///
/// # Safety
///
/// `text` is null, or ends in a NUL and does not change while what is given is used.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a CStr, Errno> {
    if text.is_null() {
        return Err(EFAULT);
    }
    // SAFETY: not null, and for the rest the caller vouches.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// `count` bytes of C to read from, or as many as [`COUNT_MAX`]. Null is EFAULT, unless there are none.
///
/// # Safety
///
/// As [`all`].
pub unsafe fn source<'a>(bytes: *const c_void, count: usize) -> Result<&'a [u8], Errno> {
    // SAFETY: the caller vouches.
    unsafe { all(bytes, count.min(COUNT_MAX)) }
}

/// `count` bytes of C to read from. Null is EFAULT, unless there are none; so are more than there can be.
///
/// # Safety
///
/// `bytes` is null, or `count` bytes from there on can be read and do not change while what is given is used.
pub unsafe fn all<'a>(bytes: *const c_void, count: usize) -> Result<&'a [u8], Errno> {
    match (bytes.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(EFAULT),
        (_, count) if isize::try_from(count).is_err() => Err(EFAULT),
        // SAFETY: not null, no more than isize::MAX, and for the rest the caller vouches.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), count) }),
    }
}

/// `count` bytes of C to fill. Null is EFAULT, unless there are none.
///
/// # Safety
///
/// `bytes` is null, or `count` bytes from there on are nobody else's while what is given is used.
pub unsafe fn room<'a>(bytes: *mut c_void, count: usize) -> Result<Room<'a>, Errno> {
    let count = count.min(COUNT_MAX);
    match (bytes.is_null(), count) {
        (_, 0) => Ok(Room { left: &mut [], filled: 0 }),
        (true, _) => Err(EFAULT),
        (false, _) => {
            // SAFETY: not null, and for the rest the caller vouches; they need not have been written before.
            let left = unsafe { std::slice::from_raw_parts_mut(bytes.cast::<MaybeUninit<u8>>(), count) };
            Ok(Room { left, filled: 0 })
        }
    }
}

/// `count` bytes of C to fill, for who must have bytes that have a value: those of C have some. Null is EFAULT, unless there are none.
///
/// # Safety
///
/// As [`room`].
pub unsafe fn bytes_to_fill<'a>(bytes: *mut c_void, count: usize) -> Result<&'a mut [u8], Errno> {
    match (bytes.is_null(), count.min(COUNT_MAX)) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(EFAULT),
        // SAFETY: not null, and for the rest the caller vouches.
        (false, count) => Ok(unsafe { std::slice::from_raw_parts_mut(bytes.cast(), count) }),
    }
}

/// A buffer of C that is filled from its first byte on.
pub struct Room<'a> {
    left: &'a mut [MaybeUninit<u8>],
    filled: usize,
}

impl Room<'_> {
    /// Bytes that still fit.
    pub fn left(&self) -> usize {
        self.left.len()
    }

    /// Bytes that were put in.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Lets `read` fill at most `most` of the bytes that are left, from the first on, and tell how many it filled.
    pub fn fill<E>(
        &mut self,
        most: usize,
        read: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let most = most.min(self.left.len());
        let count = read(&mut self.left[..most])?.min(most);
        self.left = &mut std::mem::take(&mut self.left)[count..];
        self.filled += count;
        Ok(count)
    }

    /// Puts in as many bytes as fit, and gives how many.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.left.len());
        let (now, rest) = std::mem::take(&mut self.left).split_at_mut(count);
        now.iter_mut().zip(bytes).for_each(|(to, from)| {
            to.write(*from);
        });
        self.left = rest;
        self.filled += count;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_input_and_output_and_goes_no_further() {
        std::panic::set_hook(Box::new(|_| ()));
        assert_eq!(call(|| panic!("within a call")), -i64::from(libc::EIO));
        let _ = std::panic::take_hook();
        assert_eq!(nix::errno::Errno::last_raw(), libc::EIO);
    }

    #[test]
    fn a_number_that_errno_does_not_have_is_an_error_of_input_and_output() {
        for (number, gives) in [(2, -2), (4095, -4095), (0, -libc::EIO), (4096, -libc::EIO), (u32::MAX, -libc::EIO)] {
            assert_eq!(told(Errno(number)), gives);
            assert_eq!(nix::errno::Errno::last_raw(), -gives);
        }
    }

    #[test]
    fn null_is_refused_unless_it_stands_for_no_bytes() {
        // SAFETY: null is allowed.
        unsafe {
            assert_eq!(text(std::ptr::null()), Err(EFAULT));
            assert_eq!(source(std::ptr::null(), 1), Err(EFAULT));
            assert_eq!(source(std::ptr::null(), 0), Ok(&[][..]));
            assert_eq!(room(std::ptr::null_mut(), 1).err(), Some(EFAULT));
            assert_eq!(room(std::ptr::null_mut(), 0).unwrap().left(), 0);
        }
    }

    #[test]
    fn a_room_takes_what_fits_and_no_more() {
        let mut bytes = *b"......";
        // SAFETY: five of the six bytes, borrowed by nobody else until they are looked at.
        let mut room = unsafe { room(bytes.as_mut_ptr().cast(), 5) }.unwrap();
        assert_eq!((room.put(b"abc"), room.put(b"def"), room.put(b"g")), (3, 2, 0));
        assert_eq!((room.left(), room.filled()), (0, 5));
        assert_eq!(&bytes, b"abcde.");
    }
}
