//! rename(2): what it replaces, what it refuses, and what stays open below.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use anyhow::Result;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, open, openat, renameat, renameat_with};
use rustix::io::Errno;

use crate::actor::Actor;
use crate::check::{Place, checks, gone, holds, look, noise, refused, same};

checks![
    renamed_files_keep_all_but_their_name,
    renaming_replaces_a_file,
    renaming_replaces_an_empty_directory,
    renaming_refuses_a_full_directory,
    renaming_refuses_to_mix_files_and_directories,
    renaming_into_itself_is_refused,
    renaming_to_the_same_name_changes_nothing,
    renaming_one_link_to_another_keeps_both,
    renaming_into_other_directories_moves,
    renaming_without_replacing_is_refused_or_done,
    renamed_files_stay_open,
    replaced_files_stay_open,
    files_below_a_renamed_directory_stay_open,
    directories_below_a_renamed_directory_stay_open,
    working_directories_follow_renames_above,
    names_below_a_renamed_directory_are_found_anew,
    deep_trees_are_renamed_at_every_level,
    parents_of_moved_directories_are_the_new_ones,
    many_renames_end_where_they_should,
    many_moves_end_where_they_should,
    renamed_directory_leaves_its_name_free,
];

fn renamed_files_keep_all_but_their_name(place: &Place) -> Result<()> {
    let path = place.file("old", "content")?;
    crate::check::chmod(&path, 0o604)?;
    let before = look(&path)?;
    fs::rename(&path, place.at("new"))?;
    gone(&path)?;
    holds(&place.at("new"), "content")?;
    let after = look(&place.at("new"))?;
    same((after.ino(), after.mode(), after.nlink()), (before.ino(), before.mode(), before.nlink()), "the attributes")
}

fn renaming_replaces_a_file(place: &Place) -> Result<()> {
    let (from, to) = (place.file("from", "new")?, place.file("to", "old and longer")?);
    fs::rename(&from, &to)?;
    holds(&to, "new")?;
    gone(&from)
}

fn renaming_replaces_an_empty_directory(place: &Place) -> Result<()> {
    let (from, to) = (place.dir("from")?, place.dir("to")?);
    place.file("from/file", "x")?;
    fs::rename(&from, &to)?;
    holds(&to.join("file"), "x")?;
    gone(&from)
}

fn renaming_refuses_a_full_directory(place: &Place) -> Result<()> {
    let (from, to) = (place.dir("from")?, place.dir("to")?);
    place.file("to/file", "x")?;
    // rename(2) allows either; Linux's file systems say ENOTEMPTY.
    refused(fs::rename(&from, &to), Errno::NOTEMPTY, "rename")?;
    holds(&to.join("file"), "x")
}

fn renaming_refuses_to_mix_files_and_directories(place: &Place) -> Result<()> {
    let (file, dir) = (place.file("file", "x")?, place.dir("dir")?);
    refused(fs::rename(&file, &dir), Errno::ISDIR, "a file over a directory")?;
    refused(fs::rename(&dir, &file), Errno::NOTDIR, "a directory over a file")?;
    holds(&file, "x")
}

fn renaming_into_itself_is_refused(place: &Place) -> Result<()> {
    fs::create_dir_all(place.at("dir/below"))?;
    refused(fs::rename(place.at("dir"), place.at("dir/below/dir")), Errno::INVAL, "into itself")?;
    refused(fs::rename(place.at("dir/below"), place.at("dir")), Errno::NOTEMPTY, "over what holds it")
}

fn renaming_to_the_same_name_changes_nothing(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    fs::rename(&path, &path)?;
    holds(&path, "x")
}

fn renaming_one_link_to_another_keeps_both(place: &Place) -> Result<()> {
    let (a, b) = (place.file("a", "x")?, place.at("b"));
    fs::hard_link(&a, &b)?;
    fs::rename(&a, &b)?; // "does nothing": rename(2)
    holds(&a, "x")?;
    holds(&b, "x")?;
    same(look(&a)?.nlink(), 2, "links")
}

fn renaming_into_other_directories_moves(place: &Place) -> Result<()> {
    fs::create_dir_all(place.at("a/b/c"))?;
    place.dir("d")?;
    place.file("a/b/file", "x")?;
    fs::rename(place.at("a/b/file"), place.at("d/moved"))?;
    holds(&place.at("d/moved"), "x")?;
    gone(&place.at("a/b/file"))?;
    fs::rename(place.at("a/b"), place.at("d/b"))?;
    look(&place.at("d/b/c"))?;
    gone(&place.at("a/b"))
}

fn renaming_without_replacing_is_refused_or_done(place: &Place) -> Result<()> {
    let (from, to) = (place.file("from", "x")?, place.file("to", "y")?);
    let rename = |to: &_| renameat_with(CWD, &from, CWD, to, RenameFlags::NOREPLACE);
    refused(rename(&to), Errno::EXIST, "over a file")?;
    holds(&to, "y")
}

fn renamed_files_stay_open(place: &Place) -> Result<()> {
    let path = place.file("file", "one")?;
    let mut file = OpenOptions::new().read(true).append(true).open(&path)?;
    fs::rename(&path, place.at("moved"))?;
    file.write_all(b" two")?;
    file.set_len(6)?;
    same(file.metadata()?.len(), 6, "the length by the descriptor")?;
    holds(&place.at("moved"), "one tw")?;
    gone(&path)
}

fn replaced_files_stay_open(place: &Place) -> Result<()> {
    let (from, to) = (place.file("from", "new")?, place.file("to", "old")?);
    let mut old = OpenOptions::new().read(true).write(true).open(&to)?;
    fs::rename(&from, &to)?;
    let mut text = String::new();
    old.read_to_string(&mut text)?;
    same(text.as_str(), "old", "what the descriptor reads")?;
    old.write_all(b" still")?;
    same(old.metadata()?.nlink(), 0, "its links")?;
    holds(&to, "new")
}

