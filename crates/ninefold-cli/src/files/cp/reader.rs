//! The bytes of a file that is copied, in order: [`Content`] is the file, open, [`Reader`] reads it ahead.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use ninefold::client::{self, File};
use rustix::buffer::spare_capacity;
use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::{Errno, pread};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::facts::Facts;
use super::off::off;
use super::trouble::Cause;

/// Bytes of one read of a local file: enough that system calls are nothing beside the copying.
pub const CHUNK: usize = 1 << 20;

/// Bytes from which on a file goes by streams: 2 MiB. What is less is there, with the first round trips of its connection, before a stream
/// has begun.
pub const STREAMED: u64 = 2 << 20;

/// Bytes of one read of a pipe: what a pipe holds (pipe(7)).
const PIPE: usize = 64 * 1024;

/// Pieces of a local file that are read before they are asked for.
const AHEAD: usize = 4;

/// A file that is open for reading, and how it begins, if that was read already.
#[derive(Debug)]
pub enum Content {
    Here {
        fd: Arc<OwnedFd>,
        first: Bytes,
    },
    There {
        file: File,
        first: Bytes,
    },
    /// A small file of a server that was read at once, and what it was like before and after that.
    Whole {
        facts: Box<Facts>,
        data: Bytes,
    },
    /// A fifo of this machine, which can be read once.
    Stream(pipe::Receiver),
}

impl Content {
    /// Whether it is gone when it was read.
    pub fn is_stream(&self) -> bool {
        matches!(self, Content::Stream(_))
    }

    /// The same to be read anew: how it began is forgotten.
    pub fn again(self) -> Content {
        match self {
            Content::Here { fd, .. } => Content::Here { fd, first: Bytes::new() },
            Content::There { file, .. } => Content::There { file, first: Bytes::new() },
            other => other,
        }
    }

    /// What it is like now; a file that was read at once, what it was like when all of it had been read: what it became since is
    /// none of the copy's.
    pub async fn facts(&self) -> Result<Facts, Cause> {
        match self {
            Content::Here { fd, .. } => {
                let fd = fd.clone();
                off(move || Ok(Facts::from(&fstat(&*fd)?))).await
            }
            Content::There { file, .. } => Ok(Facts::from(file.metadata().await?)),
            Content::Whole { facts, .. } => Ok((**facts).clone()),
            Content::Stream(pipe) => Ok(Facts::from(&fstat(pipe)?)),
        }
    }

    /// Reads from `offset` on; `facts` are what was told when it was opened. A file that has a size is read no further
    /// than that.
    pub fn reader(&self, offset: u64, facts: &Facts) -> Reader<'_> {
        if let Content::Stream(pipe) = self {
            return Reader { first: Bytes::new(), rest: Rest::Stream(pipe) };
        }
        if let Content::Whole { data, .. } = self {
            let from = usize::try_from(offset).map_or(data.len(), |offset| offset.min(data.len()));
            return Reader { first: data.slice(from..), rest: Rest::None };
        }
        let first = match self {
            Content::Here { first, .. } | Content::There { first, .. } if offset == 0 => first.clone(),
            _ => Bytes::new(),
        };
        let at = offset + first.len() as u64;
        let has_size = facts.size > 0;
        // The first read, of what has no size, was at the start.
        let is_empty = offset == 0 && first.is_empty() && !has_size;
        let rest = match self {
            _ if has_size && at >= facts.size => Rest::None,
            Content::Here { fd, .. } if has_size || !is_empty => Rest::Here(read_ahead(fd.clone(), at, facts.clone())),
            Content::There { file, .. } if has_size && facts.size - at >= STREAMED && file.client().has_streams() => {
                Rest::Beside { file, at, end: facts.size, stream: None }
            }
            Content::There { file, .. } if !is_empty => {
                let reader = file.reader(at, facts.metadata.as_deref());
                Rest::There(Box::new(if has_size { reader.until(facts.size) } else { reader }))
            }
            _ => Rest::None,
        };
        Reader { first, rest }
    }
}

/// A piece of a file.
#[derive(Debug)]
pub enum Piece {
    Data(Bytes),
    /// So many zeros that no disk holds.
    Hole(u64),
}

