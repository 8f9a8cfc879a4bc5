//! Fuzz input as a stream of small decisions; past its end every decision is 0.

use ninefold_proto::dialect::Version;
use ninefold_proto::message::R;

use crate::client_model::Choose;
use crate::frames::{self, Contents, sized};

/// Bytes not yet used.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    left: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(left: &'a [u8]) -> Input<'a> {
        Input { left }
    }

    /// Whether every byte was used.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    /// At most `n` bytes, as they stand.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, tail) = self.left.split_at(n.min(self.left.len()));
        self.left = tail;
        head
    }

    pub fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number under `n`, which is at most 256; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n.max(1)
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }
}

impl Choose for Input<'_> {
    fn below(&mut self, n: usize) -> usize {
        Input::below(self, n)
    }

    fn is_over(&self) -> bool {
        self.is_empty()
    }

    fn frame(&mut self, version: Version, tag: u16, request: Option<u8>) -> Vec<u8> {
        let rows = frames::rows(version);
        let mut row = rows[Input::below(self, rows.len())];
        match Input::below(self, 8) {
            0 => {
                let n = Input::below(self, 64);
                let mut bytes = self.bytes(n).to_vec();
                if bytes.len() >= 7 && !self.one_in(4) {
                    bytes[5..7].copy_from_slice(&tag.to_le_bytes());
                    bytes = sized(bytes);
                }
                return bytes;
            }
            1 => {}
            2 => {
                row = R::TABLE.iter().find(|row| row.name.ends_with("rror") && row.dialects.has(version)).unwrap_or(row)
            }
            _ => {
                let reply = request.map(|number| number + 1);
                row = rows.iter().find(|row| Some(row.number) == reply).unwrap_or(&row);
            }
        }
        frames::frame(row, version, tag, Contents::Wild, self)
    }
}
