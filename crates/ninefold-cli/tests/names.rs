//! What several names of one file, dots and slashes at the end of an address mean to the commands that change files.

mod support;

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use ninefold::proto::Dialect;
use support::meddler::{self, Way, meddle};
use support::share::{Share, feed};
use support::{Running, ninefold, run};

/// Runs a command that fails; what it says.
#[track_caller]
fn bad(args: &[&str]) -> String {
    let (code, said) = feed(args, b"");
    assert_eq!(code, Some(1), "{args:?}: {said}");
    said
}

/// One directory at two places of a served tree: `m1` and `m2` hold the same files. Nothing where that cannot be had.
struct Twice {
    dir: tempfile::TempDir,
    server: SocketAddr,
    _running: Running,
}

impl Twice {
    fn new(test: &str) -> Option<Twice> {
        // The mounts are the server's own, and go with it.
        let unshare = ["--user", "--map-root-user", "--mount"];
        let can = Command::new("unshare").args(unshare).arg("true").stderr(Stdio::null()).status();
        if !can.is_ok_and(|status| status.success()) {
            support::skip(test, "needs unshare(1), and to be allowed mounts");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["m1", "m2"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let serve = r#"mount --bind m1 m2 && exec "$0" serve . --listen 9p://127.0.0.1:0"#;
        let mut command = Command::new("unshare");
        command.args(unshare).args(["sh", "-c", serve]).arg(ninefold(&[]).get_program()).current_dir(dir.path());
        let running = Running::spawn(&mut command);
        Some(Twice { server: running.tcp(), dir, _running: running })
    }

    /// What the file `m1/f` holds, and the names beside it.
    fn state(&self) -> (Option<Vec<u8>>, usize) {
        let m1 = self.dir.path().join("m1");
        (std::fs::read(m1.join("f")).ok(), std::fs::read_dir(m1).unwrap().count())
    }
}

fn url(server: SocketAddr, path: &str, dialect: Dialect) -> String {
    format!("9p://{server}/{path}?dialect={dialect}")
}

#[test]
fn mv_between_two_places_of_one_directory_leaves_the_file() {
    let Some(twice) = Twice::new("mv_between_two_places_of_one_directory_leaves_the_file") else { return };
    std::fs::write(twice.dir.path().join("m1/f"), "kept").unwrap();
    std::fs::create_dir(twice.dir.path().join("m1/d")).unwrap();
    for dialect in Dialect::ALL {
        let url = |path: &str| url(twice.server, path, dialect);
        for (from, to) in [("m1/f", "m2"), ("m1/f", "m2/f"), ("m2/f", "m1/"), ("m1/d", "m2")] {
            assert!(bad(&["mv", &url(from), &url(to)]).contains("both names are of one file"), "{dialect}");
            assert_eq!(twice.state(), (Some(b"kept".to_vec()), 2), "{dialect} {from} {to}");
        }
    }
}

#[test]
fn mv_that_took_one_file_for_two_sees_it_before_it_removes_anything() {
    let Some(twice) = Twice::new("mv_that_took_one_file_for_two_sees_it_before_it_removes_anything") else { return };
    std::fs::write(twice.dir.path().join("m1/f"), "kept").unwrap();
    // Until the rename is refused every walk that ends at the file tells another qid.
    let (mut walks, mut renamed) = (0, false);
    let server = meddle(twice.server, move |way, frame| {
        const RWALK: u8 = 111;
        const TRENAMEAT: u8 = 74;
        renamed |= way == Way::ToServer && meddler::kind(frame) == TRENAMEAT;
        // Its last qid ends in the path, little-endian; the highest byte but one is free.
        if meddler::kind(frame) == RWALK && !renamed {
            walks += 1;
            if let [.., byte, _] = frame[..] {
                let at = frame.len() - 2;
                frame[at] = byte ^ walks;
            }
        }
        true
    });
    let said = bad(&["mv", &url(server, "m1/f", Dialect::Linux), &url(server, "m2/f", Dialect::Linux)]);
    assert!(said.contains("and not removed: it is no longer what was copied"), "{said}");
    assert_eq!(twice.state(), (Some(b"kept".to_vec()), 1));
}

#[test]
fn mv_refuses_several_names_of_one_file_as_its_namesake_does() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        let url = |name: &str| share.url(name, dialect);
        share.make("d/f", "kept");
        std::fs::hard_link(share.path("d/f"), share.path("d/g")).unwrap();
        symlink("d", share.path("l")).unwrap();
        symlink("f", share.path("d/to-f")).unwrap();
        for (from, to) in [("d/f", "d/g"), ("l/f", "d/f"), ("l/f", "d"), ("d/to-f", "d/f")] {
            assert!(bad(&["mv", &url(from), &url(to)]).contains("both names are of one file"), "{dialect} {from} {to}");
            assert_eq!(
                (share.read("d/f"), share.names("d")),
                (b"kept".to_vec(), ["f", "g", "to-f"].map(str::to_owned).to_vec())
            );
        }
    }
}

