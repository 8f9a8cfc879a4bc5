//! Waiting for clients: bind a [`Listener`], then accept from it for ever.

use std::io;
use std::time::Duration;

use tokio::net::TcpListener;
use tracing::{debug, warn};

use super::{Address, Peer, Place, Stream, tcp, unix};

/// A place where clients can connect. Dropping it ends that; the file of a Unix socket is removed.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(unix::Socket),
}

/// The first wait after an accept that failed for want of descriptors or memory.
const BACKOFF_FIRST: Duration = Duration::from_millis(5);
/// The longest: long enough not to spin, short enough to be back soon after a descriptor is free.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

pub(super) fn no_tls() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "TLS is not there yet: use 9p:// or 9p+unix:, through ssh from other machines",
    )
}

impl Listener {
    /// Listens at `address`; its path, attach name and dialect mean nothing here. The error names the address.
    pub async fn bind(address: &Address) -> io::Result<Listener> {
        let bound = match &address.place {
            Place::Tcp { host, port } => tcp::bind(host, *port).await.map(Listener::Tcp),
            Place::Unix { socket } => unix::Socket::bind(socket).map(Listener::Unix),
            Place::Tls { .. } => Err(no_tls()),
            Place::Ssh { .. } => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "ssh starts the server: it cannot listen there"))
            }
        };
        bound.map_err(|e| {
            let said = why_not(&e, &address.place).map_or_else(|| e.to_string(), str::to_owned);
            io::Error::new(e.kind(), format!("{}: {said}", address.place))
        })
    }

    /// Where clients can connect: with the real port, when port 0 was asked for.
    pub fn local_address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(Address::tcp),
            Listener::Unix(socket) => Ok(Address::unix(&socket.path)),
        }
    }

    /// The next client. Never fails: a client that is gone again is passed over, and when the process or the machine
    /// is out of descriptors or memory this waits, each time longer up to a second, and tries again.
    ///
    /// Dropping the future loses no client.
    pub async fn accept(&self) -> (Stream, Peer) {
        let mut backoff = BACKOFF_FIRST;
        loop {
            let accepted = match self {
                Listener::Tcp(listener) => listener.accept().await.map(|(stream, peer)| tcp::accepted(stream, peer)),
                Listener::Unix(socket) => socket.listener.accept().await.map(|(stream, _)| unix::accepted(stream)),
            };
            match accepted {
                Ok(Ok(connection)) => return connection,
                Ok(Err(e)) => debug!("a client went away while it was accepted: {e}"),
                Err(e) if is_of_the_client(&e) => debug!("a client went away before it was accepted: {e}"),
                Err(e) => {
                    warn!("cannot accept clients: {e}; trying again in {} ms", backoff.as_millis());
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }
}

/// What is wrong with a place where one cannot listen, and what to do, where the system's own words do not say it.
fn why_not(e: &io::Error, place: &Place) -> Option<&'static str> {
    use rustix::io::Errno;
    match (Errno::from_raw_os_error(e.raw_os_error()?), place) {
        (Errno::ADDRINUSE, Place::Tcp { .. }) => {
            Some("another program listens there: stop it, or choose another port; 0 is a free one")
        }
        (Errno::ACCESS, Place::Tcp { .. }) => Some("a port under 1024 needs root: choose another port"),
        (Errno::ADDRNOTAVAIL, Place::Tcp { .. }) => {
            Some("this machine does not have that address: choose one of its own, as `ip address` shows them")
        }
        (Errno::NOENT, Place::Unix { .. }) => {
            Some("the socket's directory does not exist: make it, or choose another path")
        }
        (Errno::ACCESS | Errno::PERM | Errno::ROFS, Place::Unix { .. }) => {
            Some("the socket cannot be made there: choose a directory that this user may write to")
        }
        (Errno::NAMETOOLONG, Place::Unix { .. }) => {
            Some("a socket's path has at most 107 bytes (unix(7)): choose a shorter one")
        }
        _ => None,
    }
}

/// Errors that accept(2) passes on from the new connection; the next accept may succeed at once.
fn is_of_the_client(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = e.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(
            Errno::CONNABORTED
                | Errno::INTR
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::dial;
    use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

    /// Sends bytes both ways between a listener and whoever dials it, in one gathered write where there is one.
    async fn talk(listener: &Listener) -> Peer {
        let address = listener.local_address().unwrap();
        let (client, server) = tokio::join!(dial(&address), listener.accept());
        let (mut client, (mut server, peer)) = (client.unwrap(), server);
        assert!(server.is_write_vectored());
        server.write_all(b"to the client").await.unwrap();
        server.shutdown().await.unwrap();
        let mut got = String::new();
        client.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "to the client");
        client.write_all(b"back").await.unwrap();
        drop(client);
        got.clear();
        server.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "back");
        peer
    }

    #[tokio::test]
    async fn port_0_becomes_a_real_port_and_the_peer_is_known() {
        let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address().unwrap();
        assert!(matches!(address.place, Place::Tcp { port, .. } if port != 0), "{address}");
        let Peer::Tcp { peer, local } = talk(&listener).await else { panic!() };
        assert!(peer.ip().is_loopback());
        assert_eq!(Address::tcp(local), address);
    }

    #[tokio::test]
    async fn a_unix_peer_is_known_by_its_uid() {
        let dir = tempfile::tempdir().unwrap();
        let listener = Listener::bind(&Address::unix(dir.path().join("s"))).await.unwrap();
        let Peer::Unix { uid, gid, pid } = talk(&listener).await else { panic!() };
        assert_eq!((uid, gid), (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()));
        assert_eq!(pid, std::process::id() as i32);
    }

    #[tokio::test]
    async fn the_error_of_a_bind_names_the_address() {
        let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address().unwrap();
        let e = Listener::bind(&address).await.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::AddrInUse);
        assert!(e.to_string().starts_with(&address.to_string()), "{e}");
        let e = Listener::bind(&"h:/x".parse().unwrap()).await.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::Unsupported);
    }

    #[tokio::test]
    async fn the_error_of_a_bind_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("s".repeat(108));
        let places = [
            // Of the block for documentation (RFC 5737): no machine has it.
            ("9p://192.0.2.1:0".parse().unwrap(), "choose one of its own"),
            (Address::unix(dir.path().join("none/s")), "make it"),
            (Address::unix(long), "choose a shorter one"),
        ];
        for (address, advice) in places {
            let e = Listener::bind(&address).await.unwrap_err().to_string();
            assert!(e.starts_with(&address.to_string()) && e.contains(advice), "{e}");
        }
    }
}
