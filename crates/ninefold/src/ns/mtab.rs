//! The mount table: from names to files, a trie (S5, "The mount table"). Pure: it knows no server, and asks nobody.
//!
//! Each name has a list of files, in the order in which they are looked into, and the names below it. [`Mtab::resolve`] finds the
//! longest prefix of a path that has files: where to walk from, and what is left to be walked. It visits one node of the trie for
//! each name of the path and one for the root, however many mounts there are. [`Mtab::mount`], [`Mtab::bind`] and
//! [`Mtab::unmount`] change it. `F` is a file, whatever that is; two are equal when they are one file.
//!
//! - Names are bound to files: what a bind copied does not change with what it was copied from.
//! - What replaces a file, replaces what was mounted below it too.
//! - A mount point is a name. It comes before a file of that name in the directories above it.
//! - A clone is a private copy; it shares what neither has changed.

use std::collections::HashMap;
use std::sync::Arc;

use super::path::Path;

/// Names of the deepest mount point: each is a node of the trie, which is taken apart by recursion.
pub const DEPTH_MAX: usize = 128;

/// Files that a table holds at most; each line of a file of binds may double them.
pub const FILES_MAX: usize = 1 << 17;

/// What is allowed with a file that is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags {
    /// `-c`: files are made in this member of a union.
    pub create: bool,
    /// `-C`: its data may be cached and read ahead, even of files whose qid.version is 0.
    pub cache: bool,
}

impl Flags {
    fn with(self, other: Flags) -> Flags {
        Flags { create: self.create || other.create, cache: self.cache || other.cache }
    }
}

/// Where a new file goes among those that a name has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Order {
    /// In their place, and in place of what is mounted below.
    #[default]
    Replace,
    /// `-b`
    Before,
    /// `-a`
    After,
}

/// A file of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member<F> {
    pub file: F,
    pub flags: Flags,
}

/// A node of the trie.
#[derive(Clone, Debug)]
struct Mount<F> {
    members: Vec<Member<F>>,
    children: HashMap<Box<[u8]>, Arc<Mount<F>>>,
}

/// See the [module](self). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Mtab<F> {
    root: Arc<Mount<F>>,
    /// Counts changes: who resolved something knows by it that it must do so again.
    generation: u64,
    /// Of all names.
    files: usize,
}

/// Why the table was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    #[error("nothing is mounted there")]
    NotMounted,
    #[error("the file is not mounted there")]
    NotMember,
    #[error("the root stays: mount something else over it")]
    Root,
    #[error("a mount point lies at most {DEPTH_MAX} names deep")]
    TooDeep,
    #[error(
        "what is bound is a name of the name space alone, and no file: mount a server there first, or bind the names below it"
    )]
    NoFile,
    #[error("a name space holds at most {FILES_MAX} mounted files")]
    TooMany,
}

/// Where a path leads.
#[derive(Debug)]
pub struct Resolved<'t, F> {
    /// What the prefix stands for, in order; nothing where no prefix has a file.
    pub members: &'t [Member<F>],
    /// Names of the prefix.
    pub names: usize,
    /// Nodes of the trie that were looked at.
    pub visited: usize,
    exact: Option<&'t Mount<F>>,
}

impl<'t, F> Resolved<'t, F> {
    /// Whether there is more than one file to look into.
    pub fn is_union(&self) -> bool {
        self.members.len() > 1
    }

    /// Whether the path itself is a name of the table: a mount point, or a name on the way to one.
    pub fn is_named(&self) -> bool {
        self.exact.is_some()
    }

    /// Whether the path itself is a mount point: nothing is left to be walked.
    pub fn is_mount_point(&self) -> bool {
        self.exact.is_some_and(|mount| !mount.members.is_empty())
    }

    /// Whether anything is mounted below the path.
    pub fn has_mounts_below(&self) -> bool {
        self.exact.is_some_and(|mount| !mount.children.is_empty())
    }

    /// The names right below the path that are mount points or lead to some, in no order.
    pub fn children(&self) -> impl Iterator<Item = &'t [u8]> + use<'t, F> {
        self.exact.into_iter().flat_map(|mount| mount.children.keys().map(|name| &name[..]))
    }

    /// The member that a new file goes to: the only one, or the first of a union that was mounted with `-c`.
    pub fn creates_in(&self) -> Option<&'t Member<F>> {
        match self.members {
            [only] => Some(only),
            union => union.iter().find(|member| member.flags.create),
        }
    }
}

