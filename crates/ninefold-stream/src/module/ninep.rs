//! `ninep` and `ninep-stream`: files of 9P servers, lent where they arrived.
//!
//! In order a file is read by one of the client's streams: `ninep` in messages, as many on the way as the path holds, each lent in the
//! buffer that it arrived in; `ninep-stream` by a data connection, from whose socket it is received into the pages that are lent. Where the
//! server has none of those the bytes come in messages by either name. Elsewhere than behind the last fill it is one message, and the second
//! fill in order begins a stream again.
//!
//! Order of driving: a fill passes over the pieces before its place, receives until there are enough, and lends the first piece. What is asked
//! for and lies in two pieces is joined by one copy, so long as it is asked for and no longer; who asks for as many bytes each time has none,
//! as what is received ends where a region does, and so do messages that hold one.
//!
//! The end is none before the client's stream found it to be that of all of it (`Stream::finish`); what went wrong is told again by
//! every fill there, so that no short file looks whole to who asks once more. An error takes nothing of what came before it.
//!
//! What is written goes by write-behind in the order in which it comes, from a copy, as what is freed may be lent again while it is on the way; or
//! by the client's stream that it goes on with, until that is flushed. What was on the way when something went wrong is lost: from then on every
//! write and flush says so, and the end. A stream that writes reads nothing ahead.

use std::collections::VecDeque;

use bytes::Bytes;
use ninefold::client;
use ninefold::proto::QidType;
use rustix::io::Errno;

use super::below::Piece;
use super::{Chunk, Fill, StreamModule};
use crate::error::{Error, Result};
use crate::memory::{BELIEVED, Frozen, Memory, PAGE, POOLED};
use crate::ninep::{Counts, Going, Remote, Waiter, wait};

/// Bytes of a read by itself: what it takes besides the round trip is little then, 5 ms at 100 Mbit/s.
const ALONE: usize = 64 << 10;

pub struct Ninep {
    name: &'static str,
    /// None once it is closed.
    file: Option<client::File>,
    waiter: std::sync::Arc<dyn Waiter>,
    has_places: bool,
    /// Is what a region is to have waited for?
    is_prompt: bool,
    reads: bool,
    writes: bool,
    appends: bool,
    /// Nothing is read ahead.
    is_random: bool,
    /// By data connections.
    beside: bool,
    /// What came and was not asked for, or was asked for last. The first begins at `at`.
    pieces: VecDeque<Piece>,
    at: u64,
    /// Bytes of the pieces.
    have: usize,
    /// Reads on behind the pieces.
    source: Option<Box<client::Stream>>,
    /// A fill behind the pieces is in order, and begins a source.
    in_order: bool,
    /// Behind the pieces is the end. It was told, or not.
    end: Option<bool>,
    /// What was met behind the pieces.
    failed: Option<Error>,
    /// Writes on at that place.
    writing: Option<(Box<client::Stream>, u64)>,
    /// Something that was written may not be in the file.
    lost: Option<Error>,
    /// The file's count of changes at the last fill.
    changes: Option<u64>,
    counts: Counts,
}

impl Ninep {
    pub fn new(name: &'static str, remote: Remote, (reads, writes): (bool, bool), is_random: bool) -> Result<Ninep> {
        let Remote { file, waiter, at, going, has_places, appends, only: _ } = remote;
        let kind = file.qid().kind;
        // Of what has none all that passed is counted from where the stream begins.
        let at = if has_places { at } else { 0 };
        // A file without a version may be a program: one that says that it has bytes has them, and what another has is waited for as of a
        // pipe.
        let is_plain = kind == QidType::FILE && file.qid().version != 0;
        let is_prompt = has_places && (is_plain || wait(&*waiter, file.metadata())?.size > 0);
        let beside = name == "ninep-stream";
        let mut module = Ninep {
            name,
            file: Some(file),
            waiter,
            has_places,
            is_prompt,
            reads,
            writes,
            appends,
            // What is read ahead of a file that is written would be old.
            is_random: is_random || writes,
            beside,
            pieces: VecDeque::new(),
            at,
            have: 0,
            source: None,
            in_order: true,
            end: None,
            failed: None,
            writing: None,
            lost: None,
            changes: None,
            counts: Counts::default(),
        };
        match going {
            Some(Going { stream, .. }) if writes => module.writing = Some((Box::new(stream), at)),
            Some(Going { stream, rest }) => {
                module.source = Some(Box::new(stream));
                module.put_data(rest);
            }
            None => {}
        }
        Ok(module)
    }

    /// Where the stream begins, if it has places: at the end where it appends.
    pub fn begin(&mut self) -> Result<Option<u64>> {
        if !self.has_places {
            return Ok(None);
        }
        if self.appends && self.writes && self.writing.is_none() {
            return self.length().map(Some);
        }
        Ok(Some(self.at))
    }

