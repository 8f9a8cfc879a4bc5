//! The context of one request: whose connection it is on, whether it was cancelled, and parking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ninefold_proto::Error;
use tokio::sync::Notify;

use crate::transport::{PipeShare, Piped};

/// When one more request may be let wait, in milliseconds: a hint, for what the others wait for may never come.
const ROOM_IN: u32 = 1000;

/// The context of one request. Cheap to clone into a future.
#[derive(Clone, Debug)]
pub struct Cx {
    connection: u64,
    cancel: Arc<Cancel>,
    parked: Arc<Parking>,
    /// Bytes that the request carries or asks for.
    bulk: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Cancel {
    cancelled: AtomicBool,
    wake: Notify,
    /// Proofs that the request is parked.
    parked: AtomicUsize,
}

impl Cancel {
    /// Wakes whoever waits in [`Cx::cancelled`].
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }

    /// Whether the request waits for something that may never come. One that was cancelled ends.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Acquire) > 0 && !self.cancelled.load(Ordering::Acquire)
    }
}

/// What the requests of one connection share: how many wait for something that may never come, the bytes they hold, and
/// the connection's pipes.
#[derive(Debug)]
pub(crate) struct Parking {
    count: AtomicUsize,
    limit: usize,
    /// Bytes that the waiting requests carry or have room for.
    bulk: AtomicU64,
    /// One that waits alone may hold more.
    bulk_limit: u64,
    /// Where the connection takes what pipes hold.
    pipes: Option<PipeShare>,
}

impl Parking {
    pub(crate) fn new(limit: usize, bulk_limit: u64, pipes: Option<PipeShare>) -> Arc<Parking> {
        Arc::new(Parking { count: AtomicUsize::new(0), limit, bulk: AtomicU64::new(0), bulk_limit, pipes })
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn bulk(&self) -> u64 {
        self.bulk.load(Ordering::Acquire)
    }

    fn take(&self, bulk: u64) -> bool {
        let may_hold = |held: u64| bulk == 0 || held == 0 || held.saturating_add(bulk) <= self.bulk_limit;
        let held = |n: u64| may_hold(n).then(|| n.saturating_add(bulk));
        if self.bulk.fetch_update(Ordering::AcqRel, Ordering::Acquire, held).is_err() {
            return false;
        }
        let counted = |n: usize| (n < self.limit).then_some(n + 1);
        let taken = self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, counted).is_ok();
        if !taken {
            self.bulk.fetch_sub(bulk, Ordering::AcqRel);
        }
        taken
    }
}

/// Proof that a request is counted as parked; dropping it ends that.
#[derive(Debug)]
pub struct Parked {
    parking: Arc<Parking>,
    cancel: Arc<Cancel>,
    bulk: u64,
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.cancel.parked.fetch_sub(1, Ordering::AcqRel);
        self.parking.bulk.fetch_sub(self.bulk, Ordering::AcqRel);
        self.parking.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Cx {
    pub(crate) fn new(connection: u64, cancel: Arc<Cancel>, parked: Arc<Parking>) -> Cx {
        Cx { connection, cancel, parked, bulk: 0 }
    }

    /// The same for a request that carries or asks for `bulk` bytes.
    pub(crate) fn with_bulk(self, bulk: u64) -> Cx {
        Cx { bulk, ..self }
    }

    /// A context that belongs to no connection: for tests and for calls a server makes by itself.
    pub fn detached() -> Cx {
        Cx::new(0, Arc::default(), Parking::new(usize::MAX, u64::MAX, None))
    }

    /// A number for the connection, unique in this process; lock owners are kept apart by it.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Whether the request was flushed or its connection lost.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.cancelled.load(Ordering::Acquire)
    }

    /// Ends when the request is flushed or its connection lost. Select on it in every wait that is not
    /// bounded, and then answer `EINTR`, having changed nothing.
    pub async fn cancelled(&self) {
        let wake = self.cancel.wake.notified();
        tokio::pin!(wake);
        // Registered before the flag is read, so that a cancel between the two is not missed.
        wake.as_mut().enable();
        if !self.is_cancelled() {
            wake.await;
        }
    }

    /// An empty pipe for the reply's data, where the connection takes them from pipes and has not too many.
    pub(crate) fn pipe(&self) -> Option<Piped> {
        self.parked.pipes.as_ref()?.take()
    }

    /// Declares that the request now waits for something that may never come: a lock, a FIFO. It no
    /// longer holds up the reading of new requests. ETRYLATER when too many of this connection wait already, or hold
    /// too many bytes.
    pub fn park(&self) -> Result<Parked, Error> {
        if !self.parked.take(self.bulk) {
            return Err(Error::try_later(ROOM_IN, "too many requests of this connection wait already"));
        }
        self.cancel.parked.fetch_add(1, Ordering::AcqRel);
        Ok(Parked { parking: self.parked.clone(), cancel: self.cancel.clone(), bulk: self.bulk })
    }
}
