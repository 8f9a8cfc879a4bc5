//! The session in virtual time: lines in, lines out, results brought in whatever order a test wants.

mod coming;
mod groups;
mod guards;
mod n1;
mod outside;
mod random_groups;
mod stream;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::attr::Attr;
use crate::dialect::Dialect;
use crate::error::{Errno, Error};
use crate::print::{Data, parse, print};
use crate::types::{Qid, QidType};

/// A file is a number.
type File = u32;

const DIR: Qid = Qid { kind: QidType::DIR, version: 1, path: 1 };
const PLAIN: Qid = Qid { kind: QidType::FILE, version: 1, path: 2 };

struct Bench {
    session: Session<File, Vec<u8>>,
    out: Outbox<Vec<u8>>,
    /// Files taken leave of, with what was asked.
    farewells: Vec<(File, bool)>,
    next_file: File,
}

/// What a frame led to, without its borrows.
#[derive(Debug, PartialEq)]
enum Did {
    Handled,
    Execute(RequestId),
    Cancel(Vec<RequestId>),
    CancelAll,
    Wait,
    Closed(Violation),
}

impl Did {
    fn of(event: Result<Event<'_, File>, Violation>) -> Did {
        match event {
            Ok(Event::Handled) => Did::Handled,
            Ok(Event::Execute(request)) => Did::Execute(request.id),
            Ok(Event::Cancel(ids)) => Did::Cancel(ids),
            Ok(Event::CancelAll) => Did::CancelAll,
            Ok(Event::Wait) => Did::Wait,
            Err(violation) => Did::Closed(violation),
        }
    }
}

impl Bench {
    /// Nothing said yet.
    fn new() -> Bench {
        Bench { session: Session::new(Limits::default()), out: Outbox::default(), farewells: Vec::new(), next_file: 10 }
    }

    /// Version agreed, fid 0 attached to a directory.
    fn attached(dialect: Dialect) -> Bench {
        Bench::attached_as(dialect, dialect.as_str())
    }

    fn attached_as(dialect: Dialect, version: &str) -> Bench {
        let mut b = Bench::new();
        b.send(&format!("Tversion tag -1 msize 8192 version '{version}'"));
        let n_uname = if dialect == Dialect::Plan9 { "" } else { " n_uname 0" };
        let id = b.begin(&format!("Tattach tag 1 fid 0 afid -1 uname 'u' aname ''{n_uname}"));
        b.done(id, Done::Attached { qid: DIR, file: 1, read_only: false });
        b.replies();
        b
    }

    fn frame(&mut self, frame: &[u8], parked: Parked<'_>) -> Did {
        Did::of(self.session.handle_frame(&frame.to_vec(), parked, &mut self.out))
    }

    /// Begins what has its turn: the request, or what else came of it.
    fn member(&mut self) -> Option<Did> {
        let member = self.session.poll_member()?;
        Some(Did::of(self.session.handle_member(&member, &mut self.out)))
    }

    fn send(&mut self, line: &str) -> Did {
        let frame = parse(line, self.session.version).unwrap_or_else(|e| panic!("{line}: {e}"));
        self.frame(&frame, &|_| false)
    }

    /// Sends a line that must be carried out.
    fn begin(&mut self, line: &str) -> RequestId {
        match self.send(line) {
            Did::Execute(id) => id,
            other => panic!("{line}: {other:?} {:?}", self.replies()),
        }
    }

    fn done(&mut self, id: RequestId, done: Done<File, Vec<u8>>) {
        self.session.complete(id, Ok(done), &mut self.out);
    }

    fn fail(&mut self, id: RequestId, errno: Errno) {
        self.session.complete(id, Err(errno.into()), &mut self.out);
    }

    /// Takes leave of every file whose time has come.
    fn farewells(&mut self) {
        while let Some(farewell) = self.session.poll_farewell() {
            self.farewells.push((farewell.file, farewell.remove));
            let result = farewell.error.map_or(Ok(()), Err);
            self.session.farewell_done(farewell.id, result, &mut self.out);
        }
    }

    /// The replies so far, as lines.
    fn replies(&mut self) -> Vec<String> {
        let bytes: Vec<u8> = self.out.chunks().filter_map(|chunk| chunk.in_memory()).flatten().copied().collect();
        self.out.advance(bytes.len());
        let mut rest = &bytes[..];
        let mut lines = Vec::new();
        while let Ok(Some(size)) = crate::wire::frame_size(rest, u32::MAX) {
            lines.push(print(&rest[..size], self.session.version, Data::Whole).to_string());
            rest = &rest[size..];
        }
        lines
    }

    /// Sends a line that is answered at once, and the answer.
    fn ask(&mut self, line: &str) -> String {
        let did = self.send(line);
        self.farewells();
        let replies = self.replies();
        assert_eq!(replies.len(), 1, "{line}: {did:?} {replies:?}");
        replies[0].clone()
    }

    /// Walks fid 0 to `newfid` by one name.
    fn walk(&mut self, newfid: u32, qid: Qid) -> File {
        let id = self.begin(&format!("Twalk tag 900 fid 0 newfid {newfid} nwname 1 0:x"));
        self.next_file += 1;
        self.done(id, Done::Walked { qids: [qid].to_vec(), file: Some(self.next_file) });
        self.replies();
        self.next_file
    }

    /// A fid that is open for reading and writing.
    fn open(&mut self, fid: u32) -> File {
        let file = self.walk(fid, PLAIN);
        let line = match self.session.dialect() {
            Dialect::Linux => format!("Tlopen tag 900 fid {fid} flags 02"),
            _ => format!("Topen tag 900 fid {fid} mode 2"),
        };
        let id = self.begin(&line);
        self.done(id, Done::Opened { qid: PLAIN });
        self.replies();
        file
    }
}