#[test]
fn mv_changes_the_spelling_of_a_name_where_a_server_knows_one_file_by_both() {
    let share = Share::new();
    share.make("f", "x");
    share.make("d/f", "y");
    // Looked for, `F` is `f`.
    let server = meddle(share.address(), |way, frame| {
        const TWALK: u8 = 110;
        if way == Way::ToServer && meddler::kind(frame) == TWALK {
            meddler::replace(frame, b"\x01\0F", b"\x01\0f");
        }
        true
    });
    for dialect in [Dialect::Unix, Dialect::Linux] {
        assert_eq!(
            feed(&["mv", &url(server, "f", dialect), &url(server, "F", dialect)], b""),
            (Some(0), String::new())
        );
        assert_eq!((share.names("."), share.read("F")), (vec!["F".to_owned(), "d".to_owned()], b"x".to_vec()));
        std::fs::rename(share.path("F"), share.path("f")).unwrap();
    }
}

/// The names in the tree that the tests of dots and slashes have, with what the files hold.
fn tree() -> Share {
    let share = Share::new();
    share.make("p/q/f", "x");
    share.make("f1", "y");
    symlink("p", share.path("tl")).unwrap();
    share
}

/// Fails unless the tree is as it was made.
#[track_caller]
fn untouched(share: &Share, what: &[&str]) {
    assert_eq!(share.names("."), ["f1", "p", "tl"], "{what:?}");
    assert_eq!(
        (share.names("p"), share.read("p/q/f"), share.read("f1")),
        (vec!["q".to_owned()], b"x".to_vec(), b"y".to_vec())
    );
}

#[test]
fn dots_at_the_end_name_nothing_that_could_be_removed_moved_or_made() {
    for dialect in Dialect::ALL {
        let share = tree();
        let url = |name: &str| share.url(name, dialect);
        for path in ["p/q/..", "p/q/.", "p/q/../", "p/./", "."] {
            for args in
                [&["rm", "-r", &url(path)][..], &["rm", "-r", "-f", &url(path)], &["mv", &url(path), &url("new")]]
            {
                assert!(
                    bad(args).contains("'.' and '..' are no names: name the directory itself"),
                    "{dialect} {args:?}"
                );
                untouched(&share, args);
            }
        }
        for (path, why) in
            [("none/x/..", "does not exist"), ("none/.", "does not exist"), ("f1/x/..", "not a directory")]
        {
            assert!(bad(&["mv", &url("p"), &url(path)]).contains(why), "{dialect} {path}");
            untouched(&share, &["mv", path]);
            if dialect != Dialect::Plan9 {
                assert!(bad(&["ln", "-s", "x", &url(path)]).contains(why), "{dialect} {path}");
                untouched(&share, &["ln", path]);
            }
            assert!(bad(&["write", &url(path)]).contains(why), "{dialect} {path}");
            untouched(&share, &["write", path]);
        }
        // A directory to move into may be called so.
        assert_eq!(feed(&["mv", &url("f1"), &url("p/q/..")], b""), (Some(0), String::new()));
        assert_eq!(share.read("p/f1"), b"y");
    }
}

