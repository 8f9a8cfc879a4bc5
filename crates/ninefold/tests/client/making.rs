//! New files that are made together with the streams by which they will be written.

use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Client, File, Mode, Stretch};
use ninefold::proto::dialect::Version;
use ninefold::proto::{Dialect, Errno};
use ninefold::server::StreamLimits;
use tokio::time::timeout;

use crate::fake::content;
use crate::ranges::{SOON, Scene, asked, client};
use crate::road::{Part, Road};
use crate::support::settled;

/// Of the file that is made.
const SIZE: u64 = 8 * PART - 1;

/// Of each of its parts, but the last.
const PART: u64 = 300_000;

/// Without their first bytes.
fn parts() -> Vec<Stretch> {
    let part = |offset| Stretch { offset, length: PART.min(SIZE - offset), head: Bytes::new() };
    (0..8).map(|number| part(number * PART)).collect()
}

/// With so many of them.
fn parts_with_heads(bytes: usize) -> Vec<Stretch> {
    parts().into_iter().map(|part| Stretch { head: content(part.offset, bytes), ..part }).collect()
}

/// Writes it, and how many of its parts went by streams.
async fn write(file: &File) -> usize {
    let mut streams = 0;
    for Stretch { offset, length, .. } in parts() {
        let mut stream = timeout(SOON, file.stream_write(offset, Some(length))).await.expect("a stream").unwrap();
        let sent = stream.moved();
        stream.write(&content(offset + sent, (length - sent) as usize)).await.unwrap();
        streams += usize::from(!stream.is_in_band());
        assert_eq!(timeout(SOON, stream.finish()).await.expect("an end").unwrap(), length);
    }
    streams
}

fn is_whole(scene: &Scene) -> bool {
    std::fs::read(scene.dir.path().join("new")).unwrap() == content(0, SIZE as usize)
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, wait).await.unwrap_or_else(|_| panic!("{what} in time"));
}

/// Waits until the server has no stream and the client no fid but its root's. That no stream waited for its time to be over is part of it.
async fn is_quiet(scene: &Scene, client: &Client) {
    settled(client, 1).await;
    until("no stream", || scene.server.streams() == 0).await;
    assert_eq!(scene.server.stream_counts().timed_out, 0);
}

#[tokio::test]
async fn a_file_is_made_with_its_streams_in_one_round_trip_and_written_by_them() {
    let scene = Scene::of(1).await;
    let client = client(scene.address, Version::N1).await;
    let root = client.root().await.unwrap();
    let before = client.stats().round_trips;
    let file = root.make_file(&client, b"new", 0o640, &parts()).await.unwrap();
    assert_eq!((client.stats().round_trips - before, asked(&client), file.granted()), (1, 8, 8));
    assert_eq!(write(&file).await, 8);
    assert_eq!((asked(&client), file.granted(), scene.server.stream_counts().completed), (8, 0, 8));
    file.close().await.unwrap();
    assert!(is_whole(&scene));
    drop(root);
    is_quiet(&scene, &client).await;
}

#[tokio::test]
async fn the_tokens_of_its_streams_are_said_before_the_server_is_asked_for_them() {
    let scene = Scene::of(1).await;
    let road = Road::to(scene.address).await;
    let client = client(road.address, Version::N1).await;
    let root = client.root().await.unwrap();
    road.shut(Part::Asks);
    let said = async {
        until("eight tokens", || scene.server.stream_counts().early == 8).await;
        road.open(Part::Asks);
    };
    let parts = parts();
    let (made, ()) = tokio::join!(timeout(SOON, root.make_file(&client, b"new", 0o640, &parts)), said);
    let file = made.expect("a file").unwrap();
    assert_eq!(write(&file).await, 8);
    file.close().await.unwrap();
    assert!(is_whole(&scene));
    let counts = scene.server.stream_counts();
    assert_eq!((counts.opened, counts.completed, counts.failed, counts.refused), (8, 8, 0, 0));
}

