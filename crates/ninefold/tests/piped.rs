//! Large reads over sockets, whose data go from the page cache to the socket through pipes. A process of its own: the pipes
//! are the process's, and are counted.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use ninefold::client::{Attach, Client, File, Follow, Mode, Options};
use ninefold::proto::Dialect;
use ninefold::proto::print::parse;
use ninefold::server::Server;
use ninefold::transport::{Peer, Stream};
use ninefold::tree::hostfs::HostFs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Mutex;

/// The bound of waits that ought to end soon.
const SOON: Duration = Duration::from_secs(60);

/// Pipes that the server may have, and those of one connection; the empty ones that it keeps.
const PIPES: usize = 24;
const PIPES_OF_ONE: usize = 9;
const PIPES_IDLE: usize = 8;

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
