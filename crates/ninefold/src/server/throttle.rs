//! Bounds what peers can make the server write to its log: a peer that breaks the protocol and reconnects at once
//! writes as fast as it can send.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines in a [`PERIOD`]: enough to see what happens, too few to fill a disk (some 100 MB a day).
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);

/// Counts the lines of one kind, of all connections.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<Period>);

#[derive(Debug, Default)]
struct Period {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Throttle {
    /// Whether one more line may be written at `now`; if so, how many were left out since the last.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut period = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if period.began.is_none_or(|began| now.duration_since(began) >= PERIOD) {
            period.began = Some(now);
            period.lines = 0;
        }
        if period.lines == LINES {
            period.left_out += 1;
            return None;
        }
        period.lines += 1;
        Some(std::mem::take(&mut period.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_over_the_limit_are_left_out_and_counted_with_the_next_one() {
        let throttle = Throttle::default();
        let start = Instant::now();
        for _ in 0..LINES {
            assert_eq!(throttle.admit(start), Some(0));
        }
        for _ in 0..2000 {
            assert_eq!(throttle.admit(start + PERIOD / 2), None);
        }
        assert_eq!(throttle.admit(start + PERIOD), Some(2000));
        assert_eq!(throttle.admit(start + PERIOD), Some(0));
    }
}
