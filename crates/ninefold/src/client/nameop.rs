//! Operations on a file by its path: where the server has groups each is one round trip, its walk included (S5, "The plan",
//! `nameop`); elsewhere the walk comes first.
//!
//! A walk in a group goes through no symbolic link. One that ends at a link, or ends early, has done nothing, and the path is
//! then [resolved](super::resolve) step by step.

use bytes::{Bytes, BytesMut};
use futures_util::future::join;
use ninefold_proto::types::{MAXWELEM, Name};
use ninefold_proto::{Errno, Qid, QidType};

use super::client::Client;
use super::error::Error;
use super::file::File;
use super::metadata::{FileType, Metadata};
use super::node::{Mode, metadata};
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

    /// The same, and the target where the file is a symbolic link.
    pub async fn look(&self, path: impl AsRef<[u8]>, follow: Follow) -> Result<Looked, Error> {
        let names = components(path.as_ref())?;
        if self.version().is_n1() && self.goes_at_once(&names) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&names)).await?;
            let metadata = chain.stat(&spot).await?;
            // Of anything else it is refused, and nothing is lost.
            let target = chain.read_link(&spot).await?;
            chain.let_go(spot).await?;
            if arrived(&walked.take().await?, &names, follow) {
                let metadata = metadata.take().await?;
                let target = if metadata.kind == FileType::Symlink { Some(target.take().await) } else { None };
                return Ok(Looked { metadata, target });
            }
        }
        let node = walk_names(self, names, follow).await?;
        let metadata = node.metadata().await?;
        let target = match (metadata.kind, &metadata.link_target) {
            (FileType::Symlink, Some(target)) => Some(Ok(target.clone())),
            (FileType::Symlink, None) => Some(node.read_link().await),
            _ => None,
        };
        Ok(Looked { metadata, target })
    }

    /// The target of the symbolic link at `path`; of anything else `EINVAL`.
    pub async fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        let names = components(path.as_ref())?;
        if self.version().is_n1() && self.goes_at_once(&names) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&names)).await?;
            let target = chain.read_link(&spot).await?;
            chain.let_go(spot).await?;
            if arrived(&walked.take().await?, &names, Follow::NotLast) {
                return target.take().await;
            }
        }
        walk_names(self, names, Follow::NotLast).await?.read_link().await
    }

    /// Removes the name at `path`: of an empty directory when `dir`, else of anything but a directory; see
    /// [`Node::unlink`](super::Node::unlink). The root is `EBUSY`.
    pub async fn unlink(&self, path: impl AsRef<[u8]>, dir: bool) -> Result<(), Error> {
        let (above, name) = parted(path.as_ref())?;
        if self.version().is_n1() && self.goes_at_once(&above) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&above)).await?;
            let removed = chain.unlink(&spot, &name, dir).await?;
            chain.let_go(spot).await?;
            if arrived(&walked.take().await?, &above, Follow::All) {
                return removed.take().await;
            }
        }
        walk_names(self, above, Follow::All).await?.unlink(&name, dir).await
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
        if self.version().is_ix() && self.goes_at_once(&names) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&names)).await?;
            let renamed = chain.rename_here(&spot, new_name).await?;
            chain.let_go(spot).await?;
            if arrived(&walked.take().await?, &names, Follow::NotLast) {
                return renamed.take().await;
            }
        }
        let name = names.pop().ok_or(Errno::EBUSY)?;
        if self.version().is_n1() && self.goes_at_once(&names) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&names)).await?;
            let renamed = chain.rename_at((&spot, &name), (&spot, new_name), false).await?;
            chain.let_go(spot).await?;
            if arrived(&walked.take().await?, &names, Follow::All) {
                return renamed.take().await;
            }
        }
        let dir = walk_names(self, names, Follow::All).await?;
        dir.rename(&name, &dir, new_name).await
    }

    /// Gives the file at `path` the name `new_path`, in whatever directory of the tree; see
    /// [`Node::rename`](super::Node::rename). The root is `EBUSY`.
    pub async fn rename_to(&self, path: impl AsRef<[u8]>, new_path: impl AsRef<[u8]>) -> Result<(), Error> {
        self.rename_across(path.as_ref(), new_path.as_ref(), false).await
    }

    /// The same where there is nothing at `new_path`, else `EEXIST`; .n1 only.
    pub async fn rename_new(&self, path: impl AsRef<[u8]>, new_path: impl AsRef<[u8]>) -> Result<(), Error> {
        self.rename_across(path.as_ref(), new_path.as_ref(), true).await
    }

    async fn rename_across(&self, path: &[u8], new_path: &[u8], new: bool) -> Result<(), Error> {
        let ((from, name), (to, new_name)) = (parted(path)?, parted(new_path)?);
        if new && !self.version().is_n1() {
            return Err(Error::Unsupported {
                what: "rename a file without replacing another",
                dialect: self.dialect(),
            });
        }
        if self.version().is_n1() && self.goes_at_once(&from) && self.goes_at_once(&to) {
            let mut chain = self.chain();
            let (from_spot, walked_from) = chain.walk_root(&slices(&from)).await?;
            let (to_spot, walked_to) = chain.walk_root(&slices(&to)).await?;
            let renamed = chain.rename_at((&from_spot, &name), (&to_spot, &new_name), new).await?;
            chain.let_go(from_spot).await?;
            chain.let_go(to_spot).await?;
            let came = arrived(&walked_from.take().await?, &from, Follow::All)
                && arrived(&walked_to.take().await?, &to, Follow::All);
            if came {
                return renamed.take().await;
            }
        }
        let (from, to) = (walk_names(self, from, Follow::All).await?, walk_names(self, to, Follow::All).await?);
        if new { from.rename_new(&name, &to, &new_name).await } else { from.rename(&name, &to, &new_name).await }
    }

    /// All that is in the file at `path`, which is no more than `most` bytes: else `EFBIG`. For small files; large ones are for
    /// [`File::reader`]. A directory is `EISDIR`.
    pub async fn read(&self, path: impl AsRef<[u8]>, most: usize) -> Result<Bytes, Error> {
        let count = u32::try_from(most.saturating_add(1)).unwrap_or(u32::MAX);
        let Begun { file, data, metadata } = self.begin_read(path, count).await?;
        let size = metadata.and_then(|metadata| metadata.is_plain().then_some(metadata.size));
        let whole = !data.is_empty() && size == Some(data.len() as u64);
        if whole && data.len() <= most {
            return Ok(data);
        }
        rest(&file, data, most).await
    }

    /// Opens the file at `path` to be read, and reads at most `count` bytes of its beginning, and at most what one message
    /// holds. A directory is `EISDIR`.
    pub async fn begin_read(&self, path: impl AsRef<[u8]>, count: u32) -> Result<Begun, Error> {
        let names = components(path.as_ref())?;
        if self.goes_at_once(&names) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices(&names)).await?;
            let opened = chain.open(&spot, Mode::READ).await?;
            let read = chain.read(&spot, 0, count).await?;
            let metadata = chain.stat(&spot).await?;
            let walked = walked.take().await?;
            if arrived(&walked, &names, Follow::All) {
                let root = self.attached().await?.qid;
                // Before the open, which may be refused to a directory in other words.
                if walked.last().unwrap_or(&root).is_dir() {
                    return Err(Errno::EISDIR.into());
                }
                let opened = opened.take().await?;
                let data = read.take().await?;
                let metadata = told(metadata.take().await)?;
                return Ok(Begun { file: spot.into_file(opened, Mode::READ)?, data, metadata });
            }
        }
        let node = walk_names(self, names, Follow::All).await?;
        if node.qid().is_dir() {
            return Err(Errno::EISDIR.into());
        }
        let file = node.open(Mode::READ).await?;
        // Together: a small file then takes no round trip more, and a large one is known for what it is.
        let beside = self.fork();
        let (data, metadata) = join(file.read_at(0, count), metadata(&beside, file.fid.fid())).await;
        self.join(&beside);
        Ok(Begun { file, data: data?, metadata: told(metadata)? })
    }

    /// Whether a walk of these names is to go with what follows it.
    fn goes_at_once(&self, names: &[Vec<u8>]) -> bool {
        let fits = self.fitting(&slices(names)).len() == names.len();
        self.version().groups && names.len() <= MAXWELEM && fits
    }
}

/// What is known of a file, and where it leads.
#[derive(Debug)]
pub struct Looked {
    pub metadata: Metadata,
    /// Of a symbolic link only.
    pub target: Option<Result<Vec<u8>, Error>>,
}

/// A file that is being read.
#[derive(Debug)]
pub struct Begun {
    pub file: File,
    /// Its beginning; nothing at its end only.
    pub data: Bytes,
    /// `None` where the server refused it, or what it says of the file is not to be believed.
    pub metadata: Option<Metadata>,
}

/// It spares reading on, and no more: what may be read is read where it is refused, or is nonsense.
fn told(metadata: Result<Metadata, Error>) -> Result<Option<Metadata>, Error> {
    match metadata {
        Ok(metadata) => Ok(Some(metadata)),
        Err(Error::Refused(_) | Error::Suspect(_)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The names above the last one, and that; the root has none.
fn parted(path: &[u8]) -> Result<(Vec<Vec<u8>>, Vec<u8>), Error> {
    let mut names = components(path)?;
    let name = names.pop().ok_or(Errno::EBUSY)?;
    Ok((names, name))
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
