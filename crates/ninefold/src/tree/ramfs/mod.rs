//! A file tree in memory, with everything that the contract of a file server has.
//!
//! [`RamFs`] promises: permissions by owner, group and others, root passing; unlinked files live on while a fid has
//! them; a qid's path names one file for ever and its version changes with every change; a write that does not fit is
//! refused whole. Every answer is there at once, except a lock's that waits.
//!
//! Lock order:
//!
//! ```text
//! Tree::names               which directory has which entries
//!     Body::Plain           one file's bytes
//!         Node::meta        one node's attributes
//! ```
//!
//! Two contents are never locked together, nor two nodes' attributes. The names of users and groups and the table of
//! byte-range locks have locks of their own, and are asked with none of these held.

mod budget;
mod content;
mod extent;
mod file;
mod ids;
mod names;
mod node;
mod stat;
#[cfg(test)]
mod tests;
mod tree;
mod xattr;

use std::sync::Arc;

use ninefold_proto::Qid;

use self::file::RamFile;
use self::names::ROOT;
use self::node::Birth;
use self::tree::Tree;
use crate::server::{Answer, Attach, Cx, File, FileServer};

/// Bytes that a tree may hold unless it says otherwise: 1 GiB.
pub const DEFAULT_LIMIT: u64 = 1 << 30;

/// A file tree in memory. Cloning it gives another handle of the same tree.
#[derive(Clone, Debug)]
pub struct RamFs {
    tree: Arc<Tree>,
}

impl RamFs {
    /// An empty tree of at most [`DEFAULT_LIMIT`] bytes. Its root belongs to the user of this process, who alone may
    /// write there.
    pub fn new() -> RamFs {
        RamFs::with_limit(DEFAULT_LIMIT)
    }

    /// An empty tree that holds at most `limit` bytes: contents in steps of up to 64 KiB, and each file's and name's
    /// own. What does not fit is refused with ENOSPC.
    pub fn with_limit(limit: u64) -> RamFs {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        RamFs { tree: Arc::new(Tree::new(limit, Birth { uid, gid, perm: 0o755, dm: 0 })) }
    }

    /// Says whom the root belongs to, and its permission bits 0 to 0o7777.
    pub fn set_root(&self, uid: u32, gid: u32, mode: u32) {
        let root = self.tree.root();
        let mut meta = root.meta();
        (meta.uid, meta.gid, meta.perm) = (uid, gid, mode & 0o7777);
        meta.changed();
    }
}

impl Default for RamFs {
    fn default() -> RamFs {
        RamFs::new()
    }
}

impl FileServer for RamFs {
    fn attach(&self, _cx: &Cx, who: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        self.tree.ids.learn(&who.user);
        let root = self.tree.root();
        let qid = root.qid(&root.meta());
        let file = RamFile::new(self.tree.clone(), who.user.clone(), who.dialect, root, ROOT);
        Answer::ok((qid, Arc::new(file)))
    }
}
