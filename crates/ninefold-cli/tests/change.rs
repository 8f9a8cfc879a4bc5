//! The commands that change files, against our own server in every dialect.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use ninefold::proto::Dialect;
use support::share::{Share, feed};

/// Runs a command that succeeds and says nothing.
#[track_caller]
fn good(args: &[&str]) {
    assert_eq!(feed(args, b""), (Some(0), String::new()), "{args:?}");
}

/// Runs a command that is used wrongly; what it says.
#[track_caller]
fn wrong(args: &[&str]) -> String {
    let (code, said) = feed(args, b"");
    assert_eq!(code, Some(2), "{args:?}: {said}");
    said
}

/// Runs a command that fails; what it says.
#[track_caller]
fn bad(args: &[&str]) -> String {
    let (code, said) = feed(args, b"");
    assert_eq!(code, Some(1), "{args:?}: {said}");
    said
}

fn mode(path: impl AsRef<std::path::Path>) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn chmod(path: impl AsRef<std::path::Path>, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn write_makes_a_file_and_replaces_one_with_its_permissions_kept() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        let url = share.url("f", dialect);
        assert_eq!(feed(&["write", &url], b"first"), (Some(0), String::new()), "{dialect}");
        assert_eq!(share.read("f"), b"first");
        chmod(share.path("f"), 0o751);
        let before = std::fs::metadata(share.path("f")).unwrap().ino();
        let long = vec![b'x'; 3_000_000];
        assert_eq!(feed(&["write", &url], &long), (Some(0), String::new()), "{dialect}");
        assert!(share.read("f") == long);
        assert_eq!(mode(share.path("f")), 0o751);
        assert_ne!(std::fs::metadata(share.path("f")).unwrap().ino(), before, "it was replaced");
        assert_eq!(share.names("."), ["f"]);
    }
}

#[test]
fn write_goes_through_a_symbolic_link_and_leaves_it() {
    let share = Share::new();
    share.make("real/x", "old");
    std::fs::create_dir(share.path("d")).unwrap();
    symlink("../real/x", share.path("d/link")).unwrap();
    symlink("../real/new", share.path("d/dangling")).unwrap();
    for (link, real) in [("d/link", "real/x"), ("d/dangling", "real/new")] {
        assert_eq!(feed(&["write", &share.url(link, Dialect::Linux)], b"through"), (Some(0), String::new()));
        assert_eq!(share.read(real), b"through");
    }
    assert!(share.path("d/link").is_symlink());
    assert_eq!(share.names("real"), ["new", "x"]);
}

#[test]
fn write_leaves_several_names_one_file_and_says_that_it_wrote_in_place() {
    let share = Share::new();
    let one = share.make("one", "long old content");
    std::fs::hard_link(&one, share.path("two")).unwrap();
    let (code, said) = feed(&["write", &share.url("one", Dialect::Linux)], b"new");
    assert_eq!(code, Some(0));
    assert!(said.contains("/one") && said.contains("written in place: it has 2 names"), "{said}");
    assert_eq!(share.read("two"), b"new");
}

#[test]
fn a_name_of_255_bytes_is_written_to() {
    let share = Share::new();
    let name = "é".repeat(127) + "x";
    for _ in 0..2 {
        assert_eq!(feed(&["write", &share.url(&name, Dialect::Linux)], b"y"), (Some(0), String::new()));
    }
    assert_eq!(share.names("."), [name]);
}

#[test]
fn write_with_append_adds_to_the_end() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        let url = share.url("log", dialect);
        for part in ["one ", "two ", "three"] {
            assert_eq!(feed(&["write", "-a", &url], part.as_bytes()), (Some(0), String::new()), "{dialect}");
        }
        assert_eq!(share.read("log"), b"one two three");
        let long: Vec<u8> = (0..5_000_000u32).map(|i| (i / 1000) as u8).collect();
        assert_eq!(feed(&["write", "-a", &share.url("long", dialect)], &long), (Some(0), String::new()), "{dialect}");
        assert!(share.read("long") == long, "{dialect}");
    }
}

