//! From an [`Op`] of the session to a call of the file server, and its answer back to a [`Done`].

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt;
use ninefold_proto::attr::{Time, getattr};
use ninefold_proto::open::{Access, Open};
use ninefold_proto::server::{Begun, Done, Farewell, Holder, Op, Request, Special, XattrWrite};
use ninefold_proto::types::{SessionId, WalkElem};
use ninefold_proto::{Dialect, Errno, Error, Name, Qid};
use tracing::debug;

use super::exports::Target;
use super::file_server::{Create, Lock, LockKind, LockStatus};
use super::streams::{self, OfConnection};
use super::{Answer, Attach, Cx, Data, File, FileServer, Listed, Server, Written, fallback};
use crate::transport::Peer;

/// The session's handle on a file.
pub(super) type Handle = Arc<dyn File>;

type Outcome = Answer<Done<Handle, Data>>;

/// Where the data of a request are that carries any.
pub(super) enum Carried<'f> {
    /// In the frame that the request borrows from. They are cut from it, not copied.
    InFrame(&'f Bytes),
    /// Of an [`Op::WriteOutside`].
    Outside(Data),
}

impl Carried<'_> {
    /// Those that the request has borrowed.
    fn cut(&self, data: &[u8]) -> Bytes {
        match self {
            Carried::InFrame(frame) => frame.slice_ref(data),
            Carried::Outside(_) => Bytes::copy_from_slice(data),
        }
    }

    /// Those that it has not. An error where the driver has none either.
    fn outside(self) -> Result<Data, Error> {
        match self {
            Carried::InFrame(_) => Err(Errno::EIO.into()),
            Carried::Outside(data) => Ok(data),
        }
    }
}

