//! Permissions, attributes and versions.

use super::*;

#[test]
fn qid_paths_are_never_used_again_and_versions_are_never_0() {
    let root = attach(&fs(), ANN);
    let first = root.create("f", 0o644).attr().qid;
    root.unlink("f", false).unwrap();
    let second = root.create("f", 0o644).attr().qid;
    assert_ne!(first.path, second.path);
    assert_ne!(second.version, 0);
    assert_ne!(root.attr().qid.version, 0);
}

#[test]
fn every_change_changes_the_version() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    let mut versions = vec![file.attr().qid.version];
    let mut note = || versions.push(file.attr().qid.version);
    file.write(0, b"x").unwrap();
    note();
    file.truncate(0).unwrap();
    note();
    file.chmod(0o600).unwrap();
    note();
    root.link(&file, "g").unwrap();
    note();
    root.rename("f", &root, "h").unwrap();
    note();
    root.unlink("h", false).unwrap();
    note();
    now(file.0.xattr_set(&cx(), b"user.x", Bytes::from_static(b"1"), 0)).unwrap();
    note();
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    let dir = root.attr().qid.version;
    root.create("new", 0o644);
    assert_ne!(root.attr().qid.version, dir);
}

#[test]
fn reading_changes_no_version() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    let (before, dir) = (file.attr().qid, root.attr().qid);
    file.read();
    root.list();
    assert_eq!((file.attr().qid, root.attr().qid), (before, dir));
}

#[test]
fn the_version_goes_from_its_greatest_to_1() {
    let fs = fs();
    let root = attach(&fs, ROOT_USER);
    fs.tree.root().meta().version = u32::MAX;
    root.create("f", 0o644);
    assert_eq!(root.attr().qid.version, 1);
}

#[test]
fn permissions_go_by_owner_group_and_others() {
    let fs = fs();
    let (ann, bob, root) = (attach(&fs, ANN), attach(&fs, BOB), attach(&fs, ROOT_USER));
    let file = ann.create("f", 0o640);
    assert_eq!(ann.at("f").open(Access::ReadWrite), Ok(()));
    assert_eq!(bob.at("f").open(Access::Read), Err(Errno::EACCES));
    file.set(SetAttr { gid: Some(STAFF), ..SetAttr::default() }).unwrap();
    assert_eq!(bob.at("f").open(Access::Read), Ok(()));
    assert_eq!(bob.at("f").open(Access::Write), Err(Errno::EACCES));
    assert_eq!(root.at("f").open(Access::ReadWrite), Ok(()));
    // The owner's own bits count for the owner, even when others may more.
    file.chmod(0o066).unwrap();
    assert_eq!(ann.at("f").open(Access::Read), Err(Errno::EACCES));
    assert_eq!(bob.at("f").open(Access::ReadWrite), Ok(()));
}

#[test]
fn a_program_needs_an_execute_bit_even_for_root() {
    let fs = fs();
    let root = attach(&fs, ROOT_USER);
    let file = root.create("f", 0o644);
    assert_eq!(root.at("f").open(Access::Exec), Err(Errno::EACCES));
    file.chmod(0o700).unwrap();
    assert_eq!(root.at("f").open(Access::Exec), Ok(()));
    assert_eq!(attach(&fs, ANN).at("f").open(Access::Exec), Err(Errno::EACCES));
}

#[test]
fn a_directory_is_searched_listed_and_changed_only_as_its_bits_say() {
    let fs = fs();
    let (ann, bob) = (attach(&fs, ANN), attach(&fs, BOB));
    let dir = ann.mkdir("d", 0o700);
    dir.create("f", 0o666);
    let partial = bob.try_walk("d/f").unwrap();
    assert_eq!((partial.qids.len(), partial.file.is_some()), (1, false));
    assert_eq!(bob.at("d").open(Access::Read), Err(Errno::EACCES));
    dir.chmod(0o711).unwrap();
    assert_eq!(bob.at("d/f").open(Access::Read), Ok(()));
    assert_eq!(bob.at("d").open(Access::Read), Err(Errno::EACCES));
    let bobs = bob.at("d");
    assert_eq!(bobs.unlink("f", false), Err(Errno::EACCES));
    assert_eq!(bobs.try_create("g", 0o644, 0, true, how(Access::Read, 0)).err(), Some(Errno::EACCES));
    assert_eq!(now(bobs.0.mkdir(&cx(), name("g"), 0o755, None)).err(), Some(Errno::EACCES));
    assert_eq!(bobs.rename("f", &bob, "f"), Err(Errno::EACCES));
    assert_eq!(bobs.link(&bob.at("d/f"), "g"), Err(Errno::EACCES));
}

#[test]
fn in_a_sticky_directory_one_removes_ones_own_alone() {
    let fs = fs();
    fs.set_root(ROOT_USER, ROOT_USER, 0o1777);
    let (ann, bob) = (attach(&fs, ANN), attach(&fs, BOB));
    ann.create("f", 0o666);
    bob.create("g", 0o666);
    assert_eq!(bob.unlink("f", false), Err(Errno::EPERM));
    assert_eq!(bob.rename("f", &bob, "h"), Err(Errno::EPERM));
    assert_eq!(bob.rename("g", &bob, "f"), Err(Errno::EPERM));
    assert_eq!(ann.unlink("f", false), Ok(()));
    assert_eq!(attach(&fs, ROOT_USER).unlink("g", false), Ok(()));
}

