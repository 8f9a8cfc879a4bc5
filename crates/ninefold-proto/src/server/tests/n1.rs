//! What `.n1` adds to files: every check of a request, what of it is carried out, and the replies.

use super::super::op::Rename;
use super::*;

/// A connection whose fid 0 is a directory, 1 a plain file open for reading and writing, 2 one that is not open, 3 the directory
/// open, 4 a plain file open for reading and 5 one open for writing.
fn n1(read_only: bool) -> Bench {
    let mut b = Bench::new();
    b.send("Tversion tag -1 msize 8192 version '9P2000.L.n1'");
    let id = b.begin("Tattach tag 1 fid 0 afid -1 uname 'u' aname '' n_uname 0");
    b.done(id, Done::Attached { qid: DIR, file: 1, read_only });
    if !read_only {
        b.open(1);
        for (fid, flags) in [(4, 0), (5, 1)] {
            b.walk(fid, PLAIN);
            let id = b.begin(&format!("Tlopen tag 900 fid {fid} flags {flags}"));
            b.done(id, Done::Opened { qid: PLAIN });
        }
    }
    b.walk(2, PLAIN);
    b.walk(3, DIR);
    let id = b.begin("Tlopen tag 900 fid 3 flags 0");
    b.done(id, Done::Opened { qid: DIR });
    b.replies();
    b
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

#[track_caller]
fn refused(b: &mut Bench, line: &str, errno: Errno) {
    let told = op(b, line);
    assert!(told.starts_with(&format!("Rlerror tag 1 ecode {} ", errno.0)), "{line}: {told}");
}

const PAST: u64 = 1 << 63;

#[test]
fn a_listing_with_attributes_needs_an_open_directory_and_no_flags() {
    let mut b = n1(false);
    let line = |fid: u32, count: u32, flags: u32| {
        format!("Treaddirplus tag 1 fid {fid} offset 7 count {count} request_mask 0x3fff flags {flags}")
    };
    // 8192 bytes of msize without a header, flags and a count.
    let asked = op(&mut b, &line(3, 1 << 20, 0));
    assert!(asked.starts_with("Readdirplus {") && asked.ends_with("offset: 7, max: 8177, mask: 16383 }"), "{asked}");
    refused(&mut b, &line(0, 100, 0), Errno::EBADF);
    refused(&mut b, &line(9, 100, 0), Errno::EBADF);
    refused(&mut b, &line(1, 100, 0), Errno::ENOTDIR);
    refused(&mut b, &line(3, 100, 1), Errno::EINVAL);
    let id = b.begin(&line(3, 10, 0));
    b.done(id, Done::Listed { entries: b"0123456789".to_vec(), end: true });
    assert_eq!(b.out.len(), 7 + 4 + 4 + 10);
    assert_eq!(b.out.chunks().next().and_then(|chunk| chunk.in_memory()).map(|head| head[7]), Some(1), "the end");
    b.replies();
    let id = b.begin(&line(3, 10, 0));
    b.done(id, Done::Listed { entries: b"0123456789x".to_vec(), end: false });
    assert!(b.replies()[0].starts_with("Rlerror tag 1 ecode 5 "));
}

#[test]
fn access_is_asked_of_any_fid_and_answered_with_what_was_asked() {
    let mut b = n1(false);
    for fid in [0, 1, 2, 3] {
        assert!(op(&mut b, &format!("Taccess tag 1 fid {fid} mode 07")).ends_with("mode: 7 }"));
    }
    refused(&mut b, "Taccess tag 1 fid 0 mode 010", Errno::EINVAL);
    refused(&mut b, "Taccess tag 1 fid 9 mode 04", Errno::EBADF);
    let id = b.begin("Taccess tag 1 fid 2 mode 06");
    b.done(id, Done::Access(4));
    assert_eq!(b.replies(), ["Raccess tag 1 mode 04"]);
    let id = b.begin("Taccess tag 1 fid 2 mode 04");
    b.done(id, Done::Access(6));
    assert!(b.replies()[0].starts_with("Rlerror tag 1 ecode 5 "), "more than was asked for");
}

#[test]
fn on_a_read_only_export_nobody_may_write() {
    let mut b = n1(true);
    assert!(op(&mut b, "Taccess tag 1 fid 2 mode 07").ends_with("mode: 5 }"));
    assert!(op(&mut b, "Taccess tag 1 fid 2 mode 02").ends_with("mode: 0 }"));
    for flags in 0..3 {
        let line = format!("Trename2 tag 1 olddirfid 0 oldname 'a' newdirfid 0 newname 'b' flags {flags}");
        refused(&mut b, &line, Errno::EROFS);
    }
    for line in [
        "Twritex tag 1 fid 2 offset 0 flags 01 count 1 'x'",
        "Tallocate tag 1 fid 2 mode 0 offset 0 length 1",
        "Tcopyrange tag 1 srcfid 2 srcoffset 0 dstfid 2 dstoffset 0 length 1 flags 0",
    ] {
        refused(&mut b, line, Errno::EBADF);
    }
}

#[test]
fn a_write_with_flags_needs_a_fid_open_for_writing() {
    let mut b = n1(false);
    let line = |fid: u32, offset: u64, flags: u32| {
        format!("Twritex tag 1 fid {fid} offset {offset} flags {flags} count 3 'abc'")
    };
    let told = "data: [97, 98, 99], append: ";
    for (fid, offset, flags, how) in [
        (1, 5, 0, "false, stable: false"),
        (5, 0, 1, "true, stable: false"),
        (1, 5, 2, "false, stable: true"),
        (1, 0, 3, "true, stable: true"),
    ] {
        let asked = op(&mut b, &line(fid, offset, flags));
        assert!(asked.ends_with(&format!("offset: {offset}, {told}{how} }}")), "{asked}");
    }
    refused(&mut b, &line(1, 5, 1), Errno::EINVAL);
    refused(&mut b, &line(1, 0, 4), Errno::EINVAL);
    refused(&mut b, &line(1, PAST - 3, 0), Errno::EINVAL);
    assert!(op(&mut b, &line(1, PAST - 4, 0)).starts_with("Writex"));
    for fid in [0, 2, 3, 4, 9] {
        refused(&mut b, &line(fid, 0, 0), Errno::EBADF);
    }
    let id = b.begin(&line(1, 0, 1));
    b.done(id, Done::Written { offset: 77, count: 3 });
    assert_eq!(b.replies(), ["Rwritex tag 1 offset 77 count 3"]);
    for (offset, count) in [(0, 4), (PAST, 3)] {
        let id = b.begin(&line(1, 0, 0));
        b.done(id, Done::Written { offset, count });
        assert!(b.replies()[0].starts_with("Rlerror tag 1 ecode 5 "));
    }
}

#[test]
fn a_value_of_an_attribute_is_not_written_with_flags() {
    let mut b = n1(false);
    assert_eq!(b.ask("Txattrcreate tag 1 fid 2 name 'user.x' attr_size 3 flags 0"), "Rxattrcreate tag 1");
    refused(&mut b, "Twritex tag 1 fid 2 offset 0 flags 0 count 3 'abc'", Errno::EBADF);
}

#[test]
fn a_copy_needs_a_fid_to_read_and_one_to_write() {
    let mut b = n1(false);
    let line = |from: u32, at: u64, to: u32, to_at: u64, length: u64, flags: u32| {
        format!(
            "Tcopyrange tag 1 srcfid {from} srcoffset {at} dstfid {to} dstoffset {to_at} length {length} flags {flags}"
        )
    };
    let asked = op(&mut b, &line(4, 1, 5, 2, 3, 0));
    assert!(asked.starts_with("Copyrange {") && asked.contains("offset: 1,"), "{asked}");
    assert!(asked.ends_with("target_offset: 2, length: 3 }"), "{asked}");
    refused(&mut b, &line(4, 0, 5, 0, 1, 1), Errno::EINVAL);
    refused(&mut b, &line(5, 0, 1, 0, 1, 0), Errno::EBADF);
    refused(&mut b, &line(1, 0, 4, 0, 1, 0), Errno::EBADF);
    refused(&mut b, &line(2, 0, 1, 0, 1, 0), Errno::EBADF);
    refused(&mut b, &line(1, 0, 2, 0, 1, 0), Errno::EBADF);
    refused(&mut b, &line(9, 0, 1, 0, 1, 0), Errno::EBADF);
    refused(&mut b, &line(1, 0, 9, 0, 1, 0), Errno::EBADF);
    refused(&mut b, &line(3, 0, 1, 0, 1, 0), Errno::EISDIR);
    refused(&mut b, &line(4, PAST - 5, 5, 0, 6, 0), Errno::EINVAL);
    refused(&mut b, &line(4, 0, 5, PAST - 5, 6, 0), Errno::EINVAL);
    refused(&mut b, &line(4, 0, 5, 0, u64::MAX, 0), Errno::EINVAL);
    assert!(op(&mut b, &line(4, 5, 5, 5, PAST - 6, 0)).starts_with("Copyrange"), "to the end");
    let id = b.begin(&line(4, 0, 5, 0, 9, 0));
    b.done(id, Done::Copied(9));
    assert_eq!(b.replies(), ["Rcopyrange tag 1 count 9"]);
    let id = b.begin(&line(4, 0, 5, 0, 9, 0));
    b.done(id, Done::Copied(10));
    assert!(b.replies()[0].starts_with("Rlerror tag 1 ecode 5 "));
}

#[test]
fn ranges_of_one_fid_may_not_overlap() {
    let mut b = n1(false);
    for (at, to_at, length, good) in
        [(0, 10, 10, true), (0, 9, 10, false), (9, 0, 10, false), (10, 0, 10, true), (5, 5, 0, true)]
    {
        let told = op(
            &mut b,
            &format!("Tcopyrange tag 1 srcfid 1 srcoffset {at} dstfid 1 dstoffset {to_at} length {length} flags 0"),
        );
        assert_eq!(told.starts_with("Copyrange"), good, "{at} {to_at} {length}: {told}");
    }
    // The fid is used once, and free afterwards.
    let id = b.begin("Tcopyrange tag 1 srcfid 1 srcoffset 0 dstfid 1 dstoffset 5 length 5 flags 0");
    assert_eq!(b.send("Tclunk tag 2 fid 1"), Did::Cancel([id].to_vec()));
    b.done(id, Done::Copied(5));
    b.farewells();
    assert_eq!(b.replies(), ["Rcopyrange tag 1 count 5", "Rclunk tag 2"]);
}

#[test]
fn allocation_takes_the_modes_that_there_are() {
    let mut b = n1(false);
    let line = |fid: u32, mode: u32, offset: u64, length: u64| {
        format!("Tallocate tag 1 fid {fid} mode 0{mode:o} offset {offset} length {length}")
    };
    for mode in [0, 1, 3, 0x10, 0x11] {
        assert!(op(&mut b, &line(1, mode, 5, 6)).ends_with(&format!("mode: {mode}, offset: 5, length: 6 }}")));
    }
    for mode in [2, 0x12, 0x13, 4, 8, 0x20, 0x40] {
        refused(&mut b, &line(1, mode, 5, 6), Errno::EINVAL);
    }
    refused(&mut b, &line(1, 0, 5, 0), Errno::EINVAL);
    refused(&mut b, &line(1, 0, PAST - 5, 6), Errno::EINVAL);
    refused(&mut b, &line(1, 0, u64::MAX, 6), Errno::EINVAL);
    for fid in [0, 2, 3, 4, 9] {
        refused(&mut b, &line(fid, 0, 0, 1), Errno::EBADF);
    }
    let id = b.begin(&line(5, 0, 0, 1));
    b.done(id, Done::Unit);
    assert_eq!(b.replies(), ["Rallocate tag 1"]);
}

#[test]
fn data_and_holes_are_sought_in_an_open_file() {
    let mut b = n1(false);
    let line = |fid: u32, offset: u64, whence: u32| format!("Tseek tag 1 fid {fid} offset {offset} whence {whence}");
    assert!(op(&mut b, &line(5, 7, 3)).ends_with("offset: 7, hole: false }"));
    assert!(op(&mut b, &line(4, PAST - 1, 4)).ends_with("hole: true }"));
    for whence in [0, 1, 2, 5, u32::MAX] {
        refused(&mut b, &line(1, 0, whence), Errno::EINVAL);
    }
    refused(&mut b, &line(1, PAST, 3), Errno::EINVAL);
    refused(&mut b, &line(2, 0, 3), Errno::EBADF);
    refused(&mut b, &line(9, 0, 3), Errno::EBADF);
    refused(&mut b, &line(3, 0, 3), Errno::EISDIR);
    let id = b.begin(&line(1, 7, 3));
    b.done(id, Done::Offset(7));
    assert_eq!(b.replies(), ["Rseek tag 1 offset 7"]);
    for at in [6, PAST] {
        let id = b.begin(&line(1, 7, 3));
        b.done(id, Done::Offset(at));
        assert!(b.replies()[0].starts_with("Rlerror tag 1 ecode 5 "), "{at}");
    }
    let id = b.begin(&line(1, 7, 4));
    b.fail(id, Errno::ENXIO);
    assert_eq!(b.replies(), ["Rlerror tag 1 ecode 6 retry_ms 0 text ''"]);
}

#[test]
fn a_rename_with_flags_replaces_nothing_or_exchanges() {
    let mut b = n1(false);
    let line = |old: u32, name: &str, new: u32, flags: u32| {
        format!("Trename2 tag 1 olddirfid {old} oldname 'a' newdirfid {new} newname '{name}' flags {flags}")
    };
    assert!(op(&mut b, &line(0, "b", 3, 0)).starts_with("RenameEntry {"));
    for (flags, how) in [(1, Rename::NoReplace), (2, Rename::Exchange)] {
        let asked = op(&mut b, &line(0, "b", 0, flags));
        assert!(asked.starts_with("RenameWith {") && asked.ends_with(&format!("how: {how:?} }}")), "{asked}");
    }
    for flags in [3, 4, 7] {
        refused(&mut b, &line(0, "b", 0, flags), Errno::EINVAL);
    }
    for name in ["", ".", "..", "b/c"] {
        refused(&mut b, &line(0, name, 0, 1), Errno::EINVAL);
    }
    refused(&mut b, &line(0, &"n".repeat(256), 0, 1), Errno::ENAMETOOLONG);
    refused(&mut b, &line(1, "b", 0, 1), Errno::ENOTDIR);
    refused(&mut b, &line(0, "b", 2, 1), Errno::ENOTDIR);
    refused(&mut b, &line(9, "b", 0, 1), Errno::EBADF);
    refused(&mut b, &line(0, "b", 9, 1), Errno::EBADF);
    for flags in 0..3 {
        let id = b.begin(&line(0, "b", 3, flags));
        b.done(id, Done::Unit);
        assert_eq!(b.replies(), ["Rrename2 tag 1"]);
    }
}

#[test]
fn none_of_it_is_there_in_another_version() {
    for (dialect, version) in [(Dialect::Linux, "9P2000.L"), (Dialect::Unix, "9P2000.u.ix"), (Dialect::Plan9, "9P2000")]
    {
        let mut b = Bench::attached_as(dialect, version);
        for kind in (172..=190).step_by(2) {
            let frame = [&[7, 0, 0, 0, kind, 1, 0][..]].concat();
            assert_eq!(b.frame(&frame, &|_| false), Did::Handled);
            let told = b.replies().pop().unwrap();
            let number = match dialect {
                Dialect::Linux => "ecode 95",
                Dialect::Unix => "errno 95",
                Dialect::Plan9 => "unknown message type",
            };
            assert!(told.contains(number), "{kind}: {told}");
        }
    }
}
