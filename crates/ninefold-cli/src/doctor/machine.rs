//! What there is on this machine: facts, and no judgement of them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rustix::process::{Resource, getgid, getrlimit, getuid};

/// What was seen. `None`: there is no such thing, or it cannot be read.
#[derive(Clone, Debug)]
pub struct Machine {
    /// uname(2)'s release: "6.12.9-amd64".
    pub kernel: String,
    pub root: bool,
    /// Whether /dev/fuse opens, for reading and writing.
    pub fuse: Result<(), io::ErrorKind>,
    pub fusermount: Option<Tool>,
    /// The same of /dev/net/tun.
    pub tun: Result<(), io::ErrorKind>,
    pub ssh: Option<Tool>,
    pub user_namespace: Result<(), Refusal>,
    /// Descriptors that a process of this user may have, if it asks for them.
    pub descriptors: Option<u64>,
    /// Greatest buffers of a TCP connection, in bytes: net.ipv4.tcp_rmem and tcp_wmem.
    pub tcp_receive: Option<u64>,
    pub tcp_send: Option<u64>,
    pub congestion: Option<String>,
    pub slow_start_after_idle: bool,
    /// Bytes that a pipe may hold: fs.pipe-max-size.
    pub pipe: Option<u64>,
}

/// A program in one of PATH's directories.
#[derive(Clone, Debug)]
pub struct Tool {
    pub path: PathBuf,
    pub setuid_root: bool,
}

/// Where the making of a user name space ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// unshare(2) said so.
    Made(nix::Error),
    /// It was made, but gives no rights in it: a security module's doing (AppArmor's, on Ubuntu since 23.10).
    Powerless,
}

impl Machine {
    /// Looks at this machine. The process is in another name space afterwards, if it may.
    pub fn look() -> Machine {
        let sysctl = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok();
        Machine {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            root: getuid().is_root(),
            fuse: opens("/dev/fuse"),
            fusermount: tool("fusermount3").or_else(|| tool("fusermount")),
            tun: opens("/dev/net/tun"),
            ssh: tool("ssh"),
            descriptors: Some(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)),
            tcp_receive: sysctl("net/ipv4/tcp_rmem").and_then(|text| last_number(&text)),
            tcp_send: sysctl("net/ipv4/tcp_wmem").and_then(|text| last_number(&text)),
            congestion: sysctl("net/ipv4/tcp_congestion_control").map(|text| text.trim().to_owned()),
            slow_start_after_idle: sysctl("net/ipv4/tcp_slow_start_after_idle").is_some_and(|text| text.trim() != "0"),
            pipe: sysctl("fs/pipe-max-size").and_then(|text| last_number(&text)),
            // Last: nothing is as it was behind it.
            user_namespace: user_namespace(),
        }
    }
}

fn opens(path: &str) -> Result<(), io::ErrorKind> {
    OpenOptions::new().read(true).write(true).open(path).map(|_: File| ()).map_err(|e| e.kind())
}

fn tool(name: &str) -> Option<Tool> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find_map(|path| runs(&path))
}

fn runs(path: &Path) -> Option<Tool> {
    let metadata = fs::metadata(path).ok()?;
    let mode = metadata.permissions().mode();
    let owner = std::os::unix::fs::MetadataExt::uid(&metadata);
    (metadata.is_file() && mode & 0o111 != 0)
        .then(|| Tool { path: path.to_owned(), setuid_root: owner == 0 && mode & 0o4000 != 0 })
}

/// The last of numbers in a line: the greatest of three, or the only one.
fn last_number(text: &str) -> Option<u64> {
    text.split_whitespace().next_back()?.parse().ok()
}

/// Makes one, and a mount in it, which is what it is wanted for.
fn user_namespace() -> Result<(), Refusal> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).map_err(Refusal::Made)?;
    let mapped = fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")))
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")));
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let mounted = mount(None::<&str>, "/", None::<&str>, private, None::<&str>);
    if mapped.is_ok() && mounted.is_ok() { Ok(()) } else { Err(Refusal::Powerless) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_three_sizes_the_last_is_the_greatest() {
        assert_eq!(last_number("4096\t131072\t33554432\n"), Some(33_554_432));
        assert_eq!(last_number("1048576\n"), Some(1_048_576));
        assert_eq!(last_number(""), None);
    }

    #[test]
    fn a_program_is_a_file_that_may_be_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tool");
        assert!(runs(&path).is_none());
        fs::write(&path, "").unwrap();
        assert!(runs(&path).is_none());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!runs(&path).unwrap().setuid_root);
        assert!(runs(dir.path()).is_none());
    }
}
