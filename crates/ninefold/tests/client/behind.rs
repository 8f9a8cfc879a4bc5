//! Writes of more than a message, and writes behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Client, Error, Extent, File, Follow, Lock, LockKind, Mode, Options};
use ninefold::proto::dialect::Version;
use ninefold::proto::{Dialect, Errno, R, T, Tag};
use ninefold::server::Server;
use ninefold::transport::memory;
use ninefold::tree::ramfs::RamFs;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::fake::{self, Handled, Replies, content};
use crate::support::{BUFFER, SOON, connect, link, over, ram, settled};

const DELAY: Duration = Duration::from_millis(5);
const BEHIND: Mode = Mode { behind: true, cache: true, ..Mode::READ_WRITE };
const MESSAGE: usize = 64 << 10;

fn small() -> Options {
    Options { msize: MESSAGE as u32 + 24, ..Options::default() }
}

/// A file of a fake server behind a link, open in a mode.
async fn open(mode: Mode, answer: impl FnMut(&Replies, Tag, &T<'_>) -> Handled + Send + 'static) -> (Client, File) {
    let (ours, theirs) = link(DELAY);
    fake::serve(theirs, 100, answer);
    let client = over(ours, Dialect::Linux, small()).await;
    let file = client.walk("/f", Follow::All).await.unwrap().open(mode).await.unwrap();
    (client, file)
}

/// The same, where a write is answered when the test says how: an error, or all of it.
async fn open_held() -> (Client, File, mpsc::UnboundedReceiver<(u64, Answer)>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (client, file) = open(BEHIND, move |replies, tag, request| {
        let T::Write { offset, data, .. } = *request else { return false };
        let (replies, count) = (replies.clone(), data.0.len() as u32);
        let answer: Answer = Box::new(move |errno| match errno {
            None => replies.send(tag, R::Write { count }),
            Some(errno) => replies.error(tag, errno),
        });
        sender.send((offset, answer)).is_ok()
    })
    .await;
    (client, file, receiver)
}

type Answer = Box<dyn FnOnce(Option<Errno>) + Send>;

#[tokio::test(start_paused = true)]
async fn a_write_behind_returns_when_it_was_sent_and_a_flush_waits_for_all_of_them() {
    let (client, file) = open(BEHIND, |_, _, _| false).await;
    let (trips, began) = (client.stats().round_trips, Instant::now());
    for n in 0..3 {
        assert_eq!(file.write_at(n * 1000, content(0, 1000)).await.unwrap(), 1000);
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    file.flush().await.unwrap();
    assert_eq!((began.elapsed(), client.stats().round_trips - trips), (DELAY * 2, 1));
    file.flush().await.unwrap();
    assert_eq!(began.elapsed(), DELAY * 2);
    file.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_more_is_written_behind_than_the_window_takes_and_what_waits_counts_as_a_round_trip() {
    let (client, file) = open(BEHIND, |_, _, _| false).await;
    let (trips, began) = (client.stats().round_trips, Instant::now());
    for n in 0..64 {
        file.write_behind(n * MESSAGE as u64, content(0, MESSAGE)).await.unwrap();
    }
    assert!(began.elapsed() > Duration::ZERO);
    file.flush().await.unwrap();
    let trips = client.stats().round_trips - trips;
    assert_eq!(began.elapsed(), DELAY * 2 * trips);
    assert!((2..12).contains(&trips), "{trips}");
}

#[tokio::test(start_paused = true)]
async fn a_write_of_many_messages_takes_one_round_trip_and_tells_what_was_taken_before_an_error() {
    const FULL: u64 = 5 * MESSAGE as u64;
    let (client, file) = open(Mode { cache: true, ..Mode::WRITE }, |replies, tag, request| match *request {
        T::Write { offset, .. } if offset >= FULL => {
            replies.error(tag, Errno::ENOSPC);
            true
        }
        _ => false,
    })
    .await;
    let (trips, began) = (client.stats().round_trips, Instant::now());
    assert_eq!(file.write_at(0, content(0, 5 * MESSAGE)).await.unwrap() as usize, 5 * MESSAGE);
    assert_eq!((began.elapsed(), client.stats().round_trips - trips), (DELAY * 2, 1));
    assert_eq!(file.write_at(0, content(0, 16 * MESSAGE)).await.unwrap() as usize, 5 * MESSAGE);
    assert_eq!(file.write_at(FULL, content(0, 2 * MESSAGE)).await.unwrap_err().errno(), Errno::ENOSPC);
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_of_version_0_has_every_write_waited_for_one_after_another() {
    for mode in [Mode::WRITE, Mode { behind: true, ..Mode::WRITE }] {
        let (client, file) = open(mode, |_, _, _| false).await;
        let (trips, began) = (client.stats().round_trips, Instant::now());
        assert_eq!(file.write_at(0, content(0, 3 * MESSAGE)).await.unwrap() as usize, 3 * MESSAGE);
        assert_eq!((began.elapsed(), client.stats().round_trips - trips), (DELAY * 6, 3));
        file.write_behind(0, content(0, 10)).await.unwrap();
        assert_eq!(began.elapsed(), DELAY * 8);
    }
}

#[tokio::test(start_paused = true)]
async fn what_overlaps_waits_for_what_was_written_before_it_and_what_does_not_goes_beside_it() {
    let (_client, file, mut held) = open_held().await;
    file.write_behind(0, content(0, 100)).await.unwrap();
    file.write_behind(100, content(0, 100)).await.unwrap();
    let (first, second) = (held.recv().await.unwrap(), held.recv().await.unwrap());
    assert_eq!((first.0, second.0), (0, 100));
    // Over the end of the first, and with that at its beginning.
    for (place, before) in [(99, first), (0, second)] {
        let waits = timeout(Duration::from_secs(1), file.write_behind(place, content(0, 1))).await;
        assert_eq!(waits.is_err(), place == 99);
        before.1(None);
        if place == 99 {
            file.write_behind(99, content(0, 1)).await.unwrap();
            let (place, answer) = held.recv().await.unwrap();
            assert_eq!(place, 99);
            answer(None);
        }
    }
    assert_eq!(held.recv().await.unwrap().0, 0);
    assert!(timeout(Duration::from_secs(1), held.recv()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn reads_and_attributes_come_behind_what_was_written() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = order.clone();
    let (_client, file) = open(BEHIND, move |replies, tag, request| {
        match *request {
            T::Write { data, .. } => {
                let (replies, count, log) = (replies.clone(), data.0.len() as u32, log.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    log.lock().unwrap().push("written");
                    replies.send(tag, R::Write { count });
                });
                return true;
            }
            _ => log.lock().unwrap().push(request.name()),
        }
        if let T::Fsync { .. } = *request {
            replies.send(tag, R::Fsync {});
            return true;
        }
        false
    })
    .await;
    order.lock().unwrap().clear();
    file.write_behind(0, content(0, 10)).await.unwrap();
    file.read_at(0, 10).await.unwrap();
    file.write_behind(0, content(0, 10)).await.unwrap();
    file.metadata().await.unwrap();
    file.write_behind(0, content(0, 10)).await.unwrap();
    file.sync().await.unwrap();
    file.write_behind(0, content(0, 10)).await.unwrap();
    file.close().await.unwrap();
    let order = order.lock().unwrap().clone();
    assert_eq!(order, ["written", "Tread", "written", "Tgetattr", "written", "Tfsync", "written", "Tclunk"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_that_is_waited_for_overtakes_what_was_written_behind() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = order.clone();
    let (ours, theirs) = link(DELAY);
    fake::serve(theirs, 100, move |replies, tag, request| match *request {
        T::Write { data, .. } => {
            let (replies, count, log) = (replies.clone(), data.0.len() as u32, log.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                log.lock().unwrap().push("written");
                replies.send(tag, R::Write { count });
            });
            true
        }
        T::Read { .. }
        | T::Writex { .. }
        | T::Copyrange { .. }
        | T::Allocate { .. }
        | T::Seek { .. }
        | T::Lock { .. } => {
            log.lock().unwrap().push(request.name());
            replies.error(tag, Errno::EOPNOTSUPP);
            true
        }
        _ => false,
    });
    let client = over(ours, Version::N1, small()).await;
    let file = client.walk("/f", Follow::All).await.unwrap().open(BEHIND).await.unwrap();
    let other = client.walk("/f", Follow::All).await.unwrap().open(Mode::READ_WRITE).await.unwrap();
    let lock = Lock { kind: LockKind::Exclusive, start: 0, length: 0, process: 1, client: b"c".to_vec() };
    let metadata = file.metadata().await.unwrap();
    for number in 0..9 {
        order.lock().unwrap().clear();
        file.write_behind(0, content(0, 10)).await.unwrap();
        let data = content(0, 10);
        let name = match number {
            0 => file.append(data, false).await.map(|_| "").err().map(|_| "Twritex"),
            1 => file.write_stable(0, data).await.err().map(|_| "Twritex"),
            2 => file.copy_range(0, &other, 0, 1).await.err().map(|_| "Tcopyrange"),
            3 => other.copy_range(0, &file, 0, 1).await.err().map(|_| "Tcopyrange"),
            4 => file.allocate(0, 0, 1).await.err().map(|_| "Tallocate"),
            5 => file.seek(Extent::Data, 0).await.err().map(|_| "Tseek"),
            6 => file.unlock(&lock).await.err().map(|_| "Tlock"),
            7 => file.reader(0, Some(&metadata)).next().await.err().map(|_| "Tread"),
            _ => {
                let mut writer = file.writer(0, Some(&metadata));
                writer.write(data).await.unwrap();
                writer.finish().await.unwrap();
                Some("written")
            }
        };
        let expected = ["written", name.expect("an error")];
        assert_eq!(order.lock().unwrap()[..2], expected, "{number}");
    }
}

/// A file on a tree that takes some 256 KiB.
async fn on_small_disk() -> (Client, File) {
    let server = Server::builder().export("", Arc::new(RamFs::with_limit(256 << 10)), false).build();
    let client = connect(&server, Dialect::Linux, small()).await;
    let mode = Mode { behind: true, ..Mode::READ_WRITE };
    let file = client.root().await.unwrap().create(b"f", mode, 0o644).await.unwrap();
    (client, file)
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_told_once_by_whatever_comes_first() {
    for how in ["flush", "write", "sync", "close"] {
        let (client, file) = on_small_disk().await;
        file.write_behind(0, content(0, 1000)).await.unwrap();
        file.flush().await.unwrap();
        // They do not all fit, and fail together.
        for n in 2..6 {
            file.write_behind(n * MESSAGE as u64, content(0, MESSAGE)).await.unwrap();
        }
        let told = match how {
            "flush" => file.flush().await,
            "sync" => file.sync().await,
            "write" => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                file.write_behind(0, content(0, 1)).await
            }
            _ => {
                assert_eq!(file.close().await.unwrap_err().errno(), Errno::ENOSPC);
                settled(&client, 1).await;
                continue;
            }
        };
        assert_eq!(told.unwrap_err().errno(), Errno::ENOSPC, "{how}");
        // And then all is well again.
        file.flush().await.unwrap();
        file.write_behind(0, content(7, 500)).await.unwrap();
        file.flush().await.unwrap();
        assert!(file.read_at(0, 1000).await.unwrap() == [content(7, 500), content(500, 500)].concat());
        file.close().await.unwrap();
        settled(&client, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_failed_together_are_told_of_by_the_first_error_and_once() {
    let (_client, file, mut held) = open_held().await;
    let mut answers = Vec::new();
    for n in 0..3 {
        file.write_behind(n * 100, content(0, 100)).await.unwrap();
        answers.push(held.recv().await.unwrap().1);
    }
    for (answer, errno) in answers.into_iter().rev().zip([None, Some(Errno::EIO), Some(Errno::ENOSPC)]) {
        answer(errno);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(file.flush().await.unwrap_err().errno(), Errno::EIO);
    file.flush().await.unwrap();
    // A read does not take an error away from who must be told.
    file.write_behind(0, content(0, 100)).await.unwrap();
    held.recv().await.unwrap().1(Some(Errno::EDQUOT));
    file.read_at(0, 10).await.unwrap();
    file.metadata().await.unwrap();
    assert_eq!(file.close().await.unwrap_err().errno(), Errno::EDQUOT);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_loses_no_error() {
    let (_client, file, mut held) = open_held().await;
    file.write_behind(0, content(0, 100)).await.unwrap();
    file.write_behind(100, content(0, 100)).await.unwrap();
    let (first, second) = (held.recv().await.unwrap().1, held.recv().await.unwrap().1);
    first(Some(Errno::ENOSPC));
    // It has seen the error, and waits for the other reply.
    assert!(timeout(Duration::from_secs(1), file.flush()).await.is_err());
    second(None);
    assert_eq!(timeout(SOON, file.flush()).await.unwrap().unwrap_err().errno(), Errno::ENOSPC);
    file.flush().await.unwrap();
    file.write_behind(0, content(0, 100)).await.unwrap();
    held.recv().await.unwrap().1(None);
    file.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_a_write_behind_is_told_of_within_the_timeout_and_a_lost_one_at_once() {
    let (client, file, mut held) = open_held().await;
    file.write_behind(0, content(0, 100)).await.unwrap();
    let answer = held.recv().await.unwrap().1;
    let began = Instant::now();
    let e = file.flush().await.unwrap_err();
    assert!(matches!(e, Error::TimedOut(_)), "{e}");
    assert!(began.elapsed() < Duration::from_secs(61));
    file.flush().await.unwrap();
    drop(answer);
    settled(&client, 2).await;

    let (ours, theirs) = memory::pair(BUFFER);
    let (near, far) = memory::pair(BUFFER);
    fake::serve(far, 100, |_, _, request| matches!(*request, T::Write { .. }));
    let carrier = tokio::spawn(async move {
        let (mut a, mut b) = (theirs, near);
        let _ = tokio::io::copy_bidirectional(&mut a, &mut b).await;
    });
    let client = over(ours, Dialect::Linux, small()).await;
    let file = client.walk("/f", Follow::All).await.unwrap().open(BEHIND).await.unwrap();
    file.write_behind(0, content(0, 100)).await.unwrap();
    carrier.abort();
    let e = timeout(SOON, file.flush()).await.unwrap().unwrap_err();
    assert!(matches!(e, Error::Lost(_)), "{e}");
    assert!(matches!(timeout(SOON, file.close()).await.unwrap(), Err(Error::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_dropped_gives_up_what_was_written_behind() {
    let (client, file, mut held) = open_held().await;
    file.write_behind(0, content(0, 100)).await.unwrap();
    let _answer = held.recv().await.unwrap();
    drop(file);
    settled(&client, 1).await;
    assert_eq!(client.stats().messages["Tflush"], 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_written_behind_anywhere_is_what_is_read_back_in_every_dialect() {
    for dialect in Dialect::ALL {
        let client = connect(&ram(), dialect, Options { msize: 4096, ..Options::default() }).await;
        let mode = Mode { behind: true, ..Mode::READ_WRITE };
        let file = client.root().await.unwrap().create(b"f", mode, 0o644).await.unwrap();
        let mut model = vec![0; 100_000];
        let mut seed = 5;
        for n in 0..200u8 {
            let at = crate::support::random(&mut seed) as usize % 90_000;
            let bytes = 1 + crate::support::random(&mut seed) as usize % 10_000;
            model[at..at + bytes].fill(n);
            assert_eq!(file.write_at(at as u64, Bytes::from(vec![n; bytes])).await.unwrap() as usize, bytes);
        }
        file.flush().await.unwrap();
        let got = file.read_at(0, 100_000).await.unwrap();
        assert!(got[..] == model[..got.len()], "{dialect}");
        file.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_a_place_among_512_requests_counts_the_reply_that_freed_it() {
    let (client, file) = open(BEHIND, |_, _, _| false).await;
    let (trips, began) = (client.stats().round_trips, Instant::now());
    for n in 0..5120 {
        file.write_behind(n * 10, content(0, 10)).await.unwrap();
    }
    file.flush().await.unwrap();
    let trips = client.stats().round_trips - trips;
    assert_eq!((trips, began.elapsed()), (10, DELAY * 20));
}

#[tokio::test(start_paused = true)]
async fn what_would_end_behind_the_largest_offset_is_refused_and_not_sent() {
    for mode in [BEHIND, Mode { cache: true, ..Mode::WRITE }, Mode::WRITE] {
        let (client, file) = open(mode, |_, _, _| false).await;
        for bytes in [10, 2 * MESSAGE] {
            assert_eq!(file.write_at(u64::MAX - 5, content(0, bytes)).await.unwrap_err().errno(), Errno::EFBIG);
            assert_eq!(file.write_behind(u64::MAX - 5, content(0, bytes)).await.unwrap_err().errno(), Errno::EFBIG);
        }
        file.flush().await.unwrap();
        assert!(!client.stats().messages.contains_key("Twrite"));
    }
}
