//! Listings with attributes, access(2), renames that replace nothing, and exchanges.

use ninefold_proto::plus::plus_entries;
use ninefold_proto::server::Rename;

use super::*;

impl Fid {
    fn plus(&self, offset: u64, max: u32) -> Result<Vec<(String, u64, Attr)>, Errno> {
        let listed = now(self.0.readdirplus(&cx(), offset, max, u64::MAX))?;
        let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        let entries = plus_entries(&listed.entries).map(Result::unwrap);
        let told: Vec<_> = entries.map(|e| (name(e.entry.name), e.entry.offset, e.attr)).collect();
        let rest = now(self.0.readdir(&cx(), told.last().map_or(offset, |entry| entry.1), 4096))?;
        assert_eq!(listed.end, rest.is_empty(), "whether anything is behind {told:?}");
        Ok(told)
    }

    fn access(&self, mode: u32) -> u32 {
        now(self.0.access(&cx(), mode)).unwrap()
    }

    fn rename_with(&self, old: &str, newdir: &Fid, new: &str, how: Rename) -> Result<(), Errno> {
        now(self.0.rename_with(&cx(), name(old), &*newdir.0, name(new), how))
    }

    fn exchange(&self, old: &str, newdir: &Fid, new: &str) -> Result<(), Errno> {
        self.rename_with(old, newdir, new, Rename::Exchange)
    }
}

#[test]
fn each_entry_has_what_getattr_tells_of_it() {
    let root = attach(&fs(), ANN);
    let dir = root.mkdir("d", 0o755);
    dir.create("f", 0o640).write(0, b"12345").unwrap();
    dir.mkdir("sub", 0o700);
    now(dir.0.symlink(&cx(), name("link"), b"f", None)).unwrap();
    // The first one moves the directory's atime.
    dir.plus(0, 4096).unwrap();
    let listed = dir.plus(0, 4096).unwrap();
    assert_eq!(listed.iter().map(|entry| entry.0.as_str()).collect::<Vec<_>>(), [".", "..", "f", "sub", "link"]);
    for (name, _, attr) in &listed {
        assert_eq!(*attr, dir.at(name).attr(), "{name}");
    }
    // Part by part.
    let mut found = Vec::new();
    while let Some(entry) = dir.plus(found.last().map_or(0, |entry: &(String, u64, Attr)| entry.1), 200).unwrap().pop()
    {
        found.push(entry);
    }
    assert_eq!(found, listed);
    assert_eq!(dir.plus(0, 100), Err(Errno::EINVAL));
}

#[test]
fn who_may_not_search_a_directory_sees_names_without_attributes() {
    let fs = fs();
    let dir = attach(&fs, ANN).mkdir("d", 0o744);
    dir.create("f", 0o644);
    let listed = attach(&fs, BOB).at("d").plus(2, 4096).unwrap();
    assert_eq!((listed[0].0.as_str(), listed[0].2.valid, listed[0].2.mode), ("f", 0, 0));
}

#[test]
fn access_is_that_of_the_attached_user() {
    let fs = fs();
    let file = attach(&fs, ANN).create("f", 0o640);
    assert_eq!((file.access(7), file.access(1), file.access(4), file.access(0)), (6, 0, 4, 0));
    assert_eq!(attach(&fs, BOB).at("f").access(7), 0);
    assert_eq!(attach(&fs, ROOT_USER).at("f").access(7), 6, "what nobody may execute is no program");
    assert_eq!(attach(&fs, BOB).access(7), 7);
}

#[test]
fn a_name_that_is_taken_is_not_replaced() {
    let root = attach(&fs(), ANN);
    root.create("a", 0o644);
    root.create("b", 0o644);
    let (a, b) = (root.at("a").attr().qid.path, root.at("b").attr().qid.path);
    assert_eq!(root.rename_with("a", &root, "b", Rename::NoReplace), Err(Errno::EEXIST));
    assert_eq!(root.rename_with("a", &root, "a", Rename::NoReplace), Err(Errno::EEXIST));
    assert_eq!(root.rename_with("a", &root, "c", Rename::NoReplace), Ok(()));
    assert_eq!((root.at("c").attr().qid.path, root.at("b").attr().qid.path), (a, b));
}

#[test]
fn exchanged_files_keep_their_fids_and_links_are_counted() {
    let root = attach(&fs(), ANN);
    let dir = root.mkdir("d", 0o755);
    let (sub, file) = (dir.mkdir("sub", 0o755), root.create("f", 0o644));
    let below = sub.create("below", 0o644);
    let (versions, links) = ((root.attr().qid.version, dir.attr().qid.version), (root.attr().nlink, dir.attr().nlink));
    assert_eq!(root.exchange("f", &dir, "sub"), Ok(()));
    assert_eq!(
        (root.at("d/sub").attr().qid.path, root.at("f").attr().qid.path),
        (file.attr().qid.path, sub.attr().qid.path)
    );
    assert_eq!(root.at("f/below").attr().qid.path, below.attr().qid.path);
    assert_eq!(sub.at("..").attr().qid.path, root.attr().qid.path);
    assert_eq!((root.attr().nlink, dir.attr().nlink), (links.0 + 1, links.1 - 1));
    assert!(root.attr().qid.version != versions.0 && dir.attr().qid.version != versions.1);
    assert_eq!(file.stat().name, b"sub");
    assert_eq!((root.list(), dir.list()), (vec!["d".into(), "f".into()], vec!["sub".into()]));
    // Back, and within one directory.
    assert_eq!(dir.exchange("sub", &root, "f"), Ok(()));
    assert_eq!(root.exchange("d", &root, "f"), Ok(()));
    assert_eq!((root.attr().nlink, root.at("d").attr().qid.path), (links.0, file.attr().qid.path));
    assert_eq!(root.exchange("d", &root, "d"), Ok(()));
}

#[test]
fn an_exchange_needs_both_names_and_rights_to_both_places() {
    let fs = fs();
    let root = attach(&fs, ANN);
    let dir = root.mkdir("d", 0o755);
    dir.mkdir("sub", 0o755).create("f", 0o644);
    root.create("g", 0o644);
    assert_eq!(root.exchange("d", &dir.at("sub"), "f"), Err(Errno::EINVAL));
    assert_eq!(dir.at("sub").exchange("f", &root, "d"), Err(Errno::EINVAL));
    assert_eq!(root.exchange("g", &dir, "none"), Err(Errno::ENOENT));
    assert_eq!(root.exchange("none", &dir, "sub"), Err(Errno::ENOENT));
    let bob = attach(&fs, BOB);
    bob.create("his", 0o644);
    assert_eq!(bob.exchange("his", &bob.at("d"), "sub"), Err(Errno::EACCES));
    assert_eq!(root.list(), ["d", "g", "his"]);
    assert_eq!(root.at("d").list(), ["sub"]);
}
