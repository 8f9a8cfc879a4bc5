//! A signal while a terminal is waited for. Alone in its program: what a signal does is the same for all of one.

use std::io::Write;

use ninefold_stream::{Error, Mode, Options};
use nix::libc;
use nix::pty::openpty;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::io::Errno;

#[path = "support/interrupted.rs"]
mod interrupted;

use interrupted::interrupted;

extern "C" fn heard(_: libc::c_int) {}

#[test]
fn a_signal_ends_a_wait_for_a_terminal_and_nothing_is_lost() {
    let action = SigAction::new(SigHandler::Handler(heard), SaFlags::empty(), SigSet::empty());
    // SAFETY: a handler that does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
    let pty = openpty(None, None).unwrap();
    let stream = Options::new().take(pty.slave).unwrap();
    let told = Some(Error::Os(Errno::INTR));
    let stream = interrupted(move || {
        assert_eq!(stream.alloc_in(Mode::Read, 1).err(), told, "while it reads");
        stream
    });
    // A line that has come is no shorter region of who waits for more, and is there for who does not.
    assert_eq!(rustix::io::write(&pty.master, b"here\n"), Ok(5));
    let stream = interrupted(move || {
        assert_eq!(stream.alloc_full(9).err(), told, "for more than a line");
        stream
    });
    assert_eq!(&*stream.alloc_line().unwrap(), b"here\n");
    // Nobody looks, so it is full at some line, and that line waits. It is kept, and so it is told by the flush too.
    let (stream, mut wrote) = interrupted(move || {
        let mut wrote = 0;
        let error = loop {
            let mut line = stream.alloc_in(Mode::Write, 1000).unwrap();
            line.fill(b'x');
            line[999] = b'\n';
            wrote += 1000;
            if let Err(e) = line.free() {
                break e;
            }
        };
        assert_eq!(Some(error), told, "while it writes");
        (stream, wrote)
    });
    // By `std`, whose `write_all` tries again after a signal: nothing goes twice.
    let stream = interrupted(move || {
        (&stream).write_all(b"once\n").unwrap();
        stream
    });
    wrote += 5 + 5; // with the echo of what was typed
    let screen = std::thread::spawn(move || {
        let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
        // Each end of a line is two bytes there.
        while all.iter().filter(|&&byte| byte != b'\r').count() < wrote {
            let read = rustix::io::retry_on_intr(|| rustix::io::read(&pty.master, &mut bytes)).unwrap();
            all.extend_from_slice(&bytes[..read]);
        }
        all.retain(|&byte| byte != b'\r');
        (all, pty.master)
    });
    stream.flush().unwrap();
    let (all, _master) = screen.join().unwrap();
    assert_eq!(all.len(), wrote);
    assert!(all.ends_with(b"xx\nonce\n"));
}
