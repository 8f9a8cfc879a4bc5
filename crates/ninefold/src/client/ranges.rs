//! A part of a file read by several streams at a time, where one connection cannot fill the way: [`File::ranges`] begins,
//! [`Ranges::next`] gives pieces with their places, in the order in which they come.
//!
//! How many there are is decided by what is measured ([`width`]): a connection begins slowly, the more so the longer a round trip is,
//! and after a loss it goes on slowly; another one is opened as long as all of them together bring more than before.
//!
//! Where there are several from the beginning each brings one piece of the file behind another by one connection
//! ([`Track`]), large ones first and small ones at the end ([`round`]), so that all come to their end together. The next piece is asked for before
//! the one before it is there, on all connections at once. A lone one has all that there is; others that join it, or are done, take half of what the
//! one with most has left, and that one stops there.
//!
//! What is bound to a connection that is far slower than the others, or stands still, is taken back from it ([`takeover`]): it is given up, and
//! what had not come of its parts others bring.
//!
//! What comes last on each connection are copies, made by the server, of what is in the file ([`stream::COPIED`](ninefold_proto::n1::stream::COPIED)). What
//! comes before them are the file's pages, and who changes the file while they are on the way changes what comes. So the file is looked at
//! when all of those are here ([`Ranges::is_settling`]), while the copies come, of which their streams tell to the end whether the file was changed:
//! little or nothing has to be waited for behind the last byte.

mod line;
mod part;
mod round;
mod takeover;
mod width;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::client::Client;
use super::error::{Error, Fault};
use super::file::File;
use super::metadata::Metadata;
use super::stream::{Granted, Grants, Stream, Track};
use crate::transport::tcp_finds_the_rate;
use line::{Ends, Line};
use part::{Held, Part, Span};
use round::{Cut, Rest, Round, worth};
use takeover::{slowest, window};
pub(super) use width::{AT_ONCE, Width};

/// The shortest range that is worth a connection of its own: 1 MiB, 80 ms at 100 Mbit/s.
const LEAST: u64 = 1 << 20;

/// Round trips that the rest of a range must take at its rate to be worth being parted. A new connection has its first bytes two of them
/// later, and doubles what it brings from ten segments on (RFC 6928): 0.5 MB in the first seven, while the one that has the range goes on,
/// with the room of all that have ended. What it sends too much before it knows the way is lost to all of them.
const TRIPS: u32 = 20;

/// Round trips that what is left must take for the question what one takes by now: three of them, each of which wakes a server that has other things in its caches, and what more
/// connections bring comes some ten behind that. 100 MB at 15 ms, which are 53, came as soon without it (1 Gbit/s, where more of them bring nothing); on a way with loss what is left
/// takes many more, as its rate is what it is.
const TRIPS_TO_ASK: u32 = 60;

/// The shortest and the longest piece of several.
const PIECE: std::ops::RangeInclusive<u64> = 512 << 10..=64 << 20;

/// Bytes that are worth a stream of a connection that there is.
const EVEN_LEAST: u64 = 128 << 10;

/// Round trips that a piece takes at least on a fast way: the next one is asked for that long before.
const PIECE_TRIPS: u32 = 1;

/// Round trips that are asked for one after another where it is not known what one takes by now.
const TRIPS_ASKED: usize = 3;

/// Pieces that wait on a connection at most.
const LINE: usize = 4;

/// Bytes a second of a way of which nothing is known yet.
const FAST: f64 = 125e6;

/// Round trips that writing takes from which on one stream is as fast as several. Of 1 Gbit/s (BBR) four take at 15 ms 0.92 of a stream's time for 10 MB, which
/// are 5, 0.98 for 15 MB, 1.12 for 20 and 1.07 for 35; at 12 ms 1.03 for 15 MB, which are 10.
const LONG_TRIPS: f64 = 10.0;

/// Bytes of a way that one connection fills as Linux makes it: of the 4 MiB that it has to send at most (tcp(7), tcp_wmem) a third stays free, and of the rest
/// BBR needs a quarter more than the way holds.
const HELD: f64 = (2 << 20) as f64;

/// Round trips before the end from which on copies come: one for the look at the file, and a part of one for those that are late. A copy costs the server two to four
/// times what pages do.
const SETTLING: f64 = 1.1;

/// Round trips between two looks for connections on which another piece is to be asked for: those of all are asked for together, which costs both ends little more than one.
/// They are asked for some round trips ahead, so that as much later is no matter.
const MOMENT: f64 = 0.25;

