//! Children of fork(2), for programs that are about them.

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Seconds that a child may take.
const PATIENCE: i64 = 60;

/// Runs it in a child, which ends with what it gives; tells what wait(2) does. A child that goes on for too long is ended. While it is called no other
/// thread has a lock that the child needs.
pub fn child(play: impl FnOnce() -> i32) -> ExitStatus {
    // SAFETY: the child uses streams, and ends without what the program does at its end; that the other threads wait is the caller's part.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // A thread that ended by a panic would be the child's last, and its end a good one.
        let code = catch_unwind(AssertUnwindSafe(play)).unwrap_or(101);
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    let watched = pidfd_open(Pid::from_raw(child).unwrap(), PidfdFlags::empty()).unwrap();
    let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
    let ended = rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&patience)));
    if ended != Ok(1) {
        // SAFETY: a child of ours, which was not waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: a child of ours, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    ExitStatus::from_raw(status)
}

/// Runs it in a child, and tells whether it said yes.
pub fn says_yes(play: impl FnOnce() -> bool) -> bool {
    child(|| if play() { 0 } else { 1 }).success()
}
