//! What can go wrong for a client: a closed list, each with the errno that a program would see.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ninefold_proto::client::ServerMisbehaved;
use ninefold_proto::types::BadName;
use ninefold_proto::{Dialect, Errno};

/// Why an operation failed. It names neither the file nor the server: whoever asked knows them.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The server refused; nothing is wrong with the connection.
    #[error("{0}")]
    Refused(ninefold_proto::Error),
    /// The server broke the protocol; the connection is closed.
    #[error("the server broke the protocol: {0}")]
    Misbehaved(ServerMisbehaved),
    /// The server's answers are well formed and cannot be true; the connection goes on.
    #[error("the server is not to be believed: {0}")]
    Suspect(Suspicion),
    /// No reply came, and nothing moved that it had to wait behind, for so long (see
    /// [`Options::timeout`](super::Options::timeout)); the request was flushed, or never sent.
    #[error("no reply within {0:?}")]
    TimedOut(Duration),
    /// The connection ended.
    #[error("the connection is lost: {0}")]
    Lost(Loss),
    /// The connection ended, or the server was silent or broke the protocol, before it had agreed and taken the client in, and
    /// what it was asked on the way changes files: it may have done it all the same. It was not asked again.
    #[error("{0}: it may or may not have been done")]
    InDoubt(Box<Error>),
    /// No connection was made.
    #[error("cannot connect: {0}")]
    Dial(Arc<io::Error>),
    /// The server and we have no dialect in common, or not the one that was pinned.
    #[error("the server does not speak {0}")]
    NoDialect(&'static str),
    /// The dialect has no message for it.
    #[error("{dialect} cannot {what}")]
    Unsupported { what: &'static str, dialect: Dialect },
    /// A name that no file can have.
    #[error("{0}")]
    Name(#[from] BadName),
    /// More symbolic links than a path may go through, 40 as in Linux (path_resolution(7)).
    #[error("too many levels of symbolic links")]
    TooManyLinks,
    /// What was asked does not fit a message or a number on the wire.
    #[error("{0} is too large for {1}")]
    TooLarge(&'static str, Dialect),
    /// A stream came to an end that is not that of what was asked.
    #[error("{0}")]
    Stream(#[from] Fault),
    /// A call of [`blocking`](crate::blocking) where it would stop others.
    #[error("a blocking call within an async runtime, where ninefold::client must be used")]
    WithinRuntime,
    /// All fids of the connection are in use.
    #[error("too many files are in use on one connection")]
    TooManyFids,
}

/// Why the connection ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Loss {
    #[error("the server closed it")]
    Closed,
    #[error("the server closed it without a word")]
    Wordless,
    #[error("{0}")]
    Io(Arc<io::Error>),
    #[error("the server does not answer Tflush or Tclunk")]
    Unanswered,
    #[error("it was closed here")]
    ClosedHere,
    #[error("the server does not speak what it did the last time")]
    OtherVersion,
}

/// What can be wrong with a [`Stream`](super::Stream) though no message about it failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Fault {
    #[error("the connection of its data is lost: {0}")]
    Cut(Arc<io::Error>),
    #[error("of {sent} bytes that the server sent {got} came")]
    Short { got: u64, sent: u64 },
    #[error("more came than the {asked} bytes that were asked for")]
    Beyond { asked: u64 },
    #[error("of {sent} bytes that were sent the server wrote {written}")]
    Unwritten { sent: u64, written: u64 },
    #[error("the file was changed while it was read")]
    Changed,
}

/// Well-formed answers that cannot be true.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Suspicion {
    #[error("its directory has an entry that is no name: {0}")]
    EntryName(BadName),
    #[error("its directory does not end: more than {0} entries")]
    EndlessDirectory(usize),
    #[error("its directory comes back to the same place")]
    LoopingDirectory,
    #[error("its directory holds what is no stat record: {0}")]
    Stat(ninefold_proto::wire::DecodeError),
    #[error("it gives a size of {0} bytes")]
    Size(u64),
    #[error("it gives a time of {0} nanoseconds in a second")]
    Time(u64),
    #[error("it tells no type and permissions")]
    NoMode,
    #[error("its qid and its mode disagree whether a file is a directory")]
    Type,
    #[error("it takes nothing of what is written and tells no error")]
    NoProgress,
    #[error("the target of its symbolic link is empty, holds a NUL, or has more than 4095 bytes")]
    LinkTarget,
    #[error("it gives a stream of {length} bytes from {offset} on, which nobody asked for")]
    StreamPart { offset: u64, length: u64 },
    #[error("it says that an attribute has {0} bytes")]
    XattrSize(u64),
    #[error("it grants more than the lock that was asked, or answers a lock with {0}")]
    Lock(u8),
}

impl Error {
    /// The number that a program's system call would fail with.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Refused(e) => of_linux(e.errno),
            Error::InDoubt(e) => e.errno(),
            Error::Misbehaved(_) | Error::Suspect(_) => Errno::EPROTO,
            Error::TimedOut(_) => Errno::ETIMEDOUT,
            Error::Lost(_) => Errno::ECONNRESET,
            Error::Dial(e) => dial_errno(e),
            Error::NoDialect(_) => Errno::EPROTO,
            Error::Unsupported { .. } => Errno::EOPNOTSUPP,
            Error::Name(BadName::TooLong) => Errno::ENAMETOOLONG,
            Error::Name(_) => Errno::EINVAL,
            Error::TooManyLinks => Errno::ELOOP,
            Error::TooLarge(..) => Errno::EOVERFLOW,
            Error::Stream(fault) => fault.errno(),
            // What else runs there would wait for it, and it perhaps for that.
            Error::WithinRuntime => Errno::EDEADLK,
            Error::TooManyFids => Errno::EMFILE,
        }
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.errno() == Errno::ENOENT
    }

    /// Whether nothing more can be asked on this connection.
    pub fn is_fatal(&self) -> bool {
        use Error::{Dial, InDoubt, Lost, Misbehaved, NoDialect};
        matches!(self, Misbehaved(_) | Lost(_) | InDoubt(_) | Dial(_) | NoDialect(_))
    }
}

