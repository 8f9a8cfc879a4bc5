//! A file appears under its name whole, or not at all: it is written under a temporary name beside it, then renamed.
//!
//! [`Replacement::begin`] makes the temporary file, [`Replacement::file`] is written to, [`Replacement::commit`] puts it
//! under its name, with the permissions and the owner of the file that it replaces. One that is dropped or given up
//! ([`Replacement::abandon`]) is removed. Where a rename is no way to replace a file, the file itself is opened and
//! emptied, and [`Replacement::in_place`] says why: the caller tells the user.
//!
//! A task does the making, renaming and removing, because Ctrl-C drops whoever waits for them: a create that was given up
//! may have made a file, and a rename that was given up may have happened. The task waits for the answer whatever comes,
//! then cleans up; [`Temporaries`] knows what is not settled yet.
//!
//! Where a rename does not replace (9P2000), see [`Target::swap`].

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use ninefold::client::{Error, File, FileType, Metadata, Mode, Node, Stream, Writer};
use ninefold::proto::attr::SetAttr;
use ninefold::proto::{Errno, QidType};
use tokio::sync::oneshot;

pub use super::target::Target;
use super::target::is_refusal;
use super::temporaries::{Entry, Temporaries};

/// Names tried until it is no accident that all exist.
const ATTEMPTS: usize = 8;

/// Why a file is written in place and not replaced.
#[derive(Clone, Debug)]
pub enum InPlace {
    /// A device, fifo, socket, or a file that the server says is append-only or exclusive.
    NotPlain,
    /// The other names would keep the old content.
    SeveralNames(u64),
    /// The directory takes no new files.
    NoNewFiles(Error),
    /// The new file would be another user's, or have other permissions.
    NotAlike(Error),
    /// The server does not put one file in the place of another.
    NoRename(Error),
}

impl fmt::Display for InPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InPlace::NotPlain => f.write_str("it is no plain file"),
            InPlace::SeveralNames(n) => write!(f, "it has {n} names"),
            InPlace::NoNewFiles(e) => write!(f, "its directory takes no new file: {e}"),
            InPlace::NotAlike(e) => write!(f, "a new file cannot have its owner and permissions: {e}"),
            InPlace::NoRename(e) => write!(f, "the server does not rename onto it: {e}"),
        }
    }
}

/// A file being written that is to appear whole. See the module.
#[derive(Debug)]
pub struct Replacement {
    /// There until the end.
    file: Option<File>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// The task waits to hear what becomes of the file.
    Beside(Option<oneshot::Sender<Verdict>>),
    /// And what was known of the file before.
    InPlace(InPlace, Box<Metadata>),
}

/// What becomes of a temporary file.
#[derive(Debug)]
enum Verdict {
    Commit { file: File, sync: bool, answer: oneshot::Sender<Result<Option<InPlace>, Error>> },
    Remove { file: File, answer: Option<oneshot::Sender<Result<(), Error>>> },
}

/// Why there is no temporary file.
#[derive(Debug)]
enum Refusal {
    Failed(Error),
    InPlace(InPlace),
}

impl Refusal {
    fn into_error(self) -> Error {
        match self {
            Refusal::Failed(e) | Refusal::InPlace(InPlace::NoNewFiles(e) | InPlace::NotAlike(e)) => e,
            Refusal::InPlace(_) => Errno::EPERM.into(),
        }
    }
}

impl Replacement {
    /// Makes a file to write to. `perm`, 0 to 0o777, is for a file that is new; one that exists keeps what it has, and
    /// must be one that may be written, as cat(1) and cp(1) have it. A directory is EISDIR, a symbolic link ELOOP.
    pub async fn begin(temporaries: &Temporaries, target: &Target, perm: u32) -> Result<Replacement, Error> {
        let Some(node) = target.find().await? else {
            return Replacement::anew(temporaries, target, perm).await;
        };
        let old = node.metadata().await?;
        let why = match (old.kind, old.nlink) {
            (FileType::Dir, _) => return Err(Errno::EISDIR.into()),
            (FileType::Symlink, _) => return Err(Errno::ELOOP.into()),
            (FileType::File, Some(names)) if names > 1 => InPlace::SeveralNames(names),
            (FileType::File, _) if !has_rules_of_its_own(&old) => {
                drop(node.open(Mode::WRITE).await?);
                let perm = old.mode & 0o777;
                match beside(temporaries, target, Some(old.clone()), perm).await {
                    Ok(replacement) => return Ok(replacement),
                    Err(Refusal::Failed(e)) => return Err(e),
                    Err(Refusal::InPlace(why)) => why,
                }
            }
            _ => InPlace::NotPlain,
        };
        let node = target.dir.walk(&[&target.name]).await?;
        // What has no content to empty may not like to be asked.
        let mode = if old.kind == FileType::File && old.size > 0 { Mode::REPLACE } else { Mode::WRITE };
        Ok(Replacement { file: Some(node.open(mode).await?), way: Way::InPlace(why, Box::new(old)) })
    }

