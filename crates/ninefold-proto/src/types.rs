//! Numbers that must not be confused, and untrusted values that wear a type.
//!
//! A [`Fid`] cannot be passed for a [`Tag`]; a [`Name`] has been checked once and never again.

use core::fmt;

/// A fid: the client's 32-bit name for a file, walked or open (intro(5)).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fid(pub u32);

impl Fid {
    /// "No fid": the afid of an attach without authentication (attach(5)).
    pub const NONE: Fid = Fid(u32::MAX);
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Fid::NONE { f.write_str("-1") } else { write!(f, "{}", self.0) }
    }
}

/// A tag: the client's 16-bit name for an outstanding request (intro(5)).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u16);

impl Tag {
    /// "No tag": the tag of Tversion (version(5)).
    pub const NONE: Tag = Tag(u16::MAX);
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Tag::NONE { f.write_str("-1") } else { write!(f, "{}", self.0) }
    }
}

/// A client's session: 16 bytes that nobody else can guess.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SessionId(pub [u8; 16]);

/// What opens the data connection of a stream: 16 bytes that nobody else can guess, good once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamToken(pub [u8; 16]);

/// n_uname of an attach that gives no number (9P2000.u, 9P2000.L).
pub const NONUNAME: u32 = u32::MAX;

/// The greatest number of names in one walk (walk(5)).
pub const MAXWELEM: usize = 16;

/// The longest name in bytes that a [`Name`] may have; Linux's NAME_MAX.
pub const NAME_MAX: usize = 255;

/// The type byte of a [`Qid`]: the high byte of the file's mode (stat(5)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct QidType(pub u8);

impl QidType {
    /// Plain file.
    pub const FILE: QidType = QidType(0x00);
    /// Hard link (.u creation only).
    pub const LINK: QidType = QidType(0x01);
    /// Symbolic link (.u and .L).
    pub const SYMLINK: QidType = QidType(0x02);
    /// Not backed up.
    pub const TMP: QidType = QidType(0x04);
    /// Authentication file.
    pub const AUTH: QidType = QidType(0x08);
    /// Mounted channel.
    pub const MOUNT: QidType = QidType(0x10);
    /// Exclusive use: one open at a time.
    pub const EXCL: QidType = QidType(0x20);
    /// Append only: offsets in writes are ignored.
    pub const APPEND: QidType = QidType(0x40);
    /// Directory.
    pub const DIR: QidType = QidType(0x80);

    /// Letter and bit, in the order in which they are printed.
    pub(crate) const LETTERS: [(u8, char); 8] =
        [(0x80, 'd'), (0x40, 'a'), (0x20, 'l'), (0x10, 'm'), (0x08, 'A'), (0x04, 't'), (0x02, 'L'), (0x01, 'h')];

    /// Whether all bits of `other` are set.
    pub fn has(self, other: QidType) -> bool {
        self.0 & other.0 == other.0
    }

    /// A letter for each bit that is set: `d` directory, `a` append only, `l` exclusive use, `m` mounted channel,
    /// `A` authentication file, `t` not backed up, `L` symbolic link, `h` hard link.
    pub fn letters(self) -> impl Iterator<Item = char> {
        QidType::LETTERS.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, letter)| letter)
    }
}

impl core::ops::BitOr for QidType {
    type Output = QidType;
    fn bitor(self, other: QidType) -> QidType {
        QidType(self.0 | other.0)
    }
}

impl fmt::Debug for QidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QidType({:#04x})", self.0)
    }
}

/// The server's name for a file: two files are the same iff their paths are equal (intro(5)).
///
/// `version` 0 marks a synthetic file, which nobody may cache (S4, "Details").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Qid {
    pub kind: QidType,
    pub version: u32,
    pub path: u64,
}

impl Qid {
    /// Bytes on the wire: `type[1] version[4] path[8]`.
    pub const SIZE: usize = 13;

    /// Whether it names a directory.
    pub fn is_dir(&self) -> bool {
        self.kind.has(QidType::DIR)
    }
}

/// Why bytes are not a [`Name`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadName {
    #[error("file name is empty")]
    Empty,
    #[error("file name is '.' or '..'")]
    Dots,
    #[error("file name contains '/' or NUL")]
    Forbidden,
    #[error("file name is longer than 255 bytes")]
    TooLong,
}

/// A file name that was checked: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
///
/// It need not be UTF-8: Linux's names are bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks `bytes`.
    pub fn new(bytes: &'a [u8]) -> Result<Name<'a>, BadName> {
        match bytes {
            b"" => Err(BadName::Empty),
            b"." | b".." => Err(BadName::Dots),
            _ if bytes.iter().any(|&b| b == b'/' || b == 0) => Err(BadName::Forbidden),
            _ if bytes.len() > NAME_MAX => Err(BadName::TooLong),
            _ => Ok(Name(bytes)),
        }
    }

    /// The bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", crate::print::Quoted(self.0))
    }
}

/// One element of a walk (walk(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkElem<'a> {
    /// `.`: where the walk is. Only .L clients send it (diodls walks what readdir lists).
    Here,
    /// `..`: the directory's parent; the parent of an export's root is the root.
    Parent,
    /// An entry of the directory.
    Name(Name<'a>),
}

impl<'a> WalkElem<'a> {
    /// Checks one element as it came from the wire; `.` is an element only where `dots` allows it.
    pub fn new(bytes: &'a [u8], dots: bool) -> Result<WalkElem<'a>, BadName> {
        match bytes {
            b".." => Ok(WalkElem::Parent),
            b"." if dots => Ok(WalkElem::Here),
            _ => Name::new(bytes).map(WalkElem::Name),
        }
    }
}
