//! Trees at a server that is remembered: depth and not the number of files decides how many round trips they take.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ninefold::proto::Dialect;
use serde_json::Value;
use support::meddler::{Way, meddle};
use support::{Running, ninefold};

/// A server of a directory, which was met before.
struct Site {
    dir: tempfile::TempDir,
    cache: tempfile::TempDir,
    _server: Running,
    url: String,
}

impl Site {
    fn new() -> Site {
        Site::serving(&[])
    }

    fn serving(more: &[&str]) -> Site {
        let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let server =
            Running::start(&[&["serve", "--listen", "9p://127.0.0.1:0", dir.path().to_str().unwrap()], more].concat());
        let url = format!("9p://{}", server.tcp());
        let site = Site { dir, cache, _server: server, url };
        assert_eq!(site.run(&["stat", &site.url]).0, Some(0));
        site
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }

    fn here(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Runs a command: its exit status, what it counted, and what it printed.
    fn run(&self, args: &[&str]) -> (Option<i32>, Value, String) {
        let stats = self.cache.path().join("stats");
        let mut command = ninefold(&["--stats", stats.to_str().unwrap()]);
        let output = command.args(args).env("XDG_CACHE_HOME", self.cache.path()).output().unwrap();
        let text = fs::read_to_string(&stats).unwrap_or_default();
        let told = serde_json::from_str(&text).unwrap_or_default();
        let printed = [output.stdout, output.stderr].concat();
        let _ = fs::remove_file(stats);
        (output.status.code(), told, String::from_utf8(printed).unwrap())
    }

    /// The round trips of a command that must succeed, and the lines that it printed.
    fn trips(&self, args: &[&str]) -> (u64, Vec<String>) {
        let (status, told, printed) = self.run(args);
        assert_eq!(status, Some(0), "{args:?}: {printed}");
        (told["round_trips"].as_u64().unwrap(), printed.lines().map(str::to_owned).collect())
    }

    /// 50 directories of 20 files.
    fn tree(&self, name: &str) {
        for dir in 0..50 {
            let dir = self.here(name).join(format!("d{dir}"));
            fs::create_dir_all(&dir).unwrap();
            for file in 0..20 {
                fs::write(dir.join(format!("f{file}")), vec![b'x'; 100]).unwrap();
            }
        }
    }
}

/// Directories inside one another, and what the innermost holds.
fn nested(at: &Path, levels: usize) {
    let deep = (0..levels).fold(at.to_owned(), |path, level| path.join(format!("n{level}")));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("f"), "x").unwrap();
}

#[test]
fn a_directory_of_2000_entries_is_listed_in_one_round_trip_with_the_handshake() {
    let site = Site::new();
    fs::create_dir(site.here("d")).unwrap();
    for n in 0..2000 {
        fs::write(site.here(&format!("d/file{n}")), "x").unwrap();
    }
    let (trips, lines) = site.trips(&["ls", "-l", &site.at("d")]);
    assert_eq!((trips, lines.len()), (1, 2001));
    let (trips, lines) = site.trips(&["ls", &site.at("d")]);
    assert_eq!((trips, lines.len()), (1, 2000));
    let (trips, lines) = site.trips(&["ls", "-l", &site.at("d/file7")]);
    assert_eq!((trips, lines.len()), (1, 1));
}

#[test]
fn a_tree_of_two_levels_is_gone_through_in_two_round_trips_and_removed_in_five() {
    let site = Site::new();
    site.tree("t");
    let t = site.at("t");
    let (trips, lines) = site.trips(&["ls", "-lR", &t]);
    // Headings, totals, empty lines.
    assert_eq!((trips, lines.len()), (2, 51 * 3 - 1 + 50 + 1000));
    let (trips, lines) = site.trips(&["find", &t]);
    assert_eq!((trips, lines.len()), (2, 1 + 50 + 1000));
    let (trips, lines) = site.trips(&["du", &t]);
    assert_eq!((trips, lines.len()), (2, 51));
    let (trips, _) = site.trips(&["chmod", "-R", "u=rwX", &t]);
    // The handshake and a walk; four a level of directories, which are changed before they are listed; three for the files.
    assert_eq!(trips, 2 + 2 * 4 + 3);
    let (trips, _) = site.trips(&["rm", "-r", &t]);
    assert!(!site.here("t").exists());
    // Its root is listed, then its directories; then the files go, the directories, the root.
    assert_eq!(trips, 5);
}

