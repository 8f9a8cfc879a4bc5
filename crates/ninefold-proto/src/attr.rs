//! .L's attributes (Tgetattr, Tsetattr): the valid bits and the values.

use crate::message::{Mask, Octal, R};
use crate::types::Qid;

/// Bits of Tgetattr's request_mask and Rgetattr's valid (diod's protocol.md; Linux `P9_STATS_*`).
pub mod getattr {
    pub const MODE: u64 = 0x0001;
    pub const NLINK: u64 = 0x0002;
    pub const UID: u64 = 0x0004;
    pub const GID: u64 = 0x0008;
    pub const RDEV: u64 = 0x0010;
    pub const ATIME: u64 = 0x0020;
    pub const MTIME: u64 = 0x0040;
    pub const CTIME: u64 = 0x0080;
    pub const INO: u64 = 0x0100;
    pub const SIZE: u64 = 0x0200;
    pub const BLOCKS: u64 = 0x0400;
    pub const BTIME: u64 = 0x0800;
    pub const GEN: u64 = 0x1000;
    pub const DATA_VERSION: u64 = 0x2000;
    /// What stat(2) tells.
    pub const BASIC: u64 = 0x07ff;
    /// Everything.
    pub const ALL: u64 = 0x3fff;
}

/// Bits of Tsetattr's valid (Linux `P9_ATTR_*`).
pub mod setattr {
    pub const MODE: u32 = 0x001;
    pub const UID: u32 = 0x002;
    pub const GID: u32 = 0x004;
    pub const SIZE: u32 = 0x008;
    pub const ATIME: u32 = 0x010;
    pub const MTIME: u32 = 0x020;
    pub const CTIME: u32 = 0x040;
    /// atime is the one given, not the server's now.
    pub const ATIME_SET: u32 = 0x080;
    /// mtime is the one given, not the server's now.
    pub const MTIME_SET: u32 = 0x100;
    /// Every bit above.
    pub const ALL: u32 = 0x1ff;
}

/// Seconds since 1970 (negative before) and nanoseconds 0 to 999,999,999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time {
    pub sec: i64,
    pub nsec: u32,
}

/// A file's attributes; only those whose bit is in `valid` mean anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attr {
    /// Bits of [`getattr`].
    pub valid: u64,
    pub qid: Qid,
    /// Type and permission bits as stat(2) has them.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u64,
    /// Device number in the kernel's encoding (`makedev`).
    pub rdev: u64,
    pub size: u64,
    pub blksize: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
    pub generation: u64,
    /// Changes with every modification; compared for equality only.
    pub data_version: u64,
}

/// As Rgetattr tells them.
impl From<&Attr> for R<'static> {
    fn from(a: &Attr) -> R<'static> {
        R::Getattr {
            valid: Mask(a.valid),
            qid: a.qid,
            mode: Octal(a.mode),
            uid: a.uid,
            gid: a.gid,
            nlink: a.nlink,
            rdev: a.rdev,
            size: a.size,
            blksize: a.blksize,
            blocks: a.blocks,
            atime_sec: a.atime.sec as u64,
            atime_nsec: a.atime.nsec.into(),
            mtime_sec: a.mtime.sec as u64,
            mtime_nsec: a.mtime.nsec.into(),
            ctime_sec: a.ctime.sec as u64,
            ctime_nsec: a.ctime.nsec.into(),
            btime_sec: a.btime.sec as u64,
            btime_nsec: a.btime.nsec.into(),
            generation: a.generation,
            data_version: a.data_version,
        }
    }
}

/// A time that Tsetattr sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This one.
    To(Time),
}

/// What Tsetattr changes; `None` leaves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission bits, 0 to 0o7777.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// ctime is set to now by any change; asked alone it must still be.
    pub ctime: bool,
}

/// What statfs(2) tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statfs {
    /// The file system's magic number.
    pub fstype: u32,
    /// Bytes a block.
    pub bsize: u32,
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub fsid: u64,
    /// The longest name in bytes.
    pub namelen: u32,
}
