//! Who a request acts as, once the server has decided it.

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
    /// The user whom the machine's user database gives for `uid`; a number it does not know stands alone.
    pub fn from_uid(uid: u32) -> User {
        match nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)) {
            Ok(Some(user)) => User::from_database(user),
            _ => User { name: uid.to_string(), uid, gid: uid, groups: Vec::new() },
        }
    }

    /// The user of that name, if the machine knows it.
    pub fn from_name(name: &str) -> Option<User> {
        nix::unistd::User::from_name(name).ok().flatten().map(User::from_database)
    }

    /// The user this process runs as.
    pub fn of_process() -> User {
        User::from_uid(rustix::process::geteuid().as_raw())
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
