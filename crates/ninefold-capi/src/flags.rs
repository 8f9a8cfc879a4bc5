//! What the flags of open(2) mean for a file of a server.

use nine::client::Mode;
use nine::proto::Errno;
use nine::proto::open::Access;
use nix::libc;

use crate::fence::EINVAL;

/// Writes do not wait for their replies (S5, "Write behind"). A bit that open(2) has given to nothing.
pub const OBEHIND: i32 = 0x4000_0000;

/// Known, and of no consequence: such a descriptor passes through no exec(3), is no terminal, and files are large. O_NOATIME is a
/// hint by open(2). O_NONBLOCK is one for plain files, and what else a server has may take as long as the bound of all calls.
const OF_NO_CONSEQUENCE: i32 =
    libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_LARGEFILE | libc::O_NOATIME | libc::O_NONBLOCK;

/// __O_SYNC of the kernel: O_SYNC is this and O_DSYNC.
const SYNC: i32 = libc::O_SYNC | libc::O_DSYNC;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags {
    pub access: Access,
    pub create: bool,
    pub exclusive: bool,
    pub truncate: bool,
    pub append: bool,
    pub directory: bool,
    pub no_follow: bool,
    /// Every write is on the server's disk before it returns.
    pub sync: bool,
    pub behind: bool,
}

impl Flags {
    /// O_DIRECT, O_PATH, O_TMPFILE, O_ASYNC and bits that are not known are EINVAL: they ask for what is not given.
    pub fn new(flags: i32) -> Result<Flags, Errno> {
        let access = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => Access::Read,
            libc::O_WRONLY => Access::Write,
            libc::O_RDWR => Access::ReadWrite,
            _ => return Err(EINVAL),
        };
        let mut left = flags & !libc::O_ACCMODE & !OF_NO_CONSEQUENCE;
        let mut take = |bits: i32| {
            let set = left & bits != 0;
            left &= !bits;
            set
        };
        let flags = Flags {
            access,
            create: take(libc::O_CREAT),
            exclusive: take(libc::O_EXCL),
            truncate: take(libc::O_TRUNC),
            append: take(libc::O_APPEND),
            directory: take(libc::O_DIRECTORY),
            no_follow: take(libc::O_NOFOLLOW),
            sync: take(SYNC),
            behind: take(OBEHIND),
        };
        // open(2): O_CREAT with O_DIRECTORY makes no directory; Linux refuses it since 6.4.
        if left != 0 || flags.create && flags.directory { Err(EINVAL) } else { Ok(flags) }
    }

    pub fn reads(self) -> bool {
        self.access != Access::Write
    }

    pub fn writes(self) -> bool {
        self.access != Access::Read
    }

    /// How the file is opened at the server; `append` where its dialect can.
    pub fn mode(self, append: bool) -> Mode {
        let behind = self.behind && !self.sync;
        Mode { access: self.access, truncate: self.truncate, append: self.append && append, behind, cache: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_flag_asks_for_is_given_or_refused() {
        let flags = Flags::new(libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | OBEHIND).unwrap();
        assert!(flags.reads() && flags.writes() && flags.create && flags.behind && !flags.exclusive);
        assert!(Flags::new(libc::O_WRONLY | libc::O_SYNC).unwrap().sync);
        for refused in [libc::O_DIRECT, libc::O_PATH, libc::O_TMPFILE, libc::O_ASYNC, libc::O_ACCMODE, 0x2000_0000] {
            assert_eq!(Flags::new(refused), Err(EINVAL), "{refused:o}");
        }
        assert_eq!(Flags::new(libc::O_CREAT | libc::O_DIRECTORY), Err(EINVAL));
    }

    #[test]
    fn no_flag_of_the_kernel_is_the_flag_of_writing_behind() {
        let all = libc::O_ACCMODE
            | OF_NO_CONSEQUENCE
            | SYNC
            | libc::O_DIRECT
            | libc::O_PATH
            | libc::O_TMPFILE
            | libc::O_ASYNC;
        let more = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_APPEND | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        assert_eq!(OBEHIND & (all | more), 0);
    }
}