#[test]
fn nothing_but_tversion_is_taken_first() {
    let mut b = Bench::new();
    assert_eq!(b.send("Tclunk tag 1 fid 0"), Did::Closed(Violation::NoVersion(120)));
    assert_eq!(b.frame(b"\x07\0\0\0\xc8\x01\0", &|_| false), Did::Closed(Violation::NoVersion(200)));
    assert_eq!(
        b.ask("Tversion tag -1 msize 65536 version '9P2000.L.n1'"),
        "Rversion tag -1 msize 65536 version '9P2000.L.n1'"
    );
    assert_eq!(b.session.msize(), 65536);
}

#[test]
fn an_unknown_version_leaves_the_session_at_its_start() {
    let mut b = Bench::new();
    assert_eq!(b.ask("Tversion tag -1 msize 8192 version 'HTTP'"), "Rversion tag -1 msize 8192 version 'unknown'");
    assert_eq!(b.send("Tattach tag 1 fid 0 afid -1 uname '' aname ''"), Did::Closed(Violation::NoVersion(104)));
    assert_eq!(b.ask("Tversion tag -1 msize 100 version '9P2000'"), "Rversion tag -1 msize 100 version 'unknown'");
}

#[test]
fn a_second_tversion_voids_all_requests_and_is_answered_after_them() {
    let mut b = Bench::attached(Dialect::Linux);
    b.open(1);
    let read = b.begin("Tread tag 5 fid 1 offset 0 count 10");
    let walk = b.begin("Twalk tag 6 fid 0 newfid 7 nwname 1 0:y");
    assert_eq!(b.send("Tversion tag -1 msize 8192 version '9P2000.u'"), Did::CancelAll);
    assert_eq!(b.send("Tclunk tag 9 fid 1"), Did::Wait);
    b.done(read, Done::Data(b"late".to_vec()));
    b.farewells();
    assert_eq!(b.replies(), [""; 0]);
    b.done(walk, Done::Walked { qids: [PLAIN].to_vec(), file: Some(99) });
    b.farewells();
    assert_eq!(b.replies(), ["Rversion tag -1 msize 8192 version '9P2000.u'"]);
    assert!(b.farewells.contains(&(99, false)), "a file made for a void walk is clunked too");
    assert_eq!(b.farewells.len(), 3);
    assert_eq!(b.ask("Tclunk tag 9 fid 1"), "Rerror tag 9 ename 'unknown fid' errno 9");
}

#[test]
fn a_new_fid_exists_only_after_a_full_walk() {
    let mut b = Bench::attached(Dialect::Linux);
    let id = b.begin("Twalk tag 1 fid 0 newfid 1 nwname 2 0:a 1:b");
    b.done(id, Done::Walked { qids: [DIR].to_vec(), file: None });
    assert_eq!(b.replies(), ["Rwalk tag 1 nwqid 1 0:(1 1 d)"]);
    assert_eq!(b.ask("Tclunk tag 2 fid 1"), "Rlerror tag 2 ecode 9");
    let id = b.begin("Twalk tag 1 fid 0 newfid 1 nwname 1 0:a");
    b.fail(id, Errno::ENOENT);
    assert_eq!(b.replies(), ["Rlerror tag 1 ecode 2"]);
    assert_eq!(b.session.fids(), 1);
}

#[test]
fn a_walk_onto_its_own_fid_replaces_the_file_and_takes_leave_of_the_old_one() {
    let mut b = Bench::attached(Dialect::Plan9);
    let old = b.walk(1, DIR);
    let id = b.begin("Twalk tag 2 fid 1 newfid 1 nwname 1 0:b");
    b.done(id, Done::Walked { qids: [PLAIN].to_vec(), file: Some(77) });
    b.farewells();
    assert_eq!(b.farewells, [(old, false)]);
    assert_eq!(b.replies(), ["Rwalk tag 2 nwqid 1 0:(2 1 )"]);
    assert_eq!(b.ask("Tclunk tag 2 fid 1"), "Rclunk tag 2");
    assert_eq!(b.farewells, [(old, false), (77, false)]);
}

#[test]
fn a_partial_walk_onto_its_own_fid_leaves_it_where_it_was() {
    let mut b = Bench::attached(Dialect::Plan9);
    let file = b.walk(1, DIR);
    let id = b.begin("Twalk tag 2 fid 1 newfid 1 nwname 2 0:b 1:c");
    b.done(id, Done::Walked { qids: [DIR].to_vec(), file: None });
    b.farewells();
    assert!(b.farewells.is_empty());
    assert_eq!(b.replies(), ["Rwalk tag 2 nwqid 1 0:(1 1 d)"]);
    assert_eq!(b.ask("Tclunk tag 2 fid 1"), "Rclunk tag 2");
    assert_eq!(b.farewells, [(file, false)]);
}

#[test]
fn walks_of_sixteen_names_are_taken_and_of_seventeen_refused() {
    let mut b = Bench::attached(Dialect::Plan9);
    let names = |n: usize| (0..n).map(|i| format!(" {i}:n")).collect::<String>();
    assert!(matches!(b.send(&format!("Twalk tag 1 fid 0 newfid 1 nwname 16{}", names(16))), Did::Execute(_)));
    let refused = b.ask(&format!("Twalk tag 2 fid 0 newfid 2 nwname 17{}", names(17)));
    assert_eq!(refused, "Rerror tag 2 ename 'too many names in walk'");
}

#[test]
fn names_with_slash_nul_or_dots_are_refused() {
    let mut b = Bench::attached(Dialect::Plan9);
    for name in ["''", "'a/b'", "'a\\x00'", "."] {
        let answer = b.ask(&format!("Twalk tag 1 fid 0 newfid 1 nwname 1 0:{name}"));
        assert!(answer.starts_with("Rerror tag 1 ename 'file name"), "{name}: {answer}");
    }
    let answer = b.ask("Tcreate tag 1 fid 0 name '..' perm 0644 mode 0");
    assert_eq!(answer, "Rerror tag 1 ename 'file name is ''.'' or ''..'''");
    assert!(matches!(b.send("Twalk tag 1 fid 0 newfid 1 nwname 1 0:.."), Did::Execute(_)));
    for dialect in [Dialect::Unix, Dialect::Linux] {
        let mut b = Bench::attached(dialect);
        assert!(matches!(b.send("Twalk tag 1 fid 0 newfid 1 nwname 1 0:."), Did::Execute(_)), "diodls walks '.'");
    }
}

