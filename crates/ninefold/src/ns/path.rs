//! A path of a name space, parsed once and cleaned: absolute, without dots, in names (S5, "File names").
//!
//! [`Path::parse`] takes what a person wrote and the path of dot; "there are no dots in paths from this moment on". A path knows
//! how many of its names are [resolved](Path::resolved): the mount table knows the file for those, and the rest is left to be
//! walked. Cloning one shares its bytes.

use std::fmt;
use std::sync::Arc;

use ninefold_proto::types::{BadName, Name};

/// Bytes of the longest path, as Linux has it (PATH_MAX, limits.h, with the NUL).
pub const PATH_MAX: usize = 4095;

/// Names, of which none is a dot. Two paths are equal when their names are, whatever is resolved of them.
#[derive(Clone)]
pub struct Path {
    /// `/a/b`; nothing for the root.
    text: Arc<[u8]>,
    /// Where in it each name ends.
    ends: Arc<[u16]>,
    resolved: usize,
}

/// Why bytes are not a [`Path`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadPath {
    #[error("{0}")]
    Name(#[from] BadName),
    #[error("the path is longer than {PATH_MAX} bytes")]
    TooLong,
}

impl Path {
    /// `/`.
    pub fn root() -> Path {
        Path { text: Arc::from([]), ends: Arc::from([]), resolved: 0 }
    }

    /// What `text` names, by its letters alone (cleanname(2)): from the root when it begins with `/`, else from `dot`. Above the
    /// root `..` is the root.
    pub fn parse(text: &[u8], dot: &Path) -> Result<Path, BadPath> {
        let mut names: Vec<&[u8]> = if text.starts_with(b"/") { Vec::new() } else { dot.names().collect() };
        for part in text.split(|&b| b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => drop(names.pop()),
                name => names.push(Name::new(name)?.as_bytes()),
            }
        }
        Path::of_checked(names.into_iter())
    }

    /// The path of these names.
    pub fn of<'n>(names: impl IntoIterator<Item = &'n [u8]>) -> Result<Path, BadPath> {
        let mut checked = Vec::new();
        for name in names {
            checked.push(Name::new(name)?.as_bytes());
        }
        Path::of_checked(checked.into_iter())
    }

    fn of_checked<'n>(names: impl Iterator<Item = &'n [u8]>) -> Result<Path, BadPath> {
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        for name in names {
            text.push(b'/');
            text.extend_from_slice(name);
            if text.len() > PATH_MAX {
                return Err(BadPath::TooLong);
            }
            // PATH_MAX fits.
            ends.push(text.len() as u16);
        }
        Ok(Path { text: text.into(), ends: ends.into(), resolved: 0 })
    }

    /// How many names it has; the root has none.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it is the root.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name at `at`, counted from the root.
    pub fn name(&self, at: usize) -> Option<&[u8]> {
        let end = usize::from(*self.ends.get(at)?);
        let begin = at.checked_sub(1).map_or(0, |before| usize::from(self.ends[before]));
        self.text.get(begin + 1..end)
    }

    /// All names, from the root on.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        (0..self.len()).map(|at| self.name(at).unwrap_or_default())
    }

    /// How many names are resolved; 0 to [`Path::len`].
    pub fn resolved(&self) -> usize {
        self.resolved
    }

    /// The same with so many names resolved, or all that there are.
    pub fn with_resolved(&self, resolved: usize) -> Path {
        Path { resolved: resolved.min(self.len()), ..self.clone() }
    }

    /// The names that are left to be walked.
    pub fn left(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        (self.resolved..self.len()).map(|at| self.name(at).unwrap_or_default())
    }

    /// The directory that holds the file, and the file's name; the root has none.
    pub fn parted(&self) -> Option<(Path, &[u8])> {
        let last = self.len().checked_sub(1)?;
        Some((self.prefix(last), self.name(last)?))
    }

    /// The first `count` names, or all that there are, none of them resolved.
    pub fn prefix(&self, count: usize) -> Path {
        let ends = &self.ends[..count.min(self.len())];
        let text = &self.text[..ends.last().map_or(0, |&end| usize::from(end))];
        Path { text: text.into(), ends: ends.into(), resolved: 0 }
    }

    /// The path of `names` below this one.
    pub fn join<'n>(&'n self, names: impl IntoIterator<Item = &'n [u8]>) -> Result<Path, BadPath> {
        Path::of(self.names().chain(names))
    }

    /// Whether this path is `prefix` or lies below it.
    pub fn starts_with(&self, prefix: &Path) -> bool {
        let (whole, part) = (&self.text[..], &prefix.text[..]);
        whole.starts_with(part) && matches!(whole.get(part.len()), None | Some(b'/'))
    }

    /// The bytes; `/` for the root.
    pub fn as_bytes(&self) -> &[u8] {
        if self.is_empty() { b"/" } else { &self.text }
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Path) -> bool {
        self.text == other.text
    }
}

