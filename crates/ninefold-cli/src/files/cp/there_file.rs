//! A file of a server that is being written by a copy: [`Sink`].
//!
//! Several writes are on the way at a time, so what an interrupted copy left may have gaps near its end: never further
//! from it than [`SPAN`], which `--resume` therefore writes again.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use ninefold::client::{Error, File, FileType, Mode, Suspicion};
use ninefold::proto::attr::SetAttr;
use ninefold::proto::{Dialect, Errno};
use tokio::sync::oneshot;

use super::digest::Digest;
use super::facts::Facts;
use super::here_file::Begun;
use super::reader::{Content, Piece};
use super::there::{Dir, Owners, Subject};
use super::trouble::Cause;
use crate::files::replace::{self, InPlace};
use crate::files::temporaries::{Entry, Temporaries};

/// Bytes that are on the way at a time.
const WINDOW: u64 = 8 << 20;

/// Times that a part of the same name is removed before it is somebody's doing.
const ATTEMPTS: usize = 3;

/// How far the last byte that the server has may lie behind the first that it lacks: what is on the way, and as much
/// again of zeros that are not sent.
const SPAN: u64 = 2 * WINDOW;

/// What to write, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    pub dir: Arc<Dir>,
    pub name: Vec<u8>,
    pub part: Vec<u8>,
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
    pub owners: Arc<Owners>,
    pub temporaries: Temporaries,
}

/// A file that is being written. One that is dropped is given up.
#[derive(Debug)]
pub struct Sink {
    plan: Plan,
    /// There until the end.
    file: Option<Arc<File>>,
    kind: Kind,
    writes: Writes,
    at: u64,
    /// Where the last byte was written, or is about to be.
    end: u64,
    /// Zeros that were skipped since the server had everything.
    skipped: u64,
    pub begun: Begun,
}

/// What is written to.
#[derive(Debug)]
struct Kind {
    /// It gets its name at the end.
    is_part: bool,
    is_plain: bool,
    /// Of a part that is removed unless it is finished.
    entry: Option<Entry>,
}

/// Writes that are not answered.
#[derive(Default)]
struct Writes {
    on_the_way: FuturesUnordered<BoxFuture<'static, Result<u64, Error>>>,
    bytes: u64,
}

impl std::fmt::Debug for Writes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writes").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Writes {
    /// Waits until no more than `bytes` are on the way.
    async fn down_to(&mut self, bytes: u64) -> Result<(), Error> {
        while self.bytes > bytes {
            match self.on_the_way.next().await {
                Some(written) => self.bytes -= written?,
                None => break,
            }
        }
        Ok(())
    }
}

/// All of `data`, although the server may take it in parts.
async fn write_all(file: Arc<File>, mut offset: u64, mut data: Bytes) -> Result<u64, Error> {
    let length = data.len() as u64;
    while !data.is_empty() {
        let took = file.write_at(offset, data.clone()).await?;
        if took == 0 {
            return Err(Suspicion::NoProgress.into());
        }
        let _ = data.split_to((took as usize).min(data.len()));
        offset += u64::from(took);
    }
    Ok(length)
}

