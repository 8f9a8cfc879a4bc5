//! Directories with the attributes of their entries.

use std::collections::BTreeSet;
use std::time::Duration;

use ninefold::client::{FileType, Follow, Mode, Options};
use ninefold::proto::message::Entries;
use ninefold::proto::stat::DirEntry;
use ninefold::proto::{Dialect, Errno, R, T};
use tokio::time::Instant;

use crate::fake;
use crate::support::{connect, link, over, ram, settled};

#[tokio::test(start_paused = true)]
async fn a_directory_is_listed_with_the_attributes_of_each_entry_in_every_dialect() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options { msize: 4096, ..Options::default() }).await;
        let root = client.root().await.unwrap();
        root.mkdir(b"d", 0o755).await.unwrap();
        for n in 0..300_u32 {
            let name = format!("{n}");
            let file = client.root().await.unwrap().create(name.as_bytes(), Mode::WRITE, 0o644).await.unwrap();
            file.set(&ninefold::proto::attr::SetAttr { size: Some(n.into()), ..Default::default() }).await.unwrap();
        }
        let plain = root.read_dir().await.unwrap().all().await.unwrap();
        let mut listing = root.list().await.unwrap();
        let mut listed = Vec::new();
        while let Some((entry, metadata)) = listing.next().await.unwrap() {
            let metadata = metadata.unwrap();
            match std::str::from_utf8(&entry.name).unwrap() {
                "d" => assert_eq!(metadata.kind, FileType::Dir),
                name => assert_eq!((metadata.kind, metadata.size), (FileType::File, name.parse().unwrap())),
            }
            assert_eq!((entry.qid.path, entry.kind), (metadata.qid.path, metadata.kind));
            listed.push(entry.name);
        }
        drop(listing);
        // In the server's order, each once.
        assert_eq!(listed, plain.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>(), "{dialect}");
        assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), 301);
        assert_eq!(root.metadata_of(b"7").await.unwrap().size, 7);
        assert!(root.metadata_of(b"none").await.unwrap_err().is_not_found());
        settled(&client, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_attributes_of_a_symbolic_link_are_its_own() {
    for dialect in [Dialect::Unix, Dialect::Linux] {
        let client = connect(&ram(), dialect, Options::default()).await;
        let root = client.root().await.unwrap();
        root.symlink(b"l", b"nowhere").await.unwrap();
        let (entry, metadata) = root.list().await.unwrap().next().await.unwrap().unwrap();
        assert_eq!((entry.kind, metadata.unwrap().kind), (FileType::Symlink, FileType::Symlink));
    }
}

/// Serves a directory of `count` entries, of which those that `gone` says do not exist any more.
fn serve_many(stream: ninefold::transport::Stream, count: u64, gone: fn(u64) -> bool) {
    let number = |name: &[u8]| -> Option<u64> { std::str::from_utf8(name).ok()?.strip_prefix("f")?.parse().ok() };
    fake::serve(stream, 1, move |replies, tag, request| match *request {
        T::Readdir { offset, count: bytes, .. } => {
            let mut data = Vec::new();
            for n in offset..count {
                let name = format!("f{n}");
                let entry = DirEntry { qid: fake::qid(name.as_bytes()), offset: n + 1, kind: 8, name: name.as_bytes() };
                if data.len() + entry.encoded_len() > bytes as usize {
                    break;
                }
                entry.encode(&mut data);
            }
            replies.send(tag, R::Readdir { data: Entries(&data) });
            true
        }
        T::Walk { wnames, .. } if wnames.iter().last().and_then(number).is_some_and(gone) => {
            replies.error(tag, Errno::ENOENT);
            true
        }
        _ => false,
    });
}

#[tokio::test(start_paused = true)]
async fn entries_are_asked_for_64_at_a_time_and_count_so() {
    const DELAY: Duration = Duration::from_millis(5);
    let (ours, theirs) = link(DELAY);
    serve_many(theirs, 640, |_| false);
    let client = over(ours, Dialect::Linux, Options::default()).await;
    let dir = client.walk("/d", Follow::All).await.unwrap();
    let before = (client.stats().round_trips, Instant::now());
    let mut listing = dir.list().await.unwrap();
    let mut count = 0;
    while let Some((_, metadata)) = listing.next().await.unwrap() {
        metadata.unwrap();
        count += 1;
    }
    assert_eq!(count, 640);
    let trips = client.stats().round_trips - before.0;
    assert_eq!(DELAY * 2 * trips, before.1.elapsed());
    // Two for each 64, and walk, open, the directory and its end.
    assert_eq!(trips, 2 * 10 + 4);
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_vanished_is_an_error_of_its_own() {
    let (ours, theirs) = link(Duration::from_millis(1));
    serve_many(theirs, 200, |n| n % 7 == 3);
    let client = over(ours, Dialect::Linux, Options::default()).await;
    let dir = client.walk("/d", Follow::All).await.unwrap();
    let mut listing = dir.list().await.unwrap();
    for n in 0..200 {
        let (entry, metadata) = listing.next().await.unwrap().unwrap();
        assert_eq!(entry.name, format!("f{n}").as_bytes());
        match metadata {
            Ok(metadata) => assert!(n % 7 != 3 && metadata.size == 1),
            Err(e) => assert!(n % 7 == 3 && e.is_not_found()),
        }
    }
    assert!(listing.next().await.unwrap().is_none());
    drop(listing);
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_is_dropped_leaves_nothing_behind() {
    let (ours, theirs) = link(Duration::from_millis(1));
    serve_many(theirs, 200, |_| false);
    let client = over(ours, Dialect::Linux, Options::default()).await;
    let dir = client.walk("/d", Follow::All).await.unwrap();
    for taken in [0, 1, 70] {
        let mut listing = dir.list().await.unwrap();
        for _ in 0..taken {
            listing.next().await.unwrap().unwrap().1.unwrap();
        }
        drop(listing);
        settled(&client, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_is_read_on_the_fid_that_it_was_walked_to_in_a_round_trip_less() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options::default()).await;
        let root = client.root().await.unwrap();
        let mut trips = Vec::new();
        for consumed in [false, true] {
            let node = root.walk(&[]).await.unwrap();
            let before = client.stats().round_trips;
            let mut read = if consumed { node.into_read_dir().await.unwrap() } else { node.read_dir().await.unwrap() };
            assert_eq!(read.next().await.unwrap(), None);
            trips.push(client.stats().round_trips - before);
        }
        assert_eq!(trips[0], trips[1] + 1, "{dialect}");
    }
}
