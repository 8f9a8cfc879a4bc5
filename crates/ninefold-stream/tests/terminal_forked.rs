//! Streams on terminals in a child of fork(2). Alone in its program: a child has of the other threads only the locks that they held.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ninefold_stream::{Mode, Options};
use nix::libc;
use nix::pty::openpty;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[test]
fn a_child_that_waits_for_a_terminal_of_its_own_writes_nothing_that_its_parent_has_not_flushed() {
    let (parents, childs) = (openpty(None, None).unwrap(), openpty(None, None).unwrap());
    let stream = Options::new().take_only(parents.slave, Mode::Write).unwrap();
    stream.alloc(3).unwrap().copy_from_slice(b"ask");
    let mut keys = File::from(childs.master);
    keys.write_all(b"x\n").unwrap();
    // SAFETY: the child makes a stream of its own, and ends without what the program does at its end. The other thread waits for this
    // test, with no lock that the child needs.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let own = Options::new().take_only(childs.slave, Mode::Read);
        let is_right = own.is_ok_and(|own| own.alloc(10).is_ok_and(|line| *line == *b"x\n"));
        // SAFETY: ends the child.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
    }
    let (begin, mut status) = (Instant::now(), 0);
    // SAFETY: a child of ours, and a place for its status.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if begin.elapsed() > Duration::from_secs(60) {
            // SAFETY: a child of ours, which was not waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::yield_now();
    }
    assert_eq!(status, 0, "what wait(2) tells of the child");
    let mut screen = File::from(parents.master);
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&screen.as_fd(), PollFlags::IN)], Some(&at_once)), Ok(0), "nothing is seen");
    stream.flush().unwrap();
    let mut seen = [0; 10];
    assert_eq!(screen.read(&mut seen).unwrap(), 3);
    assert_eq!(&seen[..3], b"ask");
}
