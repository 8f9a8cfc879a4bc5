//! Names and paths: every byte, every length.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::Result;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, open, openat, unlinkat};
use rustix::io::Errno;

use crate::check::{Place, checks, gone, holds, list, refused, same};

checks![
    names_of_one_byte_are_kept,
    names_of_255_bytes_are_kept,
    names_of_256_bytes_are_refused,
    names_of_every_byte_but_slash_and_nul_are_kept,
    names_that_are_not_utf8_are_kept,
    names_with_newlines_and_blanks_are_kept,
    names_that_look_like_patterns_are_kept,
    names_of_three_dots_are_names,
    names_that_differ_in_case_are_different,
    names_of_255_bytes_fill_a_directory,
    missing_names_are_enoent,
    empty_names_are_enoent,
    names_below_a_file_are_enotdir,
    slash_behind_a_file_is_enotdir,
    dots_in_paths_lead_back,
    paths_of_4095_bytes_are_walked,
    paths_of_4096_bytes_are_refused,
    paths_deeper_than_path_max_are_reached_by_descriptors,
];

/// Makes a file of each name, finds all in a listing and by name, and removes them.
fn kept(place: &Place, names: &[&[u8]]) -> Result<()> {
    let mut names: Vec<OsString> = names.iter().map(|name| OsStr::from_bytes(name).to_owned()).collect();
    for name in &names {
        place.file(name, name.as_bytes())?;
    }
    names.sort();
    same(list(place.root())?, names.clone(), "the listing")?;
    for name in &names {
        holds(&place.at(name), name.as_bytes())?;
        fs::remove_file(place.at(name))?;
        gone(&place.at(name))?;
    }
    same(list(place.root())?.len(), 0, "names left")
}

fn names_of_one_byte_are_kept(place: &Place) -> Result<()> {
    kept(place, &[b"a", b"0", b"~", b"-", b" "])
}

fn names_of_255_bytes_are_kept(place: &Place) -> Result<()> {
    let mut odd = vec![0xff; 255];
    odd[0] = b'\n';
    kept(place, &[&[b'x'; 255], &odd, "ü".repeat(127).as_bytes()])
}

fn names_of_256_bytes_are_refused(place: &Place) -> Result<()> {
    let name = "x".repeat(256);
    refused(fs::write(place.at(&name), ""), Errno::NAMETOOLONG, "making a file")?;
    refused(fs::create_dir(place.at(&name)), Errno::NAMETOOLONG, "making a directory")?;
    refused(fs::metadata(place.at(&name)), Errno::NAMETOOLONG, "stat")
}

fn names_of_every_byte_but_slash_and_nul_are_kept(place: &Place) -> Result<()> {
    let bytes: Vec<[u8; 1]> = (1..=255).filter(|byte| !b"/.".contains(byte)).map(|byte| [byte]).collect();
    kept(place, &bytes.iter().map(|byte| byte.as_slice()).collect::<Vec<_>>())
}

fn names_that_are_not_utf8_are_kept(place: &Place) -> Result<()> {
    kept(place, &[b"\xff\xfe", b"\xc3", b"a\x80b", b"\xed\xa0\x80", "é".as_bytes(), "e\u{301}".as_bytes()])
}

fn names_with_newlines_and_blanks_are_kept(place: &Place) -> Result<()> {
    kept(place, &[b"a\nb", b"\n", b" lead", b"trail ", b"a\tb", b"\x1b[31m", b"\x7f"])
}

fn names_that_look_like_patterns_are_kept(place: &Place) -> Result<()> {
    kept(
        place,
        &[b"*", b"?", b"[a]", b"{a,b}", b"a\\b", b"a:b", b"'", b"\"", b"$HOME", b"-rf", b"#", b"CON", b"a.", b"\\\\x"],
    )
}

fn names_of_three_dots_are_names(place: &Place) -> Result<()> {
    kept(place, &[b"...", b"....", b"..a", b".a", b"a..", b". "])
}

fn names_that_differ_in_case_are_different(place: &Place) -> Result<()> {
    kept(place, &[b"case", b"Case", b"CASE", "ß".as_bytes(), b"ss", b"SS"])
}

fn names_of_255_bytes_fill_a_directory(place: &Place) -> Result<()> {
    let names: Vec<String> = (0..100).map(|n| format!("{n:0>255}")).collect();
    kept(place, &names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>())
}

fn missing_names_are_enoent(place: &Place) -> Result<()> {
    refused(fs::metadata(place.at("none")), Errno::NOENT, "stat")?;
    refused(fs::read(place.at("none")), Errno::NOENT, "open")?;
    refused(fs::read(place.at("none/below")), Errno::NOENT, "open below")?;
    refused(fs::remove_file(place.at("none")), Errno::NOENT, "unlink")?;
    refused(fs::remove_dir(place.at("none")), Errno::NOENT, "rmdir")?;
    refused(fs::rename(place.at("none"), place.at("other")), Errno::NOENT, "rename")?;
    refused(fs::read_link(place.at("none")), Errno::NOENT, "readlink")?;
    refused(fs::write(place.at("none/new"), ""), Errno::NOENT, "create in a directory that is missing")
}

