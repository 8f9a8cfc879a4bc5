//! How many streams a transfer should have, from how fast it is: pure, with time as an argument.
//!
//! A connection begins with ten segments a round trip and doubles that each time (RFC 6928), so a short round trip needs one
//! connection, and a long one several at once. From then on the bytes of each interval of two round trips are counted. As long as an
//! interval brings a quarter more than the best before, the connections find out by themselves what the way holds, and more of them
//! would overrun it. Then it is asked what a round trip takes by now ([`Width::asks`]): where that is more than at first, a queue stands, and the way is
//! full. Else half as many more are tried; if they bring a quarter more within some intervals, and that has come to its end too, again. If they do
//! not, the way is full too, and where a file goes in pieces no more than there were before go on: more of them only fill its queue, and each costs both
//! ends.

use std::time::Duration;

use tokio::time::Instant;

/// What a round trip may take for one connection to be enough: ten segments then make 33 Mbit/s at once, and 1 Gbit/s
/// five round trips, 18 ms, later. A connection for each 2 ms of a longer one filled 1 Gbit/s no sooner at 15 ms, and overran it.
const TRIP: Duration = Duration::from_micros(3500);

/// What a round trip takes where a queue stands: so many times what it took at first, and what chance makes of it.
const QUEUED: f64 = 1.25;
const CHANCE: Duration = Duration::from_millis(1);

/// Intervals in which more connections show that they bring more: ten round trips, in which each brings 15 MB if nothing holds it.
const PROOF: u32 = 5;

/// What the last interval counts for among those before it: one in which a lost segment holds up all that is behind it, or all of that comes, tells little.
const LATEST: f64 = 0.25;

/// What is more than chance.
const MORE: f64 = 1.25;

/// Streams that are asked for with the open of a file, at most: they have room in a chain with all else.
pub(in crate::client) const AT_ONCE: usize = 16;

/// The shortest interval, in which a rate can be told from chance.
const INTERVAL: Duration = Duration::from_millis(20);

/// What a rate is told from: two round trips.
pub(super) fn interval(trip: Duration) -> Duration {
    (2 * trip).max(INTERVAL)
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::client) struct Width {
    trip: Duration,
    most: usize,
    wanted: usize,
    interval: Duration,
    since: Instant,
    bytes: u64,
    /// Bytes a second, of the best interval.
    best: f64,
    /// The same of the last intervals, of which the later ones count for more.
    recent: f64,
    /// The same of when there were fewer, or 0.
    before: f64,
    /// How many there were then.
    proven: usize,
    /// Intervals that they still have to bring more than those.
    proof: u32,
    question: Question,
}

/// What a round trip takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    None,
    Due,
    Asked,
}

impl Width {
    /// `trip`: what a round trip takes.
    pub fn new(trip: Duration, most: usize, now: Instant) -> Width {
        let wanted = (trip.as_nanos() / TRIP.as_nanos()).clamp(1, most as u128) as usize;
        Width {
            trip,
            most,
            wanted,
            interval: interval(trip),
            since: now,
            bytes: 0,
            best: 0.0,
            recent: 0.0,
            before: 0.0,
            proven: wanted,
            proof: PROOF,
            question: Question::None,
        }
    }

    /// By how many streams, of at most `most`, a file should be read from its open on, if it is long; 0 where there may be none.
    pub fn at_once(trip: Duration, most: usize) -> usize {
        if most == 0 { 0 } else { Width::new(trip, most.min(AT_ONCE), Instant::now()).wanted() }
    }

    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Bytes a second, of the best interval.
    pub fn rate(&self) -> f64 {
        self.best
    }

    /// The same, or of what came since the last one that ended: of what is all there before the first has ended nothing else is known.
    pub fn rate_so_far(&self, now: Instant) -> f64 {
        let took = now.saturating_duration_since(self.since).max(self.interval);
        self.best.max(self.bytes as f64 / took.as_secs_f64())
    }

    /// Whether so many bytes take less than that at the rate of the last intervals; nobody knows before there is one.
    pub fn ends_within(&self, left: u64, time: Duration) -> bool {
        self.recent > 0.0 && left as f64 <= self.recent * time.as_secs_f64()
    }

    /// Whether it is asked, or about to be, what a round trip takes.
    pub fn is_asking(&self) -> bool {
        self.question != Question::None
    }

