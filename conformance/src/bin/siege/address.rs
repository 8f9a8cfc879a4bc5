//! Where the server is: `9p://HOST[:PORT][?aname=NAME]`, or `HOST:PORT`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, bail};

/// The port that 9P has (IANA, service name 9pfs is 564; 5640 is what servers without privileges use).
const PORT: u16 = 5640;

/// A server that takes TCP connections.
#[derive(Clone, Debug)]
pub struct Address {
    pub socket: SocketAddr,
    /// The name of the tree to attach.
    pub aname: String,
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Address> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let place = match place.split_once("://") {
            Some(("9p", place)) => place.trim_end_matches('/'),
            Some((scheme, _)) => bail!("{scheme}: only 9p:// addresses can be besieged"),
            None => place,
        };
        let aname = match query.split_once('=') {
            Some(("aname", name)) => name,
            None if query.is_empty() => "",
            _ => bail!("?{query}: only ?aname=NAME is understood"),
        };
        let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let place = if has_port { place.to_owned() } else { format!("{place}:{PORT}") };
        let mut found = place.to_socket_addrs().with_context(|| place.clone())?;
        let socket = found.next().with_context(|| format!("{place}: no address"))?;
        Ok(Address { socket, aname: aname.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gives_host_port_and_attach_name() {
        let address: Address = "9p://127.0.0.1:564?aname=/srv/x".parse().unwrap();
        assert_eq!((address.socket.port(), address.aname.as_str()), (564, "/srv/x"));
        let address: Address = "127.0.0.1".parse().unwrap();
        assert_eq!((address.socket.port(), address.aname.as_str()), (PORT, ""));
        assert!("9ps://127.0.0.1".parse::<Address>().is_err());
    }
}
