//! The directories of a run: what is served, what lies here to be copied there, and what is made on the way; all of it goes when this
//! is dropped.
//!
//! Beyond loopback root is nobody to a server, so that everybody may do everything in what is served.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes of the files.
pub const SMALL: u64 = 4 << 10;
pub const MIDDLE: u64 = 80 << 10;
pub const LARGER: u64 = 1 << 20;
pub const LARGE: u64 = 64 << 20;

/// Files in which the bytes of the large one lie too.
pub const PARTS: u64 = 8;

/// Entries of the directories that are listed.
pub const FEW: usize = 20;
pub const MANY: usize = 2000;

/// The tree: directories, and files of [`SMALL`] bytes in each.
pub const DIRS: usize = 50;
pub const FILES: usize = 20;

/// Eight levels.
pub const DEEP: &str = "1/2/3/4/5/6/7/8";

/// Directories of the old client's union where a program is not found, the one where it is, and the one that it is in.
pub const UNION: [&str; 3] = ["old/dot", "old/one", "old/two"];
pub const BIN: &str = "old/bin";

#[derive(Debug)]
pub struct Trees {
    root: tempfile::TempDir,
    served: PathBuf,
    here: PathBuf,
    made: PathBuf,
    down: PathBuf,
}

impl Trees {
    /// Makes them in `base`.
    pub fn make(base: &Path) -> io::Result<Trees> {
        let root = tempfile::Builder::new().prefix("ninefold-bench-").tempdir_in(base)?;
        fs::set_permissions(root.path(), Permissions::from_mode(0o755))?;
        let at = |path: &str| root.path().join(path);
        let (served, here, made, down) = (at("served"), at("here"), at("served/made"), at("here/down"));
        for path in [&served, &here, &made, &down] {
            dir(path)?;
        }
        dir(&served.join("d"))?;
        for (name, bytes) in [("small", SMALL), ("middle", MIDDLE), ("larger", LARGER)] {
            file(&served.join("d").join(name), bytes)?;
            file(&here.join(name), bytes)?;
        }
        for (name, entries) in [("few", FEW), ("many", MANY)] {
            dir(&served.join(name))?;
            for n in 0..entries {
                file(&served.join(name).join(format!("file-{n:04}")), 0)?;
            }
        }
        tree(&served.join("tree"))?;
        tree(&here.join("tree"))?;
        dir(&served.join("old"))?;
        for name in UNION.iter().chain([&BIN]) {
            dir(&served.join(name))?;
        }
        for program in ["pwd", "ls"] {
            let path = served.join(BIN).join(program);
            file(&path, SMALL)?;
            fs::set_permissions(path, Permissions::from_mode(0o777))?;
        }
        Ok(Trees { root, served, here, made, down })
    }

    /// Makes the large file, and its bytes in several, unless they are there: most runs do not need them.
    pub fn large(&self) -> io::Result<()> {
        let parts = self.served.join("parts");
        if parts.exists() {
            return Ok(());
        }
        file(&self.served.join("d/large"), LARGE)?;
        dir(&parts)?;
        (0..PARTS).try_for_each(|n| file(&parts.join(part(n)), LARGE / PARTS))
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// What the servers export.
    pub fn served(&self) -> &Path {
        &self.served
    }

    /// What is copied there.
    pub fn here(&self) -> &Path {
        &self.here
    }

    /// In what is served: where things are made.
    pub fn made(&self) -> &Path {
        &self.made
    }

    /// Where things are copied to from there.
    pub fn down(&self) -> &Path {
        &self.down
    }

    /// Takes away all that was made.
    pub fn clear(&self) -> io::Result<()> {
        for path in [&self.made, &self.down] {
            match fs::remove_dir_all(path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => dir(path)?,
            }
        }
        Ok(())
    }
}

/// The name of a part of the large file.
pub fn part(n: u64) -> String {
    format!("part-{n}")
}

/// The names of the tree's directories.
pub fn tree_dirs() -> impl Iterator<Item = String> {
    (0..DIRS).map(|n| format!("d{n:02}"))
}

/// The paths of the tree's files.
pub fn tree_files() -> impl Iterator<Item = String> {
    tree_dirs().flat_map(|dir| (0..FILES).map(move |n| format!("{dir}/f{n:02}")))
}

fn dir(path: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o777))
}

/// What is in a file of so many bytes: it does not compress.
pub fn content(bytes: u64) -> Vec<u8> {
    let mut content = vec![0; bytes as usize];
    fastrand::Rng::with_seed(1).fill(&mut content);
    content
}

/// A file of so many bytes.
pub fn file(path: &Path, bytes: u64) -> io::Result<()> {
    fs::write(path, content(bytes))?;
    fs::set_permissions(path, Permissions::from_mode(0o666))
}

/// The tree.
pub fn tree(top: &Path) -> io::Result<()> {
    dir(top)?;
    for name in tree_dirs() {
        dir(&top.join(name))?;
    }
    tree_files().try_for_each(|path| file(&top.join(path), SMALL))
}
