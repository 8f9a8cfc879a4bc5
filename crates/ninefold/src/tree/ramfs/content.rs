//! The bytes of a plain file, in chunks; what was never written takes no memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ninefold_proto::Errno;

use super::budget::{Budget, Charge};

/// Bytes of a chunk: large enough that a big file is few of them, small enough that a hole is seldom filled in vain.
pub(super) const CHUNK: usize = 64 << 10;

/// A chunk grows by doubling from here, so that many small files take little.
const SMALLEST: usize = 512;

/// The greatest size of a file: 16 TiB, as ext4 has it with blocks of 4 KiB.
pub(super) const MAX_SIZE: u64 = 16 << 40;

/// A file's bytes. Those of a chunk behind its vector's end are 0, and so are those behind the file's end.
#[derive(Debug)]
pub(super) struct Content {
    size: u64,
    chunks: BTreeMap<u64, Vec<u8>>,
    charge: Charge,
}

/// The part of one chunk that an access touches.
struct Piece {
    chunk: u64,
    /// Within the chunk.
    start: usize,
    len: usize,
}

/// The pieces of `len` bytes at `offset`, in order.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        let start = (at % CHUNK as u64) as usize;
        let piece = Piece { chunk: at / CHUNK as u64, start, len: (end - at).min((CHUNK - start) as u64) as usize };
        at += piece.len as u64;
        (piece.len > 0).then_some(piece)
    })
}

/// Where the file's byte `at` lies in the first `len` bytes of `chunk`, or at which of their ends.
fn within(at: u64, chunk: u64, len: usize) -> usize {
    at.saturating_sub(chunk * CHUNK as u64).min(len as u64) as usize
}

/// What a chunk's vector measures when its first `used` bytes are in use.
fn room(used: usize) -> usize {
    used.next_power_of_two().clamp(SMALLEST, CHUNK)
}

impl Content {
    pub(super) fn new(budget: &Arc<Budget>) -> Content {
        Content { size: 0, chunks: BTreeMap::new(), charge: Charge::nothing(budget) }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of memory.
    pub(super) fn allocated(&self) -> u64 {
        self.charge.bytes()
    }

    /// Up to `count` bytes at `offset`, none behind the end.
    pub(super) fn read(&self, offset: u64, count: u32) -> Bytes {
        let len = self.size.saturating_sub(offset).min(u64::from(count)) as usize;
        let mut data = Vec::with_capacity(len);
        for piece in pieces(offset, len as u64) {
            let end = data.len() + piece.len;
            if let Some(chunk) = self.chunks.get(&piece.chunk) {
                let stop = chunk.len().min(piece.start + piece.len);
                data.extend_from_slice(chunk.get(piece.start..stop).unwrap_or_default());
            }
            data.resize(end, 0);
        }
        data.into()
    }

    /// Writes all of `data` or nothing: EFBIG behind [`MAX_SIZE`], ENOSPC beyond the budget. No data change nothing.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= MAX_SIZE).ok_or(Errno::EFBIG)?;
        let have = |chunk: u64| self.chunks.get(&chunk).map_or(0, Vec::len);
        let grow = |piece: Piece| room(piece.start + piece.len).saturating_sub(have(piece.chunk)) as u64;
        let more: u64 = pieces(offset, data.len() as u64).map(grow).sum();
        self.charge.resize(self.charge.bytes() + more)?;
        let mut rest = data;
        for piece in pieces(offset, data.len() as u64) {
            let chunk = self.grow(&piece);
            let (now, later) = rest.split_at(piece.len);
            chunk[piece.start..piece.start + piece.len].copy_from_slice(now);
            rest = later;
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// Takes the memory that `length` bytes at `offset` will need, or nothing: EFBIG behind [`MAX_SIZE`], ENOSPC beyond the budget.
    /// The size stays what it is.
    pub(super) fn reserve(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        let end = offset.checked_add(length).filter(|&end| end <= MAX_SIZE).ok_or(Errno::EFBIG)?;
        // Before anything is gone through chunk by chunk: it may be 16 TiB.
        let covered: u64 =
            self.chunks.range(offset / CHUNK as u64..=end / CHUNK as u64).map(|(_, c)| c.len() as u64).sum();
        if length.saturating_sub(covered) > self.charge.room() {
            return Err(Errno::ENOSPC);
        }
        let have = |chunk: u64| self.chunks.get(&chunk).map_or(0, Vec::len);
        let grow = |piece: Piece| room(piece.start + piece.len).saturating_sub(have(piece.chunk)) as u64;
        let more: u64 = pieces(offset, length).map(grow).sum();
        self.charge.resize(self.charge.bytes() + more)?;
        for piece in pieces(offset, length) {
            self.grow(&piece);
        }
        Ok(())
    }

    /// The chunk of a piece, long enough for it, its memory being charged already.
    fn grow(&mut self, piece: &Piece) -> &mut Vec<u8> {
        let chunk = self.chunks.entry(piece.chunk).or_default();
        let room = room(piece.start + piece.len);
        if chunk.len() < room {
            chunk.reserve_exact(room - chunk.len());
            chunk.resize(room, 0);
        }
        chunk
    }

    /// Makes bytes 0 that have memory already.
    pub(super) fn zero(&mut self, offset: u64, length: u64) {
        let last = (offset + length - 1) / CHUNK as u64;
        for (&at, chunk) in self.chunks.range_mut(offset / CHUNK as u64..=last) {
            let [from, to] = [offset, offset + length].map(|at_byte| within(at_byte, at, chunk.len()));
            chunk[from..to].fill(0);
        }
    }

    /// Makes bytes 0, and gives back the memory of chunks that lie in the range.
    pub(super) fn punch(&mut self, offset: u64, length: u64) {
        self.zero(offset, length);
        let whole = offset.div_ceil(CHUNK as u64)..(offset + length) / CHUNK as u64;
        let gone: Vec<u64> =
            if whole.is_empty() { Vec::new() } else { self.chunks.range(whole).map(|(&at, _)| at).collect() };
        let bytes: usize = gone.iter().filter_map(|at| self.chunks.remove(at)).map(|chunk| chunk.len()).sum();
        let left = self.charge.bytes() - bytes as u64;
        self.charge.resize(left).expect("it shrinks");
    }

    /// The first byte at `offset` or behind it that has memory.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let chunks =
            self.chunks.range(offset / CHUNK as u64..).map(|(&at, chunk)| (at * CHUNK as u64, chunk.len() as u64));
        let found = chunks.filter(|(start, len)| offset < start + len).map(|(start, _)| offset.max(start)).next();
        found.filter(|&at| at < self.size)
    }

    /// The first byte at `offset` or behind it that has none; the end of the file is such a byte.
    pub(super) fn next_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let mut at = offset;
        while let Some(chunk) = self.chunks.get(&(at / CHUNK as u64)) {
            let start = at / CHUNK as u64 * CHUNK as u64;
            let end = start + chunk.len() as u64;
            if at >= end {
                break;
            }
            at = end;
            if chunk.len() < CHUNK {
                break;
            }
        }
        Some(at.min(self.size))
    }

