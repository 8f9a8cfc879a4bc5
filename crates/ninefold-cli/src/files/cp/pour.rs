//! The bytes of a file on their way from its [`Content`] to its [`Sink`].
//!
//! Four ways: within a server that has both, by several streams from a server to here, by several streams from here to a server, and in
//! order, which all others go, and which every copy goes that is digested on the way. What has gaps on its way has a record of
//! what is there ([`Blocks`]), and is gone on with where that says so.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Fuse, FusedFuture, FutureExt, try_join_all};
use ninefold::client::{Client, Error, Fault, File, Stream};
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use super::blocks::{self, BLOCK, Blocks};
use super::cx::{Cx, Granted};
use super::dest::{Sink, Slot, Writing};
use super::digest::Digest;
use super::facts::Facts;
use super::file::digest_of;
use super::here_file::Begun;
use super::off::off;
use super::reader::{CHUNK, Content, Piece, STREAMED};
use super::there_file;
use super::trouble::{Cause, Trouble};
use super::zeros::{Run, runs};
use crate::place::Place;

/// Bytes that a server copies in one request: what a slow disk writes in a second, so that progress is seen and none takes too long.
const COPIED: u64 = 64 << 20;

/// Bytes that sockets and what is between them may take though nobody reads them.
const SWALLOWED: u64 = 64 << 20;

/// How long a source may bring nothing before the stream by which it is written is ended: a tenth of what a server waits
/// (docs/protocol.md, "Streams").
const SILENCE: Duration = Duration::from_secs(30);

/// Bytes of one stream to a server where what is there is recorded, which is when one has come to its end: 4 MiB at least, since each begins
/// slowly, and 256 MiB at most, since what is under way is written again. Between them each of the streams has eight.
const STRETCH: std::ops::RangeInclusive<u64> = 4 << 20..=256 << 20;

const _: () = assert!(CHUNK as u64 == BLOCK, "what is read at once is a block");

/// What the stretches of streams to a server are whole ones of, where nothing is recorded: the largest page of Linux's machines.
const ALIGNED: u64 = 64 << 10;

/// Those that each of several has one after another.
const STRETCHES: u64 = 8;

/// From what to what.
pub struct Pour<'a> {
    pub cx: &'a Cx<'a>,
    pub slot: &'a Slot,
    pub source: &'a Place,
    pub facts: &'a Facts,
    pub content: &'a Content,
    granted: Cell<Option<Granted<'a>>>,
    /// Bytes that were written to the sink.
    sent: Cell<u64>,
    /// Bytes that were told to the bar.
    shown: Cell<u64>,
    /// A stream to the sink has come to its end: they get through.
    gets_through: Cell<bool>,
    /// It was the sink that failed.
    cannot_write: Cell<bool>,
    /// Streams to the sink that were given all of their bytes, and have not come to their ends.
    streams: RefCell<Vec<Stream>>,
}

/// By how many streams of at most `most` so many bytes go to a server. Where what is there is recorded each has one stretch after another, and they end
/// together.
fn streams_up(client: &Client, bytes: u64, most: usize, has_record: bool) -> usize {
    if has_record { client.streams_for(bytes, most) } else { client.streams_to_write(bytes, most) }
}

/// Bytes that each of so many streams brings of a file that is written without a record: whole pages, so that no two write to one.
pub fn stretch(bytes: u64, streams: usize) -> u64 {
    bytes.div_ceil(streams as u64).next_multiple_of(ALIGNED).max(ALIGNED)
}

