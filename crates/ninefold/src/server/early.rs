//! When a peer on this machine has replies before the rest of what it asked for is done: pure, with time as an argument.
//!
//! Replies that leave together are the least work. But a peer that waits for all of them does nothing meanwhile, and then we do nothing while it
//! asks anew, if no others ask meanwhile. Farther away a packet more may cost a round trip, so this is for peers on this machine.
//!
//! For the same reason, who is alone on its thread may look by itself for what came meanwhile ([`Early::may_look`]).
//!
//! Order of driving: `begin` with each turn of the connection, `came` when requests were read, `is_time` behind each of them, `sent` when replies were.

use std::time::Duration;

use tokio::time::Instant;

/// Whoever waits for replies has those that there are after so much work, unless fewer bytes are left than were done: what is left of a batch that takes
/// hardly longer would be a batch of its own from then on, and each costs a read and a write at either end.
const SHARE: Duration = Duration::from_micros(100);

/// A thread that has time to spare sends when half of what came is done, if that took twice as long as to send it does: then both ends work at
/// once. Where it has none, to send once is less work.
const HALF: Duration = Duration::from_micros(12);

/// Of the largest batch lately, what one has at least to be sent in two. From then on each half comes as a batch of its own while the other is made: to part these again
/// keeps nobody more at work, and costs a write and a read more.
const WHOLE: f64 = 0.75;

/// Batches after which the largest one counts for a sixteenth less.
const AGE: u8 = 64;

/// A thread on which one connection had a turn behind the other, and none for so long between them, has time to spare. What else it did meanwhile is
/// not known here: it costs a write more. Where connections take turns, one is at work while the peers of others are.
const SLEPT: Duration = Duration::from_micros(5);

/// Turns for which it counts as such: replies that leave early keep it awake.
const SPARE: u8 = 16;

/// Times that a connection looks for what came, for one that the runtime does.
const LOOKS: u8 = 16;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    /// The last turn on this thread was of this connection too.
    is_alone: bool,
    /// Times left of [`LOOKS`].
    looks: u8,
    /// Turns left of [`SPARE`].
    spare: u8,
    /// When replies were last sent in this turn, or its beginning.
    since: Instant,
    /// Bytes that are left when half of what came last is done, and when that came; until replies are sent.
    half: Option<(usize, Instant)>,
    /// The bytes of the largest batch lately, and how many came since they were last taken for less.
    most: usize,
    batches: u8,
    /// Bytes that were to be done when something came or was sent last.
    from: usize,
}

impl Early {
    pub fn new(now: Instant) -> Early {
        Early { is_alone: false, looks: LOOKS, spare: 0, since: now, half: None, most: 0, batches: 0, from: 0 }
    }

    /// A turn begins. The last one on this thread ended at `last`, if it was one of the same connection.
    pub fn begin(&mut self, now: Instant, last: Option<Instant>) {
        self.is_alone = last.is_some();
        self.spare = match last.map(|last| now.saturating_duration_since(last)) {
            None => 0,
            Some(pause) if pause >= SLEPT => SPARE,
            Some(_) => self.spare.saturating_sub(1),
        };
        self.since = now;
    }

    /// Whether to look for what came before the runtime does, which is two calls more: so often, as others wait for the runtime to look too.
    pub fn may_look(&mut self) -> bool {
        let may = self.is_alone && self.looks > 0;
        self.looks = self.looks.saturating_sub(u8::from(may));
        may
    }

    /// The runtime has looked.
    pub fn was_told(&mut self) {
        self.looks = LOOKS;
    }

    /// Requests came; so many bytes of them are there.
    pub fn came(&mut self, bytes: usize, now: Instant) {
        self.batches += 1;
        if self.batches == AGE {
            (self.batches, self.most) = (0, self.most - self.most / 16);
        }
        self.most = self.most.max(bytes);
        self.half = (bytes as f64 >= self.most as f64 * WHOLE).then_some((bytes / 2, now));
        self.from = bytes;
    }

