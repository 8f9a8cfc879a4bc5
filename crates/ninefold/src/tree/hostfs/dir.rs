//! Reading directories.
//!
//! Cookies are the kernel's own (`d_off`), which stay good while entries come and go. One getdents(2)
//! brings more entries than a reply holds: [`DirStream`] keeps the rest, so a reader that goes on
//! where it stopped costs no seek and loses nothing.
//!
//! The qid of an entry is made from `d_ino`, without looking at the file, and so has version 0. That
//! number is the covered directory's where something is mounted; only there the entry is looked up.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::TryLockError;

use bytes::Bytes;
use ninefold_proto::stat::DirEntry;
use ninefold_proto::{Errno, Error, Qid};
use rustix::fs::{FileType, RawDir, SeekFrom, seek};

use super::creds::Identity;
use super::file::HostFile;
use super::node::Entry;
use super::{Pace, lock, os, qid};
use crate::server::DirSink;

/// Bytes a getdents(2) may fill: what glibc's readdir(3) asks for.
const CHUNK: usize = 32 << 10;

/// Entries that were read and not told yet.
#[derive(Default, Debug)]
pub(super) struct DirStream {
    entries: Vec<Slot>,
    names: Vec<u8>,
    /// The first entry not told.
    next: usize,
    /// The cookie that the first entry not told follows.
    at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    ino: u64,
    cookie: u64,
    kind: FileType,
    /// Where its name ends in `names`; it begins where the one before ends.
    end: usize,
}

impl DirStream {
    /// Goes to a cookie that an entry was told with, or 0.
    fn go(&mut self, fd: &OwnedFd, cookie: u64) -> Result<(), Error> {
        if self.at == cookie && (cookie != 0 || self.next > 0) {
            return Ok(());
        }
        // One that was never told is the kernel's to judge. Refused, all stays as it is: what was read is still ahead.
        seek(fd, SeekFrom::Start(cookie)).map_err(os)?;
        self.forget();
        self.at = cookie;
        Ok(())
    }

    fn forget(&mut self) {
        *self = DirStream { at: self.at, ..DirStream::default() };
    }

    fn peek(&self) -> Option<(Slot, &[u8])> {
        let slot = *self.entries.get(self.next)?;
        let start = if self.next == 0 { 0 } else { self.entries[self.next - 1].end };
        Some((slot, &self.names[start..slot.end]))
    }

    fn advance(&mut self) {
        self.at = self.entries[self.next].cookie;
        self.next += 1;
    }

    /// Reads more. False at the end of the directory.
    fn fill(&mut self, fd: &OwnedFd) -> Result<bool, Error> {
        self.forget();
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut raw = RawDir::new(fd, chunk.spare_capacity_mut());
        loop {
            match raw.next() {
                None => break,
                // A directory that was removed has no entries any more.
                Some(Err(rustix::io::Errno::NOENT)) => break,
                Some(Err(error)) => return Err(os(error)),
                Some(Ok(entry)) => {
                    self.names.extend_from_slice(entry.file_name().to_bytes());
                    self.entries.push(Slot {
                        ino: entry.ino(),
                        cookie: entry.next_entry_cookie(),
                        kind: entry.file_type(),
                        end: self.names.len(),
                    });
                }
            }
            if raw.is_buffer_empty() {
                break;
            }
        }
        Ok(!self.entries.is_empty())
    }

    /// Bytes that the entries not told yet will take in a reply, at least.
    fn waiting(&self) -> usize {
        let told = if self.next == 0 { 0 } else { self.entries[self.next - 1].end };
        (self.entries.len() - self.next) * 24 + self.names.len() - told
    }
}

