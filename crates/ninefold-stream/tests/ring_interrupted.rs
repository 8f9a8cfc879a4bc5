//! A signal while a ring, or its other end, is waited for. Alone in its program: what a signal does is the same for all of one.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use ninefold_stream::{Error, Mode, Options, Stream};
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

#[path = "support/interrupted.rs"]
mod interrupted;

use interrupted::interrupted;

extern "C" fn heard(_: libc::c_int) {}

const INTERRUPTED: Error = Error::Os(Errno::INTR);

/// Waits for data that does not come.
fn read_in_vain(from: Stream) -> Stream {
    interrupted(move || {
        assert_eq!(from.alloc(1).err(), Some(INTERRUPTED));
        from
    })
}

/// Writes until there is no room, and tells how much it was.
fn write_in_vain(to: Stream) -> (Stream, u64) {
    interrupted(move || {
        let mut wrote = 0u64;
        let error = loop {
            match to.alloc(1000) {
                Ok(mut region) => {
                    region.fill((wrote / 1000) as u8);
                    wrote += 1000;
                }
                Err(e) => break e,
            }
        };
        assert_eq!(error, INTERRUPTED);
        (to, wrote)
    })
}

fn end(socket: UnixStream, mode: Mode) -> Stream {
    Options::new().module("ring").take_only(OwnedFd::from(socket), mode).unwrap()
}

fn both_have_met() {
    let (from, to) = Stream::ring().unwrap();
    to.alloc(10).unwrap().fill(1);
    to.flush().unwrap();
    assert_eq!(&*from.alloc_full(10).unwrap(), [1; 10]);
    let from = read_in_vain(from);
    let (to, wrote) = write_in_vain(to);
    to.flush().unwrap();
    drop(to);
    for n in 0..wrote / 1000 {
        assert_eq!(&*from.alloc_full(1000).unwrap(), [n as u8; 1000]);
    }
    assert!(from.alloc(1).unwrap().is_empty());
}

fn nobody_was_met() {
    // Who reads, of a writer that wrote nothing yet.
    let (from, to) = Stream::ring().unwrap();
    let from = read_in_vain(from);
    to.alloc(10).unwrap().fill(1);
    to.close().unwrap();
    assert_eq!(&*from.alloc_full(10).unwrap(), [1; 10]);
    // Who writes to a program that knows no rings, and reads nothing.
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (to, wrote) = write_in_vain(end(ours, Mode::Write));
    let read = std::thread::spawn(move || {
        let mut data = Vec::new();
        theirs.read_to_end(&mut data).unwrap();
        data
    });
    to.close().unwrap();
    let data = read.join().unwrap();
    assert_eq!(data.len() as u64, wrote);
    assert!(data.chunks(1000).enumerate().all(|(n, chunk)| chunk.iter().all(|&b| b == n as u8)));
    // Who has an offer to make, and no room in the sockets for it.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut full = 0;
    while let Ok(n) = send(&ours, &[7; 1000], SendFlags::DONTWAIT) {
        full += n;
    }
    let from = end(theirs, Mode::Read);
    let (to, wrote) = write_in_vain(end(ours, Mode::Write));
    assert_eq!(wrote, 0);
    let thread = std::thread::spawn(move || {
        to.alloc(10).unwrap().fill(1);
        to.close().unwrap();
    });
    assert_eq!(*from.alloc_full(full).unwrap(), vec![7; full]);
    assert_eq!(&*from.alloc_full(10).unwrap(), [1; 10]);
    assert!(from.alloc(1).unwrap().is_empty());
    thread.join().unwrap();
}

#[test]
fn a_signal_ends_a_wait_at_either_end_and_nothing_is_lost() {
    for flags in [SaFlags::empty(), SaFlags::SA_RESTART] {
        let action = SigAction::new(SigHandler::Handler(heard), flags, SigSet::empty());
        // SAFETY: the handler does nothing.
        unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
        both_have_met();
        nobody_was_met();
    }
}
