//! Names that are being changed, and lookups that must not see half of a change.
//!
//! A change of a name is two steps, the system call and the update of the nodes. Between them a lookup
//! could tie the old inode to the new name or the reverse. So a change holds its names ([`Changes::hold`])
//! for both steps. A lookup takes a [`mark`](Changes::mark) before its system call and has its node
//! accepted under [`Changes::unless`]: if its name is held, or was changed since, it is done again.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ninefold_proto::{Errno, Error};

use super::{Pace, lock};

/// Parts that the names are in: lookups of two names seldom meet in one.
const PARTS: usize = 64;

/// Finished changes that each part remembers, for lookups that began before they ended.
const REMEMBERED: usize = 64;

/// How long a descriptor that could not be opened waits for a change of names to end before the next try.
const WAIT: Duration = Duration::from_millis(1);

/// Stands for a name in a directory. Two names may share one; that costs a wait, no more.
pub(super) type NameKey = u64;

/// The names that are being changed, and the last ones that were.
#[derive(Debug)]
pub(super) struct Changes {
    parts: [Part; PARTS],
    hash: RandomState,
    /// Changes of any names: those begun and not yet ended, and those ended, ever.
    under_way: AtomicUsize,
    finished: AtomicU64,
    /// For [`Changes::any_since`].
    ended: (Mutex<()>, Condvar),
    /// For [`Changes::alone`].
    moving: Mutex<()>,
}

#[derive(Default, Debug)]
struct Part {
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Default, Debug)]
struct State {
    /// Names that are being changed.
    busy: Vec<NameKey>,
    /// Names changed, ever.
    finished: u64,
    /// The last names changed, newest at the back.
    recent: VecDeque<NameKey>,
}

impl Part {
    /// Its state, once nobody is changing `name`.
    fn settled(&self, name: NameKey) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        while state.busy.contains(&name) {
            state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
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
        for name in distinct(&self.names) {
            let part = self.changes.part(name);
            let mut state = lock(&part.state);
            state.busy.retain(|&key| key != name);
            state.finished += 1;
            state.recent.push_back(name);
            if state.recent.len() > REMEMBERED {
                state.recent.pop_front();
            }
            part.settled.notify_all();
        }
        // In this order: who finds none under way finds all counted that have ended.
        self.changes.finished.fetch_add(1, Ordering::SeqCst);
        self.changes.under_way.fetch_sub(1, Ordering::SeqCst);
        self.changes.ended.1.notify_all();
    }
}

/// While it lives no change of the name begins or ends.
pub(super) struct Unchanged<'a> {
    _state: MutexGuard<'a, State>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes {
            parts: std::array::from_fn(|_| Part::default()),
            hash: RandomState::new(),
            under_way: AtomicUsize::new(0),
            finished: AtomicU64::new(0),
            ended: Default::default(),
            moving: Mutex::default(),
        }
    }
}

impl Changes {
    pub(super) fn key(&self, dir: (u64, u64), name: &[u8]) -> NameKey {
        self.hash.hash_one((dir, name))
    }

    fn part(&self, name: NameKey) -> &Part {
        &self.parts[name as usize % PARTS]
    }

