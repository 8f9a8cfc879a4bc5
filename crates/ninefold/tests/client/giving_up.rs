//! Calls that are given up, get no reply, or lose their connection; and what is left of them: nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use ninefold::client::{Client, Error, Follow, Loss, Mode, Options};
use ninefold::proto::attr::SetAttr;
use ninefold::proto::dialect::Version;
use ninefold::proto::message::Qids;
use ninefold::proto::wire::split_frame;
use ninefold::proto::{Dialect, Errno, R, T, Tag};
use ninefold::server::Server;
use ninefold::transport::{Peer, memory};
use ninefold::tree::hostfs::HostFs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::fake::{self, Handled, Replies};
use crate::support::{BUFFER, SOON, connect, link, over, ram, random, settled};

/// Something that a program might be at when it gives up.
async fn errand(client: &Client, seed: &mut u64) -> Result<(), Error> {
    let name = format!("f{}", random(seed) % 8).into_bytes();
    let root = client.root().await?;
    match random(seed) % 9 {
        0 => root.metadata_of(&name).await.map(drop),
        1 => root.read_dir().await?.all().await.map(drop),
        2 => root.unlink(&name, false).await,
        3 => root.rename(&name, &root, b"f0").await,
        4 => {
            let mut file = root.create(&name, Mode::WRITE, 0o644).await?;
            file.remove_on_drop();
            let mut writer = file.writer(0, None);
            writer.write(Bytes::from(vec![1; 300_000])).await?;
            writer.finish().await?;
            file.keep();
            file.close().await
        }
        5 => {
            let node = client.walk(&name, Follow::All).await?;
            let metadata = node.metadata().await?;
            let file = node.open(Mode::READ).await?;
            let mut reader = file.reader(0, Some(&metadata));
            while reader.next().await?.is_some() {}
            Ok(())
        }
        6 => {
            let mut listing = root.list().await?;
            while listing.next().await?.is_some() {}
            Ok(())
        }
        7 => root.set_xattr(b"user.x", &[7; 5000]).await,
        _ => root.walk(&[&name]).await?.set(&SetAttr { size: Some(1000), ..SetAttr::default() }).await,
    }
}