#[test]
fn directories_inside_one_another_take_two_round_trips_each_to_be_removed() {
    let site = Site::new();
    nested(&site.here("a"), 8);
    let (trips, _) = site.trips(&["rm", "-r", &site.at("a")]);
    assert!(!site.here("a").exists());
    // Nine are listed and removed, and a file between.
    assert_eq!(trips, 9 + 1 + 9);
}

#[test]
fn eight_directories_are_made_in_one_round_trip() {
    let site = Site::new();
    let deep = "m/1/2/3/4/5/6/7";
    assert_eq!(site.trips(&["mkdir", "-p", &site.at(deep)]).0, 1);
    assert!(site.here(deep).is_dir());
    // There already, in part and whole.
    assert_eq!(site.trips(&["mkdir", "-p", &site.at("m/1/2/x/y")]).0, 1);
    assert_eq!(site.trips(&["mkdir", "-p", &site.at("m/1/2/x/y")]).0, 1);
    // More than one group holds.
    let names: Vec<String> = (0..70).map(|n| format!("n{n}")).collect();
    assert_eq!(site.trips(&["mkdir", "-p", &site.at(&names.join("/"))]).0, 3);
    assert!(site.here(&names.join("/")).is_dir());
}

#[test]
fn modes_of_directories_that_are_made_together_are_those_of_directories_made_one_by_one() {
    let site = Site::new();
    let mode = |path: &str| fs::metadata(site.here(path)).unwrap().permissions().mode() & 0o7777;
    for (args, path) in [(&["-p"][..], "a/b/c"), (&["-p", "-m", "700"], "d/e/f"), (&["-p", "-m", "1777"], "g/h/i")] {
        let (there, apart) = (site.at(path), format!("{}?dialect=9P2000.L", site.at(&format!("{path}2"))));
        for url in [&there, &apart] {
            assert_eq!(site.run(&[&["mkdir"], args, &[url.as_str()]].concat()).0, Some(0));
        }
        assert_eq!(mode(path), mode(&format!("{path}2")), "{args:?}");
        fs::remove_dir_all(site.here(path.split('/').next().unwrap())).unwrap();
    }
    // One that is there keeps its mode.
    fs::create_dir(site.here("k")).unwrap();
    let before = mode("k");
    assert_eq!(site.run(&["mkdir", "-p", "-m", "711", &site.at("k")]).0, Some(0));
    assert_eq!(mode("k"), before);
}

#[test]
fn what_stands_in_the_way_of_directories_is_told_and_links_are_gone_through() {
    let site = Site::new();
    fs::create_dir_all(site.here("real/dir")).unwrap();
    fs::write(site.here("real/file"), "x").unwrap();
    std::os::unix::fs::symlink("real", site.here("link")).unwrap();
    std::os::unix::fs::symlink("none", site.here("dangling")).unwrap();
    assert_eq!(site.run(&["mkdir", "-p", &site.at("link/dir/new/er")]).0, Some(0));
    assert!(site.here("real/dir/new/er").is_dir());
    assert_eq!(site.run(&["mkdir", "-p", &site.at("link")]).0, Some(0));
    for path in ["real/file", "real/file/x", "link/file/x/y", "dangling/x"] {
        let (status, _, said) = site.run(&["mkdir", "-p", &site.at(path)]);
        assert_eq!(status, Some(1), "{path}: {said}");
    }
    assert!(!site.here("none").exists() && site.here("real/file").is_file());
}

