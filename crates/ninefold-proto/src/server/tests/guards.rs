//! Tsession and Tguard (`.n1`).

use super::*;
use crate::attr::Time;
use crate::server::Begun;
use crate::types::{SessionId, Tag};

const EPOCH: u64 = 77;

/// A connection of a session, whose fid 0 is a directory.
fn n1() -> Bench {
    let mut b = Bench::new();
    b.send("Tversion tag -1 msize 8192 version '9P2000.L.n1'");
    b.replies();
    let id = b.begin(&session(0, 1));
    let begun = Begun { epoch: EPOCH, time: Time { sec: 5, nsec: 6 } };
    b.done(id, Done::SessionBegun { qid: DIR, file: 1, read_only: false, begun });
    let limits = Limits::default();
    assert_eq!(
        b.replies(),
        [format!(
            "Rsession tag 1 caps 0x0 epoch {EPOCH} time_sec 5 time_nsec 6 term_ms 0 fids {} running {} parked {} group {} \
             waiting {} qid (1 1 d)",
            limits.fids, limits.running, limits.parked, limits.group, limits.waiting
        )]
    );
    b
}

fn session(fid: u32, flags: u32) -> String {
    let id = "000102030405060708090a0b0c0d0e0f";
    format!("Tsession tag 1 flags {flags} session 0x{id} caps 0x0 fid {fid} uname 'u' aname '' n_uname 0")
}

fn guard(epoch: u64, members: u32) -> String {
    format!("Tguard tag 5 flags 0 epoch {epoch} fid -1 lease 0 opid 0 members {members}")
}

const CANCELLED: &str = "Rlerror tag 5 ecode 125 retry_ms 0 text 'its guard does not hold'";

#[test]
fn a_session_attaches_a_fid_and_refuses_what_it_does_not_know() {
    let mut b = n1();
    assert_eq!(b.session.fids(), 1);
    let refused = b.ask(&session(1, 3));
    assert_eq!(refused, "Rlerror tag 1 ecode 22 retry_ms 0 text 'unknown session flags'");
    assert!(b.ask(&session(0, 1)).contains("ecode 9 "), "a fid in use");
    assert!(b.ask(&session(u32::MAX, 1)).contains("ecode 9 "), "no fid");
    let id = b.begin(&session(1, 0));
    b.fail(id, Errno::ESESSION);
    assert_eq!(b.replies(), ["Rlerror tag 1 ecode 4098 retry_ms 0 text ''"]);
    assert_eq!((b.session.fids(), b.session.outstanding()), (1, 0));
}

