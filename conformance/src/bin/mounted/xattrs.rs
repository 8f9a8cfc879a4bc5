//! Extended attributes: setxattr(2) and its kin.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{
    XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, getxattr, getxattr_query, lgetxattr, listxattr,
    lsetxattr, removexattr, setxattr,
};
use rustix::io::Errno;

use crate::check::{Place, checks, refused, same};

checks![
    ; "xattr": attributes_are_set_and_got,
    attributes_of_every_byte_are_kept,
    attributes_of_four_kilobytes_less_a_few_are_kept,
    attributes_that_are_empty_are_kept,
    attributes_are_listed,
    attributes_are_removed,
    attributes_are_replaced,
    attributes_are_created_or_replaced_as_asked,
    attributes_that_are_missing_are_enodata,
    attributes_that_do_not_fit_are_erange,
    attributes_of_directories_are_kept,
    attributes_by_descriptor_are_those_of_the_file,
    attributes_of_links_are_not_the_users,
    attributes_go_with_the_file,
    attributes_of_unlinked_files_are_kept,
];

fn set(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    setxattr(path, name, value, XattrFlags::empty()).with_context(|| format!("setting {name}"))
}

fn get(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; 65_536];
    let length = getxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

/// The `user.` names: others come and go with the machine's security modules.
fn names(path: &Path) -> Result<Vec<String>> {
    let mut room = vec![0_u8; 65_536];
    let length = listxattr(path, &mut room)?;
    Ok(user_names(&room[..length]))
}

fn user_names(list: &[u8]) -> Vec<String> {
    let names = list.split(|byte| *byte == 0).map(|name| OsStr::from_bytes(name).to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("user.")).collect();
    names.sort();
    names
}

fn attributes_are_set_and_got(place: &Place) -> Result<()> {
    let path = place.file("file", "content")?;
    set(&path, "user.colour", b"blue")?;
    same(get(&path, "user.colour")?, b"blue".to_vec(), "the value")?;
    crate::check::holds(&path, "content")
}

fn attributes_of_every_byte_are_kept(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    let value: Vec<u8> = (0..=255).collect();
    set(&path, "user.bytes", &value)?;
    same(get(&path, "user.bytes")?, value, "the value")
}

fn attributes_of_four_kilobytes_less_a_few_are_kept(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    let value = crate::check::noise(3800, 1); // ext4 keeps a block of 4096 bytes for all
    set(&path, "user.large", &value)?;
    same(get(&path, "user.large")?, value, "the value")
}

fn attributes_that_are_empty_are_kept(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    set(&path, "user.empty", b"")?;
    same(get(&path, "user.empty")?, Vec::new(), "the value")
}

fn attributes_are_listed(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    same(names(&path)?.len(), 0, "names at first")?;
    let want: Vec<String> = (10..30).map(|n| format!("user.number-{n}")).collect();
    for name in &want {
        set(&path, name, name.as_bytes())?;
    }
    same(names(&path)?, want, "the names")
}

fn attributes_are_removed(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    set(&path, "user.a", b"1")?;
    set(&path, "user.b", b"2")?;
    removexattr(&path, "user.a")?;
    refused(get(&path, "user.a"), Errno::NODATA, "what was removed")?;
    same(names(&path)?, vec!["user.b".to_owned()], "what is left")
}

fn attributes_are_replaced(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    for value in ["long value at first", "short", "and a longer one than before"] {
        set(&path, "user.a", value.as_bytes())?;
        same(get(&path, "user.a")?, value.as_bytes().to_vec(), "the value")?;
    }
    same(names(&path)?.len(), 1, "names")
}

fn attributes_are_created_or_replaced_as_asked(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    refused(setxattr(&path, "user.a", b"1", XattrFlags::REPLACE), Errno::NODATA, "replacing what is missing")?;
    setxattr(&path, "user.a", b"1", XattrFlags::CREATE).context("creating")?;
    refused(setxattr(&path, "user.a", b"2", XattrFlags::CREATE), Errno::EXIST, "creating what is there")?;
    setxattr(&path, "user.a", b"3", XattrFlags::REPLACE).context("replacing")?;
    same(get(&path, "user.a")?, b"3".to_vec(), "the value")
}

fn attributes_that_are_missing_are_enodata(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    refused(get(&path, "user.none"), Errno::NODATA, "getting")?;
    refused(removexattr(&path, "user.none"), Errno::NODATA, "removing")?;
    refused(get(&place.at("none"), "user.a"), Errno::NOENT, "of a file that is missing")
}

fn attributes_that_do_not_fit_are_erange(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    set(&path, "user.a", b"0123456789")?;
    refused(getxattr(&path, "user.a", &mut [0_u8; 9][..]), Errno::RANGE, "nine bytes of room for ten")?;
    same(getxattr(&path, "user.a", &mut [0_u8; 10][..])?, 10, "ten bytes of room")?;
    same(getxattr_query(&path, "user.a")?, 10, "the length, asked for alone")
}

fn attributes_of_directories_are_kept(place: &Place) -> Result<()> {
    let path = place.dir("dir")?;
    set(&path, "user.a", b"of a directory")?;
    same(get(&path, "user.a")?, b"of a directory".to_vec(), "the value")
}

fn attributes_by_descriptor_are_those_of_the_file(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    let file = File::options().read(true).write(true).open(&path)?;
    fsetxattr(&file, "user.a", b"1", XattrFlags::empty())?;
    same(get(&path, "user.a")?, b"1".to_vec(), "by path")?;
    let mut room = vec![0_u8; 1000];
    let length = flistxattr(&file, &mut room)?;
    same(user_names(&room[..length]), vec!["user.a".to_owned()], "the names")?;
    fremovexattr(&file, "user.a")?;
    refused(fgetxattr(&file, "user.a", &mut [0_u8; 9][..]), Errno::NODATA, "what was removed")
}

fn attributes_of_links_are_not_the_users(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    symlink("file", place.at("link"))?;
    set(&path, "user.a", b"1")?;
    same(get(&place.at("link"), "user.a")?, b"1".to_vec(), "through the link")?;
    let result = lsetxattr(place.at("link"), "user.a", b"2", XattrFlags::empty());
    refused(result, Errno::PERM, "of the link itself")?; // xattr(7): user attributes are for files and directories
    refused(lgetxattr(place.at("link"), "user.a", &mut [0_u8; 9][..]), Errno::NODATA, "got from the link")
}

fn attributes_go_with_the_file(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    set(&path, "user.a", b"1")?;
    fs::rename(&path, place.at("moved"))?;
    same(get(&place.at("moved"), "user.a")?, b"1".to_vec(), "after a rename")?;
    fs::hard_link(place.at("moved"), place.at("second"))?;
    same(get(&place.at("second"), "user.a")?, b"1".to_vec(), "by another name")?;
    refused(get(&place.file("file", "")?, "user.a"), Errno::NODATA, "of a new file of the old name")
}

fn attributes_of_unlinked_files_are_kept(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    set(&path, "user.a", b"1")?;
    let file = File::options().read(true).write(true).open(&path)?;
    fs::remove_file(&path)?;
    let mut room = [0_u8; 9];
    same(fgetxattr(&file, "user.a", &mut room[..])?, 1, "the length")?;
    fsetxattr(&file, "user.b", b"2", XattrFlags::empty()).context("setting another")
}
