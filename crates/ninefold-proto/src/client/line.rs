//! What is outstanding under one tag: a call, one of the session's own requests, or a chain of calls.
//!
//! The members of a [`Line`] are answered in their order. Those of a chain are all sent at once where the server knows
//! groups; elsewhere each is sent when the one before it was answered, under the same tag, and until then it is unsent.

use super::expect::{Expect, Outcome};
use super::queue::Queue;
use crate::types::{Fid, Tag};

/// Calls of one tag that may be unanswered: no more than a server of groups must take (protocol.md, "Same-tag groups").
pub(super) const CHAIN_MAX: usize = 64;

/// A request that is not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub expect: Expect,
    /// Its message.
    pub number: u8,
    /// See [`Session::ordinal`](super::Session::ordinal); `None` while it is unsent.
    pub ordinal: Option<u64>,
    /// The fids it names that a member before it is to make.
    pub relies: [Option<Fid>; 2],
    /// A fid that it relies on was not made: it can only fail.
    pub doomed: bool,
    /// [`Line::to_come`] before it was called.
    pub to_come: u16,
}

/// Who waits for the replies of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiter {
    Caller,
    /// The calls were given up; their Tflush is not sent yet.
    GoneUnflushed,
    /// The calls were given up, and the server knows. The tag is in use until the Rflush, with all replies there or not.
    Flushed,
    /// The calls were given up, and only their own replies end them: clunks, in which there is nothing to flush, or calls whose
    /// Tflush was answered with an error.
    Gone,
    /// A Tflush of ours, of this tag.
    Flush(Tag),
    /// A clunk of ours.
    Clunk,
    /// The end of a stream, of ours. It is waited for as long as the server takes: it may have to wait for a file.
    End,
    /// Something of ours that is asked for so that it is answered.
    Probe,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Line {
    /// Unanswered, the oldest first.
    pub members: Queue<Pending>,
    pub waiter: Waiter,
    /// When its waiter went, in the order of all of them; 0 while there is one.
    pub unattended: u64,
    /// Requests that a Tguard of it guards and that have not been called yet: the server takes the next so many of the tag for
    /// them, whoever calls them. With nothing unanswered such a line still has its tag, and the room of one call.
    pub to_come: u16,
}

impl Line {
    /// Whether nobody need wait for it before the connection is ended.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.waiter, Waiter::End | Waiter::Probe)
    }

    pub fn new(first: Pending, waiter: Waiter, unattended: u64) -> Line {
        let mut members = Queue::default();
        members.push_back(first);
        Line { members, waiter, unattended, to_come: 0 }
    }

    /// One more is called; `guards`: of how many more it is the Tguard.
    pub fn count(&mut self, guards: Option<u16>) {
        self.to_come = self.to_come.saturating_sub(1).max(guards.unwrap_or(0));
    }

    /// The one that the next reply answers.
    pub fn asked(&self) -> Option<&Pending> {
        self.members.front().filter(|first| first.ordinal.is_some())
    }

    /// The one that was called, and has its turn to be sent.
    pub fn due(&self) -> Option<&Pending> {
        self.members.front().filter(|first| first.ordinal.is_none())
    }

    /// Takes back those that were not sent.
    pub fn take_unsent(&mut self) -> Queue<Pending> {
        self.members.split_off(|member| member.ordinal.is_some())
    }

    /// A member that was to make `fid` ended with `outcome`: those that rely on it may go on, or are doomed.
    pub fn made(&mut self, fid: Fid, outcome: Outcome) {
        for member in self.members.iter_mut() {
            for relied in member.relies.iter_mut().filter(|relied| **relied == Some(fid)) {
                *relied = None;
                member.doomed |= outcome != Outcome::Success;
            }
        }
    }
}
