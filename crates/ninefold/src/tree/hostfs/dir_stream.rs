//! What was read of an open directory and not told yet.
//!
//! [`Parts`] are whole entries as Rreaddir has them, cut to the length of a reply when they are read: telling one is handing it
//! over. [`DirStream`] is what the requests on an open directory share. A request asks [`DirStream::tell`], which answers
//! when the entries are there. Else it waits in line, and one thread at a time, which [`DirStream::begin`] says is to be
//! started, does what [`DirStream::next`] tells it: go to a cookie, read on, or stop. It answers who waits, and then reads ahead, so that
//! the next request finds its answer ready and costs no thread.
//!
//! The bytes read ahead are bounded for each directory ([`AHEAD`]) and for all of an export ([`AHEAD_ALL`]); over the
//! bound nothing is kept, and each reply is read from its cookie on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::{Buf, Bytes};
use ninefold_proto::stat::{DirEntry, dir_entries};
use ninefold_proto::{Errno, Error};
use tokio::sync::oneshot;

use super::lock;

/// Bytes that a getdents(2) may fill: as many as a reply to Linux's client of old has (64 KiB).
pub(super) const CHUNK: usize = 64 << 10;

/// Bytes that are read ahead of a directory's reader, beyond what the last getdents(2) brought: 7,500 entries with names of 10
/// bytes, which take a local file system about a millisecond.
const AHEAD: usize = 256 << 10;

/// The same in replies: who asks for little gets little read.
const AHEAD_REPLIES: usize = 4;

/// Bytes read ahead of all readers of an export: 128 directories that are read at a time.
const AHEAD_ALL: usize = 32 << 20;

/// Whole entries, one behind the other.
#[derive(Debug)]
struct Part {
    bytes: Bytes,
    /// The cookie behind the last one.
    end: u64,
    /// Bytes of memory that `bytes` holds.
    size: usize,
}

impl Part {
    /// Takes the first entries off, as many as `max` bytes hold.
    fn split(&mut self, max: usize) -> Option<Part> {
        let (mut cut, mut end) = (0, None);
        for entry in dir_entries(&self.bytes).flatten() {
            if cut + entry.encoded_len() > max {
                break;
            }
            cut += entry.encoded_len();
            end = Some(entry.offset);
        }
        Some(Part { end: end?, bytes: self.bytes.split_to(cut), size: self.size })
    }

    /// A reply that nobody fetches may not hold much more memory than the bytes it counts as.
    fn into_reply(self) -> Bytes {
        if self.bytes.len() < self.size / 4 { Bytes::copy_from_slice(&self.bytes) } else { self.bytes }
    }
}

/// Entries being read: the part that is not full yet, and those that became full meanwhile.
#[derive(Default, Debug)]
pub(super) struct Growing {
    full: Vec<Part>,
    part: Vec<u8>,
    /// The cookie behind the last entry in `part`.
    end: u64,
    /// Bytes of a full part.
    max: usize,
}

impl Growing {
    /// Room for what a getdents(2) brings.
    pub(super) fn reserve(&mut self) {
        self.part.reserve(CHUNK.min(self.max.saturating_sub(self.part.len())));
    }

    pub(super) fn push(&mut self, entry: &DirEntry<'_>) {
        if self.part.len() + entry.encoded_len() > self.max && !self.part.is_empty() {
            let room = self.part.len().min(CHUNK);
            self.close();
            self.part.reserve(room);
        }
        entry.encode(&mut self.part);
        self.end = entry.offset;
    }

    fn close(&mut self) {
        let mut bytes = std::mem::take(&mut self.part);
        if bytes.capacity() / 2 > bytes.len() {
            bytes.shrink_to_fit();
        }
        let size = bytes.capacity();
        self.full.push(Part { bytes: bytes.into(), end: self.end, size });
    }
}

/// Entries read and not told, and where the directory stands.
#[derive(Default, Debug)]
pub(super) struct Parts {
    full: VecDeque<Part>,
    growing: Growing,
    /// Why nothing follows behind them: the end, or an error. Told once; then the kernel is asked again.
    stop: Option<Result<(), Error>>,
    /// The cookie that the first entry not told follows.
    at: u64,
    /// The kernel went here, and nothing was read since.
    fresh: bool,
    /// The kernel stands elsewhere than behind the last entry here.
    astray: bool,
    /// The stop was told: what follows it is for whoever asks behind it.
    over: bool,
}

