//! What the tests of the client share: our own server, and links with a delay.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ninefold::client::{Attach, Client, Options};
use ninefold::proto::dialect::Version;
use ninefold::server::Server;
use ninefold::transport::{Peer, Stream, memory};
use ninefold::tree::ramfs::RamFs;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Bytes that each way of a connection in memory holds.
pub const BUFFER: usize = 64 * 1024;

/// The bound of waits that ought to end at once; time is virtual.
pub const SOON: Duration = Duration::from_secs(3600);

/// A tree in memory that everybody may change.
pub fn ram() -> Arc<Server> {
    Server::builder().export("", Arc::new(RamFs::new()), false).build()
}

/// A client of `server` in one dialect.
pub async fn connect(server: &Arc<Server>, dialect: impl Into<Version>, options: Options) -> Client {
    let (ours, theirs) = memory::pair(BUFFER);
    tokio::spawn(server.serve(theirs, Peer::Stdio));
    over(ours, dialect, options).await
}

/// A client on a stream.
pub async fn over(stream: Stream, version: impl Into<Version>, options: Options) -> Client {
    let attach = Attach { dialect: Some(version.into()), ..Attach::default() };
    Client::over(stream, &attach, options).await.unwrap()
}

/// Waits until the server knows `fids` fids and owes no reply.
pub async fn settled(client: &Client, fids: usize) {
    let wait = async {
        while client.held() != (fids, 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Twice what a client waits for a Tflush.
    let late = tokio::time::timeout(Duration::from_secs(120), wait).await;
    assert!(late.is_ok(), "{:?} are held, not {fids} fids", client.held());
}

/// Two ends of a connection on which every byte takes `delay`, each way.
pub fn link(delay: Duration) -> (Stream, Stream) {
    let (ours, near) = memory::pair(BUFFER);
    let (far, theirs) = memory::pair(BUFFER);
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    tokio::spawn(carry(near_read, far_write, delay));
    tokio::spawn(carry(far_read, near_write, delay));
    (ours, theirs)
}

/// Carries what comes, `delay` later.
pub async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin + Send + 'static,
    delay: Duration,
) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Bytes)>();
    tokio::spawn(async move {
        while let Some((due, bytes)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
    let mut buffer = BytesMut::new();
    // By itself a buffer has room for 64 bytes.
    while let Ok(1..) = {
        buffer.reserve(BUFFER);
        from.read_buf(&mut buffer).await
    } {
        if sender.send((Instant::now() + delay, buffer.split().freeze())).is_err() {
            return;
        }
    }
}

/// Our server behind what changes the frames of the client, and those of its own.
pub fn tampered(
    server: &Arc<Server>,
    requests: impl FnMut(&mut [u8]) + Send + 'static,
    replies: impl FnMut(&mut [u8]) + Send + 'static,
) -> Stream {
    let (ours, near) = memory::pair(BUFFER);
    let (far, theirs) = memory::pair(BUFFER);
    tokio::spawn(server.serve(theirs, Peer::Stdio));
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    tokio::spawn(change(near_read, far_write, requests));
    tokio::spawn(change(far_read, near_write, replies));
    ours
}

/// Carries frames as they are changed. Ends with the connection.
pub async fn change(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut frame_by: impl FnMut(&mut [u8]),
) -> io::Result<()> {
    loop {
        let mut frame = vec![0; 4];
        from.read_exact(&mut frame).await?;
        frame.resize(u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize, 0);
        from.read_exact(&mut frame[4..]).await?;
        frame_by(&mut frame);
        to.write_all(&frame).await?;
    }
}

/// Numbers that look random and are the same each time.
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// A way for bytes that can be shut, and then takes and gives none.
#[derive(Clone)]
pub struct Gate(tokio::sync::watch::Sender<bool>);

impl Default for Gate {
    fn default() -> Gate {
        Gate(tokio::sync::watch::Sender::new(true))
    }
}

impl Gate {
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub fn shut(&self) {
        self.0.send_replace(false);
    }

    /// Carries the bytes of a connection, both ways.
    pub async fn carry(self, near: Stream, far: Stream) {
        let (near_read, near_write) = tokio::io::split(near);
        let (far_read, far_write) = tokio::io::split(far);
        tokio::join!(self.pass(near_read, far_write), self.pass(far_read, near_write));
    }

    async fn pass(&self, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
        let mut open = self.0.subscribe();
        let mut buffer = BytesMut::new();
        loop {
            // What came while it was shut stays where it is.
            let shut = async {
                let _ = open.wait_for(|open| !open).await;
            };
            tokio::select! {
                biased;
                () = shut => drop(open.wait_for(|open| *open).await),
                read = from.read_buf(&mut buffer) => {
                    if !matches!(read, Ok(1..)) || to.write_all_buf(&mut buffer).await.is_err() {
                        let _ = to.shutdown().await;
                        return;
                    }
                }
            }
        }
    }
}
