//! `gzip`: RFC 1952, members one after another. Sums and lengths are compared, and as by gzip(1) zeros may follow the last member.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::decompress::{Done, Format};
use crate::error::{Error, Result};

/// Where in a member the next byte is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The first ten bytes, of a member that must come.
    Head,
    ExtraLength,
    /// So many bytes more.
    Extra(u16),
    Name,
    Comment,
    HeadSum,
    Body,
    /// Sum and length.
    Tail,
    /// Behind a member: another, zeros, or the end.
    Between,
    Zeros,
}

// FLG of RFC 1952, 2.3.1. FTEXT tells nothing.
const HEAD_SUM: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const RESERVED: u8 = 0xe0;

pub struct Gzip {
    part: Part,
    /// Bytes of a part of fixed length, as they come.
    bytes: [u8; 10],
    got: usize,
    /// Optional parts of the head that are to come.
    flags: u8,
    /// Of the head, and then of the data.
    sum: Crc,
    inflate: Decompress,
}

impl Gzip {
    pub fn new() -> Gzip {
        let (sum, inflate) = (Crc::new(), Decompress::new(false));
        Gzip { part: Part::Head, bytes: [0; 10], got: 0, flags: 0, sum, inflate }
    }

    fn begin(&mut self, part: Part) {
        (self.part, self.got) = (part, 0);
    }

    /// The next part of the head that this member has.
    fn proceed(&mut self) {
        let parts =
            [(EXTRA, Part::ExtraLength), (NAME, Part::Name), (COMMENT, Part::Comment), (HEAD_SUM, Part::HeadSum)];
        let Some((flag, part)) = parts.into_iter().find(|(flag, _)| self.flags & flag != 0) else {
            self.sum.reset();
            self.inflate.reset(false);
            return self.begin(Part::Body);
        };
        self.flags &= !flag;
        self.begin(part);
    }

    /// A byte of a part of `length` bytes: true with the last.
    fn gather(&mut self, byte: u8, length: usize) -> bool {
        self.bytes[self.got] = byte;
        self.got += 1;
        self.got == length
    }

    fn number(&self, at: usize, length: usize) -> u32 {
        self.bytes[at..at + length].iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
    }

    /// A byte that is not of the body.
    fn byte(&mut self, byte: u8) -> Result<()> {
        if self.part == Part::Between {
            self.begin(if byte == 0 { Part::Zeros } else { Part::Head });
        }
        let is_sum = matches!(self.part, Part::HeadSum | Part::Tail);
        if self.part == Part::Head && self.got == 0 {
            self.sum.reset();
        }
        if !is_sum {
            self.sum.update(&[byte]);
        }
        match self.part {
            Part::Head => {
                // Told by the byte that is wrong: who has no gzip is not to wait for ten.
                let right = match self.got {
                    0 => byte == 0x1f,
                    1 => byte == 0x8b,
                    2 => byte == 8,
                    3 => byte & RESERVED == 0,
                    _ => true,
                };
                if !right {
                    return Err(Error::Corrupt);
                }
                if self.gather(byte, 10) {
                    self.flags = self.bytes[3];
                    self.proceed();
                }
            }
            Part::ExtraLength => {
                if self.gather(byte, 2) {
                    match self.number(0, 2) as u16 {
                        0 => self.proceed(),
                        length => self.begin(Part::Extra(length)),
                    }
                }
            }
            Part::Extra(1) => self.proceed(),
            Part::Extra(left) => self.part = Part::Extra(left - 1),
            Part::Name | Part::Comment if byte == 0 => self.proceed(),
            Part::Name | Part::Comment => {}
            Part::HeadSum => {
                if self.gather(byte, 2) {
                    if self.number(0, 2) != self.sum.sum() & 0xffff {
                        return Err(Error::Corrupt);
                    }
                    self.proceed();
                }
            }
            Part::Tail => {
                if self.gather(byte, 8) {
                    if (self.number(0, 4), self.number(4, 4)) != (self.sum.sum(), self.sum.amount()) {
                        return Err(Error::Corrupt);
                    }
                    self.begin(Part::Between);
                }
            }
            Part::Zeros if byte == 0 => {}
            Part::Zeros | Part::Between | Part::Body => return Err(Error::Corrupt),
        }
        Ok(())
    }

    fn inflate(&mut self, input: &[u8], output: &mut [u8], done: &mut Done) -> Result<()> {
        let before = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(input, output, FlushDecompress::None);
        done.taken = (self.inflate.total_in() - before.0) as usize;
        done.made = (self.inflate.total_out() - before.1) as usize;
        self.sum.update(&output[..done.made]);
        match status {
            Ok(Status::StreamEnd) => self.begin(Part::Tail),
            Ok(_) => {}
            Err(_) => return Err(Error::Corrupt),
        }
        Ok(())
    }
}

impl Format for Gzip {
    fn name(&self) -> &'static str {
        "gzip"
    }

    fn step(&mut self, input: &[u8], output: &mut [u8], done: &mut Done) -> Result<()> {
        if self.part == Part::Body {
            return self.inflate(input, output, done);
        }
        for &byte in input {
            self.byte(byte)?;
            done.taken += 1;
            if self.part == Part::Body {
                break;
            }
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        matches!(self.part, Part::Between | Part::Zeros)
    }
}
