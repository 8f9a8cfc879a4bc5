//! What .n1 adds to files, by the client, against our own server's trees: one in memory and one of the host.

use std::sync::Arc;

use bytes::Bytes;
use ninefold::client::{Client, Entry, Error, Extent, FileType, Follow, Mode, Node, Options};
use ninefold::proto::dialect::Version;
use ninefold::proto::n1::{access, allocate};
use ninefold::proto::{Dialect, Errno};
use ninefold::server::Server;
use ninefold::tree::hostfs::HostFs;

use crate::support::{connect, ram};

/// A client of each tree; the directory is the host's.
async fn both() -> (tempfile::TempDir, [Client; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let host = Server::builder().export("", Arc::new(HostFs::open(dir.path()).unwrap()), false).build();
    let clients =
        [connect(&ram(), Version::N1, Options::default()).await, connect(&host, Version::N1, Options::default()).await];
    (dir, clients)
}

async fn root(client: &Client) -> Node {
    client.root().await.unwrap()
}

async fn make(client: &Client, name: &[u8], content: &'static [u8]) {
    let file = root(client).await.create(name, Mode::READ_WRITE, 0o644).await.unwrap();
    assert_eq!(file.write_at(0, Bytes::from_static(content)).await.unwrap() as usize, content.len());
    file.close().await.unwrap();
}

async fn open(client: &Client, name: &[u8]) -> ninefold::client::File {
    client.walk(name, Follow::All).await.unwrap().open(Mode::READ_WRITE).await.unwrap()
}

async fn content(client: &Client, name: &[u8]) -> Bytes {
    client.read(name, 1 << 20).await.unwrap()
}

/// Requests that were sent.
fn requests(client: &Client) -> u64 {
    client.stats().messages.iter().filter(|(name, _)| name.starts_with('T')).map(|(_, count)| count).sum()
}

#[tokio::test]
async fn appended_data_go_behind_all_others_and_it_is_told_where() {
    let (_dir, clients) = both().await;
    for client in clients {
        make(&client, b"log", b"one").await;
        let (a, b) = (open(&client, b"log").await, open(&client, b"log").await);
        assert_eq!(a.append(Bytes::from_static(b"two"), false).await.unwrap(), (3, 3));
        assert_eq!(b.append(Bytes::from_static(b"three"), true).await.unwrap(), (6, 5));
        assert_eq!(a.append(Bytes::from_static(b"4"), false).await.unwrap(), (11, 1));
        assert_eq!(a.write_stable(0, Bytes::from_static(b"ONE")).await.unwrap(), 3);
        assert_eq!(&content(&client, b"log").await[..], b"ONEtwothree4");
    }
}

#[tokio::test]
async fn more_than_a_message_holds_is_appended_and_written_durably_as_far_as_one_does() {
    let (_dir, clients) = both().await;
    for client in clients {
        make(&client, b"log", b"one").await;
        let file = open(&client, b"log").await;
        let (most, all) = (file.append_max(), Bytes::from(vec![7; file.write_max() as usize + 1]));
        assert!(most < file.write_max());
        assert_eq!(file.append(all.clone(), false).await.unwrap(), (3, most));
        assert_eq!(file.write_stable(3, all.clone()).await.unwrap(), most);
        assert_eq!(file.metadata().await.unwrap().size, 3 + u64::from(most));
        // No byte less than a message holds.
        assert_eq!(file.append(all.slice(..most as usize), true).await.unwrap(), (3 + u64::from(most), most));
    }
}

#[tokio::test]
async fn many_appends_at_a_time_lose_and_mix_nothing() {
    let (_dir, clients) = both().await;
    for client in clients {
        make(&client, b"log", b"").await;
        let file = open(&client, b"log").await;
        let appends = (0..200u8).map(|i| file.append(Bytes::from(vec![i; 50]), false));
        let told = futures_util::future::try_join_all(appends).await.unwrap();
        let all = content(&client, b"log").await;
        assert_eq!(all.len(), 200 * 50);
        for (i, (offset, count)) in told.into_iter().enumerate() {
            assert_eq!(all[offset as usize..][..count as usize], vec![i as u8; 50]);
        }
    }
}

#[tokio::test]
async fn a_range_is_copied_without_passing_through_the_client() {
    let (_dir, clients) = both().await;
    for client in clients {
        make(&client, b"from", b"0123456789").await;
        make(&client, b"to", b"abc").await;
        let (from, to) = (open(&client, b"from").await, open(&client, b"to").await);
        let before = client.stats();
        assert_eq!(from.copy_range(2, &to, 5, 4).await.unwrap(), 4);
        assert_eq!(from.copy_range(8, &to, 9, 100).await.unwrap(), 2, "up to the end");
        assert_eq!(from.copy_range(10, &to, 0, 5).await.unwrap(), 0, "at the end");
        assert!(client.stats().bytes_received - before.bytes_received < 100);
        assert_eq!(&content(&client, b"to").await[..], b"abc\x00\x00234589");
        let overlap = from.copy_range(0, &from, 5, 6).await.unwrap_err();
        assert_eq!(overlap.errno(), Errno::EINVAL);
        assert_eq!(&content(&client, b"from").await[..], b"0123456789");
    }
    let (_dir, [one, other]) = both().await;
    make(&one, b"f", b"x").await;
    make(&other, b"f", b"x").await;
    let (a, b) = (open(&one, b"f").await, open(&other, b"f").await);
    assert_eq!(a.copy_range(0, &b, 5, 1).await.unwrap_err().errno(), Errno::EINVAL, "of another connection");
}

#[tokio::test]
async fn holes_are_made_and_found() {
    const MIB: u64 = 1 << 20;
    let (_dir, clients) = both().await;
    for client in clients {
        make(&client, b"f", b"").await;
        let file = open(&client, b"f").await;
        assert_eq!(file.seek(Extent::Data, 0).await.unwrap(), None, "nothing is in it");
        file.allocate(0, 0, 4 * MIB).await.unwrap();
        assert_eq!(file.metadata().await.unwrap().size, 4 * MIB);
        file.allocate(allocate::KEEP_SIZE, 0, 8 * MIB).await.unwrap();
        assert_eq!(file.metadata().await.unwrap().size, 4 * MIB);
        for at in [0, MIB, 2 * MIB, 4 * MIB - 1] {
            file.write_at(at, Bytes::from_static(b"x")).await.unwrap();
        }
        file.allocate(allocate::PUNCH_HOLE | allocate::KEEP_SIZE, MIB, MIB).await.unwrap();
        assert_eq!(file.read_at(MIB, 1).await.unwrap()[..], [0]);
        assert_eq!(file.read_at(2 * MIB, 1).await.unwrap()[..], *b"x");
        // A file system may know no holes: then all is data.
        let hole = file.seek(Extent::Hole, 0).await.unwrap().unwrap();
        assert!((1..=4 * MIB).contains(&hole), "{hole}");
        assert_eq!(file.seek(Extent::Data, 2 * MIB).await.unwrap(), Some(2 * MIB));
        assert_eq!(file.seek(Extent::Hole, 4 * MIB).await.unwrap(), None);
        let wrong = file.allocate(allocate::PUNCH_HOLE, 0, 1).await.unwrap_err();
        assert_eq!(wrong.errno(), Errno::EINVAL);
    }
}

#[tokio::test]
async fn a_rename_replaces_nothing_or_trades_two_names() {
    let (_dir, clients) = both().await;
    for client in clients {
        make(&client, b"a", b"A").await;
        make(&client, b"b", b"B").await;
        let dir = root(&client).await;
        assert_eq!(dir.rename_new(b"a", &dir, b"b").await.unwrap_err().errno(), Errno::EEXIST);
        dir.exchange(b"a", &dir, b"b").await.unwrap();
        assert_eq!((&content(&client, b"a").await[..], &content(&client, b"b").await[..]), (&b"B"[..], &b"A"[..]));
        assert_eq!(dir.exchange(b"a", &dir, b"none").await.unwrap_err().errno(), Errno::ENOENT);
        dir.rename_new(b"a", &dir, b"c").await.unwrap();
        assert_eq!(&content(&client, b"c").await[..], b"B");
    }
}

#[tokio::test]
async fn access_is_asked_of_the_server() {
    let (_dir, clients) = both().await;
    for client in clients {
        make(&client, b"f", b"").await;
        let node = client.walk(b"f", Follow::All).await.unwrap();
        // Root may read and write what it likes, and executes what anybody may.
        assert_eq!(node.access(access::ALL).await.unwrap(), access::READ | access::WRITE);
        assert_eq!(node.access(0).await.unwrap(), 0);
        assert_eq!(node.access(access::WRITE).await.unwrap(), access::WRITE);
        assert_eq!(node.access(8).await.unwrap_err().errno(), Errno::EINVAL);
    }
}

#[tokio::test]
async fn a_directory_is_listed_with_the_attributes_of_its_entries_in_one_round_trip_for_each_piece() {
    let (_dir, clients) = both().await;
    for client in clients {
        let dir = root(&client).await;
        dir.mkdir(b"d", 0o755).await.unwrap();
        dir.symlink(b"l", b"nowhere").await.unwrap();
        for i in 0..300 {
            make(&client, format!("f{i}").as_bytes(), &b"0123456789"[..i % 10]).await;
        }
        let before = requests(&client);
        let mut listed = dir.read_dir_with_metadata().await.unwrap().all().await.unwrap();
        let asked = requests(&client) - before;
        assert!(asked <= 6, "{asked} messages for 302 entries");
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(listed.len(), 302);
        for Entry { name, qid, kind, metadata } in &listed {
            let told = metadata.as_ref().expect("every entry has attributes");
            let asked = dir.metadata_of(name).await.unwrap();
            assert!(told.is_of_same_file(&asked), "{told:?} {asked:?}");
            assert_eq!((*kind, *qid), (asked.kind, asked.qid));
        }
        assert_eq!((listed[0].kind, listed[301].kind), (FileType::Dir, FileType::Symlink));
    }
}

#[tokio::test]
async fn without_n1_there_are_no_words_for_it_and_a_listing_is_plain() {
    let client = connect(&ram(), Dialect::Linux, Options::default()).await;
    make(&client, b"f", b"x").await;
    let file = open(&client, b"f").await;
    let dir = root(&client).await;
    for refused in [
        file.append(Bytes::from_static(b"x"), false).await.map(drop).unwrap_err(),
        file.seek(Extent::Data, 0).await.map(drop).unwrap_err(),
        file.allocate(0, 0, 1).await.unwrap_err(),
        file.copy_range(0, &file, 1, 1).await.map(drop).unwrap_err(),
        dir.access(0).await.map(drop).unwrap_err(),
        dir.exchange(b"f", &dir, b"g").await.unwrap_err(),
    ] {
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused:?}");
        assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
    }
    let listed = dir.read_dir_with_metadata().await.unwrap().all().await.unwrap();
    assert_eq!((listed.len(), listed[0].metadata.is_none()), (1, true));
}
