//! The view of 9P2000 and 9P2000.u: stat records, and directories that are files of them.

use ninefold_proto::attr::{SetAttr, SetTime, Time};
use ninefold_proto::stat::{Stat, StatBuf, dm};
use ninefold_proto::{Dialect, Errno, Name, Qid};

use super::file::RamFile;
use super::names::{HERE, Names, PARENT, ROOT};
use super::node::{Body, Meta, Node, S_IFBLK, S_IFIFO, S_IFSOCK, S_ISGID, S_ISUID, S_ISVTX};
use crate::server::{Records, StatSink};

/// What 9P2000 keeps of a file beside .u's bits and the permissions.
const PLAN9: u32 = dm::APPEND | dm::EXCL | dm::TMP;

/// .u's bits for the permission bits that 9P2000 does not have.
const SET_IDS: [(u32, u32); 3] = [(S_ISUID, dm::SETUID), (S_ISGID, dm::SETGID), (S_ISVTX, dm::SETVTX)];

impl RamFile {
    pub(super) fn stat_now(&self) -> StatBuf {
        let record = self.record(&self.tree.names(), self.entry, &self.node);
        self.with_ids(record)
    }

    pub(super) fn read_stats_now(&self, at: u64, max: u32) -> Result<Records, Errno> {
        let mut room = max as usize;
        let mut records = Vec::new();
        let names = self.tree.names();
        let mut take = |cookie, record: StatBuf| {
            let len = record.as_stat().encoded_len(self.dialect);
            records.push((cookie, record));
            let fits = len <= room;
            room = room.saturating_sub(len);
            fits
        };
        let mut dots = Vec::new();
        if self.dialect == Dialect::Unix
            && let Some((above, parent)) = names.parent(self.node.path)
        {
            dots = vec![(HERE, ".", self.entry, &self.node), (PARENT, "..", above, &parent.node)];
        }
        let dots = dots.into_iter().filter(|dot| dot.0 > at);
        let dots = dots.map(|(cookie, name, entry, node)| {
            (cookie, StatBuf { name: name.into(), ..self.record(&names, entry, node) })
        });
        let entries = names.list(self.node.path, at.max(PARENT));
        let entries = entries.map(|(id, entry)| (id, self.record(&names, id, &entry.node)));
        let _ = dots.chain(entries).all(|(cookie, record)| take(cookie, record));
        drop(names);
        let mut sink = StatSink::new(self.dialect, max);
        for (id, record) in records {
            let record = self.with_ids(record);
            if !sink.push(&record.as_stat(), id) {
                if sink.is_empty() {
                    return Err(Errno::EINVAL);
                }
                break;
            }
        }
        self.node.meta().accessed();
        Ok(sink.into_records())
    }

    /// The record of a node under one of its names, without one when that was removed; and without the names of users
    /// and groups, which may take a look into the machine's database, and so are asked for with nothing locked.
    fn record(&self, names: &Names, entry: u64, node: &Node) -> StatBuf {
        let name = names.entry(entry).map_or_else(Vec::new, |entry| entry.name.to_vec());
        let unix = self.dialect == Dialect::Unix;
        // Linux's client knows the number of links from nothing else.
        let links = || format!("HARDLINKCOUNT {}", node.meta().nlink).into_bytes();
        let (length, extension) = match &node.body {
            Body::Dir => (0, links()),
            Body::Plain(_) => (node.content().map_or(0, |content| content.size()), links()),
            Body::Symlink(target) => (target.len() as u64, target.to_vec()),
            Body::Special { kind, rdev } => (0, device(*kind, *rdev)),
        };
        let meta = node.meta();
        StatBuf {
            qid: node.qid(&meta),
            mode: mode(node, &meta, unix),
            atime: seconds(meta.atime),
            mtime: seconds(meta.mtime),
            length,
            name,
            extension: if unix { extension } else { Vec::new() },
            n_uid: meta.uid,
            n_gid: meta.gid,
            n_muid: meta.muid,
            ..StatBuf::default()
        }
    }

    fn with_ids(&self, record: StatBuf) -> StatBuf {
        let ids = &self.tree.ids;
        let (uid, gid, muid) = (ids.user(record.n_uid), ids.group(record.n_gid), ids.user(record.n_muid));
        StatBuf { uid: uid.into(), gid: gid.into(), muid: muid.into(), ..record }
    }

    /// stat(5): all of the changes or none.
    pub(super) fn wstat_now(&self, stat: &Stat<'_>) -> Result<(), Errno> {
        if *stat == Stat::UNTOUCHED {
            return Ok(());
        }
        let current = self.stat_now();
        let (set, bits) = self.changes(stat, &current)?;
        let mut names = self.tree.names_mut();
        let rename = if stat.name.is_empty() || stat.name == current.name { None } else { Some(stat.name) };
        let mut content = if set.size.is_some() { Some(self.node.content_mut()?) } else { None };
        self.node.check_set(&self.node.meta(), &self.user, &set, self.is_writer())?;
        // What can still fail comes before what cannot.
        if let Some(name) = rename {
            let name = Name::new(name).map_err(|_| Errno::EINVAL)?;
            if self.entry == ROOT {
                return Err(Errno::EPERM);
            }
            let dir = names.entry(self.entry).ok_or(Errno::ENOENT)?.dir;
            let dir = self.tree.node_of(&names, dir)?;
            // .u's rename(2) replaces what has the name, if nothing else is asked.
            let replace = self.dialect == Dialect::Unix && set == SetAttr::default() && bits.is_none();
            self.tree.rename(&mut names, &self.user, self.entry, &dir, name.as_bytes(), replace)?;
        }
        if let (Some(content), Some(size)) = (&mut content, set.size) {
            content.resize(size);
        }
        let mut meta = self.node.meta();
        if let Some(bits) = bits {
            meta.dm = bits;
        }
        if set != SetAttr::default() {
            meta.apply_set(&self.user, &set, self.node.is_dir());
        }
        Ok(())
    }

