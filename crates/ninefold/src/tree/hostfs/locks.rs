//! Locks on files of the host: the table that every tree shares, mirrored towards local programs.

#[allow(unused_imports, reason = "hostfs is to use them")]
pub(crate) use crate::tree::locks::{FileKey, LockTable};
