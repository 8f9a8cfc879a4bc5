//! Standard output of a command that prints data: gathered, written in large pieces, and off the thread that moves
//! messages, so that a reader who stops does not stop Ctrl-C.

use std::io::{self, IsTerminal};

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, Stdout, stdout};

use crate::report::is_obeyed;

/// Bytes gathered before they are written.
const GATHER: usize = 64 * 1024;

/// See the module. [`Out::finish`] must come last, or the last lines are lost.
#[derive(Debug)]
pub struct Out {
    to: Stdout,
    gathered: Vec<u8>,
    looked_at: bool,
}

impl Out {
    pub fn new() -> Out {
        Out { to: stdout(), gathered: Vec::new(), looked_at: std::io::stdout().is_terminal() }
    }

    /// Prints bytes.
    pub async fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= GATHER { self.flush().await } else { Ok(()) }
    }

    /// Prints a JSON value on a line of its own.
    pub async fn json(&mut self, value: &serde_json::Value) -> io::Result<()> {
        self.put(json_line(value).as_bytes()).await
    }

    /// Before a wait: whoever looks on at a terminal sees what there is.
    pub async fn pause(&mut self) -> io::Result<()> {
        if self.looked_at { self.flush().await } else { Ok(()) }
    }

    /// Prints a large piece as it is.
    pub async fn data(&mut self, data: Bytes) -> io::Result<()> {
        self.flush().await?;
        self.to.write_all(&data).await
    }

    /// Writes what is gathered: what comes next may take long.
    pub async fn flush(&mut self) -> io::Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.to.write_all(&gathered).await?;
        self.to.flush().await
    }

    /// Prints what is left.
    pub async fn finish(mut self) -> io::Result<()> {
        self.flush().await
    }
}

/// A JSON value on a line, with nothing that a terminal would obey: in JSON every character may be written as `\uHHHH`
/// (RFC 8259, 7).
pub fn json_line(value: &serde_json::Value) -> String {
    use std::fmt::Write;
    let mut line = String::new();
    for c in value.to_string().chars() {
        match is_obeyed(c) {
            // Only in strings, and all that a terminal obeys fits 16 bits.
            true => drop(write!(line, "\\u{:04x}", u32::from(c))),
            false => line.push(c),
        }
    }
    line.push('\n');
    line
}

/// A name or path in JSON, without loss: a string where it is UTF-8, else `{"bytes": [104, 255]}`.
pub fn text(bytes: &[u8]) -> serde_json::Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => serde_json::json!({ "bytes": bytes }),
    }
}
