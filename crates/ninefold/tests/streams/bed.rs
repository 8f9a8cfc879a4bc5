//! A server on TCP with a directory and trees in memory, and sessions that speak by lines.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ninefold::proto::Dialect;
use ninefold::proto::dialect::Version;
use ninefold::proto::message::R;
use ninefold::proto::print::{Data, parse, print};
use ninefold::proto::wire::split_frame;
use ninefold::server::{Limits, Server, StreamCounts, StreamLimits};
use ninefold::transport::{Address, Listener, Stream};
use ninefold::tree::hostfs::HostFs;
use ninefold::tree::ramfs::RamFs;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

/// The bound of a wait that ought to end soon.
pub const SOON: Duration = Duration::from_secs(60);

/// Bytes that the tree `small` holds.
pub const SMALL: u64 = 96 * 1024;

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what} did not end"))
}

/// Of connections.
pub fn any_number() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))
}

pub struct Bed {
    pub server: Arc<Server>,
    pub address: SocketAddr,
    pub dir: tempfile::TempDir,
}

impl Bed {
    pub fn new() -> Bed {
        Bed::with(Limits::default(), StreamLimits::default())
    }

    pub fn with(limits: Limits, streams: StreamLimits) -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_owned();
        Bed::of(&root, dir, limits, streams)
    }

    /// Exports `root`.
    pub fn of(root: &Path, dir: tempfile::TempDir, limits: Limits, streams: StreamLimits) -> Bed {
        let server = Server::builder()
            .export("host", Arc::new(HostFs::open(root).unwrap()), false)
            .export("mem", Arc::new(RamFs::new()), false)
            .export("small", Arc::new(RamFs::with_limit(SMALL)), false)
            .limits(limits)
            .streams(streams)
            .build();
        Bed::serving(server, dir)
    }

    /// A server that is given each connection by itself.
    pub fn one_by_one(self) -> Bed {
        let (listener, address) = listener();
        let server = self.server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await;
                tokio::spawn(server.serve(stream, peer));
            }
        });
        Bed { address, ..self }
    }

    /// With a server of one's own.
    pub fn serving(server: Arc<Server>, dir: tempfile::TempDir) -> Bed {
        let (listener, address) = listener();
        tokio::spawn(server.serve_all(listener, any_number()));
        Bed { server, address, dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of so many bytes, none like the next.
    pub fn file(&self, name: &str, len: usize) -> Vec<u8> {
        let bytes = noise(len);
        std::fs::write(self.path(name), &bytes).unwrap();
        bytes
    }

    pub async fn session(&self, version: &str, aname: &str) -> Session {
        Session::open(TcpStream::connect(self.address).await.unwrap(), version, aname).await
    }

    /// The server listens on a Unix socket too, at this path.
    pub async fn unix_socket(&self) -> PathBuf {
        let path = self.path("socket");
        let listener = Listener::bind(&Address::unix(&path)).await.unwrap();
        tokio::spawn(self.server.serve_all(listener, any_number()));
        path
    }

    /// A data connection that says nothing yet.
    pub async fn bare(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// One from another address of this machine.
    pub async fn bare_from(&self, from: Ipv4Addr) -> TcpStream {
        self.connect_from(from).await.unwrap()
    }

    pub async fn connect_from(&self, from: Ipv4Addr) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(IpAddr::V4(from), 0))?;
        socket.connect(self.address).await
    }

    pub async fn data(&self, token: &[u8]) -> TcpStream {
        let mut stream = self.bare().await;
        stream.write_all(&opening(token)).await.unwrap();
        stream
    }

    /// Waits until the counts are so.
    pub async fn counts(&self, what: &str, is: impl Fn(StreamCounts) -> bool) {
        soon(what, async {
            while !is(self.server.stream_counts()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Waits until so many data connections wait for their Tstream.
    pub async fn waits_early(&self, connections: usize) {
        self.counts("connections that came early", |counts| counts.early == connections).await;
    }

    /// Waits until the file begins with these bytes.
    pub async fn has(&self, what: &str, name: &str, bytes: &[u8]) {
        soon(what, async {
            while !std::fs::read(self.path(name)).unwrap().starts_with(bytes) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Waits until no stream is open.
    pub async fn quiet(&self) {
        soon("the last stream", async {
            while self.server.streams() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

pub fn listener() -> (Listener, SocketAddr) {
    let listener = futures_now(Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()));
    let address = listener.socket_address().unwrap();
    (listener, address)
}

/// A future that is ready at once.
fn futures_now<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    let mut future = std::pin::pin!(future);
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut task) {
        std::task::Poll::Ready(result) => result.unwrap(),
        std::task::Poll::Pending => panic!("a bind to a number waits"),
    }
}

pub fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let word = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(word).collect();
    bytes.truncate(len);
    bytes
}

pub fn opening(token: &[u8]) -> Vec<u8> {
    [b"9Pstream", token].concat()
}

/// The same by a token that the client made.
pub fn own_opening(token: &[u8]) -> Vec<u8> {
    [b"9Pstmine", token].concat()
}

/// Whose token is the server's.
const NO_TOKEN: &str = "token 0x00000000000000000000000000000000";

pub struct Session {
    pub stream: Stream,
    version: Version,
}

/// What an Rstream of `.n1` said.
pub struct Opened {
    pub id: u32,
    pub token: Vec<u8>,
    pub modrev: u64,
    /// Where it begins in the file, and how many bytes it has.
    pub part: (u64, u64),
}

impl Session {
    pub async fn open(stream: impl Into<Stream>, version: &str, aname: &str) -> Session {
        let mut s = Session { stream: stream.into(), version: Version::LAYOUTS[0] };
        let line = format!("Tversion tag -1 msize 65536 version '{version}'");
        assert_eq!(s.ask(&line).await, format!("Rversion tag -1 msize 65536 version '{version}'"));
        s.version = Version::parse(version.as_bytes()).unwrap();
        let n_uname = if s.version.dialect == Dialect::Plan9 { "" } else { " n_uname -1" };
        let told = s.ask(&format!("Tattach tag 1 fid 0 afid -1 uname '' aname '{aname}'{n_uname}")).await;
        assert!(told.starts_with("Rattach"), "{told}");
        s
    }

    pub async fn send(&mut self, line: &str) {
        let frame = parse(line, self.version).unwrap_or_else(|e| panic!("{line}: {e}"));
        self.stream.write_all(&frame).await.unwrap();
        // One behind TLS keeps what a socket did not take at once.
        self.stream.flush().await.unwrap();
    }

    pub async fn frame(&mut self) -> Vec<u8> {
        soon("a reply", async {
            let mut frame = vec![0; 4];
            self.stream.read_exact(&mut frame).await.expect("the server closed the session");
            let size = u32::from_le_bytes(frame[..].try_into().unwrap());
            frame.resize(size as usize, 0);
            self.stream.read_exact(&mut frame[4..]).await.unwrap();
            frame
        })
        .await
    }

    pub async fn reply(&mut self) -> String {
        let frame = self.frame().await;
        print(&frame, self.version, Data::Whole).to_string()
    }

    pub async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        self.reply().await
    }

    /// Walks to a file and opens it: `how` is Tlopen's flags, or Topen's mode.
    pub async fn open_file(&mut self, fid: u32, name: &str, how: u32) {
        let told = self.ask(&format!("Twalk tag 1 fid 0 newfid {fid} nwname 1 0:{name}")).await;
        assert!(told.starts_with("Rwalk"), "{told}");
        let told = match self.version.is_n1() {
            true => self.ask(&format!("Tlopen tag 1 fid {fid} flags {how}")).await,
            false => self.ask(&format!("Topen tag 1 fid {fid} mode {how}")).await,
        };
        assert!(told.starts_with("Rlopen") || told.starts_with("Ropen"), "{told}");
    }

    pub async fn create(&mut self, fid: u32, name: &str) {
        let told = self.ask(&format!("Twalk tag 1 fid 0 newfid {fid} nwname 0")).await;
        assert!(told.starts_with("Rwalk"), "{told}");
        let create = match self.version.is_n1() {
            true => format!("Tlcreate tag 1 fid {fid} name '{name}' flags 02 mode 0644 gid -1"),
            false => {
                let more = if self.version.dialect == Dialect::Unix { " extension ''" } else { "" };
                format!("Tcreate tag 1 fid {fid} name '{name}' perm 0644 mode 2{more}")
            }
        };
        let told = self.ask(&create).await;
        assert!(told.starts_with("Rlcreate") || told.starts_with("Rcreate"), "{told}");
    }

    /// A stream of `.n1`, or the error's number.
    pub async fn stream(&mut self, fid: u32, read: bool, offset: u64, length: u64) -> Result<Opened, u32> {
        let isread = u8::from(read);
        let line =
            format!("Tstream tag 1 fid {fid} flags 0 isread {isread} offset {offset} length {length} {NO_TOKEN}");
        self.stream_by(&line).await
    }

    /// The same that is read, with flags.
    pub async fn stream_as(&mut self, flags: u32, fid: u32, offset: u64, length: u64) -> Result<Opened, u32> {
        let line = format!("Tstream tag 1 fid {fid} flags {flags} isread 1 offset {offset} length {length} {NO_TOKEN}");
        self.stream_by(&line).await
    }

    /// The same by a token of 16 such bytes that the client made.
    pub async fn stream_own(&mut self, byte: u8, read: bool, fid: u32, length: u64) -> Result<Opened, u32> {
        let (isread, token) = (u8::from(read), format!("{byte:02x}").repeat(16));
        let line = format!("Tstream tag 1 fid {fid} flags 0 isread {isread} offset 0 length {length} token 0x{token}");
        self.stream_by(&line).await
    }

    async fn stream_by(&mut self, line: &str) -> Result<Opened, u32> {
        self.send(line).await;
        let frame = self.frame().await;
        let (header, body) = split_frame(&frame).unwrap();
        match R::decode(header.kind, body, self.version).unwrap() {
            R::Stream { id, token, modrev, offset, length, addr, .. } => {
                assert_eq!(addr, b"");
                Ok(Opened { id, token: token.0.to_vec(), modrev, part: (offset, length) })
            }
            R::Lerror { ecode, .. } => Err(ecode),
            other => panic!("{line}: {other:?}"),
        }
    }

    /// How a stream ended: bytes and modrev, or the error's number.
    pub async fn end(&mut self, id: u32, flags: u32) -> Result<(u64, u64), u32> {
        self.send(&format!("Tstreamend tag 2 id {id} flags {flags}")).await;
        self.ended().await
    }

    pub async fn ended(&mut self) -> Result<(u64, u64), u32> {
        let frame = self.frame().await;
        let (header, body) = split_frame(&frame).unwrap();
        match R::decode(header.kind, body, self.version).unwrap() {
            R::Streamend { count, modrev } => Ok((count, modrev)),
            R::Lerror { ecode, .. } => Err(ecode),
            other => panic!("{other:?}"),
        }
    }
}

/// All that comes until the end.
pub async fn all(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    soon("the data", stream.read_to_end(&mut bytes)).await?;
    Ok(bytes)
}

/// Asserts that a data connection is reset without a byte: an end would be that of a whole file.
pub async fn is_reset(stream: &mut TcpStream) {
    let got = all(stream).await;
    let kind = got.as_ref().map_err(std::io::Error::kind);
    assert_eq!(kind.err(), Some(std::io::ErrorKind::ConnectionReset), "{got:?}");
}

/// Asserts that a data connection is closed without a byte.
pub async fn gets_nothing(stream: &mut TcpStream) {
    let got = all(stream).await;
    assert!(got.as_ref().map_or(true, Vec::is_empty), "{got:?}");
}
