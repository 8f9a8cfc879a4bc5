//! The temporary files of one command: which are there, and which may be left.
//!
//! [`Temporaries::file`] before a file is made; [`Entry::gone`] when it is known to be gone or renamed. What must not be cut in two by Ctrl-C goes through
//! [`Temporaries::see_through`]. The end of a command calls [`Temporaries::end`], waits for [`Temporaries::settled`] as
//! long as it likes, calls [`Temporaries::cut`] and in the end [`Temporaries::drop_all`], and tells what
//! [`Temporaries::left`] gives.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ninefold::client::{Client, Error, Node};
use ninefold::proto::Errno;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::target::is_refusal;

/// Between two looks whether a server has answered, while the command ends.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The longest wait for a server to tell what became of a request that was given up.
const QUIET_MAX: Duration = Duration::from_secs(2);

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
    /// Tasks that have not ended, and hold fids.
    tasks: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Stage {
    #[default]
    Running,
    Ending,
    Cut,
    Dropped,
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

    /// Does work that goes on to its end even if nobody waits for it any more; the end of the command waits for it. Cut
    /// short, it is dropped, and when `client` has been answered what became of its requests, `undo` removes what it may
    /// have left. `warning` is told if even that fails.
    pub async fn see_through<T: Send + 'static>(
        &self,
        warning: String,
        client: &Client,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
        undo: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let entry = self.enter(warning);
        let (this, client) = (self.clone(), client.clone());
        let (answer, result) = oneshot::channel();
        self.spawn(async move {
            let done = this.unless_cut(work).await;
            match &done {
                Some(Ok(_)) => entry.gone(),
                Some(Err(e)) if is_refusal(e) => entry.gone(),
                Some(Err(_)) => {}
                None => {
                    if is_quiet(&client).await {
                        entry.removed(&undo.await);
                    }
                }
            }
            let _ = answer.send(done.unwrap_or(Err(Errno::ECANCELED.into())));
        });
        // There is none when the runtime ends.
        result.await.unwrap_or_else(|_| Err(Errno::ECANCELED.into()))
    }

    /// What `work` comes to; nothing when it was cut short.
    pub async fn unless_cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.unless(Stage::Cut, work).await
    }

    async fn unless<T>(&self, stage: Stage, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = work => Some(result),
            () = self.until(|files| files.stage >= stage) => None,
        }
    }

    /// The command ends: whatever takes long is to be given up.
    pub fn end(&self) {
        self.reach(Stage::Ending);
    }

    /// Waits for [`Temporaries::end`].
    pub async fn ended(&self) {
        self.until(|files| files.stage >= Stage::Ending).await;
    }

    /// The time is nearly up: requests are given up, and what they may have left is removed.
    pub fn cut(&self) {
        self.reach(Stage::Cut);
    }

    /// The time is up: every task ends as it stands, and what it holds is dropped.
    pub async fn drop_all(&self) {
        self.reach(Stage::Dropped);
        self.until(|files| files.tasks == 0).await;
    }

    fn reach(&self, stage: Stage) {
        self.lock().stage = stage;
        self.0.changed.notify_waiters();
    }

    /// Starts a task that the end of the command waits for.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.lock().tasks += 1;
        let ended = Ended(self.clone());
        let this = self.clone();
        tokio::spawn(async move {
            this.unless(Stage::Dropped, task).await;
            // Last, when all that the task held is dropped.
            drop(ended);
        });
    }

    /// Waits until it is known of every file what became of it, and every task has ended.
    pub async fn settled(&self) {
        self.until(|files| files.live.is_empty() && files.tasks == 0).await;
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

/// Counts a task as ended when it is dropped.
#[derive(Debug)]
struct Ended(Temporaries);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.lock().tasks -= 1;
        self.0.0.changed.notify_waiters();
    }
}

/// Waits until every request that was given up is answered or will never be: what it did can be looked at. Not for ever;
/// whether it is so.
async fn is_quiet(client: &Client) -> bool {
    let until = Instant::now() + QUIET_MAX;
    while client.held().1 > 0 {
        if Instant::now() > until {
            return false;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    true
}

/// A temporary file. Dropped before it is known what became of it, it may stay for ever.
#[derive(Debug)]
pub struct Entry {
    temporaries: Temporaries,
    number: u64,
}

impl Entry {
    /// There is no such file any more, or never was.
    pub fn gone(self) {
        self.temporaries.lock().live.remove(&self.number);
    }

    /// After a request that was given up and may have made it, or renamed it: removes it, if it is there when the server
    /// has told what became of the request.
    pub async fn find_out(self, dir: &Node, name: &[u8]) {
        if is_quiet(dir.client()).await {
            self.removed(&dir.unlink(name, false).await);
        }
    }

    /// The same by its path.
    pub async fn find_out_at(self, client: &Client, path: &[u8]) {
        if is_quiet(client).await {
            self.removed(&client.unlink(path, false).await);
        }
    }

    /// It is gone if `removed` says so.
    pub fn removed(self, removed: &Result<(), Error>) {
        match removed {
            Ok(()) => self.gone(),
            Err(e) if e.is_not_found() => self.gone(),
            Err(_) => {}
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut files = self.temporaries.lock();
        if let Some(warning) = files.live.remove(&self.number) {
            files.left.push(warning);
        }
        drop(files);
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
        assert!(matches!(futures_util::poll!(&mut settled), Poll::Pending));
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
