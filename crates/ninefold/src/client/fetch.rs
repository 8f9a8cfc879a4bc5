//! A small file of a directory, read in one round trip: walked to, opened, looked at, read, looked at again and clunked as one
//! group.

use bytes::Bytes;
use ninefold_proto::types::Name;
use ninefold_proto::{Errno, QidType};

use super::client::Client;
use super::error::Error;
use super::metadata::Metadata;
use super::node::{Mode, Node};

/// A file that was read.
#[derive(Debug)]
pub struct Fetched {
    /// As it was before and after it was read.
    pub metadata: Metadata,
    /// All that is in it.
    pub data: Bytes,
}

impl Node {
    /// All of the plain file that is called `name` in this directory, and is thought to have `size` bytes; not gone through is a
    /// symbolic link. `None`: that cannot be told so, as where it has more bytes than a message holds or than it was thought to
    /// have, is no plain file, was changed meanwhile, or the server has no groups. Then it is opened and read as any other. The requests are
    /// `client`'s, which is of the same connection; see [`Client::fork`].
    pub async fn fetch(&self, client: &Client, name: &[u8], size: u64) -> Result<Option<Fetched>, Error> {
        Name::new(name)?;
        // One byte more than there should be: a file that has grown is known by it.
        let Some(count) = size.checked_add(1).and_then(|count| u32::try_from(count).ok()) else { return Ok(None) };
        if !self.client.version().groups || u64::from(count) > u64::from(self.client.msize()) {
            return Ok(None);
        }
        let mut chain = client.chain();
        let (spot, walked) = chain.walk(self, &[name]).await?;
        let opened = chain.open(&spot, Mode::READ).await?;
        // Looked at behind the reading alone, old bytes would be taken for those of the time that a writer has just given it.
        let before = chain.stat(&spot).await?;
        let read = chain.read(&spot, 0, count).await?;
        let after = chain.stat(&spot).await?;
        chain.let_go(spot).await?;
        let walked = walked.take().await?;
        let kind = walked.last().ok_or(Errno::ENOENT)?.kind;
        if kind.has(QidType::DIR) || kind.has(QidType::SYMLINK) {
            return Ok(None);
        }
        opened.take().await?;
        let before = before.take().await?;
        let data = read.take().await?;
        let metadata = after.take().await?;
        let is_all = metadata.is_plain() && metadata.size == data.len() as u64 && metadata.is_of_same_file(&before);
        Ok(is_all.then_some(Fetched { metadata, data }))
    }
}
