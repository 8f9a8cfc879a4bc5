//! What is promised of regions that are addresses.

use std::io::SeekFrom;

use ninefold_stream::{Error, Mode, Options, Raw, RawRegion, Stream, Wanted};

fn file(directory: &tempfile::TempDir, data: &[u8]) -> std::path::PathBuf {
    let path = directory.path().join("file");
    std::fs::write(&path, data).unwrap();
    path
}

fn both(path: &std::path::Path) -> Raw {
    Raw::new(Options::new().read(true).write(true).open(path).unwrap())
}

fn at(to: SeekFrom, bytes: usize) -> Wanted {
    Wanted { to: Some(to), ..Wanted::bytes(bytes) }
}

fn reading(bytes: usize) -> Wanted {
    Wanted { mode: Some(Mode::Read), ..Wanted::bytes(bytes) }
}

fn data(region: RawRegion) -> &'static [u8] {
    // SAFETY: a region that is out; the tests look at it no longer than it is.
    unsafe { std::slice::from_raw_parts(region.at, region.bytes) }
}

fn write(region: RawRegion, data: &[u8]) {
    assert!(data.len() <= region.bytes);
    // SAFETY: a region that is out, of so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), region.at, data.len()) };
}

#[test]
fn what_was_written_into_a_region_that_is_read_is_nobody_elses_when_its_end_is_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, [b'f'; 1000]).unwrap();
    let stream = Raw::new(Options::new().read(true).module("pread").open(&path).unwrap());
    let region = stream.alloc(Wanted::bytes(100)).unwrap();
    // SAFETY: the region's own bytes.
    unsafe { region.at.write_bytes(b'x', 100) };
    let region = stream.resize(region.at, 10, None, true).unwrap();
    let next = stream.alloc(Wanted::bytes(90)).unwrap();
    // SAFETY: a region that is read.
    let bytes = unsafe { std::slice::from_raw_parts(next.at, next.bytes) };
    assert_eq!(bytes, [b'f'; 90]);
    assert_eq!(stream.stream().position(), 100);
    stream.free(region.at).unwrap();
    stream.free(next.at).unwrap();
}

#[test]
fn what_is_put_back_is_read_next_whatever_is_written_into_the_region_that_it_was_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, b"0123456789");
    let (from, mut to) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut to, b"0123456789").unwrap();
    for stream in [Options::new().read(true).module("pread").open(&path), Options::new().take(from.into())] {
        let stream = Raw::new(stream.unwrap());
        let (first, second) = (stream.alloc(Wanted::bytes(2)).unwrap(), stream.alloc(Wanted::bytes(2)).unwrap());
        stream.stream().unread(b'3').unwrap();
        stream.stream().unread(b'2').unwrap();
        write(second, b"xx");
        let again = stream.alloc(Wanted::bytes(3)).unwrap();
        assert_eq!(data(again), b"234", "{}", stream.stream().module());
        // Of two regions at the same bytes each has its own.
        write(again, b"yyy");
        assert_eq!((data(first), data(second)), (&b"01"[..], &b"xx"[..]));
        for region in [first, second, again] {
            stream.free(region.at).unwrap();
        }
        // Nobody has it: it stays where it lies.
        stream.stream().unread(b'y').unwrap();
        assert_eq!(data(stream.alloc(Wanted::bytes(2)).unwrap()), b"y5");
    }
}

#[test]
fn an_address_that_is_not_out_is_refused_and_does_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, b"0123456789");
    let (one, other) = (both(&path), Raw::new(Stream::open(&path).unwrap()));
    let region = one.alloc(Wanted::bytes(4)).unwrap();
    write(region, b"abcd");
    let inside = region.at.wrapping_add(1);
    for wrong in [std::ptr::null_mut(), inside, region.at.wrapping_add(4), std::ptr::dangling_mut()] {
        assert!(!one.quick_free(wrong));
        assert_eq!(one.free(wrong), Err(Error::NotLent));
        assert_eq!(one.resize(wrong, 2, None, true), Err(Error::NotLent));
    }
    assert!(!other.quick_free(region.at));
    assert_eq!(other.free(region.at), Err(Error::NotLent));
    assert_eq!(one.stream().flush(), Ok(()));
    assert_eq!(std::fs::read(&path).unwrap(), b"0123456789", "it is still out");
    one.free(region.at).unwrap();
    assert_eq!(one.free(region.at), Err(Error::NotLent));
    one.stream().flush().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"abcd456789");
}

