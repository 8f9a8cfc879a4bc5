//! What one fid of the tree stands for: the requests, each brought to the node or the tree.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ninefold_proto::attr::{Attr, SetAttr, Statfs, getattr};
use ninefold_proto::open::{Access, Open, lflags};
use ninefold_proto::plus::PlusEntry;
use ninefold_proto::server::Rename;
use ninefold_proto::stat::{DirEntry, Stat, StatBuf, dm};
use ninefold_proto::types::WalkElem;
use ninefold_proto::{Dialect, Errno, Error, Name, Qid};

use super::content::CHUNK;
use super::extent;
use super::names::{HERE, PARENT};
use super::node::{Body, Node, R, S_IFBLK, S_IFCHR, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK, W, X};
use super::tree::{New, Tree};
use crate::server::{
    Answer, Create, Created, Cx, Data, DirSink, File, Listed, Lock, LockKind, LockStatus, Records, User, Walked,
    Written,
};
use crate::tree::locks::FileKey;

/// Bytes of a block that statfs tells of: a page's.
const BLOCK: u64 = 4096;

/// V9FS_MAGIC (statfs(2)): Linux's client hands the type on to programs.
const MAGIC: u32 = 0x0102_1997;

/// A file as one user of one connection reached it.
#[derive(Debug)]
pub(super) struct RamFile {
    pub(super) tree: Arc<Tree>,
    pub(super) user: Arc<User>,
    pub(super) dialect: Dialect,
    pub(super) node: Arc<Node>,
    /// The name by which it was reached, wherever that has been renamed to.
    pub(super) entry: u64,
    /// Unique in the tree.
    number: u64,
    open: OnceLock<Open>,
    /// Whether a lock was ever taken through it.
    locked: AtomicBool,
}

/// What is known now.
fn now<T: Send + 'static>(result: Result<T, Errno>) -> Answer<T> {
    Answer::Now(result.map_err(Error::from))
}

impl RamFile {
    pub(super) fn new(tree: Arc<Tree>, user: Arc<User>, dialect: Dialect, node: Arc<Node>, entry: u64) -> RamFile {
        let (number, open, locked) = (tree.new_file(), OnceLock::new(), AtomicBool::new(false));
        RamFile { tree, user, dialect, node, entry, number, open, locked }
    }

    fn reach(&self, node: Arc<Node>, entry: u64) -> RamFile {
        RamFile::new(self.tree.clone(), self.user.clone(), self.dialect, node, entry)
    }

