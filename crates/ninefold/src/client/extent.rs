//! What Linux does with files, and of 9P only .n1 has words for: appending and durable writes, copies within a server,
//! allocation, holes, and access(2). In other dialects all of it is [`Error::Unsupported`].

use bytes::Bytes;
use ninefold_proto::message::{Octal, Payload};
use ninefold_proto::n1::{seek, writex};
use ninefold_proto::wire::HEADER;
use ninefold_proto::{Errno, R, T};

use super::error::Error;
use super::file::File;
use super::node::{Node, unexpected};

/// Twritex's bytes before the data: header, `fid[4] offset[8] flags[4] count[4]`. They are more than
/// [`IO_HEADER`](ninefold_proto::wire::IO_HEADER) leaves.
const WRITEX_OVERHEAD: u32 = HEADER as u32 + 20;

/// What [`File::seek`] looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    Data,
    /// The end of the file is one, too.
    Hole,
}

impl File {
    /// The most bytes of one [`File::append`] or [`File::write_stable`]: some less than [`File::write_max`], for their message has the
    /// larger header.
    pub fn append_max(&self) -> u32 {
        self.at_most(self.client.msize() - WRITEX_OVERHEAD)
    }

    /// Writes `data`, cut to [`File::append_max`], at the end of the file, wherever that is by then. Gives where they begin, and
    /// how many bytes the server took. `stable`: on its disk before it answers.
    pub async fn append(&self, mut data: Bytes, stable: bool) -> Result<(u64, u32), Error> {
        data.truncate(self.append_max() as usize);
        let flags = writex::APPEND | if stable { writex::STABLE } else { 0 };
        self.behind.end_in_order(self).await?;
        self.writex(0, flags, data).await
    }

    /// [`File::write_at`] of at most [`File::append_max`] bytes, on the server's disk before it answers.
    pub async fn write_stable(&self, offset: u64, mut data: Bytes) -> Result<u32, Error> {
        data.truncate(self.append_max() as usize);
        self.behind.end_in_order(self).await?;
        Ok(self.writex(offset, writex::STABLE, data).await?.1)
    }

    async fn writex(&self, offset: u64, flags: u32, data: Bytes) -> Result<(u64, u32), Error> {
        let request = T::Writex { fid: self.fid.fid(), offset, flags: Octal(flags), data: Payload(&data) };
        match self.client.call_with(request, data.clone()).await?.message()? {
            R::Writex { offset, count } => Ok((offset, count)),
            _ => Err(unexpected()),
        }
    }

    /// Copies at most `length` bytes from `offset` on to `to`, a file of the same connection, and gives how many: 0 at the end
    /// of this one. They do not pass through the client. Ranges of one file that overlap are `EINVAL`.
    pub async fn copy_range(&self, offset: u64, to: &File, to_offset: u64, length: u64) -> Result<u64, Error> {
        if !to.fid.is_of(self.client.handle()) {
            return Err(Errno::EINVAL.into());
        }
        self.behind.settle(self).await;
        to.behind.end_in_order(to).await?;
        let (srcfid, dstfid) = (self.fid.fid(), to.fid.fid());
        let (srcoffset, dstoffset, flags) = (offset, to_offset, Octal(0));
        let request = T::Copyrange { srcfid, srcoffset, dstfid, dstoffset, length, flags };
        match self.client.call(request).await?.message()? {
            R::Copyrange { count } => Ok(count),
            _ => Err(unexpected()),
        }
    }

    /// fallocate(2): `mode` is 0 or bits of [`ninefold_proto::n1::allocate`].
    pub async fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<(), Error> {
        self.behind.end_in_order(self).await?;
        let request = T::Allocate { fid: self.fid.fid(), mode: Octal(mode), offset, length };
        self.client.call(request).await.map(drop)
    }

    /// Where the first of what is looked for begins from `offset` on; `None` where there is none: no data before the end, or
    /// `offset` is the end or behind it (lseek(2), ENXIO).
    pub async fn seek(&self, extent: Extent, offset: u64) -> Result<Option<u64>, Error> {
        let whence = match extent {
            Extent::Data => seek::DATA,
            Extent::Hole => seek::HOLE,
        };
        self.behind.settle(self).await;
        let reply = match self.client.call(T::Seek { fid: self.fid.fid(), offset, whence }).await {
            Err(e) if e.errno() == Errno::ENXIO => return Ok(None),
            reply => reply?,
        };
        match reply.message()? {
            R::Seek { offset } => Ok(Some(offset)),
            _ => Err(unexpected()),
        }
    }
}

impl Node {
    /// Which of the bits of [`ninefold_proto::n1::access`] asked for the user has, as the server sees it. None asked tells only
    /// that the file is there.
    pub async fn access(&self, mode: u32) -> Result<u32, Error> {
        match self.client.call(T::Access { fid: self.fid.fid(), mode: Octal(mode) }).await?.message()? {
            R::Access { mode } => Ok(mode.0),
            _ => Err(unexpected()),
        }
    }
}
