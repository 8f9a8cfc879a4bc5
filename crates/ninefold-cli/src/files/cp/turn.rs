//! The [`Turn`] of the task that runs: what it waited for counts as the cause of what it asks, through whatever client, so that
//! the bounds of a copy show in the round trips that `--stats` tells.
//!
//! [`run`] begins it; [`fork`] and [`follow`] find it. A task that is spawned has it only by [`kept`].

use ninefold::client::{Client, Turn};
use tokio::sync::{Semaphore, SemaphorePermit};

tokio::task_local! {
    static TURN: Turn;
}

/// Runs a task in its turn.
pub async fn run<T>(turn: Turn, task: impl Future<Output = T>) -> T {
    TURN.scope(turn, task).await
}

/// Lets what is spawned be part of the turn of who spawns it.
pub fn kept<T>(task: impl Future<Output = T>) -> impl Future<Output = T> {
    TURN.scope(now(), task)
}

/// That of the task that runs; of its own where none has begun.
pub fn now() -> Turn {
    TURN.try_with(Turn::clone).unwrap_or_default()
}

/// A client for what is done beside others and in this turn.
pub fn fork(client: &Client) -> Client {
    now().fork(client)
}

/// What is done through a client that others use too: its figure can be too high from then on, and not too low.
pub fn follow(client: &Client) {
    now().follow(client);
}

/// So many bytes: who waits for some begins behind what was done by who had them.
#[derive(Debug)]
pub struct Room {
    bytes: Semaphore,
    /// Follows from all that was done by who had some.
    done: Turn,
}

/// Some of it; dropped, others have it.
#[must_use = "room that is dropped is another's at once"]
#[derive(Debug)]
pub struct Taken<'r> {
    room: &'r Room,
    turn: Turn,
    /// Goes last: who gets it finds what was done.
    _bytes: Option<SemaphorePermit<'r>>,
}

impl Room {
    pub fn new(bytes: usize) -> Room {
        Room { bytes: Semaphore::new(bytes), done: Turn::new() }
    }

    /// Waits for so many bytes, of no more than there are.
    pub async fn acquire_many(&self, bytes: u32) -> Taken<'_> {
        let turn = now();
        let taken = match self.bytes.try_acquire_many(bytes) {
            Ok(taken) => Some(taken),
            Err(_) => {
                // Nobody closes it.
                let taken = self.bytes.acquire_many(bytes).await.ok();
                turn.join(&self.done);
                taken
            }
        };
        Taken { room: self, turn, _bytes: taken }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.room.done.join(&self.turn);
    }
}
