//! What one fid of an exported name space stands for: requests, passed on to the server that has the file.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ninefold_proto::attr::{Attr, SetAttr, Statfs};
use ninefold_proto::open::{Open, lflags};
use ninefold_proto::server::Rename;
use ninefold_proto::stat::{Stat, StatBuf};
use ninefold_proto::types::{NAME_MAX, WalkElem};
use ninefold_proto::{Dialect, Errno, Error, Name, Qid};

use super::super::Error as NsError;
use super::attr::{attr, changes, record};
use super::conduit::{Incoming, Outgoing};
use super::dir::{self, Dir};
use super::maker::{Maker, maker, movers};
use super::wait::{Crowded, later, parked};
use super::{Here, kept, told, walk};
use crate::client::nameop::{Base, Create as CreateOp, Open as OpenOp, Remove as RemoveOp};
use crate::client::{self, Extent, FileType, Metadata, Mode};
use crate::server::{
    Answer, Create, Created, Cx, Data, File, Listed, Lock, LockKind, LockStatus, Records, Sink, Source, Walked, Written,
};

/// How often a lock that somebody waits for is asked for: the dialects have no request that waits at a server.
const LOCK_AGAIN: Duration = Duration::from_millis(100);

/// What statfs(2) tells of names alone: V9FS_MAGIC, no room, and names as long as anywhere.
const NO_ROOM: Statfs = Statfs {
    fstype: 0x0102_1997,
    bsize: 4096,
    blocks: 0,
    bfree: 0,
    bavail: 0,
    files: 0,
    ffree: 0,
    fsid: 0,
    namelen: NAME_MAX as u32,
};

/// A fid. Cloning it gives another handle of the same.
#[derive(Clone, Debug)]
pub(super) struct NsFile {
    pub here: Arc<Here>,
    pub dialect: Dialect,
    /// Locked for a moment, with nothing else.
    opened: Arc<Mutex<Option<Opened>>>,
}

#[derive(Clone, Debug)]
enum Opened {
    /// And whether every write is to be on disk before it is answered (O_SYNC, O_DSYNC).
    File(Arc<client::File>, bool),
    Dir(Arc<Dir>),
}

impl NsFile {
    pub fn new(here: Arc<Here>, dialect: Dialect) -> NsFile {
        NsFile { here, dialect, opened: Arc::default() }
    }

