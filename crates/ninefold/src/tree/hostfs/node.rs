//! The nodes that fids stand on: a name in a parent, all the way up to the export's root.
//!
//! A [`Node`] remembers which inode it was walked to and may hold an O_PATH descriptor of it. Fids of
//! one (parent, name, inode) share the node, so that a rename through one fid moves all at and below it.
//! [`Tree::fd`] gives a node's descriptor; when it was closed to make room it is opened again, one name
//! at a time from the nearest ancestor that has one, and compared with what the node remembers: it
//! is never another file that came under the name since.
//!
//! **Resolution.** The kernel gets one name at a time, never `..`, which is checked where it is given ([`Tree::open_entry`]), with openat2(2)'s
//! RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS, and crosses a mount only after [`Mounts::check`].
//!
//! **Names that change** are held meanwhile ([`Tree::change`]): see [`super::changes`].
//!
//! **Lock order.** One part of `changes`, or two in the order of their numbers, or the lock of moves
//! ([`Changes::alone`]) and no part; then one node's `links`; a node's `held` and `opened`, `pinned`, and a place of `lately`, alone. No system
//! call is made under any of them, and no `Arc<Node>` is dropped under `links`: its drop takes them.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crossbeam_queue::SegQueue;
use ninefold_proto::{Errno, Error, Name};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, openat2, statx};

use super::changes::{Change, Changes, NameKey};
use super::creds::Identity;
use super::lately::Lately;
use super::mounts::Mounts;
use super::open::drop_elsewhere;
use super::{Pace, lock, os, qid};
use crate::transport::close_idle_pipes;

/// How often a lookup is done again because its name was changed meanwhile.
const LOOKUP_TRIES: u32 = 16;

/// Which inode it is. The time of birth, where it is known, tells it from a later one of the same number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileId {
    pub(super) dev: u64,
    pub(super) ino: u64,
    born: u32,
}

/// A file that fids stand on.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: FileId,
    pub(super) kind: FileType,
    /// Its file system answers from another program or machine.
    pub(super) slow: bool,
    /// On the mount that the root is on, and on its device.
    pub(super) at_home: bool,
    /// Names from the root to it, when it was walked to.
    pub(super) depth: u32,
    /// How many changes of the mount table had been seen when nothing was mounted on its name; [`NEVER`] where that was never looked at.
    bare_at: AtomicU64,
    /// Used since the ring's hand passed.
    used: AtomicBool,
    held: Mutex<Held>,
    /// The descriptors of its fids that are open, and of some that were.
    opened: Mutex<Vec<Weak<OwnedFd>>>,
    links: Mutex<Links>,
}

/// No count of changes.
const NEVER: u64 = u64::MAX;

/// A node's descriptor.
#[derive(Debug)]
enum Held {
    None,
    /// Closed when the ring needs room.
    Cached(Arc<OwnedFd>),
    /// Kept, because no name leads to the file any more.
    Pinned(Arc<OwnedFd>),
}

type Children = HashMap<Arc<[u8]>, Weak<Node>>;

#[derive(Debug)]
struct Links {
    /// None at the root.
    parent: Option<Arc<Node>>,
    name: Arc<[u8]>,
    /// The name was removed through us.
    gone: bool,
    children: Option<Box<Children>>,
}

