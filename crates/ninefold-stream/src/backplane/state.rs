//! What a stream is in the middle of: the longer ways of each call, for which the stream is locked.

use std::io::SeekFrom;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ahead::{Fetched, Plan, Slot};
use super::current::{Current, Mode};
use super::file::File;
use super::input::{Buffer, Input};
use super::ledger::Ledger;
use super::output::Output;
use crate::calibration::Calibration;
use crate::error::{Error, Result};
use crate::memory::{Frozen, Memory, PAGE};
use crate::module::below::Below;
use crate::module::overlay::{self, Overlay, Overlays};
use crate::module::{Chunk, Closed, Fill, Pushed, StreamModule};
use crate::region::Lent;

#[repr(C)]
pub struct State {
    /// The first two are where C's header has them, see `raw::Front`.
    pub current: Current,
    /// Regions that are freed by their addresses.
    pub ledger: Ledger,
    /// The file's count of changes, for the buffers that are read.
    pub changes: &'static AtomicU64,
    input: Input,
    output: Output,
    pub mode: Mode,
    /// Where the next region begins, while there is no current buffer.
    position: u64,
    pub module: Box<dyn StreamModule>,
    pub read: bool,
    pub write: bool,
    /// Each change is told to others, or to the reading half, or looked through for the end of a line.
    loud: bool,
    /// See [`StreamModule::is_by_line`].
    pub is_by_line: bool,
    pub calibration: Calibration,
    /// Read and not in a buffer: the tail of one, until the next is filled. It begins at `position`.
    pending: Vec<u8>,
    /// That is the end of the memory that the module lent last.
    is_of_module: bool,
    /// Met behind `pending` by a module that was popped, and told to who asks for more.
    due: Option<Error>,
    /// What the stream was before each push, the latest last.
    before: Vec<Before>,
    /// What somebody reads, or has read, with the stream unlocked.
    pub slot: Arc<Slot>,
    /// Where that begins, if it continues the current buffer.
    ahead: Option<u64>,
    /// How often a thread has locked the stream by a call: it is the one that has the lock.
    pub calls: usize,
    /// Where bytes were put back that the file may not have there.
    unread: Option<Range<u64>>,
    /// Who has regions may write to those that are read: no bytes are lent twice that are not protected.
    pub lends_once: bool,
}

/// Bytes that are kept behind one that was put back.
const UNREAD: usize = 64 << 10;

/// What a pushed module hides.
struct Before {
    write: bool,
    mode: Mode,
}

impl State {
    pub fn new(module: Box<dyn StreamModule>, (read, write): (bool, bool), calibration: Calibration) -> State {
        let is_by_line = module.is_by_line();
        State {
            current: Current::NONE,
            changes: Current::NONE.changes,
            input: Input::default(),
            output: Output::default(),
            mode: if write { Mode::Write } else { Mode::Read },
            position: 0,
            module,
            read,
            write,
            loud: write && (read || is_by_line),
            is_by_line,
            calibration,
            pending: Vec::new(),
            is_of_module: false,
            due: None,
            before: Vec::new(),
            slot: Arc::default(),
            ahead: None,
            ledger: Ledger::default(),
            calls: 0,
            unread: None,
            lends_once: false,
        }
    }

    /// The place of a stream of which nothing was asked.
    pub fn begin_at(&mut self, at: u64) {
        self.position = at;
    }

    pub fn position(&self) -> u64 {
        if self.current.live { self.current.position() } else { self.position }
    }

    /// The same as programs are told it.
    pub fn place(&self) -> u64 {
        let at = self.position();
        self.module.place(at).unwrap_or(at)
    }

    /// There is no current buffer any more.
    fn park(&mut self) {
        if !self.current.live {
            return;
        }
        self.position = self.current.position();
        self.sync();
        if self.current.mode == Mode::Read
            && let Some(buffer) = &mut self.input.buffer
        {
            buffer.out = self.current.out();
            if buffer.memory.is_lent() {
                // What no region has may be in the next buffer too, at the same addresses.
                buffer.length = self.current.used();
            }
        }
        self.current = Current::NONE;
    }

