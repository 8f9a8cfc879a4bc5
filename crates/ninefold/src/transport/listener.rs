//! Waiting for clients: bind a [`Listener`], then accept from it for ever.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tracing::{debug, warn};

use super::{Address, Identity, Peer, Place, Stream, tcp, unix};

/// A place where clients can connect. Dropping it ends that; the file of a Unix socket is removed.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Tls { listener: TcpListener, identity: Identity },
    Unix(unix::Socket),
}

/// The first wait after an accept that failed for want of descriptors or memory.
const BACKOFF_FIRST: Duration = Duration::from_millis(5);
/// The longest: long enough not to spin, short enough to be back soon after a descriptor is free.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

impl Listener {
    /// Listens at `address`; its path, attach name and dialect mean nothing here. The error names the address.
    pub async fn bind(address: &Address) -> io::Result<Listener> {
        let bound = match &address.place {
            Place::Tcp { host, port } => tcp::bind(host, *port).await.map(Listener::Tcp),
            Place::Unix { socket } => unix::Socket::bind(socket).map(Listener::Unix),
            Place::Tls { .. } => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "TLS needs a certificate: see Listener::bind_tls"))
            }
            Place::Ssh { .. } => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "ssh starts the server: it cannot listen there"))
            }
        };
        bound.map_err(|e| named(&e, address))
    }

    /// The same for TLS as well, where clients are shown `identity`.
    pub async fn bind_tls(address: &Address, identity: Identity) -> io::Result<Listener> {
        let Place::Tls { host, port, .. } = &address.place else { return Listener::bind(address).await };
        let listener = tcp::bind(host, *port).await.map_err(|e| named(&e, address))?;
        Ok(Listener::Tls { listener, identity })
    }

    /// The socket's address, of TCP and TLS.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) | Listener::Tls { listener, .. } => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        }
    }

    /// Where clients can connect: with the real port, when port 0 was asked for, and the pin, with TLS.
    pub fn local_address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(Address::tcp),
            Listener::Tls { listener, identity } => {
                let at = listener.local_addr()?;
                Ok(Address::new(Place::Tls { host: at.ip().to_string(), port: at.port(), pin: Some(identity.pin()) }))
            }
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
                Listener::Tcp(listener) => listener.accept().await.map(|(stream, peer)| {
                    let (stream, peer) = tcp::accepted(stream, peer)?;
                    Ok((Stream::Tcp(stream), peer))
                }),
                Listener::Tls { listener, identity } => listener.accept().await.map(|(stream, peer)| {
                    let (stream, peer) = tcp::accepted(stream, peer)?;
                    Ok((Stream::Tls(identity.accept(stream)), peer.sealed()))
                }),
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

fn named(e: &io::Error, address: &Address) -> io::Error {
    let said = why_not(e, &address.place).map_or_else(|| e.to_string(), str::to_owned);
    io::Error::new(e.kind(), format!("{}: {said}", address.place))
}

/// What is wrong with a place where one cannot listen, and what to do, where the system's own words do not say it.
fn why_not(e: &io::Error, place: &Place) -> Option<&'static str> {
    use rustix::io::Errno;
    match (Errno::from_raw_os_error(e.raw_os_error()?), place) {
        (Errno::ADDRINUSE, Place::Tcp { .. } | Place::Tls { .. }) => {
            Some("another program listens there: stop it, or choose another port; 0 is a free one")
        }
        (Errno::ACCESS, Place::Tcp { .. } | Place::Tls { .. }) => {
            Some("a port under 1024 needs root: choose another port")
        }
        (Errno::ADDRNOTAVAIL, Place::Tcp { .. } | Place::Tls { .. }) => {
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
        // Beside it: hands are shaken when the server first reads or writes.
        let client = tokio::spawn(async move { dial(&address).await });
        let (mut server, peer) = listener.accept().await;
        assert!(server.is_write_vectored());
        server.write_all(b"to the client").await.unwrap();
        server.shutdown().await.unwrap();
        let mut client = client.await.unwrap().unwrap();
        let mut got = String::new();
        client.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "to the client");
        client.write_all(b"back").await.unwrap();
        client.shutdown().await.unwrap();
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
        let Peer::Tcp { peer, local, .. } = talk(&listener).await else { panic!() };
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
    async fn over_tls_a_pinned_server_is_taken_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::kept(dir.path()).unwrap();
        assert_eq!(Identity::kept(dir.path()).unwrap().pin(), identity.pin());
        let other = Identity::kept(&dir.path().join("other")).unwrap();
        let at = "9ps://127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind_tls(&at, identity.clone()).await.unwrap();
        assert!(matches!(talk(&listener).await, Peer::Tcp { .. }));
        let right = listener.local_address().unwrap();
        for (pin, said) in [(Some(other.pin()), "this is another server"), (None, "?pin=sha256:")] {
            let Place::Tls { host, port, .. } = right.place.clone() else { panic!() };
            let wrong = Address::new(Place::Tls { host, port, pin });
            let (refused, (mut stream, _)) = tokio::join!(dial(&wrong), async {
                let mut accepted = listener.accept().await;
                let shaken = accepted.0.read_u8().await;
                assert!(shaken.is_err(), "{shaken:?}");
                accepted
            });
            let e = refused.unwrap_err().to_string();
            assert!(e.starts_with("9ps://127.0.0.1:") && e.contains(said), "{e}");
            assert!(stream.write_all(b"x").await.is_err());
        }
    }

    #[tokio::test]
    async fn who_speaks_no_tls_is_told_nothing_and_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let at = "9ps://127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind_tls(&at, Identity::kept(dir.path()).unwrap()).await.unwrap();
        let mut plain = tokio::net::TcpStream::connect(listener.socket_address().unwrap()).await.unwrap();
        let (mut silent, _) = listener.accept().await;
        // The next is served all the same.
        assert!(matches!(talk(&listener).await, Peer::Tcp { .. }));
        plain.write_all(&[19, 0, 0, 0, 100, 255, 255, 0, 0, 1, 0, 6, 0]).await.unwrap();
        assert!(silent.read_u8().await.unwrap_err().to_string().starts_with("TLS: "));
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
