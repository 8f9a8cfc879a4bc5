//! The servers that one command uses: one connection to each, whatever the number of files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ninefold::client::{Client, Error, Options};
use ninefold::proto::Dialect;
use ninefold::transport::{Address, Place};
use serde_json::json;
use tokio::sync::Mutex;

use crate::report::Failure;

/// How long the end of a command waits for its last clunks.
const FAREWELL: Duration = Duration::from_secs(2);

/// The same after Ctrl-C, when a person waits.
const FAREWELL_IN_HASTE: Duration = Duration::from_millis(80);

/// How long the end of a command may take to tidy up: in haste when a person waits for it.
pub fn patience(in_haste: bool) -> Duration {
    if in_haste { FAREWELL_IN_HASTE } else { FAREWELL }
}

/// Where a connection leads: whatever else an address has is a file's path.
type Key = (Place, Option<Vec<u8>>, Option<Dialect>);

/// Connections by server.
#[derive(Debug)]
pub struct Servers {
    options: Options,
    stats: Option<PathBuf>,
    clients: Mutex<HashMap<Key, Client>>,
}

impl Servers {
    /// `timeout` of 0 waits for ever.
    pub fn new(timeout: Duration, stats: Option<PathBuf>) -> Servers {
        let options = Options { timeout: Some(timeout).filter(|t| !t.is_zero()), ..Options::default() };
        Servers { options, stats, clients: Mutex::default() }
    }

    /// The client of the server at `address`, connected at its first use.
    pub async fn client(&self, address: &Address) -> Result<Client, Failure> {
        let key = (address.place.clone(), address.aname.clone(), address.dialect);
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = Client::connect(address, self.options.clone());
        let client = client.await.map_err(|e| {
            // An error of dialling says so itself.
            let tried = if matches!(e, Error::Dial(_)) { "" } else { "cannot connect" };
            Failure::new(&address.place, tried, e)
        })?;
        clients.insert(key, client.clone());
        Ok(client)
    }

    /// Writes the statistics and ends the connections, each within `patience`.
    pub async fn close(&self, patience: Duration) -> anyhow::Result<()> {
        let clients = std::mem::take(&mut *self.clients.lock().await);
        let written = self.stats.as_deref().map_or(Ok(()), |file| write_stats(file, &clients));
        // Whatever a farewell comes to, the work is done: a server that failed told so before.
        let farewells = clients.into_values().map(|client| client.close(patience));
        let _ = futures_util::future::join_all(farewells).await;
        written
    }
}

fn write_stats(file: &Path, clients: &HashMap<Key, Client>) -> anyhow::Result<()> {
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
        eprint!("{text}");
        return Ok(());
    }
    std::fs::write(file, text).with_context(|| format!("{}: cannot write the statistics", file.display()))
}
