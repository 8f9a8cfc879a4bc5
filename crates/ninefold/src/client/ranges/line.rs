//! One of several connections: the parts of the file that come by it, one behind another, and how fast they come. Pure but for its
//! [`Track`], with time as an argument.
//!
//! [`Line::came`] counts what came, [`Line::tick`] ends half of the window by which [`takeover`](super::takeover) compares it with the
//! others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::takeover::{Halves, Seen};
use super::width::interval;
use crate::client::stream::Track;

/// By what a rate is more than the one before, and not by chance.
pub(super) const GROWS: f64 = 1.25;

/// How much of a piece is left when the next one is asked for, in round trips at the rate of its connection: two it takes until that comes. It may be more where others are asked
/// for at that moment.
pub(super) const AHEAD: u32 = 4;
/// The same of one that still grows, as a multiple of all that it brought: BBR sends up to 2.77 times as much in each round trip as in the
/// one before, so in two of them nearly seven times as much again.
const GROWTH: u64 = 8;
/// In what time it ought to come: a token is good for 30 s (docs/protocol.md, "Streams"), and a connection may become slower.
const SOON: Duration = Duration::from_secs(10);

/// With a connection that is near its end others are taken for that which will be within so many times as long: at best one message asks for the pieces of all, and the server's
/// answers, and the questions for the ends of those, are in one each. Of 200 MB at 15 ms the server's workers woke 56 times for 61.
pub(super) const EARLIER: u32 = 2;

/// Of an [`interval`], in which something comes by one that moves.
const MOVING: f64 = 0.75;

/// A connection whose pieces end soon. They are ordered by the fields: the one that ends first before the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ends {
    /// How long what was asked for on it lasts.
    pub lasts: Duration,
    /// Its number.
    pub line: usize,
    /// See [`Line::near_its_end`]; 1 where pieces are asked for however much is left.
    pub times: u32,
}

