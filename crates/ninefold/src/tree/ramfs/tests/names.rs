//! Walking, listing, renaming, linking and removing.

use super::*;

#[test]
fn a_walk_tells_how_far_it_came() {
    let root = attach(&fs(), ANN);
    root.mkdir("a", 0o755).mkdir("b", 0o755).create("f", 0o644);
    let whole = root.try_walk("a/b/f").unwrap();
    assert_eq!((whole.qids.len(), whole.file.is_some()), (3, true));
    let partial = root.try_walk("a/none/f").unwrap();
    assert_eq!((partial.qids.len(), partial.file.is_some()), (1, false));
    assert_eq!(root.try_walk("none").err(), Some(Errno::ENOENT));
    let through_a_file = root.try_walk("a/b/f/g").unwrap();
    assert_eq!((through_a_file.qids.len(), through_a_file.file.is_some()), (3, false));
}

#[test]
fn dots_lead_up_and_never_above_the_root() {
    let root = attach(&fs(), ANN);
    let b = root.mkdir("a", 0o755).mkdir("b", 0o755);
    assert_eq!(b.at("..").attr().qid, root.at("a").attr().qid);
    assert_eq!(b.at("../../../..").attr().qid, root.attr().qid);
    assert_eq!(b.at("./.").attr().qid, b.attr().qid);
}

#[test]
fn cookies_stay_good_while_entries_are_removed() {
    let root = attach(&fs(), ANN);
    for at in 0..100 {
        root.create(&format!("f{at:02}"), 0o644);
    }
    let mut seen = Vec::new();
    let mut cookie = 0;
    loop {
        let part = root.readdir(cookie, 300);
        let Some((_, last)) = part.last() else { break };
        cookie = *last;
        for (name, _) in part {
            if name.starts_with('f') {
                root.unlink(&name, false).unwrap();
            }
            seen.push(name);
        }
    }
    assert_eq!(&seen[..2], [".", ".."]);
    assert_eq!(seen[2..], (0..100).map(|at| format!("f{at:02}")).collect::<Vec<_>>());
    assert!(root.list().is_empty());
}

#[test]
fn an_entry_renamed_during_a_listing_is_seen_once() {
    let root = attach(&fs(), ANN);
    for file in ["a", "b", "c"] {
        root.create(file, 0o644);
    }
    let first = root.readdir(0, 3 * 30);
    assert_eq!(first.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [".", "..", "a"]);
    root.rename("a", &root, "z").unwrap();
    root.rename("c", &root, "y").unwrap();
    let rest: Vec<_> = root.readdir(first[2].1, 1000).into_iter().map(|(name, _)| name).collect();
    assert_eq!(rest, ["b", "y"]);
}

#[test]
fn a_listing_tells_what_the_entries_are() {
    let root = attach(&fs(), ROOT_USER);
    root.create("f", 0o644);
    root.mkdir("d", 0o755);
    now(root.0.symlink(&cx(), name("l"), b"f", None)).unwrap();
    now(root.0.mknod(&cx(), name("p"), node::S_IFIFO | 0o644, 0, None)).unwrap();
    let bytes = now(root.0.readdir(&cx(), 0, 1000)).unwrap();
    let kinds: Vec<_> = dir_entries(&bytes).map(|entry| entry.unwrap()).map(|e| (e.name[0], e.kind)).collect();
    assert_eq!(kinds, [(b'.', 4), (b'.', 4), (b'f', 8), (b'd', 4), (b'l', 10), (b'p', 1)]);
    for entry in dir_entries(&bytes).skip(2).map(|entry| entry.unwrap()) {
        let file = root.at(std::str::from_utf8(entry.name).unwrap());
        assert_eq!(file.attr().qid, entry.qid);
    }
}

#[test]
fn a_listing_with_too_little_room_is_an_error_not_an_end() {
    let root = attach(&fs(), ANN);
    assert_eq!(now(root.0.readdir(&cx(), 0, 10)).err(), Some(Errno::EINVAL));
    root.create("f", 0o644);
    assert_eq!(now(root.0.read_stats(&cx(), 0, 10)).err(), Some(Errno::EINVAL));
}

#[test]
fn rename_replaces_as_rename_2_does() {
    let root = attach(&fs(), ANN);
    root.create("f", 0o644).write(0, b"f").unwrap();
    let replaced = root.create("g", 0o644);
    root.mkdir("d", 0o755);
    root.mkdir("full", 0o755).create("x", 0o644);
    assert_eq!(root.rename("none", &root, "x"), Err(Errno::ENOENT));
    assert_eq!(root.rename("f", &root, "d"), Err(Errno::EISDIR));
    assert_eq!(root.rename("d", &root, "f"), Err(Errno::ENOTDIR));
    assert_eq!(root.rename("d", &root, "full"), Err(Errno::ENOTEMPTY));
    assert_eq!(root.rename("f", &root, "f"), Ok(()));
    assert_eq!(root.rename("f", &root, "g"), Ok(()));
    root.missing("f");
    assert_eq!(root.at("g").attr().size, 1);
    assert_eq!(replaced.attr().nlink, 0);
    assert_eq!(root.rename("full", &root, "d"), Ok(()));
    assert_eq!(root.at("d").list(), ["x"]);
}

