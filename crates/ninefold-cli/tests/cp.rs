//! `ninefold cp` between this machine and our own server, in every dialect: cp(1)'s rules, and what stays as it was.

mod support;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use ninefold::proto::Dialect;
use support::run;
use support::share::Share;
use support::tree::{assert_same, odd_names, picture};

/// Runs cp; its exit status and what it says.
fn cp(args: &[&str]) -> (Option<i32>, String) {
    let words = [&["cp"], args].concat();
    let (code, out, said) = run(&words);
    assert_eq!(out, "", "{args:?}");
    (code, said)
}

/// Runs a cp that succeeds and has nothing to say.
#[track_caller]
fn good(args: &[&str]) {
    assert_eq!(cp(args), (Some(0), String::new()), "{args:?}");
}

/// Runs a cp that fails; what it says.
#[track_caller]
fn bad(args: &[&str]) -> String {
    let (code, said) = cp(args);
    assert_eq!(code, Some(1), "{args:?}: {said}");
    said
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A tree with all that trees have: sizes around those of messages, odd names, depth, empty directories.
fn make_tree(at: &Path) {
    let sizes = [0, 1, 4095, 4096, 65_536, 65_537, (1 << 20) - 24, 1 << 20, 2_500_000];
    fs::create_dir_all(at.join("sizes")).unwrap();
    for (i, size) in sizes.into_iter().enumerate() {
        let bytes: Vec<u8> = (0..size).map(|n| (n * 7 + i + n / 4096) as u8).collect();
        fs::write(at.join(format!("sizes/{size}")), bytes).unwrap();
    }
    odd_names(&at.join("odd"));
    let mut deep = at.join("deep");
    for level in 0..20 {
        deep.push(format!("level-{level}"));
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("leaf"), "the end").unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    fs::create_dir(at.join("many")).unwrap();
    for i in 0..300 {
        fs::write(at.join(format!("many/{i}")), format!("file {i}")).unwrap();
    }
}

#[test]
fn a_tree_goes_there_and_on_and_back_in_every_dialect() {
    for dialect in Dialect::ALL {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let source = here.path().join("source");
        make_tree(&source);
        good(&["-r", text(&source), &share.url("there", dialect)]);
        assert_same(&source, &share.path("there"));
        // Within the server, through here.
        good(&["-r", &share.url("there", dialect), &share.url("on", dialect)]);
        assert_same(&source, &share.path("on"));
        let back = here.path().join("back");
        good(&["-r", &share.url("on", dialect), text(&back)]);
        assert_same(&source, &back);
    }
}

#[test]
fn from_one_server_to_another_in_another_dialect() {
    let (from, to) = (Share::new(), Share::new());
    make_tree(&from.path("tree"));
    good(&["-r", &from.url("tree", Dialect::Linux), &to.url("tree", Dialect::Plan9)]);
    assert_same(&from.path("tree"), &to.path("tree"));
}

#[test]
fn a_copy_goes_into_a_directory_under_its_own_name_and_else_to_the_name_given() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let file = here.path().join("f");
    fs::write(&file, "text").unwrap();
    fs::create_dir(share.path("d")).unwrap();
    let url = |path: &str| share.url(path, Dialect::Linux);
    good(&[text(&file), &url("d")]);
    good(&[text(&file), &url("d/g")]);
    good(&[text(&file), share.place()]);
    symlink("d", share.path("to-d")).unwrap();
    fs::remove_file(share.path("d/f")).unwrap();
    good(&[text(&file), &url("to-d")]);
    assert_eq!(share.names("d"), ["f", "g"]);
    assert_eq!(share.names("."), ["d", "f", "to-d"]);

    let out = here.path().join("out");
    fs::create_dir(&out).unwrap();
    good(&[&url("d/f"), &url("d/g"), text(&out)]);
    assert_eq!(fs::read(out.join("g")).unwrap(), b"text");
    let said = bad(&[&url("d/f"), &url("d/g"), text(&file)]);
    assert!(said.contains("several files go into a directory"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), b"text");
}

