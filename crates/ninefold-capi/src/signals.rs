//! A program's signals are its own: none is delivered to a thread of ours, and no call of ours raises SIGPIPE.

use std::mem::MaybeUninit;
use std::ptr;

use nix::libc;

/// What a thread of ours does first: a handler of the program's runs on one of the program's threads (pthreads(7)).
pub fn block_all() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: the set is made before it is used, and lives as long as the calls.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
    }
}

/// While this lives the caller's thread takes no signal, and a thread that it makes takes none from its first instruction on: what
/// [`block_all`] does comes a moment later, and in that moment a handler could run there.
pub struct AllBlocked(libc::sigset_t);

impl AllBlocked {
    pub fn begin() -> AllBlocked {
        let (mut all, mut old) = (MaybeUninit::uninit(), empty());
        // SAFETY: each set is made before it is used, and lives as long as the calls.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), &raw mut old);
        }
        AllBlocked(old)
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was there.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// While this lives, a peer that is gone is an error of the write to it, and not the death of the program: the Rust runtime, where
/// it starts the program, sees to that itself; C's does not.
pub struct NoSigpipe {
    /// The program had it blocked, and perhaps pending: then it stays.
    was_blocked: bool,
    was_pending: bool,
}

impl NoSigpipe {
    pub fn begin() -> NoSigpipe {
        // SAFETY: each set is made before it is used, and lives as long as the calls.
        unsafe {
            let (mut pending, mut old) = (empty(), empty());
            let pipe = sigpipe();
            libc::sigpending(&raw mut pending);
            let was_pending = libc::sigismember(&raw const pending, libc::SIGPIPE) == 1;
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut old);
            NoSigpipe { was_blocked: libc::sigismember(&raw const old, libc::SIGPIPE) == 1, was_pending }
        }
    }
}

impl Drop for NoSigpipe {
    fn drop(&mut self) {
        // SAFETY: as in `begin`.
        unsafe {
            let pipe = sigpipe();
            if !self.was_pending {
                // What is pending for this thread now came of our own writes.
                let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                while libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const at_once) == -1
                    && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
                {}
            }
            if !self.was_blocked {
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const pipe, ptr::null_mut());
            }
        }
    }
}

fn empty() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) writes all of it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn sigpipe() -> libc::sigset_t {
    let mut set = empty();
    // SAFETY: the set is made.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGPIPE) };
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes where nobody reads.
    fn into_nothing() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        assert_eq!(rustix::io::write(writer, b"x"), Err(rustix::io::Errno::PIPE));
    }

    fn is_pending() -> bool {
        let mut pending = empty();
        // SAFETY: the set is made, and ours.
        unsafe {
            libc::sigpending(&raw mut pending);
            libc::sigismember(&raw const pending, libc::SIGPIPE) == 1
        }
    }

    #[test]
    fn a_write_where_nobody_reads_is_an_error_and_leaves_the_programs_signals_as_they_were() {
        // SAFETY: as C programs have it, and not the Rust runtime; the one write of this process where nobody reads is here.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let quiet = NoSigpipe::begin();
        into_nothing();
        drop(quiet);
        assert!(!is_pending());

        // One that the program had blocked and pending is its own.
        let outer = NoSigpipe::begin();
        into_nothing();
        assert!(is_pending());
        drop(NoSigpipe::begin());
        assert!(is_pending());
        drop(outer);
        assert!(!is_pending());
        // SAFETY: as it was.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }
}
