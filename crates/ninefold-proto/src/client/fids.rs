//! The client's fids: which are free, which the server knows, which are in use by requests, which wait to be clunked.
//!
//! A fid goes from new (taken, the server does not know it) to making (a request that is to establish it is
//! outstanding) to held (established), when its owner parts with it to leaving (to be clunked; no request names it any
//! more), to gone (its Tclunk or Tremove was answered, or the request that was to establish it did not), and is free again when
//! no request outstanding names it and its owner does not [keep](Fids::keep) it. In a chain all of that may be asked for
//! before the first reply: so that a Tclunk or Tremove is outstanding is a mark beside the state.

use alloc::collections::{BTreeMap, VecDeque};

use super::expect::{Expect, Outcome};
use crate::types::{Fid, Tag};

/// Clunks held back at a time, at most: what a server keeps for them is then little beside what it keeps for a connection.
const HELD_BACK_MAX: usize = 64;

/// How the client parts with a fid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parting {
    /// Tclunk.
    Clunk,
    /// Tremove: the file goes too. For a file that must not be left behind half-written. A fid on which a create failed,
    /// or was given up in time, names the directory still, whether or not its owner knows: it is clunked.
    Remove,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    New,
    /// By the calls of this tag.
    Making(Tag),
    Held,
    Leaving,
    /// The server does not know it. Requests that named it are outstanding, and it may not know yet which file they
    /// meant, so that the number cannot be another file's.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    state: State,
    /// Its Tclunk or Tremove is outstanding.
    ending: bool,
    /// Its owner keeps the number.
    kept: bool,
    /// Requests outstanding that name it, other than the one that is to establish it.
    uses: u32,
    /// Its owner is gone.
    parting: Option<Parting>,
    /// A create on it made nothing, or has made nothing yet.
    uncreated: bool,
    /// Something may have been written through it.
    written: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fids {
    held: BTreeMap<Fid, Holding>,
    /// The one that is free for the longest is taken first: whoever parts with a fid that is no longer his then
    /// hardly ever meets another owner of the number.
    free: VecDeque<Fid>,
    /// The lowest fid never used.
    next: u32,
    /// Those in this state, in its order.
    leaving: VecDeque<(Fid, Parting)>,
}

impl Fids {
    /// A fid that the server does not know; `None` when all 2^32 - 1 are in use.
    pub fn take(&mut self) -> Option<Fid> {
        let fid = match self.free.pop_front() {
            Some(fid) => fid,
            None => {
                let fid = Fid(self.next);
                self.next = self.next.checked_add(1)?;
                fid
            }
        };
        let holding = Holding {
            state: State::New,
            ending: false,
            kept: false,
            uses: 0,
            parting: None,
            uncreated: false,
            written: false,
        };
        self.held.insert(fid, holding);
        Some(fid)
    }

    /// The lowest fid to use, while none was taken.
    pub fn begin_at(&mut self, first: Fid) {
        if self.held.is_empty() && self.free.is_empty() {
            self.next = first.0;
        }
    }

    /// Takes back a new one.
    pub fn release(&mut self, fid: Fid) {
        if self.is(fid, State::New) {
            self.free(fid);
        }
    }

    /// Whether a request may name it: it is established, and nobody has parted with it. Where requests are chained under a
    /// tag it may also be about to be established by one of them.
    pub fn can_use(&self, fid: Fid, chain: Option<Tag>) -> bool {
        self.held.get(&fid).is_some_and(|holding| {
            let is_there = holding.state == State::Held || chain.is_some_and(|tag| holding.state == State::Making(tag));
            is_there && !holding.ending && holding.parting.is_none()
        })
    }

    /// Whether a request outstanding is to establish it.
    pub fn is_made(&self, fid: Fid) -> bool {
        self.held.get(&fid).is_some_and(|holding| matches!(holding.state, State::Making(_)))
    }

    /// Whether its Tclunk or Tremove is outstanding.
    pub fn is_ending(&self, fid: Fid) -> bool {
        self.held.get(&fid).is_some_and(|holding| holding.ending)
    }

    /// Whether a create on it made nothing, or is outstanding: it may be the directory's still.
    pub fn is_uncreated(&self, fid: Fid) -> bool {
        self.held.get(&fid).is_some_and(|holding| holding.uncreated)
    }

    /// The number is nobody else's, whatever becomes of the fid, until its owner abandons or releases it, or lets go of it here.
    pub fn keep(&mut self, fid: Fid, kept: bool) {
        if let Some(holding) = self.held.get_mut(&fid) {
            holding.kept = kept;
            self.leave_if_unused(fid);
        }
    }

    /// Whether a request may establish it: it is new.
    pub fn can_make(&self, fid: Fid) -> bool {
        self.is(fid, State::New)
    }

    /// Whether requests outstanding name it, other than the one that is to establish it.
    pub fn is_named(&self, fid: Fid) -> bool {
        self.held.get(&fid).is_some_and(|holding| holding.uses > 0)
    }

    /// Whether it is not free.
    pub fn knows(&self, fid: Fid) -> bool {
        self.held.contains_key(&fid)
    }