#[test]
fn a_directory_goes_into_a_directory_or_becomes_a_new_one_or_with_a_dot_at_its_end_gives_its_content() {
    for dialect in Dialect::ALL {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let source = here.path().join("s");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("x"), "x").unwrap();
        fs::create_dir(share.path("there")).unwrap();
        let url = |path: &str| share.url(path, dialect);
        good(&["-r", text(&source), &url("there")]);
        assert_eq!(share.read("there/s/x"), b"x");
        good(&["-r", text(&source), &url("new")]);
        good(&["-r", text(&source), &url("newer/")]);
        assert_eq!((share.read("new/x"), share.read("newer/x")), (b"x".to_vec(), b"x".to_vec()));
        good(&["-r", &format!("{}/.", text(&source)), &url("there")]);
        assert_eq!(share.names("there"), ["s", "x"]);
        // The root of a server has no name.
        let out = here.path().join("out");
        fs::create_dir(&out).unwrap();
        good(&["-r", &format!("{}?dialect={dialect}", share.place()), text(&out)]);
        assert_same(share.root(), &out);
    }
}

#[test]
fn what_cp_refuses_is_refused_and_the_rest_is_copied() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let url = |path: &str| share.url(path, Dialect::Linux);
    share.make("d/x", "x");
    share.make("f", "file");
    let (dir, file, out) = (here.path().join("d"), here.path().join("f"), here.path().join("out"));
    fs::create_dir(&dir).unwrap();
    fs::write(&file, "mine").unwrap();
    fs::create_dir(&out).unwrap();

    assert!(bad(&[text(&dir), &url("new")]).contains("give -r"));
    assert!(bad(&["-r", text(&dir), &url("f")]).contains("cannot make the directory"));
    assert_eq!(share.read("f"), b"file");
    assert!(bad(&[text(&file), &url("none/f")]).contains("file does not exist"));
    assert!(bad(&[text(&file), &url("new/")]).contains("not a directory"));
    assert!(bad(&[&format!("{}/", text(&file)), &url("new")]).contains("not a directory"));
    // A file over a directory, in a tree: the directory stays.
    share.make("tree/d", "now a file");
    fs::create_dir_all(out.join("tree/d")).unwrap();
    share.make("tree/e", "e");
    assert!(bad(&["-r", &url("tree"), text(&out)]).contains("a directory is not overwritten"));
    assert!(out.join("tree/d").is_dir());
    assert_eq!(fs::read(out.join("tree/e")).unwrap(), b"e");
    // One of several sources is missing.
    let said = bad(&[&url("missing"), &url("f"), text(&out)]);
    assert!(said.contains("/missing"), "{said}");
    assert_eq!(fs::read(out.join("f")).unwrap(), b"file");
    assert_eq!(share.names("."), ["d", "f", "tree"]);
}

#[test]
fn two_sources_of_one_name_are_not_written_over_each_other_but_directories_are_merged() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let out = here.path().join("out");
    fs::create_dir(&out).unwrap();
    for (dir, only) in [("a", "one"), ("b", "two")] {
        share.make(&format!("{dir}/f"), dir);
        share.make(&format!("{dir}/d/{only}"), only);
    }
    let url = |path: &str| share.url(path, Dialect::Linux);
    let said = bad(&["-r", &url("a/f"), &url("b/f"), &url("a/d"), &url("b/d"), text(&out)]);
    assert!(said.contains("b/f") && said.contains("just copied"), "{said}");
    assert_eq!(fs::read(out.join("f")).unwrap(), b"a");
    assert!(out.join("d/one").exists() && out.join("d/two").exists());
}

#[test]
fn two_files_of_this_machine_are_for_cp() {
    let here = tempfile::tempdir().unwrap();
    let (a, b) = (here.path().join("a"), here.path().join("b"));
    fs::write(&a, "a").unwrap();
    let (code, said) = cp(&[text(&a), text(&b)]);
    assert_eq!(code, Some(2));
    assert!(said.contains("cp(1)"), "{said}");
    assert!(!b.exists());
}