impl Node {
    fn new(id: FileId, kind: FileType, way: Way, parent: Option<Arc<Node>>, name: Arc<[u8]>) -> Node {
        Node {
            id,
            kind,
            slow: way.slow || parent.as_ref().is_some_and(|parent| parent.slow),
            at_home: parent.as_ref().is_none_or(|parent| is_at_home(parent, id, way)),
            depth: parent.as_ref().map_or(0, |parent| parent.depth.saturating_add(1)),
            bare_at: AtomicU64::new(NEVER),
            used: AtomicBool::new(false),
            held: Mutex::new(Held::None),
            opened: Mutex::default(),
            links: Mutex::new(Links { parent, name, gone: false, children: None }),
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// The directory it is in; None for the root.
    pub(super) fn parent(&self) -> Option<Arc<Node>> {
        lock(&self.links).parent.clone()
    }

    /// Its name; empty for the root.
    pub(super) fn name(&self) -> Arc<[u8]> {
        lock(&self.links).name.clone()
    }

    /// Parent and name of one moment. ENOENT once the name was removed, EBUSY for the root.
    pub(super) fn place(&self) -> Result<(Arc<Node>, Arc<[u8]>), Error> {
        let links = lock(&self.links);
        match &links.parent {
            _ if links.gone => Err(Errno::ENOENT.into()),
            Some(parent) => Ok((parent.clone(), links.name.clone())),
            None => Err(Errno::EBUSY.into()),
        }
    }

    /// Whether its name was removed through us.
    pub(super) fn is_gone(&self) -> bool {
        lock(&self.links).gone
    }

    /// Closes the descriptor of a file without a name, unless more than `fids` need it. Nothing leads to such a node
    /// but its fids, so that there will not be more of them.
    pub(super) fn unpin_unless_shared(self: &Arc<Node>, fids: usize) {
        if Arc::strong_count(self) <= fids && self.is_gone() {
            let held = std::mem::replace(&mut *lock(&self.held), Held::None);
            drop(held);
        }
    }

    fn held(&self) -> Option<Arc<OwnedFd>> {
        match &*lock(&self.held) {
            Held::None => None,
            Held::Cached(fd) | Held::Pinned(fd) => {
                self.used.store(true, Ordering::Relaxed);
                Some(fd.clone())
            }
        }
    }

    /// A fid of it was opened.
    pub(super) fn add_opened(&self, fd: &Arc<OwnedFd>) {
        let mut opened = lock(&self.opened);
        // Not each time: a file may be open thousands of times.
        if opened.len() == opened.capacity() {
            opened.retain(|fd| fd.strong_count() > 0);
        }
        opened.push(Arc::downgrade(fd));
    }

    /// The descriptor of a fid that has it open.
    fn opened(&self) -> Option<Arc<OwnedFd>> {
        let mut opened = lock(&self.opened);
        while let Some(last) = opened.last() {
            match last.upgrade() {
                Some(fd) => return Some(fd),
                None => drop(opened.pop()),
            }
        }
        None
    }

    /// Removes the dead entry of a child that was just dropped.
    fn forget_child(&self, name: &[u8]) {
        if let Some(children) = &mut lock(&self.links).children
            && children.get(name).is_some_and(|child| child.strong_count() == 0)
        {
            children.remove(name);
            if children.len() * 4 < children.capacity() {
                children.shrink_to_fit();
            }
        }
    }
}

impl Drop for Node {
    // Not by recursion: the last fid of a deep tree drops thousands of parents.
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Held::Pinned(fd) = std::mem::replace(held, Held::None) {
            drop_elsewhere(fd);
        }
        let mut up = take_place(self);
        while let Some((parent, name)) = up {
            parent.forget_child(&name);
            up = Arc::into_inner(parent).and_then(|mut node| take_place(&mut node));
        }
    }
}

/// Whether a file is at home that was come to from a directory.
fn is_at_home(dir: &Node, id: FileId, way: Way) -> bool {
    dir.at_home && !way.is_mounted && id.dev == dir.id.dev
}

fn take_place(node: &mut Node) -> Option<(Arc<Node>, Arc<[u8]>)> {
    let links = node.links.get_mut().unwrap_or_else(PoisonError::into_inner);
    links.parent.take().map(|parent| (parent, links.name.clone()))
}

/// What a lookup found.
pub(super) struct Found {
    pub(super) node: Arc<Node>,
    pub(super) fd: Arc<OwnedFd>,
    pub(super) stx: Statx,
}

/// An entry that was opened with O_PATH.
pub(super) struct Entry {
    pub(super) fd: OwnedFd,
    pub(super) stx: Statx,
    way: Way,
}

/// How a directory's entry was come to.
#[derive(Clone, Copy, Default)]
struct Way {
    /// Something is mounted on it.
    is_mounted: bool,
    /// Whose answers come from another program or machine.
    slow: bool,
}

/// All nodes of an export, and the descriptors they hold.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: Arc<Node>,
    root_fd: Arc<OwnedFd>,
    /// Times of birth stay what they are.
    births: bool,
    pub(super) mounts: Mounts,
    /// The kernel knows RESOLVE_CACHED (Linux 5.12).
    cached_lookups: AtomicBool,
    changes: Changes,
    /// Nodes that hold a cached descriptor, each once, oldest first.
    cached: SegQueue<Weak<Node>>,
    /// Nodes that hold a pinned descriptor.
    pinned: Mutex<VecDeque<Weak<Node>>>,
    pub(super) lately: Lately,
    /// Descriptors in each ring.
    limit: usize,
}