impl Sink {
    /// Opens what is written to.
    pub async fn begin(plan: Plan) -> Result<Sink, Cause> {
        let old = plan.old.as_ref().filter(|old| old.kind != FileType::Symlink);
        let why = match old {
            Some(old) if old.is_dir() => return Err(Cause::words("a directory is not overwritten by a file")),
            Some(old) if old.kind != FileType::File || old.has_rules_of_its_own => InPlace::NotPlain.to_string(),
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
                match open_part(&plan, old).await {
                    Ok((file, entry, offset)) => {
                        let begun = Begun { offset, in_place: None, skips: true };
                        return Ok(Sink::new(plan, file, Kind { is_part: true, is_plain: true, entry }, begun));
                    }
                    Err(cause) if old.is_some() && cause.is_of_the_directory() => {
                        format!("it cannot be replaced: {cause}")
                    }
                    Err(cause) => return Err(cause),
                }
            }
        };
        let is_plain = old.is_some_and(|old| old.kind == FileType::File);
        // What has no content to empty may not like to be asked.
        let empties = is_plain && old.is_some_and(|old| old.size > 0);
        let mode = if empties { Mode::REPLACE } else { Mode::WRITE };
        let file = plan.dir.walk(&plan.name).await?.open(mode).await?;
        // Nothing is half of nothing: what has no bytes is not worth a word.
        let in_place = Some(why).filter(|_| empties || plan.source.size > 0);
        let begun = Begun { offset: 0, in_place, skips: empties };
        Ok(Sink::new(plan, file, Kind { is_part: false, is_plain, entry: None }, begun))
    }

    fn new(plan: Plan, file: File, kind: Kind, begun: Begun) -> Sink {
        let (at, writes) = (begun.offset, Writes::default());
        Sink { plan, file: Some(Arc::new(file)), kind, writes, at, end: at, skipped: 0, begun }
    }

    fn file(&self) -> Result<&Arc<File>, Cause> {
        self.file.as_ref().ok_or(Cause::Here(Errno::EBADF))
    }

    pub async fn data(&mut self, mut data: Bytes) -> Result<(), Cause> {
        while !data.is_empty() {
            let file = self.file()?.clone();
            let piece = data.split_to(data.len().min(file.write_max() as usize));
            let length = piece.len() as u64;
            self.writes.down_to(WINDOW.saturating_sub(length)).await?;
            self.writes.on_the_way.push(Box::pin(write_all(file, self.at, piece)));
            self.writes.bytes += length;
            self.at += length;
            self.end = self.at;
        }
        Ok(())
    }

    pub async fn skip(&mut self, zeros: u64) -> Result<(), Cause> {
        self.at += zeros;
        self.skipped += zeros;
        if self.skipped > WINDOW {
            self.writes.down_to(0).await?;
            self.skipped = 0;
        }
        Ok(())
    }

    /// The file is whole: it gets its attributes, then its name. Gives what could not be preserved, and why it was
    /// copied in place although it was not to be.
    pub async fn finish(mut self, digest: Option<Digest>) -> Result<(Option<Cause>, Option<InPlace>), Cause> {
        self.writes.down_to(0).await?;
        let file = self.file()?.clone();
        if self.at > self.end {
            file.set(&SetAttr { size: Some(self.at), ..SetAttr::default() }).await?;
        }
        if let Some(expected) = digest.filter(|_| self.kind.is_plain) {
            expected.compare(&self.read_back().await?)?;
        }
        let mut preserved = None;
        if self.plan.preserve && self.kind.is_plain {
            preserved = Subject::File(&file).preserve(&self.plan.source, &self.plan.owners).await.err();
        }
        if self.kind.is_part && self.at > file.write_max().into() {
            self.check_name(&file).await?;
        }
        drop(file);
        let Some(mut file) = self.file.take().and_then(Arc::into_inner) else {
            return Err(Cause::words("it is still being written"));
        };
        if !self.kind.is_part {
            file.close().await?;
            return Ok((preserved, None));
        }
        file.keep();
        let entry = self.kind.entry.take().unwrap_or_else(|| self.plan.enter());
        let (target, part) = (self.plan.dir.target(&self.plan.name), self.plan.part.clone());
        let temporaries = self.plan.temporaries.clone();
        let installed = replace::install(temporaries, target, file, part, entry).await?;
        Ok((preserved, installed))
    }

    /// Two copies to one file at the same time: whoever comes second removes the first's part and makes its own, which
    /// the first must not put in the file's place.
    async fn check_name(&self, file: &File) -> Result<(), Cause> {
        let named = self.plan.dir.walk(&self.plan.part).await;
        if named.is_ok_and(|node| node.qid().path == file.qid().path) {
            return Ok(());
        }
        Err(Cause::words("its temporary file is gone: is another copy to the same file under way?"))
    }

    /// The content as the server has it now.
    async fn read_back(&self) -> Result<Digest, Cause> {
        let name = if self.kind.is_part { &self.plan.part } else { &self.plan.name };
        let node = self.plan.dir.walk(name).await?;
        let facts = Facts::from(&node.metadata().await?);
        let file = Arc::new(node.open(Mode::READ).await?);
        let first = file.read_at(0, u32::MAX).await?;
        let (mut digest, mut reader) = (Digest::new(), Content::There { file, first }.reader(0, &facts));
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
        self.writes = Writes::default();
        if self.plan.keep && cause.leaves_what_can_be_gone_on_with() {
            return;
        }
        if !self.kind.is_part {
            return;
        }
        if let Some(file) = self.file.take().and_then(Arc::into_inner) {
            let removed = file.remove().await;
            if let Some(entry) = self.kind.entry.take() {
                entry.removed(&removed);
            }
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.writes = Writes::default();
        let file = self.file.take().and_then(Arc::into_inner);
        if let (Some(entry), Some(file)) = (self.kind.entry.take(), file) {
            // Whether it is gone is known when the server has answered.
            tokio::spawn(async move { entry.removed(&file.remove().await) });
        }
    }
}

