//! `ninefold cp` against servers that mean harm, disks that are full, and files that may not be replaced.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ninefold::proto::Dialect;
use support::meddler::{RREAD, RREADDIR, RREADDIRPLUS, kind, meddle, replace};
use support::share::Share;
use support::tree::picture;
use support::{ninefold, run, skip, until};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[track_caller]
fn bad(args: &[&str]) -> String {
    let (code, _, said) = run(&[&["cp"], args].concat());
    assert_eq!(code, Some(1), "{args:?}: {said}");
    said
}

/// A directory that nothing may be written to, and one to copy to.
struct Trap {
    share: Share,
    here: tempfile::TempDir,
}

impl Trap {
    fn new() -> Trap {
        let trap = Trap { share: Share::new(), here: tempfile::tempdir().unwrap() };
        fs::create_dir(trap.here.path().join("precious")).unwrap();
        fs::write(trap.here.path().join("precious/file"), "precious").unwrap();
        fs::create_dir(trap.here.path().join("out")).unwrap();
        trap
    }

    fn out(&self) -> String {
        text(&self.here.path().join("out")).to_owned()
    }

    /// A link in the served tree that leads to the precious directory from where it is copied to.
    fn link(&self, name: &str, target: &str) {
        symlink(target, self.share.path(name)).unwrap();
    }

