//! Requests that share a tag.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;

use super::*;

fn ix() -> Bench {
    Bench::attached_as(Dialect::Plan9, "9P2000.ix")
}

/// Begins the next one that has its turn, which must be carried out.
fn next(b: &mut Bench) -> RequestId {
    match b.member() {
        Some(Did::Execute(id)) => id,
        other => panic!("{other:?} {:?}", b.replies()),
    }
}

fn walked(file: File) -> Done<File, Vec<u8>> {
    Done::Walked { qids: [PLAIN].to_vec(), file: Some(file) }
}

#[test]
fn they_are_carried_out_one_after_another_and_answered_in_their_order() {
    let mut b = ix();
    let walk = b.begin("Twalk tag 5 fid 0 newfid 1 nwname 1 0:x");
    for line in ["Topen tag 5 fid 1 mode 0", "Tread tag 5 fid 1 offset 0 count 10", "Tclunk tag 5 fid 1"] {
        assert_eq!(b.send(line), Did::Handled, "{line}");
    }
    assert_eq!(b.member(), None, "the walk is not answered");
    b.done(walk, walked(7));
    let open = next(&mut b);
    assert_eq!(b.member(), None);
    b.done(open, Done::Opened { qid: PLAIN });
    let read = next(&mut b);
    b.done(read, Done::Data(b"bytes".to_vec()));
    assert_eq!(b.member(), Some(Did::Handled), "the clunk waits for its farewell");
    b.farewells();
    let replies = b.replies();
    let kinds: Vec<_> = replies.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["Rwalk", "Ropen", "Rread", "Rclunk"], "{replies:?}");
    assert!(replies.iter().all(|line| line.contains(" tag 5")), "{replies:?}");
    assert_eq!((b.session.outstanding(), b.session.fids()), (0, 1));
    b.begin("Tstat tag 5 fid 0");
}

#[test]
fn one_that_fails_stops_only_those_that_need_what_it_would_have_made() {
    for walk_result in [None, Some(Done::Walked { qids: [DIR].to_vec(), file: None })] {
        let mut b = ix();
        let walk = b.begin("Twalk tag 5 fid 0 newfid 1 nwname 2 0:x 1:y");
        b.send("Topen tag 5 fid 1 mode 0");
        b.send("Tstat tag 5 fid 0");
        b.send("Tread tag 5 fid 1 offset 0 count 1");
        let partial = walk_result.is_some();
        match walk_result {
            Some(done) => b.done(walk, done),
            None => b.fail(walk, Errno::ENOENT),
        }
        assert_eq!(b.member(), Some(Did::Handled), "refused: no such fid");
        let stat = next(&mut b);
        b.fail(stat, Errno::EIO);
        assert_eq!(b.member(), Some(Did::Handled));
        assert_eq!(b.member(), None);
        let replies = b.replies();
        assert_eq!(replies[0].starts_with("Rwalk"), partial, "{replies:?}");
        assert_eq!(
            replies[1..],
            ["Rerror tag 5 ename 'unknown fid'", "Rerror tag 5 ename 'i/o error'", "Rerror tag 5 ename 'unknown fid'"],
            "a partial walk: {partial}"
        );
        assert_eq!(b.session.outstanding(), 0);
    }
}

#[test]
fn of_a_group_that_is_flushed_what_was_begun_is_answered_and_the_rest_never_begins() {
    let mut b = ix();
    b.open(1);
    let read = b.begin("Tread tag 5 fid 1 offset 0 count 10");
    b.send("Twrite tag 5 fid 1 offset 0 count 5 'never'");
    b.send("Tremove tag 5 fid 1");
    assert_eq!(b.send("Tflush tag 6 oldtag 5"), Did::Cancel(vec![read]));
    assert_eq!(b.send("Tflush tag 7 oldtag 5"), Did::Handled, "it is flushed already");
    assert_eq!(b.replies(), [""; 0]);
    b.done(read, Done::Data(b"begun".to_vec()));
    assert_eq!(b.member(), None);
    assert_eq!(b.replies(), ["Rread tag 5 count 5 'begun'", "Rflush tag 6", "Rflush tag 7"]);
    assert_eq!((b.session.outstanding(), b.session.fids()), (0, 2), "nothing was removed");
    assert_eq!(b.ask("Tflush tag 8 oldtag 5"), "Rflush tag 8");
    // The tag is free again.
    b.begin("Tread tag 5 fid 1 offset 0 count 10");
}

