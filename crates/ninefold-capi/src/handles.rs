//! Descriptors of streams: their numbers, and the stream behind each. Several may be of one stream, which has one offset.
//!
//! A descriptor keeps no stream: when that is closed, each of its descriptors is as if closed too. A call by one has the stream while it lasts.

use std::collections::HashMap;
use std::io::SeekFrom;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, TryLockError, Weak};

use nine::proto::Errno;
use nix::libc;

use crate::asf::{Asf, place};
use crate::fence::{EBADF, EMFILE, errno_of_stream};
use crate::kernel;
use crate::stdio::put;
use crate::table::FIRST_OF_STREAMS;

/// Descriptors of streams at a time, as `table` has it for files of servers.
const OPEN_MAX: usize = 1 << 20;

/// What a descriptor is of.
#[derive(Clone)]
pub struct Handle {
    asf: Weak<Asf>,
    /// What C has of the stream.
    stream: usize,
}

type Open = HashMap<i32, Handle>;

static OPEN: LazyLock<RwLock<Open>> = LazyLock::new(RwLock::default);

/// The next number. None is given again before all 2^29 were.
static NEXT: AtomicI32 = AtomicI32::new(FIRST_OF_STREAMS);

/// The process that gave the last one.
static GIVEN_BY: AtomicI32 = AtomicI32::new(0);

fn this_process() -> i32 {
    std::process::id().cast_signed()
}

/// Takes a lock. In a child of fork(2) one that is not free may be one that a thread of the parent's had, and nobody opens: EBADF.
fn locked<G>(tried: Result<G, TryLockError<G>>, wait: impl FnOnce() -> G) -> Result<G, Errno> {
    match tried {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(guard)) => Ok(guard.into_inner()),
        // Relaxed: who finds the lock taken in the process that made it may wait.
        Err(TryLockError::WouldBlock) if GIVEN_BY.load(Ordering::Relaxed) == this_process() => Ok(wait()),
        Err(TryLockError::WouldBlock) => Err(EBADF),
    }
}

fn with<T>(f: impl FnOnce(&mut Open) -> T) -> Result<T, Errno> {
    let mut open = locked(OPEN.try_write(), || OPEN.write().unwrap_or_else(PoisonError::into_inner))?;
    Ok(f(&mut open))
}

pub fn insert(handle: Handle) -> Result<i32, Errno> {
    with(|open| {
        // Those whose stream was closed are nobody's.
        if open.len() >= OPEN_MAX {
            open.retain(|_, handle| handle.asf.strong_count() > 0);
        }
        if open.len() >= OPEN_MAX {
            return Err(EMFILE);
        }
        GIVEN_BY.store(this_process(), Ordering::Relaxed);
        loop {
            let number = NEXT.load(Ordering::Relaxed);
            NEXT.store(number.checked_add(1).unwrap_or(FIRST_OF_STREAMS), Ordering::Relaxed);
            if let std::collections::hash_map::Entry::Vacant(free) = open.entry(number) {
                free.insert(handle);
                return Ok(number);
            }
        }
    })?
}

/// What the number is of; None where it is of no stream but the kernel's or a server's.
pub fn find(number: i32) -> Result<Option<Handle>, Errno> {
    if number < FIRST_OF_STREAMS {
        return Ok(None);
    }
    let open = locked(OPEN.try_read(), || OPEN.read().unwrap_or_else(PoisonError::into_inner))?;
    let handle = open.get(&number).filter(|handle| handle.asf.strong_count() > 0);
    handle.cloned().map(Some).ok_or(EBADF)
}

/// Takes the number away. The stream goes on, and what was written is in the file, or the error told.
pub fn close(number: i32) -> Result<(), Errno> {
    let handle = with(|open| open.remove(&number))?.ok_or(EBADF)?;
    handle.with(Asf::flush)
}

impl Handle {
    pub fn new(asf: Weak<Asf>, stream: usize) -> Handle {
        Handle { asf, stream }
    }

    pub fn stream(&self) -> usize {
        self.stream
    }

    fn with<T>(&self, f: impl FnOnce(&Asf) -> Result<T, Errno>) -> Result<T, Errno> {
        let asf: Arc<Asf> = self.asf.upgrade().ok_or(EBADF)?;
        f(&asf)
    }

    pub fn read(&self, bytes: &mut [u8]) -> Result<i64, Errno> {
        self.with(|asf| asf.read(bytes).map(|read| read as i64))
    }

    /// What was opened to append is written at once, so that what other processes append is before or behind it.
    pub fn write(&self, bytes: &[u8]) -> Result<i64, Errno> {
        self.with(|asf| {
            let taken = put(asf, bytes)?;
            if asf.stream().module() == "append" {
                let _ = asf.flush(); // it is taken: what is wrong the next flush tells
            }
            Ok(taken as i64)
        })
    }

    pub fn seek(&self, offset: i64, whence: i32) -> Result<i64, Errno> {
        self.with(|asf| {
            let to = match whence {
                libc::SEEK_DATA | libc::SEEK_HOLE => {
                    let found = asf.stream().with_descriptor(false, |fd| kernel::seek(fd.as_raw_fd(), offset, whence));
                    SeekFrom::Start(found.map_err(errno_of_stream)??.cast_unsigned())
                }
                _ => place(offset, whence)?,
            };
            asf.stream().seek(to).map(u64::cast_signed).map_err(errno_of_stream)
        })
    }

    /// The system call on the file, in which is what was freed before.
    pub fn directly<T>(&self, changes: bool, call: impl FnOnce(i32) -> Result<T, Errno>) -> Result<T, Errno> {
        self.with(|asf| asf.stream().with_descriptor(changes, |fd| call(fd.as_raw_fd())).map_err(errno_of_stream)?)
    }

    pub fn flush(&self) -> Result<i32, Errno> {
        self.with(|asf| asf.flush().map(|()| 0))
    }

    pub fn sync(&self) -> Result<i32, Errno> {
        self.with(|asf| asf.stream().sync().map(|()| 0).map_err(errno_of_stream))
    }
}
