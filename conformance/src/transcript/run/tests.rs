use super::*;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread::{self, JoinHandle};

use ninefold_proto::wire::frame_size;

/// A server that follows a plan: T lines are what it must get, the R lines below each what it answers; `close` closes.
fn server(plan: &str) -> (Address, JoinHandle<()>) {
    let mut plan: VecDeque<String> = plan.lines().map(str::to_owned).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while let Some(line) = request(&mut stream) {
            // The proof of silence at the end of a script needs no line in the plan.
            match plan.pop_front() {
                Some(expected) => assert_eq!(line, expected),
                None => plan.push_back(PROVEN.to_owned()),
            }
            while plan.front().is_some_and(|line| !line.starts_with('T')) {
                let answer = plan.pop_front().unwrap();
                if answer == "close" {
                    return;
                }
                // A client that has found its fault is gone.
                let _ = stream.write_all(&parse(&answer, Dialect::Linux).unwrap());
            }
        }
    });
    (format!("9p://127.0.0.1:{port}").parse().unwrap(), thread)
}

fn request(stream: &mut impl Read) -> Option<String> {
    let mut frame = vec![0; 4];
    stream.read_exact(&mut frame).ok()?;
    let size = frame_size(&frame, 65536).unwrap().unwrap();
    frame.resize(size, 0);
    stream.read_exact(&mut frame[4..]).ok()?;
    Some(print(&frame, Dialect::Linux, Data::Whole).to_string())
}

fn replay(plan: &str, script: &str) -> Result<Outcome, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.9p");
    std::fs::write(&file, format!("dialect 9P2000.L\n{script}")).unwrap();
    let (address, thread) = server(plan);
    let mut target = Target::new(address);
    target.deadline = Duration::from_millis(300);
    let outcome = run(&Script::load(&file).unwrap(), &target).map_err(|failure| failure.to_string());
    thread.join().expect("the server got what it had to get");
    outcome.map_err(|text| text.replace(&*dir.path().to_string_lossy(), ""))
}

const VERSION: &str = "Tversion tag -1 msize 4096 version '9P2000.L'\nRversion tag -1 msize 4096 version '9P2000.L'\n";
const SAY_VERSION: &str = "Tversion tag -1 msize 4096 version '9P2000.L'\nRversion tag -1 msize 4096 version *\n";

#[test]
fn a_conversation_as_written_passes() {
    let outcome = replay(
        "Tclunk tag 1 fid 1\nRclunk tag 1\nTclunk tag 2 fid 2\nRlerror tag 2 ecode 9",
        "→ Tclunk tag 1 fid 1\n← Rclunk tag 1\n\n# said twice\nTclunk tag 2 fid 2\nRlerror tag 2 ecode 9\n",
    );
    assert_eq!(outcome, Ok(Outcome::Passed));
}

#[test]
fn a_wrong_reply_is_told_with_its_line_and_both_texts() {
    let plan = "Tclunk tag 1 fid 1\nRlerror tag 1 ecode 9";
    let failure = replay(plan, "Tclunk tag 1 fid 1\nRclunk tag 1\n").unwrap_err();
    assert!(failure.starts_with("/t.9p:3: "), "{failure}");
    assert!(failure.contains("expected: Rclunk tag 1\n"), "{failure}");
    assert!(failure.ends_with("got: Rlerror tag 1 ecode 9"), "{failure}");
}

#[test]
fn replies_of_a_group_may_come_in_any_order() {
    let plan = "Tclunk tag 1 fid 1\nTclunk tag 2 fid 2\nRclunk tag 2\nRclunk tag 1";
    let script = "Tclunk tag 1 fid 1\nTclunk tag 2 fid 2\nRclunk tag 1\nRclunk tag 2\n";
    assert_eq!(replay(plan, script), Ok(Outcome::Passed));
}