#[test]
fn a_link_to_a_directory_is_listed_as_ever() {
    let site = Site::new();
    site.tree("t");
    std::os::unix::fs::symlink("t/d1", site.here("link")).unwrap();
    std::os::unix::fs::symlink("none", site.here("dangling")).unwrap();
    assert_eq!(site.trips(&["ls", &site.at("link")]).1.len(), 20);
    let (_, long) = site.trips(&["ls", "-l", &site.at("link")]);
    assert!(long.len() == 1 && long[0].ends_with("link -> t/d1"), "{long:?}");
    assert_eq!(site.trips(&["ls", "-l", &site.at("link/")]).1.len(), 21);
    let (_, long) = site.trips(&["ls", "-l", &site.at("dangling")]);
    assert!(long[0].ends_with("dangling -> none"), "{long:?}");
    assert_eq!(site.trips(&["ls", &site.at("dangling")]).1.len(), 1);
    let (status, _, said) = site.run(&["ls", "-l", &site.at("t/d1/f1/")]);
    assert!(status == Some(1) && said.contains("not a directory"), "{said}");
    let (status, _, said) = site.run(&["ls", "-l", &site.at("t/none")]);
    assert!(status == Some(1) && said.contains("file does not exist"), "{said}");
    // Links in a directory: where they lead comes with one round trip more.
    for n in 0..300 {
        std::os::unix::fs::symlink(format!("to{n}"), site.here(&format!("t/d2/link{n}"))).unwrap();
    }
    let (trips, lines) = site.trips(&["ls", "-l", &site.at("t/d2")]);
    assert!(lines.iter().filter(|line| line.contains(" -> to")).count() == 300, "{lines:?}");
    // 256 at a time.
    assert_eq!(trips, 3);
}

#[test]
fn of_a_tree_that_cannot_be_removed_whole_only_what_is_refused_is_left() {
    // Nothing is refused to root.
    let squash = ["--squash", "nobody"];
    let site = Site::serving(if rustix::process::geteuid().is_root() { &squash } else { &[] });
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    site.tree("t");
    mode(site.dir.path(), 0o777);
    mode(&site.here("t"), 0o777);
    for n in 0..50 {
        mode(&site.here(&format!("t/d{n}")), 0o777);
    }
    let kept = site.here("t/d7");
    mode(&kept, 0o555);
    mode(&site.here("t/d8"), 0o333);
    let (status, _, said) = site.run(&["rm", "-r", &site.at("t")]);
    // Its files one by one; a directory that cannot be read; none of those that they are in.
    let refused = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    assert_eq!((status, refused("/t/d7/f"), refused("/t/d8"), said.lines().count()), (Some(1), 20, 1, 21), "{said}");
    assert_eq!(fs::read_dir(site.here("t")).unwrap().count(), 2);
    let (status, _, said) = site.run(&["ls", "-lR", &site.at("t")]);
    assert!(status == Some(1) && said.contains("/t/d8: cannot open directory") && said.contains("f19"), "{said}");
    mode(&kept, 0o777);
    mode(&site.here("t/d8"), 0o777);
    assert_eq!(site.run(&["rm", "-r", &site.at("t")]).0, Some(0));
}

#[test]
fn a_directory_that_no_message_holds_is_listed_and_removed_whole() {
    let site = Site::new();
    fs::create_dir(site.here("big")).unwrap();
    let name = |n: usize| format!("{n:0>100}");
    for n in 0..9000 {
        fs::write(site.here("big").join(name(n)), "").unwrap();
    }
    let (trips, lines) = site.trips(&["ls", "-l", &site.at("big")]);
    assert_eq!(lines.len(), 9001);
    assert!(trips > 1, "{trips}");
    assert_eq!(site.trips(&["find", &site.at("big")]).1.len(), 9001);
    let (_, told, said) = site.run(&["rm", "-r", &site.at("big")]);
    assert!(!site.here("big").exists(), "{said}");
    // 9,000 files, 1,024 at a time: the bound is in the figure.
    let trips = told["round_trips"].as_u64().unwrap();
    assert!((9..30).contains(&trips), "{trips}");
}

#[test]
fn the_bounds_of_what_is_under_way_are_met_and_counted() {
    let site = Site::new();
    // More directories than are held open at a time, and deeper than that.
    for n in 0..1500 {
        fs::create_dir_all(site.here(&format!("wide/d{n}/sub"))).unwrap();
    }
    let (trips, _) = site.trips(&["rm", "-r", &site.at("wide")]);
    assert!(!site.here("wide").exists());
    assert!((7..60).contains(&trips), "{trips}");
    nested(&site.here("deep"), 500);
    assert_eq!(site.trips(&["find", &site.at("deep")]).1.len(), 502);
    let (trips, _) = site.trips(&["rm", "-r", &site.at("deep")]);
    assert!(!site.here("deep").exists());
    assert!(trips >= 1003, "{trips}");
}

