//! Stream modules: one for each kind of stream, beneath the backplane (§4.3).
//!
//! A module moves data between the system and memory that the backplane lends; it knows of no regions, counts and locks. The backplane
//! calls it with the stream locked, so it is never called twice at a time. For reading it is asked to `fill`, for writing it is handed
//! what is free, in the order in which it was allocated, by `write`.
//!
//! A module may be pushed on another (§6.1): [`Pushed`]. It has the one below it as its own until it is popped, and the backplane
//! calls only the one on top.
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
//! | `pipe` | pipes, sockets and whatever else has no places |
//! | `directory` | directories, whose entries are records |
//! | `terminal` | terminals: the same, written by lines |
//! | `ninep` | files of 9P servers, in messages: the buffers that they arrive in |
//! | `ninep-stream` | the same over a connection of their own: the buffers that are received into |
//! | `ring` | Unix sockets: memory that two processes share, where both ends have it; else as `pipe` |
//! | `gzip`, `zstd` | pushed: what gzip(1) and zstd(1) compressed, read only |
//! | `prefetch` | pushed: the same, read ahead by a thread, read only |

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::backplane::ahead::Source;
use crate::calibration::Calibration;
use crate::error::{Error, Result};
use crate::fault::Notice;
use crate::memory::{Frozen, Memory};
use bell::Bell;
use below::Below;
use descriptor::Kind;
use overlay::Overlays;

mod append;
mod bell;
pub(crate) mod below;
mod decompress;
pub(crate) mod descriptor;
mod directory;
mod gzip;
mod mapped;
#[cfg(feature = "ninep")]
pub(crate) mod ninep;
pub(crate) mod overlay;
mod pipe;
mod pread;
mod prefetch;
mod readwrite;
pub(crate) mod ring;
mod terminal;
mod zstd;

/// What the backplane asks for.
pub struct Fill<'a> {
    /// Offset of the first byte.
    pub at: u64,
    /// Bytes that are needed at once: fewer only at the end, or where a stream without places has no more now. At least 1.
    pub least: usize,
    /// The bytes from `at` on that were read before and not used. A module that reads by offsets may pass over them.
    pub tail: &'a [u8],
    /// The tail is the end of the memory of its own that the module answered with last.
    pub of_module: bool,
    /// Memory that is free again, to be used if it fits.
    pub memory: Option<Memory>,
    /// Nobody in this process writes the file: what is read may be kept long.
    pub quiet: bool,
    /// How many changes of the file this process was told of. Another count, and what was read before is stale.
    pub changes: u64,
    /// What this process freed and the file does not have: for who reads another module, see [`overlay::fill`].
    pub overlays: Overlays<'a>,
}

/// Data, as `fill` answers.
pub struct Chunk {
    pub memory: Frozen,
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
    /// Bytes of a ring that is made.
    pub ring: usize,
}

/// A kind of stream. The defaults are those of a stream that cannot: see each method's error.
pub trait StreamModule: Send {
    /// As it is selected.
    fn name(&self) -> &'static str;

    /// Has the stream places? If not, `at` and `offset` are for the module to ignore.
    fn is_seekable(&self) -> bool {
        true
    }

    /// Does data come without waiting for anybody? Then `alloc` gives all that is asked for, but at the end.
    fn is_prompt(&self) -> bool {
        self.is_seekable()
    }

    /// Does somebody watch what is written, and answer? Then a line is written at its end, and the rest before data are waited for.
    fn is_by_line(&self) -> bool {
        false
    }

    /// Whoever waits for data from now on stops when the bell is rung, with ECANCELED.
    fn listen(&mut self, bell: Option<&Bell>) {
        let _ = bell;
    }

    /// Is there a thread in it, or below? Then no other is put on it.
    fn has_thread(&self) -> bool {
        false
    }

    /// The same as what was pushed; None where it is of a descriptor itself.
    fn as_pushed(&mut self) -> Option<&mut dyn Pushed> {
        None
    }

    /// Does what is written go to the end, wherever that is?
    fn appends(&self) -> bool {
        false
    }

    /// Of what is read in order, and has places of its own, the one that the stream tells when it is at `at`: where `go_to` reads on.
    fn place(&self, at: u64) -> Option<u64> {
        let _ = at;
        None
    }

    /// Goes to such a place, which the backplane counts as `at`. What was filled is not asked for again.
    ///
    /// # Errors
    /// [`Error::NotSeekable`] where there are none; the system's. Then nothing is changed.
    fn go_to(&mut self, place: u64, at: u64) -> Result<()> {
        let _ = (place, at);
        Err(Error::NotSeekable)
    }