#[test]
fn an_open_fid_is_walked_from_in_linux_only_and_never_onto_itself() {
    let mut b = Bench::attached(Dialect::Linux);
    b.open(1);
    assert!(matches!(b.send("Twalk tag 1 fid 1 newfid 2 nwname 0"), Did::Execute(_)));
    let mut b = Bench::attached(Dialect::Linux);
    b.open(1);
    assert_eq!(b.ask("Twalk tag 1 fid 1 newfid 1 nwname 0"), "Rlerror tag 1 ecode 9");
    let mut b = Bench::attached(Dialect::Plan9);
    b.open(1);
    assert_eq!(b.ask("Twalk tag 1 fid 1 newfid 2 nwname 0"), "Rerror tag 1 ename 'fid is open'");
}

#[test]
fn a_duplicate_tag_is_refused_and_the_first_request_still_answered() {
    let mut b = Bench::attached(Dialect::Linux);
    let id = b.begin("Tgetattr tag 4 fid 0 request_mask 0x7ff");
    assert_eq!(b.ask("Tgetattr tag 4 fid 0 request_mask 0x7ff"), "Rlerror tag 4 ecode 16");
    b.done(id, Done::Attr(Attr::default()));
    assert_eq!(b.replies().len(), 1);
    assert!(matches!(b.send("Tgetattr tag 4 fid 0 request_mask 0x7ff"), Did::Execute(_)), "the tag is free again");
}

#[test]
fn a_flush_of_nothing_is_answered_at_once() {
    let mut b = Bench::attached(Dialect::Linux);
    assert_eq!(b.ask("Tflush tag 3 oldtag 77"), "Rflush tag 3");
    assert_eq!(b.ask("Tflush tag 3 oldtag 3"), "Rflush tag 3", "its own tag is not outstanding yet");
}

#[test]
fn a_flushed_request_that_was_cancelled_gets_no_reply_only_its_rflush() {
    let mut b = Bench::attached(Dialect::Linux);
    b.open(1);
    let id = b.begin("Tread tag 5 fid 1 offset 0 count 10");
    assert_eq!(b.send("Tflush tag 6 oldtag 5"), Did::Cancel([id].to_vec()));
    assert_eq!(b.replies(), [""; 0], "Rflush waits for the request");
    b.fail(id, Errno::EINTR);
    assert_eq!(b.replies(), ["Rflush tag 6"]);
}

#[test]
fn a_flushed_request_that_finished_is_answered_before_its_rflush() {
    let mut b = Bench::attached(Dialect::Linux);
    b.open(1);
    let id = b.begin("Twrite tag 5 fid 1 offset 0 count 2 'ab'");
    b.send("Tflush tag 6 oldtag 5");
    b.done(id, Done::Count(2));
    assert_eq!(b.replies(), ["Rwrite tag 5 count 2", "Rflush tag 6"]);
}

#[test]
fn an_eintr_without_a_flush_is_told() {
    let mut b = Bench::attached(Dialect::Linux);
    let id = b.begin("Tgetattr tag 4 fid 0 request_mask 0x7ff");
    b.fail(id, Errno::EINTR);
    assert_eq!(b.replies(), ["Rlerror tag 4 ecode 4"]);
}

#[test]
fn flushes_of_one_request_and_of_its_flushes_are_answered_in_the_order_they_came() {
    let mut b = Bench::attached(Dialect::Linux);
    let id = b.begin("Tgetattr tag 4 fid 0 request_mask 0x7ff");
    assert_eq!(b.send("Tflush tag 5 oldtag 4"), Did::Cancel([id].to_vec()));
    assert_eq!(b.send("Tflush tag 6 oldtag 4"), Did::Handled);
    assert_eq!(b.send("Tflush tag 7 oldtag 5"), Did::Handled);
    assert_eq!(b.ask("Tclunk tag 7 fid 50"), "Rlerror tag 7 ecode 16", "a waiting flush holds its tag");
    b.fail(id, Errno::EINTR);
    assert_eq!(b.replies(), ["Rflush tag 5", "Rflush tag 6", "Rflush tag 7"]);
    assert!(matches!(b.send("Tgetattr tag 4 fid 0 request_mask 0x7ff"), Did::Execute(_)));
}

#[test]
fn tclunk_forgets_the_fid_at_once_and_takes_leave_after_the_last_request() {
    let mut b = Bench::attached(Dialect::Linux);
    let file = b.open(1);
    let read = b.begin("Tread tag 5 fid 1 offset 0 count 10");
    assert_eq!(b.send("Tclunk tag 6 fid 1"), Did::Cancel([read].to_vec()), "a wait would put it off for ever");
    b.farewells();
    assert_eq!(b.replies(), [""; 0]);
    assert_eq!(b.ask("Tread tag 7 fid 1 offset 0 count 10"), "Rlerror tag 7 ecode 9");
    b.done(read, Done::Data(b"x".to_vec()));
    b.farewells();
    assert_eq!(b.replies(), ["Rread tag 5 count 1 'x'", "Rclunk tag 6"]);
    assert_eq!(b.farewells, [(file, false)]);
}

#[test]
fn a_fid_that_is_being_opened_makes_others_wait_or_fail_where_waiting_is_no_use() {
    let mut b = Bench::attached(Dialect::Linux);
    b.walk(1, PLAIN);
    let open = b.begin("Tlopen tag 5 fid 1 flags 0");
    assert_eq!(b.send("Tgetattr tag 6 fid 1 request_mask 0x1"), Did::Wait);
    let frame = parse("Tgetattr tag 6 fid 1 request_mask 0x1", Dialect::Linux).unwrap();
    assert_eq!(b.frame(&frame, &|_| true), Did::Handled);
    assert_eq!(b.replies(), ["Rlerror tag 6 ecode 16"]);
    b.done(open, Done::Opened { qid: PLAIN });
    assert!(matches!(b.frame(&frame, &|_| false), Did::Execute(_)));
}

