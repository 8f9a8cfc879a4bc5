//! The first operation on a server, on the way while the connection is being agreed on.
//!
//! [`Client::first`] connects and does one operation. With groups the attach and the operation's first
//! [chain](super::chain) are one group: one round trip behind the Tversion. Where the server agreed on `.n1` the last time
//! ([`Memory`](super::Memory)) the group goes right behind the Tversion, without waiting: an early start.
//!
//! Rules of an early start (docs/protocol.md, "Early start"): nothing in the group names a fid but the one that its
//! Tsession makes, and those made from it, so that a server of another version does nothing; no reply is believed before
//! the Rversion; where that says anything else than was presumed, or is an error, the connection is thrown away and the
//! operation done on another; where none comes, so are operations that only look, and one that changes anything is
//! [in doubt](Error::InDoubt): it is never done twice.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use ninefold_proto::Errno;
use ninefold_proto::types::SessionId;
use tokio::time::Instant;

use super::client::Client;
use super::connection::Fate;
use super::error::{Error, Loss};
use super::handshake::{self, bounded};
use super::memory::Entry;
use super::options::Options;
use super::root::new_session;
use crate::transport::Address;

/// How an early start ended.
enum Early<T> {
    /// The server agreed; what came of the operation.
    Done(Client, Result<T, Error>),
    /// Nothing was done, or nothing that may not be done again.
    Again,
    Failed(Error),
}

/// When a connection must be there, and how long that was from its start.
#[derive(Clone, Copy)]
struct Deadline(Option<(Instant, Duration)>);

impl Deadline {
    async fn bound<F: Future>(self, future: F) -> Result<F::Output, Error> {
        let Some((at, limit)) = self.0 else { return Ok(future.await) };
        tokio::time::timeout_at(at, future).await.map_err(|_| Error::TimedOut(limit))
    }
}