    /// The file of another fid of this tree; EXDEV when it is another tree's.
    fn same_tree<'a>(&self, other: &'a dyn File) -> Result<&'a RamFile, Errno> {
        let other = (other as &dyn Any).downcast_ref::<RamFile>();
        other.filter(|other| Arc::ptr_eq(&other.tree, &self.tree)).ok_or(Errno::EXDEV)
    }

    fn qid(&self) -> Qid {
        self.node.qid(&self.node.meta())
    }

    /// Whether it is open for writing: what open allowed then stays allowed.
    pub(super) fn is_writer(&self) -> bool {
        self.open.get().is_some_and(|open| open.access.can_write())
    }

    fn key(&self) -> FileKey {
        FileKey { dev: 0, ino: self.node.path }
    }

    fn walk_now(&self, elems: &[WalkElem<'_>]) -> Result<Walked, Errno> {
        let names = self.tree.names();
        let (mut node, mut entry) = (self.node.clone(), self.entry);
        let mut qids = Vec::with_capacity(elems.len());
        for elem in elems {
            let step = (|| {
                if !node.is_dir() {
                    return Err(Errno::ENOTDIR);
                }
                node.check(&node.meta(), &self.user, X)?;
                let found = match elem {
                    WalkElem::Here => return Ok((entry, node.clone())),
                    WalkElem::Parent => names.parent(node.path),
                    WalkElem::Name(name) => names.lookup(node.path, name.as_bytes()),
                };
                found.map(|(id, entry)| (id, entry.node.clone())).ok_or(Errno::ENOENT)
            })();
            match step {
                Ok(reached) => (entry, node) = reached,
                Err(errno) if qids.is_empty() => return Err(errno),
                Err(_) => return Ok(Walked { qids, file: None }),
            }
            let qid = node.qid(&node.meta());
            qids.push(qid);
        }
        drop(names);
        Ok(Walked { qids, file: Some(Arc::new(self.reach(node, entry))) })
    }

    /// Opens a file that was there before.
    fn open_now(&self, how: Open) -> Result<Qid, Errno> {
        let truncates = how.has(lflags::TRUNC);
        match &self.node.body {
            Body::Plain(_) if how.has(lflags::DIRECTORY) => return Err(Errno::ENOTDIR),
            Body::Plain(_) => {}
            Body::Dir if how.access.can_write() || truncates => return Err(Errno::EISDIR),
            Body::Dir => {}
            Body::Symlink(_) => return Err(Errno::ELOOP),
            Body::Special { .. } => return Err(Errno::ENXIO),
        }
        if how.remove_on_clunk {
            let names = self.tree.names();
            let dir = names.entry(self.entry).ok_or(Errno::ENOENT)?.dir;
            let dir = self.tree.node_of(&names, dir)?;
            self.tree.check_remove(&self.user, &dir, &self.node)?;
        }
        let want = match how.access {
            Access::Read => R,
            Access::Write => W,
            Access::ReadWrite => R | W,
            Access::Exec => X,
        };
        let mut content = if truncates { Some(self.node.content_mut()?) } else { None };
        let mut meta = self.node.meta();
        self.node.check(&meta, &self.user, if truncates { want | W } else { want })?;
        if meta.dm & dm::EXCL != 0 && meta.opens > 0 {
            return Err(Errno::EBUSY);
        }
        // An append-only file keeps what it has (open(5)).
        if let Some(content) = content.as_mut().filter(|_| meta.dm & dm::APPEND == 0) {
            content.resize(0);
            meta.drop_set_ids(&self.user);
            meta.modified(&self.user);
        }
        self.opened(how, &mut meta.opens);
        Ok(self.node.qid(&meta))
    }

    fn opened(&self, how: Open, opens: &mut usize) {
        if self.open.set(how).is_ok() {
            *opens += 1;
        }
    }

    fn create_now(&self, what: &Create<'_>) -> Result<Created, Errno> {
        let name = what.name.as_bytes();
        let mut names = self.tree.names_mut();
        self.node.check(&self.node.meta(), &self.user, X)?;
        if let Some((id, entry)) = names.lookup(self.node.path, name)
            && !what.exclusive
        {
            let file = self.reach(entry.node.clone(), id);
            drop(names);
            // Whoever creates what is there opens it as a file, not as a directory.
            if file.node.is_dir() {
                return Err(Errno::EISDIR);
            }
            let qid = file.open_now(what.open)?;
            return Ok(Created { qid, file: Arc::new(file) });
        }
        if what.open.has(lflags::DIRECTORY) {
            return Err(Errno::EINVAL);
        }
        let new = New::Plain { dm: what.dm };
        let (user, dialect) = (&self.user, self.dialect);
        let (id, node) = self.tree.make(&mut names, user, dialect, &self.node, name, new, what.mode, what.gid)?;
        let file = self.reach(node, id);
        // Its maker may use it as it asked to, whatever the mode is from now on.
        file.opened(what.open, &mut file.node.meta().opens);
        Ok(Created { qid: file.qid(), file: Arc::new(file) })
    }

    fn make_now(&self, name: Name<'_>, new: New<'_>, mode: u32, gid: Option<u32>) -> Result<Qid, Errno> {
        let mut names = self.tree.names_mut();
        let (user, dialect) = (&self.user, self.dialect);
        let (_, node) = self.tree.make(&mut names, user, dialect, &self.node, name.as_bytes(), new, mode, gid)?;
        let qid = node.qid(&node.meta());
        Ok(qid)
    }

    fn write_now(&self, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        if data.is_empty() {
            return Ok(0);
        }
        self.writex_now(offset, data, false).map(|written| written.count)
    }

    /// Whether every write goes to the end, whatever its offset.
    pub(super) fn appends(&self) -> bool {
        self.open.get().is_some_and(|open| open.has(lflags::APPEND)) || self.node.meta().dm & dm::APPEND != 0
    }

    /// Entries, with attributes if `plus` asks for them.
    fn readdir_now(&self, offset: u64, max: u32, plus: bool) -> Result<Listed, Errno> {
        let names = self.tree.names();
        // Whoever may list a directory but not search it sees names only, as stat(2) would have it.
        let searches = plus && self.node.check(&self.node.meta(), &self.user, X).is_ok();
        let mut sink = DirSink::new(max);
        let mut more = false;
        let mut push = |cookie: u64, name: &[u8], node: &Node| {
            let kind = (node.kind() >> 12) as u8;
            let entry = |qid| DirEntry { qid, offset: cookie, kind, name };
            let fits = if searches {
                let attr = attr(node);
                sink.push_plus(&PlusEntry { entry: entry(attr.qid), attr })
            } else {
                let entry = entry(node.qid(&node.meta()));
                let unknown = Attr { qid: entry.qid, ..Attr::default() };
                if plus { sink.push_plus(&PlusEntry { entry, attr: unknown }) } else { sink.push(&entry) }
            };
            more |= !fits;
            fits
        };
        if let Some((_, parent)) = names.parent(self.node.path) {
            let fits = (offset >= HERE || push(HERE, b".", &self.node))
                && (offset >= PARENT || push(PARENT, b"..", &parent.node));
            if fits {
                for (cookie, entry) in names.list(self.node.path, offset) {
                    if !push(cookie, &entry.name, &entry.node) {
                        break;
                    }
                }
            }
        }
        if more && sink.is_empty() {
            return Err(Errno::EINVAL);
        }
        self.node.meta().accessed();
        Ok(Listed { entries: sink.into_bytes(), end: !more })
    }

    fn setattr_now(&self, set: &SetAttr) -> Result<(), Errno> {
        if *set == SetAttr::default() {
            return Ok(());
        }
        let mut content = if set.size.is_some() { Some(self.node.content_mut()?) } else { None };
        let mut meta = self.node.meta();
        self.node.check_set(&meta, &self.user, set, self.is_writer())?;
        if let (Some(content), Some(size)) = (&mut content, set.size) {
            content.resize(size);
        }
        meta.apply_set(&self.user, set, self.node.is_dir());
        Ok(())
    }

    fn rename_with_now(&self, old: &[u8], newdir: &dyn File, new: &[u8], how: Rename) -> Result<(), Errno> {
        let newdir = self.same_tree(newdir)?;
        let names = &mut self.tree.names_mut();
        self.node.check(&self.node.meta(), &self.user, X)?;
        let (id, _) = names.lookup(self.node.path, old).ok_or(Errno::ENOENT)?;
        match how {
            Rename::NoReplace if names.lookup(newdir.node.path, new).is_some() => {
                newdir.node.check(&newdir.node.meta(), &self.user, X)?;
                Err(Errno::EEXIST)
            }
            Rename::NoReplace => self.tree.rename(names, &self.user, id, &newdir.node, new, false),
            Rename::Exchange => {
                newdir.node.check(&newdir.node.meta(), &self.user, X)?;
                let (other, _) = names.lookup(newdir.node.path, new).ok_or(Errno::ENOENT)?;
                self.tree.exchange(names, &self.user, id, other)
            }
        }
    }
}