#[test]
fn next_fixes_the_order_of_replies() {
    let plan = "Tclunk tag 1 fid 1\nTclunk tag 2 fid 2\nRclunk tag 2\nRclunk tag 1";
    let script = "Tclunk tag 1 fid 1\nTclunk tag 2 fid 2\nRclunk tag 2\nnext\nRclunk tag 1\n";
    assert_eq!(replay(plan, script), Ok(Outcome::Passed));
    let script = "Tclunk tag 1 fid 1\nTclunk tag 2 fid 2\nRclunk tag 1\nnext\nRclunk tag 2\n";
    assert!(replay(plan, script).unwrap_err().ends_with("got: Rclunk tag 2"));
}

#[test]
fn a_value_taken_from_a_reply_goes_into_later_requests() {
    let plan = "Tclunk tag 1 fid 1\nRwrite tag 1 count 77\nTclunk tag 1 fid 77\nRwrite tag 1 count 78\n\
        Tclunk tag 1 fid 1\nRwrite tag 1 count 77";
    let script = "Tclunk tag 1 fid 1\nRwrite tag 1 count $n\nTclunk tag 1 fid $n\nRwrite tag 1 count $m\n\
        Tclunk tag 1 fid 1\nRwrite tag 1 count $n\n";
    assert_eq!(replay(plan, script), Ok(Outcome::Passed));
    let failure = replay(plan, &script.replace("$m", "$n")).unwrap_err();
    assert!(failure.contains("expected: Rwrite tag 1 count 77\n"), "{failure}");
}

#[test]
fn a_server_that_says_nothing_meets_the_deadline() {
    let failure = replay("Tclunk tag 1 fid 1", "Tclunk tag 1 fid 1\nRclunk tag 1\n").unwrap_err();
    assert!(failure.starts_with("/t.9p:3: "), "{failure}");
    assert!(failure.contains("got: nothing in 300ms"), "{failure}");
}

#[test]
fn closed_wants_the_connection_closed_and_nothing_before_it() {
    let script = "Tclunk tag 1 fid 1\nclosed\n";
    assert_eq!(replay("Tclunk tag 1 fid 1\nclose", script), Ok(Outcome::Passed));
    let failure = replay("Tclunk tag 1 fid 1\nRclunk tag 1\nclose", script).unwrap_err();
    assert!(failure.ends_with("got: Rclunk tag 1"), "{failure}");
    let failure = replay("Tclunk tag 1 fid 1", script).unwrap_err();
    assert!(failure.ends_with("got: nothing in 300ms"), "{failure}");
    let failure = replay("Tclunk tag 1 fid 1\nclose", "Tclunk tag 1 fid 1\nRclunk tag 1\n").unwrap_err();
    assert!(failure.ends_with("got: the server closed the connection"), "{failure}");
}

#[test]
fn none_finds_a_message_that_nobody_expected() {
    let plan = "Tclunk tag 1 fid 1";
    assert_eq!(replay(plan, "Tclunk tag 1 fid 1\nnone\n"), Ok(Outcome::Passed));
    let plan = "Tclunk tag 1 fid 1\nRclunk tag 1";
    let failure = replay(plan, "Tclunk tag 1 fid 1\nnone\n").unwrap_err();
    assert!(failure.starts_with("/t.9p:3: ") && failure.ends_with("got: Rclunk tag 1"), "{failure}");
}

#[test]
fn a_reply_left_over_at_the_end_is_a_failure() {
    let script = format!("{SAY_VERSION}Tclunk tag 1 fid 1\nRclunk tag 1\n");
    let one = format!("{VERSION}Tclunk tag 1 fid 1\nRclunk tag 1\n");
    let two = format!("{one}Rclunk tag 1\n");
    assert_eq!(replay(&one, &script), Ok(Outcome::Passed));
    assert!(replay(&two, &script).unwrap_err().ends_with("got: Rclunk tag 1"));
}

#[test]
fn a_frame_over_the_agreed_msize_is_a_failure() {
    let script = format!("{SAY_VERSION}Tread tag 1 fid 1 offset 0 count 9\nRread tag 1 count * *\n");
    let large = format!("Rread tag 1 count 4086 '{}'", "x".repeat(4086));
    let plan = format!("{VERSION}Tread tag 1 fid 1 offset 0 count 9\n{large}");
    let failure = replay(&plan, &script).unwrap_err();
    assert!(failure.contains("4097 is over 4096"), "{failure}");
}

