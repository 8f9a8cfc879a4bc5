//! What is told where a machine lacks something for a lab; the tests skip by it.

mod support;

use std::process::Command;

use ninefold_lab::{Lab, Options, Unavailable};
use support::{PEER, Peer, lab, skip};

/// A shell that runs a script in namespaces of its own, where it is root. None when there are none, which is told.
fn apart(test: &str, namespaces: &[&str], script: &str) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(namespaces);
        if !rustix::process::getuid().is_root() {
            command.arg("-r");
        }
        command
    };
    match unshare().arg("true").output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            skip(test, &format!("unshare: {}", String::from_utf8_lossy(&output.stderr).trim_end()));
            return None;
        }
        Err(e) => {
            skip(test, &format!("unshare, of Debian's package util-linux: {e}"));
            return None;
        }
    }
    for tool in ["setpriv", "mount"].into_iter().filter(|tool| script.contains(tool)) {
        if let Err(e) = Command::new(tool).arg("--version").output() {
            skip(test, &format!("{tool}, of Debian's packages util-linux and mount: {e}"));
            return None;
        }
    }
    let mut command = unshare();
    command.args(["sh", "-c", script, "sh", PEER]);
    Some(command)
}

/// What a peer tells that tries to make a lab there.
fn told(test: &str, namespaces: &[&str], script: &str) -> Option<String> {
    // Whether there can be one at all is asked first.
    lab(test, Default::default())?;
    Some(Peer::spawn(&mut apart(test, namespaces, script)?).ask("hold"))
}

#[test]
fn a_missing_program_is_not_something_that_the_machine_lacks() {
    let options = Options { program: Some("/no/such/program".into()), ..Options::default() };
    let error = Lab::start(&options).err().expect("it is missing");
    assert!(!error.is::<Unavailable>() && error.to_string().contains("cargo build"), "{error:#}");
}

#[test]
fn without_a_tun_device_a_lab_is_unavailable() {
    let name = "without_a_tun_device_a_lab_is_unavailable";
    let Some(told) = told(name, &["-m"], r#"mount -t tmpfs none /dev/net && exec "$1""#) else { return };
    assert!(told.starts_with("unavailable /dev/net/tun is missing") && told.contains("modprobe tun"), "{told}");
}

#[test]
fn where_user_namespaces_are_switched_off_a_lab_is_unavailable() {
    let name = "where_user_namespaces_are_switched_off_a_lab_is_unavailable";
    // The limit is each namespace's own: namespaces(7). Root there keeps but one of its capabilities, and may make none but those.
    let script = r#"echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all,+setfcap --inh-caps=-all "$1""#;
    let Some(told) = told(name, &["-U", "-r"], script) else { return };
    assert!(told.starts_with("unavailable user namespaces are switched off"), "{told}");
}

#[test]
fn where_user_namespaces_may_not_be_used_a_lab_is_unavailable() {
    let name = "where_user_namespaces_may_not_be_used_a_lab_is_unavailable";
    // Without CAP_SETFCAP root may make one and not be root in it: user_namespaces(7).
    let script = r#"exec setpriv --bounding-set=-all --inh-caps=-all "$1""#;
    let Some(told) = told(name, &["-U", "-r"], script) else { return };
    assert!(told.starts_with("unavailable this system lets user namespaces be made, but not used"), "{told}");
}
