//! What the frames that have come are about to use, before the first of them is taken.

use alloc::vec::Vec;

use super::outbox::Bulk;
use super::session::Session;
use crate::types::Fid;
use crate::wire::{HEADER, frame_size};

impl<F: Clone, P: Bulk + From<Vec<u8>>, B: AsRef<[u8]> + Clone + From<Vec<u8>>> Session<F, P, B> {
    /// The files of the fids that stand behind the header of each of the first so many frames in `bytes`, which begin with one, where a fid of that number is
    /// known. Most messages have theirs there; of the others it is whichever file that is, or none. A part of a frame is the last.
    pub fn coming<'s>(&'s self, bytes: &'s [u8], frames: usize) -> impl Iterator<Item = &'s F> {
        let mut left = bytes;
        let fids = core::iter::from_fn(move || {
            let size = frame_size(left, self.msize).ok()??;
            let fid = left.get(HEADER..)?.first_chunk::<4>()?;
            left = left.get(size..).unwrap_or_default();
            Some(Fid(u32::from_le_bytes(*fid)))
        });
        fids.take(frames).filter_map(|fid| self.fids.file(fid))
    }
}
