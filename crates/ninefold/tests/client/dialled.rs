//! Connections for streams that are dialled together with the session's own, at a server that is remembered.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ninefold::client::{BeginRead, Client, Follow, Memory, Options};
use ninefold::proto::dialect::Version;
use ninefold::server::StreamLimits;
use ninefold::transport::Address;
use tokio::time::timeout;

use crate::ranges::client as another;
use crate::ranges::{LONG, SIZE, SOON, Scene, Way, asked, asked_of, begin_by, far_listener, gather};
use crate::road::{Part, Road};

/// A way that is long enough for any number of streams, in the memory's unit.
const FAR: u64 = 1000;

/// A memory in a directory, by which a server of ours is at `place`, and as far as that.
pub async fn remember(server: SocketAddr, place: SocketAddr, trip: u64) -> (tempfile::TempDir, Options) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("servers");
    let options = Options { memory: Some(Memory::in_file(&file)), streams_at_once: 8, ..Options::default() };
    Client::connect(&Address::tcp(server), options.clone()).await.unwrap();
    let learned = std::fs::read_to_string(&file).unwrap();
    let mut edited: serde_json::Value = serde_json::from_str(&learned).unwrap();
    edited["servers"][0]["place"] = format!("9p://{place}").into();
    edited["servers"][0]["trip"] = trip.into();
    std::fs::write(&file, edited.to_string()).unwrap();
    (dir, options)
}

pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, wait).await.unwrap_or_else(|_| panic!("{what} in time"));
}

#[tokio::test]
async fn as_many_are_dialled_as_streams_are_wanted_one_where_the_way_is_short_and_none_where_streams_are_not() {
    let wants = |streams_at_once: usize, streams: bool| Options { streams_at_once, streams, ..Options::default() };
    for (wanted, trip, connections) in [
        (wants(8, true), FAR, 9),
        (wants(3, true), FAR, 4),
        (wants(0, true), FAR, 1),
        (wants(8, false), FAR, 1),
        (wants(8, true), 0, 2),
    ] {
        let scene = Scene::of(10).await;
        let road = Road::to(scene.address).await;
        let (_dir, remembered) = remember(scene.address, road.address, trip).await;
        let options = Options { memory: remembered.memory, ..wanted };
        let look = async |client: &Client| client.metadata("/f", Follow::All).await;
        let address = Address::tcp(road.address);
        let first = Client::first(&address, options, look);
        let (client, looked) = timeout(SOON, first).await.expect("a session").unwrap();
        assert_eq!((looked.unwrap().size, client.stats().round_trips), (10, 1), "it began early");
        until("all of them", || road.made() >= connections).await;
        // A session that is made now is behind all that were dialled with the first.
        another(road.address, Version::N1).await;
        assert_eq!(road.made(), connections + 1);
        assert_eq!(asked(&client), 0);
    }
}

#[tokio::test]
async fn a_way_behind_a_relay_that_became_longer_is_remembered_so() {
    let scene = Scene::of(10).await;
    // 400 ms there and back, of which a connection takes nothing, even where the machine is busy.
    let way = Way { delay: Duration::from_millis(200), slow: None, one: None, most: u64::MAX };
    let place = scene.by(way).await;
    let (dir, options) = remember(scene.address, place, 100).await;
    let look = async |client: &Client| client.metadata("/f", Follow::All).await;
    for _ in 0..2 {
        let address = Address::tcp(place);
        let first = Client::first(&address, options.clone(), look);
        let (client, looked) = timeout(SOON, first).await.expect("a session").unwrap();
        assert_eq!((looked.unwrap().size, client.stats().round_trips), (10, 1), "it began early");
        let learned: serde_json::Value =
            serde_json::from_slice(&std::fs::read(dir.path().join("servers")).unwrap()).unwrap();
        assert!((400..4000).contains(&learned["servers"][0]["trip"].as_u64().unwrap()), "{learned}");
    }
}

#[tokio::test]
async fn tokens_are_said_on_them_before_the_server_is_asked_for_their_streams() {
    let scene = Scene::new().await;
    let (address, listener) = far_listener().await;
    let road = Road::by(address, async { listener.await.unwrap() }, scene.address);
    let (_dir, options) = remember(scene.address, address, FAR).await;
    road.shut(Part::Asks);
    let how = BeginRead { most: 1 << 20, streams: 8, ..BeginRead::default() };
    let begin = async |client: &Client| client.begin_read_as("/f", how).await;
    let address = Address::tcp(address);
    let said = async {
        until("eight tokens", || scene.server.stream_counts().early == 8).await;
        assert_eq!(scene.server.stream_counts().opened, 0);
        // The round trip that is seen must be long enough for eight, too.
        tokio::time::sleep(Duration::from_millis(50)).await;
        road.open(Part::Asks);
    };
    let (first, ()) = tokio::join!(timeout(SOON, Client::first(&address, options, begin)), said);
    let (client, begun) = first.expect("a session").unwrap();
    assert_eq!(asked(&client), 8);
    let mut ranges = begun.unwrap().file.ranges(0, SIZE as u64, 8);
    gather(&mut ranges, 0, SIZE).await.unwrap();
    assert!(ranges.is_watched() && ranges.is_settled());
    assert_eq!(road.made(), 9);
    let counts = scene.server.stream_counts();
    assert_eq!((counts.failed, counts.refused, counts.early), (0, 0, 0));
}

