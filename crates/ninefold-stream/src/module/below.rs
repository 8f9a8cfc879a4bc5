//! What is below a pushed module: another module, read in order. It goes to the pushed one by `put_on`, and comes back by `take_off`
//! with what was read of it and not used.

use std::ops::Range;

use super::overlay::{self, Overlays};
use super::{Closed, Fill, StreamModule};
use crate::error::{Error, Result};
use crate::memory::{Frozen, Memory};

/// Data, and where in the memory it is.
pub type Piece = (Frozen, Range<usize>);

pub struct Below {
    pub module: Box<dyn StreamModule>,
    /// Offset of the next byte that was not taken. Of a module without places, how many were.
    pub at: u64,
    /// What is at hand.
    chunk: Option<Piece>,
    /// Memory for the next.
    spare: Option<Memory>,
    /// Met behind what is at hand, and told when that is taken.
    pub due: Option<Error>,
}

/// What a module that was pushed passes on of what it was asked.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub quiet: bool,
    pub changes: u64,
    pub overlays: Overlays<'a>,
}

impl<'a> Ask<'a> {
    pub fn of(fill: &Fill<'a>) -> Ask<'a> {
        // Places here need not be those above, and what was put back there is nothing of what is below: it goes in the tail.
        let overlays = Overlays { from: 0, ..fill.overlays };
        Ask { quiet: fill.quiet, changes: fill.changes, overlays }
    }
}

impl Below {
    pub fn new(module: Box<dyn StreamModule>, at: u64) -> Below {
        Below { module, at, chunk: None, spare: None, due: None }
    }

    /// Nothing: what a pushed module has before it is put on another, and after it was taken off.
    pub fn nothing() -> Below {
        Below::new(Box::new(Closed), 0)
    }

    /// The bytes at `at`, which were read already and cannot be again. When it fails nothing is changed.
    pub fn keep(&mut self, rest: &[u8]) -> Result<()> {
        if rest.is_empty() {
            self.chunk = None;
            return Ok(());
        }
        let mut memory = Memory::pooled(rest.len())?;
        memory.as_mut_slice().unwrap_or_default()[..rest.len()].copy_from_slice(rest);
        self.chunk = Some((Frozen::new(memory), 0..rest.len()));
        Ok(())
    }

    /// What is at hand.
    pub fn data(&self) -> &[u8] {
        self.chunk.as_ref().map_or(&[], |(memory, range)| memory.bytes(range.clone()))
    }

    /// Passes over data at hand.
    pub fn take(&mut self, bytes: usize) {
        if let Some((_, range)) = &mut self.chunk {
            range.start += bytes;
            self.at += bytes as u64;
        }
    }

    /// Of what is at hand, are there zeros where the file was?
    pub fn is_damaged(&self) -> bool {
        self.chunk.as_ref().is_some_and(|(memory, _)| memory.is_damaged())
    }

    /// Where nothing is at hand: reads on. False at the end.
    ///
    /// # Errors
    /// Those of the module below, as they are.
    pub fn more(&mut self, ask: Ask<'_>) -> Result<bool> {
        if let Some(e) = self.due.take() {
            return Err(e);
        }
        if let Some((memory, _)) = self.chunk.take() {
            self.spare = memory.thaw().filter(Memory::is_ours);
        }
        let fill = Fill {
            at: self.at,
            least: 1,
            tail: &[],
            of_module: false,
            memory: self.spare.take(),
            quiet: ask.quiet,
            changes: ask.changes,
            overlays: ask.overlays,
        };
        let chunk = overlay::fill(&mut *self.module, fill)?;
        // A window of a file may begin before.
        let before = usize::try_from(self.at - chunk.offset).map_err(|_| Error::BadOffset)?.min(chunk.length);
        let range = chunk.start + before..chunk.start + chunk.length;
        let any = !range.is_empty();
        self.chunk = Some((chunk.memory, range));
        Ok(any)
    }

    /// What is at hand, and where there is nothing what is read next; None at the end.
    ///
    /// # Errors
    /// As `more`.
    pub fn piece(&mut self, ask: Ask<'_>) -> Result<Option<Piece>> {
        if self.data().is_empty() && !self.more(ask)? {
            return Ok(None);
        }
        self.at += self.data().len() as u64;
        Ok(self.chunk.take())
    }

    /// Where there are places: it goes on elsewhere.
    pub fn go_to(&mut self, at: u64) {
        self.module.forget();
        self.at = at;
        self.chunk = None;
        self.due = None;
    }
}
