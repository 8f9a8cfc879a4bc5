//! Whether what a TCP connection sends is copied on its way to the peer, as the kernel tells of the device that it leaves by (rtnetlink(7)).
//!
//! What sendfile(2) sends are pages of a file. A network card, and a TUN device, reads them before the peer acknowledges them. Between two
//! sockets of one machine they are handed over: on the loopback device, and on those that containers have, they lie in the peer's
//! socket, acknowledged, and still change with the file. A VLAN does what the device below it does, and a bond or a team what its members do.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr as NetlinkAddress, protocols::NETLINK_ROUTE};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// The kernel answers while it takes the request, so this bound is for a kernel that does not.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Devices that lie above one another, at most: the kernel's own bound (MAX_NEST_DEV).
const LAYERS: u8 = 8;

/// Whether all that a connection from `local` sends to `peer` is copied before it is acknowledged; of a device that is not known for it, `false`. The
/// kernel may have it wait while devices are set up.
pub(super) fn is_copied(local: SocketAddr, peer: SocketAddr) -> io::Result<bool> {
    let mut asks = Asks::open()?;
    let RouteNetlinkMessage::NewRoute(route) = asks.ask(RouteNetlinkMessage::GetRoute(route(local, peer)))? else {
        return Err(io::Error::other("an answer to another question"));
    };
    let device =
        route.attributes.iter().find_map(|one| if let RouteAttribute::Oif(index) = one { Some(*index) } else { None });
    match device {
        Some(device) => asks.copies(device, LAYERS),
        None => Ok(false),
    }
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

/// What becomes of what leaves by a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaves {
    /// It is copied: by one of hardware, which has no kind, one whose packets a program reads, or one that seals them.
    Copied,
    /// It is handed over within the machine, or it is not known where it goes.
    AsPages,
    /// As by that one.
    By(u32),
    /// As by all of its members.
    ByMembers,
}

fn leaves(link: &LinkMessage) -> Leaves {
    let kind = find(link, |one| if let LinkAttribute::LinkInfo(infos) = one { Some(infos) } else { None })
        .into_iter()
        .flatten()
        .find_map(|one| if let LinkInfo::Kind(kind) = one { Some(kind) } else { None });
    match kind {
        None if link.header.flags.contains(LinkFlags::Loopback) => Leaves::AsPages,
        None | Some(InfoKind::Tun | InfoKind::Wireguard) => Leaves::Copied,
        // The number of one of another network name space is none here.
        Some(InfoKind::Vlan) if !has(link, |one| matches!(one, LinkAttribute::LinkNetNsId(_))) => {
            let below = find(link, |one| if let LinkAttribute::Link(index) = one { Some(index) } else { None });
            below.map_or(Leaves::AsPages, |&index| Leaves::By(index))
        }
        Some(InfoKind::Bond | InfoKind::Team) => Leaves::ByMembers,
        Some(_) => Leaves::AsPages,
    }
}

fn is_member(link: &LinkMessage, of: u32) -> bool {
    has(link, |one| matches!(one, LinkAttribute::Controller(index) if *index == of))
}

fn has(link: &LinkMessage, what: impl Fn(&LinkAttribute) -> bool) -> bool {
    link.attributes.iter().any(what)
}

