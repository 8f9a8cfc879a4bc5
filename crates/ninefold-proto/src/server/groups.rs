//! Requests that share a tag (`.ix`): each is carried out when the one before it is answered. [`Groups`] holds those that
//! wait.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::types::Tag;

/// Members of one tag that may wait for an answer, the one that runs with them (protocol.md).
const OF_TAG: usize = 64;

/// The same of a connection.
const OF_CONNECTION: usize = 4096;

/// Members that may be told, in their turn, that they were too many, while those before them wait for something that may never
/// come. A client that goes on beyond that hears nothing any more.
const REFUSED: usize = 1 << 16;

/// Frames of fewer bytes are kept as copies: a slice of the driver's buffer keeps all of that alive.
const COPIED: usize = 32 << 10;

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) enum Member<B> {
    Frame(B),
    /// There was no room for it.
    Refused,
}

/// Whether a request may wait here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Yes,
    /// Not before others are answered.
    Full,
    /// Not even for the word that there is none.
    Never,
}

#[derive(Debug)]
pub(super) struct Groups<B> {
    waiting: BTreeMap<Tag, VecDeque<Member<B>>>,
    /// Tags whose first waiting member may be carried out now.
    ready: VecDeque<Tag>,
    /// Tags whose first waiting member needs a fid that is in use.
    blocked: Vec<Tag>,
    members: usize,
    refused: usize,
    /// Of the frames.
    bytes: usize,
}

impl<B> Default for Groups<B> {
    fn default() -> Self {
        let (waiting, ready, blocked) = (BTreeMap::new(), VecDeque::new(), Vec::new());
        Groups { waiting, ready, blocked, members: 0, refused: 0, bytes: 0 }
    }
}

impl<B: AsRef<[u8]> + Clone + From<Vec<u8>>> Groups<B> {
    /// Whether members of `tag` wait.
    pub fn has(&self, tag: Tag) -> bool {
        self.waiting.contains_key(&tag)
    }

    /// Members that wait.
    pub fn len(&self) -> usize {
        self.members
    }

    /// Whether `frame` may wait behind those of its tag; `bytes_max` bounds all that wait.
    pub fn room(&self, tag: Tag, frame: &B, bytes_max: usize) -> Room {
        let of_tag = self.waiting.get(&tag).map_or(0, VecDeque::len);
        let fits = self.bytes == 0 || self.bytes + frame.as_ref().len() <= bytes_max;
        match () {
            () if of_tag + 1 < OF_TAG && self.members < OF_CONNECTION && fits => Room::Yes,
            () if self.refused < REFUSED => Room::Full,
            () => Room::Never,
        }
    }

    /// Behind the others of its tag.
    pub fn push(&mut self, tag: Tag, frame: &B) {
        let frame = self.keep(frame);
        self.waiting.entry(tag).or_default().push_back(Member::Frame(frame));
    }

    /// The place of one that had no room, so that its error comes in its turn.
    pub fn push_refused(&mut self, tag: Tag) {
        self.refused += 1;
        self.members += 1;
        self.waiting.entry(tag).or_default().push_back(Member::Refused);
    }

    /// Before the others of its tag: it needs a fid that is in use.
    pub fn push_blocked(&mut self, tag: Tag, frame: &B) {
        let frame = self.keep(frame);
        self.waiting.entry(tag).or_default().push_front(Member::Frame(frame));
        self.blocked.push(tag);
    }

    fn keep(&mut self, frame: &B) -> B {
        let bytes = frame.as_ref();
        self.members += 1;
        self.bytes += bytes.len();
        if bytes.len() < COPIED { B::from(bytes.to_vec()) } else { frame.clone() }
    }

    /// The member of `tag` before those that wait is answered.
    pub fn answered(&mut self, tag: Tag) {
        if self.has(tag) {
            self.ready.push_back(tag);
        }
    }

    /// A request is complete: fids may be free.
    pub fn unblock(&mut self) {
        self.ready.extend(self.blocked.drain(..));
    }

    /// The next member to be carried out.
    pub fn pop(&mut self) -> Option<(Tag, Member<B>)> {
        let tag = self.ready.pop_front()?;
        let members = self.waiting.get_mut(&tag)?;
        let member = members.pop_front()?;
        if members.is_empty() {
            self.waiting.remove(&tag);
        }
        self.forget(&member);
        Some((tag, member))
    }

    /// Those of a tag that was flushed are never carried out.
    pub fn flush(&mut self, tag: Tag) {
        for member in self.waiting.remove(&tag).into_iter().flatten() {
            self.forget(&member);
        }
        self.ready.retain(|ready| *ready != tag);
        self.blocked.retain(|blocked| *blocked != tag);
    }

    /// All are void.
    pub fn clear(&mut self) {
        *self = Groups::default();
    }

    fn forget(&mut self, member: &Member<B>) {
        self.members -= 1;
        match member {
            Member::Frame(frame) => self.bytes -= frame.as_ref().len(),
            Member::Refused => self.refused -= 1,
        }
    }
}
