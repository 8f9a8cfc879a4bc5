//! Tokens that wait for their data connections.
//!
//! A token is 16 random bytes. Whoever comes with one is compared with all that wait, each byte of each, so that the time it
//! takes tells nothing of any.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ninefold_proto::types::StreamToken;
use ninefold_proto::{Errno, Error};
use rustix::rand::{GetRandomFlags, getrandom};
use subtle::{ConditionallySelectable, ConstantTimeEq};
use tokio::sync::oneshot;

use crate::server::Server;
use crate::transport::{Peer, Stream};

#[derive(Debug, Default)]
pub(super) struct Tokens {
    next: AtomicU64,
    waiting: Mutex<Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    token: [u8; 16],
    /// Where the session is.
    peer: Peer,
    connection: oneshot::Sender<Stream>,
}

/// A stream's wait for whoever comes with its token. Dropped, the token is good no more.
#[derive(Debug)]
pub(super) struct Ticket {
    server: Arc<Server>,
    number: u64,
    pub connection: oneshot::Receiver<Stream>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.server.streams.tokens.waiting().retain(|waiting| waiting.number != self.number);
    }
}

impl Tokens {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new token, for a data connection from where `peer` is.
    pub fn issue(server: &Arc<Server>, peer: &Peer) -> Result<(StreamToken, Ticket), Error> {
        let tokens = &server.streams.tokens;
        let mut token = [0; 16];
        // So few bytes come whole (getrandom(2)).
        if getrandom(&mut token, GetRandomFlags::empty()) != Ok(token.len()) {
            return Err(Error::with_text(Errno::EIO, "the system has no random numbers"));
        }
        let number = tokens.next.fetch_add(1, Ordering::Relaxed);
        let (sender, connection) = oneshot::channel();
        tokens.waiting().push(Waiting { number, token, peer: peer.clone(), connection: sender });
        Ok((StreamToken(token), Ticket { server: server.clone(), number, connection }))
    }

    /// Who waits for a connection with this token from this peer; from then on nobody does. A token from elsewhere stays good
    /// for who was given it.
    pub fn claim(&self, token: &[u8; 16], peer: &Peer) -> Option<oneshot::Sender<Stream>> {
        let mut waiting = self.waiting();
        let mut found = u64::MAX;
        for (at, one) in waiting.iter().enumerate() {
            found.conditional_assign(&(at as u64), one.token.ct_eq(token));
        }
        let at = usize::try_from(found).ok()?;
        let is_it = waiting.get(at).is_some_and(|one| is_same(&one.peer, peer));
        is_it.then(|| waiting.swap_remove(at).connection)
    }
}

/// Whether two connections come from one address, both sealed or neither, or of one user of this machine.
pub(super) fn is_same(one: &Peer, other: &Peer) -> bool {
    match (one, other) {
        (&Peer::Tcp { peer: one, tls: sealed, .. }, &Peer::Tcp { peer: other, tls, .. }) => {
            one.ip().to_canonical() == other.ip().to_canonical() && sealed == tls
        }
        (Peer::Unix { uid: one, .. }, Peer::Unix { uid: other, .. }) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(text: &str) -> Peer {
        Peer::Tcp { peer: text.parse().unwrap(), local: "127.0.0.1:5640".parse().unwrap(), tls: false }
    }

    fn unix(uid: u32) -> Peer {
        Peer::Unix { uid, gid: 0, pid: 1 }
    }

    #[test]
    fn a_token_is_good_once_and_from_the_address_of_its_session() {
        let server = Server::builder().build();
        let peer = tcp("192.0.2.1:1000");
        let (one, _ticket) = Tokens::issue(&server, &peer).unwrap();
        let (two, other) = Tokens::issue(&server, &peer).unwrap();
        assert_ne!(one, two);
        let claim = |token: StreamToken, peer: &Peer| server.streams.tokens.claim(&token.0, peer).is_some();
        assert!(!claim(StreamToken([0; 16]), &peer));
        assert!(!claim(one, &tcp("192.0.2.2:1000")) && !claim(one, &unix(0)));
        assert!(claim(one, &tcp("192.0.2.1:2000")));
        assert!(!claim(one, &tcp("192.0.2.1:2000")));
        drop(other);
        assert!(!claim(two, &peer));
        assert!(server.streams.tokens.waiting().is_empty());
    }

    #[test]
    fn an_address_is_the_same_in_either_family_and_a_user_by_whatever_process() {
        assert!(is_same(&tcp("192.0.2.1:1"), &tcp("[::ffff:192.0.2.1]:2")));
        assert!(is_same(&unix(7), &Peer::Unix { uid: 7, gid: 9, pid: 8 }));
        assert!(!is_same(&unix(7), &unix(8)));
        assert!(!is_same(&Peer::Memory, &Peer::Memory));
    }
}
