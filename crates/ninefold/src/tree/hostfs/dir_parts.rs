//! Entries of a directory that were read and not told yet.
//!
//! [`Parts`] are whole entries as Rreaddir has them, cut to the length of a reply when they are read: telling one is handing it
//! over. [`Parts::grow`] gives out what the next getdents(2) puts its entries into, and [`Parts::grown`] takes it back. What is
//! lost between the two is no entry left out: the kernel counts as gone astray until then, and must go back.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use ninefold_proto::stat::{DirEntry, dir_entries};
use ninefold_proto::{Errno, Error};

use crate::server::Listed;

/// Bytes that a getdents(2) may fill: as many as a reply to Linux's client of old has (64 KiB).
pub(super) const CHUNK: usize = 64 << 10;

/// Bytes of a part at least, whatever its reader asks for: a part of one entry would take several times the entry's memory.
const PART_LEAST: usize = 8 << 10;

/// Bytes of a part at most. A larger reply has as many parts as are ready.
const PART_MOST: usize = 1 << 20;

/// Bytes that are read ahead of a directory's reader, beyond what the last getdents(2) brought: 7,500 entries with names of 10
/// bytes, which take a local file system about a millisecond. It may be more for a larger part, of which one is read.
const AHEAD: usize = 256 << 10;

/// The same in parts: who asks for little gets little read.
const AHEAD_PARTS: usize = 4;

/// Whole entries, one behind the other.
#[derive(Debug)]
struct Part {
    bytes: Bytes,
    /// The cookie behind the last one.
    end: u64,
    /// Bytes of memory that `bytes` holds.
    size: usize,
}

impl Part {
    /// Takes the first entries off, as many as `max` bytes hold; `None` when not one fits.
    fn split(&mut self, max: usize) -> Option<Part> {
        let (mut cut, mut end) = (0, None);
        for entry in dir_entries(&self.bytes).flatten() {
            if cut + entry.encoded_len() > max {
                break;
            }
            cut += entry.encoded_len();
            end = Some(entry.offset);
        }
        Some(Part { end: end?, bytes: self.bytes.split_to(cut), size: self.size })
    }

    /// A reply that nobody fetches may not hold much more memory than the bytes it counts as.
    fn into_reply(self) -> Bytes {
        if self.bytes.len() < self.size / 4 { Bytes::copy_from_slice(&self.bytes) } else { self.bytes }
    }
}

/// What a getdents(2) left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    /// Perhaps more entries.
    More,
    /// The end of the directory.
    End,
    /// An entry that must be looked up, which [`Growing::may_look_up`] forbade.
    LookUp,
}

/// Entries being read: the part that is not full yet, and those that became full meanwhile.
#[derive(Default, Debug)]
pub(super) struct Growing {
    full: Vec<Part>,
    part: Vec<u8>,
    /// The cookie behind the last entry in `part`.
    end: u64,
    /// Bytes of a full part.
    max: usize,
    /// Bytes of the reply that somebody waits for; `None` while it is read ahead.
    wanted: Option<usize>,
}

impl Growing {
    /// Room for what a getdents(2) brings.
    pub(super) fn reserve(&mut self) {
        self.part.reserve(CHUNK.min(self.max.saturating_sub(self.part.len())));
    }

    /// Whether the entry `name`, which is next, may be looked up. That may wait without end, for a mount whose machine is gone:
    /// so only if it belongs to a reply that somebody waits for, and does not keep entries from him that fill it already.
    pub(super) fn may_look_up(&self, name: &[u8]) -> bool {
        let len = DirEntry { qid: Default::default(), offset: 0, kind: 0, name }.encoded_len();
        let fits = |max: usize| self.part.is_empty() || self.part.len() + len <= max;
        self.full.is_empty() && self.wanted.is_some_and(fits)
    }

    pub(super) fn push(&mut self, entry: &DirEntry<'_>) {
        if self.part.len() + entry.encoded_len() > self.max && !self.part.is_empty() {
            let room = self.part.len().min(CHUNK);
            self.close();
            self.part.reserve(room);
        }
        entry.encode(&mut self.part);
        self.end = entry.offset;
    }

    /// Makes a full part of the last one.
    fn close(&mut self) {
        let mut bytes = std::mem::take(&mut self.part);
        if bytes.is_empty() {
            return;
        }
        if bytes.capacity() / 2 > bytes.len() {
            bytes.shrink_to_fit();
        }
        let size = bytes.capacity();
        self.full.push(Part { bytes: bytes.into(), end: self.end, size });
    }
}

/// Entries read and not told, and where the directory stands.
#[derive(Default, Debug)]
pub(super) struct Parts {
    full: VecDeque<Part>,
    growing: Growing,
    /// Why nothing follows behind them: the end, or an error. Told once; then the kernel is asked again.
    stop: Option<Result<(), Error>>,
    /// The cookie that the first entry not told follows.
    at: u64,
    /// The kernel went here, and nothing was read since.
    fresh: bool,
    /// The kernel stands elsewhere than behind the last entry here.
    astray: bool,
    /// The stop was told: what follows it is for whoever asks behind it.
    over: bool,
}

impl Parts {
    /// Of a directory that was just opened.
    pub(super) fn new() -> Parts {
        Parts { astray: true, ..Parts::default() }
    }

    /// Whether the kernel must go to `cookie` first. To 0 always, for what came in meanwhile: also since the open(2), where
    /// some file systems (btrfs, tmpfs of Linux 6.6 to 6.13) draw the line before which they list.
    pub(super) fn is_elsewhere(&self, cookie: u64) -> bool {
        self.at != cookie || (self.astray && self.len() == 0) || (cookie == 0 && !self.fresh)
    }

