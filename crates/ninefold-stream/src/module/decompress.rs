//! A module that is pushed on any other and reads what it decompresses of it.
//!
//! What is compressed is believed only as it comes: memory follows what is asked for and what there is, not what a header says. Data that
//! is asked for and cannot be had whole, because what is below is damaged, ends too early or fails, is an error of that call, and never a
//! shorter answer: that would look like the end. What came before it is kept, for who asks for no more than that.

use super::bell::Bell;
use super::below::{Ask, Below};
use super::{Chunk, Fill, Pushed, StreamModule};
use crate::error::{Error, Result};
use crate::memory::{BELIEVED, Frozen, Memory, POOLED};

/// What a step did: bytes.
#[derive(Default)]
pub struct Done {
    pub taken: usize,
    pub made: usize,
}

/// A compressed format.
pub trait Format: Send {
    /// As it is selected.
    fn name(&self) -> &'static str;

    /// Takes some of the input and makes some output of it. Where there is input and room, it does one of both. Called without input only
    /// where the call before it filled the output.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and [`Error::WindowTooLong`]; it is not called again. What is done before counts.
    fn step(&mut self, input: &[u8], output: &mut [u8], done: &mut Done) -> Result<()>;

    /// May the input end here?
    fn is_whole(&self) -> bool;
}

pub struct Decompress<F> {
    format: F,
    below: Below,
    /// The last step filled the output, and there may be more of it.
    is_full: bool,
    /// Made, but of a call that failed.
    kept: Vec<u8>,
    /// What is below cannot be decompressed any further: each call that needs more is told.
    failed: Option<Error>,
}

impl<F: Format> Decompress<F> {
    pub fn new(format: F) -> Self {
        Decompress { format, below: Below::nothing(), is_full: false, kept: Vec::new(), failed: None }
    }

    /// Makes data behind the `have` bytes of the memory: until there are `least`, and then as much as can be made of what is at hand.
    fn make(&mut self, memory: &mut Memory, have: &mut usize, least: usize, ask: Ask<'_>) -> Result<()> {
        loop {
            if let Some(e) = self.failed {
                return if *have < least { Err(e) } else { Ok(()) };
            }
            if *have == memory.capacity() {
                if *have >= least {
                    return Ok(());
                }
                memory.lengthen(*have)?;
            }
            if self.below.data().is_empty() && !self.is_full {
                if *have >= least {
                    return Ok(());
                }
                if !self.below.more(ask)? {
                    return if self.format.is_whole() { Ok(()) } else { Err(Error::Truncated) };
                }
                continue;
            }
            *have += self.step(&mut memory.as_mut_slice().unwrap_or_default()[*have..]);
        }
    }

    /// One step, and how many bytes it made.
    fn step(&mut self, output: &mut [u8]) -> usize {
        let input = self.below.data();
        let mut done = Done::default();
        let result = self.format.step(input, output, &mut done);
        // Zeros in the place of data: what was made of them is nothing.
        if self.below.is_damaged() {
            self.failed = Some(Error::Shrunk);
            return 0;
        }
        let stands = done.taken == 0 && done.made == 0 && !input.is_empty();
        self.failed = result.err().or(stands.then_some(Error::Corrupt));
        self.is_full = done.made == output.len();
        self.below.take(done.taken);
        done.made
    }
}

impl<F: Format> StreamModule for Decompress<F> {
    fn name(&self) -> &'static str {
        self.format.name()
    }

    fn is_seekable(&self) -> bool {
        false
    }

    fn is_prompt(&self) -> bool {
        self.below.module.is_prompt()
    }

    fn listen(&mut self, bell: Option<&Bell>) {
        self.below.module.listen(bell);
    }

    fn has_thread(&self) -> bool {
        self.below.module.has_thread()
    }

    fn as_pushed(&mut self) -> Option<&mut dyn Pushed> {
        Some(self)
    }

    fn fill(&mut self, fill: Fill<'_>) -> Result<Chunk> {
        let ask = Ask::of(&fill);
        let tail = fill.tail.len();
        let mut have = tail + self.kept.len();
        let room = have.saturating_add(fill.least.min(BELIEVED)).max(POOLED);
        let mut memory = Memory::reused(fill.memory, room)?;
        let bytes = memory.as_mut_slice().unwrap_or_default();
        bytes[..tail].copy_from_slice(fill.tail);
        bytes[tail..have].copy_from_slice(&self.kept);
        let made = self.make(&mut memory, &mut have, fill.least, ask);
        self.kept.clear();
        if let Err(e) = made {
            self.kept.extend_from_slice(&memory.as_mut_slice().unwrap_or_default()[tail..have]);
            return Err(e);
        }
        Ok(Chunk { memory: Frozen::new(memory), start: 0, length: have, offset: fill.at })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.below.module.close()
    }
}

impl<F: Format> Pushed for Decompress<F> {
    fn put_on(&mut self, below: Below) -> u64 {
        self.below = below;
        0
    }

    /// Below it goes on behind what was taken of it. What was made of that is gone.
    fn take_off(&mut self, _at: u64, _untaken: &[u8]) -> Result<Below> {
        Ok(std::mem::replace(&mut self.below, Below::nothing()))
    }
}