#[test]
fn a_request_on_a_fid_that_a_walk_is_about_to_make_waits_for_the_walk() {
    let mut b = Bench::attached(Dialect::Linux);
    let walk = b.begin("Twalk tag 1 fid 0 newfid 1 nwname 1 0:a");
    assert_eq!(b.send("Tlopen tag 2 fid 1 flags 0"), Did::Wait);
    assert_eq!(b.send("Twalk tag 3 fid 0 newfid 1 nwname 0"), Did::Wait);
    b.fail(walk, Errno::ENOENT);
    b.replies();
    assert_eq!(b.ask("Tlopen tag 2 fid 1 flags 0"), "Rlerror tag 2 ecode 9");
}

#[test]
fn a_fid_that_is_clunked_before_its_walk_is_done_is_gone_after_it() {
    let clunk = parse("Tclunk tag 2 fid 5", Dialect::Linux).unwrap();
    let walk = "Twalk tag 1 fid 0 newfid 5 nwname 1 0:x";
    let mut b = Bench::attached(Dialect::Linux);
    let id = b.begin(walk);
    assert_eq!(b.frame(&clunk, &|_| true), Did::Cancel([id].to_vec()), "also where waiting is no use");
    assert_eq!(b.ask("Tclunk tag 3 fid 5"), "Rlerror tag 3 ecode 9");
    b.done(id, Done::Walked { qids: [PLAIN].to_vec(), file: Some(50) });
    b.farewells();
    assert_eq!(b.replies().last().unwrap(), "Rclunk tag 2");
    assert_eq!(b.farewells, [(50, false)]);
    assert_eq!(b.ask("Tgetattr tag 1 fid 5 request_mask 0x1"), "Rlerror tag 1 ecode 9");

    let id = b.begin(walk);
    b.frame(&clunk, &|_| false);
    b.fail(id, Errno::ENOENT);
    assert_eq!(b.replies(), ["Rlerror tag 1 ecode 2", "Rlerror tag 2 ecode 9"]);

    let id = b.begin(walk);
    b.frame(&clunk, &|_| false);
    assert_eq!(b.send("Tversion tag -1 msize 8192 version '9P2000.L'"), Did::CancelAll);
    b.done(id, Done::Walked { qids: [PLAIN].to_vec(), file: Some(51) });
    b.farewells();
    assert_eq!(b.replies(), ["Rversion tag -1 msize 8192 version '9P2000.L'"]);
    assert!(b.session.is_idle());
}

#[test]
fn a_fid_in_use_is_not_made_again() {
    let mut b = Bench::attached(Dialect::Plan9);
    b.walk(1, PLAIN);
    assert_eq!(b.ask("Twalk tag 1 fid 0 newfid 1 nwname 0"), "Rerror tag 1 ename 'fid in use'");
    assert_eq!(b.ask("Tattach tag 1 fid 1 afid -1 uname '' aname ''"), "Rerror tag 1 ename 'fid in use'");
    assert_eq!(b.ask("Twalk tag 1 fid 0 newfid -1 nwname 0"), "Rerror tag 1 ename 'fid -1 is no fid'");
}

#[test]
fn reads_and_writes_need_a_fid_that_is_open_for_them() {
    let mut b = Bench::attached(Dialect::Plan9);
    b.walk(1, PLAIN);
    assert_eq!(b.ask("Tread tag 1 fid 1 offset 0 count 1"), "Rerror tag 1 ename 'fid is not open'");
    let id = b.begin("Topen tag 1 fid 1 mode 1");
    b.done(id, Done::Opened { qid: PLAIN });
    b.replies();
    assert_eq!(b.ask("Tread tag 1 fid 1 offset 0 count 1"), "Rerror tag 1 ename 'fid is not open for reading'");
    assert_eq!(b.ask("Topen tag 1 fid 1 mode 0"), "Rerror tag 1 ename 'fid is open'");
    b.walk(2, PLAIN);
    let id = b.begin("Topen tag 1 fid 2 mode 3");
    b.done(id, Done::Opened { qid: PLAIN });
    b.replies();
    let answer = b.ask("Twrite tag 1 fid 2 offset 0 count 1 'x'");
    assert_eq!(answer, "Rerror tag 1 ename 'fid is not open for writing'");
}

#[test]
fn offsets_that_overflow_are_refused_and_counts_cut_to_the_msize() {
    let mut b = Bench::attached(Dialect::Linux);
    b.open(1);
    for line in [
        "Tread tag 1 fid 1 offset 9223372036854775807 count 1",
        "Tread tag 1 fid 1 offset -1 count 4096",
        "Twrite tag 1 fid 1 offset 9223372036854775807 count 1 'x'",
    ] {
        assert_eq!(b.ask(line), "Rlerror tag 1 ecode 22", "{line}");
    }
    let frame = parse("Tread tag 1 fid 1 offset 0 count -1", Dialect::Linux).unwrap();
    match b.session.handle_frame(&frame, &|_| false, &mut b.out) {
        Ok(Event::Execute(Request { op: Op::Read { count, .. }, .. })) => assert_eq!(count, 8192 - 11),
        other => panic!("{other:?}"),
    }
}

