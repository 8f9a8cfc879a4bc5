//! Reads of more than a message, and reads ahead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ninefold::client::{Client, Error, File, Follow, Metadata, Mode, Options};
use ninefold::proto::message::Payload;
use ninefold::proto::{Dialect, Errno, R, T, Tag};
use ninefold::transport::memory;
use tokio::time::{Instant, timeout};

use crate::fake::{self, Handled, Replies, content};
use crate::support::{BUFFER, SOON, connect, link, over, ram, random, settled};

const SIZE: u64 = 3_000_000;
const DELAY: Duration = Duration::from_millis(5);
/// For reading, by offsets that one may read ahead of.
const CACHED: Mode = Mode { cache: true, ..Mode::READ };

/// What a server was asked to read: offsets and counts.
type Log = Arc<Mutex<Vec<(u64, u32)>>>;

/// A file of `SIZE` bytes of a fake server behind a link, open in a mode, and what it was asked to read.
async fn open(
    mode: Mode,
    options: Options,
    mut answer: impl FnMut(&Replies, Tag, &T<'_>) -> Handled + Send + 'static,
) -> (Client, File, Metadata, Log) {
    let (ours, theirs) = link(DELAY);
    let log = Log::default();
    let seen = log.clone();
    fake::serve(theirs, SIZE, move |replies, tag, request| {
        if let T::Read { offset, count, .. } = *request {
            seen.lock().unwrap().push((offset, count));
        }
        answer(replies, tag, request)
    });
    let client = over(ours, Dialect::Linux, options).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let metadata = node.metadata().await.unwrap();
    let file = node.open(mode).await.unwrap();
    (client, file, metadata, log)
}

/// Messages of 64 KiB of data.
fn small() -> Options {
    Options { msize: (64 << 10) + 24, ..Options::default() }
}

fn count(log: &Log) -> usize {
    log.lock().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_read_of_many_messages_takes_one_round_trip() {
    let (client, file, _, log) = open(CACHED, small(), |_, _, _| false).await;
    let before = (client.stats().round_trips, Instant::now());
    assert!(file.read_at(1000, 1 << 20).await.unwrap() == content(1000, 1 << 20));
    assert_eq!(client.stats().round_trips - before.0, 1);
    assert_eq!((before.1.elapsed(), count(&log)), (DELAY * 2, 16));
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_read_of_many_messages_ends_at_the_first_short_reply_and_asks_no_more_for_the_end() {
    let (client, file, _, log) = open(CACHED, small(), |_, _, _| false).await;
    let began = Instant::now();
    assert!(file.read_at(SIZE - 100_000, 1 << 20).await.unwrap() == content(SIZE - 100_000, 100_000));
    assert!(file.read_at(SIZE, 1 << 20).await.unwrap().is_empty());
    assert_eq!((began.elapsed(), count(&log)), (DELAY * 4, 32));
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_read_of_many_messages_that_fails_in_the_middle_gives_what_came_before() {
    const BAD: u64 = 300_000;
    let (client, file, ..) = open(CACHED, small(), |replies, tag, request| match *request {
        T::Read { offset, count, .. } if (offset..offset + u64::from(count)).contains(&BAD) => {
            replies.error(tag, Errno::EIO);
            true
        }
        _ => false,
    })
    .await;
    let data = file.read_at(0, 1 << 20).await.unwrap();
    assert!(data == content(0, 4 << 16), "{}", data.len());
    assert_eq!(file.read_at(4 << 16, 1 << 20).await.unwrap_err().errno(), Errno::EIO);
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_of_version_0_is_read_by_one_request_after_another_and_never_ahead() {
    let (client, file, metadata, log) = open(Mode::READ, small(), |_, _, _| false).await;
    assert!(file.is_ordered());
    let before = client.stats().round_trips;
    assert!(file.read_at(0, 4 << 16).await.unwrap() == content(0, 4 << 16));
    assert_eq!((client.stats().round_trips - before, count(&log)), (4, 4));
    let mut ahead = file.read_ahead(Some(&metadata));
    for n in 0..10 {
        assert!(ahead.read_at(n * 1000, 1000).await.unwrap() == content(n * 1000, 1000));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(count(&log), 5 + n as usize);
    }
    assert_eq!(client.stats().round_trips - before, 14);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_open_for_writing_too_is_never_read_ahead() {
    let (_client, file, metadata, log) = open(Mode { cache: true, ..Mode::READ_WRITE }, small(), |_, _, _| false).await;
    assert!(!file.is_ordered());
    let mut ahead = file.read_ahead(Some(&metadata));
    for n in 0..10 {
        assert!(ahead.read_at(n * 1000, 1000).await.unwrap() == content(n * 1000, 1000));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(count(&log), 1 + n as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn sequential_reads_of_any_size_are_served_from_what_was_asked_for_ahead() {
    for known in [true, false] {
        let (client, file, metadata, log) = open(CACHED, small(), |_, _, _| false).await;
        let before = client.stats();
        let mut ahead = file.read_ahead(Some(&metadata).filter(|_| known));
        let (mut at, mut seed, mut reads) = (0, 1, 0);
        while at < SIZE {
            let count = 1 + random(&mut seed) as u32 % 20_000;
            let data = ahead.read_at(at, count).await.unwrap();
            assert!(!data.is_empty() && data.len() <= count as usize);
            assert!(data == content(at, data.len()), "{at}");
            at += data.len() as u64;
            reads += 1;
        }
        let trips = client.stats().round_trips - before.round_trips;
        assert!(reads > 200 && trips < 12, "{trips} for {reads}");
        // The end was seen, and costs nothing: but who asks once more asks the server.
        let asked = count(&log);
        assert!(ahead.read_at(SIZE, 1000).await.unwrap().is_empty());
        assert_eq!(count(&log), asked);
        assert!(ahead.read_at(SIZE, 1000).await.unwrap().is_empty());
        assert_eq!(count(&log), asked + 1);
        let attributes = client.stats().messages["Tgetattr"] - before.messages["Tgetattr"];
        assert_eq!(attributes, u64::from(!known));
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_that_a_single_short_read_saw_is_remembered() {
    let (_client, file, metadata, log) = open(CACHED, Options::default(), |_, _, _| false).await;
    let mut ahead = file.read_ahead(Some(&metadata));
    let last = ahead.read_at(SIZE - 10, 4096).await.unwrap();
    assert!(last == content(SIZE - 10, 10));
    assert!(ahead.read_at(SIZE, 4096).await.unwrap().is_empty());
    assert_eq!(count(&log), 1);
}

#[tokio::test(start_paused = true)]
async fn random_reads_ask_for_nothing_ahead() {
    let (client, file, metadata, log) = open(CACHED, small(), |_, _, _| false).await;
    let mut ahead = file.read_ahead(Some(&metadata));
    let mut seed = 7;
    for n in 0..100 {
        let at = random(&mut seed) % (SIZE - 1000);
        assert!(ahead.read_at(at, 1000).await.unwrap() == content(at, 1000));
        assert_eq!(count(&log), n + 1);
    }
    assert!(!client.stats().messages.contains_key("Tflush"));
}

#[tokio::test(start_paused = true)]
async fn a_read_elsewhere_gives_up_what_was_asked_for_ahead_and_delivers_none_of_it() {
    // Every reply tells in which order it was asked for.
    let mut asked = 0;
    let (client, file, metadata, log) = open(CACHED, small(), move |replies, tag, request| {
        let T::Read { count, .. } = *request else { return false };
        asked += 1;
        replies.send(tag, R::Read { data: Payload(&vec![asked; count as usize]) });
        true
    })
    .await;
    let mut ahead = file.read_ahead(Some(&metadata));
    for n in 0..3 {
        assert_eq!(ahead.read_at(n * 1000, 1000).await.unwrap().len(), 1000);
    }
    let before = count(&log);
    assert!(before > 3, "{before}");
    // Where something was asked for ahead, but not next.
    let data = ahead.read_at(70_000, 1000).await.unwrap();
    assert_eq!(count(&log), before + 1);
    assert!(data.iter().all(|&byte| usize::from(byte) == before + 1));
    settled(&client, 2).await;
    // And again sequential from there: anew.
    for n in 1..4 {
        let data = ahead.read_at(70_000 + n * 1000, 1000).await.unwrap();
        assert!(data.iter().all(|&byte| usize::from(byte) > before), "{n}");
    }
    assert!(count(&log) > before + 3);
    drop(ahead);
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn two_readers_of_one_file_have_a_window_each() {
    let (client, file, metadata, log) = open(CACHED, small(), |_, _, _| false).await;
    let before = client.stats().round_trips;
    let half = SIZE / 2;
    let through = async |from: u64| {
        let mut ahead = file.read_ahead(Some(&metadata));
        let mut at = from;
        while at < from + half {
            let data = ahead.read_at(at, 8192).await.unwrap();
            assert!(data == content(at, data.len()));
            at += data.len() as u64;
        }
    };
    tokio::join!(through(0), through(half));
    let trips = client.stats().round_trips - before;
    assert!(trips < 24, "{trips}");
    // None disturbed the other: the first may have asked for all of it, the last request of each reaching over the end.
    let bytes: u64 = log.lock().unwrap().iter().map(|(_, count)| u64::from(*count)).sum();
    assert!(bytes <= SIZE * 3 / 2 + (2 << 16), "{bytes}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_short_is_read_ahead_without_a_gap() {
    let mut seed = 3;
    let (_client, file, metadata, _) = open(CACHED, small(), move |replies, tag, request| {
        let T::Read { offset, count, .. } = *request else { return false };
        let left = SIZE.saturating_sub(offset).min(count.into());
        let count = if left == 0 { 0 } else { 1 + random(&mut seed) % left };
        replies.send(tag, R::Read { data: Payload(&content(offset, count as usize)) });
        true
    })
    .await;
    let mut ahead = file.read_ahead(Some(&metadata));
    let mut at = 0;
    while at < SIZE {
        let data = ahead.read_at(at, 30_000).await.unwrap();
        assert!(!data.is_empty() && data == content(at, data.len()), "{at}");
        at += data.len() as u64;
    }
    assert!(ahead.read_at(SIZE, 1).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_in_the_middle_of_reading_ahead_is_told_and_nothing_hangs() {
    let (ours, theirs) = memory::pair(BUFFER);
    let (kill, killed) = tokio::sync::oneshot::channel::<()>();
    let (fake_end, relay) = memory::pair(BUFFER);
    fake::serve(fake_end, SIZE, |_, _, request| matches!(*request, T::Read { offset: 200_000.., .. }));
    tokio::spawn(async move {
        let (mut a, mut b) = (theirs, relay);
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut a, &mut b) => {}
            _ = killed => {}
        }
    });
    let client = over(ours, Dialect::Linux, small()).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let metadata = node.metadata().await.unwrap();
    let file = node.open(CACHED).await.unwrap();
    let mut ahead = file.read_ahead(Some(&metadata));
    let mut at = 0;
    while at < 190_000 {
        let data = ahead.read_at(at, 10_000).await.unwrap();
        assert!(data == content(at, data.len()));
        at += data.len() as u64;
    }
    kill.send(()).unwrap();
    let lost = async {
        loop {
            match ahead.read_at(at, 10_000).await {
                Ok(data) => at += data.len() as u64,
                Err(e) => break e,
            }
        }
    };
    let e = timeout(SOON, lost).await.unwrap();
    assert!(matches!(e, Error::Lost(_)), "{e}");
    let again = timeout(SOON, ahead.read_at(at, 10_000)).await.unwrap();
    assert!(matches!(again, Err(Error::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn readers_that_nobody_reads_take_no_more_than_the_limit_of_all_files_and_keep_nobody_waiting() {
    const ALL: usize = 1 << 20;
    let options = Options { flights_max: ALL, ..small() };
    let (out, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (ours, theirs) = link(DELAY);
    let (asked, seen) = (out.clone(), most.clone());
    fake::serve(theirs, SIZE, move |_, _, request| {
        if let T::Read { count, .. } = *request {
            let now = asked.fetch_add(count as usize, Ordering::Relaxed) + count as usize;
            seen.fetch_max(now, Ordering::Relaxed);
        }
        false
    });
    let client = over(ours, Dialect::Linux, options).await;
    let mut files = Vec::new();
    for n in 0..20 {
        let node = client.walk(format!("/f{n}"), Follow::All).await.unwrap();
        let metadata = node.metadata().await.unwrap();
        files.push((node.open(CACHED).await.unwrap(), metadata));
    }
    // Each has begun, and is left alone with all that its window takes.
    let mut idle = Vec::new();
    for (file, metadata) in &files {
        let mut reader = file.reader(0, Some(metadata));
        let first = reader.next().await.unwrap().unwrap();
        out.fetch_sub(first.len(), Ordering::Relaxed);
        idle.push(reader);
    }
    // One message for each beyond the limit.
    let bound = ALL + files.len() * (64 << 10);
    assert!((ALL / 2..=bound).contains(&most.load(Ordering::Relaxed)), "{most:?}");
    // Another one is read to its end nevertheless.
    let before = (client.stats().round_trips, Instant::now());
    let mut reader = files[0].0.reader(0, Some(&files[0].1));
    let mut got = 0;
    while let Some(data) = timeout(SOON, reader.next()).await.unwrap().unwrap() {
        assert!(data == content(got, data.len()));
        got += data.len() as u64;
    }
    assert_eq!(got, SIZE);
    // A message at a time, and the figure says so.
    let trips = client.stats().round_trips - before.0;
    assert_eq!(DELAY * 2 * trips, before.1.elapsed());
    assert!(trips > 20, "{trips}");
    drop((reader, idle));
    settled(&client, 1 + files.len()).await;
}

#[tokio::test(start_paused = true)]
async fn our_own_server_s_files_are_read_ahead_and_written_concurrently_in_every_dialect() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options { msize: 8192, ..Options::default() }).await;
        let root = client.root().await.unwrap();
        let file = root.create(b"f", Mode::READ_WRITE, 0o644).await.unwrap();
        assert!(!file.is_ordered(), "{dialect}");
        assert_eq!(file.write_at(0, content(0, 300_000)).await.unwrap(), 300_000);
        assert!(file.read_at(5, 400_000).await.unwrap() == content(5, 299_995), "{dialect}");
        let file = client.walk("/f", Follow::All).await.unwrap().open(Mode::READ).await.unwrap();
        let mut ahead = file.read_ahead(None);
        let mut at = 0;
        while at < 300_000 {
            let data = ahead.read_at(at, 5000).await.unwrap();
            assert!(!data.is_empty() && data == content(at, data.len()), "{dialect} {at}");
            at += data.len() as u64;
        }
        assert!(ahead.read_at(at, 5000).await.unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn readers_that_wait_for_room_among_a_connection_s_calls_count_the_replies_that_made_it() {
    const WHOLE: u64 = 8 << 20;
    let (ours, theirs) = link(DELAY);
    fake::serve(theirs, WHOLE, |_, _, _| false);
    let client = over(ours, Dialect::Linux, Options { msize: 4096, ..Options::default() }).await;
    let mut files = Vec::new();
    for n in 0..3 {
        let node = client.fork().walk(format!("/f{n}"), Follow::All).await.unwrap();
        let metadata = node.metadata().await.unwrap();
        files.push((node.open(CACHED).await.unwrap(), metadata));
    }
    let before = (client.stats().round_trips, Instant::now());
    // Each may have 512 requests on the way, and all together 1,024.
    let through = async |(file, metadata): &(File, Metadata)| {
        let mut reader = file.reader(0, Some(metadata)).until(WHOLE);
        let mut at = 0;
        while let Some(data) = reader.next().await.unwrap() {
            at += data.len() as u64;
        }
        assert_eq!(at, WHOLE);
    };
    tokio::join!(through(&files[0]), through(&files[1]), through(&files[2]));
    let trips = client.stats().round_trips - before.0;
    assert!(before.1.elapsed() <= DELAY * 2 * trips, "{trips} in {:?}", before.1.elapsed());
    // 6,180 messages, 1,024 at a time, once the windows have grown; the count may be too high, as it is by waits side by side.
    assert!((6..20).contains(&trips), "{trips}");
}
