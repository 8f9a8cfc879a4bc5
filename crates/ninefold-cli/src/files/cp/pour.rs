//! The bytes of a file on their way from its [`Content`] to its [`Sink`].
//!
//! Four ways: within a server that has both, by several streams from a server to here, by several streams from here to a server, and in
//! order, which all others go and which every copy goes that may be gone on with or that is digested on the way.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use ninefold::client::{Error, Fault, File};
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use super::cx::Cx;
use super::dest::{Sink, Slot, Writing};
use super::digest::Digest;
use super::facts::Facts;
use super::file::digest_of;
use super::here_file::Begun;
use super::off::off;
use super::reader::{CHUNK, Content, Piece, STREAMED};
use super::trouble::{Cause, Trouble};
use super::zeros::{Run, runs};
use crate::place::Place;

/// Bytes that a server copies in one request: what a slow disk writes in a second, so that progress is seen and none takes too long.
const COPIED: u64 = 64 << 20;

/// Bytes that sockets and what is between them may take though nobody reads them.
const SWALLOWED: u64 = 64 << 20;

/// From what to what.
pub struct Pour<'a> {
    pub cx: &'a Cx<'a>,
    pub slot: &'a Slot,
    pub source: &'a Place,
    pub facts: &'a Facts,
    pub content: &'a Content,
    /// Bytes that were written to the sink.
    pub sent: Cell<u64>,
}

/// What went through.
#[derive(Default)]
pub struct Passed {
    pub bytes: u64,
    pub pieces: usize,
    pub digest: Option<Digest>,
    /// What the source was like when all of it had come, if somebody looked.
    pub now: Option<Facts>,
    /// It is known to have been changed, which its attributes need not show.
    pub is_changed: bool,
}

