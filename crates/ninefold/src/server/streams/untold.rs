//! Ends that a thread has come to, told together with those that it comes to soon: to be woken costs the runtime more than to hear of one end more, and what was given to
//! a socket last takes a while to leave it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use tokio::sync::oneshot;

use super::returns::Returns;
use super::send_buffer::Leaves;

/// An end is told within such a part of a round trip, as the peer hardly has all before it sooner, or of the time that this still takes to leave the socket, as nothing
/// that is sent behind it leaves before; and no more than so much; at once where that is less than the kernel tells apart (epoll_wait(2)). Later where the thread is held up
/// meanwhile, until somebody asks for a thread, or looks what moves.
const OF_TRIP: u32 = 4;
const OF_REST: u32 = 2;
const MOMENTS: std::ops::RangeInclusive<Duration> = Duration::from_millis(2)..=Duration::from_millis(20);

/// How long an end need not be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Patience {
    pub time: Duration,
    /// Another stream waits behind it: no turn, which may take long, comes before it is told.
    pub is_waited_for: bool,
}

impl Patience {
    pub const NONE: Patience = Patience { time: Duration::ZERO, is_waited_for: false };

    /// By how soon what is before it leaves, and whether another stream `goes_on` behind it.
    pub fn of(&Leaves { trip, rest }: &Leaves, goes_on: bool) -> Patience {
        let time = (rest / OF_REST).max(if goes_on { Duration::ZERO } else { trip / OF_TRIP });
        if time < *MOMENTS.start() {
            return Patience::NONE;
        }
        Patience { time: time.min(*MOMENTS.end()), is_waited_for: goes_on }
    }
}

/// See the [module](self). Dropped, it has them told.
pub(super) struct Untold<T: Send + 'static> {
    returns: Arc<Returns<T>>,
    /// Another stream waits behind one of them.
    is_waited_for: bool,
    /// When they are to be told.
    due: Option<Instant>,
}

impl<T: Send + 'static> Untold<T> {
    pub fn new(returns: Arc<Returns<T>>) -> Untold<T> {
        Untold { returns, is_waited_for: false, due: None }
    }

    /// Another one.
    pub fn put(&mut self, to: oneshot::Sender<T>, what: T, Patience { time, is_waited_for }: Patience) {
        self.is_waited_for |= is_waited_for;
        self.returns.put(to, what);
        let due = Instant::now() + time;
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
        if time.is_zero() {
            self.tell();
        }
    }

    pub fn tell(&mut self) {
        self.is_waited_for = false;
        if self.due.take().is_some() {
            self.returns.ring();
        }
    }

    /// Tells those that cannot wait for what may take long.
    pub fn before_turn(&mut self) {
        match self.is_waited_for {
            true => self.tell(),
            false => drop(self.wait(false)),
        }
    }

    /// Tells those that are due, or all where these are the last for now. How long the others can wait.
    pub fn wait(&mut self, are_last: bool) -> Option<Timespec> {
        let left = self.due?.saturating_duration_since(Instant::now());
        if are_last || left.is_zero() {
            self.tell();
            return None;
        }
        Timespec::try_from(left).ok()
    }
}

impl<T: Send + 'static> Drop for Untold<T> {
    fn drop(&mut self) {
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);
    const HOUR: Patience = Patience { time: Duration::from_secs(3600), is_waited_for: false };

    fn end(untold: &mut Untold<()>, patience: Patience) -> oneshot::Receiver<()> {
        let (to, gets) = oneshot::channel();
        untold.put(to, (), patience);
        gets
    }

    async fn told(gets: oneshot::Receiver<()>) {
        timeout(SOON, gets).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn ends_that_can_wait_are_told_when_the_first_of_them_is_due_or_there_are_no_others() {
        let returns = Arc::new(Returns::default());
        assert!(returns.begin());
        let mut untold = Untold::new(returns.clone());
        assert!(untold.wait(false).is_none() && untold.wait(true).is_none());
        // The last one there is.
        let mut first = end(&mut untold, HOUR);
        let left = untold.wait(false).unwrap();
        assert!(left.tv_sec >= 3500 && untold.wait(false).is_some());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(first.try_recv().is_err());
        assert!(untold.wait(true).is_none());
        told(first).await;
        // One that can wait for less, and one that cannot.
        for patience in [Patience { time: Duration::from_millis(1), ..HOUR }, Patience::NONE] {
            let (first, second) = (end(&mut untold, HOUR), end(&mut untold, patience));
            while untold.wait(false).is_some() {}
            told(first).await;
            told(second).await;
        }
        // The thread's end.
        let last = end(&mut untold, HOUR);
        drop(untold);
        told(last).await;
    }

    #[tokio::test]
    async fn an_end_behind_which_another_stream_waits_is_told_before_anything_that_may_take_long() {
        let returns = Arc::new(Returns::default());
        assert!(returns.begin());
        let mut untold = Untold::new(returns.clone());
        let mut first = end(&mut untold, HOUR);
        untold.before_turn();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(first.try_recv().is_err());
        let second = end(&mut untold, Patience { is_waited_for: true, ..HOUR });
        untold.before_turn();
        told(first).await;
        told(second).await;
        let third = end(&mut untold, HOUR);
        untold.before_turn();
        assert!(untold.wait(false).is_some(), "those before it are forgotten");
        drop(third);
    }
}
