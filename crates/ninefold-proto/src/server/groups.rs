//! Requests that share a tag (`.ix`, `.n1`): each is carried out when the one before it is answered. [`Groups`] holds those that
//! wait, for those before them or for a fid in use.
//!
//! What waits for a fid stands in that fid's queue. When the fid may be free the queue is tried from its head on, until one
//! still has to wait; nothing that comes later passes it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::limits::Limits;
use crate::message::T;
use crate::types::{Fid, Tag};

/// Tattach's number.
const TATTACH: u8 = 104;

/// Tsession's number.
const TSESSION: u8 = 164;

/// What must happen in a request's turn although it is not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// The fid of a Tclunk or Tremove, here with its number, is forgotten all the same.
    Farewell(Fid, u8),
    /// What a Tguard guards, so many requests, is not carried out either.
    Guard(u16),
    Other,
}

impl Refused {
    pub fn of(message: &T<'_>) -> Refused {
        match *message {
            T::Clunk { fid } | T::Remove { fid } => Refused::Farewell(fid, message.number()),
            T::Guard { members, .. } => Refused::Guard(members),
            _ => Refused::Other,
        }
    }
}

/// What stands in a request's place.
#[derive(Debug)]
pub(super) enum Kept<B> {
    Frame(B),
    /// There was no room for it.
    Refused(Refused),
    /// It was too large to be kept, of a client without a fid.
    TooLarge,
}

impl<B: AsRef<[u8]>> Kept<B> {
    fn bytes(&self) -> usize {
        match self {
            Kept::Frame(frame) => frame.as_ref().len(),
            Kept::Refused(_) | Kept::TooLarge => 0,
        }
    }

    fn is_attach(&self) -> bool {
        matches!(self, Kept::Frame(frame) if matches!(frame.as_ref().get(4), Some(&(TATTACH | TSESSION))))
    }
}

/// A request in a line.
#[derive(Debug)]
struct Waiting<B> {
    kept: Kept<B>,
    /// Frames of the connection before it.
    serial: u64,
}

/// A request whose turn has come.
#[derive(Debug)]
pub struct Member<B> {
    pub(super) tag: Tag,
    pub(super) kept: Kept<B>,
    /// Frames of the connection that came before it.
    pub(super) serial: u64,
    /// It waited for this fid, which may be free now.
    pub(super) woken: Option<Fid>,
}

impl<B> Member<B> {
    /// The tag that it shares.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// The frame, from which what is to be carried out borrows; `None`: it is only to be refused.
    pub fn frame(&self) -> Option<&B> {
        match &self.kept {
            Kept::Frame(frame) => Some(frame),
            Kept::Refused(_) | Kept::TooLarge => None,
        }
    }
}

/// Why there is no room for one more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    /// Too many of its tag are not answered.
    Tag,
    /// Too many of the connection wait, or too many bytes.
    Connection,
}

/// Those that wait of one tag.
#[derive(Debug)]
struct Line<B> {
    members: VecDeque<Waiting<B>>,
    /// The first one is in the queue of this fid.
    blocked: Option<Fid>,
}

/// Where in its line a request goes.
type Place<B> = fn(&mut VecDeque<Waiting<B>>, Waiting<B>);

#[derive(Debug)]
pub(super) struct Groups<B> {
    /// No line is empty.
    waiting: BTreeMap<Tag, Line<B>>,
    /// Tags whose first waiting member may be carried out now.
    ready: VecDeque<Tag>,
    /// Tags whose first waiting member needs a fid that is in use, by the fid. No queue is empty.
    blocked: BTreeMap<Fid, VecDeque<Tag>>,
    /// Fids whose queue is being tried.
    waking: VecDeque<Fid>,
    members: usize,
    refused: usize,
    attaches: usize,
    /// Of the frames.
    bytes: usize,
    /// By tags whose Tguard did not hold, or says what is to be carried out. What it guards may come when it is answered and the tag is in no
    /// use.
    guarded: BTreeMap<Tag, Guarded>,
}

/// What is carried out of what a Tguard guards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Course {
    /// Nothing.
    Cancelled,
    /// All before the first that fails.
    UntilFailure,
    /// The first, and the others unless that succeeds. It has not been begun; the Tguard is answered next.
    Unless,
    /// Of these the first is answered next.
    First { failed: bool },
    /// All.
    Free,
}

/// What becomes of the next requests of a tag.
#[derive(Clone, Copy, Debug)]
struct Guarded {
    /// How many more; not 0.
    left: u32,
    course: Course,
    /// Frames of the connection before the Tguard.
    serial: u64,
}

impl<B> Default for Groups<B> {
    fn default() -> Self {
        Groups {
            waiting: BTreeMap::new(),
            ready: VecDeque::new(),
            blocked: BTreeMap::new(),
            waking: VecDeque::new(),
            members: 0,
            refused: 0,
            attaches: 0,
            bytes: 0,
            guarded: BTreeMap::new(),
        }
    }
}

