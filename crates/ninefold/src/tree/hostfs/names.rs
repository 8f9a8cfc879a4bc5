//! Making, linking, renaming and removing entries.
//!
//! Each change holds the names it touches ([`Tree::change`](super::node::Tree::change)), so that nodes
//! and names agree afterwards. A file that loses its name while fids stand on it keeps its descriptor.
//! A fid that is renamed or removed by itself is compared with what its name leads to first: another
//! file that came under the name since is left alone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ninefold_proto::open::{Open, lflags};
use ninefold_proto::stat::dm;
use ninefold_proto::{Dialect, Errno, Error, Qid};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Statx, fcntl_getfl, fcntl_setfl, linkat, mkdirat,
    mknodat, openat2, renameat, renameat_with, symlinkat, unlinkat,
};
use rustix::io::Errno as Os;

use super::attr::{set_mode, set_owner};
use super::file::HostFile;
use super::mounts::proc_path;
use super::node::{Node, look};
use super::open::open_flags;
use super::qid::file_type;
use super::{Pace, os};
use crate::server::{Create, Created};

/// An entry of a directory.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) dir: &'a Arc<Node>,
    pub(super) name: &'a [u8],
}

/// What a create makes, without its name.
pub(super) struct Made {
    mode: u32,
    dm: u32,
    gid: Option<u32>,
    open: Open,
    exclusive: bool,
}

impl Made {
    pub(super) fn of(what: &Create<'_>) -> Made {
        Made { mode: what.mode, dm: what.dm, gid: what.gid, open: what.open, exclusive: what.exclusive }
    }
}

/// What a rename does with the file that has the new name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Onto {
    /// Replaces it, as rename(2) does.
    Replace,
    /// EEXIST; where the file system cannot tell in one step, in two.
    Free,
    /// EEXIST, in one step.
    FreeAtOnce,
}

const S_ISGID: u32 = 0o2000;

/// How often a create looks for the file that was there and now is not.
const CREATE_TRIES: usize = 8;

impl HostFile {
    /// Makes and opens a plain file, or opens the one that is there.
    pub(super) fn create_file(&self, name: Box<[u8]>, made: Made) -> Result<Created, Error> {
        let mut tries = CREATE_TRIES;
        loop {
            match self.make_file(&name, &made) {
                // What was there may have been taken away between the two looks at the name.
                Err(error) if error.errno == Errno::ENOENT && !made.exclusive && tries > 1 => tries -= 1,
                result => return result,
            }
        }
    }

