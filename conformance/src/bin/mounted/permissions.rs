//! What users may, by owner, group, mode and sticky bit.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, Timespec, Timestamps, UTIME_NOW, accessat, mknodat, utimensat};
use rustix::io::Errno;

use crate::check::{Place, checks, chmod, gone, holds, look, mode, refused, same};
use crate::user::{BIN, DAEMON, NOBODY, User};

checks![
    ; "users": what_a_user_makes_is_his,
    private_files_are_closed_to_others,
    files_that_can_be_read_cannot_be_written,
    directories_without_search_hide_what_is_below,
    directories_with_search_alone_are_walked_not_listed,
    directories_without_write_keep_what_they_have,
    sticky_directories_keep_what_is_others,
    sticky_directories_let_owners_remove,
    chmod_is_for_the_owner,
    chown_is_for_root,
    groups_are_given_to_ones_own_only,
    chown_by_the_owner_takes_setuid_away,
    owners_are_judged_by_the_owners_bits,
    groups_are_judged_by_the_groups_bits,
    root_passes_every_mode,
    users_in_turn_are_told_apart,
    users_at_once_are_told_apart,
    descriptors_stay_good_when_rights_are_taken,
    read_only_files_are_written_by_their_maker,
    times_of_others_files_are_not_set,
    times_of_others_files_are_set_to_now,
    access_tells_what_open_would_say,
    truncating_needs_the_right_to_write,
    devices_are_made_by_root_only,
    pipes_are_made_by_anybody,
    renaming_needs_both_directories,
];

fn made_by(user: User, place: &Place, name: &str, bits: u32) -> Result<PathBuf> {
    let path = place.file(name, name)?;
    chown(&path, Some(user.0), Some(user.0))?;
    chmod(&path, bits)?;
    Ok(path)
}

fn dir_of(user: User, place: &Place, name: &str, bits: u32) -> Result<PathBuf> {
    let path = place.dir(name)?;
    chown(&path, Some(user.0), Some(user.0))?;
    chmod(&path, bits)?;
    Ok(path)
}

fn what_a_user_makes_is_his(place: &Place) -> Result<()> {
    DAEMON.does(|| -> Result<()> {
        place.file("file", "")?;
        place.dir("dir")?;
        symlink("file", place.at("link"))?;
        Ok(mknodat(CWD, place.at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0)?)
    })??;
    for name in ["file", "dir", "link", "pipe"] {
        let meta = look(&place.at(name))?;
        same((meta.uid(), meta.gid()), (DAEMON.0, DAEMON.0), &format!("the owners of the {name}"))?;
    }
    Ok(())
}

fn private_files_are_closed_to_others(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o600)?;
    BIN.does(|| {
        refused(File::open(&path), Errno::ACCESS, "reading")?;
        refused(OpenOptions::new().append(true).open(&path), Errno::ACCESS, "writing")
    })??;
    DAEMON.does(|| holds(&path, "file"))?
}

fn files_that_can_be_read_cannot_be_written(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o644)?;
    BIN.does(|| {
        holds(&path, "file")?;
        refused(fs::write(&path, "other"), Errno::ACCESS, "writing")?;
        refused(OpenOptions::new().read(true).write(true).open(&path), Errno::ACCESS, "both")
    })??;
    holds(&path, "file")
}

fn directories_without_search_hide_what_is_below(place: &Place) -> Result<()> {
    let dir = dir_of(DAEMON, place, "dir", 0o744)?;
    place.file("dir/file", "x")?;
    BIN.does(|| {
        same(crate::check::list(&dir)?.len(), 1, "names listed")?;
        refused(fs::metadata(dir.join("file")), Errno::ACCESS, "stat")?;
        refused(fs::read(dir.join("file")), Errno::ACCESS, "open")?;
        refused(fs::metadata(dir.join("none")), Errno::ACCESS, "stat of what is missing")
    })?
}

fn directories_with_search_alone_are_walked_not_listed(place: &Place) -> Result<()> {
    let dir = dir_of(DAEMON, place, "dir", 0o711)?;
    place.file("dir/file", "x")?;
    BIN.does(|| {
        refused(fs::read_dir(&dir), Errno::ACCESS, "listing")?;
        holds(&dir.join("file"), "x")
    })?
}

