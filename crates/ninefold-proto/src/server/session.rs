//! The session: which requests are outstanding, in what order they are answered, and when it all ends.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::fids::{DirPosition, Fate, Fids, HandleId, Lookup, Mode};
use super::groups::{Course, Groups, Kept, Member, Over, Refused};
use super::limits::Limits;
use super::n1::AfterN1;
use super::op::{Done, Farewell, FarewellId, Request, RequestId};
use super::outbox::{Bulk, Outbox};
use super::reply;
use super::request::{Refusal, fid_in_use, no_room, unknown_fid};
use crate::dialect::{self, Answer, Dialect, Version};
use crate::error::{Errno, Error};
use crate::message::{R, T, is_reply};
use crate::open::Open;
use crate::types::{Fid, Tag};
use crate::wire::{DecodeError, MSIZE_MIN, Reader, split_frame};

/// The largest frame from a client without a fid: two strings of 65,535 bytes, as in Tattach, fit well.
const UNATTACHED_FRAME: u32 = 256 << 10;

/// Tversion's number.
const TVERSION: u8 = 100;

fn duplicate_tag() -> Error {
    Error::with_text(Errno::EBUSY, "duplicate tag")
}

/// A rule that the client broke so badly that the connection is closed; the reason is for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    #[error("bad frame: {0}")]
    Frame(DecodeError),
    #[error("message type {kind} does not decode: {error}")]
    Body { kind: u8, error: DecodeError },
    #[error("reply type {0} from a client")]
    ReplyFromClient(u8),
    #[error("message type {0} before Tversion")]
    NoVersion(u8),
    #[error("no Tversion in time")]
    HandshakeTimeout,
    #[error("a frame was not finished in time")]
    FrameTimeout,
    #[error("too many requests share tags with one that waits")]
    TooManyMembers,
    #[error("too many guards that did not hold, and nothing behind them")]
    TooManyGuards,
}

/// What the driver does about a frame.
#[derive(Debug)]
pub enum Event<'a, F> {
    /// Nothing: it was answered, or an answer will come by itself.
    Handled,
    /// Carry this out.
    Execute(Request<'a, F>),
    /// Wake the waits of these requests; their completions are still expected.
    Cancel(Vec<RequestId>),
    /// All requests are void: wake the waits of all of them; their completions are still expected.
    CancelAll,
    /// The frame must wait for requests that run now: hand it in again after the next completion, and when one of them
    /// comes to wait for something that may never come.
    Wait,
}

/// Tells of an outstanding request whether it waits for something that may never come: a lock, a FIFO. One that was
/// cancelled does not any more.
pub type Parked<'p> = &'p dyn Fn(RequestId) -> bool;

/// How far the connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing is agreed; `spoke`: a Tversion came, and was answered "unknown".
    Start { spoke: bool },
    /// A dialect is agreed.
    Agreed,
    /// A Tversion came over requests that still run: it is answered when they are done.
    Resetting { tag: Tag, answer: Answer },
    /// The peer is gone.
    HungUp,
}

/// A request between its arrival and its completion.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub tag: Tag,
    /// What the completion needs to know.
    pub after: After,
    /// Handles in use by it.
    pub handles: [Option<HandleId>; 2],
    /// A Tflush came for it.
    flushed: bool,
    /// Tflushes to answer after it, in the order they came.
    flushes: Vec<Tag>,
    /// The session was reset or hung up: no reply, no effect.
    void: bool,
    /// A Tclunk or Tremove that came for the fid before this made it.
    pub parting: Option<RequestId>,
}

