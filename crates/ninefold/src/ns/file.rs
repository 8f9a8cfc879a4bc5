//! Files that describe a name space, as namespace(6) has them: read, and written.
//!
//! | Line | What it does |
//! |---|---|
//! | `mount [-abcC] SERVER OLD [ANAME]` | mounts a server's tree, or a file of it |
//! | `bind [-abcC] NEW OLD` | gives a file another name |
//! | `unmount [NEW] OLD` | takes it away again |
//! | `clear` | forgets all mounts but that of the root |
//! | `cd DIR` | names that do not begin with `/` begin there from now on |
//! | `. FILE` | the lines of another file of this machine; a relative name begins at the directory of the file that says so |
//!
//! Words are parted by blanks. `'it''s'` is one word, whatever it holds, as in rc(1); `$NAME` outside quotes is a variable of the
//! environment; `#` where a word would begin ends the line. [`load`] reads a file with all that it includes, and asks its caller for the
//! bytes; [`show`] writes a table as such a file.

use std::io;
use std::path::{Path as File, PathBuf};
use std::sync::Arc;

use super::mtab::{Flags, Mtab, Order};

/// Files that include one another.
pub const INCLUDES_MAX: usize = 16;

/// Bytes of one file.
pub const FILE_MAX: usize = 1 << 20;

/// Lines of all files together, whatever is on them; no table is made by hand of so many.
pub const LINES_MAX: usize = 1 << 16;

/// Bytes of all files together, and of their words with their variables.
pub const BYTES_MAX: usize = 16 << 20;

/// Words of a line: the longest command, `mount`, takes four and flags.
pub const WORDS_MAX: usize = 8;

/// Bytes of a word, with its variables: an address and a path.
const WORD_MAX: usize = 8192;

/// What a line asks for. Names are as they stand there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Mount { server: Vec<u8>, old: Vec<u8>, aname: Option<Vec<u8>>, how: (Order, Flags) },
    Bind { new: Vec<u8>, old: Vec<u8>, how: (Order, Flags) },
    Unmount { new: Option<Vec<u8>>, old: Vec<u8> },
    Clear,
    Cd(Vec<u8>),
}

/// A line that asks for something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub at: Place,
    pub op: Op,
}

/// Where a line stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub file: Arc<File>,
    /// From 1 on.
    pub line: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Why a file is no description of a name space, and where.
#[derive(Debug, thiserror::Error)]
#[error("{at}: {why}")]
pub struct BadFile {
    pub at: Place,
    pub why: BadLine,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum BadLine {
    #[error("'{0}' is no command: write mount, bind, unmount, clear, cd or . (a dot)")]
    Command(String),
    #[error(
        "-{0} is not known: -a and -b say where in a union, -c that files are made there, -C that data may be cached"
    )]
    Flag(char),
    #[error("-a and -b contradict each other: give one of them")]
    TwoOrders,
    #[error("{0}: write {1}")]
    Words(&'static str, &'static str),
    #[error("a quote is not closed: end the word with ', and write '' for a quote within it")]
    Quote,
    #[error("$ stands before no name: put it into quotes if it is meant as it is")]
    NoVariable,
    #[error("${0} is not set: set it in the environment, or put the $ into quotes if it is meant as it is")]
    Unset(String),
    #[error("a word is longer than {WORD_MAX} bytes: make it shorter")]
    LongWord,
    #[error("more than {WORDS_MAX} words, which no command takes: put a name with blanks into quotes")]
    ManyWords,
    #[error("a NUL, which no name holds: is this a text?")]
    Nul,
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, io::Error),
    #[error("{0} is larger than {FILE_MAX} bytes: is it the right file?")]
    LargeFile(PathBuf),
    #[error("files include one another more than {INCLUDES_MAX} deep: look for one that includes itself")]
    TooDeep,
    #[error("more than {LINES_MAX} lines in all: look for a file that is included many times")]
    TooMany,
    #[error(
        "more than {BYTES_MAX} bytes in all: look for a file that is included many times, or a variable that holds much"
    )]
    TooMuch,
}

/// What was read so far, of all files.
#[derive(Default)]
struct Taken {
    lines: usize,
    bytes: usize,
}

impl Taken {
    fn line(&mut self) -> Result<(), BadLine> {
        self.lines += 1;
        if self.lines > LINES_MAX { Err(BadLine::TooMany) } else { Ok(()) }
    }

    fn bytes(&mut self, count: usize) -> Result<(), BadLine> {
        self.bytes += count;
        if self.bytes > BYTES_MAX { Err(BadLine::TooMuch) } else { Ok(()) }
    }
}

