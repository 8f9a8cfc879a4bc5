//! One plain file, from its source to its destination.

use std::time::Instant;

use bytes::Bytes;
use ninefold::client::FileType;

use super::cx::{Cx, Record};
use super::dest::{Sink, Slot, Writing};
use super::digest::Digest;
use super::facts::{Facts, same_time};
use super::here_file::Begun;
use super::reader::{Content, Piece, Reader};
use super::source::Item;
use super::trouble::{Cause, Trouble};
use super::zeros::{Run, runs};
use crate::place::Place;

/// Bytes at the end of what an interrupted copy left that are compared with the source before it is gone on with: 1 MiB,
/// 80 ms at 100 Mbit/s.
const TAIL: u64 = 1 << 20;

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
    let (opened, old) = tokio::join!(item.open(), slot.look());
    let (facts, content) = opened.map_err(Trouble::of(&source, "cannot open it"))?;
    let (Some(content), old) = (content, old?) else { return Ok(Copied::Special(facts)) };
    refuse_itself(&source, slot, &facts, old.as_ref())?;
    let copy = Copy { cx, slot, source: &source, facts: &facts, content: &content };
    if cx.how.resume
        && cx.how.checksum
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
    let result = match copy.run(old.clone(), cx.how.resume && !content.is_stream()).await {
        // What the interrupted copy left was wrong: all of it anew.
        Err(failure) if failure.resumed > 0 && matches!(failure.trouble.cause, Cause::Differs(_)) => {
            copy.run(old, false).await
        }
        other => other,
    };
    let mut record = result.map_err(|failure| failure.trouble)?;
    cx.progress.file_done();
    record.took = began.elapsed();
    Ok(Copied::Done(record))
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

/// One attempt.
struct Copy<'a> {
    cx: &'a Cx<'a>,
    slot: &'a Slot,
    source: &'a Place,
    facts: &'a Facts,
    content: &'a Content,
}

/// An attempt that failed, which had begun behind so many bytes.
struct Failure {
    trouble: Trouble,
    resumed: u64,
}

/// What went through.
#[derive(Default)]
struct Passed {
    bytes: u64,
    pieces: usize,
    digest: Option<Digest>,
}

