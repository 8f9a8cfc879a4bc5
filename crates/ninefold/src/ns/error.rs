//! What can go wrong in a name space: a closed list, each with the errno that a program would see.

use ninefold_proto::Errno;

use super::file::{BadFile, Place};
use super::mtab::Refused;
use super::path::BadPath;
use crate::client;
use crate::transport::{Address, BadAddress};

/// Why an operation on a name failed. It does not tell the name: whoever asked knows it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the server, or the way to it, says: as it was.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The same of a server that a line or a name asks for.
    #[error("{}: {error}", address.place)]
    Server { address: Box<Address>, error: client::Error },
    #[error(transparent)]
    Path(#[from] BadPath),
    #[error(transparent)]
    Address(#[from] BadAddress),
    #[error(transparent)]
    Table(#[from] Refused),
    #[error(transparent)]
    File(#[from] BadFile),
    /// What a line of a file asked for.
    #[error("{0}: {1}")]
    Line(Place, Box<Error>),
    #[error("it is a mount point: unmount it first")]
    MountPoint,
    #[error("the two lie in different mounts: copy the file, and remove it here")]
    OtherMount,
    #[error("no member of this union takes new files: bind one with -c")]
    NoCreate,
    #[error(
        "the directory is a name of the name space alone, and no server holds it: mount a server there to change it"
    )]
    NoServer,
    #[error("an address is what it is, and nothing is mounted on it: mount the server, and bind there")]
    OnAddress,
    #[error("a directory stays a directory, and a file a file: mount it over one of its kind")]
    OtherKind,
    #[error("only directories make a union: leave out -a and -b")]
    NotUnion,
}

impl Error {
    /// The number that a program's system call would fail with.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Client(e) | Error::Server { error: e, .. } => e.errno(),
            Error::Path(BadPath::TooLong) => Errno::ENAMETOOLONG,
            Error::Path(BadPath::Name(name)) => client::Error::Name(*name).errno(),
            Error::Address(_)
            | Error::File(_)
            | Error::Table(Refused::NotMounted | Refused::NotMember | Refused::NoFile) => Errno::EINVAL,
            Error::Table(Refused::Root) | Error::MountPoint => Errno::EBUSY,
            Error::Table(Refused::TooDeep) => Errno::ENAMETOOLONG,
            Error::Table(Refused::TooMany) => Errno::ENOSPC,
            Error::Line(_, e) => e.errno(),
            Error::OtherMount => Errno::EXDEV,
            Error::NoCreate => Errno::EPERM,
            Error::NoServer => Errno::EROFS,
            Error::OnAddress => Errno::EINVAL,
            Error::OtherKind | Error::NotUnion => Errno::ENOTDIR,
        }
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.errno() == Errno::ENOENT
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::Client(errno.into())
    }
}
