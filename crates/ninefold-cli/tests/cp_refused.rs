//! Servers that do not rename one file onto another, and fail in the copying that stands in for it: what was to be written
//! is somewhere whole, and the user is told where.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ninefold::proto::Dialect;
use support::meddler::{TREAD, TRENAMEAT, TWRITE, TWSTAT, Way, kind, meddle, write_offset};
use support::run;
use support::share::{Share, feed};

/// A relay that makes every rename fail, and then every write behind the first MiB.
fn without_renames(share: &Share) -> String {
    let refused = Arc::new(AtomicBool::new(false));
    let address = meddle(share.address(), move |way, frame| {
        let renames = matches!(kind(frame), TRENAMEAT | TWSTAT);
        let fails = refused.load(Ordering::Relaxed) && kind(frame) == TWRITE && write_offset(frame) >= 1 << 20;
        if way == Way::ToServer && (renames || fails) {
            // No fid has this number.
            frame[7..11].copy_from_slice(&0x7fff_fff0_u32.to_le_bytes());
            refused.store(true, Ordering::Relaxed);
        }
        true
    });
    format!("9p://{address}")
}

/// Checks that `f` is torn, that what was to be in it is whole, and that both were said.
#[track_caller]
fn check(share: &Share, content: &[u8], (code, said): (Option<i32>, String), context: &str) {
    assert_eq!(code, Some(1), "{context}: {said}");
    let whole = share.names(".").into_iter().find(|name| name.starts_with(".f.") && share.read(name) == content);
    let whole = whole.unwrap_or_else(|| panic!("{context}: nothing is whole of {:?}: {said}", share.names(".")));
    assert!(share.read("f") != content, "{context}");
    assert!(said.contains("/f") && said.contains("it is not whole") && said.contains(&whole), "{context}: {said}");
}

#[test]
fn a_file_that_is_written_and_can_neither_be_renamed_nor_copied_is_kept_under_its_temporary_name() {
    let mut content = vec![0; 7_000_000];
    fastrand::Rng::with_seed(1).fill(&mut content);
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("from");
    std::fs::write(&from, &content).unwrap();
    for dialect in [Dialect::Unix, Dialect::Linux] {
        for old in [None, Some(vec![9; 3_000_000])] {
            for copies in [false, true] {
                let share = Share::new();
                if let Some(old) = &old {
                    share.make("f", old);
                }
                let url = format!("{}/f?dialect={dialect}", without_renames(&share));
                let ended = if copies {
                    let (code, _, said) = run(&["cp", from.to_str().unwrap(), &url]);
                    (code, said)
                } else {
                    feed(&["write", &url], &content)
                };
                check(&share, &content, ended, &format!("{dialect}, cp: {copies}, old: {}", old.is_some()));
            }
        }
    }
}

#[test]
fn a_file_of_the_same_size_that_was_written_in_place_in_part_is_not_taken_for_done() {
    let mut content = vec![0; 4_000_000];
    fastrand::Rng::with_seed(2).fill(&mut content);
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("from");
    std::fs::write(&from, &content).unwrap();
    // 9P2000 does not tell how many names a file has: there it is replaced.
    for dialect in [Dialect::Unix, Dialect::Linux] {
        // Up: the server's f has two names. What is behind the first MiB does not get there.
        let share = Share::new();
        let f = share.make("f", vec![9; 4_000_000]);
        std::fs::hard_link(&f, share.path("g")).unwrap();
        let fails = meddle(share.address(), |way, frame| {
            if way == Way::ToServer && kind(frame) == TWRITE && write_offset(frame) >= 1 << 20 {
                frame[7..11].copy_from_slice(&0x7fff_fff0_u32.to_le_bytes());
            }
            true
        });
        let (code, _, said) = run(&["cp", from.to_str().unwrap(), &format!("9p://{fails}/f?dialect={dialect}")]);
        assert_eq!(code, Some(1), "{dialect}: {said}");
        assert!(share.read("f") != content, "{dialect}");
        let (code, _, said) = run(&["cp", "--resume", from.to_str().unwrap(), &share.url("f", dialect)]);
        assert_eq!(code, Some(0), "{dialect}: {said}");
        assert!(share.read("g") == content, "{dialect}: it was taken for done");

        // Down, from a server that does not give what is behind the first MiB.
        let to = here.path().join(format!("to-{dialect}"));
        std::fs::write(&to, vec![9; 4_000_000]).unwrap();
        std::fs::hard_link(&to, here.path().join(format!("second-{dialect}"))).unwrap();
        let fails = meddle(share.address(), |way, frame| {
            if way == Way::ToServer && kind(frame) == TREAD && write_offset(frame) >= 1 << 20 {
                frame[7..11].copy_from_slice(&0x7fff_fff0_u32.to_le_bytes());
            }
            true
        });
        let to = to.to_str().unwrap();
        let (code, _, said) = run(&["cp", &format!("9p://{fails}/f?dialect={dialect}"), to]);
        assert_eq!(code, Some(1), "{dialect}: {said}");
        let (code, _, said) = run(&["cp", "--resume", &share.url("f", dialect), to]);
        assert_eq!(code, Some(0), "{dialect}: {said}");
        assert!(std::fs::read(to).unwrap() == content, "{dialect}: it was taken for done");
    }
}
