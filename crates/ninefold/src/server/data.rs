//! What a read gives and a write brings: [`Data`].

use std::io::Read;

use bytes::Bytes;
use ninefold_proto::server::{Bulk, Chunk};
use ninefold_proto::{Errno, Error};

use crate::transport::Piped;

/// Bytes that a file server answers a read with: from `Bytes`, `Vec<u8>` or a static slice, by `into()`.
///
/// The server's own file trees also give pages of files, which no memory of ours holds, where the connection of the request's
/// [`Cx`](super::Cx) takes them: data go to that connection, or are taken by [`Data::into_bytes`]. And what comes to a socket to be
/// written goes to their files so ([`File::write_data`](super::File::write_data)).
#[derive(Debug)]
pub struct Data(Inner);

#[derive(Debug)]
enum Inner {
    Memory(Bytes),
    Piped {
        /// So many bytes are in the pipe at first.
        length: usize,
        piped: Piped,
        /// What did not fit the pipe.
        tail: Bytes,
    },
}

impl Data {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        Bulk::len(self)
    }

    /// Whether there is nothing, as at the end of a file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, in memory. For a file server that asks another one.
    pub fn into_bytes(self) -> Result<Bytes, Error> {
        match self.0 {
            Inner::Memory(bytes) => Ok(bytes),
            Inner::Piped { length, mut piped, tail } => {
                let mut bytes = Vec::with_capacity(length + tail.len());
                piped.read_to_end(&mut bytes).map_err(|_| Errno::EIO)?;
                bytes.extend_from_slice(&tail);
                Ok(bytes.into())
            }
        }
    }

    /// Whether some of them are in no memory of this process.
    pub fn is_piped(&self) -> bool {
        self.pipe().is_some()
    }

    /// The pipe that all of them are in.
    pub(crate) fn into_pipe(self) -> Result<Piped, Data> {
        match self.0 {
            Inner::Piped { piped, tail, .. } if tail.is_empty() => Ok(piped),
            other => Err(Data(other)),
        }
    }

    /// `length` bytes, which are in the pipe, and the `tail` behind them.
    pub(crate) fn piped(piped: Piped, length: usize, tail: Bytes) -> Data {
        Data(Inner::Piped { length, piped, tail })
    }

    /// The pipe that holds the first bytes, if one does.
    pub(crate) fn pipe(&self) -> Option<&Piped> {
        match &self.0 {
            Inner::Memory(_) => None,
            Inner::Piped { piped, .. } => Some(piped),
        }
    }
}

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Data {
        Data(Inner::Memory(bytes))
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Data {
        Bytes::from(bytes).into()
    }
}

impl From<&'static [u8]> for Data {
    fn from(bytes: &'static [u8]) -> Data {
        Bytes::from_static(bytes).into()
    }
}

impl Bulk for Data {
    fn len(&self) -> usize {
        match &self.0 {
            Inner::Memory(bytes) => bytes.len(),
            Inner::Piped { length, tail, .. } => length + tail.len(),
        }
    }

    fn chunk(&self, from: usize) -> Chunk<'_, Data> {
        match &self.0 {
            Inner::Memory(bytes) => Chunk::Memory(&bytes[from..]),
            Inner::Piped { length, .. } if from < *length => Chunk::Outside(self, length - from),
            Inner::Piped { length, tail, .. } => Chunk::Memory(&tail[from - length..]),
        }
    }
}
