//! A name space that is used: its table, its dot, and the servers that its files are of.
//!
//! [`Namespace::mount`], [`bind`](Namespace::bind) and [`unmount`](Namespace::unmount) change the table, [`Namespace::run`] does what
//! a file asks for, and the operations on names are in [`nameop`](super::nameop). The table is asked with no message; a change of it asks the
//! servers what the names stand for, and whether the user may walk there.
//!
//! Lock: the state, never held across an await; below it those of connections, which a mounted file takes when it is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::dot::Dot;
use super::error::Error;
use super::file::{Line, Op, show};
use super::mounted::Mounted;
use super::mtab::{Flags, Member, Mtab, Order, Source};
use super::path::Path;
use super::servers::Servers;
use crate::client::nameop::Stat;
use crate::client::{Client, FileType, Follow, Options};
use crate::transport::Address;

/// Many servers as one tree. A clone is another handle of the same; [`Namespace::private`] is a copy.
#[derive(Clone, Debug)]
pub struct Namespace {
    pub(super) servers: Arc<Servers>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug)]
struct State {
    table: Mtab<Mounted>,
    dot: Dot<Mounted>,
}

/// What a name is.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Tree(Path),
    /// A file of a server, whatever is mounted anywhere.
    Server(Address),
}

/// What is to be done with what a name of the table stands for: the walk is not made yet.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Where it is walked from, the first that has it.
    pub members: Vec<Member<Mounted>>,
    pub left: Vec<Vec<u8>>,
    /// Whether the name is a mount point, or leads to one.
    pub is_named: bool,
    /// The first that takes new files, if the name itself is a union; else nothing.
    pub creates_in: Option<usize>,
    /// `None`: an address.
    pub path: Option<Path>,
}

impl Namespace {
    /// A name space without servers: nothing is there but the root's name.
    pub fn new(options: Options) -> Namespace {
        let state = State { table: Mtab::new(), dot: Dot::new(Path::root()) };
        Namespace { servers: Arc::new(Servers::new(options)), state: Arc::new(Mutex::new(state)) }
    }

