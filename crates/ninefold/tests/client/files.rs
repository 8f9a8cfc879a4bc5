//! Operations on files and names, in each dialect.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Client, Error, FileType, Follow, Lock, LockKind, Mode, Options};
use ninefold::proto::attr::{SetAttr, SetTime, Time};
use ninefold::proto::stat::{Stat, dm};
use ninefold::proto::{Dialect, Errno, R, T};
use ninefold::server::Server;
use ninefold::transport::memory;
use ninefold::tree::hostfs::HostFs;

use crate::fake;
use crate::support::{BUFFER, connect, over, ram, settled};

fn set(mode: Option<u32>, size: Option<u64>) -> SetAttr {
    SetAttr { mode, size, ..SetAttr::default() }
}

async fn touch(client: &Client, name: &[u8]) {
    client.root().await.unwrap().create(name, Mode::WRITE, 0o644).await.unwrap();
}

async fn names(client: &Client) -> BTreeSet<String> {
    let entries = client.root().await.unwrap().read_dir().await.unwrap().all().await.unwrap();
    entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn files_are_made_written_read_renamed_and_removed_alike_in_every_dialect_and_with_any_msize() {
    for (dialect, msize) in Dialect::ALL.into_iter().flat_map(|dialect| [(dialect, 4096), (dialect, 1 << 20)]) {
        let client = connect(&ram(), dialect, Options { msize, ..Options::default() }).await;
        assert_eq!((client.dialect(), client.msize()), (dialect, msize));
        let root = client.root().await.unwrap();
        root.mkdir(b"d", 0o755).await.unwrap();
        let dir = client.walk("/d", Follow::All).await.unwrap();
        let file = dir.walk(&[]).await.unwrap().create(b"f", Mode::READ_WRITE, 0o640).await.unwrap();
        assert_eq!(file.write_at(0, Bytes::from_static(b"hello")).await.unwrap(), 5);
        assert_eq!(file.read_at(1, 100).await.unwrap(), "ello");
        file.sync().await.unwrap();
        file.close().await.unwrap();
        let node = client.walk("/d/./x/../f", Follow::All).await.unwrap();
        node.set(&set(Some(0o600), Some(3))).await.unwrap();
        let meta = node.metadata().await.unwrap();
        assert_eq!((meta.kind, meta.mode, meta.size), (FileType::File, 0o600, 3), "{dialect}");
        dir.rename(b"f", &dir, b"g").await.unwrap();
        let names: Vec<_> = dir.read_dir().await.unwrap().all().await.unwrap();
        assert_eq!(names.iter().map(|entry| entry.name.as_slice()).collect::<Vec<_>>(), [b"g"]);
        assert_eq!(root.unlink(b"d", true).await.unwrap_err().errno(), Errno::ENOTEMPTY);
        assert_eq!(dir.unlink(b"g", true).await.unwrap_err().errno(), Errno::ENOTDIR);
        assert_eq!(root.unlink(b"d", false).await.unwrap_err().errno(), Errno::EISDIR);
        dir.unlink(b"g", false).await.unwrap();
        drop(dir);
        root.unlink(b"d", true).await.unwrap();
        assert!(client.walk("/d", Follow::All).await.unwrap_err().is_not_found());
        drop((node, root));
        settled(&client, 1).await;
        client.close(Duration::from_secs(1)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_there_already_is_not_made_again() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options::default()).await;
        touch(&client, b"f").await;
        let root = client.root().await.unwrap();
        let e = client.root().await.unwrap().create(b"f", Mode::WRITE, 0o644).await.unwrap_err();
        assert_eq!((e.errno(), root.mkdir(b"f", 0o755).await.unwrap_err().errno()), (Errno::EEXIST, Errno::EEXIST));
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
            let e = client.root().await.unwrap().create(name, Mode::WRITE, 0o644).await.unwrap_err();
            assert!(matches!(e, Error::Name(_)), "{e}");
            assert!(matches!(root.mkdir(name, 0o755).await, Err(Error::Name(_))));
            assert!(matches!(root.unlink(name, false).await, Err(Error::Name(_))));
            assert!(matches!(root.rename(b"f", &root, name).await, Err(Error::Name(_))));
            assert!(matches!(root.metadata_of(name).await, Err(Error::Name(_))));
        }
        assert_eq!(names(&client).await, BTreeSet::from(["f".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn links_and_special_files_are_made_where_the_dialect_can() {
    for dialect in [Dialect::Unix, Dialect::Linux] {
        let client = connect(&ram(), dialect, Options::default()).await;
        let root = client.root().await.unwrap();
        touch(&client, b"f").await;
        let file = root.walk(&[b"f"]).await.unwrap();
        root.link(b"hard", &file).await.unwrap();
        let linked = root.metadata_of(b"hard").await.unwrap();
        assert_eq!((linked.qid.path, linked.nlink), (file.qid().path, Some(2)), "{dialect}");
        root.symlink(b"soft", b"nowhere/at/all").await.unwrap();
        let link = root.walk(&[b"soft"]).await.unwrap();
        assert_eq!(link.read_link().await.unwrap(), b"nowhere/at/all");
        root.mknod(b"pipe", FileType::Fifo, 0o600, (0, 0)).await.unwrap();
        root.mknod(b"socket", FileType::Socket, 0o600, (0, 0)).await.unwrap();
        for (name, kind) in [(b"pipe".as_slice(), FileType::Fifo), (b"socket", FileType::Socket)] {
            assert_eq!(root.metadata_of(name).await.unwrap().kind, kind, "{dialect}");
        }
        drop((root, file, link));
        settled(&client, 1).await;
    }
    let client = connect(&ram(), Dialect::Plan9, Options::default()).await;
    let root = client.root().await.unwrap();
    touch(&client, b"f").await;
    let file = root.walk(&[b"f"]).await.unwrap();
    for result in [
        root.link(b"l", &file).await,
        root.symlink(b"l", b"f").await,
        root.mknod(b"l", FileType::Fifo, 0o600, (0, 0)).await,
        file.set(&SetAttr { uid: Some(0), ..SetAttr::default() }).await,
        root.rename(b"f", &root.walk(&[]).await.unwrap(), b"f").await.and(root.set_xattr(b"user.x", b"").await),
        file.statfs().await.map(drop),
    ] {
        let e = result.unwrap_err();
        assert!(matches!(e, Error::Unsupported { dialect: Dialect::Plan9, .. }), "{e}");
        assert_eq!(e.errno(), Errno::EOPNOTSUPP);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rename_replaces_where_the_dialect_lets_it_and_crosses_directories_in_linux_s() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options::default()).await;
        let root = client.root().await.unwrap();
        for name in [b"a", b"b"] {
            touch(&client, name).await;
        }
        root.mkdir(b"d", 0o755).await.unwrap();
        let dir = root.walk(&[b"d"]).await.unwrap();
        let replaced = root.rename(b"a", &root, b"b").await;
        if dialect == Dialect::Plan9 {
            assert_eq!(replaced.unwrap_err().errno(), Errno::EEXIST);
        } else {
            replaced.unwrap();
            assert_eq!(names(&client).await, BTreeSet::from(["b".to_owned(), "d".to_owned()]));
        }
        let moved = root.rename(b"b", &dir, b"c").await;
        if dialect == Dialect::Linux {
            moved.unwrap();
            client.walk("/d/c", Follow::All).await.unwrap();
        } else {
            assert!(matches!(moved, Err(Error::Unsupported { .. })));
            client.walk("/b", Follow::All).await.unwrap();
        }
        assert!(root.rename(b"none", &root, b"x").await.unwrap_err().is_not_found());
    }
}

/// A server without the newer messages, as diod is.
#[tokio::test(start_paused = true)]
async fn where_the_server_has_no_unlinkat_or_renameat_the_older_messages_do_it() {
    for missing in [Errno::EOPNOTSUPP, Errno::ENOSYS] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let (ours, theirs) = memory::pair(BUFFER);
        fake::serve(theirs, 1, move |replies, tag, request| {
            log.lock().unwrap().push(request.name());
            match *request {
                T::Unlinkat { .. } | T::Renameat { .. } => replies.error(tag, missing),
                T::Rename { name, .. } => {
                    assert_eq!(name, b"g");
                    replies.send(tag, R::Rename {});
                }
                _ => return false,
            }
            true
        });
        let client = over(ours, Dialect::Linux, Options::default()).await;
        let root = client.root().await.unwrap();
        seen.lock().unwrap().clear();
        root.unlink(b"f", false).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), ["Tunlinkat", "Twalk", "Tremove"]);
        // The kind is compared here, since Tremove does not.
        assert_eq!(root.unlink(b"d", false).await.unwrap_err().errno(), Errno::EISDIR);
        assert_eq!(root.unlink(b"f", true).await.unwrap_err().errno(), Errno::ENOTDIR);
        settled(&client, 2).await;
        seen.lock().unwrap().clear();
        root.rename(b"f", &root, b"g").await.unwrap();
        settled(&client, 2).await;
        assert_eq!(*seen.lock().unwrap(), ["Trenameat", "Twalk", "Trename", "Tclunk"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_permissions_leaves_the_other_bits_of_the_mode_alone() {
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = sent.clone();
        let (ours, theirs) = memory::pair(BUFFER);
        let mode = dm::DIR | dm::APPEND | dm::EXCL | 0o700;
        fake::serve(theirs, 1, move |replies, tag, request| match *request {
            T::Stat { .. } => {
                let mut stat = Vec::new();
                Stat { qid: fake::qid(b"d"), mode, length: 0, atime: 1, mtime: 1, ..Stat::UNTOUCHED }
                    .encode(replies.dialect, &mut stat);
                replies.send(tag, R::Stat { stat: ninefold::proto::message::StatBytes(&stat) });
                true
            }
            T::Wstat { stat, .. } => {
                let stat = Stat::decode(stat.0, replies.dialect).unwrap();
                // Nothing else is touched.
                let rest = Stat { mode: u32::MAX, ..stat };
                assert_eq!(rest, Stat::UNTOUCHED);
                log.lock().unwrap().push(stat.mode);
                replies.send(tag, R::Wstat {});
                true
            }
            _ => false,
        });
        let client = over(ours, dialect, Options::default()).await;
        let node = client.walk("/d", Follow::All).await.unwrap();
        let (mode, special) = if dialect == Dialect::Unix { (0o4755, dm::SETUID) } else { (0o755, 0) };
        node.set(&set(Some(mode), None)).await.unwrap();
        assert_eq!(*sent.lock().unwrap(), [dm::DIR | dm::APPEND | dm::EXCL | special | 0o755], "{dialect}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_msize_out_of_its_range_is_brought_into_it() {
    for (msize, offered) in [(0, 4096), (4095, 4096), (5000, 5000), (u32::MAX, 8 << 20)] {
        let (ours, theirs) = memory::pair(BUFFER);
        fake::serve(theirs, 10, |_, _, _| false);
        let client = over(ours, Dialect::Linux, Options { msize, ..Options::default() }).await;
        assert_eq!(client.msize(), offered);
    }
}

#[tokio::test(start_paused = true)]
async fn bits_of_a_mode_that_9p2000_has_not_are_refused_before_anything_is_asked() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options::default()).await;
        touch(&client, b"f").await;
        let (root, node) = (client.root().await.unwrap(), client.walk("/f", Follow::All).await.unwrap());
        let dir = client.root().await.unwrap();
        let before = client.stats().messages;
        for bit in [0o4000, 0o2000, 0o1000] {
            let set = node.set(&set(Some(bit | 0o755), None)).await;
            let mkdir = root.mkdir(format!("d{bit}").as_bytes(), bit | 0o755).await;
            for result in [set, mkdir] {
                match result {
                    Err(Error::Unsupported { .. }) => assert_eq!(dialect, Dialect::Plan9),
                    other => other.map(|()| assert_ne!(dialect, Dialect::Plan9)).unwrap(),
                }
            }
        }
        let created = dir.create(b"g", Mode::WRITE, 0o4755).await;
        assert_eq!(created.is_err(), dialect == Dialect::Plan9, "{dialect}");
        if dialect == Dialect::Plan9 {
            assert!(matches!(created, Err(Error::Unsupported { .. })));
            let after = client.stats().messages;
            assert!(["Twstat", "Tcreate"].iter().all(|name| after.get(name) == before.get(name)), "{after:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn times_are_set_as_finely_as_the_dialect_can() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options::default()).await;
        touch(&client, b"f").await;
        let node = client.walk("/f", Follow::All).await.unwrap();
        let to = |sec, nsec| Some(SetTime::To(Time { sec, nsec }));
        node.set(&SetAttr { atime: to(1000, 1), mtime: to(2000, 999_999_999), ..SetAttr::default() }).await.unwrap();
        let meta = node.metadata().await.unwrap();
        let fine = dialect == Dialect::Linux;
        assert_eq!(meta.modified, Time { sec: 2000, nsec: if fine { 999_999_999 } else { 0 } }, "{dialect}");
        assert_eq!(meta.accessed.sec, 1000);
        let far = node.set(&SetAttr { mtime: to(1 << 32, 0), ..SetAttr::default() }).await;
        match dialect {
            Dialect::Linux => far.unwrap(),
            _ => assert!(matches!(far, Err(Error::TooLarge(..)))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn extended_attributes_of_any_size_are_set_listed_read_and_removed() {
    for msize in [4096, 1 << 20] {
        let client = connect(&ram(), Dialect::Linux, Options { msize, ..Options::default() }).await;
        touch(&client, b"f").await;
        let node = client.walk("/f", Follow::All).await.unwrap();
        assert!(node.list_xattrs().await.unwrap().is_empty());
        assert_eq!(node.get_xattr(b"user.none").await.unwrap_err().errno(), Errno::ENODATA);
        let large: Vec<u8> = (0..65_536_u32).map(|n| (n % 251) as u8).collect();
        for value in [&large[..], b"small"] {
            node.set_xattr(b"user.x", value).await.unwrap();
            assert!(node.get_xattr(b"user.x").await.unwrap() == value, "{} bytes", value.len());
        }
        assert!(matches!(node.set_xattr(b"user.x", b"").await, Err(Error::Unsupported { .. })));
        assert_eq!(node.get_xattr(b"user.x").await.unwrap(), b"small");
        node.set_xattr(b"user.y", b"1").await.unwrap();
        let names: BTreeSet<_> = node.list_xattrs().await.unwrap().into_iter().collect();
        assert_eq!(names, BTreeSet::from([b"user.x".to_vec(), b"user.y".to_vec()]));
        node.remove_xattr(b"user.y").await.unwrap();
        assert_eq!(node.remove_xattr(b"user.y").await.unwrap_err().errno(), Errno::ENODATA);
        assert_eq!(node.list_xattrs().await.unwrap(), [b"user.x".to_vec()]);
        drop(node);
        settled(&client, 1).await;
    }
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        let client = connect(&ram(), dialect, Options::default()).await;
        let e = client.root().await.unwrap().list_xattrs().await.unwrap_err();
        assert!(matches!(e, Error::Unsupported { .. }), "{e}");
    }
}

#[tokio::test(start_paused = true)]
async fn locks_keep_another_client_out_until_they_are_given_up_or_their_file_is_closed() {
    let server = ram();
    let one = connect(&server, Dialect::Linux, Options::default()).await;
    let other = connect(&server, Dialect::Linux, Options::default()).await;
    touch(&one, b"f").await;
    let open =
        async |client: &Client| client.walk("/f", Follow::All).await.unwrap().open(Mode::READ_WRITE).await.unwrap();
    let (mine, yours) = (open(&one).await, open(&other).await);
    let lock = |kind, start, length| Lock { kind, start, length, process: 1, client: b"c".to_vec() };
    let exclusive = lock(LockKind::Exclusive, 10, 10);
    assert!(mine.try_lock(&exclusive).await.unwrap());
    // Again by its owner, and beside it by the other.
    assert!(mine.try_lock(&exclusive).await.unwrap());
    assert!(yours.try_lock(&lock(LockKind::Exclusive, 20, 0)).await.unwrap());
    assert!(!yours.try_lock(&lock(LockKind::Shared, 15, 1)).await.unwrap());
    let conflict = yours.conflicting_lock(&lock(LockKind::Shared, 0, 0)).await.unwrap().unwrap();
    assert_eq!((conflict.kind, conflict.start, conflict.length), (LockKind::Exclusive, 10, 10));
    mine.unlock(&exclusive).await.unwrap();
    assert_eq!(yours.conflicting_lock(&lock(LockKind::Shared, 10, 5)).await.unwrap(), None);
    assert!(mine.try_lock(&lock(LockKind::Shared, 0, 5)).await.unwrap());
    assert!(yours.try_lock(&lock(LockKind::Shared, 0, 5)).await.unwrap());
    assert!(!mine.try_lock(&lock(LockKind::Exclusive, 0, 5)).await.unwrap());
    yours.close().await.unwrap();
    assert!(mine.try_lock(&lock(LockKind::Exclusive, 0, 0)).await.unwrap());
}

#[tokio::test]
async fn a_directory_of_100_000_entries_is_read_whole_in_every_dialect() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..100_000_u32 {
        std::fs::File::create(dir.path().join(format!("entry-{n}"))).unwrap();
    }
    let server = Server::builder().export("", Arc::new(HostFs::open(dir.path()).unwrap()), false).build();
    for dialect in Dialect::ALL {
        let client = connect(&server, dialect, Options::default()).await;
        let names = names(&client).await;
        assert_eq!(names.len(), 100_000, "{dialect}");
        assert!(names.contains("entry-0") && names.contains("entry-99999"));
        settled(&client, 1).await;
    }
    // One more than are allowed is a server that does not end.
    let options = Options { dir_entries_max: 99_999, ..Options::default() };
    let client = connect(&server, Dialect::Linux, options).await;
    let all = client.root().await.unwrap().read_dir().await.unwrap().all().await;
    assert!(matches!(all, Err(Error::Suspect(_))));
}

#[tokio::test(start_paused = true)]
async fn a_file_is_looked_at_while_it_is_opened_and_opened_where_that_is_refused() {
    for (dialect, refuses) in Dialect::ALL.into_iter().flat_map(|dialect| [(dialect, false), (dialect, true)]) {
        let (ours, theirs) = memory::pair(BUFFER);
        fake::serve(theirs, 1000, move |replies, tag, request| {
            let is_look = refuses && matches!(request, T::Stat { .. } | T::Getattr { .. });
            if is_look {
                replies.error(tag, Errno::EACCES);
            }
            is_look
        });
        let client = over(ours, dialect, Options::default()).await;
        let node = client.walk("/f", Follow::All).await.unwrap();
        let before = client.stats().round_trips;
        let (file, metadata) = node.open_and_look(Mode::READ).await.unwrap();
        assert_eq!(client.stats().round_trips, before + 1, "{dialect}");
        assert_eq!(metadata.map(|metadata| metadata.size), Some(1000).filter(|_| !refuses), "{dialect}");
        // What follows has waited for both, which were sent together.
        file.read_at(0, 10).await.unwrap();
        assert_eq!(client.stats().round_trips, before + 2, "{dialect}");
    }
}
