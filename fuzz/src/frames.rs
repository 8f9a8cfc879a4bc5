//! Frames laid out from the message table by code that shares nothing with the encoder under test.

use ninefold_proto::Dialect;
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{FieldInfo, MessageInfo, R, T};
use ninefold_proto::print::FieldKind;

use crate::input::Input;

/// What the fields hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Anything that the layout allows.
    Wild,
    /// What a client might say: few fids and tags, mostly good names, few flags.
    Tame,
}

/// Fids that a tame frame names.
pub const FIDS: u32 = 7;

/// Tags that a tame frame uses.
pub const TAGS: usize = 10;

/// The rows of a version, T messages first, then R.
pub fn rows(version: Version) -> Vec<&'static MessageInfo> {
    T::TABLE.iter().chain(R::TABLE).filter(|row| row.dialects.has(version)).collect()
}

/// The rows of a version that a client sends.
pub fn requests(version: Version) -> Vec<&'static MessageInfo> {
    T::TABLE.iter().filter(|row| row.dialects.has(version)).collect()
}

/// A whole frame.
pub fn frame(row: &MessageInfo, version: Version, tag: u16, contents: Contents, input: &mut Input<'_>) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 0, row.number];
    out.extend(tag.to_le_bytes());
    for field in row.fields.iter().filter(|field| field.dialects.has(version)) {
        match contents {
            Contents::Wild => wild(field, version, input, &mut out),
            Contents::Tame => tame(field, version, input, &mut out),
        }
    }
    sized(out)
}

/// The frame with its size put right.
pub fn sized(mut frame: Vec<u8>) -> Vec<u8> {
    let size = frame.len() as u32;
    frame[..4].copy_from_slice(&size.to_le_bytes());
    frame
}

fn string(s: &[u8], out: &mut Vec<u8>) {
    out.extend((s.len() as u16).to_le_bytes());
    out.extend(s);
}

fn wild_string(input: &mut Input<'_>, out: &mut Vec<u8>) {
    let n = input.below(24);
    string(input.bytes(n), out);
}

fn fixed(n: usize, input: &mut Input<'_>, out: &mut Vec<u8>) {
    // The greatest value is printed in a way of its own.
    if input.one_in(8) {
        out.extend(std::iter::repeat_n(0xff, n));
    } else {
        out.extend((0..n).map(|_| input.u8()));
    }
}

fn wild(field: &FieldInfo, version: Version, input: &mut Input<'_>, out: &mut Vec<u8>) {
    match field.kind {
        FieldKind::U8 => fixed(1, input, out),
        FieldKind::U16 | FieldKind::Tag => fixed(2, input, out),
        FieldKind::U32 | FieldKind::Fid | FieldKind::Perm | FieldKind::Octal | FieldKind::Optional => {
            fixed(4, input, out);
        }
        FieldKind::U64 | FieldKind::Mask => fixed(8, input, out),
        FieldKind::Qid => fixed(13, input, out),
        FieldKind::Str => wild_string(input, out),
        FieldKind::Names => {
            let n = input.below(20);
            out.extend((n as u16).to_le_bytes());
            (0..n).for_each(|_| wild_string(input, out));
        }
        FieldKind::Qids => {
            let n = input.below(20);
            out.extend((n as u16).to_le_bytes());
            (0..n).for_each(|_| fixed(13, input, out));
        }
        FieldKind::Payload => {
            let n = input.below(64);
            let data = input.bytes(n);
            out.extend((data.len() as u32).to_le_bytes());
            out.extend(data);
        }
        FieldKind::Entries => {
            let mut entries = Vec::new();
            for _ in 0..input.below(4) {
                fixed(13 + 8 + 1, input, &mut entries);
                wild_string(input, &mut entries);
            }
            if input.one_in(4) {
                entries.push(input.u8());
            }
            out.extend((entries.len() as u32).to_le_bytes());
            out.extend(entries);
        }
        FieldKind::PlusEntries => {
            let mut entries = Vec::new();
            for _ in 0..input.below(3) {
                fixed(13 + 8 + 1, input, &mut entries);
                wild_string(input, &mut entries);
                fixed(8 + 3 * 4 + 15 * 8, input, &mut entries);
            }
            if input.one_in(4) {
                entries.push(input.u8());
            }
            out.extend((entries.len() as u32).to_le_bytes());
            out.extend(entries);
        }
        FieldKind::LongStr => {
            let n = input.below(24);
            out.extend((n as u32).to_le_bytes());
            fixed(n, input, out);
        }
        FieldKind::Secret => fixed(16, input, out),
        FieldKind::Stat => {
            let mut record = Vec::new();
            fixed(2 + 4 + 13 + 4 + 4 + 4 + 8, input, &mut record);
            (0..4).for_each(|_| wild_string(input, &mut record));
            if version.dialect == Dialect::Unix {
                wild_string(input, &mut record);
                fixed(12, input, &mut record);
            }
            let mut counted = Vec::new();
            string(&record, &mut counted);
            if input.one_in(8) {
                counted.push(input.u8());
            }
            string(&counted, out);
        }
    }
}

