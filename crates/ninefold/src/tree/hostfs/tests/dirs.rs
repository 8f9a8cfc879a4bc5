//! Directories read part by part, and ahead.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ninefold_proto::stat::{dir_entries, stats};

use super::*;
use crate::server::Answer;

/// Names and cookies of one reply.
fn entries(reply: &Bytes) -> Vec<(String, u64)> {
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    dir_entries(reply).map(Result::unwrap).map(|entry| (name(entry.name), entry.offset)).collect()
}

/// The part behind `cookie`, in at most `max` bytes.
async fn part(host: &Host, dir: &Fid, cookie: u64, max: u32) -> Vec<(String, u64)> {
    entries(&dir.readdir(&host.cx, cookie, max).wait().await.unwrap())
}

async fn list(host: &Host, dir: &Fid, max: u32) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = Vec::new();
    loop {
        let part = part(host, dir, all.last().map_or(0, |entry| entry.1), max).await;
        if part.is_empty() {
            return all;
        }
        all.extend(part);
    }
}

async fn opened(host: &Host, root: &Fid, path: &str) -> Fid {
    let dir = host.at(root, path).await;
    host.open(&dir, 0).await.unwrap();
    dir
}

/// A host with the directory `d` of so many files.
fn with_files(count: usize) -> Host {
    let host = Host::new();
    host.mkdir("d");
    for i in 0..count {
        std::fs::File::create(host.path(format!("d/file-{i:05}"))).unwrap();
    }
    host
}

#[tokio::test]
async fn the_end_of_a_small_directory_is_known_with_its_entries() {
    let host = with_files(3);
    let root = host.root().await;
    let dir = opened(&host, &root, "d").await;
    let all = part(&host, &dir, 0, 4096).await;
    assert_eq!(all.len(), 5);
    let end = dir.readdir(&host.cx, all[4].1, 4096);
    assert!(matches!(&end, Answer::Now(Ok(bytes)) if bytes.is_empty()), "{end:?}");
    // The end is told once: who asks again there asks the directory.
    assert!(part(&host, &dir, all[4].1, 4096).await.is_empty());
}

#[tokio::test]
async fn from_the_start_a_directory_is_as_it_is_now_whatever_was_read_ahead() {
    let host = with_files(5000);
    let root = host.root().await;
    let dir = opened(&host, &root, "d").await;
    for round in 0..4 {
        let name = format!("new-{round}");
        // In the middle of a listing, and at its end.
        if round % 2 == 0 {
            part(&host, &dir, 0, 16 << 10).await;
        } else {
            list(&host, &dir, 16 << 10).await;
        }
        host.put(&format!("d/{name}"), b"");
        std::fs::remove_file(host.path(format!("d/file-{round:05}"))).unwrap();
        let names: BTreeSet<String> = list(&host, &dir, 16 << 10).await.into_iter().map(|entry| entry.0).collect();
        assert_eq!(names.len(), 5002);
        assert!(names.contains(&name));
        assert!(!names.contains(&format!("file-{round:05}")));
    }
}

#[tokio::test]
async fn what_comes_between_open_and_the_first_read_is_listed() {
    let host = with_files(3);
    let root = host.root().await;
    let dir = opened(&host, &root, "d").await;
    host.put("d/new", b"");
    assert!(list(&host, &dir, 4096).await.iter().any(|entry| entry.0 == "new"));
    let root = host.attach(Dialect::Plan9, User::of_process()).await;
    let dir = opened(&host, &root, "d").await;
    host.put("d/newer", b"");
    let records = dir.read_stats(&host.cx, 0, 8 << 10).wait().await.unwrap();
    assert!(stats(&records.bytes, Dialect::Plan9).any(|stat| stat.unwrap().name == b"newer"));
}

