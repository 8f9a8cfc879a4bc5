//! Which blocks of a part are there, where a copy writes several ranges at a time: [`Blocks`].
//!
//! The record lies in the part itself, behind the place where the file ends: [`MAGIC`], then for each block eight bytes in little-endian
//! order, what its content comes to (XXH3 in 64 bits), or 0 as long as it is not there. So a part with gaps is longer than its source, and
//! never taken for a beginning of it. A block is entered when all of it was written, and counts only if it still comes to its number: a
//! number that is half written, or that a disk kept when it lost the block, is that of no block. When the file is whole the record is cut off.

use std::hash::Hasher;

use twox_hash::XxHash3_64;

/// Bytes of a block: what may be copied again for nothing in each range, and what is read at once to be looked at.
pub const BLOCK: u64 = 1 << 20;

const MAGIC: [u8; 16] = *b"ninefold blocks\n";

/// Bytes of the largest file that has a record, 4 TiB: it takes 32 MiB, in memory too, where sizes are what servers say.
const MOST: u64 = 1 << 42;

/// Bytes of a block's number.
const NUMBER: u64 = 8;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// Bytes of the file.
    size: u64,
    numbers: Vec<u64>,
}

impl Blocks {
    /// Of a file of `size` bytes, of which nothing is there.
    pub fn none(size: u64) -> Blocks {
        let blocks = usize::try_from(size.div_ceil(BLOCK)).unwrap_or(usize::MAX);
        Blocks { size, numbers: vec![0; blocks] }
    }

    /// What stands behind a part of a file of `size` bytes.
    pub fn parse(size: u64, record: &[u8]) -> Option<Blocks> {
        let numbers = record.strip_prefix(&MAGIC)?;
        if record.len() as u64 != record_length(size) {
            return None;
        }
        let (numbers, _) = numbers.as_chunks::<{ NUMBER as usize }>();
        Some(Blocks { size, numbers: numbers.iter().map(|&number| u64::from_le_bytes(number)).collect() })
    }

    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Where a block begins and ends.
    pub fn extent(&self, block: usize) -> (u64, u64) {
        let start = block as u64 * BLOCK;
        (start, self.size.min(start + BLOCK))
    }

    /// What the block's content is to come to, if it is there.
    pub fn number(&self, block: usize) -> Option<u64> {
        self.numbers.get(block).copied().filter(|&number| number != 0)
    }

    pub fn enter(&mut self, block: usize, number: u64) {
        if let Some(entry) = self.numbers.get_mut(block) {
            *entry = number;
        }
    }

    /// It is not there after all.
    pub fn strike(&mut self, block: usize) {
        self.enter(block, 0);
    }

    /// Bytes that are there.
    pub fn bytes(&self) -> u64 {
        self.runs(true).iter().map(|(start, end)| end - start).sum()
    }

    /// Bytes before the first that is missing.
    pub fn beginning(&self) -> u64 {
        self.gaps().first().map_or(self.size, |gap| gap.0)
    }

    /// The bytes that are missing, from where to where.
    pub fn gaps(&self) -> Vec<(u64, u64)> {
        self.runs(false)
    }

    /// Where blocks are or are not there, from where to where.
    pub fn runs(&self, there: bool) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for block in (0..self.count()).filter(|&block| self.number(block).is_some() == there) {
            let (start, end) = self.extent(block);
            match runs.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => runs.push((start, end)),
            }
        }
        runs
    }
}

/// Whether a file of `size` bytes may have one.
pub fn fits(size: u64) -> bool {
    size <= MOST
}

/// Bytes of the record of a file of `size` bytes.
pub fn record_length(size: u64) -> u64 {
    size.div_ceil(BLOCK).saturating_mul(NUMBER).saturating_add(MAGIC.len() as u64)
}

/// Bytes of a part that has one.
pub fn marked_length(size: u64) -> u64 {
    size.saturating_add(record_length(size))
}

/// What the record begins with, at the place where the file ends.
pub fn opening() -> &'static [u8] {
    &MAGIC
}

