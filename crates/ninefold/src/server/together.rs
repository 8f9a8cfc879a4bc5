//! Futures that run in one task, each polled when it was woken.
//!
//! What [`FuturesUnordered`] alone costs a task whose futures all wait: when it has polled as many of them as it has, it wakes the task once more, for nothing, so that others
//! have their turn. Then the runtime wakes another of its threads, which finds nothing either. With one among them that is never woken they are never all polled.

use std::task::{Context, Poll, Waker};

use futures_util::StreamExt;
use futures_util::future::{Either, Pending, pending};
use futures_util::stream::FuturesUnordered;

pub(super) struct Together<F: Future>(FuturesUnordered<Either<F, Pending<F::Output>>>);

impl<F: Future> Default for Together<F> {
    fn default() -> Together<F> {
        let mut all = FuturesUnordered::new();
        all.push(Either::Right(pending()));
        // Once, as all that are new are.
        let _ = all.poll_next_unpin(&mut Context::from_waker(Waker::noop()));
        Together(all)
    }
}

impl<F: Future> Together<F> {
    pub fn len(&self) -> usize {
        self.0.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Polled with the others from the next time on.
    pub fn push(&mut self, future: F) {
        self.0.push(Either::Left(future));
    }

    /// What one of them has come to. The task is woken when one was; not asked where there is none.
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<F::Output> {
        if self.is_empty() {
            return Poll::Pending;
        }
        match self.0.poll_next_unpin(task) {
            Poll::Ready(Some(done)) => Poll::Ready(done),
            // It is never empty.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_wakes_nobody_and_who_is_woken_wakes_the_task_once() {
        let woken = Arc::new(Woken::default());
        let waker = woken.clone().into();
        let mut task = Context::from_waker(&waker);
        let count = || woken.0.swap(0, Ordering::Relaxed);
        let mut all = Together::default();
        assert!(all.is_empty() && all.poll(&mut task).is_pending());
        let (tells, gets): (Vec<_>, Vec<_>) = (0..4).map(|_| oneshot::channel::<u32>()).unzip();
        for (n, gets) in (1..).zip(gets) {
            all.push(gets);
            for _ in 0..2 {
                assert!(all.poll(&mut task).is_pending());
                assert_eq!((all.len(), count()), (n, 0), "all that there are were polled");
            }
        }
        for (n, tell) in (0..).zip(tells) {
            tell.send(n).unwrap();
            assert_eq!(count(), 1);
            assert_eq!(all.poll(&mut task), Poll::Ready(Ok(n)));
            assert!(all.poll(&mut task).is_pending());
            assert_eq!(count(), 0);
        }
        assert!(all.is_empty() && all.poll(&mut task).is_pending());
    }
}
