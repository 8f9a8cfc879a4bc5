//! Reading directories.
//!
//! Cookies are the kernel's own (`d_off`), which stay good while entries come and go. One getdents(2)
//! brings more entries than a reply holds: `dir_stream.rs` keeps the rest, so a reader that goes on
//! where it stopped costs no seek and loses nothing.
//!
//! There is no getdents(2) that refuses to wait for a disk, so it is made on the blocking pool; but only what was not read
//! ahead costs a request that hop.
//!
//! The qid of an entry is made from `d_ino`, without looking at the file, and so has version 0. That
//! number is the covered directory's where something is mounted; only there the entry is looked up, when somebody waits for it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ninefold_proto::stat::{DirEntry, StatBuf};
use ninefold_proto::{Dialect, Errno, Error, Qid, QidType};
use rustix::fs::{FileType, RawDir, RawDirEntry, SeekFrom, seek};

use super::creds::{Identity, Loan};
use super::dir_parts::{Behind, CHUNK, Growing};
use super::dir_stream::{Next, Reading};
use super::file::HostFile;
use super::node::{Entry, FileId, look};
use super::{Export, Pace, Session, os, qid};
use crate::server::{Answer, Listed, Records, StatSink};

/// The cookies behind `.` and `..` of .u, which come first whatever the file system's order. The kernel's have no bit 63:
/// they are offsets, which are not negative.
const HERE: u64 = 1 << 63;
const PARENT: u64 = HERE + 1;

impl HostFile {
    /// Entries of .L from the cookie `offset` on.
    pub(super) fn read_entries(&self, offset: u64, max: u32) -> Answer<Listed> {
        let open = match self.opened() {
            Ok(open) => open,
            Err(error) => return Answer::err(error),
        };
        let Some(dir) = open.dir.clone() else { return Answer::err(Errno::ENOTDIR) };
        let max = max as usize;
        if let Some((reply, reading)) = dir.tell(offset, max) {
            if let Some(reading) = reading {
                self.start(reading, &open.fd);
            }
            return Answer::Now(reply);
        }
        let file = self.clone();
        Answer::later(async move { dir.wait(offset, max, |reading| file.start(reading, &open.fd)).await })
    }

    fn start(&self, reading: Reading, fd: &Arc<OwnedFd>) {
        // Not the fid's node, nor what it holds open: it may be clunked while something is read ahead, and is to let go of
        // its file then.
        let id = self.node.id;
        let parent = self.node.parent().map_or(id, |parent| parent.id);
        let (lister, fd) = (Lister { session: self.session.clone(), id, parent }, fd.clone());
        tokio::task::spawn_blocking(move || {
            let _loan = Loan;
            lister.read_on(&fd, reading);
        });
    }

    /// Stat records from the cookie `at` on.
    pub(super) fn read_records(&self, at: u64, max: u32) -> Result<Records, Error> {
        let open = self.opened()?;
        let mut parts = open.dir.as_ref().ok_or(Errno::ENOTDIR)?.parts();
        parts.set_max(CHUNK);
        let mut sink = StatSink::new(self.session.dialect, max);
        let mut behind = at;
        let starts = at == 0 || at >= HERE;
        // A directory that was removed has no entries any more.
        if self.session.dialect == Dialect::Unix && starts && look(open.fd.as_fd())?.stx_nlink > 0 {
            for (cookie, name) in [(HERE, &b"."[..]), (PARENT, b"..")] {
                if behind >= cookie {
                    continue;
                }
                let node = if cookie == HERE { self.node.clone() } else { self.parent() };
                if !self.tell(&mut sink, self.record_of_dir(&node, name), cookie)? {
                    return Ok(sink.into_records());
                }
                behind = cookie;
            }
        }
        let from = if behind < HERE { behind } else { 0 };
        if parts.is_elsewhere(from) {
            go(&open.fd, from)?;
            parts.went(from);
        }
        let mut chunk = Vec::new();
        loop {
            let Some((name, cookie)) = parts.peek() else {
                match parts.take_stop() {
                    None => {}
                    Some(Err(error)) if sink.is_empty() => return Err(error),
                    // Behind what is told it is looked for again.
                    Some(_) => break,
                }
                chunk.reserve(CHUNK);
                let mut growing = parts.grow(None);
                let behind = read_chunk(&open.fd, &mut chunk, &mut growing, |entry, _, _| {
                    // The file is looked at when it is told of.
                    Some((entry.file_type(), Qid { kind: QidType::FILE, version: 0, path: entry.ino() }))
                });
                parts.grown(growing, behind);
                continue;
            };
            if &*name != b"." && &*name != b".." {
                let record = look_up(&self.session.export, &open.fd, &name)
                    .and_then(|entry| self.record_of_entry(&entry, &name));
                if !self.tell(&mut sink, record, cookie)? {
                    break;
                }
            }
            parts.advance();
        }
        Ok(sink.into_records())
    }

