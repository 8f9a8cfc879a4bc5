//! A file of a server that is being written by a copy: [`Sink`].
//!
//! Several writes are on the way at a time, so what an interrupted copy left may have gaps near its end: never further
//! from it than [`SPAN`], which `--resume` therefore writes again.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use ninefold::client::{Error, File, FileType, Metadata, Mode, Stream, Writer};
use ninefold::proto::Dialect;
use ninefold::proto::attr::SetAttr;

use super::blocks;
use super::digest::Digest;
use super::facts::Facts;
use super::here_file::Begun;
use super::reader::{Content, Piece, STREAMED};
use super::there::{Dir, Owners, Subject};
use super::there_part::{self, Part};
use super::trouble::Cause;
use crate::files::replace::{self, InPlace};
use crate::files::temporaries::{Entry, Temporaries};

/// How far behind the first byte that the server lacks the last may lie that it has: 32 MiB, 5 Gbit/s over 50 ms. More on
/// the way would be faster on longer paths, and more to write again.
pub const SPAN: u64 = 32 << 20;

/// What to write, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    pub dir: Arc<Dir>,
    pub name: Vec<u8>,
    pub part: Vec<u8>,
    pub source: Facts,
    /// What has the name now.
    pub old: Option<Facts>,
    /// Permissions of a file that is new, and those of its part.
    pub mode: u32,
    pub perm: u32,
    pub preserve: bool,
    /// Go on behind what an interrupted copy left.
    pub resume: bool,
    /// Leave what an interrupted copy can be gone on with.
    pub keep: bool,
    pub owners: Arc<Owners>,
    pub temporaries: Temporaries,
    /// How it is written if it is new, and by several streams.
    pub up: Option<Up>,
}

/// How a large file is written by several streams.
#[derive(Clone, Debug)]
pub struct Up {
    /// At most.
    pub streams: usize,
    /// What is read.
    pub from: Arc<OwnedFd>,
}

/// A file that is being written. One that is dropped is given up.
#[derive(Debug)]
pub struct Sink {
    plan: Plan,
    /// There until the end.
    file: Option<File>,
    kind: Kind,
    at: u64,
    /// Where the last byte was written, or is about to be.
    end: u64,
    pub begun: Begun,
}

/// What is written to.
#[derive(Debug)]
struct Kind {
    /// It gets its name at the end.
    is_part: bool,
    /// Nobody else writes to it.
    is_locked: bool,
    is_plain: bool,
    /// Bytes that a file had that is written in place, behind whose new end the old one is cut off.
    old_size: u64,
    /// It is longer than what it gets: a file that is written in place, see [`mark`], or a part with a record, see [`blocks`].
    is_marked: bool,
    /// Of a part that is removed unless it is finished.
    entry: Option<Entry>,
    /// What was known of it when it was opened, unless it was made.
    metadata: Option<Arc<Metadata>>,
    /// See [`Part::streams`].
    streams: usize,
}

/// The bytes of a [`Sink`] on their way.
#[derive(Debug)]
pub struct Writing<'s> {
    pen: Pen<'s>,
    at: &'s mut u64,
    end: &'s mut u64,
}

/// How they go.
#[derive(Debug)]
enum Pen<'s> {
    Messages(Box<Writer<'s>>),
    /// By a stream, which is opened at the first byte and has all in order.
    Stream {
        file: &'s File,
        metadata: Option<&'s Metadata>,
        stream: Option<Box<Stream>>,
    },
}