    /// Makes a file to write to that is to replace whatever has the name, the name and all, as mv(1) does.
    pub async fn anew(temporaries: &Temporaries, target: &Target, perm: u32) -> Result<Replacement, Error> {
        beside(temporaries, target, None, perm).await.map_err(Refusal::into_error)
    }

    /// Writes to it from its beginning on.
    pub fn writer(&self) -> Writer<'_> {
        let old = match &self.way {
            Way::InPlace(_, old) => Some(&**old),
            Way::Beside(_) => None,
        };
        self.file().writer(0, old)
    }

    /// What is written to.
    pub fn file(&self) -> &File {
        self.file.as_ref().expect("there until the end, which takes self")
    }

    /// Why what is written is seen at once, half of it too.
    pub fn in_place(&self) -> Option<&InPlace> {
        match &self.way {
            Way::InPlace(why, _) => Some(why),
            Way::Beside(_) => None,
        }
    }

    /// The file is whole: puts it under its name. With `sync` it is on the server's disk before it gets the name, so that
    /// not even a crash of the server shows half of it. Tells when the server refused to rename it, and it was copied in
    /// place instead. After an error the temporary file is removed, unless nobody knows what happened, or that copy ended half-way.
    pub async fn commit(mut self, sync: bool) -> Result<Option<InPlace>, Error> {
        let Some(file) = self.file.take() else { return Ok(None) };
        match &mut self.way {
            Way::InPlace(..) => {
                if sync {
                    flush(&file).await?;
                }
                file.close().await.map(|()| None)
            }
            Way::Beside(task) => {
                let (answer, result) = oneshot::channel();
                tell(task, Verdict::Commit { file, sync, answer });
                result.await.unwrap_or_else(|_| Err(Errno::ECANCELED.into()))
            }
        }
    }

    /// Gives it up: the temporary file is removed. One that is written in place stays as it is.
    pub async fn abandon(mut self) -> Result<(), Error> {
        let Some(file) = self.file.take() else { return Ok(()) };
        match &mut self.way {
            Way::InPlace(..) => file.close().await,
            Way::Beside(task) => {
                let (answer, result) = oneshot::channel();
                tell(task, Verdict::Remove { file, answer: Some(answer) });
                result.await.unwrap_or_else(|_| Err(Errno::ECANCELED.into()))
            }
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let (Way::Beside(task), Some(file)) = (&mut self.way, self.file.take()) {
            tell(task, Verdict::Remove { file, answer: None });
        }
    }
}

/// A task that is gone leaves the file to its own drop, which removes it.
fn tell(task: &mut Option<oneshot::Sender<Verdict>>, verdict: Verdict) {
    if let Some(task) = task.take() {
        let _ = task.send(verdict);
    }
}

/// Append-only and exclusive files, which a new file would not be.
fn has_rules_of_its_own(old: &Metadata) -> bool {
    let kind = old.qid.kind;
    kind.has(QidType::APPEND) || kind.has(QidType::EXCL) || kind.has(QidType::AUTH)
}

/// Puts a file that the caller made and wrote in the place of `target`, as [`Replacement::commit`] does, if `streams` that wrote it come to their ends whole.
/// `temporary` is its name. In a task, because a rename that was given up may have happened.
pub async fn install(
    temporaries: Temporaries,
    target: Target,
    (file, streams): (File, Vec<Stream>),
    temporary: Vec<u8>,
    entry: Entry,
) -> Result<Option<InPlace>, Error> {
    let task = Task::new(&temporaries, &target, None);
    let temporary = Temporary { name: temporary, entry };
    let (answer, result) = oneshot::channel();
    temporaries.spawn(async move {
        let _ = answer.send(task.finish((file, streams), false, temporary).await);
    });
    result.await.unwrap_or_else(|_| Err(Errno::ECANCELED.into()))
}

async fn beside(
    temporaries: &Temporaries,
    target: &Target,
    old: Option<Metadata>,
    perm: u32,
) -> Result<Replacement, Refusal> {
    let (made, result) = oneshot::channel();
    let task = Task::new(temporaries, target, old);
    temporaries.spawn(task.run(perm, made));
    result.await.unwrap_or(Err(Refusal::Failed(Errno::ECANCELED.into())))
}

