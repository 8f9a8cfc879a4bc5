use std::fs::File;
use std::future::Future;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use tempfile::NamedTempFile;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::server::{Cancel, Parking};

const BOUND: Duration = Duration::from_secs(10);
const KEY: FileKey = FileKey { dev: 1, ino: 2 };

/// A process on a client: a connection, an owner and an open file.
struct Client {
    table: Arc<LockTable>,
    connection: u64,
    proc_id: u32,
    holder: u64,
    key: FileKey,
    file: Option<Arc<OwnedFd>>,
    cancel: Arc<Cancel>,
    parking: Arc<Parking>,
}

impl Client {
    /// Process `id` on connection `id` with the open file `id`.
    fn new(table: &Arc<LockTable>, id: u32) -> Client {
        let (connection, holder) = (u64::from(id), u64::from(id));
        let (cancel, parking) = (Arc::default(), Parking::new(100, u64::MAX, None));
        Client { table: table.clone(), connection, proc_id: id, holder, key: KEY, file: None, cancel, parking }
    }

    fn on_host(table: &Arc<LockTable>, id: u32, file: &NamedTempFile) -> Client {
        let file = File::options().read(true).write(true).open(file.path()).unwrap();
        Client { file: Some(Arc::new(file.into())), ..Client::new(table, id) }
    }

    fn in_file(self, ino: u64) -> Client {
        Client { key: FileKey { ino, ..KEY }, ..self }
    }

    fn cx(&self) -> Cx {
        Cx::new(self.connection, self.cancel.clone(), self.parking.clone())
    }

    fn message(&self, kind: LockKind, start: u64, length: u64) -> Lock {
        Lock { kind, start, length, proc_id: self.proc_id, client_id: b"client".to_vec() }
    }

    fn ask(&self, kind: LockKind, start: u64, length: u64, wait: bool) -> Answer<LockStatus> {
        let lock = self.message(kind, start, length);
        match &self.file {
            Some(file) => self.table.lock(&self.cx(), self.key, file.clone(), self.holder, lock, wait),
            None => self.table.lock_unmirrored(&self.cx(), self.key, self.holder, lock, wait),
        }
    }

    #[track_caller]
    fn now(&self, kind: LockKind, start: u64, length: u64) -> Result<LockStatus, Errno> {
        match self.ask(kind, start, length, false) {
            Answer::Now(result) => result.map_err(|error| error.errno),
            Answer::Later(_) => panic!("a request that does not wait was not answered at once"),
        }
    }

    #[track_caller]
    fn gets(&self, kind: LockKind, start: u64, length: u64) {
        assert_eq!(self.now(kind, start, length), Ok(LockStatus::Granted));
    }

    #[track_caller]
    fn is_refused(&self, kind: LockKind, start: u64, length: u64) {
        assert_eq!(self.now(kind, start, length), Ok(LockStatus::Blocked));
    }

    #[track_caller]
    fn unlocks(&self, start: u64, length: u64) {
        self.gets(LockKind::Unlock, start, length);
    }

    /// A request that has to wait; it is in the queue when this returns.
    #[track_caller]
    fn waits(&self, kind: LockKind, start: u64, length: u64) -> Waiting {
        match self.ask(kind, start, length, true) {
            Answer::Later(future) => Waiting(tokio::spawn(future)),
            Answer::Now(result) => panic!("answered at once: {result:?}"),
        }
    }

    fn blocker(&self, kind: LockKind, start: u64, length: u64) -> Option<Lock> {
        let lock = self.message(kind, start, length);
        let answer = match &self.file {
            Some(file) => self.table.getlock(&self.cx(), self.key, file, &lock),
            None => self.table.getlock_unmirrored(&self.cx(), self.key, &lock),
        };
        match answer {
            Answer::Now(result) => result.unwrap(),
            Answer::Later(_) => panic!("getlock waits"),
        }
    }

    fn clunk(&self) {
        self.table.release(self.key, self.holder);
    }
}

struct Waiting(JoinHandle<Result<LockStatus, Error>>);

impl Waiting {
    async fn result(self) -> Result<LockStatus, Errno> {
        bounded(self.0).await.unwrap().map_err(|error| error.errno)
    }

    async fn granted(self) {
        assert_eq!(self.result().await, Ok(LockStatus::Granted));
    }
}

