//! Places for work that runs side by side, of which there are only so many: who must wait for one begins behind the replies of
//! the one who had it before.
//!
//! [`Places::acquire`] waits for a place, first come, first served; [`Places::try_acquire`] is for who keeps a list of what is to be
//! done, and comes again when something of it is. A [`Place`] is given back by dropping it. Without this a bound on what is under way
//! would not show in [`Stats::round_trips`](super::Stats::round_trips): 1,000 files, 32 at a time, take 32 times as long as one.
//!
//! A place is taken for what one [`Client`] does, or for a [`Turn`]: what a task does through several clients, of several servers
//! too.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::client::Client;
use super::stats::Lane;

/// So many places for work that runs side by side, first come, first served. A clone is of the same places.
#[derive(Clone)]
pub struct Places(Arc<Mutex<State>>);

struct State {
    /// Depths that those who take the free places come behind: 0 where nobody waited for the place when it became free.
    free: Vec<u32>,
    waiting: VecDeque<oneshot::Sender<Place>>,
    /// Somebody was refused a place, and is to come again.
    wanted: bool,
}

/// One of so many; dropped, it is another's. What its holder does is done through the client, or in the turn, that it was taken
/// for.
#[must_use = "a place that is dropped is another's at once"]
pub struct Place {
    /// `None`: it is another's.
    places: Option<Places>,
    holder: Holder,
}

/// Whom a place is taken for: a `&Client` or a `&Turn`.
#[derive(Clone)]
pub struct Holder(Held);

#[derive(Clone)]
enum Held {
    Client(Lane),
    Turn(Turn),
}

impl From<&Client> for Holder {
    fn from(client: &Client) -> Holder {
        Holder(Held::Client(client.lane.clone()))
    }
}

impl From<&Turn> for Holder {
    fn from(turn: &Turn) -> Holder {
        Holder(Held::Turn(turn.clone()))
    }
}

impl Holder {
    fn depth(&self) -> u32 {
        match &self.0 {
            Held::Client(lane) => lane.depth(),
            Held::Turn(turn) => turn.course().depth(),
        }
    }

    fn raise(&self, depth: u32) {
        match &self.0 {
            Held::Client(lane) => lane.raise(depth),
            Held::Turn(turn) => turn.course().raise(depth),
        }
    }
}

/// What one task does, through as many clients as it needs: those that [`Turn::fork`] gives it, and those that
/// [`Turn::follow`] is told of. All that they do follows from what the task has waited for. A clone is the same turn.
#[derive(Clone, Default)]
pub struct Turn(Arc<Mutex<Course>>);

#[derive(Default)]
struct Course {
    /// The depth that all of it comes behind.
    begun: u32,
    /// Of its clients.
    lanes: Vec<Lane>,
}

impl Turn {
    pub fn new() -> Turn {
        Turn::default()
    }

    /// The same client for what is done in this turn; see [`Client::fork`].
    pub fn fork(&self, client: &Client) -> Client {
        let client = client.fork();
        self.follow(&client);
        client
    }

    /// What `client` does from now on is done in this turn.
    pub fn follow(&self, client: &Client) {
        let mut course = self.course();
        client.lane.raise(course.begun);
        course.lanes.push(client.lane.clone());
    }

    /// What follows in this turn follows from all that was done in `other`.
    pub fn join(&self, other: &Turn) {
        if !Arc::ptr_eq(&self.0, &other.0) {
            let depth = other.course().depth();
            self.course().raise(depth);
        }
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        // Nothing that is done under the lock panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Course {
    fn depth(&self) -> u32 {
        self.lanes.iter().map(Lane::depth).fold(self.begun, u32::max)
    }

    fn raise(&mut self, depth: u32) {
        self.begun = self.begun.max(depth);
        self.lanes.iter().for_each(|lane| lane.raise(depth));
    }
}

impl Places {
    /// So many places, at least one.
    pub fn new(places: usize) -> Places {
        let free = vec![0; places.max(1)];
        Places(Arc::new(Mutex::new(State { free, waiting: VecDeque::new(), wanted: false })))
    }

    /// Waits for a place for what `holder` does from then on; see [`Client::fork`]. It comes when somebody drops one.
    pub async fn acquire(&self, holder: impl Into<Holder>) -> Place {
        let holder = holder.into();
        let waiting = {
            let mut state = self.state();
            // Nobody is passed.
            match state.waiting.is_empty().then(|| state.take()).flatten() {
                Some(depth) => return self.place(holder, depth),
                None => {
                    let (sender, receiver) = oneshot::channel();
                    state.waiting.push_back(sender);
                    receiver
                }
            }
        };
        match waiting.await {
            Ok(mut place) => {
                // It is still that of who had it.
                holder.raise(place.holder.depth());
                place.holder = holder;
                place
            }
            // The sender is in the state, which `self` keeps, and leaves it only to be used.
            Err(_) => self.place(holder, 0),
        }
    }

