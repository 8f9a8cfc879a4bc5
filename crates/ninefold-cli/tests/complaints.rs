//! What a command says when it fails: the file, the server, and what to do.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ninefold::proto::Dialect;
use support::share::{Share, feed};
use support::{PATIENCE, frame, receive, run};

/// The complaint of a command that fails.
#[track_caller]
fn complaint(args: &[&str]) -> String {
    let (code, stdout, stderr) = run(args);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{args:?}: {stderr}");
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    lines[0].strip_prefix("ninefold: ").unwrap().to_owned()
}

#[test]
fn a_server_that_is_not_there_is_named_once_with_what_to_do() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = format!("9p://{gone}");
    let said = complaint(&["cat", &format!("{place}/x")]);
    assert_eq!(said, format!("{place}: cannot connect: nobody listens there: start the server, or check the address"));
    // Each file is told of; the server is tried once.
    let (code, _, said) = run(&["rm", &format!("{place}/x"), &format!("{place}/y")]);
    assert_eq!((code, said.lines().count()), (Some(1), 2));
    let said = complaint(&["rm", "9p+unix:/no/such/socket:/x"]);
    assert!(said.starts_with("9p+unix:/no/such/socket: cannot connect: there is no such socket"), "{said}");
    let said = complaint(&["rm", "9p://no-such-host.invalid/x"]);
    assert!(said.starts_with("9p://no-such-host.invalid:5640: cannot connect: "), "{said}");
}

#[test]
fn a_server_of_something_else_is_asked_about() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("9p://{}/x", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            client.read_exact(&mut [0; 7]).unwrap();
            // Perhaps it is gone by then.
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let said = complaint(&["cat", &url]);
    assert!(
        said.contains("cannot connect: the server broke the protocol") && said.contains("is it a 9P server?"),
        "{said}"
    );
}

#[test]
fn who_hangs_up_before_he_has_said_anything_is_asked_about_and_not_who_does_later() {
    for speaks in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = format!("9p://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                receive(&mut client, Dialect::Linux).unwrap();
                if speaks {
                    let agreed = "Rversion tag -1 msize 8192 version '9P2000.L'";
                    client.write_all(&frame(agreed, Dialect::Linux)).unwrap();
                }
                // What was not read would reset the connection.
                client.shutdown(Shutdown::Write).unwrap();
                let _ = client.read_to_end(&mut Vec::new());
            }
        });
        let said = complaint(&["ls", &format!("{place}?dialect=9P2000.L")]);
        let why = if speaks {
            "it: the server, or the way to it, is gone: try again"
        } else {
            "it without a word: is it a 9P server?"
        };
        assert_eq!(said, format!("{place}: cannot connect: the connection is lost: the server closed {why}"));
    }

    let share = Share::new();
    share.make("large", vec![b'x'; 4 << 20]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("9p://{}/large?dialect=9P2000.L", listener.local_addr().unwrap());
    let server = share.address();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(server).unwrap();
        let (mut requests, mut asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut requests, &mut asked));
        // In the middle of what it reads.
        let _ = std::io::copy(&mut (&mut server).take(1 << 20), &mut client);
        client.shutdown(Shutdown::Both).unwrap();
    });
    let dir = tempfile::tempdir().unwrap();
    let said = complaint(&["cp", &url, &dir.path().join("there").to_string_lossy()]);
    assert!(said.contains("the server, or the way to it, is gone: try again"), "{said}");
    assert!(!said.contains("9P server"), "{said}");
}

#[test]
fn a_tree_that_the_server_does_not_have_is_named() {
    let share = Share::new();
    let said = complaint(&["rm", &format!("{}/x?aname=other", share.place())]);
    assert!(
        said.starts_with(&format!("{}: cannot attach: file does not exist: it has no tree 'other'", share.place())),
        "{said}"
    );
    assert!(said.contains("?aname=NAME"), "{said}");
}

