//! Directories that are come to and listed, or made with all that they lie in, at once where the server has the words for it.

use std::time::Duration;

use ninefold::client::{Client, FileType, Follow, Mode, Options, ReadDir, Sight, Visited};
use ninefold::proto::dialect::Version;
use ninefold::proto::{Dialect, Errno};
use ninefold::transport::Peer;
use tokio::time::Instant;

use crate::support::{connect, link, over, ram, settled};

const DELAY: Duration = Duration::from_millis(50);

const VERSIONS: [Version; 5] = [
    Version { dialect: Dialect::Plan9, groups: false, streams: false },
    Version { dialect: Dialect::Plan9, groups: true, streams: false },
    Version { dialect: Dialect::Unix, groups: false, streams: false },
    Version { dialect: Dialect::Linux, groups: false, streams: false },
    Version::N1,
];

const SIGHT: Sight = Sight { attributes: true, alone: true };
const NAMES: Sight = Sight { attributes: false, alone: false };

/// A client over a link, in .n1.
async fn far(options: Options) -> Client {
    let (ours, theirs) = link(DELAY);
    tokio::spawn(ram().serve(theirs, Peer::Stdio));
    over(ours, Version::N1, options).await
}

async fn names(read: Result<ReadDir, ninefold::client::Error>) -> Vec<String> {
    let all = read.unwrap().all().await.unwrap();
    all.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

async fn put(client: &Client, path: &str) {
    let (dir, name) = client.walk_parent(path).await.unwrap();
    dir.create(&name, Mode::WRITE, 0o644).await.unwrap().close().await.unwrap();
}

/// Round trips, and what they took, of the operations since.
async fn counted<T>(client: &Client, op: impl Future<Output = T>) -> (u32, T) {
    let (trips, began) = (client.stats().round_trips, Instant::now());
    let done = op.await;
    let trips = client.stats().round_trips - trips;
    assert_eq!(DELAY * 2 * trips, began.elapsed(), "{trips} round trips");
    (trips, done)
}

#[tokio::test(start_paused = true)]
async fn a_path_is_come_to_and_listed_alike_in_every_dialect_whatever_a_message_holds() {
    for version in VERSIONS {
        for msize in [4096, 1 << 20] {
            let client = connect(&ram(), version, Options { msize, ..Options::default() }).await;
            let root = client.root().await.unwrap();
            root.mkdir(b"d", 0o755).await.unwrap();
            let files: Vec<String> = (0..100).map(|n| format!("f{n}")).collect();
            for file in &files {
                put(&client, &format!("d/{file}")).await;
            }
            for sight in [SIGHT, NAMES] {
                let Visited { node, entries, .. } = client.visit("/d", Follow::All, sight).await.unwrap();
                assert_eq!(names(entries).await, files, "{version} {msize} {sight:?}");
                // What is in it is reached from there.
                assert_eq!(node.walk(&[b"f7"]).await.unwrap().metadata().await.unwrap().kind, FileType::File);
                let from = root.visit_as(&client.fork(), b"d", sight).await.unwrap();
                assert_eq!(names(from.entries).await, files);
                let again = root.walk(&[b"d"]).await.unwrap().list_as(&client, sight).await.unwrap();
                assert_eq!(names(again.entries).await, files);
                let all = client.visit("/", Follow::All, sight).await.unwrap();
                assert_eq!(names(all.entries).await, ["d"]);
                let file = client.visit("/d/f7", Follow::All, sight).await.unwrap();
                assert_eq!(file.entries.unwrap_err().errno(), Errno::ENOTDIR);
                let named = client.visit_name("/d", sight).await.unwrap();
                assert_eq!((named.name.as_slice(), named.dir.qid()), (&b"d"[..], root.qid()));
                assert_eq!(names(named.visited.unwrap().entries).await, files);
                let none = client.visit_name("/d/none", sight).await.unwrap();
                assert!(none.visited.unwrap_err().is_not_found());
                assert_eq!(none.dir.qid().path, node.qid().path);
                assert_eq!(client.visit_name("/", sight).await.unwrap_err().errno(), Errno::EBUSY);
                assert!(client.visit("/none/d", Follow::All, sight).await.unwrap_err().is_not_found());
                let looked = root.look_as(&client, Some(b"d")).await.unwrap();
                assert_eq!(looked.metadata.kind, FileType::Dir);
            }
            drop(root);
            settled(&client, 1).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_fits_a_message_takes_one_round_trip_and_a_larger_one_one_for_each() {
    let client = far(Options::default()).await;
    client.root().await.unwrap().mkdir(b"d", 0o755).await.unwrap();
    for n in 0..30 {
        put(&client, &format!("d/f{n}")).await;
    }
    let listed = async |client: &Client| names(client.visit("/d", Follow::All, SIGHT).await.unwrap().entries).await;
    let (trips, all) = counted(&client, listed(&client)).await;
    assert_eq!((trips, all.len()), (1, 30));
    // An entry with a name of three bytes takes 167.
    let narrow = far(Options { msize: 4096, ..Options::default() }).await;
    narrow.root().await.unwrap().mkdir(b"d", 0o755).await.unwrap();
    for n in 10..60 {
        put(&narrow, &format!("d/f{n}")).await;
    }
    let (trips, all) = counted(&narrow, listed(&narrow)).await;
    assert_eq!((trips, all.len()), (3, 50));
}

#[tokio::test(start_paused = true)]
async fn links_on_the_way_are_gone_through_step_by_step_and_at_the_end_as_asked() {
    let client = far(Options::default()).await;
    let root = client.root().await.unwrap();
    root.mkdir(b"d", 0o755).await.unwrap();
    put(&client, "d/f").await;
    root.symlink(b"l", b"d").await.unwrap();
    let through = client.visit("/l", Follow::All, SIGHT).await.unwrap();
    assert_eq!(names(through.entries).await, ["f"]);
    let (trips, itself) = counted(&client, client.visit("/l", Follow::NotLast, SIGHT)).await;
    let looked = itself.unwrap().looked.unwrap();
    assert_eq!((trips, looked.metadata.kind), (1, FileType::Symlink));
    assert_eq!(looked.target.unwrap().unwrap(), b"d");
    let named = client.visit_name("/l", SIGHT).await.unwrap();
    assert_eq!(named.visited.unwrap().entries.unwrap_err().errno(), Errno::ENOTDIR);
    let below = client.visit_name("/l/f", SIGHT).await.unwrap();
    assert_eq!(below.visited.unwrap().node.metadata().await.unwrap().kind, FileType::File);
    // From a directory no link is gone through.
    let beside = root.visit_as(&client, b"l", SIGHT).await.unwrap();
    assert_eq!(beside.entries.unwrap_err().errno(), Errno::ENOTDIR);
}

#[tokio::test(start_paused = true)]
async fn directories_inside_one_another_are_made_in_one_round_trip_for_each_30_levels() {
    let client = far(Options::default()).await;
    let path = |levels: usize| (0..levels).map(|n| format!("/{n}")).collect::<String>();
    for (levels, expected) in [(1, 1), (8, 1), (30, 1), (31, 2), (61, 3)] {
        let (trips, made) = counted(&client, client.mkdir_all(path(levels), 0o755, 0o700)).await;
        let made = made.unwrap().expect("it is made");
        assert_eq!((trips, made.made), (expected, true), "{levels} levels");
        assert_eq!(made.metadata.unwrap().mode, 0o700);
        assert!(made.node.qid().is_dir());
        let (trips, there) = counted(&client, client.mkdir_all(path(levels), 0o755, 0o711)).await;
        let there = there.unwrap().expect("it is there");
        assert_eq!((trips, there.made, there.metadata.unwrap().mode), (expected, false, 0o700));
    }
    // Those between are as they were made first.
    assert_eq!(client.metadata(path(20), Follow::All).await.unwrap().mode, 0o755);
    settled(&client, 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_in_the_way_of_directories_is_left_to_who_goes_step_by_step() {
    for version in VERSIONS {
        let client = connect(&ram(), version, Options::default()).await;
        put(&client, "f").await;
        assert!(client.mkdir_all("/", 0o755, 0o755).await.unwrap().is_none());
        assert!(client.mkdir_all("/f", 0o755, 0o755).await.unwrap().is_none());
        assert!(client.mkdir_all("/f/d/e", 0o755, 0o755).await.unwrap().is_none());
        let made = client.mkdir_all("/d/e", 0o755, 0o755).await.unwrap();
        assert_eq!(made.is_some(), version.is_n1());
        assert_eq!(client.walk("/d/e", Follow::All).await.is_ok(), version.is_n1());
        if version.is_n1() {
            let root = client.root().await.unwrap();
            root.symlink(b"l", b"d").await.unwrap();
            assert!(client.mkdir_all("/l", 0o755, 0o755).await.unwrap().is_none());
            assert!(client.mkdir_all("/l/x/y", 0o755, 0o755).await.unwrap().is_none());
            assert!(client.walk("/d/x", Follow::All).await.unwrap_err().is_not_found(), "made behind a link");
        }
        drop(made);
        settled(&client, 1).await;
    }
}
