//! What a link does to the packets of one direction, and what of it is changed while it runs.
//!
//! A `Shape` is whole; a `Change` names only what becomes different and is applied to a shape.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::Queue;

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
    /// From the last bit of a packet on the link to its arrival at the other end, in one direction.
    pub delay: Duration,
    /// Each packet takes up to so much longer, equally likely; it still does not overtake the one before it.
    pub jitter: Duration,
    /// Bits of IP packets that pass in a second; none is no limit, and then nothing waits.
    pub rate: Option<u64>,
    /// What may wait for its turn at that rate; a packet that does not fit is dropped.
    pub queue: Queue,
    /// The share of packets that are lost on the way, behind the queue: 0 to 1.
    pub loss: f64,
    /// The share of packets that are held back, so that those behind them overtake: 0 to 1.
    pub reorder: f64,
    /// How long those are held back.
    pub reorder_by: Duration,
}

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