/// Where words come from: the bytes of a file, at most `FILE_MAX` and one, and the value of a variable.
pub trait Source {
    fn read(&self, file: &File) -> io::Result<Vec<u8>>;
    fn variable(&self, name: &str) -> Option<Vec<u8>>;
}

/// The lines of a file, and of those that it includes in their places.
pub fn load(file: &File, source: &dyn Source) -> Result<Vec<Line>, BadFile> {
    let mut lines = Vec::new();
    let mut read = Taken::default();
    let at = Place { file: Arc::from(file), line: 0 };
    take(file, &at, source, (1, &mut read), &mut lines)?;
    Ok(lines)
}

/// `from`: the line that asks for the file.
fn take(
    file: &File,
    from: &Place,
    source: &dyn Source,
    (depth, read): (usize, &mut Taken),
    lines: &mut Vec<Line>,
) -> Result<(), BadFile> {
    let bad = |why| BadFile { at: from.clone(), why };
    if depth > INCLUDES_MAX {
        return Err(bad(BadLine::TooDeep));
    }
    let text = source.read(file).map_err(|e| bad(BadLine::Read(file.to_owned(), e)))?;
    if text.len() > FILE_MAX {
        return Err(bad(BadLine::LargeFile(file.to_owned())));
    }
    // Files that include one another twice each make much of little.
    read.bytes(text.len()).map_err(bad)?;
    let name: Arc<File> = Arc::from(file);
    let mut words = Words { left: &text, line: 1 };
    loop {
        let begins = words.line;
        let bad = |why| BadFile { at: Place { file: name.clone(), line: begins }, why };
        let Some(line) = words.line(source).map_err(bad)? else { return Ok(()) };
        read.line().map_err(bad)?;
        read.bytes(line.iter().map(Vec::len).sum()).map_err(bad)?;
        if line.is_empty() {
            continue;
        }
        match statement(line).map_err(bad)? {
            Statement::Op(op) => lines.push(Line { at: Place { file: name.clone(), line: begins }, op }),
            Statement::Include(other) => {
                let other = file.parent().unwrap_or(File::new("")).join(path_of(other));
                let here = Place { file: name.clone(), line: begins };
                take(&other, &here, source, (depth + 1, read), lines)?;
            }
        }
    }
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

enum Statement {
    Op(Op),
    Include(Vec<u8>),
}

fn statement(mut words: Vec<Vec<u8>>) -> Result<Statement, BadLine> {
    let command = words.remove(0);
    let flags = |words: &mut Vec<Vec<u8>>| take_flags(words);
    let op = match &command[..] {
        b"mount" => {
            let how = flags(&mut words)?;
            let mut words = words.into_iter();
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some(server), Some(old), aname, None) => Op::Mount { server, old, aname, how },
                _ => return Err(BadLine::Words("mount takes two or three words", "mount [-abcC] SERVER OLD [ANAME]")),
            }
        }
        b"bind" => {
            let how = flags(&mut words)?;
            let [new, old] = exactly(words, "bind takes two words", "bind [-abcC] NEW OLD")?;
            Op::Bind { new, old, how }
        }
        b"unmount" => match words.len() {
            1 => Op::Unmount { new: None, old: words.remove(0) },
            _ => {
                let [new, old] = exactly(words, "unmount takes one or two words", "unmount [NEW] OLD")?;
                Op::Unmount { new: Some(new), old }
            }
        },
        b"clear" => {
            let [] = exactly(words, "clear takes no word", "clear")?;
            Op::Clear
        }
        b"cd" => {
            let [dir] = exactly(words, "cd takes one word", "cd DIR")?;
            Op::Cd(dir)
        }
        b"." => {
            let [file] = exactly(words, ". takes one word", ". FILE")?;
            return Ok(Statement::Include(file));
        }
        other => return Err(BadLine::Command(String::from_utf8_lossy(other).into_owned())),
    };
    Ok(Statement::Op(op))
}

fn exactly<const N: usize>(
    words: Vec<Vec<u8>>,
    what: &'static str,
    form: &'static str,
) -> Result<[Vec<u8>; N], BadLine> {
    words.try_into().map_err(|_| BadLine::Words(what, form))
}

