//! Where the data of a file lie: allocating and freeing, finding data and holes, copying, and writing behind the last byte.

use std::sync::Arc;

use ninefold_proto::Errno;
use ninefold_proto::n1::allocate;

use super::file::RamFile;
use super::node::Node;
use crate::server::fallback::COPY_MOST;
use crate::server::{Cx, User, Written};

/// Bytes of a copy that one file's lock is held for.
const PIECE: u64 = 1 << 20;

impl RamFile {
    pub(super) fn writex_now(&self, offset: u64, data: &[u8], append: bool) -> Result<Written, Errno> {
        let mut content = self.node.content_mut()?;
        let offset = if append || self.appends() { content.size() } else { offset };
        if !data.is_empty() {
            content.write(offset, data)?;
            let mut meta = self.node.meta();
            meta.drop_set_ids(&self.user);
            meta.modified(&self.user);
        }
        Ok(Written { offset, count: data.len() as u32 })
    }

    pub(super) fn seek_now(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let content = self.node.content()?;
        let found = if hole { content.next_hole(offset) } else { content.next_data(offset) };
        found.ok_or(Errno::ENXIO)
    }
}

/// fallocate(2): all of it or nothing.
pub(super) fn allocate(node: &Node, user: &User, mode: u32, offset: u64, length: u64) -> Result<(), Errno> {
    let mut content = node.content_mut()?;
    let keeps_size = mode & allocate::KEEP_SIZE != 0;
    if mode & allocate::PUNCH_HOLE != 0 {
        content.punch(offset, length);
    } else {
        content.reserve(offset, length)?;
        if mode & allocate::ZERO_RANGE != 0 {
            content.zero(offset, length);
        }
        if !keeps_size && offset + length > content.size() {
            content.resize(offset + length);
        }
    }
    let mut meta = node.meta();
    meta.drop_set_ids(user);
    meta.modified(user);
    Ok(())
}

/// Copies up to `length` bytes, and not more than [`COPY_MOST`]; never with both contents locked.
pub(super) fn copy(
    cx: &Cx,
    user: &User,
    from: &Arc<Node>,
    offset: u64,
    to: &Arc<Node>,
    to_offset: u64,
    length: u64,
) -> Result<u64, Errno> {
    if from.path == to.path && offset.abs_diff(to_offset) < length {
        return Err(Errno::EINVAL);
    }
    let length = length.min(COPY_MOST);
    let mut done = 0;
    while done < length {
        if cx.is_cancelled() {
            if done == 0 {
                return Err(Errno::EINTR);
            }
            break;
        }
        let data = from.content()?.read(offset + done, (length - done).min(PIECE) as u32);
        if data.is_empty() {
            break;
        }
        match to.content_mut()?.write(to_offset + done, &data) {
            Ok(()) => done += data.len() as u64,
            // What was copied is told; the client meets the error when it goes on.
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    if done > 0 {
        from.meta().accessed();
        let mut meta = to.meta();
        meta.drop_set_ids(user);
        meta.modified(user);
    }
    Ok(done)
}
