//! [`HostFile`]: what a fid stands for. The methods only say at what pace each operation runs; the
//! operations themselves are in the modules named after them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use ninefold_proto::attr::{Attr, SetAttr, Statfs};
use ninefold_proto::open::Open;
use ninefold_proto::server::Rename;
use ninefold_proto::stat::{Stat, StatBuf};
use ninefold_proto::types::WalkElem;
use ninefold_proto::{Errno, Error, Name, Qid};

use super::creds::Loan;
use super::descriptor::Held;
use super::names::{Made, Onto, Place};
use super::node::Node;
use super::open::{OpenFile, OpenSlot};
use super::plan9::Wstat;
use super::prefetch::prefetch;
use super::{Pace, Session};
use crate::server::{
    Answer, Create, Created, Cx, Data, Descriptor, File, Listed, Lock, LockStatus, Records, Walked, Written,
};
use crate::tree::locks::FileKey;

/// A file of a [`HostFs`](super::HostFs). Cheap to clone into a call that waits.
#[derive(Clone)]
pub struct HostFile {
    pub(super) session: Arc<Session>,
    /// The file that is read, written and described.
    pub(super) node: Arc<Node>,
    /// The symbolic link that led 9P2000 to it: what has the name, and is removed and renamed.
    pub(super) link: Option<Arc<Node>>,
    /// A clone, which may open it on another thread, has the same.
    pub(super) open: OpenSlot,
}

impl HostFile {
    pub(super) fn new(session: Arc<Session>, node: Arc<Node>) -> HostFile {
        HostFile { session, node, link: None, open: OpenSlot::default() }
    }

    /// The same file, without what this fid has open.
    pub(super) fn apart(&self) -> HostFile {
        let (session, node, link) = (self.session.clone(), self.node.clone(), self.link.clone());
        HostFile { session, node, link, open: OpenSlot::default() }
    }

    /// A descriptor of the file, good for everything but reading and writing: the open one, else the node's.
    pub(super) fn fd(&self, pace: Pace) -> Result<Arc<OwnedFd>, Error> {
        match self.open.get() {
            Some(open) => Ok(open.fd.clone()),
            None => self.session.export.tree.fd(&self.node, pace),
        }
    }

    /// The node that has the name.
    pub(super) fn named(&self) -> &Arc<Node> {
        self.link.as_ref().unwrap_or(&self.node)
    }

    pub(super) fn opened(&self) -> Result<Arc<OpenFile>, Error> {
        self.open.get().ok_or(Error::new(Errno::EBADF))
    }

    /// Makes the call here; if it would have to wait, on the blocking pool.
    fn attempt<T: Send + 'static>(
        &self,
        call: impl Fn(&HostFile, Pace) -> Result<T, Error> + Send + 'static,
    ) -> Answer<T> {
        if !self.node.slow {
            let _loan = Loan;
            match call(self, Pace::Inline) {
                Err(error) if error.errno == Errno::EAGAIN => {}
                result => return Answer::Now(result),
            }
        }
        self.blocking(move |file| call(file, Pace::MayWait))
    }

    /// Makes the call on the blocking pool.
    pub(super) fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&HostFile) -> Result<T, Error> + Send + 'static,
    ) -> Answer<T> {
        let file = self.clone();
        Answer::blocking(move || {
            let _loan = Loan;
            call(&file)
        })
    }

    /// Makes a call that waits by itself where it must: here, or on the blocking pool where the file system is slow.
    fn promptly<T: Send + 'static>(
        &self,
        slow: bool,
        call: impl FnOnce(&HostFile) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        if slow { self.blocking(move |file| Ok(call(file))).and_then(|answer| answer) } else { call(self) }
    }

    /// `other` as a file of the same export; EXDEV when it is another tree's.
    fn sibling(&self, other: &dyn File) -> Result<HostFile, Error> {
        let other = (other as &dyn std::any::Any).downcast_ref::<HostFile>();
        match other.filter(|other| Arc::ptr_eq(&other.session.export, &self.session.export)) {
            Some(file) => Ok(file.clone()),
            None => Err(Errno::EXDEV.into()),
        }
    }

    pub(super) fn key(&self) -> FileKey {
        FileKey { dev: self.node.id.dev, ino: self.node.id.ino }
    }
}

