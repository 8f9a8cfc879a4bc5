//! Whether a mount is one of this very server: [`server`] says where a mount's files come from,
//! [`is_reached_by`] whether that is here.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::unix::ffi::OsStrExt;

use crate::transport::{Address, Place};

/// TCP port of a mount by Linux's client that shows none (P9_PORT in net/9p/trans_fd.c).
const LINUX_PORT: u16 = 564;

/// The 9P server that a mount is of, by its type, source and own options (proc_pid_mountinfo(5)).
pub(super) fn server(kind: &[u8], source: &[u8], options: &[u8]) -> Option<Place> {
    if kind != b"9p" {
        return std::str::from_utf8(source).ok()?.parse::<Address>().ok().map(|address| address.place);
    }
    let option = |name: &[u8]| options.split(|&b| b == b',').find_map(|option| option.strip_prefix(name));
    match option(b"trans=")? {
        b"tcp" => {
            let port = match option(b"port=") {
                Some(port) => std::str::from_utf8(port).ok()?.parse().ok()?,
                None => LINUX_PORT,
            };
            Some(Place::Tcp { host: std::str::from_utf8(source).ok()?.to_owned(), port })
        }
        b"unix" => Some(Place::Unix { socket: OsStr::from_bytes(source).into() }),
        _ => None,
    }
}

/// Whether a client that connects to `server` comes to the listener at `own`.
pub(super) fn is_reached_by(own: &Place, server: &Place) -> bool {
    match (own, server) {
        (Place::Tcp { host: own, port: at }, Place::Tcp { host, port })
        | (Place::Tls { host: own, port: at, .. }, Place::Tls { host, port, .. }) => at == port && is_host(own, host),
        (own, server) => own == server,
    }
}

fn is_host(own: &str, host: &str) -> bool {
    if own == host {
        return true;
    }
    let Ok(own) = own.parse::<IpAddr>() else { return false };
    addresses(host).into_iter().any(|address| match own {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.is_ipv4() && is_here(address),
        // It takes IPv4 as well.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => is_here(address),
        own => own.to_canonical() == address,
    })
}

/// The addresses that a client of `host` connects to. Names are for others to resolve, except the one everybody has.
fn addresses(host: &str) -> Vec<IpAddr> {
    let (four, six) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
    if host == "localhost" {
        return vec![four, six];
    }
    // A zone (`%eth0`) only says by which way.
    match host.split('%').next().unwrap_or(host).parse::<IpAddr>().map(|address| address.to_canonical()) {
        // Whoever connects to no address in particular comes to this machine.
        Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => vec![four],
        Ok(IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => vec![six],
        Ok(address) => vec![address],
        Err(_) => Vec::new(),
    }
}

/// Whether the address is this machine's: only such can be bound.
fn is_here(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}