#[test]
fn what_goes_while_its_tree_is_removed_is_as_good_as_removed_with_f_and_else_told() {
    let site = Site::new();
    for dialect in Dialect::ALL {
        for force in [true, false] {
            for dir in ["t/kept/gone", "t/kept/other"] {
                fs::create_dir_all(site.here(dir)).unwrap();
                fs::write(site.here(dir).with_file_name("f"), "x").unwrap();
            }
            let gone = site.here("t/kept/gone");
            // It goes between the listing that has it and the first request that names it.
            let relay = meddle(site.url.strip_prefix("9p://").unwrap().parse().unwrap(), move |way, frame| {
                if way == Way::ToServer && frame.windows(4).any(|name| name == b"gone") {
                    let _ = fs::remove_dir(&gone);
                }
                true
            });
            let url = format!("9p://{relay}/t?dialect={dialect}");
            let (status, _, said) = site.run(&["rm", if force { "-rf" } else { "-r" }, &url]);
            match force {
                true => assert_eq!((status, &*said, site.here("t").exists()), (Some(0), "", false), "{dialect}"),
                false => {
                    let (lines, names_it) = (said.lines().count(), said.contains("/t/kept/gone"));
                    assert_eq!((status, lines, names_it), (Some(1), 1, true), "{dialect}: {said}");
                    assert!(site.here("t/kept").is_dir() && !site.here("t/kept/other").exists(), "{dialect}");
                    fs::remove_dir_all(site.here("t")).unwrap();
                }
            }
        }
    }
}

#[test]
fn files_that_wait_for_others_to_be_copied_are_counted_behind_them() {
    let site = Site::new();
    site.tree("t");
    let here = site.cache.path().join("down");
    let here = here.to_str().unwrap();
    let (down, _) = site.trips(&["cp", "-rq", &site.at("t"), here]);
    let (up, _) = site.trips(&["cp", "-rq", here, &site.at("up")]);
    assert!(down <= 12 && up <= 12, "{down} down, {up} up");
    fs::remove_dir_all(here).unwrap();
    // 1,000 files, eight at a time, each in one round trip.
    let (down, _) = site.trips(&["cp", "-rq", "-j8", &site.at("t"), here]);
    let (up, _) = site.trips(&["cp", "-rq", "-j8", here, &site.at("up8")]);
    assert!((125..500).contains(&down) && (125..500).contains(&up), "{down} down, {up} up");
    // Without groups each is walked to, opened and read, or made and renamed, eight at a time for want of -j.
    fs::remove_dir_all(here).unwrap();
    let apart = |path: &str| format!("{}?dialect=9P2000.L", site.at(path));
    let (down, _) = site.trips(&["cp", "-rq", &apart("t"), here]);
    let (up, _) = site.trips(&["cp", "-rq", here, &apart("apart")]);
    assert!((2 * 125..2000).contains(&down) && (2 * 125..6000).contains(&up), "{down} down, {up} up");
    for copy in ["up", "up8", "apart"] {
        assert_eq!(fs::read_dir(site.here(copy)).unwrap().count(), 50);
        assert_eq!(fs::read(site.here(&format!("{copy}/d49/f19"))).unwrap(), [b'x'; 100]);
    }
}

/// Gives a command 1,024 descriptors, as many as a process has where nobody has raised that.
fn with_1024_descriptors(args: &[&str], cache: &Path) -> Command {
    let mut command = Command::new("sh");
    let program = ninefold(&[]).get_program().to_owned();
    command.args(["-c", "ulimit -n 1024; exec \"$0\" \"$@\""]).arg(program).args(args).env("XDG_CACHE_HOME", cache);
    command
}

#[test]
fn more_directories_than_a_process_has_descriptors_are_copied_each_way() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for n in 0..1500 {
        let sub = dir.path().join(format!("wide/d{n}/sub"));
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join("f"), n.to_string()).unwrap();
    }
    let args = ["serve", "--listen", "9p://127.0.0.1:0", dir.path().to_str().unwrap()];
    let server = Running::spawn(&mut with_1024_descriptors(&args, cache.path()));
    let address = server.tcp();
    let here = cache.path().join("here");
    let here = here.to_str().unwrap();
    let (down, up) = (format!("9p://{address}/wide"), format!("9p://{address}/up"));
    for copy in [["cp", "-rpq", &down, here], ["cp", "-rpq", here, &up]] {
        let output = with_1024_descriptors(&copy, cache.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*said), (Some(0), ""), "{copy:?}");
    }
    for n in 0..1500 {
        let file = dir.path().join(format!("up/d{n}/sub/f"));
        assert_eq!(fs::read_to_string(file).unwrap(), n.to_string());
    }
}
