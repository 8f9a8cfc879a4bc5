//! Operations on names: each is resolved in the table with no message, and then walked and done as one group at the server that
//! has the file (S5, "Namec and Nameop", "Later may be better").
//!
//! A union forces the walk: what only looks is asked of all members at once, and the first in order that has the first name left
//! answers, whatever those behind it do. An open walks in all, and opens in that one. What changes something is asked of one after
//! another. Where a path goes through a symbolic link it is resolved in the name space again: an absolute
//! target begins at its root, and `..` in a target takes the name before it.

use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, StreamExt};
use ninefold_proto::Errno;
use ninefold_proto::attr::SetAttr;

use super::error::Error;
use super::list::made_up;
use super::mounted::Mounted;
use super::mtab::Member;
use super::namespace::{Found, Namespace, Target};
use super::path::Path;
use crate::client::nameop::{
    Access, BeginRead, Begun, Create, Look, Looked, Mkdir, NameOp, Open, Put, ReadLink, Remove, Rename, Set, Stat,
    Unlink, beginning_of, write_all,
};
use crate::client::resolve::{LINKS_MAX, advance, walk_names};
use crate::client::{self, Client, File, Follow, Metadata, Mode, Node};

/// What came of asking one member.
enum Tried<T> {
    /// It does not have the first name.
    Missing,
    Done(Result<T, client::Error>),
    /// It is the one, and the path is to be walked step by step.
    Slow,
}

/// What came of asking all.
enum Asked<T> {
    /// And the member that it was done by.
    Done(Result<(T, usize), Error>),
    /// This one has the file, and the path is to be walked step by step.
    Slow(usize),
}

/// How far a path goes.
pub(super) enum Went<T> {
    To(T),
    /// To a symbolic link, and this is the path that it leads to in the name space.
    Link(Path),
}

/// What is done to a name of a directory.
#[derive(Clone, Copy)]
enum Does {
    Make,
    Take,
}

/// A directory and a name in it.
struct Parent {
    found: Found,
    name: Vec<u8>,
}

impl Namespace {
    /// What is known of the file.
    pub async fn metadata(&self, name: impl AsRef<[u8]>, follow: Follow) -> Result<Metadata, Error> {
        let target = self.target(name.as_ref())?;
        match self.nameop(&target, &Stat(follow)).await {
            Err(Error::NoServer) => made_up_at(&target),
            looked => looked,
        }
    }

    /// The same, and the target where it is a symbolic link.
    pub async fn look(&self, name: impl AsRef<[u8]>, follow: Follow) -> Result<Looked, Error> {
        let target = self.target(name.as_ref())?;
        match self.nameop(&target, &Look(follow)).await {
            Err(Error::NoServer) => Ok(Looked { metadata: made_up_at(&target)?, target: None }),
            looked => looked,
        }
    }

    /// Changes attributes; see [`Node::set`]. Those of a mount point are the mounted file's.
    pub async fn set(&self, name: impl AsRef<[u8]>, change: &SetAttr, follow: Follow) -> Result<(), Error> {
        self.nameop(&self.target(name.as_ref())?, &Set { change, follow }).await
    }

    /// The target of a symbolic link.
    pub async fn read_link(&self, name: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        self.nameop(&self.target(name.as_ref())?, &ReadLink).await
    }

    /// What the user may do with the file; see [`Node::access`].
    pub async fn access(&self, name: impl AsRef<[u8]>, mode: u32) -> Result<u32, Error> {
        self.nameop(&self.target(name.as_ref())?, &Access(mode)).await
    }

    /// Opens the file.
    pub async fn open(&self, name: impl AsRef<[u8]>, mode: Mode) -> Result<File, Error> {
        self.nameop(&self.target(name.as_ref())?, &Open(mode)).await
    }

    /// Opens the file to be read, with at most `count` bytes of its beginning.
    pub async fn begin_read(&self, name: impl AsRef<[u8]>, count: u32) -> Result<Begun, Error> {
        self.nameop(&self.target(name.as_ref())?, &BeginRead { count, ..BeginRead::default() }).await
    }

    /// All that is in a small file; see [`Client::read`].
    pub async fn read(&self, name: impl AsRef<[u8]>, most: usize) -> Result<Bytes, Error> {
        Ok(self.begin_read(name, beginning_of(most)).await?.all(most).await?)
    }

