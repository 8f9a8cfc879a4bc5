//! What runs in a lab's ends: what it has of who asked for it, what it is told, and when it ends.

mod support;

use std::io::{BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use ninefold_lab::{End, Lab, Options};
use rustix::process::{Pid, Signal, kill_process};
use support::{BENCH, ended, first_line, inhabitants, keepers, lab, processes, skip, state, until, within};

/// Says its network and goes on, a child beside it.
const STAYS: &str = "sleep 1000 & readlink /proc/self/ns/net; exec sleep 1000";

/// Starts a script in the client's end, and reads its first line.
fn start(lab: &Lab, script: &str) -> (Child, BufReader<ChildStdout>, String) {
    let mut command = lab.command(End::Client, "sh");
    // In a group of its own, as a shell has it: one without a parent in the session would not stop.
    let mut child = command.args(["-c", script]).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let (output, line) = first_line(BufReader::new(child.stdout.take().unwrap()));
    (child, output, line)
}

/// What follows, up to the end.
fn rest(mut output: BufReader<ChildStdout>) -> String {
    within("the end of the output", move || {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        text
    })
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
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

    let directory = lab.command(End::Client, "/").stderr(Stdio::null()).status().unwrap();
    assert_eq!(directory.code(), Some(126));

    let script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let (mut child, ..) = start(&lab, script);
    send(&child, Signal::TERM);
    assert_eq!(ended(&mut child), Some(5));
}

#[test]
fn a_command_in_an_end_dies_with_whoever_waits_for_it() {
    let name = "a_command_in_an_end_dies_with_whoever_waits_for_it";
    let Some(lab) = lab(name, Options::default()) else { return };
    let (mut child, _, namespace) = start(&lab, STAYS);
    child.kill().unwrap();
    child.wait().unwrap();
    until("the command's end, and its child's", || processes(&namespace).is_empty().then_some(()));
}

#[test]
fn a_command_in_an_end_stops_and_goes_on_with_whoever_waits_for_it() {
    let name = "a_command_in_an_end_stops_and_goes_on_with_whoever_waits_for_it";
    let Some(lab) = lab(name, Options::default()) else { return };
    let (mut child, _output, namespace) = start(&lab, STAYS);
    let are = |stopped: bool| {
        let processes = processes(&namespace);
        processes.len() >= 2 && processes.iter().all(|(_, state)| (*state == 'T') == stopped)
    };
    send(&child, Signal::TSTP);
    until("all to stop", || (are(true) && state(child.id()) == Some('T')).then_some(()));
    send(&child, Signal::CONT);
    until("all to go on", || are(false).then_some(()));
    send(&child, Signal::TERM);
    assert_eq!(ended(&mut child), Some(128 + 15));
}

#[test]
fn a_lab_ends_although_whoever_waits_for_a_command_has_stopped() {
    let name = "a_lab_ends_although_whoever_waits_for_a_command_has_stopped";
    let Some(lab) = lab(name, Options::default()) else { return };
    let (mut child, _output, namespace) = start(&lab, STAYS);
    send(&child, Signal::STOP);
    until("it to stop", || (state(child.id()) == Some('T')).then_some(()));
    // It says so when the lab does not end by itself.
    let down = Command::new(BENCH).args(["lab", "down", "--name", lab.name()]).stderr(Stdio::piped()).output().unwrap();
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    assert_eq!(processes(&namespace), []);
    drop(lab);
    assert_eq!(inhabitants(&namespace), Vec::<String>::new());
    send(&child, Signal::CONT);
    assert_eq!(ended(&mut child), Some(128 + 9));
}

#[test]
fn a_signal_that_is_ignored_here_does_not_reach_the_command() {
    let name = "a_signal_that_is_ignored_here_does_not_reach_the_command";
    let Some(lab) = lab(name, Options::default()) else { return };
    let inner = "trap 'echo hang-up' HUP; trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let script = format!("trap '' HUP; exec '{BENCH}' lab client --name '{}' -- sh -c \"{inner}\"", lab.name());
    let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let (output, _) = first_line(BufReader::new(child.stdout.take().unwrap()));
    send(&child, Signal::HUP);
    send(&child, Signal::TERM);
    assert_eq!(ended(&mut child), Some(5));
    assert_eq!(rest(output), "");
}