#[test]
fn write_to_a_directory_or_into_none_fails_and_makes_nothing() {
    let share = Share::new();
    std::fs::create_dir(share.path("d")).unwrap();
    let said = bad(&["write", &share.url("d", Dialect::Linux)]);
    assert!(said.contains("file is a directory"), "{said}");
    let said = bad(&["write", &share.url("none/f", Dialect::Linux)]);
    assert!(said.contains("/none/f"), "{said}");
    assert_eq!(share.names("."), ["d"]);
}

#[test]
fn write_into_a_directory_that_takes_no_new_files_writes_in_place_and_says_so() {
    if rustix::process::geteuid().is_root() {
        return as_nobody("write_into_a_directory_that_takes_no_new_files_writes_in_place_and_says_so");
    }
    let share = Share::new();
    share.make("d/f", "old and long");
    chmod(share.path("d"), 0o555);
    let (code, said) = feed(&["write", &share.url("d/f", Dialect::Linux)], b"new");
    chmod(share.path("d"), 0o755);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("written in place: its directory takes no new file: permission denied"), "{said}");
    assert_eq!(share.read("d/f"), b"new");
}

#[test]
fn a_file_that_may_not_be_written_is_not_replaced_either() {
    if rustix::process::geteuid().is_root() {
        return as_nobody("a_file_that_may_not_be_written_is_not_replaced_either");
    }
    for dialect in Dialect::ALL {
        let share = Share::new();
        chmod(share.make("f", "kept"), 0o444);
        let (code, said) = feed(&["write", &share.url("f", dialect)], b"new");
        assert_eq!(code, Some(1));
        assert!(said.contains("permission denied"), "{said}");
        assert_eq!((share.read("f"), share.names(".")), (b"kept".to_vec(), vec!["f".to_owned()]));
    }
}

/// Runs one test of this program as a user who is not above permissions.
fn as_nobody(test: &str) {
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir().unwrap();
    chmod(dir.path(), 0o777);
    // Where this program and the command may not be reached by everybody.
    let copies = tempfile::tempdir().unwrap();
    chmod(copies.path(), 0o755);
    let (program, command) = (copies.path().join("tests"), copies.path().join("ninefold"));
    let ninefold = std::path::Path::new(env!("CARGO_BIN_EXE_ninefold"));
    for (from, to) in [(std::env::current_exe().unwrap().as_path(), &program), (ninefold, &command)] {
        // By another program: a file that is open for writing here cannot be run by whoever another test starts meanwhile,
        // and inherits it (ETXTBSY).
        assert!(std::process::Command::new("cp").arg(from).arg(to).status().unwrap().success());
    }
    let mut child = std::process::Command::new(&program);
    child.args(["--exact", test]).env("TMPDIR", dir.path()).env("NINEFOLD_BIN", &command).uid(65534).gid(65534);
    let output = child.current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn rm_removes_files_and_links_and_goes_through_no_link() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        share.make("kept/f", "x");
        share.make("f", "x");
        symlink("kept/f", share.path("link")).unwrap();
        symlink("kept", share.path("dirlink")).unwrap();
        share.make("tree/a/b/c", "x");
        share.make("tree/z", "x");
        symlink("../../kept", share.path("tree/a/link")).unwrap();
        symlink("..", share.path("tree/a/circle")).unwrap();
        for name in ["f", "link"] {
            good(&["rm", &share.url(name, dialect)]);
        }
        // 9P2000 has no word for a link: what it leads to is what it looks like.
        let recursive = if dialect == Dialect::Plan9 { "-r" } else { "-f" };
        good(&["rm", recursive, &share.url("dirlink", dialect)]);
        good(&["rm", "-r", &share.url("tree", dialect)]);
        assert_eq!(share.names("."), ["kept"], "{dialect}");
        assert_eq!(share.read("kept/f"), b"x");
    }
}

