use std::time::Duration;

use bytes::Bytes;
use ninefold_proto::attr::{Attr, SetAttr, SetTime, Time};
use ninefold_proto::open::{Access, Open, lflags};
use ninefold_proto::stat::{Stat, StatBuf, dir_entries, dm, omode, stats};
use ninefold_proto::types::WalkElem;
use ninefold_proto::{Dialect, Errno, Error, Name};
use tokio::time::timeout;

use super::*;
use crate::server::{Create, Lock, LockKind, LockStatus, User, Walked};

const ROOT_USER: u32 = 0;
const ANN: u32 = 70_001;
const BOB: u32 = 70_002;
const STAFF: u32 = 70_100;

/// A fid.
#[derive(Clone)]
struct Fid(Arc<dyn File>);

fn now<T>(answer: Answer<T>) -> Result<T, Errno> {
    match answer {
        Answer::Now(result) => result.map_err(|error: Error| error.errno),
        Answer::Later(_) => panic!("the answer is not there at once"),
    }
}

fn cx() -> Cx {
    Cx::detached()
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// A tree whose root everybody may write to.
fn fs() -> RamFs {
    let fs = RamFs::with_limit(16 << 20);
    fs.set_root(ROOT_USER, ROOT_USER, 0o777);
    fs
}

fn attach_as(fs: &RamFs, uid: u32, dialect: Dialect) -> Fid {
    let groups = if uid == ANN || uid == BOB { vec![STAFF] } else { Vec::new() };
    let user = Arc::new(User { name: format!("user{uid}"), uid, gid: uid, groups });
    Fid(now(fs.attach(&cx(), &Attach { user, dialect })).unwrap().1)
}

fn attach(fs: &RamFs, uid: u32) -> Fid {
    attach_as(fs, uid, Dialect::Linux)
}

fn how(access: Access, flags: u32) -> Open {
    Open { access, flags, remove_on_clunk: false }
}

impl Fid {
    fn try_walk(&self, path: &str) -> Result<Walked, Errno> {
        let elems: Vec<_> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| WalkElem::new(part.as_bytes(), true).unwrap())
            .collect();
        now(self.0.walk(&cx(), &elems))
    }

    #[track_caller]
    fn at(&self, path: &str) -> Fid {
        Fid(self.try_walk(path).unwrap().file.expect("a whole walk"))
    }

    #[track_caller]
    fn missing(&self, path: &str) {
        assert_eq!(self.try_walk(path).map(|walked| walked.file.is_some()), Err(Errno::ENOENT));
    }

    fn try_create(&self, file: &str, mode: u32, dm: u32, exclusive: bool, open: Open) -> Result<Fid, Errno> {
        let what = Create { name: name(file), mode, dm, gid: None, open, exclusive };
        now(self.0.create(&cx(), what)).map(|created| Fid(created.file))
    }

    /// Makes a file and leaves it open for reading and writing.
    #[track_caller]
    fn create(&self, file: &str, mode: u32) -> Fid {
        self.try_create(file, mode, 0, true, how(Access::ReadWrite, 0)).unwrap()
    }

    #[track_caller]
    fn mkdir(&self, dir: &str, mode: u32) -> Fid {
        now(self.0.mkdir(&cx(), name(dir), mode, None)).unwrap();
        self.at(dir)
    }

    fn open(&self, access: Access) -> Result<(), Errno> {
        now(self.0.open(&cx(), how(access, 0))).map(|_| ())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        now(self.0.write(&cx(), offset, Bytes::copy_from_slice(data)))
    }

    #[track_caller]
    fn read(&self) -> Bytes {
        now(self.0.read(&cx(), 0, 1 << 20)).unwrap()
    }

    #[track_caller]
    fn attr(&self) -> Attr {
        now(self.0.getattr(&cx(), u64::MAX)).unwrap()
    }

    fn set(&self, set: SetAttr) -> Result<(), Errno> {
        now(self.0.setattr(&cx(), set))
    }

    fn chmod(&self, mode: u32) -> Result<(), Errno> {
        self.set(SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        self.set(SetAttr { size: Some(size), ..SetAttr::default() })
    }

    fn unlink(&self, entry: &str, dir: bool) -> Result<(), Errno> {
        now(self.0.unlink(&cx(), name(entry), dir))
    }

    fn rename(&self, old: &str, newdir: &Fid, new: &str) -> Result<(), Errno> {
        now(self.0.rename_entry(&cx(), name(old), &*newdir.0, name(new)))
    }

    fn link(&self, target: &Fid, new: &str) -> Result<(), Errno> {
        now(self.0.link(&cx(), &*target.0, name(new)))
    }

    #[track_caller]
    fn stat(&self) -> StatBuf {
        now(self.0.stat(&cx())).unwrap()
    }

    fn wstat(&self, stat: Stat<'_>) -> Result<(), Errno> {
        now(self.0.wstat(&cx(), &stat))
    }

    #[track_caller]
    fn clunk(self) {
        now(self.0.clunk(&cx())).unwrap();
    }

    /// One readdir: names and cookies.
    fn readdir(&self, offset: u64, max: u32) -> Vec<(String, u64)> {
        let bytes = now(self.0.readdir(&cx(), offset, max)).unwrap();
        let entry = |entry: Result<ninefold_proto::stat::DirEntry<'_>, _>| {
            let entry = entry.unwrap();
            (String::from_utf8(entry.name.to_vec()).unwrap(), entry.offset)
        };
        dir_entries(&bytes).map(entry).collect()
    }

    fn list(&self) -> Vec<String> {
        self.readdir(2, 1 << 20).into_iter().map(|(name, _)| name).collect()
    }
}

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
    assert_eq!(now(again.0.read(&cx(), 5, 10)).unwrap(), &b""[..]);
    assert_eq!(now(again.0.read(&cx(), 1, 3)).unwrap(), &b"elp"[..]);
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
    assert_eq!(now(file.0.read(&cx(), (10 << 40) - 2, 9)).unwrap(), &b"\0\0far"[..]);
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