impl<B: AsRef<[u8]> + Clone + From<Vec<u8>>> Groups<B> {
    /// Whether members of `tag` wait.
    pub fn has(&self, tag: Tag) -> bool {
        self.waiting.contains_key(&tag)
    }

    /// Whether members wait for `fid`.
    pub fn has_queue(&self, fid: Fid) -> bool {
        self.blocked.contains_key(&fid)
    }

    /// Members that wait.
    pub fn len(&self) -> usize {
        self.members
    }

    /// Tattaches and Tsessions that wait.
    pub fn attaches(&self) -> usize {
        self.attaches
    }

    /// Whether a frame of `bytes` may wait behind those of its tag.
    pub fn room(&self, tag: Tag, bytes: usize, limits: &Limits) -> Result<(), Over> {
        let of_tag = self.waiting.get(&tag).map_or(0, |line| line.members.len());
        let fits = self.bytes == 0 || self.bytes + bytes <= limits.unsent;
        match () {
            // With the one that runs.
            () if of_tag + 1 >= limits.group => Err(Over::Tag),
            () if self.members >= limits.waiting || !fits => Err(Over::Connection),
            () => Ok(()),
        }
    }

    /// Whether there is room for the word that there is none.
    pub fn may_refuse(&self, limits: &Limits) -> bool {
        self.refused < limits.refused
    }

    /// The fid that the first one of `tag` waits for.
    pub fn blocked_for(&self, tag: Tag) -> Option<Fid> {
        self.waiting.get(&tag)?.blocked
    }