#[test]
fn directories_are_neither_written_nor_read_out_of_order() {
    let mut b = Bench::attached(Dialect::Plan9);
    b.walk(1, DIR);
    for mode in [1, 2, 0x10, 0x40] {
        assert_eq!(b.ask(&format!("Topen tag 1 fid 1 mode {mode}")), "Rerror tag 1 ename 'file is a directory'");
    }
    let id = b.begin("Topen tag 1 fid 1 mode 0");
    b.done(id, Done::Opened { qid: DIR });
    b.replies();
    let id = b.begin("Tread tag 1 fid 1 offset 0 count 100");
    b.done(id, Done::Stats([0; 60].to_vec(), vec![RecordEnd { end: 60, cookie: 42 }]));
    b.replies();
    assert_eq!(b.ask("Tread tag 1 fid 1 offset 59 count 100"), "Rerror tag 1 ename 'bad offset in directory read'");
    let frame = parse("Tread tag 1 fid 1 offset 60 count 100", Dialect::Plan9).unwrap();
    match b.session.handle_frame(&frame, &|_| false, &mut b.out) {
        Ok(Event::Execute(Request { op: Op::ReadStats { at, .. }, .. })) => assert_eq!(at, 42),
        other => panic!("{other:?}"),
    }
}

/// Bench with fid 1 an open directory.
fn reading(dialect: Dialect) -> Bench {
    let mut b = Bench::attached(dialect);
    open_dir(&mut b, 1);
    b
}

fn open_dir(b: &mut Bench, fid: u32) {
    b.walk(fid, DIR);
    let id = b.begin(&format!("Topen tag 1 fid {fid} mode 0"));
    b.done(id, Done::Opened { qid: DIR });
    b.replies();
}

/// Has the directory read from `offset`, with `records` of 10 bytes, the first with cookie `first`.
fn told(b: &mut Bench, fid: u32, offset: u64, records: u64, first: u64) {
    for begun in (0..records).step_by(500) {
        let count = 500.min(records - begun);
        let id = b.begin(&format!("Tread tag 1 fid {fid} offset {} count 8000", offset + begun * 10));
        let end = |n: u64| RecordEnd { end: n as u32 * 10, cookie: first + begun + n - 1 };
        b.done(id, Done::Stats(vec![0; count as usize * 10], (1..=count).map(end).collect()));
        assert!(b.replies()[0].starts_with("Rread"));
    }
}

