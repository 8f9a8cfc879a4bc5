//! What a check is, where it works, and how it says what it expected.

use std::fmt::Debug;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;

/// One thing done to files: a function whose name is the sentence that it shows.
#[derive(Clone, Copy)]
pub struct Check {
    function: &'static str,
    needs: &'static [&'static str],
    run: fn(&Place) -> Result<()>,
}

impl Check {
    pub const fn new(function: &'static str, needs: &'static [&'static str], run: fn(&Place) -> Result<()>) -> Self {
        Self { function, needs, run }
    }

    pub fn name(&self) -> String {
        self.function.replace('_', "-")
    }

    /// What the file system or the user must have: words for `--without`.
    pub fn needs(&self) -> impl Iterator<Item = &'static str> {
        self.needs.iter().copied()
    }

    pub fn run(&self, place: &Place) -> Result<()> {
        (self.run)(place)
    }
}

/// A table of checks from functions of this module, and behind `;` those that need a facility.
macro_rules! checks {
    ($($plain:ident),* $(,)? $(; $need:literal: $($needy:ident),* $(,)?)*) => {
        pub const CHECKS: &[$crate::check::Check] = &[
            $($crate::check::Check::new(stringify!($plain), &[], $plain),)*
            $($($crate::check::Check::new(stringify!($needy), &[$need], $needy),)*)*
        ];
    };
}
pub(crate) use checks;

/// The directory of one check, which any user may enter and write, and the same one by the second mount.
pub struct Place {
    root: PathBuf,
    second: PathBuf,
    nodes: Option<PathBuf>,
    pub entries: usize,
}

impl Place {
    pub fn make(dir: &Path, second: &Path, nodes: Option<&Path>, name: &str, entries: usize) -> Result<Self> {
        let root = dir.join(name);
        fs::create_dir(&root).with_context(|| format!("making {}", root.display()))?;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).context("opening the directory to everybody")?;
        Ok(Self { root, second: second.join(name), nodes: nodes.map(Path::to_owned), entries })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path in the directory.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// The same by the second mount.
    pub fn second(&self, name: impl AsRef<Path>) -> PathBuf {
        self.second.join(name)
    }

    /// Where special files lie that are to be linked to instead of being made.
    pub fn nodes(&self) -> Option<&Path> {
        self.nodes.as_deref()
    }

    /// A new file with this content.
    pub fn file(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.at(name);
        fs::write(&path, content).with_context(|| format!("making {}", path.display()))?;
        Ok(path)
    }

    /// A new directory.
    pub fn dir(&self, name: impl AsRef<Path>) -> Result<PathBuf> {
        let path = self.at(name);
        fs::create_dir(&path).with_context(|| format!("making the directory {}", path.display()))?;
        Ok(path)
    }
}

/// The check cannot be made here.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(pub String);

/// Fails unless both are equal.
pub fn same<T: PartialEq + Debug>(got: T, want: T, what: &str) -> Result<()> {
    ensure!(got == want, "{what}: {} instead of {}", short(&got), short(&want));
    Ok(())
}

/// Bulk data is not printed whole.
fn short(value: &impl Debug) -> String {
    const MOST: usize = 120;
    let text = format!("{value:?}");
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.len()),
        None => text,
    }
}

/// Fails unless the call failed, with this error.
pub fn refused<T, E: Into<io::Error>>(result: Result<T, E>, want: Errno, what: &str) -> Result<()> {
    let want_text = io::Error::from(want);
    match result {
        Ok(_) => bail!("{what}: allowed, should be {want_text}"),
        Err(e) => {
            let e = e.into();
            ensure!(e.raw_os_error() == Some(want.raw_os_error()), "{what}: {e}, should be {want_text}");
            Ok(())
        }
    }
}

/// The content of a file, compared whole.
pub fn holds(path: &Path, want: impl AsRef<[u8]>) -> Result<()> {
    let want = want.as_ref();
    let got = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    if got == want {
        return Ok(());
    }
    let differs = got.iter().zip(want).position(|(a, b)| a != b).unwrap_or(got.len().min(want.len()));
    bail!("{}: {} bytes, expected {}; differs at {differs}", path.display(), got.len(), want.len());
}

/// stat(2) of what a path names, a link itself if it is one.
pub fn look(path: &Path) -> Result<Metadata> {
    fs::symlink_metadata(path).with_context(|| format!("stat of {}", path.display()))
}

/// Permissions with set-user-id, set-group-id and sticky bits.
pub fn mode(path: &Path) -> Result<u32> {
    Ok(look(path)?.permissions().mode() & 0o7777)
}

pub fn chmod(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(|| format!("chmod of {}", path.display()))
}

pub fn gone(path: &Path) -> Result<()> {
    refused(fs::symlink_metadata(path), Errno::NOENT, &format!("stat of {}", path.display()))
}

/// The names in a directory, sorted.
pub fn list(path: &Path) -> Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).with_context(|| format!("listing {}", path.display()))? {
        names.push(entry.with_context(|| format!("listing {}", path.display()))?.file_name());
    }
    names.sort();
    Ok(names)
}

/// Bytes that no two places share for long, so that a shifted or stale piece shows.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let step = |_| {
        state ^= state << 13; // xorshift64, Marsaglia 2003
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(step).collect()
}
