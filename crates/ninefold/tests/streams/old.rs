//! `.s`: streams as S1's table 4.2 has them, by frames written from that table.

use std::net::Ipv4Addr;
use std::time::Duration;

use ninefold::server::{Limits, StreamLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::bed::{Bed, SMALL, Session, all, is_reset, noise, soon};

/// Sends a Tstream as the table has it, byte for byte, and takes the Rstream apart in the same way: the address.
pub async fn stream(s: &mut Session, fid: u32, isread: u8, offset: u64) -> String {
    let mut frame = vec![20, 0, 0, 0, 160, 5, 0];
    frame.extend(fid.to_le_bytes());
    frame.push(isread);
    frame.extend(offset.to_le_bytes());
    s.stream.write_all(&frame).await.unwrap();
    let reply = s.frame().await;
    assert_eq!((reply[4], &reply[5..7]), (161, &[5, 0][..]), "{reply:?}");
    let count = u32::from_le_bytes(reply[7..11].try_into().unwrap()) as usize;
    assert_eq!(reply.len(), 11 + count);
    String::from_utf8(reply[11..].to_vec()).unwrap()
}

/// `tcp!x.x.x.x!yyyyy`.
pub fn port(address: &str) -> u16 {
    let parts: Vec<_> = address.split('!').collect();
    assert_eq!((parts.len(), parts[0], parts[1]), (3, "tcp", "127.0.0.1"), "{address}");
    parts[2].parse().unwrap()
}

pub async fn dial(port: u16) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_the_table_is_read_to_the_end_and_written_until_the_client_closes() {
    for version in ["9P2000.s", "9P2000.u.s", "9P2000.ix.s", "9P2000.s.ix"] {
        let bed = Bed::new();
        let bytes = bed.file("f", 3_000_017);
        let mut s = bed.session(version, "host").await;
        s.open_file(1, "f", 0).await;
        for offset in [0, 1_000_000, 3_000_017] {
            let mut data = dial(port(&stream(&mut s, 1, 1, offset).await)).await;
            assert!(all(&mut data).await.unwrap() == bytes[offset as usize..], "{version} {offset}");
        }
        s.create(2, "g").await;
        let mut data = dial(port(&stream(&mut s, 2, 0, 7).await)).await;
        data.write_all(&bytes).await.unwrap();
        drop(data);
        bed.quiet().await;
        let written = std::fs::read(bed.path("g")).unwrap();
        assert!(written[..7] == [0; 7] && written[7..] == bytes, "{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_takes_one_connection_from_the_peer_in_its_time_and_is_gone() {
    let bed =
        Bed::with(Limits::default(), StreamLimits { port: Duration::from_millis(300), ..StreamLimits::default() });
    let bytes = bed.file("f", 1000);
    let mut s = bed.session("9P2000.s", "host").await;
    s.open_file(1, "f", 0).await;
    let at = port(&stream(&mut s, 1, 1, 0).await);
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, 2), 0).into()).unwrap();
    match socket.connect((Ipv4Addr::LOCALHOST, at).into()).await {
        Ok(mut thief) => is_reset(&mut thief).await,
        // Before it was seen that it had been made.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    bed.counts("the thief", |counts| counts.refused == 1).await;
    assert!(all(&mut dial(at).await).await.unwrap() == bytes);
    bed.quiet().await;
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, at)).await.is_err(), "it was for one");

    let at = port(&stream(&mut s, 1, 1, 0).await);
    bed.quiet().await;
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, at)).await.is_err(), "it was for a while");
    bed.counts("both", |counts| counts.completed == 1 && counts.failed == 1 && counts.timed_out == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_goes_on_beside_a_stream_and_ends_it_with_an_error() {
    let bed = Bed::new();
    bed.file("f", 64 << 20);
    let mut s = bed.session("9P2000.s", "host").await;
    s.open_file(1, "f", 0).await;
    let mut data = dial(port(&stream(&mut s, 1, 1, 0).await)).await;
    data.readable().await.unwrap();
    assert!(s.ask("Tread tag 1 fid 1 offset 0 count 1").await.starts_with("Rread tag 1 count 1"));
    assert_eq!(s.ask("Tclunk tag 1 fid 1").await, "Rclunk tag 1");
    let mut some = vec![0; 1 << 20];
    soon("some", data.read_exact(&mut some)).await.unwrap();
    drop(s);
    assert!(all(&mut data).await.is_err(), "half a file must not look whole");
    bed.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_reads_and_writes_has_streams_of_the_table_too() {
    let bed = Bed::new();
    let bytes = noise(1_000_003);
    let mut s = bed.session("9P2000.s", "mem").await;
    s.create(1, "f").await;
    let mut data = dial(port(&stream(&mut s, 1, 0, 0).await)).await;
    data.write_all(&bytes).await.unwrap();
    drop(data);
    bed.quiet().await;
    let mut data = dial(port(&stream(&mut s, 1, 1, 3).await)).await;
    assert!(all(&mut data).await.unwrap() == bytes[3..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_whose_last_bytes_find_no_room_is_told_by_a_reset() {
    let bed = Bed::new();
    let mut s = bed.session("9P2000.s", "small").await;
    s.create(1, "f").await;
    // The client has ended when the server writes them: they are fewer than it writes at a time.
    let bytes = noise(SMALL as usize + 1);
    for (count, fits) in [(1000, true), (bytes.len(), false)] {
        let mut data = dial(port(&stream(&mut s, 1, 0, 0).await)).await;
        data.write_all(&bytes[..count]).await.unwrap();
        data.shutdown().await.unwrap();
        match fits {
            true => assert!(all(&mut data).await.unwrap().is_empty()),
            false => is_reset(&mut data).await,
        }
    }
    bed.counts("both", |counts| counts.completed == 1 && counts.failed == 1).await;
}