#[test]
fn many_regions_are_out_at_a_time_and_each_is_freed_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let stream = Raw::new(Stream::create(&path).unwrap());
    let mut regions: Vec<_> = (0..5000u32).map(|n| (n, stream.alloc(Wanted::bytes(4)).unwrap())).collect();
    fastrand::Rng::with_seed(3).shuffle(&mut regions);
    for (n, region) in &regions {
        write(*region, &n.to_le_bytes());
        if !stream.quick_free(region.at) {
            stream.free(region.at).unwrap();
        }
        assert_eq!(stream.free(region.at), Err(Error::NotLent));
    }
    assert!(stream.close().is_ok());
    let all: Vec<u8> = (0..5000u32).flat_map(u32::to_le_bytes).collect();
    assert!(std::fs::read(&path).unwrap() == all);
}

#[test]
fn what_is_written_to_a_region_that_is_read_nobody_else_gets() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, b"0123456789");
    let stream = both(&path);
    let region = stream.alloc(reading(6)).unwrap();
    write(region, b"......");
    let again = stream.alloc(at(SeekFrom::Start(2), 8)).unwrap();
    assert_eq!(data(again), b"23456789");
    write(again, b"..");
    stream.free(region.at).unwrap();
    stream.free(again.at).unwrap();
    assert_eq!(data(stream.alloc(at(SeekFrom::Current(-8), 3)).unwrap()), b"234");
    assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
}

#[test]
fn a_region_without_bytes_is_freed_too_and_is_in_nobodys_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let stream = Raw::new(Stream::create(&path).unwrap());
    let first = stream.alloc(Wanted::bytes(10)).unwrap();
    let empty = stream.resize(first.at, 0, None, true).unwrap();
    assert_eq!(empty.bytes, 0);
    assert_eq!(stream.resize(empty.at, 5, None, true), Err(Error::NotLatest));
    let second = stream.alloc(Wanted::bytes(3)).unwrap();
    assert!(first.at == second.at && empty.at != second.at);
    write(second, b"abc");
    assert_eq!(stream.free(empty.at), Ok(()));
    assert_eq!(stream.free(empty.at), Err(Error::NotLent));
    assert_eq!(stream.stream().flush(), Ok(()));
    assert_eq!(std::fs::read(&path).unwrap(), b"", "the other is still out");
    assert_eq!(stream.free(second.at), Ok(()));
    assert_eq!(stream.free(second.at), Err(Error::NotLent));
    assert!(stream.close().is_ok());
    assert_eq!(std::fs::read(&path).unwrap(), b"abc");
}

#[test]
fn a_region_is_made_exactly_as_long_as_was_asked_or_stays_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, &[b'x'; 10_000]);
    let stream = both(&path);
    let region = stream.alloc(reading(9_000)).unwrap();
    assert_eq!(stream.resize(region.at, 10_001, None, true), Err(Error::TooFew));
    assert_eq!(stream.resize(region.at, 9_500, Some(Mode::Write), true), Err(Error::NotLatest));
    assert_eq!((stream.stream().position(), data(region)), (9_000, &[b'x'; 9_000][..]));
    let all = stream.resize(region.at, 10_001, None, false).unwrap();
    assert_eq!((all.bytes, stream.stream().position()), (10_000, 10_000));
    stream.free(all.at).unwrap();

    // Written: it moves, and what it had goes with it.
    let small = stream.alloc(Wanted { mode: Some(Mode::Write), ..at(SeekFrom::Start(0), 3) }).unwrap();
    write(small, b"abc");
    let large = stream.resize(small.at, 3 << 20, None, true).unwrap();
    assert_eq!(&data(large)[..3], b"abc");
    if large.at != small.at {
        assert_eq!(stream.free(small.at), Err(Error::NotLent));
    }
    let large = stream.resize(large.at, 4, None, true).unwrap();
    write(large, b"abcd");
    stream.free(large.at).unwrap();
    assert!(stream.close().is_ok());
    assert_eq!(&std::fs::read(&path).unwrap()[..6], b"abcdxx");
}

#[test]
fn a_stream_is_not_closed_while_regions_are_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let stream = Raw::new(Stream::create(&path).unwrap());
    let (first, second) = (stream.alloc(Wanted::bytes(1)).unwrap(), stream.alloc(Wanted::bytes(1)).unwrap());
    write(second, b"b");
    stream.free(second.at).unwrap();
    let Err((Error::StillLent, Some(stream))) = stream.close() else { panic!("it was closed") };
    write(first, b"a");
    stream.free(first.at).unwrap();
    assert!(stream.close().is_ok());
    assert_eq!(std::fs::read(&path).unwrap(), b"ab");
}