impl Parts {
    /// Whether the kernel must go to `cookie` first. To 0 always, for what came in meanwhile: also since the open(2), where
    /// some file systems (btrfs, tmpfs of Linux 6.6 to 6.13) draw the line before which they list.
    pub(super) fn is_elsewhere(&self, cookie: u64) -> bool {
        self.at != cookie || self.astray || (cookie == 0 && !self.fresh)
    }

    /// The kernel went to `cookie`.
    pub(super) fn went(&mut self, cookie: u64) {
        let growing = Growing { max: self.growing.max, ..Growing::default() };
        *self = Parts { at: cookie, fresh: true, growing, ..Parts::default() };
    }

    /// Keeps nothing: the kernel must go back to what was told last.
    fn forget(&mut self) {
        self.went(self.at);
        self.astray = true;
    }

    /// Where what is read next belongs.
    pub(super) fn grow(&mut self) -> Growing {
        self.fresh = false;
        self.over = false;
        let max = self.growing.max;
        std::mem::replace(&mut self.growing, Growing { max, ..Growing::default() })
    }

    /// Takes what was read: whether more follows, or why not.
    pub(super) fn grown(&mut self, mut growing: Growing, more: Result<bool, Error>) {
        growing.max = self.growing.max;
        self.full.extend(growing.full.drain(..));
        self.growing = growing;
        self.stop = match more {
            Ok(true) => None,
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
    }

    /// Bytes of replies to come.
    pub(super) fn set_max(&mut self, max: usize) {
        self.growing.max = max;
    }

    /// Makes a full part of the last one.
    fn close(&mut self) {
        if !self.growing.part.is_empty() {
            self.growing.close();
            self.full.extend(self.growing.full.drain(..));
        }
    }

    /// The next reply of at most `max` bytes; `None` when there is more to read first. EINVAL when not one entry fits.
    fn take(&mut self, max: usize) -> Option<Result<Bytes, Error>> {
        if self.full.is_empty() && (self.stop.is_some() || self.growing.part.len() >= max) {
            self.close();
        }
        let Some(front) = self.full.front_mut() else {
            let stop = self.stop.take()?;
            self.over = true;
            return Some(stop.map(|()| Bytes::new()));
        };
        let part = if front.bytes.len() <= max { self.full.pop_front() } else { front.split(max) };
        let Some(part) = part else { return Some(Err(Errno::EINVAL.into())) };
        self.at = part.end;
        Some(Ok(part.into_reply()))
    }

    /// The next entry's name; `None` when there is more to read first, or nothing.
    pub(super) fn peek(&mut self) -> Option<Bytes> {
        if self.full.is_empty() {
            self.close();
        }
        let bytes = &self.full.front()?.bytes;
        let entry = dir_entries(bytes).next()?.ok()?;
        Some(bytes.slice_ref(entry.name))
    }

    /// Goes behind the entry that [`Parts::peek`] told.
    pub(super) fn advance(&mut self) {
        let Some(part) = self.full.front_mut() else { return };
        let first = dir_entries(&part.bytes).next().and_then(Result::ok).map(|e| (e.encoded_len(), e.offset));
        if let Some((len, offset)) = first {
            part.bytes.advance(len);
            self.at = offset;
        }
        if part.bytes.is_empty() {
            self.full.pop_front();
        }
    }

    /// The cookie behind what was told last.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// What was found behind the last entry, if something other than more entries; it is not told again.
    pub(super) fn take_stop(&mut self) -> Option<Result<(), Error>> {
        self.stop.take()
    }

    /// Bytes kept.
    fn held(&self) -> usize {
        self.full.iter().map(|part| part.size).sum::<usize>() + self.growing.part.capacity()
    }
}

/// Bytes read ahead of all readers of an export.
#[derive(Default, Debug)]
pub(super) struct Ahead(AtomicUsize);

impl Ahead {
    fn share(self: &Arc<Ahead>) -> Share {
        Share { bytes: 0, all: self.clone() }
    }
}

/// One directory's share of them.
pub(super) struct Share {
    bytes: usize,
    all: Arc<Ahead>,
}

impl Share {
    /// Counts `bytes` from now on; `false` when they are more than all may have.
    fn set(&mut self, bytes: usize) -> bool {
        // Two at a time may go over the bound by what each has, and see it next time.
        let before = self.all.0.fetch_add(bytes, Ordering::Relaxed);
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
        let others = before.saturating_sub(self.bytes);
        self.bytes = bytes;
        bytes == 0 || others + bytes <= AHEAD_ALL
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A request that waits.
struct Waiter {
    cookie: u64,
    max: usize,
    /// The directory went to the cookie for it.
    placed: bool,
    reply: oneshot::Sender<Result<Bytes, Error>>,
}

/// What the thread that reads is to do.
pub(super) enum Next {
    /// Go to this cookie, and tell [`DirStream::went`].
    Go(u64),
    /// Read into it, and give it to [`DirStream::read`].
    Read(Growing),
    /// Nothing: it does not read any more.
    Stop,
}

/// The entries of an open directory.
pub(super) struct DirStream(Mutex<State>);

struct State {
    parts: Parts,
    waiting: VecDeque<Waiter>,
    /// A thread reads: only it touches the directory.
    reading: bool,
    /// Nobody will ask again.
    ended: bool,
    /// Whether to read what nobody has asked for.
    ahead: bool,
    share: Share,
}

impl State {
    /// Bytes that should be ahead of the reader.
    fn target(&self) -> usize {
        let more = self.parts.stop.is_none() && !self.parts.over;
        if more && self.ahead && !self.ended {
            AHEAD.min(self.parts.growing.max.saturating_mul(AHEAD_REPLIES))
        } else {
            0
        }
    }
}

impl DirStream {
    /// `ahead`: it may be read faster than it is asked for.
    pub(super) fn new(ahead: bool, all: &Arc<Ahead>) -> DirStream {
        let (parts, waiting) = (Parts::default(), VecDeque::new());
        DirStream(Mutex::new(State { parts, waiting, reading: false, ended: false, ahead, share: all.share() }))
    }

    /// The reply, if it is ready, and whether a thread is to be started that reads on.
    pub(super) fn tell(&self, cookie: u64, max: usize) -> Option<(Result<Bytes, Error>, bool)> {
        let mut state = lock(&self.0);
        let state = &mut *state;
        // Who asked before is answered before, as an answer moves the place where the next is due.
        if !state.waiting.is_empty() || state.parts.is_elsewhere(cookie) {
            return None;
        }
        state.parts.set_max(max);
        let reply = state.parts.take(max)?;
        if state.reading {
            return Some((reply, false));
        }
        let held = state.parts.held();
        state.share.set(held);
        state.reading = held < state.target() / 2;
        Some((reply, state.reading))
    }

    /// Waits for the reply; `start` is called if a thread is to be started that reads.
    pub(super) async fn wait(&self, cookie: u64, max: usize, start: impl FnOnce()) -> Result<Bytes, Error> {
        let (reply, told) = oneshot::channel();
        if self.begin(Waiter { cookie, max, placed: false, reply }) {
            start();
        }
        // A panic in what reads is its own failure, not the connection's.
        told.await.unwrap_or_else(|_| Err(Error::with_text(Errno::EIO, "file server failed")))
    }

    fn begin(&self, waiter: Waiter) -> bool {
        let mut state = lock(&self.0);
        state.waiting.push_back(waiter);
        !std::mem::replace(&mut state.reading, true)
    }

    /// Answers whom it can; what the thread that reads is to do then.
    pub(super) fn next(&self) -> Next {
        let mut state = lock(&self.0);
        let state = &mut *state;
        while let Some(waiter) = state.waiting.front_mut() {
            // What is read for it makes 0 a place to go to again.
            if !waiter.placed && state.parts.is_elsewhere(waiter.cookie) {
                return Next::Go(waiter.cookie);
            }
            waiter.placed = true;
            state.parts.set_max(waiter.max);
            let Some(reply) = state.parts.take(waiter.max) else { return Next::Read(state.parts.grow()) };
            if let Some(waiter) = state.waiting.pop_front() {
                // Nobody is there any more when the connection is gone.
                let _ = waiter.reply.send(reply);
            }
        }
        let held = state.parts.held();
        if !state.share.set(held) {
            state.parts.forget();
            state.share.set(0);
        } else if held < state.target() {
            return Next::Read(state.parts.grow());
        }
        state.reading = false;
        Next::Stop
    }

    /// The directory is at `cookie` now, or could not go there and stands where it stood.
    pub(super) fn went(&self, cookie: u64, how: Result<(), Error>) {
        let mut state = lock(&self.0);
        match how {
            Ok(()) => state.parts.went(cookie),
            Err(error) => {
                if let Some(waiter) = state.waiting.pop_front() {
                    let _ = waiter.reply.send(Err(error));
                }
            }
        }
    }

    /// This was read; whether more follows, or why not.
    pub(super) fn read(&self, growing: Growing, more: Result<bool, Error>) {
        lock(&self.0).parts.grown(growing, more);
    }

    /// The thread that reads has failed: who waits hears it, and the next one begins anew.
    pub(super) fn fail(&self) {
        let mut state = lock(&self.0);
        state.parts.forget();
        state.waiting.clear();
        state.reading = false;
    }

    /// Nobody will ask again: nothing more is read ahead.
    pub(super) fn end(&self) {
        lock(&self.0).ended = true;
    }

    /// The parts, for one who reads and tells entries himself.
    pub(super) fn parts(&self) -> Own<'_> {
        Own(lock(&self.0))
    }
}

impl fmt::Debug for DirStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirStream").finish_non_exhaustive()
    }
}

