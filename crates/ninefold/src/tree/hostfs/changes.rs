//! Names that are being changed, and lookups that must not see half of a change.
//!
//! A change of a name is two steps, the system call and the update of the nodes. Between them a lookup
//! could tie the old inode to the new name or the reverse. So a change holds its names ([`Changes::hold`])
//! for both steps. A lookup takes a [`mark`](Changes::mark) before its system call and has its node
//! accepted under [`Changes::unless`]: if its name is held, or was changed since, it is done again.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ninefold_proto::{Errno, Error};

use super::{Pace, lock};

/// Finished changes that are remembered, for lookups that began before they ended.
const REMEMBERED: usize = 256;

/// How long a descriptor that could not be opened waits for a change of names to end before the next try.
const WAIT: Duration = Duration::from_millis(1);

/// Stands for a name in a directory. Two names may share one; that costs a wait, no more.
pub(super) type NameKey = u64;

/// The names that are being changed, and the last ones that were.
#[derive(Default, Debug)]
pub(super) struct Changes {
    state: Mutex<State>,
    settled: Condvar,
    hash: RandomState,
}

#[derive(Default, Debug)]
struct State {
    /// Names that are being changed.
    busy: Vec<NameKey>,
    /// Changes finished, ever.
    finished: u64,
    /// The last names changed, newest at the back.
    recent: VecDeque<NameKey>,
}

impl State {
    fn touched(&self, mark: u64, name: NameKey) -> bool {
        let n = (self.finished - mark) as usize;
        self.busy.contains(&name) || n > self.recent.len() || self.recent.iter().rev().take(n).any(|&key| key == name)
    }
}

/// Names held while they are changed.
pub(super) struct Change<'a> {
    changes: &'a Changes,
    names: [NameKey; 2],
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.changes.state);
        for name in self.names {
            if let Some(i) = state.busy.iter().position(|&key| key == name) {
                state.busy.swap_remove(i);
            }
            state.finished += 1;
            state.recent.push_back(name);
            if state.recent.len() > REMEMBERED {
                state.recent.pop_front();
            }
        }
        self.changes.settled.notify_all();
    }
}

/// While it lives no change begins or ends.
pub(super) struct Unchanged<'a> {
    _state: MutexGuard<'a, State>,
}

impl Changes {
    pub(super) fn key(&self, dir: (u64, u64), name: &[u8]) -> NameKey {
        self.hash.hash_one((dir, name))
    }

    /// Holds two names, or one twice, once nobody else does.
    pub(super) fn hold(&self, names: [NameKey; 2]) -> Change<'_> {
        let mut state = lock(&self.state);
        while names.iter().any(|name| state.busy.contains(name)) {
            state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.busy.extend(names);
        Change { changes: self, names }
    }

    /// The present moment, for [`Changes::any_since`].
    pub(super) fn now(&self) -> u64 {
        lock(&self.state).finished
    }

    /// The present moment, once nobody is changing `name`. EAGAIN when that is a wait, and may not be.
    pub(super) fn mark(&self, name: NameKey, pace: Pace) -> Result<u64, Error> {
        let mut state = lock(&self.state);
        while state.busy.contains(&name) {
            if pace == Pace::Inline {
                return Err(Errno::EAGAIN.into());
            }
            state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state.finished)
    }

    /// Whether `name` is being changed, or was since `mark`.
    pub(super) fn since(&self, mark: u64, name: NameKey) -> bool {
        lock(&self.state).touched(mark, name)
    }

    /// Stops all changes for a moment; None when the name was changed since the mark, if one is given.
    pub(super) fn unless(&self, since: Option<(u64, NameKey)>) -> Option<Unchanged<'_>> {
        let state = lock(&self.state);
        match since {
            Some((mark, name)) if state.touched(mark, name) => None,
            _ => Some(Unchanged { _state: state }),
        }
    }

    /// Whether any name was changed since `mark`, or is being changed; then it waits a moment, if it may.
    pub(super) fn any_since(&self, mark: u64, pace: Pace) -> bool {
        let state = lock(&self.state);
        if state.busy.is_empty() {
            return state.finished != mark;
        }
        if pace == Pace::MayWait {
            // Bounded: the change may be this very thread's.
            drop(self.settled.wait_timeout(state, WAIT).unwrap_or_else(PoisonError::into_inner));
        }
        true
    }
}
