//! Frames of a connection that are held back: the first has to wait, the others came behind it. They are read so that a
//! Tflush among them gets through; [`Held::has_room`] says how far.

use std::collections::VecDeque;

use bytes::Bytes;
use ninefold_proto::message::{RVERSION, TFLUSH};
use ninefold_proto::types::Tag;

/// Bytes that are read behind a frame that is held back: some 2,000 requests without data.
pub(super) const AHEAD: usize = 64 * 1024;

/// In the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Held {
    frames: VecDeque<Bytes>,
    bytes: usize,
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether more may be read behind them. What comes after a Tversion belongs to another session.
    pub fn has_room(&self) -> bool {
        self.bytes < AHEAD && self.frames.back().is_none_or(|last| last[4] != RVERSION - 1)
    }

    /// A whole frame, behind the others.
    pub fn push(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    /// The first one.
    pub fn pop(&mut self) -> Option<Bytes> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some(frame)
    }

    /// The first one still has to wait.
    pub fn put_back(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.frames.push_front(frame);
    }

    /// Whether one has this tag.
    pub fn has(&self, tag: Tag) -> bool {
        self.frames.iter().any(|frame| tag_of(frame) == tag)
    }

    /// A Tflush came for `tag`: what came before it is never carried out.
    pub fn flush(&mut self, tag: Tag) {
        self.frames.retain(|frame| tag_of(frame) != tag);
        self.bytes = self.frames.iter().map(Bytes::len).sum();
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
