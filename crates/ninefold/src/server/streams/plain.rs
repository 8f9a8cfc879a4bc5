//! [`Plain`]: an open file for tests, as fast as any, that watch what is asked of it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use ninefold_proto::Error;

use super::descriptor::Descriptor;

/// See the [module](self).
pub(super) struct Plain {
    pub file: File,
    asked: Box<dyn Fn() + Send + Sync>,
    is_in_memory: Box<dyn Fn() -> bool + Send + Sync>,
    can_be_leased: bool,
}

impl Plain {
    /// One on a disk, of a file system that is not to be leased.
    pub fn new(file: impl Into<File>) -> Plain {
        Plain { file: file.into(), asked: Box::new(|| ()), is_in_memory: Box::new(|| false), can_be_leased: false }
    }

    pub fn in_memory(self) -> Plain {
        self.in_memory_while(|| true)
    }

    /// So it is told each time that somebody wants to know.
    pub fn in_memory_while(self, is_in_memory: impl Fn() -> bool + Send + Sync + 'static) -> Plain {
        Plain { is_in_memory: Box::new(is_in_memory), ..self }
    }

    pub fn leased(self) -> Plain {
        Plain { can_be_leased: true, ..self }
    }

    /// `asked` is called before each use of it.
    pub fn asked(self, asked: impl Fn() + Send + Sync + 'static) -> Plain {
        Plain { asked: Box::new(asked), ..self }
    }
}

impl Descriptor for Plain {
    fn fd(&self) -> BorrowedFd<'_> {
        (self.asked)();
        self.file.as_fd()
    }

    fn as_user(&self, call: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
        call()
    }

    fn is_slow(&self) -> bool {
        false
    }

    fn is_in_memory(&self) -> bool {
        (self.is_in_memory)()
    }

    fn can_be_leased(&self) -> bool {
        self.can_be_leased
    }
}
