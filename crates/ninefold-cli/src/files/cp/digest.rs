//! What the content of a file comes to: XXH3 in 128 bits (xxhash.com), which runs at the speed of memory.
//!
//! It finds what went wrong by accident with certainty enough. Against a server that means harm no digest helps: what it
//! is given and what it gives back are its own.

use std::fmt;

use twox_hash::XxHash3_128;

use super::trouble::Cause;

/// Zeros that stand for a hole.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// The digest of the bytes so far.
#[derive(Clone)]
pub struct Digest(Box<XxHash3_128>);

impl Digest {
    pub fn new() -> Digest {
        Digest(Box::new(XxHash3_128::new()))
    }

    pub fn data(&mut self, data: &[u8]) {
        self.0.write(data);
    }

    pub fn zeros(&mut self, mut count: u64) {
        while count > 0 {
            let piece = count.min(ZEROS.len() as u64);
            self.0.write(&ZEROS[..piece as usize]);
            count -= piece;
        }
    }

    fn value(&self) -> u128 {
        self.0.finish_128()
    }

    /// Fails unless what was read back is the same.
    pub fn compare(&self, read_back: &Digest) -> Result<(), Cause> {
        if self.value() == read_back.value() {
            return Ok(());
        }
        Err(Cause::Differs(format!("{read_back} and not {self}")))
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Digest) -> bool {
        self.value() == other.value()
    }
}

/// As xxh128sum prints it.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.value())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}
