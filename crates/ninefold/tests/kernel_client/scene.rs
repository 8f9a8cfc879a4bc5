//! The trees that are served, and in which dialect.

use std::fmt;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use ninefold::proto::{Dialect, Fid};
use ninefold::server::{FileServer, Limits, Policy, Server, User};
use ninefold::transport::{Peer, memory};
use ninefold::tree::hostfs::HostFs;
use ninefold::tree::ramfs::RamFs;
use rustix::process::geteuid;
use tempfile::TempDir;

use super::conn::{Conn, SOON};

/// Bytes that each way of a connection holds.
const BUFFER: usize = 64 << 10;

/// Descriptors for files that are walked to and not open: fewer than any test walks to, so that the files must be
/// found again by what their fids remember.
const DESCRIPTORS: usize = 4;

pub const DIALECTS: [Dialect; 3] = [Dialect::Plan9, Dialect::Unix, Dialect::Linux];

/// No user of any machine that these tests run on.
pub const STRANGER: u32 = 54_321;

/// A fresh tree, its server, and the dialect to speak to it.
pub struct Scene {
    pub dialect: Dialect,
    server: Arc<Server>,
    dir: Option<TempDir>,
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = if self.dir.is_some() { "a directory of the host" } else { "a tree in memory" };
        write!(f, "{tree}, {}", self.dialect)
    }
}

/// An empty directory of the host, and a tree in memory: of `owner`, or of whoever runs the test. A directory of
/// another owner is there for root alone.
fn trees(owner: Option<u32>) -> Vec<(Arc<dyn FileServer>, Option<TempDir>)> {
    let mut trees: Vec<(Arc<dyn FileServer>, _)> = Vec::new();
    if owner.is_none() || geteuid().is_root() {
        let dir = tempfile::tempdir().unwrap();
        // Others than its owner look into it.
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(dir.path(), owner, None).unwrap();
        trees.push((Arc::new(HostFs::with_descriptors(dir.path(), DESCRIPTORS).unwrap()), Some(dir)));
    }
    let ram = RamFs::new();
    if let Some(uid) = owner {
        ram.set_root(uid, uid, 0o755);
    }
    trees.push((Arc::new(ram), None));
    trees
}

impl Scene {
    /// Both trees in each of the dialects. The last line that a failing test has printed tells which it was.
    pub fn each(dialects: impl IntoIterator<Item = Dialect>) -> impl Iterator<Item = Scene> {
        Scene::with(dialects, None, Policy::AsProcess, Limits::default())
    }

    /// As [`Scene::each`], and whoever attaches has no rights but those of the files' modes, though root may run the
    /// test.
    pub fn unprivileged(dialects: impl IntoIterator<Item = Dialect>) -> impl Iterator<Item = Scene> {
        let (owner, policy) = match geteuid().is_root() {
            true => (Some(STRANGER), Policy::Squash(User::from_uid(STRANGER))),
            false => (None, Policy::AsProcess),
        };
        Scene::with(dialects, owner, policy, Limits::default())
    }

    /// As [`Scene::each`], in trees of `owner`.
    pub fn with(
        dialects: impl IntoIterator<Item = Dialect>,
        owner: Option<u32>,
        policy: Policy,
        limits: Limits,
    ) -> impl Iterator<Item = Scene> {
        dialects
            .into_iter()
            .flat_map(move |dialect| {
                let policy = policy.clone();
                trees(owner).into_iter().map(move |(tree, dir)| {
                    let server =
                        Server::builder().export("", tree, false).identity(policy.clone()).limits(limits).build();
                    Scene { dialect, server, dir }
                })
            })
            .inspect(|scene| eprintln!("{scene}"))
    }

    /// The same tree in another dialect.
    pub fn speak(&mut self, dialect: Dialect) {
        self.dialect = dialect;
        eprintln!("{self}");
    }

    /// The directory served, if it is one.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_ref().map(TempDir::path)
    }

    /// Waits until the server has no connection any more.
    pub async fn ended(&self) {
        let drained = tokio::time::timeout(SOON, self.server.drain()).await;
        assert!(drained.is_ok(), "{} connections go on", self.server.connections());
    }

    /// A connection, and the root.
    pub async fn connect(&self) -> (Conn, Fid) {
        let mut conn = self.connect_as(Peer::Memory).await;
        let root = conn.root().await;
        (conn, root)
    }

    /// A connection whose other end is `peer`, not attached.
    pub async fn connect_as(&self, peer: Peer) -> Conn {
        let (ours, theirs) = memory::pair(BUFFER);
        tokio::spawn(self.server.serve(theirs, peer));
        Conn::over(ours, self.dialect).await
    }
}
