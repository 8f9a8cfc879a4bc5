//! The streams of one connection: their numbers, how they ended, and the files that they hold beyond their fids' clunks.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ninefold_proto::{Errno, Error};
use tokio_util::sync::CancellationToken;

use crate::server::dispatch::{Handle, outlive, survive};
use crate::server::{Answer, Cx};

/// How a stream ended well.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Ended {
    /// Bytes that were read from the file, or written to it.
    pub count: u64,
    pub modrev: u64,
}

pub(in crate::server) type End = Result<Ended, Error>;

/// Who hears how a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::server) enum Hears {
    Nobody,
    /// It is kept until then.
    WhoAsks,
    /// Its connection has told it. It is kept for who did not hear that, while there is room.
    HasBeenTold,
}

/// One stream, as its connection sees it.
#[derive(Debug, Default)]
pub(in crate::server) struct Stream {
    abort: CancellationToken,
    /// Cancelled behind the setting of `end`.
    over: CancellationToken,
    end: OnceLock<End>,
}

impl Stream {
    /// Ends it; `false` where it has ended, or was to end before.
    pub fn abort(&self) -> bool {
        let is_new = self.end.get().is_none() && !self.abort.is_cancelled();
        self.abort.cancel();
        is_new
    }

    pub fn ended(&self) -> Option<End> {
        self.end.get().cloned()
    }

    pub async fn wait(&self) -> End {
        self.over.cancelled().await;
        self.ended().unwrap_or_else(|| Err(Errno::EIO.into()))
    }
}

