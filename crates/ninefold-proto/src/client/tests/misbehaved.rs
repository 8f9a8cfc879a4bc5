//! Every rule that a server can break, and the exact variant that says so.

use super::*;
use crate::stat::{DirEntry, Stat};
use crate::types::Qid;

/// What comes of `reply` to the request `call`.
fn broken(dialect: Dialect, call: &str, reply: &str) -> ServerMisbehaved {
    let mut b = Bench::attached(dialect);
    let tag = b.call(call);
    let counts = *b.session.counts();
    let misbehaved = b.try_reply(tag, reply).expect_err(reply);
    assert_eq!(*b.session.counts(), counts, "what was not taken is not counted");
    misbehaved
}

fn allowed(dialect: Dialect, call: &str, reply: &str) {
    let mut b = Bench::attached(dialect);
    let tag = b.call(call);
    assert!(matches!(b.reply(tag, reply), Told::Reply(..)), "{reply}");
}

const READ: &str = "Tread fid 0 offset 0 count 9";

#[test]
fn a_frame_whose_size_is_not_its_own_is_told() {
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call(READ);
    let good = b.frame(tag, "Rread count 1 'x'");
    let mut big = good.clone();
    big.resize(MSIZE as usize + 1, b'x');
    for (at, n) in [(0, MSIZE + 1), (7, MSIZE + 1 - READ_OVERHEAD)] {
        big[at..at + 4].copy_from_slice(&n.to_le_bytes());
    }
    let mut tiny = good.clone();
    tiny[0] = 6;
    for (frame, error) in [
        (&b""[..], DecodeError::Short("size")),
        (&good[..6], DecodeError::Short("tag")),
        (&good[..11], DecodeError::Short("body")),
        (&[&good[..], b"x"].concat(), DecodeError::Trailing(1)),
        (&tiny, DecodeError::SizeTooSmall(6)),
        (&big, DecodeError::SizeTooLarge { size: MSIZE + 1, msize: MSIZE }),
    ] {
        assert_eq!(b.take(frame), Err(ServerMisbehaved::Frame(error)));
    }
    assert!(matches!(b.take(&good), Ok(Told::Reply(..))));
}

#[test]
fn a_body_that_does_not_decode_is_told_by_its_name() {
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call("Tlopen fid 0 flags 0");
    let good = b.frame(tag, "Rlopen qid (1 1 d) iounit 0");
    for (by, error) in [(-1, DecodeError::Short("iounit")), (1, DecodeError::Trailing(1))] {
        let mut frame = good.clone();
        frame.resize(good.len().saturating_add_signed(by), 0);
        frame[0] = frame.len() as u8;
        assert_eq!(b.take(&frame), Err(ServerMisbehaved::Body { name: "Rlopen", error }));
    }
}

#[test]
fn a_count_beyond_the_frame_is_told_before_anything_follows_it() {
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call(READ);
    let mut frame = b.frame(tag, "Rread count 9 'xxxxxxxxx'");
    frame[7..11].fill(0xff);
    let error = DecodeError::Short("data");
    assert_eq!(b.take(&frame), Err(ServerMisbehaved::Body { name: "Rread", error }));
}

#[test]
fn a_type_that_the_dialect_lacks_is_told() {
    // Rstat in .L, Rgetattr in .u; Rlerror outside of .L, Rerror within; numbers of nobody.
    for (dialect, kind) in [
        (Dialect::Linux, 125),
        (Dialect::Unix, 25),
        (Dialect::Plan9, 7),
        (Dialect::Unix, 7),
        (Dialect::Linux, 107),
        (Dialect::Linux, 0),
        (Dialect::Linux, 6),
        (Dialect::Linux, 106),
        (Dialect::Linux, 255),
    ] {
        let mut b = Bench::attached(dialect);
        let tag = b.call(READ);
        let mut frame = b.frame(tag, "Rread count 0 ''");
        frame[4] = kind;
        assert_eq!(b.take(&frame), Err(ServerMisbehaved::UnknownType(kind)), "{dialect}");
    }
}

#[test]
fn a_request_from_a_server_is_told() {
    let misbehaved = broken(Dialect::Linux, READ, "Tclunk fid 0");
    assert_eq!(misbehaved, ServerMisbehaved::RequestFromServer("Tclunk"));
}

