//! Names of users and groups, as 9P2000's stat records want them.
//!
//! The machine's user database may be a network away, so answers are kept for a minute, at most
//! [`MAX_NAMES`] of each; [`Ids::user`] and [`Ids::group`] ask it only at a pace that may wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ninefold_proto::{Errno, Error};
use nix::unistd::{Gid, Group, Uid, User};

use super::{Pace, lock};

/// More users than most machines have; the table is emptied when it is full.
const MAX_NAMES: usize = 4096;

/// How long a name is believed.
const KEEP: Duration = Duration::from_secs(60);

type Names = Mutex<HashMap<u32, (Arc<[u8]>, Instant)>>;

/// The names asked for lately.
#[derive(Default, Debug)]
pub(super) struct Ids {
    users: Names,
    groups: Names,
}

impl Ids {
    /// The user's name; the number when it has none. EAGAIN when it would have to wait and may not.
    pub(super) fn user(&self, uid: u32, pace: Pace) -> Result<Arc<[u8]>, Error> {
        cached(&self.users, uid, pace, || User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|u| u.name))
    }

    /// The group's name; the number when it has none. EAGAIN when it would have to wait and may not.
    pub(super) fn group(&self, gid: u32, pace: Pace) -> Result<Arc<[u8]>, Error> {
        cached(&self.groups, gid, pace, || Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|g| g.name))
    }

    /// The number of a group's name; a decimal number stands for itself. May wait.
    pub(super) fn gid(&self, name: &[u8]) -> Option<u32> {
        let name = std::str::from_utf8(name).ok()?;
        match Group::from_name(name) {
            Ok(Some(group)) => Some(group.gid.as_raw()),
            _ => name.parse().ok(),
        }
    }
}

fn cached(names: &Names, id: u32, pace: Pace, ask: impl FnOnce() -> Option<String>) -> Result<Arc<[u8]>, Error> {
    if let Some((name, since)) = lock(names).get(&id)
        && since.elapsed() < KEEP
    {
        return Ok(name.clone());
    }
    if pace == Pace::Inline {
        return Err(Errno::EAGAIN.into());
    }
    let name: Arc<[u8]> = ask().unwrap_or_else(|| id.to_string()).into_bytes().into();
    let mut names = lock(names);
    if names.len() >= MAX_NAMES {
        names.clear();
    }
    names.insert(id, (name.clone(), Instant::now()));
    Ok(name)
}
