//! When replies leave: those of a peer on this machine before all of the work is done, those of others together.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, thread};

use ninefold::proto::attr::Attr;
use ninefold::proto::open::Open;
use ninefold::proto::print::parse;
use ninefold::proto::stat::StatBuf;
use ninefold::proto::types::WalkElem;
use ninefold::proto::{Dialect, Qid, QidType};
use ninefold::server::{Answer, Attach, Cx, File, FileServer, Server, Walked};
use ninefold::transport::{Peer, Stream};
use ninefold::tree::ramfs::RamFs;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::UnixStream;

const QID: Qid = Qid { kind: QidType::FILE, version: 0, path: 1 };

/// More than the server works on what one peer asked before it sends what it has.
const WORK: Duration = Duration::from_millis(2);

/// A file whose attributes take work, and what had been sent when each was asked for.
#[derive(Clone, Default)]
struct Laborious {
    sent: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<usize>>>,
}

impl FileServer for Laborious {
    fn attach(&self, _: &Cx, _: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        Answer::ok((QID, Arc::new(self.clone())))
    }
}

impl File for Laborious {
    fn walk(&self, _: &Cx, _: &[WalkElem<'_>]) -> Answer<Walked> {
        Answer::ok(Walked { qids: Vec::new(), file: Some(Arc::new(self.clone())) })
    }

    fn open(&self, _: &Cx, _: Open) -> Answer<Qid> {
        Answer::ok(QID)
    }

    fn stat(&self, _: &Cx) -> Answer<StatBuf> {
        Answer::ok(StatBuf::default())
    }

    fn getattr(&self, _: &Cx, _: u64) -> Answer<Attr> {
        self.seen.lock().unwrap().push(self.sent.load(Ordering::SeqCst));
        thread::sleep(WORK);
        Answer::ok(Attr::default())
    }
}

/// Counts the writes of the server.
struct Counted {
    stream: DuplexStream,
    sent: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(task, to)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.sent.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.stream).poll_write(task, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(task)
    }
}

async fn reply(stream: &mut (impl AsyncRead + Unpin)) {
    let size = stream.read_u32_le().await.unwrap();
    stream.read_exact(&mut vec![0; size as usize - 4]).await.unwrap();
}

/// What had been sent before each of four requests that arrive together was begun, counted from the first.
async fn sent_before_each(peer: Peer) -> Vec<usize> {
    let tree = Laborious::default();
    let server = Server::builder().export("", Arc::new(tree.clone()), false).build();
    let (mut near, far) = tokio::io::duplex(65_536);
    let served = tokio::spawn(server.serve(Stream::other(Counted { stream: far, sent: tree.sent.clone() }), peer));
    let requests =
        ["Tversion tag -1 msize 65536 version '9P2000.L'", "Tattach tag 1 fid 0 afid -1 uname 'u' aname '' n_uname -1"];
    for request in requests {
        near.write_all(&parse(request, Dialect::Linux).unwrap()).await.unwrap();
        reply(&mut near).await;
    }
    let together: Vec<u8> = (1..=4)
        .flat_map(|tag| parse(&format!("Tgetattr tag {tag} fid 0 request_mask 0x1"), Dialect::Linux).unwrap())
        .collect();
    near.write_all(&together).await.unwrap();
    for _ in 1..=4 {
        reply(&mut near).await;
    }
    drop(near);
    served.await.unwrap();
    let seen = tree.seen.lock().unwrap();
    seen.iter().map(|sent| sent - seen[0]).collect()
}

#[tokio::test]
async fn a_peer_on_this_machine_has_its_first_replies_while_the_rest_is_done() {
    let here = Peer::Unix { uid: 0, gid: 0, pid: 0 };
    assert_eq!(sent_before_each(here).await, [0, 1, 2, 3]);
    assert_eq!(sent_before_each(Peer::Stdio).await, [0; 4]);
}

/// By a socket, which the server may read before the runtime tells it to.
#[tokio::test]
async fn whatever_comes_together_or_in_pieces_is_answered_to_the_end() {
    const REQUESTS: usize = 3000;
    let server = Server::builder().export("", Arc::new(Ready), false).build();
    let (near, far) = UnixStream::pair().unwrap();
    let served = tokio::spawn(server.serve(far, Peer::Unix { uid: 0, gid: 0, pid: 0 }));
    let (mut from, mut to) = near.into_split();
    let writes = async {
        let version = parse("Tversion tag -1 msize 65536 version '9P2000.L'", Dialect::Linux).unwrap();
        to.write_all(&version).await.unwrap();
        tokio::time::sleep(WORK).await;
        let mut all = parse("Tattach tag 1 fid 0 afid -1 uname 'u' aname '' n_uname -1", Dialect::Linux).unwrap();
        for tag in 0..REQUESTS {
            all.extend(parse(&format!("Tgetattr tag {tag} fid 0 request_mask 0x1"), Dialect::Linux).unwrap());
        }
        // More than is read at a time, less than a frame, and some of several.
        let mut sizes = [5000, 3, 1, 900, 40_000, 20].into_iter().cycle();
        let mut left = &all[..];
        while !left.is_empty() {
            let (now, then) = left.split_at(left.len().min(sizes.next().unwrap()));
            to.write_all(now).await.unwrap();
            tokio::task::yield_now().await;
            left = then;
        }
        // And the end behind it.
        to.shutdown().await.unwrap();
    };
    let reads = async {
        let mut replies = Vec::new();
        from.read_to_end(&mut replies).await.unwrap();
        replies
    };
    let ((), replies) =
        tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(writes, reads) }).await.unwrap();
    served.await.unwrap();
    let (mut left, mut kinds) = (&replies[..], Vec::new());
    while !left.is_empty() {
        kinds.push(left[4]);
        left = &left[u32::from_le_bytes(left[..4].try_into().unwrap()) as usize..];
    }
    let getattrs = kinds.iter().filter(|&&kind| kind == 25).count();
    assert_eq!((getattrs, kinds.len()), (REQUESTS, REQUESTS + 2));
}

