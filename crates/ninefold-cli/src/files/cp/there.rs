//! A directory of a server that things are copied into.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ninefold::client::{Error, File, Node};
use ninefold::proto::Dialect;
use ninefold::proto::attr::{SetAttr, SetTime};
use ninefold::transport::Address;
use tokio::sync::OnceCell;

use super::ahead::Started;
use super::facts::Facts;
use super::trouble::Cause;
use super::turn;
use crate::files::replace::Target;

/// A directory that was walked to.
#[derive(Debug)]
pub struct Dir {
    pub node: Arc<Node>,
    pub address: Address,
    /// Made by this copy: nothing is in it yet.
    pub is_new: bool,
    /// The names that were in it, for a directory that many files are copied into: listed when the first is looked for.
    names: Option<OnceCell<Option<HashSet<Vec<u8>>>>>,
    /// A name that nothing had just now, until it is looked for.
    free: Mutex<Option<Vec<u8>>>,
    /// The temporary file of what goes to that name, if one was made.
    started: Mutex<Option<Started>>,
}

impl Dir {
    /// `many`: a whole directory is copied into it.
    pub fn new(node: Node, address: Address, is_new: bool, many: bool) -> Dir {
        Dir {
            node: Arc::new(node),
            address,
            is_new,
            names: many.then(OnceCell::new),
            free: Mutex::default(),
            started: Mutex::default(),
        }
    }

    /// A directory where one file goes; `free`: its name, where nothing has that, as was found just now, and the temporary file that was made then.
    pub fn at(node: Arc<Node>, address: Address, free: Option<Vec<u8>>, started: Option<Started>) -> Dir {
        Dir { node, address, is_new: false, names: None, free: Mutex::new(free), started: Mutex::new(started) }
    }

    /// A temporary file that was made for what goes here, if one was.
    pub fn take_started(&self) -> Option<Started> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub fn address_of(&self, name: &[u8]) -> Address {
        Address { path: [&self.address.path[..], b"/", name].concat(), ..self.address.clone() }
    }

    /// A file to be in it.
    pub fn target(&self, name: &[u8]) -> Target {
        Target { dir: self.node.clone(), name: name.to_vec(), address: self.address.clone() }
    }

    /// A file in it, walked to by requests that no other file's replies have caused.
    pub async fn walk(&self, name: &[u8]) -> Result<Node, Error> {
        self.node.walk_as(&turn::fork(self.node.client()), &[name]).await
    }

    async fn may_have(&self, name: &[u8]) -> bool {
        let is_free = |free: &mut Vec<u8>| free == name;
        let was_free = self.free.lock().unwrap_or_else(PoisonError::into_inner).take_if(is_free).is_some();
        if self.is_new || was_free {
            return false;
        }
        let Some(names) = &self.names else { return true };
        let list = async {
            let entries = self.node.read_dir().await.ok()?.all().await.ok()?;
            Some(entries.into_iter().map(|entry| entry.name).collect())
        };
        // A directory that cannot be read is asked for each name.
        names.get_or_init(|| list).await.as_ref().is_none_or(|names: &HashSet<_>| names.contains(name))
    }