fn find<'a, T>(link: &'a LinkMessage, what: impl Fn(&'a LinkAttribute) -> Option<&'a T>) -> Option<&'a T> {
    link.attributes.iter().find_map(what)
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

    /// Whether what leaves by a device is copied. At most so many devices lie above one another.
    fn copies(&mut self, device: u32, layers: u8) -> io::Result<bool> {
        let Some(layers) = layers.checked_sub(1) else { return Ok(false) };
        let below = match leaves(&self.link(device)?) {
            Leaves::Copied => return Ok(true),
            Leaves::AsPages => return Ok(false),
            Leaves::By(device) => vec![device],
            Leaves::ByMembers => self.members(device)?,
        };
        for &device in &below {
            if !self.copies(device, layers)? {
                return Ok(false);
            }
        }
        Ok(!below.is_empty())
    }

    fn link(&mut self, device: u32) -> io::Result<LinkMessage> {
        match self.ask(RouteNetlinkMessage::GetLink(question(device)))? {
            RouteNetlinkMessage::NewLink(link) => Ok(link),
            _ => Err(io::Error::other("an answer to another question")),
        }
    }

    fn members(&mut self, device: u32) -> io::Result<Vec<u32>> {
        let mut members = Vec::new();
        self.each(RouteNetlinkMessage::GetLink(question(0)), |answer| {
            if let RouteNetlinkMessage::NewLink(link) = answer
                && is_member(&link, device)
            {
                members.push(link.header.index);
            }
        })?;
        Ok(members)
    }

    fn ask(&mut self, question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        self.send(question, NLM_F_REQUEST)?;
        let (answer, _) = self.0.recv_from_full()?;
        match NetlinkMessage::deserialize(&answer).map_err(io::Error::other)?.payload {
            NetlinkPayload::InnerMessage(answer) => Ok(answer),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            _ => Err(io::Error::other("an answer that tells nothing")),
        }
    }

    /// Takes all answers to a question: of several in each datagram (netlink(7)).
    fn each(&mut self, question: RouteNetlinkMessage, mut take: impl FnMut(RouteNetlinkMessage)) -> io::Result<()> {
        self.send(question, NLM_F_REQUEST | NLM_F_DUMP)?;
        loop {
            let (answers, _) = self.0.recv_from_full()?;
            let mut rest = &answers[..];
            while !rest.is_empty() {
                let answer = NetlinkMessage::deserialize(rest).map_err(io::Error::other)?;
                if answer.header.flags & NLM_F_DUMP_INTR != 0 {
                    return Err(io::Error::other("the devices changed meanwhile"));
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(answer) => take(answer),
                    NetlinkPayload::Done(done) if done.code == 0 => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => return Err(io::Error::other("an answer that tells nothing")),
                }
                rest = rest.get((answer.header.length as usize).next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }

    fn send(&mut self, question: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(question));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        Ok(())
    }
}

/// The question for a device.
fn question(device: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = device;
    link.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(flags: LinkFlags, kind: Option<InfoKind>, attributes: Vec<LinkAttribute>) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.header.flags = flags;
        link.attributes = attributes;
        link.attributes.extend(kind.map(|kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)])));
        link
    }

    #[test]
    fn a_device_of_hardware_and_one_that_a_program_reads_copy_and_those_within_a_machine_do_not() {
        assert_eq!(leaves(&link(LinkFlags::Up, None, Vec::new())), Leaves::Copied);
        assert_eq!(leaves(&link(LinkFlags::Up | LinkFlags::Loopback, None, Vec::new())), Leaves::AsPages);
        for (kind, expected) in [
            (InfoKind::Tun, Leaves::Copied),
            (InfoKind::Wireguard, Leaves::Copied),
            (InfoKind::Veth, Leaves::AsPages),
            (InfoKind::Bridge, Leaves::AsPages),
            (InfoKind::MacVlan, Leaves::AsPages),
            (InfoKind::Other("netkit".to_owned()), Leaves::AsPages),
            (InfoKind::Vlan, Leaves::By(7)),
            (InfoKind::Bond, Leaves::ByMembers),
            (InfoKind::Team, Leaves::ByMembers),
        ] {
            assert_eq!(leaves(&link(LinkFlags::Up, Some(kind), vec![LinkAttribute::Link(7)])), expected);
        }
        let vlan = |attributes| leaves(&link(LinkFlags::Up, Some(InfoKind::Vlan), attributes));
        assert_eq!(vlan(Vec::new()), Leaves::AsPages);
        assert_eq!(vlan(vec![LinkAttribute::Link(7), LinkAttribute::LinkNetNsId(0)]), Leaves::AsPages);
    }

    #[test]
    fn members_are_those_that_say_so_of_all_devices_there_are() {
        let of_seven = link(LinkFlags::Up, None, vec![LinkAttribute::Controller(7)]);
        assert!(is_member(&of_seven, 7) && !is_member(&of_seven, 8));
        assert!(!is_member(&link(LinkFlags::Up, None, vec![LinkAttribute::Link(7)]), 7));
        let mut asks = Asks::open().unwrap();
        let mut loopbacks = 0;
        let all = RouteNetlinkMessage::GetLink(question(0));
        asks.each(all, |answer| match answer {
            RouteNetlinkMessage::NewLink(link) if link.header.flags.contains(LinkFlags::Loopback) => loopbacks += 1,
            _ => {}
        })
        .unwrap();
        assert_eq!(loopbacks, 1);
        // What is none has none, and is nothing to leave by.
        assert!(asks.members(1).unwrap().is_empty() && !asks.copies(1, 0).unwrap());
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
