//! A file that is open.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use futures_util::future::{join, try_join_all};
use ninefold_proto::attr::SetAttr;
use ninefold_proto::client::Parting;
use ninefold_proto::message::{Optional, Payload};
use ninefold_proto::wire::IO_HEADER;
use ninefold_proto::{Dialect, Errno, Qid, QidType, R, T};

use super::behind::Behind;
use super::client::Client;
use super::error::Error;
use super::fid::OwnedFid;
use super::metadata::Metadata;
use super::names::not_there;
use super::node::{Mode, Node, metadata, set, unexpected};
use super::nudge::nudging;
use super::pending::Pending;
use super::stream::{Granted, Grants, Late, Stream};

/// Ends of streams that have room in one group with its guard, the close and the rename.
const ENDS_MAX: usize = 60;

/// An open file. Its fid is clunked when it is dropped; [`File::close`] tells whether that went well. What was written behind
/// and not flushed is given up then: the server may have written it or not.
#[derive(Debug)]
pub struct File {
    pub(super) client: Client,
    /// Shared with the streams that go on when this is closed.
    pub(super) fid: Arc<OwnedFid>,
    qid: Qid,
    /// 0: the server gives no advice.
    iounit: u32,
    mode: Mode,
    /// It was made, not found.
    made: bool,
    /// Boxed, as most files never use it.
    pub(super) behind: Box<Behind>,
    /// Streams that were asked for with its open, of the beginning, or with its making.
    granted: Mutex<Grants>,
}

impl File {
    pub(super) fn new(client: Client, fid: OwnedFid, opened: (Qid, u32), mode: Mode, made: bool) -> File {
        let (qid, iounit) = opened;
        File { client, fid: Arc::new(fid), qid, iounit, mode, made, behind: Box::default(), granted: Mutex::default() }
    }

    /// The same open file once more, for who goes on with it when this is closed: it is clunked when both are gone. What either
    /// writes behind is unknown to the other.
    #[must_use]
    pub fn share(&self) -> File {
        let File { client, fid, qid, iounit, mode, made, .. } = self;
        let (behind, granted) = Default::default();
        let (client, fid) = (client.clone(), fid.clone());
        File { client, fid, qid: *qid, iounit: *iounit, mode: *mode, made: *made, behind, granted }
    }

    fn grants(&self) -> MutexGuard<'_, Grants> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream that was asked for with its making.
    pub(super) fn grant(&self, granted: Granted) {
        self.grants().streams.push(granted);
    }

    /// Those that were asked for with its open.
    pub(super) fn grant_all(&self, grants: Grants) {
        *self.grants() = grants;
    }

    pub(super) fn take_grants(&self) -> Grants {
        std::mem::take(&mut *self.grants())
    }

    /// How many of those there are still.
    pub fn granted(&self) -> usize {
        self.grants().streams.len()
    }

    /// That of so many bytes from a place on, if there is one.
    pub(super) fn take_granted(&self, offset: u64, length: u64) -> Option<Granted> {
        let granted = &mut self.grants().streams;
        let at = granted.iter().position(|one| (one.offset, one.length) == (offset, length))?;
        Some(granted.remove(at))
    }

