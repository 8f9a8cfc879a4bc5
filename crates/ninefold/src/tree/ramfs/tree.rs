//! Changes of the tree: making, linking, renaming and removing, each checked for the user and done as a whole.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ninefold_proto::{Dialect, Errno};

use super::budget::{Budget, Charge};
use super::content::Content;
use super::ids::Ids;
use super::names::{ENTRY_BYTES, Names, ROOT};
use super::node::{Birth, Body, Node, S_ISGID, S_ISVTX, W, X, in_group};
use crate::server::User;
use crate::tree::locks::LockTable;

/// Bytes that a node is reckoned to take beside its content and its names.
const NODE_BYTES: u64 = 512;

/// The path of the root's node.
const ROOT_PATH: u64 = 1;

/// What all files of a tree share.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) budget: Arc<Budget>,
    names: RwLock<Names>,
    pub(super) locks: Arc<LockTable>,
    pub(super) ids: Ids,
    last_path: AtomicU64,
    last_file: AtomicU64,
}

/// What a new node is to be.
pub(super) enum New<'a> {
    Plain { dm: u32 },
    Dir,
    Symlink(&'a [u8]),
    Special { kind: u32, rdev: u64 },
}

impl Tree {
    pub(super) fn new(limit: u64, birth: Birth) -> Tree {
        let budget = Budget::new(limit);
        let charge = || Charge::nothing(&budget);
        let root = Arc::new(Node::new(ROOT_PATH, Body::Dir, birth, charge()));
        Tree {
            names: RwLock::new(Names::new(root, charge())),
            locks: LockTable::new(),
            ids: Ids::default(),
            last_path: AtomicU64::new(ROOT_PATH),
            last_file: AtomicU64::new(0),
            budget,
        }
    }

