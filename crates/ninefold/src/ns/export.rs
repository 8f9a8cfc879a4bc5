//! A name space as a file server: [`NsFs`] gives the composed tree to whoever attaches.
//!
//! What a request asks is passed on to the server that has the file, and its errors come back as they were. The servers see the user that
//! the name space attached as, whoever asks. A walk goes through no symbolic link: that is for the client. Names of the table alone are directories
//! that nobody can change; a union is listed merged, each name once. Numbers of files are mapped, so that two servers' never
//! share one.

mod attr;
mod conduit;
mod dir;
mod file;
mod maker;
mod qids;
mod room;
mod wait;

use std::sync::{Arc, Mutex, PoisonError};

use ninefold_proto::types::WalkElem;
use ninefold_proto::{Errno, Qid};

use self::file::NsFile;
use self::qids::Qids;
use self::room::Room;
use super::list::made_up;
use super::{Error, Namespace, Path};
use crate::client::nameop::{Base, NameOp};
use crate::client::{self, Follow, Metadata, Node};
use crate::server::{Answer, Attach, Cx, File, FileServer, Walked};

/// Bytes that the open directories of an export keep at most: over a million entries with their attributes at a time.
const DIR_MEMORY: usize = 512 << 20;

/// See the [module](self). It serves the table as it is at each request.
#[derive(Clone, Debug)]
pub struct NsFs(Arc<Fs>);

#[derive(Debug)]
struct Fs {
    ns: Namespace,
    qids: Qids,
    /// For what open directories hold.
    room: Arc<Room>,
}

impl NsFs {
    pub fn new(ns: Namespace) -> NsFs {
        NsFs::with_dir_memory(ns, DIR_MEMORY)
    }

    /// The same with so many bytes for the entries that open directories keep, of all clients together; [`NsFs::new`]: 512 MiB. Where
    /// they do not suffice a directory is not read: ENOMEM.
    pub fn with_dir_memory(ns: Namespace, bytes: usize) -> NsFs {
        let table = ns.table();
        let members = table.mounts().into_iter().flat_map(|(_, members)| members);
        let qids = Qids::new(members.map(|member| member.file.address()));
        NsFs(Arc::new(Fs { ns, qids, room: Room::new(bytes) }))
    }
}

impl FileServer for NsFs {
    fn attach(&self, cx: &Cx, who: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        let (fs, dialect) = (self.0.clone(), who.dialect);
        wait::later(cx, async move {
            let root = Here::enter(&fs, Path::root()).await?;
            let qid = root.qid;
            let file: Arc<dyn File> = Arc::new(NsFile::new(Arc::new(root), dialect));
            Ok((qid, file))
        })
    }
}

/// What a fid stands for, before it is open. Fids of one file share it.
#[derive(Debug)]
struct Here {
    fs: Arc<Fs>,
    /// As it was walked to, or renamed since by a fid of it. Locked for a moment, with nothing else.
    path: Mutex<Path>,
    /// `None`: a name of the table alone.
    node: Option<Node>,
    /// The server's tree, for [`Qids`].
    tree: u32,
    /// It was mounted with -C.
    cache: bool,
    /// As clients see it.
    qid: Qid,
    /// The path is a name of the table: names in it are the name space's to resolve.
    is_named: bool,
}

/// An error of a server as it was; of the way to it in words. Our own by its number alone: in 9P2000 that is a text which clients know.
fn told(error: impl Into<Error>) -> ninefold_proto::Error {
    let error = error.into();
    match error {
        Error::Client(client::Error::Refused(e)) | Error::Server { error: client::Error::Refused(e), .. } => e,
        Error::Client(_) | Error::Server { .. } => ninefold_proto::Error::with_text(error.errno(), error.to_string()),
        error => error.errno().into(),
    }
}

impl Here {
    /// The file of a path.
    async fn enter(fs: &Arc<Fs>, path: Path) -> Result<Here, Error> {
        let is_named = fs.ns.find_path(&path).is_named;
        match fs.ns.walk_path(path.clone(), Follow::NotLast).await {
            Ok((node, _, member)) => {
                let tree = fs.qids.tree(member.file.address());
                let qid = fs.qids.map(tree, node.qid())?;
                let (path, cache) = (Mutex::new(path), member.flags.cache);
                Ok(Here { fs: fs.clone(), path, node: Some(node), tree, cache, qid, is_named })
            }
            Err(Error::NoServer) => {
                let qid = fs.qids.made_up(&path)?;
                Ok(Here {
                    fs: fs.clone(),
                    path: Mutex::new(path),
                    node: None,
                    tree: 0,
                    cache: false,
                    qid,
                    is_named: true,
                })
            }
            Err(e) => Err(e),
        }
    }