#[test]
fn a_reply_of_another_type_is_told_with_both() {
    let wrong = |request, reply| ServerMisbehaved::WrongType { request, reply };
    assert_eq!(broken(Dialect::Linux, READ, "Rclunk"), wrong("Tread", "Rclunk"));
    let reply = "Rreaddir count 0 ''";
    assert_eq!(broken(Dialect::Linux, READ, reply), wrong("Tread", "Rreaddir"));
    assert_eq!(broken(Dialect::Plan9, "Tremove fid 0", "Rclunk"), wrong("Tremove", "Rclunk"));
    assert_eq!(broken(Dialect::Plan9, READ, "Rversion msize 8192 version '9P2000'"), wrong("Tread", "Rversion"));
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call(READ);
    b.session.cancel(tag);
    let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
    assert_eq!(b.try_reply(flush, "Rread count 0 ''"), Err(wrong("Tflush", "Rread")));
    assert_eq!(b.try_reply(tag, "Rflush"), Err(wrong("Tread", "Rflush")));
}

#[test]
fn a_reply_to_a_tag_on_which_nothing_is_outstanding_is_told() {
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call(READ);
    let good = "Rread count 0 ''";
    for other in [Tag(tag.0 + 1), Tag(0), Tag::NONE] {
        assert_eq!(b.try_reply(other, good), Err(ServerMisbehaved::UnknownTag(other)));
    }
    b.reply(tag, good);
    for line in [good, "Rlerror ecode 5", "Rflush"] {
        assert_eq!(b.try_reply(tag, line), Err(ServerMisbehaved::UnknownTag(tag)), "a second reply");
    }
}

#[test]
fn an_error_that_is_none_is_told() {
    assert_eq!(broken(Dialect::Linux, READ, "Rlerror ecode 0"), ServerMisbehaved::ErrorZero);
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call(READ);
    b.session.cancel(tag);
    let flush = b.sent_one(&format!("Tflush oldtag {tag}"));
    assert_eq!(b.try_reply(flush, "Rlerror ecode 0"), Err(ServerMisbehaved::ErrorZero));
}

#[test]
fn more_data_than_was_asked_for_is_told() {
    let too_much = ServerMisbehaved::TooMuchData { asked: 9, got: 10 };
    allowed(Dialect::Plan9, READ, "Rread count 9 'xxxxxxxxx'");
    assert_eq!(broken(Dialect::Plan9, READ, "Rread count 10 'xxxxxxxxxx'"), too_much);
    assert_eq!(
        broken(Dialect::Linux, "Tread fid 0 offset 0 count 0", "Rread count 1 'x'"),
        ServerMisbehaved::TooMuchData { asked: 0, got: 1 }
    );
    // One entry of 25 bytes.
    let entry = "Rreaddir count 25 [((1 1 ) 1 4 'x')]";
    allowed(Dialect::Linux, "Treaddir fid 0 offset 0 count 25", entry);
    assert_eq!(
        broken(Dialect::Linux, "Treaddir fid 0 offset 0 count 24", entry),
        ServerMisbehaved::TooMuchData { asked: 24, got: 25 }
    );
}

#[test]
fn more_data_taken_than_was_sent_is_told() {
    let write = "Twrite fid 0 offset 0 count 2 'hi'";
    for count in 0..=2 {
        allowed(Dialect::Linux, write, &format!("Rwrite count {count}"));
    }
    for got in [3, u32::MAX] {
        let reply = format!("Rwrite count {got}");
        assert_eq!(broken(Dialect::Linux, write, &reply), ServerMisbehaved::TookTooMuch { sent: 2, got });
    }
}

/// A session in which fid 1 is to be made by a walk of `names`.
fn walking(names: &str) -> (Bench, Tag) {
    let mut b = Bench::attached(Dialect::Linux);
    assert_eq!(b.session.new_fid(), Some(Fid(1)));
    let tag = b.call(&format!("Twalk fid 0 newfid 1 {names}"));
    (b, tag)
}

#[test]
fn more_qids_than_names_are_told() {
    let (mut b, tag) = walking("nwname 1 0:x");
    let misbehaved = b.try_reply(tag, "Rwalk nwqid 2 0:(1 1 d) 1:(2 1 )");
    assert_eq!(misbehaved, Err(ServerMisbehaved::TooManyQids { names: 1, got: 2 }));
    let (mut b, tag) = walking("nwname 0");
    let misbehaved = b.try_reply(tag, "Rwalk nwqid 1 0:(1 1 d)");
    assert_eq!(misbehaved, Err(ServerMisbehaved::TooManyQids { names: 0, got: 1 }));
}

