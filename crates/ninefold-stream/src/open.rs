//! Opening: what a stream is of, and which module it gets.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, Mode as Permissions, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::backplane::core::Core;
use crate::backplane::current::Mode;
use crate::backplane::file::File;
use crate::backplane::lines;
use crate::backplane::state::State;
use crate::calibration::Calibration;
use crate::error::{Error, Result};
use crate::lock::StreamLock;
use crate::module::descriptor::{self, Kind};
use crate::module::{self, Opened, StreamModule};
use crate::primitives::{has_heavy_fence, seat};
use crate::stream::Stream;

/// Bytes of a ring: a wake-up, some microseconds, is little beside what a quarter of it takes to be written, and it lies in a second-level cache.
const RING: usize = 1 << 20;

/// How to open: as `std::fs::OpenOptions`, and what streams have besides. All off at first.
#[derive(Debug, Clone, Default)]
pub struct Options {
    read: bool,
    write: bool,
    append: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    random: bool,
    module: Option<String>,
    ring: Option<usize>,
    /// The machine's when none is given.
    calibration: Option<Calibration>,
}

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self, $name: bool) -> Self { self.$name = $name; self })*
    };
}

impl Options {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    switches! {
        /// To read.
        read,
        /// To write.
        write,
        /// To write at the end, wherever other processes have moved it.
        append,
        /// Makes the file where there is none, with mode 0666 less the umask.
        create,
        /// Makes the file, which must not be there.
        create_new,
        /// Empties the file.
        truncate,
        /// It is read here and there: nothing is read ahead.
        random,
    }

    /// The stream module by name, in the place of what would be chosen: docs/stream.md has the names.
    #[must_use]
    pub fn module(mut self, name: &str) -> Self {
        self.module = Some(name.to_owned());
        self
    }

    /// Bytes of a ring that the module `ring` makes to write to: 1 MiB where nothing is said, a power of two from 4 KiB to 64 MiB. Others
    /// are made one.
    #[must_use]
    pub fn ring_bytes(mut self, bytes: usize) -> Self {
        self.ring = Some(bytes);
        self
    }

    /// Another table of what is measured than [`Calibration::of_machine`].
    #[must_use]
    pub fn calibration(mut self, calibration: Calibration) -> Self {
        self.calibration = Some(calibration);
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// Those of open(2); [`Error::NoModule`] where `module` is not for the file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Stream> {
        let write = self.write || self.append;
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= match (self.read, write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (true, false) => OFlags::RDONLY,
            (false, false) => return Err(Error::NotReadable),
        };
        for (on, flag) in [
            (self.append, OFlags::APPEND),
            (self.create, OFlags::CREATE),
            (self.create_new, OFlags::CREATE | OFlags::EXCL),
            (self.truncate, OFlags::TRUNC),
        ] {
            if on {
                flags |= flag;
            }
        }
        let fd =
            rustix::io::retry_on_intr(|| rustix::fs::open(path.as_ref(), flags, Permissions::from_raw_mode(0o666)))?;
        self.take(fd)
    }

    /// A stream on an open descriptor, which it closes in the end. Whether it reads, writes or appends is what the descriptor does. It begins
    /// where the descriptor is; the descriptor's own offset is not moved.
    ///
    /// # Errors
    /// Those of fstat(2) and fcntl(2), [`Error::NoModule`].
    pub fn take(&self, fd: OwnedFd) -> Result<Stream> {
        self.take_as(fd, None)
    }

    /// `take`, of which the stream only reads, or only writes.
    ///
    /// # Errors
    /// As `take`; [`Error::NotReadable`], [`Error::NotWritable`].
    pub fn take_only(&self, fd: OwnedFd, mode: Mode) -> Result<Stream> {
        self.take_as(fd, Some(mode))
    }

    /// Two streams: what is written to the second is read from the first, by a ring where two processes have them. For a child of fork(2),
    /// made before either is used; each process drops the one that the other has. For a program that is started there are
    /// `UnixStream::pair` and `take` with the module `ring` at each end.
    ///
    /// # Errors
    /// Those of socketpair(2).
    pub fn ring(&self) -> Result<(Stream, Stream)> {
        let (from, to) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let options = self.clone().module("ring");
        Ok((options.take_only(from, Mode::Read)?, options.take_only(to, Mode::Write)?))
    }

    fn take_as(&self, fd: OwnedFd, only: Option<Mode>) -> Result<Stream> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        let access = flags & OFlags::RWMODE;
        let read = access != OFlags::WRONLY && only != Some(Mode::Write);
        let write = access != OFlags::RDONLY && only != Some(Mode::Read);
        match only {
            Some(Mode::Read) if !read => return Err(Error::NotReadable),
            Some(Mode::Write) if !write => return Err(Error::NotWritable),
            _ => {}
        }
        let append = flags.contains(OFlags::APPEND);
        let stat = rustix::fs::fstat(&fd)?;
        let calibration = self.calibration_or_machines();
        let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let kind = descriptor::kind(&fd)?;
        let places = kind == Kind::Places;
        let file = File::of(plain.then_some((stat.st_dev, stat.st_ino)));
        let begin = if places { rustix::fs::tell(&fd)? } else { 0 };
        let name = match self.module.as_deref() {
            Some(name) => name,
            None if kind == Kind::Directory => "directory",
            None if kind == Kind::Terminal => "terminal",
            None if !places => "pipe",
            None if write && append => "append",
            None if read && write && self.random => "read-write-random",
            None if read && write => "read-write",
            None if write => "pwrite",
            None if self.random => "pread-random",
            None if plain && stat.st_size as u64 >= calibration.map_from && maps_well(&fd) => "mmap",
            None => "pread",
        };
        let notice = file.notice();
        let opened = Opened { fd, read, write, append, calibration, notice, ring: self.ring.unwrap_or(RING) };
        let module = module::named(name, opened)?;
        let at = if append { u64::try_from(stat.st_size).unwrap_or(0) } else { begin };
        Ok(stream_of(module, (read, write), calibration, file, places.then_some(at)))
    }

    /// The name that was given.
    #[cfg(feature = "ninep")]
    pub(crate) fn module_name(&self) -> Option<&str> {
        self.module.as_deref()
    }

    #[cfg(feature = "ninep")]
    pub(crate) fn is_random(&self) -> bool {
        self.random
    }

    /// That was given, or is the machine's.
    pub(crate) fn calibration_or_machines(&self) -> Calibration {
        self.calibration.unwrap_or_else(Calibration::of_machine)
    }
}

/// A stream of that module, that reads and writes what is told, and begins at that place, if it has any.
pub(crate) fn stream_of(
    module: Box<dyn StreamModule>,
    may: (bool, bool),
    calibration: Calibration,
    file: Arc<File>,
    at: Option<u64>,
) -> Stream {
    let owner = has_heavy_fence().then(seat);
    let mut state = State::new(module, may, calibration);
    if let Some(at) = at {
        state.begin_at(at);
    }
    let core = Arc::new(Core::new(StreamLock::new(owner), file, state));
    core.file.join(&core);
    if core.writes_lines {
        lines::join(&core);
    }
    Stream::new(core)
}

/// File systems of which mapping a page costs no more than reading it. Memory's own have small pages, and others are far away.
fn maps_well(fd: &OwnedFd) -> bool {
    // The numbers are those of statfs(2).
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    rustix::fs::fstatfs(fd).is_ok_and(|stat| [EXT, XFS, BTRFS].contains(&(stat.f_type as u64)))
}
