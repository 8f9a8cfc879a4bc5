//! `ninefold trace` and `ninefold iostat` between a client and a server that can only agree on a version.

mod support;

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::Instant;

use ninefold::proto::Dialect;
use rustix::process::Signal;
use support::{PATIENCE, Running, ask, connect, frame, receive, version};

/// Answers every Tversion with .L and everything else with ENOENT; its address.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while let Some(request) = receive(&mut stream, Dialect::Linux) {
                let reply = match request.starts_with("Tversion") {
                    true => "Rversion tag -1 msize 8192 version '9P2000.L'",
                    false => "Rlerror tag 0 ecode 2",
                };
                stream.write_all(&frame(reply, Dialect::Linux)).unwrap();
            }
        }
    });
    format!("9p://{address}")
}

const ATTACH: &str = "Tattach tag 0 fid 1 afid -1 uname 'ken' aname '' n_uname 7";

fn talk(relay: &Running) {
    let mut client = connect(relay.tcp());
    assert_eq!(
        ask(&mut client, &version(Dialect::Linux), Dialect::Linux),
        "Rversion tag -1 msize 8192 version '9P2000.L'"
    );
    assert_eq!(ask(&mut client, ATTACH, Dialect::Linux), "Rlerror tag 0 ecode 2");
}

#[test]
fn trace_prints_what_a_transcript_is_written_in() {
    let trace = Running::start(&["trace", &server()]);
    talk(&trace);
    trace.signal(Signal::INT);
    let (code, lines) = trace.end();
    assert_eq!(code, Some(0));
    let expected = [
        "→ Tversion tag -1 msize 8192 version '9P2000.L'",
        "← Rversion tag -1 msize 8192 version '9P2000.L'",
        &format!("→ {ATTACH}"),
        "← Rlerror tag 0 ecode 2",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn trace_says_which_connection_a_line_is_of_once_there_are_two() {
    let trace = Running::start(&["trace", &server()]);
    let address = trace.tcp();
    for (number, expected) in [(1, "→ Tversion"), (2, "[2] → Tversion")] {
        let mut client = connect(address);
        ask(&mut client, &version(Dialect::Linux), Dialect::Linux);
        let line = trace.line();
        assert!(line.starts_with(expected), "connection {number}: {line}");
        assert!(trace.line().contains('←'));
    }
}

#[test]
fn trace_logs_into_a_file_in_json_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let trace = Running::start(&["trace", "--json", "--log", log.to_str().unwrap(), &server()]);
    talk(&trace);
    trace.signal(Signal::TERM);
    assert_eq!(trace.end(), (Some(0), vec![]));
    let log = std::fs::read_to_string(log).unwrap();
    let objects: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 4);
    assert_eq!((&objects[2]["to"], &objects[2]["text"]), (&"server".into(), &ATTACH.into()));
}

#[test]
fn trace_names_the_output_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let server = server();
    for (args, named) in [
        (vec!["trace", "--log", log.to_str().unwrap(), &server], "standard output: "),
        (vec!["trace", &server], "standard output: "),
    ] {
        let output = support::ninefold(&args).stdin(Stdio::null()).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(named), "{said}");
    }
}

#[test]
fn iostat_counts_by_type_and_prints_at_the_end() {
    let iostat = Running::start(&["iostat", &server()]);
    talk(&iostat);
    iostat.signal(Signal::INT);
    let (code, lines) = iostat.end();
    assert_eq!(code, Some(0));
    assert!(lines[0].starts_with("total: 1 connections, "), "{lines:?}");
    let words = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        lines[2..].iter().map(|line| words(line)).collect::<Vec<_>>(),
        [["Tattach", "1", "1"], ["Tversion", "1", "0"]]
    );
}

#[test]
fn iostat_prints_json_when_asked() {
    let iostat = Running::start(&["iostat", "--json", &server()]);
    let first: serde_json::Value = serde_json::from_str(&iostat.line()).unwrap();
    let address = first["address"].as_str().unwrap().strip_prefix("9p://").unwrap();
    let mut client = connect(address.parse().unwrap());
    ask(&mut client, &version(Dialect::Linux), Dialect::Linux);
    iostat.signal(Signal::INT);
    let (code, lines) = iostat.end();
    assert_eq!((code, lines.len()), (Some(0), 1));
    let total: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(total["messages"]["Tversion"]["count"], 1);
    assert!(total["messages"]["Tversion"]["p99"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_server_that_cannot_be_reached_ends_the_connection_and_not_the_relay() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let trace = Running::start(&["trace", &format!("9p://{gone}")]);
    let address = trace.tcp();
    for _ in 0..2 {
        assert_eq!(receive(&mut connect(address), Dialect::Linux), None);
    }
    trace.signal(Signal::TERM);
    assert_eq!(trace.end(), (Some(0), vec![]));
}

/// A client that comes while descriptors are still short is hung up on.
fn is_served(address: SocketAddr) -> bool {
    let mut client = connect(address);
    let sent = client.write_all(&frame(&version(Dialect::Linux), Dialect::Linux));
    sent.is_ok() && receive(&mut client, Dialect::Linux).is_some()
}

#[test]
fn without_descriptors_accepting_waits_and_does_not_spin() {
    let mut trace = std::process::Command::new("sh");
    trace.args(["-c", "ulimit -n 24; exec \"$0\" trace \"$1\""]).args([env!("CARGO_BIN_EXE_ninefold"), &server()]);
    let trace = Running::spawn(trace.stderr(Stdio::piped()));
    let address = trace.tcp();
    let clients: Vec<_> = (0..40).map(|_| connect(address)).collect();
    trace.complaint("cannot accept clients");
    drop(clients);
    // Served again, once the descriptors of those that hung up are free.
    let began = Instant::now();
    while !is_served(address) {
        assert!(began.elapsed() < PATIENCE);
    }
    let complaints = trace.complaints().iter().filter(|line| line.contains("cannot accept")).count();
    // 8 waits that double from 5 ms to a second, and one a second after that: a spin would make thousands.
    assert!(complaints < 40, "{complaints}");
}
