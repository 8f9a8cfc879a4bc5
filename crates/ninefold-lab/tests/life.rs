//! How a lab begins and ends, and that nothing of it is left, however it ends.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use ninefold_lab::{End, Options};
use rustix::process::{Pid, Signal, kill_process};
use support::{BENCH, Peer, inhabitants, lab, skip, until};

/// The namespaces of a lab that another process holds; `None` when this machine makes none.
fn held(test: &str, holder: &mut Peer) -> Option<Vec<String>> {
    // Whether there can be one is asked first, because the holder tells errors as text.
    lab(test, Options::default())?;
    let answer = holder.ask("hold");
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
    let mut namespace = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut namespace).unwrap();
    assert!(inhabitants(namespace.trim_end()).len() >= 3);
    drop(lab);
    assert_eq!(inhabitants(namespace.trim_end()), Vec::<String>::new());
    // A shell tells SIGKILL like this.
    assert_eq!(child.wait().unwrap().code(), Some(128 + 9));
}

/// A lab from the command line, taken down when the test ends as it may.
struct Named(&'static str);

impl Drop for Named {
    fn drop(&mut self) {
        let _ = bench(&["lab", "down", "--name", self.0]);
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
    const NAME: &str = "life-test-stays";
    if lab("a_lab_from_the_command_line_stays_until_it_is_told_to_end", Options::default()).is_none() {
        return;
    }
    assert!(bad(&["lab", "stats", "--name", NAME]).contains("ninefold lab up"));
    let _named = Named(NAME);
    let told = good(&[
        "lab",
        "up",
        "--name",
        NAME,
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
    assert!(bad(&["lab", "up", "--name", NAME]).contains("ninefold lab down"));

    let shape = |direction: &str| {
        let stats: serde_json::Value =
            serde_json::from_str(&good(&["lab", "stats", "--json", "--name", NAME])).unwrap();
        stats[direction]["shape"].clone()
    };
    assert_eq!((&shape("to_server")["rate"], &shape("to_server")["loss"]), (&serde_json::Value::Null, &0.0.into()));
    assert_eq!((&shape("to_client")["rate"], &shape("to_client")["loss"]), (&10_000_000.into(), &0.01.into()));
    good(&["lab", "set", "--name", NAME, "--delay", "3ms,", "--loss", "0"]);
    assert_eq!(shape("to_server")["delay"]["nanos"], 3_000_000);
    assert_eq!(shape("to_client")["delay"]["nanos"], 10_000_000);
    assert_eq!((&shape("to_client")["loss"], &shape("to_client")["queue"]["packets"]), (&0.0.into(), &7.into()));

    let namespace = good(&["lab", "client", "--name", NAME, "--", "readlink", "/proc/self/ns/net"]);
    assert_ne!(namespace, good(&["lab", "server", "--name", NAME, "--", "readlink", "/proc/self/ns/net"]));
    let table = good(&["lab", "stats", "--name", NAME]);
    assert!(table.contains("10 Mbit/s") && table.contains("missed by the link"), "{table}");
    good(&["lab", "down", "--name", NAME]);
    gone(&[namespace.trim_end().to_owned()]);
    assert!(bad(&["lab", "down", "--name", NAME]).contains("no lab"));
}

#[test]
fn the_exit_status_of_a_command_in_an_end_is_taken_over_and_signals_reach_it() {
    let name = "the_exit_status_of_a_command_in_an_end_is_taken_over_and_signals_reach_it";
    let Some(lab) = lab(name, Options::default()) else { return };
    let status = |script: &str| lab.command(End::Client, "sh").args(["-c", script]).status().unwrap().code();
    assert_eq!(status("exit 7"), Some(7));
    assert_eq!(status("kill -TERM $$"), Some(128 + 15));
    let missing = lab.command(End::Client, "/no/such/program").stderr(Stdio::null()).status().unwrap();
    assert_eq!(missing.code(), Some(127));

    let script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = lab.command(End::Client, "sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_command_in_an_end_dies_with_whoever_waits_for_it() {
    let name = "a_command_in_an_end_dies_with_whoever_waits_for_it";
    let Some(lab) = lab(name, Options::default()) else { return };
    let script = "readlink /proc/self/ns/net; exec sleep 1000";
    let mut child = lab.command(End::Client, "sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut namespace = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut namespace).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let threads = || inhabitants(namespace.trim_end()).into_iter().filter(|path| path.contains("/task/")).count();
    until("the command's end", || (threads() == 0).then_some(()));
}

#[test]
fn without_roots_capabilities_a_lab_is_made_in_a_user_namespace() {
    const NAME: &str = "life-test-user";
    let name = "without_roots_capabilities_a_lab_is_made_in_a_user_namespace";
    if lab(name, Options::default()).is_none() {
        return;
    }
    // Root keeps its number and loses what it may do, but for one: without it root may not be root in a namespace of its own
    // (user_namespaces(7)). Any other user has lost it already.
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        if rustix::process::getuid().is_root() {
            command.args(["--bounding-set=-all,+setfcap", "--inh-caps=-all"]);
        }
        command.arg(BENCH).args(words).stdin(Stdio::null()).output()
    };
    let up = match run(&["lab", "up", "--name", NAME]) {
        Ok(up) => up,
        Err(e) => return skip(name, &format!("setpriv, of Debian's package util-linux: {e}")),
    };
    let _named = Named(NAME);
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let output =
        run(&["lab", "client", "--name", NAME, "--", "readlink", "/proc/self/ns/user", "/proc/self/ns/net"]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (user, network) = text.trim_end().split_once('\n').unwrap();
    assert_ne!(user, own.to_str().unwrap());
    let output = run(&["lab", "down", "--name", NAME]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    gone(&[network.to_owned()]);
}
