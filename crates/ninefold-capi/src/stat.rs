//! A file's attributes as stat(2) has them.

use nine::client::Metadata;
use nine::proto::attr::Time;
use nix::libc;

use crate::kernel;

/// The major number of the devices that servers are. The kernel's have 12 bits (kdev_t.h), so a file of a server is never taken for a
/// file here by programs that compare device and inode; "9P" in ASCII.
const MAJOR: u32 = 0x3950;

/// Bytes that are good to read at a time, where the server does not say: a pipe's worth.
const BLOCK: u64 = 64 << 10;

/// Linux's stat of a file of the server that has the number `server`. What the server does not tell is 0, but st_nlink, which is 1,
/// st_blocks, which follows from the size, and st_ctime, which is the time of the last write.
pub fn of(metadata: &Metadata, server: u32) -> libc::stat {
    let mut stat = kernel::empty_stat();
    stat.st_dev = libc::makedev(MAJOR, server);
    stat.st_ino = metadata.qid.path;
    stat.st_mode = metadata.kind.mode_bits() | metadata.mode;
    stat.st_nlink = metadata.nlink.unwrap_or(1);
    stat.st_uid = metadata.uid.unwrap_or_default();
    stat.st_gid = metadata.gid.unwrap_or_default();
    stat.st_rdev = metadata.device.map_or(0, |(major, minor)| libc::makedev(major, minor));
    stat.st_size = metadata.size.cast_signed();
    // Programs divide by the one and add up the other, whatever a server says.
    stat.st_blksize = metadata.block_size.filter(|&bytes| bytes > 0).unwrap_or(BLOCK).min(i32::MAX as u64) as _;
    stat.st_blocks = metadata.blocks.unwrap_or(metadata.size.div_ceil(512)).min(i64::MAX as u64).cast_signed();
    (stat.st_atime, stat.st_atime_nsec) = time(metadata.accessed);
    (stat.st_mtime, stat.st_mtime_nsec) = time(metadata.modified);
    (stat.st_ctime, stat.st_ctime_nsec) = time(metadata.changed.unwrap_or(metadata.modified));
    stat
}

fn time(time: Time) -> (i64, i64) {
    (time.sec, time.nsec.into())
}

#[cfg(test)]
mod tests {
    use nine::client::FileType;
    use nine::proto::{Qid, QidType};

    use super::*;

    fn told(block_size: Option<u64>, blocks: Option<u64>) -> (u64, i64) {
        let metadata = Metadata {
            qid: Qid { kind: QidType::FILE, version: 1, path: 1 },
            kind: FileType::File,
            mode: 0o644,
            plan9_mode: None,
            size: 1025,
            nlink: None,
            uid: None,
            gid: None,
            owner: None,
            group: None,
            modifier: None,
            device: None,
            block_size,
            blocks,
            accessed: Time::default(),
            modified: Time::default(),
            changed: None,
            born: None,
            link_target: None,
        };
        let stat = of(&metadata, 0);
        (stat.st_blksize as u64, stat.st_blocks)
    }

    #[test]
    fn a_block_has_bytes_and_no_file_has_fewer_than_no_blocks() {
        assert_eq!(told(None, None), (BLOCK, 3));
        assert_eq!(told(Some(4096), Some(8)), (4096, 8));
        assert_eq!(told(Some(0), Some(u64::MAX)), (BLOCK, i64::MAX));
        assert_eq!(told(Some(u64::MAX), Some(0)), (i32::MAX as u64, 0));
    }
}
