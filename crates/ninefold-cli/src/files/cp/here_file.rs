//! A file of this machine that is being written by a copy: [`Sink`].
//!
//! A thread of its own makes the file under its part name, writes what it is given in order, and renames it. What lies
//! within the part's length was therefore written, whatever ended the copy; `--resume` goes on behind it. The part is
//! locked (flock(2)) while it is written, so that two copies cannot write the same one.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use ninefold::client::FileType;
use rustix::buffer::spare_capacity;
use rustix::fs::{Access, AtFlags, Mode, OFlags, accessat, fstat, ftruncate, openat};
use rustix::io::{Errno, pread, pwrite, write};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::blocks::{self, Blocks, Numbering};
use super::digest::Digest;
use super::facts::Facts;
use super::here::{self, Dir};
use super::here_part::{self, Claim, Opened};
use super::reader::CHUNK;
use super::trouble::Cause;
use crate::files::temporaries::Temporaries;
use crate::place::Place;

/// Pieces that wait for the disk.
const QUEUE: usize = 8;

/// Files that are written at a time: half of the threads that the runtime has for what waits (tokio's 512), each of which one of
/// them holds to its end. The others read, which those at work wait for.
const THREADS: usize = 256;

/// Of all copies of the process, whose threads they are.
static PLACES: Semaphore = Semaphore::const_new(THREADS);

/// What to write, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    pub to: To,
    pub source: Facts,
    /// What has the name now.
    pub old: Option<Facts>,
    /// Permissions of a file that is new.
    pub mode: u32,
    pub preserve: bool,
    /// Go on behind what an interrupted copy left.
    pub resume: bool,
    /// Leave what an interrupted copy can be gone on with.
    pub keep: bool,
    pub checksum: bool,
    /// The file as the user knows it.
    pub place: Place,
    pub temporaries: Temporaries,
}

impl Plan {
    /// Whether there is a part to be removed if nothing comes of it.
    fn makes_part(&self) -> bool {
        let replaces = self.old.as_ref().is_none_or(|old| matches!(old.kind, FileType::File | FileType::Symlink));
        matches!(self.to, To::Entry { .. }) && replaces && !self.keep
    }

    /// How messages name the part.
    fn shown(&self) -> String {
        match &self.to {
            To::Entry { part, .. } => self.place.beside(part.to_bytes()).to_string(),
            To::Direct(path) => path.display().to_string(),
        }
    }
}

/// Where a file is written.
#[derive(Clone, Debug)]
pub enum To {
    Entry {
        dir: Arc<Dir>,
        name: CString,
        part: CString,
    },
    /// A device or fifo that the user named.
    Direct(PathBuf),
}

/// A file that is being written. One that is dropped is given up.
#[derive(Debug)]
pub struct Sink {
    orders: mpsc::Sender<Order>,
    thread: JoinHandle<Result<Option<Cause>, Cause>>,
    claim: Arc<Claim>,
    pub begun: Begun,
}

/// What the writing begins with.
#[derive(Clone, Debug)]
pub struct Begun {
    /// So much of its beginning is there already.
    pub offset: u64,
    /// What is there of a part with gaps.
    pub blocks: Option<Blocks>,
    /// The name of what is gone on with, if anything is there.
    pub left: Option<Vec<u8>>,
    /// Why what is written is seen at once.
    pub in_place: Option<String>,
    /// From here on zeros that are not written read as zeros: before it lie old bytes, or what keeps no gaps.
    pub skips_from: u64,
}

impl Begun {
    /// Bytes that are there already.
    pub fn bytes(&self) -> u64 {
        self.blocks.as_ref().map_or(self.offset, Blocks::bytes)
    }
}

#[derive(Debug)]
enum Order {
    Data(Bytes),
    Skip(u64),
    Seek(u64),
    Mark(u64),
    Unmark(u64),
    /// The file is whole; with what its content must come to when it is read back.
    Finish(Option<Digest>),
}

