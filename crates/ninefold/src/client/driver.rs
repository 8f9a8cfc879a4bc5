//! The task of a connection: moves the bytes of its calls.
//!
//! It reads while it is blocked in writing, and hands every reply to who waits for it. It ends, and the connection with
//! it, when the last [`Handle`](super::connection::Handle) is gone and what it left is clunked, when the stream fails, or
//! when the server broke the protocol, or does not let go of what nobody waits for; the stream is closed before anybody is
//! told. What moves it notes for the calls that wait behind it ([`Progress`](super::progress::Progress)).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use ninefold_proto::client::{Answer, ServerMisbehaved, Verdict};
use ninefold_proto::wire::{frame_size, split_frame};
use ninefold_proto::{Fid, R, Tag};
use tokio::io::AsyncWrite;
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;

use super::connection::{LINGER, Reply, Shared, Standing, Waiter};
use super::error::{Error, Loss};
use super::fid::OwnedFid;
use super::owned_stream::OwnedStream;
use super::progress::{STEP, after};
use crate::transport::Stream;

/// Bytes that one read asks for while no larger frame is expected.
const READ_CHUNK: usize = 64 * 1024;

/// Bytes that one read asks for, in whole frames, after a large one came: four of 64 KiB.
const READ_FRAMES: usize = 4 * READ_CHUNK + 4096;

/// A buffer with less room is not worth a system call.
const READ_LEAST: usize = 4096;

/// Replies of fewer bytes are copied out of the buffer that they came in, which is then used again: a small reply that
/// somebody keeps must not keep a whole buffer.
const COPIED: usize = READ_CHUNK / 4;

/// Slices in one gathered write; a request with data is two.
const SLICES: usize = 64;

/// See the [module](self).
pub(super) struct Driver {
    stream: Stream,
    /// Bytes that have not been handed over.
    arrived: BytesMut,
    /// When the last of them came.
    arrived_at: Instant,
    /// Bytes of the last frame that was not copied; 0 while there was none.
    large: usize,
    /// Bytes of the frame that has not come whole, when they last counted as a sign of life.
    noted: usize,
    /// Bytes of the largest first frame, while a version is presumed.
    first_max: Option<u32>,
    /// What is being written; empty in between.
    slices: Vec<Bytes>,
    /// Bytes were written that the stream may hold back.
    unflushed: bool,
    shared: Arc<Shared>,
    /// Below the stream, which is dropped first.
    end: End,
}

/// Tells who waits that the connection is over, also when the runtime ends before it.
struct End {
    shared: Arc<Shared>,
    why: Error,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.end(self.why.clone());
    }
}

/// What came of a frame.
struct Told {
    /// Whom it answers, and with what made, or with which refusal.
    answered: Option<(Waiter, Result<Made, Error>)>,
    /// Those of its chain that will not be sent, and why.
    failed: Vec<(Waiter, Error)>,
}

/// What the server has since then.
#[derive(Default)]
struct Made {
    fid: Option<Fid>,
    stream: Option<u32>,
}

impl Driver {
    /// For a connection whose handshake is over; `arrived` came behind it.
    pub fn new(shared: Arc<Shared>, stream: Stream, arrived: BytesMut) -> Driver {
        let end = End { shared: shared.clone(), why: Error::Lost(Loss::ClosedHere) };
        let (slices, arrived_at) = (Vec::new(), Instant::now());
        let first_max = shared.lock().presumption().map(|presumption| presumption.frame_max());
        Driver { stream, arrived, arrived_at, large: 0, noted: 0, first_max, slices, unflushed: false, shared, end }
    }

