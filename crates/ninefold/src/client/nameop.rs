//! Operations on a file by its path: where the server has groups each is one round trip, its walk included (S5, "The plan",
//! `nameop`); elsewhere the walk comes first.
//!
//! A [`Base`] is where names begin: the root of a client's tree, or a directory that was walked to, as one that is mounted in a
//! name space. [`Base::at_once`] sends the walk and what a [`NameOp`] issues behind it as one group. A walk in a group goes
//! through no symbolic link. One that ends at a link, or ends early, has done nothing, and the path is then
//! [resolved](super::resolve) step by step; [`Base::nameop`] is both.

mod op;

use bytes::{Bytes, BytesMut};
use ninefold_proto::attr::SetAttr;
use ninefold_proto::types::{MAXWELEM, Name};
use ninefold_proto::{Errno, Qid, QidType};

use super::chain::{Chain, Promise, Spot};
use super::client::Client;
use super::error::Error;
use super::file::File;
use super::metadata::Metadata;
use super::node::{Mode, Node, Start};
use super::resolve::{Follow, components, walk_names};

pub(crate) use op::{
    Access, Create, Look, Mkdir, NameOp, Open, Put, ReadLink, Remove, Rename, Set, Stat, Unlink, write_all,
};
pub use op::{BeginRead, Begun, Looked};

/// Where names are walked from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base<'a> {
    /// What is asked counts as caused by its replies.
    client: &'a Client,
    /// `None`: the root, which may not be attached to yet.
    node: Option<&'a Node>,
}

impl<'a> Base<'a> {
    /// The root of the client's tree; a chain from it may go behind the attach ([`Client::first`]).
    pub fn root(client: &'a Client) -> Base<'a> {
        Base { client, node: None }
    }

    /// A directory of the client's connection, or of a [fork](Client::fork) of it.
    pub fn at(node: &'a Node, client: &'a Client) -> Base<'a> {
        Base { client, node: Some(node) }
    }

    /// Where a walk that is waited for begins.
    pub async fn start(self) -> Result<Start<'a>, Error> {
        match self.node {
            None => self.client.start().await,
            Some(node) => Ok(node.start_with(self.client)),
        }
    }

    pub async fn qid(self) -> Result<Qid, Error> {
        match self.node {
            None => Ok(self.client.attached().await?.qid),
            Some(node) => Ok(node.qid()),
        }
    }

    async fn walk_in(self, chain: &mut Chain, names: &[Vec<u8>]) -> Result<(Spot, Promise<Vec<Qid>>), Error> {
        match self.node {
            None => chain.walk_root(&slices(names)).await,
            Some(node) => chain.walk(node, &slices(names)).await,
        }
    }

    /// Whether a walk of these names is to go with what follows it.
    fn goes_at_once(self, names: &[Vec<u8>]) -> bool {
        let fits = self.client.fitting(&slices(names)).len() == names.len();
        self.client.version().groups && names.len() <= MAXWELEM && fits
    }

    /// The walk and what is to be done behind it as one group. `None`: nothing was done; the server has no groups, the operation
    /// does not go into one, or the path leads through a link, or ends behind its first name. The outer error is that of the walk
    /// to the first name, or of the connection; the inner result that of the operation.
    pub async fn at_once<O: NameOp>(
        self,
        names: &[Vec<u8>],
        op: &O,
    ) -> Result<Option<Result<O::Output, Error>>, Error> {
        if !op.goes_in_group(self.client.version()) || !self.goes_at_once(names) {
            return Ok(None);
        }
        let mut chain = self.client.chain();
        let (spot, walked) = self.walk_in(&mut chain, names).await?;
        let promised = op.issue(&mut chain, spot).await?;
        let walked = walked.take().await?;
        if !arrived(&walked, names, op.follow()) {
            return Ok(None);
        }
        let qid = match walked.last() {
            Some(&qid) => qid,
            None => self.qid().await?,
        };
        Ok(Some(op.take(promised, qid).await))
    }

    /// Does it in a group, or step by step where that does not go; an absolute target of a link starts at the base.
    pub async fn nameop<O: NameOp>(self, names: Vec<Vec<u8>>, op: &O) -> Result<O::Output, Error> {
        if let Some(done) = self.at_once(&names, op).await? {
            return done;
        }
        op.step(walk_names(self, names, op.follow()).await?).await
    }

    /// Renames a file of one directory to another name in another, by one group. `None`: see [`Base::at_once`]; in .n1 only.
    pub async fn rename_at_once(
        self,
        (from, name): (&[Vec<u8>], &[u8]),
        other: Base<'_>,
        (to, new_name): (&[Vec<u8>], &[u8]),
        new: bool,
    ) -> Result<Option<()>, Error> {
        if !self.client.version().is_n1() || !self.goes_at_once(from) || !other.goes_at_once(to) {
            return Ok(None);
        }
        let mut chain = self.client.chain();
        let (from_spot, walked_from) = self.walk_in(&mut chain, from).await?;
        let (to_spot, walked_to) = other.walk_in(&mut chain, to).await?;
        let renamed = chain.rename_at((&from_spot, name), (&to_spot, new_name), new).await?;
        chain.let_go(from_spot).await?;
        chain.let_go(to_spot).await?;
        let came = arrived(&walked_from.take().await?, from, Follow::All)
            && arrived(&walked_to.take().await?, to, Follow::All);
        if came { renamed.take().await.map(Some) } else { Ok(None) }
    }
}

impl Client {
    /// What is known of the file at `path`; paths are those of [`Client::walk`].
    pub async fn metadata(&self, path: impl AsRef<[u8]>, follow: Follow) -> Result<Metadata, Error> {
        Base::root(self).nameop(components(path.as_ref())?, &Stat(follow)).await
    }

