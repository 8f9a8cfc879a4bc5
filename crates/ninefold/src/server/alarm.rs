//! One timer of the runtime for all that wait in one task.
//!
//! A timer that is to ring before all others of a runtime has a thread of it woken, to hear of that; of many that are set one behind another, once for each. Here that
//! happens when the first of them is set. It stays set when that is not waited for any more, as long as others wait: what comes in its place mostly is to ring later.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

/// For who waits in the task that [polls](Self::poll) it, and in no other.
#[derive(Debug, Default)]
pub(super) struct Alarm(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    waits: BTreeMap<(Instant, u64), Waker>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those whose time has come, and has the task woken when the next one's has. Called when all that may have begun to wait were polled.
    pub fn poll(&self, task: &mut Context<'_>) {
        let mut due = Vec::new();
        {
            let mut table = self.table();
            let Table { waits, timer, .. } = &mut *table;
            loop {
                let now = Instant::now();
                while let Some(entry) = waits.first_entry().filter(|entry| entry.key().0 <= now) {
                    due.push(entry.remove());
                }
                let Some((&(first, _), _)) = waits.first_key_value() else {
                    // Else it wakes a thread for nobody.
                    *timer = None;
                    break;
                };
                let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(first)));
                if timer.is_elapsed() || timer.deadline() > first {
                    timer.as_mut().reset(first);
                }
                if timer.as_mut().poll(task).is_pending() {
                    break;
                }
            }
        }
        due.into_iter().for_each(Waker::wake);
    }

    async fn rings(&self, at: Instant) {
        Ring { alarm: self, at, number: None }.await;
    }
}

/// What comes of `waits` until then, in a task that polls the alarm or, without one, in any.
pub(super) async fn until<T>(alarm: Option<&Alarm>, at: Instant, waits: impl Future<Output = T>) -> Option<T> {
    match alarm {
        Some(alarm) => tokio::select! {
            biased;
            came = waits => Some(came),
            () = alarm.rings(at) => None,
        },
        None => timeout_at(at, waits).await.ok(),
    }
}

struct Ring<'a> {
    alarm: &'a Alarm,
    at: Instant,
    /// Under which it is in the table.
    number: Option<u64>,
}

impl Future for Ring<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.at {
            return Poll::Ready(());
        }
        let mut table = self.alarm.table();
        let number = self.number.unwrap_or_else(|| {
            table.next += 1;
            table.next
        });
        table.waits.insert((self.at, number), task.waker().clone());
        drop(table);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            drop(self.alarm.table().waits.remove(&(self.at, number)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::together::Together;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn each_is_told_at_its_time_whatever_else_waits_or_waits_no_more() {
        let (alarm, began) = (Arc::new(Alarm::default()), Instant::now());
        let mut all = Together::default();
        // One that came before its time leaves nothing behind.
        assert_eq!(until(Some(&alarm), began + 5 * MS, async { 7 }).await, Some(7));
        let given_up = Box::pin(until(Some(&alarm), began + 10 * MS, pending::<()>()));
        let mut given_up = Some(given_up);
        for wait in [300, 20, 1000, 20, 0] {
            let alarm = alarm.clone();
            all.push(async move { (wait, until(Some(&alarm), began + wait * MS, pending::<()>()).await) });
        }
        let mut ended = Vec::new();
        while !all.is_empty() {
            let (wait, came) = poll_fn(|task| {
                if let Some(waits) = &mut given_up {
                    assert!(waits.as_mut().poll(task).is_pending());
                }
                let polled = all.poll(task);
                alarm.poll(task);
                polled
            })
            .await;
            drop(given_up.take());
            assert!(came.is_none());
            let took = began.elapsed();
            assert!(took >= wait * MS && took <= wait * MS + 2 * MS, "{took:?} for {wait} ms");
            ended.push(wait);
        }
        assert_eq!(ended, [0, 20, 20, 300, 1000]);
        assert!(alarm.table().waits.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_is_set_again_for_what_is_to_ring_before_it_only() {
        let (alarm, began) = (Alarm::default(), Instant::now());
        let set_to = || alarm.table().timer.as_ref().unwrap().deadline();
        let waits = |ms: u32| Box::pin(until(Some(&alarm), began + ms * MS, pending::<()>()));
        let poll = |waits: &mut Pin<Box<_>>| {
            let mut task = Context::from_waker(Waker::noop());
            let polled = Future::poll(Pin::as_mut(waits), &mut task).is_ready();
            alarm.poll(&mut task);
            polled
        };
        let mut first = waits(100);
        assert!(!poll(&mut first) && set_to() == began + 100 * MS);
        drop(first);
        let mut later = waits(200);
        assert!(!poll(&mut later) && set_to() == began + 100 * MS, "it stays");
        let mut sooner = waits(50);
        assert!(!poll(&mut sooner) && set_to() == began + 50 * MS);
        tokio::time::sleep(120 * MS).await;
        assert!(poll(&mut sooner) && set_to() == began + 200 * MS);
        assert!(!poll(&mut later));
        drop(later);
        alarm.poll(&mut Context::from_waker(Waker::noop()));
        assert!(alarm.table().timer.is_none(), "nobody is left to be woken");
    }

    #[tokio::test(start_paused = true)]
    async fn without_one_the_runtimes_timers_do() {
        let began = Instant::now();
        assert_eq!(until(None, began + 30 * MS, async { 1 }).await, Some(1));
        assert!(began.elapsed() < 5 * MS);
        assert!(until(None, began + 30 * MS, pending::<()>()).await.is_none());
        assert!(began.elapsed() >= 30 * MS);
    }
}
