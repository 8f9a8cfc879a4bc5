//! What the frames that have come are about to use, before the first of them is taken.

use alloc::vec::Vec;

use super::fids::{HandleId, Lookup};
use super::outbox::Bulk;
use super::session::Session;
use crate::types::Fid;
use crate::wire::{HEADER, frame_size};

/// Frames that are looked at together at most. More would leave the nearest cache before their turn.
const TOGETHER: usize = 64;

impl<F: Clone, P: Bulk + From<Vec<u8>>, B: AsRef<[u8]> + Clone + From<Vec<u8>>> Session<F, P, B> {
    /// The files of the fids that stand behind the header of each of the first so many frames in `bytes`, 64 at most, which begin with one, where a fid of
    /// that number is known. Most messages have theirs there; of the others it is whichever file that is, or none. A part of a frame is the last.
    pub fn coming<'s>(&'s self, bytes: &'s [u8], frames: usize) -> impl Iterator<Item = &'s F> {
        let mut left = bytes;
        let fids = core::iter::from_fn(move || {
            let size = frame_size(left, self.msize).ok()??;
            let fid = left.get(HEADER..)?.first_chunk::<4>()?;
            left = left.get(size..).unwrap_or_default();
            Some(Fid(u32::from_le_bytes(*fid)))
        });
        let (mut handles, mut known) = ([HandleId(0); TOGETHER], 0);
        for fid in fids.take(frames.min(TOGETHER)) {
            if let Lookup::Live(handle) = self.fids.lookup(fid) {
                handles[known] = handle;
                known += 1;
            }
        }
        // The processor waits for many lines of memory at once where one is not the way to another: so the handles are looked at by themselves first.
        let uses = handles[..known].iter().map(|handle| self.fids.uses(*handle));
        core::hint::black_box(uses.fold(0, u32::wrapping_add));
        handles.into_iter().take(known).filter_map(|handle| self.fids.file(handle))
    }
}
