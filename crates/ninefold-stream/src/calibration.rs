//! What is chosen by measurement. One table, so that a machine of another kind needs another table and no other code.
//!
//! The table of this source is that of the machine that it was measured on. `ninefold bench calibrate` measures another and writes a file;
//! where a person has put one, every stream that is opened without a table of its own goes by it: see [`Calibration::of_machine`].

use std::fmt::{self, Display};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{FileType, Mode, OFlags};

use crate::memory::PAGE;

/// Where mapping begins to pay, and how much is moved at a time. All in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calibration {
    /// Plain files from this length on are mapped, when they are read only. On Linux 6.18 with ext4's large folios mapping ties with
    /// reading at 1 MiB, and at 2 MiB where a second thread makes munmap dearer; below 512 KiB it takes twice as long. `u64::MAX`: none is.
    pub map_from: u64,
    /// A file up to this length is mapped whole, a longer one by windows.
    pub map_whole: u64,
    /// Bytes of such a window.
    pub window: u64,
    /// Bytes of the first read of a stream, and of the first write.
    pub first: usize,
    /// Bytes of each read once it is sequential. Of a file in large folios a byte of 1 MiB costs a fifth to a quarter less than one of
    /// 256 KiB: the system copies each folio's share of a read by one instruction, the faster the longer it is.
    pub read: usize,
    /// Bytes of each write once much was written: from 64 KiB to 1 MiB a byte's cost falls by a quarter.
    pub write: usize,
    /// Bytes that `prefetch` has read ahead before it stops: some reads, so that neither side waits for each of the other's.
    pub ahead: usize,
    /// Reads and writes of this many bytes by `std::io`'s traits go past the stream's memory: the system's copy is the only one.
    pub direct: usize,
}

impl Default for Calibration {
    fn default() -> Self {
        Calibration {
            map_from: 2 << 20,
            map_whole: 1 << 30,
            window: 64 << 20,
            first: 64 << 10,
            read: 1 << 20,
            write: 1 << 20,
            ahead: 4 << 20,
            direct: 16 << 10,
        }
    }
}

/// What is wrong with the text of a table: the line, from 1, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadCalibration {
    /// From 1; the line behind the last where the text itself is too long.
    pub line: usize,
    /// What is wrong there.
    pub why: BadLine,
}

/// Why a line is none of a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Not a name and a number.
    #[error("not a name and a number of bytes")]
    Form,
    /// No such name.
    #[error("there is no '{0}' to set")]
    Unknown(String),
    /// It was there before.
    #[error("'{0}' is set twice")]
    Twice(&'static str),
    /// Too small, too large, or not of whole pages.
    #[error("'{name}' is {least} to {most} bytes{}", if *.pages { ", and a multiple of 4096" } else { "" })]
    Range {
        /// Which.
        name: &'static str,
        /// Bytes.
        least: u64,
        /// Bytes.
        most: u64,
        /// Only whole pages will do.
        pages: bool,
    },
    /// A text of more bytes than any table has.
    #[error("a table has no more than 4096 bytes")]
    Long,
}

/// Bytes of a table's text at most.
const LONGEST: usize = 4096;

/// Of a number that says "no file is so long".
const NEVER: &str = "never";

/// The names of a text, in its order, each with what it may be: so little that nothing works, or so much that memory runs out, is
/// refused.
struct Field {
    name: &'static str,
    least: u64,
    most: u64,
    pages: bool,
    get: fn(&Calibration) -> u64,
    set: fn(&mut Calibration, u64),
}

macro_rules! fields {
    ($($name:ident: $least:expr, $most:expr, $pages:expr;)*) => {
        const FIELDS: &[Field] = &[$(Field {
            name: stringify!($name),
            least: $least,
            most: $most,
            pages: $pages,
            get: |table| table.$name as u64,
            // In range, so it fits.
            set: |table, n| table.$name = n as _,
        },)*];
    };
}

fields! {
    map_from: PAGE as u64, i64::MAX as u64, false;
    map_whole: PAGE as u64, 1 << 40, false;
    window: 64 << 10, 1 << 40, true;
    first: PAGE as u64, 64 << 20, true;
    read: PAGE as u64, 64 << 20, true;
    write: PAGE as u64, 64 << 20, true;
    ahead: PAGE as u64, 1 << 30, false;
    direct: PAGE as u64, 1 << 30, false;
}

impl Calibration {
    /// The table of this machine: from the file at [`Calibration::place`], which is read once, when it is first asked for; the default
    /// where there is none, and where what is there is no table. A process that runs as another user than the one who started it reads none.
    pub fn of_machine() -> Calibration {
        static TABLE: OnceLock<Calibration> = OnceLock::new();
        *TABLE.get_or_init(|| {
            let own = rustix::process::getuid() == rustix::process::geteuid()
                && rustix::process::getgid() == rustix::process::getegid();
            let text = Self::place().filter(|_| own).and_then(|place| text(&place).ok());
            text.and_then(|text| Self::parse(&text).ok()).unwrap_or_default()
        })
    }

