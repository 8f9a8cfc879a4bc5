//! Streams on files of 9P servers: regions are the buffers that the file's bytes arrive in.
//!
//! A [`Remote`] is made of an open file, [`Options::take_remote`] makes a [`Stream`] of it, and everything else is as with any stream.
//! Each call waits on the thread that makes it, by the [`Waiter`] of who has the connection; of a file of [`ninefold::blocking`] it is that
//! one's.
//!
//! ```no_run
//! use ninefold::blocking::Client;
//! use ninefold::client::{Follow, Mode, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let address: ninefold::transport::Address = "9p://server/log".parse()?;
//! let client = Client::connect(&address, Options::default())?;
//! let file = client.walk(&address.path, Follow::All)?.open(Mode::READ)?;
//! let stream = ninefold_stream::Options::new().take_remote(file)?;
//! loop {
//!     let line = stream.alloc_line()?; // no copy: it lies where it arrived
//!     if line.is_empty() {
//!         break;
//!     }
//! }
//! stream.close()?;
//! # Ok(())
//! # }
//! ```

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use ninefold::blocking;
use ninefold::client;
use ninefold::proto::QidType;
use ninefold::proto::open::Access;
use rustix::io::Errno;

use crate::backplane::current::Mode;
use crate::backplane::file::File;
use crate::error::{Error, Result};
use crate::module::ninep::Ninep;
use crate::open::{Options, stream_of};
use crate::stream::Stream;

/// How a call waits for what a server answers.
pub trait Waiter: Send + Sync {
    /// Drives the work to its end, on the thread that calls, where the connection's own runtime is entered.
    ///
    /// # Errors
    /// Those of one who cannot wait here: within a runtime, for one. Then nothing was done.
    fn wait(&self, work: Pin<&mut dyn Future<Output = ()>>) -> Result<()>;

    /// Is this the process that has the connection? A child of fork(2) has not.
    fn is_here(&self) -> bool;
}

/// What [`ninefold::blocking`] waits by.
struct Blocking {
    process: u32,
}

impl Waiter for Blocking {
    fn wait(&self, work: Pin<&mut dyn Future<Output = ()>>) -> Result<()> {
        let work = async {
            work.await;
            Ok(())
        };
        blocking::block_on(work).map_err(|e| error_of(&e))
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

/// A client's error by its number. What a server says may be any number: one that errno does not have is `EIO`.
pub(crate) fn error_of(e: &client::Error) -> Error {
    /// The largest number that errno has (include/linux/err.h, MAX_ERRNO).
    const MOST: u32 = 4095;
    let number = e.errno().0;
    Error::Os(if (1..=MOST).contains(&number) { Errno::from_raw_os_error(number.cast_signed()) } else { Errno::IO })
}

/// What was copied, and what not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Bytes that came from the server.
    pub received: u64,
    /// Of them those that were copied between where they were received and where they were lent: regions that lie in two buffers are
    /// joined.
    pub copied: u64,
}

/// An open file of a server, of which a stream is to be made.
pub struct Remote {
    pub(crate) file: client::File,
    pub(crate) waiter: Arc<dyn Waiter>,
    /// Where the stream begins.
    pub(crate) at: u64,
    pub(crate) going: Option<Going>,
    pub(crate) has_places: bool,
    /// What is written goes to the end.
    pub(crate) appends: bool,
    /// None: as the file was opened.
    pub(crate) only: Option<Mode>,
}

/// A stream of the client's that is read or written already.
pub(crate) struct Going {
    pub stream: client::Stream,
    /// What came and was not taken.
    pub rest: Bytes,
}

impl Remote {
    /// The stream waits by `waiter`, whose runtime is the one that the file's connection lives in.
    pub fn new(file: client::File, waiter: Arc<dyn Waiter>) -> Remote {
        let appends = file.mode().append || file.qid().kind.has(QidType::APPEND);
        Remote { file, waiter, at: 0, going: None, has_places: true, appends, only: None }
    }

