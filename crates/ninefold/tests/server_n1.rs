//! `9P2000.L.n1` over a connection: a group on files of the host, copies between exports, and what the server does in the stead of a
//! file server that has none of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ninefold::proto::attr::Attr;
use ninefold::proto::dialect::Version;
use ninefold::proto::message::R;
use ninefold::proto::n1::listed;
use ninefold::proto::open::Open;
use ninefold::proto::plus::plus_entries;
use ninefold::proto::print::{Data, parse, print};
use ninefold::proto::stat::StatBuf;
use ninefold::proto::types::WalkElem;
use ninefold::proto::wire::split_frame;
use ninefold::proto::{Errno, Qid};
use ninefold::server::{self, Answer, Attach, Create, Created, Cx, File, FileServer, Server, Walked};
use ninefold::transport::{Peer, Stream};
use ninefold::tree::hostfs::HostFs;
use ninefold::tree::ramfs::RamFs;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// The bound of a wait that ought to end soon.
const SOON: Duration = Duration::from_secs(60);

/// Bytes that may be under way each way: all that a test sends.
const UNDER_WAY: usize = 1 << 20;

/// A tree that has what 9P2000.L has, and of `.n1` nothing. Counts its files.
#[derive(Clone)]
struct Bare {
    tree: RamFs,
    files: Arc<AtomicUsize>,
}

impl Bare {
    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        self.files.fetch_add(1, Ordering::SeqCst);
        Arc::new(BareFile { inner, tree: self.clone() })
    }
}

impl FileServer for Bare {
    fn attach(&self, cx: &Cx, who: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        let tree = self.clone();
        self.tree.attach(cx, who).map(move |root| root.map(|(qid, root)| (qid, tree.file(root))))
    }
}

struct BareFile {
    inner: Arc<dyn File>,
    tree: Bare,
}

impl File for BareFile {
    fn walk(&self, cx: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        // It goes between the listing and the walk.
        if elems.iter().any(|elem| matches!(elem, WalkElem::Name(name) if name.as_bytes() == b"gone")) {
            return Answer::err(Errno::ENOENT);
        }
        let tree = self.tree.clone();
        self.inner.walk(cx, elems).map(move |walked| {
            let Walked { qids, file } = walked?;
            Ok(Walked { qids, file: file.map(|file| tree.file(file)) })
        })
    }

    fn open(&self, cx: &Cx, how: Open) -> Answer<Qid> {
        self.inner.open(cx, how)
    }

    fn create(&self, cx: &Cx, what: Create<'_>) -> Answer<Created> {
        let tree = self.tree.clone();
        self.inner.create(cx, what).map(move |made| {
            let Created { qid, file } = made?;
            Ok(Created { qid, file: tree.file(file) })
        })
    }

    fn read(&self, cx: &Cx, offset: u64, count: u32) -> Answer<server::Data> {
        self.inner.read(cx, offset, count)
    }

    fn write(&self, cx: &Cx, offset: u64, data: Bytes) -> Answer<u32> {
        // Never more than a few bytes at a time.
        self.inner.write(cx, offset, data.slice(..data.len().min(4)))
    }

    fn readdir(&self, cx: &Cx, offset: u64, max: u32) -> Answer<Bytes> {
        self.inner.readdir(cx, offset, max)
    }

    fn getattr(&self, cx: &Cx, mask: u64) -> Answer<Attr> {
        self.inner.getattr(cx, mask)
    }

    fn stat(&self, cx: &Cx) -> Answer<StatBuf> {
        self.inner.stat(cx)
    }

    fn clunk(&self, cx: &Cx) -> Answer<()> {
        self.tree.files.fetch_sub(1, Ordering::SeqCst);
        self.inner.clunk(cx)
    }
}

/// A client of all three trees, attached to as the fids 0 (`host`), 100 (`mem`) and 200 (`bare`).
struct Client {
    stream: DuplexStream,
    served: tokio::task::JoinHandle<()>,
    dir: tempfile::TempDir,
    files: Arc<AtomicUsize>,
}

