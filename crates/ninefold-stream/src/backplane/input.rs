//! Buffers that were read, while regions of them are out (§4.3.1).

use super::current::Current;
use crate::memory::{Frozen, Memory};

/// A buffer with data.
pub struct Buffer {
    pub memory: Frozen,
    pub start: usize,
    pub length: usize,
    /// Regions out. While the buffer is the current one, [`Current::out`] counts.
    pub out: usize,
    /// Somebody was told that it is damaged.
    pub told: bool,
}

impl Buffer {
    fn has(&self, region: *mut u8) -> bool {
        region.addr().wrapping_sub(self.memory.base().addr() + self.start) < self.length
    }
}

#[derive(Default)]
pub struct Input {
    /// The one that is current, or was before the mode changed.
    pub buffer: Option<Buffer>,
    /// Older ones, of which regions are out.
    old: Vec<Buffer>,
    /// Memory for the next.
    spare: Option<Memory>,
    /// Zeros were looked at in the place of data, and nobody was told: the next who asks for data is.
    pub shrunk: bool,
}

impl Input {
    /// The buffer is not read from any more.
    pub fn retire(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.shrunk |= buffer.memory.is_damaged() && !buffer.told;
            if buffer.out > 0 {
                self.old.push(buffer);
            } else {
                self.reclaim(buffer);
            }
        }
    }

    fn reclaim(&mut self, buffer: Buffer) {
        // A mapping is of one place, and what another lent is not ours to write.
        let memory = buffer.memory.thaw().filter(Memory::is_ours);
        if memory.is_some() {
            self.spare = memory;
        }
    }

    pub fn spare(&mut self) -> Option<Memory> {
        self.spare.take()
    }

    /// A region of a buffer of its own.
    pub fn lend(&mut self, buffer: Buffer) {
        self.old.push(buffer);
    }

    /// A region is freed: is its memory damaged? None when it is of no buffer here.
    pub fn free(&mut self, region: *mut u8, current: &mut Current) -> Option<bool> {
        if let Some(buffer) = self.buffer.as_mut().filter(|buffer| buffer.has(region)) {
            if current.has(region, super::current::Mode::Read) {
                (current.out() > 0).then(|| current.free_one())?;
            } else {
                buffer.out = buffer.out.checked_sub(1)?;
            }
            buffer.told |= buffer.memory.is_damaged();
            return Some(buffer.told);
        }
        let place = self.old.iter().rposition(|buffer| buffer.has(region))?;
        self.old[place].out -= 1;
        let damaged = self.old[place].memory.is_damaged();
        if self.old[place].out == 0 {
            // In order: of two that lie in one memory the later one has what lies in both.
            let buffer = self.old.remove(place);
            self.reclaim(buffer);
        }
        Some(damaged)
    }
}
