//! How long the pieces of a file are that several connections bring, and which of them are copies: pure.
//!
//! They are cut in rounds, each of about one piece for each connection. A round brings the greater part of what is left, so that there are few of them,
//! and leaves enough to make up for connections that are slower than others; when pieces have become short, the next round brings all. Each piece is a stream, which
//! costs a server as much as to send one or two megabytes. What comes while the file is looked at are copies, in a round of their own.

/// The part of what is left that a round brings.
const PART: f64 = 0.75;

/// So many of the shortest pieces may lie in one of a round that brings all that is left. Where one round brought all of 200 MB they came a twentieth later at 15 ms, and
/// a tenth at 50, because the slowest connection was late.
const SHORT: u64 = 6;

/// Bytes that no stream has begun with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    pub all: u64,
    /// Up to the first gap among them.
    pub first: u64,
    /// So many at their end are to be copies.
    pub settling: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Bytes that are still to be cut of it.
    left: u64,
    /// Bytes of each piece.
    each: u64,
    /// They are copies.
    copied: bool,
}

impl Round {
    /// The length of the next of the pieces that `streams` connections are to bring, and whether it is a copy: as all are behind one that was. `least` and `most`: the shortest
    /// that is worth it, and the longest.
    pub fn cut(&mut self, rest: Rest, copied: bool, streams: u64, (least, most): (u64, u64)) -> (u64, bool) {
        let settling = rest.settling.saturating_add(least / 2);
        let copied = copied || rest.all <= settling;
        let left = if copied { rest.all } else { rest.all - rest.settling };
        if self.left == 0 || self.copied != copied {
            let streams = streams.max(1);
            // Copies may be more where a connection was given up and others bring what it had.
            let is_last = copied && left <= settling || left.div_ceil(streams) <= least.saturating_mul(SHORT);
            let all = if is_last { left } else { (left as f64 * PART) as u64 };
            *self = Round { left: all, each: all.div_ceil(streams).max(least), copied };
        }
        let (length, room) = (self.each.min(most), rest.first.min(left));
        // No rest that is not worth it.
        let length = if room < length.saturating_add(length / 2) { room } else { length };
        self.left = self.left.saturating_sub(length);
        (length, copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u64 = 1_000_000;

    /// All pieces of so many bytes in extents of at most `extent`: their lengths, and whether they are copies.
    fn all(bytes: u64, extent: u64, settling: u64, streams: u64, bounds: (u64, u64)) -> Vec<(u64, bool)> {
        let (mut round, mut pieces, mut left, mut first, mut copied) = (Round::default(), Vec::new(), bytes, 0, false);
        while left > 0 {
            if first == 0 {
                first = extent.min(left);
            }
            let (length, is_copy) = round.cut(Rest { all: left, first, settling }, copied, streams, bounds);
            assert!((1..=first).contains(&length), "{length} of {first}");
            pieces.push((length, is_copy));
            copied |= is_copy;
            (left, first) = (left - length, first - length);
        }
        pieces
    }

    /// Of a round trip at 1 Gbit/s: what settles, and the shortest piece.
    fn of_trip(ms: u64, streams: u64) -> (u64, u64) {
        let bytes = 125_000 * ms;
        (bytes * 11 / 10, (bytes / streams).max(512 << 10))
    }

    #[test]
    fn a_round_has_equal_pieces_and_leaves_a_part_until_they_are_short() {
        for (ms, streams, pieces) in [(150, 8, 24), (50, 8, 32), (15, 4, 20)] {
            let (settling, least) = of_trip(ms, streams);
            let lengths = all(200 * MEGABYTE, u64::MAX, settling, streams, (least, 64 << 20));
            assert!(lengths.len() <= pieces, "{ms} ms: {lengths:?}");
            let rounds: Vec<_> = lengths.chunks(streams as usize).collect();
            assert!(rounds.iter().all(|round| round.iter().all(|(length, _)| length.abs_diff(round[0].0) <= least)));
            assert!(rounds.windows(2).all(|two| two[1][0].0 < two[0][0].0), "{rounds:?}");
        }
    }

    #[test]
    fn copies_are_what_settles_and_the_end_whatever_the_sizes_are() {
        for ms in [7, 8, 10, 15, 50, 150] {
            for streams in 2..=8 {
                let (settling, least) = of_trip(ms, streams);
                for (bytes, extent) in (1..300u64).flat_map(|n| [(n * 999_983, u64::MAX), (n * 999_983, 26 * MEGABYTE)])
                {
                    let pieces = all(bytes, extent, settling, streams, (least, 64 << 20));
                    assert_eq!(pieces.iter().map(|(length, _)| length).sum::<u64>(), bytes);
                    assert!(pieces.is_sorted_by_key(|(_, is_copy)| *is_copy), "{pieces:?}");
                    let copied: u64 = pieces.iter().filter(|(_, is_copy)| *is_copy).map(|(length, _)| length).sum();
                    assert!(
                        (bytes.min(settling)..=settling + least / 2).contains(&copied),
                        "{ms} ms, {bytes}: {pieces:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn pieces_of_extents_are_no_shorter_than_is_worth_it_and_no_longer_than_may_be() {
        for most in [20, 1000] {
            for extent in [1, 7, 100] {
                let pieces = all(1000, extent, 100, 4, (10, most));
                assert!(pieces.iter().all(|&(length, _)| length >= extent.min(5) && length <= most + most / 2));
            }
        }
    }

    #[test]
    fn where_much_is_to_be_copied_a_round_leaves_a_part_too() {
        let rest = Rest { all: 400 * MEGABYTE, first: u64::MAX, settling: 20 * MEGABYTE };
        let cut = Round::default().cut(rest, true, 4, (MEGABYTE, 64 << 20));
        assert_eq!(cut, (64 << 20, true));
        let rest = Rest { all: 100 * MEGABYTE, ..rest };
        assert_eq!(Round::default().cut(rest, true, 4, (MEGABYTE, 64 << 20)), (75 * MEGABYTE / 4, true));
    }
}