#[test]
fn a_group_that_waits_for_a_fid_holds_up_no_other_and_can_be_flushed() {
    let mut b = ix();
    b.walk(1, PLAIN);
    let open = b.begin("Topen tag 2 fid 1 mode 0");
    assert_eq!(b.send("Tstat tag 3 fid 1"), Did::Handled, "nothing runs beside an open");
    b.send("Tstat tag 3 fid 0");
    let other = b.begin("Tstat tag 4 fid 0");
    b.fail(other, Errno::EIO);
    // It is tried again, and still has to wait.
    while let Some(did) = b.member() {
        assert_eq!(did, Did::Handled);
    }
    assert_eq!(b.replies(), ["Rerror tag 4 ename 'i/o error'"]);
    assert_eq!(b.send("Tstat tag 9 fid 1"), Did::Handled);
    assert_eq!(b.ask("Tflush tag 10 oldtag 9"), "Rflush tag 10");
    b.done(open, Done::Opened { qid: PLAIN });
    let first = next(&mut b);
    assert_eq!(b.member(), None, "one at a time, and what was flushed is gone");
    b.fail(first, Errno::EIO);
    let second = next(&mut b);
    b.fail(second, Errno::ENOENT);
    assert_eq!(b.member(), None);
    assert_eq!(
        b.replies()[1..],
        ["Rerror tag 3 ename 'i/o error'", "Rerror tag 3 ename 'file does not exist'"],
        "behind Ropen"
    );
}

#[test]
fn more_than_the_limit_are_not_read_or_are_told_in_their_turn_where_one_waits_without_bound() {
    let mut b = ix();
    b.open(1);
    let first = b.begin("Tread tag 5 fid 1 offset 0 count 1");
    for _ in 1..64 {
        assert_eq!(b.send("Tstat tag 5 fid 0"), Did::Handled);
    }
    assert_eq!(b.send("Tstat tag 5 fid 0"), Did::Wait);
    b.begin("Tstat tag 6 fid 0");
    let frame = parse("Tstat tag 5 fid 0", Dialect::Plan9).unwrap();
    assert_eq!(b.frame(&frame, false), Did::Handled, "it may wait for what comes behind it");
    b.done(first, Done::Data(b"x".to_vec()));
    for _ in 1..64 {
        let id = next(&mut b);
        assert_eq!(b.replies().len(), 1);
        b.fail(id, Errno::EIO);
    }
    b.replies();
    assert_eq!(b.member(), None);
    assert_eq!(b.replies(), ["Rerror tag 5 ename 'too many requests of this connection wait already'"]);
    b.begin("Tstat tag 5 fid 0");
}

#[test]
fn a_client_that_goes_on_beyond_every_limit_is_not_heard() {
    let mut b = ix();
    b.open(1);
    b.begin("Tread tag 5 fid 1 offset 0 count 1");
    let frame = parse("Tstat tag 5 fid 0", Dialect::Plan9).unwrap();
    let taken = (0..1 << 20).take_while(|_| b.frame(&frame, false) == Did::Handled).count();
    assert_eq!(taken, 63 + (1 << 16));
    assert_eq!(b.frame(&frame, false), Did::Closed(Violation::TooManyMembers));
}

#[test]
fn frames_that_wait_are_bounded_in_bytes() {
    let mut b = ix();
    b.session.limits.unsent = 20_000;
    b.open(1);
    b.begin("Tread tag 5 fid 1 offset 0 count 1");
    let frame =
        parse(&format!("Twrite tag 5 fid 1 offset 0 count 8000 '{}'", "x".repeat(8000)), Dialect::Plan9).unwrap();
    assert_eq!((b.frame(&frame, true), b.frame(&frame, true)), (Did::Handled, Did::Handled));
    assert_eq!(b.frame(&frame, true), Did::Wait);
}

#[test]
fn what_does_not_decode_to_a_request_is_answered_in_its_turn() {
    let mut b = ix();
    b.open(1);
    let read = b.begin("Tread tag 5 fid 1 offset 0 count 1");
    assert_eq!(b.frame(b"\x07\0\0\0\xc8\x05\0", true), Did::Handled);
    assert_eq!(b.send("Tstat tag 5 fid 0"), Did::Handled);
    assert_eq!(b.replies(), [""; 0]);
    b.done(read, Done::Data(b"x".to_vec()));
    assert_eq!(b.member(), Some(Did::Handled));
    next(&mut b);
    assert_eq!(b.replies(), ["Rread tag 5 count 1 'x'", "Rerror tag 5 ename 'unknown message type'"]);
}

#[test]
fn a_tflush_among_them_is_one_of_them() {
    let mut b = ix();
    b.open(1);
    let read = b.begin("Tread tag 5 fid 1 offset 0 count 1");
    assert_eq!(b.send("Tflush tag 5 oldtag 5"), Did::Handled);
    assert_eq!(b.send("Tstat tag 5 fid 0"), Did::Handled);
    b.done(read, Done::Data(b"x".to_vec()));
    assert_eq!(b.member(), Some(Did::Handled));
    next(&mut b);
    assert_eq!(b.replies(), ["Rread tag 5 count 1 'x'", "Rflush tag 5"]);
}

#[test]
fn a_new_tversion_ends_them_and_without_ix_a_tag_is_one_requests() {
    let mut b = ix();
    b.open(1);
    let read = b.begin("Tread tag 5 fid 1 offset 0 count 1");
    b.send("Tstat tag 5 fid 0");
    assert_eq!(b.send("Tversion tag -1 msize 8192 version '9P2000'"), Did::CancelAll);
    b.done(read, Done::Data(b"x".to_vec()));
    b.farewells();
    assert_eq!(b.member(), None);
    assert_eq!(b.replies(), ["Rversion tag -1 msize 8192 version '9P2000'"]);

    let mut b = Bench::attached(Dialect::Plan9);
    b.begin("Tstat tag 5 fid 0");
    assert_eq!(b.ask("Tstat tag 5 fid 0"), "Rerror tag 5 ename 'duplicate tag'");
}