async fn bounded<F: Future>(future: F) -> F::Output {
    timeout(BOUND, future).await.expect("waited too long")
}

fn queue(table: &LockTable, key: FileKey) -> usize {
    table.with(key, false, |state| state.waiters.len()).unwrap_or(0)
}

/// Nothing is left in the table of files, the graph and the counts.
#[track_caller]
fn is_empty(table: &LockTable) {
    assert!(locked(&table.files).is_empty(), "files");
    assert!(locked(&table.waits).is_empty(), "waits");
    assert!(locked(&table.counts).is_empty(), "counts");
}

use LockKind::{Read, Unlock, Write};

#[test]
fn readers_share_and_a_writer_is_alone() {
    let table = LockTable::new();
    let [a, b, c] = [1, 2, 3].map(|id| Client::new(&table, id));
    a.gets(Read, 0, 10);
    b.gets(Read, 5, 10);
    c.is_refused(Write, 9, 1);
    c.gets(Write, 15, 0);
    a.is_refused(Read, 20, 1);
    a.unlocks(0, 0);
    b.unlocks(0, 0);
    c.gets(Write, 0, 0);
}

#[test]
fn locks_of_two_owners_on_one_connection_are_kept_apart() {
    let table = LockTable::new();
    let a = Client::new(&table, 1);
    let b = Client { proc_id: 2, ..Client::new(&table, 1) };
    a.gets(Write, 0, 10);
    b.is_refused(Read, 0, 1);
    b.unlocks(0, 0);
    b.is_refused(Read, 0, 1);
    a.unlocks(0, 0);
    b.gets(Read, 0, 1);
}

#[test]
fn one_process_number_on_two_connections_is_two_owners() {
    let table = LockTable::new();
    let a = Client::new(&table, 1);
    let b = Client { connection: 2, holder: 2, ..Client::new(&table, 1) };
    a.gets(Write, 0, 10);
    b.is_refused(Write, 0, 10);
}

#[test]
fn part_of_a_range_can_be_unlocked() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 30);
    a.unlocks(10, 10);
    b.gets(Write, 10, 10);
    b.is_refused(Write, 9, 1);
    b.is_refused(Write, 20, 1);
}

#[test]
fn an_owner_upgrades_and_downgrades_its_own_lock() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    a.gets(Read, 0, 10);
    b.gets(Read, 0, 5);
    a.is_refused(Write, 0, 10);
    a.gets(Write, 5, 5);
    b.is_refused(Read, 5, 1);
    a.gets(Read, 0, 10);
    b.gets(Read, 0, 10);
}

#[test]
fn a_refused_upgrade_keeps_what_was_held() {
    let table = LockTable::new();
    let [a, b, c] = [1, 2, 3].map(|id| Client::new(&table, id));
    a.gets(Read, 0, 10);
    b.gets(Read, 0, 10);
    a.is_refused(Write, 0, 10);
    b.unlocks(0, 0);
    c.is_refused(Write, 0, 10);
}

#[test]
fn ranges_that_are_none_are_refused() {
    let table = LockTable::new();
    let a = Client::new(&table, 1);
    assert_eq!(a.now(Write, u64::MAX, 1), Err(Errno::EINVAL));
    assert_eq!(a.now(Write, 1, u64::MAX), Err(Errno::EOVERFLOW));
    assert_eq!(a.now(Unlock, 2, i64::MAX as u64), Err(Errno::EOVERFLOW));
    a.gets(Write, i64::MAX as u64, 1);
    a.unlocks(0, 0);
    is_empty(&table);
}

#[test]
fn a_connection_can_hold_no_more_than_its_share() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    for at in 0..MAX_LOCKS as u64 {
        a.gets(Read, at * 2, 1);
    }
    assert_eq!(a.now(Read, MAX_LOCKS as u64 * 2, 1), Err(Errno::ENOLCK));
    a.gets(Read, 1, 1);
    b.gets(Read, 1, 1);
    a.clunk();
    b.clunk();
    is_empty(&table);
}

