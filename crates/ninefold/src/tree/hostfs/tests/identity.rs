//! Acting as the attached user.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use bytes::Bytes;
use ninefold_proto::QidType;
use ninefold_proto::attr::{SetAttr, SetTime};
use ninefold_proto::open::{Open, lflags};
use ninefold_proto::stat::Stat;

use super::*;

const ALICE: u32 = 54_321;
const BOB: u32 = 54_322;
const TEAM: u32 = 54_400;

fn mode(host: &Host, name: &str, mode: u32) {
    std::fs::set_permissions(host.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

/// An export that anybody may enter and write to.
fn shared() -> Option<Host> {
    if !have("root, to act as other users", is_root()) {
        return None;
    }
    let host = Host::new();
    mode(&host, "", 0o777);
    Some(host)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_user_gets_at_what_the_kernel_would_give_him() {
    let Some(host) = shared() else { return };
    let alice = host.attach(Dialect::Linux, somebody(ALICE)).await;
    let bob = host.attach(Dialect::Linux, somebody(BOB)).await;
    for round in 0..20 {
        let name = format!("private{round}");
        let fid = host.create(&alice, &name, 0o600).await.unwrap();
        fid.write(&host.cx, 0, Bytes::from_static(b"secret")).wait().await.unwrap();
        let meta = host.path(&name).metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (ALICE, ALICE));
        assert_eq!(errno(host.contents(&bob, &name).await), Errno::EACCES);
        assert_eq!(host.contents(&alice, &name).await.unwrap(), b"secret");
        let theirs = host.at(&bob, &name).await;
        let set = SetAttr { mode: Some(0o666), ..SetAttr::default() };
        assert_eq!(errno(theirs.setattr(&host.cx, set).wait().await), Errno::EPERM);
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        assert_eq!(errno(theirs.setattr(&host.cx, set).wait().await), Errno::EACCES);
        let set = SetAttr { uid: Some(BOB), ..SetAttr::default() };
        assert_eq!(errno(theirs.setattr(&host.cx, set).wait().await), Errno::EPERM);
    }
    host.mkdir("closed/inner");
    mode(&host, "closed", 0o700);
    assert_eq!(host.walk(&bob, "closed/inner").await.err().unwrap().text(), "walked 1");
    assert_eq!(errno(bob.unlink(&host.cx, name_of("closed"), true).wait().await), Errno::ENOTEMPTY);
    let closed = host.at(&bob, "closed").await;
    assert_eq!(errno(host.walk(&closed, "..").await), Errno::EACCES);
    assert_eq!(errno(closed.mkdir(&host.cx, name_of("x"), 0o777, None).wait().await), Errno::EACCES);
}

#[tokio::test]
async fn groups_and_setgid_folders_are_honoured() {
    let Some(host) = shared() else { return };
    let alice = host.attach(Dialect::Linux, User { groups: vec![TEAM], ..somebody(ALICE) }).await;
    let made = |dir: Fid, name: &'static str, gid| {
        let cx = host.cx.clone();
        async move { dir.create(&cx, Create { gid, ..plain(name, 0o644) }).wait().await }
    };
    made(alice.clone(), "team", Some(TEAM)).await.unwrap();
    made(alice.clone(), "foreign", Some(1)).await.unwrap();
    let gid = |name: &str| host.path(name).metadata().unwrap().gid();
    assert_eq!((gid("team"), gid("foreign")), (TEAM, ALICE));
    alice.mkdir(&host.cx, name_of("dir"), 0o2775, Some(TEAM)).wait().await.unwrap();
    assert_eq!((gid("dir"), host.path("dir").metadata().unwrap().mode() & 0o7777), (TEAM, 0o2775));
    let dir = host.at(&alice, "dir").await;
    made(dir.clone(), "f", Some(ALICE)).await.unwrap();
    assert_eq!(gid("dir/f"), TEAM);
    dir.symlink(&host.cx, name_of("l"), b"x", Some(ALICE)).wait().await.unwrap();
    assert_eq!(host.path("dir/l").symlink_metadata().unwrap().gid(), TEAM);
    host.put("shared", b"team's");
    chown(host.path("shared"), Some(0), Some(TEAM)).unwrap();
    mode(&host, "shared", 0o640);
    assert_eq!(host.contents(&alice, "shared").await.unwrap(), b"team's");
}

#[tokio::test]
async fn a_write_by_a_user_takes_setuid_away() {
    let Some(host) = shared() else { return };
    host.put("tool", b"x");
    mode(&host, "tool", 0o6777);
    let alice = host.attach(Dialect::Linux, somebody(ALICE)).await;
    // Work as root on the same thread in between.
    let root = host.root().await;
    let fid = host.at(&alice, "tool").await;
    host.open(&fid, lflags::WRONLY).await.unwrap();
    host.at(&root, "tool").await;
    fid.write(&host.cx, 0, Bytes::from_static(b"y")).wait().await.unwrap();
    assert_eq!(host.path("tool").metadata().unwrap().mode() & 0o7777, 0o777);
}

#[tokio::test]
async fn a_writer_who_is_not_the_owner_cuts_a_file_as_linux_clients_ask_for_it() {
    let Some(host) = shared() else { return };
    host.put("tool", b"12345");
    mode(&host, "tool", 0o4777);
    let alice = host.attach(Dialect::Linux, somebody(ALICE)).await;
    let fid = host.at(&alice, "tool").await;
    let seen = || {
        let meta = host.path("tool").metadata().unwrap();
        (meta.mode() & 0o7777, meta.len())
    };
    // file_remove_privs() before a write, ftruncate(2), and both together.
    let refused = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    assert_eq!(errno(fid.setattr(&host.cx, refused).wait().await), Errno::EPERM);
    fid.setattr(&host.cx, SetAttr { mode: Some(0o777), ..SetAttr::default() }).wait().await.unwrap();
    assert_eq!(seen(), (0o777, 5));
    let cut = SetAttr { size: Some(3), mtime: Some(SetTime::Now), ctime: true, ..SetAttr::default() };
    fid.setattr(&host.cx, cut).wait().await.unwrap();
    assert_eq!(seen(), (0o777, 3));
    mode(&host, "tool", 0o4777);
    fid.setattr(&host.cx, SetAttr { size: Some(2), mode: Some(0o777), ..cut }).wait().await.unwrap();
    assert_eq!(seen(), (0o777, 2));
    mode(&host, "tool", 0o4755);
    let refused = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    assert_eq!(errno(fid.setattr(&host.cx, refused).wait().await), Errno::EACCES);
}

#[tokio::test]
async fn capabilities_beyond_files_are_not_lent_to_users() {
    let Some(host) = shared() else { return };
    let alice = host.attach(Dialect::Linux, somebody(ALICE)).await;
    let fid = host.create(&alice, "f", 0o755).await.unwrap();
    for name in [&b"trusted.x"[..], b"security.capability", b"security.x"] {
        let set = fid.xattr_set(&host.cx, name, Bytes::from_static(b"1"), 0).wait().await;
        assert_eq!(errno(set), Errno::EPERM);
    }
    let fid = host.at(&alice, "f").await;
    let mknod = alice.mknod(&host.cx, name_of("dev"), 0o060_666, 0x700, None).wait().await;
    assert_eq!(errno(mknod), Errno::EPERM);
    let chown = SetAttr { uid: Some(BOB), ..SetAttr::default() };
    assert_eq!(errno(fid.setattr(&host.cx, chown).wait().await), Errno::EPERM);
    // And root has them again.
    let root = host.root().await;
    let set = host.at(&root, "f").await.xattr_set(&host.cx, b"trusted.x", Bytes::from_static(b"1"), 0).wait().await;
    assert!(!matches!(set, Err(error) if error.errno == Errno::EPERM));
}

#[tokio::test]
async fn executing_needs_the_right_to_execute_and_no_other() {
    let Some(host) = shared() else { return };
    host.put("run", b"code");
    let alice = host.attach(Dialect::Plan9, somebody(ALICE)).await;
    for (bits, answer) in [(0o644, Err(Errno::EACCES)), (0o711, Ok(&b"code"[..])), (0o755, Ok(&b"code"[..]))] {
        mode(&host, "run", bits);
        let fid = host.at(&alice, "run").await;
        let opened = fid.open(&host.cx, Open::from_mode(3, ninefold_proto::Dialect::Plan9).unwrap()).wait().await;
        match answer {
            Err(expected) => assert_eq!(errno(opened), expected),
            Ok(data) => {
                opened.unwrap();
                assert_eq!(host.read(&fid).await.unwrap(), data);
            }
        }
    }
}

#[tokio::test]
async fn an_evicted_fid_is_found_again_behind_a_folder_that_was_closed_since() {
    let Some(host) = shared() else { return };
    let host = Host { fs: HostFs::with_descriptors(host.dir.path(), 1).unwrap(), ..host };
    host.mkdir("d");
    host.put("d/f", b"still");
    let alice = host.attach(Dialect::Linux, somebody(ALICE)).await;
    let fid = host.at(&alice, "d/f").await;
    mode(&host, "d", 0o700);
    for _ in 0..4 {
        host.at(&alice, "d").await;
    }
    host.open(&fid, 0).await.unwrap();
    assert_eq!(host.read(&fid).await.unwrap(), b"still");
}

#[tokio::test]
async fn a_link_leads_back_out_of_a_folder_only_whom_it_lets_search() {
    let Some(host) = shared() else { return };
    host.mkdir("private");
    mode(&host, "private", 0o700);
    std::os::unix::fs::symlink("private/..", host.path("link")).unwrap();
    for (uid, kind) in [(0, QidType::DIR), (ALICE, QidType::FILE)] {
        let root = host.attach(Dialect::Plan9, somebody(uid)).await;
        assert_eq!(host.walk(&root, "link").await.unwrap().0[0].kind, kind, "uid {uid}");
    }
}

/// Seconds since 1970.
fn clock() -> u32 {
    u32::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap()
}

const HOURS: u32 = 60 * 60;

/// The file `f` with five bytes and a time of long ago, which anybody may write.
fn old_file(host: &Host) {
    host.put("f", b"12345");
    mode(host, "f", 0o666);
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let file = std::fs::File::options().write(true).open(host.path("f")).unwrap();
    file.set_times(std::fs::FileTimes::new().set_accessed(old).set_modified(old)).unwrap();
}

/// Length, access and modification.
fn seen(host: &Host) -> (u64, i64, i64) {
    let meta = host.path("f").metadata().unwrap();
    (meta.len(), meta.atime(), meta.mtime())
}

/// Whether a time is the server's, taken since `before`. The grain of the file system's clock may be behind by part of a second.
fn is_since(time: i64, before: u32) -> bool {
    (i64::from(before) - 1..=i64::from(clock())).contains(&time)
}

#[tokio::test]
async fn a_writer_cuts_by_a_record_with_his_clock_and_sets_no_time_by_one_with_another() {
    let Some(host) = shared() else { return };
    old_file(&host);
    let bob = host.attach(Dialect::Unix, somebody(BOB)).await;
    let fid = host.at(&bob, "f").await;
    for mtime in [0, 1_100_000_000, clock() - 30 * HOURS, clock() + 30 * HOURS] {
        for length in [2, 5, 9] {
            let record = Stat { length, mtime, ..Stat::UNTOUCHED };
            assert_eq!(errno(fid.wstat(&host.cx, &record).wait().await), Errno::EPERM, "{mtime}");
            assert_eq!(seen(&host), (5, 1_000_000_000, 1_000_000_000), "a wstat is all or nothing");
        }
    }
    // Clocks of this and of other time zones; the length that it has too, as when O_TRUNC finds nothing to cut.
    for (length, mtime) in [(2, clock()), (3, clock() - 20 * HOURS), (5, clock() + 20 * HOURS)] {
        old_file(&host);
        let before = clock();
        fid.wstat(&host.cx, &Stat { length, mtime, ..Stat::UNTOUCHED }).wait().await.unwrap();
        let (now_length, _, mtime) = seen(&host);
        assert_eq!(now_length, length);
        assert!(is_since(mtime, before), "{mtime}");
    }
}

#[tokio::test]
async fn a_writer_touches_by_a_record_with_his_clock_as_both_times() {
    let Some(host) = shared() else { return };
    old_file(&host);
    let bob = host.attach(Dialect::Unix, somebody(BOB)).await;
    let fid = host.at(&bob, "f").await;
    let touch = async |atime, mtime| fid.wstat(&host.cx, &Stat { atime, mtime, ..Stat::UNTOUCHED }).wait().await;
    let now = clock();
    // One time alone, different ones, and others than now are times to be set.
    for (atime, mtime) in [(u32::MAX, now), (now, u32::MAX), (now - HOURS, now), (1_100_000_000, 1_100_000_000)] {
        assert_eq!(errno(touch(atime, mtime).await), Errno::EPERM, "{atime} {mtime}");
        assert_eq!(seen(&host), (5, 1_000_000_000, 1_000_000_000));
    }
    for seconds in [now, now - 20 * HOURS] {
        old_file(&host);
        touch(seconds, seconds).await.unwrap();
        let (length, atime, mtime) = seen(&host);
        assert!(length == 5 && is_since(atime, now) && is_since(mtime, now), "{atime} {mtime}");
    }
    old_file(&host);
    mode(&host, "f", 0o644);
    assert_eq!(errno(touch(now, now).await), Errno::EACCES, "without the right to write");
    assert_eq!(seen(&host), (5, 1_000_000_000, 1_000_000_000));
}
