//! Small files that are made, written and given their names in one round trip, whole or not at all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Client, Error, Follow, Mode, NewFile, Options, Step, Unput};
use ninefold::proto::attr::SetAttr;
use ninefold::proto::dialect::Version;
use ninefold::proto::{Dialect, Errno};
use ninefold::server::Server;
use ninefold::transport::{Peer, Stream, memory};
use ninefold::tree::ramfs::RamFs;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use crate::chains::write;
use crate::support::{BUFFER, connect, link, over, ram, settled};

const NEW: NewFile<'_> = NewFile { name: b"new", part: b".part", perm: 0o640, set: None, mode: None, sync: true };

async fn names(client: &Client, dir: &str) -> Vec<Vec<u8>> {
    let entries = client.walk(dir, Follow::All).await.unwrap().read_dir().await.unwrap().all().await.unwrap();
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn a_file_is_made_and_written_in_one_round_trip_with_its_attributes() {
    const DELAY: Duration = Duration::from_millis(75);
    let (ours, theirs) = link(DELAY);
    tokio::spawn(ram().serve(theirs, Peer::Stdio));
    let client = over(ours, Version::N1, Options::default()).await;
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let began = Instant::now();
    client.put(b"/", &NewFile { set: Some(&set), ..NEW }, Bytes::from(vec![7; 1 << 20])).await.unwrap();
    assert!(began.elapsed() < 3 * DELAY, "{:?}", began.elapsed());
    let root = client.root().await.unwrap();
    let began = Instant::now();
    let fetched = root.fetch(&client.fork(), b"new", 1 << 20).await.unwrap();
    assert!(began.elapsed() < 3 * DELAY, "{:?}", began.elapsed());
    // A message does not hold one byte more, which would tell that there is more.
    assert!(fetched.is_none_or(|fetched| fetched.data == vec![7; 1 << 20]));
    let metadata = client.metadata("/new", Follow::All).await.unwrap();
    assert_eq!((metadata.size, metadata.mode & 0o777), (1 << 20, 0o600));
    root.put(&client.fork(), &NewFile { name: b"small", ..NEW }, Bytes::from_static(b"small")).await.unwrap();
    let fetched = root.fetch(&client.fork(), b"small", 5).await.unwrap().unwrap();
    assert_eq!((&fetched.data[..], fetched.metadata.size), (&b"small"[..], 5));
    assert_eq!(names(&client, "/").await, [&b"new"[..], b"small"]);
    drop((root, fetched));
    settled(&client, 1).await;
}

#[tokio::test]
async fn a_name_that_is_taken_keeps_its_file_and_the_part_is_there_whole() {
    let client = connect(&ram(), Version::N1, Options::default()).await;
    write(&client, b"", b"new", b"old").await;
    let unput = client.put(b"/", &NEW, Bytes::from_static(b"content")).await.unwrap_err();
    assert!(matches!(unput, Unput::Taken), "{unput:?}");
    assert_eq!(client.read("/new", 10).await.unwrap(), "old");
    assert_eq!(client.read("/.part", 10).await.unwrap(), "content");
    settled(&client, 1).await;
}

#[tokio::test]
async fn a_file_gets_its_permissions_when_it_has_its_name_and_where_that_is_taken_never() {
    let client = connect(&ram(), Version::N1, Options::default()).await;
    let mode = async |path: &str| client.metadata(path, Follow::All).await.unwrap().mode & 0o777;
    let private = NewFile { perm: 0o600, mode: Some(0o644), ..NEW };
    client.put(b"/", &private, Bytes::from_static(b"content")).await.unwrap();
    assert_eq!((mode("/new").await, &*client.read("/new", 10).await.unwrap()), (0o644, &b"content"[..]));
    let unput = client.put(b"/", &private, Bytes::from_static(b"other")).await.unwrap_err();
    assert!(matches!(unput, Unput::Taken), "{unput:?}");
    assert_eq!(mode("/.part").await, 0o600);
    settled(&client, 1).await;
}

#[tokio::test]
async fn on_a_disk_that_is_full_in_the_middle_no_file_has_the_name() {
    let server = Server::builder().export("", Arc::new(RamFs::with_limit(300 << 10)), false).build();
    for sync in [true, false] {
        let options = Options { msize: 64 << 10, ..Options::default() };
        let client = connect(&server, Version::N1, options).await;
        let data = Bytes::from(vec![1; 1 << 20]);
        let unput = client.put(b"/", &NewFile { sync, ..NEW }, data).await.unwrap_err();
        let Unput::Part { step: Step::Write, error: Error::Refused(e) } = unput else { panic!("{unput:?}") };
        assert_eq!(e.errno, Errno::ENOSPC);
        assert_eq!(names(&client, "/").await, [b".part"]);
        client.unlink("/.part", false).await.unwrap();
        settled(&client, 1).await;
    }
}

#[tokio::test]
async fn where_nothing_can_be_made_nothing_is() {
    let server = ram();
    let client = connect(&server, Version::N1, Options::default()).await;
    write(&client, b"", b"file", b"").await;
    for (dir, new) in [
        (&b"/none"[..], NEW),
        (b"/file", NEW),
        (b"/none/deeper", NEW),
        (b"/", NewFile { part: b"file", ..NEW }),
        (b"/", NewFile { name: b"..", ..NEW }),
        (b"/", NewFile { part: b"a/b", ..NEW }),
    ] {
        let unput = client.put(dir, &new, Bytes::from_static(b"x")).await.unwrap_err();
        assert!(matches!(unput, Unput::Nothing(_)), "{dir:?}: {unput:?}");
    }
    assert_eq!(names(&client, "/").await, [b"file"]);
    settled(&client, 1).await;
    // More writes than a group has room for, and a dialect without guards.
    let small = connect(&server, Version::N1, Options { msize: 4096, ..Options::default() }).await;
    let old = connect(&server, Dialect::Linux, Options::default()).await;
    for client in [small, old] {
        let unput = client.put(b"/", &NEW, Bytes::from(vec![1; 1 << 20])).await.unwrap_err();
        assert!(matches!(unput, Unput::Nothing(_)), "{unput:?}");
        assert_eq!(names(&client, "/").await, [b"file"]);
    }
}

#[tokio::test]
async fn a_chain_that_has_less_than_its_guard_guards_leaves_the_next_ones_alone() {
    let client = connect(&ram(), Version::N1, Options::default()).await;
    let root = client.root().await.unwrap();
    for _ in 0..3 {
        let mut chain = client.chain();
        let guard = chain.all_or_stop(5).await.unwrap();
        let (spot, walked) = chain.walk(&root, &[b"none"]).await.unwrap();
        let made = chain.mkdir(&spot, b"not", 0o777).await.unwrap();
        guard.take().await.unwrap();
        assert_eq!(walked.take().await.unwrap_err().errno(), Errno::ENOENT);
        assert!(made.take().await.is_err());
        // What comes when all before it is answered is guarded all the same.
        let (_spot, walked) = chain.walk(&root, &[]).await.unwrap();
        assert_eq!(walked.take().await.unwrap_err().errno(), Errno::ECANCELED);
        drop(chain);
        let mut chain = client.chain();
        let (spot, walked) = chain.walk(&root, &[]).await.unwrap();
        let clunked = chain.clunk(spot).await.unwrap();
        walked.take().await.unwrap();
        clunked.take().await.unwrap();
    }
    drop(root);
    settled(&client, 1).await;
    assert_eq!(client.held(), (1, 0));
}

#[tokio::test]
async fn a_file_that_is_not_what_it_was_thought_to_be_is_not_fetched() {
    let client = connect(&ram(), Version::N1, Options::default()).await;
    let root = client.root().await.unwrap();
    root.mkdir(b"d", 0o777).await.unwrap();
    root.symlink(b"link", b"f").await.unwrap();
    write(&client, b"", b"f", b"content").await;
    for (name, size) in [(&b"d"[..], 0), (b"link", 7), (b"f", 5), (b"f", u64::MAX)] {
        assert!(root.fetch(&client.fork(), name, size).await.unwrap().is_none(), "{name:?} {size}");
    }
    // Shorter than it was thought to be: all of it came.
    assert_eq!(root.fetch(&client.fork(), b"f", 100).await.unwrap().unwrap().data, "content");
    assert!(root.fetch(&client.fork(), b"none", 0).await.unwrap_err().is_not_found());
    let file = client.walk("/f", Follow::All).await.unwrap().open(Mode::READ).await.unwrap();
    assert_eq!(file.read_at(0, 100).await.unwrap(), "content");
    drop((file, root));
    settled(&client, 1).await;
}

/// Our server behind a connection of which so many bytes pass each way, and which ends then.
fn cut_off(server: &Arc<Server>, requests: u64, replies: u64) -> Stream {
    let (ours, near) = memory::pair(BUFFER);
    let (far, theirs) = memory::pair(BUFFER);
    tokio::spawn(server.serve(theirs, Peer::Stdio));
    tokio::spawn(async move {
        let ((near_read, mut near_write), (far_read, mut far_write)) = (tokio::io::split(near), tokio::io::split(far));
        let (mut there, mut here) = (near_read.take(requests), far_read.take(replies));
        tokio::select! {
            _ = tokio::io::copy(&mut there, &mut far_write) => {}
            _ = tokio::io::copy(&mut here, &mut near_write) => {}
        }
    });
    ours
}

#[tokio::test]
async fn wherever_the_connection_ends_the_file_is_whole_or_not_there_and_a_part_is_left_only_where_that_is_said() {
    let whole = connect(&ram(), Version::N1, Options::default()).await;
    let begun = whole.stats();
    whole.put(b"/", &NEW, Bytes::from_static(b"content")).await.unwrap();
    let ended = whole.stats();
    let (asked, told) = (ended.bytes_sent - begun.bytes_sent, ended.bytes_received - begun.bytes_received);
    let (mut there, mut missing) = (0, 0);
    let requests = (1..asked).map(|bytes| (begun.bytes_sent + bytes, u64::MAX));
    let replies = (1..told).map(|bytes| (u64::MAX, begun.bytes_received + bytes));
    for (requests, replies) in requests.chain(replies) {
        let server = ram();
        let client = over(cut_off(&server, requests, replies), Version::N1, Options::default()).await;
        let unput = client.put(b"/", &NEW, Bytes::from_static(b"content")).await.unwrap_err();
        let at = format!("{requests} bytes there, {replies} back: {unput:?}");
        let other = connect(&server, Version::N1, Options::default()).await;
        let names = names(&other, "/").await;
        if names.contains(&b"new".to_vec()) {
            assert_eq!(other.read("/new", 100).await.unwrap(), "content", "{at}");
            there += 1;
        } else {
            missing += 1;
        }
        // Nobody may be told that nothing was done when something was.
        assert!(names.is_empty() || matches!(unput, Unput::Unknown(_)), "{at}: {names:?}");
    }
    assert!(there > 0 && missing > 0, "{there} and {missing}");
}
