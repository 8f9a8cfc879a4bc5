//! Whether what a TCP connection sends is copied on its way to the peer, as the kernel tells of the device that it leaves by (rtnetlink(7)).
//!
//! What sendfile(2) sends are pages of a file. A network card, and a TUN device, reads them before the peer acknowledges them. Between two
//! sockets of one machine they are handed over: on the loopback device, and on those that containers have, they lie in the peer's
//! socket, acknowledged, and still change with the file.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr as NetlinkAddress, protocols::NETLINK_ROUTE};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// The kernel answers while it takes the request, so this bound is for a kernel that does not.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Whether all that a connection from `local` sends to `peer` is copied before it is acknowledged; of a device that is not known for it, `false`. Takes
/// two seconds at the most.
pub(super) fn is_copied(local: SocketAddr, peer: SocketAddr) -> io::Result<bool> {
    let mut asks = Asks::open()?;
    let RouteNetlinkMessage::NewRoute(route) = asks.ask(RouteNetlinkMessage::GetRoute(route(local, peer)))? else {
        return Err(io::Error::other("an answer to another question"));
    };
    let device =
        route.attributes.iter().find_map(|one| if let RouteAttribute::Oif(index) = one { Some(*index) } else { None });
    let Some(device) = device else { return Ok(false) };
    let mut link = LinkMessage::default();
    link.header.index = device;
    link.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
    let RouteNetlinkMessage::NewLink(link) = asks.ask(RouteNetlinkMessage::GetLink(link))? else {
        return Err(io::Error::other("an answer to another question"));
    };
    Ok(copies(&link))
}

/// The question for the route of one packet.
fn route(local: SocketAddr, peer: SocketAddr) -> RouteMessage {
    // A listener for both families sees IPv4 peers as ::ffff:a.b.c.d.
    let (source, destination) = (local.ip().to_canonical(), peer.ip().to_canonical());
    let mut route = RouteMessage::default();
    let (family, prefix) = if destination.is_ipv4() { (AddressFamily::Inet, 32) } else { (AddressFamily::Inet6, 128) };
    route.header.address_family = family;
    route.header.destination_prefix_length = prefix;
    route.header.source_prefix_length = prefix;
    route.attributes = vec![RouteAttribute::Destination(destination.into()), RouteAttribute::Source(source.into())];
    // An address of one link is known with its interface only.
    if let (SocketAddr::V6(peer), true) = (peer, destination.is_ipv6())
        && peer.scope_id() != 0
    {
        route.attributes.push(RouteAttribute::Oif(peer.scope_id()));
    }
    route
}

/// Whether a device copies what leaves by it: one of hardware, which has no kind; one whose packets a program reads; one that seals them.
fn copies(link: &LinkMessage) -> bool {
    let infos = link
        .attributes
        .iter()
        .find_map(|one| if let LinkAttribute::LinkInfo(infos) = one { Some(infos) } else { None });
    let kind =
        infos.into_iter().flatten().find_map(|one| if let LinkInfo::Kind(kind) = one { Some(kind) } else { None });
    match kind {
        None => !link.header.flags.contains(LinkFlags::Loopback),
        Some(InfoKind::Tun | InfoKind::Wireguard) => true,
        Some(_) => false,
    }
}

/// A socket for one question after another.
struct Asks(Socket);

impl Asks {
    fn open() -> io::Result<Asks> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        // Nobody but the kernel is heard from then on.
        socket.connect(&NetlinkAddress::new(0, 0))?;
        Ok(Asks(socket))
    }

    fn ask(&mut self, question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(question));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        let (answer, _) = self.0.recv_from_full()?;
        match NetlinkMessage::deserialize(&answer).map_err(io::Error::other)?.payload {
            NetlinkPayload::InnerMessage(answer) => Ok(answer),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            _ => Err(io::Error::other("an answer that tells nothing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(flags: LinkFlags, kind: Option<InfoKind>) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.header.flags = flags;
        link.attributes.extend(kind.map(|kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)])));
        link
    }

    #[test]
    fn a_device_of_hardware_and_one_that_a_program_reads_copy_and_those_within_a_machine_do_not() {
        assert!(copies(&link(LinkFlags::Up, None)));
        assert!(!copies(&link(LinkFlags::Up | LinkFlags::Loopback, None)));
        for (kind, is_copied) in [
            (InfoKind::Tun, true),
            (InfoKind::Wireguard, true),
            (InfoKind::Veth, false),
            (InfoKind::Bridge, false),
            (InfoKind::Other("netkit".to_owned()), false),
        ] {
            assert_eq!(copies(&link(LinkFlags::Up, Some(kind))), is_copied);
        }
    }

    #[test]
    fn this_machine_is_reached_by_its_loopback_device() {
        for address in ["127.0.0.1:1", "[::ffff:127.0.0.1]:1", "[::1]:1"] {
            let address: SocketAddr = address.parse().unwrap();
            match is_copied(address, address) {
                Ok(is_copied) => assert!(!is_copied, "{address}"),
                // A machine without IPv6 has no such route.
                Err(error) => assert!(address.ip().to_canonical().is_ipv6(), "{address}: {error}"),
            }
        }
    }

    #[test]
    fn what_has_no_route_is_an_error() {
        let (local, peer) = ("127.0.0.1:1".parse().unwrap(), "[2001:db8::1]:1".parse().unwrap());
        assert!(is_copied(local, peer).is_err());
    }
}