/// Gives a file's pieces in order.
#[derive(Debug)]
pub struct Reader<'c> {
    first: Bytes,
    rest: Rest<'c>,
}

#[derive(Debug)]
enum Rest<'c> {
    None,
    Here(mpsc::Receiver<Result<Piece, Errno>>),
    There(Box<client::Reader<'c>>),
    /// By a stream, which is opened when it is read.
    Beside {
        file: &'c File,
        at: u64,
        end: u64,
        stream: Option<Box<client::Stream>>,
    },
    Stream(&'c pipe::Receiver),
}

impl Reader<'_> {
    /// The next piece, of at least one byte; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Piece>, Cause> {
        if !self.first.is_empty() {
            return Ok(Some(Piece::Data(std::mem::take(&mut self.first))));
        }
        match &mut self.rest {
            Rest::None => Ok(None),
            Rest::Here(pieces) => Ok(pieces.recv().await.transpose()?),
            Rest::Beside { file, at, end, stream } => {
                let stream = match stream {
                    Some(stream) => stream,
                    None => stream.insert(Box::new(file.stream_read(*at, Some(*end - *at)).await?)),
                };
                Ok(stream.next().await?.map(Piece::Data))
            }
            Rest::There(reader) => Ok(reader.next().await?.map(Piece::Data)),
            Rest::Stream(pipe) => Ok(read_pipe(pipe).await?.map(Piece::Data)),
        }
    }
}

/// What a pipe holds, waited for; `None` when all who wrote to it have closed it. Before somebody has opened a fifo to
/// write to it nothing is ready, and nothing is read.
async fn read_pipe(pipe: &pipe::Receiver) -> Result<Option<Bytes>, Cause> {
    let mut data = Vec::with_capacity(PIPE);
    loop {
        pipe.readable().await?;
        match pipe.try_read_buf(&mut data) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(data.into())),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// A thread that reads a local file until nobody takes what it read.
fn read_ahead(fd: Arc<OwnedFd>, at: u64, facts: Facts) -> mpsc::Receiver<Result<Piece, Errno>> {
    let (sender, pieces) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let end = if facts.size > 0 { facts.size } else { u64::MAX };
        let mut local = Local { fd: &fd, at, end, looks_for_holes: !facts.is_dense, data_end: 0 };
        while let Some(piece) = local.next().transpose() {
            let failed = piece.is_err();
            if sender.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    pieces
}

/// A local file being read.
struct Local<'a> {
    fd: &'a OwnedFd,
    at: u64,
    /// Nothing behind it is read.
    end: u64,
    looks_for_holes: bool,
    /// Up to here there is data and no hole.
    data_end: u64,
}

impl Local<'_> {
    fn next(&mut self) -> Result<Option<Piece>, Errno> {
        if self.at >= self.end {
            return Ok(None);
        }
        if self.looks_for_holes && self.at >= self.data_end {
            match seek(self.fd, SeekFrom::Data(self.at)) {
                Ok(data) if data > self.at => {
                    self.data_end = data;
                    return Ok(Some(self.hole(data)));
                }
                Ok(_) => self.data_end = seek(self.fd, SeekFrom::Hole(self.at))?,
                // No data any more: a hole to the end.
                Err(Errno::NXIO) => {
                    let size = fstat(self.fd)?.st_size.max(0).cast_unsigned();
                    return Ok((size > self.at).then(|| self.hole(size)));
                }
                // A file system that does not know of holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => self.looks_for_holes = false,
                Err(e) => return Err(e),
            }
        }
        let end = if self.looks_for_holes { self.data_end.min(self.end) } else { self.end };
        let most = (end - self.at).min(CHUNK as u64) as usize;
        let mut data = Vec::with_capacity(most);
        while data.len() < most {
            let at = self.at + data.len() as u64;
            match pread(self.fd, spare_capacity(&mut data), at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        self.at += data.len() as u64;
        if data.is_empty() {
            // The file ends sooner than it was said to.
            return Ok(None);
        }
        Ok(Some(Piece::Data(data.into())))
    }

    fn hole(&mut self, end: u64) -> Piece {
        let end = end.min(self.end);
        let length = end - self.at;
        self.at = end;
        Piece::Hole(length)
    }
}
