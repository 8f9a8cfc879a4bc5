//! Many durations in little memory: their number, mean and percentiles.

use std::time::Duration;

/// Durations of 0 to 2⁶⁴ ns, each kept to within 1/32 of itself; the mean is exact.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    /// Empty until there is something to count.
    buckets: Vec<u64>,
    count: u64,
    sum: Duration,
}

/// Bits of a duration that are kept behind its leading one.
const BITS: u32 = 4;
/// Buckets for each power of two.
const STEPS: usize = 1 << BITS;
const BUCKETS: usize = (64 - BITS as usize + 1) * STEPS;

fn bucket(ns: u64) -> usize {
    match ns.checked_ilog2() {
        Some(log) if log >= BITS => {
            let shift = log - BITS;
            (shift as usize + 1) * STEPS + (ns >> shift) as usize % STEPS
        }
        _ => ns as usize,
    }
}

/// The middle of a bucket in nanoseconds.
fn middle(bucket: usize) -> u64 {
    let (row, step) = (bucket / STEPS, (bucket % STEPS) as u64);
    match row {
        0 => step,
        _ => {
            let shift = row as u32 - 1;
            ((STEPS as u64 + step) << shift) + ((1 << shift) >> 1)
        }
    }
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets.resize(BUCKETS, 0);
        self.buckets[bucket(ns)] += 1;
        self.count += 1;
        self.sum += duration;
    }

    /// Counts all of another's.
    pub fn merge(&mut self, other: &Histogram) {
        if !other.buckets.is_empty() {
            self.buckets.resize(BUCKETS, 0);
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum += other.sum;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// `None` of none.
    pub fn mean(&self) -> Option<Duration> {
        let nanos = self.sum.as_nanos().checked_div(self.count.into())?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// The least that `percent` of them (1 to 100) do not exceed; `None` of none.
    pub fn percentile(&self, percent: u64) -> Option<Duration> {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut below = 0;
        let found = self.buckets.iter().position(|n| {
            below += n;
            below >= rank
        })?;
        Some(Duration::from_nanos(middle(found)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_kept_to_within_a_32nd() {
        let mut last = 0;
        for shift in 0..64 {
            for offset in [0, 1, 3] {
                let ns = (1u64 << shift).saturating_add(offset << shift >> 2);
                let b = bucket(ns);
                assert!(b < BUCKETS && b >= last, "{ns}");
                last = b;
                assert!(middle(b).abs_diff(ns) <= ns / 32, "{ns} is kept as {}", middle(b));
            }
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_are_the_least_that_so_many_do_not_exceed() {
        let mut h = Histogram::default();
        assert_eq!((h.mean(), h.percentile(50)), (None, None));
        (1..=10).for_each(|ns| h.add(Duration::from_nanos(ns)));
        assert_eq!(h.percentile(50), Some(Duration::from_nanos(5)));
        assert_eq!(h.percentile(99), Some(Duration::from_nanos(10)));
        assert_eq!(h.percentile(1), Some(Duration::from_nanos(1)));
        assert_eq!(h.mean(), Some(Duration::from_nanos(5)));
    }

    #[test]
    fn merging_counts_what_both_counted() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        a.add(Duration::from_nanos(3));
        b.add(Duration::from_nanos(9));
        let mut all = Histogram::default();
        all.merge(&a);
        all.merge(&b);
        assert_eq!((all.count(), all.percentile(100)), (2, Some(Duration::from_nanos(9))));
    }
}
