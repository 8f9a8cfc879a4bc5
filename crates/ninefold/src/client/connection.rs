//! One connection to a server: calls and their replies.
//!
//! [`Handle::call`] puts a request into the queue and waits for its reply; one task, the [`Driver`](super::driver),
//! moves the bytes of all of them. A call that is dropped is flushed; an
//! [`OwnedFid`] that is dropped is clunked, an [`OwnedStream`] ended; the last [`Handle`] that is dropped ends the connection, after the clunks.
//!
//! Locks: `Shared::state` alone, never held across an await, nor while a reply is handed over or dropped: both may drop
//! an `OwnedFid`, an `OwnedStream` or a `Handle`, which take it.

mod room;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use ninefold_proto::client::{
    Due, Limits, Parting, Presumption, Queue, Refused, ServerMisbehaved, Session, Turn, changes,
};
use ninefold_proto::dialect::Version;
use ninefold_proto::message::info;
use ninefold_proto::wire::{HEADER, split_frame};
use ninefold_proto::{Dialect, Fid, R, T, Tag};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

pub(super) use room::{Room, Rooms};
pub(super) use waiting::{Call, Place, Waiting};

use super::budget::Budget;
use super::dialer::Dialer;
use super::driver::Driver;
use super::error::{Error, Loss};
use super::fid::{NewFid, OwnedFid};
use super::flight::Learned;
use super::outbox::{Outbox, TakenBack};
use super::owned_stream::OwnedStream;
use super::progress::{Progress, after};
use super::stats::{Lane, Stats};
use crate::transport::Stream;

/// `size[4] type[1] tag[2] count[4]`, in front of the data of Rread and Rreaddir.
const DATA_AT: usize = HEADER + 4;

/// The same with `flags[4]`, in front of the data of Rreaddirplus.
const PLUS_DATA_AT: usize = DATA_AT + 4;

/// How long a connection that ends waits for its last clunks and flushes to be answered, at least.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// From giving a connection up to its end, which takes no more than the start of a process: nobody is to feel it.
const CUT: Duration = Duration::from_millis(50);

/// The reply to a call.
#[derive(Debug)]
pub(super) struct Reply {
    pub frame: Bytes,
    pub version: Version,
    /// When it came.
    pub at: Instant,
    /// The fid that the call made.
    pub made: Option<OwnedFid>,
    /// The stream of `.n1` that it was for.
    pub stream: Option<OwnedStream>,
}

impl Reply {
    /// The message. It was decoded and compared with its request before.
    pub fn message(&self) -> Result<R<'_>, Error> {
        let bad = |e| Error::Misbehaved(ServerMisbehaved::Frame(e));
        let (header, body) = split_frame(&self.frame).map_err(bad)?;
        R::decode(header.kind, body, self.version).map_err(bad)
    }

    /// Bytes of [`Reply::data`].
    pub fn data_len(&self) -> usize {
        self.frame.len().saturating_sub(DATA_AT)
    }

    /// The data of an Rread or Rreaddir: the bytes where they arrived, not a copy, but for small ones.
    pub fn data(self) -> Bytes {
        self.frame.slice(DATA_AT.min(self.frame.len())..)
    }

    /// The data of an Rreaddirplus, in the same way.
    pub fn plus_data(self) -> Bytes {
        self.frame.slice(PLUS_DATA_AT.min(self.frame.len())..)
    }
}

/// The right to make calls. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Handle(Arc<Open>);

/// Ends the connection when it is dropped.
#[derive(Debug)]
struct Open {
    shared: Arc<Shared>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.waker.wake();
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Of the task that moves the bytes.
    pub waker: AtomicWaker,
    /// One permit for each call that the session takes; who waits gets one in the order of asking. Closed when the
    /// connection is over.
    room: Semaphore,
    /// Told when the connection is over.
    over: Notify,
    /// Told when the version that was presumed is agreed, and when the connection is over.
    agreed: Notify,
    pub version: Version,
    /// See [`Handle::prelude_depth`].
    prelude_depth: u32,
    /// The session's, to be looked at without a lock: it changes once, when what was presumed is agreed.
    msize: AtomicU32,
    /// The longest silence; see [`Progress`].
    pub timeout: Option<Duration>,
    windows: Windows,
    dialer: Arc<Dialer>,
}

/// What readers and writers learned of the path, for the next of them, and what they share.
#[derive(Debug, Default)]
pub(super) struct Windows {
    pub reading: Learned,
    pub writing: Learned,
    pub budget: Budget,
}

