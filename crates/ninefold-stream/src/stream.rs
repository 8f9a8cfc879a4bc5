//! A stream, as programs have it: the calls of figure 5, in Rust's form.
//!
//! | Figure 5 | Here |
//! |---|---|
//! | `sopen`, `sclose` | [`Stream::open`], [`Options`](crate::Options), [`Stream::close`] |
//! | `salloc`, `sfree`, `srealloc` | [`Stream::alloc`], [`Region::free`], [`Region::resize`] |
//! | `sallocAt` | [`Stream::alloc_at`] |
//! | `sflush`, `set_stream_mode` | [`Stream::flush`], [`Stream::set_mode`] |
//! | `Salloc`, `SallocAt` | [`Stream::alloc_in`], [`Stream::alloc_at_in`] |
//! | `LockAsfStream`, `u_…` | [`Stream::lock`]: while it lives, every call of this thread finds the lock taken |
//! | push, pop (§6.1) | [`Stream::push`], [`Stream::pop`] |

use std::io::SeekFrom;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use parking_lot::ReentrantMutexGuard;
use rustix::io::Errno;

use crate::backplane::core::{Core, Entered};
use crate::backplane::current::{Current, Mode};
use crate::backplane::file::File;
use crate::backplane::lines;
use crate::error::{Error, Result};
use crate::lock::Hold;
use crate::memory::PAGE;
use crate::module::overlay::Overlay;
use crate::module::{self, Closed};
use crate::open::Options;
use crate::primitives::{has_heavy_fence, seat};
use crate::region::{Lent, Region};

/// A stream of bytes, whatever it is of. Threads may share it; each call is atomic, and data is copied with the stream unlocked.
pub struct Stream {
    core: Arc<Core>,
}

/// How much a call that allocates data waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// What is there, one byte at least; of a file all.
    Some,
    /// As the module has it: all, where that takes no waiting.
    AsModule,
    /// All, or the end.
    All,
}

/// The next line of the current buffer, if it is whole.
#[inline(always)]
fn line(current: &mut Current, delimiter: u8, most: usize) -> Option<(*mut u8, usize)> {
    if current.mode != Mode::Read || !current.live || !current.is_fresh() {
        return None;
    }
    let bytes = crate::region::find(current, delimiter, most)?;
    Some((current.lend(bytes), bytes))
}

/// A stream that is entered, with the file's lock where several streams of this process are on the file.
pub(crate) struct Held<'a> {
    pub state: Entered<'a>,
    overlay: Overlay,
    _file: Option<ReentrantMutexGuard<'a, ()>>,
}

impl Stream {
    pub(crate) fn new(core: Arc<Core>) -> Stream {
        Stream { core }
    }

