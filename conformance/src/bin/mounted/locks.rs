//! Whole-file locks, fcntl(2) and flock(2), of several processes; waiting for them. Ranges are in [`crate::ranges`].

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::actor::Actor;
use crate::check::{Place, checks, refused, same};

checks![
    locks_for_writing_exclude,
    locks_for_reading_are_shared,
    locks_tell_who_is_in_the_way,
    locks_go_up_and_down,
    locks_end_with_their_process,
    locks_end_with_any_descriptor_of_their_process,
    locks_for_writing_need_a_descriptor_for_writing,
    waiting_locks_are_granted_at_unlock,
    waiting_locks_are_granted_at_death,
    waiting_locks_pass_from_hand_to_hand,
    waiting_locks_that_are_killed_leave_nothing,
    flocks_exclude,
    flocks_are_shared,
    flocks_belong_to_descriptors,
    waiting_flocks_are_granted_at_unlock,
    locks_exclude_by_the_other_mount,
    locks_of_the_other_mount_are_told,
    read_locks_of_the_other_mount_leave_readers_free,
    read_locks_of_the_other_mount_are_in_a_writers_way,
    waiting_locks_are_granted_by_the_other_mount,
    waiting_flocks_are_granted_by_the_other_mount,
];

/// How long a lock may take to be granted after it was let go. Linux's client asks again after 30 s what a server
/// answered with "blocked": a server that holds the request is far quicker.
const SOON: Duration = Duration::from_secs(10);

/// How long a lock that must wait is watched. A lock wrongly granted answers at once; one that waits costs this much.
const WHILE: Duration = Duration::from_millis(200);

/// A process with the file open for reading and writing, as `f`.
pub fn holder(path: &Path) -> Result<Actor> {
    let mut actor = Actor::start()?;
    actor.does(&[&"open", &"f", &path, &"write"])?;
    Ok(actor)
}

/// EAGAIN or EACCES: fcntl(2) allows both.
pub fn excluded(actor: &mut Actor, how: &str, range: &str) -> Result<()> {
    match actor.order(&[&"lock", &"f", &how, &range])? {
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(()),
        answer => anyhow::bail!("{how} lock of {range}: {answer:?}, should be EAGAIN"),
    }
}

pub fn locked(actor: &mut Actor, how: &str, range: &str) -> Result<()> {
    actor.does(&[&"lock", &"f", &how, &range]).map(drop)
}

/// Begins a lock that waits, and sees it wait.
fn waits(actor: &mut Actor, order: &str, how: &str) -> Result<()> {
    actor.begin(&[&order, &"f", &how, &"0+0"])?;
    let early = actor.answer_within(WHILE)?;
    ensure!(early.is_none(), "a lock that should wait came back: {early:?}");
    Ok(())
}

fn granted(actor: &mut Actor) -> Result<()> {
    let answer = actor.answer_within(SOON)?;
    let answer = answer.with_context(|| format!("not granted within {} s after it was let go", SOON.as_secs()))?;
    same(answer, Ok(String::new()), "the lock that waited")
}

fn locks_for_writing_exclude(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "0+0")?;
    excluded(&mut b, "write", "0+0")?;
    excluded(&mut b, "read", "0+0")?;
    locked(&mut a, "free", "0+0")?;
    locked(&mut b, "write", "0+0")
}

fn locks_for_reading_are_shared(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b, mut c) = (holder(&path)?, holder(&path)?, holder(&path)?);
    locked(&mut a, "read", "0+0")?;
    locked(&mut b, "read", "0+0")?;
    excluded(&mut c, "write", "0+0")?;
    locked(&mut a, "free", "0+0")?;
    excluded(&mut c, "write", "0+0")?;
    locked(&mut b, "free", "0+0")?;
    locked(&mut c, "write", "0+0")
}

fn locks_tell_who_is_in_the_way(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    same(b.does(&[&"lock", &"f", &"who-write", &"0+0"])?.as_str(), "free", "before")?;
    locked(&mut a, "write", "10+5")?;
    same(b.does(&[&"lock", &"f", &"who-write", &"0+0"])?.as_str(), "write 10+5", "the lock in the way")?;
    same(b.does(&[&"lock", &"f", &"who-write", &"0+10"])?.as_str(), "free", "beside it")?;
    locked(&mut a, "read", "10+5")?;
    same(b.does(&[&"lock", &"f", &"who-read", &"0+0"])?.as_str(), "free", "for a reader")
}

fn locks_go_up_and_down(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "read", "0+0")?;
    locked(&mut a, "write", "0+0")?;
    excluded(&mut b, "read", "0+0")?;
    locked(&mut a, "read", "0+0")?;
    locked(&mut b, "read", "0+0")?;
    excluded(&mut a, "write", "0+0")
}

fn locks_end_with_their_process(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "0+0")?;
    excluded(&mut b, "write", "0+0")?;
    a.kill()?;
    locked(&mut b, "write", "0+0")
}

fn locks_end_with_any_descriptor_of_their_process(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    a.does(&[&"open", &"other", &path, &"read"])?;
    locked(&mut a, "write", "0+0")?;
    excluded(&mut b, "write", "0+0")?;
    a.does(&[&"close", &"other"])?; // fcntl(2): "all of the process's locks on that file are released"
    locked(&mut b, "write", "0+0")
}

