//! Tstream and Tstreamend in both layouts: every check, what of it is carried out, and the replies.

use super::super::op::Streaming;
use super::*;
use crate::dialect::Version;
use crate::n1::stream;
use crate::types::StreamToken;

const TOKEN: StreamToken = StreamToken([0xab; 16]);

/// A connection of `version` whose fid 0 is a directory, 1 a plain file open for reading and writing, 2 one that is not open, 3 one
/// open for reading and 4 one open for writing.
fn bench(version: &str) -> Bench {
    let mut b = Bench::new();
    b.send(&format!("Tversion tag -1 msize 8192 version '{version}'"));
    let uid = if version.starts_with("9P2000.u") || version.starts_with("9P2000.L") { " n_uname 0" } else { "" };
    let id = b.begin(&format!("Tattach tag 1 fid 0 afid -1 uname 'u' aname ''{uid}"));
    b.done(id, Done::Attached { qid: DIR, file: 1, read_only: false });
    b.walk(2, PLAIN);
    let open = if version == "9P2000.L.n1" { ("Tlopen", "flags") } else { ("Topen", "mode") };
    for (fid, mode) in [(1, 2), (3, 0), (4, 1)] {
        b.walk(fid, PLAIN);
        let id = b.begin(&format!("{} tag 900 fid {fid} {} {mode}", open.0, open.1));
        b.done(id, Done::Opened { qid: PLAIN });
    }
    b.replies();
    b
}

fn n1_line(fid: u32, flags: u32, isread: u8, offset: u64, length: u64) -> String {
    let token = "00".repeat(16);
    format!("Tstream tag 1 fid {fid} flags {flags} isread {isread} offset {offset} length {length} token 0x{token}")
}

/// What a line asks the driver for, as text; or the refusal.
fn op(b: &mut Bench, line: &str) -> String {
    let frame = parse(line, b.session.version).unwrap_or_else(|e| panic!("{line}: {e}"));
    match b.session.handle_frame(&frame, &|_| false, &mut b.out) {
        Ok(Event::Execute(request)) => {
            let (id, text) = (request.id, format!("{:?}", request.op));
            b.fail(id, Errno::EIO);
            b.replies();
            text
        }
        other => {
            let other = Did::of(other);
            b.replies().pop().unwrap_or_else(|| panic!("{line}: {other:?}"))
        }
    }
}

