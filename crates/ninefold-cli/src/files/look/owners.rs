//! Who owns a file, as a name: the server's where the dialect has names, this machine's for a number of 9P2000.L, as
//! ls(1) on a mount has it.
//!
//! [`Owners::learn`] asks the user database of this machine, which may take its time; what it learned is there at once.

use std::collections::HashMap;

use ninefold::client::Metadata;
use nix::unistd::{Gid, Group, Uid, User};

use super::names::tame;

/// Bytes of a name that are shown: Linux has no longer ones (LOGIN_NAME_MAX), and one of 64 KiB would widen every line.
const NAME_MAX: usize = 256;

/// Whose a file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    Name(Vec<u8>),
    /// Without a name.
    Number(u32),
    Unknown,
}

/// Numbers and their names here; `None` for a number that has none.
#[derive(Debug, Default)]
pub struct Owners {
    users: HashMap<u32, Option<String>>,
    groups: HashMap<u32, Option<String>>,
}

impl Owners {
    /// Looks up all numbers in `all` that are not known yet, where the server gave no name.
    pub async fn learn(&mut self, all: impl Iterator<Item = &Metadata>) {
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        for metadata in all {
            let (user, group) = (named(&metadata.owner), named(&metadata.group));
            users.extend(metadata.uid.filter(|uid| user.is_none() && !self.users.contains_key(uid)));
            groups.extend(metadata.gid.filter(|gid| group.is_none() && !self.groups.contains_key(gid)));
        }
        for numbers in [&mut users, &mut groups] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        if users.is_empty() && groups.is_empty() {
            return;
        }
        // The database may lie behind a network: Ctrl-C must not wait for it.
        let look_up = move || {
            let user = |uid| User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
            let group = |gid| Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name);
            let users: Vec<_> = users.into_iter().map(|uid| (uid, user(uid))).collect();
            let groups: Vec<_> = groups.into_iter().map(|gid| (gid, group(gid))).collect();
            (users, groups)
        };
        // It fails only when the look-up panics; then there are numbers.
        if let Ok((users, groups)) = tokio::task::spawn_blocking(look_up).await {
            self.users.extend(users);
            self.groups.extend(groups);
        }
    }

    pub fn user(&self, metadata: &Metadata) -> Who {
        who(&metadata.owner, metadata.uid, &self.users)
    }

    pub fn group(&self, metadata: &Metadata) -> Who {
        who(&metadata.group, metadata.gid, &self.groups)
    }
}

/// A name that says something.
fn named(name: &Option<Vec<u8>>) -> Option<&Vec<u8>> {
    name.as_ref().filter(|name| !name.is_empty())
}

fn who(name: &Option<Vec<u8>>, number: Option<u32>, here: &HashMap<u32, Option<String>>) -> Who {
    if let Some(name) = named(name) {
        // What servers send for a number without a name.
        if let Some(number) = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok()) {
            return Who::Number(number);
        }
        // No name of a user has such a character, and a listing has its own use for newlines.
        return Who::Name(tame(&name[..name.len().min(NAME_MAX)]).into_bytes());
    }
    match number {
        Some(number) => match here.get(&number) {
            Some(Some(name)) => Who::Name(name.clone().into_bytes()),
            _ => Who::Number(number),
        },
        None => Who::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_name_comes_before_the_number_and_the_number_before_nothing() {
        let here = HashMap::from([(0, Some("root".to_owned())), (7, None)]);
        let name = |name: &[u8]| Some(name.to_vec());
        assert_eq!(who(&name(b"glenda"), Some(0), &here), Who::Name(b"glenda".to_vec()));
        assert_eq!(who(&name(b"gl\nen\x1bda"), None, &here), Who::Name(b"gl?en?da".to_vec()));
        assert_eq!(who(&name("g\u{9b}\u{202e}lü".as_bytes()), None, &here), Who::Name("g??lü".into()));
        assert_eq!(who(&name(&[b'x'; 300]), None, &here), Who::Name(vec![b'x'; 256]));
        assert_eq!(who(&name(b"12345"), Some(12345), &here), Who::Number(12345));
        assert_eq!(who(&name(b""), Some(0), &here), Who::Name(b"root".to_vec()));
        assert_eq!(who(&None, Some(7), &here), Who::Number(7));
        assert_eq!(who(&None, None, &here), Who::Unknown);
    }
}
