//! What a path leads to and, where that is a directory, what is in it: one round trip where the server speaks `.n1` and one message
//! holds the entries.
//!
//! The group is a walk, Tgetattr, Tlopen and Treaddirplus; of anything but a directory the open is refused, whatever it would do,
//! and nothing is lost. The fid is kept open: it is read on, and what is in the directory is walked to and removed from it.
//! Elsewhere, and where the path goes through a symbolic link, the steps are taken one after another, with the same results.

use std::sync::Arc;

use ninefold_proto::dialect::Version;
use ninefold_proto::{Errno, Qid, QidType};

use super::chain::{Chain, Opened, Promise, Spot};
use super::client::Client;
use super::connection::Reply;
use super::error::{Error, Suspicion};
use super::metadata::{FileType, Metadata};
use super::nameop::{Base, Looked, NameOp};
use super::node::Node;
use super::read_dir::ReadDir;
use super::resolve::{Follow, components, walk_names};

/// Bytes of entries that the first message of a directory is asked for, where many directories are on the way at a time: 1,500 of
/// them with attributes.
const PIECE: u32 = 256 << 10;

/// What is to be known of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sight {
    /// Of each entry, where the dialect lists them.
    pub attributes: bool,
    /// As many entries as one message holds, and not as many as one of many directories that are looked into at a time may take.
    pub alone: bool,
}

/// A file that was come to. Its fid is clunked when this and what came of it is dropped.
#[derive(Debug)]
pub struct Visited {
    /// Where it is a directory that is listed by `.n1`, its fid is open.
    pub node: Arc<Node>,
    /// What is known of it, where that came with the rest: by `.n1`, of a path.
    pub looked: Option<Looked>,
    /// What is in it; of what is no directory `ENOTDIR`.
    pub entries: Result<ReadDir, Error>,
}

impl Client {
    /// Goes to the file at `path`, and lists it where it is a directory.
    pub async fn visit(&self, path: impl AsRef<[u8]>, follow: Follow, sight: Sight) -> Result<Visited, Error> {
        let names = components(path.as_ref())?;
        let slices: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        if self.visits_at_once(&slices) {
            let mut chain = self.chain();
            let (spot, walked) = chain.walk_root(&slices).await?;
            let asked = Asked::ask(&mut chain, &spot, sight, true).await?;
            let walked = walked.take().await?;
            if arrived(&walked, names.len(), follow) {
                let qid = match walked.last() {
                    Some(&qid) => qid,
                    None => self.attached().await?.qid,
                };
                return asked.take(spot, qid).await;
            }
        }
        Ok(step_in(walk_names(Base::root(self), names, follow).await?, sight).await)
    }

    /// Goes to the name that `path` ends in, be it a symbolic link's, and lists it where it is a directory; beside it the directory
    /// that has the name, and the name. The root has none: `EBUSY`. An error of the file itself is in the visit's place.
    pub async fn visit_name(&self, path: impl AsRef<[u8]>, sight: Sight) -> Result<Named, Error> {
        let mut names = components(path.as_ref())?;
        let name = names.pop().ok_or(Errno::EBUSY)?;
        let slices: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        if self.visits_at_once(&slices) {
            let mut chain = self.chain();
            let (above, walked_above) = chain.walk_root(&slices).await?;
            let (spot, walked) = chain.walk_spot(&above, &[&name]).await?;
            let asked = Asked::ask(&mut chain, &spot, sight, false).await?;
            let walked_above = walked_above.take().await?;
            if arrived(&walked_above, names.len(), Follow::All) {
                let qid = match walked_above.last() {
                    Some(&qid) => qid,
                    None => self.attached().await?.qid,
                };
                let visited = match walked.take().await {
                    Ok(walked) => asked.take(spot, *walked.last().ok_or(Errno::ENOENT)?).await,
                    Err(e) => Err(e),
                };
                return Ok(Named { dir: Arc::new(above.into_node(qid)?), name, visited });
            }
        }
        let dir = walk_names(Base::root(self), names, Follow::All).await?;
        let visited = match dir.walk(&[&name]).await {
            Ok(node) => Ok(step_in(node, sight).await),
            Err(e) => Err(e),
        };
        Ok(Named { dir: Arc::new(dir), name, visited })
    }

    /// Whether a walk of these names is to go with what follows it.
    fn visits_at_once(&self, names: &[&[u8]]) -> bool {
        self.version().is_n1() && self.fitting(names).len() == names.len()
    }
}

/// A name in a directory, and what has it.
#[derive(Debug)]
pub struct Named {
    pub dir: Arc<Node>,
    pub name: Vec<u8>,
    pub visited: Result<Visited, Error>,
}

impl Node {
    /// Goes to what is called `name` in this directory, through no symbolic link, and lists it where it is a directory, by requests
    /// that count as caused by `client`'s replies, as do those of what is given; see [`Client::fork`].
    pub async fn visit_as(&self, client: &Client, name: &[u8], sight: Sight) -> Result<Visited, Error> {
        if !client.version().is_n1() {
            return Ok(step_in(self.walk_as(client, &[name]).await?, sight).await);
        }
        let mut chain = client.chain();
        let (spot, walked) = chain.walk(self, &[name]).await?;
        let asked = Asked::ask(&mut chain, &spot, sight, false).await?;
        let walked = walked.take().await?;
        asked.take(spot, *walked.last().ok_or(Errno::ENOENT)?).await
    }

