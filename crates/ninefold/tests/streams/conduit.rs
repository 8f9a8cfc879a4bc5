//! File servers with conduits of their own: what one does against its contract is the end of its stream, and of nothing else.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ninefold::proto::attr::{Attr, getattr};
use ninefold::proto::open::Open;
use ninefold::proto::stat::StatBuf;
use ninefold::proto::types::WalkElem;
use ninefold::proto::{Errno, Error, Qid, QidType};
use ninefold::server::{
    Answer, Attach, Conveyed, Cx, Data, File, FileServer, Limits, Seen, Server, Sink, Source, StreamLimits, Walked,
};
use ninefold::tree::ramfs::RamFs;
use tokio::io::AsyncWriteExt;

use crate::bed::{Bed, all, is_reset};

const EIO: u32 = 5;
const ESTALE: u32 = 116;
const ENOSPC: u32 = 28;

/// What its files say to be read or written as a whole.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Good,
    /// No conduits: reads and writes.
    Without,
    /// An error in their place.
    Refuses,
    Changed,
    /// That, of a file that has no number.
    ChangedUntold,
    Unknown,
    /// A byte more than was asked for.
    More,
    /// A piece of nothing.
    Nothing,
    /// An error behind all of it.
    FailsLate,
    Panics,
    /// Another number of bytes at the end than were written.
    Miscounts,
}

const CONTENT: &[u8] = b"what there is";

/// A version by which nothing tells the attributes any more.
const GONE: usize = usize::MAX;

/// A root and files.
#[derive(Clone)]
struct Tree {
    is_file: bool,
    kind: Kind,
    version: Arc<AtomicUsize>,
    written: Arc<Mutex<Vec<u8>>>,
    /// Conduits that are there, and whether one was at a clunk.
    held: Arc<AtomicUsize>,
}

impl Tree {
    fn qid(&self) -> Qid {
        let kind = if self.is_file { QidType::FILE } else { QidType::DIR };
        Qid { kind, version: u32::from(self.kind != Kind::ChangedUntold), path: self.is_file.into() }
    }
}

impl FileServer for Tree {
    fn attach(&self, _: &Cx, _: &Attach) -> Answer<(Qid, Arc<dyn File>)> {
        Answer::ok((self.qid(), Arc::new(self.clone())))
    }
}

impl File for Tree {
    fn walk(&self, _: &Cx, elems: &[WalkElem<'_>]) -> Answer<Walked> {
        let is_file = self.is_file || !elems.is_empty();
        let file = Tree { is_file, ..self.clone() };
        Answer::ok(Walked { qids: elems.iter().map(|_| file.qid()).collect(), file: Some(Arc::new(file)) })
    }

    fn open(&self, _: &Cx, _: Open) -> Answer<Qid> {
        Answer::ok(self.qid())
    }

    fn read(&self, _: &Cx, offset: u64, count: u32) -> Answer<Data> {
        let rest = &CONTENT[CONTENT.len().min(offset as usize)..];
        Answer::ok(rest[..rest.len().min(count as usize)].into())
    }

    fn write(&self, _: &Cx, _: u64, data: Bytes) -> Answer<u32> {
        self.written.lock().unwrap().extend_from_slice(&data);
        Answer::ok(data.len() as u32)
    }

    fn source(&self, _: &Cx, offset: u64, _: Option<u64>) -> Answer<Box<dyn Source>> {
        match self.kind {
            Kind::Without => Answer::err(Errno::EOPNOTSUPP),
            Kind::Refuses => Answer::err(Errno::ENOSPC),
            _ => Answer::ok(Box::new(Conduit::new(self, offset))),
        }
    }

    fn sink(&self, _: &Cx, offset: u64, _: Option<u64>) -> Answer<Box<dyn Sink>> {
        match self.kind {
            Kind::Without => Answer::err(Errno::EOPNOTSUPP),
            Kind::Refuses => Answer::err(Errno::ENOSPC),
            _ => Answer::ok(Box::new(Conduit::new(self, offset))),
        }
    }

    fn getattr(&self, _: &Cx, _: u64) -> Answer<Attr> {
        if self.version.load(Ordering::Relaxed) == GONE {
            return Answer::err(Errno::ESTALE);
        }
        let (valid, size) = (getattr::BASIC, CONTENT.len() as u64);
        let generation = self.version.load(Ordering::Relaxed) as u64;
        Answer::ok(Attr { valid, qid: self.qid(), mode: 0o100_644, size, data_version: generation, ..Attr::default() })
    }

    fn stat(&self, _: &Cx) -> Answer<StatBuf> {
        Answer::err(Errno::EOPNOTSUPP)
    }

    fn clunk(&self, _: &Cx) -> Answer<()> {
        assert_eq!(self.held.load(Ordering::Relaxed), 0, "a conduit outlives its file");
        Answer::ok(())
    }
}

struct Conduit {
    tree: Tree,
    at: usize,
    count: u64,
}

impl Conduit {
    fn new(tree: &Tree, offset: u64) -> Conduit {
        tree.held.fetch_add(1, Ordering::Relaxed);
        Conduit { tree: tree.clone(), at: offset as usize, count: 0 }
    }

