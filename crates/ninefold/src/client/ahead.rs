//! Reading by offsets, with what comes next asked for ahead while the reads are sequential (S5, "Read and write": Mntio).
//!
//! [`File::read_ahead`] makes a [`ReadAhead`]; each has a window of its own, however many read one file.
//! [`ReadAhead::read_at`] is [`File::read_at`] with a memory: the second read that goes on where the one before ended begins a
//! [`Reader`] there, from which the next ones are served; one that does not drops it, and with it what was asked for and not
//! taken, which is never delivered.
//!
//! Where the file ends is remembered when it was seen from replies: the read there is answered at once. That is told once: who
//! asks again may want to know whether the file has grown, and the server is asked.
//!
//! Nothing is asked for ahead of a file that [is ordered](File::is_ordered), one that is open for writing too, because a write
//! might make what came before it obsolete, or one of which the server does not say that it is plain and has a size.

use bytes::{Bytes, BytesMut};
use futures_util::future::join;
use ninefold_proto::open::Access;

use super::error::Error;
use super::file::File;
use super::metadata::Metadata;
use super::reader::Reader;

/// Reads of a file by offsets, ahead while they are sequential; see [`File::read_ahead`]. Dropping it gives up what is on the way.
#[derive(Debug)]
pub struct ReadAhead<'f> {
    file: &'f File,
    /// The size of a plain file, as it was told last.
    size: Option<Metadata>,
    /// Where the last read ended (loff); `None` before the first.
    last: Option<u64>,
    /// What is being read ahead; it goes on at `last`, behind `rest`.
    ahead: Option<Reader<'f>>,
    /// What came and was not taken.
    rest: Bytes,
    /// Where the file ends, as replies showed.
    end: Option<u64>,
}

impl File {
    /// A reader of its own window. `metadata`: the file's, if they are known; else they are asked for beside a read, once it is
    /// sequential.
    pub fn read_ahead(&self, metadata: Option<&Metadata>) -> ReadAhead<'_> {
        ReadAhead { file: self, size: metadata.cloned(), last: None, ahead: None, rest: Bytes::new(), end: None }
    }
}

impl<'f> ReadAhead<'f> {
    /// At most `count` bytes at `offset`, at least one before the end of the file; none at its end. Bytes that arrived in one
    /// message are given as they arrived. Dropped before it is done it has lost nothing.
    pub async fn read_at(&mut self, offset: u64, count: u32) -> Result<Bytes, Error> {
        if count == 0 {
            return self.file.read_at(offset, 0).await;
        }
        let sequential = self.last == Some(offset);
        if !sequential {
            self.stop();
        }
        if self.end == Some(offset) {
            self.stop();
            self.last = Some(offset);
            return Ok(Bytes::new());
        }
        if self.ahead.is_some() {
            return self.next(offset, count).await;
        }
        let (data, failed) = if sequential && self.may() && self.size.is_none() {
            let beside = self.file.client.fork();
            let (data, metadata) = join(self.file.read_parts(offset, count), self.file.metadata_by(&beside)).await;
            self.file.client.join(&beside);
            // It spares waiting, and no more: what may be read is read where attributes are refused.
            self.size = metadata.ok();
            data?
        } else {
            self.file.read_parts(offset, count).await?
        };
        let last = offset.saturating_add(data.len() as u64);
        self.last = Some(last);
        let size = self.size.as_ref().filter(|metadata| metadata.is_plain()).map(|metadata| metadata.size);
        if let Some(size) = size.filter(|size| *size > 0 && self.may()) {
            if !data.is_empty() && data.len() < count as usize && last == size && !failed {
                self.end = Some(last);
            } else if sequential && last < size {
                self.ahead = Some(self.file.reader(last, self.size.as_ref()));
            }
        }
        Ok(data)
    }

    /// Whether anything may be asked for ahead.
    fn may(&self) -> bool {
        !self.file.is_ordered() && matches!(self.file.mode().access, Access::Read | Access::Exec)
    }

    /// Forgets what was asked for ahead, and where the end was.
    fn stop(&mut self) {
        self.ahead = None;
        self.rest = Bytes::new();
        self.end = None;
    }

    /// Serves a read from what is being read ahead.
    async fn next(&mut self, offset: u64, count: u32) -> Result<Bytes, Error> {
        let Some(reader) = &mut self.ahead else { return Ok(Bytes::new()) };
        if self.rest.is_empty() {
            match reader.next().await {
                Ok(Some(data)) => self.rest = data,
                Ok(None) => {
                    self.stop();
                    // Told now: who asks again asks the server.
                    return Ok(Bytes::new());
                }
                Err(e) => {
                    // The next read asks anew.
                    self.stop();
                    return Err(e);
                }
            }
        }
        // What has not come yet is waited for only if nothing has: but a read of a whole message should not come in two for
        // the place where the window's messages were cut.
        let mut gathered: Option<BytesMut> = None;
        while gathered.as_ref().map_or(0, BytesMut::len) + self.rest.len() < count as usize {
            let Ok(Some(data)) = reader.next_arrived() else { break };
            gathered.get_or_insert_default().extend_from_slice(&std::mem::replace(&mut self.rest, data));
        }
        let data = match gathered {
            None => self.rest.split_to(self.rest.len().min(count as usize)),
            Some(mut all) => {
                all.extend_from_slice(&self.rest.split_to(self.rest.len().min(count as usize - all.len())));
                all.freeze()
            }
        };
        self.last = Some(offset.saturating_add(data.len() as u64));
        Ok(data)
    }
}
