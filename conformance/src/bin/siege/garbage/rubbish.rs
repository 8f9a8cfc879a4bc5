//! Rubbish: bytes that no client should send. All of it is harmless to the tree behind the server: what is
//! well-formed enough to be obeyed only walks, looks and reads.

use ninefold_proto::attr::getattr;
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{Mask, Names, Octal, T};
use ninefold_proto::n1::stream::{OPENING, PREFACE};
use ninefold_proto::{Dialect, Fid, Tag};

use crate::random::Random;

/// Bytes of a random body at most.
const BODY: usize = 300;

/// Appends one piece of rubbish to `out`.
pub fn throw(random: &mut Random, out: &mut Vec<u8>) {
    match random.below(8) {
        // Random bytes: most often a size that nobody agreed to.
        0 => {
            let n = 1 + random.below(BODY);
            random.bytes(n, out);
        }
        // A whole frame of any type, with a random body.
        1 => {
            let kind = random.next() as u8;
            frame(kind, random, out);
        }
        // A whole frame of a type that exists, with a random body.
        2 => {
            let kind = random.pick(T::TABLE).number;
            frame(kind, random, out);
        }
        // A size that lies: too small for a header, the greatest there is, or more than ever comes.
        3 => {
            let size = random.pick(&[0, 1, 6, u32::MAX, 0x8000_0000, 1 << 20, 65_537, 8_192]);
            out.extend(size.to_le_bytes());
            let n = random.below(64);
            random.bytes(n, out);
        }
        // A reply, which only servers send.
        4 => {
            let kind = random.pick(T::TABLE).number + 1;
            frame(kind, random, out);
        }
        // A message that was once whole, with bytes changed: its counts and lengths lie.
        5 => {
            let start = out.len();
            sound(random, out);
            for _ in 0..=random.below(4) {
                let at = random.below(out.len() - start - 5);
                // Behind size and type: the message stays one that looks and does not touch.
                out[start + 5 + at] = random.next() as u8;
            }
        }
        // A message that ends too soon or goes on too long, in a frame of the right size.
        6 => {
            let start = out.len();
            sound(random, out);
            let cut = start + 7 + random.below(out.len() - start - 6);
            out.truncate(cut);
            if random.below(2) == 0 {
                let n = random.below(40);
                random.bytes(n, out);
            }
            let size = (out.len() - start) as u32;
            out[start..start + 4].copy_from_slice(&size.to_le_bytes());
        }
        // A sound message on a fid that may not exist.
        _ => sound(random, out),
    }
}

/// Appends what a data connection of a stream begins with, with a token that nobody was given, or a part of it.
pub fn guess(random: &mut Random, out: &mut Vec<u8>) {
    let n = 1 + random.below(OPENING);
    out.extend(&PREFACE[..n.min(PREFACE.len())]);
    random.bytes(n.saturating_sub(PREFACE.len()), out);
}

/// Appends a Tversion, and most often a Tattach, as a client that behaves would send.
pub fn greet(random: &mut Random, out: &mut Vec<u8>, aname: &[u8]) {
    let msize = 4_096 << random.below(5);
    let dialect = random.pick(&Version::ALL);
    T::Version { msize, version: dialect.as_str().as_bytes() }.encode(Tag::NONE, dialect, out);
    if random.below(4) > 0 {
        let attach = T::Attach { fid: Fid(0), afid: Fid::NONE, uname: b"nobody", aname, n_uname: 65_534 };
        attach.encode(Tag(0), dialect, out);
    }
}

/// A frame of the right size around a random body. Fids in it are random, so hardly ever one that exists.
fn frame(kind: u8, random: &mut Random, out: &mut Vec<u8>) {
    let n = random.below(BODY);
    out.extend((n as u32 + 7).to_le_bytes());
    out.push(kind);
    random.bytes(n + 2, out);
}

fn sound(random: &mut Random, out: &mut Vec<u8>) {
    let fid = Fid(random.below(4) as u32);
    let newfid = Fid(random.below(4) as u32);
    let mut scratch = Vec::new();
    let names: &[&[u8]] = &[b"..", b"nothing", b"", b".", b"a/b", b"\0", b"..", b"x"];
    let wnames = Names::encode(names.iter().copied().take(random.below(9)), &mut scratch);
    let message = match random.below(7) {
        0 | 1 => T::Walk { fid, newfid, wnames },
        2 => T::Getattr { fid, request_mask: Mask(getattr::ALL) },
        3 => T::Lopen { fid, flags: Octal(0) },
        4 => T::Readdir { fid, offset: random.next(), count: random.next() as u32 },
        5 => T::Read { fid, offset: random.next(), count: random.next() as u32 },
        _ => T::Flush { oldtag: Tag(random.below(8) as u16) },
    };
    message.encode(Tag(random.below(8) as u16), Dialect::Linux, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_throws_something_and_none_panics() {
        let random = &mut Random::new(9);
        for _ in 0..20_000 {
            let mut out = Vec::new();
            throw(random, &mut out);
            greet(random, &mut out, b"tree");
            guess(random, &mut out);
            assert!(!out.is_empty());
        }
    }
}
