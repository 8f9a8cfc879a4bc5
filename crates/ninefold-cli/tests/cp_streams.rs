//! Large files by streams: what goes beside the messages, and what a copy that ends too soon leaves.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ninefold::proto::dialect::Version;
use ninefold::proto::{Errno, R, Tag};

mod support;

use support::between::{between, pass};
use support::meddler::{TRENAMEAT, TWRITE, Way, kind, meddle, write_offset};
use support::share::Share;
use support::wire::{At, Cut, Wire};
use support::{ninefold, run, until};

const SIZE: usize = 6 << 20;

/// Bytes that are alike nowhere.
fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; size];
    rng.fill(&mut bytes);
    bytes
}

/// Runs a command with statistics, which must be done, and gives them.
fn stats(args: &[&str]) -> serde_json::Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let words = [args, &["--stats", file.path().to_str().unwrap()]].concat();
    let (code, _, said) = run(&words);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{args:?}");
    serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap()
}

fn count(stats: &serde_json::Value, message: &str) -> u64 {
    stats["messages"][message].as_u64().unwrap_or(0)
}

#[test]
fn large_files_go_beside_the_messages_and_with_no_stream_in_them() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let content = noise(SIZE, 1);
    share.make("f", &content);
    let from = format!("{}/f", share.place());
    let to = here.path().join("f");
    for option in [&[][..], &["--resume"], &["--checksum"], &["--no-stream"]] {
        let beside = option != ["--no-stream"];
        let down = stats(&[&["cp"], option, &[&from, to.to_str().unwrap()]].concat());
        assert!(fs::read(&to).unwrap() == content);
        assert_eq!(count(&down, "Tstream") > 0, beside, "{option:?}: {down}");
        assert!(!beside || count(&down, "Tread") <= 2, "{option:?}: {down}");
        let up = stats(&[&["cp"], option, &[to.to_str().unwrap(), &format!("{}/up", share.place())]].concat());
        assert!(share.read("up") == content);
        assert_eq!(count(&up, "Tstream") > 0, beside, "{option:?}: {up}");
        // With --resume the record of what is there.
        let most = if option == ["--resume"] { 4 } else { 0 };
        assert_eq!(count(&up, "Twrite") <= most, beside, "{option:?}: {up}");
        fs::remove_file(&to).unwrap();
        fs::remove_file(share.path("up")).unwrap();
    }
    assert_eq!(share.names("."), ["f"]);
}

#[test]
fn cat_and_write_go_by_streams_too() {
    let share = Share::new();
    let content = noise(SIZE, 2);
    let (from, to) = (share.make("f", &content), format!("{}/g", share.place()));
    for option in [None, Some("--no-stream")] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let count = |message| count(&serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap(), message);
        let words = |command: &'static str, url: &str| {
            let mut words = vec![command.to_owned(), url.to_owned(), "--stats".to_owned()];
            words.push(file.path().to_str().unwrap().to_owned());
            words.extend(option.map(str::to_owned));
            words
        };
        let write = words("write", &to);
        let mut command = ninefold(&write.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(command.stdin(fs::File::open(&from).unwrap()).status().unwrap().success());
        assert!(share.read("g") == content);
        assert_eq!(count("Tstream") > 0, option.is_none());
        let cat = words("cat", &to);
        let printed = ninefold(&cat.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
        assert!(printed.status.success() && printed.stdout == content);
        assert_eq!(count("Tstream") > 0, option.is_none());
    }
}

#[test]
fn what_one_server_has_at_both_ends_does_not_come_here() {
    let share = Share::new();
    let content = noise(SIZE, 3);
    share.make("f", &content);
    let (from, to) = (format!("{}/f", share.place()), format!("{}/g", share.place()));
    for option in [&[][..], &["--resume"]] {
        let stats = stats(&[&["cp"], option, &[&from, &to]].concat());
        assert!(share.read("g") == content);
        assert_eq!((count(&stats, "Tcopyrange"), count(&stats, "Tstream"), count(&stats, "Twrite")), (1, 0, 0));
        // The first MiB comes with the opening.
        assert!(stats["bytes_received"].as_u64().unwrap() < 2 << 20, "{stats}");
        fs::remove_file(share.path("g")).unwrap();
    }
    stats(&["cp", "--checksum", &from, &to]);
    assert!(share.read("g") == content);
}

/// The server behind a way on which every byte takes 20 ms; so many bytes at most come back by each connection but the first, and then
/// nothing.
fn far(server: SocketAddr, most: usize) -> SocketAddr {
    far_counted(server, most).0
}

/// The same, and how many connections it had.
fn far_counted(server: SocketAddr, most: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let leads = move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        server
    };
    let carry = move |number, way, from, to| {
        let is_limited = number > 0 && way == Way::ToClient;
        carry(from, to, if is_limited { most } else { usize::MAX });
    };
    (between(leads, carry), made)
}