impl Client {
    async fn new() -> Client {
        let dir = tempfile::tempdir().unwrap();
        let bare = Bare { tree: RamFs::new(), files: Arc::default() };
        let files = bare.files.clone();
        let server = Server::builder()
            .export("host", Arc::new(HostFs::open(dir.path()).unwrap()), false)
            .export("mem", Arc::new(RamFs::new()), false)
            .export("bare", Arc::new(bare), false)
            .build();
        let (stream, far) = tokio::io::duplex(UNDER_WAY);
        let served = tokio::spawn(server.serve(Stream::other(far), Peer::Stdio));
        let mut c = Client { stream, served, dir, files };
        c.ask("Tversion tag -1 msize 65536 version '9P2000.L.n1'").await;
        for (fid, aname) in [(0, "host"), (100, "mem"), (200, "bare")] {
            let attach = format!("Tattach tag 1 fid {fid} afid -1 uname '' aname '{aname}' n_uname -1");
            assert!(c.ask(&attach).await.starts_with("Rattach"));
        }
        c
    }

    async fn send(&mut self, line: &str) {
        let frame = parse(line, Version::N1).unwrap_or_else(|e| panic!("{line}: {e}"));
        tokio::time::timeout(SOON, self.stream.write_all(&frame)).await.unwrap().unwrap();
    }

    async fn frame(&mut self) -> Vec<u8> {
        let mut frame = vec![0; 4];
        tokio::time::timeout(SOON, self.stream.read_exact(&mut frame)).await.expect("no reply").unwrap();
        frame.resize(u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize, 0);
        tokio::time::timeout(SOON, self.stream.read_exact(&mut frame[4..])).await.expect("half a reply").unwrap();
        frame
    }

    async fn receive(&mut self) -> String {
        print(&self.frame().await, Version::N1, Data::Whole).to_string()
    }

    async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        self.receive().await
    }

    /// A new file of the directory `root` with these contents, open as `fid`.
    async fn create(&mut self, root: u32, fid: u32, name: &str, data: &str) {
        self.ask(&format!("Twalk tag 1 fid {root} newfid {fid} nwname 0")).await;
        let made = self.ask(&format!("Tlcreate tag 1 fid {fid} name '{name}' flags 02 mode 0644 gid -1")).await;
        assert!(made.starts_with("Rlcreate"), "{made}");
        // Some trees take little at a time.
        let mut at = 0;
        while at < data.len() {
            let (rest, left) = (&data[at..], data.len() - at);
            let wrote = self.ask(&format!("Twrite tag 1 fid {fid} offset {at} count {left} '{rest}'")).await;
            at += wrote.strip_prefix("Rwrite tag 1 count ").expect("a write").parse::<usize>().unwrap();
        }
    }

    async fn read(&mut self, fid: u32) -> String {
        self.ask(&format!("Tread tag 1 fid {fid} offset 0 count 100")).await
    }

    /// Names, whether attributes came, and sizes, in order.
    async fn listing(&mut self, fid: u32, max: u32) -> Vec<(String, u64, u64)> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            self.send(&format!("Treaddirplus tag 1 fid {fid} offset {cookie} count {max} request_mask 0x3fff flags 0"))
                .await;
            let frame = self.frame().await;
            let (header, body) = split_frame(&frame).unwrap();
            let Ok(R::Readdirplus { flags, data }) = R::decode(header.kind, body, Version::N1) else {
                panic!("{}", print(&frame, Version::N1, Data::Whole))
            };
            assert!(data.0.len() <= max as usize);
            for plus in plus_entries(data.0).map(Result::unwrap) {
                all.push((String::from_utf8(plus.entry.name.to_vec()).unwrap(), plus.attr.valid, plus.attr.size));
                cookie = plus.entry.offset;
            }
            if flags.0 & listed::END != 0 {
                return all;
            }
            assert!(!data.0.is_empty(), "nothing, and not the end");
        }
    }

    async fn end(self) {
        drop(self.stream);
        tokio::time::timeout(SOON, self.served).await.unwrap().unwrap();
        assert_eq!(self.files.load(Ordering::SeqCst), 0, "every file got its farewell");
    }
}