#[test]
fn rename_between_two_names_of_one_file_does_nothing() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    root.link(&file, "g").unwrap();
    assert_eq!(root.rename("f", &root, "g"), Ok(()));
    assert_eq!(root.list(), ["f", "g"]);
    assert_eq!(file.attr().nlink, 2);
}

#[test]
fn a_directory_is_not_moved_below_itself() {
    let root = attach(&fs(), ANN);
    let inner = root.mkdir("a", 0o755).mkdir("b", 0o755).mkdir("c", 0o755);
    assert_eq!(root.rename("a", &inner, "x"), Err(Errno::EINVAL));
    assert_eq!(root.rename("a", &root.at("a"), "x"), Err(Errno::EINVAL));
    assert_eq!(now(inner.0.rename(&cx(), &*root.0, name("c"))), Ok(()));
    assert_eq!(root.at("c/..").attr().qid.path, root.attr().qid.path);
}

#[test]
fn fids_below_a_renamed_directory_stay_good() {
    let root = attach(&fs(), ANN);
    let a = root.mkdir("a", 0o755);
    let file = a.create("f", 0o644);
    root.mkdir("b", 0o755);
    root.rename("a", &root.at("b"), "moved").unwrap();
    file.write(0, b"x").unwrap();
    assert_eq!(root.at("b/moved/f").attr().size, 1);
    assert_eq!(a.at("..").attr().qid.path, root.at("b").attr().qid.path);
    now(a.at("f").0.rename(&cx(), &*root.0, name("out"))).unwrap();
    assert_eq!(root.at("out").attr().qid.path, file.attr().qid.path);
    assert_eq!(now(a.0.remove(&cx())), Ok(()));
}

#[test]
fn links_of_directories_count_their_subdirectories() {
    let root = attach(&fs(), ANN);
    let (a, b) = (root.mkdir("a", 0o755), root.mkdir("b", 0o755));
    assert_eq!((root.attr().nlink, a.attr().nlink), (4, 2));
    a.mkdir("c", 0o755);
    assert_eq!(a.attr().nlink, 3);
    a.rename("c", &b, "c").unwrap();
    assert_eq!((a.attr().nlink, b.attr().nlink), (2, 3));
    root.mkdir("d", 0o755);
    root.rename("d", &b, "c").unwrap();
    assert_eq!((root.attr().nlink, b.attr().nlink), (4, 3));
    b.unlink("c", true).unwrap();
    assert_eq!(b.attr().nlink, 2);
}

#[test]
fn unlink_tells_files_from_directories() {
    let root = attach(&fs(), ANN);
    root.create("f", 0o644);
    root.mkdir("d", 0o755).create("x", 0o644);
    assert_eq!(root.unlink("f", true), Err(Errno::ENOTDIR));
    assert_eq!(root.unlink("d", false), Err(Errno::EISDIR));
    assert_eq!(root.unlink("d", true), Err(Errno::ENOTEMPTY));
    assert_eq!(root.unlink("none", false), Err(Errno::ENOENT));
    root.at("d").unlink("x", false).unwrap();
    assert_eq!(root.unlink("d", true), Ok(()));
    assert_eq!(root.unlink("f", false), Ok(()));
    assert!(root.list().is_empty());
}

#[test]
fn in_a_removed_directory_nothing_is_made_or_found() {
    let root = attach(&fs(), ANN);
    let dir = root.mkdir("d", 0o755);
    root.unlink("d", true).unwrap();
    assert_eq!(dir.try_create("f", 0o644, 0, true, how(Access::Read, 0)).err(), Some(Errno::ENOENT));
    assert_eq!(dir.link(&root.create("g", 0o644), "g"), Err(Errno::ENOENT));
    assert_eq!(root.rename("g", &dir, "g"), Err(Errno::ENOENT));
    dir.missing("..");
    assert!(dir.readdir(0, 1000).is_empty());
    assert_eq!(dir.attr().nlink, 0);
}

#[test]
fn the_root_is_neither_removed_nor_renamed() {
    let root = attach(&fs(), ROOT_USER);
    let dir = root.mkdir("d", 0o755);
    assert_eq!(now(root.0.remove(&cx())), Err(Errno::EBUSY));
    assert_eq!(now(root.0.rename(&cx(), &*dir.0, name("x"))), Err(Errno::EBUSY));
}

