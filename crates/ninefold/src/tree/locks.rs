//! Byte-range locks on the files of a tree, among all clients of this server and with the host's programs.
//!
//! A [`LockTable`] promises:
//!
//! - POSIX semantics (fcntl(2)) between owners; an owner is the connection, `client_id` and `proc_id` together.
//! - A lock ends when the last open file through which it was taken is released.
//! - A wait holds no thread. It is answered exactly once: with the lock, with EDEADLK when its owner would wait for
//!   itself, or, cancelled before either, with EINTR and nothing changed.
//! - Conflicting waits on a file are granted in the order in which they came. An owner whom somebody waits for goes
//!   by the locks alone and passes the queue: to hold it up would hold up those behind it too.
//! - Where the files are the host's, local programs see what clients hold, and the other way round.
//!
//! Why the queue adds no deadlock: whoever waits in a queue behind others is awaited by nobody for its locks, so in a
//! cycle each wait behind it would be a wait in a queue as well, and those lead to older waits only.
//!
//! Lock order:
//!
//! ```text
//! FileLocks::state          the locks, waits and mirror of one file; fcntl(2) is called under this alone
//!     LockTable::files      which files have locks
//!     LockTable::waits      the waits-for graph of all files
//!     LockTable::counts     locks of each connection
//! ```
//!
//! The inner three are never held together, nor while another file's state is.

mod mirror;
mod waits;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ninefold_proto::{Errno, Error};
use tokio::sync::{Notify, oneshot};

use self::mirror::Mirror;
use self::waits::{MAX_EDGES, Standing, Waits};
use super::ranges::{Mode, Ranges, Span};
use crate::server::{Answer, Cx, Lock, LockKind, LockStatus};

/// Locks that one connection may hold. At some 200 bytes each that is 13 MB; a database with a lock for each page that
/// it writes stays far below.
const MAX_LOCKS: usize = 65_536;

/// Bytes of a client_id. It is a host name (Linux sends its nodename, at most 64 bytes), and each lock's owner keeps it.
const MAX_CLIENT_ID: usize = 256;

/// The host tells nobody when a local program's lock ends, except a thread that blocks for it; so it is asked again and
/// again. First after 2 ms: locks of programs that share a file well are as short.
const RETRY_FIRST: Duration = Duration::from_millis(2);

/// No later than a person notices.
const RETRY_LAST: Duration = Duration::from_millis(200);

/// What file a lock is on, whatever name or descriptor it was reached by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileKey {
    pub dev: u64,
    pub ino: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Owner(Arc<OwnerId>);

#[derive(PartialEq, Eq, Hash, Debug)]
struct OwnerId {
    connection: u64,
    client_id: Vec<u8>,
    proc_id: u32,
}

impl Owner {
    fn new(cx: &Cx, lock: &Lock) -> Result<Owner, Errno> {
        if lock.client_id.len() > MAX_CLIENT_ID {
            return Err(Errno::EINVAL);
        }
        let (client_id, proc_id) = (lock.client_id.clone(), lock.proc_id);
        Ok(Owner(Arc::new(OwnerId { connection: cx.connection(), client_id, proc_id })))
    }
}

/// All locks on the files of one tree.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    files: Mutex<HashMap<FileKey, Arc<FileLocks>>>,
    waits: Mutex<Waits>,
    counts: Mutex<HashMap<u64, usize>>,
    next_ticket: AtomicU64,
}

#[derive(Debug)]
struct FileLocks {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    key: FileKey,
    ranges: Ranges<Owner>,
    /// In the order in which they came.
    waiters: Vec<Waiter>,
    /// Opened with the first lock, closed with the last.
    mirror: Option<Mirror>,
    /// Files whose queues must be looked at again once this state is unlocked.
    pokes: Vec<FileKey>,
    /// No longer in the table: whoever waited for the mutex must look the file up again.
    dead: bool,
}

/// A request for a lock.
#[derive(Debug)]
struct Request {
    owner: Owner,
    span: Span,
    mode: Mode,
    holder: u64,
    /// The open file's descriptor, where the host is to know.
    file: Option<Arc<OwnedFd>>,
}