impl File for HostFile {
    fn walk(&self, _cx: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        self.walk_elems(elems)
    }

    fn open(&self, _cx: &Cx, how: Open) -> Answer<Qid> {
        self.attempt(move |file, pace| file.open_node(how, pace))
    }

    fn create(&self, _cx: &Cx, what: Create<'_>) -> Answer<Created> {
        let (name, made) = (Box::from(what.name.as_bytes()), Made::of(&what));
        self.blocking(move |dir| dir.create_file(name, made))
    }

    fn read(&self, cx: &Cx, offset: u64, count: u32) -> Answer<Data> {
        match self.opened() {
            Ok(open) => open.read(cx, &self.session.export.buffers, offset, count),
            Err(error) => Answer::err(error),
        }
    }

    fn write(&self, cx: &Cx, offset: u64, data: Bytes) -> Answer<u32> {
        match self.opened() {
            Ok(open) => open.write(cx, &self.session.who, offset, data),
            Err(error) => Answer::err(error),
        }
    }

    fn warm(&self) {
        if !self.open.warm() {
            prefetch(Arc::as_ptr(&self.node));
        }
    }

    fn takes_pipes(&self) -> bool {
        self.open.get().is_some_and(|open| open.takes_pipes())
    }

    fn write_data(&self, cx: &Cx, offset: u64, data: Data) -> Answer<u32> {
        match self.opened() {
            Ok(open) => open.write_data(cx, &self.session.who, offset, data),
            Err(error) => Answer::err(error),
        }
    }

    fn readdir(&self, _cx: &Cx, offset: u64, max: u32) -> Answer<Bytes> {
        self.read_entries(offset, max).map(|listed| Ok(listed?.entries))
    }

    fn readdirplus(&self, cx: &Cx, offset: u64, max: u32, mask: u64) -> Answer<Listed> {
        self.read_plus(cx, offset, max, mask)
    }

    fn access(&self, _cx: &Cx, mode: u32) -> Answer<u32> {
        self.attempt(move |file, pace| file.allowed(mode, pace))
    }

    fn writex(&self, cx: &Cx, offset: u64, data: Bytes, append: bool, stable: bool) -> Answer<Written> {
        match self.opened() {
            Ok(open) => open.writex(cx, &self.session.who, offset, data, append, stable),
            Err(error) => Answer::err(error),
        }
    }

    fn copyrange(&self, cx: &Cx, offset: u64, target: &dyn File, target_offset: u64, length: u64) -> Answer<u64> {
        // Both are files of this machine, whichever exports they are in.
        let Some(target) = (target as &dyn std::any::Any).downcast_ref::<HostFile>().cloned() else {
            return Answer::err(Errno::EXDEV);
        };
        let cx = cx.clone();
        self.blocking(move |file| file.copy_to(&cx, offset, &target, target_offset, length))
    }

    fn allocate(&self, _cx: &Cx, mode: u32, offset: u64, length: u64) -> Answer<()> {
        self.blocking(move |file| file.allocate_range(mode, offset, length))
    }

    fn seek(&self, _cx: &Cx, offset: u64, hole: bool) -> Answer<u64> {
        if let Some(found) = self.open.get().filter(|_| !hole).and_then(|open| open.data_at_once(offset)) {
            return Answer::Now(found);
        }
        self.blocking(move |file| file.seek_extent(offset, hole))
    }

    fn read_stats(&self, _cx: &Cx, at: u64, max: u32) -> Answer<Records> {
        self.blocking(move |file| file.read_records(at, max))
    }

    fn descriptor(&self) -> Option<Box<dyn Descriptor>> {
        let open = self.opened().ok()?;
        Held::of(open, self.session.who.clone())
    }

