//! What 9P2000 and .u see.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, symlink};

use bytes::Bytes;
use ninefold_proto::open::Open;
use ninefold_proto::stat::{Stat, dm, omode};
use ninefold_proto::wire::Reader;
use ninefold_proto::{Errno, QidType};

use super::*;
use crate::server::Records;

async fn plan9(host: &Host) -> Fid {
    host.attach(Dialect::Plan9, User::of_process()).await
}

async fn unix(host: &Host) -> Fid {
    host.attach(Dialect::Unix, User::of_process()).await
}

async fn open(host: &Host, fid: &Fid, mode: u8) -> Result<Qid, Error> {
    fid.open(&host.cx, Open::from_mode(mode, ninefold_proto::Dialect::Plan9).unwrap()).wait().await
}

/// Name, mode and length of each record.
async fn list(host: &Host, dir: &Fid, dialect: Dialect, max: u32) -> BTreeMap<String, (u32, u64)> {
    let mut all = BTreeMap::new();
    let mut at = 0;
    loop {
        let part = dir.read_stats(&host.cx, at, max).wait().await.unwrap();
        let Some(last) = part.ends.last() else { return all };
        at = last.cookie;
        let mut reader = Reader::new(&part.bytes);
        while reader.remaining() > 0 {
            let stat = Stat::read(&mut reader, dialect).unwrap();
            let name = String::from_utf8(stat.name.to_vec()).unwrap();
            assert!(all.insert(name, (stat.mode, stat.length)).is_none());
        }
    }
}

#[tokio::test]
async fn links_inside_are_followed_and_links_outside_are_broken() {
    let host = Host::new();
    host.mkdir("real/sub");
    host.put("real/f", b"data");
    symlink("real", host.path("dir")).unwrap();
    symlink("dir/./sub/../f", host.path("file")).unwrap();
    symlink(host.path("real/f"), host.path("absolute")).unwrap();
    symlink("/etc/passwd", host.path("out")).unwrap();
    symlink("../../../../../../etc/passwd", host.path("up")).unwrap();
    symlink("loop", host.path("loop")).unwrap();
    symlink("none", host.path("broken")).unwrap();
    let root = plan9(&host).await;
    for path in ["dir/f", "file", "absolute"] {
        assert_eq!(host.contents(&root, path).await.unwrap(), b"data", "{path}");
    }
    assert_eq!(host.walk(&root, "dir").await.unwrap().0[0].kind, QidType::DIR);
    for path in ["out", "up", "loop", "broken"] {
        let (qids, fid) = host.walk(&root, path).await.unwrap();
        assert_eq!(qids[0].kind, QidType::FILE);
        assert_eq!(errno(open(&host, &fid, 0).await), Errno::ENOENT, "{path}");
        assert_eq!(fid.stat(&host.cx).wait().await.unwrap().name, path.as_bytes());
    }
    let dir = host.at(&root, ".").await;
    open(&host, &dir, 0).await.unwrap();
    let all = list(&host, &dir, Dialect::Plan9, 8192).await;
    assert_eq!(all.len(), 8);
    assert_eq!(all["file"].1, 4);
    assert_ne!(all["dir"].0 & dm::DIR, 0);
    assert_eq!(all["out"].0 & dm::DIR, 0);
}

#[tokio::test]
async fn removing_and_renaming_through_a_link_touches_the_link_only() {
    let host = Host::new();
    host.put("f", b"data");
    symlink("f", host.path("l")).unwrap();
    symlink("f", host.path("m")).unwrap();
    let root = plan9(&host).await;
    let fid = host.at(&root, "l").await;
    assert_eq!(fid.stat(&host.cx).wait().await.unwrap().name, b"l");
    fid.remove(&host.cx).wait().await.unwrap();
    assert!(host.path("f").exists() && host.path("l").symlink_metadata().is_err());
    let fid = host.at(&root, "m").await;
    fid.wstat(&host.cx, &Stat { name: b"n", ..Stat::UNTOUCHED }).wait().await.unwrap();
    assert!(host.path("n").is_symlink() && host.path("f").exists());
}

