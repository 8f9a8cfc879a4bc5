//! The session: requests between their T and their R.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use super::ServerMisbehaved;
use super::expect::Expect;
use super::fids::{Fids, Parting};
use crate::dialect::Dialect;
use crate::error::{Errno, Error};
use crate::message::{R, T, info};
use crate::types::{Fid, Tag};
use crate::wire::split_frame;

/// What a session allows itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Calls outstanding. A server may stop reading at fewer, which is its way to slow us down.
    pub calls: usize,
    /// Clunks outstanding that nobody waits for.
    pub clunks: usize,
}

impl Default for Limits {
    /// 1,024 calls: at 64 KiB each, 64 MiB on the way, more than 150 ms of 1 Gbit/s. 64 clunks: enough to fill a round
    /// trip without a burst in front of the calls.
    fn default() -> Limits {
        Limits { calls: 1024, clunks: 64 }
    }
}

/// Why [`Session::call`] did not begin a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// [`Limits::calls`] are outstanding: call again after the next reply.
    #[error("too many requests are outstanding")]
    Full,
    #[error("fid {0} is not one of this session")]
    UnknownFid(Fid),
    /// The frame would be over msize; `size` counts the data too.
    #[error("a message of {size} bytes does not fit the msize of {msize}")]
    TooLarge { size: usize, msize: u32 },
    /// The dialect agreed has no such message.
    #[error("{dialect} has no {message}")]
    NotInDialect { message: &'static str, dialect: Dialect },
}

/// What a frame from the server means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// The call with this tag succeeded. The tag is free again. `made`: the newfid that the server knows now; a walk that
    /// ended early made none, and its newfid is free again.
    Reply { tag: Tag, reply: R<'a>, made: Option<Fid> },
    /// The server refused the call with this tag. The tag is free again.
    Failed { tag: Tag, error: Error },
    /// It answers something that nobody waits for.
    Settled,
}

#[derive(Debug)]
struct Pending {
    expect: Expect,
    waiter: Waiter,
}

/// Who waits for a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiter {
    Caller,
    /// The call was given up; its Tflush is not sent yet.
    GoneUnflushed,
    /// The call was given up, and the server knows; `answered`: its reply came before the Rflush.
    Flushed {
        answered: bool,
    },
    /// A Tflush of ours, of this tag.
    Flush(Tag),
    /// A clunk of ours, or a clunk given up: there is nothing to flush in it.
    Nobody,
}

/// See the [module](super).
#[derive(Debug)]
pub struct Session {
    dialect: Dialect,
    msize: u32,
    limits: Limits,
    pending: BTreeMap<Tag, Pending>,
    free_tags: Vec<Tag>,
    next_tag: u16,
    fids: Fids,
    /// Calls given up whose Tflush must be sent.
    to_flush: VecDeque<Tag>,
    calls: usize,
    clunks: usize,
    /// Sent, and answered.
    flushes: (u64, u64),
    counts: Box<[u64; 256]>,
}

impl Session {
    /// A session on a connection that agreed on `dialect` and `msize`.
    pub fn new(dialect: Dialect, msize: u32, limits: Limits) -> Session {
        Session {
            dialect,
            msize,
            limits,
            pending: BTreeMap::new(),
            free_tags: Vec::new(),
            next_tag: 0,
            fids: Fids::default(),
            to_flush: VecDeque::new(),
            calls: 0,
            clunks: 0,
            flushes: (0, 0),
            counts: Box::new([0; 256]),
        }
    }

    /// The dialect agreed.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Bytes of the largest frame.
    pub fn msize(&self) -> u32 {
        self.msize
    }

    /// Calls whose reply, or whose Rflush, has not come yet.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Fids that the server knows or may know.
    pub fn fids(&self) -> usize {
        self.fids.len()
    }

    /// Flushes sent, and those of them that were answered. A server that answers none uses up the calls.
    pub fn flushes(&self) -> (u64, u64) {
        self.flushes
    }

