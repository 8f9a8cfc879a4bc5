//! Hard and symbolic links.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;

use crate::check::{Place, Skip, checks, chmod, gone, holds, look, mode, refused, same};

checks![
    hard_links_are_one_file,
    hard_links_are_counted,
    hard_links_outlive_the_first_name,
    hard_links_do_not_replace,
    hard_links_to_directories_are_refused,
    hard_links_into_other_directories_are_made,
    hard_links_to_links_are_links,
    hard_links_to_links_are_counted,
    links_tell_their_target,
    links_to_nowhere_are_kept,
    links_of_4095_bytes_are_kept,
    links_are_followed_from_where_they_lie,
    links_in_the_middle_are_followed,
    links_in_circles_are_eloop,
    links_do_not_replace,
    links_are_as_long_as_their_targets,
    links_are_removed_not_their_targets,
    links_are_renamed_as_links,
    reading_what_is_no_link_is_refused,
    directories_count_the_directories_in_them,
    directories_count_no_more_what_was_moved_out,
];

fn links(path: &Path) -> Result<u64> {
    Ok(look(path)?.nlink())
}

fn hard_links_are_one_file(place: &Place) -> Result<()> {
    let (a, b) = (place.file("a", "first")?, place.at("b"));
    fs::hard_link(&a, &b)?;
    same(look(&a)?.ino(), look(&b)?.ino(), "the inode")?;
    fs::write(&b, "changed")?;
    holds(&a, "changed")?;
    chmod(&b, 0o600)?;
    same(mode(&a)?, 0o600, "the mode by the other name")
}

fn hard_links_are_counted(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    for n in 0..20 {
        same(links(&path)?, n + 1, "before one more")?;
        fs::hard_link(&path, place.at(format!("{n}")))?;
    }
    for n in 0..20 {
        fs::remove_file(place.at(format!("{n}")))?;
        same(links(&path)?, 20 - n, "after one less")?;
    }
    Ok(())
}

fn hard_links_outlive_the_first_name(place: &Place) -> Result<()> {
    let (a, b) = (place.file("a", "content")?, place.at("b"));
    fs::hard_link(&a, &b)?;
    fs::remove_file(&a)?;
    gone(&a)?;
    holds(&b, "content")?;
    same(links(&b)?, 1, "links")
}

fn hard_links_do_not_replace(place: &Place) -> Result<()> {
    let (a, b) = (place.file("a", "a")?, place.file("b", "b")?);
    refused(fs::hard_link(&a, &b), Errno::EXIST, "link")?;
    holds(&b, "b")
}

fn hard_links_to_directories_are_refused(place: &Place) -> Result<()> {
    refused(fs::hard_link(place.dir("dir")?, place.at("link")), Errno::PERM, "link")
}

fn hard_links_into_other_directories_are_made(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    place.dir("dir")?;
    fs::hard_link(&path, place.at("dir/file"))?;
    holds(&place.at("dir/file"), "x")?;
    same(links(&path)?, 2, "links")
}

fn hard_links_to_links_are_links(place: &Place) -> Result<()> {
    symlink("nowhere", place.at("a"))?;
    linkat(CWD, place.at("a"), CWD, place.at("b"), AtFlags::empty())?;
    same(fs::read_link(place.at("b"))?, PathBuf::from("nowhere"), "the target")
}

fn hard_links_to_links_are_counted(place: &Place) -> Result<()> {
    symlink("nowhere", place.at("a"))?;
    same(links(&place.at("a"))?, 1, "before")?;
    linkat(CWD, place.at("a"), CWD, place.at("b"), AtFlags::empty())?;
    same(links(&place.at("b"))?, 2, "by the new name")?;
    same(links(&place.at("a"))?, 2, "by the old name")
}

fn links_tell_their_target(place: &Place) -> Result<()> {
    for (n, target) in ["x", "/", "..", "../..", "a b", "/absolute/path", "ü\n", "dir/"].into_iter().enumerate() {
        let path = place.at(format!("{n}"));
        symlink(target, &path)?;
        same(fs::read_link(&path)?.as_os_str(), target.as_ref(), "the target")?;
    }
    Ok(())
}

fn links_to_nowhere_are_kept(place: &Place) -> Result<()> {
    symlink("nowhere", place.at("link"))?;
    same(look(&place.at("link"))?.is_symlink(), true, "a link")?;
    refused(fs::metadata(place.at("link")), Errno::NOENT, "stat through it")?;
    refused(fs::read(place.at("link")), Errno::NOENT, "open through it")
}

