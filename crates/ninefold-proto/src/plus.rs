//! An entry of Rreaddirplus: what Rreaddir tells of a name, and the attributes of the file.

use alloc::vec::Vec;

use crate::attr::{Attr, Time};
use crate::stat::DirEntry;
use crate::types::Qid;
use crate::wire::{DecodeError, Reader, Writer};

/// One entry: `qid[13] offset[8] type[1] name[s]`, then the attributes in the order of Rgetattr's fields, without its qid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlusEntry<'a> {
    pub entry: DirEntry<'a>,
    /// Its qid is the entry's. A `valid` of 0: they are not known, as when the file has gone since.
    pub attr: Attr,
}

/// Numbers of an entry's attributes.
pub(crate) const NUMBERS: usize = 19;

/// Bytes of an entry's attributes: mode, uid and gid in four, the rest in eight.
pub const ATTR_SIZE: usize = 3 * 4 + (NUMBERS - 3) * 8;

impl PlusEntry<'_> {
    /// Bytes that [`PlusEntry::encode`] will append.
    pub fn encoded_len(&self) -> usize {
        self.entry.encoded_len() + ATTR_SIZE
    }

    /// Appends the entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.entry.encode(out);
        put_numbers(&self.numbers(), out);
    }

    /// The attributes as they stand on the wire.
    pub(crate) fn numbers(&self) -> [u64; NUMBERS] {
        let a = &self.attr;
        let [atime, mtime, ctime, btime] = [a.atime, a.mtime, a.ctime, a.btime].map(|t| [t.sec as u64, t.nsec.into()]);
        [
            a.valid,
            a.mode.into(),
            a.uid.into(),
            a.gid.into(),
            a.nlink,
            a.rdev,
            a.size,
            a.blksize,
            a.blocks,
            atime[0],
            atime[1],
            mtime[0],
            mtime[1],
            ctime[0],
            ctime[1],
            btime[0],
            btime[1],
            a.generation,
            a.data_version,
        ]
    }
}

/// Those that take four bytes.
fn is_short(at: usize) -> bool {
    (1..4).contains(&at)
}

/// Appends attributes as they stand on the wire.
pub(crate) fn put_numbers(numbers: &[u64; NUMBERS], out: &mut Vec<u8>) {
    let mut w = Writer::new(out);
    for (at, &number) in numbers.iter().enumerate() {
        if is_short(at) { w.u32(number as u32) } else { w.u64(number) }
    }
}

fn attr(r: &mut Reader<'_>, qid: Qid) -> Result<Attr, DecodeError> {
    let mut n = [0; NUMBERS];
    for (at, number) in n.iter_mut().enumerate() {
        *number = if is_short(at) { r.u32("attributes")?.into() } else { r.u64("attributes")? };
    }
    let time = |at: usize| {
        let nsec = u32::try_from(n[at + 1]).map_err(|_| DecodeError::Nanoseconds(n[at + 1]))?;
        Ok(Time { sec: n[at] as i64, nsec })
    };
    Ok(Attr {
        valid: n[0],
        qid,
        mode: n[1] as u32,
        uid: n[2] as u32,
        gid: n[3] as u32,
        nlink: n[4],
        rdev: n[5],
        size: n[6],
        blksize: n[7],
        blocks: n[8],
        atime: time(9)?,
        mtime: time(11)?,
        ctime: time(13)?,
        btime: time(15)?,
        generation: n[17],
        data_version: n[18],
    })
}

/// Reads the entries of an Rreaddirplus; behind a malformed one there is none.
pub fn plus_entries(data: &[u8]) -> impl Iterator<Item = Result<PlusEntry<'_>, DecodeError>> {
    let mut r = Reader::new(data);
    core::iter::from_fn(move || {
        if r.remaining() == 0 {
            return None;
        }
        let item = (|| {
            let entry = DirEntry::decode(&mut r)?;
            Ok(PlusEntry { entry, attr: attr(&mut r, entry.qid)? })
        })();
        if item.is_err() {
            r = Reader::new(&[]);
        }
        Some(item)
    })
}
