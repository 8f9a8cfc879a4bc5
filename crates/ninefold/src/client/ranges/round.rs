//! How long the pieces of a file are that several connections bring, and how much of them are copies: pure.
//!
//! They are cut in rounds, each of about one piece for each connection. A round brings the greater part of what is left, so that there are few of them,
//! and leaves enough to make up for connections that are slower than others; when pieces have become short, the next round brings all. Each piece is a stream, which
//! costs a server as much as to send one or two megabytes. What comes while the file is looked at are copies, but for a long file: so much at the end of each piece of the last
//! round that all connections have their part of it, and one that is slow needs no less time for its part than the others. Where a connection brings several
//! pieces of that round, because they may not be longer, pages come behind copies again, and who looks behind the last of them waits for that.

/// The part of what is left that a round brings.
const PART: f64 = 0.75;

/// So many of the shortest pieces may lie in one of a round that brings all that is left. Where one round brought all of 200 MB they came a twentieth later at 15 ms, and
/// a tenth at 50, because the slowest connection was late. With 6 they took a round more at 50 ms than with 8, which cost the server a twenty-fifth and brought them no sooner
/// than by a hundredth; with 8 100 MB took one more at 15 ms than with 12, and cost it a tenth.
const SHORT: u64 = 12;

/// The same of the first round: of what takes so few round trips the connections still grow alike. 200 MB at 150 ms came in the same time by one round as by two, for a twentieth
/// less of the server's; 50 MB at 15 ms and 100 MB at 50 ms with 18 as with 10, for a sixth less.
const SHORT_AT_FIRST: u64 = 18;

/// Of a long file one byte in so many is copied at most, or so many bytes where that is more: a copy costs the server some three times what a page does, so that it spends a twentieth of its
/// time on them. Where fewer are copied than come while the file is looked at, the end of that is waited for: of 200 MB at 150 ms each megabyte that was not copied took 8 ms
/// longer, and the server a hundredth less. 50 MB took 19 ms longer (of 1.87 s) with 2 MB of copies than with 4, and the server a fourteenth less.
const COPIED_PART: u64 = 50;
const COPIED_LEAST: u64 = 2_000_000;

/// Bytes that are copied at most of so many, at the ends of pieces that begin with pages.
pub(super) fn most_copied(all: u64) -> u64 {
    (all / COPIED_PART).max(COPIED_LEAST)
}

/// Bytes that no stream has begun with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    pub all: u64,
    /// Up to the first gap among them.
    pub first: u64,
    /// So many come while the file is looked at: those that come last on each connection.
    pub settling: u64,
    /// No more of them are copied.
    pub most_copied: u64,
}

/// What is cut: how long, and how much at its end is to be copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub length: u64,
    pub copies: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Bytes that are still to be cut of it.
    left: u64,
    /// Bytes of each piece.
    each: u64,
    /// The part of each that is to be copies: 0 but in a round that brings all that is left, or where all is copied.
    copied: f64,
}

/// Of `room`, so much as a piece of `length` should have: no rest is left that is not worth it.
pub(super) fn worth(length: u64, room: u64) -> u64 {
    if room < length.saturating_add(length / 2) { room } else { length }
}