/// Sees a temporary file through from its making to its end.
#[derive(Debug)]
struct Task {
    temporaries: Temporaries,
    target: Target,
    /// The file to replace.
    old: Option<Metadata>,
    /// The file under its own name holds a part of what the temporary file holds whole.
    is_torn: AtomicBool,
}

/// A temporary file's name, with its entry.
#[derive(Debug)]
struct Temporary {
    name: Vec<u8>,
    entry: Entry,
}

impl Task {
    fn new(temporaries: &Temporaries, target: &Target, old: Option<Metadata>) -> Task {
        let (temporaries, target) = (temporaries.clone(), target.clone());
        Task { temporaries, target, old, is_torn: AtomicBool::new(false) }
    }

    async fn run(self, perm: u32, made: oneshot::Sender<Result<Replacement, Refusal>>) {
        let (file, temporary) = match self.make(perm).await {
            Ok(it) => it,
            Err(refusal) => {
                let _ = made.send(Err(refusal));
                return;
            }
        };
        let (task, verdict) = oneshot::channel();
        // Nobody waits for it any more: it is dropped here, and the verdict is known.
        let _ = made.send(Ok(Replacement { file: Some(file), way: Way::Beside(Some(task)) }));
        // The replacement is never dropped without a verdict.
        let Ok(verdict) = verdict.await else { return };
        match verdict {
            Verdict::Commit { file, sync, answer } => {
                let _ = answer.send(self.finish((file, Vec::new()), sync, temporary).await);
            }
            Verdict::Remove { file, answer } => {
                let result = file.remove().await;
                temporary.entry.removed(&result);
                answer.map(|answer| answer.send(result));
            }
        }
    }

    /// Commits, and removes what a commit that failed, or was cut short, may have left.
    async fn finish(
        &self,
        written: (File, Vec<Stream>),
        sync: bool,
        temporary: Temporary,
    ) -> Result<Option<InPlace>, Error> {
        let done = self.temporaries.unless_cut(self.commit(written, sync, &temporary.name)).await;
        match &done {
            Some(Ok(None)) => {
                temporary.entry.gone();
                return Ok(None);
            }
            Some(Err(_)) | None if self.is_torn.load(Ordering::Relaxed) => {
                // Nothing else holds all of it.
                let (own, whole) = (self.target.own_address(), self.target.beside(&temporary.name));
                let words =
                    format!("{own}: it is not whole: all that was to be in it is in {whole}: copy it from there");
                drop(self.temporaries.enter(words));
                temporary.entry.gone();
            }
            Some(Err(e @ Error::Lost(_))) => return Err(e.clone()),
            None | Some(Err(Error::TimedOut(_))) => {
                temporary.entry.find_out(&self.target.dir, &temporary.name).await;
            }
            Some(_) => temporary.entry.removed(&self.target.dir.unlink(&temporary.name, false).await),
        }
        done.unwrap_or(Err(Errno::ECANCELED.into()))
    }

    async fn make(&self, perm: u32) -> Result<(File, Temporary), Refusal> {
        let (file, temporary) = self.create(perm).await.map_err(|e| match may_go_in_place(&e) {
            true => Refusal::InPlace(InPlace::NoNewFiles(e)),
            false => Refusal::Failed(e),
        })?;
        let Some(old) = &self.old else { return Ok((file, temporary)) };
        let Err(e) = make_alike(&file, old).await else { return Ok((file, temporary)) };
        temporary.entry.removed(&file.remove().await);
        Err(if may_go_in_place(&e) { Refusal::InPlace(InPlace::NotAlike(e)) } else { Refusal::Failed(e) })
    }

    async fn create(&self, perm: u32) -> Result<(File, Temporary), Error> {
        let mut attempts = 1;
        loop {
            let dir = self.target.dir.walk(&[]).await?;
            let (name, shown) = self.target.temporary();
            let entry = self.temporaries.file(shown);
            match self.temporaries.unless_cut(dir.create(&name, Mode::WRITE, perm)).await {
                Some(Ok(mut file)) => {
                    file.remove_on_drop();
                    return Ok((file, Temporary { name, entry }));
                }
                Some(Err(e)) if e.errno() == Errno::EEXIST && attempts < ATTEMPTS => {
                    entry.gone();
                    attempts += 1;
                }
                Some(Err(e @ Error::TimedOut(_))) => {
                    entry.find_out(&self.target.dir, &name).await;
                    return Err(e);
                }
                Some(Err(e)) => {
                    if is_refusal(&e) {
                        entry.gone();
                    }
                    return Err(e);
                }
                None => {
                    entry.find_out(&self.target.dir, &name).await;
                    return Err(Errno::ECANCELED.into());
                }
            }
        }
    }

