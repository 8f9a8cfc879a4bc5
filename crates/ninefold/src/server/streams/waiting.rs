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
    let token = tokens.issue(peer, own, until, life)?;
    if tokens.begin_watch() {
        drop(tokio::spawn(watch(Watch { server: Arc::downgrade(server), is_over: false })));
    }
    Ok(token)
}

/// Ends those that are to end before their time. Whoever aborts a stream calls this behind that, and whoever lets one wait that might have been aborted.
pub(super) fn end_aborted(server: &Server) {
    for life in server.streams.tokens.withdraw(|life, _| life.abort().is_cancelled()) {
        life.give_up(aborted());
    }
}

/// Dropped with its runtime, it takes those along that wait: nobody would end them, and they have the server.
struct Watch {
    server: Weak<Server>,
    is_over: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(server) = self.server.upgrade()
            && !self.is_over
        {
            let left = server.streams.tokens.withdraw(|_, _| true);
            server.streams.tokens.watched_until();
            drop(left);
        }
    }
}

async fn watch(mut watch: Watch) {
    let next = |watch: &Watch| watch.server.upgrade().and_then(|server| server.streams.tokens.watched_until());
    while let Some(until) = next(&watch) {
        sleep_until(until).await;
        let Some(server) = watch.server.upgrade() else { break };
        let now = Instant::now();
        for life in server.streams.tokens.withdraw(|_, until| until <= now) {
            life.give_up(Error::with_text(Errno::ETIMEDOUT, "nobody came with the stream's token in time"));
        }
    }
    watch.is_over = true;
}
