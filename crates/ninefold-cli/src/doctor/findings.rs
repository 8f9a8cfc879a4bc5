//! What the facts of a [`Machine`] mean for its user.

use std::io::ErrorKind;
use std::time::Duration;

use super::machine::{Machine, Refusal};

/// The oldest kernel that serves: openat2(2), with which names stay in the exported directory.
const KERNEL: (u32, u32) = (5, 6);

/// The oldest whose answers from the cache need no other thread: openat2's RESOLVE_CACHED.
const KERNEL_CACHED: (u32, u32) = (5, 12);

/// Descriptors below which a copy of many files, or a server with many clients, goes slower.
const DESCRIPTORS: u64 = 4096;

/// Bytes of a pipe by which large reads leave the page cache without a copy.
const PIPE: u64 = 1 << 20;

/// Of a connection's buffer so much may be data; the rest is the kernel's own (tcp_adv_win_scale, tcp(7)).
const DATA_SHARE: f64 = 0.5;

/// The way to the servers that are used.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub rtt: Duration,
    pub bits_per_second: f64,
}

/// How much it stands in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Ok,
    /// All works, but slower than it could.
    Slow,
    /// Something does not work.
    Lacks,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Slow => "slow",
            State::Lacks => "lacks",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
pub struct Finding {
    pub name: &'static str,
    pub state: State,
    pub found: String,
    pub advice: Option<Advice>,
}

/// Why it matters, and what to do.
#[derive(Debug)]
pub struct Advice {
    pub matter: String,
    pub mend: String,
}

impl Finding {
    fn ok(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { name, state: State::Ok, found: found.into(), advice: None }
    }

    fn slow(name: &'static str, found: String, matter: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { name, state: State::Slow, found, advice: Some(Advice { matter: matter.into(), mend: mend.into() }) }
    }

    fn lacks(name: &'static str, found: String, matter: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { state: State::Lacks, ..Finding::slow(name, found, matter, mend) }
    }
}

/// Everything that was looked at, in the order in which it is told.
pub fn findings(machine: &Machine, path: Path) -> Vec<Finding> {
    vec![
        kernel(machine),
        fuse(machine),
        user_namespaces(machine),
        tun(machine),
        ssh(machine),
        descriptors(machine),
        buffer("receive buffer", "tcp_rmem", "4096 131072", "brings", machine.tcp_receive, path),
        buffer("send buffer", "tcp_wmem", "4096 16384", "takes", machine.tcp_send, path),
        congestion(machine),
        idle(machine),
        pipes(machine),
    ]
}

