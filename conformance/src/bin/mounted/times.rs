//! utimensat(2), and the times that operations move by themselves.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};

use crate::check::{Place, checks, chmod, look, same};

checks![
    times_are_set_to_the_second,
    times_are_set_to_the_nanosecond,
    times_of_directories_are_set,
    times_before_1970_are_set,
    times_after_2038_are_set,
    times_are_set_by_descriptor,
    omitted_times_stay,
    now_is_between_before_and_after,
    writing_moves_the_modification_time,
    truncating_moves_the_modification_time,
    making_and_removing_moves_the_time_of_the_directory,
    changing_attributes_moves_the_change_time,
    reading_leaves_the_modification_time,
    renaming_leaves_the_modification_time,
];

fn at(seconds: i64, nanoseconds: i64) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}

fn set(path: &Path, access: Timespec, modification: Timespec) -> Result<()> {
    let times = Timestamps { last_access: access, last_modification: modification };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).context("utimensat")
}

/// Access and modification, each in seconds and nanoseconds.
fn times(path: &Path) -> Result<[(i64, i64); 2]> {
    let meta = look(path)?;
    Ok([(meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec())])
}

fn keeps(path: &Path, access: (i64, i64), modification: (i64, i64)) -> Result<()> {
    set(path, at(access.0, access.1), at(modification.0, modification.1))?;
    same(times(path)?, [access, modification], "the times")
}

fn times_are_set_to_the_second(place: &Place) -> Result<()> {
    keeps(&place.file("file", "")?, (1_000_000_000, 0), (1_234_567_890, 0))
}

fn times_are_set_to_the_nanosecond(place: &Place) -> Result<()> {
    keeps(&place.file("file", "")?, (1_000_000_000, 123_456_789), (1_234_567_890, 1))
}

fn times_of_directories_are_set(place: &Place) -> Result<()> {
    keeps(&place.dir("dir")?, (1_000_000_000, 0), (1_100_000_000, 0))
}

fn times_before_1970_are_set(place: &Place) -> Result<()> {
    keeps(&place.file("file", "")?, (-1, 0), (-86_400, 0))
}

fn times_after_2038_are_set(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    keeps(&path, (2_147_483_648, 0), (3_000_000_000, 0))
}

fn times_are_set_by_descriptor(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let file = File::options().write(true).open(&path)?;
    file.set_times(FileTimes::new().set_accessed(time(1_000_000_000)).set_modified(time(1_200_000_000)))?;
    same(times(&path)?, [(1_000_000_000, 0), (1_200_000_000, 0)], "the times")
}

fn omitted_times_stay(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    keeps(&path, (1_000_000_000, 0), (1_100_000_000, 0))?;
    set(&path, at(0, UTIME_OMIT), at(1_200_000_000, 0))?;
    same(times(&path)?, [(1_000_000_000, 0), (1_200_000_000, 0)], "without the access time")?;
    set(&path, at(1_300_000_000, 0), at(0, UTIME_OMIT))?;
    same(times(&path)?, [(1_300_000_000, 0), (1_200_000_000, 0)], "without the modification time")?;
    set(&path, at(0, UTIME_OMIT), at(0, UTIME_OMIT))?;
    same(times(&path)?, [(1_300_000_000, 0), (1_200_000_000, 0)], "without both")
}

fn now_is_between_before_and_after(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    keeps(&path, (1_000_000_000, 0), (1_100_000_000, 0))?;
    set(&path, at(0, UTIME_NOW), at(0, UTIME_OMIT))?;
    let [access, modification] = times(&path)?;
    ensure!(access.0 > 1_600_000_000, "the access time is {}", access.0);
    same(modification, (1_100_000_000, 0), "the modification time")?;
    set(&path, at(0, UTIME_NOW), at(0, UTIME_NOW))?;
    ensure!(times(&path)?[1].0 > 1_600_000_000, "the modification time is {}", times(&path)?[1].0);
    Ok(())
}

/// Repeats `act` until `time` of the path has moved; file systems and kernels have clocks of their own grain.
fn moves(
    path: &Path,
    what: &str,
    time: fn(&fs::Metadata) -> (i64, i64),
    mut act: impl FnMut() -> Result<()>,
) -> Result<()> {
    const BOUND: Duration = Duration::from_secs(5);
    let before = time(&look(path)?);
    let end = Instant::now() + BOUND;
    loop {
        act().with_context(|| what.to_owned())?;
        if time(&look(path)?) > before {
            return Ok(());
        }
        ensure!(Instant::now() < end, "{what}: the time was {before:?} and still is");
        thread::sleep(Duration::from_millis(20));
    }
}

fn modified(meta: &fs::Metadata) -> (i64, i64) {
    (meta.mtime(), meta.mtime_nsec())
}

fn changed(meta: &fs::Metadata) -> (i64, i64) {
    (meta.ctime(), meta.ctime_nsec())
}

fn writing_moves_the_modification_time(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    moves(&path, "writing", modified, || Ok(fs::write(&path, "y")?))
}

fn truncating_moves_the_modification_time(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let mut length = 1;
    moves(&path, "truncating", modified, || {
        length += 1;
        Ok(File::options().write(true).open(&path)?.set_len(length)?)
    })
}

fn making_and_removing_moves_the_time_of_the_directory(place: &Place) -> Result<()> {
    let dir = place.dir("dir")?;
    let file = dir.join("file");
    moves(&dir, "making a file", modified, || {
        fs::write(&file, "")?;
        Ok(fs::remove_file(&file)?)
    })?;
    moves(&dir, "making a directory", modified, || {
        fs::create_dir(&file)?;
        Ok(fs::remove_dir(&file)?)
    })?;
    fs::write(&file, "")?;
    moves(&dir, "renaming", modified, || {
        fs::rename(&file, dir.join("other"))?;
        Ok(fs::rename(dir.join("other"), &file)?)
    })
}

fn changing_attributes_moves_the_change_time(place: &Place) -> Result<()> {
    // Empty: what a client has not written yet would move the time by itself, if a second ended meanwhile.
    let path = place.file("file", "")?;
    let other = place.at("other");
    moves(&path, "making a link", changed, || {
        fs::hard_link(&path, &other)?;
        Ok(fs::remove_file(&other)?)
    })?;
    moves(&path, "chmod", changed, || chmod(&path, 0o600))?;
    moves(&path, "setting times", changed, || set(&path, at(1, 0), at(1, 0)))
}

fn reading_leaves_the_modification_time(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    keeps(&path, (1_000_000_000, 0), (1_100_000_000, 0))?;
    fs::read(&path)?;
    same(times(&path)?[1], (1_100_000_000, 0), "the modification time")
}

fn renaming_leaves_the_modification_time(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    keeps(&path, (1_000_000_000, 0), (1_100_000_000, 0))?;
    fs::rename(&path, place.at("other"))?;
    same(times(&place.at("other"))?[1], (1_100_000_000, 0), "the modification time")
}