#[test]
fn rm_goes_on_after_a_failure_and_says_what_to_do() {
    let share = Share::new();
    share.make("d/f", "x");
    share.make("f", "x");
    let url = |name: &str| share.url(name, Dialect::Linux);
    let said = bad(&["rm", &url("d"), &url("none"), &url("no/where"), &share.url("", Dialect::Linux), &url("f")]);
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].contains("/d?") && lines[0].contains("give -r"), "{said}");
    assert!(lines[1].contains("/none?") && lines[1].contains("does not exist"), "{said}");
    assert!(lines[2].contains("/no?dialect=9P2000.L does not exist: check the path"), "{said}");
    assert!(lines[3].contains("the root of the tree"), "{said}");
    assert_eq!((lines.len(), share.names(".")), (4, vec!["d".to_owned()]));
    let said = bad(&["rm", "-d", &url("d")]);
    assert!(said.contains("directory not empty"), "{said}");
    good(&["rm", "-f", &url("none"), &url("no/where"), &url("d/f/x")]);
    good(&["rm", "-d", "-r", &url("d")]);
}

#[test]
fn rm_removes_a_wide_and_a_deep_tree() {
    let share = Share::new();
    for i in 0..3000 {
        share.make(&format!("tree/wide/{i}"), "");
    }
    // No path leads to the end of it: PATH_MAX is 4,096 bytes.
    let mut at = std::fs::File::open(share.path("tree")).unwrap();
    for _ in 0..150 {
        let name = "d".repeat(50);
        rustix::fs::mkdirat(&at, &name, 0o755.into()).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, &name, flags, 0.into()).unwrap().into();
    }
    good(&["rm", "-r", &share.url("tree", Dialect::Linux)]);
    assert!(share.names(".").is_empty());
}

#[test]
fn mv_renames_replaces_and_moves_into_directories() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        let url = |name: &str| share.url(name, dialect);
        share.make("a", "a");
        share.make("b", "b");
        good(&["mv", &url("a"), &url("c")]);
        assert_eq!((share.names("."), share.read("c")), (vec!["b".to_owned(), "c".to_owned()], b"a".to_vec()));
        good(&["mv", "-n", &url("b"), &url("c")]);
        assert_eq!((share.read("b"), share.read("c")), (b"b".to_vec(), b"a".to_vec()), "{dialect}");
        good(&["mv", &url("b"), &url("c")]);
        assert_eq!((share.names("."), share.read("c")), (vec!["c".to_owned()], b"b".to_vec()), "{dialect}");
        share.make("x", "x");
        std::fs::create_dir(share.path("d")).unwrap();
        share.make("d/x", "to be replaced");
        chmod(share.path("x"), 0o640);
        let time =
            std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1e9 as u64));
        std::fs::File::options().write(true).open(share.path("x")).unwrap().set_times(time).unwrap();
        good(&["mv", &url("c"), &url("x"), &url("d")]);
        assert_eq!((share.names("."), share.names("d")), (vec!["d".to_owned()], vec!["c".to_owned(), "x".to_owned()]));
        let moved = std::fs::metadata(share.path("d/x")).unwrap();
        assert_eq!((share.read("d/x"), mode(share.path("d/x")), moved.mtime()), (b"x".to_vec(), 0o640, 1_000_000_000));
    }
}

