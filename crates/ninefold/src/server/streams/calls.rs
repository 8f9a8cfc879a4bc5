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

/// What a TCP connection does by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    /// What a round trip takes, smoothed.
    pub trip: Duration,
    /// Bytes a second that it sends: those that it may have on the way, in each round trip.
    pub rate: u64,
}

/// How fast a TCP connection is (tcp(7), TCP_INFO).
pub(super) fn pace(tcp: BorrowedFd<'_>) -> io::Result<Pace> {
    let info = info(tcp)?;
    let window = u64::from(info.tcpi_snd_cwnd) * u64::from(info.tcpi_snd_mss);
    let rate = window.saturating_mul(1_000_000) / u64::from(info.tcpi_rtt).max(1);
    Ok(Pace { trip: Duration::from_micros(info.tcpi_rtt.into()), rate })
}

/// Bytes that lie in a TCP connection and have not left it for the first time (linux/sockios.h).
pub(super) fn unsent(tcp: BorrowedFd<'_>) -> io::Result<u64> {
    const SIOCOUTQNSD: libc::Ioctl = 0x894B;
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel writes an int where one is.
    let result = unsafe { libc::ioctl(tcp.as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { u64::try_from(bytes).map_err(io::Error::other) }
}

fn info(tcp: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut size = size_of_val(&info) as libc::socklen_t;
    let (fd, to) = (tcp.as_raw_fd(), info.as_mut_ptr().cast());
    // SAFETY: the descriptor is open, and the kernel writes no more than `size` bytes.
    let result = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it has numbers only, of which all bytes are set, if to 0.
    Ok(unsafe { info.assume_init() })
}

/// Whether the kernel leaves a socket's buffers as they were set (asm-generic/socket.h); since Linux 5.14.
const SO_BUF_LOCK: libc::c_int = 72;

/// The kernel makes a socket's buffers larger or smaller again as it thinks fit, from what they were set to on.
pub(super) fn let_buffers_grow(socket: BorrowedFd<'_>) -> io::Result<()> {
    let neither: libc::c_int = 0;
    let (fd, from) = (socket.as_raw_fd(), (&raw const neither).cast());
    let size = size_of_val(&neither) as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel reads an int where one is.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, SO_BUF_LOCK, from, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
pub(super) fn is_send_buffer_locked(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut locked: libc::c_int = 0;
    let mut size = size_of_val(&locked) as libc::socklen_t;
    let (fd, to) = (socket.as_raw_fd(), (&raw mut locked).cast());
    // SAFETY: the descriptor is open, and the kernel writes an int where one is.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_BUF_LOCK, to, &raw mut size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(locked & 1 != 0) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_pace_is_told_of_a_connection_and_of_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let Pace { trip, rate } = pace(near.as_fd()).unwrap();
        assert!(!trip.is_zero() && trip < Duration::from_secs(10), "{trip:?}");
        // Ten segments of 536 bytes at least (RFC 6928, RFC 9293).
        assert!(rate >= 5360 / 10, "{rate}");
        assert!(pace(std::io::stdin().as_fd()).is_err() && unsent(std::io::stdin().as_fd()).is_err());
    }

    #[test]
    fn what_the_peer_has_no_room_for_has_not_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
        assert_eq!(unsent(near.as_fd()).unwrap(), 0);
        near.set_nonblocking(true).unwrap();
        let mut all = 0;
        while let Ok(n) = near.write(&[1; 65536]) {
            all += n as u64;
        }
        let left = unsent(near.as_fd()).unwrap();
        assert!(0 < left && left < all, "{left} of {all}");
    }
}
