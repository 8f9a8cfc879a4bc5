//! What the user names for `ninefold cp`, and what a server names: said so that it can be read.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use ninefold::proto::Dialect;
use support::run;
use support::share::Share;

/// A name that a terminal would obey: it clears the screen, and begins a line of its own.
const NAME: &[u8] = b"a\x1b[2J\nninefold: all is well";

#[test]
fn names_that_a_terminal_would_obey_are_shown_in_a_dry_run_and_in_warnings() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let name = OsStr::from_bytes(NAME);
    fs::create_dir(share.path("t")).unwrap();
    fs::write(share.path("t").join(name), "new").unwrap();
    let url = share.url("t", Dialect::Linux);
    let out = here.path().join("out");
    fs::create_dir_all(out.join("t")).unwrap();
    fs::write(out.join("t").join(name), "old").unwrap();
    fs::hard_link(out.join("t").join(name), out.join("t/other")).unwrap();
    let (code, said, _) = run(&["cp", "-r", "--dry-run", &url, out.to_str().unwrap()]);
    assert_eq!(code, Some(0));
    assert!(said.contains("ninefold: all is well") && !said.contains('\u{1b}'), "{said:?}");
    assert_eq!(said.lines().count(), 2, "{said:?}");
    let (code, _, said) = run(&["cp", "-r", &url, out.to_str().unwrap()]);
    assert_eq!(code, Some(0));
    assert!(said.contains("written in place") && !said.contains('\u{1b}'), "{said:?}");
    assert_eq!(said.lines().count(), 1, "{said:?}");
}