#[test]
fn a_created_file_can_be_used_as_it_was_opened_whatever_its_mode() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o000);
    assert_eq!(file.write(0, b"x"), Ok(1));
    assert_eq!(file.truncate(0), Ok(()));
    assert_eq!(root.at("f").open(Access::Read), Err(Errno::EACCES));
}

#[test]
fn truncating_open_needs_the_right_to_write() {
    let fs = fs();
    let (ann, bob) = (attach(&fs, ANN), attach(&fs, BOB));
    ann.create("f", 0o644).write(0, b"kept").unwrap();
    let truncate = |fid: &Fid| now(fid.at("f").0.open(&cx(), how(Access::Read, lflags::TRUNC))).map(|_| ());
    assert_eq!(truncate(&bob), Err(Errno::EACCES));
    assert_eq!(ann.at("f").attr().size, 4);
    assert_eq!(truncate(&ann), Ok(()));
    assert_eq!(ann.at("f").attr().size, 0);
}

#[test]
fn attributes_are_changed_by_who_may() {
    let fs = fs();
    let (ann, bob, root) = (attach(&fs, ANN), attach(&fs, BOB), attach(&fs, ROOT_USER));
    ann.create("f", 0o666);
    let none = SetAttr::default();
    let uid = |uid| SetAttr { uid: Some(uid), ..none };
    let gid = |gid| SetAttr { gid: Some(gid), ..none };
    let mtime = |time| SetAttr { mtime: Some(time), ..none };
    let past = SetTime::To(Time { sec: -5, nsec: 7 });
    assert_eq!(bob.at("f").chmod(0o600), Err(Errno::EPERM));
    assert_eq!(bob.at("f").set(uid(BOB)), Err(Errno::EPERM));
    assert_eq!(bob.at("f").set(mtime(past)), Err(Errno::EPERM));
    assert_eq!(bob.at("f").set(mtime(SetTime::Now)), Ok(()));
    assert_eq!(bob.at("f").truncate(3), Ok(()));
    assert_eq!(ann.at("f").set(uid(BOB)), Err(Errno::EPERM));
    assert_eq!(ann.at("f").set(gid(12_345)), Err(Errno::EPERM));
    assert_eq!(ann.at("f").set(gid(STAFF)), Ok(()));
    assert_eq!(ann.at("f").set(mtime(past)), Ok(()));
    assert_eq!(ann.at("f").attr().mtime, Time { sec: -5, nsec: 7 });
    assert_eq!(ann.at("f").chmod(0o644), Ok(()));
    assert_eq!(bob.at("f").truncate(0), Err(Errno::EACCES));
    assert_eq!(bob.at("f").set(mtime(SetTime::Now)), Err(Errno::EACCES));
    assert_eq!(root.at("f").set(uid(BOB)), Ok(()));
    let attr = root.at("f").attr();
    assert_eq!((attr.uid, attr.gid, attr.mode, attr.size), (BOB, STAFF, 0o100_644, 3));
}

#[test]
fn a_refused_setattr_changes_nothing() {
    let fs = fs();
    let ann = attach(&fs, ANN);
    let file = ann.create("f", 0o644);
    file.write(0, b"data").unwrap();
    let before = file.attr();
    let set = SetAttr { mode: Some(0o600), size: Some(0), uid: Some(BOB), ..SetAttr::default() };
    assert_eq!(file.set(set), Err(Errno::EPERM));
    assert_eq!(file.attr(), before);
}

#[test]
fn truncate_is_for_plain_files() {
    let root = attach(&fs(), ANN);
    assert_eq!(root.mkdir("d", 0o755).truncate(0), Err(Errno::EISDIR));
    now(root.0.symlink(&cx(), name("l"), b"x", None)).unwrap();
    assert_eq!(root.at("l").truncate(0), Err(Errno::EINVAL));
    assert_eq!(root.at("l").chmod(0o600), Err(Errno::EOPNOTSUPP));
}

#[test]
fn a_fid_open_for_writing_may_truncate_whatever_the_mode_is() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    file.write(0, b"data").unwrap();
    file.chmod(0o444).unwrap();
    assert_eq!(root.at("f").truncate(0), Err(Errno::EACCES));
    assert_eq!(file.truncate(0), Ok(()));
}

#[test]
fn a_written_program_loses_its_set_ids() {
    let fs = fs();
    let ann = attach(&fs, ANN);
    let file = ann.create("f", 0o755);
    file.chmod(0o6755).unwrap();
    assert_eq!(file.attr().mode & 0o7777, 0o6755);
    file.write(0, b"x").unwrap();
    assert_eq!(file.attr().mode & 0o7777, 0o755);
    file.chmod(0o6755).unwrap();
    file.set(SetAttr { gid: Some(STAFF), ..SetAttr::default() }).unwrap();
    assert_eq!(file.attr().mode & 0o7777, 0o755);
    let root = attach(&fs, ROOT_USER);
    root.at("f").set(SetAttr { gid: Some(12_345), ..SetAttr::default() }).unwrap();
    file.chmod(0o2755).unwrap();
    assert_eq!(file.attr().mode & 0o7777, 0o755);
}

