//! THE table: every message's number, T/R pair, fields and dialects; adding one edits one place.
//!
//! [`T`] and [`R`] borrow from the frame they were decoded from. A message with bulk data (Twrite,
//! Rread, Rreaddir) holds it as a borrowed slice and encodes only its head: the data follows as a
//! slice of its own in one gathered write, and is never copied through a message.

use alloc::vec::Vec;

use crate::dialect::{DialectSet, Version};
use crate::print::FieldKind;
use crate::types::{Fid, NONUNAME, Qid, SessionId, StreamToken, Tag};
use crate::wire::{DecodeError, Reader, Writer};

/// A string on the wire: `s[2] bytes`. UTF-8 by the manual, any bytes from Linux.
pub type Str<'a> = &'a [u8];

/// Names of a walk: `nwname[2] nwname*(wname[s])`. Checked to be whole, not yet to be names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Names<'a> {
    count: u16,
    raw: &'a [u8],
}

impl<'a> Names<'a> {
    /// Number of names.
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// Whether there is none: the walk is a clone.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The names in order, unchecked.
    pub fn iter(&self) -> impl Iterator<Item = Str<'a>> + use<'a> {
        let mut r = Reader::new(self.raw);
        (0..self.count).map_while(move |_| r.string("wname").ok())
    }

    /// Encodes `names` into `scratch` and borrows them from there.
    pub fn encode<'n>(names: impl IntoIterator<Item = &'n [u8]>, scratch: &'a mut Vec<u8>) -> Names<'a> {
        scratch.clear();
        let mut count = 0;
        let mut w = Writer::new(scratch);
        for name in names {
            w.string(name);
            count += 1;
        }
        Names { count, raw: scratch }
    }
}

/// Qids of a walk: `nwqid[2] nwqid*(qid[13])`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Qids<'a> {
    raw: &'a [u8],
}

impl<'a> Qids<'a> {
    /// Number of qids.
    pub fn len(&self) -> usize {
        self.raw.len() / Qid::SIZE
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The qids in order.
    pub fn iter(&self) -> impl Iterator<Item = Qid> + use<'a> {
        let mut r = Reader::new(self.raw);
        core::iter::from_fn(move || r.qid("wqid").ok())
    }

