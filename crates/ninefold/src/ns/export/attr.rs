//! Attributes as clients are told them, from what a server told.

use ninefold_proto::attr::{Attr, SetAttr, SetTime, Time, getattr};
use ninefold_proto::stat::{Stat, StatBuf, dm};
use ninefold_proto::{Dialect, Errno, Qid};

use crate::client::{FileType, Metadata};

/// Who has a file of which the server tells no number: nobody (Linux's overflowuid).
const NOBODY: u32 = 65_534;

/// .u's bits for the permission bits that 9P2000 does not have.
const SPECIAL: [(u32, u32); 3] = [(0o4000, dm::SETUID), (0o2000, dm::SETGID), (0o1000, dm::SETVTX)];

/// What a mode word has beside permissions and .u's bits.
const PLAN9: u32 = dm::APPEND | dm::EXCL | dm::TMP;

/// For .L. Its generation and data version no client of ours is told, so `valid` says that they are not there.
pub(super) fn attr(metadata: &Metadata) -> Attr {
    let (major, minor) = metadata.device.unwrap_or_default();
    let mut valid = getattr::BASIC;
    if metadata.born.is_some() {
        valid |= getattr::BTIME;
    }
    Attr {
        valid,
        qid: metadata.qid,
        mode: metadata.kind.mode_bits() | metadata.mode,
        uid: metadata.uid.unwrap_or(NOBODY),
        gid: metadata.gid.unwrap_or(NOBODY),
        nlink: metadata.nlink.unwrap_or(1),
        rdev: if metadata.device.is_some() { rustix::fs::makedev(major, minor) } else { 0 },
        size: metadata.size,
        blksize: metadata.block_size.unwrap_or(4096),
        blocks: metadata.blocks.unwrap_or(metadata.size.div_ceil(512)),
        atime: metadata.accessed,
        mtime: metadata.modified,
        ctime: metadata.changed.unwrap_or(metadata.modified),
        btime: metadata.born.unwrap_or_default(),
        generation: 0,
        data_version: 0,
    }
}

/// For 9P2000 and .u; `links` is the target of a symbolic link.
pub(super) fn record(metadata: &Metadata, name: &[u8], target: Option<&[u8]>, dialect: Dialect) -> StatBuf {
    let unix = dialect == Dialect::Unix;
    let text = |name: &Option<Vec<u8>>, number: Option<u32>| match name {
        Some(name) => name.clone(),
        None => number.unwrap_or(NOBODY).to_string().into_bytes(),
    };
    let mut mode = metadata.mode & 0o777 | metadata.plan9_mode.unwrap_or_default() & PLAN9;
    mode |= match metadata.kind {
        FileType::Dir => dm::DIR,
        FileType::Symlink if unix => dm::SYMLINK,
        FileType::Fifo if unix => dm::NAMEDPIPE,
        FileType::Socket if unix => dm::SOCKET,
        FileType::BlockDevice | FileType::CharDevice if unix => dm::DEVICE,
        _ => 0,
    };
    if unix {
        mode |= SPECIAL.iter().filter(|(bit, _)| metadata.mode & bit != 0).map(|(_, bit)| bit).sum::<u32>();
    }
    let extension = match (metadata.kind, metadata.device, target) {
        _ if !unix => Vec::new(),
        (FileType::BlockDevice, Some((major, minor)), _) => format!("b {major} {minor}").into_bytes(),
        (FileType::CharDevice, Some((major, minor)), _) => format!("c {major} {minor}").into_bytes(),
        (FileType::Symlink, _, Some(target)) => target.to_vec(),
        // Linux's client knows the number of links from nothing else.
        (FileType::File | FileType::Dir, _, _) => format!("HARDLINKCOUNT {}", metadata.nlink.unwrap_or(1)).into_bytes(),
        _ => Vec::new(),
    };
    let owner = text(&metadata.owner, metadata.uid);
    StatBuf {
        qid: metadata.qid,
        mode,
        atime: seconds(metadata.accessed),
        mtime: seconds(metadata.modified),
        // A directory's is 0 (stat(5)).
        length: if metadata.kind == FileType::Dir { 0 } else { metadata.size },
        name: name.to_vec(),
        muid: metadata.modifier.clone().unwrap_or_else(|| owner.clone()),
        uid: owner,
        gid: text(&metadata.group, metadata.gid),
        extension,
        n_uid: metadata.uid.unwrap_or(NOBODY),
        n_gid: metadata.gid.unwrap_or(NOBODY),
        n_muid: metadata.uid.unwrap_or(NOBODY),
    }
}

fn seconds(time: Time) -> u32 {
    time.sec.clamp(0, i64::from(u32::MAX - 1)) as u32
}

/// What a record asks to change but the name, as against what the file has; EPERM for what nobody can change (stat(5)).
pub(super) fn changes(stat: &Stat<'_>, now: &StatBuf, dialect: Dialect) -> Result<SetAttr, Errno> {
    let (untouched, unix) = (Stat::UNTOUCHED, dialect == Dialect::Unix);
    let fixed = |is: bool| if is { Ok(()) } else { Err(Errno::EPERM) };
    let mut set = SetAttr::default();
    fixed([untouched.kind, 0].contains(&stat.kind) && [untouched.dev, 0].contains(&stat.dev))?;
    fixed(same_qid(&stat.qid, &now.qid))?;
    fixed(unix || stat.muid.is_empty() || stat.muid == now.muid)?;
    if stat.mode != untouched.mode {
        fixed(
            stat.mode & (dm::DIR | PLAN9) == now.mode & (dm::DIR | PLAN9) && stat.mode & (dm::MOUNT | dm::AUTH) == 0,
        )?;
        if !unix && stat.mode & dm::UNIX != 0 {
            return Err(Errno::EINVAL);
        }
        let special = SPECIAL.iter().filter(|(_, bit)| unix && stat.mode & bit != 0).map(|(bit, _)| bit).sum::<u32>();
        set.mode = Some(stat.mode & 0o777 | special);
    }
    let at = |seconds: u32| SetTime::To(Time { sec: seconds.into(), nsec: 0 });
    set.atime = (stat.atime != untouched.atime).then(|| at(stat.atime));
    set.mtime = (stat.mtime != untouched.mtime).then(|| at(stat.mtime));
    if stat.length != untouched.length && !(now.mode & dm::DIR != 0 && stat.length == 0) {
        set.size = Some(stat.length);
    }
    set.uid = owner((stat.uid, stat.n_uid), (&now.uid, now.n_uid))?;
    set.gid = owner((stat.gid, stat.n_gid), (&now.gid, now.n_gid))?;
    Ok(set)
}

/// An owner that is to change; names but the one that there is are the server's to know, and not ours.
fn owner((name, number): (&[u8], u32), (now, now_number): (&[u8], u32)) -> Result<Option<u32>, Errno> {
    if number != u32::MAX {
        return Ok((number != now_number).then_some(number));
    }
    match std::str::from_utf8(name).ok().and_then(|name| name.parse().ok()) {
        _ if name.is_empty() || name == now => Ok(None),
        Some(number) => Ok(Some(number)),
        None => Err(Errno::EINVAL),
    }
}

fn same_qid(asked: &Qid, now: &Qid) -> bool {
    let untouched = Stat::UNTOUCHED.qid;
    (asked.kind == untouched.kind || asked.kind == now.kind)
        && (asked.version == untouched.version || asked.version == now.version)
        && (asked.path == untouched.path || asked.path == now.path)
}