fn carry(mut from: TcpStream, mut to: TcpStream, mut most: usize) {
    let mut buffer = vec![0; 256 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        std::thread::sleep(Duration::from_millis(20));
        let part = read.min(most);
        most -= part;
        if to.write_all(&buffer[..part]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[test]
fn the_one_stream_of_a_file_comes_with_its_open_and_tells_its_end_by_its_connection() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    // All of it, or its beginning, with the open.
    for (size, streams) in [(6 << 20, 1), (40 << 20, 2)] {
        let content = noise(size, 13);
        share.make("f", &content);
        let (from, to) = (format!("{}/f", share.place()), here.path().join("f"));
        let down = stats(&["cp", "--streams", "1", &from, to.to_str().unwrap()]);
        assert!(fs::read(&to).unwrap() == content);
        assert_eq!((count(&down, "Tstream"), count(&down, "Tstreamend")), (streams, 0), "{down}");
        // The file's name, before the open and behind it; of a long one when only copies are to come.
        assert_eq!(count(&down, "Tgetattr"), 2 + u64::from(streams > 1), "{down}");
        fs::remove_file(&to).unwrap();
    }
    // What is written where it stands goes in order, and is asked for when it is read.
    let file = tempfile::NamedTempFile::new().unwrap();
    let from = format!("{}/f", share.place());
    let (code, _, said) = run(&["cp", &from, "/dev/null", "--stats", file.path().to_str().unwrap()]);
    assert!(code == Some(0) && said.contains("in place"), "{said}");
    let down = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
    assert_eq!((count(&down, "Tstream"), count(&down, "Tguard")), (1, 1), "{down}");
}

/// A copy with statistics to what is written where it stands, which is told.
fn stats_in_place(from: &str, to: &str) -> serde_json::Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (code, _, said) = run(&["cp", from, to, "--stats", file.path().to_str().unwrap()]);
    assert!(code == Some(0) && said.contains("written in place") && said.lines().count() == 1, "{to}: {said}");
    serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap()
}

#[test]
fn what_is_written_where_it_stands_gets_all_of_a_file_in_order_by_one_stream() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let [fifo, link, one, two] = ["fifo", "link", "one", "two"].map(|name| here.path().join(name));
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    std::os::unix::fs::symlink("fifo", &link).unwrap();
    let far = format!("9p://{}", far(share.address(), usize::MAX));
    // One stream would come with the open, of all of it or its beginning, or several.
    for (place, size) in [(share.place(), 3 << 20), (share.place(), 20 << 20), (&far, 3 << 20)] {
        let content = noise(size, 14);
        share.make("f", &content);
        let from = format!("{place}/f");
        for to in [&fifo, &link] {
            let path = fifo.clone();
            let reader = std::thread::spawn(move || fs::read(path).unwrap());
            let down = stats_in_place(&from, to.to_str().unwrap());
            assert!(reader.join().unwrap() == content, "{to:?} from {place}");
            // Nothing was asked for but what it is read by.
            assert_eq!((count(&down, "Tstream"), count(&down, "Tguard")), (1, 1), "{to:?}: {down}");
        }
        let down = stats_in_place(&from, "/dev/null");
        assert_eq!((count(&down, "Tstream"), count(&down, "Tguard")), (1, 1), "{down}");
        let printed = ninefold(&["cp", &from, "/dev/stdout"]).stdin(Stdio::null()).output().unwrap();
        assert!(printed.status.success() && printed.stdout == content, "a pipe without a name, from {place}");
        // A file that others have by other names, which had less, or more.
        for length in [0, 30 << 20] {
            fs::write(&one, noise(length, 15)).unwrap();
            fs::hard_link(&one, &two).unwrap();
            stats_in_place(&from, one.to_str().unwrap());
            assert!(fs::read(&two).unwrap() == content, "from {place}");
            fs::remove_file(&two).unwrap();
            fs::remove_file(&one).unwrap();
        }
    }
    // They are what they were, and nothing is beside them.
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo() && fs::read_link(&link).unwrap() == *"fifo");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 2);
}

#[test]
fn what_one_stream_brought_of_a_copy_that_is_killed_is_a_beginning_and_has_no_record() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let to = here.path().join("f");
    // All of it came with its open, or its beginning.
    for size in [12 << 20, 40 << 20] {
        let content = noise(size, 16);
        share.make("f", &content);
        let wire = Wire::new(share.address(), Way::ToClient, Duration::ZERO);
        wire.at(At::Bytes(300_000), || Some(Cut::Silence));
        let from = format!("9p://{}/f", wire.address());
        let mut command = ninefold(&["cp", "--streams", "1", &from, to.to_str().unwrap()]);
        let mut copy = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let part = until("a temporary file", || {
            let part = fs::read_dir(here.path()).unwrap().next()?.unwrap();
            (part.metadata().unwrap().len() > 100_000).then(|| part.path())
        });
        copy.kill().unwrap();
        copy.wait().unwrap();
        let there = fs::read(&part).unwrap();
        assert!(there.len() < size && there == content[..there.len()], "{} bytes of {size}", there.len());
        wire.heal(share.address());
        let resumed = stats(&["cp", "--resume", &from, to.to_str().unwrap()]);
        assert!(fs::read(&to).unwrap() == content, "{resumed}");
        assert!(!part.exists() && wire.passed().0 < size as u64, "another one was begun");
        fs::remove_file(&to).unwrap();
    }
}