/// Where in the part a block's number lies.
pub fn place(size: u64, block: usize) -> u64 {
    size.saturating_add(MAGIC.len() as u64).saturating_add(block as u64 * NUMBER)
}

/// What a block's content comes to; never 0.
pub fn number_of(data: &[u8]) -> u64 {
    XxHash3_64::oneshot(data).max(1)
}

/// The number of a block whose bytes come in order.
pub struct Numbering {
    state: XxHash3_64,
    /// Where the next of them belongs.
    next: u64,
}

impl Numbering {
    /// Of the block that begins there.
    pub fn new(start: u64) -> Numbering {
        Numbering { state: XxHash3_64::new(), next: start }
    }

    /// Whether they are the next ones.
    pub fn takes(&mut self, data: &[u8], at: u64) -> bool {
        let is_next = at == self.next;
        if is_next {
            self.state.write(data);
            self.next += data.len() as u64;
        }
        is_next
    }

    /// That of a block of all that came.
    pub fn number(&self) -> u64 {
        self.state.finish().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 3 * BLOCK + 5;

    fn record(blocks: &Blocks) -> Vec<u8> {
        let mut record = opening().to_vec();
        blocks.numbers.iter().for_each(|number| record.extend(number.to_le_bytes()));
        record
    }

    #[test]
    fn what_is_missing_and_what_is_there_are_all_of_the_file() {
        let mut blocks = Blocks::none(SIZE);
        assert_eq!((blocks.gaps(), blocks.bytes(), blocks.beginning()), (vec![(0, SIZE)], 0, 0));
        blocks.enter(0, 7);
        blocks.enter(3, 7);
        assert_eq!(blocks.gaps(), [(BLOCK, 3 * BLOCK)]);
        assert_eq!((blocks.bytes(), blocks.beginning()), (BLOCK + 5, BLOCK));
        assert_eq!(blocks.runs(true), [(0, BLOCK), (3 * BLOCK, SIZE)]);
        blocks.enter(1, 7);
        blocks.enter(2, 7);
        assert_eq!((blocks.gaps(), blocks.bytes(), blocks.beginning()), (vec![], SIZE, SIZE));
        blocks.strike(0);
        assert_eq!(blocks.gaps(), [(0, BLOCK)]);
    }

    #[test]
    fn a_record_reads_as_it_was_written_and_one_of_another_file_is_none() {
        let mut blocks = Blocks::none(SIZE);
        blocks.enter(2, number_of(b"x"));
        let written = record(&blocks);
        assert_eq!(written.len() as u64, record_length(SIZE));
        assert_eq!(place(SIZE, 2) - SIZE, 16 + 2 * 8);
        assert_eq!(Blocks::parse(SIZE, &written), Some(blocks));
        assert_eq!(Blocks::parse(SIZE + BLOCK, &written), None);
        assert_eq!(Blocks::parse(SIZE, &written[..written.len() - 1]), None);
        assert_eq!(Blocks::parse(SIZE, &[0; 48]), None);
    }

    #[test]
    fn a_block_that_comes_in_order_has_the_number_of_all_of_it() {
        let data: Vec<u8> = (0..BLOCK).map(|byte| ((byte * byte) >> 7) as u8).collect();
        let mut numbering = Numbering::new(BLOCK);
        let mut at = 0;
        for length in [1, 15, 240, 241, 65_536, 0, 300_000] {
            assert!(numbering.takes(&data[at..at + length], BLOCK + at as u64));
            at += length;
        }
        // Not the next ones, before and behind.
        for wrong in [0, BLOCK, BLOCK + at as u64 - 1, BLOCK + at as u64 + 1] {
            assert!(!numbering.takes(&data[at..], wrong));
        }
        assert!(numbering.takes(&data[at..], BLOCK + at as u64));
        assert_eq!(numbering.number(), number_of(&data));
        assert_eq!(Numbering::new(0).number(), number_of(&[]));
    }
}
