//! How long the pieces of a file are that several connections bring: pure.
//!
//! They are taken in rounds, of one piece for each connection, which are equally long. A round brings the greater part of what is left, so that few are needed,
//! and leaves enough to make up for connections that are slower than others; when pieces have become short, the next round brings all. Each piece is a
//! stream, which costs a server as much as to send one or two megabytes.

/// The part of what is left that a round brings.
const PART: f64 = 0.75;

/// So many of the shortest pieces may lie in one of a round that brings all that is left. With one round for all 200 MB came a twentieth to a tenth later at 15 and
/// 50 ms, as the slowest connection was late.
const SHORT: u64 = 6;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Pieces that are still to be taken of it.
    pieces: u64,
    /// Bytes of each.
    each: u64,
    /// They are copies.
    copied: bool,
}

impl Round {
    /// The length of the next piece of `left` bytes that `streams` connections are to bring. What is `copied` comes at the end and in one round. `least`: the
    /// shortest that is worth it.
    pub fn next(&mut self, left: u64, copied: bool, streams: u64, least: u64) -> u64 {
        if self.pieces == 0 || self.copied != copied {
            let streams = streams.max(1);
            let each = left.div_ceil(streams);
            let brings_all = copied || each <= least.saturating_mul(SHORT);
            let each = if brings_all { each } else { (each as f64 * PART) as u64 };
            *self = Round { pieces: streams, each: each.max(least), copied };
        }
        self.pieces -= 1;
        self.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of all pieces of so many bytes, of which so many at the end are copied.
    fn all(mut left: u64, copies: u64, streams: u64, least: u64) -> Vec<u64> {
        let (mut round, mut lengths) = (Round::default(), Vec::new());
        while left > 0 {
            let pages = left.saturating_sub(copies);
            let some = if pages == 0 { left } else { pages };
            let length = round.next(some, pages == 0, streams, least).min(left);
            lengths.push(length);
            left -= length;
        }
        lengths
    }

    #[test]
    fn a_round_has_equal_pieces_and_leaves_a_part_until_they_are_short() {
        // 200 MB at 150 ms and at 50 ms, 1 Gbit/s.
        assert_eq!(all(200_000, 20_000, 8, 2_500), [[16_875; 8], [5_625; 8], [2_500; 8]].concat());
        let at_50_ms = all(200_000, 6_400, 8, 800);
        assert_eq!(at_50_ms.chunks(8).map(|round| round[0]).collect::<Vec<_>>(), [18_150, 4_537, 1_513, 800]);
        assert_eq!(at_50_ms.len(), 32);
    }

    #[test]
    fn none_is_shorter_than_is_worth_it_and_none_is_left() {
        for (left, copies, streams, least) in [(1, 0, 4, 10), (95, 30, 4, 10), (1_000_003, 7, 3, 11), (500, 500, 0, 1)]
        {
            let lengths = all(left, copies, streams, least);
            assert_eq!(lengths.iter().sum::<u64>(), left);
            assert!(lengths.iter().rev().skip(1).all(|&length| length >= least), "{lengths:?}");
        }
    }
}
