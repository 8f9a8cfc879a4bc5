//! Byte ranges of several owners, kept apart: fcntl(2).

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::io::Errno;

use crate::check::{Place, checks, same};
use crate::locks::{excluded, holder, locked};

checks![
    ranges_that_do_not_meet_are_held_by_several,
    ranges_that_touch_do_not_meet,
    ranges_are_split_by_unlocking_the_middle,
    ranges_of_one_owner_grow_together,
    ranges_reach_behind_the_end,
    ranges_of_many_owners_are_kept_apart,
    ranges_of_the_dead_are_free_and_no_others,
    ranges_are_refused_in_circles,
];

/// How long a circle may stay, and a lock that was let go.
const BOUND: Duration = Duration::from_secs(10);

/// How long one of two is listened to before the other.
const TURN: Duration = Duration::from_millis(20);

fn ranges_that_do_not_meet_are_held_by_several(place: &Place) -> Result<()> {
    let path = place.file("file", "0123456789")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "0+3")?;
    locked(&mut b, "write", "5+3")?;
    excluded(&mut a, "write", "4+2")?;
    excluded(&mut b, "read", "2+1")?;
    locked(&mut a, "write", "3+2")
}

fn ranges_that_touch_do_not_meet(place: &Place) -> Result<()> {
    let path = place.file("file", "0123456789")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "2+4")?;
    locked(&mut b, "write", "6+1")?;
    locked(&mut b, "write", "1+1")?;
    excluded(&mut b, "write", "5+1")?;
    excluded(&mut b, "write", "2+1")
}

fn ranges_are_split_by_unlocking_the_middle(place: &Place) -> Result<()> {
    let path = place.file("file", "0123456789")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "0+10")?;
    locked(&mut a, "free", "4+2")?;
    locked(&mut b, "write", "4+2")?;
    excluded(&mut b, "write", "3+1")?;
    excluded(&mut b, "write", "6+1")?;
    same(b.does(&[&"lock", &"f", &"who-write", &"0+0"])?.as_str(), "write 0+4", "the first piece")?;
    same(b.does(&[&"lock", &"f", &"who-write", &"6+0"])?.as_str(), "write 6+4", "the second")
}

fn ranges_of_one_owner_grow_together(place: &Place) -> Result<()> {
    let path = place.file("file", "0123456789")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    for range in ["0+3", "3+3", "2+6"] {
        locked(&mut a, "write", range)?;
    }
    same(b.does(&[&"lock", &"f", &"who-write", &"0+0"])?.as_str(), "write 0+8", "one lock")?;
    locked(&mut a, "free", "0+8")?;
    same(b.does(&[&"lock", &"f", &"who-write", &"0+0"])?.as_str(), "free", "after one unlock")
}

fn ranges_reach_behind_the_end(place: &Place) -> Result<()> {
    let path = place.file("file", "x")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "1000000+1")?;
    locked(&mut b, "write", "0+1000000")?;
    excluded(&mut b, "write", "0+0")?;
    locked(&mut a, "free", "0+0")?;
    locked(&mut b, "write", "0+0")?;
    excluded(&mut a, "read", "9000000000000000000+1")
}

fn ranges_of_many_owners_are_kept_apart(place: &Place) -> Result<()> {
    const OWNERS: usize = 12;
    let path = place.file("file", "x".repeat(OWNERS))?;
    let mut owners = (0..OWNERS).map(|_| holder(&path)).collect::<Result<Vec<_>>>()?;
    for (n, owner) in owners.iter_mut().enumerate() {
        locked(owner, "write", &format!("{n}+1"))?;
    }
    for (n, owner) in owners.iter_mut().enumerate() {
        for other in (0..OWNERS).filter(|other| *other != n) {
            excluded(owner, "read", &format!("{other}+1"))?;
        }
    }
    Ok(())
}

fn ranges_of_the_dead_are_free_and_no_others(place: &Place) -> Result<()> {
    let path = place.file("file", "0123456789")?;
    let (mut a, mut b, mut c) = (holder(&path)?, holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "0+2")?;
    locked(&mut b, "write", "2+2")?;
    locked(&mut a, "write", "4+2")?;
    a.kill()?;
    excluded(&mut c, "write", "2+2")?;
    locked(&mut c, "write", "0+2")?;
    locked(&mut c, "write", "4+2")
}

fn ranges_are_refused_in_circles(place: &Place) -> Result<()> {
    let path = place.file("file", "0123456789")?;
    let (mut a, mut b) = (holder(&path)?, holder(&path)?);
    locked(&mut a, "write", "0+1")?;
    locked(&mut b, "write", "5+1")?;
    a.begin(&[&"lock", &"f", &"wait-write", &"5+1"])?;
    b.begin(&[&"lock", &"f", &"wait-write", &"0+1"])?;
    // Whoever closes the circle is refused; that is the one who comes second, and either may.
    let end = Instant::now() + BOUND;
    let (answer, mut refused, mut other, held) = loop {
        if let Some(answer) = a.answer_within(TURN)? {
            break (answer, a, b, "0+1");
        }
        if let Some(answer) = b.answer_within(TURN)? {
            break (answer, b, a, "5+1");
        }
        ensure!(Instant::now() < end, "both wait for each other for {} s", BOUND.as_secs());
    };
    same(answer, Err(Errno::DEADLK), "the one who closed the circle")?;
    locked(&mut refused, "free", held)?;
    same(other.answer_within(BOUND)?, Some(Ok(String::new())), "the one who waited")
}
