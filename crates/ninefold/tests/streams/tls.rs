//! A session and its data connections behind TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use ninefold::server::{Limits, StreamLimits};
use ninefold::transport::{Address, Identity, Listener, Stream, dial};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::bed::{Bed, Session, all, any_number, noise, opening, soon};

const MIB: usize = 1 << 20;

/// Serves the bed's trees behind TLS too; where.
async fn sealed(bed: &Bed) -> Address {
    let identity = Identity::kept(&bed.path("identity")).unwrap();
    let listener = Listener::bind_tls(&"9ps://127.0.0.1:0".parse().unwrap(), identity).await.unwrap();
    let address = listener.local_address().unwrap();
    tokio::spawn(bed.server.serve_all(listener, any_number()));
    address
}

async fn connect(address: &Address) -> Stream {
    soon("the handshake", dial(address)).await.unwrap()
}

async fn data(address: &Address, token: &[u8]) -> Stream {
    let mut data = connect(address).await;
    data.write_all(&opening(token)).await.unwrap();
    data.flush().await.unwrap();
    data
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_behind_tls_has_streams_there_in_both_directions() {
    let bed = Bed::new();
    let bytes = bed.file("f", 5 * MIB + 3);
    let address = sealed(&bed).await;
    for aname in ["host", "mem"] {
        let mut s = Session::open(connect(&address).await, "9P2000.L.n1", aname).await;
        s.create(1, "new").await;
        for length in [0, bytes.len() as u64] {
            let opened = s.stream(1, false, 0, length).await.unwrap();
            let mut data = data(&address, &opened.token).await;
            data.write_all(&bytes).await.unwrap();
            data.shutdown().await.unwrap();
            assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64, "{aname}");
            assert!(all(&mut data).await.unwrap().is_empty(), "{aname}: it ends as a whole one");
        }
        for (offset, length) in [(0, 0), (17, MIB as u64)] {
            let opened = s.stream(1, true, offset, length).await.unwrap();
            let mut data = data(&address, &opened.token).await;
            let got = all(&mut data).await.unwrap();
            let to = if length == 0 { bytes.len() } else { (offset + length) as usize };
            assert!(got == bytes[offset as usize..to], "{aname} {offset} {length}");
            assert_eq!(s.end(opened.id, 0).await.unwrap(), (got.len() as u64, opened.modrev), "{aname}");
        }
    }
    // One behind another, which tell how they ended.
    let mut s = Session::open(connect(&address).await, "9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let mut data = connect(&address).await;
    for offset in [0, 9] {
        // MORE, COPIED and TOLD.
        let opened = s.stream_as(1 | 2 | 16, 1, offset, MIB as u64).await.unwrap();
        data.write_all(&opening(&opened.token)).await.unwrap();
        data.flush().await.unwrap();
        let mut got = vec![0; MIB];
        soon("the data", data.read_exact(&mut got)).await.unwrap();
        assert!(got == bytes[offset as usize..][..MIB], "{offset}");
        assert_eq!(soon("the end", data.read_u64_le()).await.unwrap(), opened.modrev, "{offset}");
    }
    // In the open nobody gets what the session seals.
    let mut s = Session::open(connect(&address).await, "9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    crate::bed::is_reset(&mut bed.data(&opened.token).await).await;
    let mut s = Session::open(connect(&address).await, "9P2000.s", "host").await;
    s.open_file(1, "f", 0).await;
    let told = s.ask("Tstream tag 1 fid 1 isread 1 offset 0").await;
    assert!(told.starts_with("Rerror tag 1 ename 'no data connection leads here"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_behind_tls_that_fails_or_is_cut_does_not_look_whole() {
    let bed = Bed::new();
    bed.file("f", 64 * MIB);
    let address = sealed(&bed).await;
    let mut s = Session::open(connect(&address).await, "9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    let mut cut = data(&address, &opened.token).await;
    cut.read_u8().await.unwrap();
    assert_eq!(s.end(opened.id, 1).await, Err(125));
    assert!(all(&mut cut).await.is_err());
    // A writer that goes without a word has not written all.
    s.create(2, "new").await;
    let opened = s.stream(2, false, 0, 0).await.unwrap();
    let mut gone = data(&address, &opened.token).await;
    gone.write_all(&noise(1000)).await.unwrap();
    gone.flush().await.unwrap();
    drop(gone);
    assert!(matches!(s.end(opened.id, 0).await, Err(32 | 104)));
    // A token that is none.
    let mut refused = data(&address, &[0; 16]).await;
    let got = all(&mut refused).await;
    assert_eq!(got.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

/// A carrier that keeps what it is given until it is flushed, as one that seals may.
struct Kept<S> {
    inner: S,
    kept: Vec<u8>,
}

/// Bytes that it takes before it wants to be flushed.
const ROOM: usize = 64 * 1024;

impl<S: AsyncRead + Unpin> AsyncRead for Kept<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Kept<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.kept.len() >= ROOM
            && let Poll::Pending = self.as_mut().poll_flush(cx)?
        {
            return Poll::Pending;
        }
        let taken = buf.len().min(ROOM - self.kept.len());
        self.kept.extend_from_slice(&buf[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while !this.kept.is_empty() {
            match Pin::new(&mut this.inner).poll_write(cx, &this.kept) {
                Poll::Ready(sent) => drop(this.kept.drain(..sent?)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.as_mut().poll_flush(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.inner).poll_shutdown(cx),
            other => other,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_carrier_that_keeps_bytes_until_it_is_flushed_brings_each_reply_to_its_last_byte() {
    let bed = Bed::new();
    let bytes = bed.file("f", MIB);
    // Less than a reply: the rest of it waits for the reader.
    let (near, far) = tokio::io::duplex(5000);
    let peer = ninefold::transport::Peer::Stdio;
    tokio::spawn(bed.server.serve(Stream::other(Kept { inner: far, kept: Vec::new() }), peer));
    let mut s = Session::open(near, "9P2000.L", "host").await;
    let told = s.ask("Twalk tag 1 fid 0 newfid 1 nwname 1 0:f").await;
    assert!(told.starts_with("Rwalk"), "{told}");
    assert!(s.ask("Tlopen tag 1 fid 1 flags 0").await.starts_with("Rlopen"));
    for at in [0, 60_000] {
        s.send(&format!("Tread tag 1 fid 1 offset {at} count 60000")).await;
        assert!(s.frame().await[11..] == bytes[at..at + 60_000]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_behind_tls_brings_each_reply_to_its_last_byte() {
    // More at a time than the socket takes, read late and slowly.
    const READS: usize = 32;
    const COUNT: usize = 1 << 20;
    let bed = Bed::with(Limits { unsent: 64 * MIB, ..Limits::default() }, StreamLimits::default());
    let bytes = bed.file("f", COUNT);
    let address = sealed(&bed).await;
    let mut stream = connect(&address).await;
    let version = ninefold::proto::dialect::Version::parse(b"9P2000.L").unwrap();
    let line = |line: &str| ninefold::proto::print::parse(line, version).unwrap();
    let mut said = line("Tversion tag -1 msize 2000000 version '9P2000.L'");
    stream.write_all(&said).await.unwrap();
    soon("the version", read_frame(&mut stream)).await;
    said = line("Tattach tag 1 fid 0 afid -1 uname '' aname 'host' n_uname -1");
    stream.write_all(&said).await.unwrap();
    soon("the attach", read_frame(&mut stream)).await;
    for one in ["Twalk tag 1 fid 0 newfid 1 nwname 1 0:f", "Tlopen tag 1 fid 1 flags 0"] {
        stream.write_all(&line(one)).await.unwrap();
        soon("the open", read_frame(&mut stream)).await;
    }
    for tag in 0..READS {
        let read = line(&format!("Tread tag {tag} fid 1 offset 0 count {COUNT}"));
        stream.write_all(&read).await.unwrap();
    }
    stream.flush().await.unwrap();
    for _ in 0..READS {
        let frame = soon("a whole reply", read_frame(&mut stream)).await;
        assert!(frame[11..] == bytes);
    }
}

async fn read_frame(stream: &mut Stream) -> Vec<u8> {
    let mut frame = vec![0; 4];
    stream.read_exact(&mut frame).await.unwrap();
    frame.resize(u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize, 0);
    stream.read_exact(&mut frame[4..]).await.unwrap();
    frame
}