impl Tree {
    /// The tree below `root_fd`. At most `limit` descriptors are held for files that are not open.
    pub(super) fn new(root_fd: OwnedFd, mounts: Mounts, limit: usize) -> Result<Tree, Error> {
        let mount = mounts.check(root_fd.as_fd()).unwrap_or_default();
        let births = !mount.copies_up;
        let stx = look(root_fd.as_fd())?;
        let way = Way { is_mounted: false, slow: mount.slow };
        let root = Arc::new(Node::new(file_id(&stx, births), FileType::Directory, way, None, Arc::from([])));
        let root_fd = Arc::new(root_fd);
        *lock(&root.held) = Held::Pinned(root_fd.clone());
        Ok(Tree {
            root,
            root_fd,
            births,
            mounts,
            cached_lookups: AtomicBool::new(true),
            changes: Changes::default(),
            cached: SegQueue::new(),
            pinned: Mutex::default(),
            lately: Lately::default(),
            limit: limit.max(1),
        })
    }

    /// Which inode statx(2) told of.
    pub(super) fn id(&self, stx: &Statx) -> FileId {
        file_id(stx, self.births)
    }

    /// The root's descriptor, which is always there.
    pub(super) fn root_fd(&self) -> &OwnedFd {
        &self.root_fd
    }

    /// The node's O_PATH descriptor; of a file without a name, where that had to be closed, one by which a fid has it
    /// open. Leaves the thread acting as the server when it had to be opened.
    /// ENOENT when the file has gone, ESTALE when another one is in its place.
    pub(super) fn fd(&self, node: &Arc<Node>, pace: Pace) -> Result<Arc<OwnedFd>, Error> {
        for _ in 1..LOOKUP_TRIES {
            let mark = self.changes.now();
            match self.reopen(node, pace) {
                // A rename between reading the name and opening it.
                Err(error)
                    if matches!(error.errno, Errno::ENOENT | Errno::ESTALE) && self.changes.any_since(mark, pace) => {}
                result => return result,
            }
        }
        self.reopen(node, pace)
    }

    fn reopen(&self, node: &Arc<Node>, pace: Pace) -> Result<Arc<OwnedFd>, Error> {
        if let Some(fd) = node.held() {
            return Ok(fd);
        }
        // Not of a file that has a name: to keep this one after its fid is clunked would keep the file open.
        if node.is_gone()
            && let Some(fd) = node.opened()
        {
            return Ok(fd);
        }
        // Up to the nearest ancestor that has a descriptor; the root always has. Then down again.
        let mut chain = vec![node.clone()];
        let mut fd = loop {
            let last = chain.last().expect("the chain begins with the node");
            let (parent, _) = last.place()?;
            match parent.held() {
                Some(fd) => break fd,
                None => chain.push(parent),
            }
        };
        Identity::of_server().assume()?;
        let mut is_bound = false;
        while let Some(next) = chain.pop() {
            let (_, name) = next.place()?;
            let entry = self.open_entry(fd.as_fd(), &name, pace)?;
            if self.id(&entry.stx) != next.id {
                return Err(Errno::ESTALE.into());
            }
            // What was bound on itself since is the same file: a node that may be kept does not keep that mount busy.
            is_bound |= entry.way.is_mounted && next.at_home;
            fd = if is_bound { Arc::new(entry.fd) } else { self.hold(&next, entry.fd) };
        }
        Ok(fd)
    }

    /// Gives the node a descriptor, unless it has one; answers the one it has.
    fn hold(&self, node: &Arc<Node>, fd: OwnedFd) -> Arc<OwnedFd> {
        let fd = Arc::new(fd);
        {
            let mut held = lock(&node.held);
            match &*held {
                Held::Cached(had) | Held::Pinned(had) => return had.clone(),
                Held::None => *held = Held::Cached(fd.clone()),
            }
        }
        node.used.store(true, Ordering::Relaxed);
        self.cached.push(Arc::downgrade(node));
        while self.cached.len() > self.limit && self.evict() {}
        fd
    }

    /// Keeps the node's descriptor although no name leads to it any more.
    pub(super) fn pin(&self, node: &Arc<Node>, fd: Arc<OwnedFd>) {
        *lock(&node.held) = Held::Pinned(fd);
        let mut pinned = lock(&self.pinned);
        pinned.push_back(Arc::downgrade(node));
        if pinned.len() > self.limit {
            pinned.retain(|node| node.strong_count() > 0);
        }
        // Beyond the limit the oldest can be reached no more unless a fid has it open: better than no descriptors for
        // anybody.
        let oldest = if pinned.len() > self.limit { pinned.pop_front() } else { None };
        drop(pinned);
        if let Some(node) = oldest.and_then(|weak| weak.upgrade()) {
            *lock(&node.held) = Held::None;
        }
    }

