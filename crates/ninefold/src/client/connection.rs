//! One connection to a server: drives a [`Session`] over a [`Stream`].
//!
//! [`Handle::call`] puts a request into the queue and waits for its reply; one task moves the bytes of all of them,
//! reading while it is blocked in writing. A call that is dropped is flushed; an [`OwnedFid`] that is dropped is clunked;
//! the last [`Handle`] that is dropped ends the connection, after the clunks.
//!
//! Locks: `Shared::state` alone, never held across an await, nor while a reply is handed over or dropped.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use ninefold_proto::client::{Answer, Limits, Parting, Refused, ServerMisbehaved, Session};
use ninefold_proto::message::info;
use ninefold_proto::wire::{HEADER, frame_size, split_frame};
use ninefold_proto::{Dialect, Fid, R, T, Tag};
use tokio::io::AsyncWrite;
use tokio::sync::{Notify, oneshot};
use tokio::time::Sleep;
use tokio_util::io::poll_read_buf;

use super::error::{Error, Loss};
use super::stats::{Lane, Stats};
use crate::transport::Stream;

/// Bytes that one read asks for while no larger frame is expected.
const READ_CHUNK: usize = 64 * 1024;

/// Slices in one gathered write; a request with data is two.
const SLICES: usize = 64;

/// A server that leaves a Tflush unanswered for so long is taken for dead: its tags would be used up otherwise.
const FLUSH_PATIENCE: Duration = Duration::from_secs(60);

/// How long a connection that ends waits for the last clunks and flushes to be answered.
const LINGER: Duration = Duration::from_secs(2);

/// `size[4] type[1] tag[2] count[4]`, in front of the data of Rread and Rreaddir.
const DATA_AT: usize = HEADER + 4;

/// The reply to a call.
#[derive(Debug)]
pub(super) struct Reply {
    frame: Bytes,
    dialect: Dialect,
    /// Its place in the longest chain; see [`Stats::round_trips`].
    pub depth: u32,
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

    /// The data of an Rread or Rreaddir: the bytes where they arrived, not a copy.
    pub fn data(self) -> Bytes {
        self.frame.slice(DATA_AT.min(self.frame.len())..)
    }
}

/// A fid that is clunked, or removed with its file, when this is dropped.
#[derive(Debug)]
pub(super) struct OwnedFid {
    handle: Handle,
    fid: Fid,
    parting: Parting,
    /// The server was asked to forget it.
    gone: bool,
}

impl OwnedFid {
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// What happens when it is dropped.
    pub fn set_parting(&mut self, parting: Parting) {
        self.parting = parting;
    }

    /// Clunks it, or removes its file, and waits for the result. The fid is forgotten whatever that is.
    pub async fn part(mut self, parting: Parting, lane: &Lane) -> Result<(), Error> {
        let request = match parting {
            Parting::Clunk => T::Clunk { fid: self.fid },
            Parting::Remove => T::Remove { fid: self.fid },
        };
        // From the moment it is queued the request itself forgets the fid, even if nobody waits for it any more.
        let waiting = self.handle.begin(request, Bytes::new(), lane).await?;
        self.gone = true;
        waiting.wait().await.map(drop)
    }
}

impl Drop for OwnedFid {
    fn drop(&mut self) {
        if !self.gone {
            self.handle.0.shared.lock().session.abandon(self.fid, self.parting);
            self.handle.0.shared.waker.wake();
        }
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
struct Shared {
    state: Mutex<State>,
    /// Of the task that moves the bytes.
    waker: AtomicWaker,
    /// Told once for each call that makes room for another.
    room: Notify,
    /// Told when the connection is over.
    over: Notify,
    dialect: Dialect,
    msize: u32,
    timeout: Option<Duration>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    session: Session,
    /// Slices to send, in order.
    out: VecDeque<Bytes>,
    waiters: HashMap<Tag, Waiter>,
    /// Numbers the calls: a tag is used again, a number never.
    next_call: u64,
    /// The depth of the last reply, which made room for whoever waited for it.
    freed_depth: u32,
    round_trips: u32,
    bytes_sent: u64,
    bytes_received: u64,
    closing: bool,
    ended: Option<Error>,
}

#[derive(Debug)]
struct Waiter {
    call: u64,
    depth: u32,
    handle: Handle,
    sender: oneshot::Sender<Result<Reply, Error>>,
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
        let state = State {
            session: Session::new(dialect, msize, Limits::default()),
            out: VecDeque::new(),
            waiters: HashMap::new(),
            next_call: 0,
            freed_depth: 0,
            round_trips: prelude.offers,
            bytes_sent: prelude.bytes_sent,
            bytes_received: prelude.bytes_received,
            closing: false,
            ended: None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            waker: AtomicWaker::new(),
            room: Notify::new(),
            over: Notify::new(),
            dialect,
            msize,
            timeout,
        });
        tokio::spawn(Driver { shared: shared.clone(), stream, arrived, sending: VecDeque::new() }.run());
        Handle(Arc::new(Open { shared }))
    }

