//! The session: requests between their T and their R.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::ServerMisbehaved;
use super::expect::{Expect, Outcome};
use super::fids::{Fids, Parting};
use super::line::{CHAIN_MAX, Line, Pending, Waiter};
use crate::dialect::{Dialect, Version};
use crate::error::{Errno, Error};
use crate::message::{Octal, R, T, info};
use crate::n1::streamend;
use crate::print::printable;
use crate::types::{Fid, MAXWELEM, Tag};
use crate::wire::{DecodeError, split_frame};

/// What a session allows itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Calls outstanding, 1 to 30,000. A server may stop reading at fewer, which is its way to slow us down.
    pub calls: usize,
    /// Clunks of abandoned fids outstanding, 1 to 2,500, and as many ends of streams that nobody came for.
    pub clunks: usize,
}

/// Probes outstanding.
const PROBES_MAX: usize = 8;

/// The most calls, and the most clunks, that a session allows itself. Each call may need a second tag, for its Tflush;
/// so all of them together leave some of the 65,535 tags free at any time, whatever the peer or the caller does.
const CALLS_MAX: usize = 30_000;
const CLUNKS_MAX: usize = 2_500;
const _: () = assert!(2 * CALLS_MAX + 2 * CLUNKS_MAX + PROBES_MAX < Tag::NONE.0 as usize);

impl Default for Limits {
    /// 8,192 calls: 1,000 small files and more. It is twice what a server of groups lets wait (docs/protocol.md, "Limits"), which stops reading
    /// for as long; over a distance most are on the way. 64 clunks: enough to fill a round trip without a burst in front of the calls.
    fn default() -> Limits {
        Limits { calls: 8192, clunks: 64 }
    }
}

/// Why [`Session::call`] did not begin a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// [`Limits::calls`] are outstanding: call again after the next reply.
    #[error("too many requests are outstanding")]
    Full,
    /// [`Session::call_behind`]: 64 of the chain are unanswered: call again after its next reply.
    #[error("too many requests are chained")]
    ChainFull,
    /// [`Session::call_behind`]: all of the chain is answered, or it was given up.
    #[error("no request that waits has tag {0}")]
    NoChain(Tag),
    /// [`Session::call_behind`]: a Tremove of a fid that may be the directory's; see [`Session::is_uncreated`].
    #[error("nothing says that fid {0} is of the file that a Tcreate was to make")]
    Uncreated(Fid),
    /// It is not established, or was parted with.
    #[error("fid {0} is not one of this session")]
    UnknownFid(Fid),
    /// A newfid that [`Session::new_fid`] gave and no request has named yet is needed.
    #[error("fid {0} is not a new one")]
    FidInUse(Fid),
    /// The frame would be over msize; `size` counts the data too.
    #[error("a message of {size} bytes does not fit the msize of {msize}")]
    TooLarge { size: usize, msize: u32 },
    /// The dialect agreed has no such message.
    #[error("{version} has no {message}")]
    NotInDialect { message: &'static str, version: Version },
    /// Tversion, which would end the session, or Tflush: see [`Session::cancel`].
    #[error("{0} is not for callers")]
    NotACall(&'static str),
    /// walk(5) allows 16.
    #[error("a walk of {0} names")]
    TooManyNames(usize),
    /// Its length would not fit its two bytes.
    #[error("a string of {message} is over 65,535 bytes")]
    StringTooLong { message: &'static str },
}

/// What a frame from the server means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// The oldest call with this tag succeeded; the tag is free again unless others are chained behind it. `made`: the newfid
    /// that the server knows now. A walk that ended early made none, and its newfid is not the caller's any more; nor is one
    /// that a Tclunk or Tremove behind it is to end.
    Reply { tag: Tag, reply: R<'a>, made: Option<Fid> },
    /// The server refused the oldest call with this tag, or a fid that it names was not made. The tag is free again unless
    /// others are chained behind it.
    Failed { tag: Tag, error: Error },
    /// It answers something that nobody waits for.
    Settled,
}

/// Whether a request that was called is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    Now,
    /// When [`Session::poll_turn`] tells: the caller keeps it until then.
    Later,
}

/// What becomes of the oldest request of a chain that was not sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Due {
    /// It is to be sent now.
    Send { tag: Tag },
    /// It is never sent, for a fid that it names was not made; this is its answer.
    Failed { tag: Tag, error: Error },
}

