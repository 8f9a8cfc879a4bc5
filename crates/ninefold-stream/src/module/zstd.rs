//! `zstd`: RFC 8878, frames one after another, those to be skipped among them. Sums and lengths are compared where a frame has them.
//!
//! Here a frame is cut into its head and its blocks, each of which the decoder gets whole: a block is never longer than 128 KiB. Memory
//! is the window that a head asks for, up to [`WINDOW_MAX`], which the decoder doubles once when it is full, and one block.

use std::io::Read;

use ruzstd::decoding::errors::{FrameDecoderError, FrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::decompress::{Done, Format};
use crate::error::{Error, Result};

/// Bytes: what zstd(1) takes without being asked to take more.
const WINDOW_MAX: u64 = 128 << 20;

/// Bytes of a block, compressed and not (RFC 8878, 3.1.1.2.4).
const BLOCK_MAX: usize = 128 << 10;

const MAGIC: u32 = 0xfd2f_b528;
/// The first of the sixteen of frames to be skipped.
const SKIPPED: u32 = 0x184d_2a50;

/// Of the number and the byte behind it, which says how long the head is.
const BEGIN: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The beginning of a frame that must come, or behind one.
    Begin,
    Head,
    SkippedHead,
    /// So many bytes more.
    Skipped(usize),
    BlockHead,
    Block {
        last: bool,
    },
    /// What a block became is taken out of the decoder.
    Out {
        last: bool,
    },
}

pub struct Zstd {
    decoder: FrameDecoder,
    part: Part,
    /// Bytes of this part as they come, and how many it takes.
    held: Vec<u8>,
    need: usize,
    /// Of this frame: has it a sum, and a length?
    is_summed: bool,
    is_measured: bool,
    /// Bytes that this frame became.
    made: u64,
    /// Frames that came whole.
    frames: u64,
}

impl Zstd {
    pub fn new() -> Zstd {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        Zstd {
            decoder,
            part: Part::Begin,
            held: Vec::new(),
            need: BEGIN,
            is_summed: false,
            is_measured: false,
            made: 0,
            frames: 0,
        }
    }

    fn begin(&mut self, part: Part, need: usize) {
        self.held.clear();
        (self.part, self.need) = (part, need);
    }

    fn end_frame(&mut self) {
        self.frames += 1;
        self.begin(Part::Begin, BEGIN);
    }

    /// All of a part is held.
    fn part(&mut self) -> Result<()> {
        match self.part {
            Part::Begin => match number(&self.held) {
                MAGIC => {
                    let descriptor = self.held[4];
                    if descriptor & 8 != 0 {
                        return Err(Error::Corrupt); // reserved
                    }
                    let single = descriptor & 0x20 != 0;
                    let length = descriptor >> 6;
                    self.is_summed = descriptor & 4 != 0;
                    self.is_measured = single || length != 0;
                    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
                    let length = [usize::from(single), 2, 4, 8][usize::from(length)];
                    self.part = Part::Head;
                    self.need = BEGIN + usize::from(!single) + dictionary + length;
                }
                n if n & !15 == SKIPPED => (self.part, self.need) = (Part::SkippedHead, 8),
                _ => return Err(Error::Corrupt),
            },
            Part::SkippedHead => match number(&self.held[4..]) as usize {
                0 => self.end_frame(),
                bytes => self.begin(Part::Skipped(bytes), 0),
            },
            Part::Head => {
                self.decoder.reset(&self.held[..]).map_err(|e| match e {
                    FrameDecoderError::WindowSizeTooBig { .. }
                    | FrameDecoderError::FrameHeaderError(FrameHeaderError::WindowTooBig { .. }) => {
                        Error::WindowTooLong
                    }
                    _ => Error::Corrupt,
                })?;
                self.made = 0;
                self.begin(Part::BlockHead, 3);
            }
            Part::BlockHead => {
                let head = number(&[self.held[0], self.held[1], self.held[2], 0]);
                let (last, kind, bytes) = (head & 1 != 0, head >> 1 & 3, (head >> 3) as usize);
                if kind == 3 || bytes > BLOCK_MAX {
                    return Err(Error::Corrupt);
                }
                // Of a byte that is repeated there is one. The decoder takes the frame's sum with the last block.
                let body = if kind == 1 { 1 } else { bytes };
                self.part = Part::Block { last };
                self.need += body + if last && self.is_summed { 4 } else { 0 };
            }
            Part::Block { last } => {
                let block = self.decoder.decode_blocks(&self.held[..], BlockDecodingStrategy::UptoBlocks(1));
                if block.is_err() {
                    return Err(Error::Corrupt);
                }
                self.begin(Part::Out { last }, 0);
            }
            Part::Skipped(_) | Part::Out { .. } => {}
        }
        Ok(())
    }

    /// Nothing of a block is left in the decoder but its window.
    fn after_block(&mut self, last: bool) -> Result<()> {
        if !last {
            self.begin(Part::BlockHead, 3);
            return Ok(());
        }
        let sums = (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
        if (self.is_summed && sums.0 != sums.1) || (self.is_measured && self.decoder.content_size() != self.made) {
            return Err(Error::Corrupt);
        }
        self.end_frame();
        Ok(())
    }
}

/// May a frame, of either kind, begin with these bytes?
fn begins_frame(bytes: &[u8]) -> bool {
    let begins = |magic: u32, mask: [u8; 4]| {
        bytes.iter().zip(magic.to_le_bytes()).zip(mask).all(|((byte, magic), mask)| byte & mask == magic)
    };
    begins(MAGIC, [0xff; 4]) || begins(SKIPPED, [0xf0, 0xff, 0xff, 0xff])
}

/// Little-endian, of the first four bytes.
fn number(bytes: &[u8]) -> u32 {
    bytes[..4].iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

impl Format for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn step(&mut self, input: &[u8], output: &mut [u8], done: &mut Done) -> Result<()> {
        loop {
            let rest = &input[done.taken..];
            match self.part {
                Part::Out { last } => {
                    let room = &mut output[done.made..];
                    let made = self.decoder.read(room).map_err(|_| Error::Corrupt)?;
                    done.made += made;
                    self.made += made as u64;
                    if self.decoder.can_collect() > 0 {
                        return Ok(()); // for want of room
                    }
                    self.after_block(last)?;
                }
                Part::Skipped(left) => {
                    let bytes = left.min(rest.len());
                    done.taken += bytes;
                    if bytes < left {
                        self.part = Part::Skipped(left - bytes);
                        return Ok(());
                    }
                    self.end_frame();
                }
                _ => {
                    // What is no frame is not taken: it is left to who pops the module.
                    if self.part == Part::Begin && self.held.is_empty() && !begins_frame(rest) {
                        return Err(Error::Corrupt);
                    }
                    let bytes = (self.need - self.held.len()).min(rest.len());
                    self.held.extend_from_slice(&rest[..bytes]);
                    done.taken += bytes;
                    if self.held.len() < self.need {
                        return Ok(());
                    }
                    self.part()?;
                }
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.part == Part::Begin && self.held.is_empty() && self.frames > 0
    }
}
