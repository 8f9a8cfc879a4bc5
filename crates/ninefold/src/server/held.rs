//! Frames of a connection that are held back: the first has to wait, the others came behind it. They are read so that a
//! Tflush among them gets through; [`Held::has_room`] says how far.

use std::collections::VecDeque;

use bytes::Bytes;
use ninefold_proto::message::{RVERSION, TCLUNK, TFLUSH, TREMOVE};
use ninefold_proto::types::Tag;

/// What is read behind a frame that is held back, each frame with its [`OVERHEAD`]: some 900 requests without data.
pub(super) const AHEAD: usize = 64 * 1024;

/// Bytes that a frame which is kept costs beside its own: the allocation and the place in the queue.
const OVERHEAD: usize = 64;

/// In the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The one that has to wait, as it arrived: up to an msize, and not counted.
    first: Option<Bytes>,
    behind: VecDeque<Bytes>,
    /// What those behind cost.
    bytes: usize,
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.behind.is_empty()
    }

    /// Whether more may be read behind them. What comes after a Tversion belongs to another session.
    pub fn has_room(&self) -> bool {
        let last = self.behind.back().or(self.first.as_ref());
        self.bytes < AHEAD && last.is_none_or(|last| last[4] != RVERSION - 1)
    }

    /// A whole frame, behind the others. It is copied: a slice of the driver's buffer keeps all of that alive.
    pub fn push(&mut self, frame: &[u8]) {
        self.bytes += frame.len() + OVERHEAD;
        self.behind.push_back(Bytes::copy_from_slice(frame));
    }

    /// The first one.
    pub fn pop(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let frame = self.behind.pop_front()?;
        self.bytes -= frame.len() + OVERHEAD;
        Some(frame)
    }

    /// The first one still has to wait.
    pub fn put_back(&mut self, frame: Bytes) {
        self.first = Some(frame);
    }

    fn frames(&self) -> impl Iterator<Item = &Bytes> {
        self.first.iter().chain(&self.behind)
    }

    /// Whether one has this tag.
    pub fn has(&self, tag: Tag) -> bool {
        self.frames().any(|frame| tag_of(frame) == tag)
    }

    /// Whether a request of this tag is among them that has to be carried out although it is flushed, or the client's fid
    /// stays: a Tflush of it may not pass.
    pub fn has_leave(&self, tag: Tag) -> bool {
        self.frames().any(|frame| tag_of(frame) == tag && matches!(frame[4], TCLUNK | TREMOVE))
    }

    /// A Tflush came for `tag`: what came before it is never carried out.
    pub fn flush(&mut self, tag: Tag) {
        self.first.take_if(|frame| tag_of(frame) == tag);
        let bytes = &mut self.bytes;
        self.behind.retain(|frame| {
            let stays = tag_of(frame) != tag;
            if !stays {
                *bytes -= frame.len() + OVERHEAD;
            }
            stays
        });
    }
}

fn tag_of(frame: &[u8]) -> Tag {
    Tag(u16::from_le_bytes([frame[5], frame[6]]))
}

/// The tag and the oldtag of a Tflush of another tag than its own.
pub(super) fn tflush(frame: &[u8]) -> Option<(Tag, Tag)> {
    let &[_, _, _, _, TFLUSH, t0, t1, o0, o1] = frame else { return None };
    let (tag, oldtag) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([o0, o1]));
    (tag != oldtag).then_some((Tag(tag), Tag(oldtag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, tag: u16, len: usize) -> Bytes {
        let mut frame = vec![0; len];
        frame[4] = kind;
        frame[5..7].copy_from_slice(&tag.to_le_bytes());
        frame.into()
    }

    #[test]
    fn what_is_kept_behind_is_bounded_in_number_and_keeps_no_other_memory() {
        let mut held = Held::default();
        held.put_back(frame(118, 1, 8 << 20));
        let mut n = 0;
        while held.has_room() {
            let clunk = frame(TCLUNK, 2, 11);
            held.push(&clunk);
            assert!(clunk.is_unique());
            n += 1;
        }
        assert_eq!(n, AHEAD.div_ceil(11 + OVERHEAD));
        held.flush(Tag(2));
        assert!(held.has_room() && !held.has(Tag(2)) && held.has(Tag(1)) && held.bytes == 0);
        assert_eq!(held.pop().unwrap().len(), 8 << 20);
        assert!(held.is_empty());
    }

    #[test]
    fn they_come_in_order_and_one_that_is_put_back_comes_first() {
        let mut held = Held::default();
        held.put_back(frame(118, 1, 30));
        held.push(&frame(TREMOVE, 2, 11));
        held.push(&frame(110, 3, 17));
        assert!(held.has_leave(Tag(2)) && !held.has_leave(Tag(3)) && !held.has_leave(Tag(1)));
        held.flush(Tag(1));
        let second = held.pop().unwrap();
        assert_eq!(tag_of(&second), Tag(2));
        held.put_back(second);
        assert_eq!([(); 2].map(|()| tag_of(&held.pop().unwrap())), [Tag(2), Tag(3)]);
        assert!(held.pop().is_none() && held.bytes == 0);
        held.push(&frame(RVERSION - 1, 4, 19));
        assert!(!held.has_room());
    }
}
