//! A call whose reply has not come, and its place among others.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ninefold_proto::Tag;
use tokio::sync::oneshot;

use super::{Handle, Reply};
use crate::client::error::Error;
use crate::client::stats::Lane;

/// Tells a call from all others: a tag is used again. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::client) struct Call {
    pub(super) serial: u64,
    pub(super) tag: Tag,
}

/// Where a request stands among others.
#[derive(Clone, Debug)]
pub(in crate::client) enum Place {
    Alone,
    /// In a chain, whose replies raise the lane, behind the last one of it if there is one.
    Chained(Lane, Option<Call>),
}

impl Place {
    pub(super) fn behind(&self) -> Option<Call> {
        if let Place::Chained(_, last) = self { *last } else { None }
    }

    pub(super) fn chain(&self) -> Option<&Lane> {
        if let Place::Chained(chain, _) = self { Some(chain) } else { None }
    }
}

/// A call whose reply has not come: a future of the reply, without a bound. Dropping it gives the call up, unless it is one
/// of a chain, which is given up as a whole: [`Handle::give_up`].
#[derive(Debug)]
pub(in crate::client) struct Waiting {
    pub(super) handle: Handle,
    pub(super) call: Call,
    pub(super) depth: u32,
    pub(super) receiver: oneshot::Receiver<(u32, Result<Reply, Error>)>,
    pub(super) done: bool,
    pub(super) is_chained: bool,
    /// The connection's task knows that there is something to send.
    pub(super) sent: bool,
}

impl Waiting {
    /// One of a chain that could not even be queued.
    pub fn failed(handle: &Handle, last: Call, error: Error) -> Waiting {
        let (sender, receiver) = oneshot::channel();
        let _ = sender.send((0, Err(error)));
        Waiting { handle: handle.clone(), call: last, depth: 0, receiver, done: false, is_chained: true, sent: true }
    }

    /// The request's place in the longest chain, and so the reply's.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    pub fn call(&self) -> Call {
        self.call
    }

    /// Waits for the reply while it sees no silence longer than the timeout; what follows in `lane` follows from it, even
    /// from a refusal.
    pub async fn wait(mut self, lane: &Lane) -> Result<Reply, Error> {
        let (handle, call) = (self.handle.clone(), self.call);
        let reply = handle.patiently(call, &mut self).await?;
        lane.raise(self.depth);
        reply
    }
}

impl Future for Waiting {
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.receiver).poll(cx);
        if polled.is_pending() && !std::mem::replace(&mut this.sent, true) {
            this.handle.0.shared.waker.wake();
        }
        let answered = ready!(polled);
        this.done = true;
        // The sender is dropped only with the connection's task, or with its chain.
        Poll::Ready(match answered {
            Ok((depth, result)) => {
                this.depth = depth;
                result
            }
            Err(_) => {
                let ended = this.handle.0.shared.lock().ended.clone();
                Err(ended.unwrap_or_else(|| ninefold_proto::Errno::ECANCELED.into()))
            }
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.done && !self.is_chained {
            self.handle.give_up(self.call);
        }
    }
}