#[test]
fn a_directory_read_is_compared_record_by_record() {
    let stat = "q (1 0 ) m --rw-r--r-- at 1 mt 2 l 3 t 0 d 0";
    let mut data = Vec::new();
    for name in ["a", "b"] {
        let line = format!("Rstat tag 1 stat '{name}' 'u' 'g' 'm' {stat}");
        let frame = parse(&line, Dialect::Plan9).unwrap();
        data.extend_from_slice(&frame[9..]);
    }
    let mut frame = Vec::new();
    let tag = ninefold_proto::Tag(1);
    R::Read { data: ninefold_proto::message::Payload(&data) }.encode(tag, Dialect::Plan9, &mut frame);
    let text = records(&frame, Dialect::Plan9.into()).unwrap();
    assert!(Values::default().matches("Rread tag 1 count * [('b' ... l 3 ...) ('a' ...)]", &text).unwrap(), "{text}");
    assert_eq!(records(&frame, Dialect::Linux.into()), None);
}

#[test]
fn a_script_is_skipped_where_its_target_lacks_what_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let load = |text: &str| {
        std::fs::write(dir.path().join("t.9p"), text).unwrap();
        Script::load(&dir.path().join("t.9p"))
    };
    // Nobody listens: a script that is skipped does not connect.
    let mut target = Target::new(Address::unix("/nonexistent"));
    target.lacks.insert("xattr".into(), "no attributes".into());
    let needs = load("dialect 9P2000.L\nneeds xattr\nconnect\n").unwrap();
    assert_eq!(run(&needs, &target).unwrap(), Outcome::Skipped("no attributes".into()));
    let local = load("dialect 9P2000.L\nfile a 'x'\n").unwrap();
    assert!(matches!(run(&local, &target), Ok(Outcome::Skipped(_))));
    let plain = load("dialect 9P2000.L\nconnect\n").unwrap();
    assert!(run(&plain, &target).unwrap_err().to_string().contains("cannot connect to 9p+unix:/nonexistent"));
}

#[test]
fn wrong_scripts_are_refused_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.9p");
    let error = |text: &str| {
        std::fs::write(&path, text).unwrap();
        format!("{:#}", Script::load(&path).unwrap_err())
    };
    assert!(error("Tclunk tag 1 fid 1\n").contains("t.9p:1: a 'dialect' line must come first"));
    assert!(error("dialect 9P2000.L\nclunk\n").contains("t.9p:2: 'clunk' begins no line"));
    assert!(error("dialect 9P\n").contains("'9P' is no dialect"));
    assert!(error("dialect 9P2000\nnext x\n").contains("'next' takes no words"));
    assert!(error("dialect 9P2000\ninclude t.9p\n").contains("included by itself"));
    assert!(error("dialect 9P2000\ninclude gone\n").contains("gone"));
    assert!(error("# empty\n").contains("nothing to do"));
}

#[test]
fn files_are_made_and_checked_in_the_exported_directory() {
    let dir = tempfile::tempdir().unwrap();
    let make = |line| fixture::make(dir.path(), line).unwrap();
    let check = |line| fixture::check(dir.path(), line).map_err(|e| format!("{e:#}"));
    make("file 'a b' 'x\\n' 0604");
    make("dir d 0700");
    make("symlink l 'a b'");
    make("fifo p");
    assert_eq!(check("file 'a b' 'x\\n'"), Ok(()));
    assert_eq!(check("mode 'a b' 0604"), Ok(()));
    assert_eq!(check("mode d 0700"), Ok(()));
    assert_eq!(check("dir d"), Ok(()));
    assert_eq!(check("symlink l 'a b'"), Ok(()));
    assert_eq!(check("absent gone"), Ok(()));
    assert!(check("file 'a b' 'y'").is_err());
    assert!(check("mode d 0701").is_err());
    assert!(check("symlink l 'c'").is_err());
    assert!(check("absent l").is_err());
    assert!(check("dir l").is_err());
    assert!(check("something d").is_err());
    assert!(Path::new(dir.path()).join("p").exists());
}