    fn getattr(&self, _cx: &Cx, _mask: u64) -> Answer<Attr> {
        self.attempt(|file, pace| file.attributes(pace))
    }

    fn setattr(&self, _cx: &Cx, set: SetAttr) -> Answer<()> {
        self.blocking(move |file| file.set_attributes(&set))
    }

    fn stat(&self, _cx: &Cx) -> Answer<StatBuf> {
        self.attempt(|file, pace| file.record(pace))
    }

    fn wstat(&self, _cx: &Cx, stat: &Stat<'_>) -> Answer<()> {
        let wstat = Wstat::of(stat);
        self.blocking(move |file| file.apply(&wstat))
    }

    fn remove(&self, _cx: &Cx) -> Answer<()> {
        self.blocking(|file| file.remove_named())
    }

    fn clunk(&self, _cx: &Cx) -> Answer<()> {
        // All that the fid kept from others ends before the answer, lest the client's next request still meets it:
        // its claim of a file for exclusive use, or the name under which NFS keeps a removed file in its directory.
        // Only of a directory that is being read ahead the descriptor may close just after: its thread holds it until
        // the getdents(2) that it is in returns.
        let open = self.open.take();
        if let Some(dir) = open.as_ref().and_then(|open| open.dir.as_ref()) {
            dir.end();
        }
        let release = |file: &HostFile, open: &OpenFile| file.session.export.locks.release(file.key(), open.holder);
        if !self.named().is_gone() && !self.node.is_gone() && !open.as_ref().is_some_and(|open| open.closes_slowly()) {
            if let Some(open) = open {
                release(self, &open);
            }
            return Answer::ok(());
        }
        self.blocking(move |file| {
            // Two: this fid, and its clone that makes this call.
            [Some(&file.node), file.link.as_ref()].into_iter().flatten().for_each(|node| node.unpin_unless_shared(2));
            let Some(open) = open else { return Ok(()) };
            release(file, &open);
            if !open.slow {
                return Ok(());
            }
            // Such a file system writes out what it holds back at each close(2): the client is to find it there, or
            // to hear why not. Without a descriptor to spare it happens unheard when the file itself is closed.
            match rustix::io::fcntl_dupfd_cloexec(&open.fd, 0).map(nix::unistd::close) {
                Ok(Err(error)) if error != nix::Error::EINTR => Err(Errno((error as i32).cast_unsigned()).into()),
                _ => Ok(()),
            }
        })
    }

    fn fsync(&self, _cx: &Cx, datasync: bool) -> Answer<()> {
        self.blocking(move |file| file.sync(datasync))
    }

    fn statfs(&self, _cx: &Cx) -> Answer<Statfs> {
        self.blocking(|file| file.totals())
    }

    fn readlink(&self, _cx: &Cx) -> Answer<Vec<u8>> {
        self.attempt(|file, pace| file.link_target(pace))
    }

    fn symlink(&self, _cx: &Cx, name: Name<'_>, target: &[u8], gid: Option<u32>) -> Answer<Qid> {
        let (name, target): (Box<[u8]>, Box<[u8]>) = (name.as_bytes().into(), target.into());
        self.blocking(move |dir| dir.make_symlink(&name, &target, gid))
    }

    fn mknod(&self, _cx: &Cx, name: Name<'_>, mode: u32, rdev: u64, gid: Option<u32>) -> Answer<Qid> {
        let name: Box<[u8]> = name.as_bytes().into();
        self.blocking(move |dir| dir.make_node(&name, mode, rdev, gid))
    }

    fn mkdir(&self, _cx: &Cx, name: Name<'_>, mode: u32, gid: Option<u32>) -> Answer<Qid> {
        let name: Box<[u8]> = name.as_bytes().into();
        self.blocking(move |dir| dir.make_dir(&name, mode, gid))
    }

