//! A small file where there is none: one round trip, with the connection's own if that is the first use
//! ([`Client::put`]). Where something has the name, or it cannot be done so, nothing of it is left, and the caller goes the
//! way on which everything is looked at.

use std::cell::RefCell;

use bytes::Bytes;
use ninefold::client::{Client, Error, NewFile, Unput, components};
use ninefold::proto::attr::SetAttr;
use ninefold::transport::Address;

use super::World;
use super::left::Left;
use crate::place::says_directory;
use crate::report::Failure;

/// Bytes of the largest such file: 1 MiB, which is held in memory to be written again where that is to be done otherwise.
pub const MOST: usize = 1 << 20;

/// Permissions of the part. What has the name may be kept from others, or be a directory that is, and that is known a round trip
/// after all was written: until the file has its name it is nobody else's to read.
const PRIVATE: u32 = 0o600;

/// What the file is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Birth<'a> {
    /// See [`NewFile::part`].
    pub part: &'a [u8],
    /// Permissions that it has in the end.
    pub mode: u32,
    /// Its other attributes.
    pub set: Option<&'a SetAttr>,
    /// See [`NewFile::sync`].
    pub sync: bool,
}

/// What came of it.
#[derive(Debug)]
pub enum Born {
    Done,
    /// It is there, but for its permissions: the server refused them, and it has those of a private file.
    WithoutMode(Error),
    /// Nothing is there.
    Not,
}

/// Makes the file at `address`. An error says that nobody knows whether it was made, or that there is no connection.
pub async fn make(world: &World, address: &Address, birth: Birth<'_>, data: Bytes) -> Result<Born, Failure> {
    let Ok(mut dir) = components(&address.path) else { return Ok(Born::Not) };
    let Some(name) = dir.pop().filter(|_| !says_directory(&address.path)) else { return Ok(Born::Not) };
    let dir: Vec<u8> = dir.iter().flat_map(|name| b"/".iter().chain(name)).copied().collect();
    let shown = Address { path: [&dir, &b"/"[..], birth.part].concat(), ..address.clone() };
    let left: RefCell<Option<Left>> = RefCell::default();
    let put = async |client: &Client| {
        if !client.version().is_n1() {
            return Ok(None);
        }
        let now = Left::at(&shown, &world.temporaries, client);
        // It is tried again only where nothing was done before.
        if let Some(before) = left.borrow_mut().replace(now) {
            before.gone();
        }
        let Birth { part, mode, set, sync } = birth;
        // One that is to be no more than private has that from the start.
        let new = NewFile { name: &name, part, perm: PRIVATE, set, mode: (mode != PRIVATE).then_some(mode), sync };
        match client.put(&dir, &new, data.clone()).await {
            Err(Unput::Unknown(e)) => Err(e),
            put => Ok(Some(put)),
        }
    };
    let done = world.servers.first(address, put).await;
    let left = left.into_inner();
    match (done, left) {
        (Ok((_, Ok(Some(Ok(()))))), Some(left)) => {
            left.gone();
            Ok(Born::Done)
        }
        (Ok((_, Ok(Some(Err(Unput::Mode(e)))))), Some(left)) => {
            left.gone();
            Ok(Born::WithoutMode(e))
        }
        (Ok((_, Ok(Some(Err(Unput::Nothing(_)))))), Some(left)) => {
            left.gone();
            Ok(Born::Not)
        }
        (Ok((_, Ok(Some(Err(_))))), Some(left)) => {
            // Beside what the caller does now.
            world.temporaries.spawn(left.remove());
            Ok(Born::Not)
        }
        (Ok((_, Ok(_))), _) => Ok(Born::Not),
        (Ok((_, Err(e))), _) => Err(Failure::new(address, "cannot write", e)),
        (Err(failure), left) => {
            // But for a change in doubt nothing was done without a connection.
            if let (false, Some(left)) = (matches!(failure.error, Error::InDoubt(_)), left) {
                left.gone();
            }
            Err(failure)
        }
    }
}
