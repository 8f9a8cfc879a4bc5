//! [`Descriptor`]: an open file whose bytes the kernel moves to a socket, or from one.

use std::os::fd::BorrowedFd;

use ninefold_proto::Error;

/// A plain file of this machine that is open, held beyond the clunk of the fid that it was opened by.
pub trait Descriptor: Send + Sync + 'static {
    /// Open for what the fid is; its position is not used.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Makes `call`, which writes or allocates, as the user who opened the file.
    fn as_user(&self, call: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error>;

    /// Whether it may answer from another machine or program, so that no thread of the reactor may wait for it.
    fn is_slow(&self) -> bool;
}

/// A number that changes whenever the file does: from ctime, which every change of content or attributes moves, and what
/// tells some of those apart that come within one of the clock's steps. 0 where it cannot be had.
pub(super) fn modrev(descriptor: &dyn Descriptor) -> u64 {
    let Ok(stat) = rustix::fs::fstat(descriptor.fd()) else { return 0 };
    let (ctime, mtime) = (stat.st_ctime.cast_unsigned(), stat.st_mtime.cast_unsigned());
    mix(&[ctime, stat.st_ctime_nsec, mtime, stat.st_mtime_nsec, stat.st_size.cast_unsigned()])
}

/// FNV-1a over the numbers' bytes; never 0.
pub(super) fn mix(numbers: &[u64]) -> u64 {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)).max(1)
}
