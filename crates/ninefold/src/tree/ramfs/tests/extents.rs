//! Copies, allocation, holes, and writes at the end.

use ninefold_proto::n1::allocate;

use super::super::content::CHUNK;
use super::*;
use crate::server::fallback::COPY_MOST;
use crate::server::{Cancel, Parking, Written};

const STEP: u64 = CHUNK as u64;

impl Fid {
    fn copy(&self, at: u64, to: &Fid, to_at: u64, length: u64) -> Result<u64, Errno> {
        in_runtime(|| self.0.copyrange(&cx(), at, &*to.0, to_at, length))
    }

    fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<(), Errno> {
        in_runtime(|| self.0.allocate(&cx(), mode, offset, length))
    }

    fn data(&self, offset: u64) -> Result<u64, Errno> {
        now(self.0.seek(&cx(), offset, false))
    }

    fn hole(&self, offset: u64) -> Result<u64, Errno> {
        now(self.0.seek(&cx(), offset, true))
    }

    fn writex(&self, offset: u64, data: &'static [u8], append: bool) -> Result<Written, Errno> {
        now(self.0.writex(&cx(), offset, Bytes::from_static(data), append, true))
    }
}

#[test]
fn a_range_is_copied_and_ends_with_the_source() {
    let root = attach(&fs(), ANN);
    let (from, to) = (root.create("from", 0o644), root.create("to", 0o644));
    from.write(0, b"0123456789").unwrap();
    to.write(0, b"abcdefghij").unwrap();
    let before = to.attr();
    assert_eq!(from.copy(2, &to, 4, 3), Ok(3));
    assert_eq!(to.read(), &b"abcd234hij"[..]);
    assert_ne!(to.attr().qid.version, before.qid.version);
    assert_eq!(from.copy(8, &to, 12, 1 << 40), Ok(2));
    assert_eq!(to.read(), &b"abcd234hij\0\x0089"[..]);
    assert_eq!(from.copy(10, &to, 0, 5), Ok(0));
    assert_eq!(from.copy(3, &from, 0, 3), Ok(3));
    assert_eq!(from.read(), &b"3453456789"[..]);
    let another = root.at("from");
    another.open(Access::ReadWrite).unwrap();
    assert_eq!(from.copy(0, &another, 2, 3), Err(Errno::EINVAL));
    let elsewhere = attach(&fs(), ANN).create("f", 0o644);
    assert_eq!(from.copy(0, &elsewhere, 0, 3), Err(Errno::EXDEV));
}

#[test]
fn a_copy_is_bounded_ends_when_it_is_cancelled_and_tells_what_had_room() {
    let fs = RamFs::with_limit(4 << 20);
    fs.set_root(ROOT_USER, ROOT_USER, 0o777);
    let root = attach(&fs, ANN);
    let (from, to) = (root.create("from", 0o644), root.create("to", 0o644));
    from.truncate(2 * COPY_MOST).unwrap();
    // What was never written is copied as zeros, as copy_file_range(2) may.
    let copied = from.copy(0, &to, 0, 2 * COPY_MOST).unwrap();
    assert!((1 << 20..4 << 20).contains(&copied), "{copied}");
    assert_eq!(from.copy(0, &to, COPY_MOST, 1 << 20), Err(Errno::ENOSPC));
    let cancel: Arc<Cancel> = Arc::default();
    cancel.cancel();
    let cancelled = Cx::new(1, cancel, Parking::new(1, 1, None));
    assert_eq!(in_runtime(|| from.0.copyrange(&cancelled, 0, &*to.0, 0, 1)), Err(Errno::EINTR));
}

#[test]
fn data_and_holes_are_found_and_the_end_is_a_hole() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    assert_eq!((file.data(0), file.hole(0)), (Err(Errno::ENXIO), Err(Errno::ENXIO)));
    file.write(3 * STEP + 10, b"data").unwrap();
    file.truncate(6 * STEP).unwrap();
    assert_eq!((file.data(0), file.hole(0)), (Ok(3 * STEP), Ok(0)));
    let hole = file.hole(3 * STEP).unwrap();
    assert!((3 * STEP + 14..=4 * STEP).contains(&hole), "{hole}");
    assert_eq!((file.data(hole), file.hole(hole)), (Err(Errno::ENXIO), Ok(hole)));
    file.write(0, &vec![1; 2 * CHUNK]).unwrap();
    assert_eq!((file.data(7), file.hole(7), file.data(2 * STEP)), (Ok(7), Ok(2 * STEP), Ok(3 * STEP)));
    file.truncate(STEP + 5).unwrap();
    assert_eq!(
        (file.hole(0), file.hole(STEP + 4), file.hole(STEP + 5)),
        (Ok(STEP + 5), Ok(STEP + 5), Err(Errno::ENXIO))
    );
    assert_eq!((file.data(STEP + 5), root.hole(0)), (Err(Errno::ENXIO), Err(Errno::EISDIR)));
}

