//! Locks of several owners. Linux's client sends the locks of all processes of its machine over one connection: the owner
//! is told by `proc_id` and `client_id`. The end of a process comes as an ordinary unlock of the whole file, on whatever
//! fid was closed last; flock(2) as a lock of the whole file.

use ninefold::proto::{Dialect, Fid, R, T};

use super::conn::Conn;
use super::files::{RDWR, READ};
use super::lock_waits::{BLOCKED, GRANTED, HOST, READ_LOCK, UNLOCK, WHOLE, WRITE_LOCK, lock, wait_for};
use super::scene::Scene;

/// Type, start, length and process of the lock in the way of a lock of `proc_id`; none is type 2.
async fn in_the_way(conn: &mut Conn, fid: Fid, locktype: u8, range: (u64, u64), proc_id: u32) -> Option<Found> {
    let (start, length) = range;
    let reply = conn.ask(&T::Getlock { fid, locktype, start, length, proc_id, client_id: HOST }).await.unwrap();
    match reply.message() {
        R::Getlock { locktype: UNLOCK, .. } => None,
        R::Getlock { locktype, start, length, proc_id, client_id } => {
            assert_eq!(client_id, HOST);
            Some((locktype, start, length, proc_id))
        }
        other => panic!("{other:?}"),
    }
}

type Found = (u8, u64, u64, u32);

