//! Pipes, sockets and devices: nodes like others to a file system, and used by the processes of one machine.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat};
use rustix::io::Errno;

use crate::actor::Actor;
use crate::check::{Place, checks, chmod, gone, look, mode, refused, same};

checks![
    pipes_are_made_and_told,
    pipes_are_linked_renamed_and_removed,
    pipes_count_their_links,
    pipes_carry_between_processes,
    pipes_without_a_reader_are_enxio,
    pipes_are_asked_without_being_opened,
    sockets_are_made_and_told,
    sockets_are_linked_renamed_and_removed,
    sockets_count_their_links,
    sockets_carry_between_processes,
    sockets_are_bound_once,
    sockets_without_a_listener_are_refused,
    plain_files_are_made_by_mknod;
    "devices": devices_keep_their_numbers,
    devices_are_linked_renamed_and_removed,
    devices_count_their_links,
    devices_are_used,
];

/// A new node, or one more name of what `--nodes` has under this name.
pub fn node(place: &Place, name: &str, kind: FileType, device: u64) -> Result<PathBuf> {
    let path = place.at(name);
    if let Some(nodes) = place.nodes() {
        fs::hard_link(nodes.join(name), &path).with_context(|| format!("link to the {name} that is there"))?;
        same(FileType::from_raw_mode(look(&path)?.mode()), kind, "the kind of what is there")?;
    } else {
        mknodat(CWD, &path, kind, Mode::from_raw_mode(0o644), device).with_context(|| format!("mknod of {name}"))?;
    }
    Ok(path)
}

/// Everything that is done to a node without opening it.
fn linked_renamed_and_removed(place: &Place, path: &Path) -> Result<()> {
    let (second, moved) = (place.at("second"), place.at("moved"));
    let kind = look(path)?.file_type();
    fs::hard_link(path, &second).context("link")?;
    chmod(path, 0o600)?;
    same(mode(&second)?, 0o600, "the mode by the other name")?;
    fs::rename(&second, &moved).context("rename")?;
    same(look(&moved)?.file_type(), kind, "the kind after a rename")?;
    same(look(&moved)?.ino(), look(path)?.ino(), "the inode")?;
    fs::remove_file(path).context("unlink")?;
    gone(path)?;
    look(&moved)?;
    fs::remove_file(&moved)?;
    gone(&moved)
}

fn counts_its_links(place: &Place, path: &Path) -> Result<()> {
    // A node that was there before has other names elsewhere.
    let before = look(path)?.nlink();
    let second = place.at("second");
    fs::hard_link(path, &second).context("link")?;
    same(look(&second)?.nlink(), before + 1, "links by the new name")?;
    same(look(path)?.nlink(), before + 1, "links by the old name")?;
    fs::remove_file(&second).context("unlink")?;
    same(look(path)?.nlink(), before, "links when it is gone")
}

fn pipes_are_made_and_told(place: &Place) -> Result<()> {
    let path = node(place, "pipe", FileType::Fifo, 0)?;
    same(look(&path)?.file_type().is_fifo(), true, "a pipe")?;
    same(mode(&path)?, 0o644, "the mode")?;
    same(look(&path)?.len(), 0, "the length")
}

fn pipes_are_linked_renamed_and_removed(place: &Place) -> Result<()> {
    linked_renamed_and_removed(place, &node(place, "pipe", FileType::Fifo, 0)?)
}

fn pipes_count_their_links(place: &Place) -> Result<()> {
    counts_its_links(place, &node(place, "pipe", FileType::Fifo, 0)?)
}

fn pipes_carry_between_processes(place: &Place) -> Result<()> {
    let path = node(place, "pipe", FileType::Fifo, 0)?;
    let mut actor = Actor::start()?;
    actor.begin(&[&"pipe-write", &path, &"through the pipe"])?;
    let mut text = String::new();
    File::open(&path)?.read_to_string(&mut text)?;
    same(text.as_str(), "through the pipe", "what came")
}

fn pipes_without_a_reader_are_enxio(place: &Place) -> Result<()> {
    let path = node(place, "pipe", FileType::Fifo, 0)?;
    let how = |how: &mut OpenOptions| how.custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path);
    refused(how(OpenOptions::new().write(true)), Errno::NXIO, "for writing")?;
    let mut reader = how(OpenOptions::new().read(true))?;
    how(OpenOptions::new().write(true))?.write_all(b"now")?;
    let mut got = [0; 3];
    reader.read_exact(&mut got)?;
    same(&got, b"now", "what came")
}

