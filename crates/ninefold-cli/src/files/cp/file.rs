//! One plain file, from its source to its destination.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use ninefold::client::FileType;

use super::cx::{Cx, Granted, Record};
use super::dest::{At, Dest, LEAST_ZEROS, Sink, Slot};
use super::digest::Digest;
use super::facts::{Facts, same_time};
use super::here_file::Begun;
use super::pour::{Passed, Pour};
use super::reader::{Content, Piece, Reader, STREAMED};
use super::source::Item;
use super::there_file::Up;
use super::there_small;
use super::trouble::{Cause, Trouble};
use super::turn;
use super::zeros::{Run, runs};
use crate::files::newborn;
use crate::place::Place;

/// Bytes at the end of what an interrupted copy left that are compared with the source before it is gone on with: 1 MiB,
/// 80 ms at 100 Mbit/s.
const TAIL: u64 = 1 << 20;

/// Ends of what is there that are compared, where it has gaps: one for each of 16 streams.
const RUNS: usize = 16;

/// How long a file that was changed while it was copied is left alone before it is copied as it is by then.
const STILL: Duration = Duration::from_secs(1);

/// What became of a file.
pub enum Copied {
    Done(Record),
    /// It is no plain file after all; these are its attributes.
    Special(Facts),
}

/// Copies a file.
pub async fn copy(cx: &Cx<'_>, mut item: Item, slot: &Slot) -> Result<Copied, Trouble> {
    let began = Instant::now();
    let source = item.place.clone();
    let cannot_look = || Trouble::of(&source, "cannot look at it");
    if cx.dry_run && !(cx.how.resume && cx.how.checksum) {
        let facts = item.facts().await.map_err(cannot_look())?;
        let old = slot.look().await?;
        let mut record = Record::new(&source, &slot.place, FileType::File);
        record.bytes = facts.size;
        record.skipped = cx.how.resume && old.is_some_and(|old| looks_done(cx, &facts, &old));
        return Ok(Copied::Done(record));
    }
    if cx.how.resume && !cx.how.checksum {
        // A file that is there already is not even opened.
        let (facts, old) = tokio::join!(item.facts(), slot.look());
        let (facts, old) = (facts.map_err(cannot_look())?, old?);
        if old.is_some_and(|old| looks_done(cx, &facts, &old)) {
            return Ok(Copied::Done(skipped(cx, &source, slot, &facts, began)));
        }
    }
    // What is large waits for its turn before it is opened and what it replaces is looked at: that would be old by then.
    let mut large = if is_large(&mut item).await { Some(cx.large.acquire(&turn::now()).await) } else { None };
    let _room = cx.room.acquire_many(item.small_size().unwrap_or_default() as u32).await;
    let (fetched, old) = tokio::join!(item.fetch(cx), slot.look());
    let (fetched, mut old) = (fetched.map_err(Trouble::of(&source, "cannot open it"))?, old?);
    if fetched.is_none() && item.is_there() && large.is_none() {
        large = Some(cx.large.acquire(&turn::now()).await);
        if !slot.is_there() {
            old = slot.look().await?;
        }
    }
    let compares = cx.how.resume && cx.how.checksum;
    if compares && large.is_none() {
        // Both are read ahead.
        large = Some(cx.large.acquire(&turn::now()).await);
    }
    let (facts, content) = match fetched {
        Some(whole) => whole,
        None => match item.open().await.map_err(Trouble::of(&source, "cannot open it"))? {
            (facts, Some(content)) => (facts, content),
            (facts, None) => return Ok(Copied::Special(facts)),
        },
    };
    refuse_itself(&source, slot, &facts, old.as_ref())?;
    let copy = Copy { cx, slot, source: &source, facts: &facts, content: &content, grew: false };
    if compares
        && !content.is_stream()
        && let Some(old) = &old
        && let Some(digest) = copy.same_content(old).await?
    {
        let mut record = skipped(cx, &source, slot, &facts, began);
        record.digest = Some(digest);
        return Ok(Copied::Done(record));
    }
    if cx.dry_run {
        let mut record = Record::new(&source, &slot.place, FileType::File);
        record.bytes = facts.size;
        return Ok(Copied::Done(record));
    }
    cx.progress.found(facts.size);
    // Who has a place of the large waits for no room: who has room may wait for that place.
    if large.is_none()
        && let Some(mut record) = copy.at_once(old.as_ref()).await?
    {
        cx.progress.file_done();
        record.took = began.elapsed();
        return Ok(Copied::Done(record));
    }
    let _large = match large {
        None if !matches!(content, Content::Whole { .. }) || slot.is_there() => {
            Some(cx.large.acquire(&turn::now()).await)
        }
        large => large,
    };
    let result = match copy.run(old.clone(), cx.how.resume && !content.is_stream()).await {
        // What the interrupted copy left was wrong: all of it anew.
        Err(failure) if failure.resumed > 0 && matches!(failure.trouble.cause, Cause::Differs(_)) => {
            copy.run(old.clone(), false).await
        }
        other => other,
    };
    let result = match result {
        // It is copied as it is by now. One that does not hold still is told, and so is one that has less: it may be about to be written anew.
        Err(failure) if matches!(failure.trouble.cause, Cause::Changed(_)) && !failure.in_place && !cx.strict => {
            // Who changed it may be in the middle of that, and the kernel tells the time of a write at its beginning only.
            tokio::time::sleep(STILL).await;
            // One that cannot be looked at any more changed, too.
            let now = content.facts().await.ok().filter(|now| now.size >= facts.size);
            match now {
                None => Err(failure),
                Some(now) => {
                    let content = content.again();
                    cx.progress.found(now.size);
                    let grew = now.size > facts.size;
                    let copy = Copy { cx, slot, source: &source, facts: &now, content: &content, grew };
                    copy.run(old, false).await
                }
            }
        }
        other => other,
    };
    let mut record = result.map_err(|failure| failure.trouble)?;
    cx.progress.file_done();
    record.took = began.elapsed();
    Ok(Copied::Done(record))
}

