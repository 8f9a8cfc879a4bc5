//! The data connections of a session: where they go, and those that were opened ahead of need.
//!
//! They go to the address that the session's own connection has at its other end, not to a name, which may lead elsewhere by now, and
//! never where a server says: see [`Dialer::is_peer`]. Behind TLS they have TLS of the same terms. Where the session has no such address (standard input, ssh, memory) there are
//! none, and after one that could not be had no other is tried.
//!
//! Locks: `idle` alone, never held across an await.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::transport::{self, Stream, Terms};

/// The longest wait for a connection: two SYNs, sent after 0 and 1 s (RFC 6298), and 2 s for the last to be answered. The session's
/// own address has just answered, and there is another way for the data.
const PATIENCE: Duration = Duration::from_secs(3);

/// How old a connection may be that was opened ahead: a server waits 10 s for its token (docs/protocol.md, "Streams"), and the token
/// has yet to travel.
const IDLE: Duration = Duration::from_secs(5);

/// See the [module](self). One of a session.
#[derive(Debug)]
pub(super) struct Dialer {
    target: Option<Target>,
    /// One could not be had.
    failed: AtomicBool,
    idle: Mutex<Vec<(Instant, Stream)>>,
}

#[derive(Clone, Debug)]
enum Target {
    Tcp(SocketAddr),
    Tls(SocketAddr, Terms),
    Unix(PathBuf),
}

impl Target {
    async fn dial(self) -> io::Result<Stream> {
        let dial = async {
            match self {
                Target::Tcp(address) => transport::dial_tcp(address).await.map(Stream::Tcp),
                Target::Tls(address, terms) => {
                    terms.connect(transport::dial_tcp(address).await?).await.map(Stream::Tls)
                }
                Target::Unix(path) => transport::dial_unix(&path).await,
            }
        };
        tokio::time::timeout(PATIENCE, dial).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Dialer {
    /// For the session that `stream` carries.
    pub fn of(stream: &Stream) -> Arc<Dialer> {
        let target = match stream {
            Stream::Tcp(stream) => stream.peer_addr().ok().map(Target::Tcp),
            Stream::Tls(stream) => stream.again().map(|(address, terms)| Target::Tls(address, terms)),
            // A relative path is one of the server's working directory.
            Stream::Unix(stream) => {
                let path = stream.peer_addr().ok().and_then(|address| address.as_pathname().map(PathBuf::from));
                path.filter(|path| path.is_absolute()).map(Target::Unix)
            }
            _ => None,
        };
        Arc::new(Dialer { target, failed: AtomicBool::new(false), idle: Mutex::default() })
    }

    /// Whether it is worth asking for one.
    pub fn may(&self) -> bool {
        self.target.is_some() && !self.failed.load(Ordering::Relaxed)
    }

    /// None is asked for any more.
    pub fn give_up(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Stream)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection, one that was opened ahead if there is one.
    pub async fn open(&self) -> io::Result<Stream> {
        if let Some(stream) = self.take_idle() {
            return Ok(stream);
        }
        match self.target.clone() {
            Some(target) => target.dial().await,
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn take_idle(&self) -> Option<Stream> {
        let mut idle = self.lock();
        idle.retain(|(since, stream)| since.elapsed() < IDLE && is_silent(stream));
        // The oldest has the least time left.
        if idle.is_empty() { None } else { Some(idle.remove(0).1) }
    }

    /// Opens so many ahead of need, in tasks of their own. Who needs one sooner opens another.
    pub fn open_ahead(self: &Arc<Self>, connections: usize) {
        if !self.may() {
            return;
        }
        for _ in 0..connections {
            let dialer = self.clone();
            tokio::spawn(async move {
                let since = Instant::now();
                let Some(target) = dialer.target.clone() else { return };
                // What cannot be had is told to who needs it.
                if let Ok(stream) = target.dial().await {
                    dialer.lock().push((since, stream));
                }
            });
        }
    }

    /// The port of a stream on the session's own server (`.s`), if `host` is the address that the session has there. Any other is none of
    /// ours to connect to: a server could send us anywhere.
    pub async fn open_at(&self, host: &str, port: u16) -> io::Result<Stream> {
        match self.target {
            Some(Target::Tcp(address)) if self.is_peer(host) => {
                Target::Tcp(SocketAddr::new(address.ip(), port)).dial().await
            }
            _ => Err(io::Error::new(io::ErrorKind::PermissionDenied, "the address of the stream is not its server's")),
        }
    }

    fn is_peer(&self, host: &str) -> bool {
        let Some(Target::Tcp(address)) = self.target else { return false };
        host.parse::<IpAddr>().is_ok_and(|host| host.to_canonical() == address.ip().to_canonical())
    }
}

/// Whether nothing came, not even its end.
fn is_silent(stream: &Stream) -> bool {
    let blocks = |read: io::Result<usize>| read.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
    match stream {
        Stream::Tcp(stream) => blocks(stream.try_read(&mut [0])),
        Stream::Unix(stream) => blocks(stream.try_read(&mut [0])),
        // The server may have sent tickets: what came is no data, and an end is told to who uses it.
        Stream::Tls(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn session() -> (TcpListener, Arc<Dialer>, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = Stream::Tcp(transport::dial_tcp(listener.local_addr().unwrap()).await.unwrap());
        (listener, Dialer::of(&stream), stream)
    }

    #[tokio::test]
    async fn an_address_is_dialled_only_if_it_is_the_sessions_own() {
        let (_listener, dialer, _session) = session().await;
        for (host, is_peer) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.2", false),
            ("localhost", false),
            ("::1", false),
        ] {
            assert_eq!(dialer.is_peer(host), is_peer, "{host}");
        }
        let refused = dialer.open_at("192.0.2.1", 80).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[tokio::test]
    async fn a_connection_opened_ahead_is_used_unless_its_server_closed_it() {
        let (listener, dialer, _session) = session().await;
        listener.accept().await.unwrap();
        dialer.open_ahead(1);
        let (theirs, _) = listener.accept().await.unwrap();
        let local = |stream: &Stream| match stream {
            Stream::Tcp(stream) => stream.local_addr().unwrap(),
            _ => panic!("no TCP"),
        };
        let opened = loop {
            if let Some(stream) = dialer.take_idle() {
                break stream;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(local(&opened), theirs.peer_addr().unwrap());
        let put_back = |stream| dialer.lock().push((Instant::now(), stream));
        put_back(opened);
        drop(theirs);
        let before = { dialer.lock().first().map(|(_, stream)| local(stream)) };
        let closed = async {
            while dialer.take_idle().map(put_back).is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), closed).await.expect("it is noticed");
        let anew = dialer.open().await.unwrap();
        assert_ne!(Some(local(&anew)), before);
    }

    #[tokio::test]
    async fn a_session_in_memory_has_no_other_way_for_data() {
        let (ours, _theirs) = transport::memory::pair(64);
        let dialer = Dialer::of(&ours);
        assert!(!dialer.may());
        assert!(dialer.open().await.is_err());
    }
}
