//! One connection to a server: calls and their replies.
//!
//! [`Handle::call`] puts a request into the queue and waits for its reply; one task, the [`Driver`](super::driver),
//! moves the bytes of all of them. A call that is dropped is flushed; an
//! [`OwnedFid`] that is dropped is clunked; the last [`Handle`] that is dropped ends the connection, after the clunks.
//!
//! Locks: `Shared::state` alone, never held across an await, nor while a reply is handed over or dropped: both may drop
//! an `OwnedFid` or a `Handle`, which take it.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use ninefold_proto::client::{Limits, Parting, Refused, ServerMisbehaved, Session};
use ninefold_proto::message::info;
use ninefold_proto::wire::{HEADER, split_frame};
use ninefold_proto::{Dialect, Fid, R, T, Tag};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, TryAcquireError, oneshot};
use tokio::time::Instant;

use super::driver::Driver;
use super::error::{Error, Loss};
use super::fid::{NewFid, OwnedFid};
use super::flight::Learned;
use super::outbox::{Outbox, TakenBack};
use super::progress::{Progress, after};
use super::stats::{Lane, Stats};
use crate::transport::Stream;

/// `size[4] type[1] tag[2] count[4]`, in front of the data of Rread and Rreaddir.
const DATA_AT: usize = HEADER + 4;

/// How long a connection that ends waits for its last clunks and flushes to be answered, at least.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// From giving a connection up to its end, which takes no more than the start of a process: nobody is to feel it.
const CUT: Duration = Duration::from_millis(50);

/// The reply to a call.
#[derive(Debug)]
pub(super) struct Reply {
    pub frame: Bytes,
    pub dialect: Dialect,
    /// When it came.
    pub at: Instant,
    /// The fid that the call made.
    pub made: Option<OwnedFid>,
}

impl Reply {
    /// The message. It was decoded and compared with its request before.
    pub fn message(&self) -> Result<R<'_>, Error> {
        let bad = |e| Error::Misbehaved(ServerMisbehaved::Frame(e));
        let (header, body) = split_frame(&self.frame).map_err(bad)?;
        R::decode(header.kind, body, self.dialect).map_err(bad)
    }

    /// Bytes of [`Reply::data`].
    pub fn data_len(&self) -> usize {
        self.frame.len().saturating_sub(DATA_AT)
    }

    /// The data of an Rread or Rreaddir: the bytes where they arrived, not a copy, but for small ones.
    pub fn data(self) -> Bytes {
        self.frame.slice(DATA_AT.min(self.frame.len())..)
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
    pub dialect: Dialect,
    pub msize: u32,
    /// The longest silence; see [`Progress`].
    pub timeout: Option<Duration>,
    windows: Windows,
}

/// What readers and writers learned of the path, for the next of them.
#[derive(Debug, Default)]
pub(super) struct Windows {
    pub reading: Learned,
    pub writing: Learned,
}

impl Shared {
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
        for waiter in waiters.into_values() {
            let _ = waiter.sender.send(Err(error.clone()));
        }
        self.room.close();
        self.over.notify_waiters();
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

#[derive(Debug)]
pub(super) struct State {
    pub session: Session,
    pub outbox: Outbox,
    pub waiters: HashMap<Tag, Waiter>,
    progress: Progress,
    /// Who waits until no request names a fid.
    unnamed: Vec<(Fid, oneshot::Sender<()>)>,
    /// Since when the server has owed an answer for which nobody waits.
    unattended: Option<Unattended>,
    /// The depth of the last reply, which made room for whoever waited for it.
    pub freed_depth: u32,
    pub round_trips: u32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// When the last bytes came.
    pub heard_at: Instant,
    pub closing: bool,
    /// How long the end waits for the last clunks and flushes to be answered.
    pub linger: Duration,
    ended: Option<Error>,
}

impl State {
    /// Queues the flushes and clunks that are due.
    pub fn queue_own(&mut self) {
        let mut own = Vec::new();
        while self.session.poll_transmit(&mut own) {}
        if !own.is_empty() {
            self.outbox.push(self.session.requests() - 1, 0, own, Bytes::new());
        }
    }

    /// Something of a request moved.
    pub fn moved(&mut self, ordinal: u64, now: Instant) {
        if self.progress.is_long(self.waiters.len()) {
            for waiter in self.waiters.values_mut() {
                waiter.silent = waiter.silent.max(self.progress.seen_by(waiter.ordinal).unwrap_or(waiter.silent));
            }
            self.watch(now);
            self.progress.forget();
        }
        self.progress.note(ordinal, now);
    }