#[test]
fn a_directory_is_not_copied_into_itself_nor_a_file_to_itself() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        share.make("d/sub/x", "x");
        let url = |path: &str| share.url(path, dialect);
        for to in ["d/sub", "d/new", "d", "d/sub/../new"] {
            assert!(bad(&["-r", &url("d"), &url(to)]).contains("into itself"), "{to}");
        }
        let said = bad(&[&url("d/sub/x"), &url("d/sub/x")]);
        assert!(said.contains("the same file"), "{said}");
        assert_eq!(share.read("d/sub/x"), b"x");
        assert_eq!(share.names("d"), ["sub"]);
    }
    // By a name that does not tell.
    let share = Share::new();
    share.make("d/sub/x", "x");
    symlink("d/sub", share.path("alias")).unwrap();
    let url = |path: &str| share.url(path, Dialect::Linux);
    assert!(bad(&["-r", &url("d"), &url("alias")]).contains("into itself"));
    assert!(!share.path("d/sub/d/sub/d").exists());
}

#[test]
fn permissions_are_the_sources_less_the_umask_and_those_of_a_file_that_is_there_stay() {
    for dialect in Dialect::ALL {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let (file, back) = (here.path().join("f"), here.path().join("back"));
        fs::write(&file, "new").unwrap();
        chmod(&file, 0o4777);
        let url = share.url("f", dialect);
        good(&[text(&file), &url]);
        assert_eq!(mode(share.path("f")), 0o755, "{dialect}");
        good(&[&url, text(&back)]);
        assert_eq!(mode(&back), 0o755);
        for old in [share.path("f"), back.clone()] {
            fs::write(&old, "old and longer").unwrap();
            chmod(&old, 0o604);
        }
        good(&[text(&file), &url]);
        good(&[&url, text(&back)]);
        for path in [share.path("f"), back] {
            assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o604, b"new".to_vec()), "{dialect}");
        }
        assert_eq!(share.names("."), ["f"]);
    }
}

#[test]
fn preserve_keeps_permissions_times_and_what_may_be_kept_of_owners_of_directories_too() {
    for dialect in Dialect::ALL {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let source = here.path().join("s");
        fs::create_dir_all(source.join("sealed")).unwrap();
        fs::write(source.join("sealed/f"), "f").unwrap();
        fs::write(source.join("wide"), "w").unwrap();
        let at = |path: &Path, sec: u64| {
            let times = fs::FileTimes::new();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(sec * 1_000_000_000 + 123_456_789);
            fs::File::open(path).unwrap().set_times(times.set_accessed(time).set_modified(time)).unwrap();
        };
        let special = if dialect == Dialect::Plan9 { 0 } else { 0o2000 };
        chmod(source.join("sealed/f"), 0o440);
        chmod(source.join("wide"), 0o666 | special);
        chmod(source.join("sealed"), 0o555);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(source.join("wide"), Some(12), Some(34)).unwrap();
            chmod(source.join("wide"), 0o666 | special);
        }
        for (path, sec) in
            [("sealed/f", 1_000_000_000), ("wide", 1_100_000_000), ("sealed", 1_200_000_000), (".", 1_300_000_000)]
        {
            at(&source.join(path), sec);
        }
        good(&["-rp", text(&source), &share.url("t", dialect)]);
        let back = here.path().join("back");
        good(&["-rp", &share.url("t", dialect), text(&back)]);
        for copy in [share.path("t"), back] {
            for path in [".", "wide", "sealed", "sealed/f"] {
                let (old, new) = (source.join(path).metadata().unwrap(), copy.join(path).metadata().unwrap());
                assert_eq!(old.mode(), new.mode(), "{dialect}: {path}");
                assert_eq!(old.mtime(), new.mtime(), "{dialect}: {path}");
                if dialect == Dialect::Linux {
                    assert_eq!(old.mtime_nsec(), new.mtime_nsec(), "{path}");
                }
                if dialect != Dialect::Plan9 {
                    assert_eq!((old.uid(), old.gid()), (new.uid(), new.gid()), "{dialect}: {path}");
                }
            }
        }
    }
}