    fn make_file(&self, name: &[u8], made: &Made) -> Result<Created, Error> {
        let export = &self.session.export;
        let dir = self.fd(Pace::MayWait)?;
        let marks = made.dm & (dm::APPEND | dm::EXCL);
        let mut flags = open_flags(&made.open) | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        if marks & dm::APPEND != 0 {
            flags |= OFlags::APPEND;
        }
        let change = export.tree.change((&self.node, name), (&self.node, name));
        let group = self.become_maker(made.gid)?;
        let mode = Mode::from_raw_mode(made.mode & 0o7777);
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let resolve = within | ResolveFlags::NO_XDEV;
        let open = |flags| export.tree.with_room(|| openat2(&dir, name, flags, mode, resolve));
        let (fd, fresh) = match open(flags | OFlags::EXCL) {
            Ok(fd) => (fd, true),
            // EXDEV: something is mounted on the name, which the kernel finds before that the name is there.
            Err(Os::EXIST | Os::XDEV) if made.exclusive || made.open.has(lflags::EXCL) => {
                return Err(Errno::EEXIST.into());
            }
            Err(Os::EXIST | Os::XDEV) if self.session.dialect != Dialect::Linux => {
                // The lookup waits for changes of the name.
                drop(change);
                return self.open_there(name, made.open);
            }
            Err(Os::EXIST | Os::XDEV) => {
                let result = match open(flags) {
                    Err(Os::PERM) if flags.contains(OFlags::NOATIME) => open(flags & !OFlags::NOATIME),
                    result => result,
                };
                match result {
                    // EAGAIN: somebody has a lease on it (fcntl(2)), who is waited for as by any other open.
                    Err(Os::XDEV | Os::AGAIN) => {
                        drop(change);
                        return self.open_there(name, made.open);
                    }
                    result => (result.map_err(os)?, false),
                }
            }
            Err(error) => return Err(os(error)),
        };
        let finish = || {
            if fresh {
                give_group(fd.as_fd(), dir.as_fd(), group)?;
                if marks != 0 {
                    self.session.set_marks(fd.as_fd(), marks)?;
                }
            }
            let stx = look(fd.as_fd())?;
            let claim = self.claim(marks, export.tree.id(&stx))?;
            Ok((stx, claim))
        };
        let (stx, claim) = match finish() {
            Ok(finished) => finished,
            Err(error) => {
                if fresh {
                    let _ = unlinkat(&dir, name, AtFlags::empty());
                }
                return Err(error);
            }
        };
        let kind = file_type(&stx);
        // Needed so that a FIFO made by others would not hold us up; a plain file is read to its end.
        if kind == FileType::RegularFile {
            let plain = fcntl_getfl(&fd).map_err(os)? & !OFlags::NONBLOCK;
            fcntl_setfl(&fd, plain).map_err(os)?;
        }
        let node = export.tree.made(&self.node, name, &stx);
        drop(change);
        let file = HostFile::new(self.session.clone(), node);
        file.opened_as(fd, &stx, &made.open, claim)?;
        let qid = export.qids.qid(&stx, marks, self.session.dialect);
        Ok(Created { qid, file: Arc::new(file) })
    }