    /// A private copy: changes of either are not seen in the other. Connections are shared.
    pub fn private(&self) -> Namespace {
        let state = self.state().clone();
        Namespace { servers: self.servers.clone(), state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table as it stands.
    pub fn table(&self) -> Mtab<Mounted> {
        self.state().table.clone()
    }

    /// The path of dot, where names begin that do not begin with `/`.
    pub fn dot(&self) -> Path {
        self.state().dot.path().clone()
    }

    /// The connections that were made.
    pub fn clients(&self) -> Vec<Client> {
        self.servers.clients()
    }

    /// The table as a file that makes it.
    pub fn show(&self) -> Vec<u8> {
        show(&self.table(), |mounted| mounted.address().to_string().into_bytes())
    }

    /// Whether data of a file of this name may be cached and read ahead, though its qid.version is 0 (`-C`).
    pub async fn may_cache(&self, name: impl AsRef<[u8]>) -> Result<bool, Error> {
        match self.target(name.as_ref())? {
            // A server is asked: which member of a union has the file, and where a link leads, the table does not know.
            Target::Tree(path) => match self.walk_path(path, Follow::All).await {
                Ok((_, _, member)) => Ok(member.flags.cache),
                Err(Error::NoServer) => Ok(false),
                Err(e) => Err(e),
            },
            Target::Server(_) => Ok(false),
        }
    }

    /// What `name` means: an address, or a path from the root or from dot. `HOST:/PATH` is a path.
    pub(super) fn target(&self, name: &[u8]) -> Result<Target, Error> {
        const SCHEMES: [&[u8]; 4] = [b"9p://", b"9ps://", b"9p+ssh://", b"9p+unix:"];
        if SCHEMES.iter().any(|scheme| name.starts_with(scheme)) {
            let text = String::from_utf8_lossy(name);
            return Ok(Target::Server(text.parse()?));
        }
        Ok(Target::Tree(Path::parse(name, &self.dot())?))
    }

    /// A path of the tree: nothing is mounted on an address.
    fn tree_path(&self, name: &[u8]) -> Result<Path, Error> {
        match self.target(name)? {
            Target::Tree(path) => Ok(path),
            Target::Server(_) => Err(Error::OnAddress),
        }
    }

    /// Where a name is walked from: asks the table, and a server only where the name is the address of one that was not used
    /// before.
    pub(super) async fn find(&self, target: &Target) -> Result<Found, Error> {
        match target {
            Target::Tree(path) => Ok(self.find_path(path)),
            Target::Server(address) => {
                let member = Member { file: self.root_of(address).await?, flags: Flags::default() };
                let left = crate::client::components(&address.path).map_err(Error::from)?;
                Ok(Found { members: vec![member], left, is_named: false, creates_in: Some(0), path: None })
            }
        }
    }

    pub(super) fn find_path(&self, path: &Path) -> Found {
        self.find_from(path, true)
    }

    /// The same from what is mounted alone, so that two paths of one mount are walked from the same file.
    pub(super) fn find_mounted(&self, path: &Path) -> Found {
        self.find_from(path, false)
    }

    fn find_from(&self, path: &Path, or_dot: bool) -> Found {
        let state = self.state();
        let found = state.table.resolve(path);
        let is_named = found.is_named();
        let dot = state.dot.serves(&state.table, path).filter(|_| or_dot);
        let (members, resolved) = match dot {
            Some(member) => (vec![member.clone()], state.dot.path().len()),
            None => (found.members.to_vec(), found.names),
        };
        let chosen = found.creates_in().map(std::ptr::from_ref);
        let creates_in = found.members.iter().position(|member| Some(std::ptr::from_ref(member)) == chosen);
        let path = path.with_resolved(resolved);
        let left = path.left().map(<[u8]>::to_vec).collect();
        Found { members, left, is_named, creates_in, path: Some(path) }
    }

    /// The root of a server's tree.
    async fn root_of(&self, address: &Address) -> Result<Mounted, Error> {
        let tree = Address { path: Vec::new(), ..address.clone() };
        let rooted = async { Mounted::root(self.servers.client(&tree).await?, tree.clone()).await };
        rooted.await.map_err(|error| Error::Server { address: Box::new(address.clone()), error })
    }

    /// The file at an address.
    async fn reach(&self, address: &Address) -> Result<Mounted, Error> {
        let root = self.root_of(address).await?;
        let names = crate::client::components(&address.path).map_err(Error::from)?;
        if names.is_empty() {
            return Ok(root);
        }
        let node = root.client().walk(&address.path, Follow::All).await;
        let node = node.map_err(|error| Error::Server { address: Box::new(address.clone()), error })?;
        Ok(root.below(node, names.iter().map(Vec::as_slice)))
    }

    /// Mounts the file at an address, most often the root of a server's tree, at `old`. There need be nothing of that name. Where
    /// there is, the user must be allowed to walk to it (S5, "The mount table").
    pub async fn mount(
        &self,
        server: &Address,
        old: impl AsRef<[u8]>,
        (order, flags): (Order, Flags),
    ) -> Result<(), Error> {
        let old = self.tree_path(old.as_ref())?;
        let (file, there) = join(self.reach(server), self.there(&old, order)).await;
        let (file, there) = (file?, there?);
        there.fits(file.qid().is_dir(), order)?;
        self.change(|table| table.mount(file, &old, (order, flags), there.member)).await
    }

    /// Gives the file `new`, and what is mounted below it, the name `old` too. Of a union all members are bound, in order.
    pub async fn bind(
        &self,
        new: impl AsRef<[u8]>,
        old: impl AsRef<[u8]>,
        (order, flags): (Order, Flags),
    ) -> Result<(), Error> {
        let old = self.tree_path(old.as_ref())?;
        let source = match self.target(new.as_ref())? {
            Target::Tree(new) if new == old => return Ok(()),
            target => self.source(&target).await?,
        };
        let there = self.there(&old, order).await?;
        let is_dir = source.members().first().is_none_or(|member| member.file.qid().is_dir());
        there.fits(is_dir, order)?;
        self.change(|table| table.bind(source, &old, (order, flags), there.member)).await
    }

    /// What a bind of a name copies.
    async fn source(&self, target: &Target) -> Result<Source<Mounted>, Error> {
        let path = match target {
            Target::Server(address) => return Ok(Source::file(self.reach(address).await?, Flags::default())),
            Target::Tree(path) => path,
        };
        if let Some(source) = self.state().table.source(path) {
            return Ok(source);
        }
        let member = match self.walked(path).await {
            Ok(member) => Some(member),
            Err(Error::NoServer) => None,
            Err(e) => return Err(e),
        };
        let file = member.map(|member| (member.file, Flags { create: false, ..member.flags }));
        Ok(self.state().table.source_of(path, file))
    }

    /// Takes away what is mounted at `old`, or of it only the files that `new` names.
    pub async fn unmount(&self, new: Option<&[u8]>, old: impl AsRef<[u8]>) -> Result<(), Error> {
        let old = self.tree_path(old.as_ref())?;
        let files = match new {
            None => None,
            Some(new) => {
                let target = self.target(new)?;
                let lost = self.lost_members(&target, &old);
                Some(if lost.is_empty() {
                    let source = self.source(&target).await?;
                    source.members().iter().map(|member| member.file.clone()).collect()
                } else {
                    lost
                })
            }
        };
        self.change(|table| table.unmount(files.as_deref(), &old)).await
    }

    /// The members of `old` whose connections are over, and which lie where `target` does: no server tells any more that they are the
    /// same file, but their addresses do.
    fn lost_members(&self, target: &Target, old: &Path) -> Vec<Mounted> {
        let table = self.table();
        let addresses: Vec<Address> = match target {
            Target::Server(address) => vec![address.clone()],
            Target::Tree(path) => {
                let found = table.resolve(path);
                let path = path.with_resolved(found.names);
                found.members.iter().map(|member| member.file.address_below(path.left())).collect()
            }
        };
        let at = table.resolve(old);
        let members = if at.is_mount_point() { at.members } else { &[] };
        let is_lost = |file: &&Mounted| file.client().is_over() && addresses.iter().any(|address| file.is_at(address));
        members.iter().map(|member| &member.file).filter(is_lost).cloned().collect()
    }

    /// Forgets all mounts but that of the root.
    pub async fn clear(&self) -> Result<(), Error> {
        self.change(|table| {
            table.clear();
            Ok(())
        })
        .await
    }

    /// Makes a directory dot.
    pub async fn cd(&self, dir: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = self.tree_path(dir.as_ref())?;
        let found = self.find_path(&path);
        if !found.is_named {
            match self.nameop(&Target::Tree(path.clone()), &Stat(Follow::All)).await {
                Ok(metadata) if metadata.kind != FileType::Dir => {
                    return Err(ninefold_proto::Errno::ENOTDIR.into());
                }
                // A link to a name that is a directory of the table alone.
                Ok(_) | Err(Error::NoServer) => {}
                Err(e) => return Err(e),
            }
        }
        self.state().dot = Dot::new(path);
        self.settle_dot().await;
        Ok(())
    }

    /// Does what the lines of a file ask for, one after another; the servers that they name are connected to together before. An
    /// error tells its line, and those before it are done.
    pub async fn run(&self, lines: &[Line]) -> Result<(), Error> {
        let servers = lines.iter().filter_map(|line| server_of(&line.op));
        // What fails is asked again, and told, when its line comes.
        let connected: FuturesUnordered<_> = servers
            .map(|address| async move { drop(self.servers.client(&Address { path: Vec::new(), ..address }).await) })
            .collect();
        connected.collect::<Vec<()>>().await;
        for line in lines {
            self.run_one(&line.op).await.map_err(|e| Error::Line(line.at.clone(), Box::new(e)))?;
        }
        Ok(())
    }

    async fn run_one(&self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Mount { server, aname, old, how } => {
                self.mount(&mount_address(server, aname.as_deref())?, old, *how).await
            }
            Op::Bind { new, old, how } => self.bind(new, old, *how).await,
            Op::Unmount { new, old } => self.unmount(new.as_deref(), old).await,
            Op::Clear => self.clear().await,
            Op::Cd(dir) => self.cd(dir).await,
        }
    }

    /// What a mount over `old` meets: a mount point is a name, and needs no look.
    async fn there(&self, old: &Path, order: Order) -> Result<There, Error> {
        let found = self.find_path(old);
        let is_mount_point = found.is_named && found.left.is_empty() && !found.members.is_empty();
        if is_mount_point || found.members.is_empty() {
            let is_dir = found.members.first().map(|member| member.file.qid().is_dir());
            return Ok(There { is_dir, member: None });
        }
        let looked = match order {
            Order::Replace => {
                let kind = self.nameop(&Target::Tree(old.clone()), &Stat(Follow::All)).await;
                kind.map(|metadata| There { is_dir: Some(metadata.kind == FileType::Dir), member: None })
            }
            Order::Before | Order::After => self
                .walked(old)
                .await
                .map(|member| There { is_dir: Some(member.file.qid().is_dir()), member: Some(member) }),
        };
        match looked {
            // The name is made up: there need be no directory to mount on.
            Err(e) if matches!(e, Error::NoServer) || e.is_not_found() => Ok(There { is_dir: None, member: None }),
            looked => looked,
        }
    }

    /// A file that is to be held by a name, in the first member that has it.
    async fn walked(&self, path: &Path) -> Result<Member<Mounted>, Error> {
        let (node, path, member) = self.walk_path(path.clone(), Follow::All).await?;
        let file = member.file.below(node, path.left());
        Ok(Member { file, flags: member.flags })
    }

    async fn change(
        &self,
        change: impl FnOnce(&mut Mtab<Mounted>) -> Result<(), super::mtab::Refused>,
    ) -> Result<(), Error> {
        // On a copy, which costs nothing: what the table lets go of is dropped outside the lock.
        let old = {
            let mut state = self.state();
            let old = state.table.clone();
            change(&mut state.table)?;
            old
        };
        drop(old);
        self.settle_dot().await;
        Ok(())
    }

    /// Resolves dot again, which the table does not change by itself. Where it leads nowhere, or through a symbolic link, the table
    /// is asked for each name.
    async fn settle_dot(&self) {
        let (path, generation) = {
            let state = self.state();
            (state.dot.path().clone(), state.table.generation())
        };
        // At the root or a mount point the table says as much.
        if self.find_path(&path).left.is_empty() {
            return;
        }
        let Ok((node, reached, member)) = self.walk_path(path.clone(), Follow::All).await else { return };
        // Behind a link the file has another path, which a link's `..` and the table are asked for; dot's own is not it.
        if reached != path {
            return;
        }
        let file = member.file.below(node, reached.left());
        let mut state = self.state();
        if *state.dot.path() == path {
            state.dot.settle(Member { file, flags: member.flags }, generation);
        }
    }
}

/// What a mount meets.
struct There {
    /// `None`: nothing.
    is_dir: Option<bool>,
    member: Option<Member<Mounted>>,
}

impl There {
    fn fits(&self, new_is_dir: bool, order: Order) -> Result<(), Error> {
        if order != Order::Replace && !(new_is_dir && self.is_dir != Some(false)) {
            return Err(Error::NotUnion);
        }
        if self.is_dir.is_some_and(|is_dir| is_dir != new_is_dir) { Err(Error::OtherKind) } else { Ok(()) }
    }
}

/// The address that a mount names, with its aname: that of the line, if it has one.
pub(super) fn mount_address(server: &[u8], aname: Option<&[u8]>) -> Result<Address, Error> {
    let mut address: Address = String::from_utf8_lossy(server).parse()?;
    if let Some(aname) = aname {
        address.aname = Some(aname.to_vec());
    }
    Ok(address)
}

fn server_of(op: &Op) -> Option<Address> {
    match op {
        Op::Mount { server, aname, .. } => mount_address(server, aname.as_deref()).ok(),
        _ => None,
    }
}
