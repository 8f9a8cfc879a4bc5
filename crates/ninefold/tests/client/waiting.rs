//! How long a call waits: for as long as something moves that it has to wait behind.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use ninefold::client::{Client, Error, Follow, Loss, Mode, Options};
use ninefold::proto::client::ServerMisbehaved;
use ninefold::proto::message::{Payload, Qids};
use ninefold::proto::wire::split_frame;
use ninefold::proto::{Dialect, R, T, Tag};
use ninefold::transport::{Stream, memory};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::fake::{self, content};
use crate::support::{BUFFER, SOON, over, settled};

const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes per second of a slow link: a message of 64 KiB takes longer than the patience.
const RATE: u64 = 10_000;

fn hasty() -> Options {
    Options { timeout: Some(PATIENCE), ..Options::default() }
}

/// Two ends of a connection that carries [`RATE`] bytes per second each way and holds little.
fn slow_link() -> (Stream, Stream) {
    let (ours, near) = memory::pair(1000);
    let (far, theirs) = memory::pair(1000);
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    tokio::spawn(trickle(near_read, far_write));
    tokio::spawn(trickle(far_read, near_write));
    (ours, theirs)
}

async fn trickle(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut buffer = [0; 1000];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(Duration::from_secs(n as u64) / RATE as u32).await;
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_behind_much_that_is_sent_waits_while_bytes_leave() {
    let (ours, theirs) = slow_link();
    fake::serve(theirs, 0, |_, _, _| false);
    let client = over(ours, Dialect::Linux, hasty()).await;
    let file = client.root().await.unwrap().create(b"f", Mode::WRITE, 0o644).await.unwrap();
    let other = client.walk("/g", Follow::All).await.unwrap();
    let began = Instant::now();
    let mut writer = file.writer(0, None);
    writer.write(content(0, 200_000)).await.unwrap();
    let (written, metadata) = tokio::join!(writer.finish(), other.metadata());
    assert_eq!(written.unwrap(), 200_000);
    metadata.unwrap();
    assert!(began.elapsed() > 5 * PATIENCE, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_call_behind_much_that_comes_waits_while_bytes_come() {
    let (ours, theirs) = slow_link();
    fake::serve(theirs, 1 << 20, |_, _, _| false);
    let client = over(ours, Dialect::Linux, hasty()).await;
    let file = client.walk("/f", Follow::All).await.unwrap().open(Mode::READ).await.unwrap();
    let began = Instant::now();
    let reads = join_all((0..3).map(|n| file.read_at(n * 100_000, 100_000)));
    let (reads, metadata) = tokio::join!(reads, file.metadata());
    for (n, read) in reads.into_iter().enumerate() {
        assert!(read.unwrap() == content(n as u64 * 100_000, 100_000));
    }
    metadata.unwrap();
    assert!(began.elapsed() > 9 * PATIENCE, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_drips_is_not_waited_for_unless_4096_bytes_come_within_the_timeout() {
    // Bytes a second, and whether that is enough.
    for (rate, enough) in [(1000, false), (1500, true)] {
        let (ours, near) = memory::pair(BUFFER);
        let (far, theirs) = memory::pair(BUFFER);
        fake::serve(theirs, 20_000, |_, _, _| false);
        let (near_read, mut near_write) = tokio::io::split(near);
        let (mut far_read, far_write) = tokio::io::split(far);
        tokio::spawn(trickle(near_read, far_write));
        tokio::spawn(async move {
            let mut buffer = [0; 100];
            while let Ok(n @ 1..) = far_read.read(&mut buffer).await {
                // Small replies come at once.
                if n == buffer.len() {
                    tokio::time::sleep(Duration::from_secs(n as u64) / rate).await;
                }
                if near_write.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
        });
        let client = over(ours, Dialect::Linux, hasty()).await;
        let file = client.walk("/f", Follow::All).await.unwrap().open(Mode::READ).await.unwrap();
        let read = file.read_at(0, 20_000).await;
        assert_eq!(read.is_ok(), enough, "{rate} bytes a second: {:?}", read.err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_kept_waiting_by_the_answers_to_later_ones() {
    let (ours, theirs) = memory::pair(BUFFER);
    let mut passed_over = false;
    fake::serve(theirs, 10, move |_, _, request| {
        let is_first = matches!(*request, T::Getattr { .. }) && !passed_over;
        passed_over |= is_first;
        is_first
    });
    let client = over(ours, Dialect::Linux, hasty()).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let began = Instant::now();
    let others = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            node.metadata().await.unwrap();
        }
    };
    let first = async {
        let e = node.metadata().await.unwrap_err();
        assert!(matches!(e, Error::TimedOut(PATIENCE)), "{e}");
        assert_eq!(began.elapsed(), PATIENCE);
    };
    tokio::select! {
        biased;
        () = first => {}
        () = others => {}
    }
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_passed_over_is_noticed_by_a_program_that_only_writes() {
    let (ours, theirs) = memory::pair(BUFFER);
    fake::serve(theirs, 0, |_, _, request| matches!(*request, T::Write { offset: 0, .. }));
    let client = over(ours, Dialect::Linux, hasty()).await;
    let file = client.root().await.unwrap().create(b"f", Mode::WRITE, 0o644).await.unwrap();
    let mut writer = file.writer(0, None);
    let began = Instant::now();
    let write = async {
        loop {
            if let Err(e) = writer.write(Bytes::from_static(b"line\n")).await {
                break e;
            }
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    };
    let e = timeout(SOON, write).await.unwrap();
    assert!(matches!(e, Error::TimedOut(PATIENCE)), "{e}");
    assert!((PATIENCE..PATIENCE + Duration::from_secs(1)).contains(&began.elapsed()), "{:?}", began.elapsed());
    drop(writer);
    settled(&client, 2).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_nothing_that_a_server_owes_ends_a_call_or_the_connection() {
    for limit in [None, Some(Duration::MAX)] {
        let (ours, theirs) = memory::pair(BUFFER);
        fake::serve(theirs, 10, |_, _, request| matches!(*request, T::Getattr { .. } | T::Flush { .. }));
        let client = over(ours, Dialect::Linux, Options { timeout: limit, ..Options::default() }).await;
        let node = client.walk("/f", Follow::All).await.unwrap();
        assert!(timeout(SOON, node.metadata()).await.is_err());
        tokio::time::sleep(SOON).await;
        client.walk("/g", Follow::All).await.unwrap();
        // The end is bounded all the same.
        drop(node);
        let began = Instant::now();
        let e = client.close(Duration::from_secs(1)).await.unwrap_err();
        assert!(matches!(e, Error::TimedOut(_) | Error::Lost(Loss::Unanswered)), "{e}");
        assert!(began.elapsed() <= Duration::from_secs(2));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_is_let_go_of_within_the_timeout_or_the_connection_ends() {
    let (ours, theirs) = memory::pair(BUFFER);
    fake::serve(theirs, 10, |_, _, request| matches!(*request, T::Getattr { .. } | T::Flush { .. }));
    let client = over(ours, Dialect::Linux, hasty()).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let began = Instant::now();
    assert!(matches!(node.metadata().await, Err(Error::TimedOut(_))));
    // Other answers do not put it off.
    while client.walk("/g", Follow::All).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!((2 * PATIENCE..2 * PATIENCE + Duration::from_secs(1)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(matches!(client.root().await, Err(Error::Lost(Loss::Unanswered))));
}

/// A client of a server that answers the messages of an attach and a create and then reads no more.
async fn deaf() -> (Client, Stream) {
    let (ours, mut theirs) = memory::pair(BUFFER);
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
    let client = over(ours, Dialect::Linux, hasty()).await;
    let file = client.root().await.unwrap().create(b"f", Mode::WRITE, 0o644).await.unwrap();
    let theirs = served.await.unwrap();
    // Tags 3 and 4: more than the connection holds, and what waits behind it.
    let blocked = tokio::spawn(async move {
        let (data, other) = (Bytes::from(vec![1; 200_000]), Bytes::from(vec![2; 10]));
        tokio::join!(file.write_at(0, data), file.write_at(0, other))
    });
    tokio::spawn(async move { drop(blocked.await) });
    (client, theirs)
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_what_was_not_sent_yet_is_the_servers_fault() {
    let (client, mut theirs) = deaf().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(client.held().1, 2);
    let mut frame = Vec::new();
    R::Write { count: 10 }.encode(Tag(4), Dialect::Linux, &mut frame);
    theirs.write_all(&frame).await.unwrap();
    let e = timeout(SOON, client.root()).await.unwrap().unwrap_err();
    assert!(matches!(e, Error::Misbehaved(ServerMisbehaved::UnknownTag(Tag(4)))), "{e}");
}

#[tokio::test(start_paused = true)]
async fn a_read_is_not_kept_waiting_by_the_ones_behind_it() {
    let (ours, theirs) = memory::pair(BUFFER);
    fake::serve(theirs, 10_000_000, |replies, tag, request| match *request {
        T::Read { offset: 0, .. } => true,
        T::Read { offset, count, .. } => {
            let replies = replies.clone();
            tokio::spawn(async move {
                // One each second.
                tokio::time::sleep(Duration::from_secs(offset / u64::from(count))).await;
                replies.send(tag, R::Read { data: Payload(&content(offset, count as usize)) });
            });
            true
        }
        _ => false,
    });
    let client = over(ours, Dialect::Linux, hasty()).await;
    let node = client.walk("/f", Follow::All).await.unwrap();
    let metadata = node.metadata().await.unwrap();
    let file = node.open(Mode::READ).await.unwrap();
    let began = Instant::now();
    let e = file.reader(0, Some(&metadata)).next().await.unwrap_err();
    assert!(matches!(e, Error::TimedOut(PATIENCE)), "{e}");
    assert_eq!(began.elapsed(), PATIENCE);
}