#[test]
fn tcreate_opens_and_cuts_a_file_that_is_there_unless_it_is_asked_not_to() {
    for (dialect, version, extension) in
        [(Dialect::Plan9, "9P2000.ix", ""), (Dialect::Unix, "9P2000.u.ix", " extension ''")]
    {
        let made = |mode: u32, perm: &str| {
            let mut b = Bench::attached_as(dialect, version);
            let line = format!("Tcreate tag 1 fid 0 name 'n' perm {perm} mode {mode}{extension}");
            let frame = parse(&line, dialect).unwrap();
            match b.session.handle_frame(&frame, true, &mut b.out) {
                Ok(Event::Execute(Request { op: Op::Create { how, exclusive, .. }, .. })) => {
                    Some((how.has(crate::open::lflags::TRUNC), exclusive))
                }
                Ok(Event::Execute(Request { op: Op::CreateSpecial { .. }, .. })) => None,
                other => panic!("{line}: {other:?}"),
            }
        };
        assert_eq!(made(1, "420"), Some((true, false)));
        assert_eq!(made(1 | 0x20, "420"), Some((false, true)));
        assert_eq!(made(1 | 0x10 | 0x20, "420"), Some((true, true)));
        assert_eq!(made(0, "0x800001ed"), None, "a directory is only made");
    }
    let mut b = Bench::attached(Dialect::Plan9);
    assert!(b.ask("Tcreate tag 1 fid 0 name 'n' perm 420 mode 33").starts_with("Rerror"), "only under .ix");
}

/// Whatever comes, is done and is flushed in whatever order: every request is answered once, in the order of its tag, or was
/// flushed; and none is carried out before those of its tag before it are answered.
#[test]
fn random_groups_are_answered_as_if_each_had_been_waited_for() {
    for seed in 0..3000_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut b = ix();
        b.open(1);
        // What is to be answered, by tag: the offset is in the data of the reply.
        let mut expected: BTreeMap<u64, VecDeque<u64>> = BTreeMap::new();
        let mut running: Vec<(RequestId, u64)> = Vec::new();
        // Flushes that are not answered: the tag flushed, and how many of it were carried out then.
        let mut flushes: BTreeMap<u64, u64> = BTreeMap::new();
        let mut offset = 0;
        for step in 0..60 {
            match draw(5) {
                0..=1 if step < 50 => {
                    let tag = 10 + draw(4);
                    if flushes.values().any(|flushed| *flushed == tag) {
                        continue;
                    }
                    offset += 1;
                    let line = format!("Tread tag {tag} fid 1 offset {offset} count 8");
                    match b.send(&line) {
                        Did::Execute(id) => {
                            assert!(expected.get(&tag).is_none_or(VecDeque::is_empty), "seed {seed}: out of turn");
                            running.push((id, offset));
                        }
                        Did::Handled => {}
                        other => panic!("seed {seed}: {other:?}"),
                    }
                    expected.entry(tag).or_default().push_back(offset);
                }
                2 if step < 50 => {
                    let (tag, flush) = (10 + draw(4), 100 + step);
                    if flushes.values().any(|flushed| *flushed == tag) {
                        continue;
                    }
                    flushes.insert(flush, tag);
                    b.send(&format!("Tflush tag {flush} oldtag {tag}"));
                    // Only the first can have begun.
                    expected.entry(tag).or_default().truncate(1);
                }
                _ if !running.is_empty() => {
                    let (id, offset) = running.swap_remove(draw(running.len() as u64) as usize);
                    b.done(id, Done::Data(format!("{offset:08}").into_bytes()));
                }
                _ => {}
            }
            while let Some(frame) = b.session.poll_member(&mut b.out) {
                match b.session.handle_member(&frame, &mut b.out) {
                    Ok(Event::Execute(Request { id, op: Op::Read { offset, .. }, .. })) => running.push((id, offset)),
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            for line in b.replies() {
                let words: Vec<_> = line.split(' ').collect();
                let tag: u64 = words[2].parse().unwrap();
                if words[0] == "Rflush" {
                    let flushed = flushes.remove(&tag).expect("a flush that was not asked");
                    assert!(expected[&flushed].is_empty(), "seed {seed}: Rflush before what was begun");
                    continue;
                }
                let offset: u64 = words[5].trim_matches('\'').parse().unwrap();
                let first = expected.get_mut(&tag).and_then(VecDeque::pop_front);
                assert_eq!(first, Some(offset), "seed {seed} tag {tag}");
            }
            let tags = expected.values().filter(|waiting| !waiting.is_empty()).count();
            assert_eq!(running.len(), tags, "seed {seed}: one of each tag runs");
        }
        assert_eq!(b.session.outstanding(), expected.values().map(VecDeque::len).sum::<usize>(), "seed {seed}");
    }
}