#[test]
fn remove_takes_the_name_that_was_walked() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    root.link(&file, "g").unwrap();
    assert_eq!(now(root.at("g").0.remove(&cx())), Ok(()));
    assert_eq!(root.list(), ["f"]);
    root.mkdir("d", 0o755).create("x", 0o644);
    assert_eq!(now(root.at("d").0.remove(&cx())), Err(Errno::ENOTEMPTY));
}

#[test]
fn a_hard_link_is_the_same_file() {
    let fs = fs();
    let root = attach(&fs, ANN);
    let file = root.create("f", 0o644);
    root.link(&file, "g").unwrap();
    file.write(0, b"x").unwrap();
    assert_eq!(root.at("g").attr().qid, file.attr().qid);
    assert_eq!(file.attr().nlink, 2);
    assert_eq!(root.link(&file, "g"), Err(Errno::EEXIST));
    assert_eq!(root.link(&root.mkdir("d", 0o755), "e"), Err(Errno::EPERM));
    assert_eq!(root.link(&attach(&self::fs(), ANN).create("f", 0o644), "e"), Err(Errno::EXDEV));
}

#[test]
fn a_symbolic_link_keeps_its_target() {
    let root = attach(&fs(), ANN);
    now(root.0.symlink(&cx(), name("l"), b"../over/there", None)).unwrap();
    let link = root.at("l");
    assert_eq!(now(link.0.readlink(&cx())), Ok(b"../over/there".to_vec()));
    assert_eq!((link.attr().mode, link.attr().size), (0o120_777, 13));
    assert_eq!(link.open(Access::Read), Err(Errno::ELOOP));
    assert_eq!(now(root.0.readlink(&cx())), Err(Errno::EINVAL));
    assert_eq!(now(root.0.symlink(&cx(), name("l"), b"x", None)).err(), Some(Errno::EEXIST));
    assert_eq!(now(root.0.symlink(&cx(), name("e"), b"", None)).err(), Some(Errno::ENOENT));
}

#[test]
fn special_files_are_kept_and_not_opened() {
    let fs = fs();
    let (root, ann) = (attach(&fs, ROOT_USER), attach(&fs, ANN));
    let rdev = rustix::fs::makedev(8, 1);
    now(root.0.mknod(&cx(), name("disk"), node::S_IFBLK | 0o600, rdev, None)).unwrap();
    now(ann.0.mknod(&cx(), name("sock"), node::S_IFSOCK | 0o755, 0, None)).unwrap();
    now(ann.0.mknod(&cx(), name("plain"), 0o644, 0, None)).unwrap();
    assert_eq!(now(ann.0.mknod(&cx(), name("x"), node::S_IFCHR, 0, None)).err(), Some(Errno::EPERM));
    assert_eq!(now(ann.0.mknod(&cx(), name("x"), node::S_IFDIR, 0, None)).err(), Some(Errno::EINVAL));
    assert_eq!((root.at("disk").attr().mode, root.at("disk").attr().rdev), (0o060_600, rdev));
    assert_eq!(root.at("sock").open(Access::Read), Err(Errno::ENXIO));
    assert_eq!(ann.at("plain").open(Access::ReadWrite), Ok(()));
    assert_eq!(ann.rename("sock", &ann, "socket"), Ok(()));
    assert_eq!(ann.unlink("socket", false), Ok(()));
}

#[test]
fn threads_that_change_one_directory_leave_it_whole() {
    let fs = fs();
    let free = fs.tree.budget.free();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let root = attach(&fs, ANN);
            scope.spawn(move || {
                for round in 0..200 {
                    let (a, b) = (format!("a{}", (thread + round) % 5), format!("b{}", round % 3));
                    let _ = root.try_create(&a, 0o644, 0, false, how(Access::ReadWrite, 0)).map(|file| {
                        file.write(0, b"data").unwrap();
                        file.clunk();
                    });
                    let _ = now(root.0.mkdir(&cx(), name(&b), 0o755, None));
                    if let Ok(Walked { file: Some(dir), .. }) = root.try_walk(&b) {
                        let dir = Fid(dir);
                        let _ = root.rename(&a, &dir, "moved");
                        let _ = dir.rename("moved", &root, &a);
                        dir.list();
                    }
                    let _ = root.unlink(&a, false);
                    let _ = root.unlink(&b, true);
                    root.list();
                }
            });
        }
    });
    let root = attach(&fs, ANN);
    for entry in root.list() {
        if root.at(&entry).attr().qid.is_dir() {
            let dir = root.at(&entry);
            for inner in dir.list() {
                dir.unlink(&inner, false).unwrap();
            }
            root.unlink(&entry, true).unwrap();
        } else {
            root.unlink(&entry, false).unwrap();
        }
    }
    assert_eq!(root.attr().nlink, 2);
    assert_eq!(fs.tree.budget.free(), free);
}
