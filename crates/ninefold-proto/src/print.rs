//! The text form of every message, printed and parsed back: traces, logs and transcripts speak it.
//!
//! It is the transaction log of S4: the message's name, `tag` and the fields in the order of the
//! wire, each as its name and value: `Twalk tag 5 fid 308 newfid 296 nwname 2 0:tmp 1:usr`.
//!
//! - Strings stand in single quotes; `''` is a quote, `\\` a backslash, `\n`, `\t`, `\xHH` other bytes.
//! - A qid is `(path version type)`: path in hexadecimal, type as letters (`d` directory, `a` append, `l`
//!   exclusive, `m` mount, `A` authentication, `t` temporary, `L` symbolic link, `h` hard link; none for a plain file).
//! - Permissions are `d-rwxr-xr-x` where that says all, else octal; numbers are decimal, `0…` octal, `0x…`
//!   hexadecimal, and `-1` is the field's greatest value.
//! - A frame that is no message of the dialect is `raw 0x…`.
//!
//! Parsing takes the fields in any order and an arrow (`→`, `->`, `←`, `<-`) in front.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use crate::dialect::{Dialect, Version};
use crate::message::{self, FieldInfo, MessageInfo, R, T};
use crate::plus::{NUMBERS, plus_entries, put_numbers};
use crate::stat::{DirEntry, Stat, dm};
use crate::types::{Fid, Qid, QidType, Tag};
use crate::wire::{self, DecodeError, HEADER, Reader, Writer};

/// How a field stands on the wire and in text; every type of the message table has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldKind {
    U8,
    U16,
    U32,
    U64,
    Fid,
    Tag,
    Qid,
    Str,
    Perm,
    Octal,
    Mask,
    Optional,
    Names,
    Qids,
    Payload,
    Entries,
    PlusEntries,
    /// 16 bytes that nobody can guess.
    Secret,
    LongStr,
    Stat,
}

/// A peer's text for a person: without anything that a terminal would obey, bytes that are not UTF-8 as `\\xHH`, and no
/// more than `most` characters of it, `…` behind them where there are more.
pub fn printable(text: &[u8], most: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    for chunk in text.utf8_chunks() {
        let valid = chunk.valid().chars().map(Ok);
        for part in valid.chain(chunk.invalid().iter().map(Err)) {
            if count == most {
                out.push('…');
                return out;
            }
            count += 1;
            // Writing to a string does not fail.
            let _ = match part {
                Ok(c) if c.is_control() => write!(out, "{}", c.escape_default()),
                Ok(c) => out.write_char(c),
                Err(byte) => write!(out, "\\x{byte:02x}"),
            };
        }
    }
    out
}

/// Whether the data of Twrite, Rread and Rreaddir is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// Whole: the line can be parsed back.
    Whole,
    /// As `...`: logs hold no file data.
    Elided,
}

/// Prints one frame. Never fails: what is no message is printed as `raw 0x…`.
pub fn print(frame: &[u8], version: impl Into<Version>, data: Data) -> Printed<'_> {
    Printed { frame, version: version.into(), data }
}

/// A frame that displays as text.
#[derive(Clone, Copy, Debug)]
pub struct Printed<'a> {
    frame: &'a [u8],
    version: Version,
    data: Data,
}

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::new();
        match print_message(self.frame, self.version, self.data, &mut line) {
            Ok(()) => f.write_str(&line),
            Err(_) if self.data == Data::Elided => {
                write!(f, "raw {}... ({} bytes)", Hex(&self.frame[..self.frame.len().min(HEADER)]), self.frame.len())
            }
            Err(_) => write!(f, "raw {}", Hex(self.frame)),
        }
    }
}

/// Why a frame cannot be printed as a message; writing to a `String` itself never fails.
struct Unprintable;

impl From<DecodeError> for Unprintable {
    fn from(_: DecodeError) -> Unprintable {
        Unprintable
    }
}

impl From<fmt::Error> for Unprintable {
    fn from(_: fmt::Error) -> Unprintable {
        Unprintable
    }
}

