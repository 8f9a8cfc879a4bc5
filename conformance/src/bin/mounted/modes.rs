//! chmod(2), chown(2), umask(2) as root; what other users may is in [`crate::permissions`].

use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, fchown, lchown, symlink};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::umask;

use crate::check::{Place, checks, chmod, look, mode, same};

checks![
    chmod_sets_every_permission,
    chmod_keeps_setuid_setgid_and_sticky,
    chmod_by_descriptor_changes_the_file,
    chmod_through_a_link_changes_its_target,
    directories_take_modes_and_the_umask,
    umask_masks_what_is_made,
    kinds_are_told_apart;
    "users": chown_gives_files_away,
    chown_of_one_number_leaves_the_other,
    chown_by_descriptor_changes_the_file,
    chown_of_a_link_leaves_its_target,
    setgid_directories_hand_down_their_group,
    setgid_directories_hand_down_their_bit,
    writing_takes_setuid_away,
];

fn chmod_sets_every_permission(place: &Place) -> Result<()> {
    let (file, dir) = (place.file("file", "")?, place.dir("dir")?);
    for bit in (0..9).map(|shift| 1 << shift).chain([0, 0o777, 0o640, 0o755]) {
        chmod(&file, bit)?;
        same(mode(&file)?, bit, "the mode of the file")?;
        chmod(&dir, bit)?;
        same(mode(&dir)?, bit, "the mode of the directory")?;
    }
    chmod(&dir, 0o755)
}

fn chmod_keeps_setuid_setgid_and_sticky(place: &Place) -> Result<()> {
    let (file, dir) = (place.file("file", "")?, place.dir("dir")?);
    for bits in [0o4755, 0o2755, 0o1755, 0o7777, 0o6711, 0o755] {
        chmod(&file, bits)?;
        same(format!("{:o}", mode(&file)?), format!("{bits:o}"), "the mode of the file")?;
        chmod(&dir, bits)?;
        same(format!("{:o}", mode(&dir)?), format!("{bits:o}"), "the mode of the directory")?;
    }
    Ok(())
}

fn chmod_by_descriptor_changes_the_file(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    File::open(&path)?.set_permissions(Permissions::from_mode(0o604))?;
    same(mode(&path)?, 0o604, "the mode")
}

fn chmod_through_a_link_changes_its_target(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    symlink("file", place.at("link"))?;
    chmod(&place.at("link"), 0o601)?;
    same(mode(&path)?, 0o601, "the mode of the target")?;
    same(look(&place.at("link"))?.file_type().is_symlink(), true, "the link is one")
}

fn directories_take_modes_and_the_umask(place: &Place) -> Result<()> {
    for (asked, want) in [(0o777, 0o755), (0o700, 0o700), (0o1777, 0o1755)] {
        let path = place.at(format!("{asked:o}"));
        DirBuilder::new().mode(asked).create(&path)?;
        same(mode(&path)?, want, &format!("a directory made with {asked:o} under umask 22"))?;
    }
    Ok(())
}

fn umask_masks_what_is_made(place: &Place) -> Result<()> {
    let before = umask(Mode::from_raw_mode(0o077));
    let made = (|| {
        place.file("file", "")?;
        place.dir("dir")?;
        mknodat(CWD, place.at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).context("mknod")
    })();
    umask(before);
    made?;
    same(mode(&place.at("file"))?, 0o600, "a file's mode")?;
    same(mode(&place.at("dir"))?, 0o700, "a directory's mode")?;
    same(mode(&place.at("pipe"))?, 0o600, "a pipe's mode")
}

fn kinds_are_told_apart(place: &Place) -> Result<()> {
    let kind = |path: &Path| look(path).map(|meta| meta.file_type());
    same(kind(&place.file("file", "")?)?.is_file(), true, "a file is one")?;
    same(kind(&place.dir("dir")?)?.is_dir(), true, "a directory is one")?;
    symlink("file", place.at("link"))?;
    same(kind(&place.at("link"))?.is_symlink(), true, "a link is one")?;
    same(fs::metadata(place.at("link"))?.is_file(), true, "its target is a file")
}

fn owners(path: &Path) -> Result<(u32, u32)> {
    let meta = look(path)?;
    Ok((meta.uid(), meta.gid()))
}

fn chown_gives_files_away(place: &Place) -> Result<()> {
    for path in [place.file("file", "")?, place.dir("dir")?] {
        chown(&path, Some(1), Some(2))?;
        same(owners(&path)?, (1, 2), "the owners")?;
        chown(&path, Some(123_456), Some(654_321))?;
        same(owners(&path)?, (123_456, 654_321), "owners whom nobody knows")?;
    }
    Ok(())
}

fn chown_of_one_number_leaves_the_other(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    chown(&path, Some(1), None)?;
    same(owners(&path)?, (1, 0), "after the owner")?;
    chown(&path, None, Some(2))?;
    same(owners(&path)?, (1, 2), "after the group")?;
    chown(&path, None, None)?;
    same(owners(&path)?, (1, 2), "after neither")
}

fn chown_by_descriptor_changes_the_file(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    fchown(File::open(&path)?, Some(2), Some(1))?;
    same(owners(&path)?, (2, 1), "the owners")
}

fn chown_of_a_link_leaves_its_target(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    symlink("file", place.at("link"))?;
    lchown(place.at("link"), Some(1), Some(1))?;
    same(owners(&place.at("link"))?, (1, 1), "the link")?;
    same(owners(&path)?, (0, 0), "its target")?;
    chown(place.at("link"), Some(2), Some(2))?;
    same(owners(&path)?, (2, 2), "the target, through the link")
}

fn setgid_directories_hand_down_their_group(place: &Place) -> Result<()> {
    let dir = place.dir("dir")?;
    chown(&dir, None, Some(2))?;
    chmod(&dir, 0o2777)?;
    for made in [place.file("dir/file", "")?, place.dir("dir/below")?] {
        same(owners(&made)?.1, 2, &format!("the group of {}", made.display()))?;
    }
    Ok(())
}

fn setgid_directories_hand_down_their_bit(place: &Place) -> Result<()> {
    let dir = place.dir("dir")?;
    chmod(&dir, 0o2755)?;
    same(mode(&place.dir("dir/below")?)? & 0o2000, 0o2000, "the bit of a directory")?;
    same(mode(&place.file("dir/file", "")?)? & 0o2000, 0, "the bit of a file")
}

fn writing_takes_setuid_away(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    chown(&path, Some(1), Some(1))?;
    chmod(&path, 0o4777)?;
    crate::user::BIN.does(|| fs::write(&path, "changed"))??;
    same(format!("{:o}", mode(&path)?), "777".to_owned(), "the mode")
}