impl Shared {
    pub fn msize(&self) -> u32 {
        self.msize.load(Ordering::Relaxed)
    }

    /// The version that was presumed is agreed.
    pub fn agree(&self, state: &mut State, msize: u32) {
        state.standing = Standing::Agreed;
        state.session.set_msize(msize);
        self.msize.store(msize, Ordering::Relaxed);
        self.agreed.notify_waiters();
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls ended since there were `before` in the session: gives room for others, and tells who waited for their end.
    pub fn ended_since(&self, state: &mut State, before: usize) {
        self.room.add_permits(before.saturating_sub(state.session.calls()));
        let session = &state.session;
        for (_, sender) in state.unnamed.extract_if(.., |(fid, _)| !session.is_named(*fid)) {
            let _ = sender.send(());
        }
    }

    /// Every call fails with `error`, those to come too; the first reason stays.
    pub fn end(&self, error: Error) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(error.clone());
        state.outbox.clear();
        state.unnamed.clear();
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for waiter in waiters.into_values().flatten() {
            waiter.tell(Err(error.clone()));
        }
        self.room.close();
        self.over.notify_waiters();
        self.agreed.notify_waiters();
    }

    /// `future`, while no silence is longer than the timeout: `since` tells when it began, as it stands.
    async fn patiently<F: Future>(&self, since: impl Fn(&State) -> Instant, future: F) -> Result<F::Output, Error> {
        let Some(limit) = self.timeout else { return Ok(future.await) };
        tokio::pin!(future);
        let mut silent = since(&self.lock());
        loop {
            if let Ok(output) = tokio::time::timeout_at(after(silent, limit), &mut future).await {
                return Ok(output);
            }
            let latest = since(&self.lock());
            if latest <= silent {
                return Err(Error::TimedOut(limit));
            }
            silent = latest;
        }
    }

    fn ended(&self) -> Error {
        self.lock().ended.clone().unwrap_or(Error::Lost(Loss::ClosedHere))
    }
}

/// What is known of the version.
#[derive(Debug)]
pub(super) enum Standing {
    Agreed,
    /// The server has said nothing yet.
    Presumed(Box<Presumption>),
    /// It speaks another, and has done nothing of what it was asked.
    Refuted,
}

#[derive(Debug)]
pub(super) struct State {
    pub session: Session,
    pub standing: Standing,
    pub outbox: Outbox,
    /// Those of a tag in the order in which they are answered; no queue is empty.
    pub waiters: HashMap<Tag, Queue<Waiter>>,
    /// Of the next call.
    next_serial: u64,
    progress: Progress,
    /// Who waits until no request names a fid.
    unnamed: Vec<(Fid, oneshot::Sender<()>)>,
    /// Since when the server has owed an answer for which nobody waits.
    unattended: Option<Unattended>,
    /// When something was sent that only was to come behind what may be lost.
    probed_at: Option<Instant>,
    /// The depth of the last reply, which made room for whoever waited for it.
    pub freed_depth: u32,
    pub round_trips: u32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// When the last bytes came.
    pub heard_at: Instant,
    pub closing: bool,
    /// Clunks that tell nothing are not waited for at the end.
    pub in_haste: bool,
    /// [`Options::clunks_held_back`](super::Options::clunks_held_back).
    holds_clunks: bool,
    /// How long the end waits for the last clunks and flushes to be answered.
    pub linger: Duration,
    ended: Option<Error>,
    /// Something was asked for that changes files.
    changes: bool,
    /// The last call of a chain whose Tguard waits for more to guard, by its tag; it may be answered.
    guarded: HashMap<Tag, u64>,
}

impl State {
    /// What is presumed, while the server has said nothing.
    pub fn presumption(&mut self) -> Option<&mut Presumption> {
        if let Standing::Presumed(presumption) = &mut self.standing { Some(presumption) } else { None }
    }

    /// Queues the flushes, clunks and ends of streams that are due, and those held back that a request is to take with it; none while it is
    /// only presumed that the server understands them.
    pub fn queue_all_own(&mut self) {
        self.session.hold_back_clunks(false);
        self.queue_own();
        self.session.hold_back_clunks(self.holds_clunks);
    }

