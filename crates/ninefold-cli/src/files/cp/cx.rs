//! What all the files of one copy share: how to copy, and where to tell what happened.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use ninefold::client::{FileType, Places};
use ninefold::transport;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::dest::How;
use super::digest::Digest;
use super::facts::{Facts, Identity};
use super::filter::Filter;
use super::progress::Progress;
use super::trouble::{Cause, Trouble};
use super::turn::Room;
use crate::files::World;
use crate::out::{Out, text};
use crate::place::Place;
use crate::report::Printable;

/// See the module.
pub struct Cx<'a> {
    pub how: How,
    pub recursive: bool,
    /// A source that changes while it is copied is a failure, not a warning: it is to be removed.
    pub strict: bool,
    /// Streams of one file at a time, at most, and so many of all files together, but one for each.
    pub streams: usize,
    /// Those of files that have several.
    pub streaming: Cell<usize>,
    pub dry_run: bool,
    pub json: bool,
    pub filter: Filter,
    pub world: &'a World,
    pub progress: Progress,
    pub out: Mutex<Out>,
    /// Nobody reads standard output any more.
    pub unread: Cell<bool>,
    pub tally: RefCell<Tally>,
    /// Small files of servers on their way, each in one round trip.
    pub small: Places,
    /// Bytes of small files that are held in memory.
    pub room: Room,
    /// Files on their way that take more than that.
    pub large: Places,
    /// A connection is gone: nothing more can be copied.
    pub lost: Cell<bool>,
    /// Files that were written in place, or are being, each by the name that it was written by.
    pub in_place: RefCell<HashMap<Identity, Place>>,
    /// Directories of servers that are copied to, which must not be copied themselves.
    pub roots: RefCell<Vec<(transport::Place, u64)>>,
}

/// Streams that a file may have at a time; dropped, others may have them.
#[derive(Debug)]
pub struct Granted<'a> {
    pub streams: usize,
    streaming: &'a Cell<usize>,
}

impl Drop for Granted<'_> {
    fn drop(&mut self) {
        self.streaming.update(|streams| streams - self.streams);
    }
}

/// Sums of a copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub files: u64,
    pub directories: u64,
    pub skipped: u64,
    pub failed: u64,
    pub bytes: u64,
}

/// What became of one file.
#[derive(Debug)]
pub struct Record {
    pub source: Place,
    pub destination: Place,
    pub kind: FileType,
    /// Bytes that the file has.
    pub bytes: u64,
    pub took: Duration,
    pub digest: Option<Digest>,
    pub in_place: Option<String>,
    /// It was there already.
    pub skipped: bool,
    /// So many bytes of it were there already.
    pub resumed: u64,
}

impl Record {
    pub fn new(source: &Place, destination: &Place, kind: FileType) -> Record {
        Record {
            source: source.clone(),
            destination: destination.clone(),
            kind,
            bytes: 0,
            took: Duration::ZERO,
            digest: None,
            in_place: None,
            skipped: false,
            resumed: 0,
        }
    }
}