#[test]
fn a_lone_stream_that_is_cut_leaves_no_file() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    for size in [12 << 20, 40 << 20] {
        share.make("f", noise(size, 17));
        let event = Event::new(Way::ToClient, 1 << 20, 0, true, || {});
        let from = format!("9p://{}/f", event.before(share.address()));
        let (code, _, said) = run(&["cp", "--streams", "1", &from, here.path().join("f").to_str().unwrap()]);
        // Sockets may hold all of what was asked for first: then the server has sent it, as far as it knows.
        let is_told = ["the connection of its data is lost", "bytes that the server sent"]
            .iter()
            .any(|words| said.contains(words));
        assert!(code == Some(1) && is_told, "{said}");
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "{said}");
    }
}

#[test]
fn what_comes_out_of_order_where_there_is_no_record_gets_one() {
    const RSTREAM: u8 = 161;
    const TSTREAMEND: u8 = 162;
    // What comes with the open of a long file.
    const FIRST: usize = 15 << 18;
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let content = Arc::new(noise(40 << 20, 19));
    share.make("f", &*content);
    // It breaks when more was asked for behind it, as the server says that nobody took it for too long. So the rest of it comes by another
    // connection, and what was asked for by a third.
    let mut asked = None;
    let granted = Arc::new(AtomicUsize::new(0));
    let counted = granted.clone();
    let session = meddle(share.address(), move |way, frame| {
        counted.fetch_add(usize::from(kind(frame) == RSTREAM), Ordering::Relaxed);
        let tag = Tag(u16::from_le_bytes([frame[5], frame[6]]));
        if kind(frame) == TSTREAMEND && asked.is_none() {
            // `size[4] Tstreamend tag[2] id[4] flags[4]`: to end it is all that the server does at once.
            frame[11] = 1;
            asked = Some(tag);
        } else if way == Way::ToClient && asked == Some(tag) {
            frame.clear();
            R::Lerror { ecode: Errno::ETIMEDOUT.0, retry_ms: 0, text: b"" }.encode(tag, Version::N1, frame);
            asked = Some(Tag::NONE);
        }
        true
    });
    let (server, bytes, parts) = (share.address(), content.clone(), here.path().to_owned());
    let third = Arc::new(AtomicUsize::new(0));
    let is_there = third.clone();
    let leads = move |number| if number == 0 { session } else { server };
    let place = between(leads, move |number, way, mut far, mut near| {
        if (number, way) == (1, Way::ToClient) {
            let mut some = vec![0; 64 << 10];
            while granted.load(Ordering::Relaxed) < 2 {
                far.read_exact(&mut some).and_then(|()| near.write_all(&some)).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
            // Nothing comes any more, nor an end.
            return std::thread::sleep(2 * support::PATIENCE);
        }
        if number > 1 && way == Way::ToClient {
            let mut some = vec![0; 64 << 10];
            far.read_exact(&mut some).unwrap();
            if some == bytes[FIRST..FIRST + some.len()] {
                third.fetch_add(1, Ordering::Relaxed);
            } else {
                // Late: behind the place where the file ends is the record of its blocks by then.
                until("a record", || {
                    let part = fs::read_dir(&parts).unwrap().next()?.unwrap();
                    (part.metadata().unwrap().len() > bytes.len() as u64).then_some(())
                });
            }
            near.write_all(&some).unwrap();
        }
        pass(far, near);
    });
    let to = here.path().join("f");
    let (code, _, said) = run(&["cp", "--streams", "1", &format!("9p://{place}/f"), to.to_str().unwrap()]);
    assert_eq!((code, said.as_str(), is_there.load(Ordering::Relaxed)), (Some(0), "", 1));
    assert!(fs::read(&to).unwrap() == *content);
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1);
}

