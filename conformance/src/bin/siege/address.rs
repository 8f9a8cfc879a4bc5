//! Where the server is: an address over TCP, and the names of its host looked up once.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, bail};
use ninefold::transport::{self, Place};

/// A server that takes TCP connections.
#[derive(Clone, Debug)]
pub struct Address {
    pub socket: SocketAddr,
    /// The name of the tree to attach.
    pub aname: Vec<u8>,
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Address> {
        let address: transport::Address = text.parse()?;
        let Place::Tcp { host, port } = &address.place else { bail!("{text}: only 9p:// can be besieged") };
        let mut found = (host.as_str(), *port).to_socket_addrs().with_context(|| text.to_owned())?;
        let socket = found.next().with_context(|| format!("{text}: the host has no address"))?;
        Ok(Address { socket, aname: address.aname.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gives_host_port_and_attach_name() {
        let address: Address = "9p://127.0.0.1:564?aname=/srv/x".parse().unwrap();
        assert_eq!((address.socket.port(), address.aname.as_slice()), (564, &b"/srv/x"[..]));
        assert!("9p://[::1]".parse::<Address>().unwrap().socket.is_ipv6());
        assert!("9p+unix:/s".parse::<Address>().is_err());
    }
}
