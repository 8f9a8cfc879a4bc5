//! A part of a file by several streams, from our own server over a way with a delay.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use ninefold::client::{BeginRead, Begun, Client, Error, Fault, File, Follow, Mode, Options, Ranges};
use ninefold::proto::Dialect;
use ninefold::proto::dialect::Version;
use ninefold::server::{Limits, Server, ServerBuilder, StreamLimits};
use ninefold::transport::{Address, Listener, dial};
use ninefold::tree::hostfs::HostFs;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::fake::content;
use crate::support::{carry, change, over};

pub const SIZE: usize = 12_000_001;

/// The bound of waits that ought to end at once; time is real.
pub const SOON: Duration = Duration::from_secs(60);

/// Half of a round trip: one of 40 ms is long enough for eight streams from the beginning on.
const DELAY: Duration = Duration::from_millis(20);

/// The type of the message.
pub const TSTREAM: u8 = 160;

/// A file that goes in pieces, several to a stream: at 1 Gbit/s more than two round trips of eight.
pub const LONG: usize = 40_000_003;

/// One of whose pieces sockets hold a part at most.
const LONGER: usize = 4 * LONG;

/// A directory with the file `f`, and where it is served.
pub struct Scene {
    pub dir: tempfile::TempDir,
    pub address: SocketAddr,
    pub server: Arc<Server>,
    /// Connections that were made to [`Scene::far`].
    pub made: Arc<AtomicU64>,
}

impl Scene {
    pub async fn new() -> Scene {
        Scene::of(SIZE).await
    }

    pub async fn of(size: usize) -> Scene {
        Scene::with(size, StreamLimits::default()).await
    }

    pub async fn with(size: usize, streams: StreamLimits) -> Scene {
        Scene::build(size, Server::builder().streams(streams)).await
    }

    /// The server grants a connection no more than it allows.
    async fn by_limits(size: usize, limits: Limits) -> Scene {
        Scene::build(size, Server::builder().limits(limits)).await
    }

    async fn build(size: usize, server: ServerBuilder) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), content(0, size)).unwrap();
        let host = Arc::new(HostFs::open(dir.path()).unwrap());
        let server = server.export("", host, false).build();
        let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address().unwrap().to_string().trim_start_matches("9p://").parse().unwrap();
        let serving = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await;
                tokio::spawn(serving.serve(stream, peer));
            }
        });
        Scene { dir, address, server, made: Arc::default() }
    }

    /// The server behind a way on which each byte takes [`DELAY`]; the connections but the first end when `most` bytes have come back by
    /// one of them.
    pub async fn far(&self, most: u64) -> SocketAddr {
        self.by(Way { delay: DELAY, slow: None, one: None, most }).await
    }

    /// The same, nearer: a round trip is long enough still, and a long file goes in many pieces.
    async fn half_far(&self) -> SocketAddr {
        self.by(Way { delay: DELAY / 2, slow: None, one: None, most: u64::MAX }).await
    }

    /// The same with no delay.
    pub async fn counted(&self) -> SocketAddr {
        self.by(Way { delay: Duration::ZERO, slow: None, one: None, most: u64::MAX }).await
    }

    pub async fn by(&self, way: Way) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(relay(listener, self.address, self.made.clone(), way));
        address
    }

    /// The server as one that knows no flags of Tstream: it gets flags that it really does not know.
    pub async fn older(&self) -> SocketAddr {
        let behind = self.half_far().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((near, _)) = listener.accept().await else { return };
                let far = TcpStream::connect(behind).await.unwrap();
                near.set_nodelay(true).unwrap();
                far.set_nodelay(true).unwrap();
                let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
                tokio::spawn(carry(far_read, near_write, Duration::ZERO));
                if number == 0 {
                    tokio::spawn(change(near_read, far_write, |frame| {
                        // size[4] type[1] tag[2] fid[4] flags[4]
                        if frame[4] == TSTREAM && frame[11..15] != [0; 4] {
                            frame[11] |= 0x80;
                        }
                    }));
                } else {
                    tokio::spawn(carry(near_read, far_write, Duration::ZERO));
                }
            }
        });
        address
    }

    /// The same, to which a connection takes as long as over a long way: see [`far_listener`].
    pub async fn far_to_connect(&self) -> SocketAddr {
        self.far_to_connect_by(Way { delay: DELAY, slow: None, one: None, most: u64::MAX }).await
    }

    /// The same by a server that says something else of which part of the file each of the first eight streams has.
    async fn lying(&self, lie: fn(u64, u64) -> (u64, u64)) -> SocketAddr {
        let (address, listener) = far_listener().await;
        let server = self.address;
        tokio::spawn(async move {
            let listener = listener.await.unwrap();
            for number in 0.. {
                let Ok((near, _)) = listener.accept().await else { return };
                let far = TcpStream::connect(server).await.unwrap();
                let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
                tokio::spawn(carry(near_read, far_write, Duration::ZERO));
                if number > 0 {
                    tokio::spawn(carry(far_read, near_write, Duration::ZERO));
                    continue;
                }
                let mut told = 0;
                tokio::spawn(change(far_read, near_write, move |frame| {
                    // size[4] type[1] tag[2] id[4] token[16] modrev[8] offset[8] length[8]
                    told += u32::from(frame[4] == TSTREAM + 1);
                    if frame[4] == TSTREAM + 1 && told <= 8 {
                        let at = |from: usize| u64::from_le_bytes(frame[from..from + 8].try_into().unwrap());
                        let (offset, length) = lie(at(35), at(43));
                        frame[35..43].copy_from_slice(&offset.to_le_bytes());
                        frame[43..51].copy_from_slice(&length.to_le_bytes());
                    }
                }));
            }
        });
        address
    }

    async fn far_to_connect_by(&self, way: Way) -> SocketAddr {
        let (address, listener) = far_listener().await;
        let (server, made) = (self.address, self.made.clone());
        tokio::spawn(async move { relay(listener.await.unwrap(), server, made, way).await });
        address
    }
}