#[test]
fn an_append_only_file_of_9p2000_ignores_offsets_and_truncation() {
    let fs = fs();
    let root = attach_as(&fs, ANN, Dialect::Plan9);
    let log = root.try_create("log", 0o666, dm::APPEND, true, how(Access::Write, 0)).unwrap();
    log.write(0, b"one").unwrap();
    log.write(0, b"two").unwrap();
    assert_eq!(log.stat().mode, dm::APPEND | 0o666);
    assert!(log.stat().qid.kind.has(ninefold_proto::QidType::APPEND));
    let again = root.at("log");
    now(again.0.open(&cx(), Open::from_mode(omode::RDWR | omode::TRUNC).unwrap())).unwrap();
    assert_eq!(again.read(), &b"onetwo"[..]);
    let linux = attach(&fs, BOB).at("log");
    linux.open(Access::Write).unwrap();
    linux.write(0, b"three").unwrap();
    assert_eq!(again.read(), &b"onetwothree"[..]);
}

#[test]
fn a_file_of_exclusive_use_is_opened_once_at_a_time() {
    let root = attach_as(&fs(), ANN, Dialect::Plan9);
    let lock = root.try_create("lock", 0o666, dm::EXCL, true, how(Access::Read, 0)).unwrap();
    let second = root.at("lock");
    assert_eq!(second.open(Access::Read), Err(Errno::EBUSY));
    lock.clunk();
    assert_eq!(second.open(Access::Read), Ok(()));
    assert_eq!(root.at("lock").open(Access::Read), Err(Errno::EBUSY));
    second.clunk();
    assert_eq!(root.at("lock").open(Access::Read), Ok(()));
}

#[test]
fn open_to_remove_on_clunk_needs_the_right_to_remove() {
    let fs = fs();
    let ann = attach_as(&fs, ANN, Dialect::Plan9);
    ann.mkdir("d", 0o755).create("f", 0o666);
    let bob = attach_as(&fs, BOB, Dialect::Plan9).at("d/f");
    let how = Open::from_mode(omode::READ | omode::RCLOSE).unwrap();
    assert_eq!(now(bob.0.open(&cx(), how)).err(), Some(Errno::EACCES));
    assert!(now(ann.at("d/f").0.open(&cx(), how)).is_ok());
}

#[test]
fn a_stat_record_tells_names_and_numbers() {
    let fs = fs();
    let root = attach_as(&fs, ANN, Dialect::Unix);
    let file = root.create("f", 0o644);
    file.write(0, b"12345").unwrap();
    let stat = file.stat();
    assert_eq!((&stat.name[..], stat.length, stat.mode), (&b"f"[..], 5, 0o644));
    assert_eq!((&stat.uid[..], stat.n_uid), (&b"user70001"[..], ANN));
    assert_eq!((stat.muid, stat.n_muid), (stat.uid, ANN));
    assert_eq!(stat.qid, file.attr().qid);
    assert_eq!((&root.stat().name[..], root.stat().mode, root.stat().length), (&b"/"[..], dm::DIR | 0o777, 0));
    root.rename("f", &root, "g").unwrap();
    assert_eq!(file.stat().name, b"g");
    root.unlink("g", false).unwrap();
    assert_eq!(file.stat().name, b"");
}

