//! What can go wrong with one file of a copy.

use std::fmt;
use std::io;

use ninefold::client::Error;
use ninefold::proto::Errno;

use crate::report::{Failure, Printable};

/// Why something failed, here or there.
#[derive(Clone, Debug)]
pub enum Cause {
    /// A system call of this machine.
    Here(Errno),
    There(Error),
    /// The same, with what to do about it.
    Server(Box<Failure>),
    /// Nobody refused: what was found is wrong.
    Words(String),
    /// What was written reads back otherwise: how.
    Differs(String),
    /// The source was another before all of it was read: how.
    Changed(String),
}

impl Cause {
    pub fn words(text: impl Into<String>) -> Cause {
        Cause::Words(text.into())
    }

    pub fn errno(&self) -> Option<Errno> {
        match self {
            Cause::Here(errno) => Some(*errno),
            Cause::There(e) => Some(e.errno()),
            Cause::Server(failure) => Some(failure.error.errno()),
            Cause::Words(_) | Cause::Differs(_) | Cause::Changed(_) => None,
        }
    }

    /// Whether a copy that failed of it can go on where it ended: not when what was written is wrong or of a source that is another by now,
    /// nor when it fills the disk.
    pub fn leaves_what_can_be_gone_on_with(&self) -> bool {
        !matches!(self, Cause::Differs(_) | Cause::Changed(_)) && !self.is(Errno::ENOSPC) && !self.is(Errno::EDQUOT)
    }

    pub fn is(&self, errno: Errno) -> bool {
        self.errno() == Some(errno)
    }

    /// Whether a connection is gone that was there, and everything else on it fails too.
    pub fn is_loss(&self) -> bool {
        matches!(self, Cause::There(Error::Lost(_) | Error::Misbehaved(_)))
    }

    /// Whether a refusal is about this name in this directory, so that another way to write the file may work: a disk
    /// that is full or broken, or a connection that is gone, would only lose the old content too.
    pub fn is_of_the_directory(&self) -> bool {
        let hopeless = [
            Errno::ENOSPC,
            Errno::EDQUOT,
            Errno::EIO,
            Errno::EROFS,
            Errno::ENOMEM,
            Errno::EMFILE,
            Errno::ENFILE,
            Errno::ENOENT,
        ];
        let refused = matches!(self, Cause::Here(_) | Cause::There(Error::Refused(_) | Error::Unsupported { .. }));
        refused && self.errno().is_some_and(|errno| !hopeless.contains(&errno))
    }
}

impl From<Error> for Cause {
    fn from(e: Error) -> Cause {
        Cause::There(e)
    }
}

impl From<rustix::io::Errno> for Cause {
    fn from(e: rustix::io::Errno) -> Cause {
        Cause::Here(Errno(e.raw_os_error().unsigned_abs()))
    }
}

impl From<io::Error> for Cause {
    fn from(e: io::Error) -> Cause {
        match e.raw_os_error() {
            Some(number) => Cause::Here(Errno(number.unsigned_abs())),
            None => Cause::Words(e.to_string()),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Here(errno) => errno.fmt(f),
            Cause::There(e) => e.fmt(f),
            Cause::Server(failure) => failure.error.fmt(f),
            Cause::Words(text) | Cause::Changed(text) => f.write_str(text),
            Cause::Differs(how) => write!(f, "what was written reads back otherwise: {how}"),
        }
    }
}

/// A failure of one file: which, what was tried, and why it failed.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub file: String,
    pub tried: &'static str,
    pub cause: Cause,
}

impl Trouble {
    pub fn new(file: impl fmt::Display, tried: &'static str, cause: impl Into<Cause>) -> Trouble {
        Trouble { file: file.to_string(), tried, cause: cause.into() }
    }

    /// For `map_err`.
    pub fn of<E: Into<Cause>>(file: impl fmt::Display, tried: &'static str) -> impl FnOnce(E) -> Trouble {
        move |cause| Trouble::new(file, tried, cause)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble { file: failure.file.clone(), tried: failure.tried, cause: Cause::Server(Box::new(failure)) }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::There(e) => return Failure::new(&self.file, self.tried, e.clone()).fmt(f),
            Cause::Server(failure) => return failure.fmt(f),
            _ => {}
        }
        write!(f, "{}: ", Printable(&self.file))?;
        if !self.tried.is_empty() {
            write!(f, "{}: ", self.tried)?;
        }
        // The words may hold a name that a server told.
        write!(f, "{}", Printable(&self.cause.to_string()))
    }
}