    /// Whether one may be carried out now.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.waking.is_empty()
    }

    /// Behind the others of its tag. The frame is copied: a slice of the driver's buffer keeps all of that alive.
    pub fn push(&mut self, tag: Tag, frame: &B, serial: u64) {
        let kept = Kept::Frame(B::from(frame.as_ref().to_vec()));
        self.keep(tag, Waiting { kept, serial }, VecDeque::push_back);
    }

    /// The place of one that is not kept, so that its error comes in its turn.
    pub fn push_too_large(&mut self, tag: Tag, serial: u64) {
        self.keep(tag, Waiting { kept: Kept::TooLarge, serial }, VecDeque::push_back);
    }

    /// The place of one that had no room, so that its error comes in its turn.
    pub fn push_refused(&mut self, tag: Tag, refused: Refused, serial: u64) {
        self.refused += 1;
        self.keep(tag, Waiting { kept: Kept::Refused(refused), serial }, VecDeque::push_back);
    }

    /// A request that needs `fid`, which is in use, waits for it before the others of its tag, behind all that wait for the
    /// fid.
    pub fn push_blocked(&mut self, tag: Tag, frame: &B, fid: Fid, serial: u64) {
        let kept = Kept::Frame(B::from(frame.as_ref().to_vec()));
        self.block(tag, Waiting { kept, serial }, fid, VecDeque::push_back);
    }

    /// The same for one that waited before. One that was woken for the fid keeps its place: it still has to wait, and so have
    /// those behind it.
    pub fn push_blocked_again(&mut self, tag: Tag, frame: &B, fid: Fid, woken: Option<Fid>, serial: u64) {
        let waiting = Waiting { kept: Kept::Frame(frame.clone()), serial };
        if woken == Some(fid) {
            self.waking.retain(|waking| *waking != fid);
            self.block(tag, waiting, fid, VecDeque::push_front);
        } else {
            self.block(tag, waiting, fid, VecDeque::push_back);
        }
    }

    fn block(&mut self, tag: Tag, waiting: Waiting<B>, fid: Fid, place: fn(&mut VecDeque<Tag>, Tag)) {
        self.keep(tag, waiting, VecDeque::push_front).blocked = Some(fid);
        place(self.blocked.entry(fid).or_default(), tag);
    }

    fn keep(&mut self, tag: Tag, waiting: Waiting<B>, place: Place<B>) -> &mut Line<B> {
        self.members += 1;
        self.bytes += waiting.kept.bytes();
        self.attaches += usize::from(waiting.kept.is_attach());
        let line = self.waiting.entry(tag).or_insert_with(|| Line { members: VecDeque::new(), blocked: None });
        place(&mut line.members, waiting);
        line
    }

    /// What becomes of the next so many of `tag`: the Tguard that says so, which is [`Groups::answered`] next, is the first. It had
    /// `serial` frames before it. Where another guard goes on ([`Groups::takes_guard`]), one that fails ends both, so that they are as
    /// good as one.
    pub fn guard(&mut self, tag: Tag, members: u32, course: Course, serial: u64) {
        let before = self.guarded.get(&tag);
        let left = before.map_or(0, |guarded| guarded.left).max(members);
        let is_cancelled = before.is_some_and(|guarded| guarded.course == Course::Cancelled);
        let course = if is_cancelled { Course::Cancelled } else { course };
        self.guarded.insert(tag, Guarded { left, course, serial });
    }

    /// Whether a guard of this kind may be the next of `tag`: those that go on until one fails may be among one another only.
    pub fn takes_guard(&self, tag: Tag, course: Course) -> bool {
        self.guarded
            .get(&tag)
            .is_none_or(|guarded| guarded.course == Course::UntilFailure && course == Course::UntilFailure)
    }

    /// Tags with a Tguard of which not all that it guards has been answered.
    pub fn guards(&self) -> usize {
        self.guarded.len()
    }

    /// Whether the next of `tag` is not to be carried out.
    pub fn is_cancelled(&self, tag: Tag) -> bool {
        self.guarded.get(&tag).is_some_and(|guarded| guarded.course == Course::Cancelled)
    }

    /// The member of `tag` that is [`Groups::answered`] next did not do what it was asked.
    pub fn failed(&mut self, tag: Tag) {
        if let Some(guarded) = self.guarded.get_mut(&tag) {
            guarded.course = match guarded.course {
                Course::UntilFailure | Course::Cancelled => Course::Cancelled,
                Course::First { .. } => Course::First { failed: true },
                course @ (Course::Unless | Course::Free) => course,
            };
        }
    }

    /// The member of `tag` before those that wait is answered.
    pub fn answered(&mut self, tag: Tag) {
        if let Some(guarded) = self.guarded.get_mut(&tag) {
            guarded.left -= 1;
            guarded.course = match guarded.course {
                Course::Unless => Course::First { failed: false },
                Course::First { failed: true } => Course::Free,
                Course::First { failed: false } => Course::Cancelled,
                course => course,
            };
            if guarded.left == 0 {
                self.guarded.remove(&tag);
            }
        }
        if self.has(tag) {
            self.ready.push_back(tag);
        }
    }

    /// A request that used `fid`, or was to make it, is complete.
    pub fn freed(&mut self, fid: Fid) {
        if self.has_queue(fid) && !self.waking.contains(&fid) {
            self.waking.push_back(fid);
        }
    }

    /// The next member to be carried out.
    pub fn pop(&mut self) -> Option<Member<B>> {
        loop {
            let (tag, woken) = match (self.ready.pop_front(), self.waking.front()) {
                (Some(tag), _) => (tag, None),
                (None, Some(&fid)) => match self.blocked.get(&fid).and_then(|queue| queue.front().copied()) {
                    Some(tag) => {
                        self.leave_queue(tag, fid);
                        (tag, Some(fid))
                    }
                    // The end of the queue, or all of it was flushed.
                    None => {
                        self.waking.pop_front();
                        continue;
                    }
                },
                (None, None) => return None,
            };
            let line = self.waiting.get_mut(&tag);
            debug_assert!(line.is_some(), "a tag of which none waits has its turn");
            let Some(line) = line else { continue };
            line.blocked = None;
            let first = line.members.pop_front();
            if line.members.is_empty() {
                self.waiting.remove(&tag);
            }
            let Some(Waiting { kept, serial }) = first else { continue };
            self.forget(&kept);
            return Some(Member { tag, kept, serial, woken });
        }
    }

    /// Those of a tag that was flushed are never carried out, unless they came after the Tflush, which had `serial` frames
    /// before it.
    pub fn flush(&mut self, tag: Tag, serial: u64) {
        if self.guarded.get(&tag).is_some_and(|guarded| guarded.serial < serial) {
            self.guarded.remove(&tag);
        }
        let Some(line) = self.waiting.get_mut(&tag) else { return };
        let flushed = line.members.iter().take_while(|member| member.serial < serial).count();
        let flushed: Vec<_> = line.members.drain(..flushed).collect();
        if flushed.is_empty() {
            return;
        }
        let blocked = line.blocked.take();
        let is_empty = line.members.is_empty();
        if is_empty {
            self.waiting.remove(&tag);
            self.ready.retain(|ready| *ready != tag);
        }
        flushed.iter().for_each(|member| self.forget(&member.kept));
        if let Some(fid) = blocked {
            self.leave_queue(tag, fid);
            // Those behind it may run beside what uses the fid.
            self.freed(fid);
            if !is_empty {
                self.ready.push_back(tag);
            }
        }
    }

    fn leave_queue(&mut self, tag: Tag, fid: Fid) {
        let Some(queue) = self.blocked.get_mut(&fid) else { return };
        queue.retain(|blocked| *blocked != tag);
        if queue.is_empty() {
            self.blocked.remove(&fid);
        }
    }

    /// All are void.
    pub fn clear(&mut self) {
        *self = Groups::default();
    }

    fn forget(&mut self, kept: &Kept<B>) {
        self.members -= 1;
        self.bytes -= kept.bytes();
        self.attaches -= usize::from(kept.is_attach());
        self.refused -= usize::from(matches!(kept, Kept::Refused(_)));
    }
}
