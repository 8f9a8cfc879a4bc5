//! The descriptors of files of servers: their numbers, and what is open behind each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use nine::proto::Errno;

use crate::descriptor::Descriptor;
use crate::fence::{EBADF, EMFILE};

/// The first number. The kernel gives none so large, whatever fs.nr_open allows: its table of a process's descriptors is one
/// allocation of at most `INT_MAX` bytes, 2^28 pointers (fs/file.c, alloc_fdtable).
pub const FIRST: i32 = 1 << 30;

/// The first of those that are not of files of servers: see `handles`.
pub const FIRST_OF_STREAMS: i32 = FIRST + (1 << 29);

/// Files open at a time: as many as Linux lets a process have (proc_sys_fs(5), nr_open).
const OPEN_MAX: usize = 1 << 20;

pub struct Table {
    open: RwLock<HashMap<i32, Arc<Descriptor>>>,
    /// Numbers are not given again before all 2^29 were, so that what is used after its close is EBADF and not another file.
    next: AtomicI32,
}

impl Default for Table {
    fn default() -> Table {
        Table { open: RwLock::default(), next: AtomicI32::new(FIRST) }
    }
}

impl Table {
    /// An empty one whose numbers go on where this one's ended. Takes no lock: a child of fork(2) may never get it.
    pub fn after(&self) -> Table {
        Table { next: AtomicI32::new(self.next.load(Ordering::Relaxed)), ..Table::default() }
    }

    pub fn insert(&self, descriptor: Descriptor) -> Result<i32, Errno> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= OPEN_MAX {
            return Err(EMFILE);
        }
        loop {
            let number = self.next.load(Ordering::Relaxed);
            self.next.store(if number + 1 < FIRST_OF_STREAMS { number + 1 } else { FIRST }, Ordering::Relaxed);
            if let std::collections::hash_map::Entry::Vacant(free) = open.entry(number) {
                free.insert(Arc::new(descriptor));
                return Ok(number);
            }
        }
    }

    pub fn get(&self, number: i32) -> Result<Arc<Descriptor>, Errno> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number).cloned().ok_or(EBADF)
    }

    pub fn remove(&self, number: i32) -> Result<Arc<Descriptor>, Errno> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.remove(&number).ok_or(EBADF)
    }
}
