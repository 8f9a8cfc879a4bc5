//! Memory that the open directories of an export share, so that no client takes all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ninefold_proto::Errno;

/// Bytes that are free.
#[derive(Debug)]
pub(super) struct Room(AtomicUsize);

/// A part of it, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    pub fn new(bytes: usize) -> Arc<Room> {
        Arc::new(Room(AtomicUsize::new(bytes)))
    }

    /// Nothing of it yet.
    pub fn none(self: &Arc<Room>) -> Held {
        Held { room: self.clone(), bytes: 0 }
    }
}

impl Held {
    /// Takes so many bytes more; ENOMEM where there are not as many.
    pub fn more(&mut self, bytes: usize) -> Result<(), Errno> {
        let less = |free: usize| free.checked_sub(bytes);
        let taken = self.room.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.map_err(|_| Errno::ENOMEM)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.bytes, Ordering::AcqRel);
    }
}
