//! `ninefold mv`: renames within one server.

use std::cell::RefCell;

use futures_util::future::join;
use ninefold::client::{Client, Error, FileType, Follow, Metadata, Mode, Node};
use ninefold::proto::attr::{SetAttr, SetTime};
use ninefold::proto::{Dialect, Errno, QidType};
use ninefold::transport::Address;

use super::cp;
use super::destination::{into_directory, new_name, same_tree};
use super::replace::{Replacement, pour};
use super::rm::{self, NAME_IT};
use super::target::{Target, is_refusal};
use super::{World, is_one_file};
use crate::args::Mv;
use crate::failure::Usage;
use crate::place::{Place, ends_in_dots, says_directory};

/// Permissions of a file while it is copied: nobody else looks in before it has those of the original.
const PRIVATE: u32 = 0o600;

pub async fn run(args: Mv, world: &World) -> anyhow::Result<()> {
    let addresses = args.urls.iter().map(remote).collect::<Result<Vec<_>, _>>()?;
    let Some((&to, sources)) = addresses.split_last() else { return Ok(()) };
    for from in sources {
        one_server(from, to)?;
    }
    let dialect = addresses.iter().find_map(|address| address.dialect);
    let tree = Address { dialect, ..to.clone() };
    let client = match sources {
        [from] if is_plain(&from.path) && is_plain(&to.path) => {
            let Some((client, moved)) = at_once(&tree, from, world).await else { return Ok(()) };
            if moved {
                return Ok(());
            }
            Some(client)
        }
        _ => world.client(&tree).await,
    };
    let Some(client) = client else { return Ok(()) };
    let moving = Moving { client, tree, to, into: sources.len() > 1, no_clobber: args.no_clobber, world };
    for from in sources {
        if let Err(trouble) = moving.one(from).await {
            let (address, e) = match trouble {
                Trouble::Source(e) => (*from, e),
                Trouble::Destination(e) => (to, e),
            };
            world.complain(address, "cannot move", e).await;
        }
    }
    Ok(())
}

/// Whether a path names something in a directory, be it one or not.
fn is_plain(path: &[u8]) -> bool {
    !says_directory(path)
}

/// Renames where nothing has the new name, which needs no look at anything first. What is refused has done nothing: then
/// whatever stands in the way is looked at.
async fn at_once(tree: &Address, from: &Address, world: &World) -> Option<(Client, bool)> {
    // Told if the command is cut short from when it is asked for, or nothing but a refusal came.
    let asked = RefCell::new(None);
    let rename = async |client: &Client| {
        if client.dialect() == Dialect::Linux && !client.version().is_n1() {
            return free_name(client, &from.path, &tree.path).await.map(Some);
        }
        if client.version().is_n1() {
            asked.borrow_mut().get_or_insert_with(|| world.temporaries.enter(moved_perhaps(from, tree)));
        }
        client.rename_new(&from.path, &tree.path).await.map(|()| None)
    };
    let moved = world.first(tree, rename).await;
    let entry = asked.into_inner();
    let is_known = moved.as_ref().is_none_or(|(_, moved)| moved.as_ref().err().is_none_or(is_refusal));
    if let Some(entry) = entry
        && is_known
    {
        // Done or not, or complained of with all that is known.
        entry.gone();
    }
    let (client, moved) = moved?;
    let moved = match moved {
        Ok(None) => Ok(()),
        Ok(Some(Free { from: (dir, name), to: (new_dir, new_name) })) => {
            let work = async move { dir.rename(&name, &new_dir, &new_name).await };
            // A rename is done or not, whoever waits for it.
            let undo = async { Ok(()) };
            world.temporaries.see_through(moved_perhaps(from, tree), &client, work, undo).await
        }
        Err(e) => Err(e),
    };
    settled(client, moved, from, world).await
}

/// What came of it: a refusal leaves all to be looked at.
async fn settled(client: Client, moved: Result<(), Error>, from: &Address, world: &World) -> Option<(Client, bool)> {
    match moved {
        Ok(()) => Some((client, true)),
        Err(e) if is_refusal(&e) => Some((client, false)),
        Err(e) => {
            world.complain(from, "cannot move", e).await;
            None
        }
    }
}