#[test]
fn a_lone_stream_behind_which_no_other_is_granted_is_gone_on_with_in_messages() {
    const TSTREAM: u8 = 160;
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let content = noise(40 << 20, 20);
    share.make("f", &content);
    let to = here.path().join("f");
    let mut asked = 0;
    let session = meddle(share.address(), move |_, frame| {
        if kind(frame) == TSTREAM {
            asked += 1;
            if asked > 1 {
                // Neither from the file nor to it: `size[4] Tstream tag[2] fid[4] flags[4] isread[1]`.
                frame[15] = 7;
            }
        }
        true
    });
    // By the same address the data come slowly: what is asked for in messages is there before.
    let server = share.address();
    let leads = move |number| if number == 0 { session } else { server };
    let place = between(leads, |number, way, mut far, mut near| {
        let mut some = vec![0; 64 << 10];
        while let Ok(count @ 1..) = far.read(&mut some) {
            if number > 0 && way == Way::ToClient {
                std::thread::sleep(Duration::from_millis(5));
            }
            if near.write_all(&some[..count]).is_err() {
                return;
            }
        }
        let _ = near.shutdown(Shutdown::Write);
    });
    let from = format!("9p://{place}/f");
    let is_over = AtomicBool::new(false);
    let ((code, _, said), had_record) = std::thread::scope(|scope| {
        // Out of order: behind the place where the file ends is the record of its blocks.
        let watch = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mut parts = fs::read_dir(here.path()).unwrap().flatten();
                if parts.any(|part| part.metadata().is_ok_and(|part| part.len() > content.len() as u64)) {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        });
        let ran = run(&["cp", "--streams", "1", &from, to.to_str().unwrap()]);
        is_over.store(true, Ordering::Relaxed);
        (ran, watch.join().unwrap())
    });
    assert_eq!((code, said.as_str(), had_record), (Some(0), "", true));
    assert!(fs::read(&to).unwrap() == content);
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1);
}

#[test]
fn what_a_lone_stream_brings_of_a_file_that_changes_meanwhile_is_copied_as_it_was_or_as_it_is() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let to = here.path().join("f");
    for size in [12 << 20, 40 << 20] {
        for is_cut in [false, true] {
            let file = share.make("f", noise(size, 18));
            let (before, changed) = (fs::read(&file).unwrap(), file.clone());
            let event = Event::new(Way::ToClient, 1 << 20, 0, false, move || match is_cut {
                false => change(&changed),
                true => fs::File::options().write(true).open(&changed).unwrap().set_len(2 << 20).unwrap(),
            });
            let from = format!("9p://{}/f", event.before(share.address()));
            let (code, _, said) = run(&["cp", "--streams", "1", &from, to.to_str().unwrap()]);
            // All of it may have been on its way when it was cut: then the look at it tells that, and else its stream.
            let is_told = said.contains("changed") && said.contains("it is not copied");
            assert!(code == Some(0) || is_cut && is_told, "{said}");
            match fs::read(&to) {
                Ok(copied) => assert!(code == Some(0) && (copied == before || copied == fs::read(&file).unwrap())),
                Err(_) => assert!(code == Some(1) && fs::read_dir(here.path()).unwrap().count() == 0, "{said}"),
            }
            let _ = fs::remove_file(&to);
        }
    }
}

#[test]
fn a_copy_by_several_streams_that_is_killed_is_not_taken_for_a_beginning() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let content = noise(16 << 20, 4);
    share.make("f", &content);
    let to = here.path().join("f");
    // So little of each range comes that there are gaps.
    let stuck = format!("9p://{}/f", far(share.address(), 300_000));
    let mut command = ninefold(&["cp", &stuck, to.to_str().unwrap()]);
    let mut copy = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let part = until("a temporary file", || {
        let part = fs::read_dir(here.path()).unwrap().next()?.unwrap();
        (part.metadata().unwrap().len() > 1 << 20).then(|| part.path())
    });
    copy.kill().unwrap();
    copy.wait().unwrap();
    // Behind the place where the file ends is the record of its blocks.
    assert!(fs::metadata(&part).unwrap().len() > content.len() as u64);
    assert!(!to.exists());
    // The same source by the same address, which lets all through now, is begun anew.
    let (code, _, said) = run(&["cp", "--resume", &format!("{}/f", share.place()), to.to_str().unwrap()]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(fs::read(&to).unwrap() == content);
}

#[test]
fn several_streams_bring_a_file_whole_over_a_distance_and_take_it_there() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let content = noise(16 << 20, 5);
    share.make("f", &content);
    let place = format!("9p://{}", far(share.address(), usize::MAX));
    let to = here.path().join("f");
    let down = stats(&["cp", &format!("{place}/f"), to.to_str().unwrap()]);
    assert!(fs::read(&to).unwrap() == content);
    assert!(count(&down, "Tstream") >= 4, "{down}");
    let up = stats(&["cp", to.to_str().unwrap(), &format!("{place}/g")]);
    assert!(share.read("g") == content);
    assert!(count(&up, "Tstream") >= 4, "{up}");
    // The version; who has the name; a part and its streams; how they ended; the part's name.
    assert!(up["round_trips"].as_u64().unwrap() <= 5, "{up}");
    let one = stats(&["cp", "--streams", "1", &format!("{place}/f"), to.to_str().unwrap()]);
    assert_eq!(count(&one, "Tstream"), 1, "{one}");
    assert_eq!(share.names("."), ["f", "g"]);
}