    /// Makes a plain file and opens it, in the first member of a union that takes new files. What is there already is `EEXIST` when
    /// `exclusive`; else it is opened, and cut to nothing.
    pub async fn create(&self, name: impl AsRef<[u8]>, mode: Mode, perm: u32, exclusive: bool) -> Result<File, Error> {
        let mut target = self.target(name.as_ref())?;
        let Parent { name, .. } = self.parent(&target, Errno::EEXIST).await?;
        // Tried first, for most often it is right (S5: two rounds in place of three).
        match self.in_dir(&mut target, Does::Make, &Create { name: &name, mode, perm }).await {
            Err(e) if e.errno() == Errno::EEXIST && !exclusive => {
                self.nameop(&target, &Open(Mode { truncate: true, ..mode })).await
            }
            made => made,
        }
    }

    /// Makes `data` all that is in a plain file, which is made where there is none: one round trip for a small file where the server
    /// speaks .n1. Who reads meanwhile may see a part of it, and what fails may leave one.
    pub async fn write(&self, name: impl AsRef<[u8]>, data: Bytes, perm: u32) -> Result<(), Error> {
        let target = self.target(name.as_ref())?;
        let Parent { found, name: last } = self.parent(&target, Errno::EISDIR).await?;
        let maker = self.maker(&target, &found).await?;
        let op = Put { name: &last, data, perm };
        if let Some(Found { members, left, .. }) = &maker
            && let [member] = &members[..]
            && op.fits(member.file.client().msize())
        {
            match member.file.base(member.file.client()).at_once(left, &op).await {
                // A link, which is followed as any.
                Ok(Some(Err(e))) if e.errno() == Errno::ELOOP => {}
                Ok(Some(done)) => return Ok(done?),
                Ok(None) => {}
                Err(e) => return Err(found.missing(e)),
            }
        }
        let file = self.create(name, Mode::WRITE, perm, false).await?;
        Ok(write_all(file, op.data).await?)
    }

    /// Makes a directory.
    pub async fn mkdir(&self, name: impl AsRef<[u8]>, perm: u32) -> Result<(), Error> {
        let mut target = self.target(name.as_ref())?;
        let Parent { name, .. } = self.parent(&target, Errno::EEXIST).await?;
        self.in_dir(&mut target, Does::Make, &Mkdir { name: &name, perm }).await
    }

    /// Removes a name: of an empty directory when `dir`, else of anything but a directory.
    pub async fn unlink(&self, name: impl AsRef<[u8]>, dir: bool) -> Result<(), Error> {
        let mut target = self.target(name.as_ref())?;
        let Parent { name, .. } = self.parent(&target, Errno::EBUSY).await?;
        self.in_dir(&mut target, Does::Take, &Unlink { name: &name, dir }).await
    }

    /// Removes the file, the symbolic link or the empty directory.
    pub async fn remove(&self, name: impl AsRef<[u8]>) -> Result<(), Error> {
        let mut target = self.target(name.as_ref())?;
        for _ in 0..=LINKS_MAX {
            self.not_mounted(&target)?;
            let found = self.find(&target).await?;
            if found.left.is_empty() {
                // Of an address, the root of its tree.
                return Err(Errno::EBUSY.into());
            }
            match self.before_links(&found, &Remove).await? {
                Went::To(()) => return Ok(()),
                Went::Link(path) => target = Target::Tree(path),
            }
        }
        Err(client::Error::TooManyLinks.into())
    }

    /// Gives a file another name in whatever directory of the same mount; else `EXDEV`, as between file systems.
    pub async fn rename(&self, name: impl AsRef<[u8]>, new_name: impl AsRef<[u8]>) -> Result<(), Error> {
        let (mut old, mut new) = (self.target(name.as_ref())?, self.target(new_name.as_ref())?);
        for _ in 0..=2 * LINKS_MAX {
            if self.rename_before_links(&mut old, &mut new).await? {
                return Ok(());
            }
        }
        Err(client::Error::TooManyLinks.into())
    }