#[tokio::test]
async fn a_group_makes_appends_exchanges_and_lists() {
    let mut c = Client::new().await;
    std::fs::write(c.dir.path().join("old"), b"old").unwrap();
    for line in [
        "Twalk tag 5 fid 0 newfid 1 nwname 0",
        "Tlcreate tag 5 fid 1 name 'new' flags 02 mode 0644 gid -1",
        "Twritex tag 5 fid 1 offset 0 flags 01 count 3 'abc'",
        "Twritex tag 5 fid 1 offset 0 flags 03 count 3 'def'",
        "Tcopyrange tag 5 srcfid 1 srcoffset 0 dstfid 1 dstoffset 6 length 2 flags 0",
        "Trename2 tag 5 olddirfid 0 oldname 'new' newdirfid 0 newname 'old' flags 01",
        "Trename2 tag 5 olddirfid 0 oldname 'new' newdirfid 0 newname 'old' flags 02",
        "Tseek tag 5 fid 1 offset 0 whence 4",
        "Taccess tag 5 fid 1 mode 06",
        "Twalk tag 5 fid 0 newfid 2 nwname 0",
        "Tlopen tag 5 fid 2 flags 0",
    ] {
        c.send(line).await;
    }
    for reply in [
        "Rwalk tag 5",
        "Rlcreate tag 5",
        "Rwritex tag 5 offset 0 count 3",
        "Rwritex tag 5 offset 3 count 3",
        "Rcopyrange tag 5 count 2",
        "Rlerror tag 5 ecode 17 ",
        "Rrename2 tag 5",
        "Rseek tag 5 offset 8",
        "Raccess tag 5 mode 06",
        "Rwalk tag 5",
        "Rlopen tag 5",
    ] {
        let told = c.receive().await;
        assert!(told.starts_with(reply), "{told} for {reply}");
    }
    let mut listed: Vec<(String, u64)> =
        c.listing(2, 400).await.into_iter().map(|(name, _, size)| (name, size)).collect();
    listed.retain(|(name, _)| !name.starts_with('.'));
    listed.sort_unstable();
    assert_eq!(listed, [("new".to_owned(), 3), ("old".to_owned(), 8)]);
    assert_eq!(std::fs::read(c.dir.path().join("old")).unwrap(), b"abcdefab");
    c.end().await;
}

#[tokio::test]
async fn a_copy_goes_from_one_export_to_another() {
    let mut c = Client::new().await;
    c.create(0, 1, "f", "0123456789").await;
    c.create(100, 101, "f", "").await;
    c.create(200, 201, "f", "").await;
    for (from, to, count) in [(1, 101, 9), (101, 201, 8), (201, 1, 7)] {
        let copy = format!("Tcopyrange tag 1 srcfid {from} srcoffset 1 dstfid {to} dstoffset 0 length 99 flags 0");
        assert_eq!(c.ask(&copy).await, format!("Rcopyrange tag 1 count {count}"));
    }
    assert_eq!(c.read(101).await, "Rread tag 1 count 9 '123456789'");
    assert_eq!(c.read(201).await, "Rread tag 1 count 8 '23456789'");
    assert_eq!(c.read(1).await, "Rread tag 1 count 10 '3456789789'");
    c.end().await;
}

#[tokio::test]
async fn a_rename_to_another_export_is_refused() {
    let mut c = Client::new().await;
    c.create(0, 1, "f", "").await;
    for flags in 0..3 {
        let told =
            c.ask(&format!("Trename2 tag 1 olddirfid 0 oldname 'f' newdirfid 100 newname 'g' flags {flags}")).await;
        assert!(told.starts_with("Rlerror tag 1 ecode 18 "), "{told}");
    }
    c.end().await;
}