    pub fn dialect(&self) -> Dialect {
        self.0.shared.dialect
    }

    pub fn msize(&self) -> u32 {
        self.0.shared.msize
    }

    /// A fid for the next call to make; see [`Session::new_fid`].
    pub fn new_fid(&self) -> Result<NewFid<'_>, Error> {
        let fid = self.0.shared.lock().session.new_fid().ok_or(Error::TooManyFids)?;
        Ok(NewFid { shared: &self.0.shared, fid, used: false })
    }

    /// Asks, and waits for the reply, no longer than the timeout that the connection was made with. `payload` is the
    /// data of a Twrite, for which `request` holds the same bytes.
    pub async fn call(&self, request: T<'_>, payload: Bytes, lane: &Lane) -> Result<Reply, Error> {
        self.begin(request, payload, lane).await?.wait().await
    }

    /// The same for a call that makes a fid.
    pub async fn call_making(&self, request: T<'_>, mut fid: NewFid<'_>, lane: &Lane) -> Result<Reply, Error> {
        let waiting = self.begin(request, Bytes::new(), lane).await?;
        fid.used = true;
        waiting.wait().await
    }

    /// Queues a request, waiting for room no longer than the timeout.
    pub async fn begin<'l>(&self, request: T<'_>, payload: Bytes, lane: &'l Lane) -> Result<Waiting<'l>, Error> {
        let shared = &self.0.shared;
        let queue = async {
            let mut waited = false;
            loop {
                let room = shared.room.notified();
                if let Some(result) = self.try_begin(&request, &payload, lane, waited) {
                    return result;
                }
                room.await;
                waited = true;
            }
        };
        let (tag, call, receiver) = bounded(shared.timeout, queue).await??;
        Ok(Waiting { handle: self.clone(), tag, call, receiver, lane, done: false })
    }

    fn try_begin(&self, request: &T<'_>, payload: &Bytes, lane: &Lane, waited: bool) -> Option<Result<Begun, Error>> {
        let mut state = self.0.shared.lock();
        let state = &mut *state;
        if let Some(error) = &state.ended {
            return Some(Err(error.clone()));
        }
        let mut head = Vec::with_capacity(64);
        let tag = match state.session.call(request, &mut head) {
            Ok(tag) => tag,
            Err(Refused::Full) => return None,
            Err(Refused::TooLarge { .. } | Refused::StringTooLong { .. }) => {
                return Some(Err(Error::TooLarge("it", self.dialect())));
            }
            Err(Refused::NotInDialect { message, dialect }) => {
                return Some(Err(Error::Unsupported { what: message, dialect }));
            }
            // Every fid here is owned; one that the session does not know is a bug, told as a bad descriptor.
            Err(Refused::UnknownFid(_) | Refused::FidInUse(_)) => {
                return Some(Err(ninefold_proto::Errno::EBADF.into()));
            }
            // As is what this library never asks.
            Err(Refused::NotACall(_) | Refused::TooManyNames(_)) => {
                return Some(Err(ninefold_proto::Errno::EINVAL.into()));
            }
        };
        state.out.push_back(head.into());
        if !payload.is_empty() {
            state.out.push_back(payload.clone());
        }
        let cause = if waited { lane.depth().max(state.freed_depth) } else { lane.depth() };
        let depth = cause + 1;
        state.round_trips = state.round_trips.max(depth);
        let call = state.next_call;
        state.next_call += 1;
        let (sender, receiver) = oneshot::channel();
        state.waiters.insert(tag, Waiter { call, depth, handle: self.clone(), sender });
        self.0.shared.waker.wake();
        Some(Ok((tag, call, receiver)))
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

    /// Fids that the server knows, and calls that it has not answered.
    pub fn held(&self) -> (usize, usize) {
        let state = self.0.shared.lock();
        (state.session.fids(), state.session.calls())
    }

    /// Ends the connection once its last clunks are answered, but waits no longer than `patience`.
    pub async fn close(self, patience: Duration) -> Result<(), Error> {
        let shared = self.0.shared.clone();
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
        match tokio::time::timeout(patience, over).await {
            Ok(Error::Lost(Loss::ClosedHere)) => Ok(()),
            Ok(error) => Err(error),
            Err(_) => Err(Error::TimedOut(patience)),
        }
    }
}