    /// What has the name here.
    pub async fn look(&self, name: &[u8]) -> Result<Option<Facts>, Cause> {
        if !self.may_have(name).await {
            return Ok(None);
        }
        match self.walk(name).await {
            Ok(node) => Ok(Some(Facts::from(node.metadata().await?))),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The directory of that name, if there is one.
    pub async fn open(&self, name: &[u8]) -> Result<Option<Dir>, Cause> {
        match self.walk(name).await {
            Ok(node) if node.qid().is_dir() => Ok(Some(Dir::new(node, self.address_of(name), false, true))),
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(None),
        }
    }

    /// Makes a directory in this one, or goes to the one that is there. The server may cut `mode` down.
    pub async fn make(&self, name: &[u8], mode: u32) -> Result<Dir, Cause> {
        let client = turn::fork(self.node.client());
        // In one group both are asked for at once, and what is there is come to all the same.
        let asks = !self.node.client().version().is_n1() && self.may_have(name).await;
        let there = match asks {
            true => self.node.walk_as(&client, &[name]).await.map(Some),
            false => Ok(None),
        };
        let (node, is_new) = match there {
            Ok(Some(node)) => (node, false),
            Err(e) if !e.is_not_found() => return Err(e.into()),
            _ => match self.node.make_dir(&client, name, mode).await? {
                (node, Ok(())) => (node, true),
                // Of texts that servers have for a name that exists not all are known.
                (node, Err(_)) if node.qid().is_dir() => (node, false),
                (_, Err(refused)) => return Err(refused.into()),
            },
        };
        if !node.qid().is_dir() {
            return Err(Cause::words("what has its name there is no directory"));
        }
        Ok(Dir::new(node, self.address_of(name), is_new, true))
    }
}

/// An owner and a group that a file is to be given, as far as the source has them.
type Pair = (Option<u32>, Option<u32>);

/// To whom the server does not let files be given: it is not asked for the same again. One refusal says nothing of other owners,
/// since a server may know some and not others, and its user be in some groups and not in others.
#[derive(Debug, Default)]
pub struct Owners {
    /// Never locked across an await.
    refused: Mutex<HashSet<Pair>>,
}

impl Owners {
    /// What of the owner and group of a file may be asked for: both, or the group, or neither, as cp(1) does it. `tried` were
    /// refused just now.
    fn of(&self, like: &Facts, tried: &[Pair]) -> Pair {
        let refused = self.lock();
        let may = |pair: &Pair| !refused.contains(pair) && !tried.contains(pair);
        [(like.uid, like.gid), (None, like.gid)].into_iter().find(may).unwrap_or_default()
    }

    /// These were refused, and that was why: with less it was done.
    pub fn were_refused(&self, tried: Vec<Pair>) {
        self.lock().extend(tried);
    }

    /// What one request gives a new file of .L that is to be like another; `None` where that takes several. `tried`: see
    /// [`Owners::were_refused`].
    pub fn attributes(&self, like: &Facts, tried: &[Pair]) -> Option<SetAttr> {
        if like.mode & 0o6000 != 0 {
            return None;
        }
        let (uid, gid) = self.of(like, tried);
        let (atime, mtime) = (Some(SetTime::To(like.accessed)), Some(SetTime::To(like.modified)));
        Some(SetAttr { mode: Some(like.mode), uid, gid, atime, mtime, ..SetAttr::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Pair>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What attributes are set on.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    File(&'a File),
    Node(&'a Node),
}

impl Subject<'_> {
    async fn set(&self, change: &SetAttr) -> Result<(), Error> {
        match self {
            Subject::File(file) => file.set(change).await,
            Subject::Node(node) => node.set(change).await,
        }
    }

    fn dialect(&self) -> Dialect {
        match self {
            Subject::File(file) => file.client().dialect(),
            Subject::Node(node) => node.client().dialect(),
        }
    }

    /// Gives a file the owner, permissions and times of another, as far as the dialect can: 9P2000 has no numbers for
    /// owners, no set-ID and no sticky bits, and only .L sets the time of the last access. An owner that may not be given is left out, as cp(1) does,
    /// and with it the bits that would make programs run as that owner. A link has no permissions.
    pub async fn preserve(self, like: &Facts, owners: &Owners) -> Result<(), Cause> {
        let dialect = self.dialect();
        let is_link = like.kind == ninefold::client::FileType::Symlink;
        let accessed = Some(SetTime::To(like.accessed)).filter(|_| dialect == Dialect::Linux);
        let mode = |bits: u32| Some(like.mode & bits).filter(|_| !is_link);
        let plain = SetAttr {
            mode: mode(if dialect == Dialect::Plan9 { 0o777 } else { 0o1777 }),
            atime: accessed,
            mtime: Some(SetTime::To(like.modified)),
            ..SetAttr::default()
        };
        let mut tried = Vec::new();
        loop {
            let (uid, gid) = if dialect == Dialect::Plan9 { (None, None) } else { owners.of(like, &tried) };
            match self.set(&SetAttr { uid, gid, ..plain }).await {
                Ok(()) => {
                    owners.were_refused(tried);
                    if uid.is_some() && like.mode & 0o6000 != 0 && !is_link {
                        // Of a change of owner the bits do not survive that come with it.
                        let bits = SetAttr { mode: mode(0o7777), ..SetAttr::default() };
                        self.set(&bits).await?;
                    }
                    return Ok(());
                }
                Err(Error::Refused(_) | Error::Unsupported { .. }) if (uid, gid) != (None, None) => {
                    tried.push((uid, gid));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}
