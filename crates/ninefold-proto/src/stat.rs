//! 9P2000's stat record, with .u's four fields, and the two formats of directory entries (stat(5), read(5)).

use alloc::vec::Vec;

use crate::dialect::Dialect;
use crate::types::Qid;
use crate::wire::{DecodeError, Reader, Writer};

/// Mode bits of a stat record and of create's perm (stat(5)).
pub mod dm {
    pub const DIR: u32 = 0x8000_0000;
    pub const APPEND: u32 = 0x4000_0000;
    pub const EXCL: u32 = 0x2000_0000;
    pub const MOUNT: u32 = 0x1000_0000;
    pub const AUTH: u32 = 0x0800_0000;
    pub const TMP: u32 = 0x0400_0000;
    /// .u
    pub const SYMLINK: u32 = 0x0200_0000;
    /// .u: the extension is the number of the fid to link to
    pub const LINK: u32 = 0x0100_0000;
    /// .u: the extension is `b major minor` or `c major minor`
    pub const DEVICE: u32 = 0x0080_0000;
    /// .u
    pub const NAMEDPIPE: u32 = 0x0020_0000;
    /// .u
    pub const SOCKET: u32 = 0x0010_0000;
    /// .u
    pub const SETUID: u32 = 0x0008_0000;
    /// .u
    pub const SETGID: u32 = 0x0004_0000;
    /// .u: the sticky bit (Linux `P9_DMSETVTX`)
    pub const SETVTX: u32 = 0x0001_0000;
    /// Bits that only .u knows.
    pub const UNIX: u32 = SYMLINK | LINK | DEVICE | NAMEDPIPE | SOCKET | SETUID | SETGID | SETVTX;
}

/// Bits of open's and create's mode byte (open(5)).
pub mod omode {
    pub const READ: u8 = 0;
    pub const WRITE: u8 = 1;
    pub const RDWR: u8 = 2;
    pub const EXEC: u8 = 3;
    pub const TRUNC: u8 = 0x10;
    /// Remove when clunked.
    pub const RCLOSE: u8 = 0x40;
    /// Every bit that open(5) defines.
    pub const ALL: u8 = 0x53;
    /// Ours, of Tcreate under `.ix`: a file that is there is an error, where it is opened and cut otherwise.
    pub const EXCL: u8 = 0x20;
    /// .u, from Linux's client: all writes go to the end (`P9_OAPPEND`).
    pub const APPEND: u8 = 0x80;
    /// .u, from Linux's client: close on exec, which is the client's own matter (`P9_OCEXEC`).
    pub const CEXEC: u8 = 0x20;
}

/// A stat record. Strings borrow from the frame, or from whoever writes the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat<'a> {
    /// For the kernel's use; the server's type and device in Plan 9, 0 from us.
    pub kind: u16,
    pub dev: u32,
    pub qid: Qid,
    /// Bits of [`dm`] and 0o777.
    pub mode: u32,
    /// Seconds since 1970.
    pub atime: u32,
    /// Seconds since 1970.
    pub mtime: u32,
    /// Bytes; 0 for a directory.
    pub length: u64,
    pub name: &'a [u8],
    pub uid: &'a [u8],
    pub gid: &'a [u8],
    pub muid: &'a [u8],
    /// .u: a symbolic link's target, or what device it is.
    pub extension: &'a [u8],
    /// .u
    pub n_uid: u32,
    /// .u
    pub n_gid: u32,
    /// .u
    pub n_muid: u32,
}

