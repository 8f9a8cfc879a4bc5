//! The tree as clients see it: helpers that ask as a fid does, and the tests by subject.

mod attributes;
mod data;
mod extents;
mod locks;
mod n1;
mod names;
mod plan9;

use std::time::Duration;

use bytes::Bytes;
use ninefold_proto::attr::{Attr, SetAttr, SetTime, Time};
use ninefold_proto::open::{Access, Open, lflags};
use ninefold_proto::stat::{Stat, StatBuf, dir_entries, dm, omode, stats};
use ninefold_proto::types::WalkElem;
use ninefold_proto::{Dialect, Errno, Error, Name};
use tokio::time::timeout;

use super::*;
use crate::server::{Create, Lock, LockKind, LockStatus, User, Walked};

const ROOT_USER: u32 = 0;
const ANN: u32 = 70_001;
const BOB: u32 = 70_002;
const STAFF: u32 = 70_100;

/// A fid.
#[derive(Clone)]
struct Fid(Arc<dyn File>);

fn now<T>(answer: Answer<T>) -> Result<T, Errno> {
    match answer {
        Answer::Now(result) => result.map_err(|error: Error| error.errno),
        Answer::Later(_) => panic!("the answer is not there at once"),
    }
}

/// The same of what is carried out on another thread.
fn in_runtime<T: Send + 'static>(ask: impl FnOnce() -> Answer<T>) -> Result<T, Errno> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { ask().wait().await }).map_err(|error| error.errno)
}

fn cx() -> Cx {
    Cx::detached()
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// A tree whose root everybody may write to.
fn fs() -> RamFs {
    let fs = RamFs::with_limit(16 << 20);
    fs.set_root(ROOT_USER, ROOT_USER, 0o777);
    fs
}

fn attach_as(fs: &RamFs, uid: u32, dialect: Dialect) -> Fid {
    let groups = if uid == ANN || uid == BOB { vec![STAFF] } else { Vec::new() };
    let user = Arc::new(User { name: format!("user{uid}"), uid, gid: uid, groups });
    Fid(now(fs.attach(&cx(), &Attach { user, dialect })).unwrap().1)
}

fn attach(fs: &RamFs, uid: u32) -> Fid {
    attach_as(fs, uid, Dialect::Linux)
}

fn how(access: Access, flags: u32) -> Open {
    Open { access, flags, remove_on_clunk: false }
}

impl Fid {
    fn try_walk(&self, path: &str) -> Result<Walked, Errno> {
        let elems: Vec<_> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| WalkElem::new(part.as_bytes(), true).unwrap())
            .collect();
        now(self.0.walk(&cx(), &elems))
    }

    #[track_caller]
    fn at(&self, path: &str) -> Fid {
        Fid(self.try_walk(path).unwrap().file.expect("a whole walk"))
    }

    #[track_caller]
    fn missing(&self, path: &str) {
        assert_eq!(self.try_walk(path).map(|walked| walked.file.is_some()), Err(Errno::ENOENT));
    }

    fn try_create(&self, file: &str, mode: u32, dm: u32, exclusive: bool, open: Open) -> Result<Fid, Errno> {
        let what = Create { name: name(file), mode, dm, gid: None, open, exclusive };
        now(self.0.create(&cx(), what)).map(|created| Fid(created.file))
    }

    /// Makes a file and leaves it open for reading and writing.
    #[track_caller]
    fn create(&self, file: &str, mode: u32) -> Fid {
        self.try_create(file, mode, 0, true, how(Access::ReadWrite, 0)).unwrap()
    }

    #[track_caller]
    fn mkdir(&self, dir: &str, mode: u32) -> Fid {
        now(self.0.mkdir(&cx(), name(dir), mode, None)).unwrap();
        self.at(dir)
    }

    fn open(&self, access: Access) -> Result<(), Errno> {
        now(self.0.open(&cx(), how(access, 0))).map(|_| ())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        now(self.0.write(&cx(), offset, Bytes::copy_from_slice(data)))
    }

    #[track_caller]
    fn read(&self) -> Bytes {
        now(self.0.read(&cx(), 0, 1 << 20)).unwrap().into_bytes().unwrap()
    }

    #[track_caller]
    fn attr(&self) -> Attr {
        now(self.0.getattr(&cx(), u64::MAX)).unwrap()
    }

    fn set(&self, set: SetAttr) -> Result<(), Errno> {
        now(self.0.setattr(&cx(), set))
    }

    fn chmod(&self, mode: u32) -> Result<(), Errno> {
        self.set(SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        self.set(SetAttr { size: Some(size), ..SetAttr::default() })
    }

    fn unlink(&self, entry: &str, dir: bool) -> Result<(), Errno> {
        now(self.0.unlink(&cx(), name(entry), dir))
    }

    fn rename(&self, old: &str, newdir: &Fid, new: &str) -> Result<(), Errno> {
        now(self.0.rename_entry(&cx(), name(old), &*newdir.0, name(new)))
    }

    fn link(&self, target: &Fid, new: &str) -> Result<(), Errno> {
        now(self.0.link(&cx(), &*target.0, name(new)))
    }

    #[track_caller]
    fn stat(&self) -> StatBuf {
        now(self.0.stat(&cx())).unwrap()
    }

    fn wstat(&self, stat: Stat<'_>) -> Result<(), Errno> {
        now(self.0.wstat(&cx(), &stat))
    }

    #[track_caller]
    fn clunk(self) {
        now(self.0.clunk(&cx())).unwrap();
    }

    /// One readdir: names and cookies.
    fn readdir(&self, offset: u64, max: u32) -> Vec<(String, u64)> {
        let bytes = now(self.0.readdir(&cx(), offset, max)).unwrap();
        let entry = |entry: Result<ninefold_proto::stat::DirEntry<'_>, _>| {
            let entry = entry.unwrap();
            (String::from_utf8(entry.name.to_vec()).unwrap(), entry.offset)
        };
        dir_entries(&bytes).map(entry).collect()
    }

    fn list(&self) -> Vec<String> {
        self.readdir(2, 1 << 20).into_iter().map(|(name, _)| name).collect()
    }
}
