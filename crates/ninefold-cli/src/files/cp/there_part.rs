//! The part of a file that is copied to a server: made, or found again by `--resume`.
//!
//! A part that is not kept has a random name, and no other copy knows of it. One that is to be gone on with has the name
//! that every copy of its source looks for: [`open`] locks it where the dialect has locks (.L), and elsewhere watches
//! whether it grows. Such a part is removed by its name, and only while that is the name of the file that was opened: by
//! its fid it might be removed under the name that another copy has given it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ninefold::client::{Error, Extent, File, FileType, Lock, LockKind, Metadata, Mode, Stretch};
use ninefold::proto::attr::SetAttr;
use ninefold::proto::{Dialect, Errno};
use tokio::sync::oneshot;

use super::blocks::{BLOCK, Blocks, fits, marked_length, record_length};
use super::facts::Facts;
use super::off::off;
use super::pour::{read_at, stretch, stretches};
use super::there_file::{Plan, SPAN};
use super::trouble::Cause;
use super::turn;
use crate::files::temporaries::Entry;

/// Times that a part of the same name is removed before it is somebody's doing.
const ATTEMPTS: usize = 3;

/// Bytes of a stretch that leave with the question for its stream, if they may: more than a connection has on the way before the first are acknowledged
/// (RFC 6928), which takes as long as the answer.
const HEAD: u64 = 64 * 1024;

/// Stretches of which they are read: as many as the streams of a copy, if nothing else is said.
const HEADS: usize = 8;

/// How long they may take: about a round trip of the shortest way that is worth several streams, which is what they save.
const HEADS_WITHIN: Duration = Duration::from_millis(8);

/// How long a part that was left is watched where it cannot be locked: a copy under way writes several times in it, unless
/// its connection is at a halt.
const WATCH: Duration = Duration::from_secs(1);

/// A part, open.
#[derive(Debug)]
pub struct Part {
    pub file: File,
    /// Of one that is removed unless it is finished.
    pub entry: Option<Entry>,
    /// Of one that an interrupted copy left: up to where it can be relied on, and what was known of it.
    pub left: Option<(u64, Arc<Metadata>)>,
    /// Of one with gaps, what is there.
    pub blocks: Option<Blocks>,
    /// Nobody else writes to it, who could write behind its end when it has its name.
    pub is_locked: bool,
    /// Streams of all of the file that were asked for with its making, in equal [stretches](super::pour::stretch).
    pub streams: usize,
}

impl Part {
    /// One that was made just now, with what removes it if it is to be removed.
    pub fn made(file: File, entry: Option<Entry>, streams: usize) -> Part {
        Part { file, entry, left: None, blocks: None, is_locked: false, streams }
    }
}

/// What has a part's name.
enum Left {
    Nothing,
    /// It cannot be gone on with.
    Useless,
    Part(Part),
}

/// Makes the part, or opens the one that an interrupted copy left. In a task, because a create that was given up may have
/// made a file.
pub async fn open(plan: &Plan, old: Option<&Facts>) -> Result<Part, Cause> {
    let (tell, made) = oneshot::channel();
    let (temporaries, plan, old) = (plan.temporaries.clone(), plan.clone(), old.cloned());
    temporaries.spawn(turn::kept(async move {
        let made = make(&plan, old.as_ref()).await;
        if let Err(Ok(Part { file, entry: Some(entry), .. })) = tell.send(made) {
            entry.removed(&remove(&plan, file).await);
        }
    }));
    made.await.unwrap_or(Err(Cause::Here(Errno::ECANCELED)))
}

