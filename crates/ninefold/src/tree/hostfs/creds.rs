//! Acting as the attached user, one thread at a time.
//!
//! A process that runs as root takes, on the thread that makes a call, the user's supplementary groups,
//! fsgid and fsuid (setfsuid(2)), so that the kernel itself checks every permission and owns every new
//! file. **Every** call whose outcome depends on who asks must be preceded by [`Identity::assume`], and no
//! `.await` may stand between the two. A [`Loan`] around the whole operation gives the thread back: what
//! else runs on it must not find itself to be somebody. Any other process acts as itself, never switching.
//!
//! Capabilities that are not tied to the fsuid and would still lift a user above others are given up
//! together with it: trusted and security attributes, file capabilities, quotas and reserved blocks.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use ninefold_proto::{Errno, Error};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_groups};

use super::os;
use crate::server::User;

/// What root may do by capabilities that setfsuid(2) does not take away.
const BEYOND_FILES: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_RESOURCE).union(CapabilitySet::SETFCAP);

/// Whom the kernel shall see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Identity {
    /// Whoever runs the process, which cannot switch.
    Process,
    /// Switched to by a process of root.
    User { uid: u32, gid: u32, groups: Arc<[u32]> },
}

/// What the kernel sees of this thread.
struct Current {
    uid: u32,
    gid: u32,
    /// Supplementary groups, unless they are still those that the thread began with.
    groups: Option<Arc<[u32]>>,
}

thread_local! {
    /// Whom this thread acts as; None = not known, because a new thread inherits its parent's identity.
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// While it lives the thread may act as users; afterwards it is the server's own again.
#[must_use]
pub(super) struct Loan;

impl Drop for Loan {
    fn drop(&mut self) {
        // Root can always become itself again. A thread that could not would fail its next call, too.
        let _ = Identity::of_server().assume();
    }
}

impl Identity {
    /// The identity of an attached user.
    pub(super) fn of_user(user: &User) -> Identity {
        if !switches() {
            return Identity::Process;
        }
        let mut groups = user.groups.clone();
        groups.sort_unstable();
        groups.dedup();
        Identity::User { uid: user.uid, gid: user.gid, groups: groups.into() }
    }

    /// The server's own.
    pub(super) fn of_server() -> &'static Identity {
        static SERVER: OnceLock<Identity> = OnceLock::new();
        SERVER.get_or_init(|| {
            if !switches() {
                return Identity::Process;
            }
            Identity::User { uid: 0, gid: rustix::process::getegid().as_raw(), groups: Arc::from([]) }
        })
    }

    /// The same user creating files for `gid`, when that is one of his groups. None when it is not, or
    /// when the process cannot switch: the group must then be changed afterwards, if it can be.
    pub(super) fn with_group(&self, gid: u32) -> Option<Identity> {
        match self {
            Identity::User { uid, gid: own, groups } if *uid == 0 || *own == gid || groups.contains(&gid) => {
                // The group that fsgid gives up must stay among the supplementary ones.
                let groups =
                    if groups.contains(own) { groups.clone() } else { groups.iter().copied().chain([*own]).collect() };
                Some(Identity::User { uid: *uid, gid, groups })
            }
            _ => None,
        }
    }

    /// The uid that the kernel sees.
    pub(super) fn uid(&self) -> u32 {
        match self {
            Identity::Process => rustix::process::geteuid().as_raw(),
            Identity::User { uid, .. } => *uid,
        }
    }

    /// Whether `gid` is one of the groups.
    pub(super) fn is_in_group(&self, gid: u32) -> bool {
        match self {
            Identity::Process => {
                rustix::process::getegid().as_raw() == gid
                    || rustix::process::getgroups().is_ok_and(|groups| groups.iter().any(|g| g.as_raw() == gid))
            }
            Identity::User { gid: own, groups, .. } => *own == gid || groups.contains(&gid),
        }
    }

    /// Makes this thread act as this user until the end of the [`Loan`].
    pub(super) fn assume(&self) -> Result<(), Error> {
        let Identity::User { uid, gid, groups } = self else { return Ok(()) };
        CURRENT.with_borrow_mut(|current| {
            // Unknown until all of it has been done.
            let before = current.take();
            let (had_uid, had_gid) = (before.as_ref().map(|c| c.uid), before.as_ref().map(|c| c.gid));
            let mut had_groups = before.and_then(|c| c.groups);
            // Root needs no groups, so that going back and forth leaves a user's in place.
            if *uid != 0 && had_groups.as_ref() != Some(groups) {
                let list: Vec<rustix::fs::Gid> = groups.iter().map(|&g| rustix::fs::Gid::from_raw(g)).collect();
                set_thread_groups(&list).map_err(os)?;
                had_groups = Some(groups.clone());
            }
            if had_gid != Some(*gid) {
                setfsgid(Gid::from_raw(*gid));
                check(setfsgid(Gid::from_raw(*gid)).as_raw() == *gid)?;
            }
            if had_uid != Some(*uid) {
                setfsuid(Uid::from_raw(*uid));
                check(setfsuid(Uid::from_raw(*uid)).as_raw() == *uid)?;
                if had_uid.is_none_or(|had| (had == 0) != (*uid == 0)) {
                    set_beyond_files(*uid == 0)?;
                }
            }
            *current = Some(Current { uid: *uid, gid: *gid, groups: had_groups });
            Ok(())
        })
    }
}

/// Whether this process can act as others: it runs as root.
fn switches() -> bool {
    rustix::process::geteuid().is_root()
}

fn set_beyond_files(on: bool) -> Result<(), Error> {
    let mut sets = capabilities(None).map_err(os)?;
    let effective = if on { sets.effective | (BEYOND_FILES & sets.permitted) } else { sets.effective & !BEYOND_FILES };
    if effective != sets.effective {
        sets.effective = effective;
        set_capabilities(None, sets).map_err(os)?;
    }
    Ok(())
}

// setfsuid(2) reports no failure; it only leaves the old number in place.
fn check(taken: bool) -> Result<(), Error> {
    if taken { Ok(()) } else { Err(Error::with_text(Errno::EPERM, "cannot act as the attached user")) }
}