    /// What short sections did to the last extent.
    fn sync(&mut self) {
        let current = &self.current;
        if current.live
            && current.mode == Mode::Write
            && let Some(extent) = self.output.back()
        {
            let place = extent.end - extent.length();
            extent.end = place + current.used();
            extent.out = current.out();
            extent.first = place + (current.first.addr() - current.base.addr());
            // A short free knows nothing of these: what is before the first region that is out is free, and perhaps written long ago.
            extent.forget_settled();
        }
    }

    fn is_writing(&self) -> bool {
        self.current.live && self.current.mode == Mode::Write
    }

    pub fn drain(&mut self) -> Result<()> {
        self.sync();
        let current = self.is_writing();
        self.output.drain(&mut *self.module, current)
    }

    /// `drain` on behalf of another stream: what cannot be written is shown to it all the same, and its error is told here later.
    pub fn settle(&mut self) -> Overlay {
        if !self.write {
            return Vec::new();
        }
        let is_written = self.drain().is_ok() && !self.output.is_behind();
        self.module.settle();
        if is_written || self.module.appends() || !self.module.is_seekable() {
            return Vec::new();
        }
        self.output.unwritten()
    }

    /// From now on others must know of each change.
    pub fn be_loud(&mut self) {
        self.loud = true;
        self.current.loud = true;
        let _ = self.drain(); // kept, and tried again by who asks for it
    }

    pub fn set_mode(&mut self, mode: Mode) -> Result<()> {
        match mode {
            Mode::Read if !self.read => return Err(Error::NotReadable),
            Mode::Write if !self.write => return Err(Error::NotWritable),
            _ => {}
        }
        if mode != self.mode {
            // A change of mode keeps the place, not the buffer; what has no place to be read from again is kept apart.
            if mode == Mode::Write && !self.module.is_seekable() && self.current.live {
                let data = self.data().to_vec();
                self.pending.extend_from_slice(&data);
                self.is_of_module = false;
            }
            self.park();
            if mode == Mode::Write {
                self.input.retire();
                if self.module.is_seekable() {
                    self.unread = None;
                }
            }
            self.mode = mode;
        }
        Ok(())
    }

    /// Bytes of the stream as this process sees it.
    pub fn length(&mut self, overlay: &Overlay) -> Result<u64> {
        let own = self.settle();
        let length = self.module.length()?;
        let ends = own.iter().chain(overlay).map(|(at, bytes)| at + bytes.len() as u64);
        Ok(ends.fold(length, u64::max))
    }

    /// The place of the next region.
    pub fn seek(&mut self, to: u64) -> Result<()> {
        if !self.module.is_seekable() {
            return Err(Error::NotSeekable);
        }
        if to > i64::MAX as u64 {
            return Err(Error::BadOffset);
        }
        if self.unread.take().is_some() {
            // Who moves gets what the file has.
            self.park();
            self.input_done();
            self.position = to;
            return Ok(());
        }
        if to == self.position() {
            return Ok(());
        }
        let from = if self.may_be_spoiled() { self.position() } else { 0 };
        let current = &mut self.current;
        if current.live && current.mode == Mode::Read && current.is_fresh() && to >= current.offset.max(from) {
            let all = current.used() + current.left;
            if let Some(place) = usize::try_from(to - current.offset).ok().filter(|&place| place <= all) {
                current.at = current.base.wrapping_add(place);
                current.left = all - place;
                return Ok(());
            }
        }
        self.park();
        self.input_done();
        self.position = to;
        Ok(())
    }

    /// The next region of what has no offsets, but places that it told.
    pub fn go_to(&mut self, to: SeekFrom) -> Result<()> {
        let at = self.position();
        let place = match to {
            _ if self.module.place(at).is_none() => return Err(Error::NotSeekable),
            SeekFrom::Start(place) => place,
            SeekFrom::Current(0) => return Ok(()),
            _ => return Err(Error::BadOffset),
        };
        self.module.go_to(place, at)?;
        self.park();
        self.input.retire();
        self.pending.clear();
        self.ahead = None;
        self.unread = None;
        self.due = None;
        Ok(())
    }

