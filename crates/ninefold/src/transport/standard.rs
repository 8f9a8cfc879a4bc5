//! The numbers of standard input, output and error, which a program may have closed: no connection of a client gets one, or what the
//! program prints would go to a server, and who closes the number would close the connection.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// The first number that stands for nothing.
const FIRST: i32 = 3;

/// A descriptor with another number, if it has one of those. For what nothing waits on yet: the number changes.
pub(super) fn beyond(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= FIRST { Ok(fd) } else { Ok(rustix::io::fcntl_dupfd_cloexec(&fd, FIRST)?) }
}

/// Keeps those that are free from what is opened while this lives and cannot be given another number. What it holds is as good as
/// closed: whoever reads or writes it gets EBADF.
#[derive(Debug)]
pub struct Held {
    _held: Vec<OwnedFd>,
}

/// See [`Held`].
pub fn hold() -> io::Result<Held> {
    let mut held = Vec::new();
    loop {
        // The kernel gives the least that is free.
        let fd = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if fd.as_raw_fd() >= FIRST {
            return Ok(Held { _held: held });
        }
        held.push(fd);
    }
}