fn locks_for_writing_need_a_descriptor_for_writing(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let mut a = Actor::start()?;
    a.does(&[&"open", &"f", &path, &"read"])?;
    same(a.order(&[&"lock", &"f", &"write", &"0+0"])?, Err(Errno::BADF), "a lock for writing")?;
    locked(&mut a, "read", "0+0")
}

fn waiting_locks_are_granted_at_unlock(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "0+0")?;
    waits(&mut b, "lock", "wait-write")?;
    locked(&mut a, "free", "0+0")?;
    granted(&mut b)?;
    excluded(&mut a, "write", "0+0")
}

fn waiting_locks_are_granted_at_death(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "0+0")?;
    waits(&mut b, "lock", "wait-read")?;
    a.kill()?;
    granted(&mut b)
}

fn waiting_locks_pass_from_hand_to_hand(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "0+0")?;
    for _ in 0..20 {
        // Whether the unlock or the wait arrives first differs from round to round; both must end well.
        b.begin(&[&"lock", &"f", &"wait-write", &"0+0"])?;
        locked(&mut a, "free", "0+0")?;
        granted(&mut b)?;
        std::mem::swap(&mut a, &mut b);
    }
    excluded(&mut b, "write", "0+0")
}

fn waiting_locks_that_are_killed_leave_nothing(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b, mut c) = (holder(&path)?, holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "0+0")?;
    waits(&mut b, "lock", "wait-write")?;
    b.kill()?;
    locked(&mut a, "free", "0+0")?;
    locked(&mut c, "write", "0+0")
}

fn flocks_exclude(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    a.does(&[&"flock", &"f", &"exclusive"])?;
    same(b.order(&[&"flock", &"f", &"exclusive"])?, Err(Errno::AGAIN), "a second one")?;
    same(b.order(&[&"flock", &"f", &"shared"])?, Err(Errno::AGAIN), "a shared one")?;
    a.does(&[&"flock", &"f", &"free"])?;
    b.does(&[&"flock", &"f", &"exclusive"]).map(drop)
}

fn flocks_are_shared(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    a.does(&[&"flock", &"f", &"shared"])?;
    b.does(&[&"flock", &"f", &"shared"])?;
    a.kill()?;
    b.does(&[&"flock", &"f", &"exclusive"]).map(drop)
}

fn flocks_belong_to_descriptors(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (a, b) = (File::open(&path)?, File::open(&path)?);
    flock(&a, FlockOperation::NonBlockingLockExclusive)?;
    refused(flock(&b, FlockOperation::NonBlockingLockExclusive), Errno::AGAIN, "by another of this process")?;
    flock(a.try_clone()?, FlockOperation::NonBlockingLockExclusive).context("by a duplicate")?;
    drop(a);
    flock(&b, FlockOperation::NonBlockingLockExclusive).context("when the other is closed")
}

fn waiting_flocks_are_granted_at_unlock(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    a.does(&[&"flock", &"f", &"exclusive"])?;
    waits(&mut b, "flock", "wait-exclusive")?;
    a.does(&[&"flock", &"f", &"free"])?;
    granted(&mut b)
}

fn locks_exclude_by_the_other_mount(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&place.second("file"))?);
    locked(&mut a, "write", "10+10")?;
    excluded(&mut b, "write", "15+1")?;
    locked(&mut b, "write", "20+10")?;
    excluded(&mut a, "read", "25+1")?;
    same(a.does(&[&"lock", &"f", &"who-write", &"0+0"])?.as_str(), "write 20+10", "the lock in the way")?;
    locked(&mut a, "free", "0+0")?;
    locked(&mut b, "write", "0+0")
}

/// What F_GETLK answers to `b` when `a`, which comes by the other mount, has this lock.
fn told(place: &Place, has: &str, asks: &str, range: &str) -> Result<String> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&place.second("file"))?);
    locked(&mut a, has, "10+5")?;
    b.does(&[&"lock", &"f", &asks, &range])
}

fn locks_of_the_other_mount_are_told(place: &Place) -> Result<()> {
    for asks in ["who-write", "who-read"] {
        same(told(place, "write", asks, "0+0")?.as_str(), "write 10+5", asks)?;
        same(told(place, "write", asks, "0+10")?.as_str(), "free", &format!("{asks}, beside it"))?;
    }
    Ok(())
}

fn read_locks_of_the_other_mount_leave_readers_free(place: &Place) -> Result<()> {
    same(told(place, "read", "who-read", "0+0")?.as_str(), "free", "for a reader")
}

fn read_locks_of_the_other_mount_are_in_a_writers_way(place: &Place) -> Result<()> {
    same(told(place, "read", "who-write", "0+0")?.as_str(), "read 10+5", "for a writer")
}

fn waiting_locks_are_granted_by_the_other_mount(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&place.second("file"))?);
    locked(&mut a, "write", "0+0")?;
    waits(&mut b, "lock", "wait-write")?;
    locked(&mut a, "free", "0+0")?;
    granted(&mut b)?;
    waits(&mut a, "lock", "wait-read")?;
    b.kill()?;
    granted(&mut a)
}

fn waiting_flocks_are_granted_by_the_other_mount(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&place.second("file"))?);
    a.does(&[&"flock", &"f", &"exclusive"])?;
    waits(&mut b, "flock", "wait-exclusive")?;
    a.does(&[&"flock", &"f", &"free"])?;
    granted(&mut b)
}