#[test]
fn unix_bits_are_told_in_u_alone() {
    let fs = fs();
    let unix = attach_as(&fs, ROOT_USER, Dialect::Unix);
    now(unix.0.symlink(&cx(), name("l"), b"target", None)).unwrap();
    let rdev = rustix::fs::makedev(1, 3);
    now(unix.0.mknod(&cx(), name("null"), node::S_IFCHR | 0o666, rdev, None)).unwrap();
    now(unix.0.mknod(&cx(), name("pipe"), node::S_IFIFO | 0o600, 0, None)).unwrap();
    unix.create("f", 0o644).chmod(0o5755).unwrap();
    let stat = unix.at("l").stat();
    assert_eq!((stat.mode, &stat.extension[..]), (dm::SYMLINK | 0o777, &b"target"[..]));
    let stat = unix.at("null").stat();
    assert_eq!((stat.mode, &stat.extension[..]), (dm::DEVICE | 0o666, &b"c 1 3"[..]));
    assert_eq!(unix.at("pipe").stat().mode, dm::NAMEDPIPE | 0o600);
    assert_eq!(unix.at("f").stat().mode, dm::SETUID | dm::SETVTX | 0o755);
    let plan9 = attach_as(&fs, ROOT_USER, Dialect::Plan9);
    assert_eq!((plan9.at("l").stat().mode, plan9.at("f").stat().mode), (0o777, 0o755));
    assert!(plan9.at("null").stat().extension.is_empty());
}

#[test]
fn a_9p2000_directory_is_read_in_whole_records() {
    let root = attach_as(&fs(), ANN, Dialect::Plan9);
    for at in 0..20 {
        root.create(&format!("f{at:02}"), 0o644);
    }
    let (mut cookie, mut names) = (0, Vec::new());
    loop {
        let (bytes, next) = now(root.0.read_stats(&cx(), cookie, 300)).unwrap();
        if bytes.is_empty() {
            assert_eq!(next, cookie);
            break;
        }
        assert!(bytes.len() <= 300);
        for stat in stats(&bytes, Dialect::Plan9) {
            let stat = stat.unwrap();
            assert_eq!(stat.uid, b"user70001");
            root.unlink(std::str::from_utf8(stat.name).unwrap(), false).unwrap();
            names.push(String::from_utf8(stat.name.to_vec()).unwrap());
        }
        cookie = next;
    }
    assert_eq!(names, (0..20).map(|at| format!("f{at:02}")).collect::<Vec<_>>());
}

const UNTOUCHED: Stat<'static> = Stat::UNTOUCHED;

#[test]
fn wstat_changes_what_is_not_untouched() {
    let root = attach_as(&fs(), ANN, Dialect::Plan9);
    let file = root.create("f", 0o644);
    file.write(0, b"12345").unwrap();
    assert_eq!(file.wstat(UNTOUCHED), Ok(()));
    let before = file.stat();
    file.wstat(Stat { mode: dm::APPEND | 0o600, length: 2, mtime: 77, name: b"g", ..UNTOUCHED }).unwrap();
    let stat = root.at("g").stat();
    assert_eq!((stat.mode, stat.length, stat.mtime), (dm::APPEND | 0o600, 2, 77));
    assert_eq!((&stat.name[..], &stat.uid, &stat.gid), (&b"g"[..], &before.uid, &before.gid));
    root.missing("f");
    // What a client read may be written back.
    let stat = file.stat();
    assert_eq!(file.wstat(stat.as_stat()), Ok(()));
}

#[test]
fn wstat_refuses_what_nobody_can_change() {
    let root = attach_as(&fs(), ANN, Dialect::Plan9);
    let file = root.create("f", 0o644);
    let version = file.attr().qid.version;
    let mut qid = UNTOUCHED.qid;
    qid.path = 12345;
    for (stat, errno) in [
        (Stat { kind: 5, ..UNTOUCHED }, Errno::EPERM),
        (Stat { dev: 5, ..UNTOUCHED }, Errno::EPERM),
        (Stat { qid, ..UNTOUCHED }, Errno::EPERM),
        (Stat { muid: b"root", ..UNTOUCHED }, Errno::EPERM),
        (Stat { uid: b"root", ..UNTOUCHED }, Errno::EPERM),
        (Stat { gid: b"no such group", ..UNTOUCHED }, Errno::EINVAL),
        (Stat { gid: b"daemon", ..UNTOUCHED }, Errno::EPERM),
        (Stat { mode: dm::DIR | 0o755, ..UNTOUCHED }, Errno::EPERM),
        (Stat { mode: dm::SETUID | 0o755, ..UNTOUCHED }, Errno::EINVAL),
        (Stat { name: b"a/b", ..UNTOUCHED }, Errno::EINVAL),
        (Stat { name: b"..", ..UNTOUCHED }, Errno::EINVAL),
    ] {
        assert_eq!(file.wstat(stat), Err(errno), "{stat:?}");
    }
    assert_eq!(file.attr().qid.version, version);
    assert_eq!(root.mkdir("d", 0o755).wstat(Stat { length: 1, ..UNTOUCHED }), Err(Errno::EISDIR));
    assert_eq!(root.at("d").wstat(Stat { length: 0, ..UNTOUCHED }), Ok(()));
    assert_eq!(root.wstat(Stat { name: b"x", ..UNTOUCHED }), Err(Errno::EPERM));
}

