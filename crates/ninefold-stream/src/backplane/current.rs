//! The current buffer (§4.1): what a call needs to know to be answered without the module. It is addresses and counts, nothing here
//! follows an address.
//!
//! Its layout is C's too, whose header has the short ways inline: see `raw::Front`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether regions are read or written (§2). A stream has one mode at a time, a region keeps its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Regions hold the data of the file.
    Read,
    /// Regions are for data that goes to the file.
    Write,
}

/// `bufbase`, `bufptr`, `bufcnt`, `refcount` and `mode` of figure 7, and what several streams on one file need besides.
#[repr(C)]
pub struct Current {
    /// Where the next region begins.
    pub at: *mut u8,
    /// Bytes from `at` on: data, or room.
    pub left: usize,
    /// Regions that were lent, and that were freed: two counts, so that a free does not wait for the allocation before it.
    pub lent: usize,
    pub freed: usize,
    pub base: *mut u8,
    /// Bytes from `base` on, taken or not.
    pub all: usize,
    /// Reading: the file's count of changes when the data was read. Another count, and the data is stale.
    pub seen: u64,
    /// Reading: that count. Else one that nobody changes.
    pub changes: &'static AtomicU64,
    /// Writing: where the region began that was allocated when none was out. Everything before it is free.
    pub first: *mut u8,
    /// Offset in the file of `base`.
    pub offset: u64,
    pub mode: Mode,
    /// Is there one? If not, the rest means nothing.
    pub live: bool,
    /// Writing: somebody else must know of each region that is freed, so that no short section will do.
    pub loud: bool,
}

/// Of what does not become stale.
static NO_CHANGES: AtomicU64 = AtomicU64::new(0);

// SAFETY note for readers: no `unsafe` here. That regions go to other threads is in `region.rs`.

impl Current {
    pub const NONE: Current = Current {
        live: false,
        mode: Mode::Read,
        base: std::ptr::null_mut(),
        at: std::ptr::null_mut(),
        left: 0,
        all: 0,
        lent: 0,
        freed: 0,
        first: std::ptr::null_mut(),
        offset: 0,
        seen: 0,
        changes: &NO_CHANGES,
        loud: false,
    };

    #[inline(always)]
    pub fn is_fresh(&self) -> bool {
        // Relaxed: who was told of a change was told by something that orders it before this.
        self.seen == self.changes.load(Ordering::Relaxed)
    }

    /// Figure 8, `salloc`: the next `bytes`, or None when the module must be asked. Not for 0 bytes.
    #[inline(always)]
    pub fn take(&mut self, bytes: usize) -> Option<*mut u8> {
        // Of 0 bytes one less is more than there can be.
        if bytes.wrapping_sub(1) >= self.left || !self.is_fresh() {
            return None;
        }
        Some(self.lend(bytes))
    }

    /// The same where it is known that they are there.
    #[inline(always)]
    pub fn lend(&mut self, bytes: usize) -> *mut u8 {
        let region = self.at;
        if self.mode == Mode::Write && self.out() == 0 {
            self.first = region;
        }
        self.lend_one();
        self.at = region.wrapping_add(bytes);
        self.left -= bytes;
        region
    }

    /// Regions that are out.
    #[inline(always)]
    pub fn out(&self) -> usize {
        self.lent.wrapping_sub(self.freed)
    }

    pub fn set_out(&mut self, regions: usize) {
        (self.lent, self.freed) = (regions, 0);
    }

    #[inline(always)]
    pub fn lend_one(&mut self) {
        self.lent = self.lent.wrapping_add(1);
    }

    #[inline(always)]
    pub fn free_one(&mut self) {
        self.freed = self.freed.wrapping_add(1);
    }

    /// Is it a region of this buffer?
    #[inline(always)]
    pub fn has(&self, region: *mut u8, mode: Mode) -> bool {
        mode == self.mode && self.covers(region)
    }

    #[inline(always)]
    fn covers(&self, region: *mut u8) -> bool {
        // Where there is no buffer it has no bytes.
        region.addr().wrapping_sub(self.base.addr()) < self.all
    }

    /// Figure 8, `sfree`: false when more is to be done. Written regions are counted here only while one is out, so that
    /// which bytes are free is always known. What is read is stale where a file that is mapped became shorter, which is to be told.
    #[inline(always)]
    pub fn give(&mut self, region: *mut u8, mode: Mode) -> bool {
        // What is read and what is written never lie in the same memory, so the place tells the mode too.
        let short = match mode {
            Mode::Read => self.is_fresh(),
            Mode::Write => self.out() == 1 && !self.loud,
        };
        if !short || !self.covers(region) {
            return false;
        }
        self.free_one();
        true
    }

    /// Bytes between its base and the next region.
    pub fn used(&self) -> usize {
        self.at.addr() - self.base.addr()
    }

    /// Where in the file the next region begins.
    pub fn position(&self) -> u64 {
        self.offset + self.used() as u64
    }
}
