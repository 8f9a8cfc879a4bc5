//! Tokens that wait for their data connections, and data connections that wait for their tokens.
//!
//! A token is 16 random bytes: of this server, or of the client, which may send it on a data connection before the Tstream that has it is here.
//! Whoever comes with one is compared with all that wait, each byte of each, so that the time it takes tells nothing of any.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ninefold_proto::types::StreamToken;
use ninefold_proto::{Errno, Error};
use rustix::rand::{GetRandomFlags, getrandom};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::transport::Peer;

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

/// `W`: what waits for a data connection, and is given to it.
#[derive(Debug)]
pub(super) struct Tokens<W> {
    next: AtomicU64,
    table: Mutex<Table<W>>,
}

impl<W> Default for Tokens<W> {
    fn default() -> Tokens<W> {
        let table = Table { waiting: Vec::new(), early: Vec::new(), is_watched: false };
        Tokens { next: AtomicU64::new(0), table: Mutex::new(table) }
    }
}

#[derive(Debug)]
struct Table<W> {
    waiting: Vec<Entry<Waits<W>>>,
    /// Of connections whose token is the client's own, and not known yet.
    early: Vec<Entry<Comes<W>>>,
    /// Somebody ends what waits for too long.
    is_watched: bool,
}

#[derive(Debug)]
struct Waits<W> {
    what: W,
    until: Instant,
}

#[derive(Debug)]
struct Comes<W> {
    number: u64,
    tell: oneshot::Sender<W>,
}

#[derive(Debug)]
struct Entry<T> {
    said: Said,
    /// Where the session is, or the data connection.
    peer: Peer,
    it: T,
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

/// A data connection's wait for its Tstream. Dropped, it waits no more.
#[derive(Debug)]
pub(super) struct Early<'s, W> {
    tokens: &'s Tokens<W>,
    number: u64,
    stream: oneshot::Receiver<W>,
}

impl<W> Early<'_, W> {
    /// What has come, and nothing behind that: who was given to it is not lost.
    pub fn close(&mut self) -> Option<W> {
        self.stream.close();
        self.stream.try_recv().ok()
    }

    /// Waits for it; `None` where nothing comes any more.
    pub async fn comes(&mut self) -> Option<W> {
        (&mut self.stream).await.ok()
    }
}

impl<W> Drop for Early<'_, W> {
    fn drop(&mut self) {
        self.tokens.table().early.retain(|early| early.it.number != self.number);
    }
}

/// What a token is good for.
pub(super) enum Claim<'s, W> {
    Stream(W),
    /// Its Tstream is not here.
    Early(Early<'s, W>),
    Nothing,
}

impl<W> Tokens<W> {
    fn table(&self) -> MutexGuard<'_, Table<W>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that wait for their Tstream.
    pub fn early(&self) -> usize {
        self.table().early.len()
    }

    /// A token for a data connection from where `peer` is: a new one, or the client's own, for which a connection may wait by now. That
    /// is given `what`, or else who comes with the token until then. Also whether the caller is to see to the end of what waits for too long from
    /// now on: nobody does.
    pub fn issue(
        &self,
        peer: &Peer,
        own: Option<StreamToken>,
        until: Instant,
        mut what: W,
    ) -> Result<(StreamToken, bool), Error> {
        let said = match own {
            Some(token) => Said { token, own: true },
            None => Said { token: new_token()?, own: false },
        };
        let mut table = self.table();
        if own.is_some() && table.waiting.iter().any(|one| bool::from(one.said.ct_eq(&said))) {
            return Err(Error::with_text(Errno::EEXIST, "the token is another stream's: make a random one for each"));
        }
        if own.is_some()
            && let Some(at) = find(&table.early, &said, peer)
        {
            match table.early.swap_remove(at).it.tell.send(what) {
                Ok(()) => return Ok((said.token, false)),
                // That connection has gone since.
                Err(back) => what = back,
            }
        }
        table.waiting.push(Entry { said, peer: peer.clone(), it: Waits { what, until } });
        Ok((said.token, !std::mem::replace(&mut table.is_watched, true)))
    }

