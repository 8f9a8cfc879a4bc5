//! What is moved: files of random bytes that lie in the page cache, and the directory where what arrives is looked at.
//!
//! Both directories go when this is dropped.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use twox_hash::XxHash3_128;

use super::way::Places;

/// Bytes of one read or write.
const PIECE: usize = 1 << 20;

/// statfs(2)'s number of a tmpfs.
const TMPFS: i64 = 0x0102_1994;

#[derive(Debug)]
pub struct Files {
    sources: TempDir,
    to: TempDir,
    scratch: TempDir,
    /// Bytes and checksum of each source.
    sums: Vec<(u64, u128)>,
}

/// A directory that everybody may come to: beyond loopback root is nobody to ninefold.
fn open_to_all(base: &Path) -> Result<TempDir> {
    let dir = tempfile::Builder::new()
        .prefix("ninefold-thesis-")
        .tempdir_in(base)
        .with_context(|| format!("cannot make a directory in {}", base.display()))?;
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777))?;
    Ok(dir)
}

impl Files {
    /// Makes a file of each size in a directory in `base`; what arrives goes into one in `to`.
    pub fn make(base: &Path, to: &Path, sizes: &[u64]) -> Result<Files> {
        let mut files = Files {
            sources: open_to_all(base)?,
            to: open_to_all(to)?,
            scratch: tempfile::Builder::new().prefix("ninefold-thesis-").tempdir_in(base)?,
            sums: Vec::new(),
        };
        for &bytes in sizes {
            let path = files.sources.path().join(bytes.to_string());
            make(&path, bytes).with_context(|| path.display().to_string())?;
            // Which brings it into the page cache, should it have left.
            let sum = sum(&[path])?;
            ensure!(sum.0 == bytes, "{bytes} bytes were written, and {} are there", sum.0);
            files.sums.push(sum);
        }
        Ok(files)
    }

    pub fn places(&self, ninefold: &Path, bench: &Path) -> Places {
        Places {
            ninefold: ninefold.to_owned(),
            bench: bench.to_owned(),
            served: self.sources.path().to_owned(),
            to: self.to.path().to_owned(),
            scratch: self.scratch.path().to_owned(),
            ssh_config: self.scratch.path().join("ssh_config"),
        }
    }

    /// Compares what arrived, in so many parts, with what was sent.
    pub fn check(&self, bytes: u64, parts: &[PathBuf]) -> Result<()> {
        let expected = self.sums.iter().find(|sum| sum.0 == bytes).context("no file of this size")?;
        let got = sum(parts)?;
        ensure!(got.0 == bytes, "{} of {bytes} bytes arrived", got.0);
        ensure!(got.1 == expected.1, "what arrived is not what was sent: its checksum differs");
        Ok(())
    }

    /// Takes away what arrived.
    pub fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(self.to.path())? {
            let entry = entry?;
            // nginx has a directory of its own there.
            if entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// What holds the files, for the report.
    pub fn text(&self) -> String {
        let kind = |dir: &TempDir| match rustix::fs::statfs(dir.path()) {
            Ok(found) if found.f_type == TMPFS => "a tmpfs",
            _ => "a file system that is no tmpfs",
        };
        let base = |dir: &TempDir| dir.path().parent().unwrap_or(dir.path()).display().to_string();
        format!(
            "What is read lies in {} ({}), at both ends in the page cache; what arrives is written to {} ({}), at both ends.",
            base(&self.sources),
            kind(&self.sources),
            base(&self.to),
            kind(&self.to)
        )
    }
}

fn make(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut rng = fastrand::Rng::with_seed(bytes);
    let mut piece = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(PIECE as u64) as usize;
        rng.fill(&mut piece[..length]);
        file.write_all(&piece[..length])?;
        left -= length as u64;
    }
    // Nothing is to be written to a disk while it is measured.
    Ok(file.sync_all()?)
}

/// Bytes and checksum of files, one after the other.
fn sum(parts: &[PathBuf]) -> Result<(u64, u128)> {
    let mut hasher = XxHash3_128::new();
    let mut buffer = vec![0; PIECE];
    let mut bytes = 0;
    for part in parts {
        let mut file = File::open(part).with_context(|| part.display().to_string())?;
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            hasher.write(&buffer[..length]);
            bytes += length as u64;
        }
    }
    Ok((bytes, hasher.finish_128()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_is_compared_to_the_last_byte_in_the_order_of_its_parts() {
        let base = tempfile::tempdir().unwrap();
        let files = Files::make(base.path(), base.path(), &[0, 100_000]).unwrap();
        let places = files.places(Path::new("ninefold"), Path::new("bench"));
        let source = places.source(100_000);
        files.check(100_000, std::slice::from_ref(&source)).unwrap();
        files.check(0, &[places.source(0)]).unwrap();
        let mut data = fs::read(source).unwrap();
        let [first, second] = ["a", "b"].map(|name| places.to.join(name));
        fs::write(&first, &data[..40_000]).unwrap();
        fs::write(&second, &data[40_000..]).unwrap();
        files.check(100_000, &[first.clone(), second.clone()]).unwrap();
        let told = |parts: &[PathBuf]| files.check(100_000, parts).unwrap_err().to_string();
        assert!(told(&[second.clone(), first.clone()]).contains("checksum"));
        assert!(told(std::slice::from_ref(&first)).contains("40000 of 100000 bytes"));
        data[99_999] ^= 1;
        fs::write(&second, &data[40_000..]).unwrap();
        assert!(told(&[first.clone(), second]).contains("checksum"));
        files.clear().unwrap();
        assert!(!first.exists());
    }
}