impl Writing<'_> {
    pub async fn data(&mut self, data: Bytes) -> Result<(), Cause> {
        let (offset, length) = (*self.at, data.len() as u64);
        if let Pen::Stream { file, metadata, stream: stream @ None } = &mut self.pen {
            let (file, metadata) = (*file, *metadata);
            let opened = file.stream_write(offset, None).await?;
            if opened.is_in_band() {
                // The server has none for it after all. A stream in messages has no bound to how far apart they may lie.
                self.pen = Pen::Messages(Box::new(file.writer(offset, metadata)));
            } else {
                *stream = Some(Box::new(opened));
            }
        }
        if let Pen::Messages(writer) = &mut self.pen {
            writer.within(SPAN.saturating_sub(length)).await?;
        }
        *self.at += length;
        *self.end = *self.at;
        match &mut self.pen {
            Pen::Messages(writer) => writer.write(data).await?,
            Pen::Stream { stream: Some(stream), .. } => stream.write_bytes(data).await?,
            Pen::Stream { stream: None, .. } => {}
        }
        Ok(())
    }

    /// Nothing comes for a while: a stream on which nothing moves is ended, and what comes next goes by another.
    pub async fn pause(&mut self) -> Result<(), Cause> {
        if let Pen::Stream { stream, .. } = &mut self.pen
            && let Some(stream) = stream.take()
        {
            stream.finish().await?;
        }
        Ok(())
    }

    pub async fn skip(&mut self, zeros: u64) -> Result<(), Cause> {
        match &mut self.pen {
            Pen::Messages(writer) => writer.skip(zeros),
            // What comes behind the gap is another stream's.
            Pen::Stream { stream, .. } => {
                if let Some(stream) = stream.take() {
                    stream.finish().await?;
                }
            }
        }
        *self.at += zeros;
        Ok(())
    }

    pub async fn finish(self) -> Result<(), Cause> {
        match self.pen {
            Pen::Messages(mut writer) => drop(writer.finish().await?),
            Pen::Stream { stream: Some(stream), .. } => drop(stream.finish().await?),
            Pen::Stream { stream: None, .. } => {}
        }
        Ok(())
    }
}

