//! Mounts below the export: which may be crossed, and which names of a directory are mount points.
//!
//! A mount of this very server inside its own export would make a walk wait for itself. Such a mount is
//! known by its source, one of the server's own addresses (`own.rs`), and refused with ELOOP **before** any
//! call that its file system would have to answer: opening with O_PATH does not ask it, stat(2) would. Only on the name of a held file the
//! kernel may be asked about a mount that is 100 microseconds old ([`MountWatch`]), by a statx(2) for which FUSE and NFS need not ask
//! anybody (AT_STATX_DONT_SYNC); Linux's 9P client without a cache does.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use ninefold_proto::{Errno, Error};
use rustix::fs::{Mode, OFlags, open, readlinkat_raw, seek};

use super::mount_watch::{MountWatch, has_changed};
use super::own::{is_reached_by, server};
use super::{lock, os};
use crate::transport::{Address, Place};

/// File systems whose answers come from another program or machine: no call to them is made on a
/// thread that must not wait.
const SLOW: [&str; 8] = ["fuse", "nfs", "cifs", "smb3", "9p", "ceph", "afs", "autofs"];

/// The mount table, read again when the kernel says that it changed.
#[derive(Debug)]
pub(super) struct Mounts {
    /// Where this server itself answers.
    own: Mutex<Vec<Place>>,
    table: Mutex<Table>,
    pub(super) watch: MountWatch,
}

#[derive(Debug)]
struct Table {
    /// /proc/self/mountinfo, held open because only a held one can tell of changes.
    file: OwnedFd,
    read: bool,
    mounts: HashMap<u64, Mount>,
    /// The folders that hold mount points, and the names of these.
    points: HashMap<Vec<u8>, Arc<HashSet<Vec<u8>>>>,
}

#[derive(Debug)]
struct Mount {
    source: Vec<u8>,
    /// The 9P server whose files these are, where the table tells.
    server: Option<Place>,
    nature: Nature,
}

/// What must be known of a file system before it is used.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Nature {
    /// Its answers come from another program or machine.
    pub(super) slow: bool,
    /// A file is replaced by its copy when it is first written to (overlayfs), and is the same file still.
    pub(super) copies_up: bool,
}

