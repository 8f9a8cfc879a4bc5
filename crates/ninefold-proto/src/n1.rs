//! The bits and numbers of `.n1`'s own messages; docs/protocol.md has their meaning.

/// Flags of Tsession.
pub mod session {
    /// Make the session if the server knows none of this number; without it that is `ESESSION`.
    pub const CREATE: u32 = 1;
    pub const ALL: u32 = 1;
}

/// Flags of Twritex.
pub mod writex {
    /// At the end of the file, wherever that is by then; the offset must be 0.
    pub const APPEND: u32 = 1;
    /// On the server's disk before the reply: fsync(2).
    pub const STABLE: u32 = 2;
    pub const ALL: u32 = 3;
}

/// Modes of Tallocate, as fallocate(2) has them.
pub mod allocate {
    pub const KEEP_SIZE: u32 = 0x01;
    /// With [`KEEP_SIZE`] only.
    pub const PUNCH_HOLE: u32 = 0x02;
    pub const ZERO_RANGE: u32 = 0x10;
    pub const ALL: u32 = 0x13;
}

/// Values of Tseek's whence, as Linux's lseek(2) has them.
pub mod seek {
    pub const DATA: u32 = 3;
    pub const HOLE: u32 = 4;
}

/// Flags of Trename2, as renameat2(2) has them; not both.
pub mod rename2 {
    pub const NOREPLACE: u32 = 1;
    pub const EXCHANGE: u32 = 2;
    pub const ALL: u32 = 3;
}

/// Bits of Taccess, as access(2) has them; none asks whether the file is there.
pub mod access {
    pub const EXECUTE: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const READ: u32 = 4;
    pub const ALL: u32 = 7;
}

/// The first of Rlerror's codes that is no number of Linux.
pub const OWN_ERRORS: u32 = 4096;