    /// Opens a file to read. `sopen(name, O_RDONLY)`.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(path: impl AsRef<Path>) -> Result<Stream> {
        Options::new().read(true).open(path)
    }

    /// Makes a file to write, or empties it: mode 0666 less the umask.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn create(path: impl AsRef<Path>) -> Result<Stream> {
        Options::new().write(true).create(true).truncate(true).open(path)
    }

    /// [`Options::ring`], as rings are.
    ///
    /// # Errors
    /// As there.
    pub fn ring() -> Result<(Stream, Stream)> {
        Options::new().ring()
    }

    /// The next `bytes` of the stream, and its offset moves behind them (§2, `salloc`). In read mode the region holds data: fewer bytes
    /// at the end of a file, none behind it; of a pipe, a socket or a terminal what is there, one byte at least, none at the end. In
    /// write mode it is room for data, whose bytes are unspecified until they are written, but never another file's.
    ///
    /// # Errors
    /// [`Error::Os`]: reading failed, or writing what was freed before, which is kept; [`Error::NoMemory`]; [`Error::Shrunk`], once, if
    /// zeros were looked at in the place of data and nobody was told. The offset does not move.
    #[inline]
    pub fn alloc(&self, bytes: usize) -> Result<Region<'_>> {
        let core = &*self.core;
        match core.quick(|current| Some((current.take(bytes)?, current.mode))) {
            Some((at, mode)) => Ok(Region::new(self, Lent { at, bytes, mode })),
            None => {
                // Taken apart, so that what is not the longer way stays in registers.
                let Lent { at, bytes, mode } = self.alloc_longer(None, bytes, Need::AsModule)?;
                Ok(Region::new(self, Lent { at, bytes, mode }))
            }
        }
    }

    /// `alloc`, but of a stream without places too it waits for all `bytes`, or the end.
    ///
    /// # Errors
    /// As `alloc`. A signal, and what does not wait, is told at once: what has come is at hand still, and this call made again goes on
    /// there. What came before another error is a shorter region, and the error the next call's.
    pub fn alloc_full(&self, bytes: usize) -> Result<Region<'_>> {
        Ok(Region::new(self, self.alloc_as(None, None, bytes, 1, Need::All)?))
    }

    /// `alloc`, in a mode that the call names (§2, `Salloc`).
    ///
    /// # Errors
    /// As `alloc`; [`Error::NotReadable`], [`Error::NotWritable`].
    pub fn alloc_in(&self, mode: Mode, bytes: usize) -> Result<Region<'_>> {
        self.alloc_needed(mode, bytes, Need::AsModule)
    }

    /// `alloc_in`, for who can do with less: what was read before an error is had before the error.
    pub(crate) fn alloc_some(&self, mode: Mode, bytes: usize) -> Result<Region<'_>> {
        self.alloc_needed(mode, bytes, Need::Some)
    }

    #[inline(always)]
    fn alloc_needed(&self, mode: Mode, bytes: usize, need: Need) -> Result<Region<'_>> {
        let core = &*self.core;
        let quick = core.quick(|current| if current.mode == mode { current.take(bytes) } else { None });
        match quick {
            Some(at) => Ok(Region::new(self, Lent { at, bytes, mode })),
            None => {
                let Lent { at, bytes, mode } = self.alloc_longer(Some(mode), bytes, need)?;
                Ok(Region::new(self, Lent { at, bytes, mode }))
            }
        }
    }

    /// Moves the offset and allocates there, in one step (§2, `sallocAt`): other threads' calls come before or after both.
    ///
    /// # Errors
    /// As `alloc`; [`Error::NotSeekable`], [`Error::BadOffset`].
    pub fn alloc_at(&self, to: SeekFrom, bytes: usize) -> Result<Region<'_>> {
        Ok(Region::new(self, self.alloc_as(None, Some(to), bytes, 1, Need::AsModule)?))
    }

    /// `alloc_at`, in a mode that the call names (§2, `SallocAt`).
    ///
    /// # Errors
    /// As `alloc_at` and `alloc_in`.
    pub fn alloc_at_in(&self, mode: Mode, to: SeekFrom, bytes: usize) -> Result<Region<'_>> {
        Ok(Region::new(self, self.alloc_as(Some(mode), Some(to), bytes, 1, Need::AsModule)?))
    }

    /// `alloc`, at an address that is a multiple of `align`, a power of two up to 4096 (§4.4). Data that lies elsewhere is copied.
    ///
    /// # Errors
    /// As `alloc`; [`Error::BadAlignment`].
    pub fn alloc_aligned(&self, bytes: usize, align: usize) -> Result<Region<'_>> {
        if !align.is_power_of_two() || align > PAGE {
            return Err(Error::BadAlignment);
        }
        Ok(Region::new(self, self.alloc_as(None, None, bytes, align, Need::AsModule)?))
    }

    /// The next line, its `\n` with it; the last may have none. Empty at the end.
    ///
    /// # Errors
    /// As `alloc`; [`Error::NotReadable`].
    #[inline]
    pub fn alloc_line(&self) -> Result<Region<'_>> {
        self.alloc_until(b'\n', usize::MAX)
    }

    /// The bytes up to `delimiter`, with it, but at most `most`. Empty at the end. The stream changes to read mode.
    ///
    /// # Errors
    /// As `alloc_line`.
    #[inline]
    pub fn alloc_until(&self, delimiter: u8, most: usize) -> Result<Region<'_>> {
        let core = &*self.core;
        match core.quick(|current| line(current, delimiter, most)) {
            Some((at, bytes)) => Ok(Region::new(self, Lent { at, bytes, mode: Mode::Read })),
            None => {
                let Lent { at, bytes, mode } = self.search_longer(delimiter, most)?;
                Ok(Region::new(self, Lent { at, bytes, mode }))
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn search_longer(&self, delimiter: u8, most: usize) -> Result<Lent> {
        let core = &*self.core;
        match core.shared(|current| line(current, delimiter, most)) {
            Some((at, bytes)) => Ok(Lent { at, bytes, mode: Mode::Read }),
            None => self.search(delimiter, most),
        }
    }

    fn search(&self, delimiter: u8, most: usize) -> Result<Lent> {
        self.hold(true).search(delimiter, most, &self.core.file)
    }

    /// What a short section does not do: shortly where threads share the stream, else the whole way.
    #[cold]
    #[inline(never)]
    fn alloc_longer(&self, mode: Option<Mode>, bytes: usize, need: Need) -> Result<Lent> {
        let core = &*self.core;
        let short = core.shared(|current| {
            let fits = mode.is_none_or(|mode| mode == current.mode);
            let at = fits.then(|| current.take(bytes)).flatten()?;
            Some(Lent { at, bytes, mode: current.mode })
        });
        short.map_or_else(|| self.alloc_as(mode, None, bytes, 1, need), Ok)
    }

    /// All the longer ways of allocating.
    #[cold]
    #[inline(never)]
    fn alloc_as(
        &self,
        mode: Option<Mode>,
        to: Option<SeekFrom>,
        bytes: usize,
        align: usize,
        need: Need,
    ) -> Result<Lent> {
        self.hold(true).alloc_as(mode, to, bytes, align, need, &self.core.file)
    }

    /// Everything that was freed is in the file, and safe from the end of this process (§2, `sflush`); not from the machine's, for
    /// which there is `sync`.
    ///
    /// # Errors
    /// [`Error::Os`]: what is not written is kept, and the next flush tries again. [`Error::Outstanding`]: a region before freed data
    /// is still out.
    pub fn flush(&self) -> Result<()> {
        self.hold(false).state.flush()
    }

    /// `flush`, and fdatasync(2).
    ///
    /// # Errors
    /// Those of `flush` and fdatasync(2); [`Error::NotSeekable`] where there is no file.
    pub fn sync(&self) -> Result<()> {
        let mut held = self.hold(false);
        held.state.flush()?;
        held.state.module.sync()
    }

    /// Runs `f` with the descriptor of the stream's file, after a `flush`. The stream's offset stays, and the descriptor's own is of no
    /// meaning to it. Where `f` `changes` the file, what was read of it before is read again.
    ///
    /// # Errors
    /// `flush`'s; [`Error::NotSeekable`] where there is no file, or the stream is not what the file has.
    pub fn with_descriptor<R>(&self, changes: bool, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Result<R> {
        let mut held = self.hold(true);
        held.state.flush()?;
        let result = f(held.state.module.on_disk().ok_or(Error::NotSeekable)?);
        if changes {
            self.core.file.changed();
        }
        Ok(result)
    }

    /// `flush`, and moves the descriptor's own offset to the stream's: whoever has the same open file, by dup(2) or fork(2), goes on there. What
    /// has no places has none to tell.
    ///
    /// # Errors
    /// `flush`'s.
    pub fn hand_over(&self) -> Result<()> {
        let mut held = self.hold(false);
        held.state.flush()?;
        let at = held.state.position();
        let module = &held.state.module;
        if let Some(fd) = module.on_disk().filter(|_| module.is_seekable() && !module.appends()) {
            rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(at))?;
        }
        Ok(())
    }

    /// Changes the mode (§2, `set_stream_mode`): to read, what this process freed is seen; to write, the offset stays.
    ///
    /// # Errors
    /// [`Error::NotReadable`], [`Error::NotWritable`].
    pub fn set_mode(&self, mode: Mode) -> Result<()> {
        self.hold(false).state.set_mode(mode)
    }

    /// The mode: write, unless the stream was opened to read only, or it was changed.
    pub fn mode(&self) -> Mode {
        self.core.enter().mode
    }

    /// Bytes from the beginning to the next region. Of a stream without places, all that passed; of a directory the file system's own place
    /// of the next entry, or of that of which a part was taken.
    pub fn position(&self) -> u64 {
        self.core.enter().place()
    }

    /// Moves the offset, and tells it. Behind the end is a place too. A directory goes to its beginning, 0, and to what `position` or an
    /// [`Entry`](crate::Entry) told as a place.
    ///
    /// # Errors
    /// [`Error::NotSeekable`], [`Error::BadOffset`], fstat(2)'s.
    pub fn seek(&self, to: SeekFrom) -> Result<u64> {
        let mut held = self.hold(true);
        held.seek(to)?;
        Ok(held.state.place())
    }

    /// Puts a byte back: it is what is read next, and the offset goes back by one. The stream changes to read mode; a seek or a change of
    /// mode makes it what the file has.
    ///
    /// # Errors
    /// [`Error::BadOffset`] at the beginning; [`Error::NotReadable`], [`Error::NoMemory`].
    pub fn unread(&self, byte: u8) -> Result<()> {
        self.unread_all(&[byte])
    }

    /// `unread` of several at once: the first of them is what is read next.
    ///
    /// # Errors
    /// As `unread`; then none is put back.
    pub fn unread_all(&self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() { Ok(()) } else { self.hold(true).state.unread(bytes) }
    }

    /// Bytes of the file, with what was freed in this process.
    ///
    /// # Errors
    /// [`Error::NotSeekable`], fstat(2)'s.
    pub fn length(&self) -> Result<u64> {
        let mut held = self.hold(true);
        held.length()
    }

    /// Pushes the module of that name on the stream (§6.1): from now on the stream is what the module makes of the one below, and is only
    /// read. `position` is the module's: the bytes of a decompressed stream count from 0.
    ///
    /// Regions that are out stay as they are and are freed as ever. What was read of a stream without places, and not allocated, the
    /// module reads; of one with places it reads on at the position. On a stream that writes, it is first flushed.
    ///
    /// # Errors
    /// [`Error::NoModule`] where no module that can be pushed has the name, or it is not for what is there; [`Error::NotReadable`]; [`Error::Outstanding`] where a region
    /// that is written is out; `flush`'s; [`Error::NoMemory`]. Then nothing is changed.
    pub fn push(&self, name: &str) -> Result<()> {
        let mut held = self.hold(true);
        let above = module::pushed(name, &held.state.calibration)?;
        held.state.push(above)
    }

    /// Takes off the module that was pushed last. The stream below goes on, in the mode that it had, where docs/stream.md says for each
    /// module: behind what it read to decompress. What it made and nobody allocated is gone; regions that are out stay.
    ///
    /// # Errors
    /// [`Error::NoModule`] where none was pushed; [`Error::NoMemory`]. Then nothing is changed.
    pub fn pop(&self) -> Result<()> {
        self.hold(true).state.pop()
    }

    /// The name of the stream's module: of the one on top.
    pub fn module(&self) -> &'static str {
        self.core.enter().module.name()
    }

    /// The lock is this thread's while the guard lives: several calls are one, and each finds the lock taken. Short calls of others wait
    /// meanwhile.
    pub fn lock(&self) -> Locked<'_> {
        // The order: the file's lock, then the stream's.
        let file = self.core.file.lock.lock();
        Locked { stream: self, _hold: self.core.lock.hold(seat()), _file: file }
    }

    /// The hint of §4.4: from now on this thread uses the stream. It costs nothing when that is wrong but the time of another thread's next
    /// call. Streams begin with it, for the thread that opens.
    pub fn use_in_this_thread(&self) {
        if has_heavy_fence() {
            self.core.lock.claim(seat());
        }
    }

    /// `flush`, and ends the stream.
    ///
    /// # Errors
    /// `flush`'s, or close(2)'s: then something may not be in the file; [`Error::Shrunk`], if nobody was told. The stream is ended all
    /// the same.
    pub fn close(self) -> Result<()> {
        let flushed = self.flush();
        let (told, module) = {
            let mut held = self.hold(false);
            if flushed.is_err() {
                held.state.module.cut();
            }
            (held.state.tell_shrunk(), std::mem::replace(&mut held.state.module, Box::new(Closed)))
        };
        flushed.and(told).and(module.close())
    }

    /// Enters; with `others` what other streams on the file freed is to be seen.
    pub(crate) fn hold(&self, others: bool) -> Held<'_> {
        let core = &*self.core;
        loop {
            let file = core.file.is_shared().then(|| core.file.lock.lock());
            let overlay = if others && file.is_some() { core.settle_others() } else { Vec::new() };
            let state = core.enter();
            // It may have become shared while we waited; then another must not wait for us while we wait for the file.
            if file.is_some() || !core.file.is_shared() {
                return Held { state, overlay, _file: file };
            }
        }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// A region is freed.
    #[inline(always)]
    pub(crate) fn free(&self, region: *mut u8, bytes: usize, mode: Mode) -> Result<()> {
        if self.core.quick_free(region, mode) {
            return Ok(());
        }
        self.free_longer(region, bytes, mode)
    }

    /// `free`, of who does not listen: an error is told later. Not inline: `drop` has the region's address, and what is inlined there is too
    /// long to be inlined with it, so that each region would lie on the stack, those too that are freed by `free`.
    #[inline(never)]
    pub(crate) fn free_unheard(&self, region: *mut u8, bytes: usize, mode: Mode) {
        if !self.core.quick_free(region, mode) {
            self.free_unheard_longer(region, bytes, mode);
        }
    }

    #[cold]
    #[inline(never)]
    fn free_unheard_longer(&self, region: *mut u8, bytes: usize, mode: Mode) {
        let freed = self.free_longer(region, bytes, mode);
        self.owe(freed);
    }

    /// Nobody listens to an error: of writing it is the next flush's, `Shrunk` is owed to the next fill.
    pub(crate) fn owe(&self, freed: Result<()>) {
        if freed == Err(Error::Shrunk) {
            self.hold(false).state.owe_shrunk();
        }
    }

    #[cold]
    #[inline(never)]
    fn free_longer(&self, region: *mut u8, bytes: usize, mode: Mode) -> Result<()> {
        if self.core.shared_free(region, mode) {
            return Ok(());
        }
        self.hold(false).state.free(region, bytes, mode, &self.core.file)
    }

    /// The end of a region that `resize` made empty: only its count is left of it.
    pub(crate) fn free_empty(&self, region: *mut u8, mode: Mode) -> Result<()> {
        self.hold(false).state.free_empty(region, mode, &self.core.file)
    }

    /// A region that was allocated last has no bytes any more, and is freed; and what went wrong with that.
    pub(crate) fn empty(&self, lent: Lent) -> Result<Result<()>> {
        self.hold(true).empty(lent, &self.core.file)
    }

    /// Makes a region longer or shorter, at another address perhaps; then the old one is out as well. Fewer bytes than `least` are none.
    pub(crate) fn resize(&self, lent: Lent, bytes: usize, least: usize) -> Result<Lent> {
        let file = &*self.core.file;
        let Lent { at: region, bytes: old, mode } = lent;
        let mut held = self.hold(true);
        if held.state.resize(region, old, bytes, mode)? {
            return Ok(Lent { at: region, bytes, mode });
        }
        // It moves. Where the longer one cannot be had, all is as it was.
        let begin = held.state.position() - old as u64;
        let (at, bytes) = match mode {
            Mode::Write => held.state.move_room(region, old, bytes)?,
            Mode::Read if !held.state.module.is_seekable() => return Err(Error::NotSeekable),
            Mode::Read => {
                // Known before the buffer is given up, the region stays the latest. Some of the kernel's files have no length, and bytes.
                let (have, need) = (begin.saturating_add(old as u64), begin.saturating_add(least as u64));
                if need > have && held.length().is_ok_and(|length| (have..need).contains(&length)) {
                    return Err(Error::TooFew);
                }
                held.state.seek(begin)?;
                let longer = match held.alloc(mode, bytes, 1, Need::AsModule, file) {
                    Ok((at, bytes)) if bytes < least => {
                        if bytes > 0 {
                            let _ = held.state.free(at, bytes, mode, file); // what is wrong with it who has the old one is told
                        }
                        Err(Error::TooFew)
                    }
                    longer => longer,
                };
                if longer.is_err() {
                    let _ = held.state.seek(begin + old as u64);
                }
                longer?
            }
        };
        Ok(Lent { at, bytes, mode })
    }

    /// Reads data at hand, or past the buffers where it is much.
    pub(crate) fn read_direct(&self, buffer: &mut [u8]) -> Option<Result<usize>> {
        let mut held = self.hold(true);
        if let Err(e) = held.state.set_mode(Mode::Read) {
            return Some(Err(e));
        }
        let mapped = held.state.module.name() == "mmap";
        let long = buffer.len() >= held.state.calibration.direct;
        let ready = held.state.is_ready() && !mapped;
        let unread = held.state.has_unread();
        if !long || ready || unread || !held.overlay.is_empty() || !held.state.settle().is_empty() {
            return None;
        }
        if let Err(e) = held.state.tell_shrunk() {
            return Some(Err(e));
        }
        let at = held.state.position();
        let read = held.state.module.read_into(at, buffer)?;
        let moved = read.and_then(|n| held.state.seek(at + n as u64));
        Some(moved.and(read))
    }

    /// Writes past the buffers where it is much; None where it must go through them.
    pub(crate) fn write_direct(&self, data: &[u8]) -> Option<Result<usize>> {
        let mut held = self.hold(false);
        if let Err(e) = held.state.set_mode(Mode::Write) {
            return Some(Err(e));
        }
        if data.len() < held.state.calibration.first {
            return None;
        }
        let mut written = 0;
        match held.state.write_direct(data, &mut written, &self.core.file) {
            Ok(true) => Some(Ok(written)),
            Ok(false) => None,
            Err(_) if written > 0 => Some(Ok(written)), // write(2)'s way: the next call meets the error
            Err(e) => Some(Err(e)),
        }
    }

    /// Data at hand, waiting for some; its address and length. Empty at the end.
    pub(crate) fn peek(&self) -> Result<(*const u8, usize)> {
        let mut held = self.hold(true);
        held.state.set_mode(Mode::Read)?;
        held.state.tell_shrunk()?;
        if !held.state.is_ready() {
            held.refill(1, &self.core.file)?;
        }
        let data = held.state.data();
        Ok((data.as_ptr(), data.len()))
    }

    /// Passes over what `peek` gave, or part of it.
    pub(crate) fn pass(&self, bytes: usize) {
        let mut held = self.hold(false);
        if held.state.mode == Mode::Read && bytes > 0 {
            let bytes = bytes.min(held.state.data().len());
            held.state.skip(bytes);
        }
    }

    /// For `copy`: runs `f` with the descriptor of the plain file and the place, all that was freed being in the file; `f` tells how far
    /// it got. None where there is no such file.
    pub(crate) fn with_file<R>(
        &self,
        mode: Mode,
        f: impl FnOnce(BorrowedFd<'_>, u64) -> (Result<R>, u64),
    ) -> Option<Result<R>> {
        let mut held = self.hold(true);
        if let Err(e) = held.state.set_mode(mode) {
            return Some(Err(e));
        }
        let module = &held.state.module;
        if !held.overlay.is_empty() || held.state.has_unread() || module.appends() || module.plain_file().is_none() {
            return None;
        }
        if held.state.write && held.state.flush().is_err() {
            return None; // the longer way meets it, and tells
        }
        // What is allocated after a region that is out goes to the file after it.
        if mode == Mode::Write && !held.state.write_all().unwrap_or(false) {
            return None;
        }
        let at = held.state.position();
        let (result, moved) = f(held.state.module.plain_file()?, at);
        if moved > 0 {
            held.state.moved(at + moved);
            if mode == Mode::Write {
                self.core.file.changed();
            }
        }
        Some(result)
    }
}

