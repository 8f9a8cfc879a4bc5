//! Tokens that wait for their data connections, and data connections that wait for their tokens.
//!
//! A token is 16 random bytes: of this server, or of the client, which may send it on a data connection before the Tstream that has it is here.
//! Whoever comes with one is compared with all that wait, each byte of each, so that the time it takes tells nothing of any.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ninefold_proto::types::StreamToken;
use ninefold_proto::{Errno, Error};
use rustix::rand::{GetRandomFlags, getrandom};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use tokio::sync::oneshot;

use crate::server::Server;
use crate::transport::{Peer, Stream};

/// Where a data connection is handed to its stream.
pub(super) type Handover = oneshot::Sender<Stream>;

/// What a data connection says: a token, and who made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub token: StreamToken,
    /// The client did.
    pub own: bool,
}

impl Said {
    fn ct_eq(&self, other: &Said) -> Choice {
        self.token.0.ct_eq(&other.token.0) & u8::from(self.own).ct_eq(&u8::from(other.own))
    }
}

#[derive(Debug, Default)]
pub(super) struct Tokens {
    next: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    waiting: Vec<Entry<Handover>>,
    /// Of connections whose token is the client's own, and not known yet.
    early: Vec<Entry<oneshot::Sender<Handover>>>,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    said: Said,
    /// Where the session is, or the data connection.
    peer: Peer,
    tell: T,
}

/// Where in a table what was said stands, for who comes from where that is.
fn find<T>(table: &[Entry<T>], said: &Said, peer: &Peer) -> Option<usize> {
    let mut found = u64::MAX;
    for (at, one) in table.iter().enumerate() {
        found.conditional_assign(&(at as u64), one.said.ct_eq(said));
    }
    let at = usize::try_from(found).ok()?;
    table.get(at).is_some_and(|one| is_same(&one.peer, peer)).then_some(at)
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
        self.server.streams.tokens.table().waiting.retain(|waiting| waiting.number != self.number);
    }
}

/// A data connection's wait for its Tstream. Dropped, it waits no more.
#[derive(Debug)]
pub(super) struct Early<'s> {
    tokens: &'s Tokens,
    number: u64,
    pub stream: oneshot::Receiver<Handover>,
}

impl Drop for Early<'_> {
    fn drop(&mut self) {
        self.tokens.table().early.retain(|early| early.number != self.number);
    }
}

/// What a token is good for.
pub(super) enum Claim<'s> {
    Stream(Handover),
    /// Its Tstream is not here.
    Early(Early<'s>),
    Nothing,
}

impl Tokens {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that wait for their Tstream.
    pub fn early(&self) -> usize {
        self.table().early.len()
    }

    /// A token for a data connection from where `peer` is: a new one, or the client's own, for which a connection may wait by now.
    pub fn issue(server: &Arc<Server>, peer: &Peer, own: Option<StreamToken>) -> Result<(StreamToken, Ticket), Error> {
        let tokens = &server.streams.tokens;
        let said = match own {
            Some(token) => Said { token, own: true },
            None => Said { token: new_token()?, own: false },
        };
        let number = tokens.next.fetch_add(1, Ordering::Relaxed);
        let (mut tell, connection) = oneshot::channel();
        let mut table = tokens.table();
        if own.is_some() && table.waiting.iter().any(|one| bool::from(one.said.ct_eq(&said))) {
            return Err(Error::with_text(Errno::EEXIST, "the token is another stream's: make a random one for each"));
        }
        if own.is_some()
            && let Some(at) = find(&table.early, &said, peer)
        {
            match table.early.swap_remove(at).tell.send(tell) {
                Ok(()) => return Ok((said.token, Ticket { server: server.clone(), number, connection })),
                // That connection has gone since.
                Err(back) => tell = back,
            }
        }
        table.waiting.push(Entry { number, said, peer: peer.clone(), tell });
        Ok((said.token, Ticket { server: server.clone(), number, connection }))
    }