impl Client {
    /// Connects as [`Client::connect`] and does `op`, the first operation on the connection: where both are known to the
    /// server ([`Options::memory`]) all of it is one round trip, if `op` is one of a path ([`Client::metadata`],
    /// [`Client::remove`]) or begins with a [chain](Client::chain) from the root. An error is one of the connection;
    /// beside the client is what came of the operation.
    ///
    /// `op` may be called twice, on two clients, and must leave no work of its own behind, as a task that it spawns would. What it
    /// does to files is done once at most: [`Error::InDoubt`] where nobody knows whether it was, until the attach is answered; from
    /// then on errors are what they are on any connection. If it gives up its first chain before the attach is answered, the attach is given up too.
    pub async fn first<T>(
        address: &Address,
        options: Options,
        op: impl AsyncFn(&Client) -> Result<T, Error>,
    ) -> Result<(Client, Result<T, Error>), Error> {
        let options = Arc::new(options);
        let limit = handshake::limit(address, &options);
        let deadline = Deadline(limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit))));
        let session = new_session()?;
        let memory = options.memory.as_ref();
        let mut known = match memory {
            Some(memory) => memory.recall(address).await,
            None => None,
        };
        if let Some(entry) = known.as_ref().filter(|entry| entry.is_n1()) {
            let early = Client::early(address, (&options, session), entry, deadline, &op).await;
            if let (Some(memory), Early::Again | Early::Failed(Error::InDoubt(_))) = (memory, &early) {
                memory.forget(address).await;
            }
            match early {
                Early::Done(client, done) => {
                    if let Some(memory) = memory {
                        // Behind a relay a connection tells little. What the server did meanwhile, before its first answer, is no part of it.
                        let took = client.handle().dialer().took();
                        let most = entry.farthest(took).unwrap_or(client.handle().dialer().trip());
                        let trip = most.min(client.attach_took()).max(took);
                        let offer = (client.version(), trip);
                        memory.learn(address, known, (client.version(), client.msize()), offer).await;
                    }
                    return Ok((client, done));
                }
                Early::Failed(e) => return Err(e),
                Early::Again => known = None,
            }
        }
        let connected = async {
            let (handle, offered) = handshake::connect(address, &options, known.as_ref()).await?;
            let aname = address.aname.clone().unwrap_or_default();
            let client = Client::begin(handle, &aname, options.clone(), session, 0).await?;
            if !client.version().groups {
                client.attached().await?;
            }
            Ok::<_, Error>((client, offered))
        };
        let connected = deadline.bound(connected).await.flatten();
        // What is remembered may be what it failed by. Where nobody answers, or somebody refuses to let us in, it is not.
        if let (Some(memory), Some(_), Err(e)) = (memory, &known, &connected)
            && !matches!(e, Error::Dial(_) | Error::Refused(_))
        {
            memory.forget(address).await;
        }
        let (client, offered) = connected?;
        // Beside the operation: a disk must not hold it up.
        let learn = async {
            if let (Some(memory), Some(offered)) = (memory, offered) {
                let offer = (offered, client.handle().dialer().trip());
                memory.learn(address, known, (client.version(), client.msize()), offer).await;
            }
        };
        let (done, ()) = join(client.attached_with(deadline, &op), learn).await;
        let done = done.map_err(|e| client.handle().doubt(e))?;
        Ok((client, done))
    }

    /// Does `op` while the attach is on its way; an error is the attach's, whatever `op` says.
    async fn attached_with<T>(
        &self,
        deadline: Deadline,
        op: &impl AsyncFn(&Client) -> Result<T, Error>,
    ) -> Result<Result<T, Error>, Error> {
        // Its answer is no cause of what the operation asks meanwhile.
        let beside = self.fork();
        let refused = async {
            match deadline.bound(beside.attached()).await {
                Ok(Ok(_)) => std::future::pending().await,
                Ok(Err(e)) | Err(e) => e,
            }
        };
        let done = tokio::select! {
            biased;
            done = op(self) => done,
            e = refused => return Err(e),
        };
        match (deadline.bound(self.attached()).await, done) {
            (Ok(Ok(_)), done) => Ok(done),
            // The attach was given up with it.
            (_, Err(e @ (Error::TimedOut(_) | Error::Lost(_) | Error::Misbehaved(_)))) => Err(e),
            // It was given up with the operation's first chain: what is wrong with that the operation says.
            (Ok(Err(e)), Err(done)) if e.errno() == Errno::ECANCELED => Ok(Err(done)),
            (Ok(Err(e)) | Err(e), _) => Err(e),
        }
    }

    /// An early start at a server that agreed on `.n1` before.
    async fn early<T>(
        address: &Address,
        (options, session): (&Arc<Options>, SessionId),
        entry: &Entry,
        deadline: Deadline,
        op: &impl AsyncFn(&Client) -> Result<T, Error>,
    ) -> Early<T> {
        let begun = async {
            let handle = handshake::presume(address, options, entry).await?;
            let aname = address.aname.clone().unwrap_or_default();
            Client::begin(handle, &aname, options.clone(), session, 0).await
        };
        let client = match deadline.bound(begun).await {
            Ok(Ok(client)) => client,
            // Nothing but a Tversion has left.
            Ok(Err(Error::Lost(_))) => return Early::Again,
            Ok(Err(e)) | Err(e) => return Early::Failed(e),
        };
        let handle = client.handle().clone();
        let silence = async {
            match bounded(handshake::first_offer(address, options), handle.agreed()).await {
                Ok(()) => std::future::pending().await,
                Err(e) => e,
            }
        };
        let done = tokio::select! {
            biased;
            done = client.attached_with(deadline, op) => done,
            e = silence => Err(e),
        };
        // Looked at once: what the server says from now on comes too late.
        match (handle.fate(), done) {
            (Fate::Agreed, Ok(done)) => Early::Done(client, done),
            (Fate::Agreed, Err(e)) => Early::Failed(handle.doubt(e)),
            (Fate::Unknown { changes: true }, done) => {
                handle.cut();
                let why = done.and_then(|done| done).err().unwrap_or(Error::Lost(Loss::ClosedHere));
                Early::Failed(Error::InDoubt(Box::new(why)))
            }
            (Fate::Refuted | Fate::Unknown { changes: false }, _) => {
                handle.cut();
                Early::Again
            }
        }
    }
}
