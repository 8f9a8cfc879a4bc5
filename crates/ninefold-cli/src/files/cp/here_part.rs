//! The part of a file that is copied to this machine: made, or found again by `--resume`; and [`Claim`], who may give it
//! its name or remove it.
//!
//! It is locked (flock(2)) from the beginning on: every copy of a source finds the same part.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ninefold::client::FileType;
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, fchmod, fchown, flock, fstat, openat, statat};
use rustix::io::{Errno, pread};

use super::blocks::{Blocks, fits, marked_length, number_of, record_length};
use super::facts::Facts;
use super::here::{Dir, permissions};
use super::here_file::{Plan, To};
use super::trouble::Cause;

/// Times that a part of the same name is removed before it is somebody's doing.
const ATTEMPTS: usize = 3;

/// The name of a part: whoever holds the lock may rename it or remove it, and does so once.
#[derive(Debug, Default)]
pub struct Claim {
    part: Mutex<Option<Part>>,
    /// It could not be removed.
    left: AtomicBool,
}

#[derive(Debug)]
pub struct Part {
    dir: Arc<Dir>,
    pub name: CString,
    /// An interrupted copy is to be gone on with.
    keep: bool,
}

impl Claim {
    fn lock(&self) -> MutexGuard<'_, Option<Part>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, part: Part) {
        *self.lock() = Some(part);
    }

    pub fn give_up(&self, keep_it: bool) {
        if let Some(part) = self.lock().take()
            && !(part.keep && keep_it)
            && part.dir.remove(&part.name).is_err_and(|cause| !cause.is(ninefold::proto::Errno::ENOENT))
        {
            self.left.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    pub fn rename(&self, to: &CString) -> Result<(), Cause> {
        let mut part = self.lock();
        match &*part {
            Some(it) => it.dir.rename(&it.name, to)?,
            None => return Err(Cause::words("it was given up")),
        }
        *part = None;
        Ok(())
    }
}

/// A part, open.
pub struct Opened {
    pub part: Part,
    pub fd: OwnedFd,
    /// Bytes of its beginning that are there.
    pub offset: u64,
    /// Of one with gaps.
    pub blocks: Option<Blocks>,
}

/// Makes the part, or opens the one that an interrupted copy left.
pub fn open(plan: &Plan, old: Option<&Facts>) -> Result<Opened, Cause> {
    let To::Entry { dir, part, .. } = &plan.to else { return Err(Cause::Here(ninefold::proto::Errno::EINVAL)) };
    // Until it has its owner, what is to keep its permissions is nobody else's to read.
    let mode = if plan.preserve { 0o600 } else { old.map_or(plan.mode, Facts::permissions) };
    let keep = plan.keep;
    for _ in 0..ATTEMPTS {
        // What is there of it is read, too.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let made = openat(dir, part, flags | OFlags::CREATE | OFlags::EXCL, permissions(mode));
        let (fd, is_new) = match made {
            Ok(fd) => (fd, true),
            Err(Errno::EXIST) => match openat(dir, part, flags, Mode::empty()) {
                Ok(fd) => (fd, false),
                Err(Errno::NOENT) => continue,
                // No plain file, or one that may not be written.
                Err(_) => {
                    dir.remove(part)?;
                    continue;
                }
            },
            Err(e) => return Err(e.into()),
        };
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Cause::words("another copy of it is under way")),
            // A file system without locks.
            Err(_) => {}
        }
        let stat = fstat(&fd)?;
        match statat(dir, part, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino) => {}
            // Whoever held the lock before has renamed or removed it.
            Ok(_) | Err(Errno::NOENT) => continue,
            Err(e) => return Err(e.into()),
        }
        let mine = stat.st_uid == rustix::process::geteuid().as_raw();
        let size = stat.st_size.max(0).cast_unsigned();
        let can_go_on = plan.resume && mine && stat.st_nlink == 1 && Facts::from(&stat).kind == FileType::File;
        let blocks = match can_go_on && fits(plan.source.size) && size == marked_length(plan.source.size) {
            true => blocks(&fd, plan.source.size)?,
            false => None,
        };
        let usable = is_new || can_go_on && (size <= plan.source.size || blocks.is_some());
        if !usable {
            dir.remove(part)?;
            continue;
        }
        let part = Part { dir: dir.clone(), name: part.clone(), keep };
        let alike = match old {
            _ if plan.preserve => Ok(()),
            Some(old) => make_alike(&fd, &stat, old),
            // The copy that left it may have been told otherwise.
            None if !is_new => fchmod(&fd, permissions(plan.mode)).map_err(Cause::from),
            None => Ok(()),
        };
        if let Err(e) = alike {
            let _ = dir.remove(&part.name);
            return Err(e);
        }
        let offset = blocks.as_ref().map_or(size, Blocks::beginning);
        return Ok(Opened { part, fd, offset, blocks });
    }
    Err(Cause::words("somebody makes files of its temporary name"))
}

/// What the record of a part says is there, and is.
fn blocks(fd: &OwnedFd, size: u64) -> Result<Option<Blocks>, Cause> {
    let record = read_at(fd, size, record_length(size))?;
    let Some(mut blocks) = Blocks::parse(size, &record) else { return Ok(None) };
    for block in 0..blocks.count() {
        let Some(number) = blocks.number(block) else { continue };
        let (start, end) = blocks.extent(block);
        if number_of(&read_at(fd, start, end - start)?) != number {
            blocks.strike(block);
        }
    }
    Ok(Some(blocks))
}

/// So many bytes of a file, or as many as it has.
pub fn read_at(fd: &OwnedFd, at: u64, length: u64) -> Result<Vec<u8>, Cause> {
    let length = usize::try_from(length).map_err(|_| Cause::Here(ninefold::proto::Errno::EFBIG))?;
    let mut data = Vec::with_capacity(length);
    while data.len() < length {
        let next = at + data.len() as u64;
        match pread(fd, spare_capacity(&mut data), next) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    data.truncate(length);
    Ok(data)
}

/// Gives the file the owner and the permissions of the one that it replaces.
fn make_alike(fd: &OwnedFd, new: &rustix::fs::Stat, old: &Facts) -> Result<(), Cause> {
    let (uid, gid) = (old.uid.unwrap_or(new.st_uid), old.gid.unwrap_or(new.st_gid));
    if (uid, gid) != (new.st_uid, new.st_gid) {
        let uid = Some(Uid::from_raw(uid)).filter(|uid| uid.as_raw() != new.st_uid);
        fchown(fd, uid, Some(Gid::from_raw(gid)))?;
    }
    if new.st_mode & 0o777 != old.permissions() {
        fchmod(fd, permissions(old.permissions()))?;
    }
    Ok(())
}
