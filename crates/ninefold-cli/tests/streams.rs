//! Standard input, output and error that are closed, full, or a terminal's.

mod support;

use std::fs::File;
use std::io::pipe;
use std::process::{Command, Stdio};

use ninefold::proto::Dialect;
use support::meddler::{self, Way, meddle};
use support::share::Share;
use support::{Running, frame, ninefold, run, until};

/// Runs a command that tells its troubles to `stderr`, and ends with `expected`.
#[track_caller]
fn ends(args: &[&str], stderr: impl Into<Stdio>, expected: i32) {
    let status = ninefold(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).status().unwrap();
    assert_eq!(status.code(), Some(expected), "{args:?}");
}

#[test]
fn what_cannot_be_said_on_standard_error_is_counted_all_the_same() {
    let share = Share::new();
    share.make("f", "x");
    let (f, none) = (share.url("f", Dialect::Linux), share.url("none", Dialect::Linux));
    for (args, expected) in [
        (&["rm", &none][..], 1),
        (&["cat", &none, &f], 1),
        (&["cp", "-r", &none, "nowhere"], 1),
        (&["serve", "/no/such/directory"], 1),
        (&["mv", &f, "9p://127.0.0.1:1/f"], 2),
        (&["rm"], 2),
        (&["-vvv", "cat", &f], 0),
        (&["--stats", "-", "cat", &f], 1),
    ] {
        ends(args, File::options().write(true).open("/dev/full").unwrap(), expected);
        let (reader, gone) = pipe().unwrap();
        drop(reader);
        ends(args, gone, expected);
    }
}

#[test]
fn what_a_server_says_reaches_standard_error_without_anything_that_a_terminal_obeys() {
    let share = Share::new();
    // A title for the window, a clear screen in one character (U+009B), and writing from right to left (U+202E).
    const OBEYED: &str = "\x1b]0;x\x07 \u{9b}2J \u{202e}\n!!!";
    let server = meddle(share.address(), |way, frame| {
        if way == Way::ToClient {
            meddler::replace(frame, b"file does not exist", OBEYED.as_bytes());
        }
        true
    });
    for command in ["rm", "cat", "ls", "stat", "du", "find", "mkdir", "chmod"] {
        let url = format!("9p://{server}/none/x?dialect=9P2000");
        let args = if command == "chmod" { vec!["chmod", "0", &url] } else { vec![command, &url] };
        let (code, _, said) = run(&args);
        assert_eq!((code, said.lines().count()), (Some(1), 1), "{said:?}");
        assert!(said.contains(r"\u{1b}]0;x\u{7} \u{9b}2J \u{202e}\n!!!"), "{said:?}");
        assert!(!said.trim_end().chars().any(|c| c.is_control() || c == '\u{202e}'), "{said:?}");
    }
}

#[test]
fn json_holds_nothing_that_a_terminal_obeys_and_loses_nothing() {
    let share = Share::new();
    let name = "a\u{7f}\u{9b}\u{202e}\u{2028}ü";
    share.make(name, "");
    for command in ["ls", "find"] {
        let (code, printed, _) = run(&[command, "--json", &share.url("", Dialect::Linux)]);
        let line = printed.lines().last().unwrap();
        assert_eq!(code, Some(0));
        assert!(line.contains(r"a\u007f\u009b\u202e\u2028ü"), "{line:?}");
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(object.to_string().contains(name), "{object}");
    }
}

#[test]
fn write_without_standard_input_leaves_the_file_and_an_empty_input_empties_it() {
    let share = Share::new();
    share.make("f", "kept");
    let shell = |redirection: &str, append: &str| {
        let url = share.url("f", Dialect::Linux);
        let line = format!("\"$0\" write {append} '{url}' {redirection}");
        let program = ninefold(&[]).get_program().to_owned();
        let output = Command::new("sh").args(["-c", &line]).arg(program).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    // The second is what nohup(1) leaves.
    for redirection in ["<&-", "0>/dev/null"] {
        for append in ["", "-a"] {
            let (code, said) = shell(redirection, append);
            assert!(code == Some(1) && said.contains("standard input is closed"), "{redirection}: {said}");
            assert_eq!(share.read("f"), b"kept");
        }
    }
    assert_eq!(shell("</dev/null", ""), (Some(0), String::new()));
    assert_eq!(share.read("f"), b"");
}

#[test]
fn a_trace_holds_nothing_that_a_terminal_obeys_and_can_be_read_back() {
    let share = Share::new();
    let name = "a\u{1b}\u{9b}\u{202e}ü";
    for (words, expected) in [(&[][..], r"0:'a\x1b\xc2\x9b\xe2\x80\xaeü'"), (&["--json"], r"0:'a\\x1b\u009b\u202eü'")]
    {
        let mut args = vec!["trace", share.place()];
        args.extend(words);
        let trace = Running::start(&args);
        let first = trace.line();
        let at = match serde_json::from_str::<serde_json::Value>(&first) {
            Ok(object) => object["address"].as_str().unwrap().to_owned(),
            Err(_) => first.split(' ').next_back().unwrap().to_owned(),
        };
        assert_eq!(run(&["ls", &format!("{at}/{name}")]).0, Some(1));
        let line = until("the walk", || Some(trace.line()).filter(|line| line.contains("Twalk") && line.contains("ü")));
        assert!(line.contains(expected), "{line:?}");
        if words.is_empty() {
            let frame = frame(line.trim_start_matches("→ "), Dialect::Linux);
            assert!(frame.ends_with(name.as_bytes()), "{frame:?}");
        }
    }
}