/// Whether a file is known to be none that may be read at once.
async fn is_large(item: &mut Item) -> bool {
    if item.is_there() {
        return item.small_size().is_none();
    }
    // One that cannot be looked at is told by who opens it.
    item.facts().await.is_ok_and(|facts| facts.kind == FileType::File && facts.size > newborn::MOST as u64)
}

fn skipped(cx: &Cx<'_>, source: &Place, slot: &Slot, facts: &Facts, began: Instant) -> Record {
    cx.progress.file_done();
    let mut record = Record::new(source, &slot.place, FileType::File);
    (record.bytes, record.resumed) = (facts.size, facts.size);
    (record.skipped, record.took) = (true, began.elapsed());
    record
}

/// Whether a file was copied already, as far as size and time tell: with `--preserve` the time is the source's, without
/// it that of the copy, which must not be older.
fn looks_done(cx: &Cx<'_>, source: &Facts, old: &Facts) -> bool {
    if source.kind != FileType::File || old.kind != FileType::File || source.size != old.size {
        return false;
    }
    if cx.how.preserve { same_time(source, old) } else { old.modified >= source.modified || same_time(source, old) }
}

/// A file that is copied to itself would be emptied before it is read.
fn refuse_itself(source: &Place, slot: &Slot, facts: &Facts, old: Option<&Facts>) -> Result<(), Trouble> {
    let (Place::Remote(a), Place::Remote(b), Some(old)) = (source, &slot.place, old) else { return Ok(()) };
    let same = facts.qid() == old.qid() && facts.size == old.size && facts.modified == old.modified;
    if a.place == b.place && same {
        return Err(Trouble::new(source, "", Cause::words(format!("it and {b} are the same file"))));
    }
    Ok(())
}

/// Whether all of a file is to be read at once: it is small, and has no holes that are not to be written.
fn is_small(content: &Content, facts: &Facts) -> bool {
    let is_whole = matches!(content, Content::Whole { .. });
    let fits = facts.size <= newborn::MOST as u64 && facts.kind == FileType::File;
    let has_no_holes = facts.is_dense || is_whole || facts.size < LEAST_ZEROS as u64;
    fits && has_no_holes && !content.is_stream()
}