impl Request {
    fn excludes(&self, other: &Request) -> bool {
        self.owner != other.owner && self.span.overlaps(other.span) && self.mode.excludes(other.mode)
    }
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    request: Request,
    /// Only a local program is in the way: the waiting future asks again by a timer, which `timer` starts.
    local: bool,
    timer: Arc<Notify>,
    answer: oneshot::Sender<Result<(), Errno>>,
}

/// What became of a request that was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tried {
    Granted,
    /// Another owner holds a lock in the way.
    Held,
    /// A local program does.
    HeldLocally,
}

/// A request in a file's queue. Dropping it takes the request out, if it is still there.
#[derive(Debug)]
struct Queued {
    table: Arc<LockTable>,
    key: FileKey,
    ticket: u64,
    timer: Arc<Notify>,
    answer: oneshot::Receiver<Result<(), Errno>>,
    /// It is out of the queue.
    answered: bool,
}

impl Drop for Queued {
    fn drop(&mut self) {
        // Not otherwise: this thread would wait for whoever holds the file's state just then.
        if !self.answered {
            self.table.withdraw(self.key, self.ticket);
        }
    }
}

impl LockTable {
    pub(crate) fn new() -> Arc<LockTable> {
        Arc::default()
    }

    /// Takes or drops a lock on a file of the host. `file` is the descriptor of the open file, `holder` a number for
    /// the open file, unique in this table.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn lock(
        self: &Arc<Self>,
        cx: &Cx,
        key: FileKey,
        file: Arc<OwnedFd>,
        holder: u64,
        lock: Lock,
        wait: bool,
    ) -> Answer<LockStatus> {
        self.request(cx, key, Some(file), holder, &lock, wait).unwrap_or_else(Answer::err)
    }

    /// The lock that would stand in the way of `lock` on a file of the host; a local program's has no `client_id`.
    pub(crate) fn getlock(&self, cx: &Cx, key: FileKey, file: &Arc<OwnedFd>, lock: &Lock) -> Answer<Option<Lock>> {
        self.conflict(cx, key, Some(file), lock).into()
    }

    /// [`LockTable::lock`] for a file that the host does not have.
    pub(crate) fn lock_unmirrored(
        self: &Arc<Self>,
        cx: &Cx,
        key: FileKey,
        holder: u64,
        lock: Lock,
        wait: bool,
    ) -> Answer<LockStatus> {
        self.request(cx, key, None, holder, &lock, wait).unwrap_or_else(Answer::err)
    }

    /// [`LockTable::getlock`] for a file that the host does not have.
    pub(crate) fn getlock_unmirrored(&self, cx: &Cx, key: FileKey, lock: &Lock) -> Answer<Option<Lock>> {
        self.conflict(cx, key, None, lock).into()
    }

    /// An open file was clunked: the locks taken through it alone end.
    pub(crate) fn release(&self, key: FileKey, holder: u64) {
        self.with(key, false, |state| {
            for (owner, fewer, spans) in state.ranges.release(holder) {
                self.uncount(owner.0.connection, fewer as isize);
                for span in spans {
                    state.clear_mirror(span);
                }
            }
            self.scan(state);
        });
    }

    fn request(
        self: &Arc<Self>,
        cx: &Cx,
        key: FileKey,
        file: Option<Arc<OwnedFd>>,
        holder: u64,
        lock: &Lock,
        wait: bool,
    ) -> Result<Answer<LockStatus>, Errno> {
        let span = Span::new(lock.start, lock.length)?;
        let owner = Owner::new(cx, lock)?;
        let mode = match lock.kind {
            LockKind::Read => Mode::Read,
            LockKind::Write => Mode::Write,
            LockKind::Unlock => {
                self.with(key, false, |state| self.unlock(state, &owner, span)).transpose()?;
                return Ok(Answer::ok(LockStatus::Granted));
            }
        };
        let request = Request { owner, span, mode, holder, file };
        if !wait {
            let tried = self.with(key, true, |state| self.take(state, &request)).expect("the file was made")?;
            return Ok(Answer::ok(match tried {
                Tried::Granted => LockStatus::Granted,
                Tried::Held | Tried::HeldLocally => LockStatus::Blocked,
            }));
        }
        let Some(mut queued) =
            self.with(key, true, |state| self.enqueue(state, request)).expect("the file was made")?
        else {
            return Ok(Answer::ok(LockStatus::Granted));
        };
        if let Ok(answer) = queued.answer.try_recv() {
            return answer.map(|()| Answer::ok(LockStatus::Granted));
        }
        let cx = cx.clone();
        Ok(match cx.park() {
            Ok(parked) => Answer::later(async move {
                let _parked = parked;
                queued.wait(&cx).await
            }),
            Err(error) => match queued.withdraw() {
                Some(Ok(())) => Answer::ok(LockStatus::Granted),
                Some(Err(errno)) => Answer::err(errno),
                None => Answer::err(error),
            },
        })
    }

    fn conflict(&self, cx: &Cx, key: FileKey, file: Option<&Arc<OwnedFd>>, lock: &Lock) -> Result<Option<Lock>, Error> {
        let span = Span::new(lock.start, lock.length)?;
        let owner = Owner::new(cx, lock)?;
        let mode = match lock.kind {
            LockKind::Read => Mode::Read,
            LockKind::Write => Mode::Write,
            // Linux's client puts this for every F_GETLK: what it would lock is not known. A lock for writing stands in
            // everybody's way; one for reading may not, and is not told.
            LockKind::Unlock => Mode::Read,
        };
        let found = |mode, span: Span, proc_id, client_id| Lock {
            kind: if mode == Mode::Write { LockKind::Write } else { LockKind::Read },
            start: span.first,
            length: span.length(),
            proc_id,
            client_id,
        };
        // The file is entered even if it has no locks yet, lest the mirror of one taken just now is mistaken for a
        // local program's.
        self.with(key, true, |state| {
            if let Some((owner, span, mode)) = state.ranges.conflict(&owner, span, mode) {
                return Ok(Some(found(mode, span, owner.0.proc_id, owner.0.client_id.clone())));
            }
            let local = match (&state.mirror, file) {
                (Some(mirror), _) => mirror.conflict(span, mode)?,
                (None, Some(file)) => mirror::conflict(file, span, mode)?,
                (None, None) => None,
            };
            Ok(local.map(|local| found(local.mode, local.span, local.pid, Vec::new())))
        })
        .expect("the file was made")
    }

    /// Does something with a file's state, and then with the queues of other files that it sets free. `None` when the
    /// file has no state and none is to be made.
    fn with<T>(&self, key: FileKey, make: bool, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        let (value, mut pokes) = self.visit(key, make, act)?;
        while let Some(key) = pokes.pop() {
            if let Some(((), more)) = self.visit(key, false, |state| self.scan(state)) {
                pokes.extend(more);
            }
        }
        Some(value)
    }

    fn visit<T>(&self, key: FileKey, make: bool, act: impl FnOnce(&mut State) -> T) -> Option<(T, Vec<FileKey>)> {
        loop {
            let file = {
                let mut files = locked(&self.files);
                match files.get(&key) {
                    Some(file) => file.clone(),
                    None if !make => return None,
                    None => files.entry(key).or_insert_with(|| Arc::new(FileLocks::new(key))).clone(),
                }
            };
            let mut state = locked(&file.state);
            if state.dead {
                continue;
            }
            let value = act(&mut state);
            let pokes = std::mem::take(&mut state.pokes);
            if state.ranges.is_empty() && state.waiters.is_empty() {
                // The mirror goes before the file can be entered anew, or the next one could meet its locks.
                state.mirror = None;
                state.dead = true;
                locked(&self.files).remove(&key);
            }
            return Some((value, pokes));
        }
    }

    /// Grants the request if nothing held stands in the way.
    fn attempt(&self, state: &mut State, request: &Request) -> Result<Tried, Errno> {
        let Request { owner, span, mode, holder, file } = request;
        if state.ranges.conflict(owner, *span, *mode).is_some() {
            return Ok(Tried::Held);
        }
        let plan = state.ranges.plan(owner, *span, Some((*mode, *holder)));
        self.count(owner.0.connection, plan.growth())?;
        // No other owner holds any of the span, or all hold it for reading: so what all hold together is the request
        // itself, and the host takes that as a whole or not at all.
        let taken = match file {
            Some(file) => state.mirror.get_or_insert_with(|| Mirror::open(file)).take(*span, *mode),
            None => Ok(true),
        };
        match taken {
            Ok(true) => {
                state.ranges.apply(plan);
                Ok(Tried::Granted)
            }
            Ok(false) => {
                self.uncount(owner.0.connection, plan.growth());
                Ok(Tried::HeldLocally)
            }
            Err(errno) => {
                self.uncount(owner.0.connection, plan.growth());
                Err(errno)
            }
        }
    }

    /// A request that does not wait. It does not queue either: only what is held can refuse it, as fcntl(2) has it.
    fn take(&self, state: &mut State, request: &Request) -> Result<Tried, Errno> {
        let tried = self.attempt(state, request)?;
        if tried == Tried::Granted {
            self.scan(state);
        }
        Ok(tried)
    }

    fn unlock(&self, state: &mut State, owner: &Owner, span: Span) -> Result<(), Errno> {
        let plan = state.ranges.plan(owner, span, None);
        self.count(owner.0.connection, plan.growth())?;
        state.ranges.apply(plan);
        state.clear_mirror(span);
        self.scan(state);
        Ok(())
    }

    /// Grants the request at once (`None`), or puts it into the queue, where it may have been answered already.
    fn enqueue(self: &Arc<Self>, state: &mut State, request: Request) -> Result<Option<Queued>, Errno> {
        if state.waiters.is_empty() && self.attempt(state, &request)? == Tried::Granted {
            return Ok(None);
        }
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let timer = Arc::new(Notify::new());
        let (sender, answer) = oneshot::channel();
        state.waiters.push(Waiter { ticket, request, local: false, timer: timer.clone(), answer: sender });
        if self.consider(state, state.waiters.len() - 1, false) {
            self.scan(state);
        }
        Ok(Some(Queued { table: self.clone(), key: state.key, ticket, timer, answer, answered: false }))
    }

    /// Answers the request at `at` in the queue if that can be done, and then takes it out. `retry`: the host is asked
    /// although it refused before.
    fn consider(&self, state: &mut State, at: usize, retry: bool) -> bool {
        let Waiter { ticket, request, local, .. } = &state.waiters[at];
        let (ticket, was_local) = (*ticket, *local);
        let held = state.ranges.conflicts(&request.owner, request.span, request.mode);
        let on: Vec<Owner> = held.take(MAX_EDGES).map(|(owner, ..)| owner.clone()).collect();
        let is_held = !on.is_empty();
        let standing = locked(&self.waits).publish(ticket, state.key, &request.owner, on, &mut state.pokes);
        let awaited = match standing {
            Standing::Deadlock => {
                state.answer(at, Err(Errno::EDEADLK));
                return true;
            }
            Standing::Waits { awaited } => awaited,
        };
        let queues = !awaited && state.waiters[..at].iter().any(|earlier| earlier.request.excludes(request));
        if is_held || queues {
            state.waiters[at].local = false;
            return false;
        }
        if was_local && !retry {
            return false;
        }
        // Out of the queue for the time of the attempt, which borrows the state.
        let mut waiter = state.waiters.remove(at);
        let tried = self.attempt(state, &waiter.request);
        if let Ok(Tried::Held | Tried::HeldLocally) = tried {
            if !was_local {
                waiter.local = true;
                waiter.timer.notify_one();
            }
            state.waiters.insert(at, waiter);
            return false;
        }
        locked(&self.waits).forget(ticket);
        // Nobody listening means that the wait is being given up; the lock then ends with its holder.
        let _ = waiter.answer.send(tried.map(|_| ()));
        true
    }

    /// Goes through the queue after locks have changed: answers what can be, and brings the graph up to date.
    fn scan(&self, state: &mut State) {
        loop {
            let mut changed = false;
            let mut at = 0;
            while at < state.waiters.len() {
                if self.consider(state, at, false) {
                    changed = true;
                } else {
                    at += 1;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Asks the host again for a waiting request. `true` while only a local program is in its way.
    fn retry(&self, key: FileKey, ticket: u64) -> bool {
        let local = self.with(key, false, |state| {
            let at = state.waiters.iter().position(|waiter| waiter.ticket == ticket)?;
            if self.consider(state, at, true) {
                self.scan(state);
                return None;
            }
            Some(state.waiters[at].local)
        });
        local.flatten().unwrap_or(false)
    }

    /// Takes a request out of the queue; `false` when it is answered already.
    fn withdraw(&self, key: FileKey, ticket: u64) -> bool {
        let withdrawn = self.with(key, false, |state| {
            let Some(at) = state.waiters.iter().position(|waiter| waiter.ticket == ticket) else { return false };
            state.waiters.remove(at);
            locked(&self.waits).forget(ticket);
            self.scan(state);
            true
        });
        withdrawn.unwrap_or(false)
    }

    /// Counts `growth` more locks of a connection: ENOLCK when those are too many.
    fn count(&self, connection: u64, growth: isize) -> Result<(), Errno> {
        let mut counts = locked(&self.counts);
        let old = counts.get(&connection).copied().unwrap_or(0);
        let new = old.saturating_add_signed(growth);
        if growth > 0 && new > MAX_LOCKS {
            return Err(Errno::ENOLCK);
        }
        set_count(&mut counts, connection, new);
        Ok(())
    }

    /// Takes back what was counted.
    fn uncount(&self, connection: u64, growth: isize) {
        let mut counts = locked(&self.counts);
        let old = counts.get(&connection).copied().unwrap_or(0);
        set_count(&mut counts, connection, old.saturating_add_signed(-growth));
    }
}

fn set_count(counts: &mut HashMap<u64, usize>, connection: u64, count: usize) {
    if count == 0 {
        counts.remove(&connection);
    } else {
        counts.insert(connection, count);
    }
}

/// A panic under one of these mutexes is a defect in one request; the others go on.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FileLocks {
    fn new(key: FileKey) -> FileLocks {
        let (ranges, waiters, pokes) = (Ranges::new(), Vec::new(), Vec::new());
        FileLocks { state: Mutex::new(State { key, ranges, waiters, mirror: None, pokes, dead: false }) }
    }
}

impl State {
    fn answer(&mut self, at: usize, result: Result<(), Errno>) {
        let _ = self.waiters.remove(at).answer.send(result);
    }

    /// Lets go on the host what nobody holds any more of `span`.
    fn clear_mirror(&self, span: Span) {
        if let Some(mirror) = &self.mirror {
            for gap in self.ranges.gaps(span) {
                mirror.clear(gap);
            }
        }
    }
}

impl Queued {
    async fn wait(&mut self, cx: &Cx) -> Result<LockStatus, Error> {
        let mut delay = None;
        loop {
            tokio::select! {
                biased;
                answer = &mut self.answer => {
                    self.answered = true;
                    let result = answer.unwrap_or(Err(Errno::EIO));
                    return result.map(|()| LockStatus::Granted).map_err(Error::from);
                }
                // When it is not in the queue any more it is answered, and the answer is met in the next round.
                () = cx.cancelled() => {
                    if self.elsewhere(LockTable::withdraw).await? {
                        self.answered = true;
                        return Err(Errno::EINTR.into());
                    }
                }
                () = self.timer.notified() => delay = Some(RETRY_FIRST),
                () = tokio::time::sleep(delay.unwrap_or_default()), if delay.is_some() => {
                    let local = self.elsewhere(LockTable::retry).await?;
                    delay = delay.filter(|_| local).map(|delay| (delay * 2).min(RETRY_LAST));
                }
            }
        }
    }

    /// On the blocking pool: another machine's file system may take its time to lock, and to close the mirror.
    async fn elsewhere(&self, act: fn(&LockTable, FileKey, u64) -> bool) -> Result<bool, Errno> {
        let (table, key, ticket) = (self.table.clone(), self.key, self.ticket);
        tokio::task::spawn_blocking(move || act(&table, key, ticket)).await.map_err(|_| Errno::EIO)
    }

    /// Gives the wait up before it began: its answer, if it was faster.
    fn withdraw(&mut self) -> Option<Result<(), Errno>> {
        if self.table.withdraw(self.key, self.ticket) { None } else { self.answer.try_recv().ok() }
    }
}

#[cfg(test)]
mod tests;
