//! The same calls for languages whose regions are addresses, and are freed by them.
//!
//! A [`Raw`] is a stream that keeps account of which addresses are out: a wrong one is [`Error::NotLent`] and does nothing. Bytes of
//! regions that are read may be written to, in memory that is not a file's own nor a ring's, which are protected, and nobody else gets
//! them: who goes back reads again.
//!
//! Order of driving: `quick_alloc`, `quick_until` and `quick_free`, which are short and answer most calls; where they answer none, `alloc`,
//! `until` and `free`.

use std::ffi::c_void;
use std::io::SeekFrom;
use std::mem::offset_of;
use std::sync::atomic::AtomicUsize;

use crate::backplane::current::{Current, Mode};
use crate::backplane::ledger::Ledger;
use crate::backplane::state::State;
use crate::error::{Error, Result};
use crate::memory::PAGE;
use crate::region::{self, Lent};
use crate::stream::{Held, Need, Stream};

/// A region, by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRegion {
    /// Null where there are no bytes. Else so many bytes from here on stay until it is freed.
    pub at: *mut u8,
    /// Bytes.
    pub bytes: usize,
}

impl From<Lent> for RawRegion {
    fn from(Lent { at, bytes, .. }: Lent) -> Self {
        RawRegion { at: if bytes == 0 { std::ptr::null_mut() } else { at }, bytes }
    }
}

/// What to allocate, and where.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Bytes, at most in read mode.
    pub bytes: usize,
    /// None: the stream's mode.
    pub mode: Option<Mode>,
    /// None: at the stream's offset.
    pub to: Option<SeekFrom>,
    /// What the address is a multiple of: a power of two up to 4096.
    pub align: usize,
    /// Of a stream without places too, all or what there is to the end.
    pub full: bool,
}

impl Wanted {
    /// As [`Stream::alloc`] has it.
    pub fn bytes(bytes: usize) -> Self {
        Wanted { bytes, mode: None, to: None, align: 1, full: false }
    }
}

/// The most bytes that a short section copies: who comes meanwhile waits for it without sleeping.
const QUICK: usize = PAGE;

/// A stream whose regions are addresses. It is locked by [`lock`](Self::lock) and [`unlock`](Self::unlock), which make several calls one.
pub struct Raw {
    stream: Stream,
}

impl Raw {
    /// Of a stream of which no region is out.
    pub fn new(stream: Stream) -> Raw {
        stream.hold(false).state.lends_once = true;
        Raw { stream }
    }

    /// For short ways outside, where a thread knows its [`seat_place`](crate::seat_place); it is good as long as this is.
    pub fn front(&self) -> Front {
        let (owner, current) = self.stream.core().front();
        Front { owner, current: current.cast() }
    }

    /// For the calls that have to do with no region of this.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// A region of so many bytes, if it is at hand.
    #[inline(always)]
    pub fn quick_alloc(&self, bytes: usize) -> Option<*mut u8> {
        self.stream.core().quick_by_address(|current, ledger| {
            let place = ledger.vacant()?;
            let at = current.take(bytes)?;
            *place = Lent { at, bytes, mode: current.mode };
            Some(at)
        })
    }

    /// `quick_alloc`, if the stream is in that mode.
    #[inline(always)]
    pub fn quick_alloc_in(&self, mode: Mode, bytes: usize) -> Option<*mut u8> {
        self.stream.core().quick_by_address(|current, ledger| {
            let place = ledger.vacant()?;
            let at = if current.mode == mode { current.take(bytes) } else { None }?;
            *place = Lent { at, bytes, mode };
            Some(at)
        })
    }

    /// As [`Stream::alloc`], [`alloc_in`](Stream::alloc_in), [`alloc_at`](Stream::alloc_at) and so on.
    ///
    /// # Errors
    /// Theirs.
    #[cold]
    pub fn alloc(&self, wanted: Wanted) -> Result<RawRegion> {
        let Wanted { bytes, mode, to, align, full } = wanted;
        if !align.is_power_of_two() || align > PAGE {
            return Err(Error::BadAlignment);
        }
        // Where threads share the stream; the same as `quick_alloc` and `quick_alloc_in` but for the lock.
        if to.is_none() && align == 1 {
            let short = self.stream.core().shared_by_address(|current, ledger| {
                let place = ledger.vacant()?;
                let fits = mode.is_none_or(|mode| mode == current.mode);
                let at = fits.then(|| current.take(bytes)).flatten()?;
                *place = Lent { at, bytes, mode: current.mode };
                Some(RawRegion { at, bytes })
            });
            if let Some(region) = short {
                return Ok(region);
            }
        }
        let need = if full { Need::All } else { Need::AsModule };
        self.lend(|held| held.alloc_as(mode, to, bytes, align, need, &self.stream.core().file))
    }