/// A file that is to be renamed, and the name for it, which nothing had: each in its directory.
struct Free {
    from: (Node, Vec<u8>),
    to: (Node, Vec<u8>),
}

/// The same by .L, which cannot ask that nothing be replaced: it is looked for first, alone, for a walk of more names than one
/// that comes short does not say why. `EEXIST` where something has the name, or where it cannot be told at once.
async fn free_name(client: &Client, from: &[u8], to: &[u8]) -> Result<Free, Error> {
    let (source, target) = (client.fork(), client.fork());
    let (from, to) = join(source.walk_parent(from), target.walk_parent(to)).await;
    client.join(&source);
    client.join(&target);
    let ((from, name), (to, new_name)) = (from?, to?);
    let to = to.with_client(client);
    match to.walk(&[&new_name]).await {
        Err(e) if e.is_not_found() => Ok(Free { from: (from.with_client(client), name), to: (to, new_name) }),
        _ => Err(Errno::EEXIST.into()),
    }
}

fn moved_perhaps(from: &Address, to: &Address) -> String {
    format!("{from}: nobody knows whether it was moved to {to}: look for both")
}

fn remote(place: &Place) -> anyhow::Result<&Address> {
    match place {
        Place::Remote(address) => Ok(address),
        Place::Local(path) => Err(Usage::error(format!(
            "'{}' is a file of this machine: use mv(1) among such files, and ninefold cp between here and a server",
            path.display()
        ))),
    }
}

fn one_server(from: &Address, to: &Address) -> anyhow::Result<()> {
    if same_tree(from, to) {
        return Ok(());
    }
    Err(Usage::error(format!(
        "{from} and {to} are not of one tree of one server: copy with ninefold cp -r -p, then remove with ninefold rm -r"
    )))
}

/// What failed, and with which of the two.
enum Trouble {
    Source(Error),
    Destination(Error),
}

struct Moving<'a> {
    client: Client,
    /// That it is connected to.
    tree: Address,
    to: &'a Address,
    /// The destination must be a directory.
    into: bool,
    no_clobber: bool,
    world: &'a World,
}