#[test]
fn links_are_copied_as_links_with_r_and_followed_without() {
    for dialect in [Dialect::Unix, Dialect::Linux] {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        let source = here.path().join("s");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("f"), "f").unwrap();
        symlink("f", source.join("link")).unwrap();
        symlink("/nowhere/at all", source.join("dangling")).unwrap();
        symlink("..", source.join("up")).unwrap();
        good(&["-r", text(&source), &share.url("t", dialect)]);
        let back = here.path().join("back");
        good(&["-r", &share.url("t", dialect), text(&back)]);
        assert_same(&source, &share.path("t"));
        assert_same(&source, &back);
        // Again, over what is there, and over a file.
        fs::remove_file(back.join("link")).unwrap();
        fs::write(back.join("link"), "no link").unwrap();
        good(&["-r", &share.url("t/.", dialect), text(&back)]);
        assert_same(&source, &back);
        good(&[&share.url("t/link", dialect), text(&here.path().join("followed"))]);
        assert_eq!(fs::read(here.path().join("followed")).unwrap(), b"f");
        good(&[text(&source.join("link")), &share.url("followed", dialect)]);
        assert_eq!(fs::read(share.path("followed")).unwrap(), b"f");
        assert!(!share.path("followed").is_symlink());
        good(&["-r", &share.url("t/link", dialect), text(&here.path().join("as-link"))]);
        assert_eq!(fs::read_link(here.path().join("as-link")).unwrap(), Path::new("f"));
    }
}

#[test]
fn what_a_dialect_cannot_express_is_complained_of_and_the_rest_copied() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    let source = here.path().join("s");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("f"), "f").unwrap();
    symlink("f", source.join("link")).unwrap();
    let said = bad(&["-r", text(&source), &share.url("t", Dialect::Plan9)]);
    assert!(said.contains("/t/link") && said.contains("9P2000 cannot make a symbolic link"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(share.names("t"), ["f"]);
}

#[test]
fn special_files_are_made_anew_with_r_and_refused_without() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    for dialect in [Dialect::Unix, Dialect::Linux] {
        let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
        fs::create_dir(share.path("s")).unwrap();
        let make = |name: &str, kind, dev| mknodat(CWD, share.path(name), kind, Mode::from_raw_mode(0o644), dev);
        make("s/fifo", FileType::Fifo, 0).unwrap();
        make("s/socket", FileType::Socket, 0).unwrap();
        let device = rustix::process::geteuid().is_root() && make("s/null", FileType::CharacterDevice, 0x103).is_ok();
        let out = here.path().join("out");
        good(&["-r", &share.url("s", dialect), text(&out)]);
        assert!(fs::symlink_metadata(out.join("fifo")).unwrap().file_type().is_fifo());
        assert!(fs::symlink_metadata(out.join("socket")).unwrap().file_type().is_socket());
        if device {
            let null = fs::symlink_metadata(out.join("null")).unwrap();
            assert!(null.file_type().is_char_device());
            assert_eq!(null.rdev(), 0x103);
            // A server's device opens this machine's to nobody else.
            assert_eq!(mode(out.join("null")), 0o600);
        }
        good(&["-r", text(&out.join("fifo")), &share.url("copy", dialect)]);
        assert!(fs::symlink_metadata(share.path("copy")).unwrap().file_type().is_fifo());
        for (from, to) in [
            (share.url("s/fifo", dialect), text(&out.join("x")).to_owned()),
            (share.url("s/socket", dialect), text(&out.join("x")).to_owned()),
            (text(&out.join("socket")).to_owned(), share.url("x", dialect)),
        ] {
            assert!(bad(&[&from, &to]).contains("only -r copies"), "{from}");
        }
        assert!(!out.join("x").exists() && !share.path("x").exists());
    }
}

