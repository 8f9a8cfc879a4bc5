//! A directory of the host driven through the contract, as the server would.

mod again;
mod dirs;
mod entries;
mod extents;
mod files;
mod identity;
mod piped;
mod plan9;
mod plus;
mod renames;
mod safety;
mod slow;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ninefold_proto::open::{Open, lflags};
use ninefold_proto::types::WalkElem;
use ninefold_proto::{Dialect, Errno, Error, Name, Qid};
use tempfile::TempDir;

use super::HostFs;
use crate::server::{Attach, Create, Cx, File, FileServer, User};

type Fid = Arc<dyn File>;

/// A scratch directory, exported.
struct Host {
    dir: TempDir,
    fs: HostFs,
    cx: Cx,
}

impl Host {
    fn new() -> Host {
        Host::with_descriptors(64)
    }

    fn with_descriptors(limit: usize) -> Host {
        let dir = tempfile::tempdir().unwrap();
        let fs = HostFs::with_descriptors(dir.path(), limit).unwrap();
        Host { dir, fs, cx: Cx::detached() }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    fn put(&self, name: &str, data: &[u8]) {
        std::fs::write(self.path(name), data).unwrap();
        // The server clears the umask.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(self.path(name), mode).unwrap();
    }

    fn mkdir(&self, name: &str) {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(self.path(name)).unwrap();
    }

    async fn root(&self) -> Fid {
        self.attach(Dialect::Linux, User::of_process()).await
    }

    async fn attach(&self, dialect: Dialect, user: User) -> Fid {
        let who = Attach { user: Arc::new(user), dialect };
        self.fs.attach(&self.cx, &who).wait().await.unwrap().1
    }

    /// Walks a path of names and dots from `from`.
    async fn walk(&self, from: &Fid, path: &str) -> Result<(Vec<Qid>, Fid), Error> {
        let elems: Vec<WalkElem<'_>> = path
            .split('/')
            .filter(|name| !name.is_empty())
            .map(|name| WalkElem::new(name.as_bytes(), true).unwrap())
            .collect();
        let walked = from.walk(&self.cx, &elems).wait().await?;
        match walked.file {
            Some(file) => Ok((walked.qids, file)),
            None => Err(Error::with_text(Errno::ENOENT, format!("walked {}", walked.qids.len()))),
        }
    }

    async fn at(&self, from: &Fid, path: &str) -> Fid {
        self.walk(from, path).await.unwrap().1
    }

    async fn open(&self, fid: &Fid, flags: u32) -> Result<Qid, Error> {
        fid.open(&self.cx, Open::from_lflags(flags).unwrap()).wait().await
    }

    async fn read(&self, fid: &Fid) -> Result<Vec<u8>, Error> {
        Ok(fid.read(&self.cx, 0, 65536).wait().await?.into_bytes()?.to_vec())
    }

    async fn contents(&self, from: &Fid, path: &str) -> Result<Vec<u8>, Error> {
        let fid = self.walk(from, path).await?.1;
        self.open(&fid, 0).await?;
        let data = self.read(&fid).await;
        fid.clunk(&self.cx).wait().await?;
        data
    }

    async fn create(&self, dir: &Fid, name: &str, mode: u32) -> Result<Fid, Error> {
        Ok(dir.create(&self.cx, plain(name, mode)).wait().await?.file)
    }
}

fn plain(name: &str, mode: u32) -> Create<'_> {
    let open = Open::from_lflags(lflags::RDWR).unwrap();
    Create { name: name_of(name), mode, dm: 0, gid: None, open, exclusive: true }
}

fn name_of(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).unwrap()
}

fn errno<T>(result: Result<T, Error>) -> Errno {
    result.err().expect("an error").errno
}

fn somebody(uid: u32) -> User {
    User { name: uid.to_string(), uid, gid: uid, groups: Vec::new() }
}

/// Whether the test can go on. If not, the reason is counted where the caller of the tests wants it.
pub(super) fn have(facility: &str, there: bool) -> bool {
    if !there && let Some(file) = std::env::var_os("NINEFOLD_SKIPS") {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "hostfs: {facility} is missing").unwrap();
    }
    there
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
