//! Writing with many requests on the way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Client, Error, File, Follow, Mode, Options, Suspicion};
use ninefold::proto::message::Qids;
use ninefold::proto::{Dialect, Errno, QidType, R, T, Tag};
use ninefold::transport::memory;
use tokio::time::Instant;

use crate::fake::{self, Handled, Replies, content};
use crate::support::{BUFFER, Gate, connect, link, over, ram, settled};

/// A client of a fake server, with a file that it made.
async fn create(
    options: Options,
    answer: impl FnMut(&Replies, Tag, &T<'_>) -> Handled + Send + 'static,
) -> (Client, File) {
    let (ours, theirs) = memory::pair(BUFFER);
    fake::serve(theirs, 0, answer);
    create_at(over(ours, Dialect::Linux, options).await).await
}

async fn create_at(client: Client) -> (Client, File) {
    let file = client.root().await.unwrap().create(b"f", Mode::WRITE, 0o644).await.unwrap();
    (client, file)
}

#[tokio::test(start_paused = true)]
async fn what_is_written_in_pieces_of_any_size_is_read_back_in_every_dialect() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options { msize: 4096, ..Options::default() }).await;
        let file = client.root().await.unwrap().create(b"f", Mode::READ_WRITE, 0o644).await.unwrap();
        let mut writer = file.writer(0, None);
        let (all, mut at) = (content(0, 300_000), 0);
        for size in [0, 1, 4072, 4073, 100_000, 1, 191_853] {
            writer.write(all.slice(at..at + size)).await.unwrap();
            at += size;
            assert_eq!(writer.position(), at as u64);
        }
        assert_eq!(writer.finish().await.unwrap(), 300_000);
        // Again, in the middle.
        let metadata = file.metadata().await.unwrap();
        assert_eq!(metadata.size, 300_000);
        let mut writer = file.writer(1000, Some(&metadata));
        writer.write(Bytes::from(vec![9; 50_000])).await.unwrap();
        assert_eq!(writer.finish().await.unwrap(), 50_000);
        let mut reader = file.reader(0, Some(&metadata));
        let mut got = Vec::new();
        while let Some(data) = reader.next().await.unwrap() {
            got.extend_from_slice(&data);
        }
        assert!(got[..1000] == all[..1000] && got[1000..51_000] == [9; 50_000] && got[51_000..] == all[51_000..]);
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_skipped_are_not_sent_and_what_follows_lies_behind_them() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options { msize: 4096, ..Options::default() }).await;
        let file = client.root().await.unwrap().create(b"f", Mode::READ_WRITE, 0o644).await.unwrap();
        let mut writer = file.writer(0, None);
        writer.write(Bytes::from(vec![1; 10_000])).await.unwrap();
        writer.skip(50_000);
        writer.write(Bytes::from(vec![2; 10_000])).await.unwrap();
        assert_eq!((writer.position(), writer.finish().await.unwrap()), (70_000, 70_000));
        assert!(client.stats().bytes_sent < 30_000);
        let mut reader = file.reader(0, Some(&file.metadata().await.unwrap()));
        let mut got = Vec::new();
        while let Some(data) = reader.next().await.unwrap() {
            got.extend_from_slice(&data);
        }
        assert!(got == [vec![1; 10_000], vec![0; 50_000], vec![2; 10_000]].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_span_has_no_gap_further_back() {
    // The first write is answered last.
    let mut held: Option<Tag> = None;
    let (_client, file) = create(Options { msize: 4096, ..Options::default() }, move |replies, tag, request| {
        let T::Write { offset, data, .. } = *request else { return false };
        if offset == 0 {
            held = Some(tag);
        } else {
            replies.send(tag, R::Write { count: data.0.len() as u32 });
            replies.send(held.take().unwrap(), R::Write { count: 4072 });
        }
        true
    })
    .await;
    let mut writer = file.writer(0, None);
    writer.write(Bytes::from(vec![1; 4072])).await.unwrap();
    writer.skip(100_000 - 4072);
    writer.within(100_000).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(1), writer.within(99_999)).await.is_err());
    writer.write(Bytes::from(vec![2; 100])).await.unwrap();
    writer.within(0).await.unwrap();
    assert_eq!(writer.written(), 100_100);
}

