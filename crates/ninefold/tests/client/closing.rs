//! A file that is closed and given its name: in one round trip or one after the other, and the name never to what is not whole.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ninefold::client::{Client, Error, File as Opened, Mode, Options};
use ninefold::proto::attr::Attr;
use ninefold::proto::dialect::Version;
use ninefold::proto::open::{Access, Open};
use ninefold::proto::stat::{Stat, StatBuf};
use ninefold::proto::types::WalkElem;
use ninefold::proto::{Dialect, Errno, Name, Qid};
use ninefold::server::{Answer, Attach, Create, Created, Cx, File, FileServer, Server, Walked};
use ninefold::tree::ramfs::RamFs;

use crate::chains::write;
use crate::support::{connect, settled};

const VERSIONS: [Version; 3] = [Version::N1, Version::LAYOUTS[2], Version::LAYOUTS[0]];

const BEHIND: Mode = Mode { behind: true, cache: true, ..Mode::WRITE };

/// What goes wrong, and what was asked for of what was written.
#[derive(Default)]
struct Fate {
    write: Option<Errno>,
    clunk: Option<Errno>,
    rename: Option<Errno>,
    asked: Mutex<Vec<&'static str>>,
}

impl Fate {
    fn ask(&self, what: &'static str, fails: Option<Errno>) -> Result<(), Errno> {
        self.asked.lock().unwrap().push(what);
        fails.map_or(Ok(()), Err)
    }
}

/// A tree in memory in which that goes wrong.
struct Disk {
    tree: Arc<RamFs>,
    fate: Arc<Fate>,
}

impl FileServer for Disk {
    fn attach(&self, cx: &Cx, who: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        let fate = self.fate.clone();
        self.tree.attach(cx, who).map(|root| root.map(|(qid, file)| (qid, Entry::of(file, fate, false))))
    }
}

struct Entry {
    file: Arc<dyn File>,
    fate: Arc<Fate>,
    is_written: AtomicBool,
}

impl Entry {
    fn of(file: Arc<dyn File>, fate: Arc<Fate>, is_written: bool) -> Arc<dyn File> {
        Arc::new(Entry { file, fate, is_written: is_written.into() })
    }
}

impl File for Entry {
    fn walk(&self, cx: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        let fate = self.fate.clone();
        let of = |walked: Walked| Walked { file: walked.file.map(|file| Entry::of(file, fate, false)), ..walked };
        self.file.walk(cx, elems).map(|walked| walked.map(of))
    }

    fn open(&self, cx: &Cx, how: Open) -> Answer<Qid> {
        self.is_written.store(how.access == Access::Write, Ordering::Relaxed);
        self.file.open(cx, how)
    }

    fn create(&self, cx: &Cx, what: Create<'_>) -> Answer<Created> {
        let fate = self.fate.clone();
        let of = |made: Created| Created { file: Entry::of(made.file, fate, true), ..made };
        self.file.create(cx, what).map(|made| made.map(of))
    }

    fn write(&self, cx: &Cx, offset: u64, data: Bytes) -> Answer<u32> {
        match self.fate.ask("write", self.fate.write) {
            Ok(()) => self.file.write(cx, offset, data),
            Err(errno) => Answer::err(errno),
        }
    }

    fn getattr(&self, cx: &Cx, mask: u64) -> Answer<Attr> {
        self.file.getattr(cx, mask)
    }

    fn stat(&self, cx: &Cx) -> Answer<StatBuf> {
        self.file.stat(cx)
    }

    fn wstat(&self, cx: &Cx, stat: &Stat<'_>) -> Answer<()> {
        match self.fate.ask("rename", self.fate.rename) {
            Ok(()) => self.file.wstat(cx, stat),
            Err(errno) => Answer::err(errno),
        }
    }

    fn rename_entry(&self, cx: &Cx, old: Name<'_>, newdir: &dyn File, new: Name<'_>) -> Answer<()> {
        let newdir = (newdir as &dyn Any).downcast_ref::<Entry>().unwrap();
        match self.fate.ask("rename", self.fate.rename) {
            Ok(()) => self.file.rename_entry(cx, old, &*newdir.file, new),
            Err(errno) => Answer::err(errno),
        }
    }