impl Plan {
    fn enter(&self) -> Entry {
        let address = &self.dir.address;
        let path = [&address.path[..], b"/", &self.part].concat();
        let shown = ninefold::transport::Address { path, ..address.clone() };
        self.temporaries.enter(shown.to_string())
    }
}

/// Makes the part, or opens the one that an interrupted copy left. In a task, because a create that was given up may have
/// made a file.
async fn open_part(plan: &Plan, old: Option<&Facts>) -> Result<(File, Option<Entry>, u64), Cause> {
    let (tell, made) = oneshot::channel();
    let (plan, old) = (plan.clone(), old.cloned());
    tokio::spawn(async move {
        let made = make_part(&plan, old.as_ref()).await;
        if let Err(Ok((file, Some(entry), _))) = tell.send(made) {
            entry.removed(&file.remove().await);
        }
    });
    made.await.unwrap_or(Err(Cause::Here(Errno::ECANCELED)))
}

async fn make_part(plan: &Plan, old: Option<&Facts>) -> Result<(File, Option<Entry>, u64), Cause> {
    let dir = &plan.dir;
    let client = dir.node.client().fork();
    // Until it has its owner, what is to keep its permissions is nobody else's to read.
    let perm = if plan.preserve { 0o600 } else { old.map_or(plan.mode, Facts::permissions) };
    for _ in 0..ATTEMPTS {
        if plan.resume
            && let Some((file, offset)) = left_part(plan).await?
        {
            return Ok((file, None, offset));
        }
        let node = dir.node.walk(&[]).await?.with_client(&client);
        let entry = plan.enter();
        match node.create(&plan.part, Mode::WRITE, perm).await {
            Ok(mut file) => {
                if let Some(old) = old.filter(|_| !plan.preserve)
                    && let Err(e) = make_alike(&file, old).await
                {
                    entry.removed(&file.remove().await);
                    return Err(e.into());
                }
                if plan.keep {
                    return Ok((file, None, 0));
                }
                file.remove_on_drop();
                return Ok((file, Some(entry), 0));
            }
            Err(e) => {
                if !matches!(e, Error::Refused(_)) {
                    entry.left();
                    return Err(e.into());
                }
                drop(entry);
                // Of texts that servers have for a name that exists not all are known.
                if e.errno() != Errno::EEXIST && client.dialect() == Dialect::Linux {
                    return Err(e.into());
                }
                match dir.node.unlink(&plan.part, false).await {
                    Ok(()) => {}
                    Err(_) => return Err(e.into()),
                }
            }
        }
    }
    Err(Cause::words("somebody makes files of its temporary name"))
}

/// Gives a new file the owner and the permissions of the one that it replaces.
async fn make_alike(file: &File, old: &Facts) -> Result<(), Error> {
    let new = Facts::from(&file.metadata().await?);
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

/// The part of an interrupted copy, and up to where it can be relied on.
async fn left_part(plan: &Plan) -> Result<Option<(File, u64)>, Cause> {
    let node = match plan.dir.walk(&plan.part).await {
        Ok(node) => node,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let facts = Facts::from(&node.metadata().await?);
    if facts.kind != FileType::File || facts.size > plan.source.size {
        return Ok(None);
    }
    let Ok(file) = node.open(Mode::WRITE).await else { return Ok(None) };
    let offset = facts.size.saturating_sub(SPAN);
    if offset < facts.size {
        file.set(&SetAttr { size: Some(offset), ..SetAttr::default() }).await?;
    }
    Ok(Some((file, offset)))
}
