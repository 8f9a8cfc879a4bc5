//! Buffers to be written: which bytes of them are free, and what goes to the module in which order.
//!
//! An [`Extent`] is what regions cover without a gap, in one memory and in the file. Extents are written in the order in which they
//! were begun, and each only as far as no region is out, so that bytes reach the file in the order of allocation (§2).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::calibration::Calibration;
use crate::error::Result;
use crate::memory::Memory;
use crate::module::StreamModule;

pub struct Extent {
    memory: Arc<Memory>,
    /// Places in the memory.
    start: usize,
    pub end: usize,
    /// Written up to here.
    done: usize,
    /// No line ends between that and here.
    looked: usize,
    /// Offset in the file of `start`.
    offset: u64,
    /// Regions that are out.
    pub out: usize,
    /// Where the first region begins that is out, if one is.
    pub first: usize,
    /// Freed behind that one, in no order.
    freed: Vec<(usize, usize)>,
}

impl Extent {
    /// Bytes that regions have, or had.
    pub fn length(&self) -> usize {
        self.end - self.start
    }

    fn base(&self) -> usize {
        self.memory.base().addr()
    }

    /// Up to where all is free.
    fn settled(&self) -> usize {
        if self.out == 0 { self.end } else { self.first }
    }

    fn has(&self, region: *mut u8) -> bool {
        (self.base() + self.start..self.base() + self.end).contains(&region.addr())
    }

    /// A region is freed.
    fn free(&mut self, start: usize, end: usize) {
        self.out -= 1;
        if self.out == 0 {
            self.freed.clear();
            return;
        }
        self.freed.push((start, end));
        while let Some(next) = self.freed.iter().position(|&(start, _)| start == self.first) {
            self.first = self.freed.swap_remove(next).1;
        }
    }

    /// Of what was freed, only that counts by itself which is behind a region that is out.
    pub fn forget_settled(&mut self) {
        let (out, first) = (self.out, self.first);
        self.freed.retain(|&(start, _)| out > 0 && start >= first);
    }

    /// # Safety
    /// No region that is out may cover any of it.
    unsafe fn bytes(&self, start: usize, end: usize) -> &[u8] {
        debug_assert!(start <= end && end <= self.memory.capacity());
        // SAFETY: in the memory, initialized, and nobody writes there: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.memory.base().wrapping_add(start), end - start) }
    }

    /// What is freed and not in the file: places in the memory.
    fn unwritten(&self) -> impl Iterator<Item = (usize, usize)> {
        let settled = (self.done, self.settled());
        let behind = if self.out == 0 { &[][..] } else { &self.freed[..] };
        std::iter::once(settled).chain(behind.iter().copied()).filter(|(start, end)| start < end)
    }
}

#[derive(Default)]
pub struct Output {
    pub extents: VecDeque<Extent>,
    /// Where the next extent goes, if it fits.
    memory: Option<Arc<Memory>>,
    /// Bytes of that memory that extents have.
    used: usize,
    /// Bytes written, to choose how long memory is.
    total: u64,
}

/// Extents that wait to be written together; random writes make short ones.
const WAITING: usize = 1024;

impl Output {
    pub fn back(&mut self) -> Option<&mut Extent> {
        self.extents.back_mut()
    }

    /// Are so many extents waiting that they should be written?
    pub fn is_full(&self) -> bool {
        self.extents.len() >= WAITING
    }

    /// Is there room without more memory? Of which there is none at first, and that is had.
    pub fn has_room(&self, bytes: usize, align: usize) -> bool {
        let Some(back) = self.extents.back() else {
            return true;
        };
        let end = back.end.next_multiple_of(align).checked_add(bytes);
        end.is_some_and(|end| end <= back.memory.capacity())
    }

    /// Begins an extent with room for `bytes`, at an address of that alignment, `gap` bytes behind the last one at least. The answer is
    /// its base, and its room. When it fails nothing is changed.
    pub fn begin(
        &mut self,
        offset: u64,
        bytes: usize,
        align: usize,
        gap: usize,
        calibration: &Calibration,
        module: &mut dyn StreamModule,
    ) -> Result<(*mut u8, usize)> {
        if let Some(memory) = self.lent(bytes, align, gap, module)? {
            let (base, room) = (memory.base(), memory.capacity());
            self.push(Arc::new(memory), 0, offset);
            self.used = 0; // nothing is in the memory here: else the module would not have been asked
            return Ok((base, room));
        }
        if self.extents.is_empty() {
            self.used = 0;
        } else if let Some(back) = self.extents.back()
            && self.memory.as_ref().is_some_and(|memory| Arc::ptr_eq(memory, &back.memory))
        {
            self.used = back.end + gap;
        }
        let wanted = match self.total {
            n if n < 4 * calibration.first as u64 => calibration.first,
            n if n < 4 * calibration.write as u64 => calibration.first.max(calibration.write / 4),
            _ => calibration.write,
        };
        let fits = |memory: &Arc<Memory>, used: usize| {
            let start = used.next_multiple_of(align);
            start.checked_add(bytes).is_some_and(|end| end <= memory.capacity())
        };
        let grows = |memory: &Arc<Memory>, used: usize| used == 0 && memory.capacity() < wanted;
        let memory = match &self.memory {
            Some(memory) if fits(memory, self.used) && !grows(memory, self.used) => memory.clone(),
            _ => {
                let memory = Arc::new(Memory::zeroed(bytes.max(wanted))?);
                self.used = 0;
                memory
            }
        };
        let start = self.used.next_multiple_of(align);
        let (base, room) = (memory.base().wrapping_add(start), memory.capacity() - start);
        self.memory = Some(memory.clone());
        self.push(memory, start, offset);
        Ok((base, room))
    }

