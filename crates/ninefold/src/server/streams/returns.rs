//! What threads of our own have done, told to the tasks that wait for it.
//!
//! A task that is woken from outside of the runtime wakes two of its workers: one takes it, and has another look whether there is more. What comes by a
//! descriptor wakes the one that looks at those, and that one runs who waits for it. So threads write to a pipe, and a task hands out what they have.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::io::write;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::runtime;
use tokio::sync::oneshot;

/// What is done, and for whom, until it is handed out.
#[derive(Debug)]
pub(super) struct Returns<T>(Mutex<Table<T>>);

#[derive(Debug)]
struct Table<T> {
    done: Vec<(oneshot::Sender<T>, T)>,
    /// Who hands it out; `None` where nobody does.
    hears: Option<Hears>,
}

/// Who hands out, as threads know him.
#[derive(Debug)]
struct Hears {
    /// Where he is told. He ends when it is closed.
    bell: Arc<OwnedFd>,
    runtime: runtime::Id,
}

impl<T> Default for Returns<T> {
    fn default() -> Returns<T> {
        Returns(Mutex::new(Table { done: Vec::new(), hears: None }))
    }
}

impl<T> Returns<T> {
    fn table(&self) -> MutexGuard<'_, Table<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hand_out<T>(done: Vec<(oneshot::Sender<T>, T)>) {
    for (to, what) in done {
        // Who waits no more has no use for it.
        let _ = to.send(what);
    }
}

impl<T: Send + 'static> Returns<T> {
    /// Whether a task of this runtime hands out, from now on if not before. One of another does nothing for this one: it may not run.
    pub fn begin(self: &Arc<Self>) -> bool {
        let runtime = runtime::Handle::current().id();
        let mut table = self.table();
        if let Some(hears) = &table.hears {
            return hears.runtime == runtime;
        }
        let Ok((ear, bell)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) else { return false };
        let Ok(ear) = Receiver::from_owned_fd(ear) else { return false };
        table.hears = Some(Hears { bell: Arc::new(bell), runtime });
        // A runtime that ends drops the task here, which takes the lock.
        drop(table);
        drop(tokio::spawn(listen(ear, HandsOut(Arc::downgrade(self)))));
        true
    }

    /// Called by a thread, which tells it itself where nobody hands it out. Else it is told when the thread [rings](Self::ring), or before.
    pub fn put(&self, to: oneshot::Sender<T>, what: T) {
        let mut table = self.table();
        if table.hears.is_some() {
            table.done.push((to, what));
        } else {
            drop(table);
            hand_out(vec![(to, what)]);
        }
    }

    /// Hands out what was put, for who does not wait for its thread.
    pub fn hand_out(&self) {
        let done = std::mem::take(&mut self.table().done);
        hand_out(done);
    }

    /// Has what was put handed out.
    pub fn ring(&self) {
        let bell = self.table().hears.as_ref().map(|hears| hears.bell.clone());
        if let Some(bell) = bell {
            // It fails where so much is unheard that it will be heard; or where who hears has just ended, and handed out what he found. A process that a
            // closed pipe ends has no threads that send (transport's `into_socket`).
            let _ = write(bell, &[0]);
        }
    }
}

/// Who hands out. Dropped, with its runtime, say, it leaves nothing.
struct HandsOut<T>(Weak<Returns<T>>);

impl<T> Drop for HandsOut<T> {
    fn drop(&mut self) {
        if let Some(returns) = self.0.upgrade() {
            let mut table = returns.table();
            table.hears = None;
            let done = std::mem::take(&mut table.done);
            drop(table);
            hand_out(done);
        }
    }
}

async fn listen<T: Send + 'static>(mut ear: Receiver, to: HandsOut<T>) {
    let mut rings = [0; 64];
    while ear.read(&mut rings).await.is_ok_and(|n| n > 0) {
        let Some(returns) = to.0.upgrade() else { return };
        returns.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use tokio::runtime::Builder;
    use tokio::time::timeout;

    use super::*;

    /// The bound of what ought to come soon.
    const SOON: Duration = Duration::from_secs(60);

    fn given(returns: &Arc<Returns<u32>>, what: u32) -> oneshot::Receiver<u32> {
        let (to, gets) = oneshot::channel();
        let returns = returns.clone();
        drop(thread::spawn(move || {
            returns.put(to, what);
            returns.ring();
        }));
        gets
    }

    #[tokio::test]
    async fn each_gets_what_is_his_with_a_task_or_without() {
        let returns = Arc::new(Returns::default());
        for begins in [false, true, true] {
            if begins {
                assert!(returns.begin());
            }
            assert_eq!(returns.table().hears.is_some(), begins);
            for round in 0..100 {
                let gets: Vec<_> = (0..8).map(|n| given(&returns, round * 8 + n)).collect();
                for (n, gets) in (0..).zip(gets) {
                    assert_eq!(timeout(SOON, gets).await.unwrap().unwrap(), round * 8 + n);
                }
            }
        }
        // Who has gone has left nothing behind.
        drop(given(&returns, 7));
        assert_eq!(timeout(SOON, given(&returns, 8)).await.unwrap().unwrap(), 8);
        assert!(returns.table().done.is_empty());
    }

    #[test]
    fn what_lies_there_when_a_runtime_ends_is_handed_out_and_another_goes_on() {
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let returns = Arc::new(Returns::default());
        assert!(first.block_on(async { returns.begin() }));
        assert!(!second.block_on(async { returns.begin() }));
        // It does not run: nobody hands it out.
        let (to, gets) = oneshot::channel();
        returns.put(to, 1);
        returns.ring();
        assert_eq!(returns.table().done.len(), 1);
        drop(first);
        assert_eq!(second.block_on(gets).unwrap(), 1);
        assert!(returns.table().hears.is_none());
        assert_eq!(second.block_on(given(&returns, 2)).unwrap(), 2);
        second.block_on(async {
            assert!(returns.begin());
            assert_eq!(timeout(SOON, given(&returns, 3)).await.unwrap().unwrap(), 3);
        });
    }

    #[tokio::test]
    async fn who_hands_out_ends_with_what_is_handed_out() {
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let (returns, before) = (Arc::new(Returns::<u32>::default()), tasks());
        assert!(returns.begin());
        assert_eq!(tasks(), before + 1);
        drop(returns);
        let ended = async {
            while tasks() > before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(SOON, ended).await.expect("the end of the task");
    }

    #[test]
    fn a_runtime_that_ends_is_not_held_up() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let returns = Arc::new(Returns::<u32>::default());
        let (goes_on, waits) = mpsc::channel();
        let (began, begins) = mpsc::channel();
        let for_task = returns.clone();
        drop(runtime.spawn(async move {
            began.send(()).unwrap();
            // In one poll, as a worker that has much to do is in it.
            waits.recv().unwrap();
            for_task.begin();
        }));
        begins.recv().unwrap();
        let (ended, ends) = mpsc::channel();
        drop(thread::spawn(move || {
            drop(runtime);
            ended.send(()).unwrap();
        }));
        // Until the end has begun: it is not over as long as that task runs.
        thread::sleep(Duration::from_millis(50));
        goes_on.send(()).unwrap();
        ends.recv_timeout(SOON).expect("the end of the runtime");
        assert!(returns.table().hears.is_none());
    }
}
