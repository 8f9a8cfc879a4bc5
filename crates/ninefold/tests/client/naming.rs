//! Files that are made while it is looked whether their names are free, and that get them with the ends of the streams that wrote them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ninefold::client::{Client, Draft, Error, File, Stream, Stretch};
use ninefold::proto::dialect::Version;
use ninefold::proto::{Dialect, Errno};
use ninefold::server::StreamLimits;
use tokio::time::timeout;

use crate::fake::content;
use crate::ranges::{SOON, Scene, asked, client};
use crate::road::{Part, Road};
use crate::support::settled;

/// Of the file, and of each of its two parts.
const SIZE: usize = 600_000;
const PART: usize = SIZE / 2;

const HEAD: usize = 10_000;

fn parts() -> Vec<Stretch> {
    let part = |offset: u64| Stretch { offset, length: PART as u64, head: content(offset, HEAD) };
    [0, PART as u64].map(part).into()
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, wait).await.unwrap_or_else(|_| panic!("{what} in time"));
}

/// Gives both streams all of their bytes, or all but the last of the second.
async fn write(file: &File, is_whole: bool) -> Vec<Stream> {
    let mut streams = Vec::new();
    for offset in [0, PART] {
        let mut stream = file.stream_write_late(offset as u64, PART as u64).await.unwrap();
        let sent = stream.moved();
        let mut left = content(offset as u64 + sent, PART - sent as usize);
        if !is_whole && offset > 0 {
            left.truncate(left.len() - 1);
        }
        stream.write(&left).await.unwrap();
        streams.push(stream);
    }
    streams
}

async fn is_quiet(scene: &Scene, client: &Client) {
    settled(client, 1).await;
    until("no stream", || scene.server.streams() == 0).await;
}

#[tokio::test]
async fn a_file_is_made_with_the_look_at_its_name_and_gets_it_with_the_ends_of_its_streams() {
    let scene = Scene::of(1).await;
    let client = client(scene.address, Version::N1).await;
    std::fs::create_dir(scene.dir.path().join("d")).unwrap();
    let before = client.stats().round_trips;
    let draft = Draft { part: b"part", perm: 0o640, parts: &parts() };
    let (located, file) = client.locate_or_make(b"/d/new", &draft).await.unwrap();
    let mut file = file.expect("a file");
    assert!(located.found.is_none());
    assert_eq!((client.stats().round_trips - before, asked(&client), file.granted()), (1, 2, 2));
    let streams = write(&file, true).await;
    assert_eq!(client.stats().messages.get("Tstreamend"), None, "nobody asked before");
    file.keep();
    file.end_and_rename(streams, &located.dir, b"part", b"new").await.unwrap().unwrap();
    assert_eq!((client.stats().round_trips - before, asked(&client)), (2, 2));
    assert!(std::fs::read(scene.dir.path().join("d/new")).unwrap() == content(0, SIZE));
    assert_eq!(names(&scene.dir.path().join("d")), BTreeSet::from(["new".to_owned()]));
    drop(located);
    is_quiet(&scene, &client).await;
    assert_eq!(scene.server.stream_counts().completed, 2);
}

#[tokio::test]
async fn where_something_has_the_name_or_the_way_is_no_directorys_nothing_is_made() {
    for (path, found) in [
        ("/f", Some(false)),
        ("/d", Some(true)),
        ("/link", Some(false)),
        // Nothing is there, and it is found step by step.
        ("/way/new", None),
        ("/dangling", None),
    ] {
        let scene = Scene::of(1000).await;
        let dir = scene.dir.path();
        std::fs::create_dir(dir.join("d")).unwrap();
        for (to, name) in [("f", "link"), ("d", "way"), ("none", "dangling")] {
            std::os::unix::fs::symlink(to, dir.join(name)).unwrap();
        }
        let before = names(dir);
        let client = client(scene.address, Version::N1).await;
        let draft = Draft { part: b"part", perm: 0o640, parts: &parts() };
        let (located, file) = client.locate_or_make(path.as_bytes(), &draft).await.unwrap();
        assert!(file.is_none(), "{path}");
        assert_eq!(located.found.as_ref().map(|node| node.qid().is_dir()), found, "{path}");
        drop(located);
        is_quiet(&scene, &client).await;
        assert_eq!((names(dir), names(&dir.join("d"))), (before, BTreeSet::new()), "{path}");
        assert!(std::fs::read(dir.join("f")).unwrap() == content(0, 1000));
        assert_eq!(scene.server.stream_counts().opened, 0, "{path}");
        until("no token", || scene.server.stream_counts().early == 0).await;
        assert_eq!(scene.server.stream_counts().refused, 0, "{path}");
    }
    for (path, errno) in [("/f/new", Errno::ENOTDIR), ("/none/new", Errno::ENOENT)] {
        let scene = Scene::of(1000).await;
        let client = client(scene.address, Version::N1).await;
        let draft = Draft { part: b"part", perm: 0o640, parts: &parts() };
        let error = client.locate_or_make(path.as_bytes(), &draft).await.unwrap_err();
        assert_eq!(error.errno(), errno, "{path}: {error}");
        is_quiet(&scene, &client).await;
        assert_eq!(names(scene.dir.path()), BTreeSet::from(["f".to_owned()]));
    }
}