#[test]
fn a_refused_wstat_changes_nothing() {
    let fs = fs();
    let root = attach_as(&fs, ANN, Dialect::Plan9);
    let file = root.create("f", 0o644);
    file.write(0, b"12345").unwrap();
    root.create("taken", 0o644);
    let before = file.stat();
    assert_eq!(file.wstat(Stat { mode: 0o600, length: 0, name: b"taken", ..UNTOUCHED }), Err(Errno::EEXIST));
    assert_eq!(file.wstat(Stat { name: b"g", length: u64::MAX - 1, ..UNTOUCHED }), Err(Errno::EFBIG));
    let bob = attach_as(&fs, BOB, Dialect::Plan9).at("f");
    assert_eq!(bob.wstat(Stat { name: b"g", mtime: 1, ..UNTOUCHED }), Err(Errno::EPERM));
    assert_eq!(file.stat(), before);
}

#[test]
fn wstat_of_u_sets_ids_by_number() {
    let fs = fs();
    let root = attach_as(&fs, ROOT_USER, Dialect::Unix);
    let ann = attach_as(&fs, ANN, Dialect::Unix);
    let file = ann.create("f", 0o755);
    assert_eq!(file.wstat(Stat { n_uid: BOB, ..UNTOUCHED }), Err(Errno::EPERM));
    assert_eq!(file.wstat(Stat { n_gid: STAFF, ..UNTOUCHED }), Ok(()));
    assert_eq!(file.wstat(Stat { mode: dm::SETUID | 0o755, ..UNTOUCHED }), Ok(()));
    assert_eq!(file.attr().mode, 0o104_755);
    assert_eq!(root.at("f").wstat(Stat { n_uid: BOB, ..UNTOUCHED }), Ok(()));
    assert_eq!((file.attr().uid, file.attr().gid), (BOB, STAFF));
}

fn lock(kind: LockKind, proc_id: u32) -> Lock {
    Lock { kind, start: 0, length: 0, proc_id, client_id: b"client".to_vec() }
}

#[tokio::test]
async fn a_lock_waits_for_the_fid_that_holds_it() {
    let root = attach(&fs(), ANN);
    let (first, second) = (root.create("f", 0o644), root.at("f"));
    second.open(Access::ReadWrite).unwrap();
    assert_eq!(now(first.0.lock(&cx(), lock(LockKind::Write, 1), false)), Ok(LockStatus::Granted));
    assert_eq!(now(second.0.lock(&cx(), lock(LockKind::Read, 2), false)), Ok(LockStatus::Blocked));
    assert_eq!(now(second.0.getlock(&cx(), lock(LockKind::Read, 2))), Ok(Some(lock(LockKind::Write, 1))));
    let waiting = second.0.lock(&cx(), lock(LockKind::Read, 2), true);
    assert!(matches!(waiting, Answer::Later(_)));
    first.clunk();
    let granted = timeout(Duration::from_secs(10), waiting.wait()).await.expect("waited too long");
    assert_eq!(granted, Ok(LockStatus::Granted));
}

#[test]
fn locks_of_two_files_and_of_two_trees_are_apart() {
    let (one, other) = (attach(&fs(), ANN), attach(&fs(), ANN));
    for file in [one.create("f", 0o644), one.create("g", 0o644), other.create("f", 0o644)] {
        assert_eq!(now(file.0.lock(&cx(), lock(LockKind::Write, 1), false)), Ok(LockStatus::Granted));
    }
    let third = one.at("g");
    third.open(Access::Read).unwrap();
    assert_eq!(now(third.0.lock(&cx(), lock(LockKind::Write, 2), false)), Ok(LockStatus::Blocked));
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
