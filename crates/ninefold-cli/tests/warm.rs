//! Commands at a server that is remembered: how many round trips they take, and that they do what they do without.

mod support;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use support::{Running, ninefold};

/// A server of a directory with a file of 4 KiB in `d`.
struct Fixture {
    dir: tempfile::TempDir,
    cache: tempfile::TempDir,
    _server: Running,
    url: String,
}

impl Fixture {
    fn new() -> Fixture {
        let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(dir.path().join("d/sub")).unwrap();
        std::fs::write(dir.path().join("d/f"), vec![b'x'; 4096]).unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("d/link")).unwrap();
        let server = Running::start(&["serve", "--listen", "9p://127.0.0.1:0", dir.path().to_str().unwrap()]);
        let url = format!("9p://{}", server.tcp());
        Fixture { dir, cache, _server: server, url }
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }

    fn here(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join(path)
    }

    /// Runs a command: its exit status, the round trips that it took, and what it printed.
    fn run(&self, args: &[&str]) -> (Option<i32>, u64, String) {
        self.run_with(args, &[])
    }

    /// The same with so much on standard input.
    fn run_with(&self, args: &[&str], input: &[u8]) -> (Option<i32>, u64, String) {
        let stats = self.cache.path().join("stats");
        let mut command = ninefold(&["--stats", stats.to_str().unwrap()]);
        command.args(args).env("XDG_CACHE_HOME", self.cache.path());
        let output = if input.is_empty() {
            command.output().unwrap()
        } else {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(input).unwrap();
            child.wait_with_output().unwrap()
        };
        let text = std::fs::read_to_string(&stats).unwrap_or_default();
        let told: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let printed = [output.stdout, output.stderr].concat();
        let _ = std::fs::remove_file(stats);
        (output.status.code(), told["round_trips"].as_u64().unwrap_or(0), String::from_utf8(printed).unwrap())
    }

    fn forget(&self) {
        std::fs::remove_dir_all(self.cache.path().join("ninefold")).unwrap();
    }

    /// The round trips of a command that must succeed, where the server is remembered and where it is not; `undo` between.
    fn trips(&self, args: &[&str], undo: impl Fn(&Path)) -> [u64; 2] {
        let trips = [true, false].map(|warm| {
            if !warm {
                self.forget();
            }
            let (status, trips, printed) = self.run(args);
            assert_eq!(status, Some(0), "{args:?}: {printed}");
            undo(self.dir.path());
            trips
        });
        // The memory is there again.
        assert!(self.cache.path().join("ninefold/servers").is_file());
        trips
    }
}

#[test]
fn one_file_takes_one_round_trip_where_the_server_is_remembered_and_else_two() {
    let site = Fixture::new();
    assert_eq!(site.run(&["stat", &site.at("d")]).1, 2);
    let nothing = |_: &Path| {};
    assert_eq!(site.trips(&["stat", &site.at("d/f")], nothing), [1, 2]);
    assert_eq!(site.trips(&["stat", &site.at("d/link")], nothing), [1, 2]);
    assert_eq!(site.trips(&["cat", &site.at("d/f")], nothing), [1, 2]);
    let file = |dir: &Path| {
        assert!(!dir.join("d/f").exists());
        std::fs::write(dir.join("d/f"), vec![b'x'; 4096]).unwrap();
    };
    assert_eq!(site.trips(&["rm", &site.at("d/f")], file), [1, 2]);
    let back = |dir: &Path| std::fs::rename(dir.join("d/sub/g"), dir.join("d/f")).unwrap();
    assert_eq!(site.trips(&["mv", &site.at("d/f"), &site.at("d/sub/g")], back), [1, 2]);
    std::fs::write(site.here("d/mib"), vec![b'y'; 1 << 20]).unwrap();
    assert_eq!(site.trips(&["cat", &site.at("d/mib")], nothing), [1, 2]);
    assert_eq!(
        site.trips(&["mkdir", &site.at("d/new")], |dir| std::fs::remove_dir(dir.join("d/new")).unwrap()),
        [1, 2]
    );
}