    /// Whether nothing is outstanding and nothing is left to send.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.to_flush.is_empty() && !self.fids.has_leaving()
    }

    /// Messages sent and received, by number (T even, R odd).
    pub fn counts(&self) -> &[u64; 256] {
        &self.counts
    }

    /// A fid to establish by the next call; it must be named by one as newfid, or given to [`Session::release`].
    pub fn new_fid(&mut self) -> Option<Fid> {
        self.fids.take()
    }

    /// Takes back a fid of [`Session::new_fid`] that no call named.
    pub fn release(&mut self, fid: Fid) {
        self.fids.forget(fid);
    }

    /// Begins a request: appends its head to `out` (the caller sends the payload behind it) and returns its tag.
    ///
    /// Fails without effect. A fid that the request would have established stays to be released.
    pub fn call(&mut self, request: &T<'_>, out: &mut Vec<u8>) -> Result<Tag, Refused> {
        if self.calls >= self.limits.calls {
            return Err(Refused::Full);
        }
        if info(request.number(), self.dialect).is_none() {
            return Err(Refused::NotInDialect { message: request.name(), dialect: self.dialect });
        }
        let expect = Expect::of(request);
        if let Some(fid) = expect.uses.into_iter().flatten().chain(expect.makes).find(|&fid| !self.fids.knows(fid)) {
            return Err(Refused::UnknownFid(fid));
        }
        let start = out.len();
        let tag = self.take_tag();
        request.encode_head(tag, self.dialect, out);
        let size = out.len() - start + request.payload().len();
        if size > self.msize as usize {
            out.truncate(start);
            self.free_tags.push(tag);
            return Err(Refused::TooLarge { size, msize: self.msize });
        }
        self.begin(tag, request.number(), expect, Waiter::Caller);
        self.calls += 1;
        Ok(tag)
    }

    /// Gives up a call: nobody waits for it any more. A clunk goes on; everything else is flushed.
    pub fn cancel(&mut self, tag: Tag) {
        let Some(pending) = self.pending.get_mut(&tag) else { return };
        if pending.waiter != Waiter::Caller {
            return;
        }
        if pending.expect.ends.is_some() {
            pending.waiter = Waiter::Nobody;
            self.calls -= 1;
            self.clunks += 1;
        } else {
            pending.waiter = Waiter::GoneUnflushed;
            self.to_flush.push_back(tag);
        }
    }

    /// Parts with a fid: [`Session::poll_transmit`] sends the Tclunk, or the Tremove, as soon as no request names it.
    pub fn abandon(&mut self, fid: Fid, parting: Parting) {
        self.fids.abandon(fid, parting);
    }

    /// Appends one flush or clunk that is due, and says whether there was one.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        while let Some(oldtag) = self.to_flush.pop_front() {
            // It may have been answered since.
            let Some(pending) = self.pending.get_mut(&oldtag) else { continue };
            if pending.waiter != Waiter::GoneUnflushed {
                continue;
            }
            pending.waiter = Waiter::Flushed { answered: false };
            self.flushes.0 += 1;
            self.send_own(&T::Flush { oldtag }, Waiter::Flush(oldtag), out);
            return true;
        }
        if self.clunks < self.limits.clunks
            && let Some((fid, parting)) = self.fids.pop_leaving()
        {
            let request = match parting {
                Parting::Clunk => T::Clunk { fid },
                Parting::Remove => T::Remove { fid },
            };
            self.clunks += 1;
            self.send_own(&request, Waiter::Nobody, out);
            return true;
        }
        false
    }

    fn send_own(&mut self, request: &T<'_>, waiter: Waiter, out: &mut Vec<u8>) {
        let tag = self.take_tag();
        request.encode_head(tag, self.dialect, out);
        self.begin(tag, request.number(), Expect::of(request), waiter);
    }

    fn begin(&mut self, tag: Tag, number: u8, expect: Expect, waiter: Waiter) {
        self.counts[usize::from(number)] += 1;
        for fid in expect.uses.into_iter().flatten() {
            self.fids.use_by_request(fid);
        }
        self.pending.insert(tag, Pending { expect, waiter });
    }

    /// Tags never run out: calls, their flushes and the clunks are bounded far below 65,535.
    fn take_tag(&mut self) -> Tag {
        self.free_tags.pop().unwrap_or_else(|| {
            let tag = Tag(self.next_tag);
            self.next_tag += 1;
            tag
        })
    }

    /// Takes one whole frame from the server.
    pub fn handle_frame<'f>(&mut self, frame: &'f [u8]) -> Result<Answer<'f>, ServerMisbehaved> {
        let (header, body) = split_frame(frame).map_err(ServerMisbehaved::Frame)?;
        let tag = header.tag;
        let Some(row) = info(header.kind, self.dialect) else { return Err(ServerMisbehaved::UnknownType(header.kind)) };
        if header.kind % 2 == 0 {
            return Err(ServerMisbehaved::RequestFromServer(row.name));
        }
        let pending = self.pending.get(&tag).ok_or(ServerMisbehaved::UnknownTag(tag))?;
        let (expect, waiter) = (pending.expect, pending.waiter);
        if matches!(waiter, Waiter::Flushed { answered: true }) {
            return Err(ServerMisbehaved::UnknownTag(tag));
        }
        let reply = R::decode(header.kind, body, self.dialect)
            .map_err(|error| ServerMisbehaved::Body { name: row.name, error })?;
        let failure = failure(&reply, self.dialect)?;
        if failure.is_none() {
            if header.kind != expect.reply {
                return Err(ServerMisbehaved::WrongType { request: expect.request, reply: row.name });
            }
            expect.check(&reply, self.dialect)?;
        }
        self.counts[usize::from(header.kind)] += 1;
        // An error in answer to a Tflush, which flush(5) forbids and some servers send, says as much as an Rflush.
        if let Waiter::Flush(oldtag) = waiter {
            self.flushes.1 += 1;
            self.end(tag);
            self.flushed(oldtag);
            return Ok(Answer::Settled);
        }
        let made = expect.makes.filter(|_| failure.is_none() && expect.established(&reply));
        self.settle_fids(&expect, waiter, failure.is_none(), made.is_some());
        match waiter {
            Waiter::Flushed { .. } => {
                if let Some(pending) = self.pending.get_mut(&tag) {
                    pending.waiter = Waiter::Flushed { answered: true };
                }
                return Ok(Answer::Settled);
            }
            Waiter::Nobody => self.clunks -= 1,
            _ => self.calls -= 1,
        }
        self.end(tag);
        Ok(match (waiter, failure) {
            (Waiter::Caller, None) => Answer::Reply { tag, reply, made },
            (Waiter::Caller, Some(error)) => Answer::Failed { tag, error },
            _ => Answer::Settled,
        })
    }

    /// The Rflush for `oldtag` came: whatever has not been answered now never will be, and never happened.
    fn flushed(&mut self, oldtag: Tag) {
        let Some(pending) = self.pending.get(&oldtag) else { return };
        let (expect, waiter) = (pending.expect, pending.waiter);
        if waiter == (Waiter::Flushed { answered: false }) {
            self.settle_fids(&expect, waiter, false, false);
        }
        self.calls -= 1;
        self.end(oldtag);
    }

    fn settle_fids(&mut self, expect: &Expect, waiter: Waiter, success: bool, made: bool) {
        for fid in expect.uses.into_iter().flatten() {
            self.fids.request_done(fid);
        }
        if let Some(fid) = expect.ends {
            self.fids.forget(fid);
        }
        if let Some(fid) = expect.makes {
            match (success, made && waiter == Waiter::Caller) {
                (false, _) => self.fids.forget(fid),
                (true, true) => {}
                // Nobody waits for it any more, or a walk ended early. That makes no fid (walk(5)), but diod makes one
                // all the same; to clunk a fid that the server does not know harms nobody.
                (true, false) => self.fids.abandon(fid, Parting::Clunk),
            }
        }
    }

    fn end(&mut self, tag: Tag) {
        self.pending.remove(&tag);
        self.free_tags.push(tag);
    }
}

/// The error that a reply tells, if it is one.
fn failure(reply: &R<'_>, dialect: Dialect) -> Result<Option<Error>, ServerMisbehaved> {
    match *reply {
        R::Lerror { ecode: 0 } => Err(ServerMisbehaved::ErrorZero),
        R::Lerror { ecode } => Ok(Some(Error::new(Errno(ecode)))),
        R::Error { ename, errno } => {
            // .u's ERRUNDEF is all ones; 0 comes from servers that only have a text.
            let known = dialect == Dialect::Unix && errno != 0 && errno != u32::MAX;
            let errno = if known { Errno(errno) } else { Errno::from_text(ename) };
            Ok(Some(Error::with_text(errno, Cow::Owned(printable(ename)))))
        }
        _ => Ok(None),
    }
}

/// A server's text without anything that a terminal would obey.
fn printable(text: &[u8]) -> String {
    let mut out = String::new();
    for c in String::from_utf8_lossy(text).chars() {
        if c.is_control() {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
