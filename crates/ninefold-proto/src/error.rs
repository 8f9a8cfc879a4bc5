//! Errors as the dialects tell them: Linux numbers (.L), texts (9P2000), both (.u).
//!
//! One table ties a number to its name and to the text that a Plan 9 program expects.

use alloc::borrow::Cow;
use core::fmt;

use crate::n1::OWN_ERRORS;

/// A Linux error number (errno(3)), as Rlerror carries it whatever the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub u32);

macro_rules! errnos {
    ($($number:literal $name:ident $text:literal;)*) => {
        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: Errno = Errno($number);)*
        }
        /// Every row: number, name, text.
        pub(crate) const ERRNOS: &[(u32, &str, &str)] = &[$(($number, stringify!($name), $text)),*];
    };
}

// Texts follow Plan 9's errstr where it has one (/sys/src/9/port/error.h), else strerror(3) in lower case.
errnos! {
    1 EPERM "operation not permitted";
    2 ENOENT "file does not exist";
    4 EINTR "interrupted";
    5 EIO "i/o error";
    6 ENXIO "no such device or address";
    7 E2BIG "argument list too long";
    9 EBADF "bad use of fid";
    11 EAGAIN "resource temporarily unavailable";
    12 ENOMEM "out of memory";
    13 EACCES "permission denied";
    14 EFAULT "bad address";
    16 EBUSY "device or object already in use";
    17 EEXIST "file already exists";
    18 EXDEV "cross-device link";
    19 ENODEV "no such device";
    20 ENOTDIR "not a directory";
    21 EISDIR "file is a directory";
    22 EINVAL "bad argument";
    23 ENFILE "too many open files in system";
    24 EMFILE "too many open files";
    25 ENOTTY "inappropriate ioctl for device";
    26 ETXTBSY "text file busy";
    27 EFBIG "file too large";
    28 ENOSPC "file system full";
    29 ESPIPE "seek on a stream";
    30 EROFS "read-only file system";
    31 EMLINK "too many links";
    32 EPIPE "write to hungup stream";
    33 EDOM "numerical argument out of domain";
    34 ERANGE "result out of range";
    35 EDEADLK "resource deadlock avoided";
    36 ENAMETOOLONG "file name too long";
    37 ENOLCK "no locks available";
    38 ENOSYS "function not implemented";
    39 ENOTEMPTY "directory not empty";
    40 ELOOP "too many levels of symbolic links";
    61 ENODATA "no data available";
    62 ETIME "timer expired";
    70 ECOMM "communication error on send";
    71 EPROTO "protocol botch";
    75 EOVERFLOW "value too large for defined data type";
    90 EMSGSIZE "message too long";
    95 EOPNOTSUPP "operation not supported";
    103 ECONNABORTED "connection aborted";
    104 ECONNRESET "connection reset by peer";
    105 ENOBUFS "no free buffers";
    110 ETIMEDOUT "connection timed out";
    111 ECONNREFUSED "connection refused";
    116 ESTALE "stale file handle";
    122 EDQUOT "disk quota exceeded";
    125 ECANCELED "operation canceled";
    // .n1's own: they pass between the two ends only.
    4096 ETRYLATER "try again later";
    4097 ESTALE_LEASE "lease is not held any more";
    4098 ESESSION "unknown session";
    4099 EFENCED "client is fenced";
    4100 EMOVED "file has moved";
}

/// Texts that servers in the field use for an error beside the table's own (lower case).
const OTHER_TEXTS: &[(&str, Errno)] = &[
    ("no such file or directory", Errno::ENOENT),
    ("file not found", Errno::ENOENT),
    ("directory entry not found", Errno::ENOENT),
    ("file or directory not found", Errno::ENOENT),
    ("file exists", Errno::EEXIST),
    ("file or directory already exists", Errno::EEXIST),
    ("access permission denied", Errno::EACCES),
    ("wstat prohibited", Errno::EPERM),
    ("is a directory", Errno::EISDIR),
    ("directory is not empty", Errno::ENOTEMPTY),
    ("read only file system", Errno::EROFS),
    ("file system read only", Errno::EROFS),
    ("no space left on device", Errno::ENOSPC),
    ("disk full", Errno::ENOSPC),
    ("file is in use", Errno::EBUSY),
    ("exclusive access file", Errno::EBUSY),
    ("fid unknown or out of range", Errno::EBADF),
    ("unknown fid", Errno::EBADF),
    ("bad file descriptor", Errno::EBADF),
    ("invalid argument", Errno::EINVAL),
    ("illegal name", Errno::EINVAL),
    ("input/output error", Errno::EIO),
    ("illegal mode", Errno::EINVAL),
    ("illegal offset", Errno::EINVAL),
    ("file name syntax", Errno::EINVAL),
    // Plan 9's lib9p and its ports.
    ("walk in non-directory", Errno::ENOTDIR),
    ("create in non-directory", Errno::ENOTDIR),
    // sminez/ninep.
    ("unknown file", Errno::ENOENT),
    // knusbaum/go9p.
    ("no such path", Errno::ENOENT),
    ("permission denied.", Errno::EACCES),
    ("cannot write to directory.", Errno::EISDIR),
    ("bad fid.", Errno::EBADF),
    ("change not implemented", Errno::EOPNOTSUPP),
    // Ours, for what a client meets that does nothing wrong.
    ("too many fids", Errno::EMFILE),
    ("too many requests of this connection wait already", Errno::EAGAIN),
    ("this server serves its own user only", Errno::EACCES),
    ("no such export", Errno::ENOENT),
    ("no such directory in the export", Errno::ENOENT),
];

