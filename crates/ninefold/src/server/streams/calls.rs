//! Calls of the kernel that no library makes for us.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

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

/// What a round trip of a TCP connection takes, smoothed (tcp(7), TCP_INFO).
pub(super) fn round_trip(tcp: BorrowedFd<'_>) -> io::Result<Duration> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut size = size_of_val(&info) as libc::socklen_t;
    let (fd, to) = (tcp.as_raw_fd(), info.as_mut_ptr().cast());
    // SAFETY: the descriptor is open, and the kernel writes no more than `size` bytes.
    let result = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it has numbers only, of which all bytes are set, if to 0.
    let info = unsafe { info.assume_init() };
    Ok(Duration::from_micros(info.tcpi_rtt.into()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_round_trip_is_told_of_a_connection_and_of_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let trip = round_trip(near.as_fd()).unwrap();
        assert!(!trip.is_zero() && trip < Duration::from_secs(10), "{trip:?}");
        assert!(round_trip(std::io::stdin().as_fd()).is_err());
    }
}