#[tokio::test]
async fn the_first_bytes_of_its_streams_leave_before_the_server_is_asked_for_them() {
    const HEAD: usize = 20_000;
    let scene = Scene::of(1).await;
    let road = Road::to(scene.address).await;
    let client = client(road.address, Version::N1).await;
    let root = client.root().await.unwrap();
    road.shut(Part::Asks);
    let said = async {
        until("eight tokens", || scene.server.stream_counts().early == 8).await;
        road.open(Part::Asks);
    };
    let parts = parts_with_heads(HEAD);
    let (made, ()) = tokio::join!(timeout(SOON, root.make_file(&client, b"new", 0o640, &parts)), said);
    let file = made.expect("a file").unwrap();
    // Nobody has come for the streams yet.
    let is_there = |part: &Stretch| {
        let there = std::fs::read(scene.dir.path().join("new")).unwrap();
        let at = part.offset as usize;
        there.get(at..at + HEAD).is_some_and(|bytes| bytes == part.head)
    };
    until("the first bytes", || parts.iter().all(is_there)).await;
    for part in &parts {
        let mut stream = timeout(SOON, file.stream_write(part.offset, Some(part.length))).await.unwrap().unwrap();
        assert_eq!(stream.moved(), HEAD as u64);
        let left = content(part.offset + HEAD as u64, part.length as usize - HEAD);
        stream.write(&left).await.unwrap();
        assert!(stream.write(b"!").await.is_err(), "they count against its length");
        assert_eq!(timeout(SOON, stream.finish()).await.unwrap().unwrap(), part.length);
    }
    file.close().await.unwrap();
    assert!(is_whole(&scene));
    let counts = scene.server.stream_counts();
    assert_eq!((counts.opened, counts.completed, counts.failed, counts.refused), (8, 8, 0, 0));
}

#[tokio::test]
async fn a_stream_all_of_whose_bytes_left_with_the_question_for_it_is_done() {
    let scene = Scene::of(1).await;
    let client = client(scene.address, Version::N1).await;
    let root = client.root().await.unwrap();
    let part = Stretch { offset: 0, length: 20_000, head: content(0, 20_000) };
    let file = root.make_file(&client, b"new", 0o640, &[part]).await.unwrap();
    // The server has come to its end meanwhile.
    until("its end", || scene.server.stream_counts().completed == 1).await;
    let stream = timeout(SOON, file.stream_write(0, Some(20_000))).await.unwrap().unwrap();
    assert_eq!((stream.moved(), stream.is_in_band()), (20_000, false));
    assert_eq!(timeout(SOON, stream.finish()).await.unwrap().unwrap(), 20_000);
    assert_eq!(asked(&client), 1, "no other was asked for");
    file.close().await.unwrap();
    assert!(std::fs::read(scene.dir.path().join("new")).unwrap() == content(0, 20_000));
}

#[tokio::test]
async fn first_bytes_that_did_not_arrive_are_the_streams_to_write() {
    for open in [0, 4] {
        let scene = Scene::with(1, StreamLimits { open, ..StreamLimits::default() }).await;
        let client = client(scene.address, Version::N1).await;
        let root = client.root().await.unwrap();
        let file = root.make_file(&client, b"new", 0o640, &parts_with_heads(10_000)).await.unwrap();
        write(&file).await;
        file.close().await.unwrap();
        assert!(is_whole(&scene), "by {open}");
    }
}

#[tokio::test]
async fn where_something_has_the_name_nothing_is_made_and_no_stream_is_had() {
    let with_heads = parts_with_heads(20_000);
    for (version, parts) in [
        (Version::N1, parts()),
        (Version::N1, with_heads.clone()),
        (Version::N1, Vec::new()),
        (Dialect::Linux.into(), parts()),
        (Dialect::Linux.into(), with_heads),
    ] {
        let scene = Scene::of(1000).await;
        let client = client(scene.address, version).await;
        let root = client.root().await.unwrap();
        let error = root.make_file(&client, b"f", 0o640, &parts).await.unwrap_err();
        assert_eq!(error.errno(), Errno::EEXIST, "{version:?}: {error}");
        drop(root);
        is_quiet(&scene, &client).await;
        until("no token", || scene.server.stream_counts().early == 0).await;
        let counts = scene.server.stream_counts();
        assert_eq!((counts.opened, counts.refused, counts.silent), (0, 0, 0));
        assert!(std::fs::read(scene.dir.path().join("f")).unwrap() == content(0, 1000));
    }
}

