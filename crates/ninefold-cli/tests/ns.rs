//! `ninefold ns` and `ninefold serve --ns`: trees of several servers.

mod support;

use std::path::Path;

use support::{Running, ninefold, run};

/// Serves a directory with these files; each holds its own name.
fn serve(dir: &Path, files: &[&str]) -> (Running, String) {
    for file in files {
        let path = dir.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{file} of {}\n", dir.file_name().unwrap().display())).unwrap();
    }
    let serve = Running::start(&["serve", dir.to_str().unwrap(), "--listen", "9p://127.0.0.1:0"]);
    let address = format!("9p://{}", serve.tcp());
    (serve, address)
}

/// Two servers, and the file of a name space of both: the one has the root, the other adds to its bin.
struct Two {
    dir: tempfile::TempDir,
    _servers: [Running; 2],
    addresses: [String; 2],
    file: String,
}

fn two() -> Two {
    let dir = tempfile::tempdir().unwrap();
    let (one, near) = serve(&dir.path().join("one"), &["bin/ls", "bin/cat", "etc/motd"]);
    let (two, far) = serve(&dir.path().join("two"), &["bin/ls", "bin/grep", "usr/a/x", "usr/b/y"]);
    let file = dir.path().join("ns");
    std::fs::write(
        &file,
        format!("# all of it\nmount {near} /\nmount -C {far} /n/far\ncd /n/far\nbind -ac bin /bin\n"),
    )
    .unwrap();
    let file = file.to_str().unwrap().to_owned();
    Two { dir, _servers: [one, two], addresses: [near, far], file }
}

#[test]
fn a_composed_tree_is_served_and_used_by_the_commands() {
    let two = two();
    let serve = Running::start(&["serve", "--ns", &two.file, "--listen", "9p://127.0.0.1:0"]);
    let url = format!("9p://{}", serve.tcp());
    for dialect in ["9P2000.L.n1", "9P2000.L", "9P2000.u", "9P2000"] {
        let ls = run(&["ls", &format!("{url}/bin?dialect={dialect}")]);
        assert_eq!(ls, (Some(0), "cat\ngrep\nls\n".to_owned(), String::new()), "{dialect}");
    }
    assert_eq!(run(&["ls", &url]).1, "bin\netc\nn\n");
    assert_eq!(run(&["ls", &format!("{url}/n")]).1, "far\n");
    assert_eq!(
        run(&["cat", &format!("{url}/bin/ls"), &format!("{url}/bin/grep")]).1,
        "bin/ls of one\nbin/grep of two\n"
    );

    // Down, up into the member of the union that takes files, and away again.
    let copy = two.dir.path().join("copy");
    let down = run(&["cp", "-r", &format!("{url}/n/far/usr"), copy.to_str().unwrap()]);
    assert_eq!((down.0, down.2), (Some(0), String::new()));
    assert_eq!(std::fs::read_to_string(copy.join("b/y")).unwrap(), "usr/b/y of two\n");
    let up = run(&["cp", copy.join("a/x").to_str().unwrap(), &format!("{url}/bin/new")]);
    assert_eq!((up.0, up.2), (Some(0), String::new()));
    let new = two.dir.path().join("two/bin/new");
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "usr/a/x of two\n");
    let rm = run(&["rm", "-r", &format!("{url}/bin/new"), &format!("{url}/n/far/usr")]);
    assert_eq!((rm.0, rm.2), (Some(0), String::new()));
    assert!(!new.exists() && !two.dir.path().join("two/usr").exists());
    let busy = run(&["rm", "-r", &format!("{url}/n/far")]);
    assert!(busy.0 == Some(1) && busy.2.contains("already in use"), "{busy:?}");
}

#[test]
fn a_large_file_is_copied_and_read_by_streams_through_the_server_of_the_table() {
    let two = two();
    let serve = Running::start(&["serve", "--ns", &two.file, "--listen", "9p://127.0.0.1:0"]);
    let address = serve.tcp();
    let mut content = vec![0; 9 << 20];
    fastrand::Rng::with_seed(1).fill(&mut content);
    let here = two.dir.path().join("here");
    std::fs::write(&here, &content).unwrap();
    let stats = two.dir.path().join("stats");
    for dialect in ["9P2000.L.n1", "9P2000.s"] {
        let there = format!("9p://{address}/n/far/usr/large?dialect={dialect}");
        let back = two.dir.path().join("back");
        for (from, to) in [(here.to_str().unwrap(), &*there), (&*there, back.to_str().unwrap())] {
            let cp = run(&["cp", "--stats", stats.to_str().unwrap(), from, to]);
            assert_eq!((cp.0, cp.2), (Some(0), String::new()), "{from} {to}");
            let counted: serde_json::Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
            assert!(counted["messages"]["Tstream"].as_u64() > Some(0), "{from} {to}: {counted}");
        }
        assert!(std::fs::read(two.dir.path().join("two/usr/large")).unwrap() == content, "{dialect}");
        assert!(std::fs::read(&back).unwrap() == content, "{dialect}");
        std::fs::remove_file(back).unwrap();
    }
}