/// The connections on which other pieces are asked for now, the one that ends first before the others: those that are near their ends, and with them, if that
/// `may_be_earlier`, those that will be soon. None for the sake of those alone.
pub(super) fn asked_now(mut ends: Vec<Ends>, may_be_earlier: impl FnOnce() -> bool) -> Vec<usize> {
    let is_any_near = ends.iter().any(|one| one.times <= 1);
    if !is_any_near {
        return Vec::new();
    }
    let most = if may_be_earlier() { EARLIER } else { 1 };
    ends.retain(|one| one.times <= most);
    ends.sort_unstable();
    ends.into_iter().map(|one| one.line).collect()
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Line {
    /// Where others may come behind those that it has.
    pub track: Option<Arc<Track>>,
    /// The numbers of its parts, in the order in which they come.
    pub parts: VecDeque<usize>,
    /// No other part comes behind them, as there are connections enough.
    pub leaves: bool,
    /// Bytes that came so far, and when the first of them did.
    young: u64,
    first_at: Option<Instant>,
    last_at: Option<Instant>,
    /// Bytes that came in this [`interval`], and when it began.
    moved: u64,
    since: Instant,
    /// Bytes a second in the interval before: a connection is slow at its beginning, and what its whole life says is too little.
    rate: Option<f64>,
    /// That was more than in the one before it, or there was none.
    grows: bool,
    halves: Halves,
}

impl Line {
    pub fn new(track: Option<Arc<Track>>, now: Instant) -> Line {
        Line {
            track,
            parts: VecDeque::new(),
            leaves: false,
            young: 0,
            first_at: None,
            last_at: None,
            moved: 0,
            since: now,
            rate: None,
            grows: true,
            halves: Halves::default(),
        }
    }

    /// So many bytes of one of its parts have come. `begins`: they are the part's first.
    pub fn came(&mut self, bytes: u64, begins: bool, trip: Duration, now: Instant) {
        self.young += bytes;
        self.halves.came(bytes);
        self.last_at = Some(now);
        if begins {
            // It had to wait, for its connection or for the one before it.
            (self.since, self.moved) = (now, 0);
            self.first_at.get_or_insert(now);
            return;
        }
        self.moved += bytes;
        let took = now.saturating_duration_since(self.since);
        if took >= interval(trip) {
            let rate = self.moved as f64 / took.as_secs_f64();
            // Once it does not it has come to what the way holds.
            self.grows &= self.rate.is_none_or(|before| rate > before * GROWS);
            self.rate = Some(rate);
            (self.since, self.moved) = (now, 0);
        }
    }

    /// Whether so much of it is there long before the token of what is asked for now has grown too old. Nobody knows before a connection has
    /// brought bytes for a round trip.
    pub fn comes_soon(&self, left: u64, trip: Duration, now: Instant) -> bool {
        let took = self.first_at.map(|first| now.saturating_duration_since(first));
        let Some(took) = took.filter(|&took| took >= trip && !took.is_zero()) else { return false };
        let mean = self.young as f64 / took.as_secs_f64();
        left as f64 <= mean.min(self.rate.unwrap_or(mean)) * SOON.as_secs_f64()
    }

    /// Whether something came by it a short time ago: longer than who gathers bytes keeps them. Of one that stands still others bring what is left.
    pub fn is_moving(&self, trip: Duration, now: Instant) -> bool {
        self.last_at.is_some_and(|last| now.saturating_duration_since(last) < interval(trip).mul_f64(MOVING))
    }

    /// Within how many times [`AHEAD`], of [`EARLIER`] at most, all of what is left of it is there: 1 where the next piece is to be asked for. Of one that grows nobody knows how
    /// much that is: it is near its end by what it brought so far, or is not.
    pub fn near_its_end(&self, left: u64, trip: Duration) -> Option<u32> {
        if self.grows && left <= self.young * GROWTH {
            return Some(1);
        }
        let ahead = self.rate? * (trip * AHEAD).as_secs_f64();
        (1..=EARLIER).find(|&times| left as f64 <= ahead * f64::from(times))
    }

    /// How long so much takes if nothing changes.
    pub fn lasts(&self, left: u64, trip: Duration, now: Instant) -> Duration {
        let silent = now.saturating_duration_since(self.since);
        let rate = match self.rate {
            // One that has come to a standstill.
            _ if silent >= 2 * interval(trip) => self.moved as f64 / silent.as_secs_f64(),
            Some(rate) => rate,
            None => return Duration::MAX,
        };
        Duration::try_from_secs_f64(left as f64 / rate).unwrap_or(Duration::MAX)
    }

    /// Ends half of a window, with so much left. `is_had`: the server has granted the stream that is to bring it. `others_have`: bytes came by others, so that they
    /// could by this one.
    pub fn tick(&mut self, left: u64, is_had: bool, others_have: bool) -> Seen {
        Seen { left, halves: self.halves.turn(is_had && (self.first_at.is_some() || others_have)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(100);

    /// One by which so many bytes came in each interval, and when it is by then.
    fn line(intervals: &[u64]) -> (Line, Instant) {
        let mut now = Instant::now();
        let mut line = Line::new(None, now);
        line.came(1, true, TRIP, now);
        for &bytes in intervals {
            now += interval(TRIP);
            line.came(bytes, false, TRIP, now);
        }
        (line, now)
    }

    #[test]
    fn one_that_grows_asks_for_more_long_before_the_end() {
        let (line, _) = line(&[1_000_000]);
        assert_eq!([7_000_000, 9_000_000].map(|left| line.near_its_end(left, TRIP)), [Some(1), None]);
    }

    #[test]
    fn one_that_has_come_to_what_the_way_holds_asks_for_more_by_its_rate() {
        let (line, now) = line(&[1_000_000, 1_000_000]);
        let near = [1_900_000, 2_100_000, 3_900_000, 4_100_000].map(|left| line.near_its_end(left, TRIP));
        assert_eq!(near, [Some(1), Some(2), Some(2), None]);
        assert!(line.comes_soon(49_000_000, TRIP, now) && !line.comes_soon(51_000_000, TRIP, now));
    }

    #[test]
    fn those_that_end_soon_are_asked_with_one_that_is_near_its_end_and_never_without() {
        let ends = |line: usize, times: u32, ms: u64| Ends { lasts: Duration::from_millis(ms), line, times };
        let (none, unasked) = (Vec::<usize>::new(), || -> bool { panic!("nobody is near") });
        assert_eq!(asked_now(Vec::new(), unasked), none);
        assert_eq!(asked_now(vec![ends(1, 2, 50), ends(2, 2, 40)], unasked), none);
        let some = vec![ends(1, 2, 50), ends(2, 1, 30), ends(3, 2, 40), ends(4, 1, 20)];
        assert_eq!(asked_now(some.clone(), || false), [4, 2]);
        assert_eq!(asked_now(some, || true), [4, 2, 3, 1]);
        // One that lasts for nobody knows how long comes last.
        let growing = Ends { lasts: Duration::MAX, line: 5, times: 1 };
        assert_eq!(asked_now(vec![growing, ends(6, 2, 40)], || true), [6, 5]);
    }

    #[test]
    fn one_by_which_nothing_came_stands_still_when_others_have_brought_theirs_since_its_stream_was_had() {
        let stands_still = |is_had: bool, others_have: &[bool]| {
            let mut line = Line::new(None, Instant::now());
            others_have.iter().map(|&have| line.tick(1, is_had, have)).last().is_some_and(|seen| seen.stands_still())
        };
        assert!(stands_still(true, &[false, true, true, true]));
        assert!(
            !stands_still(true, &[true, true]) && !stands_still(true, &[false; 9]) && !stands_still(false, &[true; 9])
        );
    }

    #[test]
    fn one_that_stands_still_lasts_for_ever_and_does_not_move() {
        let (line, now) = line(&[1_000_000]);
        assert!(line.is_moving(TRIP, now + TRIP) && !line.is_moving(TRIP, now + interval(TRIP)));
        assert!(!Line::new(None, now).is_moving(TRIP, now));
        assert_eq!(line.lasts(5_000_000, TRIP, now), Duration::from_secs(1));
        assert_eq!(line.lasts(5_000_000, TRIP, now + 2 * interval(TRIP)), Duration::MAX);
    }
}