#[tokio::test]
async fn a_file_whose_streams_are_refused_is_made_and_its_bytes_go_all_the_same() {
    for open in [0, 4] {
        let scene = Scene::with(1, StreamLimits { open, ..StreamLimits::default() }).await;
        let client = client(scene.address, Version::N1).await;
        let root = client.root().await.unwrap();
        let file = root.make_file(&client, b"new", 0o640, &parts()).await.unwrap();
        assert_eq!(asked(&client), 8, "they were asked for");
        assert!(file.granted() <= open && (file.granted() > 0) == (open > 0), "{} of {open}", file.granted());
        let streams = write(&file).await;
        assert!((streams > 0) == (open > 0), "{streams} of {open}");
        file.close().await.unwrap();
        assert!(is_whole(&scene));
        drop(root);
        is_quiet(&scene, &client).await;
    }
}

#[tokio::test]
async fn without_streams_a_file_is_made_and_written_in_messages() {
    let scene = Scene::of(1).await;
    let client = client(scene.address, Dialect::Linux).await;
    let root = client.root().await.unwrap();
    let file = root.make_file(&client, b"new", 0o640, &parts()).await.unwrap();
    assert_eq!((file.granted(), file.mode() == Mode::WRITE, write(&file).await), (0, true, 0));
    file.close().await.unwrap();
    assert!(is_whole(&scene));
    drop(root);
    is_quiet(&scene, &client).await;
}

#[tokio::test]
async fn streams_that_nobody_writes_by_are_given_up_with_the_file_whether_or_not_their_tokens_came() {
    for (is_closed, is_said) in [(false, true), (true, true), (false, false), (true, false)] {
        let scene = Scene::with(1, StreamLimits { token: 2 * SOON, ..StreamLimits::default() }).await;
        let road = Road::to(scene.address).await;
        if !is_said {
            road.shut(Part::Data);
        }
        let client = client(road.address, Version::N1).await;
        let root = client.root().await.unwrap();
        let file = root.make_file(&client, b"new", 0o640, &parts()).await.unwrap();
        assert_eq!((file.granted(), scene.server.streams()), (8, 8));
        assert_eq!(file.write_at(0, Bytes::from_static(b"in a message")).await.unwrap(), 12);
        if is_closed {
            file.close().await.unwrap();
        } else {
            drop(file);
        }
        drop(root);
        is_quiet(&scene, &client).await;
        assert_eq!(std::fs::read(scene.dir.path().join("new")).unwrap(), b"in a message");
    }
}

/// How far a making has come when it is given up.
#[derive(Clone, Copy, PartialEq, Debug)]
enum When {
    /// The tokens are at the server, and no request is.
    Said,
    /// The server has done all of it, and the client knows nothing.
    Done,
    /// The same, but no token came to the server.
    DoneUnsaid,
}

#[tokio::test]
async fn a_making_that_is_given_up_leaves_no_stream_and_no_fid() {
    for when in [When::Said, When::Done, When::DoneUnsaid] {
        // No token is over before the test is.
        let scene = Scene::with(1, StreamLimits { token: 2 * SOON, ..StreamLimits::default() }).await;
        let road = Road::to(scene.address).await;
        let client = client(road.address, Version::N1).await;
        let root = client.root().await.unwrap();
        road.shut(Part::Asks);
        road.shut(Part::Tells);
        if when == When::DoneUnsaid {
            road.shut(Part::Data);
        }
        let (server, path, parts) = (&scene.server, scene.dir.path().join("new"), parts());
        let gone = async {
            if when != When::DoneUnsaid {
                until("the tokens", || server.stream_counts().early == 8).await;
            }
            if when != When::Said {
                road.open(Part::Asks);
                until("a file and its streams", || path.exists() && server.stream_counts().opened == 8).await;
            }
        };
        tokio::select! {
            made = root.make_file(&client, b"new", 0o640, &parts) => panic!("{when:?}: {made:?}"),
            () = gone => {}
        }
        // The data connections go with it.
        until("no token", || server.stream_counts().early == 0).await;
        road.open(Part::Asks);
        road.open(Part::Tells);
        drop(root);
        settled(&client, 1).await;
        until("no stream", || server.streams() == 0).await;
    }
}

#[tokio::test]
async fn without_streams_too_a_making_that_is_given_up_leaves_no_fid() {
    let scene = Scene::of(1).await;
    let road = Road::to(scene.address).await;
    let client = client(road.address, Dialect::Linux).await;
    let root = client.root().await.unwrap();
    road.shut(Part::Tells);
    let parts = parts();
    tokio::select! {
        made = root.make_file(&client, b"new", 0o640, &parts) => panic!("{made:?}"),
        () = until("a request", || client.held().1 > 0) => {}
    }
    road.open(Part::Tells);
    drop(root);
    settled(&client, 1).await;
}