fn print_message(frame: &[u8], version: Version, data: Data, out: &mut String) -> Result<(), Unprintable> {
    let (header, body) = wire::split_frame(frame)?;
    let row = message::info(header.kind, version).ok_or(Unprintable)?;
    write!(out, "{} tag {}", row.name, header.tag)?;
    let mut r = Reader::new(body);
    for field in row.fields.iter().filter(|field| field.dialects.has(version)) {
        print_field(field, version.dialect, data, &mut r, out)?;
    }
    Ok(r.finish()?)
}

fn print_field(
    field: &FieldInfo,
    dialect: Dialect,
    data: Data,
    r: &mut Reader<'_>,
    out: &mut String,
) -> Result<(), Unprintable> {
    let name = field.name;
    write!(out, " {}", keyword(field))?;
    match field.kind {
        FieldKind::U8 => write!(out, " {}", r.u8(name)?)?,
        FieldKind::U16 => write!(out, " {}", r.u16(name)?)?,
        FieldKind::U32 => write!(out, " {}", Number32(r.u32(name)?))?,
        FieldKind::U64 => write!(out, " {}", Number64(r.u64(name)?))?,
        FieldKind::Fid => write!(out, " {}", r.fid(name)?)?,
        FieldKind::Tag => write!(out, " {}", r.tag(name)?)?,
        FieldKind::Qid => write!(out, " {}", QidText(r.qid(name)?))?,
        FieldKind::Str => write!(out, " {}", Quoted(r.string(name)?))?,
        FieldKind::Perm => write!(out, " {}", PermText(r.u32(name)?))?,
        FieldKind::Octal => write!(out, " {}", OctalText(r.u32(name)?))?,
        FieldKind::Mask => write!(out, " {:#x}", r.u64(name)?)?,
        FieldKind::Optional if r.remaining() == 0 => write!(out, " absent")?,
        FieldKind::Optional => write!(out, " {}", Number32(r.u32(name)?))?,
        FieldKind::Names => {
            let n = r.u16(name)?;
            write!(out, " {n}")?;
            for i in 0..n {
                write!(out, " {i}:{}", Bare(r.string(name)?))?;
            }
        }
        FieldKind::Qids => {
            let n = r.u16(name)?;
            write!(out, " {n}")?;
            for i in 0..n {
                write!(out, " {i}:{}", QidText(r.qid(name)?))?;
            }
        }
        FieldKind::Secret => write!(out, " {}", Hex(&r.secret(name)?))?,
        FieldKind::LongStr => {
            let count = r.u32(name)?;
            write!(out, " {}", Quoted(r.take(count as usize, name)?))?;
        }
        FieldKind::Payload | FieldKind::Entries | FieldKind::PlusEntries => {
            let count = r.u32(name)?;
            let bytes = r.take(count as usize, name)?;
            write!(out, " {count} ")?;
            match data {
                Data::Elided => write!(out, "...")?,
                Data::Whole if field.kind == FieldKind::Entries => print_entries(bytes, out)?,
                Data::Whole if field.kind == FieldKind::PlusEntries => print_plus_entries(bytes, out)?,
                Data::Whole => write!(out, "{}", Quoted(bytes))?,
            }
        }
        FieldKind::Stat => {
            let bytes = r.string(name)?;
            match Stat::decode(bytes, dialect) {
                Ok(stat) => print_stat(&stat, dialect, out)?,
                Err(_) => write!(out, " raw {}", Hex(bytes))?,
            }
        }
    }
    Ok(())
}

/// The word in front of a field's value: counted lists are known by their count, as in the manual.
fn keyword(field: &FieldInfo) -> &'static str {
    match field.kind {
        FieldKind::Names => "nwname",
        FieldKind::Qids => "nwqid",
        FieldKind::Payload | FieldKind::Entries | FieldKind::PlusEntries => "count",
        _ => field.name,
    }
}

fn print_entries(bytes: &[u8], out: &mut String) -> fmt::Result {
    let whole = crate::stat::dir_entries(bytes).all(|e| e.is_ok());
    if !whole {
        return write!(out, "{}", Quoted(bytes));
    }
    out.push('[');
    for (i, e) in crate::stat::dir_entries(bytes).flatten().enumerate() {
        let space = if i == 0 { "" } else { " " };
        write!(out, "{space}({} {} {} {})", QidText(e.qid), e.offset, e.kind, Quoted(e.name))?;
    }
    out.push(']');
    Ok(())
}

