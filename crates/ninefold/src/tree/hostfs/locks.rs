//! Byte-range locks of host files.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ninefold_proto::Errno;

use crate::server::{Answer, Cx, Lock, LockStatus};

/// The file that a lock is on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileKey {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// The locks of one export.
#[derive(Default, Debug)]
pub(crate) struct LockTable;

#[allow(unused_variables)]
impl LockTable {
    pub(crate) fn lock(
        self: &Arc<Self>,
        cx: &Cx,
        key: FileKey,
        file: Arc<OwnedFd>,
        holder: u64,
        lock: Lock,
        wait: bool,
    ) -> Answer<LockStatus> {
        Answer::err(Errno::EOPNOTSUPP)
    }

    pub(crate) fn getlock(&self, cx: &Cx, key: FileKey, file: &Arc<OwnedFd>, lock: &Lock) -> Answer<Option<Lock>> {
        Answer::err(Errno::EOPNOTSUPP)
    }

    pub(crate) fn release(&self, key: FileKey, holder: u64) {}
}
