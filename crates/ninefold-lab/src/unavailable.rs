//! What a machine lacks for a lab, told apart from what went wrong.

/// This machine has no TUN device, or allows no namespaces, here. The text says what to do.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// An error that says so.
pub fn unavailable(text: impl Into<String>) -> anyhow::Error {
    Unavailable(text.into()).into()
}
