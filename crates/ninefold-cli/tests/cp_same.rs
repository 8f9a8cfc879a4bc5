//! `ninefold cp` where files that have different names are one file.

mod support;

use std::fs;
use std::io::Write;

use ninefold::proto::Dialect;
use support::meddler::{RREAD, kind, meddle};
use support::run;
use support::share::Share;

/// Bytes that are alike nowhere.
fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; size];
    rng.fill(&mut bytes);
    bytes
}

#[test]
fn a_file_that_is_copied_to_itself_by_another_name_of_it_and_of_the_server_keeps_its_content() {
    let content = noise(5 << 20, 1);
    for dialect in Dialect::ALL {
        let share = Share::new();
        let other = meddle(share.address(), |_, _| true);
        let there = |name: &str| share.url(name, dialect);
        let again = |name: &str| format!("9p://{other}/{name}?dialect={dialect}");
        let here = |name: &str| share.path(name).to_str().unwrap().to_owned();
        for (from, to) in [(there("a"), again("b")), (there("a"), here("b")), (here("a"), there("b"))] {
            share.make("a", &content);
            let _ = fs::remove_file(share.path("b"));
            fs::hard_link(share.path("a"), share.path("b")).unwrap();
            let (code, _, said) = run(&["cp", &from, &to]);
            for name in ["a", "b"] {
                assert!(share.read(name) == content, "{dialect}: {from} to {to}: {name} is torn: {code:?}: {said}");
            }
            assert_eq!(share.names("."), ["a", "b"], "{dialect}");
        }
    }
}

#[test]
fn what_is_written_in_place_ends_where_its_source_ends_with_the_zeros_of_its_holes() {
    let here = tempfile::tempdir().unwrap();
    for dialect in [Dialect::Unix, Dialect::Linux] {
        let share = Share::new();
        let source = here.path().join("source");
        // A hole where the old file has bytes, and one behind its end.
        let file = fs::File::create(&source).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"begin", 0).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"end", 3 << 20).unwrap();
        file.set_len(4 << 20).unwrap();
        let content = fs::read(&source).unwrap();
        for (old, how_long) in [(noise(1 << 20, 2), "shorter"), (noise(5 << 20, 3), "longer")] {
            for (from, to, first) in [
                (source.to_str().unwrap().to_owned(), share.url("one", dialect), share.path("one")),
                (
                    share.url("s", dialect),
                    here.path().join("one").to_str().unwrap().to_owned(),
                    here.path().join("one"),
                ),
            ] {
                fs::copy(&source, share.path("s")).unwrap();
                fs::write(&first, &old).unwrap();
                let second = first.with_file_name("two");
                let _ = fs::remove_file(&second);
                fs::hard_link(&first, &second).unwrap();
                let (code, _, said) = run(&["cp", "--checksum", &from, &to]);
                assert_eq!(code, Some(0), "{said}");
                assert!(said.contains("it has 2 names"), "{said}");
                assert!(fs::read(&second).unwrap() == content, "{dialect}: {to}, which was {how_long}");
                fs::remove_file(&first).unwrap();
            }
        }
    }
}

#[test]
fn a_file_that_is_emptied_while_it_is_copied_is_not_copied() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let file = share.make("log", noise(3 << 20, 5));
    let mut reads = 0;
    let relay = meddle(share.address(), move |_, frame| {
        reads += u32::from(kind(frame) == RREAD);
        // The first comes with the opening.
        if kind(frame) == RREAD && reads == 2 {
            fs::File::create(&file).unwrap().write_all(b"a new day\n").unwrap();
        }
        true
    });
    let to = here.path().join("log");
    fs::write(&to, "old").unwrap();
    let (code, _, said) = run(&["cp", "--no-stream", &format!("9p://{relay}/log"), to.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("it ended after") && said.contains("was changed meanwhile"), "{said}");
    assert_eq!(fs::read(&to).unwrap(), b"old");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1);
}

