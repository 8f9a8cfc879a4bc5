//! Renames of `.n1` that rename(2) does not have: onto a name that must be free, and two names for each other.
//!
//! Both are one step of the kernel's, or are not made: EINVAL from a file system that cannot.

use std::os::fd::AsFd;
use std::sync::Arc;

use ninefold_proto::Error;
use ninefold_proto::server::Rename;
use rustix::fs::{RenameFlags, renameat_with};

use super::file::HostFile;
use super::names::{Onto, Place, same_file};
use super::{Pace, os};

impl HostFile {
    pub(super) fn rename_entry_with(&self, from: Place<'_>, to: Place<'_>, how: Rename) -> Result<(), Error> {
        match how {
            Rename::NoReplace => self.move_entry(from, to, None, Onto::FreeAtOnce),
            Rename::Exchange => self.exchange_entries(from, to),
        }
    }

    fn exchange_entries(&self, one: Place<'_>, two: Place<'_>) -> Result<(), Error> {
        let tree = &self.session.export.tree;
        let (one_fd, two_fd) = (tree.fd(one.dir, Pace::MayWait)?, tree.fd(two.dir, Pace::MayWait)?);
        let _change = tree.change((one.dir, one.name), (two.dir, two.name));
        self.session.who.assume()?;
        let same = same_file(tree, &one_fd, one.name, &two_fd, two.name);
        renameat_with(&one_fd, one.name, &two_fd, two.name, RenameFlags::EXCHANGE).map_err(os)?;
        // Two names of one file are what they were.
        if same {
            return Ok(());
        }
        let lost = tree.exchanged((one.dir, one.name), (two.dir, two.name));
        for (lost, dir, name) in [(&lost[0], &two_fd, two.name), (&lost[1], &one_fd, one.name)] {
            if let Some(lost) = lost
                && let Ok(entry) = tree.open_entry(dir.as_fd(), name, Pace::MayWait)
                && tree.id(&entry.stx) == lost.id
            {
                tree.pin(lost, Arc::new(entry.fd));
            }
        }
        Ok(())
    }
}