    /// Queues the flushes, clunks and ends of streams that are due; none while it is only presumed that the server understands them.
    pub fn queue_own(&mut self) {
        if self.presumption().is_some() {
            return;
        }
        let mut own = Vec::new();
        while self.session.poll_transmit(&mut own) {}
        if !own.is_empty() {
            self.outbox.push(self.session.requests() - 1, 0, own, Bytes::new());
        }
    }

    /// Something of a request moved.
    pub fn moved(&mut self, ordinal: u64, now: Instant) {
        if self.progress.is_long(self.waiters.len()) {
            for line in self.waiters.values_mut() {
                let first = line.front().and_then(|waiter| waiter.ordinal);
                for waiter in line.iter_mut() {
                    let seen = waiter.ordinal.or(first).and_then(|ordinal| self.progress.seen_by(ordinal));
                    waiter.silent = waiter.silent.max(seen.unwrap_or(waiter.silent));
                }
            }
            self.watch(now);
            self.progress.forget();
        }
        self.progress.note(ordinal, now);
    }

    /// Since when nothing has moved that a call waits behind; `now` when its reply is there.
    fn silent_since(&self, call: Call) -> Instant {
        let line = self.waiters.get(&call.tag);
        let Some(waiter) = line.and_then(|line| line.iter().find(|waiter| waiter.serial == call.serial)) else {
            return Instant::now();
        };
        // What has not been sent waits behind what has.
        let ordinal = waiter.ordinal.or_else(|| line?.front()?.ordinal);
        let seen = ordinal.and_then(|ordinal| self.progress.seen_by(ordinal));
        waiter.silent.max(seen.unwrap_or(waiter.silent))
    }

    /// Since when nothing has moved of what the server owes and nobody waits for; `None` when it owes nothing.
    pub fn watch(&mut self, now: Instant) -> Option<Instant> {
        let serial = self.session.oldest_unattended();
        self.unattended = serial.map(|serial| match self.unattended {
            Some(known) if known.serial == serial => {
                let silent = known.silent.max(self.progress.seen_by(known.ordinal).unwrap_or(known.silent));
                Unattended { silent, ..known }
            }
            _ => Unattended { serial, ordinal: self.session.requests() - 1, silent: now },
        });
        self.unattended.map(|unattended| unattended.silent)
    }

    /// Whether somebody waits for the call. The tag may serve another one already.
    fn waits(&self, call: Call) -> bool {
        let line = self.waiters.get(&call.tag);
        line.and_then(Queue::back).is_some_and(|last| last.serial == call.serial)
    }

    /// Whether the next request of a chain whose last one was `call` goes behind it: it is unanswered, or its Tguard waits for
    /// more.
    fn goes_on(&self, call: Call) -> bool {
        self.waits(call) || self.guarded.get(&call.tag) == Some(&call.serial)
    }

    /// Requests that have had their turn go out; those that never will are told why, by the caller, outside the lock.
    pub fn take_turns(&mut self, now: Instant) -> Vec<(Waiter, Error)> {
        let mut failed = Vec::new();
        while let Some(due) = self.session.poll_turn() {
            match due {
                Due::Send { tag } => {
                    let ordinal = self.session.ordinal(tag);
                    if let Some(waiter) = self.waiters.get_mut(&tag).and_then(Queue::front_mut)
                        && let Some(((head, payload), ordinal)) = waiter.held.take().zip(ordinal)
                    {
                        // The reply that came just now is its cause.
                        waiter.depth = waiter.depth.max(self.freed_depth + 1);
                        (waiter.ordinal, waiter.silent) = (Some(ordinal), now);
                        self.outbox.push(ordinal, waiter.depth, head, payload);
                    }
                }
                Due::Failed { tag, error } => {
                    failed.extend(self.take_waiter(tag).map(|waiter| (waiter, Error::Refused(error))));
                }
            }
        }
        failed
    }

    /// Who waits for the next answer with a tag.
    pub fn take_waiter(&mut self, tag: Tag) -> Option<Waiter> {
        let line = self.waiters.get_mut(&tag)?;
        let waiter = line.pop_front();
        if line.is_empty() {
            self.waiters.remove(&tag);
        }
        waiter
    }

    /// Nobody waits for a call any more, and it is out of the waiters: flushes what has begun to leave; what has not is as
    /// if it had never been asked. A clunk goes on.
    fn give_up(&mut self, tag: Tag, waiter: &Waiter) {
        let ordinal = waiter.ordinal.filter(|_| !waiter.goes_on);
        match ordinal.map_or(TakenBack::No, |ordinal| self.outbox.take_back(ordinal, tag)) {
            TakenBack::Yes => self.given_up(tag, true),
            TakenBack::No => self.given_up(tag, false),
            // The driver does it, when it has written.
            TakenBack::Later => {}
        }
    }

