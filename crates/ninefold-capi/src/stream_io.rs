//! Streams: what `stream` and its like are in the header. C holds an [`NfStream`] by a pointer, from [`nf_stream_range`] or
//! `nf_sopen` to [`nf_sclose`].
//!
//! It is one of two: a [`Stream`] of the thesis, or an [`Asf`], whose regions are lent. A stream of the thesis on a file here becomes an [`Asf`]
//! by the first call that needs one, and stays it.

use std::ffi::{c_char, c_int, c_long, c_longlong, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};

use nine::proto::Errno;

use crate::asf::Asf;
use crate::fence::{
    EBADF, EBUSY, EFAULT, EINVAL, EIO, EOPNOTSUPP, all, attempt, bytes_to_fill, call, call_int, room, told,
};
use crate::handles::{self, Handle};
use crate::process::{Birth, Process};
use crate::stream::{Range, Stream};
use crate::unix_io::descriptor;

/// What C has a pointer to, from a Box.
#[repr(C)]
pub struct NfStream {
    /// First: the header's own.
    front: Front,
    /// For every call on regions looks.
    asf: OnceLock<Arc<Asf>>,
    born: Birth,
    /// Whose connection it goes by; none that is of a file here.
    process: Option<&'static Process>,
    /// Calls on it from several threads take turns. None that was an `Asf` from the beginning on; beside one it is what that one was made of.
    stream: Mutex<Option<Stream>>,
}

/// `NfFront` of the header: where its short ways find what they need.
#[repr(C)]
struct Front {
    /// Written last: who sees it sees the rest.
    owner: AtomicPtr<AtomicUsize>,
    buffer: AtomicPtr<c_void>,
    /// Good from the beginning on: short ways write to the seat before they know whose the stream is.
    seat: isize,
}

/// Owned by nobody, for streams that lend no regions yet.
static UNOWNED: AtomicUsize = AtomicUsize::new(0);

impl Front {
    fn new() -> Front {
        let owner = AtomicPtr::new((&raw const UNOWNED).cast_mut());
        // Where it cannot be told the header has no short ways.
        Front { owner, buffer: AtomicPtr::default(), seat: ninefold_stream::seat_place().unwrap_or(0) }
    }

    /// From now on short ways are granted, on memory that `asf` keeps.
    fn open(&self, asf: &Asf) {
        let front = asf.raw.front();
        self.buffer.store(front.current, Ordering::Relaxed);
        self.owner.store(front.owner.cast_mut(), Ordering::Release);
    }
}

impl NfStream {
    pub fn new(asf: Asf) -> Result<NfStream, Errno> {
        let front = Front::new();
        front.open(&asf);
        let process = asf.process();
        Ok(NfStream { front, asf: Arc::new(asf).into(), born: Birth::begin()?, process, stream: Mutex::new(None) })
    }

    /// As it is, or None where no region was asked for yet.
    #[inline(always)]
    pub fn asf(&self) -> Option<&Asf> {
        self.asf.get().map(Arc::as_ref)
    }

    /// The same, in the process that has it.
    pub fn asf_here(&self) -> Result<Option<&Asf>, Errno> {
        if self.is_elsewhere() { Err(EBADF) } else { Ok(self.asf()) }
    }

    /// A child of fork(2) has none of its parent's connections, and perhaps locks that nobody opens.
    fn is_elsewhere(&self) -> bool {
        self.process.is_some_and(|process| !process.is_this())
    }

    /// As it is, or as it becomes.
    pub fn become_asf(&self) -> Result<&Asf, Errno> {
        if let Some(asf) = self.asf_here()? {
            return Ok(asf);
        }
        let mut stream = self.lock()?;
        if self.asf().is_none() {
            let asf = stream.as_mut().ok_or(EIO)?.as_asf()?;
            // The lock is held, so that nobody else does this.
            let _ = self.asf.set(Arc::new(asf));
            if let Some(asf) = self.asf() {
                self.front.open(asf);
            }
        }
        drop(stream);
        self.asf().ok_or(EIO)
    }

