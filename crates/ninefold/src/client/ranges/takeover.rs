//! Which connection's bytes others should bring: pure. Time is counted in halves of a [`window`] that the caller ends.
//!
//! A connection may become slow where others do not: TCP takes a loss in a shared queue for the way's, and finds its rate again only in tens of
//! round trips; or a connection is lost to a middlebox, and nobody tells. Each is compared with all others in the same window, not with what
//! was before, so that a way that becomes slow, or stands still, is no connection's fault.

use std::time::Duration;

use super::line::GROWS;

/// Round trips and the shortest time that connections are compared in: TCP finds a lost segment in two or three round trips, or when 200 ms
/// or more have passed without one (RFC 6298, RFC 8985), and a busy machine holds up any of them for as long.
const TRIPS: u32 = 8;
const LEAST: Duration = Duration::from_millis(500);

/// Round trips until the first bytes of another connection are there, and what it sends in the first; it doubles that in each (RFC 6928).
const TO_BEGIN: f64 = 4.0;
const AT_FIRST: f64 = 14_600.0;

/// By what it must be slower than others would be.
const SLOWER: f64 = 2.0;

/// Bytes of a slow connection that are worth it. Of one that stands still all are.
const WORTH: u64 = 128 << 10;

/// Halves of windows before a connection is judged, from its first byte on, or since others have brought theirs: the first is not whole.
const YOUNG: u8 = 3;

/// What is compared is what came within this.
pub(super) fn window(trip: Duration) -> Duration {
    (trip * TRIPS).max(LEAST)
}

/// Bytes by one connection in the halves of windows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Halves {
    before: u64,
    now: u64,
    /// Those that have ended, as far as that matters.
    ended: u8,
}

impl Halves {
    pub fn came(&mut self, bytes: u64) {
        self.now += bytes;
    }

    /// Ends one, and gives what is known by then. `has_begun`: bytes have come, or could have.
    pub fn turn(&mut self, has_begun: bool) -> Halves {
        self.ended = if has_begun { (self.ended + 1).min(YOUNG) } else { 0 };
        let known = *self;
        (self.before, self.now) = (self.now, 0);
        known
    }

    fn bytes(&self) -> u64 {
        self.before + self.now
    }

    /// It still finds its rate.
    fn is_young(&self) -> bool {
        self.ended < YOUNG || self.now as f64 > self.before as f64 * GROWS
    }
}

/// A connection at the end of half of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Bytes that are bound to it and have not come.
    pub left: u64,
    pub halves: Halves,
}

impl Seen {
    /// Something came by it lately.
    pub fn moves(&self) -> bool {
        self.halves.now > 0
    }

    /// Nothing came by it in the whole window, though something could have.
    pub fn stands_still(&self) -> bool {
        self.left > 0 && self.halves.bytes() == 0 && !self.halves.is_young()
    }
}

/// What they have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub trip: Duration,
    /// Bytes a second, of the best that was seen.
    pub best: f64,
    /// Bytes that are bound to none.
    pub queued: u64,
    /// One that has nobody beside it is compared with the best that was: there were others, and it was not done yet.
    pub judges_alone: bool,
    /// Others have brought all that they had: if those that are left stand still, all of them do for themselves, and not the way.
    pub have_ended: bool,
}

