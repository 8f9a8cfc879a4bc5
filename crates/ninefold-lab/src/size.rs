//! Sizes as they are given, and files to be read.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// A size in bytes, or with K or M for 2^10 and 2^20: 64 KiB to 4 GiB.
pub fn size(text: &str) -> Result<u64, String> {
    let unit = |letter: char, bytes: u64| text.strip_suffix(letter).map(|number| (number, bytes));
    let (number, unit) = unit('K', 1 << 10).or_else(|| unit('M', 1 << 20)).unwrap_or((text, 1));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| (64 << 10..=4 << 30).contains(bytes))
        .ok_or_else(|| format!("'{text}' is no size: expected 64K to 4096M, or as many bytes"))
}

/// Bytes that are written at once, from a multiple of them on, as cp(1) and dd(1) do: so the page cache has large folios, where the system
/// knows them.
const WRITTEN: usize = 1 << 20;

/// Makes a file of lines of 75 bytes.
pub fn made(path: &Path, bytes: u64) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        let (mut line, mut left) = (0u64, bytes);
        let mut lines = Vec::with_capacity(WRITTEN + 75);
        while left > 0 {
            while lines.len() < WRITTEN {
                writeln!(lines, "{line:074}")?;
                line += 1;
            }
            let piece = WRITTEN.min(usize::try_from(left).unwrap_or(usize::MAX));
            file.write_all(&lines[..piece])?;
            lines.drain(..piece);
            left -= piece as u64;
        }
        // What is to be written later is not written in the middle of a measurement.
        file.sync_all()
    };
    write().with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_bytes_or_has_a_unit_and_bounds() {
        assert_eq!((size("64K"), size("1M"), size("70000")), (Ok(65536), Ok(1 << 20), Ok(70000)));
        for wrong in ["", "M", "1K", "5000M", "99999999999999999999M", "1G", "-1"] {
            assert!(size(wrong).unwrap_err().contains("is no size"), "{wrong}");
        }
    }

    #[test]
    fn a_file_has_its_bytes_in_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        made(&path, 3_000_000).unwrap();
        let data = std::fs::read(&path).unwrap();
        assert_eq!(data.len(), 3_000_000);
        assert!(data.chunks_exact(75).all(|line| line.last() == Some(&b'\n')));
    }
}
