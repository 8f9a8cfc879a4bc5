//! A part of a file read by several streams at a time, where one connection cannot fill the way: [`File::ranges`] begins,
//! [`Ranges::next`] gives pieces with their places, in the order in which they come.
//!
//! How many there are is decided by what is measured ([`width`]): a connection begins slowly, the more so the longer a round trip is,
//! and after a loss it goes on slowly; another one is opened as long as all of them together bring more than before.
//!
//! Where there are several from the beginning each brings one piece of the file behind another by one connection
//! ([`Track`]), large ones first and small ones at the end, so that all come to their end together. The next piece is asked for before
//! the one before it is there. A lone one has all that there is; others that join it, or are done, take half of what the one with most has
//! left, and that one stops there.
//!
//! The last pieces are copies, made by the server, of what is in the file ([`stream::COPIED`](ninefold_proto::n1::stream::COPIED)). What
//! comes before them are the file's pages, and who changes the file while they are on the way changes what comes. So the file is looked at
//! when all of those are here ([`Ranges::is_settling`]), while the copies come, of which their streams tell to the end whether the file was changed:
//! nothing has to be waited for behind the last byte.

mod width;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::client::Client;
use super::error::{Error, Fault};
use super::file::File;
use super::stream::{Granted, Stream, Track};
use width::interval;
pub(super) use width::{AT_ONCE, Width};

/// The shortest range that is worth a connection of its own: 1 MiB, 80 ms at 100 Mbit/s.
const LEAST: u64 = 1 << 20;

/// Round trips that the rest of a range must take at its rate to be worth being parted. A new connection has its first bytes two of them
/// later, and doubles what it brings from ten segments on (RFC 6928): 0.5 MB in the first seven, while the one that has the range goes on,
/// with the room of all that have ended. What it sends too much before it knows the way is lost to all of them.
const TRIPS: u32 = 20;

/// By what a rate is more than the one before, and not by chance.
const GROWS: f64 = 1.25;

/// The shortest and the longest piece of several, and of what is left in how many pieces each connection should bring it.
const PIECE: std::ops::RangeInclusive<u64> = 512 << 10..=64 << 20;
const SHARE: u64 = 3;

/// Bytes that are worth a stream of a connection that there is.
const EVEN_LEAST: u64 = 128 << 10;

/// Round trips that a piece takes at least on a fast way: the next one is asked for that long before.
const PIECE_TRIPS: u32 = 1;

/// How much of a piece is left when the next one is asked for, in round trips at the rate of its connection: two it takes until that comes.
const AHEAD: u32 = 4;
/// The same of one that still grows, as a multiple of all that it brought: BBR sends up to 2.77 times as much in each round trip as in the
/// one before, so in two of them nearly seven times as much again.
const GROWTH: u64 = 8;
/// Pieces that wait on a connection at most.
const LINE: usize = 4;
/// In what time it ought to come: a token is good for 30 s (docs/protocol.md, "Streams"), and a connection may become slower.
const SOON: Duration = Duration::from_secs(10);

/// Bytes a second of a way of which nothing is known yet.
const FAST: f64 = 125e6;

/// Round trips before the end from which on copies come: one for the look at the file, and one more for those that are late.
const SETTLING: u32 = 2;

/// See the module. Dropping it gives up what is on the way.
pub struct Ranges {
    file: Arc<File>,
    /// What is waited for of each part.
    waiting: FuturesUnordered<BoxFuture<'static, Came>>,
    /// Those that are not done, by number.
    parts: BTreeMap<usize, Part>,
    /// The number of the next one.
    next: usize,
    /// What no stream has begun with, from where to where.
    queue: VecDeque<(u64, u64)>,
    /// It goes in pieces, one behind another on each connection.
    in_pieces: bool,
    /// Of as many bytes each.
    even: Option<u64>,
    /// Only copies are asked for from now on.
    copies: bool,
    /// A stream of copies ended, and could not tell whether the file was changed.
    is_doubtful: bool,
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

/// Bytes of the shortest piece where so many streams bring one behind another.
fn least_piece(trip: Duration, streams: u64) -> u64 {
    let bytes = FAST * (trip * PIECE_TRIPS).as_secs_f64() / streams.max(1) as f64;
    (bytes as u64).clamp(*PIECE.start(), *PIECE.end())
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
    /// That was more than in the one before it, or there was none.
    grows: bool,
    /// Bytes that its connection brought so far.
    young: u64,
    /// When the first of them came.
    first_at: Option<Instant>,
    /// Its first byte has come.
    has_begun: bool,
    /// The file's pages.
    is_lent: bool,
    /// The connection, where others may come behind it.
    track: Option<Arc<Track>>,
    /// That which is behind it on its connection, and that which is before it.
    next_part: Option<usize>,
    before: Option<usize>,
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
        if !std::mem::replace(&mut self.has_begun, true) {
            // It had to wait, for its connection or for the one before it.
            (self.since, self.moved) = (now, 0);
            self.first_at.get_or_insert(now);
        }
        self.young += bytes;
        let took = now - self.since;
        if took >= interval(trip) {
            let rate = self.moved as f64 / took.as_secs_f64();
            // Once it does not it has come to what the way holds.
            self.grows &= self.rate.is_none_or(|before| rate > before * GROWS);
            self.rate = Some(rate);
            (self.since, self.moved) = (now, 0);
        }
    }