#[test]
fn a_stream_needs_a_plain_file_that_is_open_for_it() {
    let mut b = bench("9P2000.L.n1");
    let asked = op(&mut b, &n1_line(1, 0, 1, 7, 0));
    assert!(
        asked.starts_with("Stream {")
            && asked.ends_with(
                "read: true, offset: 7, length: None, appends: false, more: false, told: false, copied: No, share: None, token: None }"
            )
    );
    let asked = op(&mut b, &n1_line(4, 0, 0, 0, 5));
    assert!(
        asked.ends_with(
            "read: false, offset: 0, length: Some(5), appends: false, more: false, told: false, copied: No, share: None, token: None }"
        ),
        "{asked}"
    );
    let asked = op(&mut b, &n1_line(1, stream::MORE | stream::COPIED, 1, 0, 9));
    assert!(asked.ends_with("more: true, told: false, copied: Yes, share: None, token: None }"), "{asked}");
    let asked = op(&mut b, &n1_line(1, stream::MORE | stream::TOLD, 1, 0, 9));
    assert!(asked.ends_with("more: true, told: true, copied: No, share: None, token: None }"), "{asked}");
    let asked = op(&mut b, &n1_line(1, stream::COPIED, 1, 0, 0));
    assert!(asked.ends_with("more: false, told: false, copied: Yes, share: None, token: None }"), "{asked}");
    let asked = op(&mut b, &n1_line(1, stream::COPIED | stream::UNLESS_LONG, 1, 0, 0));
    assert!(asked.ends_with("more: false, told: false, copied: UnlessLong, share: None, token: None }"), "{asked}");
    let last = |units: u32| units << stream::LAST_BIT;
    let asked = op(&mut b, &n1_line(1, stream::MORE | stream::COPIED | last(3), 1, 0, 9));
    assert!(asked.ends_with("more: true, told: false, copied: Last(196608), share: None, token: None }"), "{asked}");
    let asked = op(&mut b, &n1_line(1, stream::COPIED | last(stream::LAST_MOST), 1, 0, 1 << 50));
    assert!(
        asked.ends_with("more: false, told: false, copied: Last(1099511562240), share: None, token: None }"),
        "{asked}"
    );
    let shared = |units: u32| stream::MORE | stream::COPIED | stream::UNLESS_LONG | stream::SHARED | last(units);
    for (number, of) in [(0u64, 1), (0, 2), (1, 2), (63, 64)] {
        let asked = op(&mut b, &n1_line(1, shared(of), 1, number * 10, 10));
        let share = format!("copied: UnlessLong, share: Some(Share {{ number: {number}, of: {of} }}), token: None }}");
        assert!(asked.ends_with(&share), "{asked}");
    }
    let own = n1_line(1, 0, 1, 0, 0).replace("0x00", "0x01");
    let asked = op(&mut b, &own);
    assert!(asked.contains("token: Some(StreamToken([1, 0, "), "{asked}");
    for (line, errno) in [
        (n1_line(9, 0, 1, 0, 0), Errno::EBADF),
        (n1_line(2, 0, 1, 0, 0), Errno::EBADF),
        (n1_line(3, 0, 0, 0, 0), Errno::EBADF),
        (n1_line(4, 0, 1, 0, 0), Errno::EBADF),
        (n1_line(0, 0, 1, 0, 0), Errno::EBADF),
        (n1_line(1, 32, 1, 0, 9), Errno::EINVAL),
        (n1_line(1, stream::TOLD, 1, 0, 9), Errno::EINVAL),
        (n1_line(1, stream::TOLD | stream::COPIED, 1, 0, 9), Errno::EINVAL),
        (n1_line(1, stream::MORE | stream::UNLESS_LONG, 1, 0, 9), Errno::EINVAL),
        (n1_line(1, stream::COPIED | stream::UNLESS_LONG, 0, 0, 9), Errno::EINVAL),
        (n1_line(1, stream::MORE, 1, 0, 0), Errno::EINVAL),
        (n1_line(1, stream::MORE, 0, 0, 9), Errno::EINVAL),
        (n1_line(1, stream::COPIED, 0, 0, 9), Errno::EINVAL),
        (n1_line(1, 128, 1, 0, 9), Errno::EINVAL),
        (n1_line(1, last(1), 1, 0, 9), Errno::EINVAL),
        (n1_line(1, stream::MORE | last(1), 1, 0, 9), Errno::EINVAL),
        (n1_line(1, stream::COPIED | last(1), 1, 0, 0), Errno::EINVAL),
        (n1_line(1, stream::COPIED | stream::UNLESS_LONG | last(1), 1, 0, 9), Errno::EINVAL),
        (n1_line(1, stream::COPIED | last(1), 0, 0, 9), Errno::EINVAL),
        (n1_line(1, shared(2), 0, 0, 9), Errno::EINVAL),
        (n1_line(1, shared(2), 1, 0, 0), Errno::EINVAL),
        (n1_line(1, shared(0), 1, 0, 9), Errno::EINVAL),
        (n1_line(1, shared(1), 1, 9, 9), Errno::EINVAL),
        (n1_line(1, shared(65), 1, 0, 9), Errno::EINVAL),
        (n1_line(1, shared(2), 1, 18, 9), Errno::EINVAL),
        (n1_line(1, shared(2), 1, 8, 9), Errno::EINVAL),
        (n1_line(1, shared(2) & !stream::MORE, 1, 0, 9), Errno::EINVAL),
        (n1_line(1, shared(2) & !stream::UNLESS_LONG, 1, 0, 9), Errno::EINVAL),
        (n1_line(1, stream::MORE | stream::SHARED | last(2), 1, 0, 9), Errno::EINVAL),
        (n1_line(1, 0, 2, 0, 0), Errno::EINVAL),
        (n1_line(1, 0, 1, 1 << 63, 0), Errno::EINVAL),
        (n1_line(1, 0, 0, 1, i64::MAX as u64), Errno::EINVAL),
        (n1_line(1, 0, 1, u64::MAX, u64::MAX), Errno::EINVAL),
    ] {
        let told = op(&mut b, &line);
        assert!(told.starts_with(&format!("Rlerror tag 1 ecode {} ", errno.0)), "{line}: {told}");
    }
    let id = b.begin("Tlopen tag 900 fid 0 flags 0");
    b.done(id, Done::Opened { qid: DIR });
    b.replies();
    let told = op(&mut b, &n1_line(0, 0, 1, 0, 0));
    assert!(told.starts_with(&format!("Rlerror tag 1 ecode {} ", Errno::EISDIR.0)), "{told}");
}