impl Sink {
    /// Opens what is written to.
    pub async fn begin(plan: Plan) -> Result<Sink, Cause> {
        let place = PLACES.acquire().await;
        let (orders, received) = mpsc::channel(QUEUE);
        let (tell, begun) = oneshot::channel();
        let claim = Arc::new(Claim::default());
        // The command's end waits for the thread's, so that no part is made behind its back.
        let entry = plan.makes_part().then(|| plan.temporaries.file(plan.shown()));
        let thread = tokio::task::spawn_blocking({
            let claim = claim.clone();
            move || {
                let result = run(&plan, &claim, tell, received);
                if let Some(entry) = entry.filter(|_| !claim.is_left()) {
                    entry.gone();
                }
                drop(place);
                result
            }
        });
        match begun.await {
            Ok(begun) => Ok(Sink { orders, thread, claim, begun }),
            Err(_) => Err(ended(thread).await),
        }
    }

    pub async fn data(&mut self, data: Bytes) -> Result<(), Cause> {
        self.order(Order::Data(data)).await
    }

    pub async fn skip(&mut self, zeros: u64) -> Result<(), Cause> {
        self.order(Order::Skip(zeros)).await
    }

    /// What comes next goes to `offset`.
    pub async fn seek(&mut self, offset: u64) -> Result<(), Cause> {
        self.order(Order::Seek(offset)).await
    }

    /// What is written from `from` on will have gaps until all of it is: until then the part has a record of what is there, [`Blocks`]. All before is there;
    /// what lies behind, of a part that is gone on with, is written anew, and counts as missing.
    pub async fn mark(&mut self, from: u64) -> Result<(), Cause> {
        self.order(Order::Mark(from)).await
    }

    /// All from `offset` on is written anew, in order: a part with a record becomes one without.
    pub async fn unmark(&mut self, offset: u64) -> Result<(), Cause> {
        self.order(Order::Unmark(offset)).await
    }

    async fn order(&mut self, order: Order) -> Result<(), Cause> {
        match self.orders.send(order).await {
            Ok(()) => Ok(()),
            Err(_) => Err(ended(&mut self.thread).await),
        }
    }

    /// The file is whole: it gets its attributes, then its name. Gives what could not be preserved.
    pub async fn finish(mut self, digest: Option<Digest>) -> Result<Option<Cause>, Cause> {
        self.order(Order::Finish(digest)).await?;
        match (&mut self.thread).await {
            Ok(result) => result,
            Err(e) => Err(Cause::words(e.to_string())),
        }
    }

    /// The part is removed, even one that could be gone on with.
    pub fn discard(&self) {
        self.claim.give_up(false);
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.claim.give_up(true);
    }
}

/// Why the thread ended.
async fn ended(thread: impl Future<Output = Result<Result<Option<Cause>, Cause>, tokio::task::JoinError>>) -> Cause {
    match thread.await {
        Ok(Err(cause)) => cause,
        Ok(Ok(_)) => Cause::words("the writing ended too soon"),
        Err(e) => Cause::words(e.to_string()),
    }
}

/// The thread.
fn run(
    plan: &Plan,
    claim: &Claim,
    tell: oneshot::Sender<Begun>,
    mut orders: mpsc::Receiver<Order>,
) -> Result<Option<Cause>, Cause> {
    let (mut file, begun) = open(plan, claim)?;
    if tell.send(begun).is_err() {
        claim.give_up(true);
        return Ok(None);
    }
    let result = file.obey(plan, claim, &mut orders);
    if let Err(cause) = &result {
        claim.give_up(cause.leaves_what_can_be_gone_on_with());
    }
    result
}

/// The file being written.
struct Writing {
    fd: OwnedFd,
    at: u64,
    /// Where the last byte was written.
    end: u64,
    is_plain: bool,
    in_place: bool,
    /// See [`Sink::mark`].
    record: Option<Record>,
}

/// What is entered into a part's record.
struct Record {
    blocks: Blocks,
    size: u64,
    /// Bytes of each block that were written. None is written twice.
    written: Vec<u64>,
    /// Blocks of which all that was written came in order: they need not be read back for their numbers.
    in_order: BTreeMap<usize, Numbering>,
}

impl Record {
    fn new(size: u64, blocks: Blocks) -> Record {
        let written = vec![0; blocks.count()];
        Record { blocks, size, written, in_order: BTreeMap::new() }
    }
}

