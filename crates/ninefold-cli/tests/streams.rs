//! Standard input, output and error that are closed, full, or a terminal's.

mod support;

use std::fs::File;
use std::io::pipe;
use std::process::Stdio;

use ninefold::proto::Dialect;
use support::ninefold;
use support::share::Share;

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
