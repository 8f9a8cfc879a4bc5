//! Frames written out by hand, from the layouts of Plan 9's manual, section 5, of S4 for .u, and of diod's protocol.md
//! for .L, of docs/protocol.md for .n1: each with the message that it is. Not made by the encoder that they judge.

use ninefold_proto::attr::{Attr, Time};
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{
    Entries, LongStr, Mask, Names, Octal, Optional, Payload, Perm, PlusEntries, Qids, R, StatBytes, T,
};
use ninefold_proto::plus::PlusEntry;
use ninefold_proto::stat::{DirEntry, Stat};
use ninefold_proto::types::{Fid, Qid, QidType, SessionId, StreamToken, Tag};
use ninefold_proto::{Dialect, Dialect::*};

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Message {
    T(T<'static>),
    R(R<'static>),
}

/// A frame, in every layout in which it is written so.
#[derive(Clone, Debug)]
pub struct Golden {
    pub versions: &'static [Version],
    pub tag: Tag,
    pub message: Message,
    pub frame: Vec<u8>,
}

impl Golden {
    /// `Twalk`.
    pub fn name(&self) -> &'static str {
        match self.message {
            Message::T(message) => message.name(),
            Message::R(message) => message.name(),
        }
    }
}

const ALL: [Version; 6] = Version::LAYOUTS;
const P: &[Version] = &[ALL[0], ALL[4]];
const U: &[Version] = &[ALL[1], ALL[5]];
/// .L alone; what .L has .n1 has too.
const LINUX: &[Version] = &[ALL[2]];
const L: &[Version] = &[ALL[2], ALL[3]];
const N: &[Version] = &[ALL[3]];
/// .s behind 9P2000 and .u.
const S: &[Version] = &[ALL[4], ALL[5]];
const PU: &[Version] = &[ALL[0], ALL[1], ALL[4], ALL[5]];
const UL: &[Version] = &[ALL[1], ALL[2], ALL[3], ALL[5]];
const PUL: &[Version] = &ALL;

/// Bytes from pairs of hexadecimal digits and `'text'`, spaces between.
pub fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (i, part) in text.split('\'').enumerate() {
        if i % 2 == 1 {
            bytes.extend(part.as_bytes());
            continue;
        }
        let digits: Vec<u8> = part.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        assert!(digits.len().is_multiple_of(2), "half a byte in {text}");
        let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
    }
    bytes
}

fn scratch() -> &'static mut Vec<u8> {
    Box::leak(Box::default())
}

