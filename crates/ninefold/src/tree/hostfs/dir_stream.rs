//! The entries of an open directory, as its requests share them.
//!
//! A request asks [`DirStream::tell`], which answers when the entries are there. Else it waits in line. One thread at a time
//! reads: who holds the [`Reading`], which `tell` and [`DirStream::wait`] give when one is to be started, does what
//! [`Reading::next`] tells him: go to a cookie, read on, or stop. That answers who waits, and then reads ahead, so that the
//! next request finds its answer ready and costs no thread. A `Reading` that is dropped before its end, by a panic or because
//! its thread never ran, fails those who wait.
//!
//! What is read ahead is bounded as `dir_ahead.rs` has it, and nothing that may wait without end is done before somebody
//! waits for it.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ninefold_proto::{Errno, Error};
use tokio::sync::oneshot;

use super::dir_ahead::{Budget, Permit, Share};
use super::dir_parts::{Behind, Growing, Parts};
use super::lock;
use crate::server::Listed;

/// A request that waits.
struct Waiter {
    cookie: u64,
    max: usize,
    /// The directory went to the cookie for it.
    placed: bool,
    reply: oneshot::Sender<Result<Listed, Error>>,
}

/// What the thread that reads is to do.
pub(super) enum Next {
    /// Go to this cookie, and tell [`Reading::went`].
    Go(u64),
    /// Read into it, and give it to [`Reading::read`].
    Read(Growing),
    /// Nothing: it does not read any more.
    Stop,
}

/// The entries of an open directory.
pub(super) struct DirStream {
    state: Mutex<State>,
    /// Nobody will ask again. Not under the lock, which [`DirStream::parts`] holds while the disk is waited for.
    ended: AtomicBool,
}

struct State {
    parts: Parts,
    waiting: VecDeque<Waiter>,
    /// There is a [`Reading`]: only its thread touches the directory.
    reading: bool,
    /// Whether to read what nobody has asked for.
    ahead: bool,
    /// The thread that reads may do so while nobody waits.
    permit: Option<Permit>,
    share: Share,
}

impl State {
    /// Counts what is kept, or lets go of it.
    fn count(&mut self) {
        if !self.share.set(self.parts.held()) {
            self.parts.forget();
            self.share.set(0);
        }
    }

    /// Takes the leave to read what nobody waits for.
    fn may_read_ahead(&mut self) -> bool {
        if !self.ahead || !self.parts.goes_on() || !self.share.has_room() {
            return false;
        }
        if self.permit.is_none() {
            self.permit = self.share.permit();
        }
        self.permit.is_some()
    }
}

impl DirStream {
    /// `ahead`: it may be read faster than it is asked for.
    pub(super) fn new(ahead: bool, budget: &Arc<Budget>) -> Arc<DirStream> {
        let waiting = VecDeque::new();
        let state = State { parts: Parts::new(), waiting, reading: false, ahead, permit: None, share: budget.share() };
        Arc::new(DirStream { state: Mutex::new(state), ended: AtomicBool::new(false) })
    }

    /// The reply, if it is ready, and the reading if a thread is to be started that reads on.
    pub(super) fn tell(self: &Arc<Self>, cookie: u64, max: usize) -> Option<(Result<Listed, Error>, Option<Reading>)> {
        let mut state = lock(&self.state);
        // Who asked before is answered before, as an answer moves the place where the next is due.
        if !state.waiting.is_empty() || state.parts.is_elsewhere(cookie) {
            return None;
        }
        state.parts.set_max(max);
        let reply = state.parts.take(max)?;
        if state.reading {
            return Some((reply, None));
        }
        state.count();
        state.reading = state.parts.is_low() && state.may_read_ahead();
        Some((reply, state.reading.then(|| Reading { stream: self.clone(), done: false })))
    }

    /// Waits for the reply; `start` is called if a thread is to be started that reads.
    pub(super) async fn wait(
        self: &Arc<Self>,
        cookie: u64,
        max: usize,
        start: impl FnOnce(Reading),
    ) -> Result<Listed, Error> {
        let (reply, told) = oneshot::channel();
        if let Some(reading) = self.begin(Waiter { cookie, max, placed: false, reply }) {
            start(reading);
        }
        // A panic in what reads is its own failure, not the connection's.
        told.await.unwrap_or_else(|_| Err(Error::with_text(Errno::EIO, "file server failed")))
    }

