//! Rings and fork(2). Alone in its program: a child has of the other threads only the locks that they held.

use ninefold_stream::{Error, Mode, Options, Stream};
use nix::libc;
use rustix::io::Errno;

/// Runs it in a child, and tells whether it said yes.
fn child(play: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses streams, and ends without what the program does at its end; no other thread runs.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let done = play();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if done { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a child of ours, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

#[test]
fn a_child_has_an_end_that_nobody_used_and_none_of_its_parents_rings() {
    // Made before the child, and used behind it: the child's.
    let (from, to) = Options::new().ring_bytes(4096).ring().unwrap();
    assert!(child(|| {
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
    assert!(child(|| {
        let flushed = to.flush().err() == refused;
        let asked = from.alloc_in(Mode::Read, 100).err() == refused;
        drop((from, to));
        flushed && asked
    }));
}
