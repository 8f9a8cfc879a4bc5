//! Open files of this process: which streams are on the same one, so that what one of them frees the others see (§2).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use parking_lot::ReentrantMutex;

use super::core::Core;
use crate::fault::Notice;

/// Device and inode number.
pub type Key = (u64, u64);

pub struct File {
    key: Option<Key>,
    /// Held by whoever is at several streams of the file, and by each that is not in a short section once the file is shared.
    pub lock: ReentrantMutex<()>,
    /// Raised by each change that streams of this process must see: a buffer that was read before is stale.
    changes: Arc<Changes>,
    /// Several streams, one of which writes. Changed under `lock`.
    shared: AtomicBool,
    streams: Mutex<Vec<Weak<Core>>>,
}

pub struct Changes(pub AtomicU64);

impl Notice for Changes {
    fn is_shorter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

static FILES: Mutex<Option<HashMap<Key, Weak<File>>>> = Mutex::new(None);

impl File {
    /// The file of that key, one for the process; a new one where there is no key: a pipe is nobody else's.
    pub fn of(key: Option<Key>) -> Arc<File> {
        let new = || {
            Arc::new(File {
                key,
                lock: ReentrantMutex::new(()),
                changes: Arc::new(Changes(AtomicU64::new(0))),
                shared: AtomicBool::new(false),
                streams: Mutex::new(Vec::new()),
            })
        };
        let Some(key) = key else {
            return new();
        };
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let files = files.get_or_insert_default();
        if let Some(file) = files.get(&key).and_then(Weak::upgrade) {
            return file;
        }
        let file = new();
        files.insert(key, Arc::downgrade(&file));
        file
    }

    #[inline(always)]
    pub fn changes(&self) -> &AtomicU64 {
        &self.changes.0
    }

    pub fn counter(&self) -> Arc<Changes> {
        self.changes.clone()
    }

    pub fn notice(&self) -> Arc<dyn Notice> {
        self.changes.clone()
    }

    pub fn changed(&self) {
        self.changes().fetch_add(1, Ordering::Relaxed);
    }

    pub fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// The streams on it but `me`. The caller holds `lock`.
    pub fn others(&self, me: &Core) -> Vec<Arc<Core>> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().filter_map(Weak::upgrade).filter(|core| !std::ptr::eq(&raw const **core, me)).collect()
    }

    /// A stream is opened on it. What the others wrote goes to the module, and they tell of each change from now on.
    pub fn join(&self, core: &Arc<Core>) {
        let _lock = self.lock.lock();
        let others = self.others(core);
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(core));
        let writes = core.writes || others.iter().any(|core| core.writes);
        if others.is_empty() || !writes {
            return;
        }
        self.shared.store(true, Ordering::Relaxed);
        for stream in others.iter().chain([core]) {
            let mut state = stream.enter();
            state.be_loud();
        }
        self.changed();
    }

    /// A stream ends.
    pub fn part(&self, core: &Core) {
        let _lock = self.lock.lock();
        let others = self.others(core);
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|weak| weak.upgrade().is_some_and(|c| !std::ptr::eq(&raw const *c, core)));
        if others.len() < 2 || !others.iter().any(|core| core.writes) {
            // Streams stay loud: it costs them little, and they are not entered for it.
            self.shared.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
            let files = files.get_or_insert_default();
            // Another of the same key may have come meanwhile.
            if files.get(&key).is_some_and(|file| file.strong_count() == 0) {
                files.remove(&key);
            }
        }
    }
}