#[test]
fn devices_and_files_with_several_names_are_written_in_place_and_cp_says_so() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    share.make("f", "new");
    let url = |path: &str| share.url(path, Dialect::Linux);
    let (code, said) = cp(&[&url("f"), "/dev/null"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("/dev/null: written in place"), "{said}");
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());

    for dialect in [Dialect::Unix, Dialect::Linux] {
        let (one, two) = (here.path().join("one"), here.path().join("two"));
        fs::write(&one, "old and long").unwrap();
        fs::hard_link(&one, &two).unwrap();
        share.make("one", "old and long");
        fs::hard_link(share.path("one"), share.path("two")).unwrap();
        for to in [text(&one).to_owned(), share.url("one", dialect)] {
            let (code, said) = cp(&[&url("f"), &to]);
            assert_eq!(code, Some(0), "{said}");
            assert!(said.contains("written in place: it has 2 names"), "{said}");
        }
        assert_eq!((fs::read(&two).unwrap(), share.read("two")), (b"new".to_vec(), b"new".to_vec()));
        for path in [one, two, share.path("one"), share.path("two")] {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn through_a_link_that_the_user_named_the_file_behind_it_is_replaced() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    share.make("f", "new");
    for root in [here.path(), share.root()] {
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/x"), "old").unwrap();
        symlink("real/x", root.join("link")).unwrap();
    }
    good(&[&share.url("f", Dialect::Linux), text(&here.path().join("link"))]);
    good(&[&share.url("f", Dialect::Linux), &share.url("link", Dialect::Linux)]);
    for root in [here.path(), share.root()] {
        assert!(root.join("link").is_symlink());
        assert_eq!(fs::read(root.join("real/x")).unwrap(), b"new");
        assert_eq!(picture(&root.join("real")).len(), 1);
    }
    symlink("nowhere", here.path().join("dangling")).unwrap();
    let said = bad(&[&share.url("f", Dialect::Linux), text(&here.path().join("dangling"))]);
    assert!(said.contains("leads nowhere"), "{said}");
}

#[test]
fn include_and_exclude_choose_by_name_and_path() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    for path in ["t/a.rs", "t/a.o", "t/sub/b.rs", "t/sub/c.txt", "t/target/x.rs", "t/sub/target/y.rs"] {
        share.make(path, path);
    }
    let url = share.url("t", Dialect::Linux);
    let names = |dir: &Path| -> Vec<String> {
        picture(dir)
            .into_iter()
            .filter(|line| line.contains("file"))
            .map(|line| line.split('\t').next().unwrap().to_owned())
            .collect()
    };
    let out = |name: &str| here.path().join(name);
    good(&["-r", "--include", "*.rs", "--exclude", "/target/", &url, text(&out("1"))]);
    assert_eq!(names(&out("1")), ["a.rs", "sub/b.rs", "sub/target/y.rs"]);
    good(&["-r", "--exclude", "target", "--exclude", "sub/*.txt", &url, text(&out("2"))]);
    assert_eq!(names(&out("2")), ["a.o", "a.rs", "sub/b.rs"]);
    assert!(!out("2").join("target").exists());
    for more in [["--exclude", "*.o"], ["--include", "*.c"]] {
        let (code, said) = cp(&[&[&*share.url("t/a.o", Dialect::Linux), text(&out("2/none"))], &more[..]].concat());
        assert_eq!(code, Some(0));
        assert!(said.contains("/t/a.o") && said.contains("--include and --exclude leave it out"), "{said}");
    }
    assert!(!out("2/none").exists());
    let (code, _, said) = run(&["cp", "-r", "--include", "[", &url, text(&out("3"))]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn a_dry_run_says_what_would_be_copied_and_changes_nothing() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    share.make("t/f", "f");
    share.make("t/d/g", "g");
    let before = picture(share.root());
    let url = share.url("t", Dialect::Linux);
    let out = here.path().join("out");
    let (code, said, complaints) = run(&["cp", "-r", "--dry-run", &url, text(&out)]);
    assert_eq!((code, complaints.as_str()), (Some(0), ""));
    let mut lines: Vec<_> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 4, "{said}");
    assert_eq!(lines[0], format!("{}/t/d/g?dialect=9P2000.L -> {}/d/g", share.place(), text(&out)));
    assert!(!out.exists());
    let (code, ..) = run(&["cp", "-r", "--dry-run", &url, &share.url("new", Dialect::Linux)]);
    assert_eq!(code, Some(0));
    assert_eq!(picture(share.root()), before);
}