#[test]
fn a_dialect_that_the_server_does_not_speak_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("9p://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            while support::receive(&mut client, Dialect::Linux).is_some() {
                let _ =
                    client.write_all(&support::frame("Rversion tag -1 msize 8192 version 'unknown'", Dialect::Linux));
            }
        }
    });
    let said = complaint(&["rm", &format!("{place}/x?dialect=9P2000.u")]);
    let expected =
        "cannot connect: the server does not speak 9P2000.u: leave ?dialect= out, or name one that it speaks";
    assert_eq!(said, format!("{place}: {expected}"));
}

#[test]
fn a_full_disk_is_told_with_what_to_do() {
    // A disk that is always full.
    let server = support::Running::start(&["serve", "/dev", "--listen", "9p://127.0.0.1:0"]);
    let url = format!("9p://{}/full", server.tcp());
    let (code, said) = feed(&["write", &url], b"x");
    assert_eq!(code, Some(1), "{said}");
    let expected = format!("ninefold: {url}: cannot write: file system full: make room where it is served\n");
    assert!(said.ends_with(&expected), "{said}");
}

#[test]
fn statistics_are_written_after_a_failure_too() {
    let share = Share::new();
    let stats = share.path("stats");
    let url = share.url("none", Dialect::Unix);
    let (code, _, _) = run(&["rm", &url, "--stats", stats.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(stats).unwrap()).unwrap();
    assert_eq!((&stats["dialect"], &stats["server"]), (&"9P2000.u".into(), &share.place().into()));
    assert_eq!(stats["messages"]["Tattach"], 1);
    assert!(stats["round_trips"].as_u64().unwrap() >= 3, "{stats}");
    // To standard error, and to where it cannot be written.
    let (code, _, said) = run(&["rm", "-f", &url, "--stats", "-"]);
    assert_eq!(code, Some(0));
    assert!(said.starts_with('{'), "{said}");
    let (code, _, said) = run(&["rm", "-f", &url, "--stats", "/no/such/file"]);
    assert!(code == Some(1) && said.contains("/no/such/file: cannot write the statistics"), "{said}");
}

/// diod, which ends with this.
struct Diod {
    child: Child,
    place: String,
}

impl Diod {
    /// `None` where there is none.
    fn serve(dir: &std::path::Path) -> Option<Diod> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new("diod");
        command.args(["-f", "-n", "-c", "/dev/null", "-l", &address, "-e"]).arg(dir).current_dir(dir);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let began = Instant::now();
        while std::net::TcpStream::connect(&address).is_err() {
            assert!(began.elapsed() < PATIENCE, "diod does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Diod { child, place: format!("9p://{address}") })
    }
}

impl Drop for Diod {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn diod_is_asked_for_the_tree_by_its_path_and_changed_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let Some(diod) = Diod::serve(dir.path()) else {
        return support::skip("diod_is_asked_for_the_tree_by_its_path_and_changed_like_any_other", "needs diod");
    };
    let said = complaint(&["rm", &format!("{}/x", diod.place)]);
    assert!(said.contains("cannot attach: ") && said.contains("it has no tree without a name"), "{said}");
    assert!(said.contains("diod's names are the paths that it exports"), "{said}");
    let url = |path: &str| format!("{}/{path}?aname={}", diod.place, dir.path().display());
    let said = complaint(&["rm", &url("none/f")]);
    assert!(said.contains("/none?aname=") && said.contains("does not exist: check the path"), "{said}");
    for content in ["first", "second"] {
        assert_eq!(feed(&["write", &url("f")], content.as_bytes()), (Some(0), String::new()));
        assert_eq!(std::fs::read_to_string(dir.path().join("f")).unwrap(), content);
    }
    for args in [
        &["mkdir", "-p", &url("d/e")][..],
        &["mv", &url("f"), &url("d/e")],
        &["ln", "-s", "e/f", &url("d/l")],
        &["ln", &url("d/e/f"), &url("d/h")],
        &["chmod", "-R", "go-rwx", &url("d")],
        &["truncate", "-s", "3", &url("d/h")],
    ] {
        assert_eq!(feed(args, b""), (Some(0), String::new()), "{args:?}");
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("d/e/f")).unwrap(), "sec");
    assert_eq!(feed(&["rm", "-r", &url("d")], b""), (Some(0), String::new()));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