impl Mounts {
    pub(super) fn new() -> Result<Mounts, Error> {
        let file = open("/proc/self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(os)?;
        let table = Table { file, read: false, mounts: HashMap::new(), points: HashMap::new() };
        Ok(Mounts { own: Mutex::default(), table: Mutex::new(table), watch: MountWatch::new()? })
    }

    pub(super) fn set_own(&self, addresses: Vec<String>) {
        *lock(&self.own) = addresses.iter().filter_map(|a| Some(a.parse::<Address>().ok()?.place)).collect();
    }

    /// Whether the mount that `fd` (opened with O_PATH, not stat'ed yet) lies on may be used, and if so
    /// what kind of file system it is.
    pub(super) fn check(&self, fd: BorrowedFd<'_>) -> Result<Nature, Error> {
        let id = mount_id(fd)?;
        let mut table = lock(&self.table);
        table.refresh()?;
        // A mount that is not in the table was moved away meanwhile, or lies in another name space.
        let Some(mount) = table.mounts.get(&id) else {
            return Err(Error::with_text(Errno::ELOOP, "unknown mount below the export"));
        };
        if let Some(server) = &mount.server
            && lock(&self.own).iter().any(|own| is_reached_by(own, server))
        {
            let source = String::from_utf8_lossy(&mount.source).into_owned();
            return Err(Error::with_text(Errno::ELOOP, format!("{source} is a mount of this server itself")));
        }
        Ok(mount.nature)
    }

    /// Names in the directory `dir` that are mount points, if it has any.
    pub(super) fn points(&self, dir: BorrowedFd<'_>) -> Option<Arc<HashSet<Vec<u8>>>> {
        let mut table = lock(&self.table);
        table.refresh().ok()?;
        if table.points.is_empty() {
            return None;
        }
        // Only in a name space with mounts does a directory cost this; a path too long for the kernel
        // to tell holds no mount point, as mount(2) could not have named it either.
        let mut path = [0; 4096];
        let n = readlinkat_raw(rustix::fs::CWD, proc_path(dir), &mut path[..]).ok()?;
        table.points.get(&path[..n]).cloned()
    }
}

impl Table {
    fn refresh(&mut self) -> Result<(), Error> {
        let file = self.file.as_fd();
        let changed = has_changed(file);
        if self.read && !changed {
            return Ok(());
        }
        // The kernel tells of a change once: if reading fails it is still to be done.
        self.read = false;
        seek(file, rustix::fs::SeekFrom::Start(0)).map_err(os)?;
        let text = read_all(file)?;
        self.mounts.clear();
        let mut points: HashMap<Vec<u8>, HashSet<Vec<u8>>> = HashMap::new();
        for line in text.split(|&b| b == b'\n') {
            let Some((id, point, mount)) = parse(line) else { continue };
            self.mounts.insert(id, mount);
            if let Some(slash) = point.iter().rposition(|&b| b == b'/')
                && slash + 1 < point.len()
            {
                let folder = if slash == 0 { b"/".to_vec() } else { point[..slash].to_vec() };
                points.entry(folder).or_default().insert(point[slash + 1..].to_vec());
            }
        }
        self.points = points.into_iter().map(|(folder, names)| (folder, Arc::new(names))).collect();
        self.read = true;
        Ok(())
    }
}

/// One line of mountinfo (proc_pid_mountinfo(5)): id parent major:minor root point options… - type source options
fn parse(line: &[u8]) -> Option<(u64, Vec<u8>, Mount)> {
    let mut fields = line.split(|&b| b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let point = unescape(fields.nth(3)?);
    fields.find(|&field| field == b"-")?;
    let kind = fields.next()?;
    let nature =
        Nature { slow: SLOW.iter().any(|slow| kind.starts_with(slow.as_bytes())), copies_up: kind == b"overlay" };
    let source = unescape(fields.next()?);
    let server = server(kind, &source, fields.next().unwrap_or_default());
    Some((id, point, Mount { source, server, nature }))
}

/// Spaces and the like stand in mountinfo as `\040`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|d| d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match digits {
            Some(d) if first == b'\\' => {
                out.push(d.iter().fold(0_u8, |n, b| n.wrapping_mul(8).wrapping_add(b - b'0')));
                rest = &tail[3..];
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// The mount that a descriptor lies on, without asking its file system.
fn mount_id(fd: BorrowedFd<'_>) -> Result<u64, Error> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(os)?;
    let text = read_all(file.as_fd())?;
    let line = text.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"mnt_id:"));
    line.and_then(|n| std::str::from_utf8(n).ok()?.trim().parse().ok()).ok_or(Errno::EIO.into())
}

fn read_all(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let mut part = [0; 8192];
    loop {
        match rustix::io::read(fd, &mut part[..]) {
            Ok(0) => return Ok(text),
            Ok(n) => text.extend_from_slice(&part[..n]),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(os(error)),
        }
    }
}

/// The name under which the kernel lets a descriptor be opened or named again.
pub(super) fn proc_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_gives_point_type_and_source() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - fuse.ninefold 9p://127.0.0.1:5640 rw";
        let (id, point, mount) = parse(line).unwrap();
        assert_eq!((id, point.as_slice(), mount.nature.slow), (36, b"/mnt 2".as_slice(), true));
        assert_eq!(mount.source, b"9p://127.0.0.1:5640");
    }

    #[test]
    fn a_mount_of_this_server_is_known_whoever_mounted_it() {
        let own = |address: &str, tail: &str| {
            let line = format!("36 35 0:40 / /mnt rw,relatime shared:1 - {tail}");
            let mount = parse(line.as_bytes()).unwrap().2;
            mount.server.is_some_and(|server| is_reached_by(&address.parse::<Address>().unwrap().place, &server))
        };
        for (address, tail) in [
            ("9p://127.0.0.1:5640", "9p 127.0.0.1 rw,access=user,trans=tcp,port=5640"),
            ("9p://127.0.0.1:5640", "9p localhost rw,access=user,trans=tcp,port=5640"),
            ("9p://127.0.0.1:564", "9p 127.0.0.1 rw,trans=tcp"),
            ("9p://0.0.0.0:5640", "9p 127.0.0.2 rw,trans=tcp,port=5640"),
            ("9p://[::]:5640", "9p 127.0.0.1 rw,trans=tcp,port=5640"),
            ("9p://[::]:5640", "9p ::1 rw,trans=tcp,port=5640"),
            ("9p+unix:/run/nine fold", r"9p /run/nine\040fold rw,trans=unix"),
            ("9p://0.0.0.0:5640", "fuse.ninefold 9p://localhost:5640/x?aname=y rw"),
            ("9p://127.0.0.1:5640", "fuse.ninefold 9p://127.0.0.1/x rw"),
            ("9p+unix:/run/s", "fuse.ninefold 9p+unix:/run/s:/x rw"),
        ] {
            assert!(own(address, tail), "{tail} is a mount of {address}");
        }
        for (address, tail) in [
            ("9p://127.0.0.1:5640", "9p 127.0.0.1 rw,trans=tcp"),
            ("9p://127.0.0.1:5640", "9p 127.0.0.1 rw,trans=tcp,port=56401"),
            ("9p://127.0.0.1:5640", "9p 127.0.0.2 rw,trans=tcp,port=5640"),
            // An address for documentation (RFC 5737), which is no machine's.
            ("9p://0.0.0.0:5640", "9p 192.0.2.1 rw,trans=tcp,port=5640"),
            ("9p://0.0.0.0:5640", "9p ::1 rw,trans=tcp,port=5640"),
            ("9p://127.0.0.1:5640", "9p hostshare rw,trans=virtio"),
            ("9p+unix:/run/s", "9p /run/s2 rw,trans=unix"),
            ("9p://127.0.0.1:5640", "nfs 127.0.0.1:/export rw,port=5640"),
            ("9p://127.0.0.1:5640", "tmpfs tmpfs rw"),
        ] {
            assert!(!own(address, tail), "{tail} is no mount of {address}");
        }
    }
}