#[test]
fn a_new_files_group_follows_the_dialect_and_the_directory() {
    let fs = fs();
    fs.set_root(ROOT_USER, 999, 0o777);
    let ann = attach(&fs, ANN);
    assert_eq!(ann.create("linux", 0o644).attr().gid, ANN);
    assert_eq!(attach_as(&fs, ANN, Dialect::Plan9).create("plan9", 0o644).attr().gid, 999);
    let asked = |gid| {
        let file = format!("g{gid}");
        let what = Create {
            name: name(&file),
            mode: 0o644,
            dm: 0,
            gid: Some(gid),
            open: how(Access::Read, 0),
            exclusive: true,
        };
        Fid(now(ann.0.create(&cx(), what)).unwrap().file).attr().gid
    };
    assert_eq!(asked(STAFF), STAFF);
    assert_eq!(asked(12_345), ANN);
    fs.set_root(ROOT_USER, 999, 0o2777);
    let dir = ann.mkdir("d", 0o755);
    assert_eq!((dir.attr().gid, dir.attr().mode), (999, 0o042_755));
    assert_eq!(dir.create("f", 0o644).attr().gid, 999);
}

#[test]
fn times_tell_what_happened() {
    let root = attach(&fs(), ROOT_USER);
    let file = root.create("f", 0o644);
    let past = Time { sec: 1000, nsec: 0 };
    let set = SetAttr { atime: Some(SetTime::To(past)), mtime: Some(SetTime::To(past)), ..SetAttr::default() };
    file.set(set).unwrap();
    let attr = file.attr();
    assert_eq!((attr.atime, attr.mtime), (past, past));
    assert!(attr.ctime > past && attr.btime > past);
    file.read();
    assert!(file.attr().atime > past);
    assert_eq!(file.attr().mtime, past);
    file.write(0, b"x").unwrap();
    assert!(file.attr().mtime > past);
    root.set(set).unwrap();
    root.create("g", 0o644);
    assert!(root.attr().mtime > past);
}

#[test]
fn extended_attributes_are_kept_and_guarded() {
    let fs = fs();
    let (ann, bob, root) = (attach(&fs, ANN), attach(&fs, BOB), attach(&fs, ROOT_USER));
    ann.create("f", 0o644);
    let set = |fid: &Fid, name: &str, value: &'static [u8], flags| {
        now(fid.at("f").0.xattr_set(&cx(), name.as_bytes(), Bytes::from_static(value), flags))
    };
    let get = |fid: &Fid, name: &str| now(fid.at("f").0.xattr_get(&cx(), name.as_bytes()));
    assert_eq!(set(&ann, "user.a", b"1", 2), Err(Errno::ENODATA));
    assert_eq!(set(&ann, "user.a", b"1", 1), Ok(()));
    assert_eq!(set(&ann, "user.a", b"2", 1), Err(Errno::EEXIST));
    assert_eq!(set(&ann, "user.a", b"22", 2), Ok(()));
    assert_eq!(set(&ann, "user.empty", b"", 0), Ok(()));
    assert_eq!(get(&bob, "user.a").unwrap(), &b"22"[..]);
    assert_eq!(get(&bob, "user.empty").unwrap(), &b""[..]);
    assert_eq!(get(&bob, "user.none"), Err(Errno::ENODATA));
    assert_eq!(set(&bob, "user.b", b"1", 0), Err(Errno::EACCES));
    assert_eq!(set(&ann, "trusted.x", b"1", 0), Err(Errno::EPERM));
    assert_eq!(set(&root, "trusted.x", b"1", 0), Ok(()));
    assert_eq!(get(&ann, "trusted.x"), Err(Errno::ENODATA));
    assert_eq!(set(&ann, "system.posix_acl_access", b"1", 0), Err(Errno::EOPNOTSUPP));
    assert_eq!(set(&ann, "user.", b"1", 0), Err(Errno::EOPNOTSUPP));
    assert_eq!(set(&ann, &format!("user.{}", "x".repeat(251)), b"1", 0), Err(Errno::ERANGE));
    assert_eq!(now(ann.at("f").0.xattr_list(&cx())).unwrap(), &b"user.a\0user.empty\0"[..]);
    assert_eq!(now(root.at("f").0.xattr_list(&cx())).unwrap(), &b"trusted.x\0user.a\0user.empty\0"[..]);
    assert_eq!(now(ann.at("f").0.xattr_remove(&cx(), b"user.a")), Ok(()));
    assert_eq!(now(ann.at("f").0.xattr_remove(&cx(), b"user.a")), Err(Errno::ENODATA));
    let large = Bytes::from(vec![0; (64 << 10) + 1]);
    assert_eq!(now(ann.at("f").0.xattr_set(&cx(), b"user.a", large, 0)), Err(Errno::E2BIG));
}
