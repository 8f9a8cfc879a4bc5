//! What comes to a listener: who has a task of his own, who a place among those that connect, and the listener's end.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ninefold::server::{Limits, Server, StreamLimits};
use ninefold::tree::hostfs::HostFs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::bed::{Bed, Session, all, listener, opening, own_opening, soon};

/// More than the kernel keeps of a connection.
const LONG: usize = 64 << 20;

const ETIMEDOUT: u32 = 110;

/// Another stream may come behind it on its connection.
const MORE: u32 = 1;

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Tasks that there are more than `before`, when they are as many as that.
async fn has_more(before: usize, more: usize) {
    soon(&format!("{more} tasks more"), async {
        while tasks() != before + more {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn streams_that_threads_send_have_no_task_and_others_have_one_each() {
    // Who sees to tokens that nobody comes with stays.
    let bed =
        Bed::with(Limits::default(), StreamLimits { token: Duration::from_secs(3600), ..StreamLimits::default() });
    let bytes = bed.file("f", LONG);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 2).await;
    let untaken = s.stream(1, true, 0, LONG as u64).await.unwrap();
    // Who hands out what threads have done is there from the first on.
    let opened = s.stream(1, true, 0, LONG as u64).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    let mut first = [0; 1000];
    data.read_exact(&mut first).await.unwrap();
    let before = tasks();
    let mut reading = vec![data];
    for _ in 0..4 {
        let opened = s.stream(1, true, 0, LONG as u64).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        data.read_exact(&mut first).await.unwrap();
        assert!(first == bytes[..1000]);
        reading.push(data);
    }
    has_more(before, 0).await;
    // One to the file, and a short one.
    s.create(2, "g").await;
    let opened = s.stream(2, false, 0, 0).await.unwrap();
    let mut writes = bed.data(&opened.token).await;
    writes.write_all(b"some").await.unwrap();
    has_more(before, 1).await;
    drop(writes);
    has_more(before, 0).await;
    let short = s.stream_as(MORE, 1, 0, 100).await.unwrap();
    let mut data = bed.data(&short.token).await;
    data.read_exact(&mut first[..100]).await.unwrap();
    has_more(before, 1).await;
    drop(data);
    has_more(before, 0).await;
    // The same behind one that has none, on its connection.
    let lent = s.stream_as(MORE, 1, 0, 1 << 20).await.unwrap();
    let mut both = bed.data(&lent.token).await;
    let mut all = vec![0; 1 << 20];
    both.read_exact(&mut all).await.unwrap();
    assert!(all == bytes[..1 << 20]);
    assert_eq!(s.end(lent.id, 0).await.unwrap().0, 1 << 20);
    has_more(before, 0).await;
    let short = s.stream_as(MORE, 1, 0, 100).await.unwrap();
    both.write_all(&opening(&short.token)).await.unwrap();
    both.read_exact(&mut all[..100]).await.unwrap();
    assert!(all[..100] == bytes[..100]);
    assert_eq!(s.end(short.id, 0).await.unwrap().0, 100);
    has_more(before, 1).await;
    drop(both);
    has_more(before, 0).await;
    drop((reading, untaken));
}

#[tokio::test]
async fn who_says_nothing_is_closed_in_time_and_a_stream_on_which_nothing_moves_ends() {
    let limits = Limits { handshake: Duration::from_secs(2), ..Limits::default() };
    let streams = StreamLimits { idle: Duration::from_secs(3), ..StreamLimits::default() };
    for is_shared in [true, false] {
        let bed = Bed::with(limits, streams);
        let bed = if is_shared { bed } else { bed.one_by_one() };
        bed.file("f", LONG);
        let mut s = bed.session("9P2000.L.n1", "host").await;
        s.open_file(1, "f", 0).await;
        let opened = s.stream(1, true, 0, LONG as u64).await.unwrap();
        let stalls = bed.data(&opened.token).await;
        stalls.readable().await.unwrap();
        // One that says nothing, and one whose Tstream does not come.
        let (mut silent, mut early) = (bed.bare().await, bed.bare().await);
        early.write_all(&own_opening(&[7; 16])).await.unwrap();
        for closed in [&mut silent, &mut early] {
            let error = soon("the close", closed.read(&mut [0; 1])).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        let counts = bed.server.stream_counts();
        assert!((counts.silent, counts.refused) == (1, 1), "{counts:?}");
        assert_eq!(s.end(opened.id, 0).await, Err(ETIMEDOUT));
        bed.quiet().await;
    }
}

/// A server with places for so many connections, and when its listener is done with.
fn listening(bed: &Bed, places: usize) -> (Arc<Server>, SocketAddr, JoinHandle<()>) {
    let tree = Arc::new(HostFs::open(bed.dir.path()).unwrap());
    let server = Server::builder().export("host", tree, false).build();
    let (listener, address) = listener();
    let serves = tokio::spawn(server.serve_all(listener, Arc::new(Semaphore::new(places))));
    (server, address, serves)
}

#[tokio::test]
async fn a_data_connection_takes_no_sessions_place_for_long() {
    let bed = Bed::new();
    bed.file("f", LONG);
    let (server, address, _serves) = listening(&bed, 2);
    let connect = || async { TcpStream::connect(address).await.unwrap() };
    let mut s = Session::open(connect().await, "9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let mut reading = Vec::new();
    for _ in 0..4 {
        let opened = s.stream(1, true, 0, LONG as u64).await.unwrap();
        let mut data = connect().await;
        data.write_all(&opening(&opened.token)).await.unwrap();
        soon("its first bytes", data.readable()).await.unwrap();
        reading.push(data);
    }
    assert_eq!(server.connections(), 1);
    // The second place is a session's; a third one waits until one of them ends.
    let second = Session::open(connect().await, "9P2000.L.n1", "host").await;
    let third = tokio::spawn(Session::open(connect().await, "9P2000.L.n1", "host"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!third.is_finished());
    drop(second);
    drop(soon("the third", third).await.unwrap());
}

#[tokio::test]
async fn a_server_that_drains_closes_its_listener_at_once_and_its_task_ends_behind_the_last_connection() {
    let bed = Bed::new();
    let bytes = bed.file("f", 1 << 20);
    let (server, address, serves) = listening(&bed, 8);
    let mut s = Session::open(TcpStream::connect(address).await.unwrap(), "9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream_as(MORE, 1, 0, 1 << 20).await.unwrap();
    let mut data = TcpStream::connect(address).await.unwrap();
    data.write_all(&opening(&opened.token)).await.unwrap();
    let mut all = vec![0; 1 << 20];
    data.read_exact(&mut all).await.unwrap();
    assert!(all == bytes);
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, 1 << 20);
    // The connection is still there, for another stream.
    let (drains, began) = (server.clone(), Instant::now());
    let drains = tokio::spawn(async move { drains.drain().await });
    soon("the listener's end", async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let is_over = serves.is_finished() || drains.is_finished();
    // A peer is waited for half a second.
    assert!(!is_over || began.elapsed() >= Duration::from_millis(500));
    drop(data);
    soon("the server's end", drains).await.unwrap();
    soon("its listener's task", serves).await.unwrap();
    assert_eq!((server.connections(), server.streams()), (0, 0));
}

#[tokio::test]
async fn whose_task_is_dropped_loses_its_streams_and_nobody_else_loses_anything() {
    let bed = Bed::new();
    bed.file("f", LONG);
    let (server, address, serves) = listening(&bed, 8);
    let mut s = Session::open(TcpStream::connect(address).await.unwrap(), "9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, LONG as u64).await.unwrap();
    let mut lent = TcpStream::connect(address).await.unwrap();
    lent.write_all(&opening(&opened.token)).await.unwrap();
    lent.read_exact(&mut [0; 1000]).await.unwrap();
    s.create(2, "g").await;
    let written = s.stream(2, false, 0, 4).await.unwrap();
    let mut writes = TcpStream::connect(address).await.unwrap();
    writes.write_all(&[&opening(&written.token)[..], b"so"].concat()).await.unwrap();
    bed.has("what came", "g", b"so").await;
    serves.abort();
    assert!(all(&mut lent).await.is_err(), "no end of a whole file");
    assert!(s.end(opened.id, 0).await.is_err());
    writes.write_all(b"me").await.unwrap();
    assert_eq!(s.end(written.id, 0).await.unwrap().0, 4);
    assert_eq!(server.connections(), 1);
}
