//! Streams whose data connection has not come: they wait with their tokens, without a task of their own. One task ends those that
//! nobody came for in time, and who aborts streams ends those among them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ninefold_proto::types::StreamToken;
use ninefold_proto::{Errno, Error};
use tokio::time::{Instant, sleep_until};

use super::life::{Life, aborted};
use crate::server::Server;
use crate::transport::Peer;

/// For whoever asks for longer than the clock has.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365);

/// Lets a stream wait for whoever comes with its token.
pub(super) fn wait(
    server: &Arc<Server>,
    peer: &Peer,
    own: Option<StreamToken>,
    life: Box<Life>,
) -> Result<StreamToken, Error> {
    let tokens = &server.streams.tokens;
    let now = Instant::now();
    let until = now.checked_add(server.streams.limits.token).unwrap_or(now + FOR_EVER);
    let abort = life.abort();
    let (token, is_unwatched) = tokens.issue(peer, own, until, life)?;
    if is_unwatched {
        drop(tokio::spawn(watch(Watch { server: Arc::downgrade(server), is_over: false })));
    }
    // Who aborted it before it was there has not found it.
    if abort.is_cancelled() {
        end_aborted(server);
    }
    Ok(token)
}

/// Ends those that are to end before their time. Whoever aborts a stream calls this behind that.
pub(super) fn end_aborted(server: &Server) {
    for life in server.streams.tokens.withdraw(|life, _| life.is_aborted()) {
        life.give_up(aborted());
    }
}

/// Sees to the end of those that wait for too long.
struct Watch {
    server: Weak<Server>,
    is_over: bool,
}

impl Drop for Watch {
    /// With its runtime, say: of a server of several the next Tstream begins another.
    fn drop(&mut self) {
        if let Some(server) = self.server.upgrade()
            && !self.is_over
        {
            server.streams.tokens.unwatch();
        }
    }
}

async fn watch(mut watch: Watch) {
    let next = |watch: &Watch| watch.server.upgrade().and_then(|server| server.streams.tokens.watched_until());
    while let Some(until) = next(&watch) {
        sleep_until(until).await;
        let Some(server) = watch.server.upgrade() else { break };
        let now = Instant::now();
        // A server that drains waits for those that are on their way to their ends.
        let _tracked = server.streams.tasks.token();
        for life in server.streams.tokens.withdraw(|_, until| until <= now) {
            life.give_up(Error::with_text(Errno::ETIMEDOUT, "nobody came with the stream's token in time"));
        }
    }
    watch.is_over = true;
}