    fn end<T>(&self, well: T) -> Result<T, Error> {
        match self.tree.kind {
            Kind::FailsLate => Err(Errno::ENOSPC.into()),
            _ => Ok(well),
        }
    }
}

impl Drop for Conduit {
    fn drop(&mut self) {
        self.tree.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Source for Conduit {
    fn next(&mut self) -> Conveyed<'_, Option<Bytes>> {
        assert_ne!(self.tree.kind, Kind::Panics);
        Box::pin(async {
            let piece = &CONTENT[CONTENT.len().min(self.at)..CONTENT.len().min(self.at + 5)];
            self.at += piece.len();
            Ok(match self.tree.kind {
                Kind::Nothing => Some(Bytes::new()),
                Kind::More if piece.is_empty() => Some(Bytes::from_static(b"x")),
                _ => Some(Bytes::from_static(piece)).filter(|piece| !piece.is_empty()),
            })
        })
    }

    fn finish(self: Box<Self>) -> Conveyed<'static, Seen> {
        Box::pin(async move {
            self.end(match self.tree.kind {
                Kind::Changed | Kind::ChangedUntold => Seen::Changed,
                Kind::Unknown => Seen::Unknown,
                _ => Seen::Unchanged,
            })
        })
    }
}

impl Sink for Conduit {
    fn write(&mut self, bytes: Bytes) -> Conveyed<'_, ()> {
        Box::pin(async move {
            assert_ne!(self.tree.kind, Kind::Panics);
            self.count += bytes.len() as u64;
            self.tree.written.lock().unwrap().extend_from_slice(&bytes);
            Ok(())
        })
    }

    fn finish(self: Box<Self>) -> Conveyed<'static, u64> {
        Box::pin(async move { self.end(self.count + u64::from(self.tree.kind == Kind::Miscounts)) })
    }
}

