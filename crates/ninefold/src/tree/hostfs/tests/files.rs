//! Opening, reading, writing, attributes.

use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use bytes::Bytes;
use ninefold_proto::attr::{SetAttr, SetTime, Time, getattr};
use ninefold_proto::open::lflags;
use ninefold_proto::{Errno, QidType};

use super::*;
use crate::server::Answer;

#[tokio::test]
async fn a_file_is_walked_to_opened_and_read() {
    let host = Host::new();
    host.mkdir("a/b");
    host.put("a/b/f", b"hello");
    let root = host.root().await;
    let (qids, fid) = host.walk(&root, "a/b/f").await.unwrap();
    assert_eq!(qids.len(), 3);
    assert!(qids[0].is_dir() && qids[1].is_dir() && qids[2].kind == QidType::FILE);
    assert_eq!(qids[2].path, host.path("a/b/f").metadata().unwrap().ino());
    assert_ne!(qids[2].version, 0);
    host.open(&fid, 0).await.unwrap();
    assert_eq!(host.read(&fid).await.unwrap(), b"hello");
    assert_eq!(fid.read(&host.cx, 3, 10).wait().await.unwrap().into_bytes().unwrap(), &b"lo"[..]);
    assert!(fid.read(&host.cx, 5, 10).wait().await.unwrap().into_bytes().unwrap().is_empty());
}

#[tokio::test]
async fn a_large_file_comes_back_as_it_was_written_whatever_the_piece() {
    let host = Host::new();
    let data: Vec<u8> = (0..3_000_000_u32).map(|i| (i * 7 / 3) as u8).collect();
    let root = host.root().await;
    let fid = host.create(&root, "big", 0o644).await.unwrap();
    for (i, part) in data.chunks(700_001).enumerate() {
        let n = fid.write(&host.cx, i as u64 * 700_001, Bytes::copy_from_slice(part)).wait().await.unwrap();
        assert_eq!(n as usize, part.len());
    }
    for size in [4096, 100_000, 1 << 20] {
        let mut got = Vec::new();
        loop {
            let part = fid.read(&host.cx, got.len() as u64, size).wait().await.unwrap().into_bytes().unwrap();
            if part.is_empty() {
                break;
            }
            got.extend_from_slice(&part);
        }
        assert!(got == data, "pieces of {size}");
    }
}

#[tokio::test]
async fn a_partial_walk_tells_how_far_it_came() {
    let host = Host::new();
    host.mkdir("a");
    host.put("a/f", b"");
    let root = host.root().await;
    let walk = |path| host.walk(&root, path);
    assert_eq!(errno(walk("none/x").await), Errno::ENOENT);
    assert_eq!(walk("a/none/x").await.err().unwrap().text(), "walked 1");
    assert_eq!(walk("a/f/x").await.err().unwrap().text(), "walked 2");
    let file = host.at(&root, "a/f").await;
    assert_eq!(errno(host.walk(&file, "..").await), Errno::ENOTDIR);
}

#[tokio::test]
async fn dot_dot_stays_below_the_root() {
    let host = Host::new();
    host.mkdir("a/b");
    let root = host.root().await;
    let qid = host.walk(&root, ".").await.unwrap().0[0];
    assert_eq!(host.walk(&root, "..").await.unwrap().0[0], qid);
    let b = host.at(&root, "a/b").await;
    let (qids, _) = host.walk(&b, "../../../..").await.unwrap();
    assert!(qids[1..].iter().all(|q| q.path == qid.path));
}

#[tokio::test]
async fn reading_at_the_end_of_an_appended_file_sees_the_new_bytes() {
    let host = Host::new();
    host.put("log", b"one");
    let root = host.root().await;
    let fid = host.at(&root, "log").await;
    host.open(&fid, lflags::RDWR | lflags::APPEND).await.unwrap();
    fid.write(&host.cx, 0, Bytes::from_static(b"two")).wait().await.unwrap();
    assert_eq!(host.read(&fid).await.unwrap(), b"onetwo");
}

#[tokio::test]
async fn a_file_opened_with_o_direct_takes_unaligned_reads_and_writes() {
    let host = Host::new();
    host.put("f", &[7; 10_000]);
    let root = host.root().await;
    let fid = host.at(&root, "f").await;
    host.open(&fid, lflags::RDWR | lflags::DIRECT).await.unwrap();
    assert_eq!(fid.read(&host.cx, 4096, 8192).wait().await.unwrap().into_bytes().unwrap().len(), 10_000 - 4096);
    assert_eq!(fid.read(&host.cx, 1, 3).wait().await.unwrap().into_bytes().unwrap(), &[7, 7, 7][..]);
    assert_eq!(fid.write(&host.cx, 9_999, Bytes::from_static(b"abc")).wait().await.unwrap(), 3);
    assert_eq!(&std::fs::read(host.path("f")).unwrap()[9_998..], b"\x07abc");
}

