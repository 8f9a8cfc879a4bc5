//! Replies that are ready: heads in one buffer, bulk data as chunks of their own, in the order to send.
//!
//! The driver takes [`Outbox::chunks`] into one gathered write and tells [`Outbox::advance`] how many
//! bytes went. Data need not be in memory: see [`Bulk`].

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::iter;

use crate::dialect::Version;
use crate::message::R;
use crate::types::Tag;
use crate::wire::{HEADER, Writer};

/// Capacity in bytes that an empty outbox may keep, so that an idle connection stays small: what is more is the driver's to take ([`Outbox::spare`]).
const KEEP: usize = 512;

/// Capacity in bytes of what is worth a place of its own for the next outbox: some hundred small replies.
const SPARE: usize = 64 * 1024;

/// Bulk data of a reply: in memory, or where only the driver can send them from, a pipe for example.
pub trait Bulk {
    /// Bytes of it. Never changes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that lie together from `from` on, which is less than the length: at least one.
    fn chunk(&self, from: usize) -> Chunk<'_, Self>;
}

impl Bulk for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn chunk(&self, from: usize) -> Chunk<'_, Self> {
        Chunk::Memory(&self[from..])
    }
}

/// Bytes to send that lie together.
#[derive(Debug)]
pub enum Chunk<'a, P: ?Sized> {
    Memory(&'a [u8]),
    /// So many bytes that are not in memory. Those that went before are gone from there.
    Outside(&'a P, usize),
}

impl<'a, P> Chunk<'a, P> {
    /// How many bytes.
    pub fn size(&self) -> usize {
        match self {
            Chunk::Memory(bytes) => bytes.len(),
            Chunk::Outside(_, len) => *len,
        }
    }

    /// The bytes, where they are in memory.
    pub fn in_memory(&self) -> Option<&'a [u8]> {
        match self {
            Chunk::Memory(bytes) => Some(bytes),
            Chunk::Outside(..) => None,
        }
    }
}

#[derive(Debug)]
enum Part<P> {
    /// So many bytes of `heads`.
    Head(usize),
    /// Bulk data, from this offset on.
    Bulk(P, usize),
}

/// Bytes to send, gathered.
#[derive(Debug)]
pub struct Outbox<P> {
    heads: Vec<u8>,
    /// Bytes of `heads` that were sent.
    sent: usize,
    parts: VecDeque<Part<P>>,
    len: usize,
}

impl<P> Default for Outbox<P> {
    fn default() -> Self {
        Outbox { heads: Vec::new(), sent: 0, parts: VecDeque::new(), len: 0 }
    }
}

impl<P: Bulk> Outbox<P> {
    /// Bytes not yet sent.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether everything was sent.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a whole reply, whose data (if any) are copied: for the small ones.
    pub(super) fn push(&mut self, tag: Tag, reply: &R<'_>, version: impl Into<Version>) {
        let start = self.heads.len();
        reply.encode(tag, version, &mut self.heads);
        self.head_added(start);
    }

    /// Appends Rread, Rreaddir or Rreaddirplus, by its number, whose data are `bulk`: a count and so many bytes, and behind the
    /// `flags` where it has any.
    pub(super) fn push_bulk(&mut self, number: u8, tag: Tag, flags: Option<u32>, bulk: P) {
        let (start, len) = (self.heads.len(), bulk.len());
        let mut head = Writer::new(&mut self.heads);
        head.u32((HEADER + flags.map_or(0, |_| 4) + 4 + len) as u32);
        head.u8(number);
        head.u16(tag.0);
        if let Some(flags) = flags {
            head.u32(flags);
        }
        head.u32(len as u32);
        self.head_added(start);
        if len > 0 {
            self.len += len;
            self.parts.push_back(Part::Bulk(bulk, 0));
        }
    }

    /// Takes back the reply that starts at `mark`, which was too long to send.
    pub(super) fn truncate(&mut self, mark: usize) {
        let cut = self.heads.len() - mark;
        self.heads.truncate(mark);
        self.len -= cut;
        if let Some(Part::Head(n)) = self.parts.back_mut() {
            *n -= cut;
            if *n == 0 {
                self.parts.pop_back();
            }
        }
    }

    /// The end of the heads, for [`Outbox::truncate`].
    pub(super) fn mark(&self) -> usize {
        self.heads.len()
    }

    /// Takes the buffer of an outbox that is empty, where it is larger than an idle connection's should be, for [`Outbox::lend`]: by another connection it
    /// is filled again before it has left the caches, and need not grow.
    pub fn spare(&mut self) -> Option<Vec<u8>> {
        let is_spare = self.heads.is_empty() && self.heads.capacity() > KEEP;
        is_spare.then(|| core::mem::take(&mut self.heads))
    }

    /// Where it has no buffer, one of an outbox of before.
    pub fn lend(&mut self, buffer: impl FnOnce() -> Vec<u8>) {
        if self.heads.capacity() == 0 {
            self.heads = buffer();
            self.heads.clear();
        }
    }

    fn head_added(&mut self, start: usize) {
        let n = self.heads.len() - start;
        self.len += n;
        match self.parts.back_mut() {
            Some(Part::Head(last)) => *last += n,
            _ => self.parts.push_back(Part::Head(n)),
        }
    }

