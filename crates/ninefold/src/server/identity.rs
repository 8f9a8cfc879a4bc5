//! Who a connection's attach acts as.
//!
//! A client says a name (uname) and, in .u and .L, a number (n_uname). Over TCP nobody vouches for either, so what
//! counts is the [`Policy`] and what this machine's kernel knows of the peer. The number wins over the name.

use std::sync::Once;

use ninefold_proto::types::NONUNAME;
use ninefold_proto::{Errno, Error};
use tracing::{debug, warn};

use super::{User, sock_diag};
use crate::transport::Peer;

/// How attaching clients become users of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Everybody acts as the user of this process: the only thing that one not run by root can do. On loopback
    /// that is only for this user and root; another user of this machine is refused, and so is a peer that has closed
    /// its socket before the kernel could be asked whose it is.
    AsProcess,
    /// Everybody acts as this user.
    Squash(User),
    /// Clients on TCP are believed; for the rest as [`Policy::ByPeer`].
    TrustUids,
    /// A peer acts as the user the kernel says it is: on Unix sockets by SO_PEERCRED, on loopback by sock_diag(7).
    /// One of uid 0 may be anybody, as the kernel's own 9P client must. Whoever asks to be somebody else, and
    /// everybody on TCP from other machines, is squashed: acts as `nobody`.
    ByPeer,
}

impl Policy {
    /// The policy of a server that was told none: [`Policy::ByPeer`] for root, else [`Policy::AsProcess`].
    pub fn of_process() -> Policy {
        if rustix::process::geteuid().is_root() { Policy::ByPeer } else { Policy::AsProcess }
    }

    /// The user that an attach of `uname` and `n_uname` by `peer` acts as.
    ///
    /// Asks the machine's user database, and the kernel for a second at the most: call it where blocking is allowed.
    /// An error is the reply to the attach.
    pub fn decide(&self, peer: &Peer, uname: &[u8], n_uname: u32) -> Result<User, Error> {
        let claim = Claim { uname, n_uname };
        if *self == Policy::AsProcess && another_user(peer) {
            return Err(Error::with_text(Errno::EACCES, "this server serves its own user only"));
        }
        let user = match (self, peer) {
            (Policy::AsProcess, _) => User::of_process(),
            (Policy::Squash(user), _) => user.clone(),
            (Policy::TrustUids, Peer::Tcp { .. }) => claim.believed().unwrap_or_else(nobody),
            (_, Peer::Tcp { .. }) => known_by_kernel(peer).owner().map_or_else(nobody, |uid| claim.made_by(uid)),
            (_, Peer::Unix { uid, .. }) => claim.made_by(*uid),
            (_, Peer::Stdio | Peer::Memory) => claim.made_by(rustix::process::geteuid().as_raw()),
        };
        debug!(%peer, uname = %uname.escape_ascii(), n_uname, "attach acts as {} (uid {})", user.name, user.uid);
        Ok(user)
    }
}

impl Policy {
    /// Whether what was decided is what it would be again: not where the user database may have failed, and another time know who is claimed, or his groups.
    pub(super) fn is_sure(&self, peer: &Peer, uname: &[u8], n_uname: u32, user: &User) -> bool {
        let is_as_claimed = user.uid == n_uname || user.name.as_bytes() == uname;
        let claim_counts = *self == Policy::TrustUids || !matches!(peer, Peer::Tcp { .. });
        // Whom it knows is in one group at least.
        !user.groups.is_empty() && (is_as_claimed || !claim_counts)
    }
}

/// Who a client says it is.
#[derive(Clone, Copy, Debug)]
struct Claim<'a> {
    uname: &'a [u8],
    n_uname: u32,
}

impl Claim<'_> {
    fn is_empty(&self) -> bool {
        self.n_uname == NONUNAME && self.uname.is_empty()
    }

    /// The user claimed, when it says one that can be found.
    fn believed(&self) -> Option<User> {
        if self.n_uname != NONUNAME {
            return Some(User::from_uid(self.n_uname));
        }
        // Names with a NUL or a colon are in no user database.
        std::str::from_utf8(self.uname).ok().filter(|name| !name.contains(['\0', ':'])).and_then(User::from_name)
    }

    /// The user for this claim, when a process of `uid` makes it.
    fn made_by(&self, uid: u32) -> User {
        if self.is_empty() {
            return User::from_uid(uid);
        }
        match self.believed() {
            Some(user) if uid == 0 || user.uid == uid => user,
            // A uid that the database does not know goes by its digits.
            None if self.uname == uid.to_string().as_bytes() => User::from_uid(uid),
            _ => nobody(),
        }
    }
}

