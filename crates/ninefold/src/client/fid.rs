//! Fids with an owner: [`OwnedFid`] is one that the server knows, [`NewFid`] one for the next call to make.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use ninefold_proto::client::Parting;
use ninefold_proto::{Fid, T};

use super::connection::Handle;
use super::error::Error;
use super::stats::Lane;

/// A fid that is clunked, or removed with its file, when this is dropped.
#[derive(Debug)]
pub(super) struct OwnedFid {
    handle: Handle,
    fid: Fid,
    /// Its file goes with it.
    removes: AtomicBool,
    /// The server was asked to forget it.
    gone: bool,
}

impl OwnedFid {
    /// A fid of a reply that just came.
    pub fn made(handle: Handle, fid: Fid) -> OwnedFid {
        OwnedFid { handle, fid, removes: AtomicBool::new(false), gone: false }
    }

    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// Whether it is one of that connection: elsewhere its number is another file's.
    pub fn is_of(&self, handle: &Handle) -> bool {
        self.handle.is(handle)
    }

    /// What happens when it is dropped.
    pub fn set_parting(&self, parting: Parting) {
        self.removes.store(parting == Parting::Remove, Ordering::Relaxed);
    }

    /// Waits until what was given up on it is done, which a request that lets go of it must not overtake.
    pub async fn quiet(&self) -> Result<(), Error> {
        self.handle.unnamed(self.fid).await
    }

    /// Clunks it, or removes its file, and waits for the result, once what was given up on it is done: it must not be
    /// overtaken. The fid is forgotten whatever that is, and whether or not this is waited for.
    pub async fn part(mut self, parting: Parting, lane: &Lane) -> Result<(), Error> {
        self.set_parting(parting);
        self.quiet().await?;
        let request = match parting {
            Parting::Clunk => T::Clunk { fid: self.fid },
            Parting::Remove => T::Remove { fid: self.fid },
        };
        // From the moment it is queued the request itself forgets the fid, even if nobody waits for it any more.
        let waiting = self.handle.begin(request, Bytes::new(), lane.depth()).await?;
        self.gone = true;
        waiting.wait(lane).await.map(drop)
    }
}

impl Drop for OwnedFid {
    fn drop(&mut self) {
        if !self.gone {
            let parting = if *self.removes.get_mut() { Parting::Remove } else { Parting::Clunk };
            self.handle.abandon(self.fid, parting);
        }
    }
}

/// A fid that no call has named yet.
#[derive(Debug)]
pub(super) struct NewFid<'h> {
    handle: &'h Handle,
    fid: Fid,
    used: bool,
}

impl<'h> NewFid<'h> {
    /// One that was taken for the next call; see [`Session::new_fid`](ninefold_proto::client::Session::new_fid).
    pub fn taken(handle: &'h Handle, fid: Fid) -> NewFid<'h> {
        NewFid { handle, fid, used: false }
    }

    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// A call has named it, whose it is now.
    pub fn named(mut self) {
        self.used = true;
    }
}

impl Drop for NewFid<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.handle.release(self.fid);
        }
    }
}