    pub(super) fn names(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn names_mut(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn root(&self) -> Arc<Node> {
        self.names().entry(ROOT).expect("the root stays").node.clone()
    }

    /// A number for an open file, unique in the tree.
    pub(super) fn new_file(&self) -> u64 {
        self.last_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a file in `dir`; its entry and node. `gid` as the client asks for it.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn make(
        &self,
        names: &mut Names,
        user: &User,
        dialect: Dialect,
        dir: &Node,
        name: &[u8],
        new: New<'_>,
        mode: u32,
        gid: Option<u32>,
    ) -> Result<(u64, Arc<Node>), Errno> {
        self.check_new(names, user, dir, name)?;
        let path = self.last_path.fetch_add(1, Ordering::Relaxed) + 1;
        let (inherits, dir_gid) = {
            let meta = dir.meta();
            (meta.perm & S_ISGID != 0, meta.gid)
        };
        // 9P2000 gives a new file its directory's group (open(5)); .L its creator's, as the directory's set-gid bit says.
        let gid = match gid {
            _ if inherits || dialect != Dialect::Linux => dir_gid,
            Some(gid) if user.uid == 0 || in_group(user, gid) => gid,
            _ => user.gid,
        };
        let mut perm = mode;
        let (body, bytes, dm) = match new {
            New::Plain { dm } => (Body::Plain(RwLock::new(Content::new(&self.budget))), 0, dm),
            New::Dir => {
                perm |= if inherits { S_ISGID } else { 0 };
                (Body::Dir, 0, 0)
            }
            New::Symlink(target) => {
                perm = 0o777;
                (Body::Symlink(target.into()), target.len() as u64, 0)
            }
            New::Special { kind, rdev } => (Body::Special { kind, rdev }, 0, 0),
        };
        let node_charge = Charge::new(&self.budget, NODE_BYTES + bytes)?;
        let entry_charge = self.charge_name(name)?;
        let node = Arc::new(Node::new(path, body, Birth { uid: user.uid, gid, perm, dm }, node_charge));
        let id = names.insert(dir.path, name, node.clone(), entry_charge);
        let mut meta = dir.meta();
        meta.modified(user);
        meta.nlink += u64::from(node.is_dir());
        Ok((id, node))
    }

    /// Another name for `node`.
    pub(super) fn link(&self, user: &User, node: &Arc<Node>, dir: &Node, name: &[u8]) -> Result<(), Errno> {
        let mut names = self.names_mut();
        if node.is_dir() {
            return Err(Errno::EPERM);
        }
        self.check_new(&names, user, dir, name)?;
        if node.meta().nlink == 0 {
            return Err(Errno::ENOENT);
        }
        let charge = self.charge_name(name)?;
        names.insert(dir.path, name, node.clone(), charge);
        let mut meta = node.meta();
        meta.nlink += 1;
        meta.changed();
        drop(meta);
        dir.meta().modified(user);
        Ok(())
    }

    /// Removes a name. `dir`: whether it must be a directory's, where that matters.
    pub(super) fn remove(&self, names: &mut Names, user: &User, id: u64, dir: Option<bool>) -> Result<(), Errno> {
        let entry = names.entry(id).ok_or(Errno::ENOENT)?;
        if id == ROOT {
            return Err(Errno::EBUSY);
        }
        let above = self.node_of(names, entry.dir)?;
        self.check_remove(user, &above, &entry.node)?;
        match dir {
            Some(true) if !entry.node.is_dir() => return Err(Errno::ENOTDIR),
            Some(false) if entry.node.is_dir() => return Err(Errno::EISDIR),
            _ => {}
        }
        if entry.node.is_dir() && !names.is_empty(entry.node.path) {
            return Err(Errno::ENOTEMPTY);
        }
        self.drop_name(names, user, id, &above);
        Ok(())
    }

    /// Renames as rename(2) does; without `replace`, EEXIST when the new name is taken.
    pub(super) fn rename(
        &self,
        names: &mut Names,
        user: &User,
        id: u64,
        new_dir: &Node,
        name: &[u8],
        replace: bool,
    ) -> Result<(), Errno> {
        let entry = names.entry(id).ok_or(Errno::ENOENT)?;
        if id == ROOT {
            return Err(Errno::EBUSY);
        }
        let (node, from) = (entry.node.clone(), entry.dir);
        let old_dir = self.node_of(names, from)?;
        if !names.has_dir(new_dir.path) {
            return Err(if new_dir.is_dir() { Errno::ENOENT } else { Errno::ENOTDIR });
        }
        self.check_remove(user, &old_dir, &node)?;
        new_dir.check(&new_dir.meta(), user, W | X)?;
        let moves = old_dir.path != new_dir.path;
        if node.is_dir() {
            if names.is_within(new_dir.path, node.path) {
                return Err(Errno::EINVAL);
            }
            // Its `..` changes.
            if moves {
                node.check(&node.meta(), user, W)?;
            }
        }
        let there = names.lookup(new_dir.path, name).map(|(id, entry)| (id, entry.node.clone()));
        if let Some((_, other)) = &there {
            if other.path == node.path {
                return Ok(());
            }
            if !replace {
                return Err(Errno::EEXIST);
            }
            self.check_remove(user, new_dir, other)?;
            match (node.is_dir(), other.is_dir()) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (true, true) if !names.is_empty(other.path) => return Err(Errno::ENOTEMPTY),
                _ => {}
            }
        }
        let charge = names.charge_mut(id).ok_or(Errno::ENOENT)?;
        charge.resize(ENTRY_BYTES + name.len() as u64)?;
        if let Some((other, _)) = there {
            self.drop_name(names, user, other, new_dir);
        }
        names.rename(id, new_dir.path, name);
        let subdir = u64::from(node.is_dir());
        {
            let mut meta = old_dir.meta();
            meta.modified(user);
            meta.nlink -= subdir;
        }
        {
            let mut meta = new_dir.meta();
            if moves {
                meta.modified(user);
            }
            meta.nlink += subdir;
        }
        node.meta().changed();
        Ok(())
    }

    /// Exchanges two names' files, as renameat2(2) does.
    pub(super) fn exchange(&self, names: &mut Names, user: &User, one: u64, two: u64) -> Result<(), Errno> {
        let place = |id| names.entry(id).map(|entry| (entry.node.clone(), entry.dir)).ok_or(Errno::ENOENT);
        let ((node, dir), (other, other_dir)) = (place(one)?, place(two)?);
        let (above, other_above) = (self.node_of(names, dir)?, self.node_of(names, other_dir)?);
        self.check_remove(user, &above, &node)?;
        self.check_remove(user, &other_above, &other)?;
        let moves = dir != other_dir;
        for (node, to) in [(&node, other_dir), (&other, dir)].into_iter().filter(|(node, _)| node.is_dir()) {
            if names.is_within(to, node.path) {
                return Err(Errno::EINVAL);
            }
            // Its `..` changes.
            if moves {
                node.check(&node.meta(), user, W)?;
            }
        }
        if node.path == other.path {
            return Ok(());
        }
        names.exchange(one, two);
        above.meta().modified(user);
        if moves {
            other_above.meta().modified(user);
            above.meta().nlink += u64::from(other.is_dir());
            above.meta().nlink -= u64::from(node.is_dir());
            other_above.meta().nlink += u64::from(node.is_dir());
            other_above.meta().nlink -= u64::from(other.is_dir());
        }
        node.meta().changed();
        other.meta().changed();
        Ok(())
    }

    /// Whether `user` may take `node` out of `dir`, as rename(2) and unlink(2) have it for sticky directories.
    pub(super) fn check_remove(&self, user: &User, dir: &Node, node: &Node) -> Result<(), Errno> {
        let (sticky, owner) = {
            let meta = dir.meta();
            dir.check(&meta, user, W | X)?;
            (meta.perm & S_ISVTX != 0, meta.uid)
        };
        if sticky && user.uid != 0 && user.uid != owner && user.uid != node.meta().uid {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// The node of a directory that is part of the tree.
    pub(super) fn node_of(&self, names: &Names, dir: u64) -> Result<Arc<Node>, Errno> {
        names.dir(dir).map(|entry| entry.node.clone()).ok_or(Errno::ENOENT)
    }

    fn check_new(&self, names: &Names, user: &User, dir: &Node, name: &[u8]) -> Result<(), Errno> {
        let meta = dir.meta();
        dir.check(&meta, user, X)?;
        if !names.has_dir(dir.path) {
            return Err(Errno::ENOENT);
        }
        if names.lookup(dir.path, name).is_some() {
            return Err(Errno::EEXIST);
        }
        dir.check(&meta, user, W)
    }

    fn charge_name(&self, name: &[u8]) -> Result<Charge, Errno> {
        Charge::new(&self.budget, ENTRY_BYTES + name.len() as u64)
    }

    fn drop_name(&self, names: &mut Names, user: &User, id: u64, dir: &Node) {
        let Some(entry) = names.remove(id) else { return };
        let is_dir = entry.node.is_dir();
        {
            let mut meta = entry.node.meta();
            meta.nlink = if is_dir { 0 } else { meta.nlink - 1 };
            meta.changed();
        }
        let mut meta = dir.meta();
        meta.modified(user);
        meta.nlink -= u64::from(is_dir);
    }
}
