//! Failures of single files: told as they come, while the command goes on with the others.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use ninefold::client::{Error, Fault};
use ninefold::proto::Errno;

/// A failure of one file: what, where, and what to do about it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The file, as the user knows it.
    pub file: String,
    /// What was tried when it failed: "cannot open". May be empty.
    pub tried: &'static str,
    pub error: Error,
    /// What to do, where more is known than the error tells.
    pub advice: Option<String>,
}

impl Failure {
    pub fn new(file: impl fmt::Display, tried: &'static str, error: Error) -> Failure {
        Failure { file: file.to_string(), tried, error, advice: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", Printable(&self.file))?;
        if !self.tried.is_empty() {
            write!(f, "{}: ", self.tried)?;
        }
        write!(f, "{}", self.error)?;
        match (&self.advice, hint(&self.error)) {
            (Some(advice), _) => write!(f, ": {advice}"),
            (None, Some(hint)) => write!(f, ": {hint}"),
            (None, None) => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// What to do about an error, where its own words do not say it.
fn hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::InDoubt(_) => "look whether it was, and try again if not",
        Error::TimedOut(_) => "try again, or give it longer with --timeout",
        Error::Stream(Fault::Changed) => "try again when nobody writes to it",
        Error::Stream(Fault::Cut(_)) => "the way to the server was cut: try again",
        Error::Stream(_) => "try again, or with --no-stream",
        Error::Lost(_) => "the server, or the way to it, is gone: try again",
        Error::Misbehaved(_) | Error::Suspect(_) => "look at what it says with ninefold trace",
        Error::Unsupported { .. } => "a server of 9P2000.L can",
        Error::NoDialect(_) => "leave ?dialect= out, or name one that it speaks",
        Error::TooManyLinks => "look for links that lead in a circle with ninefold ls -l",
        Error::Refused(e) => return refusal(e.errno),
        _ => return None,
    })
}

fn refusal(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::EROFS => "the server exports it read-only",
        Errno::EACCES | Errno::EPERM => "the user that the server takes you for may not",
        Errno::ENOTDIR => "what has a name or a slash behind it must be one",
        Errno::EISDIR => "name a file in it",
        Errno::ENOTEMPTY => "ninefold rm -r removes what is in it too",
        Errno::ENOSPC => "make room where it is served",
        Errno::EDQUOT => "remove something there, or ask for a greater quota",
        Errno::EBUSY | Errno::ETXTBSY => "something there uses it: try again when that has ended",
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => "the server is short of it: try again later",
        Errno::ENAMETOOLONG => "give a shorter name",
        Errno::ENXIO => "nobody is at the other end of it",
        Errno::EXDEV => "copy it with ninefold cp, then remove it",
        _ => return None,
    })
}

/// Whether a terminal would obey a character instead of showing it: the controls, those of lines and paragraphs, and those
/// that turn the direction of what follows (UAX #9), by which a name can be made to look like another.
pub fn is_obeyed(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A text without anything that a terminal would obey.
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if is_obeyed(c) { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}

/// Tells something on standard error, a line. Where that cannot be written to (a full disk, a reader who has gone) nobody
/// can be told so either; the exit status still says it.
pub fn say(remark: impl fmt::Display) {
    // Servers' words may be in it.
    let line = format!("ninefold: {}\n", Printable(&remark.to_string()));
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Collects failures. One of a command.
#[derive(Debug, Default)]
pub struct Report {
    failures: AtomicUsize,
}

impl Report {
    /// Tells a failure on standard error; the command goes on, and ends with exit status 1.
    pub fn complain(&self, failure: impl fmt::Display) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.warn(failure);
    }

    /// Tells the failure of a file; see [`Report::complain`].
    pub fn fail(&self, file: impl fmt::Display, tried: &'static str, error: Error) {
        self.complain(Failure::new(file, tried, error));
    }

    /// Tells what is no failure.
    pub fn warn(&self, remark: impl fmt::Display) {
        say(remark);
    }

    /// How many were told so far.
    pub fn failures(&self) -> usize {
        self.failures.load(Ordering::Relaxed)
    }

    /// 0, or 1 after a complaint.
    pub fn exit_code(&self) -> ExitCode {
        if self.failures() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
