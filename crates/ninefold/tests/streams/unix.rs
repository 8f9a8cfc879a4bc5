//! Streams beside a session on a Unix socket.

use ninefold::transport::{Peer, Stream};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use crate::bed::{Bed, Session, all, noise, opening};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_on_a_unix_socket_has_streams_there_and_none_of_the_table() {
    let bed = Bed::new();
    let bytes = bed.file("f", 5_000_000);
    let socket = bed.unix_socket().await;
    let connect = || UnixStream::connect(&socket);
    let mut s = Session::open(connect().await.unwrap(), "9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 1, 0).await.unwrap();
    // Not over TCP, where anybody of this machine could come.
    crate::bed::is_reset(&mut bed.data(&opened.token).await).await;
    let mut data = connect().await.unwrap();
    data.write_all(&opening(&opened.token)).await.unwrap();
    assert!(all(&mut data).await.unwrap() == bytes[1..]);
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64 - 1);

    let new = noise(4_000_001);
    s.create(2, "g").await;
    let opened = s.stream(2, false, 0, 0).await.unwrap();
    let mut data = connect().await.unwrap();
    data.write_all(&[opening(&opened.token), new.clone()].concat()).await.unwrap();
    data.shutdown().await.unwrap();
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, new.len() as u64);
    assert!(std::fs::read(bed.path("g")).unwrap() == new);

    let mut s = Session::open(connect().await.unwrap(), "9P2000.s", "host").await;
    s.open_file(1, "f", 0).await;
    let told = s.ask("Tstream tag 1 fid 1 isread 1 offset 0").await;
    assert!(told.starts_with("Rerror tag 1 ename 'no data connection leads here"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_over_standard_input_is_told_that_no_data_connection_leads_there() {
    let bed = Bed::new();
    bed.file("f", 10);
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(bed.server.serve(Stream::other(far), Peer::Stdio));
    let mut s = Session::open(near, "9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    assert_eq!(s.stream(1, true, 0, 0).await.err(), Some(95));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_no_socket_carries_streams_of_files_too() {
    let bed = Bed::new();
    let bytes = bed.file("f", 3_000_001);
    // As a cipher between the two would be: what the kernel cannot move.
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let peer = Peer::Unix { uid, gid, pid: 1 };
    let connect = || {
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(bed.server.serve(Stream::other(far), peer.clone()));
        near
    };
    let mut s = Session::open(connect(), "9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    for (offset, length) in [(0, 0), (17, 1_000_000)] {
        let opened = s.stream(1, true, offset, length).await.unwrap();
        let mut data = connect();
        data.write_all(&opening(&opened.token)).await.unwrap();
        let got = all(&mut data).await.unwrap();
        let to = if length == 0 { bytes.len() } else { (offset + length) as usize };
        assert!(got == bytes[offset as usize..to]);
        assert_eq!(s.end(opened.id, 0).await.unwrap().0, got.len() as u64);
    }
    s.create(2, "g").await;
    let opened = s.stream(2, false, 0, bytes.len() as u64).await.unwrap();
    let mut data = connect();
    data.write_all(&opening(&opened.token)).await.unwrap();
    data.write_all(&bytes).await.unwrap();
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64);
    assert!(std::fs::read(bed.path("g")).unwrap() == bytes);
}