    fn file(&self) -> Result<&client::File> {
        self.file.as_ref().ok_or(Errno::BADF.into())
    }

    /// Of the next fill in order.
    fn next(&self) -> u64 {
        self.at.saturating_add(self.have as u64)
    }

    fn put(&mut self, piece: Piece) {
        self.have += piece.1.len();
        self.pieces.push_back(piece);
    }

    fn put_data(&mut self, data: Bytes) {
        if !data.is_empty() {
            let range = 0..data.len();
            self.put((Frozen::new(Memory::arrived(data)), range));
        }
    }

    /// What is before that place is not asked for any more. Where the place is elsewhere nothing is left.
    fn go_to(&mut self, to: u64) {
        match to.checked_sub(self.at).and_then(|skip| usize::try_from(skip).ok()) {
            Some(skip) if skip <= self.have => self.pass(skip),
            _ => {
                self.drop_pieces(to);
                (self.source, self.in_order) = (None, false);
                (self.end, self.failed) = (None, None);
            }
        }
    }

    fn drop_pieces(&mut self, to: u64) {
        self.pieces.clear();
        (self.at, self.have) = (to, 0);
    }

    fn pass(&mut self, mut bytes: usize) {
        (self.at, self.have) = (self.at + bytes as u64, self.have - bytes);
        while let Some((_, range)) = self.pieces.front_mut() {
            if range.len() > bytes {
                range.start += bytes;
                break;
            }
            bytes -= range.len();
            self.pieces.pop_front();
        }
    }

    /// Reads on behind the pieces until there are `need` bytes more, or something is met. Regions have `step` bytes.
    fn receive(&mut self, need: usize, step: usize, mut memory: Option<Memory>) -> Result<()> {
        let until = self.have.saturating_add(need);
        let is_short = need <= self.file()?.read_max() as usize;
        let alone = self.source.is_none() && (self.is_random || (!self.in_order && is_short));
        while self.have < until && self.end.is_none() {
            if let Some(e) = self.failed {
                return Err(e);
            }
            let need = until - self.have;
            let came = if alone { self.read_alone(need) } else { self.read_on(need, step, memory.take()) };
            if let Err(e) = came {
                if !is_lasting(e) {
                    return Err(e);
                }
                (self.source, self.failed) = (None, Some(e));
            }
        }
        Ok(())
    }

    /// By itself.
    fn read_alone(&mut self, need: usize) -> Result<()> {
        /// Of a call, whose bytes the client gathers.
        const MOST: usize = 16 << 20;
        let file = self.file()?;
        let message = file.read_max() as usize;
        let least = if self.is_random { PAGE } else { ALONE };
        let count = if need > message { need.min(MOST) } else { least.max(need).min(message) };
        let data = wait(&*self.waiter, file.read_at(self.next(), count as u32))?;
        if data.is_empty() {
            self.end = Some(false);
            return Ok(());
        }
        self.counts.received += data.len() as u64;
        if count > message {
            self.counts.copied += data.len() as u64;
        }
        self.in_order = true;
        self.put_data(data);
        Ok(())
    }

    /// What comes next of the source, which is begun if there is none.
    fn read_on(&mut self, need: usize, step: usize, memory: Option<Memory>) -> Result<()> {
        if self.source.is_none() {
            let (file, next) = (self.file()?, self.next());
            let mut source = match self.beside {
                true => wait(&*self.waiter, file.stream_read(next, None))?,
                false => file.stream_read_in_band(next, None),
            };
            // Regions begin here.
            if self.have == 0 {
                source.read_in_steps(u32::try_from(step).unwrap_or(1));
            }
            self.source = Some(Box::new(source));
        }
        let is_in_band = self.source.as_ref().is_some_and(|source| source.is_in_band());
        let mut memory = if is_in_band { None } else { Some(self.room(need, memory)?) };
        let room = memory.as_mut().and_then(Memory::as_mut_slice);
        let source = self.source.as_mut().ok_or(Errno::IO)?;
        let mut received = Received::default();
        let mut data = None;
        let read = wait(&*self.waiter, async {
            match room {
                Some(room) => received.by(source, room, need, step).await,
                None => {
                    data = source.next().await?;
                    received.is_end = data.is_none();
                    Ok(())
                }
            }
        });
        let Received { have, copied, is_end } = received;
        self.counts.received += (have + data.as_ref().map_or(0, Bytes::len)) as u64;
        self.counts.copied += copied as u64;
        if let Some(memory) = memory.filter(|_| have > 0) {
            self.put((Frozen::new(memory), 0..have));
        }
        self.put_data(data.unwrap_or_default());
        read?;
        if is_end && let Some(source) = self.source.take() {
            // Before it says so this is no end.
            wait(&*self.waiter, source.finish())?;
            (self.end, self.in_order) = (Some(false), false);
        }
        Ok(())
    }

