//! A stream that a thread reads ahead, in a child of fork(2), which has no such thread. Alone in its program: a child has of the other
//! threads only the locks that they held.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ninefold_stream::{Error, Options};
use nix::libc;
use rustix::io::Errno;

#[path = "support/child.rs"]
mod child;

use child::says_yes;

#[test]
fn a_child_is_told_and_its_streams_end() {
    let (from, mut to) = std::io::pipe().unwrap();
    let stream = Options::new().take(OwnedFd::from(from)).unwrap();
    stream.push("prefetch").unwrap();
    to.write_all(b"data").unwrap();
    assert_eq!(&*stream.alloc(2).unwrap(), b"da");
    // One that is not asleep may have a lock of the allocator or of the buffers, which nobody would give back in the child.
    let begin = Instant::now();
    while !others_sleep() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the thread waits for the pipe");
        std::thread::yield_now();
    }
    // The other threads wait, one for this test and one for the pipe, with no lock that the child needs.
    let mut stream = Some(stream);
    let is_told = says_yes(|| {
        let Some(stream) = stream.take() else { return false };
        let here = stream.alloc(2).is_ok_and(|region| *region == *b"ta");
        let told = stream.alloc(1).err() == Some(Error::Os(Errno::CHILD));
        let kept = stream.pop() == Err(Error::Os(Errno::CHILD));
        drop(stream);
        here && told && kept
    });
    assert!(is_told, "the child");
    let stream = stream.unwrap();
    to.write_all(b"more").unwrap();
    assert_eq!(&*stream.alloc_full(6).unwrap(), b"tamore", "the parent's goes on");
}

/// Whether this thread is the only one that runs (proc_pid_stat(5)).
fn others_sleep() -> bool {
    // SAFETY: it tells a number.
    let this = unsafe { libc::gettid() }.to_string();
    std::fs::read_dir("/proc/self/task").unwrap().flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        task.file_name().to_str() == Some(&this) || stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"))
    })
}