/// As of Rreaddir, with the attributes' numbers in the order of the wire behind each name.
fn print_plus_entries(bytes: &[u8], out: &mut String) -> fmt::Result {
    if !plus_entries(bytes).all(|e| e.is_ok()) {
        return write!(out, "{}", Quoted(bytes));
    }
    out.push('[');
    for (i, plus) in plus_entries(bytes).flatten().enumerate() {
        let (e, space) = (plus.entry, if i == 0 { "" } else { " " });
        write!(out, "{space}({} {} {} {}", QidText(e.qid), e.offset, e.kind, Quoted(e.name))?;
        plus.numbers().into_iter().try_for_each(|number| write!(out, " {number}"))?;
        out.push(')');
    }
    out.push(']');
    Ok(())
}

fn print_stat(s: &Stat<'_>, dialect: Dialect, out: &mut String) -> fmt::Result {
    write!(out, " {} {} {} {}", Quoted(s.name), Quoted(s.uid), Quoted(s.gid), Quoted(s.muid))?;
    write!(out, " q {} m {} at {}", QidText(s.qid), PermText(s.mode), Number32(s.atime))?;
    write!(out, " mt {} l {} t {}", Number32(s.mtime), Number64(s.length), Number16(s.kind))?;
    write!(out, " d {}", Number32(s.dev))?;
    if dialect == Dialect::Unix {
        write!(out, " ext {}", Quoted(s.extension))?;
        write!(out, " nu {} ng {} nm {}", Number32(s.n_uid), Number32(s.n_gid), Number32(s.n_muid))?;
    }
    Ok(())
}

macro_rules! number_text {
    ($name:ident, $ty:ty) => {
        /// Decimal, with -1 for the greatest value.
        struct $name($ty);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.0 == <$ty>::MAX { f.write_str("-1") } else { write!(f, "{}", self.0) }
            }
        }
    };
}

number_text!(Number16, u16);
number_text!(Number32, u32);
number_text!(Number64, u64);

struct OctalText(u32);

impl fmt::Display for OctalText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            u32::MAX => f.write_str("-1"),
            n => write!(f, "0{n:o}"),
        }
    }
}

struct QidText(Qid);

impl fmt::Display for QidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:x} {} ", self.0.path, Number32(self.0.version))?;
        for letter in self.0.kind.letters() {
            f.write_char(letter)?;
        }
        f.write_char(')')
    }
}

struct PermText(u32);

impl fmt::Display for PermText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let perm = self.0;
        let kind = match perm & (dm::DIR | dm::APPEND) {
            0 => '-',
            dm::DIR => 'd',
            dm::APPEND => 'a',
            _ => return write!(f, "{}", OctalText(perm)),
        };
        if perm & !(dm::DIR | dm::APPEND | dm::EXCL | 0o777) != 0 {
            return write!(f, "{}", OctalText(perm));
        }
        f.write_char(kind)?;
        f.write_char(if perm & dm::EXCL != 0 { 'l' } else { '-' })?;
        for (i, letter) in "rwxrwxrwx".chars().enumerate() {
            f.write_char(if perm & (0o400 >> i) != 0 { letter } else { '-' })?;
        }
        Ok(())
    }
}

/// A string in single quotes.
pub(crate) struct Quoted<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('\'')?;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\'' => f.write_str("''")?,
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\t' => f.write_str("\\t")?,
                    c if c.is_ascii_control() => write!(f, "\\x{:02x}", c as u32)?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_char('\'')
    }
}

