//! Regions: what `alloc` lends. Here addresses of the backplane become slices.

use std::ops::{Deref, DerefMut};

use crate::backplane::current::{Current, Mode};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// What a stream lent, on its way to be a region. Short, so that it goes by registers where a call is inlined in part.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Lent {
    pub at: *mut u8,
    pub bytes: usize,
    pub mode: Mode,
}

/// Bytes of a stream, until it is freed or dropped. In read mode data; writing to it changes nothing but this region's own bytes (§2,
/// note 2). In write mode what the stream will write there.
///
/// A region of a mapped file shows the file itself: what another process writes there meanwhile is seen.
pub struct Region<'s> {
    stream: &'s Stream,
    at: *mut u8,
    bytes: usize,
    mode: Mode,
    /// A read region's own bytes, once it was written to.
    own: Option<Box<[u8]>>,
}

// SAFETY: it is the only way to its bytes when they are written, and shares them when they are read; the stream is for all threads.
unsafe impl Send for Region<'_> {}
// SAFETY: through a shared reference the bytes are only read.
unsafe impl Sync for Region<'_> {}

impl<'s> Region<'s> {
    /// What the stream's state lent stays until it is freed once, by this region.
    #[inline(always)]
    pub(crate) fn new(stream: &'s Stream, lent: Lent) -> Self {
        let Lent { at, bytes, mode } = lent;
        Region { stream, at, bytes, mode, own: None }
    }

    /// The mode that it was allocated in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Gives it back (§2, `sfree`). What was written is visible to this process, and goes to the file once all that was allocated
    /// before is free too.
    ///
    /// # Errors
    /// [`Error::Os`]: writing failed; the region is free and its data kept for the next flush. [`Error::Shrunk`].
    #[inline(always)]
    pub fn free(self) -> Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so this is the only one to have the box.
        drop(unsafe { std::ptr::read(&this.own) });
        if this.bytes == 0 { Ok(()) } else { this.stream.free(this.at, this.bytes, this.mode) }
    }

    /// Makes it `bytes` long, if it was allocated last (§2, `srealloc`); the offset of the stream follows its end. Data that it had is
    /// kept, as far as it goes. In read mode it may become shorter than asked, at the end of the file.
    ///
    /// # Errors
    /// [`Error::NotLatest`], and those of `alloc`; the region is as it was.
    pub fn resize(&mut self, bytes: usize) -> Result<()> {
        if self.bytes == 0 {
            return if bytes == 0 { Ok(()) } else { Err(Error::NotLatest) };
        }
        let lent = Lent { at: self.at, bytes: self.bytes, mode: self.mode };
        let (lent, freed) = resize(self.stream, lent, bytes, 0)?;
        (self.at, self.bytes, self.own) = (lent.at, lent.bytes, None);
        freed
    }
}

/// What a region of some bytes is when it is made `bytes` long, and what went wrong when the old one was freed in its place. In read mode it
/// may become shorter than asked, but not than `least`. When it fails all is as it was.
pub(crate) fn resize(stream: &Stream, old: Lent, bytes: usize, least: usize) -> Result<(Lent, Result<()>)> {
    if bytes == 0 {
        // Of no length is as good as freed.
        return Ok((Lent { bytes: 0, ..old }, stream.empty(old)?));
    }
    let new = stream.resize(old, bytes, least)?;
    let freed = if new.at == old.at {
        Ok(())
    } else if old.mode == Mode::Write {
        // SAFETY: two regions of this stream, both out, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(old.at, new.at, old.bytes.min(new.bytes)) };
        stream.free_empty(old.at, old.mode)
    } else {
        stream.free(old.at, old.bytes, old.mode)
    };
    Ok((new, freed))
}

impl Deref for Region<'_> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        if let Some(own) = &self.own {
            return own;
        }
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: lent to this region, initialized, and kept until it is freed. Nobody writes there: of a written region nobody else
        // has the bytes, and read memory is frozen.
        unsafe { std::slice::from_raw_parts(self.at, self.bytes) }
    }
}

impl DerefMut for Region<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        if self.mode == Mode::Read {
            if self.own.is_none() {
                self.own = Some(Box::from(&**self));
            }
            return self.own.as_deref_mut().unwrap_or_default();
        }
        // SAFETY: as in `deref`, and no other region covers them.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }
}

impl Drop for Region<'_> {
    /// As `free`; an error of writing is the next flush's, `Shrunk` the next fill's.
    #[inline(always)]
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.stream.free_unheard(self.at, self.bytes, self.mode);
        }
    }
}

/// How many bytes of the data at hand end with the delimiter, or `most` if they do not; never none. No more than those are looked at. For short sections: the buffer is current and read.
#[inline(always)]
pub(crate) fn find(current: &Current, delimiter: u8, most: usize) -> Option<usize> {
    // SAFETY: the data at hand of a current buffer in read mode, which its memory keeps and nobody writes.
    let data = unsafe { std::slice::from_raw_parts(current.at, current.left.min(most)) };
    match crate::search::find(data, delimiter) {
        Some(n) => Some(n + 1),
        None => without(current, most),
    }
}

#[cold]
fn without(current: &Current, most: usize) -> Option<usize> {
    (current.left >= most && most > 0).then_some(most)
}

/// The next byte of the data at hand, and none is lent. For short sections: the buffer is current and read, and has one.
#[inline(always)]
pub(crate) fn next_byte(current: &mut Current) -> u8 {
    // SAFETY: in the data at hand of a current buffer in read mode, which its memory keeps.
    let byte = unsafe { current.at.read() };
    current.at = current.at.wrapping_add(1);
    current.left -= 1;
    byte
}

/// The next byte of the room at hand is written and free. For short sections: the buffer is current and written, has room, and no region is out.
#[inline(always)]
pub(crate) fn put_byte(current: &mut Current, byte: u8) {
    // SAFETY: in the room of a current buffer in write mode, which its memory keeps, and in no region.
    unsafe { current.at.write(byte) };
    current.at = current.at.wrapping_add(1);
    current.left -= 1;
}

/// The same of several bytes, for which there is room.
#[inline(always)]
pub(crate) fn put_bytes(current: &mut Current, bytes: &[u8]) {
    // SAFETY: as in `put_byte`; nobody has the room, so the bytes do not lie in it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), current.at, bytes.len()) };
    current.at = current.at.wrapping_add(bytes.len());
    current.left -= bytes.len();
}

/// Data at hand, for as long as nobody can use the stream.
pub(crate) fn data_at_hand(stream: &mut Stream) -> Result<&[u8]> {
    let (at, bytes) = stream.peek()?;
    // SAFETY: `&mut` keeps the stream from everybody while the slice lives, so the buffer stays; other streams do not touch it.
    Ok(unsafe { std::slice::from_raw_parts(at, bytes) })
}