#[test]
fn a_read_only_export_of_a_name_space_refuses_every_change() {
    let two = two();
    let serve = Running::start(&["serve", "--ns", &two.file, "--read-only", "--listen", "9p://127.0.0.1:0"]);
    let url = format!("9p://{}", serve.tcp());
    let rm = run(&["rm", &format!("{url}/bin/ls")]);
    assert!(rm.0 == Some(1) && rm.2.contains("read-only"), "{rm:?}");
    assert_eq!(run(&["cat", &format!("{url}/bin/ls")]).1, "bin/ls of one\n");
}

#[test]
fn what_ns_show_prints_makes_the_same_table() {
    let two = two();
    let [near, far] = &two.addresses;
    let shown = run(&["ns", "show", "--ns", &two.file]);
    let expected = format!("mount {near} /\nmount {near}/bin /bin\nmount -acC {far}/bin /bin\nmount -C {far} /n/far\n");
    assert_eq!(shown, (Some(0), expected.clone(), String::new()));
    let again = two.dir.path().join("again");
    std::fs::write(&again, &expected).unwrap();
    assert_eq!(run(&["ns", "show", "--ns", again.to_str().unwrap()]).1, expected);
    let (status, json, _) = run(&["ns", "show", "--json", "--ns", &two.file]);
    let rows: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((status, rows.len()), (Some(0), 4));
    assert_eq!((&rows[2]["name"], &rows[2]["create"], &rows[2]["member"]), (&"/bin".into(), &true.into(), &1.into()));
}

#[test]
fn a_file_of_the_home_directory_is_taken_when_none_is_named() {
    let two = two();
    let lib = two.dir.path().join("lib");
    std::fs::create_dir(&lib).unwrap();
    // By a variable, and by another file.
    std::fs::write(lib.join("namespace"), "mount $server /\n. more\n").unwrap();
    std::fs::write(lib.join("more"), "bind /bin '/it''s bin'\n").unwrap();
    let mut show = ninefold(&["ns", "show"]);
    let out = show.env("HOME", two.dir.path()).env("server", &two.addresses[0]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(text, format!("mount {0} /\nmount {0}/bin '/it''s bin'\n", two.addresses[0]), "{:?}", out.stderr);
}

#[test]
fn an_error_names_the_file_and_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ns");
    let file = file.to_str().unwrap();
    for (text, told) in [
        ("mount 9p://127.0.0.1:1 /\n", ":1: 9p://127.0.0.1:1: cannot connect: nobody listens there"),
        ("# fine\n\nbind -z a b\n", ":3: -z is not known"),
        ("bind /a /b\n", ":1: file does not exist"),
    ] {
        std::fs::write(file, text).unwrap();
        let (status, _, complaint) = run(&["ns", "show", "--ns", file]);
        assert!(status == Some(1) && complaint.contains(&format!("{file}{told}")), "{complaint}");
    }
    let (status, _, complaint) = run(&["ns", "show", "--ns", "/none"]);
    assert!(status == Some(1) && complaint.contains("cannot read /none"), "{complaint}");
}

#[test]
fn a_name_space_of_one_server_keeps_the_rules_that_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let ram = Running::start(&["serve", "--ram", "--listen", "9p://127.0.0.1:0"]);
    let file = dir.path().join("ns");
    // Below names that no server has.
    std::fs::write(&file, format!("mount 9p://{} /n/there\n", ram.tcp())).unwrap();
    let serve = Running::start(&["serve", "--ns", file.to_str().unwrap(), "--listen", "9p://127.0.0.1:0"]);
    let mut words = vec!["check".to_owned(), format!("9p://{}/n/there", serve.tcp())];
    for subject in ["walk", "fids", "create", "readdir", "attr", "rename", "unlink", "locks", "xattr"] {
        words.extend(["--only".to_owned(), format!("{subject}/*")]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (status, out, complaint) = run(&words);
    assert_eq!(status, Some(0), "{out}{complaint}");
    assert!(out.lines().last().is_some_and(|sum| sum.contains(" ok") && !sum.contains("failed")), "{out}");
}