#[test]
fn an_unlock_that_would_exceed_the_share_changes_nothing() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    for at in 1..MAX_LOCKS as u64 {
        a.gets(Read, at * 10, 1);
    }
    a.gets(Read, 0, 3);
    assert_eq!(a.now(Unlock, 1, 1), Err(Errno::ENOLCK));
    b.is_refused(Write, 1, 1);
    a.unlocks(0, 3);
    b.gets(Write, 1, 1);
}

#[test]
fn a_long_client_id_is_refused() {
    let table = LockTable::new();
    let a = Client::new(&table, 1);
    let lock = Lock { client_id: vec![b'x'; 257], ..a.message(Read, 0, 1) };
    let answer = table.lock_unmirrored(&a.cx(), KEY, 1, lock, false);
    assert!(matches!(answer, Answer::Now(Err(error)) if error.errno == Errno::EINVAL));
}

#[test]
fn getlock_tells_the_lowest_lock_in_the_way_and_whose_it_is() {
    let table = LockTable::new();
    let [a, b, c] = [1, 2, 3].map(|id| Client::new(&table, id));
    a.gets(Write, 20, 0);
    b.gets(Read, 10, 5);
    assert_eq!(c.blocker(Write, 0, 0), Some(b.message(Read, 10, 5)));
    assert_eq!(c.blocker(Read, 0, 0), Some(a.message(Write, 20, 0)));
    assert_eq!(c.blocker(Write, 0, 10), None);
    assert_eq!(a.blocker(Read, 0, 0), None);
}

#[test]
fn release_ends_the_locks_of_that_open_file_alone() {
    let table = LockTable::new();
    let a = Client::new(&table, 1);
    let a2 = Client { holder: 100, ..Client::new(&table, 1) };
    let b = Client::new(&table, 2);
    a.gets(Write, 0, 10);
    a2.gets(Write, 20, 10);
    a.clunk();
    b.gets(Write, 0, 10);
    b.is_refused(Write, 20, 1);
    a2.clunk();
    b.gets(Write, 20, 1);
}

#[test]
fn a_lock_taken_through_two_open_files_ends_with_the_second() {
    let table = LockTable::new();
    let a = Client::new(&table, 1);
    let a2 = Client { holder: 100, ..Client::new(&table, 1) };
    let b = Client::new(&table, 2);
    a.gets(Write, 0, 10);
    a2.gets(Write, 0, 10);
    a.clunk();
    b.is_refused(Read, 0, 1);
    a2.clunk();
    b.gets(Read, 0, 1);
    b.unlocks(0, 0);
    is_empty(&table);
}

#[tokio::test]
async fn a_waiting_lock_is_granted_the_moment_the_holder_unlocks() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 10);
    let waiting = b.waits(Write, 5, 10);
    a.unlocks(5, 5);
    // Before the waiting task has even run.
    a.is_refused(Read, 5, 1);
    waiting.granted().await;
}

#[tokio::test]
async fn a_waiting_lock_that_nobody_holds_is_granted_at_once() {
    let table = LockTable::new();
    let a = Client::new(&table, 1);
    assert!(matches!(a.ask(Write, 0, 0, true), Answer::Now(Ok(LockStatus::Granted))));
}

#[tokio::test]
async fn a_waiting_lock_is_granted_when_the_holders_fid_is_clunked() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 10);
    let waiting = b.waits(Read, 0, 0);
    a.clunk();
    waiting.granted().await;
}

#[tokio::test]
async fn a_waiting_reader_is_granted_when_the_writer_downgrades() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 10);
    let waiting = b.waits(Read, 0, 10);
    a.gets(Read, 0, 10);
    waiting.granted().await;
}

#[tokio::test]
async fn a_flushed_wait_leaves_no_lock() {
    let table = LockTable::new();
    let [a, b, c] = [1, 2, 3].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 10);
    let waiting = b.waits(Write, 0, 10);
    b.cancel.cancel();
    assert_eq!(waiting.result().await, Err(Errno::EINTR));
    a.unlocks(0, 0);
    is_empty(&table);
    c.gets(Write, 0, 0);
}

