//! The trees a server exports, and how an aname finds one (attach(5)).

use std::collections::BTreeMap;
use std::sync::Arc;

use ninefold_proto::{Errno, Error, Name};

use super::FileServer;

/// One exported tree.
#[derive(Clone)]
pub(super) struct Export {
    pub tree: Arc<dyn FileServer>,
    pub read_only: bool,
}

/// All exported trees, by name; the default one has the empty name.
#[derive(Default)]
pub(super) struct Exports {
    by_name: BTreeMap<String, Export>,
    /// Other names that clients use for an export: diod's say the path on the server.
    aliases: BTreeMap<String, String>,
}

/// What an aname stands for: a tree, and the names to walk from its root.
pub(super) struct Target<'a> {
    pub export: Export,
    pub rest: Vec<Name<'a>>,
}

impl Exports {
    pub fn insert(&mut self, name: &str, export: Export) {
        self.by_name.insert(name.to_owned(), export);
    }

    pub fn alias(&mut self, alias: &str, export: &str) {
        self.aliases.insert(alias.trim_end_matches('/').to_owned(), export.to_owned());
    }

    /// Finds `aname`: the default export for none or `/`; an alias or a name, perhaps with a path behind
    /// it; else a path in the default export.
    pub fn find<'a>(&self, aname: &'a [u8]) -> Result<Target<'a>, Error> {
        let unknown = || Error::with_text(Errno::ENOENT, "unknown aname: no such export");
        let text = std::str::from_utf8(aname).map_err(|_| unknown())?;
        let trimmed = text.trim_matches('/');
        let aliased = self.aliases.iter().filter_map(|(alias, name)| {
            let rest = text.strip_prefix(alias.as_str()).filter(|r| r.is_empty() || r.starts_with('/'))?;
            Some((self.by_name.get(name)?, rest, alias.len()))
        });
        if let Some((export, rest, _)) = aliased.max_by_key(|(_, _, len)| *len) {
            return Ok(Target { export: export.clone(), rest: names(rest).ok_or_else(unknown)? });
        }
        let (first, rest) = trimmed.split_once('/').unwrap_or((trimmed, ""));
        let named = self.by_name.get(first).map(|export| (export, rest));
        let default = self.by_name.get("").or_else(|| match (self.by_name.len(), trimmed) {
            (1, "") => self.by_name.values().next(),
            _ => None,
        });
        let (export, rest) = named.or(default.map(|export| (export, trimmed))).ok_or_else(unknown)?;
        Ok(Target { export: export.clone(), rest: names(rest).ok_or_else(unknown)? })
    }
}

fn names(path: &str) -> Option<Vec<Name<'_>>> {
    path.split('/').filter(|part| !part.is_empty()).map(|part| Name::new(part.as_bytes()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Answer, Attach, Cx, File};
    use ninefold_proto::Qid;

    struct Nothing;
    impl FileServer for Nothing {
        fn attach(&self, _: &Cx, _: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
            Answer::err(Errno::EIO)
        }
    }

    fn exports(names: &[(&str, bool)]) -> Exports {
        let mut exports = Exports::default();
        for (name, read_only) in names {
            exports.insert(name, Export { tree: Arc::new(Nothing), read_only: *read_only });
        }
        exports
    }

    fn found(exports: &Exports, aname: &str) -> Option<(bool, String)> {
        let target = exports.find(aname.as_bytes()).ok()?;
        let rest: Vec<_> = target.rest.iter().map(|n| String::from_utf8_lossy(n.as_bytes())).collect();
        Some((target.export.read_only, rest.join("/")))
    }

    #[test]
    fn an_aname_is_a_name_an_alias_or_a_path_in_the_default_export() {
        let mut e = exports(&[("", false), ("pub", true)]);
        e.alias("/srv/data/", "");
        assert_eq!(found(&e, ""), Some((false, "".into())));
        assert_eq!(found(&e, "/"), Some((false, "".into())));
        assert_eq!(found(&e, "pub"), Some((true, "".into())));
        assert_eq!(found(&e, "/pub/a/b"), Some((true, "a/b".into())));
        assert_eq!(found(&e, "/srv/data"), Some((false, "".into())));
        assert_eq!(found(&e, "/srv/data/x"), Some((false, "x".into())));
        assert_eq!(found(&e, "/srv/database"), Some((false, "srv/database".into())));
        assert_eq!(found(&e, "a/../../etc"), None);
    }

    #[test]
    fn without_a_default_only_a_single_export_answers_to_no_name() {
        assert_eq!(found(&exports(&[("pub", true)]), ""), Some((true, "".into())));
        assert_eq!(found(&exports(&[("pub", true)]), "other"), None);
        assert_eq!(found(&exports(&[("a", true), ("b", true)]), ""), None);
    }
}
