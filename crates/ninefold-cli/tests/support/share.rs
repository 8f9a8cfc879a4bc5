//! A directory of this machine, served, with the commands run on it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use ninefold::proto::Dialect;

use super::{Running, ninefold};

/// A temporary directory and a server for it, which ends with this.
pub struct Share {
    dir: tempfile::TempDir,
    pub server: Running,
    place: String,
}

impl Share {
    pub fn new() -> Share {
        Share::with(&[])
    }

    /// With more words for `ninefold serve`.
    pub fn with(words: &[&str]) -> Share {
        let dir = tempfile::tempdir().unwrap();
        let mut args = vec!["serve", dir.path().to_str().unwrap(), "--listen", "9p://127.0.0.1:0"];
        args.extend(words);
        let server = Running::start(&args);
        let place = format!("9p://{}", server.tcp());
        Share { dir, server, place }
    }

    /// A file as this machine has it.
    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn make(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap()
    }

    /// Where the server listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.place.trim_start_matches("9p://").parse().unwrap()
    }

    /// The server's address without a path.
    pub fn place(&self) -> &str {
        &self.place
    }

    pub fn url(&self, path: &str, dialect: Dialect) -> String {
        format!("{}/{path}?dialect={dialect}", self.place)
    }

    /// The names in a directory, sorted.
    pub fn names(&self, dir: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(dir)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }
}

/// Runs a command with standard input; its exit status and standard error.
pub fn feed(args: &[&str], input: &[u8]) -> (Option<i32>, String) {
    let mut command = ninefold(args);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end without reading.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}