#[test]
fn a_large_new_file_goes_up_by_a_connection_for_each_of_its_streams_and_no_other() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let content = noise(16 << 20, 12);
    let from = here.path().join("from");
    fs::write(&from, &content).unwrap();
    let cache = here.path().join("cache");
    let (address, made) = far_counted(share.address(), usize::MAX);
    // The first learns of the server; at the second, as it is thought to be far, connections are dialled with the session's own.
    for (turn, connections) in [(1, 9), (2, 9)] {
        let before = made.load(Ordering::Relaxed);
        let mut command = ninefold(&["cp", from.to_str().unwrap(), &format!("9p://{address}/to{turn}")]);
        let copied = command.env("XDG_CACHE_HOME", &cache).stdin(Stdio::null()).output().unwrap();
        assert!(copied.status.success() && copied.stderr.is_empty(), "{}", String::from_utf8_lossy(&copied.stderr));
        assert!(share.read(&format!("to{turn}")) == content);
        assert_eq!(made.load(Ordering::Relaxed) - before, connections, "of copy {turn}");
        let servers = cache.join("ninefold/servers");
        let mut known: serde_json::Value = serde_json::from_slice(&fs::read(&servers).unwrap()).unwrap();
        known["servers"][0]["trip"] = 1000.into();
        fs::write(&servers, known.to_string()).unwrap();
    }
    // None is dialled for what is not large, nor for a copy that goes by one stream, and is read back by another.
    let small = here.path().join("small");
    fs::write(&small, &content[..100_000]).unwrap();
    for (from, option, connections) in [(&small, "--verbose", 1), (&from, "--checksum", 3)] {
        let before = made.load(Ordering::Relaxed);
        let to = format!("9p://{address}/to{option}");
        let mut command = ninefold(&["cp", option, from.to_str().unwrap(), &to]);
        let copied = command.env("XDG_CACHE_HOME", &cache).stdin(Stdio::null()).output().unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        assert_eq!(made.load(Ordering::Relaxed) - before, connections, "{option}");
    }
}

/// The server behind a way on which replies take 20 ms, and on which `then` is done before the first request of one kind passes, when the server has
/// answered all that came before it: that nothing has the name, if that is asked in the same group.
fn far_until(server: SocketAddr, request: u8, then: impl FnOnce() + Send + 'static) -> SocketAddr {
    let mut then = Some(then);
    let answered = Arc::new(AtomicUsize::new(0));
    let counted = answered.clone();
    let near = meddle(server, move |way, _| {
        counted.fetch_add(usize::from(way == Way::ToClient), Ordering::SeqCst);
        true
    });
    let mut asked = 0;
    let session = meddle(near, move |way, frame| {
        match way {
            Way::ToClient => std::thread::sleep(Duration::from_millis(20)),
            Way::ToServer if kind(frame) == request && then.is_some() => {
                until("answers to all before it", || (answered.load(Ordering::SeqCst) >= asked).then_some(()));
                then.take().unwrap()();
            }
            Way::ToServer => asked += 1,
        }
        true
    });
    with_session_by(session, server)
}

/// The server, to which the first connection goes by another address.
fn with_session_by(session: SocketAddr, server: SocketAddr) -> SocketAddr {
    between(move |number| if number == 0 { session } else { server }, |_, _, from, to| pass(from, to))
}

#[test]
fn what_gets_the_name_of_a_large_new_file_meanwhile_is_replaced_whole_or_stays() {
    const TLCREATE: u8 = 14;
    let content = noise(16 << 20, 13);
    // Before its part is made, and before that gets the name.
    for request in [TLCREATE, TRENAMEAT] {
        for what in ["a directory", "a file", "a file with two names"] {
            let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
            let from = here.path().join("from");
            fs::write(&from, &content).unwrap();
            let (name, other) = (share.path("name"), share.path("other"));
            let place = far_until(share.address(), request, move || match what {
                "a directory" => {
                    fs::create_dir(&name).unwrap();
                    fs::write(name.join("within"), "old").unwrap();
                }
                _ => {
                    fs::write(&name, "old").unwrap();
                    if what == "a file with two names" {
                        fs::hard_link(&name, &other).unwrap();
                    }
                }
            });
            let file = tempfile::NamedTempFile::new().unwrap();
            let to = format!("9p://{place}/name");
            let (code, _, said) = run(&["cp", from.to_str().unwrap(), &to, "--stats", file.path().to_str().unwrap()]);
            let stats: serde_json::Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
            assert!(count(&stats, "Tstream") > 1, "{stats}");
            if what == "a directory" {
                assert_eq!(code, Some(1), "{said}");
                assert!(said.contains(&to), "{said}");
                assert_eq!((share.read("name/within"), share.names(".")), (b"old".to_vec(), vec!["name".to_owned()]));
                continue;
            }
            assert_eq!((code, said.as_str()), (Some(0), ""));
            assert!(share.read("name") == content);
            match what {
                "a file" => assert_eq!(share.names("."), ["name"]),
                _ => {
                    assert_eq!(share.names("."), ["name", "other"]);
                    // It was another file's name by then, as with rename(2).
                    assert_eq!(share.read("other"), b"old");
                }
            }
        }
    }
}

