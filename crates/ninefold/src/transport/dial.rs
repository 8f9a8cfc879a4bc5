//! Connecting to an address.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::{Address, Place, Stream, ssh, tcp, tls, unix};

/// Bound of a connect over TCP, with TLS or without, or to a Unix socket: three SYNs, sent after 0, 1 and 3 s, and 7 s for the last
/// to be answered. ssh has bounds of its own, and may be waiting for a person to type.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to the server at `address`. The error names the address.
pub async fn dial(address: &Address) -> io::Result<Stream> {
    reach(address, |_| {}).await.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", address.place)))
}

/// The same for whoever names the address anyhow, and may do something meanwhile: `begins` is called when names are known and the first address of
/// TCP, with TLS or without, is tried.
pub(crate) async fn reach(address: &Address, begins: impl FnOnce(SocketAddr)) -> io::Result<Stream> {
    let connect = async {
        match &address.place {
            Place::Tcp { host, port } => tcp::dial(host, *port, begins).await.map(Stream::Tcp),
            Place::Unix { socket } => unix::dial(socket),
            Place::Ssh { user, host } => ssh::dial(user.as_deref(), host),
            Place::Tls { host, port, pin } => {
                tls::connect(host, *pin, tcp::dial(host, *port, begins).await?).await.map(Stream::Tls)
            }
        }
    };
    let late =
        || Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", DIAL_TIMEOUT.as_secs())));
    let result = tokio::time::timeout(DIAL_TIMEOUT, connect).await.unwrap_or_else(|_| late());
    result.map_err(|e| {
        let why = match e.kind() {
            io::ErrorKind::ConnectionRefused => {
                "nobody listens there: start the server, or check the address".to_owned()
            }
            io::ErrorKind::NotFound if matches!(address.place, Place::Unix { .. }) => {
                "there is no such socket: start the server, or check the path".to_owned()
            }
            _ => return e,
        };
        io::Error::new(e.kind(), why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_of_a_dial_names_the_address() {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::unix(dir.path().join("none"));
        let e = dial(&address).await.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
        assert!(e.to_string().starts_with(&address.to_string()), "{e}");
        assert!(e.to_string().contains("start the server"), "{e}");
    }

    #[tokio::test]
    async fn a_host_that_has_no_address_cannot_be_reached() {
        // Over the 63 bytes of RFC 1035: no name server is asked.
        let host = "x".repeat(64);
        let e = dial(&format!("9p://{host}").parse().unwrap()).await.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::HostUnreachable, "{e}");
    }
}