    /// May somebody have written to what he had of the current buffer? What has no places cannot be read again, and is as it is.
    fn may_be_spoiled(&self) -> bool {
        let is_protected = self.input.buffer.as_ref().is_some_and(|buffer| buffer.memory.is_mapped());
        self.lends_once && !is_protected && self.module.is_seekable()
    }

    /// What was read is of another place.
    fn input_done(&mut self) {
        self.module.forget();
        self.pending.clear();
        self.ahead = None;
        if !self.current.live {
            self.input.retire();
        }
    }

    /// Once, that zeros were looked at in the place of data and nobody was told.
    pub fn tell_shrunk(&mut self) -> Result<()> {
        if std::mem::take(&mut self.input.shrunk) { Err(Error::Shrunk) } else { Ok(()) }
    }

    /// Who frees such a region does not listen: the next who asks for data is told.
    pub fn owe_shrunk(&mut self) {
        self.input.shrunk = true;
    }

    /// Makes data current, from the position on: `least` bytes, or what there is.
    pub fn refill(&mut self, least: usize, file: &File, overlay: &Overlay) -> Result<()> {
        let own = self.settle();
        let seekable = self.module.is_seekable();
        let fresh = self.current.live && self.current.mode == Mode::Read && self.current.is_fresh();
        if fresh || (!seekable && self.current.live && self.current.mode == Mode::Read) {
            let buffer = self.input.buffer.as_ref();
            // What is mapped is mapped again: it may be long, and gone by now.
            let keeps = |buffer: &&Buffer| buffer.memory.is_mapped() || (self.module.keeps() && !self.has_unread());
            if let Some(buffer) = buffer.filter(|buffer| self.current.left > 0 && !keeps(buffer)) {
                let begin = buffer.start + self.current.used();
                self.pending.clear();
                self.pending.extend_from_slice(buffer.memory.bytes(begin..begin + self.current.left));
                self.is_of_module = buffer.memory.is_lent();
            }
        } else if seekable {
            // What the file has is read again; what was put back is read next whatever the file has.
            let back = self.put_back().to_vec();
            self.pending.clear();
            self.pending.extend_from_slice(&back);
            self.is_of_module = false;
        }
        let at = self.position();
        let from = self.unread.as_ref().map_or(at, |back| back.end.max(at));
        self.park();
        self.input.retire();
        self.tell_shrunk()?;
        let least = least.max(1);
        if let Some(e) = self.due
            && least > self.pending.len()
        {
            if self.pending.is_empty() {
                self.due = None;
            }
            return Err(e);
        }
        let seen = file.changes().load(Ordering::Relaxed);
        // A byte that was put back is in the tail alone, which who maps passes over.
        let quiet = !self.write && !file.is_shared() && !self.has_unread();
        let chunk = match self.fetched(least, quiet.then_some(seen)) {
            Some(chunk) => chunk,
            None => {
                let memory = self.input.spare();
                let overlays = Overlays { own: &own, others: overlay, from };
                let (tail, of_module) = (&*self.pending, self.is_of_module);
                let fill = Fill { at, least, tail, of_module, memory, quiet, changes: seen, overlays };
                overlay::fill(&mut *self.module, fill)?
            }
        };
        self.pending.clear();
        let used = usize::try_from(at - chunk.offset).map_err(|_| Error::BadOffset)?;
        self.be_current(chunk.memory, (chunk.start, chunk.length), used, chunk.offset, seen);
        // What came is at hand, for who needs no more than that.
        self.module.fell_short().filter(|_| self.current.left < least).map_or(Ok(()), Err)
    }