    fn link(&self, _cx: &Cx, target: &dyn File, name: Name<'_>) -> Answer<()> {
        let name: Box<[u8]> = name.as_bytes().into();
        match self.sibling(target) {
            Ok(target) => self.blocking(move |dir| dir.make_link(&target, &name)),
            Err(error) => Answer::err(error),
        }
    }

    fn rename(&self, _cx: &Cx, newdir: &dyn File, name: Name<'_>) -> Answer<()> {
        let new: Box<[u8]> = name.as_bytes().into();
        match self.sibling(newdir) {
            Ok(newdir) => self.blocking(move |file| file.rename_named(&newdir, &new)),
            Err(error) => Answer::err(error),
        }
    }

    fn rename_entry(&self, _cx: &Cx, old: Name<'_>, newdir: &dyn File, new: Name<'_>) -> Answer<()> {
        let (old, new): (Box<[u8]>, Box<[u8]>) = (old.as_bytes().into(), new.as_bytes().into());
        match self.sibling(newdir) {
            Ok(newdir) => self.blocking(move |dir| {
                dir.move_entry(
                    Place { dir: &dir.node, name: &old },
                    Place { dir: &newdir.node, name: &new },
                    None,
                    Onto::Replace,
                )
            }),
            Err(error) => Answer::err(error),
        }
    }

    fn rename_with(&self, _cx: &Cx, old: Name<'_>, newdir: &dyn File, new: Name<'_>, how: Rename) -> Answer<()> {
        let (old, new): (Box<[u8]>, Box<[u8]>) = (old.as_bytes().into(), new.as_bytes().into());
        match self.sibling(newdir) {
            Ok(newdir) => self.blocking(move |dir| {
                let (from, to) = (Place { dir: &dir.node, name: &old }, Place { dir: &newdir.node, name: &new });
                dir.rename_entry_with(from, to, how)
            }),
            Err(error) => Answer::err(error),
        }
    }

    fn unlink(&self, _cx: &Cx, name: Name<'_>, dir: bool) -> Answer<()> {
        let name: Box<[u8]> = name.as_bytes().into();
        self.blocking(move |file| file.remove_entry(Place { dir: &file.node, name: &name }, dir, None))
    }

    fn xattr_get(&self, _cx: &Cx, name: &[u8]) -> Answer<Bytes> {
        let name: Box<[u8]> = name.into();
        self.attempt(move |file, pace| file.get_xattr(&name, pace))
    }

    fn xattr_list(&self, _cx: &Cx) -> Answer<Bytes> {
        self.blocking(|file| file.list_xattrs())
    }

    fn xattr_set(&self, _cx: &Cx, name: &[u8], value: Bytes, flags: u32) -> Answer<()> {
        let name: Box<[u8]> = name.into();
        self.blocking(move |file| file.set_xattr(&name, &value, flags))
    }

    fn xattr_remove(&self, _cx: &Cx, name: &[u8]) -> Answer<()> {
        let name: Box<[u8]> = name.into();
        self.blocking(move |file| file.remove_xattr(&name))
    }

    fn lock(&self, cx: &Cx, lock: Lock, wait: bool) -> Answer<LockStatus> {
        let open = match self.opened() {
            Ok(open) => open,
            Err(error) => return Answer::err(error),
        };
        let cx = cx.clone();
        self.promptly(open.slow, move |file| {
            let locks = &file.session.export.locks;
            locks.lock(&cx, file.key(), open.fd.clone(), open.holder, lock, wait)
        })
    }

    fn getlock(&self, cx: &Cx, lock: Lock) -> Answer<Option<Lock>> {
        let open = match self.opened() {
            Ok(open) => open,
            Err(error) => return Answer::err(error),
        };
        let cx = cx.clone();
        self.promptly(open.slow, move |file| file.session.export.locks.getlock(&cx, file.key(), &open.fd, &lock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fid_that_was_only_walked_is_one_piece_of_memory_of_a_cache_line() {
        // Beside it the counts of its Arc, and what an allocator keeps of a piece.
        assert!(size_of::<HostFile>() + 3 * size_of::<usize>() <= 64);
    }
}