    /// Holds two names, or one twice, once nobody else does.
    pub(super) fn hold(&self, names: [NameKey; 2]) -> Change<'_> {
        while !self.try_hold(&names) {
            for name in distinct(&names) {
                drop(self.part(name).settled(name));
            }
        }
        self.under_way.fetch_add(1, Ordering::SeqCst);
        Change { changes: self, names }
    }

    /// Both or none: who waits for one holds no other, which a holder of that one might look up.
    fn try_hold(&self, names: &[NameKey; 2]) -> bool {
        let mut names = *names;
        names.sort_unstable_by_key(|name| *name as usize % PARTS);
        let [one, other] = names.map(|name| self.part(name));
        let mut first = lock(&one.state);
        let mut second = (!std::ptr::eq(one, other)).then(|| lock(&other.state));
        let free = !first.busy.contains(&names[0]) && !second.as_ref().unwrap_or(&first).busy.contains(&names[1]);
        if free {
            first.busy.push(names[0]);
            if names[0] != names[1] {
                second.as_mut().unwrap_or(&mut first).busy.push(names[1]);
            }
        }
        free
    }

    /// Keeps other moves of nodes away.
    pub(super) fn alone(&self) -> MutexGuard<'_, ()> {
        lock(&self.moving)
    }

    /// The present moment, for [`Changes::any_since`].
    pub(super) fn now(&self) -> u64 {
        self.finished.load(Ordering::SeqCst)
    }

    /// The present moment of `name`, once nobody is changing it. EAGAIN when that is a wait, and may not be.
    pub(super) fn mark(&self, name: NameKey, pace: Pace) -> Result<u64, Error> {
        let part = self.part(name);
        if pace == Pace::MayWait {
            return Ok(part.settled(name).finished);
        }
        let state = lock(&part.state);
        if state.busy.contains(&name) { Err(Errno::EAGAIN.into()) } else { Ok(state.finished) }
    }

    /// Whether `name` is being changed, or was since its `mark`.
    pub(super) fn since(&self, mark: u64, name: NameKey) -> bool {
        lock(&self.part(name).state).touched(mark, name)
    }

    /// Stops changes of `name` for a moment; None when it was changed since its mark, if one is given.
    pub(super) fn unless(&self, name: NameKey, since: Option<u64>) -> Option<Unchanged<'_>> {
        let state = lock(&self.part(name).state);
        match since {
            Some(mark) if state.touched(mark, name) => None,
            _ => Some(Unchanged { _state: state }),
        }
    }

    /// Whether any name was changed since `mark`, or is being changed; then it waits a moment, if it may.
    pub(super) fn any_since(&self, mark: u64, pace: Pace) -> bool {
        if self.under_way.load(Ordering::SeqCst) == 0 {
            return self.finished.load(Ordering::SeqCst) != mark;
        }
        if pace == Pace::MayWait {
            // Bounded: the change may be this very thread's, or have ended just now.
            let (mutex, ended) = &self.ended;
            drop(ended.wait_timeout(lock(mutex), WAIT).unwrap_or_else(PoisonError::into_inner));
        }
        true
    }
}

/// Both, or the one that they are.
fn distinct<T: Copy + PartialEq>(two: &[T; 2]) -> impl Iterator<Item = T> {
    let [one, other] = *two;
    [Some(one), (other != one).then_some(other)].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_sees_a_change_of_its_name_and_of_no_other() {
        let changes = Changes::default();
        let [one, other] = [b"one", &b"two"[..]].map(|name| changes.key((1, 2), name));
        let (before, marks) = (changes.now(), [one, other].map(|name| changes.mark(name, Pace::Inline).unwrap()));
        let change = changes.hold([one, one]);
        assert_eq!(changes.mark(one, Pace::Inline).unwrap_err().errno, Errno::EAGAIN);
        assert!(changes.since(marks[0], one) && changes.any_since(before, Pace::Inline));
        assert!(changes.unless(one, Some(marks[0])).is_none() && changes.unless(one, None).is_some());
        drop(change);
        assert!(changes.since(marks[0], one) && changes.any_since(before, Pace::Inline));
        assert!(!changes.since(marks[1], other) && changes.unless(other, Some(marks[1])).is_some());
        assert!(!changes.since(changes.mark(one, Pace::MayWait).unwrap(), one));
        assert!(!changes.any_since(changes.now(), Pace::MayWait));
    }

    #[test]
    fn what_was_changed_too_long_ago_to_be_remembered_counts_as_changed() {
        let changes = Changes::default();
        let same_part = |name: NameKey| name * PARTS as NameKey;
        let mark = changes.mark(same_part(0), Pace::Inline).unwrap();
        for n in 1..=REMEMBERED as NameKey {
            drop(changes.hold([same_part(n), same_part(n)]));
            assert!(!changes.since(mark, same_part(0)));
        }
        drop(changes.hold([same_part(1), same_part(2)]));
        assert!(changes.since(mark, same_part(0)));
    }

    #[test]
    fn two_names_are_held_by_one_at_a_time_in_whatever_order_and_part() {
        let changes = Changes::default();
        let held = [const { AtomicUsize::new(0) }; 3];
        let names: [NameKey; 3] = [5, 5 + PARTS as NameKey, 6];
        std::thread::scope(|scope| {
            for (a, b) in [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2), (0, 2)] {
                let (changes, held) = (&changes, &held);
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let _change = changes.hold([names[a], names[b]]);
                        for i in distinct(&[a, b]) {
                            assert_eq!(held[i].fetch_add(1, Ordering::SeqCst), 0);
                        }
                        for i in distinct(&[a, b]) {
                            held[i].fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert!(!changes.any_since(changes.now(), Pace::Inline) && changes.now() == 12_000);
    }
}
