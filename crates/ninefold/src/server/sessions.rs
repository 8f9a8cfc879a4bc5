//! Clients' sessions: which connections are one client's (Tsession, docs/protocol.md).
//!
//! A session lasts as long as one of its connections. Its number is the client's secret; besides, a session is one user's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use ninefold_proto::types::SessionId;
use ninefold_proto::{Errno, Error};

#[derive(Debug)]
pub(super) struct Sessions {
    /// Names this run of the server; not 0.
    pub epoch: u64,
    table: Mutex<Table>,
}

/// No larger than the number of connections.
#[derive(Debug, Default)]
struct Table {
    sessions: HashMap<SessionId, Session>,
    /// The session of each connection that has one.
    of: HashMap<u64, SessionId>,
}

#[derive(Debug)]
struct Session {
    uid: u32,
    connections: usize,
}

impl Sessions {
    /// Of a server that starts now. Two starts have the same epoch once in 2^64 times.
    pub fn new() -> Sessions {
        use std::hash::{BuildHasher, RandomState};

        // The keys of a hash map are the system's random numbers; the clock tells starts within one process apart.
        let now = std::time::SystemTime::now();
        let epoch = RandomState::new().hash_one(now).max(1);
        Sessions { epoch, table: Mutex::default() }
    }

    /// Makes a connection one of a session of this user. ESESSION when it is not known and not to be made, or another
    /// user's; EINVAL when the connection has another.
    pub fn bind(&self, connection: u64, session: SessionId, uid: u32, create: bool) -> Result<(), Error> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { sessions, of } = &mut *table;
        let bound = of.get(&connection);
        if bound.is_some_and(|bound| *bound != session) {
            return Err(Error::with_text(Errno::EINVAL, "this connection has another session"));
        }
        let is_new = bound.is_none();
        match sessions.entry(session) {
            Entry::Occupied(known) if known.get().uid != uid => return Err(Errno::ESESSION.into()),
            Entry::Occupied(mut known) => known.get_mut().connections += usize::from(is_new),
            Entry::Vacant(_) if !create => return Err(Errno::ESESSION.into()),
            Entry::Vacant(free) => drop(free.insert(Session { uid, connections: 1 })),
        }
        if is_new {
            of.insert(connection, session);
        }
        Ok(())
    }

    /// A connection has ended.
    pub fn leave(&self, connection: u64) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(session) = table.of.remove(&connection) else { return };
        if let Entry::Occupied(mut known) = table.sessions.entry(session) {
            known.get_mut().connections -= 1;
            if known.get().connections == 0 {
                known.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId([1; 16]);
    const TWO: SessionId = SessionId([2; 16]);

    #[test]
    fn a_session_is_there_from_its_first_connection_to_its_last() {
        let sessions = Sessions::new();
        let errno = |result: Result<(), Error>| result.unwrap_err().errno;
        assert_eq!(errno(sessions.bind(1, ONE, 1000, false)), Errno::ESESSION);
        sessions.bind(1, ONE, 1000, true).unwrap();
        sessions.bind(1, ONE, 1000, true).unwrap();
        sessions.bind(2, ONE, 1000, false).unwrap();
        sessions.leave(1);
        sessions.bind(3, ONE, 1000, false).unwrap();
        sessions.leave(2);
        sessions.leave(3);
        sessions.leave(4);
        assert_eq!(errno(sessions.bind(5, ONE, 1000, false)), Errno::ESESSION);
        assert!(sessions.table.lock().unwrap().of.is_empty());
    }

    #[test]
    fn a_session_is_one_users_and_a_connection_is_of_one_session() {
        let sessions = Sessions::new();
        sessions.bind(1, ONE, 1000, true).unwrap();
        assert_eq!(sessions.bind(2, ONE, 1001, true).unwrap_err().errno, Errno::ESESSION);
        assert_eq!(sessions.bind(1, TWO, 1000, true).unwrap_err().errno, Errno::EINVAL);
        sessions.bind(2, TWO, 1001, true).unwrap();
    }

    #[test]
    fn two_runs_have_epochs_of_their_own() {
        assert_ne!(Sessions::new().epoch, Sessions::new().epoch);
    }
}