#[tokio::test]
async fn a_flush_behind_the_grant_is_too_late() {
    let table = LockTable::new();
    let [a, b, c] = [1, 2, 3].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 10);
    let waiting = b.waits(Write, 0, 10);
    a.unlocks(0, 0);
    b.cancel.cancel();
    waiting.granted().await;
    c.is_refused(Read, 0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_races_with_a_flush_is_whole_or_not_at_all() {
    let table = LockTable::new();
    for _ in 0..500 {
        let [a, b, c] = [1, 2, 3].map(|id| Client::new(&table, id));
        a.gets(Write, 0, 10);
        let waiting = b.waits(Write, 0, 10);
        let cancel = b.cancel.clone();
        let flush = tokio::spawn(async move { cancel.cancel() });
        a.unlocks(0, 0);
        bounded(flush).await.unwrap();
        match waiting.result().await {
            Ok(LockStatus::Granted) => {
                c.is_refused(Write, 0, 10);
                b.clunk();
            }
            other => assert_eq!(other, Err(Errno::EINTR)),
        }
        is_empty(&table);
    }
}

#[tokio::test]
async fn a_wait_that_is_dropped_leaves_the_queue() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 10);
    drop(b.ask(Write, 0, 10, true));
    assert_eq!(queue(&table, KEY), 0);
    a.unlocks(0, 0);
    is_empty(&table);
}

#[tokio::test]
async fn waits_are_granted_in_the_order_in_which_they_came() {
    let table = LockTable::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 10);
    let second = b.waits(Write, 0, 10);
    let third = c.waits(Write, 0, 10);
    let fourth = d.waits(Write, 0, 10);
    a.unlocks(0, 0);
    second.granted().await;
    assert_eq!(queue(&table, KEY), 2);
    b.unlocks(0, 0);
    third.granted().await;
    assert_eq!(queue(&table, KEY), 1);
    c.unlocks(0, 0);
    fourth.granted().await;
}

#[tokio::test]
async fn a_waiting_writer_is_not_passed_by_later_readers() {
    let table = LockTable::new();
    let [a, b, c] = [1, 2, 3].map(|id| Client::new(&table, id));
    a.gets(Read, 0, 10);
    let writer = b.waits(Write, 0, 10);
    let reader = c.waits(Read, 0, 10);
    a.unlocks(0, 0);
    writer.granted().await;
    assert_eq!(queue(&table, KEY), 1);
    b.unlocks(0, 0);
    reader.granted().await;
}

#[tokio::test]
async fn a_wait_for_other_bytes_is_not_held_up_by_the_queue() {
    let table = LockTable::new();
    let [a, b, c] = [1, 2, 3].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 10);
    let _writer = b.waits(Write, 0, 10);
    assert!(matches!(c.ask(Write, 10, 10, true), Answer::Now(Ok(LockStatus::Granted))));
}

#[tokio::test]
async fn a_flushed_writer_lets_the_readers_behind_it_go() {
    let table = LockTable::new();
    let [a, b, c] = [1, 2, 3].map(|id| Client::new(&table, id));
    a.gets(Read, 0, 10);
    let writer = b.waits(Write, 0, 10);
    let reader = c.waits(Read, 0, 10);
    b.cancel.cancel();
    assert_eq!(writer.result().await, Err(Errno::EINTR));
    reader.granted().await;
}

#[tokio::test]
async fn an_owner_that_is_awaited_passes_the_queue() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    a.gets(Read, 0, 10);
    let writer = b.waits(Write, 0, 20);
    // Behind b it would wait for itself.
    assert!(matches!(a.ask(Read, 10, 10, true), Answer::Now(Ok(LockStatus::Granted))));
    a.unlocks(0, 0);
    writer.granted().await;
}

#[tokio::test]
async fn an_owner_that_becomes_awaited_leaves_the_queue_of_another_file() {
    let table = LockTable::new();
    let [a, b, c] = [1, 2, 3].map(|id| Client::new(&table, id));
    let [a_other, c_other] = [1, 3].map(|id| Client::new(&table, id).in_file(9));
    a.gets(Read, 0, 10);
    c_other.gets(Write, 0, 1);
    let writer = b.waits(Write, 0, 10);
    let reader = c.waits(Read, 0, 10);
    // a waits for c, c queues behind b, b waits for a: c must not go on queueing.
    let crossing = a_other.waits(Write, 0, 1);
    reader.granted().await;
    c_other.unlocks(0, 0);
    crossing.granted().await;
    a.unlocks(0, 0);
    c.unlocks(0, 0);
    writer.granted().await;
}

