//! Appendix A, tables 4 to 7: what copying, reading, writing and mapping cost on this machine, in microseconds a page of 4096 bytes.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::native::Native;
use crate::size::made;
use crate::turns::{Case, Turns};

/// Bytes of a page, and of the paper's regions and files.
const PAGE: u64 = 4096;
const REGION: u64 = 4 << 20;

/// A line of a table: its name in the paper, and what is asked of the program of C. `PATH` is a file of `BYTES`, `HALF` of them; TIMES is
/// so often that some 8 MiB are moved, `MANY` a thousand times.
struct Line {
    table: u8,
    name: &'static str,
    asked: &'static str,
}

/// Of what unit a table's or a line's figures are: of a call, not of a page.
const CALLS: [&str; 4] = ["read page", "read byte", "read 10 pages", "lseek"];

const LINES: [Line; 17] = [
    Line { table: 4, name: "copy", asked: "copy BYTES TIMES 0" },
    Line { table: 4, name: "copy from buf (pg)", asked: "copy_from_buf BYTES TIMES 0" },
    Line { table: 4, name: "copy from buf (cl)", asked: "copy_from_buf BYTES TIMES 64" },
    Line { table: 4, name: "copy to buf (pg)", asked: "copy_to_buf BYTES TIMES 0" },
    Line { table: 4, name: "copy to buf (cl)", asked: "copy_to_buf BYTES TIMES 64" },
    Line { table: 4, name: "copy buf", asked: "copy_buf BYTES TIMES 0" },
    Line { table: 5, name: "page touch (r)", asked: "touch_read PATH TIMES" },
    Line { table: 5, name: "read file 4meg", asked: "read_file PATH BYTES TIMES" },
    Line { table: 5, name: "read file 2meg", asked: "read_file PATH HALF TIMES" },
    Line { table: 5, name: "read page", asked: "beginning PATH 4096 MANY" },
    Line { table: 5, name: "read byte", asked: "beginning PATH 1 MANY" },
    Line { table: 5, name: "read 10 pages", asked: "beginning PATH 40960 MANY" },
    Line { table: 5, name: "lseek", asked: "beginning PATH 0 MANY" },
    Line { table: 6, name: "page touch (w)", asked: "touch_write PATH TIMES" },
    Line { table: 6, name: "write page", asked: "write_page PATH BYTES TIMES" },
    Line { table: 7, name: "page touch (w)", asked: "touch_new NEW TIMES" },
    Line { table: 7, name: "write page", asked: "write_new NEW BYTES TIMES" },
];

const TITLES: [(u8, &str); 4] = [
    (4, "copying data"),
    (5, "input by mapped files and by system calls"),
    (6, "modifying a mapped file, and writing one"),
    (7, "adding pages to a file, mapped and written"),
];

/// As it is named in rows.csv.
fn what(table: u8) -> String {
    format!("table {table}")
}

pub fn cases<'a>(native: &'a RefCell<Native>, scratch: &Path, size: u64) -> Result<Vec<Case<'a>>> {
    let bytes = REGION.min(size) / PAGE * PAGE;
    let times = (2 * REGION / bytes).min(64);
    let (path, new) = (scratch.join("table"), scratch.join("table-new"));
    made(&path, bytes)?;
    made(&new, bytes)?;
    let word = |word: &str| -> Result<String> {
        Ok(match word {
            "BYTES" => bytes.to_string(),
            "HALF" => (bytes / 2).to_string(),
            "TIMES" => times.to_string(),
            "MANY" => "1000".to_owned(),
            "PATH" => path.to_str().context("a path that is no text")?.to_owned(),
            "NEW" => new.to_str().context("a path that is no text")?.to_owned(),
            other => other.to_owned(),
        })
    };
    let case = |line: &Line| {
        let words = line.asked.split(' ').map(word).collect::<Result<Vec<String>>>()?;
        let measure = move || {
            let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
            native.borrow_mut().ask(&words)
        };
        Ok(Case::new(what(line.table), line.name, measure))
    };
    LINES.iter().map(case).collect()
}

/// The tables; `lacking` is why there are none.
pub fn text(turns: &Turns, lacking: Option<&str>) -> String {
    if let Some(why) = lacking {
        return format!("\nTables 4 to 7 of the paper: not measured, {why}\n");
    }
    let mut text = String::new();
    for (table, title) in TITLES {
        let _ = writeln!(text, "\nTable {table}: {title}; microseconds a page");
        for line in LINES.iter().filter(|line| line.table == table) {
            let figure = turns.least(&what(table), line.name).map_or("-".to_owned(), |ns| format!("{:.3}", ns / 1e3));
            let unit = if CALLS.contains(&line.name) && table == 5 { "a call" } else { "" };
            let _ = writeln!(text, "  {:20} {figure:>9} {unit}", line.name);
        }
    }
    text
}
