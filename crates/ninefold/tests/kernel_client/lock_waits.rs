//! A lock that waits is answered when it is granted. Linux's client that is told "blocked" sleeps for 30 s before it asks
//! again (v9fs_file_do_lock in fs/9p/vfs_file.c), whatever becomes free meanwhile.

use ninefold::proto::{Dialect, Fid, R, T, Tag};

use super::conn::Conn;
use super::files::RDWR;
use super::scene::Scene;

/// Types, flag and status of Tlock, as Linux has them in include/net/9p/9p.h.
pub const READ_LOCK: u8 = 0;
pub const WRITE_LOCK: u8 = 1;
pub const UNLOCK: u8 = 2;
const BLOCK: u32 = 1;
pub const GRANTED: u8 = 0;
pub const BLOCKED: u8 = 1;

/// What Linux's client sends: its nodename.
pub const HOST: &[u8] = b"workstation";

/// A lock, or an unlock, that does not wait; its status.
pub async fn lock(conn: &mut Conn, fid: Fid, locktype: u8, range: (u64, u64), proc_id: u32) -> u8 {
    let (start, length) = range;
    let reply = conn.ask(&T::Lock { fid, locktype, flags: 0, start, length, proc_id, client_id: HOST }).await.unwrap();
    let R::Lock { status } = reply.message() else { panic!("{reply:?}") };
    status
}

/// The whole file, however long it grows (fcntl(2)): what flock(2) and the end of a process send.
pub const WHOLE: (u64, u64) = (0, 0);

/// Asks for a write lock on `range` and to wait for it.
pub async fn wait_for(conn: &mut Conn, fid: Fid, range: (u64, u64), proc_id: u32) -> Tag {
    let (start, length) = range;
    conn.send(&T::Lock { fid, locktype: WRITE_LOCK, flags: BLOCK, start, length, proc_id, client_id: HOST }).await
}

async fn is_granted(conn: &mut Conn, tag: Tag) {
    assert_eq!(conn.reply(tag).await.message(), R::Lock { status: GRANTED });
}

/// Two connections that have one file open, the first with all of it locked by process 1.
async fn holder_and_waiter(scene: &Scene) -> ((Conn, Fid), (Conn, Fid)) {
    let (mut holder, root) = scene.connect().await;
    let held = holder.create(root, b"f").await.unwrap();
    assert_eq!(lock(&mut holder, held, WRITE_LOCK, WHOLE, 1).await, GRANTED);
    let (mut waiter, root) = scene.connect().await;
    let walked = waiter.at(root, "f").await.unwrap();
    let wanted = waiter.open(walked, RDWR).await.unwrap();
    ((holder, held), (waiter, wanted))
}

