//! A part of a file read by several streams at a time, where one connection cannot fill the way: [`File::ranges`] begins,
//! [`Ranges::next`] gives pieces with their places, in the order in which they come.
//!
//! How many there are is decided by what is measured ([`width`]): a connection begins slowly, the more so the longer a round trip is,
//! and after a loss it goes on slowly; another one is opened as long as all of them together bring more than before. Each has a range of
//! its own. Whoever is done takes half of what the one with most has left, and that one stops there.

mod width;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::client::Client;
use super::error::{Error, Fault};
use super::file::File;
use super::stream::Stream;
use width::{Width, interval};

/// The shortest range that is worth a connection of its own: 1 MiB, 80 ms at 100 Mbit/s.
const LEAST: u64 = 1 << 20;

/// Round trips that the rest of a range must take at its rate to be worth being parted. A new connection has its first bytes two of them
/// later, and doubles what it brings from ten segments on (RFC 6928): 0.5 MB in the first seven, while the one that has the range goes on,
/// with the room of all that have ended. What it sends too much before it knows the way is lost to all of them.
const TRIPS: u32 = 20;

/// See the module. Dropping it gives up what is on the way.
pub struct Ranges {
    file: Arc<File>,
    /// What is waited for of each part.
    waiting: FuturesUnordered<BoxFuture<'static, Came>>,
    /// By number; those that are done are `None`.
    parts: Vec<Option<Part>>,
    /// What no stream has begun with, from where to where.
    queue: VecDeque<(u64, u64)>,
    width: Width,
    trip: Duration,
    /// The file's number when the first began.
    modrev: Option<u64>,
    /// Data come in messages, of which nobody tells whether the file was changed meanwhile: because there are no streams, or since one
    /// of them brought nothing.
    is_in_band: bool,
    /// The file was changed since the first stream began.
    is_changed: bool,
    /// Since the last byte came, a stream has come to its end and found the file as it was.
    is_unchanged: bool,
    failed: Option<Error>,
}

/// One range.
#[derive(Debug)]
struct Part {
    /// The place of the next byte.
    next: u64,
    /// Where it ends; what its stream brings behind that is another's.
    end: u64,
    /// Where its stream ends.
    until: u64,
    /// Bytes that came in this [`interval`], and when it began.
    moved: u64,
    since: Instant,
    /// Bytes a second in the interval before: a connection is slow at its beginning, and what its whole life says is too little.
    rate: Option<f64>,
    /// What its requests follow from.
    client: Client,
}

impl Part {
    fn left(&self) -> u64 {
        self.end - self.next
    }

    /// So many bytes of it have come.
    fn came(&mut self, bytes: u64, trip: Duration) {
        self.next += bytes;
        self.moved += bytes;
        let now = Instant::now();
        let took = now - self.since;
        if took >= interval(trip) {
            self.rate = Some(self.moved as f64 / took.as_secs_f64());
            (self.since, self.moved) = (now, 0);
        }
    }

    /// How long the rest takes if nothing changes.
    fn lasts(&self, trip: Duration) -> Duration {
        let silent = self.since.elapsed();
        let rate = match self.rate {
            // One that has come to a standstill.
            _ if silent >= 2 * interval(trip) => self.moved as f64 / silent.as_secs_f64(),
            Some(rate) => rate,
            None => return Duration::MAX,
        };
        Duration::try_from_secs_f64(self.left() as f64 / rate).unwrap_or(Duration::MAX)
    }
}

/// What came of a part.
struct Came {
    part: usize,
    /// Its bytes come in messages, from the beginning or by now.
    is_in_band: bool,
    what: Result<What, Error>,
}

enum What {
    /// Its stream, before the first byte.
    Opened(Stream),
    Data(Stream, Bytes),
    /// That of its stream; the file was found to be what it was, or another, by a server that knows, or one that does not.
    End {
        is_changed: bool,
        is_vouched_for: bool,
    },
}

