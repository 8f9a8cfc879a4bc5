//! Streams that go one behind another on one data connection (MORE), and those that are copies (COPIED).

use std::os::unix::fs::FileExt;
use std::time::Duration;

use ninefold::proto::Errno;
use ninefold::server::{Limits, StreamLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bed::{Bed, SOON, all, opening, own_opening, soon};

const MORE: u32 = 1;
const COPIED: u32 = 2;
const TOLD: u32 = 16;
const UNLESS_LONG: u32 = 4;
/// Of Tstreamend.
const ABORT: u32 = 1;
const MIB: u64 = 1 << 20;

async fn exactly(data: &mut TcpStream, bytes: u64) -> Vec<u8> {
    let mut got = vec![0; bytes as usize];
    soon("the data", data.read_exact(&mut got)).await.unwrap();
    got
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_come_one_behind_another_on_one_connection() {
    let bed = Bed::new();
    // By the kernel, and by the tree's own reads.
    for tree in ["host", "mem"] {
        let bytes = bed.file("f", 9 * MIB as usize);
        let mut s = bed.session("9P2000.L.n1", tree).await;
        if tree == "mem" {
            s.create(1, "f").await;
            let opened = s.stream(1, false, 0, bytes.len() as u64).await.unwrap();
            bed.data(&opened.token).await.write_all(&bytes).await.unwrap();
            assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64);
        } else {
            s.open_file(1, "f", 0).await;
        }
        let mut data = bed.bare().await;
        let mut ids = Vec::new();
        // All are asked for, and their tokens sent, before anything is read; and not in the order of the file.
        let parts = [(5 * MIB, 4 * MIB), (0, 5 * MIB - 1), (7, 1)];
        for (offset, length) in parts {
            let opened = s.stream_as(MORE | COPIED, 1, offset, length).await.unwrap();
            data.write_all(&opening(&opened.token)).await.unwrap();
            ids.push(opened);
        }
        for (offset, length) in parts {
            let got = exactly(&mut data, length).await;
            assert!(got == bytes[offset as usize..(offset + length) as usize], "{tree} {offset}");
        }
        for (opened, (_, length)) in ids.iter().zip(parts) {
            assert_eq!(s.end(opened.id, 0).await, Ok((length, opened.modrev)), "{tree}");
        }
        // Another one after a while, and the last, behind which there is no more.
        let opened = s.stream_as(MORE, 1, 1, 2).await.unwrap();
        data.write_all(&opening(&opened.token)).await.unwrap();
        assert_eq!(exactly(&mut data, 2).await, bytes[1..3]);
        let opened = s.stream_as(0, 1, 3, 4).await.unwrap();
        data.write_all(&opening(&opened.token)).await.unwrap();
        assert_eq!(all(&mut data).await.unwrap(), bytes[3..7]);
        // A session that ended before it would take it along.
        assert_eq!(s.end(opened.id, 0).await, Ok((4, opened.modrev)), "{tree}");
    }
    bed.quiet().await;
    let counts = bed.server.stream_counts();
    assert_eq!((counts.refused, counts.silent, counts.failed), (0, 0, 0), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_stream_that_came_whole_its_connection_tells_the_end_where_that_is_asked() {
    let bed = Bed::new();
    let bytes = bed.file("f", 9 * MIB as usize);
    for tree in ["host", "mem"] {
        let mut s = bed.session("9P2000.L.n1", tree).await;
        if tree == "mem" {
            s.create(1, "f").await;
            let opened = s.stream(1, false, 0, bytes.len() as u64).await.unwrap();
            bed.data(&opened.token).await.write_all(&bytes).await.unwrap();
            assert_eq!(s.end(opened.id, 0).await.unwrap().0, bytes.len() as u64);
        } else {
            s.open_file(1, "f", 0).await;
        }
        let mut data = bed.bare().await;
        let mut ids = Vec::new();
        // By threads, by a task, not told, and one whose file ends before.
        let (end, told) = (bytes.len() as u64, MORE | TOLD);
        let parts =
            [(told | COPIED, 0, 4 * MIB), (told, 5, 7), (MORE, 1, 3), (told | COPIED, end - 2, 2), (told, end - 2, 9)];
        for (flags, offset, length) in parts {
            let opened = s.stream_as(flags, 1, offset, length).await.unwrap();
            data.write_all(&opening(&opened.token)).await.unwrap();
            ids.push(opened);
        }
        for ((flags, offset, length), opened) in parts.into_iter().zip(&ids) {
            let there = length.min(end - offset);
            assert!(exactly(&mut data, there).await == bytes[offset as usize..][..there as usize], "{tree} {offset}");
            let told = match flags & TOLD != 0 && there == length {
                true => Some(soon("the end", data.read_u64_le()).await.unwrap()),
                false => None,
            };
            // Who asks is told the same.
            let (count, modrev) = s.end(opened.id, 0).await.unwrap();
            assert!(count == there && told.is_none_or(|told| told == modrev), "{tree} {offset}: {told:?} {modrev}");
            assert!(flags & COPIED == 0 || modrev == opened.modrev, "{tree} {offset}");
        }
        assert!(all(&mut data).await.unwrap().is_empty(), "nothing is told of what did not come whole");
    }
    bed.quiet().await;
    let counts = bed.server.stream_counts();
    assert_eq!((counts.refused, counts.silent, counts.failed), (0, 0, 0), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_one_that_threads_send_comes_whatever_it_is_and_whenever() {
    let bed = Bed::new();
    let (bytes, _) = (bed.file("f", 4 * MIB as usize), bed.file("g", 0));
    let (mut s, mut in_memory) = (bed.session("9P2000.L.n1", "host").await, bed.session("9P2000.L.n1", "mem").await);
    s.open_file(1, "f", 0).await;
    s.open_file(2, "g", 2).await;
    in_memory.create(1, "f").await;
    let opened = in_memory.stream(1, false, 0, 5).await.unwrap();
    bed.data(&opened.token).await.write_all(b"hello").await.unwrap();
    assert_eq!(in_memory.end(opened.id, 0).await.unwrap().0, 5);
    for what in ["all of its token is there", "half is", "to a file", "of another tree", "its Tstream is not here"] {
        let first = s.stream_as(MORE, 1, 0, 4 * MIB).await.unwrap();
        let mut data = bed.bare().await;
        let asked = match what {
            "to a file" => Some(s.stream(2, false, 0, 5).await.unwrap()),
            "of another tree" => Some(in_memory.stream(1, true, 0, 5).await.unwrap()),
            "its Tstream is not here" => None,
            _ => Some(s.stream(1, true, 3, 5).await.unwrap()),
        };
        let token = asked.as_ref().map_or_else(|| own_opening(&[9; 16]), |asked| opening(&asked.token));
        let (before, behind) = token.split_at(if what == "half is" { 10 } else { token.len() });
        data.write_all(&[&opening(&first.token), before].concat()).await.unwrap();
        assert!(exactly(&mut data, 4 * MIB).await == bytes, "{what}");
        assert_eq!(s.end(first.id, 0).await.unwrap().0, 4 * MIB, "{what}");
        data.write_all(behind).await.unwrap();
        let asked = match asked {
            Some(asked) => asked,
            None => {
                bed.waits_early(1).await;
                s.stream_own(9, true, 1, 5).await.unwrap()
            }
        };
        let of = if what == "of another tree" { &mut in_memory } else { &mut s };
        match what {
            "to a file" => data.write_all(b"hello").await.unwrap(),
            "of another tree" => assert_eq!(all(&mut data).await.unwrap(), b"hello"),
            "its Tstream is not here" => assert_eq!(all(&mut data).await.unwrap(), bytes[..5]),
            _ => assert_eq!(all(&mut data).await.unwrap(), bytes[3..8], "{what}"),
        }
        assert_eq!(of.end(asked.id, 0).await.unwrap().0, 5, "{what}");
    }
    assert_eq!(std::fs::read(bed.path("g")).unwrap(), b"hello");
    bed.quiet().await;
    let counts = bed.server.stream_counts();
    assert_eq!((counts.refused, counts.silent, counts.failed), (0, 0, 0), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_ended_behind_another_before_its_time_ends_the_connection_by_a_reset() {
    let bed = Bed::new();
    let bytes = bed.file("f", 64 * MIB as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let mut data = bed.bare().await;
    let mut ids = Vec::new();
    for length in [2 * MIB, 62 * MIB] {
        let opened = s.stream_as(MORE, 1, 0, length).await.unwrap();
        data.write_all(&opening(&opened.token)).await.unwrap();
        ids.push(opened.id);
    }
    // The second one has begun, and more of it is left than sockets hold.
    assert!(exactly(&mut data, 2 * MIB).await == bytes[..2 * MIB as usize]);
    assert_eq!(exactly(&mut data, 1).await, bytes[..1]);
    assert_eq!(s.end(ids[0], 0).await.unwrap().0, 2 * MIB);
    assert_eq!(s.end(ids[1], ABORT).await, Err(Errno::ECANCELED.0));
    let mut rest = Vec::new();
    let end = soon("the end", data.read_to_end(&mut rest)).await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    bed.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_ends_a_connection_behind_its_streams_is_no_error() {
    let bed = Bed::new();
    let bytes = bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream_as(MORE, 1, 0, 1000).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    assert!(exactly(&mut data, 1000).await == bytes);
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, 1000);
    data.shutdown().await.unwrap();
    // Nothing but the connection's end follows.
    assert!(all(&mut data).await.map_or(true, |rest| rest.is_empty()));
    bed.quiet().await;
    let counts = bed.server.stream_counts();
    assert_eq!((counts.completed, counts.refused, counts.silent), (1, 0, 0), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_ended_its_direction_gets_all_and_is_waited_for_no_longer() {
    let bed = Bed::new();
    let bytes = bed.file("f", 3 * MIB as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream_as(MORE, 1, 0, 3 * MIB).await.unwrap();
    // More than a peer that takes nothing has room for.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut data = socket.connect(bed.address).await.unwrap();
    data.write_all(&opening(&opened.token)).await.unwrap();
    data.shutdown().await.unwrap();
    // What is left lies in sockets, in the server's too.
    let mut got = exactly(&mut data, 3 * MIB - 128 * 1024).await;
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, 3 * MIB);
    // Nothing is kept for the connection while the peer has not taken it.
    bed.quiet().await;
    drop(s);
    soon("the server", bed.server.drain()).await;
    got.extend(all(&mut data).await.unwrap());
    assert!(got == bytes, "{} bytes", got.len());
    let counts = bed.server.stream_counts();
    assert_eq!((counts.completed, counts.refused, counts.silent), (1, 0, 0), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_ends_before_the_stream_ends_its_connection_whatever_is_behind() {
    let bed = Bed::new();
    let bytes = bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let first = s.stream_as(MORE, 1, 900, 200).await.unwrap();
    let second = s.stream_as(MORE, 1, 0, 10).await.unwrap();
    let mut data = bed.data(&first.token).await;
    data.write_all(&opening(&second.token)).await.unwrap();
    // What was sent behind it is in nobody's hands any more.
    assert_eq!(all(&mut data).await.unwrap(), bytes[900..]);
    assert_eq!(s.end(first.id, 0).await.unwrap().0, 100);
    // The other may come by another connection.
    let mut data = bed.data(&second.token).await;
    assert_eq!(exactly(&mut data, 10).await, bytes[..10]);
    drop(data);
    bed.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_behind_a_stream_and_is_not_anothers_token_is_refused() {
    let bed = Bed::new();
    bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    for (count, behind) in (1..).zip([opening(&[7; 16]), b"no preface at all, but bytes".to_vec()]) {
        let opened = s.stream_as(MORE, 1, 0, 1000).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        data.write_all(&behind).await.unwrap();
        // All that is its own, and the end.
        assert_eq!(all(&mut data).await.unwrap().len(), 1000);
        bed.counts("a refusal", |counts| counts.refused == count).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_ended_while_it_waits_behind_another_takes_nothing_of_that_one() {
    let bed = Bed::new();
    let bytes = bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let first = s.stream_as(MORE, 1, 0, 1000).await.unwrap();
    let second = s.stream_as(MORE, 1, 0, 1000).await.unwrap();
    assert_eq!(s.end(second.id, 1).await, Err(125));
    let mut data = bed.data(&first.token).await;
    data.write_all(&opening(&second.token)).await.unwrap();
    assert!(all(&mut data).await.unwrap() == bytes);
    assert_eq!(s.end(first.id, 0).await.unwrap().0, 1000);
    bed.counts("both", |counts| counts.refused == 1 && counts.completed == 1 && counts.failed == 1).await;
    bed.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_stays_silent_behind_its_stream_is_closed() {
    // Longer than a busy machine takes from one to the next.
    let streams = StreamLimits { idle: Duration::from_secs(2), ..StreamLimits::default() };
    let bed = Bed::with(Limits::default(), streams);
    bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream_as(MORE, 1, 0, 1000).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    assert_eq!(all(&mut data).await.unwrap().len(), 1000);
    bed.counts("a silent one", |counts| counts.silent == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ended_well_is_taken_whole_whatever_comes_behind_it() {
    let streams = StreamLimits { token: Duration::from_millis(100), ..StreamLimits::default() };
    let bed = Bed::with(Limits::default(), streams);
    let bytes = bed.file("f", 3 * MIB as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    // More than a peer that takes nothing has room for; its server's end has it all.
    let length = 3 * MIB;
    let first = s.stream_as(MORE, 1, 0, length).await.unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut data = socket.connect(bed.address).await.unwrap();
    data.write_all(&opening(&first.token)).await.unwrap();
    // One that grew too old in line, and rubbish behind that.
    let second = s.stream_as(MORE, 1, 0, 10).await.unwrap();
    assert_eq!(s.end(second.id, 0).await, Err(110), "nobody came for it in time");
    data.write_all(&opening(&second.token)).await.unwrap();
    data.write_all(&[1; 3000]).await.unwrap();
    let got = all(&mut data).await.unwrap();
    assert!(got == bytes, "{} bytes", got.len());
    bed.counts("a refusal", |counts| counts.refused == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_vouched_for_at_once_and_pages_with_others_behind_them_are_not() {
    let bed = Bed::new();
    bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    for (flags, is_vouched_for) in [(MORE, false), (MORE | COPIED, true), (COPIED, true), (0, true)] {
        let opened = s.stream_as(flags, 1, 0, 1000).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        exactly(&mut data, 1000).await;
        let modrev = if is_vouched_for { opened.modrev } else { 0 };
        assert_eq!(s.end(opened.id, 0).await, Ok((1000, modrev)), "{flags}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_much_of_the_file_behind_it_is_not_copied_where_that_is_asked() {
    let bed = Bed::new();
    bed.file("f", 16 * MIB as usize + 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    for (flags, length, is_copied) in [
        (MORE | COPIED | UNLESS_LONG, 1000, false),
        (MORE | COPIED | UNLESS_LONG, 1001, true),
        (MORE | COPIED, 1000, true),
    ] {
        let opened = s.stream_as(flags, 1, 0, length).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        exactly(&mut data, length).await;
        // Of pages with others behind them nobody says that they stayed as they were.
        let modrev = if is_copied { opened.modrev } else { 0 };
        assert_eq!(s.end(opened.id, 0).await, Ok((length, modrev)), "{flags} {length}");
    }
}

/// So many times 64 KiB at the end are to be copied.
fn last(units: u32) -> u32 {
    COPIED | units << 8
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_last_of_a_stream_is_copied_where_that_is_asked_and_its_end_waits_for_nobody() {
    let bed = Bed::new();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    let (len, copies, taken) = (64 * MIB, MIB / 2, 62 * MIB + MIB / 2);
    // Others behind it, or none; the last, as many as there are, more than there are.
    for (fid, flags) in [(1, last(8)), (2, MORE | last(8)), (3, last(1024)), (4, MORE | last(0xff_ffff))] {
        let name = fid.to_string();
        let bytes = bed.file(&name, len as usize);
        s.open_file(fid, &name, 0).await;
        let opened = s.stream_as(flags, fid, 0, len).await.unwrap();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let mut data = socket.connect(bed.address).await.unwrap();
        data.write_all(&opening(&opened.token)).await.unwrap();
        let mut got = exactly(&mut data, taken).await;
        // The rest lies in the sockets, and the end was told when it was sent.
        assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((len, opened.modrev)), "{flags:x}");
        assert_eq!(bed.server.streams(), usize::from(flags & MORE == 0), "who takes nothing keeps its place");
        let file = std::fs::OpenOptions::new().write(true).open(bed.path(&name)).unwrap();
        file.write_all_at(&vec![0; len as usize], 0).unwrap();
        got.append(&mut exactly(&mut data, len - taken).await);
        let copied_from = (len - copies) as usize;
        assert!(got[copied_from..] == bytes[copied_from..], "{flags:x}: copies were changed on their way");
        assert_eq!(
            got == bytes,
            u64::from(flags >> 8) * (64 << 10) >= len,
            "{flags:x}: pages are what the file is by then"
        );
        drop(data);
        bed.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_copied_is_not_changed_by_who_changes_the_file_behind_it() {
    let bed = Bed::new();
    let len = 64 * MIB;
    let bytes = bed.file("f", len as usize);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream_as(COPIED, 1, 0, len).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    // Some of it lies in the sockets.
    let mut some = [0; 1];
    soon("the first byte", data.peek(&mut some)).await.unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(bed.path("f")).unwrap();
    file.write_all_at(&vec![0; len as usize], 0).unwrap();
    let got = all(&mut data).await.unwrap();
    assert_eq!(got.len() as u64, len);
    assert!(got[..16384] == bytes[..16384], "what had left was changed");
    let (count, modrev) = s.end(opened.id, 0).await.unwrap();
    assert!(count == len && modrev != opened.modrev, "and its end tells of the change");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_stream_is_copied_so_that_its_good_end_waits_for_no_peer() {
    let bed = Bed::new();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    // All of it is in the server's socket; and pages go before what is copied.
    for (fid, name, len) in [(1, "short", 256 << 10), (2, "long", 64 * MIB)] {
        let bytes = bed.file(name, len as usize);
        s.open_file(fid, name, 0).await;
        let opened = s.stream_as(0, fid, 0, len).await.unwrap();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let mut data = socket.connect(bed.address).await.unwrap();
        data.write_all(&opening(&opened.token)).await.unwrap();
        // The peer's socket does not have room for the rest.
        let mut got = exactly(&mut data, len.saturating_sub(256 << 10)).await;
        assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((len, opened.modrev)), "{name}");
        assert_eq!(bed.server.streams(), 1, "its place is taken as long as the peer takes something");
        let file = std::fs::OpenOptions::new().write(true).open(bed.path(name)).unwrap();
        file.write_all_at(&vec![0; len as usize], 0).unwrap();
        got.append(&mut all(&mut data).await.unwrap());
        assert!(got == bytes, "{name} was changed on its way");
        drop(data);
        bed.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_ends_before_or_in_what_is_copied_ends_there() {
    let bed = Bed::new();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    // Of much more, nothing is copied when the file ends; of a little more, all is.
    for (fid, len, more) in [(1, 9 * MIB, 1 << 40), (2, 9 * MIB, MIB / 2), (3, 300 << 10, 1), (4, 0, 10)] {
        let name = fid.to_string();
        let bytes = bed.file(&name, len as usize);
        s.open_file(fid, &name, 0).await;
        for flags in [0, COPIED, last(1), last(16), MORE | last(16)] {
            let opened = s.stream_as(flags, fid, 0, len + more).await.unwrap();
            let mut data = bed.data(&opened.token).await;
            assert!(all(&mut data).await.unwrap() == bytes, "{len} and {more}, {flags:x}");
            assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((len, opened.modrev)), "{flags:x}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_copies_of_any_length_make_the_file() {
    let bed = Bed::new();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    // Those that are handed to who sends what lies in memory, and those that are too short for that.
    for (fid, len) in [(1, 1), (2, 64 << 10), (3, 200 << 10), (4, 3 * MIB + 5)] {
        let name = fid.to_string();
        let bytes = bed.file(&name, len as usize);
        s.open_file(fid, &name, 0).await;
        for units in [1, 2, 3, 4, 47, 48, 49] {
            let opened = s.stream_as(last(units), fid, 0, len).await.unwrap();
            let mut data = bed.data(&opened.token).await;
            assert!(all(&mut data).await.unwrap() == bytes, "{units} of {len}");
            assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((len, opened.modrev)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_no_pages_behind_which_little_is_copied_keeps_its_place() {
    let bed = Bed::new();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    let len = MIB / 2;
    bed.file("f", len as usize);
    s.open_file(1, "f", 0).await;
    // The second is shorter than it was to be: nothing of it is copied.
    for more in [0, 1 << 30] {
        let opened = s.stream_as(last(1), 1, 0, len + more).await.unwrap();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let mut data = socket.connect(bed.address).await.unwrap();
        data.write_all(&opening(&opened.token)).await.unwrap();
        assert_eq!(soon("its end", s.end(opened.id, 0)).await, Ok((len, opened.modrev)), "{more}");
        assert_eq!(bed.server.streams(), 1, "{more}");
        assert_eq!(all(&mut data).await.unwrap().len() as u64, len);
        drop(data);
        bed.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_waits_for_no_connection_behind_its_streams() {
    // As long as one may be silent.
    let (limits, streams) = (
        Limits { handshake: 10 * SOON, ..Limits::default() },
        StreamLimits { idle: 10 * SOON, ..StreamLimits::default() },
    );
    let bed = Bed::with(limits, streams);
    let bytes = bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    // One that may go on, and one that is ended: their peer ends neither.
    let first = s.stream_as(MORE, 1, 0, 1000).await.unwrap();
    let mut data = bed.data(&first.token).await;
    assert!(exactly(&mut data, 1000).await == bytes);
    let second = s.stream_as(MORE, 1, 500, 1000).await.unwrap();
    let mut short = bed.data(&second.token).await;
    assert!(all(&mut short).await.unwrap() == bytes[500..]);
    drop(s);
    soon("the server", bed.server.drain()).await;
    assert!(all(&mut data).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_at_their_end_make_way_as_those_do_that_say_nothing() {
    let (limits, streams) =
        (Limits { handshake: 10 * SOON, ..Limits::default() }, StreamLimits { silent: 2, ..StreamLimits::default() });
    let bed = Bed::with(limits, streams);
    let bytes = bed.file("f", 10);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let mut ended = Vec::new();
    for _ in 0..4 {
        let opened = s.stream_as(MORE, 1, 0, 20).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        assert_eq!(all(&mut data).await.unwrap(), bytes);
        assert_eq!(s.end(opened.id, 0).await.unwrap().0, 10);
        ended.push(data);
    }
    // The first two are closed on the server's side: what is sent there, much less than is taken behind an end, meets nobody.
    for data in &mut ended[..2] {
        soon("a connection that is gone", async {
            while data.write_all(&[0]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}
