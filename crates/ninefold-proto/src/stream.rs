//! The address of a stream in `.s`: `tcp!ADDRESS!PORT` (S1, section 4.2).

use alloc::format;
use alloc::string::String;
use core::net::IpAddr;

/// Where a stream's one connection goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamAddress<'a> {
    /// As the server wrote it: a numeric address. Whoever dials is free to take the session's own in its stead.
    pub host: &'a str,
    /// Not 0.
    pub port: u16,
}

impl<'a> StreamAddress<'a> {
    /// Reads the data of an Rstream: three parts, the first `tcp`, the second of letters, digits, `.`, `:` and `-`, the last a
    /// port in decimal digits.
    pub fn parse(data: &'a [u8]) -> Option<StreamAddress<'a>> {
        let mut parts = core::str::from_utf8(data).ok()?.split('!');
        let (net, host, port) = (parts.next()?, parts.next()?, parts.next()?);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-');
        if net != "tcp" || parts.next().is_some() || host.is_empty() || !host.chars().all(is_plain) {
            return None;
        }
        if !port.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let port = port.parse().ok().filter(|&port| port > 0)?;
        Some(StreamAddress { host, port })
    }

    /// The text for an address and a port.
    pub fn text(address: IpAddr, port: u16) -> String {
        format!("tcp!{address}!{port}")
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let text = StreamAddress::text(address, 40000);
            let read = StreamAddress::parse(text.as_bytes()).unwrap();
            assert_eq!((read.host.parse(), read.port), (Ok(address), 40000));
        }
        assert_eq!(StreamAddress::text(Ipv4Addr::new(192, 0, 2, 1).into(), 1), "tcp!192.0.2.1!1");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "tcp",
            "tcp!h",
            "tcp!h!0",
            "tcp!h!65536",
            "tcp!h!+1",
            "tcp!h!",
            "tcp!!1",
            "udp!h!1",
            "tcp!h!1!2",
            "tcp!h h!1",
            "tcp!h\n!1",
            "tcp!h!1 ",
        ] {
            assert_eq!(StreamAddress::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(StreamAddress::parse(b"tcp!\xff!1"), None);
    }
}