    async fn commit(
        &self,
        (file, streams): (File, Vec<Stream>),
        sync: bool,
        temporary: &[u8],
    ) -> Result<Option<InPlace>, Error> {
        if sync {
            flush(&file).await?;
        }
        // Closed first: some servers tell only here that they could not write.
        let Target { dir, name, .. } = &self.target;
        match file.end_and_rename(streams, dir, temporary, name).await? {
            Ok(()) => Ok(None),
            Err(refused) => self.replace(temporary, refused).await,
        }
    }

    /// Where the rename was refused: puts the temporary file in the place of what is there in another way, or copies it there and leaves it.
    async fn replace(&self, temporary: &[u8], refused: Error) -> Result<Option<InPlace>, Error> {
        let Target { dir, .. } = &self.target;
        if !may_go_in_place(&refused) {
            return Err(refused);
        }
        match self.target.find().await? {
            None => self.copy(temporary, None, refused).await,
            Some(old) if old.qid().is_dir() => Err(Errno::EISDIR.into()),
            Some(old) => match self.target.swap(&self.temporaries, dir, temporary).await {
                Ok(()) => Ok(None),
                Err(e) if may_go_in_place(&e) => self.copy(temporary, Some(old), refused).await,
                Err(e) => Err(e),
            },
        }
    }

    /// Copies the temporary file to where it should be, through here, since the server does not rename it. Once begun, the
    /// temporary file is all that holds the old content or the new, and must stay until this has come to its end.
    async fn copy(&self, temporary: &[u8], old: Option<Node>, refused: Error) -> Result<Option<InPlace>, Error> {
        let from = self.target.dir.walk(&[temporary]).await?;
        let metadata = from.metadata().await?;
        let from = from.open(Mode::READ).await?;
        // Whatever comes of it: what was given up may have happened.
        self.is_torn.store(true, Ordering::Relaxed);
        let opened = match old {
            Some(node) => node.open(Mode::REPLACE).await,
            None => {
                let perm = metadata.mode & 0o777;
                self.target.dir.walk(&[]).await?.create(&self.target.name, Mode::WRITE, perm).await
            }
        };
        if opened.as_ref().is_err_and(is_refusal) {
            self.is_torn.store(false, Ordering::Relaxed);
        }
        let to = opened?;
        let mut writer = to.writer(0, Some(&metadata));
        tokio::select! {
            copied = pour(&from, &metadata, &mut writer) => copied?,
            () = self.temporaries.ended() => return Err(Errno::ECANCELED.into()),
        }
        drop(writer);
        to.close().await?;
        Ok(Some(InPlace::NoRename(refused)))
    }
}

/// All of `from`, of which `metadata` is known, to `to`.
pub async fn pour(from: &File, metadata: &Metadata, to: &mut Writer<'_>) -> Result<(), Error> {
    let mut reader = from.reader(0, Some(metadata));
    while let Some(data) = reader.next().await? {
        to.write(data).await?;
    }
    to.finish().await.map(drop)
}

/// Gives a new file the owner and the permissions of the old one.
async fn make_alike(file: &File, old: &Metadata) -> Result<(), Error> {
    let new = file.metadata().await?;
    let owners = |it: &Metadata| (it.uid, it.gid, it.owner.clone(), it.group.clone());
    let owned_alike = owners(&new) == owners(old);
    if !owned_alike {
        file.set(&SetAttr { uid: old.uid, gid: old.gid, ..SetAttr::default() }).await?;
    }
    // A change of owner may have taken bits away.
    if !owned_alike || new.mode & 0o777 != old.mode & 0o777 {
        file.set(&SetAttr { mode: Some(old.mode & 0o777), ..SetAttr::default() }).await?;
    }
    Ok(())
}

/// Waits until it is on the server's disk, where the server has a word for that.
async fn flush(file: &File) -> Result<(), Error> {
    match file.sync().await {
        Err(Error::Refused(e)) if !matches!(e.errno, Errno::EIO | Errno::ENOSPC | Errno::EDQUOT) => Ok(()),
        other => other,
    }
}

/// Whether a refusal is about the new file or the rename alone: on a disk that is full or broken the old content would be
/// lost for nothing.
pub fn may_go_in_place(e: &Error) -> bool {
    let hopeless =
        [Errno::ENOSPC, Errno::EDQUOT, Errno::EIO, Errno::EROFS, Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE];
    match e {
        // EIO stands for every text of a 9P2000 server that means nothing to us.
        Error::Refused(e) if e.errno == Errno::EIO => e.text() != Errno::EIO.text(),
        Error::Refused(e) => !hopeless.contains(&e.errno),
        Error::Unsupported { .. } => true,
        _ => false,
    }
}