#[test]
fn a_session_is_told_as_the_request_says() {
    let mut b = Bench::new();
    b.send("Tversion tag -1 msize 8192 version '9P2000.L.n1'");
    let frame = parse(&session(3, 1), b.session.version).unwrap();
    match b.session.handle_frame(&frame, &|_| false, &mut b.out) {
        Ok(Event::Execute(Request { op: Op::Session { session, create, uname, n_uname, aname }, .. })) => {
            assert_eq!(session, SessionId(core::array::from_fn(|i| i as u8)));
            assert_eq!((create, uname, n_uname, aname), (true, &b"u"[..], 0, &b""[..]));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_guard_that_holds_guards_is_carried_out() {
    let mut b = n1();
    assert_eq!(b.ask(&guard(EPOCH, 1)), "Rguard tag 5");
    b.begin("Tgetattr tag 5 fid 0 request_mask 0x1");
}

#[test]
fn what_a_guard_that_does_not_hold_guards_is_answered_and_not_carried_out_whenever_it_comes() {
    // The guard is answered before the next request comes, and the tag is in no use meanwhile.
    let mut b = n1();
    assert_eq!(b.ask(&guard(EPOCH + 1, 2)), CANCELLED);
    assert!(b.session.is_free(Tag(5)));
    assert_eq!(b.ask("Tmkdir tag 5 dfid 0 name 'a' mode 0755 gid 0"), CANCELLED);
    assert_eq!(b.ask("Tmkdir tag 5 dfid 0 name 'b' mode 0755 gid 0"), CANCELLED);
    b.begin("Tmkdir tag 5 dfid 0 name 'c' mode 0755 gid 0");

    // All wait behind one that runs.
    let mut b = n1();
    let first = b.begin("Tgetattr tag 5 fid 0 request_mask 0x1");
    for line in
        [&guard(1, 2)[..], "Tmkdir tag 5 dfid 0 name 'a' mode 0 gid 0", "Tmkdir tag 5 dfid 0 name 'b' mode 0 gid 0"]
    {
        assert_eq!(b.send(line), Did::Handled);
    }
    b.fail(first, Errno::EIO);
    for _ in 0..3 {
        assert_eq!(b.member(), Some(Did::Handled));
    }
    assert_eq!(b.member(), None);
    assert_eq!(b.replies()[1..], [CANCELLED; 3]);
}

#[test]
fn a_guard_that_does_not_hold_is_of_its_tag_alone() {
    let mut b = n1();
    b.ask(&guard(1, 63));
    b.begin("Tmkdir tag 6 dfid 0 name 'a' mode 0 gid 0");
}

#[test]
fn a_guard_is_refused_for_a_lease_an_operation_or_more_requests_than_a_tag_has_and_so_is_what_it_guards() {
    for (line, ecode) in [
        (format!("Tguard tag 5 flags 0 epoch {EPOCH} fid 0 lease 3 opid 0 members 1"), 125),
        (format!("Tguard tag 5 flags 0 epoch {EPOCH} fid 0 lease 0 opid 9 members 1"), 95),
        (guard(EPOCH, 64), 22),
        (guard(EPOCH, 65535), 22),
        (guard(0, 1), 125),
    ] {
        let mut b = n1();
        assert!(b.ask(&line).starts_with(&format!("Rlerror tag 5 ecode {ecode} ")), "{line}");
        assert_eq!(b.ask("Tmkdir tag 5 dfid 0 name 'a' mode 0 gid 0"), CANCELLED, "{line}");
    }
    let mut b = Bench::new();
    b.send("Tversion tag -1 msize 8192 version '9P2000.L.n1'");
    b.replies();
    assert_eq!(b.ask(&guard(0, 1)), CANCELLED, "no Tsession has told the epoch");
}

#[test]
fn a_clunk_that_is_not_carried_out_forgets_its_fid_and_a_remove_removes_nothing() {
    let mut b = n1();
    b.walk(1, PLAIN);
    b.walk(2, PLAIN);
    b.ask(&guard(1, 3));
    assert_eq!(b.ask("Tremove tag 5 fid 1"), CANCELLED);
    assert_eq!(b.ask("Tclunk tag 5 fid 2"), CANCELLED);
    assert_eq!(b.ask("Tclunk tag 5 fid 9"), CANCELLED);
    assert_eq!(b.session.fids(), 1);
    assert!(b.farewells.iter().all(|(_, remove)| !remove), "{:?}", b.farewells);
    b.begin("Tgetattr tag 5 fid 0 request_mask 0x1");
}

#[test]
fn a_clunk_that_is_not_carried_out_sets_no_attribute() {
    let mut b = n1();
    b.walk(1, PLAIN);
    assert_eq!(b.ask("Txattrcreate tag 5 fid 1 name 'user.a' attr_size 1 flags 0"), "Rxattrcreate tag 5");
    assert_eq!(b.ask("Twrite tag 5 fid 1 offset 0 count 1 'x'"), "Rwrite tag 5 count 1");
    b.ask(&guard(1, 1));
    assert_eq!(b.send("Tclunk tag 5 fid 1"), Did::Handled);
    let farewell = b.session.poll_farewell().unwrap();
    assert_eq!((farewell.xattr, farewell.remove), (None, false));
    b.session.farewell_done(farewell.id, Err(farewell.error.unwrap()), &mut b.out);
    assert_eq!(b.replies(), [CANCELLED]);
}

#[test]
fn a_request_that_is_too_large_is_one_of_those_that_are_not_carried_out() {
    let mut b = Bench::new();
    b.send("Tversion tag -1 msize 1048576 version '9P2000.L.n1'");
    b.replies();
    assert_eq!(b.ask(&guard(1, 2)), CANCELLED);
    let header = [&600_000_u32.to_le_bytes()[..], &[118, 5, 0]].concat();
    Did::of(b.session.handle_large(&header, &|_| false, &mut b.out));
    assert_eq!(b.replies(), [CANCELLED]);
    assert_eq!(b.ask("Tgetattr tag 5 fid 0 request_mask 0x1"), CANCELLED);
    assert!(b.ask("Tgetattr tag 5 fid 0 request_mask 0x1").contains("ecode 9 "));
}

#[test]
fn guards_without_what_they_guard_are_bounded() {
    let mut b = n1();
    let most = Limits::default().waiting;
    for tag in 0..most {
        b.ask(&guard(1, 1).replace("tag 5", &format!("tag {tag}")));
    }
    let one_more = guard(1, 1).replace("tag 5", &format!("tag {most}"));
    assert_eq!(b.send(&one_more), Did::Closed(Violation::TooManyGuards));
}

#[test]
fn what_a_fid_appends_to_is_no_place_to_copy_to() {
    for (kind, flags) in [(PLAIN, "02002"), (Qid { kind: QidType::APPEND, ..PLAIN }, "02")] {
        let mut b = n1();
        b.walk(1, PLAIN);
        b.walk(2, PLAIN);
        for (fid, qid, flags) in [(1, PLAIN, "02"), (2, kind, flags)] {
            let id = b.begin(&format!("Tlopen tag 900 fid {fid} flags {flags}"));
            b.done(id, Done::Opened { qid });
            b.replies();
        }
        let refused = b.ask("Tcopyrange tag 5 srcfid 1 srcoffset 0 dstfid 2 dstoffset 0 length 1 flags 0");
        assert!(refused.contains("ecode 9 "), "{refused}");
        b.begin("Tcopyrange tag 5 srcfid 2 srcoffset 0 dstfid 1 dstoffset 0 length 1 flags 0");
        let punch = b.send("Tallocate tag 6 fid 2 mode 03 offset 0 length 1");
        assert_eq!(matches!(punch, Did::Execute(_)), kind == PLAIN);
    }
}

#[test]
fn a_guard_behind_one_that_does_not_hold_guards_all_the_same() {
    let mut b = n1();
    b.ask(&guard(1, 1));
    // This one would hold. It is not looked at, and so what it guards is not carried out either.
    assert_eq!(b.ask(&guard(EPOCH, 2)), CANCELLED);
    for _ in 0..2 {
        assert_eq!(b.ask("Tmkdir tag 5 dfid 0 name 'a' mode 0 gid 0"), CANCELLED);
    }
    b.begin("Tmkdir tag 5 dfid 0 name 'a' mode 0 gid 0");
}

#[test]
fn a_flush_of_the_tag_ends_the_guard_and_one_that_came_before_it_does_not() {
    let mut b = n1();
    b.ask(&guard(1, 9));
    assert_eq!(b.ask("Tflush tag 6 oldtag 5"), "Rflush tag 6");
    b.begin("Tmkdir tag 5 dfid 0 name 'a' mode 0 gid 0");

    let mut b = n1();
    let first = b.begin("Tgetattr tag 6 fid 0 request_mask 0x1");
    // It waits for its turn.
    assert_eq!(b.send("Tflush tag 6 oldtag 5"), Did::Handled);
    b.send(&guard(1, 2));
    b.fail(first, Errno::EIO);
    assert_eq!(b.member(), Some(Did::Handled));
    b.replies();
    assert_eq!(b.ask("Tmkdir tag 5 dfid 0 name 'a' mode 0 gid 0"), CANCELLED);
}

#[test]
fn a_flush_among_what_is_not_carried_out_is_answered_and_counts() {
    let mut b = n1();
    b.ask(&guard(1, 2));
    assert_eq!(b.ask("Tflush tag 5 oldtag 9"), "Rflush tag 5");
    assert_eq!(b.ask("Tmkdir tag 5 dfid 0 name 'a' mode 0 gid 0"), CANCELLED);
    b.begin("Tmkdir tag 5 dfid 0 name 'a' mode 0 gid 0");
}

#[test]
fn a_new_version_ends_guards_and_forgets_the_epoch() {
    let mut b = n1();
    b.ask(&guard(1, 9));
    b.send("Tversion tag -1 msize 8192 version '9P2000.L.n1'");
    b.farewells();
    b.replies();
    assert_eq!(b.ask(&guard(EPOCH, 0)), CANCELLED);
    b.begin(&session(0, 1));
}

#[test]
fn the_root_of_a_session_that_began_behind_a_new_version_is_taken_leave_of() {
    let mut b = n1();
    let id = b.begin(&session(1, 1));
    assert_eq!(b.send("Tversion tag -1 msize 8192 version '9P2000.L.n1'"), Did::CancelAll);
    let begun = Begun { epoch: EPOCH, time: Time::default() };
    b.done(id, Done::SessionBegun { qid: DIR, file: 9, read_only: false, begun });
    b.farewells();
    assert!(b.farewells.contains(&(9, false)), "{:?}", b.farewells);
    assert!(b.session.is_idle());
}

/// A guard that says to stop, whatever run of the server it is.
fn stop(members: u32) -> String {
    guard(0, members).replace("flags 0", "flags 01")
}

/// Members of a guard that says to stop, of which the first is begun; the others wait.
fn stopping(b: &mut Bench, members: &[&str]) -> RequestId {
    assert_eq!(b.ask(&stop(members.len() as u32)), "Rguard tag 5");
    let first = b.begin(members[0]);
    for line in &members[1..] {
        assert_eq!(b.send(line), Did::Handled, "{line}");
    }
    first
}

const MKDIR: &str = "Tmkdir tag 5 dfid 0 name 'a' mode 0755 gid 0";

#[test]
fn behind_a_member_that_fails_nothing_of_what_the_guard_guards_is_carried_out_and_what_follows_is() {
    let mut b = n1();
    b.walk(2, PLAIN);
    let first = stopping(&mut b, &[MKDIR, MKDIR, "Tclunk tag 5 fid 2"]);
    b.send("Tgetattr tag 5 fid 0 request_mask 0x1");
    b.fail(first, Errno::ENOSPC);
    for _ in 0..2 {
        assert_eq!(b.member(), Some(Did::Handled));
    }
    b.farewells();
    assert_eq!(b.session.fids(), 1, "a clunk that is not carried out forgets its fid");
    assert!(matches!(b.member(), Some(Did::Execute(_))), "it is not guarded any more");
    assert_eq!(b.replies(), ["Rlerror tag 5 ecode 28 retry_ms 0 text ''", CANCELLED, CANCELLED]);
}

#[test]
fn all_that_a_guard_guards_is_carried_out_when_none_fails() {
    let mut b = n1();
    let first = stopping(&mut b, &[MKDIR, MKDIR]);
    b.done(first, Done::Qid(DIR));
    let Some(Did::Execute(second)) = b.member() else { panic!("it is not carried out") };
    // The last one that it guards: nothing is behind it.
    b.fail(second, Errno::EIO);
    b.replies();
    b.begin(MKDIR);
}

#[test]
fn a_request_that_is_refused_at_once_fails_too() {
    for bad in [
        "Tgetattr tag 5 fid 99 request_mask 0x1",
        "Tmkdir tag 5 dfid 0 name '..' mode 0755 gid 0",
        "Tguard tag 5 flags 02 epoch 0 fid -1 lease 0 opid 0 members 0",
    ] {
        let mut b = n1();
        b.ask(&stop(2));
        assert!(b.ask(bad).starts_with("Rlerror tag 5 "), "{bad}");
        assert_eq!(b.ask(MKDIR), CANCELLED, "{bad}");
        b.begin(MKDIR);
    }
}

#[test]
fn what_does_less_than_it_was_asked_to_do_fails_although_its_reply_is_no_error() {
    let done = [
        ("Twrite tag 5 fid 1 offset 0 count 3 'abc'", Done::Count(2)),
        ("Twritex tag 5 fid 1 offset 0 flags 0 count 3 'abc'", Done::Written { offset: 0, count: 2 }),
        ("Tcopyrange tag 5 srcfid 1 srcoffset 0 dstfid 1 dstoffset 9 length 3 flags 0", Done::Copied(2)),
        ("Twalk tag 5 fid 0 newfid 7 nwname 2 0:a 1:b", Done::Walked { qids: vec![DIR], file: None }),
    ];
    for (line, less) in done {
        let mut b = n1();
        b.walk(1, PLAIN);
        let id = b.begin("Tlopen tag 900 fid 1 flags 02");
        b.done(id, Done::Opened { qid: PLAIN });
        b.replies();
        let first = stopping(&mut b, &[line, MKDIR]);
        b.done(first, less);
        assert_eq!(b.member(), Some(Did::Handled), "{line}");
        let replies = b.replies();
        assert!(!replies[0].starts_with("Rlerror"), "{replies:?}");
        assert_eq!(replies[1..], [CANCELLED], "{line}");
    }
}

#[test]
fn a_read_may_bring_less_than_it_asked_for() {
    let mut b = n1();
    b.walk(1, PLAIN);
    let id = b.begin("Tlopen tag 900 fid 1 flags 02");
    b.done(id, Done::Opened { qid: PLAIN });
    b.replies();
    let first = stopping(&mut b, &["Tread tag 5 fid 1 offset 0 count 10", MKDIR]);
    b.done(first, Done::Data(vec![1]));
    assert!(matches!(b.member(), Some(Did::Execute(_))));
}

#[test]
fn a_guard_among_those_of_another_ends_with_it_and_may_reach_further() {
    let mut b = n1();
    b.ask(&stop(3));
    assert_eq!(b.ask(&stop(3)), "Rguard tag 5");
    let first = b.begin(MKDIR);
    b.fail(first, Errno::EIO);
    b.replies();
    // One of both, and one of the second alone.
    assert_eq!([b.ask(MKDIR), b.ask(MKDIR)], [CANCELLED; 2]);
    b.begin(MKDIR);
}

#[test]
fn a_guard_that_says_to_stop_may_ask_for_a_run_of_the_server_too() {
    let mut b = n1();
    assert_eq!(b.ask(&guard(EPOCH + 1, 1).replace("flags 0", "flags 01")), CANCELLED);
    assert_eq!(b.ask(MKDIR), CANCELLED);
    assert_eq!(b.ask(&guard(EPOCH, 1).replace("flags 0", "flags 01")), "Rguard tag 5");
    assert!(b.ask(&guard(EPOCH, 1).replace("flags 0", "flags 03")).contains("ecode 22 "));
}

#[test]
fn a_flush_of_the_tag_ends_a_guard_that_says_to_stop() {
    let mut b = n1();
    let first = stopping(&mut b, &[MKDIR, MKDIR]);
    assert_eq!(b.send("Tflush tag 6 oldtag 5"), Did::Cancel(vec![first]));
    b.fail(first, Errno::EINTR);
    assert_eq!(b.replies(), ["Rflush tag 6"]);
    assert_eq!(b.member(), None);
    b.begin(MKDIR);
}

#[test]
fn guards_are_held_back_while_others_are_carried_out() {
    let mut b = n1();
    let most = Limits::default().waiting;
    let running = b.begin("Tgetattr tag 60000 fid 0 request_mask 0x1");
    for tag in 0..most {
        assert_eq!(b.ask(&stop(1).replace("tag 5", &format!("tag {tag}"))), format!("Rguard tag {tag}"));
    }
    let one_more = stop(1).replace("tag 5", &format!("tag {most}"));
    assert_eq!(b.send(&one_more), Did::Wait);
    b.fail(running, Errno::EIO);
    assert_eq!(b.send(&one_more), Did::Closed(Violation::TooManyGuards));
}

/// A guard that says to do the first unless it fails, and its members, of which the first is begun.
fn unless(b: &mut Bench, members: &[&str]) -> RequestId {
    let guard = stop(members.len() as u32).replace("flags 01", "flags 02");
    assert_eq!(b.ask(&guard), "Rguard tag 5");
    let first = b.begin(members[0]);
    for line in &members[1..] {
        assert_eq!(b.send(line), Did::Handled, "{line}");
    }
    first
}

#[test]
fn behind_a_first_member_that_succeeds_nothing_is_carried_out_of_what_an_unless_guards() {
    let mut b = n1();
    let first = unless(&mut b, &[MKDIR, MKDIR, MKDIR]);
    b.send("Tgetattr tag 5 fid 0 request_mask 0x1");
    b.done(first, Done::Qid(DIR));
    for _ in 0..2 {
        assert_eq!(b.member(), Some(Did::Handled));
    }
    assert!(matches!(b.member(), Some(Did::Execute(_))), "it is not guarded any more");
    assert_eq!(b.replies(), ["Rmkdir tag 5 qid (1 1 d)", CANCELLED, CANCELLED]);
}

#[test]
fn behind_a_first_member_that_fails_all_is_carried_out_of_what_an_unless_guards() {
    let mut b = n1();
    let first = unless(&mut b, &[MKDIR, MKDIR, MKDIR]);
    b.fail(first, Errno::ENOSPC);
    let Some(Did::Execute(second)) = b.member() else { panic!("it is not carried out") };
    b.fail(second, Errno::ENOSPC);
    let Some(Did::Execute(third)) = b.member() else { panic!("it is not carried out") };
    b.done(third, Done::Qid(DIR));
    assert!(b.replies().iter().all(|reply| reply != CANCELLED));
    b.begin(MKDIR);
}

#[test]
fn a_first_member_of_an_unless_that_is_refused_at_once_has_failed() {
    let mut b = n1();
    b.ask(&stop(2).replace("flags 01", "flags 02"));
    assert!(b.ask("Tgetattr tag 5 fid 99 request_mask 0x1").starts_with("Rlerror tag 5 "));
    b.begin(MKDIR);
}

#[test]
fn a_guard_that_is_no_stop_among_those_of_a_stop_or_any_among_those_of_an_unless_cancels() {
    for (around, among) in [("01", "02"), ("02", "01"), ("02", "02")] {
        let mut b = n1();
        b.ask(&stop(3).replace("flags 01", &format!("flags {around}")));
        let refused = b.ask(&stop(1).replace("flags 01", &format!("flags {among}")));
        assert!(refused.contains("ecode 22 "), "{refused}");
        assert_eq!([b.ask(MKDIR), b.ask(MKDIR)], [CANCELLED; 2], "{around} {among}");
        b.begin(MKDIR);
    }
}
