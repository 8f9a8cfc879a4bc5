//! The client's fids: which are free, which are in use by requests, which wait to be clunked.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::types::Fid;

/// How the client parts with a fid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parting {
    /// Tclunk.
    Clunk,
    /// Tremove: the file goes too. For a file that must not be left behind half-written.
    Remove,
}

#[derive(Debug, Default)]
struct Holding {
    /// Requests outstanding that name it.
    uses: u32,
    /// Its owner is gone.
    parting: Option<Parting>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fids {
    held: BTreeMap<Fid, Holding>,
    free: Vec<Fid>,
    /// The lowest fid never used.
    next: u32,
    /// No request names them any more.
    leaving: VecDeque<(Fid, Parting)>,
}

impl Fids {
    /// A fid that the server does not know; `None` when all 2^32 - 1 are in use.
    pub fn take(&mut self) -> Option<Fid> {
        let fid = match self.free.pop() {
            Some(fid) => fid,
            None => {
                let fid = Fid(self.next);
                self.next = self.next.checked_add(1)?;
                fid
            }
        };
        self.held.insert(fid, Holding::default());
        Some(fid)
    }

    pub fn knows(&self, fid: Fid) -> bool {
        self.held.get(&fid).is_some_and(|holding| holding.parting.is_none())
    }

    pub fn len(&self) -> usize {
        self.held.len()
    }

    pub fn use_by_request(&mut self, fid: Fid) {
        if let Some(holding) = self.held.get_mut(&fid) {
            holding.uses += 1;
        }
    }

    pub fn request_done(&mut self, fid: Fid) {
        if let Some(holding) = self.held.get_mut(&fid) {
            holding.uses = holding.uses.saturating_sub(1);
            self.leave_if_unused(fid);
        }
    }

    /// The owner is gone: the fid is clunked when the last request that names it is done.
    pub fn abandon(&mut self, fid: Fid, parting: Parting) {
        if let Some(holding) = self.held.get_mut(&fid)
            && holding.parting.is_none()
        {
            holding.parting = Some(parting);
            self.leave_if_unused(fid);
        }
    }

    fn leave_if_unused(&mut self, fid: Fid) {
        if let Some(&Holding { uses: 0, parting: Some(parting) }) = self.held.get(&fid) {
            self.leaving.push_back((fid, parting));
        }
    }

    /// The next fid to clunk.
    pub fn pop_leaving(&mut self) -> Option<(Fid, Parting)> {
        self.leaving.pop_front()
    }

    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// The server does not know it, or no longer.
    pub fn forget(&mut self, fid: Fid) {
        if self.held.remove(&fid).is_some() {
            self.free.push(fid);
        }
    }
}