/// What a completion does to the fids, and which reply it makes.
#[derive(Clone, Copy, Debug)]
pub(super) enum After {
    Attach {
        fid: Fid,
    },
    Session {
        fid: Fid,
    },
    Walk {
        fid: Fid,
        newfid: Fid,
        names: usize,
    },
    Open {
        how: Open,
    },
    Create {
        fid: Fid,
        how: Open,
    },
    /// `count`: the most bytes that were asked for.
    Read {
        count: u32,
    },
    /// `from`: where in the directory.
    ReadStats {
        from: DirPosition,
        count: u32,
    },
    Write {
        len: u32,
    },
    Readdir {
        count: u32,
    },
    XattrRead {
        newfid: Fid,
    },
    /// What `.n1` adds.
    N1(AfterN1),
    /// The reply carries the result, or nothing but success; the number is the T message's.
    Plain {
        number: u8,
    },
    /// Tclunk, Tremove: answered by the farewell; with an error, whatever comes of it, where it was `refused`.
    Farewell {
        number: u8,
        refused: Option<Refusal>,
    },
}

impl After {
    /// The fid that a success makes.
    pub fn new_fid(&self) -> Option<Fid> {
        match *self {
            After::Attach { fid } | After::Session { fid } => Some(fid),
            After::Walk { fid, newfid, .. } if fid != newfid => Some(newfid),
            After::XattrRead { newfid } => Some(newfid),
            _ => None,
        }
    }
}

/// The server's end of one connection. `F` is the driver's handle on a file, `P` its bulk data, `B` its frames.
#[derive(Debug)]
pub struct Session<F, P, B = Vec<u8>> {
    pub(super) limits: Limits,
    state: State,
    pub(super) version: Version,
    /// Whether requests may share a tag, or `None` where they may not.
    pub(super) groups: Option<Groups<B>>,
    /// The request that is taken waited for this fid, and stands behind nobody there now.
    pub(super) woken: Option<Fid>,
    /// Frames that came before the one that is taken.
    serial: u64,
    frames: u64,
    /// This run of the server, once a Tsession has told.
    pub(super) epoch: Option<u64>,
    pub(super) msize: u32,
    pub(super) fids: Fids<F>,
    requests: BTreeMap<RequestId, Outstanding>,
    /// Tags in use, and the serial numbers of the frames that use them.
    tags: BTreeMap<Tag, (Owner, u64)>,
    farewells: VecDeque<HandleId>,
    /// Files said farewell to, not yet done.
    parting: usize,
    next_request: u64,
    /// Tversions taken.
    resets: u64,
    /// Since the connection's start: when the frame that is coming in began.
    frame_began: Option<Duration>,
    bulk: core::marker::PhantomData<P>,
}

/// How a request comes to be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Arrived,
    /// It waited for those of its tag before it, or for the fid that `woken` tells.
    Came {
        woken: Option<Fid>,
    },
}

/// Whose a tag in use is.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Request(RequestId),
    /// A Tflush that waits for this request.
    Flush(RequestId),
}

impl<F: Clone, P: Bulk + From<Vec<u8>>, B: AsRef<[u8]> + Clone + From<Vec<u8>>> Session<F, P, B> {
    /// A connection on which nothing was said.
    pub fn new(limits: Limits) -> Session<F, P, B> {
        // Less than the least msize could not carry a stat record.
        let limits = Limits { msize: limits.msize.max(MSIZE_MIN), ..limits };
        Session {
            limits,
            state: State::Start { spoke: false },
            version: Dialect::Plan9.into(),
            groups: None,
            woken: None,
            serial: 0,
            frames: 0,
            epoch: None,
            msize: MSIZE_MIN,
            fids: Fids::default(),
            requests: BTreeMap::new(),
            tags: BTreeMap::new(),
            farewells: VecDeque::new(),
            parting: 0,
            next_request: 0,
            resets: 0,
            frame_began: None,
            bulk: core::marker::PhantomData,
        }
    }

    /// The largest frame that is taken whole now. One over it and within [`Session::largest_frame`] is for
    /// [`Session::handle_large`]. Before a dialect is agreed only Tversion may, which is short; without a fid,
    /// and without a Tattach that is being carried out or waits for its turn, nothing needs more than the longest
    /// strings, and a stranger holds no more memory.
    pub fn msize(&self) -> u32 {
        let attaches = self.fids.len() > 0 || self.groups.as_ref().is_some_and(|groups| groups.attaches() > 0);
        if attaches { self.msize } else { self.msize.min(UNATTACHED_FRAME) }
    }

