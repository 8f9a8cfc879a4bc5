//! One operation by one system over one link, and what it ought to have taken.

use std::time::Duration;

use serde_json::{Value, json};

use super::operation::Operation;
use super::system::System;

/// What an elapsed time may be above that of the link: a tenth, and 20 ms for the processes at both ends.
const SHARE: f64 = 1.1;
const BESIDE: Duration = Duration::from_millis(20);

/// Bytes that a TCP connection sends before it waits for the first acknowledgement: ten segments of 1,460 (RFC 6928). What moves more
/// either way meets slow start, and is told beside a bare exchange.
pub const AT_ONCE: u64 = 14_600;

/// How a row came about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum How {
    Measured,
    /// Round trips counted without a delay, times the delay: to wait for it would have taken too long.
    Computed,
    /// It was killed after that time.
    Stopped(Duration),
    /// No server is asked anything.
    Nothing,
    /// It could not be tried, and why.
    Missing(String),
    /// It went wrong, and how.
    Failed(String),
}

impl How {
    fn word(&self) -> &'static str {
        match self {
            How::Measured => "measured",
            How::Computed => "computed",
            How::Stopped(_) => "stopped",
            How::Nothing => "nothing to ask",
            How::Missing(_) => "missing",
            How::Failed(_) => "failed",
        }
    }

    /// What there is to say beside it.
    pub fn note(&self) -> Option<String> {
        match self {
            How::Stopped(after) => Some(format!("not done after {} s", after.as_secs())),
            How::Missing(why) | How::Failed(why) => Some(why.clone()),
            How::Measured | How::Computed | How::Nothing => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Row {
    pub rtt: Duration,
    pub operation: Operation,
    pub system: System,
    pub how: How,
    /// Requests.
    pub messages: Option<u64>,
    pub round_trips: Option<u64>,
    /// Bytes.
    pub sent: Option<u64>,
    pub received: Option<u64>,
    /// Of each round.
    pub took: Vec<Duration>,
    /// Of bare exchanges of the same bytes, one behind each round.
    pub exchanged: Vec<Duration>,
}

impl Row {
    pub fn new(rtt: Duration, operation: Operation, system: System, how: How) -> Row {
        Row {
            rtt,
            operation,
            system,
            how,
            messages: None,
            round_trips: None,
            sent: None,
            received: None,
            took: Vec::new(),
            exchanged: Vec::new(),
        }
    }

    /// What the link alone takes for its round trips, the connection's first where one is made.
    pub fn link(&self) -> Option<Duration> {
        if self.how == How::Nothing {
            return None;
        }
        Some(self.rtt.mul_f64((self.round_trips? + u64::from(self.system.connects())) as f64))
    }

    /// The median; computed, that of the link.
    pub fn time(&self) -> Option<Duration> {
        match self.how {
            How::Computed => self.link(),
            _ => median(&self.took),
        }
    }

    pub fn exchange(&self) -> Option<Duration> {
        median(&self.exchanged)
    }

    /// What it is held against: a bare exchange where there is one, the link otherwise.
    fn measure(&self) -> Option<Duration> {
        if self.how == How::Measured { self.exchange().or(self.link()) } else { None }
    }

    /// Of what it is held against.
    pub fn ratio(&self) -> Option<f64> {
        let measure = self.measure().filter(|measure| !measure.is_zero())?;
        Some(self.time()?.as_secs_f64() / measure.as_secs_f64())
    }

    pub fn is_within(&self) -> Option<bool> {
        Some(self.time()? <= self.measure()?.mul_f64(SHARE) + BESIDE)
    }

    pub fn columns(&self) -> [(&'static str, Value); 15] {
        let milliseconds = |time: Option<Duration>| json!(time.map(|time| time.as_secs_f64() * 1e3));
        [
            ("rtt_ms", milliseconds(Some(self.rtt))),
            ("operation", json!(self.operation.name())),
            ("system", json!(self.system.name())),
            ("how", json!(self.how.word())),
            ("rounds", json!(self.took.len())),
            ("messages", json!(self.messages)),
            ("round_trips", json!(self.round_trips)),
            ("bytes_sent", json!(self.sent)),
            ("bytes_received", json!(self.received)),
            ("link_ms", milliseconds(self.link())),
            ("took_ms", milliseconds(self.time())),
            ("bare_tcp_ms", milliseconds(self.exchange())),
            ("ratio", json!(self.ratio())),
            ("within", json!(self.is_within())),
            ("note", json!(self.how.note())),
        ]
    }
}

fn median(times: &[Duration]) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort();
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    // Of an even number, between the two in the middle.
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[middle - 1] + upper) / 2 })
}

#[cfg(test)]
pub mod tests {
    use super::super::ours::Speech;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Measured: so many round trips of 100 ms, and what it took in ms.
    pub fn row(system: System, round_trips: u64, took: &[u32]) -> Row {
        let mut row = Row::new(100 * MS, Operation::Stat, system, How::Measured);
        row.round_trips = Some(round_trips);
        row.took = took.iter().map(|&ms| ms * MS).collect();
        row
    }

    #[test]
    fn a_time_is_held_against_the_connection_and_the_round_trips() {
        let warm = System::Ours(Speech::Warm);
        // (1 + 1) × 100 ms × 1.1 + 20 ms are 240 ms.
        assert_eq!(row(warm, 1, &[240]).is_within(), Some(true));
        assert_eq!(row(warm, 1, &[241]).is_within(), Some(false));
        assert_eq!(row(warm, 1, &[400]).ratio(), Some(2.0));
        // A kernel has mounted already: 100 ms × 1.1 + 20 ms are 130 ms.
        assert_eq!(row(System::Old, 1, &[130]).is_within(), Some(true));
        assert_eq!(row(System::Old, 1, &[131]).is_within(), Some(false));
    }

    #[test]
    fn where_a_bare_exchange_was_measured_it_is_what_counts() {
        let mut row = row(System::Ours(Speech::Warm), 1, &[500]);
        assert_eq!(row.is_within(), Some(false));
        row.exchanged = vec![500 * MS];
        assert_eq!((row.is_within(), row.ratio()), (Some(true), Some(1.0)));
    }

    #[test]
    fn the_median_of_the_rounds_is_told() {
        assert_eq!(row(System::Old, 1, &[9, 1, 3]).time(), Some(3 * MS));
        assert_eq!(row(System::Old, 1, &[9, 1, 3, 5]).time(), Some(4 * MS));
        assert_eq!(row(System::Old, 1, &[]).time(), None);
    }

    #[test]
    fn what_was_computed_or_stopped_is_not_said_to_be_within_anything() {
        let mut row = row(System::Old, 1000, &[]);
        row.how = How::Computed;
        assert_eq!((row.time(), row.is_within(), row.ratio()), (Some(100_000 * MS), None, None));
        row.how = How::Stopped(60_000 * MS);
        assert_eq!((row.time(), row.is_within(), row.ratio()), (None, None, None));
        assert_eq!(row.how.note().unwrap(), "not done after 60 s");
    }
}