#[test]
fn a_command_has_the_input_directory_environment_and_umask_of_who_asks() {
    let name = "a_command_has_the_input_directory_environment_and_umask_of_who_asks";
    let Some(lab) = lab(name, Options::default()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let inner = "umask; pwd -P; printf %s \\\"\\$WORD\\\"; cat; echo wrong >&2; env | wc -l";
    let script = format!("umask 027; exec '{BENCH}' lab server --name '{}' -- sh -c \"{inner}\"", lab.name());
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .current_dir(&directory)
        .env("WORD", "two\nlines ")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let output = within("its output", move || child.wait_with_output().unwrap());
    let text = String::from_utf8(output.stdout).unwrap();
    let begin = format!("0027\n{}\ntwo\nlines input\n", directory.path().canonicalize().unwrap().display());
    assert!(text.starts_with(&begin), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "wrong\n");
}

#[test]
fn a_command_in_an_end_begins_with_no_signal_blocked_or_ignored() {
    let name = "a_command_in_an_end_begins_with_no_signal_blocked_or_ignored";
    if lab(name, Options::default()).is_none() {
        return;
    }
    // As in the background of a shell without job control, and under nohup(1).
    let named = format!("test-deaf-{}", std::process::id());
    let script = format!("trap '' INT QUIT HUP CHLD; exec '{BENCH}' lab up --name '{named}'");
    let up = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let ask = |words: &[&str]| Command::new(BENCH).args(words).output().unwrap();
    let output = ask(&["lab", "server", "--name", &named, "--", "cat", "/proc/self/status"]);
    assert!(ask(&["lab", "down", "--name", &named]).status.success());
    let status = String::from_utf8(output.stdout).unwrap();
    let signals = |which| {
        let mask = status.lines().find_map(|line| line.strip_prefix(which)).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    };
    // 32 and 33 are the C library's own, which lets nobody change them: nptl(7).
    let its_own = 0b11 << 31;
    assert_eq!((signals("SigBlk:"), signals("SigIgn:") & !its_own), (0, 0), "{status}");
}

#[test]
fn a_command_is_run_in_a_directory_that_may_be_entered_but_not_read() {
    let name = "a_command_is_run_in_a_directory_that_may_be_entered_but_not_read";
    let Some(lab) = lab(name, Options::default()) else { return };
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o311)).unwrap();
    // Root may read it, unless it has lost its capabilities.
    let bare = || {
        let mut command = Command::new("setpriv");
        if rustix::process::getuid().is_root() {
            command.args(["--bounding-set=-all", "--inh-caps=-all"]);
        }
        command
    };
    match bare().arg("ls").current_dir(&directory).output() {
        Ok(output) if output.status.code() == Some(2) => {}
        other => {
            return skip(name, &format!("setpriv, of Debian's package util-linux, takes no right to read: {other:?}"));
        }
    }
    let words = [BENCH, "lab", "client", "--name", lab.name(), "--", "readlink", "/proc/self/cwd"];
    let output = bare().args(words).current_dir(&directory).output().unwrap();
    // So that any user can remove it.
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = directory.path().canonicalize().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), path.to_str().unwrap(), "{told}");
}

/// The number of a process's parent.
fn parent(process: &Path) -> String {
    let status = std::fs::read_to_string(process.join("status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned()
}

/// What a process holds beside its standard input, output and error.
fn descriptors(process: &Path) -> Vec<String> {
    let directory = std::fs::read_dir(process.join("fd")).unwrap().flatten();
    let others = directory.filter(|entry| entry.file_name().to_str().unwrap().parse::<u32>().unwrap() > 2);
    others.filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.to_str()?.to_owned())).collect()
}

