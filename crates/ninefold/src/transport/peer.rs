//! Who is at the other end, as far as the transport itself knows.

use std::fmt;
use std::net::SocketAddr;

use super::tcp;

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
    /// Whether it is another process on this machine, as far as can be seen: what passes a tunnel ends here too.
    pub(crate) fn is_here(&self) -> bool {
        match self {
            Peer::Tcp { local, .. } => tcp::is_here(local.ip()),
            Peer::Unix { .. } => true,
            // The other end of a command may be that of ssh(1).
            Peer::Stdio | Peer::Memory => false,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_here_when_its_way_does_not_leave_the_machine() {
        let tcp = |local: &str| Peer::Tcp { peer: local.parse().unwrap(), local: local.parse().unwrap(), tls: true };
        for local in ["127.0.0.1:564", "127.1.2.3:1", "[::1]:564", "[::ffff:127.0.0.1]:564"] {
            assert!(tcp(local).is_here(), "{local}");
        }
        assert!(Peer::Unix { uid: 0, gid: 0, pid: 0 }.is_here());
        for local in ["192.0.2.1:564", "[2001:db8::1]:564", "[::ffff:192.0.2.1]:564", "0.0.0.0:564"] {
            assert!(!tcp(local).is_here(), "{local}");
        }
        assert!(!Peer::Stdio.is_here());
    }
}
