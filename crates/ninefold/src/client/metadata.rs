//! What is known of a file, in one form for all dialects.

use ninefold_proto::attr::{Time, getattr};
use ninefold_proto::stat::{Stat, dm};
use ninefold_proto::{Dialect, Qid, QidType, R};

use super::error::{Error, Suspicion};

/// The kind of a file (inode(7)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileType {
    File,
    Dir,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
}

/// The bits of st_mode (inode(7)).
const FORMATS: [(u32, FileType); 7] = [
    (0o100_000, FileType::File),
    (0o040_000, FileType::Dir),
    (0o120_000, FileType::Symlink),
    (0o020_000, FileType::CharDevice),
    (0o060_000, FileType::BlockDevice),
    (0o010_000, FileType::Fifo),
    (0o140_000, FileType::Socket),
];

/// Bytes of the longest target of a symbolic link: Linux's PATH_MAX without the NUL at its end (symlink(2)). A longer one
/// could lead through thousands of names and back.
const TARGET_MAX: usize = 4095;

const FORMAT_MASK: u32 = 0o170_000;

impl FileType {
    /// From st_mode; `None` for bits that mean no kind.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        FORMATS.iter().find(|(bits, _)| mode & FORMAT_MASK == *bits).map(|(_, kind)| *kind)
    }

    /// The bits of st_mode.
    pub fn mode_bits(self) -> u32 {
        FORMATS.iter().find(|(_, kind)| *kind == self).map_or(0, |(bits, _)| *bits)
    }

    /// What a qid alone tells: devices, fifos and sockets look like plain files.
    pub fn from_qid(qid: QidType) -> FileType {
        match qid {
            qid if qid.has(QidType::DIR) => FileType::Dir,
            qid if qid.has(QidType::SYMLINK) => FileType::Symlink,
            _ => FileType::File,
        }
    }
}

/// A file's attributes. What the dialect, or the server, does not tell is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    pub qid: Qid,
    pub kind: FileType,
    /// Permission bits, 0 to 0o7777.
    pub mode: u32,
    /// 9P2000's mode word, [`dm`] bits and permissions (stat(5)); not from .L.
    pub plan9_mode: Option<u32>,
    /// Bytes; 0 where the server does not tell.
    pub size: u64,
    pub nlink: Option<u64>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Names as the server has them; not from .L.
    pub owner: Option<Vec<u8>>,
    pub group: Option<Vec<u8>>,
    /// Who changed it last; not from .L.
    pub modifier: Option<Vec<u8>>,
    /// Major and minor number of a device.
    pub device: Option<(u32, u32)>,
    /// Bytes that are good to read at a time.
    pub block_size: Option<u64>,
    /// Units of 512 bytes that the file takes.
    pub blocks: Option<u64>,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Option<Time>,
    pub born: Option<Time>,
    /// The target of a symbolic link, where it comes with the rest (.u) and is one.
    pub link_target: Option<Vec<u8>>,
}

impl Metadata {
    /// Whether it is a plain file that is not append-only. If it has a size too its content may be asked for at several
    /// places at a time: a synthetic file may act on every read, and has size 0.
    pub fn is_plain(&self) -> bool {
        let special = self.qid.kind.has(QidType::APPEND) || self.qid.kind.has(QidType::AUTH);
        self.kind == FileType::File && !special
    }

    /// Whether both tell of the same file, as far as anybody can know: all is compared but the time of the last access, which
    /// reading changes. The qid alone does not tell: servers that export several file systems as one, like diod, give
    /// files of two of them the same.
    pub fn is_of_same_file(&self, other: &Metadata) -> bool {
        Metadata { accessed: other.accessed, ..self.clone() } == *other
    }

    /// From Rgetattr.
    pub(super) fn from_getattr(reply: &R<'_>) -> Result<Metadata, Error> {
        let R::Getattr {
            valid,
            qid,
            mode,
            uid,
            gid,
            nlink,
            rdev,
            size,
            blksize,
            blocks,
            atime_sec,
            atime_nsec,
            mtime_sec,
            mtime_nsec,
            ctime_sec,
            ctime_nsec,
            btime_sec,
            btime_nsec,
            ..
        } = *reply
        else {
            return Err(Suspicion::NoMode.into());
        };
        let told = |bit: u64| valid.0 & bit != 0;
        let kind = FileType::from_mode(mode.0).filter(|_| told(getattr::MODE)).ok_or(Suspicion::NoMode)?;
        let times = [
            time(atime_sec, atime_nsec)?,
            time(mtime_sec, mtime_nsec)?,
            time(ctime_sec, ctime_nsec)?,
            time(btime_sec, btime_nsec)?,
        ];
        let device = matches!(kind, FileType::CharDevice | FileType::BlockDevice) && told(getattr::RDEV);
        Metadata {
            qid,
            kind,
            mode: mode.0 & 0o7777,
            plan9_mode: None,
            size: if told(getattr::SIZE) { size } else { 0 },
            nlink: Some(nlink).filter(|_| told(getattr::NLINK)),
            uid: Some(uid).filter(|_| told(getattr::UID)),
            gid: Some(gid).filter(|_| told(getattr::GID)),
            owner: None,
            group: None,
            modifier: None,
            device: device.then(|| (rustix::fs::major(rdev), rustix::fs::minor(rdev))),
            block_size: Some(blksize).filter(|_| told(getattr::BLOCKS)),
            blocks: Some(blocks).filter(|_| told(getattr::BLOCKS)),
            accessed: times[0],
            modified: times[1],
            changed: Some(times[2]).filter(|_| told(getattr::CTIME)),
            // diod says that it tells this one, and tells zeros.
            born: Some(times[3]).filter(|time| told(getattr::BTIME) && *time != Time::default()),
            link_target: None,
        }
        .checked()
    }