impl Drop for Stream {
    /// As `close`, and nobody hears of errors.
    fn drop(&mut self) {
        if self.flush().is_err() {
            self.hold(false).state.module.cut();
        }
        self.core.file.part(&self.core);
    }
}

impl Held<'_> {
    /// As `Stream::empty`.
    pub fn empty(&mut self, Lent { at, bytes, mode }: Lent, file: &File) -> Result<Result<()>> {
        self.state.resize(at, bytes, 0, mode)?;
        Ok(self.state.free_empty(at, mode, file))
    }

    fn refill(&mut self, least: usize, file: &File) -> Result<()> {
        if self.state.is_by_line {
            self.ask()?;
        }
        self.state.refill(least, file, &self.overlay)
    }

    /// A terminal is about to be waited for: what was written to terminals is seen there. Of what goes wrong only a signal is this call's.
    #[cold]
    fn ask(&mut self) -> Result<()> {
        match self.state.drain() {
            Err(e @ Error::Os(Errno::INTR)) => Err(e),
            _ => lines::write_others(self.state.core()),
        }
    }

    fn length(&mut self) -> Result<u64> {
        self.state.length(&self.overlay)
    }

    fn seek(&mut self, to: SeekFrom) -> Result<()> {
        if !self.state.module.is_seekable() {
            return self.state.go_to(to);
        }
        let (base, by) = match to {
            SeekFrom::Start(n) => (n, 0),
            SeekFrom::Current(by) => (self.state.position(), by),
            SeekFrom::End(by) => (self.length()?, by),
        };
        let to = base.checked_add_signed(by).ok_or(Error::BadOffset)?;
        self.state.seek(to)
    }

    pub fn search(&mut self, delimiter: u8, most: usize, file: &File) -> Result<Lent> {
        let data = |(at, bytes)| Lent { at, bytes, mode: Mode::Read };
        self.state.set_mode(Mode::Read)?;
        let mut looked = 0;
        loop {
            let ready = self.state.is_ready();
            let there = if ready { self.state.data() } else { &[] };
            let at_hand = there.len();
            if at_hand < looked {
                looked = 0; // changed meanwhile: from the beginning
            }
            let found = memchr::memchr(delimiter, &there[looked..at_hand.min(most)]).map(|n| looked + n + 1);
            if let Some(bytes) = found.or((at_hand >= most).then_some(most)) {
                return Ok(data(self.state.take_data(bytes.min(most))));
            }
            looked = at_hand;
            // A line of any length in a number of fills that is its logarithm; a pipe is not waited for beyond its next bytes.
            let more = if self.state.module.is_prompt() { at_hand } else { 0 };
            self.refill(at_hand.saturating_add(more).saturating_add(1), file)?;
            if self.state.current.left == at_hand {
                return Ok(data(self.state.take_data(at_hand.min(most))));
            }
        }
    }

    pub fn alloc_as(
        &mut self,
        mode: Option<Mode>,
        to: Option<SeekFrom>,
        bytes: usize,
        align: usize,
        need: Need,
        file: &File,
    ) -> Result<Lent> {
        let mode = mode.unwrap_or(self.state.mode);
        self.state.set_mode(mode)?;
        let before = self.state.place();
        if let Some(to) = to {
            self.seek(to)?;
        }
        let allocated = self.alloc(mode, bytes, align, need, file);
        if allocated.is_err() && to.is_some() {
            let _ = self.seek(SeekFrom::Start(before)); // it was a place of the stream, so it is one
        }
        let (at, bytes) = allocated?;
        Ok(Lent { at, bytes, mode })
    }

    fn alloc(&mut self, mode: Mode, bytes: usize, align: usize, need: Need, file: &File) -> Result<(*mut u8, usize)> {
        if bytes == 0 {
            return Ok((std::ptr::null_mut(), 0));
        }
        if mode == Mode::Write {
            return Ok((self.state.take_room(bytes, align)?, bytes));
        }
        let whole = match need {
            Need::Some => self.state.module.is_seekable(),
            Need::AsModule => self.state.module.is_prompt(),
            Need::All => true,
        };
        let ready = self.state.is_ready();
        if !ready || (whole && self.state.current.left < bytes) {
            self.refill(if whole { bytes } else { 1 }, file)?;
        }
        let aligned = self.state.current.at.addr().is_multiple_of(align);
        if aligned || self.state.current.left == 0 {
            Ok(self.state.take_data(bytes))
        } else {
            self.state.take_copy(bytes)
        }
    }
}

/// The lock of a stream, in the hands of one thread (§2, `LockAsfStream`).
pub struct Locked<'a> {
    stream: &'a Stream,
    // In this order: the stream's first, then the file's.
    _hold: Hold<'a>,
    _file: ReentrantMutexGuard<'a, ()>,
}

impl std::ops::Deref for Locked<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        self.stream
    }
}