    /// It begins at that place.
    #[must_use]
    pub fn at(self, at: u64) -> Remote {
        Remote { at, ..self }
    }

    /// Whether it has places, which of a fifo of .u and .L only its metadata tell.
    #[must_use]
    pub fn places(self, has_places: bool) -> Remote {
        Remote { has_places, ..self }
    }

    /// Whether what is written goes to the end, which 9P2000's own opening does not say: there the end is asked for each time.
    #[must_use]
    pub fn appends(self, appends: bool) -> Remote {
        Remote { appends, ..self }
    }

    /// It only reads, or only writes.
    #[must_use]
    pub fn only(self, mode: Mode) -> Remote {
        Remote { only: Some(mode), ..self }
    }

    /// It goes on with what `stream` reads of the file, behind `rest`, which came of it: both from the stream's place on. Or with what it
    /// writes: the place is where that goes next.
    #[must_use]
    pub fn going_on(self, stream: client::Stream, rest: Bytes) -> Remote {
        Remote { going: Some(Going { stream, rest }), ..self }
    }
}

impl From<blocking::File> for Remote {
    fn from(file: blocking::File) -> Remote {
        Remote::new(file.into(), Arc::new(Blocking { process: std::process::id() }))
    }
}

impl Options {
    /// A stream on a file of a server, which it closes in the end. Whether it reads or writes is how the file was opened. By data
    /// connections where the server has them, else in messages; [`Options::module`] takes `ninep-stream` or `ninep` by name.
    ///
    /// # Errors
    /// [`Error::Directory`]; [`Error::NoModule`]; `EDEADLK` within an async runtime.
    pub fn take_remote(&self, remote: impl Into<Remote>) -> Result<Stream> {
        let remote = remote.into();
        if remote.file.qid().is_dir() {
            return Err(Error::Directory);
        }
        let name = match self.module_name() {
            None if remote.file.client().has_streams() => "ninep-stream",
            None | Some("ninep") => "ninep",
            Some("ninep-stream") => "ninep-stream",
            Some(_) => return Err(Error::NoModule),
        };
        let access = remote.file.mode().access;
        let writes = matches!(access, Access::Write | Access::ReadWrite);
        let may = (access.can_read() && remote.only != Some(Mode::Write), writes && remote.only != Some(Mode::Read));
        match remote.only {
            Some(Mode::Read) if !may.0 => return Err(Error::NotReadable),
            Some(Mode::Write) if !may.1 => return Err(Error::NotWritable),
            _ => {}
        }
        let file = File::of(key_of(&remote.file));
        let mut module = Ninep::new(name, remote, may, self.is_random())?;
        let places = module.begin()?;
        Ok(stream_of(Box::new(module), may, self.calibration_or_machines(), file, places))
    }
}

/// By what streams of this process know that they are of one file. A qid is to tell that, and of servers of .n1 it does; others that export
/// several file systems as one have been seen to give it twice, and what one stream freed must not be taken for another file's.
fn key_of(file: &client::File) -> Option<(u64, u64)> {
    /// No device of this machine has it.
    const REMOTE: u64 = 1 << 63;
    let client = file.client();
    client.version().is_n1().then(|| (REMOTE | client.tree_number() as u64, file.qid().path))
}

impl Stream {
    /// What was copied of what a server sent. None of other streams, or where a module was pushed.
    pub fn remote_counts(&self) -> Option<Counts> {
        self.core().enter().module.remote_counts()
    }
}

/// What a call that fails in waiting, and work that fails, are both told as.
pub(crate) fn wait<T>(
    waiter: &dyn Waiter,
    work: impl Future<Output = std::result::Result<T, client::Error>>,
) -> Result<T> {
    if !waiter.is_here() {
        return Err(Errno::BADF.into());
    }
    let mut answer = None;
    {
        let mut work = std::pin::pin!(async { answer = Some(work.await) });
        waiter.wait(work.as_mut())?;
    }
    answer.map_or(Err(Errno::IO.into()), |answer| answer.map_err(|e| error_of(&e)))
}