/// All attributes of a node.
fn attr(node: &Node) -> Attr {
    let (size, allocated) = match &node.body {
        Body::Symlink(target) => (target.len() as u64, 0),
        _ => node.content().map_or((0, 0), |content| (content.size(), content.allocated())),
    };
    let rdev = if let Body::Special { rdev, .. } = node.body { rdev } else { 0 };
    let meta = node.meta();
    Attr {
        valid: getattr::ALL,
        qid: node.qid(&meta),
        mode: node.kind() | meta.perm,
        uid: meta.uid,
        gid: meta.gid,
        nlink: meta.nlink,
        rdev,
        size,
        blksize: CHUNK as u64,
        blocks: allocated.div_ceil(512),
        atime: meta.atime,
        mtime: meta.mtime,
        ctime: meta.ctime,
        btime: meta.btime,
        // Paths are never used again, so there is nothing to tell apart.
        generation: 0,
        data_version: meta.data_version,
    }
}

impl File for RamFile {
    fn walk(&self, _cx: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        now(self.walk_now(elems))
    }

    fn open(&self, _cx: &Cx, how: Open) -> Answer<Qid> {
        now(self.open_now(how))
    }

    fn create(&self, _cx: &Cx, what: Create<'_>) -> Answer<Created> {
        now(self.create_now(&what))
    }

    fn read(&self, _cx: &Cx, offset: u64, count: u32) -> Answer<Data> {
        let data = self.node.content().map(|content| content.read(offset, count));
        if data.is_ok() {
            self.node.meta().accessed();
        }
        now(data.map(Data::from))
    }

