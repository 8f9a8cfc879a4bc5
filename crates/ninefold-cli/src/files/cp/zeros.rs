//! Where a piece of a file holds nothing but zeros, which need not be written to a file just made.

use bytes::Bytes;

/// Bytes of the units that are looked at, aligned in the file: a page, and a block of most file systems.
const BLOCK: usize = 4096;

/// Bytes that are compared with zero at once; the compiler makes vector instructions of it.
const LANE: usize = 64;

/// A run of bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Run {
    Data(Bytes),
    /// So many zeros.
    Zeros(u64),
}

/// Cuts a piece that lies at `offset` in its file into runs. Runs of zeros shorter than `least` bytes count as data,
/// unless they lie at an end of the piece, where they may go on.
pub fn runs(piece: &Bytes, offset: u64, least: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    let (mut at, mut data) = (0, 0);
    while at < piece.len() {
        let zeros = leading_zeros(&piece[at..], offset + at as u64);
        if zeros > 0 && (zeros >= least || at == 0 || at + zeros == piece.len()) {
            if at > data {
                runs.push(Run::Data(piece.slice(data..at)));
            }
            runs.push(Run::Zeros(zeros as u64));
            data = at + zeros;
        }
        // What follows the zeros is one unit that is not.
        at += zeros;
        at += to_boundary(offset + at as u64);
    }
    if data < piece.len() {
        runs.push(Run::Data(piece.slice(data..)));
    }
    runs
}

/// Bytes to the next boundary of a unit, 1 to [`BLOCK`].
fn to_boundary(offset: u64) -> usize {
    BLOCK - (offset % BLOCK as u64) as usize
}

/// Bytes of the units of zeros that `bytes` begins with; those at its ends may be parts of units.
fn leading_zeros(bytes: &[u8], offset: u64) -> usize {
    let (first, rest) = bytes.split_at(to_boundary(offset).min(bytes.len()));
    if !is_zero(first) {
        return 0;
    }
    first.len() + rest.chunks(BLOCK).take_while(|unit| is_zero(unit)).map(<[u8]>::len).sum::<usize>()
}

fn is_zero(bytes: &[u8]) -> bool {
    let lanes = bytes.chunks_exact(LANE);
    let rest = lanes.remainder();
    lanes.into_iter().all(|lane| lane.iter().fold(0, |all, byte| all | byte) == 0) && rest.iter().all(|&b| b == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(parts: &[(u8, usize)]) -> Bytes {
        parts.iter().flat_map(|&(byte, count)| std::iter::repeat_n(byte, count)).collect()
    }

    fn lengths(runs: &[Run]) -> Vec<i64> {
        let length = |run: &Run| match run {
            Run::Data(data) => data.len() as i64,
            Run::Zeros(count) => -count.cast_signed(),
        };
        runs.iter().map(length).collect()
    }

    #[test]
    fn zeros_are_found_in_blocks_that_are_aligned_in_the_file() {
        let p = piece(&[(1, 4096), (0, 8192), (1, 1)]);
        assert_eq!(lengths(&runs(&p, 0, 4096)), [4096, -8192, 1]);
        // The same bytes one further on: a block less, for its ends are shared.
        assert_eq!(lengths(&runs(&p, 1, 4096)), [8191, -4096, 2]);
    }

    #[test]
    fn short_runs_of_zeros_are_data_unless_they_may_go_on() {
        let p = piece(&[(1, 4096), (0, 4096), (1, 4096), (0, 4096)]);
        assert_eq!(lengths(&runs(&p, 0, 8192)), [12288, -4096]);
        assert_eq!(lengths(&runs(&piece(&[(0, 100)]), 50, 65536)), [-100]);
        assert_eq!(lengths(&runs(&piece(&[(0, 100), (1, 1)]), 0, 1)), [101]);
        assert!(runs(&Bytes::new(), 7, 4096).is_empty());
    }

    proptest! {
        #[test]
        fn the_runs_of_a_piece_are_its_bytes(
            parts in prop::collection::vec((0u8..2, 0usize..10_000), 0..8),
            offset in 0u64..10_000,
            least in 1usize..20_000,
        ) {
            let p = piece(&parts);
            let mut whole = Vec::new();
            for run in runs(&p, offset, least) {
                match run {
                    Run::Data(data) => { prop_assert!(!data.is_empty()); whole.extend_from_slice(&data) }
                    Run::Zeros(count) => { prop_assert!(count > 0); whole.extend(std::iter::repeat_n(0, count as usize)) }
                }
            }
            prop_assert_eq!(Bytes::from(whole), p);
        }
    }
}
