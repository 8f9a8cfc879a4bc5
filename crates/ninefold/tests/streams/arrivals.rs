//! What comes to a listener: who has a task of his own, who a place among those that connect, and the listener's end.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use ninefold::server::{Limits, Server, StreamLimits};
use ninefold::transport::Listener;
use ninefold::tree::hostfs::HostFs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::bed::{Bed, Session, opening, soon};

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
    let bed = Bed::new();
    let bytes = bed.file("f", LONG);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 2).await;
    // What hands out what the threads have done, and sees to tokens that nobody comes with.
    let opened = s.stream(1, true, 0, LONG as u64).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    data.readable().await.unwrap();
    let before = tasks();
    let mut reading = Vec::new();
    for _ in 0..4 {
        let opened = s.stream(1, true, 0, LONG as u64).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        data.readable().await.unwrap();
        let mut first = [0; 1000];
        data.read_exact(&mut first).await.unwrap();
        assert!(first == bytes[..1000]);
        reading.push(data);
    }
    has_more(before, 0).await;
    // A short one, and one to the file.
    s.create(2, "g").await;
    let opened = s.stream(2, false, 0, 0).await.unwrap();
    let mut writes = bed.data(&opened.token).await;
    writes.write_all(b"some").await.unwrap();
    has_more(before, 1).await;
    drop(writes);
    has_more(before, 0).await;
    // Behind one that has none, too, on its connection.
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
    drop(reading);
    data.read_exact(&mut all).await.unwrap();
}

#[tokio::test]
async fn who_says_nothing_among_others_is_closed_in_time_and_a_stream_on_which_nothing_moves_ends() {
    let limits = Limits { handshake: Duration::from_millis(300), ..Limits::default() };
    let streams = StreamLimits { idle: Duration::from_millis(600), ..StreamLimits::default() };
    let bed = Bed::with(limits, streams);
    bed.file("f", LONG);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, LONG as u64).await.unwrap();
    let stalls = bed.data(&opened.token).await;
    stalls.readable().await.unwrap();
    // One that says nothing, one whose Tstream does not come, and one that is served meanwhile.
    let (mut silent, mut early) = (bed.bare().await, bed.bare().await);
    early.write_all(&crate::bed::own_opening(&[7; 16])).await.unwrap();
    for closed in [&mut silent, &mut early] {
        let error = soon("the close", closed.read(&mut [0; 1])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    let counts = bed.server.stream_counts();
    assert!((counts.silent, counts.refused) == (1, 1), "{counts:?}");
    assert_eq!(s.end(opened.id, 0).await, Err(ETIMEDOUT));
    bed.quiet().await;
}

/// A server of one's own with places for so many connections, and when its listener is done with.
async fn listening(bed: &Bed, places: usize) -> (Arc<Server>, std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let tree = Arc::new(HostFs::open(bed.dir.path()).unwrap());
    let server = Server::builder().export("host", tree, false).build();
    let listener = Listener::bind(&"9p://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.socket_address().unwrap();
    let serves = tokio::spawn(server.serve_all(listener, Arc::new(Semaphore::new(places))));
    (server, address, serves)
}

#[tokio::test]
async fn a_data_connection_takes_no_sessions_place_for_long() {
    let bed = Bed::new();
    bed.file("f", LONG);
    let (server, address, _serves) = listening(&bed, 2).await;
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
async fn a_server_that_drains_closes_its_listener_and_its_task_ends_behind_the_last_connection() {
    let bed = Bed::new();
    let bytes = bed.file("f", 1 << 20);
    let (server, address, serves) = listening(&bed, 8).await;
    let mut s = Session::open(TcpStream::connect(address).await.unwrap(), "9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 1 << 20).await.unwrap();
    let mut data = TcpStream::connect(address).await.unwrap();
    data.write_all(&opening(&opened.token)).await.unwrap();
    let mut all = vec![0; 1 << 20];
    data.read_exact(&mut all).await.unwrap();
    assert!(all == bytes);
    assert_eq!(s.end(opened.id, 0).await, Ok((1 << 20, opened.modrev)));
    soon("the server's end", server.drain()).await;
    // By then it is closed.
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    soon("its listener's task", serves).await.unwrap();
    assert_eq!((server.connections(), server.streams()), (0, 0));
}
