//! The servers that one command uses: one connection to each, whatever the number of files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ninefold::client::{Client, Error, Loss, Memory, Options};
use ninefold::proto::dialect::Version;
use ninefold::transport::{Address, Place};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::report::Failure;

/// How long the end of a command waits for a server of which nothing is heard, but for [`FAREWELL_TRIPS`].
const FAREWELL: Duration = Duration::from_secs(2);

/// The same after Ctrl-C, when a person waits: with what else an end takes, under 100 ms.
const FAREWELL_IN_HASTE: Duration = Duration::from_millis(80);

/// Round trips that both allow besides, so that a link with delay is not taken for silence.
const FAREWELL_TRIPS: u32 = 4;

/// Whatever the round trip was.
const FAREWELL_MAX: Duration = Duration::from_secs(5);

/// Where a connection leads: whatever else an address has is a file's path.
type Key = (Place, Option<Vec<u8>>, Option<Version>);

/// Connections by server.
#[derive(Debug)]
pub struct Servers {
    options: Options,
    stats: Option<PathBuf>,
    /// A server that could not be reached once is not tried again.
    clients: Mutex<HashMap<Key, Result<Client, Failure>>>,
}

impl Servers {
    /// A `timeout` of 0 waits for ever; one that is given holds for logins too.
    pub fn new(timeout: Option<Duration>, stats: Option<PathBuf>, streams: bool) -> Servers {
        let mut options = Options { memory: Memory::of_user(), clunks_held_back: true, streams, ..Options::default() };
        if let Some(timeout) = timeout {
            let limit = Some(timeout).filter(|timeout| !timeout.is_zero());
            (options.timeout, options.login_timeout) = (limit, limit);
        }
        Servers { options, stats, clients: Mutex::default() }
    }

    /// The client of the server at `address`, connected at its first use.
    pub async fn client(&self, address: &Address) -> Result<Client, Failure> {
        let key = (address.place.clone(), address.aname.clone(), address.dialect);
        let mut clients = self.clients.lock().await;
        if let Some(known) = clients.get(&key) {
            return known.clone();
        }
        let client = Client::connect(address, self.options.clone()).await;
        let client = client.map_err(|e| self.not_connected(address, e));
        clients.insert(key, client.clone());
        client
    }

    /// The same, and what comes of `op`, which goes with the handshake where this is the first use ([`Client::first`]): it
    /// may be called twice, and is done once.
    pub async fn first<T>(
        &self,
        address: &Address,
        op: impl AsyncFn(&Client) -> Result<T, Error>,
    ) -> Result<(Client, Result<T, Error>), Failure> {
        self.first_by_streams(address, 0, op).await
    }

    /// The same of an operation that asks for streams at once: for so many if the way is long, and else for one.
    pub async fn first_by_streams<T>(
        &self,
        address: &Address,
        streams: usize,
        op: impl AsyncFn(&Client) -> Result<T, Error>,
    ) -> Result<(Client, Result<T, Error>), Failure> {
        let key = (address.place.clone(), address.aname.clone(), address.dialect);
        let clients = self.clients.lock().await;
        if let Some(known) = clients.get(&key) {
            let client = known.clone()?;
            drop(clients);
            let done = op(&client).await;
            return Ok((client, done));
        }
        // It is known from the moment when it is used: where the command is cut short, leave is taken of it.
        let clients = RefCell::new(clients);
        let known = async |client: &Client| {
            clients.borrow_mut().insert(key.clone(), Ok(client.clone()));
            op(client).await
        };
        let options = Options { streams_at_once: streams, ..self.options.clone() };
        let done = Client::first(address, options, known).await;
        let mut clients = clients.borrow_mut();
        done.map_err(|e| {
            if let Error::InDoubt(_) = e {
                // What may have been done is the file's, and not the server's.
                clients.remove(&key);
                return Failure::new(address, "", e);
            }
            let failure = self.not_connected(address, e);
            clients.insert(key.clone(), Err(failure.clone()));
            failure
        })
    }