    /// Whether the replies that there are leave now, when `left` bytes of what came are to be done.
    pub fn is_time(&self, left: usize, now: Instant) -> bool {
        let half_is_done = |(half, came)| left <= half && now.saturating_duration_since(came) >= HALF;
        let is_worth_it = left >= self.from.saturating_sub(left);
        let is_due = is_worth_it && now.saturating_duration_since(self.since) >= SHARE;
        is_due || self.spare > 0 && self.half.is_some_and(half_is_done)
    }

    /// Replies were sent, with `left` bytes of what came to be done.
    pub fn sent(&mut self, left: usize, now: Instant) {
        (self.since, self.half, self.from) = (now, None, left);
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
        early.sent(500, now + 20 * US);
        assert!(!early.is_time(100, now + 60 * US), "half is sent once");
        // Work on what came before does not count for what comes then.
        early.came(800, now + 70 * US);
        assert!(!early.is_time(400, now + 70 * US + HALF - US));
        assert!(early.is_time(400, now + 70 * US + HALF));
    }

    #[test]
    fn what_comes_as_halves_is_not_parted_again_while_there_are_larger_ones() {
        let now = Instant::now();
        let mut early = Early::new(now);
        early.begin(now, Some(now - SLEPT));
        let mut parts = |bytes| {
            early.came(bytes, now);
            early.is_time(bytes / 2, now + HALF)
        };
        assert!(parts(1000) && parts(750) && !parts(749));
        // With time it is forgotten how large they were.
        assert!((0..100).all(|_| !parts(500)));
        assert!((0..1000).any(|_| parts(500)));
        assert!(parts(500));
    }

    #[test]
    fn a_thread_without_a_pause_sends_early_for_some_turns_more_and_then_after_much_work_only() {
        let mut now = Instant::now();
        let mut early = Early::new(now);
        early.begin(now, Some(now - SLEPT));
        for turn in 0..2 * SPARE {
            early.came(1000, now);
            assert_eq!(early.is_time(500, now + HALF), turn < SPARE, "turn {turn}");
            assert!(!early.is_time(900, now + SHARE - US) && early.is_time(900, now + SHARE));
            now += HALF;
            early.sent(900, now);
            early.begin(now + SLEPT - US, Some(now));
            now += SLEPT - US;
        }
        early.begin(now + SLEPT, Some(now));
        early.came(1000, now + SLEPT);
        assert!(early.is_time(500, now + SLEPT + HALF));
    }

    #[test]
    fn who_is_alone_looks_so_often_until_the_runtime_has() {
        let now = Instant::now();
        let mut early = Early::new(now);
        early.begin(now, Some(now));
        for _ in 0..2 {
            assert_eq!((0..1000).filter(|_| early.may_look()).count(), usize::from(LOOKS));
            early.was_told();
        }
    }

    #[test]
    fn where_connections_take_turns_replies_leave_after_much_work_only() {
        let now = Instant::now();
        let mut early = Early::new(now);
        early.begin(now, Some(now - SLEPT));
        assert!(early.may_look());
        early.begin(now, None);
        early.came(1000, now);
        assert!(!early.may_look() && !early.is_time(0, now + HALF) && early.is_time(1000, now + SHARE));
    }

    #[test]
    fn of_a_batch_that_is_nearly_done_the_rest_is_waited_for() {
        let now = Instant::now();
        let mut early = Early::new(now);
        early.begin(now, None);
        early.came(1000, now);
        assert!(early.is_time(500, now + SHARE) && !early.is_time(499, now + SHARE));
        early.sent(700, now + SHARE);
        assert!(early.is_time(400, now + 2 * SHARE) && !early.is_time(300, now + 2 * SHARE));
        // What comes meanwhile is to be done too.
        early.came(900, now + 2 * SHARE);
        assert!(early.is_time(500, now + 2 * SHARE));
    }
}
