//! The temporary files of one command: which are there, and which may be left.
//!
//! [`Temporaries::enter`] before a file is made; the [`Entry`] is dropped when the file is known to be gone or renamed,
//! and [`Entry::left`] says that nobody knows. The end of a command calls [`Temporaries::end`], waits for
//! [`Temporaries::settled`] as long as it likes, and names what [`Temporaries::left`] gives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ninefold::client::Error;
use tokio::sync::Notify;

/// See the module. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Temporaries(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Never locked across an await.
    files: Mutex<Files>,
    /// Told when one is settled, and when the command ends.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Files {
    next: u64,
    /// As messages name them.
    live: BTreeMap<u64, String>,
    left: Vec<String>,
    ending: bool,
}

impl Temporaries {
    /// A file that is about to be made; `shown` is how messages name it.
    pub fn enter(&self, shown: String) -> Entry {
        let mut files = self.lock();
        let number = files.next;
        files.next += 1;
        files.live.insert(number, shown);
        Entry { temporaries: self.clone(), number }
    }

    /// The command ends: whatever takes long is to be given up.
    pub fn end(&self) {
        self.lock().ending = true;
        self.0.changed.notify_waiters();
    }

    /// Waits for [`Temporaries::end`].
    pub async fn ended(&self) {
        self.until(|files| files.ending).await;
    }

    /// Waits until it is known of every file what became of it.
    pub async fn settled(&self) {
        self.until(|files| files.live.is_empty()).await;
    }

    /// The names of those that may still be there.
    pub fn left(&self) -> Vec<String> {
        let files = self.lock();
        files.left.iter().chain(files.live.values()).cloned().collect()
    }

    async fn until(&self, done: impl Fn(&Files) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that a change between the two is not missed.
            changed.as_mut().enable();
            if done(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A temporary file, until it is known what became of it.
#[derive(Debug)]
pub struct Entry {
    temporaries: Temporaries,
    number: u64,
}

impl Entry {
    /// It may stay for ever.
    pub fn left(self) {
        let mut files = self.temporaries.lock();
        if let Some(shown) = files.live.remove(&self.number) {
            files.left.push(shown);
        }
    }

    /// It is gone if `removed` says so.
    pub fn removed(self, removed: &Result<(), Error>) {
        match removed {
            Ok(()) => {}
            Err(e) if e.is_not_found() => {}
            Err(_) => self.left(),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.temporaries.lock().live.remove(&self.number);
        self.temporaries.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use ninefold::proto::Errno;

    use super::*;

    #[tokio::test]
    async fn all_is_settled_when_every_file_is_gone_or_given_up() {
        let temporaries = Temporaries::default();
        let (gone, refused) = (temporaries.enter("gone".into()), temporaries.enter("refused".into()));
        let settled = temporaries.settled();
        tokio::pin!(settled);
        assert!(matches!(futures_util::poll!(&mut settled), Poll::Pending));
        gone.removed(&Err(Errno::ENOENT.into()));
        assert_eq!(temporaries.left(), ["refused"]);
        refused.removed(&Err(Errno::EACCES.into()));
        settled.await;
        assert_eq!(temporaries.left(), ["refused"]);
    }

    #[tokio::test]
    async fn who_asks_after_the_end_is_told_at_once() {
        let temporaries = Temporaries::default();
        temporaries.end();
        temporaries.ended().await;
    }
}