#[test]
fn what_nobody_knows_of_the_end_of_a_large_file_leaves_none_that_looks_whole_and_is_not() {
    const TSTREAMEND: u8 = 162;
    let content = noise(4 << 20, 16);
    // The last requests never come to the server, or nothing that it says to them, or to the first of them, comes back.
    for (lost, way) in [(TSTREAMEND, Way::ToServer), (TRENAMEAT, Way::ToServer), (TRENAMEAT, Way::ToClient)] {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let from = here.path().join("from");
        fs::write(&from, &content).unwrap();
        let mut is_lost = false;
        let session = meddle(share.address(), move |to, frame| {
            is_lost |= to == Way::ToServer && kind(frame) == lost;
            !is_lost || to != way
        });
        let to = format!("9p://{}/name", with_session_by(session, share.address()));
        let (code, _, said) = run(&["--timeout", "1", "cp", from.to_str().unwrap(), &to]);
        assert_eq!(code, Some(1), "{lost} {way:?}: {said}");
        assert!(said.contains("no reply"), "{said}");
        let is_there = share.path("name").exists();
        assert_eq!(is_there, way == Way::ToClient, "{said}");
        assert!(!is_there || share.read("name") == content);
        // What may be left is told.
        let left = share.names(".").into_iter().filter(|name| name != "name").collect::<Vec<_>>();
        assert!(left.iter().all(|name| said.contains(name.as_str())), "{left:?}: {said}");
    }
}

#[test]
fn over_a_distance_too_a_file_that_is_there_keeps_its_mode_its_owner_and_its_names() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let content = noise(16 << 20, 14);
    for names in [1, 2] {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let from = here.path().join("from");
        fs::write(&from, &content).unwrap();
        let name = share.make("name", noise(5 << 20, 15));
        fs::set_permissions(&name, fs::Permissions::from_mode(0o640)).unwrap();
        // Who may not give it away has it himself.
        let owner = if rustix::process::geteuid().is_root() {
            (12, 34)
        } else {
            (fs::metadata(&name).unwrap().uid(), fs::metadata(&name).unwrap().gid())
        };
        chown(&name, Some(owner.0), Some(owner.1)).unwrap();
        if names == 2 {
            fs::hard_link(&name, share.path("other")).unwrap();
        }
        let place = format!("9p://{}", far(share.address(), usize::MAX));
        let (code, _, said) = run(&["cp", from.to_str().unwrap(), &format!("{place}/name")]);
        // That one with several names is written in place is said.
        assert_eq!((code, said.is_empty()), (Some(0), names == 1), "{said}");
        let is = fs::metadata(&name).unwrap();
        assert_eq!((is.mode() & 0o7777, is.uid(), is.gid(), is.nlink()), (0o640, owner.0, owner.1, names));
        assert!(share.read("name") == content);
        assert!(names == 1 || share.read("other") == content);
        assert_eq!(share.names(".").len() as u64, names);
    }
}

/// How the record of a part's blocks begins, behind the place where the file ends.
const RECORD: &[u8] = b"ninefold blocks\n";

#[test]
fn what_several_streams_brought_is_gone_on_with_by_several() {
    const BLOCK: usize = 1 << 20;
    let content = noise((64 << 20) + 77, 11);
    for up in [false, true] {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let (near, far) = (here.path().join("f"), share.path("f"));
        let (from, to) = if up { (&near, &far) } else { (&far, &near) };
        fs::write(from, &content).unwrap();
        let way = if up { Way::ToServer } else { Way::ToClient };
        let idle = share.server.sockets();
        let wire = Wire::new(share.address(), way, Duration::from_millis(40));
        // To the server a third stretch begins when the first one is in the record: both lanes are far behind that.
        wire.at(At::Bytes(56 << 20), || Some(Cut::Reset));
        let (near, far) = (near.to_str().unwrap().to_owned(), format!("9p://{}/f", wire.address()));
        let words = if up { ["cp", "--resume", &near, &far] } else { ["cp", "--resume", &far, &near] };
        let (code, _, said) = run(&[&words[..], &["--streams", "2"]].concat());
        assert_eq!(code, Some(1), "{said}");
        let entries = fs::read_dir(to.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let [part] = &entries.collect::<Vec<_>>()[..] else { panic!("not one part: {said}") };
        let left = fs::read(part).unwrap();
        let record = left[content.len()..].strip_prefix(RECORD).unwrap();
        let there: Vec<usize> = (0..65).filter(|block| record[8 * block..][..8] != [0; 8]).collect();
        assert!(!there.is_empty() && there.len() < 65, "{there:?}");
        for &block in &there {
            let end = content.len().min((block + 1) * BLOCK);
            assert!(left[block * BLOCK..end] == content[block * BLOCK..end], "block {block}");
        }
        if !up {
            // What a disk lost is noticed.
            fs::File::options()
                .write(true)
                .open(part)
                .unwrap()
                .write_all_at(b"lost", (there[0] * BLOCK) as u64)
                .unwrap();
        }
        wire.heal(share.address());
        share.server.quiet(idle);
        let resumed = stats(&words);
        assert!(fs::read(to).unwrap() == content);
        assert!(count(&resumed, "Tstream") > 1, "{resumed}");
        assert!(wire.passed().0 < content.len() as u64, "all of it was copied again");
        assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1);
    }
}