#[test]
fn mv_takes_a_directory_with_all_that_is_in_it_into_another() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        share.make("d/a/f", "x");
        share.make("d/g", "y");
        chmod(share.path("d/g"), 0o604);
        chmod(share.path("d/a"), 0o711);
        if dialect != Dialect::Plan9 {
            symlink("../g", share.path("d/a/link")).unwrap();
        }
        // An empty directory is replaced.
        std::fs::create_dir_all(share.path("e/d")).unwrap();
        good(&["mv", &share.url("d", dialect), &share.url("e", dialect)]);
        assert_eq!((share.names("."), share.names("e")), (vec!["e".to_owned()], vec!["d".to_owned()]), "{dialect}");
        assert_eq!((share.read("e/d/a/f"), share.read("e/d/g")), (b"x".to_vec(), b"y".to_vec()));
        assert_eq!((mode(share.path("e/d/g")), mode(share.path("e/d/a"))), (0o604, 0o711));
        if dialect != Dialect::Plan9 {
            assert_eq!(std::fs::read_link(share.path("e/d/a/link")).unwrap().to_str(), Some("../g"));
            good(&["mv", &share.url("e/d/a/link", dialect), &share.url("e/d/link", dialect)]);
            assert_eq!(std::fs::read_link(share.path("e/d/link")).unwrap().to_str(), Some("../g"));
        }
        // One that is not empty is not.
        share.make("d/f", "z");
        assert!(bad(&["mv", &share.url("d", dialect), &share.url("e", dialect)]).contains("not empty"), "{dialect}");
        assert_eq!((share.read("d/f"), share.names("e")), (b"z".to_vec(), vec!["d".to_owned()]), "{dialect}");
    }
}

#[test]
fn mv_refuses_what_would_lose_a_file() {
    let share = Share::new();
    share.make("f", "x");
    share.make("d/f/g", "x");
    let url = |name: &str| share.url(name, Dialect::Linux);
    assert!(bad(&["mv", &url("f"), &url("f")]).contains("both names are of one file"));
    assert!(bad(&["mv", &url("f"), &url("d")]).contains("is a directory"));
    assert!(bad(&["mv", &url("d"), &url("f")]).contains("not a directory"));
    assert!(bad(&["mv", &url("none"), &url("e")]).contains("/none?"));
    assert!(bad(&["mv", &url("f"), &url("d"), &url("none")]).contains("it is none"));
    assert!(bad(&["mv", &share.url("", Dialect::Linux), &url("e")]).contains("the root of the tree"));
    assert!(bad(&["mv", &url("d"), &url("d/f/h")]).contains("a directory is not moved into itself"));
    assert!(wrong(&["mv", &url("f"), "9p://127.0.0.1:1/f"]).contains("ninefold cp"));
    assert!(wrong(&["mv", &url("f"), "here"]).contains("ninefold cp"));
    assert_eq!((share.read("f"), share.read("d/f/g")), (b"x".to_vec(), b"x".to_vec()));
}

#[test]
fn mkdir_makes_directories_and_with_p_those_above() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        let url = |name: &str| share.url(name, dialect);
        good(&["mkdir", &url("a")]);
        assert!(bad(&["mkdir", &url("a")]).contains("already exists"));
        assert!(bad(&["mkdir", &url("x/y")]).contains("mkdir -p"));
        good(&["mkdir", "-p", &url("a/b/c"), &url("a/b/c"), &share.url("", dialect)]);
        good(&["mkdir", "-p", "-m", "u=rwx,g=x,o=", &url("a/m/n")]);
        assert_eq!((mode(share.path("a/m")), mode(share.path("a/m/n"))), (0o755, 0o710), "{dialect}");
        share.make("f", "");
        assert!(bad(&["mkdir", "-p", &url("f/x")]).contains("not a directory"));
        assert!(bad(&["mkdir", "-p", &url("f")]).contains("not a directory"));
    }
    assert!(wrong(&["mkdir", "-m", "x", "9p://h/x"]).contains("no mode"));
}

