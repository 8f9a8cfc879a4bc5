//! Qids of host files: numbers that are unique over all file systems below the export.
//!
//! - `path` is the plain inode number on the export root's own device. On another device it has bit 63
//!   set, the device's index in bits 48 to 62 and the inode number below; an inode number that does not
//!   fit gets a number of its own, with index 32767.
//! - `version` is derived from ctime, which every change of data or attributes moves; it is never 0.

use std::collections::HashMap;
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

/// 64 well-mixed bits of a time stamp (splitmix64's finish).
pub(super) fn mixed(stamp: StatxTimestamp) -> u64 {
    let mut x = stamp.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(i64::from(stamp.tv_nsec)).cast_unsigned();
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
        let next = others.numbers.len() as u64;
        OTHER | NUMBERED << INO_BITS | *others.numbers.entry((dev, ino)).or_insert(next)
    }

    /// The qid of a file, as the dialect shows it; `marks` are bits of [`dm`].
    pub(super) fn qid(&self, stx: &Statx, marks: u32, dialect: Dialect) -> Qid {
        let version = mixed(stx.stx_ctime);
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