fn take_flags(words: &mut Vec<Vec<u8>>) -> Result<(Order, Flags), BadLine> {
    let (mut order, mut flags) = (Order::Replace, Flags::default());
    while words.first().is_some_and(|word| word.len() > 1 && word[0] == b'-') {
        let word = words.remove(0);
        if word == b"--" {
            break;
        }
        for letter in String::from_utf8_lossy(&word[1..]).chars() {
            let mut place = |new| match order {
                Order::Replace => {
                    order = new;
                    Ok(())
                }
                old if old == new => Ok(()),
                _ => Err(BadLine::TwoOrders),
            };
            match letter {
                'a' => place(Order::After)?,
                'b' => place(Order::Before)?,
                'c' => flags.create = true,
                'C' => flags.cache = true,
                other => return Err(BadLine::Flag(other)),
            }
        }
    }
    Ok((order, flags))
}

/// The words of a text, line by line.
struct Words<'t> {
    left: &'t [u8],
    line: usize,
}

impl Words<'_> {
    /// Those of the next line; `None` at the end.
    fn line(&mut self, source: &dyn Source) -> Result<Option<Vec<Vec<u8>>>, BadLine> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let mut words = Vec::new();
        while let Some(&b) = self.left.first() {
            match b {
                b'\n' => {
                    self.skip();
                    break;
                }
                b' ' | b'\t' | b'\r' => self.skip(),
                b'#' => {
                    let end = self.left.iter().position(|&b| b == b'\n').unwrap_or(self.left.len());
                    self.left = &self.left[end..];
                }
                _ if words.len() == WORDS_MAX => return Err(BadLine::ManyWords),
                _ => words.push(self.word(source)?),
            }
        }
        Ok(Some(words))
    }

    fn skip(&mut self) {
        if let Some((&b, left)) = self.left.split_first() {
            self.line += usize::from(b == b'\n');
            self.left = left;
        }
    }

    fn word(&mut self, source: &dyn Source) -> Result<Vec<u8>, BadLine> {
        let mut word = Vec::new();
        while let Some(&b) = self.left.first() {
            match b {
                b' ' | b'\t' | b'\r' | b'\n' => break,
                0 => return Err(BadLine::Nul),
                b'\'' => self.quoted(&mut word)?,
                b'$' => {
                    self.skip();
                    word.extend(self.variable(source)?);
                }
                b => {
                    word.push(b);
                    self.skip();
                }
            }
            if word.len() > WORD_MAX {
                return Err(BadLine::LongWord);
            }
        }
        Ok(word)
    }

    fn quoted(&mut self, word: &mut Vec<u8>) -> Result<(), BadLine> {
        self.skip();
        while let Some(&b) = self.left.first() {
            self.skip();
            match b {
                b'\'' if self.left.first() == Some(&b'\'') => {
                    word.push(b'\'');
                    self.skip();
                }
                b'\'' => return Ok(()),
                0 => return Err(BadLine::Nul),
                b => word.push(b),
            }
        }
        Err(BadLine::Quote)
    }

    fn variable(&mut self, source: &dyn Source) -> Result<Vec<u8>, BadLine> {
        let is_of_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let end = self.left.iter().position(|b| !is_of_name(b)).unwrap_or(self.left.len());
        let (name, left) = self.left.split_at(end);
        self.left = left;
        // Of ASCII alone.
        let name = String::from_utf8_lossy(name);
        if name.is_empty() {
            return Err(BadLine::NoVariable);
        }
        source.variable(&name).ok_or_else(|| BadLine::Unset(name.into_owned()))
    }
}

/// A word as it stands in a file: in quotes where it needs them.
pub fn quote(word: &[u8]) -> Vec<u8> {
    let is_plain = |b: &u8| !b.is_ascii_control() && !b" '#$".contains(b);
    if !word.is_empty() && word[0] != b'-' && word.iter().all(is_plain) {
        return word.to_vec();
    }
    let mut quoted = vec![b'\''];
    for &b in word {
        quoted.extend(if b == b'\'' { &b"''"[..] } else { std::slice::from_ref(&b) });
    }
    quoted.push(b'\'');
    quoted
}

/// The table as a file that makes it: `address` tells where a mounted file is.
pub fn show<F>(table: &Mtab<F>, address: impl Fn(&F) -> Vec<u8>) -> Vec<u8> {
    let mut text = Vec::new();
    for (path, members) in table.mounts() {
        for (at, member) in members.iter().enumerate() {
            text.extend_from_slice(b"mount");
            let letters = [(at > 0, b'a'), (member.flags.create, b'c'), (member.flags.cache, b'C')];
            let mut letters = letters.into_iter().filter_map(|(is, letter)| is.then_some(letter)).peekable();
            if letters.peek().is_some() {
                text.extend_from_slice(b" -");
                text.extend(letters);
            }
            for word in [&address(&member.file)[..], path.as_bytes()] {
                text.push(b' ');
                text.extend(quote(word));
            }
            text.push(b'\n');
        }
    }
    text
}
