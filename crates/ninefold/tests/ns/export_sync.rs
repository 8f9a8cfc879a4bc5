//! What reaches the disk of a server behind an exported name space, and what names alone answer.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ninefold::client::Options;
use ninefold::ns::{Namespace, NsFs, Order};
use ninefold::proto::attr::Attr;
use ninefold::proto::open::{Open, lflags};
use ninefold::proto::stat::StatBuf;
use ninefold::proto::types::WalkElem;
use ninefold::proto::{Dialect, Errno, Name, Qid, QidType};
use ninefold::server::{Answer, Attach, Cx, File, FileServer, Server, User, Walked};
use ninefold::transport::{Address, Listener};

use crate::support::PLAIN;

/// A root and one file, that keep what they are asked.
#[derive(Clone, Default)]
struct Disk {
    is_file: bool,
    asked: Arc<Mutex<Vec<&'static str>>>,
}

impl Disk {
    fn qid(&self) -> Qid {
        let kind = if self.is_file { QidType::FILE } else { QidType::DIR };
        Qid { kind, version: 0, path: self.is_file.into() }
    }

    fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl FileServer for Disk {
    fn attach(&self, _: &Cx, _: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        Answer::ok((self.qid(), Arc::new(self.clone())))
    }
}

impl File for Disk {
    fn walk(&self, _: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        let is_file = self.is_file || !elems.is_empty();
        let file = Disk { is_file, ..self.clone() };
        Answer::ok(Walked { qids: elems.iter().map(|_| file.qid()).collect(), file: Some(Arc::new(file)) })
    }

    fn open(&self, _: &Cx, _: Open) -> Answer<Qid> {
        Answer::ok(self.qid())
    }

    fn write(&self, _: &Cx, _: u64, data: Bytes) -> Answer<u32> {
        self.asked.lock().unwrap().push("write");
        Answer::ok(data.len() as u32)
    }

    fn fsync(&self, _: &Cx, _: bool) -> Answer<()> {
        self.asked.lock().unwrap().push(if self.is_file { "sync" } else { "sync of a directory" });
        Answer::ok(())
    }

    fn wstat(&self, cx: &Cx, _: &ninefold::proto::stat::Stat<'_>) -> Answer<()> {
        self.fsync(cx, false)
    }

    fn getattr(&self, _: &Cx, _: u64) -> Answer<Attr> {
        Answer::err(Errno::EOPNOTSUPP)
    }

    fn stat(&self, _: &Cx) -> Answer<StatBuf> {
        Answer::err(Errno::EOPNOTSUPP)
    }
}

/// The root of an export in which the disk is `/disk`.
async fn root(disk: &Disk, dialect: &str) -> Arc<dyn File> {
    let server = Server::builder().export("", Arc::new(disk.clone()), false).build();
    let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_address().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await;
            tokio::spawn(server.serve(stream, peer));
        }
    });
    let address: Address = format!("{address}?dialect={dialect}").parse().unwrap();
    let ns = Namespace::new(Options::default());
    ns.mount(&address, "/disk", (Order::Replace, PLAIN)).await.unwrap();
    let who = Attach { user: Arc::new(User::of_process()), dialect: Dialect::Linux };
    NsFs::new(ns).attach(&Cx::detached(), &who).wait().await.unwrap().1
}

async fn walked(root: &Arc<dyn File>, names: &[&str]) -> Arc<dyn File> {
    let elems: Vec<WalkElem<'_>> =
        names.iter().map(|name| WalkElem::Name(Name::new(name.as_bytes()).unwrap())).collect();
    root.walk(&Cx::detached(), &elems).wait().await.unwrap().file.unwrap()
}

#[tokio::test]
async fn what_is_to_be_on_disk_is_synced_at_the_server_that_has_it() {
    let cx = Cx::detached();
    for dialect in ["9P2000.L.n1", "9P2000.L", "9P2000"] {
        let disk = Disk::default();
        let root = root(&disk, dialect).await;
        for (flag, expected) in [
            (0, vec!["write"]),
            (lflags::DSYNC, vec!["write", "sync"]),
            (lflags::DSYNC | lflags::SYNC, vec!["write", "sync"]),
        ] {
            let file = walked(&root, &["disk", "file"]).await;
            file.open(&cx, Open::from_lflags(lflags::WRONLY | flag).unwrap()).wait().await.unwrap();
            disk.asked();
            assert_eq!(file.write(&cx, 0, Bytes::from_static(b"x")).wait().await.unwrap(), 1);
            assert_eq!(disk.asked(), expected, "{dialect} {flag:o}");
            file.clunk(&cx).wait().await.unwrap();
        }
        let dir = walked(&root, &["disk"]).await;
        dir.open(&cx, Open::from_lflags(0).unwrap()).wait().await.unwrap();
        dir.fsync(&cx, false).wait().await.unwrap();
        assert_eq!(disk.asked(), ["sync of a directory"], "{dialect}");
    }
}

#[tokio::test]
async fn names_alone_have_no_attributes_that_are_extended_and_no_disk() {
    let cx = Cx::detached();
    let root = root(&Disk::default(), "9P2000.L").await;
    assert_eq!(root.xattr_get(&cx, b"user.x").wait().await.unwrap_err().errno, Errno::ENODATA);
    assert_eq!(root.xattr_list(&cx).wait().await.unwrap(), "");
    assert_eq!(root.statfs(&cx).wait().await.unwrap().blocks, 0);
    root.open(&cx, Open::from_lflags(0).unwrap()).wait().await.unwrap();
    root.fsync(&cx, false).wait().await.unwrap();
    let set = root.xattr_set(&cx, b"user.x", Bytes::from_static(b"x"), 0).wait().await;
    assert_eq!(set.unwrap_err().errno, Errno::EROFS);
}
