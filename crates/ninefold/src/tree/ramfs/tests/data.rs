//! What files hold, and how much of it.

use super::*;

#[test]
fn a_file_holds_what_was_written() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    assert_eq!(file.write(0, b"hello"), Ok(5));
    assert_eq!(file.write(3, b"p!"), Ok(2));
    assert_eq!(root.at("f").attr().size, 5);
    let again = root.at("f");
    again.open(Access::Read).unwrap();
    assert_eq!(again.read(), &b"help!"[..]);
    assert_eq!(now(again.0.read(&cx(), 5, 10)).unwrap().into_bytes().unwrap(), &b""[..]);
    assert_eq!(now(again.0.read(&cx(), 1, 3)).unwrap().into_bytes().unwrap(), &b"elp"[..]);
}

#[test]
fn two_attaches_see_one_tree() {
    let fs = fs();
    attach(&fs, ANN).create("f", 0o666).write(0, b"x").unwrap();
    let other = attach_as(&fs, BOB, Dialect::Plan9).at("f");
    other.open(Access::Read).unwrap();
    assert_eq!(other.read(), &b"x"[..]);
}

#[test]
fn create_of_what_is_there_fails_or_opens_it_as_asked() {
    let fs = fs();
    let root = attach(&fs, ANN);
    root.create("f", 0o600).write(0, b"old").unwrap();
    root.mkdir("d", 0o755);
    now(root.0.symlink(&cx(), name("l"), b"f", None)).unwrap();
    let open = |file, exclusive, flags| root.try_create(file, 0o644, 0, exclusive, how(Access::ReadWrite, flags));
    assert_eq!(open("f", true, 0).err(), Some(Errno::EEXIST));
    assert_eq!(open("d", false, 0).err(), Some(Errno::EISDIR));
    assert_eq!(open("l", false, 0).err(), Some(Errno::ELOOP));
    assert_eq!(open("f", false, 0).unwrap().read(), &b"old"[..]);
    assert_eq!(open("f", false, lflags::TRUNC).unwrap().read(), &b""[..]);
    assert_eq!(root.at("f").attr().mode, 0o100_600);
    let bob = attach(&fs, BOB);
    let theirs = bob.try_create("f", 0o644, 0, false, how(Access::Read, 0));
    assert_eq!(theirs.err(), Some(Errno::EACCES));
}

#[test]
fn a_directory_is_not_opened_for_writing_nor_a_file_as_a_directory() {
    let root = attach(&fs(), ANN);
    root.create("f", 0o644);
    root.mkdir("d", 0o755);
    assert_eq!(root.at("d").open(Access::Write), Err(Errno::EISDIR));
    let as_dir = now(root.at("f").0.open(&cx(), how(Access::Read, lflags::DIRECTORY)));
    assert_eq!(as_dir.err(), Some(Errno::ENOTDIR));
}

#[test]
fn an_unlinked_file_lives_on_while_it_is_open() {
    let fs = fs();
    let root = attach(&fs, ANN);
    let file = root.create("f", 0o644);
    root.unlink("f", false).unwrap();
    root.missing("f");
    let free = fs.tree.budget.free();
    assert_eq!(file.write(0, b"still"), Ok(5));
    assert_eq!(file.read(), &b"still"[..]);
    assert_eq!(file.truncate(2), Ok(()));
    assert_eq!((file.attr().nlink, file.attr().size), (0, 2));
    assert_eq!(file.chmod(0o600), Ok(()));
    assert_eq!(root.link(&file, "again"), Err(Errno::ENOENT));
    assert_eq!(now(file.0.remove(&cx())), Err(Errno::ENOENT));
    assert!(fs.tree.budget.free() < free);
    file.clunk();
    assert!(fs.tree.budget.free() > free);
}