/// See the [module](super).
#[derive(Debug)]
pub struct Session {
    version: Version,
    msize: u32,
    limits: Limits,
    pending: BTreeMap<Tag, Line>,
    /// Where the search for a free tag begins.
    next_tag: u16,
    fids: Fids,
    /// Calls given up whose Tflush must be sent.
    to_flush: VecDeque<Tag>,
    /// Streams of `.n1` that nobody will come for, and the server is not told yet.
    to_end: VecDeque<u32>,
    /// Chains whose next request may be sent, or fails.
    turns: VecDeque<Tag>,
    calls: usize,
    clunks: usize,
    /// Ends of streams that were sent and are not answered.
    ends: usize,
    /// Probes that were sent and are not answered.
    probes: usize,
    to_probe: bool,
    /// Begun so far.
    requests: u64,
    /// Those of [`Pending::unattended`].
    unattended: BTreeSet<u64>,
    next_unattended: u64,
    /// Sent, and answered.
    flushes: (u64, u64),
    counts: Box<[u64; 256]>,
    clunks_held_back: bool,
}

impl Session {
    /// A session on a connection that agreed on `version` and `msize`. Limits out of their ranges are brought into them.
    pub fn new(version: impl Into<Version>, msize: u32, limits: Limits) -> Session {
        let limits = Limits { calls: limits.calls.clamp(1, CALLS_MAX), clunks: limits.clunks.clamp(1, CLUNKS_MAX) };
        Session {
            version: version.into(),
            msize,
            limits,
            pending: BTreeMap::new(),
            next_tag: 0,
            fids: Fids::default(),
            to_flush: VecDeque::new(),
            to_end: VecDeque::new(),
            turns: VecDeque::new(),
            calls: 0,
            clunks: 0,
            ends: 0,
            probes: 0,
            to_probe: false,
            requests: 0,
            unattended: BTreeSet::new(),
            next_unattended: 1,
            flushes: (0, 0),
            counts: Box::new([0; 256]),
            clunks_held_back: false,
        }
    }

    /// The dialect agreed.
    pub fn dialect(&self) -> Dialect {
        self.version.dialect
    }

    /// The version agreed. With groups a chain takes one round trip; else one for each of its requests.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether a Tstream is answered by the number of a stream, which is there until it is ended. In `.s` it has none.
    pub fn gives_streams(&self) -> bool {
        self.version.is_n1()
    }

    /// Bytes of the largest frame.
    pub fn msize(&self) -> u32 {
        self.msize
    }

    /// The msize agreed, where the session was made with one that was [presumed](super::Presumption).
    pub fn set_msize(&mut self, msize: u32) {
        self.msize = msize;
    }

    /// The lowest fid to use, in place of 0, before the first is taken: for a session that is only
    /// [presumed](super::Presumption), whose fids no server may know from anywhere.
    pub fn begin_fids_at(&mut self, first: Fid) {
        self.fids.begin_at(first);
    }

    /// Calls whose reply has not come, and those given up whose Rflush has not.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Requests that nobody waits for any more and that the server has not let go of: calls given up, until their reply
    /// or Rflush, and clunks of abandoned fids. No caller's deadline covers them, and each holds a place in [`Limits`].
    pub fn unattended(&self) -> usize {
        self.unattended.len()
    }

    /// The serial number of the oldest of [`Session::unattended`]; later ones are greater. When it stays the same for
    /// longer than a server may take for a Tflush or a Tclunk, the connection is of no use any more: what it holds
    /// will not come back.
    pub fn oldest_unattended(&self) -> Option<u64> {
        self.unattended.first().copied()
    }

