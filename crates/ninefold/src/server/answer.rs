//! What a file server's method returns: the answer now, or a future that brings it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;

use ninefold_proto::{Errno, Error};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::calm::Calm;

/// How calls of [`Answer::briefly`] have gone.
static BRIEF: LazyLock<Calm> = LazyLock::new(Calm::new);

/// The result of one operation.
///
/// `Now` costs no allocation and no thread hop: the reply goes into the same gathered write as the
/// others that are ready. `Later` is polled by the connection's own task and is never dropped before
/// it is done: a Tflush only wakes [`Cx::cancelled`](super::Cx::cancelled).
pub enum Answer<T> {
    /// It is done.
    Now(Result<T, Error>),
    /// It takes a wait: a disk, a lock, another server.
    Later(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>),
}

impl<T: Send + 'static> Answer<T> {
    /// Done, with a value.
    pub fn ok(value: T) -> Answer<T> {
        Answer::Now(Ok(value))
    }

    /// Done, with an error.
    pub fn err(error: impl Into<Error>) -> Answer<T> {
        Answer::Now(Err(error.into()))
    }

    /// A future brings it.
    pub fn later(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Answer<T> {
        Answer::Later(Box::pin(future))
    }

    /// A call that may block brings it, on the blocking pool. Needs a tokio runtime.
    pub fn blocking(call: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Answer<T> {
        Answer::later(async move {
            match tokio::task::spawn_blocking(call).await {
                Ok(result) => result,
                // A panic in a file server is its own failure, not the connection's.
                Err(_) => Err(Error::with_text(Errno::EIO, "file server failed")),
            }
        })
    }

    /// A call that may block, but not for long, brings it: made at once, while the runtime hands this thread's other tasks to
    /// another thread. On the blocking pool where there is one thread.
    pub fn in_place(call: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Answer<T> {
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => Answer::Now(tokio::task::block_in_place(call)),
            Ok(_) => Answer::blocking(call),
            Err(_) => Answer::Now(call()),
        }
    }

    /// A call that seldom takes longer than a copy in memory of the largest message: made at once. While another is being made, behind one
    /// that took long, and where the runtime has one worker, it is made [in place](Answer::in_place).
    pub fn briefly(call: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Answer<T> {
        match Handle::try_current() {
            // The only worker would stop all others.
            Ok(runtime) if has_several_workers(&runtime) => {
                Answer::Now(BRIEF.make(&runtime, call, tokio::task::block_in_place))
            }
            _ => Answer::in_place(call),
        }
    }

    /// Applies `then` to the result, now or later.
    pub fn map<U: Send + 'static>(
        self,
        then: impl FnOnce(Result<T, Error>) -> Result<U, Error> + Send + 'static,
    ) -> Answer<U> {
        match self {
            Answer::Now(result) => Answer::Now(then(result)),
            Answer::Later(future) => Answer::later(async move { then(future.await) }),
        }
    }

    /// Goes on with a second operation when this one succeeded.
    pub fn and_then<U: Send + 'static>(self, then: impl FnOnce(T) -> Answer<U> + Send + 'static) -> Answer<U> {
        match self {
            Answer::Now(Ok(value)) => then(value),
            Answer::Now(Err(error)) => Answer::Now(Err(error)),
            Answer::Later(future) => Answer::later(async move { then(future.await?).wait().await }),
        }
    }

    /// Waits for the result.
    pub async fn wait(self) -> Result<T, Error> {
        match self {
            Answer::Now(result) => result,
            Answer::Later(future) => future.await,
        }
    }
}

fn has_several_workers(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1
}

impl<T: Send + 'static> From<Result<T, Error>> for Answer<T> {
    fn from(result: Result<T, Error>) -> Answer<T> {
        Answer::Now(result)
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Now(result) => f.debug_tuple("Now").field(result).finish(),
            Answer::Later(_) => f.write_str("Later"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// How long what is not stopped may take.
    const BOUND: Duration = Duration::from_secs(60);

    #[test]
    fn as_many_brief_calls_as_there_are_workers_stop_nobody_else() {
        for workers in [1, 2, 3] {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(workers).enable_time().build().unwrap();
            let (begun, under_way) = channel();
            let (ends, stalled): (Vec<_>, Vec<_>) = (0..workers)
                .map(|_| {
                    let (end, ended) = channel::<()>();
                    let begun = begun.clone();
                    let call = move || {
                        begun.send(()).unwrap();
                        // It ends when the other end is gone.
                        let _ = ended.recv();
                        Ok(())
                    };
                    (end, runtime.spawn(async { Answer::briefly(call).wait().await }))
                })
                .unzip();
            for _ in 0..workers {
                under_way.recv_timeout(BOUND).expect("each has a thread");
            }
            let (done, other) = channel();
            runtime.spawn(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                done.send(()).unwrap();
            });
            other.recv_timeout(BOUND).expect("it runs, and its time comes, while they do");
            drop(ends);
            for task in stalled {
                runtime.block_on(task).unwrap().unwrap();
            }
        }
    }
}
