//! Stream modules: one for each kind of stream, beneath the backplane (§4.3).
//!
//! A module moves data between the system and memory that the backplane lends; it knows of no regions, counts and locks. The backplane
//! calls it with the stream locked, so it is never called twice at a time. For reading it is asked to `fill`, for writing it is handed
//! what is free, in the order in which it was allocated, by `write`.
//!
//! | Name | Kind of stream |
//! |---|---|
//! | `mmap` | plain files, read only: windows of the file itself |
//! | `pread` | plain files and block devices, read only, read ahead while sequential |
//! | `pread-random` | the same, never ahead |
//! | `pwrite` | plain files and block devices, write only |
//! | `read-write` | the same, both |
//! | `read-write-random` | the same, never ahead |
//! | `append` | plain files opened with `O_APPEND`, which other processes append to as well |
//! | `pipe` | pipes, sockets, terminals and whatever else has no places |

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::calibration::Calibration;
use crate::error::{Error, Result};
use crate::fault::Notice;
use crate::memory::Memory;

mod append;
pub(crate) mod descriptor;
mod mapped;
mod pipe;
mod pread;
mod readwrite;

/// What the backplane asks for.
pub struct Fill<'a> {
    /// Offset of the first byte.
    pub at: u64,
    /// Bytes that are needed at once: fewer only at the end, or where a stream without places has no more now. At least 1.
    pub least: usize,
    /// The bytes from `at` on that were read before and not used. A module that reads by offsets may pass over them.
    pub tail: &'a [u8],
    /// Memory that is free again, to be used if it fits.
    pub memory: Option<Memory>,
    /// Nobody in this process writes the file: what is read may be kept long.
    pub quiet: bool,
}

/// Data, as `fill` answers.
pub struct Chunk {
    pub memory: Memory,
    /// Where in the memory the data begins.
    pub start: usize,
    /// Bytes. It may be more than was asked for, and begin before: a window of a file.
    pub length: usize,
    /// Offset in the file of the first byte.
    pub offset: u64,
}

/// How a stream begins: what `open` found out.
pub struct Opened {
    pub fd: OwnedFd,
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub calibration: Calibration,
    pub notice: Arc<dyn Notice>,
}

/// A kind of stream. The defaults are those of a stream that cannot: see each method's error.
pub trait StreamModule: Send {
    /// As it is selected.
    fn name(&self) -> &'static str;

    /// Has the stream places? If not, `at` and `offset` are for the module to ignore.
    fn is_seekable(&self) -> bool {
        true
    }

    /// Does what is written go to the end, wherever that is?
    fn appends(&self) -> bool {
        false
    }

    /// Data from `at` on, `at` among it; no data is the end. The tail must be among it too where the module cannot read it again. An
    /// error takes nothing away: the tail stays, and what was read before the error is an answer, the error the next one.
    ///
    /// # Errors
    /// [`Error::NotReadable`] where the kind is written only.
    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        let _ = fill;
        Err(Error::NotReadable)
    }

    /// Reads to `buffer` past the backplane's memory: for long reads. None where that is not to be had.
    fn read_into(&mut self, at: u64, buffer: &mut [u8]) -> Option<Result<usize>> {
        let _ = (at, buffer);
        None
    }

    /// Writes at `at`, or at the end where the stream has no places. `written` is raised by what is done, before an error too.
    ///
    /// # Errors
    /// [`Error::NotWritable`] where the kind is read only.
    fn write(&mut self, at: u64, data: &[u8], written: &mut usize) -> Result<()> {
        let _ = (at, data, written);
        Err(Error::NotWritable)
    }

    /// Bytes of the file now.
    ///
    /// # Errors
    /// [`Error::NotSeekable`] where there is no such number.
    fn length(&mut self) -> Result<u64> {
        Err(Error::NotSeekable)
    }

    /// What the module itself holds back goes to the system.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// The descriptor, where offsets of the stream are offsets of a plain file: for copies that the kernel makes.
    fn plain_file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The descriptor, where fdatasync(2) means something.
    fn on_disk(&self) -> Option<BorrowedFd<'_>> {
        self.plain_file()
    }

    /// Ends it, and tells what close(2) tells.
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Makes the module of that name.
///
/// # Errors
/// [`Error::NoModule`] where there is none, or it is not for what was opened: `mmap` to write, for one.
pub(crate) fn named(name: &str, opened: Opened) -> Result<Box<dyn StreamModule>> {
    let plain = descriptor::has_places(&opened.fd)?;
    let (read_only, write_only) = (opened.read && !opened.write, opened.write && !opened.read);
    Ok(match name {
        "mmap" if plain && read_only => Box::new(mapped::Mapped::new(opened)),
        "pread" if plain && read_only => Box::new(pread::Pread::new(opened, true)),
        "pread-random" if plain && read_only => Box::new(pread::Pread::new(opened, false)),
        "pwrite" if plain && write_only && !opened.append => {
            Box::new(readwrite::ReadWrite::new("pwrite", opened, true))
        }
        "read-write" if plain && !opened.append => Box::new(readwrite::ReadWrite::new("read-write", opened, true)),
        "read-write-random" if plain && !opened.append => {
            Box::new(readwrite::ReadWrite::new("read-write-random", opened, false))
        }
        "append" if plain && opened.append && opened.write => Box::new(append::Append::new(opened)),
        "pipe" => Box::new(pipe::Pipe::new(opened)),
        _ => return Err(Error::NoModule),
    })
}
