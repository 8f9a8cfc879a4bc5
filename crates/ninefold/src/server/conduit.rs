//! A conduit: the bytes of a file in their order, from a file server that has a better way for many of them than its reads and
//! writes, as one that passes on the files of another server has. [`Source`] is read, [`Sink`] is written.
//!
//! [`File::source`](super::File::source) and [`File::sink`](super::File::sink) give one for a stream. Its methods are called one after
//! another, and none after an error. A stream that is to end drops what it waits for, and then the conduit: so it is told that nobody
//! wants the rest. Before the file's clunk the conduit is gone.

use std::pin::Pin;

use bytes::Bytes;
use ninefold_proto::Error;

/// What a method of a conduit brings.
pub type Conveyed<'c, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'c>>;

/// What became of a file while it was read, by who passed its bytes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// No change was seen: the attributes tell what there is to tell.
    Unchanged,
    /// It was changed, whatever the attributes say: the bytes are of several states of it.
    Changed,
    /// Who could have told at the beginning could not at the end.
    Unknown,
}

/// Bytes that are read.
pub trait Source: Send {
    /// The next bytes, at least one; `None` where all of them came, or the file has no more. Not more than were asked for in all. An end that is not the
    /// file's, nor that of what was asked for, is an error. No more is to be got ahead than a stream may hold in memory, half a megabyte.
    fn next(&mut self) -> Conveyed<'_, Option<Bytes>>;

    /// The last word behind the last byte.
    fn finish(self: Box<Self>) -> Conveyed<'static, Seen>;
}

/// Bytes that are written.
pub trait Sink: Send {
    /// Takes all of `bytes`, which follow those before: waits until they are on the way, not until they are in the file. An error may be
    /// that of earlier ones.
    fn write(&mut self, bytes: Bytes) -> Conveyed<'_, ()>;

    /// Waits until all of it is in the file, and tells how much that is. A sink that is dropped without this had only a part.
    fn finish(self: Box<Self>) -> Conveyed<'static, u64>;
}