    /// What to send, in order.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk<'_, P>> {
        let (mut parts, mut at) = (self.parts.iter(), self.sent);
        // Bulk data whose first bytes were given already.
        let mut begun = None;
        iter::from_fn(move || {
            let (bulk, from) = match begun.take() {
                Some(rest) => rest,
                None => match parts.next()? {
                    Part::Head(n) => {
                        at += n;
                        return Some(Chunk::Memory(&self.heads[at - n..at]));
                    }
                    Part::Bulk(bulk, from) => (bulk, *from),
                },
            };
            let chunk = bulk.chunk(from);
            let next = from + chunk.size();
            begun = (next < bulk.len()).then_some((bulk, next));
            Some(chunk)
        })
    }

    /// `n` bytes were sent.
    pub fn advance(&mut self, mut n: usize) {
        debug_assert!(n <= self.len);
        n = n.min(self.len);
        self.len -= n;
        while n > 0 {
            let Some(part) = self.parts.front_mut() else { break };
            let (left, is_head) = match part {
                Part::Head(left) => (*left, true),
                Part::Bulk(bulk, from) => (bulk.len() - *from, false),
            };
            let take = left.min(n);
            n -= take;
            if is_head {
                self.sent += take;
            }
            match part {
                _ if take == left => drop(self.parts.pop_front()),
                Part::Head(left) => *left -= take,
                Part::Bulk(_, from) => *from += take,
            }
        }
        if self.parts.is_empty() {
            self.sent = 0;
            self.heads.clear();
            if self.heads.capacity() > SPARE {
                self.heads = Vec::new();
            }
            if self.parts.capacity() > 16 {
                self.parts = VecDeque::new();
            }
        } else if self.sent > 64 * 1024 {
            // A slow reader with many small replies: the sent part must not pile up.
            self.heads.drain(..self.sent);
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::message::{Entries, Octal, Payload, PlusEntries};

    #[test]
    fn an_empty_outbox_gives_its_buffer_to_another_and_is_small() {
        let (mut one, mut other) = (Outbox::<Vec<u8>>::default(), Outbox::<Vec<u8>>::default());
        let push = |out: &mut Outbox<Vec<u8>>| (0..200).for_each(|i| out.push(Tag(i), &R::Clunk {}, Dialect::Linux));
        push(&mut one);
        one.advance(1);
        assert_eq!(one.spare(), None, "there is more to send");
        one.advance(one.len());
        let spare = one.spare().expect("it is empty");
        assert_eq!((spare.capacity() >= 1400, one.heads.capacity(), one.spare()), (true, 0, None));
        let capacity = spare.capacity();
        other.lend(|| spare);
        assert_eq!((other.heads.capacity(), other.is_empty()), (capacity, true));
        push(&mut other);
        other.lend(|| unreachable!("it has one"));
        assert_eq!((other.len(), other.chunks().map(|chunk| chunk.size()).sum::<usize>()), (1400, 1400));
    }

    #[test]
    fn heads_and_bulk_leave_in_order_whatever_the_write_sizes() {
        for step in 1..40 {
            let mut out: Outbox<Vec<u8>> = Outbox::default();
            let mut whole = Vec::new();
            for i in 0..10u16 {
                out.push(Tag(i), &R::Clunk {}, Dialect::Linux);
                R::Clunk {}.encode(Tag(i), Dialect::Linux, &mut whole);
                let data = alloc::vec![i as u8; usize::from(i) * 3];
                R::Read { data: Payload(&data) }.encode(Tag(i), Dialect::Linux, &mut whole);
                out.push_bulk(117, Tag(i), None, data.clone());
                R::Readdir { data: Entries(&data) }.encode(Tag(i), Dialect::Linux, &mut whole);
                out.push_bulk(41, Tag(i), None, data.clone());
                R::Readdirplus { flags: Octal(1), data: PlusEntries(&data) }.encode(Tag(i), Version::N1, &mut whole);
                out.push_bulk(173, Tag(i), Some(1), data);
            }
            let mut sent = Vec::new();
            while !out.is_empty() {
                let bytes: Vec<u8> =
                    out.chunks().filter_map(|chunk| chunk.in_memory()).flatten().copied().take(step).collect();
                out.advance(bytes.len());
                sent.extend(bytes);
            }
            assert_eq!(sent, whole, "step {step}");
        }
    }

    /// The first bytes are outside, the rest is in memory.
    struct Split(Vec<u8>, usize);

    impl Bulk for Split {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn chunk(&self, from: usize) -> Chunk<'_, Split> {
            if from < self.1 { Chunk::Outside(self, self.1 - from) } else { Chunk::Memory(&self.0[from..]) }
        }
    }

    #[test]
    fn data_outside_and_in_memory_are_chunks_in_order_whatever_was_sent() {
        for step in 1..40 {
            let (mut out, mut whole) = (Outbox::default(), Vec::new());
            for (tag, (len, outside)) in [(10, 4), (7, 7), (0, 0), (9, 0)].into_iter().enumerate() {
                let data: Vec<u8> = (0..len).map(|i| i + tag as u8 * 16).collect();
                let tag = Tag(tag as u16);
                R::Read { data: Payload(&data) }.encode(tag, Dialect::Linux, &mut whole);
                out.push_bulk(117, tag, None, Split(data, outside));
            }
            let mut sent: Vec<u8> = Vec::new();
            while !out.is_empty() {
                let total: usize = out.chunks().map(|chunk| chunk.size()).sum();
                assert_eq!(total, out.len());
                let bytes = match out.chunks().next().unwrap() {
                    Chunk::Memory(bytes) => bytes.to_vec(),
                    Chunk::Outside(Split(data, end), left) => data[end - left..*end].to_vec(),
                };
                let n = bytes.len().min(step);
                out.advance(n);
                sent.extend(&bytes[..n]);
            }
            assert_eq!(sent, whole, "step {step}");
        }
    }
}
