//! What is copied: [`Item`], a file here or on a server, and [`Folder`], a directory of it that is open.
//!
//! No symbolic link is gone through, but for those that the user named on the command line.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ninefold::client::{BeginRead, Begun, FileType, Mode, Node, ReadDir, Sight, Visited};
use ninefold::proto::Errno;
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, CWD, Dir, Mode as Permissions, OFlags, fstat, openat, readlinkat, statat};
use tokio::net::unix::pipe;

use super::cx::Cx;
use super::facts::Facts;
use super::off::off;
use super::reader::Content;
use super::trouble::Cause;
use super::turn;
use crate::files::newborn;
use crate::place::Place;

/// Entries of a directory that are taken at a time.
const BATCH: usize = 256;

/// A local file of up to so many bytes is read by the system calls that open it: 64 KiB, what one read of a small file
/// may cost without being felt.
const FIRST: usize = 64 * 1024;

/// Bytes of a server's file that are asked for together with its attributes, by one message: at most 256 KiB, which take 20 ms at
/// 100 Mbit/s.
const FIRST_THERE: u32 = 256 * 1024;

/// A file that is not open.
#[derive(Debug)]
pub struct Item {
    /// As the user knows it.
    pub place: Place,
    at: At,
    /// What a directory told of it.
    pub listed: Listed,
}

/// What is known of a file before anybody asked for it.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    pub kind: Option<FileType>,
    pub facts: Option<Facts>,
}

#[derive(Debug)]
enum At {
    Here(Here),
    Entry(Arc<Node>, Vec<u8>),
    Found(Node),
    /// A directory, with what is in it.
    Listed(Box<Visited>),
    /// A plain file, open and begun to be read.
    Begun(Box<Begun>),
}

/// A file of this machine.
#[derive(Clone, Debug)]
struct Here {
    /// `None`: the working directory.
    dir: Option<Arc<OwnedFd>>,
    name: CString,
    follow: bool,
}

impl Here {
    fn base(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, |dir| dir.as_fd())
    }

    fn stat(&self) -> Result<Facts, Cause> {
        let flags = if self.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        Ok(Facts::from(&statat(self.base(), &self.name, flags)?))
    }

    fn open(&self, more: OFlags) -> Result<OwnedFd, Cause> {
        let follow = if self.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | more | follow;
        Ok(openat(self.base(), &self.name, flags, Permissions::empty())?)
    }
}

