//! How much is moved at a time: the same file read, written and mapped in pieces of several sizes.

use std::hint::black_box;
use std::io::Read;
use std::path::Path;

use anyhow::Result;
use ninefold_stream::{Calibration, Options, Stream};

use crate::size::made;
use crate::turns::{Case, Took};

/// Bytes that are tried: of a read, a write, a window, and of a call of `Read::read`. Memory for longer reads is not kept from one stream to
/// the next, which a long file does not show and short ones pay for. Shorter writes never pay on a disk.
pub const READS: [usize; 7] = [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
pub const WRITES: [usize; 6] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20];
pub const WINDOWS: [u64; 5] = [1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];
pub const CALLS: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// Bytes of a region of what is read and written here.
const REGION: usize = 4096;

/// More than any call asks for.
const NEVER: usize = 1 << 30;

/// All bytes of what is left, looked at.
pub fn summed(stream: &Stream, region: usize) -> Result<u64> {
    let (mut sum, mut bytes) = (0u64, 0);
    loop {
        let region = stream.alloc(region)?;
        if region.is_empty() {
            break;
        }
        let (words, _) = region.as_chunks::<8>();
        sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
        bytes += region.len() as u64;
        region.free()?;
    }
    black_box(sum);
    Ok(bytes)
}

fn opened(path: &Path, module: &str, table: Calibration) -> Result<Stream> {
    Ok(Options::new().read(true).module(module).calibration(table).open(path)?)
}

fn read(path: &Path, module: &str, table: Calibration) -> Result<Took> {
    Took::of(|| {
        let stream = opened(path, module, table)?;
        let bytes = summed(&stream, REGION)?;
        stream.close()?;
        Ok(bytes)
    })
}

fn written(path: &Path, bytes: u64, table: Calibration) -> Result<Took> {
    Took::of(|| {
        let stream = Options::new().write(true).create(true).truncate(true).calibration(table).open(path)?;
        let mut left = bytes;
        while left > 0 {
            let mut room = stream.alloc(usize::try_from(left).unwrap_or(REGION).min(REGION))?;
            room.fill(7);
            left -= room.len() as u64;
            room.free()?;
        }
        stream.close()?;
        Ok(bytes)
    })
}

/// A buffer as most programs have one: somewhere.
fn called(path: &Path, bytes: usize, direct: usize) -> Result<Took> {
    let mut buffer = vec![1; bytes];
    Took::of(|| {
        let table = Calibration { direct, ..Calibration::default() };
        let mut stream = opened(path, "pread", table)?;
        let mut all = 0;
        loop {
            let n = stream.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            black_box(&mut buffer);
            all += n as u64;
        }
        stream.close()?;
        Ok(all)
    })
}

pub fn cases<'a>(scratch: &Path, size: u64) -> Result<Vec<Case<'a>>> {
    let (path, new) = (scratch.join("sizes"), scratch.join("sizes-new"));
    made(&path, size)?;
    let mut cases = Vec::new();
    for bytes in READS {
        let table = Calibration { first: bytes, read: bytes, ..Calibration::default() };
        let path = path.clone();
        cases.push(Case::new("read", bytes.to_string(), move || read(&path, "pread", table)));
    }
    for bytes in WRITES {
        let table = Calibration { first: bytes, read: bytes, write: bytes, ..Calibration::default() };
        let new = new.clone();
        cases.push(Case::new("write", bytes.to_string(), move || written(&new, size, table)));
    }
    // A longer window than the file is the file.
    for bytes in WINDOWS.into_iter().filter(|&bytes| bytes <= size) {
        let table = Calibration { map_whole: REGION as u64, window: bytes, ..Calibration::default() };
        let path = path.clone();
        cases.push(Case::new("window", bytes.to_string(), move || read(&path, "mmap", table)));
    }
    for bytes in CALLS {
        for (what, direct) in [("call past", REGION), ("call through", NEVER)] {
            let path = path.clone();
            cases.push(Case::new(what, bytes.to_string(), move || called(&path, bytes, direct)));
        }
    }
    Ok(cases)
}