impl Writing {
    fn obey(&mut self, plan: &Plan, claim: &Claim, orders: &mut mpsc::Receiver<Order>) -> Result<Option<Cause>, Cause> {
        while let Some(order) = orders.blocking_recv() {
            match order {
                Order::Data(data) => self.write(&data)?,
                Order::Skip(zeros) => {
                    self.at += zeros;
                    self.enter(self.at - zeros, zeros, None)?;
                }
                Order::Seek(offset) => self.at = offset,
                Order::Mark(from) => self.mark(plan, from)?,
                Order::Unmark(offset) => {
                    if self.record.take().is_some() {
                        ftruncate(&self.fd, offset)?;
                        (self.at, self.end) = (offset, offset);
                    }
                }
                Order::Finish(digest) => return self.finish(plan, claim, digest),
            }
        }
        // Nobody waits any more.
        Ok(None)
    }

    /// Makes the record. What is there already, up to `from`, is entered where it may be gone on with: it is read back for that.
    fn mark(&mut self, plan: &Plan, from: u64) -> Result<(), Cause> {
        if self.record.is_some() {
            return Ok(());
        }
        let size = plan.source.size;
        ftruncate(&self.fd, blocks::marked_length(size))?;
        self.put(size, blocks::opening())?;
        let mut record = Record::new(size, Blocks::none(size));
        for block in 0..record.blocks.count() {
            let (start, end) = record.blocks.extent(block);
            if start >= from {
                break;
            }
            record.written[block] = end.min(from) - start;
            if end <= from && plan.keep {
                self.complete(&mut record, block)?;
            }
        }
        self.record = Some(record);
        Ok(())
    }

    /// So many bytes were written at `offset`, `data` or zeros: the blocks that are whole by that are entered.
    fn enter(&mut self, offset: u64, length: u64, data: Option<&[u8]>) -> Result<(), Cause> {
        let Some(mut record) = self.record.take() else { return Ok(()) };
        let mut at = offset;
        while at < offset + length {
            let block = (at / blocks::BLOCK) as usize;
            let Some(written) = record.written.get_mut(block) else { break };
            let (start, end) = record.blocks.extent(block);
            let step = (offset + length).min(end).saturating_sub(at).max(1);
            if *written == 0 {
                record.in_order.insert(block, Numbering::new(start));
            }
            let part = data.map(|data| &data[(at - offset) as usize..(at + step - offset) as usize]);
            let is_next = |numbering: &mut Numbering| part.is_some_and(|part| numbering.takes(part, at));
            if !record.in_order.get_mut(&block).is_some_and(is_next) {
                record.in_order.remove(&block);
            }
            *written += step;
            if *written == end - start {
                self.complete(&mut record, block)?;
            }
            at += step;
        }
        self.record = Some(record);
        Ok(())
    }

    /// All of a block was written.
    fn complete(&self, record: &mut Record, block: usize) -> Result<(), Cause> {
        let (start, end) = record.blocks.extent(block);
        let number = match record.in_order.remove(&block) {
            Some(numbering) => numbering.number(),
            None => blocks::number_of(&here_part::read_at(&self.fd, start, end - start)?),
        };
        record.blocks.enter(block, number);
        self.put(blocks::place(record.size, block), &number.to_le_bytes())
    }