    /// Where a person puts the table of a machine: the file that `NINEFOLD_CALIBRATION` names, else `ninefold/calibration` in
    /// `$XDG_CONFIG_HOME`, or in `~/.config` where that is not set to an absolute path (XDG Base Directory Specification). None where there is
    /// neither.
    pub fn place() -> Option<PathBuf> {
        let named = std::env::var_os("NINEFOLD_CALIBRATION").filter(|path| !path.is_empty());
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config = || absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
        named.map(PathBuf::from).or_else(|| Some(config()?.join("ninefold").join("calibration")))
    }

    /// Reads a table's file. None where there is no such file.
    ///
    /// # Errors
    /// Those of reading, and [`BadCalibration`] within one of kind `InvalidData`.
    pub fn read(path: &Path) -> std::io::Result<Option<Calibration>> {
        match text(path) {
            Ok(text) => {
                Self::parse(&text).map(Some).map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Reads what `to_string` wrote: a name and a number of bytes in each line, `#` and what follows it is passed over. What is not
    /// named is as in the default.
    ///
    /// # Errors
    /// [`BadCalibration`], of the first line that is wrong.
    pub fn parse(text: &str) -> Result<Calibration, BadCalibration> {
        let mut table = Calibration::default();
        let mut seen = [false; FIELDS.len()];
        let bad = |line: usize, why: BadLine| BadCalibration { line: line + 1, why };
        if text.len() > LONGEST {
            return Err(bad(text.lines().count(), BadLine::Long));
        }
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let (name, value) = match (words.next(), words.next(), words.next()) {
                (None, ..) => continue,
                (Some(name), Some(value), None) => (name, value),
                _ => return Err(bad(number, BadLine::Form)),
            };
            let Some(place) = FIELDS.iter().position(|field| field.name == name) else {
                return Err(bad(number, BadLine::Unknown(name.to_owned())));
            };
            let Field { name, least, most, pages, set, .. } = FIELDS[place];
            if std::mem::replace(&mut seen[place], true) {
                return Err(bad(number, BadLine::Twice(name)));
            }
            if name == "map_from" && value == NEVER {
                table.map_from = u64::MAX;
                continue;
            }
            let bytes = value.parse::<u64>().map_err(|_| bad(number, BadLine::Form))?;
            if !(least..=most).contains(&bytes) || (pages && !bytes.is_multiple_of(PAGE as u64)) {
                return Err(bad(number, BadLine::Range { name, least, most, pages }));
            }
            set(&mut table, bytes);
        }
        Ok(table)
    }
}

impl Display for Calibration {
    /// The text that `parse` reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for field in FIELDS {
            match (field.get)(self) {
                u64::MAX => writeln!(f, "{} {NEVER}", field.name)?,
                bytes => writeln!(f, "{} {bytes}", field.name)?,
            }
        }
        Ok(())
    }
}

/// What a file holds, as far as a table goes. Something else that has the name, a FIFO for one, is not waited for.
fn text(path: &Path) -> std::io::Result<String> {
    let file =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a plain file"));
    }
    let mut text = String::new();
    std::fs::File::from(file).take(LONGEST as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = Calibration { map_from: u64::MAX, first: 4096, direct: 5000, ..Calibration::default() };
        assert_eq!(Calibration::parse(&table.to_string()), Ok(table));
        assert_eq!(Calibration::parse(""), Ok(Calibration::default()));
        let noted = "# of a machine\n\nread 8192 # pages\n";
        assert_eq!(Calibration::parse(noted), Ok(Calibration { read: 8192, ..Calibration::default() }));
    }

    #[test]
    fn what_is_no_table_is_told_by_its_line() {
        let read = BadLine::Range { name: "read", least: 4096, most: 64 << 20, pages: true };
        for (text, line, why) in [
            ("read\n", 1, BadLine::Form),
            ("first 4096\nread 64K\n", 2, BadLine::Form),
            ("read 8192 8192\n", 1, BadLine::Form),
            ("\nbuffer 8192\n", 2, BadLine::Unknown("buffer".to_owned())),
            ("read 8192\nread 8192\n", 2, BadLine::Twice("read")),
            ("read 0\n", 1, read.clone()),
            ("read 5000\n", 1, read.clone()),
            ("read 67112960\n", 1, read.clone()),
            ("read never\n", 1, BadLine::Form),
        ] {
            assert_eq!(Calibration::parse(text), Err(BadCalibration { line, why }), "{text:?}");
        }
        let long = "#".repeat(5000);
        assert_eq!(Calibration::parse(&long).unwrap_err().why, BadLine::Long);
        let told = Calibration::parse("\nread 1\n").unwrap_err().to_string();
        assert_eq!(told, "line 2: 'read' is 4096 to 67108864 bytes, and a multiple of 4096");
    }

    #[test]
    fn a_file_that_is_not_there_is_none_and_one_that_is_no_file_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration");
        assert_eq!(Calibration::read(&path).unwrap(), None);
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(Calibration::read(&path).unwrap_err().to_string(), "not a plain file");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "read 1\n").unwrap();
        assert!(Calibration::read(&path).unwrap_err().to_string().starts_with("line 1: 'read' is"));
        std::fs::write(&path, "read 8192\n").unwrap();
        assert_eq!(Calibration::read(&path).unwrap().unwrap().read, 8192);
    }
}