    /// Opens the file that a create finds under its name as any other open does, its marks and its permissions included.
    /// .L has this for what is mounted on a name, 9P2000 and .u for plain files only (protocol.md, `.ix`).
    fn open_there(&self, name: &[u8], how: Open) -> Result<Created, Error> {
        let session = &self.session;
        let found = session.export.tree.lookup(&self.node, name, &session.who, Pace::MayWait)?;
        match found.node.kind {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::EISDIR.into()),
            _ if session.dialect == Dialect::Linux => {}
            _ => return Err(Error::with_text(Errno::EEXIST, "file exists and is not a plain file")),
        }
        let file = HostFile::new(session.clone(), found.node);
        let qid = file.open_node(how, Pace::MayWait)?;
        Ok(Created { qid, file: Arc::new(file) })
    }

    pub(super) fn make_symlink(&self, name: &[u8], target: &[u8], gid: Option<u32>) -> Result<Qid, Error> {
        self.make(name, gid, |dir| symlinkat(target, dir, name), |_, _| Ok(()), AtFlags::empty())
    }

    pub(super) fn make_dir(&self, name: &[u8], mode: u32, gid: Option<u32>) -> Result<Qid, Error> {
        let make = |dir: BorrowedFd<'_>| mkdirat(dir, name, Mode::from_raw_mode(mode & 0o7777));
        // mkdir(2) drops setuid and setgid; setgid may also have come from the parent, and stays.
        let finish = |fd: BorrowedFd<'_>, stx: &Statx| {
            let has = u32::from(stx.stx_mode) & 0o7777;
            if mode & 0o6000 & !has == 0 { Ok(()) } else { set_mode(fd, has | mode & 0o6000) }
        };
        self.make(name, gid, make, finish, AtFlags::REMOVEDIR)
    }

    pub(super) fn make_node(&self, name: &[u8], mode: u32, rdev: u64, gid: Option<u32>) -> Result<Qid, Error> {
        let kind = match mode & 0o170_000 {
            0 => FileType::RegularFile,
            kind => FileType::from_raw_mode(kind),
        };
        if matches!(kind, FileType::Unknown | FileType::Directory | FileType::Symlink) {
            return Err(Errno::EINVAL.into());
        }
        let make = |dir: BorrowedFd<'_>| mknodat(dir, name, kind, Mode::from_raw_mode(mode & 0o7777), rdev);
        self.make(name, gid, make, |_, _| Ok(()), AtFlags::empty())
    }

    /// Makes an entry and finishes it; takes it away again when that fails.
    fn make(
        &self,
        name: &[u8],
        gid: Option<u32>,
        make: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<()>,
        finish: impl FnOnce(BorrowedFd<'_>, &Statx) -> Result<(), Error>,
        unmake: AtFlags,
    ) -> Result<Qid, Error> {
        let export = &self.session.export;
        let dir = self.fd(Pace::MayWait)?;
        let _change = export.tree.change((&self.node, name), (&self.node, name));
        let group = self.become_maker(gid)?;
        make(dir.as_fd()).map_err(os)?;
        let finish = || {
            let entry = export.tree.open_entry(dir.as_fd(), name, Pace::MayWait)?;
            give_group(entry.fd.as_fd(), dir.as_fd(), group)?;
            finish(entry.fd.as_fd(), &look(entry.fd.as_fd())?)?;
            Ok(export.qids.qid(&look(entry.fd.as_fd())?, 0, self.session.dialect))
        };
        finish().inspect_err(|_| {
            let _ = unlinkat(&dir, name, unmake);
        })
    }

    /// Acts as the user, and in the group `gid` if that can be; else answers it, to be given afterwards.
    fn become_maker(&self, gid: Option<u32>) -> Result<Option<u32>, Error> {
        let who = &self.session.who;
        match gid.map(|gid| (gid, who.with_group(gid))) {
            Some((_, Some(maker))) => maker.assume().map(|()| None),
            Some((gid, None)) => who.assume().map(|()| Some(gid)),
            None => who.assume().map(|()| None),
        }
    }

    pub(super) fn make_link(&self, target: &HostFile, name: &[u8]) -> Result<(), Error> {
        let dir = self.fd(Pace::MayWait)?;
        let file = target.fd(Pace::MayWait)?;
        let _change = self.session.export.tree.change((&self.node, name), (&self.node, name));
        self.session.who.assume()?;
        linkat(CWD, proc_path(&file), &dir, name, AtFlags::SYMLINK_FOLLOW).map_err(os)
    }

    /// Removes the entry that this fid was walked to.
    pub(super) fn remove_named(&self) -> Result<(), Error> {
        let node = self.named();
        let (dir, name) = node.place()?;
        self.remove_entry(Place { dir: &dir, name: &name }, node.is_dir(), Some(node))
    }

    /// Removes an entry; if `only` is given, only if it is that file.
    pub(super) fn remove_entry(&self, place: Place<'_>, dir: bool, only: Option<&Node>) -> Result<(), Error> {
        let tree = &self.session.export.tree;
        let dir_fd = tree.fd(place.dir, Pace::MayWait)?;
        let _change = tree.change((place.dir, place.name), (place.dir, place.name));
        let node = tree.child(place.dir, place.name);
        // Before the name goes: afterwards nothing leads to the file any more.
        let fd = node.as_ref().and_then(|node| tree.fd(node, Pace::MayWait).ok());
        self.session.who.assume()?;
        if let Some(only) = only {
            self.is_still(dir_fd.as_fd(), place.name, only)?;
        }
        let flags = if dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&dir_fd, place.name, flags).map_err(os)?;
        if let Some(node) = node {
            tree.removed(place.dir, place.name, &node, fd);
        }
        Ok(())
    }

    fn is_still(&self, dir: BorrowedFd<'_>, name: &[u8], node: &Node) -> Result<(), Error> {
        let entry = self.session.export.tree.open_entry(dir, name, Pace::MayWait)?;
        if self.session.export.tree.id(&entry.stx) == node.id { Ok(()) } else { Err(Errno::ESTALE.into()) }
    }

    /// Renames the entry that this fid was walked to.
    pub(super) fn rename_named(&self, newdir: &HostFile, new: &[u8]) -> Result<(), Error> {
        let node = self.named();
        let (dir, name) = node.place()?;
        self.move_entry(
            Place { dir: &dir, name: &name },
            Place { dir: &newdir.node, name: new },
            Some(node),
            Onto::Replace,
        )
    }

    /// Renames an entry; if `only` is given, only if it is that file.
    pub(super) fn move_entry(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        only: Option<&Node>,
        onto: Onto,
    ) -> Result<(), Error> {
        let tree = &self.session.export.tree;
        let (from_fd, to_fd) = (tree.fd(from.dir, Pace::MayWait)?, tree.fd(to.dir, Pace::MayWait)?);
        let _change = tree.change((from.dir, from.name), (to.dir, to.name));
        let target = tree.child(to.dir, to.name);
        let target_fd = target.as_ref().and_then(|node| tree.fd(node, Pace::MayWait).ok());
        self.session.who.assume()?;
        if let Some(only) = only {
            self.is_still(from_fd.as_fd(), from.name, only)?;
        }
        let same = same_file(&self.session.export.tree, &from_fd, from.name, &to_fd, to.name);
        if onto == Onto::Replace {
            renameat(&from_fd, from.name, &to_fd, to.name).map_err(os)?;
        } else {
            match renameat_with(&from_fd, from.name, &to_fd, to.name, RenameFlags::NOREPLACE) {
                // The file system cannot tell in one step; two must do.
                Err(Os::INVAL) if !same && onto == Onto::Free => {
                    match tree.open_entry(to_fd.as_fd(), to.name, Pace::MayWait) {
                        Ok(_) => return Err(Errno::EEXIST.into()),
                        Err(error) if error.errno == Errno::ENOENT => {
                            renameat(&from_fd, from.name, &to_fd, to.name).map_err(os)?;
                        }
                        // What cannot be looked at may well be there.
                        Err(error) => return Err(error),
                    }
                }
                result => result.map_err(os)?,
            }
        }
        // Two names of one file both stay (rename(2)).
        if !same {
            if let Some(target) = target {
                tree.removed(to.dir, to.name, &target, target_fd);
            }
            if let Some(lost) = tree.renamed(from.dir, from.name, to.dir, to.name)
                && let Ok(entry) = tree.open_entry(to_fd.as_fd(), to.name, Pace::MayWait)
                && tree.id(&entry.stx) == lost.id
            {
                tree.pin(&lost, Arc::new(entry.fd));
            }
        }
        Ok(())
    }
}

pub(super) fn same_file(tree: &super::node::Tree, from: &OwnedFd, old: &[u8], to: &OwnedFd, new: &[u8]) -> bool {
    let id = |dir: &OwnedFd, name| tree.open_entry(dir.as_fd(), name, Pace::MayWait).ok().map(|e| tree.id(&e.stx));
    id(to, new).is_some_and(|there| id(from, old) == Some(there))
}

/// Gives a file that was just made the group that was asked for, where the user may; a setgid directory
/// has given it its own (mount(8), "grpid").
fn give_group(fd: BorrowedFd<'_>, dir: BorrowedFd<'_>, gid: Option<u32>) -> Result<(), Error> {
    let Some(gid) = gid.filter(|&gid| gid != u32::MAX) else { return Ok(()) };
    let stx = look(fd)?;
    if stx.stx_gid == gid || u32::from(look(dir)?.stx_mode) & S_ISGID != 0 {
        return Ok(());
    }
    let mode = u32::from(stx.stx_mode) & 0o7777;
    // chown(2) takes setuid and setgid away.
    if set_owner(fd, None, Some(gid)).is_ok() && mode & 0o6000 != 0 && file_type(&stx) != FileType::Symlink {
        set_mode(fd, mode)?;
    }
    Ok(())
}