    /// The same if there is a place now. `None`: who comes again, and gets one that has become free since, has waited for it.
    pub fn try_acquire(&self, holder: impl Into<Holder>) -> Option<Place> {
        let mut state = self.state();
        let depth = if state.waiting.is_empty() { state.take() } else { None };
        state.wanted |= depth.is_none();
        drop(state);
        depth.map(|depth| self.place(holder.into(), depth))
    }

    fn place(&self, holder: Holder, depth: u32) -> Place {
        holder.raise(depth);
        Place { places: Some(self.clone()), holder }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under the lock panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self) -> Option<u32> {
        let depth = self.free.pop()?;
        // With another one free nobody waits.
        self.wanted &= self.free.is_empty();
        Some(depth)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(places) = self.places.take() else { return };
        loop {
            let mut state = places.state();
            let Some(waiting) = state.waiting.pop_front() else {
                let depth = if state.wanted { self.holder.depth() } else { 0 };
                state.free.push(depth);
                return;
            };
            // Who is told may be gone and drop it, which takes the lock again.
            drop(state);
            match waiting.send(Place { places: Some(places.clone()), holder: self.holder.clone() }) {
                Ok(()) => return,
                Err(mut refused) => refused.places = None,
            }
        }
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("free", &self.state().free.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("depth", &self.course().depth()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::super::client::Attach;
    use super::super::options::Options;
    use super::*;
    use crate::server::Server;
    use crate::transport::{Peer, memory};
    use crate::tree::ramfs::RamFs;

    async fn client() -> Client {
        let server = Server::builder().export("", Arc::new(RamFs::new()), false).build();
        let (ours, theirs) = memory::pair(65_536);
        tokio::spawn(server.serve(theirs, Peer::Stdio));
        Client::over(ours, &Attach::default(), Options::default()).await.unwrap()
    }

    #[tokio::test]
    async fn who_waits_for_a_place_comes_behind_who_had_it_and_who_finds_one_free_does_not() {
        let client = client().await;
        let here = client.lane.depth();
        let (first, second, third) = (client.fork(), client.fork(), client.fork());
        let places = Places::new(2);
        let place = places.acquire(&first).await;
        let other = places.acquire(&second).await;
        first.lane.raise(here + 7);
        assert_eq!(second.lane.depth(), here);
        let mut waiting = Box::pin(places.acquire(&third));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(place);
        let third_place = waiting.await;
        assert_eq!(third.lane.depth(), here + 7);
        drop((third_place, other));
        let fourth = client.fork();
        let _place = places.acquire(&fourth).await;
        assert_eq!(fourth.lane.depth(), here);
    }

    #[tokio::test]
    async fn who_was_refused_a_place_and_comes_again_comes_behind_who_had_it() {
        let client = client().await;
        let here = client.lane.depth();
        let (first, second, third) = (client.fork(), client.fork(), client.fork());
        let places = Places::new(1);
        let place = places.try_acquire(&first).unwrap();
        first.lane.raise(here + 3);
        drop(place);
        // Nobody had asked meanwhile.
        let place = places.try_acquire(&second).unwrap();
        assert_eq!(second.lane.depth(), here);
        assert!(places.try_acquire(&third).is_none());
        second.lane.raise(here + 5);
        drop(place);
        let _place = places.try_acquire(&third).unwrap();
        assert_eq!(third.lane.depth(), here + 5);
    }

    #[tokio::test]
    async fn a_place_is_not_lost_with_those_who_wait_no_more_and_nobody_is_passed() {
        let client = client().await;
        let places = Places::new(1);
        let place = places.acquire(&client).await;
        let mut gone = Box::pin(places.acquire(&client));
        let mut told = Box::pin(places.acquire(&client));
        let mut last = Box::pin(places.acquire(&client));
        for waiting in [&mut gone, &mut told, &mut last] {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        drop(gone);
        drop(place);
        assert!(places.try_acquire(&client).is_none(), "it was given to the second");
        // It has the place and does not know.
        drop(told);
        let place = last.now_or_never().expect("the place of who is gone");
        drop(place);
        assert!(places.try_acquire(&client).is_some());
    }

    #[tokio::test]
    async fn what_is_done_in_a_turn_comes_behind_what_it_has_waited_for_through_whatever_client() {
        let client = client().await;
        let here = client.lane.depth();
        let places = Places::new(1);
        let (first, second) = (Turn::new(), Turn::new());
        let place = places.try_acquire(&first).unwrap();
        let (one, other) = (first.fork(&client), first.fork(&client));
        let early = second.fork(&client);
        one.lane.raise(here + 4);
        assert_eq!((other.lane.depth(), client.lane.depth()), (here, here));
        let mut waiting = Box::pin(places.acquire(&second));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(place);
        let place = waiting.await;
        let late = second.fork(&client);
        assert_eq!((early.lane.depth(), late.lane.depth()), (here + 4, here + 4));
        // One that finds it free has waited for nobody, and may be told what it follows from.
        drop(place);
        let third = Turn::new();
        let _place = places.try_acquire(&third).unwrap();
        let its = third.fork(&client);
        assert_eq!(its.lane.depth(), here);
        third.join(&second);
        assert_eq!(its.lane.depth(), here + 4);
    }
}