    pub async fn run(mut self) {
        let (mut linger, mut alarm) = (None, None);
        let error = std::future::poll_fn(|cx| {
            self.shared.waker.register(cx.waker());
            let progress = self.poll(cx);
            if let Poll::Ready(error) = progress {
                return Poll::Ready(error);
            }
            let now = Instant::now();
            let (ends, unattended) = {
                let mut state = self.shared.lock();
                (state.closing.then_some(state.linger), state.watch(now))
            };
            let ends = ends.map(|limit| after(*linger.get_or_insert(now), limit));
            // A server that does not let go of what nobody waits for would use up tags, fids and memory.
            let lost = unattended.and_then(|silent| Some(after(silent, self.shared.timeout?.max(LINGER))));
            if ends.into_iter().chain(lost).min().is_some_and(|due| passed(&mut alarm, due, cx)) {
                return Poll::Ready(Error::Lost(Loss::Unanswered));
            }
            Poll::Pending
        })
        .await;
        if let Error::Lost(Loss::Unanswered) = error {
            self.stream.forsake();
        }
        self.end.why = error;
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
            state.queue_own();
            // A server of which nothing is known is told nothing more.
            let presumed = state.presumption().is_some();
            // A process of ours is seen to its end, which only what it answers shows.
            let in_haste = state.in_haste && !matches!(self.stream, Stream::Process(_));
            let done = if in_haste { state.session.is_done() } else { state.session.is_idle() };
            let sent = state.outbox.is_empty() && (!in_haste || !self.unflushed);
            if state.closing && (presumed || done && sent) {
                return Poll::Ready(Error::Lost(Loss::ClosedHere));
            }
            let last_flush = state.closing && in_haste && self.unflushed;
            state.outbox.claim(SLICES, &mut self.slices);
            drop(state);
            match self.poll_write(cx) {
                Poll::Ready(Err(e)) => return Poll::Ready(Error::Lost(Loss::Io(Arc::new(e)))),
                // What is written may have made room, and what is read may have asked for more: until both wait.
                Poll::Ready(Ok(wrote)) if wrote => {}
                _ if read || last_flush && !self.unflushed => {}
                _ => return Poll::Pending,
            }
        }
    }

    /// Sends what was claimed; ready with whether anything went.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.slices.is_empty() {
            if self.unflushed && Pin::new(&mut self.stream).poll_flush(cx)?.is_ready() {
                self.unflushed = false;
            }
            return Poll::Ready(Ok(false));
        }
        let slices: Vec<_> = self.slices.iter().map(|slice| IoSlice::new(slice)).collect();
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, &slices);
        drop(slices);
        self.slices.clear();
        self.release(if let Poll::Ready(Ok(sent)) = written { sent } else { 0 });
        let sent = std::task::ready!(written)?;
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.unflushed = true;
        Poll::Ready(Ok(true))
    }

    /// Notes that `sent` bytes went, and what was given up while they did.
    fn release(&self, sent: usize) {
        let mut state = self.shared.lock();
        let state = &mut *state;
        let released = state.outbox.release(sent);
        state.bytes_sent += sent as u64;
        state.round_trips = state.round_trips.max(released.depth);
        if let Some(ordinal) = released.moved {
            state.moved(ordinal, Instant::now());
        }
        let calls = state.session.calls();
        for (tag, taken_back) in released.regretted {
            state.given_up(tag, taken_back);
        }
        self.shared.ended_since(state, calls);
    }

    /// Reads once and hands over every whole frame.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.reserve()?;
        let n = std::task::ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.arrived))
            .map_err(|e| Error::Lost(Loss::Io(Arc::new(e))))?;
        if n == 0 {
            return Poll::Ready(Err(Error::Lost(Loss::Closed)));
        }
        self.arrived_at = Instant::now();
        let mut state = self.shared.lock();
        state.bytes_received += n as u64;
        state.heard_at = self.arrived_at;
        drop(state);
        self.hand_over()?;
        self.note_part();
        Poll::Ready(Ok(()))
    }

    /// Room for the rest of the frame that has begun, whose size is bounded by msize, or for what may come next.
    ///
    /// Large frames are most often followed by others of the same size, and a buffer that ends where a frame ends needs
    /// no copy of the beginning of the next: so there is room for whole frames of that size.
    fn reserve(&mut self) -> Result<(), Error> {
        let (begun, here) = (self.next_frame()?, self.arrived.len());
        let needed = begun.map_or(READ_LEAST, |size| size.saturating_sub(here));
        if self.arrived.capacity() - here < needed {
            let frame = begun.unwrap_or(self.large).max(self.large);
            let whole = if frame < COPIED { READ_CHUNK } else { frame * (READ_FRAMES / frame).max(1) };
            self.arrived.reserve(whole.saturating_sub(here).max(needed));
        }
        Ok(())
    }

    fn next_frame(&self) -> Result<Option<usize>, Error> {
        let max = self.first_max.unwrap_or_else(|| self.shared.msize());
        frame_size(&self.arrived, max).map_err(|e| Error::Misbehaved(ServerMisbehaved::Frame(e)))
    }

    /// Notes that a frame which is not whole has grown.
    fn note_part(&mut self) {
        if self.first_max.is_some() {
            // Of an Rversion, whatever tag it has: no sign of life for what was asked.
            return;
        }
        let grown = self.arrived.len() - self.noted >= STEP;
        // `size[4] type[1] tag[2]`.
        if let &[_, _, _, _, _, low, high, ..] = &self.arrived[..]
            && grown
        {
            self.noted = self.arrived.len();
            let mut state = self.shared.lock();
            if let Some(ordinal) = state.session.ordinal(Tag(u16::from_le_bytes([low, high]))) {
                state.moved(ordinal, self.arrived_at);
            }
        }
    }

    fn hand_over(&mut self) -> Result<(), Error> {
        while let Some(size) = self.next_frame()?.filter(|&size| size <= self.arrived.len()) {
            self.noted = 0;
            if size >= COPIED {
                self.large = size;
            }
            let frame = if size < COPIED {
                let frame = Bytes::copy_from_slice(&self.arrived[..size]);
                self.arrived.advance(size);
                frame
            } else {
                self.arrived.split_to(size).freeze()
            };
            if self.first_max.take().is_some() {
                self.agree(&frame)?;
                continue;
            }
            // Out of the lock before anything is handed over: a reply that nobody takes is dropped, and an owned fid or stream
            // takes the lock to be dropped.
            let Told { answered, failed } = self.answered(&frame)?;
            if let Some((waiter, result)) = answered {
                let handle = || waiter.handle.clone();
                let reply = result.map(|Made { fid, stream }| Reply {
                    frame,
                    version: self.shared.version,
                    at: self.arrived_at,
                    made: fid.filter(|_| waiter.chain.is_none()).map(|fid| OwnedFid::made(handle(), fid)),
                    stream: stream.map(|id| OwnedStream::given(handle(), id)),
                });
                waiter.tell(reply);
            }
            for (waiter, error) in failed {
                waiter.tell(Err(error));
            }
        }
        Ok(())
    }

    /// The first frame where a version was presumed.
    fn agree(&mut self, frame: &[u8]) -> Result<(), Error> {
        let mut state = self.shared.lock();
        let state = &mut *state;
        let Standing::Presumed(presumption) = &mut state.standing else { return Ok(()) };
        match presumption.handle_frame(&state.session, frame).map_err(Error::Misbehaved)? {
            Verdict::Holds { msize } => {
                self.shared.agree(state, msize);
                return Ok(());
            }
            Verdict::Fails => state.standing = Standing::Refuted,
            Verdict::Unclear => {}
        }
        Err(Error::Lost(Loss::OtherVersion))
    }

    /// Whom a frame answers; what has its turn now is queued.
    fn answered(&mut self, frame: &[u8]) -> Result<Told, Error> {
        let mut state = self.shared.lock();
        let state = &mut *state;
        let calls = state.session.calls();
        let asked = split_frame(frame).ok().map(|(header, _)| header.tag);
        let ordinal = asked.and_then(|tag| state.session.ordinal(tag));
        if let (Some(tag), Some(ordinal)) = (asked, ordinal)
            && state.outbox.is_unsent(ordinal)
        {
            return Err(Error::Misbehaved(ServerMisbehaved::UnknownTag(tag)));
        }
        let answer = state.session.handle_frame(frame).map_err(Error::Misbehaved)?;
        if let Some(ordinal) = ordinal {
            state.moved(ordinal, self.arrived_at);
        }
        let (tag, result) = match answer {
            Answer::Reply { tag, reply, made } => {
                let stream = if let R::Stream { id, .. } = reply { Some(id) } else { None };
                (Some(tag), Ok(Made { fid: made, stream: stream.filter(|_| state.session.gives_streams()) }))
            }
            Answer::Failed { tag, error } => (Some(tag), Err(Error::Refused(error))),
            Answer::Settled => (None, Ok(Made::default())),
        };
        let waiter = tag.and_then(|tag| state.take_waiter(tag));
        if let Some(waiter) = &waiter {
            state.freed_depth = waiter.depth;
        }
        let failed = state.take_turns(self.arrived_at);
        self.shared.ended_since(state, calls);
        Ok(Told { answered: waiter.map(|waiter| (waiter, result)), failed })
    }
}

/// Whether it is `due`; wakes the task when it is.
fn passed(alarm: &mut Option<Pin<Box<Sleep>>>, due: Instant, cx: &mut Context<'_>) -> bool {
    let alarm = alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
    if alarm.deadline() != due {
        alarm.as_mut().reset(due);
    }
    alarm.as_mut().poll(cx).is_ready()
}