    /// Encodes `qids` into `scratch` and borrows them from there.
    pub fn encode(qids: &[Qid], scratch: &'a mut Vec<u8>) -> Qids<'a> {
        scratch.clear();
        let mut w = Writer::new(scratch);
        qids.iter().for_each(|q| w.qid(q));
        Qids { raw: scratch }
    }
}

/// Bulk data at the end of a message: `count[4] data[count]`. Encoding writes the count only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Payload<'a>(pub &'a [u8]);

/// A string behind a length of four bytes: `count[4] data[count]`. Short, and encoded whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LongStr<'a>(pub &'a [u8]);

/// Directory entries of Rreaddir: `count[4] data[count]`, entries as [`crate::stat::DirEntry`] has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entries<'a>(pub &'a [u8]);

/// Directory entries of Rreaddirplus: `count[4] data[count]`, entries as [`crate::plus::PlusEntry`] has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlusEntries<'a>(pub &'a [u8]);

/// A stat record behind its own length: `n[2] stat[n]`; see [`crate::stat::Stat`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatBytes<'a>(pub &'a [u8]);

/// Permission bits of 9P2000's create: `DMDIR` and so on, printed as S4 prints them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Perm(pub u32);

/// Mode or flag bits of Linux, printed in octal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Octal(pub u32);

/// A mask of 64 bits, printed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mask(pub u64);

/// A 32-bit field that old peers leave out at the end of a message; left out reads as 0. Tfsync's
/// datasync: diod's client and kernels before 3.1 do not send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Optional(pub u32);

/// How one type of field is decoded, encoded, and named in the text form.
trait Field<'a>: Sized {
    const KIND: FieldKind;
    fn get(r: &mut Reader<'a>, name: &'static str) -> Result<Self, DecodeError>;
    fn put(&self, w: &mut Writer<'_>);

    /// Bytes behind a length of two bytes: over 65,535 they would be cut.
    fn counted16(&self) -> usize {
        0
    }
}

macro_rules! field {
    ($ty:ty, $kind:ident, |$r:ident, $name:ident| $get:expr, |$v:ident, $w:ident| $put:expr
     $(, |$c:ident| $counted:expr)?) => {
        impl<'a> Field<'a> for $ty {
            const KIND: FieldKind = FieldKind::$kind;
            fn get($r: &mut Reader<'a>, $name: &'static str) -> Result<Self, DecodeError> {
                $get
            }
            fn put(&self, $w: &mut Writer<'_>) {
                let $v = self;
                $put
            }
            $(fn counted16(&self) -> usize {
                let $c = self;
                $counted
            })?
        }
    };
}

field!(u8, U8, |r, name| r.u8(name), |v, w| w.u8(*v));
field!(u16, U16, |r, name| r.u16(name), |v, w| w.u16(*v));
field!(u32, U32, |r, name| r.u32(name), |v, w| w.u32(*v));
field!(u64, U64, |r, name| r.u64(name), |v, w| w.u64(*v));
field!(Fid, Fid, |r, name| r.fid(name), |v, w| w.u32(v.0));
field!(Tag, Tag, |r, name| r.tag(name), |v, w| w.u16(v.0));
field!(Qid, Qid, |r, name| r.qid(name), |v, w| w.qid(v));
field!(Str<'a>, Str, |r, name| r.string(name), |v, w| w.string(v), |s| s.len());
field!(Perm, Perm, |r, name| r.u32(name).map(Perm), |v, w| w.u32(v.0));
field!(Octal, Octal, |r, name| r.u32(name).map(Octal), |v, w| w.u32(v.0));
field!(Mask, Mask, |r, name| r.u64(name).map(Mask), |v, w| w.u64(v.0));
field!(
    Optional,
    Optional,
    |r, name| if r.remaining() == 0 { Ok(Optional(0)) } else { r.u32(name).map(Optional) },
    |v, w| w.u32(v.0)
);
field!(
    Names<'a>,
    Names,
    |r, name| {
        let count = r.u16(name)?;
        let start = r.clone();
        for _ in 0..count {
            r.string(name)?;
        }
        let raw = start.clone().take(start.remaining() - r.remaining(), name)?;
        Ok(Names { count, raw })
    },
    |v, w| {
        w.u16(v.count);
        w.bytes(v.raw);
    }
);
field!(
    Qids<'a>,
    Qids,
    |r, name| {
        let count = r.u16(name)?;
        Ok(Qids { raw: r.take(usize::from(count) * Qid::SIZE, name)? })
    },
    |v, w| {
        w.u16(v.len() as u16);
        w.bytes(v.raw);
    }
);
field!(
    Payload<'a>,
    Payload,
    |r, name| {
        let count = r.u32(name)?;
        Ok(Payload(r.take(count as usize, name)?))
    },
    |v, w| w.u32(v.0.len() as u32)
);
field!(
    Entries<'a>,
    Entries,
    |r, name| {
        let count = r.u32(name)?;
        Ok(Entries(r.take(count as usize, name)?))
    },
    |v, w| w.u32(v.0.len() as u32)
);
field!(
    PlusEntries<'a>,
    PlusEntries,
    |r, name| {
        let count = r.u32(name)?;
        Ok(PlusEntries(r.take(count as usize, name)?))
    },
    |v, w| w.u32(v.0.len() as u32)
);
field!(SessionId, Secret, |r, name| r.secret(name).map(SessionId), |v, w| w.bytes(&v.0));
field!(StreamToken, Secret, |r, name| r.secret(name).map(StreamToken), |v, w| w.bytes(&v.0));
field!(
    LongStr<'a>,
    LongStr,
    |r, name| {
        let count = r.u32(name)?;
        Ok(LongStr(r.take(count as usize, name)?))
    },
    |v, w| {
        w.u32(v.0.len() as u32);
        w.bytes(v.0);
    }
);
field!(StatBytes<'a>, Stat, |r, name| r.string(name).map(StatBytes), |v, w| w.string(v.0), |s| s.0.len());

/// One field of a message, as the text form and the documents see it.
#[derive(Clone, Copy, Debug)]
pub struct FieldInfo {
    pub name: &'static str,
    pub kind: FieldKind,
    /// The dialects whose layout has it.
    pub dialects: DialectSet,
}

/// One message, as the text form and the documents see it.
#[derive(Clone, Copy, Debug)]
pub struct MessageInfo {
    pub number: u8,
    /// `Twalk`, `Rwalk`.
    pub name: &'static str,
    pub dialects: DialectSet,
    pub fields: &'static [FieldInfo],
}

macro_rules! dialects {
    ($all:ident) => {
        DialectSet::$all
    };
    ($all:ident $some:ident) => {
        DialectSet::$some
    };
}

/// Decodes one field, or gives its default where the dialect's layout does not have it.
macro_rules! get {
    ($r:ident, $version:ident, $field:ident, $ty:ty) => {
        <$ty as Field>::get($r, stringify!($field))?
    };
    ($r:ident, $version:ident, $field:ident, $ty:ty, $some:ident, $default:expr) => {
        if DialectSet::$some.has($version) { <$ty as Field>::get($r, stringify!($field))? } else { $default }
    };
}

macro_rules! put {
    ($w:ident, $version:ident, $field:ident) => {
        $field.put(&mut $w)
    };
    ($w:ident, $version:ident, $field:ident, $some:ident) => {
        if DialectSet::$some.has($version) {
            $field.put(&mut $w)
        }
    };
}

macro_rules! side {
    ($(#[$doc:meta])* $side:ident $letter:literal;
     $($(#[$rowdoc:meta])* $number:literal $text:literal $name:ident $set:ident
       ($($field:ident : $ty:ty $(, $some:ident or $default:expr)?;)*);)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $side<'a> {
            $($(#[$rowdoc])* $name { $($field: $ty),* },)*
            /// Keeps the lifetime in use; never made.
            #[doc(hidden)]
            Never(core::convert::Infallible, core::marker::PhantomData<&'a ()>),
        }

        impl<'a> $side<'a> {
            /// The rows of the table.
            pub const TABLE: &'static [MessageInfo] = &[$(MessageInfo {
                number: $number,
                name: concat!($letter, $text),
                dialects: DialectSet::$set,
                fields: &[$(FieldInfo {
                    name: stringify!($field),
                    kind: <$ty as Field>::KIND,
                    dialects: dialects!($set $($some)?),
                }),*],
            }),*];

            /// The message's number.
            pub fn number(&self) -> u8 {
                match self {
                    $($side::$name { .. } => $number,)*
                    $side::Never(never, _) => match *never {},
                }
            }

            /// The message's name, as the manual writes it.
            pub fn name(&self) -> &'static str {
                match self {
                    $($side::$name { .. } => concat!($letter, $text),)*
                    $side::Never(never, _) => match *never {},
                }
            }

            /// Whether a string is longer than its length can tell: it would be cut when it is encoded.
            pub fn is_overlong(&self) -> bool {
                match self {
                    $($side::$name { $($field),* } => {
                        let counted: &[usize] = &[$(Field::counted16($field)),*];
                        counted.iter().any(|&n| n > usize::from(u16::MAX))
                    })*
                    $side::Never(never, _) => match *never {},
                }
            }

            /// Decodes the body of a frame of type `kind`; every byte is accounted for.
            pub fn decode(kind: u8, body: &'a [u8], version: impl Into<Version>) -> Result<Self, DecodeError> {
                let (reader, version) = (&mut Reader::new(body), version.into());
                let message = match kind {
                    $($number if DialectSet::$set.has(version) => $side::$name {
                        $($field: get!(reader, version, $field, $ty $(, $some, $default)?)),*
                    },)*
                    _ => return Err(DecodeError::UnknownType(kind)),
                };
                reader.clone().finish()?;
                Ok(message)
            }

            /// Appends the frame's head to `out`: everything but bulk data, whose length is counted in.
            pub fn encode_head(&self, tag: Tag, version: impl Into<Version>, out: &mut Vec<u8>) {
                let (start, version) = (out.len(), version.into());
                let mut w = Writer::new(out);
                w.u32(0);
                w.u8(self.number());
                w.u16(tag.0);
                match self {
                    $($side::$name { $($field),* } => {
                        $(put!(w, version, $field $(, $some)?);)*
                        let _ = version;
                    })*
                    $side::Never(never, _) => match *never {},
                }
                let size = w.position() - start + self.payload().len();
                w.patch_u32(start, size as u32);
            }

            /// Appends the whole frame, data copied: for tests and small tools.
            pub fn encode(&self, tag: Tag, version: impl Into<Version>, out: &mut Vec<u8>) {
                self.encode_head(tag, version, out);
                out.extend_from_slice(self.payload());
            }
        }
    };
}

side! {
    /// A request: what a client sends.
    T "T";
    /// version(5): negotiate; aborts everything before it.
    100 "version" Version PUL (msize: u32; version: Str<'a>;);
    /// attach(5): start to authenticate.
    102 "auth" Auth PUL (afid: Fid; uname: Str<'a>; aname: Str<'a>; n_uname: u32, UL or NONUNAME;);
    /// attach(5): establish the root of a tree.
    104 "attach" Attach PUL (fid: Fid; afid: Fid; uname: Str<'a>; aname: Str<'a>; n_uname: u32, UL or NONUNAME;);
    /// flush(5): abort a request.
    108 "flush" Flush PUL (oldtag: Tag;);
    /// walk(5): go through names, to a new fid.
    110 "walk" Walk PUL (fid: Fid; newfid: Fid; wnames: Names<'a>;);
    /// open(5).
    112 "open" Open PU (fid: Fid; mode: u8;);
    /// open(5); `extension` tells what a special file is (S4, table 2's successor).
    114 "create" Create PU (fid: Fid; name: Str<'a>; perm: Perm; mode: u8; extension: Str<'a>, U or b"";);
    /// read(5).
    116 "read" Read PUL (fid: Fid; offset: u64; count: u32;);
    /// read(5).
    118 "write" Write PUL (fid: Fid; offset: u64; data: Payload<'a>;);
    /// clunk(5): forget a fid.
    120 "clunk" Clunk PUL (fid: Fid;);
    /// remove(5): remove the file and forget the fid.
    122 "remove" Remove PUL (fid: Fid;);
    /// stat(5).
    124 "stat" Stat PU (fid: Fid;);
    /// stat(5).
    126 "wstat" Wstat PU (fid: Fid; stat: StatBytes<'a>;);
    /// statfs(2).
    8 "statfs" Statfs L (fid: Fid;);
    /// open(2): `flags` are Linux's.
    12 "lopen" Lopen L (fid: Fid; flags: Octal;);
    /// open(2) with O_CREAT: the fid becomes the new open file.
    14 "lcreate" Lcreate L (fid: Fid; name: Str<'a>; flags: Octal; mode: Octal; gid: u32;);
    /// symlink(2).
    16 "symlink" Symlink L (dfid: Fid; name: Str<'a>; symtgt: Str<'a>; gid: u32;);
    /// mknod(2).
    18 "mknod" Mknod L (dfid: Fid; name: Str<'a>; mode: Octal; major: u32; minor: u32; gid: u32;);
    /// rename(2) of the file behind a fid.
    20 "rename" Rename L (fid: Fid; dfid: Fid; name: Str<'a>;);
    /// readlink(2).
    22 "readlink" Readlink L (fid: Fid;);
    /// stat(2); `request_mask` as [`crate::attr`] has it.
    24 "getattr" Getattr L (fid: Fid; request_mask: Mask;);
    /// chmod(2), chown(2), truncate(2), utimensat(2) in one.
    26 "setattr" Setattr L (fid: Fid; valid: Octal; mode: Octal; uid: u32; gid: u32; size: u64;
        atime_sec: u64; atime_nsec: u64; mtime_sec: u64; mtime_nsec: u64;);
    /// getxattr(2), or listxattr(2) when the name is empty: makes `newfid` readable.
    30 "xattrwalk" Xattrwalk L (fid: Fid; newfid: Fid; name: Str<'a>;);
    /// setxattr(2): the fid takes the value by writes, and sets it when clunked.
    32 "xattrcreate" Xattrcreate L (fid: Fid; name: Str<'a>; attr_size: u64; flags: u32;);
    /// getdents(2).
    40 "readdir" Readdir L (fid: Fid; offset: u64; count: u32;);
    /// fsync(2), fdatasync(2).
    50 "fsync" Fsync L (fid: Fid; datasync: Optional;);
    /// fcntl(2) F_SETLK.
    52 "lock" Lock L (fid: Fid; locktype: u8; flags: u32; start: u64; length: u64; proc_id: u32; client_id: Str<'a>;);
    /// fcntl(2) F_GETLK.
    54 "getlock" Getlock L (fid: Fid; locktype: u8; start: u64; length: u64; proc_id: u32; client_id: Str<'a>;);
    /// link(2).
    70 "link" Link L (dfid: Fid; fid: Fid; name: Str<'a>;);
    /// mkdir(2).
    72 "mkdir" Mkdir L (dfid: Fid; name: Str<'a>; mode: Octal; gid: u32;);
    /// renameat(2).
    74 "renameat" Renameat L (olddirfid: Fid; oldname: Str<'a>; newdirfid: Fid; newname: Str<'a>;);
    /// unlinkat(2).
    76 "unlinkat" Unlinkat L (dirfid: Fid; name: Str<'a>; flags: Octal;);
    /// A data connection for a part of a file (S1, table 4.2): `isread` 1 from the server, 0 to it; `length` 0 is to the end.
    160 "stream" Stream SN (fid: Fid; flags: Octal, N or Octal(0); isread: u8; offset: u64; length: u64, N or 0;
        token: StreamToken, N or StreamToken([0; 16]););
    /// How a stream ended; `flags` are those of [`crate::n1::streamend`].
    162 "streamend" Streamend N (id: u32; flags: Octal;);
    /// Makes this connection one of a client's session, and attaches: `fid` is the root of a tree.
    164 "session" Session N (flags: Octal; session: SessionId; caps: Mask; fid: Fid; uname: Str<'a>; aname: Str<'a>;
        n_uname: u32;);
    /// Treaddir with the attributes of each entry.
    172 "readdirplus" Readdirplus N (fid: Fid; offset: u64; count: u32; request_mask: Mask; flags: Octal;);
    /// access(2) for who attached.
    174 "access" Access N (fid: Fid; mode: Octal;);
    /// Twrite with flags, [`crate::n1::writex`].
    176 "writex" Writex N (fid: Fid; offset: u64; flags: Octal; data: Payload<'a>;);
    /// copy_file_range(2).
    182 "copyrange" Copyrange N (srcfid: Fid; srcoffset: u64; dstfid: Fid; dstoffset: u64; length: u64; flags: Octal;);
    /// fallocate(2).
    184 "allocate" Allocate N (fid: Fid; mode: Octal; offset: u64; length: u64;);
    /// lseek(2) with SEEK_DATA and SEEK_HOLE.
    186 "seek" Seek N (fid: Fid; offset: u64; whence: u32;);
    /// renameat2(2).
    188 "rename2" Rename2 N (olddirfid: Fid; oldname: Str<'a>; newdirfid: Fid; newname: Str<'a>; flags: Octal;);
    /// The requests behind it, `members` of its tag, are carried out only where what it says holds.
    190 "guard" Guard N (flags: Octal; epoch: u64; fid: Fid; lease: u32; opid: u64; members: u16;);
}

side! {
    /// A reply: what a server sends.
    R "R";
    101 "version" Version PUL (msize: u32; version: Str<'a>;);
    103 "auth" Auth PUL (aqid: Qid;);
    105 "attach" Attach PUL (qid: Qid;);
    /// The error of 9P2000, with a number in .u.
    107 "error" Error PU (ename: Str<'a>; errno: u32, U or 0;);
    /// The error of .L; in .n1 with a hint when to ask again, in milliseconds, and a text of its own or none.
    7 "lerror" Lerror L (ecode: u32; retry_ms: u32, N or 0; text: Str<'a>, N or b"";);
    109 "flush" Flush PUL ();
    111 "walk" Walk PUL (wqids: Qids<'a>;);
    113 "open" Open PU (qid: Qid; iounit: u32;);
    115 "create" Create PU (qid: Qid; iounit: u32;);
    117 "read" Read PUL (data: Payload<'a>;);
    119 "write" Write PUL (count: u32;);
    121 "clunk" Clunk PUL ();
    123 "remove" Remove PUL ();
    125 "stat" Stat PU (stat: StatBytes<'a>;);
    127 "wstat" Wstat PU ();
    9 "statfs" Statfs L (fstype: Octal; bsize: u32; blocks: u64; bfree: u64; bavail: u64; files: u64; ffree: u64;
        fsid: Mask; namelen: u32;);
    13 "lopen" Lopen L (qid: Qid; iounit: u32;);
    15 "lcreate" Lcreate L (qid: Qid; iounit: u32;);
    17 "symlink" Symlink L (qid: Qid;);
    19 "mknod" Mknod L (qid: Qid;);
    21 "rename" Rename L ();
    23 "readlink" Readlink L (target: Str<'a>;);
    25 "getattr" Getattr L (valid: Mask; qid: Qid; mode: Octal; uid: u32; gid: u32; nlink: u64; rdev: u64; size: u64;
        blksize: u64; blocks: u64; atime_sec: u64; atime_nsec: u64; mtime_sec: u64; mtime_nsec: u64;
        ctime_sec: u64; ctime_nsec: u64; btime_sec: u64; btime_nsec: u64; generation: u64; data_version: u64;);
    27 "setattr" Setattr L ();
    31 "xattrwalk" Xattrwalk L (size: u64;);
    33 "xattrcreate" Xattrcreate L ();
    41 "readdir" Readdir L (data: Entries<'a>;);
    51 "fsync" Fsync L ();
    53 "lock" Lock L (status: u8;);
    55 "getlock" Getlock L (locktype: u8; start: u64; length: u64; proc_id: u32; client_id: Str<'a>;);
    71 "link" Link L ();
    73 "mkdir" Mkdir L (qid: Qid;);
    75 "renameat" Renameat L ();
    77 "unlinkat" Unlinkat L ();
    /// Where the stream is: in `.s` an address for this one alone, `tcp!ADDRESS!PORT`; in `.n1` a number, what opens its data
    /// connection, the file's modification number, the part of the file that it has, and an address, empty for the session's own.
    161 "stream" Stream SN (data: LongStr<'a>, S or LongStr(b""); id: u32, N or 0; token: StreamToken, N or StreamToken([0; 16]);
        modrev: u64, N or 0; offset: u64, N or 0; length: u64, N or 0; addr: Str<'a>, N or b"";);
    /// Bytes that the server read from the file or wrote to it, and the file's modification number then.
    163 "streamend" Streamend N (count: u64; modrev: u64;);
    /// What the server can, its start and time, how long a lease lasts, its limits, and the root.
    165 "session" Session N (caps: Mask; epoch: u64; time_sec: u64; time_nsec: u64; term_ms: u32; fids: u32; running: u32;
        parked: u32; group: u32; waiting: u32; qid: Qid;);
    /// `flags` are those of [`crate::n1::listed`].
    173 "readdirplus" Readdirplus N (flags: Octal; data: PlusEntries<'a>;);
    /// Those of the bits asked for that are allowed.
    175 "access" Access N (mode: Octal;);
    /// `offset` is where the data begins in the file.
    177 "writex" Writex N (offset: u64; count: u32;);
    183 "copyrange" Copyrange N (count: u64;);
    185 "allocate" Allocate N ();
    187 "seek" Seek N (offset: u64;);
    189 "rename2" Rename2 N ();
    191 "guard" Guard N ();
}

impl<'a> T<'a> {
    /// The bulk data that follows the head.
    pub fn payload(&self) -> &'a [u8] {
        match self {
            T::Write { data, .. } | T::Writex { data, .. } => data.0,
            _ => &[],
        }
    }
}

impl<'a> R<'a> {
    /// The bulk data that follows the head.
    pub fn payload(&self) -> &'a [u8] {
        match self {
            R::Read { data } => data.0,
            R::Readdir { data } => data.0,
            R::Readdirplus { data, .. } => data.0,
            _ => &[],
        }
    }

    /// Whether it is an error reply.
    pub fn is_error(&self) -> bool {
        matches!(self, R::Error { .. } | R::Lerror { .. })
    }
}

/// The row of a message number in a version, whichever side sends it.
pub fn info(number: u8, version: impl Into<Version>) -> Option<&'static MessageInfo> {
    let version = version.into();
    T::TABLE.iter().chain(R::TABLE).find(|row| row.number == number && row.dialects.has(version))
}

/// The number of Rversion; Tversion is one less.
pub const RVERSION: u8 = 101;

/// The number of Rerror, 9P2000's and .u's.
pub const RERROR: u8 = 107;

/// The number of Rlerror, .L's.
pub const RLERROR: u8 = 7;

/// The number of Tflush.
pub const TFLUSH: u8 = 108;

/// The number of Tclunk.
pub const TCLUNK: u8 = 120;

/// The number of Tremove.
pub const TREMOVE: u8 = 122;

/// Whether `number` is that of a reply in any version.
pub fn is_reply(number: u8) -> bool {
    R::TABLE.iter().any(|row| row.number == number)
}
