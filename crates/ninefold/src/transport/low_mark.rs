//! How many bytes a TCP connection wakes who reads it for (socket(7), SO_RCVLOWAT), and what else that does to it.

use std::io;
use std::os::fd::AsFd;

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

/// Bytes that a peer may send before any of them is read: as many as Linux sends of itself on a connection (tcp(7), tcp_wmem), a round trip of 250 ms at
/// 134 Mbit/s. The kernel gives half of what tcp_rmem allows at most.
const WINDOW: u32 = 4 << 20;

/// Linux before 4.18 does not tell who waits already when the mark is lowered to what is there.
pub(crate) fn set_low_mark(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    Ok(setsockopt(socket, LowMark, &i32::try_from(bytes).unwrap_or(i32::MAX))?)
}

/// Lets the peer send as much as it may from the beginning. Linux makes more room with what is read in a round trip, so that who reads seldom, or has no
/// processor at the time, holds up a peer whose window would grow; but at once where so much is to be waited for (since 4.18). What lies there takes memory, the
/// room does not. The mark is 1 behind it, as at first. Linux before 4.18 may keep to
/// itself what comes meanwhile, until more does; so best before anything can come.
pub(crate) fn open_window(socket: &impl AsFd) {
    // Where it cannot be set, there is as much room as ever.
    if set_low_mark(socket, WINDOW).is_ok() {
        let _ = set_low_mark(socket, 1);
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::socket_recv_buffer_size;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn an_open_window_has_room_for_what_is_not_read_and_wakes_for_a_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut far = listener.accept().await.unwrap().0;
        let before = socket_recv_buffer_size(&near).unwrap();
        open_window(&near);
        let max = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
        let max: usize = max.split_whitespace().nth(2).unwrap().parse().unwrap();
        let after = socket_recv_buffer_size(&near).unwrap();
        assert!(after >= before.max((max / 2).min(WINDOW as usize)), "{before} bytes, then {after} of {max}");
        far.write_all(&[1]).await.unwrap();
        assert_eq!(near.read(&mut [0; 2]).await.unwrap(), 1);
    }
}