    /// The same for several of a tag: what has not begun to leave is taken back from the end on, the rest is flushed.
    fn give_up_chain(&mut self, tag: Tag, line: &Queue<Waiter>) {
        let ordinals: Vec<_> = line.iter().map(|waiter| waiter.ordinal).collect();
        let unsent = ordinals.iter().rev().take_while(|ordinal| ordinal.is_none_or(|at| self.outbox.take_back_now(at)));
        for _ in 0..unsent.count() {
            self.session.withdraw_last(tag);
        }
        self.session.cancel(tag);
    }

    /// The same when it is known whether it was `taken_back` out of what is to be sent.
    pub fn given_up(&mut self, tag: Tag, taken_back: bool) {
        if taken_back {
            self.session.withdraw(tag);
        } else {
            // It takes its room until the server has let go of it.
            self.session.cancel(tag);
        }
    }
}

/// The oldest of [`Session::unattended`].
#[derive(Clone, Copy, Debug)]
struct Unattended {
    serial: u64,
    /// Of the last request when it became the oldest: its Tflush is among those before.
    ordinal: u64,
    /// Since when nothing has moved that it waits behind.
    silent: Instant,
}

/// Who waits for a reply.
#[derive(Debug)]
pub(super) struct Waiter {
    serial: u64,
    /// See [`Session::ordinal`]; `None` while it has not had its turn.
    pub ordinal: Option<u64>,
    /// What is sent when it has.
    pub held: Option<(Vec<u8>, Bytes)>,
    /// Of its chain: how deep the last reply was that came to it. The fid that a reply may make has an owner then.
    pub chain: Option<Lane>,
    /// Since when nothing has moved that it waits behind, as far as [`Progress`] has forgotten it.
    pub silent: Instant,
    pub depth: u32,
    /// Tclunk or Tremove, by which the server forgets a fid.
    goes_on: bool,
    /// For the fid or the stream that the reply may make.
    pub handle: Handle,
    sender: oneshot::Sender<(u32, Result<Reply, Error>)>,
}

impl Waiter {
    /// Hands over what came. Not to be called under the lock.
    pub fn tell(self, result: Result<Reply, Error>) {
        if let Some(chain) = &self.chain {
            chain.raise(self.depth);
        }
        // Nobody may look at it any more.
        let _ = self.sender.send((self.depth, result));
    }
}

/// What the handshake left: how deep it went and what passed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prelude {
    pub offers: u32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// How long it took to make the connection, where that is known.
    pub dialled_in: Duration,
    /// How long the version took, or what a round trip took the last time where that is not waited for; the same.
    pub answered_in: Duration,
}

impl Handle {
    /// Starts the task of a connection that agreed on `version` and `msize`; `arrived` came behind the Rversion.
    pub fn start(
        stream: Stream,
        arrived: BytesMut,
        agreed: (Version, u32),
        timeout: Option<Duration>,
        prelude: Prelude,
    ) -> Handle {
        Handle::with(stream, arrived, agreed, Standing::Agreed, timeout, prelude)
    }

    /// The same on a stream on which the Tversion of a presumption was sent, and not answered; its fids begin at `first`.
    pub fn presume(
        stream: Stream,
        presumption: Presumption,
        first: Fid,
        timeout: Option<Duration>,
        prelude: Prelude,
    ) -> Handle {
        let presumed = (presumption.version(), presumption.msize());
        let standing = Standing::Presumed(Box::new(presumption));
        let handle = Handle::with(stream, BytesMut::new(), presumed, standing, timeout, prelude);
        handle.0.shared.lock().session.begin_fids_at(first);
        handle
    }

