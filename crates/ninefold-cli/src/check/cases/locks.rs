//! Byte-range locks (Tlock, Tgetlock of .L).
//!
//! An owner is a connection, a process number and a client's name. Here the owners are on connections of their own, so
//! that servers which leave the owners of one connection to its client are judged alike.

use ninefold::proto::Fid;
use ninefold::proto::message::{R, T};

use crate::check::case::{Group, case};
use crate::check::conn::{Conn, Event};
use crate::check::cx::Cx;
use crate::check::talk::{HERE, RDWR};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "locks",
    about: "byte-range locks of .L",
    cases: &[
        case!(
            is_granted,
            L,
            Write,
            "fcntl(2); diod protocol.md, lock",
            "A write lock on a file that nobody has locked is granted."
        ),
        case!(
            keeps_two_owners_apart,
            L,
            Write,
            "fcntl(2); diod protocol.md, lock",
            "A write lock that another owner has in part is answered 'blocked'."
        ),
        case!(
            read_locks_are_shared,
            L,
            Write,
            "fcntl(2)",
            "Two owners can have read locks on the same bytes, and a write lock is then 'blocked'."
        ),
        case!(
            ranges_apart_do_not_conflict,
            L,
            Write,
            "fcntl(2)",
            "Write locks of two owners on different bytes are both granted."
        ),
        case!(unlock_frees, L, Write, "fcntl(2)", "After its owner unlocked a range another owner gets the lock."),
        case!(
            part_can_be_unlocked,
            L,
            Write,
            "fcntl(2)",
            "When the middle of a range is unlocked another owner gets the middle and not the ends."
        ),
        case!(
            length_0_is_to_the_end,
            L,
            Write,
            "fcntl(2): l_len 0",
            "A lock of length 0 reaches to the end of the file, however long it grows."
        ),
        case!(
            ends_with_its_fid,
            L,
            Write,
            "diod protocol.md, lock; close(2)",
            "A lock is gone when the fid by which it was taken is clunked."
        ),
        case!(
            ends_with_its_connection,
            L,
            Write,
            "diod protocol.md, lock",
            "A lock is gone when its connection is closed."
        ),
        case!(
            getlock_tells_who_is_in_the_way,
            L,
            Write,
            "fcntl(2): F_GETLK",
            "Tgetlock of a range that another owner has locked tells the type, range and process number of that lock."
        ),
        case!(
            getlock_of_a_free_range_is_unlocked,
            L,
            Write,
            "fcntl(2): F_GETLK",
            "Tgetlock of a range that nobody has locked is answered with type F_UNLCK (2)."
        ),
        case!(
            same_owner_can_change_its_lock,
            L,
            Write,
            "fcntl(2)",
            "An owner can turn its read lock into a write lock."
        ),
        case!(
            blocking_lock_is_answered,
            L,
            Write,
            "diod protocol.md, lock; Linux's client asks again",
            "A lock with the flag to wait is answered 'blocked', or granted once the other lets go; never refused and never lost."
        ),
        case!(
            unknown_type_is_refused,
            L,
            Write,
            "fcntl(2): EINVAL",
            "A lock of a type that does not exist is an error, not a lock."
        ),
    ],
};

const F: Fid = Fid(20);
const READ_LOCK: u8 = 0;
const WRITE_LOCK: u8 = 1;
const UNLOCK: u8 = 2;
const SUCCESS: u8 = 0;
const BLOCKED: u8 = 1;
/// P9_LOCK_FLAGS_BLOCK
const WAIT: u32 = 1;

/// One owner: a connection with the file open for both as `F`.
async fn owner(c: &mut Cx, first: bool) -> Result<Conn, End> {
    let mut s = c.here().await?;
    if first {
        s.file(b"f", b"0123456789").await?;
    }
    s.reach(HERE, F, &[b"f"]).await?;
    s.open(F, RDWR).await?.ok()?;
    Ok(s)
}

fn message(locktype: u8, flags: u32, (start, length): (u64, u64), proc_id: u32) -> T<'static> {
    T::Lock { fid: F, locktype, flags, start, length, proc_id, client_id: b"ninefold-check" }
}

async fn lock(s: &mut Conn, kind: u8, range: (u64, u64), proc_id: u32) -> Result<u8, End> {
    let frame = s.ask(&message(kind, 0, range, proc_id)).await?.ok_or_skip()?;
    match frame.message()? {
        R::Lock { status } => Ok(status),
        _ => Err(End::fail("Rlock", frame.text())),
    }
}

async fn expect(s: &mut Conn, kind: u8, range: (u64, u64), proc_id: u32, expected: u8) -> Outcome {
    let status = lock(s, kind, range, proc_id).await?;
    let name = |status| match status {
        SUCCESS => "granted (0)".to_owned(),
        BLOCKED => "'blocked' (1)".to_owned(),
        other => format!("status {other}"),
    };
    ensure(status == expected, format!("{} for bytes {} on, {} of them", name(expected), range.0, range.1), || {
        name(status)
    })
}

async fn two(c: &mut Cx) -> Result<(Conn, Conn), End> {
    Ok((owner(c, true).await?, owner(c, false).await?))
}

async fn is_granted(c: &mut Cx) -> Outcome {
    let mut s = owner(c, true).await?;
    expect(&mut s, WRITE_LOCK, (0, 10), 1, SUCCESS).await
}

async fn keeps_two_owners_apart(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, WRITE_LOCK, (0, 6), 1, SUCCESS).await?;
    expect(&mut two, WRITE_LOCK, (5, 10), 2, BLOCKED).await?;
    expect(&mut two, READ_LOCK, (0, 1), 2, BLOCKED).await
}

