//! Acting as another user. Credentials are a thread's on Linux, so a thread that is made for it becomes that user and is
//! over when the work is.

use std::{io, thread};

use anyhow::{Context, Result};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// A user whom Debian's user database has everywhere, with the group of the same number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct User(pub u32);

pub const DAEMON: User = User(1);
pub const BIN: User = User(2);
pub const NOBODY: User = User(65534);

impl User {
    /// Runs `work` as this user, in its group and no other.
    pub fn does<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let become_user = || -> io::Result<()> {
            let (uid, gid) = (Uid::from_raw(self.0), Gid::from_raw(self.0));
            set_thread_groups(&[gid])?;
            set_thread_res_gid(gid, gid, gid)?;
            Ok(set_thread_res_uid(uid, uid, uid)?)
        };
        thread::scope(|scope| {
            let thread = scope.spawn(|| become_user().map(|()| work()));
            let result = thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
            result.with_context(|| format!("acting as user {}", self.0))
        })
    }
}
