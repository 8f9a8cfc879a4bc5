//! Extended attributes (xattr(7)) of a node.

use bytes::Bytes;
use ninefold_proto::Errno;

use super::node::{Body, Meta, Node, R, W};
use crate::server::User;

/// Linux's XATTR_NAME_MAX, bytes.
const MAX_NAME: usize = 255;

/// Linux's XATTR_SIZE_MAX, bytes.
const MAX_VALUE: usize = 64 << 10;

/// Linux's XATTR_LIST_MAX, bytes of all names with a NUL each: more could not be listed.
const MAX_LIST: usize = 64 << 10;

const CREATE: u32 = 1;
const REPLACE: u32 = 2;

impl Node {
    /// Whether the user may use an attribute of that name. EOPNOTSUPP for what needs more than storing, such as ACLs.
    fn check_xattr(&self, meta: &Meta, user: &User, name: &[u8], want: u32) -> Result<(), Errno> {
        if name.len() > MAX_NAME {
            return Err(Errno::ERANGE);
        }
        let is_in = |space: &[u8]| name.starts_with(space) && name.len() > space.len();
        if is_in(b"user.") {
            return match self.body {
                Body::Plain(_) | Body::Dir => self.check(meta, user, want),
                // Their permission bits are not about who may store something with them (xattr(7)).
                Body::Symlink(_) | Body::Special { .. } if want == R => Err(Errno::ENODATA),
                Body::Symlink(_) | Body::Special { .. } => Err(Errno::EPERM),
            };
        }
        match () {
            () if is_in(b"trusted.") && user.uid != 0 => Err(if want == R { Errno::ENODATA } else { Errno::EPERM }),
            () if is_in(b"security.") && user.uid != 0 && want == W => Err(Errno::EPERM),
            () if is_in(b"trusted.") || is_in(b"security.") => Ok(()),
            () => Err(Errno::EOPNOTSUPP),
        }
    }

    pub(super) fn xattr_get(&self, user: &User, name: &[u8]) -> Result<Bytes, Errno> {
        let meta = self.meta();
        self.check_xattr(&meta, user, name, R)?;
        meta.xattrs.get(name).cloned().ok_or(Errno::ENODATA)
    }

    pub(super) fn xattr_list(&self, user: &User) -> Bytes {
        let meta = self.meta();
        let seen = meta.xattrs.keys().filter(|name| user.uid == 0 || !name.starts_with(b"trusted."));
        seen.flat_map(|name| [name, &b"\0"[..]]).flatten().copied().collect()
    }

    pub(super) fn xattr_set(&self, user: &User, name: &[u8], value: &[u8], flags: u32) -> Result<(), Errno> {
        let mut meta = self.meta();
        self.check_xattr(&meta, user, name, W)?;
        if flags & !(CREATE | REPLACE) != 0 {
            return Err(Errno::EINVAL);
        }
        if value.len() > MAX_VALUE {
            return Err(Errno::E2BIG);
        }
        let old = meta.xattrs.get(name).map(Bytes::len);
        if old.is_some() && flags & CREATE != 0 {
            return Err(Errno::EEXIST);
        }
        if old.is_none() {
            if flags & REPLACE != 0 {
                return Err(Errno::ENODATA);
            }
            let listed: usize = meta.xattrs.keys().map(|name| name.len() + 1).sum();
            if listed + name.len() + 1 > MAX_LIST {
                return Err(Errno::ENOSPC);
            }
        }
        let before = old.map_or(0, |old| name.len() + old) as u64;
        let bytes = meta.charge.bytes() - before + (name.len() + value.len()) as u64;
        meta.charge.resize(bytes)?;
        // A copy of its own: the value's may keep a whole frame alive.
        meta.xattrs.insert(name.to_vec(), Bytes::copy_from_slice(value));
        meta.changed();
        Ok(())
    }

    pub(super) fn xattr_remove(&self, user: &User, name: &[u8]) -> Result<(), Errno> {
        let mut meta = self.meta();
        self.check_xattr(&meta, user, name, W)?;
        let old = meta.xattrs.remove(name).ok_or(Errno::ENODATA)?;
        let bytes = meta.charge.bytes() - (name.len() + old.len()) as u64;
        meta.charge.resize(bytes)?;
        meta.changed();
        Ok(())
    }
}
