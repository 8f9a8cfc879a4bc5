//! Bytes on the wire: a bounded [`Reader`], a [`Writer`], and the frame header.
//!
//! A frame is `size[4] type[1] tag[2] body`, little-endian, `size` counting itself (intro(5)).
//! [`split_frame`] cuts frames off a byte stream; [`Reader`] borrows from a frame and never
//! allocates; a count is compared with the bytes left before anything follows it.

use alloc::vec::Vec;

use crate::types::{Fid, Qid, QidType, Tag};

/// `size[4] type[1] tag[2]`.
pub const HEADER: usize = 7;

/// The smallest msize that is accepted (protocol.md): room for one stat entry and a header.
pub const MSIZE_MIN: u32 = 4096;

/// Rread's and Rreaddir's bytes before the data: header and `count[4]`.
pub const READ_OVERHEAD: u32 = 11;

/// Rreaddirplus's: header, `flags[4] count[4]`.
pub const PLUS_OVERHEAD: u32 = 15;

/// The largest header of a message with data, Twrite: header, `fid[4] offset[8] count[4]`.
pub const WRITE_OVERHEAD: u32 = 23;

/// What a client leaves of msize for the header of a read or a write, as Plan 9's and Linux's do (`IOHDRSZ`, fcall(3);
/// `P9_IOHDRSZ`, include/net/9p/9p.h). diod refuses to read and to write more.
pub const IO_HEADER: u32 = 24;

/// Why bytes are not the message they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("frame size {0} is smaller than its own header of 7")]
    SizeTooSmall(u32),
    #[error("frame size {size} is over {msize}, the most that may come now")]
    SizeTooLarge { size: u32, msize: u32 },
    #[error("message ends inside field '{0}'")]
    Short(&'static str),
    #[error("{0} bytes left over behind the last field")]
    Trailing(usize),
    #[error("message type {0} is unknown in this dialect")]
    UnknownType(u8),
    #[error("length {0} of a stat record does not agree with the bytes inside it")]
    StatLength(usize),
    #[error("a time of {0} nanoseconds")]
    Nanoseconds(u64),
}

/// Cuts bounded fields from a slice; every read names the field for the error.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes }
    }

    /// Bytes not yet read.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.left.len()
    }

    /// The next `n` bytes, borrowed.
    #[inline]
    pub fn take(&mut self, n: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.left.split_at_checked(n).ok_or(DecodeError::Short(field))?;
        self.left = tail;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self.left.split_first_chunk::<N>().ok_or(DecodeError::Short(field))?;
        self.left = tail;
        Ok(*head)
    }

    #[inline]
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(field).map(|[b]| b)
    }

    #[inline]
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_le_bytes)
    }

    #[inline]
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_le_bytes)
    }

    #[inline]
    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_le_bytes)
    }

    #[inline]
    pub fn fid(&mut self, field: &'static str) -> Result<Fid, DecodeError> {
        self.u32(field).map(Fid)
    }

    #[inline]
    pub fn tag(&mut self, field: &'static str) -> Result<Tag, DecodeError> {
        self.u16(field).map(Tag)
    }

    #[inline]
    pub fn qid(&mut self, field: &'static str) -> Result<Qid, DecodeError> {
        Ok(Qid { kind: QidType(self.u8(field)?), version: self.u32(field)?, path: self.u64(field)? })
    }

    #[inline]
    pub fn secret(&mut self, field: &'static str) -> Result<[u8; 16], DecodeError> {
        self.array(field)
    }

    /// A string `s[2] bytes`.
    #[inline]
    pub fn string(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let n = self.u16(field)?;
        self.take(n.into(), field)
    }

    /// Ends the reading: bytes left over are an error.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.left.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.left.len())) }
    }
}

/// Appends fields to a vector.
#[derive(Debug)]
pub struct Writer<'v> {
    out: &'v mut Vec<u8>,
}

impl<'v> Writer<'v> {
    /// Appends to `out`.
    #[inline]
    pub fn new(out: &'v mut Vec<u8>) -> Writer<'v> {
        Writer { out }
    }

    /// Bytes in the vector so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    #[inline]
    pub fn u8(&mut self, v: u8) {
        self.out.push(v);
    }

    #[inline]
    pub fn u16(&mut self, v: u16) {
        self.bytes(&v.to_le_bytes());
    }

    #[inline]
    pub fn u32(&mut self, v: u32) {
        self.bytes(&v.to_le_bytes());
    }

    #[inline]
    pub fn u64(&mut self, v: u64) {
        self.bytes(&v.to_le_bytes());
    }

    #[inline]
    pub fn qid(&mut self, q: &Qid) {
        self.u8(q.kind.0);
        self.u32(q.version);
        self.u64(q.path);
    }

    /// A string `s[2] bytes`. A string over 65,535 bytes cannot be told on the wire: it is cut at a
    /// character boundary where it is UTF-8. No caller has one: names are checked before, error texts are ours.
    #[inline]
    pub fn string(&mut self, s: &[u8]) {
        let mut end = s.len().min(usize::from(u16::MAX));
        while end < s.len() && end > 0 && s[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        self.u16(end as u16);
        self.bytes(&s[..end]);
    }

    /// Overwrites two bytes at `at` with the number of bytes written behind them.
    pub fn patch_len16(&mut self, at: usize) {
        let n = u16::try_from(self.out.len() - at - 2).unwrap_or(u16::MAX);
        self.out[at..at + 2].copy_from_slice(&n.to_le_bytes());
    }

    /// Overwrites four bytes at `at` with `v`.
    pub fn patch_u32(&mut self, at: usize, v: u32) {
        self.out[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }
}

/// A frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes of the whole frame, these four included.
    pub size: u32,
    /// Message number.
    pub kind: u8,
    pub tag: Tag,
}

/// Looks at the front of a byte stream: the size in bytes of the frame that starts there, or `None`
/// while fewer than four bytes have come.
///
/// A size under [`HEADER`] or over `msize` is an error as soon as its four bytes are there, before
/// anything is allocated for it.
pub fn frame_size(stream: &[u8], msize: u32) -> Result<Option<usize>, DecodeError> {
    let Some(size) = stream.first_chunk::<4>() else { return Ok(None) };
    let size = u32::from_le_bytes(*size);
    if (size as usize) < HEADER {
        return Err(DecodeError::SizeTooSmall(size));
    }
    if size > msize {
        return Err(DecodeError::SizeTooLarge { size, msize });
    }
    Ok(Some(size as usize))
}

/// Splits one whole frame into header and body; `frame` must be exactly one frame.
pub fn split_frame(frame: &[u8]) -> Result<(Header, &[u8]), DecodeError> {
    let mut r = Reader::new(frame);
    let header = Header { size: r.u32("size")?, kind: r.u8("type")?, tag: r.tag("tag")? };
    if (header.size as usize) < HEADER {
        return Err(DecodeError::SizeTooSmall(header.size));
    }
    let body = r.take(header.size as usize - HEADER, "body")?;
    r.finish()?;
    Ok((header, body))
}
