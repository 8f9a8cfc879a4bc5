//! A copy is never left looking whole when it is not, whatever ends it; and `--resume` goes on with it.

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ninefold::proto::Dialect;
use rustix::process::{Pid, Signal, kill_process};
use support::meddler::{RGETATTR, RREAD, TRENAMEAT, TWRITE, TWSTAT, Way, kind, meddle, write_offset};
use support::share::Share;
use support::tree::{assert_same, picture};
use support::{ninefold, run, until};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Bytes that are alike nowhere.
fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; size];
    rng.fill(&mut bytes);
    bytes
}

#[track_caller]
fn good(args: &[&str]) -> String {
    let words = [&["cp", "--no-stream"], args].concat();
    let (code, out, said) = run(&words);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{args:?}");
    out
}

/// Starts a cp that will not come to its end by itself, by messages, which a relay can stop.
fn start(args: &[&str]) -> Child {
    let words = [&["cp", "--no-stream"], args].concat();
    let mut command = ninefold(&words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The temporary file in a directory, and its size.
fn part(dir: &Path) -> Option<(PathBuf, u64)> {
    let mut entries = fs::read_dir(dir).unwrap().map_while(Result::ok);
    let entry =
        entries.find(|entry| entry.file_name().to_str().is_some_and(|name| name.ends_with(".ninefold-part")))?;
    Some((entry.path(), entry.metadata().ok()?.len()))
}

/// Waits until the temporary file has so many bytes.
#[track_caller]
fn part_of(dir: &Path, size: u64) -> PathBuf {
    until("a temporary file", || part(dir).filter(|(_, now)| *now >= size).map(|(path, _)| path))
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

/// Waits for the end: exit status and standard error.
#[track_caller]
fn end(mut child: Child) -> (Option<i32>, String) {
    let status = until("the end of cp", || child.try_wait().unwrap());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    (status.code(), said)
}

/// What the last line of --json says.
fn summary(said: &str) -> serde_json::Value {
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// A server's file of 6 MiB, and a relay to it that gives nothing from `from` bytes on.
struct Stuck {
    share: Share,
    here: tempfile::TempDir,
    relay: String,
    released: Arc<AtomicBool>,
    /// Something did not pass.
    held: Arc<AtomicBool>,
}

impl Stuck {
    const SIZE: usize = 6 << 20;

    /// Replies to reads do not pass after so many bytes.
    fn reading(after: usize) -> Stuck {
        let share = Share::new();
        share.make("f", noise(Stuck::SIZE, 1));
        let mut passed = 0;
        Stuck::with(share, move |_, frame| {
            passed += if kind(frame) == RREAD { frame.len() - 11 } else { 0 };
            kind(frame) != RREAD || passed <= after
        })
    }

    fn with(share: Share, mut how: impl FnMut(Way, &mut Vec<u8>) -> bool + Send + 'static) -> Stuck {
        let released = Arc::new(AtomicBool::new(false));
        let held = Arc::new(AtomicBool::new(false));
        let (is_released, is_held) = (released.clone(), held.clone());
        let how = move |way, frame: &mut Vec<u8>| {
            let passes = is_released.load(Ordering::Relaxed) || how(way, frame);
            is_held.fetch_or(!passes, Ordering::Relaxed);
            passes
        };
        let relay = format!("9p://{}", meddle(share.address(), how));
        Stuck { share, here: tempfile::tempdir().unwrap(), relay, released, held }
    }

    /// Waits until a copy is under way that will not come to its end.
    #[track_caller]
    fn wait(&self) {
        until("a copy that is held up", || self.held.load(Ordering::Relaxed).then_some(()));
    }

    /// The address of a file at the relay, which now lets everything pass.
    fn released(&self, name: &str) -> String {
        self.released.store(true, Ordering::Relaxed);
        format!("{}/{name}", self.relay)
    }

    fn to(&self) -> PathBuf {
        self.here.path().join("to")
    }
}

#[test]
fn ctrl_c_removes_the_temporary_file_here() {
    let it = Stuck::reading(1 << 20);
    let copy = start(&[&format!("{}/f", it.relay), text(&it.to())]);
    part_of(it.here.path(), 1);
    assert!(!it.to().exists());
    interrupt(&copy);
    assert_eq!(end(copy), (Some(130), String::new()));
    assert_eq!(picture(it.here.path()), [""; 0]);
}

#[test]
fn ctrl_c_removes_the_temporary_file_there() {
    for dialect in Dialect::ALL {
        let it = Stuck::with(Share::new(), |_, frame| kind(frame) != TWRITE || write_offset(frame) < 1 << 20);
        let from = it.here.path().join("from");
        fs::write(&from, noise(Stuck::SIZE, 2)).unwrap();
        let copy = start(&[text(&from), &format!("{}/f?dialect={dialect}", it.relay)]);
        part_of(it.share.root(), 1);
        interrupt(&copy);
        let (code, said) = end(copy);
        assert_eq!(code, Some(130), "{dialect}");
        // The server may be slower than a person who presses Ctrl-C wants to wait: then cp says so.
        if !said.contains("may be left") {
            assert_eq!(picture(it.share.root()), [""; 0], "{dialect}: {said}");
        }
    }
}

#[test]
fn ctrl_c_while_a_link_takes_the_place_of_a_file_leaves_nothing_that_is_in_the_next_ones_way() {
    for dialect in [Dialect::Unix, Dialect::Linux] {
        // The messages that rename.
        let it = Stuck::with(Share::new(), |_, frame| !matches!(kind(frame), TWSTAT | TRENAMEAT));
        it.share.make("link", "a file");
        let link = it.here.path().join("link");
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        let copy = start(&["-r", text(&link), &format!("{}/?dialect={dialect}", it.relay)]);
        it.wait();
        interrupt(&copy);
        let (code, said) = end(copy);
        assert_eq!(code, Some(130), "{dialect}");
        assert_eq!(it.share.read("link"), b"a file");
        // The server may be slower than a person who presses Ctrl-C wants to wait: then cp says so.
        if !said.contains("may be left") {
            assert_eq!(it.share.names("."), ["link"], "{dialect}: {said}");
        }
        good(&["-r", text(&link), &format!("{}?dialect={dialect}", it.released(""))]);
        assert_eq!(fs::read_link(it.share.path("link")).unwrap(), Path::new("elsewhere"), "{dialect}");
    }
}

#[test]
fn ctrl_c_leaves_what_resume_goes_on_with() {
    let it = Stuck::reading(3 << 20);
    let from = format!("{}/f", it.relay);
    let copy = start(&["--resume", &from, text(&it.to())]);
    let left = part_of(it.here.path(), 1 << 20);
    interrupt(&copy);
    assert_eq!(end(copy).0, Some(130));
    let size = fs::metadata(&left).unwrap().len();
    assert!(size >= 1 << 20 && !it.to().exists());
    let said = good(&["--resume", "--json", &it.released("f"), text(&it.to())]);
    assert_eq!(summary(&said)["bytes"], Stuck::SIZE as u64 - size);
    assert!(fs::read(it.to()).unwrap() == it.share.read("f"));
    assert_eq!(picture(it.here.path()).len(), 1);
}

#[test]
fn a_copy_that_was_killed_here_goes_on_where_it_ended() {
    let it = Stuck::reading(3 << 20);
    let mut copy = start(&[&format!("{}/f", it.relay), text(&it.to())]);
    let left = part_of(it.here.path(), 2 << 20);
    copy.kill().unwrap();
    copy.wait().unwrap();
    let size = fs::metadata(&left).unwrap().len();
    for words in [&["--resume"][..], &["--resume", "--checksum"]] {
        let copied = it.here.path().join("copied");
        // Each goes on with a copy of what is left.
        fs::create_dir_all(&copied).unwrap();
        fs::copy(&left, copied.join(left.file_name().unwrap())).unwrap();
        let url = it.released("f");
        let to = copied.join("to");
        let said = good(&[words, &["--json", &url, text(&to)]].concat());
        assert_eq!(summary(&said)["bytes"], Stuck::SIZE as u64 - size, "{words:?}");
        assert!(fs::read(&to).unwrap() == it.share.read("f"));
        assert_eq!(picture(&copied).len(), 1);
        fs::remove_file(&to).unwrap();
    }
}

#[test]
fn a_copy_that_was_killed_there_goes_on_behind_what_can_be_relied_on() {
    const SIZE: usize = 40 << 20;
    for dialect in [Dialect::Plan9, Dialect::Linux] {
        let it = Stuck::with(Share::new(), |_, frame| kind(frame) != TWRITE || write_offset(frame) < 38 << 20);
        let from = it.here.path().join("from");
        fs::write(&from, noise(SIZE, 3)).unwrap();
        let mut copy = start(&["--resume", text(&from), &format!("{}/f?dialect={dialect}", it.relay)]);
        let left = part_of(it.share.root(), 38 << 20);
        copy.kill().unwrap();
        copy.wait().unwrap();
        // What lies near the end may never have been written.
        let size = fs::metadata(&left).unwrap().len();
        fs::OpenOptions::new().write(true).open(&left).unwrap().write_all_at(&[0; 1 << 20], size - (32 << 20)).unwrap();
        let said = good(&["--resume", "--json", text(&from), &it.share.url("f", dialect)]);
        assert_eq!(summary(&said)["bytes"], SIZE as u64 - (size - (32 << 20)), "{dialect}");
        assert!(it.share.read("f") == fs::read(&from).unwrap(), "{dialect}");
        assert_eq!(it.share.names("."), ["f"]);
    }
}

#[test]
fn with_checksum_what_an_interrupted_copy_left_is_not_believed() {
    let it = Stuck::reading(3 << 20);
    let mut copy = start(&[&format!("{}/f", it.relay), text(&it.to())]);
    let left = part_of(it.here.path(), 2 << 20);
    copy.kill().unwrap();
    copy.wait().unwrap();
    fs::OpenOptions::new().write(true).open(&left).unwrap().write_all_at(b"a bad disk", 1000).unwrap();
    good(&["--resume", "--checksum", &it.released("f"), text(&it.to())]);
    assert!(fs::read(it.to()).unwrap() == it.share.read("f"));
    assert_eq!(picture(it.here.path()).len(), 1);
}

#[test]
fn a_copy_of_a_source_that_changed_since_begins_anew() {
    let it = Stuck::reading(3 << 20);
    let mut copy = start(&[&format!("{}/f", it.relay), text(&it.to())]);
    part_of(it.here.path(), 1 << 20);
    copy.kill().unwrap();
    copy.wait().unwrap();
    it.share.make("f", noise(Stuck::SIZE, 99));
    let said = good(&["--resume", "--json", &it.released("f"), text(&it.to())]);
    assert_eq!(summary(&said)["bytes"], Stuck::SIZE as u64);
    assert!(fs::read(it.to()).unwrap() == it.share.read("f"));
}

#[test]
fn what_was_left_of_one_source_is_not_gone_on_with_for_another_of_the_same_size_and_time() {
    let it = Stuck::reading(3 << 20);
    it.share.make("g", noise(Stuck::SIZE, 7));
    let then = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["f", "g"] {
        fs::File::options().write(true).open(it.share.path(name)).unwrap().set_modified(then).unwrap();
    }
    let mut copy = start(&["--resume", &format!("{}/f", it.relay), text(&it.to())]);
    part_of(it.here.path(), 2 << 20);
    copy.kill().unwrap();
    copy.wait().unwrap();
    good(&["--resume", &it.released("g"), text(&it.to())]);
    assert!(fs::read(it.to()).unwrap() == it.share.read("g"));
    // And from here to there.
    let it = Stuck::with(Share::new(), |_, frame| kind(frame) != TWRITE || write_offset(frame) < 38 << 20);
    let (one, two) = (it.here.path().join("one"), it.here.path().join("two"));
    for (path, seed) in [(&one, 8), (&two, 9)] {
        fs::write(path, noise(40 << 20, seed)).unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    }
    let mut copy = start(&["--resume", text(&one), &format!("{}/f", it.relay)]);
    part_of(it.share.root(), 38 << 20);
    copy.kill().unwrap();
    copy.wait().unwrap();
    good(&["--resume", text(&two), &it.released("f")]);
    assert!(it.share.read("f") == fs::read(&two).unwrap());
}

#[test]
fn what_was_left_with_another_end_than_the_source_has_is_begun_anew() {
    let it = Stuck::reading(3 << 20);
    let mut copy = start(&["--resume", &format!("{}/f", it.relay), text(&it.to())]);
    let left = part_of(it.here.path(), 2 << 20);
    copy.kill().unwrap();
    copy.wait().unwrap();
    let size = fs::metadata(&left).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&left).unwrap();
    file.write_all_at(b"lost when the power went", size - 5000).unwrap();
    let said = good(&["--resume", "--json", &it.released("f"), text(&it.to())]);
    assert_eq!(summary(&said)["bytes"], Stuck::SIZE as u64);
    assert!(fs::read(it.to()).unwrap() == it.share.read("f"));
    assert_eq!(picture(it.here.path()).len(), 1);

    for dialect in [Dialect::Plan9, Dialect::Linux] {
        let it = Stuck::with(Share::new(), |_, frame| kind(frame) != TWRITE || write_offset(frame) < 38 << 20);
        let from = it.here.path().join("from");
        fs::write(&from, noise(40 << 20, 3)).unwrap();
        let mut copy = start(&["--resume", text(&from), &format!("{}/f?dialect={dialect}", it.relay)]);
        let left = part_of(it.share.root(), 38 << 20);
        copy.kill().unwrap();
        copy.wait().unwrap();
        let size = fs::metadata(&left).unwrap().len();
        let file = fs::OpenOptions::new().write(true).open(&left).unwrap();
        file.write_all_at(b"another's", size - (32 << 20) - 100_000).unwrap();
        good(&["--resume", text(&from), &format!("{}?dialect={dialect}", it.released("f"))]);
        assert!(it.share.read("f") == fs::read(&from).unwrap(), "{dialect}");
        assert_eq!(it.share.names("."), ["f"]);
    }
}

#[test]
fn resume_leaves_what_is_there_already() {
    for dialect in Dialect::ALL {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        for (name, content) in [("same", "1234"), ("shorter", "12345678"), ("older", "abcd")] {
            share.make(&format!("t/{name}"), content);
        }
        let out = here.path().join("t");
        let url = share.url("t", dialect);
        good(&["-r", &url, text(&out)]);
        fs::write(out.join("shorter"), "1234").unwrap();
        fs::write(out.join("older"), "wxyz").unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::options().write(true).open(out.join("older")).unwrap().set_modified(long_ago).unwrap();
        let before = fs::metadata(out.join("same")).unwrap().ino();
        let said = good(&["-r", "--resume", "--json", &url, text(here.path())]);
        let sum = summary(&said);
        assert_eq!((&sum["files"], &sum["skipped"]), (&2.into(), &1.into()), "{dialect}: {said}");
        assert_eq!(fs::metadata(out.join("same")).unwrap().ino(), before);
        assert_same(&share.path("t"), &out);
        // With times kept they must be the same; by its content a file is known whatever its time.
        good(&["-rp", &url, text(here.path())]);
        let said = good(&["-rp", "--resume", "--json", &url, text(here.path())]);
        assert_eq!(summary(&said)["skipped"], 3, "{dialect}: {said}");
        fs::File::options().write(true).open(out.join("older")).unwrap().set_modified(long_ago).unwrap();
        fs::write(out.join("same"), "4321").unwrap();
        let said = good(&["-r", "--resume", "--checksum", "--json", &url, text(here.path())]);
        assert_eq!((&summary(&said)["files"], &summary(&said)["skipped"]), (&1.into(), &2.into()), "{dialect}: {said}");
        assert_same(&share.path("t"), &out);
    }
}

#[test]
fn a_second_copy_to_the_same_file_here_is_refused_while_the_first_is_under_way() {
    let it = Stuck::reading(1 << 20);
    let copy = start(&[&format!("{}/f", it.relay), text(&it.to())]);
    part_of(it.here.path(), 1);
    it.wait();
    for words in [&[][..], &["--resume"]] {
        let url = it.released("f");
        let (code, _, said) = run(&[&["cp"], words, &[&url, text(&it.to())]].concat());
        assert_eq!(code, Some(1));
        assert!(said.contains("another copy of it is under way"), "{said}");
    }
    interrupt(&copy);
    assert_eq!(end(copy).0, Some(130));
}

#[test]
fn a_server_that_keeps_other_bytes_is_found_out_by_checksum() {
    for dialect in Dialect::ALL {
        let it = Stuck::with(Share::new(), |_, frame| {
            if kind(frame) == TWRITE && frame.len() > 10_000 {
                *frame.last_mut().unwrap() ^= 1;
            }
            true
        });
        let from = it.here.path().join("from");
        fs::write(&from, noise(300_000, 4)).unwrap();
        it.share.make("f", "old");
        let to = format!("{}/f?dialect={dialect}", it.relay);
        let (code, _, said) = run(&["cp", "--checksum", text(&from), &to]);
        assert_eq!(code, Some(1), "{dialect}");
        assert!(said.contains("reads back otherwise"), "{said}");
        assert_eq!((it.share.names("."), it.share.read("f")), (vec!["f".to_owned()], b"old".to_vec()), "{dialect}");
        good(&["--checksum", text(&from), &it.share.url("f", dialect)]);
    }
}

#[test]
fn a_file_that_ends_before_its_size_is_not_copied() {
    let it = Stuck::with(Share::new(), |_, frame| {
        // `size[4] Rgetattr tag[2] valid[8] qid[13] mode[4] uid[4] gid[4] nlink[8] rdev[8] size[8]`, of plain files.
        if kind(frame) == RGETATTR && frame[29] & 0xf0 == 0x80 {
            frame[57] = 9;
        }
        true
    });
    it.share.make("f", "short");
    let (code, _, said) = run(&["cp", &format!("{}/f", it.relay), text(&it.to())]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("it ended after 5 of its"), "{said}");
    assert_eq!(picture(it.here.path()), [""; 0]);
}

/// A copy of a file that grows while it is read, once or always: what it said, and the file.
fn growing(always: bool) -> (Stuck, Option<i32>, String) {
    let share = Share::new();
    let file = share.make("log", noise(3 << 20, 5));
    let (mut looked, mut grown) = (false, false);
    let it = Stuck::with(share, move |_, frame| {
        looked |= kind(frame) == RGETATTR;
        // Were it looked at behind its first read, a change between the two would be taken for what was there from the beginning on.
        if kind(frame) == RREAD && looked && (always || !std::mem::replace(&mut grown, true)) {
            use std::io::Write;
            fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(b"one more line\n").unwrap();
        }
        true
    });
    let (code, _, said) = run(&["cp", &format!("{}/log", it.relay), text(&it.to())]);
    (it, code, said)
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_copied_again() {
    let (it, code, said) = growing(false);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(it.share.read("log") == fs::read(it.to()).unwrap());
}

#[test]
fn a_file_that_goes_on_growing_is_copied_with_a_warning() {
    let (it, code, said) = growing(true);
    assert_eq!(code, Some(0));
    assert!(said.contains("it changed while it was copied"), "{said}");
    assert!(it.share.read("log").starts_with(&fs::read(it.to()).unwrap()));
}

#[test]
fn holes_are_not_filled() {
    const SIZE: u64 = 64 << 20;
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let file = fs::File::create(share.path("sparse")).unwrap();
    file.set_len(SIZE).unwrap();
    for at in [0, SIZE / 2 + 12_345, SIZE - 3_000_000] {
        file.write_all_at(&noise(1_000_000, at), at).unwrap();
    }
    if fs::metadata(share.path("sparse")).unwrap().blocks() * 512 > 16 << 20 {
        support::skip("holes_are_not_filled", "the file system of temporary files has no holes");
        return;
    }
    for dialect in Dialect::ALL {
        let (down, up) = (here.path().join("down"), share.path("up"));
        good(&[&share.url("sparse", dialect), text(&down)]);
        good(&[text(&down), &share.url("up", dialect)]);
        good(&[&share.url("sparse", dialect), &share.url("across", dialect)]);
        for copy in [&down, &up, &share.path("across")] {
            assert!(fs::read(copy).unwrap() == share.read("sparse"), "{dialect}");
            let allocated = fs::metadata(copy).unwrap().blocks() * 512;
            assert!(allocated < 16 << 20, "{dialect}: {} has {allocated} bytes on the disk", copy.display());
            fs::remove_file(copy).unwrap();
        }
    }
    // A file that is nothing but a hole, and one that ends in one.
    for (name, data) in [("hole", 0), ("tail", 5000)] {
        let file = fs::File::create(share.path(name)).unwrap();
        file.write_all_at(&noise(data, 1), 0).unwrap();
        file.set_len(10 << 20).unwrap();
        good(&["--checksum", &share.url(name, Dialect::Linux), text(here.path())]);
        good(&["--checksum", text(&here.path().join(name)), &share.url("up", Dialect::Linux)]);
        assert!(share.read("up") == share.read(name));
    }
}
