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
    /// Bytes that may be on the way.
    pub window: u64,
    /// Bytes a second that its peer has taken lately; 0 where that is not known.
    pub rate: u64,
    /// Bytes that its peer has taken.
    pub taken: u64,
}

/// How fast a TCP connection is (tcp(7), TCP_INFO). What an older kernel does not tell is 0.
pub(super) fn pace(tcp: BorrowedFd<'_>) -> io::Result<Pace> {
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
    Ok(Pace {
        trip: Duration::from_micros(info.tcpi_rtt.into()),
        window: u64::from(info.tcpi_snd_cwnd) * u64::from(info.tcpi_snd_mss),
        rate: info.tcpi_delivery_rate,
        taken: info.tcpi_bytes_acked,
    })
}

/// Bytes that lie in a TCP connection and have not left it for the first time (linux/sockios.h).
pub(super) fn unsent(tcp: BorrowedFd<'_>) -> io::Result<u64> {
    const SIOCOUTQNSD: libc::Ioctl = 0x894B;
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel writes an int where one is.
    let result = unsafe { libc::ioctl(tcp.as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { u64::try_from(bytes).map_err(io::Error::other) }
}

/// The number of cachestat(2), the same on all machines (asm-generic/unistd.h) but these.
const CACHESTAT: Option<libc::c_long> = if cfg!(any(
    target_arch = "mips",
    target_arch = "mips64",
    target_arch = "mips32r6",
    target_arch = "mips64r6",
    all(target_arch = "x86_64", target_pointer_width = "32"),
)) {
    None
} else {
    Some(451)
};

/// Whether all of these bytes of a file lie in the page cache, or are being read into it (cachestat(2), since Linux 6.5; EPERM of a file that is neither ours nor one we may write to).
pub(super) fn is_all_cached(file: BorrowedFd<'_>, from: u64, bytes: u64) -> io::Result<bool> {
    let call = CACHESTAT.ok_or(io::ErrorKind::Unsupported)?;
    let page = rustix::param::page_size() as u64;
    let (first, last) = (from / page, (from + bytes).div_ceil(page));
    // linux/mman.h: struct cachestat_range and struct cachestat, whose first number is that of the pages that are there.
    let range: [u64; 2] = [from, bytes];
    let mut told = [0u64; 5];
    // SAFETY: the descriptor is open; the kernel reads two numbers and writes five, where they are.
    let result = unsafe { libc::syscall(call, file.as_raw_fd(), &raw const range, &raw mut told, 0 as libc::c_uint) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(told[0] >= last - first) }
}

/// Which of a socket's buffers the kernel leaves as they were set (asm-generic/socket.h); since Linux 5.14.
const SO_BUF_LOCK: libc::c_int = 72;

/// Of SO_BUF_LOCK: what is to be sent.
pub(super) const SEND: libc::c_int = 1;

/// Which of a socket's buffers somebody has set; the kernel makes the others larger or smaller as it thinks fit.
pub(super) fn buffer_lock(socket: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    let mut locked: libc::c_int = 0;
    let mut size = size_of_val(&locked) as libc::socklen_t;
    let (fd, to) = (socket.as_raw_fd(), (&raw mut locked).cast());
    // SAFETY: the descriptor is open, and the kernel writes an int where one is.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_BUF_LOCK, to, &raw mut size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(locked) }
}

/// Only those are left as they were set.
pub(super) fn set_buffer_lock(socket: BorrowedFd<'_>, locked: libc::c_int) -> io::Result<()> {
    let (fd, from) = (socket.as_raw_fd(), (&raw const locked).cast());
    let size = size_of_val(&locked) as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel reads an int where one is.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, SO_BUF_LOCK, from, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_pace_is_told_of_a_connection_and_of_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let begun = pace(near.as_fd()).unwrap();
        assert!(!begun.trip.is_zero() && begun.trip < Duration::from_secs(10), "{begun:?}");
        // Ten segments of 536 bytes at least (RFC 6928, RFC 9293); what was acknowledged so far is the connection's beginning.
        assert!(begun.window >= 5360 && begun.taken <= 1, "{begun:?}");
        near.write_all(&[1; 100_000]).unwrap();
        far.read_exact(&mut [0; 100_000]).unwrap();
        // What is acknowledged is known here soon.
        let looks = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(1));
            pace(near.as_fd()).unwrap()
        });
        let taken = looks.take(10_000).find(|pace| pace.taken >= 100_000).expect("the acknowledgement");
        assert!(taken.rate > 0 && taken.taken <= 100_001, "{taken:?}");
        assert!(pace(std::io::stdin().as_fd()).is_err() && unsent(std::io::stdin().as_fd()).is_err());
    }

    #[test]
    fn what_was_written_lies_in_memory_and_what_is_no_file_or_not_there_does_not() {
        // Of an overlay the kernel counts none, as its files' pages are those of others.
        let file = rustix::fs::memfd_create("f", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(rustix::io::write(&file, &[1; 100_000]).unwrap(), 100_000);
        let told = |from, bytes| is_all_cached(file.as_fd(), from, bytes);
        match told(0, 100_000) {
            // Before Linux 6.5, or in a box that does not let it through.
            Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)), "{error}"),
            Ok(is) => {
                assert!(is && told(99_999, 1).unwrap() && told(5000, 90_000).unwrap());
                assert!(!told(0, 200_000).unwrap() && !told(1 << 30, 1).unwrap());
                assert!(!is_all_cached(UnixStream::pair().unwrap().0.as_fd(), 0, 1).unwrap_or(false));
            }
        }
    }

    #[test]
    fn a_buffer_that_was_set_is_left_so_until_it_is_said_not_to_be() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(buffer_lock(near.as_fd()).unwrap(), 0);
        rustix::net::sockopt::set_socket_send_buffer_size(&near, 65536).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&near, 65536).unwrap();
        assert_eq!(buffer_lock(near.as_fd()).unwrap(), SEND | 2);
        set_buffer_lock(near.as_fd(), 2).unwrap();
        assert_eq!(buffer_lock(near.as_fd()).unwrap(), 2);
        assert!(buffer_lock(rustix::stdio::stdin()).is_err() && set_buffer_lock(rustix::stdio::stdin(), 0).is_err());
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