    fn with(
        stream: Stream,
        arrived: BytesMut,
        (version, msize): (Version, u32),
        standing: Standing,
        timeout: Option<Duration>,
        prelude: Prelude,
    ) -> Handle {
        let limits = Limits::default();
        let prelude_depth = if matches!(standing, Standing::Presumed(_)) { 0 } else { prelude.offers };
        let state = State {
            session: Session::new(version, msize, limits),
            standing,
            outbox: Outbox::default(),
            waiters: HashMap::new(),
            next_serial: 0,
            progress: Progress::default(),
            unnamed: Vec::new(),
            unattended: None,
            probed_at: None,
            freed_depth: 0,
            round_trips: prelude.offers,
            bytes_sent: prelude.bytes_sent,
            bytes_received: prelude.bytes_received,
            heard_at: Instant::now(),
            closing: false,
            in_haste: false,
            holds_clunks: false,
            linger: LINGER,
            ended: None,
            changes: false,
            guarded: HashMap::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            waker: AtomicWaker::new(),
            room: Semaphore::new(limits.calls),
            over: Notify::new(),
            agreed: Notify::new(),
            version,
            prelude_depth,
            msize: AtomicU32::new(msize),
            timeout,
            windows: Windows::default(),
            dialer: Dialer::of(&stream, prelude.dialled_in, prelude.answered_in),
        });
        tokio::spawn(Driver::new(shared.clone(), stream, arrived).run());
        Handle(Arc::new(Open { shared }))
    }

    /// Whether both are of one connection.
    pub fn is(&self, other: &Handle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub fn dialect(&self) -> Dialect {
        self.version().dialect
    }

    pub fn version(&self) -> Version {
        self.0.shared.version
    }

    pub fn msize(&self) -> u32 {
        self.0.shared.msize()
    }

    /// Whether the version is only presumed yet.
    pub fn is_presumed(&self) -> bool {
        self.0.shared.lock().presumption().is_some()
    }

    /// The depth that the handshake left for what comes first: nothing where its answer was not waited for.
    pub fn prelude_depth(&self) -> u32 {
        self.0.shared.prelude_depth
    }

    /// Waits until the server has agreed on what was presumed, or the connection is over. Without a bound.
    pub async fn agreed(&self) {
        let shared = &self.0.shared;
        loop {
            let agreed = shared.agreed.notified();
            tokio::pin!(agreed);
            // Registered before the look, so that a change between the two is not missed.
            agreed.as_mut().enable();
            let is_known = {
                let mut state = shared.lock();
                state.ended.is_some() || state.presumption().is_none()
            };
            if is_known {
                return;
            }
            agreed.await;
        }
    }

    /// What became of the presumption that the connection began with.
    pub fn fate(&self) -> Fate {
        match &self.0.shared.lock().standing {
            Standing::Agreed => Fate::Agreed,
            Standing::Refuted => Fate::Refuted,
            Standing::Presumed(presumption) => Fate::Unknown { changes: presumption.changes() },
        }
    }

    /// What an error of the connection means for an operation that was on its way with it: where that changes files, nobody
    /// knows whether it was done.
    pub fn doubt(&self, error: Error) -> Error {
        let of_the_peer =
            matches!(error, Error::Lost(_) | Error::TimedOut(_) | Error::Misbehaved(_) | Error::Suspect(_));
        let changes = self.0.shared.lock().changes;
        if of_the_peer && changes { Error::InDoubt(Box::new(error)) } else { error }
    }

    /// Ends the connection as it stands, whoever has a part in it.
    pub fn cut(&self) {
        let shared = &self.0.shared;
        let mut state = shared.lock();
        (state.closing, state.linger) = (true, Duration::ZERO);
        drop(state);
        shared.waker.wake();
        shared.end(Error::Lost(Loss::ClosedHere));
    }

    pub fn windows(&self) -> &Windows {
        &self.0.shared.windows
    }

    /// Its data connections.
    pub fn dialer(&self) -> &Arc<Dialer> {
        &self.0.shared.dialer
    }

    /// A fid for the next call to make; see [`Session::new_fid`].
    pub fn new_fid(&self) -> Result<NewFid<'_>, Error> {
        let fid = self.0.shared.lock().session.new_fid().ok_or(Error::TooManyFids)?;
        Ok(NewFid::taken(self, fid))
    }

    /// The same for a request of a chain: whatever becomes of that, the number is nobody else's before the fid is released,
    /// abandoned or [settled](Handle::settle); see [`Session::keep`].
    pub fn new_kept_fid(&self) -> Result<NewFid<'_>, Error> {
        let new = self.new_fid()?;
        self.0.shared.lock().session.keep(new.fid(), true);
        Ok(new)
    }

    /// Takes back a new fid that no call named.
    pub fn release(&self, fid: Fid) {
        self.0.shared.lock().session.release(fid);
    }

    /// Waits until no request names a fid, for which its owner asks nothing more. What was given up on it is done within the
    /// timeout, or the connection is over.
    pub async fn unnamed(&self, fid: Fid) -> Result<(), Error> {
        let shared = &self.0.shared;
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = shared.lock();
            if state.ended.is_some() || !state.session.is_named(fid) {
                return Ok(());
            }
            state.unnamed.push((fid, sender));
        }
        let began = Instant::now();
        let silent = |state: &State| began.max(state.progress.latest().unwrap_or(began));
        shared.patiently(silent, receiver).await?.map_err(|_| shared.ended())
    }

    /// See [`Options::clunks_held_back`](super::Options::clunks_held_back).
    pub fn hold_back_clunks(&self, hold: bool) {
        let mut state = self.0.shared.lock();
        state.holds_clunks = hold;
        state.session.hold_back_clunks(hold);
        drop(state);
        self.0.shared.waker.wake();
    }

    /// Parts with a fid; see [`Session::abandon`].
    pub fn abandon(&self, fid: Fid, parting: Parting) {
        self.0.shared.lock().session.abandon(fid, parting);
        self.0.shared.waker.wake();
    }

    /// Parts with a stream; see [`Session::end_stream`].
    pub fn end_stream(&self, id: u32) {
        self.0.shared.lock().session.end_stream(id);
        self.0.shared.waker.wake();
    }

    /// Sends a request of its own, so that something comes behind what may be lost, unless one was sent so short a time ago: see
    /// [`Session::probe`](ninefold_proto::client::Session::probe).
    pub fn probe(&self, gap: Duration) {
        let now = Instant::now();
        {
            let mut state = self.0.shared.lock();
            if state.probed_at.is_some_and(|at| now.saturating_duration_since(at) < gap) {
                return;
            }
            state.probed_at = Some(now);
            state.session.probe();
        }
        self.0.shared.waker.wake();
    }

    /// Asks, and waits for the reply; no silence is longer than the timeout that the connection was made with. `payload` is the
    /// data of a Twrite, for which `request` holds the same bytes.
    pub async fn call(&self, request: T<'_>, payload: Bytes, lane: &Lane) -> Result<Reply, Error> {
        self.begin(request, payload, lane.depth()).await?.wait(lane).await
    }

    /// The same for a call that makes a fid.
    pub async fn call_making(&self, request: T<'_>, fid: NewFid<'_>, lane: &Lane) -> Result<Reply, Error> {
        let waiting = self.begin(request, Bytes::new(), lane.depth()).await?;
        fid.named();
        waiting.wait(lane).await
    }

    /// Queues a request when there is room; see [`Handle::room`]. `cause` is the depth of the deepest reply that it
    /// follows from; see [`Stats::round_trips`].
    pub async fn begin(&self, request: T<'_>, payload: Bytes, cause: u32) -> Result<Waiting, Error> {
        let room = self.room().await?;
        self.queue(room, &request, payload, cause)
    }

    /// Queues a request for which there is room; see [`Handle::begin`].
    pub fn queue(&self, room: Room<'_>, request: &T<'_>, payload: Bytes, cause: u32) -> Result<Waiting, Error> {
        self.queue_as(room, request, payload, cause, &Place::Alone)
    }

    /// The same for a request of a chain.
    pub fn queue_as(
        &self,
        room: Room<'_>,
        request: &T<'_>,
        payload: Bytes,
        cause: u32,
        place: &Place,
    ) -> Result<Waiting, Error> {
        let mut state = self.0.shared.lock();
        let state = &mut *state;
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        // What was given up before is flushed before anything new is asked: the new may be meant to come after it.
        state.queue_all_own();
        let mut head = Vec::with_capacity(64);
        // When all of a chain is answered its next request is the first of another, and no worse.
        let behind = place.behind().filter(|call| state.goes_on(*call));
        let calls = state.session.calls();
        // The chain's owner may not know yet what became of the create, though it is answered.
        if let T::Remove { fid } = *request
            && place.chain().is_some()
            && state.session.is_uncreated(fid)
        {
            return Err(ninefold_proto::Errno::EINVAL.into());
        }
        let called = match behind {
            Some(Call { tag, .. }) => state.session.call_behind(tag, request, &mut head).map(|turn| (tag, turn)),
            None => state.session.call(request, &mut head).map(|tag| (tag, Turn::Now)),
        };
        let (tag, turn) = match called {
            Ok(called) => called,
            Err(Refused::ChainFull) => return Err(Error::TooLarge("the chain", self.dialect())),
            Err(Refused::TooLarge { .. } | Refused::StringTooLong { .. }) => {
                return Err(Error::TooLarge("it", self.dialect()));
            }
            Err(Refused::NotInDialect { message, version }) => {
                return Err(Error::Unsupported { what: message, dialect: version.dialect });
            }
            // A fid of a chain whose walk has failed by now. Any other is owned: one that the session does not know is a bug.
            Err(Refused::NoChain(_) | Refused::UnknownFid(_) | Refused::FidInUse(_)) => {
                return Err(ninefold_proto::Errno::EBADF.into());
            }
            // Another bug, for there is a permit for each call of the session; but one that passes.
            Err(Refused::Full) => return Err(ninefold_proto::Errno::EAGAIN.into()),
            // As is what this library never asks.
            Err(Refused::NotACall(_) | Refused::TooManyNames(_) | Refused::Uncreated(_)) => {
                return Err(ninefold_proto::Errno::EINVAL.into());
            }
        };
        let (cause_of_room, silent) = (room.cause, room.silent);
        // The session gives it back, when the call is done. A chain whose guard waits for more has it already.
        if state.session.calls() > calls {
            room.forget()
        } else {
            drop(room)
        }
        state.changes |= changes(request);
        if let Some(presumption) = state.presumption() {
            presumption.note(request, head.len() + payload.len());
        }
        // Without groups it would have waited for those before it in its chain, whether or not anybody has looked at their replies.
        let before = place.chain().filter(|_| !self.version().groups).map_or(0, Lane::depth);
        let depth = cause.max(cause_of_room).max(before) + 1;
        let serial = state.next_serial;
        state.next_serial += 1;
        let goes_on = matches!(request, T::Clunk { .. } | T::Remove { .. });
        let (sender, receiver) = oneshot::channel();
        let (handle, chain) = (self.clone(), place.chain().cloned());
        let is_chained = chain.is_some();
        let mut waiter = Waiter { serial, ordinal: None, held: None, chain, silent, depth, goes_on, handle, sender };
        match turn {
            Turn::Now => {
                let ordinal = state.session.requests() - 1;
                waiter.ordinal = Some(ordinal);
                state.outbox.push(ordinal, depth, head, payload);
                // What a chain issues leaves together, when one of its replies is waited for: in one packet, not one for each.
                if !is_chained {
                    self.0.shared.waker.wake();
                }
            }
            Turn::Later => waiter.held = Some((head, payload)),
        }
        state.waiters.entry(tag).or_default().push_back(waiter);
        if state.session.is_guarded(tag) {
            state.guarded.insert(tag, serial);
        } else {
            state.guarded.remove(&tag);
        }
        let call = Call { serial, tag };
        Ok(Waiting { handle: self.clone(), call, depth, receiver, done: false, is_chained, sent: !is_chained })
    }

    /// Tells the connection's task that there may be something to send.
    pub fn send(&self) {
        self.0.shared.waker.wake();
    }

    /// Gives up a call, or what is unanswered of a chain whose last request was `last`.
    pub fn give_up(&self, last: Call) {
        let shared = &self.0.shared;
        let mut state = shared.lock();
        let line = if state.waits(last) { state.waiters.remove(&last.tag) } else { None };
        if state.guarded.get(&last.tag) == Some(&last.serial) {
            state.guarded.remove(&last.tag);
            if line.is_none() {
                // All is answered but what was never called: the Tflush ends the guard.
                state.session.cancel(last.tag);
            }
        }
        if let Some(line) = &line {
            let calls = state.session.calls();
            match line.front() {
                Some(only) if only.chain.is_none() => state.give_up(last.tag, only),
                _ => state.give_up_chain(last.tag, line),
            }
            shared.ended_since(&mut state, calls);
        }
        drop(state);
        // Outside the lock: they hold handles.
        drop(line);
        shared.waker.wake();
    }

    /// The end of [`Handle::new_kept_fid`] for a fid that was made; says whether it was.
    pub fn settle(&self, fid: Fid) -> bool {
        let session = &mut self.0.shared.lock().session;
        let is_made = session.is_established(fid);
        if is_made {
            session.keep(fid, false);
        }
        is_made
    }

    /// `future`, while `call` sees no silence longer than the timeout: for who has several on the way.
    pub async fn patiently<F: Future>(&self, call: Call, future: F) -> Result<F::Output, Error> {
        self.0.shared.patiently(|state| state.silent_since(call), future).await
    }

    /// Fails if `call` has seen silence for longer than the timeout.
    pub fn check(&self, call: Call) -> Result<(), Error> {
        let Some(limit) = self.0.shared.timeout else { return Ok(()) };
        let silent = self.0.shared.lock().silent_since(call);
        if after(silent, limit) <= Instant::now() { Err(Error::TimedOut(limit)) } else { Ok(()) }
    }

    /// What passed so far.
    pub fn stats(&self) -> Stats {
        let state = self.0.shared.lock();
        let counts = state.session.counts().iter().enumerate().filter(|(_, n)| **n > 0);
        let named = counts.filter_map(|(number, &n)| info(number as u8, self.version()).map(|row| (row.name, n)));
        let mut messages: BTreeMap<_, _> = named.collect();
        // One of each for every offer; an offer that was refused was answered by an error.
        for version in ["Tversion", "Rversion"] {
            messages.insert(version, 1);
        }
        Stats {
            dialect: self.version(),
            msize: self.msize(),
            messages,
            bytes_sent: state.bytes_sent,
            bytes_received: state.bytes_received,
            round_trips: state.round_trips,
        }
    }

    /// When the last bytes came.
    pub fn heard_at(&self) -> Instant {
        self.0.shared.lock().heard_at
    }

    /// Whether no call can be made any more.
    pub fn is_over(&self) -> bool {
        self.0.shared.lock().ended.is_some()
    }

    /// Fids that the server knows, and calls that it has not answered.
    pub fn held(&self) -> (usize, usize) {
        let state = self.0.shared.lock();
        (state.session.fids(), state.session.calls())
    }

    /// Ends the connection once its last clunks are answered, unless nothing is heard of the server for `patience`. `in_haste`:
    /// once those are sent that tell nothing.
    pub async fn close(self, patience: Duration, in_haste: bool) -> Result<(), Error> {
        let shared = self.0.shared.clone();
        {
            let mut state = shared.lock();
            (state.linger, state.in_haste) = (patience.max(LINGER), in_haste);
        }
        drop(self);
        shared.lock().closing = true;
        shared.waker.wake();
        let over = async {
            loop {
                let over = shared.over.notified();
                if let Some(error) = shared.lock().ended.clone() {
                    return error;
                }
                over.await;
            }
        };
        tokio::pin!(over);
        let mut since = Instant::now();
        loop {
            match tokio::time::timeout_at(after(since, patience), &mut over).await {
                Ok(Error::Lost(Loss::ClosedHere)) => return Ok(()),
                Ok(error) => return Err(error),
                Err(_) => {}
            }
            // The task itself gives up in the end, whatever is heard.
            let heard = shared.lock().heard_at;
            if heard <= since {
                shared.lock().linger = Duration::ZERO;
                shared.waker.wake();
                let _ = tokio::time::timeout(CUT, &mut over).await;
                return Err(Error::TimedOut(patience));
            }
            since = heard;
        }
    }
}

