//! What is served: made once, read so often that it lies in the page cache.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Small files, each of [`SMALL`] bytes.
pub const FILES: usize = 1024;
pub const SMALL: u32 = 4096;

/// Bytes of the files that are read and written at random places and from end to end.
pub const BIG: u64 = 256 << 20;

/// Files in the directory that is listed.
pub const ENTRIES: usize = 10_000;

pub struct Tree(tempfile::TempDir);

impl Tree {
    /// Makes it in `base`.
    pub fn make(base: &Path) -> io::Result<Tree> {
        let dir = tempfile::Builder::new().prefix("ninefold-bench-").tempdir_in(base)?;
        fs::create_dir_all(dir.path().join("a/b/c"))?;
        fs::create_dir(dir.path().join("small"))?;
        for n in 0..FILES {
            fs::write(dir.path().join("small").join(small(n)), [n as u8; SMALL as usize])?;
        }
        fs::create_dir(dir.path().join("entries"))?;
        for n in 0..ENTRIES {
            File::create(dir.path().join(format!("entries/file-{n:05}")))?;
        }
        for name in ["big", "written", "pumped"] {
            let mut file = BufWriter::with_capacity(1 << 20, File::create(dir.path().join(name))?);
            let mut rng = fastrand::Rng::with_seed(1);
            let mut block = vec![0; 1 << 20];
            for _ in 0..BIG >> 20 {
                rng.fill(&mut block);
                file.write_all(&block)?;
            }
            file.into_inner()?;
        }
        let tree = Tree(dir);
        tree.settle()?;
        Ok(tree)
    }

    /// Nothing is to be written to a disk while something is measured: what was written goes there now.
    pub fn settle(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(self.path())?)?)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The file that is read from end to end.
    pub fn big(&self) -> PathBuf {
        self.path().join("big")
    }

    /// The file that the pump writes.
    pub fn pumped(&self) -> PathBuf {
        self.path().join("pumped")
    }
}

/// The name of a small file.
pub fn small(n: usize) -> String {
    format!("{n:04}")
}