    fn begin(self: &Arc<Self>, waiter: Waiter) -> Option<Reading> {
        let mut state = lock(&self.state);
        state.waiting.push_back(waiter);
        let begun = std::mem::replace(&mut state.reading, true);
        (!begun).then(|| Reading { stream: self.clone(), done: false })
    }

    /// Nobody will ask again: nothing more is read ahead.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// The parts, for one who reads and tells entries himself.
    pub(super) fn parts(&self) -> Own<'_> {
        Own(lock(&self.state))
    }
}

impl fmt::Debug for DirStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirStream").finish_non_exhaustive()
    }
}

/// The right to read a directory, and the duty to answer who waits. Dropped before [`Next::Stop`] it answers EIO, and
/// the next request begins anew.
#[must_use]
pub(super) struct Reading {
    stream: Arc<DirStream>,
    done: bool,
}

impl Reading {
    /// Answers whom it can; what is to be done then.
    pub(super) fn next(&mut self) -> Next {
        let mut state = lock(&self.stream.state);
        let state = &mut *state;
        while let Some(waiter) = state.waiting.front_mut() {
            if waiter.reply.is_closed() {
                // The connection is gone.
                state.waiting.pop_front();
                continue;
            }
            // What is read for it makes 0 a place to go to again.
            if !waiter.placed && state.parts.is_elsewhere(waiter.cookie) {
                return Next::Go(waiter.cookie);
            }
            waiter.placed = true;
            state.parts.set_max(waiter.max);
            let Some(reply) = state.parts.take(waiter.max) else {
                return Next::Read(state.parts.grow(Some(waiter.max)));
            };
            if let Some(waiter) = state.waiting.pop_front() {
                let _ = waiter.reply.send(reply);
            }
        }
        state.count();
        if state.parts.is_short() && !self.stream.ended.load(Ordering::Relaxed) && state.may_read_ahead() {
            return Next::Read(state.parts.grow(None));
        }
        state.permit = None;
        state.reading = false;
        self.done = true;
        Next::Stop
    }

    /// The directory is at `cookie` now, or could not go there and stands where it stood.
    pub(super) fn went(&self, cookie: u64, how: Result<(), Error>) {
        let mut state = lock(&self.stream.state);
        match how {
            Ok(()) => state.parts.went(cookie),
            Err(error) => {
                if let Some(waiter) = state.waiting.pop_front() {
                    let _ = waiter.reply.send(Err(error));
                }
            }
        }
    }

    /// This was read, and what is behind it.
    pub(super) fn read(&self, growing: Growing, behind: Result<Behind, Error>) {
        let mut state = lock(&self.stream.state);
        // More such entries may follow, and each would make the directory go back to it.
        state.ahead &= behind != Ok(Behind::LookUp);
        state.parts.grown(growing, behind);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut state = lock(&self.stream.state);
        state.parts.forget();
        state.share.set(0);
        state.permit = None;
        state.waiting.clear();
        state.reading = false;
    }
}

/// The parts of a directory whose entries are read under the lock.
pub(super) struct Own<'s>(MutexGuard<'s, State>);

impl Deref for Own<'_> {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0.parts
    }
}