/// How a lock comes to its end.
#[derive(Debug, Clone, Copy)]
enum End {
    Unlocked,
    /// Byte after byte, the first last.
    UnlockedInParts,
    Clunked,
    Removed,
    ConnectionLost,
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_waits_is_answered_when_the_holder_lets_go_and_never_blocked() {
    for end in [End::Unlocked, End::UnlockedInParts, End::Clunked, End::Removed, End::ConnectionLost] {
        for scene in Scene::each([Dialect::Linux]) {
            eprintln!("{end:?}");
            let ((mut holder, held), (mut waiter, wanted)) = holder_and_waiter(&scene).await;
            let waiting = wait_for(&mut waiter, wanted, (0, 1), 2).await;
            waiter.is_silent().await;
            // Nothing else on its connection is held up, not even on its fid.
            waiter.look(wanted).await.unwrap();
            waiter.write(wanted, 0, b"x").await;
            assert_eq!(lock(&mut waiter, wanted, WRITE_LOCK, (0, 1), 3).await, BLOCKED);
            match end {
                End::Unlocked => assert_eq!(lock(&mut holder, held, UNLOCK, WHOLE, 1).await, GRANTED),
                End::UnlockedInParts => {
                    for start in [1, 0] {
                        waiter.is_silent().await;
                        assert_eq!(lock(&mut holder, held, UNLOCK, (start, 1), 1).await, GRANTED);
                    }
                }
                End::Clunked => holder.clunk(held).await,
                End::Removed => holder.remove(held).await.unwrap(),
                End::ConnectionLost => drop(holder),
            }
            is_granted(&mut waiter, waiting).await;
            assert_eq!(lock(&mut waiter, wanted, WRITE_LOCK, (0, 1), 3).await, BLOCKED, "it is held");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_waits_for_another_process_of_the_same_client_is_granted_when_that_unlocks() {
    for scene in Scene::each([Dialect::Linux]) {
        let (mut conn, root) = scene.connect().await;
        let one = conn.create(root, b"f").await.unwrap();
        let walked = conn.at(root, "f").await.unwrap();
        let two = conn.open(walked, RDWR).await.unwrap();
        assert_eq!(lock(&mut conn, one, WRITE_LOCK, WHOLE, 1).await, GRANTED);
        let waiting = wait_for(&mut conn, two, WHOLE, 2).await;
        conn.is_silent().await;
        assert_eq!(lock(&mut conn, one, UNLOCK, WHOLE, 1).await, GRANTED);
        is_granted(&mut conn, waiting).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_waits_is_given_up_by_tflush_and_then_never_taken() {
    for scene in Scene::each([Dialect::Linux]) {
        let ((mut holder, held), (mut waiter, wanted)) = holder_and_waiter(&scene).await;
        let waiting = wait_for(&mut waiter, wanted, WHOLE, 2).await;
        waiter.is_silent().await;
        let flush = waiter.ask(&T::Flush { oldtag: waiting }).await.unwrap();
        assert_eq!(flush.message(), R::Flush {});
        assert_eq!(lock(&mut holder, held, UNLOCK, WHOLE, 1).await, GRANTED);
        waiter.is_silent().await;
        assert_eq!(lock(&mut holder, held, WRITE_LOCK, WHOLE, 1).await, GRANTED);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_before_its_tflush_is_answered_before_the_rflush() {
    for scene in Scene::each([Dialect::Linux]) {
        let ((mut holder, held), (mut waiter, wanted)) = holder_and_waiter(&scene).await;
        let waiting = wait_for(&mut waiter, wanted, WHOLE, 2).await;
        waiter.is_silent().await;
        assert_eq!(lock(&mut holder, held, UNLOCK, WHOLE, 1).await, GRANTED);
        let flushing = waiter.send(&T::Flush { oldtag: waiting }).await;
        // The client must know that it holds the lock, to give it back.
        is_granted(&mut waiter, waiting).await;
        assert_eq!(waiter.reply(flushing).await.message(), R::Flush {});
        assert_eq!(lock(&mut holder, held, WRITE_LOCK, WHOLE, 1).await, BLOCKED);
        assert_eq!(lock(&mut waiter, wanted, UNLOCK, WHOLE, 2).await, GRANTED);
        assert_eq!(lock(&mut holder, held, WRITE_LOCK, WHOLE, 1).await, GRANTED);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_client_that_is_lost_does_not_keep_the_lock_from_the_next() {
    for scene in Scene::each([Dialect::Linux]) {
        let ((mut holder, held), (mut lost, lost_fid)) = holder_and_waiter(&scene).await;
        wait_for(&mut lost, lost_fid, WHOLE, 2).await;
        lost.is_silent().await;
        let (mut next, root) = scene.connect().await;
        let walked = next.at(root, "f").await.unwrap();
        let wanted = next.open(walked, RDWR).await.unwrap();
        let waiting = wait_for(&mut next, wanted, WHOLE, 3).await;
        next.is_silent().await;
        drop(lost);
        next.is_silent().await;
        assert_eq!(lock(&mut holder, held, UNLOCK, WHOLE, 1).await, GRANTED);
        is_granted(&mut next, waiting).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_processes_that_wait_get_the_lock_one_after_another() {
    for scene in Scene::each([Dialect::Linux]) {
        let ((mut holder, held), (mut conn, fid)) = holder_and_waiter(&scene).await;
        let mut waiting = Vec::new();
        for proc_id in 100..200 {
            waiting.push((proc_id, wait_for(&mut conn, fid, WHOLE, proc_id).await));
        }
        conn.is_silent().await;
        assert_eq!(lock(&mut holder, held, UNLOCK, WHOLE, 1).await, GRANTED);
        for (proc_id, tag) in waiting {
            is_granted(&mut conn, tag).await;
            conn.is_silent().await;
            assert_eq!(lock(&mut conn, fid, UNLOCK, WHOLE, proc_id).await, GRANTED);
        }
        assert_eq!(lock(&mut holder, held, WRITE_LOCK, WHOLE, 1).await, GRANTED);
    }
}
