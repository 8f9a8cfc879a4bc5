//! The context of one request: whose connection it is on, whether it was cancelled, and parking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ninefold_proto::{Errno, Error};
use tokio::sync::Notify;

/// The context of one request. Cheap to clone into a future.
#[derive(Clone, Debug)]
pub struct Cx {
    connection: u64,
    cancel: Arc<Cancel>,
    parked: Arc<Parking>,
}

#[derive(Debug, Default)]
pub(crate) struct Cancel {
    cancelled: AtomicBool,
    wake: Notify,
}

impl Cancel {
    /// Wakes whoever waits in [`Cx::cancelled`].
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }
}

/// How many requests of one connection wait for something that may never come.
#[derive(Debug)]
pub(crate) struct Parking {
    count: AtomicUsize,
    limit: usize,
}

impl Parking {
    pub(crate) fn new(limit: usize) -> Arc<Parking> {
        Arc::new(Parking { count: AtomicUsize::new(0), limit })
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

/// Proof that a request is counted as parked; dropping it ends that.
#[derive(Debug)]
pub struct Parked(Arc<Parking>);

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Cx {
    pub(crate) fn new(connection: u64, cancel: Arc<Cancel>, parked: Arc<Parking>) -> Cx {
        Cx { connection, cancel, parked }
    }

    /// A context that belongs to no connection: for tests and for calls a server makes by itself.
    pub fn detached() -> Cx {
        Cx { connection: 0, cancel: Arc::default(), parked: Parking::new(usize::MAX) }
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

    /// Declares that the request now waits for something that may never come: a lock, a FIFO. It no
    /// longer holds up the reading of new requests. EAGAIN when too many of this connection wait already.
    pub fn park(&self) -> Result<Parked, Error> {
        let count = &self.parked.count;
        let taken =
            count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < self.parked.limit).then_some(n + 1));
        if taken.is_err() {
            return Err(Error::with_text(Errno::EAGAIN, "too many requests of this connection wait already"));
        }
        Ok(Parked(self.parked.clone()))
    }
}