    /// Data becomes the current buffer: `length` bytes from `start` on, of which `used` are behind the position. `offset` is the first one's.
    fn be_current(&mut self, memory: Frozen, (start, length): (usize, usize), used: usize, offset: u64, seen: u64) {
        let base = memory.base().wrapping_add(start);
        self.current = Current {
            live: true,
            mode: Mode::Read,
            base,
            at: base.wrapping_add(used),
            left: length.saturating_sub(used),
            all: length.max(used),
            first: base,
            offset,
            seen,
            changes: self.changes,
            loud: self.loud,
            ..Current::NONE
        };
        self.input.buffer = Some(Buffer { memory, start, length, out: 0, told: false });
    }

    /// Is a byte put back, and not taken?
    pub fn has_unread(&self) -> bool {
        self.unread.as_ref().is_some_and(|back| back.end > self.position())
    }

    /// What was put back and is at hand.
    fn put_back(&self) -> &[u8] {
        let data = self.untaken();
        let end = self.unread.as_ref().map_or(0, |back| back.end.saturating_sub(self.position()));
        &data[..usize::try_from(end).unwrap_or(usize::MAX).min(data.len())]
    }

    /// Puts bytes before the next one: what is read next. The offset goes back by so many.
    pub fn unread(&mut self, bytes: &[u8]) -> Result<()> {
        self.set_mode(Mode::Read)?;
        let count = bytes.len();
        let to = self.position().checked_sub(count as u64).ok_or(Error::BadOffset)?;
        let seekable = self.module.is_seekable();
        let is_good = self.current.is_fresh() || !seekable;
        // With what was put back before and not taken.
        let end = to + count as u64;
        let back = to..self.unread.as_ref().map_or(end, |back| back.end.max(end));
        let rest = match &self.input.buffer {
            Some(buffer) if self.current.live && is_good => {
                let place = buffer.start + self.current.used();
                // The byte would be in regions of two buffers, or whoever writes the file could change it, or who has it in a region.
                let is_in_region = self.ledger.covers(self.current.at.addr().wrapping_sub(1));
                let is_others = buffer.memory.is_lent() || buffer.memory.is_mapped() || is_in_region;
                let is_one = !is_others && count == 1 && self.current.used() > 0;
                if is_one && buffer.memory.bytes(place - 1..place) == bytes {
                    self.current.at = self.current.at.wrapping_sub(1);
                    self.current.left += 1;
                    self.unread = Some(back);
                    return Ok(());
                }
                self.data()
            }
            _ if seekable => self.put_back(),
            _ => self.untaken(),
        };
        // What is left of a file is read again.
        let rest = if seekable { &rest[..rest.len().min(UNREAD)] } else { rest };
        let length = rest.len() + count;
        let mut memory = Memory::pooled(length)?;
        if let Some(all) = memory.as_mut_slice() {
            all[..count].copy_from_slice(bytes);
            all[count..length].copy_from_slice(rest);
        }
        self.park();
        self.input.retire();
        self.pending.clear();
        self.unread = Some(back);
        let seen = self.changes.load(Ordering::Relaxed);
        self.be_current(Frozen::new(memory), (0, length), 0, to, seen);
        Ok(())
    }

    /// Is half of the data that was read taken?
    pub fn is_past_half(&self) -> bool {
        let length = self.input.buffer.as_ref().map_or(0, |buffer| buffer.length);
        self.current.live && self.current.mode == Mode::Read && self.current.left <= length / 2
    }

    /// To read what follows the current buffer; once for a buffer, and not where this process writes the file. The caller has the slot.
    pub fn plan(&mut self, file: &File) -> Option<Plan> {
        if self.ahead.is_some() || self.write || file.is_shared() || !self.is_past_half() {
            return None;
        }
        let seen = file.changes().load(Ordering::Relaxed);
        let offset = self.current.position() + self.current.left as u64;
        let (source, bytes) = self.module.ahead(offset).filter(|_| self.current.seen == seen)?;
        self.ahead = Some(offset);
        // What is left when the next buffer is taken is less than a region, which is probably like those of this one.
        let Current { all, left, lent, .. } = self.current;
        let left = left.min((all - left) / lent.max(1));
        Some(Plan { source, offset, bytes, left, memory: self.input.spare(), seen })
    }