    /// Fids that are not free.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    fn is(&self, fid: Fid, state: State) -> bool {
        self.held.get(&fid).is_some_and(|holding| holding.state == state)
    }

    /// A request is called, or sent by the session itself.
    pub fn begin(&mut self, expect: &Expect, tag: Tag) {
        for fid in expect.uses.into_iter().flatten() {
            if let Some(holding) = self.held.get_mut(&fid) {
                holding.uses += 1;
            }
        }
        if let Some(holding) = expect.makes.and_then(|fid| self.held.get_mut(&fid)) {
            holding.state = State::Making(tag);
        }
        if let Some(holding) = expect.creates.and_then(|fid| self.held.get_mut(&fid)) {
            holding.uncreated = true;
        }
        if let Some(holding) = expect.writes.and_then(|fid| self.held.get_mut(&fid)) {
            holding.written = true;
        }
        if let Some(holding) = expect.ends.and_then(|fid| self.held.get_mut(&fid)) {
            holding.ending = true;
        }
    }

    /// Whether something may have been written through it.
    pub fn is_written(&self, fid: Fid) -> bool {
        self.held.get(&fid).is_some_and(|holding| holding.written)
    }

    /// A request is answered; `waited`: its caller is told.
    pub fn settle(&mut self, expect: &Expect, outcome: Outcome, waited: bool) {
        if let Some(holding) = expect.ends.and_then(|fid| self.held.get_mut(&fid)) {
            // Whatever the answer (clunk(5)).
            (holding.state, holding.ending) = (State::Gone, false);
        }
        self.end(expect, outcome, waited);
    }

    /// A request was never carried out, and never will be. A fid that it was to end is clunked: its owner had parted with it,
    /// but its file must not be removed by a request that was given up.
    pub fn undo(&mut self, expect: &Expect) {
        if let Some(holding) = expect.ends.and_then(|fid| self.held.get_mut(&fid)) {
            (holding.ending, holding.parting) = (false, Some(Parting::Clunk));
        }
        self.end(expect, Outcome::Nothing, false);
    }

    fn end(&mut self, expect: &Expect, outcome: Outcome, waited: bool) {
        for fid in expect.uses.into_iter().flatten() {
            if let Some(holding) = self.held.get_mut(&fid) {
                holding.uses -= 1;
            }
        }
        if let Some(holding) = expect.makes.and_then(|fid| self.held.get_mut(&fid)) {
            holding.state = if outcome == Outcome::Nothing { State::Gone } else { State::Held };
            holding.parting = match (outcome, holding.parting) {
                (Outcome::Success, None) if waited => None,
                (Outcome::Success, parting) => parting.or(Some(Parting::Clunk)),
                // To clunk a fid that the server may not know harms nobody; to remove whatever it names might.
                _ => Some(Parting::Clunk),
            };
        }
        if let Some(holding) = expect.creates.and_then(|fid| self.held.get_mut(&fid)) {
            holding.uncreated = outcome == Outcome::Nothing;
        }
        for fid in expect.uses.into_iter().chain([expect.makes]).flatten() {
            self.leave_if_unused(fid);
        }
    }

    /// The owner is gone: the fid is clunked when the last request that names it is done.
    pub fn abandon(&mut self, fid: Fid, parting: Parting) {
        match self.held.get_mut(&fid) {
            Some(Holding { state: State::New, .. }) => self.free(fid),
            Some(holding) => {
                // What a request outstanding is to end is as good as parted with.
                if matches!(holding.state, State::Making(_) | State::Held)
                    && !holding.ending
                    && holding.parting.is_none()
                {
                    holding.parting = Some(parting);
                }
                holding.kept = false;
                self.leave_if_unused(fid);
            }
            _ => {}
        }
    }

    fn leave_if_unused(&mut self, fid: Fid) {
        let Some(holding) = self.held.get_mut(&fid).filter(|holding| holding.uses == 0 && !holding.kept) else {
            return;
        };
        match (holding.state, holding.parting) {
            (State::Gone, _) => self.free(fid),
            (State::Held, Some(parting)) => {
                let parting = if holding.uncreated { Parting::Clunk } else { parting };
                holding.state = State::Leaving;
                self.leaving.push_back((fid, parting));
            }
            _ => {}
        }
    }

    /// The next fid to clunk. `held_back`: not one whose clunk can wait, while those that do are few.
    pub fn pop_leaving(&mut self, held_back: bool) -> Option<(Fid, Parting)> {
        let next = self.next_leaving(held_back)?;
        self.leaving.remove(next)
    }

    /// Whether [`Fids::pop_leaving`] has one.
    pub fn has_leaving(&self, held_back: bool) -> bool {
        self.next_leaving(held_back).is_some()
    }

    fn next_leaving(&self, held_back: bool) -> Option<usize> {
        if held_back && self.leaving.len() <= HELD_BACK_MAX {
            self.leaving.iter().position(|&(fid, parting)| parting == Parting::Remove || self.is_written(fid))
        } else {
            (!self.leaving.is_empty()).then_some(0)
        }
    }

    fn free(&mut self, fid: Fid) {
        self.held.remove(&fid);
        self.free.push_back(fid);
    }
}