/// A listener to which a connection takes as long as over a long way: the first a second, as its SYN is lost. The others wait for
/// nothing.
pub async fn far_listener() -> (SocketAddr, JoinHandle<TcpListener>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    // One has room in the queue of a backlog of 0 (listen(2)); the next one's SYN is dropped.
    let filling = TcpStream::connect(address).await.unwrap();
    let listening = tokio::spawn(async move {
        while !is_being_connected(address) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        listener.accept().await.unwrap();
        drop(filling);
        rustix::net::listen(&listener, 1024).unwrap();
        listener
    });
    (address, listening)
}

/// What lies between.
#[derive(Clone)]
pub struct Way {
    /// What each byte takes, each way.
    pub delay: Duration,
    /// What comes back by each connection but the first comes slowly.
    pub slow: Option<Slow>,
    /// By these alone, whose end the server is not told.
    pub one: Option<Range<u64>>,
    /// Bytes that come back by each but the first before it ends.
    pub most: u64,
}

#[derive(Clone)]
pub struct Slow {
    /// Bytes a second, behind the first so many.
    rate: u64,
    fast: usize,
    /// More than so many bytes pass when the gate is open.
    pub holds_at: usize,
    gate: tokio::sync::watch::Receiver<bool>,
    /// Bytes that passed.
    passed: Arc<AtomicU64>,
}

impl Slow {
    /// Nothing passes but when the gate is open, and then as it comes.
    pub fn held(gate: tokio::sync::watch::Receiver<bool>) -> Slow {
        Slow { rate: u64::MAX, fast: 0, holds_at: 0, gate, passed: Arc::default() }
    }
}

/// Whether somebody's SYN to the address is not answered (proc_net(5): state 2).
fn is_being_connected(address: SocketAddr) -> bool {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = format!(":{:04X}", address.port());
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(2).is_some_and(|remote| remote.ends_with(&port)) && fields.get(3) == Some(&"02")
    })
}

/// Carries what comes, slowly.
async fn drip(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut slow: Slow) {
    let mut buffer = vec![0; 64 * 1024];
    let (mut came, mut due) = (0, tokio::time::Instant::now());
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let passes = n.min(slow.holds_at.saturating_sub(came));
        if passes < n {
            slow.passed.fetch_add(passes as u64, Ordering::Relaxed);
            if to.write_all(&buffer[..passes]).await.is_err() || slow.gate.wait_for(|open| *open).await.is_err() {
                return;
            }
        }
        if came >= slow.fast {
            due = due.max(tokio::time::Instant::now()) + Duration::from_secs_f64(n as f64 / slow.rate as f64);
            tokio::time::sleep_until(due).await;
        }
        let behind = if passes < n { passes } else { 0 };
        if to.write_all(&buffer[behind..n]).await.is_err() {
            return;
        }
        came += n;
        slow.passed.fetch_add((n - behind) as u64, Ordering::Relaxed);
    }
    let _ = to.shutdown().await;
}

/// Carries what comes, and tells nobody of its end.
async fn carry_without_end(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
    std::future::pending().await
}

async fn relay(listener: TcpListener, server: SocketAddr, made: Arc<AtomicU64>, way: Way) {
    for number in 0.. {
        let Ok((near, _)) = listener.accept().await else { return };
        made.fetch_add(1, Ordering::Relaxed);
        let socket = TcpSocket::new_v4().unwrap();
        let is_slow = number > 0 && way.one.as_ref().is_none_or(|one| one.contains(&number));
        if is_slow && way.slow.is_some() {
            // What is slow holds little.
            socket.set_recv_buffer_size(64 * 1024).unwrap();
        }
        let far = socket.connect(server).await.unwrap();
        // Or a small message waits for the acknowledgement of the one before it, which is as late as two of our round trips.
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
        match &way.one {
            Some(one) if one.contains(&number) => tokio::spawn(carry_without_end(near_read, far_write)),
            _ => tokio::spawn(carry(near_read, far_write, way.delay)),
        };
        let most = if number == 0 { u64::MAX } else { way.most };
        let slow = way.slow.clone().filter(|_| is_slow);
        let back = far_read.take(most);
        match slow {
            None => tokio::spawn(carry(back, near_write, way.delay)),
            Some(slow) => tokio::spawn(drip(back, near_write, slow)),
        };
    }
}

pub async fn client(address: SocketAddr, version: impl Into<Version>) -> Client {
    over(dial(&Address::tcp(address)).await.unwrap(), version, Options::default()).await
}

/// A session in which a round trip was short: on a busy machine one may look long that is not.
async fn near(scene: &Scene) -> Client {
    let client = async {
        loop {
            let client = client(scene.address, Version::N1).await;
            if client.attach_took() < Duration::from_millis(2) {
                return client;
            }
        }
    };
    timeout(SOON, client).await.expect("a short round trip")
}

async fn open(client: &Client) -> File {
    client.walk("/f", Follow::All).await.unwrap().open(Mode::READ).await.unwrap()
}