#[tokio::test(start_paused = true)]
async fn calls_dropped_at_any_instant_leave_neither_tag_nor_fid_behind() {
    for dialect in Dialect::ALL {
        let (ours, theirs) = link(Duration::from_millis(3));
        tokio::spawn(ram().serve(theirs, Peer::Stdio));
        let client = over(ours, dialect, Options::default()).await;
        let (mut seed, mut dropped) = (7, 0);
        for _ in 0..500 {
            // Up to ten round trips.
            let patience = Duration::from_micros(random(&mut seed) % 60_000);
            let mut own = random(&mut seed);
            dropped += u32::from(timeout(patience, errand(&client, &mut own)).await.is_err());
        }
        assert!((100..490).contains(&dropped), "{dropped}");
        settled(&client, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_calls_dropped_side_by_side_leave_nothing_behind_at_the_server_either() {
    let (ours, theirs) = link(Duration::from_millis(2));
    let mut late = 3;
    let fids = fake::serve_late(theirs, 100_000, move || Duration::from_millis(random(&mut late) % 25));
    let client = over(ours, Dialect::Linux, Options::default()).await;
    let errands = (0..500_u64).map(|n| {
        let client = client.clone();
        async move {
            let mut seed = n;
            tokio::time::sleep(Duration::from_millis(random(&mut seed) % 100)).await;
            let patience = Duration::from_millis(random(&mut seed) % 120);
            timeout(patience, errand(&client, &mut seed)).await.is_err()
        }
    });
    let dropped = join_all(errands).await.into_iter().filter(|dropped| *dropped).count();
    assert!((50..490).contains(&dropped), "{dropped}");
    settled(&client, 1).await;
    assert_eq!(fids.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn calls_on_a_directory_of_this_machine_dropped_at_any_instant_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::builder().export("", Arc::new(HostFs::open(dir.path()).unwrap()), false).build();
    let client = connect(&server, Dialect::Linux, Options::default()).await;
    let mut seed = 11;
    for _ in 0..500 {
        let patience = Duration::from_micros(random(&mut seed) % 1500);
        let mut own = random(&mut seed);
        let _ = timeout(patience, errand(&client, &mut own)).await;
    }
    settled(&client, 1).await;
}

/// A client of a fake with a timeout of three seconds.
async fn hasty(answer: impl FnMut(&Replies, Tag, &T<'_>) -> Handled + Send + 'static) -> Client {
    let (ours, theirs) = memory::pair(BUFFER);
    fake::serve(theirs, 10, answer);
    over(ours, Dialect::Linux, Options { timeout: Some(PATIENCE), ..Options::default() }).await
}

const PATIENCE: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn a_call_without_a_reply_times_out_and_the_connection_goes_on() {
    let client = hasty(|_, _, request| matches!(*request, T::Getattr { .. })).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    for _ in 0..3 {
        let began = Instant::now();
        let e = node.metadata().await.unwrap_err();
        assert!(matches!(e, Error::TimedOut(PATIENCE)), "{e}");
        assert_eq!((began.elapsed(), e.is_fatal()), (PATIENCE, false));
        assert_eq!(client.walk("/d", Follow::All).await.unwrap().qid(), fake::qid(b"d"));
    }
    settled(&client, 2).await;
    assert_eq!(client.stats().messages["Tflush"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_tflush_ends_the_connection() {
    let client = hasty(|_, _, request| matches!(*request, T::Getattr { .. } | T::Flush { .. })).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let e = node.metadata().await.unwrap_err();
    assert!(matches!(e, Error::TimedOut(_)), "{e}");
    // It answers everything else.
    let began = Instant::now();
    let lost = async {
        loop {
            match client.walk("/f", Follow::All).await {
                Ok(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                Err(e) => break e,
            }
        }
    };
    let e = timeout(SOON, lost).await.unwrap();
    assert!(matches!(e, Error::Lost(Loss::Unanswered)), "{e}");
    assert!(began.elapsed() <= Duration::from_secs(61), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_fails_every_call_at_once() {
    let (ours, mut theirs) = memory::pair(BUFFER);
    let (near, far) = memory::pair(BUFFER);
    let kill = Arc::new(tokio::sync::Notify::new());
    let killed = kill.clone();
    tokio::spawn(async move {
        let mut far = far;
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut theirs, &mut far) => {}
            () = killed.notified() => {}
        }
    });
    fake::serve(near, 10, |_, _, request| matches!(*request, T::Getattr { .. }));
    let client = over(ours, Dialect::Linux, Options::default()).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let calls = join_all((0..100).map(|_| node.metadata()));
    let began = Instant::now();
    let kill = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        kill.notify_one();
    };
    let (results, ()) = tokio::join!(calls, kill);
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    for result in results {
        let e = result.unwrap_err();
        assert!(matches!(e, Error::Lost(_)), "{e}");
    }
    let e = client.root().await.unwrap_err();
    assert!(matches!(e, Error::Lost(_)) && e.is_fatal(), "{e}");
    assert!(matches!(node.clunk().await, Err(Error::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn more_calls_than_a_connection_takes_wait_their_turn_even_when_others_give_up_waiting() {
    // Replies after 10 ms each, so 1,024 at a time.
    let (out, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, seen) = (out.clone(), most.clone());
    let (ours, theirs) = memory::pair(BUFFER);
    fake::serve(theirs, 10, move |replies, tag, request| {
        let reply = match *request {
            T::Getattr { .. } => fake::getattr_of(fake::qid(b"f"), 10),
            // Behind the reply to what it gives up.
            T::Flush { .. } => R::Flush {},
            _ => return false,
        };
        let calls = usize::from(reply != R::Flush {});
        seen.fetch_max(now.fetch_add(calls, Ordering::SeqCst) + calls, Ordering::SeqCst);
        let (replies, now) = (replies.clone(), now.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            now.fetch_sub(calls, Ordering::SeqCst);
            replies.send(tag, reply);
        });
        true
    });
    let client = over(ours, Dialect::Linux, Options::default()).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let order = Mutex::new(Vec::new());
    let began = Instant::now();
    let calls = (0..12_000_u32).map(|n| {
        let (node, order) = (&node, &order);
        async move {
            if n % 3 == 1 {
                // Some of these give up while they wait for room, some while they wait for their reply.
                return timeout(Duration::from_millis(u64::from(n) % 50), node.metadata()).await.ok();
            }
            let metadata = node.metadata().await;
            order.lock().unwrap().push(n);
            Some(metadata)
        }
    });
    let results = timeout(SOON, join_all(calls)).await.unwrap();
    let (mut given_up, mut done) = (0, 0);
    for (n, result) in results.into_iter().enumerate() {
        match result {
            Some(metadata) => {
                assert_eq!(metadata.unwrap().size, 10);
                done += 1;
            }
            None => {
                assert_eq!(n % 3, 1);
                given_up += 1;
            }
        }
    }
    assert!(given_up > 100 && done > 6000, "{given_up} {done}");
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    assert!((4096..=8192).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    // Room is given in the order of asking.
    assert!(order.lock().unwrap().is_sorted());
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_is_bound_by_the_timeout_too() {
    let client = hasty(|_, _, request| matches!(*request, T::Getattr { .. } | T::Flush { .. })).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let began = Instant::now();
    let results = join_all((0..8400).map(|_| node.metadata())).await;
    assert!(results.into_iter().all(|result| matches!(result, Err(Error::TimedOut(_)))));
    assert_eq!(began.elapsed(), PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_the_clunks_and_no_longer_than_it_is_told() {
    for (answers, patience, takes) in [(true, 10_000, 1_000), (false, 700, 700), (false, 10_000, 10_000)] {
        let (ours, theirs) = memory::pair(BUFFER);
        fake::serve(theirs, 10, move |replies, tag, request| {
            let T::Clunk { .. } = *request else { return false };
            let replies = replies.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if answers {
                    replies.send(tag, R::Clunk {});
                }
            });
            true
        });
        let client = over(ours, Dialect::Linux, Options::default()).await;
        drop(client.walk("/f", Follow::All).await.unwrap());
        let began = Instant::now();
        let closed = client.close(Duration::from_millis(patience)).await;
        assert_eq!(began.elapsed(), Duration::from_millis(takes));
        match closed {
            Ok(()) => assert!(answers),
            Err(e) => assert!(!answers && matches!(e, Error::TimedOut(_) | Error::Lost(Loss::Unanswered)), "{e}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_of_client_node_and_file_that_is_dropped_closes_the_stream() {
    let (ours, theirs) = memory::pair(BUFFER);
    let (mut near, far) = memory::pair(BUFFER);
    fake::serve(far, 10, |_, _, _| false);
    let closed = Arc::new(AtomicBool::new(false));
    let seen = closed.clone();
    tokio::spawn(async move {
        let mut theirs = theirs;
        let _ = tokio::io::copy_bidirectional(&mut theirs, &mut near).await;
        seen.store(true, Ordering::SeqCst);
    });
    let client = over(ours, Dialect::Linux, Options::default()).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let file = client.walk("/g", Follow::All).await.unwrap().open(Mode::READ).await.unwrap();
    drop(client);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(node.metadata().await.unwrap().size, 10);
    drop(node);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(file.metadata().await.unwrap().size, 10);
    assert!(!closed.load(Ordering::SeqCst));
    drop(file);
    let over = async {
        while !closed.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(1), over).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fid_is_clunked_after_the_request_that_was_on_the_way_when_its_node_was_dropped() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let client = hasty(move |replies, tag, request| {
        log.lock().unwrap().push(request.name());
        match *request {
            T::Getattr { .. } => true,
            // The flushed request is answered first, late.
            T::Flush { oldtag } => {
                let replies = replies.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    replies.send(oldtag, fake::getattr_of(fake::qid(b"f"), 10));
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    replies.send(tag, R::Flush {});
                });
                true
            }
            _ => false,
        }
    })
    .await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let call = async move { node.metadata().await };
    assert!(timeout(Duration::from_secs(1), call).await.is_err());
    settled(&client, 1).await;
    assert_eq!(seen.lock().unwrap()[1..], ["Twalk", "Tgetattr", "Tflush", "Tclunk"]);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_closed_or_removed_is_parted_with_after_what_was_given_up_on_it() {
    for (remove, parting) in [(false, "Tclunk"), (true, "Tremove")] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let client = hasty(move |replies, tag, request| {
            log.lock().unwrap().push(request.name());
            match *request {
                T::Read { .. } => true,
                T::Flush { .. } => {
                    let (replies, log) = (replies.clone(), log.clone());
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        log.lock().unwrap().push("Rflush");
                        replies.send(tag, R::Flush {});
                    });
                    true
                }
                _ => false,
            }
        })
        .await;
        let file = client.walk("/f", Follow::All).await.unwrap().open(Mode::READ).await.unwrap();
        seen.lock().unwrap().clear();
        assert!(timeout(Duration::from_secs(1), file.read_at(0, 10)).await.is_err());
        if remove {
            file.remove().await.unwrap()
        } else {
            file.close().await.unwrap()
        }
        assert_eq!(*seen.lock().unwrap(), ["Tread", "Tflush", "Rflush", parting]);
        settled(&client, 1).await;
        // Given up itself, it is done all the same.
        let file = client.walk("/f", Follow::All).await.unwrap().open(Mode::READ).await.unwrap();
        assert!(timeout(Duration::from_secs(1), file.read_at(0, 10)).await.is_err());
        let parted = async move { if remove { file.remove().await } else { file.close().await } };
        assert!(timeout(Duration::from_millis(100), parted).await.is_err());
        settled(&client, 1).await;
        assert_eq!(seen.lock().unwrap().last(), Some(&parting));
    }
}

#[test]
fn a_runtime_that_ends_tells_the_calls_that_wait_elsewhere() {
    let theirs = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = theirs.block_on(async {
        let (ours, far) = memory::pair(BUFFER);
        fake::serve(far, 10, |_, _, request| matches!(*request, T::Getattr { .. }));
        over(ours, Dialect::Linux, Options::default()).await
    });
    let ours = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    ours.block_on(async {
        let node = client.walk("/f", Follow::All).await.unwrap();
        let end = tokio::task::spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(50));
            theirs.shutdown_background();
        });
        let e = timeout(Duration::from_secs(30), node.metadata()).await.unwrap().unwrap_err();
        assert!(matches!(e, Error::Lost(Loss::ClosedHere)), "{e}");
        end.await.unwrap();
        assert!(matches!(client.root().await, Err(Error::Lost(_))));
    });
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_no_bytes_does_not_keep_calls_or_close_for_ever() {
    let (ours, mut theirs) = memory::pair(BUFFER);
    // It agrees, attaches and makes a file, and reads no more.
    let served = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        let replies = [
            R::Version { msize: 1 << 20, version: b"9P2000.L" },
            R::Attach { qid: fake::qid(b"") },
            R::Walk { wqids: Qids::default() },
            R::Lcreate { qid: fake::qid(b"f"), iounit: 0 },
        ];
        for reply in replies {
            let n = theirs.read(&mut buffer).await.unwrap();
            let (header, _) = split_frame(&buffer[..n]).unwrap();
            let mut frame = Vec::new();
            reply.encode(header.tag, Dialect::Linux, &mut frame);
            theirs.write_all(&frame).await.unwrap();
        }
        theirs
    });
    let options = Options { timeout: Some(PATIENCE), ..Options::default() };
    let client = over(ours, Dialect::Linux, options).await;
    let file = client.root().await.unwrap().create(b"f", Mode::WRITE, 0o644).await.unwrap();
    let _theirs = served.await.unwrap();
    let mut writer = file.writer(0, None);
    writer.write(Bytes::from(vec![1; 200_000])).await.unwrap();
    let began = Instant::now();
    let e = writer.finish().await.unwrap_err();
    assert!(matches!(e, Error::TimedOut(_)), "{e}");
    assert_eq!(began.elapsed(), PATIENCE);
    drop(writer);
    drop(file);
    let began = Instant::now();
    client.close(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_to_be_removed_on_drop_is_removed_even_when_its_last_write_is_given_up() {
    let server = ram();
    let client = connect(&server, Dialect::Linux, Options::default()).await;
    let mut file = client.root().await.unwrap().create(b"f", Mode::WRITE, 0o644).await.unwrap();
    file.remove_on_drop();
    let mut writer = file.writer(0, None);
    writer.write(Bytes::from(vec![1; 200_000])).await.unwrap();
    drop(writer);
    drop(file);
    settled(&client, 1).await;
    assert_eq!(client.walk("/f", Follow::All).await.unwrap_err().errno(), Errno::ENOENT);
    // Kept, it stays.
    let mut file = client.root().await.unwrap().create(b"f", Mode::WRITE, 0o644).await.unwrap();
    file.remove_on_drop();
    file.keep();
    drop(file);
    settled(&client, 1).await;
    client.walk("/f", Follow::All).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_leaves_waits_for_clunks_that_tell_nothing_only_by_a_dialect_whose_servers_may_not_survive_it_and_unless_held_back()
 {
    // By .L always, once it was sent: there is a server that does not survive the end of a connection before it answered.
    let cases = [
        (Version::N1, false, [false, false, true]),
        (Dialect::Linux.into(), false, [true, true, true]),
        (Dialect::Linux.into(), true, [false, false, true]),
        (Dialect::Unix.into(), true, [false, false, true]),
    ];
    let modes = [None, Some(Mode::READ), Some(Mode::WRITE)];
    let cases = cases.into_iter().flat_map(|(version, held, waits)| {
        modes.into_iter().zip(waits).map(move |(mode, waits)| (version, held, mode, waits))
    });
    for (version, clunks_held_back, mode, waits) in cases {
        let (ours, theirs) = memory::pair(BUFFER);
        // It answers no Tclunk.
        fake::serve(theirs, 7, |_, _, request| matches!(request, T::Clunk { .. }));
        let client = over(ours, version, Options { clunks_held_back, ..Options::default() }).await;
        let node = client.walk("f", Follow::All).await.unwrap();
        match mode {
            None => drop(node),
            Some(mode) => {
                let file = node.open(mode).await.unwrap();
                if mode == Mode::WRITE {
                    file.write_at(0, Bytes::from_static(b"a")).await.unwrap();
                }
            }
        }
        let began = Instant::now();
        let patience = Duration::from_secs(5);
        let left = client.leave(patience).await;
        let case = format!("{version}, held back: {clunks_held_back}, {mode:?}: {left:?} after {:?}", began.elapsed());
        assert_eq!(left.is_err(), waits, "{case}");
        assert_eq!(began.elapsed() >= patience, waits, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clunk_that_is_held_back_goes_with_the_next_request() {
    let server = ram();
    let client = connect(&server, Dialect::Linux, Options { clunks_held_back: true, ..Options::default() }).await;
    let clunks = || client.stats().messages.get("Tclunk").copied().unwrap_or_default();
    drop(client.root().await.unwrap());
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!((clunks(), client.held()), (0, (2, 0)));
    drop(client.root().await.unwrap());
    assert_eq!(clunks(), 1);
    settled(&client, 2).await;
}