/// A string without quotes where it needs none.
struct Bare<'a>(&'a [u8]);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |b: &u8| b.is_ascii_alphanumeric() || b"._-+@=".contains(b);
        match core::str::from_utf8(self.0) {
            Ok(s) if !s.is_empty() && self.0.iter().all(plain) => f.write_str(s),
            _ => write!(f, "{}", Quoted(self.0)),
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Why a line is not the text of a message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    #[error("the line is empty")]
    Empty,
    #[error("'{0}' is no message of {1}")]
    UnknownMessage(String, Version),
    #[error("{message} has no field '{field}' in this dialect")]
    UnknownField { message: &'static str, field: String },
    #[error("{message}: field '{field}' is missing")]
    MissingField { message: &'static str, field: &'static str },
    #[error("{message}: field '{field}' is given twice")]
    RepeatedField { message: &'static str, field: &'static str },
    #[error("field '{field}': '{text}' is no {expected}")]
    BadValue { field: &'static str, text: String, expected: &'static str },
    #[error("field '{0}': the line ends before its value")]
    NoValue(&'static str),
    #[error("a quote or a parenthesis is not closed")]
    Unclosed,
    #[error("field '{field}': count {count} does not agree with the {given} given")]
    Count { field: &'static str, count: usize, given: usize },
}

/// Splits a line into words; quotes and parentheses keep what is inside them together.
pub fn words(line: &str) -> Result<Vec<&str>, ParseError> {
    let mut words = Vec::new();
    let (mut start, mut depth, mut quoted, mut escaped) = (None, 0usize, false, false);
    for (i, c) in line.char_indices() {
        if quoted {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '\'' => quoted = false,
                _ => {}
            }
            continue;
        }
        if c.is_whitespace() && depth == 0 {
            words.extend(start.take().map(|s: usize| &line[s..i]));
            continue;
        }
        start.get_or_insert(i);
        match c {
            '\'' => quoted = true,
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.checked_sub(1).ok_or(ParseError::Unclosed)?,
            _ => {}
        }
    }
    if quoted || depth != 0 {
        return Err(ParseError::Unclosed);
    }
    words.extend(start.map(|s| &line[s..]));
    Ok(words)
}

/// Parses a line into the frame it describes.
pub fn parse(line: &str, version: impl Into<Version>) -> Result<Vec<u8>, ParseError> {
    let version = version.into();
    let words = words(line)?;
    let mut words = words.iter().copied().peekable();
    words.next_if(|w| ["→", "->", "←", "<-"].contains(w));
    let name = words.next().ok_or(ParseError::Empty)?;
    if name == "raw" {
        let bytes = hex(words.next().ok_or(ParseError::NoValue("raw"))?, "raw")?;
        return match words.next() {
            None => Ok(bytes),
            Some(word) => Err(bad("raw", word, "end of the line")),
        };
    }
    let row = T::TABLE
        .iter()
        .chain(R::TABLE)
        .find(|row| row.name == name && row.dialects.has(version))
        .ok_or_else(|| ParseError::UnknownMessage(name.to_owned(), version))?;

    let mut tag = None;
    let mut slots: Vec<Option<Vec<u8>>> = alloc::vec![None; row.fields.len()];
    while let Some(word) = words.next() {
        if word == "tag" {
            if tag.replace(value(&mut words, "tag")?).is_some() {
                return Err(ParseError::RepeatedField { message: row.name, field: "tag" });
            }
            continue;
        }
        let at = row
            .fields
            .iter()
            .position(|f| keyword(f) == word && f.dialects.has(version))
            .ok_or_else(|| ParseError::UnknownField { message: row.name, field: word.to_owned() })?;
        let mut bytes = Vec::new();
        parse_field(&row.fields[at], version.dialect, &mut words, &mut Writer::new(&mut bytes))?;
        if slots[at].replace(bytes).is_some() {
            return Err(ParseError::RepeatedField { message: row.name, field: keyword(&row.fields[at]) });
        }
    }
    let tag = tag.ok_or(ParseError::MissingField { message: row.name, field: "tag" })?;
    let tag = number(tag, "tag", u16::MAX.into())? as u16;
    assemble(row, Tag(tag), version, slots)
}

fn assemble(
    row: &'static MessageInfo,
    tag: Tag,
    version: Version,
    slots: Vec<Option<Vec<u8>>>,
) -> Result<Vec<u8>, ParseError> {
    let mut frame = Vec::new();
    let mut w = Writer::new(&mut frame);
    w.u32(0);
    w.u8(row.number);
    w.u16(tag.0);
    for (field, slot) in row.fields.iter().zip(slots).filter(|(field, _)| field.dialects.has(version)) {
        match slot {
            Some(bytes) => w.bytes(&bytes),
            None => return Err(ParseError::MissingField { message: row.name, field: keyword(field) }),
        }
    }
    let size = w.position() as u32;
    w.patch_u32(0, size);
    Ok(frame)
}

type Words<'w, 'l> = core::iter::Peekable<core::iter::Copied<core::slice::Iter<'w, &'l str>>>;

fn value<'l>(words: &mut Words<'_, 'l>, field: &'static str) -> Result<&'l str, ParseError> {
    words.next().ok_or(ParseError::NoValue(field))
}