    /// A descriptor of it, for `as_read` and its like.
    pub fn number(&self) -> Result<i32, Errno> {
        if self.is_elsewhere() {
            return Err(EBADF);
        }
        // A child of fork(2) would have the descriptor, and not the connection.
        if self.process.is_some() {
            return Err(EOPNOTSUPP);
        }
        self.become_asf()?;
        let asf = self.asf.get().ok_or(EIO)?;
        handles::insert(Handle::new(Arc::downgrade(asf), std::ptr::from_ref(self).expose_provenance()))
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<Stream>>, Errno> {
        // Looked at before the lock.
        if self.is_elsewhere() {
            return Err(EBADF);
        }
        if self.born.is_this() {
            return self.stream.lock().map_err(|_| EIO);
        }
        self.stream.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => EBADF,
            TryLockError::Poisoned(_) => EIO,
        })
    }

    /// Does the one or the other.
    fn either<T>(
        &self,
        asf: impl FnOnce(&Asf) -> Result<T, Errno>,
        stream: impl FnOnce(&mut Stream) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if let Some(it) = self.asf_here()? {
            return asf(it);
        }
        let mut guard = self.lock()?;
        // It may have become one while the lock was waited for.
        match (self.asf(), guard.as_mut()) {
            (None, Some(it)) => stream(it),
            (None, None) => Err(EIO),
            (Some(it), _) => {
                drop(guard);
                asf(it)
            }
        }
    }

    /// Whether a thread of a parent's was at it when that forked: then it is half of what it was.
    fn is_torn(&self) -> bool {
        !self.born.is_this() && matches!(self.stream.try_lock(), Err(TryLockError::WouldBlock))
    }
}

/// # Safety
///
/// Null, or a stream that was not closed.
pub unsafe fn of<'a>(stream: *const NfStream) -> Result<&'a NfStream, Errno> {
    // SAFETY: the caller vouches.
    unsafe { stream.as_ref() }.ok_or(EFAULT)
}

fn length(count: c_long) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| EINVAL)
}

/// See `sfileno` in ninefold.h.
///
/// # Safety
///
/// `stream` is null or a stream that was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sfileno(stream: *mut NfStream) -> c_int {
    // SAFETY: the caller vouches.
    call_int(|| unsafe { of(stream) }?.number())
}

/// See `as_stream` in ninefold.h.
///
/// # Safety
///
/// `error` is null or a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_as_stream(fd: c_int, error: *mut c_int) -> *mut NfStream {
    match attempt(|| handles::find(fd).map(|handle| handle.map(|handle| handle.stream()))) {
        Ok(Some(address)) => return std::ptr::with_exposed_provenance_mut(address),
        Ok(None) => {}
        // SAFETY: the caller vouches.
        Err(e) => return unsafe { handed_out(Err(e), error) },
    }
    let begun = attempt(|| {
        if descriptor(fd)?.is_some() {
            return Err(EOPNOTSUPP);
        }
        NfStream::new(Asf::in_place_of(fd)?)
    });
    // SAFETY: the caller vouches.
    unsafe { handed_out(begun, error) }
}

/// See `stream` in ninefold.h.
#[unsafe(no_mangle)]
pub extern "C" fn nf_stream(fd: c_int, offset: c_longlong, isread: c_char) -> *mut NfStream {
    // SAFETY: null is allowed.
    unsafe { nf_stream_range(fd, offset, 0, isread, std::ptr::null_mut()) }
}

/// See `nf_stream_range` in ninefold.h.
///
/// # Safety
///
/// `error` is null or a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_stream_range(
    fd: c_int,
    offset: c_longlong,
    length: c_longlong,
    isread: c_char,
    error: *mut c_int,
) -> *mut NfStream {
    let begun = attempt(|| {
        let range = Range::new(offset, length, isread)?;
        let born = Birth::begin()?;
        let (process, stream) = match descriptor(fd)? {
            None => (None, Stream::here(fd, range)?),
            Some((process, descriptor)) => (Some(process), Stream::there(process, descriptor, range)?),
        };
        Ok(NfStream { front: Front::new(), asf: OnceLock::new(), born, process, stream: Mutex::new(Some(stream)) })
    });
    // SAFETY: the caller vouches.
    unsafe { handed_out(begun, error) }
}

/// What a call that begins a stream gives.
///
/// # Safety
///
/// `error` is null or a number of the caller's.
pub unsafe fn handed_out(begun: Result<NfStream, Errno>, error: *mut c_int) -> *mut NfStream {
    match begun {
        Ok(stream) => Box::into_raw(Box::new(stream)),
        Err(e) => {
            let number = told(e);
            // SAFETY: null, or the caller vouches.
            if let Some(error) = unsafe { error.as_mut() } {
                *error = number;
            }
            std::ptr::null_mut()
        }
    }
}

