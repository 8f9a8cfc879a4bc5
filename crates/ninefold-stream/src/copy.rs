//! Copies from one stream to another.

use rustix::io::Errno;

use crate::backplane::current::Mode;
use crate::error::Result;
use crate::stream::Stream;

/// Bytes of a region of a copy, and of a copy by the kernel: it is not interrupted meanwhile.
const PIECE: usize = 256 << 10;
const KERNEL_PIECE: u64 = 16 << 20;

/// Copies `bytes`, or what there is to the end, from where one stream is to where the other is, and tells how many. Between plain files
/// the kernel copies (copy_file_range(2)), else one region is copied to another. Both streams are left behind what was copied.
///
/// # Errors
/// Those of reading and writing. What was copied until then is copied, and both streams are behind it.
pub fn copy(from: &Stream, to: &Stream, bytes: u64) -> Result<u64> {
    let mut done = 0;
    let mut by_kernel =
        !std::ptr::eq(from, to) && !std::ptr::eq(&raw const *from.core().file, &raw const *to.core().file);
    while done < bytes {
        let rest = bytes - done;
        let copied = match by_kernel.then(|| kernel(from, to, rest.min(KERNEL_PIECE))).flatten() {
            // Nothing: the end, or a file like those of /proc, of which the kernel copies nothing.
            Some(n) if n > 0 => n,
            _ => {
                by_kernel = false;
                region(from, to, rest)?
            }
        };
        if copied == 0 {
            break;
        }
        done += copied;
    }
    Ok(done)
}

/// None where the kernel does not copy: the other way does, and meets what is wrong.
fn kernel(from: &Stream, to: &Stream, bytes: u64) -> Option<u64> {
    // The descriptors are used with neither stream locked by the other's call: a second one of the same file is opened for the copy.
    let source = from.with_file(Mode::Read, |fd, at| {
        (fd.try_clone_to_owned().map_err(|_| Errno::MFILE.into()).map(|fd| (fd, at)), 0)
    });
    let (source, at) = source?.ok()?;
    let copied = to.with_file(Mode::Write, |fd, to| {
        let (mut at, mut to) = (at, to);
        let copied = rustix::fs::copy_file_range(&source, Some(&mut at), fd, Some(&mut to), bytes as usize);
        (Ok(copied), copied.map_or(0, |n| n as u64))
    });
    let copied = copied?.ok()?.ok()? as u64;
    from.seek(std::io::SeekFrom::Start(at + copied)).ok()?;
    Some(copied)
}

fn region(from: &Stream, to: &Stream, bytes: u64) -> Result<u64> {
    let data = from.alloc_some(Mode::Read, usize::try_from(bytes).unwrap_or(PIECE).min(PIECE))?;
    if data.is_empty() {
        return Ok(0);
    }
    let mut room = to.alloc_in(Mode::Write, data.len())?;
    room.copy_from_slice(&data);
    let copied = data.len() as u64;
    if let Err(e) = data.free() {
        // Zeros may lie in the place of what was cut: nobody gets them.
        let _ = room.resize(0);
        return Err(e);
    }
    room.free()?;
    Ok(copied)
}