    /// Renames, or puts in place of a name whose directory a link leads to the one that it leads to: `false`.
    async fn rename_before_links(&self, old: &mut Target, new: &mut Target) -> Result<bool, Error> {
        self.not_mounted(old)?;
        self.not_mounted(new)?;
        let (mut from, mut to) = (self.parent(old, Errno::EBUSY).await?, self.parent(new, Errno::EBUSY).await?);
        for side in [&mut from, &mut to] {
            if let Some(path) = &side.found.path {
                side.found = self.find_mounted(path);
            }
        }
        let from = Parent { found: self.only_member(&from.found, &from.name).await?, ..from };
        let to = match self.rename_target(&to, &from.found).await {
            Ok(found) => Parent { found, ..to },
            // Links may lead both into one mount.
            Err(Error::OtherMount) if self.pass_links((old, &from), (new, &to)).await?.is_none() => return Ok(false),
            Err(e) => return Err(e),
        };
        let (Some(member), Some(other)) = (from.found.members.first(), to.found.members.first()) else {
            return Err(Error::NoServer);
        };
        if from.found.left == to.found.left {
            let op = Rename { name: &from.name, new_name: &to.name };
            let whole: Vec<Vec<u8>> = from.found.left.iter().cloned().chain([from.name.clone()]).collect();
            if let Some(done) = member.file.base(member.file.client()).at_once(&whole, &op.of_itself()).await? {
                done?;
                return Ok(true);
            }
            return match self.before_links(&from.found, &op).await? {
                Went::To(()) => Ok(true),
                Went::Link(dir) => {
                    if from.found.path == to.found.path {
                        *new = Target::Tree(dir.join([&to.name[..]])?);
                    }
                    *old = Target::Tree(dir.join([&from.name[..]])?);
                    Ok(false)
                }
            };
        }
        let (one, two) = (member.file.base(member.file.client()), other.file.base(other.file.client()));
        let places = ((&from.found.left[..], &from.name[..]), (&to.found.left[..], &to.name[..]));
        if let Some(()) = one.rename_at_once(places.0, two, places.1, false).await? {
            return Ok(true);
        }
        let Some((dir, to_dir)) = self.pass_links((old, &from), (new, &to)).await? else { return Ok(false) };
        if !dir.client().is_beside(to_dir.client()) {
            return Err(Error::OtherMount);
        }
        dir.rename(&from.name, &to_dir, &to.name).await?;
        Ok(true)
    }

    /// The two directories; `None`: a link leads to one, or to both, and the target has become the name in the one that it leads to.
    async fn pass_links(
        &self,
        (old, from): (&mut Target, &Parent),
        (new, to): (&mut Target, &Parent),
    ) -> Result<Option<(Node, Node)>, Error> {
        let (one, two) = (self.member_having(&from.found).await?, self.member_having(&to.found).await?);
        let legs = (self.leg(&from.found, one, Follow::All).await?, self.leg(&to.found, two, Follow::All).await?);
        match legs {
            (Went::To((dir, _)), Went::To((to_dir, _))) => Ok(Some((dir, to_dir))),
            (one, two) => {
                for (went, target, name) in [(one, old, &from.name), (two, new, &to.name)] {
                    if let Went::Link(dir) = went {
                        *target = Target::Tree(dir.join([&name[..]])?);
                    }
                }
                Ok(None)
            }
        }
    }

    /// Where a file of the one member of `from` gets its new name. In a union that is in the same member, and no member before it
    /// may have the name: it would go on being seen, and the renamed file never.
    async fn rename_target(&self, to: &Parent, from: &Found) -> Result<Found, Error> {
        let dir = &to.found;
        let is_old = |member: &Member<Mounted>| from.members.first().is_some_and(|old| old.file == member.file);
        let dir = if dir.members.len() > 1 && dir.left.is_empty() {
            let at = dir.members.iter().position(is_old).ok_or(Error::OtherMount)?;
            if first_having(&dir.members[..at], &to.name).await?.is_some() {
                return Err(Error::OtherMount);
            }
            dir.only(at)
        } else {
            self.only_member(dir, &to.name).await?
        };
        match dir.members.first() {
            None => Err(Error::NoServer),
            Some(member) if is_old(member) => Ok(dir),
            Some(_) => Err(Error::OtherMount),
        }
    }

    /// The directory with the one member that has it, or, where it is a union itself, that has `name` in it.
    async fn only_member(&self, dir: &Found, name: &[u8]) -> Result<Found, Error> {
        if dir.members.len() < 2 {
            return Ok(dir.clone());
        }
        let first = dir.left.first().map_or(name, Vec::as_slice);
        let missing = || if dir.left.is_empty() { Errno::ENOENT.into() } else { dir.missing(Errno::ENOENT.into()) };
        let at = first_having(&dir.members, first).await?.ok_or_else(missing)?;
        Ok(dir.only(at))
    }

    /// Goes to a file.
    pub async fn walk(&self, name: impl AsRef<[u8]>, follow: Follow) -> Result<Node, Error> {
        match self.target(name.as_ref())? {
            Target::Tree(path) => Ok(self.walk_path(path, follow).await?.0),
            target => {
                let found = self.find(&target).await?;
                self.step(&found, 0, follow).await
            }
        }
    }

