//! Names of users and groups, for 9P2000's stat records.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::server::User;

/// Names kept of each sort. The machine's database is asked once for each number; what is beyond this many is told as
/// a number, so that a client cannot fill the memory by changing owners.
const MAX_NAMES: usize = 4096;

/// What numbers are called.
#[derive(Debug, Default)]
pub(super) struct Ids {
    users: Mutex<HashMap<u32, String>>,
    groups: Mutex<HashMap<u32, String>>,
}

impl Ids {
    /// Remembers the name of somebody who attached.
    pub(super) fn learn(&self, user: &User) {
        name(&self.users, user.uid, || user.name.clone());
    }

    pub(super) fn user(&self, uid: u32) -> String {
        name(&self.users, uid, || User::from_uid(uid).name)
    }

    pub(super) fn group(&self, gid: u32) -> String {
        name(&self.groups, gid, || {
            let group = nix::unistd::Group::from_gid(nix::unistd::Gid::from_raw(gid));
            group.ok().flatten().map_or_else(|| gid.to_string(), |group| group.name)
        })
    }

    /// The number of a user: of one who attached or whom the machine knows, or the number itself.
    pub(super) fn uid(&self, name: &str) -> Option<u32> {
        let known = number(&self.users, name);
        known.or_else(|| User::from_name(name).map(|user| user.uid)).or_else(|| name.parse().ok())
    }

    /// The number of a group.
    pub(super) fn gid(&self, name: &str) -> Option<u32> {
        let group = || nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
        number(&self.groups, name).or_else(group).or_else(|| name.parse().ok())
    }
}

fn name(names: &Mutex<HashMap<u32, String>>, id: u32, ask: impl FnOnce() -> String) -> String {
    let known = |names: &HashMap<u32, String>| match names.get(&id) {
        Some(name) => Some(name.clone()),
        None => (names.len() >= MAX_NAMES).then(|| id.to_string()),
    };
    if let Some(name) = known(&names.lock().unwrap_or_else(PoisonError::into_inner)) {
        return name;
    }
    // The database may be slow; others need not wait for it.
    let name = ask();
    names.lock().unwrap_or_else(PoisonError::into_inner).insert(id, name.clone());
    name
}

fn number(names: &Mutex<HashMap<u32, String>>, name: &str) -> Option<u32> {
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    names.iter().find(|(_, known)| *known == name).map(|(id, _)| *id)
}