async fn read_locks_are_shared(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, READ_LOCK, (0, 10), 1, SUCCESS).await?;
    expect(&mut two, READ_LOCK, (0, 10), 2, SUCCESS).await?;
    expect(&mut two, WRITE_LOCK, (0, 10), 2, BLOCKED).await
}

async fn ranges_apart_do_not_conflict(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, WRITE_LOCK, (0, 5), 1, SUCCESS).await?;
    expect(&mut two, WRITE_LOCK, (5, 5), 2, SUCCESS).await
}

async fn unlock_frees(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, WRITE_LOCK, (0, 10), 1, SUCCESS).await?;
    expect(&mut two, WRITE_LOCK, (0, 10), 2, BLOCKED).await?;
    expect(&mut one, UNLOCK, (0, 10), 1, SUCCESS).await?;
    expect(&mut two, WRITE_LOCK, (0, 10), 2, SUCCESS).await
}

async fn part_can_be_unlocked(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, WRITE_LOCK, (0, 10), 1, SUCCESS).await?;
    expect(&mut one, UNLOCK, (4, 2), 1, SUCCESS).await?;
    expect(&mut two, WRITE_LOCK, (4, 2), 2, SUCCESS).await?;
    expect(&mut two, WRITE_LOCK, (3, 1), 2, BLOCKED).await?;
    expect(&mut two, WRITE_LOCK, (6, 1), 2, BLOCKED).await
}

async fn length_0_is_to_the_end(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, WRITE_LOCK, (5, 0), 1, SUCCESS).await?;
    expect(&mut two, WRITE_LOCK, (1 << 40, 1), 2, BLOCKED).await?;
    expect(&mut two, WRITE_LOCK, (0, 5), 2, SUCCESS).await
}

async fn ends_with_its_fid(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, WRITE_LOCK, (0, 10), 1, SUCCESS).await?;
    expect(&mut two, WRITE_LOCK, (0, 10), 2, BLOCKED).await?;
    one.clunk(F).await?.ok()?;
    expect(&mut two, WRITE_LOCK, (0, 10), 2, SUCCESS).await
}

async fn ends_with_its_connection(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, WRITE_LOCK, (0, 10), 1, SUCCESS).await?;
    drop(one);
    // The server learns of it when it learns of it; the case's deadline is the bound.
    while lock(&mut two, WRITE_LOCK, (0, 10), 2).await? == BLOCKED {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn getlock(s: &mut Conn, range: (u64, u64)) -> Result<(u8, u64, u64, u32), End> {
    let (start, length) = range;
    let request = T::Getlock { fid: F, locktype: WRITE_LOCK, start, length, proc_id: 2, client_id: b"ninefold-check" };
    let frame = s.ask(&request).await?.ok_or_skip()?;
    match frame.message()? {
        R::Getlock { locktype, start, length, proc_id, .. } => Ok((locktype, start, length, proc_id)),
        _ => Err(End::fail("Rgetlock", frame.text())),
    }
}

async fn getlock_tells_who_is_in_the_way(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, WRITE_LOCK, (3, 4), 1, SUCCESS).await?;
    let (kind, start, length, owner) = getlock(&mut two, (0, 10)).await?;
    ensure(kind == WRITE_LOCK, "type F_WRLCK (1)", || kind.to_string())?;
    ensure((start, length) == (3, 4), "bytes 3 to 6", || format!("start {start}, length {length}"))?;
    // A server on whose host the lock is its own may tell its own process.
    prefer(owner == 1, "process 1", || format!("process {owner}"))
}

async fn getlock_of_a_free_range_is_unlocked(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, WRITE_LOCK, (3, 4), 1, SUCCESS).await?;
    let (kind, ..) = getlock(&mut two, (7, 3)).await?;
    ensure(kind == UNLOCK, "type F_UNLCK (2)", || kind.to_string())
}

async fn same_owner_can_change_its_lock(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, READ_LOCK, (0, 10), 1, SUCCESS).await?;
    expect(&mut one, WRITE_LOCK, (0, 10), 1, SUCCESS).await?;
    expect(&mut two, READ_LOCK, (0, 10), 2, BLOCKED).await
}

async fn blocking_lock_is_answered(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    expect(&mut one, WRITE_LOCK, (0, 10), 1, SUCCESS).await?;
    let tag = two.send(&message(WRITE_LOCK, WAIT, (0, 10), 2)).await?;
    // Time for a server that does not wait to say so: it answers this behind it.
    one.known(HERE).await?;
    expect(&mut one, UNLOCK, (0, 10), 1, SUCCESS).await?;
    match two.event().await? {
        Event::Frame(frame) if frame.tag() == tag => match frame.message()? {
            R::Lock { status: SUCCESS | BLOCKED } => Ok(()),
            _ => Err(End::fail("granted (0) or 'blocked' (1)", frame.text())),
        },
        Event::Frame(frame) => Err(End::fail("Rlock", frame.text())),
        Event::Closed(why) => Err(End::fail("Rlock", why)),
        Event::Silence => Err(End::fail("Rlock", two.silence())),
    }
}

async fn unknown_type_is_refused(c: &mut Cx) -> Outcome {
    let (mut one, mut two) = two(c).await?;
    let answer = one.ask(&message(77, 0, (0, 10), 1)).await?;
    // Rlock with P9_LOCK_ERROR (2) says so too.
    let refused = answer.frame.is_error() || matches!(answer.frame.message(), Ok(R::Lock { status: 2 }));
    prefer(refused, "an error", || answer.frame.text())?;
    expect(&mut two, WRITE_LOCK, (0, 10), 2, SUCCESS).await
}