#[tokio::test]
async fn a_file_that_was_unlinked_is_still_served_through_open_and_walked_fids() {
    let host = Host::with_descriptors(1);
    host.put("f", b"data");
    for i in 0..8 {
        host.put(&format!("other{i}"), b"");
    }
    let root = host.root().await;
    let (open, walked) = (host.at(&root, "f").await, host.at(&root, "f").await);
    host.open(&open, lflags::RDWR).await.unwrap();
    root.unlink(&host.cx, name_of("f"), false).wait().await.unwrap();
    // Push it out of the cache, if it could be.
    for i in 0..8 {
        host.at(&root, &format!("other{i}")).await;
    }
    for fid in [&open, &walked] {
        let attr = fid.getattr(&host.cx, getattr::ALL).wait().await.unwrap();
        assert_eq!((attr.nlink, attr.size), (0, 4));
    }
    let set = SetAttr { size: Some(2), mode: Some(0o600), ..SetAttr::default() };
    walked.setattr(&host.cx, set).wait().await.unwrap();
    assert_eq!(host.read(&open).await.unwrap(), b"da");
    open.write(&host.cx, 0, Bytes::from_static(b"xyz")).wait().await.unwrap();
    host.open(&walked, 0).await.unwrap();
    assert_eq!(host.read(&walked).await.unwrap(), b"xyz");
    assert_eq!(errno(host.walk(&root, "f").await), Errno::ENOENT);
    assert_eq!(errno(walked.remove(&host.cx).wait().await), Errno::ENOENT);
}

#[tokio::test]
async fn the_answer_to_a_clunk_finds_an_unlinked_file_closed() {
    let host = Host::new();
    host.put("open", b"x");
    host.put("walked", b"x");
    let root = host.root().await;
    let (open, walked) = (host.at(&root, "open").await, host.at(&root, "walked").await);
    host.open(&open, 0).await.unwrap();
    for name in ["open", "walked"] {
        root.unlink(&host.cx, name_of(name), false).wait().await.unwrap();
    }
    let held = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        fds.filter(|at| at.starts_with(host.dir.path()) && at.to_string_lossy().ends_with(" (deleted)")).count()
    };
    assert!(held() >= 2);
    for fid in [&open, &walked] {
        fid.clunk(&host.cx).wait().await.unwrap();
    }
    assert_eq!(held(), 0);
}

#[tokio::test]
async fn an_unlinked_file_outlives_any_number_of_files_removed_after_it() {
    let host = Host::with_descriptors(2);
    host.put("f", b"data");
    let root = host.root().await;
    let kept = host.at(&root, "f").await;
    root.unlink(&host.cx, name_of("f"), false).wait().await.unwrap();
    for _ in 0..8 {
        host.put("other", b"");
        let other = host.at(&root, "other").await;
        root.unlink(&host.cx, name_of("other"), false).wait().await.unwrap();
        other.clunk(&host.cx).wait().await.unwrap();
    }
    assert_eq!(kept.getattr(&host.cx, getattr::ALL).wait().await.unwrap().size, 4);
}

#[tokio::test]
async fn attributes_are_those_of_stat() {
    let host = Host::new();
    host.put("f", b"12345");
    let root = host.root().await;
    let fid = host.at(&root, "f").await;
    let attr = fid.getattr(&host.cx, getattr::ALL).wait().await.unwrap();
    let meta = host.path("f").metadata().unwrap();
    assert_eq!((attr.size, attr.mode, attr.nlink), (5, meta.mode(), 1));
    assert_eq!((attr.mtime.sec, i64::from(attr.mtime.nsec)), (meta.mtime(), meta.mtime_nsec()));
    assert_eq!(attr.valid & getattr::BASIC, getattr::BASIC);
    assert_eq!(attr.qid.path, meta.ino());
    std::thread::sleep(Duration::from_millis(20));
    host.put("f", b"more bytes");
    let later = fid.getattr(&host.cx, getattr::ALL).wait().await.unwrap();
    assert_ne!(later.data_version, attr.data_version);
    assert_ne!(later.qid.version, attr.qid.version);
}

