//! Locks on files of the host: the table that every tree shares, mirrored towards local programs.

pub(crate) use crate::tree::locks::{FileKey, LockTable};