#[test]
fn a_walk_that_ends_at_its_first_name_without_an_error_is_told() {
    let (mut b, tag) = walking("nwname 2 0:x 1:y");
    assert_eq!(b.try_reply(tag, "Rwalk nwqid 0"), Err(ServerMisbehaved::EmptyWalk(2)));
    let (mut b, tag) = walking("nwname 0");
    assert!(matches!(b.reply(tag, "Rwalk nwqid 0"), Told::Reply(_, _, Some(Fid(1)))));
}

#[test]
fn directory_entries_that_do_not_decode_are_told() {
    let mut entries = Vec::new();
    for name in [&b"x"[..], b"longer"] {
        DirEntry { qid: Qid::default(), offset: 1, kind: 4, name }.encode(&mut entries);
    }
    let mut last_is_short = entries.clone();
    last_is_short.pop();
    let mut beyond = entries.clone();
    beyond[22..24].fill(0xff);
    for (data, error) in [
        (&entries[..], None),
        (&[], None),
        (&last_is_short, Some(DecodeError::Short("name"))),
        (&beyond, Some(DecodeError::Short("name"))),
        (&entries[..10], Some(DecodeError::Short("qid"))),
    ] {
        let mut b = Bench::attached(Dialect::Linux);
        let tag = b.call("Treaddir fid 0 offset 0 count 999");
        let mut frame = Vec::new();
        R::Readdir { data: crate::message::Entries(data) }.encode(tag, Dialect::Linux, &mut frame);
        match error {
            Some(error) => assert_eq!(b.take(&frame), Err(ServerMisbehaved::Entries(error))),
            None => assert!(matches!(b.take(&frame), Ok(Told::Reply(..)))),
        }
    }
}

#[test]
fn a_stat_record_that_does_not_decode_in_this_dialect_is_told() {
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        let record = |dialect| {
            let mut record = Vec::new();
            Stat { name: b"x", ..Stat::UNTOUCHED }.encode(dialect, &mut record);
            record
        };
        let (good, other) = match dialect {
            Dialect::Plan9 => (record(Dialect::Plan9), record(Dialect::Unix)),
            _ => (record(Dialect::Unix), record(Dialect::Plan9)),
        };
        let other_error = match dialect {
            Dialect::Plan9 => DecodeError::StatLength(other.len() - 2),
            _ => DecodeError::Short("extension"),
        };
        for (bytes, error) in [
            (&good[..], None),
            (&other, Some(other_error)),
            (&good[..good.len() - 1], Some(DecodeError::Short("stat"))),
            (&[&good[..], &good].concat(), Some(DecodeError::Trailing(good.len()))),
            (&[], Some(DecodeError::Short("stat"))),
        ] {
            let mut b = Bench::attached(dialect);
            let tag = b.call("Tstat fid 0");
            let mut frame = Vec::new();
            R::Stat { stat: crate::message::StatBytes(bytes) }.encode(tag, dialect, &mut frame);
            match error {
                Some(error) => assert_eq!(b.take(&frame), Err(ServerMisbehaved::Stat(error)), "{dialect}"),
                None => assert!(matches!(b.take(&frame), Ok(Told::Reply(..)))),
            }
        }
    }
}

#[test]
fn what_nobody_waits_for_is_suspected_no_less() {
    let mut b = Bench::attached(Dialect::Linux);
    let tag = b.call(READ);
    b.session.cancel(tag);
    b.sent();
    let too_much = ServerMisbehaved::TooMuchData { asked: 9, got: 10 };
    assert_eq!(b.try_reply(tag, "Rread count 10 'xxxxxxxxxx'"), Err(too_much));
    let fid = b.walked();
    b.session.abandon(fid, Parting::Clunk);
    let clunk = b.sent_one(&format!("Tclunk fid {fid}"));
    let wrong = ServerMisbehaved::WrongType { request: "Tclunk", reply: "Rremove" };
    assert_eq!(b.try_reply(clunk, "Rremove"), Err(wrong));
}

#[test]
fn a_listing_with_flags_that_nobody_knows_is_told() {
    let listing = |flags: u32, misbehaved: bool| {
        let mut b = Bench::attached(crate::dialect::Version::N1);
        let tag = b.call("Treaddirplus fid 0 offset 0 count 100 request_mask 0x7ff flags 0");
        let told = b.try_reply(tag, &format!("Rreaddirplus flags {flags} count 0 []"));
        assert_eq!(told.err(), misbehaved.then_some(ServerMisbehaved::ListingFlags(flags)));
    };
    listing(0, false);
    listing(1, false);
    listing(2, true);
    listing(3, true);
}
