//! Unix sockets: a file that only its owner can connect to, and that goes away with its server.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net as std_unix;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixStream};

use super::{Peer, Stream, standard};

/// Connections that may wait to be accepted; tokio's own number for its listeners.
const BACKLOG: i32 = 1024;

/// A listening socket and its file, which is removed when this is dropped.
#[derive(Debug)]
pub struct Socket {
    pub(super) listener: UnixListener,
    pub(super) path: PathBuf,
    /// Device and inode number of the file that we made.
    made: (u64, u64),
}

impl Socket {
    /// Listens at `path`. A file left behind by a server that is gone is removed first; it is taken for one only
    /// when it is a socket and nobody answers there.
    pub(super) fn bind(path: &Path) -> io::Result<Socket> {
        remove_stale(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file takes its mode from the socket, less the umask: it is never wider than this, not even for a moment.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        let made = identity(path)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let listener = UnixListener::from_std(std_unix::UnixListener::from(socket))?;
        Ok(Socket { listener, path: path.to_owned(), made })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another server may have taken the name over.
        if identity(&self.path).is_ok_and(|found| found == self.made) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let meta = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !meta.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} exists and is no socket: remove it or choose another path", path.display()),
        ));
    }
    // Connecting to a Unix socket never waits for long: a full backlog answers EAGAIN on a non-blocking socket.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(rustix::io::Errno::CONNREFUSED) => fs::remove_file(path),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("another server listens at {}: stop it or choose another path", path.display()),
        )),
    }
}

/// Connects to the socket at `path`.
pub(crate) fn dial(path: &Path) -> io::Result<Stream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = standard::beyond(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)?;
    // There or not at once: see `remove_stale`.
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    UnixStream::from_std(socket.into()).map(Stream::Unix)
}

/// A stream just accepted.
pub(super) fn accepted(stream: UnixStream) -> io::Result<(Stream, Peer)> {
    let cred = stream.peer_cred()?;
    let peer = Peer::Unix { uid: cred.uid(), gid: cred.gid(), pid: cred.pid().unwrap_or(0) };
    Ok((Stream::Unix(stream), peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn only_the_owner_can_connect_and_the_file_goes_with_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        runtime().block_on(async {
            let socket = Socket::bind(&path).unwrap();
            assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
            drop(socket);
            assert!(!path.exists());
        });
    }

    #[test]
    fn a_socket_that_nobody_answers_on_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(std_unix::UnixListener::bind(&path).unwrap());
        runtime().block_on(async { Socket::bind(&path).unwrap() });
    }

    #[test]
    fn a_live_socket_and_a_plain_file_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (live, plain) = (dir.path().join("live"), dir.path().join("plain"));
        let _listener = std_unix::UnixListener::bind(&live).unwrap();
        fs::write(&plain, "x").unwrap();
        runtime().block_on(async {
            assert_eq!(Socket::bind(&live).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            assert_eq!(Socket::bind(&plain).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        });
        assert!(live.exists() && plain.exists());
    }

    #[test]
    fn a_server_does_not_remove_the_file_of_its_successor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        runtime().block_on(async {
            let first = Socket::bind(&path).unwrap();
            // The name is kept in use, so that the successor's inode number cannot be the same.
            fs::rename(&path, dir.path().join("old")).unwrap();
            let _second = Socket::bind(&path).unwrap();
            drop(first);
            assert!(path.exists());
        });
    }
}
