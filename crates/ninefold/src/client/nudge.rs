//! Requests that are sent behind what may be lost, so that it is missed: at the end of a stream.
//!
//! What a full queue on the way drops is sent again about a round trip later where something came behind it, because the peer's TCP tells of the gap
//! (RFC 8985, section 6: RACK). With nothing behind it the sender has to find out by itself, and where it is all that is under way Linux waits a round trip
//! and 200 ms for that (RFC 8985, section 7.2: the peer may put off its acknowledgement; ip-route(8), rto_min). The end of a stream is such a place: its data
//! has filled the queue, and the server's word on it, or the request for that, is one small segment of the session's connection. On a way of 0.5 ms one
//! copy of 10 MB in fifteen took 0.19 s longer for it.
//!
//! So who waits there for longer than the way explains sends something small: that is what comes behind, whichever direction the lost one had. Where a round trip
//! takes half of the 200 ms it would come too late to be of use, and nothing is sent.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::time::sleep;

use super::client::Client;

/// Round trips that an answer takes where nothing is lost, and one more.
const TRIPS: u32 = 2;

/// What a server may take for its answer beside them, and processes for theirs.
const WORK: Duration = Duration::from_millis(3);

/// After so long, and a round trip, what was lost is sent again without this: TCP_RTO_MIN.
const BY_ITSELF: Duration = Duration::from_millis(200);

/// The longest wait between two, unless what is waited for ought to take many times as long.
const MOST: Duration = Duration::from_millis(50);
const PART: u32 = 8;

/// `waited`, which an answer of the server ends, with requests behind it while that is late: the first after what the way explains, each next one after twice as long
/// as the one before, at most. They go on for as long as what the answer waits for ought to take, `rest`, and until TCP has helped itself.
pub(super) async fn nudging<F: Future>(client: &Client, rest: Duration, waited: F) -> F::Output {
    match select(pin!(waited), pin!(nudge(client, rest))).await {
        Either::Left((output, _)) => output,
        Either::Right((never, _)) => match never {},
    }
}

async fn nudge(client: &Client, rest: Duration) -> Infallible {
    let handle = client.handle();
    if handle.dialer().may_lose() {
        let first = trip(client) * TRIPS + WORK;
        let (most, end) = (MOST.max(rest / PART).max(first), rest.saturating_add(BY_ITSELF));
        let (mut wait, mut waited) = (first, Duration::ZERO);
        while waited + wait <= end {
            sleep(wait).await;
            // One is enough for all who wait.
            handle.probe(wait / 2);
            (waited, wait) = (waited + wait, (wait * 2).min(most));
        }
    }
    pending().await
}

/// What a round trip takes: what the connection took, or the attach, with which a server may have been busy.
fn trip(client: &Client) -> Duration {
    let took = client.handle().dialer().took();
    let attach = client.attach_took();
    match (took.is_zero(), attach.is_zero()) {
        (false, false) => took.min(attach),
        _ => took.max(attach),
    }
}
