//! Whose the other end of a TCP connection on this machine is, and what an end of ours has still to hand over, as the kernel
//! says (sock_diag(7)).
//!
//! The peer's own socket is looked up by its four numbers. It counts only while it is ESTABLISHED and still held by a
//! process: of a socket that is closing, and of one in TIME_WAIT, the kernel tells uid 0, whoever had it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The kernel answers while it takes the request, so this bound is for a kernel that does not.
const TIMEOUT: Duration = Duration::from_secs(1);

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, net/tcp_states.h
const NLMSG_HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_REQ_V2: usize = 56;
const INET_DIAG_NOCOOKIE: u32 = u32::MAX;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const TCP_ESTABLISHED: u8 = 1;
/// More than any answer: an inet_diag_msg of 72 bytes and a few attributes.
const ANSWER_MAX: usize = 2048;

/// The uid that owns the socket at the other end of the connection `peer` → `local`.
///
/// `None` when it is not of this machine and network name space, or is closing. Takes a second at the most.
pub(super) fn owner(peer: SocketAddr, local: SocketAddr) -> io::Result<Option<u32>> {
    Ok(find(peer, local)?.and_then(Found::held_by))
}

/// Bytes that our end of the connection `local` → `peer`, which has ended its direction, has sent or is to send, and that the peer
/// has not acknowledged. The same bound.
/// `None` where the kernel has no such connection.
pub(super) fn untaken(local: SocketAddr, peer: SocketAddr) -> io::Result<Option<u64>> {
    // The end takes a number of its own in the sequence (RFC 9293, 3.4), the last.
    Ok(find(local, peer)?.map(|found| found.wqueue.saturating_sub(1).into()))
}

/// The socket of this machine at `from` that is connected to `to`.
fn find(from: SocketAddr, to: SocketAddr) -> io::Result<Option<Found>> {
    let socket: OwnedFd = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
    rustix::net::sendto(&socket, &request(from, to), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; ANSWER_MAX];
    let (_, len, sender) = rustix::net::recvfrom(&socket, &mut answer[..], RecvFlags::empty())?;
    let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
    let from_kernel = sender.is_some_and(|sender| sender.pid() == 0);
    if !from_kernel {
        return Err(io::Error::other("an answer that is not the kernel's"));
    }
    let answer = answer.get(..len).unwrap_or(&answer);
    match parse(answer) {
        Ok(found) if found.ports == (from.port(), to.port()) => Ok(Some(found)),
        Ok(_) => Ok(None),
        Err(Refused::Errno(rustix::io::Errno::NOENT)) => Ok(None),
        Err(Refused::Errno(errno)) => Err(errno.into()),
        Err(Refused::Short) => Err(io::Error::other("an answer too short")),
    }
}

/// A socket as the kernel describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    state: u8,
    /// Its own port, and the one it is connected to.
    ports: (u16, u16),
    /// Sequence numbers that were not acknowledged.
    wqueue: u32,
    uid: u32,
    /// 0 once no process holds it.
    inode: u32,
}