    fn push(&mut self, memory: Arc<Memory>, start: usize, offset: u64) {
        let extent = Extent {
            memory,
            start,
            end: start,
            done: start,
            looked: start,
            offset,
            out: 0,
            first: start,
            freed: Vec::new(),
        };
        self.extents.push_back(extent);
    }

    /// The module's own memory, if it has some: behind nothing, or behind more of the same without a gap.
    fn lent(
        &mut self,
        bytes: usize,
        align: usize,
        gap: usize,
        module: &mut dyn StreamModule,
    ) -> Result<Option<Memory>> {
        // One that is in the module's memory has only such before it.
        let ours = self.extents.back().is_some_and(|back| !back.memory.is_lent());
        if ours || gap > 0 {
            return Ok(None);
        }
        let unwritten = self.extents.iter().map(|extent| extent.end - extent.done).sum();
        let memory = module.room(unwritten, bytes)?;
        Ok(memory.filter(|memory| memory.base().addr().is_multiple_of(align)))
    }

    /// A region is freed; false when it is none of these.
    pub fn free(&mut self, region: *mut u8, bytes: usize) -> bool {
        let Some(extent) = self.extents.iter_mut().rev().find(|extent| extent.has(region)) else {
            return false;
        };
        let start = region.addr() - extent.base();
        extent.free(start, start + bytes);
        true
    }

    /// A region that was made empty is freed: it ended its extent.
    pub fn free_empty(&mut self, region: *mut u8) {
        // It had bytes before, so it does not begin behind its memory: there another's may.
        let ended = |extent: &&mut Extent| {
            let is_full = extent.end == extent.memory.capacity();
            extent.out > 0 && !is_full && region.addr() == extent.base() + extent.end
        };
        if let Some(extent) = self.extents.iter_mut().rev().find(ended) {
            extent.free(extent.end, extent.end);
        }
    }

    /// Is the oldest extent ready to be written whole? The youngest counts only when it is `current` no more.
    pub fn is_due(&self, current: bool) -> bool {
        self.extents.front().is_some_and(|front| front.out == 0) && (self.extents.len() > 1 || !current)
    }

    /// Is the end of a line among what is free and can be written?
    pub fn has_line(&mut self) -> bool {
        for extent in &mut self.extents {
            let (begin, settled) = (extent.done.max(extent.looked), extent.settled());
            if begin < settled {
                // SAFETY: up to `settled` every region was freed.
                let found = memchr::memchr(b'\n', unsafe { extent.bytes(begin, settled) });
                extent.looked = found.map_or(settled, |at| begin + at); // there until it is written
                if found.is_some() {
                    return true;
                }
            }
            if extent.out > 0 {
                break;
            }
        }
        false
    }

    /// Writes what is free, in order, up to the first region that is out. The last extent stays while it is `current`. After an
    /// error what was not written is kept.
    pub fn drain(&mut self, module: &mut dyn StreamModule, current: bool) -> Result<()> {
        while let Some(extent) = self.extents.front_mut() {
            let settled = extent.settled();
            if extent.done < settled {
                let at = extent.offset + (extent.done - extent.start) as u64;
                let mut written = 0;
                // SAFETY: up to `settled` every region was freed.
                let result = module.write(at, unsafe { extent.bytes(extent.done, settled) }, &mut written);
                extent.done += written;
                self.total += written as u64;
                result?;
            }
            if extent.out > 0 || (current && self.extents.len() == 1) {
                break;
            }
            self.extents.pop_front();
        }
        Ok(())
    }

    /// Is anything freed that is not written?
    pub fn is_behind(&self) -> bool {
        self.extents.iter().any(|extent| extent.unwritten().next().is_some())
    }

    /// Copies of what is freed and not in the file: offset and bytes, in the order of allocation.
    pub fn unwritten(&self) -> Vec<(u64, Vec<u8>)> {
        let copy = |extent: &Extent, (start, end): (usize, usize)| {
            // SAFETY: freed, so no region covers it.
            let bytes = unsafe { extent.bytes(start, end) }.to_vec();
            (extent.offset + (start - extent.start) as u64, bytes)
        };
        self.extents.iter().flat_map(|extent| extent.unwritten().map(move |range| copy(extent, range))).collect()
    }
}