#[tokio::test]
async fn a_chain_of_more_than_forty_links_is_broken() {
    let host = Host::new();
    host.put("l0", b"end");
    for i in 1..=41 {
        symlink(format!("l{}", i - 1), host.path(format!("l{i}"))).unwrap();
    }
    let root = plan9(&host).await;
    assert_eq!(host.contents(&root, "l40").await.unwrap(), b"end");
    assert_eq!(errno(host.contents(&root, "l41").await), Errno::ENOENT);
}

#[tokio::test]
async fn a_directory_is_read_as_whole_records_whatever_the_piece() {
    let host = Host::new();
    host.mkdir("d");
    for i in 0..700 {
        host.put(&format!("d/file {i}"), &vec![0; i]);
    }
    let root = unix(&host).await;
    for max in [200, 1000, 65536] {
        let dir = host.at(&root, "d").await;
        open(&host, &dir, 0).await.unwrap();
        let all = list(&host, &dir, Dialect::Unix, max).await;
        assert_eq!(all.len(), 702);
        assert!((0..700).all(|i| all[&format!("file {i}")].1 == i));
        assert_eq!(errno(dir.read_stats(&host.cx, 0, 20).wait().await), Errno::EINVAL);
        assert_eq!(list(&host, &dir, Dialect::Unix, max).await.len(), 702);
        // '.' and '..' come first, also where they do not fit together.
        let first = dir.read_stats(&host.cx, 0, 150).wait().await.unwrap();
        let second = dir.read_stats(&host.cx, first.ends[0].cookie, 150).wait().await.unwrap();
        let name = |records: &Records| Stat::decode(&records.bytes, Dialect::Unix).unwrap().name.to_vec();
        assert_eq!((name(&first), name(&second)), (b".".to_vec(), b"..".to_vec()));
    }
}

/// Name and qid of each record of a directory that was opened just now.
async fn qids(host: &Host, dir: &Fid, dialect: Dialect) -> BTreeMap<String, Qid> {
    open(host, dir, 0).await.unwrap();
    let records = dir.read_stats(&host.cx, 0, 65536).wait().await.unwrap();
    let entry = |stat: Stat<'_>| (String::from_utf8(stat.name.to_vec()).unwrap(), stat.qid);
    ninefold_proto::stat::stats(&records.bytes, dialect).map(|stat| entry(stat.unwrap())).collect()
}

#[tokio::test]
async fn a_directory_is_read_on_from_each_record_that_it_was_read_to() {
    let host = Host::new();
    host.mkdir("d");
    for i in 0..60 {
        host.put(&format!("d/file {i}"), b"");
    }
    for root in [unix(&host).await, plan9(&host).await] {
        let dir = host.at(&root, "d").await;
        open(&host, &dir, 0).await.unwrap();
        let whole = dir.read_stats(&host.cx, 0, 65536).wait().await.unwrap();
        // Backwards, so that each is a step back.
        for end in whole.ends.iter().rev() {
            let rest = dir.read_stats(&host.cx, end.cookie, 65536).wait().await.unwrap();
            assert_eq!(rest.bytes, whole.bytes[end.end as usize..]);
        }
    }
}

