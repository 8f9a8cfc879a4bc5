//! How much is read of directories before it is asked for, and by how many threads.
//!
//! [`Ahead`] is what an export has for it, [`Budget`] what one connection may take of that, and [`Share`] what one open directory
//! takes. Over either bound nothing more is read ahead; the rest of one getdents(2) stays, lest each reply read it again. What
//! a connection makes us keep has its own bound: over that its directories, and no others, keep nothing.
//! A [`Permit`] is a thread that reads what nobody waits for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::lock;

/// Bytes of memory of an export, over which nothing more is read ahead: 128 directories that are read at a time.
const ALL: usize = 32 << 20;

/// Bytes of memory of a connection, over which nothing more is read ahead for it: a quarter, so that one reader is not all.
const BUDGET: usize = 8 << 20;

/// Bytes of memory of a connection, over which its directories keep nothing: 512 of them, each read in part.
const KEPT: usize = 32 << 20;

/// Threads of an export that read ahead. They are the blocking pool's, which has 512: a disk that hangs may take these.
const THREADS: usize = 16;

/// What an export has for reading ahead.
#[derive(Default, Debug)]
pub(super) struct Ahead {
    bytes: AtomicUsize,
    threads: AtomicUsize,
    /// By connection.
    budgets: Mutex<HashMap<u64, Weak<Budget>>>,
}

impl Ahead {
    /// What this connection may take, whatever it attaches.
    pub(super) fn budget(self: &Arc<Ahead>, connection: u64) -> Arc<Budget> {
        let mut budgets = lock(&self.budgets);
        if let Some(budget) = budgets.get(&connection).and_then(Weak::upgrade) {
            return budget;
        }
        let budget = Arc::new(Budget { connection, bytes: AtomicUsize::new(0), all: self.clone() });
        budgets.insert(connection, Arc::downgrade(&budget));
        budget
    }
}

/// What a connection may take of it.
#[derive(Debug)]
pub(super) struct Budget {
    connection: u64,
    bytes: AtomicUsize,
    all: Arc<Ahead>,
}

impl Budget {
    /// A directory's share, of no bytes yet.
    pub(super) fn share(self: &Arc<Budget>) -> Share {
        Share { bytes: 0, budget: self.clone() }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let mut budgets = lock(&self.all.budgets);
        // Another may have come in its place.
        if budgets.get(&self.connection).is_some_and(|budget| budget.strong_count() == 0) {
            budgets.remove(&self.connection);
        }
    }
}

/// One directory's share.
#[derive(Debug)]
pub(super) struct Share {
    bytes: usize,
    budget: Arc<Budget>,
}

impl Share {
    /// Counts `bytes` from now on; `false` when they are more than may be kept, and must be given back.
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        for count in [&self.budget.bytes, &self.budget.all.bytes] {
            // In this order: others see no sum that never was.
            count.fetch_sub(self.bytes, Ordering::Relaxed);
            count.fetch_add(bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        bytes == 0 || self.budget.bytes.load(Ordering::Relaxed) <= KEPT
    }

    /// Whether more may be read ahead. Each thread may go over the bounds by one getdents(2), and sees it then.
    pub(super) fn has_room(&self) -> bool {
        self.budget.bytes.load(Ordering::Relaxed) < BUDGET && self.budget.all.bytes.load(Ordering::Relaxed) < ALL
    }

    /// A thread that may read ahead, unless there are enough of them.
    pub(super) fn permit(&self) -> Option<Permit> {
        let all = &self.budget.all;
        let more = |threads| (threads < THREADS).then_some(threads + 1);
        let permit = all.threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        permit.is_ok().then(|| Permit(all.clone()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// One thread that reads ahead.
#[derive(Debug)]
pub(super) struct Permit(Arc<Ahead>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Ahead {
    /// Bytes that directories hold now.
    pub(super) fn held(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Threads that read ahead now.
    pub(super) fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Leaves nothing to be read ahead for others.
    pub(super) fn take_all(self: &Arc<Ahead>) -> Share {
        let mut share = self.budget(u64::MAX).share();
        share.set(ALL);
        share
    }
}

#[cfg(test)]
impl Budget {
    /// Leaves nothing to be kept for other directories of the connection.
    pub(super) fn take_all(self: &Arc<Budget>) -> Share {
        let mut share = self.share();
        share.set(KEPT);
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_one_budget_however_often_it_attaches_and_leaves_nothing_behind() {
        let all: Arc<Ahead> = Arc::default();
        let (one, again, other) = (all.budget(1), all.budget(1), all.budget(2));
        assert!(Arc::ptr_eq(&one, &again) && !Arc::ptr_eq(&one, &other));
        let mut share = one.share();
        assert!(share.set(BUDGET));
        assert!(!again.share().has_room() && other.share().has_room());
        assert!(!again.share().set(KEPT) && other.share().set(KEPT - BUDGET));
        drop((one, again, other));
        assert_eq!((all.held(), lock(&all.budgets).len()), (BUDGET, 1));
        drop(share);
        assert_eq!((all.held(), lock(&all.budgets).len()), (0, 0));
    }

    #[test]
    fn no_more_threads_read_ahead_than_an_export_has() {
        let all: Arc<Ahead> = Arc::default();
        let (one, other) = (all.budget(1).share(), all.budget(2).share());
        let permits: Vec<Permit> = std::iter::from_fn(|| one.permit()).collect();
        assert_eq!((permits.len(), all.threads()), (THREADS, THREADS));
        assert!(other.permit().is_none());
        drop(permits);
        assert!(other.permit().is_some());
    }
}
