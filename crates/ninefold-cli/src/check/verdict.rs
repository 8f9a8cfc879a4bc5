//! How a case ends: well, or by an [`End`] that says what was expected and what came.

use ninefold::proto::Errno;

/// What a case's function gives: nothing when the server keeps the rule.
pub type Outcome = Result<(), End>;

/// Why a case does not end well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The rule is broken.
    Fail { expected: String, got: String },
    /// The manual leaves a choice, or servers in use are known to differ without harm.
    Differs { expected: String, got: String },
    /// It could not be tried.
    Skip(String),
}

impl End {
    pub fn fail(expected: impl Into<String>, got: impl Into<String>) -> End {
        End::Fail { expected: expected.into(), got: got.into() }
    }

    pub fn differs(expected: impl Into<String>, got: impl Into<String>) -> End {
        End::Differs { expected: expected.into(), got: got.into() }
    }

    pub fn skip(why: impl Into<String>) -> End {
        End::Skip(why.into())
    }
}

/// Fails unless `holds`.
pub fn ensure(holds: bool, expected: impl Into<String>, got: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(End::fail(expected, got())) }
}

/// Differs unless `holds`: for the last thing that a case looks at.
pub fn prefer(holds: bool, expected: impl Into<String>, got: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(End::differs(expected, got())) }
}

/// An error reply, of whichever dialect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The number of .L and .u.
    pub errno: Option<u32>,
    /// The text of 9P2000 and .u.
    pub text: Option<Vec<u8>>,
}

impl Refusal {
    /// The number, or the one that the text is known for; `None` for a text that is not known.
    pub fn meaning(&self) -> Option<Errno> {
        if let Some(number) = self.errno.filter(|&number| number != 0) {
            return Some(Errno(number));
        }
        let text = self.text.as_ref()?;
        // EIO stands for every text that the table does not have.
        Some(Errno::from_text(text)).filter(|&errno| errno != Errno::EIO)
    }

    /// Whether it says that the server does not have what was asked for.
    pub fn is_unsupported(&self) -> bool {
        let told = self.text.as_ref().map(|text| String::from_utf8_lossy(text).to_lowercase()).unwrap_or_default();
        matches!(self.meaning(), Some(Errno::EOPNOTSUPP | Errno::ENOSYS))
            || ["not supported", "not implemented", "unsupported", "unimplemented"].iter().any(|t| told.contains(t))
    }

    /// As a person reads it.
    pub fn told(&self) -> String {
        let number = self.errno.map(|n| Errno(n).name().map_or(format!("errno {n}"), str::to_owned));
        let text = self.text.as_ref().map(|text| format!("'{}'", text.escape_ascii()));
        [text, number].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}