    /// The largest frame that may come. Where requests share tags, what belongs to a Tattach that failed may be behind it.
    pub fn largest_frame(&self) -> u32 {
        if self.groups.is_some() { self.msize } else { self.msize() }
    }

    /// The agreed version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The agreed dialect.
    pub fn dialect(&self) -> Dialect {
        self.version.dialect
    }

    /// Requests not complete, those that wait included.
    pub fn outstanding(&self) -> usize {
        self.requests.len() + self.groups.as_ref().map_or(0, Groups::len)
    }

    /// Requests that wait for others of their tag, or for a fid.
    pub fn waiting(&self) -> usize {
        self.groups.as_ref().map_or(0, Groups::len)
    }

    /// Whether no request of this tag is outstanding.
    pub fn is_free(&self, tag: Tag) -> bool {
        !self.tags.contains_key(&tag) && self.groups.as_ref().is_none_or(|groups| !groups.has(tag))
    }

    /// Fids known.
    pub fn fids(&self) -> usize {
        self.fids.len()
    }

    /// Whether a Tversion waits for what was before it to end.
    pub fn is_resetting(&self) -> bool {
        matches!(self.state, State::Resetting { .. })
    }

    /// How often a Tversion was taken: what the driver keeps for the connection beside its files, streams, ends with each.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Whether the connection is lost, or ended.
    pub fn is_hung_up(&self) -> bool {
        self.state == State::HungUp
    }

    /// Whether nothing is outstanding and no file is left.
    pub fn is_idle(&self) -> bool {
        self.outstanding() == 0 && self.fids.handles() == 0 && self.parting == 0
    }

