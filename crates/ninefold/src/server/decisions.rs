//! Who attaches were decided to act as lately ([`Policy`](super::Policy)), so that the user database, which takes a dozen files, is not asked for each of the connections that
//! a client makes one after another.
//!
//! Where one peer claims to be very many nothing more is remembered for some seconds, and all are asked for as before.
//!
//! What is decided by what the kernel knows of a connection, as on loopback, is not remembered: the next one may be another's.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::User;
use crate::transport::Peer;

/// For so long it is believed: who is taken out of a group is in it for connections that come until then.
const TOLD: Duration = Duration::from_secs(10);

/// Decisions that are remembered.
const MOST: usize = 256;

/// Bytes of a name that is remembered: as long as the user database has them (useradd(8): 32), and more.
const NAME: usize = 64;

/// What they go by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Claim {
    /// Of a peer on a Unix socket; `None` of one on another machine.
    uid: Option<u32>,
    uname: Vec<u8>,
    n_uname: u32,
}

impl Claim {
    fn of(peer: &Peer, uname: &[u8], n_uname: u32) -> Option<Claim> {
        let uid = match peer {
            Peer::Unix { uid, .. } => Some(*uid),
            Peer::Tcp { peer, .. } if !peer.ip().to_canonical().is_loopback() => None,
            Peer::Tcp { .. } | Peer::Stdio | Peer::Memory => return None,
        };
        (uname.len() <= NAME).then(|| Claim { uid, uname: uname.to_vec(), n_uname })
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Decisions(Mutex<HashMap<Claim, (User, Instant)>>);

impl Decisions {
    fn known(&self) -> MutexGuard<'_, HashMap<Claim, (User, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom an attach acts as, if that was decided lately.
    pub fn recall(&self, peer: &Peer, uname: &[u8], n_uname: u32) -> Option<User> {
        self.recall_at(peer, uname, n_uname, Instant::now())
    }

    fn recall_at(&self, peer: &Peer, uname: &[u8], n_uname: u32, now: Instant) -> Option<User> {
        let claim = Claim::of(peer, uname, n_uname)?;
        self.known().get(&claim).filter(|(_, until)| now < *until).map(|(user, _)| user.clone())
    }

    /// It was decided, by what the user database has said since `asked`.
    pub fn remember(&self, peer: &Peer, uname: &[u8], n_uname: u32, (user, asked): (&User, Instant)) {
        let Some(claim) = Claim::of(peer, uname, n_uname) else { return };
        let (mut known, until) = (self.known(), asked + TOLD);
        if known.len() >= MOST {
            known.retain(|_, (_, until)| asked < *until);
        }
        // Where there are more, those that were first are remembered; and of one claim what was asked for last.
        let is_later = known.get(&claim).is_none_or(|(_, before)| *before < until);
        if is_later && (known.len() < MOST || known.contains_key(&claim)) {
            known.insert(claim, (user.clone(), until));
        }
    }
}

#[cfg(test)]
mod tests {
    use ninefold_proto::types::NONUNAME;

    use super::*;

    fn user(uid: u32) -> User {
        User { name: "u".to_owned(), uid, gid: 1, groups: vec![2] }
    }

    fn tcp(peer: &str) -> Peer {
        Peer::Tcp { peer: peer.parse().unwrap(), local: "192.0.2.2:5640".parse().unwrap(), tls: false }
    }

    fn unix(uid: u32) -> Peer {
        Peer::Unix { uid, gid: 0, pid: 1 }
    }

    #[test]
    fn what_was_decided_is_known_for_the_same_claim_and_for_some_time() {
        let decisions = Decisions::default();
        let elsewhere = tcp("192.0.2.1:1000");
        let now = Instant::now();
        decisions.remember(&elsewhere, b"u", 7, (&user(7), now));
        decisions.remember(&unix(8), b"u", 7, (&user(8), now));
        // From another port, and another machine: nothing of them counts but that they are not here.
        for peer in ["192.0.2.1:1001", "192.0.2.3:1"] {
            assert_eq!(decisions.recall(&tcp(peer), b"u", 7), Some(user(7)));
        }
        assert_eq!(decisions.recall(&unix(8), b"u", 7), Some(user(8)));
        for (peer, uname, n_uname) in
            [(&elsewhere, b"v", 7), (&elsewhere, b"u", NONUNAME), (&unix(7), b"u", 7), (&unix(9), b"u", 7)]
        {
            assert_eq!(decisions.recall(peer, uname, n_uname), None, "{peer} {n_uname}");
        }
        assert_eq!(decisions.recall_at(&elsewhere, b"u", 7, now + TOLD), None);
        // What was asked for before that, and took longer, is not believed.
        decisions.remember(&elsewhere, b"u", 7, (&user(9), now - Duration::from_millis(1)));
        assert_eq!(decisions.recall_at(&elsewhere, b"u", 7, now), Some(user(7)));
    }

    #[test]
    fn what_the_kernel_is_asked_of_each_connection_is_asked_each_time() {
        let decisions = Decisions::default();
        for peer in [tcp("127.0.0.1:9"), tcp("[::1]:9"), tcp("[::ffff:127.0.0.1]:9"), Peer::Stdio, Peer::Memory] {
            decisions.remember(&peer, b"u", 7, (&user(7), Instant::now()));
            assert_eq!(decisions.recall(&peer, b"u", 7), None, "{peer}");
        }
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for_nor_long_names() {
        let (decisions, elsewhere) = (Decisions::default(), tcp("192.0.2.1:1000"));
        for n in 0..=MOST as u32 {
            decisions.remember(&elsewhere, b"", n, (&user(n), Instant::now()));
        }
        assert_eq!(decisions.recall(&elsewhere, b"", 0), Some(user(0)));
        assert_eq!(decisions.recall(&elsewhere, b"", MOST as u32), None);
        // One that is known is decided anew all the same.
        decisions.remember(&elsewhere, b"", 0, (&user(9), Instant::now() + Duration::from_secs(1)));
        assert_eq!(decisions.recall(&elsewhere, b"", 0), Some(user(9)));
        // Those that are over make way.
        decisions.known().values_mut().for_each(|(_, until)| *until = Instant::now());
        let now = Instant::now();
        decisions.remember(&elsewhere, &[b'n'; NAME], 0, (&user(1), now));
        decisions.remember(&elsewhere, &[b'n'; NAME + 1], 0, (&user(1), now));
        assert_eq!(decisions.known().len(), 1);
    }
}
