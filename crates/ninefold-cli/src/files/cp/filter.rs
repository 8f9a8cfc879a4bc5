//! Which files of a tree are copied: `--include` and `--exclude`.
//!
//! A pattern without a `/` is compared with a file's name; one with a `/` with its path below what is copied, from the
//! start. `*` and `?` do not match a `/`, `**` does. A `/` at the end: directories only. What is excluded is left out
//! with all that is in it, whatever is included; where anything is included, files that are not are left out, while
//! directories are made all the same.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Candidate, GlobBuilder, GlobMatcher};

use crate::failure::Usage;

/// The patterns of one copy.
#[derive(Debug)]
pub struct Filter {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    matcher: GlobMatcher,
    whole_path: bool,
    only_dirs: bool,
}

impl Pattern {
    fn new(text: &str) -> anyhow::Result<Pattern> {
        let (glob, only_dirs) = text.strip_suffix('/').map_or((text, false), |glob| (glob, true));
        let whole_path = glob.contains('/');
        let glob = glob.strip_prefix('/').unwrap_or(glob);
        let bad = |e: globset::Error| Usage::error(format!("'{text}' is no pattern: {}", e.kind()));
        let matcher = GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build().map_err(bad)?;
        Ok(Pattern { matcher: matcher.compile_matcher(), whole_path, only_dirs })
    }

    fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if self.only_dirs && !is_dir {
            return false;
        }
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
        let subject = if self.whole_path { path } else { name };
        self.matcher.is_match_candidate(&Candidate::new(Path::new(OsStr::from_bytes(subject))))
    }
}

impl Filter {
    pub fn new(include: &[String], exclude: &[String]) -> anyhow::Result<Filter> {
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect::<anyhow::Result<_>>();
        Ok(Filter { include: patterns(include)?, exclude: patterns(exclude)? })
    }

    /// Whether a file is copied, or a directory gone into. `path`: its names below what is copied, with `/` between.
    pub fn takes(&self, path: &[u8], is_dir: bool) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(path, is_dir));
        !any(&self.exclude) && (is_dir || self.include.is_empty() || any(&self.include))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Filter::new(&owned(include), &owned(exclude)).unwrap()
    }

    #[test]
    fn a_pattern_without_a_slash_is_compared_with_the_name() {
        let f = filter(&["*.rs"], &["tmp"]);
        assert!(f.takes(b"a/b/x.rs", false));
        assert!(!f.takes(b"a/b/x.c", false));
        assert!(f.takes(b"a/b", true));
        assert!(!f.takes(b"a/tmp", true));
        assert!(!f.takes(b"tmp", false));
    }

    #[test]
    fn a_pattern_with_a_slash_is_compared_with_the_path_from_the_start() {
        let f = filter(&[], &["/x", "a/*.o", "**/deep/*"]);
        assert!(!f.takes(b"x", false));
        assert!(f.takes(b"a/x", false));
        assert!(!f.takes(b"a/1.o", false));
        assert!(f.takes(b"a/b/1.o", false));
        assert!(f.takes(b"b/a/1.o", false));
        assert!(!f.takes(b"p/q/deep/r", false));
    }

    #[test]
    fn a_slash_at_the_end_means_directories() {
        let f = filter(&[], &["build/"]);
        assert!(!f.takes(b"a/build", true));
        assert!(f.takes(b"a/build", false));
    }

    #[test]
    fn what_is_excluded_is_left_out_although_it_is_included() {
        assert!(!filter(&["*.rs"], &["x.*"]).takes(b"x.rs", false));
    }

    #[test]
    fn names_that_are_not_utf_8_are_compared_by_their_bytes() {
        assert!(!filter(&[], &["*.bak"]).takes(b"\xff\xfe.bak", false));
        assert!(filter(&[], &["*.bak"]).takes(b"\xff\xfe.bat", false));
    }

    #[test]
    fn a_pattern_that_is_none_is_a_usage_error() {
        let e = Filter::new(&["[".to_owned()], &[]).unwrap_err();
        assert!(e.is::<Usage>(), "{e}");
    }
}
