//! The data connections of a session: where they go, and those that were opened ahead of need.
//!
//! They go to the address that the session's own connection has at its other end, or is about to have ([`Beside`]), not to a name, which may lead elsewhere by now, and
//! never where a server says: see [`Dialer::is_peer`]. Behind TLS they have TLS of the same terms. Where the session has no such address (standard input, ssh, memory) there are
//! none, and after one that could not be had no other is tried.
//!
//! Whoever needs one while some are on their way that were asked for ahead waits for one of those: [`Pool`].
//!
//! Locks: `pool` alone, never held across an await.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::memory::Entry;
use super::options::Options;
use super::ranges::Width;
use crate::transport::{self, Address, Place, Stream, Terms};

/// The longest wait for a connection: two SYNs, sent after 0 and 1 s (RFC 6298), and 2 s for the last to be answered. The session's
/// own address has just answered, and there is another way for the data.
const PATIENCE: Duration = Duration::from_secs(3);

/// How old a connection may be that was opened ahead: a server waits 10 s for its token (docs/protocol.md, "Streams"), and the token
/// has yet to travel.
const IDLE: Duration = Duration::from_secs(5);

/// How long none is asked for behind one that could not be had or brought nothing: whoever serves others through this session has it for days.
const PAUSE: Duration = Duration::from_secs(60);

/// See the [module](self). One of a session.
#[derive(Debug)]
pub(super) struct Dialer {
    target: Option<Target>,
    /// How long the session's own took.
    took: Duration,
    /// What a round trip takes, as far as that was seen before the attach.
    trip: Duration,
    /// One could not be had.
    failed: Mutex<Option<Instant>>,
    pool: Mutex<Pool>,
    /// Streams were asked for ahead.
    is_used: AtomicBool,
}

/// What was asked for ahead of need.
#[derive(Debug, Default)]
struct Pool {
    /// By age, the oldest first.
    idle: Vec<(Instant, Stream)>,
    /// So many are on their way.
    under_way: usize,
    /// Who waits for one of those: never more than there are.
    waiters: VecDeque<oneshot::Sender<io::Result<Stream>>>,
}

impl Pool {
    fn take_idle(&mut self) -> Option<Stream> {
        self.idle.retain(|(since, stream)| since.elapsed() < IDLE && is_silent(stream));
        // The oldest has the least time left.
        if self.idle.is_empty() { None } else { Some(self.idle.remove(0).1) }
    }

    /// A place among those who wait, if one more is on its way than are waited for.
    fn wait(&mut self) -> Option<oneshot::Receiver<io::Result<Stream>>> {
        self.waiters.retain(|waiter| !waiter.is_closed());
        if self.waiters.len() >= self.under_way {
            return None;
        }
        let (tell, told) = oneshot::channel();
        self.waiters.push_back(tell);
        Some(told)
    }

    /// One that was on its way is there, or cannot be had.
    fn came(&mut self, since: Instant, dialled: io::Result<Stream>) {
        self.under_way -= 1;
        self.waiters.retain(|waiter| !waiter.is_closed());
        // An error is told to who would else wait for nothing.
        if dialled.is_err() && self.waiters.len() <= self.under_way {
            return;
        }
        let mut dialled = dialled;
        while let Some(waiter) = self.waiters.pop_front() {
            match waiter.send(dialled) {
                Ok(()) => return,
                // He has gone since.
                Err(back) => dialled = back,
            }
        }
        if let Ok(stream) = dialled {
            self.idle.push((since, stream));
        }
    }
}

/// Connections for streams that are dialled with the session's own.
#[derive(Debug)]
pub(super) struct Beside {
    address: SocketAddr,
    since: Instant,
    dialled: Vec<AbortOnDropHandle<io::Result<Stream>>>,
}