fn names(names: &[&'static str]) -> Names<'static> {
    Names::encode(names.iter().map(|name| name.as_bytes()), scratch())
}

fn qids(qids: &[Qid]) -> Qids<'static> {
    Qids::encode(qids, scratch())
}

fn stat(dialect: Dialect, stat: Stat<'_>) -> StatBytes<'static> {
    let bytes = scratch();
    stat.encode(dialect, bytes);
    StatBytes(bytes)
}

fn entry(entry: DirEntry<'_>) -> Entries<'static> {
    let bytes = scratch();
    entry.encode(bytes);
    Entries(bytes)
}

fn plus_entry(entry: PlusEntry<'_>) -> PlusEntries<'static> {
    let bytes = scratch();
    entry.encode(bytes);
    PlusEntries(bytes)
}

const SESSION: SessionId = SessionId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

const ATTR: Attr = Attr {
    valid: 0x3fff,
    qid: FILE,
    mode: 0o100644,
    uid: 1000,
    gid: 100,
    nlink: 1,
    rdev: 2,
    size: 3,
    blksize: 4096,
    blocks: 8,
    atime: Time { sec: 11, nsec: 12 },
    mtime: Time { sec: 13, nsec: 14 },
    ctime: Time { sec: 15, nsec: 16 },
    btime: Time { sec: 17, nsec: 18 },
    generation: 19,
    data_version: 20,
};

const fn qid(kind: QidType, version: u32, path: u64) -> Qid {
    Qid { kind, version, path }
}

const FILE: Qid = qid(QidType::FILE, 2, 0x11);
const DIR: Qid = qid(QidType::DIR, 1, 0x10);
const LINK: Qid = qid(QidType::SYMLINK, 0, 0x12);

const PLAIN_STAT: Stat<'static> = Stat {
    kind: 0,
    dev: 0,
    qid: qid(QidType::FILE, 3, 0x1f),
    mode: 0o644,
    atime: 1,
    mtime: 2,
    length: 9,
    name: b"f",
    uid: b"glenda",
    gid: b"sys",
    muid: b"glenda",
    extension: b"",
    n_uid: u32::MAX,
    n_gid: u32::MAX,
    n_muid: u32::MAX,
};

const LINK_STAT: Stat<'static> = Stat {
    qid: qid(QidType::SYMLINK, 3, 0x1f),
    mode: 0x0200_01ff,
    extension: b"../x",
    n_uid: 1000,
    n_gid: 100,
    n_muid: 1000,
    ..PLAIN_STAT
};

/// All of them.
pub fn goldens() -> Vec<Golden> {
    let mut all = requests();
    all.extend(replies());
    all
}

fn t(versions: &'static [Version], tag: u16, message: T<'static>, frame: &str) -> Golden {
    Golden { versions, tag: Tag(tag), message: Message::T(message), frame: bytes(frame) }
}

fn r(versions: &'static [Version], tag: u16, message: R<'static>, frame: &str) -> Golden {
    Golden { versions, tag: Tag(tag), message: Message::R(message), frame: bytes(frame) }
}

#[rustfmt::skip] // a message and its bytes stand one below the other
fn requests() -> Vec<Golden> {
    vec![
        t(PUL, 0xffff, T::Version { msize: 8216, version: b"9P2000" },
            "13000000 64 ffff 18200000 0600'9P2000'"),
        t(PUL, 0xffff, T::Version { msize: 1 << 20, version: b"9P2000.L" },
            "15000000 64 ffff 00001000 0800'9P2000.L'"),
        t(P, 5, T::Auth { afid: Fid(291), uname: b"bootes", aname: b"", n_uname: u32::MAX },
            "15000000 66 0500 23010000 0600'bootes' 0000"),
        t(UL, 5, T::Auth { afid: Fid(291), uname: b"bootes", aname: b"", n_uname: 1000 },
            "19000000 66 0500 23010000 0600'bootes' 0000 e8030000"),
        t(P, 5, T::Attach { fid: Fid(291), afid: Fid::NONE, uname: b"bootes", aname: b"/", n_uname: u32::MAX },
            "1a000000 68 0500 23010000 ffffffff 0600'bootes' 0100'/'"),
        t(UL, 5, T::Attach { fid: Fid(291), afid: Fid::NONE, uname: b"bootes", aname: b"/", n_uname: 0 },
            "1e000000 68 0500 23010000 ffffffff 0600'bootes' 0100'/' 00000000"),
        t(PUL, 6, T::Flush { oldtag: Tag(5) },
            "09000000 6c 0600 0500"),
        t(PUL, 5, T::Walk { fid: Fid(291), newfid: Fid(308), wnames: names(&[]) },
            "11000000 6e 0500 23010000 34010000 0000"),
        t(PUL, 5, T::Walk { fid: Fid(308), newfid: Fid(296), wnames: names(&["tmp", "usr"]) },
            "1b000000 6e 0500 34010000 28010000 0200 0300'tmp' 0300'usr'"),
        t(PU, 5, T::Open { fid: Fid(296), mode: 0x11 },
            "0c000000 70 0500 28010000 11"),
        t(P, 5, T::Create { fid: Fid(296), name: b"testfile", perm: Perm(0o666), mode: 1, extension: b"" },
            "1a000000 72 0500 28010000 0800'testfile' b6010000 01"),
        t(U, 5, T::Create { fid: Fid(296), name: b"testfile", perm: Perm(0x0200_01ff), mode: 0, extension: b"../x" },
            "20000000 72 0500 28010000 0800'testfile' ff010002 00 0400'../x'"),
        t(PUL, 5, T::Read { fid: Fid(296), offset: 4096, count: 8192 },
            "17000000 74 0500 28010000 0010000000000000 00200000"),
        t(PUL, 5, T::Write { fid: Fid(296), offset: 9, data: Payload(b"test") },
            "1b000000 76 0500 28010000 0900000000000000 04000000'test'"),
        t(PUL, 5, T::Clunk { fid: Fid(308) },
            "0b000000 78 0500 34010000"),
        t(PUL, 5, T::Remove { fid: Fid(296) },
            "0b000000 7a 0500 28010000"),
        t(PU, 5, T::Stat { fid: Fid(296) },
            "0b000000 7c 0500 28010000"),
        t(P, 5, T::Wstat { fid: Fid(296), stat: stat(Plan9, Stat { name: b"new", ..Stat::UNTOUCHED }) },
            "41000000 7e 0500 28010000 3400 3200 ffff ffffffff ff ffffffff ffffffffffffffff ffffffff ffffffff ffffffff
             ffffffffffffffff 0300'new' 0000 0000 0000"),
        t(U, 5, T::Wstat { fid: Fid(296), stat: stat(Unix, Stat { name: b"new", n_gid: 100, ..Stat::UNTOUCHED }) },
            "4f000000 7e 0500 28010000 4200 4000 ffff ffffffff ff ffffffff ffffffffffffffff ffffffff ffffffff ffffffff
             ffffffffffffffff 0300'new' 0000 0000 0000 0000 ffffffff 64000000 ffffffff"),
        t(L, 5, T::Statfs { fid: Fid(1) },
            "0b000000 08 0500 01000000"),
        t(L, 5, T::Lopen { fid: Fid(1), flags: Octal(0o100001) },
            "0f000000 0c 0500 01000000 01800000"),
        t(L, 5, T::Lcreate { fid: Fid(1), name: b"f", flags: Octal(0o302), mode: Octal(0o100644), gid: 100 },
            "1a000000 0e 0500 01000000 0100'f' c2000000 a4810000 64000000"),
        t(L, 5, T::Symlink { dfid: Fid(1), name: b"l", symtgt: b"../x", gid: 100 },
            "18000000 10 0500 01000000 0100'l' 0400'../x' 64000000"),
        t(L, 5, T::Mknod { dfid: Fid(1), name: b"null", mode: Octal(0o20666), major: 1, minor: 3, gid: 0 },
            "21000000 12 0500 01000000 0400'null' b6210000 01000000 03000000 00000000"),
        t(L, 5, T::Rename { fid: Fid(2), dfid: Fid(1), name: b"new" },
            "14000000 14 0500 02000000 01000000 0300'new'"),
        t(L, 5, T::Readlink { fid: Fid(2) },
            "0b000000 16 0500 02000000"),
        t(L, 5, T::Getattr { fid: Fid(1), request_mask: Mask(0x7ff) },
            "13000000 18 0500 01000000 ff07000000000000"),
        t(L, 5, T::Setattr { fid: Fid(1), valid: Octal(0x1b9), mode: Octal(0o644), uid: 1000, gid: 100, size: 4096,
                atime_sec: 1, atime_nsec: 2, mtime_sec: 3, mtime_nsec: 999_999_999 },
            "43000000 1a 0500 01000000 b9010000 a4010000 e8030000 64000000 0010000000000000
             0100000000000000 0200000000000000 0300000000000000 ffc99a3b00000000"),
        t(L, 5, T::Xattrwalk { fid: Fid(1), newfid: Fid(2), name: b"user.abc" },
            "19000000 1e 0500 01000000 02000000 0800'user.abc'"),
        t(L, 5, T::Xattrcreate { fid: Fid(2), name: b"user.abc", attr_size: 3, flags: 1 },
            "21000000 20 0500 02000000 0800'user.abc' 0300000000000000 01000000"),
        t(L, 5, T::Readdir { fid: Fid(1), offset: 7, count: 8192 },
            "17000000 28 0500 01000000 0700000000000000 00200000"),
        t(L, 5, T::Fsync { fid: Fid(1), datasync: Optional(1) },
            "0f000000 32 0500 01000000 01000000"),
        t(L, 5, T::Lock { fid: Fid(1), locktype: 1, flags: 1, start: 10, length: 100, proc_id: 1234,
                client_id: b"host" },
            "2a000000 34 0500 01000000 01 01000000 0a00000000000000 6400000000000000 d2040000 0400'host'"),
        t(L, 5, T::Getlock { fid: Fid(1), locktype: 1, start: 10, length: 100, proc_id: 1234, client_id: b"host" },
            "26000000 36 0500 01000000 01 0a00000000000000 6400000000000000 d2040000 0400'host'"),
        t(L, 5, T::Link { dfid: Fid(1), fid: Fid(2), name: b"lnk" },
            "14000000 46 0500 01000000 02000000 0300'lnk'"),
        t(L, 5, T::Mkdir { dfid: Fid(1), name: b"dir", mode: Octal(0o40755), gid: 100 },
            "18000000 48 0500 01000000 0300'dir' ed410000 64000000"),
        t(L, 5, T::Renameat { olddirfid: Fid(1), oldname: b"old", newdirfid: Fid(2), newname: b"new" },
            "19000000 4a 0500 01000000 0300'old' 02000000 0300'new'"),
        t(L, 5, T::Unlinkat { dirfid: Fid(1), name: b"dir", flags: Octal(0x200) },
            "14000000 4c 0500 01000000 0300'dir' 00020000"),
        t(S, 5, T::Stream { fid: Fid(1), flags: Octal(0), isread: 1, offset: 0x0102, length: 0, token: StreamToken::default() },
            "14000000 a0 0500 01000000 01 0201000000000000"),
        t(N, 5, T::Stream { fid: Fid(1), flags: Octal(2), isread: 0, offset: 4096, length: 8192, token: StreamToken([7; 16]) },
            "30000000 a0 0500 01000000 02000000 00 0010000000000000 0020000000000000 07070707070707070707070707070707"),
        t(N, 5, T::Streamend { id: 7, flags: Octal(1) },
            "0f000000 a2 0500 07000000 01000000"),
        t(N, 5, T::Session { flags: Octal(1), session: SESSION, caps: Mask(2), fid: Fid(3), uname: b"glenda",
                aname: b"/", n_uname: 1000 },
            "36000000 a4 0500 01000000 000102030405060708090a0b0c0d0e0f 0200000000000000 03000000 0600'glenda'
             0100'/' e8030000"),
        t(N, 5, T::Readdirplus { fid: Fid(1), offset: 7, count: 8192, request_mask: Mask(0x7ff), flags: Octal(1) },
            "23000000 ac 0500 01000000 0700000000000000 00200000 ff07000000000000 01000000"),
        t(N, 5, T::Access { fid: Fid(1), mode: Octal(6) },
            "0f000000 ae 0500 01000000 06000000"),
        t(N, 5, T::Writex { fid: Fid(1), offset: 9, flags: Octal(3), data: Payload(b"test") },
            "1f000000 b0 0500 01000000 0900000000000000 03000000 04000000'test'"),
        t(N, 5, T::Copyrange { srcfid: Fid(1), srcoffset: 2, dstfid: Fid(3), dstoffset: 4, length: 5,
                flags: Octal(6) },
            "2b000000 b6 0500 01000000 0200000000000000 03000000 0400000000000000 0500000000000000 06000000"),
        t(N, 5, T::Allocate { fid: Fid(1), mode: Octal(3), offset: 4096, length: 8192 },
            "1f000000 b8 0500 01000000 03000000 0010000000000000 0020000000000000"),
        t(N, 5, T::Seek { fid: Fid(1), offset: 4096, whence: 3 },
            "17000000 ba 0500 01000000 0010000000000000 03000000"),
        t(N, 5, T::Rename2 { olddirfid: Fid(1), oldname: b"old", newdirfid: Fid(2), newname: b"new",
                flags: Octal(2) },
            "1d000000 bc 0500 01000000 0300'old' 02000000 0300'new' 02000000"),
        t(N, 5, T::Guard { flags: Octal(1), epoch: 1, fid: Fid(2), lease: 3, opid: 4, members: 5 },
            "25000000 be 0500 01000000 0100000000000000 02000000 03000000 0400000000000000 0500"),
    ]
}

#[rustfmt::skip] // a message and its bytes stand one below the other
fn replies() -> Vec<Golden> {
    vec![
        r(PUL, 0xffff, R::Version { msize: 8192, version: b"9P2000" },
            "13000000 65 ffff 00200000 0600'9P2000'"),
        r(PUL, 5, R::Auth { aqid: qid(QidType::AUTH, 0, 1) },
            "14000000 67 0500 08 00000000 0100000000000000"),
        r(PUL, 5, R::Attach { qid: qid(QidType::DIR, 0x0102_0304, 0x902) },
            "14000000 69 0500 80 04030201 0209000000000000"),
        r(P, 5, R::Error { ename: b"file does not exist", errno: 0 },
            "1c000000 6b 0500 1300'file does not exist'"),
        r(U, 5, R::Error { ename: b"file does not exist", errno: 2 },
            "20000000 6b 0500 1300'file does not exist' 02000000"),
        r(LINUX, 5, R::Lerror { ecode: 2, retry_ms: 0, text: b"" },
            "0b000000 07 0500 02000000"),
        r(N, 5, R::Lerror { ecode: 4096, retry_ms: 1500, text: b"later" },
            "16000000 07 0500 00100000 dc050000 0500'later'"),
        r(PUL, 6, R::Flush {},
            "07000000 6d 0600"),
        r(PUL, 5, R::Walk { wqids: qids(&[]) },
            "09000000 6f 0500 0000"),
        r(PUL, 5, R::Walk { wqids: qids(&[DIR, FILE]) },
            "23000000 6f 0500 0200 80 01000000 1000000000000000 00 02000000 1100000000000000"),
        r(PU, 5, R::Open { qid: FILE, iounit: 8192 },
            "18000000 71 0500 00 02000000 1100000000000000 00200000"),
        r(PU, 5, R::Create { qid: FILE, iounit: 8192 },
            "18000000 73 0500 00 02000000 1100000000000000 00200000"),
        r(PUL, 5, R::Read { data: Payload(b"hello") },
            "10000000 75 0500 05000000'hello'"),
        r(PUL, 5, R::Write { count: 4 },
            "0b000000 77 0500 04000000"),
        r(PUL, 5, R::Clunk {},
            "07000000 79 0500"),
        r(PUL, 5, R::Remove {},
            "07000000 7b 0500"),
        r(P, 5, R::Stat { stat: stat(Plan9, PLAIN_STAT) },
            "4a000000 7d 0500 4100 3f00 0000 00000000 00 03000000 1f00000000000000 a4010000 01000000 02000000
             0900000000000000 0100'f' 0600'glenda' 0300'sys' 0600'glenda'"),
        r(U, 5, R::Stat { stat: stat(Unix, LINK_STAT) },
            "5c000000 7d 0500 5300 5100 0000 00000000 02 03000000 1f00000000000000 ff010002 01000000 02000000
             0900000000000000 0100'f' 0600'glenda' 0300'sys' 0600'glenda' 0400'../x' e8030000 64000000 e8030000"),
        r(PU, 5, R::Wstat {},
            "07000000 7f 0500"),
        r(L, 5, R::Statfs { fstype: Octal(0xef53), bsize: 4096, blocks: 1, bfree: 2, bavail: 3, files: 4, ffree: 5,
                fsid: Mask(0x1122_3344_5566_7788), namelen: 255 },
            "43000000 09 0500 53ef0000 00100000 0100000000000000 0200000000000000 0300000000000000
             0400000000000000 0500000000000000 8877665544332211 ff000000"),
        r(L, 5, R::Lopen { qid: FILE, iounit: 0 },
            "18000000 0d 0500 00 02000000 1100000000000000 00000000"),
        r(L, 5, R::Lcreate { qid: FILE, iounit: 8192 },
            "18000000 0f 0500 00 02000000 1100000000000000 00200000"),
        r(L, 5, R::Symlink { qid: LINK },
            "14000000 11 0500 02 00000000 1200000000000000"),
        r(L, 5, R::Mknod { qid: FILE },
            "14000000 13 0500 00 02000000 1100000000000000"),
        r(L, 5, R::Rename {},
            "07000000 15 0500"),
        r(L, 5, R::Readlink { target: b"../x" },
            "0d000000 17 0500 0400'../x'"),
        r(L, 5, R::Getattr { valid: Mask(0x3fff), qid: FILE, mode: Octal(0o100644), uid: 1000, gid: 100, nlink: 1,
                rdev: 2, size: 3, blksize: 4096, blocks: 8, atime_sec: 11, atime_nsec: 12, mtime_sec: 13,
                mtime_nsec: 14, ctime_sec: 15, ctime_nsec: 16, btime_sec: 17, btime_nsec: 18, generation: 19,
                data_version: 20 },
            "a0000000 19 0500 ff3f000000000000 00 02000000 1100000000000000 a4810000 e8030000 64000000
             0100000000000000 0200000000000000 0300000000000000 0010000000000000 0800000000000000
             0b00000000000000 0c00000000000000 0d00000000000000 0e00000000000000 0f00000000000000 1000000000000000
             1100000000000000 1200000000000000 1300000000000000 1400000000000000"),
        r(L, 5, R::Setattr {},
            "07000000 1b 0500"),
        r(L, 5, R::Xattrwalk { size: 3 },
            "0f000000 1f 0500 0300000000000000"),
        r(L, 5, R::Xattrcreate {},
            "07000000 21 0500"),
        r(L, 5, R::Readdir { data: entry(DirEntry { qid: DIR, offset: 1, kind: 4, name: b"." }) },
            "24000000 29 0500 19000000 80 01000000 1000000000000000 0100000000000000 04 0100'.'"),
        r(L, 5, R::Fsync {},
            "07000000 33 0500"),
        r(L, 5, R::Lock { status: 1 },
            "08000000 35 0500 01"),
        r(L, 5, R::Getlock { locktype: 1, start: 10, length: 100, proc_id: 1234, client_id: b"host" },
            "22000000 37 0500 01 0a00000000000000 6400000000000000 d2040000 0400'host'"),
        r(L, 5, R::Link {},
            "07000000 47 0500"),
        r(L, 5, R::Mkdir { qid: DIR },
            "14000000 49 0500 80 01000000 1000000000000000"),
        r(L, 5, R::Renameat {},
            "07000000 4b 0500"),
        r(L, 5, R::Unlinkat {},
            "07000000 4d 0500"),
        r(S, 5, R::Stream { data: LongStr(b"tcp!192.0.2.1!40000"), id: 0, token: StreamToken([0; 16]), modrev: 0, offset: 0, length: 0, addr: b"" },
            "1e000000 a1 0500 13000000'tcp!192.0.2.1!40000'"),
        r(N, 5, R::Stream { data: LongStr(b""), id: 7, token: StreamToken(SESSION.0), modrev: 0x0203, offset: 0x0102, length: 0x0304, addr: b"tcp!h!1" },
            "3c000000 a1 0500 07000000 000102030405060708090a0b0c0d0e0f 0302000000000000 0201000000000000 0403000000000000 0700'tcp!h!1'"),
        r(N, 5, R::Streamend { count: 0x0504, modrev: 0x0706 },
            "17000000 a3 0500 0405000000000000 0607000000000000"),
        r(N, 5, R::Session { caps: Mask(1), epoch: 2, time_sec: 3, time_nsec: 4, term_ms: 5, fids: 6, running: 7,
                parked: 8, group: 9, waiting: 10, qid: DIR },
            "4c000000 a5 0500 0100000000000000 0200000000000000 0300000000000000 0400000000000000 05000000
             06000000 07000000 08000000 09000000 0a000000 80 01000000 1000000000000000"),
        r(N, 5, R::Readdirplus { flags: Octal(1), data: plus_entry(PlusEntry {
                entry: DirEntry { qid: FILE, offset: 1, kind: 8, name: b"f" }, attr: ATTR }) },
            "b4000000 ad 0500 01000000 a5000000 00 02000000 1100000000000000 0100000000000000 08 0100'f'
             ff3f000000000000 a4810000 e8030000 64000000
             0100000000000000 0200000000000000 0300000000000000 0010000000000000 0800000000000000
             0b00000000000000 0c00000000000000 0d00000000000000 0e00000000000000 0f00000000000000 1000000000000000
             1100000000000000 1200000000000000 1300000000000000 1400000000000000"),
        r(N, 5, R::Access { mode: Octal(4) },
            "0b000000 af 0500 04000000"),
        r(N, 5, R::Writex { offset: 9, count: 4 },
            "13000000 b1 0500 0900000000000000 04000000"),
        r(N, 5, R::Copyrange { count: 5 },
            "0f000000 b7 0500 0500000000000000"),
        r(N, 5, R::Allocate {},
            "07000000 b9 0500"),
        r(N, 5, R::Seek { offset: 4096 },
            "0f000000 bb 0500 0010000000000000"),
        r(N, 5, R::Rename2 {},
            "07000000 bd 0500"),
        r(N, 5, R::Guard {},
            "07000000 bf 0500"),
    ]
}