impl Item {
    /// A local file that the user named.
    pub fn here(path: &Path, follow: bool) -> Result<Item, Cause> {
        use std::os::unix::ffi::OsStrExt;
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Cause::Here(Errno::EINVAL))?;
        let at = At::Here(Here { dir: None, name, follow });
        Ok(Item { place: Place::Local(path.to_owned()), at, listed: Listed::default() })
    }

    /// A file in a directory that is copied to.
    pub fn beneath(place: Place, dir: &super::here::Dir, name: &[u8]) -> Result<Item, Cause> {
        let dir = Some(Arc::new(dir.as_fd().try_clone_to_owned()?));
        let name = CString::new(name).map_err(|_| Cause::Here(Errno::EINVAL))?;
        Ok(Item { place, at: At::Here(Here { dir, name, follow: false }), listed: Listed::default() })
    }

    /// A file of a server that the user named, walked to.
    pub fn there(place: Place, node: Node) -> Item {
        Item { place, at: At::Found(node), listed: Listed::default() }
    }

    /// Whether it is a server's.
    pub fn is_there(&self) -> bool {
        !matches!(self.at, At::Here(_))
    }

    /// A file of a server that the user named, and what is in it where it is a directory, in one round trip where that can be.
    pub fn visited(place: Place, visited: Visited) -> Result<Item, Cause> {
        let facts = visited.looked.as_ref().map(|looked| Facts::from(looked.metadata.clone()));
        let listed = Listed { kind: facts.as_ref().map(|facts| facts.kind), facts };
        let at = if visited.node.qid().is_dir() {
            At::Listed(Box::new(visited))
        } else {
            match Arc::try_unwrap(visited.node) {
                Ok(node) => At::Found(node),
                // Only a directory that is being read has another owner.
                Err(_) => return Err(Cause::Here(Errno::EINVAL)),
            }
        };
        Ok(Item { place, at, listed })
    }

    /// A plain file of a server that the user named, opened and begun to be read when it was come to; any other is nobody's.
    pub fn begun(place: Place, begun: Begun) -> Option<Item> {
        let facts = begun.metadata.clone().map(Facts::from)?;
        // What was not read is for streams, or it may have bytes though it is said to have none. Nothing is read of less than this, far away.
        if begun.data.is_none() && facts.size <= BeginRead::SHARED {
            return None;
        }
        // One that has grown since it was looked at is come to again.
        if facts.kind != FileType::File || facts.size < begun.data.as_ref().map_or(0, |data| data.len() as u64) {
            return None;
        }
        let listed = Listed { kind: Some(facts.kind), facts: Some(facts) };
        Some(Item { place, at: At::Begun(Box::new(begun)), listed })
    }

    /// What kind of file it is; as its directory told, if that told.
    pub async fn kind(&mut self) -> Result<FileType, Cause> {
        match self.listed.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.facts().await?.kind),
        }
    }

    /// Its attributes.
    pub async fn facts(&mut self) -> Result<Facts, Cause> {
        if let Some(facts) = &self.listed.facts {
            return Ok(facts.clone());
        }
        let facts = match &self.at {
            At::Here(here) => {
                let here = here.clone();
                off(move || here.stat()).await?
            }
            At::Begun(begun) => Facts::from(begun.file.metadata().await?),
            _ => Facts::from(self.node().await?.metadata().await?),
        };
        self.listed = Listed { kind: Some(facts.kind), facts: Some(facts.clone()) };
        Ok(facts)
    }

    /// Its attributes as they are now, whatever was told of it before.
    pub async fn look_again(&mut self) -> Result<Facts, Cause> {
        self.listed.facts = None;
        self.facts().await
    }

    /// Whether something in it, a directory, has the name.
    pub async fn has(&mut self, name: &[u8]) -> Result<bool, Cause> {
        if let At::Here(here) = &self.at {
            let (here, name) = (here.clone(), CString::new(name).map_err(|_| Cause::Here(Errno::EINVAL))?);
            let look = move || Ok(statat(here.open(OFlags::DIRECTORY)?, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok());
            return off(look).await;
        }
        match self.node().await?.walk(&[name]).await {
            Ok(_) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// The file of a server, walked to when it is first needed.
    async fn node(&mut self) -> Result<&Node, Cause> {
        if let At::Entry(dir, name) = &self.at {
            // Other files are copied meanwhile, and their replies did not cause what is asked here.
            let client = turn::fork(dir.client());
            self.at = At::Found(dir.walk_as(&client, &[name]).await?);
        }
        match &self.at {
            At::Found(node) => Ok(node),
            At::Listed(visited) => Ok(&visited.node),
            _ => Err(Cause::Here(Errno::EINVAL)),
        }
    }

    async fn into_node(mut self) -> Result<Node, Cause> {
        self.node().await?;
        match self.at {
            At::Found(node) => Ok(node),
            _ => Err(Cause::Here(Errno::EINVAL)),
        }
    }

    /// Bytes of a file of a server that its directory lists as a small one, at most [`newborn::MOST`].
    pub fn small_size(&self) -> Option<u64> {
        let At::Entry(..) = self.at else { return None };
        let facts = self.listed.facts.as_ref().filter(|facts| facts.kind == FileType::File)?;
        Some(facts.size).filter(|&size| size <= newborn::MOST as u64)
    }

    /// All of a small file that a directory of a server lists, in one round trip; `None`: it is to be opened as any other.
    pub async fn fetch(&self, cx: &Cx<'_>) -> Result<Option<(Facts, Content)>, Cause> {
        let (At::Entry(dir, name), Some(size)) = (&self.at, self.small_size()) else { return Ok(None) };
        let client = turn::fork(dir.client());
        let _place = cx.small.acquire(&client).await;
        let Some(fetched) = dir.fetch(&client, name, size).await? else { return Ok(None) };
        let facts = Facts::from(fetched.metadata);
        let content = Content::Whole { facts: Box::new(facts.clone()), data: fetched.data };
        Ok(Some((facts, content)))
    }

    /// The target of a symbolic link.
    pub async fn read_link(mut self) -> Result<Vec<u8>, Cause> {
        match self.at {
            At::Here(here) => off(move || Ok(readlinkat(here.base(), &here.name, Vec::new())?.into_bytes())).await,
            _ => Ok(self.node().await?.read_link().await?),
        }
    }

    /// Opens a plain file, or a fifo of this machine that the user named to be read. Of another file only the attributes
    /// come.
    pub async fn open(self) -> Result<(Facts, Option<Content>), Cause> {
        match &self.at {
            At::Here(here) => {
                let here = here.clone();
                let (facts, opened) = off(move || open_here(&here)).await?;
                let content = match opened {
                    Some(Opened::File(content)) => Some(content),
                    Some(Opened::Fifo(fd)) => Some(Content::Stream(pipe::Receiver::from_owned_fd(fd)?)),
                    None => None,
                };
                Ok((facts, content))
            }
            At::Begun(_) => {
                let (At::Begun(begun), Some(facts)) = (self.at, self.listed.facts) else {
                    return Err(Cause::Here(Errno::EINVAL));
                };
                Ok((facts, Some(Content::There { file: begun.file, first: begun.data.unwrap_or_default() })))
            }
            _ => {
                let node = self.into_node().await?;
                if node.qid().is_dir() {
                    // Listed as a file, or one until now: 9P2000 would read its records as content.
                    return Err(ninefold::client::Error::from(ninefold::proto::Errno::EISDIR).into());
                }
                let file = node.open(Mode::READ).await?;
                // A small file is read while its attributes are on the way. Those that its directory told are old.
                let (metadata, first) = file.look_and_read(FIRST_THERE).await?;
                let facts = Facts::from(metadata);
                let plain = facts.kind == FileType::File;
                Ok((facts, plain.then_some(Content::There { file, first })))
            }
        }
    }

    /// The file of a server, with what is in it.
    async fn visit(self) -> Result<Visited, Cause> {
        let sight = Sight { attributes: true, alone: false };
        match self.at {
            At::Entry(dir, name) => Ok(dir.visit_as(&turn::fork(dir.client()), &name, sight).await?),
            At::Found(node) => {
                let client = turn::fork(node.client());
                Ok(node.list_as(&client, sight).await?)
            }
            At::Listed(visited) => Ok(*visited),
            At::Here(_) | At::Begun(_) => Err(Cause::Here(Errno::EINVAL)),
        }
    }

    /// Opens a directory.
    pub async fn list(self) -> Result<(Folder, Listing), Cause> {
        match self.at {
            At::Here(here) => {
                let open = move || {
                    let fd = here.open(OFlags::DIRECTORY)?;
                    let listing = Dir::read_from(&fd)?;
                    Ok((Folder::Here(Arc::new(fd)), Listing::Here(Box::new(listing))))
                };
                off(open).await
            }
            _ => {
                let visited = self.visit().await?;
                let listing = Listing::There(Box::new(visited.entries?));
                Ok((Folder::There(visited.node), listing))
            }
        }
    }
}

/// A local file.
enum Opened {
    File(Content),
    Fifo(OwnedFd),
}

/// Opens a local file and reads its beginning. Not to wait for the other end of a fifo, it is opened without waiting.
fn open_here(here: &Here) -> Result<(Facts, Option<Opened>), Cause> {
    let fd = here.open(OFlags::NONBLOCK)?;
    let facts = Facts::from(&fstat(&fd)?);
    if facts.kind != FileType::File {
        // A fifo in a tree is copied as what it is.
        let fifo = (facts.kind == FileType::Fifo && here.follow).then_some(Opened::Fifo(fd));
        return Ok((facts, fifo));
    }
    let mut first = Vec::new();
    if facts.size <= FIRST as u64 {
        first.reserve_exact(facts.size as usize + 1);
        while first.len() <= facts.size as usize && rustix::io::read(&fd, spare_capacity(&mut first))? > 0 {}
    }
    Ok((facts, Some(Opened::File(Content::Here { fd: Arc::new(fd), first: Bytes::from(first) }))))
}

/// A directory that things are copied from.
#[derive(Clone, Debug)]
pub enum Folder {
    Here(Arc<OwnedFd>),
    There(Arc<Node>),
}

impl Folder {
    /// A file in it.
    pub fn item(&self, place: Place, name: &[u8], listed: Listed) -> Result<Item, Cause> {
        let at = match self {
            Folder::Here(dir) => {
                let name = CString::new(name).map_err(|_| Cause::Here(Errno::EINVAL))?;
                At::Here(Here { dir: Some(dir.clone()), name, follow: false })
            }
            Folder::There(dir) => At::Entry(dir.clone(), name.to_vec()),
        };
        Ok(Item { place, at, listed })
    }
}

/// What a directory holds, as far as it was not read yet.
#[derive(Debug)]
pub enum Listing {
    Here(Box<Dir>),
    There(Box<ReadDir>),
}

impl Listing {
    /// The next names, and the rest unless that was all. Of this machine's directories every name is listed once.
    pub async fn batch(self) -> Result<(Vec<(Vec<u8>, Listed)>, Option<Listing>), Cause> {
        match self {
            Listing::Here(mut dir) => {
                let read = move || {
                    let mut entries = Vec::new();
                    while entries.len() < BATCH {
                        let Some(entry) = dir.read() else { return Ok((entries, None)) };
                        let entry = entry?;
                        let name = entry.file_name().to_bytes();
                        if !matches!(name, b"." | b"..") {
                            // Where the file system does not tell it, the file itself is asked.
                            let kind = FileType::from_mode(entry.file_type().as_raw_mode());
                            entries.push((name.to_vec(), Listed { kind, facts: None }));
                        }
                    }
                    Ok((entries, Some(Listing::Here(dir))))
                };
                off(read).await
            }
            Listing::There(mut dir) => {
                let mut entries = Vec::new();
                while entries.len() < BATCH {
                    let Some(entry) = dir.next().await? else { return Ok((entries, None)) };
                    let facts = entry.metadata.map(|metadata| Facts::from(*metadata));
                    entries.push((entry.name, Listed { kind: Some(entry.kind), facts }));
                }
                Ok((entries, Some(Listing::There(dir))))
            }
        }
    }
}