/// Whether a peer on this machine is, or may be, a user other than this process's and root.
fn another_user(peer: &Peer) -> bool {
    match peer {
        Peer::Unix { uid, .. } => Known::Owner(*uid),
        peer => known_by_kernel(peer),
    }
    .may_be_another()
}

/// The user with the fewest rights.
fn nobody() -> User {
    /// The kernel's overflowuid, nobody's number where the database has no such name.
    const OVERFLOW_UID: u32 = 65534;
    User::from_name("nobody").unwrap_or_else(|| User::from_uid(OVERFLOW_UID))
}

/// What the kernel knows of a peer.
enum Known {
    /// On this machine, and a process of this uid holds the socket.
    Owner(u32),
    /// On this machine, but nobody is known to hold the socket any more.
    Gone,
    /// Not on loopback.
    Elsewhere,
    /// The kernel could not be asked.
    Unasked,
}

impl Known {
    /// Whether it may be a user other than this process's and root. One whose socket is closing or gone may be: it need
    /// not live to see its requests carried out. So may one of whom the kernel could not be asked: a stranger can bring
    /// that about by using up the descriptors.
    fn may_be_another(&self) -> bool {
        match self {
            Known::Owner(uid) => *uid != 0 && *uid != rustix::process::geteuid().as_raw(),
            Known::Gone | Known::Unasked => true,
            Known::Elsewhere => false,
        }
    }

    fn owner(self) -> Option<u32> {
        if let Known::Owner(uid) = self { Some(uid) } else { None }
    }
}

