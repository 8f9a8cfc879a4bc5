//! Directories of an exported name space: what they may take, and what is listed of a server that is lost.

use std::sync::Arc;

use ninefold::client::{Client, Follow, Options};
use ninefold::ns::{Namespace, NsFs, Order};
use ninefold::proto::open::Open;
use ninefold::proto::types::WalkElem;
use ninefold::proto::{Dialect, Errno, Name};
use ninefold::server::{Attach, Cx, File, FileServer, Server, User};
use ninefold::transport::{Address, Listener};
use ninefold::tree::ramfs::RamFs;

use crate::servers::{put, ram};
use crate::support::PLAIN;

/// A server that can be ended.
async fn mortal(tree: Arc<dyn FileServer>) -> (Address, Arc<Server>) {
    let server = Server::builder().export("", tree, false).build();
    let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_address().unwrap();
    let serving = server.clone();
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await;
            tokio::spawn(serving.serve(stream, peer));
        }
    });
    (address, server)
}

/// The directory, open.
async fn open(fs: &NsFs, name: &str) -> Arc<dyn File> {
    let cx = Cx::detached();
    let who = Attach { user: Arc::new(User::of_process()), dialect: Dialect::Linux };
    let root = fs.attach(&cx, &who).wait().await.unwrap().1;
    let elems = [WalkElem::Name(Name::new(name.as_bytes()).unwrap())];
    let dir = root.walk(&cx, &elems).wait().await.unwrap().file.unwrap();
    dir.open(&cx, Open::from_lflags(0).unwrap()).wait().await.unwrap();
    dir
}

#[tokio::test]
async fn open_directories_keep_no_more_than_they_may() {
    const BYTES: usize = 10_000;
    let server = ram("9P2000.L.n1").await;
    // Some 58 bytes each: over a half of it.
    for at in 0..120 {
        put(&server, &format!("/dir/{at}"), "").await;
    }
    let ns = Namespace::new(Options::default());
    ns.mount(&server, "/", (Order::Replace, PLAIN)).await.unwrap();
    let (fs, cx) = (NsFs::with_dir_memory(ns, BYTES), Cx::detached());
    let (one, two) = (open(&fs, "dir").await, open(&fs, "dir").await);
    let whole = one.readdir(&cx, 0, 1 << 20).wait().await.unwrap();
    assert_eq!(two.readdir(&cx, 0, 1 << 20).wait().await.unwrap_err().errno, Errno::ENOMEM);
    // Read anew it takes no more.
    assert_eq!(one.readdir(&cx, 0, 1 << 20).wait().await.unwrap(), whole);
    one.clunk(&cx).wait().await.unwrap();
    drop(one);
    assert_eq!(two.readdir(&cx, 0, 1 << 20).wait().await.unwrap(), whole);
}

#[tokio::test]
async fn a_mount_point_whose_server_is_lost_is_listed() {
    for dialect in ["9P2000.L.n1", "9P2000.L", "9P2000.u", "9P2000"] {
        let (one, (two, server)) = (ram("9P2000.L.n1").await, mortal(Arc::new(RamFs::new())).await);
        let ns = Namespace::new(Options::default());
        ns.mount(&one, "/", (Order::Replace, PLAIN)).await.unwrap();
        ns.mount(&two, "/n/two", (Order::Replace, PLAIN)).await.unwrap();
        let (front, _serving) = mortal(Arc::new(NsFs::new(ns))).await;
        let front = format!("{front}?dialect={dialect}").parse().unwrap();
        let client = Client::connect(&front, Options::default()).await.unwrap();
        server.drain().await;
        let dir = client.walk("/n", Follow::All).await.unwrap();
        let entries = dir.read_dir().await.unwrap().all().await.unwrap();
        let names: Vec<&[u8]> = entries.iter().map(|entry| &entry.name[..]).collect();
        assert_eq!(names, [b"two"], "{dialect}");
        assert!(entries[0].qid.is_dir(), "{dialect}");
    }
}