#[test]
fn a_slash_at_the_end_is_for_directories_only() {
    for dialect in Dialect::ALL {
        let share = tree();
        let url = |name: &str| share.url(name, dialect);
        for (args, why) in [
            (&["rm", &url("f1/")][..], "not a directory"),
            (&["mv", &url("f1/"), &url("new")], "not a directory"),
            (&["mv", &url("f1"), &url("newd/")], "does not exist"),
            (&["mv", &url("p"), &url("f1/")], "not a directory"),
            (&["write", &url("f1/")], "not a directory"),
            (&["write", &url("new/")], "does not exist"),
            (&["write", &url("p/")], "is a directory"),
            (&["truncate", "-s", "0", &url("f1/")], "not a directory"),
            (&["truncate", "-s", "0", &url("new/")], "does not exist"),
            (&["chmod", "0", &url("f1/")], "not a directory"),
            (&["chown", "0", &url("f1/")], "not a directory"),
        ] {
            assert!(bad(args).contains(why), "{dialect} {args:?}");
            untouched(&share, args);
        }
        // 9P2000 does not tell a link from the directory that it leads to.
        if dialect != Dialect::Plan9 {
            for args in [
                &["rm", "-r", &url("tl/")][..],
                &["mv", &url("tl/"), &url("new")],
                &["ln", &url("f1/"), &url("new")],
                &["ln", "-f", &url("p/q/f"), &url("f1/")],
            ] {
                assert!(bad(args).contains("not a directory"), "{dialect} {args:?}");
                untouched(&share, args);
            }
            assert!(bad(&["ln", "-s", "x", &url("new/")]).contains("does not exist"), "{dialect}");
        }
        assert_eq!(feed(&["rm", "-f", &url("f1/")], b""), (Some(0), String::new()), "as its namesake forgives it");
        untouched(&share, &["rm", "-f"]);
        assert_eq!(feed(&["mkdir", &url("new/")], b""), (Some(0), String::new()));
        assert_eq!(feed(&["mv", &url("new/"), &url("newer/")], b""), (Some(0), String::new()));
        assert_eq!(feed(&["rm", "-r", &url("newer/")], b""), (Some(0), String::new()));
        untouched(&share, &["rm", "-r"]);
    }
}

#[test]
fn two_dots_take_the_name_before_them_be_it_a_link_or_nothing() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        share.make("o2/x", "lexical");
        share.make("o/x", "Linux");
        share.make("o/in/f", "");
        symlink("../o/in", share.path("o2/l")).unwrap();
        for path in ["o2/l/../x", "none/../o2/x"] {
            assert_eq!(
                run(&["cat", &share.url(path, dialect)]),
                (Some(0), "lexical".to_owned(), String::new()),
                "{dialect}"
            );
        }
    }
}

#[test]
fn words_that_its_namesake_takes_are_taken() {
    let share = Share::new();
    let url = |name: &str| share.url(name, Dialect::Linux);
    share.make("a", "a");
    share.make("b", "b");
    share.make("d/f", "");
    let good = |args: &[&str]| assert_eq!(feed(args, b""), (Some(0), String::new()), "{args:?}");
    good(&["rm", "-f"]);
    good(&["mv", "-f", "-n", &url("a"), &url("b")]);
    assert_eq!((share.read("a"), share.read("b")), (b"a".to_vec(), b"b".to_vec()));
    good(&["mv", "-n", "-f", &url("a"), &url("b")]);
    assert_eq!(share.read("b"), b"a");
    good(&["ln", "-s", "d", &url("l")]);
    good(&["ln", "-s", "-f", "-n", "b", &url("l")]);
    assert_eq!(std::fs::read_link(share.path("l")).unwrap().to_str(), Some("b"));
    good(&["ln", "-s", "-n", "x", &url("d")]);
    assert_eq!(share.names("d"), ["f", "x"], "what is no link is gone into");
    good(&["chown", "-h", ":", &url("l")]);
    let (code, said) = feed(&["ln", "-s", &url("b"), &url("m")], b"");
    assert!(code == Some(0) && said.contains("hardly meant"), "{said}");
}

#[test]
fn two_files_to_which_a_server_gives_one_qid_are_two() {
    let share = Share::new();
    share.make("f", "new");
    share.make("g", "old");
    share.make("h", "older");
    // As a server does that exports several file systems as one.
    let server = meddle(share.address(), |_, frame| {
        const RWALK: u8 = 111;
        // The last qid is type[1] version[4] path[8].
        if let Some(at) = frame.len().checked_sub(13)
            && meddler::kind(frame) == RWALK
            && frame[at] == 0
        {
            frame[at + 5..].copy_from_slice(&7u64.to_le_bytes());
        }
        true
    });
    let url = |name: &str| url(server, name, Dialect::Linux);
    for args in [&["ln", "-f", &url("f"), &url("g")][..], &["mv", &url("f"), &url("h")]] {
        assert_eq!(feed(args, b""), (Some(0), String::new()), "{args:?}");
    }
    assert_eq!(
        (share.names("."), share.read("g"), share.read("h")),
        (vec!["g".into(), "h".into()], b"new".to_vec(), b"new".to_vec())
    );
}