    /// The same, and the target where the file is a symbolic link.
    pub async fn look(&self, path: impl AsRef<[u8]>, follow: Follow) -> Result<Looked, Error> {
        Base::root(self).nameop(components(path.as_ref())?, &Look(follow)).await
    }

    /// Changes attributes of the file at `path`; see [`Node::set`].
    pub async fn set(&self, path: impl AsRef<[u8]>, change: &SetAttr, follow: Follow) -> Result<(), Error> {
        Base::root(self).nameop(components(path.as_ref())?, &Set { change, follow }).await
    }

    /// What the user may do with the file at `path`; see [`Node::access`].
    pub async fn access(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<u32, Error> {
        Base::root(self).nameop(components(path.as_ref())?, &Access(mode)).await
    }

    /// The target of the symbolic link at `path`; of anything else `EINVAL`.
    pub async fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        Base::root(self).nameop(components(path.as_ref())?, &ReadLink).await
    }

    /// Removes the name at `path`: of an empty directory when `dir`, else of anything but a directory; see
    /// [`Node::unlink`](super::Node::unlink). The root is `EBUSY`.
    pub async fn unlink(&self, path: impl AsRef<[u8]>, dir: bool) -> Result<(), Error> {
        let (above, name) = parted(path.as_ref())?;
        Base::root(self).nameop(above, &Unlink { name: &name, dir }).await
    }

    /// Removes the file, the symbolic link or the empty directory at `path`. The root is `EBUSY`.
    pub async fn remove(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let names = components(path.as_ref())?;
        if names.is_empty() {
            return Err(Errno::EBUSY.into());
        }
        Base::root(self).nameop(names, &Remove).await
    }

    /// Opens the file at `path`; see [`Node::open`].
    pub async fn open(&self, path: impl AsRef<[u8]>, mode: Mode) -> Result<File, Error> {
        Base::root(self).nameop(components(path.as_ref())?, &Open(mode)).await
    }

    /// Makes a plain file at `path`, where there is nothing, and opens it; see [`Node::create`].
    pub async fn create(&self, path: impl AsRef<[u8]>, mode: Mode, perm: u32) -> Result<File, Error> {
        let mut dir = components(path.as_ref())?;
        let name = dir.pop().ok_or(Errno::EEXIST)?;
        Base::root(self).nameop(dir, &Create { name: &name, mode, perm }).await
    }

    /// Makes a directory at `path`, where there is nothing. `perm`: see [`Node::mkdir`](super::Node::mkdir).
    pub async fn mkdir(&self, path: impl AsRef<[u8]>, perm: u32) -> Result<(), Error> {
        let mut dir = components(path.as_ref())?;
        let name = dir.pop().ok_or(Errno::EEXIST)?;
        Base::root(self).nameop(dir, &Mkdir { name: &name, perm }).await
    }

    /// Gives the file at `path` another name in its directory; see [`Node::rename`](super::Node::rename). The root is `EBUSY`.
    pub async fn rename(&self, path: impl AsRef<[u8]>, new_name: &[u8]) -> Result<(), Error> {
        let mut names = components(path.as_ref())?;
        Name::new(new_name)?;
        let name = names.last().cloned().ok_or(Errno::EBUSY)?;
        let op = Rename { name: &name, new_name };
        if let Some(done) = Base::root(self).at_once(&names, &op.of_itself()).await? {
            return done;
        }
        names.pop();
        Base::root(self).nameop(names, &op).await
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
        let root = Base::root(self);
        if let Some(done) = root.rename_at_once((&from, &name), root, (&to, &new_name), new).await? {
            return Ok(done);
        }
        let (from, to) = (walk_names(root, from, Follow::All).await?, walk_names(root, to, Follow::All).await?);
        if new { from.rename_new(&name, &to, &new_name).await } else { from.rename(&name, &to, &new_name).await }
    }

    /// All that is in the file at `path`, which is no more than `most` bytes: else `EFBIG`. For small files; large ones are for
    /// [`File::reader`]. A directory is `EISDIR`.
    pub async fn read(&self, path: impl AsRef<[u8]>, most: usize) -> Result<Bytes, Error> {
        self.begin_read(path, beginning_of(most)).await?.all(most).await
    }

    /// Opens the file at `path` to be read, and reads at most `count` bytes of its beginning, and at most what one message
    /// holds. A directory is `EISDIR`.
    pub async fn begin_read(&self, path: impl AsRef<[u8]>, count: u32) -> Result<Begun, Error> {
        self.begin_read_as(path, BeginRead { count, ..BeginRead::default() }).await
    }

    /// The same as `how` says.
    pub async fn begin_read_as(&self, path: impl AsRef<[u8]>, how: BeginRead) -> Result<Begun, Error> {
        Base::root(self).nameop(components(path.as_ref())?, &how).await
    }
}

/// How much to ask for of a file that is to be read whole, if it has no more than `most` bytes: one more, which tells.
pub(crate) fn beginning_of(most: usize) -> u32 {
    u32::try_from(most.saturating_add(1)).unwrap_or(u32::MAX)
}

impl Begun {
    /// All that is in the file, which is no more than `most` bytes: else `EFBIG`.
    pub async fn all(self, most: usize) -> Result<Bytes, Error> {
        let Begun { file, data, metadata } = self;
        let size = metadata.and_then(|metadata| metadata.is_plain().then_some(metadata.size));
        let data = match data {
            Some(data) => data,
            None if size.is_some_and(|size| size > most as u64) => return Err(Errno::EFBIG.into()),
            None => file.read_at(0, file.read_max()).await?,
        };
        let whole = !data.is_empty() && size == Some(data.len() as u64);
        if whole && data.len() <= most {
            return Ok(data);
        }
        rest(&file, data, most).await
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
