//! What `.n1` adds to files: the checks of its requests, and the replies to them. Sessions and guards are no part of it.
//!
//! [`Session::check_n1`] is asked for what `request.rs` does not know, and [`Session::settle_n1`] when the result is there.

use alloc::vec::Vec;

use super::fids::HandleId;
use super::op::{Done, Op, Rename};
use super::outbox::Bulk;
use super::reply::Reply;
use super::request::{Checked, Stop, name, refused};
use super::session::{After, Outstanding, Session};
use crate::error::Errno;
use crate::message::T;
use crate::n1::{access, allocate, rename2, seek, writex};
use crate::types::{Fid, QidType};
use crate::wire::PLUS_OVERHEAD;

/// What a completion must hold its result against.
#[derive(Clone, Copy, Debug)]
pub(super) enum AfterN1 {
    /// `count`: the most bytes that were asked for.
    Readdirplus {
        count: u32,
    },
    Access {
        asked: u32,
    },
    Writex {
        len: u32,
    },
    Copyrange {
        length: u64,
    },
    Seek {
        offset: u64,
    },
    Stream,
    StreamEnd,
}

/// Bits that a message does not have (`what` names its field).
pub(super) fn known(bits: u32, all: u32, what: &'static str) -> Result<(), Stop> {
    if bits & !all == 0 { Ok(()) } else { refused(Errno::EINVAL, what) }
}

/// A range of a file, whose end is an offset too (off_t is signed).
pub(super) fn range(offset: u64, length: u64) -> Result<(), Stop> {
    match offset.checked_add(length) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => refused(Errno::EINVAL, "offset and count overflow"),
    }
}

/// Whether two ranges of one file, both of `length` bytes, share a byte.
fn overlap(one: u64, other: u64, length: u64) -> bool {
    one.abs_diff(other) < length
}