/// What became of a presumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// The server agreed, or nothing was presumed.
    Agreed,
    /// It speaks something else, and has done nothing.
    Refuted,
    /// It has not said so. `changes`: what it was asked changes files.
    Unknown { changes: bool },
}

#[cfg(test)]
mod tests {
    use ninefold_proto::Errno;

    use super::*;
    use crate::transport::memory;

    #[tokio::test]
    async fn a_call_for_which_the_session_has_no_room_is_told_to_come_again_and_not_that_its_fid_is_bad() {
        let (ours, _theirs) = memory::pair(64);
        let handle = Handle::start(ours, BytesMut::new(), (Dialect::Plan9.into(), 8192), None, Prelude::default());
        let attach = |fid| T::Attach { fid, afid: Fid::NONE, uname: b"u", aname: b"", n_uname: 0 };
        // A permit that no call of the session stands behind.
        handle.0.shared.room.add_permits(1);
        let mut waiting = Vec::new();
        for _ in 0..Limits::default().calls {
            let fid = handle.new_fid().unwrap();
            waiting.push(handle.begin(attach(fid.fid()), Bytes::new(), 0).await.unwrap());
            fid.named();
        }
        let fid = handle.new_fid().unwrap();
        let refused = handle.begin(attach(fid.fid()), Bytes::new(), 0).await.unwrap_err();
        assert_eq!(refused.errno(), Errno::EAGAIN);
    }
}