fn parse_field(
    field: &FieldInfo,
    dialect: Dialect,
    words: &mut Words<'_, '_>,
    w: &mut Writer<'_>,
) -> Result<(), ParseError> {
    let name = keyword(field);
    let first = value(words, name)?;
    match field.kind {
        FieldKind::U8 => w.u8(number(first, name, u8::MAX.into())? as u8),
        FieldKind::U16 | FieldKind::Tag => w.u16(number(first, name, u16::MAX.into())? as u16),
        FieldKind::Optional if first == "absent" => {}
        FieldKind::U32 | FieldKind::Fid | FieldKind::Octal | FieldKind::Optional => {
            w.u32(number(first, name, u32::MAX.into())? as u32);
        }
        FieldKind::U64 | FieldKind::Mask => w.u64(number(first, name, u64::MAX)?),
        FieldKind::Qid => w.qid(&qid(first, name)?),
        FieldKind::Str => w.string(&short_string(first, name)?),
        FieldKind::Perm => w.u32(perm(first, name)?),
        FieldKind::Names => {
            let count = number(first, name, u16::MAX.into())? as u16;
            w.u16(count);
            for i in 0..count {
                w.string(&short_string(indexed(value(words, name)?, i, name)?, name)?);
            }
        }
        FieldKind::Qids => {
            let count = number(first, name, u16::MAX.into())? as u16;
            w.u16(count);
            for i in 0..count {
                w.qid(&qid(indexed(value(words, name)?, i, name)?, name)?);
            }
        }
        FieldKind::Secret => {
            let bytes = hex(first, name)?;
            let id: [u8; 16] = bytes.try_into().map_err(|_| bad(name, first, "16 bytes in hexadecimal"))?;
            w.bytes(&id);
        }
        FieldKind::LongStr => {
            let bytes = string(first, name)?;
            w.u32(bytes.len() as u32);
            w.bytes(&bytes);
        }
        FieldKind::Payload | FieldKind::Entries | FieldKind::PlusEntries => {
            let count = number(first, name, u32::MAX.into())? as u32;
            let text = value(words, name)?;
            let bytes = match field.kind {
                FieldKind::PlusEntries if text.starts_with('[') => plus_text(text, name)?,
                _ if text.starts_with('[') => entries(text, name)?,
                _ => string(text, name)?,
            };
            if bytes.len() != count as usize {
                return Err(ParseError::Count { field: name, count: count as usize, given: bytes.len() });
            }
            w.u32(count);
            w.bytes(&bytes);
        }
        FieldKind::Stat if first == "raw" => w.string(&hex(value(words, name)?, name)?),
        FieldKind::Stat => w.string(&parse_stat(first, dialect, words)?),
    }
    Ok(())
}