    /// Nobody is asked, or waits for the answer, for now.
    pub fn asks_later(&mut self) {
        if self.question == Question::Asked {
            self.question = Question::Due;
        }
    }

    /// Whether to ask what a round trip takes, and to tell that to [`Width::trip_is`].
    pub fn asks(&mut self) -> bool {
        let is_due = self.question == Question::Due;
        if is_due {
            self.question = Question::Asked;
        }
        is_due
    }

    /// What a round trip takes by now, at least.
    pub fn trip_is(&mut self, trip: Duration) {
        self.question = Question::None;
        if trip > self.trip.mul_f64(QUEUED) + CHANCE {
            self.proof = 0;
            return;
        }
        // What came meanwhile is no merit of those that are to come.
        self.before = self.best;
        self.wanted = (self.wanted + (self.wanted / 2).max(1)).min(self.most);
        self.proof = PROOF;
    }

    /// While more are tried, what one of them brings meanwhile: those that turn out to be too many are not bound to more.
    pub fn trial(&self) -> Option<u64> {
        let bytes = self.best * (self.interval * PROOF).as_secs_f64() / self.wanted as f64;
        (self.wanted > self.proven).then_some(bytes as u64)
    }

    pub fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// How many there should be.
    pub fn at(&mut self, now: Instant) -> usize {
        let took = now.saturating_duration_since(self.since);
        if took >= self.interval {
            let rate = self.bytes as f64 / took.as_secs_f64();
            // One that lasted longer, as nothing came, counts for as many.
            let others = (1.0 - LATEST).powf(took.as_secs_f64() / self.interval.as_secs_f64());
            self.recent = self.recent * others + rate * (1.0 - others);
            self.judge(rate);
            (self.since, self.bytes) = (now, 0);
        }
        self.wanted
    }