#[test]
fn a_large_new_file_takes_a_round_trip_at_each_end_and_one_that_is_something_elses_leaves_nothing() {
    let (site, here) = (Fixture::new(), tempfile::tempdir().unwrap());
    let content: Vec<u8> = (0..3 << 20).map(|i: u32| (i % 251) as u8).collect();
    let from = here.path().join("from");
    std::fs::write(&from, &content).unwrap();
    let from = from.to_str().unwrap();
    site.run(&["stat", &site.at("d")]);
    let names = |dir: &Path| {
        let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let new = |dir: &Path| {
        assert!(std::fs::read(dir.join("d/new")).unwrap() == content);
        std::fs::remove_file(dir.join("d/new")).unwrap();
        assert_eq!(names(&dir.join("d")), ["f", "link", "sub"]);
    };
    for streams in ["1", "2", "8"] {
        assert_eq!(site.trips(&["cp", "--streams", streams, from, &site.at("d/new")], new), [2, 3], "{streams}");
    }
    // What goes in messages takes as many as its window grows by.
    site.trips(&["cp", "--no-stream", from, &site.at("d/new")], new);
    // The directory of that name is found in the same round trip, and made in, and named, by two more.
    let within = |dir: &Path| {
        assert!(std::fs::read(dir.join("d/sub/from")).unwrap() == content);
        assert_eq!((names(&dir.join("d")).len(), names(&dir.join("d/sub")).len()), (3, 1));
        std::fs::remove_file(dir.join("d/sub/from")).unwrap();
    };
    let [there, _] = site.trips(&["cp", from, &site.at("d/sub")], within);
    assert!(there <= 4, "{there}");
    // Permissions and times.
    let kept = |dir: &Path| {
        let modified = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(modified(&dir.join("d/new")), modified(Path::new(from)));
        new(dir);
    };
    assert!(site.trips(&["cp", "-p", from, &site.at("d/new")], kept)[0] <= 4);
    for path in ["d/f", "d/link"] {
        let (status, _, printed) = site.run(&["cp", from, &site.at(path)]);
        assert_eq!((status, &*printed), (Some(0), ""), "{path}");
        assert!(site.here("d/link").is_symlink());
        assert!(std::fs::read(site.here("d/f")).unwrap() == content);
        assert_eq!(names(&site.here("d")), ["f", "link", "sub"]);
        std::fs::write(site.here("d/f"), "old").unwrap();
    }
    // Where nothing can be made, and where no directory is.
    for path in ["none/new", "d/f/new"] {
        let (status, _, printed) = site.run(&["cp", from, &site.at(path)]);
        assert_eq!(status, Some(1), "{path}: {printed}");
        assert!(printed.contains(path), "{printed}");
    }
}

#[test]
fn a_new_file_of_up_to_1_mib_is_written_in_one_round_trip_where_the_server_is_remembered_and_else_in_two() {
    let site = Fixture::new();
    let content: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
    site.run(&["stat", &site.at("d")]);
    for size in [1, 4096, 1 << 20] {
        for trips in [1, 2] {
            let (status, took, printed) = site.run_with(&["write", &site.at("d/new")], &content[..size]);
            assert_eq!((status, took, &*printed), (Some(0), trips, ""), "{size} bytes");
            assert_eq!(std::fs::read(site.here("d/new")).unwrap(), content[..size]);
            std::fs::remove_file(site.here("d/new")).unwrap();
            site.forget();
        }
        site.run(&["stat", &site.at("d")]);
    }
    // What is there is replaced as ever, and keeps its permissions; a link is gone through.
    for (path, file) in [("d/f", "d/f"), ("d/link", "d/f")] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        std::fs::set_permissions(site.here(file), mode).unwrap();
        let (status, _, printed) = site.run_with(&["write", &site.at(path)], path.as_bytes());
        assert_eq!((status, &*printed), (Some(0), ""));
        assert_eq!(std::fs::read(site.here(file)).unwrap(), path.as_bytes());
        let metadata = std::fs::metadata(site.here(file)).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777, 0o640);
    }
    assert!(site.here("d/link").is_symlink());
    // Nothing is left of what could not be put there.
    let (status, _, printed) = site.run_with(&["write", &site.at("d/sub")], b"x");
    assert_eq!(status, Some(1), "{printed}");
    let mut names: Vec<_> = std::fs::read_dir(site.here("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["f", "link", "sub"]);
}

#[test]
fn a_new_file_of_up_to_1_mib_is_copied_there_in_one_round_trip_and_into_a_directory_all_the_same() {
    let site = Fixture::new();
    site.run(&["stat", &site.at("d")]);
    let content: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
    let here = site.cache.path().join("here");
    std::fs::write(&here, &content).unwrap();
    let here = here.to_str().unwrap();
    for flag in ["-q", "-p"] {
        let (status, took, printed) = site.run(&["cp", flag, here, &site.at("d/new")]);
        assert_eq!((status, took, &*printed), (Some(0), 1, ""), "{flag}");
        assert_eq!(std::fs::read(site.here("d/new")).unwrap(), content);
        std::fs::remove_file(site.here("d/new")).unwrap();
    }
    // What is there is replaced, or copied into; nothing else is left.
    for (to, file) in [("d/f", "d/f"), ("d/sub", "d/sub/here"), ("d/link", "d/f")] {
        let (status, _, printed) = site.run(&["cp", here, &site.at(to)]);
        assert_eq!((status, &*printed), (Some(0), ""), "{to}");
        assert_eq!(std::fs::read(site.here(file)).unwrap(), content, "{to}");
    }
    let mut names: Vec<_> = std::fs::read_dir(site.here("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["f", "link", "sub"]);
}

#[test]
fn a_tree_is_copied_in_as_many_round_trips_as_it_is_deep_and_not_as_it_has_files() {
    let site = Fixture::new();
    site.run(&["stat", &site.at("d")]);
    for dir in 0..25 {
        let dir = site.here(&format!("tree/d{dir}"));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..16 {
            std::fs::write(dir.join(format!("f{file}")), vec![file; 4096]).unwrap();
        }
    }
    let down = site.cache.path().join("down");
    let down = down.to_str().unwrap();
    let (status, took, printed) = site.run(&["cp", "-r", &site.at("tree"), down]);
    assert_eq!((status, &*printed), (Some(0), ""));
    assert!(took <= 8, "{took} round trips");
    for flags in ["-r", "-rp"] {
        let (status, took, printed) = site.run(&["cp", flags, down, &site.at("up")]);
        assert_eq!((status, &*printed), (Some(0), ""));
        assert!(took <= 10, "{flags}: {took} round trips");
        for dir in 0..25 {
            let names = std::fs::read_dir(site.here(&format!("up/d{dir}"))).unwrap().count();
            assert_eq!(names, 16, "{flags}: d{dir}");
            for file in 0..16 {
                let path = format!("d{dir}/f{file}");
                assert_eq!(std::fs::read(site.here(&format!("up/{path}"))).unwrap(), vec![file; 4096], "{path}");
            }
        }
        if flags == "-rp" {
            let times =
                [site.here("up/d7"), site.here("up/d7/f3")].map(|it| it.metadata().unwrap().modified().unwrap());
            let from = ["d7", "d7/f3"].map(|it| Path::new(down).join(it).metadata().unwrap().modified().unwrap());
            assert_eq!(times, from);
        }
        std::fs::remove_dir_all(site.here("up")).unwrap();
    }
}

#[test]
fn without_groups_one_file_takes_as_few_round_trips_as_its_messages_allow() {
    let site = Fixture::new();
    let at = |path: &str| format!("{}?dialect=9P2000.L", site.at(path));
    std::fs::write(site.here("d/old"), "").unwrap();
    // Beside the Tversion and the Tattach: a walk and what follows from it; a file is opened before it is read, and a name is
    // looked for before it is taken, lest something be replaced.
    for (args, trips) in [
        (vec!["stat", &*at("d/f")], 4),
        (vec!["cat", &*at("d/f")], 5),
        (vec!["mv", &*at("d/old"), &*at("d/new")], 5),
        (vec!["mv", &*at("d/new"), &*at("newer")], 5),
        (vec!["rm", &*at("newer")], 4),
        (vec!["mkdir", &*at("d/dir")], 4),
    ] {
        let (status, took, printed) = site.run(&args);
        assert_eq!((status, took), (Some(0), trips), "{args:?}: {printed}");
    }
    assert!(site.here("d/dir").is_dir() && !site.here("newer").exists());
    // What is there is moved into, or replaced, as ever.
    std::fs::write(site.here("d/one"), "1").unwrap();
    assert_eq!(site.run(&["mv", &at("d/one"), &at("d/dir")]).0, Some(0));
    std::fs::write(site.here("two"), "2").unwrap();
    std::fs::write(site.here("d/two"), "").unwrap();
    assert_eq!(site.run(&["mv", &at("two"), &at("d/two")]).0, Some(0));
    assert!(site.here("d/dir/one").is_file() && std::fs::read_to_string(site.here("d/two")).unwrap() == "2");
}

#[test]
fn what_cannot_go_at_once_is_done_as_ever() {
    let site = Fixture::new();
    site.run(&["stat", &site.at("d")]);
    // A directory is not removed by rm, empty or not.
    let (status, _, said) = site.run(&["rm", &site.at("d/sub")]);
    assert!(status == Some(1) && said.contains("it is a directory: give -r") && site.here("d/sub").is_dir(), "{said}");
    assert_eq!(site.run(&["rm", "-d", &site.at("d/sub")]).0, Some(0));
    assert!(!site.here("d/sub").exists());
    // Into a directory that is there.
    std::fs::create_dir(site.here("d/into")).unwrap();
    assert_eq!(site.run(&["mv", &site.at("d/f"), &site.at("d/into")]).0, Some(0));
    assert_eq!(std::fs::read(site.here("d/into/f")).unwrap().len(), 4096);
    // A directory is moved into an empty one, and does not replace it.
    std::fs::create_dir(site.here("d/empty")).unwrap();
    assert_eq!(site.run(&["mv", &site.at("d/into"), &site.at("d/empty")]).0, Some(0));
    assert!(site.here("d/empty/into/f").is_file());
    // A file that is there is replaced, or not.
    std::fs::write(site.here("d/one"), "1").unwrap();
    std::fs::write(site.here("d/two"), "2").unwrap();
    assert_eq!(site.run(&["mv", "-n", &site.at("d/one"), &site.at("d/two")]).0, Some(0));
    assert_eq!(std::fs::read_to_string(site.here("d/two")).unwrap(), "2");
    assert_eq!(site.run(&["mv", &site.at("d/one"), &site.at("d/two")]).0, Some(0));
    assert_eq!(std::fs::read_to_string(site.here("d/two")).unwrap(), "1");
    // Through a link on the way, and up from where it leads.
    std::os::unix::fs::symlink("empty/into", site.here("d/way")).unwrap();
    assert_eq!(site.run(&["mkdir", &site.at("d/way/new")]).0, Some(0));
    assert!(site.here("d/empty/into/new").is_dir());
    assert_eq!(site.run(&["rm", &site.at("d/way/f")]).0, Some(0));
    assert_eq!(site.run(&["mv", &site.at("d/two"), &site.at("d/way/three")]).0, Some(0));
    assert!(site.here("d/empty/into/three").is_file() && !site.here("d/empty/into/f").exists());
    let (status, _, read) = site.run(&["cat", &site.at("d/way/three")]);
    assert_eq!((status, read.as_str()), (Some(0), "1"));
    // Deeper than one walk goes.
    let deep = ["n"; 20].join("/");
    std::fs::create_dir_all(site.here(&deep)).unwrap();
    assert_eq!(site.run(&["mkdir", &site.at(&format!("{deep}/new"))]).0, Some(0));
    assert_eq!(site.run(&["stat", &site.at(&format!("{deep}/new"))]).0, Some(0));
    // What is not there.
    for args in [["rm", "d/none"], ["stat", "d/none"], ["cat", "none/x"], ["mkdir", "none/x"]] {
        let (status, _, said) = site.run(&[args[0], &site.at(args[1])]);
        assert!(status == Some(1) && said.contains("file does not exist"), "{args:?}: {said}");
    }
}

#[test]
fn a_server_that_speaks_less_than_it_did_is_asked_again() {
    let site = Fixture::new();
    site.run(&["stat", &site.at("d")]);
    // As if it had been met at an address where another one is now, by the name of its port.
    let servers = site.cache.path().join("ninefold/servers");
    let text = std::fs::read_to_string(&servers).unwrap();
    assert!(text.contains("9P2000.L.n1"), "{text}");
    let pinned = format!("{}?dialect=9P2000.L", site.at("d/f"));
    let (status, trips, said) = site.run(&["stat", &pinned]);
    assert!(status == Some(0) && trips > 2, "{trips} {said}");
    // What was pinned changes nothing of what is remembered.
    assert_eq!(std::fs::read_to_string(&servers).unwrap(), text);
    assert_eq!(site.run(&["stat", &site.at("d/f")]).1, 1);
}

#[test]
fn a_change_that_is_in_doubt_is_told_and_is_made_by_the_next_command() {
    let site = Fixture::new();
    site.run(&["stat", &site.at("d")]);
    // Where our server was remembered is one that reads what comes and is gone.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let servers = site.cache.path().join("ninefold/servers");
    let text = std::fs::read_to_string(&servers).unwrap();
    let port = site.url.rsplit_once(':').unwrap().1;
    std::fs::write(&servers, text.replace(port, &address.port().to_string())).unwrap();
    let gone = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        // To the end of the Tunlinkat, whose name is the file's and whose flags are 0.
        let mut read = Vec::new();
        while !read.windows(5).any(|bytes| bytes == [b'f', 0, 0, 0, 0]) {
            let mut byte = [0];
            std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
            read.push(byte[0]);
        }
    });
    let (status, _, said) = site.run(&["rm", &format!("9p://{address}/d/f")]);
    gone.join().unwrap();
    assert_eq!(status, Some(1));
    assert!(said.contains("d/f") && said.contains("it may or may not have been done: look whether it was"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!std::fs::read_to_string(&servers).unwrap().contains("9P2000.L.n1"));
}

/// A way to `server` on which the first session ends without a word: when its requests have `come`, and that far they are passed on if `passes`.
fn cut_once(server: std::net::SocketAddr, passes: bool, come: impl Fn(&[u8]) -> bool + Send + 'static) -> u16 {
    use std::io::Read;
    use std::net::{Shutdown, TcpListener, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut come = Some(come);
        for near in listener.incoming() {
            let near = near.unwrap();
            let mut first = [0; 4];
            // Of data connections nothing need come.
            let is_session = near.peek(&mut first).is_ok_and(|read| read > 0) && &first != b"9Pst";
            let far = TcpStream::connect(server).unwrap();
            if let Some(come) = come.take_if(|_| is_session) {
                let (mut read, mut byte) = (Vec::new(), [0]);
                while (&near).read_exact(&mut byte).is_ok() {
                    read.push(byte[0]);
                    if passes {
                        (&far).write_all(&byte).unwrap();
                    }
                    if come(&read) {
                        break;
                    }
                }
                continue;
            }
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    port
}

#[test]
fn of_a_large_file_whose_making_is_in_doubt_nothing_is_left_and_the_copy_goes_on() {
    const TSTREAM: u8 = 160;
    for passes in [false, true] {
        let (site, here) = (Fixture::new(), tempfile::tempdir().unwrap());
        let from = here.path().join("from");
        let content: Vec<u8> = (0..3 << 20).map(|i: u32| (i % 251) as u8).collect();
        std::fs::write(&from, &content).unwrap();
        site.run(&["stat", &site.at("d")]);
        let dir = site.here("d");
        let has_part = {
            let dir = dir.clone();
            move || {
                std::fs::read_dir(&dir)
                    .unwrap()
                    .any(|it| it.unwrap().path().extension().is_some_and(|it| it == "ninefold-part"))
            }
        };
        // size[4] Tstream tag[2] fid[4] flags[4] isread[1] offset[8] length[8] token[16], the last one of the group.
        let last = move |read: &[u8]| {
            let from = read.len().saturating_sub(48);
            read[from..].starts_with(&[48, 0, 0, 0, TSTREAM])
        };
        let come = move |read: &[u8]| {
            let is_all = last(read);
            if is_all && passes {
                support::until("a part", || has_part().then_some(()));
            }
            is_all
        };
        let place = site.url.trim_start_matches("9p://").parse().unwrap();
        let port = cut_once(place, passes, come);
        let servers = site.cache.path().join("ninefold/servers");
        let text = std::fs::read_to_string(&servers).unwrap();
        std::fs::write(&servers, text.replace(&place.port().to_string(), &port.to_string())).unwrap();
        let to = format!("9p://127.0.0.1:{port}/d/new");
        let (status, _, said) = site.run(&["cp", "--streams", "1", from.to_str().unwrap(), &to]);
        assert_eq!((status, &*said), (Some(0), ""), "{passes}");
        assert!(std::fs::read(dir.join("new")).unwrap() == content);
        let mut names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["f", "link", "new", "sub"], "{passes}");
    }
}