/// Starts one request. `of` has the streams of its connection.
pub(super) fn execute(
    server: &Arc<Server>,
    peer: &Peer,
    cx: &Cx,
    of: &Arc<OfConnection>,
    request: Request<'_, Handle>,
    carried: Carried<'_>,
) -> Outcome {
    match request.op {
        Op::Attach { uname, n_uname, aname } => {
            let who = Claim { dialect: request.dialect, uname: uname.to_vec(), n_uname, session: None };
            attach(server, peer, cx, who, aname).map(|attached| {
                let Attached { qid, file, read_only } = attached?;
                Ok(Done::Attached { qid, file, read_only })
            })
        }
        Op::Session { session, create, uname, n_uname, aname } => {
            let session = Some((session, create));
            let who = Claim { dialect: request.dialect, uname: uname.to_vec(), n_uname, session };
            let epoch = server.sessions.epoch;
            attach(server, peer, cx, who, aname).map(move |attached| {
                let Attached { qid, file, read_only } = attached?;
                Ok(Done::SessionBegun { qid, file, read_only, begun: Begun { epoch, time: now() } })
            })
        }
        Op::Walk { file, elems } => file.walk(cx, &elems).map(|walked| {
            let walked = walked?;
            Ok(Done::Walked { qids: walked.qids, file: walked.file })
        }),
        Op::Open { file, how } => file.open(cx, how).map(|qid| Ok(Done::Opened { qid: qid? })),
        Op::Create { file, name, mode, dm, gid, how, exclusive } => {
            let what = Create { name, mode, dm, gid, open: how, exclusive };
            if request.dialect == Dialect::Plan9 { create_masked(cx, file, what) } else { create(cx, &file, what) }
        }
        Op::CreateSpecial { file, name, mode, special, how } => {
            create_special(cx, request.dialect, file, name, mode, special, how)
        }
        Op::Read { file, offset, count } => file.read(cx, offset, count).map(|data| Ok(Done::Data(data?))),
        Op::Write { file, offset, data } => file.write(cx, offset, carried.cut(data)).map(count),
        Op::WriteOutside { file, offset, .. } => write_outside(cx, &*file, offset, carried.outside()).map(count),
        Op::ReadStats { file, at, max } => file.read_stats(cx, at, max).map(|stats| {
            let records = stats?;
            Ok(Done::Stats(records.bytes.into(), records.ends))
        }),
        Op::Stat { file } => file.stat(cx).map(|stat| Ok(Done::Stat(stat?))),
        Op::Wstat { file, stat } => file.wstat(cx, &stat).map(unit),
        Op::Statfs { file } => file.statfs(cx).map(|statfs| Ok(Done::Statfs(statfs?))),
        Op::Symlink { file, name, target, gid } => file.symlink(cx, name, target, gid).map(qid),
        Op::Mknod { file, name, mode, major, minor, gid } => {
            file.mknod(cx, name, mode, rustix::fs::makedev(major, minor), gid).map(qid)
        }
        Op::Mkdir { file, name, mode, gid } => file.mkdir(cx, name, mode, gid).map(qid),
        Op::Rename { file, newdir, name } => file.rename(cx, &*newdir, name).map(unit),
        Op::RenameEntry { file, old, newdir, new } => file.rename_entry(cx, old, &*newdir, new).map(unit),
        Op::RenameWith { file, old, newdir, new, how } => file.rename_with(cx, old, &*newdir, new, how).map(unit),
        Op::Unlink { file, name, dir } => file.unlink(cx, name, dir).map(unit),
        Op::Link { file, target, name } => file.link(cx, &*target, name).map(unit),
        Op::Readlink { file } => file.readlink(cx).map(|target| Ok(Done::Target(target?))),
        Op::Getattr { file, mask } => file.getattr(cx, mask).map(|attr| Ok(Done::Attr(attr?))),
        Op::Setattr { file, set } => file.setattr(cx, set).map(unit),
        Op::XattrRead { file, name } => xattr_read(cx, file, name),
        Op::Readdir { file, offset, max } => file.readdir(cx, offset, max).map(|data| Ok(Done::Data(data?.into()))),
        Op::Readdirplus { file, offset, max, mask } => readdirplus(cx, file, offset, max, mask),
        Op::Access { file, mode } => file.access(cx, mode).map(|mode| Ok(Done::Access(mode?))),
        Op::Writex { file, offset, data, append, stable } => {
            writex(cx, file, offset, carried.cut(data), append, stable)
        }
        Op::Copyrange { file, offset, target, target_offset, length } => {
            copyrange(cx, file, offset, target, target_offset, length)
        }
        Op::Allocate { file, mode, offset, length } => file.allocate(cx, mode, offset, length).map(unit),
        Op::Seek { file, offset, hole } => seek(cx, file, offset, hole),
        Op::Stream { file, read, offset, length, appends, more, told, copied, share, token } => {
            let dialect = request.dialect;
            let ask = streams::Ask { dialect, file, read, offset, length, appends, more, told, copied, share, token };
            streams::open(server, peer, cx, of, ask)
        }
        Op::StreamEnd { id, abort } => streams::end(server, cx, of, id, abort),
        Op::Fsync { file, datasync } => file.fsync(cx, datasync).map(unit),
        Op::Lock { file, kind, start, length, proc_id, client_id, wait } => {
            let lock = Lock { kind: lock_kind(kind), start, length, proc_id, client_id: client_id.to_vec() };
            file.lock(cx, lock, wait).map(|status| Ok(Done::Lock { granted: status? == LockStatus::Granted }))
        }
        Op::Getlock { file, kind, start, length, proc_id, client_id } => {
            let lock = Lock { kind: lock_kind(kind), start, length, proc_id, client_id: client_id.to_vec() };
            file.getlock(cx, lock).map(|found| Ok(Done::Getlock(found?.map(holder))))
        }
    }
}

/// A write whose data may be in a pipe. When they began to come its file took pipes; by now it may be another one.
fn write_outside(cx: &Cx, file: &dyn File, offset: u64, data: Result<Data, Error>) -> Answer<u32> {
    let takes = file.takes_pipes();
    match data.and_then(|data| if takes { Ok(Err(data)) } else { data.into_bytes().map(Ok) }) {
        Ok(Err(data)) => file.write_data(cx, offset, data),
        Ok(Ok(bytes)) => file.write(cx, offset, bytes),
        Err(error) => Answer::err(error),
    }
}

/// Takes leave of a file: sets its attribute, removes it, clunks it; the first error is the answer.
pub(super) fn farewell(cx: &Cx, of: &Arc<OfConnection>, farewell: Farewell<Handle>) -> Answer<()> {
    let Farewell { file, error, xattr, remove, .. } = farewell;
    if error.is_none() && xattr.is_none() && !remove {
        return of.clunk(cx, &file);
    }
    let (cx, of) = (cx.clone(), of.clone());
    Answer::later(async move {
        let mut result = error.map_or(Ok(()), Err);
        if let Some(XattrWrite { name, value, flags }) = xattr {
            let set = survive(|| match value {
                Some(value) => file.xattr_set(&cx, &name, value.into(), flags),
                None => file.xattr_remove(&cx, &name),
            });
            result = result.and(outlive(set.wait()).await);
        }
        if remove {
            result = result.and(outlive(survive(|| file.remove(&cx)).wait()).await);
        }
        result.and(of.clunk(&cx, &file).wait().await)
    })
}