    /// Whether so much, of it and what is behind it, is there long before the token of what is asked for now has grown too old. Nobody knows
    /// before a connection has brought bytes for a round trip.
    fn comes_soon(&self, left: u64, trip: Duration) -> bool {
        let Some(took) = self.first_at.map(|first| first.elapsed()).filter(|&took| took >= trip) else { return false };
        let mean = self.young as f64 / took.as_secs_f64();
        left as f64 <= mean.min(self.rate.unwrap_or(mean)) * SOON.as_secs_f64()
    }

    /// Whether so much, of it and what is behind it, is so near its end that the next one is to be asked for.
    fn is_near_its_end(&self, left: u64, trip: Duration) -> bool {
        if self.grows && left <= self.young * GROWTH {
            return true;
        }
        let ahead = (trip * AHEAD).as_secs_f64();
        self.rate.is_some_and(|rate| left as f64 <= rate * ahead)
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

/// What a part comes behind, on the same connection.
struct Behind {
    track: Option<Arc<Track>>,
    /// Its number, if it has not come to its end.
    before: Option<usize>,
    rate: Option<f64>,
    grows: bool,
    young: u64,
    first_at: Option<Instant>,
}

impl From<&Part> for Behind {
    /// One that has come to its end.
    fn from(part: &Part) -> Behind {
        let Part { track, rate, grows, young, first_at, .. } = part;
        let (track, before) = (track.clone(), None);
        Behind { track, before, rate: *rate, grows: *grows, young: *young, first_at: *first_at }
    }
}

impl Default for Behind {
    /// Nothing: it gets a connection of its own.
    fn default() -> Behind {
        Behind { track: None, before: None, rate: None, grows: true, young: 0, first_at: None }
    }
}

/// How a part's stream is had.
enum Opening {
    /// It was asked for with the open of the file.
    Granted(Granted),
    /// On a connection that others have before it, or will have behind it.
    OnTrack {
        behind: Option<Arc<Track>>,
        copied: bool,
    },
    Alone,
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

impl Client {
    /// By how many streams at a time, of at most `most`, so many bytes of a file should go: one where the server has none.
    pub fn streams_for(&self, bytes: u64, most: usize) -> usize {
        if !self.has_streams() {
            return 1;
        }
        let width = Width::new(self.attach_took(), most.max(1), Instant::now());
        width.wanted().min(usize::try_from(bytes / LEAST).unwrap_or(usize::MAX)).max(1)
    }
}

impl File {
    /// See [`Client::streams_for`].
    pub fn streams_for(&self, bytes: u64, most: usize) -> usize {
        self.client.streams_for(bytes, most)
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
            parts: BTreeMap::new(),
            next: 0,
            queue: VecDeque::new(),
            in_pieces: false,
            even: None,
            copies: false,
            is_doubtful: false,
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
        ranges.queue.extend(extents.iter().filter(|(offset, end)| offset < end));
        // By .s nobody is told that another stream comes behind one.
        ranges.in_pieces = streams > 1 && self.client.version().is_n1();
        let mut granted = std::mem::take(&mut *self.granted.lock().unwrap_or_else(PoisonError::into_inner));
        // Those that lie elsewhere, or are too many, are given up.
        granted.truncate(if ranges.in_pieces { streams } else { 0 });
        for one in granted {
            ranges.begin_granted(one);
        }
        // What is come to the end of while all connections still grow is parted evenly.
        let left = ranges.queued();
        if left <= 2 * streams as u64 * least_piece(trip, streams as u64) {
            ranges.even = Some(left.div_ceil(streams as u64).max(EVEN_LEAST));
        }
        // What is asked for together waits for its connections together.
        self.client.prepare_streams(streams - ranges.streams());
        while ranges.streams() < streams
            && let Some((offset, end)) = ranges.take_piece(streams)
        {
            ranges.begin(offset, end, Behind::default());
        }
        ranges
    }
}

impl Ranges {
    /// How many streams there are, those not counted that wait for the one before them.
    pub fn streams(&self) -> usize {
        self.parts.values().filter(|part| part.before.is_none()).count()
    }

    /// Bytes that no stream has begun with.
    fn queued(&self) -> u64 {
        self.queue.iter().fold(0, |left, (from, to)| left.saturating_add(to - from))
    }

    /// The next piece for one of so many streams.
    fn take_piece(&mut self, streams: usize) -> Option<(u64, u64)> {
        let left = self.queued();
        let first = self.queue.front_mut()?;
        let mut length = if self.in_pieces && !self.is_in_band {
            let streams = streams.max(1) as u64;
            let share = (left / (streams * SHARE)).clamp(least_piece(self.trip, streams), *PIECE.end());
            self.even.unwrap_or(share)
        } else {
            u64::MAX
        };
        // No rest that is not worth it.
        if first.1 - first.0 < length.saturating_add(length / 2) {
            length = first.1 - first.0;
        }
        let piece = (first.0, first.0 + length);
        first.0 = piece.1;
        if first.0 == first.1 {
            self.queue.pop_front();
        }
        let rate = self.width.rate().max(FAST);
        self.copies |= self.in_pieces && (left - length) as f64 <= rate * (self.trip * SETTLING).as_secs_f64();
        Some(piece)
    }

    /// Whether all that came, and all that is under way without being a copy, is here: from now on only copies come, whose streams tell
    /// whether the file is changed. Who looks at the file now, and finds it as it was, need not look again at the end
    /// ([`Ranges::is_settled`]).
    pub fn is_settling(&self) -> bool {
        self.copies && self.is_watched() && !self.parts.values().any(|part| part.is_lent)
    }

    /// Behind the end: whether nothing was changed from the moment from which on only copies came.
    pub fn is_settled(&self) -> bool {
        self.is_settling() && !self.is_doubtful
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
            // Their connections, too.
            self.waiting.clear();
            self.parts.clear();
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
                    let ended = self.remove(number);
                    // What the file had and has no more.
                    if ended.as_ref().is_some_and(|part| part.left() > 0) {
                        return Err(Fault::Changed.into());
                    }
                    self.is_changed |= is_changed;
                    self.is_unchanged = is_vouched_for;
                    self.is_doubtful |= ended.as_ref().is_some_and(|part| !part.is_lent) && !is_vouched_for;
                    // Its connection goes on, if there is anything left for it.
                    if let Some(part) = ended.filter(|part| part.next_part.is_none()) {
                        self.follow(Behind::from(&part));
                    }
                    self.widen();
                    continue;
                }
            };
            let Some(part) = self.parts.get_mut(&number) else { continue };
            let offset = part.next;
            let length = part.left().min(data.len() as u64);
            part.came(length, self.trip);
            let track = stream.track();
            let is_elsewhere = match (&part.track, &track) {
                (Some(old), Some(new)) => !Arc::ptr_eq(old, new),
                (Some(_), None) => true,
                (None, _) => false,
            };
            part.track = track;
            self.file.client.join(&part.client);
            // One that was cut short stops there: what it brings behind is not waited for, nor its end.
            let (is_cut, is_lent) = (part.next == part.end && part.end < part.until, part.is_lent);
            if is_elsewhere {
                self.unlink(number);
            }
            if is_cut {
                drop(stream);
                // Nobody tells what became of the file when that came.
                self.is_doubtful |= !is_lent;
                self.remove(number);
            } else {
                self.wait_for(number, stream);
                self.go_on_behind(number);
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

    fn remove(&mut self, number: usize) -> Option<Part> {
        let left = self.unlink(number);
        let mut part = self.parts.remove(&number)?;
        part.next_part = left;
        Some(part)
    }

    /// Takes a part out of the line of its connection: it is done, or has got another one. That which was behind it there.
    fn unlink(&mut self, number: usize) -> Option<usize> {
        let part = self.parts.get_mut(&number)?;
        let (before, next) = (part.before.take(), part.next_part.take());
        if let Some(part) = before.and_then(|before| self.parts.get_mut(&before)) {
            part.next_part = next;
        }
        if let Some(part) = next.and_then(|next| self.parts.get_mut(&next)) {
            part.before = before;
        }
        next
    }

    /// A piece whose stream was asked for with the open of the file, unless it is not what is left next.
    fn begin_granted(&mut self, granted: Granted) {
        let Some(first) = self.queue.front_mut() else { return };
        let end = granted.offset.saturating_add(granted.length);
        if first.0 != granted.offset || first.1 < end {
            return;
        }
        first.0 = end;
        if first.0 == first.1 {
            self.queue.pop_front();
        }
        self.start((granted.offset, end), Behind::default(), Opening::Granted(granted));
    }

    /// By a connection of its own, or behind another part on that one's.
    fn begin(&mut self, offset: u64, end: u64, behind: Behind) {
        let opening = match self.in_pieces && !self.is_in_band {
            true => Opening::OnTrack { behind: behind.track.clone(), copied: self.copies },
            false => Opening::Alone,
        };
        self.start((offset, end), behind, opening);
    }

    fn start(&mut self, (offset, end): (u64, u64), behind: Behind, opening: Opening) {
        let number = self.next;
        self.next += 1;
        let file = self.file.clone();
        // Its requests follow from what was done before it, and not from what the others do meanwhile.
        let client = file.client.fork();
        let Behind { track, before, rate, grows, young, first_at } = behind;
        let part = Part {
            next: offset,
            end,
            until: end,
            moved: 0,
            since: Instant::now(),
            rate,
            grows,
            young,
            first_at,
            has_begun: false,
            is_lent: matches!(opening, Opening::Alone | Opening::OnTrack { copied: false, .. }),
            track,
            next_part: None,
            before,
            client: client.clone(),
        };
        self.parts.insert(number, part);
        self.waiting.push(Box::pin(async move {
            let opened = match opening {
                Opening::Granted(granted) => file.stream_granted(&client, granted).await,
                Opening::OnTrack { behind, copied } => {
                    file.stream_on_track(&client, (offset, end - offset), behind, copied).await
                }
                Opening::Alone => file.stream_read_as(&client, offset, Some(end - offset)).await,
            };
            let is_in_band = opened.as_ref().is_ok_and(Stream::is_in_band);
            Came { part: number, is_in_band, what: opened.map(What::Opened) }
        }));
    }

    /// Asks for another piece where what was asked for on the connection of a part is near its end.
    fn go_on_behind(&mut self, number: usize) {
        let part = |number: usize| self.parts.get(&number);
        let Some(first) = part(number) else { return };
        let (mut last, mut left, mut line) = (number, first.left(), 0);
        while let Some(next) = part(last).and_then(|part| part.next_part) {
            (last, line) = (next, line + 1);
            left += part(next).map_or(0, Part::left);
        }
        let most = if self.even.is_some() { 1 } else { LINE };
        // One that was cut short ends its connection.
        if first.end < first.until || line == most || !first.comes_soon(left, self.trip) {
            return;
        }
        if self.even.is_none() && !first.is_near_its_end(left, self.trip) {
            return;
        }
        let behind = Behind { before: Some(last), ..Behind::from(first) };
        let next = self.next;
        if self.follow(behind)
            && let Some(part) = self.parts.get_mut(&last)
        {
            part.next_part = Some(next);
        }
    }

    /// Begins with a piece on a connection that there is. Whether there was one.
    fn follow(&mut self, behind: Behind) -> bool {
        if self.is_in_band || behind.track.as_ref().is_none_or(|track| track.is_broken()) {
            return false;
        }
        let wanted = self.width.wanted();
        let Some((offset, end)) = self.take_piece(wanted) else { return false };
        self.begin(offset, end, behind);
        true
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
            && let Some((offset, end)) = self.take_piece(wanted)
        {
            self.begin(offset, end, Behind::default());
        }
        if self.is_in_band {
            return;
        }
        for _ in self.streams()..wanted {
            // What is behind another on its connection comes when that has come, and both fail with it.
            // And nobody tells of what came of a copy that is cut short.
            let is_free =
                |part: &Part| part.is_lent && part.next_part.is_none() && (part.has_begun || part.before.is_none());
            let worth = |part: &&mut Part| {
                is_free(part) && part.left() >= 2 * LEAST && part.lasts(self.trip) > self.trip * TRIPS
            };
            let Some(most) = self.parts.values_mut().filter(worth).max_by_key(|part| part.left()) else {
                return;
            };
            let (middle, end) = (most.next + most.left() / 2, most.end);
            most.end = middle;
            self.begin(middle, end, Behind::default());
        }
    }
}
