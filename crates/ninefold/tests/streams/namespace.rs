//! A server that exports a composed name space streams files that are another server's: by a stream of that server, whose end is told
//! as it was.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ninefold::client::Options;
use ninefold::ns::export::NsFs;
use ninefold::ns::{Flags, Namespace, Order};
use ninefold::server::{Limits, Server, StreamLimits};
use ninefold::transport::Listener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::{Bed, Opened, SMALL, Session, all, is_reset, noise, opening, soon};
use crate::old::{dial, port, stream};
use crate::shares::share;

const EIO: u32 = 5;
const ENOSPC: u32 = 28;
const ECANCELED: u32 = 125;

/// More than sockets hold.
const LARGE: usize = 48 << 20;

/// A server of the name space, whose root is a tree of `far`.
struct Near {
    server: Arc<Server>,
    address: SocketAddr,
    ns: Namespace,
}

impl Near {
    async fn of(far: SocketAddr, query: &str) -> Near {
        let ns = Namespace::new(Options::default());
        let address = format!("9p://{far}?{query}").parse().unwrap();
        ns.mount(&address, "/", (Order::Replace, Flags { create: true, ..Flags::default() })).await.unwrap();
        let server = Server::builder().export("", Arc::new(NsFs::new(ns.clone())), false).build();
        let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address().unwrap().to_string();
        let address = address.trim_start_matches("9p://").trim_end_matches('/').parse().unwrap();
        let serving = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await;
                tokio::spawn(serving.serve(stream, peer));
            }
        });
        Near { server, address, ns }
    }

    async fn session(&self, version: &str) -> Session {
        Session::open(TcpStream::connect(self.address).await.unwrap(), version, "").await
    }

    async fn data(&self, opened: &Opened) -> TcpStream {
        let mut data = TcpStream::connect(self.address).await.unwrap();
        data.write_all(&opening(&opened.token)).await.unwrap();
        data
    }

    /// Messages of this name that went to the other server.
    fn messages(&self, name: &str) -> u64 {
        self.ns.clients().iter().map(|client| client.stats().messages.get(name).copied().unwrap_or(0)).sum()
    }

    async fn quiet(&self) {
        soon("the last stream", async {
            while self.server.streams() > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

/// What becomes of the data connections that go through a [`between`].
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// Reset behind so many bytes from the server.
    Reset(u64),
    /// An end behind so many bytes; the server sends on, to nobody.
    Short(u64),
}

/// A way to `far` that passes sessions on as they are.
async fn between(far: SocketAddr, fate: Fate) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(far).await.unwrap();
            tokio::spawn(pass(client, server, fate));
        }
    });
    address
}