/// How often connections are given up for being slow, for each that there may be, and once more for each of the longest pieces that came: the
/// way may be one on which all become so, one after another.
const TAKEOVERS: usize = 2;

/// How long a connection that tells whether the way lives may take; then another is asked for.
const SPARE: Duration = Duration::from_secs(4);

/// See the module. Dropping it gives up what is on the way.
pub struct Ranges {
    file: Arc<File>,
    /// What is waited for of each part; nothing where it was given up.
    waiting: FuturesUnordered<BoxFuture<'static, Option<Came>>>,
    /// Those that are not done, by number.
    parts: BTreeMap<usize, Part>,
    /// Their connections, by number. Each has a part.
    lines: BTreeMap<usize, Line>,
    /// Those that are done, until all are, or another one is asked for.
    done: Vec<Arc<Track>>,
    /// The number of the next part, or line.
    next: usize,
    /// What no stream has begun with, from where to where.
    queue: VecDeque<(u64, u64)>,
    /// One stream may come behind another on each connection.
    on_tracks: bool,
    /// They do: it goes in pieces.
    in_pieces: bool,
    /// Of as many bytes each.
    even: Option<u64>,
    round: Round,
    /// When pieces were asked for last on all connections that were near their end.
    went_on_at: Option<Instant>,
    /// Bytes that are copied at most at the ends of pieces that begin with pages.
    most_copied: u64,
    /// Only copies are asked for from now on.
    copies: bool,
    /// A stream of copies ended, and could not tell whether the file was changed.
    is_doubtful: bool,
    width: Width,
    /// What a round trip takes by now, when that was asked for.
    asked: Option<AbortOnDropHandle<Option<Duration>>>,
    most: usize,
    trip: Duration,
    /// When the connections are compared next, unless nobody waits for bytes meanwhile: since then none is waited for.
    due: Instant,
    left_at: Option<Instant>,
    /// Connections that were given up for being slow, and whether one was that had none beside it.
    taken_over: usize,
    was_alone: bool,
    /// When a connection was asked for to see whether the way lives.
    spare_asked: Option<Instant>,
    /// Bytes that came.
    moved: u64,
    /// There were several connections.
    had_several: bool,
    /// The most connections that there were at a time.
    widest: usize,
    /// One of them brought all that it had.
    has_ended: bool,
    /// The file's number when the first began.
    modrev: Option<u64>,
    /// The file as it was when the streams had begun that bring all of it.
    looked: Option<Box<Metadata>>,
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

/// Waits until then, and for what has come by then, but for what a connection still [gathers](super::stream): of one that stands still that is told well within
/// half of a window.
async fn passed(due: Instant) {
    tokio::time::sleep_until(due).await;
    // The runtime looks at sockets meanwhile.
    tokio::task::yield_now().await;
}

/// What was asked for, when it is told; `None` where nothing was.
async fn told(asked: &mut Option<AbortOnDropHandle<Option<Duration>>>) -> Option<Option<Duration>> {
    Some(asked.as_mut()?.await.ok().flatten())
}

/// What one stream is asked for: from where to where, and how much at its end is to be copies.
struct Piece {
    from: u64,
    to: u64,
    copies: u64,
}

/// How a part's stream is had.
enum Opening {
    /// It was asked for with the open of the file.
    Granted(Granted),
    /// On a connection that others have before it, or will have behind it.
    OnTrack {
        behind: Option<Arc<Track>>,
        copies: u64,
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
    Opened(Held),
    Data(Held, Bytes),
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
        let width = Width::new(self.trip(), most.max(1), Instant::now());
        width.wanted().min(usize::try_from(bytes / LEAST).unwrap_or(usize::MAX)).max(1)
    }

    /// The same of a file that is written, of which each stream brings a part that is set at the beginning: so the file is whole when the slowest one is
    /// done, and what takes many round trips has more of that than it saves at its beginning. Then one is enough where the way holds no more than
    /// one connection has under way, and this machine's congestion control finds its rate whatever is lost on it; where it does not several lose less.
    pub fn streams_to_write(&self, bytes: u64, most: usize) -> usize {
        let streams = self.streams_for(bytes, most);
        let held = FAST * self.trip().as_secs_f64();
        let is_long = held <= HELD && bytes as f64 >= held * LONG_TRIPS;
        if streams > 1 && is_long && tcp_finds_the_rate() { 1 } else { streams }
    }

