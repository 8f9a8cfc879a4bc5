//! How a file is opened: 9P2000's mode byte and .L's flags, brought to one form.

use crate::dialect::Dialect;
use crate::error::Errno;
use crate::stat::omode;

/// .L's open flags: Linux's own numbers on x86 whatever the machine (`P9_DOTL_*`).
pub mod lflags {
    pub const ACCMODE: u32 = 0o3;
    pub const WRONLY: u32 = 0o1;
    pub const RDWR: u32 = 0o2;
    pub const CREAT: u32 = 0o100;
    pub const EXCL: u32 = 0o200;
    pub const NOCTTY: u32 = 0o400;
    pub const TRUNC: u32 = 0o1000;
    pub const APPEND: u32 = 0o2000;
    pub const NONBLOCK: u32 = 0o4000;
    pub const DSYNC: u32 = 0o10000;
    pub const FASYNC: u32 = 0o20000;
    pub const DIRECT: u32 = 0o40000;
    pub const LARGEFILE: u32 = 0o100000;
    pub const DIRECTORY: u32 = 0o200000;
    pub const NOFOLLOW: u32 = 0o400000;
    pub const NOATIME: u32 = 0o1000000;
    pub const CLOEXEC: u32 = 0o2000000;
    /// `__O_SYNC`; O_SYNC is this and DSYNC.
    pub const SYNC: u32 = 0o4000000;
    /// O_PATH and O_TMPFILE have no meaning on the wire; a request with them is refused.
    pub const REFUSED: u32 = 0o10000000 | 0o20000000;
}

/// What an open fid may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
    /// 9P2000's OEXEC: execute permission is needed, then it is read.
    Exec,
}

impl Access {
    /// Whether Tread is allowed.
    pub fn can_read(self) -> bool {
        self != Access::Write
    }

    /// Whether Twrite is allowed.
    pub fn can_write(self) -> bool {
        matches!(self, Access::Write | Access::ReadWrite)
    }
}

/// How to open, in one form for all dialects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    pub access: Access,
    /// Bits of [`lflags`] without ACCMODE. 9P2000 sets TRUNC only, .u APPEND too; lcreate's CREAT is not in it.
    pub flags: u32,
    /// 9P2000's ORCLOSE: the server removes the file when the fid is clunked.
    pub remove_on_clunk: bool,
}

impl Open {
    /// From Topen's or Tcreate's mode byte (open(5)).
    pub fn from_mode(mode: u8, dialect: Dialect) -> Result<Open, Errno> {
        let unix = if dialect == Dialect::Unix { omode::APPEND | omode::CEXEC } else { 0 };
        if mode & !(omode::ALL | unix) != 0 {
            return Err(Errno::EINVAL);
        }
        let access = match mode & 3 {
            omode::READ => Access::Read,
            omode::WRITE => Access::Write,
            omode::RDWR => Access::ReadWrite,
            _ => Access::Exec,
        };
        let mut flags = 0;
        for (bit, flag) in [(omode::TRUNC, lflags::TRUNC), (omode::APPEND, lflags::APPEND)] {
            if mode & bit != 0 {
                flags |= flag;
            }
        }
        Ok(Open { access, flags, remove_on_clunk: mode & omode::RCLOSE != 0 })
    }

    /// From Tlopen's or Tlcreate's flags.
    pub fn from_lflags(flags: u32) -> Result<Open, Errno> {
        let access = match flags & lflags::ACCMODE {
            0 => Access::Read,
            lflags::WRONLY => Access::Write,
            lflags::RDWR => Access::ReadWrite,
            _ => return Err(Errno::EINVAL),
        };
        // O_TMPFILE includes O_DIRECTORY's bit; the refused bits stand for it and for O_PATH.
        if flags & lflags::REFUSED != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(Open { access, flags: flags & !(lflags::ACCMODE | lflags::CREAT), remove_on_clunk: false })
    }

    /// Whether a bit of [`lflags`] is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}
