//! A name space of numbers: a file is one, and what is walked to from it another.

use std::collections::HashMap;

use ninefold::ns::{Dot, Flags, Member, Mtab, Order, Path, Refused, Source};

/// No flag.
pub const PLAIN: Flags = Flags { create: false, cache: false };
/// `-c`
pub const CREATE: Flags = Flags { create: true, cache: false };
/// `-C`
pub const CACHE: Flags = Flags { create: false, cache: true };

pub fn path(text: &str) -> Path {
    Path::parse(text.as_bytes(), &Path::root()).unwrap()
}

/// The numbers of files that were walked to.
#[derive(Default)]
pub struct Files {
    known: HashMap<(u32, Vec<u8>), u32>,
    /// A name that no directory has.
    pub missing: Option<&'static str>,
}

impl Files {
    /// What `name` is in the directory `from`. Everything is there.
    pub fn walk<'n>(&mut self, from: u32, names: impl IntoIterator<Item = &'n [u8]>) -> u32 {
        names.into_iter().fold(from, |at, name| {
            let next = 1_000_000 + self.known.len() as u32;
            *self.known.entry((at, name.to_vec())).or_insert(next)
        })
    }
}

/// A table and its files, changed as a name space changes it.
#[derive(Default)]
pub struct Space {
    pub table: Mtab<u32>,
    pub files: Files,
}

impl Space {
    /// With a file for the root.
    pub fn at(root: u32) -> Space {
        let mut space = Space::default();
        space.mount(root, "/", (Order::Replace, PLAIN)).unwrap();
        space
    }

    /// The file that a path is walked to, in the first of its members, if it is there.
    pub fn walked(&mut self, to: &Path) -> Option<Member<u32>> {
        let found = self.table.resolve(to);
        let first = found.members.first()?.clone();
        let left = to.with_resolved(found.names);
        if left.left().any(|name| self.files.missing.is_some_and(|missing| name == missing.as_bytes())) {
            return None;
        }
        Some(Member { file: self.files.walk(first.file, left.left()), ..first })
    }

    fn there(&mut self, old: &Path) -> Option<Member<u32>> {
        if self.table.resolve(old).is_mount_point() { None } else { self.walked(old) }
    }

    pub fn mount(&mut self, file: u32, old: &str, how: (Order, Flags)) -> Result<(), Refused> {
        let old = path(old);
        let there = self.there(&old);
        self.table.mount(file, &old, how, there)
    }

    pub fn bind(&mut self, new: &str, old: &str, how: (Order, Flags)) -> Result<(), Refused> {
        let (new, old) = (path(new), path(old));
        if new == old {
            return Ok(());
        }
        let source = match self.table.source(&new) {
            Some(source) => source,
            None => {
                let file = self.walked(&new).map(|member| (member.file, Flags { create: false, ..member.flags }));
                self.table.source_of(&new, file)
            }
        };
        let there = self.there(&old);
        self.table.bind(source, &old, how, there)
    }

    /// The files that a path may be, in order.
    pub fn seen(&mut self, at: &str) -> Vec<u32> {
        let at = path(at);
        let found = self.table.resolve(&at);
        let (members, left) = (found.members.to_vec(), at.with_resolved(found.names));
        members.into_iter().map(|member| self.files.walk(member.file, left.left())).collect()
    }

    /// What `names` are from a file.
    pub fn below(&mut self, file: u32, names: &str) -> u32 {
        self.files.walk(file, path(names).names())
    }

    /// Dot, resolved.
    pub fn dot(&mut self, at: &str) -> Dot<u32> {
        let mut dot = Dot::new(path(at));
        if let Some(member) = self.walked(dot.path()) {
            dot.settle(member, self.table.generation());
        }
        dot
    }
}

/// What a bind of another's union copies.
pub fn files_of(source: &Source<u32>) -> Vec<u32> {
    source.members().iter().map(|member| member.file).collect()
}