impl<F: Clone, P: Bulk + From<Vec<u8>>, B: AsRef<[u8]> + Clone + From<Vec<u8>>> Session<F, P, B> {
    /// The requests of `.n1`; one that this server does not have is EOPNOTSUPP.
    pub(super) fn check_n1<'a>(&mut self, message: T<'a>) -> Result<Checked<'a, F>, Stop> {
        let number = message.number();
        let checked = |op, after, first: HandleId, second: Option<HandleId>| Checked {
            op,
            after,
            handles: [Some(first), second],
            exclusive: false,
            reserve: None,
        };
        Ok(match message {
            T::Readdirplus { fid, offset, count, request_mask, flags } => {
                known(flags.0, 0, "unknown readdirplus flags")?;
                let (id, file) = self.readable_dir(fid)?;
                let count = count.min(self.msize - PLUS_OVERHEAD);
                let op = Op::Readdirplus { file, offset, max: count, mask: request_mask.0 };
                checked(op, After::N1(AfterN1::Readdirplus { count }), id, None)
            }
            T::Access { fid, mode } => {
                known(mode.0, access::ALL, "unknown access bits")?;
                let (id, file) = self.file(fid)?;
                let read_only = self.fids.get(id).is_some_and(|handle| handle.read_only);
                let asked = if read_only { mode.0 & !access::WRITE } else { mode.0 };
                checked(Op::Access { file, mode: asked }, After::N1(AfterN1::Access { asked }), id, None)
            }
            T::Writex { fid, offset, flags, data } => {
                known(flags.0, writex::ALL, "unknown write flags")?;
                let has = |flag| flags.0 & flag != 0;
                let (id, file) = self.written(fid)?;
                if has(writex::APPEND) && offset != 0 {
                    return refused(Errno::EINVAL, "an appending write has no offset");
                }
                let len = data.0.len() as u32;
                range(offset, len.into())?;
                let (append, stable) = (has(writex::APPEND), has(writex::STABLE));
                let op = Op::Writex { file, offset, data: data.0, append, stable };
                checked(op, After::N1(AfterN1::Writex { len }), id, None)
            }
            T::Copyrange { srcfid, srcoffset, dstfid, dstoffset, length, flags } => {
                known(flags.0, 0, "unknown copy flags")?;
                let (from, file) = self.file(srcfid)?;
                let Some(handle) = self.fids.get(from) else { return Err(Errno::EBADF.into()) };
                if !handle.access()?.can_read() {
                    return refused(Errno::EBADF, "fid is not open for reading");
                }
                if handle.is_dir() {
                    return Err(Errno::EISDIR.into());
                }
                let (to, target) = self.written(dstfid)?;
                if self.fids.get(to).is_some_and(|handle| handle.appends()) {
                    return refused(Errno::EBADF, "fid is open for appending");
                }
                range(srcoffset, length)?;
                range(dstoffset, length)?;
                // Of two fids only the file server knows whether they are one file.
                if from == to && overlap(srcoffset, dstoffset, length) {
                    return refused(Errno::EINVAL, "ranges of one file overlap");
                }
                let op = Op::Copyrange { file, offset: srcoffset, target, target_offset: dstoffset, length };
                checked(op, After::N1(AfterN1::Copyrange { length }), from, (from != to).then_some(to))
            }
            T::Allocate { fid, mode, offset, length } => {
                let mode = mode.0;
                known(mode, allocate::ALL, "unknown allocation mode")?;
                let punches = mode & allocate::PUNCH_HOLE != 0;
                if punches && mode != allocate::PUNCH_HOLE | allocate::KEEP_SIZE {
                    return refused(Errno::EINVAL, "a hole is punched with KEEP_SIZE, and nothing else");
                }
                let (id, file) = self.written(fid)?;
                let destroys = mode & (allocate::PUNCH_HOLE | allocate::ZERO_RANGE) != 0;
                if destroys && self.fids.get(id).is_some_and(|handle| handle.kind.has(QidType::APPEND)) {
                    return refused(Errno::EPERM, "the file is append-only");
                }
                if length == 0 {
                    return refused(Errno::EINVAL, "nothing to allocate");
                }
                range(offset, length)?;
                checked(Op::Allocate { file, mode, offset, length }, After::Plain { number }, id, None)
            }
            T::Seek { fid, offset, whence } => {
                if whence != seek::DATA && whence != seek::HOLE {
                    return refused(Errno::EINVAL, "whence is neither DATA nor HOLE");
                }
                let (id, file) = self.file(fid)?;
                let Some(handle) = self.fids.get(id) else { return Err(Errno::EBADF.into()) };
                handle.access()?;
                if handle.is_dir() {
                    return Err(Errno::EISDIR.into());
                }
                range(offset, 0)?;
                let op = Op::Seek { file, offset, hole: whence == seek::HOLE };
                checked(op, After::N1(AfterN1::Seek { offset }), id, None)
            }
            T::Rename2 { olddirfid, oldname, newdirfid, newname, flags } => {
                known(flags.0, rename2::ALL, "unknown rename flags")?;
                let (id, file) = self.writable_dir(olddirfid)?;
                let (dir, newdir) = self.writable_dir(newdirfid)?;
                let (old, new) = (name(oldname)?, name(newname)?);
                let how = match flags.0 {
                    0 => None,
                    rename2::NOREPLACE => Some(Rename::NoReplace),
                    rename2::EXCHANGE => Some(Rename::Exchange),
                    _ => return refused(Errno::EINVAL, "rename either replaces nothing or exchanges"),
                };
                let op = match how {
                    None => Op::RenameEntry { file, old, newdir, new },
                    Some(how) => Op::RenameWith { file, old, newdir, new, how },
                };
                checked(op, After::Plain { number }, id, (id != dir).then_some(dir))
            }
            _ => return Err(Errno::EOPNOTSUPP.into()),
        })
    }

    /// The reply to a request that [`Session::check_n1`] let through.
    pub(super) fn settle_n1(&mut self, request: &Outstanding, after: AfterN1, done: Done<F, P>) -> Reply<P> {
        let is_offset = |offset: u64| offset <= i64::MAX as u64;
        match (after, done) {
            (AfterN1::Readdirplus { count }, Done::Listed { entries, end }) if entries.len() <= count as usize => {
                Reply::Readdirplus { entries, end }
            }
            (AfterN1::Access { asked }, Done::Access(mode)) if mode & !asked == 0 => Reply::Access(mode),
            (AfterN1::Writex { len }, Done::Written { offset, count }) if count <= len && is_offset(offset) => {
                Reply::Writex { offset, count }
            }
            (AfterN1::Copyrange { length }, Done::Copied(count)) if count <= length => Reply::Copyrange(count),
            (AfterN1::Seek { offset }, Done::Offset(at)) if at >= offset && is_offset(at) => Reply::Seek(at),
            (AfterN1::Stream | AfterN1::StreamEnd, done) => self.settle_stream(request, done),
            (_, done) => self.out_of_contract(request, done),
        }
    }

    /// A shared handle of a plain file that is open for writing.
    fn written(&mut self, fid: Fid) -> Result<(HandleId, F), Stop> {
        let (id, file) = self.file(fid)?;
        match self.fids.get(id) {
            Some(handle) if !handle.access()?.can_write() => refused(Errno::EBADF, "fid is not open for writing"),
            _ => Ok((id, file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_one_file_overlap_when_they_share_a_byte() {
        for (one, other, length, shared) in [
            (0, 0, 1, true),
            (0, 0, 0, false),
            (0, 10, 10, false),
            (0, 9, 10, true),
            (9, 0, 10, true),
            (u64::MAX, 0, 5, false),
        ] {
            assert_eq!(overlap(one, other, length), shared, "{one} {other} {length}");
        }
    }
}