    /// Who waits for a connection with this token from this peer; from then on nobody does. A token from elsewhere stays good
    /// for who was given it, and one of a client's own waits for its Tstream.
    pub fn claim(&self, said: &Said, peer: &Peer) -> Claim<'_, W> {
        let mut table = self.table();
        if let Some(at) = find(&table.waiting, said, peer)
            && table.waiting[at].it.until > Instant::now()
        {
            return Claim::Stream(table.waiting.swap_remove(at).it.what);
        }
        let is_known = |table: &Table<W>| {
            let known = table.waiting.iter().map(|one| one.said).chain(table.early.iter().map(|one| one.said));
            known.fold(Choice::from(0), |known, one| known | one.ct_eq(said))
        };
        // The same token twice is a thief's, or a mistake.
        if !said.own || bool::from(is_known(&table)) {
            return Claim::Nothing;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, stream) = oneshot::channel();
        table.early.push(Entry { said: *said, peer: peer.clone(), it: Comes { number, tell } });
        Claim::Early(Early { tokens: self, number, stream })
    }

    /// Takes what is to wait no more, by what it is and until when it was to: the tokens are good for nothing.
    pub fn withdraw(&self, mut is_over: impl FnMut(&W, Instant) -> bool) -> Vec<W> {
        let mut table = self.table();
        let over = table.waiting.extract_if(.., |one| is_over(&one.it.what, one.it.until));
        over.map(|one| one.it.what).collect()
    }

    /// Who saw to what waits for too long does so no more.
    pub fn unwatch(&self) {
        self.table().is_watched = false;
    }

    /// When the first is to wait no more; `None` where nothing waits, and from then on nobody watches.
    pub fn watched_until(&self) -> Option<Instant> {
        let mut table = self.table();
        let first = table.waiting.iter().map(|one| one.it.until).min();
        table.is_watched = first.is_some();
        first
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

    fn soon() -> Instant {
        Instant::now() + std::time::Duration::from_secs(1)
    }

    fn claims(tokens: &Tokens<u32>, said: Said, peer: &Peer) -> Option<u32> {
        match tokens.claim(&said, peer) {
            Claim::Stream(what) => Some(what),
            _ => None,
        }
    }

    #[test]
    fn a_token_is_good_once_and_from_the_address_of_its_session() {
        let (tokens, peer) = (Tokens::default(), tcp("192.0.2.1:1000"));
        let (one, _) = tokens.issue(&peer, None, soon(), 1).unwrap();
        let (two, _) = tokens.issue(&peer, None, soon(), 2).unwrap();
        assert_ne!(one, two);
        let claim = |token: StreamToken, peer: &Peer| claims(&tokens, Said { token, own: false }, peer);
        assert_eq!(claim(StreamToken([0; 16]), &peer), None);
        assert_eq!([claim(one, &tcp("192.0.2.2:1000")), claim(one, &unix(0))], [None, None]);
        assert_eq!(claim(one, &tcp("192.0.2.1:2000")), Some(1));
        assert_eq!(claim(one, &tcp("192.0.2.1:2000")), None);
        assert_eq!(tokens.withdraw(|&what, _| what == 2), [2]);
        assert_eq!(claim(two, &peer), None);
        // One that is too old is good for nothing, though nobody has seen to it yet.
        let (three, _) = tokens.issue(&peer, None, Instant::now(), 3).unwrap();
        assert_eq!(claim(three, &peer), None);
        assert_eq!(tokens.withdraw(|_, until| until <= Instant::now()), [3]);
        let table = tokens.table();
        assert!(table.waiting.is_empty() && table.early.is_empty());
    }

    #[test]
    fn a_clients_own_token_may_come_before_its_stream_is_asked_for_or_behind() {
        let (tokens, peer, elsewhere) = (Tokens::default(), tcp("192.0.2.1:1000"), tcp("192.0.2.2:1000"));
        let said = |byte| Said { token: StreamToken([byte; 16]), own: true };
        let issue = |peer: &Peer, byte, what| tokens.issue(peer, Some(StreamToken([byte; 16])), soon(), what);
        // Behind.
        assert_eq!(issue(&peer, 1, 1).unwrap().0, said(1).token);
        assert!(matches!(tokens.claim(&said(1), &elsewhere), Claim::Nothing));
        assert!(matches!(tokens.claim(&Said { own: false, ..said(1) }, &peer), Claim::Nothing));
        assert_eq!(issue(&peer, 1, 1).unwrap_err().errno, Errno::EEXIST);
        assert_eq!(claims(&tokens, said(1), &peer), Some(1));
        // Before.
        let Claim::Early(mut early) = tokens.claim(&said(2), &peer) else { panic!("it waits") };
        assert!(matches!(tokens.claim(&said(2), &peer), Claim::Nothing));
        issue(&elsewhere, 2, 2).unwrap();
        assert!(early.stream.try_recv().is_err());
        assert_eq!(tokens.withdraw(|_, _| true), [2]);
        issue(&peer, 2, 3).unwrap();
        assert_eq!((early.close(), early.close()), (Some(3), None));
        drop(early);
        // One that has gone leaves the token to who comes next, and so does one that waits no more.
        for closes in [false, true] {
            let Claim::Early(mut early) = tokens.claim(&said(3), &peer) else { panic!("it waits") };
            assert!(!closes || early.close().is_none());
            let kept = closes.then_some(early);
            issue(&peer, 3, 4).unwrap();
            assert_eq!(claims(&tokens, said(3), &peer), Some(4));
            drop(kept);
        }
        assert!(tokens.table().early.is_empty());
    }

    #[test]
    fn somebody_watches_as_long_as_something_waits() {
        let (tokens, peer) = (Tokens::default(), tcp("192.0.2.1:1000"));
        let (first, last) = (soon(), soon() + std::time::Duration::from_secs(9));
        let issue = |until, what| tokens.issue(&peer, None, until, what).unwrap().1;
        assert_eq!([issue(last, 2), issue(first, 1)], [true, false]);
        assert_eq!(tokens.watched_until(), Some(first));
        assert_eq!(tokens.withdraw(|_, until| until <= first), [1]);
        assert_eq!(tokens.watched_until(), Some(last));
        assert!(!issue(last, 3));
        assert_eq!(tokens.withdraw(|_, _| true), [2, 3]);
        assert_eq!(tokens.watched_until(), None);
        assert_eq!([issue(last, 4), issue(last, 5)], [true, false]);
        tokens.unwatch();
        assert!(issue(last, 6));
    }

    #[test]
    fn an_address_is_the_same_in_either_family_and_a_user_by_whatever_process() {
        assert!(is_same(&tcp("192.0.2.1:1"), &tcp("[::ffff:192.0.2.1]:2")));
        assert!(is_same(&unix(7), &Peer::Unix { uid: 7, gid: 9, pid: 8 }));
        assert!(!is_same(&unix(7), &unix(8)));
        assert!(!is_same(&Peer::Memory, &Peer::Memory));
    }
}
