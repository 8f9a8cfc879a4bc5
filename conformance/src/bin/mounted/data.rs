//! What is written is what is read: offsets, holes, lengths, many at once.

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, SeekFrom as Seeks, fallocate, seek, sendfile};
use rustix::io::Errno;

use crate::check::{Place, checks, holds, look, noise, refused, same};

checks![
    writes_at_offsets_meet_no_others,
    writes_over_page_and_message_edges_are_whole,
    reads_at_every_edge_give_the_bytes_there,
    large_write_is_read_back,
    write_behind_the_end_leaves_zeros,
    write_behind_four_gigabytes_is_found,
    read_at_the_end_gives_nothing,
    shrinking_cuts_and_growing_adds_zeros,
    truncate_by_path_changes_open_files,
    negative_length_is_refused,
    vectors_are_written_and_read_in_order,
    seeks_go_where_they_say,
    seek_for_holes_ends_at_the_end,
    sendfile_carries_all,
    copy_file_range_carries_all,
    append_by_many_threads_loses_nothing,
    writes_by_many_threads_lie_side_by_side,
    one_descriptor_sees_what_another_wrote,
    empty_write_changes_nothing,
    many_small_writes_make_the_whole,
    overwriting_in_the_middle_keeps_the_rest,
    copy_of_a_file_is_equal,
    fallocate_reserves_room,
];

fn both(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))
}

fn writes_at_offsets_meet_no_others(place: &Place) -> Result<()> {
    let file = both(&place.at("file"))?;
    let mut want = vec![0; 20_000];
    for (step, at) in [17_u32, 5000, 1, 12_000, 4096, 4095, 8191, 19_000].into_iter().enumerate() {
        let piece = noise(997, step as u64);
        file.write_all_at(&piece, at.into())?;
        let at = at as usize;
        want[at..at + piece.len()].copy_from_slice(&piece);
    }
    want.truncate(19_997);
    holds(&place.at("file"), want)
}

/// Offsets around pages and around what one message of usual sizes carries.
const EDGES: [u64; 8] = [0, 4096, 8192 - 24, 65_536 - 24, 65_536, 131_072, 262_144 - 24, 262_144];

fn writes_over_page_and_message_edges_are_whole(place: &Place) -> Result<()> {
    let file = both(&place.at("file"))?;
    let mut want = noise(300_000, 4);
    file.write_all_at(&want, 0)?;
    for edge in EDGES {
        for start in [edge.saturating_sub(3), edge, edge + 1] {
            file.write_all_at(b"edges", start)?;
            let start = usize::try_from(start)?;
            want[start..start + 5].copy_from_slice(b"edges");
        }
    }
    holds(&place.at("file"), want)
}

fn reads_at_every_edge_give_the_bytes_there(place: &Place) -> Result<()> {
    let want = noise(300_000, 5);
    let file = File::open(place.file("file", &want)?)?;
    for edge in EDGES {
        for start in [edge.saturating_sub(1), edge, edge + 1] {
            for length in [1, 2, 4096, 20_000] {
                let mut got = vec![0; length];
                file.read_exact_at(&mut got, start)?;
                let start = usize::try_from(start)?;
                same(got.as_slice(), &want[start..start + length], &format!("{length} bytes at {start}"))?;
            }
        }
    }
    Ok(())
}

fn large_write_is_read_back(place: &Place) -> Result<()> {
    let want = noise(5 * 1024 * 1024 + 13, 6);
    let mut file = both(&place.at("file"))?;
    file.write_all(&want)?;
    file.sync_all()?;
    file.rewind()?;
    let mut got = Vec::new();
    file.read_to_end(&mut got)?;
    ensure!(got == want, "other bytes by the same descriptor");
    holds(&place.at("file"), want)
}

fn write_behind_the_end_leaves_zeros(place: &Place) -> Result<()> {
    let path = place.file("file", "start")?;
    both(&path)?.write_all_at(b"end", 100_000)?;
    let mut want = b"start".to_vec();
    want.resize(100_000, 0);
    want.extend(b"end");
    holds(&path, want)
}

