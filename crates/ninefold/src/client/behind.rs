//! Write-behind: writes of a file that return when they were sent (S5, "Write behind": OBEHIND and fdflush).
//!
//! [`File::write_behind`] sends, [`File::flush`] waits for the replies to all of it. An error is kept until it is told, once, by
//! whichever comes first: the next write, a flush or [`File::close`]. Before it is told the replies to all that was on the way
//! are waited for, so that writes which failed together are told of together, by the first error.
//!
//! Promises: what overlaps something that is on the way waits for it, so the last write wins; reads, attributes, locks, copies and
//! writes that are waited for come behind all of it; a file that [is ordered](File::is_ordered) has every write waited for. The bytes on the
//! way are bounded as those of a [`Writer`](super::Writer).
//!
//! Locks: one file's writes take turns, in the order of the calls; whoever waits in his turn waits for replies, which have the
//! bound of all calls.

use std::sync::OnceLock;

use bytes::Bytes;
use ninefold_proto::Errno;
use tokio::sync::{Mutex, MutexGuard};

use super::error::Error;
use super::file::File;
use super::pending::Pending;

/// What a file has on the way that nobody waits for; nothing, and of no cost, before the first write behind.
#[derive(Debug, Default)]
pub(super) struct Behind(OnceLock<Box<Mutex<State>>>);

#[derive(Debug, Default)]
struct State {
    pending: Option<Box<Pending>>,
    /// The first of what failed and was not told.
    failed: Option<Error>,
}

impl State {
    fn pending(&mut self, file: &File) -> &mut Pending {
        self.pending.get_or_insert_with(|| Box::new(Pending::new(file, true)))
    }

    /// What went wrong is known when nothing is on the way any more.
    async fn note(&mut self, file: &File, result: Result<(), Error>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
            if let Some(pending) = &mut self.pending {
                pending.drain(file).await;
            }
        }
    }

    /// Goes on with what a call that was dropped left undone.
    async fn recover(&mut self, file: &File) {
        if let (Some(_), Some(pending)) = (&self.failed, &mut self.pending) {
            pending.drain(file).await;
        }
    }

    /// Waits for all of it.
    async fn settle(&mut self, file: &File) {
        self.recover(file).await;
        if let Some(pending) = &mut self.pending {
            let result = pending.wait_for_all(file).await;
            self.note(file, result).await;
        }
    }

    /// Tells what went wrong, once.
    fn tell(&mut self) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Behind {
    /// Nothing where nothing was ever written behind.
    async fn turn(&self) -> Option<MutexGuard<'_, State>> {
        match self.0.get() {
            Some(state) => Some(state.lock().await),
            None => None,
        }
    }

    /// Waits until nothing is on the way; what went wrong is kept.
    pub async fn settle(&self, file: &File) {
        if let Some(mut state) = self.turn().await {
            state.settle(file).await;
        }
    }

    /// The same, and tells what went wrong.
    pub async fn end_in_order(&self, file: &File) -> Result<(), Error> {
        match self.turn().await {
            None => Ok(()),
            Some(mut state) => {
                state.settle(file).await;
                state.tell()
            }
        }
    }
}

impl File {
    /// Writes `data` at `offset`, and returns when all of it was sent, from where it is and without a copy; waits while more is on
    /// the way than the path holds ([`Options::window_max`](super::Options::window_max)). The error may be that of an earlier
    /// write: then nothing of this one was sent, or a part. Where the file [is ordered](File::is_ordered) it returns when all of it is
    /// written. Dropped before it is done it may have sent a part.
    pub async fn write_behind(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        if self.is_ordered() {
            return self.write_all(offset, data).await;
        }
        let mut state = self.behind.0.get_or_init(Box::default).lock().await;
        let state = &mut *state;
        state.recover(self).await;
        let seen = state.pending(self).look(self).await;
        state.note(self, seen).await;
        state.tell()?;
        let (mut next, mut rest) = (offset, data);
        let parted = state.pending(self).part_from(self, offset, rest.len() as u64).await;
        state.note(self, parted).await;
        state.tell()?;
        let result = state.pending(self).push(self, &mut next, &mut rest).await;
        state.note(self, result).await;
        state.tell()
    }

    async fn write_all(&self, mut offset: u64, mut data: Bytes) -> Result<(), Error> {
        while !data.is_empty() {
            let taken = self.write_through(offset, data.clone()).await? as usize;
            if taken == 0 || taken > data.len() {
                return Err(super::error::Suspicion::NoProgress.into());
            }
            offset += taken as u64;
            drop(data.split_to(taken));
        }
        Ok(())
    }

    /// Waits until all that was written behind is written, and tells the first error that was not told yet: fdflush. On the
    /// server's disk it is after [`File::sync`].
    pub async fn flush(&self) -> Result<(), Error> {
        self.behind.end_in_order(self).await
    }
}