impl Moving<'_> {
    async fn one(&self, address: &Address) -> Result<(), Trouble> {
        if ends_in_dots(&address.path) {
            self.world.report.complain(format_args!("{address}: cannot move: '.' and '..' are no names: {NAME_IT}"));
            return Ok(());
        }
        let from = match Target::named(&self.client, address).await {
            Err(e) if e.errno() == Errno::EBUSY => {
                self.world.report.complain(format_args!("{address}: cannot move: it is the root of the tree"));
                return Ok(());
            }
            other => other.map_err(Trouble::Source)?,
        };
        let node = from.walk().await.map_err(Trouble::Source)?;
        let is_dir = node.qid().is_dir();
        if says_directory(&address.path) && !is_dir {
            return Err(Trouble::Source(Errno::ENOTDIR.into()));
        }
        let Some(to) = self.destination(&from.name, is_dir).await.map_err(Trouble::Destination)? else { return Ok(()) };
        if to.own_address().path == from.own_address().path {
            return self.refuse_one_file(address);
        }
        let own = from.own_address().path;
        if is_dir && to.own_address().path.strip_prefix(&own[..]).is_some_and(|below| below.starts_with(b"/")) {
            self.world.report.complain(format_args!(
                "{address}: cannot move: a directory is not moved into itself, {}",
                to.own_address()
            ));
            return Ok(());
        }
        let mut respelt = false;
        if let Some(old) = to.find().await.map_err(Trouble::Destination)? {
            if self.no_clobber {
                return Ok(());
            }
            respelt = is_one_file(&node, &old).await.map_err(Trouble::Source)?;
            if respelt && !is_other_spelling(&from, &node, &to).await.map_err(Trouble::Source)?
                || self.leads_to(address, &node, &old).await.map_err(Trouble::Source)?
            {
                return self.refuse_one_file(address);
            }
            match (node.qid().is_dir(), old.qid().is_dir()) {
                (true, false) => return Err(Trouble::Destination(Errno::ENOTDIR.into())),
                (false, true) => return Err(Trouble::Destination(Errno::EISDIR.into())),
                _ => {}
            }
        }
        match self.rename(&from, &to).await {
            Err(e) if respelt => Err(Trouble::Destination(e)),
            Err(e) if crosses(&e) && node.qid().is_dir() => {
                let path = node.qid().path;
                drop(node);
                self.copy_tree(from, path, to).await
            }
            Err(e) if crosses(&e) => self.copy(&from, node, &to).await,
            other => other.map_err(Trouble::Destination),
        }
    }

    /// As mv(1) does: of several hard links too, because two that each remove the other's name leave none.
    fn refuse_one_file(&self, address: &Address) -> Result<(), Trouble> {
        self.world.report.complain(format_args!(
            "{address}: cannot move: both names are of one file: remove the one that is too many with ninefold rm"
        ));
        Ok(())
    }

    /// Whether the source is a symbolic link to the file that it would replace: nothing but the link would be left.
    async fn leads_to(&self, address: &Address, node: &Node, old: &Node) -> Result<bool, Error> {
        if !node.qid().kind.has(QidType::SYMLINK) || old.qid().kind.has(QidType::SYMLINK) {
            return Ok(false);
        }
        match self.client.walk(&address.path, Follow::All).await {
            Ok(end) => is_one_file(&end, old).await,
            Err(_) => Ok(false),
        }
    }

    /// A copy was made, and the source is better not removed.
    fn keep(&self, from: &Target, to: &Target) -> Result<(), Trouble> {
        let (from, to) = (from.own_address(), to.own_address());
        self.world.report.complain(format_args!(
            "{from}: copied to {to}, and not removed: it is no longer what was copied: compare the two, then remove one \
             with ninefold rm"
        ));
        Ok(())
    }

    async fn destination(&self, base: &[u8], is_dir: bool) -> Result<Option<Target>, Error> {
        match into_directory(&self.client, self.to, base).await? {
            Some(to) => Ok(Some(to)),
            None if self.into => {
                self.world.report.complain(format_args!(
                    "{}: several files are moved into a directory, and it is none: make it with ninefold mkdir",
                    self.to
                ));
                Ok(None)
            }
            None => new_name(&self.client, self.to, is_dir).await.map(Some),
        }
    }

    async fn rename(&self, from: &Target, to: &Target) -> Result<(), Error> {
        let temporaries = self.world.temporaries.clone();
        let warning = moved_perhaps(&from.own_address(), &to.own_address());
        let (from, to) = (from.clone(), to.clone());
        let work = async move { to.take(&temporaries, &from.dir, &from.name).await };
        // A rename is done or not, whoever waits for it.
        let undo = async { Ok(()) };
        self.world.temporaries.see_through(warning, &self.client, work, undo).await
    }

    /// What mv(1) does across file systems: a copy, then the original removed.
    async fn copy(&self, from: &Target, node: Node, to: &Target) -> Result<(), Trouble> {
        let old = node.metadata().await.map_err(Trouble::Source)?;
        if old.kind != FileType::File {
            drop(node);
            return self.copy_tree(from.clone(), old.qid.path, to.clone()).await;
        }
        let source = node.open(Mode::READ).await.map_err(Trouble::Source)?;
        let copy = Replacement::anew(&self.world.temporaries, to, PRIVATE).await.map_err(Trouble::Destination)?;
        let made = async {
            pour(&source, &old, &mut copy.writer()).await?;
            make_alike(&copy, &old).await
        };
        if let Err(e) = made.await {
            // What became of the temporary file is told at the end.
            let _ = copy.abandon().await;
            return Err(Trouble::Destination(e));
        }
        copy.commit(true).await.map_err(Trouble::Destination)?;
        drop(source);
        // What has the name now may be the copy itself, or be newer than what was copied.
        let now = async { from.walk().await?.metadata().await };
        if !now.await.map_err(Trouble::Source)?.is_of_same_file(&old) {
            return self.keep(from, to);
        }
        from.dir.unlink(&from.name, false).await.map_err(Trouble::Source)
    }
}