    /// What a round trip takes, as far as that is known.
    fn trip(&self) -> Duration {
        self.root.known().map_or_else(|| self.handle().dialer().trip(), |attached| attached.took)
    }
}

impl File {
    /// See [`Client::streams_for`]. At least by those that were asked for with its open ([`BeginRead::streams`](super::BeginRead::streams)), which are shares of a short
    /// file.
    pub fn streams_for(&self, bytes: u64, most: usize) -> usize {
        self.client.streams_for(bytes, most).max(self.granted().min(most))
    }

    /// Reads the bytes from `offset` to `end`, which the file should have, by at most `most` streams at a time.
    pub fn ranges(&self, offset: u64, end: u64, most: usize) -> Ranges {
        self.ranges_of(&[(offset, end)], most)
    }

    /// The same of several extents, each from where to where, none of which has a byte of another.
    pub fn ranges_of(&self, extents: &[(u64, u64)], most: usize) -> Ranges {
        let trip = self.client.attach_took();
        let now = Instant::now();
        let most = if self.client.has_streams() { most.max(1) } else { 1 };
        let mut ranges = Ranges {
            file: Arc::new(self.share()),
            waiting: FuturesUnordered::new(),
            parts: BTreeMap::new(),
            lines: BTreeMap::new(),
            done: Vec::new(),
            next: 0,
            queue: VecDeque::new(),
            on_tracks: false,
            in_pieces: false,
            even: None,
            round: Round::default(),
            went_on_at: None,
            most_copied: 0,
            copies: false,
            is_doubtful: false,
            width: Width::new(trip, most, now),
            asked: None,
            most,
            trip,
            due: now + window(trip) / 2,
            left_at: None,
            taken_over: 0,
            spare_asked: None,
            moved: 0,
            was_alone: false,
            had_several: false,
            widest: 0,
            has_ended: false,
            modrev: None,
            looked: None,
            is_in_band: false,
            is_changed: false,
            is_unchanged: false,
            failed: None,
        };
        let all = extents.iter().fold(0u64, |all, (offset, end)| all.saturating_add(end.saturating_sub(*offset)));
        ranges.most_copied = round::most_copied(all);
        ranges.queue.extend(extents.iter().filter(|(offset, end)| offset < end));
        let Grants { streams: granted, looked } = self.take_grants();
        // Those that lie elsewhere, or are too many, are given up.
        for one in granted.into_iter().take(most) {
            ranges.begin_granted(one);
        }
        let are_copies = ranges.parts.values().all(|part| part.span.pages_left() == 0);
        ranges.looked = looked.filter(|_| ranges.queue.is_empty() && are_copies);
        let streams = self.client.streams_for(all, most).max(ranges.streams());
        // By .s nobody is told that another stream comes behind one.
        ranges.on_tracks = self.client.version().is_n1();
        ranges.in_pieces = streams > 1 && ranges.on_tracks;
        // What is come to the end of while all connections still grow is parted evenly.
        let left = ranges.queued();
        if left <= 2 * streams as u64 * least_piece(trip, streams as u64) {
            ranges.even = Some(left.div_ceil(streams as u64).max(EVEN_LEAST));
        }
        // What is asked for together waits for its connections together.
        self.client.prepare_streams(streams - ranges.streams());
        while ranges.streams() < streams
            && let Some(piece) = ranges.take_piece(streams)
        {
            ranges.begin(piece, None);
        }
        ranges
    }
}

impl Ranges {
    /// How many streams there are, those not counted that wait for the one before them.
    pub fn streams(&self) -> usize {
        self.lines.len()
    }

    /// Those of them that go on behind what they have.
    fn staying(&self) -> usize {
        self.lines.values().filter(|line| !line.leaves).count()
    }

    /// Bytes that no stream has begun with.
    fn queued(&self) -> u64 {
        self.queue.iter().fold(0, |left, (from, to)| left.saturating_add(to - from))
    }