    /// Writes a few bytes, wherever it is at.
    fn put(&self, mut at: u64, mut data: &[u8]) -> Result<(), Cause> {
        while !data.is_empty() {
            match pwrite(&self.fd, data, at) {
                Ok(0) => return Err(Cause::Here(ninefold::proto::Errno::EIO)),
                Ok(n) => {
                    data = &data[n..];
                    at += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn write(&mut self, mut data: &[u8]) -> Result<(), Cause> {
        let (all, offset, length) = (data, self.at, data.len() as u64);
        while !data.is_empty() {
            let written = if self.is_plain { pwrite(&self.fd, data, self.at) } else { write(&self.fd, data) };
            match written {
                Ok(0) => return Err(Cause::words("nothing of what is written is taken, and no error is told")),
                Ok(n) => {
                    data = &data[n..];
                    self.at += n as u64;
                    self.end = self.at;
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.enter(offset, length, Some(all))
    }

    fn finish(&mut self, plan: &Plan, claim: &Claim, digest: Option<Digest>) -> Result<Option<Cause>, Cause> {
        if self.is_plain && (self.in_place || self.record.is_some() || self.at > self.end) {
            ftruncate(&self.fd, self.at)?;
        }
        if let Some(expected) = digest.filter(|_| self.is_plain) {
            expected.compare(&digest_of(&self.fd)?)?;
        }
        let preserved = match (&plan.old, plan.preserve) {
            (_, true) if self.is_plain => here::preserve(std::os::fd::AsFd::as_fd(&self.fd), &plan.source).err(),
            _ => None,
        };
        self.close()?;
        match &plan.to {
            To::Entry { name, .. } if !self.in_place => claim.rename(name)?,
            _ => {}
        }
        Ok(preserved)
    }

    /// Some file systems tell only at a close that they could not write (close(2): NFS, quotas). A copy of the descriptor
    /// is closed, because the lock on the part must last until it has its name.
    fn close(&self) -> Result<(), Cause> {
        let copy = self.fd.try_clone()?;
        match nix::unistd::close(copy.into_raw_fd()) {
            // Closed all the same.
            Ok(()) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(e) => Err(std::io::Error::from(e).into()),
        }
    }
}

/// The content of a file, read back.
pub fn digest_of(fd: &OwnedFd) -> Result<Digest, Cause> {
    let (mut digest, mut at, mut data) = (Digest::new(), 0, Vec::with_capacity(CHUNK));
    loop {
        data.clear();
        match pread(fd, spare_capacity(&mut data), at) {
            Ok(0) => return Ok(digest),
            Ok(n) => {
                digest.data(&data);
                at += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn open(plan: &Plan, claim: &Claim) -> Result<(Writing, Begun), Cause> {
    let (dir, name) = match &plan.to {
        To::Entry { dir, name, .. } => (dir, name),
        To::Direct(path) => {
            let writing =
                Writing { fd: here::open_direct(path)?, at: 0, end: 0, is_plain: false, in_place: true, record: None };
            return Ok((writing, in_place("it is no plain file".to_owned(), u64::MAX)));
        }
    };
    let old = plan.old.as_ref().filter(|old| old.kind != FileType::Symlink);
    let why = match old {
        Some(old) if old.is_dir() => return Err(Cause::words("a directory is not overwritten by a file")),
        Some(old) if old.kind != FileType::File => "it is no plain file".to_owned(),
        Some(old) if old.nlink.is_some_and(|names| names > 1) => {
            format!("it has {} names", old.nlink.unwrap_or_default())
        }
        old => {
            if old.is_some() {
                // As cp(1) does not overwrite what may not be written, although its directory may.
                accessat(dir, name, Access::WRITE_OK, AtFlags::EACCESS)?;
            }
            match here_part::open(plan, old) {
                Ok(Opened { part, fd, offset, blocks }) => {
                    let record = blocks.clone().map(|blocks| Record::new(plan.source.size, blocks));
                    let writing = Writing { fd, at: offset, end: offset, is_plain: true, in_place: false, record };
                    let begun = Begun { offset, blocks, left: None, in_place: None, skips_from: 0 };
                    let left = (begun.bytes() > 0).then(|| part.name.to_bytes().to_vec());
                    claim.set(part);
                    return Ok((writing, Begun { left, ..begun }));
                }
                Err(cause) if old.is_some() && cause.is_of_the_directory() => {
                    format!("it cannot be replaced: {cause}")
                }
                Err(cause) => return Err(cause),
            }
        }
    };
    let is_plain = old.is_some_and(|old| old.kind == FileType::File);
    let access = if is_plain && plan.checksum { OFlags::RDWR } else { OFlags::WRONLY };
    // Not emptied: it may be the source by another name, of which every byte is then written where it was read.
    let flags = access | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty())?;
    let skips_from = if is_plain { fstat(&fd)?.st_size.max(0).cast_unsigned() } else { u64::MAX };
    if is_plain && skips_from > 0 {
        // Longer than what it had and than what it gets: if the copy is interrupted, its size tells that it is neither.
        ftruncate(&fd, skips_from.max(plan.source.size).saturating_add(1))?;
    }
    Ok((Writing { fd, at: 0, end: 0, is_plain, in_place: true, record: None }, in_place(why, skips_from)))
}

fn in_place(why: String, skips_from: u64) -> Begun {
    Begun { offset: 0, blocks: None, left: None, in_place: Some(why), skips_from }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::files::cp::off::off;

    /// Of a file of so many bytes in `dir`, which is `here`.
    fn plan(here: &Path, dir: &Arc<Dir>, name: &str, size: u64) -> Plan {
        let part = CString::new(format!("part of {name}")).unwrap();
        Plan {
            to: To::Entry { dir: dir.clone(), name: CString::new(name).unwrap(), part },
            source: Facts { size, ..Facts::from(&fstat(dir.as_fd()).unwrap()) },
            old: None,
            mode: 0o600,
            preserve: false,
            resume: false,
            keep: false,
            checksum: false,
            place: Place::Local(here.join(name)),
            temporaries: Temporaries::default(),
        }
    }

    #[tokio::test]
    async fn every_block_is_entered_with_what_is_in_the_file_in_whatever_order_it_was_written() {
        const HALF: u64 = blocks::BLOCK / 2;
        const SIZE: u64 = 10 * HALF + 5;
        let here = tempfile::tempdir().unwrap();
        let dir = Arc::new(Dir::named(here.path()).unwrap());
        let mut sink = Sink::begin(Plan { keep: true, ..plan(here.path(), &dir, "f", SIZE) }).await.unwrap();
        sink.mark(0).await.unwrap();
        let content: Vec<u8> = (0..SIZE).map(|at| ((at * at) >> 9) as u8).collect();
        let mut expected = content.clone();
        let mut write = async |from: u64, to: u64| {
            sink.seek(from).await.unwrap();
            sink.data(Bytes::copy_from_slice(&content[from as usize..to as usize])).await.unwrap();
        };
        // In order, the second piece of two blocks; the rest of the second block behind a jump.
        write(0, HALF - 1).await;
        write(HALF - 1, 2 * HALF + 7).await;
        write(3 * HALF, 4 * HALF).await;
        write(2 * HALF + 7, 3 * HALF).await;
        // The second half first; a gap of zeros; all at once; and the short one at the end.
        write(5 * HALF, 6 * HALF).await;
        write(4 * HALF, 5 * HALF).await;
        write(6 * HALF, 6 * HALF + 9).await;
        sink.skip(HALF).await.unwrap();
        expected[6 * HALF as usize + 9..][..HALF as usize].fill(0);
        sink.data(Bytes::copy_from_slice(&content[7 * HALF as usize + 9..8 * HALF as usize])).await.unwrap();
        let rest = Bytes::copy_from_slice(&content[8 * HALF as usize..]);
        sink.data(rest).await.unwrap();
        // It is given up behind the last of them.
        sink.orders = mpsc::channel(1).0;
        assert!((&mut sink.thread).await.unwrap().unwrap().is_none());
        let part = std::fs::read(here.path().join("part of f")).unwrap();
        let (file, record) = part.split_at(SIZE as usize);
        assert!(file == expected);
        let blocks = Blocks::parse(SIZE, record).unwrap();
        for block in 0..6 {
            let (start, end) = blocks.extent(block);
            let number = blocks::number_of(&file[start as usize..end as usize]);
            assert_eq!(blocks.number(block), Some(number), "block {block}");
        }
    }

    #[tokio::test]
    async fn a_record_that_is_made_within_a_file_has_what_was_written_before_and_what_is_missing() {
        const BLOCK: u64 = blocks::BLOCK;
        const SIZE: u64 = 4 * BLOCK + 5;
        let content: Vec<u8> = (0..SIZE).map(|at| ((at * at) >> 9) as u8).collect();
        // Within a block, at its end, in the short one at the end, and behind it; and whether the rest of that block comes.
        let places = [BLOCK + 7, 2 * BLOCK, 4 * BLOCK + 3, SIZE];
        // What is not gone on with is not read back.
        let ways = [(false, true), (true, true), (true, false)];
        for (at, (comes, keep)) in places.into_iter().flat_map(|at| ways.map(|way| (at, way))) {
            let here = tempfile::tempdir().unwrap();
            let dir = Arc::new(Dir::named(here.path()).unwrap());
            let mut sink = Sink::begin(Plan { keep, ..plan(here.path(), &dir, "f", SIZE) }).await.unwrap();
            sink.data(Bytes::copy_from_slice(&content[..at as usize])).await.unwrap();
            sink.mark(at).await.unwrap();
            let end = at.next_multiple_of(BLOCK).min(SIZE);
            if comes {
                // All but a byte, and that.
                for (from, to) in [(at + 1, end), (at, at + 1)].into_iter().filter(|(from, to)| from < to && *to <= end)
                {
                    sink.seek(from).await.unwrap();
                    sink.data(Bytes::copy_from_slice(&content[from as usize..to as usize])).await.unwrap();
                }
            }
            sink.orders = mpsc::channel(1).0;
            assert!((&mut sink.thread).await.unwrap().unwrap().is_none());
            let part = std::fs::read(here.path().join("part of f")).unwrap();
            let (file, record) = part.split_at(SIZE as usize);
            let found = Blocks::parse(SIZE, record).unwrap();
            for block in 0..found.count() {
                let (start, stop) = found.extent(block);
                let is_there = if stop <= at { keep } else { comes && stop <= end };
                let number = blocks::number_of(&content[start as usize..stop as usize]);
                assert_eq!(found.number(block), is_there.then_some(number), "block {block} of {at}, {comes}");
                assert!(!is_there || file[start as usize..stop as usize] == content[start as usize..stop as usize]);
            }
        }
    }

    #[tokio::test]
    async fn what_is_written_anew_of_a_part_that_is_gone_on_with_is_not_there_before_all_of_it_is() {
        const BLOCK: u64 = blocks::BLOCK;
        const SIZE: u64 = 3 * BLOCK;
        let content: Vec<u8> = (0..SIZE).map(|at| ((at * at) >> 9) as u8).collect();
        // What an interrupted copy left ends in the middle of a block, which is begun anew; so much of that comes.
        for comes in [BLOCK / 4, BLOCK / 2, BLOCK - 1, BLOCK] {
            let here = tempfile::tempdir().unwrap();
            let dir = Arc::new(Dir::named(here.path()).unwrap());
            let plan = || Plan { keep: true, resume: true, ..plan(here.path(), &dir, "f", SIZE) };
            let left = BLOCK + BLOCK / 2;
            std::fs::write(here.path().join("part of f"), &content[..left as usize]).unwrap();
            let mut sink = Sink::begin(plan()).await.unwrap();
            assert_eq!((sink.begun.offset, sink.begun.blocks.is_none()), (left, true));
            sink.mark(BLOCK).await.unwrap();
            sink.seek(BLOCK).await.unwrap();
            sink.data(Bytes::copy_from_slice(&content[BLOCK as usize..(BLOCK + comes) as usize])).await.unwrap();
            sink.orders = mpsc::channel(1).0;
            assert!((&mut sink.thread).await.unwrap().unwrap().is_none());
            drop(sink);
            let part = std::fs::read(here.path().join("part of f")).unwrap();
            let found = Blocks::parse(SIZE, part.split_at(SIZE as usize).1).unwrap();
            let there = [true, comes == BLOCK, false];
            for (block, is_there) in there.into_iter().enumerate() {
                let (start, end) = found.extent(block);
                let number = blocks::number_of(&content[start as usize..end as usize]);
                assert_eq!(found.number(block), is_there.then_some(number), "block {block}, {comes}");
            }
        }
    }

    #[tokio::test]
    async fn files_that_wait_for_a_thread_while_they_are_written_all_come_to_an_end() {
        // More than tokio has threads.
        const FILES: usize = 600;
        let here = tempfile::tempdir().unwrap();
        let dir = Arc::new(Dir::named(here.path()).unwrap());
        let write = async |i: usize| {
            let plan = plan(here.path(), &dir, &format!("f{i}"), 1);
            let mut sink = Sink::begin(plan).await.unwrap();
            // As a copy does that looks at what another left, while others begin.
            off(|| Ok(())).await.unwrap();
            sink.data(Bytes::from_static(b"x")).await.unwrap();
            assert!(sink.finish(None).await.unwrap().is_none());
        };
        // All begin before the first goes on.
        let all = tokio::task::unconstrained(futures_util::future::join_all((0..FILES).map(write)));
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("an end in time");
        assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), FILES);
    }
}
