//! The memory of a ring: a page with the words, and behind it the data, mapped twice one behind the other, so that what lies across the
//! end of the ring has addresses without a gap.
//!
//! It is a memfd that nobody can make shorter, and that has all its memory from the beginning, so that no look at it is a SIGBUS; who
//! is given one makes sure of the first before it maps it.
//! The reader maps the data to read only. A child of fork(2) does not have the mapping, and is told so: it would be a second one at an end.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::fs::{FallocateFlags, FileType, MemfdFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::area::Area;
use super::words::Words;
use crate::error::{Error, Result};
use crate::memory::{Memory, PAGE, has_pages};

/// "9fring1" in the words, so that a memfd that somebody passes for another reason is not taken for a ring.
const KIND: u64 = u64::from_le_bytes(*b"9fring1\0");

/// Bytes of data that a ring may have; any power of two between.
pub const LEAST: usize = PAGE;
pub const MOST: usize = 64 << 20;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The file system of memfds whose pages are short (statfs(2)): of long ones a process may have none left, which would be a SIGBUS.
const TMPFS: u64 = 0x0102_1994;

/// A ring as one end has it. It stays until the last who lent of it is gone.
pub struct Pages {
    area: ManuallyDrop<Area>,
    capacity: usize,
    /// 1 here, and 0 in a child of fork(2).
    here: Area,
}

impl Pages {
    /// A new ring of `capacity` bytes, a power of two, for its writer.
    ///
    /// # Errors
    /// Those of memfd_create(2), ftruncate(2), fallocate(2), fcntl(2), mmap(2); ENOTSUP where pages are of another length.
    pub fn new(capacity: usize) -> Result<(OwnedFd, Arc<Pages>)> {
        let file = rustix::fs::memfd_create("ninefold-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let bytes = (PAGE + capacity) as u64;
        rustix::fs::ftruncate(&file, bytes)?;
        have_all(file.as_fd(), bytes)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let pages = Self::map(file.as_fd(), capacity, ProtFlags::READ | ProtFlags::WRITE)?;
        pages.words().kind.store(KIND, Ordering::Relaxed);
        Ok((file, pages))
    }

    /// The ring that a writer has made, for its reader. None: it is no such thing.
    ///
    /// # Errors
    /// [`Error::BadRing`]: it could be made shorter, or is of a size that no ring has; those of fcntl(2), fstat(2), mmap(2).
    pub fn of(file: BorrowedFd<'_>) -> Result<Option<Arc<Pages>>> {
        let Ok(seals) = rustix::fs::fcntl_get_seals(file) else {
            return Ok(None);
        };
        let stat = rustix::fs::fstat(file)?;
        let short = rustix::fs::fstatfs(file)?.f_type as u64 == TMPFS;
        let capacity = usize::try_from(stat.st_size).ok().and_then(|bytes| bytes.checked_sub(PAGE));
        let capacity = capacity.filter(|&bytes| bytes.is_power_of_two() && (LEAST..=MOST).contains(&bytes));
        let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let (Some(capacity), true) = (capacity, plain && short && seals.contains(SEALS)) else {
            return Err(Error::BadRing);
        };
        let pages = Self::map(file, capacity, ProtFlags::READ)?;
        if pages.words().kind.load(Ordering::Relaxed) != KIND {
            return Err(Error::BadRing);
        }
        Ok(Some(pages))
    }

    /// The file has a page and `capacity` bytes, for ever.
    fn map(file: BorrowedFd<'_>, capacity: usize, data: ProtFlags) -> Result<Arc<Pages>> {
        if !has_pages() {
            return Err(Errno::NOTSUP.into());
        }
        let mut area = Area::new(PAGE + 2 * capacity, ProtFlags::empty())?;
        let words = ProtFlags::READ | ProtFlags::WRITE;
        let parts = [(0, PAGE, 0, words), (PAGE, capacity, PAGE, data), (PAGE + capacity, capacity, PAGE, data)];
        for (place, bytes, offset, protection) in parts {
            let at = area.base.as_ptr().wrapping_add(place).cast::<c_void>();
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            // SAFETY: in the area, which nobody has yet.
            unsafe { mmap(at, bytes, protection, flags, file, offset as u64) }?;
        }
        area.keep_from_children()?;
        let here = Area::new(PAGE, ProtFlags::READ | ProtFlags::WRITE)?;
        here.wipe_in_children()?;
        let pages = Pages { area: ManuallyDrop::new(area), capacity, here };
        pages.here().store(1, Ordering::Relaxed);
        Ok(Arc::new(pages))
    }

    fn here(&self) -> &AtomicU32 {
        // SAFETY: a page of zeros at first, aligned, and touched here only.
        unsafe { self.here.base.cast::<AtomicU32>().as_ref() }
    }

    /// Is this the process that mapped it? In another nothing else of it may be used.
    pub fn is_here(&self) -> bool {
        self.here().load(Ordering::Relaxed) == 1
    }

    pub fn words(&self) -> &Words {
        // SAFETY: the first page, mapped to be written, aligned. The other process writes there too: all of it is atomic, and any
        // value is one.
        unsafe { self.area.base.cast::<Words>().as_ref() }
    }

    /// Bytes of data.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn data(&self) -> *mut u8 {
        self.area.base.as_ptr().wrapping_add(PAGE)
    }