#[tokio::test(start_paused = true)]
async fn a_pipelined_write_counts_as_many_round_trips_as_it_takes() {
    const DELAY: Duration = Duration::from_millis(5);
    let (ours, theirs) = link(DELAY);
    fake::serve(theirs, 0, |_, _, _| false);
    let options = Options { msize: (64 << 10) + 24, window_max: 1 << 20, ..Options::default() };
    let (client, file) = create_at(over(ours, Dialect::Linux, options).await).await;
    let before = (client.stats().round_trips, Instant::now());
    let mut writer = file.writer(0, None);
    for _ in 0..64 {
        writer.write(Bytes::from(vec![1; 1 << 20])).await.unwrap();
    }
    assert_eq!(writer.finish().await.unwrap(), 64 << 20);
    let trips = client.stats().round_trips - before.0;
    assert_eq!(DELAY * 2 * trips, before.1.elapsed());
    assert_eq!(client.stats().messages["Twrite"], 1024);
    assert!((64..76).contains(&trips), "{trips}");
    file.metadata().await.unwrap();
    assert_eq!(client.stats().round_trips - before.0, trips + 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_program_s_writes_are_no_cause_of_each_other() {
    let (ours, theirs) = link(Duration::from_millis(5));
    fake::serve(theirs, 0, |_, _, _| false);
    let (client, file) = create_at(over(ours, Dialect::Linux, Options::default()).await).await;
    let before = client.stats().round_trips;
    let mut writer = file.writer(0, None);
    for _ in 0..100 {
        writer.write(Bytes::from(vec![1; 1000])).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    writer.finish().await.unwrap();
    // 256 KiB may be on the way at first, which is more than all of it.
    assert_eq!(client.stats().round_trips - before, 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_did_not_take_is_sent_again_at_its_place() {
    let disk = Arc::new(Mutex::new(vec![0; 1_000_000]));
    let written = disk.clone();
    let mut turn = 0;
    let (_client, file) = create(Options::default(), move |replies, tag, request| {
        let T::Write { offset, data, .. } = *request else { return false };
        turn += 1;
        let count = if turn % 3 == 0 { data.0.len() } else { 1 + data.0.len() / 2 };
        let (at, count) = (offset as usize, count.min(data.0.len()));
        written.lock().unwrap()[at..at + count].copy_from_slice(&data.0[..count]);
        replies.send(tag, R::Write { count: count as u32 });
        true
    })
    .await;
    let mut writer = file.writer(0, None);
    writer.write(content(0, 1_000_000)).await.unwrap();
    assert_eq!(writer.finish().await.unwrap(), 1_000_000);
    assert!(*disk.lock().unwrap() == content(0, 1_000_000));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_nothing_is_not_asked_for_ever() {
    let (client, file) = create(Options::default(), |replies, tag, request| {
        let T::Write { .. } = *request else { return false };
        replies.send(tag, R::Write { count: 0 });
        true
    })
    .await;
    let mut writer = file.writer(0, None);
    writer.write(content(0, 10)).await.unwrap();
    let e = writer.finish().await.unwrap_err();
    assert!(matches!(e, Error::Suspect(Suspicion::NoProgress)), "{e}");
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_error_stops_everything_and_is_told_by_every_later_call() {
    const FULL: u64 = 640_000;
    let after = Arc::new(AtomicUsize::new(0));
    let sent = after.clone();
    let mut failed = false;
    let (ours, theirs) = link(Duration::from_millis(5));
    fake::serve(theirs, 0, move |replies, tag, request| {
        let T::Write { offset, data, .. } = *request else { return false };
        sent.fetch_add(usize::from(failed), Ordering::Relaxed);
        let full = offset + data.0.len() as u64 > FULL;
        if full {
            failed = true;
            replies.error(tag, Errno::ENOSPC);
        }
        full
    });
    let (client, file) = create_at(over(ours, Dialect::Linux, Options::default()).await).await;
    let mut writer = file.writer(0, None);
    let error = loop {
        if let Err(e) = writer.write(content(writer.position(), 64 << 10)).await {
            break e;
        }
    };
    assert_eq!(error.errno(), Errno::ENOSPC);
    // What is whole messages below the place where the disk was full.
    let whole = FULL / (64 << 10) * (64 << 10);
    assert_eq!(writer.written(), whole);
    assert_eq!(writer.write(Bytes::from_static(b"x")).await.unwrap_err().errno(), Errno::ENOSPC);
    assert_eq!(writer.finish().await.unwrap_err().errno(), Errno::ENOSPC);
    assert_eq!(writer.written(), whole);
    settled(&client, 2).await;
    // Those that were on the way when the first failed, and no more: a window, which doubles each round trip.
    let on_the_way = after.load(Ordering::Relaxed);
    assert!(on_the_way < 64, "{on_the_way}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_may_be_synthetic_or_is_appended_to_is_written_by_one_request_after_another() {
    for (append, mode) in [(false, Mode::WRITE), (true, Mode::WRITE), (false, Mode::APPEND)] {
        let size = if append || mode.append { 5 } else { 0 };
        let (out, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (now, seen) = (out.clone(), most.clone());
        let (ours, theirs) = memory::pair(BUFFER);
        fake::serve(theirs, size, move |replies, tag, request| match *request {
            T::Write { data, .. } => {
                seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let (replies, now, count) = (replies.clone(), now.clone(), data.0.len() as u32);
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    replies.send(tag, R::Write { count });
                });
                true
            }
            T::Walk { .. } if append => {
                let kind = QidType::APPEND;
                let qids = [ninefold::proto::Qid { kind, ..fake::qid(b"f") }];
                replies.send(tag, R::Walk { wqids: Qids::encode(&qids, &mut Vec::new()) });
                true
            }
            T::Lopen { .. } if append => {
                let qid = ninefold::proto::Qid { kind: QidType::APPEND, ..fake::qid(b"f") };
                replies.send(tag, R::Lopen { qid, iounit: 0 });
                true
            }
            T::Getattr { .. } if append => {
                let qid = ninefold::proto::Qid { kind: QidType::APPEND, ..fake::qid(b"f") };
                replies.send(tag, fake::getattr_of(qid, 5));
                true
            }
            _ => false,
        });
        let client = over(ours, Dialect::Linux, Options { msize: 8192, ..Options::default() }).await;
        let node = client.walk("/f", Follow::All).await.unwrap();
        let metadata = node.metadata().await.unwrap();
        let file = node.open(mode).await.unwrap();
        let mut writer = file.writer(0, Some(&metadata));
        writer.write(content(0, 100_000)).await.unwrap();
        assert_eq!(writer.finish().await.unwrap(), 100_000);
        assert_eq!(most.load(Ordering::SeqCst), 1, "append-only: {append}, {mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_dropped_flushes_what_is_on_the_way() {
    let (came, mut comes) = tokio::sync::mpsc::unbounded_channel();
    let (client, file) = create(Options::default(), move |_, _, request| {
        let is_write = matches!(*request, T::Write { .. });
        is_write && came.send(()).is_ok()
    })
    .await;
    let mut writer = file.writer(0, None);
    writer.write(content(0, 200_000)).await.unwrap();
    assert_eq!((client.held().1, writer.written()), (4, 0));
    for _ in 0..4 {
        comes.recv().await.unwrap();
    }
    drop(writer);
    settled(&client, 2).await;
    assert_eq!(client.stats().messages["Tflush"], 4);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_dropped_sends_no_more_than_the_rest_of_what_it_has_begun() {
    const MESSAGE: usize = 64 << 10;
    let (ours, near) = memory::pair(4096);
    let (theirs, far) = memory::pair(BUFFER);
    let gate = Gate::default();
    tokio::spawn(gate.clone().carry(near, theirs));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    fake::serve(far, 0, move |_, _, request| {
        log.lock().unwrap().push((request.name(), request.payload().len()));
        false
    });
    let (client, file) = create_at(over(ours, Dialect::Linux, Options::default()).await).await;
    seen.lock().unwrap().clear();
    let before = client.stats();
    gate.shut();
    let mut writer = file.writer(0, None);
    writer.write(content(0, 4 * MESSAGE)).await.unwrap();
    // Another call has waited behind it, and made a fid that is nobody's now.
    let late = tokio::time::timeout(Duration::from_secs(1), client.walk("/g", Follow::All)).await;
    assert!(late.is_err());
    assert_eq!(client.held().1, 5 - 1);
    drop(writer);
    assert_eq!(client.held(), (2, 1), "what was not sent holds neither tag nor fid");
    gate.open();
    settled(&client, 2).await;
    assert_eq!(*seen.lock().unwrap(), [("Twrite", MESSAGE), ("Tflush", 0)]);
    let after = client.stats();
    assert_eq!((after.messages["Twrite"], after.messages["Twalk"]), (1, before.messages["Twalk"]));
    assert_eq!(after.round_trips, before.round_trips + 1);
    file.metadata().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_gets_no_reply_times_out_and_the_connection_goes_on() {
    let patience = Duration::from_secs(3);
    let options = Options { timeout: Some(patience), ..Options::default() };
    let (client, file) = create(options, |_, _, request| matches!(*request, T::Write { .. })).await;
    let mut writer = file.writer(0, None);
    writer.write(content(0, 10)).await.unwrap();
    let began = Instant::now();
    let e = writer.finish().await.unwrap_err();
    assert!(matches!(e, Error::TimedOut(_)), "{e}");
    assert_eq!((began.elapsed(), writer.written()), (patience, 0));
    file.metadata().await.unwrap();
    settled(&client, 2).await;
}