    /// What was read ahead, behind what is pending, if it suffices and is as fresh as a fill; where it does not suffice it is pending. `seen` is the
    /// file's count of changes, if nobody in this process writes it.
    fn fetched(&mut self, least: usize, seen: Option<u64>) -> Option<Chunk> {
        let (at, tail) = (self.position, self.pending.len());
        let offset = self.ahead.take().filter(|&offset| offset == at + tail as u64)?;
        let fetched = self.slot.lock().take();
        let Fetched { mut memory, start, length, .. } =
            fetched.filter(|fetched| fetched.offset == offset && Some(fetched.seen) == seen)?;
        let room = start.checked_sub(tail).filter(|_| tail + length >= least);
        let data = memory.as_mut_slice()?.get_mut(..start + length)?;
        self.module.has_read(offset + length as u64);
        if let Some(begin) = room {
            data[begin..start].copy_from_slice(&self.pending);
            return Some(Chunk { memory: Frozen::new(memory), start: begin, length: tail + length, offset: at });
        }
        // Less is copied than would be read again.
        self.pending.extend_from_slice(&data[start..]);
        if tail + length < least {
            return None;
        }
        let mut longer = Memory::pooled(tail + length).ok()?;
        longer.as_mut_slice()?.get_mut(..tail + length)?.copy_from_slice(&self.pending);
        Some(Chunk { memory: Frozen::new(longer), start: 0, length: tail + length, offset: at })
    }

    /// Is there fresh data?
    pub fn is_ready(&self) -> bool {
        self.current.live
            && self.current.mode == Mode::Read
            && self.current.left > 0
            && (self.current.is_fresh() || !self.module.is_seekable())
    }

    /// Data at hand, `bytes` at most; no region is made.
    pub fn data(&self) -> &[u8] {
        match &self.input.buffer {
            Some(buffer) if self.current.live && self.current.mode == Mode::Read => {
                let begin = buffer.start + self.current.used();
                buffer.memory.bytes(begin..begin + self.current.left)
            }
            _ => &[],
        }
    }

    /// A region of data at hand.
    pub fn take_data(&mut self, bytes: usize) -> (*mut u8, usize) {
        let bytes = bytes.min(self.current.left);
        if bytes > 0 {
            self.current.lend_one();
        }
        let region = self.skip(bytes);
        (region, bytes)
    }

    /// Passes over data at hand.
    pub fn skip(&mut self, bytes: usize) -> *mut u8 {
        let region = self.current.at;
        self.current.at = region.wrapping_add(bytes);
        self.current.left -= bytes;
        region
    }

    /// A copy of data at hand, in memory of its own that begins at a page.
    pub fn take_copy(&mut self, bytes: usize) -> Result<(*mut u8, usize)> {
        let bytes = bytes.min(self.current.left);
        let mut memory = Memory::pooled(bytes)?;
        memory.as_mut_slice().unwrap_or_default()[..bytes].copy_from_slice(&self.data()[..bytes]);
        if let Some(buffer) = self.input.buffer.as_mut().filter(|buffer| buffer.memory.is_damaged()) {
            buffer.told = true;
            return Err(Error::Shrunk);
        }
        self.skip(bytes);
        let memory = Frozen::new(memory);
        let region = memory.base();
        self.input.lend(Buffer { memory, start: 0, length: bytes, out: 1, told: false });
        Ok((region, bytes))
    }