    /// Closes one cached descriptor, of a node not used lately if there is one. False when none is left.
    fn evict(&self) -> bool {
        loop {
            // Each pass clears a mark, so that the hand comes to an unmarked node in the end.
            let Some(weak) = self.cached.pop() else { return false };
            let Some(node) = weak.upgrade() else { return true };
            if node.used.swap(false, Ordering::Relaxed) {
                self.cached.push(weak);
                continue;
            }
            let mut held = lock(&node.held);
            let freed = match &*held {
                Held::Cached(_) => std::mem::replace(&mut *held, Held::None),
                // It was pinned; that is the other ring's.
                _ => continue,
            };
            drop(held);
            drop(freed);
            return true;
        }
    }

    /// Makes `open` again as long as descriptors run out and cached ones can be closed instead.
    pub(super) fn with_room<T>(&self, open: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        loop {
            match open() {
                Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) if close_idle_pipes() => {}
                Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) if self.evict() => {
                    // Several at once: the next open is near.
                    for _ in 0..16 {
                        self.evict();
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                result => return result,
            }
        }
    }

    /// Opens the entry `name` of a directory with O_PATH, following nothing, as whom the thread acts.
    /// EAGAIN when that would have to wait and may not.
    pub(super) fn open_entry(&self, dir: BorrowedFd<'_>, name: &[u8], pace: Pace) -> Result<Entry, Error> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // One name that is no `..`, and no link that is followed, leads nowhere but into its directory: RESOLVE_BENEATH would refuse nothing more, and has
        // the kernel look at all directories above.
        if Name::new(name).is_err() {
            return Err(Errno::EINVAL.into());
        }
        let within = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let mut resolve = within | ResolveFlags::NO_XDEV;
        if pace == Pace::Inline {
            if !self.cached_lookups.load(Ordering::Relaxed) {
                return Err(Errno::EAGAIN.into());
            }
            resolve |= ResolveFlags::CACHED;
        }
        let open = |resolve| self.with_room(|| openat2(dir, name, flags, Mode::empty(), resolve));
        match open(resolve) {
            Ok(fd) => {
                let stx = look(fd.as_fd())?;
                Ok(Entry { fd, stx, way: Way::default() })
            }
            Err(rustix::io::Errno::INVAL) if pace == Pace::Inline => {
                self.cached_lookups.store(false, Ordering::Relaxed);
                Err(Errno::EAGAIN.into())
            }
            Err(rustix::io::Errno::XDEV) if pace == Pace::Inline => Err(Errno::EAGAIN.into()),
            Err(rustix::io::Errno::XDEV) => {
                let fd = open(within).map_err(os)?;
                let slow = self.mounts.check(fd.as_fd())?.slow;
                let stx = look(fd.as_fd())?;
                Ok(Entry { fd, stx, way: Way { is_mounted: true, slow } })
            }
            Err(error) => Err(os(error)),
        }
    }

    /// Walks one name, as `who`. EAGAIN when that would have to wait and may not.
    pub(super) fn lookup(&self, dir: &Arc<Node>, name: &[u8], who: &Identity, pace: Pace) -> Result<Found, Error> {
        if !dir.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        // Its answers come from elsewhere, even those about what the kernel has cached.
        if pace == Pace::Inline && dir.slow {
            return Err(Errno::EAGAIN.into());
        }
        let key = self.key(dir, name);
        for attempt in 1.. {
            let mark = self.changes.mark(key, pace)?;
            let dir_fd = self.fd(dir, pace)?;
            who.assume()?;
            let mounts_seen = self.mounts.watch.seen();
            if let Some(found) = self.look_again(dir, dir_fd.as_fd(), name, mounts_seen)
                && !self.changes.since(mark, key)
            {
                self.lately.keep(&found.node);
                return Ok(found);
            }
            let entry = match self.open_entry(dir_fd.as_fd(), name, pace) {
                Err(error)
                    if error.errno == Errno::ENOENT && self.changes.since(mark, key) && attempt < LOOKUP_TRIES =>
                {
                    continue;
                }
                result => result?,
            };
            // After so many tries the name changes faster than it can be seen; any of its files will do.
            let mark = (attempt < LOOKUP_TRIES).then_some(mark);
            if let Some(node) = self.adopt(dir, name, &entry.stx, entry.way, mark) {
                node.bare_at.store(if entry.way.is_mounted { NEVER } else { mounts_seen }, Ordering::Relaxed);
                if !entry.way.is_mounted {
                    self.lately.keep(&node);
                }
                let fd = self.hold(&node, entry.fd);
                return Ok(Found { node, fd, stx: entry.stx });
            }
        }
        Err(Errno::ESTALE.into())
    }

