//! The compatibility mode of a stream: Treads and Twrites, as many on the way as delay and rate ask for where the file is plain and
//! has a size, as [`File::reader`] and [`File::writer`] have it; else one after another, each when it is wanted.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;
use ninefold_proto::QidType;

use crate::client::error::{Error, Fault};
use crate::client::file::{File, Lent};
use crate::client::reader::Reader;
use crate::client::writer::Writer;

/// Reads.
#[derive(Debug)]
pub(super) struct Reading {
    file: Arc<File>,
    offset: u64,
    /// No byte from here on is wanted.
    until: u64,
    /// None before the first read: what is not read is not asked for.
    reader: Option<Reader<'static>>,
    /// Of what came last, what was not taken.
    rest: Bytes,
    /// Bytes that are taken at a time, if that is known: messages end where they do.
    step: u32,
}

impl Reading {
    pub fn new(file: File, offset: u64, length: Option<u64>) -> Reading {
        let until = length.map_or(u64::MAX, |length| offset.saturating_add(length));
        Reading { file: Arc::new(file), offset, until, reader: None, rest: Bytes::new(), step: 1 }
    }

    pub fn in_steps(&mut self, bytes: u32) {
        self.step = bytes.max(1);
    }

    pub async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        if buf.is_empty() {
            return Ok(0);
        }
        if self.rest.is_empty() {
            self.rest = self.fill().await?.unwrap_or_default();
        }
        let part = self.rest.split_to(buf.len().min(self.rest.len()));
        buf[..part.len()].copy_from_slice(&part);
        Ok(part.len())
    }

    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        self.fill().await
    }

    async fn fill(&mut self) -> Result<Option<Bytes>, Error> {
        match &mut self.reader {
            Some(reader) => reader.next().await,
            None => self.begin().await,
        }
    }

    /// The first read. The size, up to which several may be on the way, is asked for beside it.
    async fn begin(&mut self) -> Result<Option<Bytes>, Error> {
        let file = &self.file;
        let reader = |at, metadata: Option<&_>| Reader::of(Lent::Own(file.clone()), at, metadata);
        if file.qid().kind != QidType::FILE || self.until <= self.offset {
            return self.reader.insert(reader(self.offset, None).until(self.until)).next().await;
        }
        let most = file.read_max();
        let whole = if most > self.step { most - most % self.step } else { most };
        let count = u32::try_from(self.until - self.offset).unwrap_or(u32::MAX).min(whole);
        let beside = file.client.fork();
        let (data, metadata) = join(file.read_message(self.offset, count), file.metadata_by(&beside)).await;
        file.client.join(&beside);
        let data = data?;
        // It spares waiting, and no more: what may be read is read where attributes are refused.
        let metadata = metadata.ok();
        let at = self.offset.saturating_add(data.len() as u64);
        // A short reply that came to the end that the file ought to have did come to it.
        let size = metadata.as_ref().filter(|metadata| metadata.is_plain()).map(|metadata| metadata.size);
        if data.len() < count as usize && size.is_none_or(|size| size <= at) && (size.is_some() || data.is_empty()) {
            self.until = at;
        }
        let reader = reader(at, metadata.as_ref()).until(self.until).in_steps(self.offset, self.step);
        let reader = self.reader.insert(reader);
        if data.is_empty() { reader.next().await } else { Ok(Some(data)) }
    }

    pub fn finish(self) -> Result<(), Error> {
        // Whoever ends it before the end has what he wanted.
        if self.reader.is_some_and(|reader| reader.missing() > 0) { Err(Fault::Changed.into()) } else { Ok(()) }
    }
}

/// Writes.
#[derive(Debug)]
pub(super) struct Writing {
    file: Arc<File>,
    offset: u64,
    /// None before the first write.
    writer: Option<Writer<'static>>,
}

impl Writing {
    pub fn new(file: File, offset: u64) -> Writing {
        Writing { file: Arc::new(file), offset, writer: None }
    }

    pub async fn write(&mut self, data: Bytes) -> Result<(), Error> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let file = &self.file;
                // Behind what was made there is no program, and behind what has a version.
                let is_known = file.is_made() || !file.is_ordered();
                let several = !file.appends()
                    && (is_known
                        || file.metadata().await.is_ok_and(|metadata| metadata.is_plain() && metadata.size > 0));
                self.writer.insert(Writer::of(Lent::Own(file.clone()), self.offset, several))
            }
        };
        writer.write(data).await
    }

    pub async fn finish(self) -> Result<u64, Error> {
        match self.writer {
            Some(mut writer) => writer.finish().await,
            None => Ok(0),
        }
    }
}
