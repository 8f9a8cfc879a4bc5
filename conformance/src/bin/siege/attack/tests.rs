//! The attack has teeth, and does not cry wolf: a server that looks before it leaps is caught, hostfs is not.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ninefold::server::{Answer, Attach, Create, Created, Cx, Data, DirSink, File, FileServer, Server, Walked};
use ninefold::transport::Peer;
use ninefold::tree::hostfs::HostFs;
use ninefold_proto::attr::{Attr, Time};
use ninefold_proto::open::Open;
use ninefold_proto::stat::{DirEntry, StatBuf};
use ninefold_proto::types::WalkElem;
use ninefold_proto::{Dialect, Errno, Error, Qid, QidType};

use super::*;

/// Serves by path: refuses to walk through a symbolic link, but only looks at the moment of the walk. The
/// fault that `openat2` is there for, as small as it can be.
struct ByPath {
    root: PathBuf,
}

struct PathFile {
    root: PathBuf,
    path: PathBuf,
    open: Mutex<Option<fs::File>>,
}

fn errno(error: &std::io::Error) -> Error {
    Error::new(Errno(error.raw_os_error().map_or(5, i32::unsigned_abs)))
}

fn qid(meta: &fs::Metadata) -> Qid {
    let kind = match meta {
        meta if meta.is_dir() => QidType::DIR,
        meta if meta.is_symlink() => QidType::SYMLINK,
        _ => QidType::FILE,
    };
    Qid { kind, version: 1, path: meta.ino() }
}

impl PathFile {
    fn at(&self, path: PathBuf) -> PathFile {
        PathFile { root: self.root.clone(), path, open: Mutex::default() }
    }

    fn meta(&self) -> Result<fs::Metadata, Error> {
        fs::symlink_metadata(&self.path).map_err(|error| errno(&error))
    }

    fn opened(&self, options: &OpenOptions) -> Result<Qid, Error> {
        let file = options.open(&self.path).map_err(|error| errno(&error))?;
        let qid = file.metadata().map(|meta| qid(&meta)).map_err(|error| errno(&error))?;
        *self.open.lock().unwrap() = Some(file);
        Ok(qid)
    }

    fn with_file<V>(&self, run: impl FnOnce(&fs::File) -> std::io::Result<V>) -> Result<V, Error> {
        let open = self.open.lock().unwrap();
        run(open.as_ref().ok_or(Errno::EBADF)?).map_err(|error| errno(&error))
    }
}

impl FileServer for ByPath {
    fn attach(&self, _: &Cx, _: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        let root = PathFile { root: self.root.clone(), path: self.root.clone(), open: Mutex::default() };
        root.meta().map(|meta| (qid(&meta), Arc::new(root) as Arc<dyn File>)).into()
    }
}

impl File for PathFile {
    fn walk(&self, _: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        let mut place = self.at(self.path.clone());
        let mut qids = Vec::new();
        for elem in elems {
            match elem {
                WalkElem::Here => {}
                WalkElem::Parent if place.path == self.root => {}
                WalkElem::Parent => _ = place.path.pop(),
                WalkElem::Name(name) => place.path.push(std::str::from_utf8(name.as_bytes()).unwrap_or("?")),
            }
            match place.meta() {
                Ok(meta) => qids.push(qid(&meta)),
                Err(error) if qids.is_empty() => return Answer::err(error),
                Err(_) => return Answer::ok(Walked { qids, file: None }),
            }
        }
        Answer::ok(Walked { qids, file: Some(Arc::new(place)) })
    }

    fn open(&self, _: &Cx, how: Open) -> Answer<Qid> {
        self.opened(OpenOptions::new().read(how.access.can_read()).write(how.access.can_write())).into()
    }

    fn create(&self, _: &Cx, what: Create<'_>) -> Answer<Created> {
        let file = self.at(self.path.join(std::str::from_utf8(what.name.as_bytes()).unwrap_or("?")));
        let made = file.opened(OpenOptions::new().read(true).write(true).create(true));
        made.map(|qid| Created { qid, file: Arc::new(file) }).into()
    }

