//! Reading with many requests on the way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ninefold::client::{Client, Error, File, Follow, Metadata, Mode, Options, Reader};
use ninefold::proto::message::Payload;
use ninefold::proto::{Dialect, Errno, R, T, Tag};
use ninefold::transport::memory;
use tokio::time::{Instant, timeout};

use crate::fake::{self, Handled, Replies, content};
use crate::support::{BUFFER, SOON, connect, link, over, ram, random, settled};

/// A client of a fake server, with its file of `size` bytes open, and the file's attributes.
async fn open(
    size: u64,
    options: Options,
    answer: impl FnMut(&Replies, Tag, &T<'_>) -> Handled + Send + 'static,
) -> (Client, File, Metadata) {
    let (ours, theirs) = memory::pair(BUFFER);
    fake::serve(theirs, size, answer);
    let client = over(ours, Dialect::Linux, options).await;
    open_at(client).await
}

async fn open_at(client: Client) -> (Client, File, Metadata) {
    let node = client.walk("/f", Follow::All).await.unwrap();
    let metadata = node.metadata().await.unwrap();
    (client, node.open(Mode::READ).await.unwrap(), metadata)
}

async fn read_all(reader: &mut Reader<'_>) -> Result<Bytes, Error> {
    let mut all = BytesMut::new();
    while let Some(data) = reader.next().await? {
        assert!(!data.is_empty());
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

#[tokio::test(start_paused = true)]
async fn a_file_is_read_from_any_place_to_any_place_in_every_dialect() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options { msize: 8192, ..Options::default() }).await;
        let size = 1_000_001;
        let file = client.root().await.unwrap().create(b"f", Mode::READ_WRITE, 0o644).await.unwrap();
        let mut writer = file.writer(0, None);
        writer.write(content(0, size)).await.unwrap();
        assert_eq!(writer.finish().await.unwrap(), size as u64);
        let metadata = file.metadata().await.unwrap();
        for (offset, until) in
            [(0, u64::MAX), (999_999, u64::MAX), (5, 5), (17, 500_000), (1_000_001, u64::MAX), (1 << 40, u64::MAX)]
        {
            let mut reader = file.reader(offset, Some(&metadata)).until(until);
            let end = (size as u64).min(until);
            let wanted = content(offset, end.saturating_sub(offset) as usize);
            assert!(read_all(&mut reader).await.unwrap() == wanted, "{dialect} {offset} {until}");
            assert_eq!((reader.position(), reader.missing()), (end.max(offset), 0));
        }
        // Without metadata, one request after another.
        assert!(read_all(&mut file.reader(0, None)).await.unwrap() == content(0, size));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pipelined_read_counts_as_many_round_trips_as_it_takes() {
    const DELAY: Duration = Duration::from_millis(5);
    for (size, window_max) in [(64 << 20, 64 << 20), (16 << 20, 1 << 20)] {
        let messages = size / (64 << 10);
        let (ours, theirs) = link(DELAY);
        fake::serve(theirs, size.into(), |_, _, _| false);
        let options = Options { msize: (64 << 10) + 24, window_max: window_max as usize, ..Options::default() };
        let (client, file, metadata) = open_at(over(ours, Dialect::Linux, options).await).await;
        let before = (client.stats(), Instant::now());
        let mut reader = file.reader(0, Some(&metadata)).until(metadata.size);
        let mut offset = 0;
        while let Some(data) = reader.next().await.unwrap() {
            assert!(data == content(offset, data.len()));
            offset += data.len() as u64;
        }
        assert_eq!(offset, u64::from(size));
        let stats = client.stats();
        assert_eq!(stats.messages["Tread"], u64::from(messages));
        let trips = stats.round_trips - before.0.round_trips;
        // Nothing but the link takes time, so the time tells the longest chain.
        assert_eq!(DELAY * 2 * trips, before.1.elapsed(), "{window_max}");
        // Once the window has doubled often enough, a window for each.
        let least = size / window_max;
        assert!((least..least + 12).contains(&trips), "{window_max}: {trips}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_read_follows_from_its_replies_and_a_slow_program_adds_none() {
    let (ours, theirs) = link(Duration::from_millis(5));
    fake::serve(theirs, 4 << 20, |_, _, _| false);
    let options = Options { msize: (64 << 10) + 24, window_max: 1 << 20, ..Options::default() };
    let (client, file, metadata) = open_at(over(ours, Dialect::Linux, options).await).await;
    let before = client.stats().round_trips;
    let mut reader = file.reader(0, Some(&metadata)).until(metadata.size);
    let mut messages = 0;
    while reader.next().await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        messages += 1;
    }
    let trips = client.stats().round_trips - before;
    assert!(trips < messages / 3, "{trips} of {messages}");
    file.metadata().await.unwrap();
    assert_eq!(client.stats().round_trips - before, trips + 1);
}

/// A server that gives less than it was asked for, in any order, until it was asked often enough.
fn short_and_shuffled(mut seed: u64) -> impl FnMut(&Replies, Tag, &T<'_>) -> Handled + Send + 'static {
    let mut held: Vec<(Tag, u64, usize)> = Vec::new();
    move |replies, tag, request| {
        let T::Read { offset, count, .. } = *request else {
            if let T::Flush { oldtag } = *request {
                held.retain(|(tag, ..)| *tag != oldtag);
            }
            return false;
        };
        let left = SIZE.saturating_sub(offset).min(count.into());
        let count = if left == 0 { 0 } else { 1 + random(&mut seed) % left };
        held.push((tag, offset, count as usize));
        // One request stays behind at most, so that the last is answered too.
        while held.len() > 1 || (!held.is_empty() && random(&mut seed).is_multiple_of(2)) || offset >= SIZE / 2 {
            if held.is_empty() {
                break;
            }
            let (tag, offset, count) = held.swap_remove(random(&mut seed) as usize % held.len());
            replies.send(tag, R::Read { data: Payload(&content(offset, count)) });
        }
        true
    }
}

const SIZE: u64 = 3_000_000;

#[tokio::test(start_paused = true)]
async fn short_replies_are_repaired_and_replies_in_any_order_are_put_in_order() {
    for seed in 0..20 {
        let options = Options { timeout: Some(Duration::from_secs(1)), ..Options::default() };
        let (_client, file, metadata) = open(SIZE, options, short_and_shuffled(seed)).await;
        let mut reader = file.reader(0, Some(&metadata));
        let mut all = BytesMut::new();
        loop {
            match reader.next().await {
                Ok(Some(data)) => all.extend_from_slice(&data),
                Ok(None) => break,
                // The server keeps one back: asked again from there it answers.
                Err(Error::TimedOut(_)) => {
                    let at = reader.position();
                    drop(reader);
                    reader = file.reader(at, Some(&metadata));
                }
                Err(e) => panic!("{e}"),
            }
        }
        assert!(all == content(0, SIZE as usize), "{seed}");
        assert_eq!(reader.missing(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_gives_little_at_a_time_is_soon_asked_for_no_more() {
    let shorts = Arc::new(AtomicUsize::new(0));
    let seen = shorts.clone();
    let (_client, file, metadata) = open(SIZE, Options::default(), move |replies, tag, request| {
        let T::Read { offset, count, .. } = *request else { return false };
        seen.fetch_add(usize::from(count > 8192), Ordering::Relaxed);
        let count = SIZE.saturating_sub(offset).min(count.into()).min(8192);
        replies.send(tag, R::Read { data: Payload(&content(offset, count as usize)) });
        true
    })
    .await;
    let mut reader = file.reader(0, Some(&metadata)).until(SIZE);
    assert!(read_all(&mut reader).await.unwrap() == content(0, SIZE as usize));
    // The first window, and what repairs it.
    assert!(shorts.load(Ordering::Relaxed) < 40, "{shorts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_trickles_fills_no_memory_with_pieces_before_their_turn() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = asked.clone();
    let options = Options { timeout: Some(Duration::from_secs(1)), ..Options::default() };
    let (_client, file, metadata) = open(SIZE, options, move |replies, tag, request| {
        let T::Read { offset, .. } = *request else { return false };
        let reads = seen.fetch_add(1, Ordering::Relaxed);
        // The first byte never comes, of the others one at a time, until it is enough to tell.
        if offset > 0 && reads < 10_000 {
            replies.send(tag, R::Read { data: Payload(&content(offset, 1)) });
        }
        true
    })
    .await;
    let e = file.reader(0, Some(&metadata)).next().await.unwrap_err();
    assert!(matches!(e, Error::TimedOut(_)), "{e}");
    assert!(asked.load(Ordering::Relaxed) < 100, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_ends_before_its_size_is_read_to_its_end_and_the_reader_tells() {
    const END: u64 = 1_234_567;
    let (_client, file, metadata) = open(SIZE, Options::default(), move |replies, tag, request| {
        let T::Read { offset, count, .. } = *request else { return false };
        let count = END.saturating_sub(offset).min(count.into());
        replies.send(tag, R::Read { data: Payload(&content(offset, count as usize)) });
        true
    })
    .await;
    let mut reader = file.reader(0, Some(&metadata));
    assert!(read_all(&mut reader).await.unwrap() == content(0, END as usize));
    assert_eq!((reader.position(), reader.missing()), (END, SIZE - END));
    assert!(reader.next().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_comes_from_behind_an_end_is_asked_for_again_in_order() {
    // At the moment of the second request the file is empty behind its first message; then it is whole again.
    let mut reads = 0;
    let (_client, file, metadata) = open(SIZE, Options::default(), move |replies, tag, request| {
        let T::Read { .. } = *request else { return false };
        reads += 1;
        if reads == 2 {
            replies.send(tag, R::Read { data: Payload(b"") });
        }
        reads == 2
    })
    .await;
    let mut reader = file.reader(0, Some(&metadata));
    assert!(read_all(&mut reader).await.unwrap() == content(0, SIZE as usize));
    assert_eq!(reader.missing(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_grew_is_read_to_its_new_end_one_request_at_a_time() {
    let (told, more) = (200_000, 500_000);
    let out = Arc::new(Mutex::new((Vec::new(), 0)));
    let seen = out.clone();
    let options = Options { msize: 16_384 + 24, ..Options::default() };
    let (_client, file, mut metadata) = open(more, options, move |_, _, request| {
        if let T::Read { offset, .. } = *request {
            seen.lock().unwrap().0.push(offset);
        }
        false
    })
    .await;
    metadata.size = told;
    let mut reader = file.reader(0, Some(&metadata));
    let mut got = 0;
    while let Some(data) = reader.next().await.unwrap() {
        got += data.len() as u64;
        let beyond = out.lock().unwrap().0.iter().filter(|&&offset| offset >= told.max(got)).count();
        assert_eq!(beyond, 0, "{got}");
    }
    assert_eq!(got, more);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_behind_the_end_waits_for_its_replies_and_flushes_none() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options { msize: 8192, ..Options::default() }).await;
        for size in [0, 1, 8192 * 2 + 1] {
            let name = size.to_string();
            let file = client.root().await.unwrap().create(name.as_bytes(), Mode::READ_WRITE, 0o644).await.unwrap();
            file.write_at(0, content(0, size)).await.unwrap();
            assert!(file.read_at(0, 100_000).await.unwrap() == content(0, size), "{dialect} {size}");
        }
        assert_eq!(client.stats().messages.get("Tflush"), None, "{dialect}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_without_a_size_is_read_by_one_request_for_each_call_and_none_ahead() {
    let reads = Arc::new(AtomicUsize::new(0));
    let seen = reads.clone();
    let (_client, file, metadata) = open(0, Options::default(), move |replies, tag, request| {
        let T::Read { .. } = *request else { return false };
        let n = seen.fetch_add(1, Ordering::Relaxed);
        let data = if n < 3 { format!("{n}\n") } else { String::new() };
        replies.send(tag, R::Read { data: Payload(data.as_bytes()) });
        true
    })
    .await;
    let mut reader = file.reader(0, Some(&metadata));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for n in 0..3 {
        assert_eq!(reads.load(Ordering::Relaxed), n);
        assert_eq!(reader.next().await.unwrap().unwrap(), format!("{n}\n"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(reads.load(Ordering::Relaxed), n + 1);
    }
    assert!(reader.next().await.unwrap().is_none());
    assert_eq!((reader.position(), reader.missing()), (6, 0));
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_middle_comes_behind_the_bytes_before_it_and_stays() {
    let bad = 400_000;
    let (client, file, metadata) = open(SIZE, Options::default(), move |replies, tag, request| match *request {
        T::Read { offset, count, .. } if (offset..offset + u64::from(count)).contains(&bad) => {
            replies.error(tag, Errno::EIO);
            true
        }
        _ => false,
    })
    .await;
    let mut reader = file.reader(0, Some(&metadata));
    let mut got = 0;
    let error = loop {
        match reader.next().await {
            Ok(data) => got += data.unwrap().len() as u64,
            Err(e) => break e,
        }
    };
    assert_eq!(error.errno(), Errno::EIO);
    assert!(got <= bad && got + (1 << 20) > bad, "{got}");
    assert_eq!((reader.next().await.unwrap_err().errno(), reader.missing()), (Errno::EIO, 0));
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_dropped_flushes_what_is_on_the_way() {
    let (client, file, metadata) = open(SIZE, Options::default(), |_, _, request| {
        // Only the first is answered.
        matches!(*request, T::Read { offset: 1.., .. })
    })
    .await;
    let mut reader = file.reader(0, Some(&metadata));
    assert!(reader.next().await.unwrap().is_some());
    let waiting = timeout(Duration::from_secs(1), reader.next()).await;
    assert!(waiting.is_err());
    let (_, calls) = client.held();
    assert!(calls > 2, "{calls}");
    drop(reader);
    settled(&client, 2).await;
    assert_eq!(client.stats().messages["Tflush"], calls as u64);
}

#[tokio::test(start_paused = true)]
async fn a_next_that_is_dropped_has_lost_nothing() {
    for known in [true, false] {
        let (ours, theirs) = link(Duration::from_millis(7));
        fake::serve(theirs, 2_000_000, |_, _, _| false);
        let (_client, file, metadata) = open_at(over(ours, Dialect::Linux, Options::default()).await).await;
        let mut reader = file.reader(0, Some(&metadata).filter(|_| known));
        let (mut all, mut seed, mut dropped) = (BytesMut::new(), 1, 0);
        loop {
            let patience = Duration::from_millis(random(&mut seed) % 20);
            match timeout(patience, reader.next()).await {
                Ok(Ok(Some(data))) => all.extend_from_slice(&data),
                Ok(end) => break assert!(end.unwrap().is_none()),
                Err(_) => dropped += 1,
            }
        }
        assert!(all == content(0, 2_000_000));
        assert!(dropped > 1, "{dropped}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_window_is_on_the_way_or_waits_for_a_slow_program() {
    const MOST: usize = 300_000;
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let taken = Arc::new(AtomicUsize::new(0));
    let given = taken.clone();
    let options = Options { window_max: MOST, ..Options::default() };
    let (_client, file, metadata) = open(SIZE, options, move |_, _, request| {
        if let T::Read { offset, count, .. } = *request {
            let ahead = offset as usize + count as usize - given.load(Ordering::Relaxed);
            seen.fetch_max(ahead, Ordering::Relaxed);
        }
        false
    })
    .await;
    let mut reader = file.reader(0, Some(&metadata)).until(SIZE);
    while let Some(data) = reader.next().await.unwrap() {
        // What next gives is the program's from the moment that it asks again.
        tokio::time::sleep(Duration::from_millis(10)).await;
        taken.fetch_add(data.len(), Ordering::Relaxed);
    }
    assert!(most.load(Ordering::Relaxed) <= MOST, "{most:?}");
    assert!(most.load(Ordering::Relaxed) > MOST / 2, "{most:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_ends_a_reader_with_what_had_come() {
    let (ours, theirs) = memory::pair(BUFFER);
    let (kill, killed) = tokio::sync::oneshot::channel::<()>();
    let (fake_end, relay) = memory::pair(BUFFER);
    fake::serve(fake_end, SIZE, |_, _, request| matches!(*request, T::Read { offset: 100_000.., .. }));
    tokio::spawn(async move {
        let (mut a, mut b) = (theirs, relay);
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut a, &mut b) => {}
            _ = killed => {}
        }
    });
    let (_client, file, metadata) = open_at(over(ours, Dialect::Linux, Options::default()).await).await;
    let mut reader = file.reader(0, Some(&metadata));
    assert!(reader.next().await.unwrap().is_some());
    while reader.position() < 100_000 {
        assert!(reader.next().await.unwrap().is_some());
    }
    kill.send(()).unwrap();
    let e = timeout(SOON, reader.next()).await.unwrap().unwrap_err();
    assert!(matches!(e, Error::Lost(_)), "{e}");
}
