//! Where connections come from, as far as those of one share what there is for all.

use std::net::IpAddr;

use crate::transport::Peer;

/// Those of one origin share the places that it has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Origin {
    /// An IPv4 address, or an IPv6 network: a host has as many addresses of one as it likes (RFC 4291, 2.5.4).
    Net(IpAddr),
    User(u32),
    Here,
}

impl Origin {
    pub fn of(peer: &Peer) -> Origin {
        match *peer {
            Peer::Tcp { peer, .. } => Origin::Net(match peer.ip().to_canonical() {
                IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
                v4 @ IpAddr::V4(_) => v4,
            }),
            Peer::Unix { uid, .. } => Origin::User(uid),
            Peer::Stdio | Peer::Memory => Origin::Here,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Origin {
        let peer = text.parse().unwrap();
        Origin::of(&Peer::Tcp { peer, local: "127.0.0.1:5640".parse().unwrap(), tls: false })
    }

    #[test]
    fn an_ipv6_network_is_one_origin_and_an_ipv4_address_is_one_in_either_family() {
        assert_eq!(from("[2001:db8::1]:1"), from("[2001:db8::2:3]:9"));
        assert_ne!(from("[2001:db8::1]:1"), from("[2001:db8:0:1::1]:1"));
        assert_eq!(from("192.0.2.1:1"), from("[::ffff:192.0.2.1]:2"));
        assert_ne!(from("192.0.2.1:1"), from("192.0.2.2:1"));
    }
}
