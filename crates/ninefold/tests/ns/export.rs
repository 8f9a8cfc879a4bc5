//! A name space exported again: two servers and a union of both, by a server of their own, in every dialect.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use ninefold::client::{Client, FileType, Follow, Mode, Options};
use ninefold::ns::{Flags, Namespace, NsFs, Order};
use ninefold::proto::Errno;
use ninefold::proto::attr::SetAttr;
use ninefold::server::Server;
use ninefold::transport::{Address, Listener};

use crate::servers::{put, ram};
use crate::support::{CREATE, PLAIN};

const REPLACE: (Order, Flags) = (Order::Replace, PLAIN);

/// Those of the clients; the servers behind speak .n1.
const DIALECTS: [&str; 6] = ["9P2000.L.n1", "9P2000.L", "9P2000.u", "9P2000.u.ix", "9P2000", "9P2000.ix"];

/// The server of a name space.
async fn export(ns: Namespace) -> Address {
    let server = Server::builder().export("", Arc::new(NsFs::new(ns)), false).build();
    let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_address().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await;
            tokio::spawn(server.serve(stream, peer));
        }
    });
    address
}

/// `/` of one server, `/n/two` of another, and in `/bin` what both have, new files being made in the second.
async fn composed() -> (Namespace, Address, Address) {
    let (one, two) = (ram("9P2000.L.n1").await, ram("9P2000.L.n1").await);
    for (server, path) in [(&one, "/bin/ls"), (&one, "/etc/motd"), (&two, "/bin/ls"), (&two, "/bin/grep")] {
        put(server, path, &server.to_string()).await;
    }
    let ns = Namespace::new(Options::default());
    ns.mount(&one, "/", REPLACE).await.unwrap();
    ns.mount(&two, "/n/two", REPLACE).await.unwrap();
    ns.bind("/n/two/bin", "/bin", (Order::After, CREATE)).await.unwrap();
    (ns, one, two)
}

async fn client(address: &Address, dialect: &str) -> Client {
    let address = format!("{address}?dialect={dialect}").parse().unwrap();
    Client::connect(&address, Options::default()).await.unwrap()
}