fn bed(kind: Kind) -> (Bed, Tree) {
    let tree = Tree { is_file: false, kind, version: Arc::default(), written: Arc::default(), held: Arc::default() };
    let server = Server::builder()
        .export("odd", Arc::new(tree.clone()), false)
        .export("mem", Arc::new(RamFs::new()), false)
        .limits(Limits::default())
        .streams(StreamLimits::default())
        .build();
    (Bed::serving(server, tempfile::tempdir().unwrap()), tree)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_ends_its_stream_as_it_ends_itself() {
    for kind in [Kind::Good, Kind::Without, Kind::Changed, Kind::Unknown] {
        let (bed, tree) = bed(kind);
        let mut s = bed.session("9P2000.L.n1", "odd").await;
        s.open_file(1, "f", 0).await;
        let opened = s.stream(1, true, 3, CONTENT.len() as u64 - 3).await.unwrap();
        assert!(all(&mut bed.data(&opened.token).await).await.unwrap() == CONTENT[3..], "{kind:?}");
        let (count, modrev) = s.end(opened.id, 0).await.unwrap();
        assert_eq!(count, CONTENT.len() as u64 - 3);
        match kind {
            Kind::Changed => assert!(modrev != opened.modrev && modrev != 0),
            Kind::Unknown => assert_eq!(modrev, 0),
            _ => assert_eq!(modrev, opened.modrev, "{kind:?}"),
        }
        assert_eq!(s.ask("Tclunk tag 1 fid 1").await, "Rclunk tag 1");
        bed.quiet().await;
        assert_eq!(tree.held.load(Ordering::Relaxed), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_breaks_its_contract_or_fails_ends_its_stream_in_an_error() {
    for (kind, errno) in [
        (Kind::More, EIO),
        (Kind::Nothing, EIO),
        (Kind::Panics, EIO),
        (Kind::FailsLate, ENOSPC),
        (Kind::Refuses, ENOSPC),
    ] {
        let (bed, tree) = bed(kind);
        let mut s = bed.session("9P2000.L.n1", "odd").await;
        s.open_file(1, "f", 0).await;
        match s.stream(1, true, 0, CONTENT.len() as u64).await {
            Err(refused) => assert_eq!((kind, refused), (Kind::Refuses, errno)),
            Ok(opened) => {
                let mut data = bed.data(&opened.token).await;
                assert!(all(&mut data).await.is_err(), "{kind:?}");
                assert_eq!(s.end(opened.id, 0).await, Err(errno), "{kind:?}");
            }
        }
        assert_eq!(s.ask("Tclunk tag 1 fid 1").await, "Rclunk tag 1", "{kind:?}");
        bed.quiet().await;
        assert_eq!(tree.held.load(Ordering::Relaxed), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_is_written_to_the_end_and_its_last_word_is_the_streams() {
    for (kind, ends) in [
        (Kind::Good, Ok(())),
        (Kind::Without, Ok(())),
        (Kind::Miscounts, Err(EIO)),
        (Kind::Panics, Err(EIO)),
        (Kind::FailsLate, Err(ENOSPC)),
    ] {
        for length in [0, 7] {
            let (bed, tree) = bed(kind);
            let mut s = bed.session("9P2000.L.n1", "odd").await;
            s.open_file(1, "f", 1).await;
            let opened = s.stream(1, false, 0, length).await.unwrap();
            let mut data = bed.data(&opened.token).await;
            data.write_all(b"written").await.unwrap();
            // It may be told by then.
            let _ = data.shutdown().await;
            assert_eq!(s.end(opened.id, 0).await.map(|(count, _)| assert_eq!(count, 7)), ends, "{kind:?}");
            assert!(kind == Kind::Panics || *tree.written.lock().unwrap() == b"written", "{kind:?}");
            if ends.is_err() {
                is_reset(&mut data).await;
            }
            assert_eq!(s.ask("Tclunk tag 1 fid 1").await, "Rclunk tag 1", "{kind:?}");
            bed.quiet().await;
            assert_eq!(tree.held.load(Ordering::Relaxed), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_attributes_show_is_told_whatever_the_source_saw() {
    let (bed, tree) = bed(Kind::Unknown);
    let mut s = bed.session("9P2000.L.n1", "odd").await;
    s.open_file(1, "f", 0).await;
    let opened = s.stream(1, true, 0, 0).await.unwrap();
    tree.version.fetch_add(1, Ordering::Relaxed);
    all(&mut bed.data(&opened.token).await).await.unwrap();
    let (_, modrev) = s.end(opened.id, 0).await.unwrap();
    assert!(modrev != opened.modrev && modrev != 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_source_saw_is_told_also_where_no_number_tells_it() {
    for (kind, goes) in [(Kind::Changed, true), (Kind::ChangedUntold, false)] {
        let (bed, tree) = bed(kind);
        let mut s = bed.session("9P2000.L.n1", "odd").await;
        s.open_file(1, "f", 0).await;
        let opened = s.stream(1, true, 0, 0).await.unwrap();
        assert_eq!(opened.modrev == 0, kind == Kind::ChangedUntold);
        if goes {
            tree.version.store(GONE, Ordering::Relaxed);
        }
        let came = all(&mut bed.data(&opened.token).await).await;
        match s.end(opened.id, 0).await {
            Ok((_, modrev)) => assert!(goes && came.is_ok() && modrev != opened.modrev && modrev != 0),
            Err(errno) => assert_eq!((kind, errno), (Kind::ChangedUntold, ESTALE)),
        }
    }
}