/// A file server that panics fails its own request, not the connection; every file still gets its farewell.
pub(super) fn survive<T: Send + 'static>(call: impl FnOnce() -> Answer<T>) -> Answer<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Answer::err(panicked()))
}

/// The same for what comes later.
pub(super) async fn outlive<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    AssertUnwindSafe(future).catch_unwind().await.unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> Error {
    Error::with_text(Errno::EIO, "file server failed")
}

fn unit(result: Result<(), Error>) -> Result<Done<Handle, Data>, Error> {
    result.map(|()| Done::Unit)
}

fn count(result: Result<u32, Error>) -> Result<Done<Handle, Data>, Error> {
    result.map(Done::Count)
}

fn qid(result: Result<Qid, Error>) -> Result<Done<Handle, Data>, Error> {
    result.map(Done::Qid)
}

/// The clock.
fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { sec: now.as_secs() as i64, nsec: now.subsec_nanos() }
}

/// Who a client says it is.
struct Claim {
    dialect: Dialect,
    uname: Vec<u8>,
    n_uname: u32,
    /// The session that its connection is to be one of, and whether to make that.
    session: Option<(SessionId, bool)>,
}

/// The root that a client may use.
struct Attached {
    qid: Qid,
    file: Handle,
    /// Nothing may be changed.
    read_only: bool,
}

fn attach(server: &Arc<Server>, peer: &Peer, cx: &Cx, who: Claim, aname: &[u8]) -> Answer<Attached> {
    let (server, peer, cx, aname) = (server.clone(), peer.clone(), cx.clone(), aname.to_vec());
    let Claim { dialect, uname, n_uname, session } = who;
    Answer::later(async move {
        let Target { export, rest } = server.exports.find(&aname)?;
        let user = match server.decisions.recall(&peer, &uname, n_uname) {
            Some(user) => {
                debug!(%peer, uname = %uname.escape_ascii(), n_uname, "attach acts as {}, as another did lately", user.name);
                user
            }
            None => {
                // The user database and the kernel's socket table may block.
                let server = server.clone();
                let decide = move || {
                    let asked = Instant::now();
                    let user = server.policy.decide(&peer, &uname, n_uname)?;
                    if server.policy.is_sure(&peer, &uname, n_uname, &user) {
                        server.decisions.remember(&peer, &uname, n_uname, (&user, asked));
                    }
                    Ok(user)
                };
                Answer::blocking(decide).wait().await?
            }
        };
        let uid = user.uid;
        let who = Attach { user: Arc::new(user), dialect };
        let (qid, file) = root_of(&cx, &*export.tree, &who, rest).await?;
        // Last: what fails is no connection of the session.
        if let Some((session, create)) = session
            && let Err(error) = server.sessions.bind(cx.connection(), session, uid, create)
        {
            // An error is told already.
            let _ = file.clunk(&cx).wait().await;
            return Err(error);
        }
        Ok(Attached { qid, file, read_only: export.read_only })
    })
}

/// The directory of a tree that an attach names below its root.
async fn root_of(cx: &Cx, tree: &dyn FileServer, who: &Attach, rest: Vec<Name<'_>>) -> Result<(Qid, Handle), Error> {
    let (qid, root) = tree.attach(cx, who).wait().await?;
    if rest.is_empty() {
        return Ok((qid, root));
    }
    let elems: Vec<_> = rest.into_iter().map(WalkElem::Name).collect();
    let walked = root.walk(cx, &elems).wait().await;
    let left = root.clunk(cx).wait().await;
    let super::Walked { qids, file } = walked?;
    let unknown = || Error::with_text(Errno::ENOENT, "unknown aname: no such directory in the export");
    match (file, left) {
        (Some(file), Ok(())) if qids.len() == elems.len() => Ok((qids[elems.len() - 1], file)),
        (Some(file), left) => {
            // An error is told already.
            let _ = file.clunk(cx).wait().await;
            Err(left.err().unwrap_or_else(unknown))
        }
        (None, left) => Err(left.err().unwrap_or_else(unknown)),
    }
}