impl Eq for Path {}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Path) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Path {
    /// Name by name: a directory comes right before what is in it.
    fn cmp(&self, other: &Path) -> std::cmp::Ordering {
        self.names().cmp(other.names())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({} of {} resolved)", self.resolved, self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        Path::parse(text.as_bytes(), &Path::root()).unwrap()
    }

    #[test]
    fn no_dot_is_left_in_a_path() {
        for (text, clean) in [
            ("", "/"),
            ("/", "/"),
            ("//a/./b//c/", "/a/b/c"),
            ("/a/b/../c", "/a/c"),
            ("/a/../../b/c/..", "/b"),
            ("/...", "/..."),
        ] {
            assert_eq!(path(text).to_string(), clean, "{text}");
        }
    }

    #[test]
    fn above_the_root_is_the_root() {
        assert_eq!(path("/../../..").len(), 0);
        assert_eq!(Path::parse(b"../../../x", &path("/a/b")).unwrap(), path("/x"));
    }

    #[test]
    fn what_does_not_begin_at_the_root_begins_at_dot() {
        let dot = path("/usr/ken");
        for (text, clean) in [("", "/usr/ken"), ("src", "/usr/ken/src"), ("../rob", "/usr/rob"), ("/bin", "/bin")] {
            assert_eq!(Path::parse(text.as_bytes(), &dot).unwrap(), path(clean), "{text}");
        }
    }

    #[test]
    fn a_path_knows_what_is_resolved_of_it_and_what_is_left() {
        // Figure 1 of S5.
        let whole = path("/a/b/c/d").with_resolved(2);
        assert_eq!((whole.resolved(), whole.len()), (2, 4));
        assert_eq!(whole.left().collect::<Vec<_>>(), [b"c", b"d"]);
        assert_eq!(whole.with_resolved(9).left().count(), 0);
        assert_eq!(whole, path("/a/b/c/d"));
    }

    #[test]
    fn a_name_that_no_file_can_have_and_a_path_too_long_are_refused() {
        let parse = |text: &[u8]| Path::parse(text, &Path::root());
        assert_eq!(parse(b"/a\0b"), Err(BadPath::Name(BadName::Forbidden)));
        assert_eq!(parse(&[b'x'; 256]), Err(BadPath::Name(BadName::TooLong)));
        assert!(parse(&b"/x".repeat(2047)).is_ok());
        assert_eq!(parse(&b"/x".repeat(2048)), Err(BadPath::TooLong));
    }

    #[test]
    fn a_prefix_ends_where_a_name_does() {
        assert!(path("/a/b").starts_with(&path("/a")) && path("/a").starts_with(&path("/a")));
        assert!(path("/a").starts_with(&Path::root()));
        assert!(!path("/ab").starts_with(&path("/a")) && !path("/a").starts_with(&path("/a/b")));
        let whole = path("/a/b");
        assert_eq!(whole.parted(), Some((path("/a"), &b"b"[..])));
        assert_eq!(Path::root().parted(), None);
        assert_eq!(path("/a").join([&b"b"[..]]).unwrap(), whole);
    }
}