    fn write(&self, _cx: &Cx, offset: u64, data: Bytes) -> Answer<u32> {
        now(self.write_now(offset, &data))
    }

    fn readdir(&self, _cx: &Cx, offset: u64, max: u32) -> Answer<Bytes> {
        now(self.readdir_now(offset, max, false).map(|listed| listed.entries))
    }

    fn readdirplus(&self, _cx: &Cx, offset: u64, max: u32, _mask: u64) -> Answer<Listed> {
        now(self.readdir_now(offset, max, true))
    }

    fn access(&self, _cx: &Cx, mode: u32) -> Answer<u32> {
        let meta = self.node.meta();
        let may = |bit: &u32| mode & bit != 0 && self.node.check(&meta, &self.user, *bit).is_ok();
        Answer::ok([R, W, X].into_iter().filter(may).sum())
    }

    fn writex(&self, _cx: &Cx, offset: u64, data: Bytes, append: bool, _stable: bool) -> Answer<Written> {
        now(self.writex_now(offset, &data, append))
    }

    fn copyrange(&self, cx: &Cx, offset: u64, target: &dyn File, target_offset: u64, length: u64) -> Answer<u64> {
        let target = match self.same_tree(target) {
            Ok(target) => target.node.clone(),
            Err(errno) => return Answer::err(errno),
        };
        let (cx, user, from) = (cx.clone(), self.user.clone(), self.node.clone());
        // Up to 64 MiB, and a Tflush is to be read meanwhile.
        Answer::blocking(move || Ok(extent::copy(&cx, &user, &from, offset, &target, target_offset, length)?))
    }

    fn allocate(&self, _cx: &Cx, mode: u32, offset: u64, length: u64) -> Answer<()> {
        let (user, node) = (self.user.clone(), self.node.clone());
        // Clearing a gigabyte takes longer than others are to wait.
        Answer::blocking(move || Ok(extent::allocate(&node, &user, mode, offset, length)?))
    }

    fn seek(&self, _cx: &Cx, offset: u64, hole: bool) -> Answer<u64> {
        now(self.seek_now(offset, hole))
    }

    fn read_stats(&self, _cx: &Cx, at: u64, max: u32) -> Answer<Records> {
        now(self.read_stats_now(at, max))
    }

    fn getattr(&self, _cx: &Cx, _mask: u64) -> Answer<Attr> {
        Answer::ok(attr(&self.node))
    }

    fn setattr(&self, _cx: &Cx, set: SetAttr) -> Answer<()> {
        now(self.setattr_now(&set))
    }

    fn stat(&self, _cx: &Cx) -> Answer<StatBuf> {
        Answer::ok(self.stat_now())
    }

    fn wstat(&self, _cx: &Cx, stat: &Stat<'_>) -> Answer<()> {
        now(self.wstat_now(stat))
    }

    fn remove(&self, _cx: &Cx) -> Answer<()> {
        now(self.tree.remove(&mut self.tree.names_mut(), &self.user, self.entry, None))
    }

    fn clunk(&self, _cx: &Cx) -> Answer<()> {
        if self.open.get().is_some() {
            self.node.meta().opens -= 1;
        }
        if self.locked.load(Ordering::Relaxed) {
            self.tree.locks.release(self.key(), self.number);
        }
        Answer::ok(())
    }

    fn statfs(&self, _cx: &Cx) -> Answer<Statfs> {
        let (blocks, free) = (self.tree.budget.limit() / BLOCK, self.tree.budget.free() / BLOCK);
        let files = self.tree.names().count();
        Answer::ok(Statfs {
            fstype: MAGIC,
            bsize: BLOCK as u32,
            blocks,
            bfree: free,
            bavail: free,
            // A file takes less than a block while it is empty.
            files: files + free,
            ffree: free,
            fsid: 0,
            namelen: ninefold_proto::types::NAME_MAX as u32,
        })
    }

    fn readlink(&self, _cx: &Cx) -> Answer<Vec<u8>> {
        match &self.node.body {
            Body::Symlink(target) => Answer::ok(target.to_vec()),
            _ => Answer::err(Errno::EINVAL),
        }
    }