#[test]
fn ln_makes_links_where_the_dialect_has_them() {
    for dialect in [Dialect::Unix, Dialect::Linux] {
        let share = Share::new();
        let url = |name: &str| share.url(name, dialect);
        share.make("f", "x");
        std::fs::create_dir(share.path("d")).unwrap();
        good(&["ln", "-s", "../f", &url("d/soft")]);
        assert_eq!(std::fs::read_link(share.path("d/soft")).unwrap().to_str(), Some("../f"));
        good(&["ln", &url("f"), &url("hard")]);
        assert_eq!(std::fs::metadata(share.path("f")).unwrap().nlink(), 2);
        // Into a directory, under the name of the target.
        good(&["ln", "-s", "/some/where", &url("d")]);
        good(&["ln", &url("f"), &url("d")]);
        assert_eq!(share.names("d"), ["f", "soft", "where"]);
        assert!(bad(&["ln", "-s", "x", &url("d/soft")]).contains("already exists"));
        good(&["ln", "-s", "-f", "x", &url("d/soft")]);
        assert_eq!(std::fs::read_link(share.path("d/soft")).unwrap().to_str(), Some("x"));
        // One name of a file in the place of another: it is there already.
        good(&["ln", "-f", &url("f"), &url("hard")]);
        assert_eq!(
            (share.names("."), share.read("hard")),
            (["d", "f", "hard"].map(str::to_owned).to_vec(), b"x".to_vec())
        );
        assert_eq!(share.names("d"), ["f", "soft", "where"]);
        assert!(bad(&["ln", &url("d"), &url("e")]).contains("one name only"));
        assert!(bad(&["ln", &url("none"), &url("e")]).contains("/none?"));
        assert!(wrong(&["ln", "9p://127.0.0.1:1/f", &url("e")]).contains("not of one server"));
        assert!(wrong(&["ln", "f", &url("e")]).contains("-s"));
    }
    let share = Share::new();
    share.make("f", "x");
    let said = bad(&["ln", "-s", "f", &share.url("l", Dialect::Plan9)]);
    assert!(said.contains("9P2000 cannot make a symbolic link: a server of 9P2000.L can"), "{said}");
}

#[test]
fn chmod_takes_numbers_and_symbols_and_goes_through_trees_but_no_links() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        let url = |name: &str| share.url(name, dialect);
        share.make("kept", "");
        chmod(share.path("kept"), 0o600);
        share.make("d/e/f", "");
        symlink("../kept", share.path("d/link")).unwrap();
        good(&["chmod", "640", &url("d/e/f")]);
        assert_eq!(mode(share.path("d/e/f")), 0o640);
        good(&["chmod", "-R", "u=rwX,go=", &url("d")]);
        assert_eq!(
            ["d", "d/e", "d/e/f", "kept"].map(|name| mode(share.path(name))),
            [0o700, 0o700, 0o600, 0o600],
            "{dialect}"
        );
        good(&["chmod", "-r", &url("d/e/f")]);
        assert_eq!(mode(share.path("d/e/f")), 0o200);
        match dialect {
            Dialect::Plan9 => assert!(bad(&["chmod", "u+s", &url("d/e/f")]).contains("9P2000 cannot set the set-ID")),
            _ => {
                good(&["chmod", "u+s,+t", &url("d/e/f")]);
                assert_eq!(mode(share.path("d/e/f")), 0o5200);
            }
        }
        // Named, a link is gone through.
        if dialect != Dialect::Plan9 {
            good(&["chmod", "644", &url("d/link")]);
            assert_eq!(mode(share.path("kept")), 0o644);
        }
        // What 9P2000 does not show to be a link comes to an end all the same.
        symlink("..", share.path("d/circle")).unwrap();
        match dialect {
            Dialect::Plan9 => {
                assert!(bad(&["chmod", "-R", "700", &url("d")]).contains("it is a directory that it is in"))
            }
            _ => good(&["chmod", "-R", "700", &url("d")]),
        }
        good(&["rm", "-r", &url("d/circle")]);
        chmod(share.path("kept"), 0o600);
        good(&["chmod", "-R", "a+rX", &share.url("", dialect)]);
        assert_eq!((mode(share.path("d")), mode(share.path("kept"))), (0o755, 0o644));
    }
    assert!(wrong(&["chmod", "u+q", "9p://h/x"]).contains("no mode"));
}

