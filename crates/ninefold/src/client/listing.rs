//! What a directory holds, with the attributes of each entry.
//!
//! 9P2000 and .u list them; .L does not, so each entry is walked to and asked for, many at a time.

use std::pin::Pin;

use futures_util::stream::{FuturesOrdered, StreamExt};

use super::client::Client;
use super::error::Error;
use super::metadata::Metadata;
use super::node::Node;
use super::read_dir::{Entry, ReadDir};

/// Entries that are asked for at a time. A server that takes 20 µs for each is busy for over 1 ms; over a long path 10,000
/// entries take 314 round trips in place of 20,000.
const ASKED: usize = 64;

type Asked<'d> = Pin<Box<dyn Future<Output = (Entry, Result<Metadata, Error>, Client)> + Send + 'd>>;

/// An entry and its attributes, or why there are none.
pub type Listed = (Entry, Result<Metadata, Error>);

/// A directory being read, in the server's order, `.` and `..` left out.
pub struct Listing<'d> {
    dir: &'d Node,
    read: ReadDir,
    asked: FuturesOrdered<Asked<'d>>,
}

impl Node {
    /// Reads the directory with the attributes of each entry; those of a symbolic link are its own.
    pub async fn list(&self) -> Result<Listing<'_>, Error> {
        Ok(Listing::of(self, self.read_dir_with_metadata().await?))
    }
}

impl<'d> Listing<'d> {
    /// Of what is read of `dir`, which is where entries are walked to.
    pub(crate) fn of(dir: &'d Node, read: ReadDir) -> Listing<'d> {
        Listing { dir, read, asked: FuturesOrdered::new() }
    }

    /// The next entry; its attributes are ENOENT when it was removed since it was listed. `None` at the end. An error in
    /// place of it concerns the directory, or the connection.
    pub async fn next(&mut self) -> Result<Option<Listed>, Error> {
        loop {
            while self.asked.len() < ASKED
                && let Some(entry) = self.read.next_read()
            {
                self.ask(entry);
            }
            if !self.asked.is_empty() {
                break;
            }
            match self.read.next().await? {
                Some(entry) => self.ask(entry),
                None => return Ok(None),
            }
        }
        let Some((entry, metadata, client)) = self.asked.next().await else { return Ok(None) };
        self.dir.client().join(&client);
        match metadata {
            Err(error) if error.is_fatal() => Err(error),
            metadata => Ok(Some((entry, metadata))),
        }
    }

    fn ask(&mut self, mut entry: Entry) {
        let dir = self.dir;
        // Side by side: no entry waits for another.
        let client = dir.client().fork();
        self.asked.push_back(Box::pin(async move {
            let metadata = match entry.metadata.take() {
                Some(metadata) => Ok(*metadata),
                None => ask(dir, &entry.name, &client).await,
            };
            (entry, metadata, client)
        }));
    }
}

async fn ask(dir: &Node, name: &[u8], client: &Client) -> Result<Metadata, Error> {
    dir.start_with(client).walk(&[name]).await?.metadata().await
}
