//! What 9P2000 and 9P2000.u have of their own.

use super::*;
use crate::server::Records;

const UNTOUCHED: Stat<'static> = Stat::UNTOUCHED;

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
    now(again.0.open(&cx(), Open::from_mode(omode::RDWR | omode::TRUNC, ninefold_proto::Dialect::Plan9).unwrap()))
        .unwrap();
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
    let how = Open::from_mode(omode::READ | omode::RCLOSE, ninefold_proto::Dialect::Plan9).unwrap();
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
        let Records { bytes, ends } = now(root.0.read_stats(&cx(), cookie, 300)).unwrap();
        let Some(last) = ends.last() else { break };
        assert!(bytes.len() <= 300);
        for stat in stats(&bytes, Dialect::Plan9) {
            let stat = stat.unwrap();
            assert_eq!(stat.uid, b"user70001");
            root.unlink(std::str::from_utf8(stat.name).unwrap(), false).unwrap();
            names.push(String::from_utf8(stat.name.to_vec()).unwrap());
        }
        cookie = last.cookie;
    }
    assert_eq!(names, (0..20).map(|at| format!("f{at:02}")).collect::<Vec<_>>());
}

#[test]
fn a_unix_directory_lists_itself_and_its_parent_first_whatever_fits() {
    let root = attach_as(&fs(), ANN, Dialect::Unix);
    let dir = root.mkdir("d", 0o755);
    dir.create("f", 0o644);
    let list = |dir: &Fid, max| {
        let (mut cookie, mut all) = (0, Vec::new());
        loop {
            let Records { bytes, ends } = now(dir.0.read_stats(&cx(), cookie, max)).unwrap();
            let Some(last) = ends.last() else { return all };
            let entry = |stat: Stat<'_>| (String::from_utf8(stat.name.to_vec()).unwrap(), stat.qid.path);
            all.extend(stats(&bytes, Dialect::Unix).map(|stat| entry(stat.unwrap())));
            cookie = last.cookie;
        }
    };
    let path = |fid: &Fid| fid.stat().qid.path;
    let named = |names: &[(&str, u64)]| names.iter().map(|(name, path)| (name.to_string(), *path)).collect::<Vec<_>>();
    for max in [150, 4096] {
        let expected = [(".", path(&dir)), ("..", path(&root)), ("f", path(&dir.at("f")))];
        assert_eq!(list(&dir, max), named(&expected), "{max} bytes");
        assert_eq!(list(&root, max), named(&[(".", path(&root)), ("..", path(&root)), ("d", path(&dir))]));
    }
    dir.unlink("f", false).unwrap();
    root.unlink("d", true).unwrap();
    assert_eq!(list(&dir, 4096), []);
}

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