    /// Adds a record; `false` when what is in `sink` is to be told without it. One that there is not any more is left out.
    fn tell(&self, sink: &mut StatSink, record: Result<StatBuf, Error>, cookie: u64) -> Result<bool, Error> {
        match record {
            Ok(record) if sink.push(&record.as_stat(), cookie) => Ok(true),
            Ok(_) if sink.is_empty() => Err(Errno::EINVAL.into()),
            Ok(_) => Ok(false),
            // The server's own shortage must not make a folder look empty.
            Err(error) if matches!(error.errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => {
                if sink.is_empty() {
                    Err(error)
                } else {
                    Ok(false)
                }
            }
            // An entry that has gone since, or that cannot be entered.
            Err(_) => Ok(true),
        }
    }
}

/// Reads a directory for .L.
struct Lister {
    session: Arc<Session>,
    id: FileId,
    parent: FileId,
}

impl Lister {
    /// Reads until nobody waits and enough is read ahead.
    fn read_on(&self, fd: &OwnedFd, mut reading: Reading) {
        let mut chunk = Vec::with_capacity(CHUNK);
        loop {
            match reading.next() {
                Next::Go(cookie) => reading.went(cookie, go(fd, cookie)),
                Next::Read(mut growing) => {
                    let mounted = self.session.export.tree.mounts.points(fd.as_fd());
                    let behind = read_chunk(fd, &mut chunk, &mut growing, |entry, name, growing| {
                        let covered = mounted.as_ref().is_some_and(|names| names.contains(name));
                        self.kind_and_qid(fd, entry, name, covered, growing)
                    });
                    reading.read(growing, behind);
                }
                Next::Stop => return,
            }
        }
    }

    /// None when it would have to be looked up, and may not be.
    fn kind_and_qid(
        &self,
        fd: &OwnedFd,
        entry: &RawDirEntry<'_>,
        name: &[u8],
        covered: bool,
        growing: &Growing,
    ) -> Option<(FileType, Qid)> {
        let Session { export, dialect, .. } = &*self.session;
        let told = |kind, dev, ino| {
            (kind, Qid { kind: qid::kind(kind, *dialect), version: 0, path: export.qids.path(dev, ino) })
        };
        let listed = entry.file_type();
        Some(match name {
            b"." => told(FileType::Directory, self.id.dev, self.id.ino),
            b".." => told(FileType::Directory, self.parent.dev, self.parent.ino),
            _ if (covered || listed == FileType::Unknown) && !growing.may_look_up(name) => return None,
            _ if covered || listed == FileType::Unknown => match look_up(export, fd, name) {
                Ok(entry) => told(qid::file_type(&entry.stx), qid::device(&entry.stx), entry.stx.stx_ino),
                // Gone, or a mount that nobody may enter: it is told as the directory has it.
                Err(_) => told(listed, self.id.dev, entry.ino()),
            },
            _ => told(listed, self.id.dev, entry.ino()),
        })
    }
}

/// An entry, whoever asks: permission to read the directory is permission to see what it lists.
fn look_up(export: &Export, fd: &OwnedFd, name: &[u8]) -> Result<Entry, Error> {
    Identity::of_server().assume()?;
    export.tree.open_entry(fd.as_fd(), name, Pace::MayWait)
}

/// Goes to a cookie that an entry was told with, or 0. One that was never told is the kernel's to judge.
fn go(fd: &OwnedFd, cookie: u64) -> Result<(), Error> {
    seek(fd, SeekFrom::Start(cookie)).map_err(os).map(drop)
}

/// Makes one getdents(2), and puts what it brings into `growing` with the kind and qid that `tell` gives, up to an entry for
/// which it gives none.
fn read_chunk(
    fd: &OwnedFd,
    chunk: &mut Vec<u8>,
    growing: &mut Growing,
    tell: impl Fn(&RawDirEntry<'_>, &[u8], &Growing) -> Option<(FileType, Qid)>,
) -> Result<Behind, Error> {
    growing.reserve();
    let mut raw = RawDir::new(fd, chunk.spare_capacity_mut());
    loop {
        match raw.next() {
            // A directory that was removed has no entries any more.
            None | Some(Err(rustix::io::Errno::NOENT)) => return Ok(Behind::End),
            Some(Err(error)) => return Err(os(error)),
            Some(Ok(entry)) => {
                let name = entry.file_name().to_bytes();
                let Some((kind, qid)) = tell(&entry, name, growing) else { return Ok(Behind::LookUp) };
                growing.push(&DirEntry { qid, offset: entry.next_entry_cookie(), kind: dirent_type(kind), name });
            }
        }
        if raw.is_buffer_empty() {
            return Ok(Behind::More);
        }
    }
}

/// `d_type` of getdents(2).
fn dirent_type(kind: FileType) -> u8 {
    match kind {
        FileType::Fifo => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::RegularFile => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
        FileType::Unknown => 0,
    }
}
