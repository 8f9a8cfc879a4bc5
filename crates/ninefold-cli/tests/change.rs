//! The commands that change files, against our own server in every dialect.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use ninefold::proto::Dialect;
use support::share::{Share, feed};

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