#[test]
fn in_n1_the_reply_has_a_number_and_a_token_and_in_s_an_address() {
    let streaming = |address: &[u8]| {
        let (offset, length) = (5, Some(6));
        Done::Streaming(Streaming { id: 7, token: TOKEN, modrev: 9, offset, length, address: address.to_vec() })
    };
    let mut b = bench("9P2000.L.n1");
    let id = b.begin(&n1_line(1, 0, 1, 0, 0));
    b.done(id, streaming(b""));
    let token = "ab".repeat(16);
    assert_eq!(b.replies(), [format!("Rstream tag 1 id 7 token 0x{token} modrev 9 offset 5 length 6 addr ''")]);

    for version in ["9P2000.s", "9P2000.u.s", "9P2000.s.ix", "9P2000.u.ix.s"] {
        let mut b = bench(version);
        let id = b.begin("Tstream tag 1 fid 1 isread 0 offset 0");
        b.done(id, streaming(b"tcp!192.0.2.1!40000"));
        assert_eq!(b.replies(), ["Rstream tag 1 data 'tcp!192.0.2.1!40000'"], "{version}");
        let id = b.begin("Tstream tag 1 fid 1 isread 1 offset 0");
        b.done(id, streaming(b""));
        assert!(b.replies()[0].starts_with("Rerror "), "{version}: nobody reaches a stream without an address");
        let told = op(&mut b, "Tstream tag 1 fid 1 isread 2 offset 0");
        assert!(told.starts_with("Rerror tag 1 ename 'isread is neither 0 nor 1'"), "{told}");
    }
}

#[test]
fn without_s_there_are_no_streams_and_in_s_no_end_of_them_is_told() {
    for version in ["9P2000", "9P2000.u", "9P2000.ix"] {
        let mut b = bench(version);
        let mut frame = Vec::new();
        let streams = Version { streams: true, ..b.session.version };
        frame.extend(parse("Tstream tag 1 fid 1 isread 1 offset 0", streams).unwrap());
        assert!(matches!(b.session.handle_frame(&frame, &|_| false, &mut b.out), Ok(Event::Handled)));
        assert!(b.replies()[0].contains("unknown message type"), "{version}");
    }
    let mut b = bench("9P2000.s");
    let frame = parse("Tstreamend tag 1 id 7 flags 0", Version::N1).unwrap();
    assert!(matches!(b.session.handle_frame(&frame, &|_| false, &mut b.out), Ok(Event::Handled)));
    assert!(b.replies()[0].contains("unknown message type"));
}

#[test]
fn a_streamend_is_asked_of_the_driver_and_may_be_flushed() {
    let mut b = bench("9P2000.L.n1");
    assert_eq!(op(&mut b, "Tstreamend tag 1 id 7 flags 0"), "StreamEnd { id: 7, abort: false }");
    assert_eq!(op(&mut b, "Tstreamend tag 1 id 7 flags 01"), "StreamEnd { id: 7, abort: true }");
    assert!(op(&mut b, "Tstreamend tag 1 id 7 flags 02").starts_with("Rlerror tag 1 ecode 22 "));
    let id = b.begin("Tstreamend tag 1 id 7 flags 0");
    b.done(id, Done::StreamEnded { count: 100, modrev: 3 });
    assert_eq!(b.replies(), ["Rstreamend tag 1 count 100 modrev 3"]);
    let id = b.begin("Tstreamend tag 1 id 7 flags 0");
    b.done(id, Done::StreamEnded { count: 1 << 63, modrev: 3 });
    assert!(b.replies()[0].starts_with("Rlerror tag 1 ecode 5 "), "no file has so many bytes");

    let id = b.begin("Tstreamend tag 1 id 7 flags 0");
    let flush = parse("Tflush tag 2 oldtag 1", b.session.version).unwrap();
    let event = b.session.handle_frame(&flush, &|_| false, &mut b.out);
    assert!(matches!(&event, Ok(Event::Cancel(ids)) if *ids == [id]), "{event:?}");
    b.fail(id, Errno::EINTR);
    assert_eq!(b.replies(), ["Rflush tag 2"]);
}

#[test]
fn every_tversion_is_counted_as_a_reset() {
    let mut b = bench("9P2000.L.n1");
    assert_eq!(b.session.resets(), 1);
    b.send("Tversion tag -1 msize 8192 version '9P2000.L.n1'");
    assert_eq!(b.session.resets(), 2);
}
