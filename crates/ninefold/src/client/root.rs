//! The root of the tree that a client is attached to, from the moment when it is asked for.
//!
//! [`Root::begin`] sends the Tsession, or the Tattach where the dialect has no sessions. With groups the first chain of the
//! client may be called behind it at once ([`Root::take_lead`]), under its tag: it names the fid that the attach is to make,
//! which no other server knows. Everything else waits for [`Root::attached`].

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use ninefold_proto::message::{Mask, Octal};
use ninefold_proto::n1::session::CREATE;
use ninefold_proto::types::SessionId;
use ninefold_proto::{Errno, Fid, Qid, R, T};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::time::Instant;

use super::connection::{Call, Handle, Place, Reply};
use super::error::{Error, Suspicion};
use super::fid::OwnedFid;
use super::node::unexpected;
use super::stats::Lane;

/// What a server said when it took a client's session (Rsession; docs/protocol.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    pub id: SessionId,
    /// What the server can beyond the dialect; no bit is defined yet.
    pub caps: u64,
    /// Of this start of the server: another one after it was started anew.
    pub epoch: u64,
    /// The server's clock when it answered.
    pub time: SystemTime,
    /// How long a lease lasts; zero: it gives none.
    pub term: Duration,
    /// Of the connection.
    pub limits: Limits,
}

/// What the server takes of one connection; over it, it stops reading or refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub fids: u32,
    /// Requests that run at a time.
    pub running: u32,
    /// Requests that wait for what may never come.
    pub parked: u32,
    /// Unanswered requests of one tag.
    pub group: u32,
    /// Requests that wait for those of their tag before them.
    pub waiting: u32,
}

/// What the attach brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attached {
    pub qid: Qid,
    pub session: Option<Session>,
    /// From the request to the reply.
    pub took: Duration,
}

/// See the [module](self).
pub(super) struct Root {
    pub fid: OwnedFid,
    handle: Handle,
    call: Call,
    /// The attach, as long as a chain may be called behind it.
    lead: Mutex<Option<Call>>,
    /// The attach's own: its reply is the cause of what waits for it, and not of what is asked beside it.
    lane: Lane,
    attached: Shared<BoxFuture<'static, Result<Attached, Error>>>,
}

/// The number of a new session.
pub(super) fn new_session() -> Result<SessionId, Error> {
    random().map(SessionId)
}

/// A fid for an early start to begin at, in the middle of all of them: a server that keeps fids from one connection to the
/// next would know the lowest.
pub(super) fn first_fid() -> Result<Fid, Error> {
    let [a, b, c, d] = random()?;
    Ok(Fid(1 << 30 | u32::from_le_bytes([a, b, c, d]) >> 2))
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Errno(e.raw_os_error().unsigned_abs()).into()),
        }
    }
    Ok(bytes)
}

impl Root {
    pub async fn begin(
        handle: &Handle,
        (uname, n_uname, aname): (&[u8], u32, &[u8]),
        session: SessionId,
        cause: u32,
    ) -> Result<Root, Error> {
        let version = handle.version();
        let room = handle.room().await?;
        let new = handle.new_kept_fid()?;
        let fid = new.fid();
        let request = if version.is_n1() {
            T::Session { flags: Octal(CREATE), session, caps: Mask(0), fid, uname, aname, n_uname }
        } else {
            T::Attach { fid, afid: Fid::NONE, uname, aname, n_uname }
        };
        let began = Instant::now();
        let waiting = handle.queue_as(room, &request, Bytes::new(), cause, &Place::Chained(Lane::default(), None))?;
        new.named();
        let call = waiting.call();
        let (lane, its_handle) = (Lane::default(), handle.clone());
        let its_lane = lane.clone();
        let attached = async move {
            let reply = waiting.wait(&its_lane).await?;
            let told = attached(&reply, session, began)?;
            // From now on it is an owned fid like any other.
            if its_handle.settle(fid) { Ok(told) } else { Err(unexpected()) }
        };
        Ok(Root {
            fid: OwnedFid::made(handle.clone(), fid),
            handle: handle.clone(),
            call,
            lead: Mutex::new(version.groups.then_some(call)),
            lane,
            attached: attached.boxed().shared(),
        })
    }

    /// The attach, for one chain to be called behind it; nobody else gets it.
    pub fn take_lead(&self) -> Option<Call> {
        self.lead.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for the attach; what follows in `lane` follows from it.
    pub async fn attached(&self, lane: &Lane) -> Result<Attached, Error> {
        let attached = match self.attached.peek() {
            Some(attached) => attached.clone(),
            None => self.attached.clone().await,
        };
        lane.raise(self.lane.depth());
        attached
    }

    /// What the attach brought, when somebody has waited for it.
    pub fn known(&self) -> Option<Attached> {
        self.attached.peek()?.as_ref().ok().copied()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if self.attached.peek().is_none() {
            // Unanswered, or nobody looked: then it is without effect.
            self.handle.give_up(self.call);
        }
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("fid", &self.fid).field("attached", &self.known()).finish_non_exhaustive()
    }
}

fn attached(reply: &Reply, id: SessionId, began: Instant) -> Result<Attached, Error> {
    let took = reply.at.saturating_duration_since(began);
    match reply.message()? {
        R::Attach { qid } => Ok(Attached { qid, session: None, took }),
        R::Session { caps, epoch, time_sec, time_nsec, term_ms, fids, running, parked, group, waiting, qid } => {
            let nsec = u32::try_from(time_nsec).ok().filter(|&nsec| nsec < 1_000_000_000);
            let nsec = nsec.ok_or(Suspicion::Time(time_nsec))?;
            let time = UNIX_EPOCH.checked_add(Duration::new(time_sec, nsec)).ok_or(Suspicion::Time(time_nsec))?;
            let limits = Limits { fids, running, parked, group, waiting };
            let term = Duration::from_millis(term_ms.into());
            let session = Some(Session { id, caps: caps.0, epoch, time, term, limits });
            Ok(Attached { qid, session, took })
        }
        _ => Err(unexpected()),
    }
}
