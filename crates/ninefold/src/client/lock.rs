//! Byte-range locks, shared by all clients of a file (fcntl(2)); .L only.

use ninefold_proto::{R, T};

use super::error::{Error, Suspicion};
use super::file::File;
use super::node::unexpected;

/// What a lock lets others do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// Others may read: F_RDLCK.
    Shared,
    /// Others may do nothing: F_WRLCK.
    Exclusive,
}

/// A range that is locked, or to be locked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lock {
    pub kind: LockKind,
    /// The first byte.
    pub start: u64,
    /// Bytes; 0 means to the end of the file however long it gets.
    pub length: u64,
    /// The process that owns it: locks of one owner do not conflict.
    pub process: u32,
    /// The machine or client that `process` is a process of.
    pub client: Vec<u8>,
}

/// Tlock's types: F_RDLCK, F_WRLCK, F_UNLCK.
const READ: u8 = 0;
const WRITE: u8 = 1;
const UNLOCK: u8 = 2;

/// Rlock's statuses.
const SUCCESS: u8 = 0;
const BLOCKED: u8 = 1;
const ERROR: u8 = 2;
const GRACE: u8 = 3;

impl Lock {
    fn number(&self) -> u8 {
        match self.kind {
            LockKind::Shared => READ,
            LockKind::Exclusive => WRITE,
        }
    }
}

impl File {
    /// Takes the lock if nobody holds one that conflicts, and says whether it did. To wait for one, ask again: a request
    /// that waits at the server would hold up a server that serves one at a time.
    pub async fn try_lock(&self, lock: &Lock) -> Result<bool, Error> {
        match self.lock_request(lock.number(), lock).await? {
            SUCCESS => Ok(true),
            BLOCKED => Ok(false),
            // The server collects the locks of before its restart: later, perhaps.
            GRACE => Ok(false),
            ERROR => Err(ninefold_proto::Errno::ENOLCK.into()),
            status => Err(Suspicion::Lock(status).into()),
        }
    }

    /// Gives up every lock of `lock`'s owner in its range.
    pub async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        match self.lock_request(UNLOCK, lock).await? {
            SUCCESS => Ok(()),
            BLOCKED | ERROR | GRACE => Err(ninefold_proto::Errno::ENOLCK.into()),
            status => Err(Suspicion::Lock(status).into()),
        }
    }

    async fn lock_request(&self, locktype: u8, lock: &Lock) -> Result<u8, Error> {
        // What was written under a lock is there before another has it.
        self.behind.settle(self).await;
        let request = T::Lock {
            fid: self.fid.fid(),
            locktype,
            flags: 0,
            start: lock.start,
            length: lock.length,
            proc_id: lock.process,
            client_id: &lock.client,
        };
        match self.client.call(request).await?.message()? {
            R::Lock { status } => Ok(status),
            _ => Err(unexpected()),
        }
    }

    /// A lock of somebody that stands in the way of `lock`; `None` when it could be taken.
    pub async fn conflicting_lock(&self, lock: &Lock) -> Result<Option<Lock>, Error> {
        let request = T::Getlock {
            fid: self.fid.fid(),
            locktype: lock.number(),
            start: lock.start,
            length: lock.length,
            proc_id: lock.process,
            client_id: &lock.client,
        };
        let reply = self.client.call(request).await?;
        let R::Getlock { locktype, start, length, proc_id, client_id } = reply.message()? else {
            return Err(unexpected());
        };
        let kind = match locktype {
            READ => LockKind::Shared,
            WRITE => LockKind::Exclusive,
            UNLOCK => return Ok(None),
            other => return Err(Suspicion::Lock(other).into()),
        };
        Ok(Some(Lock { kind, start, length, process: proc_id, client: client_id.to_vec() }))
    }
}
