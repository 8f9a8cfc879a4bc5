//! Who a request acts as, once the server has decided it.

/// The group of a uid that no database knows: the kernel's overflowgid (DEFAULT_OVERFLOWGID in linux/highuid.h), Debian's
/// `nogroup`. The group of the same number may be anybody's: uid 42 would get Debian's `shadow`.
const OVERFLOW_GID: u32 = 65534;

/// A user of the machine that serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl User {
    /// The user whom the machine's user database gives for `uid`; a number it does not know is in no group.
    pub fn from_uid(uid: u32) -> User {
        match nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)) {
            Ok(Some(user)) => User::from_database(user),
            _ => User { name: uid.to_string(), uid, gid: OVERFLOW_GID, groups: Vec::new() },
        }
    }

    /// The user of that name, if the machine knows it.
    pub fn from_name(name: &str) -> Option<User> {
        nix::unistd::User::from_name(name).ok().flatten().map(User::from_database)
    }

    /// The user this process runs as.
    pub fn of_process() -> User {
        let user = User::from_uid(rustix::process::geteuid().as_raw());
        // In a container it often has a number that no database knows, but groups it has.
        if user.gid == OVERFLOW_GID { User { gid: rustix::process::getegid().as_raw(), ..user } } else { user }
    }

    fn from_database(user: nix::unistd::User) -> User {
        let groups = std::ffi::CString::new(user.name.as_bytes())
            .ok()
            .and_then(|name| nix::unistd::getgrouplist(&name, user.gid).ok())
            .unwrap_or_default();
        User {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.iter().map(|g| g.as_raw()).collect(),
            name: user.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_the_database_does_not_know_is_in_no_group_of_anybody() {
        // Beyond what any allocation of uids hands out; -1 is none.
        let unknown = 4_294_900_042;
        let user = User::from_uid(unknown);
        assert_eq!((user.uid, user.gid, user.groups), (unknown, OVERFLOW_GID, Vec::new()));
    }
}
