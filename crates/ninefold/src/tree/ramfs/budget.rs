//! How much memory a tree may hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ninefold_proto::Errno;

/// Bytes that a tree may hold, and those that it does.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget { limit, used: AtomicU64::new(0) })
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Ordering::Relaxed))
    }
}

/// Bytes that something takes of the budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    /// ENOSPC when that is more than is left.
    pub(super) fn new(budget: &Arc<Budget>, bytes: u64) -> Result<Charge, Errno> {
        let mut charge = Charge::nothing(budget);
        charge.resize(bytes)?;
        Ok(charge)
    }

    pub(super) fn nothing(budget: &Arc<Budget>) -> Charge {
        Charge { budget: budget.clone(), bytes: 0 }
    }

    /// Bytes by which it could grow now.
    pub(super) fn room(&self) -> u64 {
        self.budget.free()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// ENOSPC, and no change, when it grows by more than is left.
    pub(super) fn resize(&mut self, bytes: u64) -> Result<(), Errno> {
        if bytes <= self.bytes {
            self.budget.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let (more, limit) = (bytes - self.bytes, self.budget.limit);
            let grow = |used: u64| used.checked_add(more).filter(|&sum| sum <= limit);
            let grown = self.budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow);
            grown.map_err(|_| Errno::ENOSPC)?;
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
