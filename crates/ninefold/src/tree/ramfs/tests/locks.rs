//! Byte-range locks; the table itself is tested with it.

use super::*;

fn lock(kind: LockKind, proc_id: u32) -> Lock {
    Lock { kind, start: 0, length: 0, proc_id, client_id: b"client".to_vec() }
}

#[tokio::test]
async fn a_lock_waits_for_the_fid_that_holds_it() {
    let root = attach(&fs(), ANN);
    let (first, second) = (root.create("f", 0o644), root.at("f"));
    second.open(Access::ReadWrite).unwrap();
    assert_eq!(now(first.0.lock(&cx(), lock(LockKind::Write, 1), false)), Ok(LockStatus::Granted));
    assert_eq!(now(second.0.lock(&cx(), lock(LockKind::Read, 2), false)), Ok(LockStatus::Blocked));
    assert_eq!(now(second.0.getlock(&cx(), lock(LockKind::Read, 2))), Ok(Some(lock(LockKind::Write, 1))));
    let waiting = second.0.lock(&cx(), lock(LockKind::Read, 2), true);
    assert!(matches!(waiting, Answer::Later(_)));
    first.clunk();
    let granted = timeout(Duration::from_secs(10), waiting.wait()).await.expect("waited too long");
    assert_eq!(granted, Ok(LockStatus::Granted));
}

#[test]
fn locks_of_two_files_and_of_two_trees_are_apart() {
    let (one, other) = (attach(&fs(), ANN), attach(&fs(), ANN));
    for file in [one.create("f", 0o644), one.create("g", 0o644), other.create("f", 0o644)] {
        assert_eq!(now(file.0.lock(&cx(), lock(LockKind::Write, 1), false)), Ok(LockStatus::Granted));
    }
    let third = one.at("g");
    third.open(Access::Read).unwrap();
    assert_eq!(now(third.0.lock(&cx(), lock(LockKind::Write, 2), false)), Ok(LockStatus::Blocked));
}