#[tokio::test]
async fn deadlock_is_refused() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 1);
    b.gets(Write, 1, 1);
    let waiting = a.waits(Write, 1, 1);
    let answer = bounded(b.ask(Write, 0, 1, true).wait()).await;
    assert_eq!(answer.unwrap_err().errno, Errno::EDEADLK);
    b.unlocks(1, 1);
    waiting.granted().await;
    a.clunk();
    is_empty(&table);
}

#[tokio::test]
async fn deadlock_over_three_files_is_refused() {
    let table = LockTable::new();
    let at = |id, ino| Client::new(&table, id).in_file(ino);
    for id in [1, 2, 3] {
        at(id, id.into()).gets(Write, 0, 0);
    }
    let first = at(1, 2).waits(Read, 0, 0);
    let second = at(2, 3).waits(Write, 0, 0);
    let third = bounded(at(3, 1).ask(Read, 0, 0, true).wait()).await;
    assert_eq!(third.unwrap_err().errno, Errno::EDEADLK);
    at(3, 3).clunk();
    second.granted().await;
    at(2, 2).clunk();
    first.granted().await;
}

#[tokio::test]
async fn a_deadlock_that_a_grant_completes_is_refused() {
    let table = LockTable::new();
    let at = |id, ino| Client::new(&table, id).in_file(ino);
    at(1, 1).gets(Write, 0, 0);
    at(3, 2).gets(Write, 0, 0);
    // 2 and then 3 wait for file 1; 2 waits for 3 in file 2 with another of its threads.
    let second = at(2, 1).waits(Write, 0, 0);
    let third = at(3, 1).waits(Write, 0, 0);
    let crossing = at(2, 2).waits(Write, 0, 0);
    at(1, 1).unlocks(0, 0);
    second.granted().await;
    assert_eq!(third.result().await, Err(Errno::EDEADLK));
    at(3, 2).clunk();
    crossing.granted().await;
}

#[tokio::test]
async fn two_readers_that_both_upgrade_do_not_wait_for_each_other() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    a.gets(Read, 0, 1);
    b.gets(Read, 0, 1);
    let waiting = a.waits(Write, 0, 1);
    let answer = bounded(b.ask(Write, 0, 1, true).wait()).await;
    assert_eq!(answer.unwrap_err().errno, Errno::EDEADLK);
    b.unlocks(0, 0);
    waiting.granted().await;
}

#[tokio::test]
async fn a_wait_beyond_the_parking_limit_is_refused_and_leaves_nothing() {
    let table = LockTable::new();
    let [a, mut b] = [1, 2].map(|id| Client::new(&table, id));
    b.parking = Parking::new(0, u64::MAX, None);
    a.gets(Write, 0, 1);
    let answer = bounded(b.ask(Write, 0, 1, true).wait()).await;
    assert_eq!(answer.unwrap_err().errno, Errno::ETRYLATER);
    assert!(matches!(b.ask(Write, 1, 1, true), Answer::Now(Ok(LockStatus::Granted))));
    a.clunk();
    b.clunk();
    is_empty(&table);
}

#[tokio::test]
async fn a_wait_counts_as_parked_until_it_is_answered() {
    let table = LockTable::new();
    let [a, b] = [1, 2].map(|id| Client::new(&table, id));
    a.gets(Write, 0, 1);
    let waiting = b.waits(Write, 0, 1);
    assert_eq!(b.parking.count(), 1);
    a.unlocks(0, 0);
    waiting.granted().await;
    assert_eq!(b.parking.count(), 0);
}

/// A local program: another open file description.
struct Program(File);

impl Program {
    fn new(file: &NamedTempFile) -> Program {
        Program(File::options().read(true).write(true).open(file.path()).unwrap())
    }

