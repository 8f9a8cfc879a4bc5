//! Who gets a stream, and who gets nothing.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;

use ninefold::server::{Limits, StreamLimits};
use tokio::io::AsyncWriteExt;

use crate::bed::{Bed, Session, all, gets_nothing, is_reset, opening, own_opening, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_guessed_token_a_used_one_and_a_stolen_one_get_nothing_and_are_counted() {
    let bed = Bed::new();
    let bytes = bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    is_reset(&mut bed.data(&[0; 16]).await).await;
    let mut near = opened.token.clone();
    near[15] ^= 1;
    is_reset(&mut bed.data(&near).await).await;
    // From another address than the session's.
    let mut thief = bed.bare_from(Ipv4Addr::new(127, 0, 0, 2)).await;
    thief.write_all(&opening(&opened.token)).await.unwrap();
    is_reset(&mut thief).await;
    bed.counts("three refusals", |counts| counts.refused == 3).await;
    // Its owner still gets what it is good for, once.
    assert!(all(&mut bed.data(&opened.token).await).await.unwrap() == bytes);
    is_reset(&mut bed.data(&opened.token).await).await;
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, 1000);
    bed.counts("four", |counts| counts.refused == 4 && counts.completed == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_comes_too_late_gets_nothing_and_the_stream_is_over() {
    let streams = StreamLimits { token: Duration::from_millis(50), ..StreamLimits::default() };
    let bed = Bed::with(Limits::default(), streams);
    bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    assert_eq!(s.end(opened.id, 0).await, Err(110));
    is_reset(&mut bed.data(&opened.token).await).await;
    bed.counts("it", |counts| counts.refused == 1 && counts.failed == 1).await;
    assert_eq!(bed.server.streams(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_takes_its_tokens_and_its_streams_with_it() {
    let bed = Bed::new();
    bed.file("f", 64 << 20);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let waiting = s.stream(1, true, 0, 0).await.unwrap();
    let running = s.stream(1, true, 0, 0).await.unwrap();
    let mut data = bed.data(&running.token).await;
    data.readable().await.unwrap();
    assert_eq!(bed.server.streams(), 2);
    drop(s);
    assert!(all(&mut data).await.is_err(), "half a file must not look whole");
    bed.quiet().await;
    is_reset(&mut bed.data(&waiting.token).await).await;

    // So does a new Tversion.
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    assert!(s.ask("Tversion tag -1 msize 65536 version '9P2000.L.n1'").await.starts_with("Rversion"));
    bed.quiet().await;
    is_reset(&mut bed.data(&opened.token).await).await;
    assert_eq!(s.end(opened.id, 0).await, Err(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_too_old_one_after_another_and_one_that_is_used_meanwhile_does_not() {
    // Longer than a busy machine takes from one step to the next.
    let streams = StreamLimits { token: Duration::from_millis(1500), ..StreamLimits::default() };
    let bed = Bed::with(Limits::default(), streams);
    bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let first = s.stream(1, true, 0, 0).await.unwrap();
    // So that the next ones are younger: age is what this is about.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (second, used) = (s.stream(1, true, 0, 0).await.unwrap(), s.stream(1, true, 0, 0).await.unwrap());
    assert_eq!(all(&mut bed.data(&used.token).await).await.unwrap().len(), 1000);
    assert_eq!(s.end(first.id, 0).await, Err(110));
    bed.counts("the first", |counts| counts.timed_out == 1).await;
    assert_eq!(s.end(second.id, 0).await, Err(110));
    assert_eq!(s.end(used.id, 0).await.unwrap().0, 1000);
    // Behind the last of them others are watched anew.
    let third = s.stream(1, true, 0, 0).await.unwrap();
    assert_eq!(s.end(third.id, 0).await, Err(110));
    bed.counts("all", |counts| counts.timed_out == 3 && counts.completed == 1).await;
    bed.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_ended_while_it_waits_for_its_connection_gives_its_place_back_at_once() {
    let streams = StreamLimits { open: 2, ..StreamLimits::default() };
    let bed = Bed::with(Limits::default(), streams);
    bed.file("f", 1000);
    for (aname, more) in [("host", "f"), ("mem", "new")] {
        let mut s = bed.session("9P2000.L.n1", aname).await;
        if aname == "mem" {
            s.create(1, more).await
        } else {
            s.open_file(1, more, 0).await
        };
        for _ in 0..5 {
            let opened = s.stream(1, aname == "host", 0, 0).await.unwrap();
            assert_eq!(s.end(opened.id, 1).await, Err(125));
            bed.quiet().await;
            is_reset(&mut bed.data(&opened.token).await).await;
        }
    }
    // A server that drains waits for no token either.
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    s.stream(1, true, 0, 0).await.unwrap();
    soon("the server's end", bed.server.drain()).await;
    assert_eq!(bed.server.streams(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_connection_has_come_before_it_is_ended_right_behind_its_tstream() {
    let bed = Bed::new();
    bed.file("f", 10);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 2).await;
    let mut data = Vec::new();
    for round in 0..20 {
        let mut early = bed.bare().await;
        early.write_all(&own_opening(&[round; 16])).await.unwrap();
        bed.waits_early(1).await;
        let token = format!("{round:02x}").repeat(16);
        s.send(&format!("Tstream tag 1 fid 1 flags 0 isread 0 offset 0 length 1000 token 0x{token}")).await;
        s.send(&format!("Tstreamend tag 2 id {round} flags 1")).await;
        // Either may be answered first; numbers are given in order.
        let replies = [s.reply().await, s.reply().await];
        assert!(replies.iter().any(|reply| reply.starts_with("Rstream tag 1")), "{replies:?}");
        let ended = replies.iter().find(|reply| reply.contains("tag 2")).unwrap();
        if ended.contains("ecode 9") {
            // Said before there was such a stream.
            assert_eq!(s.end(u32::from(round), 1).await, Err(125));
        } else {
            assert!(ended.contains("ecode 125"), "{ended}");
        }
        is_reset(&mut early).await;
        data.push(early);
    }
    bed.counts("all", |counts| counts.opened == 20 && counts.failed == 20 && counts.early == 0).await;
    bed.quiet().await;
}

#[test]
fn streams_that_wait_for_their_connections_end_with_their_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (server, session) = runtime.block_on(async {
        let bed = Bed::new();
        bed.file("f", 1000);
        let mut s = bed.session("9P2000.L.n1", "host").await;
        s.open_file(1, "f", 0).await;
        s.stream(1, true, 0, 0).await.unwrap();
        assert_eq!(bed.server.streams(), 1);
        (std::sync::Arc::downgrade(&bed.server), s)
    });
    drop(runtime);
    drop(session);
    assert!(server.upgrade().is_none(), "a stream keeps its server");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_session_cannot_ask_after_a_stream() {
    let bed = Bed::new();
    bed.file("f", 10);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    let mut other = bed.session("9P2000.L.n1", "host").await;
    assert_eq!(other.end(opened.id, 1).await, Err(9));
    assert_eq!(all(&mut bed.data(&opened.token).await).await.unwrap().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_connection_may_be_opened_ahead_and_come_in_pieces() {
    let bed = Bed::new();
    let bytes = bed.file("f", 5000);
    let mut early = bed.bare().await;
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    for byte in opening(&opened.token) {
        early.write_all(&[byte]).await.unwrap();
        early.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert!(all(&mut early).await.unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_are_closed_in_time_and_bounded() {
    // Long enough that on a busy machine none is closed before it hears that it is connected.
    let limits = Limits { handshake: Duration::from_secs(1), ..Limits::default() };
    let bed = Bed::with(limits, StreamLimits { silent: 3, ..StreamLimits::default() });
    let mut first = bed.bare().await;
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(bed.bare().await);
    }
    // One more than there is room for: the first makes way, before its time.
    is_reset(&mut first).await;
    bed.counts("one that made way", |counts| counts.silent >= 1).await;
    // A session is taken all the same.
    bed.session("9P2000.L.n1", "host").await;
    for other in &mut others {
        is_reset(other).await;
    }
    // Half an opening is none.
    let mut half = bed.bare().await;
    half.write_all(b"9Pstream and no").await.unwrap();
    is_reset(&mut half).await;
    let mut wrong = bed.bare().await;
    wrong.write_all(b"9Pstrange data connection").await.unwrap();
    gets_nothing(&mut wrong).await;
    bed.counts("all that said nothing", |counts| counts.silent == 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_address_that_say_nothing_take_no_place_of_another() {
    let bed = Bed::with(Limits::default(), StreamLimits { silent: 3, ..StreamLimits::default() });
    let early = bed.bare().await;
    let mut others = Vec::new();
    for _ in 0..10 {
        // One may have made way before it hears that it is connected.
        match bed.connect_from(Ipv4Addr::new(127, 0, 0, 2)).await {
            Ok(other) => others.push(other),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    bed.counts("eight that made way", |counts| counts.silent == 8).await;
    Session::open(early, "9P2000.L.n1", "host").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_the_client_made_may_come_before_its_tstream_or_behind_and_is_good_once() {
    let bed = Bed::new();
    let bytes = bed.file("f", 100_000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 2).await;
    // Before; from another address the same one is good for nothing, and so it is as the server's.
    let mut data = bed.bare().await;
    data.write_all(&own_opening(&[7; 16])).await.unwrap();
    bed.waits_early(1).await;
    let mut thief = bed.bare_from(Ipv4Addr::new(127, 0, 0, 2)).await;
    thief.write_all(&own_opening(&[7; 16])).await.unwrap();
    is_reset(&mut thief).await;
    is_reset(&mut bed.data(&[7; 16]).await).await;
    let opened = s.stream_own(7, true, 1, 0).await.unwrap();
    assert_eq!(opened.token, [7; 16]);
    assert!(all(&mut data).await.unwrap() == bytes);
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, 100_000);
    bed.waits_early(0).await;
    // Behind; two streams have no token together.
    let opened = s.stream_own(8, true, 1, 0).await.unwrap();
    assert_eq!(s.stream_own(8, true, 1, 0).await.err(), Some(17));
    let mut data = bed.bare().await;
    data.write_all(&own_opening(&[8; 16])).await.unwrap();
    assert!(all(&mut data).await.unwrap() == bytes);
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, 100_000);
    // To the file: what was sent behind the token waits with it.
    let mut data = bed.bare().await;
    data.write_all(&[&own_opening(&[9; 16])[..], b"early"].concat()).await.unwrap();
    bed.waits_early(1).await;
    let opened = s.stream_own(9, false, 1, 5).await.unwrap();
    assert_eq!(s.end(opened.id, 0).await.unwrap().0, 5);
    assert_eq!(&std::fs::read(bed.path("f")).unwrap()[..6], [b"early", &bytes[5..6]].concat());
    bed.counts("all", |counts| counts.completed == 3 && counts.failed == 0 && counts.refused == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_token_whose_stream_nobody_asks_for_gets_nothing_and_one_that_is_given_up_is_forgotten() {
    let limits = Limits { handshake: Duration::from_millis(300), ..Limits::default() };
    let bed = Bed::with(limits, StreamLimits::default());
    bed.file("f", 1000);
    let mut data = bed.bare().await;
    data.write_all(&own_opening(&[1; 16])).await.unwrap();
    is_reset(&mut data).await;
    // On a busy machine its time is over before it has said all.
    bed.counts("it", |counts| counts.refused + counts.silent == 1).await;
    // Its end is noticed before that, and is nothing wrong.
    let limits = Limits { handshake: Duration::from_secs(600), ..Limits::default() };
    let bed = Bed::with(limits, StreamLimits::default());
    let mut data = bed.bare().await;
    data.write_all(&own_opening(&[2; 16])).await.unwrap();
    bed.waits_early(1).await;
    drop(data);
    bed.waits_early(0).await;
    assert_eq!(bed.server.stream_counts().refused, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_whose_tstream_has_not_come_are_bounded_with_those_that_say_nothing() {
    let limits = Limits { handshake: Duration::from_secs(600), ..Limits::default() };
    let bed = Bed::with(limits, StreamLimits { silent: 2, ..StreamLimits::default() });
    let mut first = bed.bare().await;
    first.write_all(&own_opening(&[1; 16])).await.unwrap();
    bed.waits_early(1).await;
    let mut others = Vec::new();
    for byte in 2..4 {
        let mut data = bed.bare().await;
        data.write_all(&own_opening(&[byte; 16])).await.unwrap();
        others.push(data);
    }
    is_reset(&mut first).await;
    bed.waits_early(2).await;
    // A server that ends does not wait for them.
    soon("the end", bed.server.drain()).await;
    for mut data in others {
        is_reset(&mut data).await;
    }
}