fn links_of_4095_bytes_are_kept(place: &Place) -> Result<()> {
    for length in [255, 256, 1023, 1024, 4000, 4095] {
        let target = "t".repeat(length);
        let path = place.at(format!("{length}"));
        symlink(&target, &path)?;
        same(fs::read_link(&path)?.as_os_str().len(), length, "the target's length")?;
    }
    refused(symlink("t".repeat(4096), place.at("4096")), Errno::NAMETOOLONG, "4096 bytes")
}

fn links_are_followed_from_where_they_lie(place: &Place) -> Result<()> {
    place.dir("dir")?;
    place.file("file", "outside")?;
    place.file("dir/file", "inside")?;
    symlink("file", place.at("dir/near"))?;
    symlink("../file", place.at("dir/far"))?;
    symlink(place.at("file"), place.at("dir/absolute"))?;
    holds(&place.at("dir/near"), "inside")?;
    holds(&place.at("dir/far"), "outside")?;
    holds(&place.at("dir/absolute"), "outside")?;
    fs::write(place.at("dir/far"), "written through")?;
    holds(&place.at("file"), "written through")
}

fn links_in_the_middle_are_followed(place: &Place) -> Result<()> {
    fs::create_dir_all(place.at("a/b"))?;
    place.file("a/b/file", "x")?;
    symlink("a", place.at("link"))?;
    symlink("link/b", place.at("second"))?;
    holds(&place.at("link/b/file"), "x")?;
    holds(&place.at("second/file"), "x")?;
    same(crate::check::list(&place.at("second"))?.len(), 1, "names through a link")
}

fn links_in_circles_are_eloop(place: &Place) -> Result<()> {
    symlink("b", place.at("a"))?;
    symlink("a", place.at("b"))?;
    symlink("self", place.at("self"))?;
    refused(fs::read(place.at("a")), Errno::LOOP, "two")?;
    refused(fs::metadata(place.at("self")), Errno::LOOP, "one")?;
    refused(fs::metadata(place.at("a/below")), Errno::LOOP, "below")
}

fn links_do_not_replace(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    refused(symlink("target", &path), Errno::EXIST, "over a file")?;
    refused(symlink("target", place.dir("dir")?), Errno::EXIST, "over a directory")?;
    holds(&path, "x")
}

fn links_are_as_long_as_their_targets(place: &Place) -> Result<()> {
    symlink("12345", place.at("link"))?;
    same(look(&place.at("link"))?.len(), 5, "the length")
}

fn links_are_removed_not_their_targets(place: &Place) -> Result<()> {
    let (path, dir) = (place.file("file", "x")?, place.dir("dir")?);
    symlink("file", place.at("link"))?;
    symlink("dir", place.at("dirlink"))?;
    fs::remove_file(place.at("link"))?;
    refused(fs::remove_dir(place.at("dirlink")), Errno::NOTDIR, "rmdir of a link")?;
    fs::remove_file(place.at("dirlink"))?;
    holds(&path, "x")?;
    look(&dir).map(drop)
}

fn links_are_renamed_as_links(place: &Place) -> Result<()> {
    place.file("file", "x")?;
    symlink("file", place.at("link"))?;
    fs::rename(place.at("link"), place.at("moved"))?;
    same(fs::read_link(place.at("moved"))?, PathBuf::from("file"), "the target")?;
    fs::rename(place.at("file"), place.at("moved"))?;
    same(look(&place.at("moved"))?.is_file(), true, "a file in the link's place")
}

fn reading_what_is_no_link_is_refused(place: &Place) -> Result<()> {
    refused(fs::read_link(place.file("file", "x")?), Errno::INVAL, "a file")?;
    refused(fs::read_link(place.dir("dir")?), Errno::INVAL, "a directory")
}

/// A directory whose links can be counted.
fn counting(place: &Place) -> Result<PathBuf> {
    let dir = place.dir("dir")?;
    if links(&dir)? == 1 {
        return Err(Skip("this file system does not count links of directories".to_owned()).into());
    }
    Ok(dir)
}

fn directories_count_the_directories_in_them(place: &Place) -> Result<()> {
    let dir = counting(place)?;
    place.file("dir/file", "")?;
    same(links(&dir)?, 2, "with a file in it")?;
    for n in 1..=5 {
        place.dir(format!("dir/{n}"))?;
        same(links(&dir)?, 2 + n, "with directories")?;
    }
    fs::remove_dir(place.at("dir/1"))?;
    same(links(&dir)?, 6, "with one less")
}

fn directories_count_no_more_what_was_moved_out(place: &Place) -> Result<()> {
    let dir = counting(place)?;
    for n in 1..=2 {
        place.dir(format!("dir/{n}"))?;
    }
    fs::rename(place.at("dir/2"), place.at("out"))?;
    same(links(&dir)?, 3, "with one moved out")
}
