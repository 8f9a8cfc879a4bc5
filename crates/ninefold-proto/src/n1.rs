//! The bits and numbers of `.n1`'s own messages; docs/protocol.md has their meaning.

/// Flags of Tsession.
pub mod session {
    /// Make the session if the server knows none of this number; without it that is `ESESSION`.
    pub const CREATE: u32 = 1;
    pub const ALL: u32 = 1;
}

/// Streams: what a data connection begins with, and the flags of Tstream.
pub mod stream {
    /// Before the token. As a size its first four bytes exceed any msize, so that it is told from a Tversion.
    pub const PREFACE: [u8; 8] = *b"9Pstream";
    /// The same before a token that the client made, and said in its Tstream: that may be still on its way. It begins with the same four bytes.
    pub const PREFACE_OWN: [u8; 8] = *b"9Pstmine";
    /// [`PREFACE`] and the token.
    pub const OPENING: usize = 24;
    /// The connection does not end with the stream, if all of its bytes went: another stream's preface and token may follow, sent at any time.
    /// Only of one that is read, and has a length.
    pub const MORE: u32 = 1;
    /// What is sent is copied first: whoever changes the file behind that changes nothing of it. Only of one that is read.
    pub const COPIED: u32 = 2;
    /// With [`COPIED`] only: but not where the file has [`LONG`] bytes or more behind the stream, when it is asked for.
    pub const UNLESS_LONG: u32 = 4;
    /// With [`MORE`], [`COPIED`] and [`UNLESS_LONG`], and only so: of a file of no more than [`LONG`] bytes the stream has an even share, and of a longer one what it asks
    /// for. The flags from [`LAST_BIT`] on are among how many streams the file is shared; which of them it is says `offset`, that number times `length`.
    pub const SHARED: u32 = 8;
    /// The most of those.
    pub const SHARES: u32 = 64;
    /// With [`MORE`] only: the connection tells the end of a stream that came whole. Behind its last byte come [`TOLD_BYTES`] more, which are the `modrev` of the
    /// Rstreamend that nobody need ask for then. Behind one that did not come whole nothing comes.
    pub const TOLD: u32 = 16;
    /// See [`TOLD`].
    pub const TOLD_BYTES: usize = 8;
    /// All that are one bit.
    pub const ALL: u32 = 31;
    /// See [`UNLESS_LONG`] and [`SHARED`].
    pub const LONG: u64 = 16 << 20;
    /// With [`COPIED`] and without [`UNLESS_LONG`], of a stream that has a length: the flags from this bit on are how many times [`LAST_UNIT`] of its last bytes are copied, behind pages.
    /// 0: all of it is.
    pub const LAST_BIT: u32 = 8;
    pub const LAST_UNIT: u64 = 64 << 10;
    /// The most of them.
    pub const LAST_MOST: u32 = u32::MAX >> LAST_BIT;
    /// Shares begin at whole ones of so many bytes.
    pub const SHARE_UNIT: u64 = 4096;

    /// A file's even share, of so many, by its number: where it begins, and how many bytes it has. None is in two of them.
    pub fn share(file: u64, number: u32, of: u32) -> (u64, u64) {
        let begin = |number: u32| match number {
            number if number >= of => file,
            number => {
                let even = u128::from(file) * u128::from(number) / u128::from(of.max(1));
                even as u64 / SHARE_UNIT * SHARE_UNIT
            }
        };
        let from = begin(number);
        (from, begin(number.saturating_add(1)) - from)
    }
}

/// Flags of Tstreamend.
pub mod streamend {
    /// The stream is to end now; answered when the server has let go of it.
    pub const ABORT: u32 = 1;
    pub const ALL: u32 = 1;
}

/// Flags of Rreaddirplus.
pub mod listed {
    /// Behind the last entry given there was nothing when it was read.
    pub const END: u32 = 1;
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

/// Flags of Tguard.
pub mod guard {
    /// What it guards is done up to the first that fails, or writes less than it was asked to, and no further.
    pub const STOP: u32 = 1;
    /// Of what it guards the first is done, and the others where that failed.
    pub const UNLESS: u32 = 2;
    pub const ALL: u32 = 3;
}

/// The first of Rlerror's codes that is no number of Linux.
pub const OWN_ERRORS: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::stream::{LONG, SHARE_UNIT, SHARES, share};

    #[test]
    fn the_shares_of_a_file_are_all_of_it_once_and_even_but_for_a_unit() {
        for file in [0, 1, 4095, 4096, 300_000, LONG - 1, LONG, u64::MAX] {
            for of in [1, 2, 3, 8, 16, SHARES] {
                let mut next = 0;
                for number in 0..of {
                    let (from, length) = share(file, number, of);
                    assert_eq!(from, next, "{file} {number} of {of}");
                    assert!(from % SHARE_UNIT == 0 || length == 0 && from == file);
                    assert!(length.abs_diff(file / u64::from(of)) <= SHARE_UNIT);
                    next = from + length;
                }
                assert_eq!(next, file, "{file} of {of}");
                assert_eq!(share(file, of, of), (file, 0));
            }
        }
        assert_eq!(share(9, 0, 0), (9, 0));
        assert_eq!(share(9, u32::MAX, 3), (9, 0));
    }
}