impl std::fmt::Debug for Ranges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranges").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl File {
    /// By how many streams at a time, of at most `most`, so many bytes should go: one where the server has none.
    pub fn streams_for(&self, bytes: u64, most: usize) -> usize {
        if !self.client.has_streams() {
            return 1;
        }
        let width = Width::new(self.client.attach_took(), most.max(1), Instant::now());
        width.wanted().min(usize::try_from(bytes / LEAST).unwrap_or(usize::MAX)).max(1)
    }

    /// Reads the bytes from `offset` to `end`, which the file should have, by at most `most` streams at a time.
    pub fn ranges(&self, offset: u64, end: u64, most: usize) -> Ranges {
        self.ranges_of(&[(offset, end)], most)
    }

    /// The same of several extents, each from where to where, none of which has a byte of another.
    pub fn ranges_of(&self, extents: &[(u64, u64)], most: usize) -> Ranges {
        let trip = self.client.attach_took();
        let most = if self.client.has_streams() { most.max(1) } else { 1 };
        let mut ranges = Ranges {
            file: Arc::new(self.share()),
            waiting: FuturesUnordered::new(),
            parts: Vec::new(),
            queue: VecDeque::new(),
            width: Width::new(trip, most, Instant::now()),
            trip,
            modrev: None,
            is_in_band: false,
            is_changed: false,
            is_unchanged: false,
            failed: None,
        };
        let all = extents.iter().fold(0u64, |all, (offset, end)| all.saturating_add(end.saturating_sub(*offset)));
        let streams = self.streams_for(all, most);
        for &(offset, end) in extents {
            let length = end.saturating_sub(offset);
            // Each has its share of the streams. A server may say any size.
            let parts = ((u128::from(length) * streams as u128 / u128::from(all.max(1))) as u64).max(1);
            let start = |part: u64| offset + length / parts * part + length % parts * part / parts;
            ranges.queue.extend((0..parts).map(|part| (start(part), start(part + 1))));
        }
        let streams = streams.min(ranges.queue.len());
        // What is asked for together waits for its connections together.
        self.client.prepare_streams(streams);
        for (offset, end) in ranges.queue.drain(..streams).collect::<Vec<_>>() {
            ranges.begin(offset, end);
        }
        ranges
    }
}