/// Whether the file still has the name of the part.
pub async fn has_name(plan: &Plan, file: &File) -> Result<bool, Error> {
    match plan.dir.walk(&plan.part).await {
        Ok(node) => Ok(node.qid().path == file.qid().path),
        Err(e) if e.is_not_found() => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes the part, unless another copy has taken it.
pub async fn remove(plan: &Plan, file: File) -> Result<(), Error> {
    if !plan.keep {
        return file.remove().await;
    }
    if has_name(plan, &file).await? { plan.dir.node.unlink(&plan.part, false).await } else { Ok(()) }
}

async fn make(plan: &Plan, old: Option<&Facts>) -> Result<Part, Cause> {
    for _ in 0..ATTEMPTS {
        if plan.keep {
            match left(plan, old).await? {
                Left::Nothing => {}
                Left::Useless => match plan.dir.node.unlink(&plan.part, false).await {
                    Err(e) if !e.is_not_found() => return Err(e.into()),
                    _ => {}
                },
                Left::Part(part) => return Ok(part),
            }
        }
        match create(plan, old).await {
            Ok(part) => return Ok(part),
            // Of texts that servers have for a name that exists not all are known.
            Err(Cause::There(e @ Error::Refused(_))) if plan.keep => {
                let exists = e.errno() == Errno::EEXIST || plan.dir.node.client().dialect() != Dialect::Linux;
                if !exists || plan.dir.walk(&plan.part).await.is_err() {
                    return Err(e.into());
                }
            }
            Err(cause) => return Err(cause),
        }
    }
    Err(Cause::words("somebody makes files of its temporary name"))
}

/// Stretches with the first bytes of the first of them, where a disk does not take longer than they save: what cannot be read is told of by who
/// reads it in its turn.
async fn with_heads(stretches: Vec<(u64, u64)>, from: &Arc<OwnedFd>) -> Vec<Stretch> {
    let heads: Vec<_> = stretches.iter().take(HEADS).copied().collect();
    let from = from.clone();
    let read = off(move || {
        let head = |(offset, end)| read_at(&from, offset, HEAD.min(end - offset) as usize).unwrap_or_default();
        Ok(heads.into_iter().map(head).collect::<Vec<_>>())
    });
    let heads = tokio::time::timeout(HEADS_WITHIN, read).await.ok().and_then(Result::ok).unwrap_or_default();
    let mut heads = heads.into_iter();
    let stretch = |(offset, end)| Stretch { offset, length: end - offset, head: heads.next().unwrap_or_default() };
    stretches.into_iter().map(stretch).collect()
}

/// What each of so many streams brings of a file; with the first bytes where it is told what they are read from.
pub async fn parts(size: u64, streams: usize, from: Option<&Arc<OwnedFd>>) -> Vec<Stretch> {
    if streams == 0 {
        return Vec::new();
    }
    let stretches: Vec<_> = stretches(0, size, stretch(size, streams)).collect();
    if let Some(from) = from {
        return with_heads(stretches, from).await;
    }
    let stretch = |(offset, end)| Stretch { offset, length: end - offset, ..Stretch::default() };
    stretches.into_iter().map(stretch).collect()
}

/// Makes the part anew.
async fn create(plan: &Plan, old: Option<&Facts>) -> Result<Part, Cause> {
    let dir = &plan.dir;
    let client = turn::fork(dir.node.client());
    let perm = match old {
        Some(old) if !plan.preserve => old.permissions(),
        _ => plan.perm,
    };
    let size = plan.source.size;
    let streams = plan.up.as_ref().map_or(0, |up| client.streams_to_write(size, up.streams));
    // What replaces another file is nobody else's to read before it has that one's owner: its bytes come behind.
    let from = plan.up.as_ref().filter(|_| old.is_none()).map(|up| &up.from);
    let parts = parts(size, streams, from).await;
    let entry = plan.enter();
    let created = plan.temporaries.unless_cut(dir.node.make_file(&client, &plan.part, perm, &parts)).await;
    let mut file = match created {
        Some(Ok(file)) => file,
        Some(Err(e @ Error::Refused(_))) => {
            entry.gone();
            return Err(e.into());
        }
        unknown => {
            match unknown {
                // It may be another's, and can be gone on with.
                _ if plan.keep => entry.gone(),
                None | Some(Err(Error::TimedOut(_))) => entry.find_out(&dir.node, &plan.part).await,
                _ => {}
            }
            return Err(unknown.and_then(Result::err).map_or(Cause::Here(Errno::ECANCELED), Cause::from));
        }
    };
    // Whoever has found it already and is faster has it.
    let locked = if plan.keep { lock(&file).await? } else { Locked::Cannot };
    if locked == Locked::Others {
        entry.gone();
        return Err(busy());
    }
    let is_locked = locked == Locked::Mine;
    if let Some(old) = old.filter(|_| !plan.preserve)
        && let Err(e) = make_alike(&file, old).await
    {
        entry.removed(&remove(plan, file).await);
        return Err(e.into());
    }
    if plan.keep {
        entry.gone();
        return Ok(Part { is_locked, ..Part::made(file, None, streams) });
    }
    file.remove_on_drop();
    Ok(Part { is_locked, ..Part::made(file, Some(entry), streams) })
}

/// What has the name of the part; where an interrupted copy can be gone on with, up to where it can be relied on.
async fn left(plan: &Plan, old: Option<&Facts>) -> Result<Left, Cause> {
    let node = match plan.dir.walk(&plan.part).await {
        Ok(node) => node,
        Err(e) if e.is_not_found() => return Ok(Left::Nothing),
        Err(e) => return Err(e.into()),
    };
    let before = node.metadata().await?;
    if before.kind != FileType::File {
        return Ok(Left::Useless);
    }
    let Ok(file) = node.open(Mode::WRITE).await else { return Ok(Left::Useless) };
    let locked = lock(&file).await?;
    let is_locked = locked == Locked::Mine;
    match locked {
        Locked::Mine => {}
        Locked::Others => return Err(busy()),
        Locked::Cannot => {
            tokio::time::sleep(WATCH).await;
            if !file.metadata().await?.is_of_same_file(&before) {
                return Err(busy());
            }
        }
    }
    // Whoever held it before may have given it its name or removed it.
    if !has_name(plan, &file).await? {
        return Ok(Left::Nothing);
    }
    let facts = Facts::from(file.metadata().await?);
    let is_marked = fits(plan.source.size) && facts.size == marked_length(plan.source.size);
    let blocks = if plan.resume && is_marked && is_locked { blocks(plan, &file).await? } else { None };
    if !plan.resume || facts.size > plan.source.size && blocks.is_none() {
        return Ok(Left::Useless);
    }
    let offset = blocks.as_ref().map_or(facts.size.saturating_sub(SPAN), Blocks::beginning);
    if blocks.is_none() && offset < facts.size {
        file.set(&SetAttr { size: Some(offset), ..SetAttr::default() }).await?;
    }
    // The copy that left it may have been told otherwise.
    match old {
        _ if plan.preserve => {}
        Some(old) => make_alike(&file, old).await?,
        None if facts.permissions() == plan.mode => {}
        None => file.set(&SetAttr { mode: Some(plan.mode), ..SetAttr::default() }).await?,
    }
    match facts.metadata.map(|metadata| (offset, metadata)) {
        Some(left) => Ok(Left::Part(Part { left: Some(left), blocks, is_locked, ..Part::made(file, None, 0) })),
        None => Ok(Left::Useless),
    }
}

/// What the record of a part says is there. What a disk lost when its machine went down is a hole, as far as the server can tell.
async fn blocks(plan: &Plan, written: &File) -> Result<Option<Blocks>, Cause> {
    let size = plan.source.size;
    let Ok(file) = plan.dir.walk(&plan.part).await?.open(Mode::READ).await else { return Ok(None) };
    if file.qid().path != written.qid().path {
        return Ok(None);
    }
    let (mut record, length) = (Vec::new(), record_length(size));
    while (record.len() as u64) < length {
        let left = u32::try_from(length - record.len() as u64).unwrap_or(u32::MAX).min(file.read_max());
        let data = file.read_at(size + record.len() as u64, left).await?;
        if data.is_empty() {
            break;
        }
        record.extend_from_slice(&data);
    }
    let Some(mut blocks) = Blocks::parse(size, &record) else { return Ok(None) };
    for (mut at, end) in blocks.runs(true) {
        while at < end {
            let (from, to) = match file.seek(Extent::Hole, at).await {
                Ok(Some(hole)) if (at..end).contains(&hole) => {
                    // At least a byte of it is one.
                    let data = file.seek(Extent::Data, hole).await.ok().flatten().unwrap_or(end);
                    (hole, data.clamp(hole + 1, end))
                }
                Ok(_) => break,
                Err(Error::Unsupported { .. }) => break,
                Err(Error::Refused(said)) if said.errno == Errno::EOPNOTSUPP => break,
                Err(Error::Refused(_)) => (at, end),
                Err(e) => return Err(e.into()),
            };
            (from / BLOCK..to.div_ceil(BLOCK)).for_each(|block| blocks.strike(block as usize));
            at = to.next_multiple_of(BLOCK);
        }
    }
    Ok(Some(blocks))
}

fn busy() -> Cause {
    Cause::words("another copy of it is under way")
}

/// Who has the lock on a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Locked {
    Mine,
    Others,
    /// The dialect or the server has no locks.
    Cannot,
}

/// Locks all of a part, until its fid is clunked.
async fn lock(file: &File) -> Result<Locked, Error> {
    if file.client().dialect() != Dialect::Linux {
        return Ok(Locked::Cannot);
    }
    // Processes of two machines may have the same number, and two machines the same name.
    let client = format!("ninefold-{:032x}", fastrand::u128(..)).into_bytes();
    let lock = Lock { kind: LockKind::Exclusive, start: 0, length: 0, process: std::process::id(), client };
    match file.try_lock(&lock).await {
        Ok(true) => Ok(Locked::Mine),
        Ok(false) => Ok(Locked::Others),
        Err(Error::Refused(_) | Error::Unsupported { .. }) => Ok(Locked::Cannot),
        Err(e) => Err(e),
    }
}

/// Gives a new file the owner and the permissions of the one that it replaces.
async fn make_alike(file: &File, old: &Facts) -> Result<(), Error> {
    let new = Facts::from(file.metadata().await?);
    let owned_alike = (new.uid, new.gid) == (old.uid, old.gid);
    if !owned_alike {
        file.set(&SetAttr { uid: old.uid, gid: old.gid, ..SetAttr::default() }).await?;
    }
    // A change of owner may have taken bits away.
    if !owned_alike || new.permissions() != old.permissions() {
        file.set(&SetAttr { mode: Some(old.permissions()), ..SetAttr::default() }).await?;
    }
    Ok(())
}
