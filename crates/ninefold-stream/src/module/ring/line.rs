//! The life line of a ring: a pair of sockets of which each process has one. When one closes, or is closed because its process died, the
//! other is hung up; a byte on it wakes who waits for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::futex::{self, Timespec};
use rustix::thread::sched_getcpu;

use super::words::{Bed, ON_LINE, ON_WORD};
use crate::error::{Error, Result};
use crate::module::bell::Bell;
use crate::primitives::AtomicU32;

/// How long the word is waited for, in nanoseconds, before the line is, which also tells that the other end is gone. Waking by the word
/// takes half the time of waking by the line; who waits longer than this does not notice the difference.
const ON_WORD_FOR: i64 = 10_000_000;

/// The one that this thread is on, and one more.
pub fn processor() -> u32 {
    u32::try_from(sched_getcpu()).map_or(0, |n| n.wrapping_add(1))
}

pub struct Line(pub OwnedFd);

impl Line {
    /// Is the other end gone?
    pub fn is_dead(&self) -> bool {
        let mut fd = [PollFd::new(&self.0, PollFlags::empty())];
        poll(&mut fd, Some(&Timespec::default())).is_ok_and(|n| n > 0)
            && fd[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    pub fn wake(&self, word: &AtomicU32, how: u32) {
        // Both fail only where nobody is there, or where as many bytes are on the line as fit, which wake too.
        if how == ON_WORD {
            let _ = futex::wake(word, futex::Flags::empty(), 1);
        } else {
            let _ = send(&self.0, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// Where a thread waits for the other end.
pub struct Waiting<'a> {
    pub line: &'a Line,
    /// What the stream is of: where it does not wait, nobody does.
    pub stream: Option<BorrowedFd<'a>>,
    pub bell: Option<&'a Bell>,
    /// The word was waited for.
    pub long: bool,
}

impl<'a> Waiting<'a> {
    pub fn new(line: &'a Line, stream: BorrowedFd<'a>, bell: Option<&'a Bell>) -> Self {
        Waiting { line, stream: Some(stream), bell, long: false }
    }

    /// For who wakes and never waits.
    pub fn waker(line: &'a Line) -> Self {
        Waiting { line, stream: None, bell: None, long: false }
    }
}

impl Bed for Waiting<'_> {
    type Error = Error;

    fn may_sleep(&self) -> Result<()> {
        match self.stream {
            Some(stream) if !rustix::fs::fcntl_getfl(stream)?.contains(OFlags::NONBLOCK) => Ok(()),
            _ => Err(Errno::AGAIN.into()),
        }
    }

    fn processor(&self) -> u32 {
        processor()
    }

    fn how(&self) -> u32 {
        if self.long || self.bell.is_some() { ON_LINE } else { ON_WORD }
    }

    /// EPIPE: the other end is gone. EINTR, ECANCELED.
    fn sleep(&mut self, word: &AtomicU32) -> Result<()> {
        if self.how() == ON_WORD {
            let bound = Timespec { tv_sec: 0, tv_nsec: ON_WORD_FOR };
            return match futex::wait(word, futex::Flags::empty(), ON_WORD, Some(&bound)) {
                Ok(()) | Err(Errno::AGAIN) => Ok(()),
                Err(Errno::TIMEDOUT) => {
                    self.long = true;
                    Ok(())
                }
                Err(e) => Err(e.into()),
            };
        }
        match self.bell {
            Some(bell) => bell.wait(self.line.0.as_fd())?,
            None => {
                poll(&mut [PollFd::new(&self.line.0, PollFlags::IN)], None)?;
            }
        }
        // What woke is taken off, or the next wait would be none.
        match recv(&self.line.0, &mut [0; 64], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(Errno::PIPE.into()),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Errno::PIPE.into()),
        }
    }

    fn wake(&self, word: &AtomicU32, how: u32) {
        self.line.wake(word, how);
    }
}
