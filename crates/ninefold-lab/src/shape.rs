//! What a link does to the packets of one direction, and what of it is changed while it runs.
//!
//! A `Shape` is whole; a `Change` names only what becomes different and is applied to a shape. Both are data from outside: `check` says
//! whether they are within their bounds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Queue, RATE_MAX, SIZE_MAX, TIME_MAX};

/// An end of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Client,
    Server,
}

/// A direction of the link, by where it leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    ToServer,
    ToClient,
}

impl Direction {
    pub const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToClient];
}

/// What a link does to the packets of one direction. Packets are IP packets of at most the MTU, headers included.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// From the last bit of a packet on the link to its arrival at the other end, in one direction; up to `TIME_MAX`.
    pub delay: Duration,
    /// Each packet takes up to so much longer, up to `TIME_MAX`. It still does not overtake the one before it, and where that is later,
    /// arrives with it: all of that time is equally likely for packets that are further apart, and dense ones come in bunches, closer
    /// to the most than to the least.
    pub jitter: Duration,
    /// Bits of IP packets that pass in a second, 1 to `RATE_MAX`; none is no limit, and then nothing waits.
    pub rate: Option<u64>,
    /// What may wait for its turn at that rate, up to `SIZE_MAX` packets or bytes; a packet that does not fit is dropped.
    pub queue: Queue,
    /// The share of packets that are lost on the way, behind the queue: 0 to 1.
    pub loss: f64,
    /// The share of packets that are held back, so that those behind them overtake: 0 to 1.
    pub reorder: f64,
    /// How long those are held back, up to `TIME_MAX`.
    pub reorder_by: Duration,
}

/// What is beyond its bounds in a shape.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum InvalidShape {
    /// A delay, a jitter, or a time to hold back for reordering.
    Time(Duration),
    /// Bits in a second.
    Rate(u64),
    /// Packets or bytes.
    Queue(u64),
    /// A share of the packets to lose or to hold back.
    Share(f64),
}

impl std::fmt::Display for InvalidShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            InvalidShape::Time(time) => write!(f, "{time:?} is more than {} s", TIME_MAX.as_secs()),
            InvalidShape::Rate(rate) => {
                write!(f, "{rate} bits in a second are not within 1 and {RATE_MAX}: to carry nothing, cut the link")
            }
            InvalidShape::Queue(size) => write!(f, "a queue of {size} is more than {SIZE_MAX}"),
            InvalidShape::Share(share) => write!(f, "{share} is no share of the packets: expected 0 to 1"),
        }
    }
}

impl std::error::Error for InvalidShape {}

impl Default for Shape {
    /// A perfect link: nothing is delayed, bounded or lost.
    fn default() -> Shape {
        Shape {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            queue: Queue::Auto,
            loss: 0.0,
            reorder: 0.0,
            // Eight packets of 1500 bytes at 100 Mbit/s: more than the three that TCP takes for reordering, RFC 5681 section 3.2.
            reorder_by: Duration::from_millis(1),
        }
    }
}

impl Shape {
    /// Is all of it within its bounds?
    pub fn check(&self) -> Result<(), InvalidShape> {
        let Shape { delay, jitter, rate, queue, loss, reorder, reorder_by } = *self;
        if let Some(time) = [delay, jitter, reorder_by].into_iter().find(|time| *time > TIME_MAX) {
            return Err(InvalidShape::Time(time));
        }
        if let Some(rate) = rate.filter(|rate| !(1..=RATE_MAX).contains(rate)) {
            return Err(InvalidShape::Rate(rate));
        }
        match queue {
            Queue::Bytes(size) | Queue::Packets(size) if size > SIZE_MAX => return Err(InvalidShape::Queue(size)),
            _ => {}
        }
        // What is no number is in no range.
        match [loss, reorder].into_iter().find(|share| !(0.0..=1.0).contains(share)) {
            Some(share) => Err(InvalidShape::Share(share)),
            None => Ok(()),
        }
    }

    /// The bytes or packets that may wait, `Auto` worked out.
    ///
    /// A bandwidth-delay product is what one TCP connection needs to keep a link busy across its own back-off (Villamizar and Song,
    /// "High performance TCP in ANSNET", 1994); a direction knows its own delay only and takes the other for equal.
    pub fn queue_limit(&self) -> Queue {
        /// What a short path gets: 100 packets of 1500 bytes.
        const BYTES_MIN: u64 = 150_000;
        match self.queue {
            Queue::Auto => {
                let round_trip = 2.0 * self.delay.as_secs_f64();
                let product = self.rate.unwrap_or(0) as f64 / 8.0 * round_trip;
                Queue::Bytes((product as u64).clamp(BYTES_MIN, crate::units::SIZE_MAX))
            }
            queue => queue,
        }
    }
}