#[test]
fn who_has_the_lock_makes_several_calls_one_and_nobody_else_gives_it_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let stream = Raw::new(Stream::create(&path).unwrap());
    let put = |byte: u8| {
        let at = stream.quick_alloc(1).or_else(|| stream.alloc(Wanted::bytes(1)).ok().map(|region| region.at)).unwrap();
        write(RawRegion { at, bytes: 1 }, &[byte]);
        assert!(stream.quick_free(at) || stream.free(at).is_ok());
    };
    assert_eq!(stream.unlock(), Err(Error::NotLocked));
    std::thread::scope(|scope| {
        for byte in b'a'..=b'd' {
            let (stream, put) = (&stream, &put);
            scope.spawn(move || {
                for _ in 0..200 {
                    stream.lock();
                    stream.lock();
                    (0..10).for_each(|_| put(byte));
                    std::thread::scope(|inner| {
                        inner.spawn(|| assert_eq!(stream.unlock(), Err(Error::NotLocked)));
                    });
                    stream.unlock().unwrap();
                    (0..10).for_each(|_| put(byte));
                    stream.unlock().unwrap();
                    assert_eq!(stream.unlock(), Err(Error::NotLocked));
                }
            });
        }
    });
    assert!(stream.close().is_ok());
    let all = std::fs::read(&path).unwrap();
    assert_eq!(all.len(), 4 * 200 * 20);
    assert!(all.chunks(20).all(|run| run.iter().all(|byte| *byte == run[0])));
}

#[test]
fn a_stream_on_a_descriptor_for_both_may_be_for_one_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, b"0123456789");
    let open = || std::fs::File::options().read(true).write(true).open(&path).unwrap().into();
    let reads = Options::new().take_only(open(), Mode::Read).unwrap();
    assert_eq!((reads.module(), reads.mode()), ("pread", Mode::Read));
    assert_eq!(reads.set_mode(Mode::Write), Err(Error::NotWritable));
    let writes = Options::new().take_only(open(), Mode::Write).unwrap();
    assert_eq!((writes.module(), writes.mode()), ("pwrite", Mode::Write));
    assert_eq!(writes.set_mode(Mode::Read), Err(Error::NotReadable));
    let read_only = std::fs::File::open(&path).unwrap().into();
    assert_eq!(Options::new().take_only(read_only, Mode::Write).err(), Some(Error::NotWritable));
}

#[test]
fn what_is_lent_twice_at_one_address_is_freed_twice() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, &[b'a'; 10_000]);
    let stream = Raw::new(Options::new().read(true).module("mmap").open(&path).unwrap());
    let first = |bytes| stream.alloc(at(SeekFrom::Start(0), bytes)).unwrap();
    // More than a short section finds.
    let regions: Vec<RawRegion> = (1..=40).map(first).collect();
    assert!(regions.iter().all(|region| region.at == regions[0].at), "a mapped file is lent to whoever asks");
    // The latest is the one that was allocated last, not the one that lies there first.
    assert_eq!(stream.resize(regions[39].at, 60, None, true).unwrap().bytes, 60);
    let (error, stream) = stream.close().unwrap_err();
    assert_eq!(error, Error::StillLent);
    let stream = stream.unwrap();
    for _ in 0..39 {
        stream.free(regions[0].at).unwrap();
    }
    // One is out, and has its bytes.
    let (_, stream) = stream.close().unwrap_err();
    let stream = stream.unwrap();
    assert_eq!(data(RawRegion { bytes: 60, ..regions[0] }), [b'a'; 60]);
    stream.free(regions[0].at).unwrap();
    assert_eq!(stream.free(regions[0].at), Err(Error::NotLent));
    assert!(stream.close().is_ok());
}

#[test]
fn a_call_ends_no_lock_that_a_guard_has() {
    let directory = tempfile::tempdir().unwrap();
    let stream = both(&file(&directory, b"0123456789"));
    let guard = stream.stream().lock();
    assert_eq!(stream.unlock(), Err(Error::NotLocked));
    stream.lock();
    assert_eq!(stream.unlock(), Ok(()));
    assert_eq!(stream.unlock(), Err(Error::NotLocked));
    drop(guard);
    assert_eq!(stream.unlock(), Err(Error::NotLocked));
}

#[test]
fn regions_that_are_made_empty_by_many_threads_are_all_freed_and_what_the_others_write_is_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, b"");
    let stream = Raw::new(Stream::create(&path).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let stream = &stream;
            scope.spawn(move || {
                for round in 0..2000 {
                    let region = stream.alloc(Wanted::bytes(8)).unwrap();
                    if (thread + round) % 2 == 0 {
                        // Another may have been allocated since.
                        match stream.resize(region.at, 0, None, true) {
                            Ok(empty) => stream.free(empty.at).unwrap(),
                            Err(e) => {
                                assert_eq!(e, Error::NotLatest);
                                write(region, b"resized.");
                                stream.free(region.at).unwrap();
                            }
                        }
                    } else {
                        write(region, b"written.");
                        stream.free(region.at).unwrap();
                    }
                }
            });
        }
    });
    stream.stream().flush().unwrap();
    let written = std::fs::read(&path).unwrap();
    let whole = written.chunks(8).all(|piece| piece == b"written." || piece == b"resized.");
    assert!(
        whole && written.chunks(8).filter(|&piece| piece == b"written.").count() == 4000,
        "{} bytes",
        written.len()
    );
    assert!(stream.close().is_ok());
}

