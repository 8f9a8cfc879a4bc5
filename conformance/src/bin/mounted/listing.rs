//! readdir(3): every entry once, whatever happens meanwhile; telldir, seekdir and rewinddir.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Dir, FileType, Mode, OFlags, RawDir, open};

use crate::check::{Place, checks, list, look, same};
use crate::special::node;

checks![
    listing_has_itself_and_its_parent,
    listing_tells_files_directories_and_links,
    listing_tells_pipes_and_sockets,
    listing_tells_inode_numbers,
    listing_of_a_large_directory_has_each_entry_once,
    listing_goes_on_while_entries_are_removed,
    listing_goes_on_while_entries_are_made,
    listing_is_read_in_small_pieces,
    listing_seeks_to_where_it_was,
    listing_starts_anew,
    listing_sees_what_changed_since,
    listing_is_read_by_two_at_once,
];

fn opened(path: &Path) -> Result<Dir> {
    let dir = open(path, OFlags::DIRECTORY, Mode::empty()).with_context(|| path.display().to_string())?;
    Ok(Dir::new(dir)?)
}

/// The names from here to the end, without `.` and `..`.
fn rest(dir: &mut Dir) -> Result<Vec<String>> {
    let mut names = Vec::new();
    while let Some(entry) = dir.read() {
        names.push(entry?.file_name().to_str()?.to_owned());
    }
    names.retain(|name| name != "." && name != "..");
    Ok(names)
}

/// The name of entry `n`: a number, and long enough for a thousand of them to be more than a server gives at once.
fn entry_name(n: usize) -> String {
    format!("{n:0>60}")
}

/// Entries 0 to `count`. Hard links of one file are cheaper than as many files.
fn fill(place: &Place, count: usize) -> Result<()> {
    let first = place.file(entry_name(0), "")?;
    for n in 1..count {
        fs::hard_link(&first, place.at(entry_name(n))).with_context(|| format!("link {n}"))?;
    }
    Ok(())
}

fn each_once(names: &[String], count: usize) -> Result<()> {
    let set: HashSet<&str> = names.iter().map(String::as_str).collect();
    same(names.len() - set.len(), 0, "entries that came twice")?;
    let missing = (0..count).filter(|n| !set.contains(entry_name(*n).as_str())).count();
    same(missing, 0, "entries that did not come")
}

fn listing_has_itself_and_its_parent(place: &Place) -> Result<()> {
    place.dir("dir")?;
    let mut dir = opened(&place.at("dir"))?;
    let mut seen = Vec::new();
    while let Some(entry) = dir.read() {
        let entry = entry?;
        seen.push((entry.file_name().to_str()?.to_owned(), entry.file_type() == FileType::Directory));
    }
    seen.sort();
    same(seen, vec![(".".to_owned(), true), ("..".to_owned(), true)], "an empty directory")
}

/// Whether the listing tells these kinds.
fn tells(place: &Place, kinds: &[(&str, FileType)]) -> Result<()> {
    let mut dir = opened(place.root())?;
    let mut seen = HashMap::new();
    while let Some(entry) = dir.read() {
        let entry = entry?;
        seen.insert(entry.file_name().to_str()?.to_owned(), entry.file_type());
    }
    // In the order of the names given, so that the first fault is the same in any order of the listing.
    for (name, want) in kinds {
        let got = seen.get(*name).with_context(|| format!("{name} is not listed"))?;
        // A file system may say that it does not know: readdir(3).
        ensure!(got == want || *got == FileType::Unknown, "{name}: {got:?} instead of {want:?}");
    }
    Ok(())
}

fn listing_tells_files_directories_and_links(place: &Place) -> Result<()> {
    place.file("file", "")?;
    place.dir("dir")?;
    symlink("file", place.at("link"))?;
    tells(place, &[("file", FileType::RegularFile), ("dir", FileType::Directory), ("link", FileType::Symlink)])
}

fn listing_tells_pipes_and_sockets(place: &Place) -> Result<()> {
    node(place, "pipe", FileType::Fifo, 0)?;
    node(place, "socket", FileType::Socket, 0)?;
    tells(place, &[("pipe", FileType::Fifo), ("socket", FileType::Socket)])
}

fn listing_tells_inode_numbers(place: &Place) -> Result<()> {
    for n in 0..10 {
        place.file(format!("{n}"), "")?;
    }
    for entry in fs::read_dir(place.root())? {
        let entry = entry?;
        same(std::os::unix::fs::DirEntryExt::ino(&entry), look(&entry.path())?.ino(), "the number")?;
    }
    Ok(())
}

