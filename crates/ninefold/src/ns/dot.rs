//! Dot, the current directory of a name space: a name, and the file that it stood for when it was resolved.
//!
//! The file is where paths below it are walked from, unless something is mounted there: then, and where dot is a union, the table
//! is asked as for any path (S5, "The mount table"). A change of the table makes the file [stale](Dot::is_stale): it is resolved
//! again before it serves again. The name is what relative paths begin with, always.

use super::mtab::{Member, Mtab};
use super::path::Path;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Dot<F> {
    path: Path,
    /// With the generation of the table that it was resolved in.
    found: Option<(Member<F>, u64)>,
}

impl<F> Dot<F> {
    /// A directory that was not resolved.
    pub fn new(path: Path) -> Dot<F> {
        Dot { path, found: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has to be resolved in this table before it can serve.
    pub fn is_stale(&self, table: &Mtab<F>) -> bool {
        self.found.as_ref().is_none_or(|(_, generation)| *generation != table.generation())
    }

    /// The directory's file, as it was resolved in a table of this generation.
    pub fn settle(&mut self, member: Member<F>, generation: u64) {
        self.found = Some((member, generation));
    }

    /// What `path` is walked from if that is dot's file: names of it that are resolved are those of [`Dot::path`].
    pub fn serves(&self, table: &Mtab<F>, path: &Path) -> Option<&Member<F>> {
        if self.is_stale(table) || !path.starts_with(&self.path) {
            return None;
        }
        let here = table.resolve(&self.path);
        let needs_table = here.has_mounts_below() || here.is_union() && here.is_mount_point();
        self.found.as_ref().filter(|_| !needs_table).map(|(member, _)| member)
    }
}
