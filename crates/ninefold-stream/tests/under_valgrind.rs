//! Programs with streams run under valgrind too, where C's are tested: it shows a process less of the system.

use std::process::Command;

use ninefold_stream::Options;

/// Set in the program that this test started.
const FILE: &str = "NINEFOLD_TEST_FILE";

#[test]
fn the_program_that_reads_a_file() {
    let Some(path) = std::env::var_os(FILE) else { return };
    for module in ["mmap", "pread"] {
        let stream = Options::new().read(true).module(module).open(&path).unwrap();
        let (mut bytes, mut line) = (0, stream.alloc_line().unwrap());
        while !line.is_empty() {
            bytes += line.len();
            line = stream.alloc_line().unwrap();
        }
        assert_eq!(bytes, 100_000);
    }
}

#[test]
fn files_are_mapped_and_read_under_valgrind() {
    let name = "files_are_mapped_and_read_under_valgrind";
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip(name, "valgrind is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "0123456789abcdef123\n".repeat(5000)).unwrap();
    let mut command = Command::new("valgrind");
    command.args(["--tool=memcheck", "--error-exitcode=9", "--quiet"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "the_program_that_reads_a_file"]).env(FILE, &path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// CONTRIBUTING.md has the rule.
fn skip(name: &str, why: &str) {
    let line = format!("skip {name} - {why}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("NINEFOLD_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
    }
}