    /// What an interval brought.
    fn judge(&mut self, rate: f64) {
        let grows = rate > self.best * MORE;
        // A pause says nothing of the way.
        let pauses = rate * 2.0 < self.best || rate == 0.0;
        self.best = self.best.max(rate);
        if grows || pauses || self.proof == 0 || self.question != Question::None {
            return;
        }
        if self.best > self.before * MORE {
            (self.before, self.proven) = (self.best, self.wanted);
            self.question = if self.wanted < self.most { Question::Due } else { Question::None };
        } else {
            self.proof -= 1;
            if self.proof == 0 {
                self.wanted = self.proven;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The width after so many intervals with the rates, in MB/s, where a round trip takes as long as at first.
    fn after(trip: u64, rates: &[u64]) -> usize {
        after_where(trip, trip, rates)
    }

    /// The same where it takes so long by then.
    fn after_where(trip: u64, by_then: u64, rates: &[u64]) -> usize {
        let (mut now, trip, by_then) = (Instant::now(), Duration::from_millis(trip), Duration::from_millis(by_then));
        let mut width = Width::new(trip, 8, now);
        for rate in rates {
            width.moved(rate * 1000 * width.interval.as_millis() as u64);
            now += width.interval;
            width.at(now);
            if width.asks() {
                assert!(!width.asks());
                width.trip_is(by_then);
            }
        }
        width.wanted()
    }

    #[test]
    fn the_rate_so_far_is_that_of_what_came_or_the_best_before() {
        let (now, trip) = (Instant::now(), Duration::from_millis(100));
        let mut width = Width::new(trip, 8, now);
        assert_eq!(width.rate_so_far(now), 0.0);
        width.moved(1_000_000);
        // In less than an interval nothing is told from chance.
        assert_eq!([0, 100, 1000].map(|ms| width.rate_so_far(now + Duration::from_millis(ms))), [5e6, 5e6, 1e6]);
        width.at(now + Duration::from_millis(500));
        assert_eq!((width.rate(), width.rate_so_far(now + Duration::from_secs(9))), (2e6, 2e6));
    }

    #[test]
    fn what_came_before_there_were_more_does_not_prove_them() {
        let (mut now, trip) = (Instant::now(), Duration::from_millis(1));
        let mut width = Width::new(trip, 8, now);
        let mut bring = |width: &mut Width, rate: u64| {
            width.moved(rate * 1000 * width.interval.as_millis() as u64);
            now += width.interval;
            width.at(now)
        };
        bring(&mut width, 100);
        bring(&mut width, 101);
        assert!(width.asks());
        // It goes on to grow while a round trip is waited for.
        assert_eq!(bring(&mut width, 140), 1);
        width.trip_is(trip);
        assert_eq!([141, 139, 140, 140, 140, 140].map(|rate| bring(&mut width, rate)), [2, 2, 2, 2, 1, 1]);
    }

    #[test]
    fn a_long_round_trip_begins_with_several_and_a_short_one_with_one() {
        let at_once = |trip, most| Width::at_once(Duration::from_millis(trip), most);
        assert_eq!(
            [(1, 8), (7, 8), (50, 8), (50, 1), (50, 0), (900, 99)].map(|(trip, most)| at_once(trip, most)),
            [1, 2, 8, 1, 0, 16]
        );
        assert_eq!([0, 1, 7, 15, 50, 300].map(|trip| after(trip, &[])), [1, 1, 2, 4, 8, 8]);
    }

    #[test]
    fn the_end_is_near_by_the_rate_of_the_last_intervals_and_never_before_there_is_one() {
        let (mut now, time) = (Instant::now(), Duration::from_millis(300));
        let mut width = Width::new(Duration::from_millis(15), 8, now);
        // Whether what ends in that time at so many MB/s does, and not what takes longer.
        let mut bring = |rate: u64, times: u32, from: u64, to: u64| {
            for _ in 0..times {
                width.moved(rate * 1000 * width.interval.as_millis() as u64);
                now += width.interval;
                width.at(now);
            }
            width.ends_within(from * 300_000, time) && !width.ends_within(to * 300_000, time)
        };
        assert!(!bring(0, 1, 0, 0));
        assert!(bring(100, 20, 99, 101));
        // One that brings nothing, or a burst, makes little of it.
        assert!(bring(0, 1, 74, 76) && bring(200, 1, 100, 110));
        // One that became slow is slow.
        assert!(bring(10, 20, 9, 11));
        // What comes behind a long standstill too.
        width.at(now + 20 * width.interval);
        assert!(!width.ends_within(300_000, time));
    }

    #[test]
    fn what_is_asked_later_is_asked_again() {
        let mut now = Instant::now();
        let mut width = Width::new(Duration::from_millis(1), 8, now);
        assert!(!width.is_asking());
        for rate in [100, 101] {
            width.moved(rate * 1000 * width.interval.as_millis() as u64);
            now += width.interval;
            width.at(now);
        }
        assert!(width.is_asking() && width.asks() && !width.asks() && width.is_asking());
        width.asks_later();
        assert!(width.is_asking() && width.asks());
        width.trip_is(Duration::from_millis(1));
        assert!(!width.is_asking() && width.wanted() == 2);
        width.asks_later();
        assert!(!width.is_asking());
    }

    #[test]
    fn there_are_more_while_more_comes_and_no_more_when_the_way_is_full() {
        assert_eq!(after(1, &[0, 100]), 1);
        // It has not come to what one can.
        assert_eq!(after(1, &[10, 20, 40, 80, 160]), 1);
        assert_eq!(after(1, &[10, 20, 21]), 2);
        // Two bring no more, and one is enough, whatever comes then.
        assert_eq!(after(1, &[10, 20, 21, 20, 22, 20, 20]), 2);
        assert_eq!(after(1, &[10, 20, 21, 20, 22, 20, 20, 20, 100, 100]), 1);
        assert_eq!(after(1, &[10, 20, 20, 40, 40, 80, 80]), 4);
        assert_eq!(after(1, &[10, 20, 20, 40, 40, 80, 80, 160, 160, 320, 320]), 8);
        assert_eq!(after(15, &[100, 100, 101, 99]), 6);
        assert_eq!(after(15, &[100, 100, 101, 99, 100, 100, 100]), 4);
        // A queue stands.
        assert_eq!(after_where(15, 20, &[100, 100, 101, 99, 200, 201]), 4);
        assert_eq!(after_where(1, 2, &[10, 20, 21]), 2);
        assert_eq!(after_where(1, 3, &[10, 20, 21]), 1);
        // Little by little.
        assert_eq!(after(1, &[20, 20, 23, 26]), 3);
        // A pause is no end of growth.
        assert_eq!(after(1, &[100, 0, 0, 10, 0]), 1);
    }
}
