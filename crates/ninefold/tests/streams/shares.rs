//! Streams among which a file is shared that are asked for before anybody knows how long it is (SHARED).

use ninefold::proto::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bed::{Bed, Opened, Session, opening, soon};

const MORE: u32 = 1;
const COPIED: u32 = 2;
const UNLESS_LONG: u32 = 4;
const SHARED: u32 = 8;

/// Bytes that each has of a long file.
const PIECE: u64 = 1 << 20;
/// The longest file that is short.
const SHORT: usize = 16 << 20;

/// One of so many.
pub async fn share(s: &mut Session, number: u64, of: u32) -> Result<Opened, u32> {
    let flags = MORE | COPIED | UNLESS_LONG | SHARED | of << 8;
    s.stream_as(flags, 1, number * PIECE, PIECE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_has_an_even_part_of_a_short_file_and_what_it_asks_for_of_a_long_one() {
    let bed = Bed::new();
    // By the kernel, and by the tree's own reads.
    for tree in ["host", "mem"] {
        for (len, of, is_shared) in [
            (4096, 1, true),
            (SHORT, 1, true),
            (SHORT + 1, 1, false),
            (8192, 2, true),
            (300_000, 8, true),
            (SHORT, 3, true),
            (SHORT + 1, 3, false),
            (40 << 20, 16, false),
        ] {
            let bytes = bed.file("f", len);
            let mut s = bed.session("9P2000.L.n1", tree).await;
            match tree {
                "host" => s.open_file(1, "f", 0).await,
                _ => {
                    s.create(1, &format!("f{len}.{of}")).await;
                    let opened = s.stream(1, false, 0, len as u64).await.unwrap();
                    bed.data(&opened.token).await.write_all(&bytes).await.unwrap();
                    assert_eq!(s.end(opened.id, 0).await.unwrap().0, len as u64);
                }
            }
            let mut next = 0;
            for number in 0..u64::from(of) {
                let opened = share(&mut s, number, of).await.unwrap();
                let (offset, length) = opened.part;
                match is_shared {
                    true => assert!(offset == next && length.abs_diff(len as u64 / u64::from(of)) <= 4096),
                    false => assert_eq!((offset, length), (number * PIECE, PIECE)),
                }
                next = offset + length;
                let mut data = bed.bare().await;
                data.write_all(&opening(&opened.token)).await.unwrap();
                let mut got = vec![0; length as usize];
                soon("a share", data.read_exact(&mut got)).await.unwrap();
                assert!(got == bytes[offset as usize..next as usize], "{tree} {len} {number}");
                let (count, modrev) = s.end(opened.id, 0).await.unwrap();
                // Of pages of a long file, with others behind them, nobody says that they stayed as they were.
                assert!(count == length && (modrev == opened.modrev || !is_shared), "{tree} {len} {number}");
            }
            assert!(!is_shared || next == len as u64, "{tree} {len}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_too_short_for_so_many_has_no_shares_and_keeps_no_place() {
    let bed = Bed::new();
    let mut s = bed.session("9P2000.L.n1", "host").await;
    for (len, of) in [(0, 1), (4095, 1), (0, 2), (4095, 2), (8191, 2), (8 * 4096 - 1, 8)] {
        bed.file("f", len);
        s.open_file(1, "f", 0).await;
        for number in 0..u64::from(of) {
            assert_eq!(share(&mut s, number, of).await.err(), Some(Errno::EINVAL.0), "{len} of {of}");
        }
        s.ask("Tclunk tag 3 fid 1").await;
    }
    assert_eq!((bed.server.streams(), bed.server.stream_counts().opened), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_grows_between_two_is_told_to_be_another() {
    let bed = Bed::new();
    bed.file("f", 300_000);
    let mut s = bed.session("9P2000.L.n1", "host").await;
    s.open_file(1, "f", 0).await;
    let first = share(&mut s, 0, 2).await.unwrap();
    bed.file("f", 400_000);
    let second = share(&mut s, 1, 2).await.unwrap();
    assert_eq!(first.part.0 + first.part.1, 147_456);
    assert_eq!((second.part.0, second.part.0 + second.part.1), (196_608, 400_000));
    assert_ne!(first.modrev, second.modrev);
}