    /// The bytes up to `delimiter`, with it, if they are at hand.
    #[inline(always)]
    pub fn quick_until(&self, delimiter: u8, most: usize) -> Option<RawRegion> {
        self.stream.core().quick_by_address(|current, ledger| until(current, ledger, delimiter, most))
    }

    /// As [`Stream::alloc_until`].
    ///
    /// # Errors
    /// Its own.
    #[cold]
    pub fn until(&self, delimiter: u8, most: usize) -> Result<RawRegion> {
        let short = self.stream.core().shared_by_address(|current, ledger| until(current, ledger, delimiter, most));
        if let Some(region) = short {
            return Ok(region);
        }
        self.lend(|held| held.search(delimiter, most, &self.stream.core().file))
    }

    /// The next byte in read mode, if it is at hand.
    #[inline(always)]
    pub fn quick_get(&self) -> Option<u8> {
        self.stream.core().quick_by_address(|current, _| {
            let ready = current.mode == Mode::Read && current.left > 0 && current.is_fresh();
            ready.then(|| region::next_byte(current))
        })
    }

    /// Writes the next byte in write mode, if there is room at hand and no region is out.
    #[inline(always)]
    pub fn quick_put(&self, byte: u8) -> bool {
        let put = self.stream.core().quick_by_address(|current, _| {
            let ready = current.mode == Mode::Write && current.left > 0 && current.out() == 0 && !current.loud;
            ready.then(|| region::put_byte(current, byte))
        });
        put.is_some()
    }

    /// Writes all of the bytes, few as they are, if there is room at hand and no region is out. No other call comes between.
    #[inline]
    pub fn quick_write(&self, bytes: &[u8]) -> bool {
        let put = self.stream.core().quick_by_address(|current, _| {
            let fits = current.mode == Mode::Write && bytes.len() <= current.left.min(QUICK);
            let ready = fits && !bytes.is_empty() && current.out() == 0 && !current.loud;
            ready.then(|| region::put_bytes(current, bytes))
        });
        put.is_some()
    }

