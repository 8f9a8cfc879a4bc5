//! When something last moved that a call has to wait behind: the clock of its timeout.
//!
//! A call fails when it has seen silence for the timeout, not when it has taken long: what is queued in front of it may
//! take minutes over a slow link. What it sees is bytes of itself, or of calls that were made before it, that leave; and
//! replies to itself, or to what was asked before it, whole or [`STEP`] by step. What was asked later does not count, or a
//! server that answers others and never this one would be waited for as long as there are others. So a call is bounded by
//! what was in front of it when it was made.

use std::time::Duration;

use tokio::time::Instant;

/// Bytes of an unfinished reply that count as a sign of life: the least msize. A server that drips bytes must bring so many
/// within each timeout; the slowest modem brings them in seconds.
pub(super) const STEP: usize = ninefold_proto::wire::MSIZE_MIN as usize;

/// Marks that are kept whatever the number of calls.
const MARKS: usize = 64;

/// What a timeout beyond every calendar is taken for, in place of an overflow.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// What moved, and when.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The [ordinal](ninefold_proto::client::Session::ordinal) of what moved, and the moment: both grow. What moved for a
    /// call moved for all later ones too.
    marks: Vec<(u64, Instant)>,
    latest: Option<Instant>,
}

impl Progress {
    /// Something of the request moved, no earlier than anything noted before.
    pub fn note(&mut self, ordinal: u64, now: Instant) {
        while self.marks.pop_if(|(moved, _)| *moved >= ordinal).is_some() {}
        self.marks.push((ordinal, now));
        self.latest = Some(now);
    }

    /// When last something moved that the request waits behind, since [`Progress::forget`].
    pub fn seen_by(&self, ordinal: u64) -> Option<Instant> {
        let count = self.marks.partition_point(|&(moved, _)| moved <= ordinal);
        count.checked_sub(1).map(|last| self.marks[last].1)
    }

    /// When anything moved last.
    pub fn latest(&self) -> Option<Instant> {
        self.latest
    }

    /// Whether there are more marks than are worth keeping for so many requests: then each should note what it has seen.
    pub fn is_long(&self, requests: usize) -> bool {
        self.marks.len() > requests + MARKS
    }

    /// Forgets all but the latest.
    pub fn forget(&mut self) {
        self.marks.clear();
    }
}

/// The moment `limit` after `since`.
pub(super) fn after(since: Instant, limit: Duration) -> Instant {
    since.checked_add(limit).unwrap_or_else(|| since + FOREVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sees_what_moves_of_itself_and_of_those_before_it() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut progress = Progress::default();
        assert_eq!((progress.seen_by(u64::MAX), progress.latest()), (None, None));
        for (ordinal, second) in [(4, 1), (2, 2), (7, 3), (5, 4), (5, 5)] {
            progress.note(ordinal, at(second));
        }
        let seen: Vec<_> = [0, 1, 2, 4, 5, 9].into_iter().map(|ordinal| progress.seen_by(ordinal)).collect();
        assert_eq!(seen, [None, None, Some(at(2)), Some(at(2)), Some(at(5)), Some(at(5))]);
        progress.forget();
        assert_eq!((progress.seen_by(9), progress.latest()), (None, Some(at(5))));
    }

    #[test]
    fn marks_are_kept_for_what_is_outstanding_and_a_few_more() {
        let mut progress = Progress::default();
        let now = Instant::now();
        (0..64).for_each(|ordinal| progress.note(ordinal, now));
        assert!(!progress.is_long(0));
        progress.note(64, now);
        assert!(progress.is_long(0) && !progress.is_long(1));
    }

    #[test]
    fn a_timeout_beyond_every_calendar_is_no_overflow() {
        assert!(after(Instant::now(), Duration::MAX) > Instant::now() + Duration::from_secs(1 << 29));
    }
}