    fn symlink(&self, _cx: &Cx, name: Name<'_>, target: &[u8], gid: Option<u32>) -> Answer<Qid> {
        // symlink(2) has ENOENT for an empty target and the length of a path for a long one.
        now(match target.len() {
            0 => Err(Errno::ENOENT),
            4096.. => Err(Errno::ENAMETOOLONG),
            _ => self.make_now(name, New::Symlink(target), 0o777, gid),
        })
    }

    fn mknod(&self, _cx: &Cx, name: Name<'_>, mode: u32, rdev: u64, gid: Option<u32>) -> Answer<Qid> {
        now(match mode & S_IFMT {
            0 | S_IFREG => self.make_now(name, New::Plain { dm: 0 }, mode, gid),
            S_IFBLK | S_IFCHR if self.user.uid != 0 => Err(Errno::EPERM),
            kind @ (S_IFBLK | S_IFCHR) => self.make_now(name, New::Special { kind, rdev }, mode, gid),
            kind @ (S_IFIFO | S_IFSOCK) => self.make_now(name, New::Special { kind, rdev: 0 }, mode, gid),
            _ => Err(Errno::EINVAL),
        })
    }

    fn mkdir(&self, _cx: &Cx, name: Name<'_>, mode: u32, gid: Option<u32>) -> Answer<Qid> {
        now(self.make_now(name, New::Dir, mode, gid))
    }

    fn link(&self, _cx: &Cx, target: &dyn File, name: Name<'_>) -> Answer<()> {
        let target = self.same_tree(target);
        now(target.and_then(|target| self.tree.link(&self.user, &target.node, &self.node, name.as_bytes())))
    }

    fn rename(&self, _cx: &Cx, newdir: &dyn File, name: Name<'_>) -> Answer<()> {
        let newdir = self.same_tree(newdir);
        now(newdir.and_then(|newdir| {
            let names = &mut self.tree.names_mut();
            self.tree.rename(names, &self.user, self.entry, &newdir.node, name.as_bytes(), true)
        }))
    }

    fn rename_entry(&self, _cx: &Cx, old: Name<'_>, newdir: &dyn File, new: Name<'_>) -> Answer<()> {
        let newdir = self.same_tree(newdir);
        now(newdir.and_then(|newdir| {
            let names = &mut self.tree.names_mut();
            self.node.check(&self.node.meta(), &self.user, X)?;
            let (id, _) = names.lookup(self.node.path, old.as_bytes()).ok_or(Errno::ENOENT)?;
            self.tree.rename(names, &self.user, id, &newdir.node, new.as_bytes(), true)
        }))
    }

    fn rename_with(&self, _cx: &Cx, old: Name<'_>, newdir: &dyn File, new: Name<'_>, how: Rename) -> Answer<()> {
        now(self.rename_with_now(old.as_bytes(), newdir, new.as_bytes(), how))
    }

    fn unlink(&self, _cx: &Cx, name: Name<'_>, dir: bool) -> Answer<()> {
        let names = &mut self.tree.names_mut();
        now((|| {
            self.node.check(&self.node.meta(), &self.user, X)?;
            let (id, _) = names.lookup(self.node.path, name.as_bytes()).ok_or(Errno::ENOENT)?;
            self.tree.remove(names, &self.user, id, Some(dir))
        })())
    }

    fn xattr_get(&self, _cx: &Cx, name: &[u8]) -> Answer<Bytes> {
        now(self.node.xattr_get(&self.user, name))
    }

    fn xattr_list(&self, _cx: &Cx) -> Answer<Bytes> {
        Answer::ok(self.node.xattr_list(&self.user))
    }

    fn xattr_set(&self, _cx: &Cx, name: &[u8], value: Bytes, flags: u32) -> Answer<()> {
        now(self.node.xattr_set(&self.user, name, &value, flags))
    }

    fn xattr_remove(&self, _cx: &Cx, name: &[u8]) -> Answer<()> {
        now(self.node.xattr_remove(&self.user, name))
    }

    fn lock(&self, cx: &Cx, lock: Lock, wait: bool) -> Answer<LockStatus> {
        if lock.kind != LockKind::Unlock {
            self.locked.store(true, Ordering::Relaxed);
        }
        self.tree.locks.lock_unmirrored(cx, self.key(), self.number, lock, wait)
    }

    fn getlock(&self, cx: &Cx, lock: Lock) -> Answer<Option<Lock>> {
        self.tree.locks.getlock_unmirrored(cx, self.key(), &lock)
    }
}
