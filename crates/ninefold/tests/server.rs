//! The server over an in-memory stream in virtual time, with a file server whose answers the test controls.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ninefold::proto::attr::Attr;
use ninefold::proto::open::Open;
use ninefold::proto::print::{Data, parse, print};
use ninefold::proto::stat::StatBuf;
use ninefold::proto::types::WalkElem;
use ninefold::proto::{Dialect, Errno, Qid, QidType};
use ninefold::server::{self, Answer, Attach, Cx, File, FileServer, Limits, Server, Walked};
use ninefold::transport::{Peer, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::Semaphore;

/// Counts what happens. Reads at offset 0 are answered at once, at 1 when the test lets them, at 2 only
/// when cancelled; at 3 and 4 they panic, at once and later; at 5 they wait for a write. Clunks are answered when the test lets them, if it wants them slow.
struct Probe {
    reads: AtomicUsize,
    files: AtomicUsize,
    clunks: AtomicUsize,
    slow_clunks: AtomicBool,
    gate: Semaphore,
}

#[derive(Clone)]
struct Tree(Arc<Probe>);

const QID: Qid = Qid { kind: QidType::FILE, version: 0, path: 1 };

impl FileServer for Tree {
    fn attach(&self, _: &Cx, _: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        self.0.files.fetch_add(1, Ordering::SeqCst);
        Answer::ok((QID, Arc::new(self.clone())))
    }
}

impl File for Tree {
    fn walk(&self, _: &Cx, _: &[WalkElem<'_>]) -> Answer<Walked> {
        self.0.files.fetch_add(1, Ordering::SeqCst);
        Answer::ok(Walked { qids: Vec::new(), file: Some(Arc::new(self.clone())) })
    }

    fn open(&self, _: &Cx, _: Open) -> Answer<Qid> {
        Answer::ok(QID)
    }

    fn read(&self, cx: &Cx, offset: u64, count: u32) -> Answer<server::Data> {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        let (cx, probe) = (cx.clone(), self.0.clone());
        match offset {
            0 => Answer::ok(vec![7; count as usize].into()),
            1 => Answer::later(async move {
                probe.gate.acquire().await.map_err(|_| Errno::EIO)?.forget();
                Ok(vec![8; count as usize].into())
            }),
            3 => panic!("a file server's bug"),
            4 => Answer::later(async { panic!("a file server's bug") }),
            5 => Answer::later(async move {
                let _parked = cx.park()?;
                probe.gate.acquire().await.map_err(|_| Errno::EIO)?.forget();
                Ok(vec![9; count as usize].into())
            }),
            _ => Answer::later(async move {
                let _parked = cx.park()?;
                cx.cancelled().await;
                Err(Errno::EINTR.into())
            }),
        }
    }

    /// Lets as many reads go on as there are bytes.
    fn write(&self, _: &Cx, _: u64, data: bytes::Bytes) -> Answer<u32> {
        self.0.gate.add_permits(data.len());
        Answer::ok(data.len() as u32)
    }

    fn getattr(&self, _: &Cx, _: u64) -> Answer<Attr> {
        Answer::ok(Attr::default())
    }

    fn stat(&self, _: &Cx) -> Answer<StatBuf> {
        Answer::ok(StatBuf::default())
    }

    fn clunk(&self, _: &Cx) -> Answer<()> {
        self.0.clunks.fetch_add(1, Ordering::SeqCst);
        if !self.0.slow_clunks.load(Ordering::SeqCst) {
            return Answer::ok(());
        }
        let probe = self.0.clone();
        Answer::later(async move {
            probe.gate.acquire().await.map_err(|_| Errno::EIO)?.forget();
            Ok(())
        })
    }
}

struct Client {
    stream: DuplexStream,
    probe: Arc<Probe>,
    server: Arc<Server>,
    served: tokio::task::JoinHandle<()>,
    dialect: Dialect,
}

/// The bound of a wait that ought to end at once; time is virtual.
const SOON: Duration = Duration::from_secs(3600);

impl Client {
    fn connect(limits: Limits) -> Client {
        Client::connect_over(limits, Stream::other)
    }

    /// `carry` makes of the far end what the server serves.
    fn connect_over(limits: Limits, carry: impl FnOnce(DuplexStream) -> Stream) -> Client {
        let probe = Arc::new(Probe {
            reads: AtomicUsize::new(0),
            files: AtomicUsize::new(0),
            clunks: AtomicUsize::new(0),
            slow_clunks: AtomicBool::new(false),
            gate: Semaphore::new(0),
        });
        let server = Server::builder().export("", Arc::new(Tree(probe.clone())), false).limits(limits).build();
        let (stream, far) = tokio::io::duplex(4096);
        let served = tokio::spawn(server.serve(carry(far), Peer::Stdio));
        Client { stream, probe, server, served, dialect: Dialect::Linux }
    }

    /// Version, attach on fid 0, and fid 1 open.
    async fn ready(limits: Limits) -> Client {
        let mut c = Client::connect(limits);
        c.ask("Tversion tag -1 msize 65536 version '9P2000.L'").await;
        c.ask("Tattach tag 1 fid 0 afid -1 uname 'u' aname '' n_uname -1").await;
        c.ask("Twalk tag 1 fid 0 newfid 1 nwname 0").await;
        c.ask("Tlopen tag 1 fid 1 flags 0").await;
        c
    }

    /// The same under `.ix`.
    async fn grouped(limits: Limits, carry: impl FnOnce(DuplexStream) -> Stream) -> Client {
        Client::grouped_at(65536, limits, carry).await
    }

    async fn grouped_at(msize: u32, limits: Limits, carry: impl FnOnce(DuplexStream) -> Stream) -> Client {
        let mut c = Client { dialect: Dialect::Plan9, ..Client::connect_over(limits, carry) };
        c.ask(&format!("Tversion tag -1 msize {msize} version '9P2000.ix'")).await;
        c.ask("Tattach tag 1 fid 0 afid -1 uname 'u' aname ''").await;
        c.ask("Twalk tag 1 fid 0 newfid 1 nwname 0").await;
        c.ask("Topen tag 1 fid 1 mode 0").await;
        c
    }

    async fn send(&mut self, line: &str) {
        let frame = parse(line, self.dialect).unwrap();
        tokio::time::timeout(SOON, self.stream.write_all(&frame)).await.unwrap().unwrap();
    }

    async fn receive(&mut self) -> String {
        let mut frame = vec![0; 4];
        tokio::time::timeout(SOON, self.stream.read_exact(&mut frame)).await.unwrap().unwrap();
        let size = u32::from_le_bytes(frame[..4].try_into().unwrap());
        frame.resize(size as usize, 0);
        self.stream.read_exact(&mut frame[4..]).await.unwrap();
        print(&frame, self.dialect, Data::Elided).to_string()
    }

    async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        self.receive().await
    }

    async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        tokio::time::timeout(SOON, self.stream.read_to_end(&mut rest)).await.unwrap().unwrap();
        rest.is_empty()
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_holds_up_no_other_and_is_ended_by_tflush() {
    let mut c = Client::ready(Limits { running: 1, ..Limits::default() }).await;
    c.send("Tread tag 10 fid 1 offset 2 count 5").await;
    assert_eq!(c.ask("Tread tag 11 fid 1 offset 0 count 5").await, "Rread tag 11 count 5 ...");
    assert_eq!(c.ask("Tflush tag 12 oldtag 10").await, "Rflush tag 12");
    assert_eq!(c.ask("Tread tag 10 fid 1 offset 0 count 5").await, "Rread tag 10 count 5 ...");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_costs_no_other_group_its_members() {
    let mut c = Client::grouped(Limits::default(), Stream::other).await;
    c.send("Tread tag 3 fid 1 offset 2 count 5").await;
    for _ in 0..100 {
        c.send("Tread tag 6 fid 1 offset 1 count 5").await;
    }
    // Time goes on when the server has done what it can.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(c.probe.reads.load(Ordering::SeqCst), 2);
    c.probe.gate.add_permits(100);
    for _ in 0..100 {
        assert_eq!(c.receive().await, "Rread tag 6 count 5 ...");
    }
    // What does wait for the parked one is told so.
    for _ in 0..64 {
        c.send("Tread tag 3 fid 1 offset 0 count 5").await;
    }
    assert_eq!(c.ask("Tflush tag 12 oldtag 3").await, "Rflush tag 12");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_with_others_behind_it_delays_no_reply() {
    let mut c = Client::grouped(Limits::default(), Stream::other).await;
    c.send("Tread tag 3 fid 1 offset 2 count 5").await;
    c.send("Tread tag 3 fid 1 offset 0 count 5").await;
    // Time is virtual: it stands still while somebody has something to do.
    let began = tokio::time::Instant::now();
    for _ in 0..10 {
        assert_eq!(c.ask("Tread tag 4 fid 1 offset 0 count 5").await, "Rread tag 4 count 5 ...");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_tflush_passes_a_group_that_is_at_its_limit() {
    let mut c = Client::grouped(Limits::default(), Stream::other).await;
    c.send("Tread tag 7 fid 1 offset 2 count 5").await;
    for _ in 0..70 {
        c.send("Tread tag 6 fid 1 offset 1 count 5").await;
    }
    c.send("Tread tag 8 fid 1 offset 0 count 5").await;
    c.send("Tflush tag 6 oldtag 8").await;
    assert_eq!(c.ask("Tflush tag 9 oldtag 7").await, "Rflush tag 9");
    assert_eq!(c.probe.reads.load(Ordering::SeqCst), 2, "the others are held back");
    c.send("Tflush tag 10 oldtag 6").await;
    assert_eq!(c.receive().await, "Rread tag 8 count 5 ...", "nothing of the full tag is before it any more");
    c.probe.gate.add_permits(70);
    assert_eq!(c.receive().await, "Rread tag 6 count 5 ...");
    assert_eq!(c.receive().await, "Rflush tag 10");
    assert_eq!(c.ask("Tread tag 6 fid 1 offset 0 count 5").await, "Rread tag 6 count 5 ...");
    assert_eq!(c.probe.reads.load(Ordering::SeqCst), 4, "the rest never ran");
}

#[tokio::test(start_paused = true)]
async fn a_tflush_passes_a_large_frame_that_is_held_back_but_not_a_tclunk_that_it_would_undo() {
    let mut c = Client::grouped_at(1 << 20, Limits::default(), Stream::other).await;
    assert_eq!(c.ask("Twalk tag 1 fid 0 newfid 5 nwname 0").await, "Rwalk tag 1 nwqid 0");
    c.send("Tread tag 7 fid 1 offset 2 count 5").await;
    for _ in 0..64 {
        c.send("Tread tag 6 fid 1 offset 1 count 5").await;
    }
    c.send(&format!("Twrite tag 6 fid 0 offset 0 count 200000 '{}'", "x".repeat(200_000))).await;
    c.send("Tclunk tag 8 fid 5").await;
    c.send("Tflush tag 10 oldtag 8").await;
    assert_eq!(c.ask("Tflush tag 9 oldtag 7").await, "Rflush tag 9");
    c.probe.gate.add_permits(64);
    let mut rest = Vec::new();
    for _ in 0..67 {
        rest.push(c.receive().await);
    }
    let at = |line: &str| rest.iter().position(|got| got == line).unwrap_or_else(|| panic!("no {line} in {rest:?}"));
    assert!(at("Rclunk tag 8") < at("Rflush tag 10"), "{rest:?}");
    assert_eq!(c.ask("Twalk tag 1 fid 0 newfid 5 nwname 0").await, "Rwalk tag 1 nwqid 0");
}

#[tokio::test(start_paused = true)]
async fn what_is_held_back_when_the_client_ends_its_requests_is_still_answered() {
    let mut c = Client::grouped(Limits::default(), Stream::other).await;
    for _ in 0..100 {
        c.send("Tread tag 6 fid 1 offset 1 count 5").await;
    }
    c.stream.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    c.probe.gate.add_permits(100);
    for _ in 0..100 {
        assert_eq!(c.receive().await, "Rread tag 6 count 5 ...");
    }
    assert!(c.is_closed().await);
    tokio::time::timeout(SOON, c.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_read_behind_a_group_at_its_limit_is_bounded() {
    let mut c = Client::grouped(Limits::default(), Stream::other).await;
    let frame = parse("Tread tag 6 fid 1 offset 1 count 5", c.dialect).unwrap();
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_secs(1), c.stream.write_all(&frame)).await.is_ok() {
        sent += frame.len();
        assert!(sent < 1 << 20, "the server goes on reading");
    }
    c.probe.gate.add_permits(sent);
    for _ in 0..sent / frame.len() {
        assert_eq!(c.receive().await, "Rread tag 6 count 5 ...");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_tattach_fails_is_answered_also_where_a_large_frame_follows() {
    let mut c = Client { dialect: Dialect::Plan9, ..Client::connect(Limits::default()) };
    c.ask("Tversion tag -1 msize 1048576 version '9P2000.ix'").await;
    let data = "x".repeat(300_000);
    assert!(c.ask("Tattach tag 1 fid 0 afid -1 uname 'u' aname 'dir'").await.starts_with("Rerror tag 1 "));
    c.send(&format!("Twrite tag 1 fid 0 offset 0 count 300000 '{data}'")).await;
    assert_eq!(c.receive().await, "Rerror tag 1 ename 'unknown fid'");
    assert!(c.ask("Tattach tag 1 fid 0 afid -1 uname 'u' aname ''").await.starts_with("Rattach tag 1 "));
    let large = format!("Twrite tag 1 fid 9 offset 0 count 300000 '{data}'");
    assert_eq!(c.ask(&large).await, "Rerror tag 1 ename 'unknown fid'", "kept, and refused as any other");
    // One that does not end is waited for only so long.
    c.ask("Tclunk tag 1 fid 0").await;
    let began = tokio::time::Instant::now();
    c.stream.write_all(&parse(&large, c.dialect).unwrap()[..100_000]).await.unwrap();
    c.receive().await;
    assert!(c.is_closed().await);
    assert_eq!(began.elapsed(), Limits::default().frame);
}

#[tokio::test(start_paused = true)]
async fn each_of_several_large_frames_that_are_not_kept_has_its_own_time() {
    let mut c = Client { dialect: Dialect::Plan9, ..Client::connect(Limits::default()) };
    c.ask("Tversion tag -1 msize 1048576 version '9P2000.ix'").await;
    let line = format!("Twrite tag 1 fid 0 offset 0 count 300000 '{}'", "x".repeat(300_000));
    let frames = parse(&line, c.dialect).unwrap().repeat(8);
    for piece in frames.chunks(100_000) {
        tokio::time::sleep(Limits::default().frame / 5).await;
        tokio::time::timeout(SOON, c.stream.write_all(piece)).await.unwrap().unwrap();
    }
    for _ in 0..8 {
        assert_eq!(c.receive().await, "Rerror tag 1 ename 'unknown fid'");
    }
}

#[tokio::test(start_paused = true)]
async fn more_waiting_requests_than_the_limit_are_told_to_try_again() {
    let mut c = Client::ready(Limits { parked: 3, ..Limits::default() }).await;
    for tag in 10..13 {
        c.send(&format!("Tread tag {tag} fid 1 offset 2 count 5")).await;
    }
    assert_eq!(c.ask("Tread tag 13 fid 1 offset 2 count 5").await, "Rlerror tag 13 ecode 11");
    assert_eq!(c.ask("Tflush tag 14 oldtag 11").await, "Rflush tag 14");
    c.send("Tread tag 15 fid 1 offset 2 count 5").await;
    assert_eq!(c.ask("Tread tag 16 fid 1 offset 2 count 5").await, "Rlerror tag 16 ecode 11");
}

#[tokio::test(start_paused = true)]
async fn waiting_reads_that_ask_for_much_hold_up_neither_tflush_nor_the_end_of_the_connection() {
    let mut c = Client::ready(Limits { unsent: 100_000, ..Limits::default() }).await;
    c.send("Tread tag 10 fid 1 offset 2 count 60000").await;
    assert_eq!(
        c.ask("Tread tag 11 fid 1 offset 2 count 60000").await,
        "Rlerror tag 11 ecode 11",
        "their bytes are bounded"
    );
    c.send("Tread tag 12 fid 1 offset 2 count 39999").await;
    assert_eq!(c.ask("Tread tag 13 fid 1 offset 0 count 5").await, "Rread tag 13 count 5 ...");
    assert_eq!(c.ask("Tflush tag 14 oldtag 10").await, "Rflush tag 14");
    drop(c.stream);
    tokio::time::timeout(SOON, c.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_single_waiting_read_may_ask_for_more_than_all_replies_may_take() {
    let mut c = Client::ready(Limits { unsent: 10_000, ..Limits::default() }).await;
    c.send("Tread tag 10 fid 1 offset 2 count 60000").await;
    assert_eq!(c.ask("Tflush tag 14 oldtag 10").await, "Rflush tag 14");
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_of_running_requests_nothing_more_is_started_until_one_is_done() {
    let mut c = Client::ready(Limits { running: 2, ..Limits::default() }).await;
    for tag in 10..15 {
        c.send(&format!("Tread tag {tag} fid 1 offset 1 count 5")).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(c.probe.reads.load(Ordering::SeqCst), 2);
    c.probe.gate.add_permits(5);
    let mut tags: Vec<String> = Vec::new();
    for _ in 0..5 {
        tags.push(c.receive().await);
    }
    tags.sort();
    let expected: Vec<String> = (10..15).map(|tag| format!("Rread tag {tag} count 5 ...")).collect();
    assert_eq!(tags, expected);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_replies_is_given_no_more_than_the_limit() {
    let mut c = Client::ready(Limits { unsent: 100_000, ..Limits::default() }).await;
    // Each reply leaves the tag free, so the same frame may be sent again and again.
    let frame = parse("Tread tag 10 fid 1 offset 0 count 60000", Dialect::Linux).unwrap();
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_secs(1), c.stream.write_all(&frame)).await.is_ok() {
        sent += 1;
        assert!(sent < 10_000, "the server goes on reading");
    }
    let started = c.probe.reads.load(Ordering::SeqCst);
    assert!(started <= 3, "{started} replies of 60,000 bytes for a limit of 100,000");
    for _ in 0..=started {
        assert_eq!(c.receive().await, "Rread tag 10 count 60000 ...");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_closed_after_the_handshake_time() {
    let limits = Limits::default();
    let mut c = Client::connect(limits);
    let began = tokio::time::Instant::now();
    assert!(c.is_closed().await);
    assert_eq!(began.elapsed().as_secs(), limits.handshake.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_does_not_end_is_waited_for_only_so_long() {
    let limits = Limits::default();
    let mut c = Client::ready(limits).await;
    let began = tokio::time::Instant::now();
    c.stream.write_all(b"\x20\0\0\0").await.unwrap();
    tokio::time::sleep(limits.frame / 2).await;
    c.stream.write_all(b"\x74").await.unwrap();
    assert!(c.is_closed().await);
    assert_eq!(began.elapsed().as_secs(), limits.frame.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_the_server_does_not_read_on_is_waited_for_as_long_as_that_takes() {
    let limits = Limits { running: 1, ..Limits::default() };
    let mut c = Client::ready(limits).await;
    let mut bytes = parse("Tread tag 10 fid 1 offset 1 count 5", Dialect::Linux).unwrap();
    let next = parse("Tread tag 11 fid 1 offset 0 count 5", Dialect::Linux).unwrap();
    bytes.extend(&next[..9]);
    c.stream.write_all(&bytes).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    c.stream.write_all(&next[9..]).await.unwrap();
    tokio::time::sleep(limits.frame * 2).await;
    c.probe.gate.add_permits(1);
    assert_eq!(c.receive().await, "Rread tag 10 count 5 ...");
    assert_eq!(c.receive().await, "Rread tag 11 count 5 ...");
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_stays_connected() {
    let mut c = Client::ready(Limits::default()).await;
    tokio::time::sleep(Duration::from_secs(7 * 24 * 3600)).await;
    assert_eq!(c.ask("Tread tag 11 fid 1 offset 0 count 5").await, "Rread tag 11 count 5 ...");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_takes_leave_of_every_file_once() {
    let mut c = Client::ready(Limits::default()).await;
    c.send("Tread tag 10 fid 1 offset 2 count 5").await;
    c.send("Tread tag 12 fid 1 offset 1 count 5").await;
    assert_eq!(c.ask("Twalk tag 11 fid 1 newfid 2 nwname 0").await, "Rwalk tag 11 nwqid 0");
    drop(c.stream);
    c.probe.gate.add_permits(1);
    tokio::time::timeout(SOON, c.served).await.unwrap().unwrap();
    assert_eq!(c.probe.files.load(Ordering::SeqCst), 3);
    assert_eq!(c.probe.clunks.load(Ordering::SeqCst), 3);
    assert_eq!(c.server.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_clunks_no_more_files_at_one_time_than_requests_may_run() {
    let mut c = Client::ready(Limits { running: 2, ..Limits::default() }).await;
    for fid in 2..20 {
        c.ask(&format!("Twalk tag 11 fid 0 newfid {fid} nwname 0")).await;
    }
    c.probe.slow_clunks.store(true, Ordering::SeqCst);
    drop(c.stream);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(c.probe.clunks.load(Ordering::SeqCst), 2);
    c.probe.gate.add_permits(20);
    tokio::time::timeout(SOON, c.served).await.unwrap().unwrap();
    assert_eq!(c.probe.clunks.load(Ordering::SeqCst), 20);
}

#[tokio::test(start_paused = true)]
async fn an_attach_that_fails_behind_its_walk_takes_leave_of_both_files() {
    let mut c = Client::ready(Limits::default()).await;
    // The walk answers a file and no qid, which is out of contract.
    let attach = "Tattach tag 10 fid 5 afid -1 uname 'u' aname 'dir' n_uname -1";
    assert_eq!(c.ask(attach).await, "Rlerror tag 10 ecode 2");
    assert_eq!(c.probe.files.load(Ordering::SeqCst), 4);
    assert_eq!(c.probe.clunks.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_drain_answers_what_was_begun_and_closes() {
    let mut c = Client::ready(Limits::default()).await;
    c.send("Tread tag 10 fid 1 offset 1 count 5").await;
    c.send("Tread tag 11 fid 1 offset 2 count 5").await;
    assert_eq!(c.ask("Tread tag 12 fid 1 offset 0 count 5").await, "Rread tag 12 count 5 ...");
    let server = c.server.clone();
    let drained = tokio::spawn(async move { server.drain().await });
    assert_eq!(c.receive().await, "Rlerror tag 11 ecode 4", "a wait is cancelled");
    tokio::time::sleep(Duration::from_secs(60)).await;
    c.probe.gate.add_permits(1);
    assert_eq!(c.receive().await, "Rread tag 10 count 5 ...", "what runs is answered");
    assert!(c.is_closed().await);
    tokio::time::timeout(SOON, drained).await.unwrap().unwrap();
    assert_eq!(c.probe.clunks.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_replies_does_not_hold_up_the_end() {
    let mut c = Client::ready(Limits::default()).await;
    c.send("Tread tag 10 fid 1 offset 0 count 60000").await;
    tokio::task::yield_now().await;
    let began = tokio::time::Instant::now();
    tokio::time::timeout(SOON, c.server.drain()).await.unwrap();
    assert!(began.elapsed() <= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn frames_cut_anywhere_are_put_together() {
    let mut c = Client::ready(Limits::default()).await;
    let mut bytes = Vec::new();
    for tag in 10..20 {
        bytes.extend(parse(&format!("Tread tag {tag} fid 1 offset 0 count {tag}"), Dialect::Linux).unwrap());
    }
    for chunk in bytes.chunks(3) {
        c.stream.write_all(chunk).await.unwrap();
        tokio::task::yield_now().await;
    }
    for tag in 10..20 {
        assert_eq!(c.receive().await, format!("Rread tag {tag} count {tag} ..."));
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_frame_closes_the_connection_after_the_replies_before_it() {
    let mut c = Client::ready(Limits::default()).await;
    let mut bytes = parse("Tread tag 10 fid 1 offset 0 count 5", Dialect::Linux).unwrap();
    bytes.extend(b"\x03\0\0\0");
    c.stream.write_all(&bytes).await.unwrap();
    assert_eq!(c.receive().await, "Rread tag 10 count 5 ...");
    assert!(c.is_closed().await);
    tokio::time::timeout(SOON, c.served).await.unwrap().unwrap();
    assert_eq!(c.probe.clunks.load(Ordering::SeqCst), 2);
}

/// A stream that takes no byte, says so, and never shuts down.
struct Full(DuplexStream);

impl AsyncRead for Full {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Full {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_shut_down_is_waited_for_only_so_long() {
    let server = Server::builder().build();
    let (stream, far) = tokio::io::duplex(4096);
    let served = tokio::spawn(server.serve(Stream::other(Full(far)), Peer::Stdio));
    drop(stream);
    let began = tokio::time::Instant::now();
    tokio::time::timeout(SOON, served).await.unwrap().unwrap();
    assert!(began.elapsed() <= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_takes_no_byte_ends_the_connection_also_while_it_closes() {
    let server = Server::builder().build();
    let (mut stream, far) = tokio::io::duplex(4096);
    let mut bytes = parse("Tversion tag -1 msize 65536 version '9P2000.L'", Dialect::Linux).unwrap();
    // The frame behind it ends the connection in the same turn, before the reply is sent.
    bytes.extend(b"\x03\0\0\0");
    stream.write_all(&bytes).await.unwrap();
    let served = tokio::spawn(server.serve(Stream::other(Full(far)), Peer::Stdio));
    tokio::time::timeout(SOON, served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_closes_its_own_direction_still_gets_its_replies() {
    let mut c = Client::ready(Limits::default()).await;
    c.send("Tread tag 10 fid 1 offset 1 count 5").await;
    c.send("Tread tag 11 fid 1 offset 2 count 5").await;
    c.stream.shutdown().await.unwrap();
    assert_eq!(c.receive().await, "Rlerror tag 11 ecode 4", "a wait is not to hold the connection for ever");
    c.probe.gate.add_permits(1);
    assert_eq!(c.receive().await, "Rread tag 10 count 5 ...");
    assert!(c.is_closed().await);
    tokio::time::timeout(SOON, c.served).await.unwrap().unwrap();
    assert_eq!(c.probe.clunks.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_file_server_that_panics_fails_its_own_request_only() {
    let mut c = Client::ready(Limits::default()).await;
    assert_eq!(c.ask("Tread tag 10 fid 1 offset 3 count 5").await, "Rlerror tag 10 ecode 5");
    assert_eq!(c.ask("Tread tag 10 fid 1 offset 4 count 5").await, "Rlerror tag 10 ecode 5");
    assert_eq!(c.ask("Tread tag 10 fid 1 offset 0 count 5").await, "Rread tag 10 count 5 ...");
    drop(c.stream);
    tokio::time::timeout(SOON, c.served).await.unwrap().unwrap();
    assert_eq!(c.probe.clunks.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_fid_cannot_announce_a_large_frame() {
    let mut c = Client::connect(Limits::default());
    c.ask("Tversion tag -1 msize 8388608 version '9P2000.L'").await;
    c.stream.write_all(&[0, 0, 0x10, 0, 118, 1, 0]).await.unwrap();
    assert!(c.is_closed().await);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_a_client_that_is_idle_with_its_fids() {
    let mut c = Client::ready(Limits::default()).await;
    let began = tokio::time::Instant::now();
    tokio::time::timeout(SOON, c.server.drain()).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(c.is_closed().await);
    assert_eq!(c.probe.clunks.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_tversion_with_the_end_of_the_stream_behind_it_is_answered() {
    let mut c = Client::ready(Limits::default()).await;
    c.send("Tversion tag -1 msize 8192 version '9P2000.L'").await;
    c.stream.shutdown().await.unwrap();
    assert_eq!(c.receive().await, "Rversion tag -1 msize 8192 version '9P2000.L'");
    assert!(c.is_closed().await);
    tokio::time::timeout(SOON, c.served).await.unwrap().unwrap();
    assert_eq!(c.probe.clunks.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_its_last_replies_slowly_gets_them_whole() {
    let mut c = Client::ready(Limits::default()).await;
    c.send("Tread tag 10 fid 1 offset 0 count 60000").await;
    c.stream.shutdown().await.unwrap();
    let mut got = 0;
    let mut part = [0; 4000];
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        match c.stream.read(&mut part).await.unwrap() {
            0 => break,
            n => got += n,
        }
    }
    assert_eq!(got, 60_011);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_its_last_replies_byte_by_byte_is_left_in_the_end() {
    let limits = Limits::default();
    let mut c = Client::ready(limits).await;
    c.send("Tread tag 10 fid 1 offset 0 count 60000").await;
    c.stream.shutdown().await.unwrap();
    let began = tokio::time::Instant::now();
    while !c.served.is_finished() {
        tokio::time::sleep(Duration::from_secs(4)).await;
        c.stream.read_u8().await.unwrap();
    }
    assert!(began.elapsed() < limits.frame + Duration::from_secs(20), "{:?}", began.elapsed());
}

/// A stream that says of a peer that is gone what a socket does after a reset.
struct Reset(DuplexStream);

impl AsyncRead for Reset {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.0).poll_read(cx, buf) {
            Poll::Ready(Ok(())) if buf.filled().len() == before => {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            read => read,
        }
    }
}

impl AsyncWrite for Reset {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Reads of a group whose replies are far larger together than may be unsent.
const MANY: usize = 20;

/// One group of which the first read waits to be cancelled, and so does the one behind it.
async fn with_two_waits(carry: impl FnOnce(DuplexStream) -> Stream) -> Client {
    let mut c = Client::grouped(Limits::default(), carry).await;
    c.send("Tread tag 9 fid 1 offset 2 count 5").await;
    c.send("Tread tag 9 fid 1 offset 2 count 5").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(c.probe.reads.load(Ordering::SeqCst), 1);
    c
}

/// One group whose first read the test lets go on, with [`MANY`] large reads behind it.
async fn with_many_replies(carry: impl FnOnce(DuplexStream) -> Stream) -> Client {
    let mut c = Client::grouped(Limits { unsent: 100_000, ..Limits::default() }, carry).await;
    c.send("Tread tag 9 fid 1 offset 1 count 5").await;
    for _ in 0..MANY {
        c.send("Tread tag 9 fid 1 offset 0 count 60000").await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(c.probe.reads.load(Ordering::SeqCst), 1);
    c
}

impl Client {
    /// The connection ends by itself, and every file is taken leave of.
    async fn ends(self) {
        tokio::time::timeout(SOON, self.served).await.expect("the connection stays").unwrap();
        assert_eq!(self.probe.clunks.load(Ordering::SeqCst), self.probe.files.load(Ordering::SeqCst));
    }

    /// Lets the first read of a group go on; then the limit of unsent replies stops those behind it.
    async fn goes_on_to_the_limit(&self) {
        self.probe.gate.add_permits(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = self.probe.reads.load(Ordering::SeqCst);
        assert!((2..5).contains(&begun), "{begun} were begun");
    }

    async fn starts_to_drain(&self) -> tokio::task::JoinHandle<()> {
        let server = self.server.clone();
        let drained = tokio::spawn(async move { server.drain().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        drained
    }
}

#[tokio::test(start_paused = true)]
async fn waits_of_one_group_are_cancelled_one_after_another_when_the_peer_closes_its_direction() {
    let mut c = with_two_waits(Stream::other).await;
    c.stream.shutdown().await.unwrap();
    for _ in 0..2 {
        assert!(c.receive().await.starts_with("Rerror tag 9 "));
    }
    assert!(c.is_closed().await);
    c.ends().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_with_more_replies_than_the_limit_is_answered_whole_after_the_peer_has_closed_its_direction() {
    let mut c = with_many_replies(Stream::other).await;
    c.stream.shutdown().await.unwrap();
    c.goes_on_to_the_limit().await;
    assert_eq!(c.receive().await, "Rread tag 9 count 5 ...");
    for _ in 0..MANY {
        assert_eq!(c.receive().await, "Rread tag 9 count 60000 ...");
    }
    assert!(c.is_closed().await);
    c.ends().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_group_a_drain_cancels_the_wait_and_starts_nothing_behind_it() {
    let mut c = with_two_waits(Stream::other).await;
    let drained = c.starts_to_drain().await;
    assert!(c.receive().await.starts_with("Rerror tag 9 "));
    assert!(c.is_closed().await);
    assert_eq!(c.probe.reads.load(Ordering::SeqCst), 1);
    c.ends().await;
    tokio::time::timeout(SOON, drained).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_a_group_with_more_replies_than_the_limit_a_drain_answers_what_was_begun() {
    let mut c = with_many_replies(Stream::other).await;
    c.goes_on_to_the_limit().await;
    let begun = c.probe.reads.load(Ordering::SeqCst);
    let drained = c.starts_to_drain().await;
    assert_eq!(c.receive().await, "Rread tag 9 count 5 ...");
    for _ in 1..begun {
        assert_eq!(c.receive().await, "Rread tag 9 count 60000 ...");
    }
    assert!(c.is_closed().await);
    assert_eq!(c.probe.reads.load(Ordering::SeqCst), begun);
    c.ends().await;
    tokio::time::timeout(SOON, drained).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_reset_ends_whatever_waits_in_its_groups() {
    for closed_before in [false, true] {
        for many in [false, true] {
            // Where the end of its requests came before, only sending tells that it is gone.
            let carry: fn(DuplexStream) -> Stream =
                if closed_before { Stream::other } else { |far| Stream::other(Reset(far)) };
            let mut c = if many { with_many_replies(carry).await } else { with_two_waits(carry).await };
            if closed_before {
                c.stream.shutdown().await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            if many {
                c.goes_on_to_the_limit().await;
            }
            // A stream of its own in the peer's place, so that the old one is gone.
            c.stream = tokio::io::duplex(1).0;
            c.ends().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_closes_and_takes_no_replies_does_not_hold_up_the_end_of_its_groups() {
    for (many, drain) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut c = if many { with_many_replies(Stream::other).await } else { with_two_waits(Stream::other).await };
        if !drain {
            // Before the limit: beyond it the server reads nothing, and does not hear of it.
            c.stream.shutdown().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        if many {
            c.goes_on_to_the_limit().await;
        }
        if drain {
            c.starts_to_drain().await;
        }
        // The stream stays, and nobody reads from it.
        let stream = std::mem::replace(&mut c.stream, tokio::io::duplex(1).0);
        let (probe, begun) = (c.probe.clone(), c.probe.reads.load(Ordering::SeqCst));
        c.ends().await;
        if many {
            assert_eq!(probe.reads.load(Ordering::SeqCst), begun, "what nobody will take is not read");
        }
        drop(stream);
    }
}

/// As many as may wait for those of their tag before them.
const PARKED: usize = 4096;

/// The write that frees all of them is read while they are parked, and every one is answered, to a client that takes no reply
/// before it has sent everything.
async fn are_freed_by_a_write(c: &mut Client, tags: usize) {
    c.send(&format!("Twrite tag 9000 fid 2 offset 0 count {PARKED} '{}'", "x".repeat(PARKED))).await;
    let mut answered = vec![0; tags];
    let mut written = 0;
    for _ in 0..=PARKED {
        let line = c.receive().await;
        match line.strip_prefix("Rread tag ") {
            Some(rest) => answered[rest.split(' ').next().unwrap().parse::<usize>().unwrap()] += 1,
            None => {
                assert_eq!(line, format!("Rwrite tag 9000 count {PARKED}"));
                written += 1;
            }
        }
    }
    assert_eq!((written, answered), (1, vec![PARKED / tags; tags]));
}

#[tokio::test(start_paused = true)]
async fn four_thousand_parked_requests_are_freed_by_a_write_that_comes_behind_them() {
    let mut c = Client::ready(Limits { parked: PARKED, ..Limits::default() }).await;
    c.ask("Twalk tag 1 fid 0 newfid 2 nwname 0").await;
    c.ask("Tlopen tag 1 fid 2 flags 1").await;
    for tag in 0..PARKED {
        c.send(&format!("Tread tag {tag} fid 1 offset 5 count 5")).await;
    }
    are_freed_by_a_write(&mut c, PARKED).await;
}

#[tokio::test(start_paused = true)]
async fn four_thousand_requests_of_groups_that_are_parked_are_freed_by_a_write_that_comes_behind_them() {
    // One of each tag is parked, and the others wait for it.
    let mut c = Client::grouped(Limits::default(), Stream::other).await;
    c.ask("Twalk tag 1 fid 0 newfid 2 nwname 0").await;
    c.ask("Topen tag 1 fid 2 mode 1").await;
    for n in 0..PARKED {
        c.send(&format!("Tread tag {} fid 1 offset 5 count 5", n % 64)).await;
    }
    are_freed_by_a_write(&mut c, 64).await;
}