    /// The next piece for one of so many streams.
    fn take_piece(&mut self, streams: usize) -> Option<Piece> {
        let (all, are_several) = (self.queued(), self.queue.len() > 1);
        let settling = (self.width.rate().max(FAST) * self.trip.as_secs_f64() * SETTLING) as u64;
        let first = self.queue.front_mut()?;
        let mut cut = Cut { length: first.1 - first.0, copies: 0 };
        if self.in_pieces && !self.is_in_band {
            let streams = streams.max(1) as u64;
            let least = least_piece(self.trip, streams);
            let most = self.width.trial().map_or(*PIECE.end(), |trial| trial.clamp(least, *PIECE.end()));
            if let Some(even) = self.even {
                cut.length = worth(even, cut.length);
                // They end together, and no look at the file would come before that.
                cut.copies = cut.length;
            } else {
                let rest = Rest { all, first: cut.length, settling, most_copied: self.most_copied };
                cut = self.round.cut(rest, self.copies, streams, (least, most));
            }
        } else if self.on_tracks && !self.is_in_band {
            cut.copies = match self.copies {
                true => cut.length,
                false if are_several => 0,
                false => settling.min(self.most_copied).min(cut.length),
            };
        }
        let piece = Piece { from: first.0, to: first.0 + cut.length, copies: cut.copies };
        first.0 = piece.to;
        if first.0 == first.1 {
            self.queue.pop_front();
        }
        // From now on all that is put back is copied too: a look at the file may be under way.
        self.copies |= cut.copies > 0 && self.queue.is_empty();
        Some(piece)
    }

    /// Whether all that came, and all that is under way without being a copy, is here: from now on only copies come, whose streams tell
    /// whether the file is changed. Who looks at the file now, and finds it as it was, need not look again at the end
    /// ([`Ranges::is_settled`]).
    pub fn is_settling(&self) -> bool {
        self.copies && self.is_watched() && self.parts.values().all(|part| part.span.pages_left() == 0)
    }

    /// What the look at the file would tell that is due when it [settles](Ranges::is_settling), where it came with the streams themselves: all of it was asked for, as copies,
    /// with the file's open, and looked at behind that.
    pub fn take_look(&mut self) -> Option<Metadata> {
        self.looked.take().map(|looked| *looked)
    }

    /// Behind the end: whether nothing was changed from the moment from which on only copies came.
    pub fn is_settled(&self) -> bool {
        self.is_settling() && !self.is_doubtful
    }

    /// Whether every stream so far began at a file of the same number, which tells of changes from then on. It ceases to be so where the
    /// bytes of one of them come in messages, and behind an error.
    pub fn is_watched(&self) -> bool {
        self.modrev.is_some_and(|modrev| modrev != 0) && !self.is_in_band && !self.is_changed && self.failed.is_none()
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
        // Of what came while nobody asked nothing is known.
        if let Some(left_at) = self.left_at.take() {
            self.due += left_at.elapsed();
        }
        let result = self.advance().await;
        self.left_at = Some(Instant::now());
        if let Err(e) = &result {
            self.failed = Some(e.clone());
            // Their connections, too.
            self.waiting.clear();
            self.parts.clear();
            self.lines.clear();
            self.done.clear();
            self.queue.clear();
            self.looked = None;
        }
        result
    }

    async fn advance(&mut self) -> Result<Option<(u64, Bytes)>, Error> {
        loop {
            let due = self.due;
            let came = tokio::select! {
                biased;
                Some(took) = told(&mut self.asked) => {
                    self.asked = None;
                    // Where nobody says the way is not known to have room.
                    self.width.trip_is(took.unwrap_or(Duration::MAX));
                    self.widen();
                    continue;
                }
                came = self.waiting.next() => came,
                () = passed(due) => {
                    self.judge(Instant::now());
                    continue;
                }
            };
            let Some(came) = came else {
                self.done.clear();
                return Ok(None);
            };
            // One that was given up has nothing to say.
            let Some(Came { part: number, is_in_band, what }) = came else { continue };
            if !self.parts.contains_key(&number) {
                continue;
            }
            self.is_in_band |= is_in_band;
            match what? {
                What::Opened(stream) => {
                    // The streams that go beside the messages are compared with each other.
                    if let Some(stream) = stream.stream().filter(|_| !is_in_band) {
                        let modrev = stream.modrev();
                        self.is_changed |= *self.modrev.get_or_insert(modrev) != modrev;
                    }
                    if let Some(part) = self.parts.get_mut(&number) {
                        part.is_had = true;
                    }
                    self.wait_for(number, stream);
                }
                What::Data(stream, data) => {
                    if let Some(piece) = self.came(number, stream, data) {
                        return Ok(Some(piece));
                    }
                }
                What::End { is_changed, is_vouched_for } => {
                    let Some(ended) = self.remove(number) else { continue };
                    // What the file had and has no more.
                    if ended.left() > 0 {
                        return Err(Fault::Changed.into());
                    }
                    self.is_changed |= is_changed;
                    self.is_unchanged = is_vouched_for;
                    self.is_doubtful |= ended.span.brought_copies() && !is_vouched_for;
                    // Its connection goes on, if there is anything left for it.
                    if self.lines.get(&ended.line).is_some_and(|line| line.parts.is_empty()) {
                        self.follow(ended.line);
                    }
                    // One that is done is closed with the others that are, so that the server is woken for their ends once.
                    let done = self.part_with(ended.line);
                    self.has_ended |= done.is_some();
                    self.done.extend(done.and_then(|line| line.track));
                    self.widen();
                }
            }
        }
    }

