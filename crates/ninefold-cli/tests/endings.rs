//! How commands end before their time: by a signal, by a server that stalls, stops or goes away.
//!
//! Each test prints how long the end took; what is asserted is a bound that only a failing one reaches.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ninefold::proto::Dialect;
use rustix::process::{Pid, Signal, kill_process};
use support::relay::{Deed, Relay};
use support::share::Share;
use support::{PATIENCE, ninefold};

/// What ended sooner gave no server up.
const PATIENT: Duration = Duration::from_millis(80);

/// A machine that does other things may take longer once or twice.
const ATTEMPTS: usize = 10;

/// An end is under 100 ms; a machine that does other things meanwhile is given more.
const SOON: Duration = Duration::from_secs(2);

fn start(args: &[&str]) -> Child {
    ninefold(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits for the end: the exit status, and what it said.
fn end(mut child: Child) -> (Option<i32>, String) {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("still running after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), None, "{said}");
    (status.code(), said)
}

/// Sends the signal and waits for the end, which must be soon; what it said. A command that gave the server up, because
/// it or this machine was too slow, may name what it left: then nothing is told.
#[track_caller]
fn interrupt(what: &str, child: Child, signal: Signal) -> Option<String> {
    let began = Instant::now();
    send(&child, signal);
    let (code, said) = end(child);
    let took = began.elapsed();
    println!("{what}: ended {:.1} ms after the signal", took.as_secs_f64() * 1e3);
    assert_eq!(code, Some(130), "{what}: {said}");
    assert!(took < SOON, "{what}: {took:?}");
    (took < PATIENT).then_some(said)
}

/// Waits until something is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A tree for every command.
fn tree() -> Share {
    let share = Share::new();
    share.make("f", "x".repeat(100_000));
    share.make("g", "y");
    share.make("tree/a/b", "x");
    share.make("tree/c", "x");
    share
}

/// What is run, with URLs for `@NAME`, and the requests that the server leaves unanswered.
const STALLS: &[(&str, &[&str])] = &[
    ("ls -l @", &["Treaddir", "Tread"]),
    ("cat @f", &["Tread"]),
    ("stat @f", &["Tgetattr", "Tstat"]),
    ("du @", &["Treaddir", "Tread"]),
    ("find @", &["Treaddir", "Tread"]),
    ("write @new", &["Twrite"]),
    ("write @new", &["Tlcreate", "Tcreate"]),
    ("write @g", &["Tlopen", "Topen"]),
    ("write -a @f", &["Twrite"]),
    ("rm @f", &["Tunlinkat", "Tremove"]),
    ("rm -r @tree", &["Treaddir", "Tread"]),
    ("rm -r @tree", &["Tunlinkat", "Tremove"]),
    ("mv @f @h", &["Trenameat", "Twstat"]),
    ("mkdir @d", &["Tmkdir", "Tcreate"]),
    ("ln -s text @l", &["Tsymlink", "Tcreate"]),
    ("ln @f @l", &["Tlink", "Tcreate"]),
    ("ln -s -f text @g", &["Trenameat", "Twstat"]),
    ("chmod 600 @f", &["Tsetattr", "Twstat"]),
    ("chmod -R 700 @tree", &["Tsetattr", "Twstat"]),
    ("chown 0 @f", &["Tsetattr", "Twstat"]),
    ("truncate -s 1 @f", &["Tsetattr", "Twstat"]),
    ("cp @f @new", &["Tread"]),
    ("cp @f @new", &["Twrite"]),
    ("cp @f @g", &["Trenameat", "Twstat"]),
    ("cp @f @new", &["Tlcreate", "Tcreate"]),
];

fn words(line: &str, relay: &Relay, dialect: Dialect) -> Vec<String> {
    let word = |word: &str| word.strip_prefix('@').map_or(word.to_owned(), |path| relay.url(path, dialect));
    line.split(' ').map(word).collect()
}

#[test]
fn a_signal_ends_every_command_at_a_server_that_stalls_and_leaves_it_no_fid_and_no_request() {
    for dialect in Dialect::ALL {
        for (line, kinds) in STALLS {
            if dialect == Dialect::Plan9 && (line.starts_with("ln") || line.starts_with("chown")) {
                // It has no such thing.
                continue;
            }
            assert!((0..ATTEMPTS).any(|_| leaves_nothing(line, kinds, dialect)), "{line}, {dialect}: always given up");
        }
    }
}

/// Whether the server was not given up; then nothing may be left.
fn leaves_nothing(line: &str, kinds: &[&str], dialect: Dialect) -> bool {
    let share = tree();
    let relay = Relay::new(share.place(), kinds, Deed::Hold);
    let names = share.names(".");
    let args = words(line, &relay, dialect);
    let mut child = start(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let mut stdin = child.stdin.take().unwrap();
    // Its end is not told: it may go on for ever. A command may not read it.
    let _ = stdin.write_all(b"input");
    let held = relay.wait();
    let what = format!("{line}, {dialect}, at {}", held.split(' ').next().unwrap_or_default());
    // A Tremove that is never answered is waited for in vain: what is removed is not known.
    let is_in_vain = held.starts_with("Tremove");
    let Some(said) = interrupt(&what, child, Signal::INT).or(is_in_vain.then(String::new)) else { return false };
    drop(stdin);
    let lines = relay.lines();
    let (fids, requests) = relay.end();
    assert!(fids.is_empty(), "{what}: fids {fids:?} were left: {lines:#?}");
    assert!(requests.is_empty(), "{what}: unanswered and not flushed: {requests:?}: {lines:#?}");
    assert_eq!((said.as_str(), share.names(".")), ("", names), "{what}");
    true
}

#[test]
fn a_signal_ends_a_write_whose_input_does_not_end_and_leaves_no_temporary_file() {
    for signal in [Signal::INT, Signal::TERM] {
        let share = tree();
        share.make("f", "old");
        let names = share.names(".");
        let mut child = start(&["write", &share.url("f", Dialect::Linux)]);
        child.stdin.as_mut().unwrap().write_all(b"half").unwrap();
        until("a temporary file", || share.names(".") != names);
        if let Some(said) = interrupt("write, input without end", child, signal) {
            assert_eq!((said.as_str(), share.names(".")), ("", names));
        }
        assert_eq!(share.read("f"), b"old");
    }
}

#[test]
fn a_signal_ends_a_command_whose_output_nobody_reads() {
    let share = tree();
    share.make("big", vec![b'x'; 4 << 20]);
    for args in [["cat", &share.url("big", Dialect::Linux)], ["cat", &share.url("big", Dialect::Plan9)]] {
        let mut child = start(&args);
        // It prints by now, and more than a pipe holds.
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 4096]).unwrap();
        let mut stdout = child.stdout.take();
        interrupt("cat, output that nobody reads", child, Signal::INT);
        drop(stdout.take());
    }
}

#[test]
fn a_signal_ends_an_open_that_waits_at_the_server() {
    let share = tree();
    rustix::fs::mkfifoat(rustix::fs::CWD, share.path("fifo"), 0o644.into()).unwrap();
    let relay = Relay::new(share.place(), &[], Deed::Hold);
    let child = start(&["cat", &relay.url("fifo", Dialect::Linux)]);
    // The server waits for somebody to write.
    until("an open", || relay.lines().iter().any(|line| line.starts_with("→ Tlopen")));
    interrupt("cat, a fifo that nobody writes to", child, Signal::INT);
    let lines = relay.lines();
    let (fids, requests) = relay.end();
    assert!(fids.is_empty() && requests.is_empty(), "{fids:?} {requests:?} {lines:#?}");
}

#[test]
fn a_signal_ends_every_command_at_a_server_that_never_speaks() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("9p://{}/x", listener.local_addr().unwrap());
    let (sender, accepted) = std::sync::mpsc::channel();
    std::thread::spawn(move || listener.incoming().try_for_each(|client| sender.send(client.unwrap())));
    for line in [
        "ls @",
        "cat @",
        "stat @",
        "du @",
        "find @",
        "write @",
        "rm @",
        "mv @ @y",
        "mkdir @",
        "ln -s x @",
        "chmod 0 @",
        "chown 0 @",
        "truncate -s 0 @",
        "cp -r @ /nowhere",
    ] {
        let line = line.replace('@', &url);
        let child = start(&line.split(' ').collect::<Vec<_>>());
        let mut client = accepted.recv_timeout(PATIENCE).expect("a connection in time");
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.read_exact(&mut [0; 7]).unwrap();
        interrupt(&format!("{}, a server that never speaks", line.replace(&url, "@")), child, Signal::INT);
    }
}

#[test]
fn at_a_server_that_is_stopped_a_signal_ends_a_write_and_says_which_file_may_be_left() {
    let share = tree();
    let names = share.names(".");
    let mut child = start(&["write", &share.url("f", Dialect::Linux)]);
    child.stdin.as_mut().unwrap().write_all(b"half").unwrap();
    until("a temporary file", || share.names(".") != names);
    share.server.stop();
    send(&child, Signal::INT);
    let began = Instant::now();
    let (code, said) = end(child);
    println!("write, a server that is stopped: ended {:.1} ms after the signal", began.elapsed().as_secs_f64() * 1e3);
    assert!(code == Some(130) && began.elapsed() < SOON);
    let left: Vec<_> = share.names(".").into_iter().filter(|name| !names.contains(name)).collect();
    share.server.signal(Signal::CONT);
    let [left] = &left[..] else { panic!("{left:?}") };
    let address = format!("{}/{left}?dialect=9P2000.L", share.place());
    assert_eq!(said, format!("ninefold: {address}: this temporary file may be left: remove it\n"));
    // What it says to do can be done.
    assert_eq!(end(start(&["rm", "-f", &address])), (Some(0), String::new()));
    assert_eq!(share.names("."), names);
}

#[test]
fn a_second_signal_does_not_wait_for_the_server() {
    // A round trip of half a second gives the farewell two seconds.
    let share = tree();
    let relay = Relay::with_delay(share.place(), &["Tread"], Deed::Hold, Duration::from_millis(250));
    let child = start(&["cat", &relay.url("f", Dialect::Linux)]);
    relay.wait();
    share.server.stop();
    send(&child, Signal::INT);
    // The first signal is taken when the flush is seen.
    until("a flush", || relay.lines().iter().any(|line| line.starts_with("→ Tflush")));
    interrupt("cat, the second signal", child, Signal::INT);
    share.server.signal(Signal::CONT);
}

#[test]
fn over_a_link_with_delay_a_signal_leaves_nothing_behind_either() {
    let share = tree();
    let names = share.names(".");
    let relay = Relay::with_delay(share.place(), &[], Deed::Hold, Duration::from_millis(100));
    let mut child = start(&["write", &relay.url("f", Dialect::Linux)]);
    child.stdin.as_mut().unwrap().write_all(b"half").unwrap();
    until("a temporary file", || share.names(".") != names);
    interrupt("write, a round trip of 200 ms", child, Signal::INT);
    let lines = relay.lines();
    let (fids, requests) = relay.end();
    assert!(fids.is_empty() && requests.is_empty(), "{fids:?} {requests:?} {lines:#?}");
    assert_eq!(share.names("."), names);
}

#[test]
fn a_connection_that_is_lost_in_the_middle_fails_with_a_message() {
    for (line, kinds) in STALLS {
        let share = tree();
        let relay = Relay::new(share.place(), kinds, Deed::Close);
        let names = share.names(".");
        let args = words(line, &relay, Dialect::Linux);
        let mut child = start(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let mut stdin = child.stdin.take().unwrap();
        let _ = stdin.write_all(b"input");
        relay.wait();
        drop(stdin);
        let (code, said) = end(child);
        assert_eq!(code, Some(1), "{line}: {said}");
        assert!(said.contains("the connection is lost: the server closed it"), "{line}: {said}");
        // A temporary file that could not be removed is named.
        for name in share.names(".").iter().filter(|name| !names.contains(name)) {
            assert!(said.contains(&format!("/{name}?dialect=9P2000.L: this temporary")), "{line}: {name}: {said}");
        }
        assert_eq!((share.read("f").len(), share.read("g")), (100_000, b"y".to_vec()), "{line}");
    }
}

#[test]
fn a_server_that_does_not_answer_in_time_fails_with_a_message_and_keeps_nothing() {
    // All at a time: each waits for two seconds.
    std::thread::scope(|scope| {
        for (line, kinds) in STALLS {
            scope.spawn(|| out_of_time(line, kinds));
        }
    });
}

fn out_of_time(line: &str, kinds: &[&str]) {
    let share = tree();
    let relay = Relay::new(share.place(), kinds, Deed::Hold);
    let names = share.names(".");
    let mut args = words(line, &relay, Dialect::Linux);
    args.extend(["--timeout".to_owned(), "2".to_owned()]);
    let mut child = start(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(b"input");
    drop(stdin);
    let (code, said) = end(child);
    assert_eq!(code, Some(1), "{line}: {said}");
    assert!(said.contains("no reply within 2s: try again, or give it longer with --timeout"), "{line}: {said}");
    let lines = relay.lines();
    let (fids, requests) = relay.end();
    assert!(fids.is_empty() && requests.is_empty(), "{line}: {fids:?} {requests:?} {lines:#?}");
    assert_eq!(share.names("."), names, "{line}: {said}");
}