#[tokio::test]
async fn entries_of_a_tree_that_lists_names_only_are_walked_to_and_asked() {
    let mut c = Client::new().await;
    let long = "n".repeat(255);
    for (n, (name, data)) in [("a", "1"), ("gone", "12"), (&*long, "123")].into_iter().enumerate() {
        c.create(200, 201 + n as u32, name, data).await;
    }
    c.ask("Twalk tag 1 fid 200 newfid 210 nwname 0").await;
    c.ask("Tlopen tag 1 fid 210 flags 0").await;
    let held = c.files.load(Ordering::SeqCst);
    // One entry a reply, several, and all.
    for max in [24 + 255 + 140, 700, 60_000] {
        let listed = c.listing(210, max).await;
        let found: Vec<(&str, bool, u64)> =
            listed.iter().map(|(name, valid, size)| (name.as_str(), *valid != 0, *size)).collect();
        assert_eq!(
            found,
            [(".", true, 0), ("..", true, 0), ("a", true, 1), ("gone", false, 0), (long.as_str(), true, 3)],
            "{max} bytes"
        );
        assert_eq!(c.files.load(Ordering::SeqCst), held, "each file that was walked to is clunked");
    }
    let told = c.ask("Treaddirplus tag 1 fid 210 offset 0 count 100 request_mask 0x3fff flags 0").await;
    assert!(told.starts_with("Rlerror tag 1 ecode 22 "), "{told}");
    c.end().await;
}

#[tokio::test]
async fn a_tree_without_it_has_what_can_be_made_of_reads_and_writes_and_no_more() {
    let mut c = Client::new().await;
    c.create(200, 201, "f", "0123456789").await;
    for (line, reply) in [
        ("Twritex tag 1 fid 201 offset 2 flags 02 count 2 'ab'", "Rwritex tag 1 offset 2 count 2"),
        ("Twritex tag 1 fid 201 offset 0 flags 01 count 1 'x'", "Rlerror tag 1 ecode 95 "),
        ("Tseek tag 1 fid 201 offset 5 whence 3", "Rseek tag 1 offset 5"),
        ("Tseek tag 1 fid 201 offset 5 whence 4", "Rseek tag 1 offset 10"),
        ("Tseek tag 1 fid 201 offset 10 whence 3", "Rlerror tag 1 ecode 6 "),
        ("Tseek tag 1 fid 201 offset 10 whence 4", "Rlerror tag 1 ecode 6 "),
        ("Taccess tag 1 fid 201 mode 04", "Rlerror tag 1 ecode 95 "),
        ("Tallocate tag 1 fid 201 mode 0 offset 0 length 20", "Rlerror tag 1 ecode 95 "),
        ("Trename2 tag 1 olddirfid 200 oldname 'f' newdirfid 200 newname 'g' flags 01", "Rlerror tag 1 ecode 95 "),
        ("Trename2 tag 1 olddirfid 200 oldname 'f' newdirfid 200 newname 'g' flags 0", "Rlerror tag 1 ecode 95 "),
        ("Tcopyrange tag 1 srcfid 201 srcoffset 0 dstfid 202 dstoffset 5 length 5 flags 0", "Rlerror tag 1 ecode 9 "),
        ("Twalk tag 1 fid 200 newfid 202 nwname 1 0:f", "Rwalk"),
        ("Tlopen tag 1 fid 202 flags 02", "Rlopen"),
        ("Tcopyrange tag 1 srcfid 201 srcoffset 0 dstfid 202 dstoffset 4 length 5 flags 0", "Rlerror tag 1 ecode 22 "),
        (
            "Tcopyrange tag 1 srcfid 201 srcoffset 0 dstfid 202 dstoffset 10 length 5 flags 0",
            "Rcopyrange tag 1 count 5",
        ),
        (
            "Tcopyrange tag 1 srcfid 201 srcoffset 15 dstfid 202 dstoffset 0 length 5 flags 0",
            "Rcopyrange tag 1 count 0",
        ),
    ] {
        let told = c.ask(line).await;
        assert!(told.starts_with(reply), "{line}: {told}");
    }
    assert_eq!(c.read(202).await, "Rread tag 1 count 15 '01ab45678901ab4'");
    c.end().await;
}
