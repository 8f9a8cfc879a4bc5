//! Large reads and writes over sockets, whose data go from the page cache to the socket, and back, through pipes. A process of its own: the pipes
//! are the process's, and are counted.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use ninefold::client::{Attach, Client, File, Follow, Mode, Options};
use ninefold::proto::attr::Attr;
use ninefold::proto::open::Open;
use ninefold::proto::print::parse;
use ninefold::proto::stat::StatBuf;
use ninefold::proto::types::WalkElem;
use ninefold::proto::{Dialect, Qid, QidType};
use ninefold::server::{self, Answer, Cx, Data, FileServer, Server, Walked};
use ninefold::transport::{Peer, Stream};
use ninefold::tree::hostfs::HostFs;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Mutex;

/// The bound of waits that ought to end soon.
const SOON: Duration = Duration::from_secs(60);

/// Pipes that the server may have, and those of one connection; the empty ones that it keeps.
const PIPES: usize = 24;
const PIPES_OF_ONE: usize = 9;
const PIPES_IDLE: usize = 12;

/// The tests count pipes: one at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Ends of pipes that this process has open, beside those that it was started with.
fn pipe_ends() -> usize {
    static AT_FIRST: OnceLock<usize> = OnceLock::new();
    let open = open_pipe_ends();
    open - AT_FIRST.get_or_init(|| open)
}

fn open_pipe_ends() -> usize {
    let fds = fs::read_dir("/proc/self/fd").unwrap();
    let links = fds.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    links.filter(|link| link.as_os_str().as_encoded_bytes().starts_with(b"pipe:")).count()
}

async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

fn serve(dir: &tempfile::TempDir) -> Arc<Server> {
    Server::builder().export("", Arc::new(HostFs::open(dir.path()).unwrap()), false).build()
}

/// A client over each kind of socket, in each dialect.
async fn clients(server: &Arc<Server>, msize: u32) -> Vec<Client> {
    let mut clients = Vec::new();
    for dialect in Dialect::ALL {
        for unix in [false, true] {
            let stream = if unix {
                let (near, far) = UnixStream::pair().unwrap();
                tokio::spawn(server.serve(far, Peer::Stdio));
                Stream::from(near)
            } else {
                let (near, far) = tcp().await;
                tokio::spawn(server.serve(far, Peer::Stdio));
                Stream::from(near)
            };
            let attach = Attach { dialect: Some(dialect.into()), ..Attach::default() };
            let options = Options { msize, ..Options::default() };
            clients.push(Client::over(stream, &attach, options).await.unwrap());
        }
    }
    clients
}

async fn open(client: &Client, name: &str) -> File {
    client.walk(name, Follow::All).await.unwrap().open(Mode::READ).await.unwrap()
}