    /// Where the byte is that so many were before. As many as the ring has follow without a gap.
    pub fn place(&self, at: u64) -> *mut u8 {
        self.data().wrapping_add((at % self.capacity as u64) as usize)
    }

    /// Does the data begin where the byte is that so many were before?
    pub fn is_at(&self, data: &[u8], at: u64) -> bool {
        let place = data.as_ptr().addr().wrapping_sub(self.data().addr());
        place < 2 * self.capacity && place % self.capacity == (at % self.capacity as u64) as usize
    }

    /// Are the `bytes` of the ring from there on these?
    pub fn shows(&self, at: u64, bytes: &[u8]) -> bool {
        debug_assert!(bytes.len() <= self.capacity);
        // SAFETY: as many bytes are mapped from there on. The other process may write there, see docs/stream.md.
        (unsafe { std::slice::from_raw_parts(self.place(at), bytes.len()) }) == bytes
    }

    /// Copies from the ring.
    pub fn read(&self, at: u64, to: &mut [u8]) {
        assert!(to.len() <= self.capacity, "more than the ring has");
        // SAFETY: as many bytes are mapped from there on, and `to` is not in the ring, of which nobody has a `&mut` to read.
        unsafe { std::ptr::copy_nonoverlapping(self.place(at), to.as_mut_ptr(), to.len()) }
    }

    /// Copies to the ring, where no region is: the caller is the writer, and nobody was given these bytes.
    pub fn write(&self, at: u64, from: &[u8]) {
        assert!(from.len() <= self.capacity, "more than the ring has");
        // SAFETY: as many bytes are mapped from there on; `from` may be bytes of the ring that were written before.
        unsafe { std::ptr::copy(from.as_ptr(), self.place(at), from.len()) }
    }

    /// So many bytes from there on, for whoever the keeper keeps them for.
    pub fn lend(&self, at: u64, bytes: usize, keeper: Box<dyn Send + Sync>) -> Memory {
        assert!(bytes <= self.capacity, "more than the ring has");
        // SAFETY: as many bytes are mapped from there on; the keeper has the pages.
        unsafe { Memory::lent(self.place(at), bytes, keeper) }
    }
}

/// Takes the memory of a file now: what is not to be had is an error here, and would be a SIGBUS for whoever comes there first.
fn have_all(file: BorrowedFd<'_>, bytes: u64) -> Result<()> {
    // A signal ends the call with nothing done, so that a program with a fast timer would never have a large ring. Not all can be blocked.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(|e| Errno::from_raw_os_error(e as i32))?;
    let had = retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes));
    let unmasked = mask.thread_set_mask();
    debug_assert!(unmasked.is_ok());
    Ok(had?)
}

impl Drop for Pages {
    fn drop(&mut self) {
        // In a child of fork(2) it is not there.
        if self.is_here() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.area) };
        }
    }
}