/// What is bound to another name.
#[derive(Clone, Debug)]
pub struct Source<F> {
    members: Vec<Member<F>>,
    /// What is mounted below.
    children: HashMap<Box<[u8]>, Arc<Mount<F>>>,
}

impl<F: Clone> Source<F> {
    /// A file that was walked to, with the flags of what it lies in.
    pub fn file(file: F, flags: Flags) -> Source<F> {
        Source { members: vec![Member { file, flags }], children: HashMap::new() }
    }

    /// The files that are bound, in order.
    pub fn members(&self) -> &[Member<F>] {
        &self.members
    }
}

impl<F> Mount<F> {
    fn new() -> Mount<F> {
        Mount { members: Vec::new(), children: HashMap::new() }
    }

    fn count(&self) -> usize {
        self.members.len() + self.children.values().map(|child| child.count()).sum::<usize>()
    }

    fn is_bare(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    fn depth(&self) -> usize {
        self.children.values().map(|child| 1 + child.depth()).max().unwrap_or(0)
    }
}

fn depth_of<F>(children: &HashMap<Box<[u8]>, Arc<Mount<F>>>) -> usize {
    children.values().map(|child| 1 + child.depth()).max().unwrap_or(0)
}

impl<F> Default for Mtab<F> {
    fn default() -> Mtab<F> {
        Mtab { root: Arc::new(Mount::new()), generation: 0, files: 0 }
    }
}

impl<F> Mtab<F> {
    /// A table without files: nothing is there but the root's name.
    pub fn new() -> Mtab<F> {
        Mtab::default()
    }

    /// How often it was changed.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many files it holds, those of unions each.
    pub fn len(&self) -> usize {
        self.files
    }

    /// Whether it holds no file.
    pub fn is_empty(&self) -> bool {
        self.files == 0
    }

    /// The longest prefix of `path` that has files.
    pub fn resolve(&self, path: &Path) -> Resolved<'_, F> {
        let mut at = &*self.root;
        let (mut members, mut names, mut visited) = (&at.members[..], 0, 1);
        let mut exact = true;
        for (depth, name) in (1..).zip(path.names()) {
            match at.children.get(name) {
                Some(child) => at = child,
                None => {
                    exact = false;
                    break;
                }
            }
            visited += 1;
            if !at.members.is_empty() {
                (members, names) = (&at.members[..], depth);
            }
        }
        Resolved { members, names, visited, exact: exact.then_some(at) }
    }

    fn node(&self, path: &Path) -> Option<&Mount<F>> {
        let mut at = &*self.root;
        for name in path.names() {
            at = at.children.get(name)?;
        }
        Some(at)
    }

    /// Every mount point and its files, each path before those below it, in the order of names.
    pub fn mounts(&self) -> Vec<(Path, &[Member<F>])> {
        let mut found = Vec::with_capacity(self.files);
        let mut names = Vec::new();
        collect(&self.root, &mut names, &mut found);
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }
}

fn collect<'t, F>(mount: &'t Mount<F>, names: &mut Vec<&'t [u8]>, found: &mut Vec<(Path, &'t [Member<F>])>) {
    if !mount.members.is_empty()
        && let Ok(path) = Path::of(names.iter().copied())
    {
        found.push((path, &mount.members));
    }
    for (name, child) in &mount.children {
        names.push(name);
        collect(child, names, found);
        names.pop();
    }
}

impl<F: Clone> Mtab<F> {
    /// What a bind of `new` copies where it is a mount point: its files, several if it is a union, and what is mounted below.
    /// Where it is none, the file is the caller's to walk to; see [`Mtab::source_of`].
    pub fn source(&self, new: &Path) -> Option<Source<F>> {
        let mount = self.node(new).filter(|mount| !mount.members.is_empty())?;
        Some(Source { members: mount.members.clone(), children: mount.children.clone() })
    }

    /// The same for a `file` that `new` was walked to, which lies in what was mounted with `flags`; `None`: nothing is there but
    /// names of the table.
    pub fn source_of(&self, new: &Path, file: Option<(F, Flags)>) -> Source<F> {
        let children = self.node(new).map(|mount| mount.children.clone()).unwrap_or_default();
        let members = file.into_iter().map(|(file, flags)| Member { file, flags }).collect();
        Source { members, children }
    }