    /// Memory to receive into: no more than the file has bytes, as far as it tells.
    fn room(&mut self, need: usize, memory: Option<Memory>) -> Result<Memory> {
        let mut bytes = need.max(POOLED);
        if bytes > BELIEVED {
            let rest = self.length()?.saturating_sub(self.next());
            bytes = usize::try_from(rest).unwrap_or(usize::MAX).clamp(POOLED, bytes);
        }
        Memory::reused(memory, bytes)
    }

    /// Bytes go behind what was written before, or the last of it was found to be in the file.
    fn put_behind(&mut self, at: u64, part: &[u8]) -> Result<()> {
        if let Some((stream, next)) = &mut self.writing
            && (self.appends || *next == at)
        {
            let written = wait(&*self.waiter, stream.write(part));
            // What was refused before anything was sent may be tried again.
            if written.err().is_none_or(is_lasting) {
                *next += part.len() as u64;
            }
            return written.inspect_err(|&e| self.lost = self.lost.or(is_lasting(e).then_some(e)));
        }
        self.end_writing()?;
        self.lost.map_or(Ok(()), Err)?;
        let file = self.file()?;
        let written = wait(&*self.waiter, file.write_behind(at, Bytes::copy_from_slice(part)));
        written.inspect_err(|&e| self.lost = is_lasting(e).then_some(e))
    }

