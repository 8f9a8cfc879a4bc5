//! One range of a file, and the stream by which it comes.

use bytes::Bytes;
use futures_util::future::AbortHandle;

use crate::client::client::Client;
use crate::client::error::Error;
use crate::client::stream::Stream;

/// Bytes of a file that one stream brings: those that have not come. Pure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// The place of the next byte.
    pub next: u64,
    /// Where it ends; what its stream brings behind that is another's.
    pub end: u64,
    /// Where its stream ends.
    pub until: u64,
    /// Up to there the file's pages come, and behind that copies; which may begin a little before, as the server knows them by whole units.
    pub lent_to: u64,
}

impl Span {
    pub fn new((from, end): (u64, u64), lent_to: u64) -> Span {
        Span { next: from, end, until: end, lent_to }
    }

    /// Bytes that are still to come.
    pub fn left(&self) -> u64 {
        self.end - self.next
    }

    /// Those of them that are the file's pages.
    pub fn pages_left(&self) -> u64 {
        self.lent_to.min(self.end).saturating_sub(self.next)
    }

    /// Copies came.
    pub fn brought_copies(&self) -> bool {
        self.next > self.lent_to
    }

    /// What was to come by the stream and is another's, by now, has all come.
    pub fn is_cut_and_over(&self) -> bool {
        self.next == self.end && self.end < self.until
    }

    /// Leaves about half of what is to come to another stream, all of the copies among it: nobody tells of what came of a copy that is cut short.
    pub fn part(&mut self) -> Span {
        let (middle, end) = (self.next + (self.left() / 2).min(self.pages_left()), self.end);
        self.end = middle;
        Span::new((middle, end), self.lent_to.min(end))
    }
}

/// One range.
#[derive(Debug)]
pub(super) struct Part {
    pub span: Span,
    /// Its first byte has come.
    pub has_begun: bool,
    /// The server has granted its stream.
    pub is_had: bool,
    /// Its connection.
    pub line: usize,
    /// What its requests follow from.
    pub client: Client,
    /// Gives it up.
    pub waiting: AbortHandle,
}

impl Part {
    /// See [`Span::left`].
    pub fn left(&self) -> u64 {
        self.span.left()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_up_to_where_copies_begin_or_the_end_is() {
        let span = |next, end, lent_to| Span { next, ..Span::new((0, end), lent_to) };
        let told = |span: Span| (span.left(), span.pages_left(), span.brought_copies());
        assert_eq!(told(span(0, 100, 60)), (100, 60, false));
        assert_eq!(told(span(60, 100, 60)), (40, 0, false), "all pages are here, and nothing else");
        assert_eq!(told(span(61, 100, 60)), (39, 0, true));
        assert_eq!(told(span(10, 40, 60)), (30, 30, false), "it was cut among its pages");
        assert_eq!(told(span(40, 40, 60)), (0, 0, false));
        // All of it pages, and all copies.
        assert_eq!(told(span(100, 100, 100)), (0, 0, false));
        assert_eq!((told(span(0, 100, 0)), told(span(1, 100, 0))), ((100, 0, false), (99, 0, true)));
    }

    #[test]
    fn what_is_parted_goes_to_another_with_all_of_its_copies() {
        for lent_to in (10..=100).step_by(5) {
            let mut span = Span { next: 10, ..Span::new((0, 100), lent_to) };
            let other = span.part();
            assert_eq!((span.next, span.until, span.lent_to), (10, 100, lent_to));
            assert_eq!((span.end, other.next), (other.next, 55.min(lent_to)));
            assert_eq!((other.end, other.until, other.lent_to), (100, 100, lent_to));
            assert!(!Span { next: span.end, ..span }.brought_copies() && span.left() == span.pages_left());
            assert!(Span { next: span.end, ..span }.is_cut_and_over());
        }
    }
}