    /// Who waits for a connection with this token from this peer; from then on nobody does. A token from elsewhere stays good
    /// for who was given it, and one of a client's own waits for its Tstream.
    pub fn claim(&self, said: &Said, peer: &Peer) -> Claim<'_> {
        let mut table = self.table();
        if let Some(at) = find(&table.waiting, said, peer) {
            return Claim::Stream(table.waiting.swap_remove(at).tell);
        }
        let is_known = |table: &Table| {
            let known = table.waiting.iter().map(|one| one.said).chain(table.early.iter().map(|one| one.said));
            known.fold(Choice::from(0), |known, one| known | one.ct_eq(said))
        };
        // The same token twice is a thief's, or a mistake.
        if !said.own || bool::from(is_known(&table)) {
            return Claim::Nothing;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, stream) = oneshot::channel();
        table.early.push(Entry { number, said: *said, peer: peer.clone(), tell });
        Claim::Early(Early { tokens: self, number, stream })
    }
}

fn new_token() -> Result<StreamToken, Error> {
    let mut token = [0; 16];
    // So few bytes come whole (getrandom(2)).
    if getrandom(&mut token, GetRandomFlags::empty()) != Ok(token.len()) {
        return Err(Error::with_text(Errno::EIO, "the system has no random numbers"));
    }
    Ok(StreamToken(token))
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
        let (one, _ticket) = Tokens::issue(&server, &peer, None).unwrap();
        let (two, other) = Tokens::issue(&server, &peer, None).unwrap();
        assert_ne!(one, two);
        let claim = |token: StreamToken, peer: &Peer| {
            let said = Said { token, own: false };
            matches!(server.streams.tokens.claim(&said, peer), Claim::Stream(_))
        };
        assert!(!claim(StreamToken([0; 16]), &peer));
        assert!(!claim(one, &tcp("192.0.2.2:1000")) && !claim(one, &unix(0)));
        assert!(claim(one, &tcp("192.0.2.1:2000")));
        assert!(!claim(one, &tcp("192.0.2.1:2000")));
        drop(other);
        assert!(!claim(two, &peer));
        let table = server.streams.tokens.table();
        assert!(table.waiting.is_empty() && table.early.is_empty());
    }

    #[test]
    fn a_clients_own_token_may_come_before_its_stream_is_asked_for_or_behind() {
        let server = Server::builder().build();
        let (peer, elsewhere) = (tcp("192.0.2.1:1000"), tcp("192.0.2.2:1000"));
        let tokens = &server.streams.tokens;
        let said = |byte| Said { token: StreamToken([byte; 16]), own: true };
        // Behind.
        let (token, _ticket) = Tokens::issue(&server, &peer, Some(StreamToken([1; 16]))).unwrap();
        assert_eq!(token, said(1).token);
        assert!(matches!(tokens.claim(&said(1), &elsewhere), Claim::Nothing));
        assert!(matches!(tokens.claim(&Said { own: false, ..said(1) }, &peer), Claim::Nothing));
        let refused = Tokens::issue(&server, &peer, Some(StreamToken([1; 16]))).unwrap_err();
        assert_eq!(refused.errno, Errno::EEXIST);
        assert!(matches!(tokens.claim(&said(1), &peer), Claim::Stream(_)));
        // Before.
        let Claim::Early(mut early) = tokens.claim(&said(2), &peer) else { panic!("it waits") };
        assert!(matches!(tokens.claim(&said(2), &peer), Claim::Nothing));
        let (_, strangers) = Tokens::issue(&server, &elsewhere, Some(StreamToken([2; 16]))).unwrap();
        assert!(early.stream.try_recv().is_err());
        drop(strangers);
        let (_, mut ticket) = Tokens::issue(&server, &peer, Some(StreamToken([2; 16]))).unwrap();
        let handover = early.stream.try_recv().unwrap();
        assert!(!handover.is_closed() && ticket.connection.try_recv().is_err());
        drop(early);
        // One that has gone leaves the token to who comes next.
        let Claim::Early(early) = tokens.claim(&said(3), &peer) else { panic!("it waits") };
        drop(early);
        let (_, _ticket) = Tokens::issue(&server, &peer, Some(StreamToken([3; 16]))).unwrap();
        assert!(matches!(tokens.claim(&said(3), &peer), Claim::Stream(_)));
        assert!(tokens.table().early.is_empty());
    }

    #[test]
    fn an_address_is_the_same_in_either_family_and_a_user_by_whatever_process() {
        assert!(is_same(&tcp("192.0.2.1:1"), &tcp("[::ffff:192.0.2.1]:2")));
        assert!(is_same(&unix(7), &Peer::Unix { uid: 7, gid: 9, pid: 8 }));
        assert!(!is_same(&unix(7), &unix(8)));
        assert!(!is_same(&Peer::Memory, &Peer::Memory));
    }
}
