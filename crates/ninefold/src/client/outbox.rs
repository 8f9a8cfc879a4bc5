//! What a connection has to send: whole frames in order, of which those that have not begun to leave can be taken back.
//!
//! [`Outbox::push`] puts a frame in at the end. Whoever sends takes slices by [`Outbox::claim`], writes what it can of them
//! without a lock, and tells by [`Outbox::release`] how much that was. Meanwhile, and after its first byte, a frame
//! cannot be taken back by [`Outbox::take_back`]: half a frame would be none that the server understands.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use ninefold_proto::Tag;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Outbox {
    frames: VecDeque<Frame>,
    /// Of requests with lower ordinals bytes have gone, or they were taken back.
    unsent_from: u64,
    /// Frames at the front that are being written.
    claimed: usize,
    /// Requests that were to be taken back while they were being written.
    regretted: Vec<(u64, Tag)>,
}

/// A request, or several of the session's own behind each other.
#[derive(Debug)]
struct Frame {
    /// The [ordinal](ninefold_proto::client::Session::ordinal) of its last request.
    ordinal: u64,
    /// Its place in the longest chain; 0 for the session's own.
    depth: u32,
    head: Bytes,
    /// The data of a Twrite, or nothing.
    payload: Bytes,
}

/// What became of a request that is to be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TakenBack {
    Yes,
    /// It is just being written: [`Released::regretted`] tells.
    Later,
    /// It has begun to leave, or is no call.
    No,
}

/// What was sent.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Released {
    /// The greatest depth of the frames that began to leave.
    pub depth: u32,
    /// The first call that bytes went of.
    pub moved: Option<u64>,
    /// Requests that were to be taken back meanwhile, and whether they are.
    pub regretted: Vec<(Tag, bool)>,
}

impl Outbox {
    /// Puts a frame behind those that are there; ordinals only grow. `depth` is 0 for what is no call.
    pub fn push(&mut self, ordinal: u64, depth: u32, head: Vec<u8>, payload: Bytes) {
        self.frames.push_back(Frame { ordinal, depth, head: head.into(), payload });
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether no byte of the request has gone. Not to be asked between claim and release.
    pub fn is_unsent(&self, ordinal: u64) -> bool {
        ordinal >= self.unsent_from
    }

    /// Takes a call's frame out, if none of it has gone.
    pub fn take_back(&mut self, ordinal: u64, tag: Tag) -> TakenBack {
        match self.frames.binary_search_by_key(&ordinal, |frame| frame.ordinal) {
            Ok(index) if self.is_unsent(ordinal) && self.frames[index].depth > 0 => {
                if index < self.claimed {
                    self.regretted.push((ordinal, tag));
                    return TakenBack::Later;
                }
                self.frames.remove(index);
                TakenBack::Yes
            }
            _ => TakenBack::No,
        }
    }

    /// The same for one of several that are given up together: one that is just being written stays.
    pub fn take_back_now(&mut self, ordinal: u64) -> bool {
        match self.frames.binary_search_by_key(&ordinal, |frame| frame.ordinal) {
            Ok(index) if self.is_unsent(ordinal) && self.frames[index].depth > 0 && index >= self.claimed => {
                self.frames.remove(index);
                true
            }
            _ => false,
        }
    }

    /// The first slices to send, no more than `most`, behind those in `slices`.
    pub fn claim(&mut self, most: usize, slices: &mut Vec<Bytes>) {
        for frame in &self.frames {
            let parts = [&frame.head, &frame.payload];
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            if slices.len() + 2 > most {
                break;
            }
            slices.extend(parts.cloned());
            self.claimed += 1;
        }
    }

    /// `sent` bytes of what was claimed have gone.
    pub fn release(&mut self, mut sent: usize) -> Released {
        let mut released = Released::default();
        while sent > 0
            && let Some(frame) = self.frames.front_mut()
        {
            if frame.depth > 0 {
                released.moved.get_or_insert(frame.ordinal);
            }
            released.depth = released.depth.max(frame.depth);
            self.unsent_from = self.unsent_from.max(frame.ordinal + 1);
            for part in [&mut frame.head, &mut frame.payload] {
                let gone = sent.min(part.len());
                part.advance(gone);
                sent -= gone;
            }
            if frame.head.is_empty() && frame.payload.is_empty() {
                self.frames.pop_front();
            }
        }
        self.claimed = 0;
        for (ordinal, tag) in std::mem::take(&mut self.regretted) {
            released.regretted.push((tag, self.take_back(ordinal, tag) == TakenBack::Yes));
        }
        released
    }

    /// Forgets all of it.
    pub fn clear(&mut self) {
        self.frames.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(frames: &[(u64, u32, &str, &'static str)]) -> Outbox {
        let mut outbox = Outbox::default();
        for (ordinal, depth, head, payload) in frames {
            outbox.push(*ordinal, *depth, head.as_bytes().to_vec(), Bytes::from_static(payload.as_bytes()));
        }
        outbox
    }

    fn claimed(outbox: &mut Outbox, most: usize) -> Vec<String> {
        let mut slices = Vec::new();
        outbox.claim(most, &mut slices);
        slices.iter().map(|slice| String::from_utf8(slice.to_vec()).unwrap()).collect()
    }

    #[test]
    fn what_has_not_begun_to_leave_is_taken_back_and_what_has_is_finished() {
        let mut outbox = outbox(&[(0, 1, "head", "data"), (1, 2, "walk", ""), (4, 0, "own", ""), (5, 3, "stat", "")]);
        assert_eq!(claimed(&mut outbox, 64), ["head", "data", "walk", "own", "stat"]);
        assert_eq!(outbox.release(6), Released { depth: 1, moved: Some(0), regretted: Vec::new() });
        assert_eq!([0, 1, 5].map(|ordinal| outbox.is_unsent(ordinal)), [false, true, true]);
        assert_eq!(outbox.take_back(0, Tag(0)), TakenBack::No);
        assert!(outbox.take_back_now(1) && !outbox.take_back_now(0) && !outbox.take_back_now(4));
        assert_eq!(outbox.take_back(1, Tag(1)), TakenBack::No);
        // Several of the session's own may be one frame, and are all sent.
        assert_eq!([3, 4].map(|ordinal| outbox.take_back(ordinal, Tag(ordinal as u16))), [TakenBack::No; 2]);
        assert_eq!(claimed(&mut outbox, 64), ["ta", "own", "stat"]);
        assert_eq!(outbox.release(5), Released { depth: 1, moved: Some(0), regretted: Vec::new() });
        assert_eq!(claimed(&mut outbox, 64), ["stat"]);
        assert_eq!(outbox.release(4), Released { depth: 3, moved: Some(5), regretted: Vec::new() });
        assert!(outbox.is_empty());
    }

    #[test]
    fn what_is_taken_back_while_it_is_written_is_taken_back_unless_it_went() {
        let mut outbox = outbox(&[(0, 1, "a", ""), (1, 2, "b", ""), (2, 3, "c", ""), (3, 4, "d", "")]);
        assert_eq!(claimed(&mut outbox, 4), ["a", "b", "c"]);
        assert_eq!(
            [2, 1, 3].map(|ordinal| outbox.take_back(ordinal, Tag(ordinal as u16))),
            [TakenBack::Later, TakenBack::Later, TakenBack::Yes]
        );
        assert_eq!([0, 1, 2, 3].map(|ordinal| outbox.take_back_now(ordinal)), [false; 4]);
        let released = outbox.release(2);
        assert_eq!((released.depth, released.regretted), (2, vec![(Tag(2), true), (Tag(1), false)]));
        assert!(outbox.is_empty());
    }
}
