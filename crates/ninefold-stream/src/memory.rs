//! The memory that regions lie in: anonymous pages, a mapped file, or a buffer that a message arrived in.
//!
//! [`Memory`] belongs to one holder, who may write it while it is anonymous. [`Frozen`] is memory that is read only and shared from
//! then on. Memory to write to, of which several regions are out at a time, is in `backplane/output`.
//!
//! Anonymous memory begins at a page: on some processors a copy to an address just behind the beginning of one is four to six times
//! slower, and `malloc` returns such addresses.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::error::{Error, Result};
use crate::fault::{Notice, Watch};

/// Bytes in a page. Where the system's are larger they are multiples of it, and what is aligned for them is aligned for it; files are
/// not mapped there.
pub const PAGE: usize = 4096;

/// Bytes of a pooled buffer: from 64 KiB on a read costs little more than its copy, and two of these lie in a second-level cache.
pub const POOLED: usize = 256 << 10;

/// Bytes of a pooled buffer for the longest reads of files in order ([`Calibration::read`](crate::Calibration::read)).
pub const LONG: usize = 1 << 20;

/// Bytes of the first memory, for who needs more at once than may ever come: what is needed is believed as it comes.
pub const BELIEVED: usize = 1 << 20;

/// Buffers of that length kept when nobody uses them, so that opening a small file does not begin with page faults.
const KEPT: usize = 4;

/// Buffers of one length that nobody uses.
struct Pool {
    bytes: usize,
    free: Mutex<Vec<Pages>>,
}

static POOLS: [Pool; 2] = [Pool::of(POOLED), Pool::of(LONG)];

impl Pool {
    const fn of(bytes: usize) -> Pool {
        Pool { bytes, free: Mutex::new(Vec::new()) }
    }

    fn take(&self) -> Result<Pages> {
        let kept = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(|| Pages::anonymous(self.bytes), Ok)
    }

    fn put(&self, pages: Option<Pages>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.extend(pages);
        }
    }
}

/// Are the system's pages as long as ours? Asked of libc: rustix would read the auxiliary vector and what that names, which valgrind hides.
pub fn has_pages() -> bool {
    let bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    bytes.and_then(|bytes| usize::try_from(bytes).ok()) == Some(PAGE)
}