/// The bytes from `from` to `to` by so many, from where to where.
pub fn stretches(from: u64, to: u64, stretch: u64) -> impl Iterator<Item = (u64, u64)> {
    (from..to).step_by(stretch as usize).map(move |at| (at, to.min(at + stretch)))
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

/// A stretch of a file that was given to its stream.
struct Given {
    stream: Stream,
    from: u64,
    numbers: Vec<u64>,
}

/// Whether what comes by so many streams has a record of what is there from the beginning. What one brings is in order, mostly: how much there is tells all of it.
fn has_record(begun: &Begun, most: usize) -> bool {
    most > 1 || begun.blocks.is_some()
}

/// Where what is there without a record, in whole blocks, ends: from there on it is written.
fn whole_blocks(begun: &Begun) -> u64 {
    begun.offset / BLOCK * BLOCK
}

impl<'a> Pour<'a> {
    /// `granted`: streams that it was given before, if it was.
    pub fn new(
        cx: &'a Cx<'a>,
        slot: &'a Slot,
        source: &'a Place,
        facts: &'a Facts,
        (content, granted): (&'a Content, Option<Granted<'a>>),
    ) -> Pour<'a> {
        let (sent, shown, gets_through, cannot_write, streams) = Default::default();
        let granted = Cell::new(granted);
        Pour { cx, slot, source, facts, content, granted, sent, shown, gets_through, cannot_write, streams }
    }

    fn moved(&self, bytes: u64) {
        self.shown.update(|shown| shown + bytes);
        self.cx.progress.moved(bytes);
    }

    fn cannot_read(&self) -> impl Fn(Cause) -> Trouble {
        |cause| Trouble::new(self.source, "cannot read it", cause)
    }

    /// That it has fewer bytes by now is of the file, and not of the way.
    fn cannot_read_there(&self, e: Error) -> Trouble {
        match e {
            Error::Stream(Fault::Changed) => {
                let words = format!(
                    "it ended before its {} bytes, and was changed meanwhile: it is not copied",
                    self.facts.size
                );
                Trouble::new(self.source, "", Cause::Changed(words))
            }
            e => self.cannot_read()(e.into()),
        }
    }

    fn cannot_write(&self) -> impl Fn(Cause) -> Trouble {
        |cause| {
            self.cannot_write.set(true);
            Trouble::new(&self.slot.place, "cannot write it", cause)
        }
    }

    /// All bytes, from where the sink begins on; for a digest from the start.
    pub async fn all(&self, sink: &mut Sink) -> Result<Passed, Trouble> {
        if let Some(passed) = self.within_server(sink).await? {
            return Ok(passed);
        }
        let begun = sink.begun().clone();
        match self.by_streams_or_in_order(sink, &begun).await {
            Err(trouble) if self.swallowed(sink, &trouble.cause) => {
                self.streams.take();
                if let Sink::There(there) = sink {
                    there.file().client().give_up_streams();
                }
                self.cx.progress.back(self.shown.take());
                // Of what was sent the server may still write some, behind what it is told from here on: a record stays what it was, and the part
                // as long as it makes it, until all of it is there.
                if let Sink::There(there) = sink {
                    there.wrote(begun.offset);
                }
                self.in_order(sink, &begun).await
            }
            done => done,
        }
    }

    /// Those that have not come to their ends: the file is whole when they have.
    pub fn streams(&self) -> Vec<Stream> {
        self.streams.take()
    }

    /// Whether the ends of [those](Pour::streams) failed because what was sent by them may never have got through, to `client`'s server: then none is asked for
    /// any more, and the file is to be written anew.
    pub fn is_lost_on_its_way(&self, client: &Client, cause: &Cause) -> bool {
        self.cannot_write.set(true);
        let is_lost = self.may_be_swallowed(client, cause);
        if is_lost {
            client.give_up_streams();
            self.cx.progress.back(self.shown.take());
        }
        is_lost
    }

    /// Whether what was sent by streams may never have got through: something between here and the server takes connections and bytes, and no
    /// stream is known to have come to its end. In messages it may.
    fn swallowed(&self, sink: &Sink, cause: &Cause) -> bool {
        // What goes in messages anyway is not sent twice, and a pipe is not read twice.
        let Sink::There(there) = sink else { return false };
        let Some(file) = there.streamed().filter(|_| !self.content.is_stream()) else { return false };
        self.may_be_swallowed(file.client(), cause)
    }

    fn may_be_swallowed(&self, client: &Client, cause: &Cause) -> bool {
        // The server's own word: nobody came with the token.
        let is_unheard =
            matches!(cause, Cause::There(Error::Refused(_))) && cause.is(ninefold::proto::Errno::ETIMEDOUT);
        let is_cut = matches!(cause, Cause::There(Error::Stream(Fault::Cut(_))));
        let may_be = self.cannot_write.get() && !self.gets_through.get() && self.sent.get() <= SWALLOWED;
        (is_unheard || is_cut) && may_be && !client.is_over()
    }

    async fn by_streams_or_in_order(&self, sink: &mut Sink, begun: &Begun) -> Result<Passed, Trouble> {
        // A digest is made in order.
        let how = &self.cx.how;
        let may_have_gaps = begun.in_place.is_none() && !how.checksum && blocks::fits(self.facts.size);
        let is_large = self.facts.size >= STREAMED && !self.content.is_stream();
        let is_shared = matches!(self.content, Content::There { file, .. } if file.granted() > 1);
        // In .s nobody tells how a stream ended that wrote, and the file's size does not tell it where another has written behind it.
        let is_told = |file: &File| file.client().version().is_n1();
        if may_have_gaps && (is_large || is_shared) {
            let given = || self.granted.take().or_else(|| self.cx.grant_streams());
            let grant = |wanted: usize| if wanted > 1 { given() } else { None };
            let (size, most) = (self.facts.size, self.cx.streams);
            let passed = match (self.content, &mut *sink) {
                (Content::There { file, first }, Sink::Here(here)) => match grant(file.streams_for(size, most)) {
                    // One stream is in order, and can be gone on with. One that was asked for with the open brings the file's beginning.
                    None if begun.blocks.is_none() && file.granted() == 0 => None,
                    granted => {
                        let most = granted.as_ref().map_or(1, |granted| granted.streams);
                        if has_record(begun, most) {
                            here.mark(whole_blocks(begun)).await.map_err(self.cannot_write())?;
                        }
                        let passed = self.down(file, first, &mut Writing::Here(here), begun, most).await?;
                        here.seek(passed.bytes).await.map_err(self.cannot_write())?;
                        Some(passed)
                    }
                },
                (Content::Here { fd, .. }, Sink::There(there)) if self.facts.is_dense => {
                    let to_write = |file: &File| streams_up(file.client(), size, most, how.resume);
                    let granted = there.streamed().filter(|file| is_told(file)).map(|file| grant(to_write(file)));
                    match granted {
                        // How far one stream had come is known from the record alone, and without it what has gaps looks like a beginning.
                        Some(granted) if how.resume => {
                            let most = granted.as_ref().map_or(1, |granted| granted.streams);
                            match there.mark().await.map_err(self.cannot_write())? {
                                true => Some(self.up(fd, there, begun, most, true).await?),
                                false => None,
                            }
                        }
                        Some(granted) => {
                            let most = granted.as_ref().map_or(1, |granted| granted.streams);
                            Some(self.up(fd, there, begun, most, false).await?)
                        }
                        None => None,
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
        drop(self.granted.take());
        // What was asked for with an open brings bytes that nobody takes.
        if let Content::There { file, .. } = self.content {
            file.give_up_granted();
        }
        if let Sink::There(there) = sink {
            there.file().give_up_granted();
        }
        sink.unmark(begun.offset).await.map_err(self.cannot_write())?;
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
        self.moved(at);
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
                    self.moved(copied);
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
        begun: &Begun,
        most: usize,
    ) -> Result<Passed, Trouble> {
        let mut gaps = self.gaps(begun);
        let missing: u64 = gaps.iter().map(|(from, to)| to - from).sum();
        let mut passed = Passed { bytes: self.facts.size - missing, ..Passed::default() };
        if passed.bytes > 0 {
            // Whether it changed since is looked at.
            passed.pieces = 2;
            self.moved(passed.bytes);
        }
        // In a gap that was there before zeros are written: what it holds nobody knows.
        let skips_from = if begun.blocks.is_some() { u64::MAX } else { 0 };
        let mut next = None;
        if let Some(gap) = gaps.first_mut().filter(|gap| gap.0 == 0 && !first.is_empty()) {
            let first = first.slice(..first.len().min(gap.1 as usize));
            gap.0 = first.len() as u64;
            next = Some((0, first));
        }
        let mut ranges = file.ranges_of(&gaps, most);
        let mut has_record = has_record(begun, most);
        // What the file is like while the last of it comes, of which its streams tell to the end whether it was changed.
        let mut look = pin!(Fuse::terminated());
        let (mut was_looked_at, mut seen) = (false, None);
        loop {
            if !was_looked_at && ranges.is_settling() {
                was_looked_at = true;
                match ranges.take_look() {
                    Some(looked) => seen = Some(Facts::from(looked)),
                    None => look.set(self.content.facts().fuse()),
                }
            }
            let piece = match next.take() {
                Some(piece) => Some(piece),
                // All of it is here, and how the streams ended is on its way: so is what the file is like now.
                None if passed.bytes == self.facts.size && !was_looked_at => {
                    let (piece, now) = tokio::join!(ranges.next(), self.content.facts());
                    passed.now = now.ok();
                    piece.map_err(|e| self.cannot_read_there(e))?
                }
                None => loop {
                    tokio::select! {
                        biased;
                        facts = &mut look, if !look.is_terminated() => seen = facts.ok(),
                        piece = ranges.next() => break piece.map_err(|e| self.cannot_read_there(e))?,
                    }
                },
            };
            let Some((offset, data)) = piece else {
                passed.is_changed = ranges.is_changed();
                if passed.now.is_none() && ranges.is_settled() {
                    if !look.is_terminated() {
                        seen = look.await.ok();
                    }
                    passed.now = seen;
                }
                return Ok(passed);
            };
            let length = data.len() as u64;
            // What one stream should bring comes in messages in part, or by another behind one that broke.
            let is_behind_a_gap = !has_record && offset != passed.bytes;
            has_record |= is_behind_a_gap;
            let wrote = async {
                if is_behind_a_gap {
                    writing.mark(passed.bytes).await?;
                }
                writing.seek(offset).await?;
                self.data(writing, data, offset, skips_from).await
            };
            wrote.await.map_err(self.cannot_write())?;
            passed.bytes += length;
            passed.pieces += 1;
            self.moved(length);
        }
    }

    /// What is missing of a file that is written by ranges, in whole blocks.
    fn gaps(&self, begun: &Begun) -> Vec<(u64, u64)> {
        match &begun.blocks {
            Some(blocks) => blocks.gaps(),
            None => vec![(whole_blocks(begun), self.facts.size)],
        }
    }

    /// By several streams from here, or by one after another; with a record of what is there where it may have to be gone on with.
    async fn up(
        &self,
        fd: &Arc<OwnedFd>,
        there: &there_file::Sink,
        begun: &Begun,
        most: usize,
        has_record: bool,
    ) -> Result<Passed, Trouble> {
        let file = there.file();
        let size = self.facts.size;
        let mut gaps = self.gaps(begun);
        if has_record {
            gaps = self.check_record(fd, file, begun).await?.gaps();
        }
        let missing: u64 = gaps.iter().map(|(from, to)| to - from).sum();
        self.moved(size - missing);
        let streams = match there.asked_streams() {
            0 => streams_up(file.client(), missing, most, has_record),
            asked => asked,
        } as u64;
        file.client().prepare_streams((streams as usize).saturating_sub(file.granted()));
        // Without a record one stream brings all of its range: each begins slowly.
        let stretch = match has_record {
            true => {
                let stretch = (missing / streams / STRETCHES).clamp(*STRETCH.start(), *STRETCH.end());
                stretch.next_multiple_of(BLOCK)
            }
            false => stretch(missing, streams as usize),
        };
        let mut queue = VecDeque::new();
        for (from, to) in gaps {
            queue.extend(stretches(from, to, stretch));
        }
        let queue = RefCell::new(queue);
        let next = || queue.borrow_mut().pop_front();
        let lane = async || {
            let mut given: Option<Given> = None;
            loop {
                // The next begins while the one before comes to its end.
                let before = given.take();
                let give = async {
                    match next() {
                        Some((from, to)) => self.give(fd, file, (from, to), has_record).await.map(Some),
                        None => Ok(None),
                    }
                };
                let end = async {
                    match before {
                        // One that the server does not end by itself would stand still until the others have come to theirs.
                        Some(given) if has_record || !given.stream.is_late() => self.end(file, given, has_record).await,
                        // With the file's.
                        Some(given) => {
                            self.streams.borrow_mut().push(given.stream);
                            Ok(())
                        }
                        None => Ok(()),
                    }
                };
                given = tokio::try_join!(give, end)?.0;
                if given.is_none() {
                    return Ok::<(), Trouble>(());
                }
            }
        };
        try_join_all((0..streams).map(|_| lane())).await?;
        Ok(Passed { bytes: size, pieces: 2, ..Passed::default() })
    }

    /// What is there, where the source still comes to the same; all of it is in the record then.
    async fn check_record(&self, fd: &Arc<OwnedFd>, file: &File, begun: &Begun) -> Result<Blocks, Trouble> {
        let mut blocks = begun.blocks.clone().unwrap_or_else(|| Blocks::none(self.facts.size));
        for block in 0..blocks.count() {
            let (start, end) = blocks.extent(block);
            let number = blocks.number(block);
            if number.is_none() && (begun.blocks.is_some() || end > begun.offset) {
                continue;
            }
            let fd = fd.clone();
            let read = off(move || read_at(&fd, start, (end - start) as usize)).await.map_err(self.cannot_read())?;
            let now = blocks::number_of(&read);
            if number.is_some_and(|number| number != now) {
                blocks.strike(block);
            } else if number.is_none() {
                blocks.enter(block, now);
                self.record(file, block, &[now]).await?;
            }
        }
        Ok(blocks)
    }

    /// Enters blocks that the server has.
    async fn record(&self, file: &File, block: usize, numbers: &[u64]) -> Result<(), Trouble> {
        let entries: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let place = blocks::place(self.facts.size, block);
        there_file::put(file, place, entries.into()).await.map_err(self.cannot_write())
    }

    /// Gives the bytes from `from` to `to` to a stream, which is asked for its end by itself if there is a record to be written.
    async fn give(
        &self,
        fd: &Arc<OwnedFd>,
        file: &File,
        (from, to): (u64, u64),
        has_record: bool,
    ) -> Result<Given, Trouble> {
        let cannot_write = |e: Error| self.cannot_write()(e.into());
        let opened = match has_record {
            true => file.stream_write(from, Some(to - from)).await,
            false => file.stream_write_late(from, to - from).await,
        };
        let mut stream = opened.map_err(cannot_write)?;
        // Bytes of it that have left already, with the question for it.
        let mut ahead = stream.moved();
        let (mut at, mut numbers, mut has_paused) = (from, Vec::new(), false);
        let most = |at: u64| (to - at).min(CHUNK as u64) as usize;
        let read_on = |at| {
            let (fd, most) = (fd.clone(), most(at));
            Box::pin(off(move || read_at(&fd, at, most)))
        };
        let mut read = read_on(at);
        while at < to {
            let data = match tokio::time::timeout(SILENCE, &mut read).await {
                Ok(data) => data,
                // Nobody waits so long at the other end. A stream that was to have a length cannot be ended before: what it brought is
                // brought again, once. Those behind it have none.
                Err(_) if !std::mem::replace(&mut has_paused, true) => {
                    drop(stream);
                    (&mut read).await.map_err(self.cannot_read())?;
                    stream = file.stream_write(from, None).await.map_err(cannot_write)?;
                    self.cx.progress.back(at - from);
                    self.shown.update(|shown| shown.saturating_sub(at - from));
                    (at, ahead, numbers) = (from, 0, Vec::new());
                    read = read_on(at);
                    continue;
                }
                Err(_) => {
                    stream.finish().await.map_err(cannot_write)?;
                    let data = (&mut read).await;
                    stream = file.stream_write(at, None).await.map_err(cannot_write)?;
                    data
                }
            };
            let data = data.map_err(self.cannot_read())?;
            if data.len() < most(at) {
                let end = at + data.len() as u64;
                let words = format!("it ended after {end} of its {} bytes: it is not copied", self.facts.size);
                return Err(Trouble::new(self.source, "", Cause::Changed(words)));
            }
            if self.cx.how.resume {
                numbers.push(blocks::number_of(&data));
            }
            let length = data.len() as u64;
            // The disk is not waited for while the socket has nothing to send.
            if at + length < to {
                read = read_on(at + length);
            }
            let left = ahead.min(length);
            ahead -= left;
            stream.write_bytes(data.slice(left as usize..)).await.map_err(cannot_write)?;
            self.sent.update(|sent| sent + length);
            at += length;
            self.moved(length);
        }
        Ok(Given { stream, from, numbers })
    }

    /// Waits until the server has all of a stretch in the file, and enters it in the record if there is one.
    async fn end(&self, file: &File, given: Given, has_record: bool) -> Result<(), Trouble> {
        let Given { stream, from, numbers } = given;
        stream.finish().await.map_err(|e| self.cannot_write()(e.into()))?;
        self.gets_through.set(true);
        if has_record { self.record(file, (from / BLOCK) as usize, &numbers).await } else { Ok(()) }
    }

    async fn in_order(&self, sink: &mut Sink, begun: &Begun) -> Result<Passed, Trouble> {
        if let Content::There { file, .. } = self.content {
            file.give_up_granted();
        }
        let mut passed = Passed { digest: self.cx.how.checksum.then(Digest::new), ..Passed::default() };
        passed.bytes = if passed.digest.is_some() { 0 } else { begun.offset };
        self.moved(passed.bytes);
        let mut reader = self.content.reader(passed.bytes, self.facts);
        let mut writing = sink.writing();
        loop {
            let mut next = Box::pin(reader.next());
            let next = loop {
                match tokio::time::timeout(SILENCE, &mut next).await {
                    Ok(piece) => break piece,
                    // Nobody waits so long at the other end.
                    Err(_) => writing.pause().await.map_err(self.cannot_write())?,
                }
            };
            let piece = match next {
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
            self.moved(length);
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
pub fn read_at(fd: &OwnedFd, at: u64, most: usize) -> Result<Bytes, Cause> {
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
