//! What one does with files, in the words of each dialect.

use ninefold::proto::attr::{getattr, setattr};
use ninefold::proto::message::{Mask, Octal, Payload, Perm, StatBytes};
use ninefold::proto::open::lflags;
use ninefold::proto::stat::{Stat, dir_entries, dm, omode, stats};
use ninefold::proto::types::NONUNAME;
use ninefold::proto::{Dialect, Errno, Fid, R, T};

use super::conn::Conn;

/// Kinds of files as stat(2) has them, inode(7).
pub const S_IFMT: u32 = 0o170_000;
pub const S_IFIFO: u32 = 0o010_000;
pub const S_IFDIR: u32 = 0o040_000;
pub const S_IFREG: u32 = 0o100_000;
pub const S_IFSOCK: u32 = 0o140_000;

/// How a file is opened: the same numbers in every dialect.
pub const READ: u8 = omode::READ;
pub const WRITE: u8 = omode::WRITE;
pub const RDWR: u8 = omode::RDWR;

/// What a stat tells in every dialect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    /// The qid's path.
    pub path: u64,
    /// As stat(2) has it; what 9P2000 cannot tell from a plain file is one.
    pub mode: u32,
    /// 0 for directories.
    pub size: u64,
    /// Seconds since 1970.
    pub mtime: u64,
    /// .u and .L
    pub uid: u32,
}