    /// Requests begun so far: calls, and flushes, clunks, ends of streams and probes of the session's own.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The place, among all [`Session::requests`], of the one that the next reply with `tag` answers: from 0, in the order in
    /// which they were to be sent, and never given twice. `None` where none is outstanding.
    pub fn ordinal(&self, tag: Tag) -> Option<u64> {
        self.pending.get(&tag).and_then(|line| line.asked()?.ordinal)
    }

    /// Whether the tag is in use: by what is not answered, or until the Rflush of what was given up.
    pub fn holds(&self, tag: Tag) -> bool {
        self.pending.contains_key(&tag)
    }

    /// Fids that are not free: new ones, and those that the server knows or may know.
    pub fn fids(&self) -> usize {
        self.fids.len()
    }

    /// Flushes sent, and those of them that were answered. A server that answers none uses up the calls.
    pub fn flushes(&self) -> (u64, u64) {
        self.flushes
    }

    /// Whether nothing is outstanding and nothing is left to send, but clunks that are [held back](Session::hold_back_clunks), ends
    /// of streams that nobody came for, and [probes](Session::probe): the end of the connection ends them.
    pub fn is_idle(&self) -> bool {
        self.pending.values().all(Line::ends_with_connection) && !self.fids.has_leaving(self.clunks_held_back)
    }

    /// The same, but nothing outstanding besides is a clunk of a fid through which nothing was written: their replies tell nothing, and the
    /// end of the connection does what they do.
    pub fn is_done(&self) -> bool {
        let is_farewell = |line: &Line| {
            let clunk = line.members.front().filter(|_| line.waiter == Waiter::Clunk);
            let fid = clunk.filter(|clunk| clunk.number == TCLUNK).and_then(|clunk| clunk.expect.ends);
            line.ends_with_connection() || fid.is_some_and(|fid| !self.fids.is_written(fid))
        };
        self.pending.values().all(is_farewell)
            && !self.fids.has_leaving(self.clunks_held_back)
            && self.to_flush.is_empty()
    }

    /// Messages sent and received, by number (T even, R odd).
    pub fn counts(&self) -> &[u64; 256] {
        &self.counts
    }

    /// Keeps the number of a fid from becoming anybody else's, or no longer: for whoever names it in a chain before he knows
    /// whether it was made. It is kept no longer than until its owner abandons or releases it.
    pub fn keep(&mut self, fid: Fid, kept: bool) {
        self.fids.keep(fid, kept);
    }

    /// A fid to establish by the next call; it must be named by one as newfid, or given to [`Session::release`].
    ///
    /// From that call on it is the session's. It becomes the caller's with the [`Answer::Reply`] that says that it was
    /// made; with any other answer, and when the call is cancelled, the session clunks it if need be and frees it.
    /// The caller's ends with [`Session::abandon`], or with a call of Tclunk or Tremove. A fid that is not the caller's
    /// may be somebody else's by the next call: it must not be abandoned then.
    pub fn new_fid(&mut self) -> Option<Fid> {
        self.fids.take()
    }

    /// Whether a call that is no part of a chain may name the fid: its reply said that it was made, and it is its owner's.
    pub fn is_established(&self, fid: Fid) -> bool {
        self.fids.can_use(fid, None)
    }

    /// Whether requests that are not answered name the fid, those given up too: a Tclunk or Tremove called before they are
    /// done may overtake them at the server.
    pub fn is_named(&self, fid: Fid) -> bool {
        self.fids.is_named(fid)
    }

    /// Whether a Tcreate on the fid is unanswered, or made nothing: a Tremove might remove the directory, or does.
    pub fn is_uncreated(&self, fid: Fid) -> bool {
        self.fids.is_uncreated(fid)
    }

    /// Takes back a fid of [`Session::new_fid`] that no call named; without effect on any other.
    pub fn release(&mut self, fid: Fid) {
        self.fids.release(fid);
    }

    /// Begins a request: appends its head to `out` (the caller sends the payload behind it) and returns its tag.
    ///
    /// Fails without effect. A fid that the request would have established stays to be released.
    pub fn call(&mut self, request: &T<'_>, out: &mut Vec<u8>) -> Result<Tag, Refused> {
        let expect = self.checked(request, None)?;
        let tag = self.take_tag();
        self.encode(tag, request, out)?;
        self.begin(tag, request.number(), expect, Waiter::Caller);
        if let Some(line) = self.pending.get_mut(&tag) {
            line.count(guards(request));
        }
        self.calls += 1;
        Ok(tag)
    }