    /// Cuts, or grows by a hole.
    pub(super) fn resize(&mut self, size: u64) {
        if size < self.size {
            let (last, within) = (size / CHUNK as u64, (size % CHUNK as u64) as usize);
            let mut gone: usize = self.chunks.split_off(&(last + 1)).values().map(Vec::len).sum();
            if within == 0 {
                gone += self.chunks.remove(&last).map_or(0, |chunk| chunk.len());
            } else if let Some(chunk) = self.chunks.get_mut(&last)
                && within < chunk.len()
            {
                let keep = room(within).min(chunk.len());
                gone += chunk.len() - keep;
                chunk.truncate(keep);
                chunk.shrink_to_fit();
                chunk[within..].fill(0);
            }
            let left = self.charge.bytes() - gone as u64;
            self.charge.resize(left).expect("it shrinks");
        }
        self.size = size;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Write(usize, usize, u8),
        Resize(usize),
        Punch(usize, usize),
        Reserve(usize, usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        let at = || 0..3 * CHUNK;
        prop_oneof![
            (at(), 0..CHUNK + 100, 1u8..).prop_map(|(at, len, byte)| Op::Write(at, len, byte)),
            at().prop_map(Op::Resize),
            (at(), 1..2 * CHUNK).prop_map(|(at, len)| Op::Punch(at, len)),
            (at(), 1..2 * CHUNK).prop_map(|(at, len)| Op::Reserve(at, len)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn content_agrees_with_a_vector_and_counts_its_memory(ops in proptest::collection::vec(op(), 1..20)) {
            let budget = Budget::new(1 << 30);
            let mut content = Content::new(&budget);
            let mut model: Vec<u8> = Vec::new();
            for op in ops {
                match op {
                    Op::Write(at, len, byte) => {
                        content.write(at as u64, &vec![byte; len]).unwrap();
                        if len > 0 {
                            model.resize(model.len().max(at + len), 0);
                            model[at..at + len].fill(byte);
                        }
                    }
                    Op::Punch(at, len) => {
                        content.punch(at as u64, len as u64);
                        let end = model.len().min(at + len);
                        model[at.min(end)..end].fill(0);
                    }
                    Op::Reserve(at, len) => content.reserve(at as u64, len as u64).unwrap(),
                    Op::Resize(size) => {
                        content.resize(size as u64);
                        model.resize(size, 0);
                    }
                }
                prop_assert_eq!(content.size(), model.len() as u64);
                let mut at = 0;
                while let Some(data) = content.next_data(at) {
                    prop_assert!(model[at as usize..data as usize].iter().all(|byte| *byte == 0), "data before {}", data);
                    at = content.next_hole(data).unwrap();
                    prop_assert!(at > data && at <= content.size());
                }
                prop_assert!(model[at as usize..].iter().all(|byte| *byte == 0), "data behind {}", at);
                prop_assert!(content.read(0, u32::MAX) == model);
                let memory: usize = content.chunks.values().map(Vec::len).sum();
                prop_assert_eq!(content.allocated(), memory as u64);
                prop_assert_eq!(budget.free(), budget.limit() - memory as u64);
            }
        }
    }

    #[test]
    fn a_write_far_behind_the_end_allocates_what_it_writes() {
        let mut content = Content::new(&Budget::new(1 << 20));
        content.write(MAX_SIZE - 3, b"end").unwrap();
        assert!(content.allocated() <= CHUNK as u64);
        assert_eq!(content.read(MAX_SIZE - 5, 10), &b"\0\0end"[..]);
    }

    #[test]
    fn a_write_beyond_the_greatest_size_changes_nothing() {
        let mut content = Content::new(&Budget::new(1 << 20));
        assert_eq!(content.write(MAX_SIZE - 2, b"end"), Err(Errno::EFBIG));
        assert_eq!((content.size(), content.allocated()), (0, 0));
    }

    #[test]
    fn a_write_beyond_the_budget_changes_nothing() {
        let mut content = Content::new(&Budget::new(CHUNK as u64));
        content.write(0, b"kept").unwrap();
        assert_eq!(content.write(1, &vec![1; 2 * CHUNK]), Err(Errno::ENOSPC));
        assert_eq!(content.read(0, 100), &b"kept"[..]);
    }
}