    fn rename(&self, cx: &Cx, newdir: &dyn File, name: Name<'_>) -> Answer<()> {
        let newdir = (newdir as &dyn Any).downcast_ref::<Entry>().unwrap();
        self.file.rename(cx, &*newdir.file, name)
    }

    fn remove(&self, cx: &Cx) -> Answer<()> {
        let _ = self.fate.ask("remove", None);
        self.file.remove(cx)
    }

    fn clunk(&self, cx: &Cx) -> Answer<()> {
        let closed = self.file.clunk(cx);
        if !self.is_written.load(Ordering::Relaxed) {
            return closed;
        }
        match self.fate.ask("close", self.fate.clunk) {
            Ok(()) => closed,
            Err(errno) => Answer::err(errno),
        }
    }
}

struct Scene {
    client: Client,
    /// By which nothing goes wrong.
    honest: Client,
    fate: Arc<Fate>,
}

impl Scene {
    async fn new(version: Version, fate: Fate) -> Scene {
        let (tree, fate) = (Arc::new(RamFs::new()), Arc::new(fate));
        let honest = Server::builder().export("", tree.clone(), false).build();
        let disk = Disk { tree, fate: fate.clone() };
        let server = Server::builder().export("", Arc::new(disk), false).build();
        let client = connect(&server, version, Options::default()).await;
        Scene { client, honest: connect(&honest, Version::N1, Options::default()).await, fate }
    }

    async fn make(&self, mode: Mode) -> Opened {
        self.client.root().await.unwrap().create(b"part", mode, 0o644).await.unwrap()
    }

    async fn close_and_rename(&self, file: Opened) -> Result<Result<(), Error>, Error> {
        let root = self.client.root().await.unwrap();
        let done = file.close_and_rename(&root, b"part", b"name").await;
        drop(root);
        settled(&self.client, 1).await;
        done
    }

    /// What a file has, if there is one.
    async fn content(&self, path: &str) -> Option<Bytes> {
        match self.honest.read(path, 100).await {
            Err(e) if e.is_not_found() => None,
            content => Some(content.unwrap()),
        }
    }

