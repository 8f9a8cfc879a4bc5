//! A program that ignores SIGBUS. Alone in its program: what a signal does is the same for all of one.

use std::fs::OpenOptions;

use ninefold_stream::{Error, Options};
use nix::libc;

#[test]
fn a_signal_that_was_ignored_and_that_somebody_sends_stays_ignored_and_files_guarded() {
    // SAFETY: no handler of ours is asked for.
    let before = unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
    assert_ne!(before, libc::SIG_ERR);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![b'x'; 3 << 20]).unwrap();
    let stream = Options::new().read(true).module("mmap").open(&path).unwrap();
    let region = stream.alloc(3 << 20).unwrap();
    // SAFETY: sends this thread a signal, which is delivered before the call returns.
    assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    assert_eq!(region.iter().filter(|&&b| b == b'x').count(), 10);
    assert_eq!(region.free(), Err(Error::Shrunk));
}