fn write_behind_four_gigabytes_is_found(place: &Place) -> Result<()> {
    const FAR: u64 = (4 << 30) + 12_345;
    let file = both(&place.at("file"))?;
    file.write_all_at(b"far", FAR)?;
    same(look(&place.at("file"))?.len(), FAR + 3, "the length")?;
    let mut got = [1; 6];
    File::open(place.at("file"))?.read_exact_at(&mut got, FAR - 3)?;
    same(&got, b"\0\0\0far", "what is there")
}

fn read_at_the_end_gives_nothing(place: &Place) -> Result<()> {
    let file = File::open(place.file("file", "12345")?)?;
    same(file.read_at(&mut [0; 8], 5)?, 0, "bytes at the end")?;
    same(file.read_at(&mut [0; 8], 1_000_000)?, 0, "bytes far behind it")?;
    same(file.read_at(&mut [0; 8], 3)?, 2, "bytes across it")
}

fn shrinking_cuts_and_growing_adds_zeros(place: &Place) -> Result<()> {
    let content = noise(10_000, 7);
    let path = place.file("file", &content)?;
    let file = both(&path)?;
    for length in [9999, 4097, 4096, 4095, 1] {
        file.set_len(length)?;
        same(look(&path)?.len(), length, "the length")?;
    }
    file.set_len(12_000)?;
    let mut want = content[..1].to_vec();
    want.resize(12_000, 0);
    holds(&path, want)?;
    file.set_len(0)?;
    holds(&path, "")
}

fn truncate_by_path_changes_open_files(place: &Place) -> Result<()> {
    let path = place.file("file", noise(5000, 8))?;
    let before = File::open(&path)?;
    both(&path)?.set_len(10)?;
    same(before.metadata()?.len(), 10, "the length")?;
    same(before.read_at(&mut [0; 100], 0)?, 10, "bytes read")
}

fn negative_length_is_refused(place: &Place) -> Result<()> {
    let file = both(&place.at("file"))?;
    refused(rustix::fs::ftruncate(&file, u64::MAX), Errno::INVAL, "ftruncate")
}

fn vectors_are_written_and_read_in_order(place: &Place) -> Result<()> {
    let mut file = both(&place.at("file"))?;
    let (a, b, c) = (noise(10, 1), noise(5000, 2), noise(3, 3));
    let written = file.write_vectored(&[IoSlice::new(&a), IoSlice::new(&b), IoSlice::new(&c)])?;
    same(written, 5013, "bytes written")?;
    holds(&place.at("file"), [a.as_slice(), &b, &c].concat())?;
    file.rewind()?;
    let (mut x, mut y) = (vec![0; 13], vec![0; 5000]);
    same(file.read_vectored(&mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)])?, 5013, "bytes read")?;
    same([x, y].concat(), [a, b, c].concat(), "what was read")
}

fn seeks_go_where_they_say(place: &Place) -> Result<()> {
    let mut file = both(&place.file("file", "0123456789")?)?;
    same(file.seek(SeekFrom::End(-3))?, 7, "from the end")?;
    same(file.seek(SeekFrom::Current(-2))?, 5, "from where it was")?;
    same(file.seek(SeekFrom::Start(100))?, 100, "behind the end")?;
    refused(file.seek(SeekFrom::Current(-101)), Errno::INVAL, "before the start")?;
    file.seek(SeekFrom::Start(5))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    same(text.as_str(), "56789", "what is read there")
}

fn seek_for_holes_ends_at_the_end(place: &Place) -> Result<()> {
    let file = both(&place.file("file", noise(5000, 9))?)?;
    // A file system that knows no holes says that there is one at the end: lseek(2).
    same(seek(&file, Seeks::Hole(0))?, 5000, "the hole")?;
    same(seek(&file, Seeks::Data(4000))?, 4000, "the data")?;
    refused(seek(&file, Seeks::Data(5000)), Errno::NXIO, "data behind the end")
}