fn parse_stat(name: &str, dialect: Dialect, words: &mut Words<'_, '_>) -> Result<Vec<u8>, ParseError> {
    const FIELD: &str = "stat";
    let name = string(name, FIELD)?;
    let mut strings = [Vec::new(), Vec::new(), Vec::new()];
    for s in &mut strings {
        *s = string(value(words, FIELD)?, FIELD)?;
    }
    let [uid, gid, muid] = &strings;
    let mut stat = Stat { name: &name, uid, gid, muid, ..Stat::UNTOUCHED };
    let mut labelled = |label: &'static str| {
        let got = value(words, FIELD)?;
        if got != label {
            return Err(ParseError::BadValue { field: FIELD, text: got.to_owned(), expected: label });
        }
        value(words, FIELD)
    };
    stat.qid = qid(labelled("q")?, FIELD)?;
    stat.mode = perm(labelled("m")?, FIELD)?;
    stat.atime = number(labelled("at")?, FIELD, u32::MAX.into())? as u32;
    stat.mtime = number(labelled("mt")?, FIELD, u32::MAX.into())? as u32;
    stat.length = number(labelled("l")?, FIELD, u64::MAX)?;
    stat.kind = number(labelled("t")?, FIELD, u16::MAX.into())? as u16;
    stat.dev = number(labelled("d")?, FIELD, u32::MAX.into())? as u32;
    let extension;
    if dialect == Dialect::Unix {
        extension = string(labelled("ext")?, FIELD)?;
        stat.extension = &extension;
        stat.n_uid = number(labelled("nu")?, FIELD, u32::MAX.into())? as u32;
        stat.n_gid = number(labelled("ng")?, FIELD, u32::MAX.into())? as u32;
        stat.n_muid = number(labelled("nm")?, FIELD, u32::MAX.into())? as u32;
    }
    let mut out = Vec::new();
    stat.encode(dialect, &mut out);
    Ok(out)
}

fn bad(field: &'static str, text: &str, expected: &'static str) -> ParseError {
    ParseError::BadValue { field, text: text.to_owned(), expected }
}

fn number(text: &str, field: &'static str, max: u64) -> Result<u64, ParseError> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None if text == "-1" => return Ok(max),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(&text[1..], 8),
        None => text.parse(),
    };
    // Rust's own parser takes a sign.
    let plain = !text.contains('+');
    parsed.ok().filter(|n| plain && *n <= max).ok_or_else(|| bad(field, text, "number in range"))
}

fn indexed<'l>(word: &'l str, index: u16, field: &'static str) -> Result<&'l str, ParseError> {
    let expected = "value behind its index and ':'";
    let (i, rest) = word.split_once(':').ok_or_else(|| bad(field, word, expected))?;
    if i.parse() == Ok(index) { Ok(rest) } else { Err(bad(field, word, expected)) }
}

fn qid(text: &str, field: &'static str) -> Result<Qid, ParseError> {
    let expected = "qid (path version type)";
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).ok_or_else(|| bad(field, text, expected))?;
    let mut parts = inner.split_ascii_whitespace();
    let path = parts.next().unwrap_or_default();
    let path = u64::from_str_radix(path.trim_start_matches("0x"), 16).map_err(|_| bad(field, text, expected))?;
    let version = number(parts.next().unwrap_or_default(), field, u32::MAX.into())? as u32;
    let mut kind = QidType::FILE;
    for letter in parts.next().unwrap_or_default().chars() {
        let (bit, _) = QidType::LETTERS.iter().find(|(_, l)| *l == letter).ok_or_else(|| bad(field, text, expected))?;
        kind = kind | QidType(*bit);
    }
    if parts.next().is_some() {
        return Err(bad(field, text, expected));
    }
    Ok(Qid { kind, version, path })
}

fn perm(text: &str, field: &'static str) -> Result<u32, ParseError> {
    if text.starts_with(|c: char| c.is_ascii_digit()) || text == "-1" {
        return Ok(number(text, field, u32::MAX.into())? as u32);
    }
    let expected = "permission";
    if !text.is_ascii() || text.len() != 11 {
        return Err(bad(field, text, expected));
    }
    let mut perm = match &text[..2] {
        "--" => 0,
        "d-" => dm::DIR,
        "a-" => dm::APPEND,
        "-l" => dm::EXCL,
        "dl" => dm::DIR | dm::EXCL,
        "al" => dm::APPEND | dm::EXCL,
        _ => return Err(bad(field, text, expected)),
    };
    for (i, (got, letter)) in text[2..].chars().zip("rwxrwxrwx".chars()).enumerate() {
        match got {
            '-' => {}
            _ if got == letter => perm |= 0o400 >> i,
            _ => return Err(bad(field, text, expected)),
        }
    }
    Ok(perm)
}

/// A string that fits the two bytes of its length.
fn short_string(text: &str, field: &'static str) -> Result<Vec<u8>, ParseError> {
    let bytes = string(text, field)?;
    if bytes.len() > u16::MAX.into() {
        return Err(ParseError::Count { field, count: u16::MAX.into(), given: bytes.len() });
    }
    Ok(bytes)
}

