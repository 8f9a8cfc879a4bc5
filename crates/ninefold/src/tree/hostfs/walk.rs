//! Walking: names, `..`, and for 9P2000 the symbolic links on the way.
//!
//! 9P2000 has no symbolic links, so they are followed for it: by us, one name at a time, inside the
//! export only. One that leads outside, or nowhere, is a plain file that cannot be opened.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use ninefold_proto::n1::access;
use ninefold_proto::types::WalkElem;
use ninefold_proto::{Dialect, Errno, Error, Name, Qid};
use rustix::fs::{Access, AtFlags, FileType, Statx, accessat, readlinkat};

use super::creds::Loan;
use super::file::HostFile;
use super::node::{Node, look};
use super::{Pace, os};
use crate::server::{Answer, File, Walked};

/// Links followed for one name; Linux's own bound (path_resolution(7)).
const MAX_LINKS: u32 = 40;

/// Longer than any target that symlink(2) accepts.
const MAX_PATH: usize = 4096;

/// An element of a walk that owns its name.
enum Step {
    Here,
    Parent,
    Name(Box<[u8]>),
}

impl Step {
    fn of(elem: &WalkElem<'_>) -> Step {
        match elem {
            WalkElem::Here => Step::Here,
            WalkElem::Parent => Step::Parent,
            WalkElem::Name(name) => Step::Name(name.as_bytes().into()),
        }
    }

    fn elem(&self) -> WalkElem<'_> {
        match self {
            Step::Here => WalkElem::Here,
            Step::Parent => WalkElem::Parent,
            Step::Name(name) => WalkElem::Name(Name::new(name).expect("it was a name")),
        }
    }
}

impl HostFile {
    pub(super) fn walk_elems(&self, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        if elems.is_empty() {
            let clone = self.apart();
            return Answer::ok(Walked { qids: Vec::new(), file: Some(Arc::new(clone)) });
        }
        if !self.node.slow {
            let _loan = Loan;
            match self.walk_at(elems, Pace::Inline) {
                Err(error) if error.errno == Errno::EAGAIN => {}
                result => return Answer::Now(result),
            }
        }
        let steps: Vec<Step> = elems.iter().map(Step::of).collect();
        let from = self.clone();
        Answer::blocking(move || {
            let _loan = Loan;
            let elems: Vec<WalkElem<'_>> = steps.iter().map(Step::elem).collect();
            from.walk_at(&elems, Pace::MayWait)
        })
    }