/// See `sread` in ninefold.h.
///
/// # Safety
///
/// `stream` is null or a stream that was not closed; `count` bytes from `bytes` on are the caller's, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sread(stream: *mut NfStream, bytes: *mut c_void, count: c_long) -> c_long {
    call(|| {
        let count = length(count)?;
        let lent = |asf: &Asf| {
            // SAFETY: the caller vouches.
            asf.read(unsafe { bytes_to_fill(bytes, count) }?)
        };
        let own = |stream: &mut Stream| {
            // SAFETY: the caller vouches.
            let mut room = unsafe { room(bytes, count) }?;
            stream.read(&mut room)?;
            Ok(room.filled())
        };
        // SAFETY: the caller vouches.
        let read = unsafe { of(stream) }?.either(lent, own)?;
        Ok(read as i64)
    })
}

/// See `swrite` in ninefold.h.
///
/// # Safety
///
/// `stream` is null or a stream that was not closed; `count` bytes from `bytes` on can be read, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_swrite(stream: *mut NfStream, bytes: *const c_void, count: c_long) -> c_long {
    call(|| {
        // SAFETY: the caller vouches.
        let (stream, bytes) = unsafe { (of(stream)?, all(bytes, length(count)?)?) };
        let taken =
            stream.either(|asf| asf.write(bytes).count(1), |stream| stream.write(bytes).map(|()| bytes.len()))?;
        Ok(taken as i64)
    })
}

/// See `sclose` in ninefold.h.
///
/// # Safety
///
/// `stream` is null or a stream that was not closed, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_sclose(stream: *mut NfStream) -> c_int {
    call_int(|| {
        // SAFETY: the caller vouches.
        let open = unsafe { stream.as_mut() }.ok_or(EFAULT)?;
        let is_elsewhere = open.is_elsewhere();
        // Looked at before, so that its descriptors go on with it.
        if !is_elsewhere && open.asf().is_some_and(|asf| asf.raw.is_lent()) {
            return Err(EBUSY);
        }
        // While a call by one of its descriptors is in it, it goes on.
        let whole = open.asf.take().map(Arc::try_unwrap).transpose().map_err(|asf| {
            let _ = open.asf.set(asf);
            EBUSY
        })?;
        let lent = match whole.map(|asf| if is_elsewhere { Err(asf.leave()) } else { asf.close() }) {
            None => Ok(()),
            Some(Ok(())) => Ok(()),
            Some(Err((e, None))) => Err(e),
            Some(Err((e, Some(asf)))) => {
                // Regions are out: it goes on.
                let _ = open.asf.set(Arc::new(asf));
                return Err(e);
            }
        };
        // SAFETY: not null, and made by Box in `handed_out`; for the rest the caller vouches.
        let stream = unsafe { Box::from_raw(stream) };
        let is_torn = stream.is_torn();
        let closed = match stream.stream.into_inner() {
            Ok(stream) => stream.map_or(Ok(()), Stream::close),
            Err(left) => left.into_inner().map_or(Ok(()), Stream::close).and(Err(EIO)),
        };
        if is_torn { Err(EBADF) } else { lent.and(closed).map(|()| 0) }
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_stream_in_which_something_panicked_is_none_that_goes_on() {
        let file = tempfile::tempfile().unwrap();
        let s = nf_stream(file.as_raw_fd(), 0, 0);
        std::panic::set_hook(Box::new(|_| ()));
        // SAFETY: just made, and not closed; the byte is there.
        unsafe {
            assert_eq!(nf_swrite(s, c"x".as_ptr().cast(), 1), 1);
            let within = attempt::<()>(|| {
                let _stream = (*s).lock();
                panic!("within a call")
            });
            assert_eq!(within, Err(EIO));
            assert_eq!(nf_swrite(s, c"x".as_ptr().cast(), 1), -c_long::from(EIO.0.cast_signed()));
            assert_eq!(nf_sclose(s), -EIO.0.cast_signed());
        }
        let _ = std::panic::take_hook();
        assert_eq!(file.metadata().unwrap().len(), 1);
    }
}