    /// Until when the peer has time for what it is about; `None`: as long as it likes.
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Start { spoke: false } => Some(self.limits.handshake),
            _ => self.frame_began.map(|began| began + self.limits.frame),
        }
    }

    /// Tells how late it is. An error ends the connection.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), Violation> {
        match self.deadline() {
            Some(deadline) if now >= deadline && self.state == (State::Start { spoke: false }) => {
                Err(Violation::HandshakeTimeout)
            }
            Some(deadline) if now >= deadline => Err(Violation::FrameTimeout),
            _ => Ok(()),
        }
    }

    /// Tells whether a frame has begun to come in and is not yet whole.
    pub fn note_partial_frame(&mut self, partial: bool, now: Duration) {
        self.frame_began = if partial { self.frame_began.or(Some(now)) } else { None };
    }

    /// Takes one whole frame. It is held back only for requests that end without it: not for one that is `parked`, since
    /// what it waits for may come behind the frame.
    pub fn handle_frame<'a>(
        &mut self,
        frame: &'a B,
        parked: Parked<'_>,
        out: &mut Outbox<P>,
    ) -> Result<Event<'a, F>, Violation> {
        self.next_serial();
        self.take(frame, Turn::Arrived, parked, out)
    }

    /// Takes the header of a frame over [`Session::msize`], whose body the driver throws away as it comes: a client
    /// whose Tattach failed has sent what was to follow it. It names no fid that is known, and is told so in its turn.
    pub fn handle_large(
        &mut self,
        header: &[u8],
        parked: Parked<'_>,
        out: &mut Outbox<P>,
    ) -> Result<Event<'static, F>, Violation> {
        let mut reader = Reader::new(header);
        let mut field = || Ok((reader.u32("size")?, reader.u8("type")?, reader.tag("tag")?));
        let (size, kind, tag) = field().map_err(Violation::Frame)?;
        if is_reply(kind) {
            return Err(Violation::ReplyFromClient(kind));
        }
        match self.state {
            State::HungUp => return Ok(Event::Handled),
            State::Resetting { .. } => return Ok(Event::Wait),
            State::Start { .. } => return Err(Violation::NoVersion(kind)),
            State::Agreed => {}
        }
        if size > self.msize || kind == TVERSION {
            return Err(Violation::Frame(DecodeError::SizeTooLarge { size, msize: self.msize() }));
        }
        self.next_serial();
        if self.joins(tag) {
            return self.wait_in_turn(tag, None, Refused::Other, parked);
        }
        let error = match () {
            () if self.is_cancelled(tag) => Refusal::Cancelled.error(),
            () if self.tags.contains_key(&tag) => duplicate_tag(),
            () => unknown_fid(),
        };
        self.refuse(tag, error, out);
        self.answered(tag);
        Ok(Event::Handled)
    }

    /// The next request that waited for others of its tag, or for a fid, and can be carried out now. It is handed in to
    /// [`Session::handle_member`] before anything else.
    pub fn poll_member(&mut self) -> Option<Member<B>> {
        self.groups.as_mut()?.pop()
    }

    /// Takes what [`Session::poll_member`] brought. It may be one that is only to be refused.
    pub fn handle_member<'a>(&mut self, member: &'a Member<B>, out: &mut Outbox<P>) -> Result<Event<'a, F>, Violation> {
        self.serial = member.serial;
        match &member.kept {
            Kept::Frame(frame) => {
                self.woken = member.woken;
                let event = self.take(frame, Turn::Came { woken: member.woken }, &|_| false, out);
                self.woken = None;
                event
            }
            Kept::Refused(refused) => Ok(self.refuse_in_turn(member.tag, *refused, Refusal::NoRoom, out)),
            Kept::TooLarge => {
                let error = if self.is_cancelled(member.tag) { Refusal::Cancelled.error() } else { unknown_fid() };
                self.refuse(member.tag, error, out);
                self.answered(member.tag);
                Ok(Event::Handled)
            }
        }
    }

    /// Answers a request with an error in its turn; what must happen whatever becomes of it does.
    fn refuse_in_turn<'a>(&mut self, tag: Tag, refused: Refused, why: Refusal, out: &mut Outbox<P>) -> Event<'a, F> {
        let parted = match refused {
            Refused::Farewell(fid, number) => self.farewell(tag, fid, number, Some(why)).ok(),
            Refused::Guard(_) | Refused::Other => None,
        };
        match parted {
            None => {
                self.refuse(tag, why.error(), out);
                if let Refused::Guard(members) = refused {
                    self.guard_behind(tag, members, Course::Cancelled);
                }
                self.answered(tag);
                Event::Handled
            }
            Some(waits) if waits.is_empty() => Event::Handled,
            Some(waits) => Event::Cancel(waits),
        }
    }

    /// What becomes of the next so many requests of a tag behind the one that is answered now.
    pub(super) fn guard_behind(&mut self, tag: Tag, members: u16, course: Course) {
        if let Some(groups) = &mut self.groups {
            groups.guard(tag, u32::from(members) + 1, course, self.serial);
        }
    }

    pub(super) fn takes_guard(&self, tag: Tag, course: Course) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.takes_guard(tag, course))
    }

    fn is_cancelled(&self, tag: Tag) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.is_cancelled(tag))
    }

    fn take<'a>(
        &mut self,
        frame: &'a B,
        turn: Turn,
        parked: Parked<'_>,
        out: &mut Outbox<P>,
    ) -> Result<Event<'a, F>, Violation> {
        let (header, body) = split_frame(frame.as_ref()).map_err(Violation::Frame)?;
        let (kind, tag) = (header.kind, header.tag);
        if header.size > self.msize {
            return Err(Violation::Frame(DecodeError::SizeTooLarge { size: header.size, msize: self.msize }));
        }
        if is_reply(kind) {
            return Err(Violation::ReplyFromClient(kind));
        }
        match self.state {
            State::HungUp => return Ok(Event::Handled),
            State::Resetting { .. } => return Ok(Event::Wait),
            _ => {}
        }
        let message = match T::decode(kind, body, self.version) {
            Ok(message) => message,
            Err(_) if matches!(self.state, State::Start { .. }) && kind != TVERSION => {
                return Err(Violation::NoVersion(kind));
            }
            Err(DecodeError::UnknownType(_)) if turn == Turn::Arrived && self.joins(tag) => {
                return self.wait_in_turn(tag, Some(frame), Refused::Other, parked);
            }
            Err(DecodeError::UnknownType(_)) => {
                let error = match self.is_cancelled(tag) {
                    true => Refusal::Cancelled.error(),
                    false => Error::with_text(Errno::EOPNOTSUPP, "unknown message type"),
                };
                self.refuse(tag, error, out);
                self.answered(tag);
                return Ok(Event::Handled);
            }
            Err(error) => return Err(Violation::Body { kind, error }),
        };
        match message {
            T::Version { msize, version } => Ok(self.negotiate(tag, msize, version, out)),
            _ if matches!(self.state, State::Start { .. }) => Err(Violation::NoVersion(kind)),
            message if turn == Turn::Arrived && self.joins(tag) => {
                self.wait_in_turn(tag, Some(frame), Refused::of(&message), parked)
            }
            _ if self.tags.contains_key(&tag) => {
                self.refuse(tag, duplicate_tag(), out);
                Ok(Event::Handled)
            }
            T::Flush { oldtag } => {
                let event = self.flush(tag, oldtag, out);
                self.answered_at_once(tag);
                Ok(event)
            }
            T::Guard { .. } if self.has_many_guards(turn) => match turn {
                Turn::Arrived if self.anything_moves(parked) => Ok(Event::Wait),
                _ => Err(Violation::TooManyGuards),
            },
            message if self.is_cancelled(tag) => {
                Ok(self.refuse_in_turn(tag, Refused::of(&message), Refusal::Cancelled, out))
            }
            message => match self.handle_request(tag, message, out) {
                Err(fid) => Ok(self.wait_for_fid(tag, frame, fid, turn, parked, out)),
                Ok(event) => {
                    self.answered_at_once(tag);
                    Ok(event)
                }
            },
        }
    }

    /// Whether there are too many guards for one more: each holds a little memory until what it guards is answered. Those that
    /// waited in their groups are as many again at most.
    fn has_many_guards(&self, turn: Turn) -> bool {
        let most = if turn == Turn::Arrived { self.limits.waiting } else { 2 * self.limits.waiting };
        self.groups.as_ref().is_some_and(|groups| groups.guards() >= most)
    }

    /// A frame is taken.
    pub(super) fn next_serial(&mut self) {
        self.serial = self.frames;
        self.frames += 1;
    }

    /// Whether a request with this tag would be looked at when it came, and for nothing but what it asks.
    pub(super) fn is_clear(&self, tag: Tag) -> bool {
        self.state == State::Agreed && self.is_free(tag) && !self.is_cancelled(tag)
    }

    /// Whether a request with this tag is one of a group of which others are not answered.
    fn joins(&self, tag: Tag) -> bool {
        self.groups.as_ref().is_some_and(|groups| self.tags.contains_key(&tag) || groups.has(tag))
    }

    /// Puts a request behind those of its tag; `None`: one that is too large to be kept.
    fn wait_in_turn<'a>(
        &mut self,
        tag: Tag,
        frame: Option<&B>,
        refused: Refused,
        parked: Parked<'_>,
    ) -> Result<Event<'a, F>, Violation> {
        let Some(groups) = &mut self.groups else { return Ok(Event::Handled) };
        let over = match groups.room(tag, frame.map_or(0, |frame| frame.as_ref().len()), &self.limits) {
            Ok(()) => {
                match frame {
                    Some(frame) => groups.push(tag, frame, self.serial),
                    None => groups.push_too_large(tag, self.serial),
                }
                return Ok(Event::Handled);
            }
            Err(over) => over,
        };
        let room_will_come = match over {
            Over::Tag => self.line_moves(tag, parked),
            Over::Connection => self.anything_moves(parked),
        };
        if room_will_come {
            return Ok(Event::Wait);
        }
        match &mut self.groups {
            Some(groups) if groups.may_refuse(&self.limits) => groups.push_refused(tag, refused, self.serial),
            _ => return Err(Violation::TooManyMembers),
        }
        Ok(Event::Handled)
    }

    /// Whether a member of `tag` will be answered without what is parked.
    fn line_moves(&self, tag: Tag, parked: Parked<'_>) -> bool {
        match (self.tags.get(&tag), self.groups.as_ref().and_then(|groups| groups.blocked_for(tag))) {
            (Some((Owner::Request(id) | Owner::Flush(id), _)), _) => !parked(*id),
            (None, Some(fid)) => self.fid_comes_free(fid, parked),
            (None, None) => true,
        }
    }

    /// Whether anything at all will be answered without what is parked.
    fn anything_moves(&self, parked: Parked<'_>) -> bool {
        self.groups.as_ref().is_some_and(Groups::has_ready) || self.requests.keys().any(|id| !parked(*id))
    }

    /// Whether what uses a fid, or is to make it, ends without what is parked.
    fn fid_comes_free(&self, fid: Fid, parked: Parked<'_>) -> bool {
        let handle = match self.fids.lookup(fid) {
            Lookup::Live(id) => Some(id),
            Lookup::Reserved | Lookup::Unknown => None,
        };
        let uses = |request: &Outstanding| {
            request.after.new_fid() == Some(fid) || (handle.is_some() && request.handles.contains(&handle))
        };
        !self.requests.iter().any(|(id, request)| !request.void && uses(request) && parked(*id))
    }

    /// Where requests share tags, one that needs a fid in use holds up none but those of its own tag.
    fn wait_for_fid<'a>(
        &mut self,
        tag: Tag,
        frame: &B,
        fid: Fid,
        turn: Turn,
        parked: Parked<'_>,
        out: &mut Outbox<P>,
    ) -> Event<'a, F> {
        let Some(groups) = &mut self.groups else {
            if self.fid_comes_free(fid, parked) {
                return Event::Wait;
            }
            self.refuse(tag, fid_in_use(), out);
            return Event::Handled;
        };
        match turn {
            // Its own place is free.
            Turn::Came { woken } => groups.push_blocked_again(tag, frame, fid, woken, self.serial),
            Turn::Arrived if groups.room(tag, frame.as_ref().len(), &self.limits).is_ok() => {
                groups.push_blocked(tag, frame, fid, self.serial);
            }
            Turn::Arrived if self.anything_moves(parked) => return Event::Wait,
            Turn::Arrived => {
                self.refuse(tag, no_room(), out);
                self.answered(tag);
            }
        }
        Event::Handled
    }

    /// A request of this tag is answered: the next one's turn has come.
    fn answered(&mut self, tag: Tag) {
        if let Some(groups) = &mut self.groups {
            groups.answered(tag);
        }
    }

    /// The same, unless it is being carried out.
    fn answered_at_once(&mut self, tag: Tag) {
        if !self.tags.contains_key(&tag) {
            self.answered(tag);
        }
    }

    /// Brings the result of a request.
    pub fn complete(&mut self, id: RequestId, result: Result<Done<F, P>, Error>, out: &mut Outbox<P>) {
        let Some(request) = self.requests.remove(&id) else { return };
        let used = request.handles.map(|handle| handle.and_then(|handle| self.fids.get(handle)?.fid));
        for handle in request.handles.into_iter().flatten() {
            self.release(handle);
        }
        if request.void {
            // What it made must still be taken leave of.
            self.discard(&request, result);
        } else {
            self.tags.remove(&request.tag);
            // Cancelled before it changed anything: no reply, only the Rflush (flush(5)). A fid that was clunked is
            // gone all the same, and without a reply the client would believe that it is not.
            let undone = !matches!(request.after, After::Farewell { .. });
            let silent = undone && request.flushed && matches!(&result, Err(e) if e.errno == Errno::EINTR);
            let reply = self.settle(&request, result);
            let is_done = !silent && !reply.falls_short(request.after);
            let fits = silent || reply.push(request.tag, self.version, self.msize, out);
            if let Some(groups) = self.groups.as_mut().filter(|_| !is_done || !fits) {
                groups.failed(request.tag);
            }
            self.answered(request.tag);
            self.answer_flushes(&request.flushes, out);
        }
        if let Some(parting) = request.parting {
            self.part(request.after.new_fid(), parting, out);
        }
        if let Some(groups) = &mut self.groups {
            used.into_iter().chain([request.after.new_fid()]).flatten().for_each(|fid| groups.freed(fid));
        }
        self.finish_reset(out);
    }

    /// The next file to take leave of.
    pub fn poll_farewell(&mut self) -> Option<Farewell<F>> {
        let id = self.farewells.pop_front()?;
        let handle = self.fids.get(id)?;
        let fate = handle.fate.get_or_insert_default();
        let (remove_asked, mut error) = (fate.remove, fate.error.take());
        let refused = fate.refused;
        let remove_on_clunk = matches!(handle.mode, Mode::Open { remove: true, .. }) && !refused;
        let clunked = fate.request.is_some() && !refused;
        let xattr = match handle.take_xattr() {
            // A connection that was lost before its Tclunk sets nothing and removes nothing.
            Some(Ok(write)) => clunked.then_some(write),
            Some(Err(short)) => {
                error = error.or(Some(short));
                None
            }
            None => None,
        };
        let remove = (remove_asked || remove_on_clunk) && !handle.read_only;
        self.parting += 1;
        Some(Farewell { id: FarewellId(id.0), file: handle.file.clone(), error, xattr, remove })
    }

    /// Brings the result of a [`Farewell`].
    pub fn farewell_done(&mut self, id: FarewellId, result: Result<(), Error>, out: &mut Outbox<P>) {
        self.parting -= 1;
        let Some(handle) = self.fids.drop_handle(id.into()) else { return };
        let request = handle.fate.and_then(|fate| fate.request);
        if let Some(id) = request {
            self.complete(id, result.map(|()| Done::Unit), out);
        }
        self.finish_reset(out);
    }

    /// What waits for its turn or for a fid is never carried out, nor answered.
    pub fn drop_members(&mut self) {
        if let Some(groups) = &mut self.groups {
            groups.clear();
        }
    }

    /// The connection is lost, or must end: wake all waits; complete what is outstanding.
    pub fn hang_up(&mut self) {
        self.state = State::HungUp;
        self.frame_began = None;
        self.void_everything();
    }

    /// Admits a request: from now on its tag is in use.
    pub(super) fn admit(&mut self, tag: Tag, after: After, handles: [Option<HandleId>; 2]) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        for handle in handles.into_iter().flatten() {
            if let Some(handle) = self.fids.get(handle) {
                handle.uses += 1;
            }
        }
        let request =
            Outstanding { tag, after, handles, flushed: false, flushes: Vec::new(), void: false, parting: None };
        self.requests.insert(id, request);
        self.tags.insert(tag, (Owner::Request(id), self.serial));
        id
    }

    /// Ends the life of a handle whose fid is gone: its farewell comes when nothing uses it any more.
    pub(super) fn retire(&mut self, id: HandleId, fate: Fate) {
        let Some(handle) = self.fids.get(id) else { return };
        debug_assert!(handle.fate.is_none());
        handle.fate = Some(Box::new(fate));
        if handle.uses == 0 {
            self.farewells.push_back(id);
        }
    }

    /// What an outstanding request's completion needs to know.
    pub(super) fn after(&self, id: RequestId) -> Option<After> {
        self.requests.get(&id).map(|request| request.after)
    }

    /// The outstanding request that will make a reserved fid.
    pub(super) fn maker(&mut self, fid: Fid) -> Option<(RequestId, &mut Outstanding)> {
        let makes = |request: &Outstanding| !request.void && request.after.new_fid() == Some(fid);
        self.requests.iter_mut().find(|(_, request)| makes(request)).map(|(id, request)| (*id, request))
    }

    /// Requests that use a handle.
    pub(super) fn users(&mut self, handle: HandleId) -> Vec<RequestId> {
        if self.fids.get(handle).is_none_or(|handle| handle.uses == 0) {
            return Vec::new();
        }
        let uses = |request: &Outstanding| request.handles.contains(&Some(handle));
        self.requests.iter().filter(|(_, request)| uses(request)).map(|(id, _)| *id).collect()
    }

    /// Answers with an error at once.
    pub(super) fn refuse(&mut self, tag: Tag, error: Error, out: &mut Outbox<P>) {
        reply::Reply::<P>::Error(error).push(tag, self.version, self.msize, out);
        if let Some(groups) = &mut self.groups {
            groups.failed(tag);
        }
    }

    fn release(&mut self, id: HandleId) {
        let Some(handle) = self.fids.get(id) else { return };
        handle.uses -= 1;
        handle.exclusive = false;
        if handle.uses == 0 && handle.fate.is_some() {
            self.farewells.push_back(id);
        }
    }

    fn negotiate(&mut self, tag: Tag, msize: u32, version: &[u8], out: &mut Outbox<P>) -> Event<'static, F> {
        let answer = dialect::answer_version(version, msize, self.limits.msize);
        self.resets += 1;
        self.state = State::Resetting { tag, answer };
        self.void_everything();
        self.finish_reset(out);
        if matches!(self.state, State::Resetting { .. }) { Event::CancelAll } else { Event::Handled }
    }

    /// All requests and fids are void; what is outstanding completes without a reply.
    fn void_everything(&mut self) {
        for request in self.requests.values_mut() {
            request.void = true;
        }
        self.tags.clear();
        self.drop_members();
        for handle in self.fids.forget_all() {
            self.retire(handle, Fate::default());
        }
    }

    /// Answers the Tversion once everything before it is done, clunks included.
    fn finish_reset(&mut self, out: &mut Outbox<P>) {
        let State::Resetting { tag, answer: Answer { version, name, msize } } = self.state else { return };
        if !self.is_idle() {
            return;
        }
        out.push(tag, &R::Version { msize, version: name.as_bytes() }, Dialect::Plan9);
        match version {
            Some(version) => {
                self.version = version;
                self.epoch = None;
                self.groups = version.groups.then(Groups::default);
                self.msize = msize;
                self.state = State::Agreed;
            }
            None => {
                self.msize = MSIZE_MIN;
                self.state = State::Start { spoke: true };
            }
        }
    }

    /// flush(5): Rflush comes after the reply of the flushed request, if there is one, and never before it is done.
    /// What waits behind it in its tag is never carried out. What came after the Tflush is not touched, also where the
    /// Tflush waited for its turn.
    fn flush(&mut self, tag: Tag, oldtag: Tag, out: &mut Outbox<P>) -> Event<'static, F> {
        if let Some(groups) = self.groups.as_mut().filter(|_| tag != oldtag) {
            groups.flush(oldtag, self.serial);
        }
        let id = match self.tags.get(&oldtag).filter(|(_, serial)| *serial < self.serial) {
            // Not outstanding: answered already, never sent, or sent after it.
            None => {
                out.push(tag, &R::Flush {}, self.version);
                return Event::Handled;
            }
            // A flush of a flush is answered behind it, and so behind the request both wait for.
            Some((Owner::Request(id) | Owner::Flush(id), _)) => *id,
        };
        let Some(request) = self.requests.get_mut(&id) else { return Event::Handled };
        request.flushes.push(tag);
        let first = !core::mem::replace(&mut request.flushed, true);
        self.tags.insert(tag, (Owner::Flush(id), self.serial));
        if first { Event::Cancel(Vec::from([id])) } else { Event::Handled }
    }

    fn answer_flushes(&mut self, flushes: &[Tag], out: &mut Outbox<P>) {
        for tag in flushes {
            self.tags.remove(tag);
            self.answered(*tag);
            out.push(*tag, &R::Flush {}, self.version);
        }
    }
}
