//! What the file system says of itself, and fsync(2).

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, ensure};
use rustix::fs::{statvfs, syncfs};

use crate::check::{Place, checks, holds, look, same};

checks![
    totals_of_the_file_system_make_sense,
    longest_name_is_told,
    totals_are_the_same_by_descriptor,
    synced_files_hold_what_was_written,
    whole_file_system_is_synced,
    inode_numbers_are_different_and_stay,
    blocks_grow_with_the_file,
];

fn totals_of_the_file_system_make_sense(place: &Place) -> Result<()> {
    let fs = statvfs(place.root())?;
    ensure!(fs.f_bsize > 0 && fs.f_blocks > 0, "blocks: {} of {} bytes", fs.f_blocks, fs.f_bsize);
    ensure!(fs.f_bfree <= fs.f_blocks && fs.f_bavail <= fs.f_blocks, "{} of {} free", fs.f_bfree, fs.f_blocks);
    Ok(())
}

fn longest_name_is_told(place: &Place) -> Result<()> {
    same(statvfs(place.root())?.f_namemax, 255, "the longest name")
}

fn totals_are_the_same_by_descriptor(place: &Place) -> Result<()> {
    let file = File::create(place.at("file"))?;
    let (by_path, by_file) = (statvfs(place.root())?, rustix::fs::fstatvfs(&file)?);
    same((by_path.f_bsize, by_path.f_blocks), (by_file.f_bsize, by_file.f_blocks), "the totals")
}

fn synced_files_hold_what_was_written(place: &Place) -> Result<()> {
    let mut file = File::create(place.at("file"))?;
    file.write_all(b"kept")?;
    file.sync_data().context("fdatasync")?;
    file.write_all(b" safe")?;
    file.sync_all().context("fsync")?;
    holds(&place.at("file"), "kept safe")
}

fn whole_file_system_is_synced(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    syncfs(File::open(&path)?).context("syncfs")
}

fn inode_numbers_are_different_and_stay(place: &Place) -> Result<()> {
    let mut numbers = Vec::new();
    for n in 0..50 {
        numbers.push(look(&place.file(format!("{n}"), "")?)?.ino());
    }
    for (n, number) in numbers.iter().enumerate() {
        same(look(&place.at(format!("{n}")))?.ino(), *number, "the number of a file looked at again")?;
    }
    numbers.sort_unstable();
    numbers.dedup();
    same(numbers.len(), 50, "different numbers")
}

fn blocks_grow_with_the_file(place: &Place) -> Result<()> {
    let file = File::create(place.at("file"))?;
    same(look(&place.at("file"))?.blocks(), 0, "blocks of an empty file")?;
    (&file).write_all(&[1; 100_000])?;
    file.sync_all()?; // a file system may count blocks only when they are on disk
    ensure!(look(&place.at("file"))?.blocks() >= 100_000 / 512, "{} blocks", look(&place.at("file"))?.blocks());
    Ok(())
}
