//! [`Descriptor`]: an open file whose bytes the kernel moves to a socket, or from one.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ninefold_proto::Error;
use rustix::fs::{OFlags, Stat, fcntl_getfl, fstat};

use crate::server::Answer;

/// A plain file of this machine that is open, held beyond the clunk of the fid that it was opened by.
pub trait Descriptor: Send + Sync + 'static {
    /// Open for what the fid is; its position is not used.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Makes `call`, which writes or allocates, as the user who opened the file.
    fn as_user(&self, call: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error>;

    /// Whether it may answer from another machine or program, so that no thread of the reactor may wait for it.
    fn is_slow(&self) -> bool;

    /// Whether its bytes lie in memory alone, so that none of them is waited for.
    fn is_in_memory(&self) -> bool {
        false
    }

    /// Whether nobody changes it while the kernel has a lease on it (fcntl(2), F_SETLEASE): all who do open it on this machine, and its file system knows of them.
    fn can_be_leased(&self) -> bool {
        false
    }

    /// Has a slow one write out what its file system holds back until a close(2), and tells why not. May wait.
    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Whether every write goes to the end of the file, whatever its offset (open(2)).
pub(super) fn appends(descriptor: &dyn Descriptor) -> bool {
    fcntl_getfl(descriptor.fd()).is_ok_and(|flags| flags.contains(OFlags::APPEND))
}

/// A number that changes whenever the file does, 0 where it cannot be had.
pub(super) async fn modrev(descriptor: &Arc<dyn Descriptor>) -> u64 {
    let look = |descriptor: &dyn Descriptor| fstat(descriptor.fd()).map_or(0, |stat| of_stat(&stat));
    if !descriptor.is_slow() {
        return look(&**descriptor);
    }
    let descriptor = descriptor.clone();
    Answer::blocking(move || Ok(look(&*descriptor))).wait().await.unwrap_or(0)
}

/// The last of a stream: what was `written` is written out, and the descriptor is let go. Its modrev then, or why not.
///
/// The file may have no other descriptor any more, and to close the last one may take as long as a disk or another machine
/// does: where that is slow, or the file was removed and its blocks are freed.
pub(super) async fn let_go(descriptor: Arc<dyn Descriptor>, written: bool) -> Result<u64, Error> {
    if !descriptor.is_slow() {
        match fstat(descriptor.fd()) {
            Ok(stat) if stat.st_nlink > 0 => return Ok(of_stat(&stat)),
            Ok(_) => {}
            Err(_) => return Ok(0),
        }
    }
    let last = move || {
        let flushed = if written { descriptor.flush() } else { Ok(()) };
        let modrev = fstat(descriptor.fd()).map_or(0, |stat| of_stat(&stat));
        drop(descriptor);
        flushed.map(|()| modrev)
    };
    Answer::blocking(last).wait().await
}

/// From ctime, which every change of content or attributes moves, and what tells some of those apart that come within one of
/// the clock's steps.
fn of_stat(stat: &Stat) -> u64 {
    let (ctime, mtime) = (stat.st_ctime.cast_unsigned(), stat.st_mtime.cast_unsigned());
    // Nanoseconds have libc's type where rustix goes by libc, and no sign where it does not.
    mix(&[ctime, stat.st_ctime_nsec as _, mtime, stat.st_mtime_nsec as _, stat.st_size.cast_unsigned()])
}

/// FNV-1a over the numbers' bytes; never 0.
pub(super) fn mix(numbers: &[u64]) -> u64 {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)).max(1)
}