    fn walk_at(&self, elems: &[WalkElem<'_>], pace: Pace) -> Result<Walked, Error> {
        let mut at = self.apart();
        let mut qids = Vec::with_capacity(elems.len());
        for elem in elems {
            match at.step(elem, pace) {
                Ok((qid, next)) => {
                    qids.push(qid);
                    at = next;
                }
                Err(error) if qids.is_empty() || (pace == Pace::Inline && error.errno == Errno::EAGAIN) => {
                    return Err(error);
                }
                Err(_) => return Ok(Walked { qids, file: None }),
            }
        }
        Ok(Walked { qids, file: Some(Arc::new(at) as Arc<dyn File>) })
    }

    pub(super) fn step(&self, elem: &WalkElem<'_>, pace: Pace) -> Result<(Qid, HostFile), Error> {
        let session = &self.session;
        let tree = &session.export.tree;
        if !self.node.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let name = match elem {
            WalkElem::Name(name) => name.as_bytes(),
            WalkElem::Here => return Ok((self.qid(pace)?, self.clone())),
            WalkElem::Parent => {
                self.may_search(pace)?;
                let parent = HostFile::new(session.clone(), self.parent());
                return Ok((parent.qid(pace)?, parent));
            }
        };
        let found = tree.lookup(&self.node, name, &session.who, pace)?;
        let mut file = HostFile::new(session.clone(), found.node);
        if session.dialect == Dialect::Plan9 && file.node.kind == FileType::Symlink {
            if let Some(target) = file.follow(&self.node, found.fd.as_fd(), pace)? {
                file.link = Some(std::mem::replace(&mut file.node, target));
            }
            return Ok((file.qid(pace)?, file));
        }
        Ok((file.qid_of(found.fd.as_fd(), &found.stx)?, file))
    }

    /// The directory above; the root is above itself.
    pub(super) fn parent(&self) -> Arc<Node> {
        self.node.parent().unwrap_or_else(|| self.session.export.tree.root.clone())
    }

    /// `..` needs what a name does: permission to search the directory.
    fn may_search(&self, pace: Pace) -> Result<(), Error> {
        let fd = self.fd(pace)?;
        self.session.who.assume()?;
        self.access(fd.as_fd(), Access::EXEC_OK)
    }

    /// Whether whom the thread acts as may; AT_EACCESS lets the kernel look at the fsuid. faccessat2(2) is there:
    /// nothing is exported without it.
    pub(super) fn access(&self, fd: std::os::fd::BorrowedFd<'_>, access: Access) -> Result<(), Error> {
        use std::os::fd::AsRawFd;
        let name = fd.as_raw_fd().to_string();
        accessat(&self.session.export.proc_fd, name, access, AtFlags::EACCESS).map_err(os)
    }

    /// Those of access(2)'s bits that the user is allowed. A file system that is read-only allows no writing.
    pub(super) fn allowed(&self, mode: u32, pace: Pace) -> Result<u32, Error> {
        let fd = self.fd(pace)?;
        self.session.who.assume()?;
        // The bits have libc's type where rustix goes by libc, and no sign where it does not.
        let may = |mode: u32| match self.access(fd.as_fd(), Access::from_bits_retain(mode as _)) {
            Ok(()) => Ok(mode),
            Err(error) if matches!(error.errno, Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ETXTBSY) => Ok(0),
            Err(error) => Err(error),
        };
        match may(mode)? {
            // Not all: then one by one.
            0 if mode.count_ones() > 1 => {
                Ok(may(mode & access::READ)? | may(mode & access::WRITE)? | may(mode & access::EXECUTE)?)
            }
            allowed => Ok(allowed),
        }
    }

    /// The file's qid as it is now.
    pub(super) fn qid(&self, pace: Pace) -> Result<Qid, Error> {
        let fd = self.fd(pace)?;
        if pace == Pace::Inline && self.node.slow {
            return Err(Errno::EAGAIN.into());
        }
        self.qid_of(fd.as_fd(), &look(fd.as_fd())?)
    }

    /// The qid for what statx(2) told of `fd`.
    pub(super) fn qid_of(&self, fd: std::os::fd::BorrowedFd<'_>, stx: &Statx) -> Result<Qid, Error> {
        let marks = self.session.marks(fd, stx)?;
        Ok(self.session.export.qids.qid(stx, marks, self.session.dialect))
    }

    /// The file that the symbolic link `link` in `dir` leads to; None when it leads nowhere or outside.
    pub(super) fn follow(
        &self,
        dir: &Arc<Node>,
        link: std::os::fd::BorrowedFd<'_>,
        pace: Pace,
    ) -> Result<Option<Arc<Node>>, Error> {
        match self.follow_links(dir, link, pace) {
            Err(error) if error.errno == Errno::EAGAIN => Err(error),
            Err(_) => Ok(None),
            Ok(target) => Ok(target),
        }
    }

    fn follow_links(
        &self,
        dir: &Arc<Node>,
        link: std::os::fd::BorrowedFd<'_>,
        pace: Pace,
    ) -> Result<Option<Arc<Node>>, Error> {
        let export = &self.session.export;
        let mut at = dir.clone();
        let mut names: VecDeque<Box<[u8]>> = VecDeque::new();
        let mut links = 1;
        if !push_target(&mut names, &mut at, &target(link)?, &export.path, &export.tree.root) {
            return Ok(None);
        }
        while let Some(name) = names.pop_front() {
            match &*name {
                b"" | b"." if at.is_dir() => continue,
                b"" | b"." => return Ok(None),
                b".." if !at.is_dir() => return Ok(None),
                b".." => match at.parent() {
                    Some(parent) => {
                        HostFile::new(self.session.clone(), at).may_search(pace)?;
                        at = parent;
                    }
                    None => return Ok(None),
                },
                name => {
                    let found = export.tree.lookup(&at, name, &self.session.who, pace)?;
                    if found.node.kind != FileType::Symlink {
                        at = found.node;
                        continue;
                    }
                    links += 1;
                    let target = target(found.fd.as_fd())?;
                    if links > MAX_LINKS || !push_target(&mut names, &mut at, &target, &export.path, &export.tree.root)
                    {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(at))
    }
}

/// Puts a target's names before those still to be walked. False when it leads out of the export.
fn push_target(
    names: &mut VecDeque<Box<[u8]>>,
    at: &mut Arc<Node>,
    target: &[u8],
    export: &[u8],
    root: &Arc<Node>,
) -> bool {
    let rest = if target.first() == Some(&b'/') {
        let rest = if export == b"/" { Some(target) } else { target.strip_prefix(export) };
        match rest {
            Some(rest) if matches!(rest.first(), None | Some(b'/')) => {
                *at = root.clone();
                rest
            }
            _ => return false,
        }
    } else {
        target
    };
    // Names that never end are stopped by the same bound as the kernel's.
    if names.len() > MAX_PATH {
        return false;
    }
    for name in rest.split(|&b| b == b'/').rev() {
        names.push_front(name.into());
    }
    true
}

/// A symbolic link's target, from its O_PATH descriptor.
pub(super) fn target(link: std::os::fd::BorrowedFd<'_>) -> Result<Vec<u8>, Error> {
    let target = readlinkat(link, c"", Vec::with_capacity(256)).map_err(os)?;
    Ok(target.into_bytes())
}
