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

#[test]
fn a_fifo_that_the_user_named_is_read_to_its_end() {
    let content: Vec<u8> = (0..3_000_000).map(|n: u32| (n ^ n >> 9) as u8).collect();
    for dialect in Dialect::ALL {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let fifo = here.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for more in [&[][..], &["--checksum"], &["--resume"]] {
            let url = share.url("x", dialect);
            let (path, bytes) = (fifo.clone(), content.clone());
            // It waits for a reader, as the copy for what it writes.
            let writer = std::thread::spawn(move || fs::write(path, bytes));
            let ended = run(&[&["cp"], more, &[fifo.to_str().unwrap(), &url]].concat());
            assert_eq!(ended, (Some(0), String::new(), String::new()), "{dialect} {more:?}");
            writer.join().unwrap().unwrap();
            assert!(share.read("x") == content, "{dialect} {more:?}");
            assert_eq!(share.names("."), ["x"]);
        }
        // A pipe that only has a descriptor.
        let ended = support::share::feed(&["cp", "/dev/stdin", &share.url("y", dialect)], &content);
        assert_eq!(ended, (Some(0), String::new()), "{dialect}");
        assert!(share.read("y") == content, "{dialect}");
    }
}

#[test]
fn ctrl_c_ends_the_wait_for_a_fifo_that_nobody_writes_to() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let (fifo, mode) = (here.path().join("fifo"), rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut copy = support::ninefold(&["cp", fifo.to_str().unwrap(), &share.url("x", Dialect::Linux)]);
    let mut copy = copy.stdin(std::process::Stdio::null()).spawn().unwrap();
    support::until("a temporary file", || (!share.names(".").is_empty()).then_some(()));
    rustix::process::kill_process(rustix::process::Pid::from_child(&copy), rustix::process::Signal::INT).unwrap();
    let status = support::until("the end of cp", || copy.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    assert_eq!(share.names("."), [""; 0]);
}
