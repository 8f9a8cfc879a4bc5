//! The bytes: of files of this machine, and of trees that have only reads and writes.

use std::os::unix::fs::FileExt;

use ninefold::server::{Limits, StreamLimits};
use ninefold::transport::Stream;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use crate::bed::{Bed, Session, all, noise, soon};

const MIB: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_whole_and_in_ranges_and_the_end_tells_how_much_it_was() {
    let bed = Bed::new();
    let bytes = bed.file("f", 9 * MIB + 17);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let len = bytes.len() as u64;
    for (offset, length) in [(0, 0), (0, len), (5, 0), (MIB as u64 + 1, 3 * MIB as u64), (len, 0), (len + 5, 0), (7, 1)]
    {
        let opened = s.stream(1, true, offset, length).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        let got = all(&mut data).await.unwrap();
        let from = (offset as usize).min(bytes.len());
        let to = if length == 0 { bytes.len() } else { (offset + length) as usize };
        assert!(got == bytes[from..to], "{offset} {length}: {} bytes", got.len());
        assert_eq!(s.end(opened.id, 0).await, Ok(((to - from) as u64, opened.modrev)));
        assert_ne!(opened.modrev, 0);
        assert_eq!(s.end(opened.id, 0).await, Err(9), "its end is told once");
    }
    // More than there is.
    let opened = s.stream(1, true, len - 3, 10).await.unwrap();
    assert_eq!(all(&mut bed.data(&opened.token).await).await.unwrap(), bytes[bytes.len() - 3..]);
    assert_eq!(s.end(opened.id, 0).await, Ok((3, opened.modrev)));
    bed.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_written_whole_and_in_ranges_by_several_streams() {
    let bed = Bed::new();
    let bytes = noise(8 * MIB + 5);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.create(1, "f").await;
    // To its end, with data behind the token in one segment.
    let opened = s.stream(1, false, 0, 0).await.unwrap();
    let mut data = bed.bare().await;
    data.write_all(&[crate::bed::opening(&opened.token), bytes.clone()].concat()).await.unwrap();
    data.shutdown().await.unwrap();
    let (count, modrev) = s.end(opened.id, 0).await.unwrap();
    assert_eq!(count, bytes.len() as u64);
    assert_ne!(modrev, opened.modrev, "it was written");
    assert!(std::fs::read(bed.path("f")).unwrap() == bytes);

    s.create(2, "g").await;
    let half = bytes.len() as u64 / 2;
    let mut ends = Vec::new();
    for (offset, length) in [(half, bytes.len() as u64 - half), (0, half)] {
        let opened = s.stream(2, false, offset, length).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        data.write_all(&bytes[offset as usize..(offset + length) as usize]).await.unwrap();
        ends.push((opened.id, length, data));
    }
    for (id, length, _open) in ends {
        assert_eq!(s.end(id, 0).await.unwrap().0, length, "its end is its length");
    }
    assert!(std::fs::read(bed.path("g")).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_reads_and_writes_has_streams_too_and_keeps_the_file_to_their_end() {
    let bed = Bed::new();
    let bytes = noise(3 * MIB + 11);
    let mut s = bed.session("9P2000.L.n1", "mem").await;
    s.create(1, "f").await;
    let opened = s.stream(1, false, 0, 0).await.unwrap();
    assert_eq!(s.ask("Tclunk tag 1 fid 1").await, "Rclunk tag 1");
    assert_eq!(s.ask("Tunlinkat tag 1 dirfid 0 name 'none' flags 0").await, "Rlerror tag 1 ecode 2 retry_ms 0 text ''");
    let mut data = bed.data(&opened.token).await;
    data.write_all(&bytes).await.unwrap();
    data.shutdown().await.unwrap();
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64);

    s.open_file(2, "f", 0).await;
    for (offset, length) in [(0, 0), (3, 2 * MIB as u64), (bytes.len() as u64, 0)] {
        let opened = s.stream(2, true, offset, length).await.unwrap();
        let got = all(&mut bed.data(&opened.token).await).await.unwrap();
        let to = if length == 0 { bytes.len() } else { (offset + length) as usize };
        assert!(got == bytes[offset as usize..to]);
        assert_eq!(s.end(opened.id, 0).await.unwrap().0, got.len() as u64);
    }
    bed.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_slowly_behind_what_came_fast_is_in_the_file_soon() {
    let bed = Bed::new();
    let bytes = noise(24 * MIB);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.create(1, "f").await;
    for length in [0, bytes.len() as u64] {
        let opened = s.stream(1, false, 0, length).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        // Evenly and fast enough to be gathered, for some hundred moments, then a little now and then.
        let (mut at, mut parts) = (0, vec![64 << 10; 320]);
        parts.extend([1, 1000, 17, 1]);
        for part in parts {
            data.write_all(&bytes[at..at + part]).await.unwrap();
            at += part;
            if part < 64 << 10 {
                let is_there = async {
                    while std::fs::read(bed.path("f")).unwrap()[..] != bytes[..at] {
                        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    }
                };
                soon("what was sent", is_there).await;
            } else {
                tokio::time::sleep(std::time::Duration::from_micros(500)).await;
            }
        }
        data.write_all(&bytes[at..]).await.unwrap();
        if length == 0 {
            data.shutdown().await.unwrap();
        }
        assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64);
        assert!(std::fs::read(bed.path("f")).unwrap() == bytes);
        std::fs::write(bed.path("f"), "").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clunk_ends_no_stream_and_no_stream_ends_a_fid() {
    let bed = Bed::new();
    let bytes = bed.file("f", MIB);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    assert_eq!(s.ask("Tclunk tag 1 fid 1").await, "Rclunk tag 1");
    std::fs::remove_file(bed.path("f")).unwrap();
    assert!(all(&mut bed.data(&opened.token).await).await.unwrap() == bytes);
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64);

    bed.file("g", 10);
    s.open_file(2, "g", 0).await;
    let opened = s.stream(2, true, 0, 0).await.unwrap();
    all(&mut bed.data(&opened.token).await).await.unwrap();
    s.end(opened.id, 0).await.unwrap();
    assert!(s.ask("Tread tag 1 fid 2 offset 0 count 10").await.starts_with("Rread tag 1 count 10"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_appended_begins_at_the_end_of_the_file() {
    let bed = Bed::new();
    bed.file("f", 10);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    // O_WRONLY and O_APPEND.
    s.open_file(1, "f", 0o2001).await;
    assert_eq!(s.stream(1, false, 0, 0).await.err(), Some(22));
    let opened = s.stream(1, false, 10, 0).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    data.write_all(b"the end").await.unwrap();
    data.shutdown().await.unwrap();
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, 7);
    assert_eq!(std::fs::read(bed.path("f")).unwrap()[10..], *b"the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_asked_for_early_comes_with_the_end() {
    let bed = Bed::new();
    let bytes = bed.file("f", 20 * MIB);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    s.send(&format!("Tstreamend tag 2 id {} flags 0", opened.id)).await;
    // It holds nobody up.
    assert!(s.ask("Tgetattr tag 3 fid 1 request_mask 0x7ff").await.starts_with("Rgetattr tag 3"));
    let mut data = bed.data(&opened.token).await;
    let (got, ended) = soon("both", async { tokio::join!(all(&mut data), s.ended()) }).await;
    assert!(got.unwrap() == bytes);
    assert_eq!(ended, Ok((bytes.len() as u64, opened.modrev)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_rewritten_meanwhile_has_another_modrev_at_the_end() {
    let bed = Bed::new();
    let bytes = bed.file("f", MIB);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    std::fs::write(bed.path("f"), &bytes).unwrap();
    all(&mut bed.data(&opened.token).await).await.unwrap();
    let (count, modrev) = s.end(opened.id, 0).await.unwrap();
    assert_eq!(count, bytes.len() as u64);
    assert_ne!(modrev, opened.modrev);

    // Replaced under its name: the stream is of the file that was opened.
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    std::fs::write(bed.path("g"), b"another").unwrap();
    std::fs::rename(bed.path("g"), bed.path("f")).unwrap();
    assert!(all(&mut bed.data(&opened.token).await).await.unwrap() == bytes);
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, count);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_cut_off_during_a_read_ends_there_and_the_end_tells_it() {
    let bed = Bed::new();
    bed.file("f", 64 * MIB);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 64 * MIB as u64).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    data.readable().await.unwrap();
    // Sockets of this machine hold far less than the rest.
    std::fs::OpenOptions::new().write(true).open(bed.path("f")).unwrap().set_len(0).unwrap();
    let got = all(&mut data).await.unwrap();
    let (count, modrev) = s.end(opened.id, 0).await.unwrap();
    assert_eq!(count, got.len() as u64);
    assert!(count < 64 * MIB as u64 && modrev != opened.modrev);
}

/// A server that sends pages to peers of this machine as to those behind a wire.
fn by_pages() -> Bed {
    Bed::with(Limits::default(), StreamLimits { all_ways_copy: true, ..StreamLimits::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_peer_on_this_machine_has_not_read_does_not_change_with_the_file() {
    // Sockets of both kinds hold so much, and have room for more then (unix(7)): only then the end of the file is found.
    const LEN: usize = 40_000;
    let bed = Bed::new();
    let socket = bed.unix_socket().await;
    for is_tcp in [true, false] {
        let bytes = bed.file("f", LEN);
        let connect = async || match is_tcp {
            true => Stream::from(TcpStream::connect(bed.address).await.unwrap()),
            false => Stream::from(UnixStream::connect(&socket).await.unwrap()),
        };
        let mut s = Session::open(connect().await, "9P2000.L.n1", "host").await;
        s.open_file(1, "f", 0).await;
        // One whose length is known, and one to the end of the file.
        for length in [LEN as u64, 0] {
            let opened = s.stream(1, true, 0, length).await.unwrap();
            let mut data = connect().await;
            data.write_all(&crate::bed::opening(&opened.token)).await.unwrap();
            assert_eq!(
                soon("its end", s.end(opened.id, 0)).await,
                Ok((LEN as u64, opened.modrev)),
                "it was vouched for"
            );
            let file = std::fs::File::options().write(true).open(bed.path("f")).unwrap();
            file.write_all_at(&vec![0; LEN], 0).unwrap();
            assert!(all(&mut data).await.unwrap() == bytes, "tcp {is_tcp}, length {length}: it changed behind its end");
            file.write_all_at(&bytes, 0).unwrap();
        }
        // Where another could have come behind it nobody says that it is unchanged.
        const MORE: u32 = 1;
        let opened = s.stream_as(MORE, 1, 0, LEN as u64 + 1).await.unwrap();
        let mut data = connect().await;
        data.write_all(&crate::bed::opening(&opened.token)).await.unwrap();
        assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((LEN as u64, 0)));
        assert!(all(&mut data).await.unwrap() == bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_rewritten_while_its_last_bytes_wait_for_the_reader_has_another_modrev_at_the_end() {
    let bed = by_pages();
    let bytes = bed.file("f", 200_000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    // It takes so little that the server's socket has the rest of the file.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut data = socket.connect(bed.address).await.unwrap();
    data.write_all(&crate::bed::opening(&opened.token)).await.unwrap();
    data.readable().await.unwrap();
    s.send(&format!("Tstreamend tag 2 id {} flags 0", opened.id)).await;
    for _ in 0..10 {
        assert!(s.ask("Tgetattr tag 3 fid 1 request_mask 0x7ff").await.starts_with("Rgetattr tag 3"), "not yet ended");
    }
    let file = std::fs::File::options().write(true).open(bed.path("f")).unwrap();
    file.write_all_at(&bytes[..100], bytes.len() as u64 - 100).unwrap();
    assert_eq!(all(&mut data).await.unwrap().len(), bytes.len());
    let (count, modrev) = s.ended().await.unwrap();
    assert_eq!(count, bytes.len() as u64);
    assert_ne!(modrev, opened.modrev);
    assert_ne!(modrev, 0, "it is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_file_whose_last_bytes_nobody_takes_the_server_says_at_the_end_that_it_does_not_know() {
    let bed = by_pages();
    bed.file("f", 200_000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut data = socket.connect(bed.address).await.unwrap();
    data.write_all(&crate::bed::opening(&opened.token)).await.unwrap();
    s.send(&format!("Tstreamend tag 2 id {} flags 0", opened.id)).await;
    assert_eq!(s.ended().await.unwrap(), (200_000, 0));
}