    fn not_connected(&self, address: &Address, error: Error) -> Failure {
        let tried = match error {
            // An error of dialling says so itself.
            Error::Dial(_) => "",
            // Whoever refuses was connected to.
            Error::Refused(_) => "cannot attach",
            _ => "cannot connect",
        };
        let user = String::from_utf8_lossy(&self.options.user.0);
        let advice = match (&error, &address.aname) {
            (Error::Refused(_), None) => Some(format!(
                "it has no tree without a name for user {user}: ask for one by its name, ?aname=NAME behind the path; \
                 diod's names are the paths that it exports"
            )),
            (Error::Refused(_), Some(aname)) => Some(format!(
                "it has no tree '{}' for user {user}: give the name of one that it has, ?aname=NAME behind the path; \
                 diod's names are the paths that it exports",
                String::from_utf8_lossy(aname)
            )),
            (Error::Lost(Loss::Wordless), _) => Some("is it a 9P server?".to_owned()),
            (Error::Misbehaved(_), _) => Some("is it a 9P server? ninefold trace shows what it says".to_owned()),
            _ => None,
        };
        Failure { advice, ..Failure::new(&address.place, tried, error) }
    }

    /// How long the end of a command waits for a server of which nothing is heard: in haste when a person waits for it.
    pub async fn patience(&self, in_haste: bool) -> Duration {
        let clients = self.clients.lock().await;
        let trip = clients.values().flatten().map(Client::attach_took).max().unwrap_or_default();
        let patience = if in_haste { FAREWELL_IN_HASTE } else { FAREWELL };
        (patience + trip * FAREWELL_TRIPS).min(FAREWELL_MAX)
    }

    /// Waits for `done` until nothing has been heard of any server for `patience`, since `began` at the earliest; whether
    /// it is done.
    pub async fn while_heard(&self, began: Instant, patience: Duration, done: impl Future<Output = ()>) -> bool {
        tokio::pin!(done);
        let mut since = self.heard_at(began).await;
        loop {
            if tokio::time::timeout_at(since + patience, &mut done).await.is_ok() {
                return true;
            }
            let heard = self.heard_at(began).await;
            if heard <= since {
                return false;
            }
            since = heard;
        }
    }

    /// When the last server was last heard of, or `began`.
    pub async fn heard_at(&self, began: Instant) -> Instant {
        let clients = self.clients.lock().await;
        clients.values().flatten().map(Client::heard_at).fold(began, Instant::max)
    }

    /// Writes the statistics and ends the connections; waits for each server until nothing is heard of it for `patience`. `well`:
    /// nothing went wrong, and clunks that were held back are left to the end of the connection.
    pub async fn close(&self, patience: Duration, well: bool) -> anyhow::Result<()> {
        let clients = std::mem::take(&mut *self.clients.lock().await);
        let clients: HashMap<_, _> =
            clients.into_iter().filter_map(|(key, client)| Some((key, client.ok()?))).collect();
        let written = match &self.stats {
            Some(file) => write_stats(file, &clients, patience).await,
            None => Ok(()),
        };
        if !well {
            clients.values().for_each(Client::send_clunks);
        }
        // Whatever a farewell comes to, the work is done: a server that failed told so before.
        let farewells = clients.into_values().map(|client| client.leave(patience));
        let _ = futures_util::future::join_all(farewells).await;
        written
    }
}

async fn write_stats(file: &Path, clients: &HashMap<Key, Client>, patience: Duration) -> anyhow::Result<()> {
    let mut servers: Vec<_> = clients.iter().collect();
    servers.sort_by_key(|((place, ..), _)| place.to_string());
    let all: Vec<_> = servers
        .into_iter()
        .map(|((place, ..), client)| {
            let stats = client.stats();
            json!({
                "server": place.to_string(),
                "dialect": stats.dialect.as_str(),
                "msize": stats.msize,
                "messages": stats.messages,
                "bytes_sent": stats.bytes_sent,
                "bytes_received": stats.bytes_received,
                "round_trips": stats.round_trips,
            })
        })
        .collect();
    // One server is the rule: its figures stand at the top.
    let object = match <[_; 1]>::try_from(all) {
        Ok([one]) => one,
        Err(all) => json!({ "servers": all }),
    };
    let text = format!("{object}\n");
    if file == Path::new("-") {
        return std::io::stderr().lock().write_all(text.as_bytes()).context("standard error");
    }
    // A fifo has no reader until somebody reads it.
    let written = tokio::time::timeout(patience, tokio::fs::write(file, text)).await;
    let written = written.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    written.with_context(|| format!("{}: cannot write the statistics", file.display()))
}
