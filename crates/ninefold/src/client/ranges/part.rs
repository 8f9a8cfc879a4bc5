//! One range of a file, and the stream by which it comes.

use bytes::Bytes;
use futures_util::future::AbortHandle;

use crate::client::client::Client;
use crate::client::error::Error;
use crate::client::stream::Stream;

/// One range.
#[derive(Debug)]
pub(super) struct Part {
    /// The place of the next byte.
    pub next: u64,
    /// Where it ends; what its stream brings behind that is another's.
    pub end: u64,
    /// Where its stream ends.
    pub until: u64,
    /// Its first byte has come.
    pub has_begun: bool,
    /// Up to there the file's pages come, and behind that copies.
    pub lent_to: u64,
    /// Its connection.
    pub line: usize,
    /// What its requests follow from.
    pub client: Client,
    /// Gives it up.
    pub waiting: AbortHandle,
}

impl Part {
    pub fn left(&self) -> u64 {
        self.end - self.next
    }

    /// The same of pages.
    pub fn pages_left(&self) -> u64 {
        self.lent_to.min(self.end).saturating_sub(self.next)
    }

    /// Copies came.
    pub fn brought_copies(&self) -> bool {
        self.next > self.lent_to
    }
}

/// A part's stream. Dropped before its end the server is told: where a connection stands still it would learn of that minutes later.
pub(super) struct Held(Option<Stream>);

impl Held {
    pub fn new(stream: Stream) -> Held {
        Held(Some(stream))
    }

    pub fn stream(&self) -> Option<&Stream> {
        self.0.as_ref()
    }

    /// See [`Stream::next`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        match &mut self.0 {
            Some(stream) => stream.next().await,
            None => Ok(None),
        }
    }

    /// Its end, and whether that was said by who knows whether the file was changed.
    pub async fn finish(mut self) -> Result<bool, Error> {
        let Some(stream) = self.0.take() else { return Ok(false) };
        let is_vouched_for = stream.is_vouched_for();
        stream.finish().await.map(|_| is_vouched_for)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            stream.give_up();
        }
    }
}
