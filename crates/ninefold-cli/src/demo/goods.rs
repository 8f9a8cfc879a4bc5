//! What the demo copies to and fro: [`Goods`], and the [`Sum`] of any such tree.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use twox_hash::XxHash3_128;

/// Name of the directory that is copied.
pub const NAME: &str = "things";

/// One of its files, with a name that is not ASCII, and what is in it.
pub const GREETING: (&str, &str) = ("grüße.txt", "Grüße von hier nach dort.\n");

/// Bytes of the largest file: several messages of any size, and no multiple of one.
const LARGE: usize = (4 << 20) + 4321;

/// Small files in one directory, more than one message lists in the smallest msize.
const MANY: usize = 60;

/// A directory with files of all sizes, in the directory of the demo.
#[derive(Debug)]
pub struct Goods {
    pub sum: Sum,
    /// The names in it, sorted.
    pub names: Vec<String>,
}

impl Goods {
    /// Makes it in `dir`.
    pub fn make(dir: &Path) -> anyhow::Result<Goods> {
        let root = dir.join(NAME);
        let make = || {
            fs::create_dir_all(root.join("deep/deeper/deepest"))?;
            fs::create_dir(root.join("many"))?;
            fs::write(root.join("large.bin"), noise())?;
            fs::write(root.join("empty"), "")?;
            fs::write(root.join("a name with spaces"), "It is one word to every command.\n")?;
            fs::write(root.join(GREETING.0), GREETING.1)?;
            fs::write(root.join("deep/deeper/deepest/leaf"), "The end of the branch.\n")?;
            (0..MANY).try_for_each(|n| fs::write(root.join(format!("many/{n:02}")), format!("file {n}\n")))
        };
        make().with_context(|| format!("cannot make {}", root.display()))?;
        let mut names: Vec<String> =
            ["a name with spaces", "deep", "empty", GREETING.0, "large.bin", "many"].map(str::to_owned).into();
        names.sort();
        Ok(Goods { sum: Sum::of(&root)?, names })
    }
}

/// Bytes without a pattern that a misplaced block could hide in (xorshift64, Marsaglia 2003).
fn noise() -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(LARGE + 8);
    while bytes.len() < LARGE {
        bytes.extend(next());
    }
    bytes.truncate(LARGE);
    bytes
}

/// What a tree holds: equal for equal names, kinds and contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sum {
    files: usize,
    bytes: u64,
    /// xxHash, XXH3, 128 bits.
    checksum: u128,
}

impl Sum {
    /// Reads the whole tree.
    pub fn of(root: &Path) -> anyhow::Result<Sum> {
        let (mut files, mut bytes, mut hasher) = (0, 0, XxHash3_128::new());
        for path in below(root)? {
            let name = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_encoded_bytes();
            let kind = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?.file_type();
            ensure!(kind.is_file() || kind.is_dir(), "{}: neither a file nor a directory", path.display());
            let content =
                if kind.is_file() { fs::read(&path).with_context(|| path.display().to_string())? } else { Vec::new() };
            // Lengths in front, so that no two trees read alike.
            for part in [name, &[u8::from(kind.is_dir())], content.as_slice()] {
                hasher.write(&(part.len() as u64).to_le_bytes());
                hasher.write(part);
            }
            files += usize::from(kind.is_file());
            bytes += content.len() as u64;
        }
        Ok(Sum { files, bytes, checksum: hasher.finish_128() })
    }
}

/// Everything below a directory, sorted.
fn below(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.bytes as f64 / f64::from(1 << 20);
        write!(f, "{} files, {mib:.1} MiB, checksum {:032x}", self.files, self.checksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_differs_by_a_byte_a_name_and_an_empty_directory() {
        let dir = tempfile::tempdir().unwrap();
        let goods = Goods::make(dir.path()).unwrap();
        let root = dir.path().join(NAME);
        assert_eq!(Sum::of(&root).unwrap(), goods.sum);
        fs::rename(root.join("empty"), root.join("Empty")).unwrap();
        assert_ne!(Sum::of(&root).unwrap(), goods.sum);
        fs::rename(root.join("Empty"), root.join("empty")).unwrap();
        fs::write(root.join("many/07"), "file 8\n").unwrap();
        assert_ne!(Sum::of(&root).unwrap(), goods.sum);
        fs::write(root.join("many/07"), "file 7\n").unwrap();
        assert_eq!(Sum::of(&root).unwrap(), goods.sum);
        fs::create_dir(root.join("more")).unwrap();
        assert_ne!(Sum::of(&root).unwrap(), goods.sum);
    }
}