/// Pages of a mapping of this process.
struct Pages {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, and `Pages` is its only owner.
unsafe impl Send for Pages {}
// SAFETY: `Pages` gives no access by itself.
unsafe impl Sync for Pages {}

impl Pages {
    fn anonymous(bytes: usize) -> Result<Pages> {
        // SAFETY: a new mapping, at no address that anybody has.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let base = NonNull::new(base.map_err(|_| Error::NoMemory)?.cast::<u8>()).ok_or(Error::NoMemory)?;
        Ok(Pages { base, bytes })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: who has the pages is dropping them, so no reference into them is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// What the bytes are of.
enum Owner {
    Anonymous(Option<Pages>),
    /// In this order: the watch ends before the pages go.
    Mapping {
        watch: Watch,
        _pages: Pages,
    },
    /// What a server sent, where it arrived.
    #[cfg(feature = "ninep")]
    Arrived {
        _data: bytes::Bytes,
    },
    /// A module's own, which this keeps.
    Lent(#[expect(dead_code, reason = "dropped with the memory")] Box<dyn Send + Sync>),
}

/// Bytes that stay where they are until it is dropped.
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    owner: Owner,
}

// SAFETY: the bytes belong to `owner`, which may go to any thread.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference only addresses are had, and bytes by unsafe calls.
unsafe impl Sync for Memory {}

impl Memory {
    /// Anonymous memory of `bytes` at least, for data that is read in: what it holds before is of no meaning, perhaps other data of this
    /// process.
    pub fn pooled(bytes: usize) -> Result<Memory> {
        if let Some(pool) = POOLS.iter().find(|pool| bytes <= pool.bytes) {
            return Ok(Self::of(pool.take()?));
        }
        let whole =
            bytes.checked_next_multiple_of(PAGE).filter(|&n| n <= isize::MAX as usize).ok_or(Error::NoMemory)?;
        Ok(Self::of(Pages::anonymous(whole)?))
    }

    /// The same, or memory that is free again if it is long enough.
    pub fn reused(free: Option<Memory>, bytes: usize) -> Result<Memory> {
        match free {
            Some(memory) if memory.capacity() >= bytes && memory.is_ours() => Ok(memory),
            _ => Self::pooled(bytes),
        }
    }

    /// Becomes twice as long, with the first `have` bytes. When it fails nothing is changed.
    pub fn lengthen(&mut self, have: usize) -> Result<()> {
        let mut longer = Self::pooled(self.bytes.saturating_mul(2))?;
        let old = self.as_mut_slice().unwrap_or_default();
        longer.as_mut_slice().unwrap_or_default()[..have].copy_from_slice(&old[..have]);
        *self = longer;
        Ok(())
    }

    /// Anonymous memory of `bytes` at least, all zeros: for data that will be written, so that bytes of another file never go to this one.
    pub fn zeroed(bytes: usize) -> Result<Memory> {
        let whole =
            bytes.checked_next_multiple_of(PAGE).filter(|&n| n <= isize::MAX as usize).ok_or(Error::NoMemory)?;
        Ok(Self::of(Pages::anonymous(whole)?))
    }

    fn of(pages: Pages) -> Memory {
        Memory { base: pages.base, bytes: pages.bytes, owner: Owner::Anonymous(Some(pages)) }
    }

    /// `bytes` of a file from `offset` on, a multiple of [`PAGE`]; they must be in the file now. When the file is made shorter, what is
    /// beyond its end becomes zeros, and `notice` is told. None where that cannot be had, see [`Watch`].
    pub fn map(file: BorrowedFd<'_>, offset: u64, bytes: usize, notice: Arc<dyn Notice>) -> Result<Option<Memory>> {
        // Pages of another length: offsets and the zeros' places would be wrong.
        if !has_pages() || !crate::fault::is_guarding() {
            return Ok(None);
        }
        // SAFETY: a new mapping, at no address that anybody has. Nothing writes through it.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, offset) };
        let base = NonNull::new(base?.cast::<u8>()).ok_or(Error::NoMemory)?;
        let pages = Pages { base, bytes };
        let Some(watch) = Watch::begin(base.as_ptr().addr(), bytes, notice) else {
            return Ok(None);
        };
        Ok(Some(Memory { base, bytes, owner: Owner::Mapping { watch, _pages: pages } }))
    }

    /// Bytes that arrived, where they lie.
    #[cfg(feature = "ninep")]
    pub fn arrived(data: bytes::Bytes) -> Memory {
        // Bytes stay where they are when the handle moves.
        let base = NonNull::from(&data[..]).cast::<u8>();
        Memory { base, bytes: data.len(), owner: Owner::Arrived { _data: data } }
    }

    /// Memory of a module, which stays where it is until the keeper is dropped.
    ///
    /// # Safety
    /// So many bytes are there, initialized, until then; and none of them is in other memory that is written.
    pub unsafe fn lent(base: *mut u8, bytes: usize, keeper: Box<dyn Send + Sync>) -> Memory {
        let base = NonNull::new(base).unwrap_or(NonNull::dangling());
        Memory { base, bytes, owner: Owner::Lent(keeper) }
    }

    /// Bytes.
    pub fn capacity(&self) -> usize {
        self.bytes
    }

    /// All of it, where it is anonymous: else it is not ours to write.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match self.owner {
            // SAFETY: this many bytes, all initialized, and `&mut self` is the only way to them.
            Owner::Anonymous(_) => Some(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }),
            _ => None,
        }
    }

    /// May it be written, and used again for other data?
    pub fn is_ours(&self) -> bool {
        matches!(self.owner, Owner::Anonymous(_))
    }

    /// Was part of the file gone when somebody looked?
    pub fn is_damaged(&self) -> bool {
        matches!(&self.owner, Owner::Mapping { watch, .. } if watch.is_damaged())
    }

    /// Is it a module's own?
    pub fn is_lent(&self) -> bool {
        matches!(self.owner, Owner::Lent(_))
    }

    /// Is it a file's own?
    pub fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::Mapping { .. })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Owner::Anonymous(pages) = &mut self.owner else {
            return;
        };
        if let Some(pool) = POOLS.iter().find(|pool| self.bytes == pool.bytes) {
            pool.put(pages.take());
        }
    }
}

/// Memory that nobody writes any more.
#[derive(Clone)]
pub struct Frozen(Arc<Memory>);

impl Frozen {
    pub fn new(memory: Memory) -> Frozen {
        Frozen(Arc::new(memory))
    }

    /// # Panics
    /// When the range is not in it.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.0.bytes, "a range that is not in the memory");
        // SAFETY: in the memory, and nobody has had a `&mut` to it since it was frozen. A mapped file may be changed by others
        // meanwhile, see docs/stream.md.
        unsafe { std::slice::from_raw_parts(self.0.base().wrapping_add(range.start), range.len()) }
    }

    pub fn is_damaged(&self) -> bool {
        self.0.is_damaged()
    }

    pub fn is_mapped(&self) -> bool {
        self.0.is_mapped()
    }

    pub fn is_lent(&self) -> bool {
        self.0.is_lent()
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.0.base()
    }

    /// The memory, if nobody else has it.
    pub fn thaw(self) -> Option<Memory> {
        Arc::try_unwrap(self.0).ok()
    }
}
