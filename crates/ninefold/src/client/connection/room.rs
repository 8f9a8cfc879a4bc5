//! Room on a connection: how many calls may be outstanding, and waiting until one more may.
//!
//! There is a permit for each call of the session. One that is taken goes with the call ([`Room::forget`]) and comes back when the
//! call is done, or comes back when the [`Room`] is dropped.

use tokio::sync::TryAcquireError;
use tokio::time::Instant;

use super::{Handle, Shared, State};
use crate::client::error::Error;

impl Handle {
    /// Waits until one more call may begin, while anything moves; the call's silence goes on from there.
    pub async fn room(&self) -> Result<Room<'_>, Error> {
        let shared = &self.0.shared;
        if let Some(room) = self.try_room(false) {
            return room;
        }
        // What was issued and not sent yet may be what makes room.
        shared.waker.wake();
        let began = Instant::now();
        let silent = |state: &State| began.max(state.progress.latest().unwrap_or(began));
        let permit = shared.patiently(silent, shared.room.acquire()).await?.map_err(|_| shared.ended())?;
        permit.forget();
        let state = shared.lock();
        // The reply that made room is a cause too.
        Ok(Room { shared, cause: state.freed_depth, silent: silent(&state) })
    }

    /// The same for so many calls that belong together: none of them waits for room that others like it hold.
    pub async fn rooms(&self, calls: u32) -> Result<Rooms, Error> {
        let shared = &self.0.shared;
        let began = Instant::now();
        let silent = |state: &State| began.max(state.progress.latest().unwrap_or(began));
        let (permits, waited) = match shared.room.try_acquire_many(calls) {
            Ok(permits) => (permits, false),
            Err(TryAcquireError::Closed) => return Err(self.0.shared.ended()),
            Err(TryAcquireError::NoPermits) => {
                shared.waker.wake();
                let permits = shared.patiently(silent, shared.room.acquire_many(calls)).await?;
                (permits.map_err(|_| shared.ended())?, true)
            }
        };
        permits.forget();
        let state = shared.lock();
        let cause = if waited { state.freed_depth } else { 0 };
        Ok(Rooms { handle: self.clone(), left: calls, cause, silent: silent(&state) })
    }

    /// Whether one more call may begin now. `refused`: there was no room before, and so the reply that made some is a cause.
    pub fn try_room(&self, refused: bool) -> Option<Result<Room<'_>, Error>> {
        match self.0.shared.room.try_acquire() {
            Ok(permit) => {
                permit.forget();
                let cause = if refused { self.0.shared.lock().freed_depth } else { 0 };
                Some(Ok(Room { shared: &self.0.shared, cause, silent: Instant::now() }))
            }
            Err(TryAcquireError::Closed) => Some(Err(self.0.shared.ended())),
            Err(TryAcquireError::NoPermits) => None,
        }
    }
}

/// Room for one call on a connection.
#[derive(Debug)]
pub(in crate::client) struct Room<'h> {
    pub(super) shared: &'h Shared,
    /// The depth of the reply that made it.
    pub(super) cause: u32,
    /// Since when nothing has moved for who waited for it.
    pub(super) silent: Instant,
}

impl Room<'_> {
    /// It is the session's from now on.
    pub(super) fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.shared.room.add_permits(1);
    }
}

/// Room for several.
#[derive(Debug)]
pub(in crate::client) struct Rooms {
    pub(super) handle: Handle,
    pub(super) left: u32,
    pub(super) cause: u32,
    pub(super) silent: Instant,
}

impl Rooms {
    /// One of them, while there are any.
    pub fn take(&mut self) -> Option<Room<'_>> {
        self.left = self.left.checked_sub(1)?;
        Some(Room { shared: &self.handle.0.shared, cause: self.cause, silent: self.silent })
    }
}

impl Drop for Rooms {
    fn drop(&mut self) {
        self.handle.0.shared.room.add_permits(self.left as usize);
    }
}
