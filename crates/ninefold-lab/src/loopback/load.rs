//! The operations: each the messages that Linux's client sends for it.

use anyhow::{Context, Result, ensure};
use ninefold::proto::message::{Mask, Names, Octal, Payload, T};
use ninefold::proto::wire::Reader;
use ninefold::proto::{Dialect, Fid, Tag};

use super::tree;
use super::wire::{ROOT, Wire, payload_max};

/// Fids that every connection has open: the big files, by what is done to them.
const READ: Fid = Fid(1);
const WRITTEN: Fid = Fid(2);

/// The first of as many fids as there are requests in flight: one that stays, and one that is made and clunked.
const OWN: u32 = 1 << 10;
const PASSING: u32 = 1 << 20;

/// What getattr asks for: P9_GETATTR_BASIC.
const BASIC: Mask = Mask(0x7ff);

/// Bytes of a random read or write.
const BLOCK: u32 = 4096;

const O_RDWR: Octal = Octal(0o2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Tgetattr.
    Getattr,
    /// Twalk of three names, Tclunk.
    Walk,
    /// Twalk of two names, Tlopen, Tread, Tclunk: a file of 4 KiB.
    OpenReadClunk,
    /// Tread of 4 KiB anywhere in 256 MiB.
    ReadRandom,
    /// Twrite of 4 KiB anywhere in 256 MiB.
    WriteRandom,
    /// Tread after Tread, each as large as the msize lets it be.
    ReadSequential,
    /// Twrite after Twrite, each as large as the msize lets it be.
    WriteSequential,
    /// Twalk, Tlopen, Treaddir to the end, Tclunk: 10,000 entries.
    Readdir,
}

/// One of the operations in flight on a connection.
#[derive(Debug)]
pub struct Slot {
    number: u16,
    step: u8,
    /// Where the listing goes on.
    cookie: u64,
}

/// What the operations of a connection share.
#[derive(Debug)]
pub struct Shared {
    payload: u32,
    next: u64,
    rng: fastrand::Rng,
    scratch: Vec<u8>,
}

/// A request on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The type of its reply.
    pub reply: u8,
    /// Bytes of data behind its head.
    pub data: usize,
}

/// A reply that came, its data skipped or, of a directory, whole.
#[derive(Clone, Copy, Debug)]
pub struct Came<'a> {
    /// Bytes of data that it brought, or took.
    pub count: u32,
    pub entries: &'a [u8],
}

impl Slot {
    /// `number` is its tag.
    pub fn new(number: u16) -> Slot {
        Slot { number, step: 0, cookie: 0 }
    }
}

impl Shared {
    pub fn new(msize: u32, seed: u64) -> Shared {
        let rng = fastrand::Rng::with_seed(seed);
        Shared { payload: payload_max(msize).min(tree::BIG as u32), next: 0, rng, scratch: Vec::new() }
    }

    fn block(&mut self) -> u64 {
        self.rng.u64(..tree::BIG / u64::from(BLOCK)) * u64::from(BLOCK)
    }

    fn after(&mut self) -> u64 {
        let at = if self.next + u64::from(self.payload) > tree::BIG { 0 } else { self.next };
        self.next = at + u64::from(self.payload);
        at
    }
}

