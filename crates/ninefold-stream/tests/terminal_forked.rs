//! Streams on terminals in a child of fork(2). Alone in its program: a child has of the other threads only the locks that they held.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;

use ninefold_stream::{Mode, Options};
use nix::pty::openpty;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[path = "support/child.rs"]
mod child;

use child::says_yes;

#[test]
fn a_child_that_waits_for_a_terminal_of_its_own_writes_nothing_that_its_parent_has_not_flushed() {
    let (parents, childs) = (openpty(None, None).unwrap(), openpty(None, None).unwrap());
    let stream = Options::new().take_only(parents.slave, Mode::Write).unwrap();
    stream.alloc(3).unwrap().copy_from_slice(b"ask");
    let mut keys = File::from(childs.master);
    keys.write_all(b"x\n").unwrap();
    // The other thread waits for this test, with no lock that the child needs.
    let answered = says_yes(|| {
        let own = Options::new().take_only(childs.slave, Mode::Read);
        own.is_ok_and(|own| own.alloc(10).is_ok_and(|line| *line == *b"x\n"))
    });
    assert!(answered, "the child");
    let mut screen = File::from(parents.master);
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&screen.as_fd(), PollFlags::IN)], Some(&at_once)), Ok(0), "nothing is seen");
    stream.flush().unwrap();
    let mut seen = [0; 10];
    assert_eq!(screen.read(&mut seen).unwrap(), 3);
    assert_eq!(&seen[..3], b"ask");
}