    /// Begins a request that is to be carried out when those called with `tag` are done; it may name fids that they are to
    /// make. `tag` must be the caller's, of a call of which not all is answered.
    ///
    /// With groups the request is sent at once ([`Turn::Now`]). Without, the caller keeps it, head and payload, until
    /// [`Session::poll_turn`] says that it has its turn ([`Turn::Later`]). Either way every request of the chain has its own
    /// answer, in the order in which they were called, and one that needs a fid that was not made fails with `EBADF`.
    ///
    /// Behind a Tguard the tag stays the caller's until all that it guards was called, though all be answered that was; a
    /// caller that has no more to call must give it up ([`Session::cancel`]), which ends the guard by a Tflush.
    ///
    /// Fails without effect, as [`Session::call`].
    pub fn call_behind(&mut self, tag: Tag, request: &T<'_>, out: &mut Vec<u8>) -> Result<Turn, Refused> {
        let line = self.pending.get(&tag).filter(|line| line.waiter == Waiter::Caller);
        let unanswered = line.map(|line| line.members.len()).ok_or(Refused::NoChain(tag))?;
        if unanswered >= CHAIN_MAX {
            return Err(Refused::ChainFull);
        }
        let expect = self.checked(request, Some(tag))?;
        if let T::Remove { fid } = *request
            && self.is_uncreated(fid)
        {
            return Err(Refused::Uncreated(fid));
        }
        self.encode(tag, request, out)?;
        let relies = expect.uses.map(|used| used.filter(|&fid| self.fids.is_made(fid)));
        self.fids.begin(&expect, tag);
        // Where none is, the guard has kept the room of one.
        self.calls += usize::from(unanswered > 0);
        let number = request.number();
        let ordinal = self.version.groups.then(|| self.send(number));
        if let Some(line) = self.pending.get_mut(&tag) {
            let to_come = line.to_come;
            line.count(guards(request));
            line.members.push_back(Pending { expect, number, ordinal, relies, doomed: false, to_come });
        }
        Ok(if ordinal.is_some() { Turn::Now } else { Turn::Later })
    }

    /// The next request of a chain that has its turn, where it was called [`Turn::Later`]. To be called until it gives
    /// nothing, after every frame from the server.
    pub fn poll_turn(&mut self) -> Option<Due> {
        while let Some(tag) = self.turns.pop_front() {
            // It may have been given up since.
            let Some(&due) = self.pending.get(&tag).and_then(Line::due) else { continue };
            if !due.doomed {
                let ordinal = self.send(due.number);
                if let Some(first) = self.pending.get_mut(&tag).and_then(|line| line.members.front_mut()) {
                    first.ordinal = Some(ordinal);
                }
                return Some(Due::Send { tag });
            }
            self.fids.undo(&due.expect);
            self.calls -= 1;
            self.answered(tag, due.expect.makes, Outcome::Nothing);
            return Some(Due::Failed { tag, error: not_made() });
        }
        None
    }

    /// What the reply may be, if the request may be called.
    fn checked(&self, request: &T<'_>, chain: Option<Tag>) -> Result<Expect, Refused> {
        if self.calls >= self.limits.calls {
            return Err(Refused::Full);
        }
        self.check(request)?;
        let expect = Expect::of(request, self.dialect());
        self.check_fids(&expect, chain)?;
        Ok(expect)
    }

    fn encode(&self, tag: Tag, request: &T<'_>, out: &mut Vec<u8>) -> Result<(), Refused> {
        let start = out.len();
        request.encode_head(tag, self.version, out);
        let size = out.len() - start + request.payload().len();
        if size > self.msize as usize {
            out.truncate(start);
            return Err(Refused::TooLarge { size, msize: self.msize });
        }
        Ok(())
    }

