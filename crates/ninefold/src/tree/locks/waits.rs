//! Who waits for whom: the graph in which a cycle is a deadlock.
//!
//! Edges lead from the owner of a waiting request to the owners of the locks in its way. A place in a queue is no
//! edge; why that is enough is said in [`super`].

use std::collections::{HashMap, HashSet};

use super::{FileKey, Owner};

/// Edges kept for one waiting request. A write lock may wait for as many readers as there are clients, and requests
/// times readers is more memory than a client should be able to ask for; a cycle through the 1,025th reader of one
/// range goes unseen, and ends when one of its waits is cancelled. Linux itself follows one edge a request.
pub(super) const MAX_EDGES: usize = 1024;

/// The graph of all waiting requests of a table.
#[derive(Debug, Default)]
pub(super) struct Waits {
    waits: HashMap<u64, Wait>,
    tickets: HashMap<Owner, Vec<u64>>,
    /// How many edges lead to an owner.
    awaited: HashMap<Owner, usize>,
}

#[derive(Debug)]
struct Wait {
    owner: Owner,
    key: FileKey,
    on: Vec<Owner>,
}

/// Where a waiting request stands after [`Waits::publish`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It waits for an owner that, over others, waits for its own. It is not in the graph any more.
    Deadlock,
    /// It waits; `awaited`: somebody waits for a lock of its owner.
    Waits { awaited: bool },
}

impl Waits {
    /// Says that the request `ticket` of `owner` on the file `key` now waits for the locks of `on`, of which
    /// [`MAX_EDGES`] count. Files whose queues must be looked at again, because an owner in them is awaited from
    /// now on, are added to `pokes`.
    pub(super) fn publish(
        &mut self,
        ticket: u64,
        key: FileKey,
        owner: &Owner,
        on: Vec<Owner>,
        pokes: &mut Vec<FileKey>,
    ) -> Standing {
        if self.waits.get(&ticket).is_none_or(|wait| wait.on != on) {
            if self.reaches(&on, owner) {
                self.forget(ticket);
                return Standing::Deadlock;
            }
            for other in &on {
                let count = self.awaited.entry(other.clone()).or_default();
                *count += 1;
                if *count == 1 {
                    let waiting = self.tickets.get(other).into_iter().flatten();
                    pokes.extend(waiting.filter_map(|ticket| self.waits.get(ticket)).map(|wait| wait.key));
                }
            }
            self.forget(ticket);
            self.tickets.entry(owner.clone()).or_default().push(ticket);
            self.waits.insert(ticket, Wait { owner: owner.clone(), key, on });
        }
        Standing::Waits { awaited: self.awaited.contains_key(owner) }
    }

    /// The request waits no longer.
    pub(super) fn forget(&mut self, ticket: u64) {
        let Some(wait) = self.waits.remove(&ticket) else { return };
        for other in wait.on {
            if let Some(count) = self.awaited.get_mut(&other) {
                *count -= 1;
                if *count == 0 {
                    self.awaited.remove(&other);
                }
            }
        }
        if let Some(tickets) = self.tickets.get_mut(&wait.owner) {
            tickets.retain(|&t| t != ticket);
            if tickets.is_empty() {
                self.tickets.remove(&wait.owner);
            }
        }
    }

    /// Whether edges lead from one of `from` to `to`.
    fn reaches(&self, from: &[Owner], to: &Owner) -> bool {
        if !self.awaited.contains_key(to) {
            return false;
        }
        let mut seen = HashSet::new();
        let mut open: Vec<&Owner> = from.iter().collect();
        while let Some(owner) = open.pop() {
            if owner == to {
                return true;
            }
            if seen.insert(owner) {
                let tickets = self.tickets.get(owner).into_iter().flatten();
                open.extend(tickets.filter_map(|ticket| self.waits.get(ticket)).flat_map(|wait| &wait.on));
            }
        }
        false
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.tickets.is_empty() && self.awaited.is_empty()
    }
}