fn create(cx: &Cx, dir: &Handle, what: Create<'_>) -> Outcome {
    dir.create(cx, what).map(|created| {
        let created = created?;
        Ok(Done::Created { qid: created.qid, file: created.file, opened: true })
    })
}

/// open(5): the permissions of a new file are those asked for and the directory's.
fn create_masked(cx: &Cx, dir: Handle, what: Create<'_>) -> Outcome {
    let masked = |mode: u32, dir_mode: u32| mode & (!0o666 | (dir_mode & 0o666));
    match dir.getattr(cx, getattr::MODE) {
        Answer::Now(Ok(attr)) => create(cx, &dir, Create { mode: masked(what.mode, attr.mode), ..what }),
        Answer::Now(Err(error)) => Answer::err(error),
        Answer::Later(future) => {
            let (cx, name) = (cx.clone(), what.name.as_bytes().to_vec());
            let Create { mode, dm, gid, open, exclusive, .. } = what;
            Answer::later(async move {
                let mode = masked(mode, future.await?.mode);
                let what = Create { name: checked(&name)?, mode, dm, gid, open, exclusive };
                create(&cx, &dir, what).wait().await
            })
        }
    }
}

/// A name that was checked before it was copied.
fn checked(name: &[u8]) -> Result<Name<'_>, Error> {
    Name::new(name).map_err(|_| Errno::EINVAL.into())
}

/// Makes what is no plain file, and walks there; a directory is opened too.
fn create_special(
    cx: &Cx,
    dialect: Dialect,
    dir: Handle,
    name: Name<'_>,
    mode: u32,
    special: Special<'_, Handle>,
    how: Open,
) -> Outcome {
    let made = match special {
        // Only what a directory may become depends on the directory it is in (open(5)).
        Special::Dir => None,
        Special::Symlink { target } => Some(dir.symlink(cx, name, target, None).map(|q| q.map(drop))),
        Special::Link { target } => Some(dir.link(cx, &*target, name)),
        Special::Node { mode: kind, major, minor } => {
            Some(dir.mknod(cx, name, kind | mode, rustix::fs::makedev(major, minor), None).map(|q| q.map(drop)))
        }
    };
    let (cx, name) = (cx.clone(), name.as_bytes().to_vec());
    Answer::later(async move {
        let name = checked(&name)?;
        let is_dir = made.is_none();
        match made {
            Some(made) => made.wait().await?,
            None => {
                let mut mode = mode;
                if dialect == Dialect::Plan9 {
                    mode &= !0o777 | dir.getattr(&cx, getattr::MODE).wait().await?.mode & 0o777;
                }
                dir.mkdir(&cx, name, mode, None).wait().await?;
            }
        }
        let walked = dir.walk(&cx, &[WalkElem::Name(name)]).wait().await?;
        let (Some(file), Some(qid)) = (walked.file, walked.qids.last().copied()) else {
            return Err(Errno::ENOENT.into());
        };
        if !is_dir {
            return Ok(Done::Created { qid, file, opened: false });
        }
        let how = Open { access: Access::Read, ..how };
        match file.open(&cx, how).wait().await {
            Ok(qid) => Ok(Done::Created { qid, file, opened: true }),
            Err(error) => {
                // A create that failed leaves nothing behind. What cannot be undone is empty, and told of all the same.
                let _ = file.clunk(&cx).wait().await;
                let _ = dir.unlink(&cx, name, true).wait().await;
                Err(error)
            }
        }
    })
}

fn xattr_read(cx: &Cx, file: Handle, name: &[u8]) -> Outcome {
    let value = if name.is_empty() { file.xattr_list(cx) } else { file.xattr_get(cx, name) };
    let cx = cx.clone();
    Answer::later(async move {
        let value = value.wait().await?;
        let clone = file.walk(&cx, &[]).wait().await?.file.ok_or(Errno::EIO)?;
        Ok(Done::Xattr { value: value.into(), file: clone })
    })
}

/// Goes on in another way where a file server does not have this one.
fn or_else<T: Send + 'static>(
    answer: Answer<T>,
    lacks: &'static [Errno],
    other: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    match answer {
        Answer::Now(Err(error)) if lacks.contains(&error.errno) => other(),
        Answer::Now(result) => Answer::Now(result),
        Answer::Later(future) => Answer::later(async move {
            match future.await {
                Err(error) if lacks.contains(&error.errno) => other().wait().await,
                result => result,
            }
        }),
    }
}