fn empty_names_are_enoent(place: &Place) -> Result<()> {
    let dir = open(place.root(), OFlags::DIRECTORY, Mode::empty())?;
    refused(openat(&dir, "", OFlags::RDONLY, Mode::empty()), Errno::NOENT, "open")?;
    refused(mkdirat(&dir, "", Mode::from_raw_mode(0o755)), Errno::NOENT, "mkdir")
}

fn names_below_a_file_are_enotdir(place: &Place) -> Result<()> {
    place.file("file", "x")?;
    refused(fs::metadata(place.at("file/below")), Errno::NOTDIR, "stat")?;
    refused(fs::write(place.at("file/below"), ""), Errno::NOTDIR, "create")?;
    refused(fs::create_dir(place.at("file/below")), Errno::NOTDIR, "mkdir")?;
    refused(fs::remove_file(place.at("file/below")), Errno::NOTDIR, "unlink")
}

fn slash_behind_a_file_is_enotdir(place: &Place) -> Result<()> {
    place.file("file", "x")?;
    refused(fs::read(place.at("file/")), Errno::NOTDIR, "open")?;
    refused(fs::remove_file(place.at("file/")), Errno::NOTDIR, "unlink")?;
    place.dir("dir")?;
    fs::metadata(place.at("dir/"))?;
    Ok(())
}

fn dots_in_paths_lead_back(place: &Place) -> Result<()> {
    fs::create_dir_all(place.at("a/b"))?;
    place.file("a/file", "here")?;
    holds(&place.at("./a/./b/../file"), "here")?;
    holds(&place.at("a/b/../../a/file"), "here")?;
    refused(fs::metadata(place.at("a/none/../file")), Errno::NOENT, "through a directory that is missing")
}

/// Directories down to where one more name makes the path `length` bytes long, and that name.
fn deep(place: &Place, length: usize) -> Result<(PathBuf, String)> {
    let mut path = place.root().to_owned();
    let room = |path: &PathBuf| length - path.as_os_str().len() - 1;
    // The last name is from 1 to 255 bytes long: 200 are kept back for it.
    while room(&path) > 255 {
        path.push("d".repeat(room(&path).saturating_sub(201).clamp(1, 255)));
        fs::create_dir(&path)?;
    }
    let name = "f".repeat(room(&path));
    Ok((path, name))
}

fn paths_of_4095_bytes_are_walked(place: &Place) -> Result<()> {
    let (dir, name) = deep(place, 4095)?;
    let path = dir.join(name);
    same(path.as_os_str().len(), 4095, "the path")?;
    fs::write(&path, "deep")?;
    holds(&path, "deep")?;
    let other = dir.join("other");
    fs::rename(&path, &other)?;
    fs::hard_link(&other, &path)?;
    fs::remove_file(&other)?;
    same(fs::metadata(&path)?.len(), 4, "the length")?;
    fs::remove_file(&path)?;
    fs::create_dir(&path)?;
    fs::remove_dir(&path)?;
    std::os::unix::fs::symlink("x", &path)?;
    same(fs::read_link(&path)?, PathBuf::from("x"), "the target")
}

fn paths_of_4096_bytes_are_refused(place: &Place) -> Result<()> {
    let (dir, name) = deep(place, 4096)?;
    refused(fs::write(dir.join(&name), ""), Errno::NAMETOOLONG, "create")?;
    refused(fs::metadata(dir.join(&name)), Errno::NAMETOOLONG, "stat")
}

fn paths_deeper_than_path_max_are_reached_by_descriptors(place: &Place) -> Result<()> {
    const LEVELS: usize = 50; // of 200 bytes: twice PATH_MAX
    let name = "d".repeat(200);
    let dir = |at: &_| openat(at, &name, OFlags::DIRECTORY, Mode::empty());
    let mut at = open(place.root(), OFlags::DIRECTORY, Mode::empty())?;
    let mut above = Vec::new();
    for _ in 0..LEVELS {
        mkdirat(&at, &name, Mode::from_raw_mode(0o755))?;
        let below = dir(&at)?;
        above.push(std::mem::replace(&mut at, below));
    }
    let file = openat(&at, "file", OFlags::CREATE | OFlags::RDWR, Mode::from_raw_mode(0o644))?;
    rustix::io::pwrite(&file, b"bottom", 0)?;
    let again = openat(&at, "file", OFlags::RDONLY, Mode::empty())?;
    let mut text = [0; 6];
    rustix::io::pread(&again, &mut text, 0)?;
    same(&text, b"bottom", "the content")?;
    unlinkat(&at, "file", AtFlags::empty())?;
    drop(at);
    while let Some(at) = above.pop() {
        unlinkat(&at, &name, AtFlags::REMOVEDIR)?;
    }
    refused(openat(CWD, place.at(&name), OFlags::DIRECTORY, Mode::empty()), Errno::NOENT, "what was removed")
}