    /// The node that has the name, where it is held and nothing was mounted on it, by one question: is it that file still? The kernel has the entries in
    /// memory that lead to held files, and need not wait; only where somebody on the host has just taken the name away it may look into the directory
    /// once. Who mounted something on the name a moment ago may be asked about it, once.
    fn look_again(&self, dir: &Node, dir_fd: BorrowedFd<'_>, name: &[u8], mounts_seen: u64) -> Option<Found> {
        // Where the answers come from elsewhere a number may be another file's although this one is held.
        if dir.slow {
            return None;
        }
        let node = self.child(dir, name).filter(|node| node.bare_at.load(Ordering::Relaxed) == mounts_seen)?;
        let fd = node.held()?;
        let stx = look_at_with(dir_fd, name, AtFlags::STATX_DONT_SYNC).ok()?;
        let is_it = !stx.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) && self.id(&stx) == node.id;
        is_it.then_some(Found { node, fd, stx })
    }

    /// A node for a file that was just made and opened under a name held by the caller's [`Change`].
    pub(super) fn made(&self, dir: &Arc<Node>, name: &[u8], stx: &Statx) -> Arc<Node> {
        self.adopt(dir, name, stx, Way::default(), None).expect("unconditional")
    }

    /// The node for an entry that was looked up; None when the name was changed since it was marked `unless`.
    fn adopt(&self, dir: &Arc<Node>, name: &[u8], stx: &Statx, way: Way, unless: Option<u64>) -> Option<Arc<Node>> {
        let id = self.id(stx);
        // Declared first so that it is dropped after the locks.
        let existing;
        let _unchanged = self.changes.unless(self.key(dir, name), unless)?;
        let mut links = lock(&dir.links);
        let children = links.children.get_or_insert_default();
        existing = children.get(name).and_then(Weak::upgrade);
        // What is bound on itself is the same file, but another mount.
        if let Some(node) = &existing
            && node.id == id
            && node.at_home == is_at_home(dir, id, way)
        {
            return Some(node.clone());
        }
        let name: Arc<[u8]> = name.into();
        let kind = qid::file_type(stx);
        let node = Arc::new(Node::new(id, kind, way, Some(dir.clone()), name.clone()));
        children.insert(name, Arc::downgrade(&node));
        Some(node)
    }

    /// The node that stands for `name` in `dir`, if there is one.
    pub(super) fn child(&self, dir: &Node, name: &[u8]) -> Option<Arc<Node>> {
        let links = lock(&dir.links);
        let child = links.children.as_ref()?.get(name).and_then(Weak::upgrade);
        drop(links);
        child
    }

    fn key(&self, dir: &Node, name: &[u8]) -> NameKey {
        self.changes.key((dir.id.dev, dir.id.ino), name)
    }

    /// Holds two names (or one twice) until the change of them is done. Waits for other changes of them.
    pub(super) fn change(&self, one: (&Node, &[u8]), two: (&Node, &[u8])) -> Change<'_> {
        self.changes.hold([self.key(one.0, one.1), self.key(two.0, two.1)])
    }

    /// The name was removed from its directory. `fd` is the node's, taken before.
    pub(super) fn removed(&self, dir: &Arc<Node>, name: &[u8], node: &Arc<Node>, fd: Option<Arc<OwnedFd>>) {
        {
            let mut links = lock(&dir.links);
            if let Some(children) = &mut links.children
                && children.get(name).is_some_and(|child| std::ptr::eq(child.as_ptr(), Arc::as_ptr(node)))
            {
                children.remove(name);
            }
        }
        lock(&node.links).gone = true;
        self.lately.forget(node);
        // Where none but the caller has it, nobody will ask for it.
        if let Some(fd) = fd.filter(|_| Arc::strong_count(node) > 1) {
            self.pin(node, fd);
        }
    }

    /// The name `old` in `from` became `new` in `to`. Answers the node that had it when that can no longer be
    /// found by name, and so needs its descriptor pinned: somebody on the host moved `to`, which these nodes
    /// still have below it.
    pub(super) fn renamed(&self, from: &Arc<Node>, old: &[u8], to: &Arc<Node>, new: &[u8]) -> Option<Arc<Node>> {
        // Dropped after the locks, as is the directory that it was in.
        let moved;
        let placed = {
            // One at a time: two together could make the circle that neither makes alone.
            let _alone = self.changes.alone();
            moved = take_child(from, old)?;
            put_child(&moved, to, new)
        };
        self.have_moved(&moved, from, to);
        matches!(placed, Err(Within)).then_some(moved)
    }

    /// The names `one` and `two` were exchanged. Answers those of the nodes that had them that can no longer be found by name, as
    /// [`Tree::renamed`] does, in the same order.
    pub(super) fn exchanged(&self, one: (&Arc<Node>, &[u8]), two: (&Arc<Node>, &[u8])) -> [Option<Arc<Node>>; 2] {
        // Dropped after the locks.
        let moved;
        let placed;
        {
            let _alone = self.changes.alone();
            moved = [one, two].map(|(dir, name)| take_child(dir, name));
            placed = [(&moved[0], two), (&moved[1], one)]
                .map(|(node, (dir, name))| node.as_ref().map(|node| put_child(node, dir, name)));
        }
        let lost = placed.each_ref().map(|placed| matches!(placed, Some(Err(Within))));
        for node in moved.iter().flatten() {
            self.have_moved(node, one.0, two.0);
        }
        let [first, second] = moved;
        [first.filter(|_| lost[0]), second.filter(|_| lost[1])]
    }

    /// A node came from one directory to another, which may be the same.
    fn have_moved(&self, node: &Arc<Node>, from: &Arc<Node>, to: &Arc<Node>) {
        if node.is_dir() && !Arc::ptr_eq(from, to) {
            self.lately.forget_all();
        }
    }

    /// Descriptors held for files that are not open.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.cached.len()
    }
}

