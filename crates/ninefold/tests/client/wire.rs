//! What passes a client's stream, seen at the instant at which it passes: requests, their replies, what is flushed.
//!
//! [`record`] puts a [`Wire`] around a stream; [`Wire::now`] is an instant between two events, to compare with those of a
//! [`Request`]. [`Wire::stall_after`] lets so many bytes leave and then none, until [`Wire::flow`].

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use ninefold::proto::wire::{frame_size, split_frame};
use ninefold::transport::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::support::random;

const TATTACH: u8 = 104;
const TFLUSH: u8 = 108;
const TWALK: u8 = 110;
const TVERSION: u8 = 100;

/// A request that left, in events since the connection's beginning.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub tag: u16,
    /// Its message's number.
    pub kind: u8,
    /// The number in the name of the directory, `d7`, where the walk to its fid began.
    pub owner: Option<usize>,
    /// When its first byte left.
    pub begun: u64,
    /// When its reply came whole.
    pub answered: Option<u64>,
    /// When a Tflush of its tag began to leave, if the reply was not there then.
    pub flushed: Option<u64>,
    /// When the Rflush came, if the reply was not there then.
    pub let_go: Option<u64>,
}

impl Request {
    /// Whether its reply was seen, or a Tflush of it and the Rflush.
    pub fn is_settled(&self) -> bool {
        self.answered.is_some() || self.flushed.is_some() && self.let_go.is_some()
    }

    /// Whether it had begun to leave, and had no reply, at an instant.
    pub fn was_open(&self, at: u64) -> bool {
        self.begun < at && self.answered.is_none_or(|then| then >= at) && self.let_go.is_none_or(|then| then >= at)
    }
}

#[derive(Debug, Default)]
struct Log {
    events: u64,
    requests: Vec<Request>,
    /// What each fid's walk said of its owner.
    owners: HashMap<u32, Option<usize>>,
    /// What each Tflush names, by its own tag.
    flushes: HashMap<u16, u16>,
    /// The places of those that are not settled, the oldest first, by tag.
    open: HashMap<u16, VecDeque<usize>>,
    /// Requests that came under a tag that was in use.
    shared: usize,
    /// What is not a whole frame, and when its first byte passed.
    sent: (Vec<u8>, u64),
    received: Vec<u8>,
    /// Bytes that may leave yet, where that is bounded.
    allowed: Option<usize>,
    /// Of who would send more.
    stalled: Option<Waker>,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Wire(Arc<Mutex<Log>>);

/// A client's stream, recorded. It takes up to 63 bytes at a time, and has others run in between: so half a frame has left
/// at some of the instants at which something is given up.
pub fn record(stream: Stream) -> (Stream, Wire) {
    let wire = Wire::default();
    let recorded = Recorded { stream, wire: wire.clone(), seed: 3, rests: false };
    (Stream::other(recorded), wire)
}

impl Wire {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap()
    }

    /// Later than all that passed, earlier than all that will.
    pub fn now(&self) -> u64 {
        let mut log = self.lock();
        log.events += 1;
        log.events
    }

    /// What left whole, Tflush and Tversion too, from the `from`th on.
    pub fn requests(&self, from: usize) -> Vec<Request> {
        self.lock().requests[from..].to_vec()
    }

    pub fn count(&self) -> usize {
        self.lock().requests.len()
    }

    /// Those that have neither a reply nor an Rflush yet.
    pub fn open(&self) -> usize {
        self.lock().open.values().map(VecDeque::len).sum()
    }

    /// Whether a frame has begun to leave and has not left whole.
    pub fn has_begun(&self) -> bool {
        !self.lock().sent.0.is_empty()
    }

    /// After so many bytes more nothing leaves.
    pub fn stall_after(&self, bytes: usize) {
        self.lock().allowed = Some(bytes);
    }

    /// Whether something was to leave and could not.
    pub fn is_stalled(&self) -> bool {
        self.lock().stalled.is_some()
    }

