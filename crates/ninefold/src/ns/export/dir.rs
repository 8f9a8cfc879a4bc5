//! A directory that is open: what it holds, read whole when it is read from its beginning, and told piece by piece.
//!
//! Cookies are places in what was read, so they stay good whatever is removed meanwhile. What is kept so is taken from the export's
//! [`Room`](super::room::Room) until the directory is closed or read anew.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{StreamExt, iter};
use ninefold_proto::attr::Attr;
use ninefold_proto::plus::PlusEntry;
use ninefold_proto::stat::DirEntry;
use ninefold_proto::{Dialect, Errno, Qid};

use super::super::Error;
use super::super::list::made_up;
use super::super::namespace::Target;
use super::Here;
use super::attr::{attr, record};
use super::room::Held;
use crate::client::{Entry, Error as ClientError, FileType, Metadata};
use crate::server::{DirSink, Listed, Records, StatSink};

/// Mount points that are walked to at a time: as many as entries that are asked for their attributes.
const POINTS: usize = 64;

/// What was read, `.` and `..` at its head.
#[derive(Debug, Default)]
pub(super) struct Dir(Mutex<Option<Arc<Rows>>>);

#[derive(Debug)]
pub(super) struct Rows {
    rows: Vec<Row>,
    held: Held,
}

/// An entry as clients see it.
#[derive(Debug)]
struct Row {
    name: Vec<u8>,
    qid: Qid,
    kind: FileType,
    /// Boxed: names alone are most often asked for, and it is several times as large as the rest.
    metadata: Option<Box<Metadata>>,
}

impl Rows {
    fn push(&mut self, row: Row) -> Result<(), Errno> {
        let text = |text: &Option<Vec<u8>>| text.as_ref().map_or(0, Vec::len);
        let metadata = row.metadata.as_ref().map_or(0, |known| {
            let texts = [&known.owner, &known.group, &known.modifier, &known.link_target];
            size_of::<Metadata>() + texts.into_iter().map(text).sum::<usize>()
        });
        self.held.more(size_of::<Row>() + row.name.len() + metadata)?;
        self.rows.push(row);
        Ok(())
    }
}

impl Dir {
    /// The entries, read anew where a client begins anew; `full`: with attributes.
    pub async fn rows(&self, here: &Here, offset: u64, full: bool) -> Result<Arc<Rows>, Error> {
        // A place is good in what it was given from; attributes are asked for where they were not, but in the same dialect always.
        let known = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if offset == 0 { known.take() } else { known.clone() }
        };
        if let Some(rows) = known.filter(|_| offset != 0) {
            return Ok(rows);
        }
        let rows = Arc::new(read(here, full).await?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rows.clone());
        Ok(rows)
    }
}

