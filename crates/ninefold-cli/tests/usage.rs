//! What the command says when it is asked wrongly, and what it prints about itself.

mod support;

use support::run;

#[test]
fn wrong_use_exits_with_2_and_a_failure_with_1() {
    assert_eq!(run(&[]).0, Some(2));
    assert_eq!(run(&["serve"]).0, Some(2));
    assert_eq!(run(&["serve", ".", "--msize", "1"]).0, Some(2));
    let (code, stdout, stderr) = run(&["serve", "/no/such/directory"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("/no/such/directory"), "{stderr}");
}

#[test]
fn what_cannot_be_exported_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for (path, advice) in [(file, "name the one that it is in"), (dir.path().join("none"), "make it")] {
        let path = path.to_str().unwrap();
        let (code, stdout, stderr) = run(&["serve", path, "--listen", "9p://127.0.0.1:0"]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""));
        assert!(stderr.contains(path) && stderr.contains(advice), "{stderr}");
    }
}

#[test]
fn only_a_place_can_be_listened_at() {
    for url in ["host:/x", "9p://127.0.0.1:0/x", "9p://127.0.0.1:0?aname=x", "9p+unix:/nowhere/s:/x"] {
        let (code, stdout, stderr) = run(&["serve", "--ram", "--listen", url]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{url}");
        assert!(stderr.contains("listen at 9p"), "{stderr}");
    }
}

#[test]
fn an_address_that_cannot_be_read_is_explained() {
    let (code, _, stderr) = run(&["trace", "9p://localhost:x"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("'x' is no port"), "{stderr}");
}

#[test]
fn a_relay_beyond_loopback_needs_insecure() {
    for command in ["trace", "iostat"] {
        let (code, stdout, stderr) = run(&[command, "9p://localhost", "--listen", "9p://0.0.0.0:0"]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""));
        assert!(stderr.contains("--insecure"), "{stderr}");
    }
}

#[test]
fn a_path_of_a_host_without_its_slash_is_told_as_a_slip() {
    for words in [&["ls", "host:dir"][..], &["cp", "-r", "host:dir", "."], &["cp", "file", "host:"]] {
        let (code, stdout, stderr) = run(words);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words:?}");
        assert!(stderr.contains("a path of host begins with '/': host:/PATH"), "{stderr}");
    }
    let (code, _, stderr) = run(&["cp", "here", "there"]);
    assert!(code == Some(2) && stderr.contains("use cp(1)"), "{stderr}");
}

#[test]
fn what_another_program_does_is_told_with_that_program_where_it_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("ninefold");
    // By a process of its own: while this one has it open for writing, a child that another test starts has, too, and nobody can
    // execute it (execve(2), ETXTBSY).
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_ninefold")).arg(&alone).status();
    assert!(copied.unwrap().success());
    for words in [["lab", "stats"], ["bench", "loopback"]] {
        let output = std::process::Command::new(&alone).args(words).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("ninefold-bench is missing") && stderr.contains("cargo build"), "{stderr}");
    }
}