    fn check(&self, request: &T<'_>) -> Result<(), Refused> {
        let message = request.name();
        if info(request.number(), self.version).is_none() {
            return Err(Refused::NotInDialect { message, version: self.version });
        }
        match request {
            T::Version { .. } | T::Flush { .. } => Err(Refused::NotACall(message)),
            T::Walk { wnames, .. } if wnames.len() > MAXWELEM => Err(Refused::TooManyNames(wnames.len())),
            _ if request.is_overlong() => Err(Refused::StringTooLong { message }),
            _ => Ok(()),
        }
    }

    /// Nothing but its own chain may name a fid before the reply that establishes it, for 9P promises no order among others.
    fn check_fids(&self, expect: &Expect, chain: Option<Tag>) -> Result<(), Refused> {
        if let Some(fid) = expect.uses.into_iter().flatten().find(|&fid| !self.fids.can_use(fid, chain)) {
            return Err(Refused::UnknownFid(fid));
        }
        match expect.makes {
            Some(fid) if !self.fids.knows(fid) => Err(Refused::UnknownFid(fid)),
            Some(fid) if !self.fids.can_make(fid) => Err(Refused::FidInUse(fid)),
            _ => Ok(()),
        }
    }

    /// Gives up a call, or what is unanswered of a chain: nobody waits for it any more, and nothing more is told of it. What was
    /// not sent never is. A clunk that is alone goes on; everything else is flushed, and a fid that a chain was to clunk is
    /// clunked all the same. Without effect on a tag of which all was answered: from then on it may be another call's.
    pub fn cancel(&mut self, tag: Tag) {
        let Some(line) = self.pending.get_mut(&tag).filter(|line| line.waiter == Waiter::Caller) else { return };
        let unsent = line.take_unsent();
        for pending in unsent.iter() {
            self.fids.undo(&pending.expect);
        }
        self.calls -= unsent.len();
        if line.members.is_empty() && line.to_come == 0 {
            return self.end(tag);
        }
        if line.to_come == 0 && line.members.iter().all(|pending| pending.expect.ends.is_some()) {
            line.waiter = Waiter::Gone;
        } else {
            line.waiter = Waiter::GoneUnflushed;
            self.to_flush.push_back(tag);
        }
        let unattended = self.unattend();
        if let Some(line) = self.pending.get_mut(&tag) {
            line.unattended = unattended;
        }
    }

    /// Takes a call back of which the caller has sent no byte, and will send none: as if it had never been, but that a
    /// newfid of it is not the caller's any more. Its tag is free. Says whether there was such a call: a clunk cannot be
    /// taken back, nor a chain, nor what was given up or answered before.
    pub fn withdraw(&mut self, tag: Tag) -> bool {
        let Some(line) = self.pending.get(&tag).filter(|line| line.waiter == Waiter::Caller) else { return false };
        let Some(&Pending { expect, number, .. }) =
            line.asked().filter(|only| line.members.len() == 1 && only.to_come == 0)
        else {
            return false;
        };
        if expect.ends.is_some() {
            return false;
        }
        self.counts[usize::from(number)] -= 1;
        self.fids.undo(&expect);
        self.calls -= 1;
        self.end(tag);
        true
    }

    /// The same for the last request of a chain, or for one that is alone, a clunk or not: as if it had never been called, but that
    /// its newfid is not the caller's any more, and that a fid that it was to end is clunked. For who gives all of a chain up, from
    /// its end on; [`Session::cancel`] does the rest.
    pub fn withdraw_last(&mut self, tag: Tag) -> bool {
        let line = self.pending.get_mut(&tag).filter(|line| line.waiter == Waiter::Caller);
        let Some((last, is_over)) = line.and_then(|line| {
            let last = line.members.pop_back()?;
            line.to_come = last.to_come;
            Some((last, line.members.is_empty() && line.to_come == 0))
        }) else {
            return false;
        };
        let keeps_room = line_len(&self.pending, tag) == 0 && !is_over;
        if last.ordinal.is_some() {
            self.counts[usize::from(last.number)] -= 1;
        }
        self.fids.undo(&last.expect);
        self.calls -= usize::from(!keeps_room);
        if is_over {
            self.end(tag);
        }
        true
    }

