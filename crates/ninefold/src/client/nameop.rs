//! Operations on a file by its path: where the server has groups each is one round trip, its walk included (S5, "The plan",
//! `nameop`); elsewhere the walk comes first.
//!
//! A walk in a group goes through no symbolic link. One that ends at a link, or ends early, has done nothing, and the path is
//! then [resolved](super::resolve) step by step.

use bytes::{Bytes, BytesMut};
use ninefold_proto::types::{MAXWELEM, Name};
use ninefold_proto::{Errno, Qid, QidType};

use super::client::Client;
use super::error::Error;
use super::file::File;
use super::metadata::Metadata;
use super::node::Mode;
use super::resolve::{Follow, components, walk_names};

impl Client {
    /// What is known of the file at `path`; paths are those of [`Client::walk`].
    pub async fn metadata(&self, path: impl AsRef<[u8]>, follow: Follow) -> Result<Metadata, Error> {
        let names = components(path.as_ref())?;
        if self.goes_at_once(&names) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&names)).await?;
            let metadata = chain.stat(&spot).await?;
            chain.let_go(spot).await?;
            if arrived(&walked.take().await?, &names, follow) {
                return metadata.take().await;
            }
        }
        walk_names(self, names, follow).await?.metadata().await
    }

    /// Removes the file, the symbolic link or the empty directory at `path`. The root is `EBUSY`.
    pub async fn remove(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let names = components(path.as_ref())?;
        if names.is_empty() {
            return Err(Errno::EBUSY.into());
        }
        if self.goes_at_once(&names) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&names)).await?;
            let removed = chain.remove(spot).await?;
            if arrived(&walked.take().await?, &names, Follow::NotLast) {
                return removed.take().await;
            }
        }
        walk_names(self, names, Follow::NotLast).await?.remove().await
    }

    /// Makes a directory at `path`, where there is nothing. `perm`: see [`Node::mkdir`](super::Node::mkdir).
    pub async fn mkdir(&self, path: impl AsRef<[u8]>, perm: u32) -> Result<(), Error> {
        let mut dir = components(path.as_ref())?;
        let name = dir.pop().ok_or(Errno::EEXIST)?;
        if self.goes_at_once(&dir) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&dir)).await?;
            let made = chain.mkdir(&spot, &name, perm).await?;
            chain.let_go(spot).await?;
            if arrived(&walked.take().await?, &dir, Follow::All) {
                return made.take().await;
            }
        }
        walk_names(self, dir, Follow::All).await?.mkdir(&name, perm).await
    }

    /// Gives the file at `path` another name in its directory; see [`Node::rename`](super::Node::rename). The root is `EBUSY`.
    pub async fn rename(&self, path: impl AsRef<[u8]>, new_name: &[u8]) -> Result<(), Error> {
        let mut names = components(path.as_ref())?;
        Name::new(new_name)?;
        if names.is_empty() {
            return Err(Errno::EBUSY.into());
        }
        if self.goes_at_once(&names) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&names)).await?;
            let renamed = chain.rename_here(&spot, new_name).await?;
            chain.let_go(spot).await?;
            if arrived(&walked.take().await?, &names, Follow::NotLast) {
                return renamed.take().await;
            }
        }
        let name = names.pop().ok_or(Errno::EBUSY)?;
        let dir = walk_names(self, names, Follow::All).await?;
        dir.rename(&name, &dir, new_name).await
    }

    /// All that is in the file at `path`, which is no more than `most` bytes: else `EFBIG`. For small files; large ones are for
    /// [`File::reader`]. A directory is `EISDIR`.
    pub async fn read(&self, path: impl AsRef<[u8]>, most: usize) -> Result<Bytes, Error> {
        let names = components(path.as_ref())?;
        if self.goes_at_once(&names) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&names)).await?;
            let opened = chain.open(&spot, Mode::READ).await?;
            let read = chain.read(&spot, 0, u32::try_from(most.saturating_add(1)).unwrap_or(u32::MAX)).await?;
            let metadata = chain.stat(&spot).await?;
            let walked = walked.take().await?;
            if arrived(&walked, &names, Follow::All) {
                // Before the open, which may be refused to a directory in other words.
                if walked.last().unwrap_or(&self.root.qid).is_dir() {
                    return Err(Errno::EISDIR.into());
                }
                let opened = opened.take().await?;
                let data = read.take().await?;
                // It spares reading on, and no more: what may be read is read where it is refused.
                let size = match metadata.take().await {
                    Ok(metadata) => metadata.is_plain().then_some(metadata.size),
                    Err(Error::Refused(_)) => None,
                    Err(e) => return Err(e),
                };
                let whole = !data.is_empty() && size == Some(data.len() as u64);
                if whole && data.len() <= most {
                    return Ok(data);
                }
                return rest(&spot.into_file(opened, Mode::READ)?, data, most).await;
            }
        }
        let node = walk_names(self, names, Follow::All).await?;
        if node.qid().is_dir() {
            return Err(Errno::EISDIR.into());
        }
        rest(&node.open(Mode::READ).await?, Bytes::new(), most).await
    }

    /// Whether a walk of these names is to go with what follows it.
    fn goes_at_once(&self, names: &[Vec<u8>]) -> bool {
        let fits = self.start().fitting(&slices(names)).len() == names.len();
        self.version().groups && names.len() <= MAXWELEM && fits
    }
}

fn slices(names: &[Vec<u8>]) -> Vec<&[u8]> {
    names.iter().map(Vec::as_slice).collect()
}

/// Whether a walk came to where the path leads.
fn arrived(walked: &[Qid], names: &[Vec<u8>], follow: Follow) -> bool {
    let at_link = walked.last().is_some_and(|qid| qid.kind.has(QidType::SYMLINK));
    walked.len() == names.len() && !(at_link && follow == Follow::All)
}

/// What is in a file, of which `begun` is known.
async fn rest(file: &File, begun: Bytes, most: usize) -> Result<Bytes, Error> {
    let mut all = BytesMut::from(begun);
    while all.len() <= most {
        let more = file.read_at(all.len() as u64, file.read_max()).await?;
        if more.is_empty() {
            return Ok(all.freeze());
        }
        all.extend_from_slice(&more);
    }
    Err(Errno::EFBIG.into())
}
