//! `cp FILE URL`, one large file: where nothing has the name, its temporary file is made, and its first bytes are on their way, in the round trip in which
//! the name is looked at ([`Client::locate_or_make`]). Where something has it, or it cannot be done so, nothing is made, and the file goes as any other.
//!
//! [`Ahead::of`] says whether a copy is one of these, [`Ahead::locate`] does it, and who makes the temporary file takes the [`Started`] one.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ninefold::client::{Client, Draft, Error, File, FileType, Located, components};
use ninefold::transport::Address;

use super::cx::Cx;
use super::facts::Facts;
use super::part::random_part_name;
use super::reader::{Content, STREAMED};
use super::source::Item;
use super::there_part::{Part, parts};
use crate::files::World;
use crate::files::left::Left;
use crate::files::temporaries::{Entry, Temporaries};
use crate::place::{Place, says_directory};
use crate::report::Failure;

/// A large file of this machine that goes to a server, if the name is free.
#[derive(Debug)]
pub struct Ahead {
    /// What it was like before anything of it was read.
    source: Facts,
    from: Arc<OwnedFd>,
    /// Of the temporary file.
    perm: u32,
    /// At most.
    streams: usize,
}

/// What was found, and the temporary file where one was made.
type Found = (Located, Option<Started>);

impl Ahead {
    /// The only source of a copy to `dst`, if it is one; what it is that cannot be looked at or opened is told by who copies it.
    pub async fn of(cx: &Cx<'_>, sources: &[Place], dst: &Place) -> Option<Ahead> {
        let ([source @ Place::Local(path)], Place::Remote(_)) = (sources, dst) else { return None };
        let how = &cx.how;
        let is_plain = !cx.recursive && !how.resume && !how.checksum && !cx.dry_run;
        let is_copied = source.name().is_some_and(|name| cx.filter.takes(&name, false));
        if !is_plain || !is_copied || source.says_directory() || dst.says_directory() {
            return None;
        }
        let mut item = Item::here(path, true).ok()?;
        let is_large = |facts: &Facts| facts.kind == FileType::File && facts.size >= STREAMED && facts.is_dense;
        // A pipe must not be opened twice.
        if !item.facts().await.is_ok_and(|facts| is_large(&facts)) {
            return None;
        }
        let Ok((source, Some(Content::Here { fd: from, .. }))) = item.open().await else { return None };
        let perm = how.part_mode(&source);
        is_large(&source).then_some(Ahead { source, from, perm, streams: cx.streams })
    }

    /// What is at `address`, and the temporary file where that is nothing. An error of the inner result is one of the looking.
    pub async fn locate(&self, world: &World, address: &Address) -> Result<Result<Found, Error>, Failure> {
        let looked = async |client: &Client| client.locate(&address.path).await;
        let plain = |(_, located): (Client, Result<Located, Error>)| located.map(|located| (located, None));
        let name = components(&address.path).ok().filter(|_| !says_directory(&address.path)).and_then(|mut dir| {
            let name = dir.pop()?;
            Some((dir, name))
        });
        let Some((dir, name)) = name else { return world.servers.first(address, looked).await.map(plain) };
        let part = random_part_name(&name);
        let path = dir.iter().chain([&part]).flat_map(|name| b"/".iter().chain(name)).copied().collect();
        let shown = Address { path, ..address.clone() };
        let left: RefCell<Option<Left>> = RefCell::default();
        let begin = async |client: &Client| {
            if !client.version().is_n1() {
                return client.locate(&address.path).await.map(|located| (located, None));
            }
            // It is tried again only where nothing was done before.
            if let Some(before) = left.borrow_mut().replace(Left::at(&shown, &world.temporaries, client)) {
                before.gone();
            }
            let streams =
                if client.has_streams() { client.streams_to_write(self.source.size, self.streams) } else { 0 };
            let parts = parts(self.source.size, streams, Some(&self.from)).await;
            let draft = Draft { part: &part, perm: self.perm, parts: &parts };
            let (located, file) = client.locate_or_make(&address.path, &draft).await?;
            Ok((located, file.map(|file| (file, streams))))
        };
        let begun = world.servers.first_by_streams(address, self.streams, begin).await;
        let left = left.into_inner();
        match (begun, left) {
            (Ok((_, Ok((located, Some((file, streams)))))), Some(left)) => {
                let (source, temporaries) = (self.source.clone(), world.temporaries.clone());
                let made = Some(Part::made(file, left.into_entry(), streams));
                let started = Started { name: part, source, perm: self.perm, part: made, temporaries };
                Ok(Ok((located, Some(started))))
            }
            (Ok((_, begun)), left) => {
                // Else it is found out what became of it.
                if let (Ok(_) | Err(Error::Refused(_)), Some(left)) = (&begun, left) {
                    left.gone();
                }
                Ok(begun.map(|(located, _)| (located, None)))
            }
            // A temporary file is all that may have been made: the copy is not.
            (Err(Failure { error: Error::InDoubt(_), .. }), left) => {
                let looked = world.servers.first(address, looked).await;
                if let (Ok((client, _)), Some(left)) = (&looked, left) {
                    world.temporaries.spawn(left.by(client).remove());
                }
                looked.map(plain)
            }
            (Err(failure), left) => {
                // Nothing was done without a connection.
                if let Some(left) = left {
                    left.gone();
                }
                Err(failure)
            }
        }
    }
}

/// A temporary file that was made before anybody had gone to its source. Dropped, it is removed.
#[derive(Debug)]
pub struct Started {
    name: Vec<u8>,
    source: Facts,
    perm: u32,
    part: Option<Part>,
    temporaries: Temporaries,
}

impl Started {
    /// Its name, and what is open; `None` where it was made for another, or its source was changed since: what was read of that may not be what is there now.
    pub fn take(mut self, source: &Facts, perm: u32) -> Option<(Vec<u8>, Part)> {
        let is_same = self.source.inode == source.inode && !self.source.differs(source) && self.perm == perm;
        if !is_same {
            return None;
        }
        self.part.take().map(|part| (std::mem::take(&mut self.name), part))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(Part { file, entry: Some(entry), .. }) = self.part.take() {
            self.temporaries.spawn(async move { removed(file, entry).await });
        }
    }
}

async fn removed(file: File, entry: Entry) {
    entry.removed(&file.remove().await);
}