fn directories_without_write_keep_what_they_have(place: &Place) -> Result<()> {
    let dir = dir_of(DAEMON, place, "dir", 0o755)?;
    made_by(BIN, place, "dir/file", 0o644)?;
    BIN.does(|| {
        refused(fs::remove_file(dir.join("file")), Errno::ACCESS, "unlink")?;
        refused(fs::write(dir.join("new"), ""), Errno::ACCESS, "create")?;
        refused(fs::create_dir(dir.join("new")), Errno::ACCESS, "mkdir")?;
        refused(symlink("x", dir.join("new")), Errno::ACCESS, "symlink")?;
        refused(fs::rename(dir.join("file"), dir.join("new")), Errno::ACCESS, "rename")?;
        refused(fs::hard_link(dir.join("file"), dir.join("new")), Errno::ACCESS, "link")
    })??;
    gone(&dir.join("new"))
}

fn sticky_directories_keep_what_is_others(place: &Place) -> Result<()> {
    let dir = dir_of(DAEMON, place, "dir", 0o1777)?;
    made_by(NOBODY, place, "dir/file", 0o666)?;
    made_by(BIN, place, "dir/mine", 0o644)?;
    BIN.does(|| {
        refused(fs::remove_file(dir.join("file")), Errno::PERM, "unlink")?;
        refused(fs::rename(dir.join("file"), dir.join("other")), Errno::PERM, "rename")?;
        refused(fs::rename(dir.join("mine"), dir.join("file")), Errno::PERM, "rename over it")
    })??;
    holds(&dir.join("file"), "dir/file")
}

fn sticky_directories_let_owners_remove(place: &Place) -> Result<()> {
    let dir = dir_of(DAEMON, place, "dir", 0o1777)?;
    for name in ["dir/a", "dir/b", "dir/c"] {
        made_by(BIN, place, name, 0o644)?;
    }
    BIN.does(|| fs::remove_file(dir.join("a")))??;
    BIN.does(|| fs::rename(dir.join("b"), dir.join("d")))??;
    DAEMON.does(|| fs::remove_file(dir.join("c")))??;
    same(crate::check::list(&dir)?, vec!["d".into()], "what is left")
}

fn chmod_is_for_the_owner(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o666)?;
    let change = || fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777));
    BIN.does(|| refused(change(), Errno::PERM, "chmod by another"))??;
    same(mode(&path)?, 0o666, "the mode")?;
    DAEMON.does(change)??;
    same(mode(&path)?, 0o777, "the mode")
}

fn chown_is_for_root(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o666)?;
    DAEMON.does(|| refused(chown(&path, Some(BIN.0), None), Errno::PERM, "giving away"))??;
    BIN.does(|| refused(chown(&path, Some(BIN.0), None), Errno::PERM, "taking"))?
}

fn groups_are_given_to_ones_own_only(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o644)?;
    chown(&path, None, Some(0))?;
    DAEMON.does(|| {
        refused(chown(&path, None, Some(BIN.0)), Errno::PERM, "to a group of others")?;
        chown(&path, None, Some(DAEMON.0)).map_err(anyhow::Error::from)
    })??;
    same(look(&path)?.gid(), DAEMON.0, "the group")
}

fn chown_by_the_owner_takes_setuid_away(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o6755)?;
    DAEMON.does(|| chown(&path, None, Some(DAEMON.0)))??;
    same(format!("{:o}", mode(&path)?), "755".to_owned(), "the mode")
}

fn owners_are_judged_by_the_owners_bits(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o066)?;
    DAEMON.does(|| refused(File::open(&path), Errno::ACCESS, "the owner"))??;
    BIN.does(|| holds(&path, "file"))?
}

fn groups_are_judged_by_the_groups_bits(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o604)?;
    chown(&path, None, Some(BIN.0))?;
    BIN.does(|| refused(File::open(&path), Errno::ACCESS, "one of the group"))??;
    NOBODY.does(|| holds(&path, "file"))??;
    chmod(&path, 0o640)?;
    BIN.does(|| holds(&path, "file"))??;
    NOBODY.does(|| refused(File::open(&path), Errno::ACCESS, "one of neither"))?
}

fn root_passes_every_mode(place: &Place) -> Result<()> {
    let dir = dir_of(DAEMON, place, "dir", 0o700)?;
    made_by(DAEMON, place, "dir/file", 0)?;
    chmod(&dir, 0)?;
    holds(&dir.join("file"), "dir/file")?;
    fs::write(dir.join("file"), "by root")?;
    holds(&dir.join("file"), "by root")?;
    place.file("dir/new", "").map(drop)
}

fn users_in_turn_are_told_apart(place: &Place) -> Result<()> {
    for round in 0..5 {
        for user in [DAEMON, BIN, NOBODY] {
            let path = place.at(format!("{}-{round}", user.0));
            user.does(|| fs::write(&path, "mine"))??;
            same(look(&path)?.uid(), user.0, "the owner")?;
        }
    }
    Ok(())
}