type Begun = (Tag, u64, oneshot::Receiver<Result<Reply, Error>>);

/// A fid that no call has named yet.
#[derive(Debug)]
pub(super) struct NewFid<'h> {
    shared: &'h Shared,
    pub fid: Fid,
    used: bool,
}

impl Drop for NewFid<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.shared.lock().session.release(self.fid);
        }
    }
}

/// A call whose reply has not come. Dropping it gives the call up.
#[derive(Debug)]
pub(super) struct Waiting<'l> {
    handle: Handle,
    tag: Tag,
    call: u64,
    receiver: oneshot::Receiver<Result<Reply, Error>>,
    lane: &'l Lane,
    done: bool,
}

impl Waiting<'_> {
    /// Waits for the reply, no longer than the timeout.
    pub async fn wait(mut self) -> Result<Reply, Error> {
        let timeout = self.handle.0.shared.timeout;
        let answered = bounded(timeout, &mut self.receiver).await?;
        self.done = true;
        // The sender is dropped only with the connection's task.
        let reply = answered.unwrap_or(Err(Error::Lost(Loss::ClosedHere)));
        if let Ok(reply) = &reply {
            self.lane.raise(reply.depth);
        }
        reply
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let shared = &self.handle.0.shared;
        let mut state = shared.lock();
        // The tag may serve another call already.
        let waiter = match state.waiters.get(&self.tag) {
            Some(waiter) if waiter.call == self.call => state.waiters.remove(&self.tag),
            _ => None,
        };
        if waiter.is_some() {
            state.session.cancel(self.tag);
        }
        drop(state);
        // Outside the lock: it holds a handle.
        drop(waiter);
        shared.waker.wake();
    }
}

async fn bounded<F: Future>(limit: Option<Duration>, future: F) -> Result<F::Output, Error> {
    match limit {
        None => Ok(future.await),
        Some(limit) => tokio::time::timeout(limit, future).await.map_err(|_| Error::TimedOut(limit)),
    }
}

/// The task.
struct Driver {
    shared: Arc<Shared>,
    stream: Stream,
    arrived: BytesMut,
    /// Slices taken out of the state, the first perhaps sent in part.
    sending: VecDeque<Bytes>,
}

impl Driver {
    async fn run(mut self) {
        let mut linger = None;
        let (mut flush_alarm, mut flushes_answered) = (None, 0);
        let error = std::future::poll_fn(|cx| {
            self.shared.waker.register(cx.waker());
            let progress = self.poll(cx);
            if let Poll::Ready(error) = progress {
                return Poll::Ready(error);
            }
            let (closing, (flushes, answered)) = {
                let state = self.shared.lock();
                (state.closing, state.session.flushes())
            };
            if closing && elapsed(&mut linger, LINGER, cx) {
                return Poll::Ready(Error::Lost(Loss::ClosedHere));
            }
            // Any Rflush shows that the server answers them.
            if flushes == answered || flushes_answered != answered {
                (flushes_answered, flush_alarm) = (answered, None);
            }
            if flushes > answered && elapsed(&mut flush_alarm, FLUSH_PATIENCE, cx) {
                return Poll::Ready(Error::Lost(Loss::FlushUnanswered));
            }
            Poll::Pending
        })
        .await;
        self.end(error);
    }

