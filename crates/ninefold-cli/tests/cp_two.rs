//! Two copies to one file of a server at the same time: neither takes what the other has written.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use ninefold::proto::Dialect;
use rustix::process::{Pid, Signal, kill_process};
use support::meddler::{TWRITE, Way, kind, meddle, write_offset};
use support::share::Share;
use support::{ninefold, run, until};

/// Bytes of the file that is copied: more than what `--resume` writes again.
const SIZE: usize = 40 << 20;

/// A file here, a server, and a relay to it that may hold writes up.
struct Two {
    share: Share,
    here: tempfile::TempDir,
    relay: String,
}

impl Two {
    fn new(how: impl FnMut(Way, &mut Vec<u8>) -> bool + Send + 'static) -> Two {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let mut bytes = vec![0; SIZE];
        fastrand::Rng::with_seed(1).fill(&mut bytes);
        fs::write(here.path().join("from"), bytes).unwrap();
        let relay = format!("9p://{}", meddle(share.address(), how));
        Two { share, here, relay }
    }

    /// Writes near the end of the file do not pass.
    fn stuck() -> Two {
        Two::new(|_, frame| kind(frame) != TWRITE || write_offset(frame) < 38 << 20)
    }

    fn from(&self) -> PathBuf {
        self.here.path().join("from")
    }

    /// Starts a copy through the relay, and waits until its part has `size` bytes.
    #[track_caller]
    fn start(&self, dialect: Dialect, size: u64, words: &[&str]) -> (Child, PathBuf) {
        let (from, to) = (self.from(), format!("{}/f?dialect={dialect}", self.relay));
        let mut command = ninefold(&[&["cp"], words, &[from.to_str().unwrap(), &to]].concat());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let part = until("a temporary file", || part(self.share.root()).filter(|(_, now)| *now >= size));
        (child, part.0)
    }

    /// Runs a copy that nothing holds up.
    fn second(&self, dialect: Dialect, words: &[&str]) -> (Option<i32>, String) {
        let (from, to) = (self.from(), self.share.url("f", dialect));
        let (code, _, said) = run(&[&["cp"], words, &[from.to_str().unwrap(), &to]].concat());
        (code, said)
    }

    #[track_caller]
    fn check(&self, context: &str) {
        assert!(self.share.read("f") == fs::read(self.from()).unwrap(), "{context}");
    }
}

fn part(dir: &Path) -> Option<(PathBuf, u64)> {
    let mut entries = fs::read_dir(dir).unwrap().map_while(Result::ok);
    let entry = entries.find(|entry| entry.file_name().to_str().unwrap().ends_with(".ninefold-part"))?;
    Some((entry.path(), entry.metadata().ok()?.len()))
}

#[track_caller]
fn interrupt(mut copy: Child) {
    kill_process(Pid::from_child(&copy), Signal::INT).unwrap();
    let status = until("the end of cp", || copy.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
}

#[test]
fn a_second_copy_leaves_the_temporary_file_of_the_first_alone() {
    for dialect in Dialect::ALL {
        let it = Two::stuck();
        let (first, part) = it.start(dialect, 1, &[]);
        assert_eq!(it.second(dialect, &[]), (Some(0), String::new()), "{dialect}");
        it.check("the second");
        assert!(part.exists(), "{dialect}: the first's is gone");
        // Nor does the first, interrupted, take anything back.
        interrupt(first);
        it.check("after the first");
    }
}

#[test]
fn a_part_that_another_copy_has_locked_is_not_gone_on_with() {
    let it = Two::stuck();
    let (first, part) = it.start(Dialect::Linux, 38 << 20, &["--resume"]);
    let before = fs::metadata(&part).unwrap().len();
    let (code, said) = it.second(Dialect::Linux, &["--resume"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another copy of it is under way"), "{said}");
    assert_eq!(fs::metadata(&part).unwrap().len(), before);
    interrupt(first);
    // The lock is gone with its connection.
    assert_eq!(it.second(Dialect::Linux, &["--resume"]), (Some(0), String::new()));
    it.check("finished");
    assert_eq!(it.share.names("."), ["f"]);
}

#[test]
fn where_nothing_can_be_locked_a_part_that_grows_is_not_gone_on_with() {
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        let it = Two::new(|_, frame| {
            if kind(frame) == TWRITE {
                // A slow line: the copy would take ten seconds.
                std::thread::sleep(Duration::from_millis(frame.len() as u64 / 4000));
            }
            true
        });
        let (first, part) = it.start(dialect, 1, &["--resume"]);
        let (code, said) = it.second(dialect, &["--resume"]);
        assert_eq!(code, Some(1), "{dialect}: {said}");
        assert!(said.contains("another copy of it is under way"), "{said}");
        assert!(part.exists(), "{dialect}");
        interrupt(first);
        assert_eq!(it.second(dialect, &["--resume"]), (Some(0), String::new()), "{dialect}");
        it.check("finished");
    }
}

#[test]
fn a_copy_whose_part_another_has_finished_takes_nothing_away_when_it_ends() {
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        let it = Two::stuck();
        let (first, _) = it.start(dialect, 38 << 20, &["--resume"]);
        assert_eq!(it.second(dialect, &["--resume"]), (Some(0), String::new()), "{dialect}");
        it.check("the second");
        interrupt(first);
        it.check("after the first");
        assert_eq!(it.share.names("."), ["f"], "{dialect}");
    }
}
