//! What one client does and another sees: two mounts of one directory.

use std::fs;

use anyhow::Result;

use crate::check::{Place, checks, chmod, gone, holds, list, mode, same};

checks![
    files_made_here_are_seen_there,
    files_changed_there_are_seen_here,
    files_removed_there_are_gone_here,
    files_renamed_there_are_found_here,
    modes_changed_there_are_seen_here,
];

fn files_made_here_are_seen_there(place: &Place) -> Result<()> {
    place.file("file", "made here")?;
    holds(&place.second("file"), "made here")?;
    same(list(place.second("").as_path())?.len(), 1, "names listed there")
}

fn files_changed_there_are_seen_here(place: &Place) -> Result<()> {
    let path = place.file("file", "old")?;
    holds(&path, "old")?;
    fs::write(place.second("file"), "changed there")?;
    holds(&path, "changed there")
}

fn files_removed_there_are_gone_here(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    holds(&path, "x")?;
    fs::remove_file(place.second("file"))?;
    gone(&path)
}

fn files_renamed_there_are_found_here(place: &Place) -> Result<()> {
    place.file("file", "x")?;
    fs::rename(place.second("file"), place.second("moved"))?;
    gone(&place.at("file"))?;
    holds(&place.at("moved"), "x")
}

fn modes_changed_there_are_seen_here(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    same(mode(&path)?, 0o644, "the mode at first")?;
    chmod(&place.second("file"), 0o600)?;
    same(mode(&path)?, 0o600, "the mode changed there")
}
