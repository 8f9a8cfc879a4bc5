//! Lines written by a thread of their own, so that a reader who stops does not stop the relay's other work, Ctrl-C
//! first of all.
//!
//! [`Output::line`] queues, [`Output::ready`] waits while the queue is long, [`Output::failed`] tells the end of it.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use tokio::sync::Notify;

/// Bytes of lines that wait for their reader before the relay waits too.
const QUEUE: usize = 1 << 20;

/// The end of a command waits so long for a reader to take the last lines.
const LINGER: Duration = Duration::from_secs(1);

/// Where lines go. Cheap to clone.
#[derive(Clone)]
pub struct Output {
    lines: mpsc::Sender<String>,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    bytes: AtomicUsize,
    changed: Notify,
    failure: Mutex<Option<io::Error>>,
    failed: Notify,
}

impl Queue {
    async fn shorter_than(&self, limit: usize) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the length is read, so that a change between the two is not missed.
            changed.as_mut().enable();
            if self.bytes.load(Ordering::Acquire) < limit {
                return;
            }
            changed.await;
        }
    }
}

impl Output {
    /// Writes to `to` from now on.
    pub fn new(mut to: impl Write + Send + 'static) -> Output {
        let (lines, receiver) = mpsc::channel::<String>();
        let queue = Arc::new(Queue::default());
        let thread = queue.clone();
        std::thread::spawn(move || {
            let mut sound = true;
            for line in receiver {
                // After a failure the queue is still emptied: nobody may wait for it.
                if sound && let Err(e) = to.write_all(line.as_bytes()).and_then(|()| to.flush()) {
                    sound = false;
                    *thread.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
                    thread.failed.notify_one();
                }
                thread.bytes.fetch_sub(line.len(), Ordering::AcqRel);
                thread.changed.notify_waiters();
            }
        });
        Output { lines, queue }
    }

    /// Queues one line, which ends in a newline.
    pub fn line(&self, line: String) {
        self.queue.bytes.fetch_add(line.len(), Ordering::AcqRel);
        // The thread ends only after the last sender.
        let _ = self.lines.send(line);
    }

    /// Waits while too much is queued.
    pub async fn ready(&self) {
        self.queue.shorter_than(QUEUE).await;
    }

    /// Waits until a line cannot be written.
    pub async fn failed(&self) -> io::Error {
        loop {
            self.queue.failed.notified().await;
            if let Some(e) = self.queue.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return e;
            }
        }
    }

    /// Waits for the last lines to be written, but not for ever.
    pub async fn finish(&self) {
        let _ = tokio::time::timeout(LINGER, self.queue.shorter_than(1)).await;
    }
}