#[test]
fn a_dry_run_that_resumes_by_content_tells_what_the_copy_will_do() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    for (name, content) in [("same", "1234"), ("other", "abcd"), ("new", "n"), ("older", "same")] {
        share.make(&format!("t/{name}"), content);
    }
    let out = here.path().join("t");
    fs::create_dir(&out).unwrap();
    for (name, content) in [("same", "1234"), ("other", "wxyz"), ("older", "same")] {
        fs::write(out.join(name), content).unwrap();
    }
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(out.join("older")).unwrap().set_modified(long_ago).unwrap();
    let before = picture(here.path());
    let url = share.url("t", Dialect::Linux);
    // The names of the files that are there already.
    let skipped = |more: &[&str]| -> Vec<String> {
        let words = ["cp", "-r", "--resume", "--checksum", "--json", &url, text(here.path())];
        let (code, said, complaints) = run(&[&words, more].concat());
        assert_eq!((code, complaints.as_str()), (Some(0), ""));
        let objects = said.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let there = objects.filter(|object| object["skipped"] == true);
        let mut names: Vec<_> = there.map(|object| object["destination"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let told = skipped(&["--dry-run"]);
    assert_eq!(picture(here.path()), before);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told, skipped(&[]));
}

#[test]
fn a_copy_goes_on_when_nobody_reads_what_it_prints() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    // Of so many more is told than pipes and buffers hold.
    let count = 3000;
    for i in 0..count {
        share.make(&format!("t/{i}"), "x");
    }
    let out = here.path().join("out");
    let mut copy = support::ninefold(&["cp", "-r", "--json", &share.url("t", Dialect::Linux), text(&out)]);
    let copy = copy.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let mut copy = copy.stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(copy.stdout.take());
    let output = copy.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    assert_eq!(fs::read_dir(&out).unwrap().count(), count);
}

#[test]
fn json_tells_of_each_file_and_of_the_whole() {
    let (share, here) = (Share::new(), tempfile::tempdir().unwrap());
    share.make("t/f", "four");
    symlink("f", share.path("t/link")).unwrap();
    let out = here.path().join("out");
    let url = |path: &str| share.url(path, Dialect::Linux);
    let (code, said, _) = run(&["cp", "-r", "--json", "--checksum", &url("t"), text(&out)]);
    assert_eq!(code, Some(0));
    let objects: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let file = objects.iter().find(|object| object["kind"] == "file").unwrap();
    assert_eq!(file["destination"], format!("{}/f", text(&out)));
    assert_eq!((&file["bytes"], &file["in_place"]), (&4.into(), &false.into()));
    // xxh128sum of "four".
    assert_eq!(file["xxh3_128"], FOUR);
    let sum = objects.last().unwrap();
    assert_eq!(
        (&sum["files"], &sum["directories"], &sum["bytes"], &sum["failed"]),
        (&2.into(), &1.into(), &4.into(), &0.into())
    );
    let (code, said, _) = run(&["cp", "--json", &url("none"), text(&out)]);
    assert_eq!(code, Some(1));
    assert!(said.lines().next().unwrap().contains("file does not exist"), "{said}");
}

const FOUR: &str = "8cb76294f064577382ce18fb49b7d8cb";