impl Load {
    pub const ALL: [Load; 8] = [
        Load::Getattr,
        Load::Walk,
        Load::OpenReadClunk,
        Load::ReadRandom,
        Load::WriteRandom,
        Load::ReadSequential,
        Load::WriteSequential,
        Load::Readdir,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Load::Getattr => "getattr",
            Load::Walk => "walk",
            Load::OpenReadClunk => "open+read+clunk 4 KiB",
            Load::ReadRandom => "random read 4 KiB",
            Load::WriteRandom => "random write 4 KiB",
            Load::ReadSequential => "sequential read",
            Load::WriteSequential => "sequential write",
            Load::Readdir => "readdir of 10,000",
        }
    }

    pub fn is_sequential(self) -> bool {
        matches!(self, Load::ReadSequential | Load::WriteSequential)
    }

    pub fn writes(self) -> bool {
        matches!(self, Load::WriteRandom | Load::WriteSequential)
    }

    /// Walks to and opens what stays open.
    pub fn prepare(self, wire: &mut Wire, depth: u16) -> Result<()> {
        match self {
            Load::Getattr => {
                for n in 0..depth {
                    let name = tree::small(usize::from(n) % tree::FILES);
                    wire.walk(Fid(OWN + u32::from(n)), &[b"small", name.as_bytes()])?;
                }
            }
            Load::ReadRandom | Load::ReadSequential => {
                wire.walk(READ, &[b"big"])?;
                wire.ask(&T::Lopen { fid: READ, flags: Octal(0) })?;
            }
            Load::WriteRandom | Load::WriteSequential => {
                wire.walk(WRITTEN, &[b"written"])?;
                wire.ask(&T::Lopen { fid: WRITTEN, flags: O_RDWR })?;
            }
            Load::Walk | Load::OpenReadClunk | Load::Readdir => {}
        }
        Ok(())
    }

    /// Appends the slot's next request, without its data.
    pub fn ask(self, slot: &Slot, shared: &mut Shared, data: &[u8], out: &mut Vec<u8>) -> Sent {
        let (own, passing) = (Fid(OWN + u32::from(slot.number)), Fid(PASSING + u32::from(slot.number)));
        let tag = Tag(slot.number);
        let mut put = |message: &T<'_>| {
            message.encode_head(tag, Dialect::Linux, out);
            Sent { reply: message.number() + 1, data: message.payload().len() }
        };
        match (self, slot.step) {
            (Load::Getattr, _) => put(&T::Getattr { fid: own, request_mask: BASIC }),
            (Load::ReadRandom, _) => put(&T::Read { fid: READ, offset: shared.block(), count: BLOCK }),
            (Load::WriteRandom, _) => {
                let data = Payload(&data[..BLOCK as usize]);
                put(&T::Write { fid: WRITTEN, offset: shared.block(), data })
            }
            (Load::ReadSequential, _) => put(&T::Read { fid: READ, offset: shared.after(), count: shared.payload }),
            (Load::WriteSequential, _) => {
                let data = Payload(&data[..shared.payload as usize]);
                put(&T::Write { fid: WRITTEN, offset: shared.after(), data })
            }
            (Load::Walk, 0) => {
                let names = [b"a".as_slice(), b"b", b"c"];
                put(&T::Walk { fid: ROOT, newfid: passing, wnames: Names::encode(names, &mut shared.scratch) })
            }
            (Load::OpenReadClunk, 0) => {
                let name = tree::small(shared.rng.usize(..tree::FILES));
                let wnames = Names::encode([b"small".as_slice(), name.as_bytes()], &mut shared.scratch);
                put(&T::Walk { fid: ROOT, newfid: passing, wnames })
            }
            (Load::Readdir, 0) => {
                let wnames = Names::encode([b"entries".as_slice()], &mut shared.scratch);
                put(&T::Walk { fid: ROOT, newfid: passing, wnames })
            }
            (Load::OpenReadClunk | Load::Readdir, 1) => put(&T::Lopen { fid: passing, flags: Octal(0) }),
            (Load::OpenReadClunk, 2) => put(&T::Read { fid: passing, offset: 0, count: tree::SMALL }),
            (Load::Readdir, 2) => put(&T::Readdir { fid: passing, offset: slot.cookie, count: shared.payload }),
            (Load::Walk | Load::OpenReadClunk | Load::Readdir, _) => put(&T::Clunk { fid: passing }),
        }
    }

    /// Takes the reply; whether the operation is done, and how many bytes of data it moved by this reply.
    pub fn took(self, slot: &mut Slot, shared: &Shared, came: Came<'_>) -> Result<(bool, u32)> {
        let expected = match (self, slot.step) {
            (Load::ReadRandom | Load::WriteRandom, _) => BLOCK,
            (Load::ReadSequential | Load::WriteSequential, _) => shared.payload,
            (Load::OpenReadClunk, 2) => tree::SMALL,
            (Load::Readdir, 2) => {
                if came.entries.is_empty() {
                    slot.step = 3;
                } else {
                    slot.cookie = last_cookie(came.entries)?;
                }
                return Ok((false, came.entries.len() as u32));
            }
            _ => 0,
        };
        ensure!(came.count == expected, "{}: {} bytes instead of {expected}", self.name(), came.count);
        let last = match self {
            Load::Walk => 1,
            Load::OpenReadClunk | Load::Readdir => 3,
            _ => 0,
        };
        let done = slot.step == last;
        slot.step = if done { 0 } else { slot.step + 1 };
        if done {
            slot.cookie = 0;
        }
        Ok((done, expected))
    }
}

/// The offset of the last entry of an Rreaddir: where the next one begins.
fn last_cookie(entries: &[u8]) -> Result<u64> {
    let mut reader = Reader::new(entries);
    let mut cookie = None;
    while reader.remaining() > 0 {
        reader.qid("qid")?;
        cookie = Some(reader.u64("offset")?);
        reader.u8("type")?;
        reader.string("name")?;
    }
    cookie.context("Rreaddir without an entry")
}