/// Bytes that are alike nowhere, with two holes.
fn content(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    fastrand::Rng::with_seed(7).fill(&mut bytes);
    for hole in [100_000..400_000, size / 2..size / 2 + (1 << 20)] {
        bytes[hole].fill(0);
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_read_at_once_in_whatever_pieces_is_the_file() {
    let _alone = ALONE.lock().await;
    pipe_ends();
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(9_000_001);
    let local = fs::File::create(dir.path().join("f")).unwrap();
    for (n, part) in bytes.chunks(4096).enumerate().filter(|(_, part)| part.iter().any(|byte| *byte != 0)) {
        local.write_all_at(part, n as u64 * 4096).unwrap();
    }
    local.set_len(bytes.len() as u64).unwrap();
    local.sync_all().unwrap();
    let server = serve(&dir);
    for (msize, count_max) in [(65_536, 65_536), (1 << 20, 1 << 20), (8 << 20, 3 << 20)] {
        for client in clients(&server, msize).await {
            let file = open(&client, "f").await;
            let mut rng = fastrand::Rng::with_seed(u64::from(msize));
            for cached in [true, false, true] {
                if !cached {
                    // On a tmpfs it has no effect.
                    rustix::fs::fadvise(&local, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                }
                let reads = (0..24).map(|_| {
                    let offset = rng.usize(..bytes.len() + 1000);
                    let count = if rng.bool() { rng.usize(1..count_max) } else { rng.usize(1..100_000) };
                    let (file, bytes) = (&file, &bytes);
                    async move {
                        let got = file.read_at(offset as u64, count as u32).await.unwrap();
                        let end = (offset + count).min(bytes.len());
                        let start = offset.min(end);
                        assert!(got == bytes[start..end], "{count} bytes at {offset}, msize {msize}");
                    }
                });
                join_all(reads).await;
            }
        }
    }
    let ends = pipe_ends();
    assert!((2..=2 * PIPES).contains(&ends), "{ends} ends of pipes: were pipes used at all?");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_takes_nothing_holds_few_pipes_and_gives_them_back() {
    let _alone = ALONE.lock().await;
    pipe_ends();
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(4 << 20);
    fs::write(dir.path().join("f"), &bytes).unwrap();
    let server = serve(&dir);
    let mut deaf = Vec::new();
    for n in 0..5 {
        let (mut near, far) = tcp().await;
        tokio::spawn(server.serve(far, Peer::Stdio));
        let ask = |line: &str| parse(line, Dialect::Linux).unwrap();
        for line in [
            "Tversion tag -1 msize 65536 version '9P2000.L'",
            "Tattach tag 1 fid 0 afid -1 uname 'u' aname '' n_uname -1",
            "Twalk tag 1 fid 0 newfid 1 nwname 1 0:'f'",
            "Tlopen tag 1 fid 1 flags 0",
        ] {
            near.write_all(&ask(line)).await.unwrap();
            let size = near.read_u32_le().await.unwrap() as usize;
            near.read_exact(&mut vec![0; size - 4]).await.unwrap();
        }
        // More than the sockets' buffers take and the server has unsent.
        let mut reads = Vec::new();
        for tag in 0..1000 {
            reads.extend(ask(&format!("Tread tag {tag} fid 1 offset {} count 65000", tag % 50 * 65_001 + n)));
        }
        near.write_all(&reads).await.unwrap();
        deaf.push(near);
        if n == 0 {
            // Enough is asked for to fill every pipe that one may have.
            tokio::time::timeout(SOON, async {
                while pipe_ends() < 2 * PIPES_OF_ONE {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await
            .unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            // The others are idle ones of earlier.
            let ends = pipe_ends();
            assert!(ends <= 2 * (PIPES_OF_ONE + PIPES_IDLE), "{ends}");
        }
    }
    for client in clients(&server, 1 << 20).await {
        let file = open(&client, "f").await;
        let got = file.read_at(5, 1_000_000).await.unwrap();
        assert!(got == bytes[5..1_000_005]);
        assert!(pipe_ends() <= 2 * PIPES, "{}", pipe_ends());
    }
    // One of them reads after all: its replies are whole and in order.
    let mut late = deaf.pop().unwrap();
    for tag in 0..1000_u16 {
        let mut head = [0; 11];
        tokio::time::timeout(SOON, late.read_exact(&mut head)).await.unwrap().unwrap();
        let (size, count) = (&head[..4], u32::from_le_bytes(head[7..].try_into().unwrap()) as usize);
        assert_eq!((u32::from_le_bytes(size.try_into().unwrap()) as usize, head[4]), (11 + count, 117));
        assert_eq!(u16::from_le_bytes([head[5], head[6]]), tag);
        let mut data = vec![0; count];
        tokio::time::timeout(SOON, late.read_exact(&mut data)).await.unwrap().unwrap();
        let offset = usize::from(tag) % 50 * 65_001 + 4;
        assert!(data == bytes[offset..offset + 65_000], "tag {tag}");
    }
    drop((deaf, late));
    tokio::time::timeout(SOON, server.drain()).await.unwrap();
    // What was in them is thrown away, they with it.
    assert!(pipe_ends() <= 2 * PIPES_IDLE, "{}", pipe_ends());
    let server = serve(&dir);
    for client in clients(&server, 1 << 20).await {
        assert!(open(&client, "f").await.read_at(7, 900_000).await.unwrap() == bytes[7..900_007]);
    }
    let ends = pipe_ends();
    assert!((2..=2 * PIPES).contains(&ends), "{ends}: are there pipes again?");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_cut_off_while_it_is_read_gives_whole_replies() {
    let _alone = ALONE.lock().await;
    pipe_ends();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, vec![b'a'; 3 << 20]).unwrap();
    let (server, done) = (serve(&dir), Arc::new(AtomicBool::new(false)));
    let cutter = {
        let (file, done) = (fs::OpenOptions::new().write(true).open(&path).unwrap(), done.clone());
        std::thread::spawn(move || {
            let all = vec![b'a'; 3 << 20];
            let mut cuts = 0_u64;
            while !done.load(Ordering::Relaxed) {
                file.set_len(cuts * 7919 % (3 << 20)).unwrap();
                file.write_all_at(&all, 0).unwrap();
                cuts += 1;
            }
            cuts
        })
    };
    let mut short = 0;
    for client in clients(&server, 1 << 20).await {
        let file = open(&client, "f").await;
        for round in 0..40 {
            let reads = (0..12).map(|n| file.read_at(n * 250_000 + round, 250_000));
            for got in join_all(reads).await {
                let got = got.unwrap();
                assert!(got.iter().all(|byte| *byte == b'a' || *byte == 0));
                short += usize::from(got.len() < 250_000);
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    assert!(cutter.join().unwrap() > 0);
    println!("{short} short replies");
}

/// Bytes of a Twrite before its data.
const HEAD: usize = 23;

/// A Twrite.
fn twrite(tag: u16, fid: u32, offset: usize, data: &[u8]) -> Vec<u8> {
    let mut frame = ((HEAD + data.len()) as u32).to_le_bytes().to_vec();
    frame.push(118);
    frame.extend(tag.to_le_bytes());
    frame.extend(fid.to_le_bytes());
    frame.extend((offset as u64).to_le_bytes());
    frame.extend((data.len() as u32).to_le_bytes());
    frame.extend(data);
    frame
}

async fn reply(from: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut size = [0; 4];
    tokio::time::timeout(SOON, from.read_exact(&mut size)).await.unwrap().unwrap();
    let mut rest = vec![0; u32::from_le_bytes(size) as usize - 4];
    tokio::time::timeout(SOON, from.read_exact(&mut rest)).await.unwrap().unwrap();
    [&size[..], &rest].concat()
}

/// A session of ours, in which fid 0 is a new file with this name and `flags`.
async fn created(server: &Arc<Server>, stream: impl Into<Stream>, near: &mut Stream, peer: Peer, flags: u32) {
    tokio::spawn(server.serve(stream.into(), peer));
    for line in [
        "Tversion tag -1 msize 1048600 version '9P2000.L'",
        "Tattach tag 0 fid 0 afid -1 uname 'u' aname '' n_uname -1",
        &format!("Tlcreate tag 0 fid 0 name 'f' flags {flags:#o} mode 0600 gid 0").replace("0o", "0"),
    ] {
        near.write_all(&parse(line, Dialect::Linux).unwrap()).await.unwrap();
        assert_ne!(reply(near).await[4], 7, "{line}");
    }
}

const HERE: Peer = Peer::Unix { uid: 0, gid: 0, pid: 0 };
const WRONLY: u32 = 1;
const APPEND: u32 = 0o2000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_at_once_in_whatever_pieces_is_the_file() {
    let _alone = ALONE.lock().await;
    pipe_ends();
    let sizes = [200_000, 1 << 20, 1 << 20, 5, 1 << 20, 131_049, 131_050, 300_000, 300_000, 0, 1 << 20, 1 << 20];
    let bytes = content(sizes.iter().sum());
    for (peer, flags, pieces) in [
        (Peer::Stdio, WRONLY, &[10 << 20][..]),
        (HERE, WRONLY, &[10 << 20]),
        (HERE, WRONLY, &[3, 100_000, 1, 900, 2_000_000, 20, 65_536]),
        (HERE, WRONLY, &[700]),
        (HERE, WRONLY | APPEND, &[10 << 20]),
    ] {
        for unix in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let server = serve(&dir);
            let (mut near, far): (Stream, Stream) = if unix {
                let (near, far) = UnixStream::pair().unwrap();
                (near.into(), far.into())
            } else {
                let (near, far) = tcp().await;
                near.set_nodelay(true).unwrap();
                (near.into(), far.into())
            };
            created(&server, far, &mut near, peer.clone(), flags).await;
            let mut all = Vec::new();
            let mut at = 0;
            for (tag, size) in (1..).zip(sizes) {
                // Where it is to be appended the offset does not count.
                let offset = if flags & APPEND == 0 { at } else { 0 };
                all.extend(twrite(tag, 0, offset, &bytes[at..at + size]));
                at += size;
            }
            let (mut from, mut to) = tokio::io::split(near);
            let writes = async {
                let (mut left, mut pieces) = (&all[..], pieces.iter().cycle());
                while !left.is_empty() {
                    let (now, then) = left.split_at(left.len().min(*pieces.next().unwrap()));
                    to.write_all(now).await.unwrap();
                    left = then;
                }
            };
            let reads = async {
                for (tag, size) in (1_u16..).zip(sizes) {
                    let reply = reply(&mut from).await;
                    assert_eq!((reply[4], u16::from_le_bytes([reply[5], reply[6]])), (119, tag));
                    assert_eq!(u32::from_le_bytes(reply[7..].try_into().unwrap()), size as u32);
                }
            };
            tokio::join!(writes, reads);
            assert!(fs::read(dir.path().join("f")).unwrap() == bytes, "{peer} {flags:#o} {pieces:?} {unix}");
        }
    }
}

/// A file that remembers how the data of its writes came: how many bytes, and whether in a pipe. Its attributes wait until they are let go.
#[derive(Clone, Default)]
struct Told {
    writes: Arc<std::sync::Mutex<Vec<(usize, bool)>>>,
    attributes: Arc<tokio::sync::Notify>,
}

/// One that is served, and its client, whose fid 0 it is, open.
async fn told(peer: Peer, version: &str) -> (Told, Stream) {
    let told = Told::default();
    let server = Server::builder().export("", Arc::new(told.clone()), false).build();
    let (near, far) = UnixStream::pair().unwrap();
    let mut near = Stream::from(near);
    tokio::spawn(server.serve(far, peer));
    for line in [
        &format!("Tversion tag -1 msize 1048600 version '{version}'"),
        "Tattach tag 0 fid 0 afid -1 uname 'u' aname '' n_uname -1",
        "Tlopen tag 0 fid 0 flags 2",
    ] {
        near.write_all(&parse(line, Dialect::Linux).unwrap()).await.unwrap();
        assert_ne!(reply(&mut near).await[4], 7, "{line}");
    }
    (told, near)
}

const QID: Qid = Qid { kind: QidType::FILE, version: 0, path: 1 };

impl FileServer for Told {
    fn attach(&self, _: &Cx, _: &server::Attach) -> Answer<(Qid, Arc<dyn server::File>)> {
        Answer::ok((QID, Arc::new(self.clone())))
    }
}

impl server::File for Told {
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
        let attributes = self.attributes.clone();
        Answer::later(async move {
            attributes.notified().await;
            Ok(Attr::default())
        })
    }

    fn write(&self, cx: &Cx, offset: u64, data: Bytes) -> Answer<u32> {
        self.write_data(cx, offset, data.into())
    }

    fn takes_pipes(&self) -> bool {
        true
    }

    fn write_data(&self, _: &Cx, _: u64, data: Data) -> Answer<u32> {
        let (length, is_piped) = (data.len(), data.is_piped());
        self.writes.lock().unwrap().push((length, is_piped));
        let bytes = data.into_bytes().unwrap();
        assert!(bytes.len() == length && bytes.iter().all(|byte| *byte == 7));
        Answer::ok(length as u32)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_writes_of_a_peer_on_this_machine_come_in_pipes_behind_the_first() {
    let _alone = ALONE.lock().await;
    let sizes = [1 << 20, 1 << 20, 200_000, 200_000, 65_536, 1 << 20, 1 << 20];
    for (peer, come) in [(HERE, [false, true, true, true, false, false, true]), (Peer::Stdio, [false; 7])] {
        let (told, mut near) = told(peer, "9P2000.L").await;
        for (tag, size) in (1..).zip(sizes) {
            near.write_all(&twrite(tag, 0, 0, &vec![7; size])).await.unwrap();
            assert_eq!(reply(&mut near).await[4], 119);
        }
        let came: Vec<_> = sizes.into_iter().zip(come).collect();
        assert_eq!(*told.writes.lock().unwrap(), came);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_one_that_came_in_too_many_pieces_for_a_pipe_others_come_in_pipes_again() {
    let _alone = ALONE.lock().await;
    let (told, mut near) = told(HERE, "9P2000.L").await;
    let frame = twrite(1, 0, 0, &vec![7; 1 << 20]);
    for (n, piece) in std::iter::repeat_n(frame.len(), 70).enumerate() {
        let piece = if n == 1 { 300 } else { piece };
        for part in frame.chunks(piece) {
            near.write_all(part).await.unwrap();
        }
        assert_eq!(reply(&mut near).await[4], 119);
    }
    let piped: Vec<_> = told.writes.lock().unwrap().iter().map(|(_, is_piped)| *is_piped).collect();
    let first = piped.iter().position(|is_piped| *is_piped).expect("one in a pipe");
    assert!((3..70).contains(&first) && piped[first..].iter().all(|is_piped| *is_piped), "{piped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_fid_goes_while_its_data_come_is_refused_and_what_follows_is_not() {
    let _alone = ALONE.lock().await;
    let (told, mut near) = told(HERE, "9P2000.L.n1").await;
    let frame = twrite(1, 0, 0, &vec![7; 1 << 20]);
    near.write_all(&frame).await.unwrap();
    assert_eq!(reply(&mut near).await[4], 119);
    let send = |line: &str| parse(line, Dialect::Linux).unwrap();
    near.write_all(&send("Tgetattr tag 9 fid 0 request_mask 1")).await.unwrap();
    near.write_all(&send("Tclunk tag 9 fid 0")).await.unwrap();
    // Time for the server to take each of these; what is expected is the same without.
    let moment = Duration::from_millis(50);
    tokio::time::sleep(moment).await;
    near.write_all(&frame[..HEAD]).await.unwrap();
    tokio::time::sleep(moment).await;
    near.write_all(&frame[HEAD..600_000]).await.unwrap();
    tokio::time::sleep(moment).await;
    told.attributes.notify_one();
    tokio::time::sleep(moment).await;
    near.write_all(&frame[600_000..]).await.unwrap();
    let mut came = Vec::new();
    for _ in 0..3 {
        let reply = reply(&mut near).await;
        came.push((reply[5], reply[4]));
    }
    came.sort_unstable();
    assert_eq!(came, [(1, 7), (9, 25), (9, 121)]);
    near.write_all(&send("Tattach tag 3 fid 0 afid -1 uname 'u' aname '' n_uname -1")).await.unwrap();
    assert_eq!(reply(&mut near).await[4], 105, "the connection is in step");
    assert_eq!(told.writes.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_write_that_is_cut_off_nothing_is_written_and_its_pipe_is_free_again() {
    let _alone = ALONE.lock().await;
    pipe_ends();
    let mut bytes = content(4 << 20);
    bytes.truncate(1 << 20);
    // More often than there are pipes.
    for rest in [1, 500_000, 1 << 20].repeat(PIPES / 2) {
        let dir = tempfile::tempdir().unwrap();
        let server = serve(&dir);
        let (near, far) = tcp().await;
        let mut near = Stream::from(near);
        created(&server, far, &mut near, HERE, WRONLY).await;
        // The second one is expected.
        near.write_all(&twrite(1, 0, 0, &bytes)).await.unwrap();
        assert_eq!(reply(&mut near).await[4], 119);
        let cut = twrite(2, 0, bytes.len(), &bytes);
        near.write_all(&cut[..cut.len() - rest]).await.unwrap();
        near.shutdown().await.unwrap();
        let mut none = Vec::new();
        tokio::time::timeout(SOON, near.read_to_end(&mut none)).await.unwrap().unwrap();
        assert!(none.is_empty());
        tokio::time::timeout(SOON, server.drain()).await.unwrap();
        assert!(fs::read(dir.path().join("f")).unwrap() == bytes, "{rest}");
        assert!(pipe_ends() < 2 * PIPES, "{}", pipe_ends());
    }
}
