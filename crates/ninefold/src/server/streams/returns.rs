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
use tokio::sync::oneshot;

#[derive(Debug)]
pub(super) struct Returns<T>(Mutex<Table<T>>);

#[derive(Debug)]
struct Table<T> {
    /// What lies there, and for whom.
    lies: Vec<(oneshot::Sender<T>, T)>,
    /// Where who hands it out is told, and ends when that is closed; `None` where nobody does.
    bell: Option<Arc<OwnedFd>>,
}

impl<T> Default for Returns<T> {
    fn default() -> Returns<T> {
        Returns(Mutex::new(Table { lies: Vec::new(), bell: None }))
    }
}

fn hand_out<T>(lies: Vec<(oneshot::Sender<T>, T)>) {
    for (to, what) in lies {
        // Who waits no more has no use for it.
        let _ = to.send(what);
    }
}

impl<T: Send + 'static> Returns<T> {
    /// Sees to it that a task of this runtime, or of another, hands out. Where there can be none, threads do.
    pub fn begin(self: &Arc<Self>) {
        let mut table = self.table();
        if table.bell.is_some() {
            return;
        }
        let Ok((hears, bell)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) else { return };
        let Ok(hears) = Receiver::from_owned_fd(hears) else { return };
        table.bell = Some(Arc::new(bell));
        drop(tokio::spawn(listen(hears, HandsOut(Arc::downgrade(self)))));
    }

    /// Called by a thread.
    pub fn give(&self, to: oneshot::Sender<T>, what: T) {
        let mut table = self.table();
        match table.bell.clone() {
            Some(bell) => {
                table.lies.push((to, what));
                drop(table);
                // It fails where so much is unheard that it will be heard.
                let _ = write(bell, &[0]);
            }
            None => {
                drop(table);
                hand_out(vec![(to, what)]);
            }
        }
    }
}

impl<T> Returns<T> {
    fn table(&self) -> MutexGuard<'_, Table<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who hands out. Dropped, with its runtime, say, it leaves nothing.
struct HandsOut<T>(Weak<Returns<T>>);

impl<T> Drop for HandsOut<T> {
    fn drop(&mut self) {
        if let Some(returns) = self.0.upgrade() {
            let mut table = returns.table();
            table.bell = None;
            let lies = std::mem::take(&mut table.lies);
            drop(table);
            hand_out(lies);
        }
    }
}

async fn listen<T>(mut hears: Receiver, to: HandsOut<T>) {
    let mut rings = [0; 64];
    while hears.read(&mut rings).await.is_ok_and(|n| n > 0) {
        let Some(returns) = to.0.upgrade() else { return };
        let lies = std::mem::take(&mut returns.table().lies);
        hand_out(lies);
    }
}

#[cfg(test)]
mod tests {
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
        drop(thread::spawn(move || returns.give(to, what)));
        gets
    }

    #[tokio::test]
    async fn each_gets_what_is_his_with_a_task_or_without() {
        let returns = Arc::new(Returns::default());
        for begins in [false, true, true] {
            if begins {
                returns.begin();
            }
            assert_eq!(returns.table().bell.is_some(), begins);
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
        assert!(returns.table().lies.is_empty());
    }

    #[test]
    fn what_lies_there_when_a_runtime_ends_is_handed_out_and_another_goes_on() {
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let returns = Arc::new(Returns::default());
        first.block_on(async { returns.begin() });
        // It does not run: nobody hands it out.
        let (to, gets) = oneshot::channel();
        returns.give(to, 1);
        assert_eq!(returns.table().lies.len(), 1);
        drop(first);
        assert_eq!(second.block_on(gets).unwrap(), 1);
        assert!(returns.table().bell.is_none());
        assert_eq!(second.block_on(given(&returns, 2)).unwrap(), 2);
        second.block_on(async {
            returns.begin();
            assert!(returns.table().bell.is_some());
            assert_eq!(timeout(SOON, given(&returns, 3)).await.unwrap().unwrap(), 3);
        });
    }

    #[tokio::test]
    async fn who_hands_out_ends_with_what_is_handed_out() {
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let (returns, before) = (Arc::new(Returns::<u32>::default()), tasks());
        returns.begin();
        assert_eq!(tasks(), before + 1);
        drop(returns);
        let ended = async {
            while tasks() > before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(SOON, ended).await.expect("the end of the task");
    }
}