    fn opened(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of the server, if it is one and open.
    fn open_file(&self) -> Option<Arc<client::File>> {
        match &*self.opened() {
            Some(Opened::File(file, _)) => Some(file.clone()),
            _ => None,
        }
    }

    fn file(&self) -> Result<Arc<client::File>, NsError> {
        self.open_file().ok_or_else(|| Errno::EBADF.into())
    }

    fn is_synced(&self) -> bool {
        matches!(&*self.opened(), Some(Opened::File(_, true)))
    }

    /// Writes; `stable`: to the disk of the server.
    async fn write_now(&self, offset: u64, data: Bytes, stable: bool) -> Result<u32, NsError> {
        let file = self.file()?;
        if !stable && !self.is_synced() {
            return Ok(file.write_at(offset, data).await?);
        }
        if file.client().version().is_n1() {
            return Ok(file.write_stable(offset, data).await?);
        }
        let count = file.write_at(offset, data).await?;
        file.sync().await?;
        Ok(count)
    }

    /// What was written is on disk; of a directory what was made, removed and renamed in it, in all members of a union.
    async fn sync_now(&self) -> Result<(), NsError> {
        let here = &*self.here;
        if let Some(file) = self.open_file() {
            return Ok(file.sync().await?);
        }
        if !here.qid.is_dir() || here.node.is_none() {
            return Ok(());
        }
        let found = here.fs.ns.find_path(&here.path());
        if !here.is_named || found.members.len() < 2 || !found.left.is_empty() {
            return Ok(here.nameop(&OpenOp(Mode::READ)).await?.sync().await?);
        }
        for member in &found.members {
            let base = member.file.base(member.file.client());
            base.nameop(Vec::new(), &OpenOp(Mode::READ)).await?.sync().await?;
        }
        Ok(())
    }

    /// Whether a read or a write of it may wait for ever: it is, or may be, no plain file.
    fn may_wait(&self) -> bool {
        self.open_file().is_some_and(|file| file.is_ordered())
    }

    fn dir(&self) -> Result<Arc<Dir>, NsError> {
        match &*self.opened() {
            Some(Opened::Dir(dir)) => Ok(dir.clone()),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    fn name(&self) -> Vec<u8> {
        self.here.path().parted().map_or_else(|| b"/".to_vec(), |(_, name)| name.to_vec())
    }

    /// The file of another fid of this name space; EXDEV when it is another tree's.
    fn same_tree(&self, other: &dyn File) -> Result<NsFile, Errno> {
        let other = (other as &dyn Any).downcast_ref::<NsFile>();
        other.filter(|other| Arc::ptr_eq(&other.here.fs, &self.here.fs)).cloned().ok_or(Errno::EXDEV)
    }

    async fn metadata(&self) -> Result<Metadata, NsError> {
        match self.open_file() {
            Some(file) => self.here.mapped(file.metadata().await?),
            None => self.here.metadata().await,
        }
    }

    async fn record(&self) -> Result<StatBuf, NsError> {
        let metadata = self.metadata().await?;
        let target = match (&metadata.link_target, metadata.kind, &self.here.node) {
            (None, FileType::Symlink, Some(node)) if self.dialect == Dialect::Unix => Some(node.read_link().await?),
            (target, _, _) => target.clone(),
        };
        Ok(record(&metadata, &self.name(), target.as_deref(), self.dialect))
    }

    async fn open_now(&self, how: Open) -> Result<Qid, NsError> {
        let here = &*self.here;
        if here.qid.is_dir() {
            if how.access.can_write() || how.has(lflags::TRUNC) {
                return Err(Errno::EISDIR.into());
            }
            // Whether it may be read, its server says.
            if here.node.is_some() {
                drop(here.nameop(&OpenOp(Mode::READ)).await?);
            }
            *self.opened() = Some(Opened::Dir(Arc::default()));
            return Ok(here.qid);
        }
        if how.has(lflags::DIRECTORY) {
            return Err(Errno::ENOTDIR.into());
        }
        let file = here.nameop(&OpenOp(mode(how, here.cache))).await?;
        let qid = here.fs.qids.map(here.tree, file.qid())?;
        *self.opened() = Some(Opened::File(Arc::new(file), synced(how)));
        Ok(qid)
    }

    async fn create_now(&self, name: &[u8], how: Open, perm: u32, exclusive: bool) -> Result<Created, NsError> {
        let here = &*self.here;
        let made = async {
            let maker = maker(here, name).await?;
            let base = Base::at(&maker.dir, maker.dir.client());
            let file = base.nameop(Vec::new(), &CreateOp { name, mode: mode(how, maker.cache), perm }).await?;
            Ok::<_, NsError>((maker, file))
        };
        let (there, qid) = match made.await {
            Err(e) if e.errno() == Errno::EEXIST && !exclusive => {
                let (_, there) = here.walk_some(&[name.to_vec()]).await?;
                let there = NsFile::new(Arc::new(there.ok_or(Errno::ENOENT)?), self.dialect);
                // Whoever creates what is there opens it as a file, not as a directory.
                if there.here.qid.is_dir() {
                    return Err(Errno::EISDIR.into());
                }
                let qid = there.open_now(how).await?;
                (there, qid)
            }
            made => {
                let (maker, file) = made?;
                // The name may be another file's by now.
                let node = maker.dir.walk(&[name]).await?;
                if node.qid().path != file.qid().path {
                    return Err(Errno::ESTALE.into());
                }
                let qid = here.fs.qids.map(maker.tree, file.qid())?;
                let path = Mutex::new(here.below(name)?);
                let (fs, node, Maker { tree, cache, .. }) = (here.fs.clone(), Some(node), maker);
                let there = Here { fs, path, node, tree, cache, qid, is_named: false };
                let there = NsFile::new(Arc::new(there), self.dialect);
                *there.opened() = Some(Opened::File(Arc::new(file), synced(how)));
                (there, qid)
            }
        };
        Ok(Created { qid, file: Arc::new(there) })
    }

    /// The qid of what was made in a directory that [`maker`] gave.
    async fn made(&self, maker: &Maker, name: &[u8]) -> Result<Qid, NsError> {
        let qid = maker.dir.walk(&[name]).await?.qid();
        self.here.fs.qids.map(maker.tree, qid)
    }

    /// A name of this directory that is none of the table: those are neither made, removed nor renamed.
    fn free(&self, name: &[u8], taken: Errno) -> Result<(), NsError> {
        let here = &*self.here;
        if here.is_of_table(name)? { Err(taken.into()) } else { Ok(()) }
    }

    async fn rename_now(&self, old: &[u8], to: &NsFile, new: &[u8], how: Option<Rename>) -> Result<(), NsError> {
        self.free(old, Errno::EBUSY)?;
        to.free(new, Errno::EBUSY)?;
        let (here, there) = (&*self.here, &*to.here);
        if how.is_none() && (here.is_named || there.is_named) {
            return here.fs.ns.rename(here.below(old)?.as_bytes(), there.below(new)?.as_bytes()).await;
        }
        if let Some(how) = how {
            let (dir, other) = movers((here, old), (there, new), how).await?;
            match how {
                Rename::NoReplace => dir.rename_new(old, &other, new).await?,
                Rename::Exchange => dir.exchange(old, &other, new).await?,
            }
            return Ok(());
        }
        let (dir, other) = (here.node()?, there.node()?);
        if here.tree != there.tree || !dir.client().is_beside(other.client()) {
            return Err(NsError::OtherMount);
        }
        Ok(dir.rename(old, other, new).await?)
    }

    /// Renames this file, wherever it is by now: its server knows by the fid which one is meant. By names only where the table has a
    /// say in the directory, or the server cannot move by a fid; then ESTALE when the name is another file's.
    async fn move_now(&self, to: &NsFile, new: &[u8]) -> Result<(), NsError> {
        let (here, there) = (&*self.here, &*to.here);
        if here.is_named {
            return Err(Errno::EBUSY.into());
        }
        to.free(new, Errno::EBUSY)?;
        let dir = here.path().parted().map(|(dir, _)| dir).ok_or(Errno::EBUSY)?;
        let named = there.is_named || here.fs.ns.find_path(&dir).is_named;
        let node = here.node()?;
        if named || node.client().dialect() != Dialect::Linux {
            let above = NsFile::new(Arc::new(here.above().await?), self.dialect);
            above.rename_now(&self.name(), to, new, None).await?;
        } else {
            let other = there.node()?;
            if here.tree != there.tree || !node.client().is_beside(other.client()) {
                return Err(NsError::OtherMount);
            }
            let mut chain = node.client().chain();
            let (spot, walked) = chain.walk(node, &[]).await?;
            let renamed = chain.rename(&spot, other, new).await?;
            walked.take().await?;
            renamed.take().await?;
        }
        here.renamed(there.below(new)?);
        Ok(())
    }

    async fn set_now(&self, set: &SetAttr) -> Result<(), NsError> {
        match self.open_file() {
            Some(file) => Ok(file.set(set).await?),
            None => Ok(self.here.node()?.set(set).await?),
        }
    }

    /// Attributes first: what can fail of them fails before a name has changed. The two are two requests at the server.
    async fn wstat_now(&self, stat: &Stat<'_>) -> Result<(), NsError> {
        if *stat == Stat::UNTOUCHED {
            return self.sync_now().await;
        }
        let now = self.record().await?;
        let set = changes(stat, &now, self.dialect)?;
        let renames = !stat.name.is_empty() && stat.name != now.name;
        if renames && set != SetAttr::default() {
            // All or nothing (stat(5)), which no one request of every server is.
            return Err(Errno::EOPNOTSUPP.into());
        }
        if renames {
            Name::new(stat.name).map_err(|_| Errno::EINVAL)?;
            // A record has no directory: it is that of the path, if the file is still there.
            let above = NsFile::new(Arc::new(self.here.above().await?), self.dialect);
            // .u's rename(2) replaces what has the name, 9P2000's does not.
            if self.dialect == Dialect::Plan9 && above.here.walk_some(&[stat.name.to_vec()]).await.is_ok() {
                return Err(Errno::EEXIST.into());
            }
            self.move_now(&above, stat.name).await?;
            return Ok(());
        }
        if set == SetAttr::default() { Ok(()) } else { self.set_now(&set).await }
    }

    async fn lock_now(&self, cx: &Cx, lock: Lock, wait: bool) -> Result<LockStatus, Error> {
        let kind = match lock.kind {
            LockKind::Unlock => None,
            LockKind::Read => Some(client::LockKind::Shared),
            LockKind::Write => Some(client::LockKind::Exclusive),
        };
        let asked = owned(cx, &lock, kind.unwrap_or(client::LockKind::Shared));
        let file = self.file().map_err(told)?;
        if kind.is_none() {
            file.unlock(&asked).await.map_err(told)?;
            return Ok(LockStatus::Granted);
        }
        let _parked = if wait { Some(cx.park()?) } else { None };
        loop {
            if file.try_lock(&asked).await.map_err(told)? {
                return Ok(LockStatus::Granted);
            }
            if !wait {
                return Ok(LockStatus::Blocked);
            }
            tokio::select! {
                () = cx.cancelled() => return Err(Errno::EINTR.into()),
                () = tokio::time::sleep(LOCK_AGAIN) => {}
            }
        }
    }
}

/// `cache`: see [`Mode::cache`].
fn mode(how: Open, cache: bool) -> Mode {
    Mode { access: how.access, truncate: how.has(lflags::TRUNC), append: how.has(lflags::APPEND), cache, ..Mode::READ }
}

fn synced(how: Open) -> bool {
    how.has(lflags::SYNC) || how.has(lflags::DSYNC)
}

/// The owner of a lock: at the server all clients of ours are one connection, so which of ours it is goes into the name.
fn owned(cx: &Cx, lock: &Lock, kind: client::LockKind) -> client::Lock {
    let client = [format!("{}/", cx.connection()).as_bytes(), &lock.client_id].concat();
    client::Lock { kind, start: lock.start, length: lock.length, process: lock.proc_id, client }
}

impl File for NsFile {
    fn walk(&self, cx: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        later(cx, walk(self.clone(), kept(elems)))
    }

    fn open(&self, cx: &Cx, how: Open) -> Answer<Qid> {
        let this = self.clone();
        // A FIFO's open may wait for ever.
        parked(cx, Crowded::GiveUp, async move { this.open_now(how).await })
    }

    fn create(&self, cx: &Cx, what: Create<'_>) -> Answer<Created> {
        if what.dm != 0 {
            return Answer::err(Error::with_text(
                Errno::EOPNOTSUPP,
                "append-only, exclusive and temporary files are not made through a name space",
            ));
        }
        let (this, name) = (self.clone(), what.name.as_bytes().to_vec());
        let (how, perm, exclusive) = (what.open, what.mode, what.exclusive);
        parked(cx, Crowded::Wait, async move { this.create_now(&name, how, perm, exclusive).await })
    }

    fn read(&self, cx: &Cx, offset: u64, count: u32) -> Answer<Data> {
        let this = self.clone();
        let read = async move { Ok(Data::from(this.file()?.read_at(offset, count).await?)) };
        // A device may never have any.
        if self.may_wait() { parked(cx, Crowded::GiveUp, read) } else { later(cx, read) }
    }

    fn write(&self, cx: &Cx, offset: u64, data: Bytes) -> Answer<u32> {
        let this = self.clone();
        let write = async move { this.write_now(offset, data, false).await };
        if self.may_wait() { parked(cx, Crowded::Wait, write) } else { later(cx, write) }
    }

    fn readdir(&self, cx: &Cx, offset: u64, max: u32) -> Answer<Bytes> {
        let this = self.clone();
        later(cx, async move {
            Ok(dir::entries(&*this.dir()?.rows(&this.here, offset, false).await?, offset, max, false)?.entries)
        })
    }

    fn readdirplus(&self, cx: &Cx, offset: u64, max: u32, _: u64) -> Answer<Listed> {
        let this = self.clone();
        later(
            cx,
            async move { Ok(dir::entries(&*this.dir()?.rows(&this.here, offset, true).await?, offset, max, true)?) },
        )
    }

    fn read_stats(&self, cx: &Cx, at: u64, max: u32) -> Answer<Records> {
        let this = self.clone();
        later(
            cx,
            async move { Ok(dir::records(&*this.dir()?.rows(&this.here, at, true).await?, at, max, this.dialect)?) },
        )
    }

    fn access(&self, cx: &Cx, mode: u32) -> Answer<u32> {
        let this = self.clone();
        later(cx, async move {
            match &this.here.node {
                Some(node) => Ok(node.access(mode).await?),
                // Read and search.
                None => Ok(mode & 5),
            }
        })
    }

    fn writex(&self, cx: &Cx, offset: u64, data: Bytes, append: bool, stable: bool) -> Answer<Written> {
        let this = self.clone();
        let write = async move {
            if append {
                let (offset, count) = this.file()?.append(data, stable || this.is_synced()).await?;
                return Ok(Written { offset, count });
            }
            Ok(Written { offset, count: this.write_now(offset, data, stable).await? })
        };
        if self.may_wait() { parked(cx, Crowded::Wait, write) } else { later(cx, write) }
    }

    fn copyrange(&self, cx: &Cx, offset: u64, target: &dyn File, target_offset: u64, length: u64) -> Answer<u64> {
        let (this, target) = (self.clone(), self.same_tree(target));
        later(cx, async move {
            let target = target?;
            let (from, to) = (this.file()?, target.file()?);
            if !from.client().is_beside(to.client()) {
                return Err(Errno::EXDEV.into());
            }
            let count = from.copy_range(offset, &to, target_offset, length).await?;
            if target.is_synced() {
                to.sync().await?;
            }
            Ok(count)
        })
    }

    fn allocate(&self, cx: &Cx, mode: u32, offset: u64, length: u64) -> Answer<()> {
        let this = self.clone();
        later(cx, async move { Ok(this.file()?.allocate(mode, offset, length).await?) })
    }

    fn seek(&self, cx: &Cx, offset: u64, hole: bool) -> Answer<u64> {
        let this = self.clone();
        later(cx, async move {
            let extent = if hole { Extent::Hole } else { Extent::Data };
            this.file()?.seek(extent, offset).await?.ok_or_else(|| Errno::ENXIO.into())
        })
    }

    fn source(&self, cx: &Cx, offset: u64, length: Option<u64>) -> Answer<Box<dyn Source>> {
        let this = self.clone();
        later(cx, async move { Ok(Box::new(Incoming::open(&*this.file()?, offset, length).await?) as _) })
    }

    fn sink(&self, cx: &Cx, offset: u64, length: Option<u64>) -> Answer<Box<dyn Sink>> {
        let this = self.clone();
        later(cx, async move {
            let synced = this.is_synced();
            Ok(Box::new(Outgoing::open(this.file()?, synced, offset, length).await?) as _)
        })
    }

    fn getattr(&self, cx: &Cx, _: u64) -> Answer<Attr> {
        let this = self.clone();
        later(cx, async move { Ok(attr(&this.metadata().await?)) })
    }

    fn setattr(&self, cx: &Cx, set: SetAttr) -> Answer<()> {
        let this = self.clone();
        later(cx, async move { this.set_now(&set).await })
    }

    fn stat(&self, cx: &Cx) -> Answer<StatBuf> {
        let this = self.clone();
        later(cx, async move { this.record().await })
    }

    fn wstat(&self, cx: &Cx, stat: &Stat<'_>) -> Answer<()> {
        let mut bytes = Vec::new();
        stat.encode(self.dialect, &mut bytes);
        let this = self.clone();
        later(cx, async move {
            let stat = Stat::decode(&bytes, this.dialect).map_err(|_| Errno::EINVAL)?;
            this.wstat_now(&stat).await
        })
    }

    fn remove(&self, cx: &Cx) -> Answer<()> {
        let this = self.clone();
        later(cx, async move {
            let here = &*this.here;
            if here.is_named {
                return Err(NsError::MountPoint);
            }
            here.nameop(&RemoveOp).await
        })
    }

    fn clunk(&self, _: &Cx) -> Answer<()> {
        let opened = self.opened().take();
        match opened {
            // Its server may have something to say of what was written. Nobody else uses it: every other answer is done.
            // Not given up by a flush: nobody closes it a second time.
            Some(Opened::File(file, _)) => Answer::later(async move {
                match Arc::try_unwrap(file) {
                    Ok(file) => file.close().await.map_err(told),
                    Err(_) => Ok(()),
                }
            }),
            _ => Answer::ok(()),
        }
    }

    fn fsync(&self, cx: &Cx, _: bool) -> Answer<()> {
        let this = self.clone();
        later(cx, async move { this.sync_now().await })
    }

    fn statfs(&self, cx: &Cx) -> Answer<Statfs> {
        let this = self.clone();
        later(cx, async move {
            match &this.here.node {
                Some(node) => Ok(node.statfs().await?),
                None => Ok(NO_ROOM),
            }
        })
    }

    fn readlink(&self, cx: &Cx) -> Answer<Vec<u8>> {
        let this = self.clone();
        later(cx, async move { Ok(this.here.node()?.read_link().await?) })
    }

    fn symlink(&self, cx: &Cx, name: Name<'_>, target: &[u8], _: Option<u32>) -> Answer<Qid> {
        let (this, name, target) = (self.clone(), name.as_bytes().to_vec(), target.to_vec());
        later(cx, async move {
            let maker = maker(&this.here, &name).await?;
            maker.dir.symlink(&name, &target).await?;
            this.made(&maker, &name).await
        })
    }

    fn mknod(&self, cx: &Cx, name: Name<'_>, mode: u32, rdev: u64, _: Option<u32>) -> Answer<Qid> {
        let (this, name) = (self.clone(), name.as_bytes().to_vec());
        later(cx, async move {
            let kind = FileType::from_mode(mode).ok_or(Errno::EINVAL)?;
            let device = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
            let maker = maker(&this.here, &name).await?;
            maker.dir.mknod(&name, kind, mode & 0o7777, device).await?;
            this.made(&maker, &name).await
        })
    }

    fn mkdir(&self, cx: &Cx, name: Name<'_>, mode: u32, _: Option<u32>) -> Answer<Qid> {
        let (this, name) = (self.clone(), name.as_bytes().to_vec());
        later(cx, async move {
            let maker = maker(&this.here, &name).await?;
            maker.dir.mkdir(&name, mode & 0o7777).await?;
            this.made(&maker, &name).await
        })
    }

    fn link(&self, cx: &Cx, target: &dyn File, name: Name<'_>) -> Answer<()> {
        let (this, target, name) = (self.clone(), self.same_tree(target), name.as_bytes().to_vec());
        later(cx, async move {
            let target = target?;
            let (Maker { dir, .. }, file) = (maker(&this.here, &name).await?, target.here.node()?);
            if !dir.client().is_beside(file.client()) {
                return Err(NsError::OtherMount);
            }
            Ok(dir.link(&name, file).await?)
        })
    }

    fn rename(&self, cx: &Cx, newdir: &dyn File, name: Name<'_>) -> Answer<()> {
        let (this, newdir, name) = (self.clone(), self.same_tree(newdir), name.as_bytes().to_vec());
        later(cx, async move { this.move_now(&newdir?, &name).await })
    }

    fn rename_entry(&self, cx: &Cx, old: Name<'_>, newdir: &dyn File, new: Name<'_>) -> Answer<()> {
        let (this, newdir) = (self.clone(), self.same_tree(newdir));
        let (old, new) = (old.as_bytes().to_vec(), new.as_bytes().to_vec());
        later(cx, async move { this.rename_now(&old, &newdir?, &new, None).await })
    }

    fn rename_with(&self, cx: &Cx, old: Name<'_>, newdir: &dyn File, new: Name<'_>, how: Rename) -> Answer<()> {
        let (this, newdir) = (self.clone(), self.same_tree(newdir));
        let (old, new) = (old.as_bytes().to_vec(), new.as_bytes().to_vec());
        later(cx, async move { this.rename_now(&old, &newdir?, &new, Some(how)).await })
    }

    fn unlink(&self, cx: &Cx, name: Name<'_>, dir: bool) -> Answer<()> {
        let (this, name) = (self.clone(), name.as_bytes().to_vec());
        later(cx, async move {
            this.free(&name, Errno::EBUSY)?;
            let here = &*this.here;
            if here.is_named {
                return here.fs.ns.unlink(here.below(&name)?.as_bytes(), dir).await;
            }
            Ok(here.node()?.unlink(&name, dir).await?)
        })
    }

    fn xattr_get(&self, cx: &Cx, name: &[u8]) -> Answer<Bytes> {
        let (this, name) = (self.clone(), name.to_vec());
        later(cx, async move {
            match &this.here.node {
                Some(node) => Ok(node.get_xattr(&name).await?.into()),
                None => Err(Errno::ENODATA.into()),
            }
        })
    }

    fn xattr_list(&self, cx: &Cx) -> Answer<Bytes> {
        let this = self.clone();
        later(cx, async move {
            let names = match &this.here.node {
                Some(node) => node.list_xattrs().await?,
                None => Vec::new(),
            };
            Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect::<Vec<u8>>().into())
        })
    }

    fn xattr_set(&self, cx: &Cx, name: &[u8], value: Bytes, flags: u32) -> Answer<()> {
        let (this, name) = (self.clone(), name.to_vec());
        later(cx, async move {
            if flags != 0 {
                // To make one only, or to replace one only: the client has no word for it.
                return Err(Errno::EOPNOTSUPP.into());
            }
            Ok(this.here.node()?.set_xattr(&name, &value).await?)
        })
    }

    fn xattr_remove(&self, cx: &Cx, name: &[u8]) -> Answer<()> {
        let (this, name) = (self.clone(), name.to_vec());
        later(cx, async move { Ok(this.here.node()?.remove_xattr(&name).await?) })
    }

    fn lock(&self, cx: &Cx, lock: Lock, wait: bool) -> Answer<LockStatus> {
        let (this, cx) = (self.clone(), cx.clone());
        Answer::later(async move { this.lock_now(&cx, lock, wait).await })
    }

    fn getlock(&self, cx: &Cx, lock: Lock) -> Answer<Option<Lock>> {
        let this = self.clone();
        let asked = cx.clone();
        later(cx, async move {
            let kind =
                if lock.kind == LockKind::Write { client::LockKind::Exclusive } else { client::LockKind::Shared };
            let found = this.file()?.conflicting_lock(&owned(&asked, &lock, kind)).await?;
            Ok(found.map(|found| {
                let kind = if found.kind == client::LockKind::Exclusive { LockKind::Write } else { LockKind::Read };
                Lock { kind, start: found.start, length: found.length, proc_id: found.process, client_id: found.client }
            }))
        })
    }
}
