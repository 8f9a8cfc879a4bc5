//! An open file as a stream moves it: held beyond the clunk of its fid.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ninefold_proto::Error;

use super::creds::{Identity, Loan};
use super::open::OpenFile;
use crate::server::Descriptor;

pub(super) struct Held {
    open: Arc<OpenFile>,
    who: Identity,
}

impl Held {
    /// `None` for what is no plain file, and for one that is read and written past the page cache (O_DIRECT): the kernel's own
    /// calls do not suit it.
    pub(super) fn of(open: Arc<OpenFile>, who: Identity) -> Option<Box<dyn Descriptor>> {
        (open.is_plain() && !open.is_direct()).then(|| Box::new(Held { open, who }) as Box<dyn Descriptor>)
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
}
