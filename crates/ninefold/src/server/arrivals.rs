//! Those that come to a listener, until it is known what they are, and for as long as they carry streams that cost no thread much.
//!
//! All of them run in one task: what a task wakes in itself is done by the thread that it has, and a thread that leaves work for others wakes one. A client that has its
//! file by eight connections has their first bytes here at once, and their ends, so that one of them costs hardly more than none.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{error, info};

use super::alarm::Alarm;
use super::together::Together;
use super::{Server, streams};
use crate::transport::{Listener, Peer, Stream};

/// Turns in which some come, or are done with, until others have theirs.
const TURNS: usize = 32;

/// Accepts until the server drains, and ends when all that came to this task are done with.
pub(super) async fn serve(server: Arc<Server>, listener: Listener, slots: Arc<Semaphore>) {
    let alarm = Arc::new(Alarm::default());
    let mut here = Together::default();
    {
        let mut next = accept(&listener, &slots);
        let mut drains = pin!(server.draining.begun());
        poll_fn(|task| {
            if drains.as_mut().poll(task).is_ready() {
                return Poll::Ready(());
            }
            for _ in 0..TURNS {
                let accepted = next.as_mut().poll(task);
                let is_done = here.poll(task).is_ready();
                match accepted {
                    Poll::Ready(Some((slot, stream, peer))) => {
                        match stream {
                            Stream::Tcp(_) => here.push(receive(&server, stream, peer, slot, &alarm)),
                            // Of TLS the handshake is work, and what comes by neither stays here.
                            _ => {
                                let connection = server.serve(stream, peer);
                                drop(tokio::spawn(async move {
                                    connection.await;
                                    drop(slot);
                                }));
                            }
                        }
                        next = accept(&listener, &slots);
                    }
                    // The semaphore is closed.
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending if is_done => {}
                    Poll::Pending => {
                        alarm.poll(task);
                        return Poll::Pending;
                    }
                }
            }
            alarm.poll(task);
            task.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
    // Closed, and the file of a Unix socket removed, before anything is waited for.
    drop(listener);
    while !here.is_empty() {
        poll_fn(|task| {
            let polled = here.poll(task);
            alarm.poll(task);
            polled
        })
        .await;
    }
}

type Accepted = (OwnedSemaphorePermit, Stream, Peer);

fn accept<'l>(
    listener: &'l Listener,
    slots: &Arc<Semaphore>,
) -> Pin<Box<dyn Future<Output = Option<Accepted>> + Send + 'l>> {
    let slots = slots.clone();
    Box::pin(async move {
        let slot = slots.acquire_owned().await.ok()?;
        let (stream, peer) = listener.accept().await;
        info!(%peer, "accepted");
        Some((slot, stream, peer))
    })
}

/// One of them.
fn receive(
    server: &Arc<Server>,
    stream: Stream,
    peer: Peer,
    slot: OwnedSemaphorePermit,
    alarm: &Arc<Alarm>,
) -> impl Future<Output = ()> + Send + use<> {
    let (id, from) = (server.next_id(), peer.clone());
    let received = streams::receive_among(server.clone(), stream, peer, id, slot, alarm.clone());
    async move {
        if !ends(received).await {
            error!(peer = %from, "a connection failed");
        }
    }
}

/// Whether it comes to its end: who fails takes nobody with it.
async fn ends(future: impl Future<Output = ()>) -> bool {
    AssertUnwindSafe(future).catch_unwind().await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_fails_ends_none_of_the_others() {
        let mut here = Together::default();
        for fails in [true, false] {
            here.push(ends(async move { assert!(!fails, "it fails") }));
        }
        let ended = [poll_fn(|task| here.poll(task)).await, poll_fn(|task| here.poll(task)).await];
        assert!(here.is_empty() && ended.iter().filter(|ended| **ended).count() == 1);
    }
}