    /// Since when nothing has moved that a call waits behind; `now` when its reply is there.
    fn silent_since(&self, call: Call) -> Instant {
        match self.waiters.get(&call.tag).filter(|waiter| waiter.ordinal == call.ordinal) {
            Some(waiter) => waiter.silent.max(self.progress.seen_by(call.ordinal).unwrap_or(waiter.silent)),
            None => Instant::now(),
        }
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

    /// Nobody waits for a call any more, and it is out of the waiters: flushes what has begun to leave; what has not is as
    /// if it had never been asked. A clunk goes on.
    fn give_up(&mut self, tag: Tag, waiter: &Waiter) {
        let taken_back = if waiter.goes_on { TakenBack::No } else { self.outbox.take_back(waiter.ordinal, tag) };
        match taken_back {
            TakenBack::Yes => self.given_up(tag, true),
            TakenBack::No => self.given_up(tag, false),
            // The driver does it, when it has written.
            TakenBack::Later => {}
        }
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
    pub ordinal: u64,
    /// Since when nothing has moved that it waits behind, as far as [`Progress`] has forgotten it.
    silent: Instant,
    pub depth: u32,
    /// Tclunk or Tremove, by which the server forgets a fid.
    goes_on: bool,
    /// For the fid that the reply may make.
    pub handle: Handle,
    pub sender: oneshot::Sender<Result<Reply, Error>>,
}

/// What the handshake left: how deep it went and what passed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prelude {
    pub offers: u32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl Handle {
    /// Starts the task of a connection that agreed on `dialect` and `msize`; `arrived` came behind the Rversion.
    pub fn start(
        stream: Stream,
        arrived: BytesMut,
        (dialect, msize): (Dialect, u32),
        timeout: Option<Duration>,
        prelude: Prelude,
    ) -> Handle {
        let limits = Limits::default();
        let state = State {
            session: Session::new(dialect, msize, limits),
            outbox: Outbox::default(),
            waiters: HashMap::new(),
            progress: Progress::default(),
            unnamed: Vec::new(),
            unattended: None,
            freed_depth: 0,
            round_trips: prelude.offers,
            bytes_sent: prelude.bytes_sent,
            bytes_received: prelude.bytes_received,
            heard_at: Instant::now(),
            closing: false,
            linger: LINGER,
            ended: None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            waker: AtomicWaker::new(),
            room: Semaphore::new(limits.calls),
            over: Notify::new(),
            dialect,
            msize,
            timeout,
            windows: Windows::default(),
        });
        tokio::spawn(Driver::new(shared.clone(), stream, arrived).run());
        Handle(Arc::new(Open { shared }))
    }

    pub fn dialect(&self) -> Dialect {
        self.0.shared.dialect
    }

    pub fn msize(&self) -> u32 {
        self.0.shared.msize
    }

    pub fn windows(&self) -> &Windows {
        &self.0.shared.windows
    }

    /// A fid for the next call to make; see [`Session::new_fid`].
    pub fn new_fid(&self) -> Result<NewFid<'_>, Error> {
        let fid = self.0.shared.lock().session.new_fid().ok_or(Error::TooManyFids)?;
        Ok(NewFid::taken(self, fid))
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

    /// Parts with a fid; see [`Session::abandon`].
    pub fn abandon(&self, fid: Fid, parting: Parting) {
        self.0.shared.lock().session.abandon(fid, parting);
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

    /// Waits until one more call may begin, while anything moves; the call's silence goes on from there.
    pub async fn room(&self) -> Result<Room<'_>, Error> {
        let shared = &self.0.shared;
        if let Some(room) = self.try_room() {
            return room;
        }
        let began = Instant::now();
        let silent = |state: &State| began.max(state.progress.latest().unwrap_or(began));
        let permit = shared.patiently(silent, shared.room.acquire()).await?.map_err(|_| shared.ended())?;
        let state = shared.lock();
        // The reply that made room is a cause too.
        Ok(Room { permit, cause: state.freed_depth, silent: silent(&state) })
    }

    /// Whether one more call may begin now.
    pub fn try_room(&self) -> Option<Result<Room<'_>, Error>> {
        match self.0.shared.room.try_acquire() {
            Ok(permit) => Some(Ok(Room { permit, cause: 0, silent: Instant::now() })),
            Err(TryAcquireError::Closed) => Some(Err(self.0.shared.ended())),
            Err(TryAcquireError::NoPermits) => None,
        }
    }