#[tokio::test]
async fn large_replies_are_ready_too_also_behind_small_ones() {
    let host = with_files(20_000);
    let root = host.root().await;
    // Linux's client at its msize of 128 KiB, ours at 1 MiB.
    for max in [131_048, 1_048_552] {
        let dir = opened(&host, &root, "d").await;
        let mut all = Vec::new();
        for small in [34, 60, 200, 3000] {
            let cookie = all.last().map_or(0, |entry: &(String, u64)| entry.1);
            let told = part(&host, &dir, cookie, small).await;
            assert!(!told.is_empty());
            all.extend(told);
        }
        loop {
            let begun = all.len();
            all.extend(part(&host, &dir, all.last().unwrap().1, max).await);
            if all.len() == begun {
                break;
            }
            // Once its thread has read ahead, and it always does before the end.
            let (began, next) = (Instant::now(), all.last().unwrap().1);
            let ready = loop {
                match dir.readdir(&host.cx, next, max) {
                    Answer::Now(reply) => break reply.unwrap(),
                    Answer::Later(_) => assert!(began.elapsed() < Duration::from_secs(20), "behind {}", all.len()),
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            };
            if ready.is_empty() {
                break;
            }
            all.extend(entries(&ready));
        }
        assert_eq!(all.len(), 20_002);
        assert_eq!(all.iter().map(|entry| &entry.0).collect::<BTreeSet<_>>().len(), 20_002);
    }
}

#[tokio::test]
async fn every_cookie_can_be_gone_back_to_in_any_order() {
    let host = with_files(5000);
    let root = host.root().await;
    let dir = opened(&host, &root, "d").await;
    let all = list(&host, &dir, 64 << 10).await;
    assert_eq!(all.len(), 5002);
    let mut at = 1;
    for max in [100, 4096, 64 << 10, 1 << 20].into_iter().cycle().take(60) {
        at = at * 31 % (all.len() - 1);
        let part = part(&host, &dir, all[at].1, max).await;
        assert!(!part.is_empty(), "{max} bytes behind entry {at}");
        assert_eq!(part, all[at + 1..][..part.len()], "{max} bytes behind entry {at}");
    }
    // An entry that is gone leaves its cookie where it was.
    std::fs::remove_file(host.path("d").join(&all[2000].0)).unwrap();
    assert_eq!(part(&host, &dir, all[2000].1, 100).await[0], all[2001]);
}

#[tokio::test]
async fn fids_of_one_directory_list_it_each_for_itself() {
    let host = with_files(3000);
    let root = host.root().await;
    let dirs = [(opened(&host, &root, "d").await, 500), (opened(&host, &root, "d").await, 8 << 10)];
    let mut seen = [Vec::<(String, u64)>::new(), Vec::new()];
    let mut ended = [false; 2];
    while ended != [true; 2] {
        for (((dir, max), seen), ended) in dirs.iter().zip(&mut seen).zip(&mut ended) {
            let part = part(&host, dir, seen.last().map_or(0, |entry| entry.1), *max).await;
            *ended = part.is_empty();
            seen.extend(part);
        }
    }
    assert_eq!(seen[0].len(), 3002);
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn requests_made_together_on_one_fid_are_answered_each_from_its_cookie() {
    let host = with_files(3000);
    let root = host.root().await;
    let dir = opened(&host, &root, "d").await;
    let all = list(&host, &dir, 64 << 10).await;
    for _ in 0..20 {
        let starts = [0, 700, 0, 2500, 1, all.len() - 1];
        let asked = starts.map(|at| {
            let cookie = at.checked_sub(1).map_or(0, |before| all[before].1);
            (at, dir.readdir(&host.cx, cookie, 3000))
        });
        let refused = dir.readdir(&host.cx, 1 << 63, 3000);
        let parts = futures_util::future::join_all(asked.map(|(at, answer)| async move { (at, answer.wait().await) }));
        let (parts, refused) = tokio::join!(parts, refused.wait());
        for (at, part) in parts {
            let part = entries(&part.unwrap());
            assert!(!part.is_empty());
            assert_eq!(part, all[at..][..part.len()], "from entry {at}");
        }
        assert_eq!(errno(refused), Errno::EINVAL);
    }
}

#[tokio::test]
async fn what_was_read_ahead_is_let_go_of_with_the_fid() {
    let host = with_files(5000);
    let root = host.root().await;
    let dir = opened(&host, &root, "d").await;
    part(&host, &dir, 0, 8 << 10).await;
    let began = Instant::now();
    while host.fs.export.ahead.held() == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "nothing is read ahead");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    dir.clunk(&host.cx).wait().await.unwrap();
    drop(dir);
    // The thread that reads ahead may be about to see it.
    let began = Instant::now();
    while host.fs.export.ahead.held() > 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "{} bytes are held", host.fs.export.ahead.held());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn without_memory_to_read_ahead_every_entry_is_still_told_once() {
    let host = with_files(3000);
    let taken = host.fs.export.ahead.take_all();
    every_entry_is_told_once(&host).await;
    // Nor to keep anything.
    let kept = host.fs.export.ahead.budget(host.cx.connection()).take_all();
    every_entry_is_told_once(&host).await;
    drop((taken, kept));
}

/// Of a directory of 3,000 files.
async fn every_entry_is_told_once(host: &Host) {
    for max in [200, 4096, 64 << 10] {
        let root = host.root().await;
        let dir = opened(host, &root, "d").await;
        let all = list(host, &dir, max).await;
        assert_eq!((all.len(), all.iter().map(|entry| &entry.0).collect::<BTreeSet<_>>().len()), (3002, 3002));
    }
    let root = host.attach(Dialect::Plan9, User::of_process()).await;
    let dir = opened(host, &root, "d").await;
    let (mut at, mut names) = (0, BTreeSet::new());
    loop {
        let records = dir.read_stats(&host.cx, at, 8 << 10).wait().await.unwrap();
        let Some(last) = records.ends.last() else { break };
        for stat in stats(&records.bytes, Dialect::Plan9) {
            assert!(names.insert(stat.unwrap().name.to_vec()));
        }
        at = last.cookie;
    }
    assert_eq!(names.len(), 3000);
}

#[tokio::test]
async fn a_file_is_no_directory_to_be_read() {
    let host = Host::new();
    host.put("f", b"");
    let root = host.root().await;
    let file = opened(&host, &root, "f").await;
    assert_eq!(errno(file.readdir(&host.cx, 0, 4096).wait().await), Errno::ENOTDIR);
}