    /// Data from `at` on, `at` among it; no data is the end. The tail must be among it too where the module cannot read it again. An
    /// error takes nothing away: the tail stays, and what was read before the error is had by who asks for no more than that.
    ///
    /// # Errors
    /// [`Error::NotReadable`] where the kind is written only.
    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        let _ = fill;
        Err(Error::NotReadable)
    }

    /// Why the last fill brought less than was needed, where that is neither the end nor met again by itself: a signal, or a descriptor
    /// that does not wait. What it brought is not lost.
    fn fell_short(&self) -> Option<Error> {
        None
    }

    /// Does the module keep what it filled last, from the place on at which it is asked next? Then no tail is made for it.
    fn keeps(&self) -> bool {
        false
    }

    /// The stream goes elsewhere: what was filled is not to be lent once more.
    fn forget(&mut self) {}

    /// What was copied of what a server sent.
    #[cfg(feature = "ninep")]
    fn remote_counts(&self) -> Option<crate::ninep::Counts> {
        None
    }

    /// Where what follows is read by the one who asks, with the stream unlocked, and how many bytes; `from` is the end of what was filled
    /// last. None where the module has a way of its own, or the stream is not read in order.
    fn ahead(&mut self, from: u64) -> Option<(Arc<dyn Source>, usize)> {
        let _ = from;
        None
    }

    /// What was read so was taken as a fill, up to there.
    fn has_read(&mut self, to: u64) {
        let _ = to;
    }

    /// Reads to `buffer` past the backplane's memory: for long reads. None where that is not to be had.
    fn read_into(&mut self, at: u64, buffer: &mut [u8]) -> Option<Result<usize>> {
        let _ = (at, buffer);
        None
    }

    /// Memory of the module's own for what is written next, `bytes` at least: what is handed to `write` there is not copied. It follows
    /// `unwritten` bytes that lie in such memory and were not handed to `write` yet. None: the backplane has memory.
    ///
    /// # Errors
    /// Of waiting for it.
    fn room(&mut self, unwritten: usize, bytes: usize) -> Result<Option<Memory>> {
        let _ = (unwritten, bytes);
        Ok(None)
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

    /// What was written is what others read from now on. What goes wrong is told by the next `write` or `flush`.
    fn settle(&mut self) {}

    /// What was flushed is on the disk.
    ///
    /// # Errors
    /// fdatasync(2)'s; [`Error::NotSeekable`] where there is no file.
    fn sync(&mut self) -> Result<()> {
        Ok(rustix::fs::fdatasync(self.on_disk().ok_or(Error::NotSeekable)?)?)
    }

    /// What the module itself holds back goes to the system.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// The stream ends, and not all that was freed could be written.
    fn cut(&mut self) {}

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

/// A module that reads another. All of them read only: what is written goes to none.
pub trait Pushed: StreamModule {
    /// From now on it reads what is below. Told is the position that the stream has then.
    fn put_on(&mut self, below: Below) -> u64;

    /// Gives back what is below, to be read on from there: `at` is the stream's position, and `untaken` what it has got from there on and
    /// nobody took. Called once, and nothing is called afterwards.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: then all is as it was, but that nothing is read ahead any more. Those of a module that has lost its thread.
    fn take_off(&mut self, at: u64, untaken: &[u8]) -> Result<Below>;
}

/// What a stream has for a module after `close`, and a pushed one before and after.
pub struct Closed;

impl StreamModule for Closed {
    fn name(&self) -> &'static str {
        "closed"
    }
}

/// Makes the module of that name, to be pushed.
///
/// # Errors
/// [`Error::NoModule`] where there is none; those of making a thread.
pub(crate) fn pushed(name: &str, calibration: &Calibration) -> Result<Box<dyn Pushed>> {
    Ok(match name {
        "gzip" => Box::new(decompress::Decompress::new(gzip::Gzip::new())),
        "zstd" => Box::new(decompress::Decompress::new(zstd::Zstd::new())),
        "prefetch" => Box::new(prefetch::Prefetch::new(calibration.ahead)?),
        _ => return Err(Error::NoModule),
    })
}

/// Makes the module of that name, on a descriptor.
///
/// # Errors
/// [`Error::NoModule`] where there is none, or it is not for what was opened: `mmap` to write, for one.
pub(crate) fn named(name: &str, opened: Opened) -> Result<Box<dyn StreamModule>> {
    let kind = descriptor::kind(&opened.fd)?;
    if kind == Kind::Directory {
        return if name == "directory" {
            Ok(Box::new(directory::Directory::new(opened)?))
        } else {
            Err(Error::NoModule)
        };
    }
    let plain = kind == Kind::Places;
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
        "terminal" if kind == Kind::Terminal => Box::new(terminal::Terminal::new(opened)),
        "ring" if !plain => Box::new(ring::Ring::new(opened)),
        "pipe" => Box::new(pipe::Pipe::new(opened)),
        _ => return Err(Error::NoModule),
    })
}