    /// A mount point, or a name on the way to one, is neither removed nor renamed (S5, `Eismtpt`).
    fn not_mounted(&self, target: &Target) -> Result<(), Error> {
        match target {
            Target::Tree(path) if self.find_path(path).is_named => Err(Error::MountPoint),
            _ => Ok(()),
        }
    }

    /// The directory that holds a file; `of_root` is what is said of the root.
    async fn parent(&self, target: &Target, of_root: Errno) -> Result<Parent, Error> {
        match target {
            Target::Tree(path) => {
                let (dir, name) = path.parted().ok_or(of_root)?;
                Ok(Parent { found: self.find_path(&dir), name: name.to_vec() })
            }
            Target::Server(_) => {
                let mut found = self.find(target).await?;
                let name = found.left.pop().ok_or(of_root)?;
                Ok(Parent { found, name })
            }
        }
    }

    /// Where something new is made: of a union the first member that takes new files, if no member has the name; `None`: it is
    /// there.
    async fn maker(&self, target: &Target, dir: &Found) -> Result<Option<Found>, Error> {
        if let Target::Tree(path) = target
            && self.find_path(path).is_named
        {
            return Ok(None);
        }
        if dir.members.len() < 2 || !dir.left.is_empty() {
            return Ok(Some(dir.clone()));
        }
        match self.nameop(target, &Stat(Follow::NotLast)).await {
            Ok(_) => Ok(None),
            Err(e) if e.is_not_found() => {
                let member = dir.creates_in.and_then(|at| dir.members.get(at)).ok_or(Error::NoCreate)?;
                Ok(Some(Found { members: vec![member.clone()], ..dir.clone() }))
            }
            Err(e) => Err(e),
        }
    }

    /// Does something to a name of a directory. Where a symbolic link leads to the directory, `target` is the name in the one that it
    /// leads to, which may be a union, or have mount points.
    async fn in_dir<O: NameOp>(&self, target: &mut Target, does: Does, op: &O) -> Result<O::Output, Error> {
        for _ in 0..=LINKS_MAX {
            let Parent { found, name } = self.parent(target, Errno::EBUSY).await?;
            let found = match does {
                Does::Make => self.maker(target, &found).await?.ok_or(Errno::EEXIST)?,
                Does::Take => {
                    self.not_mounted(target)?;
                    if found.left.is_empty() { self.only_member(&found, &name).await? } else { found }
                }
            };
            match self.before_links(&found, op).await? {
                Went::To(done) => return Ok(done),
                Went::Link(dir) => *target = Target::Tree(dir.join([&name[..]])?),
            }
        }
        Err(client::Error::TooManyLinks.into())
    }

    /// Does it to the file, if no link is on the way to it.
    async fn before_links<O: NameOp>(&self, found: &Found, op: &O) -> Result<Went<O::Output>, Error> {
        Ok(match self.before_links_by(found, op).await? {
            Went::To((done, _)) => Went::To(done),
            Went::Link(path) => Went::Link(path),
        })
    }

    /// The same, and the member that it was done by.
    pub(super) async fn before_links_by<O: NameOp>(
        &self,
        found: &Found,
        op: &O,
    ) -> Result<Went<(O::Output, usize)>, Error> {
        let at = match self.ask(found, op).await? {
            Asked::Done(done) => return done.map(Went::To),
            Asked::Slow(at) => at,
        };
        match self.leg(found, at, op.follow()).await? {
            Went::To((node, member)) => Ok(Went::To((flagged::<O>(op.step(node).await?, &member), at))),
            Went::Link(path) => Ok(Went::Link(path)),
        }
    }

    /// See the [module](self).
    pub(super) async fn nameop<O: NameOp>(&self, target: &Target, op: &O) -> Result<O::Output, Error> {
        let found = self.find(target).await?;
        self.nameop_in(&found, op).await
    }

    async fn nameop_in<O: NameOp>(&self, found: &Found, op: &O) -> Result<O::Output, Error> {
        match self.ask(found, op).await? {
            Asked::Done(done) => Ok(done?.0),
            Asked::Slow(at) => self.slowly(found, at, op).await,
        }
    }

