//! A mapping, and what a child of fork(2) has in the place of one that it is not to have: pages that nobody may look at.
//!
//! The kernel leaves a hole there (MADV_DONTFORK). Memory of the child's own would come to fill it, and what a stream has at hand are
//! addresses: they would be that memory's. So a handler of pthread_atfork(3) fills the holes before the child runs on.
//!
//! It may run while other threads of the parent map and unmap, so it takes no lock, and it allocates nothing: it reads a list that only
//! grows. A place in it has an area only while the area is kept from children: every one that the handler sees is a hole.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use nix::libc;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::{Error, Result};

pub struct Area {
    pub base: NonNull<u8>,
    bytes: usize,
    /// Of one that children do not have.
    place: Option<&'static Place>,
}

// SAFETY: a mapping belongs to the process; this gives no access by itself.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(bytes: usize, protection: ProtFlags) -> Result<Area> {
        // SAFETY: a new mapping, at no address that anybody has.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) };
        let base = NonNull::new(base.map_err(|_| Error::NoMemory)?.cast::<u8>()).ok_or(Error::NoMemory)?;
        Ok(Area { base, bytes, place: None })
    }

    fn advise(&self, advice: Advice) -> Result<()> {
        // SAFETY: changes nothing but what a child of fork(2) has of it.
        Ok(unsafe { madvise(self.base.as_ptr().cast::<c_void>(), self.bytes, advice) }?)
    }

    /// A child has zeros there.
    ///
    /// # Errors
    /// Those of madvise(2).
    pub fn wipe_in_children(&self) -> Result<()> {
        self.advise(Advice::LinuxWipeOnFork)
    }

    /// A child that looks there is ended by SIGSEGV. Whoever has the area does not drop it in one.
    ///
    /// # Errors
    /// Those of madvise(2); [`Error::NoMemory`].
    pub fn keep_from_children(&mut self) -> Result<()> {
        hear_of_children()?;
        self.advise(Advice::LinuxDontFork)?;
        self.place = Some(Place::take(self.base.as_ptr().addr(), self.bytes));
        Ok(())
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // Before it is unmapped: another mapping may be there at once, which children do have.
        if let Some(place) = self.place {
            place.leave();
        }
        // SAFETY: who has the area is dropping it, so no reference into it is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// One of the list. In one line of the cache, so that a child sees no half of a change.
#[repr(align(32))]
struct Place {
    /// The next in the list; never changed in it.
    next: *const Place,
    base: AtomicUsize,
    /// 0: there is no area.
    bytes: AtomicUsize,
    taken: AtomicBool,
}

// SAFETY: `next` is null or one that is never freed.
unsafe impl Send for Place {}
// SAFETY: as above, and what is changed is atomic.
unsafe impl Sync for Place {}

/// The latest that was made.
static FIRST: AtomicPtr<Place> = AtomicPtr::new(std::ptr::null_mut());

fn places() -> impl Iterator<Item = &'static Place> {
    // SAFETY: null, or what `take` leaked whole before it stored it; nothing is ever freed.
    let first = unsafe { FIRST.load(Ordering::Acquire).as_ref() };
    // SAFETY: as `FIRST`, earlier.
    std::iter::successors(first, |place| unsafe { place.next.as_ref() })
}

impl Place {
    /// One for this area: one that was left, or a new one.
    fn take(base: usize, bytes: usize) -> &'static Place {
        let free =
            |place: &&Place| place.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let place = places().find(free).unwrap_or_else(Place::make);
        place.base.store(base, Ordering::Relaxed);
        // Release: a child that sees it sees the base.
        place.bytes.store(bytes, Ordering::Release);
        place
    }

    fn make() -> &'static Place {
        let made = Box::leak(Box::new(Place {
            next: std::ptr::null(),
            base: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            taken: AtomicBool::new(true),
        }));
        let mut first = FIRST.load(Ordering::Relaxed);
        loop {
            made.next = first;
            match FIRST.compare_exchange(first, made, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return made,
                Err(other) => first = other,
            }
        }
    }

    fn leave(&self) {
        self.bytes.store(0, Ordering::Release);
        self.taken.store(false, Ordering::Release);
    }

    /// In the child: nobody may look there, and it is no area of its own.
    fn fill(&self) {
        let bytes = self.bytes.load(Ordering::Acquire);
        if bytes == 0 {
            return;
        }
        let base = std::ptr::without_provenance_mut::<c_void>(self.base.load(Ordering::Relaxed));
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a new mapping, where there is none: it replaces nothing. What an earlier handler mapped there stays.
        let filled = unsafe { mmap_anonymous(base, bytes, ProtFlags::empty(), flags) };
        if let Ok(elsewhere) = filled
            && elsewhere != base
        {
            // A kernel before 4.17, which looked for another place.
            // SAFETY: mapped above, and nobody has it.
            let _ = unsafe { munmap(elsewhere, bytes) };
        }
        self.leave();
    }
}

extern "C" fn forked() {
    places().for_each(Place::fill);
}

/// From now on children fill the holes; where two threads ask at once, twice, which is as good.
fn hear_of_children() -> Result<()> {
    static HEARD: AtomicBool = AtomicBool::new(false);
    if !HEARD.load(Ordering::Acquire) {
        // SAFETY: what is called in the child reads a list of ours and maps, and stays loaded as the library does.
        if unsafe { libc::pthread_atfork(None, None, Some(forked)) } != 0 {
            return Err(Error::NoMemory);
        }
        HEARD.store(true, Ordering::Release);
    }
    Ok(())
}
