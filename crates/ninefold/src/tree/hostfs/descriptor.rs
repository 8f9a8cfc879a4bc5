//! An open file as a stream moves it: held beyond the clunk of its fid.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ninefold_proto::{Errno, Error};

use super::creds::{Identity, Loan};
use super::open::OpenFile;
use super::os;
use crate::server::Descriptor;

pub(super) struct Held {
    open: Arc<OpenFile>,
    who: Identity,
}

impl Held {
    /// `None` for what is no plain file, and for one that is read and written past the page cache (O_DIRECT): the kernel's own
    /// calls do not suit it.
    pub(super) fn of(open: Arc<OpenFile>, who: Identity) -> Option<Box<dyn Descriptor>> {
        if !open.is_plain() || open.is_direct() {
            return None;
        }
        Some(Box::new(Held { open, who }))
    }
}

impl Descriptor for Held {
    fn fd(&self) -> BorrowedFd<'_> {
        self.open.fd.as_fd()
    }

    fn as_user(&self, call: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
        // As the user: a write by anybody but root takes setuid and setgid away.
        let _loan = Loan;
        self.who.assume()?;
        call()
    }

    fn is_slow(&self) -> bool {
        self.open.slow
    }

    fn is_in_memory(&self) -> bool {
        self.open.is_in_memory()
    }

    fn can_be_leased(&self) -> bool {
        self.open.can_be_leased()
    }

    fn flush(&self) -> Result<(), Error> {
        if !self.open.slow {
            return Ok(());
        }
        // As at a clunk: such a file system writes out what it holds back at each close(2), of a copy too.
        match rustix::io::fcntl_dupfd_cloexec(&self.open.fd, 0).map(nix::unistd::close) {
            Ok(Err(error)) if error != nix::Error::EINTR => Err(Errno((error as i32).cast_unsigned()).into()),
            Ok(_) => Ok(()),
            // Without a descriptor to spare: more than is asked for, but no less.
            Err(_) => rustix::fs::fdatasync(&self.open.fd).map_err(os),
        }
    }
}