    /// Room for `bytes` at the position.
    pub fn take_room(&mut self, bytes: usize, align: usize) -> Result<*mut u8> {
        if !self.write {
            return Err(Error::NotWritable);
        }
        let end = self.position().checked_add(bytes as u64).filter(|&end| end <= i64::MAX as u64);
        if end.is_none() || bytes > isize::MAX as usize - PAGE {
            return Err(Error::BadOffset);
        }
        let aligned = self.is_writing() && self.current.at.addr().is_multiple_of(align);
        if !aligned || self.current.left < bytes {
            self.park();
            // Before there is more memory, what is in it is written, so that it does not grow while that fails.
            if !self.output.has_room(bytes, align) || self.output.is_full() {
                self.output.drain(&mut *self.module, false)?;
            }
            let (base, left) =
                self.output.begin(self.position, bytes, align, 0, &self.calibration, &mut *self.module)?;
            self.current = Current {
                live: true,
                mode: Mode::Write,
                base,
                at: base,
                left,
                all: left,
                first: base,
                offset: self.position,
                loud: self.loud,
                ..Current::NONE
            };
        }
        if self.current.out() == 0 {
            self.current.first = self.current.at;
        }
        self.current.lend_one();
        Ok(self.skip(bytes))
    }

    pub fn free(&mut self, region: *mut u8, bytes: usize, mode: Mode, file: &File) -> Result<()> {
        match mode {
            Mode::Read => match self.input.free(region, &mut self.current) {
                Some(true) => Err(Error::Shrunk),
                _ => Ok(()),
            },
            Mode::Write => {
                self.sync();
                self.output.free(region, bytes);
                self.after_free(file)
            }
        }
    }

    fn after_free(&mut self, file: &File) -> Result<()> {
        let writing = self.is_writing();
        if writing && let Some(extent) = self.output.back() {
            let place = extent.end - extent.length();
            self.current.set_out(extent.out);
            self.current.first = self.current.base.wrapping_add(extent.first - place);
        }
        if self.loud {
            file.changed();
        }
        // Of several streams that write a file, what is freed later is in it later.
        let is_due = self.output.is_due(writing) || (self.is_by_line && self.output.has_line());
        if file.is_shared() || is_due { self.drain() } else { Ok(()) }
    }

    /// The region that was allocated last becomes `bytes` long where it lies, if it is that one and there is room.
    pub fn resize(&mut self, region: *mut u8, old: usize, bytes: usize, mode: Mode) -> Result<bool> {
        let current = &mut self.current;
        if !current.has(region, mode) || region.wrapping_add(old) != current.at || current.out() == 0 {
            return Err(Error::NotLatest);
        }
        if bytes > old && (bytes - old > current.left || !current.is_fresh()) {
            return Ok(false);
        }
        current.left = current.left + old - bytes;
        current.at = region.wrapping_add(bytes);
        if bytes < old && mode == Mode::Read && self.may_be_spoiled() && !self.has_unread() {
            self.current.left = 0; // what was given back is read again, also by who would lend it once more
            self.module.forget();
        }
        Ok(true)
    }

    /// Takes the region off the ledger; of several at one address the one that was allocated last, if it is among them.
    pub fn take_latest(&mut self, at: *mut u8) -> Result<Lent> {
        let end = if self.current.live { self.current.at } else { std::ptr::null_mut() };
        self.ledger.take_ending(at, end)
    }

    /// Room for a longer region in the place of the latest one, whose bytes stay readable until `free_empty`.
    pub fn move_room(&mut self, region: *mut u8, old: usize, bytes: usize) -> Result<(*mut u8, usize)> {
        let room = self.current.left;
        let begin = self.current.position() - old as u64;
        self.current.at = region;
        self.current.left = 0; // nothing goes there meanwhile
        self.sync();
        self.current.live = false;
        self.position = begin;
        let end = begin.checked_add(bytes as u64).filter(|&end| end <= i64::MAX as u64);
        let begun = match end {
            Some(_) => self.output.begin(begin, bytes, 1, old, &self.calibration, &mut *self.module),
            None => Err(Error::BadOffset),
        };
        match begun {
            Ok((base, left)) => {
                self.current = Current {
                    base,
                    at: base.wrapping_add(bytes),
                    left: left - bytes,
                    all: left,
                    lent: 1,
                    freed: 0,
                    first: base,
                    offset: begin,
                    live: true,
                    ..self.current
                };
                self.sync();
                Ok((base, bytes))
            }
            Err(e) => {
                self.current.live = true;
                self.current.at = region.wrapping_add(old);
                self.current.left = room;
                self.sync();
                Err(e)
            }
        }
    }