#[tokio::test]
async fn where_the_part_cannot_be_made_or_there_are_no_groups_it_is_looked_at_all_the_same() {
    for version in [Version::N1, Dialect::Linux.into(), Dialect::Unix.into(), Dialect::Plan9.into()] {
        let scene = Scene::of(1000).await;
        let client = client(scene.address, version).await;
        let draft = Draft { part: b"f", perm: 0o640, parts: &parts() };
        let (located, file) = client.locate_or_make(b"/new", &draft).await.unwrap();
        assert!(located.found.is_none() && file.is_none(), "{version:?}");
        drop(located);
        is_quiet(&scene, &client).await;
        assert!(std::fs::read(scene.dir.path().join("f")).unwrap() == content(0, 1000), "{version:?}");
    }
}

#[tokio::test]
async fn a_making_that_is_given_up_leaves_no_fid_and_no_stream() {
    let scene = Scene::with(1, StreamLimits { token: 2 * SOON, ..StreamLimits::default() }).await;
    let road = Road::to(scene.address).await;
    let client = client(road.address, Version::N1).await;
    road.shut(Part::Tells);
    let parts = parts();
    let draft = Draft { part: b"part", perm: 0o640, parts: &parts };
    tokio::select! {
        made = client.locate_or_make(b"/new", &draft) => panic!("{made:?}"),
        () = until("its streams", || scene.server.stream_counts().opened == 2) => {}
    }
    road.open(Part::Tells);
    is_quiet(&scene, &client).await;
}

#[tokio::test]
async fn a_stream_that_fails_keeps_the_name_from_the_file_whatever_the_server_was_asked_before_it_failed() {
    // Nothing moves for so long.
    let idle = Duration::from_millis(500);
    let scene = Scene::with(1, StreamLimits { idle, ..StreamLimits::default() }).await;
    let road = Road::to(scene.address).await;
    let client = client(road.address, Version::N1).await;
    std::fs::write(scene.dir.path().join("new"), "old").unwrap();
    let root = client.root().await.unwrap();
    let mut file = root.make_file(&client, b"part", 0o640, &parts()).await.unwrap();
    // All of it fits into what is before the server.
    road.shut(Part::Data);
    let streams = write(&file, true).await;
    file.keep();
    let ended = timeout(SOON, file.end_and_rename(streams, &root, b"part", b"new")).await.expect("an end");
    let error = ended.expect_err("no end of the streams");
    assert_eq!(error.errno(), Errno::ETIMEDOUT, "{error}");
    road.open(Part::Data);
    drop(root);
    is_quiet(&scene, &client).await;
    assert_eq!(std::fs::read(scene.dir.path().join("new")).unwrap(), b"old");
    assert!(scene.dir.path().join("part").exists());
}

#[tokio::test]
async fn a_file_of_which_a_stream_was_given_less_than_its_bytes_does_not_get_the_name() {
    for version in [Version::N1, Dialect::Linux.into()] {
        let scene = Scene::of(1).await;
        let client = client(scene.address, version).await;
        let root = client.root().await.unwrap();
        let mut file = root.make_file(&client, b"part", 0o640, &parts()).await.unwrap();
        let streams = write(&file, false).await;
        file.keep();
        let error = file.end_and_rename(streams, &root, b"part", b"new").await.expect_err("a short one");
        assert_eq!(error.errno(), Errno::EPIPE, "{version:?}: {error}");
        drop(root);
        is_quiet(&scene, &client).await;
        assert_eq!(names(scene.dir.path()), BTreeSet::from(["f".to_owned(), "part".to_owned()]), "{version:?}");
    }
}

#[tokio::test]
async fn of_a_late_stream_that_failed_the_reason_is_told_to_who_writes() {
    let scene = Scene::with(1, StreamLimits { idle: Duration::from_millis(300), ..StreamLimits::default() }).await;
    let client = client(scene.address, Version::N1).await;
    let root = client.root().await.unwrap();
    let file = root.make_file(&client, b"part", 0o640, &[]).await.unwrap();
    let mut stream = file.stream_write_late(0, SIZE as u64).await.unwrap();
    stream.write(b"begun").await.unwrap();
    until("its end", || scene.server.streams() == 0).await;
    let told = async {
        loop {
            if let Err(e) = stream.write(b"more").await {
                return e;
            }
        }
    };
    let error: Error = timeout(SOON, told).await.expect("an error");
    assert_eq!(error.errno(), Errno::ETIMEDOUT, "{error}");
}
