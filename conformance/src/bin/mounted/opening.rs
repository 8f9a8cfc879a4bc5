//! open(2): what each flag does, and what is refused.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};

use anyhow::{Context, Result};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, open, openat, renameat_with};
use rustix::io::Errno;

use crate::check::{Place, checks, holds, look, mode, noise, refused, same};

checks![
    create_then_read_gives_the_same_bytes,
    create_exclusively_refuses_what_exists,
    create_exclusively_refuses_a_dangling_link,
    create_through_a_dangling_link_makes_its_target,
    create_of_what_exists_leaves_mode_and_content,
    create_takes_the_mode_without_the_umask,
    create_without_rights_still_gives_a_descriptor,
    truncate_at_open_empties_the_file,
    directory_flag_refuses_a_file,
    directories_are_not_opened_for_writing,
    directories_are_not_read_as_files,
    nofollow_refuses_a_link,
    path_descriptors_can_be_asked,
    append_puts_each_write_at_the_end,
    append_of_two_descriptors_overwrites_nothing,
    synchronous_writes_arrive,
    reading_needs_a_descriptor_for_reading,
    writing_needs_a_descriptor_for_writing,
    descriptors_have_offsets_of_their_own,
    noatime_is_taken_from_the_owner,
    exchange_of_two_names_keeps_both,
    nameless_files_are_made;
    "direct": direct_io_reads_and_writes,
];

fn create_then_read_gives_the_same_bytes(place: &Place) -> Result<()> {
    for length in [0, 1, 4095, 4096, 4097, 65_536, 1_048_583] {
        let content = noise(length, 1);
        holds(&place.file(format!("{length}"), &content)?, &content)?;
    }
    Ok(())
}

fn create_exclusively_refuses_what_exists(place: &Place) -> Result<()> {
    let path = place.file("file", "old")?;
    refused(File::create_new(&path), Errno::EXIST, "a file")?;
    refused(File::create_new(place.dir("dir")?), Errno::EXIST, "a directory")?;
    holds(&path, "old")?;
    File::create_new(place.at("new"))?.write_all(b"new")?;
    holds(&place.at("new"), "new")
}

fn create_exclusively_refuses_a_dangling_link(place: &Place) -> Result<()> {
    symlink("nowhere", place.at("link"))?;
    refused(File::create_new(place.at("link")), Errno::EXIST, "open")?;
    crate::check::gone(&place.at("nowhere"))
}

fn create_through_a_dangling_link_makes_its_target(place: &Place) -> Result<()> {
    symlink("target", place.at("link"))?;
    fs::write(place.at("link"), "through")?;
    holds(&place.at("target"), "through")
}

fn create_of_what_exists_leaves_mode_and_content(place: &Place) -> Result<()> {
    let path = place.file("file", "content")?;
    crate::check::chmod(&path, 0o640)?;
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o777).open(&path)?;
    same(mode(&path)?, 0o640, "the mode")?;
    holds(&path, "content")
}

fn create_takes_the_mode_without_the_umask(place: &Place) -> Result<()> {
    for (asked, want) in [(0o666, 0o644), (0o777, 0o755), (0o600, 0o600), (0o000, 0o000), (0o4755, 0o4755)] {
        let path = place.at(format!("{asked:o}"));
        OpenOptions::new().write(true).create_new(true).mode(asked).open(&path)?;
        same(mode(&path)?, want, &format!("the mode of a file made with {asked:o} under umask 22"))?;
    }
    Ok(())
}