#[test]
fn all_memory_comes_back_when_everything_is_removed() {
    let fs = fs();
    let root = attach(&fs, ANN);
    let free = fs.tree.budget.free();
    let dir = root.mkdir("d", 0o755);
    let file = dir.create("a-name", 0o644);
    file.write(1 << 30, b"data").unwrap();
    now(file.0.xattr_set(&cx(), b"user.x", Bytes::from_static(b"value"), 0)).unwrap();
    dir.rename("a-name", &root, "a-longer-name").unwrap();
    now(root.0.symlink(&cx(), name("l"), b"target", None)).unwrap();
    root.link(&file, "second").unwrap();
    file.clunk();
    dir.clunk();
    for file in ["a-longer-name", "second", "l"] {
        root.unlink(file, false).unwrap();
    }
    root.unlink("d", true).unwrap();
    assert_eq!(fs.tree.budget.free(), free);
}

#[test]
fn beyond_the_limit_nothing_is_written() {
    let fs = RamFs::with_limit(300 << 10);
    fs.set_root(ANN, ANN, 0o755);
    let root = attach(&fs, ANN);
    let file = root.create("f", 0o644);
    assert_eq!(file.write(0, &vec![1; 200 << 10]), Ok(200 << 10));
    assert_eq!(file.write(200 << 10, &vec![2; 200 << 10]), Err(Errno::ENOSPC));
    assert_eq!(file.attr().size, 200 << 10);
    assert_eq!(file.write(100 << 10, &vec![3; 100 << 10]), Ok(100 << 10));
    let mut made = 0;
    let full = loop {
        match now(root.0.mkdir(&cx(), name(&format!("d{made}")), 0o755, None)) {
            Ok(_) => made += 1,
            Err(errno) => break errno,
        }
    };
    assert_eq!(full, Errno::ENOSPC);
    assert_eq!(root.list().len(), made + 1);
    root.unlink("f", false).unwrap();
    file.clunk();
    assert!(now(root.0.mkdir(&cx(), name("more"), 0o755, None)).is_ok());
}

#[test]
fn a_sparse_file_takes_what_was_written() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    assert_eq!(file.write(10 << 40, b"far"), Ok(3));
    let attr = file.attr();
    assert_eq!(attr.size, (10 << 40) + 3);
    assert!(attr.blocks <= 128);
    assert_eq!(now(file.0.read(&cx(), (10 << 40) - 2, 9)).unwrap().into_bytes().unwrap(), &b"\0\0far"[..]);
    assert_eq!(file.truncate(16 << 40), Ok(()));
}

#[test]
fn a_file_beyond_the_greatest_size_is_refused() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    assert_eq!(file.write(16 << 40, b"x"), Err(Errno::EFBIG));
    assert_eq!(file.truncate((16 << 40) + 1), Err(Errno::EFBIG));
    assert_eq!(file.attr().size, 0);
}

#[test]
fn a_cut_file_grows_again_with_zeros() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    file.write(0, b"secret").unwrap();
    file.truncate(2).unwrap();
    file.truncate(6).unwrap();
    assert_eq!(file.read(), &b"se\0\0\0\0"[..]);
}

#[test]
fn a_file_opened_to_append_grows_at_its_end() {
    let root = attach(&fs(), ANN);
    let file = root.try_create("f", 0o644, 0, true, how(Access::ReadWrite, lflags::APPEND)).unwrap();
    file.write(0, b"one").unwrap();
    file.write(0, b"two").unwrap();
    assert_eq!(file.read(), &b"onetwo"[..]);
}

#[test]
fn statfs_tells_the_limit_and_what_is_left() {
    let fs = RamFs::with_limit(1 << 20);
    fs.set_root(ANN, ANN, 0o755);
    let root = attach(&fs, ANN);
    let before = now(root.0.statfs(&cx())).unwrap();
    assert_eq!((before.blocks, u64::from(before.bsize) * before.bfree), (256, 1 << 20));
    root.create("f", 0o644).write(0, &[1; 64 << 10]).unwrap();
    let after = now(root.0.statfs(&cx())).unwrap();
    assert!(after.bfree <= before.bfree - 16);
    assert_eq!(after.namelen, 255);
}