    #[track_caller]
    fn check(&self) {
        let lines = picture(&self.here.path().join("precious"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(fs::read(self.here.path().join("precious/file")).unwrap(), b"precious");
    }
}

#[test]
fn a_server_that_lists_a_link_and_then_a_directory_or_a_file_of_its_name_writes_nothing_behind_it() {
    // Which of the two comes first is the served file system's choice: each has its turn.
    for (link, other, dialect) in
        [("xa", "xb", "9P2000.L"), ("xb", "xa", "9P2000.L"), ("xa", "xb", "9P2000.L.n1"), ("xb", "xa", "9P2000.L.n1")]
    {
        for other_is_dir in [true, false] {
            let trap = Trap::new();
            fs::create_dir(trap.share.path("t")).unwrap();
            let target = if other_is_dir { "../../precious" } else { "../../precious/file" };
            trap.link(&format!("t/{link}"), target);
            let planted = if other_is_dir { format!("t/{other}/file") } else { format!("t/{other}") };
            trap.share.make(&planted, "planted");
            let relay = meddle(trap.share.address(), move |_, frame| {
                if matches!(kind(frame), RREADDIR | RREADDIRPLUS) {
                    replace(frame, other.as_bytes(), link.as_bytes());
                }
                true
            });
            let said = bad(&["-r", &format!("9p://{relay}/t?dialect={dialect}"), &trap.out()]);
            assert!(said.contains(&format!("/t/{link}?dialect={dialect}: the server listed it twice")), "{said}");
            trap.check();
        }
    }
}

#[test]
fn a_directory_that_is_copied_where_an_earlier_copy_left_a_link_is_refused() {
    let trap = Trap::new();
    fs::create_dir(trap.share.path("t")).unwrap();
    trap.link("t/x", "../../precious");
    let url = trap.share.url("t", Dialect::Linux);
    assert_eq!(run(&["cp", "-r", &url, &trap.out()]).0, Some(0));
    fs::remove_file(trap.share.path("t/x")).unwrap();
    trap.share.make("t/x/file", "planted");
    trap.share.make("t/y", "not in its way");
    let said = bad(&["-r", &url, &trap.out()]);
    assert!(said.contains("/t/x: cannot make the directory: a symbolic link has its name here"), "{said}");
    assert_eq!(fs::read(trap.here.path().join("out/t/y")).unwrap(), b"not in its way");
    trap.check();
}

#[test]
fn a_file_that_is_copied_where_an_earlier_copy_left_a_link_takes_its_place() {
    let trap = Trap::new();
    fs::create_dir(trap.share.path("t")).unwrap();
    trap.link("t/x", "../../precious/file");
    let url = trap.share.url("t", Dialect::Linux);
    assert_eq!(run(&["cp", "-r", &url, &trap.out()]).0, Some(0));
    fs::remove_file(trap.share.path("t/x")).unwrap();
    trap.share.make("t/x", "planted");
    assert_eq!(run(&["cp", "-r", &url, &trap.out()]), (Some(0), String::new(), String::new()));
    let x = trap.here.path().join("out/t/x");
    assert!(!x.is_symlink());
    assert_eq!(fs::read(x).unwrap(), b"planted");
    trap.check();
}

#[test]
fn a_link_in_the_place_of_the_temporary_file_is_not_written_through() {
    let trap = Trap::new();
    trap.share.make("x", vec![7; 1 << 20]);
    // Its name is seen while the copy is held up.
    let passes = Arc::new(AtomicBool::new(false));
    let (mut begun, all) = (false, passes.clone());
    let relay = meddle(trap.share.address(), move |_, frame| {
        all.load(Ordering::Relaxed) || kind(frame) != RREAD || !std::mem::replace(&mut begun, true)
    });
    let mut copy = ninefold(&["cp", &format!("9p://{relay}/x"), &trap.out()]);
    let mut copy = copy.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let out = trap.here.path().join("out");
    let first = || fs::read_dir(&out).unwrap().next().map(|entry| entry.unwrap().path());
    let part = until("a temporary file", first);
    copy.kill().unwrap();
    copy.wait().unwrap();
    passes.store(true, Ordering::Relaxed);
    for words in [&[][..], &["--resume"]] {
        fs::remove_dir_all(&out).unwrap();
        fs::create_dir(&out).unwrap();
        symlink("../precious/file", &part).unwrap();
        assert_eq!(run(&[&["cp"], words, &[&format!("9p://{relay}/x"), &trap.out()]].concat()).0, Some(0));
        assert_eq!(fs::read(out.join("x")).unwrap(), trap.share.read("x"));
        assert_eq!(picture(&out).len(), 1);
        trap.check();
    }
}

#[test]
fn what_looks_like_the_temporary_file_of_an_interrupted_copy_is_not_copied_in_a_tree() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    share.make("t/.x.0123abcd.ninefold-part", "half");
    share.make("t/x", "whole");
    let said = bad(&["-r", &share.url("t", Dialect::Linux), text(here.path())]);
    assert!(said.contains("it looks like what an interrupted copy left"), "{said}");
    assert_eq!(picture(&here.path().join("t")).len(), 1);
    let url = share.url("t", Dialect::Linux);
    assert_eq!(run(&["cp", "-r", "--exclude", "*.ninefold-part", &url, text(here.path())]).0, Some(0));
}

/// Runs a command as a user without rights: as nobody when this is root.
fn as_nobody(args: &[&str]) -> (Option<i32>, String) {
    let mut command = ninefold(args);
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let Output { status, stderr, .. } = command.stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn in_a_directory_that_takes_no_new_file_the_file_that_is_there_is_written_in_place() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    chmod(here.path(), 0o755);
    chmod(share.root(), 0o755);
    share.make("new", "new");
    let out = here.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("f"), "old and longer").unwrap();
    chmod(out.join("f"), 0o666);
    chmod(&out, 0o555);
    let before = fs::metadata(out.join("f")).unwrap().ino();
    let (code, said) = as_nobody(&["cp", &share.url("new", Dialect::Linux), text(&out.join("f"))]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("written in place: it cannot be replaced"), "{said}");
    assert_eq!(fs::read(out.join("f")).unwrap(), b"new");
    assert_eq!(fs::metadata(out.join("f")).unwrap().ino(), before);
    let (code, said) = as_nobody(&["cp", &share.url("new", Dialect::Linux), text(&out.join("g"))]);
    assert_eq!(code, Some(1));
    assert!(said.contains("permission denied"), "{said}");
    chmod(&out, 0o755);
}

#[test]
fn a_file_that_may_not_be_written_is_not_replaced_either() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    chmod(here.path(), 0o755);
    chmod(share.root(), 0o755);
    share.make("new", "new");
    let out = here.path().join("out");
    fs::create_dir(&out).unwrap();
    chmod(&out, 0o777);
    fs::write(out.join("f"), "old").unwrap();
    chmod(out.join("f"), 0o444);
    let (code, said) = as_nobody(&["cp", &share.url("new", Dialect::Linux), text(&out.join("f"))]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("permission denied"), "{said}");
    assert_eq!(fs::read(out.join("f")).unwrap(), b"old");
}

