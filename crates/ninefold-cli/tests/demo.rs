//! `ninefold demo`.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::{Running, ninefold};

/// The demo, and the directory in which it makes its own.
fn demo() -> (Command, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = ninefold(&["demo"]);
    command.env("TMPDIR", dir.path());
    (command, dir)
}

fn is_empty(dir: &Path) -> bool {
    dir.read_dir().unwrap().next().is_none()
}

#[test]
fn the_demo_succeeds_and_leaves_nothing_behind() {
    let (mut command, dir) = demo();
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{stdout}");
    // Six steps in each of three dialects over three ways, three failures, and the server's end.
    assert_eq!(stdout.lines().filter(|line| line.trim_start().starts_with('✓')).count(), 6 * 9 + 3 + 1, "{stdout}");
    assert!(is_empty(dir.path()));
}

#[test]
fn ctrl_c_ends_the_demo_and_leaves_nothing_behind() {
    let (mut command, dir) = demo();
    let demo = Running::spawn(&mut command);
    while !demo.line().contains('✓') {}
    demo.signal(Signal::INT);
    assert_eq!(demo.end().0, Some(130));
    assert!(is_empty(dir.path()));
}