#[tokio::test]
async fn every_attribute_can_be_set() {
    let host = Host::new();
    host.put("f", b"12345");
    let root = host.root().await;
    let fid = host.at(&root, "f").await;
    let time = Time { sec: -5, nsec: 7 };
    let set = SetAttr {
        mode: Some(0o4711),
        size: Some(3),
        atime: Some(SetTime::To(Time { sec: 1 << 33, nsec: 1 })),
        mtime: Some(SetTime::To(time)),
        ..SetAttr::default()
    };
    fid.setattr(&host.cx, set).wait().await.unwrap();
    let attr = fid.getattr(&host.cx, getattr::ALL).wait().await.unwrap();
    assert_eq!((attr.mode & 0o7777, attr.size, attr.mtime, attr.atime.sec), (0o4711, 3, time, 1 << 33));
    let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    fid.setattr(&host.cx, now).wait().await.unwrap();
    let attr = fid.getattr(&host.cx, getattr::ALL).wait().await.unwrap();
    assert!(attr.mtime.sec > 1_000_000_000 && attr.atime.sec == 1 << 33);
    std::thread::sleep(Duration::from_millis(20));
    fid.setattr(&host.cx, SetAttr { ctime: true, ..SetAttr::default() }).wait().await.unwrap();
    let later = fid.getattr(&host.cx, getattr::ALL).wait().await.unwrap();
    assert!(later.ctime > attr.ctime && later.mtime == attr.mtime && later.mode == attr.mode);
}

#[tokio::test]
async fn a_setattr_that_fails_changes_nothing() {
    let host = Host::new();
    host.put("f", b"12345");
    let before = host.path("f").metadata().unwrap();
    let root = host.root().await;
    let fid = host.at(&root, "f").await;
    for set in [
        SetAttr { size: Some(1), mode: Some(0o600), uid: Some(u32::MAX), ..SetAttr::default() },
        SetAttr { size: Some(99), gid: Some(u32::MAX), ..SetAttr::default() },
        SetAttr {
            mode: Some(0o600),
            mtime: Some(SetTime::To(Time { sec: 1, nsec: 1_000_000_000 })),
            ..SetAttr::default()
        },
        SetAttr { mode: Some(0o600), size: Some(u64::MAX), ..SetAttr::default() },
    ] {
        assert!(fid.setattr(&host.cx, set).wait().await.is_err());
        let after = host.path("f").metadata().unwrap();
        let seen = |m: &std::fs::Metadata| (m.mode(), m.len(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec());
        assert_eq!(seen(&after), seen(&before), "{set:?}");
    }
}

#[tokio::test]
async fn undoing_a_setattr_leaves_what_another_wrote_since() {
    let host = Host::new();
    let root = host.root().await;
    for (now, after) in [(8, 4), (9, 9)] {
        host.put("f", b"data");
        let fid = host.at(&root, "f").await;
        let file = (&*fid as &dyn std::any::Any).downcast_ref::<super::super::HostFile>().unwrap();
        let fd = file.fd(super::super::Pace::MayWait).unwrap();
        let before = super::super::node::look(fd.as_fd()).unwrap();
        host.put("f", &vec![b'x'; now]);
        file.undo(fd.as_fd(), &SetAttr { size: Some(8), ..SetAttr::default() }, &before);
        assert_eq!(host.path("f").metadata().unwrap().len(), after);
    }
}

#[tokio::test]
async fn the_mode_of_a_symbolic_link_cannot_be_set_but_its_times_can() {
    let host = Host::new();
    std::os::unix::fs::symlink("nowhere", host.path("l")).unwrap();
    let root = host.root().await;
    let fid = host.at(&root, "l").await;
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert_eq!(errno(fid.setattr(&host.cx, set).wait().await), Errno::EOPNOTSUPP);
    let time = Time { sec: 1000, nsec: 5 };
    let set = SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
    fid.setattr(&host.cx, set).wait().await.unwrap();
    assert_eq!(fid.getattr(&host.cx, getattr::ALL).wait().await.unwrap().mtime, time);
    assert_eq!(fid.readlink(&host.cx).wait().await.unwrap(), b"nowhere");
    assert_eq!(errno(host.open(&fid, 0).await), Errno::ELOOP);
}

#[tokio::test]
async fn extended_attributes_are_kept_and_the_servers_own_is_hidden() {
    let host = Host::new();
    host.put("f", b"");
    let root = host.root().await;
    let fid = host.at(&root, "f").await;
    let set = |name: &'static [u8], value: &'static [u8], flags| {
        fid.xattr_set(&host.cx, name, Bytes::from_static(value), flags).wait()
    };
    if !have("user xattrs in the temporary directory", set(b"user.a", b"1", 0).await.is_ok()) {
        return;
    }
    set(b"user.empty", b"", 1).await.unwrap();
    assert_eq!(errno(set(b"user.a", b"2", 1).await), Errno::EEXIST);
    assert_eq!(errno(set(b"user.none", b"2", 2).await), Errno::ENODATA);
    assert_eq!(errno(set(b"user.ninefold.mode", b"a", 0).await), Errno::EPERM);
    assert_eq!(fid.xattr_get(&host.cx, b"user.a").wait().await.unwrap(), &b"1"[..]);
    assert!(fid.xattr_get(&host.cx, b"user.empty").wait().await.unwrap().is_empty());
    super::super::xattr::set_mode_letters(std::fs::File::open(host.path("f")).unwrap().as_fd(), b"a").unwrap();
    let list = fid.xattr_list(&host.cx).wait().await.unwrap();
    let mut names: Vec<&[u8]> = list.split(|&b| b == 0).filter(|n| n.starts_with(b"user.")).collect();
    names.sort_unstable();
    assert_eq!(names, [&b"user.a"[..], b"user.empty"]);
    fid.xattr_remove(&host.cx, b"user.a").wait().await.unwrap();
    assert_eq!(errno(fid.xattr_get(&host.cx, b"user.a").wait().await), Errno::ENODATA);
}

#[tokio::test]
async fn a_fifo_is_served_without_a_thread_waiting_for_its_other_end() {
    let host = Host::new();
    let root = host.root().await;
    root.mknod(&host.cx, name_of("p"), 0o010_644, 0, None).wait().await.unwrap();
    let (reader, writer) = (host.at(&root, "p").await, host.at(&root, "p").await);
    assert_eq!(errno(host.open(&writer, lflags::WRONLY).await), Errno::ENXIO);
    host.open(&reader, 0).await.unwrap();
    let read = reader.read(&host.cx, 0, 100).wait();
    tokio::pin!(read);
    // It waits for a first writer instead of telling the end of the file.
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut read).await.is_err());
    host.open(&writer, lflags::WRONLY).await.unwrap();
    writer.write(&host.cx, 0, Bytes::from_static(b"through")).wait().await.unwrap();
    assert_eq!(read.await.unwrap().into_bytes().unwrap(), &b"through"[..]);
    drop(writer);
    assert!(reader.read(&host.cx, 0, 100).wait().await.unwrap().into_bytes().unwrap().is_empty());
}

