//! Requests that share a tag.

use alloc::sync::Arc;
use alloc::vec;
use core::sync::atomic::{AtomicUsize, Ordering};

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

const NO_ROOM: &str = "Rerror tag 5 ename 'too many requests of this connection wait already'";

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
    assert_eq!(b.member(), None, "what is done has nothing to do with its fid");
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
    assert_eq!(b.frame(&frame, &|_| true), Did::Handled, "it may wait for what comes behind it");
    b.done(first, Done::Data(b"x".to_vec()));
    for _ in 1..64 {
        let id = next(&mut b);
        assert_eq!(b.replies().len(), 1);
        b.fail(id, Errno::EIO);
    }
    b.replies();
    assert_eq!(b.member(), Some(Did::Handled));
    assert_eq!(b.member(), None);
    assert_eq!(b.replies(), [NO_ROOM]);
    b.begin("Tstat tag 5 fid 0");
}

#[test]
fn where_there_is_no_room_only_what_would_wait_for_a_parked_request_is_refused() {
    let mut b = ix();
    b.open(1);
    b.walk(2, PLAIN);
    b.session.limits.group = 2;
    let send = |b: &mut Bench, line: &str, parked: RequestId| {
        let frame = parse(line, Dialect::Plan9).unwrap();
        b.frame(&frame, &|id| id == parked)
    };
    let parked = b.begin("Tread tag 3 fid 1 offset 0 count 1");
    let runs = b.begin("Topen tag 6 fid 2 mode 0");
    assert_eq!(send(&mut b, "Tstat tag 6 fid 0", parked), Did::Handled);
    assert_eq!(send(&mut b, "Tstat tag 6 fid 0", parked), Did::Wait, "the open ends without the read");
    assert_eq!(send(&mut b, "Tstat tag 3 fid 0", parked), Did::Handled);
    assert_eq!(send(&mut b, "Tstat tag 3 fid 0", parked), Did::Handled, "to be refused: the read may never end");
    // A line whose first waits for a fid waits for what uses that.
    assert_eq!(send(&mut b, "Tstat tag 7 fid 2", parked), Did::Handled);
    assert_eq!(send(&mut b, "Tstat tag 7 fid 0", parked), Did::Wait);
    assert_eq!(send(&mut b, "Tstat tag 7 fid 0", runs), Did::Handled);
    b.session.limits.waiting = 0;
    assert_eq!(send(&mut b, "Tstat tag 8 fid 2", parked), Did::Wait, "the open may make room");
    let frame = parse("Tstat tag 8 fid 2", Dialect::Plan9).unwrap();
    assert_eq!(b.frame(&frame, &|_| true), Did::Handled);
    assert_eq!(b.replies(), [NO_ROOM.replace("tag 5", "tag 8")]);
}

#[test]
fn a_client_that_goes_on_beyond_every_limit_is_not_heard() {
    let mut b = ix();
    b.open(1);
    b.begin("Tread tag 5 fid 1 offset 0 count 1");
    let frame = parse("Tstat tag 5 fid 0", Dialect::Plan9).unwrap();
    let taken = (0..1 << 20).take_while(|_| b.frame(&frame, &|_| true) == Did::Handled).count();
    assert_eq!(taken, 63 + (1 << 16));
    assert_eq!(b.frame(&frame, &|_| true), Did::Closed(Violation::TooManyMembers));
}

#[test]
fn frames_that_wait_are_bounded_in_bytes() {
    let mut b = ix();
    b.session.limits.unsent = 20_000;
    b.open(1);
    b.begin("Tread tag 5 fid 1 offset 0 count 1");
    let frame =
        parse(&format!("Twrite tag 5 fid 1 offset 0 count 8000 '{}'", "x".repeat(8000)), Dialect::Plan9).unwrap();
    assert_eq!((b.frame(&frame, &|_| false), b.frame(&frame, &|_| false)), (Did::Handled, Did::Handled));
    assert_eq!(b.frame(&frame, &|_| false), Did::Wait);
}

