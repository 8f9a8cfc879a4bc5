//! What has no name any more but is still open.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;

use crate::actor::Actor;
use crate::check::{Place, checks, gone, holds, noise, refused, same};

checks![
    unlinked_files_are_read,
    unlinked_files_are_written,
    unlinked_files_are_asked,
    unlinked_files_are_truncated,
    unlinked_files_take_a_mode,
    unlinked_files_take_times,
    unlinked_files_are_synced,
    unlinked_files_are_not_the_new_ones,
    unlinked_files_serve_as_temporary_ones,
    unlinked_files_of_another_process_are_read,
    many_unlinked_files_are_kept_apart,
    removed_directories_are_empty_and_take_nothing;
    "users": unlinked_files_change_owner,
];

fn unlinked(place: &Place, content: &[u8]) -> Result<File> {
    let path = place.file("file", content)?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    fs::remove_file(&path)?;
    gone(&path)?;
    Ok(file)
}

fn unlinked_files_are_read(place: &Place) -> Result<()> {
    let content = noise(100_000, 1);
    let mut file = unlinked(place, &content)?;
    let mut got = Vec::new();
    file.read_to_end(&mut got)?;
    same(got, content, "what is read")
}

fn unlinked_files_are_written(place: &Place) -> Result<()> {
    let file = unlinked(place, b"old")?;
    let content = noise(70_000, 2);
    file.write_all_at(&content, 3)?;
    let mut got = vec![0; content.len()];
    file.read_exact_at(&mut got, 3)?;
    same(got, content, "what is read")
}

fn unlinked_files_are_asked(place: &Place) -> Result<()> {
    let meta = unlinked(place, b"12345")?.metadata().context("fstat")?;
    same((meta.len(), meta.nlink(), meta.is_file()), (5, 0, true), "length, links, kind")
}

fn unlinked_files_are_truncated(place: &Place) -> Result<()> {
    let mut file = unlinked(place, b"1234567890")?;
    file.set_len(4).context("ftruncate")?;
    same(file.metadata()?.len(), 4, "the length")?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    same(text.as_str(), "1234", "what is read")
}

fn unlinked_files_take_a_mode(place: &Place) -> Result<()> {
    let file = unlinked(place, b"")?;
    file.set_permissions(Permissions::from_mode(0o751)).context("fchmod")?;
    same(file.metadata()?.mode() & 0o7777, 0o751, "the mode")
}

fn unlinked_files_change_owner(place: &Place) -> Result<()> {
    let file = unlinked(place, b"")?;
    std::os::unix::fs::fchown(&file, Some(1), Some(2)).context("fchown")?;
    let meta = file.metadata()?;
    same((meta.uid(), meta.gid()), (1, 2), "the owners")
}

fn unlinked_files_take_times(place: &Place) -> Result<()> {
    let file = unlinked(place, b"")?;
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_times(FileTimes::new().set_accessed(time).set_modified(time)).context("futimens")?;
    same(file.metadata()?.mtime(), 1_000_000_000, "the modification time")
}

fn unlinked_files_are_synced(place: &Place) -> Result<()> {
    let mut file = unlinked(place, b"")?;
    file.write_all(b"data")?;
    file.sync_all().context("fsync")?;
    file.sync_data().context("fdatasync")
}

fn unlinked_files_are_not_the_new_ones(place: &Place) -> Result<()> {
    let mut old = unlinked(place, b"old")?;
    let path = place.file("file", "new")?;
    old.write_all(b"changed")?;
    holds(&path, "new")?;
    fs::write(&path, "newer")?;
    old.rewind()?;
    let mut text = String::new();
    old.read_to_string(&mut text)?;
    same(text.as_str(), "changed", "the old one")
}

fn unlinked_files_serve_as_temporary_ones(place: &Place) -> Result<()> {
    for n in 0..20_u8 {
        let path = place.at("temporary");
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        file.write_all(&[n; 100])?;
        file.rewind()?;
        let mut got = Vec::new();
        file.read_to_end(&mut got)?;
        same(got, vec![n; 100], "what is read")?;
    }
    same(crate::check::list(place.root())?.len(), 0, "names left")
}

fn unlinked_files_of_another_process_are_read(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    let mut actor = Actor::start()?;
    actor.does(&[&"open", &"f", &path, &"write"])?;
    let mut mine = File::open(&path)?;
    fs::remove_file(&path)?;
    actor.does(&[&"write", &"f", &"by the other"])?;
    let mut text = String::new();
    mine.read_to_string(&mut text)?;
    same(text.as_str(), "by the other", "what is read")
}

fn many_unlinked_files_are_kept_apart(place: &Place) -> Result<()> {
    let mut files = Vec::new();
    for n in 0..50_u8 {
        files.push((n, unlinked(place, &[n; 10])?));
    }
    for (n, mut file) in files {
        let mut got = Vec::new();
        file.read_to_end(&mut got)?;
        same(got, vec![n; 10], "what is read")?;
    }
    Ok(())
}

fn removed_directories_are_empty_and_take_nothing(place: &Place) -> Result<()> {
    let path = place.dir("dir")?;
    let dir = open(&path, OFlags::DIRECTORY, Mode::empty())?;
    fs::remove_dir(&path)?;
    let create = openat(&dir, "file", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o644));
    refused(create, Errno::NOENT, "making a file in it")?;
    refused(openat(&dir, "none", OFlags::RDONLY, Mode::empty()), Errno::NOENT, "opening a file in it")?;
    same(rustix::fs::fstat(&dir)?.st_nlink, 0, "its links")
}