fn kernel(machine: &Machine) -> Finding {
    let name = "kernel";
    let found = machine.kernel.clone();
    match version(&machine.kernel) {
        Some(version) if version < KERNEL => {
            let matter =
                "names are kept in the exported directory by openat2(2), which came with Linux 5.6: serve fails";
            Finding::lacks(name, found, matter, "run a newer kernel")
        }
        Some(version) if version < KERNEL_CACHED => {
            let matter = "before Linux 5.12 each name that is looked up takes a change of thread in the server";
            Finding::slow(name, found, matter, "run a newer kernel")
        }
        _ => Finding::ok(name, found),
    }
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn fuse(machine: &Machine) -> Finding {
    let name = "FUSE";
    let matter = "mounts without root are made by it";
    match (&machine.fuse, &machine.fusermount) {
        (Err(ErrorKind::PermissionDenied), _) => {
            let mend = "chmod 666 /dev/fuse, or a udev rule that does it";
            Finding::lacks(name, "/dev/fuse may not be opened by this user".to_owned(), matter, mend)
        }
        (Err(_), _) => {
            let mend = "modprobe fuse; in a container: give it the device (--device /dev/fuse)";
            Finding::lacks(name, "there is no /dev/fuse".to_owned(), matter, mend)
        }
        (Ok(()), None) if !machine.root => {
            Finding::lacks(name, "fusermount3 is not in PATH".to_owned(), matter, "install the package fuse3")
        }
        (Ok(()), Some(tool)) if !machine.root && !tool.setuid_root => {
            let found = format!("{} is not setuid root", tool.path.display());
            Finding::lacks(name, found, matter, format!("chmod u+s {} as root", tool.path.display()))
        }
        (Ok(()), Some(tool)) => Finding::ok(name, format!("/dev/fuse opens, {}", tool.path.display())),
        (Ok(()), None) => Finding::ok(name, "/dev/fuse opens, and root needs no fusermount3"),
    }
}

fn user_namespaces(machine: &Machine) -> Finding {
    let name = "user namespaces";
    let matter = "a private name space, and a lab without root, are made in one";
    match &machine.user_namespace {
        Ok(()) => Finding::ok(name, "one was made, and a mount in it"),
        Err(Refusal::Powerless) => {
            let mend = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with userns for ninefold";
            Finding::lacks(name, "one was made, but nothing may be mounted in it".to_owned(), matter, mend)
        }
        Err(Refusal::Made(nix::Error::ENOSPC)) => {
            let found = "there are as many as there may be".to_owned();
            Finding::lacks(name, found, matter, "sysctl -w user.max_user_namespaces=10000")
        }
        Err(Refusal::Made(error)) => {
            let mend = "sysctl -w kernel.unprivileged_userns_clone=1 (Debian); in a container: allow unshare(2) in its seccomp profile";
            Finding::lacks(name, format!("unshare(2): {}", error.desc()), matter, mend)
        }
    }
}

fn tun(machine: &Machine) -> Finding {
    let (name, matter) = ("TUN", "the link of a lab is made of two such devices; nothing else needs them");
    match machine.tun {
        Ok(()) => Finding::ok(name, "/dev/net/tun opens"),
        Err(ErrorKind::PermissionDenied) => {
            let found = "/dev/net/tun may not be opened by this user".to_owned();
            Finding::slow(name, found, matter, "chmod 666 /dev/net/tun")
        }
        Err(_) => Finding::slow(name, "there is no /dev/net/tun".to_owned(), matter, "modprobe tun"),
    }
}

fn ssh(machine: &Machine) -> Finding {
    match &machine.ssh {
        Some(tool) => Finding::ok("ssh", tool.path.display().to_string()),
        None => {
            let matter = "HOST:/PATH and 9p+ssh:// are reached by it";
            Finding::lacks("ssh", "not in PATH".to_owned(), matter, "install the package openssh-client")
        }
    }
}

fn descriptors(machine: &Machine) -> Finding {
    let name = "descriptors";
    match machine.descriptors {
        Some(n) if n < DESCRIPTORS => {
            let matter = "a server keeps the files that clients hold open, and a copy many at once";
            let mend = "ulimit -Hn 65536 as root, or LimitNOFILE= of the unit, or limits.conf(5)";
            Finding::slow(name, format!("{n} a process"), matter, mend)
        }
        Some(u64::MAX) => Finding::ok(name, "as many as are asked for"),
        Some(n) => Finding::ok(name, format!("{n} a process")),
        None => Finding::ok(name, "unknown"),
    }
}

fn buffer(name: &'static str, sysctl: &str, before: &str, does: &str, size: Option<u64>, path: Path) -> Finding {
    let Some(size) = size else { return Finding::ok(name, "unknown") };
    let found = format!("{size} bytes at most (net.ipv4.{sysctl})");
    let window = path.bits_per_second / 8.0 * path.rtt.as_secs_f64();
    let needed = (window / DATA_SHARE).ceil() as u64;
    if size >= needed {
        return Finding::ok(name, found);
    }
    let rate = size as f64 * DATA_SHARE / path.rtt.as_secs_f64() * 8.0 / 1e6;
    let (rtt, asked) = (path.rtt.as_secs_f64() * 1e3, path.bits_per_second / 1e6);
    let matter = format!("at {rtt} ms one connection {does} {rate:.0} Mbit/s of the {asked:.0}");
    Finding::slow(name, found, matter, format!("sysctl -w net.ipv4.{sysctl}='{before} {needed}'"))
}

fn congestion(machine: &Machine) -> Finding {
    let name = "congestion control";
    match machine.congestion.as_deref() {
        Some("bbr") => Finding::ok(name, "bbr"),
        Some(other) => {
            let matter = "it halves its rate, or nearly, at each lost packet: on a long way a loss of 0.1 % costs most of the rate";
            let mend = "modprobe tcp_bbr; sysctl -w net.ipv4.tcp_congestion_control=bbr, at both ends";
            Finding::slow(name, other.to_owned(), matter, mend)
        }
        None => Finding::ok(name, "unknown"),
    }
}

fn idle(machine: &Machine) -> Finding {
    let name = "after idleness";
    if machine.slow_start_after_idle {
        let matter =
            "a connection that was idle for a moment begins slowly again: some round trips more for each burst";
        let mend = "sysctl -w net.ipv4.tcp_slow_start_after_idle=0, at both ends";
        return Finding::slow(name, "connections start slowly again".to_owned(), matter, mend);
    }
    Finding::ok(name, "connections go on at their rate")
}

fn pipes(machine: &Machine) -> Finding {
    let name = "pipes";
    match machine.pipe {
        Some(size) if size < PIPE => {
            let matter = "the server sends large reads from the page cache through pipes of 1 MiB, else with a copy";
            Finding::slow(name, format!("{size} bytes at most"), matter, format!("sysctl -w fs.pipe-max-size={PIPE}"))
        }
        Some(size) => Finding::ok(name, format!("{size} bytes at most")),
        None => Finding::ok(name, "unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Tool;
    use super::*;

    fn well() -> Machine {
        Machine {
            kernel: "6.12.9-amd64".to_owned(),
            root: false,
            fuse: Ok(()),
            fusermount: Some(Tool { path: "/bin/fusermount3".into(), setuid_root: true }),
            tun: Ok(()),
            ssh: Some(Tool { path: "/bin/ssh".into(), setuid_root: false }),
            user_namespace: Ok(()),
            descriptors: Some(1 << 20),
            tcp_receive: Some(32 << 20),
            tcp_send: Some(32 << 20),
            congestion: Some("bbr".to_owned()),
            slow_start_after_idle: false,
            pipe: Some(1 << 20),
        }
    }

    const LONG: Path = Path { rtt: Duration::from_millis(50), bits_per_second: 1e9 };

    fn found(change: impl Fn(&mut Machine)) -> Vec<(&'static str, State)> {
        let mut machine = well();
        change(&mut machine);
        let all = findings(&machine, LONG);
        for finding in &all {
            assert_eq!(finding.state == State::Ok, finding.advice.is_none(), "{finding:?}");
        }
        all.iter().filter(|finding| finding.state != State::Ok).map(|finding| (finding.name, finding.state)).collect()
    }

    #[test]
    fn a_machine_that_lacks_nothing_is_told_so() {
        assert_eq!(found(|_| {}), []);
    }

    #[test]
    fn what_does_not_work_and_what_is_slow_are_told_apart() {
        assert_eq!(found(|m| m.kernel = "5.4.0-1".to_owned()), [("kernel", State::Lacks)]);
        assert_eq!(found(|m| m.kernel = "5.10".to_owned()), [("kernel", State::Slow)]);
        assert_eq!(found(|m| m.fuse = Err(ErrorKind::NotFound)), [("FUSE", State::Lacks)]);
        assert_eq!(found(|m| m.tun = Err(ErrorKind::NotFound)), [("TUN", State::Slow)]);
        assert_eq!(found(|m| m.ssh = None), [("ssh", State::Lacks)]);
        assert_eq!(found(|m| m.descriptors = Some(1024)), [("descriptors", State::Slow)]);
        assert_eq!(found(|m| m.tcp_send = Some(4 << 20)), [("send buffer", State::Slow)]);
        assert_eq!(found(|m| m.congestion = Some("cubic".to_owned())), [("congestion control", State::Slow)]);
        assert_eq!(found(|m| m.slow_start_after_idle = true), [("after idleness", State::Slow)]);
        assert_eq!(found(|m| m.pipe = Some(65536)), [("pipes", State::Slow)]);
    }

    #[test]
    fn root_mounts_without_a_helper_and_others_need_one_that_is_setuid() {
        assert_eq!(found(|m| m.fusermount = None), [("FUSE", State::Lacks)]);
        assert_eq!(found(|m| m.fusermount.as_mut().unwrap().setuid_root = false), [("FUSE", State::Lacks)]);
        assert_eq!(found(|m| (m.fusermount, m.root) = (None, true)), []);
    }

    #[test]
    fn a_user_namespace_without_rights_is_none() {
        for refusal in [Refusal::Powerless, Refusal::Made(nix::Error::EPERM), Refusal::Made(nix::Error::ENOSPC)] {
            assert_eq!(found(|m| m.user_namespace = Err(refusal.clone())), [("user namespaces", State::Lacks)]);
        }
    }

    #[test]
    fn a_buffer_is_judged_by_the_way_that_it_is_for() {
        let near = Path { rtt: Duration::from_micros(200), bits_per_second: 1e9 };
        assert_eq!(buffer("b", "tcp_rmem", "1 2", "brings", Some(1 << 20), near).state, State::Ok);
        let far = buffer("b", "tcp_rmem", "1 2", "brings", Some(5_000_000), LONG);
        let advice = far.advice.unwrap();
        assert_eq!(advice.matter, "at 50 ms one connection brings 400 Mbit/s of the 1000");
        assert_eq!(advice.mend, "sysctl -w net.ipv4.tcp_rmem='1 2 12500000'");
    }
}
