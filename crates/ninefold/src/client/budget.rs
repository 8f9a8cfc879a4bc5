//! Bytes on the way of all files of a connection together: [`Options::flights_max`](super::Options::flights_max).
//!
//! Every [`Flight`](super::flight) has a [`Share`]. What a flight asks for ahead needs room here as well as in its own window;
//! the one message that is its next is never refused. So nobody waits here for somebody else, who may never come to take what
//! arrived for him: a flight that finds no room waits for its own replies, and when it has none to wait for it may send.
//! The bound is therefore exceeded by one message for each file at most. The number of requests is bounded by the
//! connection's calls, which are waited for in turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Budget(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// The depth of the deepest reply that gave room back.
    freed_depth: u32,
}

impl Budget {
    /// A share of at most `most` bytes together with all others.
    pub fn share(&self, most: usize) -> Share {
        Share { budget: self.clone(), most, bytes: 0, refused: false }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.held().bytes
    }
}

/// What one flight holds; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Budget,
    most: usize,
    bytes: usize,
    /// There was no room when it was last asked for.
    refused: bool,
}

impl Share {
    /// Whether there is room for so many bytes more.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        let fits = self.budget.held().bytes.saturating_add(bytes) <= self.most;
        self.refused |= !fits;
        fits
    }

    /// Takes room, whether or not there is any, and gives the depth of the reply that it was waited for; 0 for none.
    pub fn take(&mut self, bytes: usize) -> u32 {
        self.bytes += bytes;
        let mut held = self.budget.held();
        held.bytes += bytes;
        if std::mem::take(&mut self.refused) { held.freed_depth } else { 0 }
    }

    /// Gives room back, as followed from a reply of `depth`.
    pub fn free(&mut self, bytes: usize, depth: u32) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut held = self.budget.held();
        held.bytes -= bytes;
        held.freed_depth = held.freed_depth.max(depth);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.free(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_a_bound_together_and_give_back_what_they_held() {
        let budget = Budget::default();
        let (mut one, mut other) = (budget.share(100), budget.share(100));
        assert!(one.has_room(100) && !one.has_room(101));
        one.take(60);
        assert!(other.has_room(40) && !other.has_room(41));
        one.free(1000, 3);
        assert_eq!(budget.bytes(), 0);
        other.take(60);
        drop(other);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn room_that_was_waited_for_is_caused_by_the_reply_that_freed_it() {
        let budget = Budget::default();
        let (mut one, mut other) = (budget.share(100), budget.share(100));
        assert_eq!(one.take(100), 0);
        assert!(!other.has_room(1));
        one.free(50, 7);
        assert!(other.has_room(50));
        assert_eq!((other.take(50), other.take(0)), (7, 0));
    }
}