/// Makes a file that is written in place longer by a byte than both what it had and what it gets: if the copy is interrupted,
/// its size tells that it is neither. `false` where the server does not let it.
async fn mark(file: &File, size: u64) -> Result<bool, Cause> {
    match file.set(&SetAttr { size: Some(size.saturating_add(1)), ..SetAttr::default() }).await {
        Ok(()) => Ok(true),
        Err(Error::Refused(_) | Error::Unsupported { .. }) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Writes a few bytes in messages.
pub async fn put(file: &File, mut at: u64, mut data: Bytes) -> Result<(), Cause> {
    while !data.is_empty() {
        match file.write_at(at, data.clone()).await? as usize {
            0 => return Err(Cause::Here(ninefold::proto::Errno::EIO)),
            written => {
                at += written as u64;
                data = data.split_off(written.min(data.len()));
            }
        }
    }
    Ok(())
}

impl Sink {
    /// Opens what is written to; `started`: the part, where it was made before.
    pub async fn begin(plan: Plan, started: Option<Part>) -> Result<Sink, Cause> {
        let old = plan.old.as_ref().filter(|old| old.kind != FileType::Symlink);
        let why = match old {
            Some(old) if old.is_dir() => return Err(Cause::words("a directory is not overwritten by a file")),
            Some(old) if old.kind != FileType::File || old.has_rules_of_its_own() => InPlace::NotPlain.to_string(),
            Some(old) if old.nlink.is_some_and(|names| names > 1) => {
                InPlace::SeveralNames(old.nlink.unwrap_or_default()).to_string()
            }
            Some(old) if old.size == 0 && plan.dir.node.client().dialect() == Dialect::Plan9 => {
                // Nothing of it is lost, while a device would be.
                "it is empty, and 9P2000 does not tell whether it is a device".to_owned()
            }
            old => {
                if old.is_some() {
                    // As cp(1) does not overwrite what may not be written, although its directory may.
                    plan.dir.walk(&plan.name).await?.open(Mode::WRITE).await?;
                }
                let opened = match started {
                    Some(part) => Ok(part),
                    None => there_part::open(&plan, old).await,
                };
                match opened {
                    Ok(Part { file, entry, left, blocks, is_locked, streams }) => {
                        let (offset, metadata) = left.unzip();
                        let (offset, is_marked) = (offset.unwrap_or_default(), blocks.is_some());
                        let begun = Begun { offset, blocks, left: None, in_place: None, skips_from: 0 };
                        let left = (begun.bytes() > 0).then(|| plan.part.clone());
                        let kind = Kind {
                            is_part: true,
                            is_locked,
                            is_plain: true,
                            old_size: 0,
                            is_marked,
                            entry,
                            metadata,
                            streams,
                        };
                        return Ok(Sink::new(plan, file, kind, Begun { left, ..begun }));
                    }
                    Err(cause) if old.is_some() && cause.is_of_the_directory() => {
                        format!("it cannot be replaced: {cause}")
                    }
                    Err(cause) => return Err(cause),
                }
            }
        };
        let is_plain = old.is_some_and(|old| old.kind == FileType::File);
        // What has no content to cut may not like to be asked.
        let old_size = if is_plain { old.map_or(0, |old| old.size) } else { 0 };
        // Not emptied: it may be the source by another name, of which every byte is then written where it was read. What
        // is written to an append-only file comes behind what it has, wherever it is to be.
        let appends = old_size > 0 && old.is_some_and(Facts::is_append_only);
        let mode = if appends { Mode::REPLACE } else { Mode::WRITE };
        let file = plan.dir.walk(&plan.name).await?.open(mode).await?;
        // Nothing is half of nothing: what has no bytes is not worth a word.
        let in_place = Some(why).filter(|_| old_size > 0 || plan.source.size > 0);
        let begun = Begun {
            offset: 0,
            blocks: None,
            left: None,
            in_place,
            skips_from: if old_size > 0 { old_size } else { u64::MAX },
        };
        let metadata = plan.old.as_ref().and_then(|old| old.metadata.clone()).filter(|_| old_size > 0);
        let old_size = if appends { 0 } else { old_size };
        let is_marked = old_size > 0 && mark(&file, old_size.max(plan.source.size)).await?;
        let (entry, streams) = (None, 0);
        let kind = Kind { is_part: false, is_locked: false, is_plain, old_size, is_marked, entry, metadata, streams };
        Ok(Sink::new(plan, file, kind, begun))
    }

    fn new(plan: Plan, file: File, kind: Kind, begun: Begun) -> Sink {
        let at = begun.offset;
        Sink { plan, file: Some(file), kind, at, end: at, begun }
    }

    pub fn writing(&mut self) -> Writing<'_> {
        // A gap takes a round trip: what has some goes in messages.
        let streams = self.streamed().is_some()
            && self.plan.source.is_dense
            && self.plan.source.size.saturating_sub(self.at) >= STREAMED;
        let Sink { file, at, end, kind, .. } = self;
        let file = file.as_ref().expect("there until the end, which takes self");
        let metadata = kind.metadata.as_deref();
        let pen = match streams {
            true => Pen::Stream { file, metadata, stream: None },
            false => Pen::Messages(Box::new(file.writer(*at, metadata))),
        };
        Writing { pen, at, end }
    }

    /// What is written to.
    pub fn file(&self) -> &File {
        self.file.as_ref().expect("there until the end, which takes self")
    }

    /// The same if it may be written by streams: a part, which no program is behind.
    pub fn streamed(&self) -> Option<&File> {
        Some(self.file()).filter(|file| self.kind.is_part && file.client().has_streams())
    }

    /// Streams of all of it that were asked for with its making.
    pub fn asked_streams(&self) -> usize {
        self.kind.streams
    }

    /// What is written will have gaps until all of it is: until then the part has a record of what is there, see [`blocks`]. `false` where the
    /// server does not let it.
    pub async fn mark(&mut self) -> Result<bool, Cause> {
        if !self.kind.is_locked {
            return Ok(false);
        }
        if !self.kind.is_marked {
            let size = self.plan.source.size;
            let length = SetAttr { size: Some(blocks::marked_length(size)), ..SetAttr::default() };
            // One that is not answered in time may be carried out later.
            self.kind.is_marked = true;
            match self.file().set(&length).await {
                Ok(()) => {}
                Err(Error::Refused(_) | Error::Unsupported { .. }) => {
                    self.kind.is_marked = false;
                    return Ok(false);
                }
                Err(e) => return Err(e.into()),
            }
            put(self.file(), size, Bytes::from_static(blocks::opening())).await?;
        }
        Ok(true)
    }

    /// All from `offset` on is written anew, in order: a part with a record becomes one without.
    pub async fn unmark(&mut self, offset: u64) -> Result<(), Cause> {
        if self.kind.is_part && self.kind.is_marked {
            // It is still cut at its end: what was sent of a record may come behind this.
            self.file().set(&SetAttr { size: Some(offset), ..SetAttr::default() }).await?;
        }
        self.wrote(offset);
        Ok(())
    }

    /// All bytes before `end` were written to the file, by whatever way.
    pub fn wrote(&mut self, end: u64) {
        (self.at, self.end) = (end, end);
    }

    /// The file is whole when `streams` have come to their ends: it gets its attributes, then its name; where it is only to get that, by one request
    /// that does it if they have. Gives what could not be preserved, and why it was copied in place although it was not to be.
    pub async fn finish(
        mut self,
        digest: Option<Digest>,
        mut streams: Vec<Stream>,
    ) -> Result<(Option<Cause>, Option<InPlace>), Cause> {
        let complete = async {
            if digest.is_some() || !self.has_only_to_get_its_name() {
                try_join_all(streams.drain(..).map(Stream::finish)).await?;
            }
            self.complete(digest).await
        };
        match (complete.await, self.file.take()) {
            (Ok(preserved), Some(file)) => self.install(file, streams, preserved).await,
            (Ok(preserved), None) => Ok((preserved, None)),
            (Err(cause), file) => {
                self.file = file;
                self.abandon(&cause).await;
                Err(cause)
            }
        }
    }

    /// Whether nothing is to be asked or changed of what was written before that.
    fn has_only_to_get_its_name(&self) -> bool {
        self.kind.is_part && !self.plan.keep && !self.plan.preserve && !self.kind.is_marked && !self.has_other_end()
    }

    /// It does not end where its last byte was written.
    fn has_other_end(&self) -> bool {
        self.at > self.end.max(self.kind.old_size) || self.at < self.kind.old_size
    }

    /// Everything but the name.
    async fn complete(&self, digest: Option<Digest>) -> Result<Option<Cause>, Cause> {
        let Some(file) = &self.file else { return Ok(None) };
        if self.kind.is_marked || self.has_other_end() {
            file.set(&SetAttr { size: Some(self.at), ..SetAttr::default() }).await?;
        }
        if self.kind.is_part && self.kind.is_marked {
            let size = file.metadata().await?.size;
            if size != self.at {
                return Err(Cause::words(format!(
                    "it has {size} bytes of {}: is another copy of it under way?",
                    self.at
                )));
            }
        }
        if let Some(expected) = digest.filter(|_| self.kind.is_plain) {
            expected.compare(&self.read_back().await?)?;
        }
        let mut preserved = None;
        if self.plan.preserve && self.kind.is_plain {
            preserved = Subject::File(file).preserve(&self.plan.source, &self.plan.owners).await.err();
        }
        if self.kind.is_part && self.plan.keep && !there_part::has_name(&self.plan, file).await? {
            return Err(Cause::words("its temporary file is gone: is another copy to the same file under way?"));
        }
        Ok(preserved)
    }

    async fn install(
        mut self,
        mut file: File,
        streams: Vec<Stream>,
        preserved: Option<Cause>,
    ) -> Result<(Option<Cause>, Option<InPlace>), Cause> {
        if !self.kind.is_part {
            file.close().await?;
            return Ok((preserved, None));
        }
        file.keep();
        let entry = self.kind.entry.take().unwrap_or_else(|| self.plan.enter());
        let (target, part) = (self.plan.dir.target(&self.plan.name), self.plan.part.clone());
        let temporaries = self.plan.temporaries.clone();
        let installed = replace::install(temporaries, target, (file, streams), part, entry).await?;
        Ok((preserved, installed))
    }

    /// The content as the server has it now.
    async fn read_back(&self) -> Result<Digest, Cause> {
        let name = if self.kind.is_part { &self.plan.part } else { &self.plan.name };
        let node = self.plan.dir.walk(name).await?;
        let facts = Facts::from(node.metadata().await?);
        let file = node.open(Mode::READ).await?;
        let first = file.read_at(0, file.read_max()).await?;
        let content = Content::There { file, first };
        let (mut digest, mut reader) = (Digest::new(), content.reader(0, &facts));
        while let Some(piece) = reader.next().await? {
            match piece {
                Piece::Data(data) => digest.data(&data),
                Piece::Hole(zeros) => digest.zeros(zeros),
            }
        }
        Ok(digest)
    }

    /// Gives it up; the part is removed unless an interrupted copy can be gone on with.
    pub async fn abandon(mut self, cause: &Cause) {
        if self.plan.keep && cause.leaves_what_can_be_gone_on_with() {
            return;
        }
        if !self.kind.is_part {
            return;
        }
        if let Some(file) = self.file.take() {
            let removed = there_part::remove(&self.plan, file).await;
            if let Some(entry) = self.kind.entry.take() {
                entry.removed(&removed);
            }
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let (Some(entry), Some(file)) = (self.kind.entry.take(), self.file.take()) {
            // Whether it is gone is known when the server has answered.
            self.plan.temporaries.spawn(async move { entry.removed(&file.remove().await) });
        }
    }
}

impl Plan {
    pub fn enter(&self) -> Entry {
        let address = &self.dir.address;
        let path = [&address.path[..], b"/", &self.part].concat();
        let shown = ninefold::transport::Address { path, ..address.clone() };
        self.temporaries.file(shown)
    }
}