    fn set(&self, kind: i32, start: i64, length: i64) -> bool {
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start,
            l_len: length,
            l_pid: 0,
        };
        match fcntl(&self.0, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => true,
            Err(nix::Error::EAGAIN) => false,
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn gets(&self, kind: i32, start: i64, length: i64) {
        assert!(self.set(kind, start, length));
    }

    #[track_caller]
    fn is_refused(&self, kind: i32, start: i64, length: i64) {
        assert!(!self.set(kind, start, length));
    }
}

#[test]
fn a_local_program_sees_a_clients_lock() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let (a, program) = (Client::on_host(&table, 1, &file), Program::new(&file));
    a.gets(Write, 10, 10);
    program.is_refused(libc::F_RDLCK, 15, 1);
    program.gets(libc::F_WRLCK, 20, 0);
    a.gets(Read, 10, 10);
    program.gets(libc::F_RDLCK, 15, 1);
    program.is_refused(libc::F_WRLCK, 15, 1);
    program.gets(libc::F_UNLCK, 0, 0);
    a.unlocks(10, 5);
    program.gets(libc::F_WRLCK, 10, 5);
    program.is_refused(libc::F_WRLCK, 15, 1);
    a.clunk();
    program.gets(libc::F_WRLCK, 0, 0);
    is_empty(&table);
}

#[test]
fn the_host_holds_what_any_client_holds() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let [a, b] = [1, 2].map(|id| Client::on_host(&table, id, &file));
    let program = Program::new(&file);
    a.gets(Read, 0, 10);
    b.gets(Read, 5, 10);
    a.unlocks(0, 0);
    program.gets(libc::F_WRLCK, 0, 5);
    program.is_refused(libc::F_WRLCK, 5, 1);
    program.is_refused(libc::F_WRLCK, 14, 1);
    a.gets(Read, 8, 2);
    b.clunk();
    program.gets(libc::F_WRLCK, 5, 3);
    program.is_refused(libc::F_WRLCK, 9, 1);
    program.gets(libc::F_WRLCK, 10, 0);
}

#[test]
fn a_client_is_refused_what_a_local_program_holds() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let (a, program) = (Client::on_host(&table, 1, &file), Program::new(&file));
    program.gets(libc::F_WRLCK, 10, 10);
    a.gets(Write, 0, 10);
    a.is_refused(Read, 5, 10);
    let found = a.blocker(Read, 0, 0).unwrap();
    assert_eq!((found.kind, found.start, found.length, found.client_id), (Write, 10, 10, Vec::new()));
    assert_eq!(a.blocker(Write, 0, 10), None);
    a.unlocks(0, 0);
    is_empty(&table);
}

#[test]
fn getlock_does_not_take_a_clients_own_mirror_for_a_local_program() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let [a, b] = [1, 2].map(|id| Client::on_host(&table, id, &file));
    a.gets(Write, 0, 10);
    assert_eq!(a.blocker(Write, 0, 0), None);
    assert_eq!(b.blocker(Write, 0, 0), Some(a.message(Write, 0, 10)));
    a.gets(Read, 0, 10);
    assert_eq!(b.blocker(Read, 0, 0), None);
}

#[tokio::test]
async fn a_wait_for_a_local_program_ends_when_it_unlocks() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let (a, program) = (Client::on_host(&table, 1, &file), Program::new(&file));
    program.gets(libc::F_WRLCK, 0, 0);
    let waiting = a.waits(Write, 0, 10);
    program.gets(libc::F_UNLCK, 0, 0);
    waiting.granted().await;
    program.is_refused(libc::F_RDLCK, 0, 1);
}

#[tokio::test]
async fn a_flushed_wait_for_a_local_program_leaves_no_lock() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let (a, program) = (Client::on_host(&table, 1, &file), Program::new(&file));
    program.gets(libc::F_WRLCK, 0, 0);
    let waiting = a.waits(Write, 0, 10);
    a.cancel.cancel();
    assert_eq!(waiting.result().await, Err(Errno::EINTR));
    is_empty(&table);
    program.gets(libc::F_UNLCK, 0, 0);
    Program::new(&file).gets(libc::F_WRLCK, 0, 0);
}

#[tokio::test]
async fn clients_keep_their_order_while_a_local_program_is_in_the_way() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let [a, b] = [1, 2].map(|id| Client::on_host(&table, id, &file));
    let program = Program::new(&file);
    program.gets(libc::F_WRLCK, 0, 10);
    let first = a.waits(Write, 0, 20);
    // Free on the host, but queued for by a.
    let second = b.waits(Write, 15, 1);
    program.gets(libc::F_UNLCK, 0, 0);
    first.granted().await;
    assert_eq!(queue(&table, KEY), 1);
    a.unlocks(0, 0);
    second.granted().await;
}