/// A stream that writes a new file, with one byte written and room at hand.
fn writing(path: &std::path::Path) -> Raw {
    let stream = Raw::new(Stream::create(path).unwrap());
    assert!(!stream.quick_write(b"?"), "there is no buffer yet");
    let region = stream.alloc(Wanted::bytes(1)).unwrap();
    write(region, b"^");
    stream.free(region.at).unwrap();
    stream
}

#[test]
fn few_bytes_are_written_at_once_up_to_the_last_one_that_there_is_room_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let stream = writing(&path);
    let mut all = b"^".to_vec();
    // Never beyond the room, and all of it: pieces that get shorter by a byte take the rest.
    let piece: Vec<u8> = (0..4096).map(|at| (at / 5 % 251) as u8).collect();
    for bytes in (1..=4096).rev() {
        while stream.quick_write(&piece[..bytes]) {
            all.extend_from_slice(&piece[..bytes]);
            assert_eq!(stream.stream().position(), all.len() as u64);
        }
    }
    assert!(all.len() > 2 * 4096 && stream.quick_alloc(1).is_none(), "{} bytes", all.len());
    // Behind them the longer way goes on.
    let region = stream.alloc(Wanted::bytes(2)).unwrap();
    write(region, b"..");
    stream.free(region.at).unwrap();
    assert!(stream.quick_write(b"$"));
    all.extend_from_slice(b"..$");
    assert!(stream.close().is_ok());
    assert!(std::fs::read(&path).unwrap() == all);
}

#[test]
fn few_bytes_are_not_written_at_once_where_that_would_not_be_short_or_would_not_be_right() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let stream = writing(&path);
    let at_once = |bytes: &[u8]| {
        let before = stream.stream().position();
        let written = stream.quick_write(bytes);
        assert_eq!(stream.stream().position() - before, if written { bytes.len() as u64 } else { 0 });
        written
    };
    assert!(!at_once(b""), "there is nothing to be done");
    assert!(!at_once(&[b'?'; 4097]), "who comes meanwhile would wait too long");
    let room = stream.quick_alloc(4097).expect("though there was room");
    assert!(!at_once(b"?"), "a region is out, and may get longer");
    write(RawRegion { at: room, bytes: 4097 }, &[b'r'; 4097]);
    assert!(stream.quick_free(room));
    assert!(at_once(b"of the owner,"));

    // Nobody but the owner, and who has locked the stream.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!stream.quick_write(b"?"));
            stream.lock();
            let written = at_once(b"of who has locked it,");
            stream.unlock().unwrap();
            assert!(written && !stream.quick_write(b"?"));
        });
    });
    stream.stream().use_in_this_thread();
    assert!(at_once(b"of the owner again"));

    // Another stream on the file is to be told.
    let other = Stream::open(&path).unwrap();
    assert!(!at_once(b"?"));
    let all = [&b"^"[..], &[b'r'; 4097], b"of the owner,of who has locked it,of the owner again"].concat();
    assert_eq!(other.alloc(all.len() + 1).unwrap()[..], all);
    drop(other);
    assert!(stream.close().is_ok());
    assert!(std::fs::read(&path).unwrap() == all);
}

#[test]
fn nothing_is_written_at_once_to_what_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, b"0123456789");
    let stream = Raw::new(Options::new().read(true).module("pread").open(&path).unwrap());
    let region = stream.alloc(Wanted::bytes(2)).unwrap();
    stream.free(region.at).unwrap();
    assert!(!stream.quick_write(b"??"));
    assert_eq!(data(stream.alloc(Wanted::bytes(3)).unwrap()), b"234");
}

#[test]
fn a_stream_that_threads_take_from_each_other_in_the_middle_loses_nothing_of_anybodys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let stream = Raw::new(Stream::create(&path).unwrap());
    std::thread::scope(|scope| {
        for byte in b'a'..=b'd' {
            let stream = &stream;
            scope.spawn(move || {
                for round in 0..2000 {
                    // The owner before may be in a short section.
                    if round % 20 == 0 {
                        stream.stream().use_in_this_thread();
                    }
                    if !stream.quick_write(&[byte; 8]) {
                        let region = stream.alloc(Wanted::bytes(8)).unwrap();
                        write(region, &[byte; 8]);
                        stream.free(region.at).unwrap();
                    }
                }
            });
        }
    });
    assert!(stream.close().is_ok());
    let all = std::fs::read(&path).unwrap();
    let (records, rest) = all.as_chunks::<8>();
    assert!(rest.is_empty() && records.iter().all(|record| *record == [record[0]; 8]));
    for byte in b'a'..=b'd' {
        assert_eq!(records.iter().filter(|record| record[0] == byte).count(), 2000);
    }
}