#[tokio::test]
async fn a_directory_lists_itself_and_its_parent_in_unix_only_and_at_the_root_the_root_is_both() {
    let host = Host::new();
    host.mkdir("a/b");
    let root = unix(&host).await;
    let qid = async |path: &str| host.at(&root, path).await.stat(&host.cx).wait().await.unwrap().qid;
    let (above, a, b) = (qid("").await, qid("a").await, qid("a/b").await);
    let named =
        |qids: &[(&str, Qid)]| qids.iter().map(|(name, qid)| (name.to_string(), *qid)).collect::<BTreeMap<_, _>>();
    let dir = host.at(&root, "a").await;
    assert_eq!(qids(&host, &dir, Dialect::Unix).await, named(&[(".", a), ("..", above), ("b", b)]));
    let dir = host.at(&root, "").await;
    assert_eq!(qids(&host, &dir, Dialect::Unix).await, named(&[(".", above), ("..", above), ("a", a)]));
    let dir = host.at(&plan9(&host).await, "a").await;
    assert_eq!(qids(&host, &dir, Dialect::Plan9).await.into_keys().collect::<Vec<_>>(), ["b"]);
    // Where a directory was moved to, what is above is another one.
    host.mkdir("c");
    let moved = host.at(&root, "a/b").await;
    moved.rename(&host.cx, &*host.at(&root, "c").await, name_of("b")).wait().await.unwrap();
    assert_eq!(qids(&host, &moved, Dialect::Unix).await[".."].path, qid("c").await.path);
    std::fs::remove_dir(host.path("c/b")).unwrap();
    let records = moved.read_stats(&host.cx, 0, 65536).wait().await.unwrap();
    assert!(records.bytes.is_empty(), "a directory that was removed has no entries");
}

#[tokio::test]
async fn a_record_tells_names_numbers_and_what_unix_files_are() {
    let host = Host::new();
    host.put("f", b"12345");
    symlink("f", host.path("l")).unwrap();
    let root = unix(&host).await;
    root.mknod(&host.cx, name_of("p"), 0o010_600, 0, None).wait().await.unwrap();
    let stat = async |path: &str| host.at(&root, path).await.stat(&host.cx).wait().await.unwrap();
    let f = stat("f").await;
    assert_eq!((f.length, f.mode, f.name.as_slice()), (5, 0o644, &b"f"[..]));
    let owner = User::of_process();
    assert_eq!((f.uid.as_slice(), f.n_uid, f.n_gid), (owner.name.as_bytes(), owner.uid, owner.gid));
    let l = stat("l").await;
    assert_eq!((l.mode & dm::SYMLINK, l.extension.as_slice(), l.qid.kind), (dm::SYMLINK, &b"f"[..], QidType::SYMLINK));
    assert_eq!(stat("p").await.mode, dm::NAMEDPIPE | 0o600);
    let root = plan9(&host).await.stat(&host.cx).wait().await.unwrap();
    assert_eq!((root.name.as_slice(), root.length, root.mode & dm::DIR), (&b"/"[..], 0, dm::DIR));
}

#[tokio::test]
async fn an_append_only_file_stays_so_and_grows_whatever_the_offset() {
    let host = Host::new();
    let root = plan9(&host).await;
    let what = Create { dm: dm::APPEND, ..plain("log", 0o644) };
    let made = match root.create(&host.cx, what).wait().await {
        Err(error) if error.errno == Errno::EOPNOTSUPP => {
            assert!(!host.path("log").exists(), "what could not be made right must not stay");
            have("user xattrs in the temporary directory", false);
            return;
        }
        made => made.unwrap(),
    };
    assert_eq!(made.qid.kind, QidType::APPEND);
    for part in [&b"one"[..], b"two"] {
        made.file.write(&host.cx, 0, Bytes::from_static(part)).wait().await.unwrap();
    }
    assert_eq!(std::fs::read(host.path("log")).unwrap(), b"onetwo");
    let (qids, fid) = host.walk(&root, "log").await.unwrap();
    assert_eq!(qids[0].kind, QidType::APPEND);
    open(&host, &fid, omode::WRITE | omode::TRUNC).await.unwrap();
    fid.write(&host.cx, 0, Bytes::from_static(b"three")).wait().await.unwrap();
    assert_eq!(std::fs::read(host.path("log")).unwrap(), b"onetwothree");
    // .L does not know of it.
    assert_eq!(host.walk(&host.root().await, "log").await.unwrap().0[0].kind, QidType::FILE);
    let fid = host.at(&root, "log").await;
    fid.wstat(&host.cx, &Stat { mode: 0o600, ..Stat::UNTOUCHED }).wait().await.unwrap();
    assert_eq!(host.walk(&root, "log").await.unwrap().0[0].kind, QidType::FILE);
    fid.wstat(&host.cx, &Stat { mode: dm::EXCL | 0o600, ..Stat::UNTOUCHED }).wait().await.unwrap();
    assert_eq!(host.walk(&root, "log").await.unwrap().0[0].kind, QidType::EXCL);
}