async fn pass(mut client: TcpStream, mut server: TcpStream, fate: Fate) -> std::io::Result<()> {
    let mut first = [0; 8];
    client.read_exact(&mut first).await?;
    server.write_all(&first).await?;
    if &first != b"9Pstream" {
        return tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop);
    }
    let mut token = [0; 16];
    client.read_exact(&mut token).await?;
    server.write_all(&token).await?;
    let (Fate::Reset(bytes) | Fate::Short(bytes)) = fate;
    tokio::io::copy(&mut (&mut server).take(bytes), &mut client).await?;
    match fate {
        Fate::Reset(_) => {
            client.set_zero_linger()?;
            server.set_zero_linger()?;
        }
        Fate::Short(_) => {
            client.shutdown().await?;
            tokio::io::copy(&mut server, &mut tokio::io::sink()).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_space_streams_the_files_of_its_servers_by_their_streams() {
    let far = Bed::new();
    let bytes = far.file("f", 20_000_011);
    let near = Near::of(far.address, "aname=host").await;
    let mut s = near.session("9P2000.L.n1").await;
    s.open_file(1, "f", 0).await;
    for (offset, length) in [(11, 0), (11, 7_000_000), (19_000_000, 7_000_000), (30_000_000, 0)] {
        let opened = s.stream(1, true, offset, length).await.unwrap();
        let wanted = &bytes[bytes.len().min(offset as usize)..];
        let wanted = if length == 0 { wanted } else { &wanted[..wanted.len().min(length as usize)] };
        assert!(all(&mut near.data(&opened).await).await.unwrap() == wanted, "{offset} {length}");
        assert_eq!(s.end(opened.id, 0).await, Ok((wanted.len() as u64, opened.modrev)), "{offset} {length}");
    }
    assert_eq!((near.messages("Tread"), near.messages("Tstream")), (0, 4));

    let new = noise(9_000_001);
    s.create(2, "g").await;
    for length in [0, new.len()] {
        let opened = s.stream(2, false, 0, length as u64).await.unwrap();
        let mut data = near.data(&opened).await;
        data.write_all(&new).await.unwrap();
        data.shutdown().await.unwrap();
        let (count, modrev) = s.end(opened.id, 0).await.unwrap();
        assert_eq!(count, new.len() as u64);
        assert_ne!(modrev, opened.modrev);
        assert!(std::fs::read(far.path("g")).unwrap() == new);
    }
    assert_eq!(s.ask("Tclunk tag 1 fid 2").await, "Rclunk tag 1");
    assert_eq!(near.messages("Twrite"), 0);
    assert_eq!(far.server.stream_counts().failed, 0);
    near.quiet().await;
    far.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_server_behind_is_shared_as_one_of_its_own() {
    let far = Bed::new();
    let bytes = far.file("f", 3_000_011);
    let near = Near::of(far.address, "aname=host").await;
    let mut s = near.session("9P2000.L.n1").await;
    s.open_file(1, "f", 0).await;
    let mut next = 0;
    for number in 0..3 {
        let opened = share(&mut s, number, 3).await.unwrap();
        let (offset, length) = opened.part;
        let mut got = vec![0; length as usize];
        soon("a share", near.data(&opened).await.read_exact(&mut got)).await.unwrap();
        assert!(offset == next && got == bytes[next as usize..][..got.len()]);
        assert_eq!(s.end(opened.id, 0).await, Ok((length, opened.modrev)));
        next += length;
    }
    assert_eq!((next, near.messages("Tread"), near.messages("Tstream")), (bytes.len() as u64, 0, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_old_dialects_stream_goes_by_streams_of_the_server_behind() {
    let far = Bed::new();
    let bytes = far.file("f", 3_000_011);
    let near = Near::of(far.address, "aname=host").await;
    for version in ["9P2000.s", "9P2000.u.s"] {
        let mut s = near.session(version).await;
        s.open_file(1, "f", 0).await;
        let told = stream(&mut s, 1, 1, 7).await;
        let mut data = dial(port(&told)).await;
        assert!(all(&mut data).await.unwrap() == bytes[7..], "{version}");
    }
    assert_eq!((near.messages("Tread"), near.messages("Tstream")), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_server_behind_has_no_streams_messages_have_the_bytes() {
    for query in ["aname=host&dialect=9P2000.L", "aname=host&dialect=9P2000.u", "aname=host&dialect=9P2000"] {
        let far = Bed::new();
        let bytes = far.file("f", 3_000_011);
        let near = Near::of(far.address, query).await;
        let mut s = near.session("9P2000.L.n1").await;
        s.open_file(1, "f", 0).await;
        let opened = s.stream(1, true, 11, 0).await.unwrap();
        assert!(all(&mut near.data(&opened).await).await.unwrap() == bytes[11..], "{query}");
        assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64 - 11, "{query}");
        let new = noise(2_000_001);
        s.create(2, "g").await;
        let opened = s.stream(2, false, 0, new.len() as u64).await.unwrap();
        near.data(&opened).await.write_all(&new).await.unwrap();
        assert_eq!(s.end(opened.id, 0).await.unwrap().0, new.len() as u64, "{query}");
        assert!(std::fs::read(far.path("g")).unwrap() == new, "{query}");
        assert!(near.messages("Tstream") == 0 && near.messages("Tread") > 0 && near.messages("Twrite") > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_the_server_behind_has_no_place_for_goes_by_messages() {
    let far = Bed::with(Limits { streams: 1, ..Limits::default() }, StreamLimits::default());
    let bytes = far.file("f", LARGE);
    let near = Near::of(far.address, "aname=host").await;
    let mut s = near.session("9P2000.L.n1").await;
    s.open_file(1, "f", 0).await;
    let first = s.stream(1, true, 0, 0).await.unwrap();
    let mut data = near.data(&first).await;
    data.readable().await.unwrap();
    let second = s.stream(1, true, 0, 1_000_000).await.unwrap();
    assert_eq!(first.modrev, second.modrev);
    assert!(all(&mut near.data(&second).await).await.unwrap() == bytes[..1_000_000]);
    assert_eq!(s.end(second.id, 0).await, Ok((1_000_000, second.modrev)));
    assert!(near.messages("Tread") > 0);
    assert!(all(&mut data).await.unwrap() == bytes);
    assert_eq!(s.end(first.id, 0).await, Ok((LARGE as u64, first.modrev)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_the_server_behind_that_breaks_or_is_short_does_not_look_whole() {
    for fate in [Fate::Reset(5_000_000), Fate::Short(5_000_000)] {
        let far = Bed::new();
        far.file("f", LARGE);
        let near = Near::of(between(far.address, fate).await, "aname=host").await;
        for version in ["9P2000.L.n1", "9P2000.s"] {
            let mut s = near.session(version).await;
            s.open_file(1, "f", 0).await;
            if version == "9P2000.s" {
                let told = stream(&mut s, 1, 1, 0).await;
                let mut data = dial(port(&told)).await;
                assert!(all(&mut data).await.is_err());
                continue;
            }
            let opened = s.stream(1, true, 0, 0).await.unwrap();
            let mut data = near.data(&opened).await;
            assert!(all(&mut data).await.is_err());
            assert_eq!(s.end(opened.id, 0).await, Err(EIO));
        }
        near.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_behind_that_is_gone_ends_the_streams_to_its_files_and_from_them() {
    let far = Bed::new();
    far.file("f", LARGE);
    let near = Near::of(far.address, "aname=host").await;
    let mut s = near.session("9P2000.L.n1").await;
    s.open_file(1, "f", 0).await;
    s.create(2, "g").await;
    let reads = s.stream(1, true, 0, 0).await.unwrap();
    let writes = s.stream(2, false, 0, 0).await.unwrap();
    let (mut from, mut to) = (near.data(&reads).await, near.data(&writes).await);
    from.readable().await.unwrap();
    to.write_all(b"some").await.unwrap();
    soon("its end", far.server.drain()).await;
    assert!(all(&mut from).await.is_err());
    let ended = s.end(reads.id, 0).await;
    assert!(ended.is_err(), "{ended:?}");
    to.shutdown().await.unwrap();
    let ended = s.end(writes.id, 0).await;
    assert!(ended.is_err(), "{ended:?}");
    near.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn that_a_file_behind_was_changed_meanwhile_is_told() {
    let far = Bed::new();
    let bytes = far.file("f", LARGE);
    let near = Near::of(far.address, "aname=host").await;
    let mut s = near.session("9P2000.L.n1").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    let mut data = near.data(&opened).await;
    data.readable().await.unwrap();
    // What is there is the same, and yet it is not the file that it was.
    let file = std::fs::File::options().write(true).open(far.path("f")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes[LARGE - 10..], LARGE as u64 - 10).unwrap();
    assert!(all(&mut data).await.unwrap() == bytes);
    let (count, modrev) = s.end(opened.id, 0).await.unwrap();
    assert_eq!(count, LARGE as u64);
    assert_ne!(modrev, opened.modrev);
    // And cut off: so many bytes came.
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    let mut data = near.data(&opened).await;
    data.readable().await.unwrap();
    file.set_len(LARGE as u64 - 1).unwrap();
    let got = all(&mut data).await.unwrap().len() as u64;
    let (count, modrev) = s.end(opened.id, 0).await.unwrap();
    assert!(count == got && count < LARGE as u64 && modrev != opened.modrev);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_the_server_behind_refuses_late_is_told_at_the_end() {
    let far = Bed::new();
    let near = Near::of(far.address, "aname=small").await;
    let mut s = near.session("9P2000.L.n1").await;
    s.create(1, "f").await;
    // More than its tree holds, by what nobody sees before the last of it.
    let bytes = noise(SMALL as usize + 100);
    let opened = s.stream(1, false, 0, 0).await.unwrap();
    let mut data = near.data(&opened).await;
    data.write_all(&bytes).await.unwrap();
    // It may be told by then.
    let _ = data.shutdown().await;
    assert_eq!(s.end(opened.id, 0).await, Err(ENOSPC));
    is_reset(&mut data).await;
    assert_eq!(near.messages("Twrite"), 0);
    let mut s = near.session("9P2000.s").await;
    s.create(1, "g").await;
    let told = stream(&mut s, 1, 0, 0).await;
    let mut data = dial(port(&told)).await;
    data.write_all(&bytes).await.unwrap();
    let _ = data.shutdown().await;
    is_reset(&mut data).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_breaks_off_is_no_end_of_what_the_server_behind_is_written() {
    let far = Bed::new();
    let near = Near::of(far.address, "aname=host").await;
    let mut s = near.session("9P2000.L.n1").await;
    s.create(1, "f").await;
    let opened = s.stream(1, false, 0, 0).await.unwrap();
    let mut data = near.data(&opened).await;
    data.write_all(b"some").await.unwrap();
    far.counts("the stream behind", |counts| counts.opened == 1).await;
    assert_eq!(s.end(opened.id, 1).await, Err(ECANCELED));
    far.counts("its failure", |counts| counts.failed == 1 && counts.completed == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_holds_up_the_server_behind_and_who_goes_ends_it_there() {
    let far = Bed::new();
    std::fs::File::create(far.path("f")).unwrap().set_len(512 << 20).unwrap();
    let passed = Arc::<AtomicU64>::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (target, counted) = (far.address, passed.clone());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, counted) = (TcpStream::connect(target).await.unwrap(), counted.clone());
            tokio::spawn(async move {
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                let down = async {
                    let mut piece = vec![0; 64 << 10];
                    while let Ok(n @ 1..) = from_server.read(&mut piece).await {
                        to_client.write_all(&piece[..n]).await?;
                        counted.fetch_add(n as u64, Ordering::Relaxed);
                    }
                    to_client.shutdown().await
                };
                let up = async {
                    tokio::io::copy(&mut from_client, &mut to_server).await?;
                    to_server.shutdown().await
                };
                let _ = tokio::try_join!(down, up);
            });
        }
    });
    let near = Near::of(address, "aname=host").await;
    let mut s = near.session("9P2000.L.n1").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    let data = near.data(&opened).await;
    data.readable().await.unwrap();
    // Until nothing passes any more.
    soon("a standstill", async {
        let mut before = u64::MAX;
        while before != passed.load(Ordering::Relaxed) {
            before = passed.load(Ordering::Relaxed);
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
    })
    .await;
    // What sockets hold, and a few pieces.
    assert!(passed.load(Ordering::Relaxed) < 64 << 20, "{passed:?}");
    drop((s, data));
    near.quiet().await;
    far.quiet().await;
    far.counts("its end there", |counts| counts.failed == 1).await;
}
