//! `ninefold-mounted` judges mounts by what a local file system does, so every check of it must pass on those of this machine; and it
//! must see a fault.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{XattrFlags, setxattr};
use rustix::process::geteuid;
use tempfile::TempDir;

fn skip(name: &str, why: &str) {
    let line = format!("skip {name} - {why}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("NINEFOLD_SKIPS") {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        file.write_all(line.as_bytes()).expect("the list of skips"); // one write: tests run side by side
    }
}

fn mounted() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ninefold-mounted"))
}

fn text(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("lines of text")
}

/// The names of all checks.
fn names() -> Vec<String> {
    let output = mounted().arg("--list").output().expect("the program starts");
    text(&output).lines().map(str::to_owned).collect()
}

/// Runs every check in a directory below `above`, and says what this machine cannot show.
fn all_pass(test: &str, above: &Path) {
    let dir = TempDir::new_in(above).expect("a directory");
    // Several users work in it.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    let mut command = mounted();
    let mut lacks = Vec::new();
    if !geteuid().is_root() {
        lacks.extend(["users", "devices"]);
    }
    let probe = dir.path().join("probe");
    fs::write(&probe, "").expect("a file");
    if setxattr(&probe, "user.probe", b"1", XattrFlags::empty()).is_err() {
        lacks.push("xattr");
    }
    let direct = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    if rustix::fs::open(&probe, direct, rustix::fs::Mode::empty()).is_err() {
        lacks.push("direct");
    }
    fs::remove_file(&probe).expect("the file");
    for word in &lacks {
        command.args(["--without", word]);
    }
    // Nobody waits for more than one check here, whatever hangs.
    let output = command.args(["--deadline", "120"]).arg(dir.path()).output().expect("the program starts");
    let lines = text(&output);
    let bad: Vec<&str> = lines.lines().filter(|line| line.starts_with("not ok")).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(output.status.success(), "{}", output.status);
    let told: HashSet<&str> = lines.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let silent: Vec<String> = names().into_iter().filter(|name| !told.contains(name.as_str())).collect();
    assert!(silent.is_empty(), "nothing was said of {silent:?}");
    assert_eq!(fs::read_dir(dir.path()).expect("the directory").count(), 0, "what was made is removed");
    if !lacks.is_empty() {
        skip(test, &format!("without {}", lacks.join(" and ")));
    }
}

#[test]
fn every_check_passes_on_the_disk() {
    all_pass("every_check_passes_on_the_disk", Path::new("/tmp"));
}

#[test]
fn every_check_passes_in_memory() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return skip("every_check_passes_in_memory", "there is no /dev/shm");
    }
    all_pass("every_check_passes_in_memory", memory);
}

