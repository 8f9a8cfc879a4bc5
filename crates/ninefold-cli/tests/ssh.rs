//! `HOST:/PATH` and `9p+ssh://`, with programs in place of ssh that need no host.

mod support;

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use support::{PATIENCE, ninefold};

/// A directory to serve from, and a stand-in for ssh.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// The stand-in leaves the command of the other end in `$remote`, its own number in the file `pid`, and goes on with
    /// `script`.
    fn new(script: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let bin = Path::new(env!("CARGO_BIN_EXE_ninefold")).parent().unwrap();
        let ssh = dir.path().join("a stand-in");
        let text = format!(
            "#!/bin/sh\ncd '{}' || exit\nfor remote; do :; done\nPATH='{}':$PATH\necho $$ >pid\n{script}\n",
            dir.path().display(),
            bin.display()
        );
        std::fs::write(&ssh, text).unwrap();
        std::fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755)).unwrap();
        Place { dir }
    }

    /// One that runs the command here.
    fn served() -> Place {
        Place::new(r#"exec sh -c "$remote""#)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("host:{}", self.path(name).to_str().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = ninefold(args);
        command.env("NINEFOLD_SSH", format!("'{}'", self.path("a stand-in").display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end: exit status, standard output, standard error.
    fn run(&self, args: &[&str]) -> (Option<i32>, Vec<u8>, String) {
        let output = self.command(args).output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
    }

    /// The number of the stand-in, or of the server that it became.
    fn far(&self) -> Pid {
        let text = std::fs::read_to_string(self.path("pid")).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }
}

/// Waits, with a bound.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether it has ended; not every init takes notice of the processes that it inherits.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    stat.map_or(true, |stat| stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')))
}

fn end(child: &mut Child) -> ExitStatus {
    let mut status = None;
    until("the command ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

#[test]
fn a_path_of_a_host_is_the_same_file_in_both_forms_and_its_server_ends_with_the_command() {
    let place = Place::served();
    std::fs::write(place.path("file"), "far away\n").unwrap();
    for url in [place.url("file"), format!("9p+ssh://ken@host{}", place.path("file").display())] {
        assert_eq!(place.run(&["cat", &url]), (Some(0), b"far away\n".to_vec(), String::new()));
        let far = place.far();
        until("the server ends", || is_gone(far));
    }
}

#[test]
fn a_name_means_itself_whatever_a_shell_would_make_of_it() {
    let place = Place::served();
    for name in ["a b", "it's", "\"q\"", "$HOME", "*", "a;b", "back\\slash", "new\nline", "100%", "grüße"] {
        std::fs::write(place.path(name), name).unwrap();
        let (code, stdout, stderr) = place.run(&["cat", &place.url(name)]);
        assert_eq!((code, stdout, stderr.as_str()), (Some(0), name.into(), ""), "{name:?}");
    }
    // Only the long form can write a name that is not UTF-8.
    let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff");
    std::fs::write(place.dir.path().join(name), "ff").unwrap();
    let url = format!("9p+ssh://host{}/%FF", place.dir.path().display());
    assert_eq!(place.run(&["cat", &url]).1, b"ff");
}

#[test]
fn a_shell_that_talks_is_found_out() {
    let place = Place::new(r#"echo 'Welcome to host!'; exec sh -c "$remote""#);
    let (code, stdout, stderr) = place.run(&["cat", &place.url("pid")]);
    assert_eq!((code, stdout.as_slice()), (Some(1), &b""[..]));
    assert!(stderr.contains("prints 'Welcome to host!'") && stderr.contains("ssh host true"), "{stderr}");
}

#[test]
fn the_status_that_ssh_ends_with_says_what_to_do() {
    for (script, words) in [
        ("PATH=/nowhere HOME=/nowhere; eval \"$remote\"", "ssh ended with status 127: host has no ninefold"),
        ("exit 127", "scp $(command -v ninefold) host:"),
        (
            "echo 'ssh: connect: No route to host' >&2; exit 255",
            "ssh ended with status 255: it did not get through to host",
        ),
        ("ninefold serve --no-such-flag", "ssh ended with status 2: the ninefold of host does not know"),
        ("kill -9 $$", "ssh was killed by signal 9"),
        ("exec >&-; exec sleep 600", "ssh closed its output"),
    ] {
        let place = Place::new(script);
        let (code, stdout, stderr) = place.run(&["cat", &place.url("pid")]);
        assert_eq!((code, stdout.as_slice()), (Some(1), &b""[..]), "{script}");
        assert!(stderr.contains(words), "{script}: {stderr}");
    }
    let place = Place::served();
    let output = place.command(&["cat", "host:/x"]).env("NINEFOLD_SSH", "/no/such/program -p 22").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && stderr.contains("the program that NINEFOLD_SSH names"), "{stderr}");
}

/// Starts to print a file that is larger than all that is on the way, and reads the beginning.
fn begin(command: &mut Command, place: &Place) -> Child {
    std::fs::File::create(place.path("big")).unwrap().set_len(256 << 20).unwrap();
    let mut child = command.spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 4096]).unwrap();
    child
}

#[test]
fn a_server_that_dies_in_the_middle_is_an_error_and_not_the_end_of_the_file() {
    let place = Place::served();
    let mut child = begin(&mut place.command(&["cat", &place.url("big")]), &place);
    kill_process(place.far(), Signal::KILL).unwrap();
    let (mut out, mut stderr) = (child.stdout.take().unwrap(), String::new());
    let got = std::io::copy(&mut out, &mut std::io::sink()).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(got < 256 << 20);
    assert_eq!(end(&mut child).code(), Some(1));
    assert!(stderr.contains("the connection is lost: ssh was killed by signal 9"), "{stderr}");
}

#[test]
fn ctrl_c_ends_the_command_and_lets_ssh_pass_on_what_was_said_last() {
    // As with ssh, the other end is no process of the terminal's.
    let place = Place::new("setsid -w sh -c 'echo $$ >far; eval \"$0\"' \"$remote\"\necho $? >ended");
    let mut command = place.command(&["cat", &place.url("big")]);
    let mut child = begin(command.process_group(0), &place);
    kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(end(&mut child).code(), Some(130));
    until("the stand-in ends", || place.path("ended").exists());
    let far = std::fs::read_to_string(place.path("far")).unwrap();
    assert!(is_gone(Pid::from_raw(far.trim().parse().unwrap()).unwrap()));
    until("its status is written", || std::fs::read_to_string(place.path("ended")).unwrap() == "0\n");
}

#[test]
fn ctrl_c_ends_an_ssh_that_may_be_asking_for_a_password() {
    let place = Place::new("exec sleep 600");
    let mut child = place.command(&["cat", &place.url("pid")]).process_group(0).spawn().unwrap();
    until("ssh runs", || std::fs::read_to_string(place.path("pid")).is_ok_and(|text| text.ends_with('\n')));
    kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(end(&mut child).code(), Some(130));
    let far = place.far();
    until("ssh ends", || is_gone(far));
}

#[test]
fn a_login_that_takes_longer_than_the_timeout_that_was_given_is_given_up() {
    let place = Place::new("exec sleep 600");
    let (code, stdout, stderr) = place.run(&["--timeout", "0.5", "cat", &place.url("pid")]);
    assert_eq!((code, stdout.as_slice()), (Some(1), &b""[..]));
    assert!(stderr.contains("no reply within 500ms"), "{stderr}");
    let far = place.far();
    until("the stand-in ends", || is_gone(far));
}

#[test]
fn an_ssh_that_is_stuck_does_not_outlive_the_command_for_long() {
    for ctrl_c in [false, true] {
        // In a session of its own the kernel does not end what is stopped with its parent.
        let place = Place::new(r#"exec setsid sh -c "$remote""#);
        let mut command = place.command(&["--timeout", "1", "cat", &place.url("big")]);
        let mut child = begin(command.process_group(0), &place);
        let far = place.far();
        kill_process(far, Signal::STOP).unwrap();
        if ctrl_c {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        }
        std::io::copy(child.stdout.as_mut().unwrap(), &mut std::io::sink()).unwrap();
        assert_eq!(end(&mut child).code(), Some(if ctrl_c { 130 } else { 1 }));
        until("the stand-in ends", || is_gone(far));
    }
}