/// The parts of a directory whose entries are read under the lock.
pub(super) struct Own<'s>(MutexGuard<'s, State>);

impl std::ops::Deref for Own<'_> {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0.parts
    }
}

impl std::ops::DerefMut for Own<'_> {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0.parts
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        let held = self.0.parts.held();
        if !self.0.share.set(held) {
            self.0.parts.forget();
            self.0.share.set(0);
        }
    }
}

#[cfg(test)]
impl Ahead {
    /// Bytes that directories hold now.
    pub(super) fn held(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Leaves nothing for others.
    pub(super) fn take_all(self: &Arc<Ahead>) -> Share {
        let mut share = self.share();
        share.set(AHEAD_ALL);
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: u64 = 40_000;

    fn entry(cookie: u64) -> (u64, String) {
        (cookie, format!("file-{cookie:05}"))
    }

    /// A directory whose n-th entry has the cookie n, read 1,500 entries at a time.
    struct Dir {
        stream: DirStream,
        at: u64,
        reads: usize,
    }

    impl Dir {
        fn new(ahead: bool, all: &Arc<Ahead>) -> Dir {
            Dir { stream: DirStream::new(ahead, all), at: 0, reads: 0 }
        }

        /// What the thread does that reads.
        fn read_on(&mut self) {
            loop {
                match self.stream.next() {
                    Next::Go(cookie) => {
                        self.at = cookie;
                        self.stream.went(cookie, Ok(()));
                    }
                    Next::Read(mut growing) => {
                        self.reads += 1;
                        let end = ENTRIES.min(self.at + 1500);
                        for (offset, name) in (self.at + 1..=end).map(entry) {
                            growing.push(&DirEntry { qid: Default::default(), offset, kind: 8, name: name.as_bytes() });
                        }
                        let more = end > self.at;
                        self.at = end;
                        self.stream.read(growing, Ok(more));
                    }
                    Next::Stop => return,
                }
            }
        }

        /// The entries of a reply, and whether it was ready.
        fn ask(&mut self, cookie: u64, max: usize) -> (Vec<(u64, String)>, bool) {
            let told = self.stream.tell(cookie, max);
            let ready = told.is_some();
            let reply = match told {
                Some((reply, read_on)) => {
                    if read_on {
                        self.read_on();
                    }
                    reply
                }
                None => {
                    let (reply, mut told) = oneshot::channel();
                    assert!(self.stream.begin(Waiter { cookie, max, placed: false, reply }));
                    self.read_on();
                    told.try_recv().expect("an answer")
                }
            };
            let reply = reply.unwrap();
            assert!(reply.len() <= max);
            let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
            (dir_entries(&reply).map(Result::unwrap).map(|e| (e.offset, name(e.name))).collect(), ready)
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
    }

    #[test]
    fn only_the_first_reply_of_a_listing_is_waited_for_and_all_are_as_full_as_they_can_be() {
        let all = Arc::default();
        let mut dir = Dir::new(true, &all);
        // 34 bytes an entry.
        let max = 64 << 10;
        let replies = (ENTRIES as usize).div_ceil(max / 34);
        assert_eq!(dir.list(0, max), (replies, 1));
        assert_eq!(all.held(), 0);
    }

    #[test]
    fn a_reader_is_at_most_its_share_ahead_and_gives_it_back_when_it_ends() {
        let all = Arc::default();
        let mut dir = Dir::new(true, &all);
        for (max, most) in
            [(300, 300 * AHEAD_REPLIES), (4096, 4096 * AHEAD_REPLIES), (64 << 10, AHEAD), (1 << 20, AHEAD)]
        {
            for _ in 0..3 {
                dir.ask(0, max);
                // What one getdents(2) brings comes on top, in memory that is cut for twice as much at most.
                assert!(all.held() <= 2 * (most + max + CHUNK), "{} bytes for replies of {max}", all.held());
            }
        }
        drop(dir);
        assert_eq!(all.held(), 0);
    }

    #[test]
    fn a_directory_that_may_not_be_read_ahead_is_read_when_it_is_asked_for() {
        let all = Arc::default();
        let mut dir = Dir::new(false, &all);
        dir.ask(0, 4096);
        assert_eq!(dir.reads, 1);
        let (ready, waited) = dir.list(0, 64 << 10);
        assert!(waited >= ENTRIES as usize / 1500 / 2, "{ready} replies were ready, {waited} not");
    }

    #[test]
    fn where_others_have_all_the_memory_nothing_is_kept_and_nothing_is_missed() {
        let all = Arc::default();
        let taken = Ahead::take_all(&all);
        let mut dir = Dir::new(true, &all);
        // Only that it has ended takes no memory.
        assert_eq!(dir.list(0, 8 << 10).0, 1);
        assert_eq!(all.held(), AHEAD_ALL);
        drop(taken);
        assert_eq!(dir.list(0, 8 << 10).1, 1);
    }

    #[test]
    fn replies_of_changing_length_go_on_from_any_cookie() {
        let all = Arc::default();
        let mut dir = Dir::new(true, &all);
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
    fn a_directory_is_read_from_its_start_as_it_is_then_and_not_as_it_was_opened() {
        let all = Arc::default();
        let dir = Dir::new(true, &all);
        assert!(dir.stream.tell(0, 4096).is_none());
        assert!(dir.stream.parts().is_elsewhere(0));
        let (reply, _told) = oneshot::channel();
        assert!(dir.stream.begin(Waiter { cookie: 0, max: 4096, placed: false, reply }));
        assert!(matches!(dir.stream.next(), Next::Go(0)));
    }

    #[test]
    fn a_count_for_no_entry_costs_none() {
        let all = Arc::default();
        let mut dir = Dir::new(true, &all);
        dir.ask(0, 3400);
        let (refused, _) = dir.stream.tell(100, 33).expect("entries that are ready");
        assert_eq!(refused.err().map(|e| e.errno), Some(Errno::EINVAL));
        dir.list(100, 4096);
    }

    #[test]
    fn an_error_comes_behind_the_entries_before_it_and_is_asked_for_again() {
        let all = Arc::default();
        let mut dir = Dir::new(true, &all);
        let (reply, mut told) = oneshot::channel();
        dir.stream.begin(Waiter { cookie: 0, max: 4096, placed: false, reply });
        assert!(matches!(dir.stream.next(), Next::Go(0)));
        dir.stream.went(0, Ok(()));
        let Next::Read(mut growing) = dir.stream.next() else { panic!("something to read") };
        growing.push(&DirEntry { qid: Default::default(), offset: 1, kind: 8, name: entry(1).1.as_bytes() });
        dir.stream.read(growing, Err(Errno::EIO.into()));
        assert!(matches!(dir.stream.next(), Next::Stop));
        assert_eq!(told.try_recv().unwrap().unwrap().len(), 34);
        let (failed, _) = dir.stream.tell(1, 4096).expect("the error");
        assert_eq!(failed.err().map(|e| e.errno), Some(Errno::EIO));
        dir.at = 1;
        dir.list(1, 4096);
    }

    #[test]
    fn who_waits_when_reading_fails_hears_it_and_the_next_one_goes_back() {
        let all = Arc::default();
        let mut dir = Dir::new(true, &all);
        dir.ask(0, 3400);
        let (reply, mut told) = oneshot::channel();
        assert!(dir.stream.begin(Waiter { cookie: 7, max: 4096, placed: false, reply }));
        assert!(matches!(dir.stream.next(), Next::Go(7)));
        dir.stream.fail();
        assert!(told.try_recv().is_err());
        dir.list(100, 4096);
    }
}