fn users_at_once_are_told_apart(place: &Place) -> Result<()> {
    let work = |user: User| -> Result<()> {
        user.does(|| (0..10).try_for_each(|n| fs::write(place.at(format!("{}-{n}", user.0)), "mine")))??;
        (0..10).try_for_each(|n| same(look(&place.at(format!("{}-{n}", user.0)))?.uid(), user.0, "the owner"))
    };
    std::thread::scope(|scope| {
        let threads = [DAEMON, BIN, NOBODY].map(|user| scope.spawn(move || work(user)));
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread"))
    })
}

fn descriptors_stay_good_when_rights_are_taken(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o600)?;
    DAEMON.does(|| -> Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(&path)?;
        chmod(&path, 0)?;
        refused(File::open(&path), Errno::ACCESS, "opening again")?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        same(text.as_str(), "file", "what is read")?;
        Ok(file.write_all(b" more")?)
    })??;
    holds(&path, "file more")
}

fn read_only_files_are_written_by_their_maker(place: &Place) -> Result<()> {
    let path = place.at("file");
    DAEMON.does(|| -> Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o400).open(&path)?;
        Ok(file.write_all(b"once")?)
    })??;
    DAEMON.does(|| refused(OpenOptions::new().write(true).open(&path), Errno::ACCESS, "writing again"))??;
    holds(&path, "once")
}

/// Both times, to the same.
fn set_times(path: &Path, seconds: i64, nanoseconds: i64) -> rustix::io::Result<()> {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    utimensat(CWD, path, &Timestamps { last_access: time, last_modification: time }, AtFlags::empty())
}

fn times_of_others_files_are_not_set(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o666)?;
    BIN.does(|| refused(set_times(&path, 1_000_000_000, 0), Errno::PERM, "to a time"))??;
    chmod(&path, 0o644)?;
    BIN.does(|| refused(set_times(&path, 0, UTIME_NOW), Errno::ACCESS, "to now, without the right to write"))?
}

fn times_of_others_files_are_set_to_now(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o666)?;
    Ok(BIN.does(|| set_times(&path, 0, UTIME_NOW))??)
}

fn access_tells_what_open_would_say(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o640)?;
    let may = |access| accessat(CWD, &path, access, AtFlags::empty());
    DAEMON.does(|| -> Result<()> {
        may(Access::READ_OK | Access::WRITE_OK)?;
        refused(may(Access::EXEC_OK), Errno::ACCESS, "executing")
    })??;
    BIN.does(|| refused(may(Access::READ_OK), Errno::ACCESS, "reading"))??;
    BIN.does(|| may(Access::EXISTS))??;
    Ok(())
}

fn truncating_needs_the_right_to_write(place: &Place) -> Result<()> {
    let path = made_by(DAEMON, place, "file", 0o644)?;
    let cut = || nix::unistd::truncate(&path, 1);
    BIN.does(|| refused(cut(), Errno::ACCESS, "truncate"))??;
    holds(&path, "file")?;
    DAEMON.does(cut)??;
    holds(&path, "f")
}

fn devices_are_made_by_root_only(place: &Place) -> Result<()> {
    let make = || mknodat(CWD, place.at("null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), 0x103);
    BIN.does(|| refused(make(), Errno::PERM, "mknod"))??;
    gone(&place.at("null"))
}

fn pipes_are_made_by_anybody(place: &Place) -> Result<()> {
    let make = |name, kind| mknodat(CWD, place.at(name), kind, Mode::from_raw_mode(0o666), 0);
    BIN.does(|| make("pipe", FileType::Fifo))??;
    BIN.does(|| make("socket", FileType::Socket))??;
    same(look(&place.at("socket"))?.uid(), BIN.0, "the owner")
}

fn renaming_needs_both_directories(place: &Place) -> Result<()> {
    let (mine, theirs) = (dir_of(BIN, place, "mine", 0o755)?, dir_of(DAEMON, place, "theirs", 0o755)?);
    made_by(BIN, place, "mine/file", 0o644)?;
    made_by(BIN, place, "theirs/file", 0o644)?;
    BIN.does(|| {
        refused(fs::rename(mine.join("file"), theirs.join("new")), Errno::ACCESS, "into another's")?;
        refused(fs::rename(theirs.join("file"), mine.join("new")), Errno::ACCESS, "out of another's")?;
        fs::rename(mine.join("file"), mine.join("new")).map_err(anyhow::Error::from)
    })??;
    holds(&mine.join("new"), "mine/file")
}