    /// Does it at once at the first member that has the file, if that goes.
    async fn ask<O: NameOp>(&self, found: &Found, op: &O) -> Result<Asked<O::Output>, Error> {
        let Found { members, left, .. } = found;
        // A union that is meant itself is its first member.
        let asked = if left.is_empty() { &members[..members.len().min(1)] } else { &members[..] };
        let alone = asked.len() < 2;
        let done = |done: Result<O::Output, client::Error>, at: usize| {
            Asked::Done(done.map(|it| (flagged::<O>(it, &members[at]), at)).map_err(|e| found.missing(e)))
        };
        if op.changes() || alone {
            for (at, member) in asked.iter().enumerate() {
                match try_member(member, left, op, (member.file.client(), alone)).await? {
                    Tried::Missing => {}
                    Tried::Done(it) => return Ok(done(it, at)),
                    Tried::Slow => return Ok(Asked::Slow(at)),
                }
            }
            return Err(found.missing(Errno::ENOENT.into()));
        }
        // Side by side: none waits for another. The answers are taken in order, and those behind the one that counts are not waited
        // for.
        let forks: Vec<Client> = asked.iter().map(|member| member.file.client().fork()).collect();
        let tries = asked.iter().zip(&forks).enumerate().map(|(at, (member, fork))| async move {
            if at > 0 && op.is_acted_on() {
                find_first(member, left, fork).await
            } else {
                try_member(member, left, op, (fork, false)).await
            }
        });
        let mut tries: FuturesOrdered<_> = tries.collect();
        for (at, member) in asked.iter().enumerate() {
            let Some(tried) = tries.next().await else { break };
            member.file.client().join(&forks[at]);
            match tried? {
                Tried::Missing => {}
                Tried::Done(it) => return Ok(done(it, at)),
                Tried::Slow if at > 0 && op.is_acted_on() => {
                    return Ok(match try_member(member, left, op, (member.file.client(), true)).await? {
                        Tried::Done(it) => done(it, at),
                        Tried::Slow | Tried::Missing => Asked::Slow(at),
                    });
                }
                Tried::Slow => return Ok(Asked::Slow(at)),
            }
        }
        Err(found.missing(Errno::ENOENT.into()))
    }

    async fn slowly<O: NameOp>(&self, found: &Found, at: usize, op: &O) -> Result<O::Output, Error> {
        let done = op.step(self.step(found, at, op.follow()).await?).await?;
        Ok(match found.members.get(at) {
            Some(member) => flagged::<O>(done, member),
            None => done,
        })
    }

    /// The file itself, by a member that is known to have it.
    async fn step(&self, found: &Found, at: usize, follow: Follow) -> Result<Node, Error> {
        match &found.path {
            Some(path) => Ok(self.walk_on(path.clone(), found.clone(), Some(at), follow).await?.0),
            None => {
                let member = found.members.get(at).ok_or(Errno::ENOENT)?;
                Ok(walk_names(member.file.base(member.file.client()), found.left.clone(), follow).await?)
            }
        }
    }

    /// Walks step by step, through links: the node, its path without links, of which what the member stands for is resolved,
    /// and the member.
    pub(super) async fn walk_path(&self, path: Path, follow: Follow) -> Result<(Node, Path, Member<Mounted>), Error> {
        let found = self.find_path(&path);
        self.walk_on(path, found, None, follow).await
    }

    async fn walk_on(
        &self,
        mut path: Path,
        mut found: Found,
        mut at: Option<usize>,
        follow: Follow,
    ) -> Result<(Node, Path, Member<Mounted>), Error> {
        for _ in 0..=LINKS_MAX {
            let at = match at.take() {
                Some(at) => at,
                None => self.member_having(&found).await?,
            };
            match self.leg(&found, at, follow).await? {
                Went::To((node, member)) => {
                    return Ok((node, path.with_resolved(path.len() - found.left.len()), member));
                }
                Went::Link(target) => path = target,
            }
            found = self.find_path(&path);
        }
        Err(client::Error::TooManyLinks.into())
    }

    /// Walks step by step by a member that is known to have the file, to the first link that is to be followed. Those of an address
    /// are its server's, and followed there.
    pub(super) async fn leg(
        &self,
        found: &Found,
        at: usize,
        follow: Follow,
    ) -> Result<Went<(Node, Member<Mounted>)>, Error> {
        let member = found.members.get(at).cloned().ok_or_else(|| found.missing(Errno::ENOENT.into()))?;
        let Some(path) = &found.path else {
            let node = walk_names(member.file.base(member.file.client()), found.left.clone(), follow).await?;
            return Ok(Went::To((node, member)));
        };
        let (node, count) = walk_to_link(&member, &found.left).await.map_err(|e| found.missing(e))?;
        let is_link = node.qid().kind.has(ninefold_proto::QidType::SYMLINK);
        if !is_link || count == found.left.len() && follow == Follow::NotLast {
            return Ok(Went::To((node, member)));
        }
        let target = node.read_link().await?;
        let resolved = path.len() - found.left.len();
        let above = path.prefix((resolved + count).saturating_sub(1));
        Ok(Went::Link(Path::parse(&target, &above)?.join(found.left[count..].iter().map(Vec::as_slice))?))
    }

