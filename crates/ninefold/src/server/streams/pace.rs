//! Whether the peer of a stream moves bytes often enough to keep its place: pure, with time as an argument.
//!
//! What counts is the time for which the peer was waited for. How long the file takes is none of its fault.

use std::time::Duration;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// So many bytes within so long are enough.
    least: u64,
    within: Duration,
    moved: u64,
    waited: Duration,
}

impl Pace {
    pub fn new(least: u64, within: Duration) -> Pace {
        Pace { least, within, moved: 0, waited: Duration::ZERO }
    }

    /// Bytes moved: enough of them, and the peer has its time anew.
    pub fn moved(&mut self, bytes: u64) {
        self.moved = self.moved.saturating_add(bytes);
        if self.moved >= self.least {
            self.renew();
        }
    }

    /// The peer was waited for.
    pub fn waited(&mut self, time: Duration) {
        self.waited = self.waited.saturating_add(time);
    }

    /// How much longer it may be waited for.
    pub fn left(&self) -> Duration {
        self.within.saturating_sub(self.waited)
    }

    /// It has its time anew.
    pub fn renew(&mut self) {
        (self.moved, self.waited) = (0, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_begins_anew_with_enough_bytes_and_not_with_each() {
        let second = Duration::from_secs(1);
        let mut pace = Pace::new(10, 5 * second);
        pace.waited(3 * second);
        pace.moved(9);
        assert_eq!(pace.left(), 2 * second);
        pace.waited(9 * second);
        assert_eq!(pace.left(), Duration::ZERO);
        pace.moved(1);
        assert_eq!(pace.left(), 5 * second);
        pace.moved(9);
        pace.waited(second);
        pace.renew();
        pace.moved(9);
        pace.waited(second);
        assert_eq!(pace.left(), 4 * second);
    }
}