/// Large frames are read by themselves, and where the next are small, or large again, or come in pieces, all the same is written.
#[tokio::test]
async fn large_and_small_writes_that_come_together_or_in_pieces_write_what_they_have() {
    let tree = RamFs::new();
    tree.set_root(0, 0, 0o777);
    let server = Server::builder().export("", Arc::new(tree), false).build();
    let (near, far) = UnixStream::pair().unwrap();
    let served = tokio::spawn(server.serve(far, Peer::Unix { uid: 0, gid: 0, pid: 0 }));
    let (mut from, mut to) = near.into_split();
    let sizes = [200_000, 1, 1 << 20, 1 << 20, 70_000, 5, 0, 131_049, 131_050, 131_072, 1 << 20, 300_000, 300_000];
    let sizes = sizes.repeat(4);
    let byte = |at: usize| (at ^ at >> 8 ^ at >> 16) as u8;
    for message in [
        "Tversion tag -1 msize 1048600 version '9P2000.L'",
        "Tattach tag 0 fid 0 afid -1 uname 'u' aname '' n_uname -1",
        "Tlcreate tag 0 fid 0 name 'f' flags 02 mode 0600 gid 0",
    ] {
        to.write_all(&parse(message, Dialect::Linux).unwrap()).await.unwrap();
        reply(&mut from).await;
    }
    let (mut all, mut size) = (Vec::new(), 0);
    for (tag, &count) in (1u16..).zip(&sizes) {
        all.extend((23 + count as u32).to_le_bytes());
        all.push(118);
        all.extend(tag.to_le_bytes());
        all.extend(0u32.to_le_bytes());
        all.extend((size as u64).to_le_bytes());
        all.extend((count as u32).to_le_bytes());
        all.extend((size..size + count).map(byte));
        size += count;
    }
    let mut pieces = [5_000_000, 3, 100_000, 1, 900, 2_000_000, 20, 65_536].into_iter().cycle();
    let writes = async {
        let mut left = &all[..];
        while !left.is_empty() {
            let (now, then) = left.split_at(left.len().min(pieces.next().unwrap()));
            to.write_all(now).await.unwrap();
            tokio::task::yield_now().await;
            left = then;
        }
        let mut at = 0;
        while at < size {
            let read = format!("Tread tag {} fid 0 offset {at} count 1000000", 1000 + at / 1_000_000);
            to.write_all(&parse(&read, Dialect::Linux).unwrap()).await.unwrap();
            at += 1_000_000;
        }
        to.shutdown().await.unwrap();
    };
    let reads = async {
        let mut replies = Vec::new();
        from.read_to_end(&mut replies).await.unwrap();
        replies
    };
    let ((), replies) =
        tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(writes, reads) }).await.unwrap();
    served.await.unwrap();
    let (mut left, mut wrote, mut at) = (&replies[..], 0, 0);
    while !left.is_empty() {
        let (reply, then) = left.split_at(u32::from_le_bytes(left[..4].try_into().unwrap()) as usize);
        match reply[4] {
            119 => wrote += u32::from_le_bytes(reply[7..11].try_into().unwrap()) as usize,
            117 => {
                assert!((at..).zip(&reply[11..]).all(|(at, &b)| b == byte(at)), "what was read at {at}");
                at += reply.len() - 11;
            }
            _ => panic!("{reply:?}"),
        }
        left = then;
    }
    assert_eq!((wrote, at), (size, size));
}

/// A file that has its attributes at once.
struct Ready;

impl FileServer for Ready {
    fn attach(&self, _: &Cx, _: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        Answer::ok((QID, Arc::new(Ready)))
    }
}

impl File for Ready {
    fn walk(&self, _: &Cx, _: &[WalkElem<'_>]) -> Answer<Walked> {
        Answer::ok(Walked { qids: Vec::new(), file: Some(Arc::new(Ready)) })
    }

    fn open(&self, _: &Cx, _: Open) -> Answer<Qid> {
        Answer::ok(QID)
    }

    fn stat(&self, _: &Cx) -> Answer<StatBuf> {
        Answer::ok(StatBuf::default())
    }

    fn getattr(&self, _: &Cx, _: u64) -> Answer<Attr> {
        Answer::ok(Attr::default())
    }
}