/// A session that begins with the open of the file, to be read by eight streams.
async fn begin(address: &Address, options: Options) -> (Client, Begun) {
    begin_by(8, address, options).await
}

pub async fn begin_by(streams: usize, address: &Address, options: Options) -> (Client, Begun) {
    let how = BeginRead { most: 1 << 20, streams, ..BeginRead::default() };
    let begin = async |client: &Client| client.begin_read_as("/f", how).await;
    let first = Client::first(address, Options { memory: None, ..options }, begin);
    let (client, begun) = timeout(SOON, first).await.expect("an open in time").unwrap();
    (client, begun.unwrap())
}

/// Streams that were asked for.
pub fn asked(client: &Client) -> u64 {
    client.stats().messages.get("Tstream").copied().unwrap_or(0)
}

/// All that comes, each byte of which comes once, and the most streams that there were at a time.
pub async fn gather(ranges: &mut Ranges, from: usize, to: usize) -> Result<usize, Error> {
    let (mut all, mut came, mut most) = (BytesMut::zeroed(to - from), 0, 0);
    while let Some((offset, data)) = timeout(SOON, ranges.next()).await.expect("a piece in time")? {
        let at = offset as usize - from;
        all[at..at + data.len()].copy_from_slice(&data);
        came += data.len();
        most = most.max(ranges.streams());
    }
    assert_eq!(came, to - from);
    assert!(all == content(from as u64, to - from));
    Ok(most)
}

#[tokio::test]
async fn over_a_distance_a_file_comes_by_several_streams_and_nearby_by_one() {
    let scene = Scene::new().await;
    let far = client(scene.far(u64::MAX).await, Version::N1).await;
    for (client, streams) in [(near(&scene).await, 1), (far, 8)] {
        let file = open(&client).await;
        assert_eq!(file.streams_for(SIZE as u64, 8), streams);
        for (from, to) in [(0, SIZE), (1_000_003, SIZE - 5), (7, 8)] {
            let mut ranges = file.ranges(from as u64, to as u64, 8);
            let most = gather(&mut ranges, from, to).await.unwrap();
            assert!(most >= file.streams_for((to - from) as u64, 8), "{most}");
            assert!(ranges.is_watched());
        }
        // They take no more than they may.
        assert!(gather(&mut file.ranges(0, SIZE as u64, 2), 0, SIZE).await.unwrap() <= 2);
    }
}

#[tokio::test]
async fn what_takes_many_round_trips_is_written_by_one_stream_that_finds_the_rate() {
    let scene = Scene::new().await;
    let (near, far) = (near(&scene).await, client(scene.far(u64::MAX).await, Version::N1).await);
    let way = Way { delay: DELAY / 4, slow: None, one: None, most: u64::MAX };
    let farther = client(scene.by(way).await, Version::N1).await;
    let control = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let long = if control.starts_with("bbr") { 1 } else { farther.streams_for(1 << 50, 8) };
    // What the way to the far one holds is more than one connection has under way.
    assert_eq!((far.streams_to_write(SIZE as u64, 8), far.streams_to_write(1 << 50, 8)), (8, 8));
    let wanted = farther.streams_for(SIZE as u64 / 2, 8);
    let held = farther.attach_took().as_secs_f64() * 125e6 <= f64::from(2 << 20);
    // That takes no more than five of them.
    assert_eq!(farther.streams_to_write(SIZE as u64 / 2, 8), wanted);
    // A busy machine makes the way longer.
    assert_eq!(farther.streams_to_write(1 << 50, 8), if held { long } else { wanted }, "{control}");
    assert_eq!((far.streams_to_write(1000, 8), near.streams_to_write(1 << 50, 8)), (1, 1));
}

#[tokio::test]
async fn a_long_file_comes_in_pieces_one_behind_another_on_each_connection() {
    // So long that it is not parted evenly, however long a round trip seems to be on a busy machine.
    let scene = Scene::of(LONGER).await;
    let client = client(scene.half_far().await, Version::N1).await;
    let file = open(&client).await;
    for (from, to) in [(0, LONGER), (3, LONGER - 1)] {
        let mut has_settled = false;
        // A busy machine may hold up a connection for so long that it is given up, and of what it brought nobody tells in the end.
        for _ in 0..3 {
            let before = (asked(&client), scene.made.load(Ordering::Relaxed));
            let mut ranges = file.ranges(from as u64, to as u64, 8);
            gather(&mut ranges, from, to).await.unwrap();
            let made = scene.made.load(Ordering::Relaxed) - before.1;
            let streams = asked(&client) - before.0;
            assert!(made < streams, "{made} connections of {streams} pieces");
            assert!(streams > 8, "{streams} pieces, a round trip of {:?}", client.attach_took());
            assert!(ranges.is_watched() && !ranges.is_changed());
            has_settled = ranges.is_unchanged() && ranges.is_settled();
            if has_settled {
                break;
            }
        }
        assert!(has_settled, "the streams of none of three reads told that the file was as before");
    }
}

