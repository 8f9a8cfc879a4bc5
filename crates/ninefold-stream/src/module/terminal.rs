//! `terminal`: who sits there sees a line when it is written, and is asked when what was written is seen (stdio's rule).
//!
//! Bytes come and go as of a pipe: a terminal that is read by lines gives one line to a read. What differs is the end, which a person may
//! tell behind some bytes and then go on: it is told once, behind them, and the next call waits again.

use super::bell::Bell;
use super::pipe::{Pipe, gather};
use super::{Chunk, Fill, Opened, StreamModule};
use crate::error::{Error, Result};

pub struct Terminal {
    pipe: Pipe,
    /// The end was met behind bytes that were an answer: it is the next answer.
    ended: bool,
}

impl Terminal {
    pub fn new(opened: Opened) -> Self {
        Terminal { pipe: Pipe::new(opened), ended: false }
    }
}

impl StreamModule for Terminal {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn is_seekable(&self) -> bool {
        false
    }

    fn is_by_line(&self) -> bool {
        true
    }

    fn listen(&mut self, bell: Option<&Bell>) {
        self.pipe.listen(bell);
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        if !self.pipe.read {
            return Err(Error::NotReadable);
        }
        let (bytes, mut met, mut ended) = (self.pipe.bytes, self.pipe.met, self.ended);
        let chunk = gather(fill, bytes, &mut met, |buffer| {
            let read = if ended { 0 } else { self.pipe.take(buffer)? };
            ended = read == 0;
            Ok(read)
        });
        self.pipe.met = met;
        // With no bytes before it the end was the answer; where there was no answer it is still owed.
        if let Ok(chunk) = &chunk {
            self.ended = ended && chunk.length > 0;
        }
        chunk
    }

    fn fell_short(&self) -> Option<Error> {
        self.pipe.fell_short()
    }

    fn write(&mut self, at: u64, data: &[u8], written: &mut usize) -> Result<()> {
        self.pipe.write(at, data, written)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.pipe).close()
    }
}