const NAMES: [&[u8]; 8] = [b"a", b"b", b"dir", b"file", b"..", b".", b"", b"x/y"];

fn tame_name(input: &mut Input<'_>) -> &'static [u8] {
    // The bad ones seldom.
    if input.one_in(6) { input.pick(&NAMES) } else { NAMES[input.below(4)] }
}

fn number(field: &FieldInfo, input: &mut Input<'_>) -> u64 {
    match field.name {
        // Linux's access modes, O_CREAT, O_EXCL, O_TRUNC, O_DIRECTORY.
        "flags" => input.pick(&[0, 1, 2, 0o100, 0o102, 0o302, 0o1001, 0o200000, 3, 0o20000000]),
        // Of open and create: OREAD, OWRITE, ORDWR, OEXEC, OTRUNC, ORCLOSE.
        "mode" if field.kind == FieldKind::U8 => input.pick(&[0, 1, 2, 3, 0x11, 0x40, 0x42, 0x80]),
        // What Rsession told, mostly.
        "epoch" => input.pick(&[1, 1, 1, 0, 2]),
        "lease" | "opid" => u64::from(input.one_in(8)),
        "members" => input.pick(&[0, 1, 2, 3, 63, 64, 65535]),
        "whence" => input.pick(&[3, 4, 0]),
        "offset" | "start" | "srcoffset" | "dstoffset" | "length" => {
            input.pick(&[0, 0, 1, 16, 100, u64::from(u32::MAX), i64::MAX as u64, u64::MAX])
        }
        "count" => input.pick(&[0, 1, 16, 100, 4096, 8192, 65536, u64::from(u32::MAX)]),
        "attr_size" => input.pick(&[0, 1, 4, 65536, 65537, u64::MAX]),
        "locktype" => input.pick(&[0, 1, 2, 3]),
        "valid" => u64::from(input.u16() & 0x1ff),
        "gid" | "uid" | "n_uname" => input.pick(&[0, 1000, u64::from(u32::MAX)]),
        _ => u64::from(input.u8()),
    }
}

fn tame(field: &FieldInfo, version: Version, input: &mut Input<'_>, out: &mut Vec<u8>) {
    match field.kind {
        FieldKind::U8 => out.push(number(field, input) as u8),
        FieldKind::U16 => out.extend((number(field, input) as u16).to_le_bytes()),
        FieldKind::Tag => out.extend((input.below(TAGS) as u16).to_le_bytes()),
        FieldKind::Fid if field.name == "afid" => out.extend(u32::MAX.to_le_bytes()),
        FieldKind::Fid => {
            let fid = if input.one_in(40) { u32::MAX } else { input.below(FIDS as usize) as u32 };
            out.extend(fid.to_le_bytes());
        }
        FieldKind::Perm => {
            let perm = input.pick(&[0o644u32, 0x8000_01ed, 0x0200_01ff, 0x0100_0000, 0x0080_0000, 0x0020_0000]);
            out.extend(perm.to_le_bytes());
        }
        FieldKind::U32 | FieldKind::Octal | FieldKind::Optional => {
            out.extend((number(field, input) as u32).to_le_bytes());
        }
        FieldKind::U64 | FieldKind::Mask => out.extend(number(field, input).to_le_bytes()),
        FieldKind::Str => match field.name {
            "version" => {
                let offers: [&[u8]; 9] = [
                    b"9P2000",
                    b"9P2000.u",
                    b"9P2000.L",
                    b"9P2000.L.n1",
                    b"9P1",
                    b"9P2000.ix",
                    b"9P2000.u.ix",
                    b"9P2000.s",
                    b"9P2000.u.s.ix",
                ];
                string(input.pick(&offers), out);
            }
            "extension" => {
                let extensions: [&[u8]; 6] = [b"", b"target", b"c 1 3", b"0", b"1", b"2"];
                string(input.pick(&extensions), out);
            }
            _ => string(tame_name(input), out),
        },
        FieldKind::Names => {
            let n = if input.one_in(30) { 17 } else { input.below(4) };
            out.extend((n as u16).to_le_bytes());
            (0..n).for_each(|_| string(tame_name(input), out));
        }
        FieldKind::Payload => {
            let n = input.below(9);
            out.extend((n as u32).to_le_bytes());
            out.extend(std::iter::repeat_n(b'd', n));
        }
        // Few sessions.
        FieldKind::Secret => out.extend([input.u8() & 1; 16]),
        FieldKind::LongStr
        | FieldKind::Stat
        | FieldKind::Qid
        | FieldKind::Qids
        | FieldKind::Entries
        | FieldKind::PlusEntries => wild(field, version, input, out),
    }
}

/// A Tversion.
pub fn version(tag: u16, msize: u32, offer: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 0, 100];
    out.extend(tag.to_le_bytes());
    out.extend(msize.to_le_bytes());
    string(offer, &mut out);
    sized(out)
}