    fn unattend(&mut self) -> u64 {
        let number = self.next_unattended;
        self.next_unattended += 1;
        self.unattended.insert(number);
        number
    }

    /// Parts with a fid: [`Session::poll_transmit`] sends the Tclunk, or the Tremove, as soon as no request names it. One
    /// that no call named is released; one that a call is to make is clunked when it was made.
    pub fn abandon(&mut self, fid: Fid, parting: Parting) {
        self.fids.abandon(fid, parting);
    }

    /// While this holds, [`Session::poll_transmit`] sends no clunk of a fid through which nothing was written: their replies tell
    /// nothing, and the end of the connection does what they do. But 64 are held back at most.
    pub fn hold_back_clunks(&mut self, hold: bool) {
        self.clunks_held_back = hold;
    }

    /// Parts with a stream of `.n1` for whose bytes nobody will come: [`Session::poll_transmit`] tells the server.
    pub fn end_stream(&mut self, id: u32) {
        self.to_end.push_back(id);
    }

    /// Asks for something that every server answers at once and that concerns nothing: a Tflush of its own tag, by which nothing is outstanding
    /// (flush(5)). For who wants something to come behind what may be lost. [`Session::poll_transmit`] sends it, unless as many as 8 are outstanding.
    pub fn probe(&mut self) {
        self.to_probe = true;
    }

