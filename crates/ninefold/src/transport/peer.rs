//! Who is at the other end, as far as the transport itself knows.

use std::fmt;
use std::net::SocketAddr;

/// The other end of a connection. Nothing in it was said by the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    Tcp {
        peer: SocketAddr,
        /// Our own end: with `peer` it names the connection.
        local: SocketAddr,
        /// What passes is sealed.
        tls: bool,
    },
    /// As the kernel noted it at connect time (SO_PEERCRED, unix(7)).
    Unix {
        uid: u32,
        gid: u32,
        /// 0 when the kernel does not say.
        pid: i32,
    },
    /// Whoever started this process.
    Stdio,
    /// This process.
    Memory,
}

impl Peer {
    /// The same behind TLS.
    pub(super) fn sealed(self) -> Peer {
        match self {
            Peer::Tcp { peer, local, .. } => Peer::Tcp { peer, local, tls: true },
            other => other,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp { peer, .. } => write!(f, "{peer}"),
            Peer::Unix { uid, pid, .. } => write!(f, "process {pid} of uid {uid}"),
            Peer::Stdio => f.write_str("standard input"),
            Peer::Memory => f.write_str("memory"),
        }
    }
}
