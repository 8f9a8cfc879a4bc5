//! Opening a file of a server by its name, as open(2) does it.

use std::ffi::CStr;

use nine::client::{Client, Error, File, FileType, Follow, Node};
use nine::proto::{Dialect, Errno, QidType};
use nine::transport::Address;

use crate::descriptor::Descriptor;
use crate::fence::{EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR};
use crate::flags::Flags;
use crate::servers::Servers;

/// Tries to make or else open a file that others make and remove at the same time.
const TRIES: usize = 16;

/// The address that a name is, or `None` for a file here. The rule is that of the commands: [`Address::is_one`]. What is not UTF-8
/// is a file here; an address that is wrong is EINVAL.
pub fn address(name: &CStr) -> Result<Option<Address>, Errno> {
    let Ok(text) = name.to_str() else { return Ok(None) };
    if Address::is_one(text) { text.parse().map(Some).map_err(|_| EINVAL) } else { Ok(None) }
}

/// Permissions that new files do not get. umask(2) cannot ask without setting, in sight of other threads; proc_pid_status(5)
/// can, for the thread that calls: one may have its own (unshare(2), CLONE_FS). Where there is no /proc it is what most systems set.
fn umask() -> u32 {
    const USUAL: u32 = 0o022;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    told.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(USUAL)
}

pub async fn open(servers: &Servers, address: &Address, flags: Flags, mode: u32) -> Result<Descriptor, Error> {
    let (client, server) = servers.client(address).await?;
    let path = &address.path[..];
    let (file, kind) =
        if flags.create { create(&client, path, flags, mode).await? } else { find(&client, path, flags).await? };
    Ok(Descriptor::new(file, kind, flags, server))
}

/// A path that says that it is a directory's: a slash, `.` or `..` at its end, or nothing but the root.
fn says_directory(path: &[u8]) -> bool {
    let last = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
    matches!(last, b"" | b"." | b"..")
}

async fn find(client: &Client, path: &[u8], flags: Flags) -> Result<(File, FileType), Error> {
    let directory = says_directory(path);
    let follow = if flags.no_follow && !directory { Follow::NotLast } else { Follow::All };
    let node = client.walk(path, follow).await?;
    if (directory || flags.directory) && !node.qid().is_dir() {
        return Err(ENOTDIR.into());
    }
    open_node(node, flags).await
}

/// Opens it, and tells what kind of file it is. A qid says of fifos and sockets that they are files: it is asked for at the same time. 9P2000
/// does not know them.
async fn open_node(node: Node, flags: Flags) -> Result<(File, FileType), Error> {
    if node.qid().kind.has(QidType::SYMLINK) {
        return Err(ELOOP.into());
    }
    if node.qid().is_dir() && (flags.writes() || flags.truncate) {
        return Err(EISDIR.into());
    }
    let mode = flags.mode(Descriptor::server_appends(node.client()));
    let kind = FileType::from_qid(node.qid().kind);
    if kind != FileType::File || node.client().dialect() == Dialect::Plan9 {
        return Ok((node.open(mode).await?, kind));
    }
    let (file, metadata) = node.open_and_look(mode).await?;
    Ok((file, metadata.map_or(kind, |metadata| metadata.kind)))
}

async fn create(client: &Client, path: &[u8], flags: Flags, mode: u32) -> Result<(File, FileType), Error> {
    if says_directory(path) {
        return Err(EISDIR.into());
    }
    let perm = mode & 0o7777 & !umask();
    let append = Descriptor::server_appends(client);
    if flags.exclusive {
        // A link is in the way, wherever it leads.
        let (dir, name) = client.walk_parent(path).await?;
        return dir.create(&name, flags.mode(append), perm).await.map(plain);
    }
    let mut last = Error::from(EEXIST);
    for _ in 0..TRIES {
        let (dir, name) = if flags.no_follow {
            client.walk_parent(path).await?
        } else {
            let located = client.locate(path).await?;
            (located.dir, located.name)
        };
        match dir.walk(&[&name]).await {
            // Between the two somebody made it a link.
            Ok(node) if node.qid().kind.has(QidType::SYMLINK) && !flags.no_follow => continue,
            // open(2): O_CREAT is for no directory, nor for one that is only to be read.
            Ok(node) if node.qid().is_dir() => return Err(EISDIR.into()),
            Ok(node) => return open_node(node, flags).await,
            Err(e) if e.errno() == ENOENT => {}
            // 9P2000 has texts for errors, and every server its own: the create will tell.
            Err(e) if e.is_fatal() => return Err(e),
            Err(_) => {}
        }
        match dir.create(&name, flags.mode(append), perm).await {
            Err(e) if e.errno() == EEXIST => last = e,
            made => return made.map(plain),
        }
    }
    Err(last)
}

/// What was made is a plain file.
fn plain(file: File) -> (File, FileType) {
    (file, FileType::File)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_an_address_by_the_rule_of_the_commands() {
        let is_there = |name: &str| address(&std::ffi::CString::new(name).unwrap()).map(|address| address.is_some());
        for there in ["9p://h/x", "h:/x", "9p+unix:/s:/x", "9p+ssh://ken@h/x"] {
            assert_eq!(is_there(there), Ok(true), "{there}");
        }
        for here in ["a:b", "./h:/x", "/x", "a/b:/c", "x"] {
            assert_eq!(is_there(here), Ok(false), "{here}");
        }
        assert_eq!(is_there("9p://h:99999/x"), Err(EINVAL));
        assert_eq!(address(c"\xff:/x").map(|address| address.is_some()), Ok(false));
    }

    #[test]
    fn the_umask_is_read_and_not_set() {
        let set = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
        let read = umask();
        rustix::process::umask(set);
        assert_eq!(read, 0o027);
    }

    #[test]
    fn the_umask_is_that_of_the_thread_that_calls() {
        let other = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).unwrap();
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o037));
            umask()
        });
        assert_eq!(other.join().unwrap(), 0o037);
    }

    #[test]
    fn a_path_that_ends_in_a_slash_or_in_dots_is_a_directorys() {
        for (path, says) in
            [("", true), ("/", true), ("/a/", true), ("/a/..", true), ("/.", true), ("/a", false), ("/a..", false)]
        {
            assert_eq!(says_directory(path.as_bytes()), says, "{path}");
        }
    }
}