impl Errno {
    /// `ENOENT`, or `None` for a number outside the table.
    pub fn name(self) -> Option<&'static str> {
        ERRNOS.iter().find(|row| row.0 == self.0).map(|row| row.1)
    }

    /// The number for who knows those of Linux only: in place of .n1's own it is the one that says the most like it.
    pub fn linux(self) -> Errno {
        match self {
            Errno::ETRYLATER => Errno::EAGAIN,
            Errno::ESTALE_LEASE | Errno::ESESSION | Errno::EMOVED => Errno::ESTALE,
            Errno(own) if own >= OWN_ERRORS => Errno::EIO,
            errno => errno,
        }
    }

    /// The text that 9P2000 and .u carry for it.
    pub fn text(self) -> Cow<'static, str> {
        match ERRNOS.iter().find(|row| row.0 == self.0) {
            Some(row) => Cow::Borrowed(row.2),
            None => Cow::Owned(alloc::format!("error {}", self.0)),
        }
    }

    /// The number for a text from a 9P2000 server; an unknown text is EIO.
    ///
    /// Servers decorate: `stat: 'x' file does not exist`. The whole text is tried first, then its end.
    pub fn from_text(text: &[u8]) -> Errno {
        let lower = alloc::string::String::from_utf8_lossy(text).to_ascii_lowercase();
        let rows = || ERRNOS.iter().map(|row| (row.2, Errno(row.0))).chain(OTHER_TEXTS.iter().copied());
        rows()
            .find(|(t, _)| lower == *t)
            .or_else(|| rows().filter(|(t, _)| lower.ends_with(t)).max_by_key(|(t, _)| t.len()))
            .map_or(Errno::EIO, |(_, errno)| errno)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// An error reply: the number, and a text where the number's own says too little.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    pub errno: Errno,
    /// When to ask again, in milliseconds from now, as .n1 tells with `ETRYLATER`; 0 is no hint.
    pub retry_ms: u32,
    text: Option<Cow<'static, str>>,
}

impl Error {
    /// An error told by its number alone.
    pub const fn new(errno: Errno) -> Error {
        Error { errno, retry_ms: 0, text: None }
    }

    /// Nothing was done, and in so many milliseconds it may be. Without .n1 that is told as `EAGAIN`.
    pub fn try_later(retry_ms: u32, text: &'static str) -> Error {
        Error { errno: Errno::ETRYLATER, retry_ms, text: Some(Cow::Borrowed(text)) }
    }

    /// An error with a text of its own for the dialects that carry one.
    pub fn with_text(errno: Errno, text: impl Into<Cow<'static, str>>) -> Error {
        Error { errno, retry_ms: 0, text: Some(text.into()) }
    }

    /// The text that is not the number's own, if there is one.
    pub fn own_text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The text for 9P2000 and .u.
    pub fn text(&self) -> Cow<'static, str> {
        self.text.clone().unwrap_or_else(|| self.errno.text())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut error = f.debug_struct("Error");
        error.field("errno", &self.errno).field("text", &self.text);
        if self.retry_ms > 0 {
            error.field("retry_ms", &self.retry_ms);
        }
        error.finish()
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::new(errno)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl core::error::Error for Error {}
impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_the_table_maps_back_to_its_number() {
        for &(number, name, text) in ERRNOS {
            assert_eq!(Errno::from_text(text.as_bytes()), Errno(number), "{name}");
        }
    }

    #[test]
    fn no_number_of_our_own_is_left_for_a_program() {
        for &(number, name, _) in ERRNOS {
            assert!(Errno(number).linux().0 < OWN_ERRORS, "{name}");
        }
        assert_eq!((Errno(5000).linux(), Errno::ENOENT.linux()), (Errno::EIO, Errno::ENOENT));
    }

    #[test]
    fn decorated_texts_of_real_servers_are_understood() {
        assert_eq!(Errno::from_text(b"stat: 'x' file does not exist"), Errno::ENOENT);
        assert_eq!(Errno::from_text(b"No such file or directory"), Errno::ENOENT);
        assert_eq!(Errno::from_text(b"No such path"), Errno::ENOENT);
        assert_eq!(Errno::from_text(b"whatever"), Errno::EIO);
    }
}
