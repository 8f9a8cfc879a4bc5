//! What was freed and is not in the file, laid over what is read of it: other streams of this process are to see it all the same (§2).

use super::{Chunk, Fill, StreamModule};
use crate::error::{Error, Result};
use crate::memory::{Frozen, Memory, POOLED};

/// Freed data that is not in the file: offset and bytes, in the order of allocation.
pub type Overlay = Vec<(u64, Vec<u8>)>;

/// What the reading stream itself freed, and above it what other streams did.
#[derive(Clone, Copy)]
pub struct Overlays<'a> {
    pub own: &'a Overlay,
    pub others: &'a Overlay,
    /// Before that nothing is laid over: what was put back is no data of the file.
    pub from: u64,
}

impl Overlays<'_> {
    fn is_empty(self) -> bool {
        self.own.is_empty() && self.others.is_empty()
    }

    fn pieces(&self) -> impl Iterator<Item = &(u64, Vec<u8>)> {
        self.own.iter().chain(self.others)
    }
}

/// Fills from the module, and lays over what is to be. A module that was pushed has read what is below it in this way.
pub fn fill(module: &mut dyn StreamModule, fill: Fill<'_>) -> Result<Chunk> {
    let (at, least, overlays) = (fill.at, fill.least, fill.overlays);
    let chunk = module.fill(fill)?;
    if overlays.is_empty() || module.as_pushed().is_some() {
        return Ok(chunk);
    }
    let length = module.length()?;
    laid_over(chunk, at, least, length, overlays)
}

/// The same data with the overlays, in memory of its own. `file` is the file's length.
fn laid_over(chunk: Chunk, at: u64, least: usize, file: u64, overlays: Overlays<'_>) -> Result<Chunk> {
    let end_of = |(offset, bytes): &(u64, Vec<u8>)| offset + bytes.len() as u64;
    let pieces = || overlays.pieces().filter(|piece| end_of(piece) > at);
    let read_end = chunk.offset + chunk.length as u64;
    let visible = pieces().map(end_of).fold(read_end, u64::max);
    // Beyond what was read only as far as was asked: the rest is another fill's.
    let asked = at.saturating_add(least.max(POOLED) as u64);
    // Where the chunk ends before the file does, what is behind it is the next fill's, and not a gap.
    let end = if read_end < file { read_end.max(at) } else { read_end.max(visible.min(asked)).max(at) };
    if end == read_end && pieces().all(|(offset, _)| *offset >= end) {
        return Ok(chunk);
    }
    let length = usize::try_from(end - at).map_err(|_| Error::NoMemory)?;
    let mut memory = Memory::pooled(length)?;
    let bytes = memory.as_mut_slice().unwrap_or_default();
    let skip = usize::try_from(at - chunk.offset).map_err(|_| Error::BadOffset)?.min(chunk.length);
    let have = chunk.length - skip;
    bytes[..have].copy_from_slice(chunk.memory.bytes(chunk.start + skip..chunk.start + chunk.length));
    bytes[have..length].fill(0);
    for (offset, piece) in pieces() {
        let from = &at.max(overlays.from).max(*offset);
        let to = (offset + piece.len() as u64).min(end);
        if *from < to {
            let place = |n: u64, base: u64| (n - base) as usize;
            bytes[place(*from, at)..place(to, at)].copy_from_slice(&piece[place(*from, *offset)..place(to, *offset)]);
        }
    }
    Ok(Chunk { memory: Frozen::new(memory), start: 0, length, offset: at })
}