    /// The first member that has the first name left, or the first.
    pub(super) async fn member_having(&self, found: &Found) -> Result<usize, Error> {
        let Some(first) = found.left.first().filter(|_| found.members.len() > 1) else { return Ok(0) };
        first_having(&found.members, first).await?.ok_or_else(|| found.missing(Errno::ENOENT.into()))
    }
}

/// The first of the members that has the name.
async fn first_having(members: &[Member<Mounted>], name: &[u8]) -> Result<Option<usize>, Error> {
    for (at, member) in members.iter().enumerate() {
        let base = member.file.base(member.file.client());
        match base.start().await?.walk(&[name]).await {
            Ok(_) => return Ok(Some(at)),
            Err(e) if is_missing(&e) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(None)
}

/// A directory that is a name of the table alone.
fn made_up_at(target: &Target) -> Result<Metadata, Error> {
    match target {
        Target::Tree(path) => Ok(made_up(path.as_bytes())),
        Target::Server(_) => Err(Error::NoServer),
    }
}

impl Found {
    /// With one of its members alone.
    fn only(&self, at: usize) -> Found {
        Found { members: self.members.get(at).cloned().into_iter().collect(), ..self.clone() }
    }

    /// What a server says of a name that is known to be one of the table.
    fn missing(&self, error: client::Error) -> Error {
        if self.is_named && is_missing(&error) { Error::NoServer } else { error.into() }
    }
}

/// Whether a member of a union does not have a name: the next is asked. Any other error tells nothing about that.
fn is_missing(error: &client::Error) -> bool {
    matches!(error.errno(), Errno::ENOENT | Errno::ENOTDIR)
}

/// What was done, with the flags of the member that it was done to.
fn flagged<O: NameOp>(done: O::Output, member: &Member<Mounted>) -> O::Output {
    if member.flags.cache { O::cached(done) } else { done }
}

/// `alone`: there is no other member to ask.
async fn try_member<O: NameOp>(
    member: &Member<Mounted>,
    left: &[Vec<u8>],
    op: &O,
    (client, alone): (&Client, bool),
) -> Result<Tried<O::Output>, Error> {
    let base = member.file.base(client);
    match base.at_once(left, op).await {
        Ok(Some(done)) => return Ok(Tried::Done(done)),
        Ok(None) if alone => return Ok(Tried::Slow),
        Ok(None) => {}
        Err(e) if is_missing(&e) && !alone => return Ok(Tried::Missing),
        Err(e) => return Ok(Tried::Done(Err(e))),
    }
    find_first(member, left, client).await
}

/// Whether the member has the first name.
async fn find_first<T>(member: &Member<Mounted>, left: &[Vec<u8>], client: &Client) -> Result<Tried<T>, Error> {
    let Some(first) = left.first() else { return Ok(Tried::Slow) };
    let start = match member.file.base(client).start().await {
        Ok(start) => start,
        Err(e) => return Ok(Tried::Done(Err(e))),
    };
    match start.walk(&[first]).await {
        Ok(_) => Ok(Tried::Slow),
        Err(e) if is_missing(&e) => Ok(Tried::Missing),
        Err(e) => Ok(Tried::Done(Err(e))),
    }
}

/// Walks to the end of the names, or to the first link: the file, and how many.
async fn walk_to_link(member: &Member<Mounted>, names: &[Vec<u8>]) -> Result<(Node, usize), client::Error> {
    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let client = member.file.client();
    let base = member.file.base(client);
    if names.is_empty() {
        return Ok((base.start().await?.walk(&[]).await?, 0));
    }
    let (mut node, mut done) = advance(base.start().await?, &names).await?;
    while done < names.len() && !node.qid().kind.has(ninefold_proto::QidType::SYMLINK) {
        let (next, count) = advance(node.start_with(client), &names[done..]).await?;
        (node, done) = (next, done + count);
    }
    Ok((node, done))
}