impl Fault {
    fn errno(&self) -> Errno {
        match self {
            // What was read is of a file that is no more.
            Fault::Changed => Errno::ESTALE,
            Fault::Cut(_) => Errno::ECONNRESET,
            Fault::Beyond { .. } => Errno::EPROTO,
            Fault::Short { .. } | Fault::Unwritten { .. } => Errno::EIO,
        }
    }
}

/// The number that Linux has for one of .n1's own, which no program knows (protocol.md, "Errors").
fn of_linux(errno: Errno) -> Errno {
    match errno {
        Errno::ETRYLATER => Errno::EAGAIN,
        Errno::ESTALE_LEASE | Errno::ESESSION | Errno::EMOVED => Errno::ESTALE,
        Errno::EFENCED => Errno::EIO,
        other => other,
    }
}

/// The number of an error of dialling, which may be a text of our own with a kind and no number.
fn dial_errno(e: &io::Error) -> Errno {
    use io::ErrorKind as Kind;
    use rustix::io::Errno as Os;
    if let Some(number) = e.raw_os_error() {
        return Errno(number.unsigned_abs());
    }
    let number = match e.kind() {
        Kind::NotFound => Os::NOENT,
        Kind::NotADirectory => Os::NOTDIR,
        Kind::PermissionDenied => Os::ACCESS,
        Kind::ConnectionRefused => Os::CONNREFUSED,
        Kind::ConnectionReset => Os::CONNRESET,
        Kind::ConnectionAborted => Os::CONNABORTED,
        Kind::NotConnected => Os::NOTCONN,
        Kind::BrokenPipe => Os::PIPE,
        Kind::HostUnreachable => Os::HOSTUNREACH,
        Kind::NetworkUnreachable => Os::NETUNREACH,
        Kind::NetworkDown => Os::NETDOWN,
        Kind::AddrNotAvailable => Os::ADDRNOTAVAIL,
        Kind::TimedOut => Os::TIMEDOUT,
        Kind::InvalidInput => Os::INVAL,
        Kind::Unsupported => Os::OPNOTSUPP,
        Kind::OutOfMemory => Os::NOMEM,
        Kind::WouldBlock => Os::AGAIN,
        _ => Os::IO,
    };
    Errno(number.raw_os_error().unsigned_abs())
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::Refused(errno.into())
    }
}

impl From<Suspicion> for Error {
    fn from(suspicion: Suspicion) -> Error {
        Error::Suspect(suspicion)
    }
}

impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(e.errno().0.cast_signed()).kind(), e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_dialling_has_the_number_of_its_cause() {
        let errno = |e: io::Error| Error::Dial(Arc::new(e)).errno();
        for number in [Errno::ETIMEDOUT, Errno::ENOENT, Errno::EACCES, Errno::ECONNREFUSED, Errno(113), Errno(101)] {
            let e = io::Error::from_raw_os_error(number.0.cast_signed());
            // In words of our own the number is lost, and the kind is not.
            let reworded = io::Error::new(e.kind(), "start the server, or check the address");
            assert_eq!((errno(e), errno(reworded)), (number, number));
        }
        assert_eq!(errno(io::Error::other("whatever it is")), Errno::EIO);
    }
}