    fn path(&self) -> Path {
        self.path.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn renamed(&self, path: Path) {
        *self.path.lock().unwrap_or_else(PoisonError::into_inner) = path;
    }

    /// Whether the path still leads to this file, ESTALE when not: its server may have renamed it, or a directory above, for somebody
    /// else. A name of the table no server can rename.
    async fn is_still_here(&self) -> Result<(), Error> {
        if self.is_named {
            return Ok(());
        }
        match Here::enter(&self.fs, self.path()).await {
            Ok(now) if now.qid.path == self.qid.path => Ok(()),
            Err(e) if !matches!(e.errno(), Errno::ENOENT | Errno::ENOTDIR) => Err(e),
            _ => Err(Errno::ESTALE.into()),
        }
    }

    /// The directory that this is in, by its path; that of the root is the root.
    async fn above(&self) -> Result<Here, Error> {
        self.is_still_here().await?;
        let path = self.path();
        Here::enter(&self.fs, path.prefix(path.len().saturating_sub(1))).await
    }

    fn below(&self, name: &[u8]) -> Result<Path, Error> {
        Ok(self.path().join([name])?)
    }

    /// Whether a name of this directory is one of the table.
    fn is_of_table(&self, name: &[u8]) -> Result<bool, Error> {
        Ok(self.is_named && self.fs.ns.find_path(&self.below(name)?).is_named)
    }

    fn node(&self) -> Result<&Node, Error> {
        self.node.as_ref().ok_or(Error::NoServer)
    }

    /// A fid of its own for the file.
    async fn again(&self) -> Result<Node, Error> {
        Ok(self.node()?.walk(&[]).await?)
    }

    /// Does something to the file on a fid of its own, in one round trip where its server has groups.
    async fn nameop<O: NameOp>(&self, op: &O) -> Result<O::Output, Error> {
        let node = self.node()?;
        Ok(Base::at(node, node.client()).nameop(Vec::new(), op).await?)
    }

    async fn metadata(&self) -> Result<Metadata, Error> {
        match &self.node {
            Some(node) => self.mapped(node.metadata().await?),
            None => Ok(Metadata { qid: self.qid, ..made_up(self.path().as_bytes()) }),
        }
    }

    /// With the number that clients see.
    fn mapped(&self, metadata: Metadata) -> Result<Metadata, Error> {
        Ok(Metadata { qid: self.fs.qids.map(self.tree, metadata.qid)?, ..metadata })
    }

    /// A file in this directory, and the qids on the way to it: as many names at a time as no table has a say in.
    async fn walk_some(&self, names: &[Vec<u8>]) -> Result<(Vec<Qid>, Option<Here>), Error> {
        let first = names.first().ok_or(Errno::EINVAL)?;
        let node = match &self.node {
            Some(node) if !self.is_named => node,
            _ => {
                let here = Here::enter(&self.fs, self.below(first)?).await?;
                return Ok((vec![here.qid], Some(here)));
            }
        };
        let slices: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let slices = node.start().fitting(&slices);
        let mut chain = node.client().chain();
        let (spot, walked) = chain.walk(node, slices).await?;
        let walked = walked.take().await?;
        let qids: Result<Vec<Qid>, Error> = walked.iter().map(|&qid| self.fs.qids.map(self.tree, qid)).collect();
        let qids = qids?;
        let here = match (walked.last(), qids.last()) {
            (Some(&there), Some(&qid)) if walked.len() == slices.len() => {
                let node = Some(spot.into_node(there)?);
                let path = Mutex::new(self.path().join(slices.iter().copied())?);
                let (fs, tree, cache) = (self.fs.clone(), self.tree, self.cache);
                Some(Here { fs, path, node, tree, cache, qid, is_named: false })
            }
            _ => None,
        };
        Ok((qids, here))
    }
}

/// An element of a walk, kept.
enum Elem {
    Here,
    Parent,
    Name(Vec<u8>),
}

fn kept(elems: &[WalkElem<'_>]) -> Vec<Elem> {
    let keep = |elem: &WalkElem<'_>| match elem {
        WalkElem::Here => Elem::Here,
        WalkElem::Parent => Elem::Parent,
        WalkElem::Name(name) => Elem::Name(name.as_bytes().to_vec()),
    };
    elems.iter().map(keep).collect()
}

/// Walks from a fid; see [`File::walk`].
async fn walk(from: NsFile, elems: Vec<Elem>) -> Result<Walked, Error> {
    let dialect = from.dialect;
    let (mut at, mut qids) = (from.here.clone(), Vec::with_capacity(elems.len()));
    let mut done = 0;
    while done < elems.len() {
        let step = async {
            if !at.qid.is_dir() {
                return Err(Errno::ENOTDIR.into());
            }
            match &elems[done] {
                Elem::Here => Ok((vec![at.qid], Some(at.clone()))),
                Elem::Parent => {
                    let above = at.above().await?;
                    Ok((vec![above.qid], Some(Arc::new(above))))
                }
                Elem::Name(_) => {
                    let names = elems[done..].iter().map_while(|elem| match elem {
                        Elem::Name(name) => Some(name.clone()),
                        _ => None,
                    });
                    let (qids, here) = at.walk_some(&names.collect::<Vec<_>>()).await?;
                    Ok::<_, Error>((qids, here.map(Arc::new)))
                }
            }
        };
        match step.await {
            Err(e) if qids.is_empty() => return Err(e),
            Err(_) => return Ok(Walked { qids, file: None }),
            Ok((more, here)) => {
                done += more.len();
                qids.extend(more);
                match here {
                    Some(here) => at = here,
                    None => return Ok(Walked { qids, file: None }),
                }
            }
        }
    }
    Ok(Walked { qids, file: Some(Arc::new(NsFile::new(at, dialect))) })
}