#[tokio::test]
async fn streams_of_a_read_that_is_given_up_before_it_is_known_to_have_begun_are_given_up() {
    // No token is over before the test is.
    let scene = Scene::with(SIZE, StreamLimits { token: 2 * SOON, ..StreamLimits::default() }).await;
    let (address, listener) = far_listener().await;
    let road = Road::by(address, async { listener.await.unwrap() }, scene.address);
    let (_dir, options) = remember(scene.address, address, FAR).await;
    let look = async |client: &Client| client.metadata("/f", Follow::All).await;
    let address = Address::tcp(address);
    let (client, _) = timeout(SOON, Client::first(&address, options, look)).await.expect("a session").unwrap();
    road.shut(Part::Tells);
    road.shut(Part::Data);
    let how = BeginRead { most: 1 << 20, streams: 8, ..BeginRead::default() };
    tokio::select! {
        begun = client.begin_read_as("/f", how) => panic!("{begun:?}"),
        () = until("its streams", || scene.server.stream_counts().opened == 8) => {}
    }
    road.open(Part::Tells);
    until("no stream", || scene.server.streams() == 0).await;
}

#[tokio::test]
async fn one_stream_alone_comes_with_the_open_and_the_rest_behind_it_by_its_connection() {
    // A short file, the one stream's share; a long one; one that is no longer than a message is worth.
    for (size, streams) in [(SIZE, 1), (LONG, 2), (100_000, 0)] {
        let scene = Scene::of(size).await;
        let address = Address::tcp(scene.counted().await);
        let (client, begun) = begin_by(1, &address, Options::default()).await;
        assert_eq!((begun.data.is_some(), asked_of(&scene)), (streams == 0, (streams.min(1), 0)), "{size}");
        assert_eq!(client.stats().round_trips, 2, "the version, and all else");
        if streams == 0 {
            continue;
        }
        let mut ranges = begun.file.ranges(0, size as u64, 1);
        gather(&mut ranges, 0, size).await.unwrap();
        assert!(ranges.is_settled() && !ranges.is_changed(), "{size}");
        assert_eq!(ranges.take_look().is_some(), streams == 1, "all of a short one was asked for");
        assert_eq!(asked(&client), streams, "{size}");
        // The session's own, and one.
        assert_eq!(scene.made.load(Ordering::Relaxed), 2, "{size}");
        assert_eq!(client.stats().messages.get("Tstreamend"), None);
    }
}

#[tokio::test]
async fn at_a_server_that_is_remembered_to_be_far_they_come_with_the_open_by_connections_that_were_dialled_with_the_sessions()
 {
    let scene = Scene::new().await;
    let (near, far) = (scene.address, scene.far_to_connect().await);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("servers");
    let options = Options { memory: Some(Memory::in_file(&file)), streams_at_once: 8, ..Options::default() };
    Client::connect(&format!("9p://{near}").parse().unwrap(), options.clone()).await.unwrap();
    // As if it had been that server, and as far as it is.
    let learned = std::fs::read_to_string(&file).unwrap();
    let mut edited: serde_json::Value = serde_json::from_str(&learned).unwrap();
    edited["servers"][0]["place"] = format!("9p://{far}").into();
    edited["servers"][0]["trip"] = 1000.into();
    std::fs::write(&file, edited.to_string()).unwrap();
    let made = scene.made.load(Ordering::Relaxed);
    let how = BeginRead { most: 1 << 20, streams: 8, ..BeginRead::default() };
    let begin = async |client: &Client| client.begin_read_as("/f", how).await;
    let address = format!("9p://{far}").parse().unwrap();
    let (client, begun) = timeout(SOON, Client::first(&address, options, begin)).await.expect("an open").unwrap();
    let begun = begun.unwrap();
    assert_eq!((asked(&client), client.stats().round_trips), (8, 1));
    let mut ranges = begun.file.ranges(0, SIZE as u64, 8);
    gather(&mut ranges, 0, SIZE).await.unwrap();
    assert!(ranges.is_settled());
    assert_eq!(scene.made.load(Ordering::Relaxed) - made, 9);
    let counts = scene.server.stream_counts();
    assert_eq!((counts.failed, counts.refused), (0, 0));
}