#[tokio::test]
async fn a_wait_first_for_a_client_and_then_for_a_local_program_is_granted() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let [a, b] = [1, 2].map(|id| Client::on_host(&table, id, &file));
    let program = Program::new(&file);
    program.gets(libc::F_WRLCK, 0, 1);
    a.gets(Write, 10, 1);
    let waiting = b.waits(Write, 0, 20);
    a.unlocks(0, 0);
    assert_eq!(queue(&table, KEY), 1);
    program.gets(libc::F_UNLCK, 0, 0);
    waiting.granted().await;
}

#[test]
fn a_lock_outlives_other_descriptors_of_the_file() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let (a, program) = (Client::on_host(&table, 1, &file), Program::new(&file));
    a.gets(Write, 0, 0);
    drop(File::open(file.path()).unwrap());
    drop(a.file.unwrap());
    program.is_refused(libc::F_WRLCK, 0, 1);
}

#[test]
fn a_file_open_for_reading_alone_can_be_locked_for_writing() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let reader = Arc::new(OwnedFd::from(File::open(file.path()).unwrap()));
    let a = Client { file: Some(reader), ..Client::new(&table, 1) };
    a.gets(Write, 0, 0);
    Program::new(&file).is_refused(libc::F_WRLCK, 0, 1);
}

#[test]
fn a_directory_can_be_locked_as_flock_does() {
    let (table, dir) = (LockTable::new(), tempfile::tempdir().unwrap());
    let open = || Some(Arc::new(OwnedFd::from(File::open(dir.path()).unwrap())));
    let a = Client { file: open(), ..Client::new(&table, 1) };
    let b = Client { file: open(), ..Client::new(&table, 2) };
    a.gets(Write, 0, 0);
    b.is_refused(Read, 0, 0);
    a.clunk();
    b.gets(Write, 0, 0);
}

#[test]
fn a_file_that_is_not_opened_again_is_locked_through_the_given_descriptor() {
    let (table, dir) = (LockTable::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let open = || File::options().read(true).write(true).open(&path).unwrap();
    let a = Client { file: Some(Arc::new(open().into())), ..Client::new(&table, 1) };
    let program = Program(open());
    a.gets(Write, 0, 0);
    program.is_refused(libc::F_RDLCK, 0, 1);
    a.unlocks(0, 0);
    program.gets(libc::F_WRLCK, 0, 0);
}

#[test]
fn the_descriptor_is_closed_when_the_last_lock_goes() {
    let (table, file) = (LockTable::new(), NamedTempFile::new().unwrap());
    let a = Client::on_host(&table, 1, &file);
    a.gets(Write, 0, 10);
    let mirrored = |state: &mut State| state.mirror.is_some();
    assert_eq!(table.with(KEY, false, mirrored), Some(true));
    a.unlocks(0, 0);
    assert_eq!(table.with(KEY, false, mirrored), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_owners_that_lock_at_random_never_hold_a_byte_together_and_all_finish() {
    let (table, file) = (LockTable::new(), Arc::new(NamedTempFile::new().unwrap()));
    let held = Arc::new(Mutex::new([0i32; 8]));
    let tasks: Vec<_> = (0..8u32)
        .map(|id| {
            let (table, file, held) = (table.clone(), file.clone(), held.clone());
            tokio::spawn(async move {
                let client = Client::on_host(&table, id, &file);
                let mut random = u64::from(id) + 1;
                for _ in 0..200 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (start, length, write) = (random >> 33 & 7, 1 + (random >> 40 & 3), random >> 50 & 1 == 1);
                    let bytes = start as usize..(start + length).min(8) as usize;
                    let kind = if write { Write } else { Read };
                    assert_eq!(client.ask(kind, start, length, true).wait().await, Ok(LockStatus::Granted));
                    {
                        let mut held = locked(&held);
                        for byte in &mut held[bytes.clone()] {
                            assert!(if write { *byte == 0 } else { *byte >= 0 });
                            *byte += if write { -1 } else { 1 };
                        }
                    }
                    tokio::task::yield_now().await;
                    for byte in &mut locked(&held)[bytes] {
                        *byte -= if write { -1 } else { 1 };
                    }
                    client.unlocks(0, 0);
                }
            })
        })
        .collect();
    for task in tasks {
        bounded(task).await.unwrap();
    }
    is_empty(&table);
}