/// What a way does once, when so many bytes have gone one way by connections beside the session's.
struct Event {
    way: Way,
    after: usize,
    /// The connection of the last of them is cut then.
    cuts: bool,
    then: Box<dyn Fn() + Send + Sync>,
    /// Over the session's connection what comes back takes so long.
    delay: Duration,
    gone: AtomicUsize,
}

impl Event {
    fn new(way: Way, after: usize, delay: u64, cuts: bool, then: impl Fn() + Send + Sync + 'static) -> Event {
        let (delay, then) = (Duration::from_millis(delay), Box::new(then));
        Event { way, after, cuts, then, delay, gone: AtomicUsize::new(0) }
    }

    /// The server behind such a way.
    fn before(self, server: SocketAddr) -> SocketAddr {
        let event = Arc::new(self);
        between(move |_| server, move |number, way, from, to| event.carry(number > 0, way, from, to))
    }

    fn carry(&self, is_beside: bool, way: Way, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if !is_beside && way == Way::ToClient {
                std::thread::sleep(self.delay);
            }
            if is_beside && way == self.way {
                let before = self.gone.fetch_add(read, Ordering::Relaxed);
                if (before..before + read).contains(&self.after) {
                    (self.then)();
                    if self.cuts {
                        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                        return;
                    }
                }
            }
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}

/// Changes a file so that neither its size nor its time tells.
fn change(path: &std::path::Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"changed", 3 << 20).unwrap();
    file.set_modified(modified).unwrap();
}

#[test]
fn a_file_that_changes_while_streams_bring_it_is_copied_as_it_is_then() {
    // So that no range of it lies in sockets whole.
    const LARGE: u64 = 256 << 20;
    for (delay, option) in [(0, &[][..]), (0, &["--resume"]), (40, &[])] {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let file = share.make("f", "");
        fs::File::options().write(true).open(&file).unwrap().set_len(LARGE).unwrap();
        let source = file.clone();
        let event = Event::new(Way::ToClient, 1 << 20, delay, false, move || change(&file));
        let place = event.before(share.address());
        let to = here.path().join("to");
        let from = format!("9p://{place}/f");
        let (code, _, said) = run(&[&["cp"], option, &[&from, to.to_str().unwrap()]].concat());
        assert_eq!((code, said.as_str()), (Some(0), ""));
        assert!(fs::read(&to).unwrap() == fs::read(&source).unwrap());
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1);
    }
}

#[test]
fn cat_goes_on_where_its_stream_is_cut_if_the_file_is_the_same() {
    for changes in [false, true] {
        let share = Share::new();
        let content = noise(64 << 20, 6);
        let file = share.make("f", &content);
        let event = Event::new(Way::ToClient, 1 << 20, 0, true, move || {
            if changes {
                change(&file)
            }
        });
        let place = event.before(share.address());
        let printed = ninefold(&["cat", &format!("9p://{place}/f")]).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(printed.stderr).unwrap();
        assert_eq!((printed.status.success(), said.is_empty()), (!changes, !changes), "{said}");
        assert!(changes || printed.stdout == content);
        assert!(!changes || said.contains("the connection of its data is lost"), "{said}");
    }
}

#[test]
fn where_data_go_in_messages_what_resume_relies_on_has_no_gaps() {
    const TSTREAM: u8 = 160;
    const SPAN: u64 = 32 << 20;
    // Because nobody asks for a stream, or because it is refused.
    for option in [Some("--no-stream"), None] {
        has_no_gaps(option, TSTREAM, SPAN);
    }
}