    /// Bytes of a part, and their place, if they are not another's.
    fn came(&mut self, number: usize, stream: Held, data: Bytes) -> Option<(u64, Bytes)> {
        let now = Instant::now();
        let track = stream.stream().and_then(Stream::track);
        let old = self.parts.get(&number)?.line;
        let is_elsewhere = match (self.lines.get(&old).and_then(|line| line.track.as_ref()), &track) {
            (Some(old), Some(new)) => !Arc::ptr_eq(old, new),
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_elsewhere {
            self.move_to_new_line(number, track, now);
        } else if let Some(line) = self.lines.get_mut(&old) {
            line.track = track;
        }
        let part = self.parts.get_mut(&number)?;
        let offset = part.span.next;
        let length = part.left().min(data.len() as u64);
        part.span.next += length;
        let begins = !std::mem::replace(&mut part.has_begun, true);
        // One that was cut short stops there: what it brings behind is not waited for, nor its end.
        let (span, line) = (part.span, part.line);
        self.file.client.join(&part.client);
        if let Some(line) = self.lines.get_mut(&line) {
            line.came(length, begins || is_elsewhere, self.trip, now);
        }
        if span.is_cut_and_over() {
            drop(stream);
            // Nobody tells what became of the file when that came.
            self.is_doubtful |= span.brought_copies();
            self.remove(number);
            self.part_with(line);
        } else {
            self.wait_for(number, stream);
            self.go_on();
        }
        self.width.moved(length);
        self.moved += length;
        self.is_unchanged &= length == 0;
        self.widen();
        (length > 0).then(|| (offset, data.slice(..length as usize)))
    }

    /// Takes a part out of the line of its connection: it is done, or goes another way.
    fn remove(&mut self, number: usize) -> Option<Part> {
        let part = self.parts.remove(&number)?;
        if let Some(line) = self.lines.get_mut(&part.line) {
            line.parts.retain(|one| *one != number);
        }
        Some(part)
    }

    /// Parts with a connection by which nothing is to come any more.
    fn part_with(&mut self, line: usize) -> Option<Line> {
        let is_empty = self.lines.get(&line).is_some_and(|line| line.parts.is_empty());
        if is_empty { self.lines.remove(&line) } else { None }
    }

    /// A part got another connection than it was to have.
    fn move_to_new_line(&mut self, number: usize, track: Option<Arc<Track>>, now: Instant) {
        let Some(part) = self.remove(number) else { return };
        self.part_with(part.line);
        let line = self.new_line(track, now);
        self.enter(number, Part { line, ..part });
    }

    fn new_line(&mut self, track: Option<Arc<Track>>, now: Instant) -> usize {
        // So there are never more of both than there may be.
        self.done.clear();
        let number = self.next;
        self.next += 1;
        self.lines.insert(number, Line::new(track, now));
        self.widest = self.widest.max(self.lines.len());
        self.had_several |= self.lines.len() > 1;
        number
    }

    /// Behind those that its connection has.
    fn enter(&mut self, number: usize, part: Part) {
        if let Some(line) = self.lines.get_mut(&part.line) {
            line.parts.push_back(number);
        }
        self.parts.insert(number, part);
    }

    /// Compares the connections, and gives up one that is far slower than the others, or stands still.
    fn judge(&mut self, now: Instant) {
        self.due = now + window(self.trip) / 2;
        let (parts, others_have) = (&self.parts, self.moved > 0);
        let left = |line: &Line| line.parts.iter().filter_map(|part| parts.get(part)).map(Part::left).sum::<u64>();
        let is_had = |line: &Line| {
            let coming = line.parts.iter().filter_map(|part| parts.get(part)).find(|part| part.left() > 0);
            coming.is_none_or(|part| part.is_had)
        };
        let tick = |line: &mut Line| line.tick(left(line), is_had(line), others_have);
        let seen: Vec<_> = self.lines.iter_mut().map(|(&number, line)| (number, tick(line))).collect();
        // Where it goes in messages there is one connection for all.
        let most = self.most * TAKEOVERS + usize::try_from(self.moved / *PIECE.end()).unwrap_or(usize::MAX);
        if self.is_in_band || self.taken_over >= most {
            return;
        }
        let way = takeover::Way {
            trip: self.trip,
            best: self.width.rate_so_far(now),
            queued: self.queued(),
            judges_alone: self.had_several && !self.was_alone,
            // In .s nobody tells whether the way lives.
            have_ended: self.has_ended && self.file.client.version().is_n1(),
        };
        let lines: Vec<_> = seen.iter().map(|(_, seen)| *seen).collect();
        if let Some(&(line, slow)) = slowest(&lines, &way).and_then(|at| seen.get(at)) {
            let is_other = |one: &(usize, takeover::Seen)| one.0 != line && one.1.left > 0;
            let is_alone = !seen.iter().any(|one| is_other(one) && !one.1.stands_still());
            // Where another has just come to its end the way is known to live.
            let is_last = is_alone && !seen.iter().any(|one| one.0 != line && one.1.moves());
            if is_last && !self.way_lives(now) {
                return;
            }
            tracing::debug!(?slow, others = lines.len() - 1, "a connection is given up, as others are faster");
            self.was_alone |= is_last;
            // Of those that stand still beside it nobody would be left to judge.
            for (number, _) in seen.iter().filter(|one| one.0 == line || is_alone && is_other(one)) {
                self.taken_over += 1;
                self.take_back(*number);
            }
            self.widen();
        }
    }

    /// Whether all of the way stands still another connection tells, which is asked for now: one that comes. In `.s` nobody knows, as its
    /// streams have ports of their own.
    fn way_lives(&mut self, now: Instant) -> bool {
        let client = &self.file.client;
        if !client.version().is_n1() {
            return true;
        }
        match self.spare_asked.filter(|asked| now.saturating_duration_since(*asked) < SPARE) {
            Some(asked) => client.has_spare_stream(asked),
            None => {
                self.spare_asked = Some(now);
                client.prepare_another_stream();
                false
            }
        }
    }

    /// Gives up a connection: what has not come by it others bring.
    fn take_back(&mut self, number: usize) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        line.track = None;
        let mut done = Vec::new();
        // The first of them will be the first that is taken.
        for number in std::mem::take(&mut line.parts).into_iter().rev() {
            let Some(part) = self.parts.remove(&number) else { continue };
            // All of it is here, and so is its end, or the server is asked for that.
            if part.left() == 0 {
                done.push((number, part));
                continue;
            }
            part.waiting.abort();
            // Nobody tells what became of the file when that came.
            self.is_doubtful |= part.span.brought_copies();
            self.put_back(part.span.next, part.span.end);
        }
        for (number, part) in done.into_iter().rev() {
            self.enter(number, part);
        }
        self.part_with(number);
    }

