//! Trees of files, made and compared.

use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Files whose names shells, addresses and encodings stumble over.
pub fn odd_names(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let all_bytes: Vec<u8> = (1..=255).filter(|&b| b != b'/').chain([b'z']).collect();
    let names: [&[u8]; 11] = [
        b"two words",
        b" ",
        b"new\nline",
        b"\xff\xfe bytes",
        b"100%25?x=#y",
        b"-r",
        b"...",
        "grüße-日本語".as_bytes(),
        &[b'n'; 255],
        &[0xe9; 255],
        &all_bytes,
    ];
    for name in names {
        fs::write(dir.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
}

/// One line for each file below `dir`: its path, what it is, and what it holds.
pub fn picture(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    collect(dir, &mut Vec::new(), &mut lines);
    lines.sort();
    lines
}

fn collect(dir: &Path, below: &mut Vec<u8>, lines: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let before = below.len();
        if !below.is_empty() {
            below.push(b'/');
        }
        below.extend(entry.file_name().into_vec());
        let metadata = entry.metadata().unwrap();
        let what = if metadata.is_dir() {
            "directory".to_owned()
        } else if metadata.is_symlink() {
            format!("link to {}", fs::read_link(entry.path()).unwrap().display())
        } else if metadata.is_file() {
            let content = fs::read(entry.path()).unwrap();
            let sum = content
                .iter()
                .fold(0xcbf2_9ce4_8422_2325u64, |sum, &b| (sum ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
            format!("file of {} bytes, {sum:016x}, {:o}", content.len(), metadata.mode() & 0o777)
        } else {
            format!("special {:o}", metadata.mode())
        };
        lines.push(format!("{}\t{what}", below.escape_ascii()));
        if metadata.is_dir() {
            collect(&entry.path(), below, lines);
        }
        below.truncate(before);
    }
}

/// Fails unless both directories hold the same.
#[track_caller]
pub fn assert_same(a: &Path, b: &Path) {
    let (left, right) = (picture(a), picture(b));
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|line| !those.contains(line)).take(5).cloned().collect()
    };
    assert!(
        left == right,
        "only in the first: {:#?}, only in the second: {:#?}",
        only(&left, &right),
        only(&right, &left)
    );
}
