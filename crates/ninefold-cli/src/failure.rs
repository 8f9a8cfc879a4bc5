//! Failures that are the command line's: exit status 2.

use std::fmt;

/// The command was used wrongly, in a way that only running it shows.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

impl Usage {
    /// As the error of a whole command.
    pub fn error(text: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Usage(text.into()))
    }
}