    /// What others are to bring, before anything else.
    fn put_back(&mut self, from: u64, to: u64) {
        match self.queue.front_mut().filter(|first| first.0 == to) {
            Some(first) => first.0 = from,
            None => self.queue.push_front((from, to)),
        }
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
        // Should it be asked for again, it began at another state of the file than what was looked at.
        let modrev = granted.grant.modrev;
        self.is_changed |= *self.modrev.get_or_insert(modrev) != modrev;
        // As in all that is [taken](Self::take_piece).
        self.copies |= !granted.is_lent && self.queue.is_empty();
        self.start((granted.offset, end), None, Opening::Granted(granted));
    }

    /// By a connection of its own, or behind the parts of one that there is.
    fn begin(&mut self, piece: Piece, line: Option<usize>) {
        let behind = line.and_then(|line| self.lines.get(&line)).and_then(|line| line.track.clone());
        let opening = match self.on_tracks && !self.is_in_band {
            true => Opening::OnTrack { behind, copies: piece.copies },
            false => Opening::Alone,
        };
        self.start((piece.from, piece.to), line, opening);
    }

    fn start(&mut self, (offset, end): (u64, u64), line: Option<usize>, opening: Opening) {
        let line = line.unwrap_or_else(|| self.new_line(None, Instant::now()));
        let number = self.next;
        self.next += 1;
        let file = self.file.clone();
        // Its requests follow from what was done before it, and not from what the others do meanwhile.
        let client = file.client.fork();
        let lent_to = match &opening {
            Opening::Granted(granted) if !granted.is_lent => offset,
            Opening::OnTrack { copies, .. } => end - copies,
            Opening::Granted(_) | Opening::Alone => end,
        };
        let is_had = matches!(opening, Opening::Granted(_));
        let (waiting, _) = AbortHandle::new_pair();
        let part = Part {
            span: Span::new((offset, end), lent_to),
            has_begun: false,
            is_had,
            line,
            client: client.clone(),
            waiting,
        };
        self.enter(number, part);
        self.wait(number, async move {
            let opened = match opening {
                Opening::Granted(granted) => file.stream_granted(&client, granted).await,
                Opening::OnTrack { behind, copies } => {
                    file.stream_on_track(&client, (offset, end - offset), behind, copies).await
                }
                Opening::Alone => file.stream_read_as(&client, offset, Some(end - offset)).await,
            };
            let is_in_band = opened.as_ref().is_ok_and(Stream::is_in_band);
            let what = opened.map(|stream| What::Opened(Held::new(stream)));
            Came { part: number, is_in_band, what }
        });
    }

