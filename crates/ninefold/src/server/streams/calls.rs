//! Calls of the kernel that no library makes for us.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;

/// One of fcntl(2)'s commands whose argument is a number.
pub(super) fn command(file: BorrowedFd<'_>, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: the descriptor is open, and these commands touch no memory of this process.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Bytes that the peer of a TCP connection has not acknowledged, an end among them (tcp(7), SIOCOUTQ).
pub(super) fn unacknowledged(tcp: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel writes an int where one is.
    let result = unsafe { libc::ioctl(tcp.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { usize::try_from(bytes).map_err(io::Error::other) }
}