/// The same file opened once more.
async fn open_again(conn: &mut Conn, root: Fid, mode: u8) -> Fid {
    let walked = conn.at(root, "f").await.unwrap();
    conn.open(walked, mode).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn processes_that_share_one_open_file_are_owners_of_their_own() {
    for scene in Scene::each([Dialect::Linux]) {
        let (mut conn, root) = scene.connect().await;
        let fid = conn.create(root, b"f").await.unwrap();
        assert_eq!(lock(&mut conn, fid, WRITE_LOCK, (0, 10), 1).await, GRANTED);
        assert_eq!(lock(&mut conn, fid, WRITE_LOCK, (5, 1), 2).await, BLOCKED);
        assert_eq!(lock(&mut conn, fid, READ_LOCK, (9, 2), 2).await, BLOCKED);
        assert_eq!(lock(&mut conn, fid, WRITE_LOCK, (10, 10), 2).await, GRANTED);
        // An unlock takes from its own owner only.
        assert_eq!(lock(&mut conn, fid, UNLOCK, WHOLE, 3).await, GRANTED);
        assert_eq!(lock(&mut conn, fid, UNLOCK, (0, 10), 2).await, GRANTED);
        assert_eq!(in_the_way(&mut conn, fid, READ_LOCK, WHOLE, 3).await, Some((WRITE_LOCK, 0, 10, 1)));
        assert_eq!(in_the_way(&mut conn, fid, READ_LOCK, WHOLE, 1).await, Some((WRITE_LOCK, 10, 10, 2)));
        assert_eq!(in_the_way(&mut conn, fid, READ_LOCK, WHOLE, 2).await, Some((WRITE_LOCK, 0, 10, 1)));
    }
}

#[tokio::test(start_paused = true)]
async fn one_process_number_of_two_machines_behind_one_connection_is_two_owners() {
    for scene in Scene::each([Dialect::Linux]) {
        let (mut conn, root) = scene.connect().await;
        let fid = conn.create(root, b"f").await.unwrap();
        assert_eq!(lock(&mut conn, fid, WRITE_LOCK, (0, 10), 1).await, GRANTED);
        let (start, length, proc_id, client_id) = (0, 0, 1, b"another machine".as_slice());
        let other = |locktype| T::Lock { fid, locktype, flags: 0, start, length, proc_id, client_id };
        assert_eq!(conn.ask(&other(WRITE_LOCK)).await.unwrap().message(), R::Lock { status: BLOCKED });
        let getlock = T::Getlock { fid, locktype: READ_LOCK, start, length, proc_id, client_id };
        assert_eq!(
            conn.ask(&getlock).await.unwrap().message(),
            R::Getlock { locktype: WRITE_LOCK, start: 0, length: 10, proc_id: 1, client_id: HOST }
        );
        assert_eq!(conn.ask(&other(UNLOCK)).await.unwrap().message(), R::Lock { status: GRANTED });
        assert_eq!(in_the_way(&mut conn, fid, READ_LOCK, WHOLE, 2).await, Some((WRITE_LOCK, 0, 10, 1)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_process_takes_all_its_locks_whatever_fid_it_comes_by_and_no_others() {
    for scene in Scene::each([Dialect::Linux]) {
        let (mut conn, root) = scene.connect().await;
        let one = conn.create(root, b"f").await.unwrap();
        let two = open_again(&mut conn, root, RDWR).await;
        assert_eq!(lock(&mut conn, one, WRITE_LOCK, (0, 10), 1).await, GRANTED);
        assert_eq!(lock(&mut conn, two, READ_LOCK, (50, 10), 1).await, GRANTED);
        assert_eq!(lock(&mut conn, one, WRITE_LOCK, (100, 10), 2).await, GRANTED);
        assert_eq!(lock(&mut conn, two, WRITE_LOCK, (200, 10), 2).await, GRANTED);
        // Waits for both.
        let waiting = wait_for(&mut conn, one, (0, 105), 3).await;
        conn.is_silent().await;
        assert_eq!(lock(&mut conn, two, UNLOCK, WHOLE, 1).await, GRANTED);
        conn.is_silent().await;
        assert_eq!(in_the_way(&mut conn, two, WRITE_LOCK, (0, 100), 4).await, None);
        assert_eq!(in_the_way(&mut conn, two, WRITE_LOCK, (0, 0), 4).await, Some((WRITE_LOCK, 100, 10, 2)));
        assert_eq!(in_the_way(&mut conn, two, WRITE_LOCK, (110, 0), 4).await, Some((WRITE_LOCK, 200, 10, 2)));
        // The fid on which all but one of its locks were taken is still open.
        assert_eq!(lock(&mut conn, two, UNLOCK, WHOLE, 2).await, GRANTED);
        assert_eq!(conn.reply(waiting).await.message(), R::Lock { status: GRANTED });
        assert_eq!(in_the_way(&mut conn, two, WRITE_LOCK, WHOLE, 4).await, Some((WRITE_LOCK, 0, 105, 3)));
    }
}

#[tokio::test(start_paused = true)]
async fn getlock_tells_the_holder_among_owners_of_several_connections() {
    for scene in Scene::each([Dialect::Linux]) {
        let (mut a, root) = scene.connect().await;
        let a_fid = a.create(root, b"f").await.unwrap();
        let (mut b, root) = scene.connect().await;
        let b_fid = open_again(&mut b, root, RDWR).await;
        assert_eq!(lock(&mut a, a_fid, WRITE_LOCK, (0, 10), 1).await, GRANTED);
        assert_eq!(lock(&mut a, a_fid, READ_LOCK, (10, 10), 2).await, GRANTED);
        assert_eq!(lock(&mut b, b_fid, WRITE_LOCK, (20, 0), 1).await, GRANTED);
        for (range, locktype, found) in [
            ((0, 0), READ_LOCK, Some((WRITE_LOCK, 0, 10, 1))),
            ((9, 1), WRITE_LOCK, Some((WRITE_LOCK, 0, 10, 1))),
            // Readers share.
            ((10, 10), READ_LOCK, None),
            ((10, 10), WRITE_LOCK, Some((READ_LOCK, 10, 10, 2))),
            ((1 << 62, 1), READ_LOCK, Some((WRITE_LOCK, 20, 0, 1))),
        ] {
            assert_eq!(in_the_way(&mut a, a_fid, locktype, range, 3).await, found, "bytes {range:?}");
        }
        // Process 1 of the one connection is not process 1 of the other.
        assert_eq!(in_the_way(&mut a, a_fid, WRITE_LOCK, (20, 1), 1).await, Some((WRITE_LOCK, 20, 0, 1)));
        assert_eq!(in_the_way(&mut b, b_fid, WRITE_LOCK, (0, 1), 1).await, Some((WRITE_LOCK, 0, 10, 1)));
        drop(b);
        let waiting = wait_for(&mut a, a_fid, (20, 0), 3).await;
        assert_eq!(a.reply(waiting).await.message(), R::Lock { status: GRANTED });
        assert_eq!(in_the_way(&mut a, a_fid, WRITE_LOCK, (20, 1), 1).await, Some((WRITE_LOCK, 20, 0, 3)));
    }
}

#[tokio::test(start_paused = true)]
async fn flock_is_a_lock_of_the_whole_file_that_is_shared_or_exclusive() {
    for scene in Scene::each([Dialect::Linux]) {
        let (mut conn, root) = scene.connect().await;
        let one = conn.create(root, b"f").await.unwrap();
        // flock(2) takes an exclusive lock on a file that is open for reading, too.
        let two = open_again(&mut conn, root, READ).await;
        let (mut other, root) = scene.connect().await;
        let three = open_again(&mut other, root, READ).await;
        assert_eq!(lock(&mut conn, one, READ_LOCK, WHOLE, 1).await, GRANTED);
        assert_eq!(lock(&mut conn, two, READ_LOCK, WHOLE, 2).await, GRANTED);
        assert_eq!(lock(&mut other, three, WRITE_LOCK, WHOLE, 1).await, BLOCKED);
        assert_eq!(lock(&mut conn, one, UNLOCK, WHOLE, 1).await, GRANTED);
        assert_eq!(lock(&mut conn, two, WRITE_LOCK, WHOLE, 2).await, GRANTED, "turned from shared to exclusive");
        for range in [(0, 1), (1 << 40, 1), ((1 << 63) - 2, 1)] {
            assert_eq!(lock(&mut other, three, READ_LOCK, range, 1).await, BLOCKED, "{range:?}");
        }
        // Its end is the last close of the file.
        conn.clunk(two).await;
        assert_eq!(lock(&mut other, three, WRITE_LOCK, WHOLE, 1).await, GRANTED);
    }
}
