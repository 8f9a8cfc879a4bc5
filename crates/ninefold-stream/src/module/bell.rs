//! What ends a wait for a descriptor that is waited for in another thread.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::error::Result;

/// It is rung once, and heard by all who wait from then on.
#[derive(Clone)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// # Errors
    /// eventfd(2)'s.
    pub fn new() -> Result<Bell> {
        Ok(Bell(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub fn ring(&self) {
        // A number in the machine's order: this one is small enough in any. It fails only where it was rung often, and then it rings.
        let _ = rustix::io::write(&self.0, &[1; 8]);
    }

    /// Waits until the descriptor can be read, or has ended or failed.
    ///
    /// # Errors
    /// ECANCELED when it was rung; poll(2)'s.
    pub fn wait(&self, fd: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        let mut both = [PollFd::new(&fd, PollFlags::IN), PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut both, None)?;
        if both[1].revents().is_empty() { Ok(()) } else { Err(Errno::CANCELED) }
    }
}
