//! `ninefold check` from the outside: our own server keeps every rule, and what the command promises beside the verdicts.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Running, ninefold, run};

/// A server of ours, and its address.
fn serve(words: &[&str]) -> (Running, String) {
    let mut all = vec!["serve", "--listen", "9p://localhost:0"];
    all.extend(words);
    // What broke the protocol is the suite's own doing.
    let serve = Running::spawn(ninefold(&all).env("RUST_LOG", "off"));
    let url = format!("9p://{}", serve.tcp());
    (serve, url)
}

/// The document of a run, and its exit status.
#[track_caller]
fn document(words: &[&str]) -> (Option<i32>, Value) {
    let mut all = vec!["check", "--json", "--timeout", "60"];
    all.extend(words);
    let (code, stdout, stderr) = run(&all);
    assert_eq!(stderr, "", "{words:?}");
    (code, serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{words:?}: {e}: {stdout}")))
}

/// What did not end well, for a person.
fn bad(document: &Value) -> Vec<String> {
    let cases = document["cases"].as_array().unwrap();
    cases.iter().filter(|case| case["verdict"] != "ok").map(Value::to_string).collect()
}

/// Beside the build, which lies on a disk: extended attributes are not kept everywhere in memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[track_caller]
fn every_case_passes(words: &[&str], dialect: &str, may_skip: &[&str]) {
    let (_serve, url) = serve(words);
    let (code, document) = document(&["--dialect", dialect, &url]);
    let cases = document["cases"].as_array().unwrap();
    let skipped: Vec<&str> =
        cases.iter().filter(|c| c["verdict"] == "skip").map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(document["counts"]["fail"], 0, "{:#?}", bad(&document));
    assert_eq!(document["counts"]["differs"], 0, "{:#?}", bad(&document));
    assert_eq!(skipped, may_skip, "{:#?}", bad(&document));
    assert_eq!(document["left_behind"], Value::Array(Vec::new()));
    assert!(cases.len() >= 120, "{}", cases.len());
    assert_eq!(code, Some(0));
}

fn every_case_passes_on_the_host(dialect: &str) {
    let dir = directory();
    every_case_passes(&[dir.path().to_str().unwrap()], dialect, &[]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something is left behind");
}

#[test]
fn our_server_of_a_directory_keeps_every_rule_in_9p2000() {
    every_case_passes_on_the_host("9P2000");
}

#[test]
fn our_server_of_a_directory_keeps_every_rule_in_9p2000_u() {
    every_case_passes_on_the_host("9P2000.u");
}

#[test]
fn our_server_of_a_directory_keeps_every_rule_in_9p2000_l() {
    every_case_passes_on_the_host("9P2000.L");
}

#[test]
fn our_server_of_memory_keeps_every_rule_in_every_dialect() {
    // A FIFO in memory has no other end that could be opened.
    let fifo = ["flush/of-a-read-that-waits-ends-it"];
    every_case_passes(&["--ram"], "9P2000", &[]);
    every_case_passes(&["--ram"], "9P2000.u", &fifo);
    every_case_passes(&["--ram"], "9P2000.L", &fifo);
}

#[test]
fn a_tree_that_cannot_be_written_is_checked_without_and_says_why() {
    let dir = directory();
    let (_serve, url) = serve(&["--read-only", dir.path().to_str().unwrap()]);
    let (code, document) = document(&[&url]);
    assert_eq!((code, &document["counts"]["fail"]), (Some(0), &Value::from(0)), "{:#?}", bad(&document));
    let cases = document["cases"].as_array().unwrap();
    let skipped: Vec<&Value> = cases.iter().filter(|case| case["verdict"] == "skip").collect();
    assert!(skipped.len() > 100 && cases.len() - skipped.len() > 100);
    for case in skipped {
        let reason = case["reason"].as_str().unwrap();
        assert!(
            reason.starts_with("no directory can be made: ") && reason.contains("EROFS")
                || reason.contains("read-only"),
            "{case}"
        );
    }
}

#[test]
fn it_works_below_the_path_of_the_address_and_touches_nothing_else() {
    let dir = directory();
    fs::create_dir(dir.path().join("deep")).unwrap();
    fs::write(dir.path().join("deep/mine"), "mine").unwrap();
    let (_serve, url) = serve(&[dir.path().to_str().unwrap()]);
    let before = fs::metadata(dir.path()).unwrap().modified().unwrap();
    let (code, document) = document(&["--only", "{walk,readdir}/*", &format!("{url}/deep?dialect=9P2000.u")]);
    assert_eq!(code, Some(0), "{:#?}", bad(&document));
    assert_eq!(document["dialects"], Value::from(vec!["9P2000.u"]));
    assert_eq!(fs::metadata(dir.path()).unwrap().modified().unwrap(), before, "the directory above was changed");
    assert_eq!(fs::read_dir(dir.path().join("deep")).unwrap().count(), 1);
    assert_eq!(fs::read(dir.path().join("deep/mine")).unwrap(), b"mine");
}

#[test]
fn ctrl_c_ends_it_and_the_directory_is_removed() {
    let dir = directory();
    let (_serve, url) = serve(&[dir.path().to_str().unwrap()]);
    let mut check = ninefold(&["check", &url]);
    let mut check = check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first group's line is out, and much is to come.
    let mut first = [0; 1];
    check.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    kill_process(Pid::from_child(&check), Signal::INT).unwrap();
    let output = check.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something is left behind");
}

#[test]
fn the_text_has_a_line_for_each_group_and_the_counts_at_the_end() {
    let (_serve, url) = serve(&["--ram"]);
    let (code, stdout, stderr) =
        run(&["check", "--only", "walk/*", "--only", "tags/*", "--dialect", "9P2000,9P2000.L", &url]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{stdout}");
    for (line, start) in lines.iter().zip(["9P2000   walk ", "9P2000   tags ", "9P2000.L walk ", "9P2000.L tags "]) {
        assert!(line.starts_with(start) && line.ends_with(" ok"), "{stdout}");
    }
    assert!(lines[4].starts_with(&format!("{url}: ")) && lines[4].ends_with(" ok"), "{stdout}");
}

#[test]
fn the_list_has_each_case_with_its_rule_and_needs_no_server() {
    let (code, stdout, _) = run(&["check", "--list", "--json"]);
    let cases: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: BTreeSet<&str> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!((code, names.len()), (Some(0), cases.len()), "a name is not unique");
    assert!(cases.len() >= 120, "{}", cases.len());
    for case in &cases {
        let (rule, source) = (case["rule"].as_str().unwrap(), case["source"].as_str().unwrap());
        assert!(rule.ends_with('.') && rule.len() > 20 && !source.is_empty(), "{case}");
        assert!(!case["dialects"].as_array().unwrap().is_empty());
    }
    let (code, stdout, _) = run(&["check", "--list", "--only", "walk/zero-*"]);
    assert_eq!(code, Some(0));
    assert!(
        stdout.starts_with("walk: ") && stdout.contains("walk/zero-names-clone") && !stdout.contains("tags/"),
        "{stdout}"
    );
}

#[test]
fn the_documents_tell_each_group_and_how_many_cases_there_are() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(top.join("docs/check.md")).unwrap();
    let readme = fs::read_to_string(top.join("README.md")).unwrap();
    let (_, stdout, _) = run(&["check", "--list", "--json"]);
    let cases: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let groups: BTreeSet<&str> = cases.iter().map(|case| case["group"].as_str().unwrap()).collect();
    assert!(page.contains(&format!("{} cases", cases.len())), "docs/check.md does not say {} cases", cases.len());
    assert!(readme.contains(&format!("{} rules", cases.len())), "README.md does not say {} rules", cases.len());
    for group in groups {
        let n = cases.iter().filter(|case| case["group"] == group).count();
        assert!(page.contains(&format!("| `{group}` | {n} |")), "docs/check.md has no row for {group} with {n} cases");
    }
}

#[test]
fn what_is_used_wrongly_is_told_with_exit_status_2() {
    let wrong: [(&[&str], &str); 7] = [
        (&["check"], "URL"),
        (&["check", "--dialect", "9P3000", "9p://localhost"], "9P2000.L"),
        (&["check", "9p://localhost?dialect=9P2000.ix"], "leave out .ix"),
        (&["check", "--only", "nothing/*", "9p://localhost"], "ninefold check --list"),
        (&["check", "--only", "[", "9p://localhost"], "--only"),
        (&["check", "--timeout", "0", "9p://localhost"], "waits for ever"),
        (&["check", "ftp://localhost"], "9p+unix"),
    ];
    for (words, told) in wrong {
        let (code, stdout, stderr) = run(words);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words:?}: {stderr}");
        assert!(stderr.contains(told), "{words:?}: {stderr}");
    }
}

#[test]
fn nobody_there_and_no_such_tree_are_told_with_what_to_do() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, _, stderr) = run(&["check", &format!("9p://{gone}")]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("start the server"), "{stderr}");
    let (_serve, url) = serve(&["--ram"]);
    for (address, told) in [(format!("{url}/none"), "walk to the path"), (format!("{url}?aname=none"), "?aname=NAME")] {
        let (code, _, stderr) = run(&["check", &address]);
        assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
        assert!(stderr.contains(&url) && stderr.contains(told), "{stderr}");
    }
}

