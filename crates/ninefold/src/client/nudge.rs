//! Requests that are sent behind what may be lost, so that it is missed: at the end of a stream.
//!
//! What a full queue on the way drops is sent again about a round trip later where something came behind it, because the peer's TCP tells of the gap
//! (RACK, RFC 8985, section 6). With nothing behind it the sender has to find out by itself, and where it is all that is under way Linux waits two round trips
//! and 200 ms for that (section 7.2, `WCDelAckT`; tcp(7), rto_min). The end of a stream is such a place: its data has filled the queue, and the server's word on
//! it, or the request for that, is one small segment of the session's connection. On a way of 0.5 ms one copy of seven took 0.19 s longer for it.
//!
//! So who waits there for longer than the way explains asks for something small: that is what comes behind, whichever direction the lost one had.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, pending, select};
use ninefold_proto::T;
use ninefold_proto::message::Mask;
use tokio::time::sleep;

use super::client::Client;
use super::connection::Waiting;

/// Round trips that an answer takes where nothing is lost, and one more.
const TRIPS: u32 = 2;

/// What a server may take for its answer beside them, and processes for theirs.
const WORK: Duration = Duration::from_millis(3);

/// Behind so much more the sender has sent it again by itself: TCP_RTO_MIN.
const BY_ITSELF: Duration = Duration::from_millis(200);

/// Answers of which nobody wants anything.
#[derive(Default)]
struct Unwanted(Vec<Waiting>);

impl Drop for Unwanted {
    fn drop(&mut self) {
        for waiting in &mut self.0 {
            // What is here needs no Tflush.
            let _ = waiting.now_or_never();
        }
    }
}

/// `waited`, which an answer of the server ends, with a request behind it while that is late: after a wait as long as the way explains, then after twice that, and so on, as
/// long as it may be that nobody has sent the lost one again.
pub(super) async fn nudging<F: Future>(client: &Client, waited: F) -> F::Output {
    match select(pin!(waited), pin!(nudge(client))).await {
        Either::Left((output, _)) => output,
        Either::Right((never, _)) => match never {},
    }
}

async fn nudge(client: &Client) -> std::convert::Infallible {
    let (trip, handle) = (client.trip(), client.handle());
    let mut unwanted = Unwanted::default();
    if handle.dialer().may_lose() {
        let (mut wait, mut waited) = (trip * TRIPS + WORK, Duration::ZERO);
        while waited + wait <= trip * TRIPS + BY_ITSELF {
            sleep(wait).await;
            (waited, wait) = (waited + wait, wait * 2);
            // Of nothing that anybody waits for: it is in no chain of round trips.
            let request = T::Getattr { fid: client.root.fid.fid(), request_mask: Mask(0) };
            match handle.begin(request, Default::default(), 0).await {
                Ok(asked) => {
                    handle.send();
                    unwanted.0.push(asked);
                }
                // Who waits is told why.
                Err(_) => break,
            }
        }
    }
    pending().await
}