    fn asked(&self) -> Vec<&'static str> {
        self.fate.asked.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_file_is_closed_and_then_gets_its_name_and_with_guards_in_one_round_trip() {
    for version in VERSIONS {
        let scene = Scene::new(version, Fate::default()).await;
        // Without extensions nothing is replaced.
        if version.dialect == Dialect::Linux {
            write(&scene.honest, b"", b"name", b"old").await;
        }
        let mut file = scene.make(Mode::WRITE).await;
        file.write_at(0, Bytes::from_static(b"content")).await.unwrap();
        file.remove_on_drop();
        let root = scene.client.root().await.unwrap();
        let before = scene.client.stats().round_trips;
        file.close_and_rename(&root, b"part", b"name").await.unwrap().unwrap();
        let trips = scene.client.stats().round_trips - before;
        assert_eq!(trips == 1, version.is_n1(), "{version:?}: {trips}");
        assert_eq!(scene.asked(), ["write", "close", "rename"], "{version:?}");
        let there = (scene.content("/name").await, scene.content("/part").await);
        assert_eq!(there, (Some(Bytes::from_static(b"content")), None), "{version:?}");
        drop(root);
        settled(&scene.client, 1).await;
    }
}

#[tokio::test]
async fn a_close_that_fails_is_told_and_the_name_stays_with_the_file_that_has_it() {
    for version in VERSIONS {
        let scene = Scene::new(version, Fate { clunk: Some(Errno::EDQUOT), ..Fate::default() }).await;
        write(&scene.honest, b"", b"name", b"old").await;
        let file = scene.make(Mode::WRITE).await;
        file.write_at(0, Bytes::from_static(b"content")).await.unwrap();
        let error = scene.close_and_rename(file).await.unwrap_err();
        assert_eq!(error.errno(), Errno::EDQUOT, "{version:?}: {error}");
        assert_eq!(scene.asked(), ["write", "close"], "{version:?}");
        let there = (scene.content("/name").await, scene.content("/part").await);
        assert_eq!(there, (Some("old".into()), Some("content".into())), "{version:?}");
    }
}

#[tokio::test]
async fn a_rename_that_is_refused_is_told_within_and_both_files_stay() {
    for version in VERSIONS {
        let scene = Scene::new(version, Fate { rename: Some(Errno::EACCES), ..Fate::default() }).await;
        write(&scene.honest, b"", b"name", b"old").await;
        let file = scene.make(Mode::WRITE).await;
        file.write_at(0, Bytes::from_static(b"content")).await.unwrap();
        let refused = scene.close_and_rename(file).await.expect("it is closed").unwrap_err();
        assert_eq!(refused.errno(), Errno::EACCES, "{version:?}: {refused}");
        assert_eq!(scene.asked(), ["write", "close", "rename"], "{version:?}");
        let there = (scene.content("/name").await, scene.content("/part").await);
        assert_eq!(there, (Some("old".into()), Some("content".into())), "{version:?}");
    }
}

#[tokio::test]
async fn a_server_that_knows_no_rename_by_its_directory_is_asked_for_one_by_its_file() {
    let scene = Scene::new(Version::N1, Fate { rename: Some(Errno::EOPNOTSUPP), ..Fate::default() }).await;
    let file = scene.make(Mode::WRITE).await;
    scene.close_and_rename(file).await.unwrap().unwrap();
    assert_eq!((scene.content("/name").await, scene.content("/part").await), (Some(Bytes::new()), None));
}

#[tokio::test]
async fn a_write_behind_that_failed_is_told_before_its_close_and_nothing_gets_the_name() {
    for version in VERSIONS {
        let fate = Fate { write: Some(Errno::ENOSPC), clunk: Some(Errno::EDQUOT), ..Fate::default() };
        let scene = Scene::new(version, fate).await;
        write(&scene.honest, b"", b"name", b"old").await;
        let file = scene.make(BEHIND).await;
        file.write_behind(0, Bytes::from_static(b"content")).await.unwrap();
        let error = scene.close_and_rename(file).await.unwrap_err();
        assert_eq!(error.errno(), Errno::ENOSPC, "{version:?}: {error}");
        assert_eq!(scene.asked(), ["write", "close"], "{version:?}");
        let there = (scene.content("/name").await, scene.content("/part").await);
        assert_eq!(there, (Some("old".into()), Some(Bytes::new())), "{version:?}");
    }
}

#[tokio::test]
async fn a_write_behind_that_is_under_way_comes_before_the_close() {
    for version in VERSIONS {
        let scene = Scene::new(version, Fate::default()).await;
        let file = scene.make(BEHIND).await;
        for piece in 0..100 {
            file.write_behind(piece, Bytes::from_static(b"x")).await.unwrap();
        }
        scene.close_and_rename(file).await.unwrap().unwrap();
        assert_eq!(scene.asked()[99..], ["write", "close", "rename"], "{version:?}");
        assert_eq!(scene.content("/name").await, Some(vec![b'x'; 100].into()), "{version:?}");
    }
}

#[tokio::test]
async fn in_a_directory_of_another_session_nothing_gets_the_name() {
    let scene = Scene::new(Version::N1, Fate::default()).await;
    let file = scene.make(Mode::WRITE).await;
    let elsewhere = scene.honest.root().await.unwrap();
    let done = file.close_and_rename(&elsewhere, b"part", b"name").await;
    assert_eq!(done.flatten().unwrap_err().errno(), Errno::EINVAL);
    settled(&scene.client, 1).await;
    assert_eq!(scene.asked(), ["close"]);
    assert_eq!((scene.content("/name").await, scene.content("/part").await), (None, Some(Bytes::new())));
}
