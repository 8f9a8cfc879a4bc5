//! A signal while a ring is waited for. Alone in its program: what a signal does is the same for all of one.

use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, Ordering};

use ninefold_stream::{Error, Stream};
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::io::Errno;

extern "C" fn heard(_: libc::c_int) {}

#[test]
fn a_signal_ends_a_wait_at_either_end_and_nothing_is_lost() {
    let action = SigAction::new(SigHandler::Handler(heard), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
    let (from, to) = Stream::ring().unwrap();
    to.alloc(10).unwrap().fill(1);
    to.flush().unwrap();
    assert_eq!(&*from.alloc_full(10).unwrap(), [1; 10]);
    let told = std::sync::Arc::new(AtomicBool::new(false));
    // Sent until it is heard: one that comes before the wait ends none.
    let signal = |thread: libc::pthread_t| {
        while !told.swap(false, Ordering::Relaxed) {
            // SAFETY: a thread that was not joined.
            assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
            std::thread::yield_now();
        }
    };
    let interrupted = Error::Os(Errno::INTR);
    let reader = {
        let told = told.clone();
        std::thread::spawn(move || {
            assert_eq!(from.alloc(1).err(), Some(interrupted));
            told.store(true, Ordering::Relaxed);
            from
        })
    };
    signal(reader.as_pthread_t());
    let from = reader.join().unwrap();
    let writer = {
        let told = told.clone();
        std::thread::spawn(move || {
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
            assert_eq!(error, interrupted);
            told.store(true, Ordering::Relaxed);
            (to, wrote)
        })
    };
    signal(writer.as_pthread_t());
    let (to, wrote) = writer.join().unwrap();
    to.flush().unwrap();
    drop(to);
    for n in 0..wrote / 1000 {
        assert_eq!(&*from.alloc_full(1000).unwrap(), [n as u8; 1000]);
    }
    assert!(from.alloc(1).unwrap().is_empty());
}
