//! How many bytes a TCP connection wakes who reads it for (socket(7), SO_RCVLOWAT), and what else that does to it.

use std::io;
use std::os::fd::AsFd;
#[cfg(test)]
use std::os::fd::BorrowedFd;
use std::sync::LazyLock;

use nix::libc;
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};

sockopt_impl!(
    /// Bytes that poll(2) and its kin wait for.
    LowMark,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    i32,
    nix::sys::socket::sockopt::SetStruct<'_, i32>
);

/// Bytes that a peer may have on the way before any of them is read: as many as Linux sends of itself on a connection (tcp(7), tcp_wmem), a round trip of
/// 250 ms at 134 Mbit/s.
const WINDOW: u32 = 4 << 20;

/// Whoever waits for the connection's bytes is woken when so many are there, or its end, or an error. The kernel takes half of what tcp_rmem allows at most.
/// Linux before 4.18 does not tell who waits already when the mark is lowered to what is there.
pub(crate) fn set_low_mark(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    Ok(setsockopt(socket, LowMark, &i32::try_from(bytes).unwrap_or(i32::MAX))?)
}

/// Lets the window of a connection on which much will come grow to so many bytes with what comes, up to [`WINDOW`] and half of what tcp_rmem allows.
/// By itself Linux lets it grow with what is read in a round trip, so that who reads seldom, or has no processor at the time, holds up the peer; but has the
/// room at once where so much is to be waited for (since 4.18; before, this does nothing). It takes memory where the peer fills it, and nobody reads: kernel's
/// memory, of which a segment takes about twice its bytes.
pub(crate) fn open_window(socket: &impl AsFd, bytes: u64) {
    // Before it is known to grow, the mark must not be touched: what came between the two calls would be told to nobody.
    if !*SINCE_4_18 {
        return;
    }
    // Where it cannot be set, the window grows as ever.
    if set_low_mark(socket, bytes.min(WINDOW.into()) as u32).is_ok() {
        let _ = set_low_mark(socket, 1);
    }
}

/// Whether who waits is told when the mark is lowered to what is there.
pub(crate) fn has_low_marks() -> bool {
    *SINCE_4_18
}

/// Whether the kernel makes room for what is to be waited for, and tells of what became enough.
static SINCE_4_18: LazyLock<bool> = LazyLock::new(|| {
    let name = rustix::system::uname();
    is_since(&name.release().to_string_lossy(), (4, 18))
});

/// Whether a release of Linux, `6.18.44-fc`, is not before another.
fn is_since(release: &str, (major, minor): (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// Whether a connection has the room that [`open_window`] is to give it, beside one like it that has not been opened.
#[cfg(test)]
pub(crate) fn is_open(opened: &impl AsFd, plain: &impl AsFd) -> bool {
    let room = |socket: BorrowedFd<'_>| rustix::net::sockopt::socket_recv_buffer_size(socket).unwrap();
    let (opened, plain) = (room(opened.as_fd()), room(plain.as_fd()));
    let [_, _, max] = tcp_rmem();
    !*SINCE_4_18 || opened >= plain.max((max / 2).min(WINDOW as usize))
}

/// The least, the first and the greatest room of a connection: tcp(7).
#[cfg(test)]
fn tcp_rmem() -> [usize; 3] {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
    let mut bytes = told.split_whitespace().map(|bytes| bytes.parse().unwrap());
    std::array::from_fn(|_| bytes.next().unwrap())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// What a peer can send of that nobody reads.
    async fn taken(far: &mut TcpStream) -> usize {
        let (bytes, mut taken) = (vec![1; 1 << 16], 0);
        while let Ok(n) = timeout(Duration::from_millis(300), far.write(&bytes)).await {
            taken += n.unwrap();
        }
        taken
    }

    #[tokio::test]
    async fn an_open_window_takes_more_that_nobody_reads_and_wakes_for_a_byte() {
        let ((plain, mut plain_far), (mut near, mut far)) = (pair().await, pair().await);
        open_window(&near, u64::MAX);
        assert!(is_open(&near, &plain));
        far.write_all(&[1]).await.unwrap();
        assert_eq!(near.read(&mut [0; 2]).await.unwrap(), 1);
        if *SINCE_4_18 && is_roomy() {
            // The sender's own room is the same.
            let (plain, opened) = (taken(&mut plain_far).await, taken(&mut far).await);
            assert!(opened > plain + (1 << 20), "{opened} bytes, and {plain} of one that was not opened");
        }
    }

    /// Whether the machine lets windows grow far beyond what they begin with.
    fn is_roomy() -> bool {
        let [_, first, max] = tcp_rmem();
        first <= 256 << 10 && max >= 4 << 20
    }

    #[test]
    fn releases_are_compared_by_their_numbers() {
        let since = ["6.18.44-fc", "4.18.0", "4.19-rc1", "10.0", "4.17.19", "3.99", "4", ""]
            .map(|name| is_since(name, (4, 18)));
        assert_eq!(since, [true, true, true, true, false, false, false, false]);
    }
}