    /// Gives up streams that were asked for with its open ([`BeginRead::streams`](super::BeginRead)), or its making: for who reads or writes it in another way.
    pub fn give_up_granted(&self) {
        drop(self.take_grants());
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

    /// As if it had been opened with [`Mode::cache`].
    pub(crate) fn cached(mut self) -> File {
        self.mode.cache = true;
        self
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

    pub(super) fn at_most(&self, message: u32) -> u32 {
        if self.iounit == 0 { message } else { message.min(self.iounit) }
    }

    /// Whether it is read and written strictly in order: one request after another, nothing ahead of what is asked for, and every
    /// write waited for. So it is where a read or a write may do something, or the server chooses the place: the qid is not a plain
    /// file's, or its version is 0, as synthetic servers have it (S5, "Read and write"), unless [`Mode::cache`] says otherwise;
    /// and where it is append-only, or opened to append.
    pub fn is_ordered(&self) -> bool {
        let known = self.mode.cache || self.qid.version != 0;
        !known || self.qid.kind != QidType::FILE || self.mode.append
    }

    /// Whether the server chooses the place of what is written: what arrives first comes first.
    pub(crate) fn appends(&self) -> bool {
        self.mode.append || self.qid.kind.has(QidType::APPEND)
    }

    /// Reads at most `count` bytes at `offset`. Fewer may come before the end of the file; none come at its end. What is more than
    /// one message, [`File::read_max`], is asked for by several requests at a time, or one after another where the file
    /// [is ordered](File::is_ordered), up to the first reply that is short; an error behind bytes that came is not told. The
    /// bytes of one message are those that arrived, not a copy. What was written behind is waited for first.
    pub async fn read_at(&self, offset: u64, count: u32) -> Result<Bytes, Error> {
        self.read_parts(offset, count).await.map(|(data, _)| data)
    }

    /// The same, and whether an error is what it ended by.
    pub(super) async fn read_parts(&self, offset: u64, count: u32) -> Result<(Bytes, bool), Error> {
        self.behind.settle(self).await;
        if count <= self.read_max() {
            return Ok((self.read_message(offset, count).await?, false));
        }
        let mut failed = None;
        let mut all = BytesMut::new();
        let mut reader = if self.is_ordered() { None } else { Some(self.reader_of_call(offset, count)) };
        while all.len() < count as usize {
            let left = count - all.len() as u32;
            let part = match &mut reader {
                Some(reader) => reader.next().await.map(Option::unwrap_or_default),
                None => self.read_message(offset.saturating_add(all.len() as u64), left.min(self.read_max())).await,
            };
            let part = match part {
                Err(e) => {
                    failed = Some(e);
                    break;
                }
                Ok(part) => part,
            };
            all.extend_from_slice(&part);
            if part.is_empty() || reader.is_none() && part.len() < left.min(self.read_max()) as usize {
                break;
            }
        }
        if let Some(reader) = &mut reader {
            reader.settle().await;
        }
        match failed {
            Some(e) if all.is_empty() => Err(e),
            failed => Ok((all.freeze(), failed.is_some())),
        }
    }

    pub(super) async fn read_message(&self, offset: u64, count: u32) -> Result<Bytes, Error> {
        Ok(self.client.call(T::Read { fid: self.fid.fid(), offset, count }).await?.data())
    }

    /// Writes `data` at `offset`, and says how many bytes the server took, from the first on and without a gap. What is more than
    /// one message, [`File::write_max`], goes by several requests at a time, or one after another where the file
    /// [is ordered](File::is_ordered); where one fails what was taken before it is told, and the error when that is nothing. A
    /// file opened with [`Mode::behind`] does not wait for the replies, [`File::write_behind`], unless it is ordered.
    pub async fn write_at(&self, offset: u64, data: Bytes) -> Result<u32, Error> {
        if self.mode.behind && !self.is_ordered() {
            let bytes = u32::try_from(data.len()).map_err(|_| Errno::EFBIG)?;
            return self.write_behind(offset, data).await.map(|()| bytes);
        }
        self.behind.end_in_order(self).await?;
        self.write_through(offset, data).await
    }

    /// Writes, and waits for the replies.
    pub(super) async fn write_through(&self, offset: u64, data: Bytes) -> Result<u32, Error> {
        u32::try_from(data.len()).map_err(|_| Errno::EFBIG)?;
        offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        let most = self.write_max() as usize;
        if data.len() <= most {
            return self.write_message(offset, data).await;
        }
        let mut taken = 0;
        if !self.is_ordered() {
            let mut pending = Pending::of_call(self, data.len());
            let mut next = offset;
            let mut rest = data;
            let mut result = pending.push(self, &mut next, &mut rest).await;
            if result.is_ok() {
                result = pending.wait_for_all(self).await;
            }
            // What is on the way was cut out of the caller's bytes: nobody else knows of it.
            let taken = (pending.drain(self).await.unwrap_or(next) - offset) as u32;
            return match result {
                Err(e) if taken == 0 => Err(e),
                _ => Ok(taken),
            };
        }
        while taken < data.len() {
            let end = data.len().min(taken + most);
            match self.write_message(offset + taken as u64, data.slice(taken..end)).await {
                Err(e) if taken == 0 => return Err(e),
                Err(_) => break,
                Ok(count) => {
                    taken += count as usize;
                    if taken < end {
                        break;
                    }
                }
            }
        }
        Ok(taken as u32)
    }

    async fn write_message(&self, offset: u64, data: Bytes) -> Result<u32, Error> {
        let request = T::Write { fid: self.fid.fid(), offset, data: Payload(&data) };
        match self.client.call_with(request, data.clone()).await?.message()? {
            R::Write { count } => Ok(count),
            _ => Err(unexpected()),
        }
    }

    /// Waits until what was written is on the server's disk. 9P2000 and .u have no word for it but a Twstat that
    /// changes nothing (stat(5)). What was written behind is flushed first: [`File::flush`].
    pub async fn sync(&self) -> Result<(), Error> {
        self.flush().await?;
        let fid = self.fid.fid();
        match self.client.dialect() {
            Dialect::Linux => self.client.call(T::Fsync { fid, datasync: Optional(0) }).await.map(drop),
            _ => super::node::wstat(&self.client, fid, &ninefold_proto::stat::Stat::UNTOUCHED).await,
        }
    }

    /// The file's attributes, once what was written behind has been answered.
    pub async fn metadata(&self) -> Result<Metadata, Error> {
        self.behind.settle(self).await;
        metadata(&self.client, self.fid.fid()).await
    }

    /// Its attributes and at most `count` bytes of its beginning, and what one message holds: as it was when it was looked at or later, so
    /// that who finds the same attributes afterwards has read nothing older, as far as the server tells that it was changed (qid.version). One
    /// round trip, if it was not.
    pub async fn look_and_read(&self, count: u32) -> Result<(Metadata, Bytes), Error> {
        let count = count.min(self.read_max());
        let beside = self.client.fork();
        let (metadata, data) = join(self.metadata_by(&beside), self.read_at(0, count)).await;
        self.client.join(&beside);
        let (metadata, data) = (metadata?, data?);
        // A server may do the two in any order, and beside each other.
        if metadata.qid.version == self.qid.version {
            return Ok((metadata, data));
        }
        let metadata = self.metadata().await?;
        Ok((metadata, self.read_at(0, count).await?))
    }

    /// The same as known to work that runs beside.
    pub(super) async fn metadata_by(&self, client: &Client) -> Result<Metadata, Error> {
        metadata(client, self.fid.fid()).await
    }

    /// Changes attributes, once what was written behind has been answered; see [`Node::set`](super::Node::set).
    pub async fn set(&self, change: &SetAttr) -> Result<(), Error> {
        self.behind.settle(self).await;
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

    /// Flushes what was written behind, clunks the fid, and tells what the server says to it: some tell here that they could not
    /// write. An error of the flush is told in the place of that. While a [`Stream`](super::Stream) of it goes on the fid stays,
    /// and is clunked at the end of that.
    pub async fn close(self) -> Result<(), Error> {
        let flushed = self.flush().await;
        let clunked = match Arc::into_inner(self.fid) {
            Some(fid) => fid.part(Parting::Clunk, &self.client.lane).await,
            None => Ok(()),
        };
        flushed.and(clunked)
    }

    /// Closes it, and gives it the name `to` where it has `from` in `dir`, unless the close failed, whose error comes first: in `.n1` in one round
    /// trip. What has the name is replaced as by [`Node::rename`], whose result is within. `EINVAL`, and the
    /// file is only let go, where `dir` is of another connection.
    pub async fn close_and_rename(self, dir: &Node, from: &[u8], to: &[u8]) -> Result<Result<(), Error>, Error> {
        self.end_and_rename(Vec::new(), dir, from, to).await
    }

    /// The same behind the ends of streams that wrote it: those that are [late](File::stream_write_late), and were given all of their bytes, are ended in that
    /// round trip, and it gets the name only when all of them came to their ends whole; the others are finished before.
    pub async fn end_and_rename(
        self,
        streams: Vec<Stream>,
        dir: &Node,
        from: &[u8],
        to: &[u8],
    ) -> Result<Result<(), Error>, Error> {
        // Whatever it was to be when it is dropped.
        self.fid.set_parting(Parting::Clunk);
        self.give_up_granted();
        if !dir.fid.is_of(self.client.handle()) {
            return Err(Errno::EINVAL.into());
        }
        self.flush().await?;
        let late = try_join_all(streams.into_iter().map(Stream::into_late)).await?;
        let mut late: Vec<Late> = late.into_iter().flatten().collect();
        let client = self.client.clone();
        end_all(&client, late.split_off(late.len().min(ENDS_MAX))).await?;
        let fid = match Arc::try_unwrap(self.fid) {
            Ok(fid) if client.version().is_n1() => fid,
            other => {
                end_all(&client, late).await?;
                if let Ok(fid) = other {
                    fid.part(Parting::Clunk, &client.lane).await?;
                }
                return Ok(dir.rename(from, dir, to).await);
            }
        };
        fid.quiet().await?;
        let mut chain = client.chain();
        let guard = chain.all_or_stop(late.len() as u16 + 2).await?;
        let mut ended = Vec::with_capacity(late.len());
        for late in late {
            ended.push((chain.end_stream(late.id()).await?, late));
        }
        let rest = ended.iter().map(|(_, late)| late.rest()).max().unwrap_or_default();
        let closed = chain.close(fid).await?;
        let renamed = chain.rename_over(dir, from, to).await?;
        let taken = async {
            guard.take().await?;
            for (ended, late) in ended {
                let answer = ended.take_within(late.patience()).await;
                late.ended(answer)?;
            }
            closed.take().await?;
            Ok::<_, Error>(renamed.take().await)
        };
        match nudging(&client, rest, taken).await? {
            Err(e) if not_there(&e) => Ok(dir.rename(from, dir, to).await),
            renamed => Ok(renamed),
        }
    }

    /// Removes the file, and waits for the result; what was written behind is of no consequence any more. `EBUSY` while a
    /// [`Stream`](super::Stream) of it goes on.
    pub async fn remove(self) -> Result<(), Error> {
        self.give_up_granted();
        self.behind.settle(&self).await;
        let fid = Arc::into_inner(self.fid).ok_or(Errno::EBUSY)?;
        fid.part(Parting::Remove, &self.client.lane).await
    }
}

/// A file for who reads or writes it: the caller's, or one of its own.
#[derive(Clone, Debug)]
pub(super) enum Lent<'f> {
    Theirs(&'f File),
    Own(Arc<File>),
}

impl Deref for Lent<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Lent::Theirs(file) => file,
            Lent::Own(file) => file,
        }
    }
}

/// Waits until streams that were given all of their bytes have come to their ends, whole.
async fn end_all(client: &Client, streams: Vec<Late>) -> Result<(), Error> {
    for late in streams {
        let ended = client.chain().end_stream(late.id()).await?;
        let answer = nudging(client, late.rest(), ended.take_within(late.patience())).await;
        late.ended(answer)?;
    }
    Ok(())
}