#[tokio::test]
async fn an_exclusive_file_is_open_once_at_a_time() {
    let host = Host::new();
    let root = plan9(&host).await;
    let Ok(made) = root.create(&host.cx, Create { dm: dm::EXCL, ..plain("lock", 0o666) }).wait().await else {
        have("user xattrs in the temporary directory", false);
        return;
    };
    let second = host.at(&unix(&host).await, "lock").await;
    let error = open(&host, &second, 0).await.err().unwrap();
    assert_eq!((error.errno, &*error.text()), (Errno::EBUSY, "exclusive access file"));
    made.file.clunk(&host.cx).wait().await.unwrap();
    open(&host, &second, 0).await.unwrap();
    drop(made);
}

/// As Tcreate does under `.ix` where the name may be there.
fn cut(name: &str, access: u8, dm: u32) -> Create<'_> {
    let open = Open::from_mode(access | omode::TRUNC, Dialect::Plan9).unwrap();
    Create { dm, open, exclusive: false, ..plain(name, 0o666) }
}

#[tokio::test]
async fn a_create_of_a_file_that_is_there_is_an_open_of_that_file_as_it_is() {
    let host = Host::new();
    host.put("f", b"hello");
    for root in [plan9(&host).await, unix(&host).await] {
        let create = async |what| root.create(&host.cx, what).wait().await;
        // Without the right to execute nothing is cut off.
        host.put("f", b"hello");
        assert_eq!(errno(create(cut("f", omode::EXEC, 0)).await.map(drop)), Errno::EACCES);
        assert_eq!(std::fs::read(host.path("f")).unwrap(), b"hello");
        // What is asked of a new file is nothing to one that is there.
        let there = create(cut("f", omode::WRITE, dm::APPEND | dm::EXCL)).await.unwrap();
        assert_eq!(there.qid.kind, QidType::FILE);
        for part in [&b"one"[..], b"two"] {
            there.file.write(&host.cx, 0, Bytes::from_static(part)).wait().await.unwrap();
        }
        assert_eq!(std::fs::read(host.path("f")).unwrap(), b"two");
        create(cut("f", omode::READ, 0)).await.unwrap();
        assert_eq!(std::fs::read(host.path("f")).unwrap(), b"");
        there.file.clunk(&host.cx).wait().await.unwrap();
    }
}

#[tokio::test]
async fn a_create_keeps_what_an_append_only_file_has_and_one_of_exclusive_use_that_is_open() {
    let host = Host::new();
    let root = plan9(&host).await;
    for (name, dm) in [("log", dm::APPEND), ("lock", dm::EXCL)] {
        let Ok(made) = root.create(&host.cx, Create { dm, ..plain(name, 0o666) }).wait().await else {
            have("user xattrs in the temporary directory", false);
            return;
        };
        made.file.write(&host.cx, 0, Bytes::from_static(b"one")).wait().await.unwrap();
        if dm == dm::EXCL {
            let error = root.create(&host.cx, cut(name, omode::WRITE, 0)).wait().await.err().unwrap();
            assert_eq!((error.errno, &*error.text()), (Errno::EBUSY, "exclusive access file"));
            assert_eq!(std::fs::read(host.path(name)).unwrap(), b"one");
        }
        made.file.clunk(&host.cx).wait().await.unwrap();
    }
    let log = root.create(&host.cx, cut("log", omode::WRITE, 0)).wait().await.unwrap();
    assert_eq!(log.qid.kind, QidType::APPEND);
    log.file.write(&host.cx, 0, Bytes::from_static(b"two")).wait().await.unwrap();
    assert_eq!(std::fs::read(host.path("log")).unwrap(), b"onetwo");
    let lock = root.create(&host.cx, cut("lock", omode::WRITE, 0)).wait().await.unwrap();
    assert_eq!(std::fs::read(host.path("lock")).unwrap(), b"");
    let second = host.at(&root, "lock").await;
    assert_eq!(errno(open(&host, &second, 0).await), Errno::EBUSY, "it is claimed");
    lock.file.clunk(&host.cx).wait().await.unwrap();
}