    /// A region of no length is freed.
    pub fn free_empty(&mut self, region: *mut u8, mode: Mode, file: &File) -> Result<()> {
        if mode == Mode::Read {
            return self.free(region, 0, mode, file);
        }
        self.sync();
        self.output.free_empty(region);
        self.after_free(file)
    }

    /// Everything that is free is in the file.
    pub fn flush(&mut self) -> Result<()> {
        if !self.write {
            return Ok(());
        }
        self.drain()?;
        if self.output.is_behind() {
            return Err(Error::Outstanding);
        }
        self.module.flush()
    }

    /// Writes all that is free, and tells whether nothing is left in the buffers: no region is out, freed data behind it or not.
    pub fn write_all(&mut self) -> Result<bool> {
        self.park();
        self.output.drain(&mut *self.module, false)?;
        Ok(self.output.extents.is_empty())
    }

    /// Writes past the buffers, if nothing is in them.
    pub fn write_direct(&mut self, data: &[u8], written: &mut usize, file: &File) -> Result<bool> {
        if !self.write_all()? {
            return Ok(false);
        }
        if self.position.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Error::BadOffset);
        }
        let result = self.module.write(self.position, data, written);
        self.position += *written as u64;
        if self.loud {
            file.changed();
        }
        result.map(|()| true)
    }

    /// A module is pushed on the one that there is (§6.1). Regions that are out stay; what was read and not allocated the new module
    /// reads, or it is read again. When it fails nothing is changed.
    pub fn push(&mut self, mut above: Box<dyn Pushed>) -> Result<()> {
        if !self.read {
            return Err(Error::NotReadable);
        }
        // What is above counts bytes, and knows no other places.
        if above.has_thread() && self.module.has_thread() || self.module.place(self.position()).is_some() {
            return Err(Error::NoModule);
        }
        if self.write {
            if self.is_writing() {
                self.park();
            }
            // What was read stays current: a byte that was put back is lost by a push, and not by one that fails.
            self.output.drain(&mut *self.module, false)?;
            if !self.output.extents.is_empty() {
                return Err(Error::Outstanding);
            }
            self.module.flush()?;
        }
        let mut below = Below::new(Box::new(Closed), self.position());
        if !self.module.is_seekable() {
            below.keep(self.untaken())?;
        }
        self.park();
        self.input.retire();
        self.pending.clear();
        self.ahead = None;
        self.unread = None;
        below.due = self.due.take();
        std::mem::swap(&mut below.module, &mut self.module);
        self.position = above.put_on(below);
        self.module = above;
        self.before.push(Before { write: self.write, mode: self.mode });
        self.write = false;
        self.mode = Mode::Read;
        Ok(())
    }

    /// The module that was pushed last is taken off again; the stream goes on where the one below says. When it fails nothing is changed.
    pub fn pop(&mut self) -> Result<()> {
        let (at, untaken) = (self.position(), self.untaken().to_vec());
        let below = self.module.as_pushed().ok_or(Error::NoModule)?.take_off(at, &untaken)?;
        self.park();
        self.input.retire();
        self.pending.clear();
        self.ahead = None;
        self.unread = None;
        self.position = below.at;
        if !below.module.is_seekable() {
            self.pending.extend_from_slice(below.data());
            self.is_of_module = false;
        }
        self.due = below.due;
        self.module = below.module;
        if let Some(before) = self.before.pop() {
            self.write = before.write;
            self.mode = before.mode;
        }
        Ok(())
    }

    /// What was read from the position on and nobody allocated.
    fn untaken(&self) -> &[u8] {
        if self.current.live && self.current.mode == Mode::Read { self.data() } else { &self.pending }
    }

    /// A place was read or written past the buffers.
    pub fn moved(&mut self, to: u64) {
        self.park();
        self.input_done();
        self.position = to;
    }
}