    /// Appends one probe, flush, clunk or end of a stream that is due, and says whether there was one.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        if core::mem::take(&mut self.to_probe) && self.probes < PROBES_MAX {
            self.probes += 1;
            let tag = self.take_tag();
            self.send_own_as(tag, &T::Flush { oldtag: tag }, Waiter::Probe, out);
            return true;
        }
        while let Some(oldtag) = self.to_flush.pop_front() {
            // It may have been answered since.
            let Some(line) = self.pending.get_mut(&oldtag) else { continue };
            if line.waiter != Waiter::GoneUnflushed {
                continue;
            }
            line.waiter = Waiter::Flushed;
            self.flushes.0 += 1;
            self.send_own(&T::Flush { oldtag }, Waiter::Flush(oldtag), out);
            return true;
        }
        // Apart from the clunks: a server takes as long for one as what moves the stream's bytes does.
        if self.ends < self.limits.clunks
            && let Some(id) = self.to_end.pop_front()
        {
            self.ends += 1;
            self.send_own(&T::Streamend { id, flags: Octal(streamend::ABORT) }, Waiter::End, out);
            return true;
        }
        if self.clunks < self.limits.clunks
            && let Some((fid, parting)) = self.fids.pop_leaving(self.clunks_held_back)
        {
            let request = match parting {
                Parting::Clunk => T::Clunk { fid },
                Parting::Remove => T::Remove { fid },
            };
            self.clunks += 1;
            self.send_own(&request, Waiter::Clunk, out);
            return true;
        }
        false
    }

    fn send_own(&mut self, request: &T<'_>, waiter: Waiter, out: &mut Vec<u8>) {
        let tag = self.take_tag();
        self.send_own_as(tag, request, waiter, out);
    }

    fn send_own_as(&mut self, tag: Tag, request: &T<'_>, waiter: Waiter, out: &mut Vec<u8>) {
        request.encode_head(tag, self.version, out);
        self.begin(tag, request.number(), Expect::of(request, self.dialect()), waiter);
    }

    fn begin(&mut self, tag: Tag, number: u8, expect: Expect, waiter: Waiter) {
        self.fids.begin(&expect, tag);
        let unattended = if waiter == Waiter::Clunk { self.unattend() } else { 0 };
        let ordinal = Some(self.send(number));
        let pending = Pending { expect, number, ordinal, relies: [None; 2], doomed: false, to_come: 0 };
        self.pending.insert(tag, Line::new(pending, waiter, unattended));
    }

    /// Counts a request that is to be sent, and gives its ordinal.
    fn send(&mut self, number: u8) -> u64 {
        self.counts[usize::from(number)] += 1;
        self.requests += 1;
        self.requests - 1
    }

    /// The next free tag, round and round: a reply that comes late, from a server that does not keep to flush(5), then
    /// meets a tag on which nothing is outstanding, and not another request's. One is free: see [`CALLS_MAX`].
    fn take_tag(&mut self) -> Tag {
        loop {
            let tag = Tag(self.next_tag);
            self.next_tag = (self.next_tag + 1) % Tag::NONE.0;
            if !self.pending.contains_key(&tag) {
                return tag;
            }
        }
    }

    /// Takes one whole frame from the server.
    pub fn handle_frame<'f>(&mut self, frame: &'f [u8]) -> Result<Answer<'f>, ServerMisbehaved> {
        let (header, body) = split_frame(frame).map_err(ServerMisbehaved::Frame)?;
        let tag = header.tag;
        if header.size > self.msize {
            let (size, msize) = (header.size, self.msize);
            return Err(ServerMisbehaved::Frame(DecodeError::SizeTooLarge { size, msize }));
        }
        let Some(row) = info(header.kind, self.version) else {
            return Err(ServerMisbehaved::UnknownType(header.kind));
        };
        if header.kind % 2 == 0 {
            return Err(ServerMisbehaved::RequestFromServer(row.name));
        }
        let line = self.pending.get(&tag).ok_or(ServerMisbehaved::UnknownTag(tag))?;
        let waiter = line.waiter;
        let &Pending { expect, doomed, .. } = line.asked().ok_or(ServerMisbehaved::UnknownTag(tag))?;
        let reply = R::decode(header.kind, body, self.version)
            .map_err(|error| ServerMisbehaved::Body { name: row.name, error })?;
        let mut failure = failure(&reply, self.dialect())?;
        if failure.is_none() {
            if header.kind != expect.reply {
                return Err(ServerMisbehaved::WrongType { request: expect.request, reply: row.name });
            }
            expect.check(&reply, self.dialect())?;
        }
        let mut outcome = expect.outcome(&reply);
        if doomed {
            // Servers that make a fid by half a walk clunk it, too: nothing is wrong with that.
            if failure.is_none() && reply != (R::Clunk {}) {
                return Err(ServerMisbehaved::FidNeverMade(expect.request));
            }
            // In words of its own each server would say the same.
            failure = Some(not_made());
            outcome = Outcome::Nothing;
        }
        self.counts[usize::from(header.kind)] += 1;
        if let Waiter::Flush(oldtag) = waiter {
            self.flushes.1 += 1;
            self.end(tag);
            self.flushed(oldtag, failure.is_none());
            return Ok(Answer::Settled);
        }
        let made = expect.makes.filter(|&fid| outcome == Outcome::Success && !self.fids.is_ending(fid));
        self.fids.settle(&expect, outcome, waiter == Waiter::Caller);
        let is_last = line_len(&self.pending, tag) == 1;
        match waiter {
            // Its tag, and its room, stay in use until the Rflush (flush(5)), or until its guard has what it guards.
            Waiter::Flushed if is_last => {}
            Waiter::Caller | Waiter::GoneUnflushed if is_last && self.is_guarded(tag) => {}
            Waiter::Clunk => self.clunks -= 1,
            Waiter::End => self.ends -= 1,
            Waiter::Probe => self.probes -= 1,
            _ => self.calls -= 1,
        }
        self.answered(tag, expect.makes, outcome);
        if let (R::Stream { id, .. }, true) = (&reply, self.gives_streams() && waiter != Waiter::Caller) {
            self.end_stream(*id);
        }
        Ok(match (waiter, failure) {
            (Waiter::Caller, None) => Answer::Reply { tag, reply, made },
            (Waiter::Caller, Some(error)) => Answer::Failed { tag, error },
            _ => Answer::Settled,
        })
    }

    /// The oldest member of a line has its answer: those behind it know what it made, and the next one has its turn.
    fn answered(&mut self, tag: Tag, makes: Option<Fid>, outcome: Outcome) {
        let Some(line) = self.pending.get_mut(&tag) else { return };
        line.members.pop_front();
        if let Some(fid) = makes {
            line.made(fid, outcome);
        }
        if line.due().is_some() {
            self.turns.push_back(tag);
        } else if line.members.is_empty() && line.waiter != Waiter::Flushed && line.to_come == 0 {
            self.end(tag);
        }
    }

    /// Whether a Tguard of the tag waits for requests that were not called yet; see [`Session::call_behind`].
    pub fn is_guarded(&self, tag: Tag) -> bool {
        self.pending.get(&tag).is_some_and(|line| line.to_come > 0)
    }

    /// The Tflush of `oldtag` was answered. After an Rflush, whatever has not been answered never will be, and never
    /// happened. After an error, which flush(5) forbids, nothing was flushed: servers without flush (libixp's, where
    /// the file server has none) answer the old request in its time, and its tag must not be another's then.
    fn flushed(&mut self, oldtag: Tag, done: bool) {
        let Some(line) = self.pending.get_mut(&oldtag) else { return };
        if !done && !line.members.is_empty() {
            line.waiter = Waiter::Gone;
            line.to_come = 0;
            return;
        }
        let never = core::mem::take(&mut line.members);
        for pending in never.iter() {
            self.fids.undo(&pending.expect);
        }
        self.calls -= never.len().max(1);
        self.end(oldtag);
    }

    fn end(&mut self, tag: Tag) {
        if let Some(line) = self.pending.remove(&tag) {
            self.unattended.remove(&line.unattended);
        }
    }
}

