//! The server's end: it is told to every connection, each of which asks with every turn.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Whether the server drains.
#[derive(Default, Debug)]
pub(super) struct Draining {
    token: CancellationToken,
    /// Set before the token is cancelled: the one line of memory that all connections look at.
    has_begun: Arc<AtomicBool>,
}

impl Draining {
    pub fn begin(&self) {
        self.has_begun.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// Waits for the beginning.
    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    pub fn watch(&self) -> DrainWatch {
        // A token of its own: polling takes its lock, which all connections would share.
        let begun = Box::pin(self.token.child_token().cancelled_owned());
        DrainWatch { has_begun: self.has_begun.clone(), begun, wakes: None }
    }
}

/// One connection's view of it.
pub(super) struct DrainWatch {
    has_begun: Arc<AtomicBool>,
    begun: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Whom the beginning wakes.
    wakes: Option<Waker>,
}

impl DrainWatch {
    /// Whether the server drains; if not, the task is woken when it begins to. To ask again costs hardly anything: what lies in the token, some lines of
    /// memory of each connection, is touched only for another task.
    pub fn poll(&mut self, task: &mut Context<'_>) -> bool {
        let is_watched = self.wakes.as_ref().is_some_and(|waker| waker.will_wake(task.waker()));
        if is_watched && !self.has_begun.load(Ordering::Acquire) {
            return false;
        }
        if !is_watched {
            self.wakes = Some(task.waker().clone());
        }
        self.begun.as_mut().poll(task).is_ready()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_task_that_asked_last_is_woken_and_told() {
        let draining = Draining::default();
        let mut watch = draining.watch();
        let (first, last) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        for woken in [&first, &first, &last, &last] {
            assert!(!watch.poll(&mut Context::from_waker(&woken.clone().into())));
        }
        draining.begin();
        assert_eq!((first.0.load(Ordering::Relaxed), last.0.load(Ordering::Relaxed)), (0, 1));
        assert!(watch.poll(&mut Context::from_waker(&last.into())));
        assert!(draining.watch().poll(&mut Context::from_waker(&first.into())), "also one that comes later");
    }
}