#[tokio::test]
async fn a_create_opens_no_directory_no_link_and_no_pipe_that_is_there() {
    let host = Host::new();
    host.put("f", b"hello");
    host.mkdir("d");
    symlink("f", host.path("l")).unwrap();
    let root = unix(&host).await;
    root.mknod(&host.cx, name_of("p"), 0o010_600, 0, None).wait().await.unwrap();
    for (name, expected) in [("d", Errno::EISDIR), ("l", Errno::EEXIST), ("p", Errno::EEXIST)] {
        for access in [omode::READ, omode::WRITE, omode::RDWR] {
            let result = root.create(&host.cx, cut(name, access, 0)).wait().await;
            assert_eq!(errno(result.map(drop)), expected, "{name}");
        }
    }
    assert_eq!(std::fs::read(host.path("f")).unwrap(), b"hello");
}

#[tokio::test]
async fn a_wstat_changes_everything_asked() {
    let host = Host::new();
    host.put("f", b"12345");
    let root = plan9(&host).await;
    let fid = host.at(&root, "f").await;
    let stat = Stat { name: b"g", length: 2, mode: 0o600, mtime: 1000, ..Stat::UNTOUCHED };
    fid.wstat(&host.cx, &stat).wait().await.unwrap();
    let meta = host.path("g").metadata().unwrap();
    assert_eq!((meta.len(), meta.mode() & 0o7777, meta.mtime()), (2, 0o600, 1000));
    fid.wstat(&host.cx, &Stat::UNTOUCHED).wait().await.unwrap();
    // A whole record, as it was told, changes nothing and is not refused.
    let told = fid.stat(&host.cx).wait().await.unwrap();
    fid.wstat(&host.cx, &told.as_stat()).wait().await.unwrap();
}

#[tokio::test]
async fn a_wstat_that_fails_changes_nothing() {
    let host = Host::new();
    host.put("f", b"12345");
    host.put("taken", b"");
    let root = unix(&host).await;
    let fid = host.at(&root, "f").await;
    let seen = || {
        let m = host.path("f").metadata().unwrap();
        (m.len(), m.mode(), m.mtime(), m.mtime_nsec(), m.gid(), m.ino())
    };
    let before = seen();
    let all = Stat { name: b"g", length: 2, mode: 0o600, mtime: 1000, ..Stat::UNTOUCHED };
    for (bad, error) in [
        (Stat { name: b"taken", ..all }, Errno::EEXIST),
        (Stat { mode: dm::DIR | 0o600, ..all }, Errno::EPERM),
        (Stat { length: u64::MAX - 1, ..all }, Errno::EFBIG),
        (Stat { uid: b"nobody at all", ..all }, Errno::EPERM),
        (Stat { gid: b"no such group", ..all }, Errno::EINVAL),
        (Stat { kind: 7, ..all }, Errno::EPERM),
        (Stat { dev: 7, ..all }, Errno::EPERM),
        (Stat { qid: Qid::default(), ..all }, Errno::EPERM),
        (Stat { name: b"a/b", ..all }, Errno::EINVAL),
    ] {
        assert_eq!(errno(fid.wstat(&host.cx, &bad).wait().await), error, "{bad:?}");
        assert_eq!(seen(), before, "{bad:?}");
        assert!(!host.path("g").exists() && host.path("taken").metadata().unwrap().len() == 0);
    }
    let dir = host.at(&root, ".").await;
    assert_eq!(errno(dir.wstat(&host.cx, &Stat { name: b"x", ..Stat::UNTOUCHED }).wait().await), Errno::EPERM);
    assert_eq!(errno(dir.wstat(&host.cx, &Stat { length: 5, ..Stat::UNTOUCHED }).wait().await), Errno::EPERM);
}
