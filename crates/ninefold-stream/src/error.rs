//! What a call on a stream can fail with, and the number of each.

use rustix::io::Errno;

/// Why a call failed. It is told by the call that met it (§2): nothing is kept in a place that threads share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A system call failed. What was freed and not written yet is kept, and the next flush tries again.
    #[error("{0}")]
    Os(Errno),
    /// The stream was not opened to read.
    #[error("the stream is not open for reading")]
    NotReadable,
    /// The stream was not opened to write.
    #[error("the stream is not open for writing")]
    NotWritable,
    /// What this stream is of has no places.
    #[error("the stream has no places")]
    NotSeekable,
    /// An offset below 0 or beyond 2^63 - 1.
    #[error("no such place in a file")]
    BadOffset,
    /// Only the region that was allocated last can be made longer or shorter.
    #[error("another region was allocated since")]
    NotLatest,
    /// Data that was freed cannot be written, because a region allocated before it is still out. Nothing is lost: free it, and flush again.
    #[error("a region allocated before freed data is not freed")]
    Outstanding,
    /// The file was made shorter while a region showed that part of it: its bytes may be zeros.
    #[error("the file was made shorter while it was read")]
    Shrunk,
    /// No memory for so long a region.
    #[error("no memory for a region of that length")]
    NoMemory,
    /// No region of this stream that is out begins at that address: it was freed before, or is another's.
    #[error("no region of this stream that is out")]
    NotLent,
    /// Regions are out.
    #[error("regions of the stream are not freed")]
    StillLent,
    /// The file ends before so many bytes.
    #[error("the file has not so many bytes")]
    TooFew,
    /// This thread does not have the lock of the stream.
    #[error("the stream is not locked by this thread")]
    NotLocked,
    /// An alignment that is not a power of two of at most a page.
    #[error("not an alignment: a power of two up to the size of a page")]
    BadAlignment,
    /// What is read is not what its module decompresses, or was damaged.
    #[error("compressed data is damaged, or of another kind")]
    Corrupt,
    /// What is decompressed ends before it should.
    #[error("compressed data ends too early")]
    Truncated,
    /// What is compressed needs a window of more than 128 MiB, which zstd(1) does not take unasked either.
    #[error("compressed data takes more memory than 128 MiB")]
    WindowTooLong,
    /// The process at the other end of a ring wrote into its words what cannot be, or offered one that could be taken away again.
    #[error("the other end of the ring broke its rules")]
    BadRing,
    /// No stream module has the name, or the module is not for this kind of file.
    #[error("no such stream module for this file")]
    NoModule,
    /// A directory of a server.
    #[error("is a directory")]
    Directory,
}

/// `Result` of a call on a stream.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The number that C's interface returns, negative there.
    pub fn errno(self) -> Errno {
        match self {
            Error::Os(errno) => errno,
            Error::NotReadable | Error::NotWritable => Errno::BADF,
            Error::NotSeekable => Errno::SPIPE,
            Error::BadOffset | Error::NotLatest | Error::NotLent | Error::BadAlignment | Error::NoModule => {
                Errno::INVAL
            }
            Error::Outstanding | Error::StillLent => Errno::BUSY,
            Error::TooFew => Errno::NODATA,
            Error::NotLocked => Errno::PERM,
            Error::Shrunk => Errno::IO,
            Error::Corrupt | Error::Truncated => Errno::BADMSG,
            Error::NoMemory | Error::WindowTooLong => Errno::NOMEM,
            Error::BadRing => Errno::PROTO,
            Error::Directory => Errno::ISDIR,
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Error::Os(errno)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Os(errno) => errno.into(),
            // The kind is the number's, the words are ours.
            other => std::io::Error::new(std::io::Error::from(other.errno()).kind(), other),
        }
    }
}