fn sendfile_carries_all(place: &Place) -> Result<()> {
    let content = noise(200_000, 10);
    let from = File::open(place.file("from", &content)?)?;
    let to = both(&place.at("to"))?;
    let mut left = content.len();
    while left > 0 {
        let carried = sendfile(&to, &from, None, left)?;
        ensure!(carried > 0, "{left} bytes were left");
        left -= carried;
    }
    holds(&place.at("to"), content)
}

fn copy_file_range_carries_all(place: &Place) -> Result<()> {
    let content = noise(100_000, 11);
    let from = File::open(place.file("from", &content)?)?;
    let to = both(&place.at("to"))?;
    let mut left = content.len();
    while left > 0 {
        let carried = rustix::fs::copy_file_range(&from, None, &to, None, left)?;
        ensure!(carried > 0, "{left} bytes were left");
        left -= carried;
    }
    holds(&place.at("to"), content)
}

fn append_by_many_threads_loses_nothing(place: &Place) -> Result<()> {
    const THREADS: usize = 8;
    const LINES: usize = 25;
    let path = place.file("file", "")?;
    thread::scope(|scope| {
        let append = |letter: u8| {
            let mut file = OpenOptions::new().append(true).open(&path)?;
            (0..LINES).try_for_each(|_| file.write_all(&[letter, letter, letter, b'\n']))
        };
        let threads: Vec<_> = (b'a'..).take(THREADS).map(|letter| scope.spawn(move || append(letter))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread"))
    })?;
    let got = fs::read_to_string(&path)?;
    let whole = |line: &&str| line.len() == 3 && line.bytes().all(|byte| byte == line.as_bytes()[0]);
    same(got.lines().filter(whole).count(), THREADS * LINES, "whole lines")
}

fn writes_by_many_threads_lie_side_by_side(place: &Place) -> Result<()> {
    const PIECE: usize = 10_000;
    let file = both(&place.at("file"))?;
    thread::scope(|scope| {
        let write = |n: u64| file.write_all_at(&noise(PIECE, n), n * PIECE as u64);
        let threads: Vec<_> = (0..16).map(|n| scope.spawn(move || write(n))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread"))
    })?;
    holds(&place.at("file"), (0..16).flat_map(|n| noise(PIECE, n)).collect::<Vec<_>>())
}

fn one_descriptor_sees_what_another_wrote(place: &Place) -> Result<()> {
    let writer = both(&place.at("file"))?;
    let reader = File::open(place.at("file"))?;
    for round in 0..10 {
        let piece = noise(3000, round);
        writer.write_all_at(&piece, round * 1500)?;
        let mut got = vec![0; 3000];
        reader.read_exact_at(&mut got, round * 1500)?;
        same(got, piece, &format!("round {round}"))?;
    }
    Ok(())
}

fn empty_write_changes_nothing(place: &Place) -> Result<()> {
    let path = place.file("file", "12345")?;
    same(both(&path)?.write_at(b"", 100)?, 0, "bytes written")?;
    holds(&path, "12345")
}

fn many_small_writes_make_the_whole(place: &Place) -> Result<()> {
    let want = noise(3000, 12);
    let mut file = both(&place.at("file"))?;
    for piece in want.chunks(7) {
        file.write_all(piece)?;
    }
    holds(&place.at("file"), want)
}

fn overwriting_in_the_middle_keeps_the_rest(place: &Place) -> Result<()> {
    let mut want = noise(20_000, 13);
    let path = place.file("file", &want)?;
    let file = OpenOptions::new().write(true).open(&path)?;
    for at in (0..20_000_u16).step_by(1999) {
        file.write_all_at(b"!", at.into())?;
        want[usize::from(at)] = b'!';
    }
    holds(&path, want)
}

fn copy_of_a_file_is_equal(place: &Place) -> Result<()> {
    let content = noise(123_456, 14);
    let from = place.file("from", &content)?;
    same(fs::copy(&from, place.at("to"))?, 123_456, "bytes copied")?;
    holds(&place.at("to"), content)
}

fn fallocate_reserves_room(place: &Place) -> Result<()> {
    let file = both(&place.at("file"))?;
    fallocate(&file, FallocateFlags::empty(), 0, 8192)?;
    same(file.metadata()?.len(), 8192, "the length")
}
