//! The port of one stream of `.s` (S1, section 4.2): at the session's address, for one connection from its peer.

use std::io;
use std::net::SocketAddr;

use ninefold_proto::stream::StreamAddress;
use ninefold_proto::{Errno, Error};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use tokio::net::TcpListener;

use super::tokens::is_same;
use super::{Streams, closing};
use crate::transport::{self, Peer, Stream};

/// Connections that may wait to be accepted: somebody else's must not keep the peer's out.
const BACKLOG: i32 = 16;

pub(super) struct Port {
    listener: TcpListener,
    local: SocketAddr,
    peer: Peer,
}

impl Port {
    /// Listens at the address at which the session of `peer` came in.
    pub fn open(peer: &Peer) -> Result<Port, Error> {
        let Peer::Tcp { local, .. } = peer else { return Err(Errno::EOPNOTSUPP.into()) };
        let (listener, local) = listen_at(*local).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, |raw| Errno(raw.cast_unsigned()));
            Error::with_text(errno, format!("no port for the stream: {error}"))
        })?;
        Ok(Port { listener, local, peer: peer.clone() })
    }

    /// As Rstream tells it.
    pub fn address(&self) -> Vec<u8> {
        StreamAddress::text(self.local.ip().to_canonical(), self.local.port()).into_bytes()
    }

    /// The connection of the peer; others are closed. Then the port is gone.
    pub async fn accept(self, streams: &Streams) -> io::Result<Stream> {
        loop {
            let (stream, from) = match self.listener.accept().await {
                // One that was gone before it was taken, perhaps another's.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                accepted => accepted?,
            };
            // Of no consequence where the peer is gone. One that dies without a word is noticed.
            let _ = transport::set_up_tcp(&stream);
            let (stream, from) = (Stream::Tcp(stream), Peer::Tcp { peer: from, local: self.local, tls: false });
            // Also another's: an end would be that of an empty file.
            closing::by_reset(&stream);
            if is_same(&self.peer, &from) {
                return Ok(stream);
            }
            streams.refuse();
            streams.tell(&from, "data connection closed: the port is another's");
        }
    }
}

fn listen_at(session: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let mut address = session;
    address.set_port(0);
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let listener = TcpListener::from_std(std::net::TcpListener::from(socket))?;
    let local = listener.local_addr()?;
    Ok((listener, local))
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt;

    use super::*;
    use crate::server::Server;

    #[tokio::test]
    async fn the_kernel_asks_whether_the_peer_of_a_data_connection_is_still_there() {
        let server = Server::builder().build();
        let local = "127.0.0.1:0".parse().unwrap();
        let port = Port::open(&Peer::Tcp { peer: "127.0.0.1:9".parse().unwrap(), local, tls: false }).unwrap();
        let (theirs, ours) = tokio::join!(tokio::net::TcpStream::connect(port.local), port.accept(&server.streams));
        let Stream::Tcp(ours) = ours.unwrap() else { panic!("no TCP") };
        assert!(sockopt::socket_keepalive(&ours).unwrap() && ours.nodelay().unwrap());
        drop(theirs);
    }
}