impl Pour<'_> {
    fn cannot_read(&self) -> impl Fn(Cause) -> Trouble {
        |cause| Trouble::new(self.source, "cannot read it", cause)
    }

    fn cannot_write(&self) -> impl Fn(Cause) -> Trouble {
        |cause| Trouble::new(&self.slot.place, "cannot write it", cause)
    }

    /// All bytes, from where the sink begins on; for a digest from the start.
    pub async fn all(&self, sink: &mut Sink) -> Result<Passed, Trouble> {
        if let Some(passed) = self.within_server(sink).await? {
            return Ok(passed);
        }
        let begun = sink.begun().clone();
        match self.by_streams_or_in_order(sink, &begun).await {
            Err(trouble) if self.swallowed(sink, &trouble.cause) => {
                if let Sink::There(there) = sink {
                    there.file().client().give_up_streams();
                    there.wrote(begun.offset);
                }
                self.in_order(sink, &begun).await
            }
            done => done,
        }
    }

    /// Whether what was sent by streams may never have got through: something between here and the server takes connections and bytes, and no
    /// stream has come to its end. In messages it may.
    fn swallowed(&self, sink: &Sink, cause: &Cause) -> bool {
        // What goes in messages anyway is not sent twice, and a pipe is not read twice.
        let Sink::There(there) = sink else { return false };
        let Some(file) = there.streamed().filter(|_| !self.content.is_stream()) else { return false };
        // The server's own word: nobody came with the token.
        let is_unheard = matches!(cause, Cause::There(_)) && cause.is(ninefold::proto::Errno::ETIMEDOUT);
        let is_cut = matches!(cause, Cause::There(Error::Stream(Fault::Cut(_))));
        (is_unheard || is_cut) && self.sent.get() <= SWALLOWED && !file.client().is_over()
    }

    async fn by_streams_or_in_order(&self, sink: &mut Sink, begun: &Begun) -> Result<Passed, Trouble> {
        // What is to be gone on with has no gaps, and a digest is made in order.
        let how = &self.cx.how;
        let is_whole = begun.offset == 0 && begun.in_place.is_none() && !how.resume && !how.checksum;
        let is_large = self.facts.size >= STREAMED && !self.content.is_stream();
        // In .s nobody tells how a stream ended that wrote, and the file's size does not tell it where another has written behind it.
        let is_told = |file: &File| file.client().version().is_n1();
        if is_whole && is_large {
            let wanted = |file: &File| file.streams_for(self.facts.size, self.cx.streams) > 1;
            let passed = match (self.content, &mut *sink) {
                // One stream is in order, and can be gone on with.
                (Content::There { file, first }, Sink::Here(here)) if wanted(file) => match self.cx.grant_streams() {
                    Some(granted) => {
                        here.mark(self.facts.size).await.map_err(self.cannot_write())?;
                        let passed = self.down(file, first, &mut Writing::Here(here), granted.streams).await?;
                        here.seek(passed.bytes).await.map_err(self.cannot_write())?;
                        Some(passed)
                    }
                    None => None,
                },
                (Content::Here { fd, .. }, Sink::There(there)) if self.facts.is_dense => {
                    match (there.streamed().filter(|file| is_told(file) && wanted(file)), self.cx.grant_streams()) {
                        (Some(file), Some(granted)) => Some(self.up(fd, file, granted.streams).await?),
                        _ => None,
                    }
                }
                _ => None,
            };
            if let Some(passed) = passed {
                if let Sink::There(there) = sink {
                    there.wrote(passed.bytes);
                }
                return Ok(passed);
            }
        }
        self.in_order(sink, begun).await
    }

    /// By the server itself, where it has both. `None` where it cannot.
    async fn within_server(&self, sink: &mut Sink) -> Result<Option<Passed>, Trouble> {
        let begun = sink.begun().clone();
        let (Content::There { file, .. }, Sink::There(there)) = (self.content, sink) else { return Ok(None) };
        let to = there.file();
        let is_one = file.client().is_beside(to.client()) && file.client().version().is_n1();
        if !is_one || begun.in_place.is_some() || self.facts.size == 0 {
            return Ok(None);
        }
        let mut at = begun.offset;
        self.cx.progress.moved(at);
        while at < self.facts.size {
            let length = (self.facts.size - at).min(COPIED);
            match file.copy_range(at, to, at, length).await {
                // It was cut, which is found out by who looks at it again.
                Ok(0) => break,
                Ok(copied) if copied > length => {
                    return Err(self.cannot_write()(Cause::words("it copies more than it is asked to")));
                }
                Ok(copied) => {
                    at += copied;
                    self.cx.progress.moved(copied);
                }
                // Of two file systems, or a tree that has no such thing.
                Err(Error::Refused(_) | Error::Unsupported { .. }) if at == begun.offset => return Ok(None),
                Err(e) => return Err(self.cannot_write()(e.into())),
            }
        }
        there.wrote(at);
        let mut passed = Passed { bytes: at, pieces: 2, ..Passed::default() };
        if self.cx.how.checksum {
            let read = digest_of(self.content.reader(0, self.facts)).await;
            passed.digest = Some(read.map_err(self.cannot_read())?);
        }
        Ok(Some(passed))
    }

    /// By several streams to here.
    async fn down(
        &self,
        file: &File,
        first: &Bytes,
        writing: &mut Writing<'_>,
        most: usize,
    ) -> Result<Passed, Trouble> {
        let mut passed = Passed::default();
        let begins = first.len() as u64;
        let mut ranges = file.ranges(begins, self.facts.size, most);
        let mut next = Some((0, first.clone())).filter(|(_, first)| !first.is_empty());
        loop {
            let piece = match next.take() {
                Some(piece) => Some(piece),
                // All of it is here, and how the streams ended is on its way: so is what the file is like now.
                None if passed.bytes == self.facts.size => {
                    let (piece, now) = tokio::join!(ranges.next(), self.content.facts());
                    passed.now = now.ok();
                    piece.map_err(|e| self.cannot_read()(e.into()))?
                }
                None => ranges.next().await.map_err(|e| self.cannot_read()(e.into()))?,
            };
            let Some((offset, data)) = piece else {
                passed.is_changed = ranges.is_changed();
                return Ok(passed);
            };
            let length = data.len() as u64;
            let wrote = async {
                writing.seek(offset).await?;
                self.data(writing, data, offset, 0).await
            };
            wrote.await.map_err(self.cannot_write())?;
            passed.bytes += length;
            passed.pieces += 1;
            self.cx.progress.moved(length);
        }
    }

    /// By several streams from here.
    async fn up(&self, fd: &Arc<OwnedFd>, file: &File, most: usize) -> Result<Passed, Trouble> {
        let size = self.facts.size;
        let streams = file.streams_for(size, most) as u64;
        file.client().prepare_streams(streams as usize);
        let range = async |from: u64, to: u64| -> Result<(), Trouble> {
            let cannot_write = |e: Error| self.cannot_write()(e.into());
            let mut stream = file.stream_write(from, Some(to - from)).await.map_err(cannot_write)?;
            let mut at = from;
            while at < to {
                let (fd, most) = (fd.clone(), (to - at).min(CHUNK as u64) as usize);
                let data = off(move || read_at(&fd, at, most)).await.map_err(self.cannot_read())?;
                if data.is_empty() {
                    let words = format!("it ended after {at} of its {size} bytes: it is not copied");
                    return Err(Trouble::new(self.source, "", Cause::words(words)));
                }
                let length = data.len() as u64;
                stream.write_bytes(data).await.map_err(cannot_write)?;
                self.sent.update(|sent| sent + length);
                at += length;
                self.cx.progress.moved(length);
            }
            stream.finish().await.map(drop).map_err(cannot_write)
        };
        try_join_all((0..streams).map(|n| range(size * n / streams, size * (n + 1) / streams))).await?;
        Ok(Passed { bytes: size, pieces: 2, ..Passed::default() })
    }

    async fn in_order(&self, sink: &mut Sink, begun: &Begun) -> Result<Passed, Trouble> {
        let mut passed = Passed { digest: self.cx.how.checksum.then(Digest::new), ..Passed::default() };
        passed.bytes = if passed.digest.is_some() { 0 } else { begun.offset };
        self.cx.progress.moved(passed.bytes);
        let mut reader = self.content.reader(passed.bytes, self.facts);
        let mut writing = sink.writing();
        loop {
            let piece = match reader.next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                // The server's word at the end of a stream. What came counts, as it does where only the attributes tell of a change.
                Err(Cause::There(Error::Stream(Fault::Changed))) => {
                    passed.is_changed = true;
                    break;
                }
                Err(cause) => return Err(self.cannot_read()(cause)),
            };
            // What is there already is only digested.
            let known = begun.offset.saturating_sub(passed.bytes);
            let length = match piece {
                Piece::Data(data) => {
                    if let Some(digest) = &mut passed.digest {
                        digest.data(&data);
                    }
                    let known = known.min(data.len() as u64);
                    let new = data.slice(known as usize..);
                    let wrote = self.data(&mut writing, new, passed.bytes + known, begun.skips_from).await;
                    wrote.map_err(self.cannot_write())?;
                    self.sent.update(|sent| sent + data.len() as u64);
                    data.len() as u64
                }
                Piece::Hole(zeros) => {
                    if let Some(digest) = &mut passed.digest {
                        digest.zeros(zeros);
                    }
                    let known = known.min(zeros);
                    let wrote = self.zeros(&mut writing, zeros - known, passed.bytes + known, begun.skips_from).await;
                    wrote.map_err(self.cannot_write())?;
                    zeros
                }
            };
            passed.bytes += length;
            passed.pieces += 1;
            self.cx.progress.moved(length);
        }
        writing.finish().await.map_err(self.cannot_write())?;
        Ok(passed)
    }

    async fn data(&self, writing: &mut Writing<'_>, data: Bytes, offset: u64, skips_from: u64) -> Result<(), Cause> {
        if offset < skips_from {
            return writing.data(data).await;
        }
        for run in runs(&data, offset, writing.least_zeros()) {
            match run {
                Run::Data(data) => writing.data(data).await?,
                Run::Zeros(zeros) => writing.skip(zeros).await?,
            }
        }
        Ok(())
    }

    /// A hole at `offset`. Where nothing may be skipped its zeros are written.
    async fn zeros(&self, writing: &mut Writing<'_>, zeros: u64, offset: u64, skips_from: u64) -> Result<(), Cause> {
        static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
        let mut written = zeros.min(skips_from.saturating_sub(offset));
        let skipped = zeros - written;
        while written > 0 {
            let piece = written.min(ZEROS.len() as u64);
            writing.data(Bytes::from_static(&ZEROS[..piece as usize])).await?;
            written -= piece;
        }
        if skipped > 0 { writing.skip(skipped).await } else { Ok(()) }
    }
}

/// At most `most` bytes of a local file; none at its end.
fn read_at(fd: &OwnedFd, at: u64, most: usize) -> Result<Bytes, Cause> {
    let mut data = Vec::with_capacity(most);
    while data.len() < most {
        let next = at + data.len() as u64;
        match pread(fd, spare_capacity(&mut data), next) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(data.into())
}