fn files_below_a_renamed_directory_stay_open(place: &Place) -> Result<()> {
    fs::create_dir_all(place.at("a/b/c"))?;
    let content = noise(50_000, 1);
    let path = place.file("a/b/c/file", &content)?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    fs::rename(place.at("a"), place.at("z"))?;
    let mut got = vec![0; content.len()];
    file.read_exact_at(&mut got, 0)?;
    same(got, content.clone(), "what is read")?;
    file.write_all_at(b"after", 0)?;
    file.set_len(5)?;
    file.sync_all()?;
    same(file.metadata()?.len(), 5, "the length")?;
    holds(&place.at("z/b/c/file"), "after")?;
    gone(&path)
}

fn directories_below_a_renamed_directory_stay_open(place: &Place) -> Result<()> {
    fs::create_dir_all(place.at("a/b/c"))?;
    place.file("a/b/c/file", "x")?;
    let dir = open(place.at("a/b/c"), OFlags::DIRECTORY, Mode::empty())?;
    fs::rename(place.at("a"), place.at("z"))?;
    let mut text = String::new();
    File::from(openat(&dir, "file", OFlags::RDONLY, Mode::empty())?).read_to_string(&mut text)?;
    same(text.as_str(), "x", "what is read")?;
    drop(openat(&dir, "new", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o644))?);
    look(&place.at("z/b/c/new"))?;
    renameat(&dir, "new", &dir, "newer")?;
    look(&place.at("z/b/c/newer"))?;
    fs::remove_file(place.at("z/b/c/newer"))?;
    refused(openat(&dir, "newer", OFlags::RDONLY, Mode::empty()), Errno::NOENT, "what was removed by path")
}

fn working_directories_follow_renames_above(place: &Place) -> Result<()> {
    fs::create_dir_all(place.at("a/b"))?;
    place.file("a/b/file", "here")?;
    let mut actor = Actor::start()?;
    actor.does(&[&"chdir", &place.at("a/b")])?;
    fs::rename(place.at("a"), place.at("z"))?;
    same(actor.does(&[&"read", &"file"])?.as_str(), "here", "a file by its name alone")?;
    actor.does(&[&"make", &"new", &"made"])?;
    holds(&place.at("z/b/new"), "made")?;
    same(actor.does(&[&"read", &"../b/new"])?.as_str(), "made", "by way of the parent")?;
    let cwd = actor.does(&[&"cwd"])?;
    same(cwd.ends_with("/z/b"), true, &format!("{cwd} is the working directory"))
}

fn names_below_a_renamed_directory_are_found_anew(place: &Place) -> Result<()> {
    fs::create_dir_all(place.at("a/b"))?;
    place.file("a/b/file", "old")?;
    holds(&place.at("a/b/file"), "old")?;
    fs::rename(place.at("a"), place.at("z"))?;
    fs::create_dir_all(place.at("a/b"))?;
    place.file("a/b/file", "new")?;
    holds(&place.at("a/b/file"), "new")?;
    holds(&place.at("z/b/file"), "old")
}

fn deep_trees_are_renamed_at_every_level(place: &Place) -> Result<()> {
    const LEVELS: usize = 12;
    let mut path = place.root().to_owned();
    for _ in 0..LEVELS {
        path.push("a");
    }
    fs::create_dir_all(&path)?;
    fs::write(path.join("file"), "bottom")?;
    let mut file = File::open(path.join("file"))?;
    let mut above = place.root().to_owned();
    for _ in 0..LEVELS {
        fs::rename(above.join("a"), above.join("b"))?;
        above.push("b");
    }
    holds(&above.join("file"), "bottom")?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    same(text.as_str(), "bottom", "by the descriptor")
}

fn parents_of_moved_directories_are_the_new_ones(place: &Place) -> Result<()> {
    fs::create_dir_all(place.at("a/dir"))?;
    place.dir("b")?;
    let dir = open(place.at("a/dir"), OFlags::DIRECTORY, Mode::empty())?;
    fs::rename(place.at("a/dir"), place.at("b/dir"))?;
    let parent = openat(&dir, "..", OFlags::DIRECTORY, Mode::empty())?;
    same(rustix::fs::fstat(&parent)?.st_ino, look(&place.at("b"))?.ino(), "the parent's inode")
}

fn many_renames_end_where_they_should(place: &Place) -> Result<()> {
    place.file("0", "wanderer")?;
    for n in 0..60 {
        fs::rename(place.at(format!("{n}")), place.at(format!("{}", n + 1)))?;
    }
    holds(&place.at("60"), "wanderer")?;
    same(crate::check::list(place.root())?.len(), 1, "names")
}

fn many_moves_end_where_they_should(place: &Place) -> Result<()> {
    place.file("0", "wanderer")?;
    place.dir("dir")?;
    let name = |n: u32| place.at(if n.is_multiple_of(2) { format!("{n}") } else { format!("dir/{n}") });
    for n in 0..60 {
        fs::rename(name(n), name(n + 1))?;
    }
    holds(&place.at("60"), "wanderer")?;
    same(crate::check::list(place.root())?.len(), 2, "names")
}

fn renamed_directory_leaves_its_name_free(place: &Place) -> Result<()> {
    place.dir("dir")?;
    place.file("dir/file", "x")?;
    fs::rename(place.at("dir"), place.at("moved"))?;
    place.file("dir", "a file now")?;
    holds(&place.at("dir"), "a file now")?;
    holds(&place.at("moved/file"), "x")
}
