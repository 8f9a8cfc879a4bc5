//! The temporary files of one command: which are there, and which may be left.
//!
//! [`Temporaries::enter`] before a file is made; the [`Entry`] is dropped when the file is known to be gone or renamed,
//! and [`Entry::left`] says that nobody knows. What must not be cut in two by Ctrl-C goes through
//! [`Temporaries::see_through`]. The end of a command calls [`Temporaries::end`], waits for [`Temporaries::settled`] as
//! long as it likes, and tells what [`Temporaries::left`] gives.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ninefold::client::Error;
use ninefold::proto::Errno;
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
    /// What to tell the user if it stays so.
    live: BTreeMap<u64, String>,
    left: Vec<String>,
    ending: bool,
}

impl Temporaries {
    /// A temporary file that is about to be made, by its address.
    pub fn file(&self, address: impl fmt::Display) -> Entry {
        self.enter(format!("{address}: this temporary file may be left: remove it"))
    }

    /// Anything that must not be left half done; `warning` is what the user is told if it may be.
    pub fn enter(&self, warning: String) -> Entry {
        let mut files = self.lock();
        let number = files.next;
        files.next += 1;
        files.live.insert(number, warning);
        Entry { temporaries: self.clone(), number }
    }

    /// Does work that goes on to its end even if nobody waits for it any more; the end of the command waits for it.
    /// `warning` is told if even that is cut short.
    pub async fn see_through<T: Send + 'static>(
        &self,
        warning: String,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let entry = self.enter(warning);
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(entry);
            result
        });
        // It fails when the runtime ends.
        task.await.unwrap_or_else(|_| Err(Errno::ECANCELED.into()))
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

    /// The warnings of those that may still be there.
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
        if let Some(warning) = files.live.remove(&self.number) {
            files.left.push(warning);
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