/// All streams of a connection.
#[derive(Debug)]
pub(in crate::server) struct OfConnection {
    most: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// No more streams.
    closed: bool,
    next: u32,
    streams: BTreeMap<u32, Arc<Stream>>,
    /// Those of `streams` that have ended, longest ago first.
    ended: Vec<u32>,
    /// The same whose ends were told: they make way before all others.
    told: Vec<u32>,
    /// Files that streams read or write by calls, by their addresses, which the streams keep.
    held: HashMap<usize, Held>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("streams", &self.streams).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Held {
    streams: usize,
    /// The file's clunk is due when they have ended.
    clunk: bool,
}

fn address(file: &Handle) -> usize {
    Arc::as_ptr(file).cast::<()>() as usize
}

impl OfConnection {
    /// `most`: streams that may be in the table.
    pub fn new(most: usize) -> Arc<OfConnection> {
        Arc::new(OfConnection { most, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more stream. EMFILE where all are taken by streams that have not ended.
    pub fn admit(self: &Arc<OfConnection>) -> Result<Entry, Error> {
        let mut table = self.table();
        if table.closed {
            return Err(Error::with_text(Errno::ECANCELED, "the session ends"));
        }
        if table.streams.len() >= self.most {
            let Table { ended, told, streams, .. } = &mut *table;
            let make_way = if told.is_empty() { ended } else { told };
            if make_way.is_empty() {
                return Err(Error::with_text(Errno::EMFILE, "too many streams of this connection"));
            }
            streams.remove(&make_way.remove(0));
        }
        // Not one that is in use: the table is smaller than the numbers are many.
        while table.streams.contains_key(&table.next) {
            table.next = table.next.wrapping_add(1);
        }
        let id = table.next;
        table.next = id.wrapping_add(1);
        let stream = Arc::<Stream>::default();
        table.streams.insert(id, stream.clone());
        Ok(Entry { of: self.clone(), id, stream, hears: Hears::Nobody })
    }

    pub fn find(&self, id: u32) -> Option<Arc<Stream>> {
        self.table().streams.get(&id).cloned()
    }

    pub fn forget(&self, id: u32) {
        let mut table = self.table();
        table.streams.remove(&id);
        table.ended.retain(|ended| *ended != id);
        table.told.retain(|told| *told != id);
    }

    /// Ends all streams and forgets them; `closed`: there will be no others. `false`: there was none that had not ended.
    pub fn end_all(&self, closed: bool) -> bool {
        let mut table = self.table();
        table.closed |= closed;
        table.ended.clear();
        table.told.clear();
        let streams = std::mem::take(&mut table.streams);
        drop(table);
        let mut any = false;
        for stream in streams.values() {
            any |= stream.abort();
        }
        any
    }

    /// The last call for a file: made now, or, where a stream uses it, when that has ended.
    pub fn clunk(&self, cx: &Cx, file: &Handle) -> Answer<()> {
        if let Some(held) = self.table().held.get_mut(&address(file)) {
            held.clunk = true;
            return Answer::ok(());
        }
        file.clunk(cx)
    }
}

/// A stream's place in the table. Dropped, it ends the stream: with EIO if nobody said how.
#[derive(Debug)]
pub(in crate::server) struct Entry {
    of: Arc<OfConnection>,
    id: u32,
    stream: Arc<Stream>,
    hears: Hears,
}

impl Entry {
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Ends when the stream is to.
    pub fn aborted(&self) -> CancellationToken {
        self.stream.abort.clone()
    }

    pub fn is_aborted(&self) -> bool {
        self.stream.abort.is_cancelled()
    }

    /// Keeps a file from its clunk while the stream uses it.
    pub fn hold(&self, file: Handle) -> Hold {
        self.of.table().held.entry(address(&file)).or_default().streams += 1;
        Hold { of: self.of.clone(), file, released: false }
    }

    /// Tells how it ended.
    pub fn end(mut self, end: End, hears: Hears) {
        self.hears = hears;
        let _ = self.stream.end.set(end);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let _ = self.stream.end.set(Err(Error::with_text(Errno::EIO, "the stream failed")));
        self.stream.over.cancel();
        let mut table = self.of.table();
        // Another of this number may be there after a Tversion.
        let is_there = table.streams.get(&self.id).is_some_and(|there| Arc::ptr_eq(there, &self.stream));
        match self.hears {
            _ if !is_there => {}
            Hears::Nobody => drop(table.streams.remove(&self.id)),
            Hears::WhoAsks => table.ended.push(self.id),
            Hears::HasBeenTold => table.told.push(self.id),
        }
    }
}

/// A file that a stream reads or writes by calls.
pub(in crate::server) struct Hold {
    of: Arc<OfConnection>,
    pub file: Handle,
    released: bool,
}

impl Hold {
    /// The stream uses it no more: clunks it where that was put off.
    pub async fn release(mut self) -> Result<(), Error> {
        self.released = true;
        if !self.let_go() {
            return Ok(());
        }
        let cx = Cx::detached();
        outlive(survive(|| self.file.clunk(&cx)).wait()).await
    }

    /// Whether the clunk is due.
    fn let_go(&self) -> bool {
        let mut table = self.of.table();
        let key = address(&self.file);
        let Some(held) = table.held.get_mut(&key) else { return false };
        held.streams -= 1;
        held.streams == 0 && table.held.remove(&key).is_some_and(|held| held.clunk)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.released && self.let_go() {
            let file = self.file.clone();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    let cx = Cx::detached();
                    // Nobody is left to be told.
                    let _ = outlive(survive(|| file.clunk(&cx)).wait()).await;
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_ended_longest_ago_make_way_and_others_do_not() {
        let of = OfConnection::new(2);
        let (one, two) = (of.admit().unwrap(), of.admit().unwrap());
        assert_eq!(of.admit().unwrap_err().errno, Errno::EMFILE);
        let (first, second) = (one.id(), two.id());
        two.end(Ok(Ended { count: 2, modrev: 1 }), Hears::WhoAsks);
        one.end(Ok(Ended { count: 1, modrev: 1 }), Hears::WhoAsks);
        let three = of.admit().unwrap();
        assert!(of.find(second).is_none() && of.find(three.id()).is_some());
        assert!(matches!(of.find(first).unwrap().ended(), Some(Ok(Ended { count: 1, .. }))));
        of.forget(first);
        assert!(of.admit().is_ok());
    }

    #[test]
    fn what_was_told_makes_way_before_what_is_still_to_be_asked_for() {
        let of = OfConnection::new(3);
        let all: Vec<_> = (0..3).map(|_| of.admit().unwrap()).collect();
        let ids: Vec<_> = all.iter().map(Entry::id).collect();
        for (entry, hears) in all.into_iter().zip([Hears::WhoAsks, Hears::HasBeenTold, Hears::HasBeenTold]) {
            entry.end(Ok(Ended { count: 1, modrev: 1 }), hears);
        }
        let is_there = |ids: &[u32]| ids.iter().map(|id| of.find(*id).is_some()).collect::<Vec<_>>();
        assert_eq!(is_there(&ids), [true; 3], "who did not hear it may ask");
        of.forget(ids[1]);
        let _new = [of.admit().unwrap(), of.admit().unwrap()];
        assert_eq!(is_there(&ids), [true, false, false]);
        let _last = of.admit().unwrap();
        assert_eq!(is_there(&ids), [false; 3]);
        assert!(of.admit().is_err());
    }

    #[test]
    fn a_stream_whose_task_is_lost_ends_in_an_error() {
        let of = OfConnection::new(2);
        let entry = of.admit().unwrap();
        let stream = of.find(entry.id()).unwrap();
        drop(entry);
        assert_eq!(stream.ended().unwrap().unwrap_err().errno, Errno::EIO);
        assert!(of.table().streams.is_empty());
    }

    #[test]
    fn the_end_of_all_is_the_end_of_each_and_closed_there_are_no_others() {
        let of = OfConnection::new(2);
        let entry = of.admit().unwrap();
        assert!(of.end_all(false));
        assert!(entry.aborted().is_cancelled() && of.find(entry.id()).is_none());
        let other = of.admit().unwrap();
        assert!(of.end_all(true) && !of.end_all(true));
        assert!(other.aborted().is_cancelled());
        assert_eq!(of.admit().unwrap_err().errno, Errno::ECANCELED);
    }
}