async fn names(client: &Client, dir: &str) -> Vec<String> {
    let node = client.walk(dir, Follow::All).await.unwrap();
    let entries = node.read_dir().await.unwrap().all().await.unwrap();
    let mut names: Vec<String> = entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_composed_tree_is_used_like_any_other() {
    for dialect in DIALECTS {
        let (ns, one, two) = composed().await;
        let client = client(&export(ns).await, dialect).await;
        assert_eq!(names(&client, "/").await, ["bin", "etc", "n"], "{dialect}");
        assert_eq!(names(&client, "/n").await, ["two"], "{dialect}");
        assert_eq!(names(&client, "/n/two").await, ["bin"], "{dialect}");
        assert_eq!(names(&client, "/bin").await, ["grep", "ls"], "{dialect}");
        for (path, server) in [("/bin/ls", &one), ("/bin/grep", &two), ("/n/two/bin/ls", &two), ("/etc/motd", &one)] {
            assert_eq!(client.read(path, 4096).await.unwrap(), server.to_string(), "{dialect} {path}");
        }
        // Made in the member that takes new files.
        let file = client.create("/bin/new", Mode::WRITE, 0o640).await.unwrap();
        assert_eq!(file.write_at(0, Bytes::from_static(b"hello")).await.unwrap(), 5);
        file.close().await.unwrap();
        assert_eq!(client.read("/n/two/bin/new", 10).await.unwrap(), "hello");
        let cut = SetAttr { size: Some(2), ..SetAttr::default() };
        client.set("/bin/new", &cut, Follow::All).await.unwrap();
        assert_eq!(client.metadata("/bin/new", Follow::All).await.unwrap().size, 2);
        client.rename("/bin/new", b"other").await.unwrap();
        client.remove("/bin/other").await.unwrap();
        client.mkdir("/n/two/dir", 0o755).await.unwrap();
        assert_eq!(client.metadata("/n/two/dir", Follow::All).await.unwrap().kind, FileType::Dir);
        client.remove("/n/two/dir").await.unwrap();
        assert_eq!(names(&client, "/n/two").await, ["bin"]);
    }
}

#[tokio::test]
async fn an_exported_mount_point_is_neither_removed_nor_made() {
    for dialect in DIALECTS {
        let (ns, ..) = composed().await;
        let client = client(&export(ns).await, dialect).await;
        for name in ["/n", "/n/two", "/bin"] {
            assert_eq!(client.remove(name).await.unwrap_err().errno(), Errno::EBUSY, "{dialect} {name}");
            assert!(client.mkdir(name, 0o755).await.is_err(), "{dialect} {name}");
        }
        let dir = client.walk("/n", Follow::All).await.unwrap();
        assert_eq!(dir.create(b"x", Mode::WRITE, 0o644).await.unwrap_err().errno(), Errno::EROFS, "{dialect}");
    }
}

#[tokio::test]
async fn errors_of_the_servers_come_back_as_they_were() {
    for dialect in DIALECTS {
        let (ns, ..) = composed().await;
        let client = client(&export(ns).await, dialect).await;
        let none = client.metadata("/n/two/none", Follow::All).await.unwrap_err();
        assert_eq!(none.errno(), Errno::ENOENT, "{dialect}");
        let full = client.remove("/n/two/bin").await.unwrap_err();
        assert_eq!(full.errno(), Errno::ENOTEMPTY, "{dialect}");
        let below = client.metadata("/etc/motd/x", Follow::All).await.unwrap_err();
        assert_eq!(below.errno(), Errno::ENOTDIR, "{dialect}");
    }
}

#[tokio::test]
async fn no_two_files_of_the_tree_have_one_number_and_each_keeps_its_own() {
    let (ns, ..) = composed().await;
    let client = client(&export(ns).await, "9P2000.L.n1").await;
    let paths = ["/", "/n", "/n/two", "/n/two/bin/ls", "/n/two/bin/grep", "/bin", "/bin/ls", "/etc", "/etc/motd"];
    let mut seen = HashSet::new();
    for path in paths {
        let qid = client.metadata(path, Follow::All).await.unwrap().qid;
        assert_eq!(client.walk(path, Follow::All).await.unwrap().qid().path, qid.path, "{path}");
        assert!(seen.insert(qid.path), "{path}");
    }
    // By whatever name, a file is one.
    let number = async |path: &str| client.metadata(path, Follow::All).await.unwrap().qid.path;
    assert_eq!(number("/bin/grep").await, number("/n/two/bin/grep").await);
}

#[tokio::test]
async fn links_of_the_servers_are_links_of_the_tree() {
    let (ns, one, _) = composed().await;
    let there = Client::connect(&one, Options::default()).await.unwrap();
    there.walk("/", Follow::All).await.unwrap().symlink(b"link", b"n/two/bin/grep").await.unwrap();
    let client = client(&export(ns).await, "9P2000.L.n1").await;
    assert_eq!(client.read_link("/link").await.unwrap(), b"n/two/bin/grep");
    assert_eq!(client.metadata("/link", Follow::NotLast).await.unwrap().kind, FileType::Symlink);
    assert!(!client.read("/link", 4096).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_an_earlier_member_of_a_union_has_is_not_made_in_a_later_one() {
    for dialect in ["9P2000.L.n1", "9P2000.L"] {
        let (ns, one, two) = composed().await;
        put(&one, "/bin/cat", "one").await;
        put(&two, "/bin/dir/x", "two").await;
        let client = client(&export(ns).await, dialect).await;
        let bin = client.walk("/bin", Follow::All).await.unwrap();
        let motd = client.walk("/n/two/bin/grep", Follow::All).await.unwrap();
        for name in [&b"cat"[..], b"dir"] {
            assert_eq!(bin.mkdir(name, 0o755).await.unwrap_err().errno(), Errno::EEXIST, "{dialect}");
            assert_eq!(bin.symlink(name, b"x").await.unwrap_err().errno(), Errno::EEXIST, "{dialect}");
            let fifo = bin.mknod(name, FileType::Fifo, 0o644, (0, 0)).await;
            assert_eq!(fifo.unwrap_err().errno(), Errno::EEXIST, "{dialect}");
            assert_eq!(bin.link(name, &motd).await.unwrap_err().errno(), Errno::EEXIST, "{dialect}");
            let made = bin.walk(&[]).await.unwrap().create(name, Mode::WRITE, 0o644).await;
            assert_eq!(made.unwrap_err().errno(), Errno::EEXIST, "{dialect}");
        }
        let there = Client::connect(&two, Options::default()).await.unwrap();
        assert_eq!(there.metadata("/bin/cat", Follow::All).await.unwrap_err().errno(), Errno::ENOENT);
        bin.mkdir(b"new", 0o755).await.unwrap();
        assert_eq!(there.metadata("/bin/new", Follow::All).await.unwrap().kind, FileType::Dir);
    }
}

#[tokio::test]
async fn a_file_is_renamed_by_its_fid_and_never_what_has_its_name_by_now() {
    for dialect in DIALECTS {
        let (ns, one, _) = composed().await;
        put(&one, "/d/f", "ours").await;
        put(&one, "/d/sub/x", "ours").await;
        let (client, there) = (client(&export(ns).await, dialect).await, Client::connect(&one, Options::default()));
        let there = there.await.unwrap();
        let (file, dir) =
            (client.walk("/d/f", Follow::All).await.unwrap(), client.walk("/d", Follow::All).await.unwrap());
        let sub = client.walk("/d/sub", Follow::All).await.unwrap();
        assert_eq!(sub.walk(&[b".."]).await.unwrap().qid().path, dir.qid().path, "{dialect}");
        there.rename("/d", b"e").await.unwrap();
        put(&one, "/d/f", "theirs").await;
        put(&one, "/d/sub/x", "theirs").await;
        assert_eq!(sub.walk(&[b".."]).await.unwrap_err().errno(), Errno::ESTALE, "{dialect}");
        let mut chain = client.chain();
        let (spot, walked) = chain.walk(&file, &[]).await.unwrap();
        let renamed = chain.rename(&spot, &dir, b"g").await.unwrap();
        walked.take().await.unwrap();
        let renamed = renamed.take().await;
        // .L says in which directory, the others do not.
        let (name, expected) =
            if dialect.starts_with("9P2000.L") { ("/e/g", Ok(())) } else { ("/e/f", Err(Errno::ESTALE)) };
        assert_eq!(renamed.map_err(|e| e.errno()), expected, "{dialect}");
        assert_eq!(there.read(name, 10).await.unwrap(), "ours", "{dialect}");
        assert_eq!(there.read("/d/f", 10).await.unwrap(), "theirs", "{dialect}");
    }
}

#[tokio::test]
async fn the_number_of_a_file_does_not_depend_on_what_was_asked_for_first() {
    let (ns, ..) = composed().await;
    ns.mount(&ram("9P2000.L.n1").await, "/n/three", REPLACE).await.unwrap();
    let paths = ["/n/three", "/n/two/bin/grep"];
    let mut seen = Vec::new();
    for order in [[0, 1], [1, 0]] {
        let client = client(&export(ns.clone()).await, "9P2000.L.n1").await;
        let mut numbers = [0; 2];
        for at in order {
            numbers[at] = client.metadata(paths[at], Follow::All).await.unwrap().qid.path;
        }
        seen.push(numbers);
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_name_of_a_union_is_moved_and_exchanged_in_the_member_that_has_it() {
    let (ns, one, two) = composed().await;
    put(&two, "/bin/cat", "cat").await;
    let client = client(&export(ns).await, "9P2000.L.n1").await;
    let bin = client.walk("/bin", Follow::All).await.unwrap();
    let there = Client::connect(&two, Options::default()).await.unwrap();
    bin.exchange(b"cat", &bin, b"grep").await.unwrap();
    assert_eq!(there.read("/bin/grep", 10).await.unwrap(), "cat");
    bin.rename_new(b"grep", &bin, b"dog").await.unwrap();
    assert_eq!(there.read("/bin/dog", 10).await.unwrap(), "cat");
    // The first member has it.
    put(&one, "/bin/ours", "ours").await;
    assert_eq!(bin.rename_new(b"dog", &bin, b"ours").await.unwrap_err().errno(), Errno::EEXIST);
    // Of different servers.
    assert_eq!(bin.exchange(b"dog", &bin, b"ours").await.unwrap_err().errno(), Errno::EXDEV);
    // Out of a union, into a directory of the same server, and into one of another.
    let whole = client.walk("/n/two", Follow::All).await.unwrap();
    bin.rename_new(b"dog", &whole, b"dog").await.unwrap();
    assert_eq!(there.read("/dog", 10).await.unwrap(), "cat");
    whole.rename_new(b"dog", &bin, b"dog").await.unwrap();
    assert_eq!(there.read("/bin/dog", 10).await.unwrap(), "cat");
    let etc = client.walk("/etc", Follow::All).await.unwrap();
    assert_eq!(bin.rename_new(b"dog", &etc, b"dog").await.unwrap_err().errno(), Errno::EXDEV);
}
