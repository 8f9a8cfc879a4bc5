//! Replies that are ready: heads in one buffer, bulk data as slices of their own, in the order to send.
//!
//! The driver takes [`Outbox::chunks`] into one gathered write and tells [`Outbox::advance`] how many
//! bytes went.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::dialect::Dialect;
use crate::message::R;
use crate::types::Tag;

/// Capacity in bytes that an empty outbox may keep, so that an idle connection stays small.
const KEEP: usize = 512;

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

impl<P: AsRef<[u8]>> Outbox<P> {
    /// Bytes not yet sent.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether everything was sent.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a whole reply, whose data (if any) are copied: for the small ones.
    pub(super) fn push(&mut self, tag: Tag, reply: &R<'_>, dialect: Dialect) {
        let start = self.heads.len();
        reply.encode(tag, dialect, &mut self.heads);
        self.head_added(start);
    }

    /// Appends a reply whose data are `bulk`; `head` makes the message around the data it is given.
    pub(super) fn push_bulk(&mut self, tag: Tag, dialect: Dialect, bulk: P, head: impl Fn(&[u8]) -> R<'_>) {
        let start = self.heads.len();
        head(bulk.as_ref()).encode_head(tag, dialect, &mut self.heads);
        self.head_added(start);
        if !bulk.as_ref().is_empty() {
            self.len += bulk.as_ref().len();
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

    fn head_added(&mut self, start: usize) {
        let n = self.heads.len() - start;
        self.len += n;
        match self.parts.back_mut() {
            Some(Part::Head(last)) => *last += n,
            _ => self.parts.push_back(Part::Head(n)),
        }
    }

    /// The slices to send, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = self.sent;
        self.parts.iter().map(move |part| match part {
            Part::Head(n) => {
                at += n;
                &self.heads[at - n..at]
            }
            Part::Bulk(bulk, from) => &bulk.as_ref()[*from..],
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
                Part::Bulk(bulk, from) => (bulk.as_ref().len() - *from, false),
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
            if self.heads.capacity() > KEEP {
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
    use crate::message::Payload;

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
                out.push_bulk(Tag(i), Dialect::Linux, data, |d| R::Read { data: Payload(d) });
            }
            let mut sent = Vec::new();
            while !out.is_empty() {
                let bytes: Vec<u8> = out.chunks().flatten().copied().take(step).collect();
                out.advance(bytes.len());
                sent.extend(bytes);
            }
            assert_eq!(sent, whole, "step {step}");
        }
    }
}
