//! Qids of host files: numbers that are unique over all file systems below the export.
//!
//! - `path` is the plain inode number on the export root's own device. On another device it has bit 63
//!   set, the device's index in bits 48 to 62 and the inode number below; an inode number that does not
//!   fit gets a number of its own, with index 32767; after [`MAX_NUMBERS`] of them, a hash with bit 47 set.
//! - `version` is derived in .L from ctime, which every change of data or attributes moves; in 9P2000 and .u, which have no
//!   ctime, from mtime and size: "incremented every time the file is modified" (intro(5)). Linux's client takes a file that
//!   it knows for another when the version has moved, so a new hard link must not move it. It is never 0.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;

use ninefold_proto::attr::Time;
use ninefold_proto::stat::dm;
use ninefold_proto::{Dialect, Qid, QidType};
use rustix::fs::{FileType, Statx, StatxTimestamp, makedev};

use super::lock;

const OTHER: u64 = 1 << 63;
const INO_BITS: u32 = 48;
/// The index that stands for "numbered one by one".
const NUMBERED: u64 = 0x7fff;

/// Files numbered one by one, some 60 MB of them: a client that walks a file system with large inode numbers must not take
/// all memory. The hash of one beyond may meet another's, with 1 in 280 for a million of them, and its qid is then not unique.
const MAX_NUMBERS: usize = 1_000_000;
const HASHED: u64 = 1 << (INO_BITS - 1);

/// The device of a file.
pub(super) fn device(stx: &Statx) -> u64 {
    makedev(stx.stx_dev_major, stx.stx_dev_minor)
}

/// The type of a file.
pub(super) fn file_type(stx: &Statx) -> FileType {
    FileType::from_raw_mode(u32::from(stx.stx_mode))
}

/// A time stamp in 9P's form.
pub(super) fn time(stamp: StatxTimestamp) -> Time {
    Time { sec: stamp.tv_sec, nsec: stamp.tv_nsec }
}

/// 64 well-mixed bits of a time stamp.
pub(super) fn mixed(stamp: StatxTimestamp) -> u64 {
    mix(stamp.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(i64::from(stamp.tv_nsec)).cast_unsigned())
}

/// splitmix64's finish.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Numbers files for one export.
#[derive(Debug)]
pub(super) struct QidMap {
    root_dev: u64,
    others: Mutex<Others>,
}

#[derive(Default, Debug)]
struct Others {
    index: HashMap<u64, u64>,
    numbers: HashMap<(u64, u64), u64>,
}

impl QidMap {
    pub(super) fn new(root_dev: u64) -> QidMap {
        QidMap { root_dev, others: Mutex::default() }
    }

    /// The qid's path for an inode.
    pub(super) fn path(&self, dev: u64, ino: u64) -> u64 {
        if dev == self.root_dev && ino & OTHER == 0 {
            return ino;
        }
        let mut others = lock(&self.others);
        let next = others.index.len() as u64;
        let index = *others.index.entry(dev).or_insert(next);
        if index < NUMBERED && ino >> INO_BITS == 0 {
            return OTHER | index << INO_BITS | ino;
        }
        let next = others.numbers.len();
        let number = match others.numbers.entry((dev, ino)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) if next < MAX_NUMBERS => *new.insert(next as u64),
            Entry::Vacant(_) => HASHED | mix(mix(dev) ^ ino) & (HASHED - 1),
        };
        OTHER | NUMBERED << INO_BITS | number
    }

    /// The qid of a file, as the dialect shows it; `marks` are bits of [`dm`].
    pub(super) fn qid(&self, stx: &Statx, marks: u32, dialect: Dialect) -> Qid {
        let version = match dialect {
            Dialect::Linux => mixed(stx.stx_ctime),
            Dialect::Plan9 | Dialect::Unix => mixed(stx.stx_mtime) ^ mix(stx.stx_size),
        };
        let version = (version ^ (version >> 32)) as u32;
        Qid {
            kind: kind(file_type(stx), dialect) | marked(marks),
            version: version.max(1),
            path: self.path(device(stx), stx.stx_ino),
        }
    }
}

/// A qid's type bits for a file type. 9P2000 knows no symbolic links: one that leads nowhere is a file.
pub(super) fn kind(file_type: FileType, dialect: Dialect) -> QidType {
    match file_type {
        FileType::Directory => QidType::DIR,
        FileType::Symlink if dialect != Dialect::Plan9 => QidType::SYMLINK,
        _ => QidType::FILE,
    }
}

fn marked(marks: u32) -> QidType {
    let append = if marks & dm::APPEND != 0 { QidType::APPEND } else { QidType::FILE };
    let excl = if marks & dm::EXCL != 0 { QidType::EXCL } else { QidType::FILE };
    append | excl
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beyond_those_that_are_numbered_take_no_memory_and_keep_their_paths() {
        let (qids, large) = (QidMap::new(1), 1 << INO_BITS);
        let paths: Vec<u64> = (0..MAX_NUMBERS as u64 + 2).map(|ino| qids.path(2, large + ino)).collect();
        assert_eq!(lock(&qids.others).numbers.len(), MAX_NUMBERS);
        let (numbered, hashed) = paths.split_at(MAX_NUMBERS);
        assert!(hashed.iter().all(|path| path & HASHED != 0) && hashed[0] != hashed[1]);
        assert!(numbered.iter().all(|path| path & HASHED == 0));
        assert_eq!(qids.path(2, large + MAX_NUMBERS as u64), hashed[0]);
        assert_eq!(qids.path(2, large), numbered[0]);
    }
}