/// The place of the one whose bytes others should bring: they would have them, and all that they have themselves, in half of the time.
pub(super) fn slowest(lines: &[Seen], way: &Way) -> Option<usize> {
    let seconds = window(way.trip).as_secs_f64();
    let rate = |line: &Seen| line.halves.bytes() as f64 / seconds;
    let all: f64 = lines.iter().map(rate).sum();
    let left: f64 = way.queued as f64 + lines.iter().map(|line| line.left as f64).sum::<f64>();
    let lasts = |line: &Seen| line.left as f64 / rate(line);
    let is_slow = |&(at, line): &(usize, &Seen)| {
        let mut others = lines.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other);
        let reach = match others.clone().any(|other| other.halves.now > 0) {
            true => all,
            // What one connection is capable of alone nobody knows.
            false
                if way.judges_alone
                    && others.all(|other| other.left == 0 || way.have_ended && other.stands_still()) =>
            {
                way.best
            }
            // All of the way stands still.
            false => return false,
        };
        let is_worth_it = line.left >= WORTH || line.left > 0 && line.halves.bytes() == 0;
        let doublings = (line.left as f64 / AT_FIRST).max(1.0).log2();
        let cost = way.trip.as_secs_f64() * (TO_BEGIN + doublings) + line.left as f64 / reach;
        let meanwhile = (left - line.left as f64) / reach;
        is_worth_it && reach > 0.0 && !line.halves.is_young() && lasts(line) > SLOWER * cost + meanwhile
    };
    let slow = lines.iter().enumerate().filter(is_slow);
    slow.max_by(|(_, one), (_, other)| lasts(one).total_cmp(&lasts(other))).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// What is seen of one by which so many bytes came in each half, and that has so many left.
    fn seen(left: u64, halves: &[u64]) -> Seen {
        let (mut counted, mut known) = (Halves::default(), Halves::default());
        for &bytes in halves {
            counted.came(bytes);
            known = counted.turn(true);
        }
        Seen { left, halves: known }
    }

    fn of(lines: &[Seen], judges_alone: bool) -> Option<usize> {
        of_more(lines, judges_alone, false)
    }

    /// The same where others have ended, or none has.
    fn of_more(lines: &[Seen], judges_alone: bool, have_ended: bool) -> Option<usize> {
        slowest(lines, &Way { trip: Duration::from_millis(40), best: 20e6, queued: 0, judges_alone, have_ended })
    }

    #[test]
    fn what_stands_still_or_is_much_slower_than_the_others_is_taken_over() {
        let fast = seen(2 * MB, &[MB, MB, MB]);
        assert_eq!(of(&[fast, seen(2 * MB, &[MB, 0, 0]), fast], false), Some(1));
        assert_eq!(of(&[fast, fast, seen(2 * MB, &[MB, MB / 20, MB / 20])], false), Some(2));
        // The slowest first.
        assert_eq!(of(&[seen(2 * MB, &[MB, MB / 20, MB / 20]), fast, seen(MB, &[MB, 0, 0])], false), Some(2));
        // What little is left is worth it where it would never come.
        assert_eq!(of(&[fast, seen(1, &[MB, 0, 0])], false), Some(1));
        assert_eq!(of(&[fast, seen(100, &[MB, 1, 1])], false), None);
        assert_eq!(of(&[fast, seen(0, &[MB, 0, 0])], false), None);
    }

    #[test]
    fn who_has_as_good_a_rate_or_is_done_before_the_others_is_left_alone() {
        let fast = seen(2 * MB, &[MB, MB, MB]);
        assert_eq!(of(&[fast; 8], false), None);
        // Half of the rate: it is done before another would be.
        assert_eq!(of(&[fast, seen(2 * MB, &[MB / 2; 3])], false), None);
        // All became slow together.
        assert_eq!(of(&[seen(20 * MB, &[MB, 1000, 1000]); 8], false), None);
        // The others have more to do than it.
        let busy = seen(200 * MB, &[MB; 3]);
        assert_eq!(of(&[busy, seen(2 * MB, &[MB / 20; 3])], false), None);
    }

    #[test]
    fn where_all_of_the_way_stands_still_none_is() {
        assert_eq!(of(&[seen(2 * MB, &[MB, 0, 0]); 8], false), None);
        // It stood still a little earlier than the others.
        assert_eq!(of(&[seen(2 * MB, &[MB, 0, 0]), seen(2 * MB, &[MB, MB, 0])], false), None);
    }

    #[test]
    fn where_others_have_ended_several_that_stand_still_do_so_for_themselves() {
        let still = [seen(2 * MB, &[MB, 0, 0]); 3];
        assert_eq!([of_more(&still, true, false), of_more(&still, false, true)], [None, None]);
        assert!(of_more(&still, true, true).is_some());
        // One that has just brought something, or may be about to.
        for other in [&[MB, MB, 0][..], &[0, 0]] {
            assert_eq!(of_more(&[still[0], seen(2 * MB, other)], true, true), None, "{other:?}");
        }
    }

    #[test]
    fn one_that_still_finds_its_rate_is_not_judged() {
        let fast = seen(2 * MB, &[MB, MB, MB]);
        for young in [&[][..], &[0], &[0, 0], &[1000, 1000], &[0, 1000, 2000]] {
            assert_eq!(of(&[fast, seen(2 * MB, young)], false), None, "{young:?}");
        }
        // Nor one of which nothing has come.
        let mut none = Halves::default();
        let known = (0..9).map(|_| none.turn(false)).last().unwrap();
        assert_eq!(of(&[fast, Seen { left: MB, halves: known }], false), None);
    }

    #[test]
    fn the_last_one_is_compared_with_what_all_together_brought() {
        let slow = seen(2 * MB, &[MB, MB / 20, MB / 20]);
        assert_eq!([of(&[slow], false), of(&[slow], true)], [None, Some(0)]);
        // Of another all came, and its end has not.
        assert_eq!(of(&[seen(0, &[MB, 0, 0]), slow], true), Some(1));
        assert_eq!(of(&[seen(2 * MB, &[MB; 3])], true), None);
        assert_eq!(of(&[], true), None);
    }
}