fn pipes_are_asked_without_being_opened(place: &Place) -> Result<()> {
    let path = node(place, "pipe", FileType::Fifo, 0)?;
    for _ in 0..20 {
        look(&path)?;
        chmod(&path, 0o600)?;
    }
    crate::check::list(place.root()).map(drop)
}

fn sockets_are_made_and_told(place: &Place) -> Result<()> {
    let path = node(place, "socket", FileType::Socket, 0)?;
    same(look(&path)?.file_type().is_socket(), true, "a socket")?;
    let bound = place.at("bound");
    drop(UnixListener::bind(&bound)?);
    same(look(&bound)?.file_type().is_socket(), true, "what was bound")
}

fn sockets_are_linked_renamed_and_removed(place: &Place) -> Result<()> {
    linked_renamed_and_removed(place, &node(place, "socket", FileType::Socket, 0)?)
}

fn sockets_count_their_links(place: &Place) -> Result<()> {
    counts_its_links(place, &node(place, "socket", FileType::Socket, 0)?)
}

fn sockets_carry_between_processes(place: &Place) -> Result<()> {
    let path = place.at("socket");
    let listener = UnixListener::bind(&path)?;
    let mut actor = Actor::start()?;
    actor.begin(&[&"socket-ask", &path, &"question"])?;
    let (mut stream, _) = listener.accept()?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    same(text.as_str(), "question", "what came")?;
    stream.write_all(b"answer")?;
    drop(stream);
    let answer = actor.answer_within(std::time::Duration::from_secs(10))?;
    same(answer, Some(Ok("answer".to_owned())), "what came back")
}

fn sockets_are_bound_once(place: &Place) -> Result<()> {
    let path = place.at("socket");
    let _listener = UnixListener::bind(&path)?;
    refused(UnixListener::bind(&path), Errno::ADDRINUSE, "a second time")?;
    fs::remove_file(&path)?;
    drop(UnixListener::bind(&path)?);
    Ok(())
}

fn sockets_without_a_listener_are_refused(place: &Place) -> Result<()> {
    let path = place.at("socket");
    drop(UnixListener::bind(&path)?);
    refused(UnixStream::connect(&path), Errno::CONNREFUSED, "connect")?;
    refused(File::open(&path), Errno::NXIO, "open")
}

fn plain_files_are_made_by_mknod(place: &Place) -> Result<()> {
    let path = node(place, "file", FileType::RegularFile, 0)?;
    fs::write(&path, "x")?;
    crate::check::holds(&path, "x")
}

fn devices_keep_their_numbers(place: &Place) -> Result<()> {
    for (n, (major, minor)) in [(1, 3), (0, 0), (255, 255), (4095, 70_000)].into_iter().enumerate() {
        for kind in [FileType::CharacterDevice, FileType::BlockDevice] {
            // A character device 0:0 is overlayfs's mark of a removed file.
            if (major, minor) == (0, 0) && kind == FileType::CharacterDevice {
                continue;
            }
            let path = node(place, &format!("{kind:?}-{n}"), kind, makedev(major, minor))?;
            let meta = look(&path)?;
            let told = FileType::from_raw_mode(meta.mode());
            same((told, meta.rdev()), (kind, makedev(major, minor)), &format!("a device {major}:{minor}"))?;
        }
    }
    Ok(())
}

fn devices_are_linked_renamed_and_removed(place: &Place) -> Result<()> {
    linked_renamed_and_removed(place, &node(place, "null", FileType::CharacterDevice, makedev(1, 3))?)
}

fn devices_count_their_links(place: &Place) -> Result<()> {
    counts_its_links(place, &node(place, "null", FileType::CharacterDevice, makedev(1, 3))?)
}

fn devices_are_used(place: &Place) -> Result<()> {
    let path = node(place, "zero", FileType::CharacterDevice, makedev(1, 5))?;
    let mut got = [1; 10];
    File::open(&path)?.read_exact(&mut got)?;
    same(got, [0; 10], "what /dev/zero gives")
}