impl Moving<'_> {
    /// The same for a directory, or what is neither: copied under a temporary name, which then is renamed. `path` is the
    /// source's, of its qid.
    async fn copy_tree(&self, from: Target, path: u64, to: Target) -> Result<(), Trouble> {
        if is_full(&to).await.map_err(Trouble::Destination)? {
            return Err(Trouble::Destination(Errno::ENOTEMPTY.into()));
        }
        let (temporary, shown) = to.temporary();
        let copy = Target { name: temporary, ..to.clone() };
        let entry = self
            .world
            .temporaries
            .enter(format!("{shown}: a part of a copy may be left under this name: remove it with ninefold rm -r"));
        let before = self.world.report.failures();
        let copied = cp::whole(self.address_of(&from), self.address_of(&copy), self.world).await;
        if let Err(e) = copied {
            self.world.report.complain(format_args!("{}: cannot copy it: {e:#}", from.own_address()));
        }
        // What is not whole is not moved.
        if self.world.report.failures() > before {
            if self.remove(copy).await.map_err(Trouble::Destination)? {
                entry.gone();
            }
            return Ok(());
        }
        if let Err(e) = self.rename(&copy, &to).await {
            if matches!(self.remove(copy).await, Ok(true)) {
                entry.gone();
            }
            return Err(Trouble::Destination(e));
        }
        entry.gone();
        // As for a file.
        let (now, made) = (from.walk().await.map_err(Trouble::Source)?, to.walk().await.map_err(Trouble::Destination)?);
        if now.qid().path != path || is_one_file(&now, &made).await.map_err(Trouble::Source)? {
            return self.keep(&from, &to);
        }
        drop((now, made));
        self.remove(from).await.map(drop).map_err(Trouble::Source)
    }

    /// As this command's connection has it, whichever dialect the user gave with which of the addresses.
    fn address_of(&self, target: &Target) -> Address {
        let Address { aname, dialect, .. } = self.tree.clone();
        Address { aname, dialect, ..target.own_address() }
    }

    /// Whether it is gone; what stood in the way was told.
    async fn remove(&self, at: Target) -> Result<bool, Error> {
        match at.find().await? {
            Some(node) if node.qid().is_dir() => Ok(rm::tree(at, self.world).await),
            Some(_) => at.dir.unlink(&at.name, false).await.map(|()| true),
            None => Ok(true),
        }
    }
}

/// Whether two names of one file can only be one entry of one directory, on a file system that does not tell their
/// spellings apart (`a` and `A`): a rename changes the spelling, and nothing must be removed.
async fn is_other_spelling(from: &Target, node: &Node, to: &Target) -> Result<bool, Error> {
    let one_directory = from.dir.qid().path == to.dir.qid().path && from.name != to.name;
    // In 9P2000 it may be a link that looks like what it leads to.
    if !one_directory || node.client().dialect() == Dialect::Plan9 {
        return Ok(false);
    }
    let metadata = node.metadata().await?;
    Ok(metadata.kind == FileType::Dir || metadata.nlink == Some(1))
}

/// Whether a directory that is to be replaced is not empty, which no copy changes.
async fn is_full(to: &Target) -> Result<bool, Error> {
    match to.find().await? {
        Some(node) if node.qid().is_dir() => Ok(node.into_read_dir().await?.next().await?.is_some()),
        _ => Ok(false),
    }
}

/// Whether a rename failed for leading from one directory, or one file system, to another.
fn crosses(e: &Error) -> bool {
    matches!(e, Error::Unsupported { .. }) || e.errno() == Errno::EXDEV
}

/// Owner, permissions and times of the original. Where the owner may not be given, the set-ID bits are left out, as mv(1)
/// does.
async fn make_alike(copy: &Replacement, old: &Metadata) -> Result<(), Error> {
    let new = copy.file().metadata().await?;
    // 9P2000 has no other bits.
    let mut mode = if copy.file().client().dialect() == Dialect::Plan9 { old.mode & 0o777 } else { old.mode };
    if (new.uid, new.gid) != (old.uid, old.gid) {
        match copy.file().set(&SetAttr { uid: old.uid, gid: old.gid, ..SetAttr::default() }).await {
            Err(e) if matches!(e.errno(), Errno::EPERM | Errno::EACCES) => mode &= 0o1777,
            other => other?,
        }
    }
    let change = SetAttr {
        mode: Some(mode),
        atime: Some(SetTime::To(old.accessed)),
        mtime: Some(SetTime::To(old.modified)),
        ..SetAttr::default()
    };
    copy.file().set(&change).await
}