#[tokio::test]
async fn a_change_while_the_last_of_a_long_file_comes_is_told_by_its_streams() {
    let scene = Scene::of(LONG).await;
    let client = client(scene.half_far().await, Version::N1).await;
    let file = std::fs::OpenOptions::new().write(true).open(scene.dir.path().join("f")).unwrap();
    // Where a connection was late, pages come last, and nobody looks before the end.
    for _ in 0..20 {
        let mut ranges = open(&client).await.ranges(0, LONG as u64, 8);
        let (mut came, mut at_change) = (0, None);
        while let Some((_, data)) = timeout(SOON, ranges.next()).await.expect("a piece in time").unwrap() {
            came += data.len();
            // Whoever looks at the file by then finds it as it was.
            if ranges.is_settling() && at_change.is_none() {
                std::os::unix::fs::FileExt::write_all_at(&file, b"another", 5).unwrap();
                at_change = Some(asked(&client));
            }
        }
        assert_eq!(came, LONG);
        let Some(at_change) = at_change else { continue };
        // A stream that began or ended behind it has seen it. Where none did, all of the file had left before.
        assert_eq!(ranges.is_settled(), !ranges.is_changed());
        assert!(ranges.is_changed() || asked(&client) == at_change);
        return;
    }
    panic!("pages came last each time");
}

#[tokio::test]
async fn the_streams_of_a_long_file_are_asked_for_with_its_open() {
    let scene = Scene::new().await;
    let address: Address = format!("9p://{}", scene.far_to_connect().await).parse().unwrap();
    let (client, begun) = begin(&address, Options::default()).await;
    assert!(begun.data.is_none(), "streams will bring it");
    let stats = client.stats();
    assert_eq!((asked(&client), stats.round_trips), (8, 2), "the version, and all else");
    let mut ranges = begun.file.ranges(0, SIZE as u64, 8);
    gather(&mut ranges, 0, SIZE).await.unwrap();
    assert!(ranges.is_settled());
    // Before the streams and behind them. What a round trip takes by then is not asked, as nothing would come of it but the wait for the answer.
    assert_eq!(client.stats().messages.get("Tgetattr"), Some(&2));
    let looked = ranges.take_look().expect("all of it was asked for with the open");
    assert!(looked.is_of_same_file(&begun.metadata.unwrap()) && ranges.take_look().is_none());
    // Their connections told how they ended.
    assert_eq!(client.stats().messages.get("Tstreamend"), None);
    // The session's own, and those that were opened ahead.
    assert_eq!(scene.made.load(Ordering::Relaxed), 9);
}

/// A short file of which all shares are as long.
const SHARE: usize = 100 << 12;

#[tokio::test]
async fn an_end_that_does_not_come_by_its_connection_is_asked_for() {
    let (opens, gate) = tokio::sync::watch::channel(false);
    let held_at = |holds_at| Some(Slow { holds_at, ..Slow::held(gate.clone()) });
    let far = Way { delay: DELAY, slow: None, one: None, most: u64::MAX };
    // It ends in the middle of what is told, it brings nothing of that, and it brings nothing for a while before.
    let cut = Way { most: SHARE as u64 + 3, ..far.clone() };
    let silent = Way { slow: held_at(SHARE), one: Some(1..9), ..far.clone() };
    let late = Way { slow: held_at(SHARE / 2), one: Some(1..9), ..far };
    for (what, way) in [("cut", cut), ("silent", silent), ("late", late)] {
        let scene = Scene::of(8 * SHARE).await;
        let address: Address = format!("9p://{}", scene.far_to_connect_by(way).await).parse().unwrap();
        let (client, begun) = begin(&address, Options::default()).await;
        let ends = || client.stats().messages.get("Tstreamend").copied().unwrap_or(0);
        let mut ranges = begun.file.ranges(0, 8 * SHARE as u64, 8);
        let reads = gather(&mut ranges, 0, 8 * SHARE);
        let asked = async {
            while what == "late" && ends() < 8 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            opens.send_replace(what == "late");
        };
        let (read, ()) = tokio::join!(reads, asked);
        read.unwrap();
        assert!(ranges.is_settled() && !ranges.is_changed(), "{what}");
        assert_eq!((ends(), asked_of(&scene)), (8, (8, 0)), "{what}");
    }
}

#[tokio::test]
async fn an_end_that_was_not_heard_and_is_forgotten_leaves_the_file_whole() {
    // Of the first connection all comes but what is told behind its first piece; by the others so much that the server has no room for that end any more.
    let limits = Limits { streams: 12, ..Limits::default() };
    let scene = Scene::by_limits(LONGER, limits).await;
    let (_never, gate) = tokio::sync::watch::channel(false);
    let slow = Some(Slow { holds_at: 2 << 20, ..Slow::held(gate) });
    let way = Way { delay: DELAY, slow, one: Some(1..2), most: u64::MAX };
    let address: Address = format!("9p://{}", scene.far_to_connect_by(way).await).parse().unwrap();
    let (client, begun) = begin(&address, Options::default()).await;
    let mut ranges = begun.file.ranges(0, LONGER as u64, 8);
    gather(&mut ranges, 0, LONGER).await.unwrap();
    assert!(!ranges.is_changed());
    assert!(asked(&client) > 20, "{}", asked(&client));
}

/// Streams that were granted, and those of them that failed.
pub fn asked_of(scene: &Scene) -> (u64, u64) {
    let counts = scene.server.stream_counts();
    (counts.opened, counts.failed)
}

#[tokio::test]
async fn a_long_file_comes_whole_behind_the_streams_that_were_asked_for_with_its_open() {
    let scene = Scene::of(LONG).await;
    let address: Address = format!("9p://{}", scene.far_to_connect().await).parse().unwrap();
    let (client, begun) = begin(&address, Options::default()).await;
    assert_eq!(asked(&client), 8);
    let mut ranges = begun.file.ranges(0, LONG as u64, 8);
    let (mut all, mut came) = (BytesMut::zeroed(LONG), 0);
    while let Some((offset, data)) = timeout(SOON, ranges.next()).await.expect("a piece in time").unwrap() {
        all[offset as usize..][..data.len()].copy_from_slice(&data);
        came += data.len();
    }
    assert!(came == LONG && all == content(0, LONG));
    assert!(ranges.is_watched() && !ranges.is_changed());
}