fn create_without_rights_still_gives_a_descriptor(place: &Place) -> Result<()> {
    let path = place.at("file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o400).open(&path)?;
    file.write_all(b"mine")?;
    file.rewind()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    same(text.as_str(), "mine", "the content")?;
    same(mode(&path)?, 0o400, "the mode")
}

fn truncate_at_open_empties_the_file(place: &Place) -> Result<()> {
    let path = place.file("file", noise(10_000, 2))?;
    let other = File::open(&path)?;
    drop(OpenOptions::new().write(true).truncate(true).open(&path)?);
    same(look(&path)?.len(), 0, "the length")?;
    same(other.metadata()?.len(), 0, "the length by a descriptor from before")
}

fn directory_flag_refuses_a_file(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    refused(open(&path, OFlags::DIRECTORY, Mode::empty()), Errno::NOTDIR, "open")
}

fn directories_are_not_opened_for_writing(place: &Place) -> Result<()> {
    let dir = place.dir("dir")?;
    refused(open(&dir, OFlags::WRONLY, Mode::empty()), Errno::ISDIR, "for writing")?;
    refused(open(&dir, OFlags::RDWR, Mode::empty()), Errno::ISDIR, "for both")?;
    refused(open(&dir, OFlags::CREATE, Mode::from_raw_mode(0o644)), Errno::ISDIR, "with O_CREAT")
}

fn directories_are_not_read_as_files(place: &Place) -> Result<()> {
    let dir = File::open(place.dir("dir")?)?;
    refused(dir.read_at(&mut [0; 16], 0), Errno::ISDIR, "read")
}

fn nofollow_refuses_a_link(place: &Place) -> Result<()> {
    place.file("file", "x")?;
    symlink("file", place.at("link"))?;
    refused(open(place.at("link"), OFlags::NOFOLLOW, Mode::empty()), Errno::LOOP, "open")
}

fn path_descriptors_can_be_asked(place: &Place) -> Result<()> {
    let path = place.file("file", "12345")?;
    let file = open(&path, OFlags::PATH, Mode::empty())?;
    same(rustix::fs::fstat(&file)?.st_size, 5, "the length")?;
    refused(rustix::io::read(&file, &mut [0; 1]), Errno::BADF, "read")
}

fn append_puts_each_write_at_the_end(place: &Place) -> Result<()> {
    let path = place.file("file", "one ")?;
    let mut file = OpenOptions::new().append(true).open(&path)?;
    file.write_all(b"two ")?;
    file.rewind()?;
    file.write_all(b"three")?;
    holds(&path, "one two three")
}

fn append_of_two_descriptors_overwrites_nothing(place: &Place) -> Result<()> {
    let path = place.file("file", "")?;
    let append = || OpenOptions::new().append(true).open(&path);
    let (mut a, mut b) = (append()?, append()?);
    for _ in 0..20 {
        a.write_all(b"aaa")?;
        b.write_all(b"bbbb")?;
    }
    holds(&path, "aaabbbb".repeat(20))
}

fn direct_io_reads_and_writes(place: &Place) -> Result<()> {
    const PAGE: usize = 4096;
    let path = place.at("file");
    let how = |how: &mut OpenOptions| how.custom_flags(OFlags::DIRECT.bits() as i32).open(&path);
    // The kernel asks for memory at a multiple of the block: the buffer is cut where one begins.
    let mut room = vec![0; 9 * PAGE];
    let start = room.as_ptr().align_offset(PAGE);
    let buffer = &mut room[start..start + 8 * PAGE];
    buffer.copy_from_slice(&noise(8 * PAGE, 3));
    let want = buffer.to_vec();
    let file = how(OpenOptions::new().read(true).write(true).create(true)).context("opening with O_DIRECT")?;
    same(file.write_at(buffer, 0).context("writing")?, want.len(), "bytes written")?;
    buffer.fill(0);
    same(file.read_at(buffer, 0).context("reading")?, want.len(), "bytes read")?;
    same(buffer.to_vec(), want.clone(), "what was read")?;
    same(file.read_at(&mut buffer[..PAGE], 8 * PAGE as u64)?, 0, "bytes at the end")?;
    holds(&path, want)
}

fn synchronous_writes_arrive(place: &Place) -> Result<()> {
    for (name, flag) in [("sync", OFlags::SYNC), ("dsync", OFlags::DSYNC)] {
        let path = place.at(name);
        let mut file = OpenOptions::new().write(true).create(true).custom_flags(flag.bits() as i32).open(&path)?;
        file.write_all(b"written")?;
        holds(&path, "written")?;
    }
    Ok(())
}

fn reading_needs_a_descriptor_for_reading(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let file = OpenOptions::new().write(true).open(&path)?;
    refused(file.read_at(&mut [0; 1], 0), Errno::BADF, "read")
}

fn writing_needs_a_descriptor_for_writing(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let file = File::open(&path)?;
    refused(file.write_at(b"y", 0), Errno::BADF, "write")?;
    refused(file.set_len(0), Errno::INVAL, "ftruncate")?;
    holds(&path, "x")
}

fn descriptors_have_offsets_of_their_own(place: &Place) -> Result<()> {
    let path = place.file("file", "abcdef")?;
    let (mut a, mut b) = (File::open(&path)?, File::open(&path)?);
    let mut byte = [0; 1];
    for want in b"abc" {
        a.read_exact(&mut byte)?;
        same(byte[0], *want, "the first")?;
    }
    b.read_exact(&mut byte)?;
    same(byte[0], b'a', "the second")?;
    a.try_clone()?.read_exact(&mut byte)?;
    same(byte[0], b'd', "a duplicate of the first")?;
    a.read_exact(&mut byte)?;
    same(byte[0], b'e', "the first behind its duplicate")
}

fn noatime_is_taken_from_the_owner(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let mut file = OpenOptions::new().read(true).custom_flags(OFlags::NOATIME.bits() as i32).open(&path)?;
    file.read_to_string(&mut String::new())?;
    Ok(())
}

fn exchange_of_two_names_keeps_both(place: &Place) -> Result<()> {
    let (a, b) = (place.file("a", "first")?, place.file("b", "second")?);
    renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE)?;
    holds(&a, "second")?;
    holds(&b, "first")
}

fn nameless_files_are_made(place: &Place) -> Result<()> {
    let file = openat(CWD, place.root(), OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o600))?;
    rustix::io::pwrite(&file, b"nameless", 0)?;
    same(rustix::fs::fstat(&file)?.st_nlink, 0, "links")
}