impl Conn {
    /// Walks names that are told with `/` between them.
    pub async fn at(&mut self, from: Fid, path: &str) -> Result<Fid, Errno> {
        let names: Vec<&[u8]> = path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes).collect();
        self.walk(from, &names).await
    }

    /// Opens as Linux's client does: a clone of the fid that stands for the name.
    pub async fn open(&mut self, fid: Fid, mode: u8) -> Result<Fid, Errno> {
        let open = self.walk(fid, &[]).await?;
        match self.open_itself(open, mode).await {
            Ok(()) => Ok(open),
            Err(errno) => {
                self.clunk(open).await;
                Err(errno)
            }
        }
    }

    pub async fn open_itself(&mut self, fid: Fid, mode: u8) -> Result<(), Errno> {
        let request = self.open_request(fid, mode);
        self.ask(&request).await.map(drop)
    }

    pub fn open_request(&self, fid: Fid, mode: u8) -> T<'static> {
        match self.dialect {
            Dialect::Linux => T::Lopen { fid, flags: Octal(mode.into()) },
            Dialect::Plan9 | Dialect::Unix => T::Open { fid, mode },
        }
    }

    /// Makes a file and tells the fid that has it open for reading and writing.
    pub async fn create(&mut self, dir: Fid, name: &[u8]) -> Result<Fid, Errno> {
        let fid = self.walk(dir, &[]).await?;
        let mode = 0o644;
        let flags = Octal(lflags::RDWR | lflags::CREAT | lflags::EXCL);
        let create = match self.dialect {
            Dialect::Linux => T::Lcreate { fid, name, flags, mode: Octal(mode), gid: NONUNAME },
            Dialect::Plan9 | Dialect::Unix => T::Create { fid, name, perm: Perm(mode), mode: RDWR, extension: b"" },
        };
        self.ask(&create).await?;
        Ok(fid)
    }

    /// Makes a file that has `data`.
    pub async fn put(&mut self, dir: Fid, name: &str, data: &[u8]) {
        let fid = self.create(dir, name.as_bytes()).await.unwrap();
        self.write(fid, 0, data).await;
        self.clunk(fid).await;
    }

    /// Makes a directory and walks to it.
    pub async fn mkdir(&mut self, dir: Fid, name: &[u8]) -> Result<Fid, Errno> {
        if self.dialect == Dialect::Linux {
            self.ask(&T::Mkdir { dfid: dir, name, mode: Octal(0o755), gid: NONUNAME }).await?;
        } else {
            let fid = self.walk(dir, &[]).await?;
            let perm = Perm(dm::DIR | 0o755);
            self.ask(&T::Create { fid, name, perm, mode: READ, extension: b"" }).await?;
            self.clunk(fid).await;
        }
        self.walk(dir, &[name]).await
    }

    pub async fn read(&mut self, fid: Fid, offset: u64) -> Result<Vec<u8>, Errno> {
        Ok(self.ask(&T::Read { fid, offset, count: 8192 }).await?.message().payload().to_vec())
    }

    /// All of `data`, at `offset`.
    pub async fn write(&mut self, fid: Fid, offset: u64, data: &[u8]) {
        let reply = self.ask(&T::Write { fid, offset, data: Payload(data) }).await.unwrap();
        assert_eq!(reply.message(), R::Write { count: data.len() as u32 });
    }

    /// What is read by somebody who opens it now.
    pub async fn contents(&mut self, fid: Fid) -> Result<Vec<u8>, Errno> {
        let open = self.open(fid, READ).await?;
        let data = self.read(open, 0).await;
        self.clunk(open).await;
        data
    }

    pub async fn look(&mut self, fid: Fid) -> Result<Look, Errno> {
        if self.dialect == Dialect::Linux {
            let reply = self.ask(&T::Getattr { fid, request_mask: Mask(getattr::BASIC) }).await?;
            let R::Getattr { qid, mode: Octal(mode), uid, size, mtime_sec: mtime, .. } = reply.message() else {
                panic!("{reply:?}")
            };
            let size = if mode & S_IFMT == S_IFDIR { 0 } else { size };
            return Ok(Look { path: qid.path, mode, size, mtime, uid });
        }
        let reply = self.ask(&T::Stat { fid }).await?;
        let R::Stat { stat: StatBytes(bytes) } = reply.message() else { panic!("{reply:?}") };
        let stat = Stat::decode(bytes, self.dialect).unwrap();
        let kinds = [(dm::DIR, S_IFDIR), (dm::NAMEDPIPE, S_IFIFO), (dm::SOCKET, S_IFSOCK)];
        let kind = kinds.iter().find(|(bit, _)| stat.mode & bit != 0).map_or(S_IFREG, |(_, kind)| *kind);
        let (mode, mtime) = (kind | stat.mode & 0o777, stat.mtime.into());
        Ok(Look { path: stat.qid.path, mode, size: stat.length, mtime, uid: stat.n_uid })
    }

    async fn wstat(&mut self, fid: Fid, stat: &Stat<'_>) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        stat.encode(self.dialect, &mut bytes);
        self.ask(&T::Wstat { fid, stat: StatBytes(&bytes) }).await.map(drop)
    }

    /// .L: sets the one that `valid` names.
    async fn setattr(&mut self, fid: Fid, valid: u32, value: u64) -> Result<(), Errno> {
        let (valid, mode, size, mtime_sec) = (Octal(valid), Octal(value as u32), value, value);
        let (uid, gid, atime_sec, atime_nsec, mtime_nsec) = (0, 0, 0, 0, 0);
        let set = T::Setattr { fid, valid, mode, uid, gid, size, atime_sec, atime_nsec, mtime_sec, mtime_nsec };
        self.ask(&set).await.map(drop)
    }

    pub async fn truncate(&mut self, fid: Fid, size: u64) -> Result<(), Errno> {
        match self.dialect {
            Dialect::Linux => self.setattr(fid, setattr::SIZE, size).await,
            Dialect::Plan9 | Dialect::Unix => self.wstat(fid, &Stat { length: size, ..Stat::UNTOUCHED }).await,
        }
    }

    /// Sets permission bits. In wstat(5) the bits that tell what a file is stay as they are.
    pub async fn chmod(&mut self, fid: Fid, mode: u32) -> Result<(), Errno> {
        if self.dialect == Dialect::Linux {
            return self.setattr(fid, setattr::MODE, mode.into()).await;
        }
        let kind = match self.look(fid).await?.mode & S_IFMT {
            S_IFDIR => dm::DIR,
            S_IFIFO => dm::NAMEDPIPE,
            S_IFSOCK => dm::SOCKET,
            _ => 0,
        };
        self.wstat(fid, &Stat { mode: kind | mode, ..Stat::UNTOUCHED }).await
    }

    /// Sets the time of modification, in seconds since 1970.
    pub async fn touch(&mut self, fid: Fid, mtime: u32) -> Result<(), Errno> {
        match self.dialect {
            Dialect::Linux => self.setattr(fid, setattr::MTIME | setattr::MTIME_SET, mtime.into()).await,
            Dialect::Plan9 | Dialect::Unix => self.wstat(fid, &Stat { mtime, ..Stat::UNTOUCHED }).await,
        }
    }

    /// Gives the file of `fid` a second name in `dir`. 9P2000 has no word for it.
    pub async fn link(&mut self, dir: Fid, fid: Fid, name: &[u8]) -> Result<(), Errno> {
        if self.dialect == Dialect::Linux {
            return self.ask(&T::Link { dfid: dir, fid, name }).await.map(drop);
        }
        let new = self.walk(dir, &[]).await?;
        let (perm, extension) = (Perm(dm::LINK), fid.0.to_string());
        self.ask(&T::Create { fid: new, name, perm, mode: READ, extension: extension.as_bytes() }).await?;
        self.clunk(new).await;
        Ok(())
    }

    /// Renames the file of `fid` within `dir`, its directory.
    pub async fn rename(&mut self, fid: Fid, dir: Fid, name: &[u8]) -> Result<(), Errno> {
        match self.dialect {
            Dialect::Linux => self.ask(&T::Rename { fid, dfid: dir, name }).await.map(drop),
            Dialect::Plan9 | Dialect::Unix => self.wstat(fid, &Stat { name, ..Stat::UNTOUCHED }).await,
        }
    }

    /// .L: moves an entry, asked by the names.
    pub async fn renameat(&mut self, from: Fid, oldname: &[u8], to: Fid, newname: &[u8]) -> Result<(), Errno> {
        self.ask(&T::Renameat { olddirfid: from, oldname, newdirfid: to, newname }).await.map(drop)
    }

    /// Removes the file of `fid`, which is forgotten.
    pub async fn remove(&mut self, fid: Fid) -> Result<(), Errno> {
        self.ask(&T::Remove { fid }).await.map(drop)
    }

    /// The names in a directory, sorted, without `.` and `..`.
    pub async fn list(&mut self, dir: Fid) -> Result<Vec<Vec<u8>>, Errno> {
        let (open, count) = (self.open(dir, READ).await?, 8192);
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let before = names.len();
            if self.dialect == Dialect::Linux {
                let reply = self.ask(&T::Readdir { fid: open, offset, count }).await?;
                for entry in dir_entries(reply.message().payload()) {
                    let entry = entry.unwrap();
                    offset = entry.offset;
                    names.push(entry.name.to_vec());
                }
            } else {
                let reply = self.ask(&T::Read { fid: open, offset, count }).await?;
                let data = reply.message().payload().to_vec();
                offset += data.len() as u64;
                names.extend(stats(&data, self.dialect).map(|stat| stat.unwrap().name.to_vec()));
            }
            if names.len() == before {
                break;
            }
        }
        self.clunk(open).await;
        names.retain(|name| name != b"." && name != b"..");
        names.sort();
        Ok(names)
    }
}