/// Runs cp with a disk that tells only when `file` is closed that it is full.
fn with_failing_close(name: &str, file: &Path, args: &[&str]) -> Option<(Option<i32>, String)> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", text(log.path()), "-P", text(file), "-e", "trace=close"]);
    command.args(["-e", "inject=close:error=ENOSPC", env!("CARGO_BIN_EXE_ninefold"), "cp"]).args(args);
    let Ok(Output { status, stderr, .. }) = command.stdin(Stdio::null()).output() else {
        skip(name, "strace(1) is missing");
        return None;
    };
    let said = String::from_utf8(stderr).unwrap();
    if said.contains("ptrace") {
        skip(name, "no program may be traced here");
        return None;
    }
    let log = fs::read_to_string(log.path()).unwrap();
    assert!(log.contains("INJECTED"), "no close of {} was met: {log} {said}", file.display());
    Some((status.code(), said))
}

#[test]
fn a_write_that_fails_only_when_the_file_is_closed_is_told_and_the_old_file_stays() {
    const NAME: &str = "a_write_that_fails_only_when_the_file_is_closed_is_told_and_the_old_file_stays";
    let trap = Trap::new();
    trap.share.make("x", vec![7; 1 << 20]);
    let passes = Arc::new(AtomicBool::new(false));
    let (mut begun, all) = (false, passes.clone());
    let relay = meddle(trap.share.address(), move |_, frame| {
        all.load(Ordering::Relaxed) || kind(frame) != RREAD || !std::mem::replace(&mut begun, true)
    });
    let (from, out) = (format!("9p://{relay}/x"), trap.here.path().join("out"));
    // The temporary file has the same name each time.
    let mut copy = ninefold(&["cp", "--resume", &from, &trap.out()]);
    let mut copy = copy.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let part = until("a temporary file", || fs::read_dir(&out).unwrap().next().map(|entry| entry.unwrap().path()));
    copy.kill().unwrap();
    copy.wait().unwrap();
    passes.store(true, Ordering::Relaxed);
    fs::write(out.join("x"), "old").unwrap();
    let Some((code, said)) = with_failing_close(NAME, &part, &["--resume", &from, &trap.out()]) else { return };
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("file system full"), "{said}");
    assert_eq!(fs::read(out.join("x")).unwrap(), b"old");

    // Written in place too.
    fs::hard_link(out.join("x"), out.join("y")).unwrap();
    let Some((code, said)) = with_failing_close(NAME, &out.join("x"), &[&from, &trap.out()]) else { return };
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("file system full"), "{said}");
}

#[test]
fn on_a_full_disk_the_temporary_file_is_removed_and_the_old_file_stays() {
    const NAME: &str = "on_a_full_disk_the_temporary_file_is_removed_and_the_old_file_stays";
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    share.make("large", vec![7; 3 << 20]);
    // A disk of 1 MiB, for this test alone: it is gone with its mount namespace.
    let script = "mount -t tmpfs -o size=1m none \"$1\" || exit 77
        echo old >\"$1/large\"
        \"$2\" cp $4 \"$3\" \"$1\"; echo \"status $?\"
        ls -A \"$1\"; cat \"$1/large\"";
    for more in ["", "--resume"] {
        let mut command = Command::new("unshare");
        let args = ["-m", "sh", "-c", script, "sh", text(here.path()), env!("CARGO_BIN_EXE_ninefold")];
        command.args(args).args([&share.url("large", Dialect::Linux), more]);
        let Ok(Output { status, stdout, stderr }) = command.output() else {
            return skip(NAME, "unshare(1) is missing");
        };
        let (out, said) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        if status.code() == Some(77) || said.starts_with("unshare:") {
            return skip(NAME, "no file system may be mounted here");
        }
        assert_eq!(out, "status 1\nlarge\nold\n", "{more}: {said}");
        assert!(said.contains("file system full"), "{said}");
    }
}