    /// Asks for another piece on each connection of which what was asked for is near its end, beginning with the one that is nearest; and on those that will be soon, where any is.
    fn go_on(&mut self) {
        let now = Instant::now();
        if self.queue.is_empty() || self.went_on_at.is_some_and(|at| now < at + self.trip.mul_f64(MOMENT)) {
            return;
        }
        let ends = self.lines.iter().filter_map(|(&number, line)| self.ends_soon(number, line, now)).collect();
        let asked = line::asked_now(ends, || self.may_be_earlier());
        let queued = self.queued();
        for line in asked {
            self.follow(line);
        }
        if self.queued() < queued {
            self.went_on_at = Some(now);
        }
    }

    /// Whether a connection that is asked too early is no matter: what no stream has begun with lasts long enough for who is faster to bring his share of it meanwhile. Those
    /// that are tried, and may turn out to be too many, are not bound to more.
    fn may_be_earlier(&self) -> bool {
        self.width.trial().is_none()
            && !self.width.ends_within(self.queued(), self.trip * line::AHEAD * (line::EARLIER - 1))
    }

    /// How soon what was asked for on a connection ends, if that is so soon that another piece is to be asked for, or will be within a few times as long.
    fn ends_soon(&self, line_number: usize, line: &Line, now: Instant) -> Option<Ends> {
        let part = |number: &usize| self.parts.get(number);
        // They come one behind another.
        let coming = line.parts.iter().rposition(|number| part(number).is_some_and(|part| part.has_begun))?;
        // One that was cut short ends its connection.
        let is_cut = line.parts.get(coming).and_then(part).is_some_and(|part| part.span.end < part.span.until);
        let behind = line.parts.len() - 1 - coming;
        let left = line.parts.iter().filter_map(part).map(Part::left).sum();
        let most = if self.even.is_some() || self.width.trial().is_some() { 1 } else { LINE };
        let goes_on = || line.track.as_ref().is_some_and(|track| !track.is_broken());
        let may = !line.leaves && !is_cut && behind < most && line.is_moving(self.trip, now);
        if !may || !line.comes_soon(left, self.trip, now) {
            return None;
        }
        let times = if self.even.is_some() { 1 } else { line.near_its_end(left, self.trip)? };
        goes_on().then(|| Ends { lasts: line.lasts(left, self.trip, now), line: line_number, times })
    }

    /// Begins with a piece on a connection that there is, if there is one and it goes on: of more than are wanted the last do not.
    fn follow(&mut self, line: usize) {
        let wanted = self.width.wanted();
        let stay_before = self.lines.range(..line).filter(|(_, line)| !line.leaves).count();
        let Some(one) = self.lines.get_mut(&line) else { return };
        one.leaves |= stay_before >= wanted;
        if self.is_in_band || one.leaves || one.track.as_ref().is_none_or(|track| track.is_broken()) {
            return;
        }
        if let Some(piece) = self.take_piece(wanted) {
            self.begin(piece, Some(line));
        }
    }