#[tokio::test]
async fn a_read_that_waits_ends_when_it_is_cancelled() {
    let host = Host::new();
    let root = host.root().await;
    root.mknod(&host.cx, name_of("p"), 0o010_644, 0, None).wait().await.unwrap();
    let fid = host.at(&root, "p").await;
    host.open(&fid, 0).await.unwrap();
    let cancel = std::sync::Arc::new(crate::server::Cancel::default());
    let cx = Cx::new(1, cancel.clone(), crate::server::Parking::new(1, u64::MAX, None));
    let read = fid.read(&cx, 0, 100).wait();
    tokio::pin!(read);
    assert!(tokio::time::timeout(Duration::from_millis(20), &mut read).await.is_err());
    cancel.cancel();
    assert_eq!(errno(read.await), Errno::EINTR);
}

#[tokio::test]
async fn sockets_and_devices_are_made_described_linked_and_removed_unopened() {
    let host = Host::new();
    let root = host.root().await;
    let mut kinds = vec![("s", 0o140_600, 0)];
    if have("root, to make devices", is_root()) {
        kinds.extend([("c", 0o020_600, 0x103), ("b", 0o060_600, 0x700)]);
    }
    for (name, mode, rdev) in kinds {
        root.mknod(&host.cx, name_of(name), mode, rdev, None).wait().await.unwrap();
        let fid = host.at(&root, name).await;
        let attr = fid.getattr(&host.cx, getattr::ALL).wait().await.unwrap();
        assert_eq!((attr.mode, attr.rdev), (mode, rdev));
        root.link(&host.cx, &*fid, name_of("other")).wait().await.unwrap();
        root.rename_entry(&host.cx, name_of("other"), &*root, name_of("third")).wait().await.unwrap();
        root.unlink(&host.cx, name_of("third"), false).wait().await.unwrap();
        fid.remove(&host.cx).wait().await.unwrap();
        assert!(!host.path(name).exists());
    }
}

