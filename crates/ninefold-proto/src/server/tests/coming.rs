//! The files that frames are about to use are known before the first of them is taken.

use super::*;

/// The files of what these lines begin with, cut at so many bytes from their end.
fn files(b: &Bench, lines: &[&str], cut: usize) -> Vec<File> {
    let frames = lines.iter().flat_map(|line| parse(line, b.session.version).unwrap()).collect::<Vec<u8>>();
    b.session.coming(&frames[..frames.len() - cut], 64).copied().collect()
}

#[test]
fn frames_tell_the_files_of_the_fids_that_they_begin_with_and_nothing_is_taken() {
    for dialect in Dialect::ALL {
        let mut b = Bench::attached(dialect);
        let (one, two) = (b.open(1), b.open(2));
        let lines =
            ["Tclunk tag 1 fid 2", "Tclunk tag 2 fid 7", "Tflush tag 4 oldtag 1", "Tread tag 3 fid 1 offset 0 count 9"];
        assert_eq!(files(&b, &lines, 0), [two, one], "7 is nobody's, and a Tflush has none");
        assert_eq!(files(&b, &lines, 12), [two, one], "the last is not whole, but its fid is there");
        assert_eq!(files(&b, &lines, 13), [two], "nor is its fid");
        assert_eq!(b.session.outstanding(), 0);
        // A walk that makes a fid has made none yet.
        b.begin("Twalk tag 1 fid 0 newfid 9 nwname 0");
        assert_eq!(files(&b, &["Tclunk tag 2 fid 9", "Tclunk tag 3 fid 0"], 0), [1]);
    }
}

#[test]
fn what_is_no_frame_ends_them() {
    let mut b = Bench::attached(Dialect::Linux);
    let file = b.open(1);
    let clunk = parse("Tclunk tag 3 fid 1", b.session.version).unwrap();
    for bad in [6u32, 0, u32::MAX] {
        let bytes = [&clunk[..], &bad.to_le_bytes(), &clunk].concat();
        assert_eq!(b.session.coming(&bytes, 64).copied().collect::<Vec<_>>(), [file], "a frame of {bad} bytes");
    }
    let many = [&parse("Tflush tag 1 oldtag 2", b.session.version).unwrap()[..], &clunk].concat().repeat(10);
    assert_eq!(b.session.coming(&many, 7).count(), 3, "frames are counted, and not files");
    assert_eq!(b.session.coming(&[], 64).count(), 0);
    assert_eq!(Bench::new().session.coming(&clunk, 64).count(), 0, "nothing is agreed");
}