impl Copy<'_> {
    async fn run(&self, old: Option<Facts>, resume: bool) -> Result<Record, Failure> {
        let (how, slot) = (&self.cx.how, self.slot);
        let failed = |resumed| move |trouble| Failure { trouble, resumed };
        let begin = Sink::begin(slot, self.source, self.facts, old.clone(), how, resume);
        let mut sink = begin.await.map_err(Trouble::of(&slot.place, "cannot write it")).map_err(failed(0))?;
        let begun = sink.begun().clone();
        if let Some(why) = &begun.in_place {
            self.cx.write_in_place(&slot.place, old.as_ref()).map_err(failed(0))?;
            self.cx.warn(format_args!("{}: written in place: {why}", slot.place));
        }
        let result = async {
            self.check_left(&begun).await?;
            let passed = self.pour(&mut sink).await?;
            self.check_source(&passed).await.map(|()| passed)
        };
        let result = result.await;
        let passed = match result {
            Ok(passed) => passed,
            Err(trouble) => {
                if begun.in_place.is_some() && begun.skips_from < u64::MAX {
                    let place = &slot.place;
                    self.cx.warn(format_args!("{place}: it is not whole: what was to be written came in part"));
                }
                sink.abandon(&trouble.cause).await;
                return Err(Failure { trouble, resumed: begun.offset });
            }
        };
        let digest = passed.digest.clone();
        let finish = sink.finish(digest.clone()).await;
        let finished = finish.map_err(Trouble::of(&slot.place, "cannot write it")).map_err(failed(begun.offset))?;
        if let Some(why) = &finished.in_place {
            self.cx.warn(format_args!("{}: written in place: {why}", slot.place));
        }
        self.cx.not_preserved(&slot.place, finished.not_preserved);
        let mut record = Record::new(self.source, &slot.place, FileType::File);
        record.bytes = passed.bytes;
        record.resumed = begun.offset;
        record.digest = digest;
        record.in_place = begun.in_place.or(finished.in_place);
        Ok(record)
    }

    /// Whether what an interrupted copy left is the source's, as far as its end tells.
    async fn check_left(&self, begun: &Begun) -> Result<(), Trouble> {
        let Some(name) = &begun.left else { return Ok(()) };
        let cannot_read = || Trouble::of(&self.slot.place, "cannot read what is there of it");
        let opened = self.slot.open_beside(name).await.map_err(cannot_read())?;
        let (left, source) = match &opened {
            Some((facts, left)) => {
                tokio::join!(tail(left, facts, begun.offset), tail(self.content, self.facts, begun.offset))
            }
            None => (Err(Cause::words("it is no plain file any more")), Ok(Vec::new())),
        };
        let (left, source) =
            (left.map_err(cannot_read())?, source.map_err(Trouble::of(self.source, "cannot read it"))?);
        if left == source {
            return Ok(());
        }
        let differs = Cause::Differs("what an interrupted copy left is not of this source".to_owned());
        Err(Trouble::new(&self.slot.place, "cannot go on with it", differs))
    }

    /// All bytes, from where the sink begins on; for a digest from the start.
    async fn pour(&self, sink: &mut Sink) -> Result<Passed, Trouble> {
        let cannot_read = || Trouble::of(self.source, "cannot read it");
        let cannot_write = || Trouble::of(&self.slot.place, "cannot write it");
        let begun = sink.begun().clone();
        let mut passed = Passed { digest: self.cx.how.checksum.then(Digest::new), ..Passed::default() };
        passed.bytes = if passed.digest.is_some() { 0 } else { begun.offset };
        self.cx.progress.moved(passed.bytes);
        let mut reader = self.content.reader(passed.bytes, self.facts);
        let mut writing = sink.writing();
        while let Some(piece) = reader.next().await.map_err(cannot_read())? {
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
                    wrote.map_err(cannot_write())?;
                    data.len() as u64
                }
                Piece::Hole(zeros) => {
                    if let Some(digest) = &mut passed.digest {
                        digest.zeros(zeros);
                    }
                    let known = known.min(zeros);
                    let wrote = self.zeros(&mut writing, zeros - known, passed.bytes + known, begun.skips_from).await;
                    wrote.map_err(cannot_write())?;
                    zeros
                }
            };
            passed.bytes += length;
            passed.pieces += 1;
            self.cx.progress.moved(length);
        }
        writing.finish().await.map_err(cannot_write())?;
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

    /// Whether what was read can be all of the file. A file that changed meanwhile is copied as it was read, and the
    /// user is told; one that gives fewer bytes than it had is not, nor one that gives more although it did not change: a
    /// file that is emptied while it is read is not to take the place of one that is whole. One that is said to have none
    /// is copied to its end: nobody knows the size of what a program makes up.
    async fn check_source(&self, passed: &Passed) -> Result<(), Trouble> {
        // Nothing can change within one read, and a pipe's times are those of its use.
        if self.content.is_stream() || passed.pieces <= 1 && passed.bytes == self.facts.size {
            return Ok(());
        }
        let now = self.content.facts().await.map_err(Trouble::of(self.source, "cannot look at it again"))?;
        let changed = now.modified != self.facts.modified || now.size != self.facts.size;
        if passed.bytes < self.facts.size {
            let (read, size) = (passed.bytes, self.facts.size);
            let but = if changed { "was changed meanwhile" } else { "has not changed" };
            let words = format!("it ended after {read} of its {size} bytes, and {but}: it is not copied");
            return Err(Trouble::new(self.source, "", Cause::words(words)));
        }
        if changed && self.cx.strict {
            return Err(Trouble::new(self.source, "", Cause::words("it changed while it was copied".to_owned())));
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

/// The last bytes of a file before `end`, at most [`TAIL`].
async fn tail(content: &Content, facts: &Facts, end: u64) -> Result<Vec<u8>, Cause> {
    let start = end.saturating_sub(TAIL);
    let length = (end - start) as usize;
    let facts = Facts { size: end, ..facts.clone() };
    let (mut tail, mut reader) = (Vec::with_capacity(length), content.reader(start, &facts));
    while tail.len() < length
        && let Some(piece) = reader.next().await?
    {
        let room = length - tail.len();
        match piece {
            Piece::Data(data) => tail.extend_from_slice(&data[..room.min(data.len())]),
            Piece::Hole(zeros) => tail.resize(tail.len() + zeros.min(room as u64) as usize, 0),
        }
    }
    Ok(tail)
}

async fn digest_of(mut reader: Reader<'_>) -> Result<Digest, Cause> {
    let mut digest = Digest::new();
    while let Some(piece) = reader.next().await? {
        match piece {
            Piece::Data(data) => digest.data(&data),
            Piece::Hole(zeros) => digest.zeros(zeros),
        }
    }
    Ok(digest)
}