impl Round {
    /// The next of the pieces that `streams` connections are to bring. `copied`: all of it is to be copies. `least` and `most`: the shortest that is worth it, and the
    /// longest.
    pub fn cut(&mut self, rest: Rest, copied: bool, streams: u64, (least, most): (u64, u64)) -> Cut {
        let settling = if copied { rest.all } else { rest.settling.min(rest.all) };
        let pages = rest.all - settling;
        // Of extents the pieces of a round may be longer than they were to be.
        let is_over = self.left == 0 || self.copied == 0.0 && pages < least / 2 || copied && self.copied < 1.0;
        if is_over {
            // Those that are copied may be many where a connection was given up and others bring what it had.
            let (streams, most) = (streams.max(1), if copied { rest.all } else { pages });
            let short = if self.each == 0 { SHORT_AT_FIRST } else { SHORT };
            let is_last = most.div_ceil(streams) <= least.saturating_mul(short);
            let all = if is_last { rest.all } else { (most as f64 * PART) as u64 };
            let bytes = if copied { rest.all } else { settling.min(rest.most_copied) };
            let is_copied = if is_last || copied { bytes as f64 / rest.all.max(1) as f64 } else { 0.0 };
            *self = Round { left: all, each: all.div_ceil(streams).max(least), copied: is_copied };
        }
        // One that brings not all leaves what is to be copied.
        let room = if self.copied == 0.0 { rest.first.min(pages) } else { rest.first };
        let length = worth(self.each.min(most), room);
        self.left = self.left.saturating_sub(length);
        let copies = (length as f64 * self.copied).ceil() as u64;
        // Of a piece that is long enough no pages that are not worth it.
        let are_few = self.copied > 0.0 && length >= least && length.saturating_sub(copies) < least / 2;
        let copies = if are_few { length } else { copies };
        Cut { length, copies: copies.min(length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u64 = 1_000_000;

    /// All pieces of so many bytes in extents of at most `extent`.
    fn all(bytes: u64, extent: u64, settling: u64, streams: u64, bounds: (u64, u64)) -> Vec<Cut> {
        let (mut round, mut pieces, mut left, mut first) = (Round::default(), Vec::new(), bytes, 0);
        let most_copied = most_copied(bytes);
        while left > 0 {
            if first == 0 {
                first = extent.min(left);
            }
            let cut = round.cut(Rest { all: left, first, settling, most_copied }, false, streams, bounds);
            assert!((1..=first).contains(&cut.length) && cut.copies <= cut.length, "{cut:?} of {first}");
            pieces.push(cut);
            (left, first) = (left - cut.length, first - cut.length);
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
        // 100 MB, and what is left of it where four streams were asked for with its open.
        let of_100 = [(100, 15, 4, 8), (84, 15, 4, 8)];
        for (mb, ms, streams, pieces) in
            [(200, 150, 8, 8), (200, 50, 8, 16), (200, 15, 4, 12)].into_iter().chain(of_100)
        {
            let (settling, least) = of_trip(ms, streams);
            let cuts = all(mb * MEGABYTE, u64::MAX, settling, streams, (least, 64 << 20));
            assert_eq!(cuts.len(), pieces, "{ms} ms: {cuts:?}");
            let rounds: Vec<_> = cuts.chunks(streams as usize).collect();
            assert!(rounds.iter().all(|round| round.iter().all(|cut| cut.length.abs_diff(round[0].length) <= least)));
            assert!(rounds.windows(2).all(|two| two[1][0].length < two[0][0].length), "{rounds:?}");
        }
    }

    #[test]
    fn copies_are_at_the_end_of_each_piece_of_the_last_round_and_are_what_settles_but_few_of_a_long_file() {
        for ms in [7, 8, 10, 15, 50, 150] {
            for streams in 2..=8 {
                let (settling, least) = of_trip(ms, streams);
                let extents = [u64::MAX, 26 * MEGABYTE, 200_000];
                for (bytes, extent) in (1..300u64).flat_map(|n| extents.map(|extent| (n * 999_983, extent))) {
                    let pieces = all(bytes, extent, settling, streams, (least, 64 << 20));
                    assert_eq!(pieces.iter().map(|cut| cut.length).sum::<u64>(), bytes);
                    assert!(pieces.is_sorted_by_key(|cut| cut.copies > 0), "{pieces:?}");
                    let copied: u64 = pieces.iter().map(|cut| cut.copies).sum();
                    let settled = settling.min(most_copied(bytes)).min(bytes);
                    let most = settled + (streams + 1) * least / 2;
                    assert!((settled..=most).contains(&copied), "{ms} ms, {bytes}: {copied} of {pieces:?}");
                    // Each has its part, so that none has pages when the others have none for long.
                    let shares = pieces.iter().filter(|cut| cut.copies > 0);
                    let shares: Vec<_> = shares.map(|cut| cut.copies as f64 / cut.length as f64).collect();
                    let least = shares.iter().copied().fold(1.0, f64::min);
                    assert!(shares.iter().all(|&share| share < least * 1.01 || share == 1.0), "{pieces:?}");
                }
            }
        }
    }

    #[test]
    fn of_a_long_file_little_is_copied_and_it_has_as_many_rounds_all_the_same() {
        assert_eq!([0, 200, 10_000].map(|mb| most_copied(mb * MEGABYTE) / MEGABYTE), [2, 4, 200]);
        let (settling, least) = of_trip(150, 8);
        for (bytes, copies) in [(200 * MEGABYTE, 4), (192 << 20, 4), (1000 * MEGABYTE, 20)] {
            let cuts = all(bytes, u64::MAX, settling, 8, (least, 64 << 20));
            let copied: u64 = cuts.iter().map(|cut| cut.copies).sum();
            assert_eq!(copied / MEGABYTE, copies, "{cuts:?}");
            assert!(bytes > 300 * MEGABYTE || cuts.len() == 8, "{cuts:?}");
        }
    }

    #[test]
    fn pieces_of_extents_are_no_shorter_than_is_worth_it_and_no_longer_than_may_be() {
        for most in [20, 1000] {
            for extent in [1, 7, 100] {
                let pieces = all(1000, extent, 100, 4, (10, most));
                assert!(pieces.iter().all(|cut| cut.length >= extent.min(5) && cut.length <= most + most / 2));
            }
        }
    }

    #[test]
    fn where_all_is_to_be_copied_and_is_much_a_round_leaves_a_part_too() {
        let (all, settling) = (400 * MEGABYTE, 20 * MEGABYTE);
        let rest = Rest { all, first: u64::MAX, settling, most_copied: settling };
        let cut = Round::default().cut(rest, true, 4, (MEGABYTE, 64 << 20));
        assert_eq!(cut, Cut { length: 64 << 20, copies: 64 << 20 });
        let rest = Rest { all: 100 * MEGABYTE, ..rest };
        let length = 75 * MEGABYTE / 4;
        assert_eq!(Round::default().cut(rest, true, 4, (MEGABYTE, 64 << 20)), Cut { length, copies: length });
    }

    #[test]
    fn what_is_put_back_when_only_copies_are_asked_for_is_copied_whatever_is_left_of_a_round() {
        let (all, settling) = (8 * MEGABYTE, MEGABYTE);
        let rest = Rest { all, first: u64::MAX, settling, most_copied: settling };
        let mut round = Round::default();
        let cut = round.cut(rest, false, 4, (MEGABYTE, 64 << 20));
        assert!(0 < cut.copies && cut.copies < cut.length, "{cut:?}");
        let cut = round.cut(rest, true, 4, (MEGABYTE, 64 << 20));
        assert_eq!(cut.copies, cut.length);
    }
}