    fn wait(&mut self, number: usize, came: impl Future<Output = Came> + Send + 'static) {
        let (handle, registration) = AbortHandle::new_pair();
        if let Some(part) = self.parts.get_mut(&number) {
            part.waiting = handle;
        }
        self.waiting.push(Box::pin(async move { Abortable::new(came, registration).await.ok() }));
    }

    fn wait_for(&mut self, part: usize, mut stream: Held) {
        self.wait(part, async move {
            let next = stream.next().await;
            let is_in_band = stream.stream().is_some_and(Stream::is_in_band);
            let ended = match next {
                Ok(Some(data)) => return Came { part, is_in_band, what: Ok(What::Data(stream, data)) },
                Ok(None) => stream.finish().await,
                Err(e) => Err(e),
            };
            let what = match ended {
                Ok(is_vouched_for) => Ok(What::End { is_changed: false, is_vouched_for }),
                // All that the file has came by then.
                Err(Error::Stream(Fault::Changed)) => Ok(What::End { is_changed: true, is_vouched_for: true }),
                Err(e) => Err(e),
            };
            Came { part, is_in_band, what }
        });
    }

    /// Asks what a round trip takes, whether or not the caller waits for bytes. The least of several: others may be in the way of one.
    fn ask_for_trip(&mut self) {
        let file = self.file.clone();
        let client = file.client.fork();
        let ask = async move {
            let mut least = None;
            for _ in 0..TRIPS_ASKED {
                let asked = Instant::now();
                file.metadata_by(&client).await.ok()?;
                least = least.into_iter().chain([asked.elapsed()]).min();
            }
            least
        };
        self.asked = Some(AbortOnDropHandle::new(tokio::spawn(ask)));
    }

    /// Whether there is anything that more streams could bring. What is evenly parted ends while all connections still grow.
    fn can_widen(&self) -> bool {
        let is_worth_it = |part: &Part| part.span.pages_left() >= 2 * LEAST;
        self.even.is_none() && (!self.queue.is_empty() || self.parts.values().any(is_worth_it))
    }

    /// Whether what is left takes so few round trips: of [`TRIPS`] one more connection than there were would be the last to have its piece.
    fn ends_within(&self, trips: u32) -> bool {
        let left = self.parts.values().fold(self.queued(), |left, part| left.saturating_add(part.left()));
        self.width.ends_within(left, self.trip * trips)
    }

    /// Begins with what no stream has begun with, then parts the range that has most left, while more streams are wanted than there are. Near the end there are no more than
    /// there were, and of what goes in pieces none is parted, which would end later than whole: who is slow by then is for [`takeover`], until all are so slow that it is no end.
    fn widen(&mut self) {
        let mut wanted = if self.is_in_band { 1 } else { self.width.at(Instant::now()).max(1) };
        let is_near_the_end = (self.staying() < wanted || self.width.is_asking()) && self.ends_within(TRIPS);
        if is_near_the_end {
            wanted = wanted.min(self.widest.max(1));
        }
        if !self.can_widen() || is_near_the_end || self.width.is_asking() && self.ends_within(TRIPS_TO_ASK) {
            // Nor does the end of the session then wait for the answer, or that it was given up.
            self.asked = None;
            self.width.asks_later();
        } else if self.width.asks() {
            self.ask_for_trip();
        }
        while self.staying() < wanted
            && let Some(piece) = self.take_piece(wanted)
        {
            self.begin(piece, None);
        }
        if self.is_in_band || is_near_the_end && self.in_pieces {
            return;
        }
        for _ in self.staying()..wanted {
            // What is behind another on its connection comes when that has come, and both fail with it.
            let (lines, now) = (&self.lines, Instant::now());
            let is_worth_it = |(number, part): &(&usize, &mut Part)| {
                let Some(line) = lines.get(&part.line) else { return false };
                let is_last = line.parts.back() == Some(*number);
                let is_its_turn = part.has_begun || line.parts.front() == Some(*number);
                let is_long = || line.lasts(part.left(), self.trip, now) > self.trip * TRIPS;
                is_last && is_its_turn && part.span.pages_left() >= 2 * LEAST && is_long()
            };
            let most = self.parts.iter_mut().filter(is_worth_it).max_by_key(|(_, part)| part.left());
            let Some((_, most)) = most else { return };
            let other = most.span.part();
            // It has pages to come: nobody has looked at the file since only copies come.
            let copies = other.end - other.lent_to;
            self.begin(Piece { from: other.next, to: other.end, copies }, None);
        }
    }
}