#[test]
fn allocated_bytes_are_zeros_that_have_room() {
    let fs = RamFs::with_limit(1 << 20);
    fs.set_root(ROOT_USER, ROOT_USER, 0o777);
    let root = attach(&fs, ANN);
    let (file, other) = (root.create("f", 0o644), root.create("other", 0o644));
    file.write(0, b"data").unwrap();
    file.allocate(0, 2, 10 * STEP).unwrap();
    assert_eq!((file.attr().size, &file.read()[..6]), (2 + 10 * STEP, &b"data\0\0"[..]));
    file.allocate(allocate::KEEP_SIZE, 11 * STEP, STEP).unwrap();
    assert_eq!(file.attr().size, 2 + 10 * STEP);
    // Others take all that is left: what was allocated can be written all the same.
    while other.write(other.attr().size, &[1; 512]).is_ok() {}
    file.write(11 * STEP, &vec![2; CHUNK]).unwrap();
    assert_eq!(file.allocate(0, 0, 14 * STEP), Err(Errno::ENOSPC));
    assert_eq!(file.attr().size, 12 * STEP, "all of it or nothing");
    assert_eq!(file.allocate(0, 0, 17 << 40), Err(Errno::EFBIG));
    assert_eq!(file.allocate(0, 1 << 40, 15 << 40), Err(Errno::ENOSPC), "and at once");
}

#[test]
fn a_hole_is_zeros_and_its_memory_comes_back() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    file.write(0, &vec![7; 4 * CHUNK]).unwrap();
    let before = file.attr();
    file.allocate(allocate::PUNCH_HOLE | allocate::KEEP_SIZE, STEP - 2, 2 * STEP + 4).unwrap();
    let data = file.read();
    assert_eq!(data.iter().filter(|byte| **byte == 0).count(), 2 * CHUNK + 4);
    assert_eq!((data[CHUNK - 3], data[CHUNK - 2], data[3 * CHUNK + 1], data[3 * CHUNK + 2]), (7, 0, 0, 7));
    assert_eq!((file.attr().size, file.attr().blocks), (4 * STEP, before.blocks / 2));
    assert_ne!(file.attr().data_version, before.data_version);
    assert_eq!((file.hole(0), file.data(STEP)), (Ok(STEP), Ok(3 * STEP)));
    file.allocate(allocate::PUNCH_HOLE | allocate::KEEP_SIZE, 9 * STEP, 1 << 40).unwrap();
    file.allocate(allocate::ZERO_RANGE, 3 * STEP + 10, 2 * STEP).unwrap();
    assert_eq!((file.attr().size, file.read()[3 * CHUNK + 9], file.read()[3 * CHUNK + 10]), (5 * STEP + 10, 7, 0));
    file.allocate(allocate::ZERO_RANGE | allocate::KEEP_SIZE, 0, 9 * STEP).unwrap();
    assert_eq!(file.attr().size, 5 * STEP + 10);
    assert!(file.read().iter().all(|byte| *byte == 0));
}

#[test]
fn an_appending_write_tells_where_it_landed() {
    let root = attach(&fs(), ANN);
    let file = root.create("f", 0o644);
    file.write(0, b"12345").unwrap();
    assert_eq!(file.writex(0, b"678", true), Ok(Written { offset: 5, count: 3 }));
    assert_eq!(file.writex(1, b"x", false), Ok(Written { offset: 1, count: 1 }));
    assert_eq!(file.writex(0, b"", true), Ok(Written { offset: 8, count: 0 }));
    let appending = root.try_create("f", 0, 0, false, how(Access::Write, lflags::APPEND)).unwrap();
    assert_eq!(appending.writex(0, b"9", false), Ok(Written { offset: 8, count: 1 }));
    assert_eq!(file.read(), &b"1x3456789"[..]);
    assert_eq!(root.writex(0, b"x", true), Err(Errno::EISDIR));
}