#[test]
fn a_server_that_never_answers_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("9p://{}", silent.local_addr().unwrap());
    // Kept open, and never read.
    let holder = std::thread::spawn(move || silent.incoming().take(5).collect::<Vec<_>>());
    let (code, _, stderr) = run(&["check", "--timeout", "0.3", &url]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no answer in 0.3 s") && stderr.contains("is it a 9P server?"), "{stderr}");
    drop(holder);
}

#[test]
fn a_server_of_something_else_is_told_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("9p://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            // Perhaps it is gone by then.
            let _ = client.unwrap().write_all(b"220 mail.example ESMTP\r\n");
        }
    });
    let (code, _, stderr) = run(&["check", &url]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("is it a 9P server?"), "{stderr}");
}

/// Where a read of 2^32-1 bytes ends the server, but late: the connection on which the next request behind a Tversion comes goes too.
struct Fragile {
    server: String,
    is_dying: AtomicBool,
}

const TVERSION: u8 = 100;
const TREAD: u8 = 116;

impl Fragile {
    /// Hands on what the client asks until the end, whosever it is.
    fn pass(&self, mut client: TcpStream) -> std::io::Result<()> {
        let mut server = TcpStream::connect(self.server.trim_start_matches("9p://"))?;
        let (mut replies, mut back) = (server.try_clone()?, client.try_clone()?);
        let replying = std::thread::spawn(move || {
            let _ = std::io::copy(&mut replies, &mut back);
        });
        loop {
            let mut size = [0; 4];
            client.read_exact(&mut size)?;
            let mut body = vec![0; u32::from_le_bytes(size) as usize - 4];
            client.read_exact(&mut body)?;
            let is_deadly = body[0] == TREAD && body.ends_with(&u32::MAX.to_le_bytes());
            let is_late = body[0] != TVERSION && self.is_dying.swap(false, Ordering::SeqCst);
            if is_deadly || is_late {
                self.is_dying.store(is_deadly, Ordering::SeqCst);
                server.shutdown(Shutdown::Both)?;
                replying.join().unwrap();
                return client.shutdown(Shutdown::Both);
            }
            server.write_all(&size)?;
            server.write_all(&body)?;
        }
    }
}

#[test]
fn a_case_that_the_one_before_ended_is_run_again() {
    let (_serve, server) = serve(&["--ram"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("9p://{}", listener.local_addr().unwrap());
    let fragile = Arc::new(Fragile { server, is_dying: AtomicBool::new(false) });
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (fragile, client) = (fragile.clone(), client.unwrap());
            // An error is an end like others.
            std::thread::spawn(move || fragile.pass(client));
        }
    });
    let (code, document) = document(&["--dialect", "9P2000.L", "--only", "msize/re*", &url]);
    let ended = |name: &str| {
        let case = document["cases"].as_array().unwrap().iter().find(|case| case["name"] == name);
        case.unwrap_or_else(|| panic!("{name}: {document}"))["verdict"].clone()
    };
    assert_eq!(ended("msize/reply-never-exceeds-it"), "fail", "{document}");
    assert_eq!(ended("msize/read-of-a-full-message-is-clipped"), "ok", "{document}");
    assert_eq!((code, &document["counts"]["fail"]), (Some(1), &Value::from(1)), "{:#?}", bad(&document));
}