#[test]
fn chown_changes_owners_of_a_link_itself_and_of_a_tree() {
    if !rustix::process::geteuid().is_root() {
        return support::skip("chown_changes_owners_of_a_link_itself_and_of_a_tree", "needs root");
    }
    let share = Share::new();
    let owners = |name: &str| {
        let meta = std::fs::symlink_metadata(share.path(name)).unwrap();
        (meta.uid(), meta.gid())
    };
    share.make("kept", "");
    share.make("d/f", "");
    symlink("../kept", share.path("d/link")).unwrap();
    for dialect in [Dialect::Unix, Dialect::Linux] {
        let url = |name: &str| share.url(name, dialect);
        good(&["chown", "-R", "12345:54321", &url("d")]);
        assert_eq!(["d", "d/f"].map(owners), [(12345, 54321); 2], "{dialect}");
        good(&["chown", ":7", &url("d/f")]);
        assert_eq!(owners("d/f"), (12345, 7));
        good(&["chown", "root", &url("d/f")]);
        assert_eq!((owners("d/f"), owners("kept")), ((0, 7), (0, 0)));
    }
    assert_eq!(owners("d/link"), (12345, 54321));
    let said = bad(&["chown", "1", &share.url("kept", Dialect::Plan9)]);
    assert!(said.contains("9P2000 cannot change an owner by number"), "{said}");
    assert!(wrong(&["chown", "no such user", "9p://h/x"]).contains("no user of this machine"));
}

#[test]
fn truncate_cuts_extends_and_makes_files() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        let url = share.url("f", dialect);
        good(&["truncate", "-c", "-s", "5", &url]);
        assert!(share.names(".").is_empty());
        for (size, expected) in [("10", 10), ("+5", 15), ("-3", 12), ("%8", 16), ("/5", 15), ("<4", 4), (">1K", 1024)] {
            good(&["truncate", "-s", size, &url]);
            assert_eq!(std::fs::metadata(share.path("f")).unwrap().len(), expected, "{dialect} {size}");
        }
        good(&["truncate", "-s", "4G", &url]);
        assert_eq!(std::fs::metadata(share.path("f")).unwrap().len(), 4 << 30);
        std::fs::create_dir(share.path("d")).unwrap();
        assert!(bad(&["truncate", "-s", "0", &share.url("d", dialect)]).contains("is a directory"));
        assert!(bad(&["truncate", "-s", "0", &share.url("no/f", dialect)]).contains("mkdir -p"));
    }
    assert!(wrong(&["truncate", "-s", "many", "9p://h/x"]).contains("no size"));
}

#[test]
fn a_tree_that_is_served_read_only_is_left_as_it_is_and_said_to_be() {
    for dialect in Dialect::ALL {
        let share = Share::with(&["--read-only"]);
        share.make("f", "x");
        let url = share.url("f", dialect);
        for args in [
            &["write", &url][..],
            &["write", "-a", &url],
            &["rm", &url],
            &["mv", &url, &share.url("g", dialect)],
            &["mkdir", &share.url("d", dialect)],
            &["chmod", "0", &url],
            &["truncate", "-s", "0", &url],
        ] {
            let said = bad(args);
            assert!(said.contains("read-only"), "{args:?} {said}");
        }
        assert_eq!((share.names("."), share.read("f")), (vec!["f".to_owned()], b"x".to_vec()));
    }
}

#[test]
fn a_local_file_is_for_the_commands_of_this_machine() {
    for args in
        [&["rm", "f"][..], &["mkdir", "f"], &["chmod", "0", "f"], &["truncate", "-s", "0", "f"], &["write", "f"]]
    {
        let said = wrong(args);
        assert!(said.contains("is a file of this machine"), "{said}");
    }
}
