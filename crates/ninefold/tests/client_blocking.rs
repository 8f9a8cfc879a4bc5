//! The client for programs without a runtime, against our own server on a Unix socket.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ninefold::blocking::{Client, Namespace};
use ninefold::client::{Attach, Error, Follow, Mode, Options};
use ninefold::ns::{Flags, Order};
use ninefold::proto::Dialect;
use ninefold::proto::dialect::Version;
use ninefold::server::Server;
use ninefold::transport::{Address, Listener, memory};
use ninefold::tree::ramfs::RamFs;

/// A server in a thread of its own, until the test's process ends.
fn serve(dir: &tempfile::TempDir) -> Address {
    let address = Address::unix(dir.path().join("socket"));
    let (at, (sender, receiver)) = (address.clone(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::builder().export("", Arc::new(RamFs::new()), false).build();
            let listener = Listener::bind(&at).await.unwrap();
            sender.send(()).unwrap();
            loop {
                let (stream, peer) = listener.accept().await;
                tokio::spawn(server.serve(stream, peer));
            }
        });
    });
    receiver.recv_timeout(Duration::from_secs(30)).unwrap();
    address
}

#[test]
fn several_threads_use_one_client_and_each_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(&dir);
    let shared = Client::connect(&address, Options::default()).unwrap();
    let threads: Vec<_> = (0..4_u8)
        .map(|n| {
            let (shared, address) = (shared.clone(), address.clone());
            std::thread::spawn(move || {
                let own = Client::connect(&address, Options::default()).unwrap();
                for client in [&shared, &own] {
                    let name = format!("f{n}-{}", client.stats().dialect);
                    let dir = client.root().unwrap();
                    let _ = dir.unlink(name.as_bytes(), false);
                    let file = dir.create(name.as_bytes(), Mode::READ_WRITE, 0o644).unwrap();
                    let content = Bytes::from(vec![n; 3_000_000]);
                    let mut writer = file.writer(0, None);
                    writer.write(content.clone()).unwrap();
                    assert_eq!(writer.finish().unwrap(), 3_000_000);
                    let metadata = file.metadata().unwrap();
                    let mut reader = file.reader(0, Some(&metadata));
                    let mut got = Vec::new();
                    while let Some(bytes) = reader.next().unwrap() {
                        got.extend_from_slice(&bytes);
                    }
                    assert!(got == content);
                }
                own.close(Duration::from_secs(10)).unwrap();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let names = |entries: Vec<ninefold::client::Entry>| -> BTreeSet<Vec<u8>> {
        entries.into_iter().map(|entry| entry.name).collect()
    };
    let root = shared.root().unwrap();
    let listed = names(root.read_dir().unwrap().all().unwrap());
    assert_eq!(listed.len(), 4);
    let mut listing = root.list().unwrap();
    while let Some((entry, metadata)) = listing.next().unwrap() {
        assert!(listed.contains(&entry.name));
        assert_eq!(metadata.unwrap().size, 3_000_000);
    }
}

#[test]
fn readers_and_writers_are_those_of_the_standard_library_too() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::connect(&serve(&dir), Options::default()).unwrap();
    let file = client.root().unwrap().create(b"f", Mode::READ_WRITE, 0o644).unwrap();
    let text = "one line\nand another\n".repeat(10_000);
    let mut writer = file.writer(0, None);
    Write::write_all(&mut writer, text.as_bytes()).unwrap();
    Write::flush(&mut writer).unwrap();
    assert_eq!(writer.written(), text.len() as u64);
    let metadata = file.metadata().unwrap();
    let mut reader = file.reader(0, Some(&metadata));
    let mut start = [0; 3];
    reader.read_exact(&mut start).unwrap();
    assert_eq!((&start, reader.position()), (b"one", 3));
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(rest == text[3..]);
    assert_eq!((reader.position(), reader.missing()), (text.len() as u64, 0));
    let e = client.walk("/none", Follow::All).unwrap_err();
    assert_eq!(std::io::Error::from(e).kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn paths_are_enough_for_small_operations_whatever_was_agreed() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(&dir);
    for version in [None, Some("9P2000.ix"), Some("9P2000.u.ix"), Some("9P2000")] {
        let dialect = version.map(|version| Version::parse(version.as_bytes()).unwrap());
        let client = Client::connect(&Address { dialect, ..address.clone() }, Options::default()).unwrap();
        client.mkdir("/d", 0o755).unwrap();
        let parent = client.walk("/d", Follow::All).unwrap();
        let file = parent.create(b"f", Mode::WRITE, 0o644).unwrap();
        assert_eq!(file.write_at(0, Bytes::from_static(b"content")).unwrap(), 7);
        file.close().unwrap();
        client.rename("/d/f", b"g").unwrap();
        assert_eq!(client.metadata("/d/g", Follow::All).unwrap().size, 7, "{version:?}");
        assert_eq!(client.read("/d/g", 7).unwrap(), "content");
        assert!(client.remove("/d").is_err(), "it is not empty");
        client.remove("/d/g").unwrap();
        client.remove("/d").unwrap();
    }
}

#[test]
fn a_call_within_a_runtime_is_refused_and_does_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (ours, _theirs) = memory::pair(4096);
        let attach = Attach { dialect: Some(Dialect::Linux.into()), ..Attach::default() };
        let e = Client::over(ours, &attach, Options::default()).unwrap_err();
        assert!(matches!(e, Error::WithinRuntime), "{e}");
    });
}

#[test]
fn a_name_space_of_two_servers_is_used_without_a_runtime() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (near, far) = (serve(&one), serve(&two));
    let ns = Namespace::new(Options::default());
    ns.mount(&near, "/", (Order::Replace, Flags::default())).unwrap();
    ns.mkdir("/made", 0o755).unwrap();
    ns.mount(&far, "/far", (Order::Replace, Flags::default())).unwrap();
    ns.write("/far/file", Bytes::from_static(b"content"), 0o644).unwrap();
    assert_eq!(ns.open("/far/file", Mode::READ).unwrap().read_at(3, 10).unwrap(), "tent");
    let names: BTreeSet<_> = ns.list("/").unwrap().into_iter().map(|(entry, _)| entry.name).collect();
    assert_eq!(names, BTreeSet::from([b"far".to_vec(), b"made".to_vec()]));
    let private = ns.private();
    private.unmount(None, "/far").unwrap();
    assert!(private.metadata("/far", Follow::All).unwrap_err().is_not_found());
    assert_eq!(ns.read("/far/file", 100).unwrap(), "content");
}

#[test]
fn streams_are_standard_readers_and_writers_and_tell_at_the_end_what_they_moved() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::connect(&serve(&dir), Options::default()).unwrap();
    let file = client.root().unwrap().create(b"f", Mode::READ_WRITE, 0o644).unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let mut stream = file.stream_write(0, None).unwrap();
    stream.write_all(&content).unwrap();
    assert_eq!(stream.finish().unwrap(), 3_000_000);
    let mut stream = file.stream_read(1, Some(2_000_000)).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got == content[1..2_000_001]);
    assert_eq!((stream.moved(), stream.finish().unwrap()), (2_000_000, 2_000_000));
}