    pub fn flow(&self) {
        let mut log = self.lock();
        log.allowed = None;
        if let Some(waker) = log.stalled.take() {
            waker.wake();
        }
    }

    /// Requests that left while another with their tag was open.
    pub fn shared(&self) -> usize {
        self.lock().shared
    }
}

impl Log {
    fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// How many bytes may leave now, where that is bounded.
    fn may_leave(&mut self, cx: &mut Context<'_>) -> Option<Poll<usize>> {
        let allowed = self.allowed?;
        if allowed > 0 {
            return Some(Poll::Ready(allowed));
        }
        self.stalled = Some(cx.waker().clone());
        Some(Poll::Pending)
    }

    fn left(&mut self, bytes: &[u8]) {
        if let Some(allowed) = &mut self.allowed {
            *allowed -= bytes.len();
        }
        if self.sent.0.is_empty() {
            self.sent.1 = self.event();
        }
        self.sent.0.extend(bytes);
        while let Some(frame) = whole(&mut self.sent.0) {
            let begun = self.sent.1;
            self.request(&frame, begun);
            self.sent.1 = self.event();
        }
    }

    fn request(&mut self, frame: &[u8], begun: u64) {
        let (header, body) = split_frame(frame).unwrap();
        let (tag, kind) = (header.tag.0, header.kind);
        // Every other request begins with a fid, Twalk goes on with the newfid, nwname[2] and the first name.
        let number = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
        let owner = match kind {
            TVERSION | TATTACH => None,
            TFLUSH => {
                let oldtag = u16::from_le_bytes([body[0], body[1]]);
                self.flushes.insert(tag, oldtag);
                for &old in self.open.get(&oldtag).into_iter().flatten() {
                    self.requests[old].flushed = Some(begun);
                }
                None
            }
            TWALK => {
                let named =
                    body.get(12..).and_then(|name| str::from_utf8(&name[..name.len().min(body[10].into())]).ok());
                let number_of = |name: &str| name.strip_prefix('d')?.parse().ok();
                let owner = named.and_then(number_of).or_else(|| self.owners.get(&number(0)).copied().flatten());
                self.owners.insert(number(4), owner);
                owner
            }
            _ => self.owners.get(&number(0)).copied().flatten(),
        };
        let open = self.open.entry(tag).or_default();
        self.shared += usize::from(!open.is_empty());
        open.push_back(self.requests.len());
        self.requests.push(Request { tag, kind, owner, begun, answered: None, flushed: None, let_go: None });
    }

    fn came(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
        while let Some(frame) = whole(&mut self.received) {
            let now = self.event();
            let tag = split_frame(&frame).unwrap().0.tag.0;
            let oldest = self.open.get_mut(&tag).and_then(VecDeque::pop_front);
            let oldest = oldest.unwrap_or_else(|| panic!("a reply with tag {tag}, which nothing has"));
            self.requests[oldest].answered = Some(now);
            let Some(oldtag) = self.flushes.remove(&tag) else { continue };
            for old in self.open.remove(&oldtag).into_iter().flatten() {
                self.requests[old].let_go = Some(now);
            }
        }
    }
}

/// Takes a whole frame off the beginning.
fn whole(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let size = frame_size(bytes, u32::MAX).unwrap().filter(|&size| size <= bytes.len())?;
    Some(bytes.drain(..size).collect())
}

struct Recorded {
    stream: Stream,
    wire: Wire,
    seed: u64,
    /// It took something the last time.
    rests: bool,
}

impl AsyncRead for Recorded {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        this.wire.lock().came(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.rests = !this.rests;
        if !this.rests {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut most = 1 + random(&mut this.seed) as usize % 63;
        if let Some(allowed) = this.wire.lock().may_leave(cx) {
            most = most.min(ready!(allowed));
        }
        let sent = ready!(Pin::new(&mut this.stream).poll_write(cx, &bytes[..bytes.len().min(most)]))?;
        this.wire.lock().left(&bytes[..sent]);
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