impl Found {
    fn held_by(self) -> Option<u32> {
        (self.state == TCP_ESTABLISHED && self.inode != 0).then_some(self.uid)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refused {
    Errno(rustix::io::Errno),
    Short,
}

/// nlmsghdr and inet_diag_req_v2: header and masks in the machine's byte order, ports and addresses in the network's.
#[expect(clippy::host_endian_bytes, reason = "netlink speaks the machine's byte order")]
fn request(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    // A listener for both families sees IPv4 peers as ::ffff:a.b.c.d.
    let (source, destination) = (peer.ip().to_canonical(), local.ip().to_canonical());
    let mut out = Vec::with_capacity(NLMSG_HEADER + INET_DIAG_REQ_V2);
    out.extend(((NLMSG_HEADER + INET_DIAG_REQ_V2) as u32).to_ne_bytes());
    out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend(NLM_F_REQUEST.to_ne_bytes());
    out.extend([0; 8]); // sequence number and port: the socket is used once
    let family = if source.is_ipv4() { AF_INET } else { AF_INET6 };
    out.extend([family, IPPROTO_TCP, 0, 0]);
    out.extend(u32::MAX.to_ne_bytes()); // any state
    for port in [peer.port(), local.port()] {
        out.extend([(port >> 8) as u8, port as u8]);
    }
    for address in [source, destination] {
        match address {
            IpAddr::V4(v4) => {
                out.extend(v4.octets());
                out.extend([0; 12]);
            }
            IpAddr::V6(v6) => out.extend(v6.octets()),
        }
    }
    // An address of one link is known with its interface only; 0: any.
    let interface = if let (SocketAddr::V6(peer), true) = (peer, source.is_ipv6()) { peer.scope_id() } else { 0 };
    out.extend(interface.to_ne_bytes());
    out.extend(INET_DIAG_NOCOOKIE.to_ne_bytes());
    out.extend(INET_DIAG_NOCOOKIE.to_ne_bytes());
    out
}

/// nlmsghdr and inet_diag_msg, or nlmsgerr.
#[expect(clippy::host_endian_bytes, reason = "netlink speaks the machine's byte order")]
fn parse(answer: &[u8]) -> Result<Found, Refused> {
    fn at<const N: usize>(answer: &[u8], offset: usize) -> Result<[u8; N], Refused> {
        answer.get(offset..).and_then(|rest| rest.first_chunk()).copied().ok_or(Refused::Short)
    }
    let u32_at = |offset| at(answer, offset).map(u32::from_ne_bytes);
    let port_at = |offset| at(answer, offset).map(|[high, low]: [u8; 2]| u16::from(high) << 8 | u16::from(low));
    if u16::from_ne_bytes(at(answer, 4)?) == NLMSG_ERROR {
        let error = i32::from_ne_bytes(at(answer, NLMSG_HEADER)?);
        return Err(Refused::Errno(rustix::io::Errno::from_raw_os_error(-error)));
    }
    let [_family, state, _timer, _retransmits] = at(answer, NLMSG_HEADER)?;
    let id = NLMSG_HEADER + 4;
    // Behind the id of 48 bytes: expires, rqueue, wqueue, uid, inode.
    let rest = id + 48;
    let ports = (port_at(id)?, port_at(id + 2)?);
    let (wqueue, uid, inode) = (u32_at(rest + 8)?, u32_at(rest + 12)?, u32_at(rest + 16)?);
    Ok(Found { state, ports, wqueue, uid, inode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpListener, TcpStream};

    fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn owner_of_peer(server: &TcpStream) -> Option<u32> {
        owner(server.peer_addr().unwrap(), server.local_addr().unwrap()).unwrap()
    }

    #[test]
    fn the_kernel_says_whose_the_other_end_of_a_loopback_connection_is() {
        let me = rustix::process::geteuid().as_raw();
        let (_client, server) = pair("127.0.0.1");
        assert_eq!(owner_of_peer(&server), Some(me));
        if TcpListener::bind("[::1]:0").is_ok() {
            let (_client, server) = pair("::1");
            assert_eq!(owner_of_peer(&server), Some(me));
        }
    }

    #[test]
    fn a_listener_for_both_families_knows_its_ipv4_peers() {
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let server = listener.accept().unwrap().0;
        assert!(server.peer_addr().unwrap().is_ipv6());
        assert_eq!(owner_of_peer(&server), Some(rustix::process::geteuid().as_raw()));
    }

    #[test]
    fn an_end_that_is_closed_or_closing_belongs_to_nobody() {
        let (client, server) = pair("127.0.0.1");
        client.shutdown(Shutdown::Write).unwrap();
        let mut byte = [0];
        // The end of the stream is here: the other end has left the state ESTABLISHED.
        assert_eq!(std::io::Read::read(&mut &server, &mut byte).unwrap(), 0);
        assert_eq!(owner_of_peer(&server), None);
        drop(client);
        assert_eq!(owner_of_peer(&server), None);
    }

    #[test]
    fn a_listener_at_the_same_numbers_is_not_the_peer() {
        let (_client, server) = pair("127.0.0.1");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(owner(listener.local_addr().unwrap(), server.local_addr().unwrap()).unwrap(), None);
    }

    #[test]
    fn an_orphan_is_held_by_nobody() {
        let found = Found { state: TCP_ESTABLISHED, ports: (1, 2), wqueue: 0, uid: 0, inode: 0 };
        assert_eq!(found.held_by(), None);
        assert_eq!(Found { inode: 5, ..found }.held_by(), Some(0));
        assert_eq!(Found { inode: 5, state: 6, ..found }.held_by(), None);
    }

    #[test]
    fn an_answer_cut_short_is_an_error() {
        assert_eq!(parse(&[0; 60]), Err(Refused::Short));
        assert_eq!(parse(b""), Err(Refused::Short));
    }
}