    /// From a stat record of 9P2000 or .u.
    pub(super) fn from_stat(stat: &Stat<'_>, dialect: Dialect) -> Result<Metadata, Error> {
        let unix = dialect == Dialect::Unix;
        let (kind, device) = stat_kind(stat, unix);
        // One bad link must not hide the rest of its directory.
        let link_target = Some(stat.extension).filter(|_| kind == FileType::Symlink);
        let link_target = link_target.and_then(|target| link_target_of(target.to_vec()).ok());
        let id = |n: u32| Some(n).filter(|&n| unix && n != u32::MAX);
        let seconds = |sec: u32| Time { sec: sec.into(), nsec: 0 };
        Metadata {
            qid: stat.qid,
            kind,
            mode: (stat.mode & 0o777) | if unix { special_bits(stat.mode) } else { 0 },
            plan9_mode: Some(stat.mode),
            size: stat.length,
            nlink: hard_links(stat, kind, unix),
            uid: id(stat.n_uid),
            gid: id(stat.n_gid),
            owner: Some(stat.uid.to_vec()),
            group: Some(stat.gid.to_vec()),
            modifier: Some(stat.muid.to_vec()),
            device,
            block_size: None,
            blocks: None,
            accessed: seconds(stat.atime),
            modified: seconds(stat.mtime),
            changed: None,
            born: None,
            link_target,
        }
        .checked()
    }

    fn checked(self) -> Result<Metadata, Error> {
        if self.size > i64::MAX as u64 {
            return Err(Suspicion::Size(self.size).into());
        }
        if self.qid.is_dir() != (self.kind == FileType::Dir) {
            return Err(Suspicion::Type.into());
        }
        Ok(self)
    }
}

/// A symbolic link's target as a server tells it.
pub(super) fn link_target_of(target: Vec<u8>) -> Result<Vec<u8>, Error> {
    if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
        return Err(Suspicion::LinkTarget.into());
    }
    Ok(target)
}

fn time(sec: u64, nsec: u64) -> Result<Time, Error> {
    match u32::try_from(nsec) {
        Ok(nsec) if nsec < 1_000_000_000 => Ok(Time { sec: sec.cast_signed(), nsec }),
        _ => Err(Suspicion::Time(nsec).into()),
    }
}

/// .u's bits for set-user-id, set-group-id and sticky, as chmod(2) has them.
fn special_bits(mode: u32) -> u32 {
    [(dm::SETUID, 0o4000), (dm::SETGID, 0o2000), (dm::SETVTX, 0o1000)]
        .into_iter()
        .filter(|(bit, _)| mode & bit != 0)
        .fold(0, |bits, (_, bit)| bits | bit)
}

fn stat_kind(stat: &Stat<'_>, unix: bool) -> (FileType, Option<(u32, u32)>) {
    let has = |bit: u32| stat.mode & bit != 0;
    if has(dm::DIR) {
        return (FileType::Dir, None);
    }
    if !unix {
        return (FileType::File, None);
    }
    if has(dm::SYMLINK) {
        return (FileType::Symlink, None);
    }
    if has(dm::DEVICE) {
        let kind = if stat.extension.first() == Some(&b'b') { FileType::BlockDevice } else { FileType::CharDevice };
        return (kind, device_numbers(stat.extension));
    }
    match () {
        () if has(dm::NAMEDPIPE) => (FileType::Fifo, None),
        () if has(dm::SOCKET) => (FileType::Socket, None),
        () => (FileType::File, None),
    }
}

/// `b MAJOR MINOR` or `c MAJOR MINOR`.
fn device_numbers(extension: &[u8]) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(extension).ok()?;
    let mut words = text.split(' ').skip(1).map(str::parse);
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

/// .u has no field for it; servers tell it in the extension of a file or directory: `HARDLINKCOUNT 2`.
fn hard_links(stat: &Stat<'_>, kind: FileType, unix: bool) -> Option<u64> {
    let tells = unix && matches!(kind, FileType::File | FileType::Dir);
    let told = stat.extension.strip_prefix(b"HARDLINKCOUNT ").filter(|_| tells)?;
    std::str::from_utf8(told.trim_ascii_end()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_the_target_of_a_link_is_not_told_by_its_stat_record() {
        let target = |extension: &[u8]| {
            let qid = Qid { kind: QidType::SYMLINK, version: 0, path: 1 };
            let stat = Stat { qid, mode: dm::SYMLINK | 0o777, length: 0, extension, ..Stat::UNTOUCHED };
            Metadata::from_stat(&stat, Dialect::Unix).unwrap().link_target
        };
        assert_eq!(target(b"../a b"), Some(b"../a b".to_vec()));
        assert_eq!(target(&[b'x'; TARGET_MAX]), Some(vec![b'x'; TARGET_MAX]));
        for bad in [&b""[..], b"a\0b", &[b'x'; TARGET_MAX + 1]] {
            assert_eq!(target(bad), None, "{bad:?}");
        }
    }
}