impl Cx<'_> {
    /// What other files have left of the streams; `None` where that is no more than the one that each may have.
    pub fn grant_streams(&self) -> Option<Granted<'_>> {
        let streams = self.streams.saturating_sub(self.streaming.get());
        if streams < 2 {
            return None;
        }
        self.streaming.update(|all| all + streams);
        Some(Granted { streams, streaming: &self.streaming })
    }

    /// Tells a failure; of a connection that is gone only the first time, since every file fails of it.
    pub fn complain(&self, trouble: &Trouble) {
        self.tally.borrow_mut().failed += 1;
        if trouble.cause.is_loss() && self.lost.replace(true) {
            return;
        }
        self.progress.suspend(|| self.world.report.complain(trouble));
    }

    pub fn warn(&self, remark: impl fmt::Display) {
        // It may hold a name that a server told.
        let remark = remark.to_string();
        self.progress.suspend(|| self.world.report.warn(Printable(&remark)));
    }

    /// The file at `place`, of which `old` is known, is about to be written in place. Refused is one that this copy has
    /// written by another name: it would hold two sources mixed, or the last.
    pub fn write_in_place(&self, place: &Place, old: Option<&Facts>) -> Result<(), Trouble> {
        let Some(identity) = old.filter(|old| old.kind == FileType::File).and_then(|old| old.identity(place)) else {
            return Ok(());
        };
        match self.in_place.borrow_mut().entry(identity) {
            Entry::Vacant(free) => {
                free.insert(place.clone());
                Ok(())
            }
            Entry::Occupied(other) => {
                let words = format!("it is the same file as {}, which this copy has just written", other.get());
                Err(Trouble::new(place, "", Cause::words(words)))
            }
        }
    }

    /// A file that is copied, or would be.
    pub async fn done(&self, record: &Record) -> anyhow::Result<()> {
        {
            let mut tally = self.tally.borrow_mut();
            match (record.kind, record.skipped) {
                (FileType::Dir, _) => tally.directories += 1,
                (_, true) => tally.skipped += 1,
                _ => tally.files += 1,
            }
            tally.bytes += record.bytes - record.resumed.min(record.bytes);
        }
        if self.json {
            let mut object = json!({
                "source": place(&record.source),
                "destination": place(&record.destination),
                "kind": kind(record.kind),
                "bytes": record.bytes,
                "seconds": record.took.as_secs_f64(),
                "skipped": record.skipped,
                "in_place": record.in_place.is_some(),
            });
            if record.resumed > 0 {
                object["resumed_at"] = record.resumed.into();
            }
            if let Some(digest) = &record.digest {
                object["xxh3_128"] = digest.to_string().into();
            }
            if self.dry_run {
                object["dry_run"] = true.into();
            }
            return self.print(&format!("{object}\n")).await;
        }
        if self.dry_run {
            let is_there = if record.skipped { " (is there already)" } else { "" };
            let line = format!("{} -> {}{is_there}", record.source, record.destination);
            self.print(&format!("{}\n", Printable(&line))).await?;
        }
        Ok(())
    }

    /// Prints. When nobody reads any more the copy goes on all the same: it is not made for its output. A dry run ends.
    async fn print(&self, text: &str) -> anyhow::Result<()> {
        if self.unread.get() {
            return Ok(());
        }
        match self.out.lock().await.put(text.as_bytes()).await {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe && !self.dry_run => self.unread.set(true),
            other => other?,
        }
        Ok(())
    }

    /// A file that could not be copied.
    pub async fn failed(&self, source: &Place, destination: &Place, trouble: &Trouble) -> anyhow::Result<()> {
        self.complain(trouble);
        if self.json {
            let object = json!({
                "source": place(source),
                "destination": place(destination),
                "error": trouble.to_string(),
            });
            self.print(&format!("{object}\n")).await?;
        }
        Ok(())
    }

    /// What could not be kept of a file's attributes; the file itself is whole.
    pub fn not_preserved(&self, destination: &Place, cause: Option<Cause>) {
        if let Some(cause) = cause {
            self.complain(&Trouble::new(destination, "copied, but its attributes cannot be preserved", cause));
        }
    }

    /// The last line of JSON.
    pub async fn summary(&self, began: Instant) -> anyhow::Result<()> {
        if !self.json {
            return Ok(());
        }
        let tally = *self.tally.borrow();
        let object = json!({
            "files": tally.files,
            "directories": tally.directories,
            "skipped": tally.skipped,
            "failed": tally.failed,
            "bytes": tally.bytes,
            "seconds": began.elapsed().as_secs_f64(),
        });
        self.print(&format!("{object}\n")).await
    }
}

/// Without loss: an address is encoded, a local path need not be UTF-8.
fn place(place: &Place) -> Value {
    match place {
        Place::Local(path) => text(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())),
        Place::Remote(address) => address.to_string().into(),
    }
}

fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "file",
        FileType::Dir => "directory",
        FileType::Symlink => "link",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}