#[tokio::test]
async fn streams_that_were_asked_for_with_an_open_and_are_not_wanted_are_given_up() {
    let scene = Scene::new().await;
    let address: Address = format!("9p://{}", scene.far_to_connect().await).parse().unwrap();
    let (client, begun) = begin(&address, Options::default()).await;
    assert_eq!(asked(&client), 8);
    // From another place than they are of.
    gather(&mut begun.file.ranges(5, SIZE as u64, 8), 5, SIZE).await.unwrap();
    drop(begun);
    no_streams_are_left(&scene).await;
}

#[tokio::test]
async fn streams_that_were_asked_for_with_an_open_and_grew_too_old_are_asked_for_anew() {
    let streams = StreamLimits { token: Duration::from_millis(100), ..StreamLimits::default() };
    for is_changed in [false, true] {
        let scene = Scene::with(SIZE, streams).await;
        let address: Address = format!("9p://{}", scene.far_to_connect().await).parse().unwrap();
        let (client, first) = begin(&address, Options::default()).await;
        drop(first);
        no_streams_are_left(&scene).await;
        let before = scene.server.stream_counts().timed_out;
        // Of a second file tokens are said when there are streams for them.
        let how = BeginRead { most: 1 << 20, streams: 8, ..BeginRead::default() };
        let begun = client.begin_read_as("/f", how).await.unwrap();
        timeout(SOON, async {
            while scene.server.stream_counts().timed_out < before + 8 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("they are too old");
        if is_changed {
            // To what it is; but it was looked at before.
            std::fs::write(scene.dir.path().join("f"), content(0, SIZE)).unwrap();
        }
        let mut ranges = begun.file.ranges(0, SIZE as u64, 8);
        gather(&mut ranges, 0, SIZE).await.unwrap();
        assert_eq!((ranges.is_changed(), ranges.is_settled()), (is_changed, !is_changed));
        assert_eq!(ranges.is_watched(), !is_changed, "nothing came in messages");
        assert!(client.has_streams());
    }
}

#[tokio::test]
async fn pieces_that_wait_in_line_are_given_up_with_those_before_them() {
    // Where the machine is slow a round trip is long, and less of it comes in one round of pieces.
    let scene = Scene::of(LONGER).await;
    let client = client(scene.half_far().await, Version::N1).await;
    let file = open(&client).await;
    let mut ranges = file.ranges(0, LONGER as u64, 8);
    timeout(SOON, async {
        while asked(&client) <= 8 {
            assert!(ranges.next().await.unwrap().is_some(), "all came, and none was asked for ahead");
        }
    })
    .await
    .expect("one is asked for ahead");
    // In whatever state it is, asked for, granted or in line.
    drop(ranges);
    no_streams_are_left(&scene).await;
    assert_eq!(scene.server.stream_counts().timed_out, 0);
}

#[tokio::test]
async fn streams_that_were_asked_for_with_an_open_and_by_which_nothing_comes_give_way_to_messages() {
    let scene = Scene::new().await;
    let (_never, gate) = tokio::sync::watch::channel(false);
    let slow = Slow { holds_at: 0, ..Slow::held(gate) };
    let far = scene.far_to_connect_by(Way { delay: DELAY, slow: Some(slow), one: None, most: u64::MAX }).await;
    let address: Address = format!("9p://{far}").parse().unwrap();
    // Whatever else is waited for is waited for without an end.
    let (client, begun) = begin(&address, Options { timeout: None, ..Options::default() }).await;
    assert_eq!(asked(&client), 8);
    let mut ranges = begun.file.ranges(0, SIZE as u64, 8);
    gather(&mut ranges, 0, SIZE).await.unwrap();
    assert!(!ranges.is_watched() && !client.has_streams());
}

#[tokio::test]
async fn who_changes_pages_that_are_on_the_way_is_told_of() {
    let scene = Scene::of(LONG).await;
    let (go_on, gate) = tokio::sync::watch::channel(false);
    let slow = Slow { rate: 50_000_000, holds_at: 1_000_000, ..Slow::held(gate) };
    let client =
        client(scene.by(Way { delay: DELAY / 2, slow: Some(slow), one: None, most: u64::MAX }).await, Version::N1)
            .await;
    let file = open(&client).await;
    let mut ranges = file.ranges(0, LONG as u64, 2);
    let written = std::fs::OpenOptions::new().write(true).open(scene.dir.path().join("f")).unwrap();
    let (mut all, mut came, mut is_written) = (vec![0; LONG], 0, false);
    while let Some((offset, data)) = timeout(SOON, ranges.next()).await.expect("a piece in time").unwrap() {
        all[offset as usize..][..data.len()].copy_from_slice(&data);
        came += data.len();
        // The first pieces are of many MB: pages that were sent lie in sockets, and copies come in the end alone.
        if !is_written {
            assert!(!ranges.is_settling());
            std::os::unix::fs::FileExt::write_all_at(&written, &vec![0xff; LONG], 0).unwrap();
            go_on.send(true).unwrap();
            is_written = true;
        }
    }
    assert_eq!(came, LONG);
    assert!(all.contains(&0xff), "what was written came: these were pages");
    assert!(ranges.is_changed() && !ranges.is_settled() && !ranges.is_unchanged());
}

#[tokio::test]
async fn a_piece_whose_token_grew_too_old_in_line_comes_by_a_connection_of_its_own() {
    let streams = StreamLimits { token: Duration::from_millis(600), ..StreamLimits::default() };
    let size = LONGER + 2 * LONG;
    let scene = Scene::with(size, streams).await;
    // The first is asked for when 8 MB of the one before it are left, and the second with it or later, of which no socket holds more than 4 MB (tcp(7), tcp_wmem). All of it by one piece of each
    // would take more than eighteen round trips.
    let (set, gate) = tokio::sync::watch::channel(true);
    let slow = Slow { rate: 25_000_000, holds_at: 0, ..Slow::held(gate) };
    let way = Way { delay: 2 * DELAY, slow: Some(slow), one: None, most: u64::MAX };
    let client = client(scene.by(way).await, Version::N1).await;
    let file = open(&client).await;
    let mut ranges = file.ranges(0, size as u64, 2);
    let too_old = async {
        while asked(&client) <= 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        set.send(false).unwrap();
        while scene.server.stream_counts().timed_out == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        set.send(true).unwrap();
    };
    let (gathered, too_old) = tokio::join!(gather(&mut ranges, 0, size), timeout(SOON, too_old));
    too_old.expect("a token that grew too old");
    gathered.unwrap();
}

#[tokio::test]
async fn a_connection_that_ends_anywhere_among_its_pieces_never_makes_of_them_what_they_are_not() {
    // Within the first piece of each, about its end, and within the second.
    for most in [1_000_000, 1_600_000, 1_666_666, 1_666_667, 1_666_668, 2_500_000] {
        let scene = Scene::of(LONG).await;
        let way = Way { delay: DELAY / 2, slow: None, one: None, most };
        // The server is not told, and has not ended them: it would say nothing of their ends. Whatever else is waited for is waited for without an end.
        let dialled = dial(&Address::tcp(scene.by(way).await)).await.unwrap();
        let client = over(dialled, Version::N1, Options { timeout: None, ..Options::default() }).await;
        let mut ranges = open(&client).await.ranges(0, LONG as u64, 8);
        // What comes is compared.
        match gather(&mut ranges, 0, LONG).await {
            Ok(_) => {}
            Err(Error::Stream(Fault::Short { .. } | Fault::Cut(_)) | Error::Refused(_)) => {}
            Err(e) => panic!("{most}: {e}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_knows_no_flags_is_asked_for_streams_without() {
    let scene = Scene::of(LONG).await;
    let client = client(scene.older().await, Version::N1).await;
    let file = open(&client).await;
    let mut ranges = file.ranges(0, LONG as u64, 8);
    gather(&mut ranges, 0, LONG).await.unwrap();
    assert!(ranges.is_watched(), "nothing came in messages");
    // Of pages of the file nobody says so before they are here.
    assert!(!ranges.is_settled() || ranges.is_unchanged());
}

#[tokio::test]
async fn a_short_file_is_shared_among_streams_that_come_with_its_open_and_of_a_long_one_they_have_the_beginning() {
    for size in [BeginRead::SHARED as usize + 1, 1_000_003, SIZE, 16 << 20, LONG] {
        let scene = Scene::of(size).await;
        let address: Address = format!("9p://{}", scene.far_to_connect().await).parse().unwrap();
        let (client, begun) = begin(&address, Options::default()).await;
        assert_eq!((begun.data.is_none(), begun.file.granted()), (true, 8), "{size}");
        let asked_before = asked(&client);
        let mut ranges = begun.file.ranges(0, size as u64, 8);
        assert_eq!(ranges.streams(), 8, "{size}");
        gather(&mut ranges, 0, size).await.unwrap();
        assert!(ranges.is_watched(), "{size}");
        // All of a short one came so, as copies. Of a long one others did behind them.
        let is_short = size <= 16 << 20;
        assert_eq!(asked(&client) == asked_before, is_short, "{size}");
        assert!(!is_short || ranges.is_settled(), "{size}");
    }
}

#[tokio::test]
async fn shares_that_a_server_says_lie_elsewhere_make_no_wrong_file() {
    const LEN: usize = 1_000_003;
    type Lie = fn(u64, u64) -> (u64, u64);
    let lies: [Lie; 6] = [
        // They overlap, leave gaps, or lie behind the end.
        |offset, length| (offset.saturating_sub(4096), length),
        |offset, length| (offset + u64::from(offset > 0), length),
        |offset, length| (offset + 4096, length),
        |_, length| ((16 << 20) - length, length),
        // Each has fewer bytes than come, or more: what is told behind them would be bytes of the file.
        |offset, _| (offset, 1),
        |offset, length| (offset, 2 * length),
    ];
    for lie in lies {
        let scene = Scene::of(LEN).await;
        let address: Address = format!("9p://{}", scene.lying(lie).await).parse().unwrap();
        let (_client, begun) = begin(&address, Options::default()).await;
        assert!(begun.file.granted() <= 1, "that of which it does not lie");
        let mut ranges = begun.file.ranges(0, LEN as u64, 8);
        gather(&mut ranges, 0, LEN).await.unwrap();
        assert!(ranges.is_watched() && !ranges.is_changed());
        drop(ranges);
        no_streams_are_left(&scene).await;
    }
}

#[tokio::test]
async fn shares_of_which_one_is_not_granted_are_no_hole_in_the_file() {
    // A client has so many streams at a time, of which the first are granted.
    for streams in [1, 5] {
        let scene = Scene::by_limits(1_000_003, Limits { streams, ..Limits::default() }).await;
        let address: Address = format!("9p://{}", scene.far_to_connect().await).parse().unwrap();
        let (_client, begun) = begin(&address, Options::default()).await;
        assert_eq!(begun.file.granted(), streams);
        let mut ranges = begun.file.ranges(0, 1_000_003, 8);
        gather(&mut ranges, 0, 1_000_003).await.unwrap();
        assert!(!ranges.is_changed());
    }
}

#[tokio::test]
async fn of_a_short_file_no_stream_is_asked_for_with_its_open() {
    let scene = Scene::of(100_000).await;
    let address: Address = format!("9p://{}", scene.far_to_connect().await).parse().unwrap();
    let how = BeginRead { most: 1 << 20, streams: 8, ..BeginRead::default() };
    let options = Options { memory: None, ..Options::default() };
    let begin = async |client: &Client| client.begin_read_as("/f", how).await;
    let (_client, begun) = timeout(SOON, Client::first(&address, options, begin)).await.unwrap().unwrap();
    assert_eq!(begun.unwrap().data.map(|data| data.len()), Some(100_000));
    assert_eq!(scene.server.stream_counts().opened, 0);
}

#[tokio::test]
async fn where_there_are_no_streams_the_same_bytes_come_in_messages() {
    let scene = Scene::new().await;
    let client = client(scene.far(u64::MAX).await, Dialect::Linux).await;
    let file = open(&client).await;
    let mut ranges = file.ranges(5, SIZE as u64, 8);
    assert_eq!(gather(&mut ranges, 5, SIZE).await.unwrap(), 1);
    assert!(!ranges.is_watched() && !ranges.is_unchanged());
}

#[tokio::test]
async fn a_stream_that_is_cut_among_several_is_an_error_of_all() {
    let scene = Scene::new().await;
    let client = client(scene.far(1_000_000).await, Version::N1).await;
    let mut ranges = open(&client).await.ranges(0, SIZE as u64, 8);
    let error = gather(&mut ranges, 0, SIZE).await.unwrap_err();
    assert!(matches!(error, Error::Stream(Fault::Short { .. } | Fault::Cut(_)) | Error::Refused(_)), "{error}");
    assert!(timeout(SOON, ranges.next()).await.unwrap().is_err());
    assert!(!ranges.is_watched() && !ranges.is_settling() && !ranges.is_settled() && !ranges.is_unchanged());
}

#[tokio::test]
async fn a_file_that_is_rewritten_or_cut_meanwhile_is_not_taken_for_what_it_was() {
    // More than all sockets on the way hold.
    const LARGE: u64 = 128 << 20;
    for cut in [false, true] {
        let scene = Scene::new().await;
        let file = std::fs::OpenOptions::new().write(true).open(scene.dir.path().join("f")).unwrap();
        file.set_len(LARGE).unwrap();
        let client = client(scene.address, Version::N1).await;
        let mut ranges = open(&client).await.ranges(0, LARGE, 8);
        let came = AtomicU64::new(0);
        let mut failed = false;
        loop {
            match timeout(SOON, ranges.next()).await.unwrap() {
                Ok(None) => break,
                Ok(Some((_, data))) => {
                    if came.fetch_add(data.len() as u64, Ordering::Relaxed) == 0 {
                        if cut {
                            file.set_len(1000).unwrap();
                        } else {
                            std::os::unix::fs::FileExt::write_all_at(&file, b"another", LARGE - 10).unwrap();
                        }
                    }
                }
                Err(_) => {
                    failed = true;
                    break;
                }
            }
        }
        // What it has no more cannot come. The rest does, and is told to be of several states of it.
        assert_eq!(failed, cut);
        assert!(cut || ranges.is_changed() && !ranges.is_unchanged());
    }
}

#[tokio::test]
async fn streams_that_bring_nothing_give_way_to_messages_which_watch_nothing() {
    let scene = Scene::new().await;
    let client = client(scene.far(0).await, Version::N1).await;
    let mut ranges = open(&client).await.ranges(0, SIZE as u64, 8);
    gather(&mut ranges, 0, SIZE).await.unwrap();
    // They had begun beside the messages.
    assert!(asked(&client) > 0);
    assert!(!ranges.is_watched() && !ranges.is_unchanged());
}

#[tokio::test]
async fn what_is_dropped_half_way_leaves_no_stream() {
    let scene = Scene::new().await;
    let client = client(scene.address, Version::N1).await;
    let file = open(&client).await;
    let held = client.held().0;
    let mut ranges = file.ranges(0, SIZE as u64, 8);
    assert!(ranges.next().await.unwrap().is_some());
    drop(ranges);
    crate::support::settled(&client, held).await;
}

/// Waits until the server has no stream.
async fn no_streams_are_left(scene: &Scene) {
    timeout(SOON, async {
        while scene.server.streams() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("no stream is left");
}

#[tokio::test]
async fn what_is_bound_to_a_connection_that_stands_still_comes_by_others() {
    let (_never, gate) = tokio::sync::watch::channel(false);
    // Within its first piece, and with others in line behind that.
    for (size, holds_at) in [(LONG, 300_000), (LONG, 1_500_000), (LONGER, 6_000_000)] {
        let scene = Scene::of(size).await;
        let slow = Slow { holds_at, ..Slow::held(gate.clone()) };
        let passed = slow.passed.clone();
        let way = Way { delay: DELAY / 2, slow: Some(slow), one: Some(1..2), most: u64::MAX };
        let client = client(scene.by(way).await, Version::N1).await;
        let mut ranges = open(&client).await.ranges(0, size as u64, 8);
        gather(&mut ranges, 0, size).await.unwrap();
        assert!(ranges.is_watched() && !ranges.is_changed());
        // There was such a one: some of what it held came, and another was made for it.
        assert!((1..=holds_at as u64).contains(&passed.load(Ordering::Relaxed)));
        assert!(scene.made.load(Ordering::Relaxed) > 9);
        // Of that one too, by which nobody can tell the server.
        no_streams_are_left(&scene).await;
    }
}

#[tokio::test]
async fn what_is_bound_to_a_connection_that_became_slow_comes_by_others() {
    const FAST: usize = 2_000_000;
    let scene = Scene::of(LONGER).await;
    let (_open, gate) = tokio::sync::watch::channel(true);
    let slow = Slow { rate: 100_000, fast: FAST, ..Slow::held(gate) };
    let passed = slow.passed.clone();
    let way = Way { delay: DELAY / 2, slow: Some(slow), one: Some(1..2), most: u64::MAX };
    let client = client(scene.by(way).await, Version::N1).await;
    let mut ranges = open(&client).await.ranges(0, LONGER as u64, 8);
    gather(&mut ranges, 0, LONGER).await.unwrap();
    // Its first piece alone is of 6 MB.
    let passed = passed.load(Ordering::Relaxed) as usize;
    assert!((FAST..2 * FAST).contains(&passed), "{passed}");
    no_streams_are_left(&scene).await;
}

#[tokio::test]
async fn of_copies_that_were_given_up_nobody_says_that_the_file_stayed_as_it_was() {
    let scene = Scene::new().await;
    let (_never, gate) = tokio::sync::watch::channel(false);
    // Half of what was asked for with the open.
    let slow = Slow { holds_at: 500_000, ..Slow::held(gate) };
    let way = Way { delay: DELAY, slow: Some(slow), one: Some(1..2), most: u64::MAX };
    let address: Address = format!("9p://{}", scene.far_to_connect_by(way).await).parse().unwrap();
    let (client, begun) = begin(&address, Options::default()).await;
    assert_eq!(asked(&client), 8);
    let mut ranges = begun.file.ranges(0, SIZE as u64, 8);
    gather(&mut ranges, 0, SIZE).await.unwrap();
    assert!(ranges.is_watched() && !ranges.is_changed() && !ranges.is_settled());
    no_streams_are_left(&scene).await;
}

#[tokio::test]
async fn shares_of_which_nothing_or_nothing_more_comes_come_by_other_connections() {
    let (_never, gate) = tokio::sync::watch::channel(false);
    for (holds_at, held) in [(0, 1..2), (50_000, 1..2), (0, 1..4), (50_000, 2..5)] {
        let scene = Scene::of(1_000_003).await;
        let slow = Slow { holds_at, ..Slow::held(gate.clone()) };
        let passed = slow.passed.clone();
        let way = Way { delay: DELAY, slow: Some(slow), one: Some(held.clone()), most: u64::MAX };
        let address: Address = format!("9p://{}", scene.far_to_connect_by(way).await).parse().unwrap();
        // Nothing else is waited for with an end.
        let (_client, begun) = begin(&address, Options { timeout: None, ..Options::default() }).await;
        let mut ranges = begun.file.ranges(0, 1_000_003, 8);
        gather(&mut ranges, 0, 1_000_003).await.unwrap();
        assert!(ranges.is_watched() && !ranges.is_changed(), "{holds_at} {held:?}");
        assert!(passed.load(Ordering::Relaxed) <= (holds_at * held.clone().count()) as u64, "{holds_at} {held:?}");
        assert!(scene.made.load(Ordering::Relaxed) > 9, "{holds_at} {held:?}");
        no_streams_are_left(&scene).await;
    }
}

#[tokio::test]
async fn where_all_of_the_way_stands_still_or_nobody_asks_for_bytes_no_connection_is_given_up() {
    /// A few at most, where the machine let one stand still before the others; else one each 250 ms would be.
    const FEW: u64 = 2;
    let scene = Scene::of(LONG).await;
    let (go_on, gate) = tokio::sync::watch::channel(false);
    let slow = Slow { rate: 20_000_000, holds_at: 800_000, ..Slow::held(gate) };
    let way = Way { delay: DELAY / 2, slow: Some(slow), one: None, most: u64::MAX };
    let client = client(scene.by(way).await, Version::N1).await;
    let mut ranges = open(&client).await.ranges(0, LONG as u64, 8);
    let (mut all, mut came) = (vec![0; LONG], 0);
    let mut put = |(offset, data): (u64, bytes::Bytes)| {
        all[offset as usize..][..data.len()].copy_from_slice(&data);
        came += data.len();
    };
    let mut is_shut = true;
    loop {
        let bound = if is_shut { Duration::from_secs(4) } else { SOON };
        match timeout(bound, ranges.next()).await {
            Ok(piece) => match piece.unwrap() {
                Some(piece) => put(piece),
                None => break,
            },
            Err(_) => {
                assert!(std::mem::replace(&mut is_shut, false), "a piece in time");
                assert!(scene.made.load(Ordering::Relaxed) <= 9 + FEW);
                go_on.send(true).unwrap();
                put(ranges.next().await.unwrap().unwrap());
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
    assert!(!is_shut && came == LONG && all == content(0, LONG));
    assert!(scene.made.load(Ordering::Relaxed) <= 9 + FEW);
}
