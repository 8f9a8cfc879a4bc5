//! How a lab begins and ends, and that nothing of it is left, however it ends. What runs in its ends is in `run.rs`.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ninefold_lab::{End, Options, Shape};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use support::{BENCH, PATIENCE, PEER, Peer, ended, first_line, inhabitants, keepers, lab, skip, until};

/// The namespaces of a lab that another process holds; `None` when this machine makes none.
fn held(test: &str, holder: &mut Peer) -> Option<Vec<String>> {
    // Whether there can be one is asked first, because the holder tells errors as text.
    lab(test, Options::default())?;
    let answer = holder.ask("hold");
    assert!(!answer.starts_with("unavailable"), "it was to be had a moment ago: {answer}");
    let namespaces: Vec<String> = answer.strip_prefix("held ").expect(&answer).split(' ').map(str::to_owned).collect();
    assert_eq!(namespaces.len(), 2);
    assert_ne!(namespaces[0], namespaces[1]);
    for namespace in &namespaces {
        assert!(inhabitants(namespace).len() >= 3, "{namespace} is held by its processes and by the lab");
    }
    Some(namespaces)
}

/// Waits until neither a process nor a descriptor keeps a namespace.
#[track_caller]
fn gone(namespaces: &[String]) {
    for namespace in namespaces {
        until("an empty namespace", || inhabitants(namespace).is_empty().then_some(()));
    }
}

#[test]
fn nothing_is_left_when_the_program_that_made_a_lab_is_killed() {
    let mut holder = Peer::outside();
    let Some(namespaces) = held("nothing_is_left_when_the_program_that_made_a_lab_is_killed", &mut holder) else {
        return;
    };
    holder.kill();
    gone(&namespaces);
}

#[test]
fn nothing_is_left_when_a_process_of_the_lab_itself_is_killed() {
    let name = "nothing_is_left_when_a_process_of_the_lab_itself_is_killed";
    for which in ["keep", "keep-inner"] {
        let mut holder = Peer::outside();
        let Some(namespaces) = held(name, &mut holder) else { return };
        let keepers = descendants(holder.id(), which);
        assert_eq!(keepers.len(), 1, "{which}");
        kill_process(keepers[0], Signal::KILL).unwrap();
        gone(&namespaces);
    }
}

#[test]
fn nothing_is_left_when_the_first_process_of_a_lab_is_killed_while_it_starts_the_second() {
    let name = "nothing_is_left_when_the_first_process_of_a_lab_is_killed_while_it_starts_the_second";
    if lab(name, Options::default()).is_none() {
        return;
    }
    let shape = serde_json::to_value(Shape::default()).unwrap();
    for round in 0..30_u64 {
        let named = format!("test-young-{}-{round}", std::process::id());
        let plan = serde_json::json!({
            "name": named, "mtu": 1500, "seed": 0, "to_server": shape, "to_client": shape, "outlives": true
        });
        let mut keep = Command::new(BENCH);
        keep.args(["lab", "keep", &plan.to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut outer = keep.spawn().unwrap();
        // Its input stays open: that does not end the lab.
        let _lifeline = outer.stdin.take();
        until("a second process", || (keepers(&named).len() == 2 || outer.try_wait().unwrap().is_some()).then_some(()));
        // An instant of the second's beginning, another one each time.
        std::thread::sleep(Duration::from_micros(round * 100));
        outer.kill().unwrap();
        outer.wait().unwrap();
        until("the end of both", || keepers(&named).is_empty().then_some(()));
    }
}

/// Children and theirs, of which an argument is that word.
fn descendants(of: u32, word: &str) -> Vec<Pid> {
    let mut found = Vec::new();
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            let child: u32 = child.parse().unwrap();
            let words = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            if words.split(|byte| *byte == 0).any(|other| other == word.as_bytes()) {
                found.extend(Pid::from_raw(child as i32));
            }
            found.extend(descendants(child, word));
        }
    }
    found
}

