//! A way to a server whose parts can be shut: what a session asks, what it is told, and what goes by data connections.

use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use ninefold::proto::n1::stream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Chain};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// See the [module](self). What is shut holds what comes, its end too.
pub struct Road {
    pub address: SocketAddr,
    made: Arc<AtomicU64>,
    asks: watch::Sender<bool>,
    tells: watch::Sender<bool>,
    data: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug)]
pub enum Part {
    Asks,
    Tells,
    Data,
}

/// Whether each is open.
#[derive(Clone)]
struct Open {
    asks: watch::Receiver<bool>,
    tells: watch::Receiver<bool>,
    data: watch::Receiver<bool>,
}

impl Road {
    pub async fn to(server: SocketAddr) -> Road {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Road::by(listener.local_addr().unwrap(), async { listener }, server)
    }

    /// By a listener that is there when it takes connections.
    pub fn by(
        address: SocketAddr,
        listener: impl Future<Output = TcpListener> + Send + 'static,
        server: SocketAddr,
    ) -> Road {
        let made = Arc::new(AtomicU64::new(0));
        let [asks, tells, data] = [(); 3].map(|()| watch::Sender::new(true));
        let open = Open { asks: asks.subscribe(), tells: tells.subscribe(), data: data.subscribe() };
        let count = made.clone();
        tokio::spawn(async move {
            let listener = listener.await;
            while let Ok((near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(join(near, server, open.clone()));
            }
        });
        Road { address, made, asks, tells, data }
    }

    pub fn shut(&self, part: Part) {
        self.gate(part).send_replace(false);
    }

    pub fn open(&self, part: Part) {
        self.gate(part).send_replace(true);
    }

    fn gate(&self, part: Part) -> &watch::Sender<bool> {
        match part {
            Part::Asks => &self.asks,
            Part::Tells => &self.tells,
            Part::Data => &self.data,
        }
    }

    /// Connections that came, of whatever kind.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

/// A connection that came, and the one behind it.
pub struct Joined {
    /// By what it says first a connection is a stream's or a session's: they are dialled together.
    pub is_data: bool,
    pub asks: Chain<Cursor<[u8; 8]>, OwnedReadHalf>,
    pub told: OwnedWriteHalf,
    pub far: (OwnedReadHalf, OwnedWriteHalf),
}

impl Joined {
    /// To the server; `None`: it ended before it said what it is.
    pub async fn new(mut near: TcpStream, server: SocketAddr) -> Option<Joined> {
        let far = TcpStream::connect(server).await.unwrap();
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        let mut first = [0; 8];
        near.read_exact(&mut first).await.ok()?;
        let is_data = [stream::PREFACE, stream::PREFACE_OWN].contains(&first);
        let (asks, told) = near.into_split();
        Some(Joined { is_data, asks: Cursor::new(first).chain(asks), told, far: far.into_split() })
    }
}

async fn join(near: TcpStream, server: SocketAddr, open: Open) {
    let Some(Joined { is_data, asks, told, far }) = Joined::new(near, server).await else { return };
    let (there, back) = if is_data { (open.data.clone(), open.data) } else { (open.asks, open.tells) };
    tokio::join!(pass(asks, far.1, there), pass(far.0, told, back));
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut open: watch::Receiver<bool>) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(64 << 10);
        let is_end = !matches!(from.read_buf(&mut buffer).await, Ok(1..));
        if open.wait_for(|open| *open).await.is_err() || to.write_all_buf(&mut buffer).await.is_err() {
            return;
        }
        if is_end {
            let _ = to.shutdown().await;
            return;
        }
    }
}