impl HostFile {
    /// Entries of .L from the cookie `offset` on.
    pub(super) fn read_entries(&self, offset: u64, max: u32, pace: Pace) -> Result<Bytes, Error> {
        let open = self.opened()?;
        let mut stream = match pace {
            Pace::MayWait => lock(&open.dir),
            Pace::Inline => match open.dir.try_lock() {
                Ok(stream) => stream,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Err(Errno::EAGAIN.into()),
            },
        };
        // Inline only what needs neither the disk nor a second reply.
        if pace == Pace::Inline && (stream.at != offset || offset == 0 || stream.waiting() < max as usize) {
            return Err(Errno::EAGAIN.into());
        }
        stream.go(&open.fd, offset)?;
        let mounted = self.session.export.tree.mounts.points(open.fd.as_fd());
        if pace == Pace::Inline && mounted.is_some() {
            return Err(Errno::EAGAIN.into());
        }
        let mut sink = DirSink::new(max);
        loop {
            let Some((slot, name)) = stream.peek() else {
                if pace == Pace::Inline || !stream.fill(&open.fd)? {
                    break;
                }
                continue;
            };
            let covered = mounted.as_ref().is_some_and(|names| names.contains(name));
            let (kind, qid) = self.entry_qid(&open.fd, slot, name, covered);
            if !sink.push(&DirEntry { qid, offset: slot.cookie, kind: dirent_type(kind), name }) {
                if sink.is_empty() {
                    return Err(Errno::EINVAL.into());
                }
                break;
            }
            stream.advance();
        }
        Ok(sink.into_bytes())
    }

    fn entry_qid(&self, fd: &OwnedFd, slot: Slot, name: &[u8], covered: bool) -> (FileType, Qid) {
        let export = &self.session.export;
        let dialect = self.session.dialect;
        let qid = |kind, dev, ino| Qid { kind: qid::kind(kind, dialect), version: 0, path: export.qids.path(dev, ino) };
        let id = self.node.id;
        match name {
            b"." => (FileType::Directory, qid(FileType::Directory, id.dev, id.ino)),
            b".." => {
                let id = self.node.parent().map_or(id, |parent| parent.id);
                (FileType::Directory, qid(FileType::Directory, id.dev, id.ino))
            }
            _ if covered || slot.kind == FileType::Unknown => match self.look_up(fd, name) {
                Ok(entry) => {
                    let kind = qid::file_type(&entry.stx);
                    (kind, qid(kind, qid::device(&entry.stx), entry.stx.stx_ino))
                }
                // Gone, or a mount that nobody may enter: it is told as the directory has it.
                Err(_) => (slot.kind, qid(slot.kind, id.dev, slot.ino)),
            },
            _ => (slot.kind, qid(slot.kind, id.dev, slot.ino)),
        }
    }

    /// An entry, whoever asks: permission to read the directory is permission to see what it lists.
    fn look_up(&self, fd: &OwnedFd, name: &[u8]) -> Result<Entry, Error> {
        Identity::of_server().assume()?;
        self.session.export.tree.open_entry(fd.as_fd(), name, Pace::MayWait)
    }

    /// Stat records from the cookie `at` on, and the cookie behind them.
    pub(super) fn read_records(&self, at: u64, max: u32) -> Result<(Bytes, u64), Error> {
        let open = self.opened()?;
        let mut stream = lock(&open.dir);
        stream.go(&open.fd, at)?;
        let mut sink = DirSink::new(max);
        loop {
            let Some((_, name)) = stream.peek() else {
                if stream.fill(&open.fd)? {
                    continue;
                }
                break;
            };
            if name != b"." && name != b".." {
                let record = self.look_up(&open.fd, name).and_then(|entry| self.record_of_entry(&entry, name));
                match record {
                    Ok(record) if sink.push_stat(&record.as_stat(), self.session.dialect) => {}
                    Ok(_) if sink.is_empty() => return Err(Errno::EINVAL.into()),
                    Ok(_) => break,
                    // The server's own shortage must not make a folder look empty.
                    Err(error) if matches!(error.errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => {
                        if sink.is_empty() {
                            return Err(error);
                        }
                        break;
                    }
                    // An entry that has gone since, or that cannot be entered, is left out.
                    Err(_) => {}
                }
            }
            stream.advance();
        }
        Ok((sink.into_bytes(), stream.at))
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