    /// Lists this directory, which was walked to before, in the same way.
    pub async fn list_as(self, client: &Client, sight: Sight) -> Result<Visited, Error> {
        if !client.version().is_n1() {
            return Ok(step_in(self.with_client(client), sight).await);
        }
        let mut chain = client.chain();
        let (spot, walked) = chain.walk(&self, &[]).await?;
        let asked = Asked::ask(&mut chain, &spot, sight, false).await?;
        walked.take().await?;
        asked.take(spot, self.qid()).await
    }

    /// What is known of `name` in this directory, without a name of the directory; of a symbolic link where it leads, too. One round
    /// trip with groups, by requests that count as caused by `client`'s replies.
    pub async fn look_as(&self, client: &Client, name: Option<&[u8]>) -> Result<Looked, Error> {
        let names: Vec<&[u8]> = name.into_iter().collect();
        if !client.version().is_n1() {
            return look(&self.walk_as(client, &names).await?).await;
        }
        let mut chain = client.chain();
        let (spot, walked) = chain.walk(self, &names).await?;
        let looks = Looks::ask(&mut chain, &spot).await?;
        chain.let_go(spot).await?;
        walked.take().await?;
        looks.take().await
    }
}

/// A directory listed; of what is no directory the entries are `ENOTDIR`.
pub(crate) struct ListDir(pub Sight);

impl NameOp for ListDir {
    type Promised = (Spot, Asked);
    type Output = Visited;

    fn follow(&self) -> Follow {
        Follow::All
    }

    fn goes_in_group(&self, version: Version) -> bool {
        version.is_n1()
    }

    fn changes(&self) -> bool {
        false
    }

    fn is_acted_on(&self) -> bool {
        true
    }

    async fn issue(&self, chain: &mut Chain, spot: Spot) -> Result<Self::Promised, Error> {
        let asked = Asked::ask(chain, &spot, self.0, false).await?;
        Ok((spot, asked))
    }

    async fn take(&self, (spot, asked): Self::Promised, qid: Qid) -> Result<Visited, Error> {
        asked.take(spot, qid).await
    }

    async fn step(&self, node: Node) -> Result<Visited, Error> {
        Ok(step_in(node, self.0).await)
    }
}

/// Requests for what is known of a file.
struct Looks {
    metadata: Promise<Metadata>,
    target: Promise<Vec<u8>>,
}

impl Looks {
    async fn ask(chain: &mut Chain, spot: &Spot) -> Result<Looks, Error> {
        let metadata = chain.stat(spot).await?;
        // Of anything but a link it is refused, and nothing is lost.
        Ok(Looks { metadata, target: chain.read_link(spot).await? })
    }

    async fn take(self) -> Result<Looked, Error> {
        let metadata = self.metadata.take().await?;
        let target = if metadata.kind == FileType::Symlink { Some(self.target.take().await) } else { None };
        Ok(Looked { metadata, target })
    }
}

/// The rest of a group that begins with a walk.
pub(crate) struct Asked {
    sight: Sight,
    looks: Option<Looks>,
    opened: Promise<Opened>,
    listed: Promise<Reply>,
}

impl Asked {
    async fn ask(chain: &mut Chain, spot: &Spot, sight: Sight, looks: bool) -> Result<Asked, Error> {
        let looks = if looks { Some(Looks::ask(chain, spot).await?) } else { None };
        let opened = chain.open_dir(spot).await?;
        let listed = chain.read_dir_plus(spot, sight.count(), sight.attributes).await?;
        Ok(Asked { sight, looks, opened, listed })
    }

    /// `qid` is that of the file, which the walk came to.
    async fn take(self, spot: Spot, qid: Qid) -> Result<Visited, Error> {
        let Asked { sight, looks, opened, listed } = self;
        let looked = match looks {
            Some(looks) => Some(looks.take().await?),
            None => None,
        };
        let opened = opened.take().await;
        let listed = listed.take().await;
        let node = Arc::new(spot.into_node(qid)?);
        let entries = match (opened, listed) {
            _ if !qid.is_dir() => Err(Errno::ENOTDIR.into()),
            (Ok(opened), _) if !opened.qid.is_dir() => Err(Suspicion::Type.into()),
            (Ok(_), listed) => ReadDir::begun(node.clone(), sight.attributes, listed),
            (Err(e), _) => Err(e),
        };
        match entries {
            Err(e) if e.is_fatal() => Err(e),
            entries => Ok(Visited { node, looked, entries }),
        }
    }
}

impl Sight {
    fn count(self) -> u32 {
        if self.alone { u32::MAX } else { PIECE }
    }
}

/// Lists a file, if it is a directory, on a fid of its own.
async fn step_in(node: Node, sight: Sight) -> Visited {
    let entries = match sight.attributes {
        true => node.read_dir_with_metadata().await,
        false => node.read_dir().await,
    };
    Visited { node: Arc::new(node), looked: None, entries }
}

async fn look(node: &Node) -> Result<Looked, Error> {
    let metadata = node.metadata().await?;
    let target = match (metadata.kind, &metadata.link_target) {
        (FileType::Symlink, Some(target)) => Some(Ok(target.clone())),
        (FileType::Symlink, None) => Some(node.read_link().await),
        _ => None,
    };
    Ok(Looked { metadata, target })
}

/// Whether a walk came to where the path leads.
fn arrived(walked: &[Qid], names: usize, follow: Follow) -> bool {
    let at_link = walked.last().is_some_and(|qid| qid.kind.has(QidType::SYMLINK));
    walked.len() == names && !(at_link && follow == Follow::All)
}
