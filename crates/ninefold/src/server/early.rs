//! When a peer on this machine has replies before the rest of what it asked for is done: pure, with time as an argument.
//!
//! Replies that leave together are the least work. But a peer that waits for all of them does nothing meanwhile, and then we do nothing while it
//! asks anew. Farther away a packet more may cost a round trip, so this is for peers on this machine.
//!
//! Order of driving: `begin` with each turn of the connection, `came` when requests were read, `is_time` behind each of them, `sent` when replies were.

use std::time::Duration;

use tokio::time::Instant;

/// Whoever waits for replies has those that there are after so much work.
const SHARE: Duration = Duration::from_micros(100);

/// A thread that has time to spare sends when half of what came is done, if that took twice as long as to send it does: then both ends work at
/// once. Where it has none, to send once is less work.
const HALF: Duration = Duration::from_micros(12);

/// A thread of whose connections none had a turn for so long has time to spare. What else it did meanwhile is not known here: it costs a write more.
const SLEPT: Duration = Duration::from_micros(5);

/// Turns for which it counts as such: replies that leave early keep it awake.
const SPARE: u8 = 16;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    /// Turns left of [`SPARE`].
    spare: u8,
    /// When replies were last sent in this turn, or its beginning.
    since: Instant,
    /// Bytes that are left when half of what came last is done, and when that came; until replies are sent.
    half: Option<(usize, Instant)>,
}

impl Early {
    pub fn new(now: Instant) -> Early {
        Early { spare: 0, since: now, half: None }
    }

    /// A turn begins, on a thread on which another one ended at `last`.
    pub fn begin(&mut self, now: Instant, last: Option<Instant>) {
        let slept = last.is_none_or(|last| now.saturating_duration_since(last) >= SLEPT);
        self.spare = if slept { SPARE } else { self.spare.saturating_sub(1) };
        self.since = now;
    }

    /// Requests came; so many bytes of them are there.
    pub fn came(&mut self, bytes: usize, now: Instant) {
        self.half = Some((bytes / 2, now));
    }

    /// Whether the replies that there are leave now, when `left` bytes of what came are to be done.
    pub fn is_time(&self, left: usize, now: Instant) -> bool {
        let half_is_done = |(half, came)| left <= half && now.saturating_duration_since(came) >= HALF;
        now.saturating_duration_since(self.since) >= SHARE || self.spare > 0 && self.half.is_some_and(half_is_done)
    }

    pub fn sent(&mut self, now: Instant) {
        (self.since, self.half) = (now, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn a_thread_that_slept_sends_once_when_half_is_done_and_that_was_worth_it() {
        let now = Instant::now();
        let mut early = Early::new(now);
        early.begin(now, Some(now - SLEPT));
        early.came(1000, now + US);
        assert!(!early.is_time(500, now + HALF), "too little work");
        assert!(!early.is_time(501, now + US + HALF), "less than half");
        assert!(early.is_time(500, now + US + HALF));
        early.sent(now + 20 * US);
        assert!(!early.is_time(100, now + 60 * US), "half is sent once");
        // Work on what came before does not count for what comes then.
        early.came(800, now + 70 * US);
        assert!(!early.is_time(400, now + 70 * US + HALF - US));
        assert!(early.is_time(400, now + 70 * US + HALF));
    }

    #[test]
    fn a_thread_without_a_pause_sends_early_for_some_turns_more_and_then_after_much_work_only() {
        let mut now = Instant::now();
        let mut early = Early::new(now);
        early.begin(now, None);
        for turn in 0..2 * SPARE {
            early.came(1000, now);
            assert_eq!(early.is_time(500, now + HALF), turn < SPARE, "turn {turn}");
            assert!(!early.is_time(900, now + SHARE - US) && early.is_time(900, now + SHARE));
            now += HALF;
            early.sent(now);
            early.begin(now + SLEPT - US, Some(now));
            now += SLEPT - US;
        }
        early.begin(now + SLEPT, Some(now));
        early.came(1000, now + SLEPT);
        assert!(early.is_time(500, now + SLEPT + HALF));
    }
}
