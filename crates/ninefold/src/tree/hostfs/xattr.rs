//! Extended attributes, of open files and of files only walked to.
//!
//! Linux's client asks for `security.capability` before each write, so that a value is got at once. One too
//! large to lie with its inode may wait for the disk: the one exception to the rule of [`super::Pace`].
//!
//! The server's own attribute is not shown. A user other than root gets at what the kernel would give him:
//! trusted attributes are root's, and security attributes (file capabilities!) are not his to set.

use std::os::fd::{AsFd, BorrowedFd};

use bytes::Bytes;
use ninefold_proto::{Errno, Error};
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno as Os;

use super::file::HostFile;
use super::mounts::proc_path;
use super::{Pace, os};

/// The greatest value and list of names that Linux has (xattr(7)).
const MAX_VALUE: usize = 64 << 10;

/// Bytes that most values fit in.
const SMALL_VALUE: usize = 256;

/// Where 9P2000's append-only and exclusive-use bits are kept: the letters `a` and `l`.
pub(super) const MODE_XATTR: &str = "user.ninefold.mode";

impl HostFile {
    pub(super) fn get_xattr(&self, name: &[u8], pace: Pace) -> Result<Bytes, Error> {
        if is_hidden(name) || (self.session.who.uid() != 0 && name.starts_with(b"trusted.")) {
            return Err(Errno::ENODATA.into());
        }
        let fd = self.fd(pace)?;
        self.session.who.assume()?;
        let path = proc_path(&fd);
        let mut small = [0; SMALL_VALUE];
        match getxattr(&path, name, &mut small[..]) {
            Ok(n) => return Ok(Bytes::copy_from_slice(&small[..n])),
            Err(Os::RANGE) => {}
            Err(error) => return Err(os(error)),
        }
        let mut value = vec![0; MAX_VALUE];
        let n = getxattr(&path, name, &mut value[..]).map_err(os)?;
        value.truncate(n);
        Ok(value.into())
    }

    pub(super) fn list_xattrs(&self) -> Result<Bytes, Error> {
        let fd = self.fd(Pace::MayWait)?;
        self.session.who.assume()?;
        let mut names = vec![0; MAX_VALUE];
        let n = listxattr(proc_path(&fd), &mut names[..]).map_err(os)?;
        let trusted = self.session.who.uid() == 0;
        let mut shown = Vec::with_capacity(n);
        for name in names[..n].split_inclusive(|&b| b == 0) {
            let bare = name.strip_suffix(&[0]).unwrap_or(name);
            if !is_hidden(bare) && (trusted || !bare.starts_with(b"trusted.")) {
                shown.extend_from_slice(name);
            }
        }
        Ok(shown.into())
    }

    pub(super) fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<(), Error> {
        self.may_change(name)?;
        if value.len() > MAX_VALUE {
            return Err(Errno::E2BIG.into());
        }
        let flags = XattrFlags::from_bits(flags).ok_or(Error::new(Errno::EINVAL))?;
        let fd = self.fd(Pace::MayWait)?;
        self.session.who.assume()?;
        setxattr(proc_path(&fd), name, value, flags).map_err(os)
    }

    pub(super) fn remove_xattr(&self, name: &[u8]) -> Result<(), Error> {
        self.may_change(name)?;
        let fd = self.fd(Pace::MayWait)?;
        self.session.who.assume()?;
        removexattr(proc_path(&fd), name).map_err(os)
    }

    fn may_change(&self, name: &[u8]) -> Result<(), Error> {
        let roots = name.starts_with(b"trusted.") || name.starts_with(b"security.");
        if is_hidden(name) || (roots && self.session.who.uid() != 0) {
            return Err(Errno::EPERM.into());
        }
        Ok(())
    }
}

fn is_hidden(name: &[u8]) -> bool {
    name == MODE_XATTR.as_bytes()
}

/// The value of [`MODE_XATTR`]; empty when there is none, or the file system has no such attributes.
pub(super) fn mode_letters(fd: BorrowedFd<'_>) -> Vec<u8> {
    let mut value = [0; 16];
    match getxattr(proc_path(fd.as_fd()), MODE_XATTR, &mut value[..]) {
        Ok(n) => value[..n].to_vec(),
        Err(_) => Vec::new(),
    }
}

/// Sets [`MODE_XATTR`]; empty removes it.
pub(super) fn set_mode_letters(fd: BorrowedFd<'_>, letters: &[u8]) -> Result<(), Error> {
    let path = proc_path(fd.as_fd());
    let result = if letters.is_empty() {
        match removexattr(&path, MODE_XATTR) {
            Err(Os::NODATA | Os::OPNOTSUPP) => Ok(()),
            result => result,
        }
    } else {
        setxattr(&path, MODE_XATTR, letters, XattrFlags::empty())
    };
    match result {
        Err(Os::OPNOTSUPP) => Err(Error::with_text(
            Errno::EOPNOTSUPP,
            "append-only and exclusive-use files need a file system with user extended attributes",
        )),
        result => result.map_err(os),
    }
}
