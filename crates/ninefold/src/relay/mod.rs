//! A relay between clients and a server, for looking on: it passes bytes on unchanged and shows the messages in them.
//!
//! [`run`] accepts clients and dials the server for each; [`pass`] joins two streams that are there already. What is
//! seen goes to an [`Observer`], before it is passed on. Each way has one buffer of [`CHUNK`] bytes and at most one
//! frame of [`FRAME_MAX`]: who reads slowly slows down who writes.

mod counts;
mod histogram;
mod tap;

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::transport::{self, Address, Listener, Peer};

pub use counts::{Count, Counter, Counts};
pub use histogram::Histogram;
pub use tap::{Direction, Part, Seen};
use tap::{Session, Tap};

/// Bytes read at a time: Linux's kernel client moves 128 KiB a message by default.
pub const CHUNK: usize = 128 * 1024;

/// The longest frame in bytes that is held to be shown whole; a longer one is shown by its head. The greatest msize
/// that ninefold agrees to.
pub const FRAME_MAX: u32 = 8 * 1024 * 1024;

/// Clients at a time; more wait to be accepted.
const CONNECTIONS: usize = 1024;

/// Who is shown the messages of one connection.
pub trait Observer: Send + Sync {
    /// Something passes. Called in the order of each direction; must not block.
    fn message(&self, seen: &Seen<'_>);

    /// Waits until there is room for more. The relay reads nothing more from that side meanwhile.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The connection is over; an error says which side failed.
    fn ended(&self, result: &io::Result<()>) {
        let _ = result;
    }
}

/// Joins every client of `listener` with a connection of its own to `server`, for ever. `observer` makes the observer
/// of each from its number, counted from 1. Dropping the future ends all connections.
pub async fn run<O: Observer + 'static>(
    listener: &Listener,
    server: Address,
    mut observer: impl FnMut(u64, &Peer) -> O,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let server = Arc::new(server);
    let mut tasks = JoinSet::new();
    for number in 1.. {
        let slot = slots.clone().acquire_owned().await;
        let (client, peer) = listener.accept().await;
        while tasks.try_join_next().is_some() {}
        let (observer, server) = (observer(number, &peer), server.clone());
        tasks.spawn(async move {
            let _slot = slot;
            info!("connection {number}: {peer}");
            let result = match transport::dial(&server).await {
                Ok(stream) => pass(client, stream, &observer).await,
                Err(e) => Err(e),
            };
            if let Err(e) = &result {
                warn!("connection {number}: {e}");
            }
            observer.ended(&result);
        });
    }
}

/// Joins a client and a server until both ways have ended. The end of one way is passed on; a failure ends both.
pub async fn pass<C, S, O>(client: C, server: S, observer: &O) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Send,
    S: AsyncRead + AsyncWrite + Send,
    O: Observer,
{
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    // Both ways run in one task, so the lock is never waited for.
    let session = Mutex::new(Session::new(FRAME_MAX));
    tokio::try_join!(
        one_way(from_client, to_server, Tap::new(Direction::ToServer), &session, observer),
        one_way(from_server, to_client, Tap::new(Direction::ToClient), &session, observer),
    )?;
    Ok(())
}

async fn one_way<O: Observer>(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut tap: Tap,
    session: &Mutex<Session>,
    observer: &O,
) -> io::Result<()> {
    let (source, sink) = match tap.direction() {
        Direction::ToServer => ("client", "server"),
        Direction::ToClient => ("server", "client"),
    };
    let said = |who: &str, e: io::Error| io::Error::new(e.kind(), format!("{who}: {e}"));
    let mut buffer = vec![0; CHUNK];
    loop {
        let n = from.read(&mut buffer).await.map_err(|e| said(source, e))?;
        if n == 0 {
            tap.end(&lock(session), |seen| observer.message(seen));
            return to.shutdown().await.map_err(|e| said(sink, e));
        }
        // Shown before it is passed on: a request is always shown before its reply.
        tap.feed(&buffer[..n], &mut lock(session), |seen| observer.message(seen));
        observer.ready().await;
        to.write_all(&buffer[..n]).await.map_err(|e| said(sink, e))?;
        to.flush().await.map_err(|e| said(sink, e))?;
    }
}

fn lock(session: &Mutex<Session>) -> std::sync::MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