fn known_by_kernel(peer: &Peer) -> Known {
    let Peer::Tcp { peer, local, .. } = peer else { return Known::Elsewhere };
    if !peer.ip().to_canonical().is_loopback() {
        return Known::Elsewhere;
    }
    match sock_diag::owner(*peer, *local) {
        Ok(owner) => owner.map_or(Known::Gone, Known::Owner),
        Err(e) => {
            // Once: a stranger who can bring it about is not to fill the log.
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                warn!("cannot ask the kernel who {peer} is: {e}; it is refused or acts as nobody: use a Unix socket");
            });
            Known::Unasked
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn uid(policy: &Policy, peer: &Peer, uname: &str, n_uname: u32) -> u32 {
        policy.decide(peer, uname.as_bytes(), n_uname).unwrap().uid
    }

    fn unix(uid: u32) -> Peer {
        Peer::Unix { uid, gid: uid, pid: 1 }
    }

    fn elsewhere() -> Peer {
        Peer::Tcp { peer: "192.0.2.1:1000".parse().unwrap(), local: "192.0.2.2:5640".parse().unwrap(), tls: false }
    }

    /// No user of any machine that these tests run on.
    const STRANGER: u32 = 54_321;
    const UNKNOWN: &str = "no-such-user-here";

    #[test]
    fn a_process_without_root_is_always_its_own_user() {
        let me = rustix::process::geteuid().as_raw();
        for peer in [unix(me), unix(0), elsewhere(), Peer::Stdio] {
            assert_eq!(uid(&Policy::AsProcess, &peer, "root", STRANGER), me);
        }
    }

    #[test]
    fn whoever_cannot_be_told_from_another_user_is_one() {
        let me = rustix::process::geteuid().as_raw();
        assert!([Known::Gone, Known::Unasked, Known::Owner(STRANGER)].iter().all(Known::may_be_another));
        assert!(![Known::Owner(me), Known::Owner(0), Known::Elsewhere].iter().any(Known::may_be_another));
    }

    #[test]
    fn another_user_of_this_machine_does_not_get_to_act_as_the_servers_user() {
        let refused = Policy::AsProcess.decide(&unix(STRANGER), b"", NONUNAME).unwrap_err();
        assert_eq!(refused.errno, Errno::EACCES);
    }

    #[test]
    fn a_loopback_peer_that_closes_before_the_kernel_is_asked_does_not_act_as_the_servers_user() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let peer = Peer::Tcp { peer, local: server.local_addr().unwrap(), tls: false };
        assert!(Policy::AsProcess.decide(&peer, b"", NONUNAME).is_ok());
        client.shutdown(std::net::Shutdown::Write).unwrap();
        // The end of the stream is here: the other end has left the state ESTABLISHED.
        assert_eq!(std::io::Read::read(&mut &server, &mut [0]).unwrap(), 0);
        assert_eq!(Policy::AsProcess.decide(&peer, b"", NONUNAME).unwrap_err().errno, Errno::EACCES);
        drop(client);
        assert_eq!(Policy::AsProcess.decide(&peer, b"", NONUNAME).unwrap_err().errno, Errno::EACCES);
    }

    #[test]
    fn a_unix_peer_is_itself_by_number_by_name_or_by_saying_nothing() {
        assert_eq!(uid(&Policy::ByPeer, &unix(STRANGER), "", NONUNAME), STRANGER);
        assert_eq!(uid(&Policy::ByPeer, &unix(STRANGER), UNKNOWN, STRANGER), STRANGER);
        assert_eq!(uid(&Policy::ByPeer, &unix(STRANGER), "54321", NONUNAME), STRANGER);
    }

    #[test]
    fn a_unix_peer_that_asks_to_be_somebody_else_is_squashed() {
        let nobody = nobody().uid;
        assert_eq!(uid(&Policy::ByPeer, &unix(STRANGER), "", 0), nobody);
        assert_eq!(uid(&Policy::ByPeer, &unix(STRANGER), "root", NONUNAME), nobody);
        assert_eq!(uid(&Policy::ByPeer, &unix(STRANGER), UNKNOWN, NONUNAME), nobody);
        assert_eq!(uid(&Policy::TrustUids, &unix(STRANGER), "", 0), nobody);
    }

    #[test]
    fn a_peer_of_uid_0_is_whoever_it_says() {
        assert_eq!(uid(&Policy::ByPeer, &unix(0), "", NONUNAME), 0);
        assert_eq!(uid(&Policy::ByPeer, &unix(0), "", STRANGER), STRANGER);
        assert_eq!(uid(&Policy::ByPeer, &unix(0), "root", NONUNAME), 0);
        assert_eq!(uid(&Policy::ByPeer, &unix(0), UNKNOWN, NONUNAME), nobody().uid);
    }

    #[test]
    fn the_number_wins_over_the_name() {
        assert_eq!(uid(&Policy::ByPeer, &unix(0), "root", STRANGER), STRANGER);
        assert_eq!(uid(&Policy::ByPeer, &unix(STRANGER), "root", STRANGER), STRANGER);
        assert_eq!(uid(&Policy::TrustUids, &elsewhere(), "root", STRANGER), STRANGER);
    }

    #[test]
    fn a_peer_on_another_machine_is_nobody_unless_uids_are_trusted() {
        assert_eq!(uid(&Policy::ByPeer, &elsewhere(), "root", 0), nobody().uid);
        assert_eq!(uid(&Policy::TrustUids, &elsewhere(), "root", NONUNAME), 0);
        assert_eq!(uid(&Policy::TrustUids, &elsewhere(), "", NONUNAME), nobody().uid);
        assert_eq!(uid(&Policy::TrustUids, &elsewhere(), UNKNOWN, NONUNAME), nobody().uid);
    }

    #[test]
    fn nobody_is_sure_of_whom_the_database_does_not_know_where_that_counts() {
        let is_sure = |policy: Policy, peer: &Peer, uname: &str, n_uname: u32| {
            let user = policy.decide(peer, uname.as_bytes(), n_uname).unwrap();
            policy.is_sure(peer, uname.as_bytes(), n_uname, &user)
        };
        // Whoever it claims to be.
        assert!(is_sure(Policy::ByPeer, &elsewhere(), UNKNOWN, STRANGER));
        assert!(is_sure(Policy::TrustUids, &elsewhere(), "root", NONUNAME));
        assert!(is_sure(Policy::ByPeer, &unix(0), "", 0));
        for (uname, n_uname) in [(UNKNOWN, NONUNAME), ("", STRANGER), ("root", STRANGER)] {
            assert!(!is_sure(Policy::TrustUids, &elsewhere(), uname, n_uname), "{uname} {n_uname}");
            assert!(!is_sure(Policy::ByPeer, &unix(STRANGER), uname, n_uname), "{uname} {n_uname}");
        }
    }

    #[test]
    fn everybody_is_the_user_squashed_to() {
        let squash = Policy::Squash(User::from_uid(STRANGER));
        for peer in [unix(0), unix(7), elsewhere(), Peer::Stdio] {
            assert_eq!(uid(&squash, &peer, "root", 0), STRANGER);
        }
    }

    #[test]
    fn a_loopback_peer_is_who_the_kernel_says_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let peer = Peer::Tcp { peer, local: server.local_addr().unwrap(), tls: false };
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(uid(&Policy::ByPeer, &peer, "", NONUNAME), me);
        let other = uid(&Policy::ByPeer, &peer, "", STRANGER);
        assert_eq!(other, if me == 0 { STRANGER } else { nobody().uid });
    }

    #[test]
    fn a_name_that_no_database_can_hold_is_nobody() {
        let user = Policy::TrustUids.decide(&elsewhere(), b"ro\0ot\xff", NONUNAME).unwrap();
        assert_eq!(user, nobody());
    }
}
