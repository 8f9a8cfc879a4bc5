//! What a directory of a name space holds.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures_util::future::{join, join_all};
use ninefold_proto::{Errno, Qid, QidType};

use super::error::Error;
use super::mounted::Mounted;
use super::nameop::Went;
use super::namespace::{Found, Namespace, Target};
use crate::client::resolve::LINKS_MAX;
use crate::client::visit::ListDir;
use crate::client::{self, Entry, FileType, Follow, Listed, Listing, Metadata, Sight, Visited};

/// What a directory is asked for.
const WHOLE: ListDir = ListDir(Sight { attributes: true, alone: true });

/// An entry, and the mounted file that it is below; `None`: it is a name of the table.
pub(super) type Origin = (Listed, Option<Mounted>);

impl Namespace {
    /// The entries of a directory, with their attributes; those of a symbolic link are its own. Of a union all members are read, at
    /// the same time, and each name is told once, as the first member that has it tells it. A mount point is told as what is mounted
    /// there, and a name that only leads to one as a directory. A symbolic link is followed to the directory that it leads to, which may be
    /// any of these. Not more than
    /// [`Options::dir_entries_max`](client::Options::dir_entries_max).
    pub async fn list(&self, name: impl AsRef<[u8]>) -> Result<Vec<Listed>, Error> {
        let entries = self.entries(&self.target(name.as_ref())?).await?;
        Ok(entries.into_iter().map(|(listed, _)| listed).collect())
    }

    /// The same, and where each is.
    pub(super) async fn entries(&self, target: &Target) -> Result<Vec<Origin>, Error> {
        let mut target = target.clone();
        for _ in 0..=LINKS_MAX {
            match self.entries_before_links(&target).await? {
                Went::To(entries) => return Ok(entries),
                Went::Link(path) => target = Target::Tree(path),
            }
        }
        Err(client::Error::TooManyLinks.into())
    }

    async fn entries_before_links(&self, target: &Target) -> Result<Went<Vec<Origin>>, Error> {
        let found = self.find(target).await?;
        let names: BTreeSet<Vec<u8>> = match target {
            Target::Tree(path) => self.table().resolve(path).children().map(<[u8]>::to_vec).collect(),
            Target::Server(_) => BTreeSet::new(),
        };
        // Side by side, and beside the directory itself: a directory may be full of mount points.
        let mounted = join_all(names.iter().map(|name| self.mounted_entry(target, name)));
        let lists = async {
            match self.dirs(&found).await {
                Ok(Went::To(dirs)) => {
                    let lists: Result<Vec<_>, Error> = join_all(dirs.into_iter().map(all)).await.into_iter().collect();
                    lists.map(Went::To)
                }
                Ok(Went::Link(path)) => Ok(Went::Link(path)),
                Err(Error::NoServer) => Ok(Went::To(Vec::new())),
                Err(e) => Err(e),
            }
        };
        let (mounted, lists) = join(mounted, lists).await;
        let lists = match lists? {
            Went::To(lists) => lists,
            Went::Link(path) => return Ok(Went::Link(path)),
        };
        let mut mounted: BTreeMap<&Vec<u8>, Listed> = names.iter().zip(mounted).collect();
        let mut merged = Merged::default();
        for (list, most, from) in lists {
            for listed in list {
                match mounted.remove(&listed.0.name) {
                    Some(mounted) => merged.push((mounted, None)),
                    None => merged.push((listed, Some(from.clone()))),
                }
                if merged.list.len() > most {
                    return Err(client::Error::from(client::Suspicion::EndlessDirectory(most)).into());
                }
            }
        }
        mounted.into_values().for_each(|listed| merged.push((listed, None)));
        Ok(Went::To(merged.list))
    }

    /// The directories that are read for one: all members of a union, or the one that has the name.
    async fn dirs(&self, found: &Found) -> Result<Went<Vec<(Visited, Mounted)>>, Error> {
        if found.path.is_some() && !found.left.is_empty() {
            return Ok(match self.before_links_by(found, &WHOLE).await? {
                Went::To((dir, at)) => {
                    let member = found.members.get(at).ok_or(Errno::ENOENT)?;
                    Went::To(vec![(dir, member.file.clone())])
                }
                Went::Link(path) => Went::Link(path),
            });
        }
        if found.members.is_empty() {
            return Err(if found.is_named { Error::NoServer } else { Errno::ENOENT.into() });
        }
        let dirs = found.members.iter().map(|member| async move {
            let dir = member.file.base(member.file.client()).nameop(found.left.clone(), &WHOLE).await?;
            Ok((dir, member.file.clone()))
        });
        let dirs: Result<Vec<_>, client::Error> = join_all(dirs).await.into_iter().collect();
        Ok(Went::To(dirs?))
    }

    async fn mounted_entry(&self, dir: &Target, name: &[u8]) -> Listed {
        let looked = match dir {
            Target::Tree(path) => match path.join([name]) {
                Ok(path) => self.metadata(path.as_bytes(), Follow::NotLast).await,
                Err(e) => Err(e.into()),
            },
            Target::Server(_) => Err(Errno::ENOENT.into()),
        };
        let metadata = looked.map_err(|e| match e {
            Error::Client(e) | Error::Server { error: e, .. } => e,
            e => client::Error::from(e.errno()),
        });
        let (qid, kind) = match &metadata {
            Ok(metadata) => (metadata.qid, metadata.kind),
            Err(_) => (made_up(name).qid, FileType::Dir),
        };
        (Entry { name: name.to_vec(), qid, kind, metadata: None }, metadata)
    }
}

/// Names once each, in order.
#[derive(Default)]
struct Merged {
    names: HashSet<Vec<u8>>,
    list: Vec<Origin>,
}

impl Merged {
    fn push(&mut self, entry: Origin) {
        if self.names.insert(entry.0.0.name.clone()) {
            self.list.push(entry);
        }
    }
}

/// All entries, and how many there may be.
async fn all((dir, from): (Visited, Mounted)) -> Result<(Vec<Listed>, usize, Mounted), Error> {
    let most = dir.node.client().options().dir_entries_max;
    let mut listing = Listing::of(&dir.node, dir.entries?);
    let mut list = Vec::new();
    while let Some(listed) = listing.next().await? {
        list.push(listed);
    }
    Ok((list, most, from))
}

/// A directory that is a name alone. The version 0 says that nobody may cache it: its entries are those of the table.
pub(super) fn made_up(name: &[u8]) -> Metadata {
    // FNV-1a, 64 bits (draft-eastlake-fnv).
    let path =
        name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let zero = ninefold_proto::attr::Time::default();
    Metadata {
        qid: Qid { kind: QidType::DIR, version: 0, path },
        kind: FileType::Dir,
        mode: 0o555,
        plan9_mode: None,
        size: 0,
        nlink: Some(2),
        uid: None,
        gid: None,
        owner: None,
        group: None,
        modifier: None,
        device: None,
        block_size: None,
        blocks: None,
        accessed: zero,
        modified: zero,
        changed: None,
        born: None,
        link_target: None,
    }
}
