//! The names of the tree: which directory has which entries.
//!
//! Pure structure, without permissions: [`super::tree`] asks those first. An entry's number is its cookie in a
//! directory listing; numbers only grow, so a cookie stays good whatever is removed, and a renamed entry keeps its own.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::budget::Charge;
use super::node::Node;

/// The cookies behind `.` and `..`.
pub(super) const HERE: u64 = 1;
pub(super) const PARENT: u64 = 2;

/// The root's entry, which is in no directory.
pub(super) const ROOT: u64 = 3;

/// Bytes that an entry is reckoned to take beside its name: two table rows and a tree's.
pub(super) const ENTRY_BYTES: u64 = 192;

/// A name of a file.
#[derive(Debug)]
pub(super) struct Entry {
    /// The path of the directory's node; the root's is its own.
    pub(super) dir: u64,
    pub(super) name: Arc<[u8]>,
    pub(super) node: Arc<Node>,
    pub(super) charge: Charge,
}

#[derive(Debug)]
struct Dir {
    /// The directory's own entry.
    entry: u64,
    by_name: HashMap<Arc<[u8]>, u64>,
    cookies: BTreeSet<u64>,
}

impl Dir {
    fn new(entry: u64) -> Dir {
        Dir { entry, by_name: HashMap::new(), cookies: BTreeSet::new() }
    }
}

/// All names. Directories are named by their nodes' paths.
#[derive(Debug)]
pub(super) struct Names {
    dirs: HashMap<u64, Dir>,
    entries: HashMap<u64, Entry>,
    last: u64,
}

impl Names {
    pub(super) fn new(root: Arc<Node>, charge: Charge) -> Names {
        let dirs = HashMap::from([(root.path, Dir::new(ROOT))]);
        let entry = Entry { dir: root.path, name: Arc::from(&b"/"[..]), node: root, charge };
        Names { dirs, entries: HashMap::from([(ROOT, entry)]), last: ROOT }
    }

    /// How many entries there are.
    pub(super) fn count(&self) -> u64 {
        self.entries.len() as u64
    }

    /// `None` once the name was removed.
    pub(super) fn entry(&self, id: u64) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// Whether the directory is still part of the tree.
    pub(super) fn has_dir(&self, dir: u64) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// A directory's own entry; `None` once it was removed.
    pub(super) fn dir(&self, dir: u64) -> Option<&Entry> {
        self.entries.get(&self.dirs.get(&dir)?.entry)
    }

    /// The entry of a name, and its number.
    pub(super) fn lookup(&self, dir: u64, name: &[u8]) -> Option<(u64, &Entry)> {
        let id = *self.dirs.get(&dir)?.by_name.get(name)?;
        Some((id, &self.entries[&id]))
    }

    /// The entry of the directory above; the root's own for the root, `None` for a directory that was removed.
    pub(super) fn parent(&self, dir: u64) -> Option<(u64, &Entry)> {
        let above = self.entries[&self.dirs.get(&dir)?.entry].dir;
        let id = self.dirs[&above].entry;
        Some((id, &self.entries[&id]))
    }

    /// The entries behind a cookie, in order.
    pub(super) fn list(&self, dir: u64, behind: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let cookies = self.dirs.get(&dir).map(|dir| dir.cookies.range(behind.saturating_add(1)..));
        cookies.into_iter().flatten().map(|id| (*id, &self.entries[id]))
    }

    pub(super) fn is_empty(&self, dir: u64) -> bool {
        self.dirs.get(&dir).is_none_or(|dir| dir.cookies.is_empty())
    }

    /// Whether `dir` is `above` or lies below it.
    pub(super) fn is_within(&self, mut dir: u64, above: u64) -> bool {
        loop {
            if dir == above {
                return true;
            }
            match self.parent(dir) {
                Some((_, entry)) if entry.node.path != dir => dir = entry.node.path,
                _ => return false,
            }
        }
    }

    /// Adds a name that the directory does not have; a directory's own entries come into being with its name.
    pub(super) fn insert(&mut self, dir: u64, name: &[u8], node: Arc<Node>, charge: Charge) -> u64 {
        self.last += 1;
        let (id, name) = (self.last, Arc::from(name));
        if node.is_dir() {
            self.dirs.insert(node.path, Dir::new(id));
        }
        self.file(id, Entry { dir, name, node, charge });
        id
    }

    /// Removes a name; a directory's must be empty.
    pub(super) fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.unfile(id)?;
        if entry.node.is_dir() {
            self.dirs.remove(&entry.node.path);
        }
        Some(entry)
    }

    /// Moves a name to where there is none.
    pub(super) fn rename(&mut self, id: u64, dir: u64, name: &[u8]) {
        if let Some(entry) = self.unfile(id) {
            self.file(id, Entry { dir, name: Arc::from(name), ..entry });
        }
    }

    /// Gives each of two names the other's file. An entry stays with its file and takes the other's place, name and charge.
    pub(super) fn exchange(&mut self, one: u64, two: u64) {
        if one == two {
            return;
        }
        if let (Some(mut first), Some(mut second)) = (self.unfile(one), self.unfile(two)) {
            std::mem::swap(&mut first.node, &mut second.node);
            self.file(one, second);
            self.file(two, first);
        }
    }

    fn file(&mut self, id: u64, entry: Entry) {
        let dir = self.dirs.get_mut(&entry.dir).expect("the directory is part of the tree");
        dir.by_name.insert(entry.name.clone(), id);
        dir.cookies.insert(id);
        self.entries.insert(id, entry);
    }

    fn unfile(&mut self, id: u64) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        if let Some(dir) = self.dirs.get_mut(&entry.dir) {
            dir.by_name.remove(&entry.name);
            dir.cookies.remove(&id);
        }
        Some(entry)
    }

    /// Changes what the entry's name is reckoned to take.
    pub(super) fn charge_mut(&mut self, id: u64) -> Option<&mut Charge> {
        self.entries.get_mut(&id).map(|entry| &mut entry.charge)
    }
}
