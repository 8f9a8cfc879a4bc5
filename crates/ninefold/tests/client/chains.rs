//! Requests issued now whose replies are taken later: one round trip where the server has groups, the same results where it
//! has none, and nothing left behind wherever they are given up.

use std::time::Duration;

use bytes::Bytes;
use ninefold::client::{Client, Error, Follow, Mode, Options, Suspicion};
use ninefold::proto::dialect::Version;
use ninefold::proto::{Dialect, Errno};
use ninefold::transport::{Peer, memory};
use tokio::time::{Instant, timeout};

use crate::support::{BUFFER, Gate, connect, link, over, ram, random, settled, tampered};

pub const IX: Version = Version { dialect: Dialect::Plan9, groups: true, streams: false };
pub const UNIX_IX: Version = Version { dialect: Dialect::Unix, groups: true, streams: false };

/// One way.
const DELAY: Duration = Duration::from_millis(75);
const ROUND_TRIP: Duration = Duration::from_millis(150);

pub fn versions() -> [Version; 6] {
    [Version::N1, IX, UNIX_IX, Dialect::Plan9.into(), Dialect::Unix.into(), Dialect::Linux.into()]
}

pub async fn write(client: &Client, dir: &[u8], name: &[u8], content: &'static [u8]) {
    let dir = client.walk(dir, Follow::All).await.unwrap();
    let file = dir.create(name, Mode::WRITE, 0o644).await.unwrap();
    assert_eq!(file.write_at(0, Bytes::from_static(content)).await.unwrap() as usize, content.len());
    file.close().await.unwrap();
}

/// A client of a tree in memory, with `d/f` and `d/g` in it, over a link with a delay.
async fn far(version: Version) -> Client {
    let server = ram();
    let near = connect(&server, Dialect::Linux, Options::default()).await;
    near.root().await.unwrap().mkdir(b"d", 0o777).await.unwrap();
    write(&near, b"d", b"f", b"content").await;
    write(&near, b"d", b"g", b"other").await;
    let (ours, theirs) = link(DELAY);
    tokio::spawn(server.serve(theirs, Peer::Stdio));
    over(ours, version, Options::default()).await
}

/// How many round trips something took, and what came of it.
async fn trips<T>(future: impl Future<Output = T>) -> (u32, T) {
    let began = Instant::now();
    let result = future.await;
    let took = began.elapsed();
    let trips = (took.as_secs_f64() / ROUND_TRIP.as_secs_f64()).round();
    assert!(took.abs_diff(ROUND_TRIP.mul_f64(trips)) < Duration::from_millis(20), "{took:?}");
    (trips as u32, result)
}

/// What can be compared of a result.
fn plain<T>(result: Result<T, Error>) -> Result<T, Errno> {
    result.map_err(|e| e.errno())
}

#[tokio::test(start_paused = true)]
async fn with_groups_an_operation_on_a_path_takes_one_round_trip() {
    for version in [Version::N1, IX, UNIX_IX] {
        let client = far(version).await;
        let (n, metadata) = trips(client.metadata("d/f", Follow::All)).await;
        assert_eq!((n, metadata.unwrap().size), (1, 7), "{version}");
        let (n, content) = trips(client.read("d/f", 100)).await;
        assert_eq!((n, &content.unwrap()[..]), (1, &b"content"[..]));
        // What is made is looked for first under .ix.
        let looks = if version.is_ix() { 2 } else { 1 };
        assert_eq!(trips(async { plain(client.mkdir("d/e", 0o755).await) }).await, (looks, Ok(())));
        assert_eq!(trips(async { plain(client.rename("d/f", b"h").await) }).await, (1, Ok(())));
        assert_eq!(trips(async { plain(client.remove("d/h").await) }).await, (1, Ok(())));
        assert_eq!(trips(async { plain(client.remove("d/e").await) }).await, (1, Ok(())));
        let root = client.root().await.unwrap();
        let (n, metadata) = trips(root.metadata_of(b"d")).await;
        assert!(n == 1 && metadata.is_ok());
        assert_eq!(trips(async { plain(root.mkdir(b"new", 0o755).await) }).await, (looks, Ok(())));
        assert_eq!(trips(async { plain(root.rename(b"new", &root, b"newer").await) }).await, (1, Ok(())));
        drop(root);
        settled(&client, 1).await;
        assert_eq!(names(&client, "/").await, ["d", "newer"]);
    }
}

