//! An exported name space in front of a server that answers nothing until it is told to give up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Client, Follow, Mode, Options};
use ninefold::ns::{Flags, Namespace, NsFs, Order};
use ninefold::proto::attr::{Attr, getattr};
use ninefold::proto::open::Open;
use ninefold::proto::stat::StatBuf;
use ninefold::proto::types::WalkElem;
use ninefold::proto::{Errno, Qid, QidType};
use ninefold::server::{Answer, Attach, Cx, Data, File, FileServer, Limits, Server, Walked};
use ninefold::transport::{Address, Listener};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::support::{CACHE, PLAIN};

/// What is not there by then never comes.
const SOON: Duration = Duration::from_secs(20);

/// Bytes of a message to the server behind.
const MSIZE: u32 = 16 << 10;

/// A root, and in it `open`, of which the open waits, and `data`, of which reads and writes do. What begins and what is flushed it says.
#[derive(Clone)]
struct Stuck {
    name: Vec<u8>,
    told: UnboundedSender<&'static str>,
}

impl Stuck {
    fn qid(&self) -> Qid {
        let kind = if self.name.is_empty() { QidType::DIR } else { QidType::FILE };
        Qid { kind, version: 0, path: self.name.len() as u64 }
    }

    fn wait<T: Send + 'static>(&self, cx: &Cx) -> Answer<T> {
        let (cx, told) = (cx.clone(), self.told.clone());
        Answer::later(async move {
            let _parked = cx.park()?;
            let _ = told.send("begun");
            cx.cancelled().await;
            let _ = told.send("flushed");
            Err(Errno::EINTR.into())
        })
    }
}

impl FileServer for Stuck {
    fn attach(&self, _: &Cx, _: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        Answer::ok((self.qid(), Arc::new(self.clone())))
    }
}

impl File for Stuck {
    fn walk(&self, _: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        let mut at = self.clone();
        for elem in elems {
            match elem {
                WalkElem::Name(name) => at.name = name.as_bytes().to_vec(),
                _ => at.name.clear(),
            }
        }
        let qids = elems.iter().map(|_| at.qid()).collect();
        Answer::ok(Walked { qids, file: Some(Arc::new(at)) })
    }

    fn open(&self, cx: &Cx, _: Open) -> Answer<Qid> {
        if self.name == b"open" { self.wait(cx) } else { Answer::ok(self.qid()) }
    }

    fn read(&self, cx: &Cx, _: u64, _: u32) -> Answer<Data> {
        self.wait(cx)
    }

    fn write(&self, cx: &Cx, _: u64, _: Bytes) -> Answer<u32> {
        self.wait(cx)
    }

    fn getattr(&self, _: &Cx, _: u64) -> Answer<Attr> {
        let mode = if self.name.is_empty() { 0o040_755 } else { 0o100_644 };
        Answer::ok(Attr { valid: getattr::BASIC, qid: self.qid(), mode, nlink: 1, ..Attr::default() })
    }

    fn stat(&self, _: &Cx) -> Answer<StatBuf> {
        Answer::err(Errno::EOPNOTSUPP)
    }
}

async fn listen(server: Arc<Server>) -> Address {
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

/// A client of an export of it, with room for so many requests that run, and what it says.
async fn stuck(running: usize, flags: Flags) -> (Client, UnboundedReceiver<&'static str>) {
    let (told, says) = unbounded_channel();
    let tree = Stuck { name: Vec::new(), told };
    let small = Limits { msize: MSIZE, ..Limits::default() };
    let behind = listen(Server::builder().export("", Arc::new(tree), false).limits(small).build()).await;
    let ns = Namespace::new(Options::default());
    ns.mount(&behind, "/", (Order::Replace, flags)).await.unwrap();
    let limits = Limits { running, ..Limits::default() };
    let front = Server::builder().export("", Arc::new(NsFs::new(ns)), false).limits(limits).build();
    let address = format!("{}?dialect=9P2000.L", listen(front).await).parse().unwrap();
    (Client::connect(&address, Options::default()).await.unwrap(), says)
}

/// Waits for so many words of it.
async fn said(says: &mut UnboundedReceiver<&'static str>, word: &str, times: usize) {
    for _ in 0..times {
        let heard = timeout(SOON, says.recv()).await.unwrap_or_else(|_| panic!("not {word}"));
        assert_eq!(heard, Some(word));
    }
}

#[tokio::test]
async fn a_flush_reaches_the_server_that_has_the_file() {
    let (client, mut says) = stuck(256, PLAIN).await;
    let node = client.walk("/open", Follow::All).await.unwrap();
    let data = client.walk("/data", Follow::All).await.unwrap().open(Mode::READ_WRITE).await.unwrap();
    let open = tokio::spawn(async move { node.open(Mode::READ).await.map(drop) });
    said(&mut says, "begun", 1).await;
    open.abort();
    said(&mut says, "flushed", 1).await;
    let data = Arc::new(data);
    let file = data.clone();
    let write = tokio::spawn(async move { file.write_at(0, Bytes::from_static(b"x")).await.map(drop) });
    said(&mut says, "begun", 1).await;
    write.abort();
    said(&mut says, "flushed", 1).await;
    let read = tokio::spawn(async move { data.read_at(0, 1).await.map(drop) });
    said(&mut says, "begun", 1).await;
    read.abort();
    said(&mut says, "flushed", 1).await;
}

#[tokio::test]
async fn reads_and_writes_that_wait_do_not_hold_up_their_connection() {
    const RUNNING: usize = 4;
    let (client, mut says) = stuck(RUNNING, PLAIN).await;
    let data = client.walk("/data", Follow::All).await.unwrap().open(Mode::READ_WRITE).await.unwrap();
    let data = Arc::new(data);
    let mut waiting = tokio::task::JoinSet::new();
    for at in 0..RUNNING {
        let file = data.clone();
        waiting.spawn(async move {
            if at % 2 == 0 {
                file.read_at(0, 1).await.map(drop)
            } else {
                file.write_at(0, Bytes::from_static(b"x")).await.map(drop)
            }
        });
    }
    said(&mut says, "begun", RUNNING).await;
    let looked = timeout(SOON, client.metadata("/data", Follow::All)).await.expect("it is held up");
    assert_eq!(looked.unwrap().qid.kind, QidType::FILE);
    waiting.abort_all();
    said(&mut says, "flushed", RUNNING).await;
}

#[tokio::test]
async fn what_is_mounted_to_be_cached_is_read_ahead() {
    let (client, mut says) = stuck(256, CACHE).await;
    let data = client.walk("/data", Follow::All).await.unwrap().open(Mode::READ).await.unwrap();
    let read = tokio::spawn(async move { data.read_at(0, 4 * MSIZE).await.map(drop) });
    // More than one at a time, of a file whose version is 0.
    said(&mut says, "begun", 2).await;
    read.abort();
}