    /// Queues a request for which there is room; see [`Handle::begin`].
    pub fn queue(&self, room: Room<'_>, request: &T<'_>, payload: Bytes, cause: u32) -> Result<Waiting, Error> {
        let mut state = self.0.shared.lock();
        let state = &mut *state;
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        // What was given up before is flushed before anything new is asked: the new may be meant to come after it.
        state.queue_own();
        let mut head = Vec::with_capacity(64);
        let tag = match state.session.call(request, &mut head) {
            Ok(tag) => tag,
            Err(Refused::TooLarge { .. } | Refused::StringTooLong { .. }) => {
                return Err(Error::TooLarge("it", self.dialect()));
            }
            Err(Refused::NotInDialect { message, dialect }) => {
                return Err(Error::Unsupported { what: message, dialect });
            }
            // There is a permit for each call of the session, and every fid here is owned: one that the session does not
            // know is a bug, told as a bad descriptor.
            Err(Refused::Full | Refused::UnknownFid(_) | Refused::FidInUse(_)) => {
                return Err(ninefold_proto::Errno::EBADF.into());
            }
            // As is what this library never asks.
            Err(Refused::NotACall(_) | Refused::TooManyNames(_)) => {
                return Err(ninefold_proto::Errno::EINVAL.into());
            }
        };
        // The session gives it back, when the call is done.
        room.permit.forget();
        let (ordinal, depth) = (state.session.requests() - 1, cause.max(room.cause) + 1);
        state.outbox.push(ordinal, depth, head, payload);
        let goes_on = matches!(request, T::Clunk { .. } | T::Remove { .. });
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter { ordinal, silent: room.silent, depth, goes_on, handle: self.clone(), sender };
        state.waiters.insert(tag, waiter);
        self.0.shared.waker.wake();
        Ok(Waiting { handle: self.clone(), call: Call { tag, ordinal }, depth, receiver, done: false })
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
        let named = counts.filter_map(|(number, &n)| info(number as u8, self.dialect()).map(|row| (row.name, n)));
        let mut messages: BTreeMap<_, _> = named.collect();
        // One of each for every offer; an offer that was refused was answered by an error.
        for version in ["Tversion", "Rversion"] {
            messages.insert(version, 1);
        }
        Stats {
            dialect: self.dialect(),
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

    /// Fids that the server knows, and calls that it has not answered.
    pub fn held(&self) -> (usize, usize) {
        let state = self.0.shared.lock();
        (state.session.fids(), state.session.calls())
    }

    /// Ends the connection once its last clunks are answered, unless nothing is heard of the server for `patience`.
    pub async fn close(self, patience: Duration) -> Result<(), Error> {
        let shared = self.0.shared.clone();
        shared.lock().linger = patience.max(LINGER);
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

/// Room for one call on a connection.
#[derive(Debug)]
pub(super) struct Room<'h> {
    permit: SemaphorePermit<'h>,
    /// The depth of the reply that made it.
    cause: u32,
    /// Since when nothing has moved for who waited for it.
    silent: Instant,
}

/// Tells a call from all others: a tag is used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Call {
    ordinal: u64,
    tag: Tag,
}

/// A call whose reply has not come: a future of the reply, without a bound. Dropping it gives the call up.
#[derive(Debug)]
pub(super) struct Waiting {
    handle: Handle,
    call: Call,
    depth: u32,
    receiver: oneshot::Receiver<Result<Reply, Error>>,
    done: bool,
}

impl Waiting {
    /// The request's place in the longest chain, and so the reply's.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    pub fn call(&self) -> Call {
        self.call
    }

    /// Waits for the reply while it sees no silence longer than the timeout; what follows in `lane` follows from it, even
    /// from a refusal.
    pub async fn wait(self, lane: &Lane) -> Result<Reply, Error> {
        let (handle, call, depth) = (self.handle.clone(), self.call, self.depth);
        let reply = handle.patiently(call, self).await?;
        lane.raise(depth);
        reply
    }
}

impl Future for Waiting {
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let answered = ready!(Pin::new(&mut this.receiver).poll(cx));
        this.done = true;
        // The sender is dropped only with the connection's task.
        Poll::Ready(answered.unwrap_or_else(|_| Err(this.handle.0.shared.ended())))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let shared = &self.handle.0.shared;
        let mut state = shared.lock();
        // The tag may serve another call already.
        let Call { tag, ordinal } = self.call;
        let waiter = match state.waiters.get(&tag) {
            Some(waiter) if waiter.ordinal == ordinal => state.waiters.remove(&tag),
            _ => None,
        };
        if let Some(waiter) = &waiter {
            let calls = state.session.calls();
            state.give_up(tag, waiter);
            shared.ended_since(&mut state, calls);
        }
        drop(state);
        // Outside the lock: it holds a handle.
        drop(waiter);
        shared.waker.wake();
    }
}