async fn names(client: &Client, dir: &str) -> Vec<String> {
    let entries = client.walk(dir, Follow::All).await.unwrap().read_dir().await.unwrap().all().await.unwrap();
    let mut names: Vec<_> = entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect();
    names.sort();
    names
}

/// What a program of operations on paths brings, and what it leaves.
async fn program(client: &Client) -> Vec<String> {
    let mut said = Vec::new();
    for path in ["d/f", "d/none", "d/f/below", "none/f", "d", "/"] {
        let metadata = plain(client.metadata(path, Follow::All).await);
        said.push(format!("{path}: {:?}", metadata.map(|m| (m.kind, m.size.min(7)))));
    }
    for (path, most) in [("d/f", 7), ("d/f", 6), ("d/empty", 10), ("d/none", 1), ("d", 100), ("/", 100), ("d/f/g", 1)] {
        said.push(format!("read {path} {most}: {:?}", plain(client.read(path, most).await)));
    }
    for path in ["d/e", "d/e", "d/f", "none/e", "d/f/e", "/"] {
        said.push(format!("mkdir {path}: {:?}", plain(client.mkdir(path, 0o755).await)));
    }
    for (path, to) in [("d/f", "h"), ("d/none", "x"), ("d/h/i", "x"), ("/", "x"), ("d/e", "k")] {
        said.push(format!("rename {path}: {:?}", plain(client.rename(path, to.as_bytes()).await)));
    }
    for path in ["d/h", "d/h", "d/k", "d", "/", "none/x"] {
        said.push(format!("remove {path}: {:?}", plain(client.remove(path).await)));
    }
    said.push(format!("left: {:?}", names(client, "d").await));
    said
}

#[tokio::test(start_paused = true)]
async fn operations_on_paths_bring_the_same_with_groups_and_without() {
    let mut all = Vec::new();
    for version in versions() {
        let client = far(version).await;
        all.push((version, program(&client).await));
        settled(&client, 1).await;
    }
    for (version, said) in &all[1..] {
        for (said, first) in said.iter().zip(&all[0].1) {
            assert_eq!(said, first, "{version} against {}", all[0].0);
        }
    }
    // It does something.
    assert!(all[0].1.iter().filter(|line| line.contains("Ok(")).count() > 8, "{:?}", all[0].1);
}

