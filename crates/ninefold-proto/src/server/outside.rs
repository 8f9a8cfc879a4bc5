//! A Twrite whose data the driver has elsewhere, as in a pipe, by which the kernel moves them to a file.

use alloc::vec::Vec;

use super::op::{Op, Request};
use super::outbox::Bulk;
use super::request::Checked;
use super::session::Session;
use crate::types::{Fid, Tag};
use crate::wire::{Reader, WRITE_OVERHEAD};

/// Bytes of a Twrite before its data: `size[4] type[1] tag[2] fid[4] offset[8] count[4]`.
pub const WRITE_HEAD: usize = WRITE_OVERHEAD as usize;

/// Twrite's number.
const TWRITE: u8 = 118;

impl<F: Clone, P: Bulk + From<Vec<u8>>, B: AsRef<[u8]> + Clone + From<Vec<u8>>> Session<F, P, B> {
    /// By the first [`WRITE_HEAD`] bytes of a frame: the file that it writes to, if it is a Twrite that would be carried out at once. Then its data may
    /// be kept elsewhere as they come. Nothing is taken yet.
    pub fn written_file(&mut self, head: &[u8]) -> Option<F> {
        match self.write_outside(head)?.1.op {
            Op::WriteOutside { file, .. } => Some(file),
            _ => None,
        }
    }

    /// Takes a Twrite whose data have all come, by its first [`WRITE_HEAD`] bytes: it asks for [`Op::WriteOutside`]. `None`: nothing is taken, and
    /// the frame is for [`Session::handle_frame`] with its data.
    pub fn handle_write(&mut self, head: &[u8]) -> Option<Request<'static, F>> {
        let (tag, checked) = self.write_outside(head)?;
        self.next_serial();
        Some(self.begin(tag, checked))
    }

    fn write_outside(&mut self, head: &[u8]) -> Option<(Tag, Checked<'static, F>)> {
        let Head { size, tag, fid, offset, count } = Head::of(head)?;
        if u64::from(size) != u64::from(count) + WRITE_HEAD as u64 || size > self.msize() || !self.is_clear(tag) {
            return None;
        }
        let checked = self.check_write(fid, offset, count, |file| Op::WriteOutside { file, offset, len: count });
        checked.ok().map(|checked| (tag, checked))
    }
}

struct Head {
    size: u32,
    tag: Tag,
    fid: Fid,
    offset: u64,
    count: u32,
}

impl Head {
    /// `None` where they are not those of a Twrite.
    fn of(bytes: &[u8]) -> Option<Head> {
        let mut reader = Reader::new(bytes);
        let (size, kind, tag) = (reader.u32("size").ok()?, reader.u8("type").ok()?, reader.tag("tag").ok()?);
        let (fid, offset, count) = (reader.fid("fid").ok()?, reader.u64("offset").ok()?, reader.u32("count").ok()?);
        (kind == TWRITE && bytes.len() == WRITE_HEAD).then_some(Head { size, tag, fid, offset, count })
    }
}