    fn lend(&self, alloc: impl FnOnce(&mut Held<'_>) -> Result<Lent>) -> Result<RawRegion> {
        let mut held = self.stream.hold(true);
        held.state.ledger.reserve()?;
        let lent = alloc(&mut held)?;
        held.state.ledger.put(lent);
        Ok(lent.into())
    }

    /// Frees the region that begins there, if that takes no more than to count it.
    #[inline(always)]
    pub fn quick_free(&self, at: *mut u8) -> bool {
        self.stream.core().quick_by_address(|current, ledger| give(current, ledger, at)).is_some()
    }

    /// Frees the region that begins there.
    ///
    /// # Errors
    /// [`Error::NotLent`], and nothing is done; those of [`Region::free`](crate::Region::free), and the region is free.
    #[cold]
    pub fn free(&self, at: *mut u8) -> Result<()> {
        if self.stream.core().shared_by_address(|current, ledger| give(current, ledger, at)).is_some() {
            return Ok(());
        }
        let mut held = self.stream.hold(false);
        let Lent { bytes, mode, .. } = held.state.ledger.take(at)?;
        if bytes == 0 { Ok(()) } else { held.state.free(at, bytes, mode, &self.stream.core().file) }
    }

    /// Makes the region that begins there `bytes` long, as [`Region::resize`](crate::Region::resize), at another address perhaps. A region
    /// without bytes is still one to be freed, and gets no longer again.
    ///
    /// # Errors
    /// [`Error::NotLent`]; [`Error::NotLatest`], also where it is not of the `mode`; [`Error::TooFew`], if the file ends before as many
    /// bytes, or `exact`ly as many as were asked; those of `alloc`. The region is as it was.
    pub fn resize(&self, at: *mut u8, bytes: usize, mode: Option<Mode>, exact: bool) -> Result<RawRegion> {
        if bytes == 0 {
            return self.empty(at, mode);
        }
        // Taken off, so that nobody frees it meanwhile.
        let lent = {
            let mut held = self.stream.hold(false);
            if held.state.ledger.has_empty(at) {
                return Err(Error::NotLatest);
            }
            held.state.ledger.reserve()?;
            held.state.take_latest(at)?
        };
        let wrong = mode.is_some_and(|mode| mode != lent.mode);
        let resized = if wrong {
            Err(Error::NotLatest)
        } else {
            region::resize(&self.stream, lent, bytes, if exact { bytes } else { lent.bytes.min(bytes) })
        };
        let now = match &resized {
            Ok((now, _)) => *now,
            Err(_) => lent,
        };
        self.stream.hold(false).state.ledger.put(now);
        let (now, freed) = resized?;
        self.stream.owe(freed);
        Ok(RawRegion { at: now.at, bytes: now.bytes })
    }

    /// `resize` to no bytes.
    fn empty(&self, at: *mut u8, mode: Option<Mode>) -> Result<RawRegion> {
        let mut held = self.stream.hold(true);
        if held.state.ledger.has_empty(at) {
            return Ok(RawRegion { at, bytes: 0 });
        }
        held.state.ledger.reserve()?;
        let lent = held.state.take_latest(at)?;
        let emptied = match mode.is_some_and(|mode| mode != lent.mode) {
            true => Err(Error::NotLatest),
            false => held.empty(lent, &self.stream.core().file),
        };
        match emptied {
            Ok(freed) => {
                let at = held.state.ledger.put_empty();
                drop(held);
                self.stream.owe(freed);
                Ok(RawRegion { at, bytes: 0 })
            }
            Err(e) => {
                held.state.ledger.put(lent);
                Err(e)
            }
        }
    }

    /// Keeps other threads out until `unlock`: calls of this one are one. May be nested.
    pub fn lock(&self) {
        self.stream.core().lock();
    }

    /// Ends one `lock` of this thread.
    ///
    /// # Errors
    /// [`Error::NotLocked`].
    pub fn unlock(&self) -> Result<()> {
        self.stream.core().unlock()
    }

    /// Is a region out, so that `close` would not end it?
    pub fn is_lent(&self) -> bool {
        !self.stream.hold(false).state.ledger.is_empty()
    }

    /// As [`Stream::close`]; a lock of this thread ends with it. While regions are out it goes on.
    ///
    /// # Errors
    /// [`Error::StillLent`], with the stream; those of `Stream::close`.
    pub fn close(self) -> std::result::Result<(), (Error, Option<Raw>)> {
        if self.is_lent() {
            return Err((Error::StillLent, Some(self)));
        }
        while self.unlock().is_ok() {}
        self.stream.close().map_err(|e| (e, None))
    }
}

/// The bytes up to `delimiter`, if they are at hand.
#[inline(always)]
fn until(current: &mut Current, ledger: &mut Ledger, delimiter: u8, most: usize) -> Option<RawRegion> {
    let place = ledger.vacant()?;
    if current.mode != Mode::Read || !current.live || !current.is_fresh() {
        return None;
    }
    let bytes = region::find(current, delimiter, most)?;
    let at = current.lend(bytes);
    *place = Lent { at, bytes, mode: Mode::Read };
    Some(RawRegion { at, bytes })
}

/// Frees the region that begins there, if that takes no more than to count it.
#[inline(always)]
fn give(current: &mut Current, ledger: &mut Ledger, at: *mut u8) -> Option<()> {
    let place = ledger.place(at)?;
    current.give(at, place.mode).then(|| place.at = std::ptr::null_mut())
}

/// What a program that is not compiled with this needs to do the short ways of `quick_alloc`, `quick_until` and `quick_free` itself: as `lock.rs`
/// and `Current` have them, with the first place of the ledger alone. The layout is C's, and what it is at which byte is in `LAYOUT`.
#[derive(Debug, Clone, Copy)]
pub struct Front {
    /// The seat of who may use short sections.
    pub owner: *const AtomicUsize,
    /// The current buffer, and behind it the ledger.
    pub current: *mut c_void,
}

/// Bytes from [`Front::current`] on at which there is: where the next region begins, bytes left, regions lent, regions freed, the buffer's base, its bytes, the count of
/// changes when it was read, where that count is, the first region out, the mode, whether there is a buffer, whether it is loud; of the ledger's first place address, bytes and mode.
pub const LAYOUT: [usize; 15] = {
    let place = offset_of!(State, ledger) + offset_of!(Ledger, few);
    [
        offset_of!(Current, at),
        offset_of!(Current, left),
        offset_of!(Current, lent),
        offset_of!(Current, freed),
        offset_of!(Current, base),
        offset_of!(Current, all),
        offset_of!(Current, seen),
        offset_of!(Current, changes),
        offset_of!(Current, first),
        offset_of!(Current, mode),
        offset_of!(Current, live),
        offset_of!(Current, loud),
        place + offset_of!(Lent, at),
        place + offset_of!(Lent, bytes),
        place + offset_of!(Lent, mode),
    ]
};

// `Core::front` gives the state's address for the current buffer's.
const _: () = assert!(offset_of!(State, current) == 0);