    /// What a record asks to change: attributes, and 9P2000's own bits. EPERM for what nobody can change.
    fn changes(&self, stat: &Stat<'_>, current: &StatBuf) -> Result<(SetAttr, Option<u32>), Errno> {
        let mut set = SetAttr::default();
        let untouched = Stat::UNTOUCHED;
        let fixed = |is: bool| if is { Ok(()) } else { Err(Errno::EPERM) };
        fixed([untouched.kind, 0].contains(&stat.kind))?;
        fixed([untouched.dev, 0].contains(&stat.dev))?;
        fixed(same_qid(&stat.qid, &current.qid))?;
        // Linux's client says its user's name here when it renames in .u; it does not ask for a change.
        let unix = self.dialect == Dialect::Unix;
        fixed(unix || stat.muid.is_empty() || stat.muid == current.muid)?;
        let mut bits = None;
        if stat.mode != untouched.mode {
            fixed(stat.mode & dm::DIR == current.mode & dm::DIR)?;
            fixed(stat.mode & (dm::MOUNT | dm::AUTH) == 0)?;
            if !unix && stat.mode & dm::UNIX != 0 {
                return Err(Errno::EINVAL);
            }
            let mut perm = stat.mode & 0o777;
            for (bit, unix_bit) in SET_IDS {
                let is_set = if unix { stat.mode & unix_bit != 0 } else { self.node.meta().perm & bit != 0 };
                perm |= if is_set { bit } else { 0 };
            }
            set.mode = Some(perm);
            bits = Some(stat.mode & PLAN9);
        }
        let at = |seconds: u32| SetTime::To(Time { sec: seconds.into(), nsec: 0 });
        set.atime = (stat.atime != untouched.atime).then(|| at(stat.atime));
        set.mtime = (stat.mtime != untouched.mtime).then(|| at(stat.mtime));
        match stat.length {
            // A directory's length is 0 and stays so.
            0 if self.node.is_dir() => {}
            length if length != untouched.length => set.size = Some(length),
            _ => {}
        }
        let number = |text: &[u8], current: &[u8], find: &dyn Fn(&str) -> Option<u32>| match text {
            b"" => Ok(None),
            _ if text == current => Ok(None),
            _ => std::str::from_utf8(text).ok().and_then(find).map(Some).ok_or(Errno::EINVAL),
        };
        set.uid = number(stat.uid, &current.uid, &|name| self.tree.ids.uid(name))?;
        set.gid = number(stat.gid, &current.gid, &|name| self.tree.ids.gid(name))?;
        // .u's numbers say more than its names.
        if stat.n_uid != untouched.n_uid {
            set.uid = (stat.n_uid != current.n_uid).then_some(stat.n_uid);
        }
        if stat.n_gid != untouched.n_gid {
            set.gid = (stat.n_gid != current.n_gid).then_some(stat.n_gid);
        }
        Ok((set, bits))
    }
}

fn same_qid(asked: &Qid, current: &Qid) -> bool {
    let untouched = Stat::UNTOUCHED.qid;
    (asked.kind == untouched.kind || asked.kind == current.kind)
        && (asked.version == untouched.version || asked.version == current.version)
        && (asked.path == untouched.path || asked.path == current.path)
}

/// Seconds since 1970 as a record has them: what lies outside is told as the nearest.
fn seconds(time: Time) -> u32 {
    time.sec.clamp(0, i64::from(u32::MAX - 1)) as u32
}

fn mode(node: &Node, meta: &Meta, unix: bool) -> u32 {
    let mut mode = meta.perm & 0o777 | meta.dm;
    if node.is_dir() {
        mode |= dm::DIR;
    }
    if unix {
        mode |= match &node.body {
            Body::Symlink(_) => dm::SYMLINK,
            Body::Special { kind: S_IFIFO, .. } => dm::NAMEDPIPE,
            Body::Special { kind: S_IFSOCK, .. } => dm::SOCKET,
            Body::Special { .. } => dm::DEVICE,
            Body::Plain(_) | Body::Dir => 0,
        };
        mode |= SET_IDS.iter().filter(|(bit, _)| meta.perm & bit != 0).map(|(_, unix)| unix).sum::<u32>();
    }
    mode
}

/// .u's extension of a device: `b major minor` or `c major minor`.
fn device(kind: u32, rdev: u64) -> Vec<u8> {
    if matches!(kind, S_IFIFO | S_IFSOCK) {
        return Vec::new();
    }
    let letter = if kind == S_IFBLK { 'b' } else { 'c' };
    format!("{letter} {} {}", rustix::fs::major(rdev), rustix::fs::minor(rdev)).into()
}