    /// Moves all bytes that can be moved; ready with the reason when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        loop {
            // Replies first: they free what requests wait for.
            let read = match self.poll_read(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                other => other.is_ready(),
            };
            let mut state = self.shared.lock();
            self.sending.extend(state.out.drain(..));
            let mut own = Vec::new();
            while state.session.poll_transmit(&mut own) {}
            let over = state.closing && state.session.is_idle();
            drop(state);
            if !own.is_empty() {
                self.sending.push_back(own.into());
            }
            if over && self.sending.is_empty() {
                return Poll::Ready(Error::Lost(Loss::ClosedHere));
            }
            match self.poll_write(cx) {
                Poll::Ready(Err(e)) => return Poll::Ready(Error::Lost(Loss::Io(Arc::new(e)))),
                // What is written may have made room, and what is read may have asked for more: until both wait.
                Poll::Ready(Ok(wrote)) if wrote => {}
                _ if read => {}
                _ => return Poll::Pending,
            }
        }
    }

    /// Sends; ready with whether anything went.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.sending.is_empty() {
            return Poll::Ready(Ok(false));
        }
        let slices: Vec<_> = self.sending.iter().take(SLICES).map(|slice| IoSlice::new(slice)).collect();
        let mut sent = std::task::ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &slices))?;
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.shared.lock().bytes_sent += sent as u64;
        while let Some(first) = self.sending.front_mut() {
            if sent < first.len() {
                let _ = first.split_to(sent);
                break;
            }
            sent -= first.len();
            self.sending.pop_front();
        }
        Poll::Ready(Ok(true))
    }

    /// Reads once and hands over every whole frame.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.reserve()?;
        let n = std::task::ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.arrived))
            .map_err(|e| Error::Lost(Loss::Io(Arc::new(e))))?;
        if n == 0 {
            return Poll::Ready(Err(Error::Lost(Loss::Closed)));
        }
        self.shared.lock().bytes_received += n as u64;
        self.hand_over()?;
        Poll::Ready(Ok(()))
    }

    /// Room for the rest of the frame that has begun, whose size is bounded by msize, or for a chunk.
    fn reserve(&mut self) -> Result<(), Error> {
        let expected = self.next_frame()?.map_or(0, |size| size.saturating_sub(self.arrived.len()));
        self.arrived.reserve(expected.max(READ_CHUNK));
        Ok(())
    }

    fn next_frame(&self) -> Result<Option<usize>, Error> {
        frame_size(&self.arrived, self.shared.msize).map_err(|e| Error::Misbehaved(ServerMisbehaved::Frame(e)))
    }

    fn hand_over(&mut self) -> Result<(), Error> {
        while let Some(size) = self.next_frame()?.filter(|&size| size <= self.arrived.len()) {
            let frame = self.arrived.split_to(size).freeze();
            // Out of the lock before anything is handed over: a reply that nobody takes is dropped, and an owned fid
            // takes the lock to be dropped.
            if let Some((waiter, result)) = self.answered(&frame)? {
                let Waiter { depth, handle, sender, .. } = waiter;
                let reply = result.map(|made| Reply {
                    frame,
                    dialect: self.shared.dialect,
                    depth,
                    made: made.map(|fid| OwnedFid { handle, fid, parting: Parting::Clunk, gone: false }),
                });
                let _ = sender.send(reply);
            }
        }
        Ok(())
    }

    /// Whom a frame answers, and with which fid made, or with which refusal.
    #[allow(clippy::type_complexity, reason = "one caller takes it apart at once")]
    fn answered(&mut self, frame: &[u8]) -> Result<Option<(Waiter, Result<Option<Fid>, Error>)>, Error> {
        let mut state = self.shared.lock();
        let state = &mut *state;
        let calls = state.session.calls();
        let answer = state.session.handle_frame(frame).map_err(Error::Misbehaved)?;
        let (tag, result) = match answer {
            Answer::Reply { tag, made, .. } => (Some(tag), Ok(made)),
            Answer::Failed { tag, error } => (Some(tag), Err(Error::Refused(error))),
            Answer::Settled => (None, Ok(None)),
        };
        let waiter = tag.and_then(|tag| state.waiters.remove(&tag));
        if let Some(waiter) = &waiter {
            state.freed_depth = waiter.depth;
        }
        if state.session.calls() < calls {
            self.shared.room.notify_one();
        }
        Ok(waiter.map(|waiter| (waiter, result)))
    }

    /// Every call fails with `error`, those to come too; the first reason stays.
    fn end(&self, error: Error) {
        let mut state = self.shared.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(error.clone());
        state.out.clear();
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for waiter in waiters.into_values() {
            let _ = waiter.sender.send(Err(error.clone()));
        }
        self.shared.room.notify_waiters();
        self.shared.over.notify_waiters();
    }
}

impl Drop for Driver {
    /// The runtime may end before the connection: whoever waits must learn it.
    fn drop(&mut self) {
        self.end(Error::Lost(Loss::ClosedHere));
    }
}

/// Whether `limit` has passed since this was first asked with the same `alarm`; wakes the task when it has.
fn elapsed(alarm: &mut Option<Pin<Box<Sleep>>>, limit: Duration, cx: &mut Context<'_>) -> bool {
    alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit))).as_mut().poll(cx).is_ready()
}
