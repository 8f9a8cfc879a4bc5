//! Answers that a server behind brings, and what a flush makes of them: the call is given up, and so flushed there too. What its
//! server had done by then stays done, as with any Tflush that comes too late (flush(5)).

use std::pin::pin;
use std::time::Duration;

use ninefold_proto::{Errno, Error};

use super::super::Error as NsError;
use super::told;
use crate::server::{Answer, Cx};

/// From then on a call counts as one that may never be answered, and lets others of its connection pass: longer than most servers
/// take for what does not wait, and short for who is held up meanwhile.
const PATIENCE: Duration = Duration::from_millis(100);

/// What is done about a call for which its connection has no room to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Crowded {
    /// It is given up, and may be made again: ETRYLATER.
    GiveUp,
    /// It is waited for, and holds up others, for it may have been done.
    Wait,
}

/// An answer that a call of a server behind brings.
pub(super) fn later<T: Send + 'static>(
    cx: &Cx,
    call: impl Future<Output = Result<T, NsError>> + Send + 'static,
) -> Answer<T> {
    let cx = cx.clone();
    Answer::later(async move { unless_flushed(&cx, call).await })
}

/// The same of a call that may wait for ever, as for what a device has: it is parked.
pub(super) fn parked<T: Send + 'static>(
    cx: &Cx,
    crowded: Crowded,
    call: impl Future<Output = Result<T, NsError>> + Send + 'static,
) -> Answer<T> {
    let cx = cx.clone();
    Answer::later(async move {
        let mut call = pin!(unless_flushed(&cx, call));
        if let Ok(done) = tokio::time::timeout(PATIENCE, &mut call).await {
            return done;
        }
        let _parked = match cx.park() {
            Err(e) if crowded == Crowded::GiveUp => return Err(e),
            parked => parked.ok(),
        };
        call.await
    })
}

/// The call first: what is done is told.
async fn unless_flushed<T>(cx: &Cx, call: impl Future<Output = Result<T, NsError>>) -> Result<T, Error> {
    tokio::select! {
        biased;
        done = call => done.map_err(told),
        () = cx.cancelled() => Err(Errno::EINTR.into()),
    }
}