fn listing_of_a_large_directory_has_each_entry_once(place: &Place) -> Result<()> {
    fill(place, place.entries)?;
    each_once(&rest(&mut opened(place.root())?)?, place.entries)?;
    // And removing each entry in the order of the listing, in the middle of it, leaves none behind.
    let mut dir = opened(place.root())?;
    let mut removed = 0;
    while let Some(entry) = dir.read() {
        let entry = entry?;
        let name = entry.file_name().to_str()?;
        if name != "." && name != ".." {
            fs::remove_file(place.at(name)).with_context(|| format!("removing {name}"))?;
            removed += 1;
        }
    }
    same(removed, place.entries, "entries removed while reading")?;
    same(list(place.root())?.len(), 0, "entries left")
}

fn listing_goes_on_while_entries_are_removed(place: &Place) -> Result<()> {
    const COUNT: usize = 400;
    fill(place, COUNT)?;
    let mut dir = opened(place.root())?;
    let mut names = Vec::new();
    // Every third that has not come yet is removed from under the reader; the others must all come.
    let mut next = 0;
    while let Some(entry) = dir.read() {
        let entry = entry?;
        names.push(entry.file_name().to_str()?.to_owned());
        if next < COUNT {
            fs::remove_file(place.at(entry_name(next)))?;
            next += 3;
        }
    }
    let set: HashSet<&str> = names.iter().map(String::as_str).collect();
    same(names.len(), set.len(), "entries and different ones")?;
    let stayed = |n: &usize| !n.is_multiple_of(3) || *n >= next;
    let missing = (0..COUNT).filter(stayed).filter(|n| !set.contains(entry_name(*n).as_str())).count();
    same(missing, 0, "entries that stayed and did not come")
}

fn listing_goes_on_while_entries_are_made(place: &Place) -> Result<()> {
    const COUNT: usize = 300;
    fill(place, COUNT)?;
    let mut dir = opened(place.root())?;
    let mut names = Vec::new();
    let mut made = 0;
    while let Some(entry) = dir.read() {
        names.push(entry?.file_name().to_str()?.to_owned());
        if made < 100 {
            place.file(format!("new-{made}"), "")?;
            made += 1;
        }
    }
    names.retain(|name| name.parse::<usize>().is_ok());
    each_once(&names, COUNT)
}

fn listing_is_read_in_small_pieces(place: &Place) -> Result<()> {
    fill(place, 200)?;
    let dir = open(place.root(), OFlags::DIRECTORY, Mode::empty())?;
    // Room for a few entries: getdents64(2) is called some fifty times.
    let mut room = [MaybeUninit::uninit(); 256];
    let mut raw = RawDir::new(&dir, &mut room);
    let mut names = Vec::new();
    while let Some(entry) = raw.next() {
        names.push(entry?.file_name().to_str()?.to_owned());
    }
    names.retain(|name| name != "." && name != "..");
    each_once(&names, 200)
}

fn listing_seeks_to_where_it_was(place: &Place) -> Result<()> {
    fill(place, 300)?;
    let mut dir = opened(place.root())?;
    let mut marks = Vec::new();
    while let Some(entry) = dir.read() {
        marks.push(entry?.offset());
    }
    let mut whole = opened(place.root())?;
    let mut order = Vec::new();
    while let Some(entry) = whole.read() {
        order.push(entry?.file_name().to_owned());
    }
    same(marks.len(), order.len(), "entries of the second reading")?;
    for at in [0, 1, 2, 150, 298, 299, 300, 30] {
        dir.seek(marks[at])?;
        let mut names = Vec::new();
        while let Some(entry) = dir.read() {
            names.push(entry?.file_name().to_owned());
        }
        same(names, order[at + 1..].to_vec(), &format!("what comes after entry {at}"))?;
    }
    Ok(())
}

fn listing_starts_anew(place: &Place) -> Result<()> {
    fill(place, 20)?;
    let mut dir = opened(place.root())?;
    for _ in 0..3 {
        each_once(&rest(&mut dir)?, 20)?;
        dir.rewind();
    }
    Ok(())
}

fn listing_sees_what_changed_since(place: &Place) -> Result<()> {
    fill(place, 5)?;
    let mut dir = opened(place.root())?;
    each_once(&rest(&mut dir)?, 5)?;
    fs::remove_file(place.at(entry_name(2)))?;
    place.file("new", "")?;
    dir.rewind();
    let mut names = rest(&mut dir)?;
    names.sort();
    let mut want = [0, 1, 3, 4].map(entry_name).to_vec();
    want.push("new".to_owned());
    same(names, want, "the names after a rewind")
}

fn listing_is_read_by_two_at_once(place: &Place) -> Result<()> {
    fill(place, 100)?;
    let (mut a, mut b) = (opened(place.root())?, opened(place.root())?);
    let mut names = Vec::new();
    for _ in 0..40 {
        if let Some(entry) = a.read() {
            names.push(entry?.file_name().to_str()?.to_owned());
        }
    }
    each_once(&rest(&mut b)?, 100)?;
    names.extend(rest(&mut a)?);
    names.retain(|name| name != "." && name != "..");
    each_once(&names, 100)
}
