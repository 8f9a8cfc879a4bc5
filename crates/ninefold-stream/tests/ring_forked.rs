//! Rings and fork(2). Alone in its program: a child has of the other threads only the locks that they held.

use std::os::unix::process::ExitStatusExt;
use std::sync::{Mutex, PoisonError};

use ninefold_stream::{Error, Mode, Options, Region, Result, Stream};
use nix::libc;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};

#[path = "support/child.rs"]
mod child;

use child::{child, says_yes};

/// One test at a time: a child of one has the locks that the other holds.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_child_has_an_end_that_nobody_used_and_none_of_its_parents_rings() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Made before the child, and used behind it: the child's.
    let (from, to) = Options::new().ring_bytes(4096).ring().unwrap();
    assert!(says_yes(|| {
        let mut region = to.alloc(1000).unwrap();
        region.fill(7);
        region.free().is_ok() && to.close().is_ok()
    }));
    assert_eq!(&*from.alloc_full(1000).unwrap(), [7; 1000]);
    // The parent's own copy of the other end is not closed, so there is no end, and a ring of its own may follow.
    let (from, to) = Stream::ring().unwrap();
    to.alloc(10).unwrap().fill(1);
    to.flush().unwrap();
    assert_eq!(&*from.alloc_full(10).unwrap(), [1; 10]);
    let refused = Some(Error::Os(Errno::CHILD));
    assert!(says_yes(|| {
        let flushed = to.flush().err() == refused;
        let asked = from.alloc_in(Mode::Read, 100).err() == refused;
        drop((from, to));
        flushed && asked
    }));
}

const BYTES: usize = 64 << 10;
const PAGE: usize = 4096;

/// Memory of this process's own wherever there is room in the place of a ring, of which that is an address, and as much elsewhere.
fn map_over(ring: usize) {
    let map = |at: usize, bytes, flags| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new mappings, which replace none.
        unsafe { libc::mmap(std::ptr::without_provenance_mut(at), bytes, protection, flags, -1, 0) };
    };
    map(0, PAGE + 2 * BYTES, 0);
    let first = (ring & !(PAGE - 1)) - 2 * BYTES;
    (0..4 * BYTES / PAGE).for_each(|n| map(first + n * PAGE, PAGE, libc::MAP_FIXED_NOREPLACE));
}

/// What a call in a child gives must not be looked at: the child ends, or is told that it has no ring.
#[track_caller]
fn assert_not_given(ring: usize, call: impl FnOnce() -> Result<u8>) {
    const REFUSED: i32 = 3;
    let ended = child(|| {
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
        map_over(ring);
        match call() {
            Err(Error::Os(Errno::CHILD)) => REFUSED,
            _ => 1,
        }
    });
    assert!(ended.signal() == Some(libc::SIGSEGV) || ended.code() == Some(REFUSED), "the child: {ended}");
}

#[test]
fn a_child_is_never_given_memory_of_its_own_in_the_place_of_what_its_parent_had_at_hand() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (from, to) = Options::new().ring_bytes(BYTES).ring().unwrap();
    let write = |bytes| {
        let mut region = to.alloc(bytes).unwrap();
        region.fill(1);
        let at = region.as_ptr().addr();
        region.free().unwrap();
        to.flush().unwrap();
        at
    };
    write(10);
    assert_eq!(&*from.alloc_full(10).unwrap(), [1; 10]); // the first goes with the offer
    let room = write(100);
    let data = {
        let region = from.alloc_full(50).unwrap();
        assert_eq!(&*region, [1; 50]);
        region.as_ptr().addr()
    };
    let write_one = |mut region: Region<'_>| {
        region.fill(7);
        std::hint::black_box(&mut region)[0]
    };
    assert_not_given(room, || to.alloc(10).map(write_one));
    assert_not_given(data, || from.alloc(10).map(|region| std::hint::black_box(&region)[0]));
    assert_not_given(data, || from.alloc_line().map(|region| std::hint::black_box(&region)[0]));
    // A child of a child has none either; and rings that came and went leave nothing behind.
    assert!(says_yes(|| {
        for _ in 0..3 {
            let (from, to) = Options::new().ring_bytes(BYTES).ring().unwrap();
            to.alloc(10).unwrap().fill(2);
            to.close().unwrap();
            if !from.alloc_full(10).is_ok_and(|region| *region == [2; 10]) {
                return false;
            }
        }
        assert_not_given(room, || to.alloc(10).map(write_one));
        true
    }));
    // The parent's goes on.
    assert_eq!(&*from.alloc_full(50).unwrap(), [1; 50]);
    write(10);
    assert_eq!(&*from.alloc_full(10).unwrap(), [1; 10]);
}
