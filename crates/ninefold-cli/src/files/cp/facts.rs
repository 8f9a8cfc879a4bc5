//! What a copy needs to know of a file, in one form for files here and there.

use std::sync::Arc;

use ninefold::client::{FileType, Metadata};
use ninefold::proto::QidType;
use ninefold::proto::attr::Time;
use ninefold::transport;
use rustix::fs::Stat;

use crate::place::Place;

/// The server of a file, unless it is this machine's, its device here, and its number.
pub type Identity = (Option<transport::Place>, u64, u64);

/// Attributes of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    pub kind: FileType,
    /// 0 to 0o7777.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    pub accessed: Time,
    pub modified: Time,
    /// When content or attributes changed last, which nobody can set (st_ctime).
    pub changed: Option<Time>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub nlink: Option<u64>,
    /// Major and minor number of a device.
    pub device: Option<(u32, u32)>,
    /// Whether the disk holds all of its bytes: there are no holes to look for.
    pub is_dense: bool,
    /// Device and number of a file of this machine, which no other file has.
    pub inode: Option<(u64, u64)>,
    /// All that a server told.
    pub metadata: Option<Arc<Metadata>>,
}

impl Facts {
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Dir
    }

    /// Whether the content may be another by now, as far as size and times tell: also one whose time was set back.
    pub fn differs(&self, now: &Facts) -> bool {
        now.modified != self.modified || now.size != self.size || now.changed != self.changed
    }

    /// Permission bits, 0 to 0o777.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o777
    }

    /// What the names of one file have in common, and names of two files do not; `place` is one of its names.
    pub fn identity(&self, place: &Place) -> Option<Identity> {
        match (place, self.inode, self.qid()) {
            (Place::Local(_), Some((device, number)), _) => Some((None, device, number)),
            (Place::Remote(address), _, Some(qid)) => Some((Some(address.place.clone()), 0, qid)),
            _ => None,
        }
    }

    /// The number that a server's file has and no other file there (intro(5)).
    pub fn qid(&self) -> Option<u64> {
        self.metadata.as_ref().map(|metadata| metadata.qid.path)
    }

    /// What is written to it comes at its end.
    pub fn is_append_only(&self) -> bool {
        self.metadata.as_ref().is_some_and(|metadata| metadata.qid.kind.has(QidType::APPEND))
    }

    /// Append-only, exclusive: what a new file in its place would not be.
    pub fn has_rules_of_its_own(&self) -> bool {
        let kind = self.metadata.as_ref().map(|metadata| metadata.qid.kind);
        kind.is_some_and(|kind| kind.has(QidType::APPEND) || kind.has(QidType::EXCL) || kind.has(QidType::AUTH))
    }

    /// Whether the times have nanoseconds: in 9P2000 and .u, which have a mode word of their own, they have none.
    pub fn has_nanoseconds(&self) -> bool {
        self.metadata.as_ref().is_none_or(|metadata| metadata.plan9_mode.is_none())
    }
}

impl From<Metadata> for Facts {
    fn from(it: Metadata) -> Facts {
        Facts {
            kind: it.kind,
            mode: it.mode,
            size: it.size,
            accessed: it.accessed,
            modified: it.modified,
            changed: it.changed,
            uid: it.uid,
            gid: it.gid,
            nlink: it.nlink,
            device: it.device,
            is_dense: false,
            inode: None,
            metadata: Some(Arc::new(it)),
        }
    }
}

#[allow(clippy::unnecessary_cast, reason = "the fields of stat(2) have other widths on other machines")]
impl From<&Stat> for Facts {
    fn from(it: &Stat) -> Facts {
        let kind = FileType::from_mode(it.st_mode).unwrap_or(FileType::File);
        let device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        let time = |sec: i64, nsec: u64| Time { sec, nsec: nsec as u32 };
        let size = it.st_size.max(0).cast_unsigned();
        Facts {
            kind,
            mode: it.st_mode & 0o7777,
            size,
            accessed: time(it.st_atime as i64, it.st_atime_nsec as u64),
            modified: time(it.st_mtime as i64, it.st_mtime_nsec as u64),
            changed: Some(time(it.st_ctime as i64, it.st_ctime_nsec as u64)),
            uid: Some(it.st_uid),
            gid: Some(it.st_gid),
            nlink: Some(it.st_nlink as u64),
            device: device.then(|| (rustix::fs::major(it.st_rdev), rustix::fs::minor(it.st_rdev))),
            // st_blocks counts units of 512 bytes (stat(2)).
            is_dense: it.st_blocks as u64 * 512 >= size,
            inode: Some((it.st_dev as u64, it.st_ino as u64)),
            metadata: None,
        }
    }
}

/// Whether two times agree as exactly as both files can tell.
pub fn same_time(a: &Facts, b: &Facts) -> bool {
    if a.has_nanoseconds() && b.has_nanoseconds() { a.modified == b.modified } else { a.modified.sec == b.modified.sec }
}