#[tokio::test]
async fn a_character_device_is_read_without_waiting() {
    if !have("root, to make devices", is_root()) {
        return;
    }
    let host = Host::new();
    let root = host.root().await;
    root.mknod(&host.cx, name_of("zero"), 0o020_600, 0x105, None).wait().await.unwrap();
    let fid = host.at(&root, "zero").await;
    // A temporary directory may be mounted nodev.
    if host.open(&fid, lflags::RDWR).await.is_ok() {
        assert_eq!(fid.read(&host.cx, 0, 5).wait().await.unwrap().into_bytes().unwrap(), &[0; 5][..]);
        assert_eq!(fid.write(&host.cx, 0, Bytes::from_static(b"x")).wait().await.unwrap(), 1);
    }
}

#[tokio::test]
async fn flags_of_open_are_honoured() {
    let host = Host::new();
    host.put("f", b"12345");
    host.mkdir("d");
    let root = host.root().await;
    let open = async |name: &str, flags| {
        let fid = host.at(&root, name).await;
        host.open(&fid, flags).await
    };
    assert_eq!(errno(open("f", lflags::DIRECTORY).await), Errno::ENOTDIR);
    assert_eq!(errno(open("d", lflags::WRONLY).await), Errno::EISDIR);
    open("f", lflags::NOATIME | lflags::NOFOLLOW | lflags::CLOEXEC).await.unwrap();
    open("f", lflags::RDWR | lflags::SYNC | lflags::DSYNC).await.unwrap();
    open("f", lflags::WRONLY | lflags::TRUNC).await.unwrap();
    assert_eq!(host.path("f").metadata().unwrap().len(), 0);
}

#[tokio::test]
async fn a_created_file_has_exactly_the_mode_asked_for() {
    let host = Host::new();
    let root = host.root().await;
    for (name, mode) in [("a", 0o666), ("b", 0o777), ("c", 0o1640), ("d", 0o4755)] {
        host.create(&root, name, mode).await.unwrap();
        assert_eq!(host.path(name).metadata().unwrap().permissions().mode() & 0o7777, mode);
    }
    for (name, mode) in [("e", 0o777), ("f", 0o1777), ("g", 0o2770)] {
        root.mkdir(&host.cx, name_of(name), mode, None).wait().await.unwrap();
        assert_eq!(host.path(name).metadata().unwrap().permissions().mode() & 0o7777, mode);
    }
}

#[tokio::test]
async fn create_opens_what_is_there_unless_it_must_be_new() {
    let host = Host::new();
    host.put("f", b"12345");
    std::os::unix::fs::symlink("f", host.path("l")).unwrap();
    let root = host.root().await;
    assert_eq!(errno(host.create(&root, "f", 0o644).await), Errno::EEXIST);
    let open = |name| root.create(&host.cx, Create { exclusive: false, ..plain(name, 0o644) }).wait();
    assert_eq!(host.read(&open("f").await.unwrap().file).await.unwrap(), b"12345");
    assert_eq!(errno(open("l").await), Errno::ELOOP);
    open("new").await.unwrap();
    assert!(host.path("new").exists());
}

#[tokio::test]
async fn statfs_and_fsync_reach_the_file_system() {
    let host = Host::new();
    let root = host.root().await;
    let totals = root.statfs(&host.cx).wait().await.unwrap();
    assert!(totals.bsize > 0 && totals.namelen >= 255);
    let fid = host.create(&root, "f", 0o644).await.unwrap();
    fid.fsync(&host.cx, false).wait().await.unwrap();
    fid.fsync(&host.cx, true).wait().await.unwrap();
    let dir = host.at(&root, ".").await;
    host.open(&dir, 0).await.unwrap();
    dir.fsync(&host.cx, false).wait().await.unwrap();
}

/// Its file systems know no RWF_NOWAIT.
#[tokio::test]
async fn what_is_in_memory_is_read_at_once() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    assert_eq!(rustix::fs::statfs(dir.path()).unwrap().f_type, 0x0102_1994, "TMPFS_MAGIC");
    std::fs::write(dir.path().join("f"), [7; 100_000]).unwrap();
    let fs = HostFs::with_descriptors(dir.path(), 64).unwrap();
    let host = Host { dir, fs, cx: Cx::detached() };
    let f = host.at(&host.root().await, "f").await;
    host.open(&f, 0).await.unwrap();
    for (offset, count) in [(0, 4096), (50_000, 65_536), (100_000, 4096)] {
        let Answer::Now(read) = f.read(&host.cx, offset, count) else { panic!("{count} bytes at {offset} wait") };
        let read = read.unwrap().into_bytes().unwrap();
        assert_eq!(read.len() as u64, (100_000 - offset).min(count.into()), "at {offset}");
    }
}