#[test]
fn names_of_one_file_are_not_written_from_two_sources() {
    let here = tempfile::tempdir().unwrap();
    for dialect in Dialect::ALL {
        let share = Share::new();
        let (out_here, out_there) = (here.path().join("out"), share.path("out"));
        for (name, seed) in [("x", 1), ("y", 2)] {
            share.make(&format!("t/{name}"), noise(6 << 20, seed));
        }
        let from_here = share.path("t/.").to_str().unwrap().to_owned();
        let ways = [
            (share.url("t/.", dialect), out_here.to_str().unwrap().to_owned(), &out_here),
            (from_here, share.url("out", dialect), &out_there),
        ];
        for (from, to, out) in ways {
            // 9P2000 does not tell that a file has several names: they are replaced, but for those of an empty file.
            let old = if dialect == Dialect::Plan9 { vec![] } else { noise(7 << 20, 3) };
            fs::create_dir(out).unwrap();
            fs::write(out.join("x"), old).unwrap();
            fs::hard_link(out.join("x"), out.join("y")).unwrap();
            let (code, _, said) = run(&["cp", "-r", &from, &to]);
            if dialect == Dialect::Plan9 && code == Some(0) {
                // The second was looked at when the first was written, and the file not empty any more: it was replaced.
                for name in ["x", "y"] {
                    assert!(
                        fs::read(out.join(name)).unwrap() == share.read(&format!("t/{name}")),
                        "{to}: {name}: {said}"
                    );
                }
                fs::remove_dir_all(out).unwrap();
                continue;
            }
            assert_eq!(code, Some(1), "{dialect}: {to}: {said}");
            assert!(said.contains("it is the same file as") && said.contains("has just written"), "{said}");
            let now = fs::read(out.join("x")).unwrap();
            assert!(
                now == share.read("t/x") || now == share.read("t/y"),
                "{dialect}: {to} has two files in one: {said}"
            );
            assert!(now == fs::read(out.join("y")).unwrap(), "{dialect}: {to}");
            fs::remove_dir_all(out).unwrap();
        }
    }
}

#[test]
fn a_directory_that_is_copied_into_itself_by_another_way_is_not_copied_again() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        let other = meddle(share.address(), |_, _| true);
        share.make("d/sub/x", "x");
        let (there, here) = (share.url("d", dialect), share.path("d").to_str().unwrap().to_owned());
        let again = format!("9p://{other}/d?dialect={dialect}");
        let new = |place: &str| match place.split_once('?') {
            Some((path, query)) => format!("{path}/new?{query}"),
            None => format!("{place}/new"),
        };
        for more in [&[][..], &["-p"]] {
            for (from, to) in [(&there, &again), (&there, &here), (&here, &there)] {
                let (code, _, said) = run(&[&["cp", "-r"], more, &[from, &new(to)]].concat());
                assert_eq!(code, Some(1), "{from} to {to}: {said}");
                assert!(said.contains("d/new") && said.contains("a directory is not copied into itself"), "{said}");
                assert_eq!(share.names("d"), ["new", "sub"]);
                assert_eq!(share.names("d/new"), ["sub"], "{from} to {to}");
                assert_eq!(share.read("d/new/sub/x"), b"x");
                fs::remove_dir_all(share.path("d/new")).unwrap();
            }
        }
    }
}

#[test]
fn a_tree_whose_directories_lie_in_ones_of_their_name_is_copied() {
    let here = tempfile::tempdir().unwrap();
    for dialect in Dialect::ALL {
        let share = Share::new();
        share.make("a/a/a/a/x", "x");
        let out = here.path().join("a");
        let url = share.url("a", dialect);
        assert_eq!(run(&["cp", "-r", &url, out.to_str().unwrap()]), (Some(0), String::new(), String::new()));
        assert_eq!(fs::read(out.join("a/a/a/x")).unwrap(), b"x");
        fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn a_tree_of_more_levels_than_programs_make_is_copied_down_to_them() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    // No path is so long: each from the one above.
    let mut dir = fs::File::open(share.root()).unwrap();
    for _ in 0..1003 {
        rustix::fs::mkdirat(&dir, "d", rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        dir = rustix::fs::openat(&dir, "d", flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    let to = here.path().join("to");
    let (code, _, said) = run(&["cp", "-r", &share.url("d", Dialect::Linux), to.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(said.contains("more than 1,000 directories inside one another"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
