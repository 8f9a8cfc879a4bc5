//! How many streams there may be, and that many are served alike.

use std::net::Ipv4Addr;
use std::time::Duration;

use ninefold::server::{Limits, StreamLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::bed::{Bed, Session, all, noise, soon};

const EMFILE: u32 = 24;

#[test]
fn the_limits_in_the_document_are_those_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    let document = std::fs::read_to_string(path).unwrap().replace('\n', " ");
    let StreamLimits { open, silent, token, port, idle, least, within, .. } = StreamLimits::default();
    let thousands = |n: usize| format!("{},{:03}", n / 1000, n % 1000);
    for quoted in [
        format!("A server has {} streams", thousands(open)),
        format!("{} connections that have not said what they are", thousands(silent)),
        format!("A token is good once, for {} s", token.as_secs()),
        format!("from the address of the session's peer, within {} s", port.as_secs()),
        format!("on which nothing moves for {} s", idle.as_secs()),
        format!("for {} s since the last {},{:03} bytes", within.as_secs(), least / 1000, least % 1000),
        format!("{} if it is alone (EMFILE)", thousands(open / 2)),
    ] {
        assert!(document.contains(&quoted), "docs/protocol.md lacks `{quoted}`");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_has_so_many_streams_and_those_that_ended_make_way() {
    let bed = Bed::with(Limits { streams: 3, ..Limits::default() }, StreamLimits::default());
    bed.file("f", 100);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let mut opened = Vec::new();
    for _ in 0..3 {
        opened.push(s.stream(1, true, 0, 0).await.unwrap());
    }
    assert_eq!(s.stream(1, true, 0, 0).await.err(), Some(EMFILE));
    all(&mut bed.data(&opened[1].token).await).await.unwrap();
    bed.counts("one that ended", |counts| counts.completed == 1).await;
    soon("its place", async {
        while s.stream(1, true, 0, 0).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(s.end(opened[1].id, 0).await, Err(9), "nobody asked after it in time");
    assert_eq!(s.end(opened[0].id, 1).await, Err(125));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_has_so_many_streams_and_an_address_no_more_of_them_than_are_free() {
    let bed = Bed::with(Limits::default(), StreamLimits { open: 4, ..StreamLimits::default() });
    bed.file("f", 100);
    let (mut s, mut other) = (bed.session("9P2000.L.n1", "host").await, bed.session("9P2000.L.n1", "host").await);
    let elsewhere = bed.bare_from(Ipv4Addr::new(127, 0, 0, 2)).await;
    let mut elsewhere = Session::open(elsewhere, "9P2000.L.n1", "host").await;
    for s in [&mut s, &mut other, &mut elsewhere] {
        s.open_file(1, "f", 0).await;
    }
    let first = s.stream(1, true, 0, 0).await.unwrap();
    other.stream(1, true, 0, 0).await.unwrap();
    // Whichever connection of the address asks.
    assert_eq!(other.stream(1, true, 0, 0).await.err(), Some(EMFILE));
    assert_eq!(s.stream(1, true, 0, 0).await.err(), Some(EMFILE));
    assert!(elsewhere.stream(1, true, 0, 0).await.is_ok());
    assert_eq!(elsewhere.stream(1, true, 0, 0).await.err(), Some(EMFILE));
    assert_eq!(s.end(first.id, 1).await, Err(125));
    assert!(other.stream(1, true, 0, 0).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_moves_a_byte_now_and_then_loses_its_place_once_places_are_short() {
    let within = Duration::from_millis(300);
    let streams = StreamLimits { open: 4, least: 64 << 10, within, ..StreamLimits::default() };
    for aname in ["host", "mem"] {
        let bed = Bed::with(Limits::default(), streams);
        let mut s = bed.session("9P2000.L.n1", aname).await;
        s.create(1, "f").await;
        // It is alone, and may be as slow as it likes.
        let slow = s.stream(1, false, 0, 0).await.unwrap();
        let mut data = bed.data(&slow.token).await;
        for _ in 0..3 {
            data.write_all(b"x").await.unwrap();
            tokio::time::sleep(within).await;
        }
        assert_eq!(bed.server.streams(), 1, "{aname}");
        s.create(2, "g").await;
        let _other = s.stream(2, false, 0, 0).await.unwrap();
        let give = async {
            let mut ended = std::pin::pin!(s.end(slow.id, 0));
            loop {
                let pause = tokio::time::sleep(within / 30);
                tokio::select! {
                    biased;
                    ended = &mut ended => break ended,
                    () = pause => drop(data.write_all(b"x").await),
                }
            }
        };
        assert_eq!(soon("the slow one", give).await, Err(110), "{aname}: ETIMEDOUT");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_files_are_written_at_a_time_through_few_pipes() {
    const STREAMS: usize = 300;
    const BYTES: usize = 200_001;
    let bed = Bed::with(Limits { streams: STREAMS, ..Limits::default() }, StreamLimits::default());
    let bytes = noise(BYTES);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    let mut writers = Vec::new();
    for n in 0..STREAMS {
        s.create(1, &format!("f{n}")).await;
        let opened = s.stream(1, false, 0, BYTES as u64).await.unwrap();
        assert_eq!(s.ask("Tclunk tag 1 fid 1").await, "Rclunk tag 1");
        let mut data = bed.data(&opened.token).await;
        data.write_all(&bytes[..1000]).await.unwrap();
        writers.push((opened.id, data));
    }
    // All of them are begun before one is written to its end.
    for (_, data) in &mut writers {
        soon("the rest", data.write_all(&bytes[1000..])).await.unwrap();
    }
    for (id, _open) in writers {
        assert_eq!(s.end(id, 0).await.unwrap().0, BYTES as u64);
    }
    for n in 0..STREAMS {
        assert!(std::fs::read(bed.path(&format!("f{n}"))).unwrap() == bytes, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_streams_at_a_time_each_get_their_file_and_none_is_starved() {
    const STREAMS: usize = 1000;
    const BYTES: usize = 256 * 1024;
    let bed = Bed::with(Limits { streams: STREAMS, ..Limits::default() }, StreamLimits::default());
    let bytes = bed.file("f", BYTES);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let mut ids = Vec::new();
    let mut readers = JoinSet::new();
    for _ in 0..STREAMS {
        let opened = s.stream(1, true, 0, 0).await.unwrap();
        ids.push(opened.id);
        let mut data = bed.data(&opened.token).await;
        let bytes = bytes.clone();
        // All of them are begun before one is read to its end.
        let mut first = [0];
        soon("a first byte", data.read_exact(&mut first)).await.unwrap();
        readers.spawn(async move {
            let got = all(&mut data).await.unwrap();
            assert!(first[0] == bytes[0] && got == bytes[1..]);
        });
    }
    while let Some(read) = readers.join_next().await {
        read.unwrap();
    }
    for id in ids {
        assert_eq!(s.end(id, 0).await.unwrap().0, BYTES as u64);
    }
    assert_eq!(bed.server.stream_counts().completed, STREAMS as u64);
    bed.quiet().await;
}