/// Takes the node off its name, if there is one.
fn take_child(dir: &Node, name: &[u8]) -> Option<Arc<Node>> {
    lock(&dir.links).children.as_mut().and_then(|children| children.remove(name))?.upgrade()
}

/// The directory that a node was to be put into is below it: somebody on the host moved that.
struct Within;

/// Puts a node that has no name under one; answers the directory that it was in, which the caller drops when no lock is held.
fn put_child(node: &Arc<Node>, dir: &Arc<Node>, name: &[u8]) -> Result<Option<Arc<Node>>, Within> {
    if node.is_dir() && is_within(dir, node) {
        lock(&node.links).gone = true;
        return Err(Within);
    }
    let name: Arc<[u8]> = name.into();
    let parent = {
        let mut links = lock(&node.links);
        links.name = name.clone();
        links.parent.replace(dir.clone())
    };
    lock(&dir.links).children.get_or_insert_default().insert(name, Arc::downgrade(node));
    Ok(parent)
}

/// Whether `node` is `above` or, as far as the nodes know, below it.
fn is_within(node: &Arc<Node>, above: &Arc<Node>) -> bool {
    let mut at = node.clone();
    loop {
        if Arc::ptr_eq(&at, above) {
            return true;
        }
        match at.parent() {
            Some(parent) => at = parent,
            None => return false,
        }
    }
}

fn file_id(stx: &Statx, births: bool) -> FileId {
    let has_btime = births && stx.stx_mask & StatxFlags::BTIME.bits() != 0;
    let born = if has_btime { qid::mixed(stx.stx_btime) as u32 } else { 0 };
    FileId { dev: qid::device(stx), ino: stx.stx_ino, born }
}

/// What is asked of files.
const ASKED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// What statx(2) tells of a descriptor, O_PATH or not.
pub(super) fn look(fd: BorrowedFd<'_>) -> Result<Statx, Error> {
    statx(fd, c"", AtFlags::EMPTY_PATH, ASKED).map_err(os)
}

/// The same of a directory's entry, as whom the thread acts. It follows no link and mounts nothing, but what is mounted on the entry
/// already it tells of in the entry's place, as a MOUNT_ROOT.
pub(super) fn look_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Statx, Error> {
    look_at_with(dir, name, AtFlags::empty())
}

fn look_at_with(dir: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Result<Statx, Error> {
    statx(dir, name, flags | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, ASKED).map_err(os)
}