    /// To the end, wherever that is: whole messages, each waited for. Where it ends is asked for where the dialect has no word for it.
    fn append(&mut self, data: &[u8], written: &mut usize) -> Result<()> {
        let file = self.file.as_ref().ok_or(Errno::BADF)?;
        let is_n1 = file.client().version().is_n1();
        let most = if is_n1 { file.append_max() } else { file.write_max() } as usize;
        let mut rest = data;
        while !rest.is_empty() {
            let part = Bytes::copy_from_slice(&rest[..rest.len().min(most)]);
            let taken = wait(&*self.waiter, async {
                match () {
                    () if is_n1 => file.append(part, false).await.map(|(_, count)| count),
                    () if file.mode().append => file.write_at(0, part).await,
                    () => file.write_at(file.metadata().await?.size, part).await,
                }
            });
            let taken = taken.map(|taken| taken as usize).and_then(|taken| match taken {
                0 => Err(Errno::IO.into()),
                taken if taken > rest.len() => Err(Errno::IO.into()),
                taken => Ok(taken),
            });
            // Whether it was appended nobody knows: once more it might be there twice.
            let taken = taken.inspect_err(|&e| self.lost = self.lost.or(is_lasting(e).then_some(e)))?;
            *written += taken;
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// All that a stream wrote is in the file, or lost. An error is that it cannot be waited for here: then the stream goes on.
    fn end_writing(&mut self) -> Result<()> {
        if self.writing.is_none() {
            return Ok(());
        }
        wait(&*self.waiter, async { Ok(()) })?;
        if let Some((stream, _)) = self.writing.take()
            && let Err(e) = wait(&*self.waiter, stream.finish())
        {
            self.lost = self.lost.or(Some(e));
        }
        Ok(())
    }

    /// The answer: the first piece, if it suffices or is all that there is; else as much as is needed of several in one.
    fn give(&mut self, fill: Fill<'_>, need: usize) -> Result<Chunk> {
        let tail = fill.tail.len();
        if tail == 0
            && let Some((memory, range)) = self.pieces.front()
            && (range.len() >= need || self.pieces.len() == 1)
        {
            let (memory, start, length) = (memory.clone(), range.start, range.len());
            return Ok(Chunk { memory, start, length, offset: fill.at });
        }
        let joined = need.min(self.have);
        let mut memory = Memory::reused(fill.memory, tail + joined)?;
        let bytes = memory.as_mut_slice().unwrap_or_default();
        bytes[..tail].copy_from_slice(fill.tail);
        let mut length = tail;
        for (piece, range) in &self.pieces {
            let part = range.len().min(tail + joined - length);
            bytes[length..length + part].copy_from_slice(piece.bytes(range.start..range.start + part));
            length += part;
        }
        self.counts.copied += length as u64;
        let memory = Frozen::new(memory);
        // It is in the place of what it was joined of.
        let at = self.at;
        self.pass(joined);
        self.at = at;
        if joined > 0 {
            self.have += joined;
            self.pieces.push_front((memory.clone(), tail..length));
        }
        Ok(Chunk { memory, start: 0, length, offset: fill.at })
    }
}

/// Is it of more than this call, of which nothing was asked?
fn is_lasting(e: Error) -> bool {
    !matches!(e, Error::NoMemory | Error::Os(Errno::DEADLK))
}

/// What came by a data connection.
#[derive(Default)]
struct Received {
    have: usize,
    /// Of them those that had come in messages, because nothing came by the connection.
    copied: usize,
    is_end: bool,
}

impl Received {
    /// Receives `need` bytes, and what there is besides of regions of `step` bytes.
    async fn by(
        &mut self,
        source: &mut client::Stream,
        room: &mut [u8],
        need: usize,
        step: usize,
    ) -> std::result::Result<(), client::Error> {
        let need = need.min(room.len());
        let step = step.max(1);
        let whole = need + (room.len() - need) / step * step;
        loop {
            // Behind what is needed it goes on to the end of a region, so that none lies in two buffers.
            let limit = match self.have.checked_sub(need) {
                None => whole,
                Some(beyond) => whole.min(need + beyond.next_multiple_of(step)),
            };
            if self.have == limit {
                return Ok(());
            }
            match source.read(&mut room[self.have..limit]).await? {
                0 => {
                    self.is_end = true;
                    return Ok(());
                }
                bytes => self.have += bytes,
            }
            if source.is_in_band() {
                self.copied = self.have;
                return Ok(());
            }
        }
    }
}

impl StreamModule for Ninep {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_seekable(&self) -> bool {
        self.has_places
    }

    fn is_prompt(&self) -> bool {
        self.is_prompt
    }

    fn fill(&mut self, mut fill: Fill<'_>) -> Result<Chunk> {
        if !self.reads {
            return Err(Error::NotReadable);
        }
        if !self.waiter.is_here() {
            return Err(Errno::BADF.into());
        }
        let tail = fill.tail.len();
        let from = fill.at.saturating_add(tail as u64);
        if self.changes.replace(fill.changes).is_some_and(|changes| changes != fill.changes) {
            // This process wrote the file, and may go on with that: a message by itself is had anew at the least cost.
            self.drop_pieces(from);
            (self.source, self.in_order, self.end, self.failed) = (None, false, None, None);
        }
        self.go_to(from);
        if self.have == 0 && self.end == Some(true) {
            self.end = None; // it may be longer by now
        }
        let need = fill.least.saturating_sub(tail).max(1);
        if self.have < need {
            self.receive(need - self.have, fill.least, fill.memory.take())?;
        }
        if self.have + tail == 0 {
            self.end = Some(true); // a short answer does not tell it: who goes on behind that asks nobody
        }
        self.give(fill, need)
    }

    fn appends(&self) -> bool {
        self.appends
    }

    fn write(&mut self, at: u64, data: &[u8], written: &mut usize) -> Result<()> {
        /// Bytes that are copied at a time: the first are on their way while the rest are copied.
        const PART: usize = 1 << 20;
        if !self.writes {
            return Err(Error::NotWritable);
        }
        if !self.waiter.is_here() {
            return Err(Errno::BADF.into());
        }
        self.lost.map_or(Ok(()), Err)?;
        if self.appends && self.writing.is_none() {
            return self.append(data, written);
        }
        for part in data.chunks(PART) {
            self.put_behind(at + *written as u64, part)?;
            *written += part.len();
        }
        Ok(())
    }

    fn settle(&mut self) {
        let _ = self.flush(); // kept, if it is of more than this call
    }

    fn flush(&mut self) -> Result<()> {
        if !self.waiter.is_here() {
            return Err(Errno::BADF.into());
        }
        self.end_writing()?;
        if let Err(e) = wait(&*self.waiter, self.file()?.flush()) {
            if !is_lasting(e) {
                return Err(e);
            }
            self.lost = self.lost.or(Some(e));
        }
        self.lost.map_or(Ok(()), Err)
    }

    fn sync(&mut self) -> Result<()> {
        wait(&*self.waiter, self.file()?.sync())
    }

    fn keeps(&self) -> bool {
        self.has_places
    }

    fn forget(&mut self) {
        self.drop_pieces(self.next());
    }

    fn length(&mut self) -> Result<u64> {
        if !self.has_places {
            return Err(Error::NotSeekable);
        }
        self.end_writing()?;
        Ok(wait(&*self.waiter, self.file()?.metadata())?.size)
    }

    fn remote_counts(&self) -> Option<Counts> {
        Some(self.counts)
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        if !self.waiter.is_here() {
            return Err(Errno::BADF.into());
        }
        self.source = None;
        let ended = self.end_writing();
        let file = self.file.take().ok_or(Errno::BADF)?;
        let closed = wait(&*self.waiter, file.close());
        self.lost.or(self.failed).or(ended.err()).map_or(closed, Err)
    }
}

impl Drop for Ninep {
    fn drop(&mut self) {
        if !self.waiter.is_here() {
            // The connection is the parent's, whose locks may never open here.
            std::mem::forget((self.source.take(), self.writing.take(), self.file.take()));
        }
    }
}