/// All of a small file that is to be written at once; `None`: it is to be copied as any other, since it is large, has zeros that
/// are not to be written, or was changed while it was read.
pub async fn small(content: &Content, facts: &Facts) -> Result<Option<Bytes>, Cause> {
    if !is_small(content, facts) {
        return Ok(None);
    }
    let mut data = BytesMut::new();
    let (mut pieces, mut reader) = (0, content.reader(0, facts));
    while let Some(piece) = reader.next().await? {
        match piece {
            Piece::Data(piece) => data.extend_from_slice(&piece),
            Piece::Hole(_) => return Ok(None),
        }
        pieces += 1;
    }
    let data = data.freeze();
    let has_zeros =
        runs(&data, 0, LEAST_ZEROS).iter().any(|run| matches!(run, Run::Zeros(zeros) if *zeros >= LEAST_ZEROS as u64));
    if data.len() as u64 != facts.size || has_zeros {
        return Ok(None);
    }
    if pieces > 1 {
        let now = content.facts().await?;
        if facts.differs(&now) {
            return Ok(None);
        }
    }
    Ok(Some(data))
}

/// One attempt.
struct Copy<'a> {
    cx: &'a Cx<'a>,
    slot: &'a Slot,
    source: &'a Place,
    facts: &'a Facts,
    content: &'a Content,
    /// Of a source that changed while it was copied before, and was longer then.
    grew: bool,
}

/// An attempt that failed, which had begun behind so many bytes.
struct Failure {
    trouble: Trouble,
    resumed: u64,
    in_place: bool,
}

