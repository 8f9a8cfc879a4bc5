//! Writing a file from one place on, with as many requests on the way as delay and rate ask for.
//!
//! [`File::writer`] makes a [`Writer`]; [`Writer::write`] takes bytes and waits while the window is full, [`Writer::skip`]
//! leaves bytes out; [`Writer::finish`] waits for the replies to all of it. Only plain files take several writes at a
//! time: everything else gets one after another.

use bytes::Bytes;

use super::error::Error;
use super::file::{File, Lent};
use super::metadata::Metadata;
use super::pending::Pending;

/// See the module. Dropping it gives up what is on the way, which the server may have written or not.
#[derive(Debug)]
pub struct Writer<'f> {
    file: Lent<'f>,
    pending: Pending,
    start: u64,
    /// Where the next bytes go.
    next: u64,
    failed: Option<Error>,
}

impl File {
    /// Writes from `offset` on, pipelined where the file was made by the [`Node::create`](super::Node::create) that opened
    /// it, or where `metadata` tells a plain file with a size; else, and where it is append-only or opened to append, one
    /// request after another.
    pub fn writer(&self, offset: u64, metadata: Option<&Metadata>) -> Writer<'_> {
        // A synthetic file may act on every write; it has size 0 (and so have plain files that are empty).
        let known = self.is_made() || metadata.is_some_and(|metadata| metadata.is_plain() && metadata.size > 0);
        Writer::of(Lent::Theirs(self), offset, known && !self.appends())
    }
}

impl<'f> Writer<'f> {
    /// `several`: more than one request may be on the way.
    pub(super) fn of(file: Lent<'f>, offset: u64, several: bool) -> Writer<'f> {
        Writer { pending: Pending::new(&file, several), file, start: offset, next: offset, failed: None }
    }
}

impl Writer<'_> {
    /// Where the next bytes go.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Bytes that are known to be written, from the writer's first on and without a gap. What was sent behind them may be
    /// written too, or in part, after an error: whoever goes on writes it again.
    pub fn written(&self) -> u64 {
        self.pending.first().unwrap_or(self.next) - self.start
    }

    /// Writes `data` behind what was written before: waits until the window has room for all of it, not until it is
    /// written. The bytes are sent from where they are, without a copy. An error may be that of an earlier write; after
    /// one nothing more is sent, and every call gives it. Dropped before it is done it may have taken a part of `data`:
    /// [`Writer::position`] tells how much.
    pub async fn write(&mut self, mut data: Bytes) -> Result<(), Error> {
        self.check()?;
        let result = match self.file.behind.end_in_order(&self.file).await {
            Ok(()) => self.pending.push(&self.file, &mut self.next, &mut data).await,
            earlier => earlier,
        };
        self.note(result)
    }

    /// Leaves out `bytes` bytes, which the file has or need not have: what is written next goes behind them. In
    /// [`Writer::written`] they count as written.
    pub fn skip(&mut self, bytes: u64) {
        self.next += bytes;
    }

    /// Waits until no more than `span` bytes lie between what is known to be written without a gap and
    /// [`Writer::position`]: so much at most an interrupted writer leaves in doubt.
    pub async fn within(&mut self, span: u64) -> Result<(), Error> {
        self.check()?;
        while self.next - self.start - self.written() > span {
            let result = self.pending.wait_for_some(&self.file).await;
            self.note(result)?;
        }
        Ok(())
    }

    /// Waits until all of it is written, and tells how many bytes that are. It may be on the server's disk or not:
    /// [`File::sync`]. Some servers tell only at the clunk that they could not write: [`File::close`].
    pub async fn finish(&mut self) -> Result<u64, Error> {
        self.check()?;
        let result = self.pending.wait_for_all(&self.file).await;
        self.note(result)?;
        Ok(self.written())
    }

    fn check(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The first error stops everything.
    fn note(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            self.pending.clear(&self.file);
        }
        result
    }
}
