//! A file that is open.

use bytes::Bytes;
use ninefold_proto::attr::SetAttr;
use ninefold_proto::client::Parting;
use ninefold_proto::message::{Optional, Payload};
use ninefold_proto::wire::IO_HEADER;
use ninefold_proto::{Dialect, Qid, R, T};

use super::client::Client;
use super::error::Error;
use super::fid::OwnedFid;
use super::metadata::Metadata;
use super::node::{Mode, metadata, set, unexpected};

/// An open file. Its fid is clunked when it is dropped; [`File::close`] tells whether that went well.
#[derive(Debug)]
pub struct File {
    pub(super) client: Client,
    pub(super) fid: OwnedFid,
    qid: Qid,
    /// 0: the server gives no advice.
    iounit: u32,
    mode: Mode,
    /// It was made, not found.
    made: bool,
}

impl File {
    pub(super) fn new(client: Client, fid: OwnedFid, opened: (Qid, u32), mode: Mode, made: bool) -> File {
        let (qid, iounit) = opened;
        File { client, fid, qid, iounit, mode, made }
    }

    /// Whether it was made by the call that opened it.
    pub(super) fn is_made(&self) -> bool {
        self.made
    }

    pub fn qid(&self) -> Qid {
        self.qid
    }

    /// How it was opened.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The client that it was opened with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The most bytes of one read: what a message holds, or less where the server says so.
    pub fn read_max(&self) -> u32 {
        self.at_most(self.client.msize() - IO_HEADER)
    }

    /// The most bytes of one write.
    pub fn write_max(&self) -> u32 {
        self.at_most(self.client.msize() - IO_HEADER)
    }

    fn at_most(&self, message: u32) -> u32 {
        if self.iounit == 0 { message } else { message.min(self.iounit) }
    }

    /// Reads at most `count` bytes, and at most [`File::read_max`], at `offset`. Fewer may come before the end of the
    /// file; none come at its end. The bytes are those that arrived, not a copy.
    pub async fn read_at(&self, offset: u64, count: u32) -> Result<Bytes, Error> {
        let count = count.min(self.read_max());
        Ok(self.client.call(T::Read { fid: self.fid.fid(), offset, count }).await?.data())
    }

    /// Writes `data`, cut to [`File::write_max`], at `offset`, and says how many bytes the server took.
    pub async fn write_at(&self, offset: u64, mut data: Bytes) -> Result<u32, Error> {
        data.truncate(self.write_max() as usize);
        let request = T::Write { fid: self.fid.fid(), offset, data: Payload(&data) };
        match self.client.call_with(request, data.clone()).await?.message()? {
            R::Write { count } => Ok(count),
            _ => Err(unexpected()),
        }
    }

    /// Waits until what was written is on the server's disk. 9P2000 and .u have no word for it but a Twstat that
    /// changes nothing (stat(5)).
    pub async fn sync(&self) -> Result<(), Error> {
        let fid = self.fid.fid();
        match self.client.dialect() {
            Dialect::Linux => self.client.call(T::Fsync { fid, datasync: Optional(0) }).await.map(drop),
            _ => super::node::wstat(&self.client, fid, &ninefold_proto::stat::Stat::UNTOUCHED).await,
        }
    }

    /// The file's attributes.
    pub async fn metadata(&self) -> Result<Metadata, Error> {
        metadata(&self.client, self.fid.fid()).await
    }

    /// Changes attributes; see [`Node::set`](super::Node::set).
    pub async fn set(&self, change: &SetAttr) -> Result<(), Error> {
        set(&self.client, self.fid.fid(), change).await
    }

    /// From now on the file is removed when this is dropped, until [`File::keep`]: a file must not be left behind
    /// half-written.
    pub fn remove_on_drop(&mut self) {
        self.fid.set_parting(Parting::Remove);
    }

    /// The file stays when this is dropped.
    pub fn keep(&mut self) {
        self.fid.set_parting(Parting::Clunk);
    }

    /// Clunks the fid and tells what the server says to it: some tell here that they could not write.
    pub async fn close(self) -> Result<(), Error> {
        self.fid.part(Parting::Clunk, &self.client.lane).await
    }

    /// Removes the file, and waits for the result.
    pub async fn remove(self) -> Result<(), Error> {
        self.fid.part(Parting::Remove, &self.client.lane).await
    }
}