impl Ranges {
    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.parts.iter().flatten().count()
    }

    /// Whether every stream so far began at a file of the same number, which tells of changes from then on. It ceases to be so where the
    /// bytes of one of them come in messages.
    pub fn is_watched(&self) -> bool {
        self.modrev.is_some_and(|modrev| modrev != 0) && !self.is_in_band && !self.is_changed
    }

    /// Whether the file is known to have been changed since the first stream began: what came is of several states of it. What is not
    /// [watched](Ranges::is_watched) may have been all the same.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Whether the file had not been changed since the first stream began, when the server had sent the last of it; `false` where that is not
    /// known. It may have sent pages of the file, not copies: what was changed before they left may be in what came (docs/semantics.md).
    pub fn is_unchanged(&self) -> bool {
        self.is_watched() && self.is_unchanged
    }

    /// The next piece, and its place. `None` when all of it came and the end of every stream was that of what was asked for: of those
    /// that were not cut short for another. A file that was changed meanwhile is an error where it has fewer bytes than it had; else
    /// [`Ranges::is_changed`] tells it.
    ///
    /// After an error it gives that error for ever.
    pub async fn next(&mut self) -> Result<Option<(u64, Bytes)>, Error> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        let result = self.advance().await;
        if let Err(e) = &result {
            self.failed = Some(e.clone());
            self.waiting.clear();
            self.queue.clear();
        }
        result
    }

    async fn advance(&mut self) -> Result<Option<(u64, Bytes)>, Error> {
        while let Some(Came { part: number, is_in_band, what }) = self.waiting.next().await {
            self.is_in_band |= is_in_band;
            let (stream, data) = match what? {
                What::Opened(stream) => {
                    // The streams that go beside the messages are compared with each other.
                    if !is_in_band {
                        let modrev = stream.modrev();
                        self.is_changed |= *self.modrev.get_or_insert(modrev) != modrev;
                    }
                    self.wait_for(number, stream);
                    continue;
                }
                What::Data(stream, data) => (stream, data),
                What::End { is_changed, is_vouched_for } => {
                    let ended = self.parts[number].take();
                    // What the file had and has no more.
                    if ended.is_some_and(|part| part.left() > 0) {
                        return Err(Fault::Changed.into());
                    }
                    self.is_changed |= is_changed;
                    self.is_unchanged = is_vouched_for;
                    self.widen();
                    continue;
                }
            };
            let Some(part) = &mut self.parts[number] else { continue };
            let offset = part.next;
            let length = part.left().min(data.len() as u64);
            part.came(length, self.trip);
            self.file.client.join(&part.client);
            // One that was cut short stops there: what it brings behind is not waited for, nor its end.
            if part.next == part.end && part.end < part.until {
                drop(stream);
                self.parts[number] = None;
            } else {
                self.wait_for(number, stream);
            }
            self.width.moved(length);
            self.is_unchanged &= length == 0;
            self.widen();
            if length > 0 {
                return Ok(Some((offset, data.slice(..length as usize))));
            }
        }
        Ok(None)
    }

    fn begin(&mut self, offset: u64, end: u64) {
        let number = self.parts.len();
        let file = self.file.clone();
        // Its requests follow from what was done before it, and not from what the others do meanwhile.
        let client = file.client.fork();
        let (since, moved, rate) = (Instant::now(), 0, None);
        self.parts.push(Some(Part { next: offset, end, until: end, moved, since, rate, client: client.clone() }));
        self.waiting.push(Box::pin(async move {
            let opened = file.stream_read_as(&client, offset, Some(end - offset)).await;
            let is_in_band = opened.as_ref().is_ok_and(Stream::is_in_band);
            Came { part: number, is_in_band, what: opened.map(What::Opened) }
        }));
    }

    fn wait_for(&mut self, part: usize, mut stream: Stream) {
        self.waiting.push(Box::pin(async move {
            let next = stream.next().await;
            let is_in_band = stream.is_in_band();
            let ended = match next {
                Ok(Some(data)) => return Came { part, is_in_band, what: Ok(What::Data(stream, data)) },
                Ok(None) => {
                    let is_vouched_for = stream.is_vouched_for();
                    stream.finish().await.map(|_| is_vouched_for)
                }
                Err(e) => Err(e),
            };
            let what = match ended {
                Ok(is_vouched_for) => Ok(What::End { is_changed: false, is_vouched_for }),
                // All that the file has came by then.
                Err(Error::Stream(Fault::Changed)) => Ok(What::End { is_changed: true, is_vouched_for: true }),
                Err(e) => Err(e),
            };
            Came { part, is_in_band, what }
        }));
    }

    /// Begins with what no stream has begun with, then parts the range that has most left, while more streams are wanted than there are.
    fn widen(&mut self) {
        let wanted = if self.is_in_band { 1 } else { self.width.at(Instant::now()).max(1) };
        while self.streams() < wanted
            && let Some((offset, end)) = self.queue.pop_front()
        {
            self.begin(offset, end);
        }
        if self.is_in_band {
            return;
        }
        for _ in self.streams()..wanted {
            let worth = |part: &&mut Part| part.left() >= 2 * LEAST && part.lasts(self.trip) > self.trip * TRIPS;
            let Some(most) = self.parts.iter_mut().flatten().filter(worth).max_by_key(|part| part.left()) else {
                return;
            };
            let (middle, end) = (most.next + most.left() / 2, most.end);
            most.end = middle;
            self.begin(middle, end);
        }
    }
}