const UNSUPPORTED: &[Errno] = &[Errno::EOPNOTSUPP];

fn readdirplus(cx: &Cx, dir: Handle, offset: u64, max: u32, mask: u64) -> Outcome {
    let (told, cx) = (dir.readdirplus(cx, offset, max, mask), cx.clone());
    let walk = move || Answer::later(fallback::readdirplus(cx, dir, offset, max, mask));
    or_else(told, UNSUPPORTED, walk).map(|listed| {
        let Listed { entries, end } = listed?;
        Ok(Done::Listed { entries: entries.into(), end })
    })
}

fn writex(cx: &Cx, file: Handle, offset: u64, data: Bytes, append: bool, stable: bool) -> Outcome {
    let (written, cx) = (file.writex(cx, offset, data.clone(), append, stable), cx.clone());
    let plain = move || {
        if append {
            return Answer::err(Errno::EOPNOTSUPP);
        }
        let write = file.write(&cx, offset, data);
        write.and_then(move |count| {
            let synced = if stable { file.fsync(&cx, false) } else { Answer::ok(()) };
            synced.map(move |synced| synced.map(|()| Written { offset, count }))
        })
    };
    or_else(written, UNSUPPORTED, plain).map(|written| {
        let Written { offset, count } = written?;
        Ok(Done::Written { offset, count })
    })
}

fn copyrange(cx: &Cx, from: Handle, offset: u64, to: Handle, to_offset: u64, length: u64) -> Outcome {
    let (copied, cx) = (from.copyrange(cx, offset, &*to, to_offset, length), cx.clone());
    let here = move || Answer::later(fallback::copyrange(cx, from, offset, to, to_offset, length));
    or_else(copied, &[Errno::EOPNOTSUPP, Errno::EXDEV], here).map(|count| Ok(Done::Copied(count?)))
}

fn seek(cx: &Cx, file: Handle, offset: u64, hole: bool) -> Outcome {
    let (found, cx) = (file.seek(cx, offset, hole), cx.clone());
    let by_size = move || {
        file.getattr(&cx, getattr::SIZE).map(move |attr| match attr?.size {
            size if offset >= size => Err(Errno::ENXIO.into()),
            size => Ok(if hole { size } else { offset }),
        })
    };
    or_else(found, UNSUPPORTED, by_size).map(|at| Ok(Done::Offset(at?)))
}

fn lock_kind(kind: u8) -> LockKind {
    match kind {
        0 => LockKind::Read,
        1 => LockKind::Write,
        _ => LockKind::Unlock,
    }
}

fn holder(lock: Lock) -> Holder {
    let kind = match lock.kind {
        LockKind::Read => 0,
        LockKind::Write => 1,
        LockKind::Unlock => 2,
    };
    Holder { kind, start: lock.start, length: lock.length, proc_id: lock.proc_id, client_id: lock.client_id }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::server::{Policy, User};

    /// Lets nobody in, and tells who came.
    #[derive(Default)]
    struct Door(Mutex<Vec<u32>>);

    impl FileServer for Door {
        fn attach(&self, _: &Cx, who: &Attach) -> Answer<(Qid, Handle)> {
            self.0.lock().unwrap().push(who.user.uid);
            Answer::err(Errno::EACCES)
        }
    }

    #[tokio::test]
    async fn whom_an_attach_acts_as_is_what_was_decided_lately() {
        let door = Arc::new(Door::default());
        let server = Server::builder().export("", door.clone(), false).identity(Policy::ByPeer).build();
        // Who is root may be whoever he claims to be.
        let peer = Peer::Unix { uid: 0, gid: 0, pid: 1 };
        let comes = async || {
            let who = Claim { dialect: Dialect::Linux, uname: b"root".to_vec(), n_uname: 0, session: None };
            let came = attach(&server, &peer, &Cx::detached(), who, b"").wait().await;
            assert_eq!(came.err().map(|error| error.errno), Some(Errno::EACCES));
        };
        comes().await;
        assert_eq!(server.decisions.recall(&peer, b"root", 0).map(|user| user.uid), Some(0));
        let another = User::from_uid(54_321);
        server.decisions.remember(&peer, b"root", 0, (&another, Instant::now()));
        comes().await;
        assert_eq!(*door.0.lock().unwrap(), [0, another.uid]);
    }
}