#[test]
fn what_does_not_decode_to_a_request_is_answered_in_its_turn() {
    let mut b = ix();
    b.open(1);
    let read = b.begin("Tread tag 5 fid 1 offset 0 count 1");
    assert_eq!(b.frame(b"\x07\0\0\0\xc8\x05\0", &|_| false), Did::Handled);
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
fn a_tflush_that_waits_its_turn_ends_nothing_that_came_after_it() {
    let mut b = ix();
    b.open(1);
    b.walk(2, PLAIN);
    let slow = b.begin("Tread tag 6 fid 1 offset 0 count 1");
    let flushed = b.begin("Tread tag 5 fid 1 offset 0 count 1");
    for line in
        ["Twrite tag 5 fid 1 offset 0 count 1 'x'", "Tflush tag 6 oldtag 5", "Tstat tag 5 fid 2", "Tremove tag 5 fid 2"]
    {
        assert_eq!(b.send(line), Did::Handled, "{line}");
    }
    b.fail(slow, Errno::EIO);
    assert_eq!(b.member(), Some(Did::Cancel(vec![flushed])));
    b.fail(flushed, Errno::EINTR);
    let stat = next(&mut b);
    b.fail(stat, Errno::EIO);
    assert_eq!(b.member(), Some(Did::Handled));
    assert_eq!(b.member(), None);
    b.farewells();
    assert_eq!(
        b.replies(),
        ["Rerror tag 6 ename 'i/o error'", "Rflush tag 6", "Rerror tag 5 ename 'i/o error'", "Rremove tag 5"]
    );
    assert_eq!(b.session.outstanding(), 0);

    // All that it was for is answered when its turn comes; a request with that tag runs, and what waits with it stays.
    let slow = b.begin("Tread tag 6 fid 1 offset 0 count 1");
    let before = b.begin("Tread tag 5 fid 1 offset 0 count 1");
    b.send("Tflush tag 6 oldtag 5");
    b.send("Tread tag 5 fid 1 offset 0 count 1");
    b.fail(before, Errno::EIO);
    let after = next(&mut b);
    b.send("Tstat tag 5 fid 1");
    b.fail(slow, Errno::EIO);
    assert_eq!(b.member(), Some(Did::Handled));
    assert_eq!(b.replies().last().unwrap(), "Rflush tag 6");
    b.fail(after, Errno::EIO);
    next(&mut b);
}

#[test]
fn what_came_after_a_tflush_goes_on_where_all_before_it_waited_for_a_fid() {
    let mut b = ix();
    b.open(1);
    b.walk(2, PLAIN);
    let slow = b.begin("Tread tag 6 fid 1 offset 0 count 1");
    b.begin("Topen tag 7 fid 2 mode 0");
    for line in ["Tstat tag 5 fid 2", "Tflush tag 6 oldtag 5", "Tstat tag 5 fid 0"] {
        assert_eq!(b.send(line), Did::Handled, "{line}");
    }
    b.fail(slow, Errno::EIO);
    assert_eq!(b.member(), Some(Did::Handled));
    next(&mut b);
    assert_eq!(b.replies(), ["Rerror tag 6 ename 'i/o error'", "Rflush tag 6"]);
    assert_eq!(b.member(), None);
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
            match b.session.handle_frame(&frame, &|_| false, &mut b.out) {
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

#[test]
fn what_waits_for_a_fid_goes_on_in_the_order_in_which_it_came() {
    let mut b = ix();
    b.walk(1, DIR);
    let in_place = |tag: u32| format!("Twalk tag {tag} fid 1 newfid 1 nwname 1 0:x");
    let moved = |file| Done::Walked { qids: [DIR].to_vec(), file: Some(file) };
    let first = b.begin(&in_place(2));
    assert_eq!(b.send("Tstat tag 3 fid 1"), Did::Handled);
    assert_eq!(b.send(&in_place(4)), Did::Handled);
    assert_eq!(b.send("Tstat tag 5 fid 1"), Did::Handled);
    b.done(first, moved(50));
    let stat = next(&mut b);
    assert_eq!(b.member(), Some(Did::Handled), "it cannot run beside the stat");
    assert_eq!(b.member(), None, "nor can what stands behind it pass it");
    assert_eq!(b.send("Tstat tag 6 fid 1"), Did::Handled, "nor what comes then");
    b.fail(stat, Errno::EIO);
    let walk = next(&mut b);
    assert_eq!(b.member(), Some(Did::Handled));
    b.done(walk, moved(51));
    let last = [next(&mut b), next(&mut b)];
    assert_eq!(b.member(), None);
    last.into_iter().for_each(|id| b.fail(id, Errno::EIO));
    let tags: Vec<_> = b.replies().iter().map(|line| line.split(' ').nth(2).unwrap().to_string()).collect();
    assert_eq!(tags, ["2", "3", "4", "5", "6"]);
}

#[test]
fn of_a_queue_that_is_flushed_from_its_head_on_the_rest_goes_on() {
    let mut b = ix();
    b.walk(1, PLAIN);
    let open = b.begin("Topen tag 2 fid 1 mode 0");
    for tag in 3..6 {
        b.send(&format!("Tstat tag {tag} fid 1"));
    }
    b.done(open, Done::Opened { qid: PLAIN });
    b.replies();
    assert_eq!(b.ask("Tflush tag 100 oldtag 3"), "Rflush tag 100");
    next(&mut b);
    assert_eq!(b.ask("Tflush tag 100 oldtag 5"), "Rflush tag 100");
    assert_eq!(b.member(), None);
    assert_eq!(b.session.outstanding(), 1);
}

#[test]
fn what_stood_behind_the_head_of_a_queue_goes_on_when_that_is_flushed() {
    let mut b = ix();
    b.walk(1, PLAIN);
    let long = b.begin("Tstat tag 2 fid 1");
    for line in ["Topen tag 3 fid 1 mode 0", "Tstat tag 4 fid 1", "Tstat tag 5 fid 1"] {
        assert_eq!(b.send(line), Did::Handled, "{line}");
    }
    assert_eq!(b.ask("Tflush tag 100 oldtag 3"), "Rflush tag 100");
    let beside = [next(&mut b), next(&mut b), b.begin("Tstat tag 7 fid 1")];
    assert_eq!(b.member(), None);
    beside.into_iter().chain([long]).for_each(|id| b.fail(id, Errno::EIO));
    assert_eq!((b.replies().len(), b.session.outstanding()), (4, 0));
}

#[test]
fn what_waits_for_a_fid_that_is_clunked_is_refused_at_once() {
    let mut b = ix();
    b.walk(1, PLAIN);
    let open = b.begin("Topen tag 2 fid 1 mode 0");
    b.send("Tstat tag 3 fid 1");
    assert_eq!(b.send("Tclunk tag 4 fid 1"), Did::Cancel(vec![open]));
    assert_eq!(b.member(), Some(Did::Handled));
    assert_eq!(b.replies(), ["Rerror tag 3 ename 'unknown fid'"]);
}

#[test]
fn a_request_that_needs_two_fids_waits_for_one_after_the_other() {
    let mut b = Bench::attached_as(Dialect::Unix, "9P2000.u.ix");
    b.walk(1, DIR);
    b.walk(2, PLAIN);
    let dir = b.begin("Twalk tag 3 fid 1 newfid 1 nwname 1 0:x");
    let file = b.begin("Topen tag 4 fid 2 mode 0");
    // DMLINK: fid 1 is to be that of a new name of fid 2.
    assert_eq!(b.send("Tcreate tag 5 fid 1 name 'n' perm 0x01000000 mode 0 extension '2'"), Did::Handled);
    b.done(dir, Done::Walked { qids: [DIR].to_vec(), file: Some(50) });
    assert_eq!(b.member(), Some(Did::Handled));
    assert_eq!(b.member(), None);
    b.done(file, Done::Opened { qid: PLAIN });
    next(&mut b);
}

#[test]
fn a_request_that_waited_for_one_fid_passes_nobody_who_waits_for_its_other() {
    let mut b = Bench::attached_as(Dialect::Unix, "9P2000.u.ix");
    b.walk(1, DIR);
    b.walk(2, PLAIN);
    let dir = b.begin("Twalk tag 3 fid 1 newfid 1 nwname 1 0:x");
    let stat = b.begin("Tstat tag 4 fid 2");
    for line in ["Tcreate tag 5 fid 1 name 'n' perm 0x01000000 mode 0 extension '2'", "Topen tag 6 fid 2 mode 0"] {
        assert_eq!(b.send(line), Did::Handled, "{line}");
    }
    b.done(dir, Done::Walked { qids: [DIR].to_vec(), file: Some(50) });
    assert_eq!(b.member(), Some(Did::Handled), "the open waits for fid 2 too, and came first");
    assert_eq!(b.member(), None);
    b.fail(stat, Errno::EIO);
    let open = next(&mut b);
    assert_eq!(b.member(), Some(Did::Handled));
    assert_eq!(b.member(), None);
    b.done(open, Done::Opened { qid: PLAIN });
    next(&mut b);
}

#[test]
fn what_can_never_be_done_with_an_open_file_does_not_wait_for_its_reads() {
    let mut b = ix();
    b.open(1);
    b.begin("Tread tag 5 fid 1 offset 0 count 1");
    assert_eq!(b.ask("Topen tag 6 fid 1 mode 0"), "Rerror tag 6 ename 'fid is open'");
    assert_eq!(b.ask("Twalk tag 6 fid 1 newfid 1 nwname 0"), "Rerror tag 6 ename 'fid is open'");
    b.begin("Twrite tag 6 fid 1 offset 0 count 1 'x'");
}

/// A frame that counts how often its bytes are copied.
#[derive(Clone, Debug)]
struct Frame(Arc<[u8]>);

static COPIES: AtomicUsize = AtomicUsize::new(0);

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Frame {
        COPIES.fetch_add(1, Ordering::SeqCst);
        Frame(bytes.into())
    }
}

#[test]
fn a_frame_that_waits_is_copied_once_whatever_its_size_and_however_often_it_is_tried() {
    let mut session: Session<File, Vec<u8>, Frame> = Session::new(Limits::default());
    let mut out = Outbox::default();
    let mut send = |session: &mut Session<_, _, Frame>, line: &str| {
        let frame = Frame(parse(line, Dialect::Plan9).unwrap().into());
        match session.handle_frame(&frame, &|_| false, &mut out) {
            Ok(Event::Execute(request)) => Some(request.id),
            Ok(Event::Handled) => None,
            other => panic!("{line}: {other:?}"),
        }
    };
    let mut replies = Outbox::default();
    send(&mut session, "Tversion tag -1 msize 65536 version '9P2000.ix'");
    let attach = send(&mut session, "Tattach tag 1 fid 0 afid -1 uname 'u' aname ''").unwrap();
    session.complete(attach, Ok(Done::Attached { qid: DIR, file: 1, read_only: false }), &mut replies);
    let walk = send(&mut session, "Twalk tag 1 fid 0 newfid 1 nwname 0").unwrap();
    let stats: Vec<_> = (10..20).map(|tag| send(&mut session, &format!("Tstat tag {tag} fid 0")).unwrap()).collect();
    let data = "x".repeat(60_000);
    assert_eq!(send(&mut session, &format!("Twrite tag 1 fid 0 offset 0 count 60000 '{data}'")), None);
    assert_eq!(COPIES.load(Ordering::SeqCst), 1, "a large one would keep the buffer that it came in");
    assert_eq!(send(&mut session, "Twalk tag 2 fid 0 newfid 0 nwname 0"), None);
    for id in stats {
        session.complete(id, Err(Errno::EIO.into()), &mut replies);
        while let Some(member) = session.poll_member() {
            assert!(matches!(session.handle_member(&member, &mut replies), Ok(Event::Handled)));
        }
    }
    session.complete(walk, Err(Errno::EIO.into()), &mut replies);
    assert_eq!(COPIES.load(Ordering::SeqCst), 2);
}

#[test]
fn those_without_room_are_refused_one_at_a_time_and_a_fid_that_was_to_go_is_gone() {
    let mut b = ix();
    b.session.limits.group = 1;
    let (kept, removed) = (b.open(1), b.walk(2, PLAIN));
    let made = b.begin("Twalk tag 7 fid 0 newfid 3 nwname 1 0:x");
    let read = b.begin("Tread tag 5 fid 1 offset 0 count 1");
    for line in
        ["Tstat tag 5 fid 1", "Tclunk tag 5 fid 1", "Tremove tag 5 fid 2", "Tclunk tag 5 fid 3", "Tclunk tag 5 fid 4"]
    {
        let frame = parse(line, Dialect::Plan9).unwrap();
        assert_eq!(b.frame(&frame, &|_| true), Did::Handled, "{line}");
    }
    let other = b.begin("Tread tag 6 fid 1 offset 0 count 1");
    b.done(read, Done::Data(b"x".to_vec()));
    b.replies();
    assert_eq!(b.member(), Some(Did::Handled));
    assert_eq!(b.replies(), [NO_ROOM]);
    assert_eq!(b.member(), Some(Did::Cancel(vec![other])), "what uses the file is to wait no longer");
    b.farewells();
    assert_eq!(b.member(), None, "the farewell is not over");
    b.fail(other, Errno::EINTR);
    b.farewells();
    assert_eq!(b.replies()[1..], [NO_ROOM]);
    assert_eq!(b.member(), Some(Did::Handled));
    b.farewells();
    assert_eq!(b.replies(), [NO_ROOM]);
    assert_eq!(b.farewells, [(kept, false), (removed, false)], "nothing was removed");
    assert_eq!(b.member(), Some(Did::Cancel(vec![made])), "its walk is not done");
    b.done(made, walked(99));
    b.farewells();
    assert_eq!(b.replies()[1..], [NO_ROOM]);
    assert_eq!(b.farewells.last(), Some(&(99, false)));
    assert_eq!(b.member(), Some(Did::Handled));
    assert_eq!(b.replies(), [NO_ROOM]);
    assert_eq!((b.session.fids(), b.session.outstanding()), (1, 0));
}

#[test]
fn a_session_is_not_idle_and_takes_large_frames_while_a_tattach_waits_for_its_turn() {
    let mut b = Bench::new();
    b.send("Tversion tag -1 msize 1048576 version '9P2000.ix'");
    b.replies();
    assert_eq!(b.session.msize(), 256 << 10);
    let attach = b.begin("Tattach tag 1 fid 0 afid -1 uname 'u' aname ''");
    assert_eq!(b.session.msize(), 1 << 20);
    b.done(attach, Done::Attached { qid: DIR, file: 1, read_only: false });
    b.send("Tclunk tag 1 fid 0");
    assert_eq!(b.session.msize(), 256 << 10);
    b.send("Tattach tag 1 fid 0 afid -1 uname 'u' aname ''");
    assert_eq!(b.session.msize(), 1 << 20);
    b.farewells();
    assert!(!b.session.is_idle(), "its turn has come");
    let attach = next(&mut b);
    assert_eq!(b.session.msize(), 1 << 20);
    b.fail(attach, Errno::EIO);
    assert!(b.session.is_idle());
    assert_eq!(b.session.msize(), 256 << 10);
}

#[test]
fn what_is_too_large_for_a_client_without_a_fid_is_answered_in_its_turn() {
    let mut b = Bench::new();
    b.send("Tversion tag -1 msize 1048576 version '9P2000.ix'");
    let attach = b.begin("Tattach tag 1 fid 0 afid -1 uname 'u' aname ''");
    b.done(attach, Done::Attached { qid: DIR, file: 1, read_only: false });
    b.send("Tclunk tag 1 fid 0");
    b.replies();
    let large = |b: &mut Bench, size: u32, kind: u8, tag: u8| {
        let mut header = size.to_le_bytes().to_vec();
        header.extend([kind, tag, 0]);
        Did::of(b.session.handle_large(&header, &|_| false, &mut b.out))
    };
    assert_eq!(large(&mut b, 1 << 20, 118, 1), Did::Handled);
    assert_eq!(b.send("Tattach tag 1 fid 0 afid -1 uname 'u' aname ''"), Did::Handled);
    assert_eq!(large(&mut b, 1 << 20, 118, 2), Did::Handled, "nothing is before it");
    assert_eq!(b.replies(), ["Rerror tag 2 ename 'unknown fid'"]);
    b.farewells();
    assert_eq!(b.member(), Some(Did::Handled));
    next(&mut b);
    assert_eq!(b.replies(), ["Rclunk tag 1", "Rerror tag 1 ename 'unknown fid'"]);
    for (size, kind) in [((1 << 20) + 1, 118), (1 << 20, 119), (1 << 20, 100)] {
        assert!(matches!(large(&mut b, size, kind, 3), Did::Closed(_)), "type {kind} of {size} bytes");
    }
}

#[test]
fn what_waits_can_be_dropped_while_what_runs_is_answered() {
    let mut b = ix();
    b.open(1);
    let read = b.begin("Tread tag 5 fid 1 offset 0 count 1");
    b.send("Tstat tag 5 fid 0");
    b.session.drop_members();
    b.done(read, Done::Data(b"x".to_vec()));
    assert_eq!(b.member(), None);
    assert_eq!(b.replies(), ["Rread tag 5 count 1 'x'"]);
    assert_eq!(b.session.outstanding(), 0);
}

#[test]
fn tcreate_under_ix_changes_nothing_where_the_export_may_not_be_changed() {
    let mut b = Bench::new();
    b.send("Tversion tag -1 msize 8192 version '9P2000.ix'");
    let id = b.begin("Tattach tag 1 fid 0 afid -1 uname 'u' aname ''");
    b.done(id, Done::Attached { qid: DIR, file: 1, read_only: true });
    b.replies();
    for mode in [0, 1, 2, 3] {
        let line = format!("Tcreate tag 1 fid 0 name 'f' perm 420 mode {mode}");
        assert_eq!(b.ask(&line), "Rerror tag 1 ename 'read-only file system'");
    }
}