/// How many requests behind it a Tguard guards.
fn guards(request: &T<'_>) -> Option<u16> {
    if let T::Guard { members, .. } = *request { Some(members) } else { None }
}

fn line_len(pending: &BTreeMap<Tag, Line>, tag: Tag) -> usize {
    pending.get(&tag).map_or(0, |line| line.members.len())
}

/// The answer to what names a fid that the chain before it did not make.
fn not_made() -> Error {
    Error::with_text(Errno::EBADF, "unknown fid")
}

/// The error that a reply tells, if it is one.
fn failure(reply: &R<'_>, dialect: Dialect) -> Result<Option<Error>, ServerMisbehaved> {
    match *reply {
        R::Lerror { ecode: 0, .. } => Err(ServerMisbehaved::ErrorZero),
        R::Lerror { ecode, retry_ms, text } => {
            let mut error = with_text(Errno(ecode), text);
            error.retry_ms = retry_ms;
            Ok(Some(error))
        }
        R::Error { ename, errno } => {
            // .u's ERRUNDEF is all ones; 0 comes from servers that only have a text.
            let known = dialect == Dialect::Unix && errno != 0 && errno != u32::MAX;
            let errno = if known { Errno(errno) } else { Errno::from_text(ename) };
            Ok(Some(with_text(errno, ename)))
        }
        _ => Ok(None),
    }
}

/// A text that says nothing is worth less than the number's own.
fn with_text(errno: Errno, text: &[u8]) -> Error {
    let text = printable(text, TEXT_MAX);
    if text.trim().is_empty() { Error::new(errno) } else { Error::with_text(errno, Cow::Owned(text)) }
}

/// The number of Tclunk.
const TCLUNK: u8 = 120;

/// Characters of a server's text that are kept. Plan 9's own are at most 128 bytes (ERRMAX, errstr(2)).
const TEXT_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn text(ename: &[u8]) -> String {
        let error = failure(&R::Error { ename, errno: 0 }, Dialect::Plan9).unwrap().unwrap();
        error.text().into_owned()
    }

    #[test]
    fn an_error_is_told_in_words_that_a_terminal_can_show() {
        assert_eq!(text(b"no such thing"), "no such thing");
        assert_eq!(text(b"\x1b[2J\x9b31m\xc2\x9bm"), r"\u{1b}[2J\x9b31m\u{9b}m");
        for empty in [&b""[..], b" \t "] {
            assert!(!text(empty).trim().is_empty());
        }
        let long = text(&[b'x'; 65_000]);
        assert_eq!(long.chars().count(), TEXT_MAX + 1);
        assert!(long.ends_with('…'));
    }
}