#[test]
fn a_program_is_looked_up_and_executed_as_a_shell_does_it() {
    let name = "a_program_is_looked_up_and_executed_as_a_shell_does_it";
    let Some(lab) = lab(name, Options::default()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str, mode: u32| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // Without a line that says who executes it.
    file("greets", "echo \"$0 $*\"; exit 6", 0o755);
    file("no-program", "", 0o644);
    let run = |program: &str, path: &str| {
        let mut command = lab.command(End::Server, program);
        let output = command.args(["x", "y z"]).env("PATH", path).current_dir(&directory).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let dir = directory.path().to_str().unwrap();
    assert_eq!(run("greets", &format!("/nowhere:{dir}:/bin")), (Some(6), format!("{dir}/greets x y z\n")));
    assert_eq!(run("greets", "/nowhere::/bin"), (Some(6), "./greets x y z\n".into()));
    assert_eq!(run("./greets", "/nowhere"), (Some(6), "./greets x y z\n".into()));
    assert_eq!(run("greets", "/bin"), (Some(127), String::new()));
    assert_eq!(run("no-program", dir), (Some(126), String::new()));
    assert_eq!(run("echo", &format!("{dir}:/bin")), (Some(0), "x y z\n".into()));
}

#[test]
fn a_program_that_hangs_as_it_is_executed_holds_up_no_other_command() {
    let name = "a_program_that_hangs_as_it_is_executed_holds_up_no_other_command";
    let Some(lab) = lab(name, Options::default()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    // By a process of its own: while this one has it open for writing, a child that another test starts has, too, and nobody can
    // execute it (execve(2), ETXTBSY).
    assert!(Command::new("cp").arg("/bin/true").arg(&program).status().unwrap().success());
    // Who executes a program with a write lease waits until its holder gives it up, which the kernel does for it only after
    // /proc/sys/fs/lease-break-time, 45 s: fcntl(2), F_SETLEASE.
    let script = r#"use Fcntl; $| = 1; $SIG{IO} = sub { print "asked\n" }; open(F, '<', $ARGV[0]) or die;
        fcntl(F, Fcntl::F_SETLEASE(), Fcntl::F_WRLCK()) or die "no lease: $!"; print "leased\n";
        1 while !defined(sysread(STDIN, $_, 1));"#;
    let mut holder = Command::new("perl");
    holder.args(["-e", script]).arg(&program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = match holder.spawn() {
        Ok(holder) => holder,
        Err(e) => return skip(name, &format!("perl, of Debian's package perl-base: {e}")),
    };
    let (output, line) = first_line(BufReader::new(holder.stdout.take().unwrap()));
    if line != "leased" {
        return skip(name, "no write lease is to be had in the directory for temporary files");
    }
    let mut short = lab.command(End::Server, "sh");
    let short = short.args(["-c", "echo ready; read line; exit 3"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut short = short.spawn().unwrap();
    let (_ready, line) = first_line(BufReader::new(short.stdout.take().unwrap()));
    assert_eq!(line, "ready");
    // By its name: std forks where it has to look one up itself.
    let mut hangs = lab.command(End::Client, "program").env("PATH", directory.path()).spawn().unwrap();
    let (_output, line) = first_line(output);
    assert_eq!(line, "asked");
    // It holds nothing that the lab does not: where std forks, that would be the socket by which it hears of the program's start,
    // and another that is forked at the same instant would hold it too.
    let begin = keepers(lab.name());
    assert_eq!(begin.len(), 3, "the lab, and what has not executed its program yet: {begin:?}");
    let parents: Vec<String> = begin.iter().map(|process| parent(process)).collect();
    let is_parent = |process: &&PathBuf| parents.iter().any(|parent| process.ends_with(parent));
    let (lab_itself, hung): (Vec<&PathBuf>, Vec<&PathBuf>) = begin.iter().partition(is_parent);
    let kept: Vec<String> = lab_itself.iter().flat_map(|process| descriptors(process)).collect();
    let held = descriptors(hung[0]);
    assert!(hung.len() == 1 && held.iter().all(|held| kept.contains(held)), "{held:?} beside {kept:?}");
    drop(short.stdin.take());
    assert_eq!(ended(&mut short), Some(3));
    for end in [End::Client, End::Server] {
        assert_eq!(ended(&mut lab.command(end, "true").spawn().unwrap()), Some(0));
    }
    assert_eq!(hangs.try_wait().unwrap(), None, "it hangs all the while");
    drop(holder.stdin.take());
    assert_eq!(ended(&mut holder), Some(0));
    assert_eq!(ended(&mut hangs), Some(0));
}

#[test]
fn a_terminals_keys_are_for_all_that_a_command_has_started() {
    let name = "a_terminals_keys_are_for_all_that_a_command_has_started";
    let Some(lab) = lab(name, Options::default()) else { return };
    let inner = r#"trap "echo inner" EXIT; trap exit INT; echo ready; while :; do sleep 0.01; done"#;
    let outer = format!("trap 'echo outer' INT; sh -c '{inner}'; exit 7");
    // As a file, so that it needs no quotes within quotes.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("outer");
    std::fs::write(&path, outer).unwrap();
    // In the shell's place: one that waits for it is ended by the key itself.
    let command = format!("exec '{BENCH}' lab client --name '{}' -- sh '{}'", lab.name(), path.display());
    let terminal = Command::new("script")
        .env("SHELL", "/bin/sh")
        .args(["-qefc", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut terminal = match terminal {
        Ok(terminal) => terminal,
        Err(e) => return skip(name, &format!("script, of Debian's package bsdutils: {e}")),
    };
    let mut keys = terminal.stdin.take().unwrap();
    let mut output = BufReader::new(terminal.stdout.take().unwrap());
    let mut line = String::from("nothing yet");
    while !line.contains("ready") {
        (output, line) = first_line(output);
        assert_ne!(line, "", "the command begins");
    }
    // Ctrl-C.
    keys.write_all(b"\x03").unwrap();
    let rest = rest(output);
    assert!(rest.contains("inner") && rest.contains("outer"), "{rest}");
    assert_eq!(ended(&mut terminal), Some(7));
}

#[test]
fn from_among_other_mounts_no_command_can_be_asked_for() {
    let name = "from_among_other_mounts_no_command_can_be_asked_for";
    let Some(lab) = lab(name, Options::default()) else { return };
    let elsewhere = || {
        let mut command = Command::new("unshare");
        command.arg(if rustix::process::getuid().is_root() { "-m" } else { "-cm" });
        command
    };
    match elsewhere().arg("true").output() {
        Ok(output) if output.status.success() => {}
        other => return skip(name, &format!("no mount namespace of its own can be made: {other:?}")),
    }
    let ask = elsewhere().args([BENCH, "lab", "client", "--name", lab.name(), "--", "true"]).output().unwrap();
    assert_eq!(ask.status.code(), Some(1));
    let told = String::from_utf8_lossy(&ask.stderr);
    assert!(told.contains("other mounts"), "{told}");
    // Those here are as good as ever.
    assert!(lab.command(End::Client, "true").status().unwrap().success());
}