#[tokio::test(start_paused = true)]
async fn a_chain_brings_the_same_whether_it_is_sent_at_once_or_one_by_one() {
    let mut all = Vec::new();
    for version in versions() {
        let client = far(version).await;
        let mut chain = client.chain();
        let (file, walked) = chain.walk_root(&[b"d", b"f"]).await.unwrap();
        let (nowhere, early) = chain.walk_root(&[b"d", b"none"]).await.unwrap();
        let on_nothing = chain.open(&nowhere, Mode::READ).await.unwrap();
        let opened = chain.open(&file, Mode::READ).await.unwrap();
        let again = chain.open(&file, Mode::READ).await.unwrap();
        let read = chain.read(&file, 3, 100).await.unwrap();
        let refused = chain.write(&file, 0, Bytes::from_static(b"x")).await.unwrap();
        let removed = chain.remove(nowhere).await.unwrap();
        let stat = chain.stat(&file).await.unwrap();
        let clunked = chain.clunk(file).await.unwrap();
        let results = async {
            (
                plain(walked.take().await).map(|qids| qids.len()),
                plain(early.take().await).map(|qids| qids.len()),
                plain(on_nothing.take().await).map(drop),
                plain(opened.take().await).map(|opened| opened.qid.is_dir()),
                again.take().await.is_err(),
                plain(read.take().await),
                refused.take().await.is_err(),
                plain(removed.take().await),
                plain(stat.take().await).map(|metadata| metadata.size),
                plain(clunked.take().await),
            )
        };
        let (n, results) = trips(results).await;
        // The open and the remove of nothing are not even sent one by one.
        assert_eq!(n, if version.groups { 1 } else { 8 }, "{version}");
        drop(chain);
        settled(&client, 1).await;
        assert_eq!(names(&client, "d").await, ["f", "g"]);
        all.push(results);
    }
    let none = Err(Errno::EBADF);
    let read = Bytes::from_static(b"tent");
    assert_eq!(all[0], (Ok(2), Ok(1), none, Ok(false), true, Ok(read), true, none, Ok(7), Ok(())));
    assert!(all.iter().all(|results| *results == all[0]), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn a_spot_becomes_a_file_like_any_other_when_the_walk_came_there() {
    for version in versions() {
        let client = far(version).await;
        let mut chain = client.chain();
        let (spot, walked) = chain.walk_root(&[b"d", b"f"]).await.unwrap();
        let (nowhere, early) = chain.walk_root(&[b"d", b"none"]).await.unwrap();
        let qids = walked.take().await.unwrap();
        let node = spot.into_node(qids[1]).unwrap();
        assert_eq!(early.take().await.unwrap().len(), 1);
        assert_eq!(nowhere.into_node(qids[1]).unwrap_err().errno(), Errno::EBADF);
        // A chain that is over goes on as another.
        let (dir, walked) = chain.walk_root(&[b"d"]).await.unwrap();
        let made = chain.create(&dir, b"new", Mode::WRITE, 0o644).await.unwrap();
        let written = chain.write(&dir, 0, Bytes::from_static(b"12345")).await.unwrap();
        walked.take().await.unwrap();
        let made = made.take().await.unwrap();
        assert_eq!(written.take().await.unwrap(), 5);
        let file = dir.into_file(made, Mode::WRITE).unwrap();
        assert_eq!((node.metadata().await.unwrap().size, file.metadata().await.unwrap().size), (7, 5));
        let there = chain.walk_root(&[b"d"]).await.unwrap().0;
        let again = chain.create(&there, b"new", Mode::WRITE, 0o644).await.unwrap();
        assert_eq!(plain(again.take().await), Err(Errno::EEXIST), "{version}: what was there is kept");
        assert_eq!(client.read("d/new", 9).await.unwrap(), "12345");
        node.clunk().await.unwrap();
        file.close().await.unwrap();
        drop((chain, there));
        settled(&client, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_given_up_at_any_instant_leaves_no_fid_no_tag_and_the_files_of_one_of_its_prefixes() {
    for version in versions() {
        let client = far(version).await;
        let mut seed = 5;
        let mut seen = [0; 3];
        for _ in 0..80 {
            let attempt = async {
                let mut chain = client.chain();
                let (dir, _walked) = chain.walk_root(&[b"d"]).await?;
                let _made = chain.create(&dir, b"t", Mode::WRITE, 0o644).await?;
                let _written = chain.write(&dir, 0, Bytes::from_static(b"x")).await?;
                let (gone, _walked) = chain.walk_root(&[b"d", b"g"]).await?;
                let removed = chain.remove(gone).await?;
                removed.take().await
            };
            let patience = Duration::from_micros(random(&mut seed) % 1_000_000);
            let _ = timeout(patience, attempt).await;
            settled(&client, 1).await;
            let left = names(&client, "d").await;
            let outcome = match &left.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["f", "g"] => 0,
                ["f", "g", "t"] => 1,
                ["f", "t"] => 2,
                other => panic!("{version}: {other:?} are of no prefix"),
            };
            seen[outcome] += 1;
            let dir = client.walk("d", Follow::All).await.unwrap();
            if outcome > 0 {
                assert!(client.metadata("d/t", Follow::All).await.unwrap().size <= 1);
                dir.unlink(b"t", false).await.unwrap();
            }
            if outcome == 2 {
                write(&client, b"d", b"g", b"other").await;
            }
            drop(dir);
            settled(&client, 1).await;
        }
        // A group is there before its Tflush, and this server is done at once.
        assert!((version.groups || seen[0] > 5) && seen[2] > 5, "{version}: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_promise_of_a_chain_that_was_given_up_is_told_so_and_one_that_was_kept_before_is_not() {
    for version in versions() {
        let client = far(version).await;
        let mut chain = client.chain();
        let (spot, walked) = chain.walk_root(&[b"d", b"f"]).await.unwrap();
        assert_eq!(walked.take().await.unwrap().len(), 2);
        let stat = chain.stat(&spot).await.unwrap();
        let clunked = chain.clunk(spot).await.unwrap();
        chain.abort();
        let (n, stat) = trips(stat.take()).await;
        assert_eq!((n, plain(stat.map(drop))), (0, Err(Errno::ECANCELED)), "{version}");
        assert_eq!(plain(clunked.take().await), Err(Errno::ECANCELED));
        settled(&client, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_another_connection_is_refused_by_a_chain() {
    for version in versions() {
        let (client, other) = (far(version).await, far(version).await);
        // On both connections the fid has the same number, and is another file's here.
        let theirs = other.walk("d/f", Follow::All).await.unwrap();
        let ours = client.walk("d", Follow::All).await.unwrap();
        let mut there = other.chain();
        let (spot, walked) = there.walk_root(&[b"d"]).await.unwrap();
        let (gone, _) = there.walk_root(&[b"d", b"f"]).await.unwrap();
        let (removed, _) = there.walk_root(&[b"d", b"g"]).await.unwrap();
        walked.take().await.unwrap();

        let mut chain = client.chain();
        let (here, _) = chain.walk_root(&[b"d", b"f"]).await.unwrap();
        let sent = || client.stats().messages.values().sum::<u64>();
        let before = sent();
        let refused = [
            plain(chain.walk(&theirs, &[]).await.map(drop)),
            plain(chain.stat(&spot).await.map(drop)),
            plain(chain.open(&spot, Mode::READ).await.map(drop)),
            plain(chain.create(&spot, b"n", Mode::WRITE, 0o644).await.map(drop)),
            plain(chain.mkdir(&spot, b"n", 0o755).await.map(drop)),
            plain(chain.read(&spot, 0, 1).await.map(drop)),
            plain(chain.write(&spot, 0, Bytes::from_static(b"x")).await.map(drop)),
            plain(chain.rename(&spot, &ours, b"n").await.map(drop)),
            plain(chain.rename(&here, &theirs, b"n").await.map(drop)),
            plain(chain.remove(removed).await.map(drop)),
            plain(chain.clunk(gone).await.map(drop)),
        ];
        assert_eq!(refused, [Err(Errno::EINVAL); 11], "{version}");
        assert_eq!(sent(), before);
        drop((chain, there, here, spot, ours, theirs));
        settled(&client, 1).await;
        settled(&other, 1).await;
        assert_eq!((names(&client, "d").await, names(&other, "d").await.len()), (vec!["f".into(), "g".into()], 2));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_chain_asks_after_it_took_a_reply_counts_as_caused_by_it() {
    for version in versions() {
        let client = far(version).await;
        assert_eq!(client.stats().dialect, version);
        let before = client.stats().round_trips;
        let mut chain = client.chain();
        let (n, ()) = trips(async {
            let (spot, walked) = chain.walk_root(&[b"d", b"f"]).await.unwrap();
            walked.take().await.unwrap();
            let (stat, opened) = (chain.stat(&spot).await.unwrap(), chain.open(&spot, Mode::READ).await.unwrap());
            stat.take().await.unwrap();
            opened.take().await.unwrap();
            chain.read(&spot, 0, 9).await.unwrap().take().await.unwrap();
        })
        .await;
        assert_eq!(n, if version.groups { 3 } else { 4 });
        assert_eq!(client.stats().round_trips - before, n, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_groups_a_reply_that_nobody_took_counts_as_a_cause_of_what_its_chain_asks_next() {
    for version in versions() {
        let client = far(version).await;
        let before = client.stats().round_trips;
        let mut chain = client.chain();
        let (spot, _walked) = chain.walk_root(&[b"d", b"f"]).await.unwrap();
        let _stat = chain.stat(&spot).await.unwrap();
        chain.send();
        answered(&client).await;
        chain.open(&spot, Mode::READ).await.unwrap().take().await.unwrap();
        // With groups all of it could have been sent at once.
        assert_eq!(client.stats().round_trips - before, if version.groups { 1 } else { 3 }, "{version}");
    }
}

/// Waits until no request is unanswered.
async fn answered(client: &Client) {
    while client.held().1 > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Ropen, Rcreate, Rlopen and Rlcreate say directory for a file, and the other way round.
fn of_another_type(frame: &mut [u8]) {
    if [113, 115, 13, 15].contains(&frame[4]) {
        // `size[4] type[1] tag[2] qid[13]`, and QTDIR.
        frame[7] ^= 0x80;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_opens_another_kind_of_file_than_it_walked_to_is_not_believed() {
    for version in versions() {
        let server = ram();
        let near = connect(&server, Dialect::Linux, Options::default()).await;
        near.root().await.unwrap().mkdir(b"d", 0o777).await.unwrap();
        write(&near, b"d", b"f", b"content").await;
        let client = over(tampered(&server, |_| {}, of_another_type), version, Options::default()).await;
        let is_suspect = |error: Error| matches!(error, Error::Suspect(Suspicion::Type));

        let mut chain = client.chain();
        let (file, walked) = chain.walk_root(&[b"d", b"f"]).await.unwrap();
        let (dir, _) = chain.walk_root(&[b"d"]).await.unwrap();
        let (root, _) = chain.walk_root(&[]).await.unwrap();
        let opened = chain.open(&file, Mode::READ).await.unwrap();
        let made = chain.create(&dir, b"new", Mode::WRITE, 0o644).await.unwrap();
        let of_root = chain.open(&root, Mode::READ).await.unwrap();
        // Whichever is taken later is the one that is not believed.
        opened.take().await.unwrap();
        assert!(is_suspect(walked.take().await.unwrap_err()), "{version}");
        assert!(is_suspect(made.take().await.unwrap_err()), "{version}");
        assert!(is_suspect(of_root.take().await.unwrap_err()), "{version}");
        assert!(is_suspect(client.read("d/f", 100).await.unwrap_err()), "{version}");
    }
}

/// Topen and Tstat name a fid that there is not.
fn refused_open_and_stat(frame: &mut [u8]) {
    if [112, 124].contains(&frame[4]) {
        // `size[4] type[1] tag[2] fid[4]`.
        frame[7..11].copy_from_slice(&77_777_u32.to_le_bytes());
    }
}

fn refused_stat(frame: &mut [u8]) {
    if frame[4] == 124 {
        refused_open_and_stat(frame);
    }
}

#[tokio::test(start_paused = true)]
async fn reading_by_path_needs_no_stat_and_tells_a_directory_whatever_its_open_says() {
    for version in [IX, UNIX_IX, Dialect::Plan9.into(), Dialect::Unix.into()] {
        let server = ram();
        let near = connect(&server, Dialect::Linux, Options::default()).await;
        near.root().await.unwrap().mkdir(b"d", 0o777).await.unwrap();
        write(&near, b"d", b"f", b"content").await;
        let client = over(tampered(&server, refused_stat, |_| {}), version, Options::default()).await;
        assert_eq!(client.read("d/f", 100).await.unwrap(), "content", "{version}");
        assert_eq!(plain(client.read("d/f", 6).await), Err(Errno::EFBIG), "{version}");
        let client = over(tampered(&server, refused_open_and_stat, |_| {}), version, Options::default()).await;
        for dir in ["d", "/"] {
            assert_eq!(plain(client.read(dir, 100).await), Err(Errno::EISDIR), "{version}: {dir}");
        }
        assert_eq!(plain(client.read("d/f", 100).await), Err(Errno::EBADF), "{version}");
        settled(&client, 1).await;
    }
}

/// Ropen, Rcreate, Rlopen and Rlcreate grant 1,000 bytes a message.
fn small_iounit(frame: &mut [u8]) {
    if [113, 115, 13, 15].contains(&frame[4]) {
        // `size[4] type[1] tag[2] qid[13] iounit[4]`.
        frame[20..24].copy_from_slice(&1000_u32.to_le_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_of_a_chain_keeps_what_its_open_said() {
    for version in versions() {
        let client = over(tampered(&ram(), |_| {}, small_iounit), version, Options::default()).await;
        let mut chain = client.chain();
        let (new, _) = chain.walk_root(&[]).await.unwrap();
        let made = chain.create(&new, b"f", Mode::WRITE, 0o644).await.unwrap().take().await.unwrap();
        let (old, _) = chain.walk_root(&[b"f"]).await.unwrap();
        let opened = chain.open(&old, Mode::READ).await.unwrap().take().await.unwrap();
        assert_eq!((made.iounit, made.made, opened.iounit, opened.made), (1000, true, 1000, false), "{version}");
        assert_eq!(new.into_file(made, Mode::WRITE).unwrap().write_max(), 1000);
        assert_eq!(old.into_file(opened, Mode::READ).unwrap().read_max(), 1000);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_create_may_not_have_made_is_not_removed_by_a_chain() {
    for version in versions() {
        let client = far(version).await;
        client.root().await.unwrap().mkdir(b"empty", 0o555).await.unwrap();
        let mut chain = client.chain();
        let (dir, _) = chain.walk_root(&[b"empty"]).await.unwrap();
        // What comes of it nobody looks at.
        let made = chain.create(&dir, b"n", Mode::WRITE, 0o644).await.unwrap();
        assert_eq!(plain(chain.remove(dir).await.map(drop)), Err(Errno::EINVAL), "{version}");
        drop(made);
        let (dir, _) = chain.walk_root(&[b"d"]).await.unwrap();
        let failed = chain.create(&dir, b"f", Mode::WRITE, 0o644).await.unwrap();
        assert_eq!(plain(failed.take().await), Err(Errno::EEXIST));
        let (gone, _) = chain.walk_root(&[b"d"]).await.unwrap();
        let made = chain.create(&gone, b"n", Mode::WRITE, 0o644).await.unwrap();
        made.take().await.unwrap();
        chain.remove(gone).await.unwrap().take().await.unwrap();
        drop((chain, dir));
        settled(&client, 1).await;
        // An empty directory is what a Tremove could have removed.
        assert_eq!((names(&client, "/").await, names(&client, "d").await.len()), (vec!["d".into(), "empty".into()], 2));
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_not_begun_to_leave_of_a_chain_that_is_given_up_is_not_sent() {
    for version in versions() {
        let client = far(version).await;
        let sent = client.stats();
        for walk_first in [false, true] {
            let mut chain = client.chain();
            let (spot, walked) = chain.walk_root(&[b"d", b"g"]).await.unwrap();
            if walk_first {
                walked.take().await.unwrap();
            }
            let stat = chain.stat(&spot).await.unwrap();
            let removed = chain.remove(spot).await.unwrap();
            // Nothing ran since: the connection's task has had no turn.
            chain.abort();
            assert_eq!(plain(stat.take().await.map(drop)), Err(Errno::ECANCELED));
            assert_eq!(plain(removed.take().await), Err(Errno::ECANCELED));
            settled(&client, 1).await;
            let now = client.stats();
            let count = |name| now.messages.get(name).unwrap_or(&0) - sent.messages.get(name).unwrap_or(&0);
            let walks = u64::from(walk_first);
            assert_eq!(["Twalk", "Tclunk"].map(count), [walks; 2], "{version}");
            assert_eq!(["Tstat", "Tgetattr", "Tremove", "Tflush"].map(count), [0; 4], "{version}");
        }
        // Nor when it is all that is unanswered.
        let mut chain = client.chain();
        let (spot, walked) = chain.walk_root(&[b"d", b"g"]).await.unwrap();
        walked.take().await.unwrap();
        let removed = chain.remove(spot).await.unwrap();
        chain.abort();
        assert_eq!(plain(removed.take().await), Err(Errno::ECANCELED));
        settled(&client, 1).await;
        assert_eq!(client.stats().messages.get("Tremove"), None, "{version}");
        assert_eq!(names(&client, "d").await, ["f", "g"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_reaches_every_promise_of_a_chain() {
    for version in versions() {
        let gate = Gate::default();
        let (ours, near) = memory::pair(BUFFER);
        let (far, theirs) = memory::pair(BUFFER);
        tokio::spawn(ram().serve(theirs, Peer::Stdio));
        let carried = tokio::spawn(gate.clone().carry(near, far));
        let client = over(ours, version, Options::default()).await;
        gate.shut();
        let mut chain = client.chain();
        let (spot, walked) = chain.walk_root(&[]).await.unwrap();
        let stat = chain.stat(&spot).await.unwrap();
        let opened = chain.open(&spot, Mode::READ).await.unwrap();
        let read = chain.read(&spot, 0, 100).await.unwrap();
        let clunked = chain.clunk(spot).await.unwrap();
        carried.abort();
        let why = [
            clunked.take().await.unwrap_err(),
            walked.take().await.unwrap_err(),
            stat.take().await.unwrap_err(),
            opened.take().await.unwrap_err(),
            read.take().await.unwrap_err(),
            chain.walk_root(&[]).await.unwrap_err(),
        ];
        assert!(why.iter().all(|error| matches!(error, Error::Lost(_))), "{version}: {why:?}");
    }
}