impl Beside {
    /// Dials the address that the session is to have, where streams are wanted: several where the way was long the last time.
    pub fn dial(address: &Address, first: SocketAddr, options: &Options, known: &Entry) -> Option<Beside> {
        let is_open = matches!(address.place, Place::Tcp { .. });
        let streams = if options.streams && is_open { options.streams_at_once } else { 0 };
        let connections = Width::at_once(known.trip, streams);
        let dial = || AbortOnDropHandle::new(tokio::spawn(Target::Tcp(first).dial()));
        let dialled: Vec<_> = std::iter::repeat_with(dial).take(connections).collect();
        (connections > 0).then(|| Beside { address: first, since: Instant::now(), dialled })
    }
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
                Target::Tcp(address) => dial_tcp(address).await.map(Stream::Tcp),
                Target::Tls(address, terms) => terms.connect(dial_tcp(address).await?).await.map(Stream::Tls),
                Target::Unix(path) => transport::dial_unix(&path),
            }
        };
        tokio::time::timeout(PATIENCE, dial).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Dialer {
    /// For the session that `stream` carries, which was made within `took`; what it sent first was answered within `answered`.
    pub fn of(stream: &Stream, took: Duration, answered: Duration) -> Arc<Dialer> {
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
        Arc::new(Dialer {
            target,
            took,
            trip: took.max(answered),
            failed: Mutex::default(),
            pool: Mutex::default(),
            is_used: AtomicBool::new(false),
        })
    }

    /// How long it took to make the session's connection, in the open one round trip; zero where nobody knows.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// What a round trip takes, as far as it is known before the attach; zero where nobody knows.
    pub fn trip(&self) -> Duration {
        self.trip
    }

    /// Whether this is asked for the first time: what is then asked for ahead was dialled for that, and is in nobody's way.
    pub fn take_first_use(&self) -> bool {
        !self.is_used.swap(true, Ordering::Relaxed)
    }

    /// Whether they are of TCP in the open, where a server sees at once that one has gone.
    pub fn is_tcp(&self) -> bool {
        matches!(self.target, Some(Target::Tcp(_)))
    }

    /// Whether each has TLS to agree on.
    pub fn is_sealed(&self) -> bool {
        matches!(self.target, Some(Target::Tls(..)))
    }

    /// Whether what is sent may be lost on the way, and has to be sent again.
    pub fn may_lose(&self) -> bool {
        matches!(self.target, Some(Target::Tcp(_) | Target::Tls(..)))
    }

    /// Whether it is worth asking for one.
    pub fn may(&self) -> bool {
        let failed = *self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        self.target.is_some() && failed.is_none_or(|failed| failed.elapsed() >= PAUSE)
    }

    /// None is asked for any more for [`PAUSE`].
    pub fn give_up(&self) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.lock().idle.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection, one that was opened ahead if there is one, or is about to be. Dropped before it is done it leaves that to others.
    pub async fn open(&self) -> io::Result<Stream> {
        let told = {
            let mut pool = self.lock();
            if let Some(stream) = pool.take_idle() {
                return Ok(stream);
            }
            pool.wait()
        };
        if let Some(told) = told {
            // It began before this wait did.
            return match tokio::time::timeout(PATIENCE, told).await {
                Ok(Ok(dialled)) => dialled,
                _ => Err(io::ErrorKind::TimedOut.into()),
            };
        }
        match self.target.clone() {
            Some(target) => target.dial().await,
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Opens one ahead, whatever is there already.
    pub fn open_another(self: &Arc<Self>) {
        let idle = self.lock().idle.len();
        self.open_ahead(idle + 1);
    }

    /// Whether one is there that was asked for at `asked` or later.
    pub fn has_idle(&self, asked: Instant) -> bool {
        let is_good =
            |(since, stream): &(Instant, Stream)| *since >= asked && since.elapsed() < IDLE && is_silent(stream);
        self.lock().idle.iter().any(is_good)
    }

    /// Opens so many ahead of need, in tasks of their own.
    pub fn open_ahead(self: &Arc<Self>, connections: usize) {
        if !self.may() {
            return;
        }
        let Some(target) = &self.target else { return };
        let wanted = {
            let mut pool = self.lock();
            // Those that are there, or on their way and waited for by nobody, are for whoever comes.
            let free = pool.idle.len() + (pool.under_way - pool.waiters.len().min(pool.under_way));
            let wanted = connections.saturating_sub(free);
            pool.under_way += wanted;
            wanted
        };
        for _ in 0..wanted {
            self.take_in(Instant::now(), target.clone().dial());
        }
    }

    /// Takes those that were dialled beside the session's own connection, if they lead to where that does.
    pub fn adopt(self: &Arc<Self>, beside: Beside) {
        if !matches!(self.target, Some(Target::Tcp(address)) if address == beside.address) {
            return;
        }
        self.lock().under_way += beside.dialled.len();
        for dialled in beside.dialled {
            let dialled = async move { dialled.await.unwrap_or_else(|e| Err(io::Error::other(e))) };
            self.take_in(beside.since, dialled);
        }
    }

    /// Keeps one that is on its way, and counted, for whoever comes.
    fn take_in(self: &Arc<Self>, since: Instant, dialled: impl Future<Output = io::Result<Stream>> + Send + 'static) {
        let dialer = self.clone();
        tokio::spawn(async move {
            let dialled = dialled.await;
            {
                let mut pool = dialer.lock();
                pool.came(since, dialled);
                // Nobody takes it any more.
                if !dialer.may() {
                    pool.idle.clear();
                }
            }
            tokio::time::sleep(IDLE).await;
            dialer.lock().idle.retain(|(since, _)| since.elapsed() < IDLE);
        });
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

/// A data connection, on which much may come.
async fn dial_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = transport::dial_tcp(address).await?;
    transport::open_window(&stream, u64::MAX);
    Ok(stream)
}

/// Whether its end came, and no reset: that of a stream that is written is the server's word that it has all of it.
pub(super) fn is_at_end(stream: &Stream) -> bool {
    match stream {
        Stream::Tcp(stream) => matches!(stream.try_read(&mut [0]), Ok(0)),
        Stream::Unix(stream) => matches!(stream.try_read(&mut [0]), Ok(0)),
        _ => false,
    }
}

/// Whether nothing came, not even its end.
pub(super) fn is_silent(stream: &Stream) -> bool {
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
        (listener, Dialer::of(&stream, Duration::ZERO, Duration::ZERO), stream)
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
        let take_idle = || dialer.lock().take_idle();
        let opened = loop {
            if let Some(stream) = take_idle() {
                break stream;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(local(&opened), theirs.peer_addr().unwrap());
        // Its window is open.
        let Stream::Tcp(tcp) = &opened else { panic!("no TCP") };
        let plain = transport::dial_tcp(theirs.local_addr().unwrap()).await.unwrap();
        listener.accept().await.unwrap();
        assert!(transport::is_window_open(tcp, &plain));
        let put_back = |stream| dialer.lock().idle.push((Instant::now(), stream));
        let asked = Instant::now();
        assert!(!dialer.has_idle(asked));
        put_back(opened);
        assert!(dialer.has_idle(asked) && !dialer.has_idle(Instant::now()));
        drop(theirs);
        let before = { dialer.lock().idle.first().map(|(_, stream)| local(stream)) };
        let closed = async {
            while take_idle().map(put_back).is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), closed).await.expect("it is noticed");
        let anew = dialer.open().await.unwrap();
        assert_ne!(Some(local(&anew)), before);
    }

    #[tokio::test]
    async fn who_needs_one_waits_for_those_that_are_on_their_way_and_opens_no_more() {
        let (listener, dialer, _session) = session().await;
        listener.accept().await.unwrap();
        dialer.open_ahead(2);
        // Nothing was dialled yet: the tasks have not run.
        let opened = tokio::join!(dialer.open(), dialer.open());
        let mut ours = [opened.0.unwrap(), opened.1.unwrap()].map(|stream| match stream {
            Stream::Tcp(stream) => stream.local_addr().unwrap(),
            _ => panic!("no TCP"),
        });
        let mut theirs = [listener.accept().await.unwrap().1, listener.accept().await.unwrap().1];
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs);
        let pool = dialer.lock();
        assert_eq!((pool.idle.len(), pool.under_way, pool.waiters.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn one_that_nobody_waits_for_any_more_is_kept_and_an_error_is_told_to_who_would_wait_in_vain() {
        let (listener, dialer, session) = session().await;
        let (first, second, third) = {
            let mut pool = dialer.lock();
            pool.under_way = 2;
            (pool.wait().unwrap(), pool.wait().unwrap(), pool.wait())
        };
        assert!(third.is_none());
        drop(first);
        let refused = || Err(io::ErrorKind::ConnectionRefused.into());
        // The other is on its way still, and one waits.
        dialer.lock().came(Instant::now(), refused());
        dialer.lock().came(Instant::now(), refused());
        assert_eq!(second.await.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let waiter = {
            let mut pool = dialer.lock();
            pool.under_way = 1;
            pool.wait().unwrap()
        };
        drop(waiter);
        dialer.lock().came(Instant::now(), Ok(session));
        assert!(dialer.lock().take_idle().is_some());
        drop(listener);
    }

    #[tokio::test]
    async fn behind_one_that_could_not_be_had_others_are_asked_for_again_after_a_while() {
        let (_listener, dialer, _session) = session().await;
        dialer.give_up();
        assert!(!dialer.may());
        tokio::time::pause();
        tokio::time::advance(PAUSE).await;
        assert!(dialer.may());
    }

    #[tokio::test]
    async fn a_session_in_memory_has_no_other_way_for_data() {
        let (ours, _theirs) = transport::memory::pair(64);
        let dialer = Dialer::of(&ours, Duration::ZERO, Duration::ZERO);
        assert!(!dialer.may());
        assert!(dialer.open().await.is_err());
    }
}
