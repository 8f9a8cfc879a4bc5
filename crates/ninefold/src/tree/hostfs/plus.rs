//! Reading directories with the attributes of what is in them.
//!
//! The names come from `dir_stream.rs`, read ahead as any listing's; the attributes are asked for when the request is there, lest a
//! client that has just changed a file be told what it was before. One statx(2) of the name in the open directory is all that an
//! entry costs, made as the user: who may list a directory but not search it sees names only.
//!
//! On a name where something is mounted the kernel would go on into the mount: such a name is looked up as a walk does it.

use std::os::fd::AsFd;

use ninefold_proto::attr::Attr;
use ninefold_proto::types::WalkElem;
use ninefold_proto::{Errno, Error};
use rustix::fs::StatxAttributes;

use super::Pace;
use super::attr::attr_of;
use super::file::HostFile;
use super::node::look_at;
use super::open::OpenFile;
use crate::server::fallback::{Plus, Told, plain_room};
use crate::server::{Answer, Cx, Listed};

impl HostFile {
    /// Entries of `.n1` from the cookie `offset` on; without attributes where the `mask` asks for none.
    pub(super) fn read_plus(&self, cx: &Cx, offset: u64, max: u32, mask: u64) -> Answer<Listed> {
        let (file, cx) = (self.clone(), cx.clone());
        self.read_entries(offset, plain_room(max)).and_then(move |listed| {
            if listed.entries.is_empty() {
                return Answer::ok(listed);
            }
            file.blocking(move |dir| dir.add_attributes(&cx, listed, max, mask))
        })
    }

    fn add_attributes(&self, cx: &Cx, listed: Listed, max: u32, mask: u64) -> Result<Listed, Error> {
        let open = self.opened()?;
        let mounted = self.session.export.tree.mounts.points(open.fd.as_fd());
        let mut plus = Plus::new(listed, max);
        while let Some(entry) = plus.peek()? {
            let attr = match entry.name {
                // What was told so far is an answer, too.
                _ if cx.is_cancelled() => Err(Errno::EINTR.into()),
                _ if mask == 0 => Err(Errno::ENODATA.into()),
                b"." => self.attributes(Pace::MayWait),
                b".." => self.step(&WalkElem::Parent, Pace::MayWait).and_then(|(_, up)| up.attributes(Pace::MayWait)),
                name if mounted.as_ref().is_some_and(|names| names.contains(name)) => self.look_up(&open, name),
                name => self.look_at(&open, name),
            };
            if plus.tell(attr)? == Told::Stop {
                break;
            }
        }
        plus.finish()
    }

    fn look_at(&self, dir: &OpenFile, name: &[u8]) -> Result<Attr, Error> {
        self.session.who.assume()?;
        let stx = look_at(dir.fd.as_fd(), name)?;
        // Mounted since the table was read.
        if stx.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return self.look_up(dir, name);
        }
        // .L knows no marks of 9P2000, for which the file itself would have to be asked.
        Ok(attr_of(&stx, self.session.export.qids.qid(&stx, 0, self.session.dialect)))
    }

    /// The same for what may be a mount.
    fn look_up(&self, dir: &OpenFile, name: &[u8]) -> Result<Attr, Error> {
        self.session.who.assume()?;
        let entry = self.session.export.tree.open_entry(dir.fd.as_fd(), name, Pace::MayWait)?;
        Ok(attr_of(&entry.stx, self.qid_of(entry.fd.as_fd(), &entry.stx)?))
    }
}
