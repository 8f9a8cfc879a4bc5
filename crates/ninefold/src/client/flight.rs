//! The requests of one pipelined read or write that are on the way, and how many may be.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::budget::Share;
use super::client::Client;
use super::connection::{Call, Reply, Waiting};
use super::credit::Credit;
use super::error::Error;
use super::window::{Sent, Window};

/// Requests of one reader or writer: an eighth of what a connection has
/// ([`Limits::calls`](ninefold_proto::client::Limits)), so that others get their turn on it.
const REQUESTS: usize = 512;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Flight {
    window: Window,
    credit: Credit,
    asked: FuturesUnordered<Asked>,
    /// The same, the oldest first.
    calls: BTreeSet<Call>,
    /// Bytes asked for and not yet freed.
    outstanding: usize,
    /// The same, of the connection's.
    share: Share,
    /// There were too many requests when room was last asked for.
    crowded: bool,
    /// The depth of the last reply.
    depth: u32,
    /// What the window's time counts from.
    epoch: Instant,
    learned: Learned,
}

/// Bytes of the last window on a connection, with which the next one starts; 0 while there was none.
#[derive(Clone, Debug, Default)]
pub(super) struct Learned(Arc<AtomicUsize>);

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(bytes) = self.window.learned() {
            self.learned.0.store(bytes, Ordering::Relaxed);
        }
    }
}

/// A request on the way.
#[derive(Debug)]
struct Asked {
    offset: u64,
    count: u32,
    sent: Sent,
    waiting: Waiting,
}

/// A reply that came, or what came in its place.
#[derive(Debug)]
pub(super) struct Arrival {
    /// What was asked for.
    pub offset: u64,
    pub count: u32,
    /// Its place in the longest chain.
    pub depth: u32,
    call: Call,
    sent: Sent,
    pub reply: Result<Reply, Error>,
}

impl Future for Asked {
    type Output = Arrival;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Arrival> {
        let reply = ready!(Pin::new(&mut self.waiting).poll(cx));
        let &mut Asked { offset, count, sent, ref waiting } = &mut *self;
        Poll::Ready(Arrival { offset, count, depth: waiting.depth(), call: waiting.call(), sent, reply })
    }
}

impl Flight {
    /// For requests of `client` of at most `message_max` bytes of data. What is asked first follows from what the client has
    /// seen.
    pub fn new(client: &Client, message_max: u32, learned: &Learned) -> Flight {
        let known = learned.0.load(Ordering::Relaxed);
        Flight::with(client, Window::new(message_max as usize, client.options().window_max, known), learned.clone())
    }

    /// The same for `bytes` bytes that the program waits for: all may go at once, and what is learned tells nothing of the path.
    pub fn of_call(client: &Client, message_max: u32, bytes: usize, learned: &Learned) -> Flight {
        let known = learned.0.load(Ordering::Relaxed).max(bytes);
        let window = Window::new(message_max as usize, client.options().window_max, known);
        Flight::with(client, window, Learned::default())
    }

    fn with(client: &Client, window: Window, learned: Learned) -> Flight {
        let mut credit = Credit::default();
        credit.settle(window.bytes(), client.lane.depth());
        let share = client.handle().windows().budget.share(client.options().flights_max);
        Flight {
            window,
            credit,
            asked: FuturesUnordered::new(),
            calls: BTreeSet::new(),
            outstanding: 0,
            share,
            crowded: false,
            depth: 0,
            epoch: Instant::now(),
            learned,
        }
    }

    /// Bytes that the next request should carry.
    pub fn message(&self) -> u32 {
        // The window was given no greater ones.
        self.window.message() as u32
    }

    /// Whether a request of `count` bytes may go now.
    pub fn has_room(&mut self, count: u32) -> bool {
        let fits = self.outstanding + count as usize <= self.window.bytes();
        self.crowded |= self.asked.len() >= REQUESTS;
        self.outstanding == 0 || self.asked.len() < REQUESTS && fits && self.share.has_room(count as usize)
    }

    /// Takes room for `count` bytes at `offset` of the file, and gives the depth of the reply that made it.
    pub fn take_room(&mut self, count: u32) -> u32 {
        self.outstanding += count as usize;
        let place = if std::mem::take(&mut self.crowded) { self.depth } else { 0 };
        self.credit.take(count as usize).max(self.share.take(count as usize)).max(place)
    }

    /// Gives room for `bytes` back; that they are done with followed from a reply of `depth`.
    pub fn free(&mut self, bytes: usize, depth: u32) {
        self.outstanding = self.outstanding.saturating_sub(bytes);
        self.share.free(bytes, depth);
        self.settle(depth);
    }

    fn settle(&mut self, depth: u32) {
        self.credit.settle(self.window.bytes().saturating_sub(self.outstanding), depth);
    }

    /// A request went out. `span`: offset and bytes, for which room was taken. `limited`: see [`Window::sent`].
    pub fn ask(&mut self, waiting: Waiting, (offset, count): (u64, u32), limited: bool) {
        let sent = self.window.sent(self.epoch.elapsed(), limited);
        self.calls.insert(waiting.call());
        self.asked.push(Asked { offset, count, sent, waiting });
    }

    /// The next reply, in the order in which they come; `None` when nothing is on the way.
    pub fn poll_arrival(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
        let arrival = ready!(self.asked.poll_next_unpin(cx));
        if let Some(arrival) = &arrival {
            self.calls.remove(&arrival.call);
        }
        Poll::Ready(arrival)
    }

    /// The one on the way that was made first: whatever the others bring, it must not be left unanswered.
    pub fn oldest(&self) -> Option<Call> {
        self.calls.first().copied()
    }

    /// Learns from an arrival that brought or took `bytes`.
    pub fn arrived(&mut self, arrival: &Arrival, bytes: usize) {
        self.depth = arrival.depth;
        match &arrival.reply {
            Ok(reply) => {
                let at: Duration = reply.at.saturating_duration_since(self.epoch);
                self.window.arrived(arrival.sent, bytes, at);
                self.settle(arrival.depth);
            }
            Err(_) => self.window.lost(),
        }
    }

    /// Gives up what is on the way.
    pub fn clear(&mut self, cause: u32) {
        for _ in 0..self.asked.len() {
            self.window.lost();
        }
        self.asked.clear();
        self.calls.clear();
        self.share.free(self.outstanding, cause);
        self.outstanding = 0;
        self.settle(cause);
    }
}
