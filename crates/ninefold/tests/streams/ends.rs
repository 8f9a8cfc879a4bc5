//! How streams end that do not come to their end.

use std::time::Duration;

use ninefold::server::{Limits, StreamLimits};
use tokio::io::AsyncWriteExt;

use crate::bed::{Bed, all, noise, soon};

const ECANCELED: u32 = 125;

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_a_stream_wherever_it_is_and_nobody_takes_half_for_the_whole() {
    let bed = Bed::new();
    bed.file("f", 64 << 20);
    for aname in ["host", "mem"] {
        let mut s = bed.session("9P2000.L.n1", aname).await;
        if aname == "mem" {
            s.create(1, "f").await;
            let opened = s.stream(1, false, 0, 0).await.unwrap();
            let mut data = bed.data(&opened.token).await;
            data.write_all(&noise(32 << 20)).await.unwrap();
            data.shutdown().await.unwrap();
            s.end(opened.id, 0).await.unwrap();
        } else {
            s.open_file(1, "f", 2).await;
        }
        // Before its connection has come.
        let opened = s.stream(1, true, 0, 0).await.unwrap();
        assert_eq!(s.end(opened.id, 1).await, Err(ECANCELED), "{aname}");
        // While its reader does not read.
        let opened = s.stream(1, true, 0, 0).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        data.readable().await.unwrap();
        assert_eq!(s.end(opened.id, 1).await, Err(ECANCELED), "{aname}");
        assert!(all(&mut data).await.is_err(), "{aname}");
        // While its writer does not write.
        let opened = s.stream(1, false, 0, 0).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        data.write_all(b"some").await.unwrap();
        assert_eq!(s.end(opened.id, 1).await, Err(ECANCELED), "{aname}");
    }
    bed.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_gives_up_the_question_and_not_the_stream() {
    let bed = Bed::new();
    let bytes = bed.file("f", 1000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    s.send(&format!("Tstreamend tag 2 id {} flags 0", opened.id)).await;
    assert_eq!(s.ask("Tflush tag 3 oldtag 2").await, "Rflush tag 3");
    assert!(all(&mut bed.data(&opened.token).await).await.unwrap() == bytes);
    assert_eq!(s.end(opened.id, 0).await, Ok((1000, opened.modrev)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_ends_before_its_length_is_told_so_and_one_that_dies_too() {
    let bed = Bed::new();
    for aname in ["host", "mem"] {
        let mut s = bed.session("9P2000.L.n1", aname).await;
        s.create(1, "f").await;
        let opened = s.stream(1, false, 0, 100).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        data.write_all(b"some").await.unwrap();
        data.shutdown().await.unwrap();
        assert_eq!(s.end(opened.id, 0).await, Err(32), "{aname}: EPIPE");
        let opened = s.stream(1, false, 0, 0).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        data.write_all(b"some").await.unwrap();
        data.set_zero_linger().unwrap();
        drop(data);
        assert_eq!(s.end(opened.id, 0).await, Err(104), "{aname}: ECONNRESET");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_ends_its_stream_with_an_error() {
    let bed = Bed::new();
    bed.file("f", 64 << 20);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    let data = bed.data(&opened.token).await;
    data.readable().await.unwrap();
    drop(data);
    let ended = s.end(opened.id, 0).await;
    assert!(matches!(ended, Err(32 | 104)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_on_which_nothing_moves_ends_in_time() {
    let streams = StreamLimits { idle: Duration::from_millis(200), ..StreamLimits::default() };
    let bed = Bed::with(Limits::default(), streams);
    bed.file("f", 64 << 20);
    for aname in ["host", "mem"] {
        let mut s = bed.session("9P2000.L.n1", aname).await;
        s.create(1, &format!("new in {aname}")).await;
        let opened = s.stream(1, false, 0, 0).await.unwrap();
        let _silent = bed.data(&opened.token).await;
        assert_eq!(s.end(opened.id, 0).await, Err(110), "{aname}");
    }
    assert_eq!(bed.server.stream_counts().timed_out, 2);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    assert_eq!(s.end(opened.id, 0).await, Err(110), "nobody reads");
    assert!(all(&mut data).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_waits_for_much_ends_in_time_all_the_same_and_when_it_is_to() {
    const LENGTH: u64 = 8 << 20;
    let streams = StreamLimits { idle: Duration::from_millis(400), ..StreamLimits::default() };
    let bed = Bed::with(Limits::default(), streams);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.create(1, "f").await;
    // So much that the server waits for more at a time than comes then.
    let much = vec![7; 1 << 20];
    for (what, end) in [("silence", Err(110)), ("an abort", Err(ECANCELED)), ("all of it", Ok(LENGTH))] {
        let opened = s.stream(1, false, 0, LENGTH).await.unwrap();
        let mut data = bed.data(&opened.token).await;
        data.write_all(&much).await.unwrap();
        bed.has(what, "f", &much).await;
        // What is too little to be told of comes into the file all the same.
        data.write_all(&[8; 1000]).await.unwrap();
        bed.has(what, "f", &[&much[..], &[8; 1000]].concat()).await;
        if what == "all of it" {
            data.write_all(&vec![9; LENGTH as usize - much.len() - 1000]).await.unwrap();
        }
        let flags = u32::from(what == "an abort");
        assert_eq!(s.end(opened.id, flags).await.map(|(count, _)| count), end, "{what}");
        std::fs::write(bed.path("f"), []).unwrap();
    }
    bed.quiet().await;
    assert_eq!(bed.server.stream_counts().timed_out, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gets_all_of_it() {
    let bed = Bed::new();
    let bytes = bed.file("f", 12 << 20);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    let mut got = Vec::new();
    let mut piece = vec![0; 1 << 20];
    soon("all", async {
        loop {
            let n = tokio::io::AsyncReadExt::read(&mut data, &mut piece).await.unwrap();
            if n == 0 {
                break;
            }
            got.extend_from_slice(&piece[..n]);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(got == bytes);
    assert_eq!(s.end(opened.id, 0).await, Ok((bytes.len() as u64, opened.modrev)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_drains_ends_its_streams() {
    let bed = Bed::new();
    bed.file("f", 64 << 20);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let _waiting = s.stream(1, true, 0, 0).await.unwrap();
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    let mut data = bed.data(&opened.token).await;
    data.readable().await.unwrap();
    let _silent = bed.bare().await;
    soon("draining", bed.server.drain()).await;
    assert!(all(&mut data).await.is_err());
    assert_eq!(bed.server.streams(), 0);
}