    /// Mounts a file at `old`. `there` is what the name stands for when it is no mount point, and becomes a member of the union
    /// where the file does not replace it; nothing is made in it.
    pub fn mount(
        &mut self,
        file: F,
        old: &Path,
        (order, flags): (Order, Flags),
        there: Option<Member<F>>,
    ) -> Result<(), Refused> {
        self.bind(Source::file(file, flags), old, (order, Flags::default()), there)
    }

    /// Binds what was copied to `old`, each file with its own flags and those given; `there`: see [`Mtab::mount`]. What is mounted
    /// below it comes along, but not behind (`-a`) what `old` has. A name without a file goes only in front of what is there.
    pub fn bind(
        &mut self,
        new: Source<F>,
        old: &Path,
        (order, flags): (Order, Flags),
        there: Option<Member<F>>,
    ) -> Result<(), Refused> {
        let Source { mut members, children } = new;
        // In place of a file there would be none, and the server's own would show; behind it there is nothing to see.
        if members.is_empty() && order != Order::Before {
            return Err(Refused::NoFile);
        }
        members.iter_mut().for_each(|member| member.flags = member.flags.with(flags));
        if old.len() + depth_of(&children) > DEPTH_MAX {
            return Err(Refused::TooDeep);
        }
        // No more than this can come of it.
        let coming = members.len() + 1 + children.values().map(|child| child.count()).sum::<usize>();
        if self.files + coming > FILES_MAX {
            return Err(Refused::TooMany);
        }
        self.change(old, |mount| {
            if mount.members.is_empty() && order != Order::Replace {
                let there = there.map(|member| Member { flags: Flags { create: false, ..member.flags }, ..member });
                mount.members.extend(there);
            }
            match order {
                Order::Replace => (mount.members, mount.children) = (members, children),
                Order::Before => {
                    mount.members.splice(..0, members);
                    overlay(mount, children);
                }
                Order::After => mount.members.extend(members),
            }
        });
        Ok(())
    }

    /// Takes away everything that is mounted at `old`, and below it; or only the files that are equal to one of `new`: what is
    /// below goes with the last.
    pub fn unmount(&mut self, new: Option<&[F]>, old: &Path) -> Result<(), Refused>
    where
        F: PartialEq,
    {
        let mount = self.node(old).filter(|mount| !mount.members.is_empty()).ok_or(Refused::NotMounted)?;
        let goes = |member: &Member<F>| new.is_none_or(|new| new.contains(&member.file));
        let going = mount.members.iter().filter(|member| goes(member)).count();
        match going {
            0 => return Err(Refused::NotMember),
            _ if old.is_empty() && going == mount.members.len() => return Err(Refused::Root),
            _ => {}
        }
        self.change(old, |mount| {
            mount.members.retain(|member| !goes(member));
            if mount.members.is_empty() {
                mount.children.clear();
            }
        });
        Ok(())
    }

    /// Forgets all mounts but that of the root: without it no name would exist.
    pub fn clear(&mut self) {
        self.change(&Path::root(), |root| root.children.clear());
    }

    /// Changes the node of a path, making it and forgetting it as need be.
    fn change(&mut self, path: &Path, change: impl FnOnce(&mut Mount<F>)) {
        let names: Vec<&[u8]> = path.names().collect();
        let difference = change_below(Arc::make_mut(&mut self.root), &names, change);
        self.files = self.files.saturating_add_signed(difference);
        self.generation += 1;
    }
}

/// By how many the files below grew.
fn change_below<F: Clone>(mount: &mut Mount<F>, names: &[&[u8]], change: impl FnOnce(&mut Mount<F>)) -> isize {
    let Some((name, names)) = names.split_first() else {
        let before = mount.count();
        change(mount);
        return mount.count() as isize - before as isize;
    };
    let child = mount.children.entry(Box::from(*name)).or_insert_with(|| Arc::new(Mount::new()));
    let difference = change_below(Arc::make_mut(child), names, change);
    if child.is_bare() {
        mount.children.remove(*name);
    }
    difference
}

/// Puts mount points over those that there are.
fn overlay<F: Clone>(mount: &mut Mount<F>, over: HashMap<Box<[u8]>, Arc<Mount<F>>>) {
    for (name, new) in over {
        match mount.children.get_mut(&name) {
            None => drop(mount.children.insert(name, new)),
            // What replaces a file, replaces what was mounted below it too.
            Some(child) if !new.members.is_empty() => *child = new,
            Some(child) => overlay(Arc::make_mut(child), new.children.clone()),
        }
    }
}