/// The cookie by which the directory is read from `offset`; `None` when it is refused.
fn cookie_at(b: &mut Bench, fid: u32, offset: u64) -> Option<u64> {
    let dialect = b.session.dialect();
    let frame = parse(&format!("Tread tag 1 fid {fid} offset {offset} count 100"), dialect).unwrap();
    match b.session.handle_frame(&frame, &|_| false, &mut b.out) {
        Ok(Event::Execute(Request { id, op: Op::ReadStats { at, .. }, .. })) => {
            b.fail(id, Errno::EIO);
            b.replies();
            Some(at)
        }
        Ok(_) => {
            assert!(b.replies()[0].contains("bad offset in directory read"));
            None
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_of_unix_is_read_again_from_any_record_until_it_begins_anew() {
    let mut b = reading(Dialect::Unix);
    told(&mut b, 1, 0, 3, 100);
    told(&mut b, 1, 30, 2, 103);
    let cookies = |b: &mut Bench, places: [u64; 7]| places.map(|offset| cookie_at(b, 1, offset));
    let places = [0, 10, 20, 30, 40, 50, 60];
    assert_eq!(cookies(&mut b, places), [Some(0), Some(100), Some(101), Some(102), Some(103), Some(104), None]);
    assert_eq!(cookie_at(&mut b, 1, 15), None);
    // What was told there last counts.
    told(&mut b, 1, 10, 1, 777);
    assert_eq!(cookies(&mut b, places), [Some(0), Some(100), Some(777), Some(102), Some(103), Some(104), None]);
    told(&mut b, 1, 0, 1, 500);
    assert_eq!(cookies(&mut b, places), [Some(0), Some(500), None, None, None, None, None]);
    let mut b = reading(Dialect::Plan9);
    told(&mut b, 1, 0, 3, 100);
    assert_eq!(cookies(&mut b, places), [Some(0), None, None, Some(102), None, None, None]);
}

#[test]
fn the_places_of_directories_that_are_kept_are_bounded() {
    let mut b = reading(Dialect::Unix);
    told(&mut b, 1, 0, 5000, 1);
    // The last 4,096.
    assert_eq!((cookie_at(&mut b, 1, 9040), cookie_at(&mut b, 1, 9050)), (None, Some(905)));
    assert_eq!(cookie_at(&mut b, 1, 50_000), Some(5000));
    // 16 directories of a connection fill the room; the next goes on, but not back.
    for fid in 2..=17 {
        open_dir(&mut b, fid);
        told(&mut b, fid, 0, 5000, 1);
    }
    assert_eq!((cookie_at(&mut b, 16, 49_990), cookie_at(&mut b, 17, 49_990)), (Some(4999), None));
    assert_eq!(cookie_at(&mut b, 17, 50_000), Some(5000));
    // What is clunked makes room.
    b.ask("Tclunk tag 1 fid 2");
    told(&mut b, 17, 0, 5000, 1);
    assert_eq!(cookie_at(&mut b, 17, 49_990), Some(4999));
}

#[test]
fn the_rest_of_a_buffer_in_which_no_record_fits_gives_none_and_a_whole_message_an_error() {
    let mut b = Bench::attached(Dialect::Unix);
    b.open(1);
    b.walk(2, DIR);
    let id = b.begin("Topen tag 1 fid 2 mode 0");
    b.done(id, Done::Opened { qid: DIR });
    let first = b.begin("Tread tag 1 fid 2 offset 0 count 30");
    b.fail(first, Errno::EINVAL);
    let id = b.begin("Tread tag 1 fid 2 offset 0 count 4096");
    b.done(id, Done::Stats([0; 60].to_vec(), vec![RecordEnd { end: 60, cookie: 42 }]));
    b.replies();
    for (count, answer) in [(30, "Rread tag 1 count 0 ''"), (8167, "Rread tag 1 count 0 ''"), (8168, "Rerror")] {
        let id = b.begin(&format!("Tread tag 1 fid 2 offset 60 count {count}"));
        b.fail(id, Errno::EINVAL);
        assert!(b.replies()[0].starts_with(answer), "{count}");
    }
    // It goes on from where it was.
    b.begin("Tread tag 1 fid 2 offset 60 count 8168");
}

#[test]
fn remove_forgets_the_fid_even_when_it_fails() {
    let mut b = Bench::attached(Dialect::Plan9);
    let file = b.walk(1, PLAIN);
    b.send("Tremove tag 1 fid 1");
    let farewell = b.session.poll_farewell().unwrap();
    assert_eq!((farewell.file, farewell.remove), (file, true));
    b.session.farewell_done(farewell.id, Err(Error::new(Errno::EACCES)), &mut b.out);
    assert_eq!(b.replies(), ["Rerror tag 1 ename 'permission denied'"]);
    assert_eq!(b.ask("Tclunk tag 1 fid 1"), "Rerror tag 1 ename 'unknown fid'");
}

#[test]
fn a_file_opened_to_be_removed_is_removed_when_clunked_and_when_the_connection_is_lost() {
    for lost in [false, true] {
        let mut b = Bench::attached(Dialect::Plan9);
        let id = b.begin("Tcreate tag 1 fid 0 name 'f' perm 0644 mode 0x41");
        b.done(id, Done::Created { qid: PLAIN, file: 50, opened: true });
        b.farewells();
        assert_eq!(b.farewells, [(1, false)], "the directory's file");
        if lost {
            b.session.hang_up();
        } else {
            b.send("Tclunk tag 1 fid 0");
        }
        b.farewells();
        assert_eq!(b.farewells, [(1, false), (50, true)]);
    }
}

#[test]
fn nothing_is_changed_on_a_read_only_export() {
    let mut b = Bench::new();
    b.send("Tversion tag -1 msize 8192 version '9P2000.L'");
    let id = b.begin("Tattach tag 1 fid 0 afid -1 uname 'u' aname '' n_uname 0");
    b.done(id, Done::Attached { qid: DIR, file: 1, read_only: true });
    b.walk(1, PLAIN);
    for line in [
        "Tlopen tag 1 fid 1 flags 01",
        "Tlopen tag 1 fid 1 flags 01000",
        "Tlcreate tag 1 fid 0 name 'f' flags 02 mode 0644 gid 0",
        "Tmkdir tag 1 dfid 0 name 'd' mode 0755 gid 0",
        "Tsymlink tag 1 dfid 0 name 's' symtgt 't' gid 0",
        "Tmknod tag 1 dfid 0 name 'n' mode 010644 major 0 minor 0 gid 0",
        "Tlink tag 1 dfid 0 fid 1 name 'l'",
        "Trename tag 1 fid 1 dfid 0 name 'r'",
        "Trenameat tag 1 olddirfid 0 oldname 'a' newdirfid 0 newname 'b'",
        "Tunlinkat tag 1 dirfid 0 name 'a' flags 0",
        "Tsetattr tag 1 fid 1 valid 1 mode 0600 uid 0 gid 0 size 0 atime_sec 0 atime_nsec 0 mtime_sec 0 mtime_nsec 0",
        "Txattrcreate tag 1 fid 1 name 'user.x' attr_size 1 flags 0",
        "Tremove tag 1 fid 1",
    ] {
        assert_eq!(b.ask(line), "Rlerror tag 1 ecode 30", "{line}");
    }
    assert_eq!(b.ask("Tclunk tag 1 fid 1"), "Rlerror tag 1 ecode 9", "a refused Tremove clunks all the same");
    assert!(b.farewells.iter().all(|(_, removed)| !removed));
}

#[test]
fn an_attribute_is_set_at_the_clunk_when_its_whole_value_came() {
    let mut b = Bench::attached(Dialect::Linux);
    b.walk(1, PLAIN);
    assert_eq!(b.ask("Txattrcreate tag 1 fid 1 name 'user.x' attr_size 4 flags 1"), "Rxattrcreate tag 1");
    assert_eq!(b.ask("Twrite tag 1 fid 1 offset 0 count 2 'ab'"), "Rwrite tag 1 count 2");
    assert_eq!(b.ask("Twrite tag 1 fid 1 offset 3 count 1 'd'"), "Rlerror tag 1 ecode 22");
    assert_eq!(b.ask("Twrite tag 1 fid 1 offset 2 count 3 'cde'"), "Rlerror tag 1 ecode 22");
    assert_eq!(b.ask("Twrite tag 1 fid 1 offset 2 count 2 'cd'"), "Rwrite tag 1 count 2");
    b.send("Tclunk tag 1 fid 1");
    let farewell = b.session.poll_farewell().unwrap();
    let expected = XattrWrite { name: b"user.x".to_vec(), value: Some(b"abcd".to_vec()), flags: 1 };
    assert_eq!(farewell.xattr, Some(expected));

    let mut b = Bench::attached(Dialect::Linux);
    b.walk(1, PLAIN);
    b.ask("Txattrcreate tag 1 fid 1 name 'user.x' attr_size 4 flags 0");
    assert_eq!(b.ask("Tclunk tag 1 fid 1"), "Rlerror tag 1 ecode 22", "a value that was cut short is not set");
    b.walk(1, PLAIN);
    assert_eq!(b.ask("Txattrcreate tag 1 fid 1 name 'user.x' attr_size -1 flags 0"), "Rlerror tag 1 ecode 7");
    assert_eq!(b.ask("Txattrcreate tag 1 fid 1 name 'user.x' attr_size 0 flags 0"), "Rxattrcreate tag 1");
    b.session.hang_up();
    while let Some(farewell) = b.session.poll_farewell() {
        assert_eq!(farewell.xattr, None, "a lost connection removes nothing");
        b.session.farewell_done(farewell.id, Ok(()), &mut b.out);
    }
}

#[test]
fn an_attribute_is_read_through_the_new_fid_only() {
    let mut b = Bench::attached(Dialect::Linux);
    let id = b.begin("Txattrwalk tag 1 fid 0 newfid 5 name 'user.x'");
    b.done(id, Done::Xattr { value: b"value".to_vec(), file: 60 });
    assert_eq!(b.replies(), ["Rxattrwalk tag 1 size 5"]);
    assert_eq!(b.ask("Tread tag 1 fid 5 offset 1 count 100"), "Rread tag 1 count 4 'alue'");
    assert_eq!(b.ask("Tread tag 1 fid 5 offset 9 count 100"), "Rread tag 1 count 0 ''");
    assert_eq!(b.ask("Twrite tag 1 fid 5 offset 0 count 1 'x'"), "Rlerror tag 1 ecode 9");
    assert_eq!(b.ask("Tgetattr tag 1 fid 5 request_mask 0x1"), "Rlerror tag 1 ecode 9");
    assert_eq!(b.ask("Tclunk tag 1 fid 5"), "Rclunk tag 1");
    assert_eq!(b.farewells, [(60, false)]);
}

#[test]
fn attribute_values_that_fids_hold_are_bounded_and_the_room_comes_back() {
    let mut b = Bench::attached(Dialect::Linux);
    let mut read = |newfid: u32| {
        let id = b.begin(&format!("Txattrwalk tag 1 fid 0 newfid {newfid} name 'user.x'"));
        b.done(id, Done::Xattr { value: alloc::vec![0; 65536], file: newfid });
        b.farewells();
        b.replies()
    };
    for newfid in 1..=63 {
        assert_eq!(read(newfid), ["Rxattrwalk tag 1 size 65536"]);
    }
    b.walk(100, PLAIN);
    b.walk(101, PLAIN);
    let write = |fid: u32| format!("Txattrcreate tag 1 fid {fid} name 'user.x' attr_size 65536 flags 0");
    assert_eq!(b.ask(&write(100)), "Rxattrcreate tag 1");
    assert_eq!(b.ask(&write(101)), "Rlerror tag 1 ecode 105");
    let id = b.begin("Txattrwalk tag 1 fid 0 newfid 64 name 'user.x'");
    b.done(id, Done::Xattr { value: alloc::vec![0; 1], file: 64 });
    assert_eq!(b.replies(), ["Rlerror tag 1 ecode 105"]);
    b.farewells();
    assert_eq!(b.farewells, [(64, false)], "the file that came with the value is taken leave of");
    assert_eq!(b.ask("Tgetattr tag 1 fid 64 request_mask 0x1"), "Rlerror tag 1 ecode 9");
    b.ask("Tclunk tag 1 fid 1");
    assert_eq!(b.ask(&write(101)), "Rxattrcreate tag 1");
    b.ask("Tclunk tag 1 fid 100");
    b.ask("Tclunk tag 1 fid 101");
    b.walk(100, PLAIN);
    assert_eq!(b.ask(&write(100)), "Rxattrcreate tag 1");
}

#[test]
fn special_files_are_told_by_their_extension() {
    let mut b = Bench::attached(Dialect::Unix);
    b.walk(7, PLAIN);
    let special = |b: &mut Bench, perm: &str, extension: &str| {
        let line = format!("Tcreate tag 1 fid 0 name 'n' perm {perm} mode 0 extension '{extension}'");
        let frame = parse(&line, Dialect::Unix).unwrap();
        match b.session.handle_frame(&frame, &|_| false, &mut b.out) {
            Ok(Event::Execute(Request { id, op: Op::CreateSpecial { special, .. }, .. })) => {
                let text = format!("{special:?}");
                b.fail(id, Errno::EIO);
                b.replies();
                text
            }
            _ => b.replies().concat(),
        }
    };
    assert_eq!(special(&mut b, "0x02000000", ""), "Rerror tag 1 ename 'bad link target' errno 22");
    assert!(special(&mut b, "0x02000000", "to").starts_with("Symlink"));
    assert!(special(&mut b, "0x01000000", "7").starts_with("Link"));
    assert_eq!(special(&mut b, "0x01000000", "8"), "Rerror tag 1 ename 'unknown fid' errno 9");
    assert_eq!(special(&mut b, "0x00800000", "b 8 1"), "Node { mode: 24576, major: 8, minor: 1 }");
    assert!(special(&mut b, "0x00800000", "b 8").contains("extension is not"));
    assert_eq!(special(&mut b, "0x00200000", ""), "Node { mode: 4096, major: 0, minor: 0 }");
    assert_eq!(special(&mut b, "0x00100000", ""), "Node { mode: 49152, major: 0, minor: 0 }");
    assert!(special(&mut b, "0x02800000", "x").contains("two kinds"));
    let mut b = Bench::attached(Dialect::Plan9);
    assert_eq!(b.ask("Tcreate tag 1 fid 0 name 'n' perm 0x02000000 mode 0"), "Rerror tag 1 ename 'bad create mode'");
}

#[test]
fn frames_that_break_the_framing_end_the_connection() {
    let mut b = Bench::attached(Dialect::Linux);
    assert!(matches!(b.frame(b"\x06\0\0\0\x78\0", &|_| false), Did::Closed(Violation::Frame(_))));
    assert!(matches!(
        b.frame(b"\x0a\0\0\0\x78\x01\0\x01\0\0", &|_| false),
        Did::Closed(Violation::Body { kind: 120, .. })
    ));
    assert!(matches!(b.frame(b"\x0c\0\0\0\x78\x01\0\0\0\0\0\0", &|_| false), Did::Closed(Violation::Body { .. })));
    assert_eq!(b.frame(b"\x07\0\0\0\x79\x01\0", &|_| false), Did::Closed(Violation::ReplyFromClient(121)));
    let mut big = parse("Twrite tag 1 fid 0 offset 0 count 1 'x'", Dialect::Linux).unwrap();
    big.resize(9000, 0);
    big[..4].copy_from_slice(&9000u32.to_le_bytes());
    assert!(matches!(b.frame(&big, &|_| false), Did::Closed(Violation::Frame(_))));
}

#[test]
fn messages_of_another_dialect_and_unknown_ones_are_refused_by_name() {
    let mut b = Bench::attached(Dialect::Plan9);
    let frame = parse("Tgetattr tag 3 fid 0 request_mask 0x1", Dialect::Linux).unwrap();
    assert_eq!(b.frame(&frame, &|_| false), Did::Handled);
    assert_eq!(b.replies(), ["Rerror tag 3 ename 'unknown message type'"]);
    let mut b = Bench::attached(Dialect::Linux);
    assert_eq!(b.frame(b"\x07\0\0\0\xc8\x01\0", &|_| false), Did::Handled);
    assert_eq!(b.replies(), ["Rlerror tag 1 ecode 95"]);
    assert_eq!(b.ask("Tauth tag 1 afid 9 uname '' aname '' n_uname -1"), "Rlerror tag 1 ecode 2");
}

#[test]
fn a_reply_that_does_not_fit_the_msize_becomes_an_error() {
    let mut b = Bench::new();
    b.send("Tversion tag -1 msize 4096 version '9P2000.L'");
    let id = b.begin("Tattach tag 1 fid 0 afid -1 uname 'u' aname '' n_uname 0");
    b.done(id, Done::Attached { qid: DIR, file: 1, read_only: false });
    b.replies();
    let id = b.begin("Treadlink tag 1 fid 0");
    b.done(id, Done::Target([b'x'; 4096].to_vec()));
    assert_eq!(b.replies(), ["Rlerror tag 1 ecode 90"]);
}

#[test]
fn a_file_server_that_answers_out_of_contract_is_told_as_an_i_o_error() {
    let mut b = Bench::attached(Dialect::Linux);
    b.open(1);
    for done in [Done::Data([0; 11].to_vec()), Done::Count(1), Done::Unit] {
        let id = b.begin("Tread tag 1 fid 1 offset 0 count 10");
        b.done(id, done);
        assert_eq!(b.replies(), ["Rlerror tag 1 ecode 5"]);
    }
    let id = b.begin("Twalk tag 1 fid 0 newfid 9 nwname 1 0:a");
    b.done(id, Done::Walked { qids: [PLAIN, PLAIN].to_vec(), file: Some(70) });
    b.farewells();
    assert_eq!(b.replies(), ["Rlerror tag 1 ecode 5"]);
    assert_eq!(b.farewells, [(70, false)]);
}

#[test]
fn more_fids_than_the_limit_are_refused() {
    let mut b = Bench::attached(Dialect::Linux);
    b.session.limits.fids = 3;
    b.walk(1, PLAIN);
    b.walk(2, PLAIN);
    assert_eq!(b.ask("Twalk tag 1 fid 0 newfid 3 nwname 0"), "Rlerror tag 1 ecode 24");
}

#[test]
fn after_a_hang_up_everything_is_taken_leave_of_once() {
    let mut b = Bench::attached(Dialect::Linux);
    let a = b.open(1);
    let c = b.walk(2, DIR);
    let read = b.begin("Tread tag 5 fid 1 offset 0 count 10");
    let create = b.begin("Tlcreate tag 6 fid 2 name 'f' flags 02 mode 0644 gid 0");
    b.send("Tclunk tag 7 fid 1");
    b.session.hang_up();
    assert_eq!(b.send("Tclunk tag 8 fid 2"), Did::Handled);
    b.farewells();
    assert!(!b.session.is_idle());
    b.fail(read, Errno::EINTR);
    b.done(create, Done::Created { qid: PLAIN, file: 80, opened: true });
    b.farewells();
    assert!(b.session.is_idle());
    assert_eq!(b.replies(), [""; 0]);
    let mut files: Vec<File> = b.farewells.iter().map(|(file, _)| *file).collect();
    files.sort_unstable();
    assert_eq!(files, [1, a, c, 80]);
}

#[test]
fn a_client_whose_version_is_unknown_may_offer_another_at_any_time() {
    let mut b = Bench::attached(Dialect::Linux);
    let forget = b.send("Tversion tag -1 msize 8192 version 'x'");
    assert_eq!(forget, Did::CancelAll);
    b.farewells();
    assert_eq!(b.replies(), ["Rversion tag -1 msize 8192 version 'unknown'"]);
    assert_eq!(b.session.deadline(), None, "the time for the handshake is that of the first Tversion");
    assert_eq!(b.session.handle_timeout(Duration::from_secs(3600)), Ok(()));
    b.session.note_partial_frame(true, Duration::from_secs(3600));
    assert_eq!(b.session.deadline(), Some(Duration::from_secs(3600) + Limits::default().frame));
    assert_eq!(b.ask("Tversion tag -1 msize 8192 version '9P2000'"), "Rversion tag -1 msize 8192 version '9P2000'");
}

#[test]
fn the_handshake_and_each_frame_have_a_deadline() {
    let limits = Limits::default();
    let mut b = Bench::new();
    assert_eq!(b.session.deadline(), Some(limits.handshake));
    assert_eq!(b.session.handle_timeout(limits.handshake - Duration::from_nanos(1)), Ok(()));
    assert_eq!(b.session.handle_timeout(limits.handshake), Err(Violation::HandshakeTimeout));
    let mut b = Bench::attached(Dialect::Linux);
    assert_eq!(b.session.deadline(), None, "an idle client may stay");
    let began = Duration::from_secs(100);
    b.session.note_partial_frame(true, began);
    b.session.note_partial_frame(true, began + Duration::from_secs(5));
    assert_eq!(b.session.deadline(), Some(began + limits.frame), "counted from the frame's first byte");
    assert_eq!(b.session.handle_timeout(began + limits.frame), Err(Violation::FrameTimeout));
    b.session.note_partial_frame(false, began);
    assert_eq!(b.session.deadline(), None);
}