    fn read(&self, _: &Cx, offset: u64, count: u32) -> Answer<Data> {
        let mut data = vec![0; count as usize];
        self.with_file(|file| file.read_at(&mut data, offset))
            .map(|n| {
                data.truncate(n);
                data.into()
            })
            .into()
    }

    fn write(&self, _: &Cx, offset: u64, data: Bytes) -> Answer<u32> {
        self.with_file(|file| file.write_at(&data, offset)).map(|n| n as u32).into()
    }

    fn readdir(&self, _: &Cx, offset: u64, max: u32) -> Answer<Bytes> {
        let mut sink = DirSink::new(max);
        if let (0, Ok(entries)) = (offset, fs::read_dir(&self.path)) {
            for entry in entries.flatten() {
                let (qid, name) = (Qid { path: entry.ino(), ..Qid::default() }, entry.file_name());
                sink.push(&DirEntry { qid, offset: 1, kind: 0, name: name.as_encoded_bytes() });
            }
        }
        Answer::ok(sink.into_bytes())
    }

    fn getattr(&self, _: &Cx, mask: u64) -> Answer<Attr> {
        let attr = |meta: fs::Metadata| Attr {
            valid: mask,
            qid: qid(&meta),
            mode: meta.mode(),
            mtime: Time { sec: meta.mtime(), nsec: 0 },
            ..Attr::default()
        };
        self.meta().map(attr).into()
    }

    fn stat(&self, _: &Cx) -> Answer<StatBuf> {
        self.meta().map(|meta| StatBuf { qid: qid(&meta), mtime: meta.mtime() as u32, ..StatBuf::default() }).into()
    }
}

/// Attacks `tree`, which serves `export`, for `seconds` at the most.
fn attack(tree: Arc<dyn FileServer>, export: &Path, outside: PathBuf, dialect: Dialect, seconds: f64) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
    let server = Server::builder().export("", tree, false).build();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let local = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            tokio::spawn(server.serve(stream, Peer::Tcp { peer, local, tls: false }));
        }
    });
    let options = Options {
        address: format!("9p://{local}").parse().unwrap(),
        export: export.to_owned(),
        outside,
        seconds,
        dialect: vec![dialect],
        planters: 2,
        visitors: 2,
        seed: None,
    };
    let report = run(&options).unwrap();
    runtime.shutdown_background();
    report
}

#[test]
fn a_server_that_looks_before_it_leaps_is_caught_in_every_dialect() {
    for dialect in Dialect::ALL {
        let ground = tempfile::tempdir().unwrap();
        let export = ground.path().join("export");
        fs::create_dir(&export).unwrap();
        let tree = Arc::new(ByPath { root: export.canonicalize().unwrap() });
        let report = attack(tree, &export, ground.path().join("outside"), dialect, 60.0);
        assert!(!report.held(), "{dialect}: {report:#?}");
    }
}

#[test]
fn hostfs_is_not_accused() {
    let ground = tempfile::tempdir().unwrap();
    let export = ground.path().join("export");
    fs::create_dir(&export).unwrap();
    let tree = Arc::new(HostFs::open(&export).unwrap());
    let report = attack(tree, &export, ground.path().join("outside"), Dialect::Linux, 3.0);
    assert!(report.held(), "{report:#?}");
}

#[test]
fn a_change_of_the_outside_is_told() {
    let ground = tempfile::tempdir().unwrap();
    let (export, outside) = (ground.path().join("export"), ground.path().join("outside"));
    fs::create_dir(&export).unwrap();
    let made = Ground::prepare(&export, &outside, &mut Random::new(1)).unwrap();
    let before = made.manifest().unwrap();
    assert!(before.changes(&made.manifest().unwrap()).is_empty());
    fs::write(outside.join("limbo/new"), "x").unwrap();
    fs::remove_file(outside.join("sub/file")).unwrap();
    let changes = before.changes(&made.manifest().unwrap()).join("\n");
    assert!(changes.contains("/limbo/new appeared"), "{changes}");
    assert!(changes.contains("/sub/file is gone"), "{changes}");
    assert!(changes.contains("/sub/ changed"), "{changes}");
}