impl Copy<'_> {
    /// A small file to where a server has none; `None`: it is to be written as any other.
    async fn at_once(&self, old: Option<&Facts>) -> Result<Option<Record>, Trouble> {
        let (how, facts) = (&self.cx.how, self.facts);
        let At::Entry(Dest::There(dir), name) = &self.slot.at else { return Ok(None) };
        let is_whole = matches!(self.content, Content::Whole { .. });
        let is_plain = !how.resume && !how.checksum && old.is_none() && is_small(self.content, facts);
        if !is_plain || !dir.node.client().version().is_n1() || how.no_puts.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // One that was read at once has its room.
        let bytes = if is_whole { 0 } else { facts.size };
        let _room = self.cx.room.acquire_many(bytes as u32).await;
        let read = small(self.content, facts).await.map_err(Trouble::of(self.source, "cannot read it"))?;
        let Some(data) = read else { return Ok(None) };
        let client = turn::fork(dir.node.client());
        let _place = self.cx.small.acquire(&client).await;
        let put = there_small::put(dir, &client, name, data, facts, how).await;
        if !put.map_err(Trouble::of(&self.slot.place, "cannot write it"))? {
            return Ok(None);
        }
        self.cx.progress.moved(facts.size);
        let mut record = Record::new(self.source, &self.slot.place, FileType::File);
        record.bytes = facts.size;
        Ok(Some(record))
    }

    /// How it is written from here to a server if it goes by streams, before it is opened there: by several where that is far and others have left it several.
    fn up(&self) -> (Option<Granted<'_>>, Option<Up>) {
        let &Copy { cx, facts, content, .. } = self;
        let (At::Entry(Dest::There(dir), _), Content::Here { fd, .. }) = (&self.slot.at, content) else {
            return (None, None);
        };
        let client = dir.node.client();
        let may_have_gaps = facts.is_dense && !cx.how.checksum && !cx.how.resume;
        if facts.size < STREAMED || !may_have_gaps || !client.has_streams() {
            return (None, None);
        }
        let granted = if client.streams_to_write(facts.size, cx.streams) > 1 { cx.grant_streams() } else { None };
        let streams = granted.as_ref().map_or(1, |granted| granted.streams);
        (granted, Some(Up { streams, from: fd.clone() }))
    }

    async fn run(&self, old: Option<Facts>, resume: bool) -> Result<Record, Failure> {
        let (how, slot) = (&self.cx.how, self.slot);
        let failed = |resumed| move |trouble| Failure { trouble, resumed, in_place: false };
        let (granted, up) = self.up();
        let begin = Sink::begin(slot, self.source, self.facts, old.clone(), how, (resume, up));
        let mut sink = begin.await.map_err(Trouble::of(&slot.place, "cannot write it")).map_err(failed(0))?;
        let begun = sink.begun().clone();
        if let Some(why) = &begun.in_place {
            self.cx.write_in_place(&slot.place, old.as_ref()).map_err(failed(0))?;
            self.cx.warn(format_args!("{}: written in place: {why}", slot.place));
        }
        let &Copy { cx, source, facts, content, .. } = self;
        let pour = Pour::new(cx, slot, source, facts, (content, granted));
        let result = async {
            self.check_left(&begun).await?;
            let passed = pour.all(&mut sink).await?;
            self.check_source(&passed, &begun).await.map(|()| passed)
        };
        let result = result.await;
        let passed = match result {
            Ok(passed) => passed,
            Err(trouble) => {
                if begun.in_place.is_some() && begun.skips_from < u64::MAX {
                    let place = &slot.place;
                    self.cx.warn(format_args!("{place}: it is not whole: what was to be written came in part"));
                }
                // The part goes when nothing writes to it any more.
                drop(pour);
                sink.abandon(&trouble.cause).await;
                return Err(Failure { trouble, resumed: begun.bytes(), in_place: begun.in_place.is_some() });
            }
        };
        let digest = passed.digest.clone();
        let (streams, client) = (pour.streams(), sink.client());
        let goes_by_streams = !streams.is_empty();
        let finish = match (sink.finish(digest.clone(), streams).await, client) {
            (Err(cause), Some(client)) if goes_by_streams && pour.is_lost_on_its_way(&client, &cause) => {
                drop(pour);
                return Box::pin(self.run(old, false)).await;
            }
            (finish, _) => finish,
        };
        let finished = finish.map_err(Trouble::of(&slot.place, "cannot write it")).map_err(failed(begun.bytes()))?;
        if let Some(why) = &finished.in_place {
            self.cx.warn(format_args!("{}: written in place: {why}", slot.place));
        }
        self.cx.not_preserved(&slot.place, finished.not_preserved);
        let mut record = Record::new(self.source, &slot.place, FileType::File);
        record.bytes = passed.bytes;
        record.resumed = begun.bytes();
        record.digest = digest;
        record.in_place = begun.in_place.or(finished.in_place);
        Ok(record)
    }

    /// Whether what an interrupted copy left is the source's, as far as its end tells.
    async fn check_left(&self, begun: &Begun) -> Result<(), Trouble> {
        let Some(name) = &begun.left else { return Ok(()) };
        let cannot_read = || Trouble::of(&self.slot.place, "cannot read what is there of it");
        let opened = self.slot.open_beside(name).await.map_err(cannot_read())?;
        let Some((facts, part)) = &opened else {
            return Err(cannot_read()(Cause::words("it is no plain file any more")));
        };
        let runs = begun.blocks.as_ref().map_or_else(|| vec![(0, begun.offset)], |blocks| blocks.runs(true));
        let mut is_same = true;
        // As many as there may have been streams.
        for (start, end) in runs.into_iter().rev().take(RUNS) {
            let start = start.max(end.saturating_sub(TAIL));
            let both = tokio::join!(piece(part, facts, start, end), piece(self.content, self.facts, start, end));
            let left = both.0.map_err(cannot_read())?;
            is_same &= left == both.1.map_err(Trouble::of(self.source, "cannot read it"))?;
        }
        if is_same {
            return Ok(());
        }
        let differs = Cause::Differs("what an interrupted copy left is not of this source".to_owned());
        Err(Trouble::new(&self.slot.place, "cannot go on with it", differs))
    }

    /// Whether what was read can be all of the file. What changed meanwhile may be of several states: it is not copied so. But one that did so
    /// twice and only grew is copied up to the size that it had, as the records that programs write to their ends are, and the user is told; so is
    /// what is written in place, which may be the source itself. One that gives fewer bytes than it had is not copied, nor one that gives more
    /// although it did not change: a file that is emptied while it is read is not to take the place of one that is whole. One that is said to have none
    /// is copied to its end: nobody knows the size of what a program makes up.
    async fn check_source(&self, passed: &Passed, begun: &Begun) -> Result<(), Trouble> {
        // Nothing can change within one read, and a pipe's times are those of its use. A stream's end does not spare the look: pages of the
        // file may still have been on their way when the server took it for what it was.
        let is_one = passed.pieces <= 1 && passed.bytes == self.facts.size && !passed.is_changed;
        if self.content.is_stream() || is_one {
            return Ok(());
        }
        let now = match &passed.now {
            Some(now) => now.clone(),
            None => self.content.facts().await.map_err(Trouble::of(self.source, "cannot look at it again"))?,
        };
        let changed = passed.is_changed || self.facts.differs(&now);
        if passed.bytes < self.facts.size {
            let (read, size) = (passed.bytes, self.facts.size);
            let but = if changed { "was changed meanwhile" } else { "has not changed" };
            let words = format!("it ended after {read} of its {size} bytes, and {but}: it is not copied");
            let cause = if changed { Cause::Changed(words) } else { Cause::Words(words) };
            return Err(Trouble::new(self.source, "", cause));
        }
        let grew = self.grew && now.size > self.facts.size;
        // A program that makes it up gives it the time of day.
        let is_made_up = self.facts.size == 0 && now.size == 0;
        if changed && (self.cx.strict || begun.in_place.is_none() && !grew && !is_made_up) {
            let words = "it changed while it was copied: it is not copied".to_owned();
            return Err(Trouble::new(self.source, "", Cause::Changed(words)));
        }
        if changed {
            self.cx.warn(format_args!("{}: it changed while it was copied", self.source));
        } else if passed.bytes > self.facts.size && self.facts.size > 0 {
            let size = self.facts.size;
            let words = format!("it goes on behind its {size} bytes, and has not changed: it is not copied");
            return Err(Trouble::new(self.source, "", Cause::words(words)));
        }
        Ok(())
    }

    /// The digest of both files if it is the same.
    async fn same_content(&self, old: &Facts) -> Result<Option<Digest>, Trouble> {
        if old.kind != FileType::File || old.size != self.facts.size {
            return Ok(None);
        }
        // What cannot be read is to be replaced, or cannot be that either.
        let Ok(Some((facts, content))) = self.slot.open().await else { return Ok(None) };
        let there = digest_of(content.reader(0, &facts));
        let here = digest_of(self.content.reader(0, self.facts));
        let (here, there) = tokio::join!(here, there);
        let here = here.map_err(Trouble::of(self.source, "cannot read it"))?;
        Ok(there.ok().filter(|there| *there == here))
    }
}

/// The bytes of a file from `start` to `end`.
async fn piece(content: &Content, facts: &Facts, start: u64, end: u64) -> Result<Vec<u8>, Cause> {
    let length = (end - start) as usize;
    let facts = Facts { size: end, ..facts.clone() };
    let (mut bytes, mut reader) = (Vec::with_capacity(length), content.reader(start, &facts));
    while bytes.len() < length
        && let Some(piece) = reader.next().await?
    {
        let room = length - bytes.len();
        match piece {
            Piece::Data(data) => bytes.extend_from_slice(&data[..room.min(data.len())]),
            Piece::Hole(zeros) => bytes.resize(bytes.len() + zeros.min(room as u64) as usize, 0),
        }
    }
    Ok(bytes)
}

pub async fn digest_of(mut reader: Reader<'_>) -> Result<Digest, Cause> {
    let mut digest = Digest::new();
    while let Some(piece) = reader.next().await? {
        match piece {
            Piece::Data(data) => digest.data(&data),
            Piece::Hole(zeros) => digest.zeros(zeros),
        }
    }
    Ok(digest)
}