/// What becomes different in a shape.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Change {
    pub delay: Option<Duration>,
    pub jitter: Option<Duration>,
    /// The outer none leaves the rate as it is, the inner one takes the limit away.
    #[serde(default, with = "double")]
    pub rate: Option<Option<u64>>,
    pub queue: Option<Queue>,
    pub loss: Option<f64>,
    pub reorder: Option<f64>,
    pub reorder_by: Option<Duration>,
}

impl Change {
    /// Is all that it names within its bounds?
    pub fn check(&self) -> Result<(), InvalidShape> {
        let mut shape = Shape::default();
        self.apply(&mut shape);
        shape.check()
    }

    pub fn apply(&self, shape: &mut Shape) {
        let Change { delay, jitter, rate, queue, loss, reorder, reorder_by } = *self;
        shape.delay = delay.unwrap_or(shape.delay);
        shape.jitter = jitter.unwrap_or(shape.jitter);
        shape.rate = rate.unwrap_or(shape.rate);
        shape.queue = queue.unwrap_or(shape.queue);
        shape.loss = loss.unwrap_or(shape.loss);
        shape.reorder = reorder.unwrap_or(shape.reorder);
        shape.reorder_by = reorder_by.unwrap_or(shape.reorder_by);
    }
}

/// JSON has one null: no limit is written as 0 bits in a second, which no rate is.
mod double {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(rate: &Option<Option<u64>>, serializer: S) -> Result<S::Ok, S::Error> {
        rate.map(|rate| rate.unwrap_or(0)).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
        let rate = Option::<u64>::deserialize(deserializer)?;
        Ok(rate.map(|rate| (rate != 0).then_some(rate)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_leaves_what_it_does_not_name_and_survives_being_written_down() {
        let mut shape = Shape { rate: Some(1_000), loss: 0.5, ..Shape::default() };
        for rate in [None, Some(None), Some(Some(7))] {
            let change = Change { rate, delay: Some(Duration::from_micros(250)), ..Change::default() };
            let written = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<Change>(&written).unwrap(), change, "{written}");
        }
        Change { rate: Some(None), ..Change::default() }.apply(&mut shape);
        assert_eq!(shape, Shape { loss: 0.5, ..Shape::default() });
    }

    #[test]
    fn what_is_beyond_its_bounds_is_told_of_shapes_and_of_changes() {
        let good = Shape {
            delay: TIME_MAX,
            rate: Some(RATE_MAX),
            queue: Queue::Bytes(SIZE_MAX),
            loss: 1.0,
            ..Shape::default()
        };
        assert_eq!(good.check(), Ok(()));
        let long = TIME_MAX + Duration::from_nanos(1);
        assert_eq!(Shape { delay: long, ..good }.check(), Err(InvalidShape::Time(long)));
        assert_eq!(Shape { jitter: Duration::MAX, ..good }.check(), Err(InvalidShape::Time(Duration::MAX)));
        assert_eq!(Shape { reorder_by: long, ..good }.check(), Err(InvalidShape::Time(long)));
        for rate in [0, RATE_MAX + 1] {
            assert_eq!(Shape { rate: Some(rate), ..good }.check(), Err(InvalidShape::Rate(rate)));
        }
        for queue in [Queue::Bytes(SIZE_MAX + 1), Queue::Packets(SIZE_MAX + 1)] {
            assert_eq!(Shape { queue, ..good }.check(), Err(InvalidShape::Queue(SIZE_MAX + 1)));
        }
        for share in [-0.1, 1.1, f64::INFINITY] {
            assert_eq!(Shape { loss: share, ..good }.check(), Err(InvalidShape::Share(share)));
            assert_eq!(Shape { reorder: share, ..good }.check(), Err(InvalidShape::Share(share)));
        }
        assert!(matches!(Shape { loss: f64::NAN, ..good }.check(), Err(InvalidShape::Share(_))));
        assert_eq!(Change::default().check(), Ok(()));
        assert_eq!(Change { rate: Some(Some(0)), ..Change::default() }.check(), Err(InvalidShape::Rate(0)));
        assert_eq!(Change { loss: Some(2.0), ..Change::default() }.check(), Err(InvalidShape::Share(2.0)));
    }

    #[test]
    fn the_queue_holds_a_round_trip_at_the_rate_unless_it_is_told_otherwise() {
        let mut shape = Shape { rate: Some(1_000_000_000), delay: Duration::from_millis(25), ..Shape::default() };
        assert_eq!(shape.queue_limit(), Queue::Bytes(6_250_000));
        shape.rate = Some(10_000_000);
        shape.delay = Duration::ZERO;
        assert_eq!(shape.queue_limit(), Queue::Bytes(150_000));
        shape.queue = Queue::Packets(3);
        assert_eq!(shape.queue_limit(), Queue::Packets(3));
    }
}
