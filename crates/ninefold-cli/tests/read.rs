//! The commands that read print what their namesakes print on the tree that is served, byte for byte wherever the
//! dialect tells it.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use support::{Running, ninefold};

const DIALECTS: [&str; 3] = ["9P2000.L", "9P2000.u", "9P2000"];

/// A tree and its server.
struct Stage {
    root: PathBuf,
    _dir: tempfile::TempDir,
    address: SocketAddr,
    _server: Running,
}

impl Stage {
    fn new(fill: impl FnOnce(&Path)) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        // Without a dot at the front of its name.
        let root = dir.path().join("tree");
        fs::create_dir(&root).unwrap();
        fill(&root);
        let server = Running::start(&["serve", root.to_str().unwrap(), "--listen", "9p://127.0.0.1:0"]);
        Stage { root, address: server.tcp(), _dir: dir, _server: server }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// The address of a word `@PATH`; other words are themselves.
    fn remote(&self, word: &str, dialect: &str) -> String {
        match word.strip_prefix('@') {
            Some(path) => format!("9p://{}{path}?dialect={dialect}", self.address),
            None => word.to_owned(),
        }
    }

    /// Runs ninefold's command.
    fn ours(&self, dialect: &str, words: &[&str]) -> Printed {
        let words: Vec<String> = words.iter().map(|word| self.remote(word, dialect)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = ninefold(&words).stdin(Stdio::null()).env("TZ", "UTC").env_remove("TIME_STYLE").output().unwrap();
        let base = format!("9p://{}", self.address);
        Printed::new(output, &[(&base, "@"), (&format!("?dialect={dialect}"), "")])
    }

    /// Runs its namesake.
    fn theirs(&self, words: &[&str]) -> Printed {
        let root = self.root.to_str().unwrap();
        let local = |word: &&str| word.strip_prefix('@').map_or((*word).to_owned(), |path| format!("{root}{path}"));
        let mut command = Command::new(words[0]);
        command.args(words[1..].iter().map(local)).stdin(Stdio::null());
        command.env("LC_ALL", "C").env("TZ", "UTC").env_remove("TIME_STYLE");
        let mut printed = Printed::new(command.output().unwrap(), &[(root, "@")]);
        // Ours has one status for every failure.
        printed.code = printed.code.min(1);
        printed
    }

    /// Both print and end alike.
    fn same(&self, dialect: &str, words: &[&str]) {
        let (ours, theirs) = (self.ours(dialect, words), self.theirs(words));
        assert_eq!(ours.out, theirs.out, "{dialect} {words:?}\n{}", ours.err);
        assert_eq!(ours.code, theirs.code, "{dialect} {words:?}\n{}", ours.err);
        assert_eq!(ours.err.is_empty(), theirs.err.is_empty(), "{dialect} {words:?}\n{}", ours.err);
    }
}

/// What a command printed, with `@` for where the tree is.
#[derive(Debug)]
struct Printed {
    /// Bytes, as far as they are no UTF-8 escaped.
    out: String,
    err: String,
    code: i32,
}

impl Printed {
    fn new(output: Output, names: &[(&str, &str)]) -> Printed {
        let text = |bytes: &[u8]| {
            let escape =
                |chunk: std::str::Utf8Chunk<'_>| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii());
            let text: String = bytes.utf8_chunks().map(escape).collect();
            names.iter().fold(text, |text, (name, short)| text.replace(name, short))
        };
        let code = output.status.code().expect("an exit status");
        Printed { out: text(&output.stdout), err: text(&output.stderr), code }
    }
}

/// Files of every kind that needs no rights, and names of every kind.
fn all_kinds(dir: &Path) {
    fs::write(dir.join("file"), "hello\n").unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join(".hidden"), "").unwrap();
    fs::write(dir.join("two words"), "x").unwrap();
    fs::write(dir.join("new\nline"), "x").unwrap();
    fs::write(dir.join(OsStr::from_bytes(b"\xff\xfe")), "x").unwrap();
    fs::write(dir.join("page"), vec![b'x'; 5000]).unwrap();
    fs::File::create(dir.join("sparse")).unwrap().set_len(123_456_789).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_577_934_245, 123_456_789);
    fs::File::options().write(true).open(dir.join("page")).unwrap().set_modified(old).unwrap();
    fs::set_permissions(dir.join("file"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(dir.join("empty"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(dir.join("file"), dir.join("another")).unwrap();
    symlink("file", dir.join("link")).unwrap();
    symlink("no where", dir.join("dangling")).unwrap();
    symlink("sub", dir.join("to-sub")).unwrap();
    fs::create_dir_all(dir.join("sub/deep/er")).unwrap();
    fs::create_dir_all(dir.join("sub/.dot/x")).unwrap();
    fs::write(dir.join("sub/leaf.txt"), "leaf\n").unwrap();
    fs::write(dir.join("sub/deep/leaf.txt"), "deep leaf\n").unwrap();
    fs::set_permissions(dir.join("sub/deep"), fs::Permissions::from_mode(0o1777)).unwrap();
    mknodat(CWD, dir.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    // Only root makes these.
    let _ = mknodat(CWD, dir.join("device"), FileType::CharacterDevice, Mode::from_raw_mode(0o600), 0x103);
    let _ = std::os::unix::fs::chown(dir.join("empty"), Some(12345), Some(54321));
}

/// What every dialect can tell of.
fn plain(dir: &Path) {
    fs::create_dir_all(dir.join("sub/deep/er")).unwrap();
    fs::create_dir_all(dir.join("sub/.dot/x")).unwrap();
    for name in ["file", "sub/b.txt", "sub/a.txt", "sub/.dot/c.txt", "sub/deep/er/d.txt", "two words", "new\nline"] {
        fs::write(dir.join(name), name).unwrap();
    }
    fs::write(dir.join(OsStr::from_bytes(b"\xff\xfe")), "x").unwrap();
    fs::write(dir.join("large"), vec![b'x'; 3_000_001]).unwrap();
}

#[test]
fn in_9p2000_l_and_n1_a_listing_with_attributes_is_that_of_ls() {
    let stage = Stage::new(all_kinds);
    for words in [
        &["ls", "-l", "@"][..],
        &["ls", "-la", "@/sub"],
        &["ls", "-lR", "@"],
        // The parent of the root is the root.
        &["ls", "-lRa", "@/sub"],
        &["ls", "-ld", "@", "@/file"],
        &["ls", "-l", "@/link", "@/sub", "@/page", "@/missing"],
        &["ls", "-l", "@/to-sub"],
        &["ls", "-l", "@/to-sub/"],
        &["ls", "-l", "@/sub/deep/er"],
        &["ls", "-l", "--time-style=long-iso", "@"],
        &["ls", "-l", "--time-style=full-iso", "@"],
        &["ls", "-l", "--time-style=iso", "@", "@/sub/deep"],
    ] {
        stage.same("9P2000.L", words);
        stage.same("9P2000.L.n1", words);
    }
}

#[test]
fn sizes_for_people_are_those_of_ls() {
    let stage = Stage::new(all_kinds);
    let (ours, theirs) = (stage.ours("9P2000.L", &["ls", "-lh", "@"]), stage.theirs(&["ls", "-lh", "@"]));
    assert_eq!(ours.out, theirs.out);
}

#[test]
fn in_every_dialect_names_are_listed_as_ls_lists_them() {
    let stage = Stage::new(plain);
    for dialect in DIALECTS {
        for words in [
            &["ls", "@"][..],
            &["ls", "-a", "@/sub"],
            &["ls", "-R", "@"],
            &["ls", "-aR", "@"],
            &["ls", "@/sub", "@/file", "@/sub/deep", "@/missing", "@/large"],
            &["ls", "-d", "@/sub", "@/file"],
            &["ls", "@/sub/"],
            &["ls", "@/file/"],
            &["ls", "@/file/x"],
            &["ls", "@/missing"],
        ] {
            stage.same(dialect, words);
        }
    }
}

#[test]
fn links_are_listed_as_ls_lists_them() {
    let stage = Stage::new(all_kinds);
    for dialect in ["9P2000.L", "9P2000.u"] {
        for words in [&["ls", "@/to-sub"][..], &["ls", "@/dangling"], &["ls", "@/link"], &["ls", "-d", "@/to-sub"]] {
            stage.same(dialect, words);
        }
    }
}

/// The words of each line of `ls -l`, the name last; without the total.
fn fields(listing: &str) -> Vec<Vec<&str>> {
    listing.lines().filter(|line| !line.starts_with("total ")).map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn what_a_dialect_does_not_tell_is_a_question_mark_and_the_rest_is_that_of_ls() {
    let stage = Stage::new(|dir| {
        plain(dir);
        fs::remove_file(dir.join("new\nline")).unwrap();
        fs::hard_link(dir.join("file"), dir.join("another")).unwrap();
    });
    let theirs = stage.theirs(&["ls", "-l", "@"]);
    for dialect in ["9P2000.u", "9P2000"] {
        let ours = stage.ours(dialect, &["ls", "-l", "@"]);
        let mut expected = fields(&theirs.out);
        for line in &mut expected {
            if dialect == "9P2000" {
                line[1] = "?";
            }
            if line[0].starts_with('d') {
                // A directory has no length there (stat(5)).
                line[4] = "0";
            }
        }
        assert_eq!(fields(&ours.out), expected, "{dialect}");
        // 3,000,001 bytes in blocks of 4 KiB; one block for each of four other files and for the directory.
        assert_eq!(ours.out.lines().next(), Some("total 2952"), "{dialect}");
    }
}

#[test]
fn in_9p2000_l_disk_space_is_summed_up_as_du_sums_it_up() {
    let stage = Stage::new(all_kinds);
    for words in [
        &["du", "@"][..],
        &["du", "-a", "@"],
        &["du", "-s", "@", "@/sub"],
        // What was counted below one word does not count below another.
        &["du", "@/sub/deep", "@/sub", "@/file"],
        &["du", "-a", "@/file", "@/another", "@/page"],
        &["du", "-b", "@/page", "@/sparse"],
        &["du", "@/missing", "@/page"],
        &["du", "@/link"],
        &["du", "@/sub/"],
        &["du", "-d", "1", "@"],
        &["du", "-a", "-d1", "-c", "@", "@/page"],
        &["du", "--max-depth=0", "--total", "@/sub", "@/missing", "@/page"],
    ] {
        stage.same("9P2000.L", words);
    }
    assert_eq!(stage.ours("9P2000.L", &["du", "-h", "@"]).out, stage.theirs(&["du", "-h", "@"]).out);
    let apparent = |stage: &Stage, words| stage.ours("9P2000.L", words).out;
    assert_eq!(apparent(&stage, &["du", "--apparent-size", "@/sparse"]), "120564\t@/sparse\n");
}

#[test]
fn in_other_dialects_files_fill_blocks_and_a_directory_has_one() {
    let stage = Stage::new(|dir| {
        plain(dir);
        fs::hard_link(dir.join("large"), dir.join("sub/large")).unwrap();
    });
    // Links are counted once where their number is told.
    for (dialect, large) in [("9P2000.u", 2932), ("9P2000", 2 * 2932)] {
        let ours = stage.ours(dialect, &["du", "-s", "@"]);
        // Eight files and five directories beside it.
        assert_eq!(ours.out, format!("{}\t@\n", large + 4 * (8 + 6)), "{dialect}");
    }
    for dialect in DIALECTS {
        let ours = stage.ours(dialect, &["du", "-ab", "@/sub/deep/er/d.txt", "@/file"]);
        assert_eq!(ours.out, "17\t@/sub/deep/er/d.txt\n4\t@/file\n", "{dialect}");
    }
}

#[test]
fn in_every_dialect_files_are_found_as_find_finds_them() {
    let stage = Stage::new(plain);
    for dialect in DIALECTS {
        for words in [
            &["find", "@"][..],
            &["find", "@/sub/", "@/file"],
            &["find", "@", "-type", "f"],
            &["find", "@", "-type", "d,f", "-name", "*a*"],
            &["find", "@", "-name", "?.txt"],
            &["find", "@", "-name", "[!ab].txt"],
            &["find", "@", "-name", ".*"],
            &["find", "@", "-maxdepth", "0"],
            &["find", "@", "-maxdepth", "2", "-mindepth", "1", "-type", "d"],
            &["find", "@", "-mindepth", "3"],
            &["find", "@", "-print0"],
            &["find", "@/sub", "-name", "sub"],
            &["find", "@/missing", "@/file"],
        ] {
            stage.same(dialect, words);
        }
    }
}

#[test]
fn files_of_every_kind_are_found_by_it() {
    let stage = Stage::new(all_kinds);
    for dialect in ["9P2000.L", "9P2000.u"] {
        for kind in ["f", "d", "l", "p", "s", "c", "b", "l,p"] {
            stage.same(dialect, &["find", "@", "-type", kind]);
            stage.same(dialect, &["find", "@/fifo", "@/link", "@/file", "@/sub", "-maxdepth", "0", "-type", kind]);
        }
    }
}

#[test]
fn in_9p2000_l_stat_tells_all_that_its_namesake_tells_but_the_device() {
    let stage = Stage::new(all_kinds);
    let words = ["@", "@/file", "@/empty", "@/link", "@/dangling", "@/fifo", "@/socket", "@/sub", "@/sparse", "@/page"];
    let device = |out: String| {
        let line = |line: &str| match line.split_once('\t') {
            Some((first, rest)) if first.starts_with("Device: ") => format!("Device: -\t{rest}\n"),
            _ => format!("{line}\n"),
        };
        out.lines().map(line).collect::<String>()
    };
    let devices = if stage.path("device").exists() { &["@/device"][..] } else { &[] };
    for first in [&["stat"][..], &["stat", "-L"]] {
        let words: Vec<&str> = [first, &words, devices, &["@/missing"]].concat();
        // To read a link is an access: from now on all have been accessed.
        stage.theirs(&words);
        let (ours, theirs) = (stage.ours("9P2000.L", &words), stage.theirs(&words));
        assert_eq!(ours.out, device(theirs.out));
        assert_eq!(ours.code, 1);
    }
}

#[test]
fn what_a_dialect_does_not_tell_is_a_dash_in_stat() {
    let stage = Stage::new(plain);
    let theirs = stage.theirs(&["stat", "-c", "%i %x %y", "@/file"]).out;
    let field = |n: usize| theirs.split(' ').nth(n).unwrap();
    let second = |n: usize| field(n).split('.').next().unwrap();
    for (dialect, links, ids) in [("9P2000.u", "1", 'n'), ("9P2000", "-", '-')] {
        let ours = stage.ours(dialect, &["stat", "@/file"]).out;
        let lines: Vec<&str> = ours.lines().collect();
        assert_eq!(lines[1], "  Size: 4         \tBlocks: -          IO Block: -      regular file", "{dialect}");
        assert_eq!(lines[2], format!("Device: -\tInode: {:<10}  Links: {links}", field(0)), "{dialect}");
        let uid = lines[3].split_once("Uid: (").unwrap().1.split('/').next().unwrap().trim();
        assert_eq!(uid == "-", ids == '-', "{dialect} {ours}");
        assert_eq!(lines[4], format!("Access: {} {}.000000000 +0000", field(1), second(2)), "{dialect}");
        assert_eq!(lines[5], format!("Modify: {} {}.000000000 +0000", field(4), second(5)), "{dialect}");
        assert_eq!(lines[6..], ["Change: -", " Birth: -"], "{dialect}");
    }
}

#[test]
fn a_tree_takes_a_few_round_trips_a_level() {
    let stage = Stage::new(|dir| {
        for one in 0..10 {
            for two in 0..5 {
                let dir = dir.join(format!("{one}/{two}"));
                fs::create_dir_all(&dir).unwrap();
                (0..20).for_each(|n| fs::write(dir.join(n.to_string()), "x").unwrap());
            }
        }
    });
    let file = stage.path("../stats");
    for (words, most) in [
        // To connect 2, to the file 1; each of three levels 5, or 7 with attributes; the 50 directories of the last level
        // take a second turn.
        (&["du", "@"][..], 40),
        (&["ls", "-lR", "@"], 40),
        (&["find", "@"], 30),
        (&["ls", "-l", "@/0/0"], 10),
        (&["cat", "@/0/0/1"], 5),
    ] {
        let words = [&["--stats", file.to_str().unwrap()], words].concat();
        assert_eq!(stage.ours("9P2000.L", &words).code, 0);
        let stats: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let trips = stats["round_trips"].as_u64().unwrap();
        assert!(trips <= most, "{words:?}: {trips} round trips");
    }
}

/// The objects of a command's lines.
fn objects(printed: &Printed) -> Vec<serde_json::Value> {
    printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn json_tells_all_that_the_dialect_tells_and_every_name_without_loss() {
    let stage = Stage::new(all_kinds);
    for dialect in DIALECTS {
        let found = objects(&stage.ours(dialect, &["find", "--json", "@"]));
        let listed = objects(&stage.ours(dialect, &["ls", "--json", "-a", "@"]));
        let file = listed.iter().find(|file| file["name"] == "file").unwrap();
        assert_eq!(Some(file), found.iter().find(|file| file["path"] == "@/file"), "{dialect}");
        assert_eq!(file, &objects(&stage.ours(dialect, &["stat", "--json", "@/file"]))[0], "{dialect}");
        let linux = dialect == "9P2000.L";
        assert_eq!((&file["size"], &file["kind"]), (&6.into(), &"file".into()), "{dialect}");
        assert_eq!(file["mode"], if dialect == "9P2000" { 0o751 } else { 0o4751 }, "{dialect}");
        assert_eq!(file["blocks"].is_u64(), linux, "{dialect}");
        assert_eq!(file["owner"].is_string(), !linux, "{dialect}");
        assert_eq!(file["nlink"].is_null(), dialect == "9P2000", "{dialect}");
        assert_eq!(file["changed"]["nsec"].is_u64(), linux, "{dialect}");
        let odd = listed.iter().find(|file| file["name"] == serde_json::json!({ "bytes": [255, 254] })).unwrap();
        assert_eq!(odd["url"], "@/%FF%FE", "{dialect}");
        if dialect != "9P2000" {
            let link = listed.iter().find(|file| file["name"] == "dangling").unwrap();
            assert_eq!((&link["kind"], &link["link_target"]), (&"symlink".into(), &"no where".into()), "{dialect}");
        }
        let sums = objects(&stage.ours(dialect, &["du", "--json", "-b", "@/page", "@/sub/leaf.txt"]));
        assert_eq!((&sums[0]["bytes"], &sums[1]["bytes"]), (&5000.into(), &5.into()), "{dialect}");
    }
}

#[test]
fn files_are_printed_one_after_another_and_what_cannot_be_is_told() {
    let stage = Stage::new(plain);
    for dialect in DIALECTS {
        stage.same(dialect, &["cat", "@/file", "@/large", "@/sub/deep/er/d.txt"]);
        stage.same(dialect, &["cat", "@/file", "@/sub", "@/missing"]);
        let ours = stage.ours(dialect, &["cat", "@/sub", "@/missing", "@/two%20words", "@/new%0Aline", "@/%FF%FE"]);
        assert_eq!((ours.out.as_str(), ours.code), ("two wordsnew\nlinex", 1), "{dialect}");
        assert_eq!(ours.err.lines().count(), 2, "{dialect} {}", ours.err);
    }
}

#[test]
fn a_reader_that_has_seen_enough_ends_cat_without_a_word() {
    let stage = Stage::new(|dir| fs::write(dir.join("large"), vec![b'x'; 30_000_000]).unwrap());
    let url = stage.remote("@/large", "9P2000.L");
    let mut child =
        ninefold(&["cat", &url]).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let mut some = [0; 10];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut some).unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
