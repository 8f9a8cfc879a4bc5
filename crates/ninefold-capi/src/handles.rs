//! Descriptors of streams: their numbers, and the stream behind each. Several may be of one stream, which has one offset.
//!
//! A descriptor keeps no stream: when that is closed, each of its descriptors is as if closed too. A call by one has the stream while it lasts.

use std::cell::{Cell, UnsafeCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::SeekFrom;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard, Weak};

use nine::proto::Errno;
use nix::libc;

use crate::asf::{Asf, place};
use crate::fence::{EBADF, EMFILE, errno_of_stream, os};
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

struct Open {
    handles: BTreeMap<i32, Handle>,
    /// The next number. None is given again before all 2^29 were.
    next: i32,
    /// So many are looked through for those whose stream was closed.
    many: usize,
}

/// The fewest that are looked through: of fewer it matters to nobody.
const MANY: usize = 1 << 10;

/// Made before main, so that a fork finds it whole.
static OPEN: RwLock<Open> = RwLock::new(Open { handles: BTreeMap::new(), next: FIRST_OF_STREAMS, many: MANY });

impl Open {
    fn insert(&mut self, handle: Handle) -> Result<i32, Errno> {
        if self.handles.len() >= self.many {
            // Those whose stream was closed are nobody's. As many come again before the next look, so that it costs each of them little.
            self.handles.retain(|_, handle| handle.asf.strong_count() > 0);
            self.many = MANY.max(2 * self.handles.len()).min(OPEN_MAX);
        }
        if self.handles.len() >= OPEN_MAX {
            return Err(EMFILE);
        }
        loop {
            let number = self.next;
            self.next = number.checked_add(1).unwrap_or(FIRST_OF_STREAMS);
            if let Entry::Vacant(free) = self.handles.entry(number) {
                free.insert(handle);
                return Ok(number);
            }
        }
    }
}

thread_local! {
    /// How often this thread has the table for a fork: as often as the three below were registered.
    static FORKING: Cell<u32> = const { Cell::new(0) };
}

/// Where that thread has the table's guard meanwhile.
struct Kept(UnsafeCell<Option<RwLockWriteGuard<'static, Open>>>);

// SAFETY: only who has the table's lock touches it.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept(UnsafeCell::new(None));

/// Waits until no other thread is at the table: none of them is in the child, to unlock it there.
extern "C" fn before_fork() {
    FORKING.with(|times| {
        times.set(times.get() + 1);
        if times.get() == 1 {
            let guard = OPEN.write().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the lock is this thread's.
            unsafe { *KEPT.0.get() = Some(guard) };
        }
    });
}

/// In the parent and in the child.
extern "C" fn after_fork() {
    FORKING.with(|times| match times.get() {
        0 => {}
        1 => {
            times.set(0);
            // SAFETY: the lock is still this thread's.
            drop(unsafe { (*KEPT.0.get()).take() });
        }
        more => times.set(more - 1),
    });
}

/// Sees to it that forks wait for the table, before it has a first entry; where two threads do so at once, twice, which is as good.
fn register() -> Result<(), Errno> {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if REGISTERED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: what is called at a fork stays loaded as the library does.
    match unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) } {
        0 => REGISTERED.store(true, Ordering::Release),
        e => return Err(os(e)),
    }
    Ok(())
}

fn table() -> RwLockWriteGuard<'static, Open> {
    OPEN.write().unwrap_or_else(PoisonError::into_inner)
}

pub fn insert(handle: Handle) -> Result<i32, Errno> {
    register()?;
    table().insert(handle)
}

/// What the number is of; None where it is of no stream but the kernel's or a server's.
pub fn find(number: i32) -> Result<Option<Handle>, Errno> {
    if number < FIRST_OF_STREAMS {
        return Ok(None);
    }
    let open = OPEN.read().unwrap_or_else(PoisonError::into_inner);
    let handle = open.handles.get(&number).filter(|handle| handle.asf.strong_count() > 0);
    handle.cloned().map(Some).ok_or(EBADF)
}

/// Takes the number away. The stream goes on, and what was written is in the file, or the error told.
pub fn close(number: i32) -> Result<(), Errno> {
    let handle = table().handles.remove(&number).ok_or(EBADF)?;
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
            let appends = asf.stream().module() == "append";
            let taken = if appends { asf.append(bytes)? } else { put(asf, bytes).count(1)? };
            Ok(taken as i64)
        })
    }

    pub fn seek(&self, offset: i64, whence: i32) -> Result<i64, Errno> {
        self.with(|asf| {
            let to = match whence {
                libc::SEEK_DATA | libc::SEEK_HOLE => {
                    let found = asf.stream().with_descriptor(false, |fd| kernel::find(fd.as_raw_fd(), offset, whence));
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