fn has_no_gaps(option: Option<&str>, tstream: u8, span: u64) {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let content = noise(96 << 20, 7);
    let from = here.path().join("from");
    fs::write(&from, &content).unwrap();
    let furthest = Arc::new(AtomicU64::new(0));
    let seen = furthest.clone();
    let relay = meddle(share.address(), move |_, frame| {
        if kind(frame) == tstream {
            // Neither from the file nor to it: `size[4] Tstream tag[2] fid[4] flags[4] isread[1]`.
            frame[15] = 7;
        }
        if kind(frame) == TWRITE {
            // Less what is before the data.
            seen.fetch_max(write_offset(frame) + frame.len() as u64 - 23, Ordering::Relaxed);
        }
        // The first bytes never get there.
        kind(frame) != TWRITE || write_offset(frame) > 0
    });
    let to = format!("9p://{relay}/f");
    let mut words = vec!["--timeout", "1", "cp", "--resume", from.to_str().unwrap(), &to];
    words.extend(option);
    let (code, _, said) = run(&words);
    assert_eq!(code, Some(1), "{said}");
    if option.is_some() {
        assert!((1..=span).contains(&furthest.load(Ordering::Relaxed)), "{furthest:?}");
    }
    let (code, _, said) = run(&["cp", "--resume", from.to_str().unwrap(), &format!("{}/f", share.place())]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(share.read("f") == content);
    assert_eq!(share.names("."), ["f"]);
}

#[test]
fn where_nobody_tells_how_a_stream_ended_a_file_is_written_by_one() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let content = noise(16 << 20, 8);
    let from = here.path().join("from");
    fs::write(&from, &content).unwrap();
    let place = format!("9p://{}", far(share.address(), usize::MAX));
    let up = stats(&["cp", from.to_str().unwrap(), &format!("{place}/f?dialect=9P2000.u.s")]);
    assert!(share.read("f") == content);
    assert_eq!(count(&up, "Tstream"), 1, "{up}");
}

#[test]
fn where_one_of_several_streams_to_a_server_is_cut_nothing_is_left_there() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let from = here.path().join("from");
    fs::write(&from, noise(128 << 20, 9)).unwrap();
    // More has gone by then than can have been lost on the way.
    let event = Event::new(Way::ToServer, 80 << 20, 40, true, || {});
    let place = event.before(share.address());
    let (code, _, said) = run(&["cp", from.to_str().unwrap(), &format!("9p://{place}/f")]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the connection of its data is lost"), "{said}");
    assert_eq!(share.names("."), [""; 0]);
}

#[test]
fn what_a_pipe_gave_to_a_server_that_took_none_of_it_is_not_made_up_for_by_the_rest() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let fifo = here.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    // The first bytes never get there.
    let mut writes = 0;
    let relay = meddle(share.address(), move |_, frame| {
        writes += u32::from(kind(frame) == TWRITE);
        kind(frame) != TWRITE || writes > 1
    });
    let copy = ninefold(&["--timeout", "1", "cp", fifo.to_str().unwrap(), &format!("9p://{relay}/f")])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fs::write(&fifo, "all of it").unwrap();
    let ended = copy.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!share.path("f").exists());
}

#[test]
fn a_file_that_changes_while_its_last_bytes_are_on_their_way_is_copied_as_it_was_or_as_it_is() {
    const RSTREAMEND: u8 = 163;
    const MIB: usize = 1 << 20;
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let file = share.make("f", noise(3 * MIB, 10));
    let before = fs::read(&file).unwrap();
    // All data but the first bytes wait at the end of their way until the server has told how all of its streams ended, and the file was changed then.
    let (told, may_pass) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, passes) = (told.clone(), may_pass.clone());
    let session = meddle(share.address(), move |way, frame| {
        if way == Way::ToClient {
            std::thread::sleep(Duration::from_millis(10));
        }
        counted.fetch_add(usize::from(kind(frame) == RSTREAMEND), Ordering::Relaxed);
        true
    });
    let server = share.address();
    let leads = move |number| if number == 0 { session } else { server };
    let place = between(leads, move |number, way, mut far, mut near| {
        if number == 0 || way == Way::ToServer {
            return pass(far, near);
        }
        let mut first = [0; 1000];
        let _ = far.read_exact(&mut first).and_then(|()| near.write_all(&first));
        let (mut rest, held) = std::sync::mpsc::channel::<Vec<u8>>();
        let passes = passes.clone();
        std::thread::spawn(move || {
            until("the change", || (passes.load(Ordering::Relaxed) > 0).then_some(()));
            let _ = held.iter().try_for_each(|bytes| near.write_all(&bytes));
            let _ = near.shutdown(Shutdown::Write);
        });
        // The server's end is to be rid of all of it, whether or not another stream may follow.
        let _ = std::io::copy(&mut far, &mut Sending(&mut rest));
    });
    let to = here.path().join("to");
    let copy = ninefold(&["cp", &format!("9p://{place}/f"), to.to_str().unwrap()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the end of both streams", || (told.load(Ordering::Relaxed) >= 2).then_some(()));
    fs::File::options().write(true).open(&file).unwrap().write_all_at(b"changed", 2 * MIB as u64).unwrap();
    may_pass.store(1, Ordering::Relaxed);
    let ended = copy.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success() && said.is_empty(), "{said}");
    // Its state before the change, of which the server's end had copies, or the one behind it, and no mixture.
    let copied = fs::read(&to).unwrap();
    assert!(copied == before || copied == fs::read(&file).unwrap());
}

/// What is written is sent to another thread.
struct Sending<'a>(&'a mut std::sync::mpsc::Sender<Vec<u8>>);

impl Write for Sending<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