#[test]
fn checks_fail_where_nothing_can_be_made() {
    // proc(5) takes no directories, from root neither.
    let output =
        mounted().args(["--only", "hard-links-are-one-file", "/proc/self"]).output().expect("the program starts");
    assert!(text(&output).starts_with("not ok hard-links-are-one-file - making /proc/"), "{}", text(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn checks_of_two_mounts_fail_on_two_different_trees() {
    let (one, other) = (TempDir::new().expect("a directory"), TempDir::new().expect("a directory"));
    let mut command = mounted();
    command.args(["--only", "files-made-here-are-seen-there", "--only", "locks-exclude-by-the-other-mount"]);
    let output = command.arg(one.path()).arg("--second").arg(other.path()).output().expect("the program starts");
    assert_eq!(text(&output).lines().filter(|line| line.starts_with("not ok")).count(), 2, "{}", text(&output));
}

#[test]
fn a_check_that_takes_too_long_is_given_up_and_told() {
    let dir = TempDir::new().expect("a directory");
    let output = mounted()
        .args(["--deadline", "0", "--only", "waiting-locks-are-granted-at-unlock"])
        .arg(dir.path())
        .output()
        .expect("the program starts");
    assert_eq!(text(&output), "not ok waiting-locks-are-granted-at-unlock - still running after 0 s\n");
}

#[test]
fn a_name_that_is_no_check_is_refused() {
    let output = mounted().args(["--only", "no-such-check", "/tmp"]).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-check: no check of that name"));
}

#[test]
fn there_are_over_a_hundred_checks_and_no_name_twice() {
    let names = names();
    assert!(names.len() > 100, "{}", names.len());
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
}

#[test]
fn exclusions_name_checks_that_exist_and_give_a_reason() {
    let names = names();
    for line in include_str!("../judges/guest/exclusions").lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let (runs, name) = (words.next().expect("a pattern"), words.next().unwrap_or_default());
        if runs == "#" {
            continue;
        }
        assert!(runs == "pjdfstest" || names.iter().any(|check| check == name), "no such check: {line}");
        assert!(words.count() >= 2, "no reason: {line}");
        let Some((_, other)) = line.split_once(" otherwise: ") else { continue };
        let (seen, why) = other.strip_prefix('"').and_then(|rest| rest.split_once("\"; ")).expect(line);
        let why = why.strip_suffix(')').expect(line);
        // The judge's pattern, in compare.bash.
        assert!(!seen.is_empty() && !why.is_empty() && !why.contains(')'), "{line}");
    }
}

/// What the judge says of an excluded check that came to `here` on our server and to `there` on the second.
fn verdict(here: &str, there: &str, reason: &str) -> String {
    let script = ". judges/common.bash; . judges/guest/compare.bash; compare u-none a-check \"$@\"";
    let output = Command::new("bash")
        .args(["-c", script, "bash", here, there, "QEMU", reason])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("bash");
    text(&output).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn an_exclusion_must_fail_on_both_servers_in_the_same_words() {
    let (here, there) = ("/mnt/u-none/a/u-none/a-check/f: at 1795344877", "/mnt/q/a/q/a-check/f: at 1795300000");
    assert!(verdict(here, there, "no field").starts_with("excluded u-none-a-check - no field; "));
    for (here, there, said) in [
        ("links: 1", "mknod: errno 6", "it fails in another way with QEMU: mknod: errno 6"),
        ("links: 1", "ok", "excluded, but QEMU passes"),
        ("ok", "ok", "take it out of the exclusions"),
        ("still running after 9 s", "still running after 9 s", "not shown to fail"),
        ("links: 1", "no result", "not shown to fail with QEMU"),
        ("links: 1", "skipped: none", "not shown to fail with QEMU"),
    ] {
        let line = verdict(here, there, "no field");
        assert!(line.starts_with("not ok u-none-a-check - ") && line.contains(said), "{line}");
    }
    assert_eq!(verdict("ok", "links: 1", "no field"), "ok u-none-a-check");
}

#[test]
fn an_exclusion_that_says_what_the_second_server_does_holds_it_to_that() {
    let refuses = "no field (QEMU otherwise: \"errno 6\"; it makes none)";
    assert!(verdict("links: 1", "mknod: errno 6", refuses).starts_with("excluded "));
    let passes = "no field (QEMU otherwise: \"passes\"; it asks for no right)";
    assert!(verdict("links: 1", "ok", passes).starts_with("excluded "));
    for (there, reason) in
        [("mknod: errno 7", refuses), ("ok", refuses), ("links: 1", refuses), ("links: 1", passes), ("errno 6", passes)]
    {
        let line = verdict("links: 1", there, reason);
        assert!(line.starts_with("not ok "), "{there}: {line}");
    }
}

#[test]
fn special_files_that_are_there_are_linked_to_and_what_is_kept_stays() {
    let (dir, nodes) = (TempDir::new().expect("a directory"), TempDir::new().expect("a directory"));
    let run = || {
        let mut command = mounted();
        command.args(["--keep", "--only", "pipes-count-their-links"]).arg(dir.path());
        let output = command.arg("--nodes").arg(nodes.path()).output().expect("the program starts");
        text(&output).to_owned()
    };
    assert!(run().starts_with("not ok pipes-count-their-links - link to the pipe that is there: "), "{}", run());
    fs::remove_dir(dir.path().join("pipes-count-their-links")).expect("what was kept");
    let pipe = nodes.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("a pipe");
    assert_eq!(run(), "ok pipes-count-their-links\n");
    assert_eq!(fs::metadata(&pipe).expect("the pipe").nlink(), 2, "one more name, which is kept");
}