async fn read(here: &Here, full: bool) -> Result<Rows, Error> {
    let above = match here.above().await {
        // Where it was renamed to nobody told us; what it holds can be read all the same.
        Err(e) if e.errno() == Errno::ESTALE => None,
        above => Some(above?),
    };
    let mut rows = Rows { rows: Vec::new(), held: here.fs.room.none() };
    for (name, dir) in [(&b"."[..], here), (&b".."[..], above.as_ref().unwrap_or(here))] {
        let metadata = if full { dir.metadata().await.ok().map(Box::new) } else { None };
        rows.push(Row { name: name.to_vec(), qid: dir.qid, kind: FileType::Dir, metadata })?;
    }
    match &here.node {
        Some(node) if !here.is_named && !full => {
            let mut entries = node.read_dir().await?;
            while let Some(entry) = entries.next().await? {
                let qid = here.fs.qids.map(here.tree, entry.qid)?;
                rows.push(Row { name: entry.name, qid, kind: entry.kind, metadata: None })?;
            }
        }
        Some(node) if !here.is_named => {
            let mut listing = node.list().await?;
            while let Some(listed) = listing.next().await? {
                rows.push(row(here, here.tree, listed)?)?;
            }
        }
        _ => {
            let entries = here.fs.ns.entries(&Target::Tree(here.path())).await?;
            // Whose file is mounted there, and so its number, its own walk tells: side by side, for there may be many.
            let points = entries.iter().filter(|(_, origin)| origin.is_none());
            let points = points.map(|((entry, _), _)| async { Here::enter(&here.fs, here.below(&entry.name)?).await });
            let points = iter(points.collect::<Vec<_>>()).buffered(POINTS).collect::<Vec<_>>().await;
            let mut points = points.into_iter();
            for (listed, origin) in entries {
                if let Some(from) = origin {
                    rows.push(row(here, here.fs.qids.tree(from.address()), listed)?)?;
                    continue;
                }
                let (entry, metadata) = listed;
                let row = match points.next() {
                    Some(Ok(file)) => {
                        let metadata = metadata.ok().map(|metadata| Box::new(Metadata { qid: file.qid, ..metadata }));
                        Row { name: entry.name, qid: file.qid, kind: entry.kind, metadata }
                    }
                    // Its server is lost, or lets nobody in: the name is there all the same, as the table has it.
                    _ => {
                        let qid = here.fs.qids.made_up(&here.below(&entry.name)?)?;
                        let metadata = Some(Box::new(Metadata { qid, ..made_up(&entry.name) }));
                        Row { name: entry.name, qid, kind: FileType::Dir, metadata }
                    }
                };
                rows.push(row)?;
            }
        }
    }
    Ok(rows)
}

/// An entry of a server's tree.
fn row(here: &Here, tree: u32, (entry, metadata): (Entry, Result<Metadata, ClientError>)) -> Result<Row, Error> {
    let qid = here.fs.qids.map(tree, entry.qid)?;
    let metadata = match metadata {
        Ok(metadata) => Some(Box::new(Metadata { qid: here.fs.qids.map(tree, metadata.qid)?, ..metadata })),
        Err(_) => None,
    };
    Ok(Row { name: entry.name, qid, kind: entry.kind, metadata })
}

/// Rows from a cookie on, each with the cookie behind it.
fn from(rows: &Rows, offset: u64) -> impl Iterator<Item = (u64, &Row)> {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    (1..).zip(&rows.rows).skip(at)
}

/// .L's entries; with attributes where `plus`.
pub(super) fn entries(rows: &Rows, offset: u64, max: u32, plus: bool) -> Result<Listed, Errno> {
    let mut sink = DirSink::new(max);
    let mut left = false;
    for (cookie, row) in from(rows, offset) {
        let kind = (row.kind.mode_bits() >> 12) as u8;
        let entry = DirEntry { qid: row.qid, offset: cookie, kind, name: &row.name };
        let unknown = Attr { qid: row.qid, ..Attr::default() };
        let fits = if plus {
            let attr = row.metadata.as_deref().map_or(unknown, attr);
            sink.push_plus(&PlusEntry { entry: DirEntry { qid: attr.qid, ..entry }, attr })
        } else {
            sink.push(&entry)
        };
        left |= !fits;
        if !fits {
            break;
        }
    }
    if left && sink.is_empty() { Err(Errno::EINVAL) } else { Ok(Listed { entries: sink.into_bytes(), end: !left }) }
}

/// Records of 9P2000, and of .u, which has `.` and `..` too.
pub(super) fn records(rows: &Rows, at: u64, max: u32, dialect: Dialect) -> Result<Records, Errno> {
    let mut sink = StatSink::new(dialect, max);
    for (cookie, row) in from(rows, at) {
        let is_dot = matches!(&row.name[..], b"." | b"..");
        // What has gone since it was listed has no record.
        let Some(metadata) = row.metadata.as_deref().filter(|_| !is_dot || dialect == Dialect::Unix) else { continue };
        let record = record(metadata, &row.name, metadata.link_target.as_deref(), dialect);
        if !sink.push(&record.as_stat(), cookie) {
            if sink.is_empty() {
                return Err(Errno::EINVAL);
            }
            break;
        }
    }
    Ok(sink.into_records())
}