impl<'a> Stat<'a> {
    /// A record for Twstat that changes nothing: every field "don't touch" (stat(5)).
    pub const UNTOUCHED: Stat<'static> = Stat {
        kind: u16::MAX,
        dev: u32::MAX,
        qid: Qid { kind: crate::types::QidType(u8::MAX), version: u32::MAX, path: u64::MAX },
        mode: u32::MAX,
        atime: u32::MAX,
        mtime: u32::MAX,
        length: u64::MAX,
        name: b"",
        uid: b"",
        gid: b"",
        muid: b"",
        extension: b"",
        n_uid: u32::MAX,
        n_gid: u32::MAX,
        n_muid: u32::MAX,
    };

    /// Reads one record `size[2] …`, as directories hold them, and nothing behind it.
    pub fn read(r: &mut Reader<'a>, dialect: Dialect) -> Result<Stat<'a>, DecodeError> {
        let body = r.string("stat")?;
        let r = &mut Reader::new(body);
        let unix = dialect == Dialect::Unix;
        let stat = Stat {
            kind: r.u16("type")?,
            dev: r.u32("dev")?,
            qid: r.qid("qid")?,
            mode: r.u32("mode")?,
            atime: r.u32("atime")?,
            mtime: r.u32("mtime")?,
            length: r.u64("length")?,
            name: r.string("name")?,
            uid: r.string("uid")?,
            gid: r.string("gid")?,
            muid: r.string("muid")?,
            extension: if unix { r.string("extension")? } else { b"" },
            n_uid: if unix { r.u32("n_uid")? } else { u32::MAX },
            n_gid: if unix { r.u32("n_gid")? } else { u32::MAX },
            n_muid: if unix { r.u32("n_muid")? } else { u32::MAX },
        };
        if r.remaining() != 0 {
            return Err(DecodeError::StatLength(body.len()));
        }
        Ok(stat)
    }

    /// Reads exactly one record from the bytes of Rstat or Twstat.
    pub fn decode(bytes: &'a [u8], dialect: Dialect) -> Result<Stat<'a>, DecodeError> {
        let mut r = Reader::new(bytes);
        let stat = Stat::read(&mut r, dialect)?;
        r.finish()?;
        Ok(stat)
    }

    /// Appends the record `size[2] …`.
    pub fn encode(&self, dialect: Dialect, out: &mut Vec<u8>) {
        let start = out.len();
        let mut w = Writer::new(out);
        w.u16(0);
        w.u16(self.kind);
        w.u32(self.dev);
        w.qid(&self.qid);
        w.u32(self.mode);
        w.u32(self.atime);
        w.u32(self.mtime);
        w.u64(self.length);
        for s in [self.name, self.uid, self.gid, self.muid] {
            w.string(s);
        }
        if dialect == Dialect::Unix {
            w.string(self.extension);
            w.u32(self.n_uid);
            w.u32(self.n_gid);
            w.u32(self.n_muid);
        }
        w.patch_len16(start);
    }

    /// Bytes that [`Stat::encode`] will append.
    pub fn encoded_len(&self, dialect: Dialect) -> usize {
        let strings = self.name.len() + self.uid.len() + self.gid.len() + self.muid.len();
        let fixed = 2 + 2 + 4 + Qid::SIZE + 4 + 4 + 4 + 8 + 4 * 2;
        let unix = if dialect == Dialect::Unix { 2 + self.extension.len() + 12 } else { 0 };
        fixed + strings + unix
    }
}

/// A stat record that owns its strings: what a file server answers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatBuf {
    pub qid: Qid,
    /// Bits of [`dm`] and 0o777.
    pub mode: u32,
    pub atime: u32,
    pub mtime: u32,
    pub length: u64,
    pub name: Vec<u8>,
    pub uid: Vec<u8>,
    pub gid: Vec<u8>,
    pub muid: Vec<u8>,
    pub extension: Vec<u8>,
    pub n_uid: u32,
    pub n_gid: u32,
    pub n_muid: u32,
}

impl StatBuf {
    /// The record, borrowing the strings.
    pub fn as_stat(&self) -> Stat<'_> {
        Stat {
            kind: 0,
            dev: 0,
            qid: self.qid,
            mode: self.mode,
            atime: self.atime,
            mtime: self.mtime,
            length: self.length,
            name: &self.name,
            uid: &self.uid,
            gid: &self.gid,
            muid: &self.muid,
            extension: &self.extension,
            n_uid: self.n_uid,
            n_gid: self.n_gid,
            n_muid: self.n_muid,
        }
    }
}

/// Reads the records of a 9P2000 directory; the bytes of one Rread hold whole records only (read(5)).
pub fn stats(data: &[u8], dialect: Dialect) -> impl Iterator<Item = Result<Stat<'_>, DecodeError>> {
    let mut r = Reader::new(data);
    core::iter::from_fn(move || {
        if r.remaining() == 0 {
            return None;
        }
        let item = Stat::read(&mut r, dialect);
        if item.is_err() {
            r = Reader::new(&[]);
        }
        Some(item)
    })
}

/// A directory entry of .L: `qid[13] offset[8] type[1] name[s]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    pub qid: Qid,
    /// The cookie to read on from behind this entry.
    pub offset: u64,
    /// `DT_DIR` and so on, as getdents(2) has it.
    pub kind: u8,
    pub name: &'a [u8],
}

impl<'a> DirEntry<'a> {
    pub(crate) fn decode(r: &mut Reader<'a>) -> Result<DirEntry<'a>, DecodeError> {
        Ok(DirEntry { qid: r.qid("qid")?, offset: r.u64("offset")?, kind: r.u8("type")?, name: r.string("name")? })
    }

    /// Bytes that [`DirEntry::encode`] will append.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        Qid::SIZE + 8 + 1 + 2 + self.name.len()
    }

    /// Appends the entry.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        let mut w = Writer::new(out);
        w.qid(&self.qid);
        w.u64(self.offset);
        w.u8(self.kind);
        w.string(self.name);
    }
}

/// Reads the entries of an Rreaddir.
pub fn dir_entries(data: &[u8]) -> impl Iterator<Item = Result<DirEntry<'_>, DecodeError>> {
    let mut r = Reader::new(data);
    core::iter::from_fn(move || {
        if r.remaining() == 0 {
            return None;
        }
        let item = DirEntry::decode(&mut r);
        if item.is_err() {
            r = Reader::new(&[]);
        }
        Some(item)
    })
}