#[test]
fn nothing_is_left_when_a_lab_is_dropped() {
    let Some(lab) = lab("nothing_is_left_when_a_lab_is_dropped", Options::default()) else { return };
    let script = "readlink /proc/self/ns/net; setsid sleep 1000 >/dev/null 2>&1 & exec sleep 1000";
    let mut child = lab.command(End::Server, "sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let (_output, namespace) = first_line(BufReader::new(child.stdout.take().unwrap()));
    assert!(inhabitants(&namespace).len() >= 3);
    drop(lab);
    assert_eq!(inhabitants(&namespace), Vec::<String>::new());
    // A shell tells SIGKILL like this.
    assert_eq!(ended(&mut child), Some(128 + 9));
}

/// A lab from the command line, taken down when the test ends as it may.
struct Named(String);

impl Named {
    /// A name that no other run of the tests has at the same time.
    fn new(what: &str) -> Named {
        Named(format!("test-{what}-{}", std::process::id()))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = bench(&["lab", "down", "--name", &self.0]);
    }
}

fn bench(words: &[&str]) -> Output {
    Command::new(BENCH).args(words).stdin(Stdio::null()).output().unwrap()
}

/// Standard output of a command that must succeed.
#[track_caller]
fn good(words: &[&str]) -> String {
    let output = bench(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a command that must fail.
#[track_caller]
fn bad(words: &[&str]) -> String {
    let output = bench(words);
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_lab_from_the_command_line_stays_until_it_is_told_to_end() {
    let named = Named::new("stays");
    let name = named.0.as_str();
    if lab("a_lab_from_the_command_line_stays_until_it_is_told_to_end", Options::default()).is_none() {
        return;
    }
    assert!(bad(&["lab", "stats", "--name", name]).contains("ninefold lab up"));
    let told = good(&[
        "lab",
        "up",
        "--name",
        name,
        "--rtt",
        "20ms",
        "--rate",
        "none,10mbit",
        "--loss",
        ",1%",
        "--queue",
        "7p",
    ]);
    assert!(told.contains("10.9.0.2") && told.contains("ninefold lab server"), "{told}");
    assert!(bad(&["lab", "up", "--name", name]).contains("ninefold lab down"));

    let shape = |direction: &str| {
        let stats: serde_json::Value =
            serde_json::from_str(&good(&["lab", "stats", "--json", "--name", name])).unwrap();
        stats[direction]["shape"].clone()
    };
    assert_eq!((&shape("to_server")["rate"], &shape("to_server")["loss"]), (&serde_json::Value::Null, &0.0.into()));
    assert_eq!((&shape("to_client")["rate"], &shape("to_client")["loss"]), (&10_000_000.into(), &0.01.into()));
    good(&["lab", "set", "--name", name, "--delay", "3ms,", "--loss", "0"]);
    assert_eq!(shape("to_server")["delay"]["nanos"], 3_000_000);
    assert_eq!(shape("to_client")["delay"]["nanos"], 10_000_000);
    assert_eq!((&shape("to_client")["loss"], &shape("to_client")["queue"]["packets"]), (&0.0.into(), &7.into()));

    let namespace = good(&["lab", "client", "--name", name, "--", "readlink", "/proc/self/ns/net"]);
    assert_ne!(namespace, good(&["lab", "server", "--name", name, "--", "readlink", "/proc/self/ns/net"]));
    let table = good(&["lab", "stats", "--name", name]);
    assert!(table.contains("10 Mbit/s") && table.contains("missed by the link"), "{table}");
    good(&["lab", "down", "--name", name]);
    gone(&[namespace.trim_end().to_owned()]);
    assert!(bad(&["lab", "down", "--name", name]).contains("no lab"));
}

#[test]
fn a_lab_whose_beginning_was_broken_off_does_not_stay() {
    let name = "a_lab_whose_beginning_was_broken_off_does_not_stay";
    if lab(name, Options::default()).is_none() {
        return;
    }
    let named = Named::new("broken-off");
    let shape = serde_json::to_value(Shape::default()).unwrap();
    let plan = serde_json::json!({
        "name": named.0, "mtu": 1500, "seed": 0, "to_server": shape, "to_client": shape, "outlives": true
    });
    // What `lab up` starts and, killed after it has begun, does not take over.
    let mut keeper = Command::new(BENCH)
        .args(["lab", "keep", &plan.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (_output, ready) = first_line(BufReader::new(keeper.stdout.take().unwrap()));
    assert_eq!(ready, "\"up\"");
    good(&["lab", "stats", "--name", &named.0]);
    drop(keeper.stdin.take());
    until("the lab's end", || keeper.try_wait().unwrap());
    assert!(bad(&["lab", "stats", "--name", &named.0]).contains("no lab"));
}

#[test]
fn a_lab_that_cannot_be_told_to_be_up_does_not_stay() {
    let name = "a_lab_that_cannot_be_told_to_be_up_does_not_stay";
    if lab(name, Options::default()).is_none() {
        return;
    }
    let named = Named::new("untold");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut up = Command::new(BENCH);
    let up = up.args(["lab", "up", "--name", &named.0]).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
    let output = up.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("standard output"), "{told}");
    assert!(bad(&["lab", "stats", "--name", &named.0]).contains("no lab"));
}

#[test]
fn a_lab_keeps_neither_directory_nor_descriptors_of_who_made_it() {
    let name = "a_lab_keeps_neither_directory_nor_descriptors_of_who_made_it";
    if lab(name, Options::default()).is_none() {
        return;
    }
    let named = Named::new("bare");
    let script = format!("exec 7</dev/zero; exec '{BENCH}' lab up --name '{}'", named.0);
    let directory = tempfile::tempdir().unwrap();
    let up = Command::new("sh").args(["-c", &script]).current_dir(&directory).stdin(Stdio::null()).output().unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let keepers = keepers(&named.0);
    assert_eq!(keepers.len(), 2, "{keepers:?}");
    for keeper in keepers {
        assert_eq!(std::fs::read_link(keeper.join("cwd")).unwrap().to_str(), Some("/"));
        for descriptor in std::fs::read_dir(keeper.join("fd")).unwrap().flatten() {
            let open = std::fs::read_link(descriptor.path()).unwrap_or_default();
            assert_ne!(open.to_str(), Some("/dev/zero"));
        }
    }
}

#[test]
fn a_lab_that_had_no_free_descriptor_answers_when_it_has() {
    let name = "a_lab_that_had_no_free_descriptor_answers_when_it_has";
    let Some(lab) = lab(name, Options::default()) else { return };
    let keeper = descendants(std::process::id(), "keep-inner");
    let of_this_lab = |pid: &&Pid| {
        let words = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(lab.name())
    };
    let keeper = *keeper.iter().find(of_this_lab).expect("the lab's process");
    let limit = |soft| {
        let limits = getrlimit(Resource::Nofile);
        prlimit(Some(keeper), Resource::Nofile, Rlimit { current: soft, maximum: limits.maximum }).unwrap();
    };
    lab.stats().unwrap();
    limit(Some(0));
    let error = format!("{:#}", lab.freeze(End::Client).unwrap_err());
    assert!(error.contains("Too many open files"), "{error}");
    // Several wait in the lab's backlog from here on; the kernel took a number for the first before the limit was there.
    let address = format!("ninefold-lab/{}/{}", rustix::process::getuid().as_raw(), lab.name());
    let address = SocketAddr::from_abstract_name(address).unwrap();
    let asks: Vec<UnixStream> = (0..3)
        .map(|_| {
            let mut asks = UnixStream::connect_addr(&address).unwrap();
            asks.set_read_timeout(Some(PATIENCE)).unwrap();
            asks.write_all(b"\"stats\"\n").unwrap();
            asks
        })
        .collect();
    limit(getrlimit(Resource::Nofile).current);
    for asks in asks {
        let mut answer = String::new();
        BufReader::new(asks).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"Ok\":{\"stats\":"), "{answer}");
    }
}

#[test]
fn a_name_that_another_user_holds_is_told() {
    let name = "a_name_that_another_user_holds_is_told";
    if !rustix::process::getuid().is_root() {
        return skip(name, "only root can be another user");
    }
    if lab(name, Options::default()).is_none() {
        return;
    }
    let named = Named::new("squatted");
    let mut squatter = Command::new(PEER);
    let nobody = 65_534;
    let probe = Command::new(PEER).uid(nobody).stdin(Stdio::null()).status();
    if let Err(e) = probe {
        return skip(name, &format!("another user cannot run {PEER}: {e}"));
    }
    let mut squatter = Peer::spawn(squatter.uid(nobody));
    assert_eq!(squatter.ask(&format!("squat ninefold-lab/0/{}", named.0)), "squatted");
    for words in [["lab", "up"], ["lab", "stats"]] {
        let told = bad(&[&words[..], &["--name", &named.0]].concat());
        assert!(told.contains("another user, number 65534"), "{told}");
    }
}

#[test]
fn without_roots_capabilities_a_lab_is_made_in_a_user_namespace() {
    let named = Named::new("user");
    let name = "without_roots_capabilities_a_lab_is_made_in_a_user_namespace";
    if lab(name, Options::default()).is_none() {
        return;
    }
    // Root keeps its number and loses what it may do, but for one: without it root may not be root in a namespace of its own
    // (user_namespaces(7)). Any other user has lost it already.
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    let bare = || {
        let mut command = Command::new("setpriv");
        if rustix::process::getuid().is_root() {
            command.args(["--bounding-set=-all,+setfcap", "--inh-caps=-all"]);
        }
        command
    };
    match bare().arg("true").output() {
        Ok(output) if output.status.success() => {}
        other => return skip(name, &format!("setpriv, of Debian's package util-linux: {other:?}")),
    }
    // Whether user namespaces are to be had here.
    if let Some(lacking) = Peer::spawn(bare().arg(PEER)).ask("hold").strip_prefix("unavailable ") {
        return skip(name, lacking);
    }
    let run = |words: &[&str]| bare().arg(BENCH).args(words).stdin(Stdio::null()).output();
    let up = run(&["lab", "up", "--name", &named.0]).unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let output =
        run(&["lab", "client", "--name", &named.0, "--", "readlink", "/proc/self/ns/user", "/proc/self/ns/net"])
            .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (user, network) = text.trim_end().split_once('\n').unwrap();
    assert_ne!(user, own.to_str().unwrap());
    let output = run(&["lab", "down", "--name", &named.0]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    gone(&[network.to_owned()]);
}