impl DerefMut for Own<'_> {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0.parts
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        self.0.count();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use ninefold_proto::stat::{DirEntry, dir_entries};

    use super::super::dir_ahead::Ahead;
    use super::super::dir_parts::CHUNK;
    use super::*;

    const ENTRIES: u64 = 99_000;

    /// Entries that a getdents(2) brings.
    const BATCH: u64 = 1500;

    /// Bytes of each in a reply.
    const LEN: usize = 34;

    /// What clients ask for: one with a buffer of its own, Linux's at its msize of 128 KiB, and ours at 1 MiB.
    const COUNTS: [usize; 3] = [64 << 10, 131_048, 1_048_552];

    fn entry(cookie: u64) -> (u64, String) {
        (cookie, format!("file-{cookie:05}"))
    }

    type Entries = Vec<(u64, String)>;
    type Reply = Result<Listed, Error>;

    /// A directory whose n-th entry has the cookie n.
    struct Dir {
        stream: Arc<DirStream>,
        at: u64,
        reads: u64,
        seeks: u64,
        /// Whether the entry of this cookie must be looked up.
        unknown: fn(u64) -> bool,
        looked_up: Vec<u64>,
    }

    impl Dir {
        fn new(ahead: bool, budget: &Arc<Budget>) -> Dir {
            let stream = DirStream::new(ahead, budget);
            Dir { stream, at: 0, reads: 0, seeks: 0, unknown: |_| false, looked_up: Vec::new() }
        }

        /// One getdents(2).
        fn read(&mut self, growing: &mut Growing) -> Behind {
            self.reads += 1;
            growing.reserve();
            let batch = self.at + 1..=ENTRIES.min(self.at + BATCH);
            self.at = *batch.end();
            for (offset, name) in batch.clone().map(entry) {
                let name = name.as_bytes();
                if (self.unknown)(offset) {
                    if !growing.may_look_up(name) {
                        return Behind::LookUp;
                    }
                    self.looked_up.push(offset);
                }
                growing.push(&DirEntry { qid: Default::default(), offset, kind: 8, name });
            }
            if batch.is_empty() { Behind::End } else { Behind::More }
        }

        /// What the thread does that reads; false at the end.
        fn step(&mut self, reading: &mut Reading) -> bool {
            match reading.next() {
                Next::Go(cookie) => {
                    self.seeks += 1;
                    let how = if cookie > ENTRIES { Err(Errno::EINVAL.into()) } else { Ok(()) };
                    if how.is_ok() {
                        self.at = cookie;
                    }
                    reading.went(cookie, how);
                }
                Next::Read(mut growing) => {
                    let behind = self.read(&mut growing);
                    reading.read(growing, Ok(behind));
                }
                Next::Stop => return false,
            }
            true
        }

        fn read_on(&mut self, mut reading: Reading) {
            while self.step(&mut reading) {}
        }

        /// Has a request wait that nobody reads for yet.
        fn wait(&self, cookie: u64, max: usize) -> (Reading, oneshot::Receiver<Reply>) {
            let (reply, told) = oneshot::channel();
            let reading = self.stream.begin(Waiter { cookie, max, placed: false, reply });
            (reading.expect("that nobody reads"), told)
        }

        /// A reply, and whether it was ready.
        fn request(&mut self, cookie: u64, max: usize) -> (Reply, bool) {
            if let Some((reply, reading)) = self.stream.tell(cookie, max) {
                if let Some(reading) = reading {
                    self.read_on(reading);
                }
                return (reply, true);
            }
            let (reading, mut told) = self.wait(cookie, max);
            self.read_on(reading);
            (told.try_recv().expect("an answer"), false)
        }

        /// The entries of a reply, and whether it was ready.
        fn ask(&mut self, cookie: u64, max: usize) -> (Entries, bool) {
            let (reply, ready) = self.request(cookie, max);
            let reply = reply.unwrap().entries;
            assert!(reply.len() <= max);
            (entries(&reply), ready)
        }

        /// Lists all from `cookie` on; how many replies were ready, and how many not.
        fn list(&mut self, mut cookie: u64, max: usize) -> (usize, usize) {
            let mut replies = (0, 0);
            loop {
                let (entries, ready) = self.ask(cookie, max);
                if ready {
                    replies.0 += 1
                } else {
                    replies.1 += 1
                }
                if entries.is_empty() {
                    assert_eq!(cookie, ENTRIES);
                    return replies;
                }
                let count = entries.len() as u64;
                assert_eq!(entries, (cookie + 1..=cookie + count).map(entry).collect::<Vec<_>>());
                cookie += count;
            }
        }

        fn held(&self) -> (usize, usize) {
            let state = lock(&self.stream.state);
            (state.parts.len(), state.parts.held())
        }
    }

    fn entries(reply: &Bytes) -> Entries {
        let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        dir_entries(reply).map(Result::unwrap).map(|e| (e.offset, name(e.name))).collect()
    }

    /// An export, and what a connection has of it.
    fn export() -> (Arc<Ahead>, Arc<Budget>) {
        let all: Arc<Ahead> = Arc::default();
        let budget = all.budget(1);
        (all, budget)
    }

    #[test]
    fn only_the_first_reply_of_a_listing_is_waited_for_and_all_are_as_full_as_they_can_be() {
        let (all, budget) = export();
        for max in COUNTS {
            let mut dir = Dir::new(true, &budget);
            let replies = (ENTRIES as usize).div_ceil(max / LEN);
            // The last that is ready is that there are no more.
            assert_eq!(dir.list(0, max), (replies, 1), "replies of {max} bytes");
            assert_eq!((dir.seeks, dir.reads), (1, ENTRIES / BATCH + 1));
            assert_eq!((all.held(), all.threads()), (0, 0));
        }
    }

    #[test]
    fn a_count_over_every_msize_is_served_from_what_is_ready() {
        let (_all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        let (ready, waited) = dir.list(0, 8 << 20);
        assert_eq!(waited, 1);
        assert!(ready <= 5, "{ready} replies");
    }

    #[test]
    fn a_reader_is_at_most_its_share_ahead_and_gives_it_back_when_it_ends() {
        let (all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        for (max, goal) in [(300, 32 << 10), (4096, 32 << 10), (64 << 10, 256 << 10), (1 << 20, 1 << 20)] {
            let (mut cookie, most) = (0, goal + BATCH as usize * LEN);
            for _ in 0..3 {
                cookie = dir.ask(cookie, max).0.pop().unwrap().0;
                let (entries, memory) = dir.held();
                assert!((1..=most).contains(&entries), "{entries} bytes ahead for replies of {max}");
                // Of memory twice as much at most, and what the next getdents(2) may bring.
                assert!(memory <= 2 * entries + CHUNK, "{memory} bytes of memory for {entries}");
                assert_eq!(all.held(), memory);
            }
        }
        drop(dir);
        assert_eq!(all.held(), 0);
    }

    #[test]
    fn a_directory_that_may_not_be_read_ahead_is_read_when_it_is_asked_for() {
        let (_all, budget) = export();
        let mut dir = Dir::new(false, &budget);
        dir.ask(0, 4096);
        assert_eq!(dir.reads, 1);
        let (ready, waited) = dir.list(0, 64 << 10);
        assert!(waited >= (ENTRIES / BATCH) as usize / 2, "{ready} replies were ready, {waited} not");
    }

    #[test]
    fn nothing_is_read_ahead_of_a_fid_that_ended() {
        let (_all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        let (mut reading, mut told) = dir.wait(0, 64 << 10);
        while told.try_recv().is_err() {
            assert!(dir.step(&mut reading));
        }
        assert!(lock(&dir.stream.state).parts.is_short());
        dir.stream.end();
        assert!(matches!(reading.next(), Next::Stop));
    }

    #[test]
    fn a_fid_ends_without_waiting_for_who_holds_its_entries() {
        let (_all, budget) = export();
        let dir = Dir::new(true, &budget);
        let (stream, parts) = (dir.stream.clone(), dir.stream.parts());
        let (ended, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            stream.end();
            ended.send(())
        });
        told.recv_timeout(Duration::from_secs(20)).expect("the end of the fid");
        drop(parts);
    }

    #[test]
    fn reading_on_begins_before_the_last_reply_that_is_ready_has_left() {
        let (_all, budget) = export();
        for max in [8 << 10, 64 << 10, 131_048] {
            let mut dir = Dir::new(true, &budget);
            let mut cookie = dir.ask(0, max).0.pop().unwrap().0;
            loop {
                let (reply, reading) = dir.stream.tell(cookie, max).expect("a reply that is ready");
                if let Some(reading) = reading {
                    drop(reply);
                    assert!(!lock(&dir.stream.state).parts.is_exhausted(), "replies of {max} bytes");
                    drop(reading);
                    break;
                }
                cookie = entries(&reply.unwrap().entries).pop().unwrap().0;
            }
        }
    }

    #[test]
    fn where_others_have_all_the_memory_nothing_is_read_ahead_nor_twice() {
        let (all, budget) = export();
        let taken = all.take_all();
        let before = all.held();
        for max in [300, 8 << 10, 131_048] {
            let mut dir = Dir::new(true, &budget);
            let (_, waited) = dir.list(0, max);
            assert!(waited >= 20, "replies of {max} bytes were waited for {waited} times");
            assert_eq!((dir.seeks, dir.reads), (1, ENTRIES / BATCH + 1), "replies of {max} bytes");
            assert_eq!(all.held(), before);
        }
        drop(taken);
        assert_eq!(Dir::new(true, &budget).list(0, 8 << 10).1, 1);
    }

    #[test]
    fn a_connection_that_has_too_much_kept_reads_again_and_no_other_does() {
        let (all, budget) = export();
        let taken = budget.take_all();
        let before = all.held();
        let mut dir = Dir::new(true, &budget);
        let replies = (ENTRIES as usize).div_ceil((8 << 10) / LEN);
        // Only that it has ended takes no memory.
        assert_eq!(dir.list(0, 8 << 10), (1, replies));
        let mut other = Dir::new(true, &all.budget(2));
        other.list(0, 8 << 10);
        assert_eq!((other.seeks, other.reads), (1, ENTRIES / BATCH + 1));
        assert_eq!(all.held(), before);
        drop(taken);
    }

    #[test]
    fn without_a_thread_to_read_ahead_each_reply_is_read_when_it_is_asked_for() {
        let (all, budget) = export();
        let share = budget.share();
        let permits: Vec<Permit> = std::iter::from_fn(|| share.permit()).collect();
        let mut dir = Dir::new(true, &budget);
        let (ready, waited) = dir.list(0, 64 << 10);
        assert!(waited >= (ENTRIES / BATCH) as usize / 2, "{ready} replies were ready, {waited} not");
        assert_eq!((dir.seeks, all.threads()), (1, permits.len()));
        drop(permits);
        assert_eq!(dir.list(0, 64 << 10).1, 1);
        assert_eq!(all.threads(), 0);
    }

    #[test]
    fn a_thread_counts_while_it_reads_what_nobody_waits_for() {
        let (all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        let (mut reading, mut told) = dir.wait(0, 64 << 10);
        while told.try_recv().is_err() {
            assert_eq!(all.threads(), 0);
            assert!(dir.step(&mut reading));
        }
        assert_eq!(all.threads(), 1);
        drop(reading);
        assert_eq!((all.threads(), all.held()), (0, 0));
    }

    #[test]
    fn no_entry_is_looked_up_before_those_ahead_of_it_can_be_told() {
        let (_all, budget) = export();
        // Mount points here and there, and a file system that does not tell what its entries are.
        for unknown in [(|n| n % 5000 == 0) as fn(u64) -> bool, |n| n > ENTRIES - 5000] {
            let mut dir = Dir { unknown, ..Dir::new(true, &budget) };
            let mut cookie = 0;
            while cookie < ENTRIES {
                let max = if cookie % 2 == 0 { 3400 } else { 64 << 10 };
                let (entries, _) = dir.ask(cookie, max);
                let count = entries.len() as u64;
                assert_eq!(entries, (cookie + 1..=cookie + count).map(entry).collect::<Vec<_>>());
                cookie += count;
                assert!(dir.looked_up.iter().all(|&at| at <= cookie), "behind {cookie}: {:?}", dir.looked_up);
            }
            assert_eq!(dir.looked_up, (1..=ENTRIES).filter(|&n| unknown(n)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn replies_of_changing_length_go_on_from_any_cookie() {
        let (_all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        for (cookie, max) in
            [(0, 64 << 10), (1927, 300), (1935, 1 << 20), (1, 34), (2, 100), (4, 64 << 10), (39_990, 4096)]
        {
            let (entries, _) = dir.ask(cookie, max);
            assert_eq!(entries[0], entry(cookie + 1), "behind {cookie}, {max} bytes");
            let last = entries.len() as u64;
            assert_eq!(entries[entries.len() - 1], entry(cookie + last));
        }
        dir.list(20_000, 1 << 20);
        dir.list(0, 100);
    }

    #[test]
    fn small_counts_cost_neither_memory_nor_the_length_of_later_replies() {
        let (_all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        let mut cookie = 0;
        for max in [LEN, 100, 1000, 3000] {
            for _ in 0..100 {
                let (entries, _) = dir.ask(cookie, max);
                assert_eq!(entries.len(), max / LEN, "{max} bytes behind {cookie}");
                cookie += entries.len() as u64;
                let (entries, memory) = dir.held();
                assert!(memory <= 2 * entries + CHUNK, "{memory} bytes of memory for {entries}");
            }
        }
        let (entries, ready) = dir.ask(cookie, 64 << 10);
        assert!(ready && entries.len() * LEN > 8 << 10, "{} entries", entries.len());
        dir.list(cookie + entries.len() as u64, 64 << 10);
    }

    #[test]
    fn a_directory_is_read_from_its_start_as_it_is_then_and_not_as_it_was_opened() {
        let (_all, budget) = export();
        let dir = Dir::new(true, &budget);
        assert!(dir.stream.tell(0, 4096).is_none());
        assert!(dir.stream.parts().is_elsewhere(0));
        let (mut reading, _told) = dir.wait(0, 4096);
        assert!(matches!(reading.next(), Next::Go(0)));
    }

    #[test]
    fn a_count_for_no_entry_costs_none() {
        let (_all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        dir.ask(0, 3400);
        for max in [LEN - 1, 0] {
            let (refused, ready) = dir.request(100, max);
            assert_eq!((refused.err().map(|e| e.errno), ready), (Some(Errno::EINVAL), true));
        }
        dir.list(100, 4096);
        assert_eq!(dir.request(0, 0).0.err().map(|e| e.errno), Some(Errno::EINVAL));
        dir.list(0, 4096);
    }

    #[test]
    fn an_error_comes_behind_the_entries_before_it_and_is_asked_for_again() {
        let (_all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        let (mut reading, mut told) = dir.wait(0, 4096);
        assert!(dir.step(&mut reading));
        let Next::Read(mut growing) = reading.next() else { panic!("something to read") };
        growing.push(&DirEntry { qid: Default::default(), offset: 1, kind: 8, name: entry(1).1.as_bytes() });
        reading.read(growing, Err(Errno::EIO.into()));
        assert!(matches!(reading.next(), Next::Stop));
        drop(reading);
        assert_eq!(told.try_recv().unwrap().unwrap().entries.len(), LEN);
        let (failed, _) = dir.stream.tell(1, 4096).expect("the error");
        assert_eq!(failed.err().map(|e| e.errno), Some(Errno::EIO));
        dir.at = 1;
        dir.list(1, 4096);
    }

    #[tokio::test]
    async fn who_waits_when_reading_fails_hears_it_and_the_next_one_begins_anew() {
        let (all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        // A panic while it reads, and a thread that never runs.
        let panics = |mut reading: Reading| {
            let thread = std::thread::spawn(move || {
                let _ = reading.next();
                panic!("of a test");
            });
            assert!(thread.join().is_err());
        };
        let starts: [fn(Reading); 2] = [panics, drop];
        for start in starts {
            dir.ask(0, 3400);
            assert!(all.held() > 0);
            let told = tokio::time::timeout(Duration::from_secs(20), dir.stream.wait(5000, 4096, start));
            assert_eq!(told.await.expect("an answer").err().map(|e| e.errno), Some(Errno::EIO));
            assert_eq!(all.held(), 0);
            // A cookie that is refused leaves it where it was: nowhere.
            assert_eq!(dir.request(ENTRIES + 1, 4096).0.err().map(|e| e.errno), Some(Errno::EINVAL));
            let seeks = dir.seeks;
            assert_eq!(dir.ask(100, 3400).0[0], entry(101));
            assert_eq!(dir.seeks, seeks + 1);
            dir.list(200, 4096);
        }
    }

    #[test]
    fn what_is_lost_while_it_is_read_is_read_again() {
        let (_all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        let (mut reading, _told) = dir.wait(0, 64 << 10);
        assert!(dir.step(&mut reading));
        let Next::Read(mut growing) = reading.next() else { panic!("something to read") };
        dir.read(&mut growing);
        drop((growing, reading));
        dir.list(0, 64 << 10);
        // The same for one who reads himself.
        let mut parts = dir.stream.parts();
        parts.set_max(CHUNK);
        parts.went(100);
        assert!(!parts.is_elsewhere(100));
        let mut growing = parts.grow(None);
        drop(parts);
        dir.at = 100;
        dir.read(&mut growing);
        drop(growing);
        assert!(dir.stream.parts().is_elsewhere(100));
        dir.list(100, 4096);
    }

    #[test]
    fn who_does_not_wait_any_more_is_passed_over() {
        let (_all, budget) = export();
        let mut dir = Dir::new(true, &budget);
        let (reading, told) = dir.wait(7, 4096);
        drop(told);
        dir.read_on(reading);
        assert_eq!((dir.seeks, dir.reads), (0, 0));
        dir.list(0, 64 << 10);
    }
}