    /// The kernel went to `cookie`.
    pub(super) fn went(&mut self, cookie: u64) {
        let growing = Growing { max: self.growing.max, ..Growing::default() };
        *self = Parts { at: cookie, fresh: true, growing, ..Parts::default() };
    }

    /// Keeps nothing: the kernel must go back to what was told last.
    pub(super) fn forget(&mut self) {
        self.went(self.at);
        self.astray = true;
    }

    /// Where what is read next belongs; `wanted` are the bytes of the reply that somebody waits for.
    pub(super) fn grow(&mut self, wanted: Option<usize>) -> Growing {
        self.fresh = false;
        self.over = false;
        self.astray = true;
        let max = self.growing.max;
        let growing = std::mem::replace(&mut self.growing, Growing { max, ..Growing::default() });
        Growing { wanted, ..growing }
    }

    /// Takes what was read, and what is behind it.
    pub(super) fn grown(&mut self, mut growing: Growing, behind: Result<Behind, Error>) {
        self.astray = behind == Ok(Behind::LookUp);
        if behind != Ok(Behind::More) || growing.part.is_empty() {
            growing.close();
        }
        self.full.extend(std::mem::take(&mut growing.full));
        growing.max = self.growing.max;
        self.growing = growing;
        self.stop = match behind {
            Ok(Behind::More | Behind::LookUp) => None,
            Ok(Behind::End) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
    }

    /// Bytes of replies to come.
    pub(super) fn set_max(&mut self, max: usize) {
        self.growing.max = max.clamp(PART_LEAST, PART_MOST);
    }

    /// Makes a full part of the last one.
    fn close(&mut self) {
        self.growing.close();
        self.full.extend(std::mem::take(&mut self.growing.full));
    }

    /// The next reply of at most `max` bytes; `None` when there is more to read first. EINVAL when not one entry fits.
    pub(super) fn take(&mut self, max: usize) -> Option<Result<Listed, Error>> {
        if self.full.is_empty() && self.growing.part.len() >= max.min(PART_MOST) {
            self.close();
        }
        if self.full.is_empty() {
            let stop = self.stop.take()?;
            self.over = true;
            return Some(stop.map(|()| Listed { entries: Bytes::new(), end: true }));
        }
        let Some(first) = self.cut(max) else { return Some(Err(Errno::EINVAL.into())) };
        let Some(mut next) = self.cut(max - first.bytes.len()) else {
            return Some(Ok(self.listed(first.into_reply())));
        };
        // Parts that were cut for other replies.
        let mut reply = Vec::with_capacity(max.min(first.bytes.len() + next.bytes.len() + self.len()));
        reply.extend_from_slice(&first.bytes);
        loop {
            reply.extend_from_slice(&next.bytes);
            match self.cut(max - reply.len()) {
                Some(part) => next = part,
                None => return Some(Ok(self.listed(reply.into()))),
            }
        }
    }

    /// A reply of entries that were taken, with what is known of what follows them.
    fn listed(&self, entries: Bytes) -> Listed {
        Listed { entries, end: self.len() == 0 && matches!(self.stop, Some(Ok(()))) }
    }

    /// Takes the next entries of one part, as many as `max` bytes hold; `None` when not one fits.
    fn cut(&mut self, max: usize) -> Option<Part> {
        let front = self.full.front_mut()?;
        let part = if front.bytes.len() <= max { self.full.pop_front() } else { front.split(max) }?;
        self.at = part.end;
        Some(part)
    }

    /// The next entry's name and the cookie behind it; `None` when there is more to read first, or nothing.
    pub(super) fn peek(&mut self) -> Option<(Bytes, u64)> {
        if self.full.is_empty() {
            self.close();
        }
        let bytes = &self.full.front()?.bytes;
        let entry = dir_entries(bytes).next()?.ok()?;
        Some((bytes.slice_ref(entry.name), entry.offset))
    }

    /// Goes behind the entry that [`Parts::peek`] told.
    pub(super) fn advance(&mut self) {
        let Some(part) = self.full.front_mut() else { return };
        let first = dir_entries(&part.bytes).next().and_then(Result::ok).map(|e| (e.encoded_len(), e.offset));
        if let Some((len, offset)) = first {
            part.bytes.advance(len);
            self.at = offset;
        }
        if part.bytes.is_empty() {
            self.full.pop_front();
        }
    }

    /// What was found behind the last entry, if something other than more entries; it is not told again.
    pub(super) fn take_stop(&mut self) -> Option<Result<(), Error>> {
        self.stop.take()
    }

    /// Whether more entries can be read behind these without going anywhere.
    pub(super) fn goes_on(&self) -> bool {
        self.stop.is_none() && !self.over && !self.astray
    }

    /// Whether less is ahead of the reader than should be.
    pub(super) fn is_short(&self) -> bool {
        self.full.is_empty() || self.len() < self.goal()
    }

    /// Whether it is time to read on, before the last part that is ready has left.
    pub(super) fn is_low(&self) -> bool {
        self.full.is_empty() || (self.full.len() == 1 && self.full[0].bytes.len() < self.goal() / 2)
    }

    /// Bytes that should be ahead of the reader.
    fn goal(&self) -> usize {
        AHEAD.min(self.growing.max.saturating_mul(AHEAD_PARTS))
    }

    #[cfg(test)]
    pub(super) fn is_exhausted(&self) -> bool {
        self.full.is_empty()
    }

    /// Bytes of entries.
    pub(super) fn len(&self) -> usize {
        self.full.iter().map(|part| part.bytes.len()).sum::<usize>() + self.growing.part.len()
    }

    /// Bytes of memory.
    pub(super) fn held(&self) -> usize {
        let full = self.full.iter().map(|part| part.size + size_of::<Part>()).sum::<usize>();
        full + self.growing.part.capacity()
    }
}
