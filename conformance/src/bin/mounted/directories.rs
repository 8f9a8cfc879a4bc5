//! mkdir(2) and rmdir(2), and trees of directories.

use std::fs::{self, File};

use anyhow::Result;
use rustix::io::Errno;

use crate::check::{Place, checks, gone, holds, list, look, refused, same};

checks![
    directories_are_made_and_removed,
    directories_are_made_once,
    directories_that_hold_something_are_not_removed,
    removing_a_directory_as_a_file_is_refused,
    removing_a_file_as_a_directory_is_refused,
    removing_dot_is_refused,
    trees_are_made_and_removed,
    trees_of_fifty_levels_are_made,
    open_directories_are_synced,
    names_are_used_again_for_another_kind,
];

fn directories_are_made_and_removed(place: &Place) -> Result<()> {
    let dir = place.dir("dir")?;
    same(look(&dir)?.is_dir(), true, "a directory")?;
    same(list(&dir)?.len(), 0, "names in it")?;
    fs::remove_dir(&dir)?;
    gone(&dir)
}

fn directories_are_made_once(place: &Place) -> Result<()> {
    let (dir, file) = (place.dir("dir")?, place.file("file", "")?);
    refused(fs::create_dir(&dir), Errno::EXIST, "over a directory")?;
    refused(fs::create_dir(&file), Errno::EXIST, "over a file")?;
    std::os::unix::fs::symlink("nowhere", place.at("link"))?;
    refused(fs::create_dir(place.at("link")), Errno::EXIST, "over a link to nowhere")
}

fn directories_that_hold_something_are_not_removed(place: &Place) -> Result<()> {
    let dir = place.dir("dir")?;
    place.file("dir/file", "")?;
    refused(fs::remove_dir(&dir), Errno::NOTEMPTY, "with a file")?;
    fs::remove_file(place.at("dir/file"))?;
    place.dir("dir/below")?;
    refused(fs::remove_dir(&dir), Errno::NOTEMPTY, "with a directory")?;
    fs::remove_dir(place.at("dir/below"))?;
    Ok(fs::remove_dir(&dir)?)
}

fn removing_a_directory_as_a_file_is_refused(place: &Place) -> Result<()> {
    let dir = place.dir("dir")?;
    refused(fs::remove_file(&dir), Errno::ISDIR, "unlink")?;
    look(&dir).map(drop)
}

fn removing_a_file_as_a_directory_is_refused(place: &Place) -> Result<()> {
    let file = place.file("file", "x")?;
    refused(fs::remove_dir(&file), Errno::NOTDIR, "rmdir")?;
    holds(&file, "x")
}

fn removing_dot_is_refused(place: &Place) -> Result<()> {
    place.dir("dir")?;
    place.dir("dir/below")?;
    refused(rustix::fs::rmdir(place.at("dir/.")), Errno::INVAL, "rmdir of dot")?;
    refused(rustix::fs::rmdir(place.at("dir/below/..")), Errno::NOTEMPTY, "rmdir of dot-dot")
}

fn trees_are_made_and_removed(place: &Place) -> Result<()> {
    for a in 0..3 {
        for b in 0..3 {
            let dir = place.at(format!("tree/{a}/{b}"));
            fs::create_dir_all(&dir)?;
            for c in 0..4 {
                fs::write(dir.join(format!("{c}")), format!("{a}{b}{c}"))?;
            }
        }
    }
    holds(&place.at("tree/2/1/3"), "213")?;
    fs::remove_dir_all(place.at("tree"))?;
    gone(&place.at("tree"))
}

fn trees_of_fifty_levels_are_made(place: &Place) -> Result<()> {
    let path = place.at("d/".repeat(50));
    fs::create_dir_all(&path)?;
    fs::write(path.join("file"), "bottom")?;
    holds(&place.at("d/".repeat(50)).join("file"), "bottom")
}

fn open_directories_are_synced(place: &Place) -> Result<()> {
    let dir = place.dir("dir")?;
    place.file("dir/file", "x")?;
    Ok(File::open(&dir)?.sync_all()?)
}

fn names_are_used_again_for_another_kind(place: &Place) -> Result<()> {
    let path = place.at("name");
    for _ in 0..5 {
        fs::write(&path, "a file")?;
        holds(&path, "a file")?;
        fs::remove_file(&path)?;
        fs::create_dir(&path)?;
        same(list(&path)?.len(), 0, "names in it")?;
        fs::remove_dir(&path)?;
        std::os::unix::fs::symlink("target", &path)?;
        same(look(&path)?.is_symlink(), true, "a link")?;
        fs::remove_file(&path)?;
    }
    gone(&path)
}