fn string(text: &str, field: &'static str) -> Result<Vec<u8>, ParseError> {
    let Some(inner) = text.strip_prefix('\'') else { return Ok(text.as_bytes().to_vec()) };
    let expected = "quoted string";
    let inner = inner.strip_suffix('\'').ok_or_else(|| bad(field, text, expected))?.as_bytes();
    let mut out = Vec::with_capacity(inner.len());
    let mut i = 0;
    while i < inner.len() {
        let (byte, used) = match &inner[i..] {
            [b'\'', b'\'', ..] => (b'\'', 2),
            [b'\\', b'\\', ..] => (b'\\', 2),
            [b'\\', b'\'', ..] => (b'\'', 2),
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', b't', ..] => (b'\t', 2),
            [b'\\', b'x', h, l, ..] => {
                (nibble(*h).zip(nibble(*l)).map(|(h, l)| h << 4 | l).ok_or_else(|| bad(field, text, expected))?, 4)
            }
            [b'\'' | b'\\', ..] => return Err(bad(field, text, expected)),
            [b, ..] => (*b, 1),
            [] => break,
        };
        out.push(byte);
        i += used;
    }
    Ok(out)
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|d| d as u8)
}

fn hex(text: &str, field: &'static str) -> Result<Vec<u8>, ParseError> {
    let expected = "hexadecimal string 0x…";
    let digits = text.strip_prefix("0x").map(str::as_bytes).filter(|d| d.len() % 2 == 0);
    digits
        .and_then(|d| d.chunks(2).map(|p| Some(nibble(p[0])? << 4 | nibble(p[1])?)).collect())
        .ok_or_else(|| bad(field, text, expected))
}

fn entries(text: &str, field: &'static str) -> Result<Vec<u8>, ParseError> {
    entries_with::<0>(text, field, "list of entries [((qid) offset type 'name') …]", |_, _| {})
}

fn plus_text(text: &str, field: &'static str) -> Result<Vec<u8>, ParseError> {
    entries_with::<NUMBERS>(text, field, "list of entries [((qid) offset type 'name' attributes) …]", put_numbers)
}

/// Entries with so many numbers behind each name.
fn entries_with<const N: usize>(
    text: &str,
    field: &'static str,
    expected: &'static str,
    put: fn(&[u64; N], &mut Vec<u8>),
) -> Result<Vec<u8>, ParseError> {
    let strip = |s: &'_ str, open: char, close: char| -> Option<String> {
        Some(s.strip_prefix(open)?.strip_suffix(close)?.to_owned())
    };
    let inner = strip(text, '[', ']').ok_or_else(|| bad(field, text, expected))?;
    let mut out = Vec::new();
    for entry in words(&inner)? {
        let entry = strip(entry, '(', ')').ok_or_else(|| bad(field, text, expected))?;
        let parts = words(&entry)?;
        let [q, offset, kind, name, ref rest @ ..] = parts[..] else { return Err(bad(field, text, expected)) };
        let mut numbers = [0; N];
        if rest.len() != N {
            return Err(bad(field, text, expected));
        }
        for (number, text) in numbers.iter_mut().zip(rest) {
            *number = self::number(text, field, u64::MAX)?;
        }
        let name = string(name, field)?;
        let entry = DirEntry {
            qid: qid(q, field)?,
            offset: number(offset, field, u64::MAX)?,
            kind: number(kind, field, u8::MAX.into())? as u8,
            name: &name,
        };
        entry.encode(&mut out);
        put(&numbers, &mut out);
    }
    Ok(out)
}

/// The bytes of a string as it stands in a line, with or without quotes; for tools that read transcripts.
pub fn unquote(text: &str) -> Result<Vec<u8>, ParseError> {
    string(text, "string")
}

/// The fid that a word of a line names; for tools that rewrite transcripts.
pub fn fid(text: &str) -> Result<Fid, ParseError> {
    number(text, "fid", u32::MAX.into()).map(|n| Fid(n as u32))
}

#[cfg(test)]
mod tests;
